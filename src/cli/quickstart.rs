//! `transitd quickstart`: the whole of Transit on one machine, each step shown as it happens.
//!
//! A Worker, a daemon, an agent and a receiver of replies run in this process, on loopback and in one directory.
//! They are the real ones, and meet only as they would on machines of their own. What happens is printed line by
//! line: an event goes in through the public endpoint, and its reply comes back signed.

mod demo;
mod setup;
mod story;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::output::{Exit, Failure};
use crate::addr::{AgentAddr, Source};
use crate::net::service::Shutdown;
use crate::secret::Secret;
use crate::worker::ReceivedReply;
use demo::Heard;
use setup::{Place, Started};
use story::Story;

/// The time that any one step may take; on an ordinary machine all of them take less than a second.
const STEP_WAIT: Duration = Duration::from_secs(20);

/// The options of `transitd quickstart`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// End after the round trip: 0 when every step was good, 1 when one was not.
    #[arg(long)]
    once: bool,
    /// Keep everything in DIR, and find it there again next time. Without it, a temporary directory is used and
    /// removed at the end.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Let the Worker listen on this port of loopback; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
}

/// The names that the quickstart gives.
struct Names {
    /// The agent that answers by itself.
    robin: AgentAddr,
    /// The agent that the reader may bring.
    you: AgentAddr,
    /// The source whose events go to `robin`.
    build: Source,
    /// The source whose events go to `you`.
    hello: Source,
}

impl Names {
    fn new() -> Self {
        let addr = |text: &str| text.parse().expect("the names of the quickstart are names");
        let source = |text: &str| text.parse().expect("the sources of the quickstart are sources");
        Self {
            robin: addr("robin@demo"),
            you: addr("you@demo"),
            build: source("build"),
            hello: source("hello"),
        }
    }
}

/// Runs the quickstart.
///
/// # Errors
/// When something cannot be started. A step of the round trip that fails is told, and ends with 1.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let began = Instant::now();
    let stop = Shutdown::on_signals().map_err(|err| Failure::new(Exit::Io, "catch signals", err))?;
    let place = Place::take(args.dir.clone())?;
    let names = Names::new();
    let mut story = Story::new();
    let mut threads = Vec::new();
    let told = round_trip(&place, &names, args.port, &stop, &mut story, &mut threads);
    let exit = match told {
        Ok(trip) => {
            story.done(began.elapsed())?;
            if !args.once {
                story.try_next(&place, &names, &trip.url)?;
                stay(&mut story, &trip, &stop)?;
            }
            Ok(Exit::Ok)
        }
        Err(_) if stop.is_triggered() => Ok(Exit::Ok),
        Err(failure) => Err(failure),
    };
    stop.trigger();
    for thread in threads {
        // A thread that panicked has said so on stderr.
        let _ = thread.join();
    }
    exit
}

/// What goes on after the round trip.
struct Trip {
    url: String,
    heard: Receiver<Heard>,
    sources: Sources,
}

fn round_trip(
    place: &Place,
    names: &Names,
    port: u16,
    stop: &Shutdown,
    story: &mut Story,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Trip, Failure> {
    let Started { worker, url } = setup::start_worker(place, port, stop)?;
    threads.push(worker);
    story.step("Worker", &format!("listens on {url}, keeps everything in {}", place.database().display()))?;

    let sources = setup::sources(place, names, stop)?;
    let host = setup::enrol(place, names, &url)?;
    threads.push(setup::start_daemon(place, stop)?);
    setup::wait_until_connected(place)?;
    story.step(
        "Host",
        &format!("{} is enrolled ({}), and its daemon is connected", host.host, host.host_id),
    )?;

    let (tell, heard) = mpsc::channel();
    threads.push(demo::start(place, names, tell, stop)?);
    let Heard::Registered(address) = next(&heard, "register the agent")? else {
        return Err(out_of_order("register the agent"));
    };
    story.step("Agent", &format!("{address} is registered on agent.sock"))?;
    story.step("Source", &format!("{} takes signed events for {}", names.build, names.robin))?;

    let sent = setup::post_event(&url, names, &sources.build)?;
    story.step("Event", &format!("POST /ingest/{} → 202 queued as {}", names.build, sent.delivery_id))?;
    let Heard::Envelope { id, envelope } = next(&heard, "deliver the event")? else {
        return Err(out_of_order("deliver the event"));
    };
    story.step("Frame", &format!("Worker → daemon: {}", setup::deliver_frame(place, &id)?))?;
    story.envelope(&envelope)?;
    let Heard::Replied { status } = next(&heard, "answer the event")? else {
        return Err(out_of_order("answer the event"));
    };
    story.step("Reply", &format!("chat_reply of {} → {status}", names.robin))?;
    let reply = next(&sources.replies, "receive the callback")?;
    if reply.delivery_id != sent.delivery_id || reply.event_key != sent.event_key {
        return Err(out_of_order("receive the callback"));
    }
    story.callback(&reply)?;
    Ok(Trip { url, heard, sources })
}

fn next<T>(from: &Receiver<T>, what: &str) -> Result<T, Failure> {
    from.recv_timeout(STEP_WAIT).map_err(|_| {
        Failure::new(Exit::No, what, format_args!("it did not happen within {} s", STEP_WAIT.as_secs()))
    })
}

fn out_of_order(what: &str) -> Failure {
    Failure::new(Exit::No, what, "something else happened first")
}

/// Shows what else happens until somebody wants the quickstart to end.
fn stay(story: &mut Story, trip: &Trip, stop: &Shutdown) -> Result<(), Failure> {
    const LOOK: Duration = Duration::from_millis(200);
    while !stop.wait(Some(LOOK)) {
        for heard in trip.heard.try_iter() {
            match heard {
                Heard::Envelope { envelope, .. } => story.envelope(&envelope)?,
                Heard::Replied { status } => story.step("Reply", &format!("chat_reply → {status}"))?,
                Heard::Registered(address) => {
                    story.step("Agent", &format!("{address} is registered again"))?
                }
            }
        }
        for reply in trip.sources.replies.try_iter().chain(trip.sources.more_replies.try_iter()) {
            story.callback(&reply)?;
        }
    }
    if std::io::stdout().is_terminal() {
        story.say("")?;
    }
    Ok(())
}

/// The sources, as their senders know them.
struct Sources {
    /// The secret of `build`.
    build: Secret,
    /// The replies to events of `build`.
    replies: Receiver<ReceivedReply>,
    /// The replies to events of `hello`.
    more_replies: Receiver<ReceivedReply>,
}
