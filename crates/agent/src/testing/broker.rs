//! A Kafka broker for tests: idempotent, in memory, and unkind when asked to be.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiVersionsResponse, BrokerId, InitProducerIdResponse, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse, ProducerId, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use kafka_protocol::records::RecordBatchDecoder;
use parking_lot::Mutex;

/// One broker that leads every partition.
#[derive(Clone)]
pub(crate) struct Broker(Arc<Shared>);

struct Shared {
    address: SocketAddr,
    partitions: i32,
    store: Mutex<Store>,
    requests: AtomicU64,
    /// Each so many requests the link breaks after the request was obeyed.
    breaks_each: AtomicU64,
    is_away: AtomicBool,
}

#[derive(Default)]
struct Store {
    values: HashMap<(String, i32), Vec<Bytes>>,
    /// Last sequences by producer and partition: first, count.
    sequences: HashMap<(i64, String, i32), Vec<(i32, i32)>>,
    producers: i64,
    duplicates: u64,
}

impl Broker {
    pub(crate) fn start(partitions: i32) -> Broker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Shared {
            address: listener.local_addr().unwrap(),
            partitions,
            store: Mutex::default(),
            requests: AtomicU64::new(0),
            breaks_each: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
        };
        let broker = Broker(Arc::new(shared));
        let acceptor = broker.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let broker = acceptor.clone();
                std::thread::spawn(move || broker.serve(stream));
            }
        });
        broker
    }

    pub(crate) fn address(&self) -> String {
        self.0.address.to_string()
    }

    /// Each so many requests the answer is lost.
    pub(crate) fn break_each(&self, requests: u64) {
        self.0.breaks_each.store(requests, Ordering::SeqCst);
    }

    /// Whether it answers at all.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.0.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Forgets every producer, as a broker does that lost its state.
    pub(crate) fn forget_producers(&self) {
        self.0.store.lock().sequences.clear();
    }

    pub(crate) fn values(&self, topic: &str, partition: i32) -> Vec<Bytes> {
        let store = self.0.store.lock();
        store
            .values
            .get(&(topic.to_owned(), partition))
            .cloned()
            .unwrap_or_default()
    }

    pub(crate) fn count(&self, topic: &str) -> usize {
        let store = self.0.store.lock();
        store
            .values
            .iter()
            .filter(|((t, _), _)| t == topic)
            .map(|(_, values)| values.len())
            .sum()
    }

    pub(crate) fn duplicates(&self) -> u64 {
        self.0.store.lock().duplicates
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut len = [0; 4];
        while stream.read_exact(&mut len).is_ok() {
            let mut request = vec![0; u32::from_be_bytes(len) as usize];
            if stream.read_exact(&mut request).is_err() || self.0.is_away.load(Ordering::SeqCst) {
                return;
            }
            let answer = self.answer(Bytes::from(request));
            let count = self.0.requests.fetch_add(1, Ordering::SeqCst) + 1;
            let each = self.0.breaks_each.load(Ordering::SeqCst);
            if each > 0 && count.is_multiple_of(each) {
                return;
            }
            // In one write: two would wait for the peer's delayed acknowledgement in between.
            let framed = [&(answer.len() as u32).to_be_bytes(), answer.as_ref()].concat();
            if stream.write_all(&framed).is_err() {
                return;
            }
        }
    }

    fn answer(&self, mut request: Bytes) -> BytesMut {
        let mut peek = request.clone();
        let (key, version) = (peek.get_i16(), peek.get_i16());
        let flexible = match key {
            0 => version >= 9,
            3 => version >= 9,
            22 => version >= 2,
            _ => version >= 3,
        };
        let header = RequestHeader::decode(&mut request, if flexible { 2 } else { 1 }).unwrap();
        let mut out = BytesMut::new();
        let response_header = if flexible && key != 18 { 1 } else { 0 };
        ResponseHeader::default()
            .with_correlation_id(header.correlation_id)
            .encode(&mut out, response_header)
            .unwrap();
        match key {
            0 => self
                .produce(ProduceRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            3 => self
                .metadata(&MetadataRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            22 => {
                let mut store = self.0.store.lock();
                store.producers += 1;
                InitProducerIdResponse::default()
                    .with_producer_id(ProducerId(store.producers))
                    .encode(&mut out, version)
                    .unwrap();
            }
            _ => {
                let range = |key, max| {
                    ApiVersion::default()
                        .with_api_key(key)
                        .with_min_version(3 * i16::from(key == 0))
                        .with_max_version(max)
                };
                ApiVersionsResponse::default()
                    .with_api_keys(vec![range(0, 9), range(3, 9), range(18, 3), range(22, 4)])
                    .encode(&mut out, version)
                    .unwrap();
            }
        }
        out
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(7))
            .with_host(StrBytes::from_string(self.0.address.ip().to_string()))
            .with_port(i32::from(self.0.address.port()));
        let topics = request.topics.iter().flatten().map(|topic| {
            let partitions = (0..self.0.partitions).map(|index| {
                MetadataResponsePartition::default()
                    .with_partition_index(index)
                    .with_leader_id(BrokerId(7))
            });
            MetadataResponseTopic::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions.collect())
        });
        MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_topics(topics.collect())
    }

    fn produce(&self, request: ProduceRequest) -> ProduceResponse {
        let mut store = self.0.store.lock();
        let mut responses = Vec::new();
        for topic in request.topic_data {
            let name = topic.name.as_str().to_owned();
            let mut partitions = Vec::new();
            for data in topic.partition_data {
                let code = store.append(&name, data.index, data.records.unwrap());
                partitions.push(
                    PartitionProduceResponse::default()
                        .with_index(data.index)
                        .with_error_code(code),
                );
            }
            responses.push(
                TopicProduceResponse::default()
                    .with_name(topic.name)
                    .with_partition_responses(partitions),
            );
        }
        ProduceResponse::default().with_responses(responses)
    }
}

impl Store {
    /// Kafka's own rules: the last five batches are known, the next sequence must follow.
    fn append(&mut self, topic: &str, partition: i32, mut batch: Bytes) -> i16 {
        let set = RecordBatchDecoder::decode(&mut batch).unwrap();
        let (first, count) = (set.records[0].sequence, set.records.len() as i32);
        let producer = set.records[0].producer_id;
        if producer >= 0 {
            let known = self
                .sequences
                .entry((producer, topic.to_owned(), partition))
                .or_default();
            if known
                .iter()
                .rev()
                .take(5)
                .any(|seen| *seen == (first, count))
            {
                self.duplicates += 1;
                return 0;
            }
            let expected = known.last().map_or(0, |(first, count)| first + count);
            if first != expected {
                return OUT_OF_ORDER;
            }
            known.push((first, count));
        }
        let values = self
            .values
            .entry((topic.to_owned(), partition))
            .or_default();
        values.extend(
            set.records
                .into_iter()
                .map(|record| record.value.unwrap_or_default()),
        );
        0
    }
}

const OUT_OF_ORDER: i16 = 45;
