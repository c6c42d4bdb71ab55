//! Lines of content: where they are, without copying them, or one after the other.

use std::io::{self, BufRead};

use crate::content::ContentReader;
use crate::limits::TEXT_LINE_BYTES_MAX;

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its first byte in the content.
    pub(super) offset: u64,
    /// Bytes of it, its ending counted in.
    pub(super) len: u64,
    /// Bytes of its ending: `\n`, `\r\n`, or none at the end of the content.
    pub(super) ending: u64,
}

/// Finds the lines of a content of any size.
pub(super) struct LineFinder {
    reader: ContentReader,
    offset: u64,
    head_max: usize,
    head: Vec<u8>,
}

impl LineFinder {
    /// The lines of what `reader` reads; the first `head_max` bytes of each are kept.
    pub(super) fn new(reader: ContentReader, head_max: usize) -> Self {
        LineFinder {
            reader,
            offset: 0,
            head_max,
            head: Vec::new(),
        }
    }

    /// The next line.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        let start = self.offset;
        let mut last = None;
        self.head.clear();
        loop {
            let piece = self.reader.piece()?;
            if piece.is_empty() {
                let len = self.offset - start;
                let line = Line {
                    offset: start,
                    len,
                    ending: 0,
                };
                return Ok((len > 0).then_some(line));
            }
            let found = memchr::memchr(b'\n', &piece);
            let end = found.map_or(piece.len(), |at| at + 1);
            let wanted = self.head_max.saturating_sub(self.head.len());
            self.head.extend_from_slice(&piece[..wanted.min(end)]);
            self.reader.consume(end);
            self.offset += end as u64;
            let before = end.checked_sub(2).map(|at| piece[at]).or(last);
            if found.is_some() {
                return Ok(Some(Line {
                    offset: start,
                    len: self.offset - start,
                    ending: if before == Some(b'\r') { 2 } else { 1 },
                }));
            }
            last = piece.last().copied();
        }
    }

    /// Whether the line that was found last begins with `marker`, which is at most as long as the
    /// bytes that are kept.
    pub(super) fn begins_with(&self, marker: &[u8]) -> bool {
        self.head.starts_with(marker)
    }
}

/// Reads the next line with its ending into `line`; false at the end.
///
/// Errors: a line of more than [`TEXT_LINE_BYTES_MAX`] is invalid data.
pub(super) fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    loop {
        let available = match reader.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            return Ok(!line.is_empty());
        }
        let found = memchr::memchr(b'\n', available);
        let end = found.map_or(available.len(), |at| at + 1);
        if line.len() + end > TEXT_LINE_BYTES_MAX {
            let reason = format!("a line has more than {TEXT_LINE_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        line.extend_from_slice(&available[..end]);
        reader.consume(end);
        if found.is_some() {
            return Ok(true);
        }
    }
}

/// A line without its ending, and the ending.
pub(super) fn chomp(line: &[u8]) -> (&[u8], &[u8]) {
    let without = line.strip_suffix(b"\n").unwrap_or(line);
    let without = match without.len() < line.len() {
        true => without.strip_suffix(b"\r").unwrap_or(without),
        false => without,
    };
    line.split_at(without.len())
}
