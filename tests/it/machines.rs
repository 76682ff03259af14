//! What holds for every machine, whatever it is told: it never panics, nothing counts before its first good frame,
//! nothing comes after its close, and it never asks to be woken in the past.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;
use transit::clock::Mono;
use transit::limits;
use transit::proto::agent::{
    self, AdapterEvent, AdapterFrame, AdapterSide, DaemonSide, DaemonSideEvent, HostFrame, PeerProcess,
    Register,
};
use transit::proto::control::{Call, Op};
use transit::proto::wire::{
    self, AgentInfo, DaemonConfig, DaemonEnd, DaemonEvent, DaemonFrame, NakCode, NamedBy, RpcError,
    SendFrame, WorkerConfig, WorkerEnd, WorkerEvent, WorkerFrame,
};
use transit::proto::{Decoded, Input, Output};

const CAPABILITY: &str = "000102030405060708090a0b0c0d0e0f";

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

fn json() -> BoxedStrategy<Value> {
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

fn daemon_frame() -> BoxedStrategy<DaemonFrame> {
    let host = prop_oneof![4 => Just("titan".to_owned()), 1 => text()];
    prop_oneof![
        (prop_oneof![4 => Just(1), 1 => any::<u64>()], text(), host)
            .prop_map(|(proto, daemon_ver, host)| { DaemonFrame::Hello { proto, daemon_ver, host } }),
        vec(agent_info(), 0..3).prop_map(|agents| DaemonFrame::Roster { agents }),
        message().prop_map(DaemonFrame::Send),
        (text(), option::of(text())).prop_map(|(id, agent)| DaemonFrame::DeliverAck { id, agent }),
        (text(), option::of(text()), text(), any::<bool>()).prop_map(|(id, agent, code, retryable)| {
            DaemonFrame::DeliverNak { id, agent, code, retryable }
        }),
        (text(), text(), json()).prop_map(|(rid, method, params)| DaemonFrame::Rpc { rid, method, params }),
        Just(DaemonFrame::Pong),
    ]
    .boxed()
}

fn worker_frame() -> BoxedStrategy<WorkerFrame> {
    const CODES: [&str; 6] =
        ["no_route", "not_member", "body_too_large", "reserved_name", "rate_limited", "plan_limit"];
    let code = proptest::sample::select(&CODES[..]).prop_map(|word| NakCode::of(word).unwrap());
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
    (likely("program"), likely("s-1"), pid, text(), text(), text(), option::of(likely("jess"))).prop_map(
        |(harness, session_id, pid, cwd, title, status, name)| Register {
            proto: 1,
            harness,
            session_id,
            pid,
            cwd,
            title,
            status,
            name,
        },
    )
}

fn adapter_frame() -> BoxedStrategy<AdapterFrame> {
    let capability = || prop_oneof![4 => Just(CAPABILITY.to_owned()), 1 => text()];
    prop_oneof![
        register().prop_map(AdapterFrame::Register),
        (text(), any::<bool>(), capability())
            .prop_map(|(id, persisted, capability)| AdapterFrame::DeliverAck { id, persisted, capability }),
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

fn host_frame() -> BoxedStrategy<HostFrame> {
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

fn call() -> impl Strategy<Value = Call> {
    let op = prop_oneof![
        Just(Op::Status),
        Just(Op::Whoami),
        Just(Op::Kick),
        (text(), text(), option::of(text())).prop_map(|(to, body, reply_to)| Op::Send { to, body, reply_to }),
        (text(), json()).prop_map(|(method, params)| Op::Rpc { method, params }),
    ];
    (op, option::of(text()), option::of(text())).prop_map(|(op, pane_id, as_agent)| Call {
        op,
        pane_id,
        as_agent,
    })
}

/// What can reach a machine; owned, so that it can be generated.
#[derive(Debug, Clone)]
enum Told {
    Text(String),
    Binary,
    TooLong,
    Sound,
    Tick,
}

impl Told {
    fn input(&self) -> Input<'_> {
        match self {
            Self::Text(text) => Input::Text(text),
            Self::Binary => Input::Binary,
            Self::TooLong => Input::TooLong,
            Self::Sound => Input::Sound,
            Self::Tick => Input::Tick,
        }
    }
}

/// Frames of the protocol, whole and damaged, JSON and garbage; and how many milliseconds later each one comes. Most
/// stories begin well, with `greeting`, so that they do not all end at once.
fn story(greeting: String, frame: BoxedStrategy<String>) -> impl Strategy<Value = Vec<(Told, u64)>> {
    let damaged =
        (frame.clone(), any::<prop::sample::Index>(), any::<char>()).prop_map(|(text, place, c)| {
            let mut chars: Vec<char> = text.chars().collect();
            let place = place.index(chars.len());
            chars[place] = c;
            chars.into_iter().collect::<String>()
        });
    let told = prop_oneof![
        30 => frame.prop_map(Told::Text),
        1 => damaged.prop_map(Told::Text),
        1 => json().prop_map(|value| Told::Text(value.to_string())),
        1 => any::<String>().prop_map(Told::Text),
        2 => Just(Told::Text("{\"t\":\"later\"}".into())),
        1 => Just(Told::Binary),
        1 => Just(Told::TooLong),
        2 => Just(Told::Sound),
        10 => Just(Told::Tick),
    ];
    let rest = vec((told, prop_oneof![0_u64..100, 0_u64..40_000]), 0..40);
    (rest, 0..3).prop_map(move |(mut story, ill)| {
        if ill != 0 {
            story.insert(0, (Told::Text(greeting.clone()), 1));
        }
        story
    })
}

fn hello_ok() -> String {
    WorkerFrame::HelloOk { host_id: "hst_001122334455".into(), org: "default".into() }.encode()
}

fn hello() -> String {
    DaemonFrame::Hello { proto: 1, daemon_ver: "9".into(), host: "titan".into() }.encode()
}

fn good_register() -> AdapterFrame {
    AdapterFrame::Register(Register {
        proto: 1,
        harness: "program".into(),
        session_id: "s-1".into(),
        pid: 7,
        cwd: "/".into(),
        title: String::new(),
        status: "idle".into(),
        name: None,
    })
}

fn registered() -> String {
    let (agent, address, capability) = ("jess".into(), "jess@titan".into(), CAPABILITY.into());
    HostFrame::Registered { agent, address, generation: 1, capability }.encode()
}

/// Tells a machine a story, and answers its events. Checks what holds for every machine.
fn tell<M, E>(
    machine: &mut M,
    story: &[(Told, u64)],
    mut handle: impl FnMut(&mut M, Input<'_>, Mono),
    mut poll: impl FnMut(&mut M) -> Option<Output<E>>,
    mut on_event: impl FnMut(&mut M, &E, Mono),
) -> Vec<E> {
    let (mut now, mut wake, mut closed, mut events) = (Mono::default(), None, false, Vec::new());
    for (told, later) in story {
        let next = now + Duration::from_millis(*later);
        // As a driver does it: first what time asks for, then what comes from outside.
        let mut inputs: Vec<(Input<'_>, Mono)> = Vec::new();
        inputs.extend(wake.filter(|&wake| wake <= next).map(|wake: Mono| (Input::Tick, wake)));
        inputs.push((told.input(), next));
        for (input, at) in inputs {
            now = now.max(at);
            handle(machine, input, now);
            while let Some(output) = poll(machine) {
                assert!(!closed, "nothing comes after a close");
                match output {
                    Output::Write(text) => assert!(text.len() <= limits::FRAME_BYTES && !text.contains('\n')),
                    Output::WakeAt(at) => {
                        assert!(at > now, "{at:?} is not later than {now:?}");
                        wake = Some(at);
                    }
                    Output::Close(why) => {
                        assert!(why.reason.len() <= 123);
                        closed = true;
                    }
                    Output::Event(event) => {
                        on_event(machine, &event, now);
                        events.push(event);
                    }
                }
            }
        }
    }
    events
}

proptest! {
    #[test]
    fn a_frame_is_read_as_it_was_written(
        daemon in daemon_frame(), worker in worker_frame(), adapter in adapter_frame(), host in host_frame(), call in call()
    ) {
        assert_eq!(wire::decode_daemon(&daemon.encode()), Decoded::Frame(daemon));
        assert_eq!(wire::decode_worker(&worker.encode()), Decoded::Frame(worker));
        assert_eq!(agent::decode_adapter(&adapter.encode()), Decoded::Frame(adapter));
        assert_eq!(agent::decode_host(&host.encode()), Decoded::Frame(host));
        assert_eq!(Call::decode(&call.encode()), Ok(call));
    }

    #[test]
    fn the_daemon_hears_nothing_before_hello_ok(story in story(hello_ok(), worker_frame().prop_map(|f| f.encode()).boxed())) {
        let config = DaemonConfig { host: "titan".into(), daemon_ver: "9".into() };
        let mut end = DaemonEnd::new(config, Mono::default());
        end.rpc("r".into(), "list_rooms", Value::Null, Mono::default());
        let events = tell(&mut end, &story, DaemonEnd::handle, DaemonEnd::poll, |end, event, now| {
            if let DaemonEvent::Deliver { id, agent, .. } = event {
                end.deliver_ack(id, agent);
                end.rpc(id.clone(), "read_message", Value::Null, now);
            }
        });
        let calls = events.iter().filter(|e| matches!(e, DaemonEvent::RpcResult { rid, .. } if rid == "r"));
        assert!(calls.count() <= 1);
        let mut others = events.iter().filter(|event| !matches!(event, DaemonEvent::RpcResult { .. }));
        let first = others.next();
        assert!(matches!(first, None | Some(DaemonEvent::Ready { .. } | DaemonEvent::Refused { .. })), "{:?}", first);
        assert!(!others.any(|event| matches!(event, DaemonEvent::Ready { .. })));
    }

    #[test]
    fn the_worker_hears_nothing_before_hello(story in story(hello(), daemon_frame().prop_map(|f| f.encode()).boxed())) {
        let config = WorkerConfig { host: "titan".into(), host_id: "hst_001122334455".into(), org: "default".into() };
        let mut end = WorkerEnd::new(config, Mono::default());
        let events = tell(&mut end, &story, WorkerEnd::handle, WorkerEnd::poll, |end, event, _| match event {
            WorkerEvent::Send(message) => end.send_ack(&message.id),
            WorkerEvent::Rpc { rid, params, .. } => end.rpc_result(rid, Ok(params.clone())),
            _ => {}
        });
        let hellos = events.iter().filter(|event| matches!(event, WorkerEvent::Hello { .. })).count();
        assert_eq!(hellos, usize::from(!events.is_empty()));
        assert!(matches!(events.first(), None | Some(WorkerEvent::Hello { .. })));
    }

    #[test]
    fn the_daemon_s_side_hears_nothing_before_register(story in story(good_register().encode(), adapter_frame().prop_map(|f| f.encode()).boxed())) {
        let mut side = DaemonSide::new(PeerProcess { pid: 7 }, Mono::default());
        let mut delivered = 0;
        let events = tell(&mut side, &story, DaemonSide::handle, DaemonSide::poll, |side, event, now| {
            if let DaemonSideEvent::Register(_) = event {
                side.registered("jess", "jess@titan", 1, CAPABILITY.into(), now);
            }
            if !matches!(event, DaemonSideEvent::Nak { .. }) {
                delivered += 1;
                side.deliver(&format!("tx_{delivered}"), "e".into(), now);
            }
        });
        assert!(matches!(events.first(), None | Some(DaemonSideEvent::Register(_))));
        let mut naks: Vec<&str> = events.iter().filter_map(|event| match event {
            DaemonSideEvent::Nak { id, .. } => Some(id.as_str()),
            _ => None,
        }).collect();
        let all = naks.len();
        naks.sort_unstable();
        naks.dedup();
        assert_eq!(naks.len(), all, "one outcome a delivery");
    }

    #[test]
    fn an_adapter_hears_nothing_before_registered(story in story(registered(), host_frame().prop_map(|f| f.encode()).boxed())) {
        let AdapterFrame::Register(register) = good_register() else { panic!() };
        let mut side = AdapterSide::new(register, Mono::default());
        let events = tell(&mut side, &story, AdapterSide::handle, AdapterSide::poll, |side, event, _| {
            if let AdapterEvent::Deliver { id, .. } = event {
                side.ack(id);
            }
        });
        let first = events.first();
        assert!(matches!(first, None | Some(AdapterEvent::Registered { .. } | AdapterEvent::Refused { .. })));
    }
}
