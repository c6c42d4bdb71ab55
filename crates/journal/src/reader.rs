//! Sequential reading of a segment during recovery, and what counts as a whole frame.

use std::io;
use std::sync::Arc;

use crate::disk::{File, read_around};
use crate::format::{FRAME_OVERHEAD_BYTES, FrameHeader};
use crate::limits;

/// Reads a segment through a buffer of a bounded size; a larger frame gets a larger one. The first
/// read is small: of most segments an opening wants the header only.
pub(crate) struct Reader {
    file: Arc<dyn File>,
    pub len: u64,
    bytes: Vec<u8>,
    /// The offset of the buffer's first byte.
    at: u64,
    /// Bytes of the next read.
    step: u64,
}

impl Reader {
    pub(crate) fn new(file: Arc<dyn File>) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Reader {
            file,
            len,
            bytes: Vec::new(),
            at: 0,
            step: limits::DISK_BLOCK_BYTES,
        })
    }

    /// Bytes from `offset` on: at least `want`, or all up to the end of the file.
    pub(crate) fn window(&mut self, offset: u64, want: u64) -> io::Result<&[u8]> {
        let want = want.min(self.len.saturating_sub(offset));
        let have_end = self.at + self.bytes.len() as u64;
        if offset < self.at || offset + want > have_end {
            if self.step > limits::DISK_BLOCK_BYTES {
                self.file.read_in_sequence();
            }
            let size = self.len.saturating_sub(offset).min(want.max(self.step));
            self.step = (8 * self.step).min(limits::RECOVERY_READ_BYTES as u64);
            self.bytes.resize(size as usize, 0);
            self.at = offset;
            let read = read_around(self.file.as_ref(), &mut self.bytes, offset)?;
            if (read as u64) < size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // An offset at or past the end of the file has no bytes.
        let from = ((offset - self.at) as usize).min(self.bytes.len());
        Ok(&self.bytes[from..])
    }

    /// The header of the whole frame at `offset`, if one stands there.
    pub(crate) fn frame(&mut self, base: u64, offset: u64) -> io::Result<Option<FrameHeader>> {
        let window = self.window(offset, FRAME_OVERHEAD_BYTES)?;
        let Some(bytes) = window.first_chunk() else {
            return Ok(None);
        };
        let header = FrameHeader::decode(bytes);
        let framed = FRAME_OVERHEAD_BYTES + u64::from(header.length);
        // Both before the length is believed.
        if header.position != base + offset || framed > self.len - offset {
            return Ok(None);
        }
        let window = self.window(offset, framed)?;
        let payload = &window[FRAME_OVERHEAD_BYTES as usize..framed as usize];
        Ok(header.matches(payload).then_some(header))
    }
}

pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().all(|word| *word == [0; 8]) && rest.iter().all(|byte| *byte == 0)
}
