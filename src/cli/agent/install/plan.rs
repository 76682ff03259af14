//! What has to change on the disk so that an adapter is there, or is not there any more. Everything is looked at, and
//! refused where it must be, before anything is written.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::harness::{Artifact, Entry};
use super::{json, source};
use crate::cli::output::{Exit, Failure};
use crate::store::{StoreError, files};

/// Longest file of a harness that is edited, in bytes.
const LONGEST: u64 = 16 << 20;

/// What is done about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// It was not there.
    Create,
    /// An older copy is replaced.
    Renew,
    /// Entries in it change, and nothing else.
    Edit,
    /// It goes.
    Remove,
    /// It is as it is to be.
    Keep,
}

/// One file.
#[derive(Debug)]
pub(super) struct Step {
    /// Where.
    pub(super) path: PathBuf,
    /// What is done.
    pub(super) action: Action,
    /// The entries in question, of a file that is not all ours.
    pub(super) entries: Vec<String>,
    /// What it will hold.
    content: Option<String>,
}

impl Step {
    fn new(artifact: &Artifact, action: Action, content: Option<String>) -> Self {
        let entries = match artifact {
            Artifact::File { .. } => Vec::new(),
            Artifact::Entries { entries, .. } => entries.iter().map(shown).collect(),
        };
        Self { path: artifact.path().to_owned(), action, entries, content }
    }
}

fn shown(entry: &Entry) -> String {
    entry.keys.join(".")
}

/// How far an adapter is in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum State {
    /// Nothing of it is there.
    Absent,
    /// All of it is there, of this version.
    Installed,
    /// A part of it is missing, or of another version, or names another place of the programs.
    Outdated,
    /// Somebody changed it.
    Changed,
}

/// How a part of an adapter is found.
fn state_of(artifact: &Artifact) -> Result<(State, String), Failure> {
    let text = read(artifact.path())?;
    let state = match (artifact, &text) {
        (_, None) => State::Absent,
        (Artifact::File { content, .. }, Some(text)) if text == content => State::Installed,
        (Artifact::File { .. }, Some(text)) if source::is_unchanged(text) => State::Outdated,
        (Artifact::File { .. }, Some(_)) => State::Changed,
        (Artifact::Entries { path, entries }, Some(text)) => {
            let mut states = Vec::new();
            for entry in entries {
                let found = json::get(text, &entry.keys).map_err(|err| not_editable(path, &err))?;
                states.push(match found {
                    None => State::Absent,
                    Some(found) if found == entry.value => State::Installed,
                    Some(found) if (entry.is_ours)(&found) => State::Outdated,
                    Some(_) => State::Changed,
                });
            }
            together(&states)
        }
    };
    Ok((state, text.unwrap_or_default()))
}

/// What parts of these states make together.
fn together(states: &[State]) -> State {
    let all = |wanted| states.iter().all(|state| *state == wanted);
    if states.contains(&State::Changed) {
        State::Changed
    } else if all(State::Installed) {
        State::Installed
    } else if all(State::Absent) {
        State::Absent
    } else {
        State::Outdated
    }
}

/// How far an adapter is in place.
///
/// # Errors
/// When a file cannot be read, or is not what its harness would read.
pub(super) fn state(artifacts: &[Artifact]) -> Result<State, Failure> {
    let states: Result<Vec<State>, Failure> =
        artifacts.iter().map(|artifact| Ok(state_of(artifact)?.0)).collect();
    Ok(together(&states?))
}

/// What puts an adapter in place. What a person changed is replaced only with `force`.
///
/// # Errors
/// When a file cannot be read, was changed by a person, or cannot be edited without a risk.
pub(super) fn install(artifacts: &[Artifact], force: bool) -> Result<Vec<Step>, Failure> {
    let step = |artifact: &Artifact| {
        let (state, text) = state_of(artifact)?;
        refuse_changed(artifact, state, force)?;
        let is_new = !artifact.path().exists();
        Ok(match artifact {
            _ if state == State::Installed => Step::new(artifact, Action::Keep, None),
            Artifact::File { content, .. } => {
                let action = if is_new { Action::Create } else { Action::Renew };
                Step::new(artifact, action, Some(content.clone()))
            }
            Artifact::Entries { path, entries } => {
                let edited = entries.iter().try_fold(text, |text, Entry { keys, value, .. }| {
                    json::set(&text, keys, value).map_err(|err| not_editable(path, &err))
                })?;
                let action = if is_new { Action::Create } else { Action::Edit };
                Step::new(artifact, action, Some(edited))
            }
        })
    };
    let steps: Result<Vec<Step>, Failure> = artifacts.iter().map(step).collect();
    all_writable(steps?)
}

/// What takes an adapter away, the last part first.
///
/// # Errors
/// As [`install`].
pub(super) fn uninstall(artifacts: &[Artifact], force: bool) -> Result<Vec<Step>, Failure> {
    let step = |artifact: &Artifact| {
        let (state, text) = state_of(artifact)?;
        refuse_changed(artifact, state, force)?;
        Ok(match artifact {
            _ if state == State::Absent => None,
            Artifact::File { .. } => Some(Step::new(artifact, Action::Remove, None)),
            Artifact::Entries { path, entries } => {
                let edited = entries.iter().try_fold(text, |text, entry| {
                    let removed = json::remove(&text, &entry.keys);
                    removed.map(|removed| removed.unwrap_or(text)).map_err(|err| not_editable(path, &err))
                })?;
                // What a link leads to is somebody's, and stays.
                let is_empty = json::is_empty(&edited) && !path.is_symlink();
                let action = if is_empty { Action::Remove } else { Action::Edit };
                Some(Step::new(artifact, action, (!is_empty).then_some(edited)))
            }
        })
    };
    let steps: Result<Vec<Step>, Failure> =
        artifacts.iter().rev().filter_map(|artifact| step(artifact).transpose()).collect();
    all_writable(steps?)
}

/// Refuses all of it where a part could not be done, or somebody has taken care that it is not.
fn all_writable(steps: Vec<Step>) -> Result<Vec<Step>, Failure> {
    for Step { path, .. } in steps.iter().filter(|step| step.action != Action::Keep) {
        let may = |path: &Path| access(path, Access::WRITE_OK).is_ok();
        let (real, existing) = (path.canonicalize(), path.ancestors().skip(1).find(|dir| dir.exists()));
        let is_read_only =
            |path: &Path| !may(path) || path.metadata().is_ok_and(|found| found.permissions().readonly());
        let dir = real.as_ref().map_or(existing, |real| real.parent());
        let why = match &real {
            Err(_) if path.is_symlink() => "it is a link to nothing".to_owned(),
            Ok(real) if is_read_only(real) => "it is read-only".to_owned(),
            _ => match dir.filter(|dir| !may(dir)) {
                Some(dir) => format!("{} is not writable", dir.display()),
                None => continue,
            },
        };
        let failure = Failure::new(Exit::CannotCreate, format_args!("change {}", path.display()), why);
        return Err(failure.hint(
            "nothing was changed; make it writable, or make the change by hand: docs/harnesses.md says which",
        ));
    }
    Ok(steps)
}

/// Does it: each file is replaced whole, or goes.
///
/// # Errors
/// When a file cannot be written or removed; those before it are done.
pub(super) fn apply(steps: &[Step]) -> Result<(), Failure> {
    for Step { path, action, content, .. } in steps {
        match (action, content) {
            (Action::Keep, _) => {}
            (Action::Remove, _) => {
                fs::remove_file(path)
                    .map_err(|err| Failure::new(Exit::Io, format_args!("remove {}", path.display()), err))?;
                remove_empty_dirs(path);
            }
            (_, content) => {
                let content = content.as_deref().unwrap_or_default();
                files::make_parent(path)
                    .and_then(|()| files::replace(path, content.as_bytes()))
                    .map_err(|err| Failure::store(format_args!("write {}", path.display()), &err))?;
            }
        }
    }
    Ok(())
}

/// Removes the directories of a removed file that were made for it and hold nothing any more.
fn remove_empty_dirs(path: &Path) {
    let ours = path
        .ancestors()
        .skip(1)
        .take_while(|dir| dir.file_name().is_some_and(|name| name == ".claude-plugin" || name == "transit"));
    for dir in ours {
        if fs::remove_dir(dir).is_err() {
            return;
        }
    }
}

fn read(path: &Path) -> Result<Option<String>, Failure> {
    let what = || format!("read {}", path.display());
    match files::read_small(path, LONGEST) {
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| Failure::new(Exit::Config, what(), "it is not UTF-8, and is left as it is")),
        Err(StoreError::Io { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(err) => Err(Failure::store(what(), &err)),
    }
}

/// An empty file is taken for an empty object, as the harnesses do.
fn refuse_changed(artifact: &Artifact, state: State, force: bool) -> Result<(), Failure> {
    if state != State::Changed || force {
        return Ok(());
    }
    let path = artifact.path().display();
    let why = match artifact {
        Artifact::File { .. } => "it was changed by hand, or is not Transit's".to_owned(),
        Artifact::Entries { entries, .. } => {
            let entries: Vec<String> = entries.iter().map(shown).collect();
            format!("{} in it is not Transit's", entries.join(" or "))
        }
    };
    let failure = Failure::new(Exit::CannotCreate, format_args!("change {path}"), why);
    Err(failure.hint("look at it; with --force it is replaced, or removed, all the same"))
}

fn not_editable(path: &Path, err: &json::EditError) -> Failure {
    let failure = Failure::new(Exit::Config, format_args!("edit {}", path.display()), err);
    failure.hint("mend it, or make the change by hand: docs/harnesses.md says which")
}
