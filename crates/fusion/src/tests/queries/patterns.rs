//! Patterns: what matches, when, and how often.

use super::{Builder, K, V, check, compare, equal, from, int, of, secs, slots};
use crate::expression::{Comparison, Expression};
use crate::plan::{Pattern, PatternNode as P, Pick, Shape, Slot, SlotField};

/// Tags a = t0, b = t1, c = t2; rows are their values.
fn pattern(root: P) -> Builder {
    from(&[&[], &[], &[]])
        .column("a", of(0, V))
        .column("b", of(1, V))
        .with(|query| {
            query.slots = slots(3);
            query.shape = Shape::Pattern(Pattern {
                root,
                tags: 3,
                discard_overlapping: false,
            });
        })
}

fn event(input: u16) -> P {
    filtered(input, None)
}

fn filtered(input: u16, filter: Option<Expression>) -> P {
    P::Event {
        input,
        tag: Some(input),
        filter,
        filter_tag: Some(input),
    }
}

fn every(node: P) -> P {
    P::Every(Box::new(node))
}

fn not(node: P) -> P {
    P::Not(Box::new(node))
}

fn then(parts: Vec<P>) -> P {
    P::FollowedBy(parts)
}

#[test]
fn one_match_without_every() {
    let rows = pattern(then(vec![event(0), event(1)]))
        .rows("0@1 x 9\n1@0 x 1\n2@0 x 2\n3@1 x 3\n4@0 x 4\n5@1 x 5");
    check(&rows, r#"3 {"a":1,"b":3}"#);
}

#[test]
fn every_a_starts_a_branch_and_each_branch_matches_once() {
    let rows = pattern(then(vec![every(event(0)), event(1)]))
        .rows("1@0 x 1\n2@0 x 2\n3@1 x 3\n4@1 x 4\n5@0 x 5\n6@1 x 6");
    check(
        &rows,
        r#"3 {"a":1,"b":3}
           3 {"a":2,"b":3}
           6 {"a":5,"b":6}"#,
    );
}

#[test]
fn every_pair_starts_anew_after_a_match_only() {
    let rows = pattern(every(then(vec![event(0), event(1)])))
        .rows("1@0 x 1\n2@0 x 2\n3@1 x 3\n4@1 x 4\n5@0 x 5\n6@1 x 6");
    check(&rows, "3 {\"a\":1,\"b\":3}\n6 {\"a\":5,\"b\":6}");
}

#[test]
fn filters_read_earlier_tags() {
    let same = Some(equal(of(1, K), of(0, K)));
    let rows = pattern(then(vec![every(event(0)), filtered(1, same)]))
        .rows("1@0 x 1\n2@0 y 2\n3@1 y 3\n4@1 x 4");
    check(&rows, "3 {\"a\":2,\"b\":3}\n4 {\"a\":1,\"b\":4}");
}

#[test]
fn absence_is_told_at_its_instant() {
    let silence = P::And(vec![P::Interval(secs(3)), not(event(1))]);
    let rows = pattern(then(vec![every(event(0)), silence]))
        .rows("0@0 x 1\n1000@0 x 2\n2000@1 x 9\n3000@0 x 3\n5999\n6000\n9000");
    check(&rows, r#"6000 {"a":3,"b":null}"#);
}

#[test]
fn and_takes_any_order_and_or_the_first() {
    let both = pattern(P::And(vec![event(0), event(1)]));
    check(
        &both.rows("0@1 x 1\n1@0 x 2\n2@1 x 3"),
        r#"1 {"a":2,"b":1}"#,
    );
    let either = pattern(every(P::Or(vec![event(0), event(1)])));
    check(
        &either.rows("0@1 x 1\n1@0 x 2"),
        "0 {\"a\":null,\"b\":1}\n1 {\"a\":2,\"b\":null}",
    );
}

#[test]
fn and_not_fails_when_the_forbidden_comes() {
    let rows =
        pattern(every(P::And(vec![event(0), not(event(1))]))).rows("0@0 x 1\n1@1 x 2\n2@0 x 3");
    check(&rows, "0 {\"a\":1,\"b\":null}\n2 {\"a\":3,\"b\":null}");
    let once = pattern(P::And(vec![event(0), not(event(1))]));
    check(&once.rows("0@1 x 2\n1@0 x 3"), "");
}

#[test]
fn within_drops_the_branch_at_its_time() {
    let within = P::Within {
        node: Box::new(event(1)),
        length: secs(5),
        count: None,
    };
    let rows = pattern(then(vec![every(event(0)), within]))
        .rows("0@0 x 1\n4000@0 x 2\n5000@1 x 3\n20000@1 x 4");
    check(&rows, r#"5000 {"a":2,"b":3}"#);
    let counted = P::Within {
        node: Box::new(every(event(0))),
        length: secs(5),
        count: Some(2),
    };
    check(
        &pattern(counted).rows("0@0 x 1\n1@0 x 2\n2@0 x 3"),
        "0 {\"a\":1,\"b\":null}\n1 {\"a\":2,\"b\":null}",
    );
}

#[test]
fn until_collects_and_counts() {
    let until = |low, high, end: Option<P>| P::Until {
        node: Box::new(event(0)),
        low,
        high,
        end: end.map(Box::new),
    };
    let first = |builder: Builder| {
        builder
            .with(|query| {
                for nth in 0..2 {
                    query.slots.push(Slot::Event {
                        alias: 0,
                        pick: Pick::Nth(nth),
                        field: SlotField::Payload(V),
                    });
                }
            })
            .column("a0", of(3, 0))
            .column("a1", of(3, 1))
    };
    let script = "0@0 x 1\n1@0 x 2\n2@0 x 3\n3@1 x 4\n4@1 x 5";
    check(
        &first(pattern(until(None, None, Some(event(1))))).rows(script),
        r#"3 {"a":3,"b":4,"a0":1,"a1":2}"#,
    );
    check(
        &first(pattern(until(Some(2), Some(2), None))).rows(script),
        r#"1 {"a":2,"b":null,"a0":1,"a1":2}"#,
    );
    check(
        &first(pattern(until(Some(4), None, Some(event(1))))).rows(script),
        "",
    );
}

#[test]
fn while_ends_with_the_first_match_that_is_not_so() {
    let small = compare(Comparison::Less, of(0, V), int(3));
    let rows = pattern(P::While {
        node: Box::new(every(event(0))),
        condition: small,
    })
    .rows("0@0 x 1\n1@0 x 2\n2@0 x 3\n3@0 x 1");
    check(&rows, "0 {\"a\":1,\"b\":null}\n1 {\"a\":2,\"b\":null}");
}

#[test]
fn distinct_keys_count_once_while_they_are_remembered() {
    let rows = pattern(P::EveryDistinct {
        node: Box::new(event(0)),
        keys: vec![of(0, K)],
        expires: Some(secs(10)),
    })
    .rows("0@0 x 1\n1@0 y 2\n2@0 x 3\n10000@0 x 4");
    check(
        &rows,
        r#"0 {"a":1,"b":null}
           1 {"a":2,"b":null}
           10000 {"a":4,"b":null}"#,
    );
}

#[test]
fn timers_repeat_under_every() {
    let rows = pattern(every(P::Interval(secs(10)))).rows("0\n25000\n30000");
    check(
        &rows,
        r#"10000 {"a":null,"b":null}
           20000 {"a":null,"b":null}
           30000 {"a":null,"b":null}"#,
    );
}
