//! All integration tests, in one binary: one link, and helpers that are compiled once.
//!
//! A file of this folder that is not listed here would never run; [`floors`] fails on one.

mod docs;
mod floors;
mod support;
