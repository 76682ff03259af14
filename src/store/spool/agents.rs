//! The sessions that have registered on this host, and the names that they keep.

use rusqlite::{OptionalExtension, Transaction};

use super::{Spool, renaming};
use crate::addr::{Harness, Name};
use crate::clock::Wall;
use crate::store::StoreError;

/// Names that are made up before the daemon gives in.
const TRIES: usize = 100;

/// What tells a session from every other one of this host (transit-agent/1).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The harness.
    pub harness: Harness,
    /// The harness's own name of the session.
    pub session_id: String,
}

/// The place of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its agent's name.
    pub name: Name,
    /// Whether the name was made up, not declared.
    pub is_auto: bool,
    /// How often this session has registered, this time included.
    pub generation: u64,
}

/// Why a session has no place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// Another session that is connected has the name.
    #[error("{name} is the name of another session that is connected")]
    Taken {
        /// The name.
        name: Name,
    },
    /// Another session of this host has had the name, and may come back to it.
    #[error("{name} is the name of another session of this host")]
    Kept {
        /// The name.
        name: Name,
    },
    /// No free name was found.
    #[error("no free name was found in {TRIES} tries")]
    NoName,
    /// The place cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Spool {
    /// Gives a session its place: the declared name, else the one it had, else one that `make_up` makes for its
    /// harness. A name of a session that is not connected goes to whoever declares it; who had it is still known, and
    /// gets a made-up one. `is_live` says which names are in use. What the
    /// session has claimed since it declared the same name for the first time, it keeps. Mail under a name that it gives
    /// up stays where it is, because an answer may still come for it; [`readdress`](Self::readdress) moves it.
    ///
    /// # Errors
    /// When the name is in use, none is free, or the place cannot be stored.
    pub fn remember(
        &mut self,
        who: &Identity,
        declared: Option<&Name>,
        is_live: impl Fn(&Name) -> bool,
        mut make_up: impl FnMut(&Harness) -> Name,
        now: Wall,
    ) -> Result<Place, PlaceError> {
        self.write(|tx| {
            let stored = find(tx, who)?;
            let same = stored.as_ref().is_some_and(|(_, before)| declared == before.as_ref());
            let (name, is_auto) = match (declared, &stored) {
                (Some(_), Some((had, _))) if same => (had.name.clone(), had.is_auto),
                (Some(name), Some((had, _))) if *name == had.name => (name.clone(), had.is_auto),
                (Some(name), _) => {
                    if let Some(holder) = holder(tx, name)?.filter(|holder| holder != who) {
                        if is_live(name) {
                            return Ok(Err(PlaceError::Taken { name: name.clone() }));
                        }
                        let Some(other) = free(tx, &holder.harness, &mut make_up)? else {
                            return Ok(Err(PlaceError::NoName));
                        };
                        give_up(tx, &holder, &other)?;
                    }
                    (name.clone(), false)
                }
                (None, Some((had, _))) => (had.name.clone(), had.is_auto),
                (None, None) => match free(tx, &who.harness, &mut make_up)? {
                    Some(name) => (name, true),
                    None => return Ok(Err(PlaceError::NoName)),
                },
            };
            let generation = stored.as_ref().map_or(0, |(had, _)| had.generation) + 1;
            let place = Place { name, is_auto, generation };
            let declared = declared.or(stored.as_ref().and_then(|(_, before)| before.as_ref()));
            put(tx, who, &place, declared, now)?;
            Ok(Ok(place))
        })?
    }

    /// Gives a session that has a place the name that it claims. Its mail goes with it, and it keeps the name, also when
    /// it registers anew and declares what it declared before. A name of its own is no other one.
    ///
    /// # Errors
    /// When another session of this host has or had the name, the session has no place, or it cannot be stored.
    pub fn rename(&mut self, who: &Identity, name: &Name, now: Wall) -> Result<Place, PlaceError> {
        self.write(|tx| {
            if holder(tx, name)?.is_some_and(|holder| holder != *who) {
                return Ok(Err(PlaceError::Kept { name: name.clone() }));
            }
            let Some((had, declared)) = find(tx, who)? else { return Ok(Err(PlaceError::NoName)) };
            let is_other = had.name != *name;
            let generation = had.generation + u64::from(is_other);
            let place = Place { name: name.clone(), is_auto: false, generation };
            if is_other {
                renaming::take_along(tx, &had.name, name)?;
            }
            put(tx, who, &place, declared.as_ref(), now)?;
            Ok(Ok(place))
        })?
    }

    /// Whether a session of this host has ever had the name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn knows_agent(&self, name: &str) -> Result<bool, StoreError> {
        self.read(|conn| conn.prepare_cached("SELECT 1 FROM agents WHERE name = ?1")?.exists([name]))
    }

    /// Whether a session of this id, of whatever harness, has registered last before this time.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn knew_session(&self, session_id: &str, before: Wall) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM agents WHERE session_id = ?1 AND updated_at < ?2";
        self.read(|conn| conn.prepare_cached(sql)?.exists((session_id, before.0)))
    }
}

/// A session's place, and what it declared when it got it.
fn find(tx: &Transaction<'_>, who: &Identity) -> rusqlite::Result<Option<(Place, Option<Name>)>> {
    let sql =
        "SELECT name, named_by, generation, declared FROM agents WHERE harness = ?1 AND session_id = ?2";
    tx.prepare_cached(sql)?
        .query_row((who.harness.as_str(), &who.session_id), |row| {
            let is_auto = row.get_ref(1)?.as_str()? == "auto";
            let generation = row.get(2).map(i64::cast_unsigned)?;
            let declared = row.get_ref(3)?.as_str_or_null()?.map(|_| parsed(row, 3)).transpose()?;
            Ok((Place { name: parsed(row, 0)?, is_auto, generation }, declared))
        })
        .optional()
}

fn holder(tx: &Transaction<'_>, name: &Name) -> rusqlite::Result<Option<Identity>> {
    tx.prepare_cached("SELECT harness, session_id FROM agents WHERE name = ?1")?
        .query_row([name.as_str()], |row| Ok(Identity { harness: parsed(row, 0)?, session_id: row.get(1)? }))
        .optional()
}

/// A made-up name that nobody has.
fn free(
    tx: &Transaction<'_>,
    harness: &Harness,
    make_up: &mut impl FnMut(&Harness) -> Name,
) -> rusqlite::Result<Option<Name>> {
    for _ in 0..TRIES {
        let name = make_up(harness);
        if holder(tx, &name)?.is_none() {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// A session that is not connected loses its name. How often it has registered counts on, and what it declared it may
/// declare anew.
fn give_up(tx: &Transaction<'_>, who: &Identity, name: &Name) -> rusqlite::Result<()> {
    let sql = "UPDATE agents SET name = ?3, named_by = 'auto', declared = NULL
               WHERE harness = ?1 AND session_id = ?2";
    tx.execute(sql, (who.harness.as_str(), &who.session_id, name.as_str())).map(drop)
}

fn parsed<T>(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr<Err = crate::addr::AddrError>,
{
    row.get_ref(column)?.as_str()?.parse().map_err(|err| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(err))
    })
}

fn put(
    tx: &Transaction<'_>,
    who: &Identity,
    place: &Place,
    declared: Option<&Name>,
    now: Wall,
) -> rusqlite::Result<()> {
    let named_by = if place.is_auto { "auto" } else { "user" };
    tx.execute(
        "INSERT INTO agents (harness, session_id, name, named_by, generation, updated_at, declared)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (harness, session_id) DO UPDATE SET name = excluded.name, named_by = excluded.named_by,
             generation = excluded.generation, updated_at = excluded.updated_at, declared = excluded.declared",
        (
            who.harness.as_str(),
            &who.session_id,
            place.name.as_str(),
            named_by,
            place.generation.cast_signed(),
            now.0,
            declared.map(Name::as_str),
        ),
    )
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(session: &str) -> Identity {
        Identity { harness: "claude".parse().unwrap(), session_id: session.into() }
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_session_keeps_its_name_and_counts_its_generations() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let mut remember = |session, declared: Option<&str>, live: &str| {
            let declared = declared.map(name);
            let mut made = ["auto-a", "auto-b", "auto-c"].into_iter().map(name).cycle();
            spool.remember(
                &who(session),
                declared.as_ref(),
                |name| name.as_str() == live,
                |_| made.next().unwrap(),
                Wall(0),
            )
        };
        let place = |name: &str, is_auto, generation| Place { name: self::name(name), is_auto, generation };
        assert_eq!(remember("1", None, "").unwrap(), place("auto-a", true, 1));
        assert_eq!(remember("1", None, "").unwrap(), place("auto-a", true, 2));
        assert_eq!(remember("2", None, "").unwrap(), place("auto-b", true, 1));
        assert_eq!(remember("1", Some("jess"), "").unwrap(), place("jess", false, 3));
        assert_eq!(remember("1", None, "jess").unwrap(), place("jess", false, 4));
        assert!(matches!(remember("2", Some("jess"), "jess"), Err(PlaceError::Taken { .. })));
        assert_eq!(remember("2", Some("jess"), "").unwrap(), place("jess", false, 2), "its holder is gone");
        assert_eq!(remember("1", None, "jess").unwrap(), place("auto-a", true, 5), "it is the same session");
        assert!(matches!(remember("1", Some("jess"), "jess"), Err(PlaceError::Taken { .. })));
        assert_eq!(remember("1", Some("jess"), "").unwrap(), place("jess", false, 6), "and may have it back");
        assert_eq!(remember("2", None, "jess").unwrap(), place("auto-b", true, 3));
        assert!(spool.knows_agent("jess").unwrap() && !spool.knows_agent("omar").unwrap());
        assert!(spool.knew_session("1", Wall(1)).unwrap() && !spool.knew_session("1", Wall(0)).unwrap());
        assert!(!spool.knew_session("3", Wall(1)).unwrap());
    }

    #[test]
    fn a_claimed_name_stays_until_another_one_is_declared() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let nobody = |_: &Name| false;
        let place = |text: &str, is_auto, generation| Place { name: name(text), is_auto, generation };
        let remember = |spool: &mut Spool, session: &str, declared: Option<&str>| {
            let (declared, made) = (declared.map(name), |_: &Harness| name("auto-a"));
            spool.remember(&who(session), declared.as_ref(), nobody, made, Wall(0)).unwrap()
        };
        remember(&mut spool, "1", Some("jess"));
        remember(&mut spool, "2", None);
        assert_eq!(spool.rename(&who("1"), &name("ops"), Wall(1)).unwrap(), place("ops", false, 2));
        assert_eq!(spool.rename(&who("1"), &name("ops"), Wall(1)).unwrap(), place("ops", false, 2), "again");
        for taken in ["ops", "auto-a"] {
            let other = who(if taken == "ops" { "2" } else { "1" });
            let refused = spool.rename(&other, &name(taken), Wall(1));
            assert!(matches!(refused, Err(PlaceError::Kept { .. })), "{refused:?}");
        }
        assert_eq!(
            remember(&mut spool, "1", Some("jess")),
            place("ops", false, 3),
            "it declares nothing new"
        );
        assert_eq!(remember(&mut spool, "1", None), place("ops", false, 4));
        assert_eq!(remember(&mut spool, "1", Some("jo")), place("jo", false, 5));
        assert_eq!(remember(&mut spool, "1", Some("jo")), place("jo", false, 6));
        assert_eq!(spool.rename(&who("2"), &name("jess"), Wall(1)).unwrap(), place("jess", false, 2));
        assert_eq!(remember(&mut spool, "2", None), place("jess", false, 3), "what was made up was given up");
        assert!(spool.rename(&who("3"), &name("new"), Wall(1)).is_err(), "it has no place");
    }

    #[test]
    fn made_up_names_run_out_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path()).unwrap();
        let only = |_: &Harness| name("only");
        spool.remember(&who("1"), None, |_| false, only, Wall(0)).unwrap();
        assert!(matches!(spool.remember(&who("2"), None, |_| false, only, Wall(0)), Err(PlaceError::NoName)));
    }
}
