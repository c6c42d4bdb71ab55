//! CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords.
//!
//! All that a request asks for is begun before the first of it is waited for, so that a request
//! costs one sync, however many topics it names.

use std::collections::BTreeSet;

use access::Operation;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteRecordsRequest, DeleteRecordsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    TopicName as WireName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::task::consume_budget;

use super::configs;
use super::error::{code_of, streams_error_code};
use super::reply::{Call, Ending, Reply, owned, text};
use crate::{DurableWait, Replication, StreamsError, TopicName, TopicSpec};

/// Creates topics; each is durable when the answer says so.
pub(super) fn create_topics(call: Call) -> Result<Reply, Ending> {
    let request: CreateTopicsRequest = call.decode("CreateTopics")?;
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for topic in &request.topics {
        if !seen.insert(topic.name.clone()) {
            twice.insert(topic.name.clone());
        }
    }
    Reply::later(async move {
        let mut begun = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let created = if !call.may_create_named(&topic.name) {
                call.context
                    .note_foreign_topic(Operation::Create, &topic.name);
                let code = ResponseError::TopicAuthorizationFailed;
                Err(Refusal::of(code, "not allowed to create it"))
            } else if twice.contains(&topic.name) {
                Err(Refusal::of(
                    ResponseError::InvalidRequest,
                    "the request names it twice",
                ))
            } else {
                create(&call, &topic, request.validate_only).await
            };
            begun.push((topic.name, created));
            consume_budget().await;
        }
        let mut results = Vec::with_capacity(begun.len());
        for (name, created) in begun {
            let created = settled(created).await;
            results.push(created.unwrap_or_else(|refusal| refusal.result(name)));
        }
        call.answer(&CreateTopicsResponse::default().with_topics(results))
    })
}

/// Deletes topics with their records.
pub(super) fn delete_topics(call: Call) -> Result<Reply, Ending> {
    let request: DeleteTopicsRequest = call.decode("DeleteTopics")?;
    let by_name = request
        .topic_names
        .into_iter()
        .map(|name| DeleteTopicState::default().with_name(Some(name)));
    let asked: Vec<DeleteTopicState> = by_name.chain(request.topics).collect();
    Reply::later(async move {
        let mut begun = Vec::with_capacity(asked.len());
        for topic in asked {
            begun.push(delete(&call, topic).await);
            consume_budget().await;
        }
        let mut results = Vec::with_capacity(begun.len());
        for (result, deleted) in begun {
            let deleted = match deleted {
                Ok(wait) => call.context.streams().end_delete_topic(wait).await,
                Err(refused) => Err(refused),
            };
            results.push(match deleted {
                Ok(()) => result,
                Err(error) => result
                    .with_error_code(streams_error_code(&error))
                    .with_error_message(
                        Some(owned(base::report(&error))).filter(|_| call.version >= 5),
                    ),
            });
        }
        call.answer(&DeleteTopicsResponse::default().with_responses(results))
    })
}

/// Why something of a topic was not done, for programs and for people.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: i16,
    pub(super) reason: String,
}

impl Refusal {
    pub(super) fn of(code: ResponseError, reason: impl Into<String>) -> Self {
        Refusal {
            code: code.code(),
            reason: reason.into(),
        }
    }

    /// Code and text of an outcome: zero and none when it is fine.
    pub(super) fn told<T>(outcome: Result<T, Refusal>) -> (i16, Option<StrBytes>) {
        match outcome {
            Ok(_) => (0, None),
            Err(refusal) => (refusal.code, Some(owned(refusal.reason))),
        }
    }

    fn result(self, name: WireName) -> CreatableTopicResult {
        CreatableTopicResult::default()
            .with_name(name)
            .with_error_code(self.code)
            .with_error_message(Some(owned(self.reason)))
            .with_num_partitions(-1)
            .with_replication_factor(-1)
    }
}

impl From<StreamsError> for Refusal {
    fn from(error: StreamsError) -> Self {
        Refusal {
            code: streams_error_code(&error),
            reason: base::report(&error),
        }
    }
}

/// Has topics have more partitions; each is durable when the answer says so.
pub(super) fn create_partitions(call: Call) -> Result<Reply, Ending> {
    let request: CreatePartitionsRequest = call.decode("CreatePartitions")?;
    Reply::later(async move {
        let mut begun = Vec::with_capacity(request.topics.len());
        let mut seen = BTreeSet::new();
        for topic in request.topics {
            let grown = if seen.insert(topic.name.clone()) {
                grow(&call, &topic, request.validate_only).await
            } else {
                let reason = "the request names it twice";
                Err(Refusal::of(ResponseError::InvalidRequest, reason))
            };
            begun.push((topic.name, grown.map(|wait| ((), wait))));
            consume_budget().await;
        }
        let mut results = Vec::with_capacity(begun.len());
        for (name, grown) in begun {
            let (code, reason) = Refusal::told(settled(grown).await);
            results.push(
                CreatePartitionsTopicResult::default()
                    .with_name(name)
                    .with_error_code(code)
                    .with_error_message(reason),
            );
        }
        call.answer(&CreatePartitionsResponse::default().with_results(results))
    })
}

/// Deletes the records before given offsets; durable when the answer says so.
pub(super) fn delete_records(call: Call) -> Result<Reply, Ending> {
    let request: DeleteRecordsRequest = call.decode("DeleteRecords")?;
    Reply::later(async move {
        let mut begun = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let may = call.may_topic_named(Operation::Delete, &topic.name);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in topic.partitions {
                let (index, offset) = (asked.partition_index, asked.offset);
                let deleted = if may {
                    let deleted = delete_before(&call, &topic.name, index, offset).await;
                    deleted.map_err(|error| streams_error_code(&error))
                } else {
                    Err(ResponseError::TopicAuthorizationFailed.code())
                };
                partitions.push((index, deleted));
                consume_budget().await;
            }
            begun.push((topic.name, partitions));
        }
        let mut topics = Vec::with_capacity(begun.len());
        for (name, begun) in begun {
            let mut partitions = Vec::with_capacity(begun.len());
            for (index, deleted) in begun {
                let (code, low_watermark) = match deleted {
                    Ok((start, wait)) => {
                        let ended = call.context.streams().end_delete_records(wait).await;
                        (code_of(&ended), ended.map_or(-1, |()| start))
                    }
                    Err(code) => (code, -1),
                };
                partitions.push(
                    DeleteRecordsPartitionResult::default()
                        .with_partition_index(index)
                        .with_error_code(code)
                        .with_low_watermark(low_watermark),
                );
            }
            topics.push(
                DeleteRecordsTopicResult::default()
                    .with_name(name)
                    .with_partitions(partitions),
            );
        }
        call.answer(&DeleteRecordsResponse::default().with_topics(topics))
    })
}

async fn delete_before(
    call: &Call,
    topic: &WireName,
    partition: i32,
    offset: i64,
) -> Result<(i64, DurableWait), StreamsError> {
    let name: TopicName = topic.parse()?;
    // Minus one means all that can be read now.
    let offset = Some(offset).filter(|offset| *offset != -1);
    let streams = call.context.streams();
    streams.begin_delete_records(&name, partition, offset).await
}

/// What was begun, once it is durable.
pub(super) async fn settled<T>(begun: Result<(T, DurableWait), Refusal>) -> Result<T, Refusal> {
    let (done, wait) = begun?;
    wait.await?;
    Ok(done)
}

async fn grow(
    call: &Call,
    asked: &CreatePartitionsTopic,
    validate_only: bool,
) -> Result<DurableWait, Refusal> {
    let streams = call.context.streams();
    let name: TopicName = asked.name.parse().map_err(StreamsError::from)?;
    if !call.may_topic(Operation::Alter, &name) {
        let code = ResponseError::TopicAuthorizationFailed;
        return Err(Refusal::of(code, "not allowed"));
    }
    streams.check_create_partitions(&name, asked.count)?;
    let now = streams.topic_by_name(&name);
    let now = now.map_or(0, |topic| topic.partitions().len());
    if let Some(assignments) = &asked.assignments {
        let node = streams.node_id();
        let is_here = assignments
            .iter()
            .all(|a| a.broker_ids.iter().map(|b| b.0).eq([node]));
        if !is_here || now + assignments.len() != usize::try_from(asked.count).unwrap_or(0) {
            let reason = format!("replicas can only be assigned to node {node}, one each");
            return Err(Refusal::of(ResponseError::InvalidReplicaAssignment, reason));
        }
    }
    if validate_only {
        return Ok(DurableWait::over());
    }
    let added = usize::try_from(asked.count)
        .unwrap_or(0)
        .saturating_sub(now);
    if !call.may_mutate(added, call.version >= QUOTAS_FROM_PARTITIONS) {
        return Err(throttled());
    }
    Ok(streams.begin_create_partitions(&name, asked.count).await?)
}

/// Begins to create a topic, unless it is only to be checked.
pub(super) async fn create(
    call: &Call,
    asked: &CreatableTopic,
    validate_only: bool,
) -> Result<(CreatableTopicResult, DurableWait), Refusal> {
    let streams = call.context.streams();
    let name: TopicName = asked.name.parse().map_err(StreamsError::from)?;
    let spec = TopicSpec {
        name,
        partitions: partitions_asked(call, asked)?,
        durability: None,
        replication: Replication::Usual,
        config: configs::asked(asked.configs.iter().map(|c| (&*c.name, c.value.as_deref())))?,
    };
    let name = spec.name.clone();
    let (partitions, id, (set, durability), wait) = if validate_only {
        let set = streams.split_config(spec.config.clone(), spec.durability)?;
        let partitions = streams.check_create(&spec)?;
        (partitions, uuid::Uuid::nil(), set, DurableWait::over())
    } else {
        let partitions = usize::try_from(streams.check_create(&spec)?).unwrap_or(0);
        if !call.may_mutate(partitions, call.version >= QUOTAS_FROM_CREATE) {
            return Err(throttled());
        }
        let (topic, wait) = streams.begin_create_topic(spec).await?;
        (
            i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX),
            topic.id(),
            ((*topic.config()).clone(), topic.durability()),
            wait,
        )
    };
    let told = configs::of_topic(streams.config(), &name, &set, durability)
        .into_iter()
        .map(|config| {
            CreatableTopicConfigs::default()
                .with_name(text(config.name))
                .with_value(Some(owned(config.value)))
                .with_read_only(config.is_read_only)
                .with_config_source(config.source)
        });
    let result = CreatableTopicResult::default().with_name(asked.name.clone());
    let may_see = call.may_topic(Operation::DescribeConfigs, &name);
    let result = if call.version >= DETAILS_FROM && !may_see {
        // Who may create a topic need not see what became of it.
        result
            .with_topic_id(id)
            .with_topic_config_error_code(ResponseError::TopicAuthorizationFailed.code())
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_configs(None)
    } else if call.version >= DETAILS_FROM {
        result
            .with_topic_id(id)
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(Some(told.collect()))
    } else {
        result
    };
    Ok((result, wait))
}

/// The number of partitions asked for; none leaves it to the store.
fn partitions_asked(call: &Call, asked: &CreatableTopic) -> Result<Option<i32>, Refusal> {
    if !asked.assignments.is_empty() {
        let node = call.context.streams().node_id();
        let indexes: BTreeSet<i32> = asked
            .assignments
            .iter()
            .map(|a| a.partition_index)
            .collect();
        let count = i32::try_from(asked.assignments.len()).unwrap_or(i32::MAX);
        let is_whole = (0..count).all(|index| indexes.contains(&index));
        let is_here = asked
            .assignments
            .iter()
            .all(|a| a.broker_ids.iter().map(|b| b.0).eq([node]));
        if asked.num_partitions != -1 || !is_whole || !is_here {
            let reason = format!("replicas can only be assigned to node {node}, one each");
            return Err(Refusal::of(ResponseError::InvalidReplicaAssignment, reason));
        }
        return Ok(Some(count));
    }
    if !matches!(asked.replication_factor, -1 | 1) {
        let reason = format!(
            "replication factor {} cannot be had of one node: ask for 1 or -1",
            asked.replication_factor
        );
        return Err(Refusal::of(ResponseError::InvalidReplicationFactor, reason));
    }
    Ok(Some(asked.num_partitions).filter(|count| *count != -1))
}

/// Begins to delete a topic: its part of the answer if that succeeds, and what to wait for.
async fn delete(
    call: &Call,
    asked: DeleteTopicState,
) -> (DeletableTopicResult, Result<DurableWait, StreamsError>) {
    let streams = call.context.streams();
    let name: Result<TopicName, StreamsError> = match &asked.name {
        Some(name) => name.parse().map_err(StreamsError::from),
        None => streams
            .topic_by_id(asked.topic_id)
            .map(|topic| topic.name().clone())
            .ok_or(StreamsError::UnknownTopicId(asked.topic_id)),
    };
    let id = match &name {
        Ok(name) => streams.topic_by_name(name).map(|topic| topic.id()),
        Err(_) => None,
    };
    if let Ok(name) = &name
        && !(call.may_topic(Operation::Delete, name) && call.may_topic(Operation::Describe, name))
    {
        let refused = not_deleted(call, asked, name);
        return (refused, Ok(DurableWait::over()));
    }
    let gone = name
        .as_ref()
        .ok()
        .and_then(|name| streams.topic_by_name(name));
    let partitions = gone.map_or(0, |topic| topic.partitions().len());
    if partitions > 0 && !call.may_mutate(partitions, call.version >= QUOTAS_FROM_DELETE) {
        let throttled = throttled();
        let refused = DeletableTopicResult::default()
            .with_name(Some(asked.name.unwrap_or_default()))
            .with_topic_id(asked.topic_id)
            .with_error_code(throttled.code)
            .with_error_message(Some(owned(throttled.reason)));
        return (refused, Ok(DurableWait::over()));
    }
    let deleted = match &name {
        Ok(name) => streams.begin_delete_topic(name).await,
        Err(error) => Err(error.clone()),
    };
    let wire_name = asked
        .name
        .or_else(|| name.ok().map(|n| WireName(owned(n.wire_name()))));
    let result = DeletableTopicResult::default().with_name(if call.version >= 6 {
        wire_name
    } else {
        Some(wire_name.unwrap_or_default())
    });
    let result = if call.version >= 6 {
        result.with_topic_id(id.unwrap_or(asked.topic_id))
    } else {
        result
    };
    (result, deleted)
}

/// The answer for a topic that the caller may not delete: its name only for who may know it.
fn not_deleted(call: &Call, asked: DeleteTopicState, name: &TopicName) -> DeletableTopicResult {
    let may_know = asked.name.is_some() || call.may_topic(Operation::Describe, name);
    let told = may_know.then(|| {
        asked
            .name
            .unwrap_or_else(|| WireName(owned(name.wire_name())))
    });
    let result = DeletableTopicResult::default()
        .with_error_code(ResponseError::TopicAuthorizationFailed.code());
    match call.version >= 6 {
        true => result.with_name(told).with_topic_id(asked.topic_id),
        false => result.with_name(Some(told.unwrap_or_default())),
    }
}

fn throttled() -> Refusal {
    let reason = "The throttling quota has been exceeded.";
    Refusal::of(ResponseError::ThrottlingQuotaExceeded, reason)
}

/// The first versions whose clients know that they may have used up a quota (KIP-599).
const QUOTAS_FROM_CREATE: i16 = 6;
const QUOTAS_FROM_PARTITIONS: i16 = 3;
const QUOTAS_FROM_DELETE: i16 = 5;

/// The first version whose answers tell partitions and settings of what was created.
const DETAILS_FROM: i16 = 5;
