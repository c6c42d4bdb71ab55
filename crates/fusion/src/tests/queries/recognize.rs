//! Row patterns.

use super::{Builder, K, V, check, compare, from, int, machine, of, run, slots};
use crate::codec::{Decoder, Encoder};
use crate::expression::{Comparison, Expression};
use crate::plan::{History, Pick, Recognize, RowPattern as R, Shape, Skip, Slot, SlotField};

fn repeat(variable: u16, low: u32, high: Option<u32>, is_greedy: bool) -> R {
    R::Repeat {
        node: Box::new(R::Variable(variable)),
        low,
        high,
        is_greedy,
    }
}

/// Variables a, b, c: a is below 5, b from 5 to 9, c above.
fn recognize(pattern: R, skip: Skip, all_matches: bool) -> Builder {
    let value = |alias| of(alias, V);
    let below = |alias, number| compare(Comparison::Less, value(alias), int(number));
    from(&[&[]])
        .column("a", of(0, V))
        .column("b", of(1, V))
        .column("c", of(2, V))
        .with(|query| {
            query.slots = slots(3);
            query.shape = Shape::Recognize(Recognize {
                partition_by: vec![of(0, K)],
                all_matches,
                skip,
                variables: 3,
                define: vec![
                    Some(below(0, 5)),
                    Some(Expression::And(vec![
                        compare(Comparison::GreaterOrEqual, value(1), int(5)),
                        below(1, 10),
                    ])),
                    Some(compare(Comparison::GreaterOrEqual, value(2), int(10))),
                ],
                pattern,
                interval: None,
            });
        })
}

#[test]
fn rows_match_in_turn_and_the_search_goes_on_after_them() {
    let pattern = || {
        R::Sequence(vec![
            R::Variable(0),
            repeat(1, 1, None, true),
            R::Variable(2),
        ])
    };
    let script = "0 x 1\n1 x 6\n2 x 7\n3 x 12\n4 x 6\n5 x 12\n6 x 2\n7 x 8\n8 x 11";
    check(
        &recognize(pattern(), Skip::PastLast, false).rows(script),
        r#"3 {"a":1,"b":7,"c":12}
           8 {"a":2,"b":8,"c":11}"#,
    );
    check(
        &recognize(pattern(), Skip::PastLast, false).rows("0 x 1\n1 x 6\n2 x 3\n3 x 12"),
        "",
    );
}

#[test]
fn partitions_do_not_see_each_other() {
    let pattern = R::Sequence(vec![R::Variable(0), R::Variable(2)]);
    check(
        &recognize(pattern, Skip::PastLast, false).rows("0 x 1\n1 y 12\n2 y 2\n3 x 11\n4 y 13"),
        r#"3 {"a":1,"b":null,"c":11}
           4 {"a":2,"b":null,"c":13}"#,
    );
}

#[test]
fn where_the_search_goes_on_is_chosen() {
    let pattern = || R::Sequence(vec![R::Variable(0), R::Variable(0)]);
    let script = "0 x 1\n1 x 2\n2 x 3\n3 x 4";
    let first = |skip| {
        recognize(pattern(), skip, false)
            .with(|query| {
                query.slots.push(Slot::Event {
                    alias: 0,
                    pick: Pick::Nth(0),
                    field: SlotField::Payload(V),
                });
            })
            .column("a0", of(3, 0))
            .rows(script)
    };
    check(
        &first(Skip::PastLast),
        r#"1 {"a":2,"b":null,"c":null,"a0":1}
           3 {"a":4,"b":null,"c":null,"a0":3}"#,
    );
    check(
        &first(Skip::ToNext),
        r#"1 {"a":2,"b":null,"c":null,"a0":1}
           2 {"a":3,"b":null,"c":null,"a0":2}
           3 {"a":4,"b":null,"c":null,"a0":3}"#,
    );
}

#[test]
fn alternatives_and_optional_rows() {
    let pattern = R::Sequence(vec![
        R::Variable(0),
        repeat(1, 0, Some(1), true),
        R::Alternatives(vec![R::Variable(2), R::Variable(0)]),
    ]);
    check(
        &recognize(pattern, Skip::PastLast, false)
            .rows("0 x 1\n1 x 12\n2 x 2\n3 x 6\n4 x 13\n5 x 3\n6 x 4"),
        r#"1 {"a":1,"b":null,"c":12}
           4 {"a":2,"b":6,"c":13}
           6 {"a":4,"b":null,"c":null}"#,
    );
}

#[test]
fn conditions_look_back_at_earlier_rows() {
    // b: the value rises.
    let rows = recognize(
        R::Sequence(vec![R::Variable(0), R::Variable(1), R::Variable(1)]),
        Skip::PastLast,
        false,
    )
    .with(|query| {
        query.slots.push(Slot::History {
            input: 0,
            kind: History::Prev,
            steps: 1,
            field: SlotField::Payload(V),
        });
        if let Shape::Recognize(recognize) = &mut query.shape {
            recognize.define[0] = None;
            recognize.define[1] = Some(compare(Comparison::Greater, of(1, V), of(3, 0)));
        }
    })
    .rows("0 x 5\n1 x 3\n2 x 4\n3 x 6\n4 x 7\n5 x 1");
    check(&rows, r#"3 {"a":3,"b":6,"c":null}"#);
}

#[test]
fn all_matches_of_one_row_are_told_when_asked_for() {
    let pattern = || R::Sequence(vec![repeat(0, 1, None, true), R::Variable(2)]);
    let rows = |all| {
        recognize(pattern(), Skip::ToNext, all)
            .rows("0 x 1\n1 x 2\n2 x 12")
            .lines()
            .count()
    };
    assert_eq!((rows(false), rows(true)), (2, 2));
    let loose = || {
        R::Sequence(vec![
            R::Variable(0),
            repeat(0, 0, None, true),
            repeat(0, 0, None, false),
            R::Variable(2),
        ])
    };
    let rows = |all| {
        recognize(loose(), Skip::PastLast, all)
            .rows("0 x 1\n1 x 2\n2 x 12")
            .lines()
            .count()
    };
    assert_eq!(rows(false), 1);
    assert!(rows(true) >= 2);
}

#[test]
fn partial_matches_survive_a_checkpoint() {
    let plan = recognize(
        R::Sequence(vec![
            R::Variable(0),
            repeat(1, 1, None, true),
            R::Variable(2),
        ]),
        Skip::PastLast,
        false,
    )
    .plan();
    let mut own = machine(plan.clone(), 0);
    run(&mut own, "0 x 1\n1 x 6\n2 y 2\n3 y 7");
    let mut out = Encoder::default();
    own.encode((0, 0), &mut out);
    let mut twin = machine(plan, 0).decode(&mut Decoder::new(&out.0)).unwrap();
    let rest = "4 y 8\n5 x 12\n6 y 13";
    let expected = run(&mut own, rest);
    check(
        &expected,
        r#"5 {"a":1,"b":6,"c":12}
           6 {"a":2,"b":8,"c":13}"#,
    );
    assert_eq!(run(&mut twin, rest), expected);
}
