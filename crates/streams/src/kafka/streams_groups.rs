//! The members of Kafka Streams applications (KIP-1071): their heartbeats, and who they are.
//!
//! Internal topics that are missing are made by the heartbeat that tells of them, with the rights of
//! its caller, before it is answered.

use std::collections::BTreeSet;

use access::{Operation, ResourceType};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::TopicName as WireName;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use tokio::task::consume_budget;

use super::consumer_groups::READS_UNKNOWN;
use super::error::group_error_code;
use super::group_admin::NOT_ALLOWED;
use super::reply::{Answer, Call, Ending, Reply, once, owned};
use super::streams_wire::{self, Described, Unserved};
use super::topics;
use crate::groups::{
    GroupError, GroupKind, GroupState, InternalTopic, NoticeKind, StreamsAnswer, StreamsBeat,
    Subtopology, Topology,
};

/// Takes a member's heartbeat, by which it joins, lives and leaves.
pub(super) fn heartbeat(call: Call) -> Result<Reply, Ending> {
    let beat = match streams_wire::heartbeat(&call)? {
        Ok(beat) => beat,
        Err(unserved) => {
            let code = ResponseError::InvalidRequest.code();
            let answer = streams_wire::refused(&call, code, unserved.reason());
            return Ok(Reply::Now(answer));
        }
    };
    if let Some((code, reason)) = refusal(&call, &beat) {
        return Ok(Reply::Now(streams_wire::refused(&call, code, reason)));
    }
    let taken = take(&call, beat.clone());
    match taken {
        Ok(answer) if !answer.missing.is_empty() => Reply::later(async move {
            let refused = create(&call, &answer.missing).await;
            let mut taken = take(&call, beat.clone());
            if let (Ok(answer), false) = (&mut taken, refused.is_empty()) {
                let missing = NoticeKind::MissingInternalTopics;
                let mut notices = answer.notices.iter_mut();
                if let Some(notice) = notices.find(|notice| notice.kind == missing) {
                    notice.detail = format!("{} {}", notice.detail, refused.join(" "));
                }
            }
            Ok(answered(&call, &beat.member_id, taken))
        }),
        taken => Ok(Reply::Now(answered(&call, &beat.member_id, taken))),
    }
}

/// Describes applications' groups.
pub(super) fn describe(call: Call) -> Result<Reply, Ending> {
    let (groups, with_operations) = streams_wire::describe(&call)?;
    let groups = once(groups, Clone::clone).into_iter().map(|group| {
        let nothing = Described {
            code: NOT_ALLOWED,
            reason: None,
            state: "",
            epoch: 0,
            assignment_epoch: 0,
            topology: None,
            members: Vec::new(),
            operations: i32::MIN,
            group,
        };
        if !call.may_group(Operation::Describe, &nothing.group) {
            return nothing;
        }
        let operations = call.allowed(ResourceType::Group, &nothing.group);
        let told = described(&call, nothing);
        match with_operations && told.code == 0 {
            true => Described { operations, ..told },
            false => told,
        }
    });
    let groups: Vec<Described> = groups.collect();
    Ok(Reply::Now(streams_wire::described(&call, &groups)))
}

impl Unserved {
    fn reason(self) -> &'static str {
        match self {
            Unserved::StaticMember => "Static membership is not yet supported.",
            Unserved::Regex => "Regular expressions for source topics are not supported yet.",
            Unserved::Copartitioned => {
                "A set of topics names one that the subtopology does not read."
            }
        }
    }
}

fn take(call: &Call, beat: StreamsBeat) -> Result<StreamsAnswer, GroupError> {
    let streams = call.context.streams();
    streams.groups().streams_heartbeat(beat, streams.as_ref())
}

fn answered(call: &Call, member: &str, taken: Result<StreamsAnswer, GroupError>) -> Answer {
    match taken {
        Ok(answer) => streams_wire::answer(call, member, &answer),
        Err(error) => streams_wire::refused(call, group_error_code(&error), &base::report(&error)),
    }
}

/// Code and reason for a caller who may not be a member of the group, or not know a topic that it
/// names.
fn refusal(call: &Call, beat: &StreamsBeat) -> Option<(i16, &'static str)> {
    if !call.may_group(Operation::Read, &beat.group) {
        return Some((NOT_ALLOWED, "not allowed"));
    }
    let topics = beat.topology.iter().flat_map(|topology| topology.topics());
    let mut topics = topics.map(|name| WireName(owned(name)));
    let may = topics.all(|name| call.may_topic_named(Operation::Describe, &name));
    let code = ResponseError::TopicAuthorizationFailed.code();
    (!may).then_some((code, "not allowed to describe one of the topics"))
}

/// Makes internal topics; answers why some were not, one sentence each.
async fn create(call: &Call, missing: &[InternalTopic]) -> Vec<String> {
    let mut refused = Vec::new();
    let mut begun = Vec::with_capacity(missing.len());
    for topic in missing {
        let name = WireName(owned(topic.name.as_str()));
        if !call.may_create_named(&name) {
            call.context.note_foreign_topic(Operation::Create, &name);
            refused.push(format!("{} may not be created by the member.", topic.name));
            continue;
        }
        let configs = topic.configs.iter().map(|(name, value)| {
            CreatableTopicConfig::default()
                .with_name(owned(name.as_str()))
                .with_value(Some(owned(value.as_str())))
        });
        let asked = CreatableTopic::default()
            .with_name(name)
            .with_num_partitions(topic.partitions)
            .with_replication_factor(match topic.replication_factor {
                0 => -1,
                factor => factor,
            })
            .with_configs(configs.collect());
        begun.push((topic, topics::create(call, &asked, false).await));
        consume_budget().await;
    }
    // Another member may have been sooner.
    let exists = ResponseError::TopicAlreadyExists.code();
    for (topic, created) in begun {
        match topics::settled(created).await {
            Err(refusal) if refusal.code != exists => {
                refused.push(format!("{}: {}.", topic.name, refusal.reason));
            }
            _ => {}
        }
    }
    refused
}

fn described(call: &Call, nothing: Described) -> Described {
    let streams = call.context.streams();
    let group = nothing.group.as_str();
    let standing = streams.group_standing(group);
    let standing = standing.filter(|standing| standing.kind == GroupKind::Streams);
    let told = match (streams.groups().describe_streams(group), standing) {
        (Some(live), _) => Described {
            code: 0,
            state: live.state.name(),
            epoch: live.epoch,
            assignment_epoch: live.assignment_epoch,
            topology: live.topology,
            members: live.members,
            ..nothing
        },
        (None, Some(standing)) if streams.groups().describe(group).is_none() => Described {
            code: 0,
            state: GroupState::Empty.name(),
            epoch: standing.epoch,
            assignment_epoch: standing.epoch,
            topology: Some(topology_of_offsets(call, group)),
            ..nothing
        },
        _ => {
            let is_known = streams.knows_group(group) || streams.groups().describe(group).is_some();
            let reason = match is_known {
                true => format!("Group {group} is not a streams group."),
                false => format!("Group {group} not found."),
            };
            return Described {
                code: ResponseError::GroupIdNotFound.code(),
                reason: Some(reason),
                state: GroupState::Dead.name(),
                ..nothing
            };
        }
    };
    let may_know = |name: &str| call.may_topic_named(Operation::Describe, &WireName(owned(name)));
    let mut topologies = told.topology.iter();
    if topologies.all(|topology| topology.topics().all(may_know)) {
        return told;
    }
    Described {
        code: ResponseError::TopicAuthorizationFailed.code(),
        reason: Some(READS_UNKNOWN.to_owned()),
        topology: None,
        members: Vec::new(),
        ..told
    }
}

/// What is left of the topology when no member is there to tell it: that the topics were read whose
/// offsets were committed. Kafka's tools look for a group's offsets by its topology.
fn topology_of_offsets(call: &Call, group: &str) -> Topology {
    let committed = call.context.streams().committed_all(group);
    let names = committed.iter().map(|of| of.topic.wire_name().to_owned());
    let names: BTreeSet<String> = names.collect();
    if names.is_empty() {
        return Topology::default();
    }
    // As Kafka Streams names them.
    let prefix = format!("{group}-");
    let is_internal =
        |name: &String| name.starts_with(&prefix) && name.ends_with(REPARTITION_SUFFIX);
    let (internal, sources): (Vec<String>, Vec<String>) = names.into_iter().partition(is_internal);
    let internal = internal.into_iter().map(|name| InternalTopic {
        name,
        ..InternalTopic::default()
    });
    Topology {
        epoch: 0,
        subtopologies: vec![Subtopology {
            id: "0".into(),
            sources,
            repartition_sources: internal.collect(),
            ..Subtopology::default()
        }],
    }
}

/// What the names of topics end with that an application makes to part records anew.
const REPARTITION_SUFFIX: &str = "-repartition";
