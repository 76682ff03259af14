//! The text in bytes that may hold other things.

/// The runs of UTF-8 within bytes, each with its place.
pub(super) struct Runs<'a> {
    length: usize,
    runs: Vec<(usize, &'a str)>,
}

impl<'a> Runs<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let mut at = 0;
        let mut runs = Vec::new();
        for chunk in bytes.utf8_chunks() {
            runs.push((at, chunk.valid()));
            at += chunk.valid().len() + chunk.invalid().len();
        }
        Self { length: bytes.len(), runs }
    }

    /// The text from the tag at `start` on, and whether it reaches the end.
    pub(super) fn from(&self, start: usize) -> (&'a str, bool) {
        let after = self.runs.partition_point(|(at, _)| *at <= start);
        let Some(&(at, run)) = after.checked_sub(1).and_then(|last| self.runs.get(last)) else {
            return ("", false);
        };
        (run.get(start - at..).unwrap_or_default(), at + run.len() == self.length)
    }
}
