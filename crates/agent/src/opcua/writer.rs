//! The binary encoding of OPC UA's built-in types, written: what `wire` reads.

use super::wire::{Data, Identifier, Kind, NodeId, Scalar, Variant};

/// Writes one message.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Writer(Vec::with_capacity(bytes))
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub(crate) fn u16(&mut self, number: u16) {
        self.raw(&number.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, number: u32) {
        self.raw(&number.to_le_bytes());
    }

    pub(crate) fn i32(&mut self, number: i32) {
        self.raw(&number.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, number: i64) {
        self.raw(&number.to_le_bytes());
    }

    pub(crate) fn f64(&mut self, number: f64) {
        self.raw(&number.to_le_bytes());
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.u8(flag.into());
    }

    /// How many items come. Ours are few, and texts are far below 2 GB.
    pub(crate) fn count(&mut self, count: usize) {
        self.i32(i32::try_from(count).expect("what is sent is bounded"));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// A text, bytes or list that is not there.
    pub(crate) fn null(&mut self) {
        self.i32(-1);
    }

    pub(crate) fn node_id(&mut self, node: &NodeId) {
        let form = match node.name {
            Identifier::Number(_) => 2,
            Identifier::Text(_) => 3,
            Identifier::Guid(_) => 4,
            Identifier::Bytes(_) => 5,
        };
        self.u8(form);
        self.u16(node.namespace);
        match &node.name {
            Identifier::Number(number) => self.u32(*number),
            Identifier::Text(text) => self.text(text),
            Identifier::Guid(guid) => self.raw(&guid.to_bytes_le()),
            Identifier::Bytes(bytes) => self.bytes(bytes),
        }
    }

    pub(crate) fn qualified_name(&mut self, namespace: u16, name: &str) {
        self.u16(namespace);
        self.text(name);
    }

    pub(crate) fn localized_text(&mut self, text: &str) {
        self.u8(2);
        self.text(text);
    }

    /// A structure without content.
    pub(crate) fn no_extension_object(&mut self) {
        self.node_id(&NodeId::standard(0));
        self.u8(0);
    }

    /// A structure whose encoding has this number.
    pub(crate) fn extension_object(&mut self, encoding: u32, write: impl FnOnce(&mut Writer)) {
        self.node_id(&NodeId::standard(encoding));
        self.u8(1);
        let mut content = Writer::default();
        write(&mut content);
        self.bytes(&content.0);
    }

    pub(crate) fn variant(&mut self, variant: &Variant) {
        match &variant.data {
            Data::One(value) => {
                self.u8(variant.kind.0);
                self.scalar(variant.kind, value);
            }
            Data::Many(values) => {
                self.u8(variant.kind.0 | 0x80);
                self.count(values.len());
                for value in values {
                    self.scalar(variant.kind, value);
                }
            }
        }
    }

    fn scalar(&mut self, kind: Kind, value: &Scalar) {
        // Numbers were read into as many bits as the type has.
        let width = kind.width().unwrap_or_default();
        match value {
            Scalar::Flag(flag) => self.flag(*flag),
            Scalar::Signed(number) | Scalar::Time(number) => {
                self.raw(&number.to_le_bytes()[..width]);
            }
            Scalar::Unsigned(number) => self.raw(&number.to_le_bytes()[..width]),
            Scalar::Float(number) => self.raw(&number.to_le_bytes()),
            Scalar::Double(number) => self.f64(*number),
            Scalar::Text(text) => self.text(text),
            Scalar::Bytes(bytes) => self.bytes(bytes),
            Scalar::Opaque => unreachable!("only what has a text is written"),
        }
    }
}
