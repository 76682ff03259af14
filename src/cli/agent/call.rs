//! `transit-agent call`: one tool call of the local daemon.

use std::io::{Read, Write};

use serde_json::{Map, Value};

use crate::cli::control;
use crate::cli::output::{Exit, Failure, Out};
use crate::cli::toolbox::{self, Tool};
use crate::limits;
use crate::proto::control::{ControlError, Op};

/// The call.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The tool: read_message, chat_reply, mark_handled, send_message, list_agents, whoami, claim_name, list_rooms,
    /// create_room, join_room, leave_room.
    #[arg(value_name = "METHOD")]
    method: String,
    /// Its parameters, an object of JSON; - reads it from stdin.
    #[arg(value_name = "JSON", default_value = "{}")]
    params: String,
    /// Speak as this agent of the host, when not run inside one.
    #[arg(long = "as", value_name = "NAME")]
    as_agent: Option<String>,
    /// Print every result as JSON, text too.
    #[arg(long)]
    json: bool,
}

/// Makes the call and prints its result.
pub(super) fn run(args: Args) -> Result<Exit, Failure> {
    let params = params(&args.params)?;
    let call = control::call_of(op(&args.method, params)?, args.as_agent);
    let mut fields = control::ask(&control::paths()?, &call)?.map_err(|err| refused(&args.method, &err))?;
    let result = fields.remove("result").unwrap_or(Value::Object(fields));
    let mut out = Out::new();
    match result {
        Value::String(text) if !args.json => {
            out.text(&text)?;
            if !text.ends_with('\n') {
                out.write_all(b"\n")?;
            }
        }
        result => out.json(&result)?,
    }
    out.finish()?;
    Ok(Exit::Ok)
}

/// The daemon's no. Who asks for what is no tool of ours may have mistyped one, whatever the reason is called.
fn refused(method: &str, err: &ControlError) -> Failure {
    let failure = control::refused(method, err);
    if err.code != "unknown_method" && (err.code != "not_enrolled" || Tool::named(method).is_some()) {
        return failure;
    }
    let names: Vec<_> = toolbox::TOOLS.iter().map(|tool| tool.name).collect();
    failure.hint(format_args!("what there is: {}", names.join(", ")))
}

fn params(text: &str) -> Result<Map<String, Value>, Failure> {
    let mut read = Vec::new();
    let bytes = if text == "-" {
        let longest = limits::LINE_BYTES as u64;
        std::io::stdin()
            .lock()
            .take(longest)
            .read_to_end(&mut read)
            .map_err(|err| Failure::new(Exit::NoInput, "read the parameters from stdin", err))?;
        &read
    } else {
        text.as_bytes()
    };
    serde_json::from_slice(bytes).map_err(|err| Failure::new(Exit::Data, "read the parameters", err))
}

/// The operation that a call is. What the Worker does is passed on as it stands, since it may know more than we do.
fn op(method: &str, params: Map<String, Value>) -> Result<Op, Failure> {
    let is_ours = matches!(method, "whoami" | "send_message" | "claim_name")
        || method == "create_room" && !params.contains_key("room");
    if !is_ours {
        return Ok(Op::Rpc { method: method.to_owned(), params: Value::Object(params) });
    }
    toolbox::op(method, &params).map_err(|err| Failure::new(Exit::Data, "read the parameters", err))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn op_of(method: &str, params: Value) -> Result<Op, Failure> {
        op(method, params.as_object().unwrap().clone())
    }

    #[test]
    fn a_tool_is_the_operation_that_does_it_and_the_rest_is_the_workers() {
        assert_eq!(op_of("whoami", json!({})).unwrap(), Op::Whoami);
        let params = json!({"id": "tx_1"});
        let rpc = Op::Rpc { method: "message_status".into(), params: params.clone() };
        assert_eq!(op_of("message_status", params).unwrap(), rpc);
    }

    #[test]
    fn a_call_of_what_there_is_not_is_told_what_there_is() {
        let hint = |method, code| refused(method, &ControlError::new(code, "no")).hint.unwrap();
        for (method, code) in [("nosuch", "unknown_method"), ("nosuch", "not_enrolled")] {
            let hint = hint(method, code);
            assert!(toolbox::TOOLS.iter().all(|tool| hint.contains(tool.name)), "{hint}");
        }
        assert!(hint("list_rooms", "not_enrolled").contains("transitd enroll"));
    }

    #[test]
    fn parameters_that_cannot_be_used_are_named() {
        for (wrong, name) in [(json!({"to": "a@b"}), "message"), (json!({"to": [1], "message": "x"}), "to")] {
            let failure = op_of("send_message", wrong).unwrap_err();
            assert_eq!(failure.exit, Exit::Data);
            assert!(failure.line.contains(name), "{}", failure.line);
        }
        for text in ["[]", "{", "7"] {
            assert_eq!(params(text).unwrap_err().exit, Exit::Data, "{text}");
        }
    }
}
