//! A Kafka broker for tests: idempotent, in memory, and unkind when asked to be.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiVersionsResponse, BrokerId, FetchRequest, FetchResponse, FindCoordinatorResponse,
    HeartbeatRequest, InitProducerIdResponse, JoinGroupRequest, LeaveGroupRequest,
    ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse,
    OffsetCommitRequest, OffsetFetchRequest, ProduceRequest, ProduceResponse, ProducerId,
    RequestHeader, ResponseHeader, SaslAuthenticateRequest, SaslAuthenticateResponse,
    SaslHandshakeRequest, SaslHandshakeResponse, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::group::Group;
use super::login::{Account, Login};
use crate::kafka::read_records;

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
    /// Batches that are answered one by one; the ones behind them are answered two by two.
    singles: AtomicU64,
    produced: AtomicU64,
    group: Group,
    account: Option<Account>,
}

/// A batch: first offset, count, bytes.
type Stored = (i64, i64, Bytes);

#[derive(Default)]
struct Store {
    values: HashMap<(String, i32), Vec<Bytes>>,
    /// Batches as they are fetched: first offset, count, bytes.
    batches: HashMap<(String, i32), Vec<Stored>>,
    /// Where partitions begin, where records were deleted.
    starts: HashMap<(String, i32), i64>,
    headers: Vec<Vec<(String, Option<Bytes>)>>,
    /// Last sequences by producer and partition: first, count.
    sequences: HashMap<(i64, String, i32), Vec<(i32, i32)>>,
    producers: i64,
    acks: i16,
    duplicates: u64,
    /// Batches with this value in them are too large.
    refused: Option<Bytes>,
    /// The batch with this value is stored, and refused when it comes again.
    refused_again: Option<Bytes>,
    /// The batch with this value, in its order, is not taken the first time; from then on the first
    /// batch of a producer is taken whatever its sequence.
    put_off: Option<Bytes>,
    takes_any_first: bool,
    /// Whether the answer that is about to be given is lost.
    loses_answer: bool,
}

impl Broker {
    pub(crate) fn start(partitions: i32) -> Broker {
        Broker::start_secure(partitions, None, None)
    }

    /// A broker behind TLS, or that lets only one account in.
    pub(crate) fn start_secure(
        partitions: i32,
        tls: Option<Arc<ServerConfig>>,
        account: Option<Account>,
    ) -> Broker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Shared {
            address: listener.local_addr().unwrap(),
            partitions,
            store: Mutex::default(),
            requests: AtomicU64::new(0),
            breaks_each: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
            singles: AtomicU64::new(u64::MAX),
            produced: AtomicU64::new(0),
            group: Group::default(),
            account,
        };
        let broker = Broker(Arc::new(shared));
        let acceptor = broker.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (broker, tls) = (acceptor.clone(), tls.clone());
                std::thread::spawn(move || match tls {
                    None => broker.serve(stream),
                    Some(tls) => {
                        let session = ServerConnection::new(tls).unwrap();
                        broker.serve(StreamOwned::new(session, stream));
                    }
                });
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

    /// Answers to produce requests behind the first `singles` come two at a time: the first of two
    /// is answered when the second is there.
    pub(crate) fn answer_in_pairs_after(&self, singles: u64) {
        self.0.singles.store(singles, Ordering::SeqCst);
    }

    /// Refuses each batch with a record of this value.
    pub(crate) fn refuse(&self, value: &str) {
        let value = Bytes::copy_from_slice(value.as_bytes());
        self.0.store.lock().refused = Some(value);
    }

    /// Stores the batch with a record of this value, loses the answer and refuses it from then on.
    pub(crate) fn refuse_again(&self, value: &str) {
        let value = Bytes::copy_from_slice(value.as_bytes());
        self.0.store.lock().refused_again = Some(value);
    }

    /// Puts a batch with a record of this value off once, and from then on takes any sequence as a
    /// producer's first, as brokers do that know nothing of it.
    pub(crate) fn put_off(&self, value: &str) {
        let value = Bytes::copy_from_slice(value.as_bytes());
        self.0.store.lock().put_off = Some(value);
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

    /// The headers of every record, in the order in which they came.
    pub(crate) fn headers(&self) -> Vec<Vec<(String, Option<Bytes>)>> {
        self.0.store.lock().headers.clone()
    }

    /// A partition's batches.
    pub(crate) fn batches(&self, topic: &str, partition: i32) -> usize {
        let store = self.0.store.lock();
        let batches = store.batches.get(&(topic.to_owned(), partition));
        batches.map_or(0, |batches| batches.len())
    }

    /// How many replicas were to have what came last; all, where it is below zero.
    pub(crate) fn acks(&self) -> i16 {
        self.0.store.lock().acks
    }

    /// Bytes of a partition's batches.
    pub(crate) fn bytes(&self, topic: &str, partition: i32) -> usize {
        let store = self.0.store.lock();
        let batches = store.batches.get(&(topic.to_owned(), partition));
        batches
            .into_iter()
            .flatten()
            .map(|(_, _, bytes)| bytes.len())
            .sum()
    }

    /// Stores a batch as a producer of another kind would.
    pub(crate) fn append(&self, topic: &str, partition: i32, batch: Bytes) {
        assert_eq!(self.0.store.lock().append(topic, partition, batch), 0);
    }

    /// Deletes all records before `offset`.
    pub(crate) fn delete_before(&self, topic: &str, partition: i32, offset: i64) {
        self.0
            .store
            .lock()
            .starts
            .insert((topic.to_owned(), partition), offset);
    }

    /// The offset that the group has committed.
    pub(crate) fn group_offset(&self, topic: &str, partition: i32) -> Option<i64> {
        self.0.group.offset(topic, partition)
    }

    pub(crate) fn set_group_offset(&self, topic: &str, partition: i32, offset: i64) {
        self.0.group.set_offset(topic, partition, offset);
    }

    /// How often partitions were shared out.
    pub(crate) fn generation(&self) -> i32 {
        self.0.group.generation()
    }

    /// Whether commits of offsets are refused for now.
    pub(crate) fn refuse_commits(&self, refuses: bool) {
        self.0.group.refuse_commits(refuses);
    }

    pub(crate) fn duplicates(&self) -> u64 {
        self.0.store.lock().duplicates
    }

    fn serve(&self, mut stream: impl Read + Write) {
        let mut login = Login::default();
        let mut held = Vec::new();
        let mut len = [0; 4];
        while stream.read_exact(&mut len).is_ok() {
            let mut request = vec![0; u32::from_be_bytes(len) as usize];
            if stream.read_exact(&mut request).is_err() || self.0.is_away.load(Ordering::SeqCst) {
                return;
            }
            let is_produce = request.starts_with(&[0, 0]);
            let Some(answer) = self.answer(Bytes::from(request), &mut login) else {
                return;
            };
            let count = self.0.requests.fetch_add(1, Ordering::SeqCst) + 1;
            let each = self.0.breaks_each.load(Ordering::SeqCst);
            if each > 0 && count.is_multiple_of(each) {
                return;
            }
            if std::mem::take(&mut self.0.store.lock().loses_answer) {
                return;
            }
            if answer.is_empty() {
                continue;
            }
            // In one write: two would wait for the peer's delayed acknowledgement in between.
            let framed = [&(answer.len() as u32).to_be_bytes(), answer.as_ref()].concat();
            held.extend(framed);
            if is_produce && self.waits_for_another() {
                continue;
            }
            if stream
                .write_all(&std::mem::take(&mut held))
                .and_then(|()| stream.flush())
                .is_err()
            {
                return;
            }
        }
    }

    /// Whether the answer to a batch goes with the next one's.
    fn waits_for_another(&self) -> bool {
        let singles = self.0.singles.load(Ordering::SeqCst);
        let count = self.0.produced.fetch_add(1, Ordering::SeqCst) + 1;
        count > singles && (count - singles) % 2 == 1
    }

    /// Nothing when the peer may not ask; empty when it wants no answer.
    fn answer(&self, mut request: Bytes, login: &mut Login) -> Option<BytesMut> {
        let mut peek = request.clone();
        let (key, version) = (peek.get_i16(), peek.get_i16());
        let is_login = matches!(key, 17 | 18 | 36);
        if self.0.account.is_some() && !login.is_in && !is_login {
            return None;
        }
        let flexible = match key {
            17 => false,
            36 => version >= 2,
            0 | 3 => version >= 9,
            1 => version >= 12,
            2 | 9 | 11 => version >= 6,
            8 => version >= 8,
            10 => version >= 3,
            12..=14 => version >= 4,
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
        let group = &self.0.group;
        match key {
            0 => {
                let asked = ProduceRequest::decode(&mut request, version).unwrap();
                let wants_answer = asked.acks != 0;
                self.0.store.lock().acks = asked.acks;
                let answer = self.produce(asked);
                if !wants_answer {
                    return Some(BytesMut::new());
                }
                answer.encode(&mut out, version).unwrap();
            }
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
            17 => {
                let asked = SaslHandshakeRequest::decode(&mut request, version).unwrap();
                login.choose(&asked.mechanism);
                SaslHandshakeResponse::default()
                    .encode(&mut out, version)
                    .unwrap();
            }
            36 => {
                let said = SaslAuthenticateRequest::decode(&mut request, version).unwrap();
                let account = self.0.account.as_ref().unwrap();
                let answer = match login.step(account, &said.auth_bytes) {
                    Some(bytes) => {
                        SaslAuthenticateResponse::default().with_auth_bytes(bytes.into())
                    }
                    None => SaslAuthenticateResponse::default().with_error_code(58),
                };
                answer.encode(&mut out, version).unwrap();
            }
            1 => self
                .fetch(FetchRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            2 => self
                .list_offsets(ListOffsetsRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            8 => group
                .commit(OffsetCommitRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            9 => group
                .offsets(OffsetFetchRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            10 => FindCoordinatorResponse::default()
                .with_node_id(BrokerId(7))
                .with_host(StrBytes::from_string(self.0.address.ip().to_string()))
                .with_port(i32::from(self.0.address.port()))
                .encode(&mut out, version)
                .unwrap(),
            11 => group
                .join(&JoinGroupRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            12 => group
                .heartbeat(&HeartbeatRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            13 => group
                .leave(&LeaveGroupRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            14 => group
                .sync(&SyncGroupRequest::decode(&mut request, version).unwrap())
                .encode(&mut out, version)
                .unwrap(),
            _ => {
                let range = |(key, max)| {
                    ApiVersion::default()
                        .with_api_key(key)
                        .with_min_version(match key {
                            0 => 3,
                            1 => 4,
                            8 => 2,
                            2 | 9 => 1,
                            _ => 0,
                        })
                        .with_max_version(max)
                };
                ApiVersionsResponse::default()
                    .with_api_keys(VERSIONS.into_iter().map(range).collect())
                    .encode(&mut out, version)
                    .unwrap();
            }
        }
        Some(out)
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(7))
            .with_host(StrBytes::from_string(self.0.address.ip().to_string()))
            .with_port(i32::from(self.0.address.port()));
        let all: Vec<MetadataRequestTopic> = match &request.topics {
            Some(topics) => topics.clone(),
            None => self.0.store.lock().names(),
        };
        let topics = all.iter().map(|topic| {
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

    fn fetch(&self, request: FetchRequest) -> FetchResponse {
        let deadline = Instant::now() + Duration::from_millis(request.max_wait_ms as u64);
        loop {
            let mut is_empty = true;
            let mut responses = Vec::new();
            for topic in &request.topics {
                let mut partitions = Vec::new();
                for wanted in &topic.partitions {
                    let key = (topic.topic.to_string(), wanted.partition);
                    let (code, bytes) = self.0.store.lock().read(&key, wanted.fetch_offset);
                    is_empty &= code == 0 && bytes.is_empty();
                    partitions.push(
                        PartitionData::default()
                            .with_partition_index(wanted.partition)
                            .with_error_code(code)
                            .with_records(Some(bytes)),
                    );
                }
                responses.push(
                    FetchableTopicResponse::default()
                        .with_topic(topic.topic.clone())
                        .with_partitions(partitions),
                );
            }
            if !is_empty || Instant::now() >= deadline {
                return FetchResponse::default().with_responses(responses);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn list_offsets(&self, request: ListOffsetsRequest) -> ListOffsetsResponse {
        let store = self.0.store.lock();
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|wanted| {
                let key = (topic.name.to_string(), wanted.partition_index);
                let offset = match wanted.timestamp {
                    -2 => store.starts.get(&key).copied().unwrap_or(0),
                    _ => store
                        .values
                        .get(&key)
                        .map_or(0, |values| values.len() as i64),
                };
                ListOffsetsPartitionResponse::default()
                    .with_partition_index(wanted.partition_index)
                    .with_offset(offset)
            });
            let partitions = partitions.collect();
            ListOffsetsTopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions)
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
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
    fn names(&self) -> Vec<MetadataRequestTopic> {
        let mut names: Vec<&String> = self.values.keys().map(|(topic, _)| topic).collect();
        names.sort();
        names.dedup();
        let name = |name: &&String| TopicName(StrBytes::from_string((*name).clone()));
        names
            .iter()
            .map(|topic| MetadataRequestTopic::default().with_name(Some(name(topic))))
            .collect()
    }

    /// The batches from the one with `offset` on, a few at a time.
    fn read(&self, key: &(String, i32), offset: i64) -> (i16, Bytes) {
        let end = self.values.get(key).map_or(0, |values| values.len() as i64);
        let start = self.starts.get(key).copied().unwrap_or(0);
        if !(start..=end).contains(&offset) {
            return (OUT_OF_RANGE, Bytes::new());
        }
        let batches = self.batches.get(key).map_or(&[][..], Vec::as_slice);
        let wanted = batches
            .iter()
            .filter(|(first, count, _)| first + count > offset)
            .take(3);
        let mut bytes = BytesMut::new();
        for (_, _, batch) in wanted {
            bytes.extend_from_slice(batch);
        }
        (0, bytes.freeze())
    }

    /// Kafka's own rules: the last five batches are known, the next sequence must follow.
    fn append(&mut self, topic: &str, partition: i32, batch: Bytes) -> i16 {
        let mut head = batch.slice(43..61);
        let producer = head.get_i64();
        if holds(&batch, &self.refused) {
            return TOO_LARGE;
        }
        head.advance(2);
        let (first, count) = (head.get_i32(), head.get_i32());
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
            let begins = if self.takes_any_first { first } else { 0 };
            let expected = known.last().map_or(begins, |(first, count)| first + count);
            if first != expected {
                return OUT_OF_ORDER;
            }
            if holds(&batch, &self.put_off) {
                self.put_off = None;
                self.takes_any_first = true;
                return NOT_ENOUGH_REPLICAS;
            }
            known.push((first, count));
        }
        let key = (topic.to_owned(), partition);
        let values = self.values.entry(key.clone()).or_default();
        let offset = values.len() as i64;
        let read = read_records(batch.clone(), 0, Vec::new(), usize::MAX).unwrap();
        if holds(&batch, &self.refused_again) {
            self.refused = self.refused_again.take();
            self.loses_answer = true;
        }
        for record in read.records {
            values.push(record.value.unwrap_or_default());
            self.headers.push(record.headers);
        }
        // A marker takes an offset too.
        values.resize(offset as usize + count as usize, Bytes::new());
        // The checksum does not cover the offset.
        let mut placed = BytesMut::from(batch.as_ref());
        placed[..8].copy_from_slice(&offset.to_be_bytes());
        let placed = (offset, i64::from(count), placed.freeze());
        self.batches.entry(key).or_default().push(placed);
        0
    }
}

/// Whether a batch has a record of this value.
fn holds(batch: &Bytes, value: &Option<Bytes>) -> bool {
    let Some(value) = value else { return false };
    let read = read_records(batch.clone(), 0, Vec::new(), usize::MAX).unwrap();
    let mut records = read.records.iter();
    records.any(|record| record.value.as_ref() == Some(value))
}

const OUT_OF_ORDER: i16 = 45;
const NOT_ENOUGH_REPLICAS: i16 = 19;
const TOO_LARGE: i16 = 10;
const OUT_OF_RANGE: i16 = 1;

/// Requests that are understood, and their newest versions.
const VERSIONS: [(i16, i16); 15] = [
    (0, 9),
    (1, 11),
    (2, 5),
    (3, 9),
    (8, 7),
    (9, 5),
    (10, 3),
    (11, 5),
    (12, 3),
    (13, 3),
    (14, 3),
    (17, 1),
    (36, 1),
    (18, 3),
    (22, 4),
];
