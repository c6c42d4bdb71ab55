//! Share groups (KIP-932): any number of members read the same partitions, each record goes to one of
//! them at a time, and comes back until somebody has dealt with it or it was delivered too often.
//!
//! Who the members are and which partitions each is told of, the coordinator decides
//! (`groups::share_group`). Here is what of each partition is on its way in each group: [`InFlight`]
//! decides, without a clock or locks; [`Shares`] keeps the partitions of all groups; `store::shares`
//! reads records for members and writes what must survive into the journal.
//!
//! What is promised: an acknowledgement that was answered is on the disk, so that what it accepted or
//! rejected is not delivered again. A member that goes away, or is silent for too long, gives its
//! records back. What is available, acquired and how often it was delivered is as it was at the last
//! acknowledgement when the process ends at once: a record may come once more, none is left out.

mod in_flight;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

pub(crate) use in_flight::{Claim, InFlight, Standing, joined};

use crate::error::StreamsError;
use crate::frames::Change;
use crate::limits::SHARE_PARTITIONS_MAX;
use crate::signal::Signal;

/// What a member says of consecutive records: one fate for all, or one for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) fates: Vec<Fate>,
}

/// What is to become of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// There is no such record.
    Gap,
    /// It was dealt with.
    Accept,
    /// Somebody may have it again.
    Release,
    /// Nobody can deal with it.
    Reject,
    /// It takes longer.
    Renew,
}

/// Records that a member has acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acquired {
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// How often each was delivered, this time included.
    pub(crate) deliveries: u16,
}

/// Why an acknowledgement counts for nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcknowledgeError {
    /// Some of the records are not the member's: its time was over, or they never were.
    #[error("records are not acquired by the member")]
    NotAcquired,
    /// The group or its state is gone.
    #[error("the group does not read the partition")]
    Gone,
    /// The store's reason.
    #[error(transparent)]
    Store(#[from] StreamsError),
}

/// The share partitions of all groups.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    groups: Mutex<Groups>,
    sessions: Mutex<Sessions>,
}

/// Which session of a member counts: what it has acquired ends with that one.
#[derive(Debug, Default)]
struct Sessions {
    newest: HashMap<(Arc<str>, Arc<str>), u64>,
    begun: u64,
}

#[derive(Debug, Default)]
struct Groups {
    by_name: HashMap<Arc<str>, HashMap<u32, Arc<SharePartition>>>,
    partitions: usize,
}

/// A partition as one group sees it.
#[derive(Debug)]
pub(crate) struct SharePartition {
    pub(crate) group: Arc<str>,
    /// The partition's number in the store.
    pub(crate) number: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// None once the group has let go of it: nothing of it is written any more.
    in_flight: Option<InFlight>,
    /// Who waits for records of it.
    waiting: Vec<Arc<Signal>>,
}

/// A share partition that nobody else looks at meanwhile.
pub(crate) struct Held<'a>(MutexGuard<'a, State>);

/// Has a [`Signal`] told when records of a share partition may be acquired again, until dropped.
pub(crate) struct ShareWatch {
    partition: Arc<SharePartition>,
    signal: Arc<Signal>,
}

impl Fate {
    /// By its number on the wire.
    pub(crate) fn of_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(Fate::Gap),
            1 => Some(Fate::Accept),
            2 => Some(Fate::Release),
            3 => Some(Fate::Reject),
            4 => Some(Fate::Renew),
            _ => None,
        }
    }
}

impl Acknowledgement {
    /// Whether it says of each record what is to become of it.
    pub(crate) fn is_whole(&self) -> bool {
        let count = self.last.checked_sub(self.first);
        let count = count.filter(|count| *count >= 0 && self.first >= 0);
        let told = i64::try_from(self.fates.len()).unwrap_or(i64::MAX);
        count.is_some_and(|count| told == 1 || told - 1 == count)
    }

    /// First offset, last offset and what is to become of them; neighbours of one fate together.
    pub(crate) fn fates(&self) -> impl Iterator<Item = (i64, i64, Fate)> + '_ {
        let mut at = self.first;
        self.fates.chunk_by(|a, b| a == b).map(move |alike| {
            let first = at;
            at += alike.len() as i64;
            let last = match self.fates.len() {
                1 => self.last,
                _ => at - 1,
            };
            (first, last, alike[0])
        })
    }
}

impl Shares {
    /// As they stood, by group and number of partition.
    pub(crate) fn replayed(standings: HashMap<String, HashMap<u32, Standing>>) -> Self {
        let mut groups = Groups::default();
        for (name, partitions) in standings {
            let name: Arc<str> = Arc::from(name);
            for (number, standing) in partitions {
                let in_flight = InFlight::of_standing(&standing);
                let fresh = SharePartition::new(Arc::clone(&name), number, Some(in_flight));
                // What was written was within the bound.
                let _ = groups.insert(&Arc::new(fresh));
            }
        }
        Shares {
            groups: Mutex::new(groups),
            sessions: Mutex::default(),
        }
    }

    /// A partition of a group, if the group has begun to read it.
    pub(crate) fn of(&self, group: &str, number: u32) -> Option<Arc<SharePartition>> {
        let groups = self.groups.lock();
        groups.by_name.get(group)?.get(&number).cloned()
    }

    /// A partition of a group; `begin` says how it stands when the group has not begun to read it.
    ///
    /// # Errors
    /// Those of `begin`; `Limit` when too many are kept.
    pub(crate) fn open(
        &self,
        group: &str,
        number: u32,
        begin: impl FnOnce(&Arc<SharePartition>) -> Result<InFlight, StreamsError>,
    ) -> Result<Arc<SharePartition>, StreamsError> {
        if let Some(known) = self.of(group, number) {
            return Ok(known);
        }
        let fresh = Arc::new(SharePartition::new(Arc::from(group), number, None));
        // Held until it has begun: whoever else finds it waits for that.
        let mut state = fresh.state.lock();
        {
            let mut groups = self.groups.lock();
            let known = groups.by_name.get(group).and_then(|all| all.get(&number));
            if let Some(known) = known {
                return Ok(Arc::clone(known));
            }
            groups.insert(&fresh)?;
        }
        match begin(&fresh) {
            Ok(in_flight) => {
                state.in_flight = Some(in_flight);
                drop(state);
                Ok(fresh)
            }
            Err(error) => {
                drop(state);
                self.groups.lock().remove(&fresh);
                Err(error)
            }
        }
    }

    /// The partitions of a group, by their numbers.
    pub(crate) fn of_group(&self, group: &str) -> Vec<Arc<SharePartition>> {
        let groups = self.groups.lock();
        let all = groups.by_name.get(group).into_iter();
        let mut all: Vec<Arc<SharePartition>> = all.flat_map(HashMap::values).cloned().collect();
        all.sort_by_key(|partition| partition.number);
        all
    }

    /// The groups that have begun to read something, in order.
    pub(crate) fn groups(&self) -> Vec<Arc<str>> {
        let groups = self.groups.lock();
        let mut names: Vec<Arc<str>> = groups.by_name.keys().cloned().collect();
        names.sort();
        names
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<SharePartition>> {
        let groups = self.groups.lock();
        let all = groups.by_name.values().flat_map(HashMap::values);
        all.cloned().collect()
    }

    /// Lets go of partitions of a group while nobody looks at any, once `write` has said so.
    ///
    /// # Errors
    /// Those of `write`; then all stay.
    pub(crate) fn forget_when<T>(
        &self,
        partitions: &[Arc<SharePartition>],
        write: impl FnOnce() -> Result<T, StreamsError>,
    ) -> Result<T, StreamsError> {
        // Nobody else holds more than one of a group at a time.
        let held: Vec<Held<'_>> = partitions
            .iter()
            .map(|partition| partition.hold())
            .collect();
        let written = write()?;
        held.into_iter().for_each(Held::end);
        let mut groups = self.groups.lock();
        partitions
            .iter()
            .for_each(|partition| groups.remove(partition));
        Ok(written)
    }

    /// Lets go of the partitions of these numbers, in any group.
    pub(crate) fn forget_numbers(&self, is_among: impl Fn(u32) -> bool) {
        for partition in self.all() {
            if is_among(partition.number) {
                self.forget(&partition);
            }
        }
    }

    /// Has a member go on with a session; answers its number.
    pub(crate) fn begin_session(&self, group: &Arc<str>, member: &Arc<str>) -> u64 {
        let mut sessions = self.sessions.lock();
        sessions.begun += 1;
        let number = sessions.begun;
        let of = (Arc::clone(group), Arc::clone(member));
        sessions.newest.insert(of, number);
        number
    }

    /// Ends a session; whether the member has gone on with no other meanwhile.
    pub(crate) fn end_session(&self, group: &Arc<str>, member: &Arc<str>, number: u64) -> bool {
        let mut sessions = self.sessions.lock();
        let of = (Arc::clone(group), Arc::clone(member));
        let is_newest = sessions.newest.get(&of) == Some(&number);
        if is_newest {
            sessions.newest.remove(&of);
        }
        is_newest
    }

    /// Lets go of one; those who wait for records of it look again.
    fn forget(&self, partition: &Arc<SharePartition>) {
        partition.hold().end();
        self.groups.lock().remove(partition);
    }
}

impl Groups {
    fn insert(&mut self, partition: &Arc<SharePartition>) -> Result<(), StreamsError> {
        if self.partitions >= SHARE_PARTITIONS_MAX {
            return Err(StreamsError::Limit {
                what: "partitions that share groups read",
                max: SHARE_PARTITIONS_MAX as u64,
            });
        }
        let group = self
            .by_name
            .entry(Arc::clone(&partition.group))
            .or_default();
        if group
            .insert(partition.number, Arc::clone(partition))
            .is_none()
        {
            self.partitions += 1;
        }
        Ok(())
    }

    fn remove(&mut self, partition: &Arc<SharePartition>) {
        let Some(group) = self.by_name.get_mut(&partition.group) else {
            return;
        };
        let held = group.get(&partition.number);
        if held.is_some_and(|held| Arc::ptr_eq(held, partition)) {
            group.remove(&partition.number);
            self.partitions -= 1;
        }
        if group.is_empty() {
            self.by_name.remove(&partition.group);
        }
    }
}

impl SharePartition {
    fn new(group: Arc<str>, number: u32, in_flight: Option<InFlight>) -> Self {
        let waiting = Vec::new();
        SharePartition {
            group,
            number,
            state: Mutex::new(State { in_flight, waiting }),
        }
    }

    /// Looks at it while nobody else does.
    pub(crate) fn hold(&self) -> Held<'_> {
        Held(self.state.lock())
    }

    /// What is written of it when this is on its way.
    pub(crate) fn standing(&self, in_flight: &InFlight) -> Change {
        Change::ShareState {
            group: self.group.as_ref().to_owned(),
            number: self.number,
            standing: in_flight.standing(),
        }
    }

    /// Has `signal` told when records may be acquired again. Watch first, then look, then wait.
    pub(crate) fn watch(self: &Arc<Self>, signal: &Arc<Signal>) -> ShareWatch {
        self.state.lock().waiting.push(Arc::clone(signal));
        ShareWatch {
            partition: Arc::clone(self),
            signal: Arc::clone(signal),
        }
    }
}

impl Held<'_> {
    /// What is on its way; none when the group has let go of the partition.
    pub(crate) fn in_flight(&mut self) -> Option<&mut InFlight> {
        self.0.in_flight.as_mut()
    }

    /// Has those look again who wait for records.
    pub(crate) fn tell(&self) {
        self.0.waiting.iter().for_each(|signal| signal.tell());
    }

    /// Begins anew.
    pub(crate) fn set(&mut self, in_flight: InFlight) {
        self.0.in_flight = Some(in_flight);
        self.tell();
    }

    fn end(mut self) {
        self.0.in_flight = None;
        self.tell();
    }
}

impl Drop for ShareWatch {
    fn drop(&mut self) {
        let mut state = self.partition.state.lock();
        let mut waiting = state.waiting.iter();
        let at = waiting.position(|signal| Arc::ptr_eq(signal, &self.signal));
        if let Some(at) = at {
            state.waiting.swap_remove(at);
        }
    }
}
