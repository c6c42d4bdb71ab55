//! Keeping the journals short: snapshots, moving old content forward, reclaiming.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Clock, SystemClock};
use bytes::Bytes;
use journal::{Done, Durability, DurableWait, Frame, Journal, JournalError, Position};

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
        let outcome = match moves && self.is_full() {
            true => self.tidy_full_disk(),
            // Frames that never happened are replaced with what room there is.
            false => self.snapshot_and_reclaim(moves, moves),
        };
        if outcome.is_err() {
            self.postpone();
        }
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

    /// Whether so much was written since the last time that it is time to tidy up.
    pub(super) fn is_due(&self) -> bool {
        let content_end = self.content_journal.as_ref().map(|journal| journal.end().0);
        self.journal.end().0 >= self.snapshot_due.load(Ordering::Relaxed)
            || content_end.is_some_and(|end| end >= self.content_due.load(Ordering::Relaxed))
    }

    /// What failed would fail with the next commit as well, and take more room each time.
    pub(super) fn postpone(&self) {
        let limits = &self.options.limits;
        let due = self.journal.end().0 + limits.snapshot_bytes_min / 4;
        self.snapshot_due.fetch_max(due, Ordering::Relaxed);
        if let Some(journal) = &self.content_journal {
            let due = journal.end().0 + limits.content_pinned_bytes_max / 8;
            self.content_due.fetch_max(due, Ordering::Relaxed);
        }
    }

    /// Writes a snapshot and gives back what is not needed then. On a full disk it breaks off, if
    /// asked to, before it takes what those need who make room.
    pub(super) fn snapshot_and_reclaim(
        &self,
        moves: bool,
        breaks_off: bool,
    ) -> Result<(), JournalError> {
        let gate = self.gate.write();
        if moves {
            self.move_old_content()?;
        }
        let begin = self.journal.end();
        let (bytes, flow_files) = self.write_snapshot(breaks_off)?;
        // A claim that ends after this line ends by a frame behind the snapshot, which may yet be
        // lost; so what counts is what lives now.
        let snapshot_before = self.book.lock().snapshot.unwrap_or(self.journal.start());
        let (keep, content_keep) = self.needed_from(snapshot_before);
        let durable = self.begin_to_sync()?;
        let due = self.journal.end().0 + self.options.limits.snapshot_bytes_min.max(2 * bytes);
        self.snapshot_due.store(due, Ordering::Relaxed);
        let content_due = super::content_due(self.content_journal.as_ref(), &self.options);
        self.content_due.store(content_due, Ordering::Relaxed);
        {
            let mut book = self.book.lock();
            book.snapshot_bytes = bytes;
            book.snapshot_flow_files = flow_files;
            book.snapshot_before = book.snapshot.replace(begin);
        }
        drop(gate);
        self.keep_reserve();
        for wait in durable {
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
        self.reclaim(snapshot_before, (keep, content_keep))
    }

    /// Where the first frame and the first content stand that are needed, if recovery begins at
    /// `snapshot`; the gate is held for writing.
    pub(super) fn needed_from(&self, snapshot: Position) -> (Position, Option<Position>) {
        let lowest = self.contents.lowest();
        // What is swapped out stays in its frame.
        let swapped = self.contents.lowest_frame();
        let frames = swapped.map_or(snapshot, |swapped| swapped.min(snapshot));
        match &self.content_journal {
            Some(journal) => (frames, Some(lowest.unwrap_or(journal.end()))),
            None => (lowest.map_or(frames, |lowest| lowest.min(frames)), None),
        }
    }

    /// Waits for all that stands so far, of each journal.
    pub(super) fn begin_to_sync(&self) -> Result<Vec<DurableWait>, JournalError> {
        let journals = std::iter::once(&self.journal).chain(&self.content_journal);
        let waits = journals.map(|journal| {
            let (done, wait) = Done::channel(Durability::Disk);
            journal.append(&[], Durability::Disk, done)?;
            Ok(wait)
        });
        waits.collect()
    }

    /// Gives back what stands before `keep`; all that makes it unneeded is on the disk, and recovery
    /// begins at `snapshot`.
    pub(super) fn reclaim(
        &self,
        snapshot: Position,
        (keep, content_keep): (Position, Option<Position>),
    ) -> Result<(), JournalError> {
        if snapshot > self.journal.start() {
            self.journal.mark(snapshot)?;
        }
        fail_point("repository.reclaim");
        self.journal.reclaim(keep)?;
        if let (Some(journal), Some(keep)) = (&self.content_journal, content_keep) {
            journal.mark(journal.durable_end())?;
            journal.reclaim(keep)?;
        }
        Ok(())
    }

    /// Writes everything that is true now; the gate is held for writing. Its bytes, and how many
    /// FlowFiles are in it.
    fn write_snapshot(&self, breaks_off: bool) -> Result<(u64, u64), JournalError> {
        let frame_bytes = usize::try_from(self.options.limits.segment_bytes / 8);
        let book = self.book.lock();
        let mut out = SnapshotWriter {
            journal: &self.journal,
            keyring: &self.keyring,
            frame_bytes: frame_bytes.map_or(SNAPSHOT_FRAME_BYTES, |b| b.min(SNAPSHOT_FRAME_BYTES)),
            room_left: breaks_off.then(|| self.needed_to_end(&book)),
            pending: None,
            bytes: 0,
            flow_files: 0,
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
            self.move_forward(&claim)?;
        }
        Ok(())
    }

    /// Copies a claim to the end of the journal that it is in; the gate is held for writing.
    pub(super) fn move_forward(&self, claim: &Arc<Claim>) -> Result<(), JournalError> {
        let ClaimAt::At { position, .. } = claim.locate() else {
            return Ok(());
        };
        let journal = self.content_journal.as_ref().unwrap_or(&self.journal);
        // As they stand there: what is sealed stays so.
        let read = || journal.read(position, claim.disk_len() as usize);
        let bytes = match read().or_else(|error| match error.is_unreadable() {
            // A disk may fail once only.
            true => read(),
            false => Err(error),
        }) {
            Ok(bytes) => bytes,
            // It is found when somebody reads it; the others still move.
            Err(JournalError::Reclaimed { .. } | JournalError::OutOfRange { .. }) => return Ok(()),
            Err(error) if journal.has_lost(&error) => match claim.in_memory() {
                Some(bytes) => bytes,
                // Moved as zeros, which its checksum refuses: it pins nothing until it is found.
                None if claim.is_checked() => Bytes::from(vec![0; claim.disk_len() as usize]),
                // Zeros would pass for what it was; the others still move.
                None => return Ok(()),
            },
            Err(error) => return Err(error),
        };
        match &self.content_journal {
            Some(journal) => self.copy(journal, claim, position, &bytes),
            None => self.move_here(claim, position, &bytes),
        }
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
        let placed = append_when_room(&self.journal, commit_frame(&parts), Durability::Disk, true)?;
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
        let to = append_when_room(journal, frame, Durability::Disk, true)?.payload();
        let mut writer = Writer::default();
        writer.copied(from, to, claim.len());
        let writer = writer.behind_content(journal.end());
        let head = self.head(writer);
        let parts = head.parts();
        append_when_room(&self.journal, commit_frame(&parts), Durability::Disk, true)?;
        self.contents.move_to(claim, to);
        Ok(())
    }
}

/// Cuts a snapshot into frames. One frame is always held back, so that the last one is known.
struct SnapshotWriter<'j> {
    journal: &'j Journal,
    keyring: &'j Keyring,
    frame_bytes: usize,
    /// Room that it leaves on a full disk.
    room_left: Option<u64>,
    pending: Option<Vec<u8>>,
    bytes: u64,
    flow_files: u64,
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
                    self.put(writer, id, &mut part)?;
                    writer.swapped(swapped.position, swapped.at(id));
                    self.flow_files += swapped.count;
                }
            }
            if part.len() >= SNAPSHOT_GROUP {
                self.put(writer, id, &mut part)?;
            }
        }
        self.put(writer, id, &mut part)
    }

    /// Writes down FlowFiles, in as many frames as it takes.
    fn put(
        &mut self,
        writer: &mut Writer,
        id: &str,
        part: &mut Vec<&FlowFile>,
    ) -> Result<(), JournalError> {
        self.flow_files += part.len() as u64;
        let mut flow_files = part.drain(..);
        loop {
            let locate = &|claim: &Arc<Claim>| claim.locate();
            let is_full = writer.put_until(id, &mut flow_files, locate, self.frame_bytes);
            self.full_frames(writer)?;
            if !is_full {
                return Ok(());
            }
        }
    }

    fn full_frames(&mut self, writer: &mut Writer) -> Result<(), JournalError> {
        if writer.len() < self.frame_bytes {
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

    fn finish(mut self, writer: Writer) -> Result<(u64, u64), JournalError> {
        self.push(writer)?;
        let last = self.pending.take().unwrap_or_default();
        self.append(last, records::ENDS)?;
        Ok((self.bytes, self.flow_files))
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
        let is_vital = self.room_left.is_none_or(|left| {
            let room = self.journal.room_ahead();
            room >= left + frame.framed_len()
        });
        append_when_room(self.journal, frame, Durability::Disk, is_vital).map(drop)
    }
}

/// FlowFiles gathered before they are written to a snapshot.
const SNAPSHOT_GROUP: usize = 1_000;

/// Bytes of a snapshot's frame.
const SNAPSHOT_FRAME_BYTES: usize = 256 << 10;
