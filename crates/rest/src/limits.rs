//! Every bound of the REST proxy, each with its unit and its reason.

use std::time::Duration;

/// Bytes of one request body unless configured: three of the largest messages that MapR allows
/// (10 MB), with base64 on top.
pub(crate) const BODY_BYTES_MAX: u64 = 48 << 20;

/// Bytes that bodies of all requests may hold together while they are read and stored: what a
/// small machine can spare; senders above it wait on their sockets.
pub(crate) const BODIES_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a body of unknown length that are read before it must wait for its share of
/// [`BODIES_BYTES_MAX`]: one small request never waits behind large ones.
pub(crate) const BODY_BYTES_FREE: u64 = 64 << 10;

/// Bytes that a record takes beside those that it came as: its place in the parsed body, the record
/// and a copy of it, its outcome and its receipt.
pub(crate) const RECORD_HELD_BYTES: u64 = 400;

/// Bytes that records of all requests may take together beside those that they came as: more than one
/// request of [`RECORDS_MAX`].
pub(crate) const RECORDS_BYTES_MAX: u64 = 128 << 20;

/// Records of one request that take no room for what they take beside their bytes: one small request
/// never waits behind large ones.
pub(crate) const RECORDS_FREE: usize = 100;

/// How long a request of many records waits for that room.
pub(crate) const RECORDS_ROOM_WAIT: Duration = Duration::from_secs(30);

/// How long a sender may take for one body: a slow sender must not hold its share for ever.
pub(crate) const BODY_READ_MAX: Duration = Duration::from_secs(60);

/// Bytes of one read's answer unless the request says less (kafka-rest's
/// `consumer.request.max.bytes`).
pub(crate) const READ_BYTES_MAX: usize = 64 << 20;

/// Bytes of one read's answer when the request says nothing: answers are built in memory, so a
/// forgetful client must not cost 64 MiB each time.
pub(crate) const READ_BYTES_DEFAULT: usize = 4 << 20;

/// Partitions read at one time without an instance: each holds an answer in memory (kafka-rest's
/// `simpleconsumer.pool.size.max`).
pub(crate) const PARTITION_READS_MAX: usize = 25;

/// How long such a read waits for its place (kafka-rest's `simpleconsumer.pool.timeout.ms`).
pub(crate) const PARTITION_READ_PLACE_WAIT: Duration = Duration::from_secs(1);

/// Looks at records through the management port at one time: each holds an answer of some megabytes,
/// and people look one by one.
pub(crate) const LOOKS_MAX: usize = 8;

/// Records of one look unless it says how many, and of any: more is for a consumer.
pub(crate) const LOOK_RECORDS_DEFAULT: usize = 50;
pub(crate) const LOOK_RECORDS_MAX: usize = 200;

/// Bytes of all keys, or values, that one look shows together: each is shown up to its part of that,
/// so that one record alone is shown nearly whole.
pub(crate) const LOOK_SHOWN_BYTES: usize = 1 << 20;

/// Bytes of keys and values that one look reads, and how long it does: where records are large, far
/// between, or in many partitions, it ends with what it has.
pub(crate) const LOOK_BYTES_MAX: usize = 16 << 20;
pub(crate) const LOOK_TIME_MAX: Duration = Duration::from_secs(5);

/// Bytes that a look takes from the store at a time, and how long it waits there for what is not at
/// hand.
pub(crate) const LOOK_POLL_BYTES: usize = 1 << 20;
pub(crate) const LOOK_POLL_WAIT: Duration = Duration::from_millis(250);

/// Groups that are looked at for those that read a topic: of a Kafka cluster each is a call.
pub(crate) const TOPIC_GROUPS_MAX: usize = 1_000;

/// How long a read may wait for its first record, whatever it asks for: below the idle time-outs
/// that usual load balancers have.
pub(crate) const READ_WAIT_MAX: Duration = Duration::from_secs(60);

/// Consumer instances of one process unless configured: each is a group member with some
/// kilobytes of state.
pub(crate) const CONSUMER_INSTANCES_MAX: usize = 10_000;

/// Bytes of a group's or an instance's name: it is a path segment and a key in memory.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Partitions or topics that one request may name: more is a mistake, not a use.
pub(crate) const NAMED_PARTITIONS_MAX: usize = 10_000;

/// Bytes of a topic pattern's compiled form: a regular expression must not cost megabytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 1 << 20;

/// How old the list of topics behind a pattern may be before a read looks again (Kafka's clients
/// look every five minutes; looking here costs microseconds).
pub(crate) const PATTERN_AGE_MAX: Duration = Duration::from_secs(1);

/// Bytes of a produce request from which on it is worth trying whether it holds plain text only: the
/// parser takes some microseconds for as much.
pub const SCANNED_BYTES_MIN: usize = 4 << 10;

/// Records of one produce request, or of one read without an instance: a record of three bytes costs
/// some 150 in memory.
pub(crate) const RECORDS_MAX: usize = 200_000;

/// Bytes of records that go to the store as one batch: under the store's message bound as it
/// usually is (a batch that the store still finds too large is halved); a larger record goes alone.
pub(crate) const BATCH_BYTES: usize = 1_000_000;

/// Bytes of an `Idempotency-Key`: clients send a UUID or a name of their own.
pub(crate) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Records of a stream under an idempotency key that are stored at once: each is a request of its
/// own to the store.
pub(crate) const STREAM_KEYED_AT_ONCE: usize = 256;

/// Largest `fetch.min.bytes` that a consumer may ask for (kafka-rest's own constraint).
pub(crate) const FETCH_MIN_BYTES_MAX: i64 = 10_000_000;

/// The time between two automatic commits (Kafka's `auto.commit.interval.ms`).
pub(crate) const AUTO_COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// The time between two entries of where a consumer instance is, while it is read and other proxies
/// may have to go on with it.
pub(crate) const ROLL_NOTE_INTERVAL: Duration = Duration::from_secs(1);

/// How long reading the roll of consumer instances may take before a call is told to come again.
pub(crate) const ROLL_READ_MAX: Duration = Duration::from_secs(20);

/// How long a look at the roll waits for its last record before it writes one of its own.
pub(crate) const ROLL_LOOK: Duration = Duration::from_millis(500);

/// How long an instance that was taken over waits for partitions in which to go on where it was.
pub(crate) const RESUME_MAX: Duration = Duration::from_secs(120);

/// How long a poll lasts while an instance waits for such a partition.
pub(crate) const RESUME_LOOK: Duration = Duration::from_millis(200);

/// How long a connection to another proxy may take: they are neighbours.
pub(crate) const PEER_CONNECT_MAX: Duration = Duration::from_secs(2);

/// How long another proxy's answer may take, and each part of it: a read that waits, and what it
/// brings.
pub(crate) const PEER_ANSWER_MAX: Duration = Duration::from_secs(120);

/// Consumer instances that are closed at once; each commits what it has read.
pub(crate) const CLOSED_AT_ONCE_MAX: usize = 1_000;

/// How long a proxy that stops may take to write down where its consumer instances are.
pub(crate) const NOTE_ALL_MAX: Duration = Duration::from_secs(8);

/// How long they may take to commit and to leave their groups then: with the time before, a stop stays
/// within what service managers give.
pub(crate) const CLOSE_ALL_MAX: Duration = Duration::from_secs(8);

/// Passwords that are checked at one time: each holds a thread, and waits there for one of the few
/// hashes that `access` makes at a time.
pub(crate) const LOGINS_AT_ONCE_MAX: usize = 4;

/// Callers whose password is being checked or waits for it, about 1 KiB each: at some 30 a second of
/// one core they wait half a minute at most.
pub(crate) const LOGINS_WAITING_MAX: usize = 1_000;

/// How long a wrong password waits for its answer, so that passwords cannot be tried fast.
pub(crate) const LOGIN_REFUSED_WAIT: Duration = Duration::from_millis(100);

/// Longest `Authorization` header read, in bytes: tokens of other issuers have a few KiB.
pub(crate) const LOGIN_BYTES_MAX: usize = ::access::limits::JWT_BYTES_MAX;

/// What a rate allows in this time may be used at once.
pub(crate) const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Unless configured, how long a stream of records may be silent: longer than the idle time-outs
/// between here and there, which would close it anyway.
pub(crate) const STREAM_IDLE_MAX: Duration = Duration::from_secs(300);

/// Unless configured, how long a stream of records may be open (kafka-rest's
/// `streaming.connection.max.duration.ms`).
pub(crate) const STREAM_OPEN_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the end of a stream waits for its sender to stop (kafka-rest's grace period): bytes that
/// nobody reads would cost them the last receipt.
pub(crate) const STREAM_END_GRACE: Duration = Duration::from_millis(500);

/// Bytes of a backup that may wait for who reads it: enough to keep the disk and the socket busy.
pub(crate) const BACKUP_PIPE_BYTES: usize = 256 << 10;

/// ACLs added by one request: they are written to the disk together.
pub(crate) const ACLS_AT_ONCE_MAX: usize = 1_000;

/// Streams of events of one process: each has a reader and a connection, or a part of one. With
/// [`RECORD_STREAMS_MAX`] they leave some of a port's connections to others.
pub(crate) const EVENT_STREAMS_MAX: usize = 6_000;

/// How long a stream of events is silent at most: below the idle time-outs between here and there.
pub(crate) const EVENTS_REST: Duration = Duration::from_secs(15);

/// Bytes of events that may wait for who reads them, and of records that are taken for them at a time.
pub(crate) const EVENTS_PIPE_BYTES: usize = 16 << 10;

/// Entries of one batch of version 3: a body is held whole, a stream is not.
pub(crate) const BATCH_ENTRIES_MAX: usize = 1_000;

/// Characters of a batch entry's id (kafka-rest's own bound).
pub(crate) const BATCH_ID_CHARS_MAX: usize = 80;

/// Records of a stream that are stored at once: their receipts take some 300 bytes each.
pub(crate) const STREAM_RECORDS_AT_ONCE: usize = 4_000;

/// Bytes of a stream that are received while what came before is stored.
pub(crate) const STREAM_READ_AHEAD_BYTES: usize = 1 << 20;

/// Streams of records of one process: each has a task and a connection, or a part of one.
pub(crate) const RECORD_STREAMS_MAX: usize = 3_000;

/// Bytes that a stream holds without asking: beyond, they take part in [`BODIES_BYTES_MAX`].
pub(crate) const STREAM_BYTES_FREE: usize = 64 << 10;

/// Bytes that a record of a stream takes beside those that it came as, its receipt counted.
pub(crate) const STREAM_RECORD_HELD_BYTES: usize = 700;

/// How long a stream waits for that before it ends.
pub(crate) const STREAM_ROOM_WAIT: Duration = Duration::from_secs(10);

/// Bytes of receipts that may wait for who reads them.
pub(crate) const RECEIPTS_PIPE_BYTES: usize = 64 << 10;

/// Levels of nesting in a schema's or an embedded value's JSON: what recurses over it keeps within
/// a small part of a thread's stack, and readers elsewhere stop at some hundred levels too.
pub(crate) const JSON_DEPTH_MAX: usize = 128;

/// Values in one schema's or one embedded value's JSON: each takes some 50 bytes while it is read.
pub(crate) const JSON_VALUES_MAX: usize = 1_000_000;

/// Bytes of one schema's text, its references not counted: the largest that are published have a
/// few megabytes.
pub(crate) const SCHEMA_BYTES_MAX: usize = 4 << 20;

/// Schemas that one schema may refer to, over however many steps.
pub(crate) const SCHEMA_REFERENCES_MAX: usize = 1_000;

/// Bytes of JSON that one payload may become, for each of its bytes: field names and branches of
/// unions make it grow, an array of nulls must not make it endless.
pub(crate) const DECODED_GROWTH_MAX: usize = 64;

/// Bytes of JSON that a payload may become however small it is.
pub(crate) const DECODED_BYTES_FREE: usize = 64 << 10;

/// Types of one Avro schema: the largest in use have some thousands.
pub(crate) const AVRO_NODES_MAX: usize = 20_000;

/// Levels of nesting in one Avro value, defaults and branches of unions counted: recursive types
/// nest as deep as a payload says.
pub(crate) const AVRO_DEPTH_MAX: usize = 256;

/// Pairs of types that a comparison of two Avro schemas looks at: more only come of schemas that are
/// made for it.
pub(crate) const AVRO_PAIRS_MAX: usize = 200_000;

/// Reasons that a comparison of two schemas tells.
pub(crate) const FINDINGS_MAX: usize = 100;

/// Steps that a pattern with look-around or back-references may take on one text before it counts as
/// not matching: other patterns run in linear time.
pub(crate) const PATTERN_STEPS_MAX: usize = 10_000;

/// Bytes of one payload's Protobuf that are taken; what a message takes in memory has its own bound.
pub(crate) const PROTOBUF_BYTES_MAX: usize = 16 << 20;

/// Schemas that may apply to one value one within another, by references and combinations.
pub(crate) const JSON_REFERENCES_DEEP_MAX: usize = 256;

/// Levels of a value times schemas that apply to one value one within another: validating recurses as
/// deep as both together.
pub(crate) const VALIDATION_DEPTH_MAX: usize = 2_048;

/// Schemas that validating one value may apply: a second of work or so.
pub(crate) const VALIDATION_STEPS_MAX: u64 = 2_000_000;

/// The same for all values of one request, reading and writing them counted: ten seconds or so.
pub(crate) const REQUEST_STEPS_MAX: u64 = 20_000_000;

/// Bytes of the payloads that one request's JSON may become: defaults may make them many times larger.
pub(crate) const REQUEST_PAYLOADS_BYTES_MAX: usize = 64 << 20;

/// Steps that a request's values may take where they come up, before they wait for a turn: some
/// milliseconds, in which others are not served.
pub(crate) const LITTLE_WORK_STEPS: u64 = 10_000;

/// Bytes of payloads that are written in that time.
pub(crate) const LITTLE_WORK_BYTES: usize = 1 << 20;

/// Bytes that one Protobuf message may take in memory.
pub(crate) const PROTOBUF_HELD_BYTES_MAX: usize = 128 << 20;

/// Pairs of schemas that a comparison of two JSON Schemas looks at.
pub(crate) const JSON_PAIRS_MAX: usize = 100_000;

/// Values in a JSON Schema with its references written out, up to which a value's faults are told in
/// detail: looking for all of them does not stop at the first.
pub(crate) const JSON_EXPANDED_MAX: usize = 20_000;

/// Schemas of which an answer's keys and values may be: more are answered as not looked up.
pub(crate) const ANSWER_SCHEMAS_MAX: usize = 1_000;

/// Schemas that are kept by the text that they were produced with.
pub(crate) const TEXTS_KEPT_MAX: usize = 10_000;

/// Bytes of the same texts.
pub(crate) const TEXTS_KEPT_BYTES_MAX: usize = 16 << 20;

/// Bytes of a read's answer behind which it begins no further record: JSON of schemas may be much
/// larger than the records that it was read from.
pub(crate) const READ_ANSWER_BYTES_MAX: usize = 128 << 20;

/// Bytes that answers of reads may hold together in one process, from the records that they are made
/// of to the last byte for the socket: as much as for bodies.
pub(crate) const ANSWERS_BYTES_MAX: usize = 256 << 20;

/// Bytes of keys and values that a read takes before it must have room: with ten thousand
/// connections that is less than all the room.
pub(crate) const ANSWER_BYTES_FREE: usize = 16 << 10;

/// What the records of an answer and the answer itself take together, in times of the records' keys
/// and values: base64 and field names on top.
pub(crate) const ANSWER_GROWTH: usize = 3;

/// How long a read waits for room before it answers with what it has.
pub(crate) const ANSWER_ROOM_WAIT: Duration = Duration::from_millis(500);

/// Tenants in one answer: each takes some 300 bytes.
pub(crate) const LISTED_TENANTS_MAX: usize = 1_000;
