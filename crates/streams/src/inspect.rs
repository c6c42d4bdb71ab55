//! Looks through a store's folder without opening the store: every frame is read and checked,
//! nothing is changed. For operators who want to know what is there, or whether it is whole.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use journal::{FrameRef, Journal, JournalError, RealDisk};
use serde::Serialize;
use uuid::Uuid;

use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::frames::{Change, Range, kind};
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
    /// The compression codec's number.
    pub codec: i16,
    /// The greatest time of its records, in ms since 1970.
    pub max_timestamp_ms: i64,
    /// The idempotent producer, -1 for none.
    pub producer_id: i64,
    /// What is wrong with it, if anything is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

impl Inspection {
    /// Whether everything is as it was acknowledged.
    pub fn is_whole(&self) -> bool {
        self.damaged_batches == 0 && self.damaged_bytes == 0 && self.unreadable_frames == 0
    }
}

/// Reads the whole store in `dir` and shows each frame to `show`. Errors: `Storage` when another
/// process has the folder open or the disk refuses.
pub fn inspect(
    dir: &Path,
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
        let shown = inspection.look(&frame, &by_number);
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
        let is_unreadable = if is_batch {
            batch.is_none()
        } else {
            frame.kind != kind::INDEX_CHUNK
                && Change::decode(frame.kind, frame.version, frame.payload).is_err()
        };
        self.unreadable_frames += u64::from(is_unreadable);
        InspectedFrame {
            position: frame.position.0,
            bytes: frame.payload.len(),
            kind: kind::name(frame.kind),
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
            codec: header.codec(),
            max_timestamp_ms: header.max_timestamp,
            producer_id: header.producer_id,
            damage: damage.map(|error| base::report(&error)),
        })
    }
}

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
