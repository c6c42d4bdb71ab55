//! Making true what a session did: one frame, and before it the content that it needs.

use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use journal::{
    Checksum, Done, Durability, DurableWait, Frame, Journal, JournalError, Placed, Position,
};

use super::head::Head;
use super::pieces::Operations;
use super::{ContentKind, FlowFileKind, ProvenanceKind, Repository};
use crate::AgentError;
use crate::connection::Connection;
use crate::content::Claim;
use crate::fail_point::{fail_point, refuses};
use crate::flowfile::{FlowFile, FlowFileId};
use crate::records::{self, Check, Writer};

/// What a session did, to be made true at once.
#[derive(Default)]
pub(crate) struct Commit<'a> {
    pub(crate) state: Option<(&'a str, Bytes)>,
    pub(crate) removed: Vec<FlowFileId>,
    pub(crate) puts: Vec<Put>,
    /// New claims that are not written yet.
    pub(crate) claims: Vec<Arc<Claim>>,
    /// Blocks of provenance events.
    pub(crate) events: Vec<Vec<u8>>,
    pub(crate) inputs: &'a [Arc<Connection>],
    /// The session that took from the inputs.
    pub(crate) session: u64,
    /// Whether what was taken is now decided; not so for a state that is put on record midway.
    pub(crate) ends: bool,
}

/// FlowFiles on their way into a connection.
pub(crate) struct Put {
    pub(crate) connection: Arc<Connection>,
    pub(crate) flow_files: Vec<FlowFile>,
    pub(crate) penalized: Option<UnixMillis>,
}

/// How a commit's frame is carried, and what content is in it.
struct Carried<'c> {
    is_vital: bool,
    content: &'c [Bytes],
    need: Durability,
    waits: bool,
}

/// What a durable commit waits for: the disk under each journal.
#[derive(Default)]
pub(crate) struct CommitWait {
    records: Option<DurableWait>,
    content: Option<DurableWait>,
}

impl CommitWait {
    pub(crate) fn wait(self) -> Result<(), AgentError> {
        for wait in [self.content, self.records].into_iter().flatten() {
            wait.wait_blocking()
                .map_err(|source| AgentError::Repository {
                    action: "write to",
                    source,
                })?;
        }
        fail_point("repository.after_flush");
        Ok(())
    }
}

impl Repository {
    /// Commits and does not wait: what follows in the journal is durable only after this.
    pub(crate) fn commit(&self, commit: Commit<'_>, need: Durability) -> Result<(), AgentError> {
        self.append(commit, need, false).map(drop)
    }

    /// Commits and waits until the disk has it, if it is to be there at all.
    pub(crate) fn commit_and_wait(&self, commit: Commit<'_>) -> Result<(), AgentError> {
        self.commit_to_wait_for(commit)?.wait()
    }

    /// Commits to the disk; whoever needs it there waits for that later.
    pub(crate) fn commit_to_wait_for(&self, commit: Commit<'_>) -> Result<CommitWait, AgentError> {
        self.append(commit, Durability::Disk, true)
    }

    /// Waits until all that was committed before is on the disk.
    pub(crate) fn wait_for_disk(&self) -> Result<(), AgentError> {
        let need = self.need(Durability::Disk);
        let (done, records) = waiting(true, need);
        self.journal.append(&[], need, done).map_err(refused)?;
        let content = self.content_barrier(true, need).map_err(refused)?;
        CommitWait { records, content }.wait()
    }

    /// Writes content ahead of its session's commit, so that memory does not hold it. Until then
    /// nothing but the claims knows of it.
    pub(crate) fn spill(&self, claims: &[Arc<Claim>]) -> Result<(), AgentError> {
        if !self.keeps_content() {
            return Ok(());
        }
        let written = self.write_content(claims, self.need(Durability::Disk));
        if self.is_full() {
            self.win_room();
        }
        written.map_err(refused)
    }

    fn append(
        &self,
        commit: Commit<'_>,
        need: Durability,
        waits: bool,
    ) -> Result<CommitWait, AgentError> {
        let outcome = self.append_now(commit, need, waits);
        if self.is_full() {
            self.win_room();
        }
        outcome
    }

    fn append_now(
        &self,
        mut commit: Commit<'_>,
        need: Durability,
        waits: bool,
    ) -> Result<CommitWait, AgentError> {
        let need = self.need(need);
        self.reserve_more()?;
        if let Some(provenance) = &self.provenance {
            provenance.check().map_err(refused)?;
        }
        if self.content_journal.is_some() && !commit.claims.is_empty() {
            let claims = std::mem::take(&mut commit.claims);
            self.write_content(&claims, need).map_err(refused)?;
            fail_point("repository.content");
        }
        let long: Vec<Arc<Connection>> = commit
            .puts
            .iter()
            .filter(|put| put.connection.may_swap())
            .map(|put| Arc::clone(&put.connection))
            .collect();
        let wait = self.place(commit, need, waits)?;
        for connection in long {
            self.swap_out(&connection);
        }
        if self.is_due() {
            self.tidy_sometime();
        }
        Ok(wait)
    }

    /// Whether content is kept on the disk.
    pub(super) fn keeps_content(&self) -> bool {
        match self.options.content {
            ContentKind::FileSystem | ContentKind::Database => true,
            ContentKind::Volatile { .. } | ContentKind::None => false,
        }
    }

    /// How far a commit is carried: not beyond what the options promise.
    fn need(&self, need: Durability) -> Durability {
        if self.options.is_synced {
            need
        } else {
            need.min(Durability::Os)
        }
    }

    fn place(
        &self,
        mut commit: Commit<'_>,
        need: Durability,
        waits: bool,
    ) -> Result<CommitWait, AgentError> {
        let content = self.content_of(&commit);
        let carried = Carried {
            is_vital: frees_room(&commit),
            content: &content,
            need,
            waits,
        };
        loop {
            let gate = self.gate.read();
            // Encoded under the gate, since a snapshot may move claims.
            let operations = self.encode(&commit);
            if operations.is_empty() && content.is_empty() {
                self.take_effect(commit, None);
                return Ok(CommitWait::default());
            }
            let wanted = match operations.into_one() {
                Ok(writer) => match self.place_frame(&mut commit, writer, &carried)? {
                    Ok(wait) => return Ok(wait),
                    Err(wanted) => wanted,
                },
                Err(pieces) => return self.place_spanning(&mut commit, pieces, &carried),
            };
            drop(gate);
            self.journal.room_blocking(wanted);
        }
    }

    /// Places a commit of several frames; the gate is held for reading.
    fn place_spanning(
        &self,
        commit: &mut Commit<'_>,
        pieces: Vec<Writer>,
        carried: &Carried<'_>,
    ) -> Result<CommitWait, AgentError> {
        let _alone = self.spanning.lock();
        let pieces = self.place_pieces(pieces, carried.is_vital);
        let names = pieces.map_err(refused)?;
        fail_point("repository.pieces");
        loop {
            match self.place_frame(commit, names.clone(), carried)? {
                Ok(wait) => return Ok(wait),
                Err(wanted) => self.journal.room_blocking(wanted),
            }
        }
    }

    /// Places a commit's own frame, and has it take effect; the gate is held for reading. The inner
    /// error are the bytes that there is no room for yet.
    fn place_frame(
        &self,
        commit: &mut Commit<'_>,
        writer: Writer,
        carried: &Carried<'_>,
    ) -> Result<Result<CommitWait, u64>, AgentError> {
        // Order matters where a frame leans on another journal, and for provenance's mark.
        let _order = self.needs_order(commit).then(|| self.order.lock());
        let head = self.head(self.behind_content(writer));
        let mut parts = head.parts().to_vec();
        parts.extend(carried.content.iter().map(Bytes::as_ref));
        let frame = commit_frame(&parts);
        fail_point("repository.before_flush");
        if refuses("repository.before_flush") {
            let source = Arc::new(std::io::Error::from(std::io::ErrorKind::StorageFull));
            return Err(refused(JournalError::Full { source }));
        }
        let need = carried.need;
        let (done, records) = waiting(carried.waits, need);
        let placed = if carried.is_vital {
            self.journal.append_vital(&[frame], need, done)
        } else {
            let checksum = behind(&head.parts(), &commit.claims, carried.content);
            self.journal.append_summed(frame, checksum, need, done)
        };
        let placed = match placed {
            Ok(placed) => placed,
            Err(JournalError::Busy) => return Ok(Err(frame.framed_len())),
            Err(source) => return Err(refused(source)),
        };
        // The frame stands: what it says is true, whatever becomes of the wait for it.
        self.take_effect(std::mem::take(commit), Some((placed, head.len())));
        let content = self.content_barrier(carried.waits, need).map_err(refused)?;
        Ok(Ok(CommitWait { records, content }))
    }

    /// Content that goes into the commit's own frame.
    fn content_of(&self, commit: &Commit<'_>) -> Vec<Bytes> {
        match self.options.content {
            ContentKind::Database => commit.claims.iter().map(|claim| claim.fresh()).collect(),
            // It was written before, or is not to be written.
            ContentKind::FileSystem | ContentKind::Volatile { .. } | ContentKind::None => {
                Vec::new()
            }
        }
    }

    fn needs_order(&self, commit: &Commit<'_>) -> bool {
        self.content_journal.is_some()
            || (!commit.events.is_empty()
                && matches!(self.options.provenance, ProvenanceKind::Disk { .. }))
    }

    /// Waits for the content that stands so far, if it is on its own journal.
    fn content_barrier(
        &self,
        waits: bool,
        need: Durability,
    ) -> Result<Option<DurableWait>, JournalError> {
        let (Some(journal), true) = (&self.content_journal, waits) else {
            return Ok(None);
        };
        loop {
            let (done, wait) = waiting(true, need);
            match journal.append(&[], need, done) {
                Ok(_) => return Ok(wait),
                // The frame that needs it stands already.
                Err(JournalError::Busy) => journal.room_blocking(0),
                Err(error) => return Err(error),
            }
        }
    }

    fn encode(&self, commit: &Commit<'_>) -> Operations {
        let bytes_max = self.piece_bytes();
        let mut out = Operations::new(bytes_max);
        let is_recorded = self.options.flow_files == FlowFileKind::Disk;
        if let Some((key, bytes)) = &commit.state {
            out.writer().state(key, bytes);
        }
        if is_recorded {
            for removed in commit.removed.chunks(bytes_max / REMOVED_BYTES) {
                out.writer().remove(removed);
            }
            for put in &commit.puts {
                let id = &put.connection.definition.id;
                let mut flow_files = put.flow_files.iter();
                let locate = &|claim: &Arc<Claim>| claim.locate();
                while out
                    .writer()
                    .put_until(id, &mut flow_files, locate, bytes_max)
                {}
            }
        }
        if is_recorded && matches!(self.options.provenance, ProvenanceKind::Disk { .. }) {
            for block in &commit.events {
                out.writer().events(block);
            }
        }
        out
    }

    /// The same, saying how much of the content journal it leans on. Where there is one, frames
    /// are placed in the order in which this was asked.
    pub(super) fn behind_content(&self, writer: Writer) -> Writer {
        match &self.content_journal {
            Some(journal) if writer.len() > 0 => writer.behind_content(journal.end()),
            _ => writer,
        }
    }

    /// What the frame says becomes true in memory; the frame stands, so that this cannot fail.
    fn take_effect(&self, commit: Commit<'_>, frame: Option<(Placed, u64)>) {
        let position = frame.map_or(Position(0), |(placed, _)| placed.first);
        if let Some((placed, head_len)) = frame {
            let content_start = placed.first.payload().0 + head_len;
            if self.options.content == ContentKind::Database {
                self.place_claims(&commit.claims, content_start);
            }
        }
        if let Some((key, bytes)) = commit.state {
            self.book.lock().states.insert(key.to_owned(), bytes);
        }
        fail_point("repository.transfer");
        for put in commit.puts {
            put.connection.push(put.flow_files, put.penalized);
        }
        if commit.ends {
            for input in commit.inputs {
                input.let_go(commit.session);
            }
        }
        if let Some(provenance) = &self.provenance {
            provenance.take(position, commit.events);
        }
    }

    fn place_claims(&self, claims: &[Arc<Claim>], content_start: u64) {
        let mut at = content_start;
        for claim in claims {
            self.contents.place(claim, Position(at));
            at += claim.disk_len();
        }
    }

    /// Writes claims into the journal that content stands in, in a frame of their own.
    fn write_content(&self, claims: &[Arc<Claim>], need: Durability) -> Result<(), JournalError> {
        let content: Vec<Bytes> = claims.iter().map(|claim| claim.fresh()).collect();
        let empty = Head::new(&self.keyring, Vec::new());
        let [header, _] = empty.parts();
        // In the records' journal a frame begins with its operations, of which there are none.
        let (journal, kind, head) = match &self.content_journal {
            Some(journal) => (journal, records::CONTENT, &header[..0]),
            None => (&self.journal, records::COMMIT, header),
        };
        let mut parts: Vec<&[u8]> = vec![head];
        parts.extend(content.iter().map(Bytes::as_ref));
        let frame = Frame {
            kind,
            version: records::VERSION,
            parts: &parts,
        };
        let checksum = behind(&[head], claims, &content);
        // A snapshot between the two would reclaim what has no living claim yet.
        loop {
            let gate = self.gate.read();
            match journal.append_summed(frame, checksum, need, Done::none()) {
                Ok(placed) => {
                    let start = placed.first.payload().0 + head.len() as u64;
                    self.place_claims(claims, start);
                    return Ok(());
                }
                Err(JournalError::Busy) => {
                    drop(gate);
                    journal.room_blocking(frame.framed_len());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A frame of operations, and of content behind them.
pub(super) fn commit_frame<'a>(parts: &'a [&'a [u8]]) -> Frame<'a> {
    Frame {
        kind: records::COMMIT,
        version: records::VERSION,
        parts,
    }
}

/// Waits until not too much is pending, then appends without waiting for the disk.
pub(super) fn append_when_room(
    journal: &Journal,
    frame: Frame<'_>,
    need: Durability,
    is_vital: bool,
) -> Result<Position, JournalError> {
    loop {
        let placed = match is_vital {
            true => journal.append_vital(&[frame], need, Done::none()),
            false => journal.append(&[frame], need, Done::none()),
        };
        match placed {
            Ok(placed) => return Ok(placed.first),
            Err(JournalError::Busy) => journal.room_blocking(frame.framed_len()),
            Err(error) => return Err(error),
        }
    }
}

/// The checksum of a frame with content behind its head; what is known of the claims is not counted
/// again.
fn behind(head: &[&[u8]], claims: &[Arc<Claim>], content: &[Bytes]) -> Checksum {
    let head = head.iter();
    let head = head.fold(Checksum::default(), |sum, part| sum.then(part));
    let parts = claims.iter().zip(content);
    parts.fold(head, |sum, (claim, bytes)| match claim.check() {
        Check::Crc(crc) => sum.then_known(bytes, crc),
        Check::None | Check::Sealed => sum.then(bytes),
    })
}

/// Bytes that a removed FlowFile takes in a frame, at most.
const REMOVED_BYTES: usize = 16;

/// Whether a commit gives more room than it takes: then it may take what is kept for that.
fn frees_room(commit: &Commit<'_>) -> bool {
    commit.claims.is_empty() && commit.puts.is_empty() && !commit.removed.is_empty()
}

fn waiting(waits: bool, need: Durability) -> (Done, Option<DurableWait>) {
    if !waits {
        return (Done::none(), None);
    }
    let (done, wait) = Done::channel(need);
    (done, Some(wait))
}

fn refused(source: JournalError) -> AgentError {
    AgentError::Repository {
        action: "append to",
        source,
    }
}
