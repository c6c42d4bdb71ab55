//! Content of any size as streams: memory holds one piece at a time.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Content;
use crate::flowfile::FlowFileId;
use crate::limits::CONTENT_PIECE_BYTES;
use crate::processors::ProcessorError;
use crate::session::ProcessSession;

/// Reads a FlowFile's content from any place in it; lives as long as the reader likes.
#[derive(Debug)]
pub struct ContentReader {
    content: Content,
    at: u64,
    /// What was read ahead, ending at `piece_end`.
    piece: Bytes,
    piece_end: u64,
    flow_file: FlowFileId,
    damaged: Arc<Mutex<Vec<FlowFileId>>>,
}

/// Writes new content of any size; what is not finished is forgotten.
pub struct ContentWriter<'s, 'n> {
    session: &'s mut ProcessSession<'n>,
    buffer: Vec<u8>,
    parts: Vec<Content>,
}

impl ContentReader {
    pub(crate) fn new(
        content: Content,
        flow_file: FlowFileId,
        damaged: Arc<Mutex<Vec<FlowFileId>>>,
    ) -> Self {
        ContentReader {
            content,
            at: 0,
            piece: Bytes::new(),
            piece_end: 0,
            flow_file,
            damaged,
        }
    }

    /// Bytes of all of the content.
    pub fn size(&self) -> u64 {
        self.content.len()
    }

    /// The bytes from here on that are at hand together, none at the end; `consume` goes past them.
    pub fn piece(&mut self) -> io::Result<Bytes> {
        if self.at >= self.content.len() {
            return Ok(Bytes::new());
        }
        let piece_start = self.piece_end - self.piece.len() as u64;
        if (piece_start..self.piece_end).contains(&self.at) {
            return Ok(self.piece.slice((self.at - piece_start) as usize..));
        }
        let Some((view, within)) = self.content.view_at(self.at) else {
            return Ok(Bytes::new());
        };
        let len = (view.len - within).min(CONTENT_PIECE_BYTES as u32);
        let piece = view
            .claim
            .read(view.offset + within, len)
            .map_err(|error| {
                if error.is_damage() {
                    self.damaged.lock().push(self.flow_file);
                }
                io::Error::other(error)
            })?;
        self.piece_end = self.at + piece.len() as u64;
        self.piece = piece.clone();
        Ok(piece)
    }

    /// Goes on by `bytes`.
    pub fn consume(&mut self, bytes: usize) {
        self.at = (self.at + bytes as u64).min(self.content.len());
    }
}

impl Read for ContentReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let piece = self.piece()?;
        let len = piece.len().min(into.len());
        into[..len].copy_from_slice(&piece[..len]);
        self.consume(len);
        Ok(len)
    }
}

impl Seek for ContentReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.content.len().checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl<'s, 'n> ContentWriter<'s, 'n> {
    pub(crate) fn new(session: &'s mut ProcessSession<'n>) -> Self {
        ContentWriter {
            session,
            buffer: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Goes on with content that is there already, without copying it.
    pub fn append(&mut self, content: Content) -> Result<(), ProcessorError> {
        self.cut()?;
        self.parts.push(content);
        Ok(())
    }

    /// What was written.
    pub fn finish(mut self) -> Result<Content, ProcessorError> {
        self.cut()?;
        Ok(Content::join(self.parts))
    }

    fn cut(&mut self) -> Result<(), ProcessorError> {
        if !self.buffer.is_empty() {
            let bytes = Bytes::from(std::mem::take(&mut self.buffer));
            self.parts.push(self.session.content(bytes)?);
        }
        Ok(())
    }
}

impl Write for ContentWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CONTENT_PIECE_BYTES - self.buffer.len();
        let len = bytes.len().min(room);
        self.buffer.extend_from_slice(&bytes[..len]);
        if self.buffer.len() == CONTENT_PIECE_BYTES {
            self.cut().map_err(io::Error::other)?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
