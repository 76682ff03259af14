//! How a command speaks: one writer for data, one for words, one table of exit codes.
//!
//! Data goes to stdout, words go to stderr. A closed pipe ends a command quietly. Whatever came from a peer or a
//! file name passes through [`text::visible`] before it is shown to a person, and passwords of URLs are left out.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::outlet::Outlet;
use super::ways;
use crate::net::service::Shutdown;
use crate::secret::without_passwords;
use crate::store::StoreError;
use crate::store::ledger::Refusal;
use crate::store::spool::SPOOL_DB;
use crate::text;

/// Code points of each half of an error, what failed and why, that are shown.
const PART_RUNES: usize = 1_000;

/// What a command's exit status says. The numbers are those of sysexits(3), plus 0, 1 and 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exit {
    /// Done; for a spooling sender also: safely in the spool.
    Ok = 0,
    /// The answer is no.
    No = 1,
    /// Options or arguments are wrong.
    Usage = 2,
    /// Input breaks a rule of its protocol.
    Data = 65,
    /// A file cannot be read.
    NoInput = 66,
    /// No such recipient.
    NoRecipient = 67,
    /// A daemon, Worker or database is not there, and the work was not kept.
    Unavailable = 69,
    /// A bug of ours.
    Software = 70,
    /// A file cannot be created, or the disk is full.
    CannotCreate = 73,
    /// Reading or writing failed.
    Io = 74,
    /// A passing failure, and nothing was kept: run it again.
    TryLater = 75,
    /// The peer broke the protocol, or speaks another version.
    Protocol = 76,
    /// Not allowed.
    NoPermission = 77,
    /// Missing or wrong configuration.
    Config = 78,
}

impl Exit {
    /// All of them, by number.
    pub const ALL: [Self; 14] = [
        Self::Ok,
        Self::No,
        Self::Usage,
        Self::Data,
        Self::NoInput,
        Self::NoRecipient,
        Self::Unavailable,
        Self::Software,
        Self::CannotCreate,
        Self::Io,
        Self::TryLater,
        Self::Protocol,
        Self::NoPermission,
        Self::Config,
    ];

    /// What it means, in the words of the manual.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "Done.",
            Self::No => "The answer is no: a signature does not verify, nothing matched, a step failed.",
            Self::Usage => "Options or arguments are wrong.",
            Self::Data => "Input breaks a rule of its protocol; the rule and the place are named.",
            Self::NoInput => "A file cannot be read.",
            Self::NoRecipient => "No such agent, host, room or source.",
            Self::Unavailable => "A daemon, Worker or database is not there, and the work was not kept.",
            Self::Software => "A bug in this program.",
            Self::CannotCreate => "A file cannot be created, the disk is full, or a file is in the way.",
            Self::Io => "Reading or writing failed.",
            Self::TryLater => "A passing failure, and nothing was kept: run the command again.",
            Self::Protocol => "The peer broke the protocol, or speaks another version.",
            Self::NoPermission => "Not allowed: a wrong token or signature, or another user's socket.",
            Self::Config => "Configuration is missing or wrong.",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not do what it was asked: an exit code, one line, and the way out where there is one.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What failed and why, without the command's name. Already safe to show.
    pub line: String,
    /// The way out.
    pub hint: Option<String>,
    /// The reader of our stdout went away, which ends a command quietly.
    pub(super) closed_pipe: bool,
}

impl Failure {
    /// A failure: what was attempted on what, and why it did not work.
    pub fn new(exit: Exit, what: impl Display, why: impl Display) -> Self {
        let line = format!("{}: {}", brief(&shown(what.to_string())), brief(&shown(why.to_string())));
        Self { exit, line, hint: None, closed_pipe: false }
    }

    /// A failure of what is kept on this machine.
    pub fn store(what: impl Display, err: &StoreError) -> Self {
        let (exit, hint) = match err {
            StoreError::Io { doing: "read", .. } => (Exit::NoInput, None),
            StoreError::Io { source, .. } => (of_io(source), None),
            StoreError::InTheWay { .. } => (Exit::CannotCreate, None),
            StoreError::ReadOnly { .. } => (
                Exit::CannotCreate,
                Some("see who may write to it and to its directory, and whether the disk takes anything"),
            ),
            StoreError::Full { .. } => {
                (Exit::CannotCreate, Some("free some space and run the command again"))
            }
            StoreError::Foreign { .. } => (
                Exit::Config,
                Some("run this as its owner, or name another data directory with TRANSIT_DATA_DIR"),
            ),
            StoreError::Newer { .. } => (Exit::Config, Some("install the newer version again")),
            StoreError::Config { .. } | StoreError::TooLong { .. } => (Exit::Config, None),
            StoreError::LimitReached { what: "the spool", .. } => (
                Exit::TryLater,
                Some("send what waits: transit-spool flush; or take some out: transit-spool rm"),
            ),
            StoreError::Sealed => (
                Exit::Config,
                Some(
                    "set TRANSIT_MASTER_KEY to the key under which the secrets were stored; when it is lost: \
                     transit-worker source rotate NAME --lost-key",
                ),
            ),
            StoreError::Damaged { path, .. } if path.file_name().is_some_and(|name| name == SPOOL_DB) => (
                Exit::Io,
                Some(
                    "rescue what it holds: transit-spool export > spool.ndjson; then move it away, and import that",
                ),
            ),
            StoreError::Damaged { .. } => (
                Exit::Io,
                Some(
                    "put back a copy made with transit-worker backup; transit-worker doctor --deep says what is damaged",
                ),
            ),
            StoreError::Refused(refusal) => (of_refusal(refusal), ways::out_of_ledger(refusal)),
            StoreError::Panicked { .. } => (Exit::Software, None),
            _ if err.is_passing() => (Exit::TryLater, None),
            _ => (Exit::Io, None),
        };
        Self::new(exit, what, err).way(hint)
    }

    /// The same failure, of one part of what was to be done.
    #[must_use]
    pub(super) fn at(mut self, place: impl Display) -> Self {
        self.line = format!("{}: {}", text::visible(&place.to_string()), self.line);
        self
    }

    /// The same failure with the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Display) -> Self {
        self.hint = Some(shown(hint.to_string()));
        self
    }

    /// The same failure with the way out, if there is one.
    #[must_use]
    pub(super) fn way(self, way: Option<impl Display>) -> Self {
        match way {
            Some(way) => self.hint(way),
            None => self,
        }
    }
}

/// Words as far as anybody reads them: what was typed or sent may be of any length, and an error is one line. Both ends
/// stay, for what is wrong may stand at either.
fn brief(words: &str) -> Cow<'_, str> {
    let runes = words.chars().count();
    if runes <= PART_RUNES {
        return words.into();
    }
    let begin = text::clip(words, PART_RUNES / 2);
    let end = &words[text::clip(words, runes - PART_RUNES / 2).len()..];
    format!("{begin} … {end}").into()
}

/// Words as they may be shown: safe for a terminal, and without anybody's password.
fn shown(words: String) -> String {
    text::visible(&without_passwords(&words)).into_owned()
}

/// What could not be made is one thing, what broke while it was used another.
fn of_io(err: &io::Error) -> Exit {
    use io::ErrorKind::{
        IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem, StorageFull,
    };
    match err.kind() {
        IsADirectory | NotADirectory | NotFound | PermissionDenied | ReadOnlyFilesystem | StorageFull => {
            Exit::CannotCreate
        }
        _ => Exit::Io,
    }
}

/// What the Worker's ledger does not allow.
fn of_refusal(refusal: &Refusal) -> Exit {
    match refusal {
        Refusal::NotFound { what: "delivery" | "message" | "event", .. }
        | Refusal::Settled { .. }
        | Refusal::NotDead { .. }
        | Refusal::NotQueued { .. } => Exit::No,
        Refusal::NotFound { .. } | Refusal::NoRoom { .. } => Exit::NoRecipient,
        Refusal::QueueFull { .. } => Exit::TryLater,
        _ => Exit::Data,
    }
}

impl From<io::Error> for Failure {
    /// A failure of our own stdout; every other I/O error is told with its place.
    fn from(err: io::Error) -> Self {
        let closed_pipe = err.kind() == io::ErrorKind::BrokenPipe;
        Self { closed_pipe, ..Self::new(Exit::Io, "write the output", err) }
    }
}

/// Locked, buffered stdout. Dropping it without [`finish`](Self::finish) may lose what is buffered.
pub struct Out(io::BufWriter<Outlet>);

impl Out {
    /// Takes stdout for this command.
    pub fn new() -> Self {
        Self::through(Outlet::new())
    }

    /// Takes stdout for a command that ends when `stop` is raised, also while nobody reads what it writes: what cannot be
    /// written by then ends it like a closed pipe.
    ///
    /// # Errors
    /// When there is nothing to be woken by.
    pub(super) fn until(stop: &Shutdown) -> io::Result<Self> {
        Outlet::until(stop).map(Self::through)
    }

    fn through(outlet: Outlet) -> Self {
        Self(io::BufWriter::with_capacity(64 * 1024, outlet))
    }

    /// Prints somebody's text: as it is, but on a terminal without what would command it.
    ///
    /// # Errors
    /// When stdout does not take it.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        if self.0.get_ref().is_terminal() {
            return self.write_all(text::body(text).as_bytes());
        }
        self.write_all(text.as_bytes())
    }

    /// Prints a record as one line of JSON that no terminal acts on.
    ///
    /// # Errors
    /// When stdout does not take it.
    pub fn json(&mut self, record: &impl Serialize) -> io::Result<()> {
        let line = serde_json::to_string(record)?;
        self.write_all(text::visible_json(&line).as_bytes())?;
        self.write_all(b"\n")
    }

    /// Writes out what is buffered, so that a failure to do so is not lost.
    ///
    /// # Errors
    /// When stdout does not take it.
    pub fn finish(mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Default for Out {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether a person sees what goes to stdout.
pub fn is_on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Says one line on stderr, at once, so that the lines of several programs do not mix. Nothing can be done about a
/// stderr that is closed.
pub fn say(line: impl Display) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Says what failed, and the way out where there is one.
pub fn tell(command: &str, failure: &Failure) {
    say(format_args!("{command}: {}", failure.line));
    if let Some(hint) = &failure.hint {
        say(format_args!("{command}: {hint}"));
    }
}

/// Warns: `COMMAND: warning: …`.
pub fn warn(command: &str, what: impl Display) {
    say(format_args!("{command}: warning: {}", shown(what.to_string())));
}

/// When colour is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set; CLICOLOR_FORCE forces it.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Whether stdout gets colour.
    pub fn on_stdout(self) -> bool {
        self.on(&io::stdout())
    }

    /// Whether stderr gets colour.
    pub fn on_stderr(self) -> bool {
        self.on(&io::stderr())
    }

    fn on(self, stream: &impl IsTerminal) -> bool {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) => false,
            Self::Auto => set("CLICOLOR_FORCE") || stream.is_terminal(),
        }
    }
}
