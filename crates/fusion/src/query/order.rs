//! Event time: events wait until the watermark has passed their time, and go on ordered by it.
//!
//! The watermark is the least of the greatest times seen on each partition of each source that
//! still counts, less the lateness. Events before it that were not taken are late. Events of one
//! time are ordered by what they hold, so that any order of arrival within the lateness gives the
//! same rows.

use std::collections::BTreeMap;

use base::UnixMillis;
use bytes::Bytes;

use crate::aggregate::{decode_value, encode_value};
use crate::codec::{Decoder, Encoder};
use crate::expression::Event;
use crate::value::{OwnedValue, Value};
use crate::window::encode_key;

/// Events that wait for their time.
#[derive(Clone, Debug, Default)]
pub struct Order {
    lateness_ms: i64,
    waiting: BTreeMap<(i64, Vec<u8>, u64), Waiting>,
    next: u64,
    bytes: usize,
    /// How far each partition of each source has come, and whether it holds the others.
    marks: BTreeMap<(usize, usize), (i64, bool)>,
    /// Times before this have passed.
    floor: Option<i64>,
    /// A source and the number of its partitions, where it has several.
    expected: Option<(usize, usize)>,
}

/// One event that waits, owned.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The source's place in the plan's sources.
    pub source: usize,
    /// Its time, ms.
    pub time: i64,
    topic: Box<str>,
    key: Option<Bytes>,
    partition: i32,
    offset: Option<i64>,
    timestamp: UnixMillis,
    /// The plan's fields.
    pub values: Box<[OwnedValue]>,
}

impl Order {
    /// Nothing waits.
    pub fn new(lateness_ms: i64) -> Self {
        Order {
            lateness_ms,
            ..Order::default()
        }
    }

    /// Says how many partitions a source has, so that one that has not been read yet holds the
    /// others until it is known that nothing waits there.
    pub fn expect(&mut self, source: usize, partitions: usize) {
        self.expected = Some((source, partitions));
        for partition in 0..partitions {
            let mark = self.marks.entry((source, partition));
            mark.or_insert((i64::MIN, true));
        }
    }

    /// One for the same sources, in which nothing waits and no time has passed.
    pub fn fresh(&self) -> Self {
        let mut fresh = Order::new(self.lateness_ms);
        if let Some((source, partitions)) = self.expected {
            fresh.expect(source, partitions);
        }
        fresh
    }

    /// Takes an event of that time; false when it is late.
    pub fn take(
        &mut self,
        source: usize,
        time: i64,
        event: &Event<'_>,
        values: impl Iterator<Item = OwnedValue>,
    ) -> bool {
        let partition = usize::try_from(event.partition).unwrap_or(0);
        let mark = self
            .marks
            .entry((source, partition))
            .or_insert((time, true));
        *mark = (mark.0.max(time), true);
        let is_late = self.floor.is_some_and(|floor| time < floor);
        if !is_late {
            let values: Box<[OwnedValue]> = values.collect();
            let waiting = Waiting {
                source,
                time,
                topic: event.topic.into(),
                key: event.key.cloned(),
                partition: event.partition,
                offset: event.offset,
                timestamp: event.timestamp,
                values,
            };
            self.keep(waiting);
        }
        self.raise();
        !is_late
    }

    /// Says that partitions of a source wait for nothing and do not hold the others.
    pub fn set_waiting(&mut self, source: usize, is_waiting: impl Fn(usize) -> bool) {
        for ((of, partition), (_, holds)) in &mut self.marks {
            if *of == source {
                *holds = is_waiting(*partition);
            }
        }
        self.raise();
    }

    /// Lets everything that waits pass: nothing more is expected soon.
    pub fn flush(&mut self) {
        let last = self
            .waiting
            .last_key_value()
            .map(|((time, ..), _)| *time + 1);
        self.floor = self.floor.max(last);
    }

    /// The time of the first event that waits.
    pub fn first(&self) -> Option<i64> {
        self.waiting.first_key_value().map(|((time, ..), _)| *time)
    }

    /// Lets what happened before `until` pass, and time come to what is due by then; what happens
    /// later than both is not late.
    pub fn pass(&mut self, until: i64, due: Option<i64>) {
        let passed = self.waiting.range(..(until, Vec::new(), 0));
        let last = passed.map(|((time, ..), _)| *time + 1).next_back();
        self.floor = self.floor.max(last).max(due.filter(|due| *due <= until));
    }

    /// The next event whose time has passed.
    pub fn pop(&mut self) -> Option<Waiting> {
        let floor = self.floor?;
        let first = self.waiting.first_entry()?;
        if first.key().0 >= floor {
            return None;
        }
        let ((_, tie, _), waiting) = first.remove_entry();
        self.bytes = self.bytes.saturating_sub(waiting.bytes() + tie.len());
        Some(waiting)
    }

    /// The time that has passed everywhere.
    pub fn floor(&self) -> Option<i64> {
        self.floor
    }

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of what waits, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the state.
    pub fn encode(&self, out: &mut Encoder) {
        crate::query::window::encode_time(self.floor, out);
        out.count(self.marks.len());
        for ((source, partition), (time, _)) in &self.marks {
            out.count(*source);
            out.count(*partition);
            out.i64(*time);
        }
        out.count(self.waiting.len());
        for waiting in self.waiting.values() {
            out.count(waiting.source);
            out.i64(waiting.time);
            out.bytes(waiting.topic.as_bytes());
            out.u8(u8::from(waiting.key.is_some()) | u8::from(waiting.offset.is_some()) << 1);
            if let Some(key) = &waiting.key {
                out.bytes(key);
            }
            if let Some(offset) = waiting.offset {
                out.i64(offset);
            }
            out.u32(waiting.partition.cast_unsigned());
            out.i64(waiting.timestamp.0);
            out.count(waiting.values.len());
            waiting
                .values
                .iter()
                .for_each(|value| encode_value(value, out));
        }
    }

    /// Reads it back into one that [`Order::new`] made.
    pub fn decode(mut self, from: &mut Decoder<'_>) -> Option<Self> {
        self.floor = crate::query::window::decode_time(from)?;
        for _ in 0..from.count()? {
            let source = usize::try_from(from.u32()?).ok()?;
            let partition = usize::try_from(from.u32()?).ok()?;
            self.marks.insert((source, partition), (from.i64()?, true));
        }
        for _ in 0..from.count()? {
            let source = usize::try_from(from.u32()?).ok()?;
            let time = from.i64()?;
            let topic = from.text()?.into();
            let flags = from.u8()?;
            let key = match flags & 1 {
                0 => None,
                _ => Some(Bytes::copy_from_slice(from.bytes()?)),
            };
            let offset = match flags & 2 {
                0 => None,
                _ => Some(from.i64()?),
            };
            let partition = from.u32()?.cast_signed();
            let timestamp = UnixMillis(from.i64()?);
            let mut values = Vec::new();
            for _ in 0..from.count()? {
                values.push(decode_value(from)?);
            }
            let waiting = Waiting {
                source,
                time,
                topic,
                key,
                partition,
                offset,
                timestamp,
                values: values.into(),
            };
            self.keep(waiting);
        }
        Some(self)
    }

    fn keep(&mut self, waiting: Waiting) {
        let tie = waiting.tie();
        self.bytes += waiting.bytes() + tie.len();
        self.waiting.insert((waiting.time, tie, self.next), waiting);
        self.next += 1;
    }

    fn raise(&mut self) {
        let holding = self.marks.values().filter(|(_, holds)| *holds);
        let watermark = match holding.map(|(time, _)| *time).min() {
            Some(time) => Some(time),
            None => self.marks.values().map(|(time, _)| *time).max(),
        };
        // Of a partition that was not read yet nothing is known.
        let known = watermark.filter(|time| *time > i64::MIN);
        let floor = known.map(|time| time.saturating_sub(self.lateness_ms));
        self.floor = self.floor.max(floor);
    }
}

impl Waiting {
    /// The event, borrowing.
    pub fn event(&self) -> Event<'_> {
        Event {
            topic: &self.topic,
            payload: None,
            key: self.key.as_ref(),
            partition: self.partition,
            offset: self.offset,
            timestamp: self.timestamp,
        }
    }

    /// Says which of two events of one time comes first. Only events that no row can tell apart
    /// have the same.
    fn tie(&self) -> Vec<u8> {
        let mut tie = Vec::new();
        for value in &self.values {
            encode_key(&value.as_value(), &mut tie);
        }
        encode_key(&Value::text(&self.topic), &mut tie);
        let mut more = Encoder::short(tie);
        // A whole double is the integer that it is in a key, but not in a row.
        self.values
            .iter()
            .for_each(|value| encode_value(value, &mut more));
        more.count(self.source);
        more.bytes(self.key.as_deref().unwrap_or_default());
        more.i64(self.timestamp.0);
        more.u32(self.partition.cast_unsigned());
        more.i64(self.offset.unwrap_or(-1));
        more.0
    }

    fn bytes(&self) -> usize {
        let texts: usize = self.values.iter().map(OwnedValue::text_bytes).sum();
        std::mem::size_of::<Waiting>()
            + size_of_val(&*self.values)
            + texts
            + self.topic.len()
            + self.key.as_ref().map_or(0, Bytes::len)
            + WAITING_OVERHEAD_BYTES
    }
}

/// An event's share of the tree and its allocations, estimated.
const WAITING_OVERHEAD_BYTES: usize = 96;
