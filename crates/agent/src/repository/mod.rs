//! The repositories: FlowFiles, their content, processors' states and provenance.
//!
//! # Invariants
//!
//! - A session's commit is one frame (see [`crate::records`]), so it happened whole or not at all.
//!   What is too much for one stands in pieces before it, which it names.
//! - Content that stands in a journal of its own is written before the frame that needs it. The
//!   frame says how far that journal must be there; where it is not, the frame and all behind it
//!   never happened. A commit is durable when both journals are.
//! - A snapshot stands alone: commits hold the gate for reading, a snapshot holds it for writing,
//!   and it names every FlowFile and state that the frames before it left.
//! - A journal is reclaimed below the lower of the last snapshot but one and the lowest claim that
//!   lived when the last one was taken; both are durable by then. So a snapshot that goes bad on
//!   the disk takes nothing with it: recovery begins at the one before.
//! - FlowFiles of connections that no running flow has are parked, never dropped.
//! - No number of a FlowFile is given out twice, whatever was lost of what had it ([`numbers`]).
//!
//! What is kept in memory only ([`options`]) is not written; processors' states always are.

mod access;
mod commit;
pub(crate) mod fuzzing;
mod head;
mod numbers;
mod options;
mod pieces;
mod replay;
mod room;
mod slots;
mod swap;
mod tidy;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Clock, SystemClock, UnixMillis};
use bytes::Bytes;
use journal::{Disk, Journal, JournalError, JournalOptions, Position};
use parking_lot::{Mutex, RwLock};

use self::replay::{Replay, Replayed};
use crate::AgentError;
use crate::connection::Connection;
use crate::content::{Arena, Claim, Contents, Store};
use crate::flowfile::{FlowFile, FlowFileId};
use crate::limits::{SESSION_FLOW_FILES_MAX, SPARE_SEGMENTS_MAX, UNASKED_REST};
use crate::provenance::{EventKind, Events, Filter, Provenance, ProvenanceEvent, ProvenanceStatus};
use crate::sealing::Keyring;
use crate::supervisor::CONTROLLER;

pub(crate) use access::{Access, Folder};
pub(crate) use commit::{Commit, CommitWait, Put};
pub use options::{ContentKind, FlowFileKind, ProvenanceKind, RepositoryLimits, RepositoryOptions};
pub(crate) use swap::{Stock, Swapped};

/// All that an agent must not forget.
#[derive(Debug)]
pub struct Repository {
    journal: Journal,
    /// Content's own journal, where it has one.
    content_journal: Option<Journal>,
    contents: Arc<Contents>,
    provenance: Option<Provenance>,
    options: RepositoryOptions,
    keyring: Arc<Keyring>,
    gate: RwLock<()>,
    /// Held while a frame is placed, where its order among others matters beside the journal's.
    order: Mutex<()>,
    /// Held while a commit's pieces are placed, up to the frame that names them.
    spanning: Mutex<()>,
    /// Held while FlowFiles are swapped, so that batches keep their order.
    swapping: Mutex<()>,
    book: Mutex<Book>,
    next_id: AtomicU64,
    /// From this number on more are reserved.
    reserve_due: AtomicU64,
    namespace: u64,
    snapshot_due: AtomicU64,
    content_due: AtomicU64,
    is_snapshotting: AtomicBool,
    folder: Folder,
}

/// Counts for the status.
#[derive(Clone, Copy, Debug)]
pub struct RepositoryStatus {
    /// Bytes of the journals' segments on the disk.
    pub bytes_on_disk: u64,
    /// Bytes of content that FlowFiles still need.
    pub content_bytes: u64,
    /// The most bytes of content that there may be, where there is such a bound.
    pub content_bytes_max: Option<u64>,
    /// FlowFiles of connections that the running flow does not have.
    pub parked: u64,
    /// Provenance events.
    pub provenance: ProvenanceStatus,
    /// Whether the disk had no room when it was last wanted.
    pub is_full: bool,
}

#[derive(Debug, Default)]
struct Book {
    states: BTreeMap<String, Bytes>,
    parked: HashMap<String, Stock>,
    /// FlowFiles on the disk, when new ones are kept in memory only: left alone.
    left_alone: HashMap<String, Stock>,
    active: Vec<Arc<Connection>>,
    /// Bytes of the last snapshot, and FlowFiles in it.
    snapshot_bytes: u64,
    snapshot_flow_files: u64,
    /// Where the last snapshot begins.
    snapshot: Option<Position>,
    /// Where the one before it begins: recovery needs no frame before that.
    snapshot_before: Option<Position>,
}

impl Repository {
    /// Opens the repository in `dir` and rebuilds queues and states from its journal.
    ///
    /// Errors: another process has it open, the disk refuses, the bytes were written by something
    /// else, or FlowFiles wait whose content is in another kind of content repository.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: RepositoryOptions,
    ) -> Result<Arc<Repository>, AgentError> {
        Repository::open_sealed(disk, dir, options, Keyring::default())
    }

    /// As [`Repository::open`], of what is sealed by these keys from now on, or was before. Content
    /// and provenance events stay as they were written until they go; FlowFiles and states are
    /// written anew at once.
    ///
    /// Errors: as there, and a key that something was sealed with is not given.
    pub fn open_sealed(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: RepositoryOptions,
        keyring: Keyring,
    ) -> Result<Arc<Repository>, AgentError> {
        Repository::open_for(Access::Write, disk, dir, options, keyring)
    }

    /// As [`Repository::open_sealed`], of what stands on a file system that is read-only: all of it
    /// can be looked at, and nothing can be committed.
    ///
    /// Errors: as there, and that there is no repository yet.
    pub(crate) fn open_to_read(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: RepositoryOptions,
        keyring: Keyring,
    ) -> Result<Arc<Repository>, AgentError> {
        Repository::open_for(Access::Read, disk, dir, options, keyring)
    }

    fn open_for(
        access: Access,
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: RepositoryOptions,
        keyring: Keyring,
    ) -> Result<Arc<Repository>, AgentError> {
        let keyring = Arc::new(keyring);
        let failed = |source| AgentError::Repository {
            action: "open",
            source,
        };
        let journal_options = journal_options(&options.limits);
        let content_journal = match options.content {
            ContentKind::FileSystem => {
                let dir = dir.join("content");
                let ignore = &mut |_: journal::FrameRef<'_>| Ok(());
                let opened = access.open(&disk, &dir, journal_options, ignore);
                Some(opened.map_err(failed)?.0)
            }
            _ => None,
        };
        let provenance = provenance(access, &disk, dir, options.provenance, &keyring);
        let provenance = provenance.map_err(failed)?;
        let contents = Contents::new(options.limits.hot_bytes_max, Arc::clone(&keyring));
        let content_end = content_journal.as_ref().map(Journal::end);
        let mut replay = Replay::new(&contents, &keyring, content_end, provenance.as_ref());
        let opened = access.open(&disk, dir, journal_options, &mut |frame| {
            replay.frame(frame).map_err(JournalError::refused)
        });
        let (journal, recovery) = opened.map_err(failed)?;
        if let Some(cut) = &recovery.cut {
            tracing::info!(?cut, "the journal's unfinished end was cut off");
        }
        contents.attach(match options.content {
            ContentKind::FileSystem | ContentKind::Database => {
                let own = content_journal.as_ref();
                Store::Journal(own.unwrap_or(&journal).clone())
            }
            ContentKind::Volatile {
                bytes_max,
                count_max,
            } => Store::Volatile(Arena::new(bytes_max, count_max)),
            ContentKind::None => Store::None,
        });
        let contents_of = content_journal.as_ref().unwrap_or(&journal);
        let replayed = replay.finish(options.content, contents_of.start()..contents_of.end());
        report(&replayed, &recovery);
        if let Some(error) = replayed.failed {
            return Err(failed(error));
        }
        let is_outdated = replayed.is_outdated;
        let must_snapshot = replayed.is_cut || options.flow_files != FlowFileKind::Disk;
        let mut book = replayed.book;
        check_kind(&book, options.content)?;
        if options.flow_files != FlowFileKind::Disk {
            book.left_alone = std::mem::take(&mut book.parked);
            if !book.left_alone.is_empty() {
                tracing::warn!(
                    "FlowFiles on the disk are left alone, since the FlowFile repository is \
                     volatile now; start with a FlowFileRepository to have them go on"
                );
            }
        }
        let namespace = namespace(&book);
        let next_id = numbers::next(&book, replayed.next_id);
        let repository = Arc::new(Repository {
            snapshot_due: AtomicU64::new(journal.end().0 + options.limits.snapshot_bytes_min),
            content_due: AtomicU64::new(content_due(content_journal.as_ref(), &options)),
            journal,
            content_journal,
            contents,
            provenance,
            options,
            keyring,
            gate: RwLock::new(()),
            order: Mutex::new(()),
            spanning: Mutex::new(()),
            swapping: Mutex::new(()),
            book: Mutex::new(book),
            next_id: AtomicU64::new(next_id),
            reserve_due: AtomicU64::new(u64::MAX),
            namespace,
            is_snapshotting: AtomicBool::new(false),
            folder: Folder {
                disk,
                dir: dir.to_owned(),
            },
        });
        if access == Access::Read {
            return Ok(repository);
        }
        repository.save_new(NAMESPACE_STATE, &namespace.to_be_bytes())?;
        repository.save_new(CONTENT_STATE, options.content.mark().as_bytes())?;
        if must_snapshot {
            // Frames that never happened must not be read again behind those that come now.
            repository.replace()?;
        }
        if is_outdated {
            // Recovery begins at the snapshot before the last one: then none of these is read again.
            repository.replace()?;
            repository.replace()?;
        }
        repository.reserve_numbers()?;
        Ok(repository)
    }

    /// The bits of this repository in its FlowFiles' uuids.
    pub(crate) fn namespace(&self) -> u64 {
        self.namespace
    }

    /// Where it lies.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// What kinds of repositories these are.
    pub fn options(&self) -> &RepositoryOptions {
        &self.options
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

    fn save_new(&self, key: &str, bytes: &[u8]) -> Result<(), AgentError> {
        if self.state(key).is_some_and(|known| known == bytes) {
            return Ok(());
        }
        self.save_state(key, Bytes::copy_from_slice(bytes))
    }

    /// Ids for `count` new FlowFiles; the first one.
    pub(crate) fn ids(&self, count: u64) -> u64 {
        self.next_id.fetch_add(count, Ordering::Relaxed)
    }

    /// A claim for new content, at `offset` in its session's content.
    pub(crate) fn claim(&self, bytes: Bytes, offset: u64) -> Arc<Claim> {
        self.contents.create(bytes, offset)
    }

    /// The room of volatile content, where that is the content repository.
    pub(crate) fn arena(&self) -> Option<&Arena> {
        self.contents.arena()
    }

    /// Whether provenance events are wanted.
    pub(crate) fn has_provenance(&self) -> bool {
        self.provenance.is_some()
    }

    /// The provenance events that `filter` lets through, oldest first; none where none are kept.
    pub fn provenance_events(&self, filter: &Filter) -> Result<Vec<ProvenanceEvent>, AgentError> {
        let Some(provenance) = &self.provenance else {
            return Ok(Vec::new());
        };
        let events = provenance.events(filter);
        events.map_err(|source| AgentError::Repository {
            action: "read provenance from",
            source,
        })
    }

    /// The uuid of a FlowFile of this repository.
    pub fn uuid(&self, id: FlowFileId) -> String {
        crate::flowfile::uuid(self.namespace, id).to_string()
    }

    /// The FlowFile that has this uuid, if it is one of this repository's.
    pub fn flow_file_of(&self, uuid: &str) -> Option<FlowFileId> {
        let low = uuid::Uuid::try_parse(uuid).ok()?.as_u64_pair().1;
        let id = FlowFileId(low & (u64::MAX >> 2));
        (self.uuid(id) == uuid.to_ascii_lowercase()).then_some(id)
    }

    /// Starts a flow's connections with what was queued in them.
    pub(crate) fn activate(&self, connections: &[Arc<Connection>]) {
        let _gate = self.gate.write();
        let mut book = self.book.lock();
        for connection in connections {
            if let Some(parked) = book.parked.remove(&connection.definition.id) {
                connection.restore(parked);
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
            if queued.count() > 0 {
                let id = connection.definition.id.clone();
                book.parked.entry(id).or_default().append(queued);
            }
        }
        book.active
            .retain(|active| !connections.iter().any(|gone| Arc::ptr_eq(gone, active)));
    }

    /// Drops what waits in the connections that `is_meant` names, running or parked, and waits
    /// until that is durable; how many FlowFiles that were. A crash before leaves them queued.
    pub(crate) fn discard(
        &self,
        now: UnixMillis,
        is_meant: &dyn Fn(&str) -> bool,
    ) -> Result<u64, AgentError> {
        // They hold their content until nothing durable names it.
        let mut gone = Stock::default();
        {
            let mut book = self.book.lock();
            for connection in &book.active {
                if is_meant(&connection.definition.id) {
                    gone.append(connection.discard());
                }
            }
            book.parked.retain(|id, parked| {
                let goes = is_meant(id);
                if goes {
                    gone.append(std::mem::take(parked));
                }
                !goes
            });
        }
        for swapped in &gone.swapped {
            self.drop_swapped(swapped)?;
        }
        let in_memory: Vec<&FlowFile> = gone.in_memory().collect();
        for part in in_memory.chunks(SESSION_FLOW_FILES_MAX) {
            let mut events = Events::default();
            if self.has_provenance() {
                for flow_file in part {
                    events.note(EventKind::Drop, flow_file.id, "cleared by an operator");
                }
            }
            let commit = Commit {
                removed: part.iter().map(|flow_file| flow_file.id).collect(),
                events: events.encode(CONTROLLER, CONTROLLER, now),
                ..Commit::default()
            };
            self.commit_and_wait(commit)?;
        }
        Ok(gone.count())
    }

    /// Counts for the status.
    pub fn status(&self) -> RepositoryStatus {
        let book = self.book.lock();
        let journals = || std::iter::once(&self.journal).chain(&self.content_journal);
        RepositoryStatus {
            bytes_on_disk: journals().map(Journal::bytes_on_disk).sum(),
            content_bytes: self.contents.live_bytes(),
            content_bytes_max: self.contents.arena().map(Arena::bytes_max),
            parked: book.parked.values().map(Stock::count).sum(),
            provenance: self
                .provenance
                .as_ref()
                .map(Provenance::status)
                .unwrap_or_default(),
            is_full: journals().any(Journal::is_full),
        }
    }

    /// Syncs and closes the journals; further commits fail.
    pub fn close(&self) -> Result<(), AgentError> {
        let close = || {
            let content = self.content_journal.as_ref().map_or(Ok(()), Journal::close);
            let provenance = match &self.provenance {
                Some(provenance) => provenance.close(SystemClock.now()),
                None => Ok(()),
            };
            let records = self.journal.close();
            content.and(records).and(provenance)
        };
        close().map_err(|source| AgentError::Repository {
            action: "close",
            source,
        })
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        // Queues hold claims, claims hold the contents, contents hold the journal: cut the ring.
        if let Err(error) = self.close() {
            tracing::debug!(
                error = base::report(&error),
                "the journal was closed before"
            );
        }
    }
}

fn journal_options(limits: &RepositoryLimits) -> JournalOptions {
    let all = JournalOptions::default();
    JournalOptions {
        pending_bytes_max: limits.pending_bytes_max,
        segment_bytes: limits.segment_bytes,
        preallocate_bytes: all.preallocate_bytes.min(limits.segment_bytes),
        reserve_bytes: limits.reserve_bytes.min(limits.segment_bytes / 2),
        spares_max: SPARE_SEGMENTS_MAX,
        unasked_rest: UNASKED_REST,
        ..all
    }
}

fn provenance(
    access: Access,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    kind: ProvenanceKind,
    keyring: &Arc<Keyring>,
) -> Result<Option<Provenance>, JournalError> {
    Ok(match kind {
        ProvenanceKind::Disk { bytes_max, age_max } => {
            let dir = dir.join("provenance");
            let keyring = Arc::clone(keyring);
            let bounds = (bytes_max, age_max);
            Some(Provenance::open(access, disk, &dir, bounds, keyring)?)
        }
        ProvenanceKind::Volatile {
            bytes_max,
            count_max,
        } => Some(Provenance::volatile(bytes_max, count_max)),
        ProvenanceKind::None => None,
    })
}

/// Says what did not survive, each FlowFile by its uuid as far as a log should be long.
fn report(replayed: &Replayed, recovery: &journal::Recovery) {
    if replayed.is_cut {
        tracing::warn!(
            "commits whose content had not reached the disk were undone; none was acknowledged"
        );
    }
    if replayed.only_in_memory > 0 {
        tracing::warn!(
            count = replayed.only_in_memory,
            "FlowFiles were dropped, since their content was in memory only"
        );
    }
    if recovery.damaged_bytes > 0 {
        tracing::error!(
            bytes = recovery.damaged_bytes,
            "bytes of the repository have gone bad on the disk; what they said is lost"
        );
    }
    for (id, attributes) in replayed.lost.iter().take(LOST_LISTED_MAX) {
        let name = attributes.get("filename").unwrap_or_default();
        tracing::error!(
            number = id.0,
            filename = name,
            "a FlowFile's content is gone"
        );
    }
    if !replayed.lost.is_empty() {
        tracing::error!(
            count = replayed.lost.len(),
            "FlowFiles were dropped, since their content is gone"
        );
    }
}

/// Positions in one kind of content repository mean nothing in another.
fn check_kind(book: &Book, kind: ContentKind) -> Result<(), AgentError> {
    let before = kind_before(book);
    let waiting: u64 = book.parked.values().map(Stock::count_with_content).sum();
    if before == kind.mark() || waiting == 0 {
        return Ok(());
    }
    Err(AgentError::Setting(format!(
        "{waiting} FlowFiles wait whose content is in a {before} content repository: start with \
         that one until they are through, or give another data folder"
    )))
}

/// The kind of content repository that positions in the book are of.
fn kind_before(book: &Book) -> &str {
    let mark = book.states.get(CONTENT_STATE);
    mark.map_or(ContentKind::Database.mark(), |bytes| {
        std::str::from_utf8(bytes).unwrap_or_default()
    })
}

fn content_due(journal: Option<&Journal>, options: &RepositoryOptions) -> u64 {
    journal.map_or(u64::MAX, |journal| {
        journal.end().0 + options.limits.content_pinned_bytes_max / 2
    })
}

/// The repository's own bits; new ones where it has none.
fn namespace(book: &Book) -> u64 {
    let known = book.states.get(NAMESPACE_STATE);
    let known = known.and_then(|bytes| bytes.as_ref().try_into().ok());
    known.map_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0, u64::from_be_bytes)
}

/// States whose key is no processor id begin with a dollar sign.
const NAMESPACE_STATE: &str = "$repository";

/// Which kind of content repository claims' positions are of.
const CONTENT_STATE: &str = "$content";

/// FlowFiles without content that are named one by one.
const LOST_LISTED_MAX: usize = 100;
