//! One source and all the statements on it: each event goes through every statement before the
//! next one does, and its payload is scanned once for all of them.

mod durable;

use std::sync::Arc;
use std::time::Instant;

use base::UnixMillis;
use metrics::counter;
use mqtt::{Delivery, Message, MessageSink, Room, Settled};
use parking_lot::{Mutex, MutexGuard};
use streams::ConsumedRecord;
use tokio::sync::Notify;

use crate::chains::Chains;
use crate::expression::Event;
use crate::formats::{Decoded, Format, decode};
use crate::json::{BadPayload, FieldPath, Scanner};
use crate::lane::{Lane, LaneState};
use crate::limits::EVENTS_PER_TURN_MAX;
use crate::machine::Books;
use crate::plan::Source;
use crate::sinks::{Kind, Letter};
use crate::value::Value;
use durable::Durable;

/// A source that statements share.
pub struct Feed {
    inner: Mutex<Inner>,
    /// Tells held-back sources that a sink took something.
    room: Notify,
    /// Tells the reader that a lane starts before where it reads.
    pub rewind: Notify,
    /// Messages on topics that begin so are no events.
    skipped: Option<String>,
    /// Where messages are kept that its statement took, if it is durable.
    durable: Option<Durable>,
}

struct Inner {
    lanes: Vec<Arc<Lane>>,
    /// Which of its sources this is, statement by statement.
    numbers: Vec<usize>,
    /// What the source is; statements with one source only need not know.
    source: Option<Source>,
    /// Internal streams, where one of the statements writes or reads one.
    chains: Option<Arc<Chains>>,
    is_chained: bool,
    scanner: Scanner,
    /// Counts the changes after which what the reader polled before must not be applied.
    generation: u64,
    format: Format,
    decoded: Decoded,
    /// Whether a statement is being replaced: nothing is taken meanwhile.
    is_held: bool,
    /// Counts events, to time every 32nd.
    timed: u32,
}

impl Feed {
    /// A source of JSON without statements.
    #[cfg(test)]
    pub fn new() -> Self {
        Feed::of(Format::Json, None)
    }

    /// A source without statements; messages on topics that begin with `skipped` are no events.
    pub fn of(format: Format, skipped: Option<String>) -> Self {
        let inner = Inner {
            lanes: Vec::new(),
            numbers: Vec::new(),
            source: None,
            chains: None,
            is_chained: false,
            scanner: Scanner::new([]),
            generation: 0,
            format,
            decoded: Decoded::default(),
            is_held: false,
            timed: 0,
        };
        Feed {
            inner: Mutex::new(inner),
            room: Notify::new(),
            rewind: Notify::new(),
            skipped,
            durable: None,
        }
    }

    /// Says what the source is, and where rows for internal streams go.
    pub fn linked(self, source: Source, chains: Arc<Chains>) -> Self {
        {
            let mut inner = self.inner.lock();
            inner.source = Some(source);
            inner.chains = Some(chains);
        }
        self
    }

    /// Takes nothing until it is let go: what comes is held back.
    pub fn hold(&self) {
        self.inner.lock().is_held = true;
    }

    /// Takes events again.
    pub fn let_go(&self) {
        self.inner.lock().is_held = false;
        self.room.notify_waiters();
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
    pub fn leave(&self, lane: &Arc<Lane>) -> bool {
        let mut inner = self.inner.lock();
        inner.lanes.retain(|known| !Arc::ptr_eq(known, lane));
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
        self.wait_for(|| self.is_full()).await;
    }

    async fn wait_for(&self, is_full: impl Fn() -> bool) {
        loop {
            let notified = self.room.notified();
            let mut notified = std::pin::pin!(notified);
            notified.as_mut().enable();
            let (chains, nobody) = (self.chains(), Notify::new());
            let room = chains.as_ref().map_or(&nobody, |chains| &chains.room);
            let mut chained = std::pin::pin!(room.notified());
            chained.as_mut().enable();
            if !is_full() {
                return;
            }
            tokio::select! {
                () = notified => {}
                () = chained => {}
            }
        }
    }

    /// The internal streams, where its statements write or read one.
    fn chains(&self) -> Option<Arc<Chains>> {
        let inner = self.inner.lock();
        inner.chains.clone().filter(|_| inner.is_chained)
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
        Some(inner.apply_all(turn.iter().map(|record| {
            let event = Event {
                topic: record.topic.display(),
                payload: record.value.as_deref(),
                key: record.key.as_ref(),
                partition: record.partition,
                offset: Some(record.offset),
                timestamp: record.timestamp,
            };
            Some((event, Some(record.offset)))
        })))
    }

    /// Says of every partition whether records wait there, and whether any do; false where it has to
    /// be said again once [`Feed::wait_for_room`] has returned: a statement along the chain is being replaced.
    pub fn set_waiting(&self, is_caught_up: bool, is_waiting: impl Fn(usize) -> bool) -> bool {
        let inner = self.inner.lock();
        let chains = inner.chains.as_ref().filter(|_| inner.is_chained);
        // What closes goes through the chain as if an event had closed it.
        let _gate = chains.map(|chains| chains.enter());
        if inner.is_held && chains.is_some() {
            return false;
        }
        for (lane, number) in inner.lanes.iter().zip(&inner.numbers) {
            let mut state = lane.state.lock();
            let LaneState {
                machine,
                output,
                is_dirty,
                ..
            } = &mut *state;
            let before = output.rows.len();
            machine.set_source_waiting(*number, &is_waiting, output);
            *is_dirty |= output.rows.len() > before;
            state.is_caught_up = is_caught_up;
            if wants_writer(&state) {
                lane.wake.notify_one();
            }
        }
        if let Some(chains) = chains {
            chains.flow(&inner.lanes);
        }
        true
    }

    /// Says on every statement what is wrong with the source, or that nothing is.
    pub fn set_trouble(&self, trouble: Option<&str>) {
        for lane in &self.inner.lock().lanes {
            lane.state.lock().trouble = trouble.map(str::to_owned);
        }
    }

    /// What was retained is the past: an event is what is published now, and after a restart it would
    /// count a second time.
    fn is_event(&self, message: &Message<'_>) -> bool {
        !message.retain && !self.skips(message.topic)
    }

    fn skips(&self, topic: &str) -> bool {
        let skipped = self.skipped.as_deref();
        skipped.is_some_and(|prefix| topic.starts_with(prefix))
    }

    fn is_full(&self) -> bool {
        self.durable.as_ref().is_some_and(Durable::holds_back) || self.is_full_of_rows()
    }

    fn is_full_of_rows(&self) -> bool {
        let inner = self.inner.lock();
        let mut lanes = inner.lanes.iter();
        let chains = inner.chains.as_ref().filter(|_| inner.is_chained);
        inner.is_held
            || lanes.any(|lane| lane.state.lock().holds_back())
            || chains.is_some_and(|chains| chains.is_full())
    }
}

impl MessageSink for Feed {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        if let Some(durable) = &self.durable {
            return self.deliver_durable(durable, batch);
        }
        let mut taken = 0;
        while taken < batch.len() {
            let turn = &batch[taken..batch.len().min(taken + EVENTS_PER_TURN_MAX)];
            let applied = self.inner.lock().apply_all(turn.iter().map(|message| {
                let event = || event_of(message.topic, message.payload, message.received);
                self.is_event(message).then(|| (event(), None))
            }));
            taken += applied;
            if applied < turn.len() {
                return Delivery::HoldBack { taken };
            }
        }
        Delivery::Taken
    }

    fn room(&self) -> Room<'_> {
        Box::pin(async {
            self.flush_input().await;
            self.wait_for_room().await;
        })
    }

    fn settled(&self) -> Option<Settled> {
        self.durable.as_ref()?.log()?.settled()
    }
}

/// An event, and its place in its partition or in its statement's input, where it has one: who has had
/// it is not given it again.
type Placed<'e> = (Event<'e>, Option<i64>);

impl Inner {
    /// Gives every wanted field one slot, and every statement the slots of its fields.
    fn bind(&mut self) {
        let mut numbers = Vec::with_capacity(self.lanes.len());
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
            let of = |source: &Source| lane.plan.sources().iter().position(|own| *own == source);
            let number = self.source.as_ref().and_then(of).unwrap_or(0);
            lane.state.lock().machine.bind_source(number, slots);
            numbers.push(number);
        }
        self.numbers = numbers;
        self.is_chained = self.lanes.iter().any(|lane| lane.is_chained());
        self.scanner = Scanner::new(&fields);
    }

    /// As [`Inner::apply`]; where statements are chained, each event goes through the whole chain
    /// before the next does.
    fn apply_all<'e>(&mut self, mut events: impl Iterator<Item = Option<Placed<'e>>>) -> usize {
        let Some(chains) = self.chains.clone().filter(|_| self.is_chained) else {
            return self.apply(events);
        };
        let _gate = chains.enter();
        let mut done = 0;
        loop {
            if chains.is_full() {
                return done;
            }
            match self.apply(events.by_ref().take(1)) {
                0 => return done,
                applied => done += applied,
            }
            chains.flow(&self.lanes);
        }
    }

    /// Applies events from the front (skipping those that are none) until all are applied or a
    /// statement is full; answers how many are done.
    fn apply<'e>(&mut self, events: impl Iterator<Item = Option<Placed<'e>>>) -> usize {
        if self.is_held {
            return 0;
        }
        let (lanes, numbers) = (&self.lanes, &self.numbers);
        let mut states: Vec<MutexGuard<'_, LaneState>> =
            lanes.iter().map(|lane| lane.state.lock()).collect();
        let before: Vec<Books> = states.iter().map(|state| state.machine.books()).collect();
        let mut values: Vec<Value<'e>> = Vec::new();
        let now = Instant::now();
        let mut done = 0;
        for event in events {
            let is_full =
                |state: &mut MutexGuard<'_, LaneState>| state.output.is_full() && !state.shed();
            if states.iter_mut().any(is_full) {
                break;
            }
            done += 1;
            let Some((event, position)) = event else {
                continue;
            };
            self.timed = (self.timed + 1) % TIMED_EVERY;
            let is_timed = self.timed == 0;
            let Some(payload) = event.payload.filter(|_| self.format != Format::Json) else {
                let scanned = match event.payload {
                    Some(payload) => self.scanner.scan(payload, &mut values),
                    None => {
                        self.scanner.clear(&mut values);
                        Ok(())
                    }
                };
                let scanned = scanned.as_ref().map(|()| values.as_slice());
                apply_one(
                    &event,
                    scanned,
                    (lanes, numbers),
                    &mut states,
                    Turn {
                        now,
                        is_timed,
                        is_last: true,
                        position,
                    },
                );
                continue;
            };
            let arrival = event.timestamp;
            let decoded = &mut self.decoded;
            if let Err(bad) = decode(self.format, event.topic, payload, arrival, decoded) {
                apply_one(
                    &event,
                    Err(&bad),
                    (lanes, numbers),
                    &mut states,
                    Turn {
                        now,
                        is_timed,
                        is_last: true,
                        position,
                    },
                );
                continue;
            }
            let mut values = Vec::new();
            let mut texts = decoded.texts().peekable();
            while let Some(text) = texts.next() {
                let scanned = self.scanner.scan(text, &mut values);
                let scanned = scanned.as_ref().map(|()| values.as_slice());
                let part = Event {
                    payload: Some(text),
                    ..event
                };
                // The position moves on with the last part: all come from one record.
                let is_last = texts.peek().is_none();
                let turn = Turn {
                    now,
                    is_timed,
                    is_last,
                    position,
                };
                apply_one(&part, scanned, (lanes, numbers), &mut states, turn);
            }
        }
        for ((state, before), lane) in states.iter_mut().zip(&before).zip(lanes) {
            tell(lane, state, before, now);
        }
        done
    }
}

/// Tells metrics and the writer what a statement's latest events did.
pub fn tell(lane: &Lane, state: &mut LaneState, before: &Books, now: Instant) {
    count(before, &state.machine.books());
    if !state.output.is_empty() {
        state.waiting_since.get_or_insert(now);
    }
    if wants_writer(state) {
        lane.wake.notify_one();
    }
}

/// The event that a message of MQTT is.
fn event_of<'m>(topic: &'m str, payload: &'m [u8], received: UnixMillis) -> Event<'m> {
    Event {
        topic,
        payload: Some(payload),
        key: None,
        partition: 0,
        offset: None,
        timestamp: received,
    }
}

/// What goes with an event.
#[derive(Clone, Copy)]
struct Turn {
    now: Instant,
    is_timed: bool,
    /// Whether it is its message's last event.
    is_last: bool,
    /// See [`Placed`].
    position: Option<i64>,
}

/// Applies one event to every statement that has not had it.
fn apply_one<'e>(
    event: &Event<'e>,
    scanned: Result<&[Value<'e>], &BadPayload>,
    (lanes, numbers): (&[Arc<Lane>], &[usize]),
    states: &mut [MutexGuard<'_, LaneState>],
    Turn {
        now,
        is_timed,
        is_last,
        position,
    }: Turn,
) {
    for ((state, lane), number) in states.iter_mut().zip(lanes).zip(numbers) {
        let state = &mut **state;
        if let Some(position) = position {
            let partition = usize::try_from(event.partition).unwrap_or(0);
            if partition >= state.positions.len() {
                // It came after the statement, and so all that it holds did.
                state.positions.resize(partition + 1, 0);
            }
            if position < state.positions[partition] {
                continue;
            }
            if is_last {
                state.positions[partition] = position + 1;
            }
        }
        state.is_dirty = true;
        let unused = state.machine.unused_events();
        let began = is_timed.then(Instant::now);
        state
            .machine
            .on_source_event(*number, event, scanned, &mut state.output);
        if let Some(began) = began {
            let spent = began.elapsed() * TIMED_EVERY;
            state.meter.spent(now, spent);
        }
        if state.machine.unused_events() != unused {
            letter(lane, state, event, unused, now);
        }
    }
}

/// Writes a dead letter about an event that was late or could not be computed with.
#[cold]
pub fn letter(
    lane: &Lane,
    state: &mut LaneState,
    event: &Event<'_>,
    (errored, _): (u64, u64),
    now: Instant,
) {
    let Some(letters) = &lane.letters else {
        return;
    };
    let Some(suppressed) = state.budget.take(now) else {
        return;
    };
    let (kind, reason) = match state.machine.unused_events().0 > errored {
        true => (Kind::Error, state.machine.error().unwrap_or_default()),
        false => (Kind::Late, "its window is closed: raise the lateness"),
    };
    let letter = Letter::about(&lane.definition, kind, event, reason, suppressed);
    if !letters.send(letter) {
        state.budget.lost();
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

/// Of so many events one is timed: what computing costs is told without asking the clock each time.
const TIMED_EVERY: u32 = 32;
