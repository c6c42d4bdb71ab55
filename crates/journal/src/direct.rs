//! Writing past the system's page cache (decision 16).
//!
//! For a large batch that is synced anyway, copying it into fresh pages and writing these back costs
//! more of the processor than all else together. Its whole blocks go to the disk from a buffer of
//! this thread's own; what lies before and after them goes through the cache, which the system keeps
//! in step with what was written past it. A large batch that nobody waits for on the disk takes
//! whichever way was faster lately.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::limits::{
    DIRECT_BLOCK_BYTES, DIRECT_COPY_BYTES, DIRECT_WRITE_BYTES, SLOWER_AFTER_BYTES_MAX,
    SLOWER_AFTER_BYTES_MIN,
};

/// A second handle of a file, for what passes the cache.
#[derive(Debug)]
pub(crate) struct Direct {
    path: PathBuf,
    /// Opened by the first write; none where the file system does not have it.
    file: OnceLock<Option<fs::File>>,
    is_refused: AtomicBool,
}

impl Direct {
    pub(crate) fn new(path: &Path) -> Self {
        Direct {
            path: path.to_owned(),
            file: OnceLock::new(),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Writes `buf` at `offset`, its whole blocks past the cache of `cached` where that goes.
    pub(crate) fn write_at(&self, cached: &fs::File, buf: &[u8], offset: u64) -> io::Result<()> {
        let block = DIRECT_BLOCK_BYTES as u64;
        let head = (offset.next_multiple_of(block) - offset) as usize;
        let Some(rest) = buf.len().checked_sub(head) else {
            return cached.write_all_at(buf, offset);
        };
        let whole = rest - rest % DIRECT_BLOCK_BYTES;
        let (head, rest) = buf.split_at(head);
        let at = offset + head.len() as u64;
        cached.write_all_at(head, offset)?;
        let written = self.write_blocks(&rest[..whole], at)?;
        cached.write_all_at(&rest[written..], at + written as u64)
    }

    /// As [`Direct::write_at`], or through the cache alone: the way that was faster lately.
    pub(crate) fn write_faster(
        &self,
        cached: &fs::File,
        buf: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let bytes = buf.len() as u64;
        let way = CHOICE.with_borrow_mut(|choice| choice.next(bytes));
        let began = Instant::now();
        match way {
            Way::Cached => cached.write_all_at(buf, offset)?,
            Way::Direct => self.write_at(cached, buf, offset)?,
        }
        CHOICE.with_borrow_mut(|choice| choice.note(way, bytes, began.elapsed()));
        Ok(())
    }

    /// Writes whole blocks; tells how many bytes of them are written, by blocks.
    fn write_blocks(&self, blocks: &[u8], offset: u64) -> io::Result<usize> {
        let Some(file) = self.file() else {
            return Ok(0);
        };
        BUFFER.with_borrow_mut(|buffer| {
            let mut written = 0;
            let is_aligned = blocks.as_ptr().addr().is_multiple_of(DIRECT_BLOCK_BYTES);
            let step = match is_aligned {
                true => DIRECT_WRITE_BYTES,
                false => DIRECT_COPY_BYTES,
            };
            for piece in blocks.chunks(step) {
                let piece = match is_aligned {
                    true => piece,
                    false => buffer.aligned(piece),
                };
                let at = offset + written as u64;
                match write(file, piece, at) {
                    Ok(len) => {
                        written += len - len % DIRECT_BLOCK_BYTES;
                        if len < piece.len() {
                            break;
                        }
                    }
                    // Some disks want more than blocks of this size; they get the usual way.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        self.is_refused.store(true, Ordering::Relaxed);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(written)
        })
    }

    fn file(&self) -> Option<&fs::File> {
        if self.is_refused.load(Ordering::Relaxed) {
            return None;
        }
        let open = || {
            let flags = OFlags::DIRECT.bits() as i32;
            let mut options = fs::OpenOptions::new();
            options
                .write(true)
                .custom_flags(flags)
                .open(&self.path)
                .ok()
        };
        self.file.get_or_init(open).as_ref()
    }
}

fn write(file: &fs::File, buf: &[u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.write_at(buf, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Memory that begins where a block may.
#[derive(Default)]
struct Buffer(Vec<u8>);

impl Buffer {
    /// A copy of `bytes` that begins at a block's boundary.
    fn aligned(&mut self, bytes: &[u8]) -> &[u8] {
        self.0.resize(DIRECT_COPY_BYTES + DIRECT_BLOCK_BYTES, 0);
        let start = self.0.as_ptr().align_offset(DIRECT_BLOCK_BYTES);
        let copy = &mut self.0[start..start + bytes.len()];
        copy.copy_from_slice(bytes);
        copy
    }
}

thread_local! {
    /// Of the thread that writes, one for each journal; goes with it.
    static BUFFER: RefCell<Buffer> = RefCell::default();
    /// Of the same thread.
    static CHOICE: RefCell<Choice> = RefCell::default();
}

/// How bytes get to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Cached,
    Direct,
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::Cached => Way::Direct,
            Way::Direct => Way::Cached,
        }
    }
}

/// Which way was faster lately. The slower one is tried again from time to time, the more seldom the
/// longer it stays so.
#[derive(Debug)]
struct Choice {
    /// Nanoseconds a byte, smoothed over the writes of the faster way.
    cached: Option<f64>,
    direct: Option<f64>,
    /// Bytes until the slower way is tried again.
    left: u64,
    patience: u64,
}

impl Default for Choice {
    fn default() -> Self {
        Choice {
            cached: None,
            direct: None,
            left: SLOWER_AFTER_BYTES_MIN,
            patience: SLOWER_AFTER_BYTES_MIN,
        }
    }
}

impl Choice {
    /// The way of the next write.
    fn next(&mut self, bytes: u64) -> Way {
        let Some(faster) = self.faster() else {
            return if self.cached.is_none() {
                Way::Cached
            } else {
                Way::Direct
            };
        };
        if self.left > bytes {
            self.left -= bytes;
            return faster;
        }
        faster.other()
    }

    /// Learns how long a write took.
    fn note(&mut self, way: Way, bytes: u64, took: Duration) {
        let before = self.faster();
        let pace = match way {
            Way::Cached => &mut self.cached,
            Way::Direct => &mut self.direct,
        };
        let now = took.as_nanos() as f64 / bytes.max(1) as f64;
        // What was known of the slower way is old.
        let known = pace.filter(|_| before == Some(way));
        *pace = Some(known.map_or(now, |known| known + (now - known) / 4.0));
        let Some(before) = before else { return };
        if way != before {
            let has_won = self.faster() == Some(way);
            self.patience = if has_won {
                SLOWER_AFTER_BYTES_MIN
            } else {
                (2 * self.patience).min(SLOWER_AFTER_BYTES_MAX)
            };
            self.left = self.patience;
        }
    }

    /// None until both were tried.
    fn faster(&self) -> Option<Way> {
        let is_direct = self.direct? <= self.cached?;
        Some(if is_direct { Way::Direct } else { Way::Cached })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_the_cache_and_what_does_not_make_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut options = fs::File::options();
        let cached = options.read(true).write(true).create_new(true);
        let cached = cached.open(&path).unwrap();
        let direct = Direct::new(&path);
        let mut rng = base::Rng::from_seed(7);
        let mut expected = Vec::new();
        let longest = DIRECT_WRITE_BYTES as u64 * 5 / 2;
        for round in 0..40 {
            let len = match round % 4 {
                0 => rng.below(DIRECT_BLOCK_BYTES as u64 * 2),
                1 => DIRECT_BLOCK_BYTES as u64,
                _ => rng.below(longest),
            };
            let mut piece = vec![0; len as usize];
            rng.fill(&mut piece);
            let offset = expected.len() as u64;
            // Pages that somebody read before are not to stay as they were.
            let mut before = vec![0; 100_000];
            let _ = cached
                .read_at(&mut before, offset.saturating_sub(50_000))
                .unwrap();
            direct.write_at(&cached, &piece, offset).unwrap();
            expected.extend_from_slice(&piece);
        }
        cached.sync_data().unwrap();
        assert_eq!(fs::read(&path).unwrap(), expected);
    }

    #[test]
    fn a_file_system_without_it_gets_the_usual_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let cached = fs::File::create(&path).unwrap();
        let direct = Direct::new(&dir.path().join("gone").join("file"));
        let bytes = vec![5; DIRECT_WRITE_BYTES * 2 + 17];
        direct.write_at(&cached, &bytes, 3).unwrap();
        assert!(fs::read(&path).unwrap()[3..] == bytes);
    }

    /// Writes of 1 MiB at these nanoseconds each; the share that went past the cache.
    fn share_direct(choice: &mut Choice, cached: u64, direct: u64) -> f64 {
        const MIB: u64 = 1 << 20;
        let mut past = 0;
        for _ in 0..4_096 {
            let way = choice.next(MIB);
            let took = match way {
                Way::Cached => cached,
                Way::Direct => direct,
            };
            past += u32::from(way == Way::Direct);
            choice.note(way, MIB, Duration::from_nanos(took));
        }
        f64::from(past) / 4_096.0
    }

    #[test]
    fn the_faster_way_is_taken_and_a_change_is_noticed() {
        let mut choice = Choice::default();
        assert!(share_direct(&mut choice, 1_000, 500) > 0.99);
        // A disk that takes a hundred times as long is left alone after a few tries.
        assert!(share_direct(&mut choice, 1_000, 100_000) < 0.01);
        // Tried so seldom by now, a change takes a while to be seen.
        let tries = (0..4).map(|_| share_direct(&mut choice, 1_000, 500));
        assert!(tries.last() > Some(0.99));
    }

    #[test]
    fn what_takes_the_faster_way_is_written_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let cached = fs::File::create(&path).unwrap();
        let direct = Direct::new(&path);
        let mut rng = base::Rng::from_seed(8);
        let mut expected = Vec::new();
        for _ in 0..20 {
            let mut piece = vec![0; 300_000 + rng.below(300_000) as usize];
            rng.fill(&mut piece);
            direct
                .write_faster(&cached, &piece, expected.len() as u64)
                .unwrap();
            expected.extend_from_slice(&piece);
        }
        assert!(fs::read(&path).unwrap() == expected);
    }
}
