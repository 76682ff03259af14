//! The cells of a page, and the values of a record.
//!
//! Every length and offset in here comes from a file that may hold anything: all of them are checked before they are
//! used, and what does not fit is no cell.

use rusqlite::types::Value;

/// The kinds of pages that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// Rows of a table.
    TableLeaf,
    /// Keys of an index, in a leaf or above.
    Index,
}

/// A page with cells (1.6, "B-tree pages").
#[derive(Debug)]
pub(super) struct Cells<'a> {
    kind: Page,
    page: &'a [u8],
    usable: usize,
    /// Where the offsets of the cells begin.
    pointers: usize,
    count: usize,
    /// Every cell of a page above the leaves begins with the number of the page below.
    above_leaf: bool,
}

/// One cell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cell<'a> {
    /// The row's number, in a table.
    pub(super) rowid: Option<i64>,
    /// The part of the payload that is in the page.
    pub(super) local: &'a [u8],
    /// The length of all of the payload.
    pub(super) length: usize,
    /// The page where the rest of it begins, if there is a rest.
    pub(super) overflow: Option<u32>,
}

impl<'a> Cells<'a> {
    /// The cells of a page; `None` when it is of no kind that is looked at. The first page of the file, which begins
    /// with the file's head, holds the schema and no rows.
    pub(super) fn of(page: &'a [u8], usable: usize) -> Option<Self> {
        let (kind, above_leaf) = match page.first()? {
            0x0d => (Page::TableLeaf, false),
            0x0a => (Page::Index, false),
            0x02 => (Page::Index, true),
            _ => return None,
        };
        let pointers = if above_leaf { 12 } else { 8 };
        let count = usize::from(be16(page, 3)?);
        (usable <= page.len() && pointers + count * 2 <= usable).then_some(Self {
            kind,
            page,
            usable,
            pointers,
            count,
            above_leaf,
        })
    }

    pub(super) fn kind(&self) -> Page {
        self.kind
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The cell at this place.
    pub(super) fn get(&self, at: usize) -> Option<Cell<'a>> {
        let mut from = usize::from(be16(self.page, self.pointers + at * 2)?);
        if at >= self.count || from < self.pointers + self.count * 2 {
            return None;
        }
        from += if self.above_leaf { 4 } else { 0 };
        let page = self.page.get(..self.usable)?;
        let (length, read) = varint(page.get(from..)?)?;
        from += read;
        let mut rowid = None;
        if self.kind == Page::TableLeaf {
            let (id, read) = varint(page.get(from..)?)?;
            (rowid, from) = (Some(id), from + read);
        }
        let length = usize::try_from(length).ok()?;
        let in_page = self.local_part(length);
        let local = page.get(from..from.checked_add(in_page)?)?;
        let overflow = (in_page < length).then(|| be32(page, from + in_page));
        Some(Cell { rowid, local, length, overflow: overflow.map_or(Some(None), |next| next.map(Some))? })
    }

    /// How much of a payload of this length is in the page (1.6, "Cell payload overflow pages").
    fn local_part(&self, length: usize) -> usize {
        let usable = self.usable;
        let most = match self.kind {
            Page::TableLeaf => usable - 35,
            Page::Index => (usable - 12) * 64 / 255 - 23,
        };
        if length <= most {
            return length;
        }
        let least = (usable - 12) * 32 / 255 - 23;
        let part = least + (length - least) % (usable - 4);
        if part <= most { part } else { least }
    }
}

pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A number of one to nine bytes, and how many these were.
fn varint(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0u64;
    for (at, &byte) in bytes.iter().take(9).enumerate() {
        if at == 8 {
            return Some((((value << 8) | u64::from(byte)).cast_signed(), 9));
        }
        value = (value << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value.cast_signed(), at + 1));
        }
    }
    None
}

/// The types of a record's values, and how long its head is (2.1, "Record format").
fn head(payload: &[u8]) -> Option<(Vec<u64>, usize)> {
    let (length, mut at) = varint(payload)?;
    let length = usize::try_from(length).ok()?;
    let mut types = Vec::new();
    while at < length {
        let (kind, read) = varint(payload.get(at..length)?)?;
        types.push(u64::try_from(kind).ok()?);
        at += read;
    }
    (at == length).then_some((types, length))
}

/// How many values the record has that begins like this.
pub(super) fn columns(local: &[u8]) -> Option<usize> {
    head(local).map(|(types, _)| types.len())
}

/// The values of a record. `None` when it is none, or not exactly as long as it says.
pub(super) fn record(payload: &[u8]) -> Option<Vec<Value>> {
    let (types, mut at) = head(payload)?;
    let mut values = Vec::with_capacity(types.len());
    for kind in types {
        let length = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            10 | 11 => return None,
            _ => usize::try_from((kind - 12) / 2).ok()?,
        };
        let bytes = payload.get(at..at.checked_add(length)?)?;
        at += length;
        values.push(match kind {
            0 => Value::Null,
            1..=6 => Value::Integer(integer(bytes)),
            7 => Value::Real(f64::from_be_bytes(bytes.try_into().ok()?)),
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            _ if kind % 2 == 0 => Value::Blob(bytes.to_vec()),
            _ => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
        });
    }
    (at == payload.len()).then_some(values)
}

/// A big-endian number with its sign, of one to eight bytes.
fn integer(bytes: &[u8]) -> i64 {
    let is_negative = bytes.first().is_some_and(|byte| byte & 0x80 != 0);
    bytes.iter().fold(if is_negative { -1 } else { 0 }, |value, byte| (value << 8) | i64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_every_length_are_read() {
        assert_eq!(varint(&[0x7f]), Some((127, 1)));
        assert_eq!(varint(&[0x81, 0x00]), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9]), Some((-1, 9)));
        assert_eq!((varint(&[]), varint(&[0x80])), (None, None));
        assert_eq!((integer(&[0xff]), integer(&[0x7f, 0xff]), integer(&[])), (-1, 32_767, 0));
    }

    #[test]
    fn a_record_is_exactly_as_long_as_it_says() {
        let good = [5, 0, 1, 17, 14, 7, b'h', b'i', 0xff];
        let values =
            vec![Value::Null, Value::Integer(7), Value::Text("hi".to_owned()), Value::Blob(vec![0xff])];
        assert_eq!(record(&good), Some(values));
        assert_eq!(columns(&good), Some(4));
        for cut in 0..good.len() {
            assert_eq!(record(&good[..cut]), None);
        }
        assert_eq!(record(&[&good[..], &[0]].concat()), None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_odd(page in prop::collection::vec(any::<u8>(), 0..600), first in prop::sample::select(vec![2u8, 10, 13])) {
            let mut page = page;
            if let Some(byte) = page.first_mut() {
                *byte = first;
            }
            let usable = page.len().max(480);
            if let Some(cells) = Cells::of(&page, usable) {
                for at in 0..cells.count() + 2 {
                    if let Some(cell) = cells.get(at) {
                        let _ = (record(cell.local), columns(cell.local));
                    }
                }
            }
            let _ = record(&page);
        }
    }
}
