//! Streams of content, for the time being in memory.

use std::io::{self, Cursor, Write};
use std::sync::Arc;

use bytes::Bytes;

use super::ProcessSession;
use crate::flowfile::{Attributes, FlowFile, View};
use crate::processors::ProcessorError;
use crate::provenance::EventKind;
use crate::repository::Commit;

#[derive(Clone, Debug, Default)]
pub struct Content(Option<View>);

impl Content {
    pub fn slice(&self, offset: u64, len: u64) -> Content {
        Content(self.0.clone().map(|view| View {
            offset: view.offset + offset as u32,
            len: len as u32,
            ..view
        }))
    }
}

pub struct ContentWriter<'s, 'n>(&'s mut ProcessSession<'n>, Vec<u8>);

impl Write for ContentWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ContentWriter<'_, '_> {
    pub fn finish(self) -> Result<Content, ProcessorError> {
        self.0.content(Bytes::from(self.1))
    }
}

impl<'n> ProcessSession<'n> {
    pub fn content(&mut self, bytes: Bytes) -> Result<Content, ProcessorError> {
        if bytes.is_empty() {
            return Ok(Content::default());
        }
        let block = self.block(bytes)?;
        let len = block.0.len();
        Ok(Content(Some(View {
            claim: block.0,
            offset: 0,
            len,
        })))
    }
    pub fn set_content(&mut self, flow_file: &mut FlowFile, content: Content) {
        flow_file.content = content.0;
    }
    pub fn reader(&self, flow_file: &FlowFile) -> Cursor<Bytes> {
        Cursor::new(self.read(flow_file).unwrap_or_default())
    }
    pub fn writer<'s>(&'s mut self) -> ContentWriter<'s, 'n> {
        ContentWriter(self, Vec::new())
    }
    pub fn note(&mut self, _: &FlowFile, _: EventKind, _: &str) {}
    pub fn create_child(&mut self, _: &[&FlowFile], attributes: Arc<Attributes>) -> FlowFile {
        self.create(attributes)
    }
    pub fn commit_and_wait(&mut self) -> Result<(), ProcessorError> {
        self.commit()?;
        Ok(self.repository.commit_and_wait(Commit::default())?)
    }
}
