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

/// Most statements of one process, count, unless configured otherwise: each has a lane, a task and a
/// row in every listing.
pub const STATEMENTS: usize = 10_000;

/// Most statements that may be configured, count: at 10 KiB each, half a gigabyte at rest.
pub const STATEMENTS_MAX: usize = 50_000;

/// Largest request body of the HTTP API, bytes: a statement text with every character escaped.
pub const HTTP_BODY_BYTES_MAX: usize = 128 << 10;

/// Largest module of functions, bytes: each is compiled when it is added and at every start.
pub const FUNCTION_MODULE_BYTES_MAX: usize = 2 << 20;

/// Most modules of functions of one process, count: all of them are read at every start.
pub const FUNCTION_MODULES_MAX: usize = 256;

/// Most functions of one module, count: each is tried when it is added.
pub const FUNCTIONS_PER_MODULE_MAX: usize = 256;

/// Most arguments of a function of a module, count.
pub const FUNCTION_ARGUMENTS_MAX: usize = 16;

/// Fuel of one call of a function of a module, unless configured otherwise: about one for each
/// instruction, so that a call without an end costs its source about a millisecond.
pub const FUNCTION_FUEL: u64 = 1_000_000;

/// Most fuel that can be configured: some seconds, in which the source of a statement stands still.
pub const FUNCTION_FUEL_MAX: u64 = 1_000_000_000;

/// Memory of one call of a function of a module, bytes, unless configured otherwise.
pub const FUNCTION_MEMORY_BYTES: u64 = 16 << 20;

/// Most memory of one call that can be configured, bytes: each statement may be in one at once.
pub const FUNCTION_MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Most entries of a module's tables, count: functions that it calls by reference.
pub const FUNCTION_TABLE_ELEMENTS_MAX: usize = 100_000;

/// Largest request that adds a module, bytes: the module in base64, and its signatures.
pub const FUNCTION_BODY_BYTES_MAX: usize = FUNCTION_MODULE_BYTES_MAX / 3 * 4 + (64 << 10);

/// Shortest tumbling window: below it, a window is an event.
pub const WINDOW_MIN: Duration = Duration::from_millis(1);

/// Longest tumbling window: 366 days; longer ones are reports, not streams.
pub const WINDOW_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Most windows that one event is in, count: it is added to the groups of each.
pub const HOPS_MAX: u128 = 1_000;

/// Most open groups of one statement over all its open windows, count, unless configured lower: their
/// bytes are what bounds them, this bounds their numbers to 32 bits.
pub const GROUPS_MAX: usize = 100_000_000;

/// Most open windows of one statement, count: lateness and lagging partitions hold windows open.
pub const WINDOWS_MAX: usize = 10_000;

/// Most bytes of what one statement, named window or table keeps of events (EPL), and of what one of a
/// trial does: it is checkpointed whole.
pub const STATE_BYTES_MAX: usize = 128 << 20;

/// Most bytes of keyed state of one statement over windows (keys, texts and accumulators), unless
/// configured otherwise: a million groups of a few aggregates.
pub const KEYED_STATE_BYTES: u64 = 512 << 20;

/// Most bytes of keyed state that may be configured: a checkpoint's parts are counted.
pub const KEYED_STATE_BYTES_MAX: u64 = 4 << 30;

/// Smallest checkpoint behind which only changes are written, bytes: a smaller one is one write. The
/// crate's own tests have small states.
pub const CHANGES_FROM_BYTES: usize = if cfg!(test) { 64 } else { 256 << 10 };

/// State from which on a checkpoint's buffer is mapped by itself, bytes.
pub const LARGE_STATE_BYTES: usize = 256 << 10;

/// What is asked for then, bytes: above 32 MiB, glibc's malloc maps pages whatever was freed before.
pub const MAPPED_BYTES: usize = 33 << 20;

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

/// Rows in one transaction of a SQL database, count: more gain little, and are tried again together.
pub const TABLE_ROWS_MAX: usize = 1_000;

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

/// Bytes that may wait for the statement journal's writer: two parts, since its buffers stay as large
/// as they once were.
pub const JOURNAL_PENDING_BYTES: u64 = 2 << 20;

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

/// Most rows on internal streams that one event may make at once, count: statements that multiply
/// rows stand one after another in a chain.
pub const CHAINED_ROWS_MAX: usize = 65_536;

/// Greatest distance of a time from 1970, milliseconds: arithmetic with windows cannot overflow in
/// it, and ECMAScript's dates have the same.
pub const TIME_MS_MAX: i64 = 8_640_000_000_000_000;

/// How far ahead something of a query may be due, milliseconds: a calendar looks nine years ahead.
pub const TIME_AHEAD_MS_MAX: i64 = 10 * 366 * 86_400_000;

/// Most instants at which time stops on one way forward, count: a record that says it is from 1970
/// would else make a statement that tells something each second do so for its whole history.
pub const TIME_STEPS_MAX: u32 = 100_000;

/// Most rows of one named window or table, count: each is looked at by who looks for one.
pub const KEPT_ROWS_MAX: usize = 1_000_000;

/// Most subqueries of one statement, count: each looks through what its input holds.
pub const SUBQUERIES_MAX: usize = 8;

/// Most rows that a query on demand answers with, count: an answer is built whole.
pub const DEMAND_ROWS_MAX: usize = 10_000;

/// Most events of one statement that wait for their time, count: the lateness times the rate.
pub const WAITING_EVENTS_MAX: usize = 250_000;

/// Most records of one SenML message, count: each is an event, and all of them are applied at once.
pub const SENML_RECORDS_MAX: usize = 4_096;

/// Most rows of the table of event types, count: each is looked at for every statement that is added.
pub const EVENT_TYPES_MAX: usize = 256;

/// Most targets of one statement, count: a row goes to one after another.
pub const TARGETS_MAX: usize = 16;

/// Longest target as text, bytes: a long URL, or an MQTT topic that is longer than anybody's.
pub const TARGET_TEXT_BYTES_MAX: usize = 4 << 10;

/// Longest wait for the answer to a posted row: a server that is slower holds its source back.
pub const POST_TIMEOUT: Duration = Duration::from_secs(10);

/// Most requests for events that are under way at once, count: what all statements together hold of
/// sockets and of answers that are not whole yet.
pub const POLLS_AT_ONCE: usize = 64;

/// The rests before a server that failed is asked again, shortest and longest; they double between.
pub const POLL_RETRY_WAIT: (Duration, Duration) = if cfg!(test) {
    (Duration::from_millis(10), Duration::from_millis(40))
} else {
    (Duration::from_secs(1), Duration::from_secs(60))
};

/// Longest pause between two requests for events, and longest wait for an answer, that can be
/// configured.
pub const POLL_PAUSE_MAX: Duration = Duration::from_secs(86_400);
/// See [`POLL_PAUSE_MAX`].
pub const POLL_WAIT_MAX: Duration = Duration::from_secs(300);

/// Shortest pause between two requests for events that can be configured: no server is flooded.
pub const POLL_PAUSE_MIN: Duration = Duration::from_millis(10);

/// Most dead letters that wait for their topic, count; what comes more is counted only.
pub const LETTERS_WAITING_MAX: usize = 1_000;

/// What a dead letter shows of the payload, bytes from its front.
pub const LETTER_PAYLOAD_BYTES: usize = 1 << 10;

/// Most dead letters of one statement per second, count, that can be configured.
pub const LETTERS_PER_SECOND_MAX: u32 = 10_000;

/// Rows that wait for somebody who looks at a statement, count and bytes; who is slower misses some.
pub const TAP_ROWS: usize = 256;
/// See [`TAP_ROWS`].
pub const TAP_BYTES: usize = 1 << 20;

/// How long rows are kept for somebody who does not look any more.
pub const TAP_KEPT: Duration = Duration::from_secs(60);

/// Longest wait of one look: below what proxies allow a request.
pub const TAIL_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a replacement waits for the sinks to take the rows of the old form; the source is held
/// back meanwhile.
pub const REPLACE_WAIT: Duration = Duration::from_secs(2);

/// How long a listing waits for the event store to say where its topics end.
pub const LAG_WAIT: Duration = Duration::from_secs(2);

/// Most control messages that wait at a node, count: more hold their publishers back.
pub const CONTROL_WAITING_MAX: usize = 1_024;

/// Most signed control messages that are remembered because they could come again, count: what comes
/// beyond that within `fusion.control.max_age` is refused.
pub const CONTROL_HAD_MAX: usize = 10_000;

/// Largest control message, bytes: a statement text in base64 within base64, and room.
pub const CONTROL_BYTES_MAX: usize = 256 << 10;

/// Most names of desired state that wait to be tried again, count: what finds no place is heard again
/// at the next start.
pub const DESIRED_WAITING_MAX: usize = 1_000;

/// The rests before they are tried again, shortest and longest; they double between. A try may hold
/// the source back for [`REPLACE_WAIT`].
pub const DESIRED_RETRY_WAIT: (Duration, Duration) = if cfg!(test) {
    (Duration::from_millis(50), Duration::from_secs(1))
} else {
    (Duration::from_secs(1), Duration::from_secs(60))
};

/// Most that their messages take, bytes: 64 of the largest.
pub const DESIRED_WAITING_BYTES_MAX: usize = 64 * CONTROL_BYTES_MAX;

/// Most names of desired state that a node remembers, count: each is a line in one small file.
pub const DESIRED_MAX: usize = 10_000;

/// Most events of one call that injects them, bytes.
pub const INJECT_BYTES_MAX: usize = 1 << 20;

/// Most statements that metrics tell one by one, count: a collector keeps every series.
pub const STATEMENTS_TOLD_MAX: usize = 1_000;

/// Most topic rules of one process, count: each is a task and, out of the store, a group member.
pub const RULES_MAX: usize = 256;

/// Longest name of a topic rule, bytes: it stands in the path of every message.
pub const RULE_NAME_BYTES_MAX: usize = 64;

/// Longest filter, topic or template of a topic rule, bytes: longer than anybody's.
pub const RULE_TEXT_BYTES_MAX: usize = 1 << 10;

/// Most parts of one template, count: each is looked up for every message.
pub const RULE_PLACES_MAX: usize = 32;

/// Messages of one topic rule that wait for the store, count and bytes; publishers are held back
/// beyond.
pub const RULE_QUEUE_RECORDS_MAX: usize = 16_384;
/// See [`RULE_QUEUE_RECORDS_MAX`].
pub const RULE_QUEUE_BYTES_MAX: usize = 16 << 20;

/// Most topics of the store that the places of one rule's target make, count: publishers choose them.
pub const RULE_TOPICS_MAX: usize = 1_000;

/// Most places that a message may have been at before a topic rule drops it, count.
pub const RULE_HOPS_MAX: usize = 16;

/// How often a topic rule out of the store commits its position: so much may come twice after a crash.
pub const RULE_COMMIT_WAIT: Duration = Duration::from_millis(200);

/// Most bytes of a durable statement's input that no checkpoint holds yet: a checkpoint is asked for
/// at half of it, and publishers are held back at it. The crate's own tests have few messages.
pub const INPUT_BYTES_MAX: u64 = if cfg!(test) { 64 << 10 } else { 256 << 20 };

/// Messages of a durable statement's input in one frame, bytes of payloads, unless one is larger.
pub const INPUT_TURN_BYTES: usize = 1 << 20;

/// How far apart the places of a durable statement's input are that are kept in memory, bytes.
pub const INPUT_MARK_BYTES: u64 = if cfg!(test) { 1 << 10 } else { 64 << 10 };

/// Longest name of a group of processes, bytes: it is part of a topic's name.
pub const GROUP_NAME_BYTES_MAX: usize = 100;

/// Most bytes of keyed state that a statement of a group keeps of one partition: what changed of it
/// is one transaction with its rows.
pub const GROUP_STATE_BYTES_MAX: usize = 128 << 20;

/// How long the others of a group wait for a process that does not answer, before they take over its
/// partitions.
pub const GROUP_SESSION: Duration = Duration::from_secs(10);

/// How long rows of a group wait for more, so that they and the state go in one transaction.
pub const GROUP_COMMIT_WAIT: Duration = Duration::from_millis(100);

/// How often a group is asked what it has given, at least.
pub const GROUP_LOOK: Duration = Duration::from_secs(1);

/// How long a process whose statement is of another form than its group's waits before it looks again:
/// the first time, and at last.
pub const GROUP_FORM_WAIT: (Duration, Duration) = (RETRY_WAIT.0, Duration::from_secs(60));

/// How long one look at a partition for the form of its group's state waits: short, since most
/// partitions end with a mark that is no record, and all of them may be looked at.
pub const GROUP_FORM_LOOK: Duration = Duration::from_millis(50);

/// How long reading a partition's state may take.
pub const GROUP_LOAD_WAIT: Duration = Duration::from_secs(60);

/// Bytes of a partition's state behind its latest whole checkpoint at which the older ones are deleted.
pub const GROUP_LOG_BYTES: u64 = 4 << 20;
