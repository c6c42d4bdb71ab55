//! Joins and contexts.

use super::{Builder, K, V, check, equal, from, of, secs, text};
use crate::plan::{
    AggregateFunction as F, Boundary, Context, Join, JoinKind, Shape, Slot, Source, View,
};

fn joined(kind: JoinKind) -> Builder {
    let window: &[View] = &[View::Time(secs(5))];
    from(&[window, window])
        .column("a", of(0, V))
        .column("b", of(1, V))
        .with(|query| {
            query.shape = Shape::Events {
                joins: vec![Join {
                    kind,
                    on: Some(equal(of(0, K), of(1, K))),
                    within: None,
                }],
            };
        })
}

#[test]
fn either_side_brings_pairs() {
    check(
        &joined(JoinKind::Inner).rows("0@0 x 1\n1@1 x 2\n2@1 y 3\n3@0 x 4\n5000@1 x 5"),
        r#"1 {"a":1,"b":2}
           3 {"a":4,"b":2}
           5000 {"a":4,"b":5}"#,
    );
}

#[test]
fn outer_joins_bring_events_alone() {
    let script = "0@0 x 1\n1@1 x 2\n2@1 y 3";
    check(
        &joined(JoinKind::Left).rows(script),
        "0 {\"a\":1,\"b\":null}\n1 {\"a\":1,\"b\":2}",
    );
    check(
        &joined(JoinKind::Right).rows(script),
        "1 {\"a\":1,\"b\":2}\n2 {\"a\":null,\"b\":3}",
    );
    check(
        &joined(JoinKind::Full).rows(script),
        "0 {\"a\":1,\"b\":null}\n1 {\"a\":1,\"b\":2}\n2 {\"a\":null,\"b\":3}",
    );
}

#[test]
fn what_leaves_leaves_with_its_pairs() {
    check(
        &joined(JoinKind::Inner)
            .both()
            .rows("0@0 x 1\n1@1 x 2\n5000\n5001"),
        "1 {\"a\":1,\"b\":2}\n5000 -{\"a\":1,\"b\":2}",
    );
}

#[test]
fn a_unidirectional_side_alone_brings_rows() {
    let rows = joined(JoinKind::Inner)
        .with(|query| {
            query.inputs[0].is_unidirectional = true;
            query.inputs[0].views.clear();
        })
        .rows("0@0 x 1\n1@1 x 2\n2@0 x 3\n3@1 x 4");
    check(&rows, "2 {\"a\":3,\"b\":2}");
}

#[test]
fn a_join_of_a_source_with_itself_has_each_pair_once() {
    let rows = joined(JoinKind::Inner)
        .with(|query| query.inputs[1].source = Source::Mqtt("t0".to_owned()))
        .rows("0@0 x 1\n1@0 x 2");
    check(
        &rows,
        r#"0 {"a":1,"b":1}
           1 {"a":2,"b":1}
           1 {"a":2,"b":2}
           1 {"a":1,"b":2}"#,
    );
}

#[test]
fn three_inputs_are_joined_in_turn() {
    let window: &[View] = &[View::KeepAll];
    let on = |input| Join {
        kind: JoinKind::Inner,
        on: Some(equal(of(0, K), of(input, K))),
        within: None,
    };
    let rows = from(&[window, window, window])
        .column("a", of(0, V))
        .column("b", of(1, V))
        .column("c", of(2, V))
        .with(|query| {
            query.shape = Shape::Events {
                joins: vec![on(1), on(2)],
            };
        })
        .rows("0@0 x 1\n1@2 x 3\n2@1 x 2\n3@1 y 9");
    check(&rows, "2 {\"a\":1,\"b\":2,\"c\":3}");
}

#[test]
fn a_context_by_key_keeps_states_apart() {
    let rows = from(&[&[View::Length(2)]])
        .aggregate("s", F::Sum, of(0, V))
        .with(|query| {
            query.context = Some(Context::Partition {
                keys: vec![vec![of(0, K)]],
            });
            query.slots.push(Slot::ContextKey(0));
        })
        .column("key", of(1, 0))
        .rows("0 a 1\n1 b 2\n2 a 4\n3 a 8");
    check(
        &rows,
        r#"0 {"s":1,"key":"a"}
           1 {"s":2,"key":"b"}
           2 {"s":5,"key":"a"}
           3 {"s":12,"key":"a"}"#,
    );
}

#[test]
fn a_span_begins_and_ends_with_its_events() {
    let is = |word: &str| Boundary::Event {
        input: 0,
        condition: Some(equal(of(0, K), text(word))),
    };
    let rows = from(&[&[]])
        .aggregate("s", F::Sum, of(0, V))
        .with(|query| {
            query.context = Some(Context::Span {
                start: is("on"),
                end: is("off"),
                is_overlapping: false,
            });
        })
        .rows("0 x 1\n1 on 2\n2 x 4\n3 off 8\n4 x 16\n5 on 32");
    check(&rows, "1 {\"s\":2}\n2 {\"s\":6}\n5 {\"s\":32}");
}

#[test]
fn overlapping_spans_each_have_their_own_state_and_end_by_time() {
    let rows = from(&[&[]])
        .aggregate("s", F::Sum, of(0, V))
        .with(|query| {
            query.context = Some(Context::Span {
                start: Boundary::Event {
                    input: 0,
                    condition: Some(equal(of(0, K), text("on"))),
                },
                end: Boundary::After(secs(10)),
                is_overlapping: true,
            });
        })
        .rows("0 on 1\n5000 on 2\n9999 x 4\n10000 x 8\n15000 x 16");
    check(
        &rows,
        r#"0 {"s":1}
           5000 {"s":3}
           5000 {"s":2}
           9999 {"s":7}
           9999 {"s":6}
           10000 {"s":14}"#,
    );
}
