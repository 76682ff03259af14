//! `--filter`: which frames are meant.

use crate::proto::dump::Line;

/// The value of one `--filter`: all of its parts hold for a frame that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Clause(Vec<(String, String)>);

/// Reads `t=deliver,id=tx_…`.
///
/// # Errors
/// What a filter looks like.
pub(super) fn parse(text: &str) -> Result<Clause, String> {
    let part = |part: &str| {
        let (name, value) = part.split_once('=').filter(|(name, _)| !name.is_empty())?;
        Some((name.to_owned(), value.to_owned()))
    };
    let parts: Option<Vec<_>> = text.split(',').map(part).collect();
    parts.map(Clause).ok_or_else(|| format!("{text:?} is no list of FIELD=VALUE, parted by commas"))
}

/// All of them: a frame is meant when one clause holds, or when there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filter<'a>(pub(super) &'a [Clause]);

impl Filter<'_> {
    /// Whether there is none.
    pub(super) fn is_open(self) -> bool {
        self.0.is_empty()
    }

    /// Whether a line is meant.
    pub(super) fn takes(self, line: &Line<'_>) -> bool {
        self.is_open()
            || self.0.iter().any(|clause| clause.0.iter().all(|(name, value)| has(line, name, value)))
    }
}

/// `dir`, `proto` and `conn` are those of the record; everything else is a field of the frame.
fn has(line: &Line<'_>, name: &str, value: &str) -> bool {
    match name {
        "dir" => line.dir() == Some(value),
        "proto" => line.proto() == Some(value),
        "conn" => line.conn().is_some_and(|conn| conn.is(value)),
        name => line.field(name).is_some_and(|own| own.is(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::dump::Reader;

    fn takes(filters: &[&str], line: &str) -> bool {
        let clauses: Vec<_> = filters.iter().map(|text| parse(text).unwrap()).collect();
        Filter(&clauses).takes(&Reader::new().read(line).unwrap())
    }

    #[test]
    fn a_comma_is_and_and_repeating_is_or() {
        let line = r#"{"t":"deliver","id":"tx_1","agent":"a\u0062","n":1,"ok":true,"none":null}"#;
        for filters in [
            &["t=deliver"][..],
            &["t=deliver,id=tx_1"],
            &["t=send", "id=tx_1"],
            &["agent=ab,n=1,ok=true,none=null"],
            &["dir=worker>daemon,proto=transit-wire/1"],
            &[],
        ] {
            assert!(takes(filters, line), "{filters:?}");
        }
        for filters in [
            &["t=send"][..],
            &["t=deliver,id=tx_2"],
            &["t=send", "id=tx_2"],
            &["missing="],
            &["dir=daemon>worker"],
        ] {
            assert!(!takes(filters, line), "{filters:?}");
        }
    }

    #[test]
    fn a_record_is_asked_for_its_own_direction() {
        let line = r#"{"at":"x","proto":"p","dir":"a>b","conn":2,"frame":{"dir":"c","proto":1}}"#;
        assert!(takes(&["dir=a>b,proto=p,conn=2"], line) && !takes(&["proto=1"], line));
    }

    #[test]
    fn a_filter_has_fields_and_values() {
        for text in ["", "t", "=x", "t=a,", "t=a,,id=b"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("id=").unwrap().0, [("id".to_owned(), String::new())]);
    }
}
