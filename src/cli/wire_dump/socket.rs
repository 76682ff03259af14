//! `--socket`: between a client and a daemon on a Unix socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::NAME;
use super::live::{Live, Passing, serve};
use super::recorder::tell;
use crate::cli::output::{self, Exit, Failure};
use crate::net::dial::Interrupt;
use crate::net::relay::{Observer, relay};
use crate::net::tap::LineTap;
use crate::net::unix::{Bound, SocketError, connect_at};
use crate::proto::dump::Way;
use crate::text;

/// Listens on `ours` and passes on to `real` until it is told to stop.
///
/// # Errors
/// When `ours` cannot be bound.
pub(super) fn run(live: &Live, real: &Path, ours: &Path) -> Result<Exit, Failure> {
    let bound = Bound::bind_at(ours.to_owned()).map_err(|err| {
        let exit = match err {
            SocketError::Denied { .. } | SocketError::Untrusted { .. } => Exit::NoPermission,
            _ => Exit::CannotCreate,
        };
        Failure::new(exit, "listen", err)
    })?;
    let shown = |path: &Path| text::visible(&path.display().to_string()).into_owned();
    output::say(format_args!("{NAME}: listening on {}, passing on to {}", shown(ours), shown(real)));
    serve(live, &|wake| bound.accept(wake), &|(client, peer), conn, interrupt| {
        if live.is_verbose {
            tell(conn, format_args!("process {} has connected", peer.pid));
        }
        pass(live, client, conn, real, interrupt);
    })?;
    Ok(Exit::Ok)
}

/// One connection, from its beginning to its end.
fn pass(live: &Live, mut client: UnixStream, conn: u64, real: &Path, interrupt: Interrupt<'_>) {
    let mut passing = Passing::new(LineTap::default(), live, conn);
    let connected = connect_at(real).map_err(|err| err.to_string()).and_then(|server| {
        let unblocked = server.set_nonblocking(true).and_then(|()| client.set_nonblocking(true));
        unblocked.map(|()| server).map_err(|err| err.to_string())
    });
    let mut server = match connected {
        Ok(server) => server,
        Err(why) => return passing.ended(Way::Forth, Some(&io::Error::other(why))),
    };
    match relay(&mut client, &mut server, &mut passing, interrupt) {
        Ok(()) if live.is_verbose => tell(conn, "it is over"),
        Ok(()) => {}
        Err(err) => tell(conn, err),
    }
}
