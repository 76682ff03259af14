//! What a service says while it runs: lines on stderr, as text, as JSON, or with priorities for the journal.

use std::fmt;
use std::io;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, format};
use tracing_subscriber::registry::LookupSpan;

use super::Common;
use super::output::{Exit, Failure};

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
    let started = match args.log_format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text if stderr_is_journal() => builder.with_ansi(false).event_format(Journal).try_init(),
        LogFormat::Text => builder.with_ansi(common.color.on_stderr()).with_target(false).try_init(),
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

/// A line as the journal wants it: the priority in front, and no time, which it notes itself.
struct Journal;

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        let plain = format().with_ansi(false).without_time().with_level(false).with_target(false);
        plain.format_event(context, writer, event)
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
    use super::*;

    #[test]
    fn the_variable_wins_over_the_option_and_must_be_readable() {
        assert_eq!(filter(None, 0).unwrap().to_string(), "info");
        assert!(filter(Some(""), 1).unwrap().to_string().contains("transit=debug"));
        assert_eq!(filter(Some("warn"), 2).unwrap().to_string(), "warn");
        assert_eq!(filter(Some("transit=loud"), 0).unwrap_err().exit, Exit::Config);
    }

    #[test]
    fn the_journal_gets_priorities() {
        use std::sync::{Arc, Mutex};
        #[derive(Clone, Default)]
        struct Buffer(Arc<Mutex<Vec<u8>>>);
        impl io::Write for Buffer {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .event_format(Journal)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(host = "titan", "the host went away");
            tracing::info!("it is back");
        });
        let lines = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        assert_eq!(lines, "<4>the host went away host=\"titan\"\n<6>it is back\n");
    }
}
