//! Provenance: what happened to which FlowFile, when and where.
//!
//! A session's events are written down in one block, in the same frame as what it did, so that
//! they are there exactly when it is; from there they are copied to the provenance repository
//! ([`store`]), which keeps them until they are too old or too many. FlowFiles of one session
//! have numbers in a row, so a thousand lines cost one event.
//!
//! # Bytes of a block
//!
//! Numbers are LEB128, texts have their length first: format version (1), component id,
//! component type, time in Unix milliseconds, number of events; for each: kind, first FlowFile
//! and count, details, number of runs of parents; for each the first and the count.

mod store;

use base::UnixMillis;

use crate::flowfile::FlowFileId;
use crate::records::{Reader, RecordError, number, text};

pub use store::{Filter, Provenance, ProvenanceStatus};

/// What happened to a FlowFile; NiFi's event types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are NiFi's own")]
pub enum EventKind {
    Create,
    Receive,
    Fetch,
    Send,
    Download,
    Drop,
    Expire,
    Fork,
    Join,
    Clone,
    ContentModified,
    AttributesModified,
    Route,
    AddInfo,
    Replay,
}

/// FlowFiles with numbers in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: FlowFileId,
    /// How many.
    pub count: u64,
}

/// One thing that happened to FlowFiles in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenanceEvent {
    /// What.
    pub kind: EventKind,
    /// When.
    pub at: UnixMillis,
    /// The processor's id.
    pub component_id: String,
    /// What kind of processor it is.
    pub component_type: String,
    /// To which FlowFiles.
    pub flow_files: Run,
    /// Transit URI, relationship or reason; may be empty.
    pub details: String,
    /// What they came from: of a FORK all of them from each, of a JOIN one from all (a merge of
    /// very many is several events), of a CLONE each from the one in the same place.
    pub parents: Vec<Run>,
}

/// A session's events while they are collected.
#[derive(Debug, Default)]
pub(crate) struct Events {
    list: Vec<Noted>,
}

#[derive(Debug)]
struct Noted {
    kind: EventKind,
    run: Run,
    details: Box<str>,
    parents: Vec<Run>,
}

impl EventKind {
    /// Every kind, in the order of its number in the bytes.
    pub const ALL: &'static [EventKind] = &[
        EventKind::Create,
        EventKind::Receive,
        EventKind::Fetch,
        EventKind::Send,
        EventKind::Download,
        EventKind::Drop,
        EventKind::Expire,
        EventKind::Fork,
        EventKind::Join,
        EventKind::Clone,
        EventKind::ContentModified,
        EventKind::AttributesModified,
        EventKind::Route,
        EventKind::AddInfo,
        EventKind::Replay,
    ];

    /// As NiFi writes it.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Create => "CREATE",
            EventKind::Receive => "RECEIVE",
            EventKind::Fetch => "FETCH",
            EventKind::Send => "SEND",
            EventKind::Download => "DOWNLOAD",
            EventKind::Drop => "DROP",
            EventKind::Expire => "EXPIRE",
            EventKind::Fork => "FORK",
            EventKind::Join => "JOIN",
            EventKind::Clone => "CLONE",
            EventKind::ContentModified => "CONTENT_MODIFIED",
            EventKind::AttributesModified => "ATTRIBUTES_MODIFIED",
            EventKind::Route => "ROUTE",
            EventKind::AddInfo => "ADDINFO",
            EventKind::Replay => "REPLAY",
        }
    }

    fn number(self) -> u64 {
        let at = EventKind::ALL.iter().position(|kind| *kind == self);
        at.expect("every kind stands in the table") as u64
    }
}

impl Run {
    /// Whether `id` is one of them.
    pub fn contains(self, id: FlowFileId) -> bool {
        id.0.wrapping_sub(self.first.0) < self.count
    }
}

impl ProvenanceEvent {
    /// Where the FlowFiles `id` came from, if the event says so; only those that `id` has a part
    /// in.
    pub fn parents_of(&self, id: FlowFileId) -> Vec<FlowFileId> {
        if !self.flow_files.contains(id) {
            return Vec::new();
        }
        if self.kind == EventKind::Clone {
            let index = id.0 - self.flow_files.first.0;
            let parent = self
                .parents
                .first()
                .map(|run| FlowFileId(run.first.0 + index));
            return parent.into_iter().collect();
        }
        let each = |run: &Run| (run.first.0..run.first.0.saturating_add(run.count)).map(FlowFileId);
        self.parents
            .iter()
            .flat_map(each)
            .take(PARENTS_SHOWN_MAX)
            .collect()
    }

    /// Whether the event is about `id`, as what it happened to or as a parent.
    pub fn concerns(&self, id: FlowFileId) -> bool {
        self.flow_files.contains(id) || self.parents.iter().any(|run| run.contains(id))
    }
}

impl Events {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Something happened to one FlowFile.
    pub(crate) fn note(&mut self, kind: EventKind, id: FlowFileId, details: &str) {
        let details = &details[..details.floor_char_boundary(DETAILS_BYTES_MAX)];
        self.run(
            kind,
            Run {
                first: id,
                count: 1,
            },
            details,
        );
    }

    /// The same happened to FlowFiles in a row.
    pub(crate) fn run(&mut self, kind: EventKind, run: Run, details: &str) {
        if let Some(last) = self.list.last_mut()
            && last.kind == kind
            && last.parents.is_empty()
            && *last.details == *details
            && last.run.first.0 + last.run.count == run.first.0
        {
            last.run.count += run.count;
            return;
        }
        self.list.push(Noted {
            kind,
            run,
            details: details.into(),
            parents: Vec::new(),
        });
    }

    /// A FlowFile came from others. Neighbors that are copies of neighbors, or pieces of the
    /// same, are one event.
    pub(crate) fn came_from(
        &mut self,
        kind: EventKind,
        child: FlowFileId,
        parents: impl IntoIterator<Item = FlowFileId>,
    ) {
        let mut runs: Vec<Run> = Vec::new();
        for parent in parents {
            match runs.last_mut() {
                Some(last) if last.first.0 + last.count == parent.0 => last.count += 1,
                _ => runs.push(Run {
                    first: parent,
                    count: 1,
                }),
            }
        }
        if let Some(last) = self.list.last_mut()
            && last.kind == kind
            && last.run.first.0 + last.run.count == child.0
        {
            let is_same = kind == EventKind::Fork && last.parents == runs;
            let is_next = kind == EventKind::Clone
                && matches!((last.parents.as_slice(), runs.as_slice()), ([a], [b])
                    if a.first.0 + a.count == b.first.0);
            if is_next {
                last.parents[0].count += 1;
            }
            if is_same || is_next {
                last.run.count += 1;
                return;
            }
        }
        // What came from nothing is an event too.
        let first = runs.len().min(PARENT_RUNS_MAX);
        let (first, others) = runs.split_at(first);
        for parents in std::iter::once(first).chain(others.chunks(PARENT_RUNS_MAX)) {
            self.list.push(Noted {
                kind,
                run: Run {
                    first: child,
                    count: 1,
                },
                details: Box::default(),
                parents: parents.to_vec(),
            });
        }
    }

    /// Writes them down, as many blocks as it takes; none when nothing happened.
    pub(crate) fn encode(&self, id: &str, kind: &str, at: UnixMillis) -> Vec<Vec<u8>> {
        let mut blocks = Vec::new();
        let mut events = Vec::new();
        let mut count = 0;
        for (index, event) in self.list.iter().enumerate() {
            event.encode(&mut events);
            count += 1;
            if events.len() < BLOCK_BYTES && index + 1 < self.list.len() {
                continue;
            }
            let mut block = Vec::with_capacity(events.len() + id.len() + kind.len() + 24);
            number(&mut block, BLOCK_VERSION);
            text(&mut block, id);
            text(&mut block, kind);
            number(&mut block, at.0.max(0) as u64);
            number(&mut block, count);
            block.append(&mut events);
            blocks.push(block);
            count = 0;
        }
        blocks
    }
}

impl Noted {
    fn encode(&self, out: &mut Vec<u8>) {
        number(out, self.kind.number());
        number(out, self.run.first.0);
        number(out, self.run.count);
        text(out, &self.details);
        number(out, self.parents.len() as u64);
        for run in &self.parents {
            number(out, run.first.0);
            number(out, run.count);
        }
    }
}

/// Reads a block, telling `visit` each event.
pub(crate) fn decode(
    block: &[u8],
    visit: &mut dyn FnMut(ProvenanceEvent),
) -> Result<(), RecordError> {
    let mut reader = Reader::new(block);
    if reader.number()? != BLOCK_VERSION {
        return Err(RecordError::new("its events are of a newer version"));
    }
    let component_id = reader.text()?.to_owned();
    let component_type = reader.text()?.to_owned();
    let at = UnixMillis(i64::try_from(reader.number()?).unwrap_or(i64::MAX));
    for _ in 0..reader.number()? {
        let kind = usize::try_from(reader.number()?).ok();
        let kind = kind.and_then(|number| EventKind::ALL.get(number));
        let kind = *kind.ok_or_else(|| RecordError::new("an event is of no known kind"))?;
        let flow_files = run(&mut reader)?;
        let details = reader.text()?.to_owned();
        let mut parents = Vec::new();
        for _ in 0..reader.number()? {
            parents.push(run(&mut reader)?);
        }
        visit(ProvenanceEvent {
            kind,
            at,
            component_id: component_id.clone(),
            component_type: component_type.clone(),
            flow_files,
            details,
            parents,
        });
    }
    Ok(())
}

/// When a block's events happened; the beginning of time, if it cannot be read.
fn time_of(block: &[u8]) -> UnixMillis {
    let mut reader = Reader::new(block);
    let mut read = || {
        reader.number()?;
        reader.text()?;
        reader.text()?;
        reader.number()
    };
    let at = read().ok().and_then(|at| i64::try_from(at).ok());
    UnixMillis(at.unwrap_or(0))
}

fn run(reader: &mut Reader<'_>) -> Result<Run, RecordError> {
    Ok(Run {
        first: FlowFileId(reader.number()?),
        count: reader.number()?,
    })
}

const BLOCK_VERSION: u64 = 1;

/// Bytes at which a block is full.
const BLOCK_BYTES: usize = 16 << 10;

/// Runs of parents that one event names; a merge of more is several events.
const PARENT_RUNS_MAX: usize = 1_000;

/// Parents of one event that are shown.
const PARENTS_SHOWN_MAX: usize = 10_000;

/// Bytes of one event's details: an address, not a message.
const DETAILS_BYTES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Events {
        let mut events = Events::default();
        for id in 5..9 {
            events.note(EventKind::Create, FlowFileId(id), "");
        }
        events.note(EventKind::Send, FlowFileId(9), "http://core/");
        for id in 10..13 {
            events.came_from(EventKind::Fork, FlowFileId(id), [FlowFileId(5)]);
        }
        for id in 13..15 {
            events.came_from(EventKind::Clone, FlowFileId(id), [FlowFileId(id - 7)]);
        }
        events
    }

    #[test]
    fn neighbors_are_one_event_and_come_back_as_they_were() {
        let block = events().encode("id", "Kind", UnixMillis(77)).concat();
        let mut read = Vec::new();
        decode(&block, &mut |event| read.push(event)).unwrap();
        let shown: Vec<_> = read
            .iter()
            .map(|event| (event.kind, event.flow_files.first.0, event.flow_files.count))
            .collect();
        let expected = [
            (EventKind::Create, 5, 4),
            (EventKind::Send, 9, 1),
            (EventKind::Fork, 10, 3),
            (EventKind::Clone, 13, 2),
        ];
        assert_eq!(shown, expected);
        assert_eq!(read[1].details, "http://core/");
        assert_eq!(read[2].parents_of(FlowFileId(12)), [FlowFileId(5)]);
        assert_eq!(read[3].parents_of(FlowFileId(14)), [FlowFileId(7)]);
        assert_eq!(
            (read[0].at, &*read[0].component_id, &*read[0].component_type),
            (UnixMillis(77), "id", "Kind")
        );
    }

    #[test]
    fn a_merge_of_very_many_names_them_all() {
        let mut events = Events::default();
        // Every other one, so that each is a run of its own.
        let parents: Vec<FlowFileId> = (0..5_000).map(|at| FlowFileId(2 * at)).collect();
        events.came_from(
            EventKind::Join,
            FlowFileId(100_000),
            parents.iter().copied(),
        );
        events.came_from(EventKind::Create, FlowFileId(100_001), []);
        let mut read = Vec::new();
        let blocks = events.encode("id", "Kind", UnixMillis(1));
        for block in &blocks {
            assert!(block.len() < 40_000, "{} bytes in one block", block.len());
            decode(block, &mut |event| read.push(event)).unwrap();
        }
        let joined: Vec<FlowFileId> = read
            .iter()
            .flat_map(|event| event.parents_of(FlowFileId(100_000)))
            .collect();
        assert_eq!(joined, parents);
        assert_eq!(read.last().unwrap().kind, EventKind::Create);
    }

    #[test]
    fn a_block_that_is_cut_anywhere_is_refused() {
        let block = events().encode("id", "Kind", UnixMillis(77)).concat();
        for end in 0..block.len() {
            assert!(decode(&block[..end], &mut |_| {}).is_err(), "{end} passed");
        }
    }
}
