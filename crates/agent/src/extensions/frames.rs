//! What the agent and an extension's program say to each other.
//!
//! A frame is a letter, the length of what follows as four bytes (the highest first), and that:
//! JSON, but for content.
//!
//! | letter | from | what |
//! | --- | --- | --- |
//! | `S` | agent | first: `{"protocol": 1, "processor": "…", "properties": {…}}` |
//! | `T` | agent | does one piece of work: `{"flowFile": {"uuid", "size", "attributes"} or null, "properties": {…}}`, with the properties that expressions change; the FlowFile's content follows |
//! | `C` | both | a piece of content |
//! | `Z` | both | the end of content |
//! | `R` | program | ready, after `S`: `{}` |
//! | `O` | program | a FlowFile that it gives: `{"relationship": "…", "attributes": {…}, "content": "same", "none" or "new", "isOriginal": false}`; with "new" the content follows |
//! | `L` | program | something for people: `{"level": "info", "warning" or "error", "message": "…"}` |
//! | `D` | program | done, and all of it counts: `{"yields": false}` |
//! | `E` | program | failed, and nothing of it counts: `{"message": "…"}` |
//!
//! Attributes of a FlowFile that it gives are those of the one that came, with its own over them;
//! null takes one away. `isOriginal` says that it is the one that came, and no child of it. The
//! program reads all content of a `T` to its `Z`. When its input ends, it ends.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::limits::EXTENSION_FRAME_BYTES_MAX;

pub(super) const START: u8 = b'S';
pub(super) const TRIGGER: u8 = b'T';
pub(super) const CONTENT: u8 = b'C';
pub(super) const CONTENT_END: u8 = b'Z';
pub(super) const READY: u8 = b'R';
pub(super) const OUTPUT: u8 = b'O';
pub(super) const LOG: u8 = b'L';
pub(super) const DONE: u8 = b'D';
pub(super) const FAILED: u8 = b'E';

/// The version of all this.
pub(super) const PROTOCOL: u32 = 1;

/// What `S` says.
#[derive(Serialize)]
pub(super) struct Start<'a> {
    pub(super) protocol: u32,
    pub(super) processor: &'a str,
    pub(super) properties: &'a BTreeMap<String, String>,
}

/// What `T` says.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Trigger<'a> {
    pub(super) flow_file: Option<Given<'a>>,
    pub(super) properties: &'a BTreeMap<String, String>,
}

/// The FlowFile of `T`.
#[derive(Serialize)]
pub(super) struct Given<'a> {
    pub(super) uuid: String,
    pub(super) size: u64,
    pub(super) attributes: BTreeMap<&'a str, &'a str>,
}

/// What `O` says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Output {
    pub(super) relationship: String,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(super) content: Kept,
    #[serde(default)]
    pub(super) is_original: bool,
}

/// What becomes of content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kept {
    #[default]
    Same,
    None,
    New,
}

/// What `L` says.
#[derive(Debug, Deserialize)]
pub(super) struct Log {
    pub(super) level: String,
    pub(super) message: String,
}

/// What `D` says.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Done {
    #[serde(default)]
    pub(super) yields: bool,
}

/// What `E` says.
#[derive(Debug, Deserialize)]
pub(super) struct Fault {
    pub(super) message: String,
}

/// A frame as it came.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) letter: u8,
    pub(super) bytes: Vec<u8>,
}

/// Writes one frame.
pub(super) fn write(output: &mut impl Write, letter: u8, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut head = [letter, 0, 0, 0, 0];
    head[1..].copy_from_slice(&len.to_be_bytes());
    output.write_all(&head)?;
    output.write_all(bytes)
}

/// Reads one frame; none where the input ends before one.
///
/// Errors: the frame is cut short or longer than [`EXTENSION_FRAME_BYTES_MAX`].
pub(super) fn read(input: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut letter = [0];
    if input.read(&mut letter)? == 0 {
        return Ok(None);
    }
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let len = u32::from_be_bytes(len);
    if len > EXTENSION_FRAME_BYTES_MAX {
        let why = format!("a frame of {len} bytes is more than {EXTENSION_FRAME_BYTES_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut bytes = Vec::new();
    let read = input.take(u64::from(len)).read_to_end(&mut bytes)?;
    if read as u64 != u64::from(len) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(Frame {
        letter: letter[0],
        bytes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_went() {
        let mut bytes = Vec::new();
        write(&mut bytes, DONE, b"{}").unwrap();
        write(&mut bytes, CONTENT, b"").unwrap();
        assert_eq!(bytes, b"D\0\0\0\x02{}C\0\0\0\0");
        let mut input = bytes.as_slice();
        let frame = read(&mut input).unwrap().unwrap();
        assert_eq!((frame.letter, frame.bytes.as_slice()), (DONE, &b"{}"[..]));
        assert_eq!(read(&mut input).unwrap().unwrap().letter, CONTENT);
        assert_eq!(read(&mut input).unwrap(), None);
        for cut in 1..7 {
            assert!(read(&mut &bytes[..cut]).is_err(), "cut at {cut}");
        }
        assert!(read(&mut &b"D\xff\xff\xff\xff"[..]).is_err(), "too long");
    }
}
