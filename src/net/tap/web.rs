//! A tap on an HTTP connection that becomes a WebSocket.

use super::frames::Frames;
use super::inflate::Inflate;
use super::{Seen, Tap, What, head};
use crate::proto::dump::{Note, Proto, Way};

/// A conversation over a WebSocket, from the request that opens it.
pub struct WebTap {
    forth: Side,
    back: Side,
}

enum Side {
    /// A head is coming.
    Head(Vec<u8>),
    /// The request is whole; what follows it means something once it is answered.
    Held(Vec<u8>),
    /// The WebSocket is open.
    Frames(Box<Frames>),
    /// Something that is not looked at.
    Plain,
}

impl Default for WebTap {
    fn default() -> Self {
        Self { forth: Side::Head(Vec::new()), back: Side::Head(Vec::new()) }
    }
}

impl Tap for WebTap {
    fn saw(&mut self, way: Way, bytes: &[u8], out: &mut dyn FnMut(Seen<'_>)) {
        let mut tell = |what: What<'_>| out(Seen { proto: Proto::Wire, way, what });
        let side = match way {
            Way::Forth => &mut self.forth,
            Way::Back => &mut self.back,
        };
        match side {
            Side::Plain => {}
            Side::Frames(frames) => frames.push(bytes, &mut tell),
            Side::Held(held) if held.len() + bytes.len() <= head::LONGEST => held.extend_from_slice(bytes),
            Side::Held(_) => *side = Side::Plain,
            Side::Head(head) => {
                let had = head.len();
                head.extend_from_slice(bytes);
                let is_plain = head::end(head, had).is_none() && head.len() > head::LONGEST;
                if is_plain {
                    *side = Side::Plain;
                    tell(What::Note(Note::Blind { why: "what comes is no HTTP" }));
                } else if way == Way::Forth {
                    self.requested(had, out);
                } else {
                    self.answered(had, out);
                }
            }
        }
    }

    fn ended(&mut self, way: Way, broken: Option<&str>, out: &mut dyn FnMut(Seen<'_>)) {
        let mut tell = |what: What<'_>| out(Seen { proto: Proto::Wire, way, what });
        let side = match way {
            Way::Forth => &mut self.forth,
            Way::Back => &mut self.back,
        };
        match std::mem::replace(side, Side::Plain) {
            Side::Frames(mut frames) => frames.end(&mut tell),
            Side::Head(head) if !head.is_empty() => tell(What::Note(Note::Cut)),
            _ => {}
        }
        tell(What::Note(match broken {
            Some(why) => Note::Broken { why },
            None => Note::End,
        }));
    }
}

impl WebTap {
    /// Whether a frame or a message has begun this way that has not ended.
    pub fn is_inside(&self, way: Way) -> bool {
        let side = match way {
            Way::Forth => &self.forth,
            Way::Back => &self.back,
        };
        matches!(side, Side::Frames(frames) if frames.is_inside())
    }

    /// Looks whether the request is whole.
    fn requested(&mut self, had: usize, out: &mut dyn FnMut(Seen<'_>)) {
        let Side::Head(head) = &mut self.forth else { return };
        let Some(end) = head::end(head, had) else { return };
        let rest = head.split_off(end);
        let note = Note::Open { path: &head::path(head) };
        out(Seen { proto: Proto::Wire, way: Way::Forth, what: What::Note(note) });
        self.forth = Side::Held(rest);
    }

    /// Looks whether the answer is whole, and what it makes of the connection.
    fn answered(&mut self, mut had: usize, out: &mut dyn FnMut(Seen<'_>)) {
        loop {
            let Side::Head(head) = &mut self.back else { return };
            let Some(end) = head::end(head, had) else { return };
            let rest = head.split_off(end);
            let mut tell = |what: What<'_>| out(Seen { proto: Proto::Wire, way: Way::Back, what });
            let Some(status) = head::status(head) else {
                (self.forth, self.back) = (Side::Plain, Side::Plain);
                return tell(What::Note(Note::Blind { why: "what comes is no HTTP" }));
            };
            if (100..200).contains(&status) && status != 101 {
                // An interim answer; the one that counts comes after it.
                (self.back, had) = (Side::Head(rest), 0);
                continue;
            }
            tell(What::Note(Note::Answer { status }));
            let head = std::mem::take(head);
            if status == 101 && head::values(&head, "upgrade").iter().any(|value| value == "websocket") {
                return self.opened(&head, &rest, out);
            }
            (self.forth, self.back) = (Side::Plain, Side::Plain);
            return;
        }
    }

    fn opened(&mut self, answer: &[u8], rest: &[u8], out: &mut dyn FnMut(Seen<'_>)) {
        let extensions = head::values(answer, "sec-websocket-extensions");
        let deflate = extensions
            .iter()
            .find(|value| value.split(';').next().is_some_and(|name| name.trim() == "permessage-deflate"));
        let inflate = |parameter: &str| {
            deflate.map(|agreed| Inflate::new(agreed.split(';').any(|word| word.trim() == parameter)))
        };
        let frames = |parameter| Side::Frames(Box::new(Frames::new(inflate(parameter))));
        self.back = frames("server_no_context_takeover");
        match std::mem::replace(&mut self.forth, Side::Plain) {
            Side::Held(held) => {
                self.forth = frames("client_no_context_takeover");
                self.saw(Way::Forth, &held, out);
            }
            _ => {
                let what = What::Note(Note::Blind { why: "it began before the WebSocket was open" });
                out(Seen { proto: Proto::Wire, way: Way::Forth, what });
            }
        }
        self.saw(Way::Back, rest, out);
    }
}
