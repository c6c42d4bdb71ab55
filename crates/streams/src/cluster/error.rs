//! librdkafka's errors in the event store's words.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::error::StreamsError;
use crate::groups::GroupError;
use crate::topic::TopicName;

/// What a call was about, so that its error can name it.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    Cluster,
    Topic(&'a TopicName),
    Partition(&'a TopicName, i32),
    Group(&'a str),
}

/// The error of a call; `trouble` is what the clients last complained of.
pub(super) fn of_call(error: &KafkaError, about: About<'_>, trouble: Option<&str>) -> StreamsError {
    match code_of(error) {
        Some(code) => of_code(code, about, trouble),
        None => StreamsError::Refused(error.to_string()),
    }
}

/// The error that a code means.
pub(super) fn of_code(code: Code, about: About<'_>, trouble: Option<&str>) -> StreamsError {
    if let About::Topic(topic) | About::Partition(topic, _) = about {
        match code {
            Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownTopicId => {
                return StreamsError::UnknownTopic(topic.clone());
            }
            Code::TopicAlreadyExists => return StreamsError::TopicExists(topic.clone()),
            _ => {}
        }
    }
    if let (About::Partition(topic, _), Code::PolicyViolation) = (about, code) {
        return StreamsError::NotDeletable(topic.clone());
    }
    if let (About::Partition(topic, partition), Code::UnknownPartition) = (about, code) {
        let topic = topic.clone();
        return StreamsError::UnknownPartition { topic, partition };
    }
    if let (About::Group(group), Some(reason)) = (about, group_error(code)) {
        let group = group.to_owned();
        return StreamsError::Group { group, reason };
    }
    let text = code.to_string();
    match code {
        Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => StreamsError::Denied(text),
        Code::InvalidTimestamp => StreamsError::InvalidTimestamp(text),
        code if is_away(code) => StreamsError::Unavailable(match trouble {
            Some(trouble) => trouble.to_owned(),
            None => text,
        }),
        _ => StreamsError::Refused(text),
    }
}

/// The code within an error, when it has one.
pub(super) fn code_of(error: &KafkaError) -> Option<Code> {
    match error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    }
}

/// Whether an error says that there is no such topic or partition.
pub(super) fn is_no_topic(error: &KafkaError) -> bool {
    matches!(
        code_of(error),
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition)
    )
}

/// Whether a partition's leader is being found, which takes a moment.
pub(super) fn is_moving(error: &KafkaError) -> bool {
    matches!(
        code_of(error),
        Some(Code::NotLeaderForPartition | Code::LeaderNotAvailable)
    )
}

/// Whether the cluster, or the part of it that is needed, cannot be had at the moment.
pub(super) fn is_away(code: Code) -> bool {
    matches!(
        code,
        Code::AllBrokersDown
            | Code::BrokerTransportFailure
            | Code::BrokerNotAvailable
            | Code::BrokerDestroy
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::MessageTimedOut
            | Code::RequestTimedOut
            | Code::TimedOutQueue
            | Code::NetworkException
            | Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::SSL
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::NotEnoughReplicas
            | Code::NotEnoughReplicasAfterAppend
            | Code::CoordinatorNotAvailable
            | Code::CoordinatorLoadInProgress
            | Code::NotCoordinator
            | Code::WaitingForCoordinator
            | Code::NotController
            | Code::PurgeQueue
            | Code::PurgeInflight
    )
}

fn group_error(code: Code) -> Option<GroupError> {
    Some(match code {
        Code::InvalidGroupId => GroupError::InvalidGroupId,
        Code::InvalidSessionTimeout => GroupError::InvalidSessionTimeout,
        Code::UnknownMemberId => GroupError::UnknownMember,
        Code::IllegalGeneration => GroupError::IllegalGeneration,
        Code::RebalanceInProgress => GroupError::RebalanceInProgress,
        Code::InconsistentGroupProtocol => GroupError::InconsistentProtocol,
        Code::FencedInstanceId => GroupError::FencedInstance,
        Code::GroupMaxSizeReached => GroupError::GroupFull,
        Code::InvalidCommitOffsetSize | Code::OffsetMetadataTooLarge => GroupError::TooLarge,
        Code::StaleMemberEpoch => GroupError::StaleMemberEpoch,
        Code::FencedMemberEpoch => GroupError::FencedMemberEpoch,
        Code::NonEmptyGroup => GroupError::NotEmpty,
        Code::GroupIdNotFound => GroupError::NotFound,
        _ => return None,
    })
}
