//! `transit-worker source`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{NAME, OrgArg, Session, UrlArg, key};
use crate::addr::{Addr, Source};
use crate::cli::duration;
use crate::cli::output::{self, Exit, Failure};
use crate::cli::secret::SecretArgs;
use crate::limits;
use crate::proto::ingest::ReplyPrefix;
use crate::secret::Secret;
use crate::store::ledger::credentials::fresh_secret;
use crate::store::ledger::sources::{self, NewSource, SourceChange, SourceRow};
use crate::store::ledger::{directory, roster};
use crate::store::seal::MasterKey;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Make a source, and print its endpoint and its secret, once.
    Create(Create),
    /// Change a source; what is not named stays as it is.
    Update(Update),
    /// List the sources.
    List {
        #[command(flatten)]
        url: UrlArg,
        #[command(flatten)]
        org: OrgArg,
    },
    /// Give a source a new secret, and print it, once. The old one stays valid for a while.
    Rotate {
        #[command(flatten)]
        one: One,
        /// How long the old secret stays valid. The one before it, from a rotation not long ago, ends now.
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration::parse)]
        overlap: Duration,
        /// The master key is lost: store the new secret under the one that is there now, and be it a fresh one.
        ///
        /// The old secret is lost with its key. Once every source has a new one, start the server again.
        #[arg(long, conflicts_with = "overlap")]
        lost_key: bool,
        #[command(flatten)]
        secret: Given,
        #[command(flatten)]
        url: UrlArg,
    },
    /// Take no events from a source, which then answers as if it did not exist.
    Pause(One),
    /// Take events from a paused source again.
    Resume(One),
    /// Delete a source. Replies that wait for it are never posted; deliveries stay.
    Delete(One),
}

#[derive(Debug, clap::Args)]
pub(super) struct One {
    /// The source's name.
    name: String,
    #[command(flatten)]
    org: OrgArg,
}

#[derive(Debug, clap::Args)]
pub(super) struct Create {
    #[command(flatten)]
    one: One,
    /// Where its events go: NAME@HOST or '#ROOM'. An agent need not exist yet; its events wait for it. A room must.
    #[arg(long, value_name = "ADDR")]
    target: String,
    /// Where replies go when an event does not say. It must begin with one of the prefixes.
    #[arg(long, value_name = "URL")]
    reply_url: Option<String>,
    /// What the reply_url of an event must begin with; may be repeated. Without one, no reply can be posted.
    #[arg(long, value_name = "PREFIX")]
    reply_url_prefix: Vec<String>,
    /// Events that it may send a second.
    #[arg(long, value_name = "N", default_value_t = limits::INGEST_RATE, value_parser = at_least_one())]
    rate: u32,
    /// Events that it may send at once.
    #[arg(long, value_name = "N", default_value_t = limits::INGEST_BURST, value_parser = at_least_one())]
    burst: u32,
    /// One line that the agent reads with every event, of 1,000 characters at most.
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    #[command(flatten)]
    secret: Given,
    #[command(flatten)]
    url: UrlArg,
}

/// A secret that is there already. Nothing is read unless it is named.
#[derive(Debug, clap::Args)]
pub(super) struct Given {
    /// Take the secret from FILE instead of making one. One newline at its end is dropped, nothing else.
    #[arg(long, value_name = "FILE", conflicts_with = "secret_env")]
    secret_file: Option<PathBuf>,
    /// Take it from the environment variable NAME.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    secret_env: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Update {
    #[command(flatten)]
    one: One,
    /// Where its events go: NAME@HOST or '#ROOM'.
    #[arg(long, value_name = "ADDR")]
    target: Option<String>,
    /// Where replies go when an event does not say.
    #[arg(long, value_name = "URL")]
    reply_url: Option<String>,
    /// Replies go only where an event says.
    #[arg(long, conflicts_with = "reply_url")]
    no_reply_url: bool,
    /// What the reply_url of an event must begin with; may be repeated. It replaces the whole list.
    #[arg(long, value_name = "PREFIX")]
    reply_url_prefix: Vec<String>,
    /// Permit no reply_url at all; replies that wait are not posted any more.
    #[arg(long, conflicts_with = "reply_url_prefix")]
    no_reply_url_prefix: bool,
    /// Events that it may send a second.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    rate: Option<u32>,
    /// Events that it may send at once.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    burst: Option<u32>,
    /// One line that the agent reads with every event, of 1,000 characters at most; an empty one clears it.
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    #[command(flatten)]
    url: UrlArg,
}

fn at_least_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

pub(super) fn run(verb: Verb, session: &Session) -> Result<Exit, Failure> {
    match verb {
        Verb::Create(args) => create(session, args),
        Verb::Update(args) => update(session, args),
        Verb::List { url, org } => {
            let org = session.org(&org)?.id;
            let (url, _) = session.url(&url)?;
            let all = session.read("list the sources", |tx| sources::list(tx, &org))?;
            session.print(all.iter().map(|row| (record(row, &url), line(row))))
        }
        Verb::Rotate { one, lost_key: true, secret, url, .. } => {
            let (key, _) = key::find_or_make(session.db.path())?;
            rotate(session, &one, (key, Duration::ZERO), secret, &url)
        }
        Verb::Rotate { one, overlap, secret, url, .. } => {
            rotate(session, &one, (session.key()?, overlap), secret, &url)
        }
        Verb::Pause(one) => set_paused(session, &one, true),
        Verb::Resume(one) => set_paused(session, &one, false),
        Verb::Delete(one) => delete(session, &one),
    }
}

fn broken<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |err| Failure::new(Exit::Data, what, err)
}

fn target(what: &'static str, text: &str) -> Result<Addr, Failure> {
    text.parse().map_err(broken(what))
}

fn prefixes(what: &'static str, texts: &[String]) -> Result<Vec<ReplyPrefix>, Failure> {
    texts.iter().map(|text| text.parse().map_err(broken(what))).collect()
}

/// Instructions are one line, and an empty one is none.
fn instructions(what: &'static str, text: String) -> Result<Option<String>, Failure> {
    if text.contains(crate::text::is_unsafe) {
        return Err(Failure::new(Exit::Data, what, "instructions are one line without control characters"));
    }
    let runes = text.chars().count();
    if runes > limits::INSTRUCTIONS_RUNES {
        let why = format!("instructions of {runes} characters; {} are allowed", limits::INSTRUCTIONS_RUNES);
        return Err(Failure::new(Exit::Data, what, why)
            .hint("the agent reads them with every event: say where it finds the rest"));
    }
    Ok((!text.trim().is_empty()).then_some(text))
}

fn given_or_fresh(given: Given) -> Result<(Secret, bool), Failure> {
    let Given { secret_file, secret_env } = given;
    if secret_file.is_some() || secret_env.is_some() {
        return Ok((SecretArgs { secret_file, secret_env }.read(NAME)?, true));
    }
    Ok((fresh_secret(), false))
}

/// The secret was made and stored, and nobody has seen it.
fn secret_lost(failure: Failure, name: &Source) -> Failure {
    failure.hint(format_args!(
        "the secret is stored, and was shown to nobody; make a new one: {NAME} source rotate {name}"
    ))
}

fn create(session: &Session, args: Create) -> Result<Exit, Failure> {
    const WHAT: &str = "create the source";
    let name: Source = args.one.name.parse().map_err(broken(WHAT))?;
    let (secret, given) = given_or_fresh(args.secret)?;
    let new = NewSource {
        name,
        target_addr: target(WHAT, &args.target)?,
        reply_url: args.reply_url,
        prefixes: prefixes(WHAT, &args.reply_url_prefix)?,
        secret: secret.clone(),
        rate: args.rate,
        burst: args.burst,
        instructions: args.instructions.map(|text| instructions(WHAT, text)).transpose()?.flatten(),
    };
    let (org, now, key) = (session.org(&args.one.org)?.id, session.now, session.key()?);
    let (url, _) = session.url(&args.url)?;
    let row = session.write(WHAT, move |tx| sources::create(tx, &org, &new, &key, now))?;
    let mut words = format!("Source {} is there. Its events go to {}.\n", row.name, row.target_addr);
    words += &secret_words(&row, &url, &secret, given);
    if row.prefixes.is_empty() {
        words += "\nNo reply can be posted: no --reply-url-prefix says where to.";
    }
    let record = json!({ "source": brief(&row, &url), "secret": secret.expose() });
    let printed = session.print([(record, words)]);
    printed.map_err(|failure| if given { failure } else { secret_lost(failure, &row.name) })?;
    note_absent(session, &row)
}

fn rotate(
    session: &Session,
    one: &One,
    (key, overlap): (MasterKey, Duration),
    secret: Given,
    url: &UrlArg,
) -> Result<Exit, Failure> {
    const WHAT: &str = "rotate the secret";
    let name: Source = one.name.parse().map_err(broken(WHAT))?;
    let (secret, given) = given_or_fresh(secret)?;
    let (org, now) = (session.org(&one.org)?.id, session.now);
    let (url, _) = session.url(url)?;
    let new = secret.clone();
    let row = session.write(WHAT, move |tx| sources::rotate(tx, &org, &name, (&key, &new), overlap, now))?;
    let until = row.old_valid_until.map(|at| at.to_string());
    let mut words = format!("Source {} has a new secret.\n", row.name);
    words += &secret_words(&row, &url, &secret, given);
    words += &format!("\nThe old secret is valid until {}.", until.as_deref().unwrap_or("now"));
    let record = json!({
        "source": brief(&row, &url),
        "secret": secret.expose(),
        "old_secret_valid_until": until,
    });
    let printed = session.print([(record, words)]);
    printed.map_err(|failure| if given { failure } else { secret_lost(failure, &row.name) })
}

fn update(session: &Session, args: Update) -> Result<Exit, Failure> {
    const WHAT: &str = "update the source";
    let name: Source = args.one.name.parse().map_err(broken(WHAT))?;
    let named = (args.no_reply_url_prefix || !args.reply_url_prefix.is_empty())
        .then(|| prefixes(WHAT, &args.reply_url_prefix));
    let change = SourceChange {
        target_addr: args.target.map(|text| target(WHAT, &text)).transpose()?,
        reply_url: if args.no_reply_url { Some(None) } else { args.reply_url.map(Some) },
        prefixes: named.transpose()?,
        rate: args.rate,
        burst: args.burst,
        instructions: args.instructions.map(|text| instructions(WHAT, text)).transpose()?,
    };
    let (org, now) = (session.org(&args.one.org)?.id, session.now);
    let (url, _) = session.url(&args.url)?;
    let is_redirected = change.target_addr.is_some();
    let row = session.write(WHAT, move |tx| sources::update(tx, &org, &name, &change, now))?;
    session.print([(json!({ "source": record(&row, &url) }), line(&row))])?;
    if is_redirected { note_absent(session, &row) } else { Ok(Exit::Ok) }
}

/// Says that nobody is at the target yet, which is no mistake when it comes later: what is for it waits.
fn note_absent(session: &Session, row: &SourceRow) -> Result<Exit, Failure> {
    let Addr::Agent(agent) = &row.target_addr else { return Ok(Exit::Ok) };
    let (org, host) = (row.org_id.clone(), agent.host.to_string());
    let read = session.db.read(|tx| {
        let enrolled = directory::host(tx, &org, &agent.host)?.is_some_and(|row| row.revoked_at.is_none());
        Ok((enrolled, roster::is_known(tx, &org, &host, agent.name.as_str())?))
    });
    let (is_enrolled, is_known) = read.map_err(|err| Failure::store("look for the target", &err))?;
    if !is_enrolled {
        output::say(format_args!(
            "{NAME}: no host {host} is enrolled yet, and events wait for it: {NAME} host enroll {host}"
        ));
    } else if !is_known {
        output::say(format_args!(
            "{NAME}: host {host} has not told of an agent {} yet, and events wait for it",
            agent.name
        ));
    }
    Ok(Exit::Ok)
}

fn set_paused(session: &Session, one: &One, paused: bool) -> Result<Exit, Failure> {
    let what = if paused { "pause the source" } else { "resume the source" };
    let name: Source = one.name.parse().map_err(broken(what))?;
    let (org, now) = (session.org(&one.org)?.id, session.now);
    let (url, _) = session.url(&UrlArg { public_url: None })?;
    let row = session.write(what, move |tx| sources::set_paused(tx, &org, &name, paused, now))?;
    let words = match paused {
        true => format!("Source {} is paused: senders get 404.", row.name),
        false => format!("Source {} takes events.", row.name),
    };
    session.print([(json!({ "source": record(&row, &url) }), words)])
}

fn delete(session: &Session, one: &One) -> Result<Exit, Failure> {
    const WHAT: &str = "delete the source";
    let name: Source = one.name.parse().map_err(broken(WHAT))?;
    let org = session.org(&one.org)?.id;
    let row = session.write(WHAT, move |tx| sources::delete(tx, &org, &name))?;
    let gone = json!({ "name": row.name, "integration_id": row.integration_id });
    session.print([(json!({ "deleted": gone }), format!("Source {} is deleted.", row.name))])
}

fn endpoint(row: &SourceRow, url: &str) -> String {
    format!("{url}/ingest/{}", row.name)
}

/// How a sender gets at the source. A secret that the operator brought along is not shown back.
fn secret_words(row: &SourceRow, url: &str, secret: &Secret, given: bool) -> String {
    let endpoint = endpoint(row, url);
    if given {
        return format!("\n  endpoint  {endpoint}\n  secret    the one that you gave");
    }
    let (name, secret) = (&row.name, secret.expose());
    format!(
        "\n  endpoint  {endpoint}\n  secret    {secret}\n\nThe secret is not shown again. On the sender:\n\n    \
         (umask 077; echo '{secret}' > {name}.secret)\n    \
         transit-send {endpoint} --secret-file {name}.secret --conversation test -m hello\n"
    )
}

fn brief(row: &SourceRow, url: &str) -> Value {
    json!({
        "name": row.name,
        "integration_id": row.integration_id,
        "target_addr": row.target_addr.to_string(),
        "endpoint": endpoint(row, url),
    })
}

fn record(row: &SourceRow, url: &str) -> Value {
    let mut record = brief(row, url);
    record["reply_url"] = json!(row.reply_url);
    record["reply_url_prefixes"] = row.prefixes.iter().map(ReplyPrefix::as_str).collect();
    record["paused"] = json!(row.paused);
    record["rate"] = json!(row.rate);
    record["burst"] = json!(row.burst);
    record["instructions"] = json!(row.instructions);
    record["old_secret_valid_until"] = json!(row.old_valid_until.map(|at| at.to_string()));
    record["created_at"] = json!(row.created_at.to_string());
    record["updated_at"] = json!(row.updated_at.to_string());
    record
}

fn line(row: &SourceRow) -> String {
    let state = if row.paused { "paused" } else { "active" };
    let SourceRow { name, target_addr, rate, burst, .. } = row;
    format!("{}  {state}  {name} -> {target_addr}  {rate}/s, {burst} at once", row.integration_id)
}
