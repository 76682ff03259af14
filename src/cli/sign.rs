//! `transit-sign`: sign and verify exact bytes, as transit.ingest/1 does.
//!
//! Payloads pass through in pieces; neither a file nor a record is held. Only `--explain` keeps one, to look for
//! what went wrong with it.

mod explain;
mod payload;
mod record;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser, ValueEnum};

use super::output::{self, Exit, Failure, Out};
use super::secret::SecretArgs;
use super::{Common, Page, Tool, duration};
use crate::clock::Wall;
use crate::proto::ingest::Signer;

const NAME: &str = "transit-sign";

/// Sign and verify exact bytes for Transit's ingest.
///
/// The signature is v1= and the HMAC-SHA256, in lowercase hexadecimal digits, of TIMESTAMP.PAYLOAD under the secret.
/// Every byte of the payload counts, its last newline too. Without FILE, or with -, the payload is stdin.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
pub struct Args {
    /// What to sign or verify.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    secret: SecretArgs,
    /// The time of signing in Unix seconds [default: now].
    #[arg(long, value_name = "UNIX", allow_negative_numbers = true)]
    timestamp: Option<String>,
    /// What to print [default: headers].
    #[arg(long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    /// Print JSON; with --verify, the verdict.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Where --output curl posts to.
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    url: Option<String>,
    /// Sign every line, without its newline, as one payload.
    #[arg(long, conflicts_with = "null")]
    lines: bool,
    /// Sign every NUL-ended record as one payload.
    #[arg(long)]
    null: bool,
    /// Verify one payload instead of signing.
    #[arg(long, conflicts_with_all = ["output", "url", "lines", "null"])]
    verify: bool,
    /// The signature to verify.
    #[arg(long, value_name = "v1=…", requires = "verify")]
    signature: Option<String>,
    /// Take timestamp and signature from header lines.
    ///
    /// FILE may hold the whole head of a request; both headers must be there once.
    #[arg(long, value_name = "FILE", requires = "verify", conflicts_with_all = ["timestamp", "signature"])]
    headers: Option<PathBuf>,
    /// How far from now is fresh.
    #[arg(long, value_name = "TIME", requires = "verify", value_parser = duration::parse, default_value = "300s")]
    tolerance: Duration,
    /// The time to take for now, also RFC 3339.
    #[arg(long, value_name = "UNIX", requires = "verify", value_parser = parse_time)]
    now: Option<Wall>,
    /// When it fails, name the usual mistake that fits.
    ///
    /// Tried are newlines and line ends, re-serialised JSON, what else may have been taken for the secret or been
    /// signed with the body, timestamps in milliseconds and other forms of a signature. The payload is held in
    /// memory for it, up to 16 MiB.
    #[arg(long, requires = "verify")]
    explain: bool,
    #[command(flatten)]
    common: Common,
}

/// What is printed for a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The two header lines, as curl -H @FILE reads them.
    Headers,
    /// The signature alone.
    Signature,
    /// One line of JSON: file, timestamp, signature, bytes.
    Json,
    /// A command line for sh that posts the file.
    Curl,
}

/// Does what was asked.
///
/// # Errors
/// When the secret or a payload cannot be read, an option's value breaks the protocol, or a signature does not
/// verify.
pub fn run(args: Args) -> Result<Exit, Failure> {
    if args.verify {
        return verify::run(&args);
    }
    let form = match (args.output, args.json) {
        (_, true) => Form::Json,
        (form, false) => form.unwrap_or(Form::Headers),
    };
    check_curl(&args, form)?;
    let mut stamp = payload::Stamp::new(args.timestamp.as_deref())?;
    let signer = Signer::new(&args.secret.read(NAME)?);
    let mut out = Out::new();
    let mut count = 0u64;
    for file in payload::files(&args.files) {
        let mut sink = record::Sink { out: &mut out, form, file, url: args.url.as_deref() };
        count += match delimiter(&args) {
            Some(end) => payload::sign_records(&signer, &mut stamp, end, &mut sink)?,
            None => payload::sign_whole(&signer, &mut stamp, &mut sink)?,
        };
    }
    out.finish()?;
    if args.common.verbose > 0 {
        output::say(format_args!(
            "{NAME}: signed {count} {}",
            if count == 1 { "payload" } else { "payloads" }
        ));
    }
    Ok(Exit::Ok)
}

fn delimiter(args: &Args) -> Option<u8> {
    match (args.lines, args.null) {
        (true, _) => Some(b'\n'),
        (_, true) => Some(0),
        _ => None,
    }
}

/// A command line that posts a file needs to know where to, and a file of its own for each payload.
fn check_curl(args: &Args, form: Form) -> Result<(), Failure> {
    let wrong = |why: &str| Err(Failure::new(Exit::Usage, "print a curl command", why));
    match (form == Form::Curl, args.url.is_some()) {
        (true, false) => wrong("--output curl needs --url URL"),
        (false, true) => wrong("--url goes with --output curl"),
        (true, true) if delimiter(args).is_some() => wrong("curl posts whole files, not --lines or --null"),
        _ => Ok(()),
    }
}

fn parse_url(text: &str) -> Result<String, String> {
    let plain = !text.contains(|c: char| c.is_whitespace() || c.is_control());
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    if plain && url.is_some() { Ok(text.to_owned()) } else { Err("not an http or https URL".to_owned()) }
}

fn parse_time(text: &str) -> Result<Wall, String> {
    Wall::parse(text).ok_or_else(|| "neither RFC 3339 nor Unix seconds".to_owned())
}

/// The command and its page.
pub fn tool() -> Tool {
    Tool { command: Args::command(), page: PAGE }
}

const PAGE: Page = Page {
    section: "1",
    exits: &[Exit::Ok, Exit::No, Exit::Usage, Exit::Data, Exit::NoInput, Exit::Io, Exit::Config],
    environment: &[(
        "TRANSIT_SECRET",
        "The secret, unless --secret-file or --secret-env names another place.",
    )],
    files: &[],
    examples: &[
        (
            "Sign a file and post it:",
            "transit-sign --secret-file secret event.json |\n  curl -H @- --json @event.json http://127.0.0.1:8787/ingest/ci",
        ),
        (
            "Print the curl command that posts it:",
            "transit-sign --secret-file secret --output curl \\\n  --url http://127.0.0.1:8787/ingest/ci event.json",
        ),
        (
            "Verify what came, with the headers it came with:",
            "transit-sign --secret-file secret --verify --headers headers body.json",
        ),
        (
            "Sign every line of a file, one signature a line:",
            "transit-sign --secret-file secret --lines --output signature events.ndjson",
        ),
        (
            "Find out why a signature does not verify:",
            "transit-sign --secret-file secret --verify --explain --headers headers body.json",
        ),
    ],
    see_also: &["transit-send(1)", "transit(7)"],
};
