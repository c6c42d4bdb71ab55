//! Object container files, and datums one after the other without one.
//!
//! A file is `Obj` and 1, a map of metadata (`avro.schema`, `avro.codec`), a mark of 16 bytes, then
//! blocks: how many records, how many bytes, the packed records, the mark. One block is in memory
//! at a time, bounded packed and unpacked.

use std::io::{BufReader, Read, Write};
use std::sync::Arc;

use super::decode::Decoder;
use super::schema::AvroSchema;
use super::{AvroReaders, AvroWriters, encode, guess};
use crate::json::Fields;
use crate::limits::{AVRO_BLOCK_BYTES_MAX, AVRO_GUESS_RECORDS_MAX, AVRO_HEADER_BYTES_MAX};
use crate::record_sets::{Create, Open, RecordError, RecordReader, RecordWriter};

/// How a file's blocks are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::record_sets) enum Packing {
    None,
    Deflate,
    Snappy,
    Zstandard,
    Bzip2,
}

impl Open for AvroReaders {
    fn open<'r>(&self, input: Box<dyn Read + 'r>) -> Box<dyn RecordReader + 'r> {
        match &self.schema {
            None => Box::new(FileReader {
                input: Source {
                    input: BufReader::with_capacity(READ_BYTES, input),
                },
                head: None,
                block: Vec::new(),
                at: 0,
                left: 0,
                number: 0,
            }),
            Some(schema) => Box::new(BareReader {
                schema: Arc::clone(schema),
                input: Some(input),
                bytes: Vec::new(),
                at: 0,
                number: 0,
            }),
        }
    }
}

struct FileReader<'r> {
    input: Source<'r>,
    head: Option<Head>,
    /// The block at hand, unpacked; read up to `at`, with `left` records behind that.
    block: Vec<u8>,
    at: usize,
    left: u64,
    number: u64,
}

struct Head {
    schema: AvroSchema,
    packing: Packing,
    mark: [u8; MARK_BYTES],
}

impl RecordReader for FileReader<'_> {
    fn next(&mut self) -> Result<Option<Fields>, RecordError> {
        if self.head.is_none() {
            match self.input.head()? {
                Some(head) => self.head = Some(head),
                None => return Ok(None),
            }
        }
        let Some(head) = &self.head else {
            return Ok(None);
        };
        while self.left == 0 {
            if self.at < self.block.len() {
                return Err(RecordError::format(
                    "a block of the Avro file has bytes left over",
                ));
            }
            let Some((count, block)) = self.input.block(head)? else {
                return Ok(None);
            };
            (self.left, self.block, self.at) = (count, block, 0);
        }
        let mut decoder = Decoder::new(&self.block[self.at..]);
        let number = self.number;
        let record = decoder.record(&head.schema).map_err(|why| {
            RecordError::Format(format!(
                "record {number}, counted from 0, is no Avro: {why}"
            ))
        })?;
        self.at = self.block.len() - decoder.left();
        self.left -= 1;
        self.number += 1;
        Ok(Some(record))
    }
}

/// Datums of a given schema, one after the other; all of them are in memory.
struct BareReader<'r> {
    schema: Arc<AvroSchema>,
    /// None when it was read.
    input: Option<Box<dyn Read + 'r>>,
    bytes: Vec<u8>,
    at: usize,
    number: u64,
}

impl RecordReader for BareReader<'_> {
    fn next(&mut self) -> Result<Option<Fields>, RecordError> {
        if let Some(input) = self.input.take() {
            let max = AVRO_BLOCK_BYTES_MAX as u64;
            let read = input.take(max + 1).read_to_end(&mut self.bytes)?;
            if read as u64 > max {
                return Err(RecordError::Format(format!(
                    "Avro without a file around it is read up to {max} bytes: send it as files"
                )));
            }
        }
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let mut decoder = Decoder::new(rest);
        let number = self.number;
        let wrong = |why: String| {
            RecordError::Format(format!(
                "record {number}, counted from 0, is no Avro: {why}"
            ))
        };
        let record = decoder.record(&self.schema).map_err(wrong)?;
        if decoder.left() == rest.len() {
            return Err(wrong(
                "its schema has no bytes, but there are some".to_owned(),
            ));
        }
        self.at = self.bytes.len() - decoder.left();
        self.number += 1;
        Ok(Some(record))
    }
}

/// The bytes of a file.
struct Source<'r> {
    input: BufReader<Box<dyn Read + 'r>>,
}

impl Source<'_> {
    /// Reads what a file begins with; none where there is nothing at all.
    fn head(&mut self) -> Result<Option<Head>, RecordError> {
        let mut magic = Vec::new();
        self.input.by_ref().take(4).read_to_end(&mut magic)?;
        if magic.is_empty() {
            return Ok(None);
        }
        if magic != MAGIC {
            return Err(RecordError::format(
                "it is no Avro file: it does not begin with 'Obj'",
            ));
        }
        let (mut schema, mut codec) = (None, None);
        let mut left = AVRO_HEADER_BYTES_MAX;
        loop {
            let mut count = self.long()?;
            if count == 0 {
                break;
            }
            if count < 0 {
                self.long()?;
                count = count.saturating_neg();
            }
            for _ in 0..count {
                let name = self.sized(&mut left)?;
                let value = self.sized(&mut left)?;
                match name.as_slice() {
                    b"avro.schema" => schema = Some(value),
                    b"avro.codec" => codec = Some(value),
                    _ => {}
                }
            }
        }
        let schema = schema.ok_or_else(|| RecordError::format("the Avro file has no schema"))?;
        let schema = String::from_utf8(schema)
            .map_err(|_| RecordError::format("the schema of the Avro file is no UTF-8"))?;
        Ok(Some(Head {
            schema: AvroSchema::parse(&schema).map_err(RecordError::Format)?,
            packing: Packing::of_codec(codec.as_deref().unwrap_or(b"null"))?,
            mark: self.mark()?,
        }))
    }

    /// The next block: how many records, and their bytes.
    fn block(&mut self, head: &Head) -> Result<Option<(u64, Vec<u8>)>, RecordError> {
        let mut first = [0];
        if self.input.read(&mut first)? == 0 {
            return Ok(None);
        }
        let count = self.long_from(Some(first[0]))?;
        let count = u64::try_from(count)
            .map_err(|_| RecordError::format("a block of the Avro file has a negative count"))?;
        let mut left = AVRO_BLOCK_BYTES_MAX;
        let packed = self.sized(&mut left)?;
        if self.mark()? != head.mark {
            return Err(RecordError::format(
                "a block of the Avro file does not end with its mark",
            ));
        }
        let block = head.packing.unpack(packed)?;
        // Records may be nothing at all, but not by the million million.
        if count > block.len() as u64 + EMPTY_RECORDS_MAX {
            return Err(RecordError::format(
                "a block of the Avro file counts more records than it has",
            ));
        }
        Ok(Some((count, block)))
    }

    fn mark(&mut self) -> Result<[u8; MARK_BYTES], RecordError> {
        let mut mark = [0; MARK_BYTES];
        self.input.read_exact(&mut mark)?;
        Ok(mark)
    }

    fn long(&mut self) -> Result<i64, RecordError> {
        self.long_from(None)
    }

    /// A number whose first byte may have been read.
    fn long_from(&mut self, first: Option<u8>) -> Result<i64, RecordError> {
        let mut bytes = Vec::with_capacity(LONG_BYTES_MAX);
        bytes.extend(first);
        while bytes.last().is_none_or(|byte| *byte >= 0x80) && bytes.len() < LONG_BYTES_MAX {
            let mut next = [0];
            self.input.read_exact(&mut next)?;
            bytes.push(next[0]);
        }
        Decoder::new(&bytes).long().map_err(RecordError::Format)
    }

    /// Bytes behind their length, of which `left` may still come.
    fn sized(&mut self, left: &mut usize) -> Result<Vec<u8>, RecordError> {
        let len = usize::try_from(self.long()?).ok();
        let Some(len) = len.filter(|len| *len <= *left) else {
            return Err(RecordError::Format(format!(
                "a length in the Avro file is negative or beyond the {left} bytes that it may have"
            )));
        };
        *left -= len;
        let mut bytes = Vec::new();
        self.input
            .by_ref()
            .take(len as u64)
            .read_to_end(&mut bytes)?;
        match bytes.len() == len {
            true => Ok(bytes),
            false => Err(RecordError::format("the Avro file ends too soon")),
        }
    }
}

impl Create for AvroWriters {
    fn create<'w>(&self, output: Box<dyn Write + 'w>) -> Box<dyn RecordWriter + 'w> {
        Box::new(Writer {
            output,
            schema: self.schema.clone(),
            packing: self.packing,
            is_bare: self.is_bare,
            is_guessed: self.schema.is_none(),
            has_head: false,
            mark: *uuid::Uuid::new_v4().as_bytes(),
            first: Vec::new(),
            block: Vec::new(),
            count: 0,
            number: 0,
        })
    }

    fn mime_type(&self) -> &'static str {
        "application/avro-binary"
    }
}

struct Writer<'w> {
    output: Box<dyn Write + 'w>,
    schema: Option<Arc<AvroSchema>>,
    packing: Packing,
    is_bare: bool,
    /// Whether the schema is ours to find, so that nothing may be missing in it.
    is_guessed: bool,
    has_head: bool,
    mark: [u8; MARK_BYTES],
    /// Records that wait for a schema to be found from them.
    first: Vec<Fields>,
    /// The block that is being filled, and its records.
    block: Vec<u8>,
    count: i64,
    number: u64,
}

impl RecordWriter for Writer<'_> {
    fn write(&mut self, record: &Fields) -> Result<(), RecordError> {
        match self.schema.clone() {
            Some(schema) => self.add(&schema, record),
            None => {
                self.first.push(record.clone());
                match self.first.len() < AVRO_GUESS_RECORDS_MAX {
                    true => Ok(()),
                    false => self.guess(),
                }
            }
        }
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        if self.schema.is_none() {
            self.guess()?;
        }
        self.head()?;
        self.send()?;
        Ok(self.output.flush()?)
    }
}

impl Writer<'_> {
    /// Finds a schema from the first records and writes them.
    fn guess(&mut self) -> Result<(), RecordError> {
        let first = std::mem::take(&mut self.first);
        let text = guess::schema(&first).map_err(RecordError::Format)?;
        let schema = Arc::new(AvroSchema::parse(&text).map_err(RecordError::Format)?);
        self.schema = Some(Arc::clone(&schema));
        first
            .iter()
            .try_for_each(|record| self.add(&schema, record))
    }

    fn add(&mut self, schema: &AvroSchema, record: &Fields) -> Result<(), RecordError> {
        let number = self.number;
        encode::record(schema, record, self.is_guessed, &mut self.block).map_err(|why| {
            RecordError::Format(format!("record {number}, counted from 0: {why}"))
        })?;
        if self.block.len() > AVRO_BLOCK_BYTES_MAX {
            return Err(RecordError::Format(format!(
                "record {number}, counted from 0, is larger than {AVRO_BLOCK_BYTES_MAX} bytes"
            )));
        }
        self.number += 1;
        self.count += 1;
        match self.block.len() < BLOCK_BYTES {
            true => Ok(()),
            false => self.send(),
        }
    }

    fn head(&mut self) -> Result<(), RecordError> {
        let Some(schema) = &self.schema else {
            return Ok(());
        };
        if self.has_head || self.is_bare {
            return Ok(());
        }
        self.has_head = true;
        let mut head = MAGIC.to_vec();
        encode::long(2, &mut head);
        encode::sized(b"avro.schema", &mut head);
        encode::sized(schema.text().as_bytes(), &mut head);
        encode::sized(b"avro.codec", &mut head);
        encode::sized(self.packing.codec(), &mut head);
        encode::long(0, &mut head);
        head.extend_from_slice(&self.mark);
        Ok(self.output.write_all(&head)?)
    }

    fn send(&mut self) -> Result<(), RecordError> {
        self.head()?;
        if self.count == 0 {
            return Ok(());
        }
        if self.is_bare {
            self.output.write_all(&self.block)?;
        } else {
            let packed = self.packing.pack(&self.block)?;
            let mut framed = Vec::with_capacity(packed.len() + 2 * LONG_BYTES_MAX);
            encode::long(self.count, &mut framed);
            encode::sized(&packed, &mut framed);
            framed.extend_from_slice(&self.mark);
            self.output.write_all(&framed)?;
        }
        self.block.clear();
        self.count = 0;
        Ok(())
    }
}

impl Packing {
    fn of_codec(codec: &[u8]) -> Result<Packing, RecordError> {
        let known = Packing::ALL
            .into_iter()
            .find(|known| known.codec() == codec);
        known.ok_or_else(|| {
            RecordError::Format(format!(
                "the Avro file is packed by '{}', which is not known",
                String::from_utf8_lossy(codec)
            ))
        })
    }

    /// The name in files.
    fn codec(self) -> &'static [u8] {
        match self {
            Packing::None => b"null",
            Packing::Deflate => b"deflate",
            Packing::Snappy => b"snappy",
            Packing::Zstandard => b"zstandard",
            Packing::Bzip2 => b"bzip2",
        }
    }

    fn pack(self, plain: &[u8]) -> Result<Vec<u8>, RecordError> {
        Ok(match self {
            Packing::None => plain.to_vec(),
            Packing::Deflate => {
                let level = flate2::Compression::default();
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(plain)?;
                encoder.finish()?
            }
            Packing::Snappy => {
                let mut encoder = snap::raw::Encoder::new();
                let mut packed = encoder.compress_vec(plain).map_err(RecordError::format)?;
                packed.extend_from_slice(&crc32(plain).to_be_bytes());
                packed
            }
            Packing::Zstandard => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                ruzstd::encoding::compress_to_vec(plain, level)
            }
            Packing::Bzip2 => {
                let level = bzip2::Compression::default();
                let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), level);
                encoder.write_all(plain)?;
                encoder.finish()?
            }
        })
    }

    fn unpack(self, packed: Vec<u8>) -> Result<Vec<u8>, RecordError> {
        let packed = packed.as_slice();
        match self {
            Packing::None => Ok(packed.to_vec()),
            Packing::Deflate => bounded(flate2::read::DeflateDecoder::new(packed)),
            Packing::Snappy => unpack_snappy(packed),
            Packing::Zstandard => {
                let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
                bounded(decoder.map_err(|_| damaged())?)
            }
            Packing::Bzip2 => bounded(bzip2::read::BzDecoder::new(packed)),
        }
    }

    const ALL: [Packing; 5] = [
        Packing::None,
        Packing::Deflate,
        Packing::Snappy,
        Packing::Zstandard,
        Packing::Bzip2,
    ];
}

fn unpack_snappy(packed: &[u8]) -> Result<Vec<u8>, RecordError> {
    let (packed, crc) = packed.split_last_chunk::<4>().ok_or_else(damaged)?;
    let len = snap::raw::decompress_len(packed).map_err(|_| damaged())?;
    if len > AVRO_BLOCK_BYTES_MAX {
        return Err(too_large());
    }
    let plain = snap::raw::Decoder::new().decompress_vec(packed);
    let plain = plain.map_err(|_| damaged())?;
    match crc32(&plain) == u32::from_be_bytes(*crc) {
        true => Ok(plain),
        false => Err(damaged()),
    }
}

fn bounded(packed: impl Read) -> Result<Vec<u8>, RecordError> {
    let mut plain = Vec::new();
    let max = AVRO_BLOCK_BYTES_MAX as u64;
    // The packed bytes are in memory: what fails is what they say.
    let read = packed.take(max + 1).read_to_end(&mut plain);
    match read.map_err(|_| damaged())? as u64 > max {
        true => Err(too_large()),
        false => Ok(plain),
    }
}

fn crc32(plain: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(plain);
    crc.sum()
}

fn damaged() -> RecordError {
    RecordError::format("a packed block of the Avro file is damaged")
}

fn too_large() -> RecordError {
    RecordError::Format(format!(
        "a block of the Avro file is larger than {AVRO_BLOCK_BYTES_MAX} bytes"
    ))
}

const MAGIC: &[u8] = b"Obj\x01";
const MARK_BYTES: usize = 16;

/// Bytes of the longest number.
const LONG_BYTES_MAX: usize = 10;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Bytes from which on a block is written, Avro's own.
const BLOCK_BYTES: usize = 64_000;

/// Records of a block that have no bytes at all.
const EMPTY_RECORDS_MAX: u64 = 10_000;
