//! The body as it was given: an option's text, a file, or stdin, byte for byte.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Args;
use crate::cli::output::{Exit, Failure};

/// Where the body comes from, opened, and its name for people.
pub(super) fn open(file: Option<&Path>) -> Result<(Box<dyn Read + Send>, String), Failure> {
    match file {
        Some(path) if path != Path::new("-") => {
            let name = path.display().to_string();
            let opened = File::open(path).map_err(|err| unreadable(&name, &err))?;
            Ok((Box::new(opened), name))
        }
        _ => Ok((Box::new(io::stdin()), "stdin".to_owned())),
    }
}

/// A file that cannot be read.
pub(super) fn unreadable(name: &str, err: &io::Error) -> Failure {
    Failure::new(Exit::NoInput, format_args!("read {name}"), err)
}

/// The whole body, at most `longest` bytes; one that is longer breaks `rule`.
///
/// # Errors
/// When it cannot be read (66) or is too long (65).
pub(super) fn read(args: &Args, longest: usize, rule: &str) -> Result<Vec<u8>, Failure> {
    let (mut bytes, name) = match &args.message {
        Some(text) => (text.as_bytes().to_vec(), "the body".to_owned()),
        None => {
            let (from, name) = open(args.body.as_deref())?;
            let mut bytes = Vec::new();
            // One byte more than is allowed is enough to know; an endless stream ends here.
            from.take(longest as u64 + 1).read_to_end(&mut bytes).map_err(|err| unreadable(&name, &err))?;
            (bytes, name)
        }
    };
    if bytes.len() > longest {
        return Err(Failure::new(Exit::Data, format_args!("send {name}"), rule));
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}

/// The whole body as text.
///
/// # Errors
/// As [`read`], and 65 when it is not UTF-8.
pub(super) fn read_text(args: &Args, longest: usize, rule: &str) -> Result<String, Failure> {
    String::from_utf8(read(args, longest, rule)?).map_err(|err| {
        let at = err.utf8_error().valid_up_to();
        Failure::new(Exit::Data, "send the body", format_args!("it is not UTF-8 at byte {at}"))
    })
}
