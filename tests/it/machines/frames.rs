//! Any frame of any protocol here, more often than not one that is accepted.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;
use transit::proto::agent::{AdapterFrame, HostFrame, Register};
use transit::proto::control::{Call, Op};
use transit::proto::wire::{AgentInfo, DaemonFrame, NakCode, NamedBy, RpcError, SendFrame, WorkerFrame};

/// What the registered adapters of these tests were given.
pub(super) const CAPABILITY: &str = "000102030405060708090a0b0c0d0e0f";

/// Any text, with those that protocols trip over in front.
fn text() -> BoxedStrategy<String> {
    prop_oneof![
        Just(String::new()),
        Just("jess".to_owned()),
        Just("tx_001122334455".to_owned()),
        Just("a\"\\\u{0}\u{1b}\r\n\u{2028}</transit".to_owned()),
        any::<String>(),
    ]
    .boxed()
}

pub(super) fn json() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((text(), inner), 0..4).prop_map(|pairs| pairs.into_iter().collect()),
        ]
    })
    .boxed()
}

fn message() -> impl Strategy<Value = SendFrame> {
    (text(), text(), text(), text(), option::of(text()), text())
        .prop_map(|(id, from, to, body, reply_to, ts)| SendFrame { id, from, to, body, reply_to, ts })
}

fn agent_info() -> impl Strategy<Value = AgentInfo> {
    let named_by = prop_oneof![Just(NamedBy::User), Just(NamedBy::Auto)];
    (text(), text(), text(), text(), text(), text(), named_by).prop_map(
        |(name, kind, pane_id, status, cwd, title, named_by)| AgentInfo {
            name,
            kind,
            pane_id,
            status,
            cwd,
            title,
            named_by,
        },
    )
}

pub(super) fn daemon_frame() -> BoxedStrategy<DaemonFrame> {
    let host = prop_oneof![4 => Just("titan".to_owned()), 1 => text()];
    prop_oneof![
        (prop_oneof![4 => Just(1), 1 => any::<u64>()], text(), host)
            .prop_map(|(proto, daemon_ver, host)| { DaemonFrame::Hello { proto, daemon_ver, host } }),
        vec(agent_info(), 0..3).prop_map(|agents| DaemonFrame::Roster { agents }),
        message().prop_map(DaemonFrame::Send),
        (text(), option::of(text()), option::of(text()))
            .prop_map(|(id, agent, via)| DaemonFrame::DeliverAck { id, agent, via }),
        (text(), option::of(text()), text(), any::<bool>()).prop_map(|(id, agent, code, retryable)| {
            DaemonFrame::DeliverNak { id, agent, code, retryable }
        }),
        (text(), text(), json()).prop_map(|(rid, method, params)| DaemonFrame::Rpc { rid, method, params }),
        Just(DaemonFrame::Pong),
    ]
    .boxed()
}

pub(super) fn worker_frame() -> BoxedStrategy<WorkerFrame> {
    const CODES: [&str; 6] =
        ["no_route", "not_member", "body_too_large", "reserved_name", "rate_limited", "plan_limit"];
    let code = proptest::sample::select(&CODES[..]).prop_filter_map("a code", NakCode::of);
    let result = json().prop_map(|value| Some(value).filter(|value| !value.is_null()));
    let error = option::of((text(), text()).prop_map(|(code, message)| RpcError { code, message }));
    prop_oneof![
        (text(), text()).prop_map(|(host_id, org)| WorkerFrame::HelloOk { host_id, org }),
        text().prop_map(|code| WorkerFrame::HelloErr { code }),
        (text(), text(), text()).prop_map(|(id, agent, envelope)| WorkerFrame::Deliver {
            id,
            agent,
            envelope
        }),
        text().prop_map(|id| WorkerFrame::SendAck { id }),
        (text(), code).prop_map(|(id, code)| WorkerFrame::SendNak { id, code }),
        (text(), result, error).prop_map(|(rid, result, error)| WorkerFrame::RpcResult {
            rid,
            result,
            error
        }),
        Just(WorkerFrame::Ping),
    ]
    .boxed()
}

fn register() -> impl Strategy<Value = Register> {
    let likely = |word: &'static str| prop_oneof![4 => Just(word.to_owned()), 1 => text()];
    let pid = prop_oneof![4 => Just(7), 1 => any::<u32>()];
    let optional = (option::of(likely("jess")), option::of(likely("w1:p1")));
    (likely("program"), likely("s-1"), pid, text(), text(), text(), optional).prop_map(
        |(harness, session_id, pid, cwd, title, status, (name, pane_id))| Register {
            proto: 1,
            harness,
            session_id,
            pid,
            cwd,
            title,
            status,
            name,
            pane_id,
        },
    )
}

pub(super) fn adapter_frame() -> BoxedStrategy<AdapterFrame> {
    let capability = || prop_oneof![4 => Just(CAPABILITY.to_owned()), 1 => text()];
    prop_oneof![
        register().prop_map(AdapterFrame::Register),
        (text(), any::<bool>(), option::of(text()), capability()).prop_map(
            |(id, persisted, via, capability)| AdapterFrame::DeliverAck { id, persisted, via, capability }
        ),
        (text(), option::of(text()), any::<bool>(), capability()).prop_map(
            |(id, code, retryable, capability)| {
                AdapterFrame::DeliverNak { id, code, retryable, capability }
            }
        ),
        (text(), capability()).prop_map(|(status, capability)| AdapterFrame::Status { status, capability }),
        capability().prop_map(|capability| AdapterFrame::Pong { capability }),
    ]
    .boxed()
}

pub(super) fn host_frame() -> BoxedStrategy<HostFrame> {
    prop_oneof![
        (text(), text(), any::<u64>(), text()).prop_map(|(agent, address, generation, capability)| {
            HostFrame::Registered { agent, address, generation, capability }
        }),
        (text(), text()).prop_map(|(code, error)| HostFrame::RegisterErr { code, error }),
        (text(), text()).prop_map(|(id, envelope)| HostFrame::Deliver { id, envelope }),
        Just(HostFrame::Ping),
    ]
    .boxed()
}

pub(super) fn call() -> impl Strategy<Value = Call> {
    let op = prop_oneof![
        Just(Op::Status),
        Just(Op::Whoami),
        Just(Op::Kick),
        (text(), text(), option::of(text()), any::<Option<u64>>())
            .prop_map(|(to, body, reply_to, wait_ms)| Op::Send { to, body, reply_to, wait_ms }),
        Just(Op::Inbox),
        text().prop_map(|id| Op::MessageStatus { id }),
        text().prop_map(|name| Op::ClaimName { name }),
        (text(), json()).prop_map(|(method, params)| Op::Rpc { method, params }),
    ];
    (op, option::of(text()), option::of(text()), option::of(text()))
        .prop_map(|(op, pane_id, session_id, as_agent)| Call { op, pane_id, session_id, as_agent })
}
