//! The files that were put aside: `audit.log.20260806T101500`, named for when that was.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::hash;
use crate::clock::Wall;
use crate::clock::calendar::Civil;

/// Where one file ends and the next one begins.
#[derive(Debug)]
pub(super) struct Seam {
    name: String,
    entries: usize,
    first_ts: Value,
    /// The hash of its last line.
    pub(super) tail_hash: String,
}

impl Seam {
    /// The seam to the newest file that was put aside of the record at `live`.
    pub(super) fn of_newest(live: &Path) -> io::Result<Option<Self>> {
        let Some(newest) = all(live)?.pop() else { return Ok(None) };
        let (mut entries, mut first_ts, mut last) = (0, Value::Null, Vec::new());
        for line in BufReader::new(File::open(&newest)?).split(b'\n') {
            last = line?;
            if entries == 0 {
                first_ts = serde_json::from_slice::<Value>(&last).unwrap_or_default()["ts"].take();
            }
            entries += 1;
        }
        let name = newest.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Some(Self { name, entries, first_ts, tail_hash: hash(&last) }))
    }

    /// What the line says that stands there.
    pub(super) fn fields(&self) -> Map<String, Value> {
        let Self { name, entries, first_ts, tail_hash } = self;
        let all = [
            ("rotated_to", name.as_str().into()),
            ("entries", (*entries).into()),
            ("first_ts", first_ts.clone()),
            ("tail_hash", tail_hash.as_str().into()),
        ];
        all.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect()
    }
}

/// All files that were put aside, the oldest first.
pub(super) fn all(live: &Path) -> io::Result<Vec<PathBuf>> {
    let (dir, name) = parts(live);
    let entries = match std::fs::read_dir(dir) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let is_segment = |file: &str| file.strip_prefix(&name).is_some_and(is_stamp);
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_segment) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Puts the file aside under the name of this moment, behind those that are there whatever the clock says.
pub(super) fn put_aside(live: &Path, now: Wall) -> io::Result<PathBuf> {
    let (dir, name) = parts(live);
    let newest =
        all(live)?.pop().and_then(|path| path.file_name()?.to_str()?.strip_prefix(&name).map(str::to_owned));
    let aside = dir.join(format!("{name}{}", next(&stamp(now), newest.as_deref())));
    std::fs::rename(live, &aside)?;
    Ok(aside)
}

/// Removes the oldest ones, so that `keep` stay; all of them stay without a number.
pub(super) fn forget(live: &Path, keep: Option<usize>) -> io::Result<()> {
    let Some(keep) = keep else { return Ok(()) };
    let found = all(live)?;
    for oldest in &found[..found.len().saturating_sub(keep)] {
        std::fs::remove_file(oldest)?;
        tracing::info!(path = %oldest.display(), "an old part of the audit log is removed");
    }
    Ok(())
}

/// The directory, and what the names of those that were put aside begin with.
fn parts(live: &Path) -> (&Path, String) {
    let name = live.file_name().unwrap_or_default().to_string_lossy();
    (live.parent().unwrap_or(Path::new("/")), format!("{name}."))
}

fn stamp(now: Wall) -> String {
    let Some(Civil { year, month, day, hour, minute, second, .. }) = Civil::of(now) else {
        return "99991231T235959".to_owned();
    };
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}")
}

/// The name behind the newest one: this moment's, or the newest one's with a number when the clock is not beyond it.
fn next(now: &str, newest: Option<&str>) -> String {
    let Some(newest) = newest.filter(|newest| now <= *newest) else { return now.to_owned() };
    let (time, number) = newest.split_once('-').unwrap_or((newest, "0"));
    format!("{time}-{:06}", number.parse::<u32>().unwrap_or_default() + 1)
}

/// Whether it is such a name: eight digits, `T`, six digits, and perhaps a number behind a dash.
fn is_stamp(name: &str) -> bool {
    let are_digits =
        |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
    let (time, number) = name.split_once('-').map_or((name, None), |(time, number)| (time, Some(number)));
    time.split_once('T').is_some_and(|(day, time)| are_digits(day, 8) && are_digits(time, 6))
        && number.is_none_or(|number| are_digits(number, 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_up_whatever_the_clock_says() {
        assert_eq!(stamp(Wall(1_786_011_300_000)), "20260806T101500");
        assert_eq!(next("20260806T101500", None), "20260806T101500");
        assert_eq!(next("20260806T101500", Some("20260806T101459-000007")), "20260806T101500");
        let mut newest = "20260806T101500".to_owned();
        for _ in 0..12 {
            let after = next("20250101T000000", Some(&newest));
            assert!(after > newest && is_stamp(&after), "{after}");
            newest = after;
        }
        for other in ["1", "20260806", "20260806T101500.gz", "20260806T10150x", "2026_806T101500", "-000001"]
        {
            assert!(!is_stamp(other), "{other}");
        }
    }
}
