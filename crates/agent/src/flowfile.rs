//! A FlowFile: a small header with shared attributes and a view of content in a claim.
//!
//! Thousands of lines of one block share their attributes and their claim, so that a line costs
//! one small struct and no copy of its bytes.

use std::fmt;
use std::sync::Arc;

use base::UnixMillis;

use crate::content::Content;

/// A FlowFile's number in its repository; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowFileId(pub u64);

/// A unit of data on its way through a flow.
///
/// Not `Clone` outside the crate: whoever holds it has it, and a session sees to it that it ends
/// in exactly one queue or nowhere.
#[derive(Debug)]
pub struct FlowFile {
    pub(crate) id: FlowFileId,
    pub(crate) entry: UnixMillis,
    pub(crate) attributes: Arc<Attributes>,
    pub(crate) content: Content,
}

/// Names and values, sorted by name, immutable and shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(Vec<(Box<str>, Box<str>)>);

impl FlowFile {
    /// Its number.
    pub fn id(&self) -> FlowFileId {
        self.id
    }

    /// When it entered the flow.
    pub fn entry(&self) -> UnixMillis {
        self.entry
    }

    /// Its attributes.
    pub fn attributes(&self) -> &Arc<Attributes> {
        &self.attributes
    }

    /// Bytes of its content.
    pub fn size(&self) -> u64 {
        self.content.len()
    }

    /// Its content.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Another handle of the same FlowFile, for the queue's book of what sessions hold.
    pub(crate) fn twin(&self) -> FlowFile {
        FlowFile {
            id: self.id,
            entry: self.entry,
            attributes: Arc::clone(&self.attributes),
            content: self.content.clone(),
        }
    }
}

impl Attributes {
    /// From any order; of equal names the last wins.
    pub fn new<N: Into<Box<str>>, V: Into<Box<str>>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut attributes = Attributes::default();
        for (name, value) in pairs {
            attributes.set(&name.into(), value);
        }
        attributes
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self
            .0
            .binary_search_by(|(known, _)| known.as_ref().cmp(name))
            .ok()?;
        Some(&self.0[at].1)
    }

    /// Sets `name` to `value`.
    pub fn set(&mut self, name: &str, value: impl Into<Box<str>>) {
        match self
            .0
            .binary_search_by(|(known, _)| known.as_ref().cmp(name))
        {
            Ok(at) => self.0[at].1 = value.into(),
            Err(at) => self.0.insert(at, (name.into(), value.into())),
        }
    }

    /// The value of the attribute at `index`, by name.
    pub(crate) fn value_at(&self, index: usize) -> Option<&str> {
        self.0.get(index).map(|(_, value)| value.as_ref())
    }

    /// Sets the value of the attribute at `index`, by name; nothing where there is none.
    pub(crate) fn set_at(&mut self, index: usize, value: String) {
        if let Some((_, known)) = self.0.get_mut(index) {
            *known = value.into();
        }
    }

    /// Removes every attribute whose name `gone` accepts.
    pub fn remove(&mut self, mut gone: impl FnMut(&str) -> bool) {
        self.0.retain(|(name, _)| !gone(name));
    }

    /// Bytes of names and values together.
    pub(crate) fn bytes(&self) -> usize {
        self.iter()
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }

    /// All, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_ref(), value.as_ref()))
    }
}

/// Counts bytes of attributes; those that neighbors share count once.
#[derive(Debug, Default)]
pub(crate) struct Weight {
    bytes: usize,
    last: Option<Arc<Attributes>>,
}

impl Weight {
    pub(crate) fn add(&mut self, flow_file: &FlowFile) {
        let attributes = &flow_file.attributes;
        let is_known = |last: &Arc<Attributes>| Arc::ptr_eq(last, attributes);
        if !self.last.as_ref().is_some_and(is_known) {
            self.bytes += attributes.bytes() + std::mem::size_of::<FlowFile>();
            self.last = Some(Arc::clone(attributes));
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The attribute that names a FlowFile's content; where there is none, its uuid does.
pub(crate) const FILENAME: &str = "filename";

/// Writes the FlowFile's uuid: version 8, made of the repository's own bits and its number.
pub(crate) fn uuid(namespace: u64, id: FlowFileId) -> impl fmt::Display {
    let high = (namespace & !0xf000) | 0x8000;
    let low = (id.0 & (u64::MAX >> 2)) | (1 << 63);
    uuid::Uuid::from_u64_pair(high, low).hyphenated()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_keep_their_order_and_last_value() {
        let attributes = Attributes::new([("b", "1"), ("a", "2"), ("b", "3")]);
        assert_eq!(attributes.get("b"), Some("3"));
        assert_eq!(
            attributes.iter().collect::<Vec<_>>(),
            [("a", "2"), ("b", "3")]
        );
    }

    #[test]
    fn uuids_differ_by_number_and_are_well_formed() {
        let one = uuid(u64::MAX, FlowFileId(1)).to_string();
        assert_ne!(one, uuid(u64::MAX, FlowFileId(2)).to_string());
        let parsed: uuid::Uuid = one.parse().unwrap();
        assert_eq!(parsed.get_version_num(), 8);
    }
}
