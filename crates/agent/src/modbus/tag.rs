//! Addresses of values, as PLC4X and MiNiFi write them.
//!
//! `holding-register:12:REAL[3]`, `4x12:REAL[3]` and `400012:REAL[3]` are the same: an area, a
//! number that counts from 1, a type and how many of it. Without a type bits are BOOL and registers
//! are INT.

use super::Area;
use crate::json::Json;

/// Where a value is and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// In what it is.
    pub(crate) area: Area,
    /// Its first bit or word, from 0.
    pub(crate) start: u16,
    kind: Kind,
    /// How many values.
    count: u16,
    /// Whether it was asked for as a list.
    is_list: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Signed {
        words: u16,
    },
    Unsigned {
        words: u16,
    },
    /// One byte, in the lower half of a word.
    Byte {
        is_signed: bool,
    },
    Char,
    Real,
    LongReal,
}

impl Tag {
    /// Reads an address; the error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Tag, String> {
        let text = text.trim();
        let (text, count) = match text.strip_suffix(']').and_then(|text| text.split_once('[')) {
            Some((text, told)) => {
                let count = told.parse().ok().filter(|count| *count > 0);
                (
                    text,
                    Some(count.ok_or_else(|| format!("'{told}' is no count"))?),
                )
            }
            None => (text, None),
        };
        let (area, rest) = area_of(text).ok_or_else(|| {
            format!(
                "'{text}' is no Modbus address: write coil, discrete-input, input-register or \
                 holding-register, a colon and a number from 1, as holding-register:12:REAL"
            )
        })?;
        let (number, kind) = match rest.split_once(':') {
            Some((number, kind)) => (number, Some(kind)),
            None => (rest, None),
        };
        let number: u32 = number
            .parse()
            .map_err(|_| format!("'{number}' is no number of a bit or register"))?;
        let start = number
            .checked_sub(1)
            .and_then(|start| u16::try_from(start).ok())
            .ok_or_else(|| format!("{number} is not between 1 and 65536"))?;
        let kind = match kind {
            Some(kind) => Kind::parse(kind, area)?,
            None if area.is_bits() => Kind::Bool,
            None => Kind::Signed { words: 1 },
        };
        let tag = Tag {
            area,
            start,
            kind,
            count: count.unwrap_or(1),
            is_list: count.is_some(),
        };
        let max = if area.is_bits() { BITS_MAX } else { WORDS_MAX };
        let units = u32::from(tag.count) * u32::from(kind.units());
        if units > u32::from(max) {
            return Err(format!(
                "{units} bits or words are more than one request takes ({max})"
            ));
        }
        if u32::from(start) + units > 1 << 16 {
            return Err("it reaches beyond the last address".to_owned());
        }
        Ok(tag)
    }

    /// Bits or words of it.
    pub(crate) fn units(&self) -> u16 {
        self.count * self.kind.units()
    }

    /// The value in an answer's data, which has exactly its bits or words.
    pub(crate) fn value(&self, data: &[u8]) -> Json {
        let units = usize::from(self.kind.units());
        let mut values = (0..usize::from(self.count)).map(|index| match self.area.is_bits() {
            true => {
                let byte = data.get(index / 8).copied().unwrap_or_default();
                Json::Flag(byte >> (index % 8) & 1 == 1)
            }
            false => {
                let words = data.chunks_exact(2 * units).nth(index);
                self.kind.value(words.unwrap_or_default())
            }
        });
        match self.is_list {
            true => Json::List(values.collect()),
            false => values.next().unwrap_or_default(),
        }
    }
}

/// The area, and what stands behind its name.
fn area_of(text: &str) -> Option<(Area, &str)> {
    for (name, area) in [
        ("coil:", Area::Coil),
        ("discrete-input:", Area::DiscreteInput),
        ("input-register:", Area::InputRegister),
        ("holding-register:", Area::HoldingRegister),
    ] {
        if let Some(rest) = text.strip_prefix(name) {
            return Some((area, rest));
        }
    }
    let area = match text.as_bytes().first()? {
        b'0' => Area::Coil,
        b'1' => Area::DiscreteInput,
        b'3' => Area::InputRegister,
        b'4' => Area::HoldingRegister,
        _ => return None,
    };
    let rest = &text[1..];
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match rest.strip_prefix('x') {
        Some(number) => Some((area, number)),
        // 40012 and 400012.
        None => (digits == 4 || digits == 5).then_some((area, rest)),
    }
}

impl Kind {
    fn parse(text: &str, area: Area) -> Result<Kind, String> {
        let kind = match text.to_ascii_uppercase().as_str() {
            "BOOL" => Kind::Bool,
            "SINT" => Kind::Byte { is_signed: true },
            "USINT" | "BYTE" => Kind::Byte { is_signed: false },
            "INT" => Kind::Signed { words: 1 },
            "UINT" | "WORD" => Kind::Unsigned { words: 1 },
            "DINT" => Kind::Signed { words: 2 },
            "UDINT" | "DWORD" => Kind::Unsigned { words: 2 },
            "LINT" => Kind::Signed { words: 4 },
            "ULINT" | "LWORD" => Kind::Unsigned { words: 4 },
            "REAL" => Kind::Real,
            "LREAL" => Kind::LongReal,
            "CHAR" => Kind::Char,
            _ => {
                return Err(format!(
                    "'{text}' is no type: write BOOL, SINT, USINT, INT, UINT, DINT, UDINT, LINT, \
                     ULINT, REAL, LREAL, BYTE, WORD, DWORD, LWORD or CHAR"
                ));
            }
        };
        match area.is_bits() && kind != Kind::Bool {
            true => Err(format!("a bit is BOOL and not {text}")),
            false => Ok(kind),
        }
    }

    /// Words of one value; a bit where these are bits.
    fn units(self) -> u16 {
        match self {
            Kind::Bool | Kind::Byte { .. } | Kind::Char => 1,
            Kind::Signed { words } | Kind::Unsigned { words } => words,
            Kind::Real => 2,
            Kind::LongReal => 4,
        }
    }

    /// The value of its words, the highest first.
    fn value(self, bytes: &[u8]) -> Json {
        let raw = bytes
            .iter()
            .fold(0_u64, |so_far, byte| so_far << 8 | u64::from(*byte));
        match self {
            Kind::Bool => Json::Flag(raw & 1 == 1),
            Kind::Byte { is_signed: true } => Json::Whole(i64::from((raw as u8).cast_signed())),
            Kind::Byte { is_signed: false } => Json::Whole(i64::from(raw as u8)),
            Kind::Char => Json::Text(char::from(raw as u8).to_string()),
            Kind::Signed { words } => {
                let unused = 64 - 16 * u32::from(words);
                Json::Whole((raw << unused).cast_signed() >> unused)
            }
            Kind::Unsigned { .. } => i64::try_from(raw).map_or(Json::Large(raw), Json::Whole),
            Kind::Real => {
                let number = f32::from_bits(raw as u32);
                Json::Fraction(number.to_string().parse().unwrap_or(f64::from(number)))
            }
            Kind::LongReal => Json::Fraction(f64::from_bits(raw)),
        }
    }
}

/// Bits and words of one request, the specification's own.
const BITS_MAX: u16 = 2_000;
const WORDS_MAX: u16 = 125;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: &str, data: &[u8]) -> String {
        Tag::parse(address).unwrap().value(data).to_text()
    }

    #[test]
    fn addresses_name_the_same_in_every_spelling() {
        for (short, long) in [
            ("4x12:REAL[3]", "holding-register:12:REAL[3]"),
            ("400012:REAL[3]", "holding-register:12:REAL[3]"),
            ("40012", "holding-register:12:INT"),
            ("30001:UINT", "input-register:1:UINT"),
            ("10007", "discrete-input:7"),
            ("00001[8]", "coil:1:BOOL[8]"),
        ] {
            assert_eq!(Tag::parse(short), Tag::parse(long), "{short}");
            assert!(Tag::parse(long).is_ok(), "{long}");
        }
        let tag = Tag::parse("4x12:REAL[3]").unwrap();
        assert_eq!((tag.start, tag.units()), (11, 6));
        for wrong in [
            "",
            "4x0",
            "4x65537",
            "4x65536:DINT",
            "4x1:FLOAT",
            "coil:1:INT",
            "holding-register:",
            "4x1:REAL[63]",
            "coil:1[2001]",
            "4x1[0]",
            "4x1[-1]",
            "5x1",
            "401",
            "é:1",
        ] {
            assert!(Tag::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_what_their_types_say() {
        for (address, data, expected) in [
            ("4x1", &[0xff, 0xfe][..], "-2"),
            ("4x1:UINT", &[0xff, 0xfe], "65534"),
            ("4x1:SINT", &[0x00, 0xff], "-1"),
            ("4x1:USINT", &[0x00, 0xff], "255"),
            ("4x1:CHAR", &[0x00, 0x41], "\"A\""),
            ("4x1:BOOL", &[0x00, 0x01], "true"),
            ("4x1:DINT", &[0xff, 0xff, 0xff, 0xfd], "-3"),
            ("4x1:UDINT", &[0xff, 0xff, 0xff, 0xfd], "4294967293"),
            ("4x1:LINT", &[0xff; 8], "-1"),
            ("4x1:ULINT", &[0xff; 8], "18446744073709551615"),
            ("4x1:REAL", &[0x3f, 0x8c, 0xcc, 0xcd], "1.1"),
            (
                "4x1:LREAL",
                &[0x40, 0x09, 0x21, 0xfb, 0x54, 0x44, 0x2d, 0x18],
                "3.141592653589793",
            ),
            ("4x1[2]", &[0, 1, 0, 2], "[1,2]"),
            ("coil:1", &[0b10], "false"),
            (
                "coil:1[10]",
                &[0b10, 0b10],
                "[false,true,false,false,false,false,false,false,false,true]",
            ),
        ] {
            assert_eq!(read(address, data), expected, "{address}");
        }
    }
}
