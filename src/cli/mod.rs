//! The commands: arguments, run, output, exit code. One file each, and no protocol rule in any of them.
//!
//! [`tools`] is the one list of commands; help, man pages and completions are made from it.

pub mod agent;
pub mod api;
mod ask;
mod control;
mod duration;
pub mod envelope;
mod findings;
pub mod logging;
mod loops;
pub mod mcp;
mod outlet;
pub mod output;
mod progress;
mod quickstart;
mod ready;
mod report;
pub mod secret;
pub mod send;
mod shell;
pub mod sign;
pub mod spool;
mod toolbox;
pub mod transitd;
mod ways;
pub mod wire_dump;
pub mod worker;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, ColorChoice, Parser};

pub use output::{Color, Exit, Failure, Out};

/// The options that every command has. They are told by `--help` alone: `-h` is to fit a screen.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Common {
    /// Say more on stderr; twice for debugging.
    #[arg(short, long, action = ArgAction::Count, global = true, hide_short_help = true)]
    pub verbose: u8,
    /// When to use colour.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", global = true, hide_short_help = true)]
    pub color: Color,
}

/// One command, with what its manual page says beyond its options.
pub struct Tool {
    /// Its options and arguments.
    pub command: clap::Command,
    /// The rest of its page.
    pub page: Page,
}

/// The parts of a manual page that options do not tell.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// The section of the manual: 1 for commands, 8 for services.
    pub section: &'static str,
    /// The exit codes that this command can end with.
    pub exits: &'static [Exit],
    /// Environment variables and what they do.
    pub environment: &'static [(&'static str, &'static str)],
    /// Files and what they are.
    pub files: &'static [(&'static str, &'static str)],
    /// Commands to try, each with what it does first.
    pub examples: &'static [(&'static str, &'static str)],
    /// Other pages.
    pub see_also: &'static [&'static str],
}

/// All commands, in the order in which a newcomer meets them.
pub fn tools() -> Vec<Tool> {
    let tools = [
        sign::tool(),
        envelope::tool(),
        send::tool(),
        spool::tool(),
        wire_dump::tool(),
        agent::tool(),
        api::tool(),
        mcp::tool(),
        transitd::tool(),
        worker::tool(),
    ];
    tools.map(with_examples).into()
}

/// The tool with the examples of its page at the end of `--help`. A manual page has them in a section of their own,
/// so what makes it from a [`Tool`] takes them off again.
fn with_examples(tool: Tool) -> Tool {
    let indented = |lines: &str| lines.replace('\n', "\n    ");
    let examples = tool.page.examples.iter().map(|(what, how)| format!("  {what}\n    {}", indented(how)));
    let help = format!("Examples:\n{}", examples.collect::<Vec<_>>().join("\n\n"));
    Tool { command: tool.command.after_long_help(help), ..tool }
}

/// Runs a command: parses its arguments, prints its failure, and turns it into an exit code.
///
/// It is given its own tool rather than its name, so that a program does not hold the options of all the others.
pub fn main<A: Parser>(tool: fn() -> Tool, run: impl FnOnce(A) -> Result<Exit, Failure>) -> ExitCode {
    // Once: making the options is most of what starting a command takes.
    let mut command = A::command().color(help_color());
    let name = command.get_name().to_owned();
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = matches.and_then(|mut found| A::from_arg_matches_mut(&mut found));
    let args = match parsed.map_err(|err| err.format(&mut command)) {
        Ok(args) => args,
        Err(err) => return unparsed(&name, tool, err),
    };
    match run(args) {
        Ok(exit) => exit.into(),
        Err(failure) => report(&name, &failure),
    }
}

/// Prints a failure, and turns it into an exit code.
fn report(name: &str, failure: &Failure) -> ExitCode {
    if failure.closed_pipe {
        return Exit::Ok.into();
    }
    output::tell(name, failure);
    failure.exit.into()
}

/// Arguments that are no work to do: help that was asked for, or a mistake.
fn unparsed(name: &str, tool: fn() -> Tool, err: clap::Error) -> ExitCode {
    match err.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let is_help = err.kind() == ErrorKind::DisplayHelp;
            let shown = if is_help { help(tool).unwrap_or(err) } else { err };
            match shown.print() {
                Ok(()) => Exit::Ok.into(),
                Err(err) => report(name, &err.into()),
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Goes to stderr, about which nothing can be done.
            let _ = err.print();
            Exit::Usage.into()
        }
        _ => report(name, &misused(name, &err.render().to_string())),
    }
}

/// clap's paragraphs as one line and the way out. What the user typed is in them, and is made safe.
fn misused(name: &str, message: &str) -> Failure {
    let mut paragraphs = message.split("\n\n").map(|paragraph| {
        paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    });
    let first = paragraphs.next().unwrap_or_default();
    let line = first.strip_prefix("error: ").unwrap_or(&first);
    let failure = Failure::new(Exit::Usage, "read the arguments", line);
    match paragraphs.find(|paragraph| paragraph.starts_with("tip: ")) {
        Some(tip) => failure.hint(&tip["tip: ".len()..]),
        None => failure.hint(format_args!("see {name} --help")),
    }
}

/// The help that was asked for, with what the page adds to it.
fn help(tool: fn() -> Tool) -> Option<clap::Error> {
    with_examples(tool()).command.color(help_color()).try_get_matches().err()
}

/// Whether help gets colour: it is printed before the options are read, so that the one that says so is looked for.
fn help_color() -> ColorChoice {
    color_in(std::env::args_os().skip(1))
}

fn color_in(args: impl Iterator<Item = OsString>) -> ColorChoice {
    let mut args = args.take_while(|arg| arg != "--");
    let mut last = OsString::new();
    while let Some(arg) = args.next() {
        match arg.as_encoded_bytes().strip_prefix(b"--color=") {
            Some(value) => last = OsString::from_vec(value.to_vec()),
            None if arg == "--color" => last = args.next().unwrap_or_default(),
            None => {}
        }
    }
    match last.to_str() {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_the_colour_that_is_asked_for() {
        let asked = |args: &[&str]| color_in(args.iter().map(OsString::from));
        assert_eq!(asked(&["--color", "never", "--help"]), ColorChoice::Never);
        assert_eq!(asked(&["run", "-h", "--color=always"]), ColorChoice::Always);
        for auto in [&["-h"][..], &["--color"], &["--color", "odd"], &["--", "--color", "never"]] {
            assert_eq!(asked(auto), ColorChoice::Auto, "{auto:?}");
        }
    }

    #[test]
    fn a_mistake_is_one_safe_line_and_the_way_out() {
        let shown = |args: &[&str]| {
            let err = transitd::Args::try_parse_from(args).unwrap_err();
            misused("transitd", &err.render().to_string())
        };
        let failure = shown(&["transitd", "a\u{1b}[31m\u{202e}\u{9b}"]);
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.line.starts_with("read the arguments: unrecognized subcommand"), "{}", failure.line);
        assert!(!failure.line.contains(['\u{1b}', '\u{202e}', '\u{9b}', '\n']), "{:?}", failure.line);
        assert_eq!(failure.hint.as_deref(), Some("see transitd --help"));
        let failure = shown(&["transitd", "run", "--ready-fil", "x"]);
        assert!(failure.hint.is_some_and(|hint| hint.contains("'--ready-file'")));
        let failure = shown(&["transitd", "enroll"]);
        assert!(failure.line.contains("--url <URL> --code <CODE>"), "{}", failure.line);
    }
}
