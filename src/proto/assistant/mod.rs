//! assistant-v1: what a one-shot agent says on its stdout, and what is made of it.
//!
//! One JSON object a line, `delta`, `reply` or `session`; every other line is plain output. The last reply and the
//! last session win. Nothing here knows of processes: lines go in, a text comes out.

mod lines;
mod memo;
mod shape;
mod tail;

pub use self::lines::Lines;
pub use self::memo::{Memo, take_memos};
pub use self::shape::{Outcome, fit, shape};
pub use self::tail::{Tail, clip_json, json_len};

use serde::Deserialize;

/// One frame of assistant-v1. Fields that are not known are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Frame {
    /// A part of the answer, for those who watch.
    Delta {
        /// The part.
        text: String,
    },
    /// The answer.
    Reply {
        /// All of it.
        text: String,
    },
    /// What the agent wants to be given back next time.
    Session {
        /// The agent's own name for its session.
        claude_session: String,
        /// How long the transcript of it is, in bytes.
        transcript_bytes: u64,
    },
}

impl Frame {
    /// The frame that a line is, if it is one.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        // A list would be taken for the values of the fields, in their order.
        if line.starts_with('{') { serde_json::from_str(line).ok() } else { None }
    }
}

/// What the frames of one run have said so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frames {
    /// The last reply.
    pub reply: Option<String>,
    /// The last session: its name and the bytes of its transcript.
    pub session: Option<(String, u64)>,
}

impl Frames {
    /// Takes one line of stdout.
    pub fn line(&mut self, line: &str) {
        match Frame::parse(line) {
            Some(Frame::Reply { text }) => self.reply = Some(text),
            Some(Frame::Session { claude_session, transcript_bytes }) => {
                self.session = Some((claude_session, transcript_bytes));
            }
            Some(Frame::Delta { .. }) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(lines: &[&str]) -> Frames {
        let mut frames = Frames::default();
        lines.iter().for_each(|line| frames.line(line));
        frames
    }

    #[test]
    fn the_last_reply_and_the_last_session_win() {
        let said = frames(&[
            r#"{"type":"delta","text":"a"}"#,
            r#"{"type":"reply","text":"one"}"#,
            r#"{"type":"session","claude_session":"s1","transcript_bytes":1}"#,
            "plain",
            r#"  {"type":"session","claude_session":"s2","transcript_bytes":2,"more":[1]}  "#,
            r#"{"text":"","type":"reply"}"#,
        ]);
        assert_eq!(said, Frames { reply: Some(String::new()), session: Some(("s2".into(), 2)) });
    }

    #[test]
    fn what_only_looks_like_a_frame_is_a_plain_line() {
        for line in [
            "",
            "{}",
            r#"{"type":"Reply","text":"x"}"#,
            r#"{"type":"reply"}"#,
            r#"{"type":"reply","text":5}"#,
            r#"{"type":"reply","text":"x"} x"#,
            r#"["reply","x"]"#,
            r#"x {"type":"reply","text":"x"}"#,
            r#"{"type":"session","claude_session":"s","transcript_bytes":-1}"#,
            r#"{"type":"session","claude_session":"s","transcript_bytes":1.5}"#,
        ] {
            assert_eq!(Frame::parse(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_reply_comes_through_whatever_stands_around_it(text in ".*", noise in proptest::collection::vec(".*", 0..8)) {
            let frame = serde_json::json!({ "type": "reply", "text": text }).to_string();
            let mut frames = Frames::default();
            noise.iter().for_each(|line| frames.line(line));
            frames.line(&frame);
            prop_assert_eq!(frames.reply, Some(text));
        }
    }
}
