//! What is on the disk: the configuration, who can read it, and the spool.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::findings::{Findings, Level};
use crate::daemon::configured;
use crate::store::StoreError;
use crate::store::config::{Config, Paths};
use crate::store::files;
use crate::store::spool::SPOOL_DB;
use crate::store::spool::look::{Look, Which};

/// Less than this is soon nothing.
const LITTLE_ROOM: u64 = 64 * 1024 * 1024;
/// Rows of the spool that are looked at together.
const PAGE_ROWS: u32 = 64;
/// How another data directory is named.
const ELSEWHERE: &str = "TRANSIT_DATA_DIR=DIR, for transitd and for all that it serves";
const MEND: &str = "see transit-spool check, which says what can be rescued";

/// Whether the host is enrolled, by files that make sense.
pub(super) fn config(paths: &Paths, config: &Config, found: &mut Findings) {
    match configured(paths) {
        Err(err) => {
            let hint = "correct the configuration, or enrol this host again: transitd enroll --force";
            found.wrong("config", err.to_string(), hint);
        }
        Ok(Some(host)) => {
            let url = config.url.as_deref().unwrap_or_default();
            found.ok("config", format!("this host is {host} at {url}"));
        }
        Ok(None) => found.note(
            "config",
            "this host is not enrolled: its agents reach each other, and nobody else",
            "transit-worker host enroll HOST, then transitd enroll --url URL --code CODE",
        ),
    }
}

/// Whether others can read what is secret, or replace anything.
pub(super) fn permissions(paths: &Paths, config: &Config, found: &mut Findings) {
    let spool = |suffix: &str| paths.data.join(format!("{SPOOL_DB}{suffix}"));
    let own =
        [paths.config.clone(), paths.token(), paths.daemon_lock(), spool(""), spool("-wal"), spool("-shm")];
    let secrets = config.sources.values().filter_map(|source| source.secret_file.clone());
    let mut faults = 0;
    let mut fault = |text: String, hint: String| {
        faults += 1;
        found.wrong("files", text, hint);
    };
    for path in own.into_iter().chain(secrets) {
        let shown = path.display();
        match fs::metadata(&path) {
            Ok(found) if found.uid() != our_uid() => {
                fault(
                    format!("{shown} belongs to user {}", found.uid()),
                    format!("chown {} {shown}", our_uid()),
                );
            }
            Ok(found) if found.mode() & 0o077 != 0 => {
                fault(
                    format!("others can use {shown} (mode {:o})", found.mode() & 0o777),
                    format!("chmod 600 {shown}"),
                );
            }
            _ => {}
        }
    }
    let parent = |path: &Path| path.parent().filter(|dir| !dir.as_os_str().is_empty()).map(PathBuf::from);
    let dirs = [(Some(paths.data.clone()), 0o077, "700"), (parent(&paths.config), 0o022, "go-w")];
    for (dir, others, mode) in dirs.into_iter().filter_map(|(dir, others, mode)| Some((dir?, others, mode))) {
        let shown = dir.display();
        match fs::metadata(&dir) {
            Ok(found) if !found.is_dir() => {
                fault(format!("{shown} is in the way: it is not a directory"), format!("move {shown} away"));
            }
            // The sticky bit keeps others from what is ours.
            Ok(found) if found.mode() & others != 0 && found.mode() & 0o1000 == 0 => {
                let text = format!("others can use the directory {shown} (mode {:o})", found.mode() & 0o777);
                fault(text, format!("chmod {mode} {shown}"));
            }
            _ => {}
        }
    }
    if faults == 0 {
        found.ok("files", "nobody else reads or replaces them");
    }
}

fn our_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether there is room for what is to be kept.
pub(super) fn disk(paths: &Paths, found: &mut Findings) {
    let place = paths.data.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    let Some(free) = files::free_bytes(place) else { return };
    let text = format!("{} MiB are free on the disk of {}", free / (1024 * 1024), place.display());
    if free < LITTLE_ROOM {
        found.wrong("disk", text, "free some space: on a full disk nothing can be taken or kept");
    } else {
        found.ok("disk", text);
    }
}

/// Whether what is to be kept can be written where it is to be kept.
pub(super) fn writable(paths: &Paths, found: &mut Findings) {
    let data = &paths.data;
    let shown = data.display();
    let check = "data";
    match fs::metadata(data) {
        Ok(dir) if !dir.is_dir() => {} // the files are looked at elsewhere
        Ok(dir) if dir.uid() != our_uid() => {
            let (owner, we) = (dir.uid(), our_uid());
            let text = format!("the data directory {shown} belongs to user {owner}, and this is user {we}");
            found.wrong(check, text, format!("run transitd as user {owner}, or: chown -R {we} {shown}"));
        }
        Ok(_) => match files::try_out(data) {
            Ok(()) => found.ok(check, format!("{shown} can be written")),
            Err(err) => found.wrong(check, format!("{shown} cannot be written: {err}"), way_in(&err, data)),
        },
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            let above = data.ancestors().skip(1).find(|dir| dir.exists()).unwrap_or(Path::new("/"));
            match files::try_out(above) {
                Ok(()) => found.ok(check, format!("{shown} is made by the first transitd")),
                Err(err) => {
                    let text = format!("{shown} cannot be made in {}: {err}", above.display());
                    found.wrong(check, text, way_in(&err, above));
                }
            }
        }
        Err(err) => found.wrong(check, format!("{shown} cannot be looked at: {err}"), way_in(&err, data)),
    }
}

/// What helps where something cannot be written.
fn way_in(err: &io::Error, dir: &Path) -> String {
    let dir = dir.display();
    match err.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("free some space there, or name another directory: {ELSEWHERE}")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("mount it so that it can be written, or name another directory: {ELSEWHERE}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("chmod u+rwx {dir}, or name another directory: {ELSEWHERE}")
        }
        _ => format!("name another directory: {ELSEWHERE}"),
    }
}

/// Whether the spool is what was written, and whether somebody should look into it.
pub(super) fn spool(paths: &Paths, found: &mut Findings) {
    let look = match Look::open(&paths.data) {
        Ok(Some(look)) => look,
        Ok(None) => return found.ok("spool", "there is none yet"),
        Err(err) => return unreadable(&err, found),
    };
    match damage(&look) {
        Err(err) => unreadable(&err, found),
        Ok(faults) if faults.is_empty() => found.ok("spool", "it is sound"),
        Ok(faults) => {
            for fault in faults {
                found.add(Level::Damaged, "spool", fault.replace('\n', " "), MEND);
            }
        }
    }
    let now = super::super::wall();
    if let Ok(dead) = look.page(Which::Dead, 0, 1, now)
        && !dead.is_empty()
    {
        let hint = "see which: transit-spool list --state dead";
        found.note("spool", "entries are dead: they were refused, or grew too old", hint);
    }
}

fn unreadable(err: &StoreError, found: &mut Findings) {
    match err {
        StoreError::Damaged { .. } => found.add(Level::Damaged, "spool", err.to_string(), MEND),
        _ => {
            found.wrong("spool", err.to_string(), "see that this user can read and write the data directory")
        }
    }
}

fn damage(look: &Look) -> Result<Vec<String>, StoreError> {
    let mut faults = look.structure(true)?;
    let mut after = 0;
    loop {
        let rows = look.rows(after, PAGE_ROWS)?;
        let Some(last) = rows.last() else { return Ok(faults) };
        after = last.as_ref().map_or_else(|fault| fault.seq, |row| row.seq);
        for row in rows {
            match row {
                Ok(row) => {
                    let broken = row.broken_rules();
                    faults.extend(broken.iter().map(|rule| format!("{}: {rule}", row.entry.id)));
                }
                Err(fault) => faults.push(format!("row {}: {}", fault.seq, fault.why)),
            }
        }
    }
}
