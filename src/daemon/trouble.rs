//! A trouble that goes on is told once, and again at growing intervals; and so is its end.

use std::time::Duration;

use crate::clock::Mono;

/// The first time between two words about the same trouble, doubling to the longest.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(3600);

/// What is known of one trouble. Times are passed in.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// How often it was seen since it was last told.
    untold: u64,
    /// It was told, and its end was not.
    is_told: bool,
    /// When it may be told again, and how long that was after the last time.
    next: Option<(Mono, Duration)>,
}

impl Trouble {
    /// It was seen. Answers whether to tell it, and then how often it was seen without a word since the last one.
    pub(super) fn seen(&mut self, now: Mono) -> Option<u64> {
        let wait = match self.next {
            Some((at, _)) if now < at => {
                self.untold += 1;
                return None;
            }
            // As long again without it, and it is another trouble.
            Some((at, wait)) if now < at + wait => (wait * 2).min(LONGEST),
            _ => FIRST,
        };
        self.next = Some((now + wait, wait));
        self.is_told = true;
        Some(std::mem::take(&mut self.untold))
    }

    /// It was not seen this time. Answers whether to tell that it is over. One that comes and goes is not told more
    /// often for that.
    pub(super) fn is_over(&mut self) -> bool {
        std::mem::take(&mut self.is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono(Duration::from_secs(s))
    }

    #[test]
    fn what_goes_on_is_told_less_and_less_often() {
        let mut trouble = Trouble::default();
        let told: Vec<(u64, u64)> = (0..200).filter_map(|s| Some((s, trouble.seen(at(s))?))).collect();
        assert_eq!(told, [(0, 0), (10, 9), (30, 19), (70, 39), (150, 79)]);
        let mut years = Trouble::default();
        let hours = 10;
        let told = (0..hours * 3600).filter(|s| years.seen(at(*s)).is_some()).count();
        assert!(told < 20, "{told}");
        assert!(
            (hours * 3600..(hours + 1) * 3600).any(|s| years.seen(at(s)).is_some()),
            "nor is it forgotten"
        );
    }

    #[test]
    fn its_end_is_told_once_and_what_comes_and_goes_is_no_news() {
        let mut trouble = Trouble::default();
        assert!(!trouble.is_over(), "there was none");
        assert_eq!(trouble.seen(at(0)), Some(0));
        assert!(trouble.is_over() && !trouble.is_over());
        assert_eq!(trouble.seen(at(1)), None);
        assert!(!trouble.is_over(), "nor was it told that it was there");
        assert_eq!(trouble.seen(at(10)), Some(1));
        assert!(trouble.is_over());
        assert_eq!(trouble.seen(at(60)), Some(0), "after a while it is another one");
        assert_eq!(trouble.seen(at(69)), None);
        assert_eq!(trouble.seen(at(70)), Some(1));
    }
}
