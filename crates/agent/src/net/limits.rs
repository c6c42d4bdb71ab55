//! The network processors' bounds, each with its unit and its reason.

use std::time::Duration;

/// Connections that one HTTP listener serves at once. For one more the one goes that has waited
/// longest for a request; where each has one, it waits.
pub const HTTP_CONNECTIONS_MAX: usize = 256;

/// How long a request's header may take; also how long a connection without one is kept.
pub const HTTP_HEADER_WAIT: Duration = Duration::from_secs(60);

/// How long a request's body may bring nothing, as NiFi's listener has it.
pub const HTTP_BODY_WAIT: Duration = Duration::from_secs(30);

/// Bytes that a body brings each second on average, beyond [`HTTP_BODY_WAIT`]: a drip is no body.
/// The slowest of radio links bring more.
pub const HTTP_BODY_BYTES_PER_SECOND_MIN: u64 = 128;

/// How long a client may take nothing of its answer.
pub const HTTP_ANSWER_WAIT: Duration = Duration::from_secs(30);

/// Bytes of larger bodies that a listener's processor gathers in memory, all together, before it
/// writes what is there of each.
pub const HTTP_UPLOADS_BYTES_MAX: usize = 8 << 20;

/// Bytes of one request's header on a listener.
pub const HTTP_HEADER_BYTES_MAX: usize = 64 << 10;

/// Bytes of a request's body held in memory before it waits for its turn to be written, and again
/// of what comes after these; times [`HTTP_CONNECTIONS_MAX`] at most.
pub const HTTP_BODY_IN_MEMORY_BYTES_MAX: usize = 64 << 10;

/// Bytes of one request's body on a listener: what a disk of an edge device may hold.
pub const HTTP_BODY_BYTES_MAX: u64 = 64 << 30;

/// Requests that wait for a listener's processor, whatever Buffer Size says.
pub const HTTP_REQUESTS_WAITING_MAX: usize = 10_000;

/// Bytes of an answer that become an attribute; the rest is cut off, attributes live in memory.
pub const HTTP_ANSWER_ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// Headers of an answer that become attributes.
pub const HTTP_ANSWER_HEADERS_MAX: usize = 128;

/// Bytes of one fetched batch's records unpacked: brokers take batches of 1 MB unless told
/// otherwise, and these pack a hundredfold at best.
pub const KAFKA_UNPACKED_BYTES_MAX: usize = 64 << 20;

/// Content bytes that one poll of ConsumeKafka makes into FlowFiles.
pub const KAFKA_POLL_BYTES_MAX: usize = 4 << 20;

/// Bytes of one MQTT packet either way.
pub const MQTT_PACKET_BYTES_MAX: usize = 16 << 20;

/// Bytes of messages that one ConsumeMQTT makes FlowFiles of at once.
pub const MQTT_BATCH_BYTES_MAX: usize = 4 << 20;

/// Messages that wait for a ConsumeMQTT, whatever Queue Max Message says.
pub const MQTT_MESSAGES_WAITING_MAX: usize = 10_000;

/// Bytes of messages that wait for one listening processor, whatever their count.
pub const NET_QUEUE_BYTES_MAX: usize = 16 << 20;

/// Bytes of one message over TCP; a longer one comes in pieces.
pub const NET_MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Connections that one TCP listener serves at once; more wait in the kernel.
pub const TCP_CONNECTIONS_MAX: usize = 1_000;

/// Connections that one PutTCP keeps open.
pub const PUT_TCP_CONNECTIONS_MAX: usize = 32;

/// Bytes of a listing's page or an error of an object storage: a thousand long keys fit.
pub const STORAGE_ANSWER_BYTES_MAX: usize = 8 << 20;

/// Keys of the newest time that a listing of an object storage keeps in its state.
pub const STORAGE_LISTED_KEYS_MAX: usize = 20_000;

/// Attributes of one FlowFile that a site-to-site peer sends; NiFi's own bound.
pub const S2S_ATTRIBUTES_MAX: u32 = 25_000;

/// Bytes of all attributes of such a FlowFile.
pub const S2S_ATTRIBUTES_BYTES_MAX: usize = 16 << 20;

/// Bytes of one compressed block of site-to-site; NiFi's have 64 KiB.
pub const S2S_BLOCK_BYTES_MAX: u32 = 1 << 20;

/// Properties in a site-to-site peer's greeting.
pub const S2S_PROPERTIES_MAX: u32 = 100;

/// Site-to-site peers that are served at once: each has a thread.
pub const S2S_CONNECTIONS_MAX: usize = 64;

/// Bytes of one site-to-site transaction, beyond its first FlowFile.
pub const S2S_BATCH_BYTES_MAX: u64 = 64 << 20;

/// Bytes of what a NiFi tells of its ports.
pub const S2S_DETAILS_BYTES_MAX: usize = 8 << 20;

/// Bytes of one chunk of OPC UA either way; the protocol's usual size.
pub const OPC_CHUNK_BYTES_MAX: usize = 64 << 10;

/// Bytes of one OPC UA message: values of devices are small, pictures and waveforms fit.
pub const OPC_MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Items of all lists in one OPC UA message together, each of which has memory.
pub const OPC_VALUES_MAX: usize = 1_000_000;

/// Depth of OPC UA values in values, whose reading is recursive.
pub const OPC_DEPTH_MAX: usize = 16;

/// References that one OPC UA answer may bring; see [`OPC_REFERENCES_AT_ONCE`].
pub const OPC_REFERENCES_MAX: usize = 10_000;

/// References that are asked for at once.
pub const OPC_REFERENCES_AT_ONCE: u32 = 1_000;

/// OPC UA attributes that are read at once: few enough for small controllers.
pub const OPC_READS_AT_ONCE: usize = 50;

/// How deep FetchOPCProcessor follows nodes, whatever Max depth says: deeper is a loop.
pub const OPC_TREE_DEPTH_MAX: usize = 64;

/// Nodes that one FetchOPCProcessor looks at in one go; more is a loop, or a server's whole plant.
pub const OPC_NODES_MAX: usize = 1_000_000;

/// References of one OPC UA node, held in memory.
pub const OPC_CHILDREN_MAX: usize = 100_000;

/// How long an OPC UA server may take to be reached, and to answer.
pub const OPC_ANSWER_WAIT: Duration = Duration::from_secs(10);
