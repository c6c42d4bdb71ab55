//! Aggregates that do not hang on the order in which values come: for windows that go by the
//! events' own time, whose events may come in any order.
//!
//! Sums of doubles are exact until they are told ([`Exact`]). `first` and `last` go by the events'
//! times; of one time the least value is the first, the greatest the last. Of values of mixed kinds
//! `min` and `max` take numbers before texts, and texts before truth values.

use std::cmp::Ordering;

use super::exact::Exact;
use super::kept::rank_order;
use super::{decode_kind, decode_value, encode_value};
use crate::codec::{Decoder, Encoder};
use crate::plan::AggregateFunction;
use crate::value::{OwnedValue, Value};

/// The state of one aggregate of one group.
#[derive(Clone, Debug)]
pub enum Settled {
    /// `sum`.
    Sum(Total),
    /// `avg`.
    Avg(Total),
    /// `min`: the least so far.
    Min(OwnedValue),
    /// `max`: the greatest so far.
    Max(OwnedValue),
    /// `first`: of the earliest time.
    First(i64, OwnedValue),
    /// `last`: of the latest time.
    Last(i64, OwnedValue),
    /// `stddev`.
    Stddev {
        /// How many values.
        count: u64,
        /// Their sum.
        sum: Exact,
        /// The sum of their squares.
        squares: Exact,
    },
}

/// A running total; integers apart, so that a sum of them is one.
#[derive(Clone, Debug, Default)]
pub struct Total {
    count: u64,
    floats: u64,
    int: i128,
    float: Exact,
}

impl Settled {
    /// The state of an empty group; none for functions that never hang on the order.
    pub fn new(function: AggregateFunction) -> Option<Self> {
        use AggregateFunction as F;
        Some(match function {
            F::Sum => Settled::Sum(Total::default()),
            F::Avg => Settled::Avg(Total::default()),
            F::Min => Settled::Min(OwnedValue::Null),
            F::Max => Settled::Max(OwnedValue::Null),
            F::First => Settled::First(0, OwnedValue::Null),
            F::Last => Settled::Last(0, OwnedValue::Null),
            F::Stddev => Settled::Stddev {
                count: 0,
                sum: Exact::default(),
                squares: Exact::default(),
            },
            _ => return None,
        })
    }

    /// Adds a value that is not null, of an event of that time.
    pub fn add(&mut self, time: i64, value: &Value<'_>) {
        match self {
            Settled::Sum(total) | Settled::Avg(total) => total.add(value),
            Settled::Min(kept) => keep(kept, value, Ordering::Less),
            Settled::Max(kept) => keep(kept, value, Ordering::Greater),
            Settled::First(at, kept) => keep_timed((at, kept), (time, value), Ordering::Less),
            Settled::Last(at, kept) => keep_timed((at, kept), (time, value), Ordering::Greater),
            Settled::Stddev {
                count,
                sum,
                squares,
            } => {
                if let Some(number) = value.as_f64() {
                    *count += 1;
                    sum.add(number);
                    squares.add_square(number);
                }
            }
        }
    }

    /// Takes over what another of the same kind has.
    pub fn join(&mut self, other: &Settled) {
        match (self, other) {
            (Settled::Sum(own), Settled::Sum(other)) | (Settled::Avg(own), Settled::Avg(other)) => {
                own.count += other.count;
                own.floats += other.floats;
                own.int = own.int.saturating_add(other.int);
                own.float.join(&other.float);
            }
            (
                own @ (Settled::Min(_) | Settled::Max(_)),
                Settled::Min(value) | Settled::Max(value),
            )
            | (own @ Settled::First(..), Settled::First(_, value))
            | (own @ Settled::Last(..), Settled::Last(_, value))
                if *value != OwnedValue::Null =>
            {
                let time = match other {
                    Settled::First(time, _) | Settled::Last(time, _) => *time,
                    _ => 0,
                };
                own.add(time, &value.as_value());
            }
            (
                Settled::Stddev {
                    count,
                    sum,
                    squares,
                },
                Settled::Stddev {
                    count: more,
                    sum: other,
                    squares: others,
                },
            ) => {
                *count += more;
                sum.join(other);
                squares.join(others);
            }
            _ => {}
        }
    }

    /// The aggregate's value now.
    pub fn value(&self) -> Value<'_> {
        match self {
            Settled::Sum(total) => total.sum(),
            Settled::Avg(total) => total.mean(),
            Settled::Min(kept)
            | Settled::Max(kept)
            | Settled::First(_, kept)
            | Settled::Last(_, kept) => kept.as_value(),
            Settled::Stddev { count: 0 | 1, .. } => Value::Null,
            Settled::Stddev {
                count,
                sum,
                squares,
            } => {
                // n Σx² − (Σx)² is exact: what is left of two large numbers loses nothing.
                let mut of = Exact::default();
                of.add_int(i128::from(*count));
                let mut apart = of.times(squares);
                apart.subtract(&sum.times(sum));
                let n = *count as f64;
                Value::float((apart.to_f64() / (n * (n - 1.0))).max(0.0).sqrt())
            }
        }
    }

    /// Bytes kept beside its own, about.
    pub fn bytes(&self) -> usize {
        match self {
            Settled::Sum(total) | Settled::Avg(total) => total.float.bytes(),
            Settled::Min(kept)
            | Settled::Max(kept)
            | Settled::First(_, kept)
            | Settled::Last(_, kept) => kept.text_bytes(),
            Settled::Stddev { sum, squares, .. } => sum.bytes() + squares.bytes(),
        }
    }

    /// Writes the state, so that it can be told from one that hangs on the order.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Settled::Sum(total) | Settled::Avg(total) => {
                out.u64(total.count);
                out.u64(total.floats | SETTLED);
                out.i128(total.int);
                total.float.encode(out);
            }
            Settled::Min(kept) | Settled::Max(kept) => encode_value(kept, out),
            Settled::First(time, kept) | Settled::Last(time, kept) => {
                out.u8(TIMED);
                out.i64(*time);
                encode_value(kept, out);
            }
            Settled::Stddev {
                count,
                sum,
                squares,
            } => {
                out.u64(count | SETTLED);
                sum.encode(out);
                squares.encode(out);
            }
        }
    }

    /// Reads it back, also what was written where the order counted.
    pub fn read(&mut self, from: &mut Decoder<'_>) -> Option<()> {
        match self {
            Settled::Sum(total) | Settled::Avg(total) => *total = Total::decode(from)?,
            Settled::Min(kept) | Settled::Max(kept) => *kept = decode_value(from)?,
            Settled::First(time, kept) | Settled::Last(time, kept) => {
                (*time, *kept) = decode_timed(from)?;
            }
            Settled::Stddev {
                count,
                sum,
                squares,
            } => {
                let written = from.u64()?;
                *count = written & !SETTLED;
                if written & SETTLED != 0 {
                    *sum = Exact::decode(from)?;
                    *squares = Exact::decode(from)?;
                } else {
                    let (mean, apart) = (from.f64()?, from.f64()?);
                    sum.add(mean * *count as f64);
                    squares.add(apart + mean * mean * *count as f64);
                }
            }
        }
        Some(())
    }
}

impl Total {
    fn add(&mut self, value: &Value<'_>) {
        match value {
            Value::Int(number) => self.int = self.int.saturating_add(i128::from(*number)),
            Value::Float(number) => {
                self.float.add(*number);
                self.floats += 1;
            }
            _ => return,
        }
        self.count += 1;
    }

    /// Integers and doubles together, rounded once.
    fn as_f64(&self) -> f64 {
        let mut all = self.float.clone();
        all.add_int(self.int);
        all.to_f64()
    }

    fn sum(&self) -> Value<'static> {
        match i64::try_from(self.int) {
            _ if self.count == 0 => Value::Null,
            Ok(sum) if self.floats == 0 => Value::Int(sum),
            _ => Value::float(self.as_f64()),
        }
    }

    fn mean(&self) -> Value<'static> {
        match self.count {
            0 => Value::Null,
            count => Value::float(self.as_f64() / count as f64),
        }
    }

    /// Reads a total, exact or not.
    fn decode(from: &mut Decoder<'_>) -> Option<Total> {
        let count = from.u64()?;
        let floats = from.u64()?;
        let int = from.i128()?;
        let float = match floats & SETTLED {
            0 => {
                let mut float = Exact::default();
                float.add(from.f64()?);
                float
            }
            _ => Exact::decode(from)?,
        };
        Some(Total {
            count,
            floats: floats & !SETTLED,
            int,
            float,
        })
    }
}

/// Reads a sum of doubles, exact or not, behind the count that says which; that count and the sum,
/// rounded.
pub fn decode_sum(floats: u64, from: &mut Decoder<'_>) -> Option<(u64, f64)> {
    match floats & SETTLED {
        0 => Some((floats, from.f64()?)),
        _ => Some((floats & !SETTLED, Exact::decode(from)?.to_f64())),
    }
}

/// Reads a standard deviation as count, mean and sum of squares of the distances to it.
pub fn decode_spread(from: &mut Decoder<'_>) -> Option<(u64, f64, f64)> {
    let written = from.u64()?;
    let count = written & !SETTLED;
    if written & SETTLED == 0 {
        return Some((count, from.f64()?, from.f64()?));
    }
    let (sum, mut squares) = (Exact::decode(from)?, Exact::decode(from)?);
    let mean = sum.to_f64() / (count as f64).max(1.0);
    let mut center = Exact::default();
    center.add_square(mean);
    let mut of = Exact::default();
    of.add_int(i128::from(count));
    squares.subtract(&of.times(&center));
    Some((count, mean, squares.to_f64().max(0.0)))
}

/// Reads a value with its time; one that was written without has the least.
pub fn decode_timed(from: &mut Decoder<'_>) -> Option<(i64, OwnedValue)> {
    match from.u8()? {
        TIMED => Some((from.i64()?, decode_value(from)?)),
        kind => Some((i64::MIN, decode_kind(kind, from)?)),
    }
}

fn keep(kept: &mut OwnedValue, value: &Value<'_>, wanted: Ordering) {
    let kind = |value: &Value<'_>| match value {
        Value::Int(_) | Value::Float(_) => 0,
        Value::Text(_) => 1,
        Value::Bool(_) => 2,
        Value::Json(_) | Value::Null => 3,
    };
    let known = kept.as_value();
    let takes = match kind(value).cmp(&kind(&known)) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => match rank_order(value, &known) {
            Ordering::Equal => form_order(value, &known).is_lt(),
            order => order == wanted,
        },
    };
    if takes && kind(value) < 3 {
        kept.assign(value);
    }
}

fn keep_timed(
    (at, kept): (&mut i64, &mut OwnedValue),
    (time, value): (i64, &Value<'_>),
    wanted: Ordering,
) {
    let known = kept.as_value();
    let order = time
        .cmp(at)
        .then_with(|| rank_order(value, &known))
        .then_with(|| form_order(value, &known));
    if known.is_null() || order == wanted {
        *at = time;
        kept.assign(value);
    }
}

/// The order of equal values that are written differently: 1, 1.0; -0.0, 0.0.
fn form_order(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    match (a, b) {
        (Value::Int(_), Value::Float(_)) => Ordering::Less,
        (Value::Float(_), Value::Int(_)) => Ordering::Greater,
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        _ => Ordering::Equal,
    }
}

/// Beside a count: what follows does not hang on the order.
const SETTLED: u64 = 1 << 63;

/// In place of a value's kind: its time comes first.
const TIMED: u8 = 16;
