use super::*;
use crate::store::ledger::passed::SaidMessage;

const ORG: &str = "org_1";

fn at(s: u64) -> Mono {
    Mono(Duration::from_secs(s))
}

fn dm<'a>(from: &'a str, to: &'a str, id: &'a str) -> Passing<'a> {
    Passing { org_id: ORG, from, to, id, reply_to: None }
}

#[test]
fn what_the_ledger_tells_makes_the_same_guard() {
    let said = |s: u64, to: &str, from: Option<(&str, &str)>| {
        let message =
            from.map(|(from, id)| SaidMessage { id: id.to_owned(), from: from.to_owned(), reply_to: None });
        (at(s), Said { at: Wall(0), org_id: ORG.to_owned(), to: to.to_owned(), message })
    };
    let mut guard = Guard::new(2, Duration::from_secs(600), RandomState::new());
    let history = [
        said(0, "b@y", Some(("a@x", "1"))),
        said(1, "b@y", Some(("a@x", "2"))),
        said(2, "b@y", None),
        said(3, "b@y", Some(("a@x", "3"))),
        said(4, "a@x", Some((SYSTEM, "4"))),
        said(5, "b@y", Some(("a@x", "5"))),
        said(6, "#ops", Some(("a@x", "6"))),
        said(7, "#ops", Some((OPERATOR, "7"))),
        said(8, "#ops", Some(("a@x", "8"))),
    ];
    for (at, said) in &history {
        replay(&mut guard, said, *at);
    }
    assert!(guard.pass(dm("a@x", "b@y", "9"), None, at(9)).is_err());
    guard.pass(dm("a@x", "#ops", "10"), Some(2), at(9)).unwrap();
    assert!(guard.pass(dm("a@x", "#ops", "11"), Some(2), at(9)).is_err());
}
