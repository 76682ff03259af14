//! The tests of the whole: one binary.

mod machines;
mod sim;
