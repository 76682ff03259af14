//! People who sign in to the control plane, each with an organisation of their own.

use super::{Refusal, Row, StoreError, Tx, values};
use crate::addr::Slug;
use crate::clock::Wall;
use crate::id::fill_random;

/// A person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRow {
    /// 32 letters and digits. The person's own organisation has the same id.
    pub id: String,
    /// What they are called.
    pub name: String,
    /// Their address, in lower case.
    pub email: String,
    /// When they were made.
    pub created_at: Wall,
}

impl UserRow {
    fn read(row: &Row<'_>) -> Result<Self, StoreError> {
        Ok(Self { id: row.get(0)?, name: row.get(1)?, email: row.get(2)?, created_at: row.get(3)? })
    }
}

/// What a new person is made of.
#[derive(Debug, Clone)]
pub struct NewUser {
    /// What they are called.
    pub name: String,
    /// Their address; one in another case is the same.
    pub email: String,
    /// What is kept of their password, from [`password::hash`](crate::store::password::hash).
    pub password: String,
    /// What the slug of their organisation begins with. It is that, or with a number behind it when that is taken.
    pub slug: Slug,
}

/// Makes a person, with the organisation that is theirs: it has their id, and they own it. That they can be reached at
/// their address is the operator's word.
///
/// # Errors
/// [`Refusal::UserExists`] when the address is somebody's.
pub fn create(tx: &Tx<'_>, new: &NewUser, now: Wall) -> Result<UserRow, StoreError> {
    let (id, email) = (fresh_id(), new.email.to_lowercase());
    let made = tx.one(
        "INSERT INTO users (id, name, email, email_verified, created_at, updated_at)
         VALUES (?1, ?2, ?3, 1, ?4, ?4)
         ON CONFLICT (email) DO NOTHING RETURNING id, name, email, created_at",
        values![&id, &new.name, &email, now],
        UserRow::read,
    )?;
    let user = made.ok_or(Refusal::UserExists { email })?;
    tx.execute(
        "INSERT INTO account (id, account_id, provider_id, user_id, password, created_at, updated_at)
         VALUES (?1, ?2, 'credential', ?2, ?3, ?4, ?4)",
        values![fresh_id(), &id, &new.password, now],
    )?;
    tx.execute(
        "INSERT INTO organisation (id, slug, name) VALUES (?1, ?2, ?3)",
        values![&id, free_slug(tx, &new.slug)?, &new.name],
    )?;
    tx.execute(
        "INSERT INTO member (id, organization_id, user_id, role, created_at) VALUES (?1, ?2, ?2, 'owner', ?3)",
        values![fresh_id(), &id, now],
    )?;
    Ok(user)
}

/// All people, by their addresses.
///
/// # Errors
/// When the ledger cannot be read.
pub fn list(tx: &Tx<'_>) -> Result<Vec<UserRow>, StoreError> {
    tx.all("SELECT id, name, email, created_at FROM users ORDER BY email", &[], UserRow::read)
}

/// Longest slug, in bytes.
const SLUG_BYTES: usize = 32;

fn free_slug(tx: &Tx<'_>, wanted: &Slug) -> Result<String, StoreError> {
    let is_taken = |slug: &str| {
        let taken = tx.one("SELECT 1 FROM organisation WHERE slug = ?1", values![slug], |_| Ok(()))?;
        Ok::<_, StoreError>(taken.is_some())
    };
    let mut slug = wanted.to_string();
    let mut number = 2_u32;
    while is_taken(&slug)? {
        let suffix = format!("-{number}");
        let kept = wanted.as_str().len().min(SLUG_BYTES - suffix.len());
        slug = format!("{}{suffix}", wanted.as_str()[..kept].trim_end_matches('-'));
        number += 1;
    }
    Ok(slug)
}

/// An id as Better Auth makes them. One that could be a slug would make it unclear which organisation is meant, so that
/// it has a capital.
fn fresh_id() -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    loop {
        let mut bytes = [0; 64];
        fill_random(&mut bytes);
        // What is beyond a whole number of alphabets would make the first letters more frequent.
        let whole = bytes.iter().filter(|&&byte| usize::from(byte) < 4 * LETTERS.len());
        let id: String =
            whole.map(|&byte| char::from(LETTERS[usize::from(byte) % LETTERS.len()])).take(32).collect();
        if id.len() == 32 && id.contains(|c: char| c.is_ascii_uppercase()) {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ledger::directory;
    use crate::store::ledger::tests::{code, with_org};

    fn new(email: &str, slug: &str) -> NewUser {
        NewUser {
            name: "Ada L".into(),
            email: email.into(),
            password: "s:k".into(),
            slug: slug.parse().unwrap(),
        }
    }

    #[test]
    fn a_person_owns_an_organisation_with_the_same_id() {
        with_org(|tx, _| {
            let user = create(tx, &new("Ada@Example.org", "ada"), Wall(7)).unwrap();
            assert_eq!((user.email.as_str(), user.id.len()), ("ada@example.org", 32));
            let org = directory::org(tx, &user.id).unwrap().unwrap();
            assert_eq!((org.slug.as_str(), org.name.as_str()), ("ada", "Ada L"));
            let signs_in = tx.one(
                "SELECT a.password FROM account a JOIN member m ON m.user_id = a.user_id AND m.role = 'owner'
                 WHERE a.provider_id = 'credential' AND a.account_id = ?1 AND m.organization_id = ?1",
                values![&user.id],
                |row| row.get::<String>(0),
            );
            assert_eq!(signs_in.unwrap().as_deref(), Some("s:k"));
            assert_eq!(code(create(tx, &new("ADA@example.org", "ada"), Wall(8))), "user_exists");
            assert_eq!(list(tx).unwrap(), [user]);
        });
    }

    #[test]
    fn a_slug_that_is_taken_gets_a_number() {
        with_org(|tx, _| {
            let long = "a".repeat(32);
            for (n, slug, made) in [
                (1, "ada", "ada".to_owned()),
                (2, "ada", "ada-2".to_owned()),
                (3, "ada", "ada-3".to_owned()),
                (4, &long, long.clone()),
                (5, &long, format!("{}-2", "a".repeat(30))),
                (6, "default", "default-2".to_owned()),
            ] {
                let user = create(tx, &new(&format!("{n}@x"), slug), Wall(0)).unwrap();
                assert_eq!(directory::org(tx, &user.id).unwrap().unwrap().slug.as_str(), made);
            }
        });
    }
}
