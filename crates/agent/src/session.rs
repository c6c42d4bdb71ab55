//! A process session: what a processor does in one piece, all of it or nothing.
//!
//! FlowFiles are taken from the incoming connections, changed, made and dropped, and all of that
//! becomes true with one commit: one frame in the journal, then the queues. A rollback puts back
//! what was taken. A FlowFile is moved, never copied, so it cannot be in two places; a commit
//! that would leave one nowhere is refused.

mod commit;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Clock, UnixMillis};
use bytes::Bytes;

use crate::AgentError;
use parking_lot::Mutex;

use crate::content::{Claim, Content, ContentReader, ContentWriter, NoRoom};
use crate::engine::Node;
use crate::expression::Scope;
use crate::flowfile::{Attributes, FILENAME, FlowFile, FlowFileId, Weight};
use crate::limits::{
    CLAIM_BYTES_MAX, CONTENT_PIECE_BYTES, CONTENT_READ_BYTES_MAX, CONTENT_VIEWS_MAX,
    PROCESSOR_STATE_BYTES_MAX, SESSION_ATTRIBUTE_BYTES_MAX, SESSION_CONTENT_BYTES_MAX,
    SESSION_FLOW_FILES_MAX, VOLATILE_WAIT,
};
use crate::processors::ProcessorError;
use crate::provenance::{EventKind, Events, Run};
use crate::repository::{Commit, CommitWait, Repository};

/// One piece of a processor's work.
pub struct ProcessSession<'n> {
    node: &'n Node,
    repository: &'n Repository,
    clock: &'n dyn Clock,
    /// Its number among the sessions of this process.
    number: u64,
    /// FlowFiles that the session holds and has not disposed of.
    held: usize,
    content_bytes: u64,
    /// Attributes of what it sends on.
    attributes: Weight,
    /// New claims that are not written yet.
    claims: Vec<Arc<Claim>>,
    events: Events,
    /// FlowFiles whose content turned out to be damaged.
    damaged: Arc<Mutex<Vec<FlowFileId>>>,
    removed: Vec<FlowFileId>,
    transfers: Vec<Transfer>,
    state: Option<Bytes>,
    /// Whether anything is to be committed.
    is_dirty: bool,
}

/// New content that several FlowFiles view.
#[derive(Clone, Debug)]
pub struct Block(Arc<Claim>);

struct Transfer {
    relationship: usize,
    penalized: bool,
    flow_files: Vec<FlowFile>,
}

impl<'n> ProcessSession<'n> {
    pub(crate) fn new(node: &'n Node, repository: &'n Repository, clock: &'n dyn Clock) -> Self {
        ProcessSession {
            node,
            repository,
            clock,
            number: SESSIONS.fetch_add(1, Ordering::Relaxed),
            held: 0,
            content_bytes: 0,
            attributes: Weight::default(),
            claims: Vec::new(),
            events: Events::default(),
            damaged: Arc::default(),
            removed: Vec::new(),
            transfers: Vec::new(),
            state: None,
            is_dirty: false,
        }
    }

    /// Another session of the same processor, which takes behind this one and is committed on its
    /// own. What is rolled back last stands first in the queue.
    pub fn beside(&self) -> ProcessSession<'n> {
        let mut beside = ProcessSession::new(self.node, self.repository, self.clock);
        beside.damaged = Arc::clone(&self.damaged);
        beside
    }

    /// FlowFiles that wait for the processor, and bytes of their content.
    pub fn waiting(&self) -> (u64, u64) {
        let inputs = self.node.inputs.iter();
        inputs.fold((0, 0), |(count, bytes), input| {
            (count + input.count(), bytes + input.bytes())
        })
    }

    /// The time now.
    pub fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    /// Takes one FlowFile, if there is one.
    pub fn take_one(&mut self) -> Option<FlowFile> {
        self.take(1, u64::MAX).pop()
    }

    /// Takes up to `count_max` FlowFiles of up to `bytes_max` content together (one at least).
    pub fn take(&mut self, count_max: usize, bytes_max: u64) -> Vec<FlowFile> {
        let count_max = count_max.min(SESSION_FLOW_FILES_MAX);
        let now = self.now();
        let mut all: Vec<FlowFile> = Vec::new();
        let mut bytes_left = bytes_max;
        // Loops back first, or a retry loop would fill up behind fresh input.
        for cycles in [true, false] {
            for input in self
                .node
                .inputs
                .iter()
                .filter(|input| input.in_cycle == cycles)
            {
                if all.len() >= count_max || (bytes_left == 0 && !all.is_empty()) {
                    break;
                }
                if input.is_to_swap_in()
                    && let Err(error) = self.repository.swap_in(input)
                {
                    // They stay where they are; a journal that broke says so at the next commit.
                    tracing::error!(error = base::report(&error), "cannot swap FlowFiles in");
                    continue;
                }
                let taken = input.take(self.number, now, count_max - all.len(), bytes_left);
                self.is_dirty |= !taken.expired.is_empty();
                self.happened(EventKind::Expire, &taken.expired, "");
                self.removed.extend(taken.expired);
                let bytes: u64 = taken.flow_files.iter().map(FlowFile::size).sum();
                bytes_left = bytes_left.saturating_sub(bytes);
                if all.is_empty() {
                    all = taken.flow_files;
                } else {
                    all.extend(taken.flow_files);
                }
            }
        }
        self.count_in(&all);
        all
    }

    /// Takes exactly these FlowFiles, wherever they wait; those that are gone are left out.
    pub fn take_these(&mut self, ids: &HashSet<FlowFileId>) -> Vec<FlowFile> {
        let mut all = Vec::new();
        for input in &self.node.inputs {
            all.extend(input.take_these(self.number, ids));
        }
        self.count_in(&all);
        all
    }

    /// Keeps FlowFiles in the processor's hands beyond this session, for a later one to take up
    /// again. They stay in their queue's custody: a crash, a stop and an update find them there.
    pub fn keep(&mut self, flow_files: &[FlowFile]) {
        self.held -= flow_files.len();
        self.pass(flow_files, self.number, KEEPER);
    }

    /// Takes up FlowFiles that were kept: they are this session's now, as if it had taken them.
    pub fn take_up(&mut self, flow_files: &[FlowFile]) {
        self.held += flow_files.len();
        self.pass(flow_files, KEEPER, self.number);
    }

    fn pass(&self, flow_files: &[FlowFile], from: u64, to: u64) {
        let ids: HashSet<FlowFileId> = flow_files.iter().map(FlowFile::id).collect();
        for input in &self.node.inputs {
            input.pass(&ids, from, to);
        }
    }

    /// Makes a FlowFile without content, out of nothing.
    pub fn create(&mut self, attributes: Arc<Attributes>) -> FlowFile {
        let flow_file = self.new_flow_file(attributes, Content::default());
        self.note(&flow_file, EventKind::Create, "");
        flow_file
    }

    /// Makes a FlowFile without content that comes from others: one of several pieces of one, or
    /// what several were put together to.
    pub fn create_child(
        &mut self,
        parents: &[&FlowFile],
        mut attributes: Arc<Attributes>,
    ) -> FlowFile {
        if let Some(first) = parents.first() {
            first.write_down(&mut attributes);
        }
        let flow_file = self.new_flow_file(attributes, Content::default());
        let kind = match parents {
            [_] => EventKind::Fork,
            _ => EventKind::Join,
        };
        self.came_from(kind, flow_file.id, parents.iter().map(|parent| parent.id));
        flow_file
    }

    /// Makes another FlowFile with the same attributes and content.
    pub fn clone_of(&mut self, flow_file: &FlowFile) -> FlowFile {
        let attributes = Arc::clone(&flow_file.attributes);
        let entry = flow_file.entry;
        let clone = FlowFile {
            entry,
            ..self.new_flow_file(attributes, flow_file.content.clone())
        };
        self.came_from(EventKind::Clone, clone.id, [flow_file.id]);
        clone
    }

    /// Takes new content in; FlowFiles come to it by [`Self::set_content`]. More bytes than a
    /// claim holds become several.
    ///
    /// Errors: the content repository has no room now (the session is tried again), or never.
    pub fn content(&mut self, bytes: Bytes) -> Result<Content, ProcessorError> {
        if bytes.len() <= CLAIM_BYTES_MAX {
            return Ok(Content::whole(self.block(bytes)?.0));
        }
        let mut parts = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(CONTENT_PIECE_BYTES));
            parts.push(Content::whole(self.block(piece)?.0));
        }
        Ok(Content::join(parts))
    }

    /// Writes new content ahead of the commit, so that FlowFiles of later sessions may have it,
    /// whatever becomes of this one.
    pub(crate) fn write_ahead(&mut self) -> Result<(), ProcessorError> {
        let claims = std::mem::take(&mut self.claims);
        self.content_bytes = 0;
        if !claims.is_empty() {
            self.repository.spill(&claims)?;
        }
        Ok(())
    }

    /// Adds content that FlowFiles will view, at most [`CLAIM_BYTES_MAX`]. When a session has made
    /// more than a frame should hold, it is written ahead of the commit.
    pub fn block(&mut self, bytes: Bytes) -> Result<Block, ProcessorError> {
        if bytes.len() > CLAIM_BYTES_MAX {
            return Err(ProcessorError::Failed(format!(
                "{} bytes of content are more than one claim takes ({CLAIM_BYTES_MAX})",
                bytes.len()
            )));
        }
        let len = bytes.len() as u64;
        self.reserve(len)?;
        let is_full = self.content_bytes + len > SESSION_CONTENT_BYTES_MAX as u64;
        if is_full {
            self.write_ahead()?;
        }
        self.node
            .stats
            .bytes_written
            .fetch_add(len, Ordering::Relaxed);
        let claim = self.repository.claim(bytes, self.content_bytes);
        self.content_bytes += claim.disk_len();
        self.claims.push(Arc::clone(&claim));
        Ok(Block(claim))
    }

    /// Room in volatile content, waited for: back pressure is no failure.
    fn reserve(&self, bytes: u64) -> Result<(), ProcessorError> {
        let Some(arena) = self.repository.arena() else {
            return Ok(());
        };
        let is_source = self.node.inputs.is_empty();
        match arena.reserve(bytes, is_source, VOLATILE_WAIT) {
            Ok(()) => Ok(()),
            Err(NoRoom::Yet) => Err(AgentError::NoRoom.into()),
            Err(NoRoom::Ever) => Err(ProcessorError::Failed(format!(
                "{bytes} bytes of content are more than the volatile content repository holds \
                 ({} bytes): make it larger or choose one on the disk",
                arena.bytes_max()
            ))),
        }
    }

    /// Makes a FlowFile for each range of `block`: offset and length.
    pub fn create_views(
        &mut self,
        attributes: &Arc<Attributes>,
        block: &Block,
        ranges: impl ExactSizeIterator<Item = (u32, u32)>,
    ) -> Vec<FlowFile> {
        let now = self.now();
        let count = ranges.len() as u64;
        let first = self.repository.ids(count);
        let views = ranges.zip(first..).map(|((offset, len), id)| FlowFile {
            id: FlowFileId(id),
            entry: now,
            attributes: Arc::clone(attributes),
            content: Content::view(Arc::clone(&block.0), offset, len),
        });
        let views: Vec<FlowFile> = views.collect();
        if self.repository.has_provenance() && count > 0 {
            let run = Run {
                first: FlowFileId(first),
                count,
            };
            self.events.run(EventKind::Create, run, "");
        }
        self.held += views.len();
        self.is_dirty = true;
        views
    }

    /// Gives a FlowFile new content.
    pub fn write(&mut self, flow_file: &mut FlowFile, bytes: Bytes) -> Result<(), ProcessorError> {
        let content = self.content(bytes)?;
        self.set_content(flow_file, content)
    }

    /// Writes new content of any size.
    pub fn writer(&mut self) -> ContentWriter<'_, 'n> {
        ContentWriter::new(self)
    }

    /// Gives a FlowFile content that is there already. Very many small pieces are copied together.
    pub fn set_content(
        &mut self,
        flow_file: &mut FlowFile,
        content: Content,
    ) -> Result<(), ProcessorError> {
        let content = self.compact(content)?;
        flow_file.attributes = flow_file.all_attributes();
        flow_file.content = content;
        self.note(flow_file, EventKind::ContentModified, "");
        Ok(())
    }

    fn compact(&mut self, content: Content) -> Result<Content, ProcessorError> {
        let views = content.views().len();
        let mean = content.len() / views.max(1) as u64;
        if views <= CONTENT_VIEWS_MAX || mean > CONTENT_PIECE_BYTES as u64 / 2 {
            return Ok(content);
        }
        let mut reader = ContentReader::new(content, FlowFileId(0), Arc::default());
        let mut writer = self.writer();
        std::io::copy(&mut reader, &mut writer).map_err(|error| {
            ProcessorError::Failed(format!("cannot put content together: {error}"))
        })?;
        writer.finish()
    }

    /// A FlowFile's content, all of it in memory; at most [`CONTENT_READ_BYTES_MAX`].
    pub fn read(&self, flow_file: &FlowFile) -> Result<Bytes, ProcessorError> {
        let len = flow_file.size();
        if len > CONTENT_READ_BYTES_MAX {
            return Err(ProcessorError::Failed(format!(
                "the content of {len} bytes is more than is read in one piece \
                 ({CONTENT_READ_BYTES_MAX} bytes)"
            )));
        }
        let mut reader = self.reader(flow_file);
        let failed = |error: std::io::Error| ProcessorError::Failed(error.to_string());
        let first = reader.piece().map_err(failed)?;
        if first.len() as u64 == len {
            return Ok(first);
        }
        let mut all = Vec::with_capacity(len as usize);
        std::io::Read::read_to_end(&mut reader, &mut all).map_err(failed)?;
        Ok(Bytes::from(all))
    }

    /// A FlowFile's content as a stream, of any size.
    pub fn reader(&self, flow_file: &FlowFile) -> ContentReader {
        self.node
            .stats
            .bytes_read
            .fetch_add(flow_file.size(), Ordering::Relaxed);
        let damaged = Arc::clone(&self.damaged);
        ContentReader::new(flow_file.content.clone(), flow_file.id, damaged)
    }

    /// Replaces a FlowFile's attributes.
    pub fn set_attributes(&mut self, flow_file: &mut FlowFile, mut attributes: Arc<Attributes>) {
        // They may be older than its content.
        if !flow_file.attributes.has_origin() {
            flow_file.write_down(&mut attributes);
        }
        flow_file.attributes = attributes;
        self.is_dirty = true;
        self.note(flow_file, EventKind::AttributesModified, "");
    }

    /// Records what happened to a FlowFile, for provenance; `details` is its transit URI,
    /// relationship or reason. What a session sees by itself is recorded without this.
    pub fn note(&mut self, flow_file: &FlowFile, kind: EventKind, details: &str) {
        if self.repository.has_provenance() {
            self.events.note(kind, flow_file.id, details);
        }
    }

    /// What an expression about `flow_file` sees.
    pub fn scope<'s>(&self, flow_file: &'s FlowFile) -> Scope<'s> {
        Scope {
            attributes: Some(flow_file.attributes()),
            flow_file: Some((flow_file, self.repository.namespace())),
            now: self.now(),
        }
    }

    /// A FlowFile's uuid.
    pub fn uuid(&self, flow_file: &FlowFile) -> String {
        crate::flowfile::uuid(self.repository.namespace(), flow_file.id).to_string()
    }

    /// What names a FlowFile's content: its attribute `filename`, else its uuid.
    pub fn filename<'f>(&self, flow_file: &'f FlowFile) -> Cow<'f, str> {
        let name = flow_file.attribute(FILENAME);
        name.unwrap_or_else(|| Cow::Owned(self.uuid(flow_file)))
    }

    /// A FlowFile's attributes as others are told them, always with a `filename`.
    pub fn all_attributes(&self, flow_file: &FlowFile) -> Arc<Attributes> {
        let mut all = flow_file.all_attributes();
        if all.get(FILENAME).is_none() {
            Arc::make_mut(&mut all).set(FILENAME, self.uuid(flow_file));
        }
        all
    }

    /// Sends a FlowFile on, by the index of the relationship.
    pub fn transfer(&mut self, flow_file: FlowFile, relationship: usize) {
        self.held -= 1;
        self.is_dirty = true;
        self.attributes.add(&flow_file);
        match self.transfers.last_mut() {
            Some(last) if last.relationship == relationship && !last.penalized => {
                last.flow_files.push(flow_file);
            }
            _ => self.transfers.push(Transfer {
                relationship,
                penalized: false,
                flow_files: vec![flow_file],
            }),
        }
    }

    /// Sends FlowFiles on, by the index of the relationship.
    pub fn transfer_all(&mut self, flow_files: Vec<FlowFile>, relationship: usize) {
        self.held -= flow_files.len();
        self.is_dirty |= !flow_files.is_empty();
        flow_files.iter().for_each(|sent| self.attributes.add(sent));
        self.transfers.push(Transfer {
            relationship,
            penalized: false,
            flow_files,
        });
    }

    /// Sends a FlowFile on that nobody sees before the penalization period is over.
    pub fn transfer_penalized(&mut self, flow_file: FlowFile, relationship: usize) {
        self.held -= 1;
        self.is_dirty = true;
        self.attributes.add(&flow_file);
        self.transfers.push(Transfer {
            relationship,
            penalized: true,
            flow_files: vec![flow_file],
        });
    }

    /// Ends FlowFiles.
    pub fn remove_all(&mut self, flow_files: Vec<FlowFile>) {
        self.held -= flow_files.len();
        self.is_dirty |= !flow_files.is_empty();
        let ids: Vec<FlowFileId> = flow_files.iter().map(|flow_file| flow_file.id).collect();
        self.end(ids, "");
    }

    fn end(&mut self, ids: Vec<FlowFileId>, reason: &str) {
        self.happened(EventKind::Drop, &ids, reason);
        self.removed.extend(ids);
    }

    fn happened(&mut self, kind: EventKind, ids: &[FlowFileId], details: &str) {
        if self.repository.has_provenance() {
            for id in ids {
                self.events.note(kind, *id, details);
            }
        }
    }

    fn came_from(
        &mut self,
        kind: EventKind,
        child: FlowFileId,
        parents: impl IntoIterator<Item = FlowFileId>,
    ) {
        if self.repository.has_provenance() {
            self.events.came_from(kind, child, parents);
        }
    }

    fn new_flow_file(&mut self, attributes: Arc<Attributes>, content: Content) -> FlowFile {
        let id = FlowFileId(self.repository.ids(1));
        self.held += 1;
        self.is_dirty = true;
        FlowFile {
            id,
            entry: self.now(),
            attributes,
            content,
        }
    }

    /// The processor's durable state, empty when it has none.
    pub fn state(&self) -> Bytes {
        self.repository.state(&self.node.id).unwrap_or_default()
    }

    /// Sets the processor's state, to be committed with the FlowFiles.
    pub fn set_state(&mut self, state: Bytes) -> Result<(), ProcessorError> {
        if state.len() > PROCESSOR_STATE_BYTES_MAX {
            return Err(ProcessorError::Failed(format!(
                "a state of {} bytes is more than {PROCESSOR_STATE_BYTES_MAX}",
                state.len()
            )));
        }
        self.state = Some(state);
        self.is_dirty = true;
        Ok(())
    }

    /// Puts a state on record at once and waits for the disk, while the session goes on holding
    /// what it took: what a sink does before it acts outside.
    pub fn record_state(&mut self, state: Bytes) -> Result<(), ProcessorError> {
        Ok(self.begin_to_record_state(state)?.wait()?)
    }

    /// As [`Self::record_state`], with the disk still to be waited for.
    pub(crate) fn begin_to_record_state(
        &mut self,
        state: Bytes,
    ) -> Result<CommitWait, ProcessorError> {
        let commit = Commit {
            state: Some((&self.node.id, state)),
            ..Commit::default()
        };
        Ok(self.repository.commit_to_wait_for(commit)?)
    }

    /// Puts back what was taken and forgets the rest.
    pub fn rollback(&mut self) {
        self.reset();
        for input in &self.node.inputs {
            input.give_back(self.number, None);
        }
    }

    /// Drops the FlowFiles whose content turned out to be damaged, after a rollback; says which.
    pub(crate) fn drop_damaged(&mut self) -> Result<Vec<FlowFileId>, ProcessorError> {
        let damaged = std::mem::take(&mut *self.damaged.lock());
        if damaged.is_empty() {
            return Ok(damaged);
        }
        let taken = self.take_these(&damaged.into_iter().collect());
        let ids: Vec<FlowFileId> = taken.iter().map(|flow_file| flow_file.id).collect();
        self.held -= taken.len();
        self.is_dirty = true;
        self.end(ids.clone(), "its content is damaged");
        self.commit()?;
        Ok(ids)
    }

    /// Bytes of attributes of what it sends on, about.
    pub(crate) fn attribute_bytes(&self) -> usize {
        self.attributes.bytes()
    }

    /// Whether it holds so much that it should be committed before it takes more.
    pub(crate) fn is_large(&self) -> bool {
        let sent: usize = self.transfers.iter().map(|t| t.flow_files.len()).sum();
        sent + self.removed.len() >= SESSION_FLOW_FILES_MAX / 2
            || self.content_bytes >= SESSION_CONTENT_BYTES_MAX as u64 / 2
            || self.attributes.bytes() >= SESSION_ATTRIBUTE_BYTES_MAX
    }

    fn count_in(&mut self, flow_files: &[FlowFile]) {
        self.held += flow_files.len();
        let stats = &self.node.stats;
        stats
            .flow_files_in
            .fetch_add(flow_files.len() as u64, Ordering::Relaxed);
        let bytes: u64 = flow_files.iter().map(FlowFile::size).sum();
        stats.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    fn reset(&mut self) {
        self.held = 0;
        self.content_bytes = 0;
        self.attributes = Weight::default();
        self.claims.clear();
        self.events.clear();
        self.removed.clear();
        self.transfers.clear();
        self.state = None;
        self.is_dirty = false;
    }
}

impl Drop for ProcessSession<'_> {
    /// What a session holds that ends by a panic goes back where it was.
    fn drop(&mut self) {
        self.rollback();
    }
}

/// Holds what processors keep between sessions; no session has this number.
const KEEPER: u64 = 0;

/// Counts the sessions of this process.
static SESSIONS: AtomicU64 = AtomicU64::new(1);
