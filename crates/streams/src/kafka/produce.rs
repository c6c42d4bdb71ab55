//! Produce.
//!
//! A batch is appended when its request is begun, so batches of one connection reach the journal
//! in the order of the requests; only the acknowledgement is waited for.

use std::sync::Arc;

use access::Operation;
use base::TenantId;
use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_response::{
    LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
};
use kafka_protocol::messages::{
    BrokerId, ProduceRequest, ProduceResponse, TopicName as WireName, TransactionalId,
};
use uuid::Uuid;

use super::error::streams_error_code;
use super::reply::{Answer, Call, Ending, Reply, owned};
use super::tenancy::Tenancy;
use super::transactions::{fenced_code, protocol_of};
use crate::batch::BatchHeader;
use crate::transactions::TransactionError;
use crate::{Ack, AckWait, Append, Partition, StreamsError, Topic};

/// Takes record batches.
pub(super) fn produce(mut call: Call) -> Result<Reply, Ending> {
    let request: ProduceRequest = call.decode("Produce")?;
    // What waits for the sync holds nothing of the request, so that its buffer serves the next.
    call.body = Bytes::new();
    let ack = match request.acks {
        0 => Some(Ack::None),
        1 => Some(Ack::Leader),
        -1 => Some(Ack::All),
        _ => None,
    };
    let mut entries = Vec::new();
    for topic in request.topic_data {
        let name = WireName(owned(topic.name.as_str()));
        for partition in topic.partition_data {
            entries.push(Entry {
                topic: name.clone(),
                topic_id: topic.topic_id,
                index: partition.index,
                records: partition.records,
                is_checked: false,
                outcome: None,
            });
        }
    }
    let id = request.transactional_id.as_ref();
    let refused = if ack.is_none() {
        Some(ResponseError::InvalidRequiredAcks)
    } else if id.is_some_and(|id| !call.may_transact(Operation::Write, id)) {
        Some(ResponseError::TransactionalIdAuthorizationFailed)
    } else {
        None
    };
    if let Some(code) = refused {
        for entry in &mut entries {
            entry.outcome = Some(Outcome::Refused(code.code(), None));
        }
    }
    Production {
        tenancy: Tenancy::of(&call),
        call,
        transactional_id: request
            .transactional_id
            .map(|id| TransactionalId(owned(id.as_str()))),
        ack: ack.unwrap_or(Ack::All),
        entries,
        next: 0,
    }
    .begin()
}

/// A produce request on its way.
struct Production {
    call: Call,
    /// Whose the batches are, where tenants are kept.
    tenancy: Option<Tenancy>,
    transactional_id: Option<TransactionalId>,
    ack: Ack,
    entries: Vec<Entry>,
    /// The first entry that was not tried yet.
    next: usize,
}

struct Entry {
    /// Empty since version 13, where the id stands for it.
    topic: WireName,
    topic_id: Uuid,
    index: i32,
    records: Option<Bytes>,
    /// It was found whole when the store was too busy for it.
    is_checked: bool,
    outcome: Option<Outcome>,
}

enum Outcome {
    Placed {
        base_offset: i64,
        log_start_offset: i64,
        log_append_time: i64,
        ack: AckWait,
    },
    Refused(i16, Option<String>),
}

impl Production {
    /// Appends the batches in order. A busy store holds the whole connection back.
    fn begin(mut self) -> Result<Reply, Ending> {
        while let Some(entry) = self.entries.get_mut(self.next) {
            if entry.outcome.is_none() {
                let bytes = entry.records.as_ref().map_or(0, Bytes::len) as u64;
                if !may_write(&self.call, entry) {
                    note_foreign(&self.call, entry);
                    let code = ResponseError::TopicAuthorizationFailed.code();
                    entry.outcome = Some(Outcome::Refused(code, None));
                    continue;
                }
                let id = self.transactional_id.as_ref().map(|id| id.as_str());
                match append(&self.call, id, self.ack, entry, self.tenancy.as_mut()) {
                    Err(StreamsError::Busy) => return Ok(self.hold_back(bytes)),
                    Err(StreamsError::Switching(tenant)) => return Ok(self.hold_until(tenant)),
                    outcome => entry.outcome = Some(Outcome::of(self.call.version, outcome)),
                }
                entry.records = None;
            }
            self.next += 1;
        }
        if self.ack == Ack::None {
            return self.without_answer();
        }
        Reply::later(self.answer())
    }

    fn hold_back(self, bytes: u64) -> Reply {
        Reply::HeldBack(Box::pin(async move {
            let streams = self.call.context.streams();
            streams.room(streams.bytes_at_home(bytes)).await;
            self.begin()
        }))
    }

    /// Waits while the tenant's records get another home.
    fn hold_until(mut self, tenant: TenantId) -> Reply {
        Reply::HeldBack(Box::pin(async move {
            if let Some(entry) = self.entries.get_mut(self.next)
                && let Some(topic) = topic_of(&self.call, entry)
            {
                let streams = self.call.context.streams();
                if let Err(error) = streams.tenant_opened(&tenant, topic.name()).await {
                    entry.outcome = Some(Outcome::of(self.call.version, Err(error)));
                }
            }
            self.begin()
        }))
    }

    /// Kafka's way to tell a client that does not listen that its records are lost: the
    /// connection closes.
    fn without_answer(self) -> Result<Reply, Ending> {
        for entry in &self.entries {
            if let Some(Outcome::Refused(code, reason)) = &entry.outcome {
                let reason = reason.clone().unwrap_or_else(|| format!("error {code}"));
                return Err(Ending::UnansweredRefusal(reason));
            }
        }
        Ok(Reply::Nothing)
    }

    async fn answer(self) -> Result<Answer, Ending> {
        let mut topics: Vec<TopicProduceResponse> = Vec::new();
        for entry in self.entries {
            let partition = match entry.outcome {
                Some(outcome) => outcome.settle(entry.index, self.call.version).await,
                None => continue,
            };
            let telemetry = self.call.context.shared.telemetry();
            telemetry.produce_errors.note(partition.error_code);
            match topics.last_mut() {
                Some(topic) if topic.name == entry.topic && topic.topic_id == entry.topic_id => {
                    topic.partition_responses.push(partition);
                }
                _ => topics.push(
                    TopicProduceResponse::default()
                        .with_name(entry.topic)
                        .with_topic_id(entry.topic_id)
                        .with_partition_responses(vec![partition]),
                ),
            }
        }
        self.call
            .answer(&ProduceResponse::default().with_responses(topics))
    }
}

impl Outcome {
    fn of(version: i16, append: Result<Append, StreamsError>) -> Self {
        match append {
            Ok(append) => Outcome::Placed {
                base_offset: append.base_offset,
                log_start_offset: append.log_start_offset,
                log_append_time: append.log_append_time,
                ack: append.ack,
            },
            Err(error) => Outcome::Refused(code_of(version, &error), Some(base::report(&error))),
        }
    }

    async fn settle(self, index: i32, version: i16) -> PartitionProduceResponse {
        let partition = PartitionProduceResponse::default()
            .with_index(index)
            .with_base_offset(-1)
            .with_log_append_time_ms(-1)
            .with_log_start_offset(-1)
            .with_current_leader(
                LeaderIdAndEpoch::default()
                    .with_leader_id(BrokerId(-1))
                    .with_leader_epoch(-1),
            );
        let (code, reason) = match self {
            Outcome::Refused(code, reason) => (code, reason),
            Outcome::Placed {
                base_offset,
                log_start_offset,
                log_append_time,
                ack,
            } => match ack.await {
                Ok(()) => {
                    return partition
                        .with_base_offset(base_offset)
                        .with_log_append_time_ms(log_append_time)
                        .with_log_start_offset(log_start_offset);
                }
                Err(error) => (streams_error_code(&error), Some(base::report(&error))),
            },
        };
        let reason = reason.filter(|_| version >= ERROR_MESSAGE_FROM).map(owned);
        partition.with_error_code(code).with_error_message(reason)
    }
}

/// Whether the caller may write to the topic; one that is not there is told as such.
fn may_write(call: &Call, entry: &Entry) -> bool {
    if !call.is_judged() {
        return true;
    }
    if call.version < TOPIC_ID_FROM {
        return call.may_topic_named(Operation::Write, &entry.topic);
    }
    let found = call.context.streams().topic_by_id(entry.topic_id);
    found.is_none_or(|topic| call.may_topic(Operation::Write, topic.name()))
}

/// The code of a refusal. A fenced producer hears of its epoch; a client that knows that a
/// transaction can be given up hears so when its partition was never added.
fn code_of(version: i16, error: &StreamsError) -> i16 {
    match error {
        StreamsError::Transaction {
            reason: TransactionError::NotJoined,
            ..
        } if version >= ABORTABLE_FROM => ResponseError::TransactionAbortable.code(),
        error => fenced_code(error, false, streams_error_code),
    }
}

fn append(
    call: &Call,
    transactional_id: Option<&str>,
    ack: Ack,
    entry: &mut Entry,
    tenancy: Option<&mut Tenancy>,
) -> Result<Append, StreamsError> {
    let streams = call.context.streams();
    let topic = if call.version >= TOPIC_ID_FROM {
        let found = streams.topic_by_id(entry.topic_id);
        found.ok_or(StreamsError::UnknownTopicId(entry.topic_id))?
    } else {
        let name: crate::TopicName = entry.topic.parse()?;
        let found = streams.topic_by_name(&name);
        found.ok_or(StreamsError::UnknownTopic(name))?
    };
    if topic.name().is_internal() {
        return Err(StreamsError::InternalTopic(topic.name().clone()));
    }
    let partition = topic
        .partition(entry.index)
        .ok_or_else(|| StreamsError::UnknownPartition {
            topic: topic.name().clone(),
            partition: entry.index,
        })?;
    let records = entry
        .records
        .clone()
        .ok_or(StreamsError::InvalidRecord("no record batch"))?;
    if transactional_id.is_none() && !entry.is_checked {
        partition.check(&records)?;
        entry.is_checked = true;
    }
    let Some(tenancy) = tenancy else {
        return stored(call, transactional_id, ack, partition, records);
    };
    let header = match entry.is_checked {
        true => BatchHeader::read(&records)?,
        false => BatchHeader::check(&records)?,
    };
    tenancy.admit(&call.context, topic.name(), &records)?;
    let append = stored(call, transactional_id, ack, partition, records)?;
    tenancy.stored(&call.context, topic.name(), &header);
    Ok(append)
}

/// Stores a batch, which was checked unless it belongs to a transaction.
fn stored(
    call: &Call,
    transactional_id: Option<&str>,
    ack: Ack,
    partition: &Arc<Partition>,
    records: Bytes,
) -> Result<Append, StreamsError> {
    let streams = call.context.streams();
    let Some(id) = transactional_id else {
        return streams.append_at_home(partition, records, ack);
    };
    streams.check_own_home(partition.topic())?;
    let protocol = protocol_of(call.version >= IMPLICIT_FROM);
    streams.append_in_transaction(protocol, id, partition, records, ack)
}

/// Keeps that a client was refused a topic of another tenant.
fn note_foreign(call: &Call, entry: &Entry) {
    if !call.context.has_tenants() {
        return;
    }
    let found = topic_of(call, entry);
    let name = found
        .as_ref()
        .map_or(entry.topic.as_str(), |topic| topic.name().wire_name());
    call.context.note_foreign_topic(Operation::Write, name);
}

fn topic_of(call: &Call, entry: &Entry) -> Option<Arc<Topic>> {
    let streams = call.context.streams();
    match call.version >= TOPIC_ID_FROM {
        true => streams.topic_by_id(entry.topic_id),
        false => streams.topic_by_name(&entry.topic.parse().ok()?),
    }
}

/// The first version that knows the error of a transaction that has to be aborted.
const ABORTABLE_FROM: i16 = 11;

/// The first version that adds partitions to the transaction by itself.
const IMPLICIT_FROM: i16 = 12;

/// The first version whose answers carry a text for an error.
const ERROR_MESSAGE_FROM: i16 = 8;

/// The first version that names topics by id.
const TOPIC_ID_FROM: i16 = 13;
