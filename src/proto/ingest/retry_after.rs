//! `Retry-After`: how long the other side asks to be left alone.

use std::time::Duration;

use crate::clock::Wall;
use crate::clock::calendar::{Civil, number};
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

/// The time that a field like `Date` tells, as `Sun, 06 Nov 1994 08:49:37 GMT` or in one of the two obsolete forms that
/// are still to be understood: `Sunday, 06-Nov-94 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994` (RFC 9110). `now` says in
/// which century it is.
pub fn http_date(value: &str, now: Wall) -> Option<Wall> {
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    match words[..] {
        [weekday, day, month, year, time, "GMT"] => {
            Some(date(year_of(year)?, month, day, time)?).filter(|at| is_on(*at, weekday.strip_suffix(',')))
        }
        [weekday, month, day, time, year] => {
            Some(date(year_of(year)?, month, day, time)?).filter(|at| is_on(*at, Some(weekday)))
        }
        // The name of the day says nothing: for a year of two digits it depends on the century.
        [weekday, short, time, "GMT"] if weekday.ends_with(',') => of_two_digits(short, time, now),
        _ => None,
    }
    .map(Civil::wall)
}

/// `06-Nov-94`: of the years that end so, the latest that is not more than 50 years ahead.
fn of_two_digits(short: &str, time: &str, now: Wall) -> Option<Civil> {
    let mut parts = short.splitn(3, '-');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    let year = Some(year).filter(|year| year.len() == 2).and_then(|year| number(year.as_bytes()))?;
    let year = Civil::of(now)?.year / 100 * 100 + year;
    let is_far = |at: &Civil| at.wall().0.saturating_sub(now.0) > FIFTY_YEARS_MS;
    let years = [year + 100, year, year - 100].into_iter();
    years.filter_map(|year| date(year, month, day, time)).find(|at| !is_far(at))
}

fn year_of(text: &str) -> Option<i64> {
    Some(text).filter(|text| text.len() == 4).and_then(|text| number(text.as_bytes()))
}

fn date(year: i64, month: &str, day: &str, time: &str) -> Option<Civil> {
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let month = i64::try_from(month).ok()?;
    let (day, milli) = (number(day.as_bytes())?, 0);
    let mut parts = time.splitn(3, ':').map(|part| Some(part).filter(|part| part.len() == 2));
    let mut next = || number(parts.next()??.as_bytes());
    Civil { year, month, day, hour: next()?, minute: next()?, second: next()?, milli }.checked()
}

fn is_on(at: Civil, weekday: Option<&str>) -> bool {
    weekday.is_some_and(|weekday| {
        WEEKDAYS.iter().position(|name| *name == weekday) == usize::try_from(at.weekday()).ok()
    })
}

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
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
