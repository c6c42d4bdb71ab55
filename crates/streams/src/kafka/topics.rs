//! CreateTopics and DeleteTopics.

use std::collections::BTreeSet;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    TopicName as WireName,
};

use super::configs;
use super::error::streams_error_code;
use super::reply::{Call, Ending, Reply, owned, text};
use crate::{StreamsError, TopicName, TopicSpec};

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
        let mut results = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let created = if twice.contains(&topic.name) {
                Err(Refusal::of(
                    ResponseError::InvalidRequest,
                    "the request names it twice",
                ))
            } else {
                create(&call, &topic, request.validate_only).await
            };
            results.push(created.unwrap_or_else(|refusal| refusal.result(topic.name)));
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
        let mut results = Vec::with_capacity(asked.len());
        for topic in asked {
            results.push(delete(&call, topic).await);
        }
        call.answer(&DeleteTopicsResponse::default().with_responses(results))
    })
}

/// Why a topic was not created, for programs and for people.
struct Refusal {
    code: i16,
    reason: String,
}

impl Refusal {
    fn of(code: ResponseError, reason: impl Into<String>) -> Self {
        Refusal {
            code: code.code(),
            reason: reason.into(),
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

async fn create(
    call: &Call,
    asked: &CreatableTopic,
    validate_only: bool,
) -> Result<CreatableTopicResult, Refusal> {
    let streams = call.context.streams();
    let name: TopicName = asked.name.parse().map_err(StreamsError::from)?;
    let spec = TopicSpec {
        name,
        partitions: partitions_asked(call, asked)?,
        durability: configs::durability_asked(
            asked.configs.iter().map(|c| (&*c.name, c.value.as_deref())),
        )
        .map_err(|reason| Refusal::of(ResponseError::InvalidConfig, reason))?,
    };
    let durability = spec.durability.unwrap_or(streams.config().durability);
    let (partitions, id) = if validate_only {
        (streams.check_create(&spec)?, uuid::Uuid::nil())
    } else {
        let topic = streams.create_topic(spec).await?;
        (
            i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX),
            topic.id(),
        )
    };
    let told = configs::of_topic(streams.config(), durability)
        .into_iter()
        .map(|config| {
            CreatableTopicConfigs::default()
                .with_name(text(config.name))
                .with_value(Some(owned(config.value)))
                .with_read_only(config.is_read_only)
                .with_config_source(config.source)
        });
    let result = CreatableTopicResult::default().with_name(asked.name.clone());
    Ok(if call.version >= DETAILS_FROM {
        result
            .with_topic_id(id)
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(Some(told.collect()))
    } else {
        result
    })
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

async fn delete(call: &Call, asked: DeleteTopicState) -> DeletableTopicResult {
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
    let deleted = match &name {
        Ok(name) => streams.delete_topic(name).await,
        Err(error) => Err(error.clone()),
    };
    let wire_name = asked
        .name
        .or_else(|| name.ok().map(|n| WireName(owned(n.wire_name()))));
    let error = deleted.err();
    let message = error.as_ref().map(|error| owned(base::report(error)));
    let result = DeletableTopicResult::default()
        .with_name(if call.version >= 6 {
            wire_name
        } else {
            Some(wire_name.unwrap_or_default())
        })
        .with_error_code(error.as_ref().map_or(0, streams_error_code))
        .with_error_message(message.filter(|_| call.version >= 5));
    if call.version >= 6 {
        result.with_topic_id(id.unwrap_or(asked.topic_id))
    } else {
        result
    }
}

/// The first version whose answers tell partitions and settings of what was created.
const DETAILS_FROM: i16 = 5;
