//! Tar: blocks of 512 bytes, a header before each file, two empty blocks at the end.
//!
//! Written as POSIX.1-2001 has it: names that do not fit and sizes from 8 GiB on stand in a `pax`
//! header before the file's own. No IO.

use super::Member;

/// Everything in a tar is a multiple of so many bytes.
pub(in crate::processors) const TAR_BLOCK_BYTES: usize = 512;

/// The bytes before a member's content.
pub(in crate::processors) fn tar_header(member: &Member<'_>) -> Vec<u8> {
    let mut records = String::new();
    let mut name = member.name.as_bytes();
    if name.len() > NAME_BYTES {
        records.push_str(&record("path", member.name));
        name = &name[..NAME_BYTES];
    }
    let mut size = member.size;
    if size > SIZE_MAX {
        records.push_str(&record("size", &size.to_string()));
        size = 0;
    }
    let mut out = Vec::new();
    if !records.is_empty() {
        let header = Header {
            name: b"././@PaxHeader",
            size: records.len() as u64,
            mode: 0o644,
            modified: member.modified,
            kind: b'x',
        };
        out.extend_from_slice(&header.block());
        out.extend_from_slice(records.as_bytes());
        out.resize(out.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
    }
    let header = Header {
        name,
        size,
        mode: member.mode,
        modified: member.modified,
        kind: b'0',
    };
    out.extend_from_slice(&header.block());
    out
}

/// The bytes behind the last member.
pub(in crate::processors) fn tar_end() -> Vec<u8> {
    vec![0; 2 * TAR_BLOCK_BYTES]
}

/// Where the content of the first file stands in a tar that begins with `head`, and its length;
/// `None` when there is no file in what is shown of it.
pub(in crate::processors) fn tar_first(head: &[u8]) -> Option<(u64, u64)> {
    let mut at = 0;
    let mut long_size = None;
    loop {
        let block = head.get(at..at + TAR_BLOCK_BYTES)?;
        let header = TarHeader::read(block.try_into().ok()?)?;
        at += TAR_BLOCK_BYTES;
        if matches!(header.kind, b'0' | 0) {
            return Some((at as u64, long_size.unwrap_or(header.size)));
        }
        let len = usize::try_from(header.size).ok()?;
        let content = head.get(at..at.checked_add(len)?)?;
        if header.kind == b'x' {
            let text = String::from_utf8_lossy(content);
            let mut records = pax_records(&text);
            let size = records.find_map(|(key, value)| (key == "size").then_some(value));
            long_size = size.and_then(|size| size.parse().ok()).or(long_size);
        }
        at = at.checked_add(len.checked_next_multiple_of(TAR_BLOCK_BYTES)?)?;
    }
}

/// What a header block says.
pub(super) struct TarHeader {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) kind: u8,
}

impl TarHeader {
    /// Reads a block; `None` when it is no header.
    pub(super) fn read(block: &[u8; TAR_BLOCK_BYTES]) -> Option<TarHeader> {
        let told = octal(&block[148..156])?;
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        // The checksum is made as if it were blanks itself.
        if told != sum(&block[..148]) + 8 * u64::from(b' ') + sum(&block[156..]) {
            return None;
        }
        let text = |field: &[u8]| {
            let end = field.iter().position(|byte| *byte == 0);
            String::from_utf8_lossy(&field[..end.unwrap_or(field.len())]).into_owned()
        };
        let mut name = text(&block[..100]);
        let prefix = text(&block[345..500]);
        if block[257..263] == *b"ustar\0" && !prefix.is_empty() {
            name = format!("{prefix}/{name}");
        }
        Some(TarHeader {
            name,
            size: octal(&block[124..136])?,
            kind: block[156],
        })
    }
}

/// Keys and values of a `pax` header.
pub(super) fn pax_records(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter_map(|line| line.split_once(' ')?.1.split_once('='))
}

struct Header<'a> {
    name: &'a [u8],
    size: u64,
    mode: u32,
    modified: u64,
    kind: u8,
}

impl Header<'_> {
    fn block(&self) -> [u8; TAR_BLOCK_BYTES] {
        let mut block = [0; TAR_BLOCK_BYTES];
        block[..self.name.len()].copy_from_slice(self.name);
        let mut number = |from: usize, to: usize, value: u64| {
            let width = to - from - 1;
            let text = format!("{value:0width$o}");
            block[from..from + width].copy_from_slice(&text.as_bytes()[..width]);
        };
        number(100, 108, u64::from(self.mode & 0o7777));
        number(108, 116, 0);
        number(116, 124, 0);
        number(124, 136, self.size);
        number(136, 148, self.modified.min(SIZE_MAX));
        block[156] = self.kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        let text = format!("{sum:06o}\0 ");
        block[148..156].copy_from_slice(text.as_bytes());
        block
    }
}

/// `<length> <key>=<value>\n`, where the length counts itself.
fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    format!("{len} {key}={value}\n")
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let text = text.trim_matches(|c: char| c == ' ' || c == '\0');
    if text.is_empty() {
        return Some(0);
    }
    u64::from_str_radix(text, 8).ok()
}

/// Bytes of a name that fit into a header.
const NAME_BYTES: usize = 100;

/// The largest number in eleven octal digits.
const SIZE_MAX: u64 = 0o777_7777_7777;

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, size: u64) -> Member<'_> {
        Member {
            name,
            size,
            mode: 0o640,
            modified: 1_700_000_000,
        }
    }

    #[test]
    fn the_usual_tool_reads_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let long = format!("folder/{}.txt", "n".repeat(120));
        let mut tar = Vec::new();
        for (name, content) in [("a.txt", "one"), (long.as_str(), "two")] {
            tar.extend(tar_header(&member(name, content.len() as u64)));
            tar.extend(content.as_bytes());
            tar.resize(tar.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
        }
        tar.extend(tar_end());
        std::fs::write(dir.path().join("x.tar"), tar).unwrap();
        let done = std::process::Command::new("tar")
            .args(["-xf", "x.tar"])
            .current_dir(dir.path())
            .status();
        assert!(done.unwrap().success());
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((read("a.txt"), read(&long)), ("one".into(), "two".into()));
        let mode = std::os::unix::fs::MetadataExt::mode(
            &std::fs::metadata(dir.path().join("a.txt")).unwrap(),
        );
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn the_first_file_is_found_behind_what_comes_before_it() {
        let long = "n".repeat(300);
        for (name, size) in [("a", 5), (long.as_str(), 7), ("huge", 20 << 30)] {
            let header = tar_header(&member(name, size));
            let mut tar = header.clone();
            tar.extend([b'x'; 600]);
            assert_eq!(tar_first(&tar), Some((header.len() as u64, size)), "{name}");
        }
        assert_eq!(tar_first(b"no tar"), None);
        assert_eq!(tar_first(&[0; 2_000]), None);
        let mut damaged = tar_header(&member("a", 5));
        damaged[0] = b'b';
        assert_eq!(tar_first(&damaged), None);
    }
}
