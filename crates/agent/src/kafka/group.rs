//! A membership of a consumer group: joining, sharing out, offsets, leaving.
//!
//! Heartbeats go out on a thread and a link of their own ([`super::heart`]), so that a processor
//! that is held back stays a member.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestTopic;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, OffsetCommitRequest,
    OffsetFetchRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::assign::{self, Assignment, Member, Strategy};
use super::cluster::{Cluster, topic_name};
use super::heart::Heart;
use super::link::KafkaError;

/// What a group is joined with.
#[derive(Clone, Debug)]
pub(crate) struct GroupSettings {
    pub(crate) id: String,
    pub(crate) session_timeout: Duration,
}

/// A membership, or the wish for one.
#[derive(Debug)]
pub(crate) struct Group {
    settings: GroupSettings,
    coordinator: Option<String>,
    member: String,
    generation: i32,
    heart: Option<Heart>,
}

/// Offsets by topic and partition.
pub(crate) type Offsets = BTreeMap<(String, i32), i64>;

/// What became of a commit of offsets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    Done,
    /// The membership is over; partitions are shared out anew.
    Outdated,
}

impl Group {
    /// No membership yet.
    pub(crate) fn new(settings: GroupSettings) -> Self {
        Group {
            settings,
            coordinator: None,
            member: String::new(),
            generation: -1,
            heart: None,
        }
    }

    /// Whether it is a member that nobody has asked to join again.
    pub(crate) fn is_joined(&self) -> bool {
        self.heart.as_ref().is_some_and(Heart::beats)
    }

    /// Gives the membership up, so that the next look joins again.
    pub(crate) fn rejoin(&mut self) {
        self.heart = None;
    }

    /// Joins as a reader of `topics`, and gets its share of their partitions.
    pub(crate) fn join(
        &mut self,
        cluster: &mut Cluster,
        topics: &[String],
        stops: &dyn Fn() -> bool,
    ) -> Result<Assignment, KafkaError> {
        self.heart = None;
        for _ in 0..JOIN_TRIES {
            let address = self.coordinator(cluster, stops)?;
            let Some(joined) = self.ask_to_join(cluster, &address, topics, stops)? else {
                continue;
            };
            let shares = if joined.leader == joined.member_id {
                self.share_out(cluster, &joined, stops)?
            } else {
                BTreeMap::new()
            };
            if let Some(share) = self.sync(cluster, &address, &shares, stops)? {
                let heart = Heart::start(
                    cluster.linker(&address),
                    self.settings.clone(),
                    &self.member,
                    self.generation,
                );
                self.heart = Some(heart.map_err(|source| KafkaError::Lost { address, source })?);
                return Ok(share);
            }
        }
        Err(KafkaError::Unable {
            address: self.coordinator.clone().unwrap_or_default(),
            reason: format!("does not let the group '{}' settle", self.settings.id),
        })
    }

    /// The group's offsets of `share`; -1 where there is none.
    pub(crate) fn offsets(
        &mut self,
        cluster: &mut Cluster,
        share: &Assignment,
        stops: &dyn Fn() -> bool,
    ) -> Result<Offsets, KafkaError> {
        let address = self.coordinator(cluster, stops)?;
        let topics = share.iter().map(|(topic, partitions)| {
            OffsetFetchRequestTopic::default()
                .with_name(topic_name(topic))
                .with_partition_indexes(partitions.clone())
        });
        let request = OffsetFetchRequest::default()
            .with_group_id(self.group_id())
            .with_topics(Some(topics.collect()));
        let answer = cluster.at(&address, stops, |link| {
            let wait = ANSWER_WAIT;
            link.call(&request, OFFSET_FETCH_VERSION_MAX, wait, stops)
                .map(|(a, _)| a)
        })?;
        self.check(&address, "gives no offsets", answer.error_code)?;
        let mut offsets = Offsets::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                self.check(&address, "gives no offsets", partition.error_code)?;
                let key = (topic.name.to_string(), partition.partition_index);
                offsets.insert(key, partition.committed_offset);
            }
        }
        Ok(offsets)
    }

    /// Commits offsets for the group.
    pub(crate) fn commit(
        &mut self,
        cluster: &mut Cluster,
        offsets: &Offsets,
        stops: &dyn Fn() -> bool,
    ) -> Result<Committed, KafkaError> {
        let address = self.coordinator(cluster, stops)?;
        let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
        for ((topic, partition), offset) in offsets {
            let partition = OffsetCommitRequestPartition::default()
                .with_partition_index(*partition)
                .with_committed_offset(*offset)
                .with_committed_leader_epoch(-1)
                .with_committed_metadata(Some(StrBytes::default()));
            match topics.last_mut().filter(|last| last.name.as_str() == topic) {
                Some(last) => last.partitions.push(partition),
                None => topics.push(
                    OffsetCommitRequestTopic::default()
                        .with_name(topic_name(topic))
                        .with_partitions(vec![partition]),
                ),
            }
        }
        let request = OffsetCommitRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id_or_member_epoch(self.generation)
            .with_member_id(StrBytes::from_string(self.member.clone()))
            .with_retention_time_ms(-1)
            .with_topics(topics);
        let answer = cluster.at(&address, stops, |link| {
            let wait = ANSWER_WAIT;
            link.call(&request, OFFSET_COMMIT_VERSION_MAX, wait, stops)
                .map(|(a, _)| a)
        })?;
        for topic in answer.topics {
            for partition in topic.partitions {
                match ResponseError::try_from_code(partition.error_code) {
                    Some(
                        ResponseError::IllegalGeneration
                        | ResponseError::UnknownMemberId
                        | ResponseError::RebalanceInProgress
                        | ResponseError::FencedInstanceId,
                    ) => {
                        self.rejoin();
                        return Ok(Committed::Outdated);
                    }
                    _ => self.check(&address, "takes no offsets", partition.error_code)?,
                }
            }
        }
        Ok(Committed::Done)
    }

    /// Says goodbye, so that the others need not wait for the session's end.
    pub(crate) fn leave(&mut self, cluster: &mut Cluster) {
        self.heart = None;
        let Some(address) = self.coordinator.clone().filter(|_| !self.member.is_empty()) else {
            return;
        };
        let member = StrBytes::from_string(std::mem::take(&mut self.member));
        let left = cluster.at(&address, &|| true, |link| {
            let version = link.version::<LeaveGroupRequest>(LEAVE_VERSION_MAX)?;
            let request = LeaveGroupRequest::default().with_group_id(self.group_id());
            let request = if version < 3 {
                request.with_member_id(member.clone())
            } else {
                let identity = MemberIdentity::default().with_member_id(member.clone());
                request.with_members(vec![identity])
            };
            link.call(&request, version, LEAVE_WAIT, &|| false)
        });
        if let Err(error) = left {
            tracing::debug!(%error, "no goodbye to the group");
        }
    }

    fn ask_to_join(
        &mut self,
        cluster: &mut Cluster,
        address: &str,
        topics: &[String],
        stops: &dyn Fn() -> bool,
    ) -> Result<Option<JoinGroupResponse>, KafkaError> {
        let metadata = assign::subscription(topics);
        let protocols = Strategy::ALL.map(|strategy| {
            JoinGroupRequestProtocol::default()
                .with_name(StrBytes::from_static_str(strategy.name()))
                .with_metadata(metadata.clone())
        });
        let timeout = millis(self.settings.session_timeout);
        let request = JoinGroupRequest::default()
            .with_group_id(self.group_id())
            .with_session_timeout_ms(timeout)
            .with_rebalance_timeout_ms(timeout)
            .with_member_id(StrBytes::from_string(self.member.clone()))
            .with_protocol_type(StrBytes::from_static_str("consumer"))
            .with_protocols(protocols.to_vec());
        let wait = self.settings.session_timeout + ANSWER_WAIT;
        let answer = cluster.at(address, stops, |link| {
            link.call(&request, JOIN_VERSION_MAX, wait, stops)
                .map(|(a, _)| a)
        })?;
        match ResponseError::try_from_code(answer.error_code) {
            None => {
                self.member = answer.member_id.to_string();
                self.generation = answer.generation_id;
                Ok(Some(answer))
            }
            Some(ResponseError::MemberIdRequired) => {
                self.member = answer.member_id.to_string();
                Ok(None)
            }
            Some(ResponseError::UnknownMemberId | ResponseError::IllegalGeneration) => {
                self.member.clear();
                Ok(None)
            }
            Some(ResponseError::RebalanceInProgress) => Ok(None),
            Some(_) => self
                .check(address, "does not let the agent join", answer.error_code)
                .map(|()| None),
        }
    }

    /// As the leader: what each member gets.
    fn share_out(
        &self,
        cluster: &mut Cluster,
        joined: &JoinGroupResponse,
        stops: &dyn Fn() -> bool,
    ) -> Result<BTreeMap<String, Assignment>, KafkaError> {
        let mut members = Vec::new();
        let mut partitions = BTreeMap::new();
        for member in &joined.members {
            // A member that says nothing of use gets nothing.
            let topics = assign::read_subscription(member.metadata.clone()).unwrap_or_default();
            for topic in &topics {
                if !partitions.contains_key(topic) {
                    // A topic that is not there has no partitions to share out.
                    let count = cluster.partitions(topic, stops).unwrap_or(0);
                    partitions.insert(topic.clone(), count);
                }
            }
            let id = member.member_id.to_string();
            members.push(Member { id, topics });
        }
        let name = joined
            .protocol_name
            .as_ref()
            .map_or("", |name| name.as_str());
        let strategy = Strategy::ALL
            .into_iter()
            .find(|strategy| strategy.name() == name);
        let strategy = strategy.ok_or_else(|| KafkaError::Unable {
            address: self.coordinator.clone().unwrap_or_default(),
            reason: format!("chose '{name}', which the agent does not know"),
        })?;
        Ok(strategy.share(members, &partitions))
    }

    fn sync(
        &mut self,
        cluster: &mut Cluster,
        address: &str,
        shares: &BTreeMap<String, Assignment>,
        stops: &dyn Fn() -> bool,
    ) -> Result<Option<Assignment>, KafkaError> {
        let assignments = shares.iter().map(|(member, share)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(StrBytes::from_string(member.clone()))
                .with_assignment(assign::assignment(share))
        });
        let request = SyncGroupRequest::default()
            .with_group_id(self.group_id())
            .with_generation_id(self.generation)
            .with_member_id(StrBytes::from_string(self.member.clone()))
            .with_assignments(assignments.collect());
        let wait = self.settings.session_timeout + ANSWER_WAIT;
        let answer = cluster.at(address, stops, |link| {
            link.call(&request, SYNC_VERSION_MAX, wait, stops)
                .map(|(a, _)| a)
        })?;
        match ResponseError::try_from_code(answer.error_code) {
            Some(ResponseError::RebalanceInProgress | ResponseError::IllegalGeneration) => Ok(None),
            Some(ResponseError::UnknownMemberId) => {
                self.member.clear();
                Ok(None)
            }
            _ => {
                self.check(address, "gives no partitions", answer.error_code)?;
                let share = assign::read_assignment(answer.assignment);
                share.map(Some).ok_or_else(|| KafkaError::Answer {
                    address: address.to_owned(),
                    reason: "the assignment cannot be read".to_owned(),
                })
            }
        }
    }

    fn coordinator(
        &mut self,
        cluster: &mut Cluster,
        stops: &dyn Fn() -> bool,
    ) -> Result<String, KafkaError> {
        if self.coordinator.is_none() {
            self.coordinator = Some(cluster.coordinator(&self.settings.id, stops)?);
        }
        Ok(self.coordinator.clone().unwrap_or_default())
    }

    /// An error where a code says one; a coordinator that is none is looked for anew.
    fn check(&mut self, address: &str, what: &str, code: i16) -> Result<(), KafkaError> {
        let Some(error) = ResponseError::try_from_code(code) else {
            return Ok(());
        };
        if matches!(
            error,
            ResponseError::NotCoordinator | ResponseError::CoordinatorNotAvailable
        ) {
            self.coordinator = None;
        }
        self.rejoin();
        Err(KafkaError::Unable {
            address: address.to_owned(),
            reason: format!("{what} of the group '{}': {error}", self.settings.id),
        })
    }

    fn group_id(&self) -> GroupId {
        GroupId(StrBytes::from_string(self.settings.id.clone()))
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// Without static members, which come with later versions.
const JOIN_VERSION_MAX: i16 = 5;
const SYNC_VERSION_MAX: i16 = 3;
/// Topics by name, one group in a request.
const OFFSET_FETCH_VERSION_MAX: i16 = 5;
const OFFSET_COMMIT_VERSION_MAX: i16 = 7;
const LEAVE_VERSION_MAX: i16 = 3;

/// How often a group that goes on changing is joined before the processor rests.
const JOIN_TRIES: usize = 10;

/// Longest wait for an answer beyond what the coordinator itself may wait.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Longest wait for the answer to a goodbye.
const LEAVE_WAIT: Duration = Duration::from_secs(1);
