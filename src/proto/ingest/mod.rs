//! transit.ingest/1: signed events from outside, and the signed callback.
