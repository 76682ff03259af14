//! `Retry-After`: how long the other side asks to be left alone.

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;

use crate::clock::Wall;
use crate::limits::RETRY_AFTER_MAX;

/// The wait that a `Retry-After` asks for: seconds, or the date of an HTTP answer; at most an hour. `None` when it
/// says nothing that makes sense.
pub fn retry_after(value: &str, now: Wall) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than a number holds is a long time, too.
        return Some(value.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs).min(RETRY_AFTER_MAX));
    }
    let at = DateTimeParser::new().parse_timestamp(value).ok()?.as_millisecond();
    let wait = u64::try_from(at.saturating_sub(now.0)).unwrap_or(0);
    Some(Duration::from_millis(wait).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_followed_for_an_hour_at_most() {
        // 784111777 is Sun, 06 Nov 1994 08:49:37 GMT, as RFC 9110 has it.
        let now = Wall(784_111_777_000);
        let seconds = |value| retry_after(value, now).map(|wait| wait.as_secs());
        for (value, expected) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("3600", Some(3600)),
            ("86400", Some(3600)),
            ("99999999999999999999999", Some(3600)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Mon, 07 Nov 1994 08:49:37 GMT", Some(3600)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("Sun, 32 Nov 1994 08:49:37 GMT", None),
            ("\u{0663}", None),
        ] {
            assert_eq!(seconds(value), expected, "{value:?}");
        }
    }
}
