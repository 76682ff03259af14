//! The calls of one socket that are being answered.
//!
//! Each runs beside the link, which sends its answer. A daemon that calls and does not read would let answers pile up;
//! it is cut off when they have become too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::app::App;
use super::link::Note;
use super::links::{Handle, Owner};
use super::rpc;
use crate::limits::ANSWERS_OWED;
use crate::proto::wire::close;

#[derive(Default)]
pub(super) struct Calls {
    /// Those that are not answered.
    count: usize,
    /// Bytes of the answers that the link has not taken.
    owed: Arc<AtomicUsize>,
}

impl Calls {
    /// Begins to answer a call; the answer comes as a note, unless there are too many already.
    pub(super) fn start(
        &mut self,
        (app, owner, handle): (&App, &Arc<Owner>, &Arc<Handle>),
        tell: &UnboundedSender<Note>,
        rid: String,
        method: String,
        params: Value,
    ) {
        self.count += 1;
        let (app, owner, handle) = (app.clone(), owner.clone(), handle.clone());
        let (tell, owed_in_all) = (tell.clone(), self.owed.clone());
        tokio::spawn(async move {
            let result = rpc::call(&app, &owner, &method, params).await;
            app.metrics.called(&method, result.as_ref().err().map(|err| err.code.as_str()));
            let owed = result.as_ref().map_or(0, weight);
            if owed_in_all.fetch_add(owed, Ordering::Relaxed) > ANSWERS_OWED {
                owed_in_all.fetch_sub(owed, Ordering::Relaxed);
                return handle.close(close::RATE, "answers are not read");
            }
            // The link may be gone; the daemon asks again on its next one.
            let _ = tell.send(Note::Answer { rid, result, owed });
        });
    }

    /// The link has taken an answer.
    pub(super) fn ended(&mut self, owed: usize) {
        self.count = self.count.saturating_sub(1);
        self.owed.fetch_sub(owed, Ordering::Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// About how many bytes an answer is.
fn weight(answer: &Value) -> usize {
    const OF_ANY: usize = 16;
    OF_ANY
        + match answer {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_weighs_at_least_what_it_says() {
        let answer = json!([{ "body": "x".repeat(1_000), "n": 1 }, null]);
        assert!((1_000..1_200).contains(&weight(&answer)), "{}", weight(&answer));
    }
}
