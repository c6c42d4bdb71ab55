//! Every bound of the event store, with unit and reason.

use std::time::Duration;

/// Longest topic name in its wire form, in bytes: Kafka's own limit.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Most partitions of one topic: a topic's state stays describable in one metadata answer.
pub const PARTITIONS_PER_TOPIC_MAX: i32 = 100_000;

/// Most partitions in one store: at most 2 KiB of memory each at rest, so about 2 GiB at worst.
pub const PARTITIONS_MAX: u32 = 1_000_000;

/// Longest rest between two syncs that can be asked for: clients wait for it.
pub const SYNC_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Producers whose sequences one partition remembers; the longest silent are forgotten first.
/// At about 120 bytes each this is 1.2 MB for one partition.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 10_000;

/// Batches per producer that are recognized when sent again: as many as an idempotent client may
/// have in flight, so the number is part of Kafka's protocol.
pub const PRODUCER_BATCHES_REMEMBERED: usize = 5;

/// How long a key is remembered under which records were stored once: longer than anybody retries,
/// and not longer than partitions know idempotent producers.
pub const ONCE_KEY_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Keys that are remembered, by one store or by one partition of a Kafka cluster's topic of keys; the
/// oldest are forgotten first. At about 200 bytes each this is 20 MB.
pub const ONCE_KEYS_MAX: usize = 100_000;

/// Partitions of the topic that remembers keys: so many writers may work at once on a cluster.
pub const ONCE_PARTITIONS: i32 = 8;

/// Batches under one key: bounds the record that tells where they are.
pub const ONCE_RUNS_MAX: usize = 10_000;

/// Producer ids reserved by one durable frame; a restart skips what is left of the block.
pub const PRODUCER_ID_BLOCK: i64 = 1_000;

/// Longest group name, in bytes: above Kafka's usual names, below what would bloat a frame.
pub const GROUP_NAME_BYTES_MAX: usize = 1_024;

/// Longest time-out that a transaction may ask for by default: Kafka's default for
/// `transaction.max.timeout.ms`. Readers of committed records wait so long for one that hangs.
pub const TRANSACTION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15 * 60);

/// Longest that may be configured: nothing that was written expires before it is decided, where
/// records are kept for as long as they are by default.
pub const TRANSACTION_TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Connections of a Kafka listener by default: each idle one holds a task and a socket, about 4 KiB.
pub const CONNECTIONS_DEFAULT: usize = 10_000;

/// Transactional ids in one store: bounds memory against invented names.
pub const TRANSACTIONAL_IDS_MAX: usize = 100_000;

/// Bytes that partitions, groups and offsets of all open transactions take together: as much as all
/// committed offsets, since any of them may become such.
pub const TRANSACTIONS_BYTES_MAX: usize = 256 << 20;

/// Groups in one transaction: a producer writes for one or a few, and all their names stand in one
/// frame.
pub const TRANSACTION_GROUPS_MAX: usize = 1_000;

/// Groups with committed offsets in one store: bounds memory against invented names.
pub const GROUPS_MAX: usize = 100_000;

/// Longest metadata text beside a committed offset, in bytes: Kafka's `offset.metadata.max.bytes`.
pub const OFFSET_METADATA_BYTES_MAX: usize = 4_096;

/// Bytes of all committed offsets of all groups, each counted with 64 bytes and its metadata: a
/// million partitions read by four groups.
pub const OFFSETS_BYTES_MAX: usize = 256 << 20;

/// Offsets in one commit: a member of a group cannot hold more partitions than a topic has.
pub const OFFSETS_PER_COMMIT_MAX: usize = 100_000;

/// Largest message by default, in bytes: Kafka's 1 MiB plus the batch header's room.
pub const MESSAGE_BYTES_DEFAULT: u64 = 1_048_588;

/// Largest message that may be configured, in bytes: a frame must fit a segment several times.
pub const MESSAGE_BYTES_MAX: u64 = 16 << 20;

/// Bytes that may wait for the journal's writer: enough that the disk never waits for connections,
/// and twice as much memory, since what is being written stays where it is until all of it is.
pub const PENDING_BYTES_MAX: u64 = 12 << 20;

/// Bytes that one compressed batch may unpack to: 64 MiB holds any sane batch and stops a bomb.
pub const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// Records that one batch may claim: an empty record takes 7 bytes, so a legal batch of
/// [`MESSAGE_BYTES_MAX`] bytes holds fewer unless compressed.
pub const RECORDS_PER_BATCH_MAX: i32 = 4 << 20;

/// Headers that a record may carry when it is decoded in this process: headers cost memory
/// many times their bytes.
pub const HEADERS_PER_RECORD_MAX: i64 = 10_000;

/// Bytes that one read of a partition may collect whatever was asked: bounds a fetch's memory.
pub const READ_BYTES_MAX: usize = 64 << 20;

/// Fetches that may wait on one partition at once: the next is told to come back.
pub const WATCHERS_PER_PARTITION_MAX: usize = 100_000;

/// Partitions that share groups read, those of each group counted: each is kept for as long as its
/// group is, in half a kilobyte while little is on its way.
pub const SHARE_PARTITIONS_MAX: usize = 100_000;

/// Journal bytes after which the store looks for segments to reclaim: four segments, so that the
/// look costs nothing against the writing.
pub const RECLAIM_CHECK_BYTES: u64 = 256 << 20;

/// Journal bytes after which a snapshot is written: reading that much takes an opening about a
/// third of a second.
pub const SNAPSHOT_AFTER_BYTES: u64 = 256 << 20;

/// Bytes that come into a partition before its compaction is looked after: less is not worth
/// reading the partition for.
pub const COMPACTION_BYTES_MIN: u64 = 1 << 20;

/// Keys that one pass of compaction notes: at about 40 bytes each this is 40 MB for a moment; a
/// partition with more takes several passes.
pub const COMPACTION_KEYS_MAX: usize = 1 << 20;

/// Bytes of living batches that are moved to the journal's end in one go: half of what is written
/// between two goes, so that moving keeps up and never crowds out producers.
pub const MOVED_BYTES_MAX: u64 = 128 << 20;

/// Batches in a chunk of an index from which on a snapshot puts it away: fewer are cheaper to
/// write into the snapshot than to keep an outline of.
pub const CHUNK_BATCHES_MIN: usize = 64;

/// Bytes of one snapshot frame, roughly: small against the journal's pending bytes, so that a
/// snapshot never crowds out producers.
pub const SNAPSHOT_FRAME_BYTES: usize = 256 << 10;

/// Bytes that are kept on the disk for what frees segments when the disk is full: deletions, later
/// starts, snapshots, and living batches that move. More where snapshots are larger.
pub const RESERVE_BYTES: u64 = 8 << 20;

/// Partitions that one in-process consumer may hold.
pub const CONSUMER_PARTITIONS_MAX: usize = 100_000;

/// Bytes that an in-process consumer asks of one partition per read when the caller allows more.
pub const CONSUMER_READ_BYTES: usize = 1 << 20;

/// Calls of an external cluster that wait at once, each on a thread: a crowd of callers waits in
/// line instead of taking the threads that files need.
pub const CLUSTER_CALLS_MAX: usize = 64;

/// Batches that may wait to be written to an external cluster.
pub const CLUSTER_JOBS_MAX: usize = 4_096;

/// Bytes of batches that may wait to be written to an external cluster, or be under way: twice of
/// what one round takes.
pub const CLUSTER_PENDING_BYTES: usize = 64 << 20;

/// Batches in one round of writing to an external cluster.
pub const CLUSTER_ROUND_BATCHES_MAX: usize = 1_024;

/// Bytes in one round of writing to an external cluster: enough to fill a fast link for a round
/// trip, small against what may wait.
pub const CLUSTER_ROUND_BYTES_MAX: u64 = 32 << 20;

/// Bytes that have to wait before a round of writing to an external cluster begins beside another:
/// some thousand small records, whose requests cost the cluster and this process far more than what
/// comes with each round.
pub const CLUSTER_ROUND_BESIDE_BYTES_MIN: u64 = 256 << 10;

/// Rounds that may be under way to an external cluster at once, each with a thread and a client of
/// its own while there is so much to write: two keep two cores busy, four a link with a long way.
pub const CLUSTER_LANES_MAX: usize = 4;

/// Producers whose numbers are remembered between rounds; those of others are read again from the
/// external cluster. Each is about 300 bytes.
pub const CLUSTER_LEDGERS_MAX: usize = 10_000;

/// Topics of an external cluster whose partitions are remembered: others are asked for again.
pub const CLUSTER_TOPICS_KNOWN_MAX: usize = 10_000;

/// Readers of a cluster that were let go and are kept for who goes on: each holds what it has read
/// ahead.
pub const CLUSTER_READERS_KEPT_MAX: usize = 8;

/// How long they are kept: who reads on comes at once, or after a look at what it has.
pub const CLUSTER_READERS_KEPT_FOR: Duration = Duration::from_secs(5);

/// Clients of such readers that are kept without their positions after that.
pub const CLUSTER_READERS_SPARE_MAX: usize = 16;

/// How long those are kept.
pub const CLUSTER_READERS_SPARE_FOR: Duration = Duration::from_secs(30);

/// How long a cluster waits for records before it answers that there are none.
pub const CLUSTER_FETCH_WAIT: Duration = Duration::from_millis(500);

/// How often the topics of an external cluster are looked at that keep more than their tenants want
/// kept: the cluster's own clients make topics, and its looks at what is too old are minutes apart.
pub const CLUSTER_RETENTION_LOOK: Duration = Duration::from_secs(60);

/// KiB that a consumer of an external cluster reads ahead: two fetches of the usual size.
pub const CLUSTER_PREFETCH_KBYTES: u32 = 4_096;

/// Bytes of a block of a backup: the largest batch, or the head of a topic of as many partitions as
/// there may be.
pub const BACKUP_BLOCK_BYTES_MAX: usize = 32 << 20;

/// Bytes of batches that a backup reads at once: a disk's sequential speed, and no memory to speak
/// of.
pub const BACKUP_PIECE_BYTES: usize = 1 << 20;

/// Restorings at the same time in one process: each holds a few blocks.
pub const RESTORES_MAX: usize = 4;

/// How long a call is held back whose tenant is over its quotas before it is told to come again: a
/// client that waits longer for an answer may give up.
pub const TENANT_HOLD_MAX: Duration = Duration::from_secs(1);

/// How long a call waits before it looks again whether its tenant may have another one under way.
pub const TENANT_LOOK: Duration = Duration::from_millis(5);

/// Runs of tenants' records that are counted in one shared partition, 40 bytes each; where there
/// would be more, a run takes in more.
pub const CENSUS_RUNS_MAX: usize = 1_000_000;

/// Records of one run: the age of what a group has yet to read is told by the run's first.
pub const CENSUS_RUN_RECORDS_MAX: i64 = 500;

/// Offsets whose records of one tenant are counted together at first, where runs would be too many.
pub const CENSUS_BLOCK_OFFSETS: i64 = 4_096;

/// Refusals of Kafka clients and their connections that are logged in a minute; all of them are counted.
pub const REFUSALS_LOGGED_PER_MINUTE: usize = 60;
