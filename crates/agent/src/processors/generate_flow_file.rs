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
    is_unique: bool,
    custom: Option<Expression>,
    shared: Option<Bytes>,
    pool: Pool,
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
            is_unique,
            custom,
            shared: None,
            pool: Pool::new(is_text),
            attributes: Arc::new(Attributes::default()),
        })
    }

    /// Contents of `size` bytes each, one behind the other.
    fn contents(&mut self, count: usize) -> Bytes {
        let mut bytes = vec![0; self.size * count];
        for content in bytes.chunks_exact_mut(self.size.max(1)) {
            self.pool.fill(content);
        }
        Bytes::from(bytes)
    }
}

/// Random bytes that are made once and copied from ever new places: as fast as memory, and no two
/// contents of a few bytes or more are equal.
struct Pool {
    bytes: Vec<u8>,
    random: Rng,
    is_text: bool,
}

impl Pool {
    fn new(is_text: bool) -> Self {
        let mut pool = Pool {
            bytes: Vec::new(),
            random: Rng::from_entropy(),
            is_text,
        };
        let mut bytes = vec![0; POOL_BYTES];
        pool.fresh(&mut bytes);
        pool.bytes = bytes;
        pool
    }

    fn fill(&mut self, content: &mut [u8]) {
        let (head, mut rest) = content.split_at_mut(content.len().min(FRESH_BYTES));
        self.fresh(head);
        let mut from = self.random.below(POOL_BYTES as u64) as usize;
        while !rest.is_empty() {
            let len = rest.len().min(POOL_BYTES - from);
            let (part, further) = rest.split_at_mut(len);
            part.copy_from_slice(&self.bytes[from..from + len]);
            (rest, from) = (further, 0);
        }
    }

    fn fresh(&mut self, bytes: &mut [u8]) {
        self.random.fill(bytes);
        if self.is_text {
            for byte in bytes {
                *byte = TEXT[usize::from(*byte) % TEXT.len()];
            }
        }
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
            (self.contents(self.batch), self.size, self.size)
        } else {
            if self.shared.is_none() {
                self.shared = Some(self.contents(1));
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

/// Random bytes that are kept; they stay in the processor's cache.
const POOL_BYTES: usize = 256 << 10;

/// Bytes at the start of each content that are its own.
const FRESH_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::testing::Rig;

    #[test]
    fn contents_are_unique_or_one_as_asked() {
        for (unique, distinct) in [("true", 40), ("false", 1)] {
            let properties = [("Unique FlowFiles", unique), ("Batch Size", "20")];
            let mut rig = Rig::new("GenerateFlowFile", &properties);
            rig.trigger().unwrap();
            rig.trigger().unwrap();
            let out = rig.out("success");
            let contents: HashSet<Bytes> = out.iter().map(|out| out.content.clone()).collect();
            assert_eq!((out.len(), contents.len()), (40, distinct), "{unique}");
            assert!(out.iter().all(|out| out.content.len() == 1_024));
        }
    }

    #[test]
    fn text_is_text_and_longer_than_the_pool_is_whole() {
        let properties = [("Data Format", "Text"), ("File Size", "600 KB")];
        let mut rig = Rig::new("GenerateFlowFile", &properties);
        rig.trigger().unwrap();
        let out = rig.one("success");
        assert_eq!(out.content.len(), 600 << 10);
        assert!(out.content.iter().all(|byte| TEXT.contains(byte)));
        let mut rig = Rig::new("GenerateFlowFile", &[("File Size", "0 B")]);
        rig.trigger().unwrap();
        assert_eq!(rig.one("success").content.len(), 0);
    }

    #[test]
    fn custom_text_is_evaluated_each_time() {
        let properties = [
            ("Data Format", "Text"),
            ("Unique FlowFiles", "false"),
            ("Custom Text", "at ${now()}"),
        ];
        let mut rig = Rig::new("GenerateFlowFile", &properties);
        let before = format!("at {}", rig.now());
        rig.trigger().unwrap();
        rig.advance(std::time::Duration::from_millis(1));
        let after = format!("at {}", rig.now());
        rig.trigger().unwrap();
        let out = rig.out("success");
        let texts = (out[0].text(), out[1].text());
        assert_eq!(texts, (before.as_str(), after.as_str()));
    }

    #[test]
    fn custom_text_needs_its_companions() {
        let made = Rig::try_new(
            "GenerateFlowFile",
            &[("Custom Text", "x")],
            serde_json::json!({}),
        );
        assert!(made.err().unwrap().contains("needs Data Format Text"));
    }
}
