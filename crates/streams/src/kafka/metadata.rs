//! Metadata and ListOffsets: which topics there are, and how far they reach.

use std::collections::HashSet;
use std::sync::Arc;

use access::{Operation, ResourceType};
use base::UnixMillis;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse,
    TopicName as WireName,
};

use super::error::streams_error_code;
use super::reply::{Call, Ending, Reply, once, owned};
use crate::{Isolation, Partition, StreamsError, Topic, TopicName};

/// Tells the node and its topics; creates topics that are asked for by name, where the client and
/// the policy allow it.
pub(super) fn metadata(call: Call) -> Result<Reply, Ending> {
    let request: MetadataRequest = call.decode("Metadata")?;
    let telling = Telling::of(&request);
    // An empty list meant all topics in version 0 and means none since; null means all since 1.
    let asked = request
        .topics
        .filter(|topics| call.version > 0 || !topics.is_empty());
    let asked = asked.map(|asked| once(asked, |topic| (topic.name.clone(), topic.topic_id)));
    let Some(asked) = asked else {
        let topics = call.context.streams().topics_snapshot();
        let told = topics
            .iter()
            .filter(|topic| call.may_topic(Operation::Describe, topic.name()))
            .map(|topic| {
                let name = WireName(owned(topic.name().wire_name()));
                describe(&call, telling, Some(name), topic)
            });
        let told = told.collect();
        return call.now(&body(&call, telling, told));
    };
    let may_create = call.version < 4 || request.allow_auto_topic_creation;
    let mut told = Vec::with_capacity(asked.len());
    let mut asked = asked.into_iter();
    for topic in asked.by_ref() {
        match known(&call, telling, &topic) {
            Known::Told(answer) => told.push(answer),
            Known::Missing(_) if !may_create => {
                let code = ResponseError::UnknownTopicOrPartition.code();
                told.push(refused(topic.name, code));
            }
            Known::Missing(name) => {
                // From here on each answer may have to wait for the journal.
                return Reply::later(async move {
                    told.push(create(&call, telling, topic.name, &name).await);
                    for topic in asked {
                        told.push(match known(&call, telling, &topic) {
                            Known::Told(answer) => answer,
                            Known::Missing(name) => create(&call, telling, topic.name, &name).await,
                        });
                    }
                    call.answer(&body(&call, telling, told))
                });
            }
        }
    }
    call.now(&body(&call, telling, told))
}

/// Tells offsets by time: the first, the end, the newest in time, or the first at or after a time.
pub(super) fn list_offsets(call: Call) -> Result<Reply, Ending> {
    // Version 11 allows one more question and is written as version 10.
    let version = call.version.min(LIST_OFFSETS_WRITTEN);
    let request: ListOffsetsRequest = call.decode_in(version, "ListOffsets")?;
    let isolation = isolation_of(request.isolation_level);
    let twice = named_twice(&request);
    let mut lookups = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for asked in request.topics {
        let topic = find(&call, Operation::Describe, &asked.name);
        let mut partitions = Vec::with_capacity(asked.partitions.len());
        for partition in &asked.partitions {
            let index = partition.partition_index;
            let found = match twice.contains(&(asked.name.clone(), index)) {
                true => Err(ResponseError::InvalidRequest.code()),
                false => list_offset(call.version, isolation, &topic, partition),
            };
            partitions.push(match found {
                Ok(Found::At(timestamp, offset)) => told(&call, index, Ok((timestamp, offset))),
                Ok(Found::By(lookup)) => {
                    lookups.push((topics.len(), partitions.len(), lookup));
                    told(&call, index, Ok(NOWHERE))
                }
                Err(code) => told(&call, index, Err(code)),
            });
        }
        topics.push(
            ListOffsetsTopicResponse::default()
                .with_name(asked.name)
                .with_partitions(partitions),
        );
    }
    let mut body = ListOffsetsResponse::default().with_topics(topics);
    if lookups.is_empty() {
        return call.answer_in(version, &body).map(Reply::Now);
    }
    Reply::later(async move {
        for (topic, nth, lookup) in lookups {
            let found = look_up(&call, isolation, lookup).await?;
            let partition = &mut body.topics[topic].partitions[nth];
            *partition = told(&call, partition.partition_index, found);
        }
        call.answer_in(version, &body)
    })
}

/// Partitions that the request names more than once, which Kafka refuses: each naming would cost a
/// look of its own.
fn named_twice(request: &ListOffsetsRequest) -> HashSet<(WireName, i32)> {
    let mut seen = HashSet::new();
    let named = request.topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|partition| (topic.name.clone(), partition.partition_index))
    });
    named.filter(|named| !seen.insert(named.clone())).collect()
}

fn told(call: &Call, index: i32, found: Result<(i64, i64), i16>) -> ListOffsetsPartitionResponse {
    let (timestamp, offset) = found.as_ref().copied().unwrap_or(NOWHERE);
    let (code, epoch) = match found {
        Ok((_, -1)) => (0, -1),
        Ok(_) => (0, LEADER_EPOCH),
        Err(code) => (code, -1),
    };
    ListOffsetsPartitionResponse::default()
        .with_partition_index(index)
        .with_error_code(code)
        .with_timestamp(timestamp)
        .with_offset(offset)
        .with_leader_epoch(if call.version >= 4 { epoch } else { -1 })
}

/// A look by time reads batches and unpacks them, which must keep no other connection waiting; each
/// takes its turn among those of all connections.
async fn look_up(
    call: &Call,
    isolation: Isolation,
    lookup: Lookup,
) -> Result<Result<(i64, i64), i16>, Ending> {
    let shared = &call.context.shared;
    let failed = || Ending::Unencodable("the lookup was given up".to_owned());
    let place = tokio::select! {
        biased;
        () = shared.shutdown.cancelled() => return Err(failed()),
        place = Arc::clone(&shared.lookups).acquire_owned() => place,
    };
    let found = tokio::task::spawn_blocking(move || {
        let found = lookup.run(isolation);
        drop(place);
        found
    });
    let found = found.await.map_err(|_| failed())?;
    Ok(match found {
        Ok(found) => Ok(found.map_or(NOWHERE, |(offset, at)| (at.0, offset))),
        Err(error) => Err(streams_error_code(&error)),
    })
}

/// What answers one partition of ListOffsets.
enum Found {
    /// This timestamp and offset.
    At(i64, i64),
    /// What this finds.
    By(Lookup),
}

/// A look into a partition by time.
struct Lookup {
    partition: Arc<Partition>,
    /// The first record at or after this time, or else the newest.
    since: Option<UnixMillis>,
}

impl Lookup {
    fn run(&self, isolation: Isolation) -> Result<Option<(i64, UnixMillis)>, StreamsError> {
        match self.since {
            Some(at) => self.partition.offset_for_time(isolation, at),
            None => self.partition.offset_of_max_time(isolation),
        }
    }
}

/// Kafka's number for an isolation level; 0 shows everything.
pub(super) fn isolation_of(level: i8) -> Isolation {
    match level {
        1 => Isolation::Committed,
        _ => Isolation::Uncommitted,
    }
}

/// The topic under a name from the wire, or the code that says why there is none for this caller
/// and `operation`.
pub(super) fn find(call: &Call, operation: Operation, name: &str) -> Result<Arc<Topic>, i16> {
    let name: TopicName = name
        .parse()
        .map_err(|_| ResponseError::InvalidTopicException.code())?;
    if !call.may_topic(operation, &name) {
        call.context.note_foreign_topic(operation, name.wire_name());
        return Err(ResponseError::TopicAuthorizationFailed.code());
    }
    let found = call.context.streams().topic_by_name(&name);
    found.ok_or(ResponseError::UnknownTopicOrPartition.code())
}

/// As [`find`], for who may do to the whole cluster what is asked.
pub(super) fn existing(call: &Call, name: &str) -> Result<Arc<Topic>, i16> {
    let name: TopicName = name
        .parse()
        .map_err(|_| ResponseError::InvalidTopicException.code())?;
    let found = call.context.streams().topic_by_name(&name);
    found.ok_or(ResponseError::UnknownTopicOrPartition.code())
}

/// What the client wants told beside the topics.
#[derive(Clone, Copy)]
struct Telling {
    /// What the caller may do to each topic.
    topic_operations: bool,
    /// What the caller may do to the cluster.
    cluster_operations: bool,
}

impl Telling {
    fn of(request: &MetadataRequest) -> Self {
        Telling {
            topic_operations: request.include_topic_authorized_operations,
            cluster_operations: request.include_cluster_authorized_operations,
        }
    }
}

enum Known {
    Told(MetadataResponseTopic),
    Missing(TopicName),
}

fn known(call: &Call, telling: Telling, asked: &MetadataRequestTopic) -> Known {
    let streams = call.context.streams();
    let by_id = call.version >= BY_ID_FROM && !asked.topic_id.is_nil();
    let Some(wire_name) = asked.name.as_ref().filter(|_| !by_id) else {
        let Some(topic) = streams.topic_by_id(asked.topic_id) else {
            let code = ResponseError::UnknownTopicId.code();
            let name = (call.version < BY_ID_FROM).then(WireName::default);
            let told = refused(name, code).with_topic_id(asked.topic_id);
            return Known::Told(told);
        };
        if !call.may_topic(Operation::Describe, topic.name()) {
            // Kafka does not hold ids for secrets, names it does.
            let code = ResponseError::TopicAuthorizationFailed.code();
            let name = (call.version < BY_ID_FROM).then(WireName::default);
            return Known::Told(refused(name, code).with_topic_id(asked.topic_id));
        }
        let name = WireName(owned(topic.name().wire_name()));
        return Known::Told(describe(call, telling, Some(name), &topic));
    };
    let name: TopicName = match wire_name.parse() {
        Ok(name) => name,
        Err(_) => {
            let code = ResponseError::InvalidTopicException.code();
            return Known::Told(refused(asked.name.clone(), code));
        }
    };
    if !call.may_topic(Operation::Describe, &name) {
        let code = ResponseError::TopicAuthorizationFailed.code();
        return Known::Told(refused(asked.name.clone(), code));
    }
    match streams.topic_by_name(&name) {
        Some(topic) => Known::Told(describe(call, telling, asked.name.clone(), &topic)),
        None => Known::Missing(name),
    }
}

async fn create(
    call: &Call,
    telling: Telling,
    asked: Option<WireName>,
    name: &TopicName,
) -> MetadataResponseTopic {
    if !call.may_create(name) {
        return refused(asked, ResponseError::TopicAuthorizationFailed.code());
    }
    match call.context.streams().topic_or_create(name).await {
        Ok(topic) => describe(call, telling, asked, &topic),
        Err(error) => refused(asked, streams_error_code(&error)),
    }
}

/// A topic under the name that the client used, as clients look for that one.
fn describe(
    call: &Call,
    telling: Telling,
    name: Option<WireName>,
    topic: &Topic,
) -> MetadataResponseTopic {
    let node = BrokerId(call.context.streams().node_id());
    let partitions = (0..).zip(topic.partitions()).map(|(index, _)| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(node)
            .with_leader_epoch(LEADER_EPOCH)
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
    });
    let told = MetadataResponseTopic::default()
        .with_name(name)
        .with_topic_id(topic.id())
        .with_is_internal(topic.name().is_internal())
        .with_partitions(partitions.collect());
    if !telling.topic_operations {
        return told;
    }
    let operations = call.allowed(ResourceType::Topic, topic.name().wire_name());
    told.with_topic_authorized_operations(operations)
}

fn refused(name: Option<WireName>, code: i16) -> MetadataResponseTopic {
    MetadataResponseTopic::default()
        .with_name(name)
        .with_error_code(code)
}

fn body(call: &Call, telling: Telling, topics: Vec<MetadataResponseTopic>) -> MetadataResponse {
    let streams = call.context.streams();
    let node = BrokerId(streams.node_id());
    let broker = MetadataResponseBroker::default()
        .with_node_id(node)
        .with_host(call.context.host.clone())
        .with_port(call.context.port);
    let told = MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(owned(streams.cluster_id())))
        .with_controller_id(node)
        .with_topics(topics);
    if !telling.cluster_operations {
        return told;
    }
    told.with_cluster_authorized_operations(call.allowed_to_cluster())
}

/// What answers for one partition, or the code of the refusal.
fn list_offset(
    version: i16,
    isolation: Isolation,
    topic: &Result<Arc<Topic>, i16>,
    asked: &ListOffsetsPartition,
) -> Result<Found, i16> {
    let topic = topic.as_ref().map_err(|code| *code)?;
    let partition = topic
        .partition(asked.partition_index)
        .ok_or(ResponseError::UnknownTopicOrPartition.code())?;
    if asked.current_leader_epoch > LEADER_EPOCH {
        return Err(ResponseError::UnknownLeaderEpoch.code());
    }
    let by = |since| {
        let partition = Arc::clone(partition);
        Found::By(Lookup { partition, since })
    };
    let nowhere = Found::At(NOWHERE.0, NOWHERE.1);
    match asked.timestamp {
        LATEST => Ok(Found::At(-1, partition.end_offset(isolation))),
        EARLIEST => Ok(Found::At(-1, partition.log_start_offset())),
        NEWEST if version >= 7 => Ok(by(None)),
        // All that is held is held here.
        EARLIEST_LOCAL if version >= 8 => Ok(Found::At(-1, partition.log_start_offset())),
        LATEST_TIERED if version >= 9 => Ok(nowhere),
        EARLIEST_TO_TIER if version >= 11 => Ok(nowhere),
        timestamp if timestamp >= 0 => Ok(by(Some(UnixMillis(timestamp)))),
        _ => Err(ResponseError::UnsupportedVersion.code()),
    }
}

/// The timestamp and offset of what is not there.
const NOWHERE: (i64, i64) = (-1, -1);

/// One node leads everything and never hands over.
const LEADER_EPOCH: i32 = 0;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const NEWEST: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_TO_TIER: i64 = -6;

/// The newest layout of ListOffsets.
const LIST_OFFSETS_WRITTEN: i16 = 10;

/// The first version of Metadata in which topics may be asked for by id, and have no name.
const BY_ID_FROM: i16 = 12;
