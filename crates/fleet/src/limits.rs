//! Bounds, each with its unit and reason.

use std::time::Duration;

/// Bytes of a request's body, unpacked: a manifest has up to 1.1 MB, a flow rarely more. A gzip bomb
/// stops here.
pub const BODY_BYTES_MAX: usize = 64 << 20;

/// Bytes up to which a body is read without a place among the large ones: every light heartbeat.
pub const SMALL_BODY_BYTES_MAX: usize = 64 << 10;

/// Large bodies read and decoded at once; the others wait. Bounds their memory to 8 times
/// [`BODY_BYTES_MAX`].
pub const LARGE_BODIES_MAX: usize = 8;

/// How long a sender may take over its body; agents themselves give up after 10 s.
pub const BODY_WAIT: Duration = Duration::from_secs(30);

/// Agents looked at under one lock of the registry: a fraction of a millisecond, which heartbeats
/// may have to wait.
pub const LOOKED_AT_ONCE: usize = 1_000;

/// Times looked through under one lock of the registry for agents that are missed: a fraction of a
/// millisecond, too.
pub const DUE_LOOKED_AT_ONCE: usize = 100_000;
/// Agents that one request for a list looks at; the next page goes on there.
pub const LOOKED_AT_MAX: usize = 200_000;

/// Agents known: each takes a few KiB.
pub const AGENTS_MAX: usize = 2_000_000;

/// Classes known.
pub const CLASSES_MAX: usize = 20_000;

/// Manifests known: what agents of one build say alike is one of them. What is over is not kept, and
/// its agents are taken for such as say nothing.
pub const MANIFESTS_MAX: usize = 10_000;

/// Bytes of a manifest, packed: a tenth of what it has unpacked, and below what any database takes in
/// one row. Larger ones are not kept.
pub const MANIFEST_BYTES_MAX: usize = 4 << 20;

/// Bytes of what a manifest says of operations, which is kept in memory: real ones have 20 KiB.
pub const MANIFEST_HEAD_BYTES_MAX: usize = 128 << 10;

/// Hashes of manifests known beyond two for each agent, 16 bytes each.
pub const NAMES_SPARE: usize = 10_000;

/// Agents that are asked to describe their manifest at once, a megabyte each; the others wait for
/// their turn.
pub const DESCRIBING_MAX: usize = 1_000;

/// New classes and manifests that one agent may bring within [`NOVELTY_AGE`]: real ones bring one.
pub const NOVELTIES_MAX: u32 = 5;

/// See [`NOVELTIES_MAX`].
pub const NOVELTY_AGE: Duration = Duration::from_secs(3600);

/// How long a class that appeared by itself may be empty before it goes.
pub const EMPTY_CLASS_AGE: Duration = Duration::from_secs(3600);

/// Classes and manifests that are removed in one transaction when nobody uses them.
pub const UNUSED_AT_ONCE: usize = 200;

/// How often unused classes and manifests are looked for: that walks through all agents.
pub const UNUSED_INTERVAL: Duration = Duration::from_secs(300);

/// Manifests of one class that are told apart: its first one and the newest.
pub const CLASS_MANIFESTS_MAX: usize = 100;

/// Flow versions of one class.
pub const CLASS_FLOWS_MAX: usize = 10_000;

/// Bytes of an agent's or a class's name: fits an indexed column in every database.
pub const NAME_BYTES_MAX: usize = 255;

/// Bytes of a manifest hash and of a flow id that an agent reports: SHA-512 in hex has 128.
pub const HASH_BYTES_MAX: usize = 255;

/// Operations kept of each agent, active ones included.
pub const OPERATIONS_PER_AGENT_MAX: usize = 20;

/// Bytes kept of what an agent says about an outcome.
pub const DETAILS_BYTES_MAX: usize = 4 << 10;

/// Bytes of one heartbeat (as sent) above which it is not kept for showing.
pub const KEPT_HEARTBEAT_BYTES_MAX: usize = 64 << 10;

/// Bytes of all kept heartbeats, packed; above, further agents' are not kept. A million agents'
/// take about half of it.
pub const KEPT_HEARTBEATS_BYTES_MAX: usize = 768 << 20;

/// Heartbeats that others are packed against: one for each class and flow.
pub const SAMPLES_MAX: usize = 4_096;

/// Bytes of such a heartbeat: small ones are smaller, of large ones the beginning serves.
pub const SAMPLE_BYTES_MAX: usize = 8 << 10;

/// Bytes of flow texts kept in memory, so that a roll-out does not read the database per agent.
pub const FLOW_CACHE_BYTES_MAX: usize = 64 << 20;

/// Items in one page of a list.
pub const PAGE_ITEMS_MAX: usize = 10_000;

/// Items in one page of a list when the caller does not say.
pub const PAGE_ITEMS_DEFAULT: usize = 1_000;

/// Rows in one statement of the write-behind: 14 values each, far below SQLite's 32,766.
pub const ROWS_PER_STATEMENT_MAX: usize = 256;

/// How long a heartbeat or an acknowledge waits for its commit. Java agents give up after 5 s;
/// what misses this goes out with the next heartbeat.
pub const COMMIT_WAIT: Duration = Duration::from_secs(3);

/// Pause after a write-behind that failed, before the next try.
pub const WRITE_RETRY: Duration = Duration::from_secs(1);

/// How often operations under way are looked at for time-outs, while there are any.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Agents whose operations one such look goes through; the next one goes on there. Some tens of
/// milliseconds, in which nothing is written; of a million agents at work each is seen once a minute.
pub const SWEPT_AT_ONCE: usize = 20_000;

/// Nesting of a flow that is looked into.
pub const FLOW_DEPTH_MAX: usize = 64;

/// Arguments of one request: properties or names.
pub const REQUEST_ARGS_MAX: usize = 200;

/// Bytes of one argument's text.
pub const ARG_BYTES_MAX: usize = 16 << 10;

/// Requests of operators that are kept; the oldest of those whose operations are over make room.
pub const REQUESTS_MAX: usize = 10_000;

/// Operations under way that operators may have asked of one agent: below
/// [`OPERATIONS_PER_AGENT_MAX`], so that none is pushed out before its end.
pub const ASKED_PER_AGENT_MAX: usize = 10;

/// Agents that one request is given to under one lock of the registry, a millisecond or so, and in
/// one transaction: heartbeats that wait for theirs come in between.
pub const ASKED_AT_ONCE: usize = 1_000;

/// Agents of a class that describe themselves at the same time, where nobody says: each brings up to
/// [`RESULT_BYTES_MAX`], or a manifest of a megabyte.
pub const ANSWERS_AT_ONCE_DEFAULT: u32 = 100;

/// Agents that fetch an asset, or the resources of their class, at the same time, where nobody says:
/// below [`DOWNLOADS_MAX`], which one node has for all.
pub const FETCHES_AT_ONCE_DEFAULT: u32 = 100;

/// Agents of a class that upload debug bundles at the same time, where nobody says: as many as one
/// node takes, [`UPLOADS_MAX`].
pub const UPLOADS_AT_ONCE_DEFAULT: u32 = UPLOADS_MAX as u32;

/// Refusals that the answer to a request for a class lists; the rest is counted.
pub const REFUSALS_SHOWN_MAX: usize = 1_000;

/// Bytes kept of what an agent describes of itself on request.
pub const RESULT_BYTES_MAX: usize = 2 << 20;

/// Such descriptions kept in all; the oldest go first. A class of a hundred thousand agents may be asked
/// for one each.
pub const RESULTS_MAX: i64 = 100_000;

/// Resources in all.
pub const RESOURCES_MAX: usize = 100_000;

/// Resources of one class: the list of them goes out in one response.
pub const CLASS_RESOURCES_MAX: usize = 1_000;

/// Files that come in at once; each holds a MiB of memory.
pub const UPLOADS_MAX: usize = 8;

/// Files that go out at once; each holds a piece of 256 KiB, or two.
pub const DOWNLOADS_MAX: usize = 128;

/// Age at which the pieces of an upload are taken for left over.
pub const UPLOAD_LEFTOVER_AGE: Duration = Duration::from_secs(24 * 3600);

/// Problems that the refusal of a flow lists.
pub const FLOW_PROBLEMS_MAX: usize = 100;

/// Certificates of which is known what was told of their end, about 100 bytes each in the database.
pub const CERTIFICATES_TOLD_MAX: i64 = 1_000_000;

/// Differences between two flows, or two manifests, that are listed.
pub const FLOW_DIFFERENCES_MAX: usize = 1_000;

/// Parameters of one flow, class or agent.
pub const PARAMETERS_MAX: usize = 1_000;

/// Connections of one node to its database: the write-behind, the feed, and a few readers.
pub const CONNECTIONS: u32 = 6;

/// How often a node looks whether another one changed users, roles or tokens: for so long a role that
/// was taken back may still be good elsewhere.
pub const OPERATORS_INTERVAL: Duration = Duration::from_secs(2);

/// How often a node looks for what other nodes changed: the delay of news between nodes.
pub const FEED_INTERVAL: Duration = Duration::from_secs(1);

/// How long the feed of changes and the sightings are kept: a node that was stopped for longer
/// reads everything again.
pub const FEED_AGE: Duration = Duration::from_secs(3600);

/// How old the time of the last call in an agent's row may become before the row is written for
/// that alone: half of [`FEED_AGE`], so that the sightings always tell what rows do not.
pub const ROW_SEEN_AGE: Duration = Duration::from_secs(1800);

/// Bytes of one row of sightings, unpacked: 100,000 agents of 80 bytes each.
pub const SIGHTINGS_BYTES_MAX: usize = 8 << 20;

/// Agents in one row of sightings; what is over goes with the next one.
pub const SIGHTINGS_MAX: usize = 20_000;

/// How long a node keeps what only one node may do, without renewing it: what a dead node leaves
/// undone for so long.
pub const LEASE: Duration = Duration::from_secs(10);

/// How often a node renews its lease, or asks for it.
pub const LEASE_RENEWAL: Duration = Duration::from_secs(1);

/// How often the feed and the events are rid of what is old.
pub const PRUNE_INTERVAL: Duration = Duration::from_secs(30);

/// How much earlier than the database a node believes its lease to end: the time of a call.
pub const LEASE_MARGIN: Duration = Duration::from_secs(2);

/// How often agents that were silent for too long are looked for, among all agents.
pub const CLEAN_INTERVAL: Duration = Duration::from_secs(10);

/// Agents that one clean-up removes in one transaction.
pub const CLEANED_AT_ONCE: usize = 1_000;

/// Roll-outs of one class that are kept after they are over; the oldest go first.
pub const CLASS_ROLLOUTS_MAX: usize = 50;

/// How often an operator's wish is tried while the roll-out changes at the same moment, and the pause
/// between.
pub const STEER_TRIES: u32 = 20;
/// See [`STEER_TRIES`].
pub const STEER_PAUSE: Duration = Duration::from_millis(20);
/// Roll-outs kept in all.
pub const ROLLOUTS_MAX: usize = 10_000;

/// Agents of a batch when the caller does not say: as the product that operators know.
pub const BATCH_AGENTS_DEFAULT: u32 = 100;

/// Time between two batches when the caller does not say.
pub const BATCH_INTERVAL_DEFAULT: Duration = Duration::from_secs(10);

/// Failed agents, in percent of the reached ones, above which a roll-out halts when the caller
/// does not say.
pub const FAILURES_PERCENT_DEFAULT: u8 = 20;

/// Bytes of one batch of forwarded messages: below what Kafka takes at once, 1 MiB, unless a single
/// message is larger.
pub const FORWARD_BATCH_BYTES_MAX: usize = 768 << 10;

/// Messages that wait to be forwarded are copied into pieces of memory of this size, larger ones than
/// a quarter of it into their own: what a connection reads into is free again at once.
pub const FORWARD_PIECE_BYTES: usize = 64 << 10;

/// How long messages gather before they are forwarded, where nothing else is said: an agent beats
/// once a minute, and nobody waits for it.
pub const FORWARD_LINGER: Duration = Duration::from_millis(250);

/// Wait before what could not be forwarded is tried again; it doubles each time up to the next bound.
pub const FORWARD_RETRY: Duration = Duration::from_millis(500);

/// See [`FORWARD_RETRY`]: how late a broker that is back is noticed.
pub const FORWARD_RETRY_MAX: Duration = Duration::from_secs(10);

/// How long a stop waits for what is to be forwarded.
pub const FORWARD_STOP_WAIT: Duration = Duration::from_secs(3);

/// Events kept in all; the oldest go first.
pub const EVENTS_MAX: i64 = 500_000;

/// Entries of the audit kept in all; the oldest go first.
pub const AUDIT_ENTRIES_MAX: i64 = 500_000;

/// Bytes of an entry's address and of its details.
pub const AUDIT_TEXT_BYTES_MAX: usize = 500;

/// Events that wait to be written; more are counted and dropped: the database is away for long.
pub const EVENTS_QUEUED_MAX: usize = 20_000;

/// Bulletins of one heartbeat that are looked at: agents send a thousand at the most.
pub const BULLETINS_MAX: usize = 1_000;

/// Alerts that wait in the database to be sent, about 500 bytes each; what is over is counted and
/// dropped.
pub const ALERTS_QUEUED_MAX: i64 = 10_000;

/// How long an alert waits to be sent before it is given up: who hears of it later is misled.
pub const ALERT_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// How long it is known that an alert was told: nodes are not further behind each other.
pub const ALERT_TOLD_AGE: Duration = Duration::from_secs(24 * 3600);

/// Told alerts that are known; the oldest go first.
pub const ALERTS_TOLD_MAX: i64 = 100_000;

/// Alerts told in one call of the webhook.
pub const ALERTS_AT_ONCE: usize = 100;

/// For how long the node that sends an alert has it for itself; longer than [`WEBHOOK_WAIT`].
pub const ALERT_CLAIM: Duration = Duration::from_secs(30);

/// How often a node looks for alerts that another one left.
pub const ALERTS_INTERVAL: Duration = Duration::from_secs(5);

/// Wait after the first call of the webhook that failed; it doubles each time up to the next bound.
pub const WEBHOOK_RETRY: Duration = Duration::from_secs(1);

/// See [`WEBHOOK_RETRY`]: how late a webhook that is back is noticed.
pub const WEBHOOK_RETRY_MAX: Duration = Duration::from_secs(60);

/// How long a stop waits for a call of the webhook that is under way.
pub const WEBHOOK_STOP_WAIT: Duration = Duration::from_secs(3);

/// How long the webhook may take.
pub const WEBHOOK_WAIT: Duration = Duration::from_secs(10);
