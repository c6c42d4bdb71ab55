//! A listener with a store in a temporary folder, and a client that sends exactly what it is told.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use base::{ByteSize, Clock, ManualClock, SystemClock};
use bytes::{BufMut, Bytes, BytesMut};
use journal::SimDisk;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::super::Security;
use crate::{Streams, StreamsConfig};

/// A listener on a store of its own.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    shutdown: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
    pub(super) streams: Arc<Streams>,
    _dir: TempDir,
}

impl Server {
    pub(super) async fn start() -> Self {
        Server::start_secured(|_| Security::default()).await
    }

    /// With what `security` makes of the folder for users and ACLs.
    pub(super) async fn start_secured(security: impl FnOnce(&Path) -> Security) -> Self {
        Server::open(security, |_| {}, Arc::new(SystemClock), None).await
    }

    /// Likewise, for clients of IPv4 and IPv6 alike; none where there is no IPv6. Its address is of
    /// IPv4.
    pub(super) async fn start_on_both(security: impl FnOnce(&Path) -> Security) -> Option<Self> {
        let listener = TcpListener::bind("[::]:0").await.ok()?;
        let port = listener.local_addr().unwrap().port();
        let clock = Arc::new(SystemClock);
        let mut server = Server::open_at(listener, security, |_| {}, clock, None).await;
        server.address = ([127, 0, 0, 1], port).into();
        Some(server)
    }

    /// Likewise, by a clock that stands still.
    pub(super) async fn start_at_rest(security: impl FnOnce(&Path) -> Security) -> Self {
        let clock = ManualClock::at(SystemClock.now());
        Server::open(security, |_| {}, Arc::new(clock), None).await
    }

    /// With other settings than the defaults.
    pub(super) async fn start_with(settings: impl FnOnce(&mut StreamsConfig)) -> Self {
        Server::open(
            |_| Security::default(),
            settings,
            Arc::new(SystemClock),
            None,
        )
        .await
    }

    /// On a simulated disk, with segments so small that the journal is busy now and then.
    pub(super) async fn start_on(disk: &SimDisk) -> Self {
        let small = |config: &mut StreamsConfig| {
            config.segment_bytes = ByteSize::kib(16);
            config.max_message_bytes = ByteSize::kib(2);
        };
        let security = |_: &Path| Security::default();
        Server::open(security, small, Arc::new(SystemClock), Some(disk)).await
    }

    async fn open(
        security: impl FnOnce(&Path) -> Security,
        settings: impl FnOnce(&mut StreamsConfig),
        clock: Arc<dyn Clock>,
        disk: Option<&SimDisk>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Server::open_at(listener, security, settings, clock, disk).await
    }

    async fn open_at(
        listener: TcpListener,
        security: impl FnOnce(&Path) -> Security,
        settings: impl FnOnce(&mut StreamsConfig),
        clock: Arc<dyn Clock>,
        disk: Option<&SimDisk>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let security = Arc::new(security(&dir.path().join("access")));
        let mut config = StreamsConfig {
            default_partitions: 2,
            ..StreamsConfig::default()
        };
        settings(&mut config);
        let opened = match disk {
            None => Streams::open(dir.path(), config, clock),
            Some(disk) => {
                let path = Path::new("/streams");
                Streams::open_on(Arc::new(disk.clone()), path, config, clock)
            }
        };
        let (streams, _) = opened.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(super::super::serve_secured(
            listener,
            Arc::clone(&streams),
            security,
            shutdown.clone(),
        ));
        Server {
            address,
            shutdown,
            serving,
            streams,
            _dir: dir,
        }
    }

    pub(super) async fn stop(self) {
        self.shutdown.cancel();
        self.serving.await.unwrap();
        self.streams.close().await;
    }
}

/// A client that sends exactly what it is told.
pub(super) struct Client {
    pub(super) socket: TcpStream,
    pub(super) correlation: i32,
}

impl Client {
    pub(super) async fn connect(server: &Server) -> Self {
        Client {
            socket: TcpStream::connect(server.address).await.unwrap(),
            correlation: 0,
        }
    }

    pub(super) async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let frame = self.encoded(version, request);
        self.socket.write_all(&frame).await.unwrap();
        self.correlation
    }

    /// A request that is to be sent next.
    pub(super) fn encoded<R: Request>(&mut self, version: i16, request: &R) -> BytesMut {
        self.correlation += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("test")));
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        header
            .encode(&mut frame, R::header_version(version))
            .unwrap();
        request.encode(&mut frame, version).unwrap();
        let length = i32::try_from(frame.len() - 4).unwrap();
        frame[..4].copy_from_slice(&length.to_be_bytes());
        frame
    }

    pub(super) async fn frame(&mut self) -> Bytes {
        let length = self.socket.read_i32().await.unwrap();
        let mut frame = vec![0; usize::try_from(length).unwrap()];
        self.socket.read_exact(&mut frame).await.unwrap();
        Bytes::from(frame)
    }

    pub(super) async fn receive<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        let mut frame = self.frame().await;
        let header_version = <R::Response as HeaderVersion>::header_version(version);
        let header = ResponseHeader::decode(&mut frame, header_version).unwrap();
        let response = R::Response::decode(&mut frame, version).unwrap();
        assert!(frame.is_empty(), "{} bytes follow the answer", frame.len());
        (header.correlation_id, response)
    }

    pub(super) async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let sent = self.send(version, request).await;
        let (received, response) = self.receive::<R>(version).await;
        assert_eq!(received, sent, "an answer to another request");
        response
    }

    /// Sends a flexible request that the codec does not know; answers the body of what comes back.
    pub(super) async fn call_raw(&mut self, key: i16, version: i16, body: &[u8]) -> Bytes {
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_client_id(Some(StrBytes::from_static_str("test")));
        let mut frame = BytesMut::new();
        header.encode(&mut frame, 2).unwrap();
        frame.put_slice(body);
        self.socket
            .write_u32(u32::try_from(frame.len()).unwrap())
            .await
            .unwrap();
        self.socket.write_all(&frame).await.unwrap();
        let mut answer = self.frame().await;
        ResponseHeader::decode(&mut answer, 1).unwrap();
        answer
    }

    /// ListOffsets 11 is written as 10, where the codec ends.
    pub(super) async fn list_offsets(
        &mut self,
        version: i16,
        request: &ListOffsetsRequest,
    ) -> ListOffsetsResponse {
        if version < 11 {
            return self.call(version, request).await;
        }
        let header = RequestHeader::default()
            .with_request_api_key(2)
            .with_request_api_version(version);
        let mut frame = BytesMut::new();
        header.encode(&mut frame, 2).unwrap();
        request.encode(&mut frame, 10).unwrap();
        let length = u32::try_from(frame.len()).unwrap();
        self.socket.write_u32(length).await.unwrap();
        self.socket.write_all(&frame).await.unwrap();
        self.receive::<ListOffsetsRequest>(10).await.1
    }

    /// Whether a request is answered; else the connection is over.
    pub(super) async fn is_served(&mut self) -> bool {
        // ApiVersions 0.
        let asked = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
        self.socket.write_all(&asked).await.is_ok() && self.socket.read_i32().await.is_ok()
    }

    /// TCP segments with data that have come: on the same machine one for each write that fits into
    /// one.
    #[allow(unsafe_code)]
    pub(super) fn data_segments(&self) -> u32 {
        let mut info = [0_u8; 256];
        let mut len = libc::socklen_t::try_from(info.len()).unwrap();
        // SAFETY: The socket is open, and the system writes at most `len` bytes, which there are.
        let told = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        assert_eq!(told, 0, "{}", std::io::Error::last_os_error());
        let field = TCPI_DATA_SEGS_IN..TCPI_DATA_SEGS_IN + 4;
        assert!(len as usize >= field.end, "the system is too old to count");
        u32::from_ne_bytes(info[field].try_into().unwrap())
    }

    pub(super) async fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(&mut [0; 1]).await, Ok(0) | Err(_))
    }
}

/// A record batch v2 without compression, one record per value.
pub(super) fn batch(values: &[&str]) -> Bytes {
    let mut records = BytesMut::new();
    for (delta, value) in values.iter().enumerate() {
        let mut record = BytesMut::new();
        record.put_u8(0);
        varint(&mut record, 0);
        varint(&mut record, i64::try_from(delta).unwrap());
        varint(&mut record, -1);
        varint(&mut record, i64::try_from(value.len()).unwrap());
        record.put_slice(value.as_bytes());
        varint(&mut record, 0);
        varint(&mut records, i64::try_from(record.len()).unwrap());
        records.put_slice(&record);
    }
    let count = i32::try_from(values.len()).unwrap();
    let mut tail = BytesMut::new();
    tail.put_i16(0);
    tail.put_i32(count - 1);
    tail.put_i64(*RECORD_TIME_MS);
    tail.put_i64(*RECORD_TIME_MS);
    tail.put_i64(-1);
    tail.put_i16(-1);
    tail.put_i32(-1);
    tail.put_i32(count);
    tail.put_slice(&records);
    let mut batch = BytesMut::new();
    batch.put_i64(0);
    batch.put_i32(i32::try_from(tail.len() + 9).unwrap());
    batch.put_i32(-1);
    batch.put_u8(2);
    batch.put_u32(crc32c::crc32c(&tail));
    batch.put_slice(&tail);
    batch.freeze()
}

/// Where Linux' `tcp_info` has `tcpi_data_segs_in`.
const TCPI_DATA_SEGS_IN: usize = 152;

/// When the tests' records were made.
pub(super) static RECORD_TIME_MS: LazyLock<i64> = LazyLock::new(|| SystemClock.now().0);

pub(super) fn varint(out: &mut BytesMut, value: i64) {
    let mut zigzag = ((value << 1) ^ (value >> 63)) as u64;
    while zigzag >= 0x80 {
        out.put_u8((zigzag & 0x7f) as u8 | 0x80);
        zigzag >>= 7;
    }
    out.put_u8(zigzag as u8);
}

pub(super) fn wire(name: &'static str) -> TopicName {
    TopicName(StrBytes::from_static_str(name))
}

pub(super) fn produce(
    topic: &'static str,
    partition: i32,
    acks: i16,
    records: Bytes,
) -> ProduceRequest {
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(5_000)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(wire(topic))
                .with_partition_data(vec![
                    PartitionProduceData::default()
                        .with_index(partition)
                        .with_records(Some(records)),
                ]),
        ])
}

pub(super) fn fetch(
    topic: &'static str,
    offset: i64,
    wait_ms: i32,
    max_bytes: i32,
) -> FetchRequest {
    FetchRequest::default()
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(max_bytes)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(wire(topic))
                .with_partitions(vec![
                    FetchPartition::default()
                        .with_partition(0)
                        .with_fetch_offset(offset)
                        .with_partition_max_bytes(max_bytes),
                ]),
        ])
}

pub(super) fn metadata(topic: &'static str) -> MetadataRequest {
    MetadataRequest::default().with_topics(Some(vec![
        MetadataRequestTopic::default().with_name(Some(wire(topic))),
    ]))
}

pub(super) fn fetched(response: &FetchResponse) -> (i16, Bytes) {
    let partition = &response.responses[0].partitions[0];
    (
        partition.error_code,
        partition.records.clone().unwrap_or_default(),
    )
}
