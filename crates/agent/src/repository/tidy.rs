//! Keeping the journals short: snapshots, moving old content forward, reclaiming.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Clock, SystemClock};
use journal::{Done, Durability, Frame, Journal, JournalError, Position};

use super::commit::{append_when_room, commit_frame};
use super::head::Head;
use super::{FlowFileKind, Repository};
use crate::AgentError;
use crate::connection::Waiting;
use crate::content::Claim;
use crate::fail_point::fail_point;
use crate::flowfile::FlowFile;
use crate::records::{self, ClaimAt, Writer};
use crate::sealing::Keyring;

impl Repository {
    /// Moves old content forward where it pins too much, writes a snapshot, and gives back what
    /// the journals no longer need.
    pub(super) fn tidy(&self) -> Result<(), AgentError> {
        self.tidy_as(true)
    }

    /// Writes a snapshot that replaces frames which never happened. No content is moved: if the
    /// content's journal grew before the snapshot is durable, those frames would seem whole.
    pub(crate) fn replace(&self) -> Result<(), AgentError> {
        self.tidy_as(false)
    }

    fn tidy_as(&self, moves: bool) -> Result<(), AgentError> {
        if self.is_snapshotting.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let outcome = self.snapshot_and_reclaim(moves);
        self.is_snapshotting.store(false, Ordering::Release);
        outcome.map_err(|source| AgentError::Repository {
            action: "tidy",
            source,
        })
    }

    /// Tidies up after a commit, which stands whatever becomes of this: a journal that broke says so
    /// at the next one.
    pub(super) fn tidy_sometime(&self) {
        if let Err(error) = self.tidy() {
            tracing::warn!(error = base::report(&error), "tidying up comes later");
        }
    }

    fn snapshot_and_reclaim(&self, moves: bool) -> Result<(), JournalError> {
        let gate = self.gate.write();
        if moves {
            self.move_old_content()?;
        }
        let begin = self.journal.end();
        let bytes = self.write_snapshot()?;
        // A claim that ends after this line ends by a frame behind the snapshot, which may yet be
        // lost; so what counts is what lives now.
        let lowest = self.contents.lowest();
        let snapshot_before = self.book.lock().snapshot.unwrap_or(self.journal.start());
        // What is swapped out stays in its frame.
        let swapped = self.contents.lowest_frame();
        let before = swapped.map_or(snapshot_before, |swapped| swapped.min(snapshot_before));
        let (keep, content_keep) = match &self.content_journal {
            Some(journal) => (before, Some(lowest.unwrap_or(journal.end()))),
            None => (lowest.map_or(before, |lowest| lowest.min(before)), None),
        };
        let (done, wait) = Done::channel(Durability::Disk);
        self.journal.append(&[], Durability::Disk, done)?;
        let content_wait = match &self.content_journal {
            Some(journal) => {
                let (done, wait) = Done::channel(Durability::Disk);
                journal.append(&[], Durability::Disk, done)?;
                Some(wait)
            }
            None => None,
        };
        let due = self.journal.end().0 + self.options.limits.snapshot_bytes_min.max(2 * bytes);
        self.snapshot_due.store(due, Ordering::Relaxed);
        let content_due = super::content_due(self.content_journal.as_ref(), &self.options);
        self.content_due.store(content_due, Ordering::Relaxed);
        {
            let mut book = self.book.lock();
            book.snapshot_bytes = bytes;
            book.snapshot = Some(begin);
        }
        drop(gate);
        wait.wait_blocking()?;
        if let Some(wait) = content_wait {
            wait.wait_blocking()?;
        }
        // Events of frames that are not read again must be where they belong.
        if let Some(provenance) = &self.provenance {
            match provenance.sync(SystemClock.now()) {
                // They wait in memory; what is freed here may be the room that they need.
                Ok(()) | Err(JournalError::Full { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if snapshot_before > self.journal.start() {
            self.journal.mark(snapshot_before)?;
        }
        fail_point("repository.reclaim");
        self.journal.reclaim(keep)?;
        if let (Some(journal), Some(keep)) = (&self.content_journal, content_keep) {
            journal.mark(journal.durable_end())?;
            journal.reclaim(keep)?;
        }
        Ok(())
    }

    /// Writes everything that is true now; the gate is held for writing.
    fn write_snapshot(&self) -> Result<u64, JournalError> {
        let book = self.book.lock();
        let mut out = SnapshotWriter {
            journal: &self.journal,
            keyring: &self.keyring,
            pending: None,
            bytes: 0,
            parts: 0,
        };
        let mut writer = match &self.content_journal {
            Some(journal) => out.part().behind_content(journal.end()),
            None => out.part(),
        };
        writer.counter(self.next_id.load(Ordering::Relaxed));
        for (key, bytes) in &book.states {
            writer.state(key, bytes);
            out.full_frames(&mut writer)?;
        }
        let mut outcome = Ok(());
        let is_recorded = self.options.flow_files == FlowFileKind::Disk;
        for connection in book.active.iter().filter(|_| is_recorded) {
            let id = &connection.definition.id;
            connection.visit(&mut |waiting| {
                outcome = out.queue(&mut writer, id, waiting);
            });
            if outcome.is_err() {
                break;
            }
        }
        outcome?;
        let parked = book.parked.iter().filter(|_| is_recorded);
        for (connection, stock) in parked.chain(&book.left_alone) {
            let head = stock.head.iter().map(Waiting::FlowFile);
            let swapped = stock.swapped.iter().map(Waiting::Swapped);
            let tail = stock.tail.iter().map(Waiting::FlowFile);
            out.queue(
                &mut writer,
                connection,
                &mut head.chain(swapped).chain(tail),
            )?;
        }
        out.finish(writer)
    }

    /// Copies the oldest claims to the journal's end when they pin much more than they are.
    fn move_old_content(&self) -> Result<(), JournalError> {
        let Some(lowest) = self.contents.lowest_claim() else {
            return Ok(());
        };
        let (journal, pinned_max) = match &self.content_journal {
            Some(journal) => (journal, self.options.limits.content_pinned_bytes_max),
            None => (&self.journal, self.options.limits.pinned_bytes_max),
        };
        let end = journal.end().0;
        let pinned = end - lowest.0;
        if pinned <= pinned_max || pinned <= 2 * self.contents.live_bytes() {
            return Ok(());
        }
        for claim in self.contents.below(Position(end - pinned_max / 2)) {
            let ClaimAt::At { position, .. } = claim.locate() else {
                continue;
            };
            // As they stand there: what is sealed stays so.
            let bytes = match journal.read(position, claim.disk_len() as usize) {
                Ok(bytes) => bytes,
                // It is found when somebody reads it; the others still move.
                Err(JournalError::Reclaimed { .. } | JournalError::OutOfRange { .. }) => continue,
                Err(error) => return Err(error),
            };
            match &self.content_journal {
                Some(journal) => self.copy(journal, &claim, position, &bytes)?,
                None => self.move_here(&claim, position, &bytes)?,
            }
        }
        Ok(())
    }

    fn move_here(
        &self,
        claim: &Arc<Claim>,
        from: Position,
        bytes: &[u8],
    ) -> Result<(), JournalError> {
        let mut writer = Writer::default();
        writer.moved(from, 0, claim.len());
        let head = self.head(writer);
        let [header, operations] = head.parts();
        let parts = [header, operations, bytes];
        let placed = append_when_room(&self.journal, commit_frame(&parts))?;
        let content = placed.payload().0 + head.len();
        self.contents.move_to(claim, Position(content));
        Ok(())
    }

    fn copy(
        &self,
        journal: &Journal,
        claim: &Arc<Claim>,
        from: Position,
        bytes: &[u8],
    ) -> Result<(), JournalError> {
        let parts = [bytes];
        let frame = Frame {
            kind: records::CONTENT,
            version: records::VERSION,
            parts: &parts,
        };
        let to = append_when_room(journal, frame)?.payload();
        let mut writer = Writer::default();
        writer.copied(from, to, claim.len());
        let writer = writer.behind_content(journal.end());
        let head = self.head(writer);
        append_when_room(&self.journal, commit_frame(&head.parts()))?;
        self.contents.move_to(claim, to);
        Ok(())
    }
}

/// Cuts a snapshot into frames. One frame is always held back, so that the last one is known.
struct SnapshotWriter<'j> {
    journal: &'j Journal,
    keyring: &'j Keyring,
    pending: Option<Vec<u8>>,
    bytes: u64,
    parts: u64,
}

impl SnapshotWriter<'_> {
    /// The next frame's operations; they begin with its number.
    fn part(&mut self) -> Writer {
        let mut writer = Writer::default();
        writer.part(self.parts);
        self.parts += 1;
        writer
    }

    /// Writes down what waits in one connection, in its order.
    fn queue(
        &mut self,
        writer: &mut Writer,
        id: &str,
        waiting: &mut dyn Iterator<Item = Waiting<'_>>,
    ) -> Result<(), JournalError> {
        let mut part: Vec<&FlowFile> = Vec::new();
        for waits in waiting {
            match waits {
                Waiting::FlowFile(flow_file) => part.push(flow_file),
                Waiting::Swapped(swapped) => {
                    writer.put(id, part.drain(..), &|claim| claim.locate());
                    writer.swapped(swapped.position, swapped.at(id));
                }
            }
            if part.len() >= SNAPSHOT_GROUP {
                writer.put(id, part.drain(..), &|claim| claim.locate());
                self.full_frames(writer)?;
            }
        }
        writer.put(id, part, &|claim| claim.locate());
        self.full_frames(writer)
    }

    fn full_frames(&mut self, writer: &mut Writer) -> Result<(), JournalError> {
        if writer.len() < SNAPSHOT_FRAME_BYTES {
            return Ok(());
        }
        let full = std::mem::replace(writer, self.part());
        self.push(full)
    }

    fn push(&mut self, writer: Writer) -> Result<(), JournalError> {
        match self.pending.replace(writer.into_operations()) {
            Some(before) => self.append(before, 0),
            None => Ok(()),
        }
    }

    fn finish(mut self, writer: Writer) -> Result<u64, JournalError> {
        self.push(writer)?;
        let last = self.pending.take().unwrap_or_default();
        self.append(last, records::ENDS)?;
        Ok(self.bytes)
    }

    fn append(&mut self, operations: Vec<u8>, flags: u8) -> Result<(), JournalError> {
        let begins = if self.bytes == 0 { records::BEGINS } else { 0 };
        let head = Head::new(self.keyring, operations);
        let [header, operations] = head.parts();
        let parts = [&[flags | begins][..], header, operations];
        let frame = Frame {
            kind: records::SNAPSHOT,
            version: records::VERSION,
            parts: &parts,
        };
        self.bytes += frame.framed_len();
        fail_point("repository.snapshot");
        append_when_room(self.journal, frame).map(drop)
    }
}

/// FlowFiles written to a snapshot before its size is looked at.
const SNAPSHOT_GROUP: usize = 1_000;

/// Bytes of a snapshot's frame.
const SNAPSHOT_FRAME_BYTES: usize = 256 << 10;
