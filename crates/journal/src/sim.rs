//! The disk's twin: a file system in memory that fails in the ways of real ones, from a seed.
//!
//! It keeps what reads show (the page cache) apart from what would survive a power cut. A crash
//! lets each unsynced sector survive or not by itself, in any of the versions that were written,
//! so writes tear and come out of order; length changes survive up to some point, creations and
//! removals one by one. A failed sync loses unsynced sectors while reads still show them, as
//! Linux does. Sectors are 32 to 4,096 bytes by seed, so that tears fall into headers too.
//!
//! Not modelled: directories as such, and sectors that were synced once and go bad; a test can
//! do the latter with [`SimDisk::flip`], or with [`SimDisk::spoil`] where reads say so.

mod world;

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::disk::{Disk, DiskLock, File, LockError};

use world::{Inode, NameChange, World};

/// A simulated disk; clones share it.
#[derive(Clone)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

impl SimDisk {
    /// An empty disk; equal seeds and equal calls give equal faults.
    pub fn new(seed: u64) -> Self {
        SimDisk {
            world: Arc::new(Mutex::new(World::new(seed))),
        }
    }

    /// Bounds the bytes that files may take; `None` lifts the bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.world.lock().capacity = bytes;
    }

    /// Bytes that the files take now.
    pub fn used(&self) -> u64 {
        self.world.lock().used()
    }

    /// Lets the next sync of a file fail and lose an unknown part of what it covers.
    pub fn fail_next_sync(&self) {
        self.world.lock().fail_next_sync = true;
    }

    /// Lets the next write fail after an unknown part of it.
    pub fn fail_next_write(&self) {
        self.world.lock().fail_next_write = true;
    }

    /// Makes the file system read-only or writable again. What was written before and not synced
    /// may never reach the disk, as when Linux makes a file system read-only after an error.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.world.lock().is_read_only = is_read_only;
    }

    /// Cuts the power in the middle of the `operations`-th change from now on; every call fails
    /// then until [`SimDisk::power_on`].
    pub fn crash_after(&self, operations: u64) {
        self.world.lock().operations_left = Some(operations);
    }

    /// True from a power cut until the power is on again.
    pub fn is_down(&self) -> bool {
        self.world.lock().down
    }

    /// Cuts the power now and turns it on again.
    pub fn crash(&self) {
        self.world.lock().down = true;
        self.power_on();
    }

    /// Comes back with what survived; open files and locks of before are dead.
    pub fn power_on(&self) {
        let mut world = self.world.lock();
        if world.down {
            world.lose_power();
        }
        world.new_life();
    }

    /// Ends the process but not the machine: open files and locks are dead, all bytes stay.
    pub fn kill(&self) {
        self.world.lock().new_life();
    }

    /// Calls made so far, reads included.
    pub fn operations(&self) -> u64 {
        self.world.lock().operations
    }

    /// Syncs of files so far, those that failed included.
    pub fn syncs(&self) -> u64 {
        self.world.lock().syncs
    }

    /// Flips bits of a byte that is safely on the disk: bit rot. False when there is none.
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) -> bool {
        let mut world = self.world.lock();
        let Some(id) = world.names.get(path).copied() else {
            return false;
        };
        let Some(inode) = world.inodes.get_mut(&id) else {
            return false;
        };
        for bytes in [&mut inode.cache, &mut inode.durable] {
            match bytes.get_mut(offset as usize) {
                Some(byte) => *byte ^= mask,
                None => return false,
            }
        }
        true
    }

    /// Lets reads of these bytes of a file fail from now on, as those of a bad sector do.
    pub fn spoil(&self, path: &Path, range: Range<u64>) {
        let mut world = self.world.lock();
        if let Some(id) = world.names.get(path).copied() {
            world.bad.push((id, range));
        }
    }

    /// Lets everything be read again.
    pub fn mend(&self) {
        self.world.lock().bad.clear();
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world.lock();
        f.debug_struct("SimDisk")
            .field("sector", &world.sector)
            .field("operations", &world.operations)
            .field("names", &world.names)
            .finish_non_exhaustive()
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        self.world.lock().alive(None)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DiskLock>, LockError> {
        let mut world = self.world.lock();
        world.alive(None).map_err(LockError::Io)?;
        if !world.locks.insert(path.to_owned()) {
            return Err(LockError::Taken(None));
        }
        let life = world.life;
        Ok(Box::new(SimLock {
            world: self.world.clone(),
            path: path.to_owned(),
            life,
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut world = self.world.lock();
        world.alive(None)?;
        let inside = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut world = self.world.lock();
        let crashes = world.change(None)?;
        let id = match world.names.get(path) {
            Some(id) => *id,
            None => {
                let id = world.inodes.keys().next_back().map_or(0, |last| last + 1);
                world.inodes.insert(id, Inode::default());
                world.names.insert(path.to_owned(), id);
                world
                    .name_changes
                    .push(NameChange::Create(path.to_owned(), id));
                id
            }
        };
        world.truncate(id, 0);
        world.end_change(crashes)?;
        Ok(self.file(id, world.life))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut world = self.world.lock();
        world.alive(None)?;
        let id = *world.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(id, world.life))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        let crashes = world.change(None)?;
        world.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        world.name_changes.push(NameChange::Remove(path.to_owned()));
        world.end_change(crashes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        let crashes = world.change(None)?;
        let id = world.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        world.names.insert(to.to_owned(), id);
        world
            .name_changes
            .push(NameChange::Rename(from.to_owned(), to.to_owned(), id));
        world.end_change(crashes)
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        let mut world = self.world.lock();
        if world.change(None)? {
            return world.end_change(true);
        }
        world.name_changes.clear();
        world.durable_names = world.names.clone();
        Ok(())
    }
}

impl SimDisk {
    fn file(&self, id: u64, life: u64) -> Arc<dyn File> {
        Arc::new(SimFile {
            world: self.world.clone(),
            id,
            life,
        })
    }
}

struct SimFile {
    world: Arc<Mutex<World>>,
    id: u64,
    life: u64,
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        let mut world = self.world.lock();
        world.alive(Some(self.life))?;
        Ok(world.inode(self.id).cache.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut world = self.world.lock();
        world.alive(Some(self.life))?;
        let end = offset + buf.len() as u64;
        let is_asked =
            |(id, bad): &(u64, Range<u64>)| *id == self.id && bad.start < end && offset < bad.end;
        if world.bad.iter().any(is_asked) {
            return Err(Errno::IO.into());
        }
        let cache = &world.inode(self.id).cache;
        let from = (offset as usize).min(cache.len());
        let read = buf.len().min(cache.len() - from);
        buf[..read].copy_from_slice(&cache[from..from + read]);
        Ok(read)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut world = self.world.lock();
        let crashes = world.change(Some(self.life))?;
        if std::mem::take(&mut world.fail_next_write) {
            let part = world.rng.below(buf.len() as u64 + 1) as usize;
            world.write(self.id, &buf[..part], offset)?;
            return Err(io::Error::other("simulated write error"));
        }
        world.write(self.id, buf, offset)?;
        world.end_change(crashes)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut world = self.world.lock();
        let crashes = world.change(Some(self.life))?;
        world.reserve(self.id, offset + len)?;
        let inode = world.inode(self.id);
        if (inode.cache.len() as u64) < offset + len {
            inode.cache.resize((offset + len) as usize, 0);
            inode.lens.push(offset + len);
        }
        world.end_change(crashes)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut world = self.world.lock();
        let crashes = world.change(Some(self.life))?;
        world.truncate(self.id, len);
        world.end_change(crashes)
    }

    fn write_synced(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.write_at(buf, offset)?;
        let end = offset as usize + buf.len();
        self.sync_range(offset as usize..end)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_range(0..usize::MAX)
    }
}

impl SimFile {
    /// Makes durable what was written to the sectors of a range, and the length.
    fn sync_range(&self, range: Range<usize>) -> io::Result<()> {
        let mut world = self.world.lock();
        world.syncs += 1;
        let change = world.change(Some(self.life));
        if matches!(change, Ok(true)) {
            return world.end_change(true);
        }
        let World {
            rng,
            inodes,
            sector,
            fail_next_sync,
            ..
        } = &mut *world;
        let inode = inodes.entry(self.id).or_default();
        let sectors = range.start / *sector..range.end.div_ceil(*sector);
        let failed = match change {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Err(error),
            Err(error) => return Err(error),
            Ok(_) if std::mem::take(fail_next_sync) => {
                Err(io::Error::other("simulated sync error"))
            }
            Ok(_) => Ok(()),
        };
        if failed.is_err() {
            inode.apply_sectors(*sector, sectors, &mut |versions| {
                rng.below(versions as u64 + 1) as usize
            });
            return failed;
        }
        inode.apply_lens(usize::MAX);
        inode.apply_sectors(*sector, sectors, &mut |versions| versions);
        Ok(())
    }
}

struct SimLock {
    world: Arc<Mutex<World>>,
    path: PathBuf,
    life: u64,
}

impl fmt::Debug for SimLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimLock")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = self.world.lock();
        if world.life == self.life {
            world.locks.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_bytes_survive_and_unsynced_ones_need_not() {
        let mut lost = 0;
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            let path = Path::new("/sim/file");
            let file = disk.create(path).unwrap();
            file.write_at(&[7; 10_000], 0).unwrap();
            file.sync().unwrap();
            disk.sync_dir(Path::new("/sim")).unwrap();
            file.write_at(&[9; 10_000], 10_000).unwrap();
            disk.crash();
            assert!(file.len().is_err(), "a handle outlived the machine");
            let file = disk.open(path).unwrap();
            let mut bytes = vec![0; 20_000];
            let read = file.read_at(&mut bytes, 0).unwrap();
            assert!(bytes[..10_000].iter().all(|byte| *byte == 7), "seed {seed}");
            lost += u32::from(read < 20_000 || bytes[10_000..].contains(&0));
        }
        assert!(lost > 10, "crashes lose nothing: {lost}");
    }

    #[test]
    fn a_failed_sync_loses_what_reads_still_show() {
        let mut lost = 0;
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            let path = Path::new("/sim/file");
            let file = disk.create(path).unwrap();
            file.allocate(0, 4096).unwrap();
            file.sync().unwrap();
            disk.sync_dir(Path::new("/sim")).unwrap();
            file.write_at(&[7; 4096], 0).unwrap();
            disk.fail_next_sync();
            file.sync().unwrap_err();
            file.sync().unwrap();
            let mut bytes = [0; 4096];
            file.read_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, [7; 4096]);
            disk.crash();
            disk.open(path).unwrap().read_at(&mut bytes, 0).unwrap();
            lost += u32::from(bytes.contains(&0));
        }
        assert!(lost > 10, "failed syncs lose nothing: {lost}");
    }

    #[test]
    fn a_full_disk_refuses_and_a_removal_makes_room() {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(5000));
        let a = disk.create(Path::new("/sim/a")).unwrap();
        a.allocate(0, 4000).unwrap();
        let b = disk.create(Path::new("/sim/b")).unwrap();
        let error = b.allocate(0, 2000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        disk.remove(Path::new("/sim/a")).unwrap();
        b.allocate(0, 2000).unwrap();
        assert_eq!(disk.used(), 2000);
    }
}
