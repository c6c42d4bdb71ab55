//! The walk over what stands: visits whole frames, and decides about every spot without one.

use std::collections::BTreeMap;
use std::io;

use base::UnixMillis;

use super::{Cut, CutReason, Damage, Kept, Recovery, Visit};
use crate::disk::Disk;
use crate::error::JournalError;
use crate::format::{
    FRAME_OVERHEAD_BYTES, FrameRef, HeaderError, Position, SEGMENT_HEADER_BYTES, SegmentHeader,
    u64_at,
};
use crate::limits;
use crate::options::JournalOptions;
use crate::reader::{Reader, is_zero};
use crate::segment::SegmentTable;

/// A spot in the walk: a segment by index, a byte in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub index: usize,
    pub offset: u64,
}

pub(super) struct Walk<'a> {
    disk: &'a dyn Disk,
    table: &'a SegmentTable,
    options: &'a JournalOptions,
    bases: &'a [u64],
    pub kept: BTreeMap<usize, Kept>,
    /// Everything before this position was synced, by what the frames say.
    pub synced: u64,
    pub report: Recovery,
}

/// How reading a segment's frames ended.
enum Ended {
    Sealed,
    /// No whole frame at this offset.
    Bad(u64),
}

impl<'a> Walk<'a> {
    pub(super) fn new(
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
    pub(super) fn skip_to(&mut self, mark: u64) -> Result<Option<At>, JournalError> {
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
    pub(super) fn walk(
        &mut self,
        start: Option<At>,
        visit: Visit<'_>,
    ) -> Result<usize, JournalError> {
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
            .open_to_read(&path)
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

/// What stands after the bad spot at `position`.
struct Later {
    position: u64,
    first: Option<At>,
    bytes: u64,
    torn: bool,
}
