//! What is printed for a signed payload.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use super::Form;
use crate::cli::output::Out;
use crate::cli::shell;
use crate::proto::ingest::{SIGNATURE_HEADER, TIMESTAMP_HEADER};

/// Where the records of one file go.
pub(super) struct Sink<'a> {
    pub(super) out: &'a mut Out,
    pub(super) form: Form,
    pub(super) file: &'a Path,
    pub(super) url: Option<&'a str>,
}

#[derive(Serialize)]
struct Record<'a> {
    file: &'a str,
    timestamp: &'a str,
    signature: &'a str,
    bytes: u64,
}

impl Sink<'_> {
    /// Prints the record of one payload.
    pub(super) fn put(&mut self, timestamp: &str, signature: &str, bytes: u64) -> io::Result<()> {
        let out = &mut *self.out;
        match self.form {
            Form::Headers => {
                writeln!(out, "{TIMESTAMP_HEADER}: {timestamp}\n{SIGNATURE_HEADER}: {signature}")
            }
            Form::Signature => writeln!(out, "{signature}"),
            Form::Json => {
                let file = self.file.to_string_lossy();
                out.json(&Record { file: &file, timestamp, signature, bytes })
            }
            Form::Curl => out.write_all(&curl(self.file, self.url.unwrap_or_default(), timestamp, signature)),
        }
    }
}

/// A command line for sh. `--globoff` keeps curl from reading brackets of the URL as a range.
fn curl(file: &Path, url: &str, timestamp: &str, signature: &str) -> Vec<u8> {
    let body = [b"@", file.as_os_str().as_bytes()].concat();
    let mut line = b"curl --globoff".to_vec();
    let headers = [
        "Content-Type: application/json".to_owned(),
        format!("{TIMESTAMP_HEADER}: {timestamp}"),
        format!("{SIGNATURE_HEADER}: {signature}"),
    ];
    for header in &headers {
        line.extend_from_slice(b" -H ");
        line.extend(shell::quoted(header.as_bytes()));
    }
    line.extend_from_slice(b" --data-binary ");
    line.extend(shell::quoted(&body));
    line.extend_from_slice(b" --url ");
    line.extend(shell::quoted(url.as_bytes()));
    line.push(b'\n');
    line
}
