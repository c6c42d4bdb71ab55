//! What waits for room in the journal is judged by how things stand when there is some.

use std::cell::Cell;
use std::time::Duration;

use journal::SimDisk;

use super::*;
use crate::groups::GroupError;
use crate::offsets::OffsetCommit;
use crate::transactions::TransactionProtocol;

#[tokio::test]
async fn a_member_that_was_put_out_while_it_waited_commits_nothing() {
    let streams = open(&SimDisk::new(11));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    let timeout = Duration::from_secs(60);
    let producer = streams.init_transactions("tx", timeout, None).await;
    let producer = producer.unwrap();
    let commits = || {
        vec![OffsetCommit {
            topic: name("t"),
            partition: 0,
            offset: 5,
            leader_epoch: -1,
            metadata: "m".repeat(4_000),
            at: SystemClock.now(),
        }]
    };
    for _ in 0..10_000 {
        // Nobody knows when the journal is busy; so until it was, once.
        let batch = batch_of(&["x".repeat(1_000)], None);
        while partition.append(batch.clone(), Ack::All).is_ok() {}
        let asked = Cell::new(0);
        let is_member = || {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 => Ok(()),
                _ => Err(StreamsError::Group {
                    group: "g".to_owned(),
                    reason: GroupError::UnknownMember,
                }),
            }
        };
        let protocol = TransactionProtocol::Implicit;
        let taken = streams
            .commit_checked(protocol, "tx", producer, "g", commits(), is_member)
            .await;
        if asked.get() > 1 {
            let reason = GroupError::UnknownMember;
            assert!(matches!(taken, Err(StreamsError::Group { reason: r, .. }) if r == reason));
            streams.close().await;
            return;
        }
        taken.unwrap();
    }
    panic!("the journal was never busy");
}
