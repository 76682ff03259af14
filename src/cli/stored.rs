//! Failures of the stores, as exit codes.

use std::fmt::Display;
use std::io::ErrorKind;

use super::output::{Exit, Failure};
use crate::store::StoreError;
use crate::store::ledger::Refusal;

/// What was attempted failed in the store.
pub(super) fn failure(what: impl Display, err: StoreError) -> Failure {
    let failure = Failure::new(exit(&err), what, &err);
    match hint(&err) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn exit(err: &StoreError) -> Exit {
    match err {
        StoreError::Io { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied
            | ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded => Exit::CannotCreate,
            _ => Exit::Io,
        },
        StoreError::InTheWay { .. } | StoreError::Full { .. } | StoreError::ReadOnly { .. } => {
            Exit::CannotCreate
        }
        StoreError::Foreign { .. }
        | StoreError::Config { .. }
        | StoreError::Newer { .. }
        | StoreError::Sealed => Exit::Config,
        StoreError::Panicked { .. } => Exit::Software,
        StoreError::Refused(refusal) => refused(refusal),
        err if err.is_passing() => Exit::TryLater,
        _ => Exit::Io,
    }
}

fn refused(refusal: &Refusal) -> Exit {
    match refusal {
        Refusal::NotFound { what: "delivery" | "message", .. } | Refusal::Settled { .. } => Exit::No,
        Refusal::NotFound { .. } => Exit::NoRecipient,
        _ => Exit::Data,
    }
}

fn hint(err: &StoreError) -> Option<&'static str> {
    Some(match err {
        StoreError::Full { .. } => "make room on its disk; nothing of this was kept",
        StoreError::Damaged { .. } => "restore it from a backup; what is there now stays as it is",
        StoreError::Newer { .. } => "use a program at least as new as the one that wrote it",
        StoreError::Sealed => "set TRANSIT_MASTER_KEY to the key that the secrets were stored under",
        StoreError::Locked { .. } => "run the command again when the other process has finished",
        StoreError::Refused(Refusal::HostExists { .. }) => {
            "revoke it first; it keeps its id when it comes back"
        }
        StoreError::Refused(Refusal::ReplyUrl(_)) => "declare where replies may go with --reply-url-prefix",
        _ => return None,
    })
}
