//! What a queue gives, keeps and takes back.

use std::time::Duration;

use super::*;
use crate::content::Content;
use crate::flowfile::Attributes;
use crate::limits::SWAP_BATCH_BYTES;

fn connection(flow_files_max: u64, expiration: Duration) -> Connection {
    let definition = ConnectionDefinition {
        id: "c".into(),
        name: "c".into(),
        path: String::new(),
        source: "a".into(),
        relationships: vec!["success".into()],
        destination: "b".into(),
        flow_files_max,
        bytes_max: 0,
        expiration,
        drop_empty: false,
        ..ConnectionDefinition::default()
    };
    Connection::new(definition, false, Arc::default(), Arc::default())
}

fn flow_files(ids: std::ops::Range<u64>) -> Vec<FlowFile> {
    let attributes = Arc::new(Attributes::default());
    ids.map(|id| FlowFile {
        id: FlowFileId(id),
        entry: UnixMillis(0),
        attributes: Arc::clone(&attributes),
        content: Content::default(),
    })
    .collect()
}

fn ids(taken: &[FlowFile]) -> Vec<u64> {
    taken.iter().map(|flow_file| flow_file.id.0).collect()
}

#[test]
fn what_is_given_back_comes_first_and_in_order() {
    let queue = connection(3, Duration::ZERO);
    queue.push(flow_files(0..4), None);
    assert!(queue.is_full());
    let taken = queue.take(1, UnixMillis(0), 2, u64::MAX);
    assert_eq!((ids(&taken.flow_files), queue.count()), (vec![0, 1], 2));
    queue.give_back(1, None);
    assert_eq!(
        ids(&queue.take(1, UnixMillis(0), 9, u64::MAX).flow_files),
        [0, 1, 2, 3]
    );
    queue.let_go(1);
    assert_eq!(queue.available(UnixMillis(0)), Available::Nothing);
}

#[test]
fn attributes_bound_what_is_taken_at_once() {
    let queue = connection(0, Duration::ZERO);
    let large = Attributes::new([("body", "x".repeat(1 << 20))]);
    let mut own = flow_files(0..40);
    for flow_file in &mut own {
        flow_file.attributes = Arc::new(large.clone());
    }
    let shared = flow_files(40..60).into_iter().map(|flow_file| FlowFile {
        attributes: Arc::clone(&own[0].attributes),
        ..flow_file
    });
    let shared: Vec<FlowFile> = shared.collect();
    queue.push(own, None);
    queue.push(shared, None);
    let take = || ids(&queue.take(1, UnixMillis(0), 100, u64::MAX).flow_files).len();
    // What FlowFiles share counts once.
    assert_eq!([take(), take(), take()], [16, 16, 28]);
}

#[test]
fn a_sink_that_fails_again_and_again_does_not_let_its_source_go_on() {
    let queue = connection(3, Duration::ZERO);
    queue.push(flow_files(0..4), None);
    let now = UnixMillis(0);
    // The first try leaves room for what comes meanwhile.
    queue.take(1, now, 9, u64::MAX);
    assert!(!queue.is_full());
    queue.push(flow_files(4..8), None);
    queue.give_back(1, None);
    for session in 2..5 {
        queue.take(session, now, 9, u64::MAX);
        assert!(queue.is_full(), "what is tried again counts");
        queue.give_back(session, None);
    }
    queue.take(5, now, 9, u64::MAX);
    queue.let_go(5);
    assert!(!queue.is_full());
    assert_eq!(queue.available(now), Available::Nothing);
}

#[test]
fn a_batch_that_is_swapped_out_is_bounded_by_its_attributes_too() {
    let mut queue = connection(0, Duration::ZERO);
    queue.definition.swap_threshold = 10;
    let many = |count: u64, bytes: usize| -> Vec<FlowFile> {
        let attributes = Arc::new(Attributes::new([("a", "x".repeat(bytes))]));
        let with = |flow_file: FlowFile| FlowFile {
            attributes: Arc::clone(&attributes),
            ..flow_file
        };
        flow_files(0..count).into_iter().map(with).collect()
    };
    queue.push(many(10, 1), None);
    queue.push(many(20, SWAP_BATCH_BYTES / 5), None);
    queue.push(many(20, 2 * SWAP_BATCH_BYTES), None);
    let batches: Vec<usize> = (0..7).map(|_| queue.batch_out().len()).collect();
    assert_eq!(batches, [4, 4, 4, 4, 4, 1, 1]);
}

#[test]
fn penalized_flow_files_do_not_block_others() {
    let queue = connection(0, Duration::ZERO);
    queue.push(flow_files(0..1), Some(UnixMillis(100)));
    assert_eq!(
        queue.available(UnixMillis(0)),
        Available::At(UnixMillis(100))
    );
    queue.push(flow_files(1..2), None);
    assert_eq!(
        ids(&queue.take(1, UnixMillis(0), 9, u64::MAX).flow_files),
        [1]
    );
    assert_eq!(
        ids(&queue.take(1, UnixMillis(100), 9, u64::MAX).flow_files),
        [0]
    );
}

#[test]
fn old_flow_files_expire_when_polled() {
    let queue = connection(0, Duration::from_millis(50));
    queue.push(flow_files(0..2), None);
    let taken = queue.take(1, UnixMillis(50), 9, u64::MAX);
    assert_eq!((taken.flow_files.len(), taken.expired.len()), (0, 2));
}

#[test]
fn prioritizers_say_who_comes_first_also_after_a_rollback() {
    let mut queue = connection(0, Duration::ZERO);
    queue.definition.prioritizers = vec![Prioritizer::NewestFlowFileFirst];
    let now = UnixMillis(0);
    queue.push(flow_files(0..3), None);
    assert_eq!(ids(&queue.take(1, now, 2, u64::MAX).flow_files), [2, 1]);
    queue.push(flow_files(3..4), None);
    queue.give_back(1, None);
    assert_eq!(
        ids(&queue.take(2, now, 9, u64::MAX).flow_files),
        [3, 2, 1, 0]
    );
}

#[test]
fn named_flow_files_are_found_wherever_they_stand() {
    let queue = connection(0, Duration::ZERO);
    queue.push(flow_files(0..6), None);
    queue.push(flow_files(6..8), Some(UnixMillis(1 << 40)));
    let wanted = [1, 3, 7, 99].map(FlowFileId).into_iter().collect();
    assert_eq!(ids(&queue.take_these(1, &wanted)), [1, 3, 7]);
    assert_eq!(queue.count(), 5);
}
