//! `transit-spool import`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{NAME, Session, failed, record};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::cli::progress::Progress;
use crate::proto::lines::{Line, Lines};
use crate::store::spool::Spool;
use crate::store::spool::outbox::{Entry, Imported};
use crate::text;

/// Longest line, in bytes: a body whose every character is escaped still fits.
const LINE_BYTES: usize = 2 << 20;
/// Entries of one commit, and bytes of their bodies.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 4 << 20;

pub(super) fn run(session: &Session, files: &[PathBuf]) -> Result<Exit, Failure> {
    let stdin = [PathBuf::from("-")];
    let files = if files.is_empty() { &stdin } else { files };
    let mut importer = Importer {
        // Only records that are there make a spool that is not.
        spool: None,
        session,
        batch: Vec::new(),
        bytes: 0,
        imported: Imported::default(),
        progress: Progress::new("imported", None, true),
    };
    let ended = files.iter().try_for_each(|file| importer.take(file));
    // The good ones before a bad one are in, whatever comes of the rest.
    let committed = importer.commit();
    drop(importer.progress);
    let Imported { new, known } = importer.imported;
    if let Err(failure) = committed.and(ended) {
        output::say(format_args!("{NAME}: {new} imported and {known} known before that"));
        return Err(failure);
    }
    let mut out = Out::new();
    if session.json {
        writeln!(out, "{}", json!({ "imported": new, "known": known }))?;
    } else {
        writeln!(out, "{new} imported, {known} known")?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}

struct Importer<'a> {
    spool: Option<Spool>,
    session: &'a Session,
    batch: Vec<Entry>,
    bytes: usize,
    imported: Imported,
    progress: Progress,
}

impl Importer<'_> {
    /// Takes all records of a file.
    fn take(&mut self, file: &Path) -> Result<(), Failure> {
        let (mut from, name) = open(file)?;
        let mut lines = Lines::new(LINE_BYTES);
        let mut bytes = vec![0; 64 * 1024];
        let mut waiting = VecDeque::new();
        let (mut number, mut is_open) = (0, true);
        while is_open {
            match from.read(&mut bytes) {
                Ok(0) => {
                    is_open = false;
                    waiting.extend(lines.end());
                }
                Ok(read) => lines.push(&bytes[..read]),
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(unreadable(&name, &err)),
            }
            while let Some(line) = lines.next() {
                waiting.push_back(line);
            }
            for line in waiting.drain(..) {
                number += 1;
                self.line(&line).map_err(|why| why.at(&name, number))?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &Line) -> Result<(), Unusable> {
        let text = match line {
            Line::Text(text) if text.trim().is_empty() => return Ok(()),
            Line::Text(text) => text,
            Line::NotUtf8 => return Err(Unusable::Data("it is not UTF-8".to_owned())),
            Line::TooLong => return Err(Unusable::Data(format!("it is over {LINE_BYTES} bytes long"))),
        };
        let entry = record::parse(text, self.session.now).map_err(Unusable::Data)?;
        self.bytes += entry.body.len();
        self.batch.push(entry);
        if self.batch.len() >= BATCH || self.bytes >= BATCH_BYTES {
            self.commit().map_err(Unusable::Spool)?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let spool = match &mut self.spool {
            Some(spool) => spool,
            none => {
                let opened = Spool::open(&self.session.data).map_err(|err| failed("open the spool", &err))?;
                none.insert(opened)
            }
        };
        // Gone from here whether it gets in or not: a batch that failed is not tried again.
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let Imported { new, known } =
            spool.outbox().import(&batch).map_err(|err| failed("import the entries", &err))?;
        self.imported.new += new;
        self.imported.known += known;
        self.progress.at(self.imported.new + self.imported.known);
        Ok(())
    }
}

/// Why a line could not be taken.
enum Unusable {
    Data(String),
    Spool(Failure),
}

impl Unusable {
    fn at(self, name: &str, number: u64) -> Failure {
        match self {
            Self::Data(why) => {
                Failure::new(Exit::Data, format_args!("import line {number} of {}", text::visible(name)), why)
            }
            Self::Spool(failure) => failure,
        }
    }
}

fn open(file: &Path) -> Result<(Box<dyn Read>, String), Failure> {
    if file == Path::new("-") {
        return Ok((Box::new(io::stdin()), "stdin".to_owned()));
    }
    let name = file.display().to_string();
    let opened = File::open(file).map_err(|err| unreadable(&name, &err))?;
    Ok((Box::new(opened), name))
}

fn unreadable(name: &str, err: &io::Error) -> Failure {
    Failure::new(Exit::NoInput, format_args!("read {name}"), err)
}
