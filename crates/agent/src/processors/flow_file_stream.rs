//! FlowFile Stream, version 3: attributes, length and content of FlowFiles, one behind the other.
//!
//! Layout of each: the magic bytes `NiFiFF3`; the number of attributes as a length, then for each
//! its name and its value, each a length and so many bytes of UTF-8; the content's length as u64;
//! the content. A length is a u16, or 65,535 and a u32; all numbers are big-endian. No IO.

use crate::flowfile::Attributes;

/// The media type.
pub(super) const MIME: &str = "application/flowfile-v3";

/// The bytes before a content of `size` bytes.
pub(super) fn header<'a>(
    attributes: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
    size: u64,
) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    length(&mut out, attributes.len());
    for (name, value) in attributes {
        for text in [name, value] {
            length(&mut out, text.len());
            out.extend_from_slice(text.as_bytes());
        }
    }
    out.extend_from_slice(&size.to_be_bytes());
    out
}

/// Reads a header at the start of `bytes`: the attributes, the content's length, and how many
/// bytes the header has; `Ok(None)` when there is more of it to come.
pub(super) fn read_header(bytes: &[u8]) -> Result<Option<(Attributes, u64, usize)>, String> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err("it is no FlowFile stream of version 3".to_owned());
    }
    let mut rest = Rest(&bytes[known..]);
    let mut attributes = Vec::new();
    let Some(count) = rest.length() else {
        return Ok(None);
    };
    for _ in 0..count {
        let (Some(name), Some(value)) = (rest.text(), rest.text()) else {
            return Ok(None);
        };
        attributes.push((name?, value?));
    }
    let Some(size) = rest.take(8) else {
        return Ok(None);
    };
    let size = size
        .iter()
        .fold(0, |size, byte| size << 8 | u64::from(*byte));
    let used = bytes.len() - rest.0.len();
    Ok(Some((Attributes::new(attributes), size, used)))
}

fn length(out: &mut Vec<u8>, length: usize) {
    match u16::try_from(length) {
        Ok(short) if short < u16::MAX => out.extend_from_slice(&short.to_be_bytes()),
        _ => {
            out.extend_from_slice(&u16::MAX.to_be_bytes());
            // Attributes are far below 4 GiB.
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

/// What is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn length(&mut self) -> Option<usize> {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
        match number(self.take(2)?) {
            LONG => Some(number(self.take(4)?)),
            short => Some(short),
        }
    }

    fn text(&mut self) -> Option<Result<String, String>> {
        let len = self.length()?;
        let bytes = self.take(len)?;
        let text = String::from_utf8(bytes.to_vec());
        Some(text.map_err(|_| "an attribute is no UTF-8".to_owned()))
    }
}

const MAGIC: &[u8] = b"NiFiFF3";

/// A short length that says that a long one follows.
const LONG: usize = u16::MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_as_nifi_writes_them() {
        let bytes = header([("a", "1"), ("bc", "")].into_iter(), 258);
        let expected =
            b"NiFiFF3\x00\x02\x00\x01a\x00\x011\x00\x02bc\x00\x00\x00\x00\x00\x00\x00\x00\x01\x02";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_was_written_is_read_and_less_of_it_is_waited_for() {
        let long = "v".repeat(70_000);
        let attributes = Attributes::new([("name", long.as_str()), ("\u{fc}", "x")]);
        let mut bytes = header(attributes.iter(), 7);
        let len = bytes.len();
        bytes.extend(b"content");
        assert_eq!(read_header(&bytes), Ok(Some((attributes, 7, len))));
        for end in [0, 3, 8, 20, 70_000, len - 1] {
            assert_eq!(read_header(&bytes[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn other_bytes_are_errors_and_never_more() {
        assert!(read_header(b"NiFiFF2").is_err());
        assert!(read_header(b"NiFiFF3\x00\x01\x00\x01\xff\x00\x00").is_err());
        assert_eq!(read_header(b"NiFiFF3\xff\xff\xff\xff\xff\xff"), Ok(None));
    }
}
