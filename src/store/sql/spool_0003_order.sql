-- The outbox anew: what changes stands first and the body last. So a look at a state reads no body, and damage to
-- the pages of a body takes nothing else with it.
CREATE TABLE outbox_anew (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    state           TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'claimed', 'sent', 'dead')),
    claim_pid       INTEGER,
    claim_start     INTEGER,
    attempts        INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    -- The longest wait this row can be in; a row that claims to be due further off was scheduled by a wrong clock.
    longest_wait    INTEGER NOT NULL,
    kind            TEXT NOT NULL CHECK (kind IN ('event', 'message')),
    id              TEXT NOT NULL UNIQUE,
    -- Of all that never changes; a row of an earlier version has none.
    digest          BLOB,
    dest            TEXT NOT NULL,
    sender          TEXT,
    reply_to        TEXT,
    event_key       TEXT,
    -- Where the secret is, never the secret: a path (bytes, as the system has it) or a variable's name.
    secret_file     BLOB,
    secret_env      TEXT,
    outcome         TEXT,
    error           TEXT,
    body            BLOB NOT NULL,
    CHECK ((state = 'claimed') = (claim_pid IS NOT NULL)),
    CHECK ((claim_pid IS NULL) = (claim_start IS NULL))
) STRICT;

INSERT INTO outbox_anew (seq, state, claim_pid, claim_start, attempts, created_at, updated_at, next_attempt_at,
    longest_wait, kind, id, dest, sender, reply_to, event_key, secret_file, secret_env, outcome, error, body)
SELECT seq, state, claim_pid, claim_start, attempts, created_at, updated_at, next_attempt_at,
    longest_wait, kind, id, dest, sender, reply_to, event_key, secret_file, secret_env, outcome, error, body
FROM outbox ORDER BY seq;

DROP TABLE outbox;
ALTER TABLE outbox_anew RENAME TO outbox;
CREATE INDEX outbox_due ON outbox (kind, next_attempt_at, seq, longest_wait) WHERE state = 'pending';
CREATE INDEX outbox_state ON outbox (state, updated_at);
