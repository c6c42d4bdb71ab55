//! Where the files of an archive stand in it.
//!
//! Nothing is believed that an archive says of itself: positions and lengths are held against the
//! archive's size, and its list is bounded.

use std::io::{self, Read, Seek, SeekFrom};

use super::tar::{TAR_BLOCK_BYTES, TarHeader, pax_records};
use crate::limits::{ARCHIVE_LIST_BYTES_MAX, SESSION_FLOW_FILES_MAX};

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::processors) struct Packed {
    pub(in crate::processors) name: String,
    /// Where its bytes begin, and how many there are.
    pub(in crate::processors) offset: u64,
    pub(in crate::processors) len: u64,
    /// How many bytes they become when they are deflated.
    pub(in crate::processors) deflated: Option<u64>,
}

/// Why an archive cannot be read.
#[derive(Debug)]
pub(in crate::processors) enum ArchiveError {
    /// The bytes cannot be had.
    Read(io::Error),
    /// They are no such archive, or damaged.
    Damaged(String),
}

/// The files of a tar.
pub(in crate::processors) fn tar_files(
    source: &mut (impl Read + Seek),
) -> Result<Vec<Packed>, ArchiveError> {
    let size = source.seek(SeekFrom::End(0))?;
    let mut files = Vec::new();
    let (mut at, mut long_name, mut long_size) = (0, None, None);
    while at + TAR_BLOCK_BYTES as u64 <= size {
        let mut block = [0; TAR_BLOCK_BYTES];
        source.seek(SeekFrom::Start(at))?;
        source.read_exact(&mut block)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(files);
        }
        let header = TarHeader::read(&block)
            .ok_or_else(|| damaged(format!("there is no tar header at byte {at}")))?;
        at += TAR_BLOCK_BYTES as u64;
        let is_file = matches!(header.kind, b'0' | 0);
        let len = long_size.take().filter(|_| is_file).unwrap_or(header.size);
        let end = at.checked_add(len).filter(|end| *end <= size);
        let end = end.ok_or_else(|| damaged("a file in the tar is longer than the tar"))?;
        match header.kind {
            b'x' | b'L' => {
                let bytes = read_list(source, at, len)?;
                let text = String::from_utf8_lossy(&bytes);
                if header.kind == b'L' {
                    long_name = Some(text.trim_end_matches('\0').to_owned());
                } else {
                    for (key, value) in pax_records(&text) {
                        match key {
                            "path" => long_name = Some(value.to_owned()),
                            "size" => long_size = value.parse().ok(),
                            _ => {}
                        }
                    }
                }
            }
            _ if is_file => files.push(Packed {
                name: long_name.take().unwrap_or(header.name),
                offset: at,
                len,
                deflated: None,
            }),
            // A folder or a link; its long name is not the next one's.
            _ => long_name = None,
        }
        check_count(&files)?;
        at = end.next_multiple_of(TAR_BLOCK_BYTES as u64);
    }
    if files.is_empty() {
        return Err(damaged("it is no tar"));
    }
    if at > size {
        return Err(damaged("the tar ends too early"));
    }
    Ok(files)
}

/// The files of a zip, by the list at its end.
pub(in crate::processors) fn zip_files(
    source: &mut (impl Read + Seek),
) -> Result<Vec<Packed>, ArchiveError> {
    let size = source.seek(SeekFrom::End(0))?;
    let tail_from = size.saturating_sub(ZIP_TAIL_BYTES);
    let tail = read_list(source, tail_from, size - tail_from)?;
    let end = tail.windows(4).rposition(|four| four == b"PK\x05\x06");
    let end = end.and_then(|end| tail.get(end..end + 22));
    let end = end.ok_or_else(|| damaged("it is no zip"))?;
    let (count, len, from) = (u16_at(end, 10), u32_at(end, 12), u32_at(end, 16));
    if count == u16::MAX || from == u32::MAX {
        return Err(damaged("it is a zip64, which is not read"));
    }
    let list = read_list(source, u64::from(from), u64::from(len))?;
    let mut rest = list.as_slice();
    let mut files = Vec::new();
    while let Some(entry) = rest.get(..46) {
        if !entry.starts_with(b"PK\x01\x02") {
            return Err(damaged("the list of the zip is damaged"));
        }
        let name_len = usize::from(u16_at(entry, 28));
        let more = usize::from(u16_at(entry, 30)) + usize::from(u16_at(entry, 32));
        let name = rest.get(46..46 + name_len);
        let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
        let (method, flags) = (u16_at(entry, 10), u16_at(entry, 8));
        let (packed, plain) = (u64::from(u32_at(entry, 20)), u64::from(u32_at(entry, 24)));
        let header = u64::from(u32_at(entry, 42));
        rest = rest.get(46 + name_len + more..).unwrap_or_default();
        if name.ends_with('/') {
            continue;
        }
        if flags & 1 != 0 || !matches!(method, 0 | 8) {
            return Err(damaged(format!(
                "'{name}' is encrypted or not packed by deflate, which is not read"
            )));
        }
        let local = read_list(source, header, 30)?;
        let skipped = u64::from(u16_at(&local, 26)) + u64::from(u16_at(&local, 28));
        let offset = header + 30 + skipped;
        if offset.saturating_add(packed) > size {
            return Err(damaged("a file in the zip is longer than the zip"));
        }
        files.push(Packed {
            name,
            offset,
            len: packed,
            deflated: (method == 8).then_some(plain),
        });
        check_count(&files)?;
    }
    Ok(files)
}

/// Bytes that tell of files.
fn read_list(
    source: &mut (impl Read + Seek),
    from: u64,
    len: u64,
) -> Result<Vec<u8>, ArchiveError> {
    if len > ARCHIVE_LIST_BYTES_MAX {
        return Err(damaged("what the archive says of its files is too long"));
    }
    let mut bytes = Vec::new();
    source.seek(SeekFrom::Start(from))?;
    source.take(len).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != len {
        return Err(damaged("the archive ends too early"));
    }
    Ok(bytes)
}

fn check_count(files: &[Packed]) -> Result<(), ArchiveError> {
    if files.len() > SESSION_FLOW_FILES_MAX {
        return Err(damaged(format!(
            "it has more than {SESSION_FLOW_FILES_MAX} files"
        )));
    }
    Ok(())
}

/// The number at `at`, zero beyond the end.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let two = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    two.map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_le_bytes)
}

fn damaged(message: impl Into<String>) -> ArchiveError {
    ArchiveError::Damaged(message.into())
}

impl From<io::Error> for ArchiveError {
    fn from(error: io::Error) -> Self {
        ArchiveError::Read(error)
    }
}

/// The end of a zip with the longest comment.
const ZIP_TAIL_BYTES: u64 = 22 + 65_535;

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use base::Rng;

    use super::*;
    use crate::processors::archive::{Member, tar_end, tar_header};

    fn tar(files: &[(&str, &str)]) -> Vec<u8> {
        let mut tar = Vec::new();
        for (name, content) in files {
            tar.extend(tar_header(&Member {
                name,
                size: content.len() as u64,
                mode: 0o644,
                modified: 0,
            }));
            tar.extend(content.as_bytes());
            tar.resize(tar.len().next_multiple_of(TAR_BLOCK_BYTES), 0);
        }
        tar.extend(tar_end());
        tar
    }

    #[test]
    fn files_of_a_tar_are_found_with_their_long_names() {
        let long = "n".repeat(200);
        let all = [("a", "one"), (long.as_str(), ""), ("b", "three")];
        let tar = tar(&all);
        let files = tar_files(&mut Cursor::new(&tar)).unwrap();
        let seen: Vec<(&str, &[u8])> = files
            .iter()
            .map(|file| {
                let from = file.offset as usize;
                (file.name.as_str(), &tar[from..from + file.len as usize])
            })
            .collect();
        let expected = all.map(|(name, content)| (name, content.as_bytes()));
        assert_eq!(seen, expected);
    }

    #[test]
    fn damage_of_any_byte_is_an_error_or_other_files_and_never_a_panic() {
        let sound = tar(&[("a", "one"), (&"n".repeat(200), "two")]);
        let mut random = Rng::from_seed(1);
        for _ in 0..2_000 {
            let mut damaged = sound.clone();
            let at = random.below(damaged.len() as u64) as usize;
            damaged[at] = random.next_u64() as u8;
            damaged.truncate(random.below(damaged.len() as u64) as usize);
            // Whatever is found lies within the archive.
            for files in [
                tar_files(&mut Cursor::new(&damaged)),
                zip_files(&mut Cursor::new(&damaged)),
            ]
            .into_iter()
            .flatten()
            {
                assert!(
                    files
                        .iter()
                        .all(|f| f.offset + f.len <= damaged.len() as u64)
                );
            }
        }
        assert!(tar_files(&mut Cursor::new(b"")).is_err());
        assert!(zip_files(&mut Cursor::new(b"PK\x05\x06")).is_err());
    }
}
