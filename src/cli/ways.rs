//! The way out of every refusal that has a code: one table, for people at a shell and for models alike.
//!
//! A tool of the host's agents stands in backticks. A model calls it by that name, a person with `transit-agent call`.

use crate::daemon::events;
use crate::proto::control::ControlError;
use crate::store::ledger::Refusal;

/// What is known when the Worker has the call and its answer is lost.
pub(super) const ASKED: &str = "it may have been done all the same; asked for again, it is not done twice";

/// Whom the daemon and the Worker refuse something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// A person, or a script, at a shell of the host.
    Person,
    /// The model of an agent, by way of its tools.
    Model,
}

/// One row: the codes, what everybody is told, and what a model is told instead where it can do less or other things.
type Row = (&'static [&'static str], &'static str, Option<&'static str>);

const DOCTOR: Option<&str> =
    Some("nothing was kept: the operator of this host finds out more with `transitd doctor`");

const WAYS: &[Row] = &[
    // Where something goes.
    (
        &["no_route"],
        "`list_agents` tells who there is, `list_rooms` which rooms: write to the address as it stands there",
        None,
    ),
    (
        &["agent_not_found"],
        "transitd status tells the agents of this host",
        Some("list_agents tells who there is; write to the address as it stands there"),
    ),
    (
        &["bad_address", "invalid_address"],
        "an address is NAME@HOST or #ROOM: see `list_agents` and `list_rooms`; a message from transit tells what \
         became of yours, and nobody reads an answer to it",
        None,
    ),
    (&["reserved_name"], "transit and operator are nobody's names, and no message can go there", None),
    (&["room_not_found"], "`list_rooms` tells which rooms there are; `create_room` makes one", None),
    (&["not_member"], "join the room with `join_room`, then write it again", None),
    (&["invite_only"], "a member or the operator (transit-worker room add) can add you to the room", None),
    (&["room_exists"], "join it with `join_room`, or choose another name", None),
    (&["room_full"], "leave it be: somebody has to leave the room first", None),
    // What is answered and settled.
    (&["not_found"], "give the id of the envelope exactly as it stands there", None),
    (&["not_owner"], "only the agent to whom it was delivered can do that: `whoami` tells who you are", None),
    (&["conversation_mismatch"], "give the conversation_id of the envelope exactly as it stands there", None),
    (&["one_way"], "settle it with `mark_handled`", None),
    (&["already_handled"], "there is nothing left to do about it", None),
    // What is said, and how.
    (&["body_too_large"], "send it in parts, each of at most 64 KiB", None),
    (
        &["bad_request", "bad_params"],
        "the parameters of each tool are in transit-agent call --help",
        Some("call it again with what the tool's schema asks for"),
    ),
    (
        &["unknown_method"],
        "the tools are in transit-agent call --help",
        Some("call it again with what the tool's schema asks for"),
    ),
    (
        &["claim_failed"],
        "claim another name: a lower-case letter first, then letters, digits and dashes, and nobody else's",
        None,
    ),
    // Who says it.
    (
        &["invalid_caller"],
        "outside of every session, --as NAME says which agent of this host speaks, NAME being one that transitd status \
         tells of; inside of one it is always that one, and TRANSIT_SESSION_ID tells several in one process apart",
        Some(
            "the harness has to be connected to Transit, by its adapter (`transit-agent install`) or a pane; of several \
             sessions in one process, TRANSIT_SESSION_ID in the environment of this server tells which one it serves",
        ),
    ),
    // What passes.
    (
        &["rpc_failed", "not_connected"],
        "nothing was done: try again later; `whoami` tells whether this host is connected",
        None,
    ),
    (&["rpc_error"], ASKED, None),
    (&["too_many", "spool_busy", "session_absent"], "try again in a moment", Some("call again in a moment")),
    (&["rate_limited", "plan_limit"], "wait, and do not send it again before that", None),
    (
        &["loop_guard"],
        "it was not kept; transit tells the sender when it may write again, and an event ends it at once",
        Some(
            "agents have answered each other too often: write no more to them until a person or an event asks for it",
        ),
    ),
    // How this host is.
    (&["spool_full"], "send what waits: transit-spool flush; or take some out: transit-spool rm", DOCTOR),
    (&["disk_full"], "free some space and run the command again", DOCTOR),
    (
        &["spool_not_writable"],
        "see who may write to the data directory, and whether the disk takes anything: transitd doctor",
        DOCTOR,
    ),
    (&["store_error"], "nothing was kept; find out more with transitd doctor", DOCTOR),
    (
        &["not_enrolled"],
        "write to agents of this host only, or enrol it: transitd enroll --url URL --code CODE",
        Some("write to agents of this host only; its operator enrols it with `transitd enroll`"),
    ),
    (&["bad_config"], "mend the file, then: transitd reload; the old configuration holds until then", None),
    (&["answer_too_long"], "ask for less: `list_agents` takes the name of one host", None),
    // Why an agent does not get what was sent to it.
    (
        &["adapter_rejected", "command_refused"],
        "the program of the agent has refused it for good: ask whoever runs that",
        None,
    ),
    // Why a program is not taken for an agent.
    (
        &["name_taken"],
        "choose another --name, or give the --session-id of the session that has this one; transitd status tells which",
        None,
    ),
    (
        &["replaced"],
        "a session is one process: end the other one, or give this one another --name (or --session-id)",
        None,
    ),
    (
        &["pid_mismatch"],
        "register the program itself: its pid is the one at the socket, or one that started it",
        None,
    ),
    (&["unsupported_proto"], "install one version of Transit, then restart transitd and this program", None),
    (
        &["unsupported_harness", "invalid_name"],
        "a lower-case letter first, then letters, digits and dashes",
        None,
    ),
    (&["invalid_session"], "give another --session-id", None),
];

/// What to do about a refusal with this code; `None` for a code that we do not know.
pub(super) fn out_of(code: &str, reader: Reader) -> Option<String> {
    let (_, all, model) = WAYS.iter().find(|(codes, ..)| codes.contains(&code))?;
    Some(match (reader, model) {
        (Reader::Person, _) => with_calls(all),
        (Reader::Model, Some(own)) => (*own).to_owned(),
        (Reader::Model, None) => all.replace('`', ""),
    })
}

/// What to do about the daemon's no, and where what it is about is kept.
pub(super) fn out_of_refusal(err: &ControlError) -> Option<String> {
    let kept = err.id.as_ref().map(|id| format!("it is kept as dead: transit-send --status {id}"));
    let parts: Vec<String> = out_of(&err.code, Reader::Person).into_iter().chain(kept).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// What to do about an event that was refused for good.
pub(super) fn out_of_event(kind: events::Refusal) -> &'static str {
    match kind {
        events::Refusal::Rule => "send it as the rule says, as a new event",
        events::Refusal::NoSource => {
            "the Worker's operator sees which sources there are, and which of them are paused, with transit-worker \
             source list"
        }
        events::Refusal::Denied => {
            "the secret is the one that transit-worker source create or rotate has printed, and the time of day must be \
             right"
        }
    }
}

/// Each tool as a person calls it.
fn with_calls(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("transit-agent call {part}") } else { part.to_owned() })
        .collect()
}

/// What an operator of the Worker can do about what its ledger does not allow.
pub(super) fn out_of_ledger(refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::NotFound { what: "delivery" | "event", .. } => "what there is: transit-worker delivery list",
        Refusal::NotFound { what: "message", .. } => "what there is: transit-worker message list",
        Refusal::NotFound { what: "agent", .. } => {
            "an agent is known once the transitd of an enrolled host has told of it: transit-worker host list"
        }
        Refusal::NotFound { what: "host", .. } => "what there is: transit-worker host list",
        Refusal::NotFound { what: "source", .. } => "what there is: transit-worker source list",
        Refusal::NotFound { what: "organisation", .. } => "what there is: transit-worker org list",
        Refusal::NoRoom { .. } => "what there is: transit-worker room list",
        Refusal::Settled { .. } => "what became of it: transit-worker delivery show",
        Refusal::NotDead { .. } | Refusal::NotQueued { .. } => {
            "what became of it: transit-worker message show"
        }
        Refusal::QueueFull { .. } => "it empties as the agent takes what waits, or by age",
        Refusal::RoomInUse { .. } => "let them go elsewhere first: transit-worker source update",
        Refusal::HostExists { .. } => "revoke it first; it keeps its id when it comes back",
        Refusal::SourceExists { .. } => "change it with transit-worker source update, or choose another name",
        Refusal::OrganisationExists { .. } => "choose another one with --slug",
        Refusal::RoomExists { .. } => "change it with transit-worker room update, or choose another name",
        Refusal::UserExists { .. } => "who there is: transit-worker user list",
        Refusal::RoomFull { .. } => "take one out: transit-worker room remove",
        Refusal::InviteOnly { .. } => "add the agent yourself: transit-worker room add",
        Refusal::TooManyRooms => "delete one: transit-worker room delete",
        Refusal::BuiltInName { .. } => "choose another name",
        Refusal::ReplyUrl(_) => "declare where replies may go with --reply-url-prefix",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::cli::toolbox::Tool;
    use crate::proto::wire::NakCode;

    /// The codes that stand after these words in a source.
    fn said<'a>(source: &'a str, words: &'a str) -> impl Iterator<Item = &'a str> {
        let code = |rest: &'a str| rest.trim_start().strip_prefix('"')?.split('"').next();
        source.split(words).skip(1).filter_map(code)
    }

    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.file_name().is_some_and(|name| name != "tests.rs") {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_code_that_is_said_has_a_way_out_for_people_and_for_models() {
        let codes_in = |source: &str| -> Vec<String> {
            let code = source.split("#[cfg(test)]").next().unwrap();
            let calls = ["ControlError::new(", "RpcError::new(", "refuse("];
            let words = |words| said(code, words).filter(|word| word.contains('_') && !word.contains(' '));
            calls.iter().flat_map(|call| words(call).map(str::to_owned).collect::<Vec<_>>()).collect()
        };
        assert_eq!(
            codes_in("ControlError::new(\n \"no_such\", x) RpcError::new(code, \"no_code\")"),
            ["no_such"]
        );
        let mut files = Vec::new();
        for place in ["src/daemon", "src/worker"] {
            sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(place), &mut files);
        }
        let mut codes: Vec<_> =
            files.iter().flat_map(|file| codes_in(&std::fs::read_to_string(file).unwrap())).collect();
        assert!(codes.len() > 20, "{codes:?}");
        codes.extend(
            ["spool_full", "disk_full", "spool_not_writable", "spool_busy", "store_error"].map(Into::into),
        );
        codes.extend(["room_exists", "room_not_found", "invite_only", "room_full"].map(Into::into));
        let naks =
            ["no_route", "not_member", "body_too_large", "reserved_name", "rate_limited", "plan_limit"];
        assert!(naks.iter().all(|nak| NakCode::of(nak).is_some()));
        codes.extend(naks.map(Into::into));
        codes.extend(
            [
                "name_taken",
                "pid_mismatch",
                "unsupported_proto",
                "invalid_session",
                "invalid_name",
                "unsupported_harness",
            ]
            .map(Into::into),
        );
        // Its text says by itself what to do, for adapters that show nothing else.
        codes.retain(|code| code != "pid_not_visible");
        for code in codes {
            for reader in [Reader::Person, Reader::Model] {
                assert!(out_of(&code, reader).is_some(), "{code}");
            }
        }
        assert_eq!(out_of("of_tomorrow", Reader::Person), None);
    }

    #[test]
    fn every_code_stands_once_and_every_tool_that_is_named_is_one() {
        let mut codes: Vec<_> = WAYS.iter().flat_map(|(codes, ..)| *codes).collect();
        let rows = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), rows);
        for (_, way, _) in WAYS {
            for tool in way.split('`').skip(1).step_by(2) {
                assert!(Tool::named(tool).is_some(), "{tool} in {way}");
            }
        }
    }

    #[test]
    fn a_person_calls_a_tool_by_a_command_and_a_model_by_its_name() {
        let person = out_of("one_way", Reader::Person).unwrap();
        assert_eq!(person, "settle it with transit-agent call mark_handled");
        assert_eq!(out_of("one_way", Reader::Model).unwrap(), "settle it with mark_handled");
        let dead = ControlError::new("not_member", "no").about("tx_1");
        assert_eq!(
            out_of_refusal(&dead).unwrap(),
            "join the room with transit-agent call join_room, then write it again; it is kept as dead: transit-send \
             --status tx_1"
        );
        assert_eq!(out_of_refusal(&ControlError::new("of_tomorrow", "no")), None);
    }
}
