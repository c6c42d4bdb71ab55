//! The network processors' bounds, each with its unit and its reason.

/// Connections that one HTTP listener serves at once; more wait in the kernel.
pub const HTTP_CONNECTIONS_MAX: usize = 256;

/// Bytes of one request's header on a listener.
pub const HTTP_HEADER_BYTES_MAX: usize = 64 << 10;

/// Bytes of a request's body held in memory before it waits for its turn to be written; times
/// [`HTTP_CONNECTIONS_MAX`] at most.
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
