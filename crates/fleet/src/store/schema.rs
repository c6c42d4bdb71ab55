//! The migrations of agents, classes, flows and operations, in SQLite's types; what they may do is
//! told in `schemas.rs`.

use sql::{Migration, Schema};

pub const SCHEMA: Schema = Schema {
    name: "fleet",
    oldest: 2,
    migrations: &[
        Migration {
            number: 1,
            name: "agents, classes, flows, operations",
            text: FIRST,
        },
        Migration {
            number: 2,
            name: "the feed of changes between nodes",
            text: SECOND,
        },
        Migration {
            number: 3,
            name: "classes' descriptions",
            text: "ALTER TABLE classes ADD COLUMN description TEXT;",
        },
        Migration {
            number: 4,
            name: "classes that operators give agents",
            text: FOURTH,
        },
        Migration {
            number: 5,
            name: "what agents' hashes of manifests stand for",
            text: FIFTH,
        },
    ],
};

const FIRST: &str = "
CREATE TABLE classes (
    name VARCHAR(255) NOT NULL PRIMARY KEY,
    created_ms BIGINT NOT NULL,
    flow_id VARCHAR(36)
);
CREATE TABLE agents (
    id VARCHAR(255) NOT NULL PRIMARY KEY,
    class VARCHAR(255),
    manifest_hash VARCHAR(255),
    hostname VARCHAR(255),
    device_id VARCHAR(255),
    flow_id VARCHAR(255),
    first_seen_ms BIGINT NOT NULL,
    last_seen_ms BIGINT NOT NULL,
    heartbeats BIGINT NOT NULL
);
CREATE TABLE manifests (
    hash VARCHAR(255) NOT NULL PRIMARY KEY,
    agent_type VARCHAR(255),
    version VARCHAR(255),
    bytes BIGINT NOT NULL,
    head TEXT NOT NULL,
    content BLOB NOT NULL
);
CREATE TABLE flows (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    class VARCHAR(255) NOT NULL,
    version BIGINT NOT NULL,
    shape VARCHAR(16) NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    bytes BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (class, version)
);
CREATE TABLE operations (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    agent_id VARCHAR(255) NOT NULL,
    operation VARCHAR(32) NOT NULL,
    operand VARCHAR(64) NOT NULL,
    flow_id VARCHAR(36),
    state VARCHAR(16) NOT NULL,
    created_ms BIGINT NOT NULL,
    updated_ms BIGINT NOT NULL,
    handed_out_ms BIGINT,
    attempts BIGINT NOT NULL,
    acknowledged BIGINT NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX operations_agent ON operations (agent_id);
";

const SECOND: &str = "
CREATE TABLE feed (
    id BIGINT NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL
);
INSERT INTO feed (id, seq) VALUES (1, 0);
CREATE TABLE changes (
    seq BIGINT NOT NULL,
    kind VARCHAR(16) NOT NULL,
    item VARCHAR(255) NOT NULL,
    node BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    PRIMARY KEY (seq, kind, item)
);
CREATE TABLE sightings (
    seq BIGINT NOT NULL PRIMARY KEY,
    node BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE leases (
    name VARCHAR(64) NOT NULL PRIMARY KEY,
    holder BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    until_ms BIGINT NOT NULL
);
CREATE TABLE describing (
    hash VARCHAR(255) NOT NULL PRIMARY KEY,
    operation_id VARCHAR(36) NOT NULL,
    until_ms BIGINT NOT NULL
);
CREATE TABLE rollouts (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    class VARCHAR(255) NOT NULL,
    flow_id VARCHAR(36) NOT NULL,
    previous_id VARCHAR(36),
    batch_agents BIGINT NOT NULL,
    batch_interval_ms BIGINT NOT NULL,
    canary_percent BIGINT NOT NULL,
    failures_percent BIGINT NOT NULL,
    state VARCHAR(16) NOT NULL,
    reach BIGINT NOT NULL,
    reached_ms BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    reason TEXT NOT NULL,
    version BIGINT NOT NULL
);
CREATE TABLE events (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    at_ms BIGINT NOT NULL,
    level BIGINT NOT NULL,
    kind VARCHAR(32) NOT NULL,
    class VARCHAR(255),
    agent_id VARCHAR(255),
    message TEXT NOT NULL
);
CREATE INDEX events_at ON events (at_ms, id);
CREATE INDEX events_agent ON events (agent_id, at_ms);
CREATE INDEX events_class ON events (class, at_ms);
ALTER TABLE classes ADD COLUMN rollout_id VARCHAR(36);
ALTER TABLE agents ADD COLUMN interval_ms BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN node BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operations ADD COLUMN seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operations ADD COLUMN node BIGINT NOT NULL DEFAULT 0;
CREATE INDEX agents_seq ON agents (seq);
CREATE INDEX operations_seq ON operations (seq);
";

const FOURTH: &str = "
ALTER TABLE agents ADD COLUMN given_class VARCHAR(255);
ALTER TABLE agents ADD COLUMN given_seq BIGINT NOT NULL DEFAULT 0;
";

const FIFTH: &str = "
ALTER TABLE agents ADD COLUMN manifest_mark BIGINT NOT NULL DEFAULT 0;
CREATE INDEX agents_manifest_mark ON agents (manifest_mark);
";
