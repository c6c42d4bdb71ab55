//! Aggregates that let go again, each against what a fresh one makes of what is left.

use base::Rng;

use super::*;
use crate::value::OwnedValue;

fn given<'v>(value: &'v OwnedValue, parameter: &'v OwnedValue) -> Given<'v> {
    Given {
        value: Some(value.as_value()),
        parameter: parameter.as_value(),
        now: 0,
        number: 0,
    }
}

fn random(rng: &mut Rng) -> OwnedValue {
    let small = rng.below(9) as i64 - 4;
    let mut value = OwnedValue::Null;
    let text = ["", "a", "b", "ab"][rng.below(4) as usize];
    match rng.below(10) {
        0 => {}
        1 => value.assign(&Value::Bool(rng.one_in(2))),
        2 => value.assign(&Value::Text(text.into())),
        // Sums of these are exact, and none equals an integer.
        3..6 => value.assign(&Value::Float(small as f64 + 0.25)),
        _ => value.assign(&Value::Int(small)),
    }
    value
}

fn same(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        // Spreads are kept by a recurrence, whose last digits depend on what has left.
        (Value::Float(left), Value::Float(right)) => (left - right).abs() < 1e-6,
        _ => left == right,
    }
}

#[test]
fn what_has_left_counts_no_more() {
    use AggregateFunction as F;
    let functions = [
        F::Count,
        F::Sum,
        F::Avg,
        F::Min,
        F::Max,
        F::First,
        F::Last,
        F::Stddev,
        F::StddevPop,
        F::Avedev,
        F::Median,
        F::Percentile,
        F::FirstValue,
        F::LastValue,
        F::Window,
        F::Nth,
        F::MaxBy,
        F::MinBy,
    ];
    let mut rng = Rng::from_seed(11);
    for function in functions {
        for is_distinct in [false, true] {
            // Which of equals is counted depends on what was there before.
            if is_distinct && !matches!(function, F::Count | F::Sum | F::Avg | F::Stddev) {
                continue;
            }
            let mut kept = Windowed::new(function, is_distinct, false);
            let mut there: VecDeque<(OwnedValue, OwnedValue)> = VecDeque::new();
            for step in 0..2_000 {
                // It fills and empties by turns.
                let is_full = there.len() > 20 || (step / 50 % 2 == 1 && !there.is_empty());
                if is_full {
                    let (value, parameter) = there.pop_front().unwrap();
                    kept.remove(&given(&value, &parameter));
                } else {
                    let mut parameter = OwnedValue::Null;
                    match function {
                        F::Percentile => parameter.assign(&Value::Float(0.3)),
                        F::Nth => parameter.assign(&Value::Int(2)),
                        _ => parameter = random(&mut rng),
                    }
                    let value = random(&mut rng);
                    kept.add(&given(&value, &parameter));
                    there.push_back((value, parameter));
                }
                let mut anew = Windowed::new(function, is_distinct, false);
                for (value, parameter) in &there {
                    anew.add(&given(value, parameter));
                }
                assert!(
                    same(&kept.value(), &anew.value()) || there.is_empty(),
                    "{function:?} distinct {is_distinct} at {step}: {:?}, anew {:?} of {there:?}",
                    kept.value(),
                    anew.value()
                );
            }
        }
    }
}

/// `nth(value, 1)` after each of these values came.
fn come(nth: &mut Windowed, values: &[i64]) -> OwnedValue {
    let (mut own, mut place) = (OwnedValue::Null, OwnedValue::Null);
    place.assign(&Value::Int(1));
    for value in values {
        own.assign(&Value::Int(*value));
        nth.add(&given(&own, &place));
    }
    own.assign(&nth.value());
    own
}

fn leave(nth: &mut Windowed, value: i64) -> OwnedValue {
    let mut own = OwnedValue::Null;
    own.assign(&Value::Int(value));
    nth.remove(&given(&own, &OwnedValue::Null));
    own.assign(&nth.value());
    own
}

#[test]
fn the_nth_is_of_what_came_last_whatever_leaves() {
    let mut nth = Windowed::new(AggregateFunction::Nth, false, false);
    assert_eq!(come(&mut nth, &[1, 2, 3, 4]), OwnedValue::Int(3));
    assert_eq!(leave(&mut nth, 3), OwnedValue::Int(3));
    assert_eq!(leave(&mut nth, 4), OwnedValue::Int(3));
    assert_eq!(leave(&mut nth, 1), OwnedValue::Null);
    assert_eq!(come(&mut nth, &[5]), OwnedValue::Int(4));
    let mut out = Encoder::short(Vec::new());
    nth.encode(&mut out);
    let mut again = Windowed::new(AggregateFunction::Nth, false, false);
    again.read(&mut Decoder::short(&out.0)).unwrap();
    assert_eq!(come(&mut again, &[]), OwnedValue::Int(4));
    assert_eq!(leave(&mut again, 2), OwnedValue::Null);
}

#[test]
fn what_earlier_versions_kept_for_the_nth_is_read() {
    let mut listed = Listed::default();
    (1..=4).for_each(|value| listed.add(0, &Value::Int(value)));
    let mut out = Encoder::short(Vec::new());
    listed.encode(&mut out);
    out.u64(1);
    let mut nth = Windowed::new(AggregateFunction::Nth, false, false);
    nth.read(&mut Decoder::short(&out.0)).unwrap();
    assert_eq!(leave(&mut nth, 1), OwnedValue::Int(3));
    assert_eq!(leave(&mut nth, 2), OwnedValue::Int(3));
    assert_eq!(leave(&mut nth, 3), OwnedValue::Null);
}

#[test]
fn what_is_for_ever_stays() {
    let mut least = Windowed::new(AggregateFunction::MinEver, false, false);
    let mut own = OwnedValue::Null;
    for number in [3, 1, 2] {
        own.assign(&Value::Int(number));
        least.add(&given(&own, &OwnedValue::Null));
    }
    own.assign(&Value::Int(1));
    least.remove(&given(&own, &OwnedValue::Null));
    assert_eq!(least.value(), Value::Int(1));
}
