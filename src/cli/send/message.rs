//! A message: the local daemon keeps it and says who it is from.

use std::io::Write;
use std::time::Instant;

use serde_json::{Map, Value};

use super::report::Report;
use super::{Args, NAME, body, status};
use crate::addr::{Addr, Name};
use crate::cli::control;
use crate::cli::output::{self, Exit, Failure, Out};
use crate::id::IdKind;
use crate::limits;
use crate::proto::control::{MessageState, MessageStatus, Op};
use crate::text;

/// Hands the message to the daemon and prints what became of it.
///
/// # Errors
/// When there is no daemon (69), or it refuses the message.
pub(super) fn run(args: &Args, to: &Addr) -> Result<Exit, Failure> {
    refuse_options_of_events(args)?;
    if let Some(name) = &args.as_agent {
        name.parse::<Name>().map_err(|err| {
            Failure::new(Exit::Data, format_args!("send as {name}"), err)
                .hint("--as takes the name of an agent of this host alone, without @HOST: transitd status tells them")
        })?;
    }
    let rule = format!("a message has at most {} bytes (body_too_large)", limits::BODY_BYTES);
    let body = body::read_text(args, limits::BODY_BYTES, &rule)?;
    if body.is_empty() {
        return Err(Failure::new(Exit::Data, "send the message", "its body is empty"));
    }
    if let Some(id) = args.reply_to.as_deref().filter(|id| IdKind::of(id).is_none()) {
        return Err(Failure::new(
            Exit::Data,
            format_args!("answer {id}"),
            "it is no id like tx_0123456789ab",
        ));
    }
    let wait_ms = args.wait.map(|wait| u64::try_from(wait.time.as_millis()).unwrap_or(u64::MAX));
    let bytes = body.len();
    let op = Op::Send { to: to.to_string(), body, reply_to: args.reply_to.clone(), wait_ms };
    let call = control::call_of(op, args.as_agent.clone());
    let mut out = Out::new();
    if args.delivery.dry_run {
        writeln!(out, "{}", text::visible_json(&call.encode()))?;
        out.finish()?;
        return Ok(Exit::Ok);
    }
    let began = Instant::now();
    let paths = control::paths()?;
    if args.common.verbose > 0 {
        let place = paths.data.display().to_string();
        output::say(format_args!("{NAME}: {bytes} bytes to the transitd of {}", text::visible(&place)));
    }
    let answer = control::ask(&paths, &call)?;
    let answer = answer.map_err(|err| control::refused(format_args!("send to {to}"), &err))?;
    let status = read(to, &answer)?;
    if let Some(wait) = args.wait {
        drop(out);
        return status::follow(args, wait, status, began);
    }
    Report::of_message(&status).write(&mut out, args.json)?;
    out.finish()?;
    Ok(Exit::Ok)
}

fn refuse_options_of_events(args: &Args) -> Result<(), Failure> {
    let (event, delivery, secret) = (&args.event, &args.delivery, &args.secret);
    let given = [
        ("--conversation", event.conversation.is_some()),
        ("--event-key", event.event_key.is_some()),
        ("--user", event.user.is_some()),
        ("--trigger", event.trigger.is_some()),
        ("--meta", !event.meta.is_empty()),
        ("--reply-url", event.reply_url.is_some()),
        ("--raw", event.raw),
        ("--lines", event.lines),
        ("--no-spool", delivery.no_spool),
        ("--spool-only", delivery.spool_only),
        ("--timeout", delivery.timeout.is_some()),
        ("--secret-file", secret.secret_file.is_some()),
        ("--secret-env", secret.secret_env.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(Failure::new(Exit::Usage, option, "goes with an event, and DEST is no source"))
        }
        None => Ok(()),
    }
}

/// What the daemon says of a message that it has just taken.
fn read(to: &Addr, answer: &Map<String, Value>) -> Result<MessageStatus, Failure> {
    let word = |name: &str| answer.get(name).and_then(Value::as_str);
    let state = match word("state") {
        Some("injected") => Some(MessageState::Injected),
        Some("shown") => Some(MessageState::Shown),
        Some("committed") => Some(MessageState::Committed),
        Some("spooled") => Some(MessageState::Spooled),
        _ => None,
    };
    let (Some(id), Some(state)) = (word("id"), state) else {
        let why = "it names no id and no state that a message can be in";
        return Err(Failure::new(Exit::Protocol, "read transitd's answer", why));
    };
    Ok(MessageStatus {
        id: id.to_owned(),
        dest: to.to_string(),
        state,
        attempts: u32::from(state != MessageState::Spooled),
        next_attempt_at: None,
        error: word("warning").map(str::to_owned),
        recipients: Vec::new(),
        for_nobody: false,
        unknown: None,
    })
}
