//! The APIs of transactional producers, each a translation to the transactions' calls.
//!
//! Each request is answered by one call that either did all of it or nothing; what waits here
//! waits for room in the store or for the disk.

use std::time::Duration;

use access::Operation;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestTopic;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, EndTxnRequest, EndTxnResponse, InitProducerIdRequest,
    InitProducerIdResponse, ProducerId, TopicName as WireName, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
};

use super::error::{commit_error_code, coordinator_error_code, group_error_code};
use super::metadata;
use super::offsets::{AskedOffset, take_offsets};
use super::reply::{Call, Ending, Reply};
use crate::groups::{GroupError, MemberRef};
use crate::transactions::{Outcome, ProducerIdentity, TransactionError, TransactionProtocol};
use crate::{OffsetCommit, StreamsError, TopicName};

/// Gives a producer its id and epoch; one with a transactional id gets the next epoch of it.
pub(super) fn init_producer_id(call: Call) -> Result<Reply, Ending> {
    let request: InitProducerIdRequest = call.decode("InitProducerId")?;
    let may = match &request.transactional_id {
        Some(id) => call.may_transact(Operation::Write, id),
        None => {
            call.may_cluster(Operation::IdempotentWrite) || call.may_some_topic(Operation::Write)
        }
    };
    if !may {
        let code = match &request.transactional_id {
            Some(_) => ResponseError::TransactionalIdAuthorizationFailed,
            None => ResponseError::ClusterAuthorizationFailed,
        };
        let body = InitProducerIdResponse::default()
            .with_error_code(code.code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        return call.now(&body);
    }
    Reply::later(async move {
        let streams = call.context.streams();
        let producer = match &request.transactional_id {
            // A producer that asks again after an error gets a fresh id, whatever it had.
            None => streams
                .next_producer_id()
                .await
                .map(|id| ProducerIdentity { id, epoch: 0 }),
            Some(id) => {
                let timeout = u64::try_from(request.transaction_timeout_ms).unwrap_or(0);
                let given = (request.producer_id.0 >= 0).then_some(ProducerIdentity {
                    id: request.producer_id.0,
                    epoch: request.producer_epoch,
                });
                streams
                    .init_transactions(id, Duration::from_millis(timeout), given)
                    .await
            }
        };
        let code = producer.as_ref().err().map_or(0, |error| {
            // A producer without transactions has no coordinator to look for.
            let code_of = match request.transactional_id {
                Some(_) => coordinator_error_code,
                None => loading_code,
            };
            fenced_code(error, call.version >= FENCED_FROM_INIT, code_of)
        });
        let producer = producer.unwrap_or(NOBODY);
        let body = InitProducerIdResponse::default()
            .with_error_code(code)
            .with_producer_epoch(producer.epoch)
            .with_producer_id(ProducerId(producer.id));
        call.answer(&body)
    })
}

/// Adds partitions to transactions: one transaction of a producer, or since version 4 several, as
/// Kafka's nodes ask each other.
pub(super) fn add_partitions_to_txn(call: Call) -> Result<Reply, Ending> {
    let request: AddPartitionsToTxnRequest = call.decode("AddPartitionsToTxn")?;
    Reply::later(async move {
        if call.version < MANY_FROM {
            let id = request.v3_and_below_transactional_id;
            let who = ProducerIdentity {
                id: request.v3_and_below_producer_id.0,
                epoch: request.v3_and_below_producer_epoch,
            };
            let topics = request.v3_and_below_topics;
            let results = add_partitions(&call, &id, who, topics).await;
            let body =
                AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results);
            return call.answer(&body);
        }
        if !call.may_of_all(Operation::ClusterAction) {
            let code = ResponseError::ClusterAuthorizationFailed.code();
            return call.answer(&AddPartitionsToTxnResponse::default().with_error_code(code));
        }
        let mut results = Vec::with_capacity(request.transactions.len());
        for asked in request.transactions {
            let who = ProducerIdentity {
                id: asked.producer_id.0,
                epoch: asked.producer_epoch,
            };
            let id = asked.transactional_id;
            let topics = add_partitions(&call, &id, who, asked.topics).await;
            results.push(
                AddPartitionsToTxnResult::default()
                    .with_transactional_id(id)
                    .with_topic_results(topics),
            );
        }
        let body = AddPartitionsToTxnResponse::default().with_results_by_transaction(results);
        call.answer(&body)
    })
}

/// Adds a group to a transaction.
pub(super) fn add_offsets_to_txn(call: Call) -> Result<Reply, Ending> {
    let request: AddOffsetsToTxnRequest = call.decode("AddOffsetsToTxn")?;
    Reply::later(async move {
        if let Some(code) = not_allowed(&call, &request.transactional_id, Some(&request.group_id)) {
            return call.answer(&AddOffsetsToTxnResponse::default().with_error_code(code));
        }
        let who = ProducerIdentity {
            id: request.producer_id.0,
            epoch: request.producer_epoch,
        };
        let joined = call
            .context
            .streams()
            .join_transaction_group(&request.transactional_id, who, &request.group_id)
            .await;
        let code = joined
            .err()
            .map_or(0, |error| transaction_code(&error, call.version));
        call.answer(&AddOffsetsToTxnResponse::default().with_error_code(code))
    })
}

/// Takes offsets that count once the transaction commits.
pub(super) fn txn_offset_commit(call: Call) -> Result<Reply, Ending> {
    let mut request: TxnOffsetCommitRequest = call.decode("TxnOffsetCommit")?;
    Reply::later(async move {
        let refusal = not_allowed(&call, &request.transactional_id, Some(&request.group_id));
        let of_member = || code_of_member(check_member(&call, &request));
        let no_member = refusal.map_or_else(of_member, |_| 0);
        let asked = std::mem::take(&mut request.topics);
        let (topics, commits) = offsets_asked(&call, asked, refusal);
        let protocol = protocol_of(call.version >= IMPLICIT_FROM_OFFSETS);
        let failed = if no_member != 0 || commits.is_empty() {
            no_member
        } else {
            let who = ProducerIdentity {
                id: request.producer_id.0,
                epoch: request.producer_epoch,
            };
            let (id, group) = (&request.transactional_id, &request.group_id);
            let streams = call.context.streams();
            let is_member = || {
                check_member(&call, &request).map_err(|reason| StreamsError::Group {
                    group: group.to_string(),
                    reason,
                })
            };
            let taken = streams.commit_checked(protocol, id, who, group, commits, is_member);
            // Here a fenced producer always hears of its epoch.
            taken
                .await
                .err()
                .map_or(0, |error| fenced_code(&error, false, commit_error_code))
        };
        let topics = topics.into_iter().map(|(name, codes)| {
            let partitions = codes.into_iter().map(|(index, code)| {
                TxnOffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(if code == 0 { failed } else { code })
            });
            TxnOffsetCommitResponseTopic::default()
                .with_name(name)
                .with_partitions(partitions.collect())
        });
        call.answer(&TxnOffsetCommitResponse::default().with_topics(topics.collect()))
    })
}

/// Commits or aborts.
pub(super) fn end_txn(call: Call) -> Result<Reply, Ending> {
    let request: EndTxnRequest = call.decode("EndTxn")?;
    Reply::later(async move {
        if let Some(code) = not_allowed(&call, &request.transactional_id, None) {
            let body = EndTxnResponse::default().with_error_code(code);
            return call.answer(&body);
        }
        let who = ProducerIdentity {
            id: request.producer_id.0,
            epoch: request.producer_epoch,
        };
        let outcome = if request.committed {
            Outcome::Commit
        } else {
            Outcome::Abort
        };
        let protocol = protocol_of(call.version >= IMPLICIT_FROM_END);
        let streams = call.context.streams();
        let ended = streams.end_transaction(protocol, &request.transactional_id, who, outcome);
        let ended = ended.await;
        let code = ended
            .as_ref()
            .err()
            .map_or(0, |error| transaction_code(error, call.version));
        let body = EndTxnResponse::default().with_error_code(code);
        if call.version < IMPLICIT_FROM_END {
            return call.answer(&body);
        }
        let producer = ended.unwrap_or(NOBODY);
        let body = body
            .with_producer_id(ProducerId(producer.id))
            .with_producer_epoch(producer.epoch);
        call.answer(&body)
    })
}

/// The code of an error of a transaction. Who was fenced off hears so in newer versions and of an
/// invalid epoch in older ones, which do not know better.
pub(super) fn fenced_code(
    error: &StreamsError,
    knows_fencing: bool,
    code_of: impl FnOnce(&StreamsError) -> i16,
) -> i16 {
    match error {
        StreamsError::Transaction {
            reason: TransactionError::Fenced,
            ..
        } if !knows_fencing => ResponseError::InvalidProducerEpoch.code(),
        error => code_of(error),
    }
}

/// The code of an error of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn.
fn transaction_code(error: &StreamsError, version: i16) -> i16 {
    fenced_code(error, version >= FENCED_FROM, coordinator_error_code)
}

/// The code of an error for a producer that only wants an id: it asks again after what passes.
fn loading_code(error: &StreamsError) -> i16 {
    let code = coordinator_error_code(error);
    match ResponseError::try_from_code(code) {
        Some(ResponseError::NotCoordinator | ResponseError::CoordinatorNotAvailable) => {
            ResponseError::CoordinatorLoadInProgress.code()
        }
        _ => code,
    }
}

/// The code that refuses a caller who may not write under the transactional id, or not read the
/// group.
fn not_allowed(call: &Call, id: &str, group: Option<&str>) -> Option<i16> {
    if !call.may_transact(Operation::Write, id) {
        return Some(ResponseError::TransactionalIdAuthorizationFailed.code());
    }
    if group.is_some_and(|group| !call.may_group(Operation::Read, group)) {
        return Some(ResponseError::GroupAuthorizationFailed.code());
    }
    None
}

/// The transaction protocol of a request.
pub(super) fn protocol_of(is_implicit: bool) -> TransactionProtocol {
    if is_implicit {
        TransactionProtocol::Implicit
    } else {
        TransactionProtocol::Explicit
    }
}

/// All partitions are added or none; who is not at fault for that is told that nobody tried.
async fn add_partitions(
    call: &Call,
    id: &str,
    who: ProducerIdentity,
    topics: Vec<AddPartitionsToTxnTopic>,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut partitions: Vec<(TopicName, i32)> = Vec::new();
    let mut codes = Vec::with_capacity(topics.len());
    // The newer layout is for nodes, who have shown that they are such.
    let is_client = call.version < MANY_FROM;
    let refusal = not_allowed(call, id, None).filter(|_| is_client);
    let mut is_refused = false;
    for asked in topics {
        let topic = match is_client {
            true => metadata::find(call, Operation::Write, &asked.name),
            false => metadata::existing(call, &asked.name),
        };
        let mut of_topic = Vec::with_capacity(asked.partitions.len());
        for index in asked.partitions {
            let code = match &topic {
                _ if refusal.is_some() => refusal.unwrap_or_default(),
                Err(code) => *code,
                Ok(topic) if topic.partition(index).is_none() => {
                    ResponseError::UnknownTopicOrPartition.code()
                }
                Ok(topic) => {
                    partitions.push((topic.name().clone(), index));
                    0
                }
            };
            is_refused |= code != 0;
            of_topic.push((index, code));
        }
        codes.push((asked.name, of_topic));
    }
    let rest = if is_refused {
        ResponseError::OperationNotAttempted.code()
    } else {
        let streams = call.context.streams();
        let joined = streams.join_transaction(id, who, &partitions).await;
        joined
            .err()
            .map_or(0, |error| transaction_code(&error, call.version))
    };
    let topics = codes.into_iter().map(|(name, codes)| {
        let partitions = codes.into_iter().map(|(index, code)| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(index)
                .with_partition_error_code(if code == 0 { rest } else { code })
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(name)
            .with_results_by_partition(partitions.collect())
    });
    topics.collect()
}

/// Refuses who is no member any more. A producer that names no member is believed; one that does may
/// commit while its group is sharing anew, as the new assignment waits for it.
fn check_member(call: &Call, request: &TxnOffsetCommitRequest) -> Result<(), GroupError> {
    let names_member = request.generation_id >= 0
        || !request.member_id.is_empty()
        || request.group_instance_id.is_some();
    if !names_member {
        return Ok(());
    }
    let checked = call.context.streams().groups().check_commit(MemberRef {
        group: &request.group_id,
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id,
    });
    match checked {
        Err(error) => allowed_within_transaction(error),
        Ok(()) => Ok(()),
    }
}

/// What becomes of a refusal of a commit within a transaction. Producers know no epochs of members
/// and give up at what they do not know; at a generation that has passed they abort and go on.
fn allowed_within_transaction(error: GroupError) -> Result<(), GroupError> {
    match error {
        GroupError::RebalanceInProgress => Ok(()),
        GroupError::StaleMemberEpoch => Err(GroupError::IllegalGeneration),
        error => Err(error),
    }
}

fn code_of_member(checked: Result<(), GroupError>) -> i16 {
    checked.err().map_or(0, |error| group_error_code(&error))
}

type Codes = Vec<(WireName, Vec<(i32, i16)>)>;

/// The offsets that can be taken, and a code for each that was asked.
fn offsets_asked(
    call: &Call,
    topics: Vec<TxnOffsetCommitRequestTopic>,
    refusal: Option<i16>,
) -> (Codes, Vec<OffsetCommit>) {
    let now = call.context.streams().clock().now();
    let (mut codes, mut commits) = (Vec::with_capacity(topics.len()), Vec::new());
    for asked in topics {
        let topic = match refusal {
            None => metadata::find(call, Operation::Read, &asked.name),
            Some(refusal) => Err(refusal),
        };
        let offsets = asked.partitions.into_iter().map(AskedOffset::from);
        let of_topic = take_offsets(topic.as_deref(), now, offsets, &mut commits);
        codes.push((asked.name, of_topic));
    }
    (codes, commits)
}

/// Stands for no producer.
const NOBODY: ProducerIdentity = ProducerIdentity { id: -1, epoch: -1 };

/// The first version of InitProducerId that knows that a producer can be fenced off.
const FENCED_FROM_INIT: i16 = 4;
/// The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that knows it.
const FENCED_FROM: i16 = 2;
/// The first version of AddPartitionsToTxn that names several transactions.
const MANY_FROM: i16 = 4;
/// The first version of TxnOffsetCommit that adds the group by itself.
const IMPLICIT_FROM_OFFSETS: i16 = 5;
/// The first version of EndTxn that gives the producer a new epoch.
const IMPLICIT_FROM_END: i16 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_without_transactions_is_sent_to_no_coordinator() {
        for error in [StreamsError::Full, StreamsError::Busy, StreamsError::Closed] {
            assert_eq!(loading_code(&error), 14, "{error}");
        }
        let lasting = StreamsError::Limit {
            what: "ids",
            max: 1,
        };
        assert_eq!(loading_code(&lasting), 44);
    }

    #[test]
    fn a_producer_hears_of_a_generation_that_has_passed_whichever_protocol_its_group_speaks() {
        let code_of = |error| code_of_member(allowed_within_transaction(error));
        assert_eq!(code_of(GroupError::StaleMemberEpoch), 22);
        assert_eq!(code_of(GroupError::IllegalGeneration), 22);
        assert_eq!(code_of(GroupError::RebalanceInProgress), 0);
        assert_eq!(code_of(GroupError::UnknownMember), 25);
        assert_eq!(code_of(GroupError::FencedInstance), 82);
    }
}
