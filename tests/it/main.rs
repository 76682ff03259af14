//! The tests of the whole: one binary.

mod sim;
