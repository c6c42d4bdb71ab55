//! What a topic makes of batches before it stores them: it packs them by its own codec, and refuses
//! times that lie too far from now.

use std::time::Duration;

use base::ManualClock;
use journal::SimDisk;

use super::*;
use crate::batch::BatchHeader;
use crate::{Compression, TopicConfig};

/// A topic of one partition with these settings.
async fn with(streams: &Streams, topic: &str, set: &[(&str, &str)]) -> Arc<Partition> {
    let spec = TopicSpec {
        config: TopicConfig::of(set.iter().copied()).unwrap(),
        ..TopicSpec::of(name(topic)).with_partitions(1)
    };
    let topic = streams.create_topic(spec).await.unwrap();
    Arc::clone(&topic.partitions()[0])
}

/// The first batch, as it is stored.
fn stored(partition: &Partition) -> Bytes {
    let read = partition.read(Isolation::Uncommitted, 0, 1, true);
    read.unwrap().remove(0)
}

fn records() -> Vec<Record> {
    let record = |nth: usize| Record {
        timestamp: Some(SystemClock.now() - Duration::from_millis(nth as u64)),
        headers: vec![("h".to_owned(), Some(Bytes::from_static(b"1")))],
        ..Record::of_value("deep water ".repeat(10)).with_key(format!("k{nth}"))
    };
    (0..10).map(record).collect()
}

#[tokio::test]
async fn a_batch_is_packed_by_its_topics_codec_and_stays_what_it_is() {
    let streams = open(&SimDisk::new(20));
    let sequence = ProducerSequence {
        producer_id: 7,
        producer_epoch: 3,
        first_sequence: 0,
    };
    let now = SystemClock.now();
    let plain = batch::build_transactional(&records(), now, sequence).unwrap();
    for (number, wanted) in ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
        .into_iter()
        .enumerate()
    {
        for codec in 0..=4 {
            let topic = format!("{wanted}-{codec}");
            let partition = with(&streams, &topic, &[("compression.type", wanted)]).await;
            let sent = batch::packed_as(&plain, codec).unwrap();
            let appended = partition.append_any(sent.clone(), Ack::All).unwrap();
            appended.ack.await.unwrap();
            let stored = stored(&partition);
            let (was, is) = (
                BatchHeader::check(&sent).unwrap(),
                BatchHeader::check(&stored).unwrap(),
            );
            assert_eq!(is.codec(), number as i16, "{topic}");
            let same = BatchHeader {
                attributes: was.attributes & !0b111 | is.codec(),
                bytes: is.bytes,
                ..was
            };
            assert_eq!(is, same, "{topic}");
            let read = |batch: &Bytes| -> Vec<BatchRecord> {
                BatchRecords::of(batch)
                    .unwrap()
                    .map(Result::unwrap)
                    .collect()
            };
            assert_eq!(read(&stored), read(&sent), "{topic}");
            if was.codec() == is.codec() {
                assert_eq!(stored[16..], sent[16..], "{topic} was touched");
            }
            let again = partition.append_any(sent, Ack::All).unwrap();
            assert!(again.duplicate, "{topic}");
        }
    }
    streams.close().await;
}

#[tokio::test]
async fn a_batch_that_grows_beyond_what_the_topic_takes_is_refused() {
    let streams = open(&SimDisk::new(21));
    let set = [
        ("compression.type", "uncompressed"),
        ("max.message.bytes", "500"),
    ];
    let partition = with(&streams, "t", &set).await;
    let plain = batch::build(&records(), SystemClock.now(), None).unwrap();
    let packed = batch::packed_as(&plain, 1).unwrap();
    assert!(packed.len() < 500 && plain.len() > 500);
    let refused = partition.append(packed, Ack::All);
    assert!(matches!(refused, Err(StreamsError::MessageTooLarge { .. })));
    let mut torn = batch::packed_as(&batch_of(&["x".to_owned()], None), 1)
        .unwrap()
        .to_vec();
    let end = torn.len() - 1;
    torn.truncate(end);
    batch::seal(&mut torn);
    let refused = partition.append(Bytes::from(torn), Ack::All);
    assert!(matches!(refused, Err(StreamsError::InvalidRecord(_))));
    assert_eq!(partition.high_watermark(), 0);
    streams.close().await;
}

#[tokio::test]
async fn a_topic_is_packed_as_its_stream_until_it_says_otherwise() {
    let mut config = small();
    config.default_stream.compression = Compression::Lz4;
    let (streams, _) = try_open(&SimDisk::new(22), config).unwrap();
    for (topic, set, codec) in [
        ("/s/a:t", None, 3),
        ("/s/a:own", Some("gzip"), 1),
        ("/s/a:any", Some("producer"), 0),
        ("plain", None, 0),
    ] {
        let set: Vec<_> = set
            .into_iter()
            .map(|set| ("compression.type", set))
            .collect();
        let partition = with(&streams, topic, &set).await;
        append(&partition, "x").await;
        let header = BatchHeader::check(&stored(&partition)).unwrap();
        assert_eq!(header.codec(), codec, "{topic}");
    }
    streams.close().await;
}

#[tokio::test]
async fn records_too_far_from_now_are_refused() {
    let now = 1_700_000_000_000;
    let clock = Arc::new(ManualClock::at(UnixMillis(now)));
    let disk = Arc::new(SimDisk::new(23));
    let opened = Streams::open_on(disk, Path::new("/streams"), small(), clock);
    let (streams, _) = opened.unwrap();
    let hour = 3_600_000;
    let before = ("message.timestamp.before.max.ms", "1000");
    let after = ("message.timestamp.after.max.ms", "9223372036854775807");
    let stamped = ("message.timestamp.type", "LogAppendTime");
    for (topic, set, times, is_taken) in [
        ("plain", vec![], vec![now + hour], true),
        ("plain", vec![], vec![now, now + hour + 1], false),
        ("plain", vec![], vec![0], true),
        ("free", vec![after], vec![now + 2 * hour], true),
        ("bound", vec![before], vec![now - 1_000], true),
        ("bound", vec![before], vec![now, now - 1_001], false),
        ("bound", vec![before], vec![now, -1], true),
        (
            "stamped",
            vec![before, stamped],
            vec![0, now + 2 * hour],
            true,
        ),
    ] {
        let partition = match streams.topic_by_name(&name(topic)) {
            Some(topic) => Arc::clone(&topic.partitions()[0]),
            None => with(&streams, topic, &set).await,
        };
        let records: Vec<Record> = times
            .iter()
            .map(|time| Record {
                timestamp: Some(UnixMillis(*time)),
                ..Record::of_value("v")
            })
            .collect();
        let batch = batch::build(&records, UnixMillis(now), None).unwrap();
        for codec in [0, 3] {
            let batch = batch::packed_as(&batch, codec).unwrap();
            match partition.append(batch, Ack::All) {
                Ok(appended) => {
                    assert!(is_taken, "{topic} {times:?}");
                    appended.ack.await.unwrap();
                }
                Err(StreamsError::InvalidTimestamp(_)) => assert!(!is_taken, "{topic} {times:?}"),
                Err(error) => panic!("{topic} {times:?}: {error}"),
            }
        }
    }
    streams.close().await;
}
