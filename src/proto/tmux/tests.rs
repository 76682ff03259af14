use super::*;

const ID: &str = "tx_0123456789ab";
const RULE: &str = "────────────────────";

fn envelope() -> String {
    format!(
        "<transit from=\"jess@titan\" id=\"{ID}\" ts=\"t\" kind=\"dm\" schema=\"transit/1\">\nhello\n</transit>"
    )
}

fn job() -> Job {
    Job {
        id: ID.into(),
        envelope: envelope(),
        kind: Some(Kind::Claude),
        has_transcript: false,
        was_typed: false,
    }
}

fn free() -> Pane {
    Pane { in_mode: false, is_program: true, is_canonical: false }
}

fn claude(draft: &str) -> String {
    format!("{RULE}\n❯ {}\n{RULE}\n", draft.replace('\n', "\n  "))
}

/// Tells the machine what came of each step, and checks that it was that step.
fn play(job: Job, story: &[(&str, Told)]) -> Typing {
    let mut typing = Typing::new(job);
    for (at, (step, told)) in story.iter().enumerate() {
        while let Step::Wait(_) = typing.step() {
            typing.told(Told::Waited);
        }
        let is = match typing.step() {
            Step::Look => "look",
            Step::Read => "read",
            Step::Search => "search",
            Step::Paste(_) => "paste",
            Step::Enter => "enter",
            Step::Wait(_) => "wait",
            Step::Over(_) => "over",
        };
        assert_eq!(is, *step, "step {at}");
        typing.told(told.clone());
    }
    while let Step::Wait(_) = typing.step() {
        typing.told(Told::Waited);
    }
    typing
}

fn ends(typing: &Typing, verdict: Verdict) {
    assert_eq!(typing.step(), Step::Over(verdict));
}

fn look() -> (&'static str, Told) {
    ("look", Told::Pane(free()))
}

fn read(screen: &str) -> (&'static str, Told) {
    ("read", Told::Screen(screen.to_owned()))
}

fn done(step: &'static str) -> (&'static str, Told) {
    (step, Told::Done(true))
}

#[test]
fn a_free_composer_gets_a_paste_and_an_enter() {
    let typing = play(job(), &[look(), read(&claude("")), done("paste"), done("enter"), read(&claude(""))]);
    ends(&typing, Verdict::Seen);
    let unknown = || Job { kind: None, ..job() };
    let shown = envelope().replace("0123", "01\n23");
    ends(
        &play(unknown(), &[look(), read(""), done("paste"), done("enter"), read(""), read(&shown)]),
        Verdict::Seen,
    );
}

#[test]
fn nothing_is_typed_into_a_mode_another_program_or_a_draft() {
    let held = |pane: Pane, hold| {
        let typing = play(job(), &[("look", Told::Pane(pane))]);
        ends(&typing, Verdict::Held(hold));
        assert!(!typing.has_typed());
    };
    held(Pane { in_mode: true, ..free() }, Hold::Mode);
    held(Pane { is_program: false, ..free() }, Hold::Program);
    ends(&play(job(), &[look(), read(&claude("half a th"))]), Verdict::Held(Hold::Draft));
    let late = play(job(), &[look(), read(&claude("")), ("paste", Told::Done(false))]);
    ends(&late, Verdict::Held(Hold::Mode));
    assert!(!late.has_typed());
    let suggested = claude("\x1b[2mtry this\x1b[0m");
    assert!(matches!(play(job(), &[look(), read(&suggested)]).step(), Step::Paste(_)));
}

#[test]
fn enter_waits_for_the_person_to_leave_the_mode() {
    let story = [
        look(),
        read(&claude("")),
        done("paste"),
        ("enter", Told::Done(false)),
        done("enter"),
        read(&claude("")),
    ];
    ends(&play(job(), &story), Verdict::Seen);
}

#[test]
fn an_enter_that_did_nothing_is_pressed_once_more() {
    let mut story = vec![look(), read(&claude("")), done("paste"), done("enter")];
    story.extend((0..POLLS_BEFORE_ENTER).map(|_| read(&claude(&envelope()))));
    story.extend([read(&claude(&envelope())), done("enter"), read(&claude(""))]);
    ends(&play(job(), &story), Verdict::Seen);
    let story = [look(), read(&claude(&envelope())), done("enter"), read(&claude(""))];
    ends(&play(job(), &story), Verdict::Seen);
}

#[test]
fn what_a_terminal_cannot_take_is_refused_before_a_byte_is_typed() {
    let canonical = ("look", Told::Pane(Pane { is_canonical: true, ..free() }));
    let with_line = |bytes: usize| Job { envelope: "x".repeat(bytes), ..job() };
    let refused = play(with_line(CANONICAL_BYTES + 1), std::slice::from_ref(&canonical));
    ends(&refused, Verdict::Refused { code: "line_too_long", retryable: false });
    assert!(!refused.has_typed());
    assert_eq!(play(with_line(CANONICAL_BYTES), &[canonical]).step(), Step::Read);
    assert_eq!(play(with_line(100_000), &[look()]).step(), Step::Read);
}

#[test]
fn what_is_never_seen_is_typed_twice_at_most() {
    for (was_typed, retryable) in [(false, true), (true, false)] {
        let mut story = vec![look(), read(""), done("paste"), done("enter")];
        story.extend((0..POLLS).map(|_| read("")));
        let job = Job { kind: None, was_typed, ..job() };
        ends(&play(job, &story), Verdict::Refused { code: "not_seen", retryable });
    }
    // What stands there from before is not typed again.
    ends(&play(Job { kind: None, ..job() }, &[look(), read(&envelope())]), Verdict::Seen);
}

#[test]
fn with_a_transcript_only_that_counts() {
    let job = || Job { has_transcript: true, ..job() };
    let search = |searched| ("search", Told::Searched(searched));
    ends(&play(job(), &[look(), search(Searched::Found)]), Verdict::Kept);
    let story = [
        look(),
        search(Searched::Absent),
        read(&claude("")),
        done("paste"),
        done("enter"),
        search(Searched::Unreadable),
        search(Searched::Absent),
        search(Searched::Found),
    ];
    ends(&play(job(), &story), Verdict::Kept);
    let mut story = story[..5].to_vec();
    story.extend((0..POLLS_OF_TRANSCRIPT).map(|_| search(Searched::Absent)));
    ends(&play(job(), &story), Verdict::Refused { code: "transcript_timeout", retryable: true });
}

#[test]
fn nothing_for_the_terminal_itself_gets_through() {
    let typing = play(Job { envelope: "a\x1b[201~\rb\x03".into(), kind: None, ..job() }, &[look(), read("")]);
    assert_eq!(typing.step(), Step::Paste("a\u{fffd}[201~\nb\u{fffd}".into()));
}

#[test]
fn a_pane_is_free_when_nobody_is_in_the_way() {
    assert!(is_free(Some(Kind::Claude), &free(), &claude("")));
    assert!(!is_free(Some(Kind::Claude), &free(), &claude("a")));
    assert!(!is_free(None, &Pane { in_mode: true, ..free() }, ""));
    assert!(is_free(None, &free(), "anything"));
}
