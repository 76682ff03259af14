//! transit/1: the envelope in an agent's terminal.
