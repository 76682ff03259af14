//! `Retry-After`: how long the other side asks to be left alone.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::tz::Offset;

use crate::clock::Wall;
use crate::limits::RETRY_AFTER_MAX;

/// The wait that a `Retry-After` asks for: seconds, or a date in one of the three forms of RFC 9110; at most an hour.
/// `None` when it says nothing that makes sense.
pub fn retry_after(value: &str, now: Wall) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than a number holds is a long time, too.
        return Some(value.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs).min(RETRY_AFTER_MAX));
    }
    let at = http_date(value, now)?;
    let wait = u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0);
    Some(Duration::from_millis(wait).min(RETRY_AFTER_MAX))
}

/// The time that a field like `Date` tells, in one of the three forms of RFC 9110. `now` says in which century it is.
pub fn http_date(value: &str, now: Wall) -> Option<Wall> {
    parse_date(value.trim(), now).map(|at| Wall(at.as_millisecond()))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, and the two obsolete forms that are still to be understood:
/// `Sunday, 06-Nov-94 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994`.
fn parse_date(value: &str, now: Wall) -> Option<Timestamp> {
    if let Ok(at) = DateTimeParser::new().parse_timestamp(value) {
        return Some(at);
    }
    // The last day of 9999 is a way to say never, and beyond what a timestamp holds.
    let utc = |date: DateTime| {
        Offset::UTC.to_timestamp(date).ok().or((date.year() == 9999).then_some(Timestamp::MAX))
    };
    for form in ["%a, %d %b %Y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"] {
        if let Ok(date) = DateTime::strptime(form, value) {
            return utc(date);
        }
    }
    // The name of the day says nothing: for a year of two digits it depends on the century.
    let (_, date) = value.split_once(", ")?;
    let date = DateTime::strptime("%d-%b-%y %H:%M:%S GMT", date).ok()?;
    let this_year = Offset::UTC.to_datetime(Timestamp::from_millisecond(now.0).ok()?).year();
    let century = i64::from(this_year) / 100 * 100;
    let year = century + i64::from(date.year()) % 100;
    let in_year = |year: i64| utc(date.with().year(i16::try_from(year).ok()?).build().ok()?);
    // It is the latest such year that is not more than 50 years ahead.
    let is_far = |at: &Timestamp| at.as_millisecond().saturating_sub(now.0) > FIFTY_YEARS_MS;
    [year + 100, year, year - 100].into_iter().filter_map(in_year).find(|at| !is_far(at))
}

const FIFTY_YEARS_MS: i64 = 50 * 365 * 86_400_000;

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
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Monday, 07-Nov-94 08:49:37 GMT", Some(3600)),
            ("Wednesday, 06-Nov-30 08:49:37 GMT", Some(3600)),
            ("Wednesday, 06-Nov-45 08:49:37 GMT", Some(0)),
            ("Sunday, 29-Feb-93 08:49:37 GMT", None),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun Nov  6 08:49:37 1993", None),
            ("Mon Nov 14 08:49:37 1994", Some(3600)),
            ("120, 60", None),
            ("Sun, 06 Nov 1994 08:50:37 GMT, 5", None),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(3600)),
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
