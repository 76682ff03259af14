//! `!` commands: what is one, its words, and whether it may be run (local client API, "message.send with a ! prefix").
//!
//! No shell is asked: a command is a name and its arguments.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Mono;

/// What the text of a message asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// `!!`: run what was parked.
    Confirm,
    /// `!` and at least one word.
    Command(Vec<String>),
    /// Anything else is for the dispatcher.
    Other,
}

impl Message {
    /// Reads the text of a message. One that begins with a blank is for the dispatcher, and so is a bare `!`.
    pub fn parse(text: &str) -> Self {
        if text.trim() == "!!" {
            return Self::Confirm;
        }
        let words = text.strip_prefix('!').map(words).unwrap_or_default();
        if words.is_empty() { Self::Other } else { Self::Command(words) }
    }
}

/// Words between blanks. `'` and `"` group and nothing escapes; a quote that is not closed runs to the end, and `""`
/// is an empty word.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if matches!(c, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A command as its words can be told apart again: one that is not plain stands in quotes.
pub fn quoted(words: &[String]) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !matches!(c, '\'' | '"') && !c.is_control();
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(is_plain) {
            return word.clone();
        }
        // Nothing escapes a quote, so that what holds one stands in the other; where it has both, piece by piece.
        let quote =
            |part: &str| if part.contains('\'') { format!("\"{part}\"") } else { format!("'{part}'") };
        let has_both = word.contains('\'') && word.contains('"');
        let parts = word.split_inclusive('\'').flat_map(|part| match part.strip_suffix('\'') {
            Some(before) => [before, "'"],
            None => [part, ""],
        });
        if has_both { parts.filter(|part| !part.is_empty()).map(quote).collect() } else { quote(word) }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Which commands may be run (`[os]`). An entry is a name, or a name and the arguments that must stand first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whether there are any.
    pub enabled: bool,
    /// Those that may be; `*` is all of them.
    pub allow: Vec<String>,
    /// Those that may not be in spite of it.
    pub deny: Vec<String>,
    /// Those that are asked about first.
    pub confirm: Vec<String>,
}

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is run.
    Run,
    /// It is run once it was confirmed.
    Ask,
    /// It is not run.
    Deny,
}

impl Policy {
    /// Names that are asked about unless the configuration has its own list: shells, which run anything, and what
    /// cannot be taken back.
    pub const CONFIRM: [&'static str; 17] = [
        "sh", "bash", "zsh", "fish", "dash", "ksh", "rm", "rmdir", "dd", "mkfs", "shred", "diskutil",
        "fdisk", "parted", "shutdown", "reboot", "halt",
    ];

    /// What becomes of these words. The first one is a bare name, to be looked up in PATH, or it is denied.
    pub fn decide(&self, words: &[String]) -> Verdict {
        let Some(name) = words.first() else { return Verdict::Deny };
        let is_bare =
            !name.is_empty() && !name.starts_with('-') && name != ".." && !name.contains(['/', '\\', '\0']);
        let is_in = |list: &[String]| list.iter().any(|entry| matches(entry, words));
        let is_all = |entry: &String| entry.split_whitespace().next() == Some("*");
        if !self.enabled || !is_bare || is_in(&self.deny) {
            return Verdict::Deny;
        }
        match is_in(&self.allow) || self.allow.iter().any(is_all) {
            false => Verdict::Deny,
            true if is_in(&self.confirm) => Verdict::Ask,
            true => Verdict::Run,
        }
    }
}

fn matches(entry: &str, words: &[String]) -> bool {
    let mut words = words.iter();
    let mut entry = entry.split_whitespace().peekable();
    entry.peek().is_some() && entry.all(|token| words.next().is_some_and(|word| word == token))
}

/// Commands that wait for `!!`: one for each session of each source, the newest.
#[derive(Debug, Default)]
pub struct Parked {
    commands: HashMap<(&'static str, String), (Vec<String>, Mono)>,
}

impl Parked {
    /// Parks a command until `now + ttl`, in place of the one before.
    pub fn park(
        &mut self,
        source: &'static str,
        session: &str,
        words: Vec<String>,
        now: Mono,
        ttl: Duration,
    ) {
        // What nobody came back for goes when somebody else parks.
        self.commands.retain(|_, (_, until)| now < *until);
        self.commands.insert((source, session.to_owned()), (words, now + ttl));
    }

    /// Takes what was parked, once; `None` when there is nothing, or when it has expired.
    pub fn take(&mut self, source: &'static str, session: &str, now: Mono) -> Option<Vec<String>> {
        let (words, until) = self.commands.remove(&(source, session.to_owned()))?;
        (now < until).then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let (allow, deny) = (strings(allow), strings(deny));
        Policy { enabled: true, allow, deny, confirm: strings(&Policy::CONFIRM) }
    }

    #[test]
    fn a_command_is_told_from_what_the_dispatcher_gets() {
        for text in ["!", "!   ", " !ls", "ls", "", "?!x"] {
            assert_eq!(Message::parse(text), Message::Other, "{text:?}");
        }
        for text in ["!!", " !!\n"] {
            assert_eq!(Message::parse(text), Message::Confirm, "{text:?}");
        }
        assert_eq!(Message::parse("!!rm x"), Message::Command(strings(&["!rm", "x"])));
        assert_eq!(Message::parse("! echo hi"), Message::Command(strings(&["echo", "hi"])));
    }

    #[test]
    fn quotes_group_and_nothing_escapes() {
        for (text, want) in [
            ("echo \"a  b\" 'c d' \"\" x", &["echo", "a  b", "c d", "", "x"][..]),
            ("a\\ b", &["a\\", "b"]),
            ("a'b c'd\"e\"", &["ab cde"]),
            ("a 'to the end", &["a", "to the end"]),
            ("a '", &["a", ""]),
            ("a\u{a0}b\tc\nd", &["a", "b", "c", "d"]),
        ] {
            assert_eq!(words(text), strings(want), "{text}");
        }
        assert_eq!(
            quoted(&strings(&["sh", "-c", "exit 7", "", "it's", ":"])),
            "sh -c 'exit 7' '' \"it's\" :"
        );
        assert_eq!(quoted(&strings(&["it's \"so\""])), r#"'it'"'"'s "so"'"#);
    }

    #[test]
    fn deny_comes_before_allow_and_allow_before_confirm() {
        let policy = policy(&["echo", "kubectl get", "seq", "sh"], &["seq 9", "*"]);
        for (words, want) in [
            (&["echo", "hi"][..], Verdict::Run),
            (&["kubectl", "get", "pods"], Verdict::Run),
            (&["kubectl", "delete", "x"], Verdict::Deny),
            (&["kubectl"], Verdict::Deny),
            (&["seq", "9"], Verdict::Deny),
            (&["seq", "3"], Verdict::Run),
            (&["sh", "-c", "x"], Verdict::Ask),
            (&["ls"], Verdict::Deny),
            (&["!sh"], Verdict::Deny),
            (&[], Verdict::Deny),
        ] {
            assert_eq!(policy.decide(&strings(words)), want, "{words:?}");
        }
    }

    #[test]
    fn a_star_allows_every_bare_name_and_nothing_else() {
        let all = policy(&["*"], &["dd"]);
        assert_eq!(all.decide(&strings(&["ls"])), Verdict::Run);
        assert_eq!(all.decide(&strings(&["rm", "x"])), Verdict::Ask);
        for name in ["dd", "", "-x", "..", "/bin/ls", "a/b", "a\\b", "a\0b"] {
            assert_eq!(all.decide(&strings(&[name])), Verdict::Deny, "{name:?}");
        }
        assert_eq!(Policy { enabled: false, ..all.clone() }.decide(&strings(&["ls"])), Verdict::Deny);
        assert_eq!(Policy { confirm: vec![], ..all }.decide(&strings(&["rm"])), Verdict::Run);
        assert_eq!(policy(&["", " "], &[]).decide(&strings(&["ls"])), Verdict::Deny);
    }

    #[test]
    fn a_parked_command_is_taken_once_by_its_own_session_and_in_time() {
        let (mut parked, ttl) = (Parked::default(), Duration::from_secs(120));
        let at = |seconds| Mono(Duration::from_secs(seconds));
        parked.park("local", "a", strings(&["old"]), at(0), ttl);
        parked.park("local", "a", strings(&["rm"]), at(1), ttl);
        parked.park("local", "b", strings(&["dd"]), at(1), ttl);
        assert_eq!(parked.take("local", "c", at(2)), None);
        assert_eq!(parked.take("telegram", "a", at(2)), None);
        assert_eq!(parked.take("local", "a", at(2)), Some(strings(&["rm"])));
        assert_eq!(parked.take("local", "a", at(2)), None);
        assert_eq!(parked.take("local", "b", at(121)), None, "expired");
        assert_eq!(parked.take("local", "b", at(2)), None, "and gone");
    }

    proptest! {
        #[test]
        fn what_is_quoted_reads_the_same(words in proptest::collection::vec("[ -~é\t]{0,9}|['\"a ]{0,5}", 1..6)) {
            prop_assert_eq!(super::words(&quoted(&words)), words);
        }
    }
}
