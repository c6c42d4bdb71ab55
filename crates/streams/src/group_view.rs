//! A group as people see it, with who holds what and how far it is; and what people do to it.

use std::collections::BTreeMap;

use base::UnixMillis;

use crate::consumer::assigned;
use crate::error::StreamsError;
use crate::event_store::{CommittedOffset, GroupDetail, GroupInstance};
use crate::groups::{
    CONSUMER_PROTOCOL_TYPE, ConsumerGroupDescription, GroupDescription, GroupError, GroupKind,
    GroupState,
};
use crate::offsets::{GroupOffset, OffsetCommit};
use crate::store::Streams;
use crate::topic::TopicName;

impl Streams {
    /// The group with its members' partitions and its offsets; none when there is no such group,
    /// nor anything set for one.
    pub fn group_detail(&self, group: &str) -> Option<GroupDetail> {
        let live = self.groups().describe(group);
        let state = match live.is_some() || self.knows_group(group) {
            true => GroupState::Empty,
            false if self.group_config(group).is_empty() => return None,
            false => GroupState::Dead,
        };
        let standing = self.group_standing(group);
        let kind = live.as_ref().map(|live| live.kind);
        let kind = kind.or(standing.as_ref().map(|standing| standing.kind));
        // Who only has offsets may be joined by either kind, and is told as the older one.
        let kind = kind.or((state == GroupState::Empty).then_some(GroupKind::Classic));
        let mut detail = GroupDetail {
            group: group.to_owned(),
            // Kafka's word for a group that never was.
            kind: kind.map_or("Unknown", GroupKind::name).to_owned(),
            state: state.name().to_owned(),
            protocol_type: standing.map_or_else(String::new, |standing| standing.protocol_type),
            assignor: String::new(),
            members: Vec::new(),
            committed: match kind {
                Some(GroupKind::Share) => self.share_starts(group),
                _ => self.committed_all(group),
            },
        };
        if let Some(live) = live {
            detail.state = live.state.name().to_owned();
            detail.protocol_type.clone_from(&live.protocol_type);
            detail.assignor.clone_from(&live.protocol);
            detail.members = match live.kind {
                GroupKind::Classic => classic_members(live),
                GroupKind::Consumer => self.members_of(self.groups().describe_consumer(group)),
                GroupKind::Share => self.members_of(self.groups().describe_share(group)),
                GroupKind::Streams => {
                    self.members_of(self.groups().describe_streams_members(group))
                }
            };
        }
        Some(detail)
    }

    /// Has a group go on from these offsets, durable on return; refused while it has members, who
    /// would not notice and commit theirs over it.
    pub async fn set_group_offsets(
        &self,
        group: &str,
        offsets: Vec<(TopicName, i32, i64)>,
    ) -> Result<(), StreamsError> {
        self.check_without_members(group)?;
        if self.is_share_group(group) {
            return self.set_share_starts(group, offsets).await;
        }
        let at = self.clock().now();
        let commits = offsets
            .into_iter()
            .map(|(topic, partition, offset)| OffsetCommit {
                topic,
                partition,
                offset,
                leader_epoch: -1,
                metadata: String::new(),
                at,
            });
        let commits: Vec<OffsetCommit> = commits.collect();
        loop {
            match self.commit_offsets(group, commits.clone()) {
                Err(StreamsError::Busy) => self.room(crate::store::CHANGE_ROOM_BYTES).await,
                outcome => return outcome?.await,
            }
        }
    }

    async fn set_share_starts(
        &self,
        group: &str,
        offsets: Vec<(TopicName, i32, i64)>,
    ) -> Result<(), StreamsError> {
        for (topic, index, start) in offsets {
            let partition = self.topics().read().partition(&topic, index)?.clone();
            loop {
                match self.set_share_offset(group, &partition, start) {
                    Err(StreamsError::Busy) => self.room(crate::store::CHANGE_ROOM_BYTES).await,
                    outcome => break outcome?.await?,
                }
            }
        }
        Ok(())
    }

    /// Forgets a group without members, durable on return.
    pub async fn forget_group(&self, group: &str) -> Result<(), StreamsError> {
        self.check_without_members(group)?;
        loop {
            match self.delete_group(group) {
                Err(StreamsError::Busy) => self.room(crate::store::CHANGE_ROOM_BYTES).await,
                Ok((false, _)) => return Err(refused(group, GroupError::NotFound)),
                outcome => return outcome?.1.await,
            }
        }
    }

    /// The offset of the first record at or after `at`; none when all are older.
    pub fn offset_at(
        &self,
        topic: &TopicName,
        partition: i32,
        at: UnixMillis,
    ) -> Result<Option<i64>, StreamsError> {
        let found = self.topics().read().partition(topic, partition)?.clone();
        let found = found.offset_for_time(crate::Isolation::Uncommitted, at)?;
        Ok(found.map(|(offset, _)| offset))
    }

    /// Where a share group goes on, as if it had committed that.
    fn share_starts(&self, group: &str) -> Vec<GroupOffset> {
        let starts = self.share_offsets(group).into_iter();
        let starts = starts.map(|of| GroupOffset {
            topic: of.partition.topic().clone(),
            partition: of.partition.index(),
            committed: CommittedOffset {
                offset: of.start,
                leader_epoch: -1,
                metadata: String::new(),
                at: self.clock().now(),
            },
        });
        starts.collect()
    }

    fn check_without_members(&self, group: &str) -> Result<(), StreamsError> {
        let checked = self.groups().check_delete(group);
        checked.map_err(|reason| refused(group, reason))
    }

    fn members_of(&self, described: Option<ConsumerGroupDescription>) -> Vec<GroupInstance> {
        let members = described.into_iter().flat_map(|group| group.members);
        let members = members.map(|member| {
            // A topic that was deleted since has no name.
            let named = member.assigned.iter().filter_map(|(id, partition)| {
                let topic = self.topic_by_id(id)?;
                Some((topic.name().clone(), partition))
            });
            GroupInstance {
                assigned: named.collect(),
                member_id: member.member_id,
                instance_id: member.instance_id,
                client_id: member.client_id,
                host: member.client_host,
                is_classic: member.is_classic,
            }
        });
        members.collect()
    }
}

fn classic_members(live: GroupDescription) -> Vec<GroupInstance> {
    // Members of another kind than consumers share one knows not what.
    let shares_partitions = live.protocol_type == CONSUMER_PROTOCOL_TYPE;
    let members = live.members.into_iter().map(|member| {
        let share: BTreeMap<String, Vec<i32>> = match shares_partitions {
            true => assigned(&member.assignment),
            false => BTreeMap::new(),
        };
        let named = share.into_iter().filter_map(|(topic, partitions)| {
            let topic: TopicName = topic.parse().ok()?;
            Some(partitions.into_iter().map(move |p| (topic.clone(), p)))
        });
        GroupInstance {
            assigned: named.flatten().collect(),
            member_id: member.member_id,
            instance_id: member.instance_id,
            client_id: member.client_id,
            host: member.client_host,
            is_classic: true,
        }
    });
    members.collect()
}

fn refused(group: &str, reason: GroupError) -> StreamsError {
    StreamsError::Group {
        group: group.to_owned(),
        reason,
    }
}
