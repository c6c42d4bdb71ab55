//! What outlives the members of a group: its offsets for a time, its epoch and its kind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, ManualClock, SystemClock};
use journal::SimDisk;
use tokio::runtime::Handle;

use super::{batch_of, create, name, small};
use crate::event_store::ProducerSequence;
use crate::groups::{
    Beat, BeatAnswer, GroupError, GroupKind, JoinRequest, Joined, LEAVE_EPOCH, Partitions, Pending,
    Protocol, Sight,
};
use crate::{Ack, ConfigChange, OffsetCommit, Streams, StreamsError};

/// A store whose clock stands still unless the test moves it.
struct Bench {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    streams: Arc<Streams>,
}

impl Bench {
    fn new() -> Self {
        let disk = SimDisk::new(1);
        let clock = Arc::new(ManualClock::at(SystemClock.now()));
        let streams = open(&disk, &clock);
        Bench {
            disk,
            clock,
            streams,
        }
    }

    async fn open_again(&mut self) {
        self.streams.close().await;
        self.streams = open(&self.disk, &self.clock);
    }

    fn beat(&self, epoch: i32) -> Result<i32, GroupError> {
        self.answer(epoch).map(|answer| answer.epoch)
    }

    fn answer(&self, epoch: i32) -> Result<BeatAnswer, GroupError> {
        let first = epoch == 0;
        let beat = Beat {
            group: "g".into(),
            member_id: "m".into(),
            epoch,
            rebalance_timeout: first.then(|| Duration::from_secs(30)),
            topics: first.then(|| vec!["t".into()]),
            owned: first.then(Partitions::default),
            ..Beat::default()
        };
        let streams = &self.streams;
        streams.groups().consumer_heartbeat(beat, streams.as_ref())
    }

    /// What is set for a group.
    fn set(&self, group: &str) -> Vec<(&'static str, String)> {
        let told = self.streams.group_settings(group).into_iter();
        told.filter(|held| held.is_set)
            .map(|held| (held.name, held.value))
            .collect()
    }

    fn join(&self) -> Pending<Joined> {
        let protocol = Protocol {
            name: "range".into(),
            metadata: crate::consumer::subscription(["t"].into_iter()),
        };
        let wish = JoinRequest {
            group: "g".into(),
            member_id: String::new(),
            instance_id: None,
            client_id: "classic".into(),
            client_host: String::new(),
            session_timeout: Duration::from_secs(30),
            rebalance_timeout: Duration::from_secs(30),
            protocol_type: "consumer".into(),
            protocols: vec![protocol],
            member_id_required: false,
            sight: Sight::default(),
            is_remote: true,
        };
        self.streams
            .groups()
            .join_group(wish, self.streams.as_ref())
    }

    fn standing(&self) -> (GroupKind, i32) {
        let standing = self.streams.group_standing("g").unwrap();
        (standing.kind, standing.epoch)
    }

    async fn commit(&self, group: &str, partition: i32) {
        self.commit_with(group, partition, "").await;
    }

    async fn commit_with(&self, group: &str, partition: i32, metadata: &str) {
        let durable = loop {
            let commit = OffsetCommit {
                topic: name("t"),
                partition,
                offset: 5,
                leader_epoch: -1,
                metadata: metadata.to_owned(),
                at: self.streams.clock().now(),
            };
            match self.streams.commit_offsets(group, vec![commit]) {
                // The next segment is on its way.
                Err(StreamsError::Busy) => self.streams.room(METADATA_BYTES as u64).await,
                taken => break taken.unwrap(),
            }
        };
        durable.await.unwrap();
    }

    async fn pass_days(&self, days: u64) -> Option<Duration> {
        self.clock.advance(Duration::from_secs(days * 24 * 3_600));
        let next = self.streams.expire_offsets().unwrap();
        // What was appended before this has taken effect when this has.
        let after = self.streams.delete_offsets("nobody", &[(name("t"), 0)]);
        after.unwrap().await.unwrap();
        next
    }

    fn committed(&self, group: &str) -> usize {
        self.streams.committed_all(group).len()
    }
}

#[tokio::test]
async fn who_writes_nothing_for_long_is_forgotten() {
    let mut bench = Bench::new();
    let topic = create(&bench.streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    let producer_id = bench.streams.next_producer_id().await.unwrap();
    let batch = |first_sequence| {
        let sequence = ProducerSequence {
            producer_id,
            producer_epoch: 0,
            first_sequence,
        };
        batch_of(&["v".to_owned()], Some(sequence))
    };
    let timeout = Duration::from_secs(60);
    let first = bench.streams.init_transactions("id", timeout, None);
    let first = first.await.unwrap();
    let appended = partition.append(batch(0), Ack::All).unwrap();
    appended.ack.await.unwrap();
    bench.clock.advance(Duration::from_secs(23 * 3_600));
    assert!(bench.streams.expire_producers().unwrap() >= Duration::from_secs(3_600));
    assert!(partition.append(batch(50), Ack::All).is_err());
    bench.clock.advance(Duration::from_secs(2 * 3_600));
    assert_eq!(bench.streams.expire_producers(), None);
    let appended = partition.append(batch(50), Ack::All).unwrap();
    appended.ack.await.unwrap();
    bench.streams.sweep().unwrap();
    assert_eq!(bench.streams.transactional_ids(), ["id"]);
    bench.pass_days(7).await;
    bench.streams.sweep().unwrap();
    assert!(bench.streams.transactional_ids().is_empty());
    drop(topic);
    bench.open_again().await;
    assert!(bench.streams.transactional_ids().is_empty());
    let again = bench.streams.init_transactions("id", timeout, None);
    let again = again.await.unwrap();
    assert!(again.id > first.id && again.epoch == 0, "{again:?}");
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Streams> {
    let clock = Arc::clone(clock);
    let disk = Arc::new(disk.clone());
    Streams::open_on(disk, Path::new("/streams"), small(), clock)
        .unwrap()
        .0
}

#[tokio::test]
async fn members_of_the_newer_protocol_join_again_after_a_restart_and_epochs_go_on() {
    let mut bench = Bench::new();
    create(&bench.streams, "t", 2).await;
    assert_eq!(bench.beat(0), Ok(1));
    for snapshot in [false, true] {
        let epoch = bench.beat(0).unwrap();
        if snapshot {
            bench.streams.snapshot(1).unwrap();
        }
        bench.open_again().await;
        let standing = bench.streams.group_standing("g").unwrap();
        assert_eq!(
            (standing.kind, standing.epoch),
            (GroupKind::Consumer, epoch)
        );
        // A member of before is told to join again, and does not take the group for deleted.
        assert_eq!(bench.beat(epoch), Err(GroupError::UnknownMember));
        assert_eq!(bench.beat(0), Ok(epoch + 1));
    }
    bench.beat(LEAVE_EPOCH).unwrap();
    assert!(bench.streams.delete_group("g").unwrap().0);
    bench.open_again().await;
    assert_eq!(bench.streams.group_standing("g"), None);
    assert_eq!(bench.beat(3), Err(GroupError::NotFound));
}

/// Whoever comes back first after a restart, and however often that is, the members of a group of
/// both protocols find it again, and its epochs go on.
#[tokio::test]
async fn a_group_of_both_protocols_goes_on_after_restarts() {
    let mut bench = Bench::new();
    create(&bench.streams, "t", 2).await;
    let mut epoch = bench.beat(0).unwrap();
    for snapshot in [false, true] {
        let joined = bench.join().await.unwrap();
        assert_eq!(joined.generation, epoch + 1);
        epoch = joined.generation;
        assert_eq!(bench.standing(), (GroupKind::Consumer, epoch));
        bench.open_again().await;
        assert_eq!(bench.standing(), (GroupKind::Consumer, epoch));
        // The classic member is the first to come, and the process stops once more.
        let waiting = bench.join();
        assert_eq!(bench.standing(), (GroupKind::Classic, epoch));
        assert_eq!(bench.beat(epoch), Err(GroupError::UnknownMember));
        if snapshot {
            bench.streams.snapshot(1).unwrap();
        }
        bench.open_again().await;
        drop(waiting);
        assert_eq!(bench.standing(), (GroupKind::Classic, epoch));
        assert_eq!(bench.beat(epoch), Err(GroupError::UnknownMember));
        // One that gives up changes nothing for the others.
        drop(bench.join());
        assert_eq!(bench.beat(epoch), Err(GroupError::UnknownMember));
        let waiting = bench.join();
        assert_eq!(bench.beat(0), Ok(epoch + 1));
        assert_eq!(waiting.await, Err(GroupError::RebalanceInProgress));
        epoch += 1;
    }
    bench.commit("g", 0).await;
    bench.join().await.unwrap();
    bench.beat(LEAVE_EPOCH).unwrap();
    assert_eq!(bench.standing().0, GroupKind::Classic);
    assert!(bench.standing().1 > epoch);
    bench.open_again().await;
    assert_eq!(bench.standing().0, GroupKind::Classic);
    assert_eq!(bench.committed("g"), 1);
    assert!(bench.beat(0).unwrap() > epoch);
    assert_eq!(bench.committed("g"), 1);
}

#[tokio::test]
async fn offsets_expire_when_the_group_was_without_members_for_long_enough() {
    let mut bench = Bench::new();
    create(&bench.streams, "t", 2).await;
    bench.beat(0).unwrap();
    bench.commit("g", 0).await;
    bench.commit("alone", 0).await;
    assert_eq!(
        bench.streams.expire_offsets().unwrap(),
        Some(Duration::from_secs(7 * 86_400))
    );
    let next = bench.pass_days(6).await;
    assert_eq!((bench.committed("g"), bench.committed("alone")), (1, 1));
    assert_eq!(next, Some(Duration::from_secs(86_400)));
    bench.commit("alone", 1).await;
    bench.pass_days(1).await;
    // Who has members keeps all; who has none keeps what was committed lately.
    assert_eq!((bench.committed("g"), bench.committed("alone")), (1, 1));
    bench.open_again().await;
    bench.pass_days(6).await;
    assert_eq!((bench.committed("g"), bench.committed("alone")), (1, 1));
    bench.pass_days(1).await;
    assert_eq!((bench.committed("g"), bench.committed("alone")), (0, 0));
    bench.pass_days(7).await;
    assert_eq!(bench.streams.list_groups(), []);
}

#[tokio::test]
async fn deleted_offsets_stay_deleted_and_lags_are_counted() {
    let mut bench = Bench::new();
    let topic = create(&bench.streams, "t", 2).await;
    bench.commit("g", 0).await;
    bench.commit("g", 1).await;
    super::append(&topic.partitions()[0], "a").await;
    let lag = bench.streams.lags();
    let of = |lag: &crate::Lag| (lag.group.clone(), lag.partition, lag.records);
    let told: Vec<_> = lag.iter().map(of).collect();
    let beyond = [("g".to_owned(), 0, 0), ("g".to_owned(), 1, 0)];
    assert_eq!(told, beyond, "a commit beyond the end is no lag");
    let deleted = bench.streams.delete_offsets("g", &[(name("t"), 0)]);
    deleted.unwrap().await.unwrap();
    assert_eq!(bench.committed("g"), 1);
    drop(topic);
    bench.open_again().await;
    assert_eq!(bench.committed("g"), 1);
}

#[tokio::test]
async fn members_that_stood_still_are_there_after_a_restart_until_they_leave() {
    let mut bench = Bench::new();
    create(&bench.streams, "t", 2).await;
    let epoch = bench.beat(0).unwrap();
    for snapshot in [false, true, false] {
        if snapshot {
            bench.streams.snapshot(1).unwrap();
        }
        bench.open_again().await;
        // Each listener of the store begins.
        for _ in 0..2 {
            bench.streams.groups().begin(Handle::current());
        }
        assert_eq!(bench.beat(epoch), Ok(epoch));
        let standing = bench.streams.group_standing("g").unwrap();
        assert!(standing.has_members);
    }
    bench.beat(LEAVE_EPOCH).unwrap();
    for _ in 0..2 {
        bench.open_again().await;
        bench.streams.groups().begin(Handle::current());
        assert_eq!(bench.beat(epoch), Err(GroupError::UnknownMember));
    }
}

#[tokio::test]
async fn what_is_set_for_a_group_holds_from_its_next_heartbeat_on_and_outlives_it() {
    let mut bench = Bench::new();
    create(&bench.streams, "t", 1).await;
    let (interval, timeout) = (
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
    );
    let put = |name: &str, value: &str| ConfigChange::Set(name.into(), value.into());
    let told = |bench: &Bench, epoch| bench.answer(epoch).unwrap().heartbeat_interval.as_millis();
    let epoch = bench.beat(0).unwrap();
    assert_eq!(told(&bench, epoch), 5_000);
    let both = [put(interval, "6000"), put(timeout, "50000")];
    bench.streams.alter_group("g", &both).await.unwrap();
    assert_eq!(told(&bench, epoch), 6_000);
    // All or none, and nothing of one that is only looked at.
    let refused = [put(interval, "7000"), put(timeout, "1")];
    let refused = bench.streams.alter_group("g", &refused).await;
    assert!(
        matches!(refused, Err(StreamsError::InvalidConfig(_))),
        "{refused:?}"
    );
    let longer = [put(interval, "7000")];
    bench.streams.check_alter_group("g", &longer).unwrap();
    assert_eq!(told(&bench, epoch), 6_000);
    let expected = vec![(interval, "6000".to_owned()), (timeout, "50000".to_owned())];
    bench.beat(LEAVE_EPOCH).unwrap();
    bench.streams.forget_group("g").await.unwrap();
    for snapshot in [false, true] {
        if snapshot {
            bench.streams.snapshot(1).unwrap();
        }
        bench.open_again().await;
        assert_eq!(bench.set("g"), expected);
        assert_eq!(bench.streams.list_groups(), []);
    }
    assert_eq!(told(&bench, 0), 6_000);
    let unset = [ConfigChange::Unset(interval.into())];
    bench.streams.alter_group("g", &unset).await.unwrap();
    let config = crate::GroupConfig::default();
    bench.open_again().await;
    assert_eq!(bench.set("g"), expected[1..]);
    let replaced = bench.streams.replace_group_config("g", &config);
    replaced.await.unwrap();
    bench.open_again().await;
    assert_eq!(bench.set("g"), []);
    assert!(bench.streams.groups_with_settings().is_empty());
}

#[tokio::test]
async fn members_that_outlive_the_process_have_the_time_that_is_set_for_their_group() {
    let mut bench = Bench::new();
    create(&bench.streams, "t", 1).await;
    let change = ConfigChange::Set("consumer.heartbeat.interval.ms".into(), "9000".into());
    bench.streams.alter_group("g", &[change]).await.unwrap();
    let epoch = bench.beat(0).unwrap();
    bench.open_again().await;
    bench.streams.groups().begin(Handle::current());
    let told = bench.answer(epoch).unwrap().heartbeat_interval;
    assert_eq!(told, Duration::from_secs(9));
}

#[tokio::test]
async fn what_no_segment_holds_of_a_group_stops_no_snapshot() {
    let mut bench = Bench::new();
    create(&bench.streams, "t", 40).await;
    for partition in 0..40 {
        let metadata = "m".repeat(METADATA_BYTES);
        bench.commit_with("wordy", partition, &metadata).await;
    }
    let beat = Beat {
        group: "g".into(),
        member_id: "m".into(),
        rebalance_timeout: Some(Duration::from_secs(30)),
        topics: Some((0..2_000).map(|n| format!("topic-{n}")).collect()),
        owned: Some(Partitions::default()),
        ..Beat::default()
    };
    let groups = bench.streams.groups();
    let joined = groups.consumer_heartbeat(beat, bench.streams.as_ref());
    let epoch = joined.unwrap().epoch;
    bench.streams.snapshot(1).unwrap();
    bench.streams.reclaim().unwrap();
    bench.open_again().await;
    assert_eq!(bench.committed("wordy"), 40);
    // Its members are not kept.
    bench.streams.groups().begin(Handle::current());
    assert_eq!(bench.beat(epoch), Err(GroupError::UnknownMember));
}

/// Of the largest commits here.
const METADATA_BYTES: usize = 1_000;
