//! The one conversion from the store's and the coordinator's errors to Kafka's codes.

use access::ResourceType;
use kafka_protocol::ResponseError as Code;

use crate::StreamsError;
use crate::groups::GroupError;
use crate::transactions::TransactionError;

/// The error code of Kafka's protocol for an error of the store.
///
/// Source: Kafka protocol guide, error codes. What a client may retry gets a retriable code.
pub fn streams_error_code(error: &StreamsError) -> i16 {
    let code = match error {
        StreamsError::UnknownTopic(_)
        | StreamsError::UnknownPartition { .. }
        | StreamsError::AutoCreateOff(_) => Code::UnknownTopicOrPartition,
        StreamsError::UnknownTopicId(_) => Code::UnknownTopicId,
        StreamsError::TopicExists(_) => Code::TopicAlreadyExists,
        StreamsError::InvalidTopic(_) | StreamsError::InternalTopic(_) => {
            Code::InvalidTopicException
        }
        StreamsError::InvalidPartitions { .. } | StreamsError::PartitionsOnlyGrow { .. } => {
            Code::InvalidPartitions
        }
        StreamsError::InvalidConfig(_) => Code::InvalidConfig,
        StreamsError::UnknownBroker(_) | StreamsError::ReadOnlySetting(_) => Code::InvalidRequest,
        StreamsError::Access(_) => Code::UnknownServerError,
        StreamsError::Unsupported(_) => Code::UnsupportedVersion,
        StreamsError::NotDeletable(_) => Code::PolicyViolation,
        StreamsError::OffsetOutOfRange { .. } => Code::OffsetOutOfRange,
        StreamsError::CorruptMessage(_) => Code::CorruptMessage,
        StreamsError::InvalidRecord(_) => Code::InvalidRecord,
        StreamsError::InvalidTimestamp(_) => Code::InvalidTimestamp,
        StreamsError::UnsupportedFormat(_) => Code::UnsupportedForMessageFormat,
        StreamsError::MessageTooLarge { .. } => Code::MessageTooLarge,
        StreamsError::OutOfOrderSequence { .. } => Code::OutOfOrderSequenceNumber,
        StreamsError::InvalidProducerEpoch { .. } => Code::InvalidProducerEpoch,
        StreamsError::UnknownProducerId(_) => Code::UnknownProducerId,
        StreamsError::Limit { .. } => Code::PolicyViolation,
        StreamsError::Busy | StreamsError::Switching(_) => Code::RequestTimedOut,
        StreamsError::Full | StreamsError::Storage(_) | StreamsError::Unreadable(_) => {
            Code::KafkaStorageError
        }
        StreamsError::NotAllowed { kind, .. } => match kind {
            ResourceType::Topic => Code::TopicAuthorizationFailed,
            ResourceType::Group => Code::GroupAuthorizationFailed,
            ResourceType::TransactionalId => Code::TransactionalIdAuthorizationFailed,
            _ => Code::ClusterAuthorizationFailed,
        },
        StreamsError::ForeignTenant { .. } => Code::TopicAuthorizationFailed,
        StreamsError::Throttled { .. } => Code::ThrottlingQuotaExceeded,
        StreamsError::TenantFull(_) | StreamsError::KeepsLess { .. } => Code::PolicyViolation,
        StreamsError::Unavailable(_) => Code::BrokerNotAvailable,
        StreamsError::Denied(_) => Code::ClusterAuthorizationFailed,
        // Another process will lead what this one gives up; clients look again.
        StreamsError::Closed => Code::NotLeaderOrFollower,
        StreamsError::Group { reason, .. } => return group_error_code(reason),
        StreamsError::Transaction { reason, .. } => return transaction_error_code(reason),
        _ => Code::UnknownServerError,
    };
    code.code()
}

/// The error code of Kafka's protocol for a refusal of the coordinator.
pub fn group_error_code(error: &GroupError) -> i16 {
    let code = match error {
        GroupError::InvalidGroupId => Code::InvalidGroupId,
        GroupError::InvalidSessionTimeout => Code::InvalidSessionTimeout,
        GroupError::MemberIdRequired { .. } => Code::MemberIdRequired,
        GroupError::UnknownMember => Code::UnknownMemberId,
        GroupError::IllegalGeneration => Code::IllegalGeneration,
        GroupError::RebalanceInProgress => Code::RebalanceInProgress,
        GroupError::InconsistentProtocol => Code::InconsistentGroupProtocol,
        GroupError::FencedInstance => Code::FencedInstanceId,
        GroupError::GroupFull => Code::GroupMaxSizeReached,
        GroupError::TooManyGroups | GroupError::Stopped => Code::CoordinatorNotAvailable,
        GroupError::TooLarge => Code::InvalidCommitOffsetSize,
        GroupError::InvalidRequest => Code::InvalidRequest,
        GroupError::NotFound => Code::GroupIdNotFound,
        GroupError::FencedMemberEpoch => Code::FencedMemberEpoch,
        GroupError::StaleMemberEpoch => Code::StaleMemberEpoch,
        GroupError::UnreleasedInstance => Code::UnreleasedInstanceId,
        GroupError::UnsupportedAssignor => Code::UnsupportedAssignor,
        GroupError::InvalidRegex(_) => Code::InvalidRegularExpression,
        GroupError::InvalidTopology(_) => Code::StreamsInvalidTopology,
        GroupError::NotEmpty => Code::NonEmptyGroup,
    };
    code.code()
}

/// The error code of Kafka's protocol for a refusal of the transactions' coordinator.
pub fn transaction_error_code(error: &TransactionError) -> i16 {
    let code = match error {
        TransactionError::InvalidId => Code::InvalidRequest,
        TransactionError::InvalidTimeout { .. } => Code::InvalidTransactionTimeout,
        TransactionError::UnknownId | TransactionError::OtherProducer => {
            Code::InvalidProducerIdMapping
        }
        TransactionError::Fenced => Code::ProducerFenced,
        TransactionError::NoRoom => Code::CoordinatorNotAvailable,
        TransactionError::Concurrent => Code::ConcurrentTransactions,
        TransactionError::InvalidState(_) | TransactionError::NotJoined => Code::InvalidTxnState,
    };
    code.code()
}

/// As [`streams_error_code`], as the coordinator of groups and transactions tells it: its clients
/// know no errors of partitions. Where the disk or the store fails them, they look for the
/// coordinator again and retry.
pub(super) fn coordinator_error_code(error: &StreamsError) -> i16 {
    match error {
        StreamsError::Full
        | StreamsError::Storage(_)
        | StreamsError::Unreadable(_)
        | StreamsError::Closed => Code::NotCoordinator.code(),
        StreamsError::Busy | StreamsError::Switching(_) => Code::CoordinatorNotAvailable.code(),
        error => streams_error_code(error),
    }
}

/// As [`coordinator_error_code`], for offsets that are to be committed.
pub(super) fn commit_error_code(error: &StreamsError) -> i16 {
    match error {
        StreamsError::Limit { .. } => Code::InvalidCommitOffsetSize.code(),
        error => coordinator_error_code(error),
    }
}

/// The code of the coordinator's result: zero when it is fine.
pub(super) fn coordinator_code_of<T>(result: &Result<T, StreamsError>) -> i16 {
    result.as_ref().err().map_or(0, coordinator_error_code)
}

/// The code of a result: zero when it is fine.
pub(super) fn code_of<T>(result: &Result<T, StreamsError>) -> i16 {
    result.as_ref().err().map_or(0, streams_error_code)
}

/// The code of the coordinator's result: zero when it is fine.
pub(super) fn group_code_of<T>(result: &Result<T, GroupError>) -> i16 {
    result.as_ref().err().map_or(0, group_error_code)
}
