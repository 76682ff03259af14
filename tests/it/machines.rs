//! What holds for every machine, whatever it is told: it never panics, nothing counts before its first good frame,
//! nothing comes after its close, and it never asks to be woken in the past.

mod frames;

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use transit::clock::Mono;
use transit::limits;
use transit::proto::agent::{
    self, AdapterEvent, AdapterFrame, AdapterSide, DaemonSide, DaemonSideEvent, HostFrame, PeerProcess,
    Register,
};
use transit::proto::control::Call;
use transit::proto::wire::{
    self, DaemonConfig, DaemonEnd, DaemonEvent, DaemonFrame, WorkerConfig, WorkerEnd, WorkerEvent,
    WorkerFrame,
};
use transit::proto::{Decoded, Input, Output};

use frames::{CAPABILITY, adapter_frame, call, daemon_frame, host_frame, json, worker_frame};

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
        pane_id: None,
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

/// A daemon's and an adapter's side with nothing between them.
struct Pair {
    daemon: DaemonSide,
    adapter: AdapterSide,
    now: Mono,
    wake: Mono,
    /// What the adapter was handed, and what the daemon learned.
    handed: Vec<String>,
    events: Vec<DaemonSideEvent>,
}

/// What happens between the two; a number names a delivery.
#[derive(Debug, Clone)]
enum Step {
    Deliver(u8),
    Ack(u8),
    Nak(u8),
    Alive,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0_u8..4).prop_map(Step::Deliver),
        (0_u8..4).prop_map(Step::Ack),
        (0_u8..4).prop_map(Step::Nak),
        Just(Step::Alive),
        prop_oneof![0_u64..100, 0_u64..40_000].prop_map(Step::Wait),
    ];
    vec(step, 0..60)
}

impl Pair {
    fn new() -> Self {
        let AdapterFrame::Register(register) = good_register() else { panic!() };
        let now = Mono::default();
        let daemon = DaemonSide::new(PeerProcess { pid: 7, own: 7 }, now);
        let adapter = AdapterSide::new(register, now);
        let mut pair = Self { daemon, adapter, now, wake: now, handed: Vec::new(), events: Vec::new() };
        pair.settle();
        pair.daemon.registered("jess", "jess@titan", 1, CAPABILITY.into(), now);
        pair.settle();
        pair
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Deliver(n) => self.daemon.deliver(&format!("tx_{n}"), "e".into(), self.now),
            Step::Ack(n) => self.adapter.ack(&format!("tx_{n}")),
            Step::Nak(n) => self.adapter.nak(&format!("tx_{n}"), "no_screen", true),
            Step::Alive => self.adapter.alive(),
            Step::Wait(ms) => self.wait(Duration::from_millis(*ms)),
        }
        self.settle();
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while self.wake <= end {
            self.now = self.wake;
            self.daemon.handle(Input::Tick, self.now);
            self.settle();
        }
        self.now = end;
    }

    fn settle(&mut self) {
        loop {
            if let Some(output) = self.daemon.poll() {
                match output {
                    Output::Write(line) => self.adapter.handle(Input::Text(&line), self.now),
                    Output::Event(event) => self.events.push(event),
                    Output::WakeAt(at) => self.wake = at,
                    Output::Close(why) => panic!("{why:?}"),
                }
            } else if let Some(output) = self.adapter.poll() {
                match output {
                    Output::Write(line) => self.daemon.handle(Input::Text(&line), self.now),
                    Output::Event(AdapterEvent::Deliver { id, .. }) => self.handed.push(id),
                    Output::Event(AdapterEvent::Registered { .. }) | Output::WakeAt(_) => {}
                    Output::Event(AdapterEvent::Refused { .. }) | Output::Close(_) => panic!("refused"),
                }
            } else {
                return;
            }
        }
    }

    fn count(&self, wanted: impl Fn(&DaemonSideEvent) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }
}

proptest! {
    #[test]
    fn every_envelope_that_an_adapter_is_handed_has_an_outcome(steps in steps()) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.step(step);
        }
        pair.wait(limits::ADAPTER_WAIT_MAX);
        for id in (0..4).map(|n| format!("tx_{n}")) {
            let handed = pair.handed.iter().filter(|handed| **handed == id).count();
            let naks = pair.count(|event| matches!(event, DaemonSideEvent::Nak { id: nak, .. } if *nak == id));
            let acks = pair.count(|event| matches!(event, DaemonSideEvent::Ack { id: ack, .. } if *ack == id));
            assert!(naks <= handed && handed <= naks + acks, "{id}: {handed} handed, {naks} naks, {acks} acks");
        }
    }

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
                // Never the name of the other call: that one may have been answered by now, and this is one more.
                end.rpc(format!("for {id}"), "read_message", Value::Null, now);
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
        let mut side = DaemonSide::new(PeerProcess { pid: 7, own: 7 }, Mono::default());
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
