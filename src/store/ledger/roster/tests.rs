use super::*;
use crate::store::ledger::{Db, credentials, directory};

const START: Wall = Wall(1_700_000_000_000);

/// An agent of this name.
pub(crate) fn agent(name: &str, status: &str) -> AgentInfo {
    AgentInfo {
        name: name.into(),
        kind: "program".into(),
        pane_id: "p".into(),
        status: status.into(),
        cwd: "/".into(),
        title: "t".into(),
        named_by: NamedBy::Auto,
    }
}

/// Enrols a host whose agents are these.
pub(crate) fn enrol(
    tx: &Tx<'_>,
    org_id: &str,
    host: &str,
    agents: &[AgentInfo],
    now: Wall,
) -> Result<(), StoreError> {
    let code = credentials::code_hash(&format!("{org_id} {host}"));
    directory::issue_code(tx, org_id, &host.parse().unwrap(), &code, now)?;
    directory::redeem_code(tx, &code, &format!("token of {org_id} {host}"), "1", now)?.unwrap();
    replace(tx, org_id, host, agents, now)
}

#[test]
fn the_newest_roster_counts_and_the_absent_are_known_for_a_day() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("w.db")).unwrap();
    db.write(|tx| {
        let org = directory::org(tx, "default")?.unwrap().id;
        enrol(tx, &org, "titan", &[agent("jess", "idle"), agent("mel", "idle")], START)?;
        let later = START + std::time::Duration::from_secs(60);
        replace(tx, &org, "titan", &[agent("jess", "idle")], later)?;
        assert_eq!(list(tx, &org, None)?[0].updated_at, START, "nothing about it changed");
        replace(tx, &org, "titan", &[agent("jess", "working")], later)?;
        let listed = list(tx, &org, Some("titan"))?;
        assert_eq!(
            (listed.len(), &listed[0].info, listed[0].updated_at),
            (1, &agent("jess", "working"), later)
        );
        assert!(list(tx, &org, Some("other"))?.is_empty());
        assert_eq!(panes(tx, &org, "titan")?, [("jess".to_owned(), "p".to_owned())]);
        assert!(is_known(tx, &org, "titan", "mel")? && !is_known(tx, &org, "titan", "eve")?);
        replace(tx, &org, "titan", &[], START + DELIVERY_TTL)?;
        assert!(!is_known(tx, &org, "titan", "mel")? && is_known(tx, &org, "titan", "jess")?);
        directory::revoke_host(tx, &org, &"titan".parse().unwrap(), later)?;
        assert!(!is_known(tx, &org, "titan", "jess")?);
        Ok(())
    })
    .unwrap();
}
