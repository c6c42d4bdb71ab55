//! EvaluateJsonPath: what paths find in JSON content, into attributes or as the content.

use std::sync::Arc;

use bytes::Bytes;

use super::refused::{Refused, taken};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::json::{Json, Path};
use crate::limits::CONTENT_READ_BYTES_MAX;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "EvaluateJsonPath",
    description: "Finds values in JSON content, of up to 64 MB: each further property is a path \
                  ($.store.book[0].title) whose value goes into the attribute of its name, or \
                  the only one becomes the content.",
    properties: &[
        PropertyKind::new("Destination", "Where values go.")
            .default("flowfile-attribute")
            .allowed(&["flowfile-content", "flowfile-attribute"]),
        NULL_VALUE,
        PropertyKind::new(
            "Path Not Found Behavior",
            "What becomes of attributes whose path finds nothing: they are empty, with a bulletin \
             or without, or they are left out.",
        )
        .default("ignore")
        .allowed(&["warn", "ignore", "skip"]),
        PropertyKind::new(
            "Return Type",
            "Whether lists and objects are taken; auto-detect takes them as content only.",
        )
        .default("auto-detect")
        .allowed(&["auto-detect", "json", "scalar"]),
    ],
    dynamic: Dynamic::Attributes,
    relationships: &[
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose content is no JSON, or whose values are not as asked.",
        },
        RelationshipKind {
            name: "matched",
            description: "FlowFiles with their values.",
        },
        RelationshipKind {
            name: "unmatched",
            description: "FlowFiles whose path found nothing to be the content.",
        },
    ],
    writes: &[AttributeKind::new(
        "<property>",
        "What the property's path found.",
    )],
    input: Input::Required,
    make: |settings| EvaluateJsonPath::new(settings).map(|made| Box::new(made) as _),
};

/// How a null is written; [`super::split_json`] has it too.
pub(super) const NULL_VALUE: PropertyKind =
    PropertyKind::new("Null Value Representation", "How a null is written.")
        .default("empty string")
        .allowed(&["empty string", "the string 'null'"]);

struct EvaluateJsonPath {
    paths: Vec<(String, Path)>,
    is_content: bool,
    null: &'static str,
    not_found: String,
    takes_trees: bool,
}

/// What became of one FlowFile.
enum Found {
    Matched,
    Unmatched,
}

impl EvaluateJsonPath {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let mut paths = Vec::new();
        for (name, text) in settings.dynamic_texts() {
            let path = Path::parse(&text).map_err(|why| format!("{name}: {why}"))?;
            paths.push((name, path));
        }
        let is_content = settings.needed("Destination")? == "flowfile-content";
        if is_content && paths.len() != 1 {
            return Err(format!(
                "Destination is flowfile-content, so there must be one path; there are {}",
                paths.len()
            ));
        }
        Ok(EvaluateJsonPath {
            paths,
            is_content,
            null: null_text(settings)?,
            not_found: settings.needed("Path Not Found Behavior")?,
            takes_trees: match settings.needed("Return Type")?.as_str() {
                "json" => true,
                "scalar" => false,
                _ => is_content,
            },
        })
    }

    fn evaluate(
        &self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        flow_file: &mut FlowFile,
    ) -> Result<Found, Refused> {
        let document = read_document(session, flow_file)?;
        let mut attributes = Arc::clone(flow_file.attributes());
        for (name, path) in &self.paths {
            let mut found = path.values(&document);
            if found.is_empty() {
                if self.not_found == "warn" {
                    context.post(Level::Warning, &format!("{name}: the path finds nothing"));
                }
                if self.is_content {
                    return Ok(Found::Unmatched);
                }
                if self.not_found != "skip" {
                    Arc::make_mut(&mut attributes).set(name, "");
                }
                continue;
            }
            let is_one = found.len() == 1;
            let is_scalar = is_one && found[0].is_scalar();
            if !self.takes_trees && !is_scalar {
                return Err(Refused::FlowFile(format!(
                    "{name}: the path finds a list, an object or several values: set Return Type \
                     to json"
                )));
            }
            let text = if is_one {
                plain(&found.remove(0), self.null)
            } else {
                Json::List(found).to_text()
            };
            if self.is_content {
                session.write(flow_file, Bytes::from(text))?;
            } else {
                Arc::make_mut(&mut attributes).set(name, text);
            }
        }
        if !self.is_content {
            session.set_attributes(flow_file, attributes);
        }
        Ok(Found::Matched)
    }
}

/// A FlowFile's content as one JSON document.
pub(super) fn read_document(
    session: &ProcessSession<'_>,
    flow_file: &FlowFile,
) -> Result<Json, Refused> {
    if flow_file.size() > CONTENT_READ_BYTES_MAX {
        return Err(Refused::flow_file(format!(
            "the JSON content of {} bytes is larger than {CONTENT_READ_BYTES_MAX}",
            flow_file.size()
        )));
    }
    let content = session.read(flow_file)?;
    Json::from_bytes(&content).map_err(|why| Refused::FlowFile(format!("the content is {why}")))
}

/// How a null is to be written.
pub(super) fn null_text(settings: &Settings<'_>) -> Result<&'static str, String> {
    Ok(match settings.needed(NULL_VALUE.name)?.as_str() {
        "empty string" => "",
        _ => "null",
    })
}

/// A value as text; `null` is what stands for nothing.
pub(super) fn plain(value: &Json, null: &str) -> String {
    match value {
        Json::Null => null.to_owned(),
        other => other.to_plain(),
    }
}

impl Processor for EvaluateJsonPath {
    fn is_concurrent(&self) -> bool {
        true
    }

    fn is_batching(&self) -> bool {
        true
    }

    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for mut flow_file in session.take(BATCH, BATCH_BYTES) {
            let evaluated = self.evaluate(context, session, &mut flow_file);
            let relationship = match taken(context, evaluated)? {
                Some(Found::Matched) => MATCHED,
                Some(Found::Unmatched) => UNMATCHED,
                None => FAILURE,
            };
            session.transfer(flow_file, relationship);
        }
        Ok(Next::Scheduled)
    }
}

const FAILURE: usize = 0;
const MATCHED: usize = 1;
const UNMATCHED: usize = 2;

/// FlowFiles handled in one commit, and bytes of them.
const BATCH: usize = 1_000;
const BATCH_BYTES: u64 = 16 << 20;
