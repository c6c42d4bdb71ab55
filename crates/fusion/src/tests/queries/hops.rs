//! Windows that hop: an event is in each that spans its time.

use super::{TS, V, check, from, machine, of, run, secs};
use crate::expression::Expression;
use crate::machine::Machine;
use crate::plan::{AggregateFunction as F, EventTime, Stage, Tumbling, WindowShape};

fn hopping(length: u64, step: u64) -> Machine {
    let mut plan = from(&[&[]])
        .aggregate("s", F::Sum, of(0, V))
        .aggregate_of("n", F::Count, None, None, false)
        .column("w", Expression::WindowStart)
        .plan();
    let Stage::Query(query) = plan.stage else {
        panic!("the builder makes queries")
    };
    plan.stage = Stage::Windowed {
        window: Tumbling {
            length: secs(length),
            shape: WindowShape::Hop { step: secs(step) },
            time: EventTime::Column(of(0, TS)),
        },
        group_by: Vec::new(),
        aggregates: query.aggregates,
        having: None,
    };
    machine(plan, 0)
}

#[test]
fn an_event_is_in_every_window_over_its_time_and_in_the_books_once() {
    let mut own = hopping(10, 5);
    let rows = run(&mut own, "0 a 1 3000\n0 a 2 7000\n0 a 4 12000\n0 a 0 40000");
    check(
        &rows,
        r#"4999 {"s":1,"n":1,"w":-5000}
           9999 {"s":3,"n":2,"w":0}
           14999 {"s":6,"n":2,"w":5000}
           19999 {"s":4,"n":1,"w":10000}"#,
    );
    let books = own.books();
    assert_eq!(
        (books.received, books.emitted_from, books.in_flight()),
        (4, 3, 1)
    );
}

#[test]
fn what_lies_between_two_windows_is_filtered() {
    let mut own = hopping(2, 5);
    let rows = run(&mut own, "0 a 1 1000\n0 a 2 3000\n0 a 4 6000\n0 a 0 50000");
    check(
        &rows,
        "1999 {\"s\":1,\"n\":1,\"w\":0}\n6999 {\"s\":4,\"n\":1,\"w\":5000}",
    );
    assert_eq!(own.books().filtered, 1);
}

#[test]
fn an_event_whose_first_window_is_closed_counts_in_the_next() {
    let mut own = hopping(10, 5);
    let rows = run(&mut own, "0 a 1 6000\n0 a 2 4000\n0 a 4 2000\n0 a 0 40000");
    check(
        &rows,
        r#"9999 {"s":7,"n":3,"w":0}
           14999 {"s":1,"n":1,"w":5000}"#,
    );
    assert_eq!(own.books().late, 0);
}
