//! The machine, driven by chance.

use proptest::prelude::*;

use super::*;

/// What can happen to a machine.
#[derive(Debug, Clone)]
enum Step {
    Bytes(Vec<u8>),
    Sent(usize),
    Event(u8),
    Abandon,
    Deaf,
    End,
    Stop,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let line = prop_oneof![
        4 => Just(r#"{"id":1,"method":"message.send","params":{"text":"x"}}"#.to_owned()),
        4 => Just(ask("\"s\"")),
        1 => "\\PC{0,30}",
        1 => Just(String::new()),
    ];
    let garbage = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        12 => line.prop_map(|line| Step::Bytes(format!("{line}\n").into_bytes())),
        2 => garbage.prop_map(Step::Bytes),
        1 => (60_000usize..70_000).prop_map(|size| Step::Bytes(vec![b'x'; size])),
        8 => (0usize..3_000).prop_map(Step::Sent),
        12 => any::<u8>().prop_map(Step::Event),
        1 => Just(Step::Abandon),
        1 => Just(Step::Deaf),
        1 => Just(Step::End),
        1 => Just(Step::Stop),
        6 => (0u64..4_000).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_order_holds_and_little_is_kept(steps in prop::collection::vec(step(), 0..120)) {
        let mut rig = Rig::with(ServerConfig { rate_per_minute: 40, event_bytes: 2_000, ..ServerConfig::default() });
        rig.reads = false;
        for step in steps {
            match step {
                Step::Bytes(bytes) => rig.handle(Input::Bytes(&bytes)),
                Step::Sent(bytes) => rig.handle(Input::Sent(bytes)),
                Step::Event(n) => {
                    let event = match n % 4 {
                        0 => typing(),
                        1 => started(),
                        2 => delta("some line"),
                        _ => reply("done"),
                    };
                    if let Some(ticket) = (!rig.sent.is_empty()).then(|| rig.sent[usize::from(n) % rig.sent.len()]) {
                        let _ = rig.offer(ticket, &event);
                    }
                }
                Step::Abandon => {
                    if let Some(&ticket) = rig.sent.first() {
                        rig.server.abandon(ticket, rig.now);
                        rig.settle();
                    }
                }
                Step::Deaf => rig.handle(Input::Deaf),
                Step::End => rig.handle(Input::End),
                Step::Stop => {
                    rig.server.stop(rig.now);
                    rig.settle();
                }
                Step::Wait(ms) => rig.tick(rig.now + Duration::from_millis(ms)),
            }
            if rig.closed.is_some() {
                prop_assert!(!rig.server.wants_input());
            }
        }
        let before = rig.lines.len();
        if rig.closed.is_some() {
            rig.hear(&ask(1));
            prop_assert_eq!(rig.lines.len(), before, "nothing comes after the end");
        }
        for line in &rig.lines {
            let frame: Value = serde_json::from_str(line).unwrap();
            prop_assert!(frame.get("event").is_some() != frame.get("id").is_some());
        }
    }

    #[test]
    fn any_cuts_of_the_bytes_give_the_same_frames(
        lines in prop::collection::vec(prop_oneof![Just(ask(1)), Just("😀x".to_owned()), Just(String::new()), "\\PC{0,20}"], 0..12),
        sizes in prop::collection::vec(1usize..40, 1..20),
    ) {
        let bytes = lines.join("\n").into_bytes();
        let mut whole = Rig::new();
        whole.handle(Input::Bytes(&bytes));
        whole.handle(Input::End);
        let mut cut = Rig::new();
        let (mut rest, mut sizes) = (&bytes[..], sizes.iter().cycle());
        while !rest.is_empty() {
            let (piece, more) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            cut.handle(Input::Bytes(piece));
            rest = more;
        }
        cut.handle(Input::End);
        prop_assert_eq!(cut.lines, whole.lines);
        prop_assert_eq!(cut.closed, whole.closed);
    }
}
