//! Share groups over power cuts and kills: what was acknowledged stays so, and all else comes again.

use std::collections::BTreeSet;

use base::Rng;
use journal::SimDisk;

use super::*;
use crate::groups::Beat;
use crate::share::{Acknowledgement, Fate};
use crate::store::{ShareRoom, Taken};
use crate::topic_config::ConfigChange;

/// A share group with two members that reads one partition.
struct Group {
    streams: Arc<Streams>,
    partition: Arc<Partition>,
}

impl Group {
    async fn join(streams: &Arc<Streams>) -> Self {
        for (setting, value) in [
            ("share.auto.offset.reset", "earliest"),
            ("share.delivery.count.limit", &LIMIT.to_string()),
        ] {
            let change = ConfigChange::Set(setting.to_owned(), value.to_owned());
            streams.alter_group("g", &[change]).await.unwrap();
        }
        for member in ["a", "b"] {
            let beat = Beat {
                group: "g".to_owned(),
                member_id: member.to_owned(),
                topics: Some(vec!["t".to_owned()]),
                ..Beat::default()
            };
            let answer = streams.groups().share_heartbeat(beat, streams.as_ref());
            assert!(answer.unwrap().assignment.is_some());
        }
        let topic = streams.topic_by_name(&name("t")).unwrap();
        Group {
            streams: Arc::clone(streams),
            partition: Arc::clone(&topic.partitions()[0]),
        }
    }

    fn acquire(&self, member: &str, records: i64) -> Result<Taken, StreamsError> {
        let terms = self.streams.share_terms("g");
        let shared = self
            .streams
            .share_partition("g", &self.partition, &terms)?
            .expect("the group has members");
        let room = ShareRoom {
            records,
            bytes: 1 << 20,
            batches: 100,
            at_least_one: true,
            whole_batches: false,
        };
        let member: Arc<str> = Arc::from(member);
        self.streams
            .share_acquire(&shared, &self.partition, (&member, &terms), room)
    }

    /// Says what is to become of single records; whether that is on the disk.
    async fn acknowledge(&self, member: &str, said: &[(i64, Fate)]) -> bool {
        let said = said.iter().map(|(offset, fate)| Acknowledgement {
            first: *offset,
            last: *offset,
            fates: vec![*fate],
        });
        let said: Vec<Acknowledgement> = said.collect();
        let partition = &self.partition;
        match self
            .streams
            .share_acknowledge("g", partition, member, &said)
        {
            Ok(wait) => wait.await.is_ok(),
            Err(_) => false,
        }
    }
}

/// The most that may be set.
const LIMIT: u16 = 10;

fn offsets(taken: &Taken) -> Vec<i64> {
    let runs = taken.acquired.iter();
    runs.flat_map(|run| run.first..=run.last).collect()
}

#[test]
fn what_was_acknowledged_is_not_delivered_again_and_nothing_is_left_out() {
    let (mut again, mut crashes) = (0, 0);
    seeds::each(async |seed| {
        let mut rng = Rng::from_seed(seed);
        let disk = SimDisk::new(seed);
        let streams = open(&disk);
        create(&streams, "t", 1).await;
        // Accepted or rejected, durably; accepted or rejected, perhaps; stored.
        let (mut done, mut doubtful) = (BTreeSet::new(), BTreeSet::new());
        // Delivered as often as may be.
        let mut exhausted = BTreeSet::new();
        let mut stored = 0_i64;
        let mut streams = Some(streams);
        for life in 0..5 {
            let alive = match streams.take() {
                Some(streams) => streams,
                None => open(&disk),
            };
            let group = Group::join(&alive).await;
            stored = group.partition.high_watermark();
            if !rng.one_in(4) {
                disk.crash_after(rng.below(60));
            }
            for _ in 0..40 {
                let member = ["a", "b"][rng.below(2) as usize];
                match rng.below(8) {
                    0..=2 => {
                        let values = [rng.below(1_000).to_string(), "x".repeat(300)];
                        let batch = batch_of(&values, None);
                        let Ok(appended) = group.partition.append(batch, Ack::All) else {
                            continue;
                        };
                        if appended.ack.await.is_ok() {
                            stored = appended.base_offset + 2;
                        }
                    }
                    3 => {
                        let _ = alive.snapshot(64);
                        let _ = alive.reclaim();
                    }
                    4 => group.streams.end_share_session_of("g", member),
                    _ => {
                        let most = 1 + rng.below(5) as i64;
                        let Ok(taken) = group.acquire(member, most) else {
                            continue;
                        };
                        let mut said = Vec::new();
                        let last_time = taken.acquired.iter().filter(|run| run.deliveries == LIMIT);
                        exhausted.extend(last_time.flat_map(|run| run.first..=run.last));
                        for offset in offsets(&taken) {
                            let told = format!("seed {seed}, life {life}, offset {offset}");
                            assert!(!done.contains(&offset), "{told}: delivered again");
                            again += u64::from(doubtful.contains(&offset));
                            if let Some(fate) = [
                                Some(Fate::Accept),
                                Some(Fate::Reject),
                                Some(Fate::Release),
                                None,
                            ][rng.below(4) as usize]
                            {
                                said.push((offset, fate));
                            }
                        }
                        let ended: Vec<i64> = said
                            .iter()
                            .filter(|(_, fate)| *fate != Fate::Release)
                            .map(|(offset, _)| *offset)
                            .collect();
                        doubtful.extend(ended.iter().copied());
                        if group.acknowledge(member, &said).await {
                            done.extend(ended);
                        }
                    }
                }
            }
            crashes += u64::from(disk.is_down());
            drop(group);
            seeds::end_life(&mut rng, &disk, alive).await;
            disk.power_on();
        }
        // Whatever is left comes to who asks, once he has all time.
        let last = open(&disk);
        let group = Group::join(&last).await;
        assert!(group.partition.high_watermark() >= stored);
        let mut seen = BTreeSet::new();
        loop {
            let taken = group.acquire("c", 100).unwrap();
            if taken.acquired.is_empty() {
                break;
            }
            let all = offsets(&taken);
            let said: Vec<(i64, Fate)> = all.iter().map(|of| (*of, Fate::Accept)).collect();
            assert!(group.acknowledge("c", &said).await);
            seen.extend(all);
        }
        for offset in 0..group.partition.high_watermark() {
            let told = format!("seed {seed}, offset {offset}");
            assert!(
                !(seen.contains(&offset) && done.contains(&offset)),
                "{told}"
            );
            let mut known = [&seen, &doubtful, &exhausted].into_iter();
            let is_known = known.any(|of| of.contains(&offset));
            assert!(is_known, "{told}: left out");
        }
        let offsets = last.share_offsets("g");
        assert_eq!(offsets[0].start, group.partition.high_watermark());
        assert_eq!(offsets[0].lag, 0);
        last.close().await;
    });
    // One that never was in doubt proves nothing.
    assert!(again > 0 && crashes > 0, "{again} again, {crashes} crashes");
}

#[tokio::test]
async fn a_group_that_is_deleted_begins_anew_and_a_topic_takes_its_state_along() {
    let disk = SimDisk::new(3);
    let streams = open(&disk);
    let topic = create(&streams, "t", 1).await;
    append(&topic.partitions()[0], "one").await;
    let group = Group::join(&streams).await;
    assert_eq!(offsets(&group.acquire("a", 10).unwrap()), [0]);
    assert!(group.acknowledge("a", &[(0, Fate::Accept)]).await);
    let leave = |member: &str| {
        let beat = Beat {
            group: "g".to_owned(),
            member_id: member.to_owned(),
            epoch: crate::groups::LEAVE_EPOCH,
            ..Beat::default()
        };
        let left = streams.groups().share_heartbeat(beat, streams.as_ref());
        left.unwrap();
    };
    leave("a");
    assert!(streams.forget_group("g").await.is_err(), "it has a member");
    leave("b");
    assert!(streams.group_detail("g").is_some());
    streams.forget_group("g").await.unwrap();
    assert!(!streams.is_share_group("g"));
    let again = Group::join(&streams).await;
    assert_eq!(offsets(&again.acquire("a", 10).unwrap()), [0]);
    streams.delete_topic(&name("t")).await.unwrap();
    assert!(streams.share_offsets("g").is_empty());
    streams.close().await;
    drop((group, again, topic, streams));
    let streams = open(&disk);
    assert!(streams.share_offsets("g").is_empty());
    assert!(streams.is_share_group("g"), "the group is still there");
    streams.close().await;
}

#[tokio::test]
async fn what_is_accepted_twice_is_on_the_disk_before_either_is_answered() {
    let disk = SimDisk::new(5);
    let streams = open(&disk);
    let topic = create(&streams, "t", 1).await;
    append(&topic.partitions()[0], "one").await;
    let group = Group::join(&streams).await;
    assert_eq!(offsets(&group.acquire("a", 10).unwrap()), [0]);
    let said = [Acknowledgement {
        first: 0,
        last: 0,
        fates: vec![Fate::Accept],
    }];
    let acknowledge = || streams.share_acknowledge("g", &group.partition, "a", &said);
    disk.crash_after(0);
    let (first, second) = (acknowledge().unwrap(), acknowledge().unwrap());
    assert!(first.await.is_err() && second.await.is_err());
}

#[tokio::test]
async fn committed_readers_are_given_nothing_of_aborted_transactions() {
    let streams = open(&SimDisk::new(4));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    append(partition, "before").await;
    let now = SystemClock.now();
    for (first_sequence, is_commit) in [(0, false), (1, true)] {
        let sequence = ProducerSequence {
            producer_id: 7,
            producer_epoch: 0,
            first_sequence,
        };
        let records = [Record::of_value("v")];
        let batch = batch::build_transactional(&records, now, sequence).unwrap();
        partition
            .append_any(batch, Ack::All)
            .unwrap()
            .ack
            .await
            .unwrap();
        let marker = Marker {
            producer_id: 7,
            producer_epoch: 0,
            is_commit,
        };
        partition.append_marker(now, marker).unwrap();
    }
    append(partition, "after").await;
    let group = Group::join(&streams).await;
    // The aborted one at 1, the committed one at 3, and no markers.
    assert_eq!(offsets(&group.acquire("a", 100).unwrap()), [0, 1, 3, 5]);
    let change = |value: &str| {
        let name = "share.isolation.level".to_owned();
        [ConfigChange::Set(name, value.to_owned())]
    };
    streams.end_share_session_of("g", "a");
    streams
        .alter_group("g", &change("read_committed"))
        .await
        .unwrap();
    assert_eq!(offsets(&group.acquire("a", 100).unwrap()), [0, 3, 5]);
    let all = [0, 3, 5].map(|offset| (offset, Fate::Accept));
    assert!(group.acknowledge("a", &all).await);
    assert_eq!(streams.share_offsets("g")[0].start, 6);
    streams.close().await;
}
