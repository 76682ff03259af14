//! What the quickstart prints.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::Names;
use super::setup::Place;
use crate::addr::Source;
use crate::cli::output::Failure;
use crate::cli::shell;
use crate::text;
use crate::worker::ReceivedReply;

/// The steps so far, on stdout as they happen.
pub(super) struct Story {
    steps: u32,
}

impl Story {
    pub(super) fn new() -> Self {
        Self { steps: 0 }
    }

    /// One line, at once.
    pub(super) fn say(&self, line: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()?;
        Ok(())
    }

    /// One step. Whatever is in it from elsewhere is made safe.
    pub(super) fn step(&mut self, who: &str, what: &str) -> Result<(), Failure> {
        self.steps += 1;
        self.say(&format!("{:>2}  {who:<9} {}", self.steps, text::visible(what)))
    }

    /// The envelope as the agent sees it.
    pub(super) fn envelope(&mut self, envelope: &str) -> Result<(), Failure> {
        self.step("Envelope", "as the agent sees it:")?;
        for line in envelope.lines() {
            self.say(&format!("      {}", text::visible(line)))?;
        }
        Ok(())
    }

    /// A callback whose signature was good.
    pub(super) fn callback(&mut self, reply: &ReceivedReply) -> Result<(), Failure> {
        let ReceivedReply { agent, conversation_id, message, .. } = reply;
        self.step("Callback", &format!("signature verified; {agent} on {conversation_id:?}: {message}"))
    }

    /// The end of the round trip.
    pub(super) fn done(&self, took: Duration) -> Result<(), Failure> {
        self.say(&format!(
            "Done in {:.2} s: the event went in, and its reply came back, signed.",
            took.as_secs_f64()
        ))
    }

    /// What to paste next.
    pub(super) fn try_next(&self, place: &Place, names: &Names, url: &str) -> Result<(), Failure> {
        let quoted =
            |path: &Path| String::from_utf8_lossy(&shell::quoted(path.as_os_str().as_bytes())).into_owned();
        let (data, host) = (quoted(&place.paths().data), format!("{url}/ingest"));
        let secret = |source: &Source| quoted(&place.secret_file(source.as_str()));
        let program = |name: &str| {
            let beside =
                std::env::current_exe().ok().map(|exe| exe.with_file_name(name)).filter(|p| p.exists());
            beside.map_or_else(|| name.to_owned(), |path| quoted(&path))
        };
        let Names { you, build, hello, .. } = names;
        self.say(&format!(
            "\nIt stays up; Ctrl-C ends it. Try next, in another terminal:\n\n\
             # 1. Send an event of your own, and see it answered here\n\
             TRANSIT_DATA_DIR={data} {} {host}/{build} --secret-file {} --conversation mine -m 'Is anybody there?'\n\n\
             # 2. Be an agent: what comes for {you} is printed, one line each\n\
             TRANSIT_DATA_DIR={data} {} listen --name {} --auto-ack\n\n\
             # 3. Sign an event with openssl and post it with curl; it comes to 2, where \
             `transit-agent call` answers it\n\
             ts=$(date +%s); body='{{\"schema\":\"transit.ingest/1\",\"event_key\":\"mine-'$ts'\",\"conversation_id\":\"mine\",\"content\":\"signed by hand\"}}'; \
             sig=$(printf '%s.%s' \"$ts\" \"$body\" | openssl dgst -sha256 -hmac \"$(cat {})\" -r | cut -d' ' -f1); \
             curl -sS -H \"Transit-Timestamp: $ts\" -H \"Transit-Signature: v1=$sig\" --data-binary \"$body\" {host}/{hello}\n",
            program("transit-send"),
            secret(build),
            program("transit-agent"),
            you.name,
            secret(hello),
        ))
    }
}
