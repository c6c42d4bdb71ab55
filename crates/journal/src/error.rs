//! What can go wrong in a journal, in the words of its callers.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::is_unreadable;
use crate::format::Position;

/// Why a call on the journal failed.
///
/// `Busy` and `Full` are worth a retry, the first after [`crate::Journal::room`], the second when
/// the disk has room again. After `Poisoned` and `Closed` the folder must be opened anew.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another journal holds the folder's lock.
    #[error(
        "another process{} has the folder {} open; stop it or choose another --data folder",
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(),
        dir.display()
    )]
    Locked {
        /// The folder.
        dir: PathBuf,
        /// The process that wrote itself into the lock file.
        pid: Option<u32>,
    },
    /// The file system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: Arc<io::Error>,
    },
    /// The pending buffer is full; wait for room and try again. Nothing was assigned.
    #[error("the journal has as much pending as it may hold")]
    Busy,
    /// The disk has no room. Nothing was assigned; a later append tries again.
    #[error("the disk has no room for the journal; free some space or reclaim")]
    Full {
        /// The system's answer to the last try.
        #[source]
        source: Arc<io::Error>,
    },
    /// A write or sync failed earlier; the journal must be opened anew.
    #[error("the journal stopped after a failed write; restart to recover")]
    Poisoned {
        /// What failed.
        #[source]
        source: Arc<JournalError>,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
    /// The frames of one append do not fit in a segment.
    #[error("an append of {bytes} bytes exceeds the {bytes_max} bytes of a segment")]
    TooLarge {
        /// Bytes with their frame headers.
        bytes: u64,
        /// The most that fits.
        bytes_max: u64,
    },
    /// The position lies in a segment that was reclaimed, or before the journal's start.
    #[error("position {position} is no longer in the journal")]
    Reclaimed {
        /// The position asked for.
        position: Position,
    },
    /// The range is not, or not yet, written.
    #[error("{len} bytes at position {position} are not in the journal")]
    OutOfRange {
        /// The position asked for.
        position: Position,
        /// The bytes asked for.
        len: usize,
    },
    /// The bytes at the position are no whole frame.
    #[error("the frame at position {position} is damaged")]
    Damaged {
        /// The position asked for.
        position: Position,
    },
    /// A segment was written by a version that this one cannot read.
    #[error("{} has journal format {version}; use the version that wrote it", path.display())]
    Format {
        /// The segment.
        path: PathBuf,
        /// Its format version.
        version: u16,
    },
    /// Options that cannot work together.
    #[error("journal option {name} of {value} must be {rule}")]
    Options {
        /// The option.
        name: &'static str,
        /// What was given.
        value: u64,
        /// What holds.
        rule: &'static str,
    },
    /// The caller's visitor refused a frame during recovery.
    #[error("a recovered frame was refused")]
    Refused(#[source] Arc<dyn Error + Send + Sync>),
}

impl JournalError {
    /// Wraps a visitor's own error, so that [`crate::Journal::open`] hands it back.
    pub fn refused(error: impl Error + Send + Sync + 'static) -> Self {
        JournalError::Refused(Arc::new(error))
    }

    /// Whether the disk could not read bytes that should be there.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, JournalError::Io { action: "read", source, .. } if is_unreadable(source))
    }

    /// Whether it came from a file system that is read-only: nothing helps but making it writable.
    pub fn is_read_only(&self) -> bool {
        match self {
            JournalError::Io { source, .. } => source.kind() == io::ErrorKind::ReadOnlyFilesystem,
            JournalError::Poisoned { source } => source.is_read_only(),
            _ => false,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        JournalError::Io {
            action,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }
}
