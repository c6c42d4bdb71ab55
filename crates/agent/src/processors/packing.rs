//! Compressed streams: gzip, bzip2, xz and lzma both ways, zstd to be read.
//!
//! Memory is bounded whatever a stream says of itself: what would need more is an error.

use std::io::{self, BufReader, Read, Write};

use bzip2::read::MultiBzDecoder;
use bzip2::write::BzEncoder;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lzma_rust2::{LzmaOptions, LzmaReader, LzmaWriter, XzOptions, XzReader, XzWriter};
use ruzstd::decoding::StreamingDecoder;

use crate::limits::UNPACK_WINDOW_BYTES_MAX;

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Bzip2,
    Xz,
    Lzma,
    Zstd,
}

impl Format {
    /// All that are written.
    pub(super) const WRITTEN: [Format; 4] = [Format::Gzip, Format::Bzip2, Format::Xz, Format::Lzma];

    /// As properties write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Format::Gzip => "gzip",
            Format::Bzip2 => "bzip2",
            Format::Xz => "xz-lzma2",
            Format::Lzma => "lzma",
            Format::Zstd => "zstd",
        }
    }

    /// The end of a file's name.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Format::Gzip => ".gz",
            Format::Bzip2 => ".bz2",
            Format::Xz => ".xz",
            Format::Lzma => ".lzma",
            Format::Zstd => ".zst",
        }
    }

    /// The media type.
    pub(super) fn mime(self) -> &'static str {
        match self {
            Format::Gzip => "application/gzip",
            Format::Bzip2 => "application/bzip2",
            Format::Xz => "application/x-xz",
            Format::Lzma => "application/x-lzma",
            Format::Zstd => "application/zstd",
        }
    }

    /// The format of a media type.
    pub(super) fn of_mime(mime: &str) -> Option<Format> {
        match mime {
            "application/x-gzip" => Some(Format::Gzip),
            "application/x-bzip2" => Some(Format::Bzip2),
            _ => Format::WRITTEN
                .into_iter()
                .find(|format| format.mime() == mime),
        }
    }

    /// The format of a file, by its name.
    pub(super) fn of_file(name: &str) -> Option<Format> {
        let all = Format::WRITTEN.into_iter().chain([Format::Zstd]);
        let mut all = all.filter(|format| name.ends_with(format.extension()));
        all.next()
    }

    /// Compresses all that `from` has; `level` is from 0 to 9.
    pub(super) fn pack(
        self,
        level: u32,
        from: &mut dyn Read,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        match self {
            Format::Gzip => {
                let mut to = GzEncoder::new(to, flate2::Compression::new(level));
                io::copy(from, &mut to)?;
                to.finish().map(drop)
            }
            Format::Bzip2 => {
                let mut to = BzEncoder::new(to, bzip2::Compression::new(level.clamp(1, 9)));
                io::copy(from, &mut to)?;
                to.finish().map(drop)
            }
            Format::Xz => {
                let mut to = XzWriter::new(to, XzOptions::with_preset(level))?;
                io::copy(from, &mut to)?;
                to.finish().map(drop)
            }
            Format::Lzma => {
                let options = LzmaOptions::with_preset(level);
                let mut to = LzmaWriter::new_use_header(to, &options, None)?;
                io::copy(from, &mut to)?;
                to.finish().map(drop)
            }
            Format::Zstd => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Reads what `from` has in compressed form.
    pub(super) fn unpack<'r>(
        self,
        from: impl Read + Send + 'r,
    ) -> io::Result<Box<dyn Read + Send + 'r>> {
        let from = BufReader::with_capacity(BUFFER_BYTES, from);
        let kib_max = (UNPACK_WINDOW_BYTES_MAX >> 10) as u32;
        Ok(match self {
            Format::Gzip => Box::new(MultiGzDecoder::new(from)),
            Format::Bzip2 => Box::new(MultiBzDecoder::new(from)),
            Format::Xz => Box::new(XzReader::new_mem_limit(from, true, kib_max)),
            Format::Lzma => Box::new(LzmaReader::new_mem_limit(from, kib_max, None)?),
            Format::Zstd => {
                let max = UNPACK_WINDOW_BYTES_MAX as u64;
                let decoder = StreamingDecoder::new_with_max_window_size(from, max);
                Box::new(decoder.map_err(io::Error::other)?)
            }
        })
    }
}

/// Compressed bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    /// Text that repeats itself, and noise.
    fn sample() -> Vec<u8> {
        let mut bytes = b"the thalweg is the deepest line of a valley\n".repeat(20_000);
        let mut noise = vec![0; 300_000];
        Rng::from_seed(1).fill(&mut noise);
        bytes.append(&mut noise);
        bytes
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let sample = sample();
        for format in Format::WRITTEN {
            for level in [0, 1, 9] {
                let mut packed = Vec::new();
                format
                    .pack(level, &mut sample.as_slice(), &mut packed)
                    .unwrap();
                let mut back = Vec::new();
                let mut reader = format.unpack(packed.as_slice()).unwrap();
                reader.read_to_end(&mut back).unwrap();
                assert!(back == sample, "{format:?} at {level}");
                assert!(level == 0 || packed.len() < sample.len() / 2, "{format:?}");
            }
        }
    }

    #[test]
    fn the_usual_tools_read_and_write_the_same() {
        let sample = sample();
        let dir = tempfile::tempdir().unwrap();
        for (format, tool) in [
            (Format::Gzip, "gzip"),
            (Format::Bzip2, "bzip2"),
            (Format::Xz, "xz"),
            (Format::Zstd, "zstd"),
        ] {
            let path = dir.path().join("sample");
            std::fs::write(&path, &sample).unwrap();
            let run = |flags: &[&str], path: &std::path::Path| {
                let output = std::process::Command::new(tool)
                    .args(flags)
                    .arg(path)
                    .output();
                output.ok().map(|output| output.stdout)
            };
            let Some(packed) = run(&["-c"], &path) else {
                eprintln!("{tool} is not there to be compared with");
                continue;
            };
            let mut back = Vec::new();
            let mut reader = format.unpack(packed.as_slice()).unwrap();
            reader.read_to_end(&mut back).unwrap();
            assert!(back == sample, "{tool}");
            if format != Format::Zstd {
                let path = dir.path().join(format!("ours{}", format.extension()));
                let mut packed = Vec::new();
                format.pack(6, &mut sample.as_slice(), &mut packed).unwrap();
                std::fs::write(&path, packed).unwrap();
                assert!(run(&["-dc"], &path) == Some(sample.clone()), "{tool}");
            }
        }
    }

    #[test]
    fn damage_and_greed_are_errors() {
        for format in Format::WRITTEN {
            let mut packed = Vec::new();
            format
                .pack(6, &mut sample().as_slice(), &mut packed)
                .unwrap();
            packed.truncate(packed.len() / 2);
            let read = format.unpack(packed.as_slice()).and_then(|mut reader| {
                let mut back = Vec::new();
                reader.read_to_end(&mut back)
            });
            assert!(
                read.is_err(),
                "{format:?}: half of a stream was read as whole"
            );
        }
        // An lzma header that asks for a dictionary of 4 GiB.
        let header = [
            0x5d, 0xff, 0xff, 0xff, 0xff, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert!(Format::Lzma.unpack(&header[..]).is_err());
    }
}
