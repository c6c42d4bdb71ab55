//! The mark: from which position on opening has to show frames.
//!
//! Who can rebuild its state from a snapshot in the journal marks where that snapshot begins, and
//! opening skips what stands before: it checks the earlier segments' headers and reads none of
//! their frames. Two files take turns, so that a torn one leaves the older mark:
//!
//! | `mark-0` and `mark-1`, 24 bytes, little-endian | |
//! | --- | --- |
//! | 0..8 | magic `THALWEGM` |
//! | 8..16 | the position |
//! | 16..20 | CRC32C of bytes 0..16 |
//!
//! The later position counts. A mark is a shortcut, never needed: without a good one everything
//! is shown.

use std::io;
use std::path::Path;

use crate::disk::Disk;
use crate::error::JournalError;

/// The newest good mark, and which file the next one goes into.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    newest: Option<u64>,
    next: usize,
}

impl Marks {
    /// Reads both files; one that is missing, torn or unreadable says nothing.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path) -> Self {
        let mut marks = Marks::default();
        for (index, name) in NAMES.iter().enumerate() {
            let Some(position) = read_one(disk, &dir.join(name)) else {
                continue;
            };
            if marks.newest.is_none_or(|newest| position > newest) {
                marks.newest = Some(position);
                marks.next = 1 - index;
            }
        }
        marks
    }

    /// Makes the files that are missing, so that later marks need no room on the disk. What fails
    /// here fails again when it is needed.
    pub(crate) fn make_room(&self, disk: &dyn Disk, dir: &Path) {
        for name in NAMES {
            let path = dir.join(name);
            if disk.open(&path).is_err() {
                let made = disk.create(&path);
                let _ = made.and_then(|file| file.write_at(&[0; MARK_BYTES], 0));
            }
        }
    }

    /// The position from which frames are shown.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Makes `position` the newest mark, on the disk when this returns.
    pub(crate) fn write(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        position: u64,
    ) -> Result<(), JournalError> {
        if self.newest.is_some_and(|newest| newest >= position) {
            return Ok(());
        }
        let path = dir.join(NAMES[self.next]);
        // In its old place, so that a full disk has room for it.
        let file = disk.open(&path).or_else(|_| disk.create(&path));
        let written = file.and_then(|file| {
            file.write_at(&encode(position), 0)?;
            file.sync()?;
            disk.sync_dir(dir)
        });
        written.map_err(|error| JournalError::io("write", &path, error))?;
        self.newest = Some(position);
        self.next = 1 - self.next;
        Ok(())
    }
}

fn read_one(disk: &dyn Disk, path: &Path) -> Option<u64> {
    let mut bytes = [0; MARK_BYTES];
    let read: io::Result<usize> = disk
        .open_to_read(path)
        .and_then(|file| file.read_at(&mut bytes, 0));
    if !matches!(read, Ok(MARK_BYTES)) {
        return None;
    }
    let (position, crc) = (
        bytes[8..16].try_into().ok()?,
        bytes[16..20].try_into().ok()?,
    );
    let is_good = bytes[..8] == MAGIC && crc32c::crc32c(&bytes[..16]) == u32::from_le_bytes(crc);
    is_good.then(|| u64::from_le_bytes(position))
}

fn encode(position: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&position.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..16]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes
}

const NAMES: [&str; 2] = ["mark-0", "mark-1"];
const MAGIC: [u8; 8] = *b"THALWEGM";
const MARK_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    #[test]
    fn a_torn_mark_leaves_the_one_before() {
        let (disk, dir) = (SimDisk::new(1), Path::new("/sim"));
        disk.create_dir(dir).unwrap();
        let mut marks = Marks::read(&disk, dir);
        assert_eq!(marks.newest(), None);
        for position in [100, 200, 300] {
            marks.write(&disk, dir, position).unwrap();
            assert_eq!(Marks::read(&disk, dir).newest(), Some(position));
        }
        // The third stands where the first stood.
        let file = disk.open(&dir.join("mark-0")).unwrap();
        file.write_at(&[1], 8).unwrap();
        let mut marks = Marks::read(&disk, dir);
        assert_eq!(marks.newest(), Some(200));
        marks.write(&disk, dir, 400).unwrap();
        assert_eq!(Marks::read(&disk, dir).newest(), Some(400));
    }
}
