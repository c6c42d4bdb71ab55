//! SplitRecord: so many records each as FlowFiles of their own.

use super::convert_record::{Formats, MIME_TYPE, READER, RECORD_COUNT, WRITER};
use super::fragments::{self, Fragments};
use super::refused::{Refused, taken};
use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings,
};
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "SplitRecord",
    description: "Splits a FlowFile of records into FlowFiles of fewer, in the same or another \
                  format.",
    properties: &[
        READER,
        WRITER,
        PropertyKind::new("Records Per Split", "Records of each piece, at least 1.")
            .required()
            .expressions(Expressions::FlowFile),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that cannot be read or written so, unchanged.",
        },
        RelationshipKind {
            name: "splits",
            description: "The pieces.",
        },
        RelationshipKind {
            name: "original",
            description: "FlowFiles that were split.",
        },
    ],
    writes: &[
        RECORD_COUNT,
        MIME_TYPE,
        fragments::IDENTIFIER,
        fragments::INDEX,
        fragments::COUNT,
        fragments::ORIGINAL,
    ],
    input: Input::Required,
    make: |settings| SplitRecord::new(settings).map(|made| Box::new(made) as _),
};

struct SplitRecord {
    formats: Formats,
    per_split: Expression,
}

impl SplitRecord {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let per_split = settings
            .expression("Records Per Split")?
            .ok_or("Records Per Split is empty")?;
        if let Some(text) = per_split.as_literal() {
            records_per_split(text)?;
        }
        Ok(SplitRecord {
            formats: Formats::new(settings)?,
            per_split,
        })
    }

    fn split(&self, session: &mut ProcessSession<'_>, flow_file: &FlowFile) -> Result<(), Refused> {
        let text = self.per_split.evaluate(session.scope(flow_file))?;
        let count_max = records_per_split(&text).map_err(Refused::FlowFile)?;
        let mut records = self.formats.readers.open(session.reader(flow_file));
        let mut fragments = Fragments::of(session, flow_file);
        let mut next = records.next()?;
        while next.is_some() {
            let mut content = session.writer();
            let mut count = 0;
            {
                let mut writer = self.formats.writers.create(&mut content);
                while count < count_max
                    && let Some(record) = next.take()
                {
                    writer.write(&record)?;
                    count += 1;
                    next = records.next()?;
                }
                writer.finish()?;
            }
            let attributes = vec![
                (RECORD_COUNT.name, count.to_string()),
                (MIME_TYPE.name, self.formats.writers.mime_type().to_owned()),
            ];
            fragments.push(content.finish()?, attributes)?;
        }
        // Pieces count from zero, as MiNiFi's do here.
        fragments.send(session, flow_file, 0, SPLITS)?;
        Ok(())
    }
}

fn records_per_split(text: &str) -> Result<u64, String> {
    match text.trim().parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!(
            "Records Per Split: '{text}' is no whole number above zero"
        )),
    }
}

impl Processor for SplitRecord {
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
        let Some(flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        match taken(context, self.split(session, &flow_file))? {
            Some(()) => session.transfer(flow_file, ORIGINAL),
            None => session.transfer(flow_file, FAILURE),
        }
        Ok(Next::Scheduled)
    }
}

const FAILURE: usize = 0;
const SPLITS: usize = 1;
const ORIGINAL: usize = 2;
