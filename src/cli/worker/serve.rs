//! `transit-worker serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{NAME, Place, base_url, master_key};
use crate::cli::logging::{self, LogArgs};
use crate::cli::output::{Exit, Failure};
use crate::cli::{Common, stored};
use crate::net::service::{self, Shutdown};
use crate::store::files;
use crate::worker::{self, Config, Ready, WorkerError};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8787")]
    listen: SocketAddr,
    /// The address under which hosts and senders reach it, when that is another one.
    #[arg(long, value_name = "URL", value_parser = base_url)]
    public_url: Option<String>,
    /// Post replies to loopback and private addresses too.
    #[arg(long)]
    allow_private_callbacks: bool,
    /// Write {"listen","url","pid"} here once it serves.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: Args, place: &Place, common: &Common) -> Result<Exit, Failure> {
    logging::start(common, args.log)?;
    let database = place.path()?;
    let (master_key, origin) = master_key(&database)?;
    let config = Config {
        listen: args.listen,
        database: database.clone(),
        public_url: args.public_url,
        allow_private_callbacks: args.allow_private_callbacks,
        master_key,
    };
    let stop = Shutdown::on_signals().map_err(|err| Failure::new(Exit::Software, "catch signals", err))?;
    let mut told = Ok(());
    let served = worker::serve(config, stop.clone(), |ready| {
        tracing::info!(database = %database.display(), master_key = %origin, url = %ready.url, "opened");
        told = tell(ready, args.ready_file.as_deref());
        if told.is_err() {
            stop.trigger();
        }
        service::notify_ready();
    });
    service::notify_stopping();
    served.map_err(failure)?;
    told?;
    Ok(Exit::Ok)
}

fn tell(ready: &Ready, file: Option<&Path>) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let record = json!({ "listen": ready.listen.to_string(), "url": ready.url, "pid": std::process::id() });
    files::write_private(file, format!("{record}\n").as_bytes())
        .map_err(|err| stored::failure("write the ready file", err))
}

fn failure(err: WorkerError) -> Failure {
    match err {
        WorkerError::Store(err) => stored::failure("serve", err),
        WorkerError::Listen { .. } => Failure::new(Exit::Unavailable, "serve", err)
            .hint(format_args!("choose another address with {NAME} serve --listen ADDR:PORT")),
        err => Failure::new(Exit::Software, "serve", err),
    }
}
