//! What is to be done with files whose FlowFiles are durable: removing them, or moving them away.
//!
//! A processor commits its list of such files together with their FlowFiles, waits for the disk,
//! does what the list says and then empties it. A start with a list that is not empty does the
//! rest: a crash in between neither loses a file nor takes it twice. A file is only touched while
//! it still is the one that was read, by inode, size and time of change.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::sync_folder;
use crate::bulletins::Level;
use crate::engine::Context;
use crate::fail_point::fail_point;
use crate::limits::LEFTOVERS_MAX;
use crate::processors::ProcessorError;
use crate::session::ProcessSession;

/// Files that are taken and still there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::processors) struct Leftovers {
    version: u8,
    files: Vec<Taken>,
}

/// A file whose content is in the repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::processors) struct Taken {
    path: RawPath,
    device: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    nanos: i64,
    settle: Settle,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::processors) enum Settle {
    /// It is removed.
    Remove,
    /// Its name is removed, whatever became of the file: it has another name.
    Unlink,
    /// It is moved to `to`; where that is taken, `replaces` says whether it goes there, or, if
    /// not, under which name beside it, or, without one, that it is removed.
    Move {
        to: RawPath,
        replaces: bool,
        else_to: Option<RawPath>,
    },
}

/// A path, whatever its bytes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::processors) struct RawPath(Vec<u8>);

impl Leftovers {
    /// Reads a processor's state; nothing from no bytes.
    pub(in crate::processors) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Leftovers::default());
        }
        serde_json::from_slice(bytes).map_err(|error| format!("its state is no state: {error}"))
    }

    /// The processor's state; no bytes when there is nothing to do.
    fn to_bytes(&self) -> Bytes {
        if self.files.is_empty() {
            return Bytes::new();
        }
        let text = serde_json::to_vec(self).expect("bytes and numbers are always JSON");
        Bytes::from(text)
    }

    /// Whether this very file was taken already.
    pub(in crate::processors) fn has(&self, path: &Path, metadata: &Metadata) -> bool {
        let is_it = |taken: &Taken| taken.path.as_path() == path && taken.is(metadata);
        self.files.iter().any(is_it)
    }

    /// Does what an earlier commit left to be done, if anything.
    ///
    /// Errors: there is too much that cannot be done.
    pub(in crate::processors) fn finish(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<(), ProcessorError> {
        if self.files.is_empty() {
            return Ok(());
        }
        for problem in self.settle() {
            context.post(Level::Error, &problem);
        }
        if self.files.len() >= LEFTOVERS_MAX {
            return Err(ProcessorError::Failed(format!(
                "{LEFTOVERS_MAX} files were taken and cannot be removed; mend their folders' \
                 permissions"
            )));
        }
        session.set_state(self.to_bytes())?;
        session.commit_lazily()
    }

    /// Commits the session with what is `taken` in it, waits until the disk has it, and then does
    /// what is to be done with these files.
    pub(in crate::processors) fn commit(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        taken: Vec<Taken>,
    ) -> Result<(), ProcessorError> {
        if taken.is_empty() {
            return session.commit();
        }
        let all = Leftovers {
            version: 1,
            files: [self.files.clone(), taken].concat(),
        };
        session.set_state(all.to_bytes())?;
        fail_point("files.read");
        session.commit_and_wait()?;
        *self = all;
        fail_point("files.committed");
        let outcome = self.finish(context, session);
        fail_point("files.settled");
        outcome
    }

    /// Does what is to be done; what cannot be done stays, and is told.
    fn settle(&mut self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut folders = BTreeSet::new();
        self.files.retain(|taken| match taken.settle(&mut folders) {
            Ok(()) => false,
            Err(error) => {
                let path = taken.path.as_path().display().to_string();
                problems.push(format!(
                    "{path} was taken, but {} failed: {error}; it is not taken again",
                    taken.settle.verb()
                ));
                true
            }
        });
        for folder in folders {
            if let Err(error) = sync_folder(&folder) {
                tracing::debug!(folder = %folder.display(), %error, "not synced");
            }
        }
        problems
    }
}

impl Taken {
    /// The file that `metadata` is of.
    pub(in crate::processors) fn new(path: &Path, metadata: &Metadata, settle: Settle) -> Self {
        Taken {
            path: raw_path(path),
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            seconds: metadata.mtime(),
            nanos: metadata.mtime_nsec(),
            settle,
        }
    }

    fn is(&self, now: &Metadata) -> bool {
        (self.device, self.inode, self.size) == (now.dev(), now.ino(), now.len())
            && (self.seconds, self.nanos) == (now.mtime(), now.mtime_nsec())
    }

    fn settle(&self, folders: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        let path = self.path.as_path();
        match fs::metadata(path) {
            Ok(_) if self.settle == Settle::Unlink => {}
            Ok(metadata) if self.is(&metadata) => {}
            // It was settled before a crash, or it changed since and is taken anew.
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        match &self.settle {
            Settle::Remove | Settle::Unlink => fs::remove_file(path)?,
            Settle::Move {
                to,
                replaces,
                else_to,
            } => {
                let to = to.as_path();
                let to = match (to.exists() && !replaces, else_to) {
                    (false, _) => Some(to),
                    (true, Some(other)) => Some(other.as_path()),
                    (true, None) => None,
                };
                match to {
                    Some(to) => move_file(path, to, folders)?,
                    None => fs::remove_file(path)?,
                }
            }
        }
        folders.insert(path.parent().unwrap_or(Path::new(".")).to_owned());
        Ok(())
    }
}

impl Settle {
    fn verb(&self) -> &'static str {
        match self {
            Settle::Remove | Settle::Unlink => "removing it",
            Settle::Move { .. } => "moving it",
        }
    }
}

/// `path` with whatever bytes it has.
pub(in crate::processors) fn raw_path(path: &Path) -> RawPath {
    RawPath(path.as_os_str().as_bytes().to_vec())
}

impl RawPath {
    fn as_path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.0))
    }
}

/// Renames, or copies where the other folder is on another file system.
fn move_file(from: &Path, to: &Path, folders: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let folder = to.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    folders.insert(folder.to_owned());
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {}
        other => return other,
    }
    let mut partial = OsString::from_vec(to.as_os_str().as_bytes().to_vec());
    partial.push(".part");
    let partial = PathBuf::from(partial);
    fs::copy(from, &partial)?;
    File::open(&partial)?.sync_all()?;
    fs::rename(&partial, to)?;
    sync_folder(folder)?;
    fs::remove_file(from)
}
