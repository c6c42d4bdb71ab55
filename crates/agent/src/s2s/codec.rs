//! Site-to-site's bytes: texts, answers, packets, compressed blocks; over any reader and writer.
//!
//! | what | bytes, numbers with the highest byte first |
//! | --- | --- |
//! | text | length u16, UTF-8 |
//! | answer | `R`, `C`, code u8; a text, with some codes |
//! | packet | attributes u32, for each name and value a length u32 and UTF-8; size u64; content |
//! | compressed | for each block `SYNC`, its length u32, packed length u32, zlib; 1 before each further block, 0 at the end |
//!
//! A transaction's checksum is CRC-32 over its packets, uncompressed.

use std::io::{self, Read, Write};

use flate2::Crc;
use flate2::read::{ZlibDecoder, ZlibEncoder};

use crate::net::limits::{S2S_ATTRIBUTES_BYTES_MAX, S2S_ATTRIBUTES_MAX, S2S_BLOCK_BYTES_MAX};

/// An answer's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    PropertiesOk = 1,
    Continue = 10,
    Finish = 11,
    Confirm = 12,
    Finished = 13,
    FinishedButFull = 14,
    Cancel = 15,
    BadChecksum = 19,
    MoreData = 20,
    NoMoreData = 21,
    UnknownPort = 200,
    PortNotInState = 201,
    PortsFull = 202,
    UnknownProperty = 230,
    IllegalProperty = 231,
    MissingProperty = 232,
    Unauthorized = 240,
    Abort = 250,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// What stands before a packet's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketHead {
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) size: u64,
}

impl Code {
    /// The code of this number.
    pub(crate) fn of(number: u8) -> Option<Code> {
        ALL.into_iter().find(|code| *code as u8 == number)
    }

    fn has_message(self) -> bool {
        matches!(
            self,
            Code::Confirm
                | Code::Cancel
                | Code::PortNotInState
                | Code::UnknownProperty
                | Code::IllegalProperty
                | Code::MissingProperty
                | Code::Unauthorized
                | Code::Abort
        )
    }
}

/// Writes an answer.
pub(crate) fn write_response(out: &mut impl Write, code: Code, message: &str) -> io::Result<()> {
    out.write_all(&[b'R', b'C', code as u8])?;
    match code.has_message() {
        true => write_text(out, message),
        false => Ok(()),
    }
}

/// Reads an answer.
pub(crate) fn read_response(from: &mut impl Read) -> io::Result<Response> {
    let [r, c, number] = read_array(from)?;
    if (r, c) != (b'R', b'C') {
        return Err(invalid("the peer's answer is none of site-to-site's"));
    }
    let code = Code::of(number)
        .ok_or_else(|| invalid(&format!("the peer answers by the unknown code {number}")))?;
    let message = match code.has_message() {
        true => read_text(from)?,
        false => String::new(),
    };
    Ok(Response { code, message })
}

/// Writes a text of up to 65,535 bytes.
pub(crate) fn write_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    let len =
        u16::try_from(text.len()).map_err(|_| invalid("a text is longer than 65535 bytes"))?;
    out.write_all(&len.to_be_bytes())?;
    out.write_all(text.as_bytes())
}

/// Reads a text.
pub(crate) fn read_text(from: &mut impl Read) -> io::Result<String> {
    let len = u16::from_be_bytes(read_array(from)?);
    text_of(from, usize::from(len))
}

/// Writes a number.
pub(crate) fn write_u32(out: &mut impl Write, number: u32) -> io::Result<()> {
    out.write_all(&number.to_be_bytes())
}

/// Reads a number.
pub(crate) fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    read_array(from).map(u32::from_be_bytes)
}

/// Reads one byte.
pub(crate) fn read_u8(from: &mut impl Read) -> io::Result<u8> {
    let [byte] = read_array(from)?;
    Ok(byte)
}

/// Writes what stands before a packet's content.
pub(crate) fn write_head<'a>(
    out: &mut impl Write,
    attributes: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
    size: u64,
) -> io::Result<()> {
    let count = u32::try_from(attributes.len()).map_err(|_| invalid("too many attributes"))?;
    write_u32(out, count)?;
    for (name, value) in attributes {
        for text in [name, value] {
            let len = u32::try_from(text.len()).map_err(|_| invalid("an attribute is too long"))?;
            write_u32(out, len)?;
            out.write_all(text.as_bytes())?;
        }
    }
    out.write_all(&size.to_be_bytes())
}

/// Reads what stands before a packet's content.
pub(crate) fn read_head(from: &mut impl Read) -> io::Result<PacketHead> {
    let count = read_u32(from)?;
    if count > S2S_ATTRIBUTES_MAX {
        return Err(invalid("the peer's FlowFile has too many attributes"));
    }
    let mut room = S2S_ATTRIBUTES_BYTES_MAX;
    let mut attributes = Vec::new();
    for _ in 0..count {
        let mut text = || {
            let len = read_u32(from)? as usize;
            room = room
                .checked_sub(len)
                .ok_or_else(|| invalid("the peer's FlowFile has too long attributes"))?;
            text_of(from, len)
        };
        attributes.push((text()?, text()?));
    }
    let size = u64::from_be_bytes(read_array(from)?);
    Ok(PacketHead { attributes, size })
}

/// A reader or writer that counts into a checksum what goes through it.
pub(crate) struct Checked<'c, T> {
    pub(crate) inner: T,
    pub(crate) crc: &'c mut Crc,
}

impl<T: Read> Read for Checked<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.crc.update(&buffer[..read]);
        Ok(read)
    }
}

impl<T: Write> Write for Checked<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.crc.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Packs what is written into blocks.
pub(crate) struct Packer<W> {
    inner: W,
    block: Vec<u8>,
    has_written: bool,
}

impl<W: Write> Packer<W> {
    pub(crate) fn new(inner: W) -> Self {
        Packer {
            inner,
            block: Vec::new(),
            has_written: false,
        }
    }

    /// Writes the last block and the end.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.pack()?;
        self.inner.write_all(&[0])
    }

    fn pack(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut packed = Vec::new();
        let level = flate2::Compression::fast();
        ZlibEncoder::new(self.block.as_slice(), level).read_to_end(&mut packed)?;
        if self.has_written {
            self.inner.write_all(&[1])?;
        }
        self.has_written = true;
        self.inner.write_all(SYNC)?;
        write_u32(&mut self.inner, self.block.len() as u32)?;
        write_u32(&mut self.inner, packed.len() as u32)?;
        self.inner.write_all(&packed)?;
        self.block.clear();
        Ok(())
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(BLOCK_BYTES - self.block.len());
        self.block.extend_from_slice(&bytes[..len]);
        if self.block.len() == BLOCK_BYTES {
            self.pack()?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Unpacks blocks.
pub(crate) struct Unpacker<R> {
    inner: R,
    block: Vec<u8>,
    at: usize,
    has_begun: bool,
    is_over: bool,
}

impl<R: Read> Unpacker<R> {
    pub(crate) fn new(inner: R) -> Self {
        Unpacker {
            inner,
            block: Vec::new(),
            at: 0,
            has_begun: false,
            is_over: false,
        }
    }

    /// Reads the end, before which nothing may be left.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        match self.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(invalid("the peer's packet is longer than it says")),
        }
    }

    fn next(&mut self) -> io::Result<()> {
        if self.has_begun {
            match read_u8(&mut self.inner)? {
                1 => {}
                0 => {
                    self.is_over = true;
                    return Ok(());
                }
                _ => return Err(invalid("the peer's compressed data is damaged")),
            }
        }
        self.has_begun = true;
        let sync: [u8; 4] = read_array(&mut self.inner)?;
        let (len, packed) = (read_u32(&mut self.inner)?, read_u32(&mut self.inner)?);
        if sync != *SYNC || len.max(packed) > S2S_BLOCK_BYTES_MAX {
            return Err(invalid("the peer's compressed data is damaged"));
        }
        let mut bytes = Vec::new();
        (&mut self.inner)
            .take(u64::from(packed))
            .read_to_end(&mut bytes)?;
        self.block.clear();
        self.at = 0;
        let plain = ZlibDecoder::new(bytes.as_slice());
        plain
            .take(u64::from(len) + 1)
            .read_to_end(&mut self.block)?;
        match self.block.len() == len as usize {
            true => Ok(()),
            false => Err(invalid("the peer's compressed data is damaged")),
        }
    }
}

impl<R: Read> Read for Unpacker<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() && !self.is_over {
            self.next()?;
        }
        let len = buffer.len().min(self.block.len() - self.at);
        buffer[..len].copy_from_slice(&self.block[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

/// Reads whatever `input` is taken for; for fuzzing.
pub(crate) fn read_anything(input: &[u8]) {
    let Some((kind, mut input)) = input.split_first() else {
        return;
    };
    let outcome = match kind % 4 {
        0 => read_response(&mut input).map(drop),
        1 => read_head(&mut input).map(drop),
        2 => read_text(&mut input).map(drop),
        _ => io::copy(&mut Unpacker::new(input), &mut io::sink()).map(drop),
    };
    drop(outcome);
}

pub(crate) fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}

fn read_array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Memory grows with what comes, not with what is said to come.
fn text_of(from: &mut impl Read, len: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(len as u64).read_to_end(&mut bytes)?;
    if bytes.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    String::from_utf8(bytes).map_err(|_| invalid("the peer's text is no UTF-8"))
}

const ALL: [Code; 18] = [
    Code::PropertiesOk,
    Code::Continue,
    Code::Finish,
    Code::Confirm,
    Code::Finished,
    Code::FinishedButFull,
    Code::Cancel,
    Code::BadChecksum,
    Code::MoreData,
    Code::NoMoreData,
    Code::UnknownPort,
    Code::PortNotInState,
    Code::PortsFull,
    Code::UnknownProperty,
    Code::IllegalProperty,
    Code::MissingProperty,
    Code::Unauthorized,
    Code::Abort,
];

/// What a compressed block begins with.
const SYNC: &[u8; 4] = b"SYNC";

/// Bytes of one block.
const BLOCK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as the protocol writes them, by hand.
    #[test]
    fn golden_bytes_are_written_and_read() {
        let mut out = Vec::new();
        write_response(&mut out, Code::Confirm, "123").unwrap();
        write_response(&mut out, Code::Continue, "").unwrap();
        write_head(&mut out, [("a", "bc")].into_iter(), 5).unwrap();
        assert_eq!(
            out,
            b"RC\x0c\0\x03123RC\x0a\0\0\0\x01\0\0\0\x01a\0\0\0\x02bc\0\0\0\0\0\0\0\x05"
        );
        let mut from = out.as_slice();
        let confirm = read_response(&mut from).unwrap();
        assert_eq!(
            (confirm.code, confirm.message.as_str()),
            (Code::Confirm, "123")
        );
        assert_eq!(read_response(&mut from).unwrap().code, Code::Continue);
        let head = read_head(&mut from).unwrap();
        assert_eq!(head.attributes, [("a".to_owned(), "bc".to_owned())]);
        assert_eq!((head.size, from.len()), (5, 0));
    }

    #[test]
    fn what_is_packed_unpacks_to_the_same_and_ends_where_it_ends() {
        for len in [0, 1, BLOCK_BYTES, BLOCK_BYTES + 1, 300_000] {
            let plain: Vec<u8> = (0..len).map(|at| (at / 3) as u8).collect();
            let mut packed = Vec::new();
            let mut packer = Packer::new(&mut packed);
            packer.write_all(&plain).unwrap();
            packer.finish().unwrap();
            if len == 0 {
                assert_eq!(packed, [0]);
                continue;
            }
            assert_eq!(&packed[..4], SYNC);
            packed.extend_from_slice(b"behind");
            let mut from = packed.as_slice();
            let mut unpacker = Unpacker::new(&mut from);
            let mut read = vec![0; len];
            unpacker.read_exact(&mut read).unwrap();
            assert!(read == plain, "{len} bytes changed");
            unpacker.finish().unwrap();
            assert_eq!(from, b"behind");
        }
    }

    #[test]
    fn nonsense_is_an_error_and_takes_no_memory() {
        let huge = b"\0\0\0\x01\xff\xff\xff\xffname";
        assert!(read_head(&mut huge.as_slice()).is_err());
        assert!(read_head(&mut b"\xff\xff\xff\xff".as_slice()).is_err());
        assert!(read_response(&mut b"RX\x01".as_slice()).is_err());
        assert!(read_response(&mut b"RC\xfe".as_slice()).is_err());
        let mut random = base::Rng::from_entropy();
        for _ in 0..20_000 {
            let len = random.below(60) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            if len > 10 && random.below(2) == 0 {
                bytes[1..5].copy_from_slice(SYNC);
            }
            read_anything(&bytes);
        }
    }
}
