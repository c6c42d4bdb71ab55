//! Every bound of the bulk imports, each with its unit and its reason.

use std::time::Duration;

use crate::admission::Bound;

/// Bytes of one upload unless configured: the largest national library files are some gigabytes.
pub(crate) const UPLOAD_BYTES_MAX: u64 = 16 << 30;

/// Records of one slice where the store is a Kafka cluster, which takes a transaction for each: a
/// slice is what one tenant may take at least before the next one's turn, and 250 of the sink's rows
/// stay well under 50 ms.
pub(crate) const SLICE_RECORDS_MAX: u32 = 250;

/// Records of one slice in the embedded store: a few of these are what is committed at once while
/// people are served, whose own commits wait for the disk that these keep busy.
pub(crate) const SLICE_RECORDS: u32 = 50;

/// Records of one turn, or one slice where that has more.
pub(crate) const TURN_RECORDS: usize = SLICE_RECORDS_MAX as usize;

/// The same while people are served: one usual slice.
pub(crate) const TURN_RECORDS_WHILE_SERVED: usize = SLICE_RECORDS as usize;

/// Bytes of the file from which on a turn has no further slice: so that others, and a cancel, wait no
/// longer than for one slice of the largest.
pub(crate) const TURN_BYTES: u64 = SLICE_BYTES_MAX as u64;

/// Slices of one turn: a store remembers as many batches of a producer, and after a crash all of them
/// come again.
pub(crate) const TURN_SLICES_MAX: usize = streams::limits::PRODUCER_BATCHES_REMEMBERED;

/// How long a slice's transaction is held open for its topic: the sync of a disk that is busy, and less
/// than people notice who wait for the database.
pub(crate) const HELD_FOR_TOPIC_MAX: Duration = Duration::from_millis(100);

/// Bytes of keys and values of one slice's records: a slice is one batch in the store, which takes
/// about 1 MiB, and one batch is what the store recognizes when it comes again after a crash.
pub(crate) const SLICE_BYTES_MAX: usize = 900_000;

/// Bytes that the header of a record takes at most that names its tenant, with the batch's own for
/// a record.
pub(crate) const RECORD_HEADERS_BYTES: usize = 128;

/// Bytes of one record as it is stored; a larger one is rejected. Fits a slice alone.
pub(crate) const RECORD_BYTES_MAX: usize = 768 << 10;

/// Bytes of a record that has no end which one slice passes over, so that others' slices and a cancel
/// wait for less than a second: a file of another format may be one such record.
pub(crate) const SKIPPED_BYTES_MAX: u64 = 128 << 20;

/// Bytes of the file that a slice looks at first: 250 records of usual size. What a slice holds depends
/// on it, so jobs that are under way keep it.
pub(crate) const WINDOW_BYTES: usize = 384 << 10;

/// Bytes of the file that a slice looks at when its first record does not fit [`WINDOW_BYTES`]:
/// more than any record that is taken.
pub(crate) const WINDOW_BYTES_MAX: usize = 1 << 20;

/// Slices committed at the same time unless configured. With one, tenants share exactly by weight,
/// whatever number of jobs they have; slices are read ahead beside it.
pub(crate) const WORKERS: usize = 1;

/// Most slices at the same time, whatever is configured: each holds some megabytes.
pub(crate) const WORKERS_MAX: usize = 16;

/// Jobs that are running, uploading or paused at the same time: each is a file, and most an entry in
/// memory.
pub(crate) const JOBS_ACTIVE: Bound = Bound {
    what: "unfinished imports",
    max: 10_000,
    tenant_max: 2_500,
    reserve: 1_000,
};

/// Uploads at the same time: each has a connection and a file handle. One tenant's own disturb each
/// other long before it has its share.
pub(crate) const UPLOADS: Bound = Bound {
    what: "uploads",
    max: 64,
    tenant_max: 16,
    reserve: 16,
};

/// Bytes of an upload between two looks at the disk queue: written behind, synced once at the end.
pub(crate) const UPLOAD_BUFFER_BYTES: usize = 256 << 10;

/// How long an upload may stand still before it is given up.
pub(crate) const UPLOAD_IDLE_MAX: Duration = Duration::from_secs(60);

/// Pieces of a fetched file, or of rejected records, that wait for whoever takes them in; each is some
/// KiB.
pub(crate) const PIECES_MAX: usize = 8;

/// Bytes of rejected records that go out at once, and a record more.
pub(crate) const REJECTS_PIECE_BYTES: usize = 64 << 10;

/// Addresses behind each other to which a fetched file's server may send on.
pub(crate) const FETCH_REDIRECTS_MAX: usize = 5;

/// Attempts in a row without a byte after which a file is not fetched: a server's restart is over
/// by then.
pub(crate) const FETCH_FAILURES_MAX: u32 = 8;

/// The pause before the second attempt; each further one waits this much longer.
pub(crate) const FETCH_PAUSE: Duration = Duration::from_millis(500);

/// How long a fetched file's server may be silent: half of [`UPLOAD_IDLE_MAX`], so that it can be
/// asked again.
pub(crate) const FETCH_IDLE_MAX: Duration = Duration::from_secs(30);

/// Bytes of an address.
pub(crate) const URL_BYTES_MAX: usize = 2_048;

/// Jobs in one listing unless asked for fewer.
pub(crate) const LISTED_JOBS_MAX: u32 = 1_000;

/// Tenants in one answer; the next page starts after the last of them.
pub(crate) const LISTED_TENANTS_MAX: u32 = 1_000;

/// Journal entries in one answer.
pub(crate) const LISTED_ENTRIES_MAX: u32 = 10_000;

/// Bytes of a job's name, its key field and its idempotency key: they are shown and indexed.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Bytes of a record's id: it is the topic's key and half of the sink's primary key.
pub(crate) const ID_BYTES_MAX: usize = 1_024;

/// Bytes of a title kept in the sink; longer ones are cut.
pub(crate) const TITLE_BYTES_MAX: usize = 4_096;

/// Bytes of a request's body that is read and thrown away, so that the caller of a repeated
/// request gets its answer instead of a broken connection.
pub(crate) const DRAIN_BYTES_MAX: u64 = 64 << 20;

/// Longest pause before a slice that failed for a while is tried again.
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Bytes of a rejected record that are kept for the reject file: a MARC record has 99,999 at most.
pub(crate) const REJECT_BYTES_MAX: usize = 128 << 10;

/// Bytes of a CSV file's header line: some thousand columns.
pub(crate) const CSV_HEADER_BYTES_MAX: usize = 64 << 10;

/// Fields of a profile: each is looked for in every record.
pub(crate) const PROFILE_FIELDS_MAX: usize = 64;

/// Profiles of a tenant in one answer; the next page starts after the last of them.
pub(crate) const LISTED_PROFILES_MAX: u32 = 1_000;

/// Rejected records that are read at once for the reject file: with [`REJECT_BYTES_MAX`] some MiB.
pub(crate) const REJECTS_AT_ONCE: u32 = 64;

/// Records in one statement of a slice's commit while people are served: a server works on one for
/// less than a millisecond, and whoever waits for its processor gets it then.
pub(crate) const ROWS_WHILE_SERVED: usize = 50;

/// Ids in one look at the sink: as many as a usual slice has, so that the statement is prepared
/// once.
pub(crate) const IDS_PER_STATEMENT: usize = 250;

/// Keys in one look at the sink: those of a usual turn, of several values each.
pub(crate) const KEYS_PER_STATEMENT: usize = 1_000;

/// Keys that a record has of one selector: every book's numbers, and the first of a list of
/// whatever.
pub(crate) const KEYS_OF_SELECTOR_MAX: usize = 100;

/// Selectors that a tenant's profiles may have matched by: every record of the tenant is entered
/// for each.
pub(crate) const SELECTORS_MAX: i64 = 32;

/// Records whose keys are entered at once that were there before their selector: some megabytes at
/// most for usual ones, and the tenant's other slices wait for some milliseconds.
pub(crate) const FILLED_AT_ONCE: usize = 50;

/// How many times so many are entered in one turn: a turn is of 250 records.
pub(crate) const FILLS_OF_TURN: usize = 5;

/// Connections to the database of jobs and records: workers, the index, the counter and requests.
pub(crate) const CONNECTIONS: u32 = 16;

/// A tenant's weight: beyond this the others do not get on.
pub(crate) const WEIGHT_MAX: u32 = 1_000;

/// Latencies that the guard keeps of each kind: enough to tell one of twenty.
pub(crate) const GUARD_SAMPLES_MAX: usize = 1_024;

/// Longest rest of bulk work after a slice: a job that is cancelled meanwhile is noticed in time.
pub(crate) const GUARD_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Turns whose slices are read ahead in all jobs together: each holds about a mebibyte, and some more
/// where records are large.
pub(crate) const SLICES_AHEAD_MAX: usize = 16;

/// Records of a job that is named interactive which are, of a tenant whose work is not: somebody waits
/// for them, and they take a part of a second.
pub(crate) const INTERACTIVE_RECORDS: u64 = 1_000;

/// How long a process takes a job's row for what it wrote itself; what changed meanwhile shows at the
/// commit, and by then one more slice may be in the topic.
pub(crate) const JOB_KNOWN: Duration = Duration::from_secs(1);

/// How long a job belongs to the process that works on it, unless it renews that: on a shared
/// database another one takes the job over after this.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// After how long without a sign of it a process counts as gone, and its jobs say so: restarts and
/// failovers are over by then.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(120);

/// How long a job waits for a process that is gone before it fails: a day to bring it back.
pub(crate) const LOST_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// How long an upload in pieces may rest before a restart gives it up: a night.
pub(crate) const UPLOAD_RESUMED_WITHIN: Duration = Duration::from_secs(24 * 3_600);

/// How long a failed job's file is kept, so that the job may be resumed: a day to mend what it failed
/// by.
pub(crate) const FAILED_KEPT: Duration = Duration::from_secs(24 * 3_600);

/// How long ended jobs are told of unless configured: a quarter of a year.
pub(crate) const JOBS_KEPT: Duration = Duration::from_secs(90 * 24 * 3_600);

/// Uploads in pieces that one tenant may have begun: each keeps a file while it rests.
pub(crate) const UPLOADS_BEGUN_MAX: usize = 256;

/// Threads for slices and the index: one of each at the same time.
pub(crate) const THREADS_BEHIND: usize = 2;

/// How far bulk work steps back behind what serves people, as `nice` counts: it still has a tenth of
/// a core that somebody else wants wholly.
#[cfg(target_os = "linux")]
pub(crate) const NICE_BEHIND: i32 = 10;

/// Records that the search index takes in with one commit: a tenth of a second at most, which is
/// what another tenant's edit waits.
pub(crate) const INDEXED_AT_ONCE: usize = 1_000;

/// Records that are read for the index with one statement: a database's server works on it for less
/// than a millisecond, and whoever waits for its processor gets it then.
pub(crate) const INDEX_READ_AT_ONCE: usize = 100;

/// Turns whose records are indexed together: as many of usual size as [`INDEXED_AT_ONCE`] has; of
/// larger ones fewer are taken.
pub(crate) const INDEX_ENTRIES_AT_ONCE: u32 = 20;

/// Records in one statement of the search index: usual ones are prepared once.
pub(crate) const INDEX_ROWS: usize = 250;

/// How long the index fills before somebody else may empty it.
pub(crate) const INDEX_TURN: Duration = Duration::from_secs(1);

/// Bytes of records that go to OpenSearch at once, but for a single record: of the order that its
/// makers advise.
pub(crate) const BULK_BYTES_MAX: usize = 4 << 20;

/// Records of a tenant that OpenSearch forgets with one call: in some seconds.
pub(crate) const FORGOTTEN_AT_ONCE: u32 = 10_000;

/// How long OpenSearch may take to answer: it answers 429 long before where it cannot keep up.
pub(crate) const SEARCH_WAIT: Duration = Duration::from_secs(30);

/// Bytes of an answer of OpenSearch's: [`FOUND_MAX`] records with ids and titles of usual size.
pub(crate) const SEARCH_ANSWER_BYTES_MAX: usize = 8 << 20;

/// Records in the answer of a search.
pub(crate) const FOUND_MAX: u32 = 1_000;

/// How many of the best records a search may leave out: with [`FOUND_MAX`] as deep as OpenSearch goes
/// by itself.
pub(crate) const FOUND_OFFSET_MAX: u32 = 9_000;

/// Words of a query; the ones after these are not looked for.
pub(crate) const QUERY_WORDS_MAX: usize = 32;

/// How often a check-out is decided anew because somebody else was first: each time another one of
/// the record's came through.
pub(crate) const COUNTER_TRIES: u32 = 32;

/// Bytes of who holds a record.
pub(crate) const HOLDER_BYTES_MAX: usize = 255;

/// Entries of a record's history in one answer; the next page starts after the last of them.
pub(crate) const LISTED_HISTORY_MAX: u32 = 1_000;
