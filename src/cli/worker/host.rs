//! `transit-worker host`.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{NAME, OrgArg, Session, UrlArg, or_dash};
use crate::addr::Host;
use crate::cli::output::{self, Exit, Failure};
use crate::store::ledger::credentials::{code_hash, fresh_code};
use crate::store::ledger::directory::{self, HostRow};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Print a code that lets a host in, once and for 15 minutes.
    ///
    /// Older unused codes for the same host are void from then on.
    Enroll {
        /// The host's name, unique in its organisation.
        slug: String,
        #[command(flatten)]
        url: UrlArg,
        #[command(flatten)]
        org: OrgArg,
    },
    /// List the hosts, the revoked ones too.
    List {
        #[command(flatten)]
        org: OrgArg,
    },
    /// Take a host's token away: its daemon is cut off at once.
    Revoke {
        /// The host's name.
        slug: String,
        #[command(flatten)]
        org: OrgArg,
    },
}

pub(super) fn run(verb: Verb, session: &Session) -> Result<Exit, Failure> {
    match verb {
        Verb::Enroll { slug, url, org } => enroll(session, &slug, &url, &org),
        Verb::List { org } => {
            let org = session.org(&org)?.id;
            let hosts = session.read("list the hosts", |tx| directory::list_hosts(tx, &org))?;
            session.print(hosts.iter().map(|host| (record(host), line(host))))
        }
        Verb::Revoke { slug, org } => {
            let (org, now) = (session.org(&org)?.id, session.now);
            let slug = parse("revoke the host", &slug)?;
            let host =
                session.write("revoke the host", move |tx| directory::revoke_host(tx, &org, &slug, now))?;
            let words = format!("Host {} is revoked; it can be enrolled again.", host.slug);
            session.print([(json!({ "host": record(&host) }), words)])
        }
    }
}

fn parse(what: &str, slug: &str) -> Result<Host, Failure> {
    slug.parse().map_err(|err| Failure::new(Exit::Data, what, err))
}

fn enroll(session: &Session, slug: &str, url: &UrlArg, org: &OrgArg) -> Result<Exit, Failure> {
    const WHAT: &str = "enroll the host";
    let host = parse(WHAT, slug)?;
    let (org, now) = (session.org(org)?.id, session.now);
    let (url, told) = session.url(url)?;
    let code = fresh_code();
    let hash = code_hash(&code);
    let expires_at = session.write(WHAT, move |tx| directory::issue_code(tx, &org, &host, &hash, now))?;
    if !told {
        output::say(format_args!(
            "{NAME}: {url} is this machine's own address; --public-url names the one that the host reaches"
        ));
    }
    let command = format!("transitd enroll --url {url} --code {code}");
    let words = format!(
        "Code for {slug}: {code}\nIt is valid once, until {expires_at}. On {slug}, run:\n\n    {command}\n"
    );
    let record = json!({ "code": code, "expires_at": expires_at.to_string(), "command": command });
    session
        .print([(record, words)])
        .map_err(|failure| failure.hint("nobody has seen the code; make another one"))
}

fn record(host: &HostRow) -> Value {
    json!({
        "id": host.id,
        "slug": host.slug,
        "state": state(host),
        "daemon_ver": host.daemon_ver,
        "created_at": host.created_at.to_string(),
        "last_seen_at": host.last_seen_at.map(|at| at.to_string()),
        "revoked_at": host.revoked_at.map(|at| at.to_string()),
    })
}

fn state(host: &HostRow) -> &'static str {
    if host.revoked_at.is_some() { "revoked" } else { "enrolled" }
}

fn line(host: &HostRow) -> String {
    let seen = or_dash(host.last_seen_at);
    format!("{}  {:<32}  {:<8}  last seen {seen}", host.id, host.slug.as_str(), state(host))
}
