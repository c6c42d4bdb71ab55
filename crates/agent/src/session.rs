//! A process session: what a processor does in one piece, all of it or nothing.
//!
//! FlowFiles are taken from the incoming connections, changed, made and dropped, and all of that
//! becomes true with one commit: one frame in the journal, then the queues. A rollback puts back
//! what was taken. A FlowFile is moved, never copied, so it cannot be in two places; a commit
//! that would leave one nowhere is refused.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Clock, UnixMillis};
use bytes::Bytes;
use journal::Durability;

use crate::AgentError;
use crate::content::Claim;
use crate::engine::Node;
use crate::expression::Scope;
use crate::flowfile::{Attributes, FlowFile, FlowFileId, View};
use crate::limits::{PROCESSOR_STATE_BYTES_MAX, SESSION_CONTENT_BYTES_MAX, SESSION_FLOW_FILES_MAX};
use crate::processors::ProcessorError;
use crate::repository::{Commit, Put, Repository};

/// One piece of a processor's work.
pub struct ProcessSession<'n> {
    node: &'n Node,
    repository: &'n Repository,
    clock: &'n dyn Clock,
    /// FlowFiles that the session holds and has not disposed of.
    held: usize,
    content_bytes: u64,
    claims: Vec<Arc<Claim>>,
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
            held: 0,
            content_bytes: 0,
            claims: Vec::new(),
            removed: Vec::new(),
            transfers: Vec::new(),
            state: None,
            is_dirty: false,
        }
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
                let taken = input.take(now, count_max - all.len(), bytes_left);
                self.is_dirty |= !taken.expired.is_empty();
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
            all.extend(input.take_these(ids));
        }
        self.count_in(&all);
        all
    }

    /// Makes a FlowFile without content.
    pub fn create(&mut self, attributes: Arc<Attributes>) -> FlowFile {
        let id = FlowFileId(self.repository.ids(1));
        self.held += 1;
        self.is_dirty = true;
        FlowFile {
            id,
            entry: self.now(),
            attributes,
            content: None,
        }
    }

    /// Makes another FlowFile with the same attributes and content.
    pub fn clone_of(&mut self, flow_file: &FlowFile) -> FlowFile {
        let id = FlowFileId(self.repository.ids(1));
        self.held += 1;
        self.is_dirty = true;
        FlowFile {
            id,
            ..flow_file.twin()
        }
    }

    /// Adds content that FlowFiles will view; up to so much in one session.
    pub fn block(&mut self, bytes: Bytes) -> Result<Block, ProcessorError> {
        let total = self.content_bytes + bytes.len() as u64;
        if total > SESSION_CONTENT_BYTES_MAX as u64 {
            return Err(ProcessorError::Failed(format!(
                "{total} bytes of content are more than one session takes \
                 ({SESSION_CONTENT_BYTES_MAX})"
            )));
        }
        let stats = &self.node.stats;
        stats
            .bytes_written
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let claim = self.repository.claim(bytes, self.content_bytes);
        self.content_bytes = total;
        self.claims.push(Arc::clone(&claim));
        Ok(Block(claim))
    }

    /// Makes a FlowFile for each range of `block`: offset and length.
    pub fn create_views(
        &mut self,
        attributes: &Arc<Attributes>,
        block: &Block,
        ranges: impl ExactSizeIterator<Item = (u32, u32)>,
    ) -> Vec<FlowFile> {
        let now = self.now();
        let first = self.repository.ids(ranges.len() as u64);
        let views = ranges.zip(first..).map(|((offset, len), id)| FlowFile {
            id: FlowFileId(id),
            entry: now,
            attributes: Arc::clone(attributes),
            content: Some(View {
                claim: Arc::clone(&block.0),
                offset,
                len,
            }),
        });
        let views: Vec<FlowFile> = views.collect();
        self.held += views.len();
        self.is_dirty = true;
        views
    }

    /// Gives a FlowFile new content.
    pub fn write(&mut self, flow_file: &mut FlowFile, bytes: Bytes) -> Result<(), ProcessorError> {
        if bytes.is_empty() {
            flow_file.content = None;
            return Ok(());
        }
        let block = self.block(bytes)?;
        let len = block.0.len();
        flow_file.content = Some(View {
            claim: block.0,
            offset: 0,
            len,
        });
        Ok(())
    }

    /// A FlowFile's content.
    pub fn read(&self, flow_file: &FlowFile) -> Result<Bytes, ProcessorError> {
        let Some(view) = &flow_file.content else {
            return Ok(Bytes::new());
        };
        self.node
            .stats
            .bytes_read
            .fetch_add(u64::from(view.len), Ordering::Relaxed);
        view.claim.read(view.offset, view.len).map_err(|source| {
            ProcessorError::Repository(AgentError::Repository {
                action: "read from",
                source,
            })
        })
    }

    /// Replaces a FlowFile's attributes.
    pub fn set_attributes(&self, flow_file: &mut FlowFile, attributes: Arc<Attributes>) {
        flow_file.attributes = attributes;
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

    /// Sends a FlowFile on, by the index of the relationship.
    pub fn transfer(&mut self, flow_file: FlowFile, relationship: usize) {
        self.held -= 1;
        self.is_dirty = true;
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
        self.removed
            .extend(flow_files.iter().map(|flow_file| flow_file.id));
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
        let commit = Commit {
            state: Some((&self.node.id, state)),
            ..Commit::default()
        };
        Ok(self.repository.commit_and_wait(commit)?)
    }

    /// Makes everything so far true; durable in order, without waiting for the disk.
    pub fn commit(&mut self) -> Result<(), ProcessorError> {
        self.commit_as(Durability::Disk)
    }

    /// As [`Self::commit`], but the disk gets it with the next commit that asks for it: for what
    /// would only be done once more if it were lost.
    pub fn commit_lazily(&mut self) -> Result<(), ProcessorError> {
        self.commit_as(Durability::Os)
    }

    /// Puts back what was taken and forgets the rest.
    pub fn rollback(&mut self) {
        self.reset();
        for input in &self.node.inputs {
            input.give_back(None);
        }
    }

    fn commit_as(&mut self, need: Durability) -> Result<(), ProcessorError> {
        if self.held > 0 {
            return Err(ProcessorError::Failed(format!(
                "{} FlowFiles were neither transferred nor removed",
                self.held
            )));
        }
        if !self.is_dirty {
            return Ok(());
        }
        let puts = self.resolve();
        let commit = Commit {
            state: self
                .state
                .take()
                .map(|state| (self.node.id.as_str(), state)),
            removed: std::mem::take(&mut self.removed),
            puts,
            claims: std::mem::take(&mut self.claims),
            inputs: &self.node.inputs,
            ends: true,
        };
        self.reset();
        Ok(self.repository.commit(commit, need)?)
    }

    /// Turns relationships into connections; further connections of one get clones.
    fn resolve(&mut self) -> Vec<Put> {
        let mut puts: Vec<Put> = Vec::new();
        let now = self.now();
        for transfer in std::mem::take(&mut self.transfers) {
            let stats = &self.node.stats;
            stats
                .flow_files_out
                .fetch_add(transfer.flow_files.len() as u64, Ordering::Relaxed);
            let bytes: u64 = transfer.flow_files.iter().map(FlowFile::size).sum();
            stats.bytes_out.fetch_add(bytes, Ordering::Relaxed);
            let penalized = transfer.penalized.then(|| now + self.node.penalization);
            let connections = &self.node.outputs[transfer.relationship];
            let Some((last, others)) = connections.split_last() else {
                // Auto-terminated.
                self.removed
                    .extend(transfer.flow_files.iter().map(|flow_file| flow_file.id));
                continue;
            };
            for connection in others {
                let mut clones: Vec<FlowFile> = Vec::new();
                let first = self.repository.ids(transfer.flow_files.len() as u64);
                for (flow_file, id) in transfer.flow_files.iter().zip(first..) {
                    clones.push(FlowFile {
                        id: FlowFileId(id),
                        ..flow_file.twin()
                    });
                }
                self.put(&mut puts, connection, clones, penalized);
            }
            self.put(&mut puts, last, transfer.flow_files, penalized);
        }
        puts
    }

    fn put(
        &mut self,
        puts: &mut Vec<Put>,
        connection: &Arc<crate::connection::Connection>,
        mut flow_files: Vec<FlowFile>,
        penalized: Option<UnixMillis>,
    ) {
        if connection.definition.drop_empty {
            let removed = &mut self.removed;
            flow_files.retain(|flow_file| {
                let is_empty = flow_file.size() == 0;
                if is_empty {
                    removed.push(flow_file.id);
                }
                !is_empty
            });
        }
        if flow_files.is_empty() {
            return;
        }
        match puts.last_mut() {
            Some(last)
                if Arc::ptr_eq(&last.connection, connection) && last.penalized == penalized =>
            {
                last.flow_files.append(&mut flow_files);
            }
            _ => puts.push(Put {
                connection: Arc::clone(connection),
                flow_files,
                penalized,
            }),
        }
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
        self.claims.clear();
        self.removed.clear();
        self.transfers.clear();
        self.state = None;
        self.is_dirty = false;
    }
}
