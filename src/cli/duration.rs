//! Durations as options take them: `90s`, `15m`, `6h`, `7d`.

use std::time::Duration;

/// Reads a whole number and its unit.
///
/// # Errors
/// What a duration looks like.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration like 90s, 15m, 6h or 7d");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    // More than a century is a slip of the finger, and would overflow clocks.
    number
        .checked_mul(seconds)
        .filter(|s| *s <= 100 * 366 * 86_400)
        .map(Duration::from_secs)
        .ok_or_else(wrong)
}

/// A duration for people: its two largest units.
pub(super) fn words(duration: Duration) -> String {
    let mut left = duration.as_secs();
    let mut parts = Vec::new();
    for (unit, seconds) in [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)] {
        if left >= seconds || (unit == "s" && parts.is_empty()) {
            parts.push(format!("{} {unit}", left / seconds));
        }
        left %= seconds;
    }
    parts.truncate(2);
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_two_units() {
        for (seconds, shown) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7_322, "2 h 2 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(words(Duration::from_secs(seconds)), shown);
        }
    }

    #[test]
    fn numbers_have_units() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("15m", 900), ("6h", 21_600), ("7d", 604_800)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)));
        }
        for text in ["", "5", "s", "-1s", "1.5h", "1 s", "1S", "99999999999999999999s", "999999999d", "٣s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
