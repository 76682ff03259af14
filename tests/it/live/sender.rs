//! An end of a WebSocket, as the bytes that it sends.

use miniz_oxide::deflate::core::{CompressorOxide, TDEFLFlush, compress_to_output};
use serde_json::Value;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// Frames as an end sends them that compresses and remembers.
pub(super) struct Sender {
    deflate: CompressorOxide,
    mask: Option<[u8; 4]>,
    /// What was sent so far.
    pub(super) bytes: Vec<u8>,
}

impl Sender {
    pub(super) fn new(head: &[u8], mask: Option<[u8; 4]>) -> Self {
        let mut deflate = CompressorOxide::default();
        deflate.set_format_and_level(miniz_oxide::DataFormat::Raw, 6);
        Self { deflate, mask, bytes: head.to_vec() }
    }

    pub(super) fn frame(&mut self, opcode: OpCode, content: &[u8], change: impl FnOnce(&mut FrameHeader)) {
        let mut header = FrameHeader { opcode, mask: self.mask, ..FrameHeader::default() };
        change(&mut header);
        header.format(content.len() as u64, &mut self.bytes).unwrap();
        let mask = self.mask.unwrap_or_default();
        self.bytes.extend(content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    }

    /// A compressed message in two parts, with a ping between them.
    pub(super) fn say(&mut self, frame: &Value) {
        let mut payload = Vec::new();
        compress_to_output(&mut self.deflate, frame.to_string().as_bytes(), TDEFLFlush::Sync, |piece| {
            payload.extend_from_slice(piece);
            true
        });
        payload.truncate(payload.len() - 4);
        let (first, second) = payload.split_at(payload.len() / 3);
        self.frame(OpCode::Data(Data::Text), first, |h| (h.rsv1, h.is_final) = (true, false));
        self.frame(OpCode::Control(Control::Ping), b"between", |_| ());
        self.frame(OpCode::Data(Data::Continue), second, |_| ());
    }

    pub(super) fn close(&mut self, code: u16, reason: &str) {
        let content = [&code.to_be_bytes()[..], reason.as_bytes()].concat();
        self.frame(OpCode::Control(Control::Close), &content, |_| ());
    }
}
