//! The provenance repository: blocks of events, in the order of time, bounded by bytes and age.
//!
//! On the disk it is a journal of its own. Blocks are gathered into frames of about 64 KiB; what
//! is not written yet is still in the records' journal, from where it is taken again after a
//! crash: each frame begins with the position of the last commit that it has events of.
//!
//! | frame of kind 1 | |
//! | --- | --- |
//! | 0..8 | position of the last commit in the records' journal, little-endian |
//! | 8..16 | time of its last block, Unix milliseconds |
//! | then | for each block its length (`u32`, little-endian) and its bytes |

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use journal::{
    Disk, Done, Durability, Frame, FrameRef, Journal, JournalError, JournalOptions, Position,
};
use parking_lot::Mutex;

use super::{EventKind, ProvenanceEvent, decode, time_of};
use crate::flowfile::FlowFileId;
use crate::limits::{PROVENANCE_FRAME_BYTES, PROVENANCE_SEGMENT_BYTES_MAX};

/// All that is known of what happened.
#[derive(Debug)]
pub struct Provenance {
    journal: Option<Journal>,
    bytes_max: u64,
    count_max: u64,
    age_max: Duration,
    book: Mutex<Book>,
}

/// Which events are asked for; all that are set must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// About this FlowFile, or naming it as a parent.
    pub flow_file: Option<FlowFileId>,
    /// Of these kinds; of all, when empty.
    pub kinds: Vec<EventKind>,
    /// Of this processor, by id.
    pub component_id: Option<String>,
    /// Not before.
    pub from: Option<UnixMillis>,
    /// Before.
    pub until: Option<UnixMillis>,
    /// At most so many, the newest.
    pub count_max: usize,
}

/// Counts for the status.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProvenanceStatus {
    /// Blocks of events that are kept; each is what one session did.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Book {
    /// What is written, oldest first.
    frames: VecDeque<Written>,
    /// What is not written yet, or in memory only.
    blocks: VecDeque<(UnixMillis, Vec<u8>)>,
    block_bytes: u64,
    frame_bytes: u64,
    /// The last commit that is in `blocks` or in a frame.
    last: Position,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    position: Position,
    last_time: UnixMillis,
    bytes: u64,
    blocks: u64,
}

impl Provenance {
    /// In memory only; at the bounds the oldest goes.
    pub(crate) fn volatile(bytes_max: u64, count_max: u64) -> Self {
        Provenance {
            journal: None,
            bytes_max,
            count_max,
            age_max: Duration::MAX,
            book: Mutex::default(),
        }
    }

    /// On the disk in `dir`.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        bytes_max: u64,
        age_max: Duration,
    ) -> Result<Self, JournalError> {
        let segment = (bytes_max / 8).clamp(64 << 10, PROVENANCE_SEGMENT_BYTES_MAX);
        let options = JournalOptions {
            segment_bytes: segment,
            preallocate_bytes: segment,
            ..JournalOptions::default()
        };
        let mut book = Book::default();
        let (journal, recovery) = Journal::open(disk, dir, options, &mut |frame| {
            book.recovered(&frame);
            Ok(())
        })?;
        if recovery.damaged_bytes > 0 {
            tracing::error!(
                bytes = recovery.damaged_bytes,
                "provenance events were lost, since their bytes on the disk have gone bad"
            );
        }
        Ok(Provenance {
            journal: Some(journal),
            bytes_max,
            count_max: u64::MAX,
            age_max,
            book: Mutex::new(book),
        })
    }

    /// The last commit whose events are here; later ones are to be given again.
    pub(crate) fn last(&self) -> Position {
        self.book.lock().last
    }

    /// Takes the events of one commit, which stands at `position`.
    pub(crate) fn take(&self, position: Position, block: Vec<u8>) -> Result<(), JournalError> {
        let at = time_of(&block);
        let mut book = self.book.lock();
        book.block_bytes += block.len() as u64 + 4;
        book.blocks.push_back((at, block));
        book.last = book.last.max(position);
        match &self.journal {
            Some(journal) if book.block_bytes >= PROVENANCE_FRAME_BYTES => {
                self.write(journal, &mut book)?;
                self.forget(journal, &mut book, at)
            }
            Some(_) => Ok(()),
            None => {
                while book.block_bytes > self.bytes_max || book.blocks.len() as u64 > self.count_max
                {
                    let Some((_, gone)) = book.blocks.pop_front() else {
                        break;
                    };
                    book.block_bytes -= gone.len() as u64 + 4;
                }
                Ok(())
            }
        }
    }

    /// Has everything on the disk when it returns.
    pub(crate) fn sync(&self, now: UnixMillis) -> Result<(), JournalError> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let (done, wait) = Done::channel(Durability::Disk);
        {
            let mut book = self.book.lock();
            self.write(journal, &mut book)?;
            self.forget(journal, &mut book, now)?;
            journal.append(&[], Durability::Disk, done)?;
        }
        wait.wait_blocking()
    }

    /// The events that `filter` lets through, oldest first. Reads the whole repository at worst.
    pub fn events(&self, filter: &Filter) -> Result<Vec<ProvenanceEvent>, JournalError> {
        let mut found = VecDeque::new();
        let mut take = |block: &[u8]| {
            let outcome = decode(block, &mut |event| {
                if filter.passes(&event) {
                    if found.len() >= filter.count_max {
                        found.pop_front();
                    }
                    found.push_back(event);
                }
            });
            if let Err(error) = outcome {
                tracing::warn!(%error, "a block of provenance events is passed over");
            }
        };
        let (frames, blocks) = {
            let book = self.book.lock();
            let frames: Vec<Written> = book.frames.iter().copied().collect();
            (frames, book.blocks.clone())
        };
        if let Some(journal) = &self.journal {
            for frame in frames {
                if filter.from.is_some_and(|from| frame.last_time < from) {
                    continue;
                }
                match journal.read_frame(frame.position) {
                    Ok(payload) => each_block(&payload, &mut take),
                    // It went while this reads, or its bytes have gone bad: the others are there.
                    Err(JournalError::Reclaimed { .. } | JournalError::Damaged { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        for (_, block) in &blocks {
            take(block);
        }
        Ok(found.into())
    }

    /// Counts for the status.
    pub fn status(&self) -> ProvenanceStatus {
        let book = self.book.lock();
        ProvenanceStatus {
            blocks: book.blocks.len() as u64 + book.frames.iter().map(|f| f.blocks).sum::<u64>(),
            bytes: book.block_bytes + book.frame_bytes,
        }
    }

    /// Writes what is left and closes.
    pub(crate) fn close(&self, now: UnixMillis) -> Result<(), JournalError> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let synced = self.sync(now);
        journal.close().and(synced)
    }

    fn write(&self, journal: &Journal, book: &mut Book) -> Result<(), JournalError> {
        let Some((last_time, _)) = book.blocks.back() else {
            return Ok(());
        };
        let last_time = *last_time;
        let mut payload = Vec::with_capacity(book.block_bytes as usize + 16);
        payload.extend_from_slice(&book.last.0.to_le_bytes());
        payload.extend_from_slice(&last_time.0.to_le_bytes());
        for (_, block) in &book.blocks {
            let len = u32::try_from(block.len()).expect("a block is far below 4 GiB");
            payload.extend_from_slice(&len.to_le_bytes());
            payload.extend_from_slice(block);
        }
        let parts = [payload.as_slice()];
        let frame = Frame {
            kind: EVENTS,
            version: FRAME_VERSION,
            parts: &parts,
        };
        let placed = loop {
            match journal.append(&[frame], Durability::Os, Done::none()) {
                Err(JournalError::Busy) => journal.room_blocking(frame.framed_len()),
                other => break other?,
            }
        };
        let written = Written {
            position: placed.first,
            last_time,
            bytes: frame.framed_len(),
            blocks: book.blocks.len() as u64,
        };
        book.frame_bytes += written.bytes;
        book.frames.push_back(written);
        book.blocks.clear();
        book.block_bytes = 0;
        Ok(())
    }

    /// Lets go of what is too old or too much, whole segments at a time.
    fn forget(
        &self,
        journal: &Journal,
        book: &mut Book,
        now: UnixMillis,
    ) -> Result<(), JournalError> {
        let is_old = |frame: &Written| now.since(frame.last_time) > self.age_max;
        let before = book.frames.len();
        while let Some(oldest) = book.frames.front().copied() {
            // The newest stays: it knows how far the events are copied.
            if book.frames.len() < 2 || (book.frame_bytes <= self.bytes_max && !is_old(&oldest)) {
                break;
            }
            book.frame_bytes -= oldest.bytes;
            book.frames.pop_front();
        }
        if let Some(first) = book.frames.front().filter(|_| book.frames.len() < before) {
            journal.reclaim(first.position)?;
        }
        Ok(())
    }
}

impl Book {
    fn recovered(&mut self, frame: &FrameRef<'_>) {
        let Some((header, _)) = frame.payload.split_first_chunk::<16>() else {
            return;
        };
        let (last, time) = header.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let mut blocks = 0;
        each_block(frame.payload, &mut |_| blocks += 1);
        let written = Written {
            position: frame.position,
            last_time: UnixMillis(word(time) as i64),
            bytes: frame.payload.len() as u64 + journal::FRAME_OVERHEAD_BYTES,
            blocks,
        };
        self.last = self.last.max(Position(word(last)));
        self.frame_bytes += written.bytes;
        self.frames.push_back(written);
    }
}

impl Filter {
    fn passes(&self, event: &ProvenanceEvent) -> bool {
        self.flow_file.is_none_or(|id| event.concerns(id))
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self
                .component_id
                .as_ref()
                .is_none_or(|id| *id == event.component_id)
            && self.from.is_none_or(|from| event.at >= from)
            && self.until.is_none_or(|until| event.at < until)
    }
}

fn each_block(payload: &[u8], visit: &mut dyn FnMut(&[u8])) {
    let mut rest = payload.get(16..).unwrap_or_default();
    while let Some((len, tail)) = rest.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        let Some((block, tail)) = tail.split_at_checked(len) else {
            return;
        };
        visit(block);
        rest = tail;
    }
}

const EVENTS: u8 = 1;
const FRAME_VERSION: u8 = 1;
