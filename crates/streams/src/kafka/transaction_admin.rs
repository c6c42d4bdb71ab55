//! The APIs that let people look at transactions: DescribeProducers, DescribeTransactions and
//! ListTransactions.

use std::collections::HashSet;

use access::{Operation, ResourceType};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::describe_transactions_response::{
    TopicData, TransactionState as Described,
};
use kafka_protocol::messages::list_transactions_response::TransactionState as Listed;
use kafka_protocol::messages::{
    DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest,
    DescribeTransactionsResponse, ListTransactionsRequest, ListTransactionsResponse, ProducerId,
    TopicName as WireName, TransactionalId,
};

use regex::{Regex, RegexBuilder};

use super::metadata;
use super::reply::{Call, Ending, Reply, once, owned, text};
use crate::partition::ActiveProducer;
use crate::transactions::{Outcome, Phase, TransactionDescription};

/// Tells the producers that partitions remember.
pub(super) fn describe_producers(call: Call) -> Result<Reply, Ending> {
    let request: DescribeProducersRequest = call.decode("DescribeProducers")?;
    let mut seen = HashSet::new();
    let topics = request.topics.into_iter().map(|asked| {
        let topic = metadata::find(&call, Operation::Read, &asked.name);
        let indexes = asked.partition_indexes.iter();
        let indexes = indexes.filter(|index| seen.insert((asked.name.clone(), **index)));
        let partitions = indexes.map(|index| {
            let told = PartitionResponse::default().with_partition_index(*index);
            let found = topic.as_ref().map_err(|code| *code).and_then(|topic| {
                let unknown = ResponseError::UnknownTopicOrPartition.code();
                topic.partition(*index).ok_or(unknown)
            });
            match found {
                Err(code) => told.with_error_code(code),
                Ok(partition) => {
                    let producers = partition.active_producers().into_iter();
                    told.with_active_producers(producers.map(producer).collect())
                }
            }
        });
        let partitions = partitions.collect();
        TopicResponse::default()
            .with_name(asked.name)
            .with_partitions(partitions)
    });
    let topics = topics.collect();
    call.now(&DescribeProducersResponse::default().with_topics(topics))
}

/// Describes transactional ids.
pub(super) fn describe_transactions(call: Call) -> Result<Reply, Ending> {
    let request: DescribeTransactionsRequest = call.decode("DescribeTransactions")?;
    let streams = call.context.streams();
    let ids = once(request.transactional_ids, Clone::clone);
    let states = ids.into_iter().map(|id| {
        if !call.may_transact(Operation::Describe, &id) {
            return Described::default()
                .with_transactional_id(id)
                .with_error_code(ResponseError::TransactionalIdAuthorizationFailed.code());
        }
        match streams.describe_transaction(&id) {
            Some(found) => describe(&call, id, found),
            None => Described::default()
                .with_transactional_id(id)
                .with_error_code(ResponseError::TransactionalIdNotFound.code()),
        }
    });
    let states = states.collect();
    call.now(&DescribeTransactionsResponse::default().with_transaction_states(states))
}

/// Lists transactional ids that pass the request's filters.
pub(super) fn list_transactions(call: Call) -> Result<Reply, Ending> {
    let request: ListTransactionsRequest = call.decode("ListTransactions")?;
    let pattern = request.transactional_id_pattern.as_deref();
    let pattern = pattern.filter(|pattern| !pattern.is_empty());
    let pattern = match pattern.map(whole) {
        Some(Err(_)) => {
            let code = ResponseError::InvalidRegularExpression.code();
            return call.now(&ListTransactionsResponse::default().with_error_code(code));
        }
        Some(Ok(pattern)) => Some(pattern),
        None => None,
    };
    let streams = call.context.streams();
    let now = streams.clock().now();
    let unknown = request.state_filters.iter();
    let unknown = unknown.filter(|name| !STATES.iter().any(|state| state.name() == name.as_str()));
    let unknown = unknown.cloned().collect();
    let is_asked = |found: &TransactionDescription| {
        let by_state = request.state_filters.is_empty()
            || request
                .state_filters
                .iter()
                .any(|s| s.as_str() == found.phase.name());
        let by_producer = request.producer_id_filters.is_empty()
            || request
                .producer_id_filters
                .iter()
                .any(|id| id.0 == found.producer.id);
        // Only what is open has a duration; a negative filter is none.
        let is_long = |started| now.since(started).as_millis() > request.duration_filter as u128;
        let by_duration = request.duration_filter < 0 || found.started.is_some_and(is_long);
        let by_pattern = pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(&found.id));
        by_state && by_producer && by_duration && by_pattern
    };
    let ids = streams.transactional_ids().into_iter();
    let (describe, kind) = (Operation::Describe, ResourceType::TransactionalId);
    let ids = ids.filter(|id| call.may(describe, kind, id));
    let found = ids.filter_map(|id| streams.describe_transaction(&id));
    let states = found.filter(is_asked).map(|found| {
        Listed::default()
            .with_transactional_id(TransactionalId(owned(found.id)))
            .with_producer_id(ProducerId(found.producer.id))
            .with_transaction_state(text(found.phase.name()))
    });
    let states = states.collect();
    let body = ListTransactionsResponse::default()
        .with_unknown_state_filters(unknown)
        .with_transaction_states(states);
    call.now(&body)
}

/// A pattern that has to match the whole id, as Kafka's does.
fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(&format!("^(?:{pattern})$"))
        .size_limit(PATTERN_BYTES_MAX)
        .build()
}

fn producer(active: ActiveProducer) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(active.id))
        .with_producer_epoch(active.epoch.into())
        .with_last_sequence(active.last_sequence)
        .with_last_timestamp(active.last_timestamp)
        // One node coordinates for ever.
        .with_coordinator_epoch(0)
        .with_current_txn_start_offset(active.open_since)
}

/// Topics that the caller may not know of are left out.
fn describe(call: &Call, id: TransactionalId, found: TransactionDescription) -> Described {
    let mut topics: Vec<TopicData> = Vec::new();
    let mut partitions = found.partitions;
    partitions.retain(|(topic, _)| call.may_topic(Operation::Describe, topic));
    partitions.sort();
    for (topic, index) in partitions {
        let name = WireName(owned(topic.wire_name()));
        match topics.last_mut() {
            Some(last) if last.topic == name => last.partitions.push(index),
            _ => topics.push(
                TopicData::default()
                    .with_topic(name)
                    .with_partitions(vec![index]),
            ),
        }
    }
    Described::default()
        .with_transactional_id(id)
        .with_transaction_state(text(found.phase.name()))
        .with_transaction_timeout_ms(i32::try_from(found.timeout.as_millis()).unwrap_or(i32::MAX))
        .with_transaction_start_time_ms(found.started.map_or(-1, |at| at.0))
        .with_producer_id(ProducerId(found.producer.id))
        .with_producer_epoch(found.producer.epoch)
        .with_topics(topics)
}

/// Every state that a transaction can be in.
const STATES: [Phase; 6] = [
    Phase::Empty,
    Phase::Ongoing,
    Phase::Ending(Outcome::Commit),
    Phase::Ending(Outcome::Abort),
    Phase::Ended(Outcome::Commit),
    Phase::Ended(Outcome::Abort),
];

/// Bytes that a pattern may take when it is compiled: far more than any sane one.
const PATTERN_BYTES_MAX: usize = 1 << 20;
