//! ConvertRecord: records from one format into another.

use std::sync::Arc;

use super::refused::Refused;
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::content::Content;
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::record_sets::{READER_ROLE, Readers, RecordError, WRITER_ROLE, Writers};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ConvertRecord",
    description: "Reads records of one format and writes them in another, one at a time, so that \
                  content may have any size.",
    properties: &[READER, WRITER, INCLUDE_EMPTY],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that cannot be read or written so, unchanged.",
        },
        RelationshipKind {
            name: "success",
            description: "FlowFiles in their new format.",
        },
    ],
    writes: &[
        RECORD_COUNT,
        MIME_TYPE,
        AttributeKind::new("record.error.message", "What failed, by 'failure'."),
    ],
    input: Input::Required,
    make: |settings| ConvertRecord::new(settings).map(|made| Box::new(made) as _),
};

/// The reader that a processor of records needs.
pub(super) const READER: PropertyKind =
    PropertyKind::new("Record Reader", "The service that reads the content.")
        .required()
        .shape(Shape::Service(READER_ROLE));

/// The writer that it needs.
pub(super) const WRITER: PropertyKind =
    PropertyKind::new("Record Writer", "The service that writes records.")
        .required()
        .shape(Shape::Service(WRITER_ROLE));

/// Whether nothing is worth a FlowFile.
pub(super) const INCLUDE_EMPTY: PropertyKind = PropertyKind::new(
    "Include Zero Record FlowFiles",
    "Whether a FlowFile without a record is sent on.",
)
.default("true")
.shape(Shape::Flag);

/// Set by every processor that writes records.
pub(super) const RECORD_COUNT: AttributeKind =
    AttributeKind::new("record.count", "Records of the FlowFile.");
/// See [`RECORD_COUNT`].
pub(super) const MIME_TYPE: AttributeKind =
    AttributeKind::new("mime.type", "What the writer writes.");

/// The reader and the writer of a processor.
pub(super) struct Formats {
    pub(super) readers: Arc<Readers>,
    pub(super) writers: Arc<Writers>,
}

struct ConvertRecord {
    formats: Formats,
    includes_empty: bool,
}

impl Formats {
    /// Those that the properties name, where they do.
    pub(super) fn optional(settings: &Settings<'_>) -> Result<Option<Self>, String> {
        match (
            settings.service(READER.name)?,
            settings.service(WRITER.name)?,
        ) {
            (Some(readers), Some(writers)) => Ok(Some(Formats { readers, writers })),
            (None, None) => Ok(None),
            _ => Err(format!(
                "{} and {} are set both or not at all",
                READER.name, WRITER.name
            )),
        }
    }

    /// Those that the properties name.
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let missing = |name: &str| format!("{name} is required and empty");
        Ok(Formats {
            readers: settings
                .service(READER.name)?
                .ok_or_else(|| missing(READER.name))?,
            writers: settings
                .service(WRITER.name)?
                .ok_or_else(|| missing(WRITER.name))?,
        })
    }
}

impl From<RecordError> for Refused {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Format(reason) => Refused::FlowFile(reason),
            RecordError::Content(error) => error.into(),
        }
    }
}

impl ConvertRecord {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(ConvertRecord {
            formats: Formats::new(settings)?,
            includes_empty: settings.flag(INCLUDE_EMPTY.name)?,
        })
    }

    fn convert(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(Content, u64), Refused> {
        let mut records = self.formats.readers.open(session.reader(flow_file));
        let mut content = session.writer();
        let mut count = 0;
        {
            let mut writer = self.formats.writers.create(&mut content);
            while let Some(record) = records.next()? {
                writer.write(&record)?;
                count += 1;
            }
            writer.finish()?;
        }
        Ok((content.finish()?, count))
    }
}

impl Processor for ConvertRecord {
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
            let mut attributes = Arc::clone(flow_file.attributes());
            let changed = Arc::make_mut(&mut attributes);
            match self.convert(session, &flow_file) {
                Ok((_, 0)) if !self.includes_empty => {
                    session.remove_all(vec![flow_file]);
                }
                Ok((content, count)) => {
                    changed.set(RECORD_COUNT.name, count.to_string());
                    changed.set(MIME_TYPE.name, self.formats.writers.mime_type());
                    session.set_content(&mut flow_file, content)?;
                    session.set_attributes(&mut flow_file, attributes);
                    session.transfer(flow_file, SUCCESS);
                }
                Err(Refused::FlowFile(reason)) => {
                    context.post(Level::Error, &reason);
                    changed.set("record.error.message", reason);
                    session.set_attributes(&mut flow_file, attributes);
                    session.transfer(flow_file, FAILURE);
                }
                Err(Refused::Session(error)) => return Err(error),
            }
        }
        Ok(Next::Scheduled)
    }
}

const FAILURE: usize = 0;
const SUCCESS: usize = 1;

/// FlowFiles handled in one commit, and bytes of them.
const BATCH: usize = 1_000;
const BATCH_BYTES: u64 = 16 << 20;
