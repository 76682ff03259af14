//! `--proxy`: between a WebSocket client and its server.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};

use url::Url;

use super::NAME;
use super::live::{Live, Passing, serve};
use super::recorder::tell;
use crate::cli::output::{self, Exit, Failure};
use crate::net::dial::{DialError, Interrupt, dial_secured};
use crate::net::proxy::{Proxy, proxy_for};
use crate::net::relay::{Observer, relay};
use crate::net::tap::WebTap;
use crate::net::tcp::Listening;
use crate::proto::dump::Way;

/// Listens and passes on until it is told to stop.
///
/// # Errors
/// When it cannot listen, or the environment names a proxy of no use.
pub(super) fn run(live: &Live, at: SocketAddr, to: &Url) -> Result<Exit, Failure> {
    let via = proxy_for(to, |name| std::env::var(name).ok())
        .map_err(|err| Failure::new(Exit::Config, format_args!("reach {to}"), err))?;
    let listening = Listening::bind(at).map_err(|err| {
        Failure::new(Exit::Unavailable, format_args!("listen at {at}"), err)
            .hint("choose another address; port 0 takes a free one")
    })?;
    if !at.ip().is_loopback() {
        output::warn(NAME, format_args!("others on the network can connect to {}", listening.at()));
    }
    if to.path() != "/" || to.query().is_some() {
        output::warn(NAME, format_args!("requests pass as they are: the path of {to} is not used"));
    }
    output::say(format_args!("{NAME}: listening at {}, passing on to {to}", listening.at()));
    serve(live, &|wake| listening.accept(wake), &|client, conn, interrupt| {
        pass(live, client, conn, to, via.as_ref(), interrupt);
    })?;
    Ok(Exit::Ok)
}

/// One connection, from its beginning to its end.
fn pass(
    live: &Live,
    mut client: TcpStream,
    conn: u64,
    to: &Url,
    via: Option<&Proxy>,
    interrupt: Interrupt<'_>,
) {
    if live.is_verbose {
        let from = client.peer_addr().map_or_else(|_| "somebody".to_owned(), |from| from.to_string());
        tell(conn, format_args!("{from} has connected"));
    }
    let mut passing = Passing::new(WebTap::default(), live, conn);
    let mut server = match dial_secured(to, via, interrupt) {
        Ok(server) => server,
        Err(DialError::Stopped) => return,
        Err(err) => {
            passing.ended(Way::Forth, Some(&io::Error::other(err.to_string())));
            return close(client);
        }
    };
    match relay(&mut client, &mut server, &mut passing, interrupt) {
        Ok(()) if live.is_verbose => tell(conn, "it is over"),
        Ok(()) => {}
        Err(err) => tell(conn, err),
    }
}

/// Closes a connection without a reset, as far as what has come already is concerned.
fn close(mut client: TcpStream) {
    let mut scratch = [0; 4096];
    while client.read(&mut scratch).is_ok_and(|n| n > 0) {}
}
