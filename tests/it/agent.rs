//! `transit-agent` against a daemon's end of `agent.sock` that each test scripts.

mod adapter;
mod call;
mod install;
mod listen;
mod run;
mod session;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use transit::clock::{Clock, Mono, SystemClock};
use transit::limits::AGENT_PING;
use transit::proto::agent::{DaemonSide, DaemonSideEvent as Event, PeerProcess, Register};
use transit::proto::envelope::{Envelope, Kind};
use transit::proto::lines::Lines;
use transit::proto::{Input, Output};

use crate::support::{Background, Home, LONG};

const CAPABILITY: &str = "00112233445566778899aabbccddeeff";

/// The daemon's end, one connection at a time.
struct Daemon {
    listener: UnixListener,
}

/// One connection, driven by the machine that the real daemon uses.
struct Connection {
    stream: UnixStream,
    machine: DaemonSide,
    lines: Lines,
    heard: VecDeque<Event>,
    clock: SystemClock,
    /// How far this end's time is ahead of the clock.
    ahead: Duration,
}

impl Daemon {
    fn start(home: &Home) -> Self {
        std::fs::create_dir_all(home.data()).unwrap();
        Self { listener: UnixListener::bind(home.data().join("agent.sock")).unwrap() }
    }

    /// Takes the next connection of `agent` and hears who it is.
    fn accept(&self, agent: &Background) -> (Connection, Register) {
        let (connection, register) = self.accept_any();
        assert_eq!(register.pid, agent.pid());
        (connection, register)
    }

    fn accept_any(&self) -> (Connection, Register) {
        self.accept_for(None)
    }

    /// The same of an adapter that may register for an ancestor.
    fn accept_for(&self, ancestor: Option<u32>) -> (Connection, Register) {
        let stream = self.listener.accept().unwrap().0;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let pid = socket_peercred(&stream).unwrap().pid.as_raw_nonzero().get().cast_unsigned();
        let process = |pid| PeerProcess { pid, own: pid };
        let machine = DaemonSide::new(process(pid), Mono::default());
        let machine = machine.with_ancestors(ancestor.map(process).into_iter().collect());
        let (lines, heard) = (Lines::new(1 << 20), VecDeque::new());
        let (clock, ahead) = (SystemClock::new(), Duration::ZERO);
        let mut connection = Connection { stream, machine, lines, heard, clock, ahead };
        let Event::Register(register) = connection.next() else { panic!("register comes first") };
        (connection, register)
    }

    /// Takes the next connection and gives it its place.
    fn register(&self, agent: &Background, generation: u64) -> Connection {
        let (connection, register) = self.accept(agent);
        connection.registered(register, generation)
    }

    /// The same for an agent that another process has started.
    fn register_any(&self, generation: u64) -> Connection {
        let (connection, register) = self.accept_any();
        connection.registered(register, generation)
    }
}

impl Connection {
    fn registered(mut self, register: Register, generation: u64) -> Self {
        let name = register.name.unwrap();
        let address = format!("{name}@titan");
        self.machine.registered(&name, &address, generation, CAPABILITY.into(), Mono::default());
        self.drain();
        self
    }

    /// The next thing that the adapter says.
    fn next(&mut self) -> Event {
        loop {
            self.drain();
            if let Some(event) = self.heard.pop_front() {
                return event;
            }
            let mut bytes = [0; 4096];
            let read = match self.stream.read(&mut bytes) {
                Err(err) if err.kind() == ErrorKind::Interrupted => continue,
                read => read.unwrap(),
            };
            assert!(read > 0, "the agent closed the connection");
            self.lines.push(&bytes[..read]);
            while let Some(line) = self.lines.next() {
                self.machine.handle(line.as_input(), self.now());
            }
        }
    }

    /// The next answer to a delivery; what is said of the session is passed over.
    fn answer(&mut self) -> Event {
        loop {
            match self.next() {
                Event::Status(_) | Event::Alive => {}
                answer => return answer,
            }
        }
    }

    fn deliver(&mut self, id: &str, envelope: impl Into<String>) {
        self.machine.deliver(id, envelope.into(), self.now());
        self.drain();
    }

    /// Returns once the adapter has heard all that was said before.
    fn ping(&mut self) {
        self.ahead += AGENT_PING;
        self.machine.handle(Input::Tick, self.now());
        loop {
            match self.next() {
                Event::Alive => return,
                Event::Status(_) => {}
                other => panic!("{other:?} instead of a sign of life"),
            }
        }
    }

    fn now(&self) -> Mono {
        self.clock.mono() + self.ahead
    }

    /// Says what is to be said, and keeps what was heard.
    fn drain(&mut self) {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Write(line) => self.stream.write_all(format!("{line}\n").as_bytes()).unwrap(),
                Output::Event(event) => self.heard.push_back(event),
                Output::WakeAt(_) | Output::Close(_) => {}
            }
        }
    }
}

fn acked(id: &str) -> Event {
    Event::Ack { id: id.to_owned(), is_only_seen: false }
}

fn refused(id: &str, code: &str, retryable: bool) -> Event {
    Event::Nak { id: id.to_owned(), code: code.to_owned(), retryable }
}

/// `transit-agent run --name bob` with this COMMAND.
fn run(home: &Home, options: &[&str], command: &[&str]) -> Background {
    let mut agent = home.command("transit-agent");
    agent.args(["run", "--name", "bob"]).args(options).arg("--").args(command);
    Background::start(&mut agent)
}

fn listen(home: &Home, options: &[&str]) -> Background {
    Background::start(home.command("transit-agent").args(["listen", "--name", "bob"]).args(options))
}

fn message(id: &str, kind: Kind, body: &str) -> Envelope {
    let (from, ts) = ("jess@titan".to_owned(), "2026-01-02T03:04:05.000Z".to_owned());
    Envelope { from, id: id.to_owned(), ts, reply_to: None, body: body.to_owned(), kind }
}
