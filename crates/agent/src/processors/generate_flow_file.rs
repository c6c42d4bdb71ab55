//! GenerateFlowFile: FlowFiles out of nothing, for trying a flow and for load.

use std::sync::Arc;

use base::Rng;
use bytes::Bytes;

use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::Attributes;
use crate::limits::{SESSION_CONTENT_BYTES_MAX, SESSION_FLOW_FILES_MAX};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "GenerateFlowFile",
    description: "Makes FlowFiles with random or given content.",
    properties: &[
        PropertyKind::new(
            "File Size",
            "Bytes of each FlowFile; not used with Custom Text.",
        )
        .default("1 kB")
        .shape(Shape::Size),
        PropertyKind::new("Batch Size", "FlowFiles made at a time.")
            .default("1")
            .shape(Shape::Integer(1)),
        PropertyKind::new(
            "Data Format",
            "Whether random content is text or any bytes.",
        )
        .default("Binary")
        .allowed(&["Binary", "Text"]),
        PropertyKind::new(
            "Unique FlowFiles",
            "Whether each FlowFile has content of its own; otherwise all share one.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Custom Text",
            "The content, in place of random content: Data Format must be Text and Unique \
             FlowFiles false. Expressions are evaluated for each batch.",
        )
        .expressions(Expressions::Once),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "Every FlowFile made.",
    }],
    writes: &[],
    input: Input::Forbidden,
    make: |settings| GenerateFlowFile::new(settings).map(|made| Box::new(made) as _),
};

struct GenerateFlowFile {
    size: usize,
    batch: usize,
    is_text: bool,
    is_unique: bool,
    custom: Option<Expression>,
    shared: Option<Bytes>,
    random: Rng,
    attributes: Arc<Attributes>,
}

impl GenerateFlowFile {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let size = settings.size("File Size")?;
        let batch: usize = settings.integer("Batch Size")?;
        let is_unique = settings.flag("Unique FlowFiles")?;
        let is_text = settings.needed("Data Format")? == "Text";
        let custom = settings.expression("Custom Text")?;
        if custom.is_some() && (is_unique || !is_text) {
            return Err("Custom Text needs Data Format Text and Unique FlowFiles false".to_owned());
        }
        let count = if is_unique { batch as u64 } else { 1 };
        if size.saturating_mul(count) > SESSION_CONTENT_BYTES_MAX as u64 {
            return Err(format!(
                "{count} times {size} bytes are more than one session takes \
                 ({SESSION_CONTENT_BYTES_MAX}); make File Size or Batch Size smaller"
            ));
        }
        if batch > SESSION_FLOW_FILES_MAX {
            return Err(format!("Batch Size is at most {SESSION_FLOW_FILES_MAX}"));
        }
        Ok(GenerateFlowFile {
            size: usize::try_from(size).map_err(|error| error.to_string())?,
            batch,
            is_text,
            is_unique,
            custom,
            shared: None,
            random: Rng::from_entropy(),
            attributes: Arc::new(Attributes::default()),
        })
    }

    fn content(&mut self, len: usize) -> Bytes {
        let mut bytes = vec![0; len];
        self.random.fill(&mut bytes);
        if self.is_text {
            for byte in &mut bytes {
                *byte = TEXT[usize::from(*byte) % TEXT.len()];
            }
        }
        Bytes::from(bytes)
    }
}

impl Processor for GenerateFlowFile {
    fn trigger(
        &mut self,
        _context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let each = if let Some(custom) = &self.custom {
            let scope = crate::expression::Scope {
                attributes: None,
                flow_file: None,
                now: session.now(),
            };
            let text = custom
                .evaluate(scope)
                .map_err(|error| ProcessorError::Failed(error.to_string()))?;
            let bytes = Bytes::copy_from_slice(text.as_bytes());
            let len = bytes.len();
            (bytes, len, 0)
        } else if self.is_unique {
            (self.content(self.size * self.batch), self.size, self.size)
        } else {
            if self.shared.is_none() {
                self.shared = Some(self.content(self.size));
            }
            (self.shared.clone().unwrap_or_default(), self.size, 0)
        };
        let (bytes, len, step) = each;
        let block = session.block(bytes)?;
        // Bounded by what one session takes, far below 4 GiB.
        let ranges = (0..self.batch).map(|index| ((index * step) as u32, len as u32));
        let made = session.create_views(&self.attributes, &block, ranges);
        session.transfer_all(made, 0);
        Ok(Next::Scheduled)
    }
}

const TEXT: &[u8] =
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!@#$%^&*()-_=+/?.,';: ";
