//! `transitd enroll`: a code for a device token.

use std::io::Write;

use serde_json::json;

use crate::addr::Host;
use crate::cli::control;
use crate::cli::output::{Exit, Failure, Out};
use crate::daemon::enroll::{EnrollError, Enrolled, enroll};
use crate::net::fetch::FetchError;
use crate::proto::control::Op;
use crate::text;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The Worker's address.
    #[arg(long, value_name = "URL", env = "TRANSIT_URL", hide_env_values = true)]
    url: String,
    /// The code.
    #[arg(long, value_name = "CODE")]
    code: String,
    /// The host that the code must be for.
    #[arg(long, value_name = "HOST")]
    host: Option<Host>,
    /// Replace an enrolment that is there.
    #[arg(long)]
    force: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Enrols this host; a daemon that runs connects at once.
///
/// # Errors
/// When the Worker says no, or the enrolment cannot be kept.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let paths = control::paths()?;
    let enrolled =
        enroll(&args.url, &args.code, args.host.as_ref(), &paths, args.force).map_err(not_enrolled)?;
    // A daemon that runs connects now; one that starts later will anyway.
    let _ = control::ask(&paths, &control::call_of(Op::Kick, None));
    let Enrolled { host, host_id, org } = &enrolled;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "host": host, "host_id": host_id, "org": org }))?;
    } else {
        let line = format!("Enrolled host {host} ({host_id}) in {org}.");
        writeln!(out, "{}", text::visible(&line))?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn not_enrolled(err: EnrollError) -> Failure {
    const WHAT: &str = "enrol this host";
    const NO_WORKER: &str =
        "see whether --url is the Worker's public url, and what a proxy before it lets through";
    let (exit, hint) = match err {
        EnrollError::Store(err) => return Failure::store(WHAT, &err),
        EnrollError::Already { .. } => (Exit::CannotCreate, Some("replace the enrolment with --force")),
        EnrollError::Code => (Exit::NoPermission, Some("make a new one: transit-worker host enroll HOST")),
        EnrollError::Url { .. } => (
            Exit::Usage,
            Some("give the url that transit-worker host enroll prints, as in --url https://HOST"),
        ),
        EnrollError::Mismatch { .. } => (
            Exit::Config,
            Some(
                "make one for this host: transit-worker host enroll HOST; or leave --host out the next time",
            ),
        ),
        EnrollError::Fetch(FetchError::Garbage(_)) | EnrollError::Garbage { .. } => {
            (Exit::Protocol, Some(NO_WORKER))
        }
        EnrollError::Status { status: 403 } => (Exit::NoPermission, Some(NO_WORKER)),
        EnrollError::Status { status: 408 | 425 | 429 } => {
            (Exit::TryLater, Some("the code is still good: run it again in a minute"))
        }
        EnrollError::Status { status } if status < 500 => (Exit::Protocol, Some(NO_WORKER)),
        EnrollError::Fetch(_) | EnrollError::Status { .. } => (
            Exit::Unavailable,
            Some(
                "see whether transit-worker serve runs there, and whether this host reaches it: curl URL/healthz",
            ),
        ),
    };
    Failure::new(exit, WHAT, err).way(hint)
}
