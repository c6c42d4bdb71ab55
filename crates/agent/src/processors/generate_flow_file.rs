//! GenerateFlowFile: FlowFiles out of nothing, for trying a flow and for load.

use std::sync::Arc;

use base::Rng;
use bytes::Bytes;

use super::buffers::Buffers;
use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::content::Content;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::{Attributes, FlowFile};
use crate::limits::{CONTENT_PIECE_BYTES, CONTENT_READ_BYTES_MAX, SESSION_FLOW_FILES_MAX};
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
    buffers: Buffers,
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
        if !is_unique && size > CONTENT_READ_BYTES_MAX {
            return Err(format!(
                "File Size is at most {CONTENT_READ_BYTES_MAX} bytes where Unique FlowFiles is false"
            ));
        }
        if batch > SESSION_FLOW_FILES_MAX {
            return Err(format!("Batch Size is at most {SESSION_FLOW_FILES_MAX}"));
        }
        Ok(GenerateFlowFile {
            size: usize::try_from(size).map_err(|error| error.to_string())?,
            batch,
            buffers: Buffers::default(),
            is_unique,
            custom,
            shared: None,
            pool: Pool::new(is_text),
            attributes: Arc::new(Attributes::default()),
        })
    }

    /// The text of this batch.
    fn text(custom: &Expression, session: &ProcessSession<'_>) -> Result<Bytes, ProcessorError> {
        let scope = crate::expression::Scope {
            attributes: None,
            flow_file: None,
            now: session.now(),
        };
        let text = custom.evaluate(scope);
        let text = text.map_err(|error| ProcessorError::Failed(error.to_string()))?;
        Ok(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// FlowFiles that all have the same content.
    fn share(
        &self,
        session: &mut ProcessSession<'_>,
        bytes: Bytes,
    ) -> Result<Vec<FlowFile>, ProcessorError> {
        if bytes.len() <= CONTENT_PIECE_BYTES {
            let len = bytes.len() as u32;
            let block = session.block(bytes)?;
            let ranges = (0..self.batch).map(|_| (0, len));
            return Ok(session.create_views(&self.attributes, &block, ranges));
        }
        let content = session.content(bytes)?;
        let mut made = Vec::new();
        for _ in 0..self.batch {
            let mut flow_file = session.create(Arc::clone(&self.attributes));
            session.set_content(&mut flow_file, content.clone())?;
            made.push(flow_file);
        }
        Ok(made)
    }

    /// FlowFiles with a content of their own each; small ones view one block.
    fn make(&mut self, session: &mut ProcessSession<'_>) -> Result<Vec<FlowFile>, ProcessorError> {
        let size = self.size;
        let mut made = Vec::new();
        if size > CONTENT_PIECE_BYTES {
            for _ in 0..self.batch {
                let content = self.large(session)?;
                let mut flow_file = session.create(Arc::clone(&self.attributes));
                session.set_content(&mut flow_file, content)?;
                made.push(flow_file);
            }
            return Ok(made);
        }
        let in_block = (CONTENT_PIECE_BYTES / size.max(1)).max(1);
        while made.len() < self.batch {
            let count = in_block.min(self.batch - made.len());
            let bytes = self.contents(size, count);
            let block = session.block(bytes)?;
            // A block is far below 4 GiB.
            let ranges = (0..count).map(|index| ((index * size) as u32, size as u32));
            made.append(&mut session.create_views(&self.attributes, &block, ranges));
        }
        Ok(made)
    }

    fn large(&mut self, session: &mut ProcessSession<'_>) -> Result<Content, ProcessorError> {
        let mut parts = Vec::new();
        let mut left = self.size;
        while left > 0 {
            let len = left.min(CONTENT_PIECE_BYTES);
            let bytes = self.contents(len, 1);
            parts.push(session.content(bytes)?);
            left -= len;
        }
        Ok(Content::join(parts))
    }

    /// Contents of `size` bytes each, one behind the other.
    fn contents(&mut self, size: usize, count: usize) -> Bytes {
        let pool = &mut self.pool;
        self.buffers.bytes(size * count, |bytes| {
            for content in bytes.chunks_exact_mut(size.max(1)) {
                pool.fill(content);
            }
        })
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
        let made = if let Some(custom) = &self.custom {
            let text = Self::text(custom, session)?;
            self.share(session, text)?
        } else if self.is_unique {
            self.make(session)?
        } else {
            let shared = match self.shared.take() {
                Some(shared) => shared,
                None => self.contents(self.size, 1),
            };
            self.shared = Some(shared.clone());
            self.share(session, shared)?
        };
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
        let properties = [("Data Format", "Text"), ("File Size", "5 MB")];
        let mut rig = Rig::new("GenerateFlowFile", &properties);
        rig.trigger().unwrap();
        let out = rig.one("success");
        assert_eq!(out.content.len(), 5 << 20);
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
