//! What a service says while it runs: lines on stderr, as text, as JSON, or with priorities for the journal.
//!
//! A line is one event. Whatever is in it that a terminal would act on, or that would begin another line, is shown as
//! an escape, because much of it is from peers.

use std::fmt;
use std::io;

use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, format};
use tracing_subscriber::registry::LookupSpan;

use super::Common;
use super::output::{Exit, Failure};
use crate::text;

/// The variable that says what is logged, before `-v` does.
pub const VARIABLE: &str = "TRANSIT_LOG";

/// How a service logs.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct LogArgs {
    /// How log lines look.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How the fields of a line are written. A macro, because the type has no name that could be written.
macro_rules! visible_fields {
    () => {
        format::debug_fn(visible_field).delimited(" ")
    };
}

/// Begins logging to stderr. TRANSIT_LOG wins over `-v`: it takes `debug`, or `transit=trace,warn`, as the crate
/// tracing-subscriber reads them.
///
/// # Errors
/// When TRANSIT_LOG cannot be read (78).
pub fn start(common: &Common, args: LogArgs) -> Result<(), Failure> {
    let filter = filter(std::env::var(VARIABLE).ok().as_deref(), common.verbose)?;
    // A stderr that is full or gone costs log lines. Told on that same stderr, it would cost the service.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    let is_journal = stderr_is_journal();
    let started = match args.log_format {
        LogFormat::Json => {
            let json = builder.json().flatten_event(true).with_writer(|| JsonLines(io::stderr()));
            if is_journal { json.map_event_format(Journal).try_init() } else { json.try_init() }
        }
        LogFormat::Text if is_journal => {
            let plain = format().with_ansi(false).without_time().with_level(false).with_target(false);
            builder.with_ansi(false).event_format(Journal(plain)).fmt_fields(visible_fields!()).try_init()
        }
        LogFormat::Text => builder
            .with_ansi(common.color.on_stderr())
            .with_target(false)
            .fmt_fields(visible_fields!())
            .try_init(),
    };
    // Somebody who embeds us and logs already keeps doing so.
    drop(started);
    Ok(())
}

fn filter(variable: Option<&str>, verbose: u8) -> Result<EnvFilter, Failure> {
    let wanted = match (variable, verbose) {
        (Some(wanted), _) if !wanted.is_empty() => wanted,
        (_, 0) => "info",
        (_, 1) => "info,transit=debug",
        _ => "debug,transit=trace",
    };
    EnvFilter::try_new(wanted).map_err(|err| Failure::new(Exit::Config, format_args!("read {VARIABLE}"), err))
}

/// Whether systemd connected stderr to its journal: JOURNAL_STREAM names the device and inode of the socket.
fn stderr_is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let numbers = stream.split_once(':').and_then(|(dev, ino)| Some((dev.parse().ok()?, ino.parse().ok()?)));
    rustix::fs::fstat(io::stderr()).is_ok_and(|found| numbers == Some((found.st_dev, found.st_ino)))
}

/// A line as the journal wants it: the priority in front, which the journal takes off again.
struct Journal<F>(F);

impl<S, N, F> FormatEvent<S, N> for Journal<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// Writes a field as `name=value`, and the message as it is, both visible.
fn visible_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    use fmt::Write;
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    write!(Visible(writer), "{value:?}")
}

struct Visible<'a, 'b>(&'a mut Writer<'b>);

impl fmt::Write for Visible<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&text::visible(text))
    }
}

/// Writes whole lines of JSON, each visible.
struct JsonLines<W>(W);

impl<W: io::Write> io::Write for JsonLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let lines = String::from_utf8_lossy(bytes);
        for line in lines.lines() {
            self.0.write_all(format!("{}\n", text::visible_json(line)).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The priority of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn the_variable_wins_over_the_option_and_must_be_readable() {
        assert_eq!(filter(None, 0).unwrap().to_string(), "info");
        assert!(filter(Some(""), 1).unwrap().to_string().contains("transit=debug"));
        assert_eq!(filter(Some("warn"), 2).unwrap().to_string(), "warn");
        assert_eq!(filter(Some("transit=loud"), 0).unwrap_err().exit, Exit::Config);
    }

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Buffer {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const HOSTILE: &str = "a\n<3>forged\u{1b}[31m\u{9b}\u{202e}";

    fn say_hostile_things() {
        tracing::warn!(host = HOSTILE, err = %HOSTILE, debug = ?HOSTILE, "{HOSTILE}");
    }

    #[test]
    fn the_journal_gets_priorities() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let plain = format().with_ansi(false).without_time().with_level(false).with_target(false);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .event_format(Journal(plain))
            .fmt_fields(visible_fields!())
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(host = "titan", err = %"gone", "the host went away");
            tracing::info!("it is back");
            say_hostile_things();
        });
        let lines = buffer.text();
        let (first, rest) = lines.split_at(lines.find("<4>a").unwrap());
        assert_eq!(first, "<4>the host went away host=\"titan\" err=gone\n<6>it is back\n");
        assert_eq!(rest.lines().count(), 1, "{rest:?}");
        assert!(!rest.trim_end().contains(text::is_unsafe), "{rest:?}");
    }

    #[test]
    fn a_line_of_json_holds_everything_and_no_terminal_acts_on_it() {
        for is_journal in [false, true] {
            let buffer = Buffer::default();
            let writer = buffer.clone();
            let json = tracing_subscriber::fmt().json().flatten_event(true);
            let json = json.with_writer(move || JsonLines(writer.clone()));
            let say = say_hostile_things;
            match is_journal {
                true => tracing::subscriber::with_default(json.map_event_format(Journal).finish(), say),
                false => tracing::subscriber::with_default(json.finish(), say),
            }
            let line = buffer.text();
            assert!(!line.trim_end().contains(text::is_unsafe) && line.lines().count() == 1, "{line:?}");
            let json = line.strip_prefix("<4>").unwrap_or(&line);
            assert_eq!(json.len() < line.len(), is_journal, "{line}");
            let told: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!((&told["host"], &told["err"]), (&HOSTILE.into(), &HOSTILE.into()));
        }
    }
}
