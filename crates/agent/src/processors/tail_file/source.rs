//! The bytes of a file that is followed, as they are or out of a compressed one.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::processors::packing::Format;

/// An open file; positions count plain bytes.
pub(super) struct Source {
    file: File,
    packed: Option<Packed>,
}

/// A compressed file: it is read from its beginning to its end, and anew to go back.
struct Packed {
    format: Format,
    reader: Box<dyn Read + Send>,
    /// Bytes that were read, from `start` on.
    window: Vec<u8>,
    start: u64,
}

impl Source {
    /// Opens a file; `None` when it is not there.
    pub(super) fn open(path: &Path) -> io::Result<Option<Source>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let packed = match Format::of_file(&name) {
            Some(format) => Some(Packed::new(format, &file)?),
            None => None,
        };
        Ok(Some(Source { file, packed }))
    }

    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    pub(super) fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    /// Whether there are at least `position` bytes.
    pub(super) fn reaches(&mut self, position: u64) -> io::Result<bool> {
        if position == 0 {
            return Ok(true);
        }
        if self.packed.is_none() {
            return Ok(self.file.metadata()?.len() >= position);
        }
        Ok(self.fill(&mut [0], position - 1)? == 1)
    }

    /// Reads as much of `buffer` as there is from `position` on.
    pub(super) fn fill(&mut self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if let Some(packed) = &mut self.packed {
            return packed.fill(&self.file, buffer, position);
        }
        let mut len = 0;
        while len < buffer.len() {
            match self.file.read_at(&mut buffer[len..], position + len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }
}

impl Packed {
    fn new(format: Format, file: &File) -> io::Result<Packed> {
        let from = FromStart {
            file: file.try_clone()?,
            at: 0,
        };
        Ok(Packed {
            format,
            reader: format.unpack(from)?,
            window: Vec::new(),
            start: 0,
        })
    }

    fn fill(&mut self, file: &File, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if position < self.start {
            *self = Packed::new(self.format, file)?;
        }
        loop {
            let passed = (position - self.start).min(self.window.len() as u64);
            self.window.drain(..passed as usize);
            self.start += passed;
            let wanted = buffer.len();
            if self.start == position && self.window.len() >= wanted {
                buffer.copy_from_slice(&self.window[..wanted]);
                return Ok(wanted);
            }
            let before = self.window.len();
            let more = STEP_BYTES.max(wanted.saturating_sub(before));
            let limited = (&mut self.reader).take(more as u64);
            let read = { limited }.read_to_end(&mut self.window)?;
            if read == 0 {
                let there = if self.start == position { before } else { 0 };
                let len = there.min(wanted);
                buffer[..len].copy_from_slice(&self.window[..len]);
                return Ok(len);
            }
        }
    }
}

/// Reads a file without moving the position that its other handles have.
struct FromStart {
    file: File,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(into, self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// Bytes that are unpacked at once.
const STEP_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_file_is_read_as_a_plain_one_from_any_position() {
        let dir = tempfile::tempdir().unwrap();
        let text: Vec<u8> = (0..400_000u32).flat_map(|n| n.to_le_bytes()).collect();
        let (plain, packed) = (dir.path().join("a"), dir.path().join("a.gz"));
        std::fs::write(&plain, &text).unwrap();
        let mut file = File::create(&packed).unwrap();
        Format::Gzip
            .pack(1, &mut text.as_slice(), &mut file)
            .unwrap();
        for path in [plain, packed] {
            let mut source = Source::open(&path).unwrap().unwrap();
            for (position, len) in [(0, 10), (1_000_000, 300_000), (7, 9), (1_599_999, 10)] {
                let mut buffer = vec![0; len];
                let filled = source.fill(&mut buffer, position as u64).unwrap();
                let end = text.len().min(position + len);
                assert_eq!(
                    &buffer[..filled],
                    &text[position..end],
                    "{path:?} at {position}"
                );
            }
            assert_eq!(source.fill(&mut [0; 4], 1_600_000).unwrap(), 0);
            assert_eq!(source.fill(&mut [0; 4], 9_999_999).unwrap(), 0);
            assert!(source.reaches(1_600_000).unwrap());
            assert!(!source.reaches(1_600_001).unwrap());
        }
    }
}
