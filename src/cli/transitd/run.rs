//! `transitd run`: the daemon in the foreground.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::logging::{self, LogArgs};
use crate::cli::output::{Exit, Failure};
use crate::cli::{Common, control, loops, ready};
use crate::daemon::{self, DaemonError, EnrolmentError, Ready, Settings};
use crate::net::service::{self, Shutdown};
use crate::net::unix::SocketError;
use crate::store::files;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Write FILE once the daemon serves: one JSON object with its pid and its sockets.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Add every frame to and from the Worker to FILE, without secrets, one line of JSON each.
    ///
    /// FILE may be renamed at any time, as logrotate does it: the next frame begins a new one.
    #[arg(long, value_name = "FILE")]
    wire_log: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

/// Runs the daemon until a signal stops it.
///
/// # Errors
/// When it cannot start, or fails by a bug.
pub(super) fn run(common: &Common, args: Args) -> Result<Exit, Failure> {
    let Args { ready_file, wire_log, log } = args;
    logging::start(common, log)?;
    let stop = Shutdown::on_signals().map_err(|err| Failure::new(Exit::Io, "catch signals", err))?;
    service::raise_descriptor_limit();
    // A limit on file sizes is a full disk to us: whoever writes is told, and nobody is ended by it.
    let _ = service::outlive_file_limit();
    let settings = Settings {
        paths: control::paths()?,
        home: control::agents_home(),
        wire_log,
        loops: loops::settings(None, None)?,
    };
    ready_file.as_deref().map_or(Ok(()), ready::forget_the_dead)?;
    let mut told = Ok(());
    let ran = daemon::run(settings, stop.clone(), |ready| {
        if let Some(path) = &ready_file {
            told = files::write_private(path, ready_record(ready).as_bytes());
        }
        if told.is_err() {
            stop.trigger();
        }
    });
    ready_file.as_deref().into_iter().for_each(ready::take_away);
    ran.map_err(not_running)?;
    told.map_err(|err| Failure::store("write the ready file", &err))?;
    Ok(Exit::Ok)
}

fn ready_record(ready: &Ready) -> String {
    let shown = |path: &Path| path.display().to_string();
    let record = json!({
        "pid": std::process::id(),
        "transit_sock": shown(&ready.transit_sock),
        "agent_sock": shown(&ready.agent_sock),
        "api_sock": ready.api_sock.as_deref().map(shown),
    });
    format!("{record}\n")
}

fn not_running(err: DaemonError) -> Failure {
    const WHAT: &str = "run the daemon";
    let (exit, way) = match err {
        DaemonError::Enrolment(EnrolmentError::Store(err)) | DaemonError::Store(err) => {
            return Failure::store(WHAT, &err);
        }
        DaemonError::Enrolment(_)
        | DaemonError::Passed(_)
        | DaemonError::Socket(SocketError::Untrusted { .. } | SocketError::Elsewhere { .. }) => {
            (Exit::Config, None)
        }
        DaemonError::Panicked { .. } => (Exit::Software, None),
        DaemonError::Running { .. } | DaemonError::Socket(SocketError::Live { .. }) => (
            Exit::TryLater,
            Some(
                "one serves a data directory, and transitd status tells how it is; end it with transitd stop, or name \
                 another directory with TRANSIT_DATA_DIR",
            ),
        ),
        DaemonError::Socket(SocketError::Denied { .. }) => (Exit::NoPermission, None),
        DaemonError::Socket(_) => (Exit::CannotCreate, None),
        _ => (Exit::Io, None),
    };
    Failure::new(exit, WHAT, err).way(way)
}
