//! `transit-worker doctor`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::key::LOST;
use super::{MASTER_KEY, Place, look_at};
use crate::cli::findings::{Findings, Level};
use crate::cli::output::{Exit, Failure};
use crate::clock::{Clock, SystemClock, Wall};
use crate::limits::{INGEST_SKEW_S, QUEUE_MAX};
use crate::net::fetch::{AddressPolicy, Client};
use crate::store::ledger::space::{BALLAST, FREE_FLOOR, ballast_file};
use crate::store::ledger::{Look, SCHEMA, directory, health, server_of, sources};
use crate::store::seal::MasterKey;
use crate::store::{StoreError, files};

/// The way out of damage.
const RESTORE: &str = "stop the server, and put back a copy made with transit-worker backup";
/// A log of this many bytes is four times as long as it ever should be.
const LONG_LOG: u64 = 256 * 1024 * 1024;
/// Time for the Worker to say that it is well.
const HEALTH_WAIT: Duration = Duration::from_secs(5);
/// A clock that is so far off will soon be too far off for signed requests, which have 300 seconds.
const SKEW: Duration = Duration::from_secs(INGEST_SKEW_S / 5);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Compare every index with its table too, which reads all of the database several times.
    #[arg(long)]
    deep: bool,
}

pub(super) fn run(args: &Args, place: &Place) -> Result<Exit, Failure> {
    let path = place.path()?;
    // What else a damaged database is asked for would fail as well.
    let look = look_at(&path, RESTORE)?;
    let now = SystemClock::new().wall();
    let mut found = Findings::default();
    schema(&look, &mut found);
    let sound = integrity(&look, args.deep, &mut found);
    tried(&mut found, "integrity", sound);
    permissions(&path, &mut found);
    disk(&path, &mut found);
    let server = server_of(&path);
    match server {
        Some(pid) => found.ok("server", format!("process {pid} serves it")),
        None => found.note("server", "nobody serves it", "start transit-worker serve"),
    }
    // What follows reads tables, which an older schema may not have.
    if look.schema() == SCHEMA {
        let opened = key(&look, &path, now, &mut found);
        tried(&mut found, "key", opened);
        if server.is_some() {
            let asked = reached(&look, &mut found);
            tried(&mut found, "reached", asked);
        }
        let worked = work(&look, now, &mut found);
        tried(&mut found, "work", worked);
    }
    found.print(place.json)
}

/// What one look found, or that it could not be made.
fn tried(found: &mut Findings, check: &'static str, outcome: Result<(), StoreError>) {
    if let Err(err) = outcome {
        match err {
            StoreError::Damaged { .. } => found.add(Level::Damaged, check, err.to_string(), RESTORE),
            _ => found.wrong(check, err.to_string(), "see that the database can be read, and look again"),
        }
    }
}

fn schema(look: &Look, found: &mut Findings) {
    match look.schema() {
        SCHEMA => found.ok("schema", format!("the schema is {SCHEMA}")),
        older => found.wrong(
            "schema",
            format!("the schema is {older}, this program's is {SCHEMA}"),
            "bring it up to date: transit-worker migrate",
        ),
    }
}

fn integrity(look: &Look, deep: bool, found: &mut Findings) -> Result<(), StoreError> {
    let damage = look.damage(deep)?;
    if damage.is_empty() {
        found.ok("integrity", if deep { "every page and index is sound" } else { "every page is sound" });
    }
    for what in damage {
        found.add(Level::Damaged, "integrity", what.replace('\n', " "), RESTORE);
    }
    for (table, rows) in look.dangling()? {
        let text = format!("{rows} rows of {table} refer to rows that are not there");
        found.add(Level::Damaged, "integrity", text, RESTORE);
    }
    Ok(())
}

fn permissions(path: &Path, found: &mut Findings) {
    let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    let files = [path.to_owned(), beside("-wal"), beside("-shm"), MasterKey::file_beside(path)];
    let exposed: Vec<_> = files.iter().filter(|file| files::is_exposed(file)).collect();
    for file in &exposed {
        let file = file.display();
        found.wrong("files", format!("others can read {file}"), format!("chmod 600 {file}"));
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The sticky bit keeps others from what is ours.
    let open = fs::metadata(dir).is_ok_and(|found| found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0);
    if open {
        let dir = dir.display();
        found.wrong("files", format!("others can replace files in {dir}"), format!("chmod go-w {dir}"));
    }
    if exposed.is_empty() && !open {
        found.ok("files", "nobody else reads or replaces them");
    }
}

fn disk(path: &Path, found: &mut Findings) {
    let log = fs::metadata(format!("{}-wal", path.display())).map_or(0, |log| log.len());
    if log > LONG_LOG {
        let text = format!("the log is {log} bytes long");
        found.wrong(
            "log",
            text,
            "a program that reads the database keeps it; end that, or restart the server",
        );
    } else {
        found.ok("log", format!("the log is {log} bytes long"));
    }
    let Some(free) = files::free_bytes(path) else { return };
    if free < FREE_FLOOR {
        let text = format!("{free} bytes are free, and the server takes no new work below {FREE_FLOOR}");
        found.wrong("disk", text, "free some space; it notices by itself");
    } else {
        found.ok("disk", format!("{free} bytes are free"));
    }
    let ballast = fs::metadata(ballast_file(path)).map_or(0, |ballast| ballast.len());
    if ballast < BALLAST && server_of(path).is_some() {
        let text = "no room is kept back for settling on a full disk";
        found.wrong("disk", text, "free some space, and see the server's log");
    }
}

/// Whether the master key opens every secret. It is not made when it is absent.
fn key(look: &Look, path: &Path, now: Wall, found: &mut Findings) -> Result<(), StoreError> {
    let rows = look.read(|tx| {
        let orgs = directory::list_orgs(tx)?;
        let of_org = orgs.iter().map(|org| sources::list(tx, &org.id));
        of_org.collect::<Result<Vec<_>, _>>().map(|rows| rows.concat())
    })?;
    let file = MasterKey::file_beside(path);
    if rows.is_empty() && !file.exists() {
        found.ok("key", "no secret is stored yet");
        return Ok(());
    }
    let (key, origin) = match std::env::var_os(MASTER_KEY) {
        Some(value) => (value.to_str().and_then(MasterKey::from_base64), MASTER_KEY.to_owned()),
        None if file.exists() => (MasterKey::from_file_or_new(&file).ok(), file.display().to_string()),
        None => (None, file.display().to_string()),
    };
    let Some(key) = key else {
        found.wrong("key", format!("{origin} holds no master key"), LOST);
        return Ok(());
    };
    let shut: Vec<_> =
        rows.iter().filter(|row| row.secrets(&key, now).is_err()).map(|row| row.name.as_str()).collect();
    if shut.is_empty() {
        found.ok("key", format!("{origin} opens every secret ({})", rows.len()));
    } else {
        found.wrong("key", format!("{origin} does not open the secrets of {}", shut.join(", ")), LOST);
    }
    Ok(())
}

/// Whether the Worker answers where hosts and senders look for it, and what its clock says.
fn reached(look: &Look, found: &mut Findings) -> Result<(), StoreError> {
    const HINT: &str = "hosts and senders look for it there: see the proxy before it, or serve --public-url";
    let Some(base) = look.read(directory::public_url)? else { return Ok(()) };
    let Ok(url) = url::Url::parse(&format!("{base}/healthz")) else { return Ok(()) };
    let answer = match Client::new(AddressPolicy::Any).get(&url, HEALTH_WAIT) {
        Ok(answer) if answer.status == 200 => answer,
        Ok(answer) => {
            found.wrong("reached", format!("{url} answers {}", answer.status), HINT);
            return Ok(());
        }
        Err(err) => {
            found.wrong("reached", format!("{url}: {err}"), HINT);
            return Ok(());
        }
    };
    let told = serde_json::from_slice::<Value>(&answer.body).ok();
    let Some(its) = told.and_then(|told| Wall::parse(told["time"].as_str()?)) else {
        found.wrong("reached", format!("{url} is answered by something else"), HINT);
        return Ok(());
    };
    let skew = SystemClock::new().wall().0.abs_diff(its.0);
    if skew >= SKEW.as_millis() as u64 {
        let text = format!("the clock behind {base} is {} s off ours", skew / 1000);
        let hint = format!("signed requests are refused at {INGEST_SKEW_S} s: set the clocks, with NTP");
        found.wrong("clock", text, hint);
    } else {
        found.ok("reached", format!("{base} answers, and its clock is ours"));
    }
    Ok(())
}

/// What waits too long, and what is nearly full.
fn work(look: &Look, now: Wall, found: &mut Findings) -> Result<(), StoreError> {
    let (unseen, failing, queues, dead, refused) = look.read(|tx| {
        let (unseen, failing) = (health::unseen_hosts(tx)?, health::failing_replies(tx, now)?);
        let (dead, refused) = (health::dead_messages(tx)?, health::refused_events(tx)?);
        Ok((unseen, failing, health::long_queues(tx)?, dead, refused))
    })?;
    for (org, host) in unseen {
        let hint = format!("run transitd on {host}, or take it out: transit-worker host revoke {host}");
        found.note("hosts", format!("{host} of {org} is enrolled and was never seen"), hint);
    }
    for health::Failing { org, source, replies, since, delivery_id } in failing {
        let text = format!("{replies} replies of source {source} of {org} fail, the oldest since {since}");
        found.wrong("replies", text, format!("see why: transit-worker delivery show {delivery_id}"));
    }
    for (queue, waiting) in queues {
        let agent = queue.address();
        let text = format!("{waiting} messages wait for {agent}, and {QUEUE_MAX} are taken");
        found.wrong("queues", text, "see that the agent and its transitd run");
    }
    if dead > 0 {
        let text = format!("{dead} messages did not arrive");
        found.note("dead", text, "see which: transit-worker message list --state dead; they go with time");
    }
    if refused > 0 {
        let text = format!("{refused} events were refused by their agents for good");
        let hint = "see which: transit-worker delivery list --state dead; then delivery requeue, or handle";
        found.note("refused", text, hint);
    }
    Ok(())
}
