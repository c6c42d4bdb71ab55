//! Which file a tail reads, told by more than its name, and how far it has read it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::limits::TAIL_FINGERPRINT_BYTES;

/// What must be remembered: which file, and how far it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    version: u8,
    pub(super) device: u64,
    pub(super) inode: u64,
    /// CRC32C of the file's first bytes, and how many of them.
    fingerprint: u32,
    fingerprint_bytes: u64,
    pub(super) position: u64,
}

impl Known {
    /// What is known of `file` when it was read up to `position`.
    pub(super) fn of(file: &File, position: u64) -> io::Result<Known> {
        let metadata = file.metadata()?;
        let mut known = Known {
            version: 1,
            device: metadata.dev(),
            inode: metadata.ino(),
            fingerprint: 0,
            fingerprint_bytes: 0,
            position,
        };
        known.learn(file);
        Ok(known)
    }

    /// Takes more of the file's first bytes into the fingerprint, as far as they were read.
    pub(super) fn learn(&mut self, file: &File) {
        let bytes = self.position.min(TAIL_FINGERPRINT_BYTES as u64);
        if bytes == self.fingerprint_bytes {
            return;
        }
        if let Ok(Some(fingerprint)) = fingerprint(file, bytes) {
            (self.fingerprint, self.fingerprint_bytes) = (fingerprint, bytes);
        }
    }

    pub(super) fn is(&self, file: &File) -> io::Result<bool> {
        let metadata = file.metadata()?;
        Ok(
            (metadata.dev(), metadata.ino()) == (self.device, self.inode)
                && metadata.len() >= self.position
                && self.has_fingerprint(file)?,
        )
    }

    pub(super) fn has_fingerprint(&self, file: &File) -> io::Result<bool> {
        if self.fingerprint_bytes == 0 {
            // Nothing was read yet: only the inode tells.
            return Ok(file.metadata()?.ino() == self.inode);
        }
        Ok(fingerprint(file, self.fingerprint_bytes)? == Some(self.fingerprint))
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("plain numbers are always JSON"))
    }
}

/// Reads as much of `buffer` as the file has from `position`.
pub(super) fn fill(file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read_at(&mut buffer[len..], position + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// The checksum of the first `bytes`; `None` when the file is shorter.
fn fingerprint(file: &File, bytes: u64) -> io::Result<Option<u32>> {
    let mut head = [0; TAIL_FINGERPRINT_BYTES];
    let head = &mut head[..(bytes as usize).min(TAIL_FINGERPRINT_BYTES)];
    Ok((fill(file, head, 0)? == head.len()).then(|| crc32c::crc32c(head)))
}

pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
