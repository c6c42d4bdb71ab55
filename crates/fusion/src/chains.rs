//! Internal streams: what statements insert goes to all that read it before the next event of a
//! source is taken.
//!
//! Statements that write or read internal streams are chained. Whoever gives events to chained
//! statements (a source, or the clock of one of them) holds the gate, so that one event has gone
//! through a whole chain before the next begins. Chains have no loops, so each ends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use base::UnixMillis;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::expression::Event;
use crate::feed::{letter, tell};
use crate::json::{FieldPath, Scanner};
use crate::lane::{Lane, Target};
use crate::limits::CHAINED_ROWS_MAX;
use crate::plan::{Plan, Source};
use crate::value::Value;

/// The internal streams of one engine.
#[derive(Default)]
pub struct Chains {
    gate: Mutex<()>,
    streams: RwLock<HashMap<String, Stream>>,
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
    }

    /// Passes on what these statements have inserted, and what that makes others insert. The
    /// caller holds the gate and no statement.
    pub fn flow(&self, lanes: &[Arc<Lane>]) {
        let mut passing = VecDeque::new();
        for lane in lanes {
            take(lane, &mut passing);
        }
        if passing.is_empty() {
            return;
        }
        let streams = self.streams.read();
        let now = Instant::now();
        while let Some(row) = passing.pop_front() {
            let Some(stream) = streams.get(&row.stream) else {
                continue;
            };
            let mut values: Vec<Value<'_>> = Vec::new();
            let scanned = stream.scanner.scan(&row.text, &mut values);
            let scanned = scanned.as_ref().map(|()| values.as_slice());
            let event = Event {
                topic: &row.stream,
                payload: Some(&row.text),
                key: None,
                partition: 0,
                offset: None,
                timestamp: row.timestamp,
            };
            for (lane, number) in &stream.readers {
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
                tell(lane, state, &before, now);
                drop(guard);
                take(lane, &mut passing);
            }
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

/// The streams that a plan reads.
pub fn streams_of(plan: &Plan) -> Vec<String> {
    let sources = plan.sources().into_iter();
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
