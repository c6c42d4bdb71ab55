//! AttributesToJSON: attributes as a JSON object, in an attribute or as the content.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::json::{Fields, Json};
use crate::patterns;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "AttributesToJSON",
    description: "Writes attributes as a JSON object of texts, sorted by name.",
    properties: &[
        PropertyKind::new(
            "Attributes List",
            "Names of attributes with commas in between; all attributes, where neither this nor \
             the pattern is set.",
        ),
        PropertyKind::new(
            "Attributes Regular Expression",
            "A pattern; attributes whose whole name it matches are taken too.",
        ),
        PropertyKind::new(
            "Destination",
            "Whether the object is the attribute 'JSONAttributes' or the content.",
        )
        .default("flowfile-attribute")
        .allowed(&["flowfile-attribute", "flowfile-content"]),
        PropertyKind::new(
            "Include Core Attributes",
            "Whether filename, path, absolute.path, uuid, mime.type, priority and discard.reason \
             are taken.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Null Value",
            "Whether a listed attribute that is not there is null, and not the empty text.",
        )
        .default("false")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "All FlowFiles.",
    }],
    writes: &[AttributeKind::new(
        "JSONAttributes",
        "The object, where it is not the content.",
    )],
    input: Input::Required,
    make: |settings| AttributesToJson::new(settings).map(|made| Box::new(made) as _),
};

struct AttributesToJson {
    listed: Vec<String>,
    pattern: Option<regex::Regex>,
    is_content: bool,
    takes_core: bool,
    missing: Json,
}

impl AttributesToJson {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let listed = settings.text("Attributes List")?.unwrap_or_default();
        let names = listed.split(',').map(str::trim);
        let pattern = settings.text("Attributes Regular Expression")?;
        let pattern = pattern.map(|text| {
            patterns::whole_text(&text)
                .map_err(|why| format!("Attributes Regular Expression: {why}"))
        });
        Ok(AttributesToJson {
            listed: names
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            pattern: pattern.transpose()?,
            is_content: settings.needed("Destination")? == "flowfile-content",
            takes_core: settings.flag("Include Core Attributes")?,
            missing: if settings.flag("Null Value")? {
                Json::Null
            } else {
                Json::Text(String::new())
            },
        })
    }

    fn object(&self, attributes: &Attributes, uuid: String) -> Json {
        let takes_all = self.listed.is_empty() && self.pattern.is_none();
        let matches = |name: &str| {
            takes_all
                || self
                    .pattern
                    .as_ref()
                    .is_some_and(|pattern| pattern.is_match(name))
        };
        let mut taken: BTreeMap<&str, Json> = BTreeMap::new();
        for name in &self.listed {
            taken.insert(name, self.missing.clone());
        }
        let own = [("uuid", uuid.as_str())];
        let all = attributes.iter().chain(own);
        for (name, value) in all {
            if matches(name) || taken.contains_key(name) {
                taken.insert(name, Json::Text(value.to_owned()));
            }
        }
        let kept = taken
            .into_iter()
            .filter(|(name, _)| self.takes_core || !CORE.contains(name));
        let fields: Fields = kept.map(|(name, value)| (name.to_owned(), value)).collect();
        Json::Object(fields)
    }
}

impl Processor for AttributesToJson {
    fn is_concurrent(&self) -> bool {
        true
    }

    fn is_batching(&self) -> bool {
        true
    }

    fn trigger(
        &mut self,
        _context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for mut flow_file in session.take(BATCH, u64::MAX) {
            let uuid = session.uuid(&flow_file);
            let text = self
                .object(&session.all_attributes(&flow_file), uuid)
                .to_text();
            if self.is_content {
                session.write(&mut flow_file, Bytes::from(text))?;
            } else {
                let mut attributes = Arc::clone(flow_file.attributes());
                Arc::make_mut(&mut attributes).set("JSONAttributes", text);
                session.set_attributes(&mut flow_file, attributes);
            }
            session.transfer(flow_file, SUCCESS);
        }
        Ok(Next::Scheduled)
    }
}

const SUCCESS: usize = 0;

/// FlowFiles handled in one commit.
const BATCH: usize = 1_000;

/// Attributes that MiNiFi counts as a FlowFile's own.
const CORE: [&str; 7] = [
    "filename",
    "path",
    "absolute.path",
    "uuid",
    "mime.type",
    "priority",
    "discard.reason",
];
