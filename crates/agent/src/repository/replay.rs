//! Rebuilds the repository from its frames, in their order.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use journal::{FrameRef, JournalError, Position};

use super::head::{self, FrameError};
use super::pieces::Pieces;
use super::slots::Slots;
use super::{Book, ContentKind, Stock, Swapped, kind_before, swap};
use crate::content::{Claim, Content, Contents, View};
use crate::flowfile::{Attributes, FlowFile, FlowFileId};
use crate::limits::SWAP_BATCH_FLOW_FILES;
use crate::provenance::Provenance;
use crate::records::{self, Check, ClaimAt, Group, RecordError, SwapAt, ViewAt, Visit};
use crate::sealing::Keyring;

/// Rebuilds the repository from its frames.
pub(super) struct Replay<'c> {
    contents: &'c Arc<Contents>,
    keyring: &'c Keyring,
    /// The end of content's own journal, where it has one.
    content_end: Option<Position>,
    provenance: Option<&'c Provenance>,
    now: Table,
    staging: Option<Table>,
    parts: u64,
    /// Pieces of a commit that has not come yet.
    pieces: Pieces,
    next_id: u64,
    is_cut: bool,
    /// Whether frames stand there that would be sealed otherwise now.
    is_outdated: bool,
    // Of the frame and group that are being read:
    frame: Position,
    content_start: Position,
    is_staged: bool,
    /// What this frame puts comes back to where it stood, from this order on.
    back: Option<i64>,
    together: Together,
    /// The frame's blocks of events that are to be taken again.
    taking: Vec<Vec<u8>>,
    /// The snapshot that is read lacks a part.
    is_broken: bool,
    failed: Option<JournalError>,
}

#[derive(Default)]
struct Table {
    states: BTreeMap<String, Bytes>,
    flow_files: Slots<Slot>,
    swapped: Vec<SwapSlot>,
    connections: Vec<Arc<str>>,
    claims: HashMap<Position, Arc<Claim>>,
    last: i64,
}

/// FlowFiles that are written away. They stand at this order and right below it, where they stand
/// again when they come back: before them may be what a session still holds of an earlier batch.
struct SwapSlot {
    order: i64,
    connection: u32,
    position: Position,
    count: u64,
    bytes: u64,
    lowest: Option<Position>,
}

struct Slot {
    order: i64,
    connection: u32,
    entry: UnixMillis,
    attributes: Arc<Attributes>,
    content: Content,
    /// Its content was in memory only.
    is_gone: bool,
}

/// What the FlowFiles of a group have in common.
#[derive(Clone, Default)]
struct Together {
    connection: u32,
    entry: UnixMillis,
    attributes: Arc<Attributes>,
    claim: Option<Arc<Claim>>,
    is_gone: bool,
}

/// What the frames came to.
pub(super) struct Replayed {
    pub(super) book: Book,
    pub(super) next_id: u64,
    /// FlowFiles whose content is not in the journal any more.
    pub(super) lost: Vec<(FlowFileId, Arc<Attributes>)>,
    /// FlowFiles whose content was in memory only.
    pub(super) only_in_memory: u64,
    /// Why it cannot be replayed, if so.
    pub(super) failed: Option<JournalError>,
    /// Whether frames at the end were passed over, since their content had not reached the disk.
    pub(super) is_cut: bool,
    /// Whether frames stand there that would be sealed otherwise now.
    pub(super) is_outdated: bool,
}

impl Table {
    /// The index of a connection's name.
    fn connection(&mut self, name: &str) -> u32 {
        let known = self.connections.iter();
        let known = known.clone().position(|known| known.as_ref() == name);
        let index = known.unwrap_or_else(|| {
            self.connections.push(Arc::from(name));
            self.connections.len() - 1
        });
        index as u32
    }

    /// The last of as many new orders as a batch has FlowFiles.
    fn room_for(&mut self, count: u64) -> i64 {
        self.last += room(count);
        self.last
    }

    fn swap(&mut self, order: i64, position: Position, swap: SwapAt<'_>) {
        let connection = self.connection(swap.connection);
        self.swapped.push(SwapSlot {
            order,
            connection,
            position,
            count: swap.count,
            bytes: swap.bytes,
            lowest: swap.lowest,
        });
    }
}

impl<'c> Replay<'c> {
    pub(super) fn new(
        contents: &'c Arc<Contents>,
        keyring: &'c Keyring,
        content_end: Option<Position>,
        provenance: Option<&'c Provenance>,
    ) -> Self {
        Replay {
            contents,
            keyring,
            content_end,
            provenance,
            now: Table::default(),
            staging: None,
            parts: 0,
            pieces: Pieces::default(),
            next_id: 0,
            is_cut: false,
            is_outdated: false,
            frame: Position(0),
            content_start: Position(0),
            is_staged: false,
            back: None,
            together: Together::default(),
            taking: Vec::new(),
            is_broken: false,
            failed: None,
        }
    }

    pub(super) fn frame(&mut self, frame: FrameRef<'_>) -> Result<(), FrameError> {
        self.frame = frame.position;
        self.back = None;
        match frame.kind {
            records::COMMIT | records::PIECE if self.is_cut => Ok(()),
            records::COMMIT => self.commit(frame),
            records::PIECE => self.piece(frame),
            records::SNAPSHOT => self.snapshot(frame),
            _ => Ok(()),
        }
    }

    fn commit(&mut self, frame: FrameRef<'_>) -> Result<(), FrameError> {
        // A commit behind a snapshot without an end: that snapshot was never finished.
        self.staging = None;
        self.is_staged = false;
        self.is_outdated |= !head::is_current(self.keyring, frame.payload);
        let (operations, content) = head::split(self.keyring, frame.payload)?;
        if self.lacks_content(&operations)? {
            self.is_cut = true;
            return Ok(());
        }
        let pieces = match records::needed_pieces(&operations)? {
            None => Vec::new(),
            Some((first, count)) => {
                let Some(pieces) = self.pieces.take(first, count) else {
                    tracing::error!(
                        position = frame.position.0,
                        "a commit is lost, since a piece of it has gone bad on the disk"
                    );
                    return Ok(());
                };
                pieces
            }
        };
        self.content_start = Position(frame.payload_position().0 + content);
        for piece in &pieces {
            records::read(piece, self)?;
        }
        records::read(&operations, self)?;
        if let Some(provenance) = self.provenance {
            provenance.take(frame.position, std::mem::take(&mut self.taking));
        }
        Ok(())
    }

    /// Keeps a piece for the commit that names it.
    fn piece(&mut self, frame: FrameRef<'_>) -> Result<(), FrameError> {
        self.is_outdated |= !head::is_current(self.keyring, frame.payload);
        let (operations, _) = head::split(self.keyring, frame.payload)?;
        let (index, first) = records::piece_of(&operations)?;
        let operations = operations.into_owned();
        self.pieces.push(frame.position, index, first, operations);
        Ok(())
    }

    fn snapshot(&mut self, frame: FrameRef<'_>) -> Result<(), FrameError> {
        let Some((&flags, rest)) = frame.payload.split_first() else {
            return Ok(());
        };
        self.is_outdated |= !head::is_current(self.keyring, rest);
        let (operations, _) = head::split(self.keyring, rest)?;
        if flags & records::BEGINS != 0 {
            // Those of a commit that was not finished.
            self.pieces = Pieces::default();
            let is_whole = !self.lacks_content(&operations)?;
            self.staging = is_whole.then(Table::default);
            self.parts = 0;
            self.is_broken = false;
        }
        if self.staging.is_none() {
            return Ok(());
        }
        self.is_staged = true;
        records::read(&operations, self)?;
        if flags & records::ENDS != 0
            && let Some(whole) = self.staging.take()
        {
            if !self.is_broken {
                self.now = whole;
                // What never happened before it is replaced with all the rest.
                self.is_cut = false;
            }
            self.is_staged = false;
        }
        Ok(())
    }

    /// Whether a frame leans on content that is not there.
    fn lacks_content(&self, operations: &[u8]) -> Result<bool, RecordError> {
        let needed = records::needed_content(operations)?;
        Ok(needed
            .zip(self.content_end)
            .is_some_and(|(needed, end)| needed > end))
    }

    fn table(&mut self) -> &mut Table {
        match &mut self.staging {
            Some(staging) if self.is_staged => staging,
            _ => &mut self.now,
        }
    }

    /// `there` are the positions of content in a content repository of this kind.
    pub(super) fn finish(self, kind: ContentKind, there: Range<Position>) -> Replayed {
        let mut swapped = self.now.swapped;
        swapped.sort_unstable_by_key(|swap| swap.order);
        // Where the first batch of each connection stands: before it is the head.
        let mut first_batch: HashMap<u32, i64> = HashMap::new();
        for swap in &swapped {
            first_batch.entry(swap.connection).or_insert(swap.order);
        }
        let names = self.now.connections;
        let mut stocks: Vec<Stock> = names.iter().map(|_| Stock::default()).collect();
        let mut replayed = Replayed {
            book: Book {
                states: self.now.states,
                ..Book::default()
            },
            next_id: self.next_id,
            lost: Vec::new(),
            only_in_memory: 0,
            failed: self.failed,
            is_cut: self.is_cut,
            is_outdated: self.is_outdated,
        };
        // Of another kind it is not known; then it is refused.
        let is_known = kind_before(&replayed.book) == kind.mark();
        let is_there = |view: &View| match view.claim.locate() {
            ClaimAt::At { position, .. } => {
                let end = position.0 + view.claim.disk_len();
                !is_known || (position >= there.start && end <= there.end.0)
            }
            _ => false,
        };
        for (id, slot) in self.now.flow_files.in_order_of(|slot| slot.order) {
            let id = FlowFileId(id);
            if slot.is_gone {
                replayed.only_in_memory += 1;
                continue;
            }
            if !slot.content.views().iter().all(is_there) {
                replayed.lost.push((id, slot.attributes));
                continue;
            }
            let stock = &mut stocks[slot.connection as usize];
            let first_batch = first_batch.get(&slot.connection);
            let is_behind = first_batch.is_some_and(|first| slot.order > *first);
            let queue = match is_behind {
                true => &mut stock.tail,
                false => &mut stock.head,
            };
            queue.push_back(FlowFile {
                id,
                entry: slot.entry,
                attributes: slot.attributes,
                content: slot.content,
            });
        }
        for swap in swapped {
            let at = SwapAt {
                connection: &names[swap.connection as usize],
                count: swap.count,
                bytes: swap.bytes,
                lowest: swap.lowest,
            };
            let swapped = Swapped::new(self.contents, swap.position, at);
            stocks[swap.connection as usize].swapped.push_back(swapped);
        }
        let stocks = names.iter().map(|name| name.to_string()).zip(stocks);
        replayed.book.parked = stocks.filter(|(_, stock)| stock.count() > 0).collect();
        replayed
    }

    /// What is common to a group, but for its claim.
    fn together(&mut self, group: Group<'_>) -> Together {
        Together {
            connection: self.table().connection(group.connection),
            entry: group.entry,
            attributes: group.attributes,
            claim: None,
            is_gone: false,
        }
    }

    fn claim(&mut self, at: ClaimAt, check: Check) -> Option<Arc<Claim>> {
        let (position, len) = match at {
            ClaimAt::None | ClaimAt::Memory { .. } => return None,
            ClaimAt::Here { offset, len } => (Position(self.content_start.0 + offset), len),
            ClaimAt::At { position, len } => (position, len),
        };
        let contents = Arc::clone(self.contents);
        let table = self.table();
        let claim = table
            .claims
            .entry(position)
            .or_insert_with(|| contents.recovered(position, len, check));
        Some(Arc::clone(claim))
    }

    fn insert(&mut self, id: u64, together: &Together, content: Content) {
        self.next_id = self.next_id.max(id.saturating_add(1));
        let back = self.back.as_mut().map(|next| {
            *next += 1;
            *next
        });
        let table = self.table();
        table.last += 1;
        let slot = Slot {
            order: back.unwrap_or(table.last),
            connection: together.connection,
            entry: together.entry,
            attributes: Arc::clone(&together.attributes),
            content,
            is_gone: together.is_gone,
        };
        table.flow_files.insert(id, slot);
    }
}

impl Visit for Replay<'_> {
    fn state(&mut self, processor: &str, bytes: &[u8]) {
        self.table()
            .states
            .insert(processor.to_owned(), Bytes::copy_from_slice(bytes));
    }

    fn remove(&mut self, first: u64, count: u64) {
        self.table().flow_files.remove_range(first, count);
    }

    fn group(&mut self, group: Group<'_>, at: ClaimAt, check: Check) {
        let mut together = self.together(group);
        together.claim = self.claim(at, check);
        together.is_gone = matches!(at, ClaimAt::Memory { .. });
        self.together = together;
    }

    fn put(&mut self, id: u64, offset: u32, len: u32) {
        let together = self.together.clone();
        let content = match &together.claim {
            Some(claim) => Content::view(Arc::clone(claim), offset, len),
            None => Content::default(),
        };
        self.insert(id, &together, content);
    }

    fn rope(&mut self, group: Group<'_>, id: u64, views: &[ViewAt]) {
        let mut together = self.together(group);
        let mut parts = Vec::with_capacity(views.len());
        for view in views {
            match self.claim(view.at, view.check) {
                Some(claim) => parts.push(View {
                    claim,
                    offset: view.offset,
                    len: view.len,
                }),
                None => together.is_gone = true,
            }
        }
        self.insert(id, &together, Content::of_views(parts));
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

    fn copied(&mut self, from: Position, to: Position) {
        let contents = Arc::clone(self.contents);
        let table = self.table();
        if let Some(claim) = table.claims.remove(&from) {
            contents.move_to(&claim, to);
            table.claims.insert(to, claim);
        }
    }

    fn events(&mut self, events: &[u8]) {
        let Some(provenance) = self.provenance else {
            return;
        };
        if self.frame > provenance.last() {
            self.taking.push(events.to_vec());
        }
    }

    fn part(&mut self, index: u64) {
        // Where one has gone bad, what stood before the snapshot still holds.
        self.is_broken |= index != self.parts;
        self.parts += 1;
    }

    fn swap_out(&mut self, swap: SwapAt<'_>, puts: &[u8]) {
        let position = self.frame;
        let ids = match swap::ids_of(puts) {
            Ok(ids) => ids,
            Err(error) => {
                self.failed.get_or_insert(JournalError::refused(error));
                return;
            }
        };
        let table = self.table();
        let gone = ids.iter().filter_map(|id| table.flow_files.remove(*id));
        // It stands where its last FlowFile stood: what came later may have been put before this.
        let order = gone.map(|slot| slot.order).max();
        let order = order.unwrap_or_else(|| table.room_for(swap.count));
        table.swap(order, position, swap);
        if let Some(next) = ids.iter().max() {
            self.next_id = self.next_id.max(next.saturating_add(1));
        }
    }

    fn swapped(&mut self, position: Position, swap: SwapAt<'_>) {
        let table = self.table();
        let order = table.room_for(swap.count);
        table.swap(order, position, swap);
    }

    fn swap_in(&mut self, position: Position) {
        let table = self.table();
        let Some(at) = table
            .swapped
            .iter()
            .position(|swap| swap.position == position)
        else {
            return;
        };
        let swap = table.swapped.remove(at);
        self.back = Some(swap.order - room(swap.count));
    }
}

/// Orders that a batch takes; a damaged count is no batch's.
fn room(count: u64) -> i64 {
    count.min(SWAP_BATCH_FLOW_FILES as u64) as i64
}
