//! `transit-envelope render`: from options and a body, or from NDJSON.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;

use super::input::Input;
use super::{NAME, input};
use crate::cli::output::{self, Exit, Failure, Out};
use crate::proto::envelope::{FieldError, Fields};
use crate::proto::lines::{Line, Lines};

/// Longest line of NDJSON, in bytes: the largest body that a message may have still fits, escaped as may be.
const LINE_BYTES: usize = 1 << 20;

/// Render an envelope from options and a body, or many from NDJSON.
///
/// The body of a direct or room message is clipped to 4,000 code points, that of a channel delivery to its one-line
/// preview. Without BODY-FILE, or with -, the body is stdin, byte for byte.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The body; with --json, the records.
    #[arg(value_name = "BODY-FILE")]
    files: Vec<PathBuf>,
    /// Read NDJSON: an object a line, by the names of attributes, and body.
    ///
    /// What parse prints can be given back. Unknown members are ignored.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    given: Given,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Dm,
    Room,
    Channel,
}

/// The fields as options.
#[derive(Debug, clap::Args)]
#[group(id = "fields", multiple = true, conflicts_with = "json")]
struct Given {
    /// What kind of message it is.
    #[arg(long, value_enum, value_name = "KIND", required_unless_present = "json")]
    kind: Option<Kind>,
    /// Who it is from: an address, or a connector's name.
    #[arg(long, value_name = "ADDR")]
    from: Option<String>,
    /// Its id: tx_… or, for a channel, dlv_….
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// When it was sent.
    #[arg(long, value_name = "RFC3339")]
    ts: Option<String>,
    /// The room, without #.
    #[arg(long, value_name = "NAME")]
    room: Option<String>,
    /// Its number in the room.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seq: Option<String>,
    /// The message that it answers.
    #[arg(long, value_name = "ID")]
    reply_to: Option<String>,
    /// The conversation of a channel delivery.
    #[arg(long, value_name = "X")]
    conversation_id: Option<String>,
    /// The connector of a channel delivery [default: as --from].
    #[arg(long, value_name = "NAME")]
    connector: Option<String>,
    /// Who wrote it upstream [default: unknown].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// How often it was shown before [default: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    redelivery: Option<String>,
    /// It was read, but not settled.
    #[arg(long)]
    read: bool,
    /// Why it is delivered.
    #[arg(long, value_name = "T")]
    trigger: Option<String>,
}

const WHAT: &str = "render an envelope";

pub(super) fn run(args: Args, verbose: u8) -> Result<Exit, Failure> {
    let mut out = Out::new();
    let mut count = 0;
    if args.json {
        for file in input::files(&args.files) {
            many(&mut out, Input::open(Some(file))?, &mut count)?;
        }
    } else {
        one(&mut out, args)?;
        count = 1;
    }
    out.finish()?;
    if verbose > 0 {
        let what = if count == 1 { "envelope" } else { "envelopes" };
        output::say(format_args!("{NAME}: rendered {count} {what}"));
    }
    Ok(Exit::Ok)
}

fn one(out: &mut Out, args: Args) -> Result<(), Failure> {
    let wrong = |err: FieldError| match err.is_usage() {
        true => Failure::new(Exit::Usage, WHAT, err).hint(format_args!("see {NAME} render --help")),
        false => Failure::new(Exit::Data, WHAT, err),
    };
    if args.files.len() > 1 {
        return Err(Failure::new(Exit::Usage, WHAT, "one BODY-FILE at a time"));
    }
    // What is wrong with the options is told before a body is waited for.
    let fields = args.given.fields()?;
    fields.clone().render().map_err(wrong)?;
    let body = Some(Input::open(args.files.first().map(PathBuf::as_path))?.text()?);
    let text = Fields { body, ..fields }.render().map_err(wrong)?;
    Ok(writeln!(out, "{text}")?)
}

impl Given {
    fn fields(self) -> Result<Fields, Failure> {
        Ok(Fields {
            from: self.from,
            id: self.id,
            ts: self.ts,
            kind: self.kind.and_then(|kind| Some(kind.to_possible_value()?.get_name().to_owned())),
            room: self.room,
            seq: number("seq", self.seq)?,
            reply_to: self.reply_to,
            conversation_id: self.conversation_id,
            connector: self.connector,
            user: self.user,
            redelivery: number("redelivery", self.redelivery)?,
            read: self.read.then_some(true),
            trigger: self.trigger,
            ..Fields::default()
        })
    }
}

/// A number as an envelope can hold it.
fn number<N: FromStr>(option: &str, value: Option<String>) -> Result<Option<N>, Failure> {
    let Some(text) = value else { return Ok(None) };
    match text.parse() {
        Ok(number) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(Some(number)),
        _ => Err(Failure::new(Exit::Data, WHAT, format_args!("--{option} {text:?} is not a number"))),
    }
}

/// Renders every line of a stream; the good ones before one that cannot be used have gone out.
fn many(out: &mut Out, mut from: Input, count: &mut u64) -> Result<(), Failure> {
    let mut lines = Lines::new(LINE_BYTES);
    let mut piece = vec![0; 64 * 1024];
    let mut number = 0u64;
    let mut is_open = true;
    while is_open {
        let length = from.read(&mut piece)?;
        is_open = length > 0;
        lines.push(&piece[..length]);
        loop {
            let next = lines.next().or_else(|| if is_open { None } else { lines.end() });
            let Some(line) = next else { break };
            number += 1;
            match render(&line) {
                Ok(None) => {}
                Ok(Some(text)) => {
                    writeln!(out, "{text}")?;
                    *count += 1;
                }
                Err(why) => {
                    out.flush()?;
                    let what = format_args!("render line {number} of {}", from.name).to_string();
                    return Err(Failure::new(Exit::Data, what, why));
                }
            }
        }
        // Whoever feeds us slowly sees each envelope before the next record.
        out.flush()?;
    }
    Ok(())
}

/// The envelope of a line; `None` for a line that is blank.
fn render(line: &Line) -> Result<Option<String>, String> {
    let text = match line {
        Line::Text(text) if text.trim_ascii().is_empty() => return Ok(None),
        Line::Text(text) => text,
        Line::NotUtf8 => return Err("it is not UTF-8".to_owned()),
        Line::TooLong => return Err(format!("it is over {LINE_BYTES} bytes long")),
    };
    if !text.trim_ascii_start().starts_with('{') {
        return Err("it is no JSON object".to_owned());
    }
    let fields: Fields = serde_json::from_str(text).map_err(|err| err.to_string())?;
    fields.render().map(Some).map_err(|err| err.to_string())
}
