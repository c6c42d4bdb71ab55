//! Files of reclaimed segments, kept for new ones: a disk overwrites faster than it takes new space.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Disk, File};
use crate::error::JournalError;

/// The spare files of a journal.
#[derive(Debug)]
pub(crate) struct Spares {
    files: Mutex<Vec<(PathBuf, u64)>>,
    max: usize,
}

impl Spares {
    pub(crate) fn new(max: u32) -> Self {
        Spares {
            files: Mutex::default(),
            max: max as usize,
        }
    }

    /// Removes those of before: one may have been a segment already whose name did not last, and
    /// its frames stand at positions that are given out again.
    pub(crate) fn clear(disk: &dyn Disk, dir: &Path) -> Result<(), JournalError> {
        let names = disk
            .list(dir)
            .map_err(|error| JournalError::io("list", dir, error))?;
        for name in names.iter().filter(|name| name.ends_with(SUFFIX)) {
            let path = dir.join(name);
            disk.remove(&path)
                .map_err(|error| JournalError::io("remove", &path, error))?;
        }
        Ok(())
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.lock().iter().map(|(_, len)| len).sum()
    }

    /// Takes the file of a reclaimed segment, or removes it when there are enough.
    pub(crate) fn keep_or_remove(&self, disk: &dyn Disk, segment: &Path) -> io::Result<()> {
        let mut files = self.files.lock();
        if files.len() >= self.max {
            return disk.remove(segment);
        }
        let len = disk.open(segment)?.len()?;
        let spare = segment.with_extension(&SUFFIX[1..]);
        disk.rename(segment, &spare)?;
        files.push((spare, len));
        Ok(())
    }

    /// Has one become the segment at `path` with this header; its file and length, none when there
    /// is no spare.
    ///
    /// The header comes before the name: what has a segment's name is one, or nothing at all.
    pub(crate) fn become_segment(
        &self,
        disk: &dyn Disk,
        path: &Path,
        header: &[u8],
        size: u64,
    ) -> io::Result<Option<(Arc<dyn File>, u64)>> {
        let mut files = self.files.lock();
        let Some((spare, mut len)) = files.pop() else {
            return Ok(None);
        };
        let file = disk.open(&spare)?;
        if len > size {
            file.truncate(size)?;
            len = size;
        }
        file.write_at(header, 0)?;
        disk.rename(&spare, path)?;
        // A handle goes by its name when it opens another one, to pass the cache.
        Ok(Some((disk.open(path)?, len)))
    }

    /// Removes one, to have its room; whether there was one.
    pub(crate) fn give_up_one(&self, disk: &dyn Disk) -> bool {
        let spare = self.files.lock().pop();
        spare.is_some_and(|(path, _)| disk.remove(&path).is_ok())
    }
}

const SUFFIX: &str = ".spare";
