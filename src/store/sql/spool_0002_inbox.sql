-- What the Worker has delivered to this host's agents, and what became of it.
--
-- state     waiting -> injected (the session has it) or refused (for good); a deliver of the Worker may make
--           either of them waiting again
-- due_at    a waiting row is handed to a live session from then on; the largest integer means: not before a new
--           session, or another deliver
-- asked     the Worker waits for an answer
-- answer    the answer that is due to the Worker: ack or nak
CREATE TABLE inbox (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT    NOT NULL,
    agent       TEXT    NOT NULL,
    envelope    TEXT    NOT NULL,
    redelivery  INTEGER NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('waiting', 'injected', 'refused')),
    attempts    INTEGER NOT NULL DEFAULT 0,
    due_at      INTEGER NOT NULL DEFAULT 0,
    from_worker INTEGER NOT NULL,
    asked       INTEGER NOT NULL,
    answer      TEXT CHECK (answer IN ('ack', 'nak')),
    code        TEXT,
    retryable   INTEGER NOT NULL DEFAULT 0,
    received_at INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    UNIQUE (id, agent)
) STRICT;
CREATE INDEX inbox_waiting ON inbox (agent, seq) WHERE state = 'waiting';
CREATE INDEX inbox_answers ON inbox (seq) WHERE answer IS NOT NULL;
CREATE INDEX inbox_age ON inbox (updated_at);

-- Sessions that have registered, and their names.
CREATE TABLE agents (
    harness    TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    name       TEXT    NOT NULL UNIQUE,
    named_by   TEXT    NOT NULL CHECK (named_by IN ('user', 'auto')),
    generation INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (harness, session_id)
) STRICT;
