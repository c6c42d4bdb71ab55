//! SplitJson: the items of a list in JSON content as FlowFiles of their own.

use std::sync::Arc;

use bytes::Bytes;

use super::evaluate_json_path::{NULL_VALUE, null_text, plain, read_document};
use super::fragments::{self, Fragments};
use super::refused::{Refused, taken};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings,
};
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::json::{Json, Path};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "SplitJson",
    description: "Splits the items of a list in JSON content, of up to 64 MB, into FlowFiles.",
    properties: &[
        PropertyKind::new(
            "JsonPath Expression",
            "The path of the list ($.items), or one that finds several values ($..name).",
        )
        .required(),
        NULL_VALUE,
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that are no JSON, or have no list there.",
        },
        RelationshipKind {
            name: "original",
            description: "FlowFiles that were split.",
        },
        RelationshipKind {
            name: "split",
            description: "The items.",
        },
    ],
    writes: &[
        AttributeKind::new("filename", "A random UUID for each item."),
        fragments::IDENTIFIER,
        fragments::INDEX,
        fragments::COUNT,
        fragments::ORIGINAL,
    ],
    input: Input::Required,
    make: |settings| SplitJson::new(settings).map(|made| Box::new(made) as _),
};

struct SplitJson {
    path: Path,
    null: &'static str,
}

impl SplitJson {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let path = settings.needed("JsonPath Expression")?;
        Ok(SplitJson {
            path: Path::parse(&path).map_err(|why| format!("JsonPath Expression: {why}"))?,
            null: null_text(settings)?,
        })
    }

    fn split(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &mut FlowFile,
    ) -> Result<(), Refused> {
        let document = read_document(session, flow_file)?;
        let mut found = self.path.values(&document);
        drop(document);
        let items = match found.len() {
            0 => return Err(Refused::flow_file("the path finds nothing in the content")),
            1 => match found.remove(0) {
                Json::List(items) => items,
                _ => {
                    return Err(Refused::flow_file(
                        "the path finds something that is no list",
                    ));
                }
            },
            _ => found,
        };
        let mut fragments = Fragments::of(session, flow_file);
        for item in items {
            let text = plain(&item, self.null);
            let content = session.content(Bytes::from(text))?;
            let filename = uuid::Uuid::new_v4().to_string();
            fragments.push(content, vec![("filename", filename)])?;
        }
        let mut attributes = Arc::clone(flow_file.attributes());
        let changed = Arc::make_mut(&mut attributes);
        changed.set(fragments::IDENTIFIER.name, fragments.identifier.as_str());
        changed.set(fragments::COUNT.name, fragments.len().to_string());
        // Items count from zero, as MiNiFi's do here.
        fragments.send(session, flow_file, 0, SPLIT)?;
        session.set_attributes(flow_file, attributes);
        Ok(())
    }
}

impl Processor for SplitJson {
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
        let Some(mut flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        match taken(context, self.split(session, &mut flow_file))? {
            Some(()) => session.transfer(flow_file, ORIGINAL),
            None => session.transfer(flow_file, FAILURE),
        }
        Ok(Next::Scheduled)
    }
}

const FAILURE: usize = 0;
const ORIGINAL: usize = 1;
const SPLIT: usize = 2;
