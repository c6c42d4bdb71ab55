//! Values that aggregates keep so that they can let go of them again.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::size_of;

use super::{decode_value, encode_value};
use crate::codec::{Decoder, Encoder};
use crate::value::{OwnedValue, Value};

/// A value in a total order: by kind (null, truth values, numbers, texts, JSON), then by value.
#[derive(Clone, Debug)]
pub struct Ranked(pub OwnedValue);

/// Values in order, each with how often it is there.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    values: BTreeMap<Ranked, u64>,
    text_bytes: usize,
}

/// Numbers in order, for places in the middle.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Vec<f64>);

/// Values in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    values: VecDeque<(u64, OwnedValue)>,
    text_bytes: usize,
}

/// Values by the order of another, the first of equals first.
#[derive(Clone, Debug, Default)]
pub struct Ordered {
    values: BTreeMap<Ranked, VecDeque<OwnedValue>>,
    count: usize,
    text_bytes: usize,
}

/// How often each value is there, for aggregates that count each once.
#[derive(Clone, Debug, Default)]
pub struct Distinct {
    counts: HashMap<Box<[u8]>, u64>,
    key_bytes: usize,
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        rank_order(&self.0.as_value(), &other.0.as_value())
    }
}

/// The total order of values.
pub fn rank_order(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    let kind = |value: &Value<'_>| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Int(_) | Value::Float(_) => 2,
        Value::Text(_) => 3,
        Value::Json(_) => 4,
    };
    kind(a).cmp(&kind(b)).then_with(|| match (a, b) {
        (Value::Json(a), Value::Json(b)) => a.cmp(b),
        _ => a.compare(b).unwrap_or(Ordering::Equal),
    })
}

impl Sorted {
    /// Adds one.
    pub fn add(&mut self, value: &Value<'_>) {
        let mut own = OwnedValue::Null;
        own.assign(value);
        let bytes = own.text_bytes();
        let count = self.values.entry(Ranked(own)).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.text_bytes += bytes;
        }
    }

    /// Takes one away.
    pub fn remove(&mut self, value: &Value<'_>) {
        let mut own = OwnedValue::Null;
        own.assign(value);
        let key = Ranked(own);
        let Some(count) = self.values.get_mut(&key) else {
            return;
        };
        *count -= 1;
        if *count == 0
            && let Some((gone, _)) = self.values.remove_entry(&key)
        {
            self.text_bytes = self.text_bytes.saturating_sub(gone.0.text_bytes());
        }
    }

    /// The least.
    pub fn first(&self) -> Value<'_> {
        let first = self.values.first_key_value();
        first.map_or(Value::Null, |(value, _)| value.0.as_value())
    }

    /// The greatest.
    pub fn last(&self) -> Value<'_> {
        let last = self.values.last_key_value();
        last.map_or(Value::Null, |(value, _)| value.0.as_value())
    }

    /// Bytes kept, about.
    pub fn bytes(&self) -> usize {
        self.values.len() * (size_of::<Ranked>() + TREE_ENTRY_BYTES) + self.text_bytes
    }

    /// Writes the values.
    pub fn encode(&self, out: &mut Encoder) {
        out.count(self.values.len());
        for (value, count) in &self.values {
            encode_value(&value.0, out);
            out.u64(*count);
        }
    }

    /// Reads them back.
    pub fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let mut sorted = Sorted::default();
        for _ in 0..from.count()? {
            let value = decode_value(from)?;
            let count = from.u64()?;
            sorted.text_bytes += value.text_bytes();
            sorted.values.insert(Ranked(value), count.max(1));
        }
        Some(sorted)
    }
}

impl Numbers {
    /// Adds one.
    pub fn add(&mut self, number: f64) {
        let place = self.0.partition_point(|known| *known < number);
        self.0.insert(place, number);
    }

    /// Takes one away.
    pub fn remove(&mut self, number: f64) {
        let place = self.0.partition_point(|known| *known < number);
        if self.0.get(place) == Some(&number) {
            self.0.remove(place);
        }
    }

    /// The value in the middle, or between the two in the middle.
    pub fn median(&self) -> Value<'static> {
        let middle = self.0.len() / 2;
        match self.0.len() {
            0 => Value::Null,
            count if count % 2 == 1 => Value::float(self.0[middle]),
            _ => Value::float((self.0[middle - 1] + self.0[middle]) / 2.0),
        }
    }

    /// The value below which `fraction` lies, between neighbours in proportion.
    pub fn percentile(&self, fraction: f64) -> Value<'static> {
        if self.0.is_empty() || !(0.0..=1.0).contains(&fraction) {
            return Value::Null;
        }
        let place = fraction * (self.0.len() - 1) as f64;
        let low = place.floor() as usize;
        let high = (low + 1).min(self.0.len() - 1);
        let part = place - low as f64;
        Value::float(self.0[low] + (self.0[high] - self.0[low]) * part)
    }

    /// The mean distance to the mean.
    pub fn mean_distance(&self) -> Value<'static> {
        if self.0.is_empty() {
            return Value::Null;
        }
        let count = self.0.len() as f64;
        let mean = self.0.iter().sum::<f64>() / count;
        Value::float(
            self.0
                .iter()
                .map(|number| (number - mean).abs())
                .sum::<f64>()
                / count,
        )
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<f64>()
    }

    /// Writes the numbers.
    pub fn encode(&self, out: &mut Encoder) {
        out.count(self.0.len());
        self.0.iter().for_each(|number| out.f64(*number));
    }

    /// Reads them back.
    pub fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let mut numbers = Vec::new();
        for _ in 0..from.count()? {
            numbers.push(from.f64()?);
        }
        numbers.sort_by(f64::total_cmp);
        Some(Numbers(numbers))
    }
}

impl Listed {
    /// Adds one at the end, by the number of its event.
    pub fn add(&mut self, number: u64, value: &Value<'_>) {
        let mut own = OwnedValue::Null;
        own.assign(value);
        self.text_bytes += own.text_bytes();
        self.values.push_back((number, own));
    }

    /// Takes that of an event away; the first of its value, where the event is not known.
    pub fn remove(&mut self, number: u64, value: &Value<'_>) {
        let same = |own: &OwnedValue| rank_order(&own.as_value(), value).is_eq();
        let mut values = self.values.iter();
        let exact = values.position(|(known, own)| *known == number && same(own));
        let place = exact.or_else(|| self.values.iter().position(|(_, own)| same(own)));
        let Some(place) = place else {
            return;
        };
        if let Some((_, gone)) = self.values.remove(place) {
            self.text_bytes = self.text_bytes.saturating_sub(gone.text_bytes());
        }
    }

    /// Lets go of all but so many at the end.
    pub fn keep_last(&mut self, count: usize) {
        while self.values.len() > count {
            let gone = self.values.pop_front();
            self.text_bytes -= gone.map_or(0, |(_, gone)| gone.text_bytes());
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The n-th from the front.
    pub fn nth_first(&self, index: usize) -> Value<'_> {
        self.values
            .get(index)
            .map_or(Value::Null, |(_, value)| value.as_value())
    }

    /// The n-th from the back.
    pub fn nth_last(&self, index: usize) -> Value<'_> {
        let place = self.values.len().checked_sub(index + 1);
        place.map_or(Value::Null, |place| self.nth_first(place))
    }

    /// All, as a JSON array; null for none.
    pub fn array(&self) -> Value<'static> {
        if self.values.is_empty() {
            return Value::Null;
        }
        let mut text = vec![b'['];
        for (index, (_, value)) in self.values.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            value.as_value().write_json(&mut text);
        }
        text.push(b']');
        Value::Json(String::from_utf8_lossy(&text).into_owned().into())
    }

    /// Bytes kept, about.
    pub fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<(u64, OwnedValue)>() + self.text_bytes
    }

    /// Writes the values.
    pub fn encode(&self, out: &mut Encoder) {
        out.count(self.values.len());
        for (number, value) in &self.values {
            out.u64(*number);
            encode_value(value, out);
        }
    }

    /// Reads them back.
    pub fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let mut listed = Listed::default();
        for _ in 0..from.count()? {
            let number = from.u64()?;
            let value = decode_value(from)?;
            listed.text_bytes += value.text_bytes();
            listed.values.push_back((number, value));
        }
        Some(listed)
    }
}

impl Ordered {
    /// Adds a value under its order.
    pub fn add(&mut self, order: &Value<'_>, value: &Value<'_>) {
        let (mut key, mut own) = (OwnedValue::Null, OwnedValue::Null);
        key.assign(order);
        own.assign(value);
        self.text_bytes += own.text_bytes();
        self.count += 1;
        self.values.entry(Ranked(key)).or_default().push_back(own);
    }

    /// Takes the value away.
    pub fn remove(&mut self, order: &Value<'_>, value: &Value<'_>) {
        let mut key = OwnedValue::Null;
        key.assign(order);
        let key = Ranked(key);
        let Some(values) = self.values.get_mut(&key) else {
            return;
        };
        let same = |own: &OwnedValue| rank_order(&own.as_value(), value).is_eq();
        if let Some(gone) = values
            .iter()
            .position(same)
            .and_then(|place| values.remove(place))
        {
            self.text_bytes = self.text_bytes.saturating_sub(gone.text_bytes());
            self.count -= 1;
        }
        if values.is_empty() {
            self.values.remove(&key);
        }
    }

    /// Lets go of all but the value that would be given.
    pub fn keep_extreme(&mut self, is_greatest: bool) {
        let kept = if is_greatest {
            self.values.pop_last()
        } else {
            self.values.pop_first()
        };
        let Some((order, mut values)) = kept else {
            return;
        };
        values.truncate(1);
        self.count = values.len();
        self.text_bytes = values.iter().map(OwnedValue::text_bytes).sum();
        self.values = BTreeMap::from([(order, values)]);
    }

    /// The first value of the least order, or of the greatest.
    pub fn value(&self, is_greatest: bool) -> Value<'_> {
        let entry = if is_greatest {
            self.values.last_key_value()
        } else {
            self.values.first_key_value()
        };
        entry
            .and_then(|(_, values)| values.front())
            .map_or(Value::Null, OwnedValue::as_value)
    }

    /// Bytes kept, about.
    pub fn bytes(&self) -> usize {
        self.count * (2 * size_of::<OwnedValue>() + TREE_ENTRY_BYTES) + self.text_bytes
    }

    /// Writes the values.
    pub fn encode(&self, out: &mut Encoder) {
        out.count(self.count);
        for (order, values) in &self.values {
            for value in values {
                encode_value(&order.0, out);
                encode_value(value, out);
            }
        }
    }

    /// Reads them back.
    pub fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let mut ordered = Ordered::default();
        for _ in 0..from.count()? {
            let order = decode_value(from)?;
            let value = decode_value(from)?;
            ordered.add(&order.as_value(), &value.as_value());
        }
        Some(ordered)
    }
}

impl Distinct {
    /// Adds one; true when it is the first of its value.
    pub fn add(&mut self, key: &[u8]) -> bool {
        if let Some(count) = self.counts.get_mut(key) {
            *count += 1;
            return false;
        }
        self.key_bytes += key.len();
        self.counts.insert(key.into(), 1);
        true
    }

    /// Takes one away; true when it was the last of its value.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let Some(count) = self.counts.get_mut(key) else {
            return false;
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.counts.remove(key);
        self.key_bytes -= key.len();
        true
    }

    /// Bytes kept, about.
    pub fn bytes(&self) -> usize {
        self.counts.len() * TREE_ENTRY_BYTES + self.key_bytes
    }

    /// Writes the values.
    pub fn encode(&self, out: &mut Encoder) {
        let mut counts: Vec<_> = self.counts.iter().collect();
        counts.sort();
        out.count(counts.len());
        for (key, count) in counts {
            out.bytes(key);
            out.u64(*count);
        }
    }

    /// Reads them back.
    pub fn decode(from: &mut Decoder<'_>) -> Option<Self> {
        let mut distinct = Distinct::default();
        for _ in 0..from.count()? {
            let key = from.bytes()?;
            let count = from.u64()?;
            distinct.key_bytes += key.len();
            distinct.counts.insert(key.into(), count.max(1));
        }
        Some(distinct)
    }
}

/// An entry's share of a tree or table, estimated.
const TREE_ENTRY_BYTES: usize = 48;
