-- Who signs in to the control plane: people, how they prove who they are, and what they belong to.
--
-- The tables and their columns are those of Better Auth's core schema and its organization plugin, in this ledger's
-- spelling: emailVerified is email_verified, organizationId is organization_id. Its user, which is no name of a table to
-- every engine, is `users`, and its organization is `organisation`.

CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE,
    email_verified BIGINT NOT NULL,
    image TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- A way to sign in. That of a password has the provider `credential` and the user's id as its account.
CREATE TABLE account (
    id TEXT NOT NULL PRIMARY KEY,
    account_id TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    user_id TEXT NOT NULL REFERENCES users (id),
    access_token TEXT,
    refresh_token TEXT,
    id_token TEXT,
    access_token_expires_at BIGINT,
    refresh_token_expires_at BIGINT,
    scope TEXT,
    password TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (provider_id, account_id)
);

CREATE INDEX account_of_user ON account (user_id);

CREATE TABLE member (
    id TEXT NOT NULL PRIMARY KEY,
    organization_id TEXT NOT NULL REFERENCES organisation (id),
    user_id TEXT NOT NULL REFERENCES users (id),
    role TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (user_id, organization_id)
);

CREATE INDEX member_of_organisation ON member (organization_id);
