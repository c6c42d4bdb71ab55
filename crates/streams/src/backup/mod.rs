//! A topic as one file: its settings, every batch as it is stored, and on request its groups'
//! offsets.
//!
//! ```text
//! file    "thalwegB"  version u32 (1)  block …          numbers of the file little-endian
//! block   kind u8  length u32  payload  crc32c u32      over kind, length and payload
//! kinds   1 head    JSON, [`BackupHead`]                 the first block
//!         2 batch   partition u32, then the batch        as Kafka has it, offsets and all
//!         3 group   JSON, [`BackupGroup`]                after the batches
//!         8 failed  text: why whoever wrote it gave up   the last block
//!         9 end     JSON, [`BackupEnd`]                  the last block
//! ```
//!
//! A backup is the topic at one moment: for each partition an end is taken first, all of them
//! together while no transaction is between its decision and its markers, and nothing behind it is
//! read. Batches of transactions are kept with their markers, compressed as they came, so that
//! `read_committed` consumers of the restored topic see what they saw of the original. What was
//! open at that moment counts as aborted: the restoring adds the abort markers behind the end.
//!
//! Everything is checked when it is read: each block's checksum, each batch's own, the order of
//! offsets, and at the end that nothing is missing. [`BackupReader`] does that without IO, so that
//! the same code checks a file, a download and an upload.
//!
//! Leaves out producers' sequences: a restored topic begins a new history, and the ids of its old
//! producers may be others' here.

mod reader;
mod restore;
mod take;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::config::Durability;
use crate::error::StreamsError;
use crate::event_store::TopicInfo;

pub use reader::{BackupError, BackupReader};

/// What a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHead {
    /// The topic's name as people write it.
    pub topic: String,
    /// When the backup was taken, in ms since 1970.
    pub taken_ms: i64,
    /// What acknowledgements promised.
    pub durability: Durability,
    /// The settings that were set for the topic.
    pub config: BTreeMap<String, String>,
    /// What each partition held, by partition.
    pub partitions: Vec<BackupRange>,
    /// Bytes of the batches, roughly: the topic goes on while it is read.
    pub bytes: u64,
}

/// The offsets of a partition: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupRange {
    /// The first offset that can be read.
    pub start: i64,
    /// The offset behind the last record.
    pub end: i64,
}

/// What a group had committed for the topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupGroup {
    /// The group.
    pub group: String,
    /// Partition, offset and metadata.
    pub offsets: Vec<(i32, i64, String)>,
}

/// What a whole backup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupEnd {
    /// Batches, markers too.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Groups.
    pub groups: u64,
}

/// A piece of a backup that was read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupBlock {
    /// The first.
    Head(BackupHead),
    /// A batch of a partition.
    Batch(u32, Bytes),
    /// A group's offsets.
    Group(BackupGroup),
    /// The last.
    End(BackupEnd),
}

/// A backup that is being taken.
#[async_trait]
pub trait TopicBackup: Send {
    /// The next bytes of the file; none when it is whole.
    async fn next(&mut self) -> Result<Option<Bytes>, StreamsError>;
}

/// A topic that is being restored, and cannot be seen before it is whole. Dropping it undoes what
/// was done.
#[async_trait]
pub trait TopicRestore: Send {
    /// Takes in a block, but for the head.
    async fn put(&mut self, block: BackupBlock) -> Result<(), StreamsError>;

    /// Shows the topic, whole and durable.
    async fn finish(self: Box<Self>) -> Result<TopicInfo, StreamsError>;
}

/// The file's first bytes.
const MAGIC: &[u8; 8] = b"thalwegB";
const VERSION: u32 = 1;
/// The kind and the length before a block's payload.
const BLOCK_HEAD_BYTES: usize = 5;
const CRC_BYTES: usize = 4;

mod kind {
    pub(super) const HEAD: u8 = 1;
    pub(super) const BATCH: u8 = 2;
    pub(super) const GROUP: u8 = 3;
    pub(super) const FAILED: u8 = 8;
    pub(super) const END: u8 = 9;
}

/// The file's beginning.
fn preamble() -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&VERSION.to_le_bytes());
    out
}

/// Writes a block whose payload is the `parts` one after another.
fn put_block(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let begin = out.len();
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.push(kind);
    let length = u32::try_from(length).expect("a block is far below 4 GiB");
    out.extend_from_slice(&length.to_le_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
    let crc = crc32c::crc32c(&out[begin..]);
    out.extend_from_slice(&crc.to_le_bytes());
}

fn put_json(out: &mut Vec<u8>, kind: u8, value: &impl Serialize) {
    // Only a map with keys that are no text fails, and none of ours is.
    let text = serde_json::to_vec(value).unwrap_or_default();
    put_block(out, kind, &[&text]);
}

/// The block that says why a backup was given up, for who reads it over a network.
pub fn failed_block(reason: &str) -> Bytes {
    let mut out = Vec::new();
    put_block(&mut out, kind::FAILED, &[reason.as_bytes()]);
    out.into()
}
