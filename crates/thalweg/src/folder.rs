//! The data folder: one process at a time, told by a lock that the kernel drops with the process.
//!
//! What lies in it (records, keys, passwords' hashes) is its owner's: the folder that is made here
//! lets nobody else in, whatever the modes of the files. One that is there already keeps the mode
//! that its operator gave it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// A locked data folder; the lock goes when this is dropped, however the process ends.
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// Another process holds the lock; its operator's choice, retry after it stopped.
    #[error(
        "{} is in use by another thalweg (process {owner}); stop it, or choose another folder with --data",
        path.display()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process that wrote the lock file, or `?`.
        owner: String,
    },
    /// The folder cannot be made or written.
    #[error("cannot use {} as the data folder; choose a folder that you may write with --data", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl DataFolder {
    /// Makes the folder if need be and locks it.
    pub fn lock(path: &Path) -> Result<Self, FolderError> {
        let unusable = |source| FolderError::Unusable {
            path: path.to_owned(),
            source,
        };
        make(path).map_err(unusable)?;
        let mut lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path.join("lock"))
            .map_err(unusable)?;
        if let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(unusable(error.into()));
            }
            let mut owner = String::new();
            let read = lock.read_to_string(&mut owner);
            let known = read.is_ok() && !owner.trim().is_empty();
            let owner = if known {
                owner.trim().to_owned()
            } else {
                "?".to_owned()
            };
            return Err(FolderError::InUse {
                path: path.to_owned(),
                owner,
            });
        }
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| write!(lock, "{}", std::process::id()))
            .map_err(unusable)?;
        Ok(DataFolder {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes that are free on the folder's disk, where they are hardly enough to open all stores:
    /// not every error says by itself that the disk is full.
    pub fn lacks_room(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.path).ok()?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        (free < LITTLE_ROOM_BYTES).then_some(free)
    }

    /// Whether every user of this machine may read or pass through it while it holds what is not
    /// theirs.
    pub fn is_open_to_all(&self) -> bool {
        let open = std::fs::metadata(&self.path)
            .is_ok_and(|folder| folder.permissions().mode() & READ_OR_PASS_OF_OTHERS != 0);
        open && PRIVATE.iter().any(|name| self.path.join(name).exists())
    }
}

/// Makes the folder, for its owner alone, unless it is there.
fn make(path: &Path) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(OWNER_ONLY).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// What is in a data folder that not everybody is to see.
const PRIVATE: [&str; 7] = [
    "access", "bridges", "fleet", "fusion", "imports", "mqtt", "streams",
];

/// The journals reserve about half of it when they are new.
const LITTLE_ROOM_BYTES: u64 = 64 << 20;
const OWNER_ONLY: u32 = 0o700;
const READ_OR_PASS_OF_OTHERS: u32 = 0o005;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_folder_is_its_owners_and_one_that_is_there_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let new = dir.path().join("above/data");
        let folder = DataFolder::lock(&new).unwrap();
        assert_eq!(mode(&new), 0o700);
        std::fs::create_dir(new.join("fleet")).unwrap();
        assert!(!folder.is_open_to_all());
        drop(folder);

        for (given, is_told) in [(0o750, false), (0o711, true), (0o755, true)] {
            std::fs::set_permissions(&new, PermissionsExt::from_mode(given)).unwrap();
            let folder = DataFolder::lock(&new).unwrap();
            assert_eq!(mode(&new), given);
            assert_eq!(folder.is_open_to_all(), is_told, "{given:o}");
        }
        std::fs::remove_dir(new.join("fleet")).unwrap();
        assert!(!DataFolder::lock(&new).unwrap().is_open_to_all());
    }

    #[test]
    fn a_second_lock_names_the_first_process() {
        let dir = tempfile::tempdir().unwrap();
        let held = DataFolder::lock(dir.path()).unwrap();
        let Err(error) = DataFolder::lock(dir.path()) else {
            panic!("locked twice")
        };
        assert!(
            error
                .to_string()
                .contains(&format!("process {}", std::process::id())),
            "{error}"
        );
        drop(held);
        DataFolder::lock(dir.path()).unwrap();
    }
}
