//! File systems that are read-only: Linux makes one so after an error, or somebody mounts it so.
//!
//! A journal that meets this breaks as by any failed write: of what was not synced nobody knows how
//! much is on the disk, so that the folder must be opened anew when it can be written again. Until
//! then it can be opened to be read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use journal::{Disk, FrameRef, Journal, JournalError, JournalOptions, Recovery};

/// What journals are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    /// Nothing is changed, and every commit refused.
    Read,
}

/// Where repositories lie.
pub(crate) struct Folder {
    pub(super) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
}

impl Access {
    /// Opens a journal, as [`Journal::open`] and [`Journal::open_to_read`] do.
    pub(crate) fn open(
        self,
        disk: &Arc<dyn Disk>,
        dir: &Path,
        options: JournalOptions,
        visit: &mut dyn FnMut(FrameRef<'_>) -> Result<(), JournalError>,
    ) -> Result<(Journal, Recovery), JournalError> {
        match self {
            Access::Write => Journal::open(disk.clone(), dir, options, visit),
            Access::Read => Journal::open_to_read(disk.clone(), dir, options, visit),
        }
    }
}

impl Folder {
    /// Whether nothing can be written there, since the file system is read-only. Blocks on the disk.
    pub(crate) fn is_read_only(&self) -> bool {
        let path = self.dir.join(PROBE);
        let written = self.disk.create(&path).and_then(|file| {
            let written = file.write_at(&[0], 0).and_then(|()| file.sync());
            // What is left of it is in nobody's way.
            let _ = self.disk.remove(&path);
            written
        });
        // Whatever else is wrong, the next opening says so.
        written.is_err_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem)
    }
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.dir.fmt(f)
    }
}

/// A file that is there only to see whether it can be written.
const PROBE: &str = "writable";
