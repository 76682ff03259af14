//! A frame as one line for people, or as its record in JSON.

use std::io;

use super::pen::Pen;
use crate::proto::dump::raw::{self, Raw, Secrets};
use crate::proto::dump::{Kind, Line, Way};
use crate::secret::REDACTED;

/// Columns of the longest `t` that there is.
const TAG_COLUMNS: usize = 11;
const BLANKS: &str = "           ";

const DIM: &str = "\x1b[2m";
const FORTH: &str = "\x1b[36m";
const BACK: &str = "\x1b[35m";
const BOLD: &str = "\x1b[1m";
const REFUSED: &str = "\x1b[1;31m";

/// How lines look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// Records in JSON instead of lines for people.
    pub(super) json: bool,
    /// Colour.
    pub(super) color: bool,
    /// Columns of a line; `None` for as many as it takes.
    pub(super) width: Option<usize>,
    /// Whether secrets are shown.
    pub(super) secrets: Secrets,
}

/// Writes frames to stdout.
pub(super) struct Printer {
    json: bool,
    secrets: Secrets,
    pen: Pen,
}

impl Printer {
    pub(super) fn new(look: Look) -> Self {
        let Look { json, color, width, secrets } = look;
        let pen = if json { Pen::new(None, false) } else { Pen::new(width, color) };
        Self { json, secrets, pen }
    }

    /// Writes one line.
    pub(super) fn print(&mut self, line: &Line<'_>) -> io::Result<()> {
        if self.json {
            self.record(line)?
        } else {
            self.human(line)?
        }
        self.pen.end_line()
    }

    /// Writes out what is held.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.pen.flush()
    }

    /// The record; a bare frame gets one, as far as it tells what stands in it.
    fn record(&mut self, line: &Line<'_>) -> io::Result<()> {
        if line.kind() != Kind::Bare {
            return self.whole(line, line.text());
        }
        match (line.proto(), line.dir()) {
            (Some(proto), Some(dir)) => {
                for piece in ["{\"proto\":\"", proto, "\",\"dir\":\"", dir, "\",\"frame\":"] {
                    self.pen.put(piece)?;
                }
            }
            _ => self.pen.put("{\"frame\":")?,
        }
        self.whole(line, line.frame().json())?;
        self.pen.put("}")
    }

    /// A part of a line as it is, or as it may be shown.
    fn whole(&mut self, line: &Line<'_>, json: &str) -> io::Result<()> {
        if line.is_clean() {
            return self.pen.put(json);
        }
        raw::shown(json, self.secrets, |piece| self.pen.put(piece))
    }

    fn human(&mut self, line: &Line<'_>) -> io::Result<()> {
        self.pen.style(DIM);
        self.pen.put(line.at().and_then(Raw::word).unwrap_or("-"))?;
        self.pen.plain();
        self.pen.put(" ")?;
        self.ends(line)?;
        self.pen.put(" ")?;
        let (labelled, label) = label(line);
        self.label(label, line.kind() == Kind::Note)?;
        if !line.frame().is_object() {
            self.pen.put(" ")?;
            return self.value(line, line.frame());
        }
        self.fields(line, labelled)
    }

    /// Who spoke to whom. The end that connected stands on the left, so that the arrow tells the direction.
    fn ends(&mut self, line: &Line<'_>) -> io::Result<()> {
        let ends = line.dir().filter(|dir| raw::is_word(dir)).and_then(|dir| dir.split_once('>'));
        let Some((from, to)) = ends else { return self.pen.put("?") };
        let (left, arrow, right, style) = match line.way() {
            Some(Way::Back) => (to, " <- ", from, BACK),
            _ => (from, " -> ", to, FORTH),
        };
        self.pen.put(left)?;
        self.pen.style(style);
        self.pen.put(arrow)?;
        self.pen.plain();
        self.pen.put(right)
    }

    /// What it is, in a column of its own.
    fn label(&mut self, label: &str, is_note: bool) -> io::Result<()> {
        let is_refusal = label.ends_with("_nak") || label.ends_with("_err") || label == "error";
        self.pen.style(if is_refusal { REFUSED } else { BOLD });
        let (open, close) = if is_note { ("(", ")") } else { ("", "") };
        for piece in [open, label, close] {
            self.pen.put(piece)?;
        }
        self.pen.plain();
        let columns = open.len() + label.len() + close.len();
        self.pen.put(&BLANKS[columns.min(TAG_COLUMNS)..])
    }

    /// The id, who writes to whom, everything short, and then what is long, each as far as it is there.
    fn fields(&mut self, line: &Line<'_>, labelled: &str) -> io::Result<()> {
        let (mut id, mut from, mut to, mut has_long) = (None, None, None, false);
        for (name, value) in line.fields() {
            match name {
                "id" | "rid" => id = Some((name, value)),
                "from" => from = Some(value),
                "to" => to = Some(value),
                _ => has_long |= is_long(value),
            }
        }
        if let Some((_, id)) = id {
            self.pen.put(" ")?;
            self.value(line, id)?;
        }
        let route = from.zip(to);
        if let Some((from, to)) = route {
            self.pen.put(" ")?;
            self.value(line, from)?;
            self.pen.put(" > ")?;
            self.value(line, to)?;
        }
        let is_told = |name: &str| {
            name == labelled
                || id.is_some_and(|(told, _)| told == name)
                || route.is_some() && matches!(name, "from" | "to")
        };
        for long in [false, true] {
            if long && !has_long {
                break;
            }
            for (name, value) in line.fields() {
                if is_long(value) == long && !is_told(name) {
                    self.field(line, name, value)?;
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, line: &Line<'_>, name: &str, value: Raw<'_>) -> io::Result<()> {
        self.pen.put(" ")?;
        if line.is_clean() {
            self.pen.put(name)?;
            self.pen.put("=")?;
            return self.value(line, value);
        }
        raw::shown_inside(name, |piece| self.pen.put(piece))?;
        self.pen.put("=")?;
        if self.secrets == Secrets::Redacted && raw::names_secret(name.as_bytes()) {
            return self.pen.put(REDACTED);
        }
        self.value(line, value)
    }

    /// A word as it is, everything else as JSON.
    fn value(&mut self, line: &Line<'_>, value: Raw<'_>) -> io::Result<()> {
        match value.word() {
            Some(word) => self.pen.put(word),
            None => self.whole(line, value.json()),
        }
    }
}

/// Whether a value stands at the end of the line: texts that are no word, and what has parts.
fn is_long(value: Raw<'_>) -> bool {
    matches!(value.json().as_bytes().first(), Some(b'{' | b'[' | b'"')) && value.word().is_none()
}

/// The field that says what the frame is, and what it says.
fn label<'a>(line: &Line<'a>) -> (&'static str, &'a str) {
    let said = |name| line.field(name).and_then(Raw::word).map(|word| (name, word));
    let names: &[_] = if line.kind() == Kind::Note { &["note"] } else { &["t", "op", "method"] };
    let answer = |name| line.field(name).map(|_| ("", name));
    names
        .iter()
        .copied()
        .find_map(said)
        .or_else(|| ["error", "result"].into_iter().find_map(answer))
        .unwrap_or(("", "-"))
}
