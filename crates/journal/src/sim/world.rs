//! What lies on a simulated disk: names and bytes as reads show them, and as a crash leaves them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use base::Rng;

/// All files of a simulated disk, and when it fails.
pub(super) struct World {
    pub rng: Rng,
    pub sector: usize,
    /// Counts processes; a handle of an earlier one is dead.
    pub life: u64,
    pub down: bool,
    pub operations: u64,
    pub syncs: u64,
    pub operations_left: Option<u64>,
    pub capacity: Option<u64>,
    pub fail_next_sync: bool,
    pub fail_next_write: bool,
    pub is_read_only: bool,
    pub inodes: BTreeMap<u64, Inode>,
    /// Bytes of files that cannot be read.
    pub bad: Vec<(u64, Range<u64>)>,
    pub names: BTreeMap<PathBuf, u64>,
    pub durable_names: BTreeMap<PathBuf, u64>,
    pub name_changes: Vec<NameChange>,
    pub locks: BTreeSet<PathBuf>,
}

/// A change of a folder that no sync has covered.
pub(super) enum NameChange {
    Create(PathBuf, u64),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf, u64),
}

/// A file: what reads show of it, and what is safe.
#[derive(Default)]
pub(super) struct Inode {
    /// What reads show.
    pub cache: Vec<u8>,
    /// What survives.
    pub durable: Vec<u8>,
    /// Per sector, its contents after each write since the last sync.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
    /// Lengths since the last sync, in order.
    pub lens: Vec<u64>,
    pub reserved: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::from_seed(seed);
        let sector = [32, 128, 512, 4096][rng.below(4) as usize];
        World {
            rng,
            sector,
            life: 0,
            down: false,
            operations: 0,
            syncs: 0,
            operations_left: None,
            capacity: None,
            fail_next_sync: false,
            fail_next_write: false,
            is_read_only: false,
            inodes: BTreeMap::new(),
            bad: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            locks: BTreeSet::new(),
        }
    }

    pub(super) fn alive(&mut self, life: Option<u64>) -> io::Result<()> {
        self.operations += 1;
        if self.down || life.is_some_and(|life| life != self.life) {
            return Err(io::Error::other("the simulated machine is down"));
        }
        Ok(())
    }

    /// Begins a change; true when the power goes out in its middle.
    pub(super) fn change(&mut self, life: Option<u64>) -> io::Result<bool> {
        self.alive(life)?;
        if self.is_read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        match &mut self.operations_left {
            Some(0) => Ok(true),
            Some(left) => {
                *left -= 1;
                Ok(false)
            }
            None => Ok(false),
        }
    }

    pub(super) fn end_change(&mut self, crashes: bool) -> io::Result<()> {
        if crashes {
            self.down = true;
            return Err(io::Error::other("simulated power cut"));
        }
        Ok(())
    }

    pub(super) fn inode(&mut self, id: u64) -> &mut Inode {
        self.inodes.entry(id).or_default()
    }

    pub(super) fn used(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.inodes.get(id))
            .map(|inode| inode.reserved)
            .sum()
    }

    pub(super) fn reserve(&mut self, id: u64, to: u64) -> io::Result<()> {
        let grows = to.saturating_sub(self.inode(id).reserved);
        if grows > 0
            && self
                .capacity
                .is_some_and(|capacity| self.used() + grows > capacity)
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inode(id).reserved += grows;
        Ok(())
    }

    pub(super) fn write(&mut self, id: u64, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset + bytes.len() as u64;
        self.reserve(id, end)?;
        let sector = self.sector;
        let inode = self.inode(id);
        if (inode.cache.len() as u64) < end {
            inode.cache.resize(end as usize, 0);
            inode.lens.push(end);
        }
        inode.cache[offset as usize..end as usize].copy_from_slice(bytes);
        for index in offset as usize / sector..=(end as usize - 1) / sector {
            inode.touch(sector, index);
        }
        Ok(())
    }

    pub(super) fn truncate(&mut self, id: u64, len: u64) {
        let sector = self.sector;
        let inode = self.inode(id);
        if len as usize == inode.cache.len() {
            return;
        }
        inode.cache.resize(len as usize, 0);
        inode.lens.push(len);
        inode.reserved = inode.reserved.min(len);
        let boundary = len as usize / sector;
        inode.dirty.split_off(&boundary);
        if !(len as usize).is_multiple_of(sector) {
            inode.touch(sector, boundary);
        }
    }

    pub(super) fn lose_power(&mut self) {
        for change in std::mem::take(&mut self.name_changes) {
            if self.rng.one_in(2) {
                continue;
            }
            match change {
                NameChange::Create(path, id) => {
                    self.durable_names.insert(path, id);
                }
                NameChange::Remove(path) => {
                    self.durable_names.remove(&path);
                }
                // Whole or not at all; not at all, too, where the file had never got its first
                // name.
                NameChange::Rename(from, to, id) => {
                    if self.durable_names.remove(&from).is_some() {
                        self.durable_names.insert(to, id);
                    }
                }
            }
        }
        self.names = self.durable_names.clone();
        let World {
            rng,
            inodes,
            names,
            sector,
            ..
        } = self;
        let named: BTreeSet<u64> = names.values().copied().collect();
        inodes.retain(|id, _| named.contains(id));
        for inode in inodes.values_mut() {
            let lens = rng.below(inode.lens.len() as u64 + 1) as usize;
            inode.apply_lens(lens);
            // Some crashes lose nearly all, some nearly nothing.
            let lose_one_in = 1 + rng.below(6);
            inode.apply_sectors(*sector, 0..usize::MAX, &mut |versions| {
                if rng.one_in(lose_one_in) {
                    rng.below(versions as u64 + 1) as usize
                } else {
                    versions
                }
            });
            inode.lens.clear();
            inode.cache.clone_from(&inode.durable);
            inode.reserved = inode.durable.len() as u64;
        }
    }

    pub(super) fn new_life(&mut self) {
        self.life += 1;
        self.down = false;
        self.operations_left = None;
        self.fail_next_sync = false;
        self.fail_next_write = false;
        self.locks.clear();
    }
}

impl Inode {
    /// Notes a sector's present content as one more unsynced version.
    fn touch(&mut self, sector: usize, index: usize) {
        let end = ((index + 1) * sector).min(self.cache.len());
        let content = self.cache[index * sector..end].to_vec();
        self.dirty.entry(index).or_default().push(content);
    }

    pub(super) fn apply_lens(&mut self, count: usize) {
        for len in self.lens.drain(..).take(count) {
            self.durable.resize(len as usize, 0);
        }
    }

    /// Brings unsynced sectors of these to the disk: `choose` says which of the versions, zero for
    /// none.
    pub(super) fn apply_sectors(
        &mut self,
        sector: usize,
        sectors: Range<usize>,
        choose: &mut dyn FnMut(usize) -> usize,
    ) {
        let mut asked = self.dirty.split_off(&sectors.start);
        self.dirty.append(&mut asked.split_off(&sectors.end));
        for (index, versions) in asked {
            let chosen = choose(versions.len());
            let Some(content) = chosen.checked_sub(1).and_then(|at| versions.get(at)) else {
                continue;
            };
            let from = (index * sector).min(self.durable.len());
            let to = (from + content.len()).min(self.durable.len());
            self.durable[from..to].copy_from_slice(&content[..to - from]);
        }
    }
}
