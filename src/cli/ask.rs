//! Asking a person at a terminal for something that nobody else should see.

use std::io::{self, IsTerminal, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// Longest answer, in bytes.
const LONGEST: usize = 4096;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum NoAnswer {
    /// The person gave up, or there is nobody.
    #[error("nothing was typed")]
    GivenUp,
    /// The second answer was another one.
    #[error("the two are not the same")]
    Different,
    /// It is not text, or far too much of it.
    #[error("what was typed is no text")]
    NoText,
    /// The terminal failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Whether there is somebody to ask.
pub(super) fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks twice for the same. An empty first answer is not asked for again.
///
/// # Errors
/// When there is no answer, or there are two.
pub(super) fn twice(first: &str, second: &str) -> Result<Zeroizing<String>, NoAnswer> {
    let answer = once(first)?;
    if !answer.is_empty() && *once(second)? != *answer {
        return Err(NoAnswer::Different);
    }
    Ok(answer)
}

/// Asks once; what is typed is not shown.
fn once(question: &str) -> Result<Zeroizing<String>, NoAnswer> {
    let mut err = io::stderr().lock();
    write!(err, "{question}")?;
    err.flush()?;
    let hidden = Hidden::start()?;
    let typed = read_answer(&mut io::stdin().lock());
    drop(hidden);
    writeln!(err)?;
    typed
}

/// A terminal that shows nothing and leaves every key to us, until this is dropped: also the one that would end the
/// process, and leave the terminal like that.
struct Hidden(Termios);

impl Hidden {
    fn start() -> Result<Self, NoAnswer> {
        let before = tcgetattr(io::stdin()).map_err(io::Error::from)?;
        let mut hidden = before.clone();
        hidden.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden).map_err(io::Error::from)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // Nothing can be done for a terminal that is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Reads keys up to the end of the line.
fn read_answer(keys: &mut impl Read) -> Result<Zeroizing<String>, NoAnswer> {
    let mut typed = Zeroizing::new(Vec::with_capacity(LONGEST));
    loop {
        let mut key = [0];
        if keys.read(&mut key)? == 0 {
            return Err(NoAnswer::GivenUp);
        }
        match key[0] {
            b'\n' | b'\r' => break,
            // ^C, ^\ and ^Z, and ^D where nothing was typed.
            3 | 26 | 28 => return Err(NoAnswer::GivenUp),
            4 if typed.is_empty() => return Err(NoAnswer::GivenUp),
            4 => break,
            // ^U, and the last character with all its bytes.
            21 => typed.clear(),
            8 | 127 => while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {},
            _ if typed.len() == LONGEST => return Err(NoAnswer::NoText),
            byte => typed.push(byte),
        }
    }
    let text = std::str::from_utf8(&typed).map_err(|_| NoAnswer::NoText)?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(keys: &[u8]) -> Result<String, String> {
        read_answer(&mut &*keys).map(|typed| typed.to_string()).map_err(|err| err.to_string())
    }

    #[test]
    fn keys_become_an_answer_as_in_a_terminals_own_line() {
        for (keys, typed) in [
            (&b"s3cret\nmore"[..], "s3cret"),
            (b"\r", ""),
            (b"ab\x7fc\x08d\n", "ad"),
            ("aé\u{7f}b\n".as_bytes(), "ab"),
            (b"\x7f\x7fx\n", "x"),
            (b"wrong\x15right\n", "right"),
            (b"ended\x04", "ended"),
        ] {
            assert_eq!(answer(keys).as_deref(), Ok(typed), "{keys:?}");
        }
        for (keys, why) in [
            (&b"ab\x03c\n"[..], "nothing was typed"),
            (b"\x04", "nothing was typed"),
            (b"cut", "nothing was typed"),
            (b"\xff\n", "no text"),
        ] {
            assert!(answer(keys).unwrap_err().contains(why), "{keys:?}");
        }
        assert!(answer(&[b'x'; LONGEST + 1]).is_err());
    }
}
