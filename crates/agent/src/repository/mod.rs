//! The FlowFile repository: FlowFiles, their content and the processors' states on one journal.
//!
//! # Invariants
//!
//! - A session's commit is one frame (see [`crate::records`]), so it happened whole or not at all.
//! - A snapshot stands alone: commits hold the gate for reading, a snapshot holds it for writing,
//!   and it names every FlowFile and state that the frames before it left.
//! - The journal is reclaimed below the lower of the last snapshot's beginning and the lowest
//!   claim that lived when it was taken; both are durable by then.
//! - FlowFiles of connections that no running flow has are parked, never dropped.
//!
//! Left out: swapping of long queues to disk (headers stay in memory), content beyond one frame.

mod replay;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::UnixMillis;
use bytes::Bytes;
use journal::{
    Disk, Done, Durability, DurableWait, Frame, Journal, JournalError, JournalOptions, Position,
};
use parking_lot::{Mutex, RwLock};

use self::replay::{Replay, Replayed};
use crate::AgentError;
use crate::connection::Connection;
use crate::content::{Claim, Contents};
use crate::flowfile::{FlowFile, FlowFileId};
use crate::limits::{
    JOURNAL_PENDING_BYTES_MAX, PINNED_BYTES_MAX, SESSION_FLOW_FILES_MAX, SNAPSHOT_BYTES_MIN,
};
use crate::records::{self, ClaimAt, Writer};

/// All that an agent must not forget.
#[derive(Debug)]
pub struct Repository {
    journal: Journal,
    contents: Arc<Contents>,
    gate: RwLock<()>,
    book: Mutex<Book>,
    next_id: AtomicU64,
    namespace: u64,
    snapshot_due: AtomicU64,
    is_snapshotting: AtomicBool,
    limits: RepositoryLimits,
}

/// When the repository tidies up; tests make it tidy often.
#[derive(Clone, Copy, Debug)]
pub struct RepositoryLimits {
    /// Positions that a segment of the journal spans, in bytes.
    pub segment_bytes: u64,
    /// Journal bytes between two snapshots at least.
    pub snapshot_bytes_min: u64,
    /// Journal bytes that old content may pin before it is moved.
    pub pinned_bytes_max: u64,
}

impl Default for RepositoryLimits {
    fn default() -> Self {
        RepositoryLimits {
            segment_bytes: JournalOptions::default().segment_bytes,
            snapshot_bytes_min: SNAPSHOT_BYTES_MIN,
            pinned_bytes_max: PINNED_BYTES_MAX,
        }
    }
}

/// What a session did, to be made true at once.
#[derive(Default)]
pub(crate) struct Commit<'a> {
    pub(crate) state: Option<(&'a str, Bytes)>,
    pub(crate) removed: Vec<FlowFileId>,
    pub(crate) puts: Vec<Put>,
    pub(crate) claims: Vec<Arc<Claim>>,
    pub(crate) inputs: &'a [Arc<Connection>],
    /// Whether what was taken is now decided; not so for a state that is put on record midway.
    pub(crate) ends: bool,
}

/// FlowFiles on their way into a connection.
pub(crate) struct Put {
    pub(crate) connection: Arc<Connection>,
    pub(crate) flow_files: Vec<FlowFile>,
    pub(crate) penalized: Option<UnixMillis>,
}

/// Counts for the status.
#[derive(Clone, Copy, Debug)]
pub struct RepositoryStatus {
    /// Bytes of the journal's segments on the disk.
    pub bytes_on_disk: u64,
    /// Bytes of content that FlowFiles still need.
    pub content_bytes: u64,
    /// FlowFiles of connections that the running flow does not have.
    pub parked: u64,
}

#[derive(Debug, Default)]
struct Book {
    states: BTreeMap<String, Bytes>,
    parked: HashMap<String, VecDeque<FlowFile>>,
    active: Vec<Arc<Connection>>,
    snapshot_bytes: u64,
}

impl Repository {
    /// Opens the repository in `dir` and rebuilds queues and states from its journal.
    ///
    /// Errors: another process has it open, the disk refuses, or the bytes were written by
    /// something else.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        limits: RepositoryLimits,
    ) -> Result<Arc<Repository>, AgentError> {
        let contents = Contents::new();
        let mut replay = Replay::new(&contents);
        let options = JournalOptions {
            pending_bytes_max: JOURNAL_PENDING_BYTES_MAX,
            segment_bytes: limits.segment_bytes,
            ..JournalOptions::default()
        };
        let (journal, recovery) = Journal::open(disk, dir, options, &mut |frame| {
            replay.frame(frame).map_err(JournalError::refused)
        })
        .map_err(|source| AgentError::Repository {
            action: "open",
            source,
        })?;
        if let Some(cut) = &recovery.cut {
            tracing::info!(?cut, "the journal's unfinished end was cut off");
        }
        contents.attach(&journal);
        let start = journal.start();
        let Replayed {
            mut book,
            next_id,
            lost,
        } = replay.finish(start, journal.end());
        if lost > 0 {
            tracing::error!(
                lost,
                "FlowFiles were dropped, since their content is damaged"
            );
        }
        let namespace = namespace(&mut book);
        let repository = Arc::new(Repository {
            snapshot_due: AtomicU64::new(start.0 + limits.snapshot_bytes_min),
            journal,
            contents,
            gate: RwLock::new(()),
            book: Mutex::new(book),
            next_id: AtomicU64::new(next_id),
            namespace: namespace.0,
            is_snapshotting: AtomicBool::new(false),
            limits,
        });
        if namespace.1 {
            repository.save_state(
                NAMESPACE_STATE,
                Bytes::copy_from_slice(&namespace.0.to_be_bytes()),
            )?;
        }
        Ok(repository)
    }

    /// The bits of this repository in its FlowFiles' uuids.
    pub(crate) fn namespace(&self) -> u64 {
        self.namespace
    }

    /// The durable state of a processor, or of whatever has this key.
    pub(crate) fn state(&self, key: &str) -> Option<Bytes> {
        self.book.lock().states.get(key).cloned()
    }

    /// Makes a state durable, outside of any session; waits for the disk.
    pub(crate) fn save_state(&self, key: &str, bytes: Bytes) -> Result<(), AgentError> {
        let commit = Commit {
            state: Some((key, bytes)),
            ..Commit::default()
        };
        self.commit_and_wait(commit)
    }

    /// Ids for `count` new FlowFiles; the first one.
    pub(crate) fn ids(&self, count: u64) -> u64 {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }

    /// A claim for new content, at `offset` in its session's content.
    pub(crate) fn claim(&self, bytes: Bytes, offset: u64) -> Arc<Claim> {
        self.contents.create(bytes, offset)
    }

    /// Starts a flow's connections with what was queued in them.
    pub(crate) fn activate(&self, connections: &[Arc<Connection>]) {
        let _gate = self.gate.write();
        let mut book = self.book.lock();
        for connection in connections {
            if let Some(parked) = book.parked.remove(&connection.definition.id) {
                connection.push(parked.into(), None);
            }
        }
        book.active.extend_from_slice(connections);
    }

    /// Parks what is queued in a stopped flow's connections.
    pub(crate) fn park(&self, connections: &[Arc<Connection>]) {
        let _gate = self.gate.write();
        let mut book = self.book.lock();
        for connection in connections {
            let queued = connection.drain();
            if !queued.is_empty() {
                book.parked
                    .entry(connection.definition.id.clone())
                    .or_default()
                    .extend(queued);
            }
        }
        book.active
            .retain(|active| !connections.iter().any(|gone| Arc::ptr_eq(gone, active)));
    }

    /// Drops what waits in the connections that `is_meant` names, running or parked, and waits
    /// until that is durable; how many FlowFiles that were. A crash before leaves them queued.
    pub(crate) fn discard(&self, is_meant: &dyn Fn(&str) -> bool) -> Result<u64, AgentError> {
        // They hold their content until nothing durable names it.
        let mut gone: Vec<FlowFile> = Vec::new();
        {
            let mut book = self.book.lock();
            for connection in &book.active {
                if is_meant(&connection.definition.id) {
                    gone.extend(connection.discard());
                }
            }
            book.parked.retain(|id, parked| {
                let goes = is_meant(id);
                if goes {
                    gone.extend(parked.drain(..));
                }
                !goes
            });
        }
        for removed in gone.chunks(SESSION_FLOW_FILES_MAX) {
            let commit = Commit {
                removed: removed.iter().map(|flow_file| flow_file.id).collect(),
                ..Commit::default()
            };
            self.commit_and_wait(commit)?;
        }
        Ok(gone.len() as u64)
    }

    /// Commits and does not wait: what follows in the journal is durable only after this.
    pub(crate) fn commit(&self, commit: Commit<'_>, need: Durability) -> Result<(), AgentError> {
        self.append(commit, need, false).map(drop)
    }

    /// Commits and waits until the disk has it.
    pub(crate) fn commit_and_wait(&self, commit: Commit<'_>) -> Result<(), AgentError> {
        match self.append(commit, Durability::Disk, true)? {
            Some(wait) => wait
                .wait_blocking()
                .map_err(|source| AgentError::Repository {
                    action: "write to",
                    source,
                }),
            None => Ok(()),
        }
    }

    /// Counts for the status.
    pub fn status(&self) -> RepositoryStatus {
        let book = self.book.lock();
        RepositoryStatus {
            bytes_on_disk: self.journal.bytes_on_disk(),
            content_bytes: self.contents.live_bytes(),
            parked: book.parked.values().map(|queue| queue.len() as u64).sum(),
        }
    }

    /// Syncs and closes the journal; further commits fail.
    pub fn close(&self) -> Result<(), AgentError> {
        self.journal
            .close()
            .map_err(|source| AgentError::Repository {
                action: "close",
                source,
            })
    }

    fn append(
        &self,
        commit: Commit<'_>,
        need: Durability,
        waits: bool,
    ) -> Result<Option<DurableWait>, AgentError> {
        let content: Vec<Bytes> = commit.claims.iter().map(|claim| claim.fresh()).collect();
        let wait = loop {
            let gate = self.gate.read();
            // Encoded under the gate, since a snapshot may move claims.
            let writer = encode(&commit);
            let header = writer.header();
            let mut parts: Vec<&[u8]> = vec![&header, writer.operations()];
            parts.extend(content.iter().map(Bytes::as_ref));
            let frame = Frame {
                kind: records::COMMIT,
                version: records::VERSION,
                parts: &parts,
            };
            let bytes = frame.framed_len();
            let (done, wait) = if waits {
                let (done, wait) = Done::channel(Durability::Disk);
                (done, Some(wait))
            } else {
                (Done::none(), None)
            };
            match self.journal.append(&[frame], need, done) {
                Ok(placed) => self.take_effect(commit, placed.first, writer.len()),
                Err(JournalError::Busy) => {
                    drop(gate);
                    self.journal.room_blocking(bytes);
                    continue;
                }
                Err(source) => {
                    return Err(AgentError::Repository {
                        action: "append to",
                        source,
                    });
                }
            }
            break wait;
        };
        if self.journal.end().0 >= self.snapshot_due.load(Ordering::Relaxed) {
            self.tidy()?;
        }
        Ok(wait)
    }

    /// What the frame says becomes true in memory.
    fn take_effect(&self, commit: Commit<'_>, frame: Position, operations_len: usize) {
        let content_start = frame.payload().0 + 4 + operations_len as u64;
        for claim in &commit.claims {
            if let ClaimAt::Here { offset, .. } = claim.locate() {
                self.contents.place(claim, Position(content_start + offset));
            }
        }
        if let Some((key, bytes)) = commit.state {
            self.book.lock().states.insert(key.to_owned(), bytes);
        }
        for put in commit.puts {
            put.connection.push(put.flow_files, put.penalized);
        }
        if commit.ends {
            for input in commit.inputs {
                input.let_go();
            }
        }
    }

    /// Moves old content forward where it pins too much, writes a snapshot, and gives back what
    /// the journal no longer needs.
    fn tidy(&self) -> Result<(), AgentError> {
        if self.is_snapshotting.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let outcome = self.snapshot_and_reclaim();
        self.is_snapshotting.store(false, Ordering::Release);
        outcome.map_err(|source| AgentError::Repository {
            action: "tidy",
            source,
        })
    }

    fn snapshot_and_reclaim(&self) -> Result<(), JournalError> {
        let gate = self.gate.write();
        self.move_old_content()?;
        let begin = self.journal.end();
        let bytes = self.write_snapshot()?;
        // A claim that ends after this line ends by a frame behind the snapshot, which may yet be
        // lost; so what counts is what lives now.
        let keep = self
            .contents
            .lowest()
            .map_or(begin, |lowest| lowest.min(begin));
        let (done, wait) = Done::channel(Durability::Disk);
        self.journal.append(&[], Durability::Disk, done)?;
        let due = self.journal.end().0 + self.limits.snapshot_bytes_min.max(2 * bytes);
        self.snapshot_due.store(due, Ordering::Relaxed);
        self.book.lock().snapshot_bytes = bytes;
        drop(gate);
        wait.wait_blocking()?;
        self.journal.reclaim(keep)?;
        Ok(())
    }

    /// Writes everything that is true now; the gate is held for writing.
    fn write_snapshot(&self) -> Result<u64, JournalError> {
        let book = self.book.lock();
        let locate = |claim: &Arc<Claim>| claim.locate();
        let mut out = SnapshotWriter {
            journal: &self.journal,
            pending: None,
            bytes: 0,
        };
        let mut writer = Writer::default();
        writer.counter(self.next_id.load(Ordering::Relaxed));
        for (key, bytes) in &book.states {
            writer.state(key, bytes);
        }
        let mut outcome = Ok(());
        for connection in &book.active {
            connection.visit(&mut |mut flow_files| {
                let id = &connection.definition.id;
                while outcome.is_ok() {
                    let part: Vec<&FlowFile> =
                        Iterator::take(&mut flow_files, SNAPSHOT_GROUP).collect();
                    if part.is_empty() {
                        break;
                    }
                    writer.put(id, part, &locate);
                    outcome = out.full_frames(&mut writer);
                }
            });
        }
        outcome?;
        for (connection, parked) in &book.parked {
            for part in parked.iter().collect::<Vec<_>>().chunks(SNAPSHOT_GROUP) {
                writer.put(connection, part.iter().copied(), &locate);
                out.full_frames(&mut writer)?;
            }
        }
        out.finish(writer)
    }

    fn move_old_content(&self) -> Result<(), JournalError> {
        let Some(lowest) = self.contents.lowest() else {
            return Ok(());
        };
        let end = self.journal.end().0;
        let pinned = end - lowest.0;
        if pinned <= self.limits.pinned_bytes_max || pinned <= 2 * self.contents.live_bytes() {
            return Ok(());
        }
        let old = self
            .contents
            .below(Position(end - self.limits.pinned_bytes_max / 2));
        for claim in old {
            let ClaimAt::At { position, len } = claim.locate() else {
                continue;
            };
            let bytes = self.journal.read(position, len as usize)?;
            let mut writer = Writer::default();
            writer.moved(position, 0, len);
            let header = writer.header();
            let parts = [header.as_slice(), writer.operations(), &bytes];
            let frame = Frame {
                kind: records::COMMIT,
                version: records::VERSION,
                parts: &parts,
            };
            let placed = self.journal.append_blocking_place(frame)?;
            let content = placed.payload().0 + 4 + writer.len() as u64;
            self.contents.move_to(&claim, Position(content));
        }
        Ok(())
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        // Queues hold claims, claims hold the contents, contents hold the journal: cut the ring.
        if let Err(error) = self.journal.close() {
            tracing::debug!(
                error = base::report(&error),
                "the journal was closed before"
            );
        }
    }
}

/// Waits for room, then appends without waiting for the disk.
trait AppendPlace {
    fn append_blocking_place(&self, frame: Frame<'_>) -> Result<Position, JournalError>;
}

impl AppendPlace for Journal {
    fn append_blocking_place(&self, frame: Frame<'_>) -> Result<Position, JournalError> {
        loop {
            match self.append(&[frame], Durability::Disk, Done::none()) {
                Ok(placed) => return Ok(placed.first),
                Err(JournalError::Busy) => self.room_blocking(frame.framed_len()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Cuts a snapshot into frames. One frame is always held back, so that the last one is known.
struct SnapshotWriter<'j> {
    journal: &'j Journal,
    pending: Option<Vec<u8>>,
    bytes: u64,
}

impl SnapshotWriter<'_> {
    fn full_frames(&mut self, writer: &mut Writer) -> Result<(), JournalError> {
        if writer.len() < SNAPSHOT_FRAME_BYTES {
            return Ok(());
        }
        let operations = writer.operations().to_vec();
        writer.clear();
        self.push(operations)
    }

    fn push(&mut self, operations: Vec<u8>) -> Result<(), JournalError> {
        match self.pending.replace(operations) {
            Some(before) => self.append(&before, 0),
            None => Ok(()),
        }
    }

    fn finish(mut self, writer: Writer) -> Result<u64, JournalError> {
        self.push(writer.operations().to_vec())?;
        let last = self.pending.take().unwrap_or_default();
        self.append(&last, records::ENDS)?;
        Ok(self.bytes)
    }

    fn append(&mut self, operations: &[u8], flags: u8) -> Result<(), JournalError> {
        let begins = if self.bytes == 0 { records::BEGINS } else { 0 };
        let len = u32::try_from(operations.len()).expect("frames are far below 4 GiB");
        let parts = [&[flags | begins][..], &len.to_le_bytes()[..], operations];
        let frame = Frame {
            kind: records::SNAPSHOT,
            version: records::VERSION,
            parts: &parts,
        };
        self.bytes += frame.framed_len();
        self.journal.append_blocking_place(frame).map(drop)
    }
}

fn encode(commit: &Commit<'_>) -> Writer {
    let mut writer = Writer::default();
    if let Some((key, bytes)) = &commit.state {
        writer.state(key, bytes);
    }
    writer.remove(&commit.removed);
    for put in &commit.puts {
        writer.put(&put.connection.definition.id, &put.flow_files, &|claim| {
            claim.locate()
        });
    }
    writer
}

/// The repository's own bits, and whether they are new.
fn namespace(book: &mut Book) -> (u64, bool) {
    let known = book
        .states
        .get(NAMESPACE_STATE)
        .and_then(|bytes| bytes.as_ref().try_into().ok());
    match known {
        Some(bytes) => (u64::from_be_bytes(bytes), false),
        None => (uuid::Uuid::new_v4().as_u64_pair().0, true),
    }
}

/// States whose key is no processor id begin with a dollar sign.
const NAMESPACE_STATE: &str = "$repository";

/// FlowFiles written to a snapshot before its size is looked at.
const SNAPSHOT_GROUP: usize = 10_000;

/// Bytes of a snapshot's frame.
const SNAPSHOT_FRAME_BYTES: usize = 1 << 20;
