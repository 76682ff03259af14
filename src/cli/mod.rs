//! The commands: arguments, run, output, exit code. One file each, and no protocol rule in any of them.
//!
//! [`tools`] is the one list of commands; help, man pages and completions are made from it.

pub mod agent;
mod control;
mod duration;
pub mod logging;
pub mod output;
mod quickstart;
pub mod secret;
pub mod send;
mod shell;
pub mod sign;
pub mod transitd;
pub mod worker;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, Parser};

pub use output::{Color, Exit, Failure, Out};

/// The options that every command has.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Common {
    /// Say more on stderr; twice for debugging.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub verbose: u8,
    /// When to use colour.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", global = true)]
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
    let tools = [sign::tool(), send::tool(), agent::tool(), transitd::tool(), worker::tool()];
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
pub fn main<A: Parser>(run: impl FnOnce(A) -> Result<Exit, Failure>) -> ExitCode {
    let name = A::command().get_name().to_owned();
    let args = match A::try_parse() {
        Ok(args) => args,
        Err(err) => {
            let err = if err.kind() == ErrorKind::DisplayHelp { help(&name).unwrap_or(err) } else { err };
            return asked_or_wrong(&name, &err).into();
        }
    };
    match run(args) {
        Ok(exit) => exit.into(),
        Err(failure) if failure.closed_pipe => Exit::Ok.into(),
        Err(failure) => {
            tell(&name, &failure);
            failure.exit.into()
        }
    }
}

fn tell(name: &str, failure: &Failure) {
    output::say(format_args!("{name}: {}", failure.line));
    if let Some(hint) = &failure.hint {
        output::say(format_args!("{name}: {hint}"));
    }
}

/// What comes of arguments that give nothing to do: the help or version that was asked for, or what is wrong with
/// them, in as many lines as any other failure.
fn asked_or_wrong(name: &str, err: &clap::Error) -> Exit {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(err.kind(), DisplayHelp | DisplayVersion | DisplayHelpOnMissingArgumentOrSubcommand) {
        let _ = err.print();
        return if err.kind() == DisplayHelpOnMissingArgumentOrSubcommand { Exit::Usage } else { Exit::Ok };
    }
    let text = err.render().to_string();
    let joined = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts = text.split("\n\n").map(joined);
    let line = parts.next().unwrap_or_default();
    let failure =
        Failure::new(Exit::Usage, "read the arguments", line.strip_prefix("error: ").unwrap_or(&line));
    let rest: Vec<_> = parts.collect();
    let way_out = |mark: &str| rest.iter().find(|part| part.starts_with(mark));
    let hint = match way_out("tip: ").or_else(|| way_out("Usage: ")) {
        Some(hint) => format!("{hint} (more: {name} --help)"),
        None => format!("try {name} --help"),
    };
    tell(name, &failure.hint(hint));
    Exit::Usage
}

/// The help that was asked for, with what the page adds to it. Only asking for it costs making the whole list.
fn help(name: &str) -> Option<clap::Error> {
    let tool = tools().into_iter().find(|tool| tool.command.get_name() == name)?;
    tool.command.try_get_matches().err()
}
