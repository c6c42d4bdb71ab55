//! What members tell and are told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::topology::{GroupNotice, InternalTopic, Topology};
use super::{GroupError, LEAVE_EPOCH, Tasks};

/// A heartbeat of a member: joins, keeps the session, tells what changed, or leaves. What is absent
/// has not changed since the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamsBeat {
    /// The group, not empty.
    pub group: String,
    /// The id that the member gave itself, not empty.
    pub member_id: String,
    /// The epoch that it was told last; 0 to join, [`LEAVE_EPOCH`] to leave.
    pub epoch: i32,
    /// The epoch of the endpoints that it was told last.
    pub endpoints_epoch: i32,
    /// Where the member sits.
    pub rack_id: Option<String>,
    /// The client's own name, for people.
    pub client_id: String,
    /// The client's address, for people.
    pub client_host: String,
    /// How long the member may take to give tasks back.
    pub rebalance_timeout: Option<Duration>,
    /// What the application is made of; from a member that joins.
    pub topology: Option<Topology>,
    /// The tasks that it has.
    pub owned: Option<TaskShare>,
    /// The process that it is a thread of.
    pub process_id: Option<String>,
    /// Where its process answers questions about its states.
    pub endpoint: Option<Endpoint>,
    /// What it tells of where it runs.
    pub tags: Option<Vec<(String, String)>>,
    /// How far it has read the changelogs of tasks.
    pub offsets: Option<Vec<TaskOffset>>,
    /// How far it could have.
    pub end_offsets: Option<Vec<TaskOffset>>,
    /// Whether the whole application is to end.
    pub shuts_down: bool,
}

/// The coordinator's answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsAnswer {
    /// The member's epoch from now on.
    pub epoch: i32,
    /// What the member is to do, when that changed or the member told everything.
    pub share: Option<TaskShare>,
    /// How long after this one the next heartbeat is to come.
    pub heartbeat_interval: Duration,
    /// What holds for the group, or for the member in it.
    pub notices: Vec<GroupNotice>,
    /// The epoch of the endpoints.
    pub endpoints_epoch: i32,
    /// Who answers for what, when the member knows an older state of that.
    pub endpoints: Option<Vec<EndpointShare>>,
    /// Internal topics that are to be made before tasks can be given out.
    pub missing: Vec<InternalTopic>,
}

/// What a member does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskShare {
    /// The tasks that it does.
    pub active: Tasks,
    /// Those whose states it follows, to take them over soon.
    pub standby: Tasks,
}

/// An address at which a process answers questions about its states.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// A host's name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// What a process answers for: by topic, its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointShare {
    /// Where it answers.
    pub endpoint: Endpoint,
    /// What its tasks read.
    pub active: BTreeMap<String, BTreeSet<i32>>,
    /// What the tasks read that it follows.
    pub standby: BTreeMap<String, BTreeSet<i32>>,
}

/// How far a member has come with a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskOffset {
    /// The task's subtopology.
    pub subtopology: String,
    /// The task's number.
    pub partition: i32,
    /// The sum of the offsets of its changelogs.
    pub offset: i64,
}

impl StreamsBeat {
    /// What it must say to be a heartbeat, whatever the group.
    pub(super) fn check_shape(&self) -> Result<(), GroupError> {
        let is_full = self.rebalance_timeout.is_some()
            && self.process_id.is_some()
            && self.topology.as_ref().is_some_and(|topology| {
                let mut parts = topology.subtopologies.iter();
                !topology.subtopologies.is_empty() && parts.all(|of| of.inputs().next().is_some())
            })
            && self.owned.as_ref().is_none_or(TaskShare::is_empty);
        let is_sane = !self.member_id.is_empty()
            && self.epoch >= LEAVE_EPOCH
            && (self.epoch != 0 || is_full)
            && (self.epoch == 0 || self.topology.is_none());
        match is_sane {
            true => Ok(()),
            false => Err(GroupError::InvalidRequest),
        }
    }

    /// What of it would be kept, in bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        let offsets = |told: &Option<Vec<TaskOffset>>| told.as_deref().map_or(0, offsets_bytes);
        self.topology.as_ref().map_or(0, Topology::bytes)
            + self.tags.as_deref().map_or(0, tags_bytes)
            + offsets(&self.offsets)
            + offsets(&self.end_offsets)
    }
}

impl TaskShare {
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.standby.is_empty()
    }

    pub(super) fn meets(&self, other: &TaskShare) -> bool {
        self.active.meets(&other.active) || self.standby.meets(&other.standby)
    }

    /// What is in both, and what is only in this one.
    pub(super) fn split_by(&self, other: &TaskShare) -> (TaskShare, TaskShare) {
        let (active, lost_active) = self.active.split_by(&other.active);
        let (standby, lost_standby) = self.standby.split_by(&other.standby);
        let lost = TaskShare {
            active: lost_active,
            standby: lost_standby,
        };
        (TaskShare { active, standby }, lost)
    }
}

/// What tags take, in bytes.
pub(super) fn tags_bytes(tags: &[(String, String)]) -> usize {
    tags.iter()
        .map(|(name, value)| name.len() + value.len() + TWO_TEXTS_BYTES)
        .sum()
}

/// What offsets take, in bytes.
pub(super) fn offsets_bytes(offsets: &[TaskOffset]) -> usize {
    let each = offsets.iter();
    each.map(|of| of.subtopology.len() + size_of::<TaskOffset>())
        .sum()
}

/// What two texts take beside their bytes.
const TWO_TEXTS_BYTES: usize = 48;
