//! Contents between files and FlowFiles, a buffer at a time.

use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::flowfile::FlowFile;
use crate::limits::SESSION_CONTENT_BYTES_MAX;
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

/// Gives `flow_file` all that `reader` has; the number of bytes.
pub(in crate::processors) fn import(
    session: &mut ProcessSession<'_>,
    flow_file: &mut FlowFile,
    reader: &mut dyn Read,
) -> Result<u64, CopyError> {
    let mut bytes = Vec::new();
    let len = reader
        .take(SESSION_CONTENT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(CopyError::Outside)? as u64;
    session
        .write(flow_file, Bytes::from(bytes))
        .map_err(CopyError::Session)?;
    Ok(len)
}

/// Writes the content of `flow_file` to `writer`.
pub(in crate::processors) fn write_out(
    session: &ProcessSession<'_>,
    flow_file: &FlowFile,
    writer: &mut dyn Write,
) -> Result<(), CopyError> {
    let content = session.read(flow_file).map_err(CopyError::Session)?;
    writer.write_all(&content).map_err(CopyError::Outside)
}

/// The first bytes of a content, `bytes_max` at most.
pub(in crate::processors) fn head(
    session: &ProcessSession<'_>,
    flow_file: &FlowFile,
    bytes_max: usize,
) -> Result<Bytes, ProcessorError> {
    let content = session.read(flow_file)?;
    Ok(content.slice(..content.len().min(bytes_max)))
}
