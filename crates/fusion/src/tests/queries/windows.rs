//! Data windows: when events enter and leave.

use super::{K, TS, V, check, from, int, of, secs};
use crate::plan::{AggregateFunction as F, History, OrderKey, Slot, SlotField, StreamSelect, View};

#[test]
fn a_length_window_slides_by_event() {
    let rows = from(&[&[View::Length(2)]])
        .aggregate("s", F::Sum, of(0, V))
        .both()
        .rows("0 a 1\n1 a 2\n2 a 4");
    check(
        &rows,
        r#"0 {"s":1}
           0 -{"s":null}
           1 {"s":3}
           1 -{"s":1}
           2 {"s":6}
           2 -{"s":3}"#,
    );
}

#[test]
fn events_leave_a_length_window_as_old_rows() {
    let rows = from(&[&[View::Length(1)]])
        .column("v", of(0, V))
        .both()
        .rows("0 a 1\n1 a 2");
    check(&rows, "0 {\"v\":1}\n1 {\"v\":2}\n1 -{\"v\":1}");
    let rows = from(&[&[View::Length(1)]])
        .column("v", of(0, V))
        .with(|query| query.stream = StreamSelect::Remove)
        .rows("0 a 1\n1 a 2");
    check(&rows, "1 {\"v\":1}");
}

#[test]
fn a_partial_batch_never_fires() {
    let rows = from(&[&[View::LengthBatch(2)]])
        .aggregate("s", F::Sum, of(0, V))
        .aggregate_of("n", F::Count, None, None, false)
        .rows("0 a 1\n1 a 2\n2 a 4\n100000");
    check(&rows, r#"1 {"s":3,"n":2}"#);
}

#[test]
fn an_event_leaves_a_time_window_at_exactly_its_length_and_that_gives_a_row() {
    let rows = from(&[&[View::Time(secs(10))]])
        .aggregate("s", F::Sum, of(0, V))
        .rows("1000 a 1\n2000 a 2\n10999\n11000\n12000\n90000");
    check(
        &rows,
        r#"1000 {"s":1}
           2000 {"s":3}
           11000 {"s":2}
           12000 {"s":null}"#,
    );
}

#[test]
fn time_goes_first_and_stops_at_every_instant_on_the_way() {
    let rows = from(&[&[View::Time(secs(10))]])
        .aggregate("s", F::Sum, of(0, V))
        .rows("1000 a 1\n2000 a 2\n12000 a 4");
    check(
        &rows,
        r#"1000 {"s":1}
           2000 {"s":3}
           11000 {"s":2}
           12000 {"s":null}
           12000 {"s":4}"#,
    );
}

#[test]
fn time_batches_start_with_the_first_event_and_tell_one_empty_batch() {
    let rows = from(&[&[time_batch(false, false, None)]])
        .aggregate("s", F::Sum, of(0, V))
        .aggregate_of("n", F::Count, None, None, false)
        .rows("3000 a 1\n12999 a 2\n13000\n23000\n33000\n43000\n47000 a 5\n53000");
    check(
        &rows,
        r#"13000 {"s":3,"n":2}
           23000 {"s":null,"n":0}
           53000 {"s":5,"n":1}"#,
    );
}

#[test]
fn time_batches_by_a_reference_point_and_forced_ones() {
    let rows = from(&[&[time_batch(false, false, Some(0))]])
        .aggregate("s", F::Sum, of(0, V))
        .rows("3000 a 1\n9999 a 2\n10000 a 4\n20000");
    check(&rows, "10000 {\"s\":3}\n20000 {\"s\":4}");
    let rows = from(&[&[time_batch(true, true, None)]])
        .aggregate("s", F::Sum, of(0, V))
        .rows("0\n10000\n11000 a 1\n20000\n30000\n40000");
    check(
        &rows,
        r#"10000 {"s":null}
           20000 {"s":1}
           30000 {"s":null}
           40000 {"s":null}"#,
    );
}

#[test]
fn a_group_that_vanished_from_a_batch_is_told_once_with_null() {
    let rows = from(&[&[time_batch(false, false, None)]])
        .column("k", of(0, K))
        .aggregate("s", F::Sum, of(0, V))
        .group_by(of(0, K))
        .rows("0 a 1\n1 b 2\n2 a 3\n10000\n11000 b 5\n20000\n30000\n40000");
    check(
        &rows,
        r#"10000 {"k":"a","s":4}
           10000 {"k":"b","s":2}
           20000 {"k":"b","s":5}
           20000 {"k":"a","s":null}
           30000 {"k":"b","s":null}"#,
    );
}

#[test]
fn a_time_length_batch_ends_by_whichever_comes_first() {
    let view = View::TimeLengthBatch {
        length: secs(10),
        count: 2,
        force_update: false,
        start_eager: false,
    };
    let rows = from(&[&[view]])
        .aggregate("s", F::Sum, of(0, V))
        .rows("0 a 1\n1000 a 2\n2000 a 4\n11000\n21000");
    check(&rows, "1000 {\"s\":3}\n11000 {\"s\":4}\n21000 {\"s\":null}");
}

#[test]
fn external_time_moves_with_events_only_and_never_back() {
    let view = View::ExtTimed {
        time: of(0, TS),
        length: secs(10),
    };
    let rows = from(&[&[view]])
        .aggregate("s", F::Sum, of(0, V))
        .rows("0 a 1 1000\n1 a 2 5000\n2 a 4 2000\n90000\n90001 a 8 11000");
    check(
        &rows,
        "0 {\"s\":1}\n1 {\"s\":3}\n2 {\"s\":7}\n90001 {\"s\":14}",
    );
}

#[test]
fn a_late_event_falls_into_the_current_external_batch() {
    let view = View::ExtTimedBatch {
        time: of(0, TS),
        length: secs(10),
        reference_ms: None,
    };
    let rows = from(&[&[view]])
        .aggregate("s", F::Sum, of(0, V))
        .rows("0 a 1 1000\n0 a 2 12000\n0 a 4 3000\n0 a 8 21000");
    check(&rows, "0 {\"s\":1}\n0 {\"s\":6}");
}

#[test]
fn accumulated_events_leave_after_silence() {
    let rows = from(&[&[View::TimeAccum(secs(10))]])
        .column("v", of(0, V))
        .with(|query| query.stream = StreamSelect::Remove)
        .rows("0 a 1\n9000 a 2\n18999\n19000");
    check(&rows, "19000 {\"v\":1}\n19000 {\"v\":2}");
}

#[test]
fn unique_keeps_the_last_and_firstunique_the_first_of_each_key() {
    let rows = from(&[&[View::Unique(vec![of(0, K)])]])
        .column("k", of(0, K))
        .column("v", of(0, V))
        .both()
        .rows("0 a 1\n1 b 2\n2 a 3");
    check(
        &rows,
        r#"0 {"k":"a","v":1}
           1 {"k":"b","v":2}
           2 {"k":"a","v":3}
           2 -{"k":"a","v":1}"#,
    );
    let rows = from(&[&[View::FirstUnique(vec![of(0, K)])]])
        .column("v", of(0, V))
        .rows("0 a 1\n1 b 2\n2 a 3");
    check(&rows, "0 {\"v\":1}\n1 {\"v\":2}");
}

#[test]
fn grouped_windows_are_kept_apart() {
    let rows = from(&[&[View::Group(vec![of(0, K)]), View::Length(1)]])
        .aggregate("s", F::Sum, of(0, V))
        .rows("0 a 1\n1 b 2\n2 a 4");
    check(&rows, "0 {\"s\":1}\n1 {\"s\":3}\n2 {\"s\":6}");
    let rows = from(&[&[View::Group(vec![of(0, K)]), View::Time(secs(10))]])
        .aggregate("s", F::Sum, of(0, V))
        .rows("0 a 1\n1000 b 2\n10000\n11000");
    check(
        &rows,
        "0 {\"s\":1}\n1000 {\"s\":3}\n10000 {\"s\":2}\n11000 {\"s\":null}",
    );
}

#[test]
fn first_last_and_sorted_windows() {
    let sum = |view: View, script: &str| {
        from(&[&[view]])
            .aggregate("s", F::Sum, of(0, V))
            .rows(script)
    };
    let script = "0 a 1\n1 a 2\n2 a 4";
    check(&sum(View::FirstEvent, script), "0 {\"s\":1}");
    check(
        &sum(View::LastEvent, script),
        "0 {\"s\":1}\n1 {\"s\":2}\n2 {\"s\":4}",
    );
    check(
        &sum(View::FirstLength(2), script),
        "0 {\"s\":1}\n1 {\"s\":3}",
    );
    check(
        &sum(View::KeepAll, script),
        "0 {\"s\":1}\n1 {\"s\":3}\n2 {\"s\":7}",
    );
    check(
        &sum(View::FirstTime(secs(1)), "0\n500 a 1\n999 a 2\n1000 a 4"),
        "500 {\"s\":1}\n999 {\"s\":3}",
    );
    let by_value = vec![OrderKey {
        expression: of(0, V),
        is_descending: true,
    }];
    let sort = View::Sort {
        count: 2,
        keys: by_value.clone(),
    };
    check(
        &sum(sort, "0 a 1\n1 a 5\n2 a 3\n3 a 2"),
        "0 {\"s\":1}\n1 {\"s\":6}\n2 {\"s\":8}\n3 {\"s\":8}",
    );
    let rank = View::Rank {
        unique: vec![of(0, K)],
        count: 2,
        keys: by_value,
    };
    check(
        &sum(rank, "0 a 1\n1 b 5\n2 a 9\n3 c 7"),
        "0 {\"s\":1}\n1 {\"s\":6}\n2 {\"s\":14}\n3 {\"s\":16}",
    );
}

#[test]
fn time_order_lets_go_by_the_events_own_time() {
    let view = View::TimeOrder {
        time: of(0, TS),
        length: secs(10),
    };
    let rows = from(&[&[view]])
        .column("v", of(0, V))
        .with(|query| query.stream = StreamSelect::Remove)
        .rows("5000 a 1 5000\n6000 a 2 3000\n7000 a 3 -5000\n13000\n15000");
    check(&rows, "7000 {\"v\":3}\n13000 {\"v\":2}\n15000 {\"v\":1}");
}

#[test]
fn of_several_windows_all_keep_or_any_keeps() {
    let views = [View::Length(2), View::Unique(vec![of(0, K)])];
    let rows = from(&[&views])
        .aggregate("s", F::Sum, of(0, V))
        .rows("0 a 1\n1 a 2\n2 b 4\n3 c 8");
    check(&rows, "0 {\"s\":1}\n1 {\"s\":2}\n2 {\"s\":6}\n3 {\"s\":12}");
    let rows = from(&[&views])
        .aggregate("s", F::Sum, of(0, V))
        .with(|query| query.inputs[0].is_union = true)
        .rows("0 a 1\n1 a 2\n2 b 4\n3 c 8");
    check(&rows, "0 {\"s\":1}\n1 {\"s\":3}\n2 {\"s\":6}\n3 {\"s\":14}");
}

#[test]
fn prev_counts_in_the_window_and_prior_in_the_order_of_arrival() {
    let slot = |kind, steps| Slot::History {
        input: 0,
        kind,
        steps,
        field: SlotField::Payload(V),
    };
    let rows = from(&[&[View::Length(2)]])
        .column("v", of(0, V))
        .with(|query| {
            query.slots.push(slot(History::Prev, 1));
            query.slots.push(slot(History::Prev, 2));
            query.slots.push(slot(History::Prior, 2));
            query.slots.push(slot(History::PrevTail, 0));
            query.slots.push(slot(History::PrevCount, 0));
        })
        .column("p1", of(1, 0))
        .column("p2", of(1, 1))
        .column("r2", of(1, 2))
        .column("t0", of(2, 0))
        .column("n", of(2, 1))
        .rows("0 a 1\n1 a 2\n2 a 3");
    check(
        &rows,
        r#"0 {"v":1,"p1":null,"p2":null,"r2":null,"t0":1,"n":1}
           1 {"v":2,"p1":1,"p2":null,"r2":null,"t0":1,"n":2}
           2 {"v":3,"p1":2,"p2":null,"r2":1,"t0":2,"n":2}"#,
    );
}

#[test]
fn without_a_window_totals_run_on() {
    let rows = from(&[&[]])
        .aggregate("s", F::Sum, of(0, V))
        .aggregate("lo", F::Min, of(0, V))
        .rows("0 a 5\n1 a 3\n2 a -\n90000");
    check(
        &rows,
        r#"0 {"s":5,"lo":5}
           1 {"s":8,"lo":3}
           2 {"s":8,"lo":3}"#,
    );
}

#[test]
fn a_rate_is_null_until_its_time_has_passed() {
    let rows = from(&[&[]])
        .aggregate_of("r", F::Rate, None, Some(int(1_000)), false)
        .rows("0 a 1\n500 a 1\n1000 a 1\n1100 a 1");
    check(
        &rows,
        "0 {\"r\":null}\n500 {\"r\":null}\n1000 {\"r\":2.0}\n1100 {\"r\":3.0}",
    );
}

fn time_batch(force_update: bool, start_eager: bool, reference_ms: Option<i64>) -> View {
    View::TimeBatch {
        length: secs(10),
        reference_ms,
        force_update,
        start_eager,
    }
}
