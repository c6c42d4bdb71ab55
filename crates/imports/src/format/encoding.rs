//! The encodings of text files: what is stored is UTF-8.
//!
//! Only those in which ASCII is ASCII, so that records are found by the same bytes. A file may say
//! what it once was: what it declares itself counts for records that are no UTF-8.

use std::borrow::Cow;

use encoding_rs::{UTF_8, WINDOWS_1252};

/// How a file's text is encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Encoding {
    of: &'static encoding_rs::Encoding,
    /// Who imports the file said so, not the file itself.
    is_told: bool,
}

impl Encoding {
    pub const DEFAULT: Encoding = Encoding {
        of: UTF_8,
        is_told: false,
    };

    /// The one of this name (`windows-1252`, `iso-8859-2`, `gbk`), as the one who imports a file says.
    pub fn told(name: &str) -> Option<Encoding> {
        let is_told = true;
        named(name.as_bytes()).map(|of| Encoding { of, is_told })
    }

    /// What the declaration says that an XML file begins with, and the bytes up to its end. A name that
    /// nobody knows says nothing.
    ///
    /// # Errors
    /// When ASCII is not ASCII in it.
    pub fn declared(head: &[u8]) -> Result<(Encoding, usize), &'static str> {
        let none = (Encoding::DEFAULT, 0);
        let end = memchr::memmem::find(head, b"?>").map(|at| at + b"?>".len());
        let Some(end) = end.filter(|_| head.trim_ascii_start().starts_with(b"<?xml")) else {
            return Ok(none);
        };
        let Some(label) = value(&head[..end], b"encoding") else {
            return Ok(none);
        };
        // A file that was converted, by a program that knows nothing of XML: it is not UTF-16.
        let is_utf_16 = label.to_ascii_lowercase().starts_with(b"utf-16");
        match named(label) {
            Some(of) if of == UTF_8 => Ok(none),
            Some(of) => Ok((Encoding { of, is_told: false }, end)),
            None if is_utf_16 || encoding_rs::Encoding::for_label(label).is_none() => Ok(none),
            None => Err(
                "the encoding that the file declares is not read; convert it, as by iconv -t UTF-8, and \
                 correct its first line",
            ),
        }
    }

    /// The text of what a file has.
    ///
    /// # Errors
    /// A sentence that says that `what` is not in this encoding.
    pub fn text<'a>(self, bytes: &'a [u8], what: &str) -> Result<Cow<'a, str>, Cow<'static, str>> {
        if !self.is_told || self.of == UTF_8 {
            match str::from_utf8(bytes) {
                Ok(text) => return Ok(Cow::Borrowed(text)),
                Err(_) if self.of == UTF_8 => return Err(format!("{what} is not UTF-8").into()),
                Err(_) => {}
            }
        }
        let text = self
            .of
            .decode_without_bom_handling_and_without_replacement(bytes);
        text.ok_or_else(|| format!("{what} is not {}", self.of.name()).into())
    }
}

/// The encoding of a label, where ASCII is ASCII in it.
fn named(label: &[u8]) -> Option<&'static encoding_rs::Encoding> {
    // Bytes that Latin-1 has no characters for are those of its larger twin.
    let is_latin = label.trim_ascii().eq_ignore_ascii_case(b"latin-1");
    let found = match is_latin {
        true => Some(WINDOWS_1252),
        false => encoding_rs::Encoding::for_label(label),
    };
    found.filter(|of| of.is_ascii_compatible())
}

/// The value of an attribute of a declaration.
fn value<'a>(declaration: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = memchr::memmem::find(declaration, name)? + name.len();
    let rest = declaration[at..].trim_ascii_start().strip_prefix(b"=")?;
    let (quote, rest) = rest.trim_ascii_start().split_first()?;
    let end = memchr::memchr(*quote, rest)?;
    matches!(quote, b'"' | b'\'').then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_tells_the_encoding() {
        let name = |head: &str| Encoding::declared(head.as_bytes()).map(|(of, _)| of.of.name());
        for (head, expected) in [
            (
                "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><c>",
                "windows-1252",
            ),
            (
                "\n<?xml version='1.0' encoding = 'iso-8859-2' ?>",
                "ISO-8859-2",
            ),
            ("<?xml version=\"1.0\" encoding=\"UTF-8\"?>", "UTF-8"),
            ("<?xml version=\"1.0\" encoding=\"utf-16\"?>", "UTF-8"),
            ("<?xml version=\"1.0\"?><c encoding=\"gbk\">", "UTF-8"),
            ("<c encoding=\"gbk\"?>", "UTF-8"),
            ("<?xml encoding=\"gbk", "UTF-8"),
            ("<?xml version=\"1.0\" encoding=\"UTF_8\"?>", "UTF-8"),
            ("<?xml version=\"1.0\" encoding=\"\"?>", "UTF-8"),
            ("", "UTF-8"),
        ] {
            assert_eq!(name(head), Ok(expected), "{head}");
        }
        for label in ["iso-2022-jp", "hz-gb-2312"] {
            let head = format!("<?xml version=\"1.0\" encoding=\"{label}\"?>");
            assert!(name(&head).is_err(), "{label}");
        }
    }

    #[test]
    fn what_a_file_declares_counts_for_what_is_no_utf_8() {
        let (declared, end) = Encoding::declared(b"<?xml encoding=\"latin1\"?><c>").unwrap();
        assert_eq!(end, b"<?xml encoding=\"latin1\"?>".len());
        let told = Encoding::told("windows-1252").unwrap();
        let (latin, utf_8) = (b"Gr\xf6\xdfe".as_slice(), "Größe".as_bytes());
        assert_eq!(declared.text(latin, "it").unwrap(), "Größe");
        assert_eq!(declared.text(utf_8, "it").unwrap(), "Größe");
        assert_eq!(told.text(latin, "it").unwrap(), "Größe");
        assert_eq!(told.text(utf_8, "it").unwrap(), "GrÃ¶ÃŸe");
        let error = Encoding::DEFAULT.text(latin, "the row").unwrap_err();
        assert_eq!(error, "the row is not UTF-8");
        let error = Encoding::told("gbk").unwrap().text(b"\xff\xff", "the row");
        assert_eq!(error.unwrap_err(), "the row is not GBK");
        assert!(Encoding::told("utf-16le").is_none() && Encoding::told("x").is_none());
    }
}
