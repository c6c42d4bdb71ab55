//! Walks a raw request before it is decoded and refuses lengths that cannot be true.
//!
//! The codec allocates arrays by the count on the wire, so a request of a few bytes could ask for
//! gigabytes. Each API has its request's shape here as data; one function walks any of them. What
//! it lets pass has every string, byte field and array inside the frame, at most
//! [`REQUEST_ELEMENTS_MAX`] array elements and tagged fields in all, and [`TAGGED_FIELDS_MAX`] tagged fields in one place.
//!
//! The shapes follow Kafka's message definitions; a property test compares them with the codec.

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

const fn always(kind: Kind) -> Field {
    Field {
        since: 0,
        until: i16::MAX,
        kind,
    }
}

const fn since(since: i16, kind: Kind) -> Field {
    Field {
        since,
        until: i16::MAX,
        kind,
    }
}

const fn until(until: i16, kind: Kind) -> Field {
    Field {
        since: 0,
        until,
        kind,
    }
}

const I8: Kind = Kind::Fixed(1);
const I16: Kind = Kind::Fixed(2);
const I32: Kind = Kind::Fixed(4);
const I64: Kind = Kind::Fixed(8);
const UUID: Kind = Kind::Fixed(UUID_BYTES);
const TEXT: Kind = Kind::Text;
const BLOB: Kind = Kind::Blob;
const TEXTS: Kind = Kind::Array(&Kind::Text);
const INTS: Kind = Kind::Array(&Kind::Fixed(4));

pub(crate) const API_VERSIONS: &[Field] = &[
    since(3, TEXT),
    since(3, TEXT),
    since(5, TEXT),
    since(5, I32),
];

pub(crate) const SASL_HANDSHAKE: &[Field] = &[always(TEXT)];

pub(crate) const SASL_AUTHENTICATE: &[Field] = &[always(BLOB)];

pub(crate) const DESCRIBE_ACLS: &[Field] = ACL_FILTER;

pub(crate) const CREATE_ACLS: &[Field] = &[always(Kind::Structs(&[
    always(I8),
    always(TEXT),
    always(I8),
    always(TEXT),
    always(TEXT),
    always(I8),
    always(I8),
]))];

pub(crate) const DELETE_ACLS: &[Field] = &[always(Kind::Structs(ACL_FILTER))];

const ACL_FILTER: &[Field] = &[
    always(I8),
    always(TEXT),
    always(I8),
    always(TEXT),
    always(TEXT),
    always(I8),
    always(I8),
];

pub(crate) const DESCRIBE_CLIENT_QUOTAS: &[Field] = &[
    always(Kind::Structs(&[always(TEXT), always(I8), always(TEXT)])),
    always(I8),
];

pub(crate) const ALTER_CLIENT_QUOTAS: &[Field] = &[
    always(Kind::Structs(&[
        always(Kind::Structs(&[always(TEXT), always(TEXT)])),
        always(Kind::Structs(&[always(TEXT), always(I64), always(I8)])),
    ])),
    always(I8),
];

pub(crate) const DESCRIBE_USER_SCRAM_CREDENTIALS: &[Field] =
    &[always(Kind::Structs(&[always(TEXT)]))];

pub(crate) const ALTER_USER_SCRAM_CREDENTIALS: &[Field] = &[
    always(Kind::Structs(&[always(TEXT), always(I8)])),
    always(Kind::Structs(&[
        always(TEXT),
        always(I8),
        always(I32),
        always(BLOB),
        always(BLOB),
    ])),
];

pub(crate) const METADATA: &[Field] = &[
    always(Kind::Structs(&[since(10, UUID), always(TEXT)])),
    since(4, I8),
    Field {
        since: 8,
        until: 10,
        kind: I8,
    },
    since(8, I8),
];

pub(crate) const PRODUCE: &[Field] = &[
    always(TEXT),
    always(I16),
    always(I32),
    always(Kind::Structs(&[
        until(12, TEXT),
        since(13, UUID),
        always(Kind::Structs(&[always(I32), always(BLOB)])),
    ])),
];

pub(crate) const FETCH: &[Field] = &[
    always(Kind::NoTagsBelow(2)),
    until(14, I32),
    always(I32),
    always(I32),
    always(I32),
    always(I8),
    since(7, I32),
    since(7, I32),
    always(Kind::Structs(&[
        until(12, TEXT),
        since(13, UUID),
        always(Kind::Structs(&[
            always(I32),
            since(9, I32),
            always(I64),
            since(12, I32),
            since(5, I64),
            always(I32),
        ])),
    ])),
    since(
        7,
        Kind::Structs(&[until(12, TEXT), since(13, UUID), always(INTS)]),
    ),
    since(11, TEXT),
];

pub(crate) const LIST_OFFSETS: &[Field] = &[
    always(I32),
    since(2, I8),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), since(4, I32), always(I64)])),
    ])),
    since(10, I32),
];

pub(crate) const FIND_COORDINATOR: &[Field] = &[until(3, TEXT), since(1, I8), since(4, TEXTS)];

pub(crate) const JOIN_GROUP: &[Field] = &[
    always(TEXT),
    always(I32),
    since(1, I32),
    always(TEXT),
    since(5, TEXT),
    always(TEXT),
    always(Kind::Structs(&[always(TEXT), always(BLOB)])),
    since(8, TEXT),
];

pub(crate) const SYNC_GROUP: &[Field] = &[
    always(TEXT),
    always(I32),
    always(TEXT),
    since(3, TEXT),
    since(5, TEXT),
    since(5, TEXT),
    always(Kind::Structs(&[always(TEXT), always(BLOB)])),
];

pub(crate) const HEARTBEAT: &[Field] = &[always(TEXT), always(I32), always(TEXT), since(3, TEXT)];

pub(crate) const LEAVE_GROUP: &[Field] = &[
    always(TEXT),
    until(2, TEXT),
    since(
        3,
        Kind::Structs(&[always(TEXT), always(TEXT), since(5, TEXT)]),
    ),
];

pub(crate) const OFFSET_COMMIT: &[Field] = &[
    always(TEXT),
    always(I32),
    always(TEXT),
    since(7, TEXT),
    until(4, I64),
    always(Kind::Structs(&[
        until(9, TEXT),
        since(10, UUID),
        always(Kind::Structs(&[
            always(I32),
            always(I64),
            since(6, I32),
            always(TEXT),
        ])),
    ])),
];

pub(crate) const OFFSET_FETCH: &[Field] = &[
    until(7, TEXT),
    until(7, Kind::Structs(&[always(TEXT), always(INTS)])),
    since(
        8,
        Kind::Structs(&[
            always(TEXT),
            since(9, TEXT),
            since(9, I32),
            always(Kind::Structs(&[
                until(9, TEXT),
                since(10, UUID),
                always(INTS),
            ])),
        ]),
    ),
    since(7, I8),
];

pub(crate) const CREATE_TOPICS: &[Field] = &[
    always(Kind::Structs(&[
        always(TEXT),
        always(I32),
        always(I16),
        always(Kind::Structs(&[always(I32), always(INTS)])),
        always(Kind::Structs(&[always(TEXT), always(TEXT)])),
    ])),
    always(I32),
    always(I8),
];

pub(crate) const DELETE_TOPICS: &[Field] = &[
    until(5, TEXTS),
    since(6, Kind::Structs(&[always(TEXT), always(UUID)])),
    always(I32),
];

pub(crate) const INIT_PRODUCER_ID: &[Field] =
    &[always(TEXT), always(I32), since(3, I64), since(3, I16)];

pub(crate) const ADD_PARTITIONS_TO_TXN: &[Field] = &[
    since(
        4,
        Kind::Structs(&[
            always(TEXT),
            always(I64),
            always(I16),
            always(I8),
            always(Kind::Structs(&[always(TEXT), always(INTS)])),
        ]),
    ),
    until(3, TEXT),
    until(3, I64),
    until(3, I16),
    until(3, Kind::Structs(&[always(TEXT), always(INTS)])),
];

pub(crate) const ADD_OFFSETS_TO_TXN: &[Field] =
    &[always(TEXT), always(I64), always(I16), always(TEXT)];

pub(crate) const END_TXN: &[Field] = &[always(TEXT), always(I64), always(I16), always(I8)];

pub(crate) const WRITE_TXN_MARKERS: &[Field] = &[always(Kind::Structs(&[
    always(I64),
    always(I16),
    always(I8),
    always(Kind::Structs(&[always(TEXT), always(INTS)])),
    always(I32),
]))];

pub(crate) const TXN_OFFSET_COMMIT: &[Field] = &[
    always(TEXT),
    always(TEXT),
    always(I64),
    always(I16),
    since(3, I32),
    since(3, TEXT),
    since(3, TEXT),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[
            always(I32),
            always(I64),
            since(2, I32),
            always(TEXT),
        ])),
    ])),
];

pub(crate) const DESCRIBE_PRODUCERS: &[Field] =
    &[always(Kind::Structs(&[always(TEXT), always(INTS)]))];

pub(crate) const DESCRIBE_TRANSACTIONS: &[Field] = &[always(TEXTS)];

pub(crate) const LIST_TRANSACTIONS: &[Field] = &[
    always(TEXTS),
    always(Kind::Array(&I64)),
    since(1, I64),
    since(2, TEXT),
];

pub(crate) const DESCRIBE_GROUPS: &[Field] = &[always(TEXTS), since(3, I8)];

pub(crate) const LIST_GROUPS: &[Field] = &[since(4, TEXTS), since(5, TEXTS)];

pub(crate) const DESCRIBE_CONFIGS: &[Field] = &[
    always(Kind::Structs(&[always(I8), always(TEXT), always(TEXTS)])),
    always(I8),
    since(3, I8),
];

pub(crate) const OFFSET_DELETE: &[Field] = &[
    always(TEXT),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32)])),
    ])),
];

pub(crate) const CONSUMER_GROUP_HEARTBEAT: &[Field] = &[
    always(TEXT),
    always(TEXT),
    always(I32),
    always(TEXT),
    always(TEXT),
    always(I32),
    always(TEXTS),
    since(1, TEXT),
    always(TEXT),
    always(Kind::Structs(&[always(UUID), always(INTS)])),
];

pub(crate) const CONSUMER_GROUP_DESCRIBE: &[Field] = &[always(TEXTS), always(I8)];

pub(crate) const ALTER_CONFIGS: &[Field] = &[
    always(Kind::Structs(&[
        always(I8),
        always(TEXT),
        always(Kind::Structs(&[always(TEXT), always(TEXT)])),
    ])),
    always(I8),
];

pub(crate) const INCREMENTAL_ALTER_CONFIGS: &[Field] = &[
    always(Kind::Structs(&[
        always(I8),
        always(TEXT),
        always(Kind::Structs(&[always(TEXT), always(I8), always(TEXT)])),
    ])),
    always(I8),
];

pub(crate) const CREATE_PARTITIONS: &[Field] = &[
    always(Kind::Structs(&[
        always(TEXT),
        always(I32),
        always(Kind::Structs(&[always(INTS)])),
    ])),
    always(I32),
    always(I8),
];

pub(crate) const OFFSET_FOR_LEADER_EPOCH: &[Field] = &[
    since(3, I32),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), always(I32), always(I32)])),
    ])),
];

pub(crate) const DESCRIBE_LOG_DIRS: &[Field] =
    &[always(Kind::Structs(&[always(TEXT), always(INTS)]))];

pub(crate) const ELECT_LEADERS: &[Field] = &[
    since(1, I8),
    always(Kind::Structs(&[always(TEXT), always(INTS)])),
    always(I32),
];

pub(crate) const ALTER_PARTITION_REASSIGNMENTS: &[Field] = &[
    always(I32),
    since(1, I8),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), always(INTS)])),
    ])),
];

pub(crate) const LIST_PARTITION_REASSIGNMENTS: &[Field] = &[
    always(I32),
    always(Kind::Structs(&[always(TEXT), always(INTS)])),
];

pub(crate) const DESCRIBE_CLUSTER: &[Field] = &[always(I8), since(1, I8), since(2, I8)];

pub(crate) const DESCRIBE_TOPIC_PARTITIONS: &[Field] = &[
    always(Kind::Structs(&[always(TEXT)])),
    always(I32),
    always(Kind::Nullable(&[always(TEXT), always(I32)])),
];

pub(crate) const DELETE_RECORDS: &[Field] = &[
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), always(I64)])),
    ])),
    always(I32),
];

pub(crate) const DELETE_GROUPS: &[Field] = &[always(TEXTS)];

const UUID_BYTES: usize = 16;

/// Array elements in one request, all arrays together: decoded they take up to about 150 bytes
/// each, so 30 MB; a fetch of 100,000 partitions fits.
pub(crate) const REQUEST_ELEMENTS_MAX: usize = 200_000;

/// Tagged fields in one structure: Kafka defines at most a handful, the codec keeps each.
pub(crate) const TAGGED_FIELDS_MAX: u32 = 32;
