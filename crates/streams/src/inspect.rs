//! Looks through a store's folder without opening the store: every frame is read and checked,
//! nothing is changed. For operators who want to know what is there, or whether it is whole.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use journal::{FrameRef, Journal, JournalError, RealDisk};
use serde::Serialize;
use uuid::Uuid;

use crate::batch::BatchHeader;
use crate::decode::{BatchRecord, BatchRecords};
use crate::error::StreamsError;
use crate::frames::{Change, Range, kind};
use crate::marker::Marker;
use crate::partition::storage;

/// What a folder holds as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Segments of the journal.
    pub segments: u32,
    /// Whole frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Record batches, superseded ones too.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Topics that the newest frames tell of.
    pub topics: usize,
    /// Batches whose own checksum or header is wrong.
    pub damaged_batches: u64,
    /// Bytes of the journal that had been durable and are no whole frames any more.
    pub damaged_bytes: u64,
    /// Bytes at the end that were never acknowledged as durable; the next opening takes them away.
    pub unfinished_bytes: u64,
    /// Frames that this version cannot read.
    pub unreadable_frames: u64,
}

/// One frame, for a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedFrame {
    /// Where it begins in the journal.
    pub position: u64,
    /// Its size in bytes, without the frame's own head.
    pub bytes: usize,
    /// What it is, such as `batch` or `topic`.
    pub kind: &'static str,
    /// What a frame that is no batch says, in few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// The batch, when it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<InspectedBatch>,
}

/// A record batch, by its header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedBatch {
    /// The topic's name; none for a topic that is deleted.
    pub topic: Option<String>,
    /// The partition's number in its topic, from zero.
    pub partition: Option<u32>,
    /// Offset of its first record.
    pub base_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
    /// Records in it.
    pub records: i32,
    /// Its size in bytes.
    pub bytes: usize,
    /// How it is compressed: `none`, `gzip`, `snappy`, `lz4` or `zstd`.
    pub codec: &'static str,
    /// What its records' times are: `create` or `append`.
    pub time_type: &'static str,
    /// The greatest time of its records, in ms since 1970.
    pub max_timestamp_ms: i64,
    /// The idempotent producer, -1 for none.
    pub producer_id: i64,
    /// Its epoch, -1 for none.
    pub producer_epoch: i16,
    /// The sequence of the first record, -1 for none.
    pub base_sequence: i32,
    /// Whether it is of a transaction.
    pub is_transactional: bool,
    /// What a marker says of its producer's transaction: `commit` or `abort`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marker: Option<&'static str>,
    /// Its checksum.
    pub crc: u32,
    /// The records, when they were asked for and can be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub record_list: Vec<InspectedRecord>,
    /// What is wrong with it, if anything is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// A record of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InspectedRecord {
    /// Its offset.
    pub offset: i64,
    /// Its time in ms since 1970.
    pub timestamp_ms: i64,
    /// The key, if it has one.
    pub key: Option<InspectedBytes>,
    /// The value; none for a tombstone.
    pub value: Option<InspectedBytes>,
    /// Headers in order.
    pub headers: Vec<(String, Option<InspectedBytes>)>,
}

/// Bytes as people read them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum InspectedBytes {
    /// What is UTF-8.
    Text(String),
    /// What is not.
    Hex {
        /// Two digits a byte.
        hex: String,
    },
}

impl Inspection {
    /// Whether everything is as it was acknowledged.
    pub fn is_whole(&self) -> bool {
        self.damaged_batches == 0 && self.damaged_bytes == 0 && self.unreadable_frames == 0
    }
}

/// Reads the whole store in `dir` and shows each frame to `show`, batches with their records if
/// wanted. Errors: `Storage` when another
/// process has the folder open or the disk refuses.
pub fn inspect(
    dir: &Path,
    with_records: bool,
    show: &mut dyn FnMut(&InspectedFrame),
) -> Result<Inspection, StreamsError> {
    // A batch may come before the frame that names its topic, so names are gathered first.
    let mut names = Names::default();
    let mut gather = |frame: FrameRef<'_>| {
        names.note(&frame);
        Ok(())
    };
    walk(dir, &mut gather)?;
    let by_number = names.by_number();
    let mut inspection = Inspection {
        topics: names.topics.len(),
        ..Inspection::default()
    };
    let mut look = |frame: FrameRef<'_>| {
        let mut shown = inspection.look(&frame, &by_number);
        if let Some(batch) = shown.batch.as_mut().filter(|_| with_records) {
            batch.list_records(frame.payload);
        }
        show(&shown);
        Ok(())
    };
    let found = walk(dir, &mut look)?;
    inspection.segments = found.segments;
    inspection.frames = found.frames;
    inspection.bytes = found.bytes;
    inspection.damaged_bytes = found.damaged_bytes;
    inspection.unfinished_bytes = found.cut.map_or(0, |cut| cut.bytes);
    Ok(inspection)
}

fn walk(
    dir: &Path,
    visit: &mut dyn FnMut(FrameRef<'_>) -> Result<(), JournalError>,
) -> Result<journal::Recovery, StreamsError> {
    Journal::inspect(Arc::new(RealDisk), dir, visit).map_err(storage)
}

impl Inspection {
    fn look(
        &mut self,
        frame: &FrameRef<'_>,
        names: &HashMap<u32, (String, u32)>,
    ) -> InspectedFrame {
        let is_batch = matches!(frame.kind, kind::BATCH | kind::BATCH_MOVED);
        let batch = is_batch.then(|| self.batch(frame.payload, names)).flatten();
        let mut says = None;
        let is_unreadable = if is_batch {
            batch.is_none()
        } else if frame.kind == kind::INDEX_CHUNK {
            false
        } else {
            let change = Change::decode(frame.kind, frame.version, frame.payload);
            says = change.as_ref().ok().map(|change| told(change, names));
            change.is_err()
        };
        self.unreadable_frames += u64::from(is_unreadable);
        InspectedFrame {
            position: frame.position.0,
            bytes: frame.payload.len(),
            kind: kind::name(frame.kind),
            says,
            batch,
        }
    }

    fn batch(
        &mut self,
        payload: &[u8],
        names: &HashMap<u32, (String, u32)>,
    ) -> Option<InspectedBatch> {
        let (number, batch) = payload.split_first_chunk::<4>()?;
        let header = BatchHeader::read(batch).ok()?;
        let damage = BatchHeader::check_stored(batch).err();
        self.batches += 1;
        self.records += u64::from(header.record_count.unsigned_abs());
        self.damaged_batches += u64::from(damage.is_some());
        let name = names.get(&u32::from_le_bytes(*number));
        Some(InspectedBatch {
            topic: name.map(|(topic, _)| topic.clone()),
            partition: name.map(|(_, partition)| *partition),
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            records: header.record_count,
            bytes: header.bytes,
            codec: CODECS
                .get(usize::from(header.codec().unsigned_abs()))
                .unwrap_or(&"unknown"),
            time_type: match header.attributes & APPEND_TIME_BIT != 0 {
                true => "append",
                false => "create",
            },
            max_timestamp_ms: header.max_timestamp,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            is_transactional: header.is_transactional(),
            marker: marker_of(&header, batch),
            crc: batch
                .get(17..21)
                .map_or(0, |crc| crc.iter().fold(0, |n, b| n << 8 | u32::from(*b))),
            record_list: Vec::new(),
            damage: damage.map(|error| base::report(&error)),
        })
    }
}

impl InspectedBatch {
    /// Reads the records of the batch in a frame's payload; what cannot be read is damage.
    fn list_records(&mut self, payload: &[u8]) {
        let batch = Bytes::copy_from_slice(payload.get(4..).unwrap_or_default());
        let records: Result<Vec<BatchRecord>, _> =
            BatchRecords::of(&batch).and_then(Iterator::collect);
        match records {
            Ok(records) => self.record_list = records.into_iter().map(inspected).collect(),
            Err(error) => drop(self.damage.get_or_insert(base::report(&error))),
        }
    }
}

fn inspected(record: BatchRecord) -> InspectedRecord {
    let headers = record.headers.into_iter();
    InspectedRecord {
        offset: record.offset,
        timestamp_ms: record.timestamp.0,
        key: record.key.map(readable),
        value: record.value.map(readable),
        headers: headers
            .map(|(name, value)| (name, value.map(readable)))
            .collect(),
    }
}

fn readable(bytes: Bytes) -> InspectedBytes {
    match std::str::from_utf8(&bytes) {
        Ok(text) => InspectedBytes::Text(text.to_owned()),
        Err(_) => InspectedBytes::Hex {
            hex: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        },
    }
}

fn marker_of(header: &BatchHeader, batch: &[u8]) -> Option<&'static str> {
    if !header.is_control() {
        return None;
    }
    match Marker::read(header, batch) {
        Ok(Some(marker)) if marker.is_commit => Some("commit"),
        Ok(Some(_)) => Some("abort"),
        _ => Some("unknown"),
    }
}

/// A change in few words.
fn told(change: &Change, names: &HashMap<u32, (String, u32)>) -> String {
    let place = |number: &u32| match names.get(number) {
        Some((topic, partition)) => format!("{topic}/{partition}"),
        None => "(deleted)".to_owned(),
    };
    match change {
        Change::Store {
            cluster_id,
            producer_ids,
            ..
        } => {
            format!("cluster {cluster_id}, producer ids below {producer_ids}")
        }
        Change::Topic {
            id,
            name,
            durability,
            ranges,
            config,
        } => {
            let partitions: u32 = ranges.iter().map(|(_, count)| count).sum();
            let config: Vec<String> = config.all().map(|(k, v)| format!(" {k}={v}")).collect();
            let durability = durability.name();
            let (name, config) = (name.display(), config.concat());
            format!("{name} {id}, {partitions} partitions, durability {durability}{config}")
        }
        Change::TopicDeleted { id, .. } => id.to_string(),
        Change::Partition(standing) => format!(
            "{} {}..{}, {} producers",
            place(&standing.number),
            standing.start,
            standing.next,
            standing.producers.len()
        ),
        Change::PartitionTransactions { number, standing } => format!(
            "{} {} open, {} aborted",
            place(number),
            standing.open.len(),
            standing.aborted.len()
        ),
        // What became of it is the frame's kind.
        Change::Transaction { id, .. } => id.as_ref().to_owned(),
        Change::GroupOffsets { group, offsets } => {
            let offsets: Vec<String> = offsets
                .iter()
                .map(|(number, committed)| format!(" {}={}", place(number), committed.offset))
                .collect();
            format!("{group}{}", offsets.concat())
        }
        Change::GroupDeleted { group } => group.clone(),
        Change::Group { group, noted } => {
            let kind = noted.kind.name().to_lowercase();
            format!("{group} {kind}, epoch {}", noted.epoch)
        }
        Change::GroupMembers { group, roll } => format!("{group} {} bytes", roll.len()),
        Change::GroupSettings { group, config } => {
            let set: Vec<String> = config
                .all()
                .map(|(n, value)| format!(" {n}={value}"))
                .collect();
            format!("{group}{}", set.concat())
        }
        Change::ShareState {
            group,
            number,
            standing,
        } => {
            let (start, runs) = (standing.start, standing.runs.len());
            format!("{group} {} from {start}, {runs} runs", place(number))
        }
        Change::GroupOffsetsDeleted { group, numbers }
        | Change::ShareStateGone { group, numbers } => {
            let places: Vec<String> = numbers.iter().map(|n| format!(" {}", place(n))).collect();
            format!("{group}{}", places.concat())
        }
        Change::SnapshotEnd { began } => format!("of the snapshot that begins at {began}"),
        Change::Compacted { number, until } => format!("{} before {until}", place(number)),
        Change::Index { number, chunks } | Change::IndexPiece { number, chunks, .. } => {
            format!("{} {} chunks", place(number), chunks.len())
        }
    }
}

/// The attribute that says that the store gave the records their times.
const APPEND_TIME_BIT: i16 = 8;

/// Kafka's names of the codecs, by number.
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// The topics by the newest frames that tell of them.
#[derive(Default)]
struct Names {
    topics: HashMap<Uuid, (String, Vec<Range>)>,
}

impl Names {
    fn note(&mut self, frame: &FrameRef<'_>) {
        if !matches!(frame.kind, kind::TOPIC | kind::TOPIC_DELETED) {
            return;
        }
        match Change::decode(frame.kind, frame.version, frame.payload) {
            Ok(Change::Topic {
                id, name, ranges, ..
            }) => {
                self.topics.insert(id, (name.display().to_owned(), ranges));
            }
            Ok(Change::TopicDeleted { id, .. }) => drop(self.topics.remove(&id)),
            // The second walk counts what cannot be read.
            _ => {}
        }
    }

    fn by_number(&self) -> HashMap<u32, (String, u32)> {
        let mut by_number = HashMap::new();
        for (name, ranges) in self.topics.values() {
            let numbers = ranges
                .iter()
                .flat_map(|(first, count)| *first..first.saturating_add(*count));
            for (partition, number) in (0..).zip(numbers) {
                by_number.insert(number, (name.clone(), partition));
            }
        }
        by_number
    }
}
