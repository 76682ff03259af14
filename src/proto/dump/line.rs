//! A line of a dump: a record, or a bare frame, whose protocol and direction follow from what it says.

use super::raw::{Raw, unescaped};
use super::record::{Proto, Way};
use super::scan::{Found, Marks, NotJson};
use crate::proto::agent::{AdapterFrame, HostFrame};
use crate::proto::wire::{DaemonFrame, WorkerFrame};

/// Reads lines, one after the other.
#[derive(Debug, Default)]
pub struct Reader(Marks);

impl Reader {
    /// A reader.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads one line.
    ///
    /// # Errors
    /// When it is no JSON object.
    pub fn read<'a>(&'a mut self, text: &'a str) -> Result<Line<'a>, NotJson> {
        self.0.read(text)?;
        Ok(Line::new(text, &self.0))
    }
}

/// What a line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A record of a frame.
    Frame,
    /// A record of what happened besides frames.
    Note,
    /// A frame without a record.
    Bare,
}

/// One line.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    text: &'a str,
    kind: Kind,
    frame: Raw<'a>,
    fields: &'a [Found],
    at: Option<Raw<'a>>,
    proto: Option<Raw<'a>>,
    dir: Option<Raw<'a>>,
    conn: Option<Raw<'a>>,
    guess: Option<(Proto, Way)>,
    is_clean: bool,
    has_escaped_name: bool,
}

impl<'a> Line<'a> {
    fn new(text: &'a str, marks: &'a Marks) -> Self {
        let mut line = Self {
            text,
            kind: Kind::Bare,
            frame: Raw(text),
            fields: &marks.outer,
            at: None,
            proto: None,
            dir: None,
            conn: None,
            guess: None,
            is_clean: marks.is_clean,
            has_escaped_name: marks.has_escaped_name,
        };
        let (mut frame, mut is_note) = (None, false);
        // Only the fields of a record can be at the front of one.
        for found in &marks.outer {
            let value = Some(Raw(found.value.of(text)));
            match found.name.bytes_of(text) {
                b"at" => line.at = value,
                b"proto" => line.proto = value,
                b"dir" => line.dir = value,
                b"conn" => line.conn = value,
                b"frame" => frame = value,
                b"note" => is_note = true,
                _ => {}
            }
        }
        let is_record = line.at.or(line.proto).or(line.dir).is_some();
        match frame {
            Some(frame) if is_record => {
                let fields: &[Found] = if frame.is_object() { &marks.frame } else { &[] };
                line = Self { kind: Kind::Frame, frame, fields, ..line };
            }
            None if is_note && line.dir.is_some() => line.kind = Kind::Note,
            _ => {
                line = Self { at: None, proto: None, dir: None, conn: None, ..line };
                line.frame = Raw(text.trim_ascii());
            }
        }
        if line.proto.is_none() || line.dir.is_none() {
            line.guess = guess(&line);
        }
        line
    }

    /// The whole line.
    #[inline]
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// What it holds.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The frame; for a note, the whole record.
    #[inline]
    pub fn frame(&self) -> Raw<'a> {
        self.frame
    }

    /// When, as the record says.
    #[inline]
    pub fn at(&self) -> Option<Raw<'a>> {
        self.at
    }

    /// Which connection, as the record says.
    pub fn conn(&self) -> Option<Raw<'a>> {
        self.conn
    }

    /// What the record says in `proto`, or what its frame tells by what it is.
    pub fn proto(&self) -> Option<&'a str> {
        self.proto.map_or_else(|| self.guess.map(|(proto, _)| proto.name()), Raw::inner)
    }

    /// What the record says in `dir`, or what its frame tells by what it is.
    #[inline]
    pub fn dir(&self) -> Option<&'a str> {
        self.dir.map_or_else(|| self.guess.map(|(proto, way)| proto.dir(way)), Raw::inner)
    }

    /// Whether the record says `proto` in a text.
    pub fn says_proto(&self) -> bool {
        self.proto.and_then(Raw::inner).is_some()
    }

    /// Whether the record says `dir` in a text.
    pub fn says_dir(&self) -> bool {
        self.dir.and_then(Raw::inner).is_some()
    }

    /// The protocol, if it is one of ours.
    #[inline]
    pub fn known_proto(&self) -> Option<Proto> {
        match self.proto {
            Some(raw) => raw.inner().and_then(Proto::of_name),
            None => self.guess.map(|(proto, _)| proto),
        }
    }

    /// The way, if protocol and direction are ours.
    #[inline]
    pub fn way(&self) -> Option<Way> {
        match self.dir {
            Some(raw) => self.known_proto()?.way(raw.inner()?),
            None => self.guess.map(|(_, way)| way),
        }
    }

    /// The fields of the frame, or of a note, as they come: the name as it is written, without quotes, and the value.
    /// Those that every record has are left out.
    #[inline]
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, Raw<'a>)> + use<'a> {
        let (text, kind) = (self.text, self.kind);
        let is_own = move |found: &&Found| {
            kind != Kind::Note || !matches!(found.name.bytes_of(text), b"at" | b"proto" | b"dir" | b"conn")
        };
        let shown = move |found: &Found| (found.name.of(text), Raw(found.value.of(text)));
        self.fields.iter().filter(is_own).map(shown)
    }

    /// The last field of this name; the one that counts, when there are several.
    #[inline]
    pub fn field(&self, name: &str) -> Option<Raw<'a>> {
        let found = self.fields.iter().rev().find(|found| {
            found.name.bytes_of(self.text) == name.as_bytes()
                || self.has_escaped_name && unescaped(found.name.of(self.text)) == name
        });
        found.map(|found| Raw(found.value.of(self.text)))
    }

    /// What the frame is, if it says so in a string.
    #[inline]
    pub fn tag(&self) -> Option<Raw<'a>> {
        self.field("t").filter(|raw| raw.inner().is_some())
    }

    /// Whether nothing in the line needs redaction, an escape, or the removal of blanks: it may be shown as it is.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.is_clean
    }
}

/// Protocol and way of a frame that comes without them. What two protocols share goes to transit-agent/1 if it has
/// what only that one has.
fn guess(line: &Line<'_>) -> Option<(Proto, Way)> {
    let has = |name| line.field(name).is_some();
    let Some(tag) = line.field("t") else {
        return match () {
            () if has("op") => Some((Proto::Control, Way::Forth)),
            () if has("ok") => Some((Proto::Control, Way::Back)),
            () if has("method") => Some((Proto::Api, Way::Forth)),
            () if has("id") && (has("result") || has("error")) => Some((Proto::Api, Way::Back)),
            () => None,
        };
    };
    let tag = tag.text()?;
    let (daemon, worker) = (DaemonFrame::KINDS.contains(&&*tag), WorkerFrame::KINDS.contains(&&*tag));
    let (adapter, host) = (AdapterFrame::KINDS.contains(&&*tag), HostFrame::KINDS.contains(&&*tag));
    match () {
        () if adapter && (!daemon || has("capability") || has("persisted")) => {
            Some((Proto::Agent, Way::Forth))
        }
        () if host && (!worker || &*tag == "deliver" && !has("agent")) => Some((Proto::Agent, Way::Back)),
        () if daemon => Some((Proto::Wire, Way::Forth)),
        () if worker => Some((Proto::Wire, Way::Back)),
        () => None,
    }
}
