//! What the registry knows: the topic's records, applied in the order of the log.
//!
//! Every process that reads the topic comes to the same state. Several may write at once, so a
//! SCHEMA record of ours says what its writer found under its key (see `record.rs`), and counts
//! only when two things hold where it stands in the log: the key still has that, and its id belongs
//! to no other schema. Otherwise it has lost: it changes nothing, and its writer, who reads it back
//! like everybody, tries again. As a compacted topic keeps the last record of a key, a lost one that
//! lies over one that counts is kept in `shadowed` until that one is written again.
//!
//! That ids of one schema do not differ follows: who gives an id gives the next after all that it
//! has seen, so of two writers with one schema and different ids one has not seen the other's
//! neighbor, and loses by the second rule. For that an id belongs to the first record that names it,
//! even when that record has lost.
//!
//! Records of other registries have no such header and always count: they have one writer at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::format::SchemaType;
use super::limits::{LOST_REMEMBERED, TEXTS_BYTES_MAX, VERSIONS_MAX};
use super::record::{
    ConfigValue, DeletedSubject, Entry, Expected, Key, Mode, ModeValue, NoopValue, Reference,
    SchemaValue,
};
use super::subject::{DEFAULT_CONTEXT, context_of, parts, qualified};

/// What makes a schema the one that it is; equal ones have one id in a context.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Content {
    pub kind: SchemaType,
    pub text: Arc<str>,
    pub references: Vec<Reference>,
    /// JSON text, with its keys in order.
    pub metadata: Option<Arc<str>>,
    /// The same.
    pub rule_set: Option<Arc<str>>,
}

/// A schema with its id.
#[derive(Debug)]
pub(super) struct Schema {
    pub context: Arc<str>,
    pub id: i32,
    pub guid: Uuid,
    pub content: Arc<Content>,
}

/// A version of a subject.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub schema: Arc<Schema>,
    /// Soft-deleted: it is shown to those who ask for deleted ones, and its id still counts.
    pub is_deleted: bool,
}

/// The versions of a subject by number.
pub(super) type Versions = BTreeMap<i32, Version>;

/// All that the registry knows.
#[derive(Default)]
pub(super) struct State {
    contexts: BTreeMap<Arc<str>, Context>,
    /// The GUIDs of schemas, with their contexts and ids.
    guids: BTreeSet<(Uuid, Arc<str>, i32)>,
    subjects: BTreeMap<String, Versions>,
    pub(super) configs: BTreeMap<Option<String>, ConfigValue>,
    pub(super) modes: BTreeMap<Option<String>, Mode>,
    /// Bytes of keys that are written otherwise than we would.
    odd_keys: HashMap<Key, Bytes>,
    /// Keys whose last record has lost and lies over one that counts.
    shadowed: BTreeSet<Key>,
    /// Offsets of the last records that have lost.
    lost: BTreeSet<i64>,
    versions_count: usize,
    text_bytes: usize,
}

/// The schemas of a context.
#[derive(Default)]
struct Context {
    by_id: BTreeMap<i32, Bound>,
    ids: HashMap<Arc<Content>, i32>,
    id_max: i32,
}

/// A schema that an id belongs to.
struct Bound {
    schema: Arc<Schema>,
    /// The versions of subjects that it is.
    uses: BTreeSet<(String, i32)>,
}

/// The topic holds more than the registry keeps in memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "the topic holds more than {VERSIONS_MAX} versions or {TEXTS_BYTES_MAX} bytes of schemas, the \
     registry's bound"
)]
pub(super) struct TooMuch;

impl Content {
    fn of(value: SchemaValue) -> (Content, i32, bool) {
        let content = Content {
            kind: value.schema_type,
            text: value.schema,
            references: value.references,
            metadata: object_text(value.metadata),
            rule_set: object_text(value.rule_set),
        };
        (content, value.id, value.deleted)
    }

    /// A property of the metadata.
    pub fn property(&self, name: &str) -> Option<String> {
        let metadata = object(self.metadata.as_deref())?;
        let property = metadata.get("properties")?.get(name)?;
        property.as_str().map(str::to_owned)
    }

    /// Writes a version's number where the metadata tell one, or are to.
    pub fn tell_version(&mut self, version: i32, always: bool) {
        let mut metadata = object(self.metadata.as_deref()).unwrap_or_default();
        let properties = metadata
            .entry("properties")
            .or_insert_with(|| Map::new().into());
        if let Value::Object(properties) = properties
            && (always || properties.contains_key(VERSION))
        {
            properties.insert(VERSION.to_owned(), version.to_string().into());
            self.metadata = object_text(Some(metadata));
        }
    }

    /// As a record tells it.
    pub fn value(&self, subject: &str, version: i32, id: i32, deleted: bool) -> SchemaValue {
        SchemaValue {
            subject: subject.to_owned(),
            version,
            id,
            schema_type: self.kind,
            references: self.references.clone(),
            metadata: object(self.metadata.as_deref()),
            rule_set: object(self.rule_set.as_deref()),
            schema: self.text.clone(),
            deleted,
        }
    }
}

impl Version {
    /// As a record tells it.
    pub fn value(&self, subject: &str, version: i32, deleted: bool) -> SchemaValue {
        let Schema { content, id, .. } = &*self.schema;
        content.value(subject, version, *id, deleted)
    }
}

/// A JSON object as text, with its keys in order; an empty one is none.
pub(super) fn object_text(object: Option<Map<String, Value>>) -> Option<Arc<str>> {
    let object = object.filter(|object| !object.is_empty())?;
    Some(Value::Object(object).to_string().into())
}

/// The object of such a text.
pub(super) fn object(text: Option<&str>) -> Option<Map<String, Value>> {
    serde_json::from_str(text?).ok()
}

impl State {
    /// Applies a record.
    ///
    /// # Errors
    /// [`TooMuch`]; the state is then as it was.
    pub fn apply(
        &mut self,
        offset: i64,
        key: &Bytes,
        value: Option<&[u8]>,
        expected: Option<Expected>,
    ) -> Result<(), TooMuch> {
        let Ok(read) = serde_json::from_slice::<Key>(key) else {
            tracing::warn!(
                offset,
                "a record of the schema registry's topic has no known key"
            );
            return Ok(());
        };
        let read = read.usual();
        if read != Key::Unknown && read.bytes() != *key {
            self.odd_keys.insert(read.clone(), key.clone());
        }
        let applied = match (&read, value) {
            (
                Key::Schema {
                    subject, version, ..
                },
                value,
            ) => {
                return self.apply_schema(offset, &read, (subject, *version), value, expected);
            }
            (Key::Config { subject, .. }, value) => {
                set(&mut self.configs, subject, value, ConfigValue::set)
            }
            (Key::Mode { subject, .. }, value) => {
                set(&mut self.modes, subject, value, |ModeValue { mode }| mode)
            }
            (Key::DeleteSubject { .. }, Some(value)) => {
                serde_json::from_slice(value).map(|deleted| self.apply_delete(&deleted))
            }
            (Key::ClearSubject { subject, .. }, Some(_)) => {
                self.apply_clear(subject);
                Ok(())
            }
            (Key::Noop { .. }, Some(value)) => {
                // Others write what they like here.
                let noop: NoopValue = serde_json::from_slice(value).unwrap_or_default();
                for (context, id_max) in noop.id_max {
                    let context = self.context_mut(&context);
                    context.id_max = context.id_max.max(id_max);
                }
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(error) = applied {
            tracing::warn!(offset, %error, "a record of the schema registry's topic is passed over");
        }
        Ok(())
    }

    fn apply_schema(
        &mut self,
        offset: i64,
        key: &Key,
        (subject, version): (&str, i32),
        value: Option<&[u8]>,
        expected: Option<Expected>,
    ) -> Result<(), TooMuch> {
        let found = self.version(subject, version).map(|found| found.schema.id);
        let found = found.map_or(Expected::Nothing, Expected::Id);
        let mut counts = expected.is_none_or(|expected| expected == found);
        let value = value.map(serde_json::from_slice::<SchemaValue>).transpose();
        let value = match value {
            Ok(value) => value,
            Err(error) => {
                tracing::warn!(offset, %error, "a schema in the registry's topic is passed over");
                return Ok(());
            }
        };
        let Some(value) = value else {
            if counts {
                self.remove_version(subject, version);
            }
            self.settle(offset, key, counts, found);
            return Ok(());
        };
        let (content, id, deleted) = Content::of(value);
        let context: Arc<str> = context_of(subject).into();
        let text_bytes = content.text.len();
        let known = self.schema(&context, id);
        let is_known = known.is_some_and(|known| *known.content == content);
        let added = if is_known { 0 } else { text_bytes };
        let is_full = found == Expected::Nothing && self.versions_count >= VERSIONS_MAX;
        if is_full || self.text_bytes + added > TEXTS_BYTES_MAX {
            return Err(TooMuch);
        }
        let (schema, is_new) = self.context_mut(&context).bind(&context, id, content);
        counts &= self.bound_mut(&schema).is_some() || expected.is_none();
        if is_new {
            self.text_bytes += text_bytes;
            self.guids.insert((schema.guid, context, id));
        }
        if counts {
            if let Some(bound) = self.bound_mut(&schema) {
                bound.uses.insert((subject.to_owned(), version));
            }
            let versions = self.subjects.entry(subject.to_owned()).or_default();
            let told = Version {
                schema: schema.clone(),
                is_deleted: deleted,
            };
            match versions.insert(version, told) {
                Some(replaced) if Arc::ptr_eq(&replaced.schema, &schema) => {}
                Some(replaced) => self.unuse(&replaced.schema, subject, version),
                None => self.versions_count += 1,
            }
        }
        self.settle(offset, key, counts, found);
        Ok(())
    }

    /// Notes whether a record counted.
    fn settle(&mut self, offset: i64, key: &Key, counts: bool, found: Expected) {
        if counts {
            self.shadowed.remove(key);
            return;
        }
        if found != Expected::Nothing {
            self.shadowed.insert(key.clone());
        }
        self.lost.insert(offset);
        if self.lost.len() > LOST_REMEMBERED {
            self.lost.pop_first();
        }
    }

    fn apply_delete(&mut self, deleted: &DeletedSubject) {
        if let Some(versions) = self.subjects.get_mut(&deleted.subject) {
            for (_, version) in versions.range_mut(..=deleted.version) {
                version.is_deleted = true;
            }
        }
    }

    fn apply_clear(&mut self, subject: &str) {
        let versions = self.subjects.get(subject).into_iter().flatten();
        let gone: Vec<i32> = versions.map(|(version, _)| *version).collect();
        for version in gone {
            self.remove_version(subject, version);
        }
    }

    fn remove_version(&mut self, subject: &str, version: i32) {
        let Some(versions) = self.subjects.get_mut(subject) else {
            return;
        };
        let Some(removed) = versions.remove(&version) else {
            return;
        };
        self.versions_count -= 1;
        if versions.is_empty() {
            self.subjects.remove(subject);
        }
        self.unuse(&removed.schema, subject, version);
    }

    /// Takes a version off a schema, which goes with its last one.
    fn unuse(&mut self, schema: &Arc<Schema>, subject: &str, version: i32) {
        let Some(bound) = self.bound_mut(schema) else {
            return;
        };
        bound.uses.remove(&(subject.to_owned(), version));
        if !bound.uses.is_empty() {
            return;
        }
        let context = self.context_mut(&schema.context);
        context.by_id.remove(&schema.id);
        if context.ids.get(&schema.content) == Some(&schema.id) {
            context.ids.remove(&schema.content);
        }
        self.text_bytes -= schema.content.text.len();
        let named = (schema.guid, schema.context.clone(), schema.id);
        self.guids.remove(&named);
    }

    /// The place of a schema whose id is its own.
    fn bound_mut(&mut self, schema: &Arc<Schema>) -> Option<&mut Bound> {
        let context = self.contexts.get_mut(&schema.context)?;
        let bound = context.by_id.get_mut(&schema.id)?;
        Arc::ptr_eq(&bound.schema, schema).then_some(bound)
    }

    fn context_mut(&mut self, name: &str) -> &mut Context {
        if !self.contexts.contains_key(name) {
            self.contexts.insert(name.into(), Context::default());
        }
        self.contexts
            .get_mut(name)
            .expect("it was put there if it was missing")
    }

    /// Whether the record at an offset was one that lost.
    pub fn has_lost(&self, offset: i64) -> bool {
        self.lost.contains(&offset)
    }

    /// What has to be written again so that no record that lost outlives one that counts.
    pub fn repairs(&self) -> Vec<Entry> {
        let repairs = self.shadowed.iter().filter_map(|key| {
            let Key::Schema {
                subject, version, ..
            } = key
            else {
                return None;
            };
            let found = self.version(subject, *version)?;
            let value = found.value(subject, *version, found.is_deleted);
            Some(Entry::schema(&value, Expected::Id(found.schema.id)))
        });
        repairs.collect()
    }

    /// The bytes under which a key lies in the topic.
    pub fn key_bytes(&self, key: &Key) -> Bytes {
        self.odd_keys
            .get(key)
            .cloned()
            .unwrap_or_else(|| key.bytes())
    }

    /// The names of contexts that hold something.
    pub fn contexts(&self) -> Vec<&str> {
        let used = self.contexts.iter();
        let used =
            used.filter(|(name, context)| &***name != DEFAULT_CONTEXT && !context.by_id.is_empty());
        std::iter::once(DEFAULT_CONTEXT)
            .chain(used.map(|(name, _)| &**name))
            .collect()
    }

    /// The versions of every subject, in the order of names.
    pub fn subjects(&self) -> impl Iterator<Item = (&str, &Versions)> {
        self.subjects.iter().map(|(name, of)| (name.as_str(), of))
    }

    /// The versions of a subject; none when it has none.
    pub fn versions(&self, subject: &str) -> Option<&Versions> {
        self.subjects.get(subject)
    }

    /// A version of a subject, deleted or not.
    pub fn version(&self, subject: &str, version: i32) -> Option<&Version> {
        self.subjects.get(subject)?.get(&version)
    }

    /// Whether the schemas that references from a context mean are there.
    pub fn has_all(&self, context: &str, references: &[Reference]) -> bool {
        references.iter().all(|of| {
            let versions = self.versions(&resolved(context, &of.subject));
            // A version that is none stands for the last one.
            versions.is_some_and(|found| of.version < 0 || found.contains_key(&of.version))
        })
    }

    /// The schema of an id.
    pub fn schema(&self, context: &str, id: i32) -> Option<&Arc<Schema>> {
        let bound = self.contexts.get(context)?.by_id.get(&id)?;
        Some(&bound.schema)
    }

    /// The first context in which a subject of this name has the schema of an id and is seen.
    pub fn context_with(
        &self,
        name: &str,
        id: i32,
        is_seen: impl Fn(&str) -> bool,
    ) -> Option<Arc<str>> {
        let mut having = self.contexts.iter().filter(|(context, of)| {
            let Some(bound) = of.by_id.get(&id) else {
                return false;
            };
            let subject = qualified(context, name);
            let is_seen = is_seen(&subject);
            let uses = (subject.clone(), i32::MIN)..=(subject, i32::MAX);
            is_seen && bound.uses.range(uses).next().is_some()
        });
        having.next().map(|(context, _)| context.clone())
    }

    /// The schema of a GUID in each context that has it, in the order of their names.
    pub fn by_guid(&self, guid: Uuid) -> impl Iterator<Item = &Arc<Schema>> {
        let first = (guid, Arc::from(""), i32::MIN);
        let places = self.guids.range(first..);
        let places = places.take_while(move |(of, ..)| *of == guid);
        places.filter_map(|(_, context, id)| self.schema(context, *id))
    }

    /// The versions of subjects that have an id's schema, deleted or not, in the order of names.
    pub fn uses(&self, context: &str, id: i32) -> impl Iterator<Item = (&str, i32)> {
        let bound = self.contexts.get(context).and_then(|of| of.by_id.get(&id));
        let uses = bound.into_iter().flat_map(|bound| &bound.uses);
        uses.map(|(subject, version)| (subject.as_str(), *version))
    }

    /// The id of a schema.
    pub fn id_of(&self, context: &str, content: &Content) -> Option<i32> {
        self.contexts.get(context)?.ids.get(content).copied()
    }

    /// The highest id that was ever given in a context; 0 before the first.
    pub fn id_max(&self, context: &str) -> i32 {
        self.contexts.get(context).map_or(0, |found| found.id_max)
    }

    /// The highest ids of all contexts, to be kept over compaction.
    pub fn id_maxima(&self) -> NoopValue {
        let maxima = self.contexts.iter();
        let maxima = maxima.map(|(name, context)| (name.to_string(), context.id_max));
        NoopValue {
            id_max: maxima.filter(|(_, id_max)| *id_max > 0).collect(),
        }
    }

    /// How many versions there are, and bytes of their texts.
    pub fn size(&self) -> (usize, usize) {
        (self.versions_count, self.text_bytes)
    }

    /// Versions that are not deleted and name this one, in the order of subjects.
    pub fn referrers(&self, subject: &str, version: i32) -> Vec<&Arc<Schema>> {
        let live = self.subjects.iter().flat_map(|(name, versions)| {
            let live = versions.values().filter(|version| !version.is_deleted);
            live.map(move |version| (name, version))
        });
        let naming = live.filter(|(name, found)| {
            let context = context_of(name);
            let mut references = found.schema.content.references.iter();
            references.any(|of| of.version == version && resolved(context, &of.subject) == subject)
        });
        naming.map(|(_, found)| &found.schema).collect()
    }
}

impl Context {
    /// Gives an id to a schema unless another has it; answers the schema, and whether it is new.
    fn bind(&mut self, context: &Arc<str>, id: i32, content: Content) -> (Arc<Schema>, bool) {
        self.id_max = self.id_max.max(id);
        let schema = |content: Arc<Content>| {
            Arc::new(Schema {
                context: context.clone(),
                id,
                guid: content.guid(),
                content,
            })
        };
        match self.by_id.get(&id) {
            Some(of) if *of.schema.content == content => (of.schema.clone(), false),
            Some(_) => (schema(Arc::new(content)), false),
            None => {
                let content = Arc::new(content);
                let bound = schema(content.clone());
                let (schema, uses) = (bound.clone(), BTreeSet::new());
                self.by_id.insert(id, Bound { schema, uses });
                // Of a schema with two ids, which others may have given, the first goes on.
                self.ids.entry(content).or_insert(id);
                (bound, true)
            }
        }
    }
}

/// The subject that a reference means: one without a context lies in the context of who names it.
pub(super) fn resolved(context: &str, subject: &str) -> String {
    match parts(subject) {
        (DEFAULT_CONTEXT, name) if name == subject => qualified(context, name),
        (found, name) => qualified(found, name),
    }
}

/// Sets or unsets what a record is about.
fn set<T, V: serde::de::DeserializeOwned>(
    of: &mut BTreeMap<Option<String>, T>,
    subject: &Option<String>,
    value: Option<&[u8]>,
    read: impl FnOnce(V) -> T,
) -> Result<(), serde_json::Error> {
    match value {
        Some(value) => {
            let value = serde_json::from_slice(value)?;
            of.insert(subject.clone(), read(value));
        }
        None => {
            of.remove(subject);
        }
    }
    Ok(())
}

/// The number of a subject's next version.
pub(super) fn next_version(versions: Option<&Versions>) -> i32 {
    let last = versions.and_then(|versions| versions.last_key_value());
    last.map_or(1, |(version, _)| version.saturating_add(1))
}

/// The last version that is not deleted.
pub(super) fn last_live(versions: &Versions) -> Option<(i32, &Version)> {
    let mut live = versions
        .iter()
        .rev()
        .filter(|(_, version)| !version.is_deleted);
    live.next().map(|(number, version)| (*number, version))
}

/// The property of metadata that tells the version which has them.
pub(super) const VERSION: &str = "confluent:version";
