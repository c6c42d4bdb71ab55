//! A window's groups: in the order in which they were first seen, found by their keys, with those
//! that changed since the last checkpoint where that is asked.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use crate::aggregate::{Accumulator, Form};

/// One open window, or one that was just closed.
#[derive(Clone, Debug)]
pub struct Window {
    /// Its first millisecond.
    pub start: i64,
    /// The first millisecond after it.
    pub end: i64,
    /// Its groups as first seen.
    pub groups: Vec<Group>,
    index: HashTable<Slot>,
    hasher: RandomState,
    changed: Vec<u32>,
    known: usize,
}

/// One group of a window.
#[derive(Clone, Debug)]
pub struct Group {
    /// The encoded keys, see [`encode_key`](super::encode_key).
    pub key: Arc<[u8]>,
    /// How many events it took.
    pub events: u64,
    /// One per aggregate of the plan.
    pub accumulators: Box<[Accumulator]>,
    /// Whether it is among its window's changed ones.
    is_changed: bool,
}

/// Where a group stands, and half of its key's hash: the table grows without looking at keys.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    place: u32,
}

impl Window {
    /// A window without groups.
    pub fn new(start: i64, end: i64) -> Self {
        Window {
            start,
            end,
            groups: Vec::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            changed: Vec::new(),
            known: 0,
        }
    }

    /// Where the group with that key stands.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let hash = self.hash(key);
        let is_it =
            |slot: &Slot| slot.hash == hash && *self.groups[slot.place as usize].key == *key;
        let slot = self.index.find(spread(hash), is_it)?;
        Some(slot.place as usize)
    }

    /// Adds a group whose key is not there; where it stands.
    pub fn insert(&mut self, key: &[u8], forms: &[Form]) -> usize {
        let place = self.groups.len();
        let slot = Slot {
            hash: self.hash(key),
            place: u32::try_from(place).expect("limits.rs keeps groups below 2^32"),
        };
        let rehash = |slot: &Slot| spread(slot.hash);
        self.index.insert_unique(spread(slot.hash), slot, rehash);
        self.groups.push(Group::new(key.into(), forms));
        place
    }

    /// Notes that a group is about to change.
    pub fn change(&mut self, place: usize) {
        let group = &mut self.groups[place];
        if !group.is_changed {
            group.is_changed = true;
            // The index holds it as a u32.
            self.changed.push(place as u32);
        }
    }

    /// Where the groups stand that changed, and how many groups there were when they began to be
    /// noted.
    pub fn changed(&self) -> (&[u32], usize) {
        (&self.changed, self.known)
    }

    /// From now on changes are noted anew.
    pub fn forget_changes(&mut self) {
        for place in self.changed.drain(..) {
            self.groups[place as usize].is_changed = false;
        }
        self.known = self.groups.len();
    }

    fn hash(&self, key: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(key);
        (hash ^ (hash >> 32)) as u32
    }
}

impl Group {
    /// A group without events.
    pub fn new(key: Arc<[u8]>, forms: &[Form]) -> Self {
        let accumulators = forms.iter().map(|form| Accumulator::of(*form));
        Group {
            key,
            events: 0,
            accumulators: accumulators.collect(),
            is_changed: false,
        }
    }

    /// What [`group_bytes`] said of it.
    pub fn bytes(&self) -> usize {
        let accumulators = self.accumulators.iter().map(Accumulator::bytes);
        GROUP_OVERHEAD_BYTES + self.key.len() + accumulators.sum::<usize>()
    }

    /// Bytes of the values that its accumulators keep.
    pub fn text_bytes(&self) -> usize {
        self.accumulators.iter().map(Accumulator::text_bytes).sum()
    }
}

/// What a group costs beside the values that it keeps, bytes.
pub fn group_bytes(key_bytes: usize, forms: &[Form]) -> usize {
    GROUP_OVERHEAD_BYTES + key_bytes + forms.iter().map(Form::bytes).sum::<usize>()
}

/// The table takes its place from the lowest bits and its tag from the highest.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A group's share of the hash table, its record and its allocations, estimated.
const GROUP_OVERHEAD_BYTES: usize = 120;
