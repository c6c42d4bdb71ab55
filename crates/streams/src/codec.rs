//! Unpacks compressed batches for consumers in this process, and packs what compaction rewrites and
//! what a topic is to hold by another codec; other stored bytes stay as they came.
//!
//! Whatever a batch claims, it unpacks to [`DECOMPRESSED_BYTES_MAX`] bytes at most.

use std::io::{Read, Result as IoResult, Write};

use bytes::Bytes;
use flate2::write::GzEncoder;

use crate::error::StreamsError;
use crate::limits::DECOMPRESSED_BYTES_MAX;

/// The records' bytes, unpacked by Kafka's codec number (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd).
pub fn unpacked(codec: i16, packed: Bytes) -> Result<Bytes, StreamsError> {
    match codec {
        0 => Ok(packed),
        1 => bounded(flate2::read::MultiGzDecoder::new(packed.as_ref())),
        2 => snappy(&packed),
        3 => bounded(lz4_flex::frame::FrameDecoder::new(packed.as_ref())),
        4 => zstd(&packed),
        _ => Err(StreamsError::UnsupportedFormat(
            "the compression codec is not known",
        )),
    }
}

/// The records' bytes, packed so that every client can unpack them: snappy in Java's framing, lz4
/// in frames of independent blocks.
pub fn packed(codec: i16, bytes: Vec<u8>) -> Result<Vec<u8>, StreamsError> {
    // Writing to memory does not fail.
    let failed = |_| StreamsError::InvalidRecord("its records cannot be packed");
    match codec {
        0 => Ok(bytes),
        1 => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&bytes).map_err(failed)?;
            encoder.finish().map_err(failed)
        }
        2 => Ok(snappy_packed(&bytes)),
        3 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(&bytes).map_err(failed)?;
            encoder.finish().map_err(|error| failed(error.into()))
        }
        4 => Ok(ruzstd::encoding::compress_to_vec(
            &bytes[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        )),
        _ => Err(StreamsError::UnsupportedFormat(
            "the compression codec is not known",
        )),
    }
}

fn snappy_packed(bytes: &[u8]) -> Vec<u8> {
    let mut out = XERIAL_MAGIC.to_vec();
    out.extend(XERIAL_VERSIONS);
    for block in bytes.chunks(XERIAL_BLOCK_BYTES) {
        let mut encoder = snap::raw::Encoder::new();
        let mut packed = vec![0; snap::raw::max_compress_len(block.len())];
        // The room is what the encoder asks for, so it cannot fail.
        let length = encoder.compress(block, &mut packed).unwrap_or(0);
        let count = u32::try_from(length).expect("a block is 32 KiB");
        out.extend(count.to_be_bytes());
        out.extend(&packed[..length]);
    }
    out
}

fn zstd(packed: &[u8]) -> Result<Bytes, StreamsError> {
    match ruzstd::decoding::StreamingDecoder::new(packed) {
        Ok(decoder) => bounded(decoder),
        Err(_) => Err(DAMAGED),
    }
}

/// Raw snappy, or the blocks of the framing that Java's snappy streams write (xerial): 8 bytes of
/// magic, two version numbers, then blocks behind their big-endian lengths.
fn snappy(packed: &[u8]) -> Result<Bytes, StreamsError> {
    let mut out = Vec::new();
    if !packed.starts_with(XERIAL_MAGIC) {
        snappy_block(packed, &mut out)?;
        return Ok(Bytes::from(out));
    }
    let mut rest = packed.get(XERIAL_HEADER_BYTES..).ok_or(DAMAGED)?;
    while !rest.is_empty() {
        let (length, tail) = rest.split_first_chunk::<4>().ok_or(DAMAGED)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| DAMAGED)?;
        snappy_block(tail.get(..length).ok_or(DAMAGED)?, &mut out)?;
        rest = &tail[length..];
    }
    Ok(Bytes::from(out))
}

fn snappy_block(block: &[u8], out: &mut Vec<u8>) -> Result<(), StreamsError> {
    let length = snap::raw::decompress_len(block).map_err(|_| DAMAGED)?;
    if length > DECOMPRESSED_BYTES_MAX - out.len() {
        return Err(TOO_LARGE);
    }
    // Snappy packs at most 64 bytes into three, so a longer claim is a lie: no room for it.
    if length / 64 > block.len() {
        return Err(DAMAGED);
    }
    let start = out.len();
    out.resize(start + length, 0);
    let read = snap::raw::Decoder::new().decompress(block, &mut out[start..]);
    read.map(drop).map_err(|_| DAMAGED)
}

fn bounded(reader: impl Read) -> Result<Bytes, StreamsError> {
    let mut out = Vec::new();
    let read: IoResult<usize> = reader
        .take(DECOMPRESSED_BYTES_MAX as u64 + 1)
        .read_to_end(&mut out);
    match read {
        Err(_) => Err(DAMAGED),
        Ok(bytes) if bytes > DECOMPRESSED_BYTES_MAX => Err(TOO_LARGE),
        Ok(_) => Ok(Bytes::from(out)),
    }
}

const DAMAGED: StreamsError = StreamsError::InvalidRecord("its compressed records do not unpack");
const TOO_LARGE: StreamsError =
    StreamsError::InvalidRecord("its records unpack to more than 64 MiB");
const XERIAL_MAGIC: &[u8] = &[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
const XERIAL_HEADER_BYTES: usize = 16;
const XERIAL_BLOCK_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        b"the deepest line of the river, ".repeat(500)
    }

    fn snappy_raw(bytes: &[u8]) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(bytes).unwrap()
    }

    #[test]
    fn every_codec_reads_back() {
        let text = text();
        for (codec, packed) in [
            (0, text.clone()),
            (1, packed(1, text.clone()).unwrap()),
            (2, snappy_raw(&text)),
            (2, packed(2, text.clone()).unwrap()),
            (3, packed(3, text.clone()).unwrap()),
            (4, packed(4, text.clone()).unwrap()),
        ] {
            assert_eq!(
                unpacked(codec, Bytes::from(packed)).unwrap(),
                text,
                "codec {codec}"
            );
        }
    }

    #[test]
    fn a_bomb_is_refused() {
        let zeros = vec![0; DECOMPRESSED_BYTES_MAX + 1];
        for (codec, packed) in [
            (1, packed(1, zeros.clone()).unwrap()),
            (2, snappy_raw(&zeros)),
            (3, packed(3, zeros.clone()).unwrap()),
        ] {
            assert!(
                unpacked(codec, Bytes::from(packed)).is_err(),
                "codec {codec}"
            );
        }
        let claim = [0xff, 0xff, 0xff, 0x0f, 0];
        assert!(unpacked(2, Bytes::copy_from_slice(&claim)).is_err());
    }

    #[test]
    fn damage_is_an_error() {
        let text = text();
        for codec in 1..=4 {
            let packed = packed(codec, text.clone()).unwrap();
            let cut = packed[..packed.len() / 2].to_vec();
            assert!(unpacked(codec, Bytes::from(cut)).is_err(), "codec {codec}");
            assert!(
                unpacked(codec, Bytes::from_static(b"\x82SN")).is_err(),
                "codec {codec}"
            );
        }
        assert!(unpacked(7, Bytes::new()).is_err());
    }
}
