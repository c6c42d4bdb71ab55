//! LogAttribute: writes FlowFiles' attributes, and content if asked, to the agent's trace.

use super::{
    Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind, RelationshipKind,
    Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "LogAttribute",
    description: "Writes attributes to the log, one line for each FlowFile.",
    properties: &[
        PropertyKind::new("Log Level", "How loud.")
            .default("info")
            .allowed(&["trace", "debug", "info", "warn", "error"]),
        PropertyKind::new(
            "Attributes to Log",
            "Names, separated by commas; empty means all.",
        ),
        PropertyKind::new("Attributes to Ignore", "Names, separated by commas."),
        PropertyKind::new(
            "Log Payload",
            "Whether content is written too, at most 2,000 bytes.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new("Log Prefix", "Stands before each line."),
        PropertyKind::new(
            "FlowFiles To Log",
            "FlowFiles taken at a time; 0 means all.",
        )
        .default("1")
        .shape(Shape::Integer(0)),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "All FlowFiles.",
    }],
    writes: &[],
    input: Input::Required,
    make: |settings| LogAttribute::new(settings).map(|made| Box::new(made) as _),
};

struct LogAttribute {
    level: String,
    only: Vec<String>,
    ignored: Vec<String>,
    has_payload: bool,
    prefix: String,
    batch: usize,
}

impl LogAttribute {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let names = |name: &str| -> Result<Vec<String>, String> {
            let text = settings.text(name)?.unwrap_or_default();
            Ok(text
                .split(',')
                .map(|n| n.trim().to_owned())
                .filter(|n| !n.is_empty())
                .collect())
        };
        let batch = match settings.integer("FlowFiles To Log")? {
            0 => usize::MAX,
            count => count,
        };
        Ok(LogAttribute {
            level: settings.needed("Log Level")?,
            only: names("Attributes to Log")?,
            ignored: names("Attributes to Ignore")?,
            has_payload: settings.flag("Log Payload")?,
            prefix: settings.text("Log Prefix")?.unwrap_or_default(),
            batch,
        })
    }

    fn log(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(), ProcessorError> {
        let mut line = format!("{}uuid={}", self.prefix, session.uuid(flow_file));
        for (name, value) in flow_file.attributes().iter() {
            let is_wanted = self.only.is_empty() || self.only.iter().any(|only| only == name);
            if is_wanted && !self.ignored.iter().any(|ignored| ignored == name) {
                line.push_str(&format!(" {name}={value:?}"));
            }
        }
        line.push_str(&format!(" size={}", flow_file.size()));
        if self.has_payload {
            let content = session.read(flow_file)?;
            let shown = &content[..content.len().min(PAYLOAD_BYTES_MAX)];
            line.push_str(&format!(" payload={:?}", String::from_utf8_lossy(shown)));
        }
        match self.level.as_str() {
            "trace" => tracing::trace!("{line}"),
            "debug" => tracing::debug!("{line}"),
            "warn" => tracing::warn!("{line}"),
            "error" => tracing::error!("{line}"),
            _ => tracing::info!("{line}"),
        }
        Ok(())
    }
}

impl Processor for LogAttribute {
    fn trigger(
        &mut self,
        _context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for flow_file in session.take(self.batch, u64::MAX) {
            self.log(session, &flow_file)?;
            session.transfer(flow_file, 0);
        }
        Ok(Next::Scheduled)
    }
}

/// Bytes of content shown.
const PAYLOAD_BYTES_MAX: usize = 2_000;
