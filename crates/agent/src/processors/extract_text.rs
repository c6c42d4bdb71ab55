//! ExtractText: content, or what patterns find in it, into attributes.

use std::io::Read;
use std::sync::Arc;

use super::refused::{Refused, taken};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::{Attributes, FlowFile};
use crate::patterns::ContentPattern;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ExtractText",
    description: "Puts the content into an attribute or, in Regex Mode, what each further \
                  property's pattern finds in it. Bytes that are no UTF-8 are replaced.",
    properties: &[
        PropertyKind::new(
            "Attribute",
            "The attribute for the content, where Regex Mode is off.",
        ),
        PropertyKind::new(
            "Size Limit",
            "Bytes of the content that are looked at; 0 means all that an attribute can hold.",
        )
        .default("2097152")
        .shape(Shape::Size),
        PropertyKind::new(
            "Regex Mode",
            "Whether further properties are patterns: each sets the attribute of its name, and \
             numbered ones (name.0, name.1) for its groups.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Include Capture Group 0",
            "Whether the whole match counts as the first group.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Enable Case-insensitive Matching",
            "Whether upper and lower case are the same.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Maximum Capture Group Length",
            "Characters of a group that are kept.",
        )
        .default("1024")
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Enable repeating capture group",
            "Whether all matches are extracted, and not just the first.",
        )
        .default("false")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::Attributes,
    relationships: &[RelationshipKind {
        name: "success",
        description: "All FlowFiles.",
    }],
    writes: &[AttributeKind::new(
        "<property>, <property>.<n>",
        "What the pattern found, in Regex Mode.",
    )],
    input: Input::Required,
    make: |settings| ExtractText::new(settings).map(|made| Box::new(made) as _),
};

struct ExtractText {
    mode: Mode,
    bytes_max: u64,
}

enum Mode {
    Whole(String),
    Patterns {
        patterns: Vec<(String, ContentPattern)>,
        first_group: usize,
        chars_max: usize,
        repeats: bool,
    },
}

impl ExtractText {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let mode = if settings.flag("Regex Mode")? {
            let ignores_case = settings.flag("Enable Case-insensitive Matching")?;
            let mut compiled = Vec::new();
            for (name, text) in settings.dynamic_texts() {
                let pattern = ContentPattern::new(&text, ignores_case)
                    .map_err(|why| format!("{name}: {why}"))?;
                compiled.push((name, pattern));
            }
            if compiled.is_empty() {
                return Err("Regex Mode needs a further property with a pattern".to_owned());
            }
            Mode::Patterns {
                patterns: compiled,
                first_group: usize::from(!settings.flag("Include Capture Group 0")?),
                chars_max: settings.integer("Maximum Capture Group Length")?,
                repeats: settings.flag("Enable repeating capture group")?,
            }
        } else {
            Mode::Whole(
                settings
                    .text("Attribute")?
                    .ok_or("Attribute is missing: name the attribute, or set Regex Mode to true")?,
            )
        };
        let bytes_max = match settings.size("Size Limit")? {
            0 => u64::MAX,
            bytes => bytes,
        };
        Ok(ExtractText { mode, bytes_max })
    }

    fn extract(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<Attributes, Refused> {
        let bytes_most = match &self.mode {
            Mode::Whole(_) => ATTRIBUTE_BYTES_MAX,
            Mode::Patterns { .. } => LOOKED_AT_BYTES_MAX,
        };
        let mut content = Vec::new();
        session
            .reader(flow_file)
            .take(self.bytes_max.min(bytes_most))
            .read_to_end(&mut content)?;
        let mut attributes = flow_file.attributes().as_ref().clone();
        match &self.mode {
            Mode::Whole(name) => attributes.set(name, String::from_utf8_lossy(&content)),
            Mode::Patterns {
                patterns,
                first_group,
                chars_max,
                repeats,
            } => {
                for (name, pattern) in patterns {
                    let matches_max = if *repeats { MATCHES_MAX } else { 1 };
                    let mut number = 0;
                    for found in pattern.find_all(&content).take(matches_max) {
                        let found = found.map_err(Refused::FlowFile)?;
                        for group in *first_group..pattern.groups() {
                            let bytes = found.group(group).unwrap_or_default();
                            let text = String::from_utf8_lossy(bytes);
                            let value: String = text.chars().take(*chars_max).collect();
                            if number == 0 {
                                attributes.set(name, value.as_str());
                            }
                            attributes.set(&format!("{name}.{number}"), value);
                            number += 1;
                        }
                    }
                }
            }
        }
        Ok(attributes)
    }
}

impl Processor for ExtractText {
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
            // There is no other way to go: what is refused goes on as it came.
            if let Some(attributes) = taken(context, self.extract(session, &flow_file))? {
                session.set_attributes(&mut flow_file, Arc::new(attributes));
            }
            session.transfer(flow_file, SUCCESS);
        }
        Ok(Next::Scheduled)
    }
}

const SUCCESS: usize = 0;

/// FlowFiles handled in one commit, and bytes of them.
const BATCH: usize = 1_000;
const BATCH_BYTES: u64 = 16 << 20;

/// Bytes of one attribute, whatever the flow says: MiNiFi's own default.
const ATTRIBUTE_BYTES_MAX: u64 = 2 << 20;

/// Bytes of content that patterns look at, whatever the flow says.
const LOOKED_AT_BYTES_MAX: u64 = 64 << 20;

/// Matches of one pattern that become attributes.
const MATCHES_MAX: usize = 1_000;
