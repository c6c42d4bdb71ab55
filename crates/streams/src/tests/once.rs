//! Records under keys over a restart: what the outcome lost, the records' own numbers know.

use journal::SimDisk;

use super::{create, name, open, seeds, small, try_open};
use crate::event_store::ProduceBatch;
use crate::once::{ProduceOnce, StoredOnce};
use crate::record::Record;
use crate::{StreamsError, TopicName};
use base::{Clock, SystemClock};

fn asked(key: u8, partitions: &[i32]) -> ProduceOnce {
    let topic: TopicName = name("t");
    let batch = |partition: &i32| ProduceBatch {
        topic: topic.clone(),
        partition: *partition,
        records: vec![Record::of_value(format!("{key}.{partition}"))],
        sequence: None,
    };
    ProduceOnce {
        key: [key; 32],
        fingerprint: [1; 32],
        partitions: 2,
        at: SystemClock.now(),
        batches: partitions.iter().map(batch).collect(),
    }
}

#[tokio::test]
async fn keys_are_known_after_a_restart() {
    let disk = SimDisk::new(1);
    let streams = open(&disk);
    create(&streams, "t", 2).await;
    let first = streams.produce_once(asked(1, &[0, 1])).await.unwrap();
    streams.close().await;
    drop(streams);
    let (streams, _) = try_open(&disk, small()).unwrap();
    let again = streams.produce_once(asked(1, &[0, 1])).await.unwrap();
    assert!(again.is_recalled);
    assert_eq!(again.runs, first.runs);
    let mut other = asked(1, &[0]);
    other.fingerprint = [2; 32];
    let refused = streams.produce_once(other).await;
    assert!(
        matches!(refused, Err(StreamsError::KeyReused)),
        "{refused:?}"
    );
}

/// Whatever a crash keeps of a request, sending it again stores each of its records once.
#[test]
fn a_torn_request_is_completed_by_its_retry() {
    let mut torn = 0;
    seeds::each(async |seed| {
        let disk = SimDisk::new(seed);
        let streams = open(&disk);
        create(&streams, "t", 2).await;
        streams.produce_once(asked(0, &[0])).await.unwrap();
        disk.crash_after(seed % 12);
        let mut acknowledged: Vec<(u8, StoredOnce)> = Vec::new();
        for key in 1..4 {
            if let Ok(stored) = streams.produce_once(asked(key, &[0, 1])).await {
                acknowledged.push((key, stored));
            }
        }
        disk.crash_after(0);
        seeds::closed(streams);
        disk.crash();
        let (streams, _) = try_open(&disk, small()).unwrap();
        let topic = streams.topic_by_name(&name("t")).unwrap();
        let stored_before = topic
            .partitions()
            .iter()
            .map(|p| p.high_watermark())
            .sum::<i64>();
        torn += u64::from(stored_before % 2 == 0);
        for key in 1..4 {
            let again = streams.produce_once(asked(key, &[0, 1])).await.unwrap();
            for (_, first) in acknowledged.iter().filter(|(told, _)| *told == key) {
                assert_eq!(again.runs, first.runs, "seed {seed}, key {key}");
            }
        }
        for partition in topic.partitions() {
            let mut found = super::values(&super::all_records(partition));
            found.sort();
            let mut expected: Vec<String> = (1..4)
                .map(|key| format!("{key}.{}", partition.index()))
                .collect();
            if partition.index() == 0 {
                expected.insert(0, "0.0".to_owned());
            }
            assert_eq!(found, expected, "seed {seed}");
        }
    });
    // Else no crash ever fell between the records of a request.
    assert!(torn > 0, "no request was torn");
}
