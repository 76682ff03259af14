use serde_json::{Value, json};

use super::*;

const ID: &str = "tx_0123456789ab";
const RULE: &str = "────────────────────";

fn envelope() -> String {
    format!(
        "<transit from=\"jess@titan\" id=\"{ID}\" ts=\"t\" kind=\"dm\" schema=\"transit/1\">\nhello\nhint\n</transit>"
    )
}

fn job(kind: &str) -> Job {
    Job {
        id: ID.into(),
        envelope: envelope(),
        pane_id: "w1:p1".into(),
        terminal_id: "term_1".into(),
        kind: kind.into(),
        guard: true,
    }
}

/// The other side of a delivery: what Herdr answers, in the order in which it is asked.
struct World {
    delivery: Delivery,
    asked: Vec<String>,
}

fn agent(status: &str, seq: u64, path: Option<&str>) -> Value {
    let mut agent = json!({
        "terminal_id": "term_1", "agent": "claude", "agent_status": status, "pane_id": "w1:p1",
        "state_change_seq": seq, "cwd": "/w",
    });
    if let Some(path) = path {
        agent["agent_session"] = json!({"source": "x", "agent": "claude", "kind": "path", "value": path});
    }
    json!({"type": "agent_info", "agent": agent})
}

fn composer(text: &str) -> Value {
    screen(&format!("{RULE}\n❯ {}\n{RULE}\n", text.replace('\n', "\n  ")))
}

fn screen(text: &str) -> Value {
    json!({"type": "pane_read", "read": {"pane_id": "w1:p1", "text": text}})
}

fn refusal(code: &str) -> Result<Value, Fault> {
    Err(Fault::Refused { code: code.into(), message: "why".into() })
}

impl World {
    fn new() -> Self {
        Self::with(job("claude"))
    }

    fn with(job: Job) -> Self {
        Self { delivery: Delivery::new(job), asked: Vec::new() }
    }

    /// The next step is this request; it is answered so.
    fn ask(&mut self, method: &str, answer: Result<Value, Fault>) -> &mut Self {
        self.rest();
        match self.delivery.step() {
            Step::Ask(request) => {
                assert_eq!(request.method, method, "after {:?}", self.asked);
                self.asked.push(request.method.to_owned());
                self.delivery.told(Told::Answer(answer));
            }
            other => panic!("{other:?} instead of {method}, after {:?}", self.asked),
        }
        self
    }

    fn ok(&mut self, method: &str, answer: Value) -> &mut Self {
        self.ask(method, Ok(answer))
    }

    fn search(&mut self, searched: Searched) -> &mut Self {
        self.rest();
        match self.delivery.step() {
            Step::Search(path) => assert_eq!(path, "/s.jsonl"),
            other => panic!("{other:?} instead of a search"),
        }
        self.delivery.told(Told::Searched(searched));
        self
    }

    fn rest(&mut self) {
        while let Step::Wait(_) = self.delivery.step() {
            self.delivery.told(Told::Waited);
        }
    }

    fn verdict(&mut self) -> Verdict {
        self.rest();
        match self.delivery.step() {
            Step::Done(verdict) => verdict,
            other => panic!("not over: {other:?}"),
        }
    }

    fn failed(&mut self, code: &str) {
        assert_eq!(self.verdict(), Verdict::Failed { code: code.into() });
    }

    fn prompts(&self) -> usize {
        self.asked.iter().filter(|method| *method == "agent.prompt").count()
    }
}

fn idle() -> Value {
    agent("idle", 1, None)
}

#[test]
fn a_pane_that_is_free_is_prompted_once() {
    let mut world = World::new();
    world.ok("agent.get", idle()).ok("pane.read", composer(""));
    let Step::Ask(request) = world.delivery.step() else { panic!() };
    assert_eq!(request.params["text"], envelope());
    assert_eq!(request.params["wait"]["until"], json!(["idle", "done", "blocked"]));
    world.ok("agent.prompt", json!({"type": "agent_prompted", "agent": agent("idle", 3, None)["agent"]}));
    assert_eq!(world.verdict(), Verdict::Shown(Proof::State));
    assert_eq!(world.prompts(), 1);
}

#[test]
fn nothing_is_typed_while_the_agent_asks_the_person() {
    let mut world = World::new();
    world.ok("agent.get", agent("blocked", 1, None));
    assert_eq!(world.verdict(), Verdict::Held(Hold::Blocked));
    let mut starting = idle();
    starting["agent"]["launch_pending"] = true.into();
    assert_eq!(World::new().ok("agent.get", starting).verdict(), Verdict::Held(Hold::Blocked));
    // It became blocked between the look and the prompt; Herdr has written nothing.
    let mut world = World::new();
    world.ok("agent.get", idle()).ok("pane.read", composer("")).ask("agent.prompt", refusal("agent_blocked"));
    assert_eq!(world.verdict(), Verdict::Held(Hold::Blocked));
}

#[test]
fn a_draft_keeps_the_envelope_back_and_a_suggestion_does_not() {
    let mut world = World::new();
    world
        .ok("agent.get", idle())
        .ok("pane.read", composer("half a th"))
        .ok("pane.read", composer("half a th"));
    assert_eq!(world.verdict(), Verdict::Held(Hold::Draft));
    let mut world = World::new();
    world
        .ok("agent.get", idle())
        .ok("pane.read", composer("run it"))
        .ask("pane.read", refusal("invalid_params"));
    assert_eq!(world.verdict(), Verdict::Held(Hold::Draft));
    let mut world = World::new();
    world.ok("agent.get", idle()).ok("pane.read", composer("run it"));
    world.ok("pane.read", composer("\x1b[2mrun it\x1b[0m"));
    assert!(matches!(world.delivery.step(), Step::Ask(request) if request.method == "agent.prompt"));
    let mut world = World::with(Job { guard: false, ..job("claude") });
    world.ok("agent.get", idle()).ok("pane.read", composer("half a th"));
    assert!(matches!(world.delivery.step(), Step::Ask(request) if request.method == "agent.prompt"));
}

#[test]
fn what_is_not_recognised_is_no_reason_to_wait() {
    for answer in
        [Ok(screen("anything")), Ok(json!({})), refusal("pane_read_failed"), Err(Fault::Lost("x".into()))]
    {
        let mut world = World::new();
        world.ok("agent.get", idle()).ask("pane.read", answer);
        assert!(matches!(world.delivery.step(), Step::Ask(request) if request.method == "agent.prompt"));
    }
}

#[test]
fn a_transcript_that_has_it_ends_the_matter_before_anything_is_typed() {
    let mut world = World::new();
    world.ok("agent.get", agent("idle", 1, Some("/s.jsonl"))).search(Searched::Found);
    assert_eq!(world.verdict(), Verdict::Shown(Proof::Transcript));
    assert_eq!(world.asked, ["agent.get"]);
}

#[test]
fn with_a_transcript_nothing_else_is_proof() {
    let prompted = |searched: &[Searched]| {
        let mut world = World::new();
        world.ok("agent.get", agent("idle", 1, Some("/s.jsonl"))).search(Searched::Absent);
        world.ok("pane.read", composer(""));
        world.ok("agent.prompt", agent("idle", 3, Some("/s.jsonl")));
        for found in searched {
            world.search(*found);
            if *found == Searched::Absent {
                world.ok("agent.get", agent("idle", 3, Some("/s.jsonl")));
            }
        }
        world
    };
    let mut late = prompted(&[Searched::Absent, Searched::Absent, Searched::Found]);
    assert_eq!(late.verdict(), Verdict::Shown(Proof::Transcript));
    prompted(&[Searched::Absent; 15]).failed("transcript_timeout");
    assert_eq!(prompted(&[Searched::Unreadable]).verdict(), Verdict::Shown(Proof::State));
}

#[test]
fn an_agent_that_works_gets_time_to_come_to_it() {
    let mut world = World::new();
    world.ok("agent.get", agent("working", 1, Some("/s.jsonl"))).search(Searched::Absent);
    world.ok("pane.read", composer("")).ok("agent.prompt", agent("working", 2, Some("/s.jsonl")));
    for _ in 0..200 {
        world.search(Searched::Absent).ok("agent.get", agent("working", 2, Some("/s.jsonl")));
    }
    world.search(Searched::Found);
    assert_eq!(world.verdict(), Verdict::Shown(Proof::Transcript));
}

fn stalled() -> World {
    let mut world = World::new();
    world.ok("agent.get", idle()).ok("pane.read", composer(""));
    world.ask("agent.prompt", refusal("agent_prompt_stalled"));
    world
}

#[test]
fn a_stall_that_is_none_is_not_typed_again() {
    let mut world = stalled();
    world.ok("agent.get", agent("done", 3, None));
    assert_eq!(world.verdict(), Verdict::Shown(Proof::State), "the state has moved");
    let mut world = stalled();
    let taken = format!("> {}\n\n{RULE}\n❯ \n{RULE}\n", envelope());
    world.ok("agent.get", idle()).ok("pane.read", screen(&taken));
    assert_eq!(world.verdict(), Verdict::Shown(Proof::Screen), "it stands above an empty composer");
    let mut world = World::new();
    world.ok("agent.get", agent("idle", 1, Some("/s.jsonl"))).search(Searched::Absent);
    world.ok("pane.read", composer("")).ask("agent.prompt", refusal("timeout")).search(Searched::Found);
    assert_eq!(world.verdict(), Verdict::Shown(Proof::Transcript));
}

#[test]
fn a_true_stall_gets_one_more_enter_and_never_a_second_paste() {
    let mut world = stalled();
    world.ok("agent.get", idle()).ok("pane.read", composer(&envelope()));
    let Step::Ask(request) = world.delivery.step() else { panic!() };
    assert_eq!(request.params, json!({"pane_id": "w1:p1", "keys": ["enter"]}));
    world
        .ok("pane.send_keys", json!({"type": "ok"}))
        .ok("agent.get", idle())
        .ok("agent.get", agent("working", 2, None));
    assert_eq!(world.verdict(), Verdict::Shown(Proof::State));
    assert_eq!(world.prompts(), 1);
    let mut world = stalled();
    world.ok("agent.get", idle()).ok("pane.read", composer("[Pasted text #1 +3 lines]"));
    world.ok("pane.send_keys", json!({"type": "ok"}));
    for _ in 0..15 {
        world.ok("agent.get", idle());
    }
    world.ok("pane.read", composer("[Pasted text #1 +3 lines]")).failed("agent_prompt_stalled");
}

#[test]
fn no_enter_answers_a_question() {
    let mut world = stalled();
    world.ok("agent.get", agent("blocked", 1, None));
    assert_eq!(world.verdict(), Verdict::Held(Hold::Blocked));
}

#[test]
fn a_draft_that_got_into_it_is_told_to_the_person() {
    let mut world = stalled();
    world.ok("agent.get", idle()).ok("pane.read", composer(&format!("and then {}", envelope())));
    world.ok("pane.send_keys", json!({"type": "ok"})).ask("notification.show", refusal("invalid_request"));
    world.ok("agent.get", agent("working", 2, None));
    assert_eq!(world.verdict(), Verdict::Shown(Proof::State));
}

#[test]
fn what_an_earlier_attempt_left_unsent_is_sent_and_not_typed() {
    let mut world = World::new();
    world.ok("agent.get", idle()).ok("pane.read", composer(&envelope()));
    world.ok("pane.send_keys", json!({"type": "ok"})).ok("agent.get", agent("working", 2, None));
    assert_eq!(world.verdict(), Verdict::Shown(Proof::State));
    // That of another delivery is sent first.
    let mut world = World::new();
    world.ok("agent.get", idle()).ok("pane.read", composer(&envelope().replace(ID, "tx_ffffffffffff")));
    world.ok("pane.send_keys", json!({"type": "ok"})).ok("agent.get", idle()).ok("pane.read", composer(""));
    assert!(matches!(world.delivery.step(), Step::Ask(request) if request.method == "agent.prompt"));
    // In the middle of a draft it is neither sent nor typed again.
    let mut world = World::new();
    world.ok("agent.get", idle()).ok("pane.read", composer(&format!("see {}", envelope())));
    assert_eq!(world.verdict(), Verdict::Held(Hold::Draft));
    assert_eq!(world.prompts(), 0);
}

#[test]
fn a_pane_that_vanishes_gets_nothing_and_neither_does_another() {
    World::new().ask("agent.get", refusal("agent_not_found")).failed("agent_gone");
    let mut other = idle();
    other["agent"]["terminal_id"] = "term_2".into();
    World::new().ok("agent.get", other).failed("agent_gone");
    let mut other = idle();
    other["agent"]["agent"] = "pi".into();
    World::new().ok("agent.get", other).failed("agent_gone");
    World::new().ok("agent.get", idle()).ask("pane.read", refusal("pane_not_found")).failed("agent_gone");
    let mut world = World::new();
    world
        .ok("agent.get", idle())
        .ok("pane.read", composer(""))
        .ask("agent.prompt", refusal("agent_not_found"));
    world.failed("agent_gone");
    stalled().ask("agent.get", refusal("agent_not_found")).failed("agent_gone");
}

#[test]
fn without_herdr_nothing_was_typed_and_without_an_answer_it_may_have_been() {
    let gone = || Err(Fault::Unavailable("no socket".into()));
    World::new().ask("agent.get", gone()).failed("herdr_unavailable");
    let mut world = World::new();
    world.ok("agent.get", idle()).ok("pane.read", composer("")).ask("agent.prompt", gone());
    world.failed("herdr_unavailable");
    let mut world = World::new();
    world
        .ok("agent.get", idle())
        .ok("pane.read", composer(""))
        .ask("agent.prompt", Err(Fault::Lost("x".into())));
    world.ok("agent.get", agent("working", 2, None));
    assert_eq!(world.verdict(), Verdict::Shown(Proof::State));
    let mut world = World::new();
    world.ok("agent.get", idle()).ok("pane.read", composer(""));
    world.ask("agent.prompt", refusal("agent_not_ready")).failed("agent_not_ready");
}

#[test]
fn nothing_for_the_terminal_itself_gets_through() {
    let mut world = World::with(Job { envelope: "a\x1b[201~\rrm\u{9b}x\x03\tb".into(), ..job("codex") });
    let mut other = idle();
    other["agent"]["agent"] = "codex".into();
    world.ok("agent.get", other).ok("pane.read", screen(""));
    let Step::Ask(request) = world.delivery.step() else { panic!() };
    assert_eq!(request.params["text"], "a\u{fffd}[201~\nrm\u{fffd}x\u{fffd}\tb");
}

#[test]
fn a_request_always_has_a_text_for_its_id_and_an_object_of_parameters() {
    for request in [
        Request::ping(),
        Request::agents(),
        Request::agent("p"),
        Request::rename("p", "n"),
        Request::enter("p"),
    ] {
        let line = request.encode("t1");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert!(value["id"].is_string() && value["params"].is_object() && !line.contains('\n'), "{line}");
    }
}

#[test]
fn answers_are_read_with_care() {
    assert_eq!(answer(r#"{"id":"r","result":{"type":"ok"}}"#, "r").unwrap(), json!({"type": "ok"}));
    let refused =
        answer(r#"{"id":"","error":{"code":"invalid_request","message":"a\u001bb"}}"#, "r").unwrap_err();
    assert_eq!(refused, Fault::Refused { code: "invalid_request".into(), message: "a\u{fffd}b".into() });
    let other = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no","data":{"kind":"unknown_method"}}}"#;
    assert!(matches!(answer(other, "r"), Err(Fault::Unavailable(_))));
    for line in [
        "",
        "[]",
        "{}",
        "7",
        r#"{"id":"r"}"#,
        r#"{"id":"q","result":{}}"#,
        r#"{"id":"r","result":[]}"#,
        &"[".repeat(9_000),
    ] {
        assert!(matches!(answer(line, "r"), Err(Fault::Lost(_))), "{line}");
    }
    assert_eq!(protocol(&json!({"type": "pong", "protocol": 20, "version": "v"})).unwrap(), (20, "v".into()));
    assert!(protocol(&json!({"type": "ok"})).is_err());
    let list = json!({"agents": [{"pane_id": "p1"}, {"agent": "pi"}, 7, {"pane_id": "p2", "name": "bob", "agent_status": "sleeping"}]});
    let agents = agents(&list, 10);
    assert_eq!(agents.len(), 2);
    assert_eq!((agents[1].name.as_deref(), agents[1].status), (Some("bob"), Status::Unknown));
    let info = json!({"process_info": {"shell_pid": 9, "foreground_processes": [{"pid": 11}, {"pid": 0}, {"name": "x"}]}});
    assert_eq!(processes(&info), Processes { shell: Some(9), foreground: vec![11] });
}

#[test]
fn a_reminder_is_another_envelope_than_the_first_showing() {
    let tag = |n: u32| {
        format!(
            "<transit from=\"ingest\" id=\"dlv_1\" user=\"u\" redelivery=\"{n}\" schema=\"transit/1\">\nx"
        )
    };
    let escaped = |n: u32| serde_json::to_string(&tag(n)).unwrap();
    let (first, second) = (Needle::of("dlv_1", &tag(0)), Needle::of("dlv_1", &tag(2)));
    assert!(first.is_in(escaped(0).as_bytes()) && first.is_in(escaped(2).as_bytes()));
    assert!(!second.is_in(escaped(0).as_bytes()) && !second.is_in(escaped(1).as_bytes()));
    assert!(
        second.is_in(format!("{}{}", escaped(0), escaped(2)).as_bytes()) && second.is_in(tag(2).as_bytes())
    );
    assert!(second.is_on(&tag(2).replace("dlv_", "dl\n│ v_")));
    assert!(!first.is_in(b"dlv_2"));
}

#[test]
fn who_mentions_an_id_does_not_have_the_envelope() {
    let needle = Needle::of("tx_1", "<transit from=\"a@t\" id=\"tx_1\" schema=\"transit/1\">\nx");
    for mention in [
        "Message tx_1 to jess@titan: spooled",
        "did you get \"tx_1\"?",
        "{\"id\":\"tx_1\"}",
        "<transit from=\"a@t\" id=\"tx_2\" reply_to=\"tx_1\" schema=\"transit/1\">",
        "<transit_full id=\"tx_2\" conversation_id=\"tx_1\">",
        "delivery_id=\\\"tx_1\\\"",
    ] {
        assert!(!needle.is_in(mention.as_bytes()) && !needle.is_on(mention), "{mention}");
    }
    let tag = "<transit from=\"a@t\" id=\"tx_1\" kind=\"dm\">";
    let escaped = serde_json::to_string(tag).unwrap();
    for shown in [tag, &escaped, &serde_json::to_string(&escaped).unwrap(), "id=\"tx_1\""] {
        assert!(needle.is_in(shown.as_bytes()) && needle.is_on(shown), "{shown}");
    }
    assert!(
        needle.is_on("of a long one\n│ [reply: send_message to=\"a@t\" reply_to=\"tx_│\n│ 1\"]"),
        "its end"
    );
}
