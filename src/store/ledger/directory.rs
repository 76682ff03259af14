//! Organisations, their hosts, and how a host comes in: by a code that is used once.

use super::{Refusal, Row, StoreError, Tx, values};
use crate::addr::{Host, Slug};
use crate::clock::Wall;
use crate::id::IdKind;
use crate::limits::ENROLL_TTL;

/// An organisation: nothing of one is visible to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgRow {
    /// `org_…`.
    pub id: String,
    /// Its short name, unique in the ledger.
    pub slug: Slug,
    /// What people call it.
    pub name: String,
}

impl OrgRow {
    const COLUMNS: &str = "id, slug, name";

    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self { id: row.get(0)?, slug: row.parsed(1)?, name: row.get(2)? })
    }
}

/// A host that is, or was, enrolled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRow {
    /// `hst_…`; it stays the same when a revoked host is enrolled again.
    pub id: String,
    /// Its organisation.
    pub org_id: String,
    /// Its name, unique in its organisation.
    pub slug: Host,
    /// The version of its daemon, as that said last.
    pub daemon_ver: String,
    /// When it was first enrolled.
    pub created_at: Wall,
    /// When its daemon was last heard of.
    pub last_seen_at: Option<Wall>,
    /// Since when its token is worth nothing.
    pub revoked_at: Option<Wall>,
}

impl HostRow {
    const COLUMNS: &str = "id, org_id, slug, daemon_ver, created_at, last_seen_at, revoked_at";

    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.get(0)?,
            org_id: row.get(1)?,
            slug: row.parsed(2)?,
            daemon_ver: row.get(3)?,
            created_at: row.get(4)?,
            last_seen_at: row.get(5)?,
            revoked_at: row.get(6)?,
        })
    }
}

/// What a redeemed code gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redeemed {
    /// The organisation's id.
    pub org_id: String,
    /// The organisation's slug.
    pub org_slug: Slug,
    /// The host's id.
    pub host_id: String,
    /// The host's name.
    pub host: Host,
}

/// The slug of the organisation that a fresh ledger holds.
const DEFAULT_ORG: &str = "default";

/// Makes an organisation.
///
/// # Errors
/// [`Refusal::OrganisationExists`] when the slug is taken.
pub fn create_org(tx: &Tx<'_>, slug: &Slug, name: &str) -> Result<OrgRow, StoreError> {
    let made = tx.one(
        "INSERT INTO organisation (id, slug, name) VALUES (?1, ?2, ?3)
         ON CONFLICT (slug) DO NOTHING RETURNING id, slug, name",
        values![IdKind::Organisation.fresh(), slug.as_str(), name],
        OrgRow::read,
    )?;
    Ok(made.ok_or_else(|| Refusal::OrganisationExists { slug: slug.to_string() })?)
}

/// All organisations, by slug.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list_orgs(tx: &Tx<'_>) -> Result<Vec<OrgRow>, StoreError> {
    tx.all(&format!("SELECT {} FROM organisation ORDER BY slug", OrgRow::COLUMNS), &[], OrgRow::read)
}

/// The organisation with this id or slug.
///
/// # Errors
/// When the ledger cannot be read.
pub fn org(tx: &Tx<'_>, id_or_slug: &str) -> Result<Option<OrgRow>, StoreError> {
    // A slug has no underscore and an id has one, so that at most one row matches.
    let sql = format!("SELECT {} FROM organisation WHERE id = ?1 OR slug = ?1", OrgRow::COLUMNS);
    tx.one(&sql, values![id_or_slug], OrgRow::read)
}

/// The organisation that a fresh ledger holds.
///
/// # Errors
/// When the ledger cannot be read, or somebody has renamed it.
pub fn default_org(tx: &Tx<'_>) -> Result<OrgRow, StoreError> {
    org(tx, DEFAULT_ORG)?.ok_or_else(|| Refusal::not_found("organisation", DEFAULT_ORG).into())
}

/// Stores a code that enrols `host` until the answered time. Older unused codes for it are void.
///
/// # Errors
/// [`Refusal::HostExists`] when a host of that name is enrolled and not revoked.
pub fn issue_code(
    tx: &Tx<'_>,
    org_id: &str,
    host: &Host,
    code_hash: &str,
    now: Wall,
) -> Result<Wall, StoreError> {
    let enrolled = "SELECT 1 FROM host WHERE org_id = ?1 AND slug = ?2 AND revoked_at IS NULL";
    if tx.one(enrolled, values![org_id, host.as_str()], |_| Ok(()))?.is_some() {
        return Err(Refusal::HostExists { host: host.to_string() }.into());
    }
    let expires_at = now + ENROLL_TTL;
    tx.execute("DELETE FROM enroll_code WHERE expires_at <= ?1", values![now])?;
    tx.execute(
        "INSERT INTO enroll_code (code_hash, org_id, host, expires_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (org_id, host) DO UPDATE
         SET code_hash = excluded.code_hash, expires_at = excluded.expires_at",
        values![code_hash, org_id, host.as_str(), expires_at],
    )?;
    Ok(expires_at)
}

/// Uses a code up and gives its host the new token. `None` when the code is wrong, used, voided or expired; a
/// caller tells these apart for nobody.
///
/// # Errors
/// When the ledger cannot be changed; the code is then still good.
pub fn redeem_code(
    tx: &Tx<'_>,
    code_hash: &str,
    token_hash: &str,
    daemon_ver: &str,
    now: Wall,
) -> Result<Option<Redeemed>, StoreError> {
    let used = tx.one(
        "DELETE FROM enroll_code WHERE code_hash = ?1 AND expires_at > ?2 RETURNING org_id, host",
        values![code_hash, now],
        |row| Ok((row.get::<String>(0)?, row.parsed::<Host>(1)?)),
    )?;
    let Some((org_id, host)) = used else { return Ok(None) };
    let enrolled = tx.one(
        "INSERT INTO host (id, org_id, slug, token_hash, daemon_ver, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (org_id, slug) DO UPDATE
         SET token_hash = excluded.token_hash, daemon_ver = excluded.daemon_ver, revoked_at = NULL
         WHERE host.revoked_at IS NOT NULL
         RETURNING id, (SELECT slug FROM organisation WHERE organisation.id = org_id)",
        values![IdKind::Host.fresh(), &org_id, host.as_str(), token_hash, daemon_ver, now],
        |row| Ok((row.get(0)?, row.parsed(1)?)),
    )?;
    Ok(enrolled.map(|(host_id, org_slug)| Redeemed { org_id, org_slug, host_id, host }))
}

/// The host that holds the token with this hash, unless it was revoked.
///
/// # Errors
/// When the ledger cannot be read.
pub fn host_by_token(tx: &Tx<'_>, token_hash: &str) -> Result<Option<HostRow>, StoreError> {
    let sql = format!("SELECT {} FROM host WHERE token_hash = ?1 AND revoked_at IS NULL", HostRow::COLUMNS);
    tx.one(&sql, values![token_hash], HostRow::read)
}

/// The host of this name, revoked or not.
///
/// # Errors
/// When the ledger cannot be read.
pub fn host(tx: &Tx<'_>, org_id: &str, slug: &Host) -> Result<Option<HostRow>, StoreError> {
    let sql = format!("SELECT {} FROM host WHERE org_id = ?1 AND slug = ?2", HostRow::COLUMNS);
    tx.one(&sql, values![org_id, slug.as_str()], HostRow::read)
}

/// All hosts of an organisation, by name, the revoked ones too.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list_hosts(tx: &Tx<'_>, org_id: &str) -> Result<Vec<HostRow>, StoreError> {
    let sql = format!("SELECT {} FROM host WHERE org_id = ?1 ORDER BY slug", HostRow::COLUMNS);
    tx.all(&sql, values![org_id], HostRow::read)
}

/// Notes that the daemon of a host, of this version, was heard of.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn saw_host(
    tx: &Tx<'_>,
    org_id: &str,
    host_id: &str,
    daemon_ver: &str,
    now: Wall,
) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE host SET daemon_ver = ?3, last_seen_at = ?4 WHERE org_id = ?1 AND id = ?2",
        values![org_id, host_id, daemon_ver, now],
    )?;
    Ok(())
}

/// Takes a host's token and its unused code away. A host that is revoked already stays so since when it was.
///
/// # Errors
/// [`Refusal::NotFound`] when there is no such host.
pub fn revoke_host(tx: &Tx<'_>, org_id: &str, slug: &Host, now: Wall) -> Result<HostRow, StoreError> {
    let sql = format!(
        "UPDATE host SET token_hash = NULL, revoked_at = COALESCE(revoked_at, ?3)
         WHERE org_id = ?1 AND slug = ?2 RETURNING {}",
        HostRow::COLUMNS
    );
    let revoked = tx.one(&sql, values![org_id, slug.as_str(), now], HostRow::read)?;
    let host = revoked.ok_or_else(|| Refusal::not_found("host", slug))?;
    tx.execute("DELETE FROM enroll_code WHERE org_id = ?1 AND host = ?2", values![org_id, slug.as_str()])?;
    tx.directory_changed();
    Ok(host)
}

/// Notes the address under which the Worker is reached, so that commands beside it can name it.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn set_public_url(tx: &Tx<'_>, url: &str) -> Result<(), StoreError> {
    tx.execute(
        "INSERT INTO setting (name, value) VALUES ('public_url', ?1)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        values![url],
    )?;
    Ok(())
}

/// Changes nothing that matters, to see whether the ledger takes changes.
///
/// # Errors
/// When the ledger cannot be changed.
pub fn touch(tx: &Tx<'_>) -> Result<(), StoreError> {
    tx.execute(
        "INSERT INTO setting (name, value) VALUES ('touched', '0')
         ON CONFLICT (name) DO UPDATE SET value = CASE setting.value WHEN '0' THEN '1' ELSE '0' END",
        &[],
    )?;
    Ok(())
}

/// The address under which the Worker is, or was last, reached.
///
/// # Errors
/// When the ledger cannot be read.
pub fn public_url(tx: &Tx<'_>) -> Result<Option<String>, StoreError> {
    tx.one("SELECT value FROM setting WHERE name = 'public_url'", &[], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ledger::tests::{code, with_org};

    const NOW: Wall = Wall(1_000_000);

    fn titan() -> Host {
        "titan".parse().unwrap()
    }

    #[test]
    fn an_organisation_is_found_by_id_and_by_slug() {
        with_org(|tx, default| {
            let made = create_org(tx, &"acme".parse().unwrap(), "Acme & Co").unwrap();
            assert_eq!(org(tx, "acme").unwrap().as_ref(), Some(&made));
            assert_eq!(org(tx, &made.id).unwrap().as_ref(), Some(&made));
            assert_eq!(org(tx, "none").unwrap(), None);
            assert_eq!(list_orgs(tx).unwrap(), [made.clone(), default.clone()]);
            assert_eq!(code(create_org(tx, &made.slug, "Again")), "org_exists");
        });
    }

    #[test]
    fn the_latest_address_is_the_one_that_is_told() {
        with_org(|tx, _| {
            assert_eq!(public_url(tx).unwrap(), None);
            set_public_url(tx, "http://127.0.0.1:1").unwrap();
            set_public_url(tx, "https://t.example").unwrap();
            assert_eq!(public_url(tx).unwrap().as_deref(), Some("https://t.example"));
        });
    }

    #[test]
    fn a_code_is_good_once_and_until_it_expires() {
        with_org(|tx, org| {
            let until = issue_code(tx, &org.id, &titan(), "c1", NOW).unwrap();
            assert_eq!(until, NOW + ENROLL_TTL);
            let redeem = |code, at| redeem_code(tx, code, "t1", "1.0", at).unwrap();
            assert_eq!(redeem("c1", until), None, "expired");
            assert_eq!(redeem("wrong", NOW), None);
            let got = redeem("c1", Wall(until.0 - 1)).unwrap();
            assert_eq!((got.host, got.org_slug, got.org_id), (titan(), org.slug.clone(), org.id.clone()));
            assert_eq!(redeem("c1", NOW), None, "used");
            let row = host_by_token(tx, "t1").unwrap().unwrap();
            assert_eq!((row.id, row.daemon_ver.as_str(), row.last_seen_at), (got.host_id, "1.0", None));
            assert_eq!(code(issue_code(tx, &org.id, &titan(), "c2", NOW)), "host_exists");
        });
    }

    #[test]
    fn a_newer_code_voids_the_older_one_of_the_same_host_only() {
        with_org(|tx, org| {
            let other = "other".parse().unwrap();
            issue_code(tx, &org.id, &titan(), "c1", NOW).unwrap();
            issue_code(tx, &org.id, &other, "o1", NOW).unwrap();
            issue_code(tx, &org.id, &titan(), "c2", NOW).unwrap();
            assert!(redeem_code(tx, "c1", "t1", "1", NOW).unwrap().is_none());
            assert!(redeem_code(tx, "c2", "t1", "1", NOW).unwrap().is_some());
            assert!(redeem_code(tx, "o1", "t2", "1", NOW).unwrap().is_some());
        });
    }

    #[test]
    fn a_revoked_host_has_no_token_and_keeps_its_id_when_it_comes_back() {
        with_org(|tx, org| {
            issue_code(tx, &org.id, &titan(), "c1", NOW).unwrap();
            let first = redeem_code(tx, "c1", "t1", "1", NOW).unwrap().unwrap();
            saw_host(tx, &org.id, &first.host_id, "1.1", NOW).unwrap();
            let revoked = revoke_host(tx, &org.id, &titan(), NOW).unwrap();
            assert_eq!((revoked.revoked_at, revoked.daemon_ver.as_str()), (Some(NOW), "1.1"));
            assert!(host_by_token(tx, "t1").unwrap().is_none());
            let later = Wall(NOW.0 + 1);
            assert_eq!(revoke_host(tx, &org.id, &titan(), later).unwrap().revoked_at, Some(NOW));
            issue_code(tx, &org.id, &titan(), "c2", NOW).unwrap();
            let second = redeem_code(tx, "c2", "t2", "2", NOW).unwrap().unwrap();
            assert_eq!(second.host_id, first.host_id);
            assert!(host_by_token(tx, "t1").unwrap().is_none());
            assert_eq!(host_by_token(tx, "t2").unwrap().unwrap().revoked_at, None);
            assert_eq!(list_hosts(tx, &org.id).unwrap().len(), 1);
        });
    }

    #[test]
    fn revoking_voids_a_waiting_code_and_an_unknown_host_is_told() {
        with_org(|tx, org| {
            assert_eq!(code(revoke_host(tx, &org.id, &titan(), NOW)), "not_found");
            issue_code(tx, &org.id, &titan(), "c1", NOW).unwrap();
            redeem_code(tx, "c1", "t1", "1", NOW).unwrap().unwrap();
            revoke_host(tx, &org.id, &titan(), NOW).unwrap();
            issue_code(tx, &org.id, &titan(), "c2", NOW).unwrap();
            revoke_host(tx, &org.id, &titan(), NOW).unwrap();
            assert!(redeem_code(tx, "c2", "t2", "1", NOW).unwrap().is_none());
        });
    }

    #[test]
    fn organisations_do_not_see_each_others_hosts() {
        with_org(|tx, org| {
            let other = create_org(tx, &"other".parse().unwrap(), "Other").unwrap();
            issue_code(tx, &org.id, &titan(), "c1", NOW).unwrap();
            issue_code(tx, &other.id, &titan(), "c2", NOW).unwrap();
            let mine = redeem_code(tx, "c1", "t1", "1", NOW).unwrap().unwrap();
            let theirs = redeem_code(tx, "c2", "t2", "1", NOW).unwrap().unwrap();
            assert_ne!(mine.host_id, theirs.host_id);
            revoke_host(tx, &other.id, &titan(), NOW).unwrap();
            assert!(host(tx, &org.id, &titan()).unwrap().unwrap().revoked_at.is_none());
            saw_host(tx, &other.id, &mine.host_id, "x", NOW).unwrap();
            assert_eq!(host(tx, &org.id, &titan()).unwrap().unwrap().last_seen_at, None);
        });
    }
}
