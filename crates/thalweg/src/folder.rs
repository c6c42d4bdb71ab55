//! The data folder: one process at a time, told by a lock that the kernel drops with the process.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
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
        std::fs::create_dir_all(path).map_err(unusable)?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
