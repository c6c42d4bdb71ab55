//! The edges that fuzz targets drive: bytes that a peer or a damaged disk could bring, on the way
//! that they take in the store. No API: only `fuzz/` and the replay of its corpus call these.
//!
//! Each function takes any bytes and returns; a panic, or memory out of all proportion, is a
//! finding.

use std::io;
use std::path::Path;
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use journal::{Disk, Frame, FrameRef, Journal, JournalError, JournalOptions, Position, SimDisk};

use crate::batch::{self, BatchHeader};
use crate::compaction;
use crate::consumer;
use crate::frames::{Change, version_of};
use crate::index::BatchIndex;
use crate::limits::{DECOMPRESSED_BYTES_MAX, RECORDS_PER_BATCH_MAX};
use crate::marker::Marker;
use crate::partition::State;
use crate::recovery::Replay;
use crate::{BatchRecords, codec};

pub use crate::kafka::fuzzing::request;

/// A record batch: checked, walked, unpacked, stamped, rewritten by compaction and replayed into
/// a partition. The first byte says whether a right length and checksum are written into it, so that
/// what lies behind them is reached.
pub fn record_batch(input: &[u8]) {
    let Some((way, batch)) = input.split_first() else {
        return;
    };
    let mut batch = batch.to_vec();
    if way % 2 == 1 && batch.len() >= batch::HEADER_BYTES {
        batch[16] = 2;
        batch::seal(&mut batch);
    }
    let batch = Bytes::from(batch);
    let is_taken = BatchHeader::check(&batch).is_ok();
    let Ok(header) = BatchHeader::read(&batch) else {
        return;
    };
    let stored = BatchHeader::check_stored(&batch);
    let _ = (header.offsets(), header.last_sequence(), header.codec());
    if header.is_control() {
        let _ = Marker::read(&header, &batch);
    }
    if let Ok(records) = BatchRecords::of(&batch) {
        let count = records.filter(Result::is_ok).count();
        assert!(count <= header.record_count.max(0) as usize);
    }
    if let Some(left) = compaction::left_of(&batch, Some(1), way / 2) {
        let left = BatchHeader::check_stored(&left).expect("compaction leaves whole batches");
        assert!((1..=header.record_count).contains(&left.record_count));
    }
    if is_taken {
        assert!(stored.is_ok() && (1..=RECORDS_PER_BATCH_MAX).contains(&header.record_count));
        let stamped = batch::stamped(&batch, UnixMillis(7));
        let now = BatchHeader::check(&stamped).expect("a stamped batch is whole");
        assert_eq!(now.max_timestamp, 7);
        let mut placed = stamped.to_vec();
        placed[..batch::PLACED_HEAD_BYTES].copy_from_slice(&batch::placed_head(&stamped, 1 << 40));
        let header = BatchHeader::check_stored(&placed).expect("only its place has changed");
        let mut state = State::default();
        state
            .replay(Position(99), &header, &placed)
            .expect("what was taken can be read back");
        assert_eq!(state.next, (1 << 40) + header.offsets());
    }
}

/// Compressed records of the codec that the first byte says.
pub fn unpack(input: &[u8]) {
    let Some((codec, packed)) = input.split_first() else {
        return;
    };
    if let Ok(bytes) = codec::unpacked(i16::from(codec % 6), Bytes::copy_from_slice(packed)) {
        assert!(bytes.len() <= DECOMPRESSED_BYTES_MAX.max(packed.len()));
    }
}

/// One frame of the journal: its kind, its version and its payload. What is understood is written
/// as it is read, and a store can be replayed from it.
pub fn frame(input: &[u8]) {
    let Some((&[kind, version], payload)) = input.split_first_chunk::<2>() else {
        return;
    };
    let version = match version {
        255 => version_of(kind),
        version => version,
    };
    if let Ok(change) = Change::decode(kind, version, payload) {
        let (again, bytes) = change.encode();
        let read = Change::decode(again, version_of(again), &bytes);
        assert_eq!(read.ok(), Some(change), "it is not read back as it was");
    }
    let mut replay = Replay::default();
    // Twice, as a snapshot writes again what stands.
    for position in [64, 4096] {
        let frame = FrameRef {
            position: Position(position),
            kind,
            version,
            payload,
        };
        if replay.visit(&frame).is_err() {
            return;
        }
    }
    let numbers: Vec<u32> = replay.partitions.keys().copied().collect();
    for number in numbers {
        let state = replay.take_partition(number);
        for at in [0, state.next, i64::MAX] {
            let _ = state.index.run_at(at, 1 << 20);
            let _ = state.index.run_since_time(0, at);
            let _ = state.index.greatest_time(at);
        }
        let _ = (
            state.index.lowest(),
            state.index.bytes(),
            state.index.last_offset(),
        );
        let (standing, rest) = state.index.standing_from(i64::MIN, usize::MAX);
        assert!(rest.is_none(), "an index stands in one piece if it may");
        let again = BatchIndex::restored(standing);
        assert!(again.is_some(), "an index does not stand as it stood");
    }
}

/// A journal's folder as the disk gives it back: inspected, recovered, and opened again with the
/// same outcome. By the first byte the input is two segments, or spoils what a journal wrote.
pub fn recovery(input: &[u8]) {
    let Some((&[way, at], bytes)) = input.split_first_chunk::<2>() else {
        return;
    };
    let disk = SimDisk::new(0);
    let dir = Path::new("/fuzz");
    disk.create_dir(dir)
        .expect("a simulated disk fails only when told to");
    let written = match way % 2 {
        0 => {
            let cut = (usize::from(at) * 32).min(bytes.len());
            put(&disk, dir, 0, 0, &bytes[..cut])
                .and_then(|()| put(&disk, dir, SEGMENT_BYTES, 0, &bytes[cut..]))
        }
        _ => spoilt_journal(&disk, dir, usize::from(at), bytes),
    };
    written.expect("a simulated disk fails only when told to");
    let mut frames = 0_u64;
    let inspected = Journal::inspect(Arc::new(disk.clone()), dir, &mut |_| {
        frames += 1;
        Ok(())
    });
    let Ok(found) = inspected else { return };
    assert_eq!(found.frames, frames);
    let Ok(first) = open(&disk, dir, &[]) else {
        return;
    };
    let second = open(&disk, dir, &[]).expect("what was recovered opens again");
    assert_eq!(first, second, "a second opening finds something else");
}

/// Has a journal write the first `frames` stretches of `bytes`, each behind its length, and then
/// overwrites bytes: places (two bytes) and values (one).
fn spoilt_journal(disk: &SimDisk, dir: &Path, frames: usize, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    let mut payloads = Vec::new();
    while let (true, Some((length, behind))) = (payloads.len() < frames, rest.split_first()) {
        let (payload, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        payloads.push(payload);
        rest = behind;
    }
    open(disk, dir, &payloads).map_err(io::Error::other)?;
    for [high, low, value] in rest.as_chunks::<3>().0 {
        let at = u64::from(u16::from_be_bytes([*high, *low]));
        let (segment, offset) = (at / SEGMENT_BYTES * SEGMENT_BYTES, at % SEGMENT_BYTES);
        put(disk, dir, segment, offset, &[*value])?;
    }
    Ok(())
}

/// Writes into a segment's file, which is made when it is not there.
fn put(disk: &SimDisk, dir: &Path, base: u64, at: u64, bytes: &[u8]) -> io::Result<()> {
    let path = dir.join(format!("{base:016x}.journal"));
    let file = disk.open(&path).or_else(|_| disk.create(&path))?;
    file.write_at(bytes, at)?;
    file.sync()?;
    disk.sync_dir(dir)
}

/// What members of a group tell each other through the coordinator: a subscription or a share.
pub fn member_metadata(input: &[u8]) {
    let topics = consumer::subscribed(input);
    let again = consumer::subscribed(&consumer::subscription(topics.iter().map(String::as_str)));
    assert_eq!(again, topics);
    if let Some(told) = consumer::read_subscription(input) {
        assert_eq!(told.topics, topics);
    }
    let share = consumer::assigned(input);
    if let Some((read, _)) = consumer::read_assignment(input) {
        assert_eq!(read, share);
    }
    assert_eq!(consumer::assigned(&consumer::assignment(&share)), share);
}

/// Opens the journal, appends and answers the frames that were there: kind, position, payload.
fn open(
    disk: &SimDisk,
    dir: &Path,
    payloads: &[&[u8]],
) -> Result<Vec<(u8, u64, Vec<u8>)>, JournalError> {
    let options = JournalOptions {
        segment_bytes: SEGMENT_BYTES,
        preallocate_bytes: SEGMENT_BYTES,
        ..JournalOptions::default()
    };
    let mut frames = Vec::new();
    let (journal, _) = Journal::open(Arc::new(disk.clone()), dir, options, &mut |frame| {
        frames.push((frame.kind, frame.position.0, frame.payload.to_vec()));
        Ok(())
    })?;
    for payload in payloads {
        let frame = Frame {
            kind: 1,
            version: 1,
            parts: &[payload],
        };
        journal.append_blocking(&[frame], journal::Durability::Disk)?;
    }
    journal.close()?;
    Ok(frames)
}

/// The least that a segment may span, so that short inputs make several.
const SEGMENT_BYTES: u64 = 4 << 10;
