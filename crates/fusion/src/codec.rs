//! Little-endian fields for checkpoints, with every length checked on reading.

/// Appends fields to a buffer.
#[derive(Debug, Default)]
pub struct Encoder(pub Vec<u8>, Width);

/// How wide integers stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Width {
    /// As many bytes as their type has.
    #[default]
    Whole,
    /// As few groups of seven bits as they need, the lowest first, each but the last with the
    /// highest bit set; signed ones with the sign lowest, and of doubles the bytes in reverse.
    Short,
}

impl Encoder {
    /// Writes integers as short as they are, from `bytes` on.
    pub fn short(bytes: Vec<u8>) -> Self {
        Encoder(bytes, Width::Short)
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        match self.1 {
            Width::Whole => self.0.extend_from_slice(&value.to_le_bytes()),
            Width::Short => self.groups(value.into()),
        }
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        match self.1 {
            Width::Whole => self.0.extend_from_slice(&value.to_le_bytes()),
            Width::Short => self.groups(value),
        }
    }

    /// Eight bytes.
    pub fn i64(&mut self, value: i64) {
        match self.1 {
            Width::Whole => self.0.extend_from_slice(&value.to_le_bytes()),
            Width::Short => self.groups(((value << 1) ^ (value >> 63)).cast_unsigned()),
        }
    }

    /// Sixteen bytes.
    pub fn i128(&mut self, value: i128) {
        match (self.1, i64::try_from(value)) {
            (Width::Whole, _) => self.0.extend_from_slice(&value.to_le_bytes()),
            (Width::Short, Ok(value)) => {
                self.0.push(0);
                self.i64(value);
            }
            (Width::Short, Err(_)) => {
                self.0.push(1);
                self.0.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// Eight bytes: the bits.
    pub fn f64(&mut self, value: f64) {
        match self.1 {
            Width::Whole => self.u64(value.to_bits()),
            // Few digits leave the last bytes empty.
            Width::Short => self.u64(value.to_bits().swap_bytes()),
        }
    }

    /// A count, four bytes.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("limits.rs keeps every count below 2^32"));
    }

    /// A length, then the bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn groups(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// Reads fields back; `None` past the end.
#[derive(Debug)]
pub struct Decoder<'a>(pub &'a [u8], Width);

impl<'a> Decoder<'a> {
    /// Reads what [`Encoder::default`] wrote.
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder(bytes, Width::Whole)
    }

    /// Reads what [`Encoder::short`] wrote.
    pub fn short(bytes: &'a [u8]) -> Self {
        Decoder(bytes, Width::Short)
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        match self.1 {
            Width::Whole => self.array().map(u32::from_le_bytes),
            Width::Short => u32::try_from(self.groups()?).ok(),
        }
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        match self.1 {
            Width::Whole => self.array().map(u64::from_le_bytes),
            Width::Short => self.groups(),
        }
    }

    /// Eight bytes.
    pub fn i64(&mut self) -> Option<i64> {
        match self.1 {
            Width::Whole => self.array().map(i64::from_le_bytes),
            Width::Short => {
                let value = self.groups()?;
                Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
            }
        }
    }

    /// Sixteen bytes.
    pub fn i128(&mut self) -> Option<i128> {
        if self.1 == Width::Short && self.u8()? == 0 {
            return self.i64().map(i128::from);
        }
        self.array().map(i128::from_le_bytes)
    }

    /// Eight bytes: the bits.
    pub fn f64(&mut self) -> Option<f64> {
        let bits = self.u64()?;
        Some(f64::from_bits(match self.1 {
            Width::Whole => bits,
            Width::Short => bits.swap_bytes(),
        }))
    }

    /// A count of items that take at least a byte each, so that it bounds what may be reserved.
    pub fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.u32()?).ok()?;
        (count <= self.0.len()).then_some(count)
    }

    /// A length, then the bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// A length, then UTF-8.
    pub fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.bytes()?).ok().map(str::to_owned)
    }

    fn groups(&mut self) -> Option<u64> {
        let mut value = 0;
        for at in 0..10 {
            let byte = u64::from(self.u8()?);
            value |= (byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_small_numbers_are_short() {
        let integers = [0, 1, -1, 63, -64, 64, 1_700_000_000_000, i64::MAX, i64::MIN];
        let doubles = [0.0, 21.5, -0.1, f64::MAX, f64::MIN_POSITIVE];
        let write = |out: &mut Encoder| {
            for number in integers {
                out.i64(number);
                out.u64(number.cast_unsigned());
                out.u32(number as u32);
                out.i128(i128::from(number));
                out.i128(i128::from(number) * i128::from(number));
            }
            doubles.iter().for_each(|number| out.f64(*number));
            out.bytes(b"text");
        };
        let (mut whole, mut short) = (Encoder::default(), Encoder::short(Vec::new()));
        write(&mut whole);
        write(&mut short);
        assert!(short.0.len() * 5 < whole.0.len() * 4, "{}", short.0.len());
        for mut from in [Decoder::new(&whole.0), Decoder::short(&short.0)] {
            for number in integers {
                assert_eq!(from.i64(), Some(number));
                assert_eq!(from.u64(), Some(number.cast_unsigned()));
                assert_eq!(from.u32(), Some(number as u32));
                assert_eq!(from.i128(), Some(i128::from(number)));
                let square = i128::from(number) * i128::from(number);
                assert_eq!(from.i128(), Some(square));
            }
            for number in doubles {
                assert_eq!(from.f64().map(f64::to_bits), Some(number.to_bits()));
            }
            assert_eq!(from.text().as_deref(), Some("text"));
            assert!(from.0.is_empty());
        }
        let mut one = Encoder::short(Vec::new());
        one.f64(0.0);
        one.u64(100);
        assert_eq!(one.0.len(), 2);
    }

    #[test]
    fn a_number_that_does_not_end_is_none() {
        assert_eq!(Decoder::short(&[0xff; 12]).u64(), None);
        assert_eq!(Decoder::short(&[0x80]).u64(), None);
    }
}
