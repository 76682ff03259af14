//! Secrets as commands get them: from a file or an environment variable, never from an option's value.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::output::{self, Exit, Failure};
pub use crate::secret::NoSecret;
use crate::secret::Secret;
use crate::store::StoreError;
use crate::store::files;

/// The variable that holds the secret unless another is named.
pub const DEFAULT_VARIABLE: &str = "TRANSIT_SECRET";

/// More than any secret has; whoever names a larger file meant another one.
const LONGEST: u64 = 65_536;

/// Where the secret is.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SecretArgs {
    /// Read the secret from FILE, and not from the variable TRANSIT_SECRET.
    ///
    /// One newline at its end is dropped, nothing else.
    #[arg(long, value_name = "FILE", conflicts_with = "secret_env")]
    pub secret_file: Option<PathBuf>,
    /// Read it from variable NAME [default: TRANSIT_SECRET].
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub secret_env: Option<String>,
}

/// What [`read_secret_bytes`] found.
#[derive(Debug)]
pub struct Found {
    /// The secret.
    pub secret: Secret,
    /// What looks like a mistake in it, in words; it is kept as it is.
    pub doubts: Vec<&'static str>,
}

/// Takes the content of a secret file or variable: one `\n` or `\r\n` at the end is dropped, nothing else.
///
/// # Errors
/// When nothing is left, or it is not UTF-8.
pub fn read_secret_bytes(bytes: &[u8]) -> Result<Found, NoSecret> {
    let secret = Secret::from_bytes(bytes)?;
    let text = secret.expose();
    let mut doubts = Vec::new();
    if text.starts_with('\u{feff}') {
        doubts.push("it begins with a byte order mark, which is kept as part of it");
    }
    if text.trim_start().len() < text.len() {
        doubts.push("it begins with a blank, which is kept as part of it");
    }
    if text.trim_end().len() < text.len() {
        doubts.push("it ends with a blank or newline, which is kept as part of it");
    }
    Ok(Found { secret, doubts })
}

impl SecretArgs {
    /// Reads the secret, and warns in the name of `command` of what looks like a mistake.
    ///
    /// # Errors
    /// No secret or an empty one is a matter of configuration (78), a file that cannot be read is 66, and one
    /// that is not UTF-8 is 65.
    pub fn read(&self, command: &str) -> Result<Secret, Failure> {
        let (what, bytes) = match &self.secret_file {
            Some(path) => (format!("the secret file {}", path.display()), read_file(path, command)?),
            None => self.read_variable()?,
        };
        let found = read_secret_bytes(&bytes).map_err(|err| {
            let exit = if err == NoSecret::Empty { Exit::Config } else { Exit::Data };
            Failure::new(exit, format_args!("use {what}"), err)
        })?;
        for doubt in found.doubts {
            output::warn(command, format_args!("{what}: {doubt}"));
        }
        Ok(found.secret)
    }

    fn read_variable(&self) -> Result<(String, Vec<u8>), Failure> {
        let name = self.secret_env.as_deref().unwrap_or(DEFAULT_VARIABLE);
        // A name with `=` or NUL cannot be set, and asking for it would panic in older systems' libraries.
        let value = (!name.is_empty() && !name.contains(['=', '\0'])).then(|| env::var_os(name)).flatten();
        let value = value.map(OsString::into_vec).ok_or_else(|| {
            Failure::new(Exit::Config, "read the secret", format_args!("the variable {name} is not set"))
                .hint("name a file with --secret-file, or another variable with --secret-env")
        })?;
        Ok((format!("the secret in the variable {name}"), value))
    }
}

fn read_file(path: &std::path::Path, command: &str) -> Result<Vec<u8>, Failure> {
    let bytes = files::read_small(path, LONGEST).map_err(|err| {
        let exit = if matches!(err, StoreError::Io { .. }) { Exit::NoInput } else { Exit::Config };
        Failure::new(exit, "read the secret", err)
    })?;
    if files::is_exposed(path) {
        output::warn(
            command,
            format_args!("others can read the secret file {0}; mend it: chmod 600 {0}", path.display()),
        );
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<(String, usize), NoSecret> {
        read_secret_bytes(bytes).map(|found| (found.secret.expose().to_owned(), found.doubts.len()))
    }

    #[test]
    fn one_newline_is_dropped_and_nothing_else() {
        for (bytes, text, doubts) in [
            (&b"s3cret"[..], "s3cret", 0),
            (b"s3cret\n", "s3cret", 0),
            (b"s3cret\r\n", "s3cret", 0),
            (b"s3cret\n\n", "s3cret\n", 1),
            (b"s3cret\r", "s3cret\r", 1),
            (b"s3cret ", "s3cret ", 1),
            (b"\ts3cret\n", "\ts3cret", 1),
            (b" \n", " ", 2),
            (b"\xef\xbb\xbfs3cret\n", "\u{feff}s3cret", 1),
        ] {
            assert_eq!(read(bytes), Ok((text.to_owned(), doubts)), "{bytes:?}");
        }
    }

    #[test]
    fn nothing_is_no_secret() {
        assert_eq!(read(b""), Err(NoSecret::Empty));
        assert_eq!(read(b"\n"), Err(NoSecret::Empty));
        assert_eq!(read(b"\r\n"), Err(NoSecret::Empty));
        assert_eq!(read(b"ab\xff"), Err(NoSecret::NotUtf8(2)));
    }
}
