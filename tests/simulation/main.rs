//! The whole Worker, simulated.

fn main() {}
