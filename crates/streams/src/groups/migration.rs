//! How a group changes its protocol while it has members, as Kafka does by default
//! (`group.consumer.migration.policy=bidirectional`).
//!
//! A member of the newer protocol that joins a classic group of consumers makes it a consumer
//! group, in which the others stay and go on speaking the classic protocol; when the last member of
//! the newer protocol is gone, the group is a classic one again. So members may be replaced one by
//! one, in either direction, and the group never stops.

use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;

use super::consumer_group::ConsumerGroup;
use super::group::{Answer, Group};
use super::{CONSUMER_PROTOCOL_TYPE, Catalog, GroupError, GroupsConfig, Protocol, Sight};
use crate::consumer::{self, Share, Told};

/// A member on its way from one kind of group into the other.
#[derive(Clone, Debug)]
pub(super) struct Migrant {
    pub(super) id: String,
    pub(super) instance_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    pub(super) session_until: UnixMillis,
    /// Its subscription.
    pub(super) metadata: Bytes,
    pub(super) protocols: Vec<Protocol>,
    /// The generation that it knows.
    pub(super) epoch: i32,
    /// What it was given; empty when it has not been yet.
    pub(super) assignment: Bytes,
    /// The assignor by which its leader gave it.
    pub(super) assignor: String,
    /// The topics that it may be told of.
    pub(super) sight: Sight,
    /// Whether it lives in another process.
    pub(super) is_remote: bool,
}

impl Migrant {
    /// What it told; none when it cannot be read.
    pub(super) fn subscription(&self) -> Option<Told> {
        consumer::read_subscription(&self.metadata)
    }

    /// What it was given; none when it cannot be read, or when its leader needs data in it that
    /// the coordinator would not know to write. Those assignors that all clients bring need none:
    /// librdkafka sends each member what it told of itself back, and others the share once more.
    pub(super) fn share(&self) -> Option<Share> {
        if self.assignment.is_empty() {
            return Some(Share::new());
        }
        let (share, has_user_data) = consumer::read_assignment(&self.assignment)?;
        let is_common = COMMON_ASSIGNORS.contains(&self.assignor.as_str());
        (is_common || !has_user_data).then_some(share)
    }
}

/// A classic group as a consumer group, for a member of the newer protocol to join; the classic one
/// is left as it is. `NotFound` when it is none of consumers, or what they told or were given
/// cannot be taken over.
pub(super) fn upgraded(
    group: &Group,
    now: UnixMillis,
    config: &Arc<GroupsConfig>,
    catalog: &dyn Catalog,
) -> Result<ConsumerGroup, GroupError> {
    if group.has_members() && group.protocol_type() != CONSUMER_PROTOCOL_TYPE {
        return Err(GroupError::NotFound);
    }
    let consumer = ConsumerGroup::new(Arc::clone(config), group.generation());
    consumer.of_migrants(group.migrants(now), group.pending(), catalog)
}

/// A consumer group without members of the newer protocol as a classic group, in which the others
/// are to join anew.
pub(super) fn downgraded(
    group: &ConsumerGroup,
    now: UnixMillis,
    config: &Arc<GroupsConfig>,
    out: &mut Vec<Answer>,
) -> Group {
    let classic = Group::new(Arc::clone(config), group.epoch());
    classic.of_migrants(now, group.migrants(), group.pending(), out)
}

const COMMON_ASSIGNORS: [&str; 4] = ["range", "roundrobin", "sticky", "cooperative-sticky"];
