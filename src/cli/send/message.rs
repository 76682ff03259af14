//! A message: the local daemon keeps it and says who it is from.

use std::io::Write;

use serde_json::{Map, Value};

use super::report::Report;
use super::{Args, body};
use crate::addr::{Addr, Name};
use crate::cli::control;
use crate::cli::output::{Exit, Failure, Out};
use crate::limits;
use crate::proto::control::Op;

/// Hands the message to the daemon and prints what became of it.
///
/// # Errors
/// When there is no daemon (69), or it refuses the message.
pub(super) fn run(args: &Args, to: &Addr) -> Result<Exit, Failure> {
    refuse_options_of_events(args)?;
    if let Some(name) = &args.as_agent {
        name.parse::<Name>().map_err(|err| Failure::new(Exit::Data, format_args!("send as {name}"), err))?;
    }
    let rule = format!("a message has at most {} bytes (body_too_large)", limits::BODY_BYTES);
    let body = body::read_text(args, limits::BODY_BYTES, &rule)?;
    if body.is_empty() {
        return Err(Failure::new(Exit::Data, "send the message", "its body is empty"));
    }
    let op = Op::Send { to: to.to_string(), body, reply_to: args.reply_to.clone() };
    let call = control::call_of(op, args.as_agent.clone());
    let mut out = Out::new();
    if args.delivery.dry_run {
        writeln!(out, "{}", call.encode())?;
    } else {
        let answer = control::ask(&control::paths()?, &call)?;
        let answer = answer.map_err(|err| control::refused(format_args!("send to {to}"), &err))?;
        report(to, &answer)?.write(&mut out, args.json)?;
    }
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

fn report(to: &Addr, answer: &Map<String, Value>) -> Result<Report, Failure> {
    let word = |name: &str| answer.get(name).and_then(Value::as_str);
    let (Some(id), Some(outcome)) = (word("id"), word("state")) else {
        return Err(Failure::new(Exit::Protocol, "read transitd's answer", "it names no id and no state"));
    };
    let is_sent = matches!(outcome, "committed" | "injected");
    Ok(Report {
        id: id.to_owned(),
        kind: "message",
        dest: to.to_string(),
        event_key: None,
        outcome: outcome.to_owned(),
        state: if is_sent { "sent" } else { "pending" },
        attempts: u32::from(is_sent),
        next_attempt_at: None,
        error: word("warning").map(str::to_owned),
    })
}
