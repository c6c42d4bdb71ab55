//! The order of queues over a crash in the middle of sessions.

use super::*;

#[test]
fn a_batch_that_came_back_stands_behind_what_sessions_hold_of_the_one_before() {
    for is_of_snapshot in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Rng::from_seed(5);
        let mut model = BTreeMap::new();
        let repository = open(dir.path());
        let queues = connections(&repository);
        let queue = &queues[2];
        for _ in 0..12 {
            make(&repository, &mut random, queue, 2, &mut model);
        }
        if is_of_snapshot {
            repository.replace().unwrap();
        }
        let orders = held(&repository, &queues).1;
        // Each session holds what there was, so that the next batch comes back before any ends.
        for session in 1..5 {
            let taken = queue.take(session, UnixMillis(8), 1_000, u64::MAX);
            assert!(!taken.flow_files.is_empty());
            repository.swap_in(queue).unwrap();
        }
        repository.close().unwrap();
        drop((queues, repository));
        let repository = open(dir.path());
        let queues = connections(&repository);
        let (after, orders_after) = held(&repository, &queues);
        assert_eq!(after, model);
        assert_eq!(orders_after, orders, "snapshot: {is_of_snapshot}");
    }
}
