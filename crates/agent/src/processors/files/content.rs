//! Contents between files and FlowFiles, a piece at a time.

use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::content::Content;
use crate::flowfile::FlowFile;
use crate::limits::CONTENT_PIECE_BYTES;
use crate::processors::ProcessorError;
use crate::session::ProcessSession;

/// Which side of a copy failed.
#[derive(Debug)]
pub(in crate::processors) enum CopyError {
    /// What is outside of the repository.
    Outside(io::Error),
    /// The session.
    Session(ProcessorError),
}

/// New content of all that `reader` has.
pub(in crate::processors) fn import(
    session: &mut ProcessSession<'_>,
    reader: &mut dyn Read,
) -> Result<Content, CopyError> {
    let mut parts = Vec::new();
    loop {
        let mut piece = Vec::new();
        let len = reader
            .take(CONTENT_PIECE_BYTES as u64)
            .read_to_end(&mut piece)
            .map_err(CopyError::Outside)?;
        if len > 0 {
            let content = session.content(Bytes::from(piece));
            parts.push(content.map_err(CopyError::Session)?);
        }
        if len < CONTENT_PIECE_BYTES {
            return Ok(Content::join(parts));
        }
    }
}

/// Writes the content of `flow_file` to `writer`.
pub(in crate::processors) fn write_out(
    session: &ProcessSession<'_>,
    flow_file: &FlowFile,
    writer: &mut dyn Write,
) -> Result<(), CopyError> {
    let mut reader = session.reader(flow_file);
    loop {
        let piece = reader.piece().map_err(CopyError::of_content)?;
        if piece.is_empty() {
            return Ok(());
        }
        writer.write_all(&piece).map_err(CopyError::Outside)?;
        reader.consume(piece.len());
    }
}

/// The first bytes of a content, `bytes_max` at most.
pub(in crate::processors) fn head(
    session: &ProcessSession<'_>,
    flow_file: &FlowFile,
    bytes_max: usize,
) -> Result<Vec<u8>, ProcessorError> {
    let mut head = Vec::new();
    let reader = session.reader(flow_file);
    reader
        .take(bytes_max as u64)
        .read_to_end(&mut head)
        .map_err(content_failed)?;
    Ok(head)
}

/// Content that cannot be read.
pub(in crate::processors) fn content_failed(error: io::Error) -> ProcessorError {
    ProcessorError::Failed(format!("content cannot be read: {error}"))
}

impl CopyError {
    fn of_content(error: io::Error) -> CopyError {
        CopyError::Session(content_failed(error))
    }
}
