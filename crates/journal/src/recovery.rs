//! Recovery: finds the frames that stand, tells torn tails from damage, and tidies up.
//!
//! The walk reads only; what it decided is carried out after the last frame was visited, in an
//! order that gives the same outcome when a crash comes in between.

mod settle;
mod walk;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::UnixMillis;

use crate::disk::Disk;
use crate::error::JournalError;
use crate::format::{FRAME_OVERHEAD_BYTES, FrameRef, Position, SEGMENT_HEADER_BYTES, segment_base};
use crate::options::JournalOptions;
use crate::segment::{Segment, SegmentTable};
use crate::space::{AllocateError, create_segment_on};
use crate::state::Tail;

use settle::{remove_from, settle_last, settle_sealed};
use walk::Walk;

/// What opening a journal found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Frames visited.
    pub frames: u64,
    /// Their bytes, frame headers included.
    pub bytes: u64,
    /// The mark that reading began at; none when it began at the journal's start.
    pub started: Option<Position>,
    /// Segments that the journal has.
    pub segments: u32,
    /// The tail that was taken away, unless the journal ended cleanly.
    pub cut: Option<Cut>,
    /// Durable stretches that have gone bad, the first `limits::DAMAGE_LISTED_MAX` of them.
    pub damage: Vec<Damage>,
    /// Positions in all damaged stretches together, listed or not.
    pub damaged_bytes: u64,
}

/// A tail that no sync had covered, and that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Where the journal now ends.
    pub position: Position,
    /// Bytes that stood behind it and are gone.
    pub bytes: u64,
    /// What stood at the position.
    pub reason: CutReason,
}

/// What recovery found where it cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutReason {
    /// A frame that was begun and not finished.
    TornFrame,
    /// Nothing, while later bytes had been written.
    Missing,
}

/// Bytes that had been durable and are no whole frames any more; they were left in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where the stretch begins.
    pub position: Position,
    /// Positions up to the next whole frame.
    pub bytes: u64,
}

type Visit<'a> = &'a mut dyn FnMut(FrameRef<'_>) -> Result<(), JournalError>;

/// Recovers the segments in `dir` into `table`; the tail is where appending goes on.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    table: &SegmentTable,
    options: &JournalOptions,
    mark: Option<u64>,
    visit: Visit<'_>,
) -> Result<(Tail, Recovery), JournalError> {
    let bases = bases_in(&**disk, dir)?;
    let walk = Walk::new(&**disk, table, options, &bases);
    let Found {
        keep,
        kept,
        synced,
        report,
    } = find(walk, &bases, mark, visit)?;
    remove_from(&**disk, dir, table, &bases, keep)?;
    let Some((last, sealed)) = kept.split_last() else {
        let base = bases.first().copied().unwrap_or(0);
        let size = options.segment_bytes;
        let len = size.min(options.preallocate_bytes.max(SMALLEST_SEGMENT_FILE_BYTES));
        let tail =
            create_segment_on(&**disk, dir, table, base, size, len).map_err(
                |error| match error {
                    AllocateError::NoRoom(error) => {
                        JournalError::io("create", &table.path(base), error)
                    }
                    AllocateError::Broken(error) => error,
                },
            )?;
        table.insert(tail.segment.clone(), Some(tail.file.clone()));
        return Ok((tail, report));
    };
    for kept in sealed {
        settle_sealed(&**disk, table, kept, synced)?;
    }
    let tail = settle_last(&**disk, table, last, synced)?;
    Ok((tail, report))
}

/// As [`recover`], but changes nothing: nobody may append behind the tail.
pub(crate) fn recover_to_read(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    table: &SegmentTable,
    options: &JournalOptions,
    mark: Option<u64>,
    visit: Visit<'_>,
) -> Result<(Tail, Recovery), JournalError> {
    let bases = bases_in(&**disk, dir)?;
    let walk = Walk::new(&**disk, table, options, &bases);
    let Found { kept, report, .. } = find(walk, &bases, mark, visit)?;
    let Some((last, sealed)) = kept.split_last() else {
        let read_only = io::ErrorKind::ReadOnlyFilesystem.into();
        return Err(JournalError::io("create a journal in", dir, read_only));
    };
    for kept in sealed {
        table.insert(Arc::new(kept.segment(kept.end, kept.len)), None);
        table.sealed(kept.base);
    }
    let path = table.path(last.base);
    let file = disk
        .open_to_read(&path)
        .map_err(|error| JournalError::io("open", &path, error))?;
    let segment = Arc::new(last.segment(last.end, last.len));
    table.insert(segment.clone(), Some(file.clone()));
    let tail = Tail {
        segment,
        file,
        admitted: last.end,
    };
    Ok((tail, report))
}

/// Shows all frames from the journal's start on and changes nothing.
pub(crate) fn inspect(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: &JournalOptions,
    visit: Visit<'_>,
) -> Result<Recovery, JournalError> {
    let table = SegmentTable::new(disk.clone(), dir);
    let bases = bases_in(&**disk, dir)?;
    let mut walk = Walk::new(&**disk, &table, options, &bases);
    let kept = walk.walk(None, visit)?;
    walk.report.segments = u32::try_from(kept).unwrap_or(u32::MAX);
    Ok(walk.report)
}

/// What stands in a folder.
struct Found {
    /// How many segments stay.
    keep: usize,
    /// These, oldest first.
    kept: Vec<Kept>,
    /// Up to where the frames prove that it was synced.
    synced: u64,
    report: Recovery,
}

/// Shows the frames from the mark on.
fn find(
    mut walk: Walk<'_>,
    bases: &[u64],
    mark: Option<u64>,
    visit: Visit<'_>,
) -> Result<Found, JournalError> {
    let start = match mark {
        Some(mark) => walk.skip_to(mark)?,
        None => None,
    };
    walk.report.started = start.map(|start| Position(bases[start.index] + start.offset));
    let keep = walk.walk(start, visit)?;
    let kept: Vec<Kept> = walk.kept.into_values().take(keep).collect();
    let mut report = walk.report;
    report.segments = kept.len().max(1) as u32;
    Ok(Found {
        keep,
        kept,
        synced: walk.synced,
        report,
    })
}

fn bases_in(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, JournalError> {
    let names = disk
        .list(dir)
        .map_err(|error| JournalError::io("list", dir, error))?;
    let mut bases: Vec<u64> = names.iter().filter_map(|name| segment_base(name)).collect();
    bases.sort_unstable();
    Ok(bases)
}

/// A segment that stays, and what the walk saw in it.
#[derive(Clone, Copy, Debug)]
struct Kept {
    base: u64,
    size: u64,
    created: UnixMillis,
    /// Where its last whole frame ends.
    end: u64,
    len: u64,
    /// The last frame is the seal.
    sealed: bool,
    /// Something other than zeros stands behind the end.
    ragged: bool,
}

impl Kept {
    fn limit(&self) -> u64 {
        self.base + self.size
    }

    fn segment(&self, end: u64, len: u64) -> Segment {
        let segment = Segment::new(self.base, self.size, self.created, len);
        segment.written.store(end, Ordering::Release);
        segment
    }
}

/// A first segment's file always holds its header and a seal.
const SMALLEST_SEGMENT_FILE_BYTES: u64 = SEGMENT_HEADER_BYTES + FRAME_OVERHEAD_BYTES;
