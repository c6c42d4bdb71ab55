//! Which segments there are, and reading from them by position.
//!
//! The table keeps the files of the newest segment open and a bounded number of older ones.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::UnixMillis;
use parking_lot::Mutex;

use crate::disk::{Disk, File};
use crate::error::JournalError;
use crate::format::{Position, SEGMENT_HEADER_BYTES, segment_name};
use crate::limits;

/// A segment as [`crate::Journal::segments`] lists it; an empty one may stand ready at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Position of its first byte.
    pub base: Position,
    /// Where its written frames end.
    pub end: Position,
    /// True when nothing more is appended to it.
    pub sealed: bool,
    /// When it was made.
    pub created: UnixMillis,
    /// Bytes that it takes on the disk, preallocated ones included.
    pub bytes_on_disk: u64,
}

/// A segment's facts; shared by the table and the writer.
#[derive(Debug)]
pub(crate) struct Segment {
    pub base: u64,
    pub size: u64,
    pub created: UnixMillis,
    /// Position up to which bytes are with the operating system.
    pub written: AtomicU64,
    /// Bytes of the file.
    pub len: AtomicU64,
    pub sealed: AtomicBool,
}

impl Segment {
    pub(crate) fn new(base: u64, size: u64, created: UnixMillis, len: u64) -> Self {
        Segment {
            base,
            size,
            created,
            written: AtomicU64::new(base + SEGMENT_HEADER_BYTES),
            len: AtomicU64::new(len),
            sealed: AtomicBool::new(false),
        }
    }

    /// The position after the last one that the segment may hold.
    pub(crate) fn limit(&self) -> u64 {
        self.base + self.size
    }

    fn info(&self) -> SegmentInfo {
        SegmentInfo {
            base: Position(self.base),
            end: Position(self.written.load(Ordering::Acquire)),
            sealed: self.sealed.load(Ordering::Acquire),
            created: self.created,
            bytes_on_disk: self.len.load(Ordering::Relaxed),
        }
    }
}

/// Where a written range of a journal lies in the file system. It keeps the file: what is removed
/// meanwhile can still be read.
#[derive(Clone)]
pub struct Stretch {
    file: Arc<dyn File>,
    offset: u64,
}

impl Stretch {
    /// Where in the file it begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The file's handle; none on a simulated disk.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.descriptor()
    }
}

impl std::fmt::Debug for Stretch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stretch")
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

/// All segments of a journal by base.
pub(crate) struct SegmentTable {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    segments: BTreeMap<u64, Entry>,
    /// Bases of sealed segments with an open file, the longest unused first.
    open: VecDeque<u64>,
}

struct Entry {
    segment: Arc<Segment>,
    file: Option<Arc<dyn File>>,
}

impl SegmentTable {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        SegmentTable {
            disk,
            dir: dir.to_owned(),
            inner: Mutex::default(),
        }
    }

    pub(crate) fn path(&self, base: u64) -> PathBuf {
        self.dir.join(segment_name(base))
    }

    pub(crate) fn insert(&self, segment: Arc<Segment>, file: Option<Arc<dyn File>>) {
        self.inner
            .lock()
            .segments
            .insert(segment.base, Entry { segment, file });
    }

    /// Hands a sealed segment's file to the bounded set of open ones.
    pub(crate) fn sealed(&self, base: u64) {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.segments.get_mut(&base) {
            entry.segment.sealed.store(true, Ordering::Release);
            inner.touch(base);
        }
    }

    pub(crate) fn infos(&self) -> Vec<SegmentInfo> {
        self.inner
            .lock()
            .segments
            .values()
            .map(|entry| entry.segment.info())
            .collect()
    }

    pub(crate) fn bytes_on_disk(&self) -> u64 {
        let inner = self.inner.lock();
        inner
            .segments
            .values()
            .map(|entry| entry.segment.len.load(Ordering::Relaxed))
            .sum()
    }

    /// The first position that the journal holds.
    pub(crate) fn start(&self) -> u64 {
        let inner = self.inner.lock();
        inner
            .segments
            .keys()
            .next()
            .map_or(0, |base| base + SEGMENT_HEADER_BYTES)
    }

    /// Takes the oldest segment out of the table if it is sealed and ends at or below `mark`.
    pub(crate) fn take_below(&self, mark: u64) -> Option<Arc<Segment>> {
        let mut inner = self.inner.lock();
        let (&base, entry) = inner.segments.iter().next()?;
        let info = entry.segment.info();
        if !info.sealed || info.end.0 > mark {
            return None;
        }
        let entry = inner.segments.remove(&base)?;
        inner.open.retain(|open| *open != base);
        Some(entry.segment)
    }

    pub(crate) fn remove(&self, base: u64) {
        let mut inner = self.inner.lock();
        inner.segments.remove(&base);
        inner.open.retain(|open| *open != base);
    }

    /// Fills `buf` from `position`; all of it must be written and in one segment.
    pub(crate) fn read(&self, position: u64, buf: &mut [u8]) -> Result<(), JournalError> {
        let (segment, file) = self.find(position, buf.len())?;
        let offset = position - segment.base;
        let read = file
            .read_at(buf, offset)
            .map_err(|error| JournalError::io("read", &self.path(segment.base), error))?;
        if read < buf.len() {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(JournalError::io("read", &self.path(segment.base), short));
        }
        Ok(())
    }

    /// As [`SegmentTable::read`], into a buffer of its own.
    pub(crate) fn read_new(&self, position: u64, len: usize) -> Result<Vec<u8>, JournalError> {
        let (segment, file) = self.find(position, len)?;
        let read = file.read_new(position - segment.base, len);
        match read {
            Ok(bytes) if bytes.len() == len => Ok(bytes),
            Ok(_) => {
                let short = io::Error::from(io::ErrorKind::UnexpectedEof);
                Err(JournalError::io("read", &self.path(segment.base), short))
            }
            Err(error) => Err(JournalError::io("read", &self.path(segment.base), error)),
        }
    }

    /// Has the disk begin to read a range, if it is there.
    pub(crate) fn read_ahead(&self, position: u64, len: usize) {
        if let Ok((segment, file)) = self.find(position, len) {
            file.read_ahead(position - segment.base, len as u64);
        }
    }

    /// Where in its file a written range lies.
    pub(crate) fn stretch(&self, position: u64, len: usize) -> Result<Stretch, JournalError> {
        let (segment, file) = self.find(position, len)?;
        Ok(Stretch {
            file,
            offset: position - segment.base,
        })
    }

    /// The bytes that may be read from `position` on, within its segment.
    pub(crate) fn readable(&self, position: u64) -> Result<u64, JournalError> {
        let inner = self.inner.lock();
        let entry = inner.covering(position)?;
        Ok(entry
            .segment
            .written
            .load(Ordering::Acquire)
            .saturating_sub(position))
    }

    fn find(&self, at: u64, len: usize) -> Result<(Arc<Segment>, Arc<dyn File>), JournalError> {
        let mut inner = self.inner.lock();
        let entry = inner.covering(at)?;
        let segment = entry.segment.clone();
        let end = at.checked_add(len as u64);
        if end.is_none_or(|end| end > segment.written.load(Ordering::Acquire)) {
            return Err(JournalError::OutOfRange {
                position: Position(at),
                len,
            });
        }
        if let Some(file) = &entry.file {
            let file = file.clone();
            if segment.sealed.load(Ordering::Acquire) {
                inner.touch(segment.base);
            }
            return Ok((segment, file));
        }
        // Opened under the lock, so that no reclaim can remove the file in between.
        let path = self.path(segment.base);
        let file = self
            .disk
            .open_to_read(&path)
            .map_err(|error| JournalError::io("open", &path, error))?;
        if let Some(entry) = inner.segments.get_mut(&segment.base) {
            entry.file = Some(file.clone());
        }
        inner.touch(segment.base);
        Ok((segment, file))
    }
}

impl Inner {
    fn covering(&self, position: u64) -> Result<&Entry, JournalError> {
        match self.segments.range(..=position).next_back() {
            Some((_, entry)) => Ok(entry),
            None => Err(JournalError::Reclaimed {
                position: Position(position),
            }),
        }
    }

    /// Marks `base` as just used and closes the file that was longest not.
    fn touch(&mut self, base: u64) {
        if self.open.back() == Some(&base) {
            return;
        }
        self.open.retain(|open| *open != base);
        self.open.push_back(base);
        while self.open.len() > limits::READ_HANDLES_MAX {
            let Some(oldest) = self.open.pop_front() else {
                break;
            };
            if let Some(entry) = self.segments.get_mut(&oldest) {
                entry.file = None;
            }
        }
    }
}
