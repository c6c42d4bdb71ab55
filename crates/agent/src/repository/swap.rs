//! Long queues out of memory: FlowFiles written away in batches, and back.
//!
//! A batch is one frame of the records' journal, which says at once that these FlowFiles are there
//! and no longer among the others. What comes back is put again, at its connection's front. A
//! batch keeps its frame and its content from being reclaimed; its content is not moved.

use std::collections::VecDeque;
use std::sync::Arc;

use journal::{Done, Durability, JournalError, Position};

use super::commit::{append_when_room, commit_frame};
use super::head::FrameError;
use super::{FlowFileKind, Repository, head};
use crate::AgentError;
use crate::connection::Connection;
use crate::content::{Claim, Content, Contents, Pin, View};
use crate::flowfile::{Attributes, FlowFile, FlowFileId};
use crate::limits::READ_AHEAD_BYTES_MAX;
use crate::records::{self, Check, ClaimAt, Group, RecordError, SwapAt, ViewAt, Visit, Writer};
use crate::sealing::SealError;

/// FlowFiles that were written away together.
#[derive(Debug)]
pub(crate) struct Swapped {
    /// The frame that they are in.
    pub(crate) position: Position,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) lowest: Option<Position>,
    _pin: Pin,
}

/// What waits in one connection, running or not.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    pub(crate) head: VecDeque<FlowFile>,
    pub(crate) swapped: VecDeque<Swapped>,
    pub(crate) tail: VecDeque<FlowFile>,
}

impl Swapped {
    pub(super) fn new(contents: &Arc<Contents>, position: Position, swap: SwapAt<'_>) -> Self {
        Swapped {
            position,
            count: swap.count,
            bytes: swap.bytes,
            lowest: swap.lowest,
            _pin: contents.pin(position, swap.lowest, swap.bytes),
        }
    }

    pub(super) fn at<'a>(&self, connection: &'a str) -> SwapAt<'a> {
        SwapAt {
            connection,
            count: self.count,
            bytes: self.bytes,
            lowest: self.lowest,
        }
    }
}

impl Stock {
    pub(crate) fn count(&self) -> u64 {
        let swapped: u64 = self.swapped.iter().map(|swapped| swapped.count).sum();
        (self.head.len() + self.tail.len()) as u64 + swapped
    }

    pub(crate) fn bytes(&self) -> u64 {
        let swapped: u64 = self.swapped.iter().map(|swapped| swapped.bytes).sum();
        self.in_memory().map(FlowFile::size).sum::<u64>() + swapped
    }

    /// How many have content; what is swapped out counts as such.
    pub(super) fn count_with_content(&self) -> u64 {
        let with_content = |flow_file: &&FlowFile| !flow_file.content.is_empty();
        let swapped: u64 = self.swapped.iter().map(|swapped| swapped.count).sum();
        self.in_memory().filter(with_content).count() as u64 + swapped
    }

    pub(crate) fn in_memory(&self) -> impl Iterator<Item = &FlowFile> {
        self.head.iter().chain(&self.tail)
    }

    /// Puts another stock behind this one.
    pub(super) fn append(&mut self, mut other: Stock) {
        if self.swapped.is_empty() && self.tail.is_empty() {
            self.head.append(&mut other.head);
        } else {
            self.tail.append(&mut other.head);
        }
        self.swapped.append(&mut other.swapped);
        self.tail.append(&mut other.tail);
    }
}

impl Repository {
    fn can_swap(&self) -> bool {
        self.options.flow_files == FlowFileKind::Disk && self.keeps_content()
    }

    /// Writes away what stands far behind in a connection. What cannot be written stays: it is only
    /// memory, and the commit that brought it stands whatever becomes of this.
    pub(super) fn swap_out(&self, connection: &Connection) {
        while self.can_swap() && connection.is_to_swap_out() {
            let _alone = self.swapping.lock();
            let gate = self.gate.read();
            let batch = connection.batch_out();
            match self.write_away(connection, &batch) {
                Ok(swapped) => connection.batch_is_out(swapped),
                Err(error) => {
                    connection.batch_stays(batch);
                    tracing::warn!(error = base::report(&error), "cannot swap FlowFiles out");
                    return;
                }
            }
            drop(gate);
            self.keep_reserve();
            // The batch's claims end here, outside of the locks.
            drop(batch);
        }
    }

    fn write_away(
        &self,
        connection: &Connection,
        batch: &[FlowFile],
    ) -> Result<Swapped, JournalError> {
        let id = &connection.definition.id;
        let mut puts = Writer::default();
        puts.put(id, batch, &|claim| claim.locate());
        let views = batch.iter().flat_map(|flow_file| flow_file.content.views());
        let positions = views.filter_map(|view| match view.claim.locate() {
            ClaimAt::At { position, .. } => Some(position),
            _ => None,
        });
        let swap = SwapAt {
            connection: id,
            count: batch.len() as u64,
            bytes: batch.iter().map(FlowFile::size).sum(),
            lowest: positions.min(),
        };
        let mut writer = Writer::default();
        writer.swap_out(swap, &puts);
        let _order = self.order.lock();
        let writer = self.behind_content(writer);
        let head = self.head(writer);
        // Not by what is kept for the sinks: on a full disk it stays in memory, and nothing comes in.
        let frame_parts = head.parts();
        let frame = commit_frame(&frame_parts);
        let position = append_when_room(&self.journal, frame, Durability::Disk, false)?;
        Ok(Swapped::new(&self.contents, position, swap))
    }

    /// Brings back what is next in a connection, if nothing stands before it.
    pub(crate) fn swap_in(&self, connection: &Connection) -> Result<(), AgentError> {
        while connection.is_to_swap_in() {
            let _alone = self.swapping.lock();
            let _gate = self.gate.read();
            let Some((position, count, _)) = connection.next_swapped() else {
                return Ok(());
            };
            if !connection.is_to_swap_in() {
                return Ok(());
            }
            let read = match self.read_back(position) {
                Err(error) if error.is_unreadable() => self.read_back(position),
                read => read,
            };
            let batch = match read {
                Ok(batch) => batch,
                Err(error) if is_lasting(&error) || self.journal.has_lost(&error) => {
                    tracing::error!(
                        count,
                        connection = connection.definition.id,
                        error = base::report(&error),
                        "FlowFiles that were swapped out are lost"
                    );
                    Vec::new()
                }
                Err(error) => return Err(failed("read from", error)),
            };
            let mut writer = Writer::default();
            writer.swap_in(position);
            writer.put(&connection.definition.id, &batch, &|claim| claim.locate());
            self.write_swap_in(writer)?;
            read_ahead(&batch);
            connection.batch_is_in(batch);
        }
        Ok(())
    }

    /// Drops what is written away, for good.
    pub(super) fn drop_swapped(&self, swapped: &Swapped) -> Result<(), AgentError> {
        let _gate = self.gate.read();
        let mut writer = Writer::default();
        writer.swap_in(swapped.position);
        self.write_swap_in(writer)
    }

    fn write_swap_in(&self, writer: Writer) -> Result<(), AgentError> {
        let _order = self.order.lock();
        let writer = self.behind_content(writer);
        let head = self.head(writer);
        let parts = head.parts();
        let frame = commit_frame(&parts);
        loop {
            // Swapped in again after a crash: nobody needs to wait for the disk.
            match self
                .journal
                .append_vital(&[frame], Durability::Os, Done::none())
            {
                Ok(_) => return Ok(()),
                Err(JournalError::Busy) => self.journal.room_blocking(frame.framed_len()),
                Err(source) => return Err(failed("append to", source)),
            }
        }
    }

    /// Reads a batch where it was written away.
    pub(crate) fn read_back(&self, position: Position) -> Result<Vec<FlowFile>, JournalError> {
        let payload = self.journal.read_appended(position)?;
        let mut back = Back {
            contents: &self.contents,
            group: None,
            content: None,
            flow_files: Vec::new(),
        };
        let split = head::split(&self.keyring, &payload);
        let (operations, _) = split.map_err(JournalError::refused)?;
        let mut find = FindPuts { puts: Vec::new() };
        records::read(&operations, &mut find).map_err(JournalError::refused)?;
        records::read(&find.puts, &mut back).map_err(JournalError::refused)?;
        Ok(back.flow_files)
    }
}

/// Has the disk begin with the content of a batch, which its processor asks for next.
fn read_ahead(batch: &[FlowFile]) {
    let mut last: Option<&Arc<Claim>> = None;
    let mut bytes = 0;
    for view in batch.iter().flat_map(|flow_file| flow_file.content.views()) {
        if last.is_some_and(|last| Arc::ptr_eq(last, &view.claim)) {
            continue;
        }
        bytes += view.claim.disk_len();
        if bytes > READ_AHEAD_BYTES_MAX {
            return;
        }
        view.claim.read_ahead();
        last = Some(&view.claim);
    }
}

/// Finds the puts of a batch in its frame.
struct FindPuts {
    puts: Vec<u8>,
}

impl Visit for FindPuts {
    fn swap_out(&mut self, _swap: SwapAt<'_>, puts: &[u8]) {
        self.puts = puts.to_vec();
    }
}

/// Rebuilds a batch's FlowFiles.
struct Back<'c> {
    contents: &'c Arc<Contents>,
    group: Option<(base::UnixMillis, Arc<Attributes>)>,
    content: Option<Content>,
    flow_files: Vec<FlowFile>,
}

impl Back<'_> {
    fn claim(&self, at: ClaimAt, check: Check) -> Option<Content> {
        match at {
            ClaimAt::At { position, len } => Some(Content::whole(
                self.contents.recovered(position, len, check),
            )),
            _ => None,
        }
    }

    fn push(&mut self, id: u64, content: Content) {
        if let Some((entry, attributes)) = &self.group {
            self.flow_files.push(FlowFile {
                id: FlowFileId(id),
                entry: *entry,
                attributes: Arc::clone(attributes),
                content,
            });
        }
    }
}

impl Visit for Back<'_> {
    fn group(&mut self, group: Group<'_>, at: ClaimAt, check: Check) {
        self.content = self.claim(at, check);
        self.group = Some((group.entry, group.attributes));
    }

    fn put(&mut self, id: u64, offset: u32, len: u32) {
        let whole = self.content.as_ref();
        let content = whole.map(|whole| whole.slice(offset.into(), len.into()));
        self.push(id, content.unwrap_or_default());
    }

    fn rope(&mut self, group: Group<'_>, id: u64, views: &[ViewAt]) {
        let parts = views.iter().filter_map(|view| {
            let whole = self.claim(view.at, view.check)?;
            Some(View {
                offset: view.offset,
                len: view.len,
                ..whole.views().first()?.clone()
            })
        });
        let content = Content::of_views(parts.collect());
        self.group = Some((group.entry, group.attributes));
        self.push(id, content);
    }
}

/// The ids of a batch, from its puts.
pub(super) fn ids_of(puts: &[u8]) -> Result<Vec<u64>, RecordError> {
    struct Ids(Vec<u64>);
    impl Visit for Ids {
        fn put(&mut self, id: u64, _offset: u32, _len: u32) {
            self.0.push(id);
        }

        fn rope(&mut self, _group: Group<'_>, id: u64, _views: &[ViewAt]) {
            self.0.push(id);
        }
    }
    let mut ids = Ids(Vec::new());
    records::read(puts, &mut ids)?;
    Ok(ids.0)
}

/// Whether it is no use to ask again.
fn is_lasting(error: &JournalError) -> bool {
    match error {
        JournalError::Damaged { .. }
        | JournalError::Reclaimed { .. }
        | JournalError::OutOfRange { .. } => true,
        // A key may be given yet.
        JournalError::Refused(error) => !matches!(
            error.downcast_ref(),
            Some(FrameError::Seal(SealError::UnknownKey(_)))
        ),
        _ => false,
    }
}

fn failed(action: &'static str, source: JournalError) -> AgentError {
    AgentError::Repository { action, source }
}
