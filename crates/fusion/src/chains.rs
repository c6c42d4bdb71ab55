//! Internal streams: what statements insert goes to all that read it before the next event of a
//! source is taken.
//!
//! Statements that write or read internal streams are chained. Whoever gives events to chained
//! statements (a source, or the clock of one of them) holds the gate, so that one event has gone
//! through a whole chain before the next begins. Chains have no loops, so each ends.
//!
//! Named windows and tables are kept here by their names. What one event changed in them is told
//! to the statements that read them when all that read the event have had it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use base::UnixMillis;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;

use crate::expression::Event;
use crate::feed::{letter, tell};
use crate::json::{FieldPath, Scanner};
use crate::lane::{Lane, Target};
use crate::limits::CHAINED_ROWS_MAX;
use crate::plan::{Plan, Source};
use crate::query::kept::{Change, Kept, KeptByName};
use crate::value::Value;

/// The internal streams of one engine.
#[derive(Default)]
pub struct Chains {
    /// Tells held-back sources that a statement that reads a stream has room again.
    pub room: Notify,
    /// Whether such a statement was full when it was last looked at.
    is_full: AtomicBool,
    /// Whether one of the statements is being replaced: queries on demand wait.
    is_held: AtomicBool,
    gate: Mutex<()>,
    streams: RwLock<HashMap<String, Stream>>,
    created: RwLock<HashMap<String, Created>>,
}

/// A named window or table and the statement that creates it.
struct Created {
    kept: Arc<Kept>,
    lane: Arc<Lane>,
}

/// Who reads one stream.
struct Stream {
    /// The statements, and which of their sources the stream is.
    readers: Vec<(Arc<Lane>, usize)>,
    scanner: Scanner,
}

/// One row on its way.
struct Passing {
    stream: String,
    text: Vec<u8>,
    timestamp: UnixMillis,
}

impl Chains {
    /// Waits until nobody else gives events to chained statements.
    pub fn enter(&self) -> MutexGuard<'_, ()> {
        self.gate.lock()
    }

    /// Has no query on demand change anything until they are let go; whatever goes along a chain at
    /// the moment has gone through it.
    pub fn hold(&self) {
        let _gate = self.enter();
        self.is_held.store(true, Ordering::Release);
    }

    /// Lets queries on demand change things again.
    pub fn let_go(&self) {
        self.is_held.store(false, Ordering::Release);
        self.made_room();
    }

    /// The gate, once the chains are not held.
    pub async fn entered(&self) -> MutexGuard<'_, ()> {
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            room.as_mut().enable();
            let gate = self.enter();
            if !self.is_held.load(Ordering::Acquire) {
                return gate;
            }
            drop(gate);
            room.await;
        }
    }

    /// Whether a statement that reads a stream is full: then no source gives events to a chain.
    pub fn is_full(&self) -> bool {
        if !self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        let streams = self.streams.read();
        let mut readers = streams.values().flat_map(|stream| &stream.readers);
        let is_full = readers.any(|(lane, _)| lane.state.lock().holds_back());
        self.is_full.store(is_full, Ordering::Relaxed);
        is_full
    }

    /// Says that a statement that reads a stream has room again, or reads it no more.
    pub fn made_room(&self) {
        self.room.notify_waiters();
    }

    /// Lets a statement read its streams.
    pub fn join(&self, lane: &Arc<Lane>) {
        let mut streams = self.streams.write();
        for (number, source) in lane.plan.sources().into_iter().enumerate() {
            if let Source::Stream(name) = source {
                let stream = streams.entry(name.clone()).or_insert_with(|| Stream {
                    readers: Vec::new(),
                    scanner: Scanner::new([]),
                });
                stream.readers.push((lane.clone(), number));
                stream.bind();
            }
        }
    }

    /// A statement reads no more.
    pub fn leave(&self, lane: &Arc<Lane>) {
        let mut streams = self.streams.write();
        streams.retain(|_, stream| {
            let before = stream.readers.len();
            stream
                .readers
                .retain(|(known, _)| !Arc::ptr_eq(known, lane));
            if stream.readers.len() != before {
                stream.bind();
            }
            !stream.readers.is_empty()
        });
        drop(streams);
        self.made_room();
    }

    /// Makes the named window or table of a statement known, where it creates one.
    pub fn create(&self, lane: &Arc<Lane>) {
        let created = lane.state.lock().machine.created().cloned();
        if let Some(kept) = created {
            let lane = lane.clone();
            let name = kept.name().to_owned();
            self.created.write().insert(name, Created { kept, lane });
        }
    }

    /// Forgets the named window or table of a statement.
    pub fn forget(&self, lane: &Arc<Lane>) {
        self.created
            .write()
            .retain(|_, created| !Arc::ptr_eq(&created.lane, lane));
    }

    /// The named windows and tables that there are.
    pub fn kept(&self) -> KeptByName {
        let created = self.created.read();
        let of = |(name, created): (&String, &Created)| (name.clone(), created.kept.clone());
        created.iter().map(of).collect()
    }

    /// Passes on what these statements have inserted and changed, and what that makes others
    /// insert. The caller holds the gate and no statement.
    pub fn flow(&self, lanes: &[Arc<Lane>]) {
        let mut flow = Flow::default();
        for lane in lanes {
            flow.take(lane);
        }
        self.run(flow);
    }

    /// Tells of what changed in a named window or table. The caller holds the gate and no statement.
    pub fn tell_of(&self, kept: &Arc<Kept>) {
        self.run(Flow {
            changed: vec![kept.clone()],
            ..Flow::default()
        });
    }

    fn run(&self, mut flow: Flow) {
        if flow.passing.is_empty() && flow.changed.is_empty() {
            return;
        }
        let (streams, created) = (self.streams.read(), self.created.read());
        let now = Instant::now();
        loop {
            while let Some(kept) = flow.changed.pop() {
                let changes = kept.take_changes();
                let Some(created) = created.get(kept.name()) else {
                    continue;
                };
                let stream = streams.get(kept.name());
                created.touch(now);
                for change in changes {
                    created.tell(&change, now);
                    if let Some(stream) = stream {
                        stream.tell(created, &change, now, &mut flow);
                    }
                }
            }
            if std::mem::take(&mut flow.is_full) {
                self.is_full.store(true, Ordering::Relaxed);
            }
            let Some(row) = flow.passing.pop_front() else {
                return;
            };
            let Some(stream) = streams.get(&row.stream) else {
                continue;
            };
            let only = created.get(&row.stream).map(|created| &created.lane);
            let wanted = |lane: &Arc<Lane>| only.is_none_or(|only| Arc::ptr_eq(only, lane));
            stream.give(&row, &wanted, now, &mut flow);
        }
    }
}

/// What is on its way.
#[derive(Default)]
struct Flow {
    passing: VecDeque<Passing>,
    changed: Vec<Arc<Kept>>,
    /// Whether a statement on the way was full.
    is_full: bool,
}

impl Flow {
    /// Takes what a statement has inserted and changed.
    fn take(&mut self, lane: &Arc<Lane>) {
        if let Some(kept) = &lane.changes
            && kept.has_changes()
            && !self.changed.iter().any(|known| Arc::ptr_eq(known, kept))
        {
            self.changed.push(kept.clone());
        }
        take(lane, &mut self.passing);
    }
}

impl Created {
    /// Sees to it that the change is in the statement's next checkpoint.
    fn touch(&self, now: Instant) {
        let mut guard = self.lane.state.lock();
        let state = &mut *guard;
        let before = state.machine.books();
        state.is_dirty = true;
        tell(&self.lane, state, &before, now);
    }

    /// Lets the statement that creates it tell of a change, to whoever looks.
    fn tell(&self, change: &Change, now: Instant) {
        let mut guard = self.lane.state.lock();
        let state = &mut *guard;
        let before = state.machine.books();
        state.machine.tell_change(change, &mut state.output);
        let output = std::mem::take(&mut state.output);
        if let Some(tap) = self.lane.tap.get() {
            tap.show(output.texts().map(bytes::Bytes::copy_from_slice));
        }
        let rows = output.rows.len() as u64;
        state.machine.delivered(rows, output.events());
        tell(&self.lane, state, &before, now);
    }
}

impl Stream {
    /// Gives a row to those of the readers that are wanted.
    fn give(
        &self,
        row: &Passing,
        wanted: &dyn Fn(&Arc<Lane>) -> bool,
        now: Instant,
        flow: &mut Flow,
    ) {
        let mut values: Vec<Value<'_>> = Vec::new();
        let scanned = self.scanner.scan(&row.text, &mut values);
        let scanned = scanned.as_ref().map(|()| values.as_slice());
        let event = Event {
            topic: &row.stream,
            payload: Some(&row.text),
            key: None,
            partition: 0,
            offset: None,
            timestamp: row.timestamp,
        };
        for (lane, number) in &self.readers {
            if !wanted(lane) {
                continue;
            }
            let mut guard = lane.state.lock();
            let state = &mut *guard;
            let before = state.machine.books();
            let unused = state.machine.unused_events();
            state.is_dirty = true;
            let output = &mut state.output;
            state
                .machine
                .on_source_event(*number, &event, scanned, output);
            if state.machine.unused_events() != unused {
                letter(lane, state, &event, unused, now);
            }
            flow.is_full |= state.output.is_full() && !state.shed();
            tell(lane, state, &before, now);
            drop(guard);
            flow.take(lane);
        }
    }

    /// Tells the readers of a named window of a change: as it is, or what is new as events.
    fn tell(&self, created: &Created, change: &Change, now: Instant, flow: &mut Flow) {
        let takes_changes = |lane: &Arc<Lane>, number: usize| {
            let state = lane.state.lock();
            state.machine.takes_changes(number)
        };
        for (lane, number) in &self.readers {
            if Arc::ptr_eq(lane, &created.lane) || !takes_changes(lane, *number) {
                continue;
            }
            let mut guard = lane.state.lock();
            let state = &mut *guard;
            let before = state.machine.books();
            state.is_dirty = true;
            state.machine.on_change(*number, change, &mut state.output);
            flow.is_full |= state.output.is_full() && !state.shed();
            tell(lane, state, &before, now);
            drop(guard);
            flow.take(lane);
        }
        let wanted = |lane: &Arc<Lane>| {
            let number = self
                .readers
                .iter()
                .find(|(known, _)| Arc::ptr_eq(known, lane));
            let takes = number.is_some_and(|(_, number)| takes_changes(lane, *number));
            !Arc::ptr_eq(lane, &created.lane) && !takes
        };
        if !self.readers.iter().any(|(lane, _)| wanted(lane)) {
            return;
        }
        for row in &change.new {
            let row = Passing {
                stream: created.kept.name().to_owned(),
                text: created.kept.text(row),
                timestamp: UnixMillis(change.now),
            };
            self.give(&row, &wanted, now, flow);
        }
    }
}

impl Stream {
    /// Gives every wanted field one slot, and every reader the slots of its fields.
    fn bind(&mut self) {
        let mut fields: Vec<FieldPath> = Vec::new();
        let mut places = HashMap::new();
        for (lane, number) in &self.readers {
            let slots = lane.plan.fields.iter().map(|field| {
                *places.entry(field.clone()).or_insert_with(|| {
                    fields.push(field.clone());
                    fields.len() - 1
                })
            });
            let slots = slots.collect();
            lane.state.lock().machine.bind_source(*number, slots);
        }
        self.scanner = Scanner::new(&fields);
    }
}

/// Takes the rows that a statement has inserted since the last time. Rows that go nowhere else are
/// delivered by that; others wait for the writer too.
fn take(lane: &Arc<Lane>, passing: &mut VecDeque<Passing>) {
    if !lane.inserts() {
        return;
    }
    let mut guard = lane.state.lock();
    let state = &mut *guard;
    let mut given_up = 0;
    for (row, text) in state
        .output
        .rows
        .iter()
        .zip(state.output.texts())
        .skip(state.routed)
    {
        if row.is_old {
            continue;
        }
        if passing.len() >= CHAINED_ROWS_MAX {
            given_up += 1;
            continue;
        }
        for target in &lane.targets {
            if let Target::Stream(stream) = target {
                passing.push_back(Passing {
                    stream: stream.clone(),
                    text: text.to_vec(),
                    timestamp: row.timestamp,
                });
            }
        }
    }
    if lane.inserts_only() {
        if let Some(tap) = lane.tap.get() {
            tap.show(state.output.texts().map(bytes::Bytes::copy_from_slice));
        }
        let output = std::mem::take(&mut state.output);
        state
            .machine
            .delivered(output.rows.len() as u64, output.events());
        state.waiting_since = None;
        state.routed = 0;
    } else {
        state.routed = state.output.rows.len();
    }
    if given_up > 0 {
        let why = format!(
            "{given_up} rows were not passed on: one event may make {CHAINED_ROWS_MAX} rows on \
             internal streams at most"
        );
        state.machine.given_up(0, &why);
    }
}

/// True when rows would come back to the statement that made them: `edges` are the streams that
/// each other statement reads and writes.
pub fn closes_loop(
    reads: &[String],
    writes: &[String],
    edges: &[(Vec<String>, Vec<String>)],
) -> bool {
    let mut reached: HashSet<&String> = HashSet::new();
    let mut next: Vec<&String> = writes.iter().collect();
    while let Some(stream) = next.pop() {
        if reads.contains(stream) {
            return true;
        }
        if !reached.insert(stream) {
            continue;
        }
        for (reads, writes) in edges {
            if reads.contains(stream) {
                next.extend(writes);
            }
        }
    }
    false
}

/// Those of `others` from which rows or changes come to a statement along chains.
pub fn above(lane: &Lane, others: Vec<Arc<Lane>>) -> Vec<Arc<Lane>> {
    let streams = |lane: &Lane| -> Vec<String> {
        let sources = lane.plan.sources().into_iter();
        let name = |source: &Source| match source {
            Source::Stream(name) => Some(name.clone()),
            _ => None,
        };
        sources.filter_map(name).collect()
    };
    let (mut names, mut above, mut rest) = (streams(lane), Vec::new(), others);
    loop {
        let gives = |other: &Arc<Lane>| {
            let changes = other.changes.as_ref().map(|kept| kept.name());
            let inserts = other.targets.iter().filter_map(Target::stream);
            let mut given = inserts.chain(changes);
            given.any(|given| names.iter().any(|name| name == given))
        };
        let (found, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(gives);
        if found.is_empty() {
            return above;
        }
        rest = others;
        names.extend(found.iter().flat_map(|lane| streams(lane)));
        above.extend(found);
    }
}

/// The streams whose rows make a plan do something.
pub fn streams_of(plan: &Plan) -> Vec<String> {
    let sources = plan.triggers().into_iter();
    sources
        .filter_map(|source| match source {
            Source::Stream(name) => Some(name.clone()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_found_over_any_number_of_statements() {
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let edges = vec![
            (names(&["a"]), names(&["b"])),
            (names(&["b"]), names(&["c"])),
        ];
        assert!(closes_loop(&names(&["c"]), &names(&["a"]), &edges));
        assert!(closes_loop(&names(&["x"]), &names(&["x"]), &[]));
        assert!(!closes_loop(&names(&["c"]), &names(&["d"]), &edges));
        assert!(!closes_loop(&names(&["a"]), &names(&["c"]), &edges));
        assert!(!closes_loop(&[], &names(&["a"]), &edges));
    }
}
