//! SegmentContent: pieces of content of a size, as views of the content that is there.

use super::fragments::{self, Fragments};
use super::refused::Refused;
use super::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings,
};
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::session::ProcessSession;
use crate::units;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "SegmentContent",
    description: "Splits content into segments of a size. Segments are views of the content: no \
                  byte is copied. What is small enough becomes one segment.",
    properties: &[PropertyKind::new(
        "Segment Size",
        "Bytes of each segment at most (1024, 1 KB).",
    )
    .required()
    .expressions(Expressions::FlowFile)],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "original",
            description: "FlowFiles that were segmented.",
        },
        RelationshipKind {
            name: "segments",
            description: "The segments.",
        },
    ],
    writes: &[
        AttributeKind::new("fragment.identifier", "The UUID of the FlowFile."),
        fragments::INDEX,
        fragments::COUNT,
        fragments::ORIGINAL,
    ],
    input: Input::Required,
    make: |settings| SegmentContent::new(settings).map(|made| Box::new(made) as _),
};

struct SegmentContent {
    size: Expression,
}

impl SegmentContent {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let size = settings
            .expression("Segment Size")?
            .ok_or("Segment Size is empty")?;
        if let Some(text) = size.as_literal() {
            segment_size(text)?;
        }
        Ok(SegmentContent { size })
    }

    fn segment(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(), Refused> {
        let text = self.size.evaluate(session.scope(flow_file))?;
        let size = segment_size(&text).map_err(Refused::FlowFile)?;
        let mut fragments = Fragments::of(session, flow_file);
        fragments.identifier = session.uuid(flow_file);
        let mut offset = 0;
        loop {
            fragments.push(flow_file.content().slice(offset, size), Vec::new())?;
            offset += size;
            if offset >= flow_file.size() {
                break;
            }
        }
        fragments.send(session, flow_file, 1, SEGMENTS)?;
        Ok(())
    }
}

fn segment_size(text: &str) -> Result<u64, String> {
    units::size(text)
        .filter(|size| *size > 0)
        .ok_or_else(|| format!("Segment Size: '{text}' is no size above zero"))
}

impl Processor for SegmentContent {
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
        let Some(flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        match self.segment(session, &flow_file) {
            Ok(()) => session.transfer(flow_file, ORIGINAL),
            // MiNiFi's processor has no way for failures: it waits until the flow is mended.
            Err(Refused::FlowFile(reason)) => return Err(ProcessorError::Failed(reason)),
            Err(Refused::Session(error)) => return Err(error),
        }
        Ok(Next::Scheduled)
    }
}

const ORIGINAL: usize = 0;
const SEGMENTS: usize = 1;
