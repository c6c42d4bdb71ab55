//! One data window: what it keeps, what enters and what leaves, and when.
//!
//! Time is the query's own, in ms; a caller stops at every [`Window::deadline`] on the way, so that
//! what is due leaves at its instant. An event of time t leaves a window of ten seconds at exactly
//! t + 10 s.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::aggregate::kept::rank_order;
use crate::codec::{Decoder, Encoder};
use crate::expression::Expression;
use crate::limits::TIME_MS_MAX;
use crate::plan::{OrderKey, View};
use crate::query::layout::Layout;
use crate::query::tuple::{Row, Tuple, TupleReader, TupleWriter};
use crate::time::event_time;

use crate::window::encode_key;

/// What enters and what leaves at one instant.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// What enters.
    pub new: Vec<Arc<Tuple>>,
    /// What leaves.
    pub old: Vec<Arc<Tuple>>,
    /// Told even when both are empty.
    pub is_forced: bool,
}

/// What a window needs to evaluate its expressions.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// Where fields stand.
    pub layout: &'a Layout,
    /// The alias of the window's events.
    pub alias: usize,
}

/// The state of one data window.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// What it holds; of a batch window the batch that fills.
    kept: VecDeque<Arc<Tuple>>,
    /// Of a batch window, the batch that was told last.
    last: Vec<Arc<Tuple>>,
    /// What is due next, or where batches end.
    due: Option<i64>,
    /// Where batches are counted from.
    reference: Option<i64>,
    /// Of keyed windows, the place of each key in `places`.
    keys: HashMap<Box<[u8]>, u64>,
    /// What keyed windows hold, in the order in which keys came.
    places: BTreeMap<u64, (Box<[u8]>, Arc<Tuple>)>,
    next_place: u64,
    /// Of `firsttime`, that its time is over.
    is_over: bool,
}

impl Delta {
    /// True when there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.new.is_empty() && self.old.is_empty() && !self.is_forced
    }
}

impl<'a> Reading<'a> {
    /// Evaluates `expressions` over an event and gives the values to `with`.
    pub fn with<R>(
        &self,
        tuple: &Arc<Tuple>,
        with: impl FnOnce(&dyn Fn(&Expression) -> crate::value::OwnedValue) -> R,
    ) -> R {
        let row = self.row(tuple);
        let mut values = Vec::new();
        self.layout
            .of_row(&row, &crate::query::layout::Around::NONE, &mut values);
        let scope = self.layout.scope(&values);
        with(&|expression| crate::query::layout::owned(&expression.evaluate(&scope)))
    }

    /// The row in which only this alias stands for something.
    pub fn row(&self, tuple: &Arc<Tuple>) -> Row {
        if self.alias == 0 {
            return Row::One(tuple.clone());
        }
        let mut parts = vec![crate::query::tuple::Captured::None; self.alias];
        parts.push(crate::query::tuple::Captured::One(tuple.clone()));
        Row::Parts(parts.into())
    }

    /// Whether a condition is true of an event.
    pub fn passes(&self, tuple: &Arc<Tuple>, condition: &Expression) -> bool {
        let row = self.row(tuple);
        let mut values = Vec::new();
        self.layout
            .of_row(&row, &crate::query::layout::Around::NONE, &mut values);
        condition.truth(&self.layout.scope(&values)) == Some(true)
    }

    fn time(&self, tuple: &Arc<Tuple>, expression: &Expression) -> Option<i64> {
        self.with(tuple, |value| event_time(&value(expression).as_value()))
    }

    /// The encoded key of an event.
    pub fn key(&self, tuple: &Arc<Tuple>, keys: &[Expression]) -> Box<[u8]> {
        self.with(tuple, |value| {
            let mut key = Vec::new();
            for expression in keys {
                encode_key(&value(expression).as_value(), &mut key);
            }
            key.into()
        })
    }

    fn compare(&self, a: &Arc<Tuple>, b: &Arc<Tuple>, keys: &[OrderKey]) -> std::cmp::Ordering {
        for key in keys {
            let of = |tuple| self.with(tuple, |value| value(&key.expression));
            let (a, b) = (of(a), of(b));
            let order = rank_order(&a.as_value(), &b.as_value());
            let order = if key.is_descending {
                order.reverse()
            } else {
                order
            };
            if order.is_ne() {
                return order;
            }
        }
        std::cmp::Ordering::Equal
    }
}

impl Window {
    /// The window at a statement's start.
    pub fn start(view: &View, now: i64) -> Self {
        let mut window = Window::default();
        match view {
            View::FirstTime(length) => window.due = Some(now + millis(*length)),
            View::TimeBatch {
                length,
                reference_ms,
                start_eager: true,
                ..
            } => {
                window.reference = Some(reference_ms.unwrap_or(now));
                window.schedule(now, millis(*length));
            }
            View::TimeLengthBatch {
                length,
                start_eager: true,
                ..
            } => window.due = Some(now + millis(*length)),
            _ => {}
        }
        window
    }

    /// An event comes.
    pub fn insert(
        &mut self,
        view: &View,
        reading: Reading<'_>,
        now: i64,
        tuple: Arc<Tuple>,
        delta: &mut Delta,
    ) {
        match view {
            View::KeepAll | View::Time(_) => self.enter(tuple, delta),
            View::Length(count) => {
                self.enter(tuple, delta);
                if self.kept.len() > *count as usize {
                    delta.old.extend(self.kept.pop_front());
                }
            }
            View::FirstLength(count) => {
                if self.kept.len() < *count as usize {
                    self.enter(tuple, delta);
                }
            }
            View::FirstTime(_) => {
                if !self.is_over {
                    self.enter(tuple, delta);
                }
            }
            View::FirstEvent => {
                if self.kept.is_empty() {
                    self.enter(tuple, delta);
                }
            }
            View::LastEvent => {
                delta.old.extend(self.kept.pop_front());
                self.enter(tuple, delta);
            }
            View::LengthBatch(count) => {
                self.kept.push_back(tuple);
                if self.kept.len() >= *count as usize {
                    self.tell_batch(delta);
                }
            }
            View::TimeBatch {
                length,
                reference_ms,
                ..
            } => {
                self.kept.push_back(tuple);
                self.reference.get_or_insert(reference_ms.unwrap_or(now));
                if self.due.is_none() {
                    self.schedule(now, millis(*length));
                }
            }
            View::TimeLengthBatch { length, count, .. } => {
                self.kept.push_back(tuple);
                if self.kept.len() >= *count as usize {
                    self.tell_batch(delta);
                    self.due = Some(now + millis(*length));
                } else if self.due.is_none() {
                    self.due = Some(now + millis(*length));
                }
            }
            View::TimeAccum(length) => {
                self.enter(tuple, delta);
                self.due = Some(now + millis(*length));
            }
            View::ExtTimed { time, length } => {
                self.insert_timed(reading, time, millis(*length), tuple, delta)
            }
            View::ExtTimedBatch {
                time,
                length,
                reference_ms,
            } => {
                let Some(at) = reading.time(&tuple, time) else {
                    return;
                };
                let length = millis(*length);
                let reference = *self.reference.get_or_insert(reference_ms.unwrap_or(at));
                match self.due {
                    Some(end) if at >= end => {
                        self.tell_batch(delta);
                        self.due = Some(batch_end(at, reference, length));
                    }
                    Some(_) => {}
                    None => self.due = Some(batch_end(at, reference, length)),
                }
                self.kept.push_back(tuple);
            }
            View::TimeOrder { time, length } => {
                let Some(at) = reading.time(&tuple, time) else {
                    return;
                };
                if at + millis(*length) <= now {
                    delta.new.push(tuple.clone());
                    delta.old.push(tuple);
                    return;
                }
                let place = self.kept.partition_point(|kept| {
                    reading.time(kept, time).is_some_and(|known| known <= at)
                });
                self.kept.insert(place, tuple.clone());
                delta.new.push(tuple);
                self.due = self.order_due(reading, time, millis(*length));
            }
            View::Unique(keys) => {
                let key = reading.key(&tuple, keys);
                delta.old.extend(self.put(key, tuple.clone()));
                delta.new.push(tuple);
            }
            View::FirstUnique(keys) => {
                let key = reading.key(&tuple, keys);
                if !self.keys.contains_key(&key) {
                    self.put(key, tuple.clone());
                    delta.new.push(tuple);
                }
            }
            View::Sort { count, keys } => {
                delta.new.push(tuple.clone());
                // Of equals the newest stands first, and the oldest goes first.
                let place = self
                    .kept
                    .partition_point(|kept| reading.compare(kept, &tuple, keys).is_lt());
                self.kept.insert(place, tuple);
                if self.kept.len() > *count as usize {
                    delta.old.extend(self.kept.pop_back());
                }
            }
            View::Rank {
                unique,
                count,
                keys,
            } => {
                let key = reading.key(&tuple, unique);
                let before = self
                    .kept
                    .iter()
                    .position(|kept| reading.key(kept, unique) == key);
                delta
                    .old
                    .extend(before.and_then(|place| self.kept.remove(place)));
                delta.new.push(tuple.clone());
                self.insert_sorted(reading, keys, tuple);
                if self.kept.len() > *count as usize {
                    delta.old.extend(self.kept.pop_back());
                }
            }
            View::Group(_) => delta.new.push(tuple),
        }
    }

    /// When something is due.
    pub fn deadline(&self, view: &View) -> Option<i64> {
        match view {
            View::Time(length) => self.kept.front().map(|first| first.time + millis(*length)),
            // Its batches end with the events' own time.
            View::ExtTimedBatch { .. } => None,
            _ => self.due,
        }
    }

    /// Lets go of what is due at `now`.
    pub fn advance(&mut self, view: &View, reading: Reading<'_>, now: i64, delta: &mut Delta) {
        if self.deadline(view).is_none_or(|due| due > now) {
            return;
        }
        match view {
            View::Time(length) => {
                while let Some(first) = self.kept.front()
                    && first.time + millis(*length) <= now
                {
                    delta.old.extend(self.kept.pop_front());
                }
            }
            View::FirstTime(_) => {
                self.is_over = true;
                self.due = None;
            }
            View::TimeBatch {
                length,
                force_update,
                ..
            } => {
                let goes_on = !self.kept.is_empty() || !self.last.is_empty() || *force_update;
                self.tell_batch(delta);
                delta.is_forced |= *force_update;
                self.due = None;
                if goes_on {
                    self.schedule(now, millis(*length));
                }
            }
            View::TimeLengthBatch {
                length,
                force_update,
                ..
            } => {
                let goes_on = !self.kept.is_empty() || !self.last.is_empty() || *force_update;
                self.tell_batch(delta);
                delta.is_forced |= *force_update;
                self.due = goes_on.then_some(now + millis(*length));
            }
            View::TimeAccum(_) => {
                delta.old.extend(self.kept.drain(..));
                self.due = None;
            }
            View::TimeOrder { time, length } => {
                let length = millis(*length);
                while let Some(first) = self.kept.front()
                    && reading
                        .time(first, time)
                        .is_none_or(|at| at + length <= now)
                {
                    delta.old.extend(self.kept.pop_front());
                }
                self.due = self.order_due(reading, time, length);
            }
            _ => {}
        }
    }

    /// Takes one event away; false when it is not here.
    pub fn remove(&mut self, view: &View, reading: Reading<'_>, tuple: &Tuple) -> bool {
        let place = self.place(view, tuple);
        if let Some(place) = place {
            self.kept.remove(place);
            if let View::TimeOrder { time, length } = view {
                self.due = self.order_due(reading, time, millis(*length));
            }
            return true;
        }
        let found = self
            .places
            .iter()
            .find(|(_, (_, kept))| kept.number == tuple.number)
            .map(|(place, (key, _))| (*place, key.clone()));
        let Some((place, key)) = found else {
            return false;
        };
        self.places.remove(&place);
        self.keys.remove(&key);
        true
    }

    /// True when it holds the event.
    pub fn holds(&self, view: &View, tuple: &Tuple) -> bool {
        self.place(view, tuple).is_some()
            || self
                .places
                .values()
                .any(|(_, kept)| kept.number == tuple.number)
    }

    /// What it holds, in its order.
    pub fn contents(&self) -> impl Iterator<Item = &Arc<Tuple>> + '_ {
        self.kept
            .iter()
            .chain(self.places.values().map(|(_, tuple)| tuple))
    }

    /// The event of a key, where it keeps one of each.
    pub fn by_key(&self, key: &[u8]) -> Option<&Arc<Tuple>> {
        let place = self.keys.get(key)?;
        self.places.get(place).map(|(_, tuple)| tuple)
    }

    /// How many events it holds.
    pub fn len(&self) -> usize {
        self.kept.len() + self.places.len()
    }

    /// True when nothing in it will ever be told.
    pub fn is_idle(&self) -> bool {
        self.len() == 0 && self.last.is_empty() && self.due.is_none() && !self.is_over
    }

    /// The batch that was told last.
    pub fn last_batch(&self) -> &[Arc<Tuple>] {
        &self.last
    }

    /// The event `steps` after the n-th newest, or so many from the oldest on.
    pub fn nth(&self, from_oldest: bool, steps: usize) -> Option<&Arc<Tuple>> {
        if from_oldest {
            return self.contents().nth(steps);
        }
        let place = self.len().checked_sub(steps + 1)?;
        if self.places.is_empty() {
            return self.kept.get(place);
        }
        self.contents().nth(place)
    }

    /// Writes the state.
    pub fn encode(&self, tuples: &mut TupleWriter, out: &mut Encoder) {
        tuples.tuples(self.kept.iter(), out);
        tuples.tuples(self.last.iter(), out);
        encode_time(self.due, out);
        encode_time(self.reference, out);
        out.u8(u8::from(self.is_over));
        out.count(self.places.len());
        for (key, tuple) in self.places.values() {
            out.bytes(key);
            tuples.tuple(tuple, out);
        }
    }

    /// Reads it back.
    pub fn decode(tuples: &mut TupleReader, from: &mut Decoder<'_>) -> Option<Self> {
        let mut window = Window {
            kept: tuples.tuples(from)?,
            last: tuples.tuples(from)?,
            due: decode_time(from)?,
            reference: decode_time(from)?,
            is_over: from.u8()? != 0,
            ..Window::default()
        };
        for _ in 0..from.count()? {
            let key: Box<[u8]> = from.bytes()?.into();
            let tuple = tuples.tuple(from)?;
            window.put(key, tuple);
        }
        Some(window)
    }

    fn enter(&mut self, tuple: Arc<Tuple>, delta: &mut Delta) {
        self.kept.push_back(tuple.clone());
        delta.new.push(tuple);
    }

    fn tell_batch(&mut self, delta: &mut Delta) {
        delta.old.append(&mut self.last);
        self.last = self.kept.drain(..).collect();
        delta.new.extend(self.last.iter().cloned());
    }

    fn schedule(&mut self, now: i64, length: i64) {
        let reference = self.reference.unwrap_or(now);
        self.due = Some(batch_end(now, reference, length));
    }

    fn insert_timed(
        &mut self,
        reading: Reading<'_>,
        time: &Expression,
        length: i64,
        tuple: Arc<Tuple>,
        delta: &mut Delta,
    ) {
        let Some(at) = reading.time(&tuple, time) else {
            return;
        };
        self.enter(tuple, delta);
        while let Some(first) = self.kept.front()
            && reading
                .time(first, time)
                .is_none_or(|known| known <= at - length)
        {
            delta.old.extend(self.kept.pop_front());
        }
    }

    fn order_due(&self, reading: Reading<'_>, time: &Expression, length: i64) -> Option<i64> {
        let first = self.kept.front()?;
        reading.time(first, time).map(|at| at + length)
    }

    fn insert_sorted(&mut self, reading: Reading<'_>, keys: &[OrderKey], tuple: Arc<Tuple>) {
        let place = self
            .kept
            .partition_point(|kept| reading.compare(kept, &tuple, keys).is_le());
        self.kept.insert(place, tuple);
    }

    /// Puts an event in its key's place and gives what stood there.
    fn put(&mut self, key: Box<[u8]>, tuple: Arc<Tuple>) -> Option<Arc<Tuple>> {
        if let Some(place) = self.keys.get(&key)
            && let Some((_, held)) = self.places.get_mut(place)
        {
            return Some(std::mem::replace(held, tuple));
        }
        let place = self.next_place;
        self.next_place += 1;
        self.keys.insert(key.clone(), place);
        self.places.insert(place, (key, tuple));
        None
    }

    fn place(&self, view: &View, tuple: &Tuple) -> Option<usize> {
        if matches!(
            view,
            View::Sort { .. } | View::Rank { .. } | View::TimeOrder { .. }
        ) {
            return self
                .kept
                .iter()
                .position(|kept| kept.number == tuple.number);
        }
        let place = self.kept.partition_point(|kept| kept.number < tuple.number);
        let kept = self.kept.get(place)?;
        (kept.number == tuple.number).then_some(place)
    }
}

/// A length in whole milliseconds, at least one.
pub fn millis(length: std::time::Duration) -> i64 {
    i64::try_from(length.as_millis())
        .unwrap_or(i64::MAX / 4)
        .clamp(1, i64::MAX / 4)
}

/// Writes a time that may be absent.
pub fn encode_time(time: Option<i64>, out: &mut Encoder) {
    out.u8(u8::from(time.is_some()));
    out.i64(time.unwrap_or(0));
}

/// Reads it back.
pub fn decode_time(from: &mut Decoder<'_>) -> Option<Option<i64>> {
    let is_there = from.u8()? != 0;
    let time = from.i64()?;
    let is_time = (-2 * TIME_MS_MAX..=2 * TIME_MS_MAX).contains(&time);
    is_time.then_some(is_there.then_some(time))
}

/// The end of the batch that `now` lies in; one that begins now lasts its whole length.
fn batch_end(now: i64, reference: i64, length: i64) -> i64 {
    now.saturating_add(length - now.saturating_sub(reference).rem_euclid(length))
}
