//! Where the coordinator's groups are noted: what of a group outlives its members, and the members
//! that outlive the process.
//!
//! A note takes effect at once and is appended without waiting: a crash that takes the last one
//! back costs an epoch, not an offset. When the journal has no room, the keeper's thread writes it
//! later.

use std::sync::Arc;

use base::{Clock, UnixMillis};
use journal::{Done, Durability, Frame};
use parking_lot::{Mutex, MutexGuard};
use uuid::Uuid;

use crate::error::StreamsError;
use crate::frames::{Change, VERSION};
use crate::group_config::GroupConfig;
use crate::groups::{Catalog, GroupStanding, Ledger};
use crate::offsets::{NotedGroup, Offsets};
use crate::partition::{Shared, storage};
use crate::store::Streams;
use crate::topic::TopicName;

/// The store's groups as the coordinator sees them.
pub(crate) struct GroupLedger {
    offsets: Arc<Mutex<Offsets>>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    /// The members of a group that take more than this are not kept.
    roll_bytes_max: u64,
}

impl GroupLedger {
    pub(crate) fn new(
        offsets: &Arc<Mutex<Offsets>>,
        shared: &Arc<Shared>,
        clock: &Arc<dyn Clock>,
        roll_bytes_max: u64,
    ) -> Self {
        GroupLedger {
            offsets: Arc::clone(offsets),
            shared: Arc::clone(shared),
            clock: Arc::clone(clock),
            roll_bytes_max,
        }
    }
}

impl Ledger for GroupLedger {
    fn standing(&self, group: &str) -> Option<GroupStanding> {
        self.offsets.lock().noted(group).map(NotedGroup::standing)
    }

    fn note(&self, group: &str, standing: &GroupStanding) {
        let group: Arc<str> = Arc::from(group);
        let noted = NotedGroup::of(standing, self.clock.now());
        let mut offsets = self.offsets.lock();
        offsets.note(&group, noted.clone());
        self.append(
            offsets,
            &Change::Group {
                group: group.as_ref().to_owned(),
                noted,
            },
        );
        self.shared.keeper.note_groups();
    }

    fn keep(&self, group: &str, roll: Vec<u8>) {
        let group: Arc<str> = Arc::from(group);
        // What no segment holds would stand in the way of every snapshot.
        let roll = match roll.len() as u64 <= self.roll_bytes_max {
            true => roll,
            false => Vec::new(),
        };
        let mut offsets = self.offsets.lock();
        if roll.is_empty() && offsets.roll(&group).is_none() {
            return;
        }
        offsets.keep(&group, roll.clone());
        self.append(
            offsets,
            &Change::GroupMembers {
                group: group.as_ref().to_owned(),
                roll,
            },
        );
    }

    fn settings(&self, group: &str) -> GroupConfig {
        self.offsets.lock().settings(group)
    }

    fn kept(&self) -> Vec<(Arc<str>, Vec<u8>)> {
        let offsets = self.offsets.lock();
        let groups = offsets.kept_groups().into_iter();
        groups
            .filter_map(|group| {
                let roll = offsets.roll(&group)?.to_vec();
                Some((group, roll))
            })
            .collect()
    }
}

impl GroupLedger {
    /// Appends what was changed in `offsets`, whose lock is held over it, so that memory and journal
    /// agree on the order.
    fn append(&self, offsets: MutexGuard<'_, Offsets>, change: &Change) {
        let (kind, payload) = change.encode();
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &[&payload],
        };
        let appended = self
            .shared
            .journal
            .append(&[frame], Durability::Os, Done::none())
            .map_err(storage);
        drop(offsets);
        match appended {
            Ok(placed) => self.shared.keeper.note_end(placed.end),
            // A snapshot notes all groups; until then the older note stands.
            Err(StreamsError::Busy) => tracing::debug!("a group was not noted"),
            Err(error) => {
                let error = base::report(&error);
                tracing::warn!(error, "a group was not noted");
            }
        }
    }
}

impl NotedGroup {
    fn of(standing: &GroupStanding, now: UnixMillis) -> Self {
        NotedGroup {
            kind: standing.kind,
            protocol_type: standing.protocol_type.clone(),
            epoch: standing.epoch,
            emptied: (!standing.has_members).then_some(now),
        }
    }

    pub(crate) fn standing(&self) -> GroupStanding {
        GroupStanding {
            kind: self.kind,
            protocol_type: self.protocol_type.clone(),
            epoch: self.epoch,
            has_members: self.emptied.is_none(),
        }
    }
}

impl Catalog for Streams {
    fn version(&self) -> u64 {
        *self.topics_changed().borrow()
    }

    fn topic(&self, name: &str) -> Option<(Uuid, i32)> {
        let name: TopicName = name.parse().ok()?;
        let topic = self.topic_by_name(&name)?;
        Some((topic.id(), partition_count(topic.partitions().len())))
    }

    fn each(&self, visit: &mut dyn FnMut(&str, Uuid, i32)) {
        for topic in self.topics_snapshot() {
            let count = partition_count(topic.partitions().len());
            visit(topic.name().wire_name(), topic.id(), count);
        }
    }
}

fn partition_count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
