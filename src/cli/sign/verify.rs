//! `transit-sign --verify`: is this signature right, and is it fresh?

use std::io::Read;
use std::path::Path;

use serde::Serialize;

use super::explain::{self, Case};
use super::{Args, NAME, payload};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::clock::{Clock, SystemClock};
use crate::proto::ingest::{HeaderError, SIGNATURE_HEADER, SignedHeaders, Signer, TIMESTAMP_HEADER};
use crate::secret::Secret;
use crate::text;

/// More than any head of a request has.
const HEADERS_LONGEST: u64 = 1 << 20;

/// The longest payload in which `--explain` looks for mistakes.
const EXPLAINED_LONGEST: usize = 16 << 20;

/// A timestamp and a signature as they came.
#[derive(Default)]
struct Came {
    timestamp: Option<Vec<u8>>,
    signature: Option<Vec<u8>>,
}

#[derive(Serialize)]
struct Verdict<'a> {
    file: &'a str,
    verified: bool,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<&'a str>,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let file = args.files.first().map_or(Path::new("-"), |file| file.as_path());
    if args.files.len() > 1 {
        return Err(Failure::new(Exit::Usage, "verify", "one FILE at a time"));
    }
    let came = came(args, file)?;
    let headers = SignedHeaders::parse(came.timestamp.as_deref(), came.signature.as_deref());
    if let (Err(err), false) = (&headers, args.explain) {
        return Err(malformed(*err));
    }
    let secret = args.secret.read(NAME)?;
    let mut held = Held::new(args.explain);
    let mut running = headers.as_ref().ok().map(|headers| Signer::new(&secret).begin(headers.timestamp()));
    let bytes = payload::pieces(file, payload::open(file)?, |piece| {
        held.take(piece);
        if let Some(running) = &mut running {
            running.update(piece);
        }
    })?;
    let verified = match (&headers, running) {
        (Ok(headers), Some(running)) => running.verify(headers.signature()),
        _ => false,
    };
    let headers = match headers {
        Ok(headers) if verified => headers,
        Ok(_) => {
            let explanation = held.explain(&secret, &came);
            return refused(args, file, bytes, "the signature does not match", explanation.as_deref());
        }
        Err(err) => return Err(with_explanation(malformed(err), held.explain(&secret, &came).as_deref())),
    };
    let now = args.now.unwrap_or_else(|| SystemClock::new().wall()).unix_seconds();
    if let Err(err) = headers.check_skew(now, args.tolerance.as_secs()) {
        let explanation = args.explain.then_some("the signature itself is right; compare the two clocks");
        return refused(args, file, bytes, &err.to_string(), explanation);
    }
    if args.json {
        print(&Verdict {
            file: &file.to_string_lossy(),
            verified: true,
            bytes,
            reason: None,
            explanation: None,
        })?;
    }
    if args.common.verbose > 0 {
        let name = payload::name(file);
        output::say(format_args!("{NAME}: {}: good signature over {bytes} bytes", text::visible(&name)));
    }
    Ok(Exit::Ok)
}

fn malformed(err: HeaderError) -> Failure {
    Failure::new(Exit::Data, "verify", err)
}

fn with_explanation(failure: Failure, explanation: Option<&str>) -> Failure {
    match explanation {
        Some(explanation) => failure.hint(explanation),
        None => failure,
    }
}

/// The answer is no: in words on stderr, and as JSON where that was asked for.
fn refused(
    args: &Args,
    file: &Path,
    bytes: u64,
    why: &str,
    explanation: Option<&str>,
) -> Result<Exit, Failure> {
    if args.json {
        let file = file.to_string_lossy();
        print(&Verdict { file: &file, verified: false, bytes, reason: Some(why), explanation })?;
    }
    let failure = Failure::new(Exit::No, format_args!("verify {}", payload::name(file)), why);
    Err(with_explanation(failure, explanation))
}

fn print(verdict: &Verdict<'_>) -> Result<(), Failure> {
    let mut out = Out::new();
    out.json(verdict)?;
    Ok(out.finish()?)
}

/// What is to be verified, from the options or from a file of header lines.
fn came(args: &Args, file: &Path) -> Result<Came, Failure> {
    let Some(path) = &args.headers else {
        let (Some(timestamp), Some(signature)) = (&args.timestamp, &args.signature) else {
            let needed = "--timestamp and --signature, or --headers FILE, are needed";
            return Err(Failure::new(Exit::Usage, "verify", needed));
        };
        let bytes = |text: &String| Some(text.clone().into_bytes());
        return Ok(Came { timestamp: bytes(timestamp), signature: bytes(signature) });
    };
    if payload::is_stdin(path) && payload::is_stdin(file) {
        return Err(Failure::new(Exit::Usage, "verify", "stdin cannot be both the headers and the payload"));
    }
    let mut head = Vec::new();
    let from = payload::open(path)?.take(HEADERS_LONGEST);
    payload::pieces(path, from, |piece| head.extend_from_slice(piece))?;
    read_head(&head)
}

/// Finds the two headers among the lines of a head. A body after an empty line is not looked at.
fn read_head(head: &[u8]) -> Result<Came, Failure> {
    let mut came = Came::default();
    for line in head.split(|&b| b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let place = if name.eq_ignore_ascii_case(TIMESTAMP_HEADER.as_bytes()) {
            &mut came.timestamp
        } else if name.eq_ignore_ascii_case(SIGNATURE_HEADER.as_bytes()) {
            &mut came.signature
        } else {
            continue;
        };
        if place.replace(value.to_vec()).is_some() {
            let name = String::from_utf8_lossy(name);
            return Err(Failure::new(Exit::Data, "verify", format_args!("{name} is there more than once")));
        }
    }
    Ok(came)
}

/// The payload, kept for `--explain` as long as it is not too long.
enum Held {
    Unasked,
    Whole(Vec<u8>),
    TooLong,
}

impl Held {
    fn new(explain: bool) -> Self {
        if explain { Self::Whole(Vec::new()) } else { Self::Unasked }
    }

    fn take(&mut self, piece: &[u8]) {
        match self {
            Self::Whole(bytes) if bytes.len() + piece.len() <= EXPLAINED_LONGEST => {
                bytes.extend_from_slice(piece);
            }
            Self::Whole(_) => *self = Self::TooLong,
            Self::Unasked | Self::TooLong => {}
        }
    }

    /// The mistake that fits, if one was looked for.
    fn explain(&self, secret: &Secret, came: &Came) -> Option<String> {
        let body = match self {
            Self::Unasked => return None,
            Self::TooLong => {
                return Some("the payload is over 16 MiB, too long to try the usual mistakes on".to_owned());
            }
            Self::Whole(body) => body,
        };
        let case = Case {
            secret: secret.expose(),
            timestamp: came.timestamp.as_deref()?,
            signature: came.signature.as_deref()?,
            body,
        };
        Some(explain::explain(&case).unwrap_or_else(|| {
            "no usual mistake fits: the secret is another one, or the bytes were changed on their way"
                .to_owned()
        }))
    }
}
