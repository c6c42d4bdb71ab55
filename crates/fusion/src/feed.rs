//! One source and all the statements on it: each event goes through every statement before the
//! next one does, and its payload is scanned once for all of them.

use std::sync::Arc;

use metrics::counter;
use mqtt::{Delivery, Message, MessageSink, Room};
use parking_lot::{Mutex, MutexGuard};
use streams::ConsumedRecord;
use tokio::sync::Notify;

use crate::expression::Event;
use crate::json::{FieldPath, Scanner};
use crate::lane::{Lane, LaneState};
use crate::limits::EVENTS_PER_TURN_MAX;
use crate::machine::Books;
use crate::value::Value;

/// A source that statements share.
pub struct Feed {
    inner: Mutex<Inner>,
    /// Tells held-back sources that a sink took something.
    room: Notify,
    /// Tells the reader that a lane starts before where it reads.
    pub rewind: Notify,
}

struct Inner {
    lanes: Vec<Arc<Lane>>,
    scanner: Scanner,
    /// Counts the changes after which what the reader polled before must not be applied.
    generation: u64,
}

impl Feed {
    /// A source without statements.
    pub fn new() -> Self {
        let inner = Inner {
            lanes: Vec::new(),
            scanner: Scanner::new([]),
            generation: 0,
        };
        Feed {
            inner: Mutex::new(inner),
            room: Notify::new(),
            rewind: Notify::new(),
        }
    }

    /// Adds statements.
    pub fn join(&self, lanes: impl IntoIterator<Item = Arc<Lane>>) {
        let mut inner = self.inner.lock();
        inner.lanes.extend(lanes);
        inner.bind();
        inner.generation += 1;
        self.rewind.notify_one();
    }

    /// Removes a statement; true when none is left.
    pub fn leave(&self, id: &str) -> bool {
        let mut inner = self.inner.lock();
        inner.lanes.retain(|lane| lane.definition.id != id);
        inner.bind();
        // A lane that was full may have held the others back.
        self.room.notify_waiters();
        inner.lanes.is_empty()
    }

    /// Says that a sink took what waited.
    pub fn made_room(&self) {
        self.room.notify_waiters();
    }

    /// Waits until no statement is full.
    pub async fn wait_for_room(&self) {
        loop {
            let notified = self.room.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            if !self.is_full() {
                return;
            }
            notified.await;
        }
    }

    /// The generation of the statements, and the least offset that one of them wants next of each
    /// partition.
    pub fn positions(&self) -> (u64, Vec<i64>) {
        let inner = self.inner.lock();
        let mut least: Vec<i64> = Vec::new();
        for lane in &inner.lanes {
            let state = lane.state.lock();
            for (partition, position) in state.positions.iter().enumerate() {
                match least.get_mut(partition) {
                    Some(known) => *known = (*known).min(*position),
                    None => least.push(*position),
                }
            }
        }
        (inner.generation, least)
    }

    /// Applies records from the front; answers how many, which is less than all when a statement
    /// is full, or `None` when the statements changed since `generation`.
    pub fn apply_records(&self, generation: u64, records: &[ConsumedRecord]) -> Option<usize> {
        let mut inner = self.inner.lock();
        if inner.generation != generation {
            return None;
        }
        let turn = &records[..records.len().min(EVENTS_PER_TURN_MAX)];
        Some(inner.apply(turn.iter().map(|record| {
            Some(Event {
                topic: record.topic.display(),
                payload: record.value.as_deref(),
                key: record.key.as_ref(),
                partition: record.partition,
                offset: Some(record.offset),
                timestamp: record.timestamp,
            })
        })))
    }

    /// Says of every partition whether records wait there, and whether any do.
    pub fn set_waiting(&self, is_caught_up: bool, is_waiting: impl Fn(usize) -> bool) {
        let inner = self.inner.lock();
        for lane in &inner.lanes {
            let mut state = lane.state.lock();
            let LaneState {
                machine, output, ..
            } = &mut *state;
            machine.set_waiting(&is_waiting, output);
            state.is_caught_up = is_caught_up;
            if wants_writer(&state) {
                lane.wake.notify_one();
            }
        }
    }

    /// Says on every statement what is wrong with the source, or that nothing is.
    pub fn set_trouble(&self, trouble: Option<&str>) {
        for lane in &self.inner.lock().lanes {
            lane.state.lock().trouble = trouble.map(str::to_owned);
        }
    }

    fn is_full(&self) -> bool {
        self.inner
            .lock()
            .lanes
            .iter()
            .any(|lane| lane.state.lock().output.is_full())
    }
}

impl MessageSink for Feed {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        let mut taken = 0;
        while taken < batch.len() {
            let turn = &batch[taken..batch.len().min(taken + EVENTS_PER_TURN_MAX)];
            let applied = self.inner.lock().apply(turn.iter().map(|message| {
                // What was retained is the past: an event is what is published now, and after a
                // restart it would count a second time.
                (!message.retain).then_some(Event {
                    topic: message.topic,
                    payload: Some(message.payload),
                    key: None,
                    partition: 0,
                    offset: None,
                    timestamp: message.received,
                })
            }));
            taken += applied;
            if applied < turn.len() {
                return Delivery::HoldBack { taken };
            }
        }
        Delivery::Taken
    }

    fn room(&self) -> Room<'_> {
        Box::pin(self.wait_for_room())
    }
}

impl Inner {
    /// Gives every wanted field one slot, and every statement the slots of its fields.
    fn bind(&mut self) {
        let mut fields: Vec<FieldPath> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for lane in &self.lanes {
            let slots = lane.plan.fields.iter().map(|field| {
                *places.entry(field.clone()).or_insert_with(|| {
                    fields.push(field.clone());
                    fields.len() - 1
                })
            });
            let slots = slots.collect();
            lane.state.lock().machine.bind(slots);
        }
        self.scanner = Scanner::new(&fields);
    }

    /// Applies events from the front (skipping those that are none) until all are applied or a
    /// statement is full; answers how many are done.
    fn apply<'e>(&mut self, events: impl Iterator<Item = Option<Event<'e>>>) -> usize {
        let mut states: Vec<MutexGuard<'_, LaneState>> =
            self.lanes.iter().map(|lane| lane.state.lock()).collect();
        let before: Vec<Books> = states.iter().map(|state| state.machine.books()).collect();
        let mut values: Vec<Value<'e>> = Vec::new();
        let mut done = 0;
        for event in events {
            if states.iter().any(|state| state.output.is_full()) {
                break;
            }
            done += 1;
            let Some(event) = event else { continue };
            let scanned = match event.payload {
                Some(payload) => self.scanner.scan(payload, &mut values),
                None => {
                    self.scanner.clear(&mut values);
                    Ok(())
                }
            };
            for state in &mut states {
                let LaneState {
                    machine,
                    output,
                    positions,
                    is_dirty,
                    ..
                } = &mut **state;
                if let Some(offset) = event.offset {
                    let partition = usize::try_from(event.partition).unwrap_or(0);
                    if partition >= positions.len() {
                        // It came after the statement, and so all that it holds did.
                        positions.resize(partition + 1, 0);
                    }
                    if offset < positions[partition] {
                        continue;
                    }
                    positions[partition] = offset + 1;
                }
                *is_dirty = true;
                let scanned = scanned.as_ref().map(|()| values.as_slice());
                machine.on_event(&event, scanned, output);
            }
        }
        for ((state, before), lane) in states.iter().zip(&before).zip(&self.lanes) {
            count(before, &state.machine.books());
            if wants_writer(state) {
                lane.wake.notify_one();
            }
        }
        done
    }
}

/// True when the writer has rows to send, or should set an (earlier) alarm.
fn wants_writer(state: &LaneState) -> bool {
    if !state.output.is_empty() {
        return true;
    }
    let clock = if state.is_caught_up {
        state.machine.next_clock()
    } else {
        None
    };
    match (state.alarm, clock) {
        (None, _) => state.is_dirty || clock.is_some(),
        (Some(alarm), Some(clock)) => clock < alarm,
        (Some(_), None) => false,
    }
}

/// Adds what changed to the process's metrics, once per batch.
fn count(before: &Books, after: &Books) {
    let changes = [
        ("received", after.received - before.received),
        ("filtered", after.filtered - before.filtered),
        ("errored", after.errored - before.errored),
        ("late", after.late - before.late),
        ("dropped", after.dropped - before.dropped),
    ];
    for (outcome, change) in changes {
        if change > 0 {
            counter!("thalweg_fusion_events_total", "outcome" => outcome).increment(change);
        }
    }
}
