//! What a group knows of a member.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use super::beat::{Endpoint, TaskOffset, TaskShare, offsets_bytes, tags_bytes};

/// One member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) rack_id: Option<String>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) rebalance_timeout: Duration,
    pub(super) topology_epoch: i32,
    pub(super) process_id: String,
    pub(super) endpoint: Option<Endpoint>,
    pub(super) tags: Vec<(String, String)>,
    pub(super) offsets: Vec<TaskOffset>,
    pub(super) end_offsets: Vec<TaskOffset>,
    pub(super) epoch: i32,
    /// The epoch before: an answer that told of the new one may have been lost.
    pub(super) previous_epoch: i32,
    /// What the member may do.
    pub(super) assigned: TaskShare,
    /// What it was asked to give back and has not.
    pub(super) revoking: TaskShare,
    /// Until when it must have.
    pub(super) revoke_until: Option<UnixMillis>,
    /// Whether something it is to get is still with somebody else.
    pub(super) awaits: bool,
    /// The epoch of the member when it was given a task to do.
    pub(super) since: HashMap<(Arc<str>, i32), i32>,
    pub(super) session_until: UnixMillis,
}

impl Member {
    /// A member that nothing is known of yet.
    pub(super) fn new() -> Self {
        Member {
            rack_id: None,
            client_id: String::new(),
            client_host: String::new(),
            rebalance_timeout: Duration::ZERO,
            topology_epoch: 0,
            process_id: String::new(),
            endpoint: None,
            tags: Vec::new(),
            offsets: Vec::new(),
            end_offsets: Vec::new(),
            epoch: 0,
            previous_epoch: 0,
            assigned: TaskShare::default(),
            revoking: TaskShare::default(),
            revoke_until: None,
            awaits: false,
            since: HashMap::new(),
            // Whoever takes it in sets it.
            session_until: UnixMillis(i64::MAX),
        }
    }

    /// Whether it does a task, or has not yet given it back.
    pub(super) fn does(&self, (of, n): &(Arc<str>, i32)) -> bool {
        self.assigned.active.contains(of, *n) || self.revoking.active.contains(of, *n)
    }

    /// When it is put out, or keeps what it was to give back no longer, if it stays silent.
    pub(super) fn deadline(&self) -> UnixMillis {
        let revoke_until = self.revoke_until.unwrap_or(self.session_until);
        self.session_until.min(revoke_until)
    }

    /// What it told takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        tags_bytes(&self.tags)
            + offsets_bytes(&self.offsets)
            + offsets_bytes(&self.end_offsets)
            + self.endpoint.as_ref().map_or(0, |at| at.host.len())
            + self.process_id.len()
    }
}
