//! Backups: what is restored is what was there, byte for byte; what is damaged is refused.

use std::time::Duration;

use base::{Rng, UnixMillis};
use bytes::Bytes;
use journal::SimDisk;

use super::transactions::transactional;
use super::{all_records, append, create, name, open, values};
use crate::backup::{BackupBlock, BackupError, BackupReader};
use crate::error::StreamsError;
use crate::event_store::{Isolation, TopicSpec};
use crate::offsets::OffsetCommit;
use crate::store::Streams;
use crate::topics::Topic;
use crate::transactions::{Outcome, TransactionProtocol};
use crate::{Ack, TopicConfig};

async fn backup_of(streams: &Streams, topic: &str) -> Vec<u8> {
    let mut taking = streams.back_up(&name(topic), true).await.unwrap();
    let mut file = Vec::new();
    while let Some(piece) = taking.next().await.unwrap() {
        file.extend_from_slice(&piece);
    }
    file
}

/// Reads a file in pieces of `step` bytes.
fn read(file: &[u8], step: usize) -> Result<Vec<BackupBlock>, BackupError> {
    let mut reader = BackupReader::new();
    let mut blocks = Vec::new();
    for piece in file.chunks(step) {
        reader.feed(piece);
        while let Some(block) = reader.next_block()? {
            blocks.push(block);
        }
    }
    reader.finish()?;
    Ok(blocks)
}

async fn restore(
    streams: &std::sync::Arc<Streams>,
    file: &[u8],
    topic: &str,
) -> Result<(), StreamsError> {
    let blocks = read(file, 1_000).unwrap();
    let Some(BackupBlock::Head(head)) = blocks.first() else {
        panic!("the first block is {:?}", blocks.first());
    };
    let mut restoring = streams.restore(head.clone(), name(topic)).await?;
    for block in blocks {
        restoring.put(block).await?;
    }
    restoring.finish().await.map(drop)
}

/// What a partition holds.
struct Content {
    start: i64,
    batches: Vec<Bytes>,
    aborted: Vec<(i64, i64)>,
}

/// All stored batches of each partition, and what readers know of them.
fn contents(topic: &Topic) -> Vec<Content> {
    let each = topic.partitions().iter().map(|partition| {
        let start = partition.log_start_offset();
        let batches = partition.read(Isolation::Uncommitted, start, usize::MAX, true);
        Content {
            start,
            batches: batches.unwrap(),
            aborted: partition.aborted_transactions(0, i64::MAX),
        }
    });
    each.collect()
}

/// A topic with a log that begins late, transactions that ended and one that is open, and a group.
async fn rich_topic(streams: &Streams) -> std::sync::Arc<Topic> {
    let config = TopicConfig::of([("retention.ms", "3600000"), ("max.message.bytes", "1500")]);
    let spec = TopicSpec {
        config: config.unwrap(),
        ..TopicSpec::of(name("/s/rich:t")).with_partitions(3)
    };
    let topic = streams.create_topic(spec).await.unwrap();
    for n in 0..20 {
        append(&topic.partitions()[n % 2], &format!("plain {n}")).await;
    }
    streams
        .delete_records(topic.name(), 1, Some(4))
        .await
        .unwrap();
    let partition = &topic.partitions()[0];
    let protocol = TransactionProtocol::Implicit;
    for (id, outcome) in [
        ("aborting", Some(Outcome::Abort)),
        ("committing", Some(Outcome::Commit)),
        ("open", None),
    ] {
        let timeout = Duration::from_secs(600);
        let who = streams.init_transactions(id, timeout, None).await.unwrap();
        let batch = transactional(who, 0, id);
        let placed = streams.append_in_transaction(protocol, id, partition, batch, Ack::All);
        placed.unwrap().ack.await.unwrap();
        if let Some(outcome) = outcome {
            streams
                .end_transaction(protocol, id, who, outcome)
                .await
                .unwrap();
        }
    }
    append(partition, "behind the open one").await;
    let commit = OffsetCommit {
        topic: topic.name().clone(),
        partition: 0,
        offset: 7,
        leader_epoch: -1,
        metadata: "noted".to_owned(),
        at: UnixMillis(5),
    };
    streams
        .commit_offsets("g", vec![commit])
        .unwrap()
        .await
        .unwrap();
    topic
}

#[tokio::test]
async fn a_restored_topic_is_the_same_byte_for_byte_and_after_a_restart() {
    let streams = open(&SimDisk::new(1));
    let topic = rich_topic(&streams).await;
    let file = backup_of(&streams, "/s/rich:t").await;
    let disk = SimDisk::new(2);
    let elsewhere = open(&disk);
    // The numbers of partitions and producers are others there.
    create(&elsewhere, "before", 2).await;
    restore(&elsewhere, &file, "/s/again:t").await.unwrap();
    elsewhere.close().await;
    let elsewhere = open(&disk);
    let again = elsewhere.topic_by_name(&name("/s/again:t")).unwrap();
    let (original, restored) = (contents(&topic), contents(&again));
    for (index, (was, is)) in original.iter().zip(&restored).enumerate() {
        assert_eq!(was.start, is.start, "start of partition {index}");
        assert_eq!(
            was.batches,
            is.batches[..was.batches.len()],
            "batches of partition {index}"
        );
    }
    // What was open is aborted, by a marker behind the end.
    assert_eq!(restored[0].batches.len(), original[0].batches.len() + 1);
    assert_eq!(
        (original[0].aborted.len(), restored[0].aborted.len()),
        (1, 2)
    );
    let partition = &again.partitions()[0];
    assert_eq!(
        partition.end_offset(Isolation::Committed),
        partition.high_watermark()
    );
    assert_eq!(
        again.config().all().collect::<Vec<_>>(),
        topic.config().all().collect::<Vec<_>>()
    );
    let committed = elsewhere.committed_offset("g", again.name(), 0).unwrap();
    assert_eq!((committed.offset, &*committed.metadata), (7, "noted"));
    // And it goes on where the original ended.
    let end = again.partitions()[1].high_watermark();
    assert_eq!(append(&again.partitions()[1], "new").await, end);
    assert_eq!(elsewhere.topics_snapshot().len(), 2);
}

#[tokio::test]
async fn gaps_and_empty_ends_are_restored() {
    let streams = open(&SimDisk::new(3));
    let topic = create(&streams, "emptied", 1).await;
    for n in 0..5 {
        append(&topic.partitions()[0], &n.to_string()).await;
    }
    streams.delete_records(topic.name(), 0, None).await.unwrap();
    let file = backup_of(&streams, "emptied").await;
    restore(&streams, &file, "again").await.unwrap();
    let again = streams.topic_by_name(&name("again")).unwrap();
    let partition = &again.partitions()[0];
    assert_eq!(
        (partition.log_start_offset(), partition.high_watermark()),
        (5, 5)
    );
    assert_eq!(append(partition, "next").await, 5);
    assert_eq!(values(&all_records(partition)), ["next"]);
}

#[tokio::test]
async fn a_flipped_bit_or_a_cut_is_found_and_named() {
    let streams = open(&SimDisk::new(4));
    rich_topic(&streams).await;
    let file = backup_of(&streams, "/s/rich:t").await;
    let whole = read(&file, 7).unwrap();
    assert_eq!(
        whole,
        read(&file, file.len()).unwrap(),
        "pieces make no difference"
    );
    let mut rng = Rng::from_seed(4);
    for _ in 0..2_000 {
        let mut damaged = file.clone();
        let at = usize::try_from(rng.below(file.len() as u64)).unwrap();
        damaged[at] ^= 1 << rng.below(8);
        let error = read(&damaged, 4_096).expect_err("a flipped bit was not found");
        if let BackupError::Damaged { position, .. } = error {
            assert!(position <= at as u64, "byte {at}: {error}");
        }
    }
    for cut in 0..file.len() {
        assert!(
            read(&file[..cut], 4_096).is_err(),
            "a cut at {cut} was not found"
        );
    }
    let mut longer = file.clone();
    longer.push(0);
    assert!(read(&longer, 4_096).is_err());
    assert_eq!(read(b"something else", 5), Err(BackupError::NotABackup));
}

#[tokio::test]
async fn what_is_not_restored_whole_is_never_seen() {
    let disk = SimDisk::new(5);
    let streams = open(&disk);
    let topic = create(&streams, "t", 1).await;
    append(&topic.partitions()[0], "a").await;
    let file = backup_of(&streams, "t").await;
    let exists = restore(&streams, &file, "t").await;
    assert!(
        matches!(exists, Err(StreamsError::TopicExists(_))),
        "{exists:?}"
    );
    let blocks = read(&file, 1_000).unwrap();
    let Some(BackupBlock::Head(head)) = blocks.first() else {
        panic!()
    };
    // Given up: it is undone at once.
    let mut restoring = streams.restore(head.clone(), name("again")).await.unwrap();
    restoring.put(blocks[1].clone()).await.unwrap();
    assert!(
        restoring.finish().await.is_err(),
        "without its end it is not whole"
    );
    assert_eq!(streams.topics_snapshot().len(), 1);
    // Broken off by a crash: it is undone by the next opening.
    let mut restoring = streams.restore(head.clone(), name("again")).await.unwrap();
    restoring.put(blocks[1].clone()).await.unwrap();
    std::mem::forget(restoring);
    streams.close().await;
    let streams = open(&disk);
    assert_eq!(streams.topics_snapshot().len(), 1);
    restore(&streams, &file, "again").await.unwrap();
}
