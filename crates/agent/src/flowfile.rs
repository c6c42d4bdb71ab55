//! A FlowFile: a small header with shared attributes and a view of content in a claim.
//!
//! Thousands of lines of one block share their attributes and their claim, so that a line costs
//! one small struct and no copy of its bytes. What tells them apart, `filename` and
//! `TextFragmentAttribute.offset`, follows from where in the block a line lies, by an origin among
//! the attributes: where in which file the block begins. It is written down as attributes when the
//! content becomes another.

use std::borrow::Cow;
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

    /// Its attributes, but for those that follow from where its content lies.
    pub fn attributes(&self) -> &Arc<Attributes> {
        &self.attributes
    }

    /// The value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let known = self.attributes.get(name).map(Cow::Borrowed);
        known.or_else(|| self.own_attribute(name).map(Cow::Owned))
    }

    /// All attributes.
    pub fn all_attributes(&self) -> Arc<Attributes> {
        let mut all = Arc::clone(&self.attributes);
        self.write_down(&mut all);
        all
    }

    /// The value of an attribute that follows from where its content lies.
    pub(crate) fn own_attribute(&self, name: &str) -> Option<String> {
        if !OWN.contains(&name) {
            return None;
        }
        let (start, base, post) = self.attributes.origin()?;
        let [view] = self.content.views() else {
            return None;
        };
        let start = start.checked_add(u64::from(view.offset))?;
        if name == FILENAME {
            return Some(fragment_name(base, post, start, self.size()));
        }
        let is_fragment = self.attributes.get(FRAGMENT_BASE_NAME).is_some();
        is_fragment.then(|| start.to_string())
    }

    /// Makes `attributes`, which are its own or come from there, hold for other content too.
    pub(crate) fn write_down(&self, attributes: &mut Arc<Attributes>) {
        if !attributes.has_origin() {
            return;
        }
        let attributes = Arc::make_mut(attributes);
        attributes.0.remove(0);
        for name in OWN {
            if attributes.get(name).is_none()
                && let Some(value) = self.attribute(name)
            {
                attributes.set(name, value);
            }
        }
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

    /// Says that these are of pieces of a block, which begins at `start` in a file of this name and
    /// ending.
    pub(crate) fn set_origin(&mut self, start: u64, base: &str, post: &str) {
        self.set(ORIGIN, format!("{start}/{base}/{post}"));
    }

    /// Whether some follow from where content lies.
    pub(crate) fn has_origin(&self) -> bool {
        let first = self.0.first();
        first.is_some_and(|(name, _)| name.as_ref() == ORIGIN)
    }

    fn origin(&self) -> Option<(u64, &str, &str)> {
        let (_, origin) = self.0.first().filter(|_| self.has_origin())?;
        let (start, file) = origin.split_once('/')?;
        let (base, post) = file.split_once('/')?;
        Some((start.parse().ok()?, base, post))
    }

    /// Removes every attribute whose name `gone` accepts.
    pub fn remove(&mut self, mut gone: impl FnMut(&str) -> bool) {
        let is_unnamed = self.has_origin() && gone(FILENAME);
        let mut is_gone = |name: &str| match name {
            ORIGIN => is_unnamed,
            name => gone(name),
        };
        self.0.retain(|(name, _)| !is_gone(name));
    }

    /// Bytes of names and values together.
    pub(crate) fn bytes(&self) -> usize {
        self.records()
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }

    /// All, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.records().skip(usize::from(self.has_origin()))
    }

    /// All, as a repository keeps them.
    pub(crate) fn records(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
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

/// The name of the file that a text comes from, before its ending.
pub(crate) const FRAGMENT_BASE_NAME: &str = "TextFragmentAttribute.base_name";

/// That file's ending.
pub(crate) const FRAGMENT_POST_NAME: &str = "TextFragmentAttribute.post_name";

/// Where in the file the text begins.
pub(crate) const FRAGMENT_OFFSET: &str = "TextFragmentAttribute.offset";

/// Attributes that may follow from where content lies.
pub(crate) const OWN: [&str; 2] = [FILENAME, FRAGMENT_OFFSET];

/// Where in which file a block begins; stands before all names that people write.
const ORIGIN: &str = "\0origin";

/// What `len` bytes of a file, from `start` on, are called: app.0-1023.log.
pub(crate) fn fragment_name(base: &str, post: &str, start: u64, len: u64) -> String {
    let end = start.saturating_add(len).saturating_sub(1);
    match post {
        "" => format!("{base}.{start}-{end}"),
        post => format!("{base}.{start}-{end}.{post}"),
    }
}

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
