//! `transit-agent socket`: where adapters find the daemon.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::cli::control;
use crate::cli::output::{Exit, Failure, Out};
use crate::net::unix::{AGENT_SOCK, socket_path};

/// Prints the path of agent.sock, whether or not a daemon listens there.
pub(super) fn run() -> Result<Exit, Failure> {
    let path = socket_path(&control::paths()?, AGENT_SOCK).map_err(|err| control::unreachable(&err))?;
    let mut out = Out::new();
    out.write_all(path.as_os_str().as_bytes())?;
    out.write_all(b"\n")?;
    out.finish()?;
    Ok(Exit::Ok)
}
