//! What is said on `transit.sock`.
