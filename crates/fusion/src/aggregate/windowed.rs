//! Aggregates over events that enter and leave: every value that was added can be taken away.

use std::collections::VecDeque;
use std::mem::size_of;

use super::kept::{Distinct, Listed, Numbers, Ordered, Sorted};
use super::{Accumulator, Form, Total};
use crate::codec::{Decoder, Encoder};
use crate::plan::AggregateFunction;
use crate::value::Value;
use crate::window::encode_key;

/// One aggregate of one group of a query.
#[derive(Clone, Debug)]
pub struct Windowed {
    state: State,
    distinct: Option<Box<Distinct>>,
    is_forever: bool,
}

#[derive(Clone, Debug)]
enum State {
    Count(u64),
    Sum(Total),
    Avg(Total),
    Spread {
        count: u64,
        mean: f64,
        squares: f64,
        is_whole: bool,
    },
    Sorted(Box<Sorted>, bool),
    Numbers(Box<Numbers>, Middle),
    Listed(Box<Listed>, Which),
    /// `nth`: the values that came last, and how many are there; what leaves counts as the oldest.
    Nth {
        recent: Box<Listed>,
        nth: usize,
        count: u64,
    },
    Ordered(Box<Ordered>, bool),
    Ever(AggregateFunction, Accumulator),
    Rate {
        times: VecDeque<i64>,
        length_ms: i64,
        has_left: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Middle {
    Median,
    Percentile(f64),
    Avedev,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    First,
    Last,
    /// First and last with nulls.
    FirstValue,
    LastValue,
    All,
}

/// What an event gives to one aggregate.
pub struct Given<'v> {
    /// The argument; none for `count(*)`.
    pub value: Option<Value<'v>>,
    /// The second argument.
    pub parameter: Value<'v>,
    /// The query's time, ms.
    pub now: i64,
    /// The event's number; 0 where it has none.
    pub number: u64,
}

impl Windowed {
    /// The state of an empty group; `is_forever` when nothing is ever taken away.
    pub fn new(function: AggregateFunction, is_distinct: bool, is_forever: bool) -> Self {
        use AggregateFunction as F;
        let ever = |of| State::Ever(of, Accumulator::new(of));
        let state = match function {
            F::Min | F::Max | F::First | F::Last if is_forever => ever(function),
            // Of what never leaves, the first and last values that are not null.
            F::FirstValue if is_forever => ever(F::First),
            F::LastValue if is_forever => ever(F::Last),
            F::Count => State::Count(0),
            F::Sum => State::Sum(Total::default()),
            F::Avg => State::Avg(Total::default()),
            F::Min => State::Sorted(Box::default(), false),
            F::Max => State::Sorted(Box::default(), true),
            F::Stddev | F::StddevPop => State::Spread {
                count: 0,
                mean: 0.0,
                squares: 0.0,
                is_whole: function == F::StddevPop,
            },
            F::Median => State::Numbers(Box::default(), Middle::Median),
            F::Percentile => State::Numbers(Box::default(), Middle::Percentile(f64::NAN)),
            F::Avedev => State::Numbers(Box::default(), Middle::Avedev),
            F::First => State::Listed(Box::default(), Which::First),
            F::Last => State::Listed(Box::default(), Which::Last),
            F::FirstValue => State::Listed(Box::default(), Which::FirstValue),
            F::LastValue => State::Listed(Box::default(), Which::LastValue),
            F::Window => State::Listed(Box::default(), Which::All),
            F::Nth => State::Nth {
                recent: Box::default(),
                nth: 0,
                count: 0,
            },
            F::MaxBy => State::Ordered(Box::default(), true),
            F::MinBy => State::Ordered(Box::default(), false),
            F::CountEver => ever(F::Count),
            F::FirstEver => ever(F::First),
            F::LastEver => ever(F::Last),
            F::MinEver => ever(F::Min),
            F::MaxEver => ever(F::Max),
            F::Rate => State::Rate {
                times: VecDeque::new(),
                length_ms: 0,
                has_left: false,
            },
        };
        Windowed {
            state,
            distinct: is_distinct.then(Box::default),
            is_forever,
        }
    }

    /// An event enters.
    pub fn add(&mut self, given: &Given<'_>) {
        if let Some(value) = &given.value
            && let Some(distinct) = &mut self.distinct
        {
            let mut key = Vec::new();
            encode_key(value, &mut key);
            if !value.is_null() && !distinct.add(&key) {
                return;
            }
        }
        self.state.change(given, true);
        if self.is_forever {
            self.state.trim();
        }
    }

    /// An event leaves that entered before.
    pub fn remove(&mut self, given: &Given<'_>) {
        if let Some(value) = &given.value
            && let Some(distinct) = &mut self.distinct
        {
            let mut key = Vec::new();
            encode_key(value, &mut key);
            if !value.is_null() && !distinct.remove(&key) {
                return;
            }
        }
        self.state.change(given, false);
    }

    /// The aggregate's value now.
    pub fn value(&self) -> Value<'_> {
        match &self.state {
            State::Count(count) => i64::try_from(*count).map_or(Value::Null, Value::Int),
            State::Sum(total) => total.sum(),
            State::Avg(total) => total.mean(),
            State::Spread { count: 0, .. }
            | State::Spread {
                count: 1,
                is_whole: false,
                ..
            } => Value::Null,
            State::Spread {
                count,
                squares,
                is_whole,
                ..
            } => {
                let of = if *is_whole { *count } else { *count - 1 };
                Value::float((squares / of as f64).max(0.0).sqrt())
            }
            State::Sorted(sorted, false) => sorted.first(),
            State::Sorted(sorted, true) => sorted.last(),
            State::Numbers(numbers, Middle::Median) => numbers.median(),
            State::Numbers(numbers, Middle::Percentile(fraction)) => numbers.percentile(*fraction),
            State::Numbers(numbers, Middle::Avedev) => numbers.mean_distance(),
            State::Listed(listed, Which::First | Which::FirstValue) => listed.nth_first(0),
            State::Listed(listed, Which::Last | Which::LastValue) => listed.nth_last(0),
            State::Listed(listed, Which::All) => listed.array(),
            State::Nth { recent, nth, .. } => recent.nth_last(*nth),
            State::Ordered(ordered, is_greatest) => ordered.value(*is_greatest),
            State::Ever(_, accumulator) => accumulator.value(),
            State::Rate {
                has_left: false, ..
            } => Value::Null,
            State::Rate {
                times, length_ms, ..
            } => Value::float(times.len() as f64 * 1_000.0 / *length_ms as f64),
        }
    }

    /// Bytes kept beside the value itself, about.
    pub fn bytes(&self) -> usize {
        let state = match &self.state {
            State::Sorted(sorted, _) => sorted.bytes(),
            State::Numbers(numbers, _) => numbers.bytes(),
            State::Listed(listed, _) | State::Nth { recent: listed, .. } => listed.bytes(),
            State::Ordered(ordered, _) => ordered.bytes(),
            State::Ever(_, accumulator) => accumulator.text_bytes(),
            State::Rate { times, .. } => times.capacity() * size_of::<i64>(),
            State::Count(_) | State::Sum(_) | State::Avg(_) | State::Spread { .. } => 0,
        };
        state
            + self
                .distinct
                .as_ref()
                .map_or(0, |distinct| distinct.bytes())
    }

    /// Writes the state.
    pub fn encode(&self, out: &mut Encoder) {
        match &self.state {
            State::Count(count) => out.u64(*count),
            State::Sum(total) | State::Avg(total) => total.encode(out),
            State::Spread {
                count,
                mean,
                squares,
                ..
            } => {
                out.u64(*count);
                out.f64(*mean);
                out.f64(*squares);
            }
            State::Sorted(sorted, _) => sorted.encode(out),
            State::Numbers(numbers, middle) => {
                numbers.encode(out);
                if let Middle::Percentile(fraction) = middle {
                    out.f64(*fraction);
                }
            }
            State::Listed(listed, _) => listed.encode(out),
            State::Nth { recent, nth, count } => {
                recent.encode(out);
                out.u64(*nth as u64 | NTH_COUNTED);
                out.u64(*count);
            }
            State::Ordered(ordered, _) => ordered.encode(out),
            State::Ever(_, accumulator) => accumulator.encode(out),
            State::Rate {
                times,
                length_ms,
                has_left,
            } => {
                out.count(times.len());
                times.iter().for_each(|time| out.i64(*time));
                out.i64(*length_ms);
                out.u8(u8::from(*has_left));
            }
        }
        if let Some(distinct) = &self.distinct {
            distinct.encode(out);
        }
    }

    /// Reads the state back into an empty one of the same kind.
    pub fn read(&mut self, from: &mut Decoder<'_>) -> Option<()> {
        match &mut self.state {
            State::Count(count) => *count = from.u64()?,
            State::Sum(total) | State::Avg(total) => *total = Total::decode(from)?,
            State::Spread {
                count,
                mean,
                squares,
                ..
            } => {
                *count = from.u64()?;
                *mean = from.f64()?;
                *squares = from.f64()?;
            }
            State::Sorted(sorted, _) => **sorted = Sorted::decode(from)?,
            State::Numbers(numbers, middle) => {
                **numbers = Numbers::decode(from)?;
                if let Middle::Percentile(fraction) = middle {
                    *fraction = from.f64()?;
                }
            }
            State::Listed(listed, _) => **listed = Listed::decode(from)?,
            State::Nth { recent, nth, count } => {
                **recent = Listed::decode(from)?;
                let place = from.u64()?;
                *nth = usize::try_from(place & !NTH_COUNTED).ok()?;
                // Earlier versions kept every value that was there.
                *count = match place & NTH_COUNTED {
                    0 => recent.len() as u64,
                    _ => from.u64()?,
                };
                recent.keep_last(nth.saturating_add(1));
            }
            State::Ordered(ordered, _) => **ordered = Ordered::decode(from)?,
            State::Ever(function, accumulator) => {
                let form = Form {
                    function: *function,
                    is_settled: false,
                };
                *accumulator = Accumulator::decode(form, from)?;
            }
            State::Rate {
                times,
                length_ms,
                has_left,
            } => {
                for _ in 0..from.count()? {
                    times.push_back(from.i64()?);
                }
                *length_ms = from.i64()?;
                *has_left = from.u8()? != 0;
            }
        }
        if let Some(distinct) = &mut self.distinct {
            **distinct = Distinct::decode(from)?;
        }
        Some(())
    }
}

impl State {
    /// Lets go of values that can never be asked for, where none is ever taken away.
    fn trim(&mut self) {
        if let State::Ordered(ordered, is_greatest) = self {
            ordered.keep_extreme(*is_greatest);
        }
    }

    fn change(&mut self, given: &Given<'_>, is_add: bool) {
        let value = match &given.value {
            Some(value) => value,
            None => &Value::Bool(true),
        };
        let keeps_nulls = matches!(
            self,
            State::Listed(_, Which::FirstValue | Which::LastValue | Which::All)
                | State::Rate { .. }
                | State::Ordered(..)
        );
        if value.is_null() && !keeps_nulls {
            return;
        }
        match self {
            State::Count(count) if is_add => *count += 1,
            State::Count(count) => *count = count.saturating_sub(1),
            State::Sum(total) | State::Avg(total) if is_add => total.add(value),
            State::Sum(total) | State::Avg(total) => total.remove(value),
            State::Spread {
                count,
                mean,
                squares,
                ..
            } => {
                if let Some(number) = value.as_f64() {
                    spread(count, mean, squares, number, is_add);
                }
            }
            State::Sorted(..) if matches!(value, Value::Json(_)) => {}
            State::Sorted(sorted, _) if is_add => sorted.add(value),
            State::Sorted(sorted, _) => sorted.remove(value),
            State::Numbers(numbers, middle) => {
                if let (Middle::Percentile(fraction), Some(given)) =
                    (middle, given.parameter.as_f64())
                {
                    *fraction = given;
                }
                match (value.as_f64(), is_add) {
                    (Some(number), true) => numbers.add(number),
                    (Some(number), false) => numbers.remove(number),
                    (None, _) => {}
                }
            }
            State::Listed(listed, _) if is_add => listed.add(given.number, value),
            State::Listed(listed, _) => listed.remove(given.number, value),
            State::Nth { recent, nth, count } => {
                if is_add {
                    if let Value::Int(given) = given.parameter {
                        *nth = usize::try_from(given).unwrap_or(0);
                    }
                    recent.add(given.number, value);
                    recent.keep_last(nth.saturating_add(1));
                    *count += 1;
                } else {
                    *count = count.saturating_sub(1);
                    recent.keep_last(usize::try_from(*count).unwrap_or(usize::MAX));
                }
            }
            State::Ordered(ordered, _) if is_add => ordered.add(&given.parameter, value),
            State::Ordered(ordered, _) => ordered.remove(&given.parameter, value),
            State::Ever(_, accumulator) if is_add => match given.value {
                Some(_) => accumulator.add(value),
                None => accumulator.add_event(),
            },
            State::Ever(..) => {}
            State::Rate {
                times,
                length_ms,
                has_left,
            } => {
                // Time alone lets go of its events.
                if is_add {
                    *length_ms = match given.parameter {
                        Value::Int(length) => length.max(1),
                        _ => 1_000,
                    };
                    times.push_back(given.now);
                    while times
                        .front()
                        .is_some_and(|time| *time <= given.now - *length_ms)
                    {
                        times.pop_front();
                        *has_left = true;
                    }
                }
            }
        }
    }
}

/// Welford's recurrence, forwards and backwards.
fn spread(count: &mut u64, mean: &mut f64, squares: &mut f64, number: f64, is_add: bool) {
    if !is_add && *count <= 1 {
        (*count, *mean, *squares) = (0, 0.0, 0.0);
        return;
    }
    let before = number - *mean;
    if is_add {
        *count += 1;
        *mean += before / *count as f64;
        *squares += before * (number - *mean);
    } else {
        *count -= 1;
        *mean -= before / *count as f64;
        *squares -= before * (number - *mean);
    }
}

/// Stands beside the place of `nth` where the count of values follows it.
const NTH_COUNTED: u64 = 1 << 63;

#[cfg(test)]
mod tests;
