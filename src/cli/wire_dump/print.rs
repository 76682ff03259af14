//! A frame as one line for people, or as its record in JSON.

use std::io;

use super::pen::Pen;
use crate::cli::output::Out;
use crate::proto::dump::raw::{self, Raw, Secrets};
use crate::proto::dump::{Kind, Line, Proto, Way};
use crate::secret::REDACTED;

/// Columns of the longest `t` that there is.
const TAG_COLUMNS: usize = 11;
/// Fields that are put in order: what is short before what is long. More come as they come.
const ORDERED: usize = 16;
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
    pub(super) fn new(out: Out, look: Look) -> Self {
        let Look { json, color, width, secrets } = look;
        let pen = if json { Pen::new(out, None, false) } else { Pen::new(out, width, color) };
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
        self.pen.put_byte(b' ');
        if let Some(conn) = line.conn().filter(|conn| !conn.is_object()) {
            self.pen.put_byte(b'#');
            self.value(line, conn)?;
            self.pen.put_byte(b' ');
        }
        self.ends(line)?;
        self.pen.put_byte(b' ');
        let (labelled, label) = label(line);
        self.label(label, line.kind() == Kind::Note)?;
        if !line.frame().is_object() {
            self.pen.put_byte(b' ');
            return self.value(line, line.frame());
        }
        self.fields(line, labelled)
    }

    /// Who spoke to whom. The end that connected stands on the left, so that the arrow tells the direction.
    fn ends(&mut self, line: &Line<'_>) -> io::Result<()> {
        let (left, right, arrow, style) = match (line.known_proto().map(Proto::ends), line.way()) {
            (Some((left, right)), Some(Way::Forth)) => (left, right, " -> ", FORTH),
            (Some((left, right)), Some(Way::Back)) => (left, right, " <- ", BACK),
            _ => match line.dir().filter(|dir| raw::is_word(dir)).and_then(|dir| dir.split_once('>')) {
                Some((from, to)) => (from, to, " -> ", FORTH),
                None => return self.pen.put("?"),
            },
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
        let mut first = [("", Raw::NULL); ORDERED];
        let mut count = 0;
        let (mut id, mut rid, mut label, mut from, mut to) = (None, None, None, None, None);
        for (n, (place, field)) in first.iter_mut().zip(line.fields()).enumerate() {
            // Of several fields of one name the last one counts.
            match field.0 {
                "id" => id = Some(n),
                "rid" => rid = Some(n),
                "from" => from = Some(n),
                "to" => to = Some(n),
                name if name == labelled => label = Some(n),
                _ => {}
            }
            *place = field;
            count = n + 1;
        }
        let first = &first[..count];
        let (id, route) = (id.or(rid), from.zip(to));
        // Which of them are told already, and which are told at the end.
        let (mut told, mut late) = (Few::default(), Few::default());
        if let Some(label) = label {
            told.add(label);
        }
        if let Some(id) = id {
            told.add(id);
            self.pen.put_byte(b' ');
            self.value(line, first[id].1)?;
        }
        if let Some((from, to)) = route {
            told.add(from);
            told.add(to);
            self.pen.put_byte(b' ');
            self.value(line, first[from].1)?;
            self.pen.put(" > ")?;
            self.value(line, first[to].1)?;
        }
        for (n, &(name, value)) in first.iter().enumerate().filter(|(n, _)| !told.has(*n)) {
            match (value.word(), value.json().as_bytes().first()) {
                (Some(word), _) => self.field(line, name, word)?,
                (None, Some(b'"' | b'{' | b'[')) => late.add(n),
                (None, _) => self.field(line, name, value.json())?,
            }
        }
        for (_, &(name, value)) in first.iter().enumerate().filter(|(n, _)| late.has(*n)) {
            self.field(line, name, value.json())?;
        }
        if count == ORDERED {
            for (name, value) in line.fields().skip(ORDERED) {
                self.field(line, name, value.json())?;
            }
        }
        Ok(())
    }

    /// A field: its name, and its value as a word or as JSON.
    fn field(&mut self, line: &Line<'_>, name: &str, value: &str) -> io::Result<()> {
        self.pen.put_byte(b' ');
        if line.is_clean() {
            self.pen.put(name)?;
            self.pen.put_byte(b'=');
            return self.pen.put(value);
        }
        raw::shown_inside(name, |piece| self.pen.put(piece))?;
        self.pen.put_byte(b'=');
        if self.secrets == Secrets::Redacted && raw::names_secret(name.as_bytes()) {
            return self.pen.put(REDACTED);
        }
        self.whole(line, value)
    }

    /// A word as it is, everything else as JSON.
    fn value(&mut self, line: &Line<'_>, value: Raw<'_>) -> io::Result<()> {
        match value.word() {
            Some(word) => self.pen.put(word),
            None => self.whole(line, value.json()),
        }
    }
}

/// Some of the first [`ORDERED`] fields: a bit for each.
#[derive(Debug, Clone, Copy, Default)]
struct Few(u16);

impl Few {
    fn add(&mut self, n: usize) {
        self.0 |= 1 << n;
    }

    fn has(self, n: usize) -> bool {
        self.0 >> n & 1 == 1
    }
}

/// The field that says what the frame is, and what it says.
fn label<'a>(line: &Line<'a>) -> (&'static str, &'a str) {
    let said = |name| line.field(name).and_then(Raw::word).map(|word| (name, word));
    let answer = |name| line.field(name).map(|_| ("", name));
    let own = match line.kind() {
        Kind::Note => said("note"),
        Kind::Frame | Kind::Bare => said("t").or_else(|| said("op")).or_else(|| said("method")),
    };
    own.or_else(|| answer("error")).or_else(|| answer("result")).unwrap_or(("", "-"))
}
