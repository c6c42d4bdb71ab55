//! Schemas in their parsed form: with what they name, and kept while they are wanted.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::RwLock;

use super::SchemaRegistry;
use super::error::SchemaError;
use super::format::{NamedSource, ParsedSchema, SchemaFault, SchemaSource, SchemaType};
use super::limits::{PARSED_BYTES_MAX, PARSED_MAX, REFERENCES_MAX};
use super::record::Reference;
use super::registering::Tags;
use super::state::{Content, Schema, State, resolved};

/// Parsed schemas by context and id; those that came first go first.
#[derive(Default)]
pub(super) struct Parsed {
    kept: RwLock<Kept>,
}

/// A context's schemas, each with its bytes.
type ById = HashMap<i32, (Arc<ParsedSchema>, usize)>;

#[derive(Default)]
struct Kept {
    contexts: HashMap<Arc<str>, ById>,
    order: VecDeque<(Arc<str>, i32)>,
    bytes: usize,
}

impl Parsed {
    /// A schema that was parsed lately.
    pub fn known(&self, context: &str, id: i32) -> Option<Arc<ParsedSchema>> {
        let kept = self.kept.read();
        let (schema, _) = kept.contexts.get(context)?.get(&id)?;
        Some(schema.clone())
    }

    fn keep(&self, schema: &Schema, parsed: Arc<ParsedSchema>) {
        let mut kept = self.kept.write();
        let kept = &mut *kept;
        let bytes = schema.content.text.len();
        let ids = kept.contexts.entry(schema.context.clone()).or_default();
        if ids.insert(schema.id, (parsed, bytes)).is_some() {
            return;
        }
        kept.order.push_back((schema.context.clone(), schema.id));
        kept.bytes += bytes;
        while kept.order.len() > PARSED_MAX || kept.bytes > PARSED_BYTES_MAX {
            let Some((context, id)) = kept.order.pop_front() else {
                return;
            };
            let ids = kept.contexts.get_mut(&context);
            let gone = ids.and_then(|ids| ids.remove(&id));
            kept.bytes -= gone.map_or(0, |(_, bytes)| bytes);
        }
    }
}

impl SchemaRegistry {
    /// The parsed form of a registered schema.
    pub(super) async fn parse(&self, schema: &Schema) -> Result<Arc<ParsedSchema>, SchemaError> {
        if let Some(known) = self.parsed.known(&schema.context, schema.id) {
            return Ok(known);
        }
        let source = source(&self.log.state(), &schema.context, &schema.content)?;
        let parsed = parse(source).await?;
        // A schema whose id is another's is nobody's by id.
        let state = self.log.state();
        let owner = state.schema(&schema.context, schema.id);
        if owner.is_some_and(|owner| owner.content == schema.content) {
            self.parsed.keep(schema, parsed.clone());
        }
        Ok(parsed)
    }

    /// A schema's text in another format; none for the usual one, and where there is no such format
    /// for it.
    pub(super) async fn formatted(
        &self,
        schema: &Schema,
        format: Option<&str>,
    ) -> Result<Option<String>, SchemaError> {
        let is_wanted = format == Some(SERIALIZED) && schema.content.kind == SchemaType::Protobuf;
        match is_wanted {
            true => Ok(self.parse(schema).await?.serialized()),
            false => Ok(None),
        }
    }
}

/// Reads a schema.
pub(super) async fn parse(source: SchemaSource) -> Result<Arc<ParsedSchema>, SchemaError> {
    aside(move || ParsedSchema::parse(&source).map(Arc::new)).await
}

/// A schema with other tags: with those of an earlier one, and then as they were asked to change.
pub(super) async fn retagged(
    parsed: &Arc<ParsedSchema>,
    earlier: Option<Arc<ParsedSchema>>,
    tags: &Tags,
    references: Vec<NamedSource>,
) -> Result<Arc<ParsedSchema>, SchemaError> {
    let (mut parsed, tags) = (Arc::clone(parsed), tags.clone());
    aside(move || {
        let kind = parsed.kind();
        let again = |text: String| {
            ParsedSchema::parse(&SchemaSource {
                kind,
                text: text.into(),
                references: references.clone(),
            })
        };
        if let Some(earlier) = earlier {
            parsed = Arc::new(again(parsed.with_tags_of(&earlier)?)?);
        }
        if tags.are_changed() {
            parsed = Arc::new(again(parsed.tagged(&tags.added, &tags.removed)?)?);
        }
        Ok(parsed)
    })
    .await
}

/// Refuses a schema that cannot be a new one.
pub(super) async fn check_new(parsed: &Arc<ParsedSchema>) -> Result<(), SchemaError> {
    let parsed = Arc::clone(parsed);
    aside(move || parsed.check_defaults()).await
}

/// Works away from the threads that serve: a large schema takes its time.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SchemaFault> + Send + 'static,
) -> Result<T, SchemaError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_or_else(
        |_| {
            Err(SchemaError::InvalidSchema(
                "reading it broke off".to_owned(),
            ))
        },
        |done| done.map_err(|fault| SchemaError::InvalidSchema(base::report(&fault))),
    )
}

/// A schema's text with all that it rests on, dependencies first.
///
/// # Errors
/// A reference leads nowhere, or there are too many.
pub(super) fn source(
    state: &State,
    context: &str,
    content: &Content,
) -> Result<SchemaSource, SchemaError> {
    let mut sources = Sources {
        state,
        found: Vec::new(),
        seen: HashSet::new(),
    };
    sources.add(context, &content.references)?;
    Ok(SchemaSource {
        kind: content.kind,
        text: content.text.clone(),
        references: sources.found,
    })
}

struct Sources<'a> {
    state: &'a State,
    found: Vec<NamedSource>,
    seen: HashSet<(String, i32)>,
}

impl Sources<'_> {
    /// Adds what a schema names, each once, after what that names. Goes no deeper than there are
    /// schemas in the bound, and never round.
    fn add(&mut self, context: &str, references: &[Reference]) -> Result<(), SchemaError> {
        for reference in references {
            let subject = resolved(context, &reference.subject);
            let version = reference.version;
            if !self.seen.insert((subject.clone(), version)) {
                continue;
            }
            if self.seen.len() > REFERENCES_MAX {
                let text = format!("it rests on more than {REFERENCES_MAX} schemas");
                return Err(SchemaError::InvalidSchema(text));
            }
            // Who named a version before it was soft-deleted goes on to do so.
            let found = self.state.version(&subject, version).ok_or_else(|| {
                let name = &reference.name;
                SchemaError::InvalidSchema(format!(
                    "it names '{name}' as version {version} of subject '{subject}', which is not there"
                ))
            })?;
            let schema = found.schema.clone();
            self.add(&schema.context, &schema.content.references)?;
            self.found.push(NamedSource {
                name: reference.name.clone(),
                text: schema.content.text.clone(),
            });
        }
        Ok(())
    }
}

/// The format that is a Protobuf schema's descriptor in base64.
pub(super) const SERIALIZED: &str = "serialized";
