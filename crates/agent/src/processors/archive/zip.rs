//! Zip: a header before each file, and a list of all at the end. No IO.
//!
//! Files are deflated. Those of 4 GiB and more, and more than 65,535 of them, would need another
//! version of the format and are refused.

use super::Member;

/// A file as the list at the end names it.
#[derive(Clone, Debug)]
pub(in crate::processors) struct ZipEntry {
    name: String,
    mode: u32,
    time: u32,
    crc: u32,
    packed: u32,
    size: u32,
    /// Where its header begins.
    offset: u32,
}

impl ZipEntry {
    /// A file whose content is packed; `None` when the format cannot tell of it.
    pub(in crate::processors) fn new(
        member: &Member<'_>,
        crc: u32,
        packed: u64,
        offset: u64,
    ) -> Option<ZipEntry> {
        u16::try_from(member.name.len()).ok()?;
        Some(ZipEntry {
            name: member.name.to_owned(),
            mode: member.mode,
            time: dos_time(member.modified),
            crc,
            packed: u32::try_from(packed).ok()?,
            size: u32::try_from(member.size).ok()?,
            offset: u32::try_from(offset).ok()?,
        })
    }

    /// What both headers tell, in the same order.
    fn common(&self, out: &mut Vec<u8>) {
        for number in [VERSION, UTF8_NAMES, DEFLATED] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.time, self.crc, self.packed, self.size] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        // Its length was checked when the entry was made.
        out.extend_from_slice(&(self.name.len() as u16).to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
    }
}

/// The bytes before a file's packed content.
pub(in crate::processors) fn zip_local_header(entry: &ZipEntry) -> Vec<u8> {
    let mut out = b"PK\x03\x04".to_vec();
    entry.common(&mut out);
    out.extend_from_slice(entry.name.as_bytes());
    out
}

/// The list of all files behind the last one, which begins at `offset`; `None` when there are too
/// many.
pub(in crate::processors) fn zip_end(entries: &[ZipEntry], offset: u64) -> Option<Vec<u8>> {
    let count = u16::try_from(entries.len()).ok()?;
    let offset = u32::try_from(offset).ok()?;
    let mut out = Vec::new();
    for entry in entries {
        out.extend_from_slice(b"PK\x01\x02");
        // Made on Unix, so that the mode is understood.
        out.extend_from_slice(&(VERSION | 3 << 8).to_le_bytes());
        entry.common(&mut out);
        for number in [0u16, 0, 0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let mode = (0o100_000 | entry.mode & 0o7777) << 16;
        out.extend_from_slice(&mode.to_le_bytes());
        out.extend_from_slice(&entry.offset.to_le_bytes());
        out.extend_from_slice(entry.name.as_bytes());
    }
    let len = u32::try_from(out.len()).ok()?;
    out.extend_from_slice(b"PK\x05\x06");
    for number in [0, 0, count, count] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&0u16.to_le_bytes());
    Some(out)
}

/// Date and time as DOS packs them, in UTC; years from 1980 to 2107.
fn dos_time(seconds: u64) -> u32 {
    let at = base::UnixMillis(i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX));
    let text = base::format_rfc3339(at);
    let number = |from: usize, to: usize| -> u32 {
        let digits = text.get(from..to).unwrap_or_default();
        digits.parse().unwrap_or(0)
    };
    let year = number(0, 4).clamp(1980, 2107) - 1980;
    let date = year << 9 | number(5, 7) << 5 | number(8, 10);
    date << 16 | number(11, 13) << 11 | number(14, 16) << 5 | (number(17, 19) / 2)
}

/// The version that deflated files need.
const VERSION: u16 = 20;
/// Names are UTF-8.
const UTF8_NAMES: u16 = 1 << 11;
const DEFLATED: u16 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_packed_as_dos_has_them() {
        // 2023-11-14T22:13:20Z
        let expected = (43 << 9 | 11 << 5 | 14) << 16 | 22 << 11 | 13 << 5 | 10;
        assert_eq!(dos_time(1_700_000_000), expected);
        assert_eq!(dos_time(0) >> 16, 1 << 5 | 1);
    }

    #[test]
    fn what_the_format_cannot_tell_is_refused() {
        let member = |size| Member {
            name: "a",
            size,
            mode: 0o644,
            modified: 0,
        };
        assert!(ZipEntry::new(&member(1), 0, 1, 0).is_some());
        assert!(ZipEntry::new(&member(1 << 32), 0, 1, 0).is_none());
        assert!(ZipEntry::new(&member(1), 0, 1, 1 << 32).is_none());
        let entry = ZipEntry::new(&member(1), 0, 1, 0).unwrap();
        assert!(zip_end(&vec![entry; 70_000], 0).is_none());
    }
}
