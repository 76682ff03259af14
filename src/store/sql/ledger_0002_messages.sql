-- What moves: rosters, direct messages and their deliveries, events and their channel deliveries, replies.
--
-- Every row carries its organisation. A host is named by its slug, which is its own for ever. `seq` is the order of
-- arrival; queues are read along it.

-- The roster of each host as its daemon said it last. An agent that is not on it any more keeps its row for a while
-- (present = 0), because messages may still be addressed to it.
CREATE TABLE agent (
    org_id TEXT NOT NULL REFERENCES organisation (id),
    host TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    pane_id TEXT NOT NULL,
    status TEXT NOT NULL,
    cwd TEXT NOT NULL,
    title TEXT NOT NULL,
    named_by TEXT NOT NULL,
    present BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, host, name)
);

-- A message, or the permanent refusal of one (nak is its code; the body is not kept then). Rows refer to it by seq, which
-- grows: of the indexes over its random id one is enough, each spreads a commit over many pages.
CREATE TABLE message (
    seq INTEGER NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES organisation (id),
    id TEXT NOT NULL,
    host TEXT NOT NULL,
    sender TEXT NOT NULL,
    recipient TEXT NOT NULL,
    body TEXT NOT NULL,
    reply_to TEXT,
    ts TEXT NOT NULL,
    nak TEXT,
    created_at BIGINT NOT NULL,
    UNIQUE (org_id, id)
);

-- queued -> injected | dead. held = 1 from the first refusal (or lost answer) until it is settled: as long as it
-- is, later messages of the same sender to the same agent wait behind it.
CREATE TABLE message_delivery (
    seq INTEGER NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL,
    message_seq BIGINT NOT NULL REFERENCES message (seq),
    host TEXT NOT NULL,
    agent TEXT NOT NULL,
    sender TEXT NOT NULL,
    state TEXT NOT NULL,
    held BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    next_attempt_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    last_error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (message_seq, host, agent)
);

CREATE INDEX message_delivery_queue ON message_delivery (org_id, host, agent, seq) WHERE state = 'queued';
CREATE INDEX message_delivery_held ON message_delivery (org_id, host, agent, sender, seq)
    WHERE state = 'queued' AND held = 1;

-- An event as it was accepted, with the delivery that its sender was told. secret_no is the secret that verified it;
-- digest tells a replay from another event under the same key. The source may be deleted later; its events stay. Rows
-- refer to it by seq, which grows: an index over its random id would spread every commit over many pages.
CREATE TABLE event (
    seq INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    org_id TEXT NOT NULL REFERENCES organisation (id),
    integration_id TEXT NOT NULL,
    event_key TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    user_name TEXT,
    trigger_name TEXT,
    content TEXT NOT NULL,
    reply_url TEXT,
    meta TEXT NOT NULL,
    digest TEXT NOT NULL,
    secret_no BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (integration_id, event_key)
);

-- pending -> dispatched -> read -> replied -> handled; some are skipped. It never dies by itself. shown counts the
-- deliver frames that were not answered by a nak, misses the attempts since the last ack. That event_seq names an event
-- is not checked by the engine: removing an event would then need an index over it, which nothing else does.
CREATE TABLE delivery (
    seq INTEGER NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL,
    id TEXT NOT NULL,
    event_seq BIGINT NOT NULL,
    integration_id TEXT NOT NULL,
    host TEXT NOT NULL,
    agent TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    shown BIGINT NOT NULL,
    misses BIGINT NOT NULL,
    read_at BIGINT,
    next_attempt_at BIGINT NOT NULL,
    last_error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (org_id, id)
);

CREATE INDEX delivery_queue ON delivery (org_id, host, agent, seq)
    WHERE state IN ('pending', 'dispatched', 'read');

-- One reply a delivery, recorded before it is posted: due -> posted.
CREATE TABLE reply (
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
    PRIMARY KEY (org_id, delivery_id),
    FOREIGN KEY (org_id, delivery_id) REFERENCES delivery (org_id, id)
);

CREATE INDEX reply_due ON reply (org_id, integration_id, next_attempt_at) WHERE state = 'due';

-- The latest attempts to post a reply, for the operator who asks why it is not there.
CREATE TABLE reply_attempt (
    org_id TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    at BIGINT NOT NULL,
    error TEXT,
    PRIMARY KEY (org_id, delivery_id, attempt)
);
