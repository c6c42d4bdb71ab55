//! Walks a raw request before it is decoded and refuses lengths that cannot be true.
//!
//! The codec allocates arrays by the count on the wire, so a request of a few bytes could ask for
//! gigabytes. Each API has its request's shape as data (`shapes.rs`); one function walks any of them.
//! What it lets pass has every string, byte field and array inside the frame, at most
//! [`REQUEST_ELEMENTS_MAX`] array elements and tagged fields in all, and [`TAGGED_FIELDS_MAX`] tagged fields in one place.

/// Why a request was refused; the connection is closed, as there is no way to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The frame ends before the request does.
    #[error("the request is cut off")]
    Short,
    /// A length is negative, or larger than what is left of the frame.
    #[error("a length in the request is larger than the request")]
    Length,
    /// More array elements than a request may have.
    #[error("the request has more than {REQUEST_ELEMENTS_MAX} elements")]
    Elements,
    /// A tagged field that only other servers send.
    #[error("the request has a tagged field of followers")]
    Tag,
    /// A variable-length number with too many bytes.
    #[error("a number in the request is malformed")]
    Number,
}

/// A field of a request and the versions that have it.
pub(crate) struct Field {
    pub(super) since: i16,
    pub(super) until: i16,
    pub(super) kind: Kind,
}

/// How a field lies on the wire.
pub(crate) enum Kind {
    /// This many bytes, whatever they say.
    Fixed(usize),
    /// A string with its length, which may be null.
    Text,
    /// Bytes with their length, which may be null.
    Blob,
    /// An array of structures, which may be null.
    Structs(&'static [Field]),
    /// An array of one simple kind, which may be null.
    Array(&'static Kind),
    /// A structure behind a byte that says whether there is one.
    Nullable(&'static [Field]),
    /// Nothing: from here on, tagged fields below this number are refused. The codec reads those by
    /// their kind, whatever length they claim, and would go on out of step; only followers send any.
    NoTagsBelow(u32),
}

/// The header that stands before every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header<'a> {
    pub(crate) key: i16,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
    /// Empty when null or not UTF-8.
    pub(crate) client_id: &'a str,
}

/// Reads the part of the header that all versions share; answers it and its length.
pub(crate) fn read_header(frame: &[u8]) -> Result<(Header<'_>, usize), Refused> {
    let mut walk = Walk {
        rest: frame,
        elements: 0,
        ids: None,
        tags_from: 0,
    };
    let key = walk.i16()?;
    let version = walk.i16()?;
    let correlation = walk.i32()?;
    let client_id = match walk.i16()? {
        -1 => &[][..],
        n => walk.take(usize::try_from(n).map_err(|_| Refused::Length)?)?,
    };
    let client_id = std::str::from_utf8(client_id).unwrap_or("");
    Ok((
        Header {
            key,
            version,
            correlation,
            client_id,
        },
        frame.len() - walk.rest.len(),
    ))
}

/// Walks the tagged fields that end a flexible header; answers their length.
pub(crate) fn header_tags(frame: &[u8]) -> Result<usize, Refused> {
    let mut walk = Walk {
        rest: frame,
        elements: 0,
        ids: None,
        tags_from: 0,
    };
    walk.tags()?;
    Ok(frame.len() - walk.rest.len())
}

/// Walks a request body; answers how many bytes the shape covers.
pub(crate) fn check(
    shape: &[Field],
    version: i16,
    is_flexible: bool,
    body: &[u8],
) -> Result<usize, Refused> {
    let mut walk = Walk {
        rest: body,
        elements: 0,
        ids: None,
        tags_from: 0,
    };
    walk.fields(shape, version, is_flexible)?;
    Ok(body.len() - walk.rest.len())
}

/// Writes a flexible body's topic ids as texts, so that a layout that has names in their place
/// can be read: the codec does not know every version that has ids.
pub(crate) fn ids_as_names(shape: &[Field], version: i16, body: &[u8]) -> Result<Vec<u8>, Refused> {
    let mut walk = Walk {
        rest: body,
        elements: 0,
        ids: Some(Vec::new()),
        tags_from: 0,
    };
    walk.fields(shape, version, true)?;
    let mut out = Vec::with_capacity(body.len());
    let mut done = 0;
    for left in walk.ids.unwrap_or_default() {
        let at = body.len() - left;
        out.extend_from_slice(&body[done..at]);
        done = at + UUID_BYTES;
        let id: [u8; UUID_BYTES] = body[at..done].try_into().map_err(|_| Refused::Short)?;
        let name = uuid::Uuid::from_bytes(id).simple().to_string();
        // A compact length is one more than the length, which is always 32 here.
        out.push(33);
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(&body[done..]);
    Ok(out)
}

struct Walk<'a> {
    rest: &'a [u8],
    elements: usize,
    /// How much was left at each topic id, when somebody wants to know.
    ids: Option<Vec<usize>>,
    /// Tagged fields below this number are refused.
    tags_from: u32,
}

impl<'a> Walk<'a> {
    fn fields(&mut self, shape: &[Field], version: i16, flexible: bool) -> Result<(), Refused> {
        for field in shape {
            if (field.since..=field.until).contains(&version) {
                self.kind(&field.kind, version, flexible)?;
            }
        }
        if flexible { self.tags() } else { Ok(()) }
    }

    fn kind(&mut self, kind: &Kind, version: i16, flexible: bool) -> Result<(), Refused> {
        match kind {
            Kind::Fixed(bytes) => {
                if let Some(ids) = self.ids.as_mut().filter(|_| *bytes == UUID_BYTES) {
                    ids.push(self.rest.len());
                }
                self.take(*bytes).map(drop)
            }
            Kind::Text => {
                let length = if flexible {
                    self.compact_length()?
                } else {
                    self.i16()?.into()
                };
                self.skip(length)
            }
            Kind::Blob => {
                let length = if flexible {
                    self.compact_length()?
                } else {
                    self.i32()?.into()
                };
                self.skip(length)
            }
            Kind::Structs(shape) => {
                for _ in 0..self.count(flexible)? {
                    self.fields(shape, version, flexible)?;
                }
                Ok(())
            }
            Kind::NoTagsBelow(tag) => {
                self.tags_from = *tag;
                Ok(())
            }
            Kind::Nullable(shape) => match self.take(1)? {
                [0xff] => Ok(()),
                [1] => self.fields(shape, version, flexible),
                // Kafka takes it for a structure, the codec for none.
                _ => Err(Refused::Length),
            },
            Kind::Array(kind) => {
                for _ in 0..self.count(flexible)? {
                    self.kind(kind, version, flexible)?;
                }
                Ok(())
            }
        }
    }

    /// An array's count. Every element takes at least one byte of what is left.
    fn count(&mut self, flexible: bool) -> Result<usize, Refused> {
        let count = if flexible {
            self.compact_length()?
        } else {
            self.i32()?.into()
        };
        if count == -1 {
            return Ok(0);
        }
        let count = usize::try_from(count).map_err(|_| Refused::Length)?;
        if count > self.rest.len() {
            return Err(Refused::Length);
        }
        self.elements += count;
        if self.elements > REQUEST_ELEMENTS_MAX {
            return Err(Refused::Elements);
        }
        Ok(count)
    }

    fn tags(&mut self) -> Result<(), Refused> {
        let count = self.varint()?;
        if count > TAGGED_FIELDS_MAX {
            return Err(Refused::Elements);
        }
        // The codec keeps each in a map.
        self.elements += count as usize;
        if self.elements > REQUEST_ELEMENTS_MAX {
            return Err(Refused::Elements);
        }
        for _ in 0..count {
            // Kafka counts tags in 31 bits, and so does the codec.
            let tag = self.varint()?;
            if i32::try_from(tag).is_err() {
                return Err(Refused::Number);
            }
            if tag < self.tags_from {
                return Err(Refused::Tag);
            }
            let length = self.varint()?;
            self.skip(length.into())?;
        }
        Ok(())
    }

    fn skip(&mut self, length: i64) -> Result<(), Refused> {
        match length {
            -1 => Ok(()),
            n => self
                .take(usize::try_from(n).map_err(|_| Refused::Length)?)
                .map(drop),
        }
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Refused> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(Refused::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn i16(&mut self) -> Result<i16, Refused> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Refused::Short)?;
        self.rest = rest;
        Ok(i16::from_be_bytes(*bytes))
    }

    fn i32(&mut self) -> Result<i32, Refused> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Refused::Short)?;
        self.rest = rest;
        Ok(i32::from_be_bytes(*bytes))
    }

    /// A compact length is one more than the length; null is zero.
    fn compact_length(&mut self) -> Result<i64, Refused> {
        Ok(i64::from(self.varint()?) - 1)
    }

    fn varint(&mut self) -> Result<u32, Refused> {
        let mut value = 0_u32;
        for shift in (0..32).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Refused::Short)?;
            self.rest = rest;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && *byte > 0x0f {
                return Err(Refused::Number);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Refused::Number)
    }
}

pub(super) const UUID_BYTES: usize = 16;

/// Array elements in one request, all arrays together: decoded they take up to about 150 bytes
/// each, so 30 MB; a fetch of 100,000 partitions fits.
pub(crate) const REQUEST_ELEMENTS_MAX: usize = 200_000;

/// Tagged fields in one structure: Kafka defines at most a handful, the codec keeps each.
pub(crate) const TAGGED_FIELDS_MAX: u32 = 32;
