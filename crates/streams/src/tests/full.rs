//! A disk that fills up at any moment: what lets go of records makes room again, and nothing that
//! was acknowledged is lost over it.

use std::sync::Arc;

use base::{ByteSize, Rng};
use journal::SimDisk;

use super::{all_records, batch_of, create, name, seeds, try_open, values};
use crate::config::StreamsConfig;
use crate::error::StreamsError;
use crate::partition::Partition;
use crate::store::Streams;
use crate::topic_config::ConfigChange;
use crate::{Ack, TopicName};

/// How records go.
#[derive(Clone, Copy, Debug)]
enum Way {
    TopicDeleted,
    RecordsDeleted,
    Retention,
}

fn config() -> StreamsConfig {
    StreamsConfig {
        segment_bytes: ByteSize::kib(64),
        max_message_bytes: ByteSize::kib(2),
        ..StreamsConfig::default()
    }
}

#[test]
fn a_full_disk_gets_free_by_whatever_lets_go_of_records() {
    let mut moved = 0;
    let seeds = seeds::each(async |seed| {
        for way in [Way::TopicDeleted, Way::RecordsDeleted, Way::Retention] {
            moved += fill_and_let_go(seed, way).await;
        }
    });
    // Else it never met the case that costs the most of the reserve.
    assert!(moved > seeds, "{moved} bytes moved on full disks");
}

/// Answers how many bytes were moved on the full disk.
async fn fill_and_let_go(seed: u64, way: Way) -> u64 {
    let (mut rng, disk) = (Rng::from_seed(seed), SimDisk::new(seed));
    let (streams, _) = try_open(&disk, config()).unwrap();
    let bulk = create(&streams, "bulk", 1).await;
    let kept = create(&streams, "kept", 1).await;
    let mut numbers = 0;
    // What is kept lies between what goes, so that it has to move.
    let one_in = 20 + rng.below(200);
    for _ in 0..rng.below(100) {
        store(&streams, &bulk.partitions()[0], &"x".repeat(1_000)).await;
    }
    if rng.one_in(2) {
        streams.snapshot(64).unwrap();
    }
    disk.set_capacity(Some(disk.used() + rng.below(300_000)));
    loop {
        let is_kept = rng.one_in(one_in);
        let (topic, value) = match is_kept {
            true => (&kept, numbers.to_string()),
            false => (&bulk, "x".repeat(1 + rng.below(1_500) as usize)),
        };
        if !try_store(&streams, &topic.partitions()[0], &value).await {
            break;
        }
        numbers += i32::from(is_kept);
    }
    let expected: Vec<String> = (0..numbers).map(|number| number.to_string()).collect();
    let context = format!("seed {seed}, {way:?}");
    let_go(&streams, way).await;
    let mut moved = 0;
    let mut rounds = 0;
    while !try_store(&streams, &kept.partitions()[0], "after").await {
        moved += streams.move_living(4).unwrap();
        streams.reclaim().unwrap();
        rounds += 1;
        std::thread::yield_now();
        assert!(
            rounds < 100_000,
            "{context}: it stays full, {}",
            told(&streams)
        );
    }
    assert_eq!(
        values(&all_records(&kept.partitions()[0]))[..expected.len()],
        expected
    );
    disk.crash_after(0);
    seeds::closed(streams);
    drop((bulk, kept));
    disk.crash();
    let (streams, _) = try_open(&disk, config()).unwrap();
    let kept = streams.topic_by_name(&name("kept")).unwrap();
    let found = values(&all_records(&kept.partitions()[0]));
    assert_eq!(found[..expected.len()], expected, "{context}");
    assert_eq!(found.last().map(String::as_str), Some("after"), "{context}");
    let bulk = streams.topic_by_name(&name("bulk"));
    match (way, bulk) {
        (Way::TopicDeleted, bulk) => assert!(bulk.is_none(), "{context}"),
        (_, bulk) => drop(all_records(&bulk.unwrap().partitions()[0])),
    }
    moved
}

async fn let_go(streams: &Arc<Streams>, way: Way) {
    let bulk: TopicName = name("bulk");
    match way {
        Way::TopicDeleted => streams.delete_topic(&bulk).await.unwrap(),
        Way::RecordsDeleted => {
            streams.delete_records(&bulk, 0, None).await.unwrap();
        }
        Way::Retention => {
            let change = ConfigChange::Set("retention.bytes".to_owned(), "1000".to_owned());
            streams.alter_topic(&bulk, &[change]).await.unwrap();
            let topic = streams.topic_by_name(&bulk).unwrap();
            streams.trim(&topic.partitions()[0]).unwrap();
        }
    }
}

/// What stands in the way of space.
fn told(streams: &Streams) -> String {
    let journal = &streams.shared().journal;
    format!(
        "{:?} with {} bytes of room, snapshot of {:?} begun at {:?}, moved until {:?}, living from \
         {:?}, end {:?}",
        journal.segments(),
        journal.room_ahead(),
        streams.snapshot_estimate(),
        streams.snapshot_began(),
        streams.moved_until(),
        streams.oldest_batch(),
        journal.end(),
    )
}

/// Stores a value; false when the disk is full.
async fn try_store(streams: &Streams, partition: &Arc<Partition>, value: &str) -> bool {
    loop {
        match partition.append(batch_of(&[value.to_owned()], None), Ack::All) {
            Ok(append) => {
                append.ack.await.unwrap();
                return true;
            }
            Err(StreamsError::Busy) => streams.room(2_000).await,
            Err(StreamsError::Full) => return false,
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn store(streams: &Streams, partition: &Arc<Partition>, value: &str) {
    assert!(try_store(streams, partition, value).await);
}
