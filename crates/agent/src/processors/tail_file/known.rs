//! Which file a tail reads, told by more than its name, and how far it has read it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::source::Source;
use crate::limits::TAIL_FINGERPRINT_BYTES;

/// What must be remembered: which file, and how far it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// CRC32C of the file's first bytes, and how many of them.
    fingerprint: u32,
    fingerprint_bytes: u64,
    pub(super) position: u64,
    /// CRC32C of the last bytes before the position, as many as make a fingerprint or as there
    /// are; none in states of version 1.
    #[serde(default)]
    last: Option<u32>,
}

/// What a tail remembers of all its files.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    version: u8,
    #[serde(default)]
    /// Each byte of a path is one character.
    files: Vec<(String, Known)>,
}

impl Known {
    /// What is known of a file when it was read up to `position`.
    pub(super) fn of(source: &mut Source, position: u64) -> io::Result<Known> {
        let metadata = source.metadata()?;
        let mut known = Known {
            device: metadata.dev(),
            inode: metadata.ino(),
            position,
            ..Known::default()
        };
        known.learn(source)?;
        let last = checksum(source, last_from(position), position)?;
        known.last = last;
        Ok(known)
    }

    /// The file, read further by `bytes`; they may be fewer than a fingerprint has.
    pub(super) fn moved(&self, source: &mut Source, bytes: &[u8]) -> io::Result<Known> {
        let mut known = self.clone();
        known.position += bytes.len() as u64;
        known.learn(source)?;
        known.last = if bytes.len() >= TAIL_FINGERPRINT_BYTES {
            let last = &bytes[bytes.len() - TAIL_FINGERPRINT_BYTES..];
            Some(crc32c::crc32c(last))
        } else {
            checksum(source, last_from(known.position), known.position)?
        };
        Ok(known)
    }

    /// Takes more of the file's first bytes into the fingerprint, as far as they were read.
    fn learn(&mut self, source: &mut Source) -> io::Result<()> {
        let bytes = self.position.min(TAIL_FINGERPRINT_BYTES as u64);
        if bytes == self.fingerprint_bytes {
            return Ok(());
        }
        if let Some(fingerprint) = checksum(source, 0, bytes)? {
            (self.fingerprint, self.fingerprint_bytes) = (fingerprint, bytes);
        }
        Ok(())
    }

    /// Whether it is this very file, not shorter than it was read.
    pub(super) fn is(&self, source: &mut Source) -> io::Result<bool> {
        Ok(self.has_inode(source)? && self.has_bytes(source)?)
    }

    /// Whether it is this file by its number in the file system.
    pub(super) fn has_inode(&self, source: &Source) -> io::Result<bool> {
        let metadata = source.metadata()?;
        Ok((metadata.dev(), metadata.ino()) == (self.device, self.inode))
    }

    /// Whether it begins with the bytes that were read of this file, by their checksums; nothing
    /// read is like any file.
    pub(super) fn has_bytes(&self, source: &mut Source) -> io::Result<bool> {
        // The first bytes first: most other files differ there, and need not be unpacked further.
        let head = checksum(source, 0, self.fingerprint_bytes)?;
        if head != Some(self.fingerprint) && self.fingerprint_bytes > 0 {
            return Ok(false);
        }
        if !source.reaches(self.position)? {
            return Ok(false);
        }
        match self.last {
            None => Ok(true),
            last => Ok(checksum(source, last_from(self.position), self.position)? == last),
        }
    }

    /// Whether enough was read to tell a copy of the file from others.
    pub(super) fn can_be_copied(&self) -> bool {
        self.fingerprint_bytes > 0
    }
}

/// What is known of each path.
pub(super) fn from_bytes(bytes: &[u8], single: &Path) -> Result<Vec<(PathBuf, Known)>, String> {
    let bad = |error: serde_json::Error| format!("its state is no state: {error}");
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let state: State = serde_json::from_slice(bytes).map_err(bad)?;
    if state.version == 1 {
        // The first version knew one file and did not name it.
        let known: Known = serde_json::from_slice(bytes).map_err(bad)?;
        return Ok(vec![(single.to_owned(), known)]);
    }
    let files = state.files.into_iter();
    let named = |(path, known): (String, Known)| {
        let bytes = path.chars().map(|c| u32::from(c) as u8).collect();
        (PathBuf::from(OsString::from_vec(bytes)), known)
    };
    Ok(files.map(named).collect())
}

/// The other way round.
pub(super) fn to_bytes<'k>(files: impl Iterator<Item = (&'k Path, &'k Known)>) -> Bytes {
    let files = files.map(|(path, known)| {
        let bytes = path.as_os_str().as_bytes().iter();
        (bytes.map(|byte| char::from(*byte)).collect(), known.clone())
    });
    let state = State {
        version: 2,
        files: files.collect(),
    };
    Bytes::from(serde_json::to_vec(&state).expect("bytes and numbers are always JSON"))
}

/// Where the last bytes before `position` begin.
fn last_from(position: u64) -> u64 {
    position.saturating_sub(TAIL_FINGERPRINT_BYTES as u64)
}

/// The checksum of a range of at most a fingerprint's length; `None` when the file is shorter.
fn checksum(source: &mut Source, from: u64, to: u64) -> io::Result<Option<u32>> {
    let mut bytes = [0; TAIL_FINGERPRINT_BYTES];
    let bytes = &mut bytes[..((to - from) as usize).min(TAIL_FINGERPRINT_BYTES)];
    Ok((source.fill(bytes, from)? == bytes.len()).then(|| crc32c::crc32c(bytes)))
}
