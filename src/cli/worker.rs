//! `transit-worker`: the self-hosted Worker, and what its operator does.
//!
//! Everything but `serve` works on the database itself, beside a running server, which notices.

mod backup;
mod delivery;
mod doctor;
mod host;
mod key;
mod message;
mod org;
mod room;
mod serve;
mod source;
mod user;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, Subcommand};
use serde_json::{Value, json};

use super::output::{self, Exit, Failure, Out};
use super::{Common, Page, Tool};
use crate::clock::{Clock, SystemClock, Wall};
use crate::secret::without_passwords;
use crate::store::config::{NoHome, Paths};
use crate::store::ledger::directory::{self, OrgRow};
use crate::store::ledger::{Db, Look, SCHEMA, Tx, sources};
use crate::store::seal::MasterKey;
use crate::store::{StoreError, files};
use crate::text;

const NAME: &str = "transit-worker";
const DATABASE: &str = "TRANSIT_DATABASE";
const MASTER_KEY: &str = "TRANSIT_MASTER_KEY";
/// Where a Worker is reached that nobody has told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:8787";

/// Run a Worker, and look after its hosts, sources, rooms, messages and deliveries.
///
/// A Worker is the server that hosts connect to and that senders post events to. It keeps everything in one
/// database, a file. The commands beside `serve` change that database directly; a running server notices.
#[derive(Debug, Parser)]
#[command(name = NAME, version, disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    common: Common,
}

/// Which database, and how answers look.
#[derive(Debug, clap::Args)]
struct Place {
    /// The database [default: sqlite:worker.db in the data directory].
    #[arg(long, env = DATABASE, hide_env_values = true, global = true, value_name = "sqlite:PATH")]
    database: Option<OsString>,
    /// Print one JSON object a line.
    #[arg(long, global = true)]
    json: bool,
}

/// Which organisation.
#[derive(Debug, clap::Args)]
struct OrgArg {
    /// The organisation's slug or id; needed only when there are several.
    #[arg(long, value_name = "ORG")]
    org: Option<String>,
}

/// Under which address hosts and senders reach the Worker.
#[derive(Debug, clap::Args)]
struct UrlArg {
    /// The address under which the Worker is reached [default: the one it serves, or served last].
    #[arg(long, value_name = "URL", value_parser = base_url)]
    public_url: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve hosts and senders until SIGTERM or SIGINT.
    Serve(serve::Args),
    /// Bring the schema of the database up to date, making the database when there is none.
    Migrate,
    /// Copy the database to a file, also while a server has it.
    ///
    /// The copy holds everything that was promised before it began. To go back to it, stop the server, put the copy in
    /// the database's place, remove the log (-wal and -shm) that lies beside that, and serve again. The secrets in it
    /// open only with the master key, which is not part of the copy: keep one of that as well.
    Backup(backup::Args),
    /// Look whether everything is in order, changing nothing.
    ///
    /// Each finding is a line: ok, note, wrong or damaged, what it is about, and the way out. The exit status is 1 when
    /// something is wrong, and 74 when the database is damaged.
    Doctor(doctor::Args),
    /// Users of the control plane.
    #[command(subcommand)]
    User(user::Verb),
    /// Organisations: nothing of one is visible to another.
    #[command(subcommand)]
    Org(org::Verb),
    /// Hosts: machines that run transitd for this Worker.
    #[command(subcommand)]
    Host(host::Verb),
    /// Sources: who may post events, where these go, and where replies may go.
    #[command(subcommand)]
    Source(source::Verb),
    /// Rooms: agents that read what any of them says there.
    #[command(subcommand)]
    Room(room::Verb),
    /// Deliveries of events to agents.
    #[command(subcommand)]
    Delivery(delivery::Verb),
    /// Messages of agents to each other.
    #[command(subcommand)]
    Message(message::Verb),
}

/// Does what was asked.
///
/// # Errors
/// When the database cannot be used, or a rule of it does not allow what was asked.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let Args { verb, place, common } = args;
    let session = if begins_something(&verb) { Session::open } else { Session::open_existing };
    match verb {
        Verb::Serve(args) => serve::run(args, &place, &common),
        Verb::Migrate => migrate(&place),
        Verb::Backup(args) => backup::run(&args, &place),
        Verb::Doctor(args) => doctor::run(&args, &place),
        Verb::Org(verb) => org::run(verb, &session(place)?),
        Verb::Host(verb) => host::run(verb, &session(place)?),
        Verb::Source(verb) => source::run(verb, &session(place)?),
        Verb::Room(verb) => room::run(verb, &session(place)?),
        Verb::Delivery(verb) => delivery::run(verb, &session(place)?),
        Verb::Message(verb) => message::run(verb, &session(place)?),
        Verb::User(verb) => user::run(verb, &session(place)?),
    }
}

/// Whether it puts something into the ledger that needs nothing to be there before. Everything else would find an empty
/// one, and is not what one was made for.
fn begins_something(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Org(org::Verb::Create { .. })
            | Verb::User(user::Verb::Create { .. })
            | Verb::Host(host::Verb::Enroll { .. })
            | Verb::Source(source::Verb::Create(_))
            | Verb::Room(room::Verb::Create { .. })
    )
}

fn migrate(place: &Place) -> Result<Exit, Failure> {
    let path = place.path()?;
    let shown = path.display();
    Db::open(&path).map_err(|err| Failure::store("migrate the database", &err))?;
    let record = json!({ "database": shown.to_string(), "schema": SCHEMA });
    print(place.json, [(record, format!("{shown} is up to date (schema {SCHEMA})."))])
}

impl Place {
    /// The file of the database. Its directory is made private when it is our own data directory.
    fn path(&self) -> Result<PathBuf, Failure> {
        if let Some(named) = self.database.as_deref().filter(|named| !named.is_empty()) {
            return database_path(named);
        }
        let paths = paths().map_err(|err| Failure::new(Exit::Config, "find the data directory", err))?;
        files::private_dir(&paths.data).map_err(|err| Failure::store("use the data directory", &err))?;
        Ok(paths.worker_db())
    }
}

fn paths() -> Result<Paths, NoHome> {
    Paths::from_env(|name| std::env::var_os(name).map(PathBuf::from))
}

/// The path in `sqlite:PATH`, or a bare path.
fn database_path(named: &OsStr) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let refused = |why: &str| {
        let what = format!("use the database {}", without_passwords(&named.to_string_lossy()));
        Failure::new(Exit::Config, what, why).hint("name a file: sqlite:PATH")
    };
    let text = named.as_bytes();
    if text.starts_with(b"postgres://") || text.starts_with(b"postgresql://") {
        return Err(refused("this build knows sqlite only"));
    }
    let path = text.strip_prefix(b"sqlite:").unwrap_or(text);
    let path = path.strip_prefix(b"//").filter(|path| path.starts_with(b"/")).unwrap_or(path);
    if path.windows(3).any(|bytes| bytes == b"://") {
        return Err(refused("no such kind of database"));
    }
    if path.is_empty() || path == b":memory:" {
        return Err(refused("a Worker keeps what it promised, for which it needs a file"));
    }
    Ok(PathBuf::from(OsStr::from_bytes(path)))
}

/// Reads a Worker's address: http or https, without a final slash.
fn base_url(text: &str) -> Result<String, String> {
    let url = url::Url::parse(text).map_err(|err| format!("not a URL: {err}"))?;
    let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !plain || url.password().is_some() {
        return Err("an http:// or https:// URL without user, query and fragment is needed".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// An open database, and what every command beside `serve` needs.
struct Session {
    db: Db,
    json: bool,
    now: Wall,
}

impl Session {
    fn open(place: Place) -> Result<Self, Failure> {
        let path = place.path()?;
        let is_new = is_missing(&path);
        let db = Db::open(&path).map_err(|err| Failure::store("open the database", &err))?;
        if is_new {
            // Whoever works beside a server and looks into the wrong place would take it for the server's.
            output::say(format_args!(
                "transit-worker: there was no database at {}, and a new one was made",
                text::visible(&path.to_string_lossy())
            ));
        }
        Ok(Self { db, json: place.json, now: SystemClock::new().wall() })
    }

    /// The same, but a database that was named and is not there is not made: its name was mistyped.
    fn open_existing(place: Place) -> Result<Self, Failure> {
        let path = place.path()?;
        let is_named = place.database.as_deref().is_some_and(|named| !named.is_empty());
        if is_named && is_missing(&path) {
            return Err(missing(&path));
        }
        Self::open(place)
    }

    fn read<T>(&self, what: &str, look: impl Fn(&Tx<'_>) -> Result<T, StoreError>) -> Result<T, Failure> {
        self.db.read(look).map_err(|err| Failure::store(what, &err))
    }

    fn write<T: Send + 'static>(
        &self,
        what: &str,
        change: impl Fn(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Failure> {
        self.db.write(change).map_err(|err| Failure::store(what, &err))
    }

    /// The organisation that was named, or the only one.
    fn org(&self, wanted: &OrgArg) -> Result<OrgRow, Failure> {
        let all = self.read("read the organisations", directory::list_orgs)?;
        match &wanted.org {
            Some(wanted) => all
                .into_iter()
                .find(|org| org.id == *wanted || org.slug.as_str() == wanted)
                .ok_or_else(|| {
                    Failure::new(
                        Exit::NoRecipient,
                        "find the organisation",
                        format!("no organisation {wanted}"),
                    )
                    .hint("what there is: transit-worker org list")
                }),
            None if all.len() > 1 => {
                let slugs: Vec<_> = all.iter().map(|org| org.slug.as_str()).collect();
                Err(Failure::new(Exit::Usage, "choose the organisation", "there are several")
                    .hint(format_args!("name one with --org: {}", slugs.join(", "))))
            }
            None => all.into_iter().next().ok_or_else(|| {
                Failure::new(Exit::Config, "choose the organisation", "there is none")
                    .hint("make one: transit-worker org create NAME")
            }),
        }
    }

    /// The address of the Worker, and whether somebody told it.
    fn url(&self, wanted: &UrlArg) -> Result<(String, bool), Failure> {
        let known = match &wanted.public_url {
            Some(url) => Some(url.clone()),
            None => self.read("read the settings", directory::public_url)?,
        };
        let told = known.is_some();
        Ok((known.unwrap_or_else(|| DEFAULT_URL.to_owned()), told))
    }

    /// The master key, if it is the one that the secrets in the database are stored under.
    fn key(&self) -> Result<MasterKey, Failure> {
        let has_secrets = || self.read("read the sources", sources::any);
        let (key, _) = key::find(self.db.path(), has_secrets)?;
        let checked = key.clone();
        self.read("use the master key", move |tx| sources::check_key(tx, &checked))?;
        Ok(key)
    }

    fn print(&self, records: impl IntoIterator<Item = (Value, String)>) -> Result<Exit, Failure> {
        print(self.json, records)
    }
}

fn is_missing(database: &Path) -> bool {
    std::fs::symlink_metadata(database).is_err_and(|err| err.kind() == std::io::ErrorKind::NotFound)
}

fn missing(database: &Path) -> Failure {
    let why = format!("there is none at {}", database.display());
    Failure::new(Exit::NoInput, "open the database", why)
        .hint("name one that is there with --database or TRANSIT_DATABASE; serve and migrate make one")
}

/// Opens a database to look at it, which changes and makes nothing. A damaged one is told with `damaged` as the way out.
fn look_at(database: &Path, damaged: &str) -> Result<Look, Failure> {
    Look::open(database).map_err(|err| match err {
        _ if is_missing(database) => missing(database),
        StoreError::Damaged { .. } => Failure::store("open the database", &err).hint(damaged),
        _ => Failure::store("open the database", &err),
    })
}

/// Prints records: as JSON, or as people read them.
fn print(json: bool, records: impl IntoIterator<Item = (Value, String)>) -> Result<Exit, Failure> {
    use std::io::Write;
    let mut out = Out::new();
    for (record, words) in records {
        if json {
            out.json(&record)?;
        } else {
            writeln!(out, "{}", text::body(&words))?;
        }
    }
    out.finish()?;
    Ok(Exit::Ok)
}

/// A column that may have no value.
fn or_dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// The command and its page.
pub fn tool() -> Tool {
    Tool { command: Args::command(), page: PAGE }
}

const PAGE: Page = Page {
    section: "8",
    exits: &[
        Exit::Ok,
        Exit::No,
        Exit::Usage,
        Exit::Data,
        Exit::NoInput,
        Exit::NoRecipient,
        Exit::Unavailable,
        Exit::Software,
        Exit::CannotCreate,
        Exit::Io,
        Exit::TryLater,
        Exit::Config,
    ],
    environment: &[
        (DATABASE, "The database, when --database does not name it: sqlite:PATH."),
        (
            MASTER_KEY,
            "The key under which secrets are stored: base64 of 32 bytes. Without it a key file is made beside the \
             database; keep a copy of either, for nothing else opens the secrets.",
        ),
        ("TRANSIT_CONFIG", "The configuration; ~/.config/transit/config.json by default."),
        ("TRANSIT_DATA_DIR", "The directory of the default database; ~/.local/share/transit by default."),
        (
            super::logging::VARIABLE,
            "What serve logs: debug, or for example transit=trace,warn. It wins over -v.",
        ),
        (
            "LISTEN_FDS, LISTEN_PID",
            "Sockets that systemd has opened for serve, which listens there instead. They outlive a restart.",
        ),
        ("NOTIFY_SOCKET, WATCHDOG_USEC", "Where systemd is told that serve is ready, lives, and stops."),
    ],
    files: &[
        (
            "~/.config/transit/config.json",
            "When serve takes agents for a loop, unless options say so: \
             {\"loop_guard\": {\"limit\": 30, \"window\": \"10m\"}}.",
        ),
        (
            "worker.db",
            "The default database, in the data directory. Its log is worker.db-wal while it is open.",
        ),
        ("worker.db.key", "The master key, unless TRANSIT_MASTER_KEY is set."),
        ("worker.db.serve", "Locked by the server of the database; holds its pid."),
        (
            "worker.db.ballast",
            "Room on the disk that the server keeps back, so that what is there can still be settled on a full disk.",
        ),
        ("worker.db.turn", "Locked for a moment by whoever changes the database next."),
    ],
    examples: &[
        ("Serve on this machine alone:", "transit-worker serve"),
        (
            "Serve behind a proxy that speaks TLS:",
            "transit-worker serve --listen 127.0.0.1:8787 --public-url https://transit.example",
        ),
        ("Let a host in: what is printed is run on it:", "transit-worker host enroll titan"),
        (
            "Take events for an agent, and let replies go to one place:",
            "transit-worker source create ci --target jess@titan \\\n  --reply-url-prefix https://ci.example/hooks/",
        ),
        (
            "Copy the database while it is served, and look whether all is well:",
            "transit-worker backup --force backup.db\ntransit-worker doctor",
        ),
        (
            "Make a room that only those are in whom you add, and say something there:",
            "transit-worker room create ops --policy invite\ntransit-worker room add ops jess@titan\ntransit-worker room post ops -m 'the freeze begins at noon'",
        ),
        (
            "See the latest messages, and end one that waits:",
            "transit-worker message list --limit 20\ntransit-worker message cancel tx_0123456789ab",
        ),
        ("See which deliveries wait for their agents:", "transit-worker delivery list --state pending"),
    ],
    see_also: &["transitd(8)", "transit-send(1)", "transit-sign(1)", "transit(7)"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_a_file() {
        for (named, path) in [
            ("sqlite:/var/lib/t.db", "/var/lib/t.db"),
            ("sqlite:///var/lib/t.db", "/var/lib/t.db"),
            ("sqlite:t.db", "t.db"),
            ("/a b/t.db", "/a b/t.db"),
        ] {
            assert_eq!(database_path(OsStr::new(named)).unwrap(), PathBuf::from(path), "{named}");
        }
        for named in ["postgres://u:p4ss@h/db", "postgresql://h", "mysql://h", "sqlite:", "sqlite::memory:"] {
            let refused = database_path(OsStr::new(named)).unwrap_err();
            assert_eq!(refused.exit, Exit::Config, "{named}");
            assert!(!refused.line.contains("p4ss"), "{}", refused.line);
        }
    }

    #[test]
    fn an_address_is_plain_and_has_no_final_slash() {
        assert_eq!(base_url("https://t.example/").as_deref(), Ok("https://t.example"));
        assert_eq!(base_url("http://h:1/transit").as_deref(), Ok("http://h:1/transit"));
        for text in ["", "t.example", "ftp://h", "http://u@h", "http://h/?q", "http://h/#f"] {
            assert!(base_url(text).is_err(), "{text}");
        }
    }
}
