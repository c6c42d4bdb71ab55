//! The binary encoding of OPC UA's built-in types (Part 6, 5.2), read: numbers with the lowest byte
//! first, texts and lists behind their length.
//!
//! The reader never trusts a length: a list has no more items than bytes are left, all lists of one
//! message together no more than [`OPC_VALUES_MAX`], and values in values end at [`OPC_DEPTH_MAX`].

use std::fmt;

use uuid::Uuid;

use super::status::Status;
use crate::net::limits::{OPC_DEPTH_MAX, OPC_VALUES_MAX};

/// What names a node within a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId {
    pub(crate) namespace: u16,
    pub(crate) name: Identifier,
}

/// A node's name within its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identifier {
    Number(u32),
    Text(String),
    Guid(Uuid),
    Bytes(Vec<u8>),
}

/// One of the built-in types, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(pub(super) u8);

/// A value, or a list of them, and their type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variant {
    pub(crate) kind: Kind,
    pub(crate) data: Data,
}

/// One value or a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    One(Scalar),
    /// In the order of the bytes, whatever dimensions there are.
    Many(Vec<Scalar>),
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Flag(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f32),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// In steps of 100 ns since 1601.
    Time(i64),
    /// One of a type that has no text.
    Opaque,
}

/// What a server tells of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DataValue {
    pub(crate) value: Option<Variant>,
    pub(crate) status: Status,
    pub(crate) source_time: Option<i64>,
}

/// Bytes that are no OPC UA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is damaged: {0}")]
pub(crate) struct Damaged(pub(crate) &'static str);

/// Reads one message.
#[derive(Debug)]
pub(crate) struct Reader<'b> {
    rest: &'b [u8],
    values_left: usize,
    depth: usize,
}

impl NodeId {
    /// A node by its number.
    pub(crate) fn number(namespace: u16, number: u32) -> Self {
        NodeId {
            namespace,
            name: Identifier::Number(number),
        }
    }

    /// One of the specification's own nodes.
    pub(crate) fn standard(number: u32) -> Self {
        NodeId::number(0, number)
    }
}

impl fmt::Display for NodeId {
    /// As OPC UA's tools write it: `ns=2;s=Speed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace != 0 {
            write!(f, "ns={};", self.namespace)?;
        }
        let letter = match self.name {
            Identifier::Number(_) => "i",
            Identifier::Text(_) => "s",
            Identifier::Guid(_) => "g",
            Identifier::Bytes(_) => "b",
        };
        write!(f, "{letter}={}", self.name)
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identifier::Number(number) => write!(f, "{number}"),
            Identifier::Text(text) => f.write_str(text),
            Identifier::Guid(guid) => write!(f, "{guid}"),
            Identifier::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
        }
    }
}

impl Variant {
    /// The value where it is one small number, as a node's class.
    pub(crate) fn as_number(&self) -> Option<u32> {
        match self.data {
            Data::One(Scalar::Signed(number)) => u32::try_from(number).ok(),
            _ => None,
        }
    }

    /// The value where it is one text, as a node's name.
    pub(crate) fn as_text(&self) -> Option<String> {
        match &self.data {
            Data::One(Scalar::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }
}

impl Kind {
    pub(crate) const BOOLEAN: Kind = Kind(1);
    pub(crate) const INT32: Kind = Kind(6);
    pub(crate) const UINT32: Kind = Kind(7);
    pub(crate) const INT64: Kind = Kind(8);
    pub(crate) const UINT64: Kind = Kind(9);
    pub(crate) const FLOAT: Kind = Kind(10);
    pub(crate) const DOUBLE: Kind = Kind(11);
    pub(crate) const STRING: Kind = Kind(12);

    /// Its name in the specification.
    pub(crate) fn name(self) -> &'static str {
        KINDS.get(usize::from(self.0)).map_or("", |(name, _)| name)
    }

    /// Bytes of each value, where all have as many.
    pub(crate) fn width(self) -> Option<usize> {
        KINDS.get(usize::from(self.0)).and_then(|(_, width)| *width)
    }

    /// The type's node: its number is the same.
    pub(crate) fn node(self) -> NodeId {
        NodeId::standard(self.0.into())
    }
}

impl<'b> Reader<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Reader {
            rest: bytes,
            values_left: OPC_VALUES_MAX,
            depth: 0,
        }
    }

    /// What was not read yet.
    pub(crate) fn rest(self) -> &'b [u8] {
        self.rest
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Damaged> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Damaged> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damaged> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Damaged> {
        Ok(i32::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Damaged> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn f64(&mut self) -> Result<f64, Damaged> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Damaged> {
        Ok(self.u8()? != 0)
    }

    pub(crate) fn status(&mut self) -> Result<Status, Damaged> {
        Ok(Status(self.u32()?))
    }

    /// Bytes behind their length; none where it is negative.
    pub(crate) fn bytes(&mut self) -> Result<Option<&'b [u8]>, Damaged> {
        match usize::try_from(self.i32()?) {
            Ok(len) => Ok(Some(self.take(len)?)),
            Err(_) => Ok(None),
        }
    }

    /// A text, empty where there is none; what is no UTF-8 is replaced.
    pub(crate) fn text(&mut self) -> Result<String, Damaged> {
        let bytes = self.bytes()?.unwrap_or_default();
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// How many items a list of at most `max` has.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, Damaged> {
        let count = usize::try_from(self.i32()?).unwrap_or(0);
        // Each item has a byte at least.
        if count > self.rest.len() {
            return Err(Damaged("a list is longer than the message"));
        }
        if count > max || count > self.values_left {
            return Err(Damaged("a list has too many items"));
        }
        self.values_left -= count;
        Ok(count)
    }

    pub(crate) fn node_id(&mut self) -> Result<NodeId, Damaged> {
        let form = self.u8()?;
        self.node_id_as(form)
    }

    /// A node, and whether it is one of this server.
    pub(crate) fn expanded_node_id(&mut self) -> Result<(NodeId, bool), Damaged> {
        let form = self.u8()?;
        let node = self.node_id_as(form & 0x3f)?;
        let has_uri = form & 0x80 != 0 && self.bytes()?.is_some();
        let is_elsewhere = form & 0x40 != 0 && self.u32()? != 0;
        Ok((node, !has_uri && !is_elsewhere))
    }

    /// A name and its namespace.
    pub(crate) fn qualified_name(&mut self) -> Result<(u16, String), Damaged> {
        Ok((self.u16()?, self.text()?))
    }

    pub(crate) fn localized_text(&mut self) -> Result<String, Damaged> {
        let has = self.u8()?;
        if has & 1 != 0 {
            self.bytes()?;
        }
        match has & 2 != 0 {
            true => self.text(),
            false => Ok(String::new()),
        }
    }

    /// Passes over a structure.
    pub(crate) fn skip_extension_object(&mut self) -> Result<(), Damaged> {
        self.node_id()?;
        match self.u8()? {
            0 => {}
            1 | 2 => drop(self.bytes()?),
            _ => return Err(Damaged("a structure has an unknown encoding")),
        }
        Ok(())
    }

    /// Passes over a server's words about a failure.
    pub(crate) fn skip_diagnostic_info(&mut self) -> Result<(), Damaged> {
        let has = self.u8()?;
        let numbers = (has & 0x0f).count_ones();
        self.take(4 * numbers as usize)?;
        if has & 0x10 != 0 {
            self.bytes()?;
        }
        if has & 0x20 != 0 {
            self.u32()?;
        }
        match has & 0x40 != 0 {
            true => self.deeper(Reader::skip_diagnostic_info),
            false => Ok(()),
        }
    }

    pub(crate) fn variant(&mut self) -> Result<Option<Variant>, Damaged> {
        let form = self.u8()?;
        let kind = Kind(form & 0x3f);
        if kind.0 == 0 {
            return Ok(None);
        }
        if kind.name().is_empty() {
            return Err(Damaged("a value has an unknown type"));
        }
        let data = match form & 0x80 != 0 {
            false => Data::One(self.scalar(kind)?),
            true => {
                let count = self.count(OPC_VALUES_MAX)?;
                let mut values = Vec::new();
                for _ in 0..count {
                    values.push(self.scalar(kind)?);
                }
                Data::Many(values)
            }
        };
        if form & 0x40 != 0 {
            for _ in 0..self.count(OPC_VALUES_MAX)? {
                self.i32()?;
            }
        }
        Ok(Some(Variant { kind, data }))
    }

    pub(crate) fn data_value(&mut self) -> Result<DataValue, Damaged> {
        let has = self.u8()?;
        let mut told = DataValue::default();
        if has & 0x01 != 0 {
            told.value = self.variant()?;
        }
        if has & 0x02 != 0 {
            told.status = self.status()?;
        }
        if has & 0x04 != 0 {
            told.source_time = Some(self.i64()?);
        }
        if has & 0x10 != 0 {
            self.u16()?;
        }
        if has & 0x08 != 0 {
            self.i64()?;
        }
        if has & 0x20 != 0 {
            self.u16()?;
        }
        Ok(told)
    }

    fn scalar(&mut self, kind: Kind) -> Result<Scalar, Damaged> {
        Ok(match kind.0 {
            1 => Scalar::Flag(self.flag()?),
            2 => Scalar::Signed(i8::from_le_bytes(self.array()?).into()),
            3 => Scalar::Unsigned(self.u8()?.into()),
            4 => Scalar::Signed(i16::from_le_bytes(self.array()?).into()),
            5 => Scalar::Unsigned(self.u16()?.into()),
            6 => Scalar::Signed(self.i32()?.into()),
            7 => Scalar::Unsigned(self.u32()?.into()),
            8 => Scalar::Signed(self.i64()?),
            9 => Scalar::Unsigned(u64::from_le_bytes(self.array()?)),
            10 => Scalar::Float(f32::from_le_bytes(self.array()?)),
            11 => Scalar::Double(self.f64()?),
            12 | 16 => Scalar::Text(self.text()?),
            13 => Scalar::Time(self.i64()?),
            14 => Scalar::Text(Uuid::from_bytes_le(self.array()?).to_string()),
            15 => Scalar::Bytes(self.bytes()?.unwrap_or_default().to_vec()),
            20 => Scalar::Text(self.qualified_name()?.1),
            21 => Scalar::Text(self.localized_text()?),
            other => {
                match other {
                    17 => drop(self.node_id()?),
                    18 => drop(self.expanded_node_id()?),
                    19 => drop(self.status()?),
                    22 => self.skip_extension_object()?,
                    23 => drop(self.deeper(Reader::data_value)?),
                    24 => drop(self.deeper(Reader::variant)?),
                    _ => self.skip_diagnostic_info()?,
                }
                Scalar::Opaque
            }
        })
    }

    fn node_id_as(&mut self, form: u8) -> Result<NodeId, Damaged> {
        let namespace = match form {
            0 => 0,
            1 => self.u8()?.into(),
            2..=5 => self.u16()?,
            _ => return Err(Damaged("a node has an unknown form")),
        };
        let name = match form {
            0 => Identifier::Number(self.u8()?.into()),
            1 => Identifier::Number(self.u16()?.into()),
            2 => Identifier::Number(self.u32()?),
            3 => Identifier::Text(self.text()?),
            4 => Identifier::Guid(Uuid::from_bytes_le(self.array()?)),
            _ => Identifier::Bytes(self.bytes()?.unwrap_or_default().to_vec()),
        };
        Ok(NodeId { namespace, name })
    }

    /// Reads what stands in something of its own kind.
    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Damaged>,
    ) -> Result<T, Damaged> {
        if self.depth == OPC_DEPTH_MAX {
            return Err(Damaged("values stand too deep in values"));
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], Damaged> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(CUT)?;
        self.rest = rest;
        Ok(*first)
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8], Damaged> {
        let (first, rest) = self.rest.split_at_checked(count).ok_or(CUT)?;
        self.rest = rest;
        Ok(first)
    }
}

const CUT: Damaged = Damaged("it ends too early");

/// Names of the built-in types by their numbers, and how many bytes each value of one has.
const KINDS: [(&str, Option<usize>); 26] = [
    ("", None),
    ("Boolean", Some(1)),
    ("SByte", Some(1)),
    ("Byte", Some(1)),
    ("Int16", Some(2)),
    ("UInt16", Some(2)),
    ("Int32", Some(4)),
    ("UInt32", Some(4)),
    ("Int64", Some(8)),
    ("UInt64", Some(8)),
    ("Float", Some(4)),
    ("Double", Some(8)),
    ("String", None),
    ("DateTime", Some(8)),
    ("Guid", Some(16)),
    ("ByteString", None),
    ("XmlElement", None),
    ("NodeId", None),
    ("ExpandedNodeId", None),
    ("StatusCode", Some(4)),
    ("QualifiedName", None),
    ("LocalizedText", None),
    ("ExtensionObject", None),
    ("DataValue", None),
    ("Variant", None),
    ("DiagnosticInfo", None),
];
