//! Data folders of older versions: each must open and read back exactly, for ever.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{ByteSize, HumanDuration, ManualClock, UnixMillis};
use flate2::read::GzDecoder;
use tempfile::TempDir;

use super::{all_records, name};
use crate::config::StreamDefaults;
use crate::recovery::Recovery;
use crate::store::Streams;
use crate::{Ack, BatchRecord, Durability, StreamsConfig};

/// When the records of the folders were made, in ms.
const MADE: i64 = 1_700_000_000_000;

/// Unpacks a folder of `tests/data` into one of its own.
fn unpacked(version: &str) -> TempDir {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(version);
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(packed).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = Vec::new();
        let mut gzip = GzDecoder::new(std::fs::File::open(&path).unwrap());
        gzip.read_to_end(&mut bytes).unwrap();
        std::fs::write(dir.path().join(path.file_stem().unwrap()), bytes).unwrap();
    }
    dir
}

/// Opens it at the time when it was written, so that nothing has expired.
fn open(dir: &Path) -> (Arc<Streams>, Recovery) {
    let config = StreamsConfig {
        segment_bytes: ByteSize::kib(16),
        max_message_bytes: ByteSize::kib(2),
        default_stream: StreamDefaults {
            ttl: HumanDuration(Duration::ZERO),
            ..StreamDefaults::default()
        },
        ..StreamsConfig::default()
    };
    let clock = ManualClock::at(UnixMillis(MADE + 1_000));
    Streams::open(dir, config, Arc::new(clock)).unwrap()
}

fn text(bytes: &Option<bytes::Bytes>) -> String {
    String::from_utf8(bytes.as_ref().unwrap().to_vec()).unwrap()
}

fn is_whole(streams: &Streams) {
    assert_eq!(streams.cluster_id(), "731e6235dda24a5ca95f7b266d2a3e2b");
    let ids: Vec<(String, String, usize, Durability)> = streams
        .topics_snapshot()
        .iter()
        .map(|topic| {
            let id = topic.id().to_string();
            let partitions = topic.partitions().len();
            (topic.name().to_string(), id, partitions, topic.durability())
        })
        .collect();
    let wanted = [
        (
            "/streams/test:topic1",
            "004484e7-594d-44e7-951f-e2ccca85c355",
            1,
            Durability::Disk,
        ),
        (
            "fast",
            "211bd05a-5ab8-4935-8130-d922955349bd",
            1,
            Durability::Os,
        ),
        (
            "plain",
            "3f49bb0a-217f-49f8-b7f0-0841023af71c",
            2,
            Durability::Disk,
        ),
    ];
    let wanted = wanted.map(|(name, id, n, d)| (name.to_owned(), id.to_owned(), n, d));
    assert_eq!(ids, wanted);
    has_records(streams);
    let offset = |group: &str, topic: &str, partition| {
        let committed = streams.committed_offset(group, &name(topic), partition)?;
        Some((committed.offset, committed.metadata))
    };
    // The client that wrote it counts the end of its C string as text.
    assert_eq!(offset("readers", "plain", 0), Some((7, "halfway\0".into())));
    assert_eq!(offset("readers", "plain", 1), Some((3, String::new())));
    let under_path = offset("readers", "/streams/test:topic1", 0);
    assert_eq!(under_path, Some((9, String::new())));
    assert_eq!(streams.groups_with_offsets(), ["readers"]);
    assert_eq!(streams.committed_all("readers").len(), 3);
}

fn has_records(streams: &Streams) {
    let records = |topic: &str, partition| -> Vec<BatchRecord> {
        let topic = streams.topic_by_name(&name(topic)).unwrap();
        all_records(topic.partition(partition).unwrap())
    };
    for partition in 0..2 {
        let held = records("plain", partition);
        assert_eq!(held.len(), 30);
        for (offset, (record, n)) in (0_i64..).zip(held.iter().zip((partition..).step_by(2))) {
            assert_eq!(
                (record.offset, record.timestamp.0),
                (offset, MADE + i64::from(n))
            );
            assert_eq!(text(&record.key), format!("k{}", n % 7));
            assert_eq!(
                text(&record.value),
                format!("value {n} {}", "x".repeat(300))
            );
            assert_eq!(record.headers[0].0, "n");
            assert_eq!(text(&record.headers[0].1), n.to_string());
        }
    }
    let packed: Vec<String> = records("/streams/test:topic1", 0)
        .iter()
        .map(|record| text(&record.value))
        .collect();
    let codecs = ["gzip", "snappy", "lz4", "zstd"];
    let wanted = codecs
        .iter()
        .flat_map(|codec| (0..5).map(move |n| format!("{codec} {n} {}", "y".repeat(40))));
    assert_eq!(packed, wanted.collect::<Vec<_>>());
    let tombstone = &records("fast", 0)[0];
    assert_eq!(
        (text(&tombstone.key), tombstone.value.is_none()),
        ("k".into(), true)
    );
}

#[tokio::test]
async fn a_folder_of_version_1_reads_back_exactly_and_is_gone_on_with() {
    let dir = unpacked("v1");
    let (streams, found) = open(dir.path());
    assert_eq!((found.topics, found.partitions, found.records), (3, 4, 81));
    assert_eq!((found.cut_bytes, found.damaged_bytes), (0, 0));
    is_whole(&streams);
    // The producer's last batch, sent again, is found at its old place.
    let plain = streams.topic_by_name(&name("plain")).unwrap();
    let partition = plain.partition(0).unwrap();
    let last = partition
        .read(crate::Isolation::Uncommitted, 29, 10_000, true)
        .unwrap()
        .remove(0);
    let again = partition.append(last, Ack::All).unwrap();
    assert!(again.duplicate);
    assert_eq!(again.base_offset, 29);
    assert!(streams.next_producer_id().await.unwrap() >= 1_000);
    // What today's version writes over it says the same.
    streams.snapshot(1).unwrap();
    streams.close().await;
    drop((streams, plain));
    let (streams, _) = open(dir.path());
    is_whole(&streams);
    streams.close().await;
}
