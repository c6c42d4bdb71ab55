//! What a group shows of itself: to people, and to its members of each other.

use std::collections::{BTreeMap, BTreeSet};

use super::beat::{Endpoint, EndpointShare, TaskOffset, TaskShare};
use super::member::Member;
use super::topology::{GroupNotice, NoticeKind, Subtopology, Topology};
use super::{
    ConsumerGroupDescription, ConsumerMemberDescription, GroupState, Partitions, StreamsGroup,
    Tasks,
};

/// A group for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsGroupDescription {
    /// Where it stands.
    pub state: GroupState,
    /// Counts the changes of members, topology and topics.
    pub epoch: i32,
    /// The epoch that the shares were made for.
    pub assignment_epoch: i32,
    /// What the application is made of.
    pub topology: Option<Topology>,
    /// Its members in the order of their ids.
    pub members: Vec<StreamsMemberDescription>,
}

/// A member for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsMemberDescription {
    /// The member's id.
    pub member_id: String,
    /// The epoch that it was told last.
    pub epoch: i32,
    /// Where it sits.
    pub rack_id: Option<String>,
    /// The client's own name.
    pub client_id: String,
    /// The client's address.
    pub client_host: String,
    /// The epoch of the topology that it came with.
    pub topology_epoch: i32,
    /// The process that it is a thread of.
    pub process_id: String,
    /// Where its process answers questions.
    pub endpoint: Option<Endpoint>,
    /// What it tells of where it runs.
    pub tags: Vec<(String, String)>,
    /// How far it has read the changelogs of tasks.
    pub offsets: Vec<TaskOffset>,
    /// How far it could have.
    pub end_offsets: Vec<TaskOffset>,
    /// What it may do now.
    pub assigned: TaskShare,
    /// What it is to do in the end.
    pub target: TaskShare,
}

impl StreamsGroup {
    /// The group for people to look at.
    pub(in crate::groups) fn describe(&self) -> StreamsGroupDescription {
        let members = self.members.iter();
        let members = members.map(|(id, member)| StreamsMemberDescription {
            member_id: id.clone(),
            epoch: member.epoch,
            rack_id: member.rack_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            topology_epoch: member.topology_epoch,
            process_id: member.process_id.clone(),
            endpoint: member.endpoint.clone(),
            tags: member.tags.clone(),
            offsets: member.offsets.clone(),
            end_offsets: member.end_offsets.clone(),
            assigned: member.assigned.clone(),
            target: self.target.get(id).cloned().unwrap_or_default(),
        });
        StreamsGroupDescription {
            state: self.state(),
            epoch: self.epoch,
            assignment_epoch: self.assignment_epoch,
            topology: self.topology.clone(),
            members: members.collect(),
        }
    }

    /// The same as if its members were consumers: with the partitions that their tasks read.
    pub(in crate::groups) fn describe_as_consumers(&self) -> ConsumerGroupDescription {
        let partitions_of = |tasks: &Tasks| -> Partitions {
            let each = tasks.iter().flat_map(|(of, n)| {
                let work = self.plan.work.get(&of).into_iter();
                let topics = work.flat_map(|work| &work.topics);
                let topics = topics.filter(move |(_, _, count)| n < *count);
                topics.map(move |(_, id, _)| (*id, n))
            });
            each.collect()
        };
        let described = self.describe();
        let topics = described.topology.iter();
        let topics = topics.flat_map(|topology| &topology.subtopologies);
        let topics: BTreeSet<&str> = topics.flat_map(Subtopology::inputs).collect();
        let members = described.members.into_iter();
        let members = members.map(|member| ConsumerMemberDescription {
            member_id: member.member_id,
            instance_id: None,
            rack_id: member.rack_id,
            is_classic: false,
            epoch: member.epoch,
            client_id: member.client_id,
            client_host: member.client_host,
            topics: topics.iter().map(|&name| name.to_owned()).collect(),
            topics_regex: None,
            assigned: partitions_of(&member.assigned.active),
            target: partitions_of(&member.target.active),
        });
        ConsumerGroupDescription {
            state: described.state,
            epoch: described.epoch,
            assignment_epoch: described.assignment_epoch,
            assignor: ASSIGNOR.to_owned(),
            members: members.collect(),
        }
    }

    /// What holds for the group, or for the member in it.
    pub(super) fn notices(&self, member: &Member) -> Vec<GroupNotice> {
        let mut notices = Vec::new();
        let mut note = |kind, detail: String| notices.push(GroupNotice { kind, detail });
        let epoch = self.topology.as_ref().map_or(0, |topology| topology.epoch);
        if member.topology_epoch < epoch {
            let told = member.topology_epoch;
            let detail = format!("The member's topology has epoch {told}, the group's {epoch}.");
            note(NoticeKind::StaleTopology, detail);
        }
        if let Some(problem) = &self.plan.problem {
            note(problem.kind, problem.detail.clone());
        } else if !self.has_shared {
            let detail = "The first tasks are given out a little later, as more members may come.";
            note(NoticeKind::AssignmentDelayed, detail.to_owned());
        }
        if let Some(by) = &self.shut_down_by {
            let detail = format!("Member {by} has asked the whole application to end.");
            note(NoticeKind::ShutdownApplication, detail);
        }
        notices
    }

    /// Who answers for which partitions; what several threads of a process have is told together.
    pub(super) fn endpoints(&self) -> Vec<EndpointShare> {
        let mut by_endpoint: BTreeMap<&Endpoint, EndpointShare> = BTreeMap::new();
        for member in self.members.values() {
            let Some(endpoint) = &member.endpoint else {
                continue;
            };
            let share = by_endpoint
                .entry(endpoint)
                .or_insert_with(|| EndpointShare {
                    endpoint: endpoint.clone(),
                    active: BTreeMap::new(),
                    standby: BTreeMap::new(),
                });
            for (tasks, told) in [
                (&member.assigned.active, &mut share.active),
                (&member.assigned.standby, &mut share.standby),
            ] {
                for (of, n) in tasks.iter() {
                    let work = self.plan.work.get(&of).into_iter();
                    for (topic, _, count) in work.flat_map(|work| &work.topics) {
                        if n < *count {
                            told.entry(topic.clone()).or_default().insert(n);
                        }
                    }
                }
            }
        }
        by_endpoint.into_values().collect()
    }
}

/// What Kafka calls its own way of sharing.
pub(super) const ASSIGNOR: &str = "sticky";
