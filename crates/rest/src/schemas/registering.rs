//! New versions of subjects: looked up, held against those before, written.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::around::{Reserved, check_rules};
use super::compatibility::{Earlier, Level, reasons};
use super::error::SchemaError;
use super::format::{EntityTags, ParsedSchema, Policy, SchemaType};
use super::limits::{SCHEMA_BYTES_MAX, TEXTS_BYTES_MAX, TRIES_MAX, VERSIONS_MAX};
use super::parsed::{check_new, parse, retagged, source};
use super::record::{Entry, Expected, Mode, Reference};
use super::state::{
    Content, Schema, State, Versions, last_live, next_version, object_text, resolved,
};
use super::subject::context_of;
use super::{AskedVersion, SchemaRegistry, found_version, not_found};

/// A schema as somebody sent it.
#[derive(Debug)]
pub(super) struct NewSchema {
    pub kind: SchemaType,
    /// None stands for the last version's, beside metadata or rules.
    pub text: Option<String>,
    /// A version of -1 is the last one.
    pub references: Vec<Reference>,
    /// None is the last version's, where there is one; an empty one is none.
    pub metadata: Option<Map<String, Value>>,
    /// The same.
    pub rule_set: Option<Map<String, Value>>,
    /// Changes of tags within the text.
    pub tags: Tags,
    /// For imports alone.
    pub id: Option<i32>,
    /// The same; elsewhere it may only say what would come anyway.
    pub version: Option<i32>,
}

/// Changes of the tags of records and fields, in the order in which they are made.
#[derive(Clone, Debug, Default)]
pub(super) struct Tags {
    /// Whether those of the last version are taken over.
    pub are_taken_over: bool,
    pub added: Vec<EntityTags>,
    pub removed: Vec<EntityTags>,
}

/// A schema that was read, and the form in which it is kept.
#[derive(Clone)]
pub(super) struct Prepared {
    pub content: Content,
    pub parsed: Arc<ParsedSchema>,
}

/// A version that is registered.
pub(super) struct Registered {
    pub id: i32,
    pub schema: Arc<ParsedSchema>,
    pub version: i32,
    pub content: Content,
    /// Whether it is not just as it came, or has something around it.
    pub is_completed: bool,
}

/// Versions of a subject, each with its number.
type Numbered = Vec<(i32, Arc<Schema>)>;

/// What is to be done for a registration.
enum Plan {
    /// Nothing: it has this id and version already.
    Done {
        content: Content,
        id: i32,
        version: i32,
    },
    /// To write a version, when it is as asked; what is imported may be anything.
    Write {
        content: Content,
        id: i32,
        version: i32,
        asked: Option<Asked>,
    },
}

/// What is asked of a new version.
struct Asked {
    level: Level,
    policy: Policy,
    /// Those that it must fit, in their order.
    earlier: Numbered,
    /// None where fields are not looked at.
    reserved: Option<Reserved>,
    /// Whether its defaults must fit.
    is_valid: bool,
}

impl Tags {
    /// Whether anything was asked to be changed.
    pub fn are_changed(&self) -> bool {
        !self.added.is_empty() || !self.removed.is_empty()
    }
}

impl NewSchema {
    /// A schema without anything around it.
    pub fn of(kind: SchemaType, text: &str) -> Self {
        NewSchema {
            kind,
            text: Some(text.to_owned()),
            references: Vec::new(),
            metadata: None,
            rule_set: None,
            tags: Tags::default(),
            id: None,
            version: None,
        }
    }

    /// Takes the text of a subject's last version where only what is around or within it was sent;
    /// says whether it did.
    fn complete(&mut self, state: &State, subject: &str) -> bool {
        let is_around = self.metadata.is_some() || self.rule_set.is_some();
        let is_import = state.mode_of(Some(subject)) == Mode::Import;
        let is_sent = is_around || self.tags.are_changed();
        if self.text.is_some() || !is_sent || is_import {
            return false;
        }
        if let Some((_, last)) = state.versions(subject).and_then(last_live) {
            let content = &last.schema.content;
            self.kind = content.kind;
            self.text = Some(content.text.to_string());
            self.references.clone_from(&content.references);
            return true;
        }
        false
    }
}

impl SchemaRegistry {
    /// Reads a schema and brings it into the form in which it is kept and compared.
    pub(super) async fn prepare(
        &self,
        subject: &str,
        new: &mut NewSchema,
        normalize: bool,
    ) -> Result<Prepared, SchemaError> {
        let text = new.text.as_deref().unwrap_or_default();
        if text.trim().is_empty() {
            return Err(SchemaError::InvalidSchema("it is empty".to_owned()));
        }
        if text.len() > SCHEMA_BYTES_MAX {
            return Err(SchemaError::TooLarge(text.len()));
        }
        if let Some(rule_set) = &new.rule_set {
            check_rules(rule_set)?;
        }
        let context = context_of(subject);
        if !self.log.state().has_all(context, &new.references) {
            // Another process may have registered them just now.
            self.log.catch_up().await?;
        }
        let (source, normalize, earlier) = {
            let state = self.log.state();
            let mut references = std::mem::take(&mut new.references);
            for reference in references.iter_mut().filter(|of| of.version == LAST) {
                let subject = resolved(context, &reference.subject);
                // One that is not there is told by its number, when its text is looked for.
                if let Ok((last, _)) = found_version(&state, &subject, AskedVersion::Last, false) {
                    reference.version = last;
                }
            }
            let content = Content {
                kind: new.kind,
                text: text.into(),
                references,
                metadata: None,
                rule_set: None,
            };
            let source = source(&state, context, &content)?;
            new.references = content.references;
            let last = state.versions(subject).and_then(last_live);
            let last = last.map(|(_, version)| version.schema.clone());
            let is_alike = |last: &Arc<Schema>| last.content.kind == new.kind;
            let last = last.filter(|last| new.tags.are_taken_over && is_alike(last));
            (source, normalize || state.normalizes(subject), last)
        };
        let earlier = match earlier {
            Some(earlier) => Some(self.parse(&earlier).await?),
            None => None,
        };
        let is_retagged = earlier.is_some() || new.tags.are_changed();
        let references = is_retagged.then(|| source.references.clone());
        let mut parsed = parse(source).await?;
        if let Some(references) = references {
            parsed = retagged(&parsed, earlier, &new.tags, references).await?;
        }
        let mut references = std::mem::take(&mut new.references);
        let text: Arc<str> = match normalize {
            true => {
                references.sort_by(|a, b| a.name.cmp(&b.name));
                references.dedup();
                parsed.normalized().into()
            }
            false => parsed.canonical().into(),
        };
        if text.len() > SCHEMA_BYTES_MAX {
            return Err(SchemaError::TooLarge(text.len()));
        }
        let content = Content {
            kind: new.kind,
            text,
            references,
            metadata: object_text(new.metadata.clone()),
            rule_set: object_text(new.rule_set.clone()),
        };
        Ok(Prepared { content, parsed })
    }

    /// Registers a schema unless the subject has it.
    pub(super) async fn register_new(
        &self,
        subject: &str,
        mut new: NewSchema,
        normalize: bool,
    ) -> Result<Registered, SchemaError> {
        let is_completed = new.complete(&self.log.state(), subject) || new.tags.are_changed();
        let Prepared { content, parsed } = self.prepare(subject, &mut new, normalize).await?;
        let _turn = self.writing.lock().await;
        let mut has_all_read = false;
        for _ in 0..TRIES_MAX {
            let plan = self.plan(&self.log.state(), subject, &content, &new);
            if !has_all_read && !matches!(plan, Ok(Plan::Done { .. })) {
                // What is there stays; before anything is written or refused, what others have
                // registered or set just now counts too.
                self.log.catch_up().await?;
                has_all_read = true;
                continue;
            }
            let plan = plan?;
            let registered = |id, version, content: Content| {
                let is_told =
                    is_completed || content.metadata.is_some() || content.rule_set.is_some();
                Registered {
                    id,
                    schema: parsed.clone(),
                    version,
                    is_completed: is_told && new.id.is_none(),
                    content,
                }
            };
            let (content, id, version, asked) = match plan {
                Plan::Done {
                    content,
                    id,
                    version,
                } => return Ok(registered(id, version, content)),
                Plan::Write {
                    content,
                    id,
                    version,
                    asked,
                } => (content, id, version, asked),
            };
            if let Some(asked) = asked {
                let reasons = self.reasons(asked, &parsed).await?;
                if !reasons.is_empty() {
                    let subject = subject.to_owned();
                    return Err(SchemaError::Incompatible { subject, reasons });
                }
            }
            // A version that was deleted for good is nothing; every other is passed over by `plan`.
            let value = content.value(subject, version, id, false);
            let entry = Entry::schema(&value, Expected::Nothing);
            if self.log.write(vec![entry]).await? {
                metrics::counter!("thalweg_schemas_registered_total").increment(1);
                return Ok(registered(id, version, content));
            }
        }
        Err(SchemaError::Contended(TRIES_MAX))
    }

    /// Decides what a registration comes to, by what is known now.
    fn plan(
        &self,
        state: &State,
        subject: &str,
        content: &Content,
        new: &NewSchema,
    ) -> Result<Plan, SchemaError> {
        let context = context_of(subject);
        let versions = state.versions(subject);
        let mode = state.mode_of(Some(subject));
        let is_import = mode == Mode::Import;
        let look = |content: &Content| found_content(versions?, content, false);
        let around = state.around_of(subject);
        let mut content = content.clone();
        // With something to lay over it, what came counts for nothing by itself.
        let as_it_came = is_import || around.is_empty();
        let mut found = as_it_came.then(|| look(&content)).flatten();
        if found.is_none() && !is_import {
            content = around.complete(new, &content, versions);
            found = look(&content);
        }
        if let Some((version, id)) = found
            && new.version.is_none_or(|given| given == version)
        {
            return match new.id {
                Some(given) if given != id => Err(SchemaError::OtherId { found: id, given }),
                _ => Ok(Plan::Done {
                    content,
                    id,
                    version,
                }),
            };
        }
        check_mode(subject, mode, new)?;
        let (versions_count, bytes) = state.size();
        if versions_count >= VERSIONS_MAX || bytes + content.text.len() > TEXTS_BYTES_MAX {
            let text = format!("{versions_count} versions of {bytes} bytes are all that fit");
            return Err(SchemaError::Limit(text));
        }
        let next = next_version(versions);
        let version = new.version.unwrap_or(next);
        if !is_import {
            content.tell_version(version, new.tags.are_changed());
        }
        let id = match (new.id, state.id_of(context, &content)) {
            (Some(given), Some(found)) if given != found => {
                return Err(SchemaError::OtherId { found, given });
            }
            (Some(given), None) if state.schema(context, given).is_some() => {
                let text = format!("the id {given} is another schema's, which cannot be replaced");
                return Err(SchemaError::NotPermitted(text));
            }
            (Some(given), _) => given,
            (None, Some(found)) => found,
            (None, None) => state.id_max(context).saturating_add(1),
        };
        if state.version(subject, version).is_some() || !is_import && version != next {
            let text = format!(
                "version {version} of subject '{subject}' cannot be written; {next} is next"
            );
            return Err(SchemaError::NotPermitted(text));
        }
        let asked = match is_import {
            true => None,
            false => Some(self.asked(state, subject, &content, None)),
        };
        Ok(Plan::Write {
            content,
            id,
            version,
            asked,
        })
    }

    /// What is asked of a new version of a subject, compared with those that its compatibility is
    /// about or with `against`.
    fn asked(
        &self,
        state: &State,
        subject: &str,
        content: &Content,
        against: Option<Numbered>,
    ) -> Asked {
        let versions = state.versions(subject);
        let level = state.level_of(Some(subject), self.config.compatibility);
        let group = state.group_of(Some(subject));
        let earlier = match against {
            None => earlier(versions, level, group.as_deref(), content),
            Some(mut against) => {
                against.retain(|(_, old)| are_alike(group.as_deref(), content, &old.content));
                against
            }
        };
        let validates = state.validates_fields(subject);
        Asked {
            level,
            policy: state.policy_of(subject),
            earlier,
            reserved: validates.then(|| Reserved::of(content, versions)),
            is_valid: state.validates_new(subject),
        }
    }

    /// Why a schema may not be a new version.
    ///
    /// # Errors
    /// It cannot be one anywhere.
    async fn reasons(
        &self,
        asked: Asked,
        new: &Arc<ParsedSchema>,
    ) -> Result<Vec<String>, SchemaError> {
        if asked.is_valid {
            check_new(new).await?;
        }
        let mut found = Vec::new();
        if let Some(reserved) = &asked.reserved {
            let mut names = new.field_names().into_iter();
            if let Some(name) = names.find(|name| name.starts_with(OWN_FIELD)) {
                let shown: String = name.chars().take(FIELD_SHOWN).collect();
                let text = format!("the field '{shown}' begins with {OWN_FIELD}");
                return Err(SchemaError::InvalidSchema(text));
            }
            found = reserved.reasons(new);
        }
        let mut parsed = Vec::new();
        if asked.level != Level::None {
            for (version, schema) in asked.earlier {
                let schema = self.parse(&schema).await?;
                parsed.push(Earlier { version, schema });
            }
        }
        let new = new.clone();
        let (level, policy) = (asked.level, asked.policy);
        let compared =
            tokio::task::spawn_blocking(move || reasons(level, policy, &new, &parsed)).await;
        let broken = |_| SchemaError::InvalidSchema("comparing it broke off".to_owned());
        found.extend(compared.map_err(broken)?);
        Ok(found)
    }

    /// Why a schema may not follow a version of a subject, or those that its compatibility is
    /// about.
    pub(super) async fn compare(
        &self,
        subject: &str,
        mut new: NewSchema,
        against: Option<AskedVersion>,
        normalize: bool,
    ) -> Result<Vec<String>, SchemaError> {
        let against = match against {
            None => None,
            Some(asked) => match found_version(&self.log.state(), subject, asked, false) {
                Ok((number, version)) => Some(vec![(number, version.schema)]),
                // A subject's first schema fits.
                Err(_) if asked == AskedVersion::Last => Some(Vec::new()),
                Err(SchemaError::SubjectNotFound(_)) => return Err(not_found(subject, asked)),
                Err(error) => return Err(error),
            },
        };
        let Prepared { content, parsed } = self.prepare(subject, &mut new, normalize).await?;
        let asked = {
            let state = self.log.state();
            let around = state.around_of(subject);
            let content = around.complete(&new, &content, state.versions(subject));
            self.asked(&state, subject, &content, against)
        };
        self.reasons(asked, &parsed).await
    }

    /// The version and id under which a subject has a schema.
    pub(super) async fn look_up(
        &self,
        subject: &str,
        mut new: NewSchema,
        normalize: bool,
        with_deleted: bool,
    ) -> Result<(i32, super::Version), SchemaError> {
        let prepared = self.prepare(subject, &mut new, normalize).await;
        let state = self.log.state();
        found_version(&state, subject, AskedVersion::Last, with_deleted)?;
        let content = prepared?.content;
        let versions = state.versions(subject);
        let look = |content: &Content| found_content(versions?, content, with_deleted);
        let completed = || state.around_of(subject).complete(&new, &content, versions);
        let found = look(&content).or_else(|| look(&completed()));
        let (number, _) = found.ok_or_else(|| {
            SchemaError::SchemaNotFound(format!("subject '{subject}' has no version of it"))
        })?;
        found_version(&state, subject, AskedVersion::Number(number), true)
    }
}

/// Whether a subject takes new versions, sent with an id or without.
fn check_mode(subject: &str, mode: Mode, new: &NewSchema) -> Result<(), SchemaError> {
    match mode {
        Mode::Import if new.id.is_some() => Ok(()),
        Mode::Import => Err(SchemaError::NotPermitted(format!(
            "subject '{subject}' is in mode IMPORT: a schema needs its id"
        ))),
        Mode::Readwrite if new.id.is_some() => Err(SchemaError::NotPermitted(format!(
            "subject '{subject}' is not in mode IMPORT: a schema gets its id from the registry"
        ))),
        Mode::Readwrite => Ok(()),
        Mode::Readonly | Mode::ReadonlyOverride => Err(super::settings::read_only(subject)),
    }
}

/// The newest version that has a schema, with its id; one that is not deleted before all.
fn found_content(versions: &Versions, content: &Content, with_deleted: bool) -> Option<(i32, i32)> {
    let same = |(_, version): &(&i32, &super::Version)| *version.schema.content == *content;
    let mut live = versions
        .iter()
        .rev()
        .filter(|(_, version)| !version.is_deleted);
    let deleted = || versions.iter().rev().filter(|_| with_deleted).find(same);
    let (number, version) = live.find(same).or_else(deleted)?;
    Some((*number, version.schema.id))
}

/// The versions that a new one is held against.
fn earlier(
    versions: Option<&Versions>,
    level: Level,
    group: Option<&str>,
    new: &Content,
) -> Numbered {
    let all = versions.into_iter().flatten().rev();
    let held_against =
        all.filter(|(_, old)| !old.is_deleted && are_alike(group, new, &old.schema.content));
    let count = match level.asks_last_only() {
        true => 1,
        false => usize::MAX,
    };
    let newest = held_against.take(count);
    let mut earlier: Numbered = newest.map(|(n, of)| (*n, of.schema.clone())).collect();
    earlier.reverse();
    earlier
}

/// Whether two schemas are compared: where a group is set, those that have its property alike.
fn are_alike(group: Option<&str>, new: &Content, old: &Content) -> bool {
    group.is_none_or(|group| new.property(group) == old.property(group))
}

/// How names of fields begin that are the registry's own, where fields are looked at.
const OWN_FIELD: &str = "$$";

/// How much of such a name is repeated, in characters.
const FIELD_SHOWN: usize = 100;

/// A reference's version that stands for the last one.
const LAST: i32 = -1;
