//! Fields from the front of a packet's body, each checked against the bytes that are there.

use super::DecodeError;

/// What is left of a packet.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&byte, rest) = self.0.split_first().ok_or(SHORT)?;
        self.0 = rest;
        Ok(byte)
    }

    pub(super) fn number(&mut self) -> Result<u16, DecodeError> {
        let (bytes, rest) = self.0.split_first_chunk::<2>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*bytes))
    }

    pub(super) fn four(&mut self) -> Result<u32, DecodeError> {
        let (bytes, rest) = self.0.split_first_chunk::<4>().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*bytes))
    }

    /// A variable byte integer (5.0 section 1.5.5), in as few bytes as it needs.
    pub(super) fn variable(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u32;
        for index in 0..4 {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                if byte == 0 && index > 0 {
                    return Err(DecodeError::Malformed(
                        "a variable byte integer longer than it needs to be",
                    ));
                }
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed(
            "a variable byte integer of more than four bytes",
        ))
    }

    pub(super) fn packet_id(&mut self) -> Result<u16, DecodeError> {
        match self.number()? {
            0 => Err(DecodeError::Malformed("packet identifier 0")),
            id => Ok(id),
        }
    }

    /// Bytes behind a two-byte length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::from(self.number()?);
        self.take(length)
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Text as section 1.5.4 (1.5.3 in 3.1.1) allows it: UTF-8 without surrogates and without
    /// U+0000.
    pub(super) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(bytes).map_err(|_| NOT_UTF8)?;
        if memchr::memchr(0, bytes).is_some() {
            return Err(DecodeError::Malformed("U+0000 in a text"));
        }
        Ok(text)
    }
}

const SHORT: DecodeError = DecodeError::Malformed("a field reaches past the end");
pub(super) const NOT_UTF8: DecodeError = DecodeError::Malformed("not UTF-8");
