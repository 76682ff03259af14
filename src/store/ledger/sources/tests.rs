//! Sources: their rules, their secrets, and what is kept apart.

use super::*;
use crate::store::ledger::directory;
use crate::store::ledger::tests::{code, with_org};

const NOW: Wall = Wall(1_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn key(n: u8) -> MasterKey {
    use base64::Engine as _;
    MasterKey::from_base64(&base64::engine::general_purpose::STANDARD.encode([n; 32])).unwrap()
}

fn secret(text: &str) -> Secret {
    Secret::new(text).unwrap()
}

fn new(name: &str) -> NewSource {
    NewSource {
        name: name.parse().unwrap(),
        target_addr: "bob@demo".parse().unwrap(),
        reply_url: None,
        prefixes: vec![],
        secret: secret("one"),
        rate: 5,
        burst: 20,
        instructions: None,
    }
}

fn shown(row: &SourceRow, now: Wall) -> Vec<(i64, String)> {
    let secrets = row.secrets(&key(1), now).unwrap();
    secrets.into_iter().map(|found| (found.number, found.secret.expose().to_owned())).collect()
}

#[test]
fn a_source_is_found_again_as_it_was_made() {
    with_org(|tx, org| {
        let org = org.id.as_str();
        let mut wanted = new("ci");
        wanted.prefixes = vec!["https://h.example/in/".parse().unwrap(), "http://h:1/".parse().unwrap()];
        wanted.reply_url = Some("https://h.example/in/a".into());
        wanted.instructions = Some("Be brief.".into());
        let made = create(tx, org, &wanted, &key(1), NOW).unwrap();
        assert_eq!(made.prefixes, wanted.prefixes);
        assert_eq!(get(tx, org, "ci").unwrap().as_ref(), Some(&made));
        assert_eq!(by_id(tx, org, &made.integration_id).unwrap().as_ref(), Some(&made));
        assert_eq!(list(tx, org).unwrap(), std::slice::from_ref(&made));
        assert_eq!(active_by_name(tx, "ci").unwrap(), [made]);
        assert_eq!(code(create(tx, org, &wanted, &key(1), NOW)), "source_exists");
    });
}

#[test]
fn names_and_reply_addresses_keep_their_rules() {
    with_org(|tx, org| {
        let org = org.id.as_str();
        for name in BUILT_IN_CONNECTORS {
            assert_eq!(code(create(tx, org, &new(name), &key(1), NOW)), "reserved_name");
        }
        let mut outside = new("ci");
        outside.reply_url = Some("https://h.example/in/a".into());
        assert_eq!(code(create(tx, org, &outside, &key(1), NOW)), "bad_reply_url");
        assert_eq!(code(set_paused(tx, org, &outside.name, true, NOW)), "not_found");
        assert_eq!(code(delete(tx, org, &outside.name)), "not_found");
    });
}

#[test]
fn an_old_secret_is_good_for_its_overlap_and_signs_the_replies_of_its_events() {
    with_org(|tx, org| {
        let org = org.id.as_str();
        let made = create(tx, org, &new("ci"), &key(1), NOW).unwrap();
        assert_eq!(shown(&made, NOW), [(1, "one".to_owned())]);
        let rotate = |text| rotate(tx, org, &made.name, (&key(1), &secret(text)), DAY, NOW).unwrap();
        let row = rotate("two");
        let last = Wall((NOW + DAY).0 - 1);
        assert_eq!(shown(&row, last), [(2, "two".to_owned()), (1, "one".to_owned())]);
        assert_eq!(shown(&row, NOW + DAY), [(2, "two".to_owned())]);
        let signs = |row: &SourceRow, number, at| row.reply_secret(&key(1), number, at).unwrap();
        assert!(signs(&row, 1, last).matches("one"));
        assert!(signs(&row, 1, NOW + DAY).matches("two"), "a secret that is out is replaced");
        let row = rotate("three");
        assert_eq!(shown(&row, NOW), [(3, "three".to_owned()), (2, "two".to_owned())]);
        assert!(signs(&row, 1, NOW).matches("three"));
    });
}

#[test]
fn another_master_key_is_noticed() {
    with_org(|tx, org| {
        let org = org.id.as_str();
        check_key(tx, &key(1)).unwrap();
        let made = create(tx, org, &new("ci"), &key(1), NOW).unwrap();
        check_key(tx, &key(1)).unwrap();
        assert!(matches!(check_key(tx, &key(2)), Err(StoreError::Sealed)));
        assert!(matches!(made.secrets(&key(2), NOW), Err(StoreError::Sealed)));
    });
}

#[test]
fn a_paused_or_deleted_source_takes_no_events() {
    with_org(|tx, org| {
        let org = org.id.as_str();
        let made = create(tx, org, &new("ci"), &key(1), NOW).unwrap();
        assert!(set_paused(tx, org, &made.name, true, NOW).unwrap().paused);
        assert!(active_by_name(tx, "ci").unwrap().is_empty());
        assert!(!set_paused(tx, org, &made.name, false, NOW).unwrap().paused);
        assert_eq!(active_by_name(tx, "ci").unwrap().len(), 1);
        delete(tx, org, &made.name).unwrap();
        assert!(active_by_name(tx, "ci").unwrap().is_empty());
        let again = create(tx, org, &new("ci"), &key(1), NOW).unwrap();
        assert_ne!(again.integration_id, made.integration_id);
    });
}

#[test]
fn an_update_changes_what_it_names_and_never_leaves_a_reply_address_outside_its_prefixes() {
    with_org(|tx, org| {
        let org = org.id.as_str();
        let mut wanted = new("ci");
        wanted.prefixes = vec!["https://h.example/in/".parse().unwrap()];
        wanted.reply_url = Some("https://h.example/in/a".into());
        let made = create(tx, org, &wanted, &key(1), NOW).unwrap();
        let update = |change| update(tx, org, &made.name, &change, Wall(NOW.0 + 1));
        let row = update(SourceChange { rate: Some(9), ..SourceChange::default() }).unwrap();
        assert_eq!(row, SourceRow { rate: 9, updated_at: Wall(NOW.0 + 1), ..made.clone() });
        let elsewhere = || Some(vec!["https://other.example/".parse().unwrap()]);
        let moved = SourceChange { prefixes: elsewhere(), ..SourceChange::default() };
        assert_eq!(code(update(moved)), "bad_reply_url");
        let cleared =
            SourceChange { prefixes: elsewhere(), reply_url: Some(None), ..SourceChange::default() };
        let row = update(cleared).unwrap();
        assert_eq!((row.reply_url, row.prefixes.len()), (None, 1));
    });
}

#[test]
fn organisations_do_not_see_each_others_sources() {
    with_org(|tx, org| {
        let org = org.id.as_str();
        let other = directory::create_org(tx, &"other".parse().unwrap(), "Other").unwrap();
        let mine = create(tx, org, &new("ci"), &key(1), NOW).unwrap();
        assert!(get(tx, &other.id, "ci").unwrap().is_none());
        assert!(by_id(tx, &other.id, &mine.integration_id).unwrap().is_none());
        assert_eq!(code(delete(tx, &other.id, &mine.name)), "not_found");
        create(tx, &other.id, &new("ci"), &key(1), NOW).unwrap();
        assert_eq!(active_by_name(tx, "ci").unwrap().len(), 2);
    });
}
