//! Recovery: finds the frames that stand, tells torn tails from damage, and tidies up.
//!
//! The walk reads only; what it decided is carried out after the last frame was visited, in an
//! order that gives the same outcome when a crash comes in between.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::UnixMillis;

use crate::disk::{Disk, File};
use crate::error::JournalError;
use crate::format::{
    FRAME_OVERHEAD_BYTES, FrameRef, HeaderError, Position, SEGMENT_HEADER_BYTES, SegmentHeader,
    segment_base, u64_at,
};
use crate::journal::JournalOptions;
use crate::limits;
use crate::reader::{Reader, is_zero};
use crate::segment::{Segment, SegmentTable};
use crate::space::{AllocateError, create_segment_on};
use crate::state::Tail;

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
    let mut walk = Walk::new(&**disk, table, options, &bases);
    let start = match mark {
        Some(mark) => walk.skip_to(mark)?,
        None => None,
    };
    walk.report.started = start.map(|start| Position(bases[start.index] + start.offset));
    let keep = walk.walk(start, visit)?;
    let Walk {
        kept,
        synced,
        mut report,
        ..
    } = walk;

    remove_from(&**disk, dir, table, &bases, keep)?;
    let kept: Vec<Kept> = kept.into_values().take(keep).collect();
    report.segments = kept.len().max(1) as u32;
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

/// A spot in the walk: a segment by index, a byte in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    index: usize,
    offset: u64,
}

struct Walk<'a> {
    disk: &'a dyn Disk,
    table: &'a SegmentTable,
    options: &'a JournalOptions,
    bases: &'a [u64],
    kept: BTreeMap<usize, Kept>,
    /// Everything before this position was synced, by what the frames say.
    synced: u64,
    report: Recovery,
}

/// How reading a segment's frames ended.
enum Ended {
    Sealed,
    /// No whole frame at this offset.
    Bad(u64),
}

impl<'a> Walk<'a> {
    fn new(
        disk: &'a dyn Disk,
        table: &'a SegmentTable,
        options: &'a JournalOptions,
        bases: &'a [u64],
    ) -> Self {
        Walk {
            disk,
            table,
            options,
            bases,
            kept: BTreeMap::new(),
            synced: 0,
            report: Recovery::default(),
        }
    }

    /// Where the frame at `mark` is, if all segments up to it are there with whole headers.
    fn skip_to(&mut self, mark: u64) -> Result<Option<At>, JournalError> {
        let Some(index) = self
            .bases
            .partition_point(|base| *base <= mark)
            .checked_sub(1)
        else {
            return Ok(None);
        };
        let at = At {
            index,
            offset: mark - self.bases[index],
        };
        let mut is_whole = at.offset >= SEGMENT_HEADER_BYTES;
        for skipped in 0..=index {
            let mut reader = self.open(skipped)?;
            is_whole = is_whole && self.read_header(skipped, &mut reader)?;
            if !is_whole {
                break;
            }
            let kept = self.kept(skipped, reader.len);
            if skipped < index {
                // Cut to its frames when it was sealed.
                (kept.end, kept.sealed) = (kept.base + kept.len.min(kept.size), true);
                let limit = kept.limit();
                is_whole = limit == self.bases[skipped + 1];
            } else {
                kept.end = mark;
                let frame = reader.frame(self.bases[index], at.offset);
                is_whole = frame.map_err(|error| self.io(index, error))?.is_some();
            }
        }
        if !is_whole {
            self.kept.clear();
            return Ok(None);
        }
        self.synced = mark;
        Ok(Some(at))
    }

    /// Visits all frames that stand from `start` on; answers how many segments stay.
    fn walk(&mut self, start: Option<At>, visit: Visit<'_>) -> Result<usize, JournalError> {
        let mut at = start.unwrap_or(At {
            index: 0,
            offset: 0,
        });
        let mut expected = self.bases.get(at.index).copied().unwrap_or(0);
        while at.index < self.bases.len() {
            let base = self.bases[at.index];
            if at.offset == 0 && base != expected {
                match self.judge(expected, at.index)? {
                    Some(next) => at = next,
                    None => return Ok(at.index),
                }
                continue;
            }
            let mut reader = self.open(at.index)?;
            if at.offset == 0 {
                if !self.read_header(at.index, &mut reader)? {
                    match self.judge(base, at.index)? {
                        Some(next) => at = next,
                        None => return Ok(at.index),
                    }
                    continue;
                }
                at.offset = SEGMENT_HEADER_BYTES;
            }
            match self.read_frames(at, &mut reader, visit)? {
                Ended::Sealed => {
                    expected = self.kept(at.index, reader.len).limit();
                    at = At {
                        index: at.index + 1,
                        offset: 0,
                    };
                }
                Ended::Bad(offset) => match self.judge(base + offset, at.index)? {
                    Some(next) => at = next,
                    None => return Ok(at.index + 1),
                },
            }
        }
        Ok(self.bases.len())
    }

    /// Decides about the bad spot at `position`, in or before the segment at `index`, by the
    /// frames after it: where to go on reading after damage, or `None` when the journal ends.
    fn judge(&mut self, position: u64, index: usize) -> Result<Option<At>, JournalError> {
        let mut later = Later {
            position,
            first: None,
            bytes: 0,
            torn: false,
        };
        for at in index..self.bases.len() {
            let mut reader = self.open(at)?;
            if !self.search(at, &mut reader, &mut later)? {
                continue;
            }
            let Some(next) = later.first else { break };
            self.note_damage(position, self.bases[next.index] + next.offset);
            for skipped in index..=next.index {
                let mut reader = self.open(skipped)?;
                self.read_header(skipped, &mut reader)?;
                self.kept(skipped, reader.len);
            }
            return Ok(Some(next));
        }
        if let Some(kept) = self.kept.get_mut(&index) {
            kept.ragged = later.bytes > 0;
        }
        if later.bytes > 0 {
            let reason = if later.torn {
                CutReason::TornFrame
            } else {
                CutReason::Missing
            };
            self.report.cut = Some(Cut {
                position: Position(position),
                bytes: later.bytes,
                reason,
            });
        }
        Ok(None)
    }

    /// Looks through a segment behind the bad spot: counts the bytes up to the last one that is
    /// not zero, and notes the first whole frame. True when a frame proves damage.
    fn search(
        &self,
        index: usize,
        reader: &mut Reader,
        later: &mut Later,
    ) -> Result<bool, JournalError> {
        let base = self.bases[index];
        // A spot inside this segment, or all of its frames.
        let (start, mut offset) = match later.position.checked_sub(base) {
            Some(spot) if spot >= SEGMENT_HEADER_BYTES => (spot, spot + 1),
            _ => (SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES),
        };
        let mut end = start;
        if offset > start {
            let head = reader
                .window(start, FRAME_OVERHEAD_BYTES)
                .map_err(|e| self.io(index, e))?;
            let head = &head[..head.len().min(FRAME_OVERHEAD_BYTES as usize)];
            if let Some(at) = head.iter().rposition(|byte| *byte != 0) {
                end = start + at as u64 + 1;
                later.torn = true;
            }
        }
        while offset < reader.len {
            let window = reader
                .window(offset, FRAME_OVERHEAD_BYTES)
                .map_err(|error| self.io(index, error))?;
            let mut hit = None;
            if !is_zero(window) {
                let starts = window
                    .len()
                    .saturating_sub(FRAME_OVERHEAD_BYTES as usize - 1);
                hit = (0..starts).find(|i| u64_at(window, i + 8) == base + offset + *i as u64);
                let seen = &window[..hit.unwrap_or(window.len())];
                if let Some(at) = seen.iter().rposition(|byte| *byte != 0) {
                    end = end.max(offset + at as u64 + 1);
                }
            }
            let Some(hit) = hit else {
                // Headers may straddle two windows.
                let window_end = offset + window.len() as u64;
                let whole = window_end >= reader.len;
                offset = if whole {
                    window_end
                } else {
                    window_end - FRAME_OVERHEAD_BYTES + 1
                };
                continue;
            };
            offset += hit as u64;
            let frame = reader
                .frame(base, offset)
                .map_err(|error| self.io(index, error))?;
            let Some(header) = frame else {
                offset += 1;
                end = end.max(offset + 15);
                continue;
            };
            later.first.get_or_insert(At { index, offset });
            if header.synced_before() > later.position {
                return Ok(true);
            }
            offset += FRAME_OVERHEAD_BYTES + u64::from(header.length);
            end = end.max(offset);
        }
        later.bytes += end - start;
        Ok(false)
    }

    fn note_damage(&mut self, from: u64, to: u64) {
        self.report.damaged_bytes += to - from;
        if self.report.damage.len() < limits::DAMAGE_LISTED_MAX {
            self.report.damage.push(Damage {
                position: Position(from),
                bytes: to - from,
            });
        }
    }

    fn open(&self, index: usize) -> Result<Reader, JournalError> {
        let path = self.table.path(self.bases[index]);
        let file = self
            .disk
            .open(&path)
            .map_err(|error| JournalError::io("open", &path, error))?;
        Reader::new(file).map_err(|error| JournalError::io("read", &path, error))
    }

    /// Keeps the segment if its header is whole.
    fn read_header(&mut self, index: usize, reader: &mut Reader) -> Result<bool, JournalError> {
        let base = self.bases[index];
        let bytes = reader
            .window(0, SEGMENT_HEADER_BYTES)
            .map_err(|error| self.io(index, error))?;
        match SegmentHeader::decode(bytes, base) {
            Ok(header) => {
                let kept = self.kept(index, reader.len);
                kept.size = header.size;
                kept.created = header.created;
                Ok(true)
            }
            Err(HeaderError::Damaged) => Ok(false),
            Err(HeaderError::Version(version)) => Err(JournalError::Format {
                path: self.table.path(base),
                version,
            }),
        }
    }

    /// Visits whole frames until the segment's seal or the first spot without one.
    fn read_frames(
        &mut self,
        at: At,
        reader: &mut Reader,
        visit: Visit<'_>,
    ) -> Result<Ended, JournalError> {
        let base = self.bases[at.index];
        let mut offset = at.offset;
        loop {
            let frame = reader
                .frame(base, offset)
                .map_err(|error| self.io(at.index, error))?;
            let Some(header) = frame else {
                return Ok(Ended::Bad(offset));
            };
            let framed = FRAME_OVERHEAD_BYTES + u64::from(header.length);
            self.synced = self.synced.max(header.synced_before());
            let kept = self.kept(at.index, reader.len);
            kept.end = base + offset + framed;
            if header.is_seal() {
                kept.sealed = true;
                return Ok(Ended::Sealed);
            }
            let window = reader
                .window(offset, framed)
                .map_err(|e| self.io(at.index, e))?;
            visit(FrameRef {
                position: Position(base + offset),
                kind: header.kind,
                version: header.version,
                payload: &window[FRAME_OVERHEAD_BYTES as usize..framed as usize],
            })?;
            self.report.frames += 1;
            self.report.bytes += framed;
            offset += framed;
        }
    }

    /// The entry of a segment that stays; without a header its size is what the next base says.
    fn kept(&mut self, index: usize, len: u64) -> &mut Kept {
        let base = self.bases[index];
        let next = self.bases.get(index + 1).map(|next| next - base);
        let size = next.unwrap_or(self.options.segment_bytes.max(len));
        self.kept.entry(index).or_insert(Kept {
            base,
            size,
            created: UnixMillis::default(),
            end: base + SEGMENT_HEADER_BYTES,
            len,
            sealed: false,
            ragged: false,
        })
    }

    fn io(&self, index: usize, error: io::Error) -> JournalError {
        JournalError::io("read", &self.table.path(self.bases[index]), error)
    }
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

/// What stands after the bad spot at `position`.
struct Later {
    position: u64,
    first: Option<At>,
    bytes: u64,
    torn: bool,
}

/// Removes the segments from `keep` on, newest first, so that a crash leaves no hole.
fn remove_from(
    disk: &dyn Disk,
    dir: &Path,
    table: &SegmentTable,
    bases: &[u64],
    keep: usize,
) -> Result<(), JournalError> {
    for base in bases[keep..].iter().rev() {
        let path = table.path(*base);
        disk.remove(&path)
            .map_err(|error| JournalError::io("remove", &path, error))?;
    }
    // Also without removals: a crash may have come between a creation and its sync.
    disk.sync_dir(dir)
        .map_err(|error| JournalError::io("sync", dir, error))
}

fn settle_sealed(
    disk: &dyn Disk,
    table: &SegmentTable,
    kept: &Kept,
    synced: u64,
) -> Result<(), JournalError> {
    let path = table.path(kept.base);
    let mut len = kept.len;
    let too_long = kept.sealed && kept.len > kept.end - kept.base;
    if too_long || kept.end > synced {
        let file = disk
            .open(&path)
            .map_err(|error| JournalError::io("open", &path, error))?;
        write_again(&*file, kept.base, kept.end, synced)
            .and_then(|()| {
                if too_long {
                    len = kept.end - kept.base;
                    file.truncate(len)?;
                }
                file.sync()
            })
            .map_err(|error| JournalError::io("recover", &path, error))?;
    }
    let segment = Arc::new(kept.segment(kept.end, len));
    let base = segment.base;
    table.insert(segment, None);
    table.sealed(base);
    Ok(())
}

fn settle_last(
    disk: &dyn Disk,
    table: &SegmentTable,
    kept: &Kept,
    synced: u64,
) -> Result<Tail, JournalError> {
    let path = table.path(kept.base);
    let file = disk
        .open(&path)
        .map_err(|error| JournalError::io("open", &path, error))?;
    // A seal without a next segment promises what is not there: appending goes on in its place.
    let end = if kept.sealed {
        kept.end - FRAME_OVERHEAD_BYTES
    } else {
        kept.end
    };
    let mut len = kept.len;
    let settled = write_again(&*file, kept.base, end, synced).and_then(|()| {
        let used = end - kept.base;
        // Space that was reserved before is kept if all of it reads as zeros.
        let reuse = len > used && !kept.ragged && !kept.sealed;
        if !reuse || file.allocate(used, len - used).is_err() {
            file.truncate(used)?;
            len = used;
        }
        file.sync()
    });
    settled.map_err(|error| JournalError::io("recover", &path, error))?;
    let segment = Arc::new(kept.segment(end, len));
    table.insert(segment.clone(), Some(file.clone()));
    Ok(Tail {
        segment,
        file,
        admitted: kept.base + len,
    })
}

/// Writes what stands between `synced` and `end` once more: after a failed sync the page cache
/// may show bytes, marked clean, that the disk never got.
fn write_again(file: &dyn File, base: u64, end: u64, synced: u64) -> io::Result<()> {
    let mut offset = synced.saturating_sub(base);
    let end = end - base;
    let mut bytes = vec![0; limits::RECOVERY_READ_BYTES.min(end.saturating_sub(offset) as usize)];
    while offset < end {
        let piece = bytes.len().min((end - offset) as usize);
        let read = file.read_at(&mut bytes[..piece], offset)?;
        if read < piece {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.write_at(&bytes[..piece], offset)?;
        offset += piece as u64;
    }
    Ok(())
}

/// A first segment's file always holds its header and a seal.
const SMALLEST_SEGMENT_FILE_BYTES: u64 = SEGMENT_HEADER_BYTES + FRAME_OVERHEAD_BYTES;
