//! Groups, HAVING, order, and when rows leave.

use super::{Builder, K, TS, V, check, compare, from, int, of, secs};
use crate::expression::Comparison;
use crate::plan::{
    AggregateFunction as F, Limit, OUTPUT_COUNT_FIRST, OrderKey, OutputAfter, OutputEvery,
    OutputKind, OutputRate, Schedule, View,
};

fn rate(kind: OutputKind, every: OutputEvery) -> Option<OutputRate> {
    Some(OutputRate {
        kind,
        every,
        after: None,
        at_end: false,
    })
}

fn every_second(kind: OutputKind) -> Option<OutputRate> {
    rate(kind, OutputEvery::Time(secs(1)))
}

/// Sums of each k in the last ten seconds.
fn by_key() -> Builder {
    from(&[&[View::Time(secs(10))]])
        .column("k", of(0, K))
        .aggregate("s", F::Sum, of(0, V))
        .group_by(of(0, K))
}

#[test]
fn rows_stand_for_groups_or_for_events_by_what_they_name() {
    let script = "0 a 1\n1 b 2\n2 a 4";
    check(
        &by_key().rows(script),
        r#"0 {"k":"a","s":1}
           1 {"k":"b","s":2}
           2 {"k":"a","s":5}"#,
    );
    let events = from(&[&[View::LengthBatch(3)]])
        .column("v", of(0, V))
        .aggregate("s", F::Sum, of(0, V))
        .group_by(of(0, K));
    check(
        &events.rows(script),
        r#"2 {"v":1,"s":5}
           2 {"v":2,"s":2}
           2 {"v":4,"s":5}"#,
    );
    let ungrouped = from(&[&[View::LengthBatch(3)]])
        .column("v", of(0, V))
        .aggregate("s", F::Sum, of(0, V));
    check(
        &ungrouped.rows(script),
        "2 {\"v\":1,\"s\":7}\n2 {\"v\":2,\"s\":7}\n2 {\"v\":4,\"s\":7}",
    );
}

#[test]
fn old_rows_tell_what_a_group_was_before() {
    check(
        &by_key().both().rows("0 a 1\n1 a 2\n10000"),
        r#"0 {"k":"a","s":1}
           0 -{"k":"a","s":null}
           1 {"k":"a","s":3}
           1 -{"k":"a","s":1}
           10000 {"k":"a","s":2}
           10000 -{"k":"a","s":3}"#,
    );
}

#[test]
fn having_is_asked_after_each_change() {
    let sum = crate::expression::Expression::Aggregate(0);
    let rows = by_key()
        .with(|query| query.having = Some(compare(Comparison::Greater, sum, int(3))))
        .rows("0 a 1\n1 a 2\n2 a 4\n3 b 9");
    check(&rows, "2 {\"k\":\"a\",\"s\":7}\n3 {\"k\":\"b\",\"s\":9}");
}

#[test]
fn order_distinct_and_limit_hold_for_what_leaves_together() {
    let batch = || {
        from(&[&[View::LengthBatch(4)]])
            .column("v", of(0, V))
            .with(|query| {
                query.order_by.push(OrderKey {
                    expression: of(0, V),
                    is_descending: true,
                });
            })
    };
    let script = "0 a 1\n0 a 3\n0 a 2\n0 a 3";
    check(
        &batch().rows(script),
        "0 {\"v\":3}\n0 {\"v\":3}\n0 {\"v\":2}\n0 {\"v\":1}",
    );
    check(
        &batch().with(|query| query.distinct = true).rows(script),
        "0 {\"v\":3}\n0 {\"v\":2}\n0 {\"v\":1}",
    );
    let limited = batch().with(|query| {
        query.limit = Some(Limit { rows: 2, offset: 1 });
    });
    check(&limited.rows(script), "0 {\"v\":3}\n0 {\"v\":2}");
}

#[test]
fn each_row_waits_for_its_output() {
    let script = "0 a 1\n200 b 2\n300 a 4\n1000\n2000\n2500 b 8\n3000";
    check(
        &by_key()
            .with(|query| query.output = every_second(OutputKind::Each))
            .rows(script),
        r#"1000 {"k":"a","s":1}
           1000 {"k":"b","s":2}
           1000 {"k":"a","s":5}
           3000 {"k":"b","s":10}"#,
    );
    check(
        &by_key()
            .with(|query| query.output = every_second(OutputKind::Last))
            .rows(script),
        r#"1000 {"k":"a","s":5}
           1000 {"k":"b","s":2}
           3000 {"k":"b","s":10}"#,
    );
    check(
        &by_key()
            .with(|query| query.output = every_second(OutputKind::All))
            .rows(script),
        r#"1000 {"k":"a","s":5}
           1000 {"k":"b","s":2}
           2000 {"k":"a","s":5}
           2000 {"k":"b","s":2}
           3000 {"k":"a","s":5}
           3000 {"k":"b","s":10}"#,
    );
    check(
        &by_key()
            .with(|query| query.output = every_second(OutputKind::Snapshot))
            .rows(script),
        r#"1000 {"k":"a","s":5}
           1000 {"k":"b","s":2}
           2000 {"k":"a","s":5}
           2000 {"k":"b","s":2}
           3000 {"k":"a","s":5}
           3000 {"k":"b","s":10}"#,
    );
    check(
        &by_key()
            .with(|query| query.output = every_second(OutputKind::First))
            .rows(script),
        r#"0 {"k":"a","s":1}
           200 {"k":"b","s":2}
           2500 {"k":"b","s":10}"#,
    );
}

#[test]
fn the_first_row_leaves_and_mutes_the_rest_of_its_interval() {
    let rows = from(&[&[]])
        .column("v", of(0, V))
        .with(|query| query.output = every_second(OutputKind::First))
        .rows("0\n100 a 1\n200 a 2\n1000\n1100 a 3\n1200 a 4");
    check(&rows, "100 {\"v\":1}\n1100 {\"v\":3}");
    let rows = from(&[&[]])
        .column("v", of(0, V))
        .with(|query| query.output = rate(OutputKind::First, OutputEvery::Events(2)))
        .rows("0 a 1\n0 a 2\n0 a 3\n0 a 4\n0 a 5");
    check(&rows, "0 {\"v\":1}\n0 {\"v\":3}\n0 {\"v\":5}");
}

#[test]
fn a_snapshot_has_every_event_that_is_held() {
    let rows = from(&[&[View::Length(2)]])
        .column("v", of(0, V))
        .with(|query| query.output = every_second(OutputKind::Snapshot))
        .rows("0\n100 a 1\n200 a 2\n300 a 3\n1100\n2100");
    check(
        &rows,
        "1100 {\"v\":2}\n1100 {\"v\":3}\n2100 {\"v\":2}\n2100 {\"v\":3}",
    );
}

#[test]
fn outputs_by_count_condition_and_calendar() {
    let sum = || from(&[&[View::KeepAll]]).aggregate("s", F::Sum, of(0, V));
    let script = "0 a 1\n1 a 2\n2 a 4\n3 a 8\n60000\n120000";
    check(
        &sum()
            .with(|query| query.output = rate(OutputKind::Last, OutputEvery::Events(2)))
            .rows(script),
        "1 {\"s\":3}\n3 {\"s\":15}",
    );
    let count = crate::expression::Expression::Field(OUTPUT_COUNT_FIRST);
    let when = OutputEvery::When(compare(Comparison::GreaterOrEqual, count, int(3)));
    check(
        &sum()
            .with(|query| query.output = rate(OutputKind::Last, when))
            .rows(script),
        "2 {\"s\":7}",
    );
    let minutes = OutputEvery::At(Schedule {
        minutes: vec![1],
        ..Schedule::default()
    });
    check(
        &sum()
            .with(|query| query.output = rate(OutputKind::Last, minutes))
            .rows(script),
        "60000 {\"s\":15}",
    );
}

#[test]
fn nothing_leaves_before_after() {
    let sum = |after| {
        from(&[&[View::KeepAll]])
            .aggregate("s", F::Sum, of(0, V))
            .with(|query| {
                query.output = Some(OutputRate {
                    kind: OutputKind::Each,
                    every: OutputEvery::Always,
                    after: Some(after),
                    at_end: false,
                });
            })
    };
    check(
        &sum(OutputAfter::Events(2)).rows("0 a 1\n1 a 2\n2 a 4"),
        "2 {\"s\":7}",
    );
    check(
        &sum(OutputAfter::Time(secs(1))).rows("0\n999 a 1\n1000 a 2"),
        "1000 {\"s\":3}",
    );
}

#[test]
fn a_condition_after_the_window_lets_events_through_both_ways() {
    let rows = from(&[&[View::Length(2)]])
        .aggregate("s", F::Sum, of(0, V))
        .filter(compare(Comparison::Greater, of(0, V), int(1)))
        .rows("0 a 1\n1 a 2\n2 a 3\n3 a 4");
    check(&rows, "1 {\"s\":2}\n2 {\"s\":5}\n3 {\"s\":7}");
}

#[test]
fn a_filter_before_the_window_keeps_events_out() {
    let rows = from(&[&[View::Length(2)]])
        .aggregate("s", F::Sum, of(0, V))
        .column("ts", of(0, TS))
        .with(|query| {
            query.inputs[0].filter = Some(compare(Comparison::Greater, of(0, V), int(1)));
        })
        .rows("0 a 1 7\n1 a 2 7\n2 a 3 8\n3 a 4 9");
    check(
        &rows,
        "1 {\"s\":2,\"ts\":7}\n2 {\"s\":5,\"ts\":8}\n3 {\"s\":7,\"ts\":9}",
    );
}
