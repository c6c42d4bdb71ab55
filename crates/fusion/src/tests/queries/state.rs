//! Checkpoints, bounds, books and event time of queries.

use base::Rng;

use super::{Builder, K, TS, V, check, from, give, int, machine, of, run, secs, slots};
use crate::codec::{Decoder, Encoder};
use crate::machine::Machine;
use crate::output::Output;
use crate::plan::{
    AggregateFunction as F, Context, Join, JoinKind, OutputEvery, OutputKind, OutputRate, Pattern,
    PatternNode as P, Plan, QueryTime, Shape, SlotField, View,
};

/// Statements of every kind, by number.
fn plans() -> Vec<Plan> {
    let sum = |views: &[View]| {
        from(&[views])
            .column("k", of(0, K))
            .aggregate("s", F::Sum, of(0, V))
            .aggregate("m", F::Median, of(0, V))
            .aggregate("lo", F::Min, of(0, V))
            .aggregate_of("d", F::Count, Some(of(0, V)), None, true)
            .group_by(of(0, K))
    };
    let rated = |kind, every| {
        Some(OutputRate {
            kind,
            every,
            after: None,
            at_end: false,
        })
    };
    let event = |input| P::Event {
        input,
        tag: Some(input),
        filter: None,
        filter_tag: Some(input),
    };
    let pattern = |root| {
        from(&[&[], &[]])
            .column("a", of(0, V))
            .column("b", of(1, V))
            .with(|query| {
                query.slots = slots(2);
                query.shape = Shape::Pattern(Pattern {
                    root,
                    tags: 2,
                    discard_overlapping: false,
                });
            })
    };
    let window: &[View] = &[View::Length(3)];
    let join = from(&[window, window])
        .column("a", of(0, V))
        .column("b", of(1, V))
        .with(|query| {
            query.shape = Shape::Events {
                joins: vec![Join {
                    kind: JoinKind::Full,
                    on: Some(super::equal(of(0, K), of(1, K))),
                    within: None,
                }],
            };
        });
    let builders: Vec<Builder> = vec![
        sum(&[View::Length(4)]).both(),
        sum(&[View::Time(secs(2))]),
        sum(&[View::LengthBatch(3)]),
        sum(&[View::TimeBatch {
            length: secs(1),
            reference_ms: None,
            force_update: false,
            start_eager: false,
        }]),
        sum(&[View::Group(vec![of(0, K)]), View::Time(secs(1))]),
        sum(&[View::Unique(vec![of(0, K)])]).both(),
        sum(&[View::TimeAccum(secs(1))]),
        sum(&[View::ExtTimed {
            time: of(0, TS),
            length: secs(1),
        }]),
        sum(&[]),
        sum(&[View::Time(secs(1))]).with(|query| {
            query.output = rated(OutputKind::Last, OutputEvery::Time(secs(1)));
        }),
        sum(&[View::Time(secs(1))]).with(|query| {
            query.output = rated(OutputKind::All, OutputEvery::Events(3));
        }),
        sum(&[View::Time(secs(1))]).with(|query| {
            query.output = rated(OutputKind::First, OutputEvery::Time(secs(1)));
        }),
        sum(&[View::Time(secs(3))]).with(|query| {
            query.output = rated(OutputKind::Snapshot, OutputEvery::Time(secs(1)));
        }),
        sum(&[View::Length(2)]).with(|query| {
            query.context = Some(Context::Partition {
                keys: vec![vec![of(0, K)]],
            });
        }),
        join,
        pattern(P::FollowedBy(vec![
            P::Every(Box::new(event(0))),
            P::Within {
                node: Box::new(event(1)),
                length: secs(1),
                count: None,
            },
        ])),
        pattern(P::Every(Box::new(P::And(vec![
            P::Interval(secs(1)),
            P::Not(Box::new(event(1))),
        ])))),
        pattern(P::Every(Box::new(P::Until {
            node: Box::new(event(0)),
            low: Some(1),
            high: Some(3),
            end: Some(Box::new(event(1))),
        }))),
        sum(&[View::Time(secs(1))]).with(|query| {
            query.time = QueryTime::Event(vec![SlotField::Payload(TS)]);
        }),
    ];
    builders.into_iter().map(Builder::plan).collect()
}

fn script(seed: u64, lines: u64) -> Vec<String> {
    let mut rng = Rng::from_seed(seed);
    let mut time = 0;
    (0..lines)
        .map(|_| {
            time += rng.below(300);
            if rng.below(6) == 0 {
                return time.to_string();
            }
            let ts = (time + rng.below(200)).saturating_sub(100);
            let value = match rng.below(12) {
                0 => "-".to_owned(),
                _ => rng.below(9).to_string(),
            };
            format!("{time}@{} k{} {value} {ts}", rng.below(2), rng.below(4))
        })
        .collect()
}

fn play(machine: &mut Machine, lines: &[String]) -> String {
    run(machine, &lines.join("\n"))
}

fn encoded(machine: &Machine) -> Vec<u8> {
    let mut out = Encoder::default();
    machine.encode((0, 0), &mut out);
    out.0
}

#[test]
fn a_query_goes_on_from_its_checkpoint_as_if_nothing_had_happened() {
    for (number, plan) in plans().into_iter().enumerate() {
        let mut rows = 0;
        for seed in 0..20 {
            let lines = script(seed, 60);
            let cut = Rng::from_seed(seed + 1_000).below(60) as usize;
            let mut whole = machine(plan.clone(), 100);
            play(&mut whole, &lines[..cut]);
            let bytes = encoded(&whole);
            let mut from = Decoder::new(&bytes);
            let mut twin = machine(plan.clone(), 100).decode(&mut from).unwrap();
            assert!(from.0.is_empty(), "plan {number}");
            assert_eq!(encoded(&twin), bytes, "plan {number}, seed {seed}");
            let expected = play(&mut whole, &lines[cut..]);
            let rest = play(&mut twin, &lines[cut..]);
            assert_eq!(rest, expected, "plan {number}, seed {seed}");
            assert_eq!(twin.books(), whole.books(), "plan {number}, seed {seed}");
            rows += expected.lines().count();
        }
        assert!(rows > 0, "plan {number} gives no row");
    }
}

#[test]
fn the_books_of_queries_balance_after_every_event() {
    for (number, plan) in plans().into_iter().enumerate() {
        let mut own = machine(plan, 100);
        let mut out = Output::default();
        let mut received = 0;
        for line in script(3, 200) {
            give(&mut own, &line, &mut out);
            received += u64::from(line.contains(' '));
            let books = own.books();
            assert_eq!(books.received, received);
            let settled = books.filtered + books.emitted_from + books.errored + books.late;
            assert!(settled <= received, "plan {number}: {books:?}");
            own.delivered(out.rows.len() as u64, out.events());
            out = Output::default();
            assert_eq!(
                own.books().in_flight()
                    + own.books().emitted_from
                    + own.books().filtered
                    + own.books().errored
                    + own.books().late,
                received,
                "plan {number}"
            );
        }
    }
}

#[test]
fn state_is_forgotten_with_what_it_was_made_of() {
    let mut own = machine(
        from(&[&[View::Group(vec![of(0, K)]), View::Time(secs(1))]])
            .column("k", of(0, K))
            .aggregate("s", F::Sum, of(0, V))
            .group_by(of(0, K))
            .plan(),
        0,
    );
    for index in 0..500 {
        run(&mut own, &format!("{index} key{index} 1"));
    }
    assert!(own.state_bytes() > 100_000, "{}", own.state_bytes());
    run(&mut own, "5000");
    assert!(own.state_bytes() < 1_000, "{}", own.state_bytes());
    assert_eq!(own.books().in_flight(), 0);
}

#[test]
fn too_many_groups_suspend_the_statement() {
    let mut own = machine(
        from(&[&[View::KeepAll]])
            .column("k", of(0, K))
            .aggregate("s", F::Sum, of(0, V))
            .group_by(of(0, K))
            .plan(),
        0,
    );
    for index in 0..1_100 {
        run(&mut own, &format!("{index} key{index} 1"));
    }
    assert!(own.is_suspended());
    let error = own.error().unwrap_or_default();
    assert!(error.contains("fusion.groups_max"), "{error}");
    let books = own.books();
    assert_eq!(books.received, 1_100);
    assert!(books.dropped >= 99, "{books:?}");
    assert!(own.state_bytes() < 1_000, "{}", own.state_bytes());
}

#[test]
fn any_order_within_the_lateness_gives_the_same_rows() {
    let plan = from(&[&[View::Time(secs(2))]])
        .column("k", of(0, K))
        .aggregate("s", F::Sum, of(0, V))
        .aggregate("w", F::Window, of(0, V))
        .group_by(of(0, K))
        .with(|query| query.time = QueryTime::Event(vec![SlotField::Payload(TS)]))
        .plan();
    for seed in 0..40 {
        let mut rng = Rng::from_seed(seed);
        let mut events: Vec<(u64, String)> = (0..80)
            .map(|_| {
                let ts = rng.below(10_000);
                (ts, format!("0 k{} {} {ts}", rng.below(3), rng.below(9)))
            })
            .collect();
        events.sort();
        let last = "0 z 0 99999".to_owned();
        let in_order: Vec<String> = events.iter().map(|(_, line)| line.clone()).collect();
        // Each is moved by less than the lateness.
        events.sort_by_key(|(ts, _)| ts + Rng::from_seed(seed ^ ts).below(499));
        let moved: Vec<String> = events.into_iter().map(|(_, line)| line).collect();
        let outcome = |lines: Vec<String>| {
            let mut own = machine(plan.clone(), 500);
            let lines: Vec<String> = lines.into_iter().chain([last.clone()]).collect();
            let rows = play(&mut own, &lines);
            assert_eq!(own.books().late, 0, "seed {seed}");
            rows
        };
        let rows = outcome(in_order);
        assert!(rows.lines().count() > 80, "seed {seed}: {rows}");
        assert_eq!(rows, outcome(moved), "seed {seed}");
    }
}

#[test]
fn what_is_later_than_the_lateness_is_counted_and_left_out() {
    let mut own = machine(
        from(&[&[View::KeepAll]])
            .aggregate("s", F::Sum, of(0, V))
            .with(|query| query.time = QueryTime::Event(vec![SlotField::Payload(TS)]))
            .plan(),
        1_000,
    );
    let rows = run(
        &mut own,
        "0 a 1 1000\n0 a 2 5000\n0 a 4 4000\n0 a 8 3999\n0 a 16 -\n0 a 32 9000",
    );
    check(&rows, "1000 {\"s\":1}\n4000 {\"s\":5}\n5000 {\"s\":7}");
    let books = own.books();
    assert_eq!((books.late, books.errored), (1, 1));
}

#[test]
fn partitions_by_key_share_nothing() {
    let plan = from(&[&[View::Length(2)]])
        .aggregate("s", F::Sum, of(0, V))
        .with(|query| {
            query.context = Some(Context::Partition {
                keys: vec![vec![of(0, K)]],
            });
            query.having = Some(super::compare(
                crate::expression::Comparison::Greater,
                crate::expression::Expression::Aggregate(0),
                int(0),
            ));
        })
        .plan();
    let mut own = machine(plan, 0);
    let lines: Vec<String> = (0..90).map(|n| format!("{n} k{} 1", n % 30)).collect();
    let rows = play(&mut own, &lines);
    let twos = rows
        .lines()
        .filter(|row| row.ends_with("{\"s\":2}"))
        .count();
    assert_eq!((rows.lines().count(), twos), (90, 60));
}

/// What was damaged is refused, or is another state that works: nothing panics, overflows or runs
/// on and on.
#[test]
fn a_damaged_checkpoint_is_refused_or_harmless() {
    for (number, plan) in plans().into_iter().enumerate() {
        let lines = script(5, 60);
        let mut whole = machine(plan.clone(), 100);
        play(&mut whole, &lines[..40]);
        let bytes = encoded(&whole);
        let mut refused = 0;
        for seed in 0..80 {
            let mut rng = Rng::from_seed(seed);
            let mut damaged = bytes.clone();
            let place = rng.below(damaged.len() as u64) as usize;
            match rng.below(4) {
                0 => damaged.truncate(place),
                1 => damaged[place] ^= 1 << rng.below(8),
                2 => {
                    let end = damaged.len().min(place + 8);
                    let noise = rng.next_u64().to_le_bytes();
                    damaged[place..end].copy_from_slice(&noise[..end - place]);
                }
                _ => {
                    let end = damaged.len().min(place + 4);
                    damaged[place..end].fill(0xff);
                }
            }
            let read = machine(plan.clone(), 100).decode(&mut Decoder::new(&damaged));
            let Some(mut own) = read else {
                refused += 1;
                continue;
            };
            let mut out = Output::default();
            for line in &lines[40..] {
                give(&mut own, line, &mut out);
            }
            give(&mut own, "20000", &mut out);
            encoded(&own);
        }
        assert!(refused > 20, "plan {number}: only {refused} were refused");
    }
}

#[test]
fn time_that_jumps_far_does_not_stop_at_every_instant_on_the_way() {
    let mut own = machine(
        from(&[&[View::KeepAll]])
            .aggregate("s", F::Sum, of(0, V))
            .with(|query| {
                query.output = Some(OutputRate {
                    kind: OutputKind::Snapshot,
                    every: OutputEvery::Time(secs(1)),
                    after: None,
                    at_end: false,
                });
            })
            .plan(),
        0,
    );
    let mut out = Output::default();
    give(&mut own, "0 a 1", &mut out);
    give(&mut own, "1800000000000 a 2", &mut out);
    let most = crate::limits::TIME_STEPS_MAX as usize;
    assert_eq!(out.rows.len(), most + 1);
    // From there on it tells every second again.
    give(&mut own, "1800000002000", &mut out);
    assert_eq!(out.rows.len(), most + 3);
    give(&mut own, &format!("{} a 2", i64::MAX), &mut out);
    assert!(own.error().is_none());
}
