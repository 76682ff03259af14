//! The frames of a WebSocket as they pass one way: messages put together, inflated and checked, for a record.

use std::io::Cursor;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::What;
use super::inflate::Inflate;
use crate::limits;
use crate::proto::dump::Note;

/// Longest header of a frame.
const HEADER: usize = 14;
/// Longest content of a control frame (RFC 6455, 5.5).
const CONTROL: usize = 125;
/// Bytes that are unmasked at once.
const PIECE: usize = 4 * 1024;
/// What an empty message may keep of the memory of the one before.
const KEEP: usize = 64 * 1024;

/// One way of a WebSocket. At most one message of [`limits::FRAME_BYTES`] is held.
pub(super) struct Frames {
    inflate: Option<Inflate>,
    /// The beginning of a header that has not come whole.
    header: Vec<u8>,
    frame: Option<Frame>,
    message: Option<Message>,
    spare: Vec<u8>,
    is_blind: bool,
}

struct Frame {
    kind: Kind,
    is_final: bool,
    length: u64,
    left: u64,
    mask: Option<[u8; 4]>,
}

enum Kind {
    /// A part of the message that is open.
    Data,
    /// What is kept of its content is here.
    Control(Control, Vec<u8>),
}

struct Message {
    is_text: bool,
    is_compressed: bool,
    /// The whole text, unless it is too long.
    kept: Vec<u8>,
    bytes: u64,
    /// Why it is not understood.
    fault: Option<&'static str>,
}

impl Message {
    fn take(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        if self.is_text && self.bytes <= limits::FRAME_BYTES as u64 {
            self.kept.extend_from_slice(piece);
        } else {
            self.kept = Vec::new();
        }
    }
}

impl Frames {
    /// Frames whose messages may be compressed, if `inflate` is given.
    pub(super) fn new(inflate: Option<Inflate>) -> Self {
        Self { inflate, header: Vec::new(), frame: None, message: None, spare: Vec::new(), is_blind: false }
    }

    /// Takes what has passed, and tells what has become whole with it.
    pub(super) fn push(&mut self, mut bytes: &[u8], out: &mut dyn FnMut(What<'_>)) {
        while !bytes.is_empty() && !self.is_blind {
            let taken = match self.frame.take() {
                None => self.begin(bytes, out),
                Some(frame) => self.go_on(frame, bytes, out),
            };
            bytes = &bytes[taken..];
        }
    }

    /// Nothing comes any more.
    pub(super) fn end(&mut self, out: &mut dyn FnMut(What<'_>)) {
        let is_inside = self.is_inside();
        self.frame = None;
        match self.message.take() {
            Some(message) if message.bytes > limits::FRAME_BYTES as u64 => {
                out(What::Note(Note::TooLong { bytes: message.bytes }));
            }
            _ if is_inside => out(What::Note(Note::Cut)),
            _ => {}
        }
        self.is_blind = true;
    }

    /// Whether a frame or a message has begun that has not ended.
    pub(super) fn is_inside(&self) -> bool {
        !self.is_blind && (self.frame.is_some() || self.message.is_some() || !self.header.is_empty())
    }

    /// Reads a header, or as much of it as has come; answers how many bytes it took.
    fn begin(&mut self, bytes: &[u8], out: &mut dyn FnMut(What<'_>)) -> usize {
        let had = self.header.len();
        self.header.extend_from_slice(&bytes[..bytes.len().min(HEADER - had)]);
        let mut cursor = Cursor::new(&self.header);
        match FrameHeader::parse(&mut cursor) {
            Ok(None) => self.header.len() - had,
            Ok(Some((header, length))) => {
                let taken = usize::try_from(cursor.position()).unwrap_or(HEADER) - had;
                self.header.clear();
                self.open(&header, length, out);
                taken
            }
            Err(_) => {
                self.is_blind = true;
                out(blind("what follows is no WebSocket frame"));
                bytes.len()
            }
        }
    }

    fn open(&mut self, header: &FrameHeader, length: u64, out: &mut dyn FnMut(What<'_>)) {
        let kind = match header.opcode {
            OpCode::Control(control) => Kind::Control(control, Vec::new()),
            OpCode::Data(data) => {
                self.open_data(header, data, out);
                Kind::Data
            }
        };
        let frame = Frame { kind, is_final: header.is_final, length, left: length, mask: header.mask };
        if length == 0 { self.close(frame, out) } else { self.frame = Some(frame) }
    }

    fn open_data(&mut self, header: &FrameHeader, data: Data, out: &mut dyn FnMut(What<'_>)) {
        let unknown = (header.rsv2 || header.rsv3).then_some("an extension that is not known changed it");
        if let (Data::Continue, Some(message)) = (data, &mut self.message) {
            message.fault = message.fault.or(unknown);
            return;
        }
        if self.message.take().is_some() {
            out(blind("a message begins inside of another one"));
        }
        let mut fault = unknown;
        match (header.rsv1, &mut self.inflate) {
            (true, Some(inflate)) => inflate.begin(),
            (true, None) => fault = Some("it is compressed, which was not agreed on"),
            _ => {}
        }
        if data == Data::Continue {
            fault = Some("a message goes on that had not begun");
        }
        self.message = Some(Message {
            is_text: data == Data::Text,
            is_compressed: header.rsv1,
            kept: std::mem::take(&mut self.spare),
            bytes: 0,
            fault,
        });
    }

    /// Takes content of the frame that is open; answers how many bytes.
    fn go_on(&mut self, mut frame: Frame, bytes: &[u8], out: &mut dyn FnMut(What<'_>)) -> usize {
        let left = usize::try_from(frame.left).unwrap_or(usize::MAX);
        let piece = &bytes[..bytes.len().min(left).min(PIECE)];
        let mut scratch = [0; PIECE];
        let plain = match frame.mask {
            None => piece,
            Some(mask) => {
                let plain = &mut scratch[..piece.len()];
                let shift = ((frame.length - frame.left) % 4) as usize;
                for ((plain, byte), mask) in plain.iter_mut().zip(piece).zip(mask.iter().cycle().skip(shift))
                {
                    *plain = byte ^ mask;
                }
                plain
            }
        };
        match &mut frame.kind {
            Kind::Control(_, kept) => kept.extend_from_slice(&plain[..plain.len().min(CONTROL - kept.len())]),
            Kind::Data => self.take(plain),
        }
        frame.left -= piece.len() as u64;
        if frame.left == 0 {
            self.close(frame, out)
        } else {
            self.frame = Some(frame)
        }
        piece.len()
    }

    fn take(&mut self, piece: &[u8]) {
        let Some(message) = &mut self.message else { return };
        match &mut self.inflate {
            Some(inflate) if message.is_compressed => {
                if inflate.push(piece, &mut |plain| message.take(plain)).is_err() {
                    message.fault = message.fault.or(Some(NOT_INFLATED));
                }
            }
            _ => message.take(piece),
        }
    }

    /// The frame is over, and its message maybe.
    fn close(&mut self, frame: Frame, out: &mut dyn FnMut(What<'_>)) {
        match frame.kind {
            Kind::Control(control, kept) => out(What::Note(match control {
                Control::Ping => Note::Ping { bytes: frame.length },
                Control::Pong => Note::Pong { bytes: frame.length },
                _ => return tell_close(&kept, out),
            })),
            Kind::Data if frame.is_final => self.tell_message(out),
            Kind::Data => {}
        }
    }

    fn tell_message(&mut self, out: &mut dyn FnMut(What<'_>)) {
        let Some(mut message) = self.message.take() else { return };
        if let (true, Some(inflate)) = (message.is_compressed, &mut self.inflate)
            && inflate.finish(&mut |plain| message.take(plain)).is_err()
        {
            message.fault = message.fault.or(Some(NOT_INFLATED));
        }
        out(match (message.fault, message.is_text) {
            (Some(why), _) => blind(why),
            (None, false) => What::Note(Note::Binary { bytes: message.bytes }),
            (None, true) if message.bytes > limits::FRAME_BYTES as u64 => {
                What::Note(Note::TooLong { bytes: message.bytes })
            }
            (None, true) => std::str::from_utf8(&message.kept).map_or(What::Note(Note::NotUtf8), What::Text),
        });
        self.spare = message.kept;
        self.spare.clear();
        self.spare.shrink_to(KEEP);
    }
}

const NOT_INFLATED: &str = "it cannot be inflated";

fn blind(why: &'static str) -> What<'static> {
    What::Note(Note::Blind { why })
}

fn tell_close(content: &[u8], out: &mut dyn FnMut(What<'_>)) {
    let (code, reason) = match content {
        [high, low, reason @ ..] => (Some(u16::from_be_bytes([*high, *low])), reason),
        _ => (None, &[][..]),
    };
    out(What::Note(Note::Close { code, reason: &String::from_utf8_lossy(reason) }));
}
