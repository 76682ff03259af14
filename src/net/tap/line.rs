//! A tap on a Unix socket that speaks in lines.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Seen, Tap, What};
use crate::limits;
use crate::proto::dump::{Note, Proto, Way};
use crate::proto::lines::{Line, Lines};

/// A conversation in lines of JSON. Which protocol it is, is known from its first line.
pub struct LineTap {
    proto: Option<Proto>,
    forth: Lines,
    back: Lines,
}

impl Default for LineTap {
    fn default() -> Self {
        let lines = || Lines::new(limits::LINE_BYTES);
        Self { proto: None, forth: lines(), back: lines() }
    }
}

impl Tap for LineTap {
    fn saw(&mut self, way: Way, bytes: &[u8], out: &mut dyn FnMut(Seen<'_>)) {
        let lines = match way {
            Way::Forth => &mut self.forth,
            Way::Back => &mut self.back,
        };
        lines.push(bytes);
        while let Some(line) = lines.next() {
            let what = match &line {
                // An empty line separates nothing and says nothing.
                Line::Text(text) if text.trim().is_empty() => continue,
                Line::Text(text) => What::Text(text),
                Line::NotUtf8 => What::Note(Note::NotUtf8),
                Line::TooLong => What::Note(Note::TooLong { bytes: limits::LINE_BYTES as u64 + 1 }),
            };
            let proto = *self.proto.get_or_insert_with(|| proto_of(&line));
            out(Seen { proto, way, what });
        }
    }

    fn ended(&mut self, way: Way, broken: Option<&str>, out: &mut dyn FnMut(Seen<'_>)) {
        let lines = match way {
            Way::Forth => &mut self.forth,
            Way::Back => &mut self.back,
        };
        let proto = self.proto.unwrap_or(Proto::Api);
        let mut tell = |note| out(Seen { proto, way, what: What::Note(note) });
        if lines.end().is_some() {
            tell(Note::Cut);
        }
        tell(match broken {
            Some(why) => Note::Broken { why },
            None => Note::End,
        });
    }
}

/// The fields that tell the protocols apart.
#[derive(Deserialize)]
struct First {
    #[serde(default)]
    t: String,
    op: Option<IgnoredAny>,
}

fn proto_of(line: &Line) -> Proto {
    let Line::Text(text) = line else { return Proto::Api };
    match serde_json::from_str(text) {
        Ok(First { t, .. }) if t == "register" => Proto::Agent,
        Ok(First { op: Some(_), .. }) => Proto::Control,
        _ => Proto::Api,
    }
}
