//! `transit-mcp`: the stdio MCP server of the local daemon, which gives an agent its tools.
//!
//! It holds no state and no connection: each call of a tool is one call on `transit.sock`. The protocol is the official
//! SDK's, which wants an asynchronous runtime; one thread runs it, and the calls block threads of their own.

mod frame;
mod server;
mod stdio;
mod words;

use std::io::Write;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use rmcp::service::ServerInitializeError;
use tokio::runtime::Builder;

use self::server::Server;
use self::stdio::{Ended, Stdio};
use super::output::{Exit, Failure, Out};
use super::toolbox::TOOLS;
use super::{Common, Page, Tool, control, output};
use crate::addr::Name;
use crate::net::service::Shutdown;
use crate::proto::control::Op;
use crate::store::config::Paths;
use crate::text;

const NAME: &str = "transit-mcp";
/// Calls of the daemon at the same time, each of which blocks a thread; further ones wait for one of them.
const CALLS: usize = 256;
/// Time for what is under way once the client says nothing more.
const GRACE: Duration = Duration::from_millis(700);

/// Serve the tools of Transit to a harness, over MCP on stdin and stdout.
///
/// A harness starts it beside an agent. The tools send and read messages, answer deliveries, and tell who there is; each
/// call goes to the local transitd, which knows by the process tree who the agent is. So nothing has to be configured,
/// and no call can speak for another agent. It ends with its stdin.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
pub struct Args {
    /// Speak as this agent of the host, at a shell. Inside an agent's session or pane it is refused.
    #[arg(long = "as", value_name = "NAME")]
    as_agent: Option<String>,
    /// Print the tools as lines of JSON, as tools/list tells them, and do nothing else.
    #[arg(long, conflicts_with = "as_agent")]
    tools: bool,
    #[command(flatten)]
    common: Common,
}

/// Serves until the client is gone.
///
/// # Errors
/// When a session is found and another agent was named (77), or stdin or stdout fail.
pub fn run(args: Args) -> Result<Exit, Failure> {
    if args.tools {
        return print_tools();
    }
    let paths = control::paths()?;
    if let Some(name) = &args.as_agent {
        check_name(&paths, name)?;
    }
    if args.common.verbose > 0 {
        let place = paths.data.display().to_string();
        output::say(format_args!("{NAME}: the tools of the transitd of {}", text::visible(&place)));
    }
    let cannot = |err| Failure::new(Exit::Io, "get ready to serve", err);
    let stdio = Stdio::open().map_err(cannot)?;
    let asked_to_end = stdio.clone();
    Shutdown::on_signals().map_err(cannot)?.on_trigger(move || asked_to_end.stop());
    let runtime =
        Builder::new_current_thread().enable_time().max_blocking_threads(CALLS).build().map_err(cannot)?;
    let ended = runtime.block_on(converse(Server::new(paths, args.as_agent, stdio.clone()), stdio));
    // Calls that are under way still are not waited for: the daemon has them.
    runtime.shutdown_background();
    ended
}

fn print_tools() -> Result<Exit, Failure> {
    let mut out = Out::new();
    for tool in &TOOLS {
        out.json(&server::offered(tool))?;
    }
    out.flush()?;
    Ok(Exit::Ok)
}

/// A person at a shell may name an agent; whoever is one is that one. A daemon that is not there says so at each call.
fn check_name(paths: &Paths, name: &str) -> Result<(), Failure> {
    let what = format!("speak as {name}");
    name.split('@')
        .next()
        .unwrap_or(name)
        .parse::<Name>()
        .map_err(|err| Failure::new(Exit::Data, &what, err))?;
    match control::ask(paths, &control::call_of(Op::Whoami, Some(name.to_owned()))) {
        Ok(Ok(told)) if !told.contains_key("as_agent") => {
            let why = "this process runs in its session already";
            Err(Failure::new(Exit::NoPermission, what, why).hint("leave --as out"))
        }
        Ok(Err(err)) if err.code == "invalid_caller" => {
            Err(Failure::new(Exit::NoPermission, what, err).hint("leave --as out"))
        }
        _ => Ok(()),
    }
}

/// Speaks the protocol until the client is gone, or for a moment longer when something is still under way.
async fn converse(server: Server, stdio: Stdio) -> Result<Exit, Failure> {
    let mut ended = stdio.watch();
    tokio::select! {
        served = served_to_the_end(server, &stdio) => served?,
        _ = ended.wait_for(|ended| matches!(ended, Ended::Gone(_))) => {}
        () = last_answers(&stdio) => {}
    }
    match stdio.why_gone() {
        Some(failure) => Err(failure),
        None => Ok(Exit::Ok),
    }
}

/// Serves, and sees to it that the last answers are written.
async fn served_to_the_end(server: Server, stdio: &Stdio) -> Result<(), Failure> {
    serve(server, stdio.clone()).await?;
    stdio.settled().await;
    Ok(())
}

async fn serve(server: Server, stdio: Stdio) -> Result<(), Failure> {
    loop {
        match rmcp::serve_server(server.clone(), stdio.clone()).await {
            Ok(running) => {
                let quit = running.waiting().await;
                return quit.map(drop).map_err(|err| Failure::new(Exit::Software, "serve the client", err));
            }
            Err(
                ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::TransportError { .. },
            ) => {
                return Ok(());
            }
            // What begins no session ends none either.
            Err(_) => {}
        }
    }
}

/// Once the client says nothing more, or somebody wants this process to end: the time until all is answered, and no more
/// than a moment.
async fn last_answers(stdio: &Stdio) {
    let mut ended = stdio.watch();
    // The other end of the watch is never dropped: `stdio` has it.
    let _ = ended.wait_for(|ended| !matches!(ended, Ended::No)).await;
    let _ = tokio::time::timeout(GRACE, stdio.settled()).await;
}

/// The command and its page.
pub fn tool() -> Tool {
    Tool { command: Args::command(), page: PAGE }
}

const PAGE: Page = Page {
    section: "1",
    exits: &[Exit::Ok, Exit::Usage, Exit::Data, Exit::Io, Exit::NoPermission, Exit::Config],
    environment: &[
        (
            "TRANSIT_DATA_DIR",
            "The directory in which transitd's socket is; ~/.local/share/transit by default.",
        ),
        (
            "TRANSIT_SESSION_ID",
            "The session that it serves, where a harness has several in one process. An adapter sets it. It only \
             chooses among the sessions of the very process tree that it runs in.",
        ),
        ("HERDR_PANE_ID", "The terminal pane that it runs in."),
    ],
    files: &[("$TRANSIT_DATA_DIR/transit.sock", "Where every call of a tool goes.")],
    examples: &[
        ("Let Claude Code start it in every project:", "claude mcp add --scope user transit -- transit-mcp"),
        ("See the tools, and what their parameters are:", "transit-mcp --tools"),
        (
            "Try a tool by hand, as agent bob:",
            "npx @modelcontextprotocol/inspector --cli transit-mcp --as bob \\\n  --method tools/call --tool-name whoami",
        ),
    ],
    see_also: &["transitd(8)", "transit-agent(1)", "transit(7)"],
};
