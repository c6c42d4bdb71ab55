//! The content and attributes of many FlowFiles in one.
//!
//! Contents are not copied where the format leaves them as they are: what is written is only what
//! stands between them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use flate2::Crc;
use flate2::write::DeflateEncoder;

use crate::content::Content;
use crate::flowfile::{Attributes, FlowFile};
use crate::processors::archive::{
    Member, TAR_BLOCK_BYTES, ZipEntry, tar_end, tar_header, zip_end, zip_local_header,
};
use crate::processors::files::content_failed;
use crate::processors::{ProcessorError, flow_file_stream};
use crate::session::ProcessSession;

/// What many become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Concatenation,
    Tar,
    Zip,
    FlowFileStream,
}

/// What stands before, between and behind contents that are put together plainly.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) header: Bytes,
    pub(super) demarcator: Bytes,
    pub(super) footer: Bytes,
}

/// Which attributes the one gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributeStrategy {
    /// Those that all have with the same value.
    Common,
    /// Those that some have, if with the same value.
    Unique,
}

impl Format {
    /// The media type.
    pub(super) fn mime(self) -> &'static str {
        match self {
            Format::Concatenation => "application/octet-stream",
            Format::Tar => "application/tar",
            Format::Zip => "application/zip",
            Format::FlowFileStream => flow_file_stream::MIME,
        }
    }

    /// What a file's name ends with.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Format::Concatenation | Format::FlowFileStream => "",
            Format::Tar => ".tar",
            Format::Zip => ".zip",
        }
    }
}

/// Puts contents together plainly.
pub(super) fn concatenate(
    session: &mut ProcessSession<'_>,
    frame: &Frame,
    flow_files: &[FlowFile],
) -> Result<Content, ProcessorError> {
    let piece = |session: &mut ProcessSession<'_>, bytes: &Bytes| {
        if bytes.is_empty() {
            Ok(Content::default())
        } else {
            session.content(bytes.clone())
        }
    };
    let demarcator = piece(session, &frame.demarcator)?;
    let mut parts = vec![piece(session, &frame.header)?];
    for (index, flow_file) in flow_files.iter().enumerate() {
        if index > 0 {
            parts.push(demarcator.clone());
        }
        parts.push(flow_file.content().clone());
    }
    parts.push(piece(session, &frame.footer)?);
    Ok(Content::join(parts))
}

/// FlowFiles with their attributes, one behind the other.
pub(super) fn stream(
    session: &mut ProcessSession<'_>,
    flow_files: &[FlowFile],
) -> Result<Content, ProcessorError> {
    let headers = flow_files.iter().map(|flow_file| {
        let attributes = session.all_attributes(flow_file);
        flow_file_stream::header(attributes.iter(), flow_file.size())
    });
    between(session, headers.collect(), flow_files, Vec::new())
}

/// A tar of all contents.
pub(super) fn tar(
    session: &mut ProcessSession<'_>,
    flow_files: &[FlowFile],
    names: &[String],
) -> Result<Content, ProcessorError> {
    let modified = modified(session);
    let mut padding = 0;
    let headers = flow_files.iter().zip(names).map(|(flow_file, name)| {
        let mut header = vec![0; padding];
        header.append(&mut tar_header(&Member {
            name,
            size: flow_file.size(),
            mode: mode(flow_file),
            modified,
        }));
        let over = (flow_file.size() % TAR_BLOCK_BYTES as u64) as usize;
        padding = (TAR_BLOCK_BYTES - over) % TAR_BLOCK_BYTES;
        header
    });
    let headers = headers.collect();
    let mut end = vec![0; padding];
    end.append(&mut tar_end());
    between(session, headers, flow_files, end)
}

/// A zip of all contents.
///
/// The inner error says why the format cannot hold them.
pub(super) fn zip(
    session: &mut ProcessSession<'_>,
    flow_files: &[FlowFile],
    names: &[String],
) -> Result<Result<Content, String>, ProcessorError> {
    const REFUSED: &str = "a zip holds up to 65,535 files of less than 4 GiB, and less than 4 GiB \
                           together; merge less at a time, or as TAR";
    let modified = modified(session);
    let (mut parts, mut entries, mut offset) = (Vec::new(), Vec::new(), 0);
    for (flow_file, name) in flow_files.iter().zip(names) {
        let (packed, crc) = deflate(session, flow_file)?;
        let member = Member {
            name,
            size: flow_file.size(),
            mode: mode(flow_file),
            modified,
        };
        let Some(entry) = ZipEntry::new(&member, crc, packed.len(), offset) else {
            return Ok(Err(REFUSED.to_owned()));
        };
        let header = zip_local_header(&entry);
        offset += header.len() as u64 + packed.len();
        parts.push(session.content(Bytes::from(header))?);
        parts.push(packed);
        entries.push(entry);
    }
    let Some(end) = zip_end(&entries, offset) else {
        return Ok(Err(REFUSED.to_owned()));
    };
    parts.push(session.content(Bytes::from(end))?);
    Ok(Ok(Content::join(parts)))
}

/// The attributes of the one.
pub(super) fn attributes(strategy: AttributeStrategy, flow_files: &[FlowFile]) -> Attributes {
    // Each name with the one value that was seen, or none where values differ, and how often.
    let mut seen: BTreeMap<&str, (Option<&str>, usize)> = BTreeMap::new();
    let all = flow_files.iter().map(|flow_file| match flow_files {
        [one] => one.all_attributes(),
        // What follows from where content lies differs.
        _ => Arc::clone(flow_file.attributes()),
    });
    let all: Vec<Arc<Attributes>> = all.collect();
    for attributes in &all {
        for (name, value) in attributes.iter() {
            let (known, count) = seen.entry(name).or_insert((Some(value), 0));
            if *known != Some(value) {
                *known = None;
            }
            *count += 1;
        }
    }
    let kept = seen.into_iter().filter_map(|(name, (value, count))| {
        let is_kept = strategy == AttributeStrategy::Unique || count == flow_files.len();
        Some((name, value?)).filter(|_| is_kept)
    });
    Attributes::new(kept)
}

/// New bytes before each content, and behind the last: they share blocks.
fn between(
    session: &mut ProcessSession<'_>,
    headers: Vec<Vec<u8>>,
    flow_files: &[FlowFile],
    end: Vec<u8>,
) -> Result<Content, ProcessorError> {
    let lens: Vec<u64> = headers.iter().map(|header| header.len() as u64).collect();
    let end_len = end.len() as u64;
    let mut bytes = headers.concat();
    bytes.extend_from_slice(&end);
    let written = session.content(Bytes::from(bytes))?;
    let mut at = 0;
    let mut parts = Vec::with_capacity(2 * flow_files.len() + 1);
    for (len, flow_file) in lens.into_iter().zip(flow_files) {
        parts.push(written.slice(at, len));
        parts.push(flow_file.content().clone());
        at += len;
    }
    parts.push(written.slice(at, end_len));
    Ok(Content::join(parts))
}

/// The deflated content and the plain one's checksum.
fn deflate(
    session: &mut ProcessSession<'_>,
    flow_file: &FlowFile,
) -> Result<(Content, u32), ProcessorError> {
    let mut reader = session.reader(flow_file);
    let mut crc = Crc::new();
    let writer = session.writer();
    let mut encoder = DeflateEncoder::new(writer, flate2::Compression::fast());
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let len = reader.read(&mut buffer).map_err(content_failed)?;
        if len == 0 {
            break;
        }
        crc.update(&buffer[..len]);
        encoder.write_all(&buffer[..len]).map_err(content_failed)?;
    }
    let writer = encoder.finish().map_err(content_failed)?;
    Ok((writer.finish()?, crc.sum()))
}

fn mode(flow_file: &FlowFile) -> u32 {
    let text = flow_file.attributes().get("tar.permissions");
    let mode = text.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    mode.filter(|mode| *mode <= 0o777).unwrap_or(0o755)
}

fn modified(session: &ProcessSession<'_>) -> u64 {
    u64::try_from(session.now().0 / 1_000).unwrap_or(0)
}

/// Bytes that are deflated at once.
const COPY_BYTES: usize = 64 << 10;
