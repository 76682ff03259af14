//! Ids: a prefix that says what is named, and 12 lowercase hexadecimal characters.
//!
//! An id is an idempotency key, never a secret. Generating one reads the system's random source; the protocols
//! take ids as they come and only check their form.

use std::cell::{Cell, RefCell};
use std::fmt;

/// What an id names. The prefix is part of the id's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdKind {
    /// A direct or room message, `tx_`.
    Message,
    /// A channel delivery, `dlv_`.
    Delivery,
    /// An event that came in through a source, `evt_`.
    Event,
    /// A source or connector, `int_`.
    Integration,
    /// A host, `hst_`.
    Host,
    /// An organisation, `org_`.
    Organisation,
    /// A task of an agent gateway, `tsk_`.
    Task,
}

impl IdKind {
    const ALL: [Self; 7] = [
        Self::Message,
        Self::Delivery,
        Self::Event,
        Self::Integration,
        Self::Host,
        Self::Organisation,
        Self::Task,
    ];

    /// The prefix, with its underscore.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Message => "tx_",
            Self::Delivery => "dlv_",
            Self::Event => "evt_",
            Self::Integration => "int_",
            Self::Host => "hst_",
            Self::Organisation => "org_",
            Self::Task => "tsk_",
        }
    }

    /// What `text` names, if it has the form of an id.
    pub fn of(text: &str) -> Option<Self> {
        let kind = Self::ALL.into_iter().find(|kind| text.starts_with(kind.prefix()))?;
        let hex = &text.as_bytes()[kind.prefix().len()..];
        let well_formed = hex.len() == 12 && hex.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        well_formed.then_some(kind)
    }

    /// The id that these six bytes make.
    pub fn from_bytes(self, bytes: [u8; 6]) -> String {
        let mut hex = [0; 12];
        hex::encode_to_slice(bytes, &mut hex).expect("12 digits hold six bytes");
        let hex = std::str::from_utf8(&hex).expect("hexadecimal digits are ASCII");
        [self.prefix(), hex].concat()
    }

    /// A fresh id from the system's random source.
    ///
    /// # Panics
    /// When the system has no random source; nothing can be promised without one.
    pub fn fresh(self) -> String {
        self.from_bytes(random_six())
    }

    /// A fresh id a random step beyond the last one that this thread made so; the first one is anywhere. For rows of
    /// which many are made: an index over such ids grows at its end, where one over unrelated ones has every commit
    /// write a page for each row. Two threads meet no more often than unrelated ids do.
    ///
    /// # Panics
    /// As [`fresh`](Self::fresh).
    pub fn fresh_beyond(self) -> String {
        self.from_bytes(beyond())
    }
}

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.prefix())
    }
}

thread_local! {
    static DRAWN: RefCell<([u8; 6 * 64], usize)> = const { RefCell::new(([0; 6 * 64], 6 * 64)) };
    static LAST: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Six bytes of the system's random source, which is asked for many at a time: a Worker makes two ids an event.
fn random_six() -> [u8; 6] {
    DRAWN.with_borrow_mut(|(bytes, used)| {
        if *used == bytes.len() {
            fill_random(bytes);
            *used = 0;
        }
        *used += 6;
        std::array::from_fn(|at| bytes[*used - 6 + at])
    })
}

/// Six bytes that are, as a number, 1 to 65,536 more than the last ones of this thread: too many steps to count
/// anybody's rows by, too few to come around.
fn beyond() -> [u8; 6] {
    let number = |[a, b, c, d, e, f]: [u8; 6]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    let drawn = random_six();
    let next = LAST.get().map_or(number(drawn), |last| last + 1 + (number(drawn) & 0xffff));
    LAST.set(Some(next));
    let [_, _, bytes @ ..] = next.to_be_bytes();
    bytes
}

/// Fills `bytes` from the system's random source.
///
/// # Panics
/// When the system has no random source.
pub fn fill_random(bytes: &mut [u8]) {
    #[cfg(feature = "simulation")]
    if seeded::fill(bytes) {
        return;
    }
    getrandom::fill(bytes).expect("the system's random source answers");
}

/// Chance that can be told again, for simulations.
#[cfg(feature = "simulation")]
pub mod seeded {
    use std::cell::Cell;

    thread_local! {
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// From now on, all that is random on this thread follows from `seed`; `None` gives it back to the system.
    pub fn seed(seed: Option<u64>) {
        STATE.set(seed);
        super::DRAWN.with_borrow_mut(|(bytes, used)| *used = bytes.len());
        super::LAST.set(None);
    }

    /// Fills `bytes` if this thread has a seed (splitmix64).
    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        let Some(mut state) = STATE.get() else { return false };
        for piece in bytes.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            piece.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..piece.len()]);
        }
        STATE.set(Some(state));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_id_has_the_form_of_its_kind() {
        for kind in IdKind::ALL {
            let id = kind.fresh();
            assert_eq!(IdKind::of(&id), Some(kind), "{id}");
        }
        assert_eq!(IdKind::Message.from_bytes([0, 0x11, 0x22, 0x33, 0x44, 0x55]), "tx_001122334455");
    }

    #[test]
    fn ids_that_follow_one_another_have_the_form_too_and_grow() {
        let ids: Vec<_> = (0..1000).map(|_| IdKind::Delivery.fresh_beyond()).collect();
        assert!(ids.iter().all(|id| IdKind::of(id) == Some(IdKind::Delivery)));
        // They come around at most once.
        assert!(ids.windows(2).filter(|pair| pair[1] <= pair[0]).count() <= 1, "{ids:?}");
        let there = std::thread::spawn(|| IdKind::Delivery.fresh_beyond()).join().unwrap();
        assert!(!ids.contains(&there));
    }

    #[test]
    fn other_texts_are_no_ids() {
        for text in [
            "",
            "tx_",
            "tx_00112233445",
            "tx_0011223344556",
            "tx_00112233445G",
            "tx_00112233445A",
            "xx_001122334455",
        ] {
            assert_eq!(IdKind::of(text), None, "{text}");
        }
    }
}
