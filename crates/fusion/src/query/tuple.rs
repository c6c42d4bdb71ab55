//! Events that a query keeps: the fields that it reads, owned and shared by everything that holds
//! the event. A meter counts their bytes, so that a query's state has a bound.

use std::collections::HashMap;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::aggregate::{decode_value, encode_value};
use crate::codec::{Decoder, Encoder};
use crate::limits::TIME_MS_MAX;
use crate::value::OwnedValue;

/// One kept event.
#[derive(Debug)]
pub struct Tuple {
    /// The fields in the order of its alias's layout.
    pub values: Box<[OwnedValue]>,
    /// When it came, by the query's time, ms.
    pub time: i64,
    /// Its number in the order of arrival.
    pub number: u64,
    bytes: usize,
    meter: Arc<Meter>,
}

/// Bytes that kept events take, about.
#[derive(Debug, Default)]
pub struct Meter(AtomicUsize);

/// What one alias of a row stands for.
#[derive(Clone, Debug, Default)]
pub enum Captured {
    /// Nothing: the outer side of a join, a tag that did not match.
    #[default]
    None,
    /// An event.
    One(Arc<Tuple>),
    /// The events of a repeated tag.
    Many(Arc<[Arc<Tuple>]>),
}

/// What the select list sees: one event, or one per alias.
#[derive(Clone, Debug)]
pub enum Row {
    /// The event of the one input.
    One(Arc<Tuple>),
    /// One per input of a join, per tag of a pattern.
    Parts(Arc<[Captured]>),
}

impl Tuple {
    /// An event with its fields.
    pub fn new(
        values: Box<[OwnedValue]>,
        time: i64,
        number: u64,
        meter: &Arc<Meter>,
    ) -> Arc<Tuple> {
        let texts: usize = values.iter().map(OwnedValue::text_bytes).sum();
        let bytes = size_of::<Tuple>() + TUPLE_OVERHEAD_BYTES + size_of_val(&*values) + texts;
        meter.0.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Tuple {
            values,
            time,
            number,
            bytes,
            meter: meter.clone(),
        })
    }
}

impl Drop for Tuple {
    fn drop(&mut self) {
        self.meter.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Meter {
    /// The bytes now.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Captured {
    /// The latest event.
    pub fn last(&self) -> Option<&Arc<Tuple>> {
        match self {
            Captured::None => None,
            Captured::One(tuple) => Some(tuple),
            Captured::Many(tuples) => tuples.last(),
        }
    }

    /// The n-th event.
    pub fn nth(&self, index: usize) -> Option<&Arc<Tuple>> {
        match self {
            Captured::None => None,
            Captured::One(tuple) => (index == 0).then_some(tuple),
            Captured::Many(tuples) => tuples.get(index),
        }
    }
}

impl Row {
    /// What an alias stands for: its latest event.
    pub fn last(&self, alias: usize) -> Option<&Arc<Tuple>> {
        match self {
            Row::One(tuple) => (alias == 0).then_some(tuple),
            Row::Parts(parts) => parts.get(alias)?.last(),
        }
    }

    /// A number that tells it from other rows, by the events that it is made of.
    pub fn number(&self) -> u64 {
        match self {
            Row::One(tuple) => tuple.number,
            Row::Parts(parts) => parts.iter().fold(0, |number, part| {
                let own = part.last().map_or(u64::MAX, |tuple| tuple.number);
                number.wrapping_mul(1_000_003).wrapping_add(own)
            }),
        }
    }

    /// The n-th event of an alias.
    pub fn nth(&self, alias: usize, index: usize) -> Option<&Arc<Tuple>> {
        match self {
            Row::One(tuple) => (alias == 0 && index == 0).then_some(tuple),
            Row::Parts(parts) => parts.get(alias)?.nth(index),
        }
    }
}

/// Writes events, each once however often it is held.
#[derive(Debug, Default)]
pub struct TupleWriter {
    /// By where they are: events of named windows have numbers of their own.
    known: HashMap<usize, u32>,
}

impl TupleWriter {
    /// Writes one event, or names it when it was written before.
    pub fn tuple(&mut self, tuple: &Tuple, out: &mut Encoder) {
        let address = std::ptr::from_ref(tuple).addr();
        if let Some(place) = self.known.get(&address) {
            out.u8(1);
            return out.u32(*place);
        }
        let place = u32::try_from(self.known.len()).expect("state bounds keep fewer events");
        self.known.insert(address, place);
        out.u8(0);
        out.i64(tuple.time);
        out.u64(tuple.number);
        out.count(tuple.values.len());
        for value in &tuple.values {
            encode_value(value, out);
        }
    }

    /// Writes a list.
    pub fn tuples<'t>(
        &mut self,
        tuples: impl ExactSizeIterator<Item = &'t Arc<Tuple>>,
        out: &mut Encoder,
    ) {
        out.count(tuples.len());
        for tuple in tuples {
            self.tuple(tuple, out);
        }
    }

    /// Writes what an alias stands for.
    pub fn captured(&mut self, captured: &Captured, out: &mut Encoder) {
        match captured {
            Captured::None => out.u8(0),
            Captured::One(tuple) => {
                out.u8(1);
                self.tuple(tuple, out);
            }
            Captured::Many(tuples) => {
                out.u8(2);
                self.tuples(tuples.iter(), out);
            }
        }
    }

    /// Writes a row.
    pub fn row(&mut self, row: &Row, out: &mut Encoder) {
        match row {
            Row::One(tuple) => {
                out.u8(0);
                self.tuple(tuple, out);
            }
            Row::Parts(parts) => {
                out.u8(1);
                self.parts(parts, out);
            }
        }
    }

    /// Writes one captured part per alias.
    pub fn parts(&mut self, parts: &[Captured], out: &mut Encoder) {
        out.count(parts.len());
        for part in parts {
            self.captured(part, out);
        }
    }
}

/// Reads back what a [`TupleWriter`] wrote.
#[derive(Debug)]
pub struct TupleReader {
    known: Vec<Arc<Tuple>>,
    meter: Arc<Meter>,
}

impl TupleReader {
    /// Events are counted by `meter`.
    pub fn new(meter: Arc<Meter>) -> Self {
        TupleReader {
            known: Vec::new(),
            meter,
        }
    }

    /// One event.
    pub fn tuple(&mut self, from: &mut Decoder<'_>) -> Option<Arc<Tuple>> {
        if from.u8()? == 1 {
            let place = usize::try_from(from.u32()?).ok()?;
            return self.known.get(place).cloned();
        }
        let time = from.i64()?;
        let number = from.u64()?;
        if !(-TIME_MS_MAX..=TIME_MS_MAX).contains(&time) {
            return None;
        }
        let mut values = Vec::new();
        for _ in 0..from.count()? {
            values.push(decode_value(from)?);
        }
        let tuple = Tuple::new(values.into(), time, number, &self.meter);
        self.known.push(tuple.clone());
        Some(tuple)
    }

    /// A list.
    pub fn tuples<C: FromIterator<Arc<Tuple>>>(&mut self, from: &mut Decoder<'_>) -> Option<C> {
        let count = from.count()?;
        (0..count).map(|_| self.tuple(from)).collect()
    }

    /// What an alias stands for.
    pub fn captured(&mut self, from: &mut Decoder<'_>) -> Option<Captured> {
        Some(match from.u8()? {
            0 => Captured::None,
            1 => Captured::One(self.tuple(from)?),
            2 => Captured::Many(self.tuples::<Vec<_>>(from)?.into()),
            _ => return None,
        })
    }

    /// A row.
    pub fn row(&mut self, from: &mut Decoder<'_>) -> Option<Row> {
        Some(match from.u8()? {
            0 => Row::One(self.tuple(from)?),
            1 => Row::Parts(self.parts(from)?),
            _ => return None,
        })
    }

    /// One captured part per alias.
    pub fn parts(&mut self, from: &mut Decoder<'_>) -> Option<Arc<[Captured]>> {
        let count = from.count()?;
        (0..count).map(|_| self.captured(from)).collect()
    }
}

/// What the allocations of an event cost beside it, bytes.
const TUPLE_OVERHEAD_BYTES: usize = 48;
