//! What share groups read, acknowledge and have come to.

use std::sync::Arc;

use base::UnixMillis;

use super::{DurableWait, Streams};
use crate::error::StreamsError;
use crate::event_store::Isolation;
use crate::frames::Change;
use crate::group_config::{ShareBegin, ShareTerms};
use crate::groups::{GroupError, GroupKind, SHARE_PROTOCOL_TYPE};
use crate::index::Located;
use crate::offsets::NotedGroup;
use crate::partition::Partition;
use crate::share::{
    AcknowledgeError, Acknowledgement, Acquired, Claim, Fate, InFlight, SharePartition, joined,
};

/// How much may be acquired of a partition at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareRoom {
    pub(crate) records: i64,
    pub(crate) bytes: usize,
    pub(crate) batches: usize,
    /// Whether the first batch comes whatever its size.
    pub(crate) at_least_one: bool,
    /// Whether all records of a batch may be acquired of which there is room for one.
    pub(crate) whole_batches: bool,
}

/// What a member acquired of a partition: whole batches, and which of their records are its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) batches: Vec<Located>,
    pub(crate) acquired: Vec<Acquired>,
}

/// How far a share group has come with a partition.
#[derive(Clone, Debug)]
pub(crate) struct ShareOffset {
    pub(crate) partition: Arc<Partition>,
    /// The first offset that is not finished.
    pub(crate) start: i64,
    /// Records from there on that are not finished.
    pub(crate) lag: i64,
}

impl Streams {
    /// What holds for the records of a share group.
    pub(crate) fn share_terms(&self, group: &str) -> ShareTerms {
        self.group_config(group).share_terms(&self.config.groups)
    }

    /// A partition as a share group sees it, which begins to read it with this; none while the group
    /// has no members.
    pub(crate) fn share_partition(
        &self,
        group: &str,
        partition: &Arc<Partition>,
        terms: &ShareTerms,
    ) -> Result<Option<Arc<SharePartition>>, StreamsError> {
        if let Some(known) = self.shares.of(group, partition.number()) {
            return Ok(Some(known));
        }
        if !self.groups.is_shared(group) {
            return Ok(None);
        }
        let opened = self.shares.open(group, partition.number(), |fresh| {
            let in_flight = InFlight::new(self.share_begin(partition, terms.begin)?);
            self.append_durably(&fresh.standing(&in_flight))?;
            Ok(in_flight)
        });
        opened.map(Some)
    }

    /// Has a member acquire what is available of a partition.
    pub(crate) fn share_acquire(
        &self,
        shared: &SharePartition,
        partition: &Partition,
        (member, terms): (&Arc<str>, &ShareTerms),
        room: ShareRoom,
    ) -> Result<Taken, StreamsError> {
        let now = self.clock.now();
        let mut held = shared.hold();
        let Some(in_flight) = held.in_flight() else {
            return Ok(Taken::default());
        };
        in_flight.expire(now, terms.deliveries_max);
        in_flight.begin_at(partition.log_start_offset());
        let mut taken = Taken::default();
        let (mut left, mut bytes) = (room.records, room.bytes);
        // What is available may lie far apart.
        for _ in 0..LOOKS_MAX {
            let is_first = taken.batches.is_empty();
            let has_room = left > 0 && (bytes > 0 || is_first);
            let Some(from) = in_flight.next(terms.in_flight_max).filter(|_| has_room) else {
                break;
            };
            // No batch has less than a record. All is read before anything is acquired.
            let batches = room
                .batches
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            let found = partition.find_headed(
                terms.isolation,
                from,
                bytes,
                batches,
                room.at_least_one && is_first,
            );
            let found = match found {
                Ok(found) => found,
                // The partition's end was lost with a damaged journal: what comes takes its offsets.
                Err(StreamsError::OffsetOutOfRange { .. }) if from > partition.high_watermark() => {
                    *in_flight = InFlight::new(partition.high_watermark());
                    break;
                }
                // What was acquired is to be answered; the next fetch tells.
                Err(_) if !is_first => break,
                Err(error) => return Err(error),
            };
            let mut at = from;
            for (batch, header) in &found {
                let (first, last) = (batch.base_offset, header.last_offset());
                in_flight.pass(at, first - 1);
                at = last + 1;
                let is_for_nobody = header.is_control()
                    || terms.isolation == Isolation::Committed && partition.is_aborted(header);
                if is_for_nobody {
                    in_flight.pass(first, last);
                    continue;
                }
                let claim = Claim {
                    member: Arc::clone(member),
                    until: now + terms.lock,
                    records_max: if room.whole_batches { i64::MAX } else { left },
                    in_flight_max: terms.in_flight_max,
                };
                let acquired = in_flight.acquire(first, last, &claim);
                if !acquired.is_empty() {
                    taken.batches.push(*batch);
                    bytes = bytes.saturating_sub(batch.bytes as usize);
                }
                for run in acquired {
                    left -= run.last - run.first + 1;
                    taken.acquired.push(run);
                }
                if left <= 0 {
                    break;
                }
            }
            if found.is_empty() {
                break;
            }
        }
        taken.acquired = joined(taken.acquired);
        Ok(taken)
    }

    /// Decides for a member what becomes of records, first and last offset, that it has just acquired and
    /// is not told of; nothing of it is written.
    pub(crate) fn share_decide(
        &self,
        shared: &SharePartition,
        (member, terms): (&str, &ShareTerms),
        records: &[(i64, i64)],
        fate: Fate,
    ) {
        let now = self.clock.now();
        let said = records.iter().map(|(first, last)| Acknowledgement {
            first: *first,
            last: *last,
            fates: vec![fate],
        });
        let said: Vec<Acknowledgement> = said.collect();
        let mut held = shared.hold();
        if let Some(in_flight) = held.in_flight() {
            // They are the member's, unless the group has begun anew: then there is nothing to decide.
            let _ = in_flight.acknowledge(now, member, &said, now, terms.deliveries_max);
        }
    }

    /// When a record of it may be acquired again because somebody has held it for too long.
    pub(crate) fn share_deadline(&self, shared: &SharePartition) -> Option<UnixMillis> {
        shared.hold().in_flight()?.next_deadline()
    }

    /// Takes what a member says of its records, all or nothing; await the answer for durability.
    pub(crate) fn share_acknowledge(
        &self,
        group: &str,
        partition: &Partition,
        member: &str,
        said: &[Acknowledgement],
    ) -> Result<DurableWait, AcknowledgeError> {
        let terms = self.share_terms(group);
        let shared = self.shares.of(group, partition.number());
        let shared = shared.ok_or(AcknowledgeError::Gone)?;
        let now = self.clock.now();
        let mut held = shared.hold();
        let in_flight = held.in_flight().ok_or(AcknowledgeError::Gone)?;
        in_flight.begin_at(partition.log_start_offset());
        let before = in_flight.next(terms.in_flight_max);
        // What cannot be written has not been said.
        let mut after = in_flight.clone();
        after.acknowledge(now, member, said, now + terms.lock, terms.deliveries_max)?;
        // Who only asks for more time is promised nothing. All else is written, also what is so already: it
        // may be so in memory alone.
        let mut fates = said.iter().flat_map(|said| &said.fates);
        let wait = match fates.all(|fate| *fate == Fate::Renew) {
            true => DurableWait::over(),
            false => self.append_durably(&shared.standing(&after))?,
        };
        *in_flight = after;
        if in_flight.next(terms.in_flight_max) != before {
            held.tell();
        }
        Ok(wait)
    }

    /// Has a member go on with a session; answers its number.
    pub(crate) fn begin_share_session(&self, group: &Arc<str>, member: &Arc<str>) -> u64 {
        self.shares.begin_session(group, member)
    }

    /// Ends a session: what its member has acquired is given back, unless the member has gone on with
    /// another one.
    pub(crate) fn end_share_session(&self, group: &Arc<str>, member: &Arc<str>, number: u64) {
        if self.shares.end_session(group, member, number) {
            self.share_release(group, member);
        }
    }

    /// As [`Streams::end_share_session`], for a member without one.
    #[cfg(test)]
    pub(crate) fn end_share_session_of(&self, group: &str, member: &str) {
        self.share_release(group, member);
    }

    /// Gives back what a member has acquired of all partitions of its group.
    fn share_release(&self, group: &str, member: &str) {
        let terms = self.share_terms(group);
        for shared in self.shares.of_group(group) {
            let mut held = shared.hold();
            let released = held.in_flight();
            let released = released.is_some_and(|all| all.release(member, terms.deliveries_max));
            if released {
                held.tell();
            }
        }
    }

    /// The share groups that have begun to read something, in order.
    pub(crate) fn groups_that_share(&self) -> Vec<Arc<str>> {
        self.shares.groups()
    }

    /// How far a share group has come, with the partitions that it has begun to read.
    pub(crate) fn share_offsets(&self, group: &str) -> Vec<ShareOffset> {
        let terms = self.share_terms(group);
        let topics = self.topics.read();
        let offsets = self
            .shares
            .of_group(group)
            .into_iter()
            .filter_map(|shared| {
                let partition = Arc::clone(topics.partition_by_number(shared.number)?);
                let mut held = shared.hold();
                let in_flight = held.in_flight()?;
                in_flight.expire(self.clock.now(), terms.deliveries_max);
                in_flight.begin_at(partition.log_start_offset());
                Some(ShareOffset {
                    start: in_flight.start(),
                    lag: in_flight.unfinished_before(partition.high_watermark()),
                    partition,
                })
            });
        offsets.collect()
    }

    /// Makes a share group without members, unless there is one; a consumer group is none.
    pub(crate) fn make_share_group(&self, group: &str) -> Result<(), StreamsError> {
        if self.is_share_group(group) || self.groups.describe(group).is_some() {
            return self.check_share_group_at_rest(group);
        }
        let mut offsets = self.offsets.lock();
        offsets.check_settings(group)?;
        if offsets.noted(group).is_some() || offsets.knows(group) {
            drop(offsets);
            return self.check_share_group_at_rest(group);
        }
        let noted = NotedGroup {
            kind: GroupKind::Share,
            protocol_type: SHARE_PROTOCOL_TYPE.to_owned(),
            epoch: 0,
            emptied: Some(self.clock.now()),
        };
        // What follows is durable behind it.
        self.append_durably(&Change::Group {
            group: group.to_owned(),
            noted: noted.clone(),
        })?;
        offsets.note(&Arc::from(group), noted);
        Ok(())
    }

    /// Has a share group without members go on with a partition at `start`; await the answer for
    /// durability.
    pub(crate) fn set_share_offset(
        &self,
        group: &str,
        partition: &Partition,
        start: i64,
    ) -> Result<DurableWait, StreamsError> {
        self.check_share_group_at_rest(group)?;
        let fresh = InFlight::new(start);
        let mut wait = None;
        let shared = self.shares.open(group, partition.number(), |shared| {
            wait = Some(self.append_durably(&shared.standing(&fresh))?);
            Ok(fresh.clone())
        })?;
        if let Some(wait) = wait {
            return Ok(wait);
        }
        let mut held = shared.hold();
        let wait = self.append_durably(&shared.standing(&fresh))?;
        held.set(fresh);
        Ok(wait)
    }

    /// Has a share group without members begin anew with these partitions, once it reads them again;
    /// await the answer for durability.
    pub(crate) fn delete_share_offsets(
        &self,
        group: &str,
        partitions: &[Arc<Partition>],
    ) -> Result<DurableWait, StreamsError> {
        self.check_share_group_at_rest(group)?;
        let known = partitions
            .iter()
            .filter_map(|p| self.shares.of(group, p.number()));
        let known: Vec<Arc<SharePartition>> = known.collect();
        if known.is_empty() {
            return Ok(DurableWait::over());
        }
        let gone = Change::ShareStateGone {
            group: group.to_owned(),
            numbers: known.iter().map(|shared| shared.number).collect(),
        };
        self.shares
            .forget_when(&known, || self.append_durably(&gone))
    }

    /// Whether there is such a share group, with or without members.
    pub(crate) fn is_share_group(&self, group: &str) -> bool {
        let standing = self.group_standing(group);
        self.groups.is_shared(group) || standing.is_some_and(|s| s.kind == GroupKind::Share)
    }

    fn check_share_group_at_rest(&self, group: &str) -> Result<(), StreamsError> {
        let reason = match self.is_share_group(group) {
            true => self.groups.check_delete(group).err(),
            false => Some(GroupError::NotFound),
        };
        match reason {
            None => Ok(()),
            Some(reason) => Err(StreamsError::Group {
                group: group.to_owned(),
                reason,
            }),
        }
    }

    /// The offset that a share group begins to read a partition with.
    fn share_begin(&self, partition: &Partition, begin: ShareBegin) -> Result<i64, StreamsError> {
        match begin {
            ShareBegin::Latest => Ok(partition.high_watermark()),
            ShareBegin::Earliest => Ok(partition.log_start_offset()),
            ShareBegin::Ago(ms) => {
                let since = UnixMillis(self.clock.now().0.saturating_sub(ms));
                let found = partition.offset_for_time(Isolation::Uncommitted, since)?;
                Ok(found.map_or(partition.high_watermark(), |(offset, _)| offset))
            }
        }
    }
}

/// How often one call reads on, behind what others have or what is for nobody.
const LOOKS_MAX: usize = 64;
