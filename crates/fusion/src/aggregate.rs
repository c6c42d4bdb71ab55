//! What a group accumulates. Nulls, and values of a type the aggregate does not take, are skipped.

mod exact;
pub mod kept;
mod settled;
pub mod windowed;

use std::cmp::Ordering;

use crate::codec::{Decoder, Encoder};
use crate::plan::AggregateFunction;
use crate::value::{OwnedValue, Value};

pub use windowed::{Given, Windowed};

use settled::Settled;

/// What kind of state an aggregate of a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// What is computed.
    pub function: AggregateFunction,
    /// Whether the order in which values come must not count.
    pub is_settled: bool,
}

/// The state of one aggregate of one group.
#[derive(Clone, Debug)]
pub enum Accumulator {
    /// `count`.
    Count(u64),
    /// `sum`.
    Sum(Total),
    /// `avg`.
    Avg(Total),
    /// `min`: the least so far.
    Min(OwnedValue),
    /// `max`: the greatest so far.
    Max(OwnedValue),
    /// `first`.
    First(OwnedValue),
    /// `last`.
    Last(OwnedValue),
    /// `stddev`, by Welford's recurrence.
    Stddev {
        /// How many values.
        count: u64,
        /// Their mean.
        mean: f64,
        /// The sum of squares of their distances to the mean.
        squares: f64,
    },
    /// All others: they keep values.
    Kept(Box<Windowed>),
    /// Where the order of values must not count.
    Settled(Box<Settled>),
}

/// A running total: integers and doubles apart, so that integers stay exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    count: u64,
    floats: u64,
    int: i128,
    float: f64,
}

impl Form {
    /// Bytes of an aggregate's state, without the values that it keeps.
    pub fn bytes(&self) -> usize {
        let boxed = self.is_settled && Settled::new(self.function).is_some();
        size_of::<Accumulator>() + if boxed { size_of::<Settled>() } else { 0 }
    }
}

impl Accumulator {
    /// The state of an empty group.
    pub fn of(form: Form) -> Self {
        let settled = match form.is_settled {
            true => Settled::new(form.function),
            false => None,
        };
        match settled {
            Some(settled) => Accumulator::Settled(Box::new(settled)),
            None => Accumulator::new(form.function),
        }
    }

    /// The state of an empty group, where values come in order.
    pub fn new(function: AggregateFunction) -> Self {
        match function {
            AggregateFunction::Count => Accumulator::Count(0),
            AggregateFunction::Sum => Accumulator::Sum(Total::default()),
            AggregateFunction::Avg => Accumulator::Avg(Total::default()),
            AggregateFunction::Min => Accumulator::Min(OwnedValue::Null),
            AggregateFunction::Max => Accumulator::Max(OwnedValue::Null),
            AggregateFunction::First => Accumulator::First(OwnedValue::Null),
            AggregateFunction::Last => Accumulator::Last(OwnedValue::Null),
            AggregateFunction::Stddev => Accumulator::Stddev {
                count: 0,
                mean: 0.0,
                squares: 0.0,
            },
            function => Accumulator::Kept(Box::new(Windowed::new(function, false, false))),
        }
    }

    /// Counts an event whatever its values: `count(*)`.
    pub fn add_event(&mut self) {
        if let Accumulator::Count(count) = self {
            *count += 1;
        }
    }

    /// Adds one value of the argument.
    pub fn add(&mut self, value: &Value<'_>) {
        if value.is_null() {
            return;
        }
        match self {
            Accumulator::Count(count) => *count += 1,
            Accumulator::Sum(total) | Accumulator::Avg(total) => total.add(value),
            Accumulator::Min(kept) => keep(kept, value, Ordering::Less),
            Accumulator::Max(kept) => keep(kept, value, Ordering::Greater),
            Accumulator::First(kept) => {
                if *kept == OwnedValue::Null {
                    kept.assign(value);
                }
            }
            Accumulator::Last(kept) => kept.assign(value),
            Accumulator::Kept(_) | Accumulator::Settled(_) => {
                self.add_with(0, value, || Value::Null);
            }
            Accumulator::Stddev {
                count,
                mean,
                squares,
            } => {
                if let Some(number) = value.as_f64() {
                    *count += 1;
                    let before = number - *mean;
                    *mean += before / *count as f64;
                    *squares += before * (number - *mean);
                }
            }
        }
    }

    /// Adds one value of the argument, of an event of that time; `parameter` gives the second
    /// argument where it counts.
    pub fn add_with<'v>(
        &mut self,
        time: i64,
        value: &Value<'v>,
        parameter: impl FnOnce() -> Value<'v>,
    ) {
        match self {
            Accumulator::Settled(settled) if !value.is_null() => settled.add(time, value),
            Accumulator::Settled(_) => {}
            Accumulator::Kept(kept) => kept.add(&Given {
                value: Some(value.reborrow()),
                parameter: parameter(),
                now: 0,
                number: 0,
            }),
            _ => self.add(value),
        }
    }

    /// Takes over what another of the same kind has, whose values came after this one's.
    pub fn join(&mut self, later: &Accumulator) {
        match (self, later) {
            (Accumulator::Count(own), Accumulator::Count(later)) => *own += later,
            (Accumulator::Settled(own), Accumulator::Settled(later)) => own.join(later),
            (Accumulator::Sum(own), Accumulator::Sum(later))
            | (Accumulator::Avg(own), Accumulator::Avg(later)) => own.join(later),
            (
                own @ (Accumulator::Min(_) | Accumulator::Max(_) | Accumulator::First(_)),
                Accumulator::Min(later) | Accumulator::Max(later) | Accumulator::First(later),
            ) => own.add(&later.as_value()),
            (Accumulator::Last(own), Accumulator::Last(later)) if *later != OwnedValue::Null => {
                own.assign(&later.as_value());
            }
            (
                Accumulator::Stddev {
                    count,
                    mean,
                    squares,
                },
                Accumulator::Stddev {
                    count: more,
                    mean: other,
                    squares: their,
                },
            ) if *more > 0 => {
                let (n, m) = (*count as f64, *more as f64);
                let apart = other - *mean;
                *mean += apart * m / (n + m);
                *squares += their + apart * apart * n * m / (n + m);
                *count += more;
            }
            // What keeps values is of no SQL aggregate, and only SQL has sessions.
            _ => {}
        }
    }

    /// The aggregate's value now.
    pub fn value(&self) -> Value<'_> {
        match self {
            Accumulator::Count(count) => i64::try_from(*count).map_or(Value::Null, Value::Int),
            Accumulator::Sum(total) => total.sum(),
            Accumulator::Avg(total) => total.mean(),
            Accumulator::Kept(kept) => kept.value(),
            Accumulator::Settled(settled) => settled.value(),
            Accumulator::Min(kept)
            | Accumulator::Max(kept)
            | Accumulator::First(kept)
            | Accumulator::Last(kept) => kept.as_value(),
            Accumulator::Stddev { count: 0 | 1, .. } => Value::Null,
            Accumulator::Stddev { count, squares, .. } => {
                Value::float((squares / (*count - 1) as f64).max(0.0).sqrt())
            }
        }
    }

    /// What [`Form::bytes`] said of it.
    pub fn bytes(&self) -> usize {
        let boxed = matches!(self, Accumulator::Settled(_));
        size_of::<Accumulator>() + if boxed { size_of::<Settled>() } else { 0 }
    }

    /// Bytes kept beside [`Form::bytes`].
    pub fn text_bytes(&self) -> usize {
        match self {
            Accumulator::Min(kept)
            | Accumulator::Max(kept)
            | Accumulator::First(kept)
            | Accumulator::Last(kept) => kept.text_bytes(),
            Accumulator::Kept(kept) => kept.bytes(),
            Accumulator::Settled(settled) => settled.bytes(),
            _ => 0,
        }
    }

    /// Writes the state.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Accumulator::Count(count) => out.u64(*count),
            Accumulator::Sum(total) | Accumulator::Avg(total) => {
                total.encode(out);
            }
            Accumulator::Kept(kept) => kept.encode(out),
            Accumulator::Settled(settled) => settled.encode(out),
            Accumulator::Min(kept)
            | Accumulator::Max(kept)
            | Accumulator::First(kept)
            | Accumulator::Last(kept) => encode_value(kept, out),
            Accumulator::Stddev {
                count,
                mean,
                squares,
            } => {
                out.u64(*count);
                out.f64(*mean);
                out.f64(*squares);
            }
        }
    }

    /// Reads back the state of an aggregate, also where the order counted for the one that wrote it
    /// and does not here, or the other way round.
    pub fn decode(form: Form, from: &mut Decoder<'_>) -> Option<Self> {
        let mut own = Accumulator::of(form);
        if let Accumulator::Settled(settled) = &mut own {
            settled.read(from)?;
            return Some(own);
        }
        Some(match form.function {
            AggregateFunction::Count => Accumulator::Count(from.u64()?),
            AggregateFunction::Sum => Accumulator::Sum(Total::decode(from)?),
            AggregateFunction::Avg => Accumulator::Avg(Total::decode(from)?),
            AggregateFunction::Min => Accumulator::Min(decode_value(from)?),
            AggregateFunction::Max => Accumulator::Max(decode_value(from)?),
            AggregateFunction::First => Accumulator::First(settled::decode_timed(from)?.1),
            AggregateFunction::Last => Accumulator::Last(settled::decode_timed(from)?.1),
            AggregateFunction::Stddev => {
                let (count, mean, squares) = settled::decode_spread(from)?;
                Accumulator::Stddev {
                    count,
                    mean,
                    squares,
                }
            }
            function => {
                let mut kept = Windowed::new(function, false, false);
                kept.read(from)?;
                Accumulator::Kept(Box::new(kept))
            }
        })
    }
}

impl Total {
    fn add(&mut self, value: &Value<'_>) {
        match value {
            // 2^63 values of 63 bits each fit 127 bits: no count of events reaches that.
            Value::Int(number) => self.int = self.int.saturating_add(i128::from(*number)),
            Value::Float(number) => {
                self.float += number;
                self.floats += 1;
            }
            _ => return,
        }
        self.count += 1;
    }

    fn join(&mut self, later: &Total) {
        self.count += later.count;
        self.floats += later.floats;
        self.int = self.int.saturating_add(later.int);
        self.float += later.float;
    }

    /// Takes away a value that was added.
    fn remove(&mut self, value: &Value<'_>) {
        match value {
            Value::Int(number) => self.int = self.int.saturating_sub(i128::from(*number)),
            Value::Float(number) => {
                self.floats = self.floats.saturating_sub(1);
                // Without doubles left, what rounding left over goes too.
                self.float = if self.floats == 0 {
                    0.0
                } else {
                    self.float - number
                };
            }
            _ => return,
        }
        self.count = self.count.saturating_sub(1);
        if self.count == 0 {
            *self = Total::default();
        }
    }

    fn mean(&self) -> Value<'static> {
        if self.count == 0 {
            return Value::Null;
        }
        Value::float(self.as_f64() / self.count as f64)
    }

    fn encode(&self, out: &mut Encoder) {
        out.u64(self.count);
        out.u64(self.floats);
        out.i128(self.int);
        out.f64(self.float);
    }

    fn as_f64(&self) -> f64 {
        self.int as f64 + self.float
    }

    fn sum(&self) -> Value<'static> {
        if self.count == 0 {
            return Value::Null;
        }
        match i64::try_from(self.int) {
            Ok(sum) if self.floats == 0 => Value::Int(sum),
            _ => Value::float(self.as_f64()),
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Total> {
        let (count, floats) = (from.u64()?, from.u64()?);
        let int = from.i128()?;
        let (floats, float) = settled::decode_sum(floats, from)?;
        Some(Total {
            count,
            floats,
            int,
            float,
        })
    }
}

/// Keeps `value` when it stands on the wanted side; values of other kinds than the first are
/// skipped.
fn keep(kept: &mut OwnedValue, value: &Value<'_>, wanted: Ordering) {
    let take = match kept {
        OwnedValue::Null => !matches!(value, Value::Json(_)),
        _ => value.compare(&kept.as_value()) == Some(wanted),
    };
    if take {
        kept.assign(value);
    }
}

/// Writes one value: its kind in one byte, then its bytes.
pub fn encode_value(value: &OwnedValue, out: &mut Encoder) {
    match value {
        OwnedValue::Null => out.u8(0),
        OwnedValue::Bool(truth) => {
            out.u8(1);
            out.u8(u8::from(*truth));
        }
        OwnedValue::Int(number) => {
            out.u8(2);
            out.i64(*number);
        }
        OwnedValue::Float(number) => {
            out.u8(3);
            out.f64(*number);
        }
        OwnedValue::Text(text) => {
            out.u8(4);
            out.bytes(text.as_bytes());
        }
        OwnedValue::Json(text) => {
            out.u8(5);
            out.bytes(text.as_bytes());
        }
    }
}

/// Reads back what [`encode_value`] wrote.
pub fn decode_value(from: &mut Decoder<'_>) -> Option<OwnedValue> {
    decode_kind(from.u8()?, from)
}

/// Reads a value behind its kind.
fn decode_kind(kind: u8, from: &mut Decoder<'_>) -> Option<OwnedValue> {
    Some(match kind {
        0 => OwnedValue::Null,
        1 => OwnedValue::Bool(from.u8()? != 0),
        2 => OwnedValue::Int(from.i64()?),
        3 => OwnedValue::Float(from.f64()?),
        4 => OwnedValue::Text(from.text()?),
        5 => OwnedValue::Json(from.text()?),
        _ => return None,
    })
}
