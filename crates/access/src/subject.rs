//! A certificate's subject as text: RFC 2253, the way Java and so Kafka writes it.
//!
//! Reads just as much of DER as leads to the subject. The certificate was verified before, yet
//! nothing here trusts its lengths: what does not fit is no subject.

use std::fmt;

/// A certificate's subject: the parts of the name in the certificate's order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Subject(Vec<Vec<Attribute>>);

#[derive(Debug, PartialEq, Eq)]
struct Attribute {
    kind: Vec<u8>,
    /// The value, if it is a text.
    text: Option<String>,
    /// The value as DER.
    der: Vec<u8>,
}

/// The subject of a certificate as RFC 2253 text, if it has one.
pub fn certificate_subject(certificate: &[u8]) -> Option<String> {
    subject_of(certificate).map(|subject| subject.to_string())
}

/// Reads the subject of a certificate (RFC 5280, section 4.1).
pub(crate) fn subject_of(certificate: &[u8]) -> Option<Subject> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    // The version is there only from version 2 on; then serial, algorithm, issuer and validity.
    let (tag, _, rest) = element(fields)?;
    if tag == VERSION {
        fields = rest;
    }
    for _ in 0..4 {
        fields = element(fields)?.2;
    }
    let (tag, mut names, _) = element(fields)?;
    if tag != SEQUENCE {
        return None;
    }
    let mut parts = Vec::new();
    while !names.is_empty() {
        let (_, mut set, rest) = element(names)?;
        names = rest;
        let mut attributes = Vec::new();
        while !set.is_empty() {
            let (_, pair, rest) = element(set)?;
            set = rest;
            let (tag, kind, value) = element(pair)?;
            if tag != OBJECT_ID {
                return None;
            }
            let (tag, content, _) = element(value)?;
            attributes.push(Attribute {
                kind: kind.to_vec(),
                text: text_of(tag, content),
                der: value.to_vec(),
            });
        }
        parts.push(attributes);
    }
    Some(Subject(parts))
}

impl Subject {
    /// The most particular common name.
    pub(crate) fn common_name(&self) -> Option<&str> {
        let all = self.0.iter().rev().flatten();
        let mut common = all.filter(|attribute| attribute.kind == COMMON_NAME);
        common.find_map(|attribute| attribute.text.as_deref())
    }
}

impl fmt::Display for Subject {
    /// The last part first, as RFC 2253 says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().rev().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            for (index, attribute) in part.iter().enumerate() {
                if index > 0 {
                    f.write_str("+")?;
                }
                write!(f, "{attribute}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = KINDS.iter().find(|(_, kind)| *kind == self.kind);
        match (known, &self.text) {
            (Some((name, _)), Some(text)) => {
                write!(f, "{name}=")?;
                escaped(f, text)
            }
            (Some((name, _)), None) => {
                write!(f, "{name}=")?;
                hex(f, &self.der)
            }
            (None, _) => {
                dotted(f, &self.kind)?;
                f.write_str("=")?;
                hex(f, &self.der)
            }
        }
    }
}

/// Tag, content and what follows of the first element.
pub(crate) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits
                .iter()
                .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

fn text_of(tag: u8, content: &[u8]) -> Option<String> {
    match tag {
        // UTF8String, NumericString, PrintableString, IA5String: all of them are UTF-8.
        0x0c | 0x12 | 0x13 | 0x16 => String::from_utf8(content.to_vec()).ok(),
        // TeletexString, read as Latin 1 by everybody.
        0x14 => Some(content.iter().map(|byte| char::from(*byte)).collect()),
        // BMPString.
        0x1e => {
            let units = content
                .chunks_exact(2)
                .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            String::from_utf16(&units.collect::<Vec<_>>()).ok()
        }
        _ => None,
    }
}

/// RFC 2253, section 2.4: what would be read as something else gets a backslash.
fn escaped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let last = text.chars().count().saturating_sub(1);
    for (index, letter) in text.chars().enumerate() {
        let is_sign = matches!(letter, ',' | '+' | '"' | '\\' | '<' | '>' | ';');
        let is_edge = letter == ' ' && (index == 0 || index == last);
        if is_sign || is_edge || (letter == '#' && index == 0) {
            f.write_str("\\")?;
        }
        write!(f, "{letter}")?;
    }
    Ok(())
}

fn hex(f: &mut fmt::Formatter<'_>, der: &[u8]) -> fmt::Result {
    f.write_str("#")?;
    der.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// An object id's numbers: two in the first, then seven bits a byte.
fn dotted(f: &mut fmt::Formatter<'_>, kind: &[u8]) -> fmt::Result {
    let mut number = 0_u64;
    let mut is_first = true;
    for byte in kind {
        number = number.wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if is_first {
            let top = (number / 40).min(2);
            write!(f, "{top}.{}", number - top * 40)?;
        } else {
            write!(f, ".{number}")?;
        }
        (number, is_first) = (0, false);
    }
    Ok(())
}

pub(crate) const SEQUENCE: u8 = 0x30;
const OBJECT_ID: u8 = 0x06;
pub(crate) const VERSION: u8 = 0xa0;

const COMMON_NAME: [u8; 3] = [0x55, 4, 3];

/// The kinds that RFC 2253 has a name for.
const KINDS: [(&str, &[u8]); 9] = [
    ("CN", &COMMON_NAME),
    ("C", &[0x55, 4, 6]),
    ("L", &[0x55, 4, 7]),
    ("ST", &[0x55, 4, 8]),
    ("STREET", &[0x55, 4, 9]),
    ("O", &[0x55, 4, 10]),
    ("OU", &[0x55, 4, 11]),
    ("UID", &[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1]),
    ("DC", &[9, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25]),
];

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        match u8::try_from(content.len()) {
            Ok(short @ 0..0x80) => out.push(short),
            Ok(length) => out.extend([0x81, length]),
            Err(_) => {
                out.push(0x82);
                out.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
            }
        }
        out.extend(content);
        out
    }

    /// Kind, tag and value.
    type Pair<'a> = (&'a [u8], u8, &'a [u8]);

    /// The part of a certificate that matters here, around the parts of a name.
    fn certificate(parts: &[Vec<Pair<'_>>]) -> Vec<u8> {
        let mut names = Vec::new();
        for part in parts {
            let pairs = part.iter().flat_map(|(kind, tag, value)| {
                der(SEQUENCE, &[der(OBJECT_ID, kind), der(*tag, value)].concat())
            });
            names.extend(der(0x31, &pairs.collect::<Vec<_>>()));
        }
        let fields = [
            der(VERSION, &der(2, &[2])),
            der(2, &[1; 20]),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &[0; 200]),
            der(SEQUENCE, &names),
            der(SEQUENCE, &[]),
        ];
        der(
            SEQUENCE,
            &[der(SEQUENCE, &fields.concat()), vec![1, 2, 3]].concat(),
        )
    }

    #[test]
    fn a_subject_reads_as_java_writes_it() {
        let (c, o, cn): (&[u8], &[u8], &[u8]) = (KINDS[1].1, KINDS[5].1, &COMMON_NAME);
        let mail: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];
        let cases = [
            (
                vec![vec![(cn, 0x0c, &b"alice"[..])]],
                "CN=alice",
                Some("alice"),
            ),
            (
                vec![
                    vec![(c, 0x13, b"DE")],
                    vec![(o, 0x0c, b"Ex, Inc.")],
                    vec![(cn, 0x0c, b"alice")],
                ],
                "CN=alice,O=Ex\\, Inc.,C=DE",
                Some("alice"),
            ),
            (
                vec![vec![(cn, 0x0c, b" #a+b "), (mail, 0x16, b"a@b")]],
                "CN=\\ #a\\+b\\ +1.2.840.113549.1.9.1=#1603614062",
                Some(" #a+b "),
            ),
            (vec![vec![(cn, 0x1e, b"\0a\x20\xac")]], "CN=a€", Some("a€")),
            (vec![vec![(o, 0x0c, b"nobody")]], "O=nobody", None),
            (vec![vec![(cn, 4, b"\x01")]], "CN=#040101", None),
            (vec![], "", None),
        ];
        for (parts, text, common_name) in cases {
            let subject = subject_of(&certificate(&parts)).unwrap();
            assert_eq!(subject.to_string(), text);
            assert_eq!(subject.common_name(), common_name);
        }
    }

    #[test]
    fn cut_and_random_bytes_never_panic() {
        let cn: &[u8] = &COMMON_NAME;
        let whole = certificate(&[vec![(cn, 0x0c, b"alice")], vec![(cn, 0x1e, b"abc")]]);
        for end in 0..whole.len() {
            let _ = subject_of(&whole[..end]).map(|subject| subject.to_string());
        }
        for seed in 0..5_000 {
            let mut rng = Rng::from_seed(seed);
            let mut bytes = whole.clone();
            for _ in 0..=rng.below(4) {
                let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                bytes[at] = u8::try_from(rng.below(256)).unwrap();
            }
            if let Some(subject) = subject_of(&bytes) {
                let _ = (subject.to_string(), subject.common_name());
            }
        }
    }
}
