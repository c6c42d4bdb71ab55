//! Consumer groups: who is a member, who leads, which generation holds, who reads what.
//!
//! [`Coordinator`] is the one coordinator of the process: Kafka connections and in-process
//! consumers join the same groups through it. Deciding is done by four state machines without
//! clock, tasks or sockets: [`group::Group`] for the classic protocol, in which the members share
//! the partitions, [`consumer_group::ConsumerGroup`] for the newer one (KIP-848), in which the
//! coordinator does, [`streams_group::StreamsGroup`] for Kafka Streams applications (KIP-1071), in
//! which it shares tasks, and [`share_group::ShareGroup`] for share groups (KIP-932), in which partitions
//! are nobody's own: what of them goes to whom is decided where records are fetched (`share`). The
//! coordinator only looks groups up, answers those who wait and drives the timers. A consumer group may have members that still, or again, speak the classic protocol;
//! [`migration`] says how a group changes from one kind to the other while it has members.
//!
//! What must survive the process, a [`Ledger`] keeps: that the group is there, its kind, the epoch
//! below which it never begins again, and, while it stands still, its members ([`roll`]): they go on
//! after a restart as if nothing had been. Members within the process end with it, and a group that
//! has one begins without any; those of others are then told that they are unknown and join again.
//!
//! Committed offsets are not here: they are the store's, durable, and outlive the members. A group
//! without members takes no memory here.

mod beat;
mod consumer_group;
mod coordinator;
mod entry;
mod group;
mod migration;
mod parts;
mod roll;
mod share_group;
mod sight;
mod streams_group;
#[cfg(test)]
mod tests;

use std::time::Duration;

use base::HumanDuration;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use beat::{
    Beat, BeatAnswer, Catalog, ConsumerGroupDescription, ConsumerMemberDescription, GroupStanding,
    LEAVE_EPOCH, LEAVE_STATIC_EPOCH, Ledger,
};
pub(crate) use consumer_group::ASSIGNORS;
pub use coordinator::{Coordinator, Pending};
pub use parts::{Partitions, Parts, Tasks};
pub use sight::Sight;
pub use streams_group::{
    Endpoint, EndpointShare, GroupNotice, InternalTopic, NoticeKind, StreamsAnswer, StreamsBeat,
    StreamsGroupDescription, StreamsMemberDescription, Subtopology, TaskOffset, TaskShare,
    Topology,
};

/// How the coordinator treats its groups; every field has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GroupsConfig {
    /// How long a group that was empty waits for more members before its first generation.
    /// Each member that joins within the delay extends it, up to the rebalance time-out.
    pub initial_rebalance_delay: HumanDuration,
    /// Shortest session time-out that a member may ask for.
    pub session_timeout_min: HumanDuration,
    /// Longest session time-out that a member may ask for.
    pub session_timeout_max: HumanDuration,
    /// How often members of the newer protocol (KIP-848) are told to send a heartbeat.
    pub consumer_heartbeat_interval: HumanDuration,
    /// The silence after which a member of the newer protocol counts as gone.
    pub consumer_session_timeout: HumanDuration,
    /// The shortest and the longest interval that may be set for a single group.
    pub consumer_heartbeat_interval_min: HumanDuration,
    /// See [`GroupsConfig::consumer_heartbeat_interval_min`].
    pub consumer_heartbeat_interval_max: HumanDuration,
    /// The shortest and the longest such silence that may be set for a single group.
    pub consumer_session_timeout_min: HumanDuration,
    /// See [`GroupsConfig::consumer_session_timeout_min`].
    pub consumer_session_timeout_max: HumanDuration,
    /// How long after the shares of a group of the newer protocol were made the next ones are at
    /// the soonest: what changes until then is one change. Zero makes them at once.
    pub consumer_assignment_interval: HumanDuration,
    /// The shortest and the longest such interval that may be set for a single group.
    pub consumer_assignment_interval_min: HumanDuration,
    /// See [`GroupsConfig::consumer_assignment_interval_min`].
    pub consumer_assignment_interval_max: HumanDuration,
    /// How often members of share groups are told to send a heartbeat.
    pub share_heartbeat_interval: HumanDuration,
    /// The silence after which a member of a share group counts as gone.
    pub share_session_timeout: HumanDuration,
    /// How long a record that a member of a share group has acquired is its own.
    pub share_record_lock: HumanDuration,
    /// How often a record is given to members of a share group at most.
    pub share_deliveries_max: u32,
    /// How many records of one partition may be on their way to members of a share group.
    pub share_in_flight_max: u32,
    /// How often members of Kafka Streams applications are told to send a heartbeat.
    pub streams_heartbeat_interval: HumanDuration,
    /// The silence after which such a member counts as gone.
    pub streams_session_timeout: HumanDuration,
    /// How many processes follow the states of each task beside the one that does it.
    pub streams_standby_replicas: u32,
    /// How long the first tasks of an application wait for more members after the first one.
    pub streams_initial_rebalance_delay: HumanDuration,
    /// Most members, joined or about to join, of one group.
    pub members_max: usize,
    /// Most groups with members at one time.
    pub groups_max: usize,
    /// Most bytes of one group's protocol metadata, and as many again of its assignments.
    pub group_bytes_max: usize,
    /// How long the offsets of a group are kept after its last member left, or after the commit
    /// when it never had members; zero keeps them for ever.
    pub offsets_retention: HumanDuration,
}

/// One way of sharing partitions that a member offers, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The assignor's name, such as `range`.
    pub name: String,
    /// What the assignor wants to know; for consumers the subscription in Kafka's own encoding.
    pub metadata: Bytes,
}

/// A member's wish to be in the next generation of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The group, not empty.
    pub group: String,
    /// The id given by the coordinator, or empty in a first request.
    pub member_id: String,
    /// The name that a static member keeps over restarts (`group.instance.id`).
    pub instance_id: Option<String>,
    /// The client's own name, for people; the member id starts with it.
    pub client_id: String,
    /// Where the member sits, for people.
    pub client_host: String,
    /// The silence after which the member counts as gone.
    pub session_timeout: Duration,
    /// How long the others wait for this member when the group rebalances.
    pub rebalance_timeout: Duration,
    /// What kind of group this is; `consumer` for consumers.
    pub protocol_type: String,
    /// The protocols offered, best first, at least one.
    pub protocols: Vec<Protocol>,
    /// Whether a first request without id is answered [`GroupError::MemberIdRequired`], as Kafka's
    /// JoinGroup does from version 4 on; an in-process member has no need of it.
    pub member_id_required: bool,
    /// The topics that the member may be told of when the coordinator shares the partitions: it
    /// reads no others that it names.
    pub sight: Sight,
    /// Whether the member lives in another process, and so may outlive this one.
    pub is_remote: bool,
}

/// A member's place in the new generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The generation's number, from 1.
    pub generation: i32,
    /// What kind of group this is.
    pub protocol_type: String,
    /// The protocol that all members know.
    pub protocol: String,
    /// Who leads.
    pub leader: String,
    /// The caller's own id.
    pub member_id: String,
    /// Everybody, for the leader only; empty for the others.
    pub members: Vec<JoinedMember>,
    /// True for a leader who came back under its instance id and must not assign anew.
    pub skip_assignment: bool,
}

/// One member, as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// The member's id.
    pub member_id: String,
    /// The member's instance id, when it is static.
    pub instance_id: Option<String>,
    /// The member's metadata for the chosen protocol.
    pub metadata: Bytes,
}

/// A member's request for its share, with everybody's shares when it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncRequest {
    /// The group.
    pub group: String,
    /// The caller's id.
    pub member_id: String,
    /// The caller's instance id, when it is static.
    pub instance_id: Option<String>,
    /// The generation of the caller's [`Joined`].
    pub generation: i32,
    /// Checked when given.
    pub protocol_type: Option<String>,
    /// Checked when given.
    pub protocol: Option<String>,
    /// The leader's shares as (member id, assignment); empty from the others.
    pub assignments: Vec<(String, Bytes)>,
}

/// A member's share of the generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// What kind of group this is.
    pub protocol_type: String,
    /// The generation's protocol.
    pub protocol: String,
    /// The share as the leader wrote it; empty when the leader gave none.
    pub assignment: Bytes,
}

/// Who sends a heartbeat or commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRef<'a> {
    /// The group.
    pub group: &'a str,
    /// The member's id; empty for a commit from outside of the group.
    pub member_id: &'a str,
    /// The member's instance id, when it is static.
    pub instance_id: Option<&'a str>,
    /// The member's generation; below zero for a commit from outside of the group.
    pub generation: i32,
}

/// A member that leaves: by id, or by instance id with an empty id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The member's id; may be empty when the instance id is given.
    pub member_id: String,
    /// The member's instance id, when it is static.
    pub instance_id: Option<String>,
}

/// Which protocol a group's members speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// Joining and syncing, the leader shares the partitions.
    Classic,
    /// Heartbeats only, the coordinator shares the partitions (KIP-848).
    Consumer,
    /// Several members read a partition, each record goes to one of them (KIP-932).
    Share,
    /// Heartbeats only, the coordinator shares the tasks of a Kafka Streams application (KIP-1071).
    Streams,
}

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupState {
    /// No members.
    Empty,
    /// Waiting for the members to join the next generation.
    PreparingRebalance,
    /// Waiting for the leader's assignment.
    CompletingRebalance,
    /// Topics that the members need are not there, or not as they need them.
    NotReady,
    /// The members' shares are to be made anew.
    Assigning,
    /// Members are giving back and taking up what their new shares ask.
    Reconciling,
    /// Everybody has a share.
    Stable,
    /// Forgotten; a request that still holds it must look the group up again.
    Dead,
}

/// A group for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// The group.
    pub group: String,
    /// Which protocol its members speak.
    pub kind: GroupKind,
    /// Where it stands.
    pub state: GroupState,
    /// What kind of group it is; empty while it never had members.
    pub protocol_type: String,
    /// The protocol of the generation; empty without one.
    pub protocol: String,
    /// The generation's number, or the group epoch.
    pub generation: i32,
    /// Its members in the order of their ids.
    pub members: Vec<MemberDescription>,
}

/// A member for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDescription {
    /// The member's id.
    pub member_id: String,
    /// The member's instance id, when it is static.
    pub instance_id: Option<String>,
    /// The client's own name.
    pub client_id: String,
    /// Where the client sits.
    pub client_host: String,
    /// Its metadata for the generation's protocol.
    pub metadata: Bytes,
    /// Its share.
    pub assignment: Bytes,
}

/// Why the coordinator refused. `MemberIdRequired`, `RebalanceInProgress`, `UnknownMember` and
/// `IllegalGeneration` are steps of the protocol: the member joins (again).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The group id is empty or too long; the caller's fault.
    #[error("a group id has 1 to {} bytes", crate::groups::GROUP_ID_BYTES_MAX)]
    InvalidGroupId,
    /// The session time-out lies outside of the coordinator's bounds; the caller's fault.
    #[error("the session time-out is out of bounds")]
    InvalidSessionTimeout,
    /// Join again with this id.
    #[error("join again as member '{member_id}'")]
    MemberIdRequired {
        /// The id to join with.
        member_id: String,
    },
    /// No such member: join again without id.
    #[error("the group has no such member")]
    UnknownMember,
    /// The generation has passed: join again.
    #[error("the generation has passed")]
    IllegalGeneration,
    /// The group rebalances: join again.
    #[error("the group is rebalancing")]
    RebalanceInProgress,
    /// No protocol is known to all members, or another kind of group; the caller's fault.
    #[error("the group's members share no such protocol")]
    InconsistentProtocol,
    /// Another member has taken over the instance id; do not retry.
    #[error("another member has the same instance id")]
    FencedInstance,
    /// The group has as many members as it may.
    #[error("the group is full")]
    GroupFull,
    /// The coordinator has as many groups, or as much of them, as it may; retry later.
    #[error("too many groups have members, or they told too much")]
    TooManyGroups,
    /// Metadata or assignments above the bound; the caller's fault.
    #[error("the group's metadata or assignments are too large")]
    TooLarge,
    /// A request without protocols or with contradictory fields; the caller's fault.
    #[error("the request contradicts itself")]
    InvalidRequest,
    /// No such group, or one whose members speak the other protocol.
    #[error("there is no such group of this kind")]
    NotFound,
    /// The member's epoch is not the coordinator's: give everything up and join again.
    #[error("the member's epoch is not the coordinator's")]
    FencedMemberEpoch,
    /// The commit's epoch is not the member's: retry with the one of the next heartbeat.
    #[error("the member's epoch has passed")]
    StaleMemberEpoch,
    /// The instance id belongs to a member that has not left.
    #[error("another member has the instance id and has not left")]
    UnreleasedInstance,
    /// No such assignor here; the caller's fault.
    #[error("the assignor is not known: ask for uniform or range")]
    UnsupportedAssignor,
    /// The topics' regular expression is none; the caller's fault.
    #[error("the regular expression is not valid: {0}")]
    InvalidRegex(String),
    /// The application's topology contradicts itself, or what other members told; the caller's fault.
    #[error("the topology is not valid: {0}")]
    InvalidTopology(String),
    /// The group still has members and cannot be deleted.
    #[error("the group has members")]
    NotEmpty,
    /// The coordinator stopped; retry against the next one.
    #[error("the coordinator has stopped")]
    Stopped,
}

impl GroupKind {
    /// The kind's name as Kafka's tools print it.
    pub fn name(self) -> &'static str {
        match self {
            GroupKind::Classic => "Classic",
            GroupKind::Consumer => "Consumer",
            GroupKind::Share => "Share",
            GroupKind::Streams => "Streams",
        }
    }
}

impl GroupState {
    /// The state's name as Kafka's tools print it.
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::NotReady => "NotReady",
            GroupState::Assigning => "Assigning",
            GroupState::Reconciling => "Reconciling",
            GroupState::Stable => "Stable",
            GroupState::Dead => "Dead",
        }
    }
}

impl GroupsConfig {
    /// All that is wrong with the values, one line each, in the keys' names.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.session_timeout_min.0.is_zero()
            || self.session_timeout_max < self.session_timeout_min
        {
            problems
                .push("groups.session_timeout_min must be above zero and not above _max".into());
        }
        if self.consumer_heartbeat_interval.0.is_zero()
            || self.consumer_session_timeout <= self.consumer_heartbeat_interval
        {
            problems.push(
                "groups.consumer_session_timeout must be longer than the heartbeat interval".into(),
            );
        }
        for (name, least, most) in [
            (
                "consumer_heartbeat_interval",
                self.consumer_heartbeat_interval_min,
                self.consumer_heartbeat_interval_max,
            ),
            (
                "consumer_session_timeout",
                self.consumer_session_timeout_min,
                self.consumer_session_timeout_max,
            ),
        ] {
            if least.0.is_zero() || most < least {
                problems.push(format!(
                    "groups.{name}_min must be above zero and not above _max"
                ));
            }
        }
        if self.share_heartbeat_interval.0.is_zero()
            || self.share_session_timeout <= self.share_heartbeat_interval
        {
            problems.push(
                "groups.share_session_timeout must be longer than the heartbeat interval".into(),
            );
        }
        if self.share_record_lock.0.is_zero()
            || self.share_deliveries_max == 0
            || self.share_in_flight_max == 0
        {
            problems.push("groups' bounds of shared records must be above zero".into());
        }
        if self.streams_heartbeat_interval.0.is_zero()
            || self.streams_session_timeout <= self.streams_heartbeat_interval
        {
            problems.push(
                "groups.streams_session_timeout must be longer than the heartbeat interval".into(),
            );
        }
        if self.consumer_assignment_interval_max < self.consumer_assignment_interval_min {
            problems.push("groups.consumer_assignment_interval_min must not be above _max".into());
        }
        if self.members_max == 0 || self.groups_max == 0 || self.group_bytes_max == 0 {
            problems.push("groups' bounds must be above zero".into());
        }
        problems
    }
}

impl Default for GroupsConfig {
    fn default() -> Self {
        let ms = |ms| HumanDuration(Duration::from_millis(ms));
        GroupsConfig {
            // Long enough for consumers that a script starts together, short enough that a
            // person who starts one does not notice.
            initial_rebalance_delay: ms(100),
            session_timeout_min: ms(1_000),
            session_timeout_max: ms(1_800_000),
            consumer_heartbeat_interval: ms(5_000),
            consumer_session_timeout: ms(45_000),
            consumer_heartbeat_interval_min: ms(5_000),
            consumer_heartbeat_interval_max: ms(15_000),
            consumer_session_timeout_min: ms(45_000),
            consumer_session_timeout_max: ms(60_000),
            consumer_assignment_interval: ms(0),
            consumer_assignment_interval_min: ms(0),
            consumer_assignment_interval_max: ms(15_000),
            share_heartbeat_interval: ms(5_000),
            share_session_timeout: ms(45_000),
            share_record_lock: ms(30_000),
            share_deliveries_max: 5,
            share_in_flight_max: 2_000,
            streams_heartbeat_interval: ms(5_000),
            streams_session_timeout: ms(45_000),
            streams_standby_replicas: 0,
            // As of consumers: long enough for the threads of one process.
            streams_initial_rebalance_delay: ms(100),
            members_max: 1_000,
            groups_max: 10_000,
            group_bytes_max: 16 << 20,
            offsets_retention: ms(7 * 24 * 3_600_000),
        }
    }
}

/// The protocol type of groups of consumers.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

/// The protocol type of share groups.
pub const SHARE_PROTOCOL_TYPE: &str = "share";

/// The protocol type of Kafka Streams applications.
pub const STREAMS_PROTOCOL_TYPE: &str = "streams";

/// Longest group id in bytes: longer ones are no names, and they are kept per group and commit.
pub const GROUP_ID_BYTES_MAX: usize = 1_024;

/// Longest id that a member gives itself, in bytes, and longest name that it has beside: clients take a
/// UUID, and what a member takes is counted without it.
pub const MEMBER_ID_BYTES_MAX: usize = 1_024;

/// Bytes that the members of all groups may take: metadata, assignments, names. A group of 100
/// members that read 100 topics takes about 300 KiB.
pub const GROUPS_BYTES_MAX: usize = 256 << 20;

/// What a member takes beside what it told, in bytes: about its ids and its places in maps.
const MEMBER_BYTES: usize = 512;
