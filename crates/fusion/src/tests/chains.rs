//! Internal streams: one event goes through a whole chain before the next does.

use std::sync::Arc;

use base::UnixMillis;
use mqtt::{Delivery, Message, MessageSink, Qos};

use super::queries::{V, from, of, slots};
use super::speed::lane_of;
use crate::chains::Chains;
use crate::feed::Feed;
use crate::formats::Format;
use crate::lane::{Lane, Target};
use crate::plan::{Pattern, PatternNode, Plan, Shape, Sink, Source};

fn lane(plan: Plan) -> Arc<Lane> {
    let target = match &plan.sink {
        Some(Sink::Stream(name)) => Target::Stream(name.clone()),
        _ => Target::Mqtt("out".parse().unwrap()),
    };
    let mut lane = Arc::into_inner(lane_of(Arc::new(plan))).unwrap();
    lane.targets = vec![target];
    Arc::new(lane)
}

/// `insert into s select v from t0`.
fn inserter() -> Plan {
    let mut plan = from(&[&[]]).column("v", of(0, V)).plan();
    plan.sink = Some(Sink::Stream("s".to_owned()));
    plan
}

/// `every a=t0 -> b=s`.
fn pairs() -> Plan {
    let event = |input: u16| PatternNode::Event {
        input,
        tag: Some(input),
        filter: None,
        filter_tag: Some(input),
    };
    from(&[&[], &[]])
        .column("a", of(0, V))
        .column("b", of(1, V))
        .with(|query| {
            query.inputs[1].source = Source::Stream("s".to_owned());
            query.slots = slots(2);
            query.shape = Shape::Pattern(Pattern {
                root: PatternNode::FollowedBy(vec![
                    PatternNode::Every(Box::new(event(0))),
                    event(1),
                ]),
                tags: 2,
                discard_overlapping: false,
            });
        })
        .plan()
}

fn run(batches: &[usize]) -> (String, [crate::machine::Books; 2]) {
    let chains = Arc::new(Chains::default());
    let feed = Feed::of(Format::Json, None);
    let feed = feed.linked(Source::Mqtt("t0".to_owned()), chains.clone());
    let (first, second) = (lane(inserter()), lane(pairs()));
    for lane in [&first, &second] {
        chains.join(lane);
    }
    feed.join([first.clone(), second.clone()]);
    let payloads: Vec<String> = (0..6).map(|v| format!("{{\"v\":{v}}}")).collect();
    let messages: Vec<Message<'_>> = payloads
        .iter()
        .map(|payload| Message {
            topic: "t0",
            payload: payload.as_bytes(),
            qos: Qos::AtMostOnce,
            retain: false,
            received: UnixMillis(7),
            ..Message::default()
        })
        .collect();
    let mut rest = messages.as_slice();
    for size in batches {
        let (batch, more) = rest.split_at(*size);
        assert_eq!(feed.deliver(batch), Delivery::Taken);
        rest = more;
    }
    let state = second.state.lock();
    let rows: Vec<&str> = state
        .output
        .texts()
        .map(|text| std::str::from_utf8(text).unwrap())
        .collect();
    let books = [first.state.lock().machine.books(), state.machine.books()];
    (rows.join("\n"), books)
}

#[test]
fn a_row_passes_its_chain_before_the_next_event_whatever_the_batches() {
    let (rows, books) = run(&[6]);
    let expected: Vec<String> = (0..6).map(|v| format!("{{\"a\":{v},\"b\":{v}}}")).collect();
    assert_eq!(rows, expected.join("\n"));
    assert_eq!((books[0].emitted, books[0].emitted_from), (6, 6));
    assert_eq!(books[0].in_flight(), 0);
    assert_eq!(books[1].received, 12);
    assert_eq!(run(&[1, 2, 3]), (rows, books));
}

#[test]
fn who_left_a_stream_gets_nothing_more_of_it() {
    let chains = Arc::new(Chains::default());
    let feed = Feed::of(Format::Json, None);
    let feed = feed.linked(Source::Mqtt("t0".to_owned()), chains.clone());
    let first = lane(inserter());
    let second = lane({
        let mut plan = from(&[&[]]).column("v", of(0, V)).plan();
        plan.source = Source::Stream("s".to_owned());
        if let crate::plan::Stage::Query(query) = &mut plan.stage {
            query.inputs[0].source = Source::Stream("s".to_owned());
        }
        plan
    });
    chains.join(&first);
    chains.join(&second);
    feed.join([first]);
    let message = Message {
        topic: "t0",
        payload: b"{\"v\":1}",
        qos: Qos::AtMostOnce,
        retain: false,
        received: UnixMillis(0),
        ..Message::default()
    };
    feed.deliver(&[message]);
    chains.leave(&second);
    feed.deliver(&[message]);
    assert_eq!(second.state.lock().machine.books().received, 1);
}
