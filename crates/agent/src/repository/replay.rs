//! Rebuilds the repository from its frames, in their order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use journal::{FrameRef, Position};

use super::Book;
use crate::content::{Claim, Contents};
use crate::flowfile::{Attributes, FlowFile, FlowFileId, View};
use crate::records::{self, ClaimAt, RecordError, Visit};

/// Rebuilds the repository from its frames.
pub(super) struct Replay<'c> {
    contents: &'c Arc<Contents>,
    now: Table,
    staging: Option<Table>,
    next_id: u64,
    // Of the frame and group that are being read:
    content_start: Position,
    is_staged: bool,
    group: Group,
}

#[derive(Default)]
struct Table {
    states: BTreeMap<String, Bytes>,
    flow_files: HashMap<u64, Slot>,
    connections: Vec<Arc<str>>,
    claims: HashMap<Position, Arc<Claim>>,
    last: u64,
}

struct Slot {
    order: u64,
    connection: u32,
    entry: UnixMillis,
    attributes: Arc<Attributes>,
    content: Option<View>,
}

#[derive(Default)]
struct Group {
    connection: u32,
    entry: UnixMillis,
    attributes: Arc<Attributes>,
    claim: Option<Arc<Claim>>,
}

/// What the frames came to.
pub(super) struct Replayed {
    pub(super) book: Book,
    pub(super) next_id: u64,
    /// FlowFiles whose content is not in the journal any more.
    pub(super) lost: u64,
}

impl<'c> Replay<'c> {
    pub(super) fn new(contents: &'c Arc<Contents>) -> Self {
        Replay {
            contents,
            now: Table::default(),
            staging: None,
            next_id: 0,
            content_start: Position(0),
            is_staged: false,
            group: Group::default(),
        }
    }

    pub(super) fn frame(&mut self, frame: FrameRef<'_>) -> Result<(), RecordError> {
        match frame.kind {
            records::COMMIT => {
                // A commit behind a snapshot without an end: that snapshot was never finished.
                self.staging = None;
                self.is_staged = false;
                let (operations, content) = records::split(frame.payload)?;
                self.content_start = Position(frame.payload_position().0 + content);
                records::read(operations, self)
            }
            records::SNAPSHOT => {
                let Some((&flags, rest)) = frame.payload.split_first() else {
                    return Ok(());
                };
                if flags & records::BEGINS != 0 {
                    self.staging = Some(Table::default());
                }
                if self.staging.is_none() {
                    return Ok(());
                }
                self.is_staged = true;
                let (operations, _) = records::split(rest)?;
                records::read(operations, self)?;
                if flags & records::ENDS != 0
                    && let Some(whole) = self.staging.take()
                {
                    self.now = whole;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn table(&mut self) -> &mut Table {
        match &mut self.staging {
            Some(staging) if self.is_staged => staging,
            _ => &mut self.now,
        }
    }

    pub(super) fn finish(self, start: Position, end: Position) -> Replayed {
        let mut slots: Vec<(u64, Slot)> = self.now.flow_files.into_iter().collect();
        slots.sort_unstable_by_key(|(_, slot)| slot.order);
        let mut book = Book {
            states: self.now.states,
            ..Book::default()
        };
        let mut lost = 0;
        for (id, slot) in slots {
            let is_there = slot
                .content
                .as_ref()
                .is_none_or(|view| match view.claim.locate() {
                    ClaimAt::At { position, len } => {
                        position >= start && position.0 + u64::from(len) <= end.0
                    }
                    _ => false,
                });
            if !is_there {
                lost += 1;
                continue;
            }
            let connection = self.now.connections[slot.connection as usize].to_string();
            book.parked
                .entry(connection)
                .or_default()
                .push_back(FlowFile {
                    id: FlowFileId(id),
                    entry: slot.entry,
                    attributes: slot.attributes,
                    content: slot.content,
                });
        }
        Replayed {
            book,
            next_id: self.next_id,
            lost,
        }
    }
}

impl Visit for Replay<'_> {
    fn state(&mut self, processor: &str, bytes: &[u8]) {
        self.table()
            .states
            .insert(processor.to_owned(), Bytes::copy_from_slice(bytes));
    }

    fn remove(&mut self, first: u64, count: u64) {
        let table = self.table();
        // A damaged count must not become a long walk.
        if count > table.flow_files.len() as u64 {
            table
                .flow_files
                .retain(|id, _| id.wrapping_sub(first) >= count);
            return;
        }
        for id in first..first.saturating_add(count) {
            table.flow_files.remove(&id);
        }
    }

    fn group(&mut self, connection: &str, attributes: Attributes, entry: UnixMillis, at: ClaimAt) {
        let contents = Arc::clone(self.contents);
        let content_start = self.content_start;
        let table = self.table();
        let known = table
            .connections
            .iter()
            .position(|name| name.as_ref() == connection);
        let connection = known.unwrap_or_else(|| {
            table.connections.push(Arc::from(connection));
            table.connections.len() - 1
        });
        let (position, len) = match at {
            ClaimAt::None => (None, 0),
            ClaimAt::Here { offset, len } => (Some(Position(content_start.0 + offset)), len),
            ClaimAt::At { position, len } => (Some(position), len),
        };
        let claim = position.map(|position| {
            let known = table.claims.get(&position);
            let claim = known
                .cloned()
                .unwrap_or_else(|| contents.recovered(position, len));
            table.claims.insert(position, Arc::clone(&claim));
            claim
        });
        let attributes = Arc::new(attributes);
        self.group = Group {
            connection: connection as u32,
            entry,
            attributes,
            claim,
        };
    }

    fn put(&mut self, id: u64, offset: u32, len: u32) {
        self.next_id = self.next_id.max(id.saturating_add(1));
        let content = self.group.claim.as_ref().map(|claim| View {
            claim: Arc::clone(claim),
            offset,
            len,
        });
        let (connection, entry) = (self.group.connection, self.group.entry);
        let attributes = Arc::clone(&self.group.attributes);
        let table = self.table();
        table.last += 1;
        let order = table.last;
        table.flow_files.insert(
            id,
            Slot {
                order,
                connection,
                entry,
                attributes,
                content,
            },
        );
    }

    fn counter(&mut self, next: u64) {
        self.next_id = self.next_id.max(next);
    }

    fn moved(&mut self, from: Position, offset: u64, _len: u32) {
        let to = Position(self.content_start.0 + offset);
        let contents = Arc::clone(self.contents);
        let table = self.table();
        if let Some(claim) = table.claims.remove(&from) {
            contents.move_to(&claim, to);
            table.claims.insert(to, claim);
        }
    }
}
