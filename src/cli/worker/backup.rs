//! `transit-worker backup`.

use std::path::PathBuf;

use serde_json::json;

use super::{MASTER_KEY, Place, look_at, print};
use crate::cli::output::{Exit, Failure};
use crate::cli::progress::Progress;
use crate::clock::{Clock, SystemClock};
use crate::store::StoreError;
use crate::store::seal::MasterKey;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file to make, readable by its owner only. It is no stream: - is refused.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace FILE when it is there.
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &Args, place: &Place) -> Result<Exit, Failure> {
    if args.file.as_os_str() == "-" {
        let why = "a copy is checked in its file before it counts, which a stream cannot be";
        return Err(Failure::new(Exit::Usage, "copy the database to stdout", why)
            .hint("make a file and send that on: transit-worker backup worker.copy && cat worker.copy"));
    }
    let database = place.path()?;
    let look = look_at(
        &database,
        "transit-worker doctor --deep says what is damaged; an earlier copy may be sound",
    )?;
    let now = SystemClock::new().wall();
    let mut progress = Progress::new("bytes copied", None, true);
    let copied = look.copy_to(&args.file, args.force, |done, of| progress.of(done, of));
    progress.clear();
    let bytes = copied.map_err(|err| refused(&err))?;
    let key = std::env::var_os(MASTER_KEY).map_or_else(
        || MasterKey::file_beside(&database).display().to_string(),
        |_| format!("what {MASTER_KEY} holds"),
    );
    let record = json!({ "backup": {
        "file": args.file.to_string_lossy(),
        "database": database.to_string_lossy(),
        "bytes": bytes,
        "schema": look.schema(),
        "began_at": now.to_string(),
        "master_key": key,
    }});
    let words = format!(
        "{} holds {} as it was at {now} ({bytes} bytes).\nIts secrets open only with the master key, which is not in it: \
         keep a copy of {key}.",
        args.file.display(),
        database.display()
    );
    print(place.json, [(record, words)])
}

fn refused(err: &StoreError) -> Failure {
    let failure = Failure::store("copy the database", err);
    match err {
        StoreError::InTheWay { what: "there already", .. } => failure.hint("replace it with --force"),
        _ => failure,
    }
}
