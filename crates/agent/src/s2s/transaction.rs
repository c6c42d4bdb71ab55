//! The two halves of a transaction; the same on either side of a connection.
//!
//! The sender: packets with `Continue` between them, `Finish`, then it reads the receiver's
//! checksum and confirms it; with `Finished` the receiver has it all, and the sender may forget.

use std::io::{self, Read, Write};

use flate2::Crc;

use super::codec::{
    Checked, Code, Packer, PacketHead, Response, Unpacker, invalid, read_head, read_response,
    write_head, write_response,
};

/// Writes a packet of `size` bytes, and counts it into `crc`.
pub(crate) fn put_packet<'a, W: Write>(
    wire: &mut W,
    is_packed: bool,
    crc: &mut Crc,
    attributes: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
    content: &mut impl Read,
    size: u64,
) -> io::Result<()> {
    if is_packed {
        let mut packer = Packer::new(wire);
        let mut out = Checked {
            inner: &mut packer,
            crc,
        };
        write_packet(&mut out, attributes, content, size)?;
        packer.finish()
    } else {
        let mut out = Checked { inner: wire, crc };
        write_packet(&mut out, attributes, content, size)
    }
}

/// Reads a packet and counts it into `crc`; `keep` reads its content, all of it.
pub(crate) fn take_packet<R: Read, T, E: From<io::Error>>(
    wire: &mut R,
    is_packed: bool,
    crc: &mut Crc,
    keep: impl FnOnce(PacketHead, &mut dyn Read) -> Result<T, E>,
) -> Result<T, E> {
    if is_packed {
        let mut unpacker = Unpacker::new(wire);
        let from = Checked {
            inner: &mut unpacker,
            crc,
        };
        let kept = read_packet(from, keep)?;
        unpacker.finish()?;
        Ok(kept)
    } else {
        read_packet(Checked { inner: wire, crc }, keep)
    }
}

/// A transaction in which we send.
pub(crate) struct Sending<'w, W> {
    wire: &'w mut W,
    is_packed: bool,
    crc: Crc,
    count: u64,
}

/// A transaction in which we receive.
pub(crate) struct Receiving<'w, W> {
    wire: &'w mut W,
    is_packed: bool,
    crc: Crc,
    count: u64,
}

/// What the receiver says at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    /// It has it all but takes no more for now.
    FinishedButFull,
}

impl<'w, W: Read + Write> Sending<'w, W> {
    pub(crate) fn new(wire: &'w mut W, is_packed: bool) -> Self {
        Sending {
            wire,
            is_packed,
            crc: Crc::new(),
            count: 0,
        }
    }

    /// Sends a packet of `size` bytes.
    pub(crate) fn push<'a>(
        &mut self,
        attributes: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
        content: &mut impl Read,
        size: u64,
    ) -> io::Result<()> {
        if self.count > 0 {
            write_response(self.wire, Code::Continue, "")?;
        }
        self.count += 1;
        put_packet(
            self.wire,
            self.is_packed,
            &mut self.crc,
            attributes,
            content,
            size,
        )
    }

    /// Ends the transaction; after that the receiver has all of it.
    pub(crate) fn finish(mut self) -> io::Result<End> {
        self.check()?;
        self.confirm()
    }

    /// Says that there is no more, and compares the receiver's checksum with ours.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        write_response(self.wire, Code::Finish, "")?;
        let confirmed = read_response(self.wire)?;
        if confirmed.code != Code::Confirm {
            return Err(unexpected("a confirmation", &confirmed));
        }
        let own = self.crc.sum().to_string();
        if confirmed.message != own {
            write_response(self.wire, Code::BadChecksum, "")?;
            self.wire.flush()?;
            return Err(invalid("the checksums differ"));
        }
        Ok(())
    }

    /// Confirms what was checked; after that the receiver has all of it.
    pub(crate) fn confirm(self) -> io::Result<End> {
        write_response(self.wire, Code::Confirm, "")?;
        let end = read_response(self.wire)?;
        match end.code {
            Code::Finished => Ok(End::Finished),
            Code::FinishedButFull => Ok(End::FinishedButFull),
            _ => Err(unexpected("the end", &end)),
        }
    }
}

impl<'w, W: Read + Write> Receiving<'w, W> {
    pub(crate) fn new(wire: &'w mut W, is_packed: bool) -> Self {
        Receiving {
            wire,
            is_packed,
            crc: Crc::new(),
            count: 0,
        }
    }

    /// Whether another packet comes; the first one does.
    pub(crate) fn goes_on(&mut self) -> io::Result<bool> {
        if self.count == 0 {
            return Ok(true);
        }
        let next = read_response(self.wire)?;
        match next.code {
            Code::Continue => Ok(true),
            Code::Finish => Ok(false),
            _ => Err(unexpected("another packet or the last one's end", &next)),
        }
    }

    /// Reads a packet; `keep` reads its content, all of it.
    pub(crate) fn packet<T, E: From<io::Error>>(
        &mut self,
        keep: impl FnOnce(PacketHead, &mut dyn Read) -> Result<T, E>,
    ) -> Result<T, E> {
        self.count += 1;
        take_packet(self.wire, self.is_packed, &mut self.crc, keep)
    }

    /// Tells the checksum; when this returns, the sender has confirmed it.
    pub(crate) fn confirm(&mut self) -> io::Result<()> {
        write_response(self.wire, Code::Confirm, &self.crc.sum().to_string())?;
        let answer = read_response(self.wire)?;
        match answer.code {
            Code::Confirm => Ok(()),
            Code::BadChecksum => Err(invalid("the checksums differ")),
            _ => Err(unexpected("a confirmation", &answer)),
        }
    }

    /// Tells the sender that all is kept, after which it forgets it.
    pub(crate) fn finish(self, end: End) -> io::Result<()> {
        let code = match end {
            End::Finished => Code::Finished,
            End::FinishedButFull => Code::FinishedButFull,
        };
        write_response(self.wire, code, "")?;
        self.wire.flush()
    }
}

fn write_packet<'a>(
    out: &mut impl Write,
    attributes: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
    content: &mut impl Read,
    size: u64,
) -> io::Result<()> {
    write_head(out, attributes, size)?;
    let written = io::copy(&mut content.take(size), out)?;
    match written == size {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn read_packet<T, E: From<io::Error>>(
    mut from: impl Read,
    keep: impl FnOnce(PacketHead, &mut dyn Read) -> Result<T, E>,
) -> Result<T, E> {
    let head = read_head(&mut from)?;
    let mut content = from.take(head.size);
    let kept = keep(head, &mut content)?;
    match content.limit() {
        0 => Ok(kept),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}

fn unexpected(wanted: &str, answer: &Response) -> io::Error {
    invalid(&format!(
        "the peer answers {:?} {} instead of {wanted}",
        answer.code, answer.message
    ))
}
