-- What this host wants to get out: events for sources, messages for the Worker.
--
-- pending -> claimed -> sent | dead | pending again. A claim names a process and lapses with it, so a claimed row
-- whose process is gone counts as pending. Times are milliseconds since 1970-01-01T00:00:00Z.
CREATE TABLE outbox (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL UNIQUE,
    kind            TEXT NOT NULL CHECK (kind IN ('event', 'message')),
    dest            TEXT NOT NULL,
    sender          TEXT,
    reply_to        TEXT,
    event_key       TEXT,
    body            BLOB NOT NULL,
    -- Where the secret is, never the secret: a path (bytes, as the system has it) or a variable's name.
    secret_file     BLOB,
    secret_env      TEXT,
    state           TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'claimed', 'sent', 'dead')),
    claim_pid       INTEGER,
    claim_start     INTEGER,
    attempts        INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    next_attempt_at INTEGER NOT NULL,
    -- The longest wait this row can be in; a row that claims to be due further off was scheduled by a wrong clock.
    longest_wait    INTEGER NOT NULL,
    outcome         TEXT,
    error           TEXT,
    CHECK ((state = 'claimed') = (claim_pid IS NOT NULL)),
    CHECK ((claim_pid IS NULL) = (claim_start IS NULL))
) STRICT;

CREATE INDEX outbox_due ON outbox (kind, next_attempt_at, seq) WHERE state = 'pending';
CREATE INDEX outbox_state ON outbox (state, updated_at);
