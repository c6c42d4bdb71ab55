//! The APIs of members that speak the classic protocol, each a translation to the coordinator's calls.

use std::time::Duration;

use access::Operation;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    BrokerId, FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest,
    SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::error::{group_code_of, group_error_code};
use super::group_admin::NOT_ALLOWED;
use super::reply::{Call, Ending, Reply, owned};
use crate::TopicName;
use crate::groups::{GroupError, JoinRequest, Joined, Leaving, MemberRef, Protocol, SyncRequest};

/// This node coordinates every group and transactional id.
///
/// As with Kafka, the first one that asks brings the internal topic into being: clients' pattern
/// subscriptions and tools look for it.
pub(super) fn find_coordinator(call: Call) -> Result<Reply, Ending> {
    let request: FindCoordinatorRequest = call.decode("FindCoordinator")?;
    let internal = match request.key_type {
        GROUP_KEY => TopicName::group_offsets(),
        TRANSACTION_KEY => TopicName::transaction_state(),
        _ => {
            let code = ResponseError::InvalidRequest.code();
            return call.now(&coordinators(&call, request, code));
        }
    };
    let first = refused_key(&call, request.key_type, &request.key);
    if call.version < 4 && first != 0 {
        return call.now(&coordinators(&call, request, first));
    }
    if call.context.streams().topic_by_name(&internal).is_some() {
        return call.now(&coordinators(&call, request, 0));
    }
    Reply::later(async move {
        let created = call.context.streams().internal_or_create(internal).await;
        if let Err(error) = created {
            // The topic holds nothing that the coordinator needs.
            tracing::warn!("cannot create an internal topic: {}", base::report(&error));
        }
        call.answer(&coordinators(&call, request, 0))
    })
}

/// The code for a group or a transactional id that the caller may not know.
fn refused_key(call: &Call, key_type: i8, key: &str) -> i16 {
    match key_type {
        GROUP_KEY if !call.may_group(Operation::Describe, key) => NOT_ALLOWED,
        TRANSACTION_KEY if !call.may_transact(Operation::Describe, key) => {
            ResponseError::TransactionalIdAuthorizationFailed.code()
        }
        _ => 0,
    }
}

fn coordinators(call: &Call, asked: FindCoordinatorRequest, code: i16) -> FindCoordinatorResponse {
    let node = BrokerId(call.context.streams().node_id());
    let (host, port) = (call.context.host.clone(), call.context.port);
    if call.version < 4 && code != 0 {
        return FindCoordinatorResponse::default()
            .with_error_code(code)
            .with_node_id(BrokerId(-1))
            .with_port(-1);
    }
    if call.version < 4 {
        return FindCoordinatorResponse::default()
            .with_node_id(node)
            .with_host(host)
            .with_port(port);
    }
    let coordinators = asked.coordinator_keys.into_iter().map(|key| {
        let code = match refused_key(call, asked.key_type, &key) {
            0 => code,
            refused => {
                return Coordinator::default()
                    .with_key(key)
                    .with_error_code(refused)
                    .with_node_id(BrokerId(-1))
                    .with_port(-1);
            }
        };
        Coordinator::default()
            .with_key(key)
            .with_error_code(code)
            .with_node_id(node)
            .with_host(host.clone())
            .with_port(port)
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}

/// Joins; the answer waits for the generation to begin.
pub(super) fn join_group(call: Call) -> Result<Reply, Ending> {
    let request: JoinGroupRequest = call.decode("JoinGroup")?;
    if !call.may_group(Operation::Read, &request.group_id) {
        let body = join_refusal(&call, request.member_id, &GroupError::InvalidRequest);
        return call.now(&body.with_error_code(NOT_ALLOWED));
    }
    let session_timeout = millis(request.session_timeout_ms);
    let rebalance_timeout = match request.rebalance_timeout_ms {
        // Version 0 has no such field: the session's time-out serves for both.
        ms if call.version == 0 || ms < 0 => session_timeout,
        ms => millis(ms),
    };
    let protocols = request.protocols.into_iter().map(|protocol| Protocol {
        name: protocol.name.to_string(),
        // A copy, as the metadata would otherwise keep the whole read buffer alive.
        metadata: protocol.metadata.to_vec().into(),
    });
    let member_id = request.member_id.clone();
    let wish = JoinRequest {
        group: request.group_id.to_string(),
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        client_id: call.client_id.to_string(),
        client_host: call.context.client_host.clone(),
        session_timeout,
        rebalance_timeout,
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols.collect(),
        member_id_required: call.version >= MEMBER_ID_REQUIRED_FROM,
        sight: call.sight(),
        is_remote: true,
    };
    let streams = call.context.streams();
    let joined = streams.groups().join_group(wish, streams.as_ref());
    Reply::later(async move {
        let body = match joined.await {
            Ok(joined) => join_answer(&call, joined),
            Err(error) => join_refusal(&call, member_id, &error),
        };
        call.answer(&body)
    })
}

/// Hands in and gives out the assignment; the answer waits for the leader.
pub(super) fn sync_group(call: Call) -> Result<Reply, Ending> {
    let request: SyncGroupRequest = call.decode("SyncGroup")?;
    if !call.may_group(Operation::Read, &request.group_id) {
        return call.now(&SyncGroupResponse::default().with_error_code(NOT_ALLOWED));
    }
    let assignments = request.assignments.into_iter().map(|share| {
        (
            share.member_id.to_string(),
            share.assignment.to_vec().into(),
        )
    });
    let synced = call.context.streams().groups().sync_group(SyncRequest {
        group: request.group_id.to_string(),
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.map(|id| id.to_string()),
        generation: request.generation_id,
        protocol_type: request.protocol_type.map(|t| t.to_string()),
        protocol: request.protocol_name.map(|n| n.to_string()),
        assignments: assignments.collect(),
    });
    Reply::later(async move {
        let synced = synced.await;
        let body = SyncGroupResponse::default().with_error_code(group_code_of(&synced));
        let body = match synced {
            Err(_) => body,
            Ok(synced) => body
                .with_assignment(synced.assignment)
                .with_protocol_type(Some(owned(synced.protocol_type)))
                .with_protocol_name(Some(owned(synced.protocol))),
        };
        call.answer(&body)
    })
}

/// Keeps a session alive.
pub(super) fn heartbeat(call: Call) -> Result<Reply, Ending> {
    let request: HeartbeatRequest = call.decode("Heartbeat")?;
    if !call.may_group(Operation::Read, &request.group_id) {
        return call.now(&HeartbeatResponse::default().with_error_code(NOT_ALLOWED));
    }
    let kept = call.context.streams().groups().heartbeat(MemberRef {
        group: &request.group_id,
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: request.generation_id,
    });
    call.now(&HeartbeatResponse::default().with_error_code(group_code_of(&kept)))
}

/// Takes members out: the caller up to version 2, those named from version 3 on.
pub(super) fn leave_group(call: Call) -> Result<Reply, Ending> {
    let request: LeaveGroupRequest = call.decode("LeaveGroup")?;
    if !call.may_group(Operation::Read, &request.group_id) {
        return call.now(&LeaveGroupResponse::default().with_error_code(NOT_ALLOWED));
    }
    let groups = call.context.streams().groups();
    if call.version < 3 {
        let leaving = Leaving {
            member_id: request.member_id.to_string(),
            instance_id: None,
        };
        let left = groups.leave_group(&request.group_id, &[leaving]);
        let code = left.first().map_or(0, group_code_of);
        return call.now(&LeaveGroupResponse::default().with_error_code(code));
    }
    let leaving: Vec<Leaving> = request
        .members
        .iter()
        .map(|member| Leaving {
            member_id: member.member_id.to_string(),
            instance_id: member.group_instance_id.as_ref().map(ToString::to_string),
        })
        .collect();
    let left = groups.leave_group(&request.group_id, &leaving);
    let members = request
        .members
        .into_iter()
        .zip(&left)
        .map(|(member, left)| {
            MemberResponse::default()
                .with_member_id(member.member_id)
                .with_group_instance_id(member.group_instance_id)
                .with_error_code(group_code_of(left))
        });
    call.now(&LeaveGroupResponse::default().with_members(members.collect()))
}

fn join_answer(call: &Call, joined: Joined) -> JoinGroupResponse {
    // A leader that must not assign anew is told so from version 9 on; before, it is told that
    // somebody else leads.
    let (leader, members, skip) = match (joined.skip_assignment, call.version >= SKIP_FROM) {
        (true, false) => (String::new(), Vec::new(), false),
        (skip, _) => (joined.leader, joined.members, skip),
    };
    let members = members.into_iter().map(|member| {
        let told = JoinGroupResponseMember::default()
            .with_member_id(owned(member.member_id))
            .with_metadata(member.metadata);
        match call.version >= 5 {
            true => told.with_group_instance_id(member.instance_id.map(owned)),
            false => told,
        }
    });
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type(Some(owned(joined.protocol_type)))
        .with_protocol_name(Some(owned(joined.protocol)))
        .with_leader(owned(leader))
        .with_member_id(owned(joined.member_id))
        .with_members(members.collect())
        .with_skip_assignment(skip)
}

fn join_refusal(call: &Call, member_id: StrBytes, error: &GroupError) -> JoinGroupResponse {
    let member_id = match error {
        GroupError::MemberIdRequired { member_id } => owned(member_id.clone()),
        _ => member_id,
    };
    // The protocol's name may be null from version 7 on.
    let no_name = if call.version >= 7 {
        None
    } else {
        Some(StrBytes::new())
    };
    JoinGroupResponse::default()
        .with_error_code(group_error_code(error))
        .with_generation_id(-1)
        .with_protocol_name(no_name)
        .with_member_id(member_id)
}

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// From this version on, a first join is only given an id to join with (KIP-394).
const MEMBER_ID_REQUIRED_FROM: i16 = 4;

/// From this version on, a returning static leader can be told not to assign (KIP-814).
const SKIP_FROM: i16 = 9;

const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;
