//! The machine, driven by hand.

mod chance;

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::clock::Mono;
use crate::limits;
use crate::proto::testing::{Drained, at, drain};
use crate::proto::wire::close;

/// A machine whose owner answers at once: messages are accepted, and nothing else happens to them.
struct Rig {
    server: Server,
    now: Mono,
    /// Everything that was written.
    lines: Vec<String>,
    /// The tickets of the messages, in order.
    sent: Vec<Ticket>,
    closed: Option<(u16, String)>,
    /// Whether what is written leaves at once.
    reads: bool,
}

impl Rig {
    fn new() -> Self {
        Self::with(ServerConfig { rate_per_minute: 10_000, ..ServerConfig::default() })
    }

    fn with(config: ServerConfig) -> Self {
        let server = Server::new(config, at(0));
        Self { server, now: at(0), lines: Vec::new(), sent: Vec::new(), closed: None, reads: true }
    }

    fn settle(&mut self) {
        loop {
            let Drained { writes, events, close, .. } = drain(|| self.server.poll());
            let is_done = writes.is_empty() && events.is_empty();
            let bytes = writes.iter().map(|line| line.len() + 1).sum();
            self.lines.extend(writes);
            if let Some(close) = close {
                assert!(self.closed.replace((close.code, close.reason)).is_none());
            }
            for Asked { ticket, request } in events {
                let answer = match request {
                    Request::Send { .. } => {
                        self.sent.push(ticket);
                        Answer::Accepted
                    }
                    Request::Commands => Answer::Commands(Vec::new()),
                    Request::Status => status(),
                };
                self.server.answer(ticket, &answer, self.now);
            }
            if self.reads && bytes > 0 {
                self.server.handle(Input::Sent(bytes), self.now);
            }
            if is_done {
                return;
            }
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.server.handle(input, self.now);
        self.settle();
    }

    fn hear(&mut self, line: &str) {
        self.handle(Input::Bytes(format!("{line}\n").as_bytes()));
    }

    fn tick(&mut self, now: Mono) {
        self.now = now;
        self.handle(Input::Tick);
    }

    fn message(&mut self) -> Ticket {
        self.hear(r#"{"id":"m","method":"message.send","params":{"text":"hi"}}"#);
        *self.sent.last().unwrap()
    }

    fn offer(&mut self, ticket: Ticket, event: &LocalEvent) -> Result<(), Unsent> {
        let taken = self.server.offer(ticket, EventFrame::new(event), self.now);
        self.settle();
        taken
    }

    fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.lines).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What every answer says: its id, and `ok` or the code of the error.
    fn answers(&mut self) -> Vec<(String, String)> {
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let answers = self.take().into_iter().filter(|frame| frame.get("id").is_some());
        answers
            .map(|frame| {
                let code = frame.pointer("/error/code").map_or("ok".to_owned(), word);
                (word(&frame["id"]), code)
            })
            .collect()
    }
}

fn status() -> Answer {
    Answer::Status(Status { daemon: "ok", dispatcher_agent: "tiny".into(), gateway: "ok" })
}

fn ask(id: impl std::fmt::Display) -> String {
    format!(r#"{{"id":{id},"method":"status.get"}}"#)
}

fn session() -> SessionId {
    SessionId::DEFAULT.parse().unwrap()
}

fn delta(line: &str) -> LocalEvent {
    LocalEvent::ReplyDelta { session: session(), line: line.to_owned() }
}

fn reply(text: &str) -> LocalEvent {
    LocalEvent::Reply { session: session(), text: text.to_owned() }
}

fn started() -> LocalEvent {
    LocalEvent::RunStarted { session: session(), agent: "tiny".into() }
}

fn typing() -> LocalEvent {
    LocalEvent::Typing { session: session() }
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(id, code)| ((*id).to_owned(), (*code).to_owned())).collect()
}

#[test]
fn requests_are_answered_in_their_order_with_their_ids() {
    let mut rig = Rig::new();
    let lines: Vec<String> = (0..5).map(|n| ask(format_args!("\"p{n}\""))).collect();
    rig.handle(Input::Bytes(format!("\n\r\n{}\r\n", lines.join("\n")).as_bytes()));
    let ids = ["p0", "p1", "p2", "p3", "p4"].map(|id| (id, "ok"));
    assert_eq!(rig.answers(), pairs(&ids));
    rig.hear(r#"{"id":7,"method":"commands.list"}"#);
    assert_eq!(rig.take(), [json!({ "id": "7", "result": [] })]);
}

#[test]
fn nothing_wrong_with_a_line_ends_the_connection() {
    let mut rig = Rig::new();
    rig.handle(Input::Bytes(b"nonsense\n   \n\xff\xfe\n"));
    rig.hear(r#"{"id":"x","method":"nope"}"#);
    rig.hear(r#"{"id":"y","method":"message.send","params":{"text":"x","session_id":"a b"}}"#);
    rig.hear(&ask(1));
    let invalid = "invalid_request";
    let expected = [
        ("", invalid),
        ("", invalid),
        ("", invalid),
        ("x", invalid),
        ("y", "session_id_invalid"),
        ("1", "ok"),
    ];
    assert_eq!(rig.answers(), pairs(&expected));
    assert!(rig.closed.is_none() && rig.server.wants_input());
}

#[test]
fn a_line_over_the_limit_is_refused_at_once_and_ends_the_connection() {
    let mut rig = Rig::new();
    let open = r#"{"id":9,"method":"status.get","params":{"p":""#;
    rig.handle(Input::Bytes(open.as_bytes()));
    rig.handle(Input::Bytes("é".repeat(40_000).as_bytes()));
    assert_eq!(
        rig.take(),
        [json!({
            "id": "9",
            "error": { "code": "invalid_request", "message": "request line exceeds 65536 bytes" },
        })]
    );
    assert_eq!(rig.closed, Some((close::TOO_LONG, "a line is too long".into())));
    rig.handle(Input::Bytes(&b"x".repeat(100_000)));
    assert!(rig.lines.is_empty());

    let mut rig = Rig::new();
    let fill = "a".repeat(limits::API_LINE_BYTES - open.len() - 3);
    rig.hear(&format!(r#"{open}{fill}"}}}}"#));
    assert_eq!(rig.answers(), pairs(&[("9", "ok")]));
    rig.hear(&format!(r#"{open}{fill}a"}}}}"#));
    assert_eq!(rig.answers(), pairs(&[("9", "invalid_request")]));
}

#[test]
fn what_an_operator_has_set_holds() {
    let write_wait = Duration::from_secs(2);
    let usual = ServerConfig::default();
    let config = ServerConfig { line_bytes: 100, text_bytes: 3, frames: 128, write_wait, ..usual };
    let mut rig = Rig::with(config);
    let text = |text: &str| format!(r#"{{"id":1,"method":"message.send","params":{{"text":"{text}"}}}}"#);
    rig.hear(&text("four"));
    assert_eq!(rig.take()[0]["error"]["message"], "text exceeds 3 bytes");
    rig.hear(&format!("{:100}", ask(2)));
    assert_eq!(rig.answers(), pairs(&[("2", "ok")]));
    let ticket = rig.message();
    rig.take();
    rig.reads = false;
    let taken = (0..).take_while(|_| rig.offer(ticket, &delta("x")).is_ok()).count();
    assert!((32..128).contains(&taken), "{taken}");
    rig.now = at(1);
    rig.handle(Input::Tick);
    assert_eq!(rig.closed, None);
    rig.now = at(2);
    rig.handle(Input::Tick);
    assert!(rig.closed.is_some(), "it does not read");

    let mut rig = Rig::with(config);
    rig.hear(&format!("{:101}", ask(3)));
    assert_eq!(rig.take()[0]["error"]["message"], "request line exceeds 100 bytes");
}

#[test]
fn the_rate_is_a_sliding_minute_and_counts_every_line_but_the_blank_ones() {
    let mut rig = Rig::with(ServerConfig::default());
    rig.handle(Input::Bytes(&b"\n\r\n".repeat(500)));
    for n in 0..30 {
        rig.now = at(n);
        rig.hear(if n % 3 == 0 { "x" } else { "{}" });
    }
    assert!(rig.answers().iter().all(|(_, code)| code == "invalid_request"));
    rig.hear(&ask("\"a\""));
    rig.hear(r#"{"id":12,"method":"#);
    rig.handle(Input::Bytes(b"\xff\n"));
    let limited = rig.take();
    assert_eq!(limited[0]["error"]["message"], "more than 30 requests per minute; slow down");
    assert_eq!(limited.iter().map(|frame| &frame["id"]).collect::<Vec<_>>(), ["a", "12", ""]);
    assert!(limited.iter().all(|frame| frame["error"]["code"] == "rate_limited"));
    rig.now = Mono(Duration::from_millis(59_999));
    rig.hear(&ask(1));
    rig.now = at(60);
    rig.hear(&ask(2));
    rig.hear(&ask(3));
    assert_eq!(rig.answers(), pairs(&[("1", "rate_limited"), ("2", "ok"), ("3", "rate_limited")]));
    rig.handle(Input::Bytes(&b"x".repeat(limits::API_LINE_BYTES + 1)));
    assert_eq!(rig.answers(), pairs(&[("", "rate_limited")]));
    assert_eq!(rig.closed.unwrap().0, close::TOO_LONG);
}

#[test]
fn the_accepted_answer_comes_before_what_its_run_has_said_meanwhile() {
    let mut server = Server::new(ServerConfig::default(), at(0));
    server.handle(Input::Bytes(b"{\"id\":1,\"method\":\"message.send\",\"params\":{\"text\":\"x\"}}\n{\"id\":2,\"method\":\"status.get\"}\n"), at(0));
    let Drained { events, writes, .. } = drain(|| server.poll());
    let [Asked { ticket, request: Request::Send { text, .. } }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((text.as_str(), writes.len()), ("x", 0));
    assert!(!server.wants_input(), "one request at a time");
    for event in [started(), typing(), delta("a")] {
        server.offer(*ticket, EventFrame::new(&event), at(0)).unwrap();
    }
    for _ in 3..16 {
        server.offer(*ticket, EventFrame::new(&delta("b")), at(0)).unwrap();
    }
    let full = server.offer(*ticket, EventFrame::new(&delta("c")), at(0));
    assert_eq!(full, Err(Unsent::Full(EventFrame::new(&delta("c")))), "what is held back is bounded");
    assert!(drain(|| server.poll()).writes.is_empty());
    server.answer(*ticket, &Answer::Accepted, at(0));
    let Drained { writes, events, .. } = drain(|| server.poll());
    assert_eq!(writes[0], r#"{"id":"1","result":{"accepted":true}}"#);
    assert!(writes[1].contains("run.started") && writes[2].contains("typing") && writes.len() == 17);
    assert!(matches!(events[..], [Asked { request: Request::Status, .. }]), "then the next request");
}

#[test]
fn a_refused_message_has_no_events() {
    let mut server = Server::new(ServerConfig::default(), at(0));
    server
        .handle(Input::Bytes(b"{\"id\":1,\"method\":\"message.send\",\"params\":{\"text\":\"x\"}}\n"), at(0));
    let ticket = drain(|| server.poll()).events[0].ticket;
    server.offer(ticket, EventFrame::new(&started()), at(0)).unwrap();
    let err = WireError::new(Code::Internal, "gateway unavailable");
    server.answer(ticket, &Answer::Refused(err), at(0));
    assert_eq!(drain(|| server.poll()).writes.len(), 1);
    assert_eq!(server.offer(ticket, EventFrame::new(&reply("x")), at(0)), Err(Unsent::Gone));
    server.answer(ticket, &Answer::Accepted, at(0));
    assert!(drain(|| server.poll()).writes.is_empty(), "an answer is given once");
}

#[test]
fn after_its_end_of_writing_a_client_gets_what_it_asked_for_and_then_the_end() {
    let mut rig = Rig::new();
    let ticket = rig.message();
    rig.handle(Input::Bytes(ask(2).as_bytes()));
    rig.handle(Input::End);
    assert_eq!(rig.answers(), pairs(&[("m", "ok"), ("2", "ok")]), "the last line needs no newline");
    assert!(rig.closed.is_none() && !rig.server.wants_input());
    rig.tick(at(3600));
    rig.offer(ticket, &delta("late")).unwrap();
    assert!(rig.closed.is_none());
    rig.offer(ticket, &reply("done")).unwrap();
    assert_eq!(rig.closed, Some((close::INVALID, "done".into())));
    assert_eq!(rig.take().len(), 2);
    assert_eq!(rig.offer(ticket, &delta("after")), Err(Unsent::Gone));

    let mut rig = Rig::new();
    let ticket = rig.message();
    rig.handle(Input::End);
    rig.server.abandon(ticket, at(1));
    rig.settle();
    assert!(rig.closed.is_some(), "a run without a reply keeps nobody");

    let mut rig = Rig::new();
    rig.handle(Input::End);
    assert!(rig.closed.is_some());

    let mut server = Server::new(ServerConfig::default(), at(0));
    server.handle(Input::Bytes(br#"{"id":1,"method":"message.send","params":{"text":"x"}}"#), at(0));
    server.handle(Input::End, at(0));
    let ticket = drain(|| server.poll()).events[0].ticket;
    server.offer(ticket, EventFrame::new(&reply("early")), at(0)).unwrap();
    server.abandon(ticket, at(0));
    server.answer(ticket, &Answer::Accepted, at(0));
    let writes = drain(|| server.poll()).writes;
    assert!(writes.len() == 2 && writes[1].contains("early"));
    server.handle(Input::Sent(1_000), at(0));
    assert!(drain(|| server.poll()).close.is_some(), "what is over before its answer keeps nobody either");
}

#[test]
fn a_client_that_is_gone_is_still_served_what_it_asked_for() {
    let mut rig = Rig::new();
    rig.handle(Input::Deaf);
    let ticket = rig.message();
    let other = rig.message();
    assert_ne!(ticket, other);
    assert!(rig.lines.is_empty());
    assert_eq!(rig.offer(ticket, &delta("x")), Err(Unsent::Gone));
    assert!(rig.closed.is_none());
    rig.handle(Input::End);
    assert!(rig.closed.is_some());
}

#[test]
fn requests_wait_while_their_answers_do() {
    let mut rig = Rig::new();
    rig.reads = false;
    let all: String = (0..3_000).map(|n| ask(n) + "\n").collect();
    rig.handle(Input::Bytes(all.as_bytes()));
    assert!(rig.lines.len() < limits::API_FRAMES && !rig.server.wants_input());
    assert!(rig.closed.is_none());
    let mut answered = Vec::new();
    while answered.len() < 3_000 {
        let lines = std::mem::take(&mut rig.lines);
        assert!(!lines.is_empty(), "{} answered", answered.len());
        let bytes = lines.iter().map(|line| line.len() + 1).sum();
        answered.extend(lines);
        rig.handle(Input::Sent(bytes));
    }
    for (n, line) in answered.iter().enumerate() {
        assert!(line.starts_with(&format!(r#"{{"id":"{n}","result""#)), "{line}");
    }
    assert!(rig.server.wants_input() && rig.closed.is_none());
}

#[test]
fn events_wait_for_room_and_none_is_lost() {
    let mut rig = Rig::new();
    let ticket = rig.message();
    rig.take();
    rig.reads = false;
    let line = "x".repeat(10_000);
    let mut taken = 0;
    let back = loop {
        match rig.offer(ticket, &delta(&line)) {
            Ok(()) => taken += 1,
            Err(Unsent::Full(back)) => break back,
            Err(Unsent::Gone) => panic!("gone"),
        }
    };
    let bytes = rig.lines.iter().map(|line| line.len() + 1).sum::<usize>();
    assert!(taken == rig.lines.len() && bytes <= limits::API_EVENT_BYTES && bytes > 1_000_000);
    rig.hear(&ask(5));
    assert!(rig.lines[taken].starts_with(r#"{"id":"5""#), "answers have their own room");
    rig.handle(Input::Sent(line.len() / 2));
    assert!(matches!(rig.offer(ticket, &delta(&line)), Err(Unsent::Full(_))), "not enough has left");
    rig.handle(Input::Sent(line.len()));
    assert_eq!(rig.server.offer(ticket, back, at(0)), Ok(()));
}

#[test]
fn many_small_events_and_one_large_one_have_room() {
    let mut rig = Rig::new();
    rig.reads = false;
    let ticket = rig.message();
    let taken = (0..).take_while(|_| rig.offer(ticket, &delta("x")).is_ok()).count();
    assert!((400..limits::API_FRAMES).contains(&taken), "{taken}");
    let lines = rig.lines.len();
    rig.offer(ticket, &typing()).unwrap();
    assert_eq!(rig.lines.len(), lines, "a hint is left out");
    rig.offer(ticket, &started()).unwrap();
    assert_eq!(rig.lines.len(), lines + 1);
    let mut rig = Rig::new();
    let ticket = rig.message();
    rig.reads = false;
    rig.offer(ticket, &delta(&"\0".repeat(1 << 20))).unwrap();
    assert!(matches!(rig.offer(ticket, &delta("x")), Err(Unsent::Full(_))));
    assert!(rig.closed.is_none());
}

#[test]
fn a_client_that_takes_no_frame_for_ten_seconds_is_given_up() {
    let mut rig = Rig::new();
    let ticket = rig.message();
    rig.reads = false;
    rig.now = at(100);
    rig.offer(ticket, &delta(&"x".repeat(100))).unwrap();
    for second in 101..110 {
        rig.now = at(second);
        rig.handle(Input::Sent(1));
        rig.tick(at(second));
        assert!(rig.closed.is_none(), "{second}");
    }
    rig.tick(at(110));
    assert_eq!(rig.closed, Some((close::INVALID, "it does not read".into())));
    assert_eq!(rig.offer(ticket, &delta("x")), Err(Unsent::Gone));
}

#[test]
fn a_client_that_was_full_takes_all_of_it_in_ten_seconds_or_is_given_up() {
    let slow = |frames_a_second: usize| {
        let mut rig = Rig::new();
        let ticket = rig.message();
        rig.reads = false;
        let mut second = 0;
        while rig.closed.is_none() && second < 60 {
            while rig.offer(ticket, &delta("line")).is_ok() {}
            second += 1;
            let frame = EventFrame::new(&delta("line")).line.len() + 1;
            rig.now = at(second);
            rig.handle(Input::Sent(frames_a_second * frame));
            rig.tick(at(second));
        }
        second
    };
    assert_eq!(slow(1), 10);
    assert_eq!(slow(40), 10);
    assert_eq!(slow(50), 60, "it keeps up");
}

#[test]
fn wake_ups_are_asked_for_what_waits() {
    let mut server = Server::new(ServerConfig::default(), at(0));
    assert_eq!(drain(|| server.poll()).wake, None);
    server.handle(Input::Bytes(b"x\n"), at(5));
    let drained = drain(|| server.poll());
    assert_eq!(drained.wake, Some(at(15)));
    server.handle(Input::Sent(drained.writes[0].len() + 1), at(6));
    server.handle(Input::Tick, at(15));
    assert_eq!(drain(|| server.poll()).wake, None);
}

#[test]
fn stopping_takes_no_more_requests_and_waits_for_the_replies() {
    let mut rig = Rig::new();
    let ticket = rig.message();
    rig.server.stop(at(1));
    rig.settle();
    rig.take();
    rig.hear(&ask(1));
    assert!(rig.lines.is_empty() && rig.closed.is_none());
    rig.offer(ticket, &reply("made it")).unwrap();
    assert_eq!(rig.take()[0]["text"], "made it");
    assert!(rig.closed.is_some());

    let mut rig = Rig::new();
    let ticket = rig.message();
    rig.reads = false;
    rig.offer(ticket, &reply("unread")).unwrap();
    rig.server.finish(at(3), at(1));
    rig.settle();
    assert!(rig.closed.is_none());
    rig.tick(at(3));
    assert_eq!(rig.closed, Some((close::INVALID, "the daemon stops".into())));
}

#[test]
fn only_a_client_that_waits_for_nothing_is_silent() {
    let mut rig = Rig::new();
    assert_eq!(rig.server.silent_since(), Some(at(0)));
    rig.now = at(5);
    let ticket = rig.message();
    assert_eq!(rig.server.silent_since(), None);
    rig.now = at(9);
    rig.offer(ticket, &reply("x")).unwrap();
    assert_eq!(rig.server.silent_since(), Some(at(9)));
    rig.take();
    let err = WireError::new(Code::TooManyConnections, "why");
    rig.server.dismiss(&err, at(20));
    rig.settle();
    assert_eq!(rig.answers(), pairs(&[("", "too_many_connections")]));
    assert!(rig.closed.is_some() && rig.server.silent_since().is_none());
}

#[test]
fn two_thousand_sessions_in_an_hour_leave_nothing_behind() {
    let mut clients = [(); 2].map(|()| Rig::with(ServerConfig::default()));
    let mut open = std::collections::VecDeque::new();
    for n in 0..2_000_u64 {
        let which = usize::try_from(n % 2).unwrap();
        let rig = &mut clients[which];
        rig.tick(Mono(Duration::from_millis(n * 1_800)));
        let session: SessionId = format!("s-{n}").parse().unwrap();
        rig.hear(
            &json!({ "id": n, "method": "message.send", "params": { "text": "x", "session_id": session } })
                .to_string(),
        );
        assert_eq!(rig.answers(), [(n.to_string(), "ok".to_owned())]);
        open.push_back((which, *rig.sent.last().unwrap(), session));
        // Each run is over four messages later.
        if open.len() > 4 {
            let (which, ticket, session) = open.pop_front().unwrap();
            let rig = &mut clients[which];
            rig.offer(ticket, &LocalEvent::ReplyDelta { session: session.clone(), line: "x".into() })
                .unwrap();
            rig.offer(ticket, &LocalEvent::Reply { session: session.clone(), text: "done".into() }).unwrap();
            let told = rig.take();
            assert!(told.iter().all(|frame| frame["session_id"] == session.as_str()) && told.len() == 2);
            rig.sent.clear();
            assert_eq!(rig.offer(ticket, &delta("x")), Err(Unsent::Gone));
        }
        let rig = &clients[which];
        assert!(rig.closed.is_none() && rig.server.wants_input());
    }
}
