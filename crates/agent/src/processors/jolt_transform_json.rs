//! JoltTransformJSON: JSON content in another shape, by Jolt's shift.

use bytes::Bytes;

use super::evaluate_json_path::read_document;
use super::refused::{Refused, taken};
use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings,
};
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::json::Shift;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "JoltTransformJSON",
    description: "Gives JSON content, of up to 64 MB, another shape, by a specification of Jolt's \
                  shift.",
    properties: &[
        PropertyKind::new("Jolt Transformation DSL", "What the specification is of.")
            .default("Shift")
            .allowed(&["Shift"]),
        PropertyKind::new(
            "Jolt Specification",
            "The specification, or the path of a file with it.",
        )
        .required()
        .expressions(Expressions::Once),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles in their new shape.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that are no JSON, or do not fit the specification.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| JoltTransformJson::new(settings).map(|made| Box::new(made) as _),
};

struct JoltTransformJson {
    shift: Shift,
}

impl JoltTransformJson {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let mut text = settings.needed("Jolt Specification")?;
        if !text.trim_start().starts_with(['{', '[']) {
            text = std::fs::read_to_string(text.trim())
                .map_err(|error| format!("Jolt Specification: cannot read {text}: {error}"))?;
        }
        let shift = Shift::parse(&text).map_err(|why| format!("Jolt Specification: {why}"))?;
        Ok(JoltTransformJson { shift })
    }

    fn transform(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &mut FlowFile,
    ) -> Result<(), Refused> {
        let document = read_document(session, flow_file)?;
        let shifted = self.shift.apply(&document).map_err(Refused::FlowFile)?;
        session.write(flow_file, Bytes::from(shifted.to_text()))?;
        Ok(())
    }
}

impl Processor for JoltTransformJson {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for mut flow_file in session.take(BATCH, BATCH_BYTES) {
            let relationship = match taken(context, self.transform(session, &mut flow_file))? {
                Some(()) => SUCCESS,
                None => FAILURE,
            };
            session.transfer(flow_file, relationship);
        }
        Ok(Next::Scheduled)
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// FlowFiles handled in one commit, and bytes of them.
const BATCH: usize = 1_000;
const BATCH_BYTES: u64 = 16 << 20;
