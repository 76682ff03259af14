//! `transit-agent listen`: envelopes as lines of JSON on stdout, their answers as lines of JSON on stdin.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::session::{Answer, Next, Session};
use super::{Identity, NAME};
use crate::cli::output::{self, Exit, Failure};
use crate::limits;
use crate::proto::lines::{Line, Lines};
use crate::text;

/// What to listen as.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    identity: Identity,
    /// Take each envelope as handled once its line is written.
    #[arg(long)]
    auto_ack: bool,
}

/// A line of stdout.
#[derive(Serialize)]
#[serde(tag = "t", rename_all = "snake_case")]
enum Heard {
    Registered { agent: String, address: String, generation: u64 },
    Deliver { id: String, envelope: String },
}

/// A line of stdin.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
enum Said {
    DeliverAck { id: String },
    DeliverNak { id: String, code: Option<String>, retryable: bool },
    Status { status: String },
}

impl From<Said> for Answer {
    fn from(said: Said) -> Self {
        match said {
            Said::DeliverAck { id } => Self::Ack { id },
            Said::DeliverNak { id, code, retryable } => {
                Self::Nak { id, code: code.unwrap_or_else(|| "refused".to_owned()), retryable }
            }
            Said::Status { status } => Self::Status(status),
        }
    }
}

/// Listens until somebody wants this process to end, or nobody reads what it prints.
pub(super) fn run(args: Args) -> Result<Exit, Failure> {
    let mut session = Session::new(args.identity.register("transit-agent listen")?)?;
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let mut answers = Some(Answers::new());
    let end = loop {
        // Of stdout only its end is waited for, which poll tells unasked.
        let open = [(stdout.as_fd(), PollFlags::empty()), (stdin.as_fd(), PollFlags::IN)];
        let watched = if answers.is_some() { &open[..] } else { &open[..1] };
        let printed = match session.next(watched, None)? {
            Next::Stop => break Ok(Exit::Ok),
            Next::Due => Ok(()),
            Next::Registered { agent, address, generation } => {
                print(&Heard::Registered { agent, address, generation })
            }
            Next::Deliver { id, envelope } => {
                let printed = print(&Heard::Deliver { id: id.clone(), envelope });
                if args.auto_ack && printed.is_ok() {
                    session.say(Answer::Ack { id })?;
                }
                printed
            }
            Next::Ready(ready) if ready[0] => break Ok(Exit::Ok),
            Next::Ready(_) => Ok(hear(&mut answers, &mut session)?),
        };
        if let Err(failure) = printed {
            break Err(failure);
        }
    };
    // Whoever said something and then ended this process, or stopped reading, has said it.
    while answers.is_some() && is_ready(stdin.as_fd()) {
        hear(&mut answers, &mut session)?;
    }
    end
}

/// Says what stdin has, which does not wait when it is ready; `answers` are gone once it has ended.
fn hear(answers: &mut Option<Answers>, session: &mut Session) -> Result<(), Failure> {
    let Some(said) = answers.as_mut().map(|answers| answers.read(io::stdin().as_fd())) else { return Ok(()) };
    if said.ended {
        *answers = None;
    }
    said.answers.into_iter().try_for_each(|answer| session.say(answer))
}

fn is_ready(stdin: BorrowedFd<'_>) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut [PollFd::from_borrowed_fd(stdin, PollFlags::IN)], Some(&at_once)), Ok(1))
}

/// One line, out at once: whoever reads it may be waiting.
fn print(heard: &Heard) -> Result<(), Failure> {
    let line = serde_json::to_string(heard).expect("a record holds only strings and a number");
    let mut out = io::stdout().lock();
    Ok(writeln!(out, "{}", text::visible_json(&line)).and_then(|()| out.flush())?)
}

/// Stdin on its way to answers.
struct Answers {
    lines: Lines,
    count: u64,
}

/// What one look at stdin found.
struct Found {
    answers: Vec<Answer>,
    ended: bool,
}

impl Answers {
    fn new() -> Self {
        Self { lines: Lines::new(limits::LINE_BYTES), count: 0 }
    }

    fn read(&mut self, stdin: BorrowedFd<'_>) -> Found {
        let mut bytes = [0; 16 * 1024];
        let read = match rustix::io::read(stdin, &mut bytes) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {
                return Found { answers: Vec::new(), ended: false };
            }
            Err(_) => 0,
            Ok(read) => read,
        };
        self.lines.push(&bytes[..read]);
        let ended = read == 0;
        let mut answers = Vec::new();
        while let Some(line) = self.lines.next().or_else(|| if ended { self.lines.end() } else { None }) {
            answers.extend(self.answer(&line));
        }
        Found { answers, ended }
    }

    /// The answer that a line is. Another line is told, and nothing else comes of it.
    fn answer(&mut self, line: &Line) -> Option<Answer> {
        self.count += 1;
        let said = match line {
            Line::Text(text) if text.trim().is_empty() => return None,
            Line::Text(text) => said(text),
            Line::NotUtf8 => Err("it is not UTF-8".to_owned()),
            Line::TooLong => Err(format!("it is longer than {} bytes", limits::LINE_BYTES)),
        };
        said.map(Answer::from)
            .map_err(|why| {
                output::warn(NAME, format_args!("line {} of stdin is passed over: {why}", self.count))
            })
            .ok()
    }
}

fn said(text: &str) -> Result<Said, String> {
    if !text.trim_start().starts_with('{') {
        return Err("it is no JSON object".to_owned());
    }
    serde_json::from_str(text).map_err(|err| err.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_lines_are_understood_and_fields_may_be_added() {
        let ack = said(r#"{"t":"deliver_ack","id":"tx_1","persisted":true}"#);
        assert_eq!(ack, Ok(Said::DeliverAck { id: "tx_1".into() }));
        let nak = said(r#" {"t":"deliver_nak","id":"tx_1","retryable":true}"#);
        assert_eq!(nak, Ok(Said::DeliverNak { id: "tx_1".into(), code: None, retryable: true }));
        assert_eq!(said(r#"{"t":"status","status":"busy"}"#), Ok(Said::Status { status: "busy".into() }));
    }

    #[test]
    fn everything_else_is_told() {
        for text in
            ["hello", "[]", "{}", r#"{"t":"deliver_nak","id":"tx_1"}"#, r#"{"t":"register"}"#, "{\"t\":"]
        {
            assert!(said(text).is_err(), "{text}");
        }
    }
}
