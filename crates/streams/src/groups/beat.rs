//! What members of the newer protocol (KIP-848) and the coordinator tell each other.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{GroupKind, GroupState, Partitions, Sight};
use crate::group_config::GroupConfig;

/// A heartbeat: joins, keeps the session, tells what changed, or leaves. What is absent has not
/// changed since the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// The group, not empty.
    pub group: String,
    /// The id that the member gave itself, not empty.
    pub member_id: String,
    /// The epoch that it was told last; 0 to join, [`LEAVE_EPOCH`] or [`LEAVE_STATIC_EPOCH`].
    pub epoch: i32,
    /// The name that a static member keeps over restarts.
    pub instance_id: Option<String>,
    /// Where the member sits.
    pub rack_id: Option<String>,
    /// The client's own name, for people.
    pub client_id: String,
    /// The client's address, for people.
    pub client_host: String,
    /// How long the member may take to give partitions back.
    pub rebalance_timeout: Option<Duration>,
    /// Names of the topics that it reads, as on the wire.
    pub topics: Option<Vec<String>>,
    /// A regular expression for more topics; empty for none.
    pub topics_regex: Option<String>,
    /// The assignor that it would like.
    pub assignor: Option<String>,
    /// The partitions that it still holds.
    pub owned: Option<Partitions>,
    /// The topics that its regular expression may find.
    pub sight: Sight,
}

/// The coordinator's answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeatAnswer {
    /// The member's epoch from now on.
    pub epoch: i32,
    /// What the member is to hold, when that changed or the member told everything.
    pub assignment: Option<Partitions>,
    /// How long after this one the next heartbeat is to come.
    pub heartbeat_interval: Duration,
}

/// The topics that there are, as far as groups need to know.
pub trait Catalog {
    /// Changes whenever a topic is created, deleted or grown.
    fn version(&self) -> u64;
    /// Id and number of partitions of the topic with this wire name.
    fn topic(&self, name: &str) -> Option<(Uuid, i32)>;
    /// Shows every topic: wire name, id, number of partitions.
    fn each(&self, visit: &mut dyn FnMut(&str, Uuid, i32));
}

/// A group of the newer protocol for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerGroupDescription {
    /// Where it stands.
    pub state: GroupState,
    /// Counts the changes of members, subscriptions and topics.
    pub epoch: i32,
    /// The epoch that the shares were made for.
    pub assignment_epoch: i32,
    /// The assignor in use.
    pub assignor: String,
    /// Its members in the order of their ids.
    pub members: Vec<ConsumerMemberDescription>,
}

/// A member of the newer protocol for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerMemberDescription {
    /// The member's id.
    pub member_id: String,
    /// The member's instance id, when it is static.
    pub instance_id: Option<String>,
    /// Where it sits.
    pub rack_id: Option<String>,
    /// Whether it speaks the classic protocol.
    pub is_classic: bool,
    /// The epoch that it was told last.
    pub epoch: i32,
    /// The client's own name.
    pub client_id: String,
    /// The client's address.
    pub client_host: String,
    /// The names it subscribed to.
    pub topics: Vec<String>,
    /// The regular expression it subscribed to.
    pub topics_regex: Option<String>,
    /// What it may hold now.
    pub assigned: Partitions,
    /// What it is to hold in the end.
    pub target: Partitions,
}

/// What of a group outlives its members and the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStanding {
    /// Which protocol its members spoke last.
    pub kind: GroupKind,
    /// What kind of group it is; `consumer` for consumers.
    pub protocol_type: String,
    /// The epoch of a group of the newer protocol, or the generation before the first of a classic
    /// one; below it no new one begins.
    pub epoch: i32,
    /// Whether it has members.
    pub has_members: bool,
}

/// Where groups' standings are kept. Calls come under the coordinator's lock and must not wait.
pub trait Ledger: Send + Sync {
    /// What was noted of the group last.
    fn standing(&self, group: &str) -> Option<GroupStanding>;
    /// Notes how a group stands from now on.
    fn note(&self, group: &str, standing: &GroupStanding);
    /// Keeps a group's members for the next process; none of them when `roll` is empty. They are
    /// forgotten when the group is noted without members.
    fn keep(&self, group: &str, roll: Vec<u8>);
    /// What was set for a group.
    fn settings(&self, group: &str) -> GroupConfig;
    /// What was kept of each group.
    fn kept(&self) -> Vec<(Arc<str>, Vec<u8>)>;
}

/// The epoch with which a member leaves.
pub const LEAVE_EPOCH: i32 = -1;

/// The epoch with which a static member leaves for a while: its partitions wait for it.
pub const LEAVE_STATIC_EPOCH: i32 = -2;
