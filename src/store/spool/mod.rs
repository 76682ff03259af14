//! The spool of one host.
