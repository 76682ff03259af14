//! A pane of tmux, asked by running tmux.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::termios::{LocalModes, tcgetattr};

use crate::cli::output::{Exit, Failure};
use crate::proto::tmux::Pane;

/// What is asked of a pane, one a line; a title or a name may hold anything but a newline.
const FORMAT: &str =
    "#{pane_id}\n#{pane_pid}\n#{pane_in_mode}\n#{pane_dead}\n#{pane_tty}\n#{pane_current_command}";
/// Programs to which nothing is typed: they would run it.
const SHELLS: [&str; 14] = [
    "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "pwsh", "sh", "tcsh", "xonsh", "zsh",
];
/// Most processes between this one and the pane's.
const MOST_HOPS: usize = 32;

/// The pane, or the whole server, is not there any more.
pub(super) struct Gone;

/// One pane.
pub(super) struct Tmux {
    socket: Option<PathBuf>,
    pane_id: String,
    pane_pid: u32,
    program: String,
    ended: Option<OwnedFd>,
}

/// What tmux says of a pane.
struct Seen {
    pane_id: String,
    pid: u32,
    in_mode: bool,
    dead: bool,
    tty: String,
    command: String,
}

impl Seen {
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut next = || lines.next().map(str::to_owned);
        let (pane_id, pid) = (next()?, next()?.parse().ok()?);
        let mut flag = || Some(next()? != "0");
        let (in_mode, dead) = (flag()?, flag()?);
        Some(Self { pane_id, pid, in_mode, dead, tty: next()?, command: next()? })
    }

    /// Whether the program in the foreground is a shell that waits for a person's commands.
    fn is_at_a_shell(&self) -> bool {
        let args = foreground(self.pid).and_then(args);
        args.map_or_else(|| is_shell(&self.command), |args| is_interactive(&args))
    }
}

impl Tmux {
    /// Finds a pane and the program in it.
    ///
    /// # Errors
    /// When tmux cannot be run, has no such pane, or there is only a shell in it.
    pub(super) fn find(
        socket: Option<PathBuf>,
        target: &str,
        program: Option<String>,
    ) -> Result<Self, Failure> {
        let mut tmux =
            Self { socket, pane_id: target.to_owned(), pane_pid: 0, program: String::new(), ended: None };
        let out = tmux.command(&["display-message", "-p", "-t", target, FORMAT]).output();
        let out = out.map_err(|err| {
            Failure::new(Exit::Unavailable, "run tmux", err).hint("install tmux, and start it")
        })?;
        let what = format!("find the pane {target}");
        let seen = out.status.success().then(|| Seen::read(&String::from_utf8_lossy(&out.stdout))).flatten();
        let Some(seen) = seen else {
            let why = String::from_utf8_lossy(&out.stderr).trim().to_owned();
            let why = if why.is_empty() { "tmux has no such pane".to_owned() } else { why };
            return Err(Failure::new(Exit::Unavailable, what, why).hint("list them: tmux list-panes -a"));
        };
        if program.is_none() && seen.is_at_a_shell() {
            let why = format!("only {} runs there, which would run what is typed", seen.command);
            return Err(Failure::new(Exit::Unavailable, what, why)
                .hint("start the program first, or name it with --program"));
        }
        tmux.pane_id = seen.pane_id;
        tmux.pane_pid = seen.pid;
        tmux.program = program.unwrap_or(seen.command);
        let pid = Pid::from_raw(seen.pid.cast_signed());
        tmux.ended = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(tmux)
    }

    pub(super) fn pane_id(&self) -> &str {
        &self.pane_id
    }

    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// What becomes readable when the process of the pane ends.
    pub(super) fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.ended.as_ref().map(AsFd::as_fd)
    }

    /// The process of the pane, if this one runs in the pane too.
    pub(super) fn pane_pid_above_us(&self) -> Option<u32> {
        let mut pid = std::process::id();
        for _ in 0..MOST_HOPS {
            pid = stat(pid)?.0;
            if pid == self.pane_pid {
                return Some(pid);
            }
        }
        None
    }

    /// The pane as it is now.
    pub(super) fn look(&self) -> Result<Pane, Gone> {
        let out = self.ask(&["display-message", "-p", "-t", &self.pane_id, FORMAT])?;
        // tmux answers for another pane when this one is not there.
        let seen = Seen::read(&out).filter(|seen| seen.pane_id == self.pane_id).ok_or(Gone)?;
        let is_program = !seen.dead && seen.command == self.program && !seen.is_at_a_shell();
        Ok(Pane { in_mode: seen.in_mode, is_program, is_canonical: is_canonical(&seen.tty) })
    }

    /// What the pane shows, with its colours.
    pub(super) fn read(&self) -> Result<String, Gone> {
        self.ask(&["capture-pane", "-p", "-e", "-J", "-t", &self.pane_id])
    }

    /// Pastes a text, in brackets if the program has asked for them. Not while the pane is in a mode, which is looked at
    /// by tmux itself, in one go with the paste.
    pub(super) fn paste(&self, text: &str) -> Result<bool, Gone> {
        let buffer = format!("transit-{}", std::process::id());
        let mut command = self.command(&["load-buffer", "-b", &buffer, "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|_| Gone)?;
        // The text goes through a pipe, which is as long as need be; an argument of tmux's is not.
        let written = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(text.as_bytes()).is_ok());
        let loaded = child.wait().is_ok_and(|status| status.success());
        if !(written && loaded) {
            return Err(Gone);
        }
        // -r: a newline stays one. As a carriage return it would send the text line by line where nothing is bracketed.
        let done = self.unless_in_mode(&format!("paste-buffer -p -r -d -b {buffer} -t {}", self.pane_id))?;
        if !done {
            let _ = self.ask(&["delete-buffer", "-b", &buffer]);
        }
        Ok(done)
    }

    /// Presses Enter, unless the pane is in a mode, which would take it for itself.
    pub(super) fn enter(&self) -> Result<bool, Gone> {
        self.unless_in_mode(&format!("send-keys -t {} Enter", self.pane_id))
    }

    /// Runs a command of tmux's if the pane is in no mode just then; answers whether it did.
    fn unless_in_mode(&self, command: &str) -> Result<bool, Gone> {
        let done = format!("{command} ; display-message -p done");
        let out = self.ask(&["if-shell", "-F", "-t", &self.pane_id, "#{pane_in_mode}", "", &done])?;
        Ok(out.trim() == "done")
    }

    fn ask(&self, args: &[&str]) -> Result<String, Gone> {
        let out = self.command(args).stdin(Stdio::null()).output().map_err(|_| Gone)?;
        if out.status.success() { Ok(String::from_utf8_lossy(&out.stdout).into_owned()) } else { Err(Gone) }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        if let Some(socket) = &self.socket {
            command.arg("-S").arg(socket);
        }
        // UTF-8, whatever the locale of whoever started us.
        command.arg("-u").args(args);
        command
    }
}

/// Whether a terminal hands its program whole lines, and cuts the long ones. One that cannot be asked does not, as far
/// as is known.
fn is_canonical(tty: &str) -> bool {
    let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits().cast_signed();
    let Ok(tty) = fs::OpenOptions::new().read(true).custom_flags(flags).open(tty) else { return false };
    tcgetattr(&tty).is_ok_and(|modes| modes.local_modes.contains(LocalModes::ICANON))
}

/// The process group that has the terminal of this process, which is the pid of its first one.
fn foreground(pid: u32) -> Option<u32> {
    stat(pid)?.1
}

/// The parent of a process, and the foreground process group of its terminal.
fn stat(pid: u32) -> Option<(u32, Option<u32>)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let group = fields.nth(3)?.parse::<i32>().ok();
    Some((parent, group.and_then(|group| u32::try_from(group).ok())))
}

fn args(pid: u32) -> Option<Vec<String>> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let args: Vec<String> = bytes
        .split(|byte| *byte == 0)
        .map(|arg| String::from_utf8_lossy(arg).into_owned())
        .filter(|arg| !arg.is_empty())
        .collect();
    (!args.is_empty()).then_some(args)
}

fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program).trim_start_matches('-');
    SHELLS.contains(&name)
}

/// Whether these are the arguments of a shell that was given nothing to run: no script, no command.
fn is_interactive(args: &[String]) -> bool {
    args.split_first().is_some_and(|(program, rest)| {
        is_shell(program) && rest.iter().all(|arg| arg.starts_with(['-', '+']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_that_waits_for_commands_is_no_program_to_type_to() {
        let is =
            |args: &[&str]| is_interactive(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        for shell in
            [&["bash"][..], &["-zsh"], &["/bin/sh", "-i"], &["/usr/bin/fish", "--login"], &["dash", "+m"]]
        {
            assert!(is(shell), "{shell:?}");
        }
        for other in
            [&["bash", "agent.sh"][..], &["sh", "-c", "cat"], &["cat"], &["python3"], &["bashful"], &[]]
        {
            assert!(!is(other), "{other:?}");
        }
    }

    #[test]
    fn what_tmux_says_of_a_pane_is_read_line_by_line() {
        let seen = Seen::read("%3\n71\n0\n1\n/dev/pts/4\nmy program\n").unwrap();
        assert_eq!((seen.pane_id.as_str(), seen.pid, seen.in_mode, seen.dead), ("%3", 71, false, true));
        assert_eq!((seen.tty.as_str(), seen.command.as_str()), ("/dev/pts/4", "my program"));
        assert!(Seen::read("%3\nx\n0\n0\n\n\n").is_none() && Seen::read("").is_none());
        assert!(stat(std::process::id()).is_some());
    }
}
