//! Modbus over TCP, as far as reading goes: bytes in, values out.
//!
//! After "MODBUS Application Protocol Specification V1.1b3" and "MODBUS Messaging on TCP/IP
//! Implementation Guide V1.0b": a frame is a transaction number, zero, a length, the unit and a
//! function with its data, at most 260 bytes. Leaves out writing and file records.

mod tag;

use std::fmt;

pub(crate) use tag::Tag;

/// What can be read; each is numbered for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    /// Bits that can be written, function 1.
    Coil,
    /// Bits that can only be read, function 2.
    DiscreteInput,
    /// Words that can be written, function 3.
    HoldingRegister,
    /// Words that can only be read, function 4.
    InputRegister,
}

/// What a device did not answer as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The device refuses, by this code.
    Exception(u8),
    /// What came is no answer to what was asked.
    Nonsense(&'static str),
}

impl Area {
    fn function(self) -> u8 {
        match self {
            Area::Coil => 1,
            Area::DiscreteInput => 2,
            Area::HoldingRegister => 3,
            Area::InputRegister => 4,
        }
    }

    /// Whether it is made of bits and not of words.
    pub(crate) fn is_bits(self) -> bool {
        matches!(self, Area::Coil | Area::DiscreteInput)
    }
}

/// The frame that asks for `count` bits or words from `start`.
pub(crate) fn request(transaction: u16, unit: u8, area: Area, start: u16, count: u16) -> [u8; 12] {
    let mut frame = [0; 12];
    frame[..2].copy_from_slice(&transaction.to_be_bytes());
    frame[4..6].copy_from_slice(&6_u16.to_be_bytes());
    frame[6] = unit;
    frame[7] = area.function();
    frame[8..10].copy_from_slice(&start.to_be_bytes());
    frame[10..].copy_from_slice(&count.to_be_bytes());
    frame
}

/// From the head of an answer: its transaction, and how many bytes follow.
pub(crate) fn head(bytes: [u8; HEAD_BYTES]) -> Result<(u16, usize), Fault> {
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let len = usize::from(word(4));
    if word(2) != 0 {
        return Err(Fault::Nonsense("the answer is not Modbus"));
    }
    // The unit, which the head has already, and a function are there at least.
    if !(2..=FRAME_BYTES_MAX - 6).contains(&len) {
        return Err(Fault::Nonsense("the answer has a length that cannot be"));
    }
    Ok((word(0), len - 1))
}

/// The data of an answer to a request for `count` bits or words: two bytes for each word, a bit for
/// each bit.
pub(crate) fn answer(area: Area, count: u16, bytes: &[u8]) -> Result<&[u8], Fault> {
    let expected = match area.is_bits() {
        true => usize::from(count).div_ceil(8),
        false => 2 * usize::from(count),
    };
    match bytes {
        [function, code] if *function == area.function() | 0x80 => Err(Fault::Exception(*code)),
        [function, _, ..] if *function != area.function() => {
            Err(Fault::Nonsense("the answer is to another function"))
        }
        [_, len, data @ ..] if usize::from(*len) == data.len() && data.len() == expected => {
            Ok(data)
        }
        _ => Err(Fault::Nonsense(
            "the answer has another length than was asked for",
        )),
    }
}

/// Reads bytes as a device's answer, for the fuzz targets.
pub(crate) fn read_anything(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return;
    };
    if let Ok((_, len)) = head(*first) {
        let body = &rest[..len.min(rest.len())];
        for area in [Area::Coil, Area::HoldingRegister] {
            for count in [1, 3, 125] {
                // A fault is an answer too.
                let _ = answer(area, count, body);
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match self {
            Fault::Exception(code) => code,
            Fault::Nonsense(what) => return f.write_str(what),
        };
        let reason = match code {
            1 => "it does not know the function",
            2 => "it has no such address",
            3 => "it does not take the value",
            4 => "it failed",
            5 => "it has begun and takes its time",
            6 => "it is busy",
            8 => "its memory is damaged",
            10 => "the gateway has no path to it",
            11 => "it did not answer the gateway",
            _ => "of its own",
        };
        write!(f, "the device refuses with code {code}: {reason}")
    }
}

/// Bytes in front of a frame's function.
pub(crate) const HEAD_BYTES: usize = 7;

/// Bytes of one frame.
pub(crate) const FRAME_BYTES_MAX: usize = 260;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_the_specification_s() {
        // Read holding registers 108 to 110: V1.1b3, section 6.3.
        let asked = request(1, 17, Area::HoldingRegister, 0x6b, 3);
        assert_eq!(asked, [0, 1, 0, 0, 0, 6, 17, 3, 0, 0x6b, 0, 3]);
        let data = [3, 6, 0x02, 0x2b, 0, 0, 0, 0x64];
        assert_eq!(head([0, 1, 0, 0, 0, 9, 17]), Ok((1, 8)));
        let read = answer(Area::HoldingRegister, 3, &data).unwrap();
        assert_eq!(read, [0x02, 0x2b, 0, 0, 0, 0x64]);
        // Read discrete outputs 20 to 38: section 6.1.
        let data = [1, 3, 0xcd, 0x6b, 0x05];
        assert_eq!(answer(Area::Coil, 19, &data), Ok(&data[2..]));
    }

    #[test]
    fn what_is_no_answer_is_told() {
        let data = [3, 6, 0, 0, 0, 0, 0];
        for (bytes, part) in [
            (&data[..], "another length"),
            (&[3, 4, 0, 0, 0, 0], "another length"),
            (&[4, 6, 0, 0, 0, 0, 0, 0], "another function"),
            (&[0x83, 2], "no such address"),
            (&[3], "another length"),
            (&[], "another length"),
        ] {
            let fault = answer(Area::HoldingRegister, 3, bytes).unwrap_err();
            assert!(fault.to_string().contains(part), "{bytes:?}: {fault}");
        }
        for bytes in [
            [0, 1, 0, 1, 0, 9, 17],
            [0, 1, 0, 0, 0, 1, 17],
            [0, 1, 0, 0, 1, 0, 17],
        ] {
            assert!(head(bytes).is_err(), "{bytes:?}");
        }
    }
}
