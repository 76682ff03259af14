-- Rooms, their members and their messages; and deliveries of one event to several agents.

-- A deleted room keeps its row, for what was said in it is still on its way; its name is free again. last_number is
-- that of the latest message: they are numbered from 1 without a gap. Without a loop_limit the Worker's own holds.
CREATE TABLE room (
    seq INTEGER NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES organisation (id),
    name TEXT NOT NULL,
    policy TEXT NOT NULL,
    loop_limit BIGINT,
    last_number BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    deleted_at BIGINT
);

CREATE UNIQUE INDEX room_name ON room (org_id, name) WHERE deleted_at IS NULL;

CREATE TABLE room_member (
    org_id TEXT NOT NULL,
    room_seq BIGINT NOT NULL REFERENCES room (seq),
    host TEXT NOT NULL,
    agent TEXT NOT NULL,
    joined_at BIGINT NOT NULL,
    PRIMARY KEY (room_seq, host, agent)
);

-- Which room a message went to, and its number there. That room_seq names a room is not checked by the engine, for the
-- sake of the messages that went to none.
ALTER TABLE message ADD COLUMN room_seq BIGINT;
ALTER TABLE message ADD COLUMN room_number BIGINT;

CREATE UNIQUE INDEX message_room ON message (room_seq, room_number) WHERE room_seq IS NOT NULL;

-- The reply anew: what it answers is no longer one row of delivery, so that no key can refer to it.
CREATE TABLE reply_anew (
    org_id TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    integration_id TEXT NOT NULL,
    agent TEXT NOT NULL,
    message TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    last_error TEXT,
    created_at BIGINT NOT NULL,
    posted_at BIGINT,
    PRIMARY KEY (org_id, delivery_id)
);

INSERT INTO reply_anew (org_id, delivery_id, integration_id, agent, message, state, attempts, next_attempt_at,
                        last_error, created_at, posted_at)
SELECT org_id, delivery_id, integration_id, agent, message, state, attempts, next_attempt_at, last_error, created_at,
       posted_at
FROM reply;

DROP TABLE reply;
ALTER TABLE reply_anew RENAME TO reply;
CREATE INDEX reply_due ON reply (org_id, integration_id, next_attempt_at) WHERE state = 'due';

-- The delivery anew: an event that went to a room has one row a member, all under one id. room is the room's name.
-- As long as the room has no member there is one row without host and agent, and the first who joins gets it.
CREATE TABLE delivery_anew (
    seq INTEGER NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL,
    id TEXT NOT NULL,
    event_seq BIGINT NOT NULL,
    integration_id TEXT NOT NULL,
    host TEXT NOT NULL,
    agent TEXT NOT NULL,
    room TEXT,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    shown BIGINT NOT NULL,
    misses BIGINT NOT NULL,
    read_at BIGINT,
    next_attempt_at BIGINT NOT NULL,
    last_error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (org_id, id, host, agent)
);

INSERT INTO delivery_anew (seq, org_id, id, event_seq, integration_id, host, agent, state, attempts, shown, misses,
                           read_at, next_attempt_at, last_error, created_at, updated_at)
SELECT seq, org_id, id, event_seq, integration_id, host, agent, state, attempts, shown, misses, read_at,
       next_attempt_at, last_error, created_at, updated_at
FROM delivery;

DROP TABLE delivery;
ALTER TABLE delivery_anew RENAME TO delivery;
CREATE INDEX delivery_queue ON delivery (org_id, host, agent, seq)
    WHERE state IN ('pending', 'dispatched', 'read');
