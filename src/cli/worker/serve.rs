//! `transit-worker serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{NAME, Place, base_url, key};
use crate::cli::logging::{self, LogArgs};
use crate::cli::output::{Exit, Failure};
use crate::cli::{Common, duration, loops, ready};
use crate::limits;
use crate::net::service::{self, Shutdown};
use crate::store::ledger::retention::Keep;
use crate::store::{StoreError, files};
use crate::worker::{self, Config, Limits, Ready, WorkerError};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen; port 0 takes a free one. A socket that systemd has opened is served instead.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8787")]
    listen: SocketAddr,
    /// Serve /metrics and /readyz here, and not beside everything else.
    #[arg(long, value_name = "ADDR:PORT")]
    metrics_listen: Option<SocketAddr>,
    /// The address under which hosts and senders reach it, when that is another one.
    #[arg(long, value_name = "URL", value_parser = base_url)]
    public_url: Option<String>,
    /// Post replies to loopback and private addresses too.
    #[arg(long)]
    allow_private_callbacks: bool,
    /// Messages that agents may send each other, along one reply chain, one pair or in one room, without a person or an
    /// event between them; 0 is no limit [default: 30].
    #[arg(long, value_name = "N")]
    loop_limit: Option<u32>,
    /// The time in which these are counted, and for which it must be quiet until more pass [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = loops::parse_window)]
    loop_window: Option<Duration>,
    /// Write {"listen","url","pid",["metrics_listen"]} here once it serves; the file goes away when it stops.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Keep messages for so long after they are settled or dead; 0 is for ever.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = keep)]
    keep_messages: Kept,
    /// Keep deliveries of events, with their replies, for so long after they are settled or dead; 0 is for ever.
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = keep)]
    keep_deliveries: Kept,
    #[command(flatten)]
    log: LogArgs,
}

/// How long something is kept; `None` is for ever.
#[derive(Debug, Clone, Copy)]
struct Kept(Option<Duration>);

fn keep(text: &str) -> Result<Kept, String> {
    if text == "0" {
        return Ok(Kept(None));
    }
    duration::parse(text).map(|age| Kept(Some(age).filter(|age| !age.is_zero())))
}

pub(super) fn run(args: Args, place: &Place, common: &Common) -> Result<Exit, Failure> {
    logging::start(common, args.log)?;
    // Where it cannot be caught, a limit on file sizes ends the process as it always did.
    let _ = service::outlive_file_limit();
    let database = place.path()?;
    let (master_key, origin) = key::find(&database, || key::has_secrets(&database))?;
    service::raise_descriptor_limit();
    let inherited = service::inherited_listeners()
        .map_err(|err| Failure::new(Exit::Config, "take the sockets of LISTEN_FDS", err))?;
    let limits = Limits {
        loops: loops::settings(args.loop_limit, args.loop_window)?,
        connections: connections(service::descriptor_limit())?,
        ..Limits::default()
    };
    let config = Config {
        inherited: inherited.into_iter().map(Arc::new).collect(),
        metrics_listen: args.metrics_listen,
        limits,
        public_url: args.public_url,
        allow_private_callbacks: args.allow_private_callbacks,
        keep: Keep { messages: args.keep_messages.0, deliveries: args.keep_deliveries.0 },
        ..Config::new(args.listen, database.clone(), master_key)
    };
    let signals = Shutdown::on_signals().map_err(|err| Failure::new(Exit::Software, "catch signals", err))?;
    let stop = Shutdown::new();
    let asked = stop.clone();
    signals.on_trigger(move || {
        service::notify_stopping();
        asked.trigger();
    });
    let ready_file = args.ready_file.as_deref();
    ready_file.map_or(Ok(()), ready::forget_the_dead)?;
    let mut told = Ok(());
    let served = worker::serve(config, stop.clone(), |ready| {
        tracing::info!(database = %database.display(), master_key = %origin, url = %ready.url, "opened");
        if let Some(listen) = ready.metrics_listen {
            tracing::info!(%listen, "serves /metrics and the probes");
        }
        told = ready_file.map_or(Ok(()), |file| tell(ready, file));
        if told.is_err() {
            return stop.trigger();
        }
        service::notify_ready();
    });
    ready_file.into_iter().for_each(ready::take_away);
    served.map_err(failure)?;
    told?;
    Ok(Exit::Ok)
}

/// As many connections as there are descriptors for, and others beside them.
fn connections(descriptors: u64) -> Result<u64, Failure> {
    let left = descriptors.saturating_sub(limits::DESCRIPTORS_KEPT);
    if left == 0 {
        let why =
            format!("{descriptors} open files are too few; {} are needed", limits::DESCRIPTORS_KEPT + 1);
        return Err(Failure::new(Exit::Config, "serve", why).hint("raise the limit: ulimit -n 65536"));
    }
    Ok(limits::CONNECTIONS.min(left))
}

fn tell(ready: &Ready, file: &Path) -> Result<(), Failure> {
    let mut record =
        json!({ "listen": ready.listen.to_string(), "url": ready.url, "pid": std::process::id() });
    if let Some(listen) = ready.metrics_listen {
        record["metrics_listen"] = listen.to_string().into();
    }
    files::write_private(file, format!("{record}\n").as_bytes())
        .map_err(|err| Failure::store("write the ready file", &err))
}

fn failure(err: WorkerError) -> Failure {
    match err {
        WorkerError::Store(err @ StoreError::Busy { .. }) => Failure::store("serve", &err)
            .hint("stop that one first, or serve another database with --database"),
        WorkerError::Store(err) => Failure::store("serve", &err),
        WorkerError::Listen { .. } => Failure::new(Exit::Unavailable, "serve", err)
            .hint(format_args!("choose another address with {NAME} serve --listen ADDR:PORT")),
        err => Failure::new(Exit::Software, "serve", err),
    }
}
