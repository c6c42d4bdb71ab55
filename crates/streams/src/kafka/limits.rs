//! Every bound of the Kafka listener, with unit and reason.

use std::time::Duration;

/// Largest request in bytes: Kafka's default for `socket.request.max.bytes`. Buffers grow as the
/// bytes arrive, so that announcing it costs nobody anything.
pub(super) const REQUEST_BYTES_MAX: usize = 100 << 20;

/// Threads that serve a listener's connections: one for each processor, up to as many as could fill
/// any disk and network.
pub(super) const LANES_MAX: usize = 16;

/// Requests that a client sends one by one, each after the answer to the one before, until it is
/// believed to go on so.
pub(super) const ALONE_MIN: u8 = 8;

/// Threads of a lane for what blocks, as hashes of passwords, lookups by time and changes of users
/// do: all lanes together have as many as a runtime has by default.
pub(super) const LANE_BLOCKING_THREADS_MAX: usize = 32;

/// Requests that describe things have a thread of their own from so many bytes on: about a thousand
/// names, some milliseconds.
pub(super) const ASIDE_REQUEST_BYTES_MIN: usize = 16 << 10;

/// And whatever their bytes in a store with more topics than this, since they may ask for all.
pub(super) const ASIDE_TOPICS_MIN: usize = 2_000;

/// Bytes that one connection sends before others of its lane have their turn: a client that keeps up
/// would else keep them waiting for the whole of a large answer, and for the disk that it comes from.
pub(super) const SENT_IN_TURN_BYTES_MAX: usize = 1 << 20;

/// A connection that asks for nothing for this long is ended: Kafka's default for
/// `connections.max.idle.ms`.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(600);

/// A connection that has asked for nothing for this long is ended for a newcomer when there are
/// `streams.connections_max`: clients that work ask several times in it.
pub(super) const IDLE_GRACE: Duration = Duration::from_secs(10);

/// A connection whose last request began this long ago and is still unanswered, or its answer
/// unread, is ended for a newcomer when nobody is idle: longer than a request may wait for its
/// answer, which is [`FETCH_WAIT_MAX`] for a fetch and about as long for a join of a group.
pub(super) const WAITING_GRACE: Duration = Duration::from_secs(330);

/// Requests of one connection that were begun and are not answered. Clients pipeline 5 by default;
/// at the bound the connection is not read any further.
pub(super) const REQUESTS_IN_FLIGHT_MAX: usize = 256;

/// Answers of one connection that wait to be sent, in bytes; above it no more are taken up. One
/// fetch may exceed it by its own bound.
pub(super) const UNSENT_BYTES_MAX: usize = 1 << 20;

/// Bytes asked of the socket at once, at least; a produce request of default size fits.
pub(super) const READ_STEP_BYTES: usize = 64 << 10;

/// Bytes of the record batches in one fetch answer: Kafka's default for `fetch.max.bytes` on the
/// server's side.
pub(super) const FETCH_BYTES_MAX: usize = 55 << 20;

/// Longest wait of a fetch: a client that asks for more is woken and asks again.
pub(super) const FETCH_WAIT_MAX: Duration = Duration::from_secs(300);

/// How long connections may take to end when the listener stops.
pub(super) const SHUTDOWN_WAIT: Duration = Duration::from_secs(5);

/// How long a connection that is being stopped waits for answers that are on their way.
pub(super) const DRAIN_WAIT: Duration = Duration::from_secs(2);

/// How long a frame that has begun may stand still before its connection is closed: a sender that
/// died in the middle must not hold its buffer forever.
pub(super) const FRAME_STALL_MAX: Duration = Duration::from_secs(60);

/// How long an answer may find no reader before its connection is closed: Kafka's default for
/// `connections.max.idle.ms`. A client may well read nothing while it works on what it has.
pub(super) const SEND_STALL_MAX: Duration = Duration::from_secs(600);

/// Batches in one fetch answer: each takes 40 bytes until it is sent, so 640 KiB; clients come
/// back for the rest.
pub(super) const FETCH_BATCHES_MAX: usize = 16_384;

/// Bytes of an answer that are gathered before they are written to the socket.
pub(super) const GATHERED_BYTES_MAX: usize = 128 << 10;

/// Bytes between two batches that are read with them rather than left out by a second read.
pub(super) const SKIPPED_BYTES_MAX: u64 = 4 << 10;

/// From so many bytes on a batch is sent from its file, at a third of the cost of copying it; at
/// 1 KiB copying many together is the cheaper way.
pub(super) const SENT_FROM_FILE_BYTES_MIN: usize = 4 << 10;

/// Bytes of buffers that are kept for the next request or answer.
pub(super) const BUFFERS_KEPT_BYTES: usize = 16 << 20;

/// How long a buffer that nobody takes is kept.
pub(super) const BUFFERS_REST: Duration = Duration::from_secs(2);

/// Fetch sessions of one connection: clients have one for each node that they read from.
pub(super) const FETCH_SESSIONS_PER_CONNECTION_MAX: usize = 4;

/// Share sessions of one connection: clients have one for each member and node.
pub(super) const SHARE_SESSIONS_PER_CONNECTION_MAX: usize = 8;

/// Partitions in one fetch session: at about 200 bytes each, 10 MB. A client with more names them
/// in every request.
pub(super) const FETCH_SESSION_PARTITIONS_MAX: usize = 50_000;

/// Partitions in all fetch sessions together: at about 200 bytes each, 60 MB.
pub(super) const FETCH_SESSIONS_PARTITIONS_MAX: usize = 300_000;

/// Largest request of a client that is not known yet, in bytes: Kafka's default for
/// `sasl.server.max.receive.size`.
pub(super) const LOGIN_REQUEST_BYTES_MAX: usize = 512 << 10;

/// How long a client may take to log in: a stranger must not hold a place for ever.
pub(super) const LOGIN_WAIT: Duration = Duration::from_secs(60);

/// How long a refused login waits for its answer: Kafka's default for
/// `connection.failed.authentication.delay.ms`, so that passwords cannot be tried fast.
pub(super) const LOGIN_REFUSED_WAIT: Duration = Duration::from_millis(100);

/// Looks for offsets by time at once, of one partition each: each may unpack a batch of 64 MiB.
pub(super) const LOOKUPS_AT_ONCE_MAX: usize = 2;

/// Passwords that are checked at one time: each holds a thread, and waits there for one of the few
/// hashes that `access` makes at a time.
pub(super) const LOGINS_AT_ONCE_MAX: usize = 4;

/// Topics, groups and nodes in one answer of DescribeConfigs: with some forty settings each it takes about
/// 80 MB until it is sent.
pub(super) const DESCRIBED_RESOURCES_MAX: usize = 10_000;

/// Partitions in one answer of DescribeTopicPartitions: Kafka's default for
/// `max.request.partition.size.limit`; clients come back with the cursor.
pub(super) const DESCRIBED_PARTITIONS_MAX: usize = 2_000;

/// What a quota's rate gives in this time may be used at once: Kafka's default of ten windows of a
/// second.
pub(super) const QUOTA_WINDOW: Duration = Duration::from_secs(10);

/// How long a request waits before it looks again whether its tenant may have another one under
/// way: short beside a sync of the disk.
pub(super) const IN_FLIGHT_WAIT: Duration = Duration::from_millis(2);

/// What one fetch may bring of a tenant's rate: small, so that those of many connections stay within
/// the quota together.
pub(super) const TENANT_FETCH_SHARE: Duration = Duration::from_millis(100);

/// Bytes that all connections together may hold of requests that have not arrived whole, of
/// requests that wait and of answers that nobody has read; two requests of the largest size fit.
pub(super) const ROOM_BYTES_MAX: usize = 256 << 20;

/// Bytes of these that each connection has to itself: 10,000 connections have 160 MB.
pub(super) const ROOM_FREE_BYTES: usize = 16 << 10;

/// Bytes in which room is counted, so that few reads have to ask for it.
pub(super) const ROOM_STEP_BYTES: usize = 64 << 10;

/// How long a connection may hold room without getting anything done before it has to give way to
/// others who want it.
pub(super) const ROOM_GRACE: Duration = Duration::from_secs(2);

/// Bytes that a byte of a waiting request counts for: decoded, a partition of 32 bytes takes 200.
pub(super) const WAITING_BYTES_PER_BYTE: usize = 8;
