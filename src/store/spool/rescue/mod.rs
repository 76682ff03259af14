//! Rows out of a damaged spool, read from the bytes of the file and not through the engine.
//!
//! The engine follows the tree from its root, and gives up where the tree is broken. Here every page is looked at for
//! itself: a row comes out if its own page, and those that its body runs over to, are sound, whatever became of the
//! rest. What was removed is overwritten in the file, so a row that is found is one that was there. The indexes
//! name what was there too, and so what is lost.
//!
//! The format is SQLite's (sqlite.org/fileformat2.html): numbers of sections there are given where it is read.

mod cells;
mod log;
mod pages;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use rusqlite::types::Value;

use self::cells::{Cells, Page};
use self::pages::Pages;
use super::SPOOL_DB;
use super::look::is_there;
use super::outbox::row::{FIELD_COUNT, decode};
use super::outbox::{Fault, Row};
use crate::id::IdKind;
use crate::store::StoreError;

/// A damaged spool, looked through once.
#[derive(Debug)]
pub struct Rescue {
    pages: Pages,
    /// Where the rows are that can be read, by their places in the order of adding.
    places: BTreeMap<i64, Place>,
    lost: BTreeSet<String>,
    faults: Vec<Fault>,
    path: PathBuf,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    updated_at: i64,
    page: u32,
    cell: usize,
}

impl Rescue {
    /// Looks through the spool of this data directory. `None` when there is none. It opens the file beside the
    /// engine, so nothing else of this process may have it open.
    ///
    /// # Errors
    /// When it belongs to somebody else, or the file cannot be read at all.
    pub fn open(data_dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = data_dir.join(SPOOL_DB);
        match is_there(&path) {
            Ok(false) => return Ok(None),
            Ok(true) | Err(StoreError::Damaged { .. }) => {}
            Err(err) => return Err(err),
        }
        let pages = Pages::open(&path).map_err(|err| StoreError::io("read", &path, err))?;
        let (places, lost, faults) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        let mut rescue = Self { pages, places, lost, faults, path };
        rescue.look_through()?;
        Ok(Some(rescue))
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many rows can be read.
    pub fn count(&self) -> u64 {
        self.places.len() as u64
    }

    /// The ids that the indexes name and of which no row can be read.
    pub fn lost(&self) -> impl ExactSizeIterator<Item = &str> {
        self.lost.iter().map(String::as_str)
    }

    /// The rows that are there and are not what was stored.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// The rows, in the order in which they were added. One that has changed since it was found is left out.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.places.iter().filter_map(|(seq, place)| {
            let page = self.pages.read(place.page).ok().flatten()?;
            let cells = Cells::of(&page, self.pages.usable())?;
            let row = decode(self.values(&cells, place.cell)?).ok()?;
            (row.seq == *seq).then_some(row)
        })
    }

    fn look_through(&mut self) -> Result<(), StoreError> {
        let mut named = BTreeMap::new();
        for number in 1..=self.pages.count() {
            let page = self.pages.read(number).map_err(|err| StoreError::io("read", &self.path, err))?;
            let Some(page) = page else { continue };
            let Some(cells) = Cells::of(&page, self.pages.usable()) else { continue };
            match cells.kind() {
                Page::TableLeaf => self.look_at_rows(number, &cells),
                Page::Index => named.extend(self.ids(&cells)),
            }
        }
        let found: HashSet<i64> = self.places.keys().copied().collect();
        self.lost = named.into_iter().filter(|(seq, _)| !found.contains(seq)).map(|(_, id)| id).collect();
        Ok(())
    }

    fn look_at_rows(&mut self, number: u32, cells: &Cells<'_>) {
        for cell in 0..cells.count() {
            let Some(values) = self.values(cells, cell) else { continue };
            match decode(values) {
                Ok(row) => {
                    let place = Place { updated_at: row.entry.updated_at.0, page: number, cell };
                    let known = self.places.entry(row.seq).or_insert(place);
                    if known.updated_at < place.updated_at {
                        *known = place;
                    }
                }
                Err(fault) => self.faults.push(fault),
            }
        }
    }

    /// The values of a cell, if it is a row of the outbox in one of its versions.
    fn values(&self, cells: &Cells<'_>, cell: usize) -> Option<Vec<Value>> {
        let cell = cells.get(cell)?;
        // How many columns it has is known before what it has run over to is read.
        let columns = cells::columns(cell.local)?;
        if columns != FIELD_COUNT && columns + 1 != FIELD_COUNT {
            return None;
        }
        let mut values = cells::record(&self.pages.payload(&cell)?)?;
        *values.first_mut()? = Value::Integer(cell.rowid?);
        Some(values)
    }

    /// The rows that a page of the index of ids names.
    fn ids(&self, cells: &Cells<'_>) -> Vec<(i64, String)> {
        let named = |cell| {
            let mut values = cells::record(&self.pages.payload(&cells.get(cell)?)?)?.into_iter();
            match (values.next(), values.next(), values.next()) {
                (Some(Value::Text(id)), Some(Value::Integer(seq)), None) => {
                    let kind = IdKind::of(&id);
                    matches!(kind, Some(IdKind::Event | IdKind::Message)).then_some((seq, id))
                }
                _ => None,
            }
        };
        (0..cells.count()).filter_map(named).collect()
    }
}

#[cfg(test)]
mod tests;
