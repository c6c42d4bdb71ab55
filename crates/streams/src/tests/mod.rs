//! Tests of the store as a whole.

mod admin;
mod backup;
mod behavior;
mod busy;
mod collections;
mod compaction;
mod consumer;
mod corpus;
mod full;
mod groups;
mod homes;
mod keeping;
mod lookups;
mod once;
mod seeds;
mod setbacks;
mod shares;
mod simulation;
mod store;
mod stored;
mod taking;
mod tenant_records;
mod transactions;
mod unsettled;

use std::path::Path;
use std::sync::Arc;

use base::{ByteSize, Clock, SystemClock, UnixMillis};
use bytes::Bytes;
use journal::{Position, SimDisk};

use crate::batch;
use crate::config::StreamsConfig;
use crate::error::StreamsError;
use crate::event_store::{ProducerSequence, TopicSpec};
use crate::marker::Marker;
use crate::partition::Partition;
use crate::record::Record;
use crate::recovery::Recovery;
use crate::store::Streams;
use crate::topic::TopicName;
use crate::topics::Topic;
use crate::{Ack, BatchRecord, BatchRecords, Isolation};

fn name(text: &str) -> TopicName {
    text.parse().unwrap()
}

/// Small segments, so that they roll and can be reclaimed.
fn small() -> StreamsConfig {
    StreamsConfig {
        segment_bytes: ByteSize::kib(16),
        max_message_bytes: ByteSize::kib(2),
        ..StreamsConfig::default()
    }
}

fn try_open(
    disk: &SimDisk,
    config: StreamsConfig,
) -> Result<(Arc<Streams>, Recovery), StreamsError> {
    // The coordinator's time-outs run on it, so that it must move.
    let clock = Arc::new(SystemClock);
    Streams::open_on(Arc::new(disk.clone()), Path::new("/streams"), config, clock)
}

fn open(disk: &SimDisk) -> Arc<Streams> {
    try_open(disk, small()).unwrap().0
}

async fn create(streams: &Streams, topic: &str, partitions: i32) -> Arc<Topic> {
    streams
        .create_topic(TopicSpec::of(name(topic)).with_partitions(partitions))
        .await
        .unwrap()
}

/// A batch of these values.
fn batch_of(values: &[String], sequence: Option<ProducerSequence>) -> Bytes {
    let records: Vec<Record> = values.iter().map(|v| Record::of_value(v.clone())).collect();
    batch::build(&records, SystemClock.now(), sequence).unwrap()
}

async fn append(partition: &Arc<Partition>, value: &str) -> i64 {
    let appended = partition
        .append(batch_of(&[value.to_owned()], None), Ack::All)
        .unwrap();
    appended.ack.await.unwrap();
    appended.base_offset
}

/// Appends as many transactions of one record each, written and committed at these times.
async fn committed(partition: &Arc<Partition>, count: i32, written: UnixMillis, ended: UnixMillis) {
    for first_sequence in 0..count {
        let sequence = ProducerSequence {
            producer_id: 7,
            producer_epoch: 0,
            first_sequence,
        };
        let records = [Record::of_value("v")];
        let batch = batch::build_transactional(&records, written, sequence).unwrap();
        let appended = partition.append_any(batch, Ack::All).unwrap();
        appended.ack.await.unwrap();
        let marker = Marker {
            producer_id: sequence.producer_id,
            producer_epoch: sequence.producer_epoch,
            is_commit: true,
        };
        partition.append_marker(ended, marker).unwrap();
    }
}

/// Flips a byte of the frame at `position`.
fn damage(disk: &SimDisk, streams: &Streams, position: Position) {
    let segments = streams.shared().journal.segments();
    let mut holding = segments.iter().rev();
    let segment = holding.find(|segment| segment.base <= position).unwrap();
    let path = Path::new("/streams").join(format!("{:016x}.journal", segment.base.0));
    let at = position.0 - segment.base.0 + 2 * journal::FRAME_OVERHEAD_BYTES;
    assert!(disk.flip(&path, at, 1), "there is no such frame");
}

/// All visible records.
fn all_records(partition: &Partition) -> Vec<BatchRecord> {
    let mut records = Vec::new();
    let mut offset = partition.log_start_offset();
    while offset < partition.high_watermark() {
        for batch in partition
            .read(Isolation::Uncommitted, offset, 10_000, true)
            .unwrap()
        {
            records.extend(BatchRecords::of(&batch).unwrap().map(Result::unwrap));
            offset = batch::BatchHeader::read(&batch).unwrap().last_offset() + 1;
        }
    }
    records
}

fn values(records: &[BatchRecord]) -> Vec<String> {
    let text = |value: &Bytes| String::from_utf8(value.to_vec()).unwrap();
    records
        .iter()
        .map(|record| text(record.value.as_ref().unwrap()))
        .collect()
}
