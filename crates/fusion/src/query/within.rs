//! The state of a join that time bounds: events of both sides that wait for those that may join
//! them, found by key.
//!
//! The query's time never goes back, so each side's events stand in the order of their times and
//! leave in that order. What can match nothing that is still to come is forgotten; on an outer side
//! it then comes alone, if nothing joined it.

use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::sync::Arc;

use crate::codec::{Decoder, Encoder};
use crate::plan::{self, Join, JoinKind};
use crate::query::select::Step;
use crate::query::tuple::{Captured, Row, Tuple, TupleReader, TupleWriter};
use crate::value::Value;
use crate::window::encode_key;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Within {
    sides: [Side; 2],
}

#[derive(Clone, Debug, Default)]
struct Side {
    /// In the order in which they came.
    held: VecDeque<Held>,
    /// The place of the first of them among all that were ever held.
    first: u64,
    /// Those of each key, by place.
    keys: HashMap<Box<[u8]>, VecDeque<u64>>,
    key_bytes: usize,
    /// Whether its events come alone when nothing joins them.
    is_outer: bool,
}

#[derive(Clone, Debug)]
struct Held {
    tuple: Arc<Tuple>,
    /// None where a part of it is null, which is equal to nothing.
    key: Option<Box<[u8]>>,
    /// From this time on nothing can join it.
    due: i64,
    is_matched: bool,
}

impl Within {
    /// Takes an event of a side at its time and gives the rows that it brings.
    pub fn take(
        &mut self,
        step: Step<'_>,
        (join, bounds): (&Join, &plan::Within),
        side: usize,
        tuple: Arc<Tuple>,
        rows: &mut Vec<Row>,
    ) {
        self.set_outer(join.kind);
        rows.extend(self.advance(step.now));
        let key = key_of(step, bounds, side, &tuple);
        let mut is_matched = false;
        if let Some(key) = &key {
            let other = &mut self.sides[1 - side];
            for place in other.places(key, reach(bounds, side, tuple.time), bounds.unit_ms) {
                let index = (place - other.first) as usize;
                let Some(held) = other.held.get_mut(index) else {
                    continue;
                };
                let mut parts = [Captured::None, Captured::None];
                parts[side] = Captured::One(tuple.clone());
                parts[1 - side] = Captured::One(held.tuple.clone());
                let row = Row::Parts(Arc::new(parts));
                if step.passes(join.on.as_ref(), &row) {
                    held.is_matched = true;
                    is_matched = true;
                    rows.push(row);
                }
            }
        }
        let due = due(bounds, side, tuple.time);
        let own = &mut self.sides[side];
        if due > step.now {
            own.hold(Held {
                tuple,
                key,
                due,
                is_matched,
            });
        } else if own.is_outer && !is_matched {
            rows.push(alone(side, tuple));
        }
    }

    /// When an event comes alone, or the last of a side can be forgotten.
    pub fn deadline(&self) -> Option<i64> {
        let due = |side: &Side| match side.is_outer {
            true => side.held.front().map(|held| held.due),
            false => side.held.back().map(|held| held.due),
        };
        self.sides.iter().filter_map(due).min()
    }

    /// Forgets what nothing can join from `now` on, and gives what comes alone.
    pub fn advance(&mut self, now: i64) -> Vec<Row> {
        let mut rows = Vec::new();
        for (number, side) in self.sides.iter_mut().enumerate() {
            while let Some(held) = side.pop_due(now) {
                if side.is_outer && !held.is_matched {
                    rows.push(alone(number, held.tuple));
                }
            }
        }
        rows
    }

    /// True when events wait.
    pub fn holds_any(&self) -> bool {
        self.sides.iter().any(|side| !side.held.is_empty())
    }

    /// Bytes beside the events themselves, about.
    pub fn bytes(&self) -> usize {
        let of = |side: &Side| {
            let keys = side.keys.len() * KEY_BYTES + side.key_bytes;
            side.held.len() * (size_of::<Held>() + size_of::<u64>()) + keys
        };
        self.sides.iter().map(of).sum()
    }

    /// Writes the state.
    pub fn encode(&self, tuples: &mut TupleWriter, out: &mut Encoder) {
        for side in &self.sides {
            out.count(side.held.len());
            for held in &side.held {
                tuples.tuple(&held.tuple, out);
                out.u8(u8::from(held.is_matched) | u8::from(held.key.is_some()) << 1);
                if let Some(key) = &held.key {
                    out.bytes(key);
                }
            }
        }
    }

    /// Reads it back.
    pub fn decode(
        join: &Join,
        bounds: &plan::Within,
        tuples: &mut TupleReader,
        from: &mut Decoder<'_>,
    ) -> Option<Self> {
        let mut own = Within::default();
        own.set_outer(join.kind);
        for (number, side) in own.sides.iter_mut().enumerate() {
            for _ in 0..from.count()? {
                let tuple = tuples.tuple(from)?;
                let flags = from.u8()?;
                let key = match flags & 2 {
                    0 => None,
                    _ => Some(from.bytes()?.into()),
                };
                side.hold(Held {
                    due: due(bounds, number, tuple.time),
                    is_matched: flags & 1 != 0,
                    tuple,
                    key,
                });
            }
        }
        Some(own)
    }

    fn set_outer(&mut self, kind: JoinKind) {
        self.sides[0].is_outer = matches!(kind, JoinKind::Left | JoinKind::Full);
        self.sides[1].is_outer = matches!(kind, JoinKind::Right | JoinKind::Full);
    }
}

impl Side {
    fn hold(&mut self, held: Held) {
        if let Some(key) = &held.key {
            let place = self.first + self.held.len() as u64;
            match self.keys.get_mut(key) {
                Some(places) => places.push_back(place),
                None => {
                    self.keys.insert(key.clone(), VecDeque::from([place]));
                }
            }
            self.key_bytes += 2 * key.len();
        }
        self.held.push_back(held);
    }

    fn pop_due(&mut self, now: i64) -> Option<Held> {
        if self.held.front()?.due > now {
            return None;
        }
        let held = self.held.pop_front()?;
        self.first += 1;
        if let Some(key) = &held.key {
            self.key_bytes -= 2 * key.len();
            if let Some(places) = self.keys.get_mut(key) {
                places.pop_front();
                if places.is_empty() {
                    self.keys.remove(key);
                }
            }
        }
        Some(held)
    }

    /// Where those of a key stand whose times lie between two, counted in units.
    fn places(&self, key: &[u8], (from, to): (i64, i64), unit_ms: i64) -> Vec<u64> {
        let Some(places) = self.keys.get(key) else {
            return Vec::new();
        };
        // What is found by key is held: both are forgotten together.
        let time = |place: &u64| {
            let held = &self.held[(*place - self.first) as usize];
            held.tuple.time.div_euclid(unit_ms)
        };
        let begin = places.partition_point(|place| time(place) < from);
        let end = places.partition_point(|place| time(place) <= to);
        places.range(begin..end.max(begin)).copied().collect()
    }
}

/// The first and last times, in units, of the other side's events that may join one of `side`.
fn reach(bounds: &plan::Within, side: usize, time: i64) -> (i64, i64) {
    let time = time.div_euclid(bounds.unit_ms);
    match side {
        0 => (time + bounds.from, time + bounds.to),
        _ => (time - bounds.to, time - bounds.from),
    }
}

/// The first instant at which no event that comes can join one of `side`.
fn due(bounds: &plan::Within, side: usize, time: i64) -> i64 {
    let (_, last) = reach(bounds, side, time);
    (last + 1).saturating_mul(bounds.unit_ms)
}

fn alone(side: usize, tuple: Arc<Tuple>) -> Row {
    let mut parts = [Captured::None, Captured::None];
    parts[side] = Captured::One(tuple);
    Row::Parts(Arc::new(parts))
}

fn key_of(
    step: Step<'_>,
    bounds: &plan::Within,
    side: usize,
    tuple: &Arc<Tuple>,
) -> Option<Box<[u8]>> {
    if bounds.keys.is_empty() {
        return Some(Box::default());
    }
    let row = alone(side, tuple.clone());
    let layout = &step.compiled.layout;
    let mut values = Vec::new();
    layout.of_row(&row, &step.around, &mut values);
    let scope = layout.scope(&values);
    let mut key = Vec::new();
    for pair in &bounds.keys {
        let value = pair[side].evaluate(&scope);
        if matches!(value, Value::Null | Value::Json(_)) {
            return None;
        }
        encode_key(&value, &mut key);
    }
    Some(key.into())
}

/// A key's share of the table, estimated.
const KEY_BYTES: usize = 96;
