//! CBOR (RFC 8949) as JSON text, in one pass without reserving from a length of the payload.
//!
//! Keys are texts or integers (written as texts); byte strings become base64url without padding;
//! tags are passed over; undefined, NaN and infinities are null.

use crate::limits::SCAN_DEPTH_MAX;
use crate::value::write_text;

/// The JSON text of exactly one CBOR item.
///
/// # Errors
/// What is wrong, and at which byte.
pub fn to_json(payload: &[u8]) -> Result<Vec<u8>, String> {
    let mut reader = Reader {
        bytes: payload,
        at: 0,
        out: Vec::with_capacity(payload.len().saturating_mul(2)),
    };
    reader.item(0)?;
    if reader.at != payload.len() {
        return Err(reader.wrong("something follows the item"));
    }
    Ok(reader.out)
}

/// Base64 with the URL alphabet and no padding (RFC 4648 section 5).
pub fn base64url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = 0_u32;
        for index in 0..3 {
            word = word << 8 | u32::from(group.get(index).copied().unwrap_or(0));
        }
        for index in 0..=group.len() {
            let six = (word >> (18 - 6 * index)) & 63;
            text.push(char::from(ALPHABET[six as usize]));
        }
    }
    text
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

/// The argument of an item's head.
enum Argument {
    Value(u64),
    Indefinite,
}

impl<'a> Reader<'a> {
    fn item(&mut self, depth: usize) -> Result<(), String> {
        if depth > SCAN_DEPTH_MAX {
            return Err(self.wrong("it is nested too deep"));
        }
        let first = self.byte()?;
        let (major, low) = (first >> 5, first & 31);
        if major == SIMPLE {
            return self.simple(low);
        }
        let argument = self.argument(low)?;
        match (major, argument) {
            (0, Argument::Value(value)) => self.print(value),
            (1, Argument::Value(value)) => self.print(-1 - i128::from(value)),
            (2, argument) => {
                let bytes = self.string(2, argument)?;
                write_text(&mut self.out, &base64url(&bytes));
            }
            (3, argument) => {
                let text = self.text(argument)?;
                write_text(&mut self.out, &text);
            }
            (4, argument) => self.members(argument, depth, false)?,
            (5, argument) => self.members(argument, depth, true)?,
            (6, Argument::Value(_)) => return self.item(depth + 1),
            _ => return Err(self.wrong("a head that CBOR does not know")),
        }
        Ok(())
    }

    /// The items of an array or a map, up to their count or a break.
    fn members(&mut self, argument: Argument, depth: usize, is_map: bool) -> Result<(), String> {
        let (open, close) = if is_map { (b'{', b'}') } else { (b'[', b']') };
        self.out.push(open);
        let mut left = match argument {
            Argument::Value(count) => Some(count),
            Argument::Indefinite => None,
        };
        let mut is_first = true;
        loop {
            match &mut left {
                Some(0) => break,
                Some(count) => *count -= 1,
                None if self.take_break() => break,
                None => {}
            }
            if !is_first {
                self.out.push(b',');
            }
            is_first = false;
            if is_map {
                self.key()?;
                self.out.push(b':');
            }
            self.item(depth + 1)?;
        }
        self.out.push(close);
        Ok(())
    }

    fn key(&mut self) -> Result<(), String> {
        let first = self.byte()?;
        let argument = self.argument(first & 31)?;
        let text = match (first >> 5, argument) {
            (0, Argument::Value(value)) => value.to_string(),
            (1, Argument::Value(value)) => (-1 - i128::from(value)).to_string(),
            (3, argument) => self.text(argument)?,
            _ => return Err(self.wrong("a map's key is neither a text nor an integer")),
        };
        write_text(&mut self.out, &text);
        Ok(())
    }

    fn simple(&mut self, low: u8) -> Result<(), String> {
        let number = match low {
            20 => {
                self.out.extend_from_slice(b"false");
                return Ok(());
            }
            21 => {
                self.out.extend_from_slice(b"true");
                return Ok(());
            }
            22 | 23 => f64::NAN,
            25 => half(u16::from_be_bytes(self.array()?)),
            26 => f64::from(f32::from_be_bytes(self.array()?)),
            27 => f64::from_be_bytes(self.array()?),
            _ => return Err(self.wrong("a simple value that JSON cannot hold")),
        };
        crate::value::Value::float(number).write_json(&mut self.out);
        Ok(())
    }

    fn text(&mut self, argument: Argument) -> Result<String, String> {
        let bytes = self.string(3, argument)?;
        String::from_utf8(bytes).map_err(|_| self.wrong("a text is not UTF-8"))
    }

    /// A byte or text string, in one piece or in several of the same kind.
    fn string(&mut self, major: u8, argument: Argument) -> Result<Vec<u8>, String> {
        if let Argument::Value(length) = argument {
            return Ok(self.take(length)?.to_vec());
        }
        let mut whole = Vec::new();
        while !self.take_break() {
            let first = self.byte()?;
            match (first >> 5 == major, self.argument(first & 31)?) {
                (true, Argument::Value(length)) => whole.extend_from_slice(self.take(length)?),
                _ => return Err(self.wrong("a piece of a string is of another kind")),
            }
        }
        Ok(whole)
    }

    fn argument(&mut self, low: u8) -> Result<Argument, String> {
        Ok(Argument::Value(match low {
            0..=23 => u64::from(low),
            24 => u64::from(self.byte()?),
            25 => u64::from(u16::from_be_bytes(self.array()?)),
            26 => u64::from(u32::from_be_bytes(self.array()?)),
            27 => u64::from_be_bytes(self.array()?),
            31 => return Ok(Argument::Indefinite),
            _ => return Err(self.wrong("a length of a reserved form")),
        }))
    }

    fn take_break(&mut self) -> bool {
        let is_break = self.bytes.get(self.at) == Some(&BREAK);
        self.at += usize::from(is_break);
        is_break
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.at..];
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some((taken, _)) = rest.split_at_checked(length) else {
            return Err(self.wrong("it ends too early"));
        };
        self.at += length;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N as u64)?;
        Ok(taken.try_into().expect("so many bytes were taken"))
    }

    fn print(&mut self, number: impl std::fmt::Display) {
        self.out.extend_from_slice(number.to_string().as_bytes());
    }

    fn wrong(&self, what: &str) -> String {
        format!("{what} (byte {})", self.at)
    }
}

/// A number of 16 bits, IEEE 754.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    }
}

const SIMPLE: u8 = 7;
const BREAK: u8 = 0xff;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
