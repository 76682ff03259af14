-- Who there is: organisations, their hosts and enrolment codes, their ingest sources.
--
-- Times are milliseconds since 1970 and flags are 0 or 1, both BIGINT; sealed secrets are BLOB (BYTEA elsewhere).

CREATE TABLE organisation (
    id TEXT NOT NULL PRIMARY KEY,
    slug TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL
);

-- A host is its row for ever: revoking takes the token away, enrolling again gives the same row a new one.
CREATE TABLE host (
    id TEXT NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES organisation (id),
    slug TEXT NOT NULL,
    token_hash TEXT UNIQUE,
    daemon_ver TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    last_seen_at BIGINT,
    revoked_at BIGINT,
    UNIQUE (org_id, slug)
);

-- One unused code a host; a used, voided or expired one is gone.
CREATE TABLE enroll_code (
    code_hash TEXT NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES organisation (id),
    host TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    UNIQUE (org_id, host)
);

-- secret_no counts the secrets of a source from 1; the old secret is the one before, while its overlap lasts.
CREATE TABLE source (
    integration_id TEXT NOT NULL PRIMARY KEY,
    org_id TEXT NOT NULL REFERENCES organisation (id),
    name TEXT NOT NULL,
    target_addr TEXT NOT NULL,
    reply_url TEXT,
    prefixes TEXT NOT NULL,
    secret BLOB NOT NULL,
    secret_no BIGINT NOT NULL,
    old_secret BLOB,
    old_valid_until BIGINT,
    paused BIGINT NOT NULL,
    rate BIGINT NOT NULL,
    burst BIGINT NOT NULL,
    instructions TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (org_id, name)
);

CREATE INDEX source_by_name ON source (name);

-- What a server tells the commands beside it, such as the address under which it is reached.
CREATE TABLE setting (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
