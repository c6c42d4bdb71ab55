//! Every bound of the crate, with its unit and its reason.

use std::time::Duration;

/// Longest statement text, bytes: a page of SQL; also the parser's own input bound.
pub const STATEMENT_TEXT_BYTES_MAX: usize = 16 << 10;

/// Most tokens of one statement: syntax trees are walked and dropped by recursion, and a chain of
/// operators nests once per operator, so this bounds the stack.
pub const STATEMENT_TOKENS_MAX: usize = 2_000;

/// Deepest nesting of one expression, levels: bounds the stack of compiling and evaluating.
pub const EXPRESSION_DEPTH_MAX: usize = 200;

/// Deepest nesting inside brackets that the SQL parser follows, levels: its own recursion bound.
pub const SQL_RECURSION_MAX: usize = 40;

/// Deepest nesting of an EPL statement (brackets, calls, patterns, subqueries), levels: bounds the
/// parser's stack.
pub const EPL_DEPTH_MAX: usize = 50;

/// Most parts of one pattern and most variables of a row pattern, count: each is a state of the
/// matcher that every event may visit.
pub const PATTERN_NODES_MAX: usize = 64;

/// Largest compiled regular expression, bytes: bounds what a statement's text can make of it.
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// Most rows that a trial of statements by a script shows, count: what a person reads, and a bound
/// on statements that feed each other.
pub const TRIAL_ROWS_MAX: usize = 100_000;

/// Most sources of one statement, count: each more multiplies what a join may pair.
pub const SOURCES_MAX: usize = 8;

/// Most distinct payload fields of one statement, count: each is a slot that every event fills.
pub const FIELDS_MAX: usize = 256;

/// Most columns of one statement, count.
pub const COLUMNS_MAX: usize = 256;

/// Longest statement name, bytes: shown in tables and used in URLs.
pub const NAME_BYTES_MAX: usize = 128;

/// Most statements of one process, count: each has a lane, a task and a row in every listing.
pub const STATEMENTS_MAX: usize = 10_000;

/// Largest request body of the HTTP API, bytes: a statement text with every character escaped.
pub const HTTP_BODY_BYTES_MAX: usize = 128 << 10;

/// Shortest tumbling window: below it, a window is an event.
pub const WINDOW_MIN: Duration = Duration::from_millis(1);

/// Longest tumbling window: 366 days; longer ones are reports, not streams.
pub const WINDOW_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Most open groups of one statement over all its open windows, count, unless configured lower.
pub const GROUPS_MAX: usize = 250_000;

/// Most open windows of one statement, count: lateness and lagging partitions hold windows open.
pub const WINDOWS_MAX: usize = 10_000;

/// Most bytes of keyed state of one statement (keys, texts and accumulators).
pub const STATE_BYTES_MAX: usize = 128 << 20;

/// Longest group key and longest text kept by `min`, `max`, `first` and `last`, bytes.
pub const KEPT_VALUE_BYTES_MAX: usize = 64 << 10;

/// Deepest JSON nesting that the fast scanner follows, levels; deeper goes to the full parser.
pub const SCAN_DEPTH_MAX: usize = 32;

/// Output waiting for a sink, bytes: above it the statement's source is held back.
pub const OUTPUT_BYTES_MAX: usize = 2 << 20;

/// Output rows waiting for a sink, count: the same bound for small rows.
pub const OUTPUT_ROWS_MAX: usize = 65_536;

/// Bytes of records in one produce call: below the stores' usual 1 MiB bound on a batch.
pub const PRODUCE_BYTES_MAX: usize = 512 << 10;

/// Records in one produce call, count.
pub const PRODUCE_ROWS_MAX: usize = 10_000;

/// Largest result row, bytes: it has to fit one record batch of the store.
pub const ROW_BYTES_MAX: usize = 960 << 10;

/// Bytes asked of the store by one poll.
pub const POLL_BYTES_MAX: usize = 1 << 20;

/// Events that one hold of the source's lock may process, count: keeps listings and timers quick.
pub const EVENTS_PER_TURN_MAX: usize = 1_024;

/// Longest wait of one poll: only a bound, since a poll answers as soon as anything is there.
pub const POLL_WAIT: Duration = Duration::from_secs(30);

/// Largest part of a checkpoint in one journal frame, bytes.
pub const CHECKPOINT_PART_BYTES: usize = 1 << 20;

/// Most bytes per second that the lazy checkpoints of one statement write: a large state is
/// checkpointed less often.
pub const CHECKPOINT_BYTES_PER_SECOND: u64 = 8 << 20;

/// Segment size of the statement journal, bytes: small, since it holds live state only.
pub const JOURNAL_SEGMENT_BYTES: u64 = 8 << 20;

/// Growth of the statement journal beyond its live content at which it is rewritten, bytes.
pub const JOURNAL_SLACK_BYTES: u64 = 32 << 20;

/// Wait before a failed source or sink is tried again, shortest and longest.
pub const RETRY_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// How long a clean stop waits for sinks to take what is waiting.
pub const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// Longest error text kept per statement, bytes.
pub const ERROR_TEXT_BYTES_MAX: usize = 512;

/// A wall clock that stands this far before the latest arrival was set back, milliseconds.
pub const CLOCK_STEP_MS: i64 = 60_000;

/// Most waiting parts of the patterns of one statement, count: each is looked at by every event.
pub const PATTERN_STATES_MAX: usize = 100_000;

/// Most events of one statement that wait for their time, count: the lateness times the rate.
pub const WAITING_EVENTS_MAX: usize = 250_000;
