//! Every bound of this crate, with its unit and reason; configuration may tighten most of them.

use std::time::Duration;

/// Bytes: the largest topic or filter that MQTT's two-byte length can carry.
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// Levels of a topic or filter: a trie walk is as deep as this, and `a/a/a/…` must not make it
/// tens of thousands of nodes deep.
pub const TOPIC_LEVELS_MAX: usize = 128;

/// Bytes after the fixed header: what MQTT's four-byte remaining length can say.
pub const REMAINING_BYTES_MAX: usize = 268_435_455;

/// Bytes of filters that one client may have for each of the `mqtt.subscriptions_per_client_max`
/// that it may have: a thousand of a kilobyte, or fewer that are longer.
pub const SUBSCRIPTION_BYTES_MEAN_MAX: usize = 1_024;

/// Bytes of QoS 2 messages that go on without the links which brought them, of all sessions; what is
/// beyond comes again from its publisher, and so twice to some.
pub const UNFINISHED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Until the end of a session is tried again that the journal has refused.
pub const SESSION_END_RETRY: Duration = Duration::from_secs(1);

/// Bytes that a level of a filter counts for beside its text: what stands around it in the trie.
pub const FILTER_LEVEL_BYTES: usize = 64;

/// Bytes of a client id: long enough for a UUID with a path, short enough to be a map's key.
pub const CLIENT_ID_BYTES_MAX: usize = 1_024;

/// Bytes: a link's read buffer under load. One read of it makes one batch; larger does not fit
/// the second-level cache beside what the sinks touch.
pub const READ_BYTES: usize = 64 * 1024;

/// Bytes that a link takes before others have their turn, and sockets are looked at again: a flood on
/// as many links as there are threads would else keep everybody else waiting for seconds.
pub const LINK_TURN_BYTES: u64 = 64 * 1024;

/// Bytes: a link's read buffer at rest, so that ten thousand idle links stay below 100 MB.
pub const READ_BYTES_IDLE: usize = 2 * 1024;

/// Bytes: above this an emptied output buffer is given back rather than kept.
pub const WRITE_BYTES_KEPT: usize = 16 * 1024;

/// Bytes: how far the writer fills its buffer from the queue before it writes.
pub const WRITE_BYTES_FILL: usize = 64 * 1024;

/// Bytes of the retained messages of one new subscription that are journaled for its client at
/// once; of more, those that were not sent yet are gone after a restart.
pub const REPLAY_JOURNALED_BYTES_MAX: usize = 1024 * 1024;

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

/// Bytes: the journal is extended by this much at a time; with its reserve a quarter of it is there
/// before it is needed.
pub const JOURNAL_PREALLOCATE_BYTES: u64 = 2 * 1024 * 1024;

/// Bytes that only condensing the journal may take, so that it can free space on a full disk: what
/// some ten thousand retained values need.
pub const JOURNAL_RESERVE_BYTES: u64 = 2 * 1024 * 1024;

/// Bytes: appended since the last snapshot before the next one is worth its writing.
pub const SNAPSHOT_AFTER_BYTES: u64 = 2 * JOURNAL_SEGMENT_BYTES;

/// After a snapshot that failed, as on a full disk: the first pause, doubled up to the last, since
/// each try may write as much as lives.
pub const SNAPSHOT_PAUSE_MIN: Duration = Duration::from_secs(10);
/// See [`SNAPSHOT_PAUSE_MIN`].
pub const SNAPSHOT_PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// Bytes: the largest frame sent over WebSocket. Small enough that a client of 1 kB/s takes one
/// within `mqtt.stalled_subscriber_timeout`.
pub const WEBSOCKET_WRITE_BYTES: usize = 16 * 1024;

/// Bytes: a WebSocket's own read buffer, held while it idles.
pub const WEBSOCKET_BUFFER_BYTES: usize = 2 * 1024;

/// Bytes beyond `mqtt.packet_bytes_max` that a WebSocket frame may have: clients send a packet a
/// frame, with its header, or several small packets. Larger packets have to be parted.
pub const WEBSOCKET_FRAME_SLACK_BYTES: usize = 16 * 1024;

/// Passwords that are hashed for MQTT logins at one time: each holds a thread.
pub const LOGINS_AT_ONCE_MAX: usize = 4;

/// Clients whose password is being checked or waits for it; those beyond are told to come later.
pub const LOGINS_WAITING_MAX: usize = 1_000;

/// How long a wrong password waits for its answer, so that passwords cannot be tried fast.
pub const LOGIN_REFUSED_WAIT: Duration = Duration::from_millis(100);

/// Refusals kept for whoever asks, some 300 bytes each.
pub const REFUSALS_KEPT: usize = 1_000;

/// Refusals logged in a minute; all of them are counted.
pub const REFUSALS_LOGGED_PER_MINUTE: usize = 60;

/// What a quota of a user gives in this time may come at once: as at the Kafka listener.
pub const RATE_WINDOW: Duration = Duration::from_secs(10);

/// The same of one client's own rates.
pub const CLIENT_RATE_WINDOW: Duration = Duration::from_secs(1);

/// How long a CONNECT waits for a journal that is busy, at most half of `mqtt.connect_timeout`, before
/// its client is told that the server is unavailable.
pub const TAKE_UP_WAIT: Duration = Duration::from_secs(5);

/// Bytes of a bridge's name, which is also a folder's.
pub const BRIDGE_NAME_BYTES_MAX: usize = 64;

/// Bridges: each is a connection, a journal and two tasks.
pub const BRIDGES_MAX: usize = 100;

/// Topics of one bridge: each is a subscription on either side.
pub const BRIDGE_TOPICS_MAX: usize = 1_000;

/// Messages that went over a bridge between two notes in its journal that they did: so many may
/// go again after a crash.
pub const BRIDGE_DONE_EVERY: usize = 64;

/// Messages that a bridge has sent and that are not acknowledged.
pub const BRIDGE_IN_FLIGHT_MAX: u16 = 256;

/// Events of a bridge's link that wait to be looked at; the other server is not read beyond.
pub const BRIDGE_EVENTS_MAX: usize = 1_024;

/// Messages from the other server that share one sync.
pub const BRIDGE_BATCH: usize = 128;

/// Between two tries of a bridge to connect: the first pause, doubled up to the last.
pub const BRIDGE_PAUSE_MIN: Duration = Duration::from_millis(500);
/// See [`BRIDGE_PAUSE_MIN`].
pub const BRIDGE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Ends of a connection for a reason that blames a packet, with one message alone under way, after
/// which it is set aside. One may be a mistake of the other server; each costs a connection.
pub const BRIDGE_REFUSALS_MAX: u32 = 3;

/// The same of ends without a reason too. Before each of the later ones the connection stood for
/// [`BRIDGE_QUIET`], so that another server that is being restarted costs no message.
pub const BRIDGE_CLOSES_MAX: u32 = 6;

/// How long a connection stands before a message goes over which another one ended.
pub const BRIDGE_QUIET: Duration = Duration::from_secs(1);

/// How long a size is believed to be too large for another server: its bound may be raised.
pub const BRIDGE_SIZE_REMEMBERED: Duration = Duration::from_secs(3_600);

/// Installations that a message may have come through before a bridge drops it.
pub const BRIDGE_HOPS_MAX: usize = 16;

/// Between two rounds of handing over a shared subscription's messages, while the one who is to take
/// them has no room: he may have some again, or another one may have come.
pub const HANDOVER_PAUSE: Duration = Duration::from_secs(1);

/// Clients that are named in `$SYS` for what was dropped for them.
pub const SYS_CLIENTS_MAX: usize = 1_000;

/// Clients that the metrics name for what was dropped for them: a collector keeps every series.
pub const METRICS_CLIENTS_MAX: usize = 100;
