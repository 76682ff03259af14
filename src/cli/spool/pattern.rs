//! Shell patterns, as `case` has them: `*` and `?` match a slash too.

/// A pattern for whole texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    One(char),
    Any,
    Many,
    Set { is_negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// Reads a pattern. A bracket that is not closed stands for itself, as in a shell.
    ///
    /// # Errors
    /// A backslash at the end quotes nothing.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let chars: Vec<char> = text.chars().collect();
        let (mut pieces, mut at) = (Vec::new(), 0);
        while let Some(&c) = chars.get(at) {
            at += 1;
            match c {
                '*' if pieces.last() == Some(&Piece::Many) => {}
                '*' => pieces.push(Piece::Many),
                '?' => pieces.push(Piece::Any),
                '\\' => {
                    let quoted = chars.get(at).ok_or("a backslash at its end quotes nothing")?;
                    pieces.push(Piece::One(*quoted));
                    at += 1;
                }
                '[' => match set(&chars[at..]) {
                    Some((piece, length)) => {
                        pieces.push(piece);
                        at += length;
                    }
                    None => pieces.push(Piece::One('[')),
                },
                c => pieces.push(Piece::One(c)),
            }
        }
        Ok(Self(pieces))
    }

    /// Whether all of `text` matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut piece) = (0, 0);
        // Where the last star stands, and how far it has reached: only that one has to be tried again.
        let mut star = None;
        while at < text.len() {
            match self.0.get(piece) {
                Some(Piece::Many) => {
                    piece += 1;
                    star = Some((piece, at));
                    continue;
                }
                Some(one) if one.takes(text[at]) => {
                    (piece, at) = (piece + 1, at + 1);
                    continue;
                }
                _ => {}
            }
            let Some((after, reached)) = star else { return false };
            star = Some((after, reached + 1));
            (piece, at) = (after, reached + 1);
        }
        self.0[piece..].iter().all(|rest| *rest == Piece::Many)
    }
}

impl Piece {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::One(one) => *one == c,
            Self::Any | Self::Many => true,
            Self::Set { is_negated, ranges } => {
                ranges.iter().any(|(first, last)| (first..=last).contains(&&c)) != *is_negated
            }
        }
    }
}

/// The set that begins after a `[`, and how many characters it takes with its `]`; `None` when it has no end.
fn set(chars: &[char]) -> Option<(Piece, usize)> {
    let is_negated = matches!(chars.first(), Some('!' | '^'));
    let first = usize::from(is_negated);
    let (mut at, mut ranges) = (first, Vec::new());
    loop {
        match *chars.get(at)? {
            // A `]` that comes first is one of the set.
            ']' if at > first => return Some((Piece::Set { is_negated, ranges }, at + 1)),
            from => match (chars.get(at + 1), chars.get(at + 2)) {
                (Some('-'), Some(&to)) if to != ']' => {
                    ranges.push((from, to));
                    at += 3;
                }
                _ => {
                    ranges.push((from, from));
                    at += 1;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let url = "https://worker.example/ingest/ci";
        for (pattern, text, expected) in [
            ("*", url, true),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("https://*/ingest/ci", url, true),
            ("*/ci", url, true),
            ("*/c", url, false),
            ("**ingest**", url, true),
            ("http:*", url, false),
            ("???@titan", "bob@titan", true),
            ("???@titan", "jess@titan", false),
            ("[a-c]*@*", "bob@titan", true),
            ("[!a-c]*@*", "bob@titan", false),
            ("[^x]ob@*", "bob@titan", true),
            ("[]b]ob@*", "bob@titan", true),
            ("[a-]*", "-x", true),
            ("#ops", "#ops", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("[ab", "[ab", true),
            ("*ä?", "zäö", true),
            ("a*b*c*d", "a-b-c-b-c-d", true),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(text), expected, "{pattern} {text}");
        }
        assert!(Pattern::parse("x\\").is_err());
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = Pattern::parse(&"*a".repeat(30)).unwrap();
        assert!(!pattern.matches(&format!("{}b", "a".repeat(20_000))));
    }
}
