//! The disk seam: what the journal asks of a file system, and the real one.
//!
//! Calls are positional and block; the journal makes them on its writer thread, during opening
//! and for reads. [`crate::SimDisk`] is the twin that fails from a seed.

use std::fmt;
use std::fs;
use std::io::{self, IoSlice, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};

use crate::direct::Direct;
use crate::limits;

/// A file system as the journal needs it.
pub trait Disk: Send + Sync + 'static {
    /// Makes `dir` and its parents.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive lock file at `path`, or says who has it.
    fn lock(&self, path: &Path) -> Result<Box<dyn DiskLock>, LockError>;

    /// As [`Disk::lock`], where nothing can be written: the file must be there.
    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn DiskLock>, LockError> {
        self.lock(path)
    }

    /// Names of the files in `dir`.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes the file at `path`, emptied if it was there.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens the file at `path` for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens the file at `path` for reading alone, which a read-only file system allows too.
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.open(path)
    }

    /// Removes the file at `path`; open handles go on.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives the file at `from` the name `to`, which nothing has, in the same folder.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes creations, removals and new names in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file.
pub trait File: Send + Sync + 'static {
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;

    /// True when the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads into `buf` from `offset`; fewer bytes only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As [`File::read_at`], into a buffer of its own with room for `len` bytes.
    fn read_new(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let read = self.read_at(&mut bytes, offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Tells that this handle is going to be read from front to back: a hint, which may do nothing.
    fn read_in_sequence(&self) {}

    /// Tells that this range is going to be read soon: a hint, which may do nothing.
    fn read_ahead(&self, _offset: u64, _len: u64) {}

    /// The operating system's own handle, for who has it send the bytes; none where there is none.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Writes all of `buf` at `offset`; much at a time by whichever way is faster.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// As [`File::write_at`], for what is synced next: much at a time goes past the system's cache
    /// while nobody reads the file.
    fn write_through(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(buf, offset)
    }

    /// Writes all of `buf` at `offset` and makes it durable: it alone, not what was written before.
    /// One call of the system does both where it can, for less than a write and a sync.
    fn write_synced(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_through(buf, offset)?;
        self.sync()
    }

    /// Reserves space for `offset..offset + len`, which reads as zeros where nothing was written,
    /// and extends the file to it.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Cuts the file to `len` bytes.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Makes the file's bytes and length durable.
    fn sync(&self) -> io::Result<()>;
}

/// A held lock; dropping it releases it.
pub trait DiskLock: Send + Sync + fmt::Debug {}

/// Why a lock was not given.
#[derive(Debug)]
pub enum LockError {
    /// Somebody has it; the process that wrote itself into the file, if that can be read.
    Taken(Option<u32>),
    /// The file system refused.
    Io(io::Error),
}

/// Whether these bytes cannot be read, though the file system works: the sector has gone bad.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    [Errno::IO, Errno::NODATA, Errno::ILSEQ]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// As [`File::read_at`], but a block that the disk cannot read is zeros, as if somebody had
/// overwritten it. A file of which nothing can be read is an error: the disk may only be away.
pub(crate) fn read_around(file: &dyn File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    match file.read_at(buf, offset) {
        Err(error) if is_unreadable(&error) && reads_anywhere(file) => {}
        read => return read,
    }
    let mut at = 0;
    while at < buf.len() {
        let within = (offset + at as u64) % limits::DISK_BLOCK_BYTES;
        let end = buf
            .len()
            .min(at + (limits::DISK_BLOCK_BYTES - within) as usize);
        let block = &mut buf[at..end];
        match file.read_at(block, offset + at as u64) {
            Ok(read) if read < block.len() => return Ok(at + read),
            Ok(_) => {}
            Err(error) if is_unreadable(&error) => block.fill(0),
            Err(error) => return Err(error),
        }
        at = end;
    }
    Ok(at)
}

/// Whether any of a file's blocks can be read, as far as a few of them tell.
pub(crate) fn reads_anywhere(file: &dyn File) -> bool {
    let blocks = file.len().unwrap_or(0) / limits::DISK_BLOCK_BYTES;
    let step = (blocks / limits::PROBED_BLOCKS).max(1);
    let mut probes = (0..=blocks).step_by(usize::try_from(step).unwrap_or(1));
    probes.any(|block| {
        file.read_at(&mut [0; 16], block * limits::DISK_BLOCK_BYTES)
            .is_ok()
    })
}

/// The machine's own file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DiskLock>, LockError> {
        let mut file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(LockError::Io)?;
        take_lock(&file)?;
        file.set_len(0).map_err(LockError::Io)?;
        writeln!(file, "{}", std::process::id()).map_err(LockError::Io)?;
        Ok(Box::new(RealLock { file }))
    }

    fn lock_to_read(&self, path: &Path) -> Result<Box<dyn DiskLock>, LockError> {
        let file = fs::File::open(path).map_err(LockError::Io)?;
        take_lock(&file)?;
        Ok(Box::new(RealLock { file }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // A name that is not text is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        Ok(Arc::new(RealFile::new(file, path)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile::new(file, path)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::File::open(path)?;
        Ok(Arc::new(RealFile::new(file, path)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }
}

/// Takes the lock of a lock file, or says who has it.
fn take_lock(file: &fs::File) -> Result<(), LockError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            // The holder's number is a courtesy; without it the message still stands.
            let _ = file.take(LOCK_TEXT_BYTES_MAX).read_to_string(&mut text);
            Err(LockError::Taken(text.trim().parse().ok()))
        }
        Err(error) => Err(LockError::Io(error.into())),
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    direct: Direct,
    /// Whether anybody read it: whoever follows what is written wants it in the cache.
    is_read: AtomicBool,
}

impl RealFile {
    fn new(file: fs::File, path: &Path) -> Self {
        RealFile {
            file,
            direct: Direct::new(path),
            is_read: AtomicBool::new(false),
        }
    }

    fn note_reading(&self) {
        self.is_read.store(true, Ordering::Relaxed);
    }

    fn may_pass_cache(&self, buf: &[u8]) -> bool {
        buf.len() >= limits::DIRECT_BYTES_MIN && !self.is_read.load(Ordering::Relaxed)
    }
}

impl File for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.note_reading();
        let mut filled = 0;
        while filled < buf.len() {
            match self
                .file
                .read_at(&mut buf[filled..], offset + filled as u64)
            {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn read_new(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.note_reading();
        // Clearing the room first would cost as much again as filling it.
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The room may be larger than asked for.
        bytes.truncate(len);
        Ok(bytes)
    }

    fn read_in_sequence(&self) {
        // Reads ahead further: four times as fast from a disk that answers late.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Sequential);
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        self.note_reading();
        // No length would mean to the end.
        if let Some(len) = NonZeroU64::new(len) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.note_reading();
        Some(self.file.as_fd())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.may_pass_cache(buf) {
            self.direct.write_faster(&self.file, buf, offset)
        } else {
            self.file.write_all_at(buf, offset)
        }
    }

    fn write_through(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if self.may_pass_cache(buf) {
            self.direct.write_at(&self.file, buf, offset)
        } else {
            self.file.write_all_at(buf, offset)
        }
    }

    fn write_synced(&self, mut buf: &[u8], mut offset: u64) -> io::Result<()> {
        if self.may_pass_cache(buf) {
            self.direct.write_at(&self.file, buf, offset)?;
            return self.sync();
        }
        while !buf.is_empty() {
            match rustix::io::pwritev2(
                &self.file,
                &[IoSlice::new(buf)],
                offset,
                ReadWriteFlags::DSYNC,
            ) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    buf = &buf[written..];
                    offset += written as u64;
                }
                Err(Errno::INTR) => {}
                // The file system knows no such writes.
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.file.write_all_at(buf, offset)?;
                    return self.sync();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                fill_with_zeros(&self.file, offset, len)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Preallocates by writing, beyond the present end only, so that no written byte is lost.
fn fill_with_zeros(file: &fs::File, offset: u64, len: u64) -> io::Result<()> {
    let end = offset + len;
    let mut at = file.metadata()?.len().max(offset);
    let zeros = vec![0; limits::ZERO_FILL_BYTES];
    while at < end {
        let step = (end - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..step as usize], at)?;
        at += step;
    }
    Ok(())
}

#[derive(Debug)]
struct RealLock {
    file: fs::File,
}

impl DiskLock for RealLock {}

impl Drop for RealLock {
    /// Lets go by word, not by closing: a process that is being started at this moment has the
    /// file open too until it runs its own program.
    fn drop(&mut self) {
        if let Err(error) = rustix::fs::flock(&self.file, FlockOperation::Unlock) {
            tracing::debug!(%error, "a lock is left to the end of its file");
        }
    }
}

/// A process number and a line end fit many times over.
const LOCK_TEXT_BYTES_MAX: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_and_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.lock");
        let held = RealDisk.lock(&path).unwrap();
        match RealDisk.lock(&path) {
            Err(LockError::Taken(pid)) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("the lock was given twice: {other:?}"),
        }
        drop(held);
        RealDisk.lock(&path).unwrap();
    }

    #[test]
    fn a_lock_goes_although_a_copy_of_its_file_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.lock");
        let file = fs::File::create(&path).unwrap();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let copy = file.try_clone().unwrap();
        assert!(RealDisk.lock(&path).is_err());
        drop(RealLock { file });
        RealDisk.lock(&path).unwrap();
        drop(copy);
    }

    #[test]
    fn space_reads_as_zeros_whichever_way_it_was_reserved() {
        let dir = tempfile::tempdir().unwrap();
        for by_writing in [false, true] {
            let path = dir.path().join(format!("file-{by_writing}"));
            let file = RealDisk.create(&path).unwrap();
            file.write_at(b"kept", 0).unwrap();
            if by_writing {
                fill_with_zeros(
                    &fs::File::options().write(true).open(&path).unwrap(),
                    0,
                    9000,
                )
                .unwrap();
            } else {
                file.allocate(0, 9000).unwrap();
            }
            let mut bytes = vec![1; 10_000];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 9000);
            assert_eq!(file.read_new(0, 10_000).unwrap(), bytes[..9000]);
            assert_eq!(file.read_new(1, 3).unwrap(), b"ept");
            assert_eq!(&bytes[..4], b"kept");
            assert!(bytes[4..9000].iter().all(|b| *b == 0));
        }
    }
}
