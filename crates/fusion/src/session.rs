//! Session windows: of each group its own, from an event until no other has come for so long.
//!
//! A session spans its events' times and the gap after the last. Events within the lateness may
//! come in any order: one that lies between two sessions makes them one, and what they accumulated
//! is brought together as if it had come in order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::aggregate::{Accumulator, Form};
use crate::codec::{Decoder, Encoder};
use crate::window::Group;

/// The open sessions of one statement.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    gap_ms: i64,
    open: BTreeMap<u64, Session>,
    /// The sessions of each key, in order of time.
    keys: HashMap<Arc<[u8]>, Vec<u64>>,
    /// In the order in which they end; those that end together, of their keys.
    ends: BTreeSet<(i64, Arc<[u8]>, u64)>,
    next: u64,
}

#[derive(Clone, Debug)]
struct Session {
    start: i64,
    end: i64,
    group: Group,
}

impl Sessions {
    /// None open; a session ends so long after its last event.
    pub fn new(gap_ms: i64) -> Self {
        Sessions {
            gap_ms,
            ..Sessions::default()
        }
    }

    /// True when an event of that time and key would open a session that ends by `floor`.
    pub fn is_late(&self, time: i64, key: &[u8], floor: i64) -> bool {
        let end = time.saturating_add(self.gap_ms);
        end <= floor && self.touching(time, key).is_empty()
    }

    /// True when an event of that time and key opens a session of its own.
    pub fn opens(&self, time: i64, key: &[u8]) -> bool {
        self.touching(time, key).is_empty()
    }

    /// The session of an event, longer now where it was open; several that it lies between become
    /// one, and the texts of those are told to `gone`.
    pub fn take(
        &mut self,
        time: i64,
        key: &[u8],
        forms: &[Form],
        mut gone: impl FnMut(&Group),
    ) -> &mut Group {
        let touching = self.touching(time, key);
        let id = match touching.first() {
            None => self.open(time, key, forms),
            Some(id) => *id,
        };
        for other in touching.iter().skip(1) {
            if let Some(other) = self.close(*other) {
                gone(&other.group);
                if let Some(session) = self.open.get_mut(&id) {
                    self.ends.remove(&session.place(id));
                    session.join(other);
                    self.ends.insert(session.place(id));
                }
            }
        }
        let end = time.saturating_add(self.gap_ms);
        let session = self.open.get_mut(&id).expect("it was found or opened");
        session.start = session.start.min(time);
        if end > session.end {
            self.ends.remove(&session.place(id));
            session.end = end;
            self.ends.insert(session.place(id));
        }
        &mut session.group
    }

    /// When the first of them ends.
    pub fn first_end(&self) -> Option<i64> {
        self.ends.first().map(|(end, ..)| *end)
    }

    /// Takes the first that ends by `floor`: its start, its end and its group.
    pub fn pop_closed(&mut self, floor: i64) -> Option<(i64, i64, Group)> {
        let (end, _, id) = self.ends.first()?;
        let (end, id) = (*end, *id);
        if end > floor {
            return None;
        }
        let session = self.close(id)?;
        Some((session.start, session.end, session.group))
    }

    /// The groups of the open sessions.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.open.values().map(|session| &session.group)
    }

    /// Writes them.
    pub fn encode(&self, out: &mut Encoder) {
        out.count(self.open.len());
        for session in self.open.values() {
            out.i64(session.start);
            out.i64(session.end);
            out.bytes(&session.group.key);
            out.u64(session.group.events);
            let accumulators = session.group.accumulators.iter();
            accumulators.for_each(|accumulator| accumulator.encode(out));
        }
    }

    /// Reads them back.
    pub fn decode(&mut self, forms: &[Form], from: &mut Decoder<'_>) -> Option<()> {
        for _ in 0..from.count()? {
            let (start, end) = (from.i64()?, from.i64()?);
            let id = self.open(start, from.bytes()?, forms);
            let events = from.u64()?;
            let session = self.open.get_mut(&id)?;
            self.ends.remove(&session.place(id));
            session.end = end;
            self.ends.insert(session.place(id));
            session.group.events = events;
            for (accumulator, form) in session.group.accumulators.iter_mut().zip(forms) {
                *accumulator = Accumulator::decode(*form, from)?;
            }
        }
        Some(())
    }

    /// The key's sessions that an event of that time belongs to, the earliest first.
    fn touching(&self, time: i64, key: &[u8]) -> Vec<u64> {
        let end = time.saturating_add(self.gap_ms);
        let mut touching: Vec<(i64, u64)> = self
            .keys
            .get(key)
            .into_iter()
            .flatten()
            .filter_map(|id| Some((*id, self.open.get(id)?)))
            .filter(|(_, session)| time < session.end && session.start < end)
            .map(|(id, session)| (session.start, id))
            .collect();
        touching.sort_unstable();
        touching.into_iter().map(|(_, id)| id).collect()
    }

    fn open(&mut self, time: i64, key: &[u8], forms: &[Form]) -> u64 {
        let id = self.next;
        self.next += 1;
        let key: Arc<[u8]> = key.into();
        let end = time.saturating_add(self.gap_ms);
        let group = Group::new(key.clone(), forms);
        let session = Session {
            start: time,
            end,
            group,
        };
        self.keys.entry(key).or_default().push(id);
        self.ends.insert(session.place(id));
        self.open.insert(id, session);
        id
    }

    fn close(&mut self, id: u64) -> Option<Session> {
        let session = self.open.remove(&id)?;
        self.ends.remove(&session.place(id));
        if let Some(ids) = self.keys.get_mut(&session.group.key) {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                self.keys.remove(&session.group.key);
            }
        }
        Some(session)
    }
}

impl Session {
    /// Where it stands among the ends.
    fn place(&self, id: u64) -> (i64, Arc<[u8]>, u64) {
        (self.end, self.group.key.clone(), id)
    }

    /// Takes over what a later one has.
    fn join(&mut self, later: Session) {
        self.end = self.end.max(later.end);
        self.group.events += later.group.events;
        let pairs = self.group.accumulators.iter_mut();
        for (own, later) in pairs.zip(&later.group.accumulators) {
            own.join(later);
        }
    }
}
