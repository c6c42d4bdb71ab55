//! The codecs of record batches: none, gzip, snappy, lz4, zstd; unpacking is bounded.

use std::io::{self, Read, Write};

use bytes::Bytes;

use crate::net::limits::KAFKA_UNPACKED_BYTES_MAX;

/// How a batch's records are packed; the numbers are Kafka's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Codec {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    /// The codec of this number.
    pub(crate) fn of_number(number: i16) -> Option<Codec> {
        let all = [
            Codec::None,
            Codec::Gzip,
            Codec::Snappy,
            Codec::Lz4,
            Codec::Zstd,
        ];
        all.into_iter().find(|codec| codec.number() == number)
    }

    /// The codec of this name.
    pub(crate) fn of_name(name: &str) -> Option<Codec> {
        Some(match name {
            "none" => Codec::None,
            "gzip" => Codec::Gzip,
            "snappy" => Codec::Snappy,
            "lz4" => Codec::Lz4,
            "zstd" => Codec::Zstd,
            _ => return None,
        })
    }

    /// Its number in a batch's attributes.
    pub(crate) fn number(self) -> i16 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }

    /// Packs records.
    pub(crate) fn pack(self, plain: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Codec::None => Ok(plain.to_vec()),
            Codec::Gzip => {
                let level = flate2::Compression::default();
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(plain)?;
                encoder.finish()
            }
            Codec::Snappy => pack_snappy(plain),
            Codec::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(plain)?;
                encoder.finish().map_err(io::Error::other)
            }
            Codec::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                Ok(ruzstd::encoding::compress_to_vec(plain, level))
            }
        }
    }

    /// Unpacks records; more than [`KAFKA_UNPACKED_BYTES_MAX`] is an error.
    pub(crate) fn unpack(self, packed: Bytes) -> io::Result<Bytes> {
        let plain = match self {
            Codec::None => return Ok(packed),
            Codec::Gzip => bounded(flate2::read::MultiGzDecoder::new(packed.as_ref()))?,
            Codec::Snappy => unpack_snappy(&packed)?,
            Codec::Lz4 => bounded(lz4_flex::frame::FrameDecoder::new(packed.as_ref()))?,
            Codec::Zstd => bounded(
                ruzstd::decoding::StreamingDecoder::new(packed.as_ref()).map_err(|_| damaged())?,
            )?,
        };
        Ok(Bytes::from(plain))
    }
}

fn bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    let max = KAFKA_UNPACKED_BYTES_MAX as u64;
    let read = reader.take(max + 1).read_to_end(&mut plain)?;
    if read as u64 > max {
        return Err(too_large());
    }
    Ok(plain)
}

/// Blocks of raw snappy behind the header of Java's library, which every client reads.
fn pack_snappy(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = JAVA_SNAPPY.to_vec();
    packed.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
    let mut encoder = snap::raw::Encoder::new();
    for block in plain.chunks(SNAPPY_BLOCK_BYTES) {
        let block = encoder.compress_vec(block).map_err(io::Error::other)?;
        packed.extend_from_slice(&(block.len() as u32).to_be_bytes());
        packed.extend_from_slice(&block);
    }
    Ok(packed)
}

/// With the header of Java's library or, as C's clients do it, without.
fn unpack_snappy(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    if !packed.starts_with(JAVA_SNAPPY) {
        unpack_block(packed, &mut plain)?;
        return Ok(plain);
    }
    let mut rest = packed.get(SNAPPY_HEADER_BYTES..).ok_or_else(damaged)?;
    while !rest.is_empty() {
        let (len, behind) = rest.split_first_chunk::<4>().ok_or_else(damaged)?;
        let len = u32::from_be_bytes(*len) as usize;
        let block = behind.get(..len).ok_or_else(damaged)?;
        unpack_block(block, &mut plain)?;
        rest = &behind[len..];
    }
    Ok(plain)
}

fn unpack_block(block: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
    let len = snap::raw::decompress_len(block).map_err(|_| damaged())?;
    let start = plain.len();
    if start + len > KAFKA_UNPACKED_BYTES_MAX {
        return Err(too_large());
    }
    plain.resize(start + len, 0);
    let read = snap::raw::Decoder::new().decompress(block, &mut plain[start..]);
    plain.truncate(start + read.map_err(|_| damaged())?);
    Ok(())
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the packed records are damaged")
}

fn too_large() -> io::Error {
    let text = format!("a batch is larger than {KAFKA_UNPACKED_BYTES_MAX} bytes unpacked");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// What Java's snappy streams begin with.
const JAVA_SNAPPY: &[u8] = b"\x82SNAPPY\0";

/// Bytes of that header: magic, version, oldest version.
const SNAPPY_HEADER_BYTES: usize = 16;

/// Bytes that Java's library packs together.
const SNAPPY_BLOCK_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Codec; 5] = [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ];

    #[test]
    fn what_is_packed_unpacks_to_the_same() {
        let plain: Vec<u8> = (0..200_000u32)
            .flat_map(|n| (n / 7).to_be_bytes())
            .collect();
        for codec in ALL {
            let packed = codec.pack(&plain).unwrap();
            if codec != Codec::None {
                assert!(packed.len() < plain.len() / 2, "{codec:?} packs nothing");
            }
            assert_eq!(codec.unpack(packed.into()).unwrap(), plain, "{codec:?}");
            assert_eq!(Codec::of_number(codec.number()), Some(codec));
        }
        let raw = snap::raw::Encoder::new().compress_vec(&plain).unwrap();
        assert_eq!(Codec::Snappy.unpack(raw.into()).unwrap(), plain);
    }

    #[test]
    fn bombs_and_damage_are_errors() {
        let plain = vec![0; KAFKA_UNPACKED_BYTES_MAX + 1];
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let packed = codec.pack(&plain).unwrap();
            assert!(
                codec.unpack(packed.into()).is_err(),
                "{codec:?} took a bomb"
            );
            assert!(
                codec
                    .unpack(Bytes::from_static(b"\x82SNAPPY\0 and nonsense"))
                    .is_err()
            );
        }
    }
}
