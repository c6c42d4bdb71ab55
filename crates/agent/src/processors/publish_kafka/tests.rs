//! PublishKafka alone with a broker that is unkind.

use bytes::Bytes;

use super::state::ProducerState;
use crate::fail_point;
use crate::testing::{Broker, Rig, wait_for_count};

/// A processor that sends ten FlowFiles together.
fn publisher_to(broker: &Broker, topic: &str) -> Rig {
    let address = broker.address();
    let properties = [
        ("Known Brokers", address.as_str()),
        ("Topic Name", topic),
        ("Client Name", "test"),
        ("Delivery Guarantee", "all"),
        ("Batch Size", "10"),
    ];
    Rig::new("PublishKafka", &properties)
}

/// The same, before so many that wait.
fn publisher(broker: &Broker, count: usize) -> Rig {
    let mut rig = publisher_to(broker, "lines");
    for number in 0..count {
        rig.put(&[], number.to_string());
    }
    rig
}

fn numbers(numbers: impl IntoIterator<Item = usize>) -> Vec<Bytes> {
    let texts = numbers.into_iter().map(|number| number.to_string());
    texts.map(Bytes::from).collect()
}

/// What the broker has in order, and that nothing is in doubt.
fn check(broker: &Broker, rig: &Rig, expected: &[Bytes]) {
    assert_eq!(broker.values("lines", 0), expected);
    let state: ProducerState = serde_json::from_slice(&rig.state()).unwrap();
    assert!(
        state.doubt.is_empty() && state.stored.is_empty(),
        "{state:?}"
    );
}

#[test]
fn old_words_and_no_bound_mean_what_they_mean_in_minifi() {
    let broker = Broker::start(1);
    let address = broker.address();
    let properties = [
        ("Known Brokers", address.as_str()),
        ("Topic Name", "lines"),
        ("Client Name", "test"),
        ("Delivery Guarantee", "DELIVERY_ONE_NODE"),
        ("Target Batch Payload Size", "0 B"),
    ];
    let mut rig = Rig::new("PublishKafka", &properties);
    for number in 0..20 {
        rig.put(&[], number.to_string());
    }
    rig.run();
    check(&broker, &rig, &numbers(0..20));
    assert_eq!((broker.batches("lines", 0), broker.acks()), (1, -1));
}

#[test]
fn batches_are_sent_before_those_ahead_of_them_are_answered() {
    let broker = Broker::start(1);
    // A broker that does not know the producer yet gets a batch at a time.
    broker.answer_in_pairs_after(2);
    let mut rig = publisher(&broker, 220);
    rig.run();
    check(&broker, &rig, &numbers(0..220));
    assert_eq!(rig.counts(), [("success", 220)]);
    assert_eq!(rig.bulletins(), [""; 0]);
}

#[test]
fn what_stands_behind_a_refused_batch_follows_what_stands_before_it() {
    // The first and the second batch of a round.
    for refused in [25, 35] {
        let broker = Broker::start(1);
        broker.refuse(&refused.to_string());
        let mut rig = publisher(&broker, 200);
        rig.run();
        let batch = refused / 10 * 10..refused / 10 * 10 + 10;
        let others = (0..200).filter(|number| !batch.contains(number));
        check(&broker, &rig, &numbers(others));
        let failed = rig.out("failure").into_iter().map(|out| out.content);
        assert_eq!(failed.collect::<Vec<_>>(), numbers(batch));
        let bulletins = rig.bulletins();
        assert!(
            matches!(&bulletins[..], [one] if one.contains("lines-0 refused 10 records")),
            "{bulletins:?}"
        );
    }
}

#[test]
fn what_follows_a_refused_batch_that_is_stored_is_not_taken_for_it() {
    let broker = Broker::start(1);
    broker.refuse_again("15");
    let mut rig = publisher(&broker, 20);
    rig.run();
    for number in 20..30 {
        rig.put(&[], number.to_string());
    }
    rig.run();
    check(&broker, &rig, &numbers(0..30));
    assert_eq!(rig.counts(), [("success", 20), ("failure", 10)]);
    assert_eq!(broker.duplicates(), 0);
}

#[test]
fn a_new_producer_begins_with_the_first_of_its_batches() {
    let broker = Broker::start(1);
    let mut rig = publisher(&broker, 20);
    rig.run();
    broker.forget_producers();
    broker.put_off("25");
    for number in 20..60 {
        rig.put(&[], number.to_string());
    }
    rig.run();
    check(&broker, &rig, &numbers(0..60));
    assert_eq!(rig.counts(), [("success", 60)]);
}

#[test]
fn rounds_whose_answers_are_lost_are_known_again() {
    for each in [5, 6, 7, 8] {
        let broker = Broker::start(1);
        broker.break_each(each);
        let mut rig = publisher(&broker, 200);
        rig.run();
        check(&broker, &rig, &numbers(0..200));
        assert_eq!(rig.counts(), [("success", 200)]);
        assert!(broker.duplicates() > 0, "no answer was lost");
    }
}

#[test]
fn a_round_that_is_on_record_is_sent_once_over_a_kill() {
    for count in [50, 60, 70] {
        let broker = Broker::start(1);
        let mut rig = publisher(&broker, 20);
        rig.run();
        for number in 20..count {
            rig.put(&[], number.to_string());
        }
        rig.kill_at("repository.after_flush");
        rig.run();
        check(&broker, &rig, &numbers(0..count));
    }
}

#[test]
fn a_kill_anywhere_in_a_stream_of_rounds_sends_each_once() {
    for place in [
        "repository.before_flush",
        "repository.after_flush",
        "repository.transfer",
    ] {
        let mut kills = 0;
        for nth in 1.. {
            let broker = Broker::start(1);
            let mut rig = publisher(&broker, 130);
            if !rig.kill_at_nth(place, nth) {
                break;
            }
            kills += 1;
            rig.run();
            check(&broker, &rig, &numbers(0..130));
        }
        assert!(kills > 4, "{place}: killed {kills} times");
    }
}

#[test]
fn the_next_round_is_sent_before_the_last_ones_flow_files_leave() {
    let broker = Broker::start(1);
    let mut rig = publisher(&broker, 30);
    rig.run();
    for number in 30..100 {
        rig.put(&[], number.to_string());
    }
    // The record of the first round, that of the second, and the commit of the first.
    assert!(rig.kill_at_nth("repository.before_flush", 3));
    wait_for_count("what was sent", 70, || broker.count("lines"));
    rig.run();
    check(&broker, &rig, &numbers(0..100));
    assert!(broker.duplicates() >= 4, "nothing was known again");
}

#[test]
fn a_commit_that_fails_with_the_next_round_under_way_loses_nothing_and_sends_nothing_twice() {
    let broker = Broker::start(1);
    let mut rig = publisher(&broker, 30);
    rig.run();
    for number in 30..100 {
        rig.put(&[], number.to_string());
    }
    // The record of the first round, that of the second, and the commit of the first.
    fail_point::refuse(Some(("repository.before_flush", 3)));
    let error = rig.trigger().unwrap_err();
    assert!(error.contains("no room"), "{error}");
    // The broker has both rounds, and their FlowFiles are where they were.
    wait_for_count("what was sent", 70, || broker.count("lines"));
    assert_eq!((rig.count("success"), rig.waiting()), (30, 70));
    rig.run();
    check(&broker, &rig, &numbers(0..100));
    assert_eq!(rig.counts(), [("success", 100)]);
    let out = rig.out("success").into_iter().map(|out| out.content);
    assert_eq!(out.collect::<Vec<_>>(), numbers(0..100));
}

#[test]
fn a_commit_that_fails_anywhere_in_a_stream_of_rounds_is_made_up_for() {
    let mut failures = 0;
    for nth in 1.. {
        let broker = Broker::start(1);
        let mut rig = publisher(&broker, 130);
        match rig.run_refused(nth) {
            0 => break,
            failed => assert_eq!(failed, 1, "the {nth}. commit"),
        }
        failures += 1;
        check(&broker, &rig, &numbers(0..130));
        assert_eq!(rig.counts(), [("success", 130)], "the {nth}. commit");
    }
    assert!(failures > 4, "{failures} commits failed");
}

#[test]
fn a_doubt_on_record_ends_without_acknowledgement_too() {
    let broker = Broker::start(1);
    let mut rig = publisher(&broker, 10);
    rig.kill_at("repository.after_flush");
    let state: ProducerState = serde_json::from_slice(&rig.state()).unwrap();
    assert_eq!(state.doubt.len(), 1);
    rig.kill_with("Delivery Guarantee", "DELIVERY_BEST_EFFORT");
    for number in 10..30 {
        rig.put(&[], number.to_string());
    }
    rig.run();
    wait_for_count("what was sent", 30, || broker.count("lines"));
    check(&broker, &rig, &numbers(0..30));
    assert_eq!(rig.counts(), [("success", 30)]);
}

#[test]
fn topics_are_asked_for_while_a_batch_is_under_way() {
    let broker = Broker::start(1);
    let mut rig = publisher_to(&broker, "${topic}");
    for number in 0..100 {
        let topic = format!("topic-{}", number / 10);
        rig.put(&[("topic", &topic)], number.to_string());
    }
    rig.run();
    for topic in 0..10 {
        let values = broker.values(&format!("topic-{topic}"), 0);
        assert_eq!(values, numbers(topic * 10..topic * 10 + 10));
    }
}

#[test]
fn every_partition_has_its_share_in_order() {
    let broker = Broker::start(3);
    let mut rig = publisher(&broker, 300);
    rig.run();
    let mut all = Vec::new();
    for partition in 0..3 {
        let values = broker.values("lines", partition);
        let text = |value: &Bytes| String::from_utf8(value.to_vec()).unwrap();
        let there: Vec<usize> = values
            .iter()
            .map(|value| text(value).parse().unwrap())
            .collect();
        assert!(there.is_sorted(), "{there:?}");
        assert!(there.len() >= 90, "{} of 300 in {partition}", there.len());
        all.extend(there);
    }
    all.sort_unstable();
    assert_eq!(all, (0..300).collect::<Vec<_>>());
}

#[test]
fn what_no_record_holds_goes_to_failure_and_the_others_go_on() {
    let broker = Broker::start(1);
    let mut rig = publisher(&broker, 3);
    rig.put(&[("which", "large")], vec![0; 64 << 20 | 1]);
    rig.put(&[], "3");
    rig.run();
    check(&broker, &rig, &numbers(0..4));
    assert_eq!(rig.counts(), [("success", 4), ("failure", 1)]);
    let bulletins = rig.bulletins();
    assert!(bulletins[0].contains("goes to failure"), "{bulletins:?}");
}
