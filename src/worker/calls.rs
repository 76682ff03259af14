//! The calls of one socket that are being answered.
//!
//! Each runs beside the link, which sends its answer. A daemon that calls and does not read would let answers pile up;
//! it is cut off when they have become too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::app::App;
use super::link::Note;
use super::links::{Handle, Owner};
use super::notes::Tell;
use super::rpc;
use crate::limits::ANSWERS_OWED;
use crate::proto::wire::close;

/// How many calls of a link are not answered, and how much is owed to it.
#[derive(Default)]
pub(super) struct Calls {
    count: usize,
    /// Bytes of the answers that the link has not taken.
    owed: Arc<AtomicUsize>,
}

/// A call of a daemon.
pub(super) struct Call {
    app: App,
    owner: Arc<Owner>,
    handle: Arc<Handle>,
    tell: Tell,
    owed: Arc<AtomicUsize>,
    rid: String,
    method: String,
    params: Value,
    is_early: bool,
}

impl Call {
    /// Answers it; the link hears of it by a note, or ends when too much is owed to it already.
    pub(super) async fn answer(self) {
        if self.is_early {
            // Changes are made in their order, so that once this one is, the roster is. A ledger that fails says so to
            // the call itself.
            let _ = self.app.write(|_| Ok(())).await;
        }
        let result = rpc::call(&self.app, &self.owner, &self.method, self.params).await;
        self.app.metrics.called(&self.method, result.as_ref().err().map(|err| err.code.as_str()));
        let owed = result.as_ref().map_or(0, weight);
        if self.owed.fetch_add(owed, Ordering::Relaxed) > ANSWERS_OWED {
            return self.handle.close(close::RATE, "answers are not read");
        }
        // The link may be gone; the daemon asks again on its next one.
        self.tell.send(Note::Answer { rid: self.rid, result, owed });
    }
}

impl Calls {
    /// A call that is to be answered. One that `is_early` came while the roster before it is not stored.
    pub(super) fn begin(
        &mut self,
        (app, owner, handle): (&App, &Arc<Owner>, &Arc<Handle>),
        tell: &Tell,
        rid: String,
        (method, params): (String, Value),
        is_early: bool,
    ) -> Call {
        self.count += 1;
        let (app, owner, handle) = (app.clone(), owner.clone(), handle.clone());
        Call {
            app,
            owner,
            handle,
            tell: tell.clone(),
            owed: self.owed.clone(),
            rid,
            method,
            params,
            is_early,
        }
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
