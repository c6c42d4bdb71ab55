//! LogAttribute: writes FlowFiles' attributes, and content if asked, to the agent's trace.

use super::files::head;
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
        PropertyKind::new("Log Level", "How loud; critical is error here.")
            .default("info")
            .allowed(&["trace", "debug", "info", "warn", "error", "critical"]),
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
        PropertyKind::new(
            "Hexencode Payload",
            "Whether content is written in hexadecimal digits.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Maximum Payload Line Length",
            "Characters of content in one line; 0 means that it stays on one line.",
        )
        .default("0")
        .shape(Shape::Integer(0)),
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
    is_hex: bool,
    line_chars: usize,
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
            is_hex: settings.flag("Hexencode Payload")?,
            line_chars: settings.integer("Maximum Payload Line Length")?,
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
        for (name, value) in session.all_attributes(flow_file).iter() {
            let is_wanted = self.only.is_empty() || self.only.iter().any(|only| only == name);
            if is_wanted && !self.ignored.iter().any(|ignored| ignored == name) {
                line.push_str(&format!(" {name}={value:?}"));
            }
        }
        line.push_str(&format!(" size={}", flow_file.size()));
        if self.has_payload {
            line.push_str(" payload=");
            line.push_str(&self.payload(&head(session, flow_file, PAYLOAD_BYTES_MAX)?));
        }
        match self.level.as_str() {
            "trace" => tracing::trace!("{line}"),
            "debug" => tracing::debug!("{line}"),
            "warn" => tracing::warn!("{line}"),
            "error" | "critical" => tracing::error!("{line}"),
            _ => tracing::info!("{line}"),
        }
        Ok(())
    }
}

impl LogAttribute {
    /// Content as it is written.
    fn payload(&self, content: &[u8]) -> String {
        let text: String = if self.is_hex {
            content.iter().map(|byte| format!("{byte:02x}")).collect()
        } else {
            format!("{:?}", String::from_utf8_lossy(content))
        };
        if self.line_chars == 0 {
            return text;
        }
        let chars: Vec<char> = text.chars().collect();
        let lines = chars.chunks(self.line_chars);
        let lines: Vec<String> = lines.map(|line| line.iter().collect()).collect();
        format!("\n{}", lines.join("\n"))
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

#[cfg(test)]
mod tests {
    use crate::testing::{Logged, Rig};

    /// What is written of one FlowFile.
    fn logged(properties: &[(&str, &str)]) -> String {
        let mut rig = Rig::new("LogAttribute", properties);
        rig.put(&[("a", "1"), ("b", "2")], "line\n\u{fc}");
        let logged = Logged::default();
        logged.during(|| rig.run());
        assert_eq!(rig.counts(), [("success", 1)]);
        logged.text()
    }

    #[test]
    fn lines_show_what_was_asked_for() {
        for (properties, there, missing) in [
            (
                vec![],
                vec!["INFO", "a=\"1\" b=\"2\" filename=", " size=7"],
                "payload",
            ),
            (vec![("Log Level", "error")], vec!["ERROR"], "INFO"),
            (vec![("Log Level", "critical")], vec!["ERROR"], "INFO"),
            (vec![("Log Level", "debug")], vec![], "a="),
            (vec![("Attributes to Log", "b, c")], vec!["b=\"2\""], "a="),
            (vec![("Attributes to Ignore", "b")], vec!["a=\"1\""], "b="),
            (
                vec![("Log Prefix", "here: ")],
                vec!["here: uuid="],
                "payload",
            ),
            (
                vec![("Log Payload", "true")],
                vec!["payload=\"line\\n\u{fc}\""],
                "payload=\n",
            ),
        ] {
            let line = logged(&properties);
            for there in there {
                assert!(line.contains(there), "{properties:?}: {line}");
            }
            assert!(!line.contains(missing), "{properties:?}: {line}");
        }
        let hex = [
            ("Log Payload", "true"),
            ("Hexencode Payload", "true"),
            ("Maximum Payload Line Length", "8"),
        ];
        let line = logged(&hex);
        assert!(line.contains("payload=\n6c696e65\n0ac3bc\n"), "{line}");
    }

    #[test]
    fn as_many_are_taken_at_a_time_as_asked_for() {
        for (count, left) in [("1", 2), ("2", 1), ("0", 0)] {
            let mut rig = Rig::new("LogAttribute", &[("FlowFiles To Log", count)]);
            for _ in 0..3 {
                rig.put(&[], "");
            }
            rig.trigger().unwrap();
            assert_eq!(rig.waiting(), left, "{count}");
        }
    }
}
