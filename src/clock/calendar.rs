//! The calendar: dates and times of day as people and protocols write them, and the milliseconds that they are.
//!
//! Gregorian throughout, in the years 0000 to 9999 of RFC 3339. It knows no zones but offsets, and no leap seconds.

use super::Wall;

const DAY_MS: i64 = 86_400_000;

/// A date and a time of day in UTC. Every one is in the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// 0 to 9999.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    /// 0 to 23.
    pub hour: i64,
    /// 0 to 59.
    pub minute: i64,
    /// 0 to 59.
    pub second: i64,
    /// 0 to 999.
    pub milli: i64,
}

impl Civil {
    /// The date and time of a point in time; `None` outside of the years that there are.
    pub fn of(at: Wall) -> Option<Self> {
        let (year, month, day) = date_of(at.0.div_euclid(DAY_MS));
        let ms = at.0.rem_euclid(DAY_MS);
        let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
        let civil = Self { year, month, day, hour, minute, second: ms / 1000 % 60, milli: ms % 1000 };
        (0..=9999).contains(&year).then_some(civil)
    }

    /// This, if it is in the calendar. A leap second is taken for the second before it.
    pub fn checked(self) -> Option<Self> {
        let is_one = (0..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=days_in(self.year, self.month)).contains(&self.day)
            && (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..=60).contains(&self.second)
            && (0..1000).contains(&self.milli);
        is_one.then_some(Self { second: self.second.min(59), ..self })
    }

    /// The point in time that it is.
    pub fn wall(self) -> Wall {
        let minutes = self.hour * 60 + self.minute;
        let ms = (minutes * 60 + self.second) * 1000 + self.milli;
        Wall(days_before(self.year, self.month, self.day) * DAY_MS + ms)
    }

    /// The day of the week, from 0 for Monday.
    pub fn weekday(self) -> i64 {
        // The first day of 1970 was a Thursday.
        (days_before(self.year, self.month, self.day) + 3).rem_euclid(7)
    }
}

/// Reads the date and time of RFC 3339: a `T` or a blank between them, a fraction or none, `Z` or an offset.
pub(super) fn rfc3339(text: &str) -> Option<Wall> {
    let (start, rest) = text.split_at_checked("0000-00-00T00:00:00".len())?;
    let at = |from: usize, len: usize| number(&start.as_bytes()[from..from + len]);
    let is_form = start.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        10 => matches!(byte, b'T' | b't' | b' '),
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    if !is_form {
        return None;
    }
    let (milli, zone) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(rest) => fraction(rest)?,
    };
    let civil = Civil {
        year: at(0, 4)?,
        month: at(5, 2)?,
        day: at(8, 2)?,
        hour: at(11, 2)?,
        minute: at(14, 2)?,
        second: at(17, 2)?,
        milli,
    };
    Some(Wall(civil.checked()?.wall().0 - offset(zone)?))
}

/// The milliseconds of a fraction, and what comes after it.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(digits);
    let milli =
        digits.bytes().chain(*b"00").take(3).fold(0, |milli, digit| milli * 10 + i64::from(digit - b'0'));
    (!digits.is_empty()).then_some((milli, rest))
}

/// Milliseconds that a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = match zone.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let part = |text: &str, end: i64| {
        Some(text)
            .filter(|text| text.len() == 2)
            .and_then(|text| number(text.as_bytes()))
            .filter(|n| *n < end)
    };
    Some(sign * (part(hours, 24)? * 60 + part(minutes, 60)?) * 60_000)
}

/// A number of nothing but digits, at most four.
pub(crate) fn number(digits: &[u8]) -> Option<i64> {
    let all = !digits.is_empty() && digits.len() <= 4 && digits.iter().all(u8::is_ascii_digit);
    all.then(|| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 0000-03-01 to 1970-01-01. Years are counted from March here, so that the leap day is the last one.
const EPOCH: i64 = 719_468;
/// Days in 400 years, after which all repeats.
const ERA: i64 = 146_097;

/// Days from the epoch to a date.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // The lengths of the months from March on: 153 days in five of them, and the next five the same.
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - EPOCH
}

/// The date so many days after the epoch.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    // Of the days in an era, those are taken off that only leap years have.
    let year = (day - day / 1460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (year * 365 + year / 4 - year / 100);
    let month = (day * 5 + 2) / 153;
    let year = era * 400 + year;
    let day = day - (month * 153 + 2) / 5 + 1;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;
    use jiff::{Timestamp, civil::Weekday};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_day_of_ten_thousand_years_is_the_one_that_it_is() {
        let (mut days, mut weekday) = (days_before(0, 1, 1), Civil::of(Wall(0)).unwrap().weekday());
        assert_eq!(weekday, 3, "a Thursday");
        weekday = (weekday + days).rem_euclid(7);
        for year in 0..=9999 {
            for month in 1..=12 {
                for day in 1..=days_in(year, month) {
                    assert_eq!((days_before(year, month, day), date_of(days)), (days, (year, month, day)));
                    let civil = Civil { year, month, day, hour: 0, minute: 0, second: 0, milli: 0 };
                    assert_eq!(civil.weekday(), weekday);
                    (days, weekday) = (days + 1, (weekday + 1) % 7);
                }
            }
        }
        assert_eq!(Civil::of(Wall(days * DAY_MS)), None, "the year 10000");
        assert_eq!(Civil::of(Wall(days_before(0, 1, 1) * DAY_MS - 1)), None);
        assert_eq!((Civil::of(Wall(i64::MAX)), Civil::of(Wall(i64::MIN))), (None, None));
    }

    proptest! {
        #[test]
        fn another_library_reads_and_writes_the_same(ms in -62_167_219_200_000_i64..253_402_200_000_000) {
            let theirs = Timestamp::from_millisecond(ms).unwrap();
            prop_assert_eq!(Wall(ms).to_string(), format!("{theirs:.3}"));
            let date = Offset::UTC.to_datetime(theirs);
            let weekday = Civil::of(Wall(ms)).unwrap().weekday();
            prop_assert_eq!(weekday, i64::from(date.weekday().since(Weekday::Monday)));
        }

        #[test]
        fn what_is_read_is_what_another_library_reads(
            text in "(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{1,9})?(Z|z|[+-][0-2][0-9]:[0-5][0-9])"
        ) {
            let theirs = text.parse::<Timestamp>().ok().map(|at| at.as_nanosecond().div_euclid(1_000_000));
            let is_far = text.len() > 5 && ["24:", "25:"].iter().any(|hours| text[text.len() - 5..].starts_with(hours));
            if !is_far || text.ends_with(['z', 'Z']) {
                prop_assert_eq!(rfc3339(&text).map(|at| i128::from(at.0)), theirs);
            }
        }

        #[test]
        fn nothing_makes_it_panic(text in "\\PC*") {
            let _ = rfc3339(&text);
        }
    }

    #[test]
    fn what_is_no_time_of_the_calendar_is_none() {
        for text in [
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00,5Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00+1:00",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+00:60",
            "2026-01-01T00:00:00+é0:00",
            "2026-01-01T00:00:00é",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:0\u{663}Z",
        ] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
        assert_eq!(rfc3339("2000-02-29T23:59:60Z"), rfc3339("2000-02-29T23:59:59Z"), "a leap second");
        assert_eq!(rfc3339("9999-12-31T23:59:59.9999Z"), Some(Wall(253_402_300_799_999)));
    }
}
