//! Every bound of the schema registry, each with its unit and its reason.

use std::time::Duration;

/// Bytes of one request body unless configured: a schema with its references fits many times.
pub(super) const BODY_BYTES_MAX: u64 = 8 << 20;

/// Bytes of one schema's text: with its JSON quoting it has to fit into a record of the topic,
/// whose usual bound is 1 MiB.
pub(super) const SCHEMA_BYTES_MAX: usize = 1_000_000;

/// Bytes of all schemas' texts: the registry holds them in memory.
pub(super) const TEXTS_BYTES_MAX: usize = 512 << 20;

/// Versions of all subjects together: each takes some 200 bytes in memory beside its text.
pub(super) const VERSIONS_MAX: usize = 1_000_000;

/// Bytes of a subject's name, its context included: a topic's name and a record's name fit.
pub(super) const SUBJECT_BYTES_MAX: usize = 1_024;

/// References of one schema, and of all schemas that it rests on: more is a mistake, not a use.
pub(super) const REFERENCES_MAX: usize = 1_000;

/// Records, fields and tags that are named with one schema: each is looked for in the whole of it.
pub(super) const TAGS_MAX: usize = 1_000;

/// Parsed schemas that are kept; the least wanted go first. A parsed schema takes some multiple of
/// its text.
pub(super) const PARSED_MAX: usize = 1_000;

/// Bytes of text whose parsed schemas are kept, for the same reason.
pub(super) const PARSED_BYTES_MAX: usize = 64 << 20;

/// Bytes of a list's answer: it is built in memory.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Bytes of records that one poll of the topic answers.
pub(super) const POLL_BYTES: usize = 1 << 20;

/// How long a poll of the topic waits for a record; an idle registry wakes this rarely.
pub(super) const POLL_WAIT: Duration = Duration::from_secs(3_600);

/// How long a poll waits while the topic is read for the first time, before the registry looks
/// whether its end was made by records that are no more.
pub(super) const LOAD_WAIT: Duration = Duration::from_secs(2);

/// How long the first reading of the topic may take.
pub(super) const LOAD_MAX: Duration = Duration::from_secs(120);

/// How long a write waits to be read back before it is answered as timed out.
pub(super) const READ_BACK_MAX: Duration = Duration::from_secs(30);

/// How long a read that misses waits for what other processes may have written.
pub(super) const CATCH_UP_MAX: Duration = Duration::from_secs(2);

/// How long the reader rests after the store answered an error.
pub(super) const READER_RETRY: Duration = Duration::from_secs(1);

/// How often a write that lost against other processes' is tried again: each time one of theirs came
/// through, so it ends when they rest, which they do long before.
pub(super) const TRIES_MAX: usize = 1_000;

/// Records that are written as one batch: tombstones of a subject with many versions.
pub(super) const BATCH_RECORDS_MAX: usize = 1_000;

/// Outcomes of records that lost, which their writers have yet to look at.
pub(super) const LOST_REMEMBERED: usize = 10_000;
