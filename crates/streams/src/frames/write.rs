//! Writes the parts of a frame.

use super::{PartitionStanding, Range};
use crate::config::Durability;
use crate::event_store::CommittedOffset;
use crate::groups::GroupKind;
use crate::index::StandingChunk;
use crate::unsettled::TransactionsStanding;

pub(super) fn put_standing(out: &mut Vec<u8>, standing: &PartitionStanding) {
    put_u32(out, standing.number);
    put_i64(out, standing.start);
    put_i64(out, standing.next);
    put_u64(out, standing.records_in);
    put_u64(out, standing.bytes_in);
    put_count(out, standing.producers.len());
    for (id, producer) in &standing.producers {
        put_i64(out, *id);
        out.extend_from_slice(&producer.epoch.to_le_bytes());
        put_count(out, producer.batches.len());
        for batch in &producer.batches {
            out.extend_from_slice(&batch.first.to_le_bytes());
            out.extend_from_slice(&batch.last.to_le_bytes());
            put_i64(out, batch.base_offset);
            out.extend_from_slice(&batch.last_delta.to_le_bytes());
        }
        put_i64(out, producer.last_timestamp);
    }
}

pub(super) fn put_chunk(out: &mut Vec<u8>, chunk: &StandingChunk) {
    match chunk {
        StandingChunk::Here(bytes) => {
            out.push(0);
            put_bytes(out, bytes);
        }
        StandingChunk::Away(outline, away) => {
            out.push(1);
            put_i64(out, outline.first_offset);
            put_u64(out, outline.lowest.0);
            put_i64(out, outline.max_timestamp);
            put_u64(out, outline.bytes);
            put_u64(out, away.position.0);
            put_u32(out, away.bytes);
        }
    }
}

pub(crate) fn put_committed(out: &mut Vec<u8>, committed: &CommittedOffset) {
    put_i64(out, committed.offset);
    put_u32(out, committed.leader_epoch as u32);
    put_i64(out, committed.at.0);
    put_text(out, &committed.metadata);
}

pub(super) fn put_transactions(out: &mut Vec<u8>, standing: &TransactionsStanding) {
    put_count(out, standing.open.len());
    for (producer_id, first) in &standing.open {
        put_i64(out, *producer_id);
        put_i64(out, *first);
    }
    put_count(out, standing.aborted.len());
    for aborted in &standing.aborted {
        put_i64(out, aborted.producer_id);
        put_i64(out, aborted.first);
        put_i64(out, aborted.last);
        put_i64(out, aborted.stable);
    }
}

pub(super) fn put_ranges(out: &mut Vec<u8>, ranges: &[Range]) {
    put_count(out, ranges.len());
    for (first, count) in ranges {
        put_u32(out, *first);
        put_u32(out, *count);
    }
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    put_u32(
        out,
        u32::try_from(count).expect("limits keep every list below 2^32"),
    );
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn durability_code(durability: Durability) -> u8 {
    match durability {
        Durability::Memory => 0,
        Durability::Os => 1,
        Durability::Disk => 2,
    }
}

pub(super) fn group_kind_code(kind: GroupKind) -> u8 {
    match kind {
        GroupKind::Classic => 0,
        GroupKind::Consumer => 1,
        GroupKind::Share => 2,
        GroupKind::Streams => 3,
    }
}

/// A group and numbers of partitions.
pub(super) fn put_numbers(out: &mut Vec<u8>, group: &str, numbers: &[u32]) {
    put_text(out, group);
    put_count(out, numbers.len());
    numbers.iter().for_each(|number| put_u32(out, *number));
}
