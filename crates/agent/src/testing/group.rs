//! Consumer groups of the tests' broker: joins meet, the leader shares out, offsets are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest,
    OffsetFetchResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use parking_lot::{Condvar, Mutex};

/// The one group of a broker.
#[derive(Default)]
pub(super) struct Group {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Members and what they subscribe to.
    members: BTreeMap<String, Bytes>,
    /// Members that have asked to join the generation that is being made.
    joining: BTreeSet<String>,
    is_preparing: bool,
    deadline: Option<Instant>,
    generation: i32,
    shares: HashMap<String, Bytes>,
    has_shares: bool,
    names: u32,
    offsets: HashMap<(String, i32), i64>,
    commits: u64,
    refuses_commits: bool,
}

impl Group {
    pub(super) fn offset(&self, topic: &str, partition: i32) -> Option<i64> {
        self.state
            .lock()
            .offsets
            .get(&(topic.to_owned(), partition))
            .copied()
    }

    pub(super) fn set_offset(&self, topic: &str, partition: i32, offset: i64) {
        self.state
            .lock()
            .offsets
            .insert((topic.to_owned(), partition), offset);
    }

    pub(super) fn generation(&self) -> i32 {
        self.state.lock().generation
    }

    pub(super) fn refuse_commits(&self, refuses: bool) {
        self.state.lock().refuses_commits = refuses;
    }

    pub(super) fn join(&self, request: &JoinGroupRequest) -> JoinGroupResponse {
        let mut state = self.state.lock();
        let mut id = request.member_id.to_string();
        if id.is_empty() {
            state.names += 1;
            id = format!("member-{}", state.names);
            let answer = JoinGroupResponse::default().with_member_id(StrBytes::from_string(id));
            return answer.with_error_code(MEMBER_ID_REQUIRED);
        }
        state
            .members
            .insert(id.clone(), request.protocols[0].metadata.clone());
        state.joining.insert(id.clone());
        if !state.is_preparing {
            state.is_preparing = true;
            let meets = if state.members.len() > 1 {
                MEET_OTHERS
            } else {
                MEET
            };
            state.deadline = Some(Instant::now() + meets);
        }
        let wanted = state.generation + 1;
        while state.generation < wanted {
            let deadline = state.deadline.unwrap();
            let are_all = state
                .members
                .keys()
                .all(|member| state.joining.contains(member));
            // A lone member meets nobody, but a crowd may still be on its way.
            if are_all && state.members.len() > 1 || Instant::now() >= deadline {
                let joining = std::mem::take(&mut state.joining);
                state.members.retain(|member, _| joining.contains(member));
                state.generation = wanted;
                state.is_preparing = false;
                state.has_shares = false;
                state.shares.clear();
                self.changed.notify_all();
                break;
            }
            self.changed.notify_all();
            self.changed.wait_until(&mut state, deadline);
        }
        let leader = state.members.keys().next().unwrap().clone();
        let mut members = Vec::new();
        if leader == id {
            for (id, metadata) in &state.members {
                members.push(
                    JoinGroupResponseMember::default()
                        .with_member_id(StrBytes::from_string(id.clone()))
                        .with_metadata(metadata.clone()),
                );
            }
        }
        JoinGroupResponse::default()
            .with_generation_id(state.generation)
            .with_protocol_name(Some(request.protocols[0].name.clone()))
            .with_leader(StrBytes::from_string(leader))
            .with_member_id(StrBytes::from_string(id))
            .with_members(members)
    }

    pub(super) fn sync(&self, request: &SyncGroupRequest) -> SyncGroupResponse {
        let mut state = self.state.lock();
        if let Some(code) = state.refusal(&request.member_id, request.generation_id) {
            return SyncGroupResponse::default().with_error_code(code);
        }
        if !request.assignments.is_empty() {
            for share in &request.assignments {
                state
                    .shares
                    .insert(share.member_id.to_string(), share.assignment.clone());
            }
            state.has_shares = true;
            self.changed.notify_all();
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while !state.has_shares {
            let waited = self.changed.wait_until(&mut state, deadline);
            if waited.timed_out() || state.is_preparing {
                return SyncGroupResponse::default().with_error_code(REBALANCE_IN_PROGRESS);
            }
        }
        let share = state
            .shares
            .get(request.member_id.as_str())
            .cloned()
            .unwrap_or_default();
        SyncGroupResponse::default().with_assignment(share)
    }

    pub(super) fn heartbeat(&self, request: &HeartbeatRequest) -> HeartbeatResponse {
        let state = self.state.lock();
        let code = state.refusal(&request.member_id, request.generation_id);
        HeartbeatResponse::default().with_error_code(code.unwrap_or(0))
    }

    pub(super) fn leave(&self, request: &LeaveGroupRequest) -> LeaveGroupResponse {
        let mut state = self.state.lock();
        let named = request
            .members
            .iter()
            .map(|member| member.member_id.to_string());
        for id in named.chain([request.member_id.to_string()]) {
            state.members.remove(&id);
            state.joining.remove(&id);
        }
        state.is_preparing = !state.members.is_empty();
        state.deadline = Some(Instant::now() + MEET_OTHERS);
        LeaveGroupResponse::default()
    }

    pub(super) fn commit(&self, request: OffsetCommitRequest) -> OffsetCommitResponse {
        let mut state = self.state.lock();
        let generation = request.generation_id_or_member_epoch;
        let mut code = state.refusal(&request.member_id, generation).unwrap_or(0);
        if state.refuses_commits {
            code = COORDINATOR_LOADING;
        }
        let mut topics = Vec::new();
        for topic in request.topics {
            let mut partitions = Vec::new();
            for partition in topic.partitions {
                let key = (topic.name.to_string(), partition.partition_index);
                if code == 0 {
                    state.offsets.insert(key, partition.committed_offset);
                    state.commits += 1;
                }
                partitions.push(
                    OffsetCommitResponsePartition::default()
                        .with_partition_index(partition.partition_index)
                        .with_error_code(code),
                );
            }
            topics.push(
                OffsetCommitResponseTopic::default()
                    .with_name(topic.name)
                    .with_partitions(partitions),
            );
        }
        OffsetCommitResponse::default().with_topics(topics)
    }

    pub(super) fn offsets(&self, request: OffsetFetchRequest) -> OffsetFetchResponse {
        let state = self.state.lock();
        let topics = request.topics.into_iter().flatten().map(|topic| {
            let partitions = topic.partition_indexes.iter().map(|&partition| {
                let key = (topic.name.to_string(), partition);
                OffsetFetchResponsePartition::default()
                    .with_partition_index(partition)
                    .with_committed_offset(state.offsets.get(&key).copied().unwrap_or(-1))
            });
            let partitions = partitions.collect();
            OffsetFetchResponseTopic::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions)
        });
        OffsetFetchResponse::default().with_topics(topics.collect())
    }
}

impl State {
    fn refusal(&self, member: &str, generation: i32) -> Option<i16> {
        if !self.members.contains_key(member) {
            Some(UNKNOWN_MEMBER)
        } else if self.is_preparing {
            Some(REBALANCE_IN_PROGRESS)
        } else if generation != self.generation {
            Some(ILLEGAL_GENERATION)
        } else {
            None
        }
    }
}

const COORDINATOR_LOADING: i16 = 14;
const ILLEGAL_GENERATION: i16 = 22;
const UNKNOWN_MEMBER: i16 = 25;
const REBALANCE_IN_PROGRESS: i16 = 27;
const MEMBER_ID_REQUIRED: i16 = 79;

/// How long a join waits for members of old.
const MEET_OTHERS: Duration = Duration::from_secs(10);

/// How long a first join waits for others.
const MEET: Duration = Duration::from_millis(700);
