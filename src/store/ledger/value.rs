//! What goes into a statement and what comes out of a row.

use std::borrow::Cow;
use std::path::Path;
use std::str::FromStr;

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};

use super::StoreError;
use crate::clock::Wall;

/// One parameter of a statement. Text and bytes are borrowed where they can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nothing.
    Null,
    /// A number, a time in milliseconds or a flag.
    Int(i64),
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
}

/// A list of parameters: `values![id, now, name.as_str()]` is `&[Value]`.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::store::ledger::Value::from($value)),*] };
}
pub(crate) use values;

macro_rules! from {
    ($($type:ty, $value:ident => $made:expr;)*) => {
        $(impl<'a> From<$type> for Value<'a> {
            fn from($value: $type) -> Self {
                $made
            }
        })*
    };
}

from! {
    i64, value => Self::Int(value);
    i32, value => Self::Int(value.into());
    u32, value => Self::Int(value.into());
    bool, value => Self::Int(value.into());
    Wall, value => Self::Int(value.0);
    &'a str, value => Self::Text(Cow::Borrowed(value));
    &'a String, value => Self::Text(Cow::Borrowed(value));
    String, value => Self::Text(Cow::Owned(value));
    Cow<'a, str>, value => Self::Text(value);
    &'a [u8], value => Self::Bytes(Cow::Borrowed(value));
    &'a Vec<u8>, value => Self::Bytes(Cow::Borrowed(value));
    Vec<u8>, value => Self::Bytes(Cow::Owned(value));
}

impl<'a, T: Into<Self>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl FromSql for Wall {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self)
    }
}

/// One row of an answer.
pub struct Row<'a> {
    pub(super) row: &'a rusqlite::Row<'a>,
    pub(super) path: &'a Path,
}

impl Row<'_> {
    /// The value of a column, counted from 0. `Option` where it may be null.
    ///
    /// # Errors
    /// When the column holds something else; the ledger is damaged then.
    pub fn get<T: FromSql>(&self, column: usize) -> Result<T, StoreError> {
        self.row.get(column).map_err(|err| self.damaged(column, err))
    }

    /// The text of a column, parsed.
    ///
    /// # Errors
    /// When it does not parse; the ledger is damaged then.
    pub fn parsed<T>(&self, column: usize) -> Result<T, StoreError>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        self.get::<String>(column)?.parse().map_err(|err| self.damaged(column, err))
    }

    /// The failure of a column that holds what it should not.
    pub(super) fn damaged(&self, column: usize, why: impl std::fmt::Display) -> StoreError {
        let name = self.row.as_ref().column_name(column).unwrap_or("?");
        StoreError::Damaged { path: self.path.to_owned(), why: format!("column {name}: {why}") }
    }
}
