//! The bytes of segments and frames, as the crate's head describes them. No IO.

use std::fmt;

use base::UnixMillis;

/// A logical byte address in a journal, monotone over its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// Where the payload of the frame at this position begins.
    pub fn payload(self) -> Position {
        Position(self.0 + FRAME_OVERHEAD_BYTES)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A frame to append: its payload is gathered from `parts`.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The caller's own kind.
    pub kind: u8,
    /// The version of that kind's payload.
    pub version: u8,
    /// The payload, in pieces that are stored one after another.
    pub parts: &'a [&'a [u8]],
}

impl Frame<'_> {
    /// Bytes of the payload.
    pub fn payload_len(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// Bytes that the frame takes in the journal.
    pub fn framed_len(&self) -> u64 {
        FRAME_OVERHEAD_BYTES + self.payload_len()
    }
}

/// A whole frame as recovery or a verified read shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// Where the frame begins.
    pub position: Position,
    /// The caller's own kind.
    pub kind: u8,
    /// The version of that kind's payload.
    pub version: u8,
    /// The payload.
    pub payload: &'a [u8],
}

impl FrameRef<'_> {
    /// Where the payload begins, for [`crate::Journal::read`].
    pub fn payload_position(&self) -> Position {
        self.position.payload()
    }

    /// Where the frame ends.
    pub fn end(&self) -> Position {
        Position(self.position.payload().0 + self.payload.len() as u64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub base: u64,
    pub size: u64,
    pub created: UnixMillis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Damaged,
    Version(u16),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.size.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.created.0.to_le_bytes());
        let crc = segment_crc(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], base: u64) -> Result<Self, HeaderError> {
        let bytes = bytes
            .first_chunk::<{ SEGMENT_HEADER_BYTES as usize }>()
            .ok_or(HeaderError::Damaged)?;
        if bytes[0..8] != MAGIC || u32_at(bytes, 12) != segment_crc(bytes) {
            return Err(HeaderError::Damaged);
        }
        let version = u16_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(HeaderError::Version(version));
        }
        let header = SegmentHeader {
            base: u64_at(bytes, 16),
            size: u64_at(bytes, 24),
            created: UnixMillis(u64_at(bytes, 32).cast_signed()),
        };
        if header.base != base || header.size < SEGMENT_HEADER_BYTES {
            return Err(HeaderError::Damaged);
        }
        Ok(header)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub length: u32,
    pub crc: u32,
    pub position: u64,
    pub unsynced: u32,
    pub kind: u8,
    pub version: u8,
    pub flags: u16,
}

impl FrameHeader {
    /// The header of a frame whose payload has `payload_crc`.
    pub(crate) fn seal(mut self, payload_crc: u32) -> [u8; FRAME_OVERHEAD_BYTES as usize] {
        let mut bytes = self.encode();
        self.crc = frame_crc(payload_crc, &bytes);
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; FRAME_OVERHEAD_BYTES as usize]) -> Self {
        FrameHeader {
            length: u32_at(bytes, 0),
            crc: u32_at(bytes, 4),
            position: u64_at(bytes, 8),
            unsynced: u32_at(bytes, 16),
            kind: bytes[20],
            version: bytes[21],
            flags: u16_at(bytes, 22),
        }
    }

    pub(crate) fn matches(&self, payload: &[u8]) -> bool {
        frame_crc(crc32c::crc32c(payload), &self.encode()) == self.crc
    }

    pub(crate) fn is_seal(&self) -> bool {
        self.flags & FLAG_SEAL != 0
    }

    /// The position up to which everything was synced when this frame was placed.
    pub(crate) fn synced_before(&self) -> u64 {
        match self.unsynced {
            // Too far to say.
            u32::MAX => 0,
            distance => self.position.saturating_sub(u64::from(distance)),
        }
    }

    fn encode(&self) -> [u8; FRAME_OVERHEAD_BYTES as usize] {
        let mut bytes = [0; FRAME_OVERHEAD_BYTES as usize];
        bytes[0..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.unsynced.to_le_bytes());
        bytes[20] = self.kind;
        bytes[21] = self.version;
        bytes[22..24].copy_from_slice(&self.flags.to_le_bytes());
        bytes
    }
}

/// The distance field for a frame at `position` while everything before `durable` is synced.
pub(crate) fn unsynced(position: u64, durable: u64) -> u32 {
    u32::try_from(position.saturating_sub(durable)).unwrap_or(u32::MAX)
}

/// The base position that a segment's file name states.
pub(crate) fn segment_base(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".journal")?;
    if digits.len() != 16 || digits.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

pub(crate) fn segment_name(base: u64) -> String {
    format!("{base:016x}.journal")
}

fn segment_crc(bytes: &[u8; SEGMENT_HEADER_BYTES as usize]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..])
}

fn frame_crc(payload_crc: u32, header: &[u8; FRAME_OVERHEAD_BYTES as usize]) -> u32 {
    crc32c::crc32c_append(
        crc32c::crc32c_append(payload_crc, &header[..4]),
        &header[8..],
    )
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Bytes that every frame takes beside its payload.
pub const FRAME_OVERHEAD_BYTES: u64 = 24;
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;
pub(crate) const FLAG_SEAL: u16 = 1;
const MAGIC: [u8; 8] = *b"THALWEGJ";
const FORMAT_VERSION: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_passes_only_with_every_bit_in_place() {
        let payload = b"deep water";
        let header = FrameHeader {
            length: 10,
            crc: 0,
            position: 4711,
            unsynced: 5,
            kind: 3,
            version: 1,
            flags: 0,
        };
        let good = header.seal(crc32c::crc32c(payload));
        assert!(FrameHeader::decode(&good).matches(payload));
        assert_eq!(FrameHeader::decode(&good).synced_before(), 4706);
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!FrameHeader::decode(&bad).matches(payload), "bit {bit}");
        }
    }

    #[test]
    fn a_segment_header_reads_back_and_a_newer_version_is_named() {
        let header = SegmentHeader {
            base: 1 << 40,
            size: 1 << 20,
            created: UnixMillis(-5),
        };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes, 1 << 40), Ok(header));
        assert_eq!(SegmentHeader::decode(&bytes, 0), Err(HeaderError::Damaged));
        bytes[8] = 9;
        let crc = segment_crc(&bytes).to_le_bytes();
        bytes[12..16].copy_from_slice(&crc);
        assert_eq!(
            SegmentHeader::decode(&bytes, 1 << 40),
            Err(HeaderError::Version(9))
        );
        assert_eq!(
            SegmentHeader::decode(&bytes[..40], 1 << 40),
            Err(HeaderError::Damaged)
        );
    }

    #[test]
    fn a_segment_name_states_its_base() {
        assert_eq!(segment_name(0xabc), "0000000000000abc.journal");
        assert_eq!(segment_base("0000000000000abc.journal"), Some(0xabc));
        assert_eq!(segment_base("0000000000000ABC.journal"), None);
        assert_eq!(segment_base("abc.journal"), None);
        assert_eq!(segment_base("journal.lock"), None);
    }

    /// The bytes of version 1 as they must stay.
    #[test]
    fn version_one_bytes_do_not_move() {
        let header = FrameHeader {
            length: 3,
            crc: 0,
            position: 64,
            unsynced: 0,
            kind: 7,
            version: 2,
            flags: 0,
        };
        let bytes = header.seal(crc32c::crc32c(b"abc"));
        assert_eq!(bytes[..4], [3, 0, 0, 0]);
        assert_eq!(
            bytes[8..],
            [64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 2, 0, 0]
        );
    }
}
