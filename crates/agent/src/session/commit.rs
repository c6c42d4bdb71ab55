//! The end of a session: relationships become connections, and all of it becomes true at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::UnixMillis;
use journal::Durability;

use super::ProcessSession;
use crate::connection::Connection;
use crate::flowfile::{FlowFile, FlowFileId};
use crate::processors::ProcessorError;
use crate::provenance::EventKind;
use crate::repository::{Commit, Put};

impl ProcessSession<'_> {
    /// Makes everything so far true; durable in order, without waiting for the disk.
    pub fn commit(&mut self) -> Result<(), ProcessorError> {
        self.commit_as(Durability::Disk, false)
    }

    /// Makes everything so far true and waits until it is durable: what a source does before it
    /// deletes, acknowledges or answers.
    pub fn commit_and_wait(&mut self) -> Result<(), ProcessorError> {
        self.commit_as(Durability::Disk, true)
    }

    /// As [`Self::commit`], but the disk gets it with the next commit that asks for it: for what
    /// would only be done once more if it were lost.
    pub fn commit_lazily(&mut self) -> Result<(), ProcessorError> {
        self.commit_as(Durability::Os, false)
    }

    fn commit_as(&mut self, need: Durability, waits: bool) -> Result<(), ProcessorError> {
        if self.held > 0 {
            return Err(ProcessorError::Failed(format!(
                "{} FlowFiles were neither transferred nor removed",
                self.held
            )));
        }
        let sent = self.transfers.iter();
        let mut sent = sent.filter(|transfer| !transfer.flow_files.is_empty());
        if let Some(name) = sent.find_map(|sent| self.node.loose[sent.relationship].as_deref()) {
            return Err(ProcessorError::Failed(format!(
                "FlowFiles go to '{name}', which is neither connected nor auto-terminated"
            )));
        }
        if !self.is_dirty {
            // What earlier commits of this session did may still be on its way.
            return match waits {
                true => Ok(self.repository.wait_for_disk()?),
                false => Ok(()),
            };
        }
        let puts = self.resolve();
        let kind = self.node.kind_name();
        let commit = Commit {
            state: self
                .state
                .take()
                .map(|state| (self.node.id.as_str(), state)),
            removed: std::mem::take(&mut self.removed),
            puts,
            claims: std::mem::take(&mut self.claims),
            events: self.events.encode(&self.node.id, kind, self.now()),
            inputs: &self.node.inputs,
            session: self.number,
            ends: true,
        };
        self.reset();
        let outcome = if waits {
            self.repository.commit_and_wait(commit)
        } else {
            self.repository.commit(commit, need)
        };
        outcome.map_err(ProcessorError::from)
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
                let ended = transfer.flow_files.iter();
                let ids: Vec<FlowFileId> = ended.map(|flow_file| flow_file.id).collect();
                self.end(ids, "auto-terminated");
                continue;
            };
            for connection in others {
                let mut clones: Vec<FlowFile> = Vec::new();
                let first = self.repository.ids(transfer.flow_files.len() as u64);
                for (flow_file, id) in transfer.flow_files.iter().zip(first..) {
                    self.came_from(EventKind::Clone, FlowFileId(id), [flow_file.id]);
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
        connection: &Arc<Connection>,
        mut flow_files: Vec<FlowFile>,
        penalized: Option<UnixMillis>,
    ) {
        if connection.definition.drop_empty {
            let mut empty = Vec::new();
            flow_files.retain(|flow_file| {
                if flow_file.size() == 0 {
                    empty.push(flow_file.id);
                }
                flow_file.size() > 0
            });
            self.end(empty, "it is empty");
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
}
