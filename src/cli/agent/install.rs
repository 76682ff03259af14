//! `transit-agent install` and `uninstall`: the adapters of the harnesses, put where each harness finds them.

mod harness;
mod json;
mod plan;
mod source;

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::output::{self, Exit, Failure, Out};
use crate::text;
pub(in crate::cli) use harness::Harness;
pub(in crate::cli) use plan::State;
use plan::{Action, Step};
use source::Programs;

/// What to install, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The harness.
    #[arg(value_enum, value_name = "HARNESS", required_unless_present = "list")]
    harness: Option<Harness>,
    /// Tell which adapters are installed, and change nothing.
    #[arg(long, conflicts_with_all = ["harness", "dry_run", "force", "dir"])]
    list: bool,
    #[command(flatten)]
    how: How,
}

/// What to take away, and how.
#[derive(Debug, clap::Args)]
pub(super) struct RemoveArgs {
    /// The harness.
    #[arg(value_enum, value_name = "HARNESS")]
    harness: Harness,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
struct How {
    /// Tell what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Replace or remove what somebody else has changed as well.
    #[arg(long)]
    force: bool,
    /// The harness's configuration directory [default: where the harness itself looks].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object a file.
    #[arg(long)]
    json: bool,
}

/// One file, as it is told.
#[derive(Serialize)]
struct Record<'a> {
    harness: &'static str,
    path: String,
    action: &'static str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    entries: &'a [String],
    dry_run: bool,
}

/// One adapter, as it is told.
#[derive(Serialize)]
struct Listed {
    harness: &'static str,
    dir: String,
    state: &'static str,
}

/// Puts an adapter in place.
pub(super) fn run(args: Args) -> Result<Exit, Failure> {
    let Some(harness) = args.harness else { return list(args.how.json) };
    let dir = dir(harness, args.how.dir.as_deref())?;
    let steps = plan::install(&harness.artifacts(&dir, &Programs::find()?), args.how.force)?;
    if !args.how.dry_run {
        plan::apply(&steps)?;
    }
    tell(harness, &steps, &args.how)?;
    if steps.iter().any(|step| step.action != Action::Keep) && !args.how.dry_run {
        output::say(format_args!("{}: {}", super::NAME, harness.takes_effect()));
    }
    Ok(Exit::Ok)
}

/// Takes an adapter away.
pub(super) fn remove(args: RemoveArgs) -> Result<Exit, Failure> {
    let RemoveArgs { harness, how } = args;
    let dir = dir(harness, how.dir.as_deref())?;
    let steps = plan::uninstall(&harness.artifacts(&dir, &Programs::find()?), how.force)?;
    if !how.dry_run {
        plan::apply(&steps)?;
    }
    tell(harness, &steps, &how)?;
    if steps.is_empty() {
        output::say(format_args!(
            "{}: nothing of Transit is in {}",
            super::NAME,
            text::visible(&shown(&dir))
        ));
    }
    Ok(Exit::Ok)
}

/// How far the adapter of a harness is in place; `None` where the harness itself does not seem to be.
///
/// # Errors
/// When nothing tells where the harness keeps its files, or they cannot be read.
pub(in crate::cli) fn state(harness: Harness) -> Result<Option<State>, Failure> {
    let dir = dir(harness, None)?;
    let state = plan::state(&harness.artifacts(&dir, &Programs::find()?))?;
    Ok((state != State::Absent || dir.is_dir() || is_on_path(harness.name())).then_some(state))
}

fn list(as_json: bool) -> Result<Exit, Failure> {
    let mut out = Out::new();
    for harness in Harness::ALL {
        let state = match state(harness)? {
            None => "no harness",
            Some(State::Absent) => "not installed",
            Some(State::Installed) => "installed",
            Some(State::Outdated) => "outdated",
            Some(State::Changed) => "changed",
        };
        let listed = Listed { harness: harness.name(), dir: shown(&dir(harness, None)?), state };
        if as_json {
            out.json(&listed)?;
        } else {
            writeln!(out, "{:<9} {:<14} {}", listed.harness, listed.state, text::visible(&listed.dir))?;
        }
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn dir(harness: Harness, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let dir = match given {
        Some(dir) => Some(dir.to_owned()),
        None => harness.dir(|name| env::var_os(name)),
    };
    let what = format!("find the files of {}", harness.name());
    let dir = dir.ok_or_else(|| {
        Failure::new(Exit::Config, &what, "HOME is not set").hint("name the directory with --dir")
    })?;
    // An entry that names it is to hold wherever the harness is started.
    std::path::absolute(&dir).map_err(|err| Failure::new(Exit::Io, &what, err))
}

fn is_on_path(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|dir| dir.join(program).is_file())
}

fn tell(harness: Harness, steps: &[Step], how: &How) -> Result<(), Failure> {
    let mut out = Out::new();
    for step in steps {
        let action = word(step.action);
        let path = shown(&step.path);
        if how.json {
            let (name, entries, dry_run) = (harness.name(), &step.entries[..], how.dry_run);
            out.json(&Record { harness: name, path, action, entries, dry_run })?;
            continue;
        }
        let entries = match step.entries.join(", ") {
            entries if entries.is_empty() => String::new(),
            entries => format!(": {entries}"),
        };
        let would = if how.dry_run && step.action != Action::Keep { "would be " } else { "" };
        writeln!(out, "{would}{action} {}{entries}", text::visible(&path))?;
    }
    Ok(out.finish()?)
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Create => "created",
        Action::Renew => "renewed",
        Action::Edit => "edited",
        Action::Remove => "removed",
        Action::Keep => "unchanged",
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
