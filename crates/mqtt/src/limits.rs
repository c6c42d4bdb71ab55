//! Every bound of this crate, with its unit and reason; configuration may tighten most of them.

/// Bytes: the largest topic or filter that MQTT's two-byte length can carry.
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// Levels of a topic or filter: a trie walk is as deep as this, and `a/a/a/…` must not make it
/// tens of thousands of nodes deep.
pub const TOPIC_LEVELS_MAX: usize = 128;

/// Bytes after the fixed header: what MQTT's four-byte remaining length can say.
pub const REMAINING_BYTES_MAX: usize = 268_435_455;

/// Bytes of a client id: long enough for a UUID with a path, short enough to be a map's key.
pub const CLIENT_ID_BYTES_MAX: usize = 1_024;

/// Bytes: a link's read buffer under load. One read of it makes one batch; larger does not fit
/// the second-level cache beside what the sinks touch.
pub const READ_BYTES: usize = 64 * 1024;

/// Bytes: a link's read buffer at rest, so that ten thousand idle links stay below 100 MB.
pub const READ_BYTES_IDLE: usize = 2 * 1024;

/// Bytes: above this an emptied output buffer is given back rather than kept.
pub const WRITE_BYTES_KEPT: usize = 16 * 1024;

/// Bytes: how far the writer fills its buffer from the queue before it writes.
pub const WRITE_BYTES_FILL: usize = 64 * 1024;

/// Topics that one link may give a number to, in each direction: what is kept for them is a
/// name each, for as long as the link lasts.
pub const TOPIC_ALIASES_MAX: u16 = 1_024;

/// Milliseconds that a link which is ended may take to read why, and what was owed to it.
pub const FAREWELL_MS_MAX: u64 = 1_000;

/// Bytes of authentication data in one packet: what its two-byte length can carry.
pub const AUTH_DATA_BYTES_MAX: usize = 65_535;

/// Topics whose subscribers one link remembers; beyond, it forgets all and starts anew.
pub const ROUTES_CACHED: usize = 4_096;

/// Bytes of acknowledgements that a link may owe to a peer which does not read them; then its
/// publishes are not read either.
pub const ACKNOWLEDGEMENT_BYTES_MAX: usize = 256 * 1024;

/// Messages waiting for one in-process sink on the indirect way (retained messages, publishes
/// made inside another sink); beyond, in-process publishers are told to wait.
pub const BACKLOG_MESSAGES_MAX: usize = 65_536;

/// Bytes of the same: what 65,536 small messages need, and a bound for large ones.
pub const BACKLOG_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Messages: one call into a sink from its backlog.
pub const BACKLOG_BATCH: usize = 1_024;

/// Bytes: one segment of the server's journal; small, since reclaiming works by whole segments
/// and most servers retain little.
pub const JOURNAL_SEGMENT_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes: the journal is extended by this much at a time.
pub const JOURNAL_PREALLOCATE_BYTES: u64 = 1024 * 1024;

/// Bytes: appended since the last snapshot before the next one is worth its writing.
pub const SNAPSHOT_AFTER_BYTES: u64 = 2 * JOURNAL_SEGMENT_BYTES;
