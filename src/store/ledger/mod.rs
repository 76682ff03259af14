//! The ledger of the Worker.
