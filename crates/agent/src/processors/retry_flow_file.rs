//! RetryFlowFile: lets a FlowFile come around so many times, then sends it elsewhere.

use std::sync::Arc;

use super::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::{Attributes, FlowFile};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "RetryFlowFile",
    description: "Counts in an attribute how often a FlowFile came by, and sends it on to be tried \
                  again until that is often enough. Further properties are attributes of \
                  FlowFiles that came too often.",
    properties: &[
        PropertyKind::new("Retry Attribute", "The attribute that counts.")
            .default("flowfile.retries")
            .required()
            .expressions(Expressions::Once),
        PropertyKind::new("Maximum Retries", "How often a FlowFile is tried again.")
            .default("3")
            .shape(Shape::Integer(0))
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Penalize Retries",
            "Whether a FlowFile that is tried again waits out a penalty.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Fail on Non-numerical Overwrite",
            "Whether a FlowFile fails whose attribute is no number; otherwise it counts from zero.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Reuse Mode",
            "What becomes of a FlowFile that another RetryFlowFile counted in the same attribute: \
             it fails, or it is counted anew, with a warning or without.",
        )
        .default("Fail on Reuse")
        .allowed(&["Fail on Reuse", "Warn on Reuse", "Reset Reuse"]),
    ],
    dynamic: Dynamic::Attributes,
    relationships: &[
        RelationshipKind {
            name: "retry",
            description: "FlowFiles that are to be tried again.",
        },
        RelationshipKind {
            name: "retries_exceeded",
            description: "FlowFiles that were tried often enough.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose attribute is not this processor's count.",
        },
    ],
    writes: &[
        AttributeKind::new(
            "<Retry Attribute>",
            "How often the FlowFile is tried again.",
        ),
        AttributeKind::new(
            "<Retry Attribute>.uuid",
            "The id of the processor that counts.",
        ),
        AttributeKind::new(
            "<property>",
            "Each further property, on FlowFiles that were tried often enough.",
        ),
    ],
    input: Input::Required,
    make: |settings| RetryFlowFile::new(settings).map(|made| Box::new(made) as _),
};

struct RetryFlowFile {
    attribute: String,
    owner_attribute: String,
    retries_max: Expression,
    penalizes: bool,
    fails_on_text: bool,
    reuse: Reuse,
    exceeded: Vec<(String, Expression)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    Fail,
    Warn,
    Reset,
}

/// Where a FlowFile goes, and with which attributes.
enum Outcome {
    Retry(Attributes),
    Exceeded(Attributes),
    Failure(String),
}

impl RetryFlowFile {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let attribute = settings.needed("Retry Attribute")?;
        Ok(RetryFlowFile {
            owner_attribute: format!("{attribute}.uuid"),
            attribute,
            retries_max: settings
                .expression("Maximum Retries")?
                .ok_or("Maximum Retries is empty")?,
            penalizes: settings.flag("Penalize Retries")?,
            fails_on_text: settings.flag("Fail on Non-numerical Overwrite")?,
            reuse: match settings.needed("Reuse Mode")?.as_str() {
                "Warn on Reuse" => Reuse::Warn,
                "Reset Reuse" => Reuse::Reset,
                _ => Reuse::Fail,
            },
            exceeded: settings.dynamic()?,
        })
    }

    fn decide(
        &self,
        context: &Context,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Outcome {
        let scope = session.scope(flow_file);
        let retries_max = match self.retries_max.evaluate(scope) {
            Ok(text) => text.trim().parse::<u64>().ok(),
            Err(error) => return Outcome::Failure(error.to_string()),
        };
        let Some(retries_max) = retries_max else {
            return Outcome::Failure("Maximum Retries is no number for it".to_owned());
        };
        let mut count = match flow_file.attributes().get(&self.attribute) {
            None => 0,
            Some(text) => match text.trim().parse::<u64>() {
                Ok(count) => count,
                Err(_) if self.fails_on_text => {
                    let name = &self.attribute;
                    return Outcome::Failure(format!("'{text}' in {name} is no number"));
                }
                Err(_) => 0,
            },
        };
        let owner = flow_file.attributes().get(&self.owner_attribute);
        if let Some(owner) = owner.filter(|owner| *owner != context.id()) {
            let message = format!("{} is the count of processor {owner}", self.attribute);
            match self.reuse {
                Reuse::Fail => return Outcome::Failure(message),
                Reuse::Warn => context.post(Level::Warning, &message),
                Reuse::Reset => {}
            }
            count = 0;
        }
        let mut attributes = flow_file.attributes().as_ref().clone();
        if count < retries_max {
            attributes.set(&self.attribute, (count + 1).to_string());
            attributes.set(&self.owner_attribute, context.id());
            return Outcome::Retry(attributes);
        }
        for (name, value) in &self.exceeded {
            match value.evaluate(scope) {
                Ok(value) => attributes.set(name, value.into_owned()),
                Err(error) => return Outcome::Failure(error.to_string()),
            }
        }
        Outcome::Exceeded(attributes)
    }
}

impl Processor for RetryFlowFile {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for mut flow_file in session.take(BATCH, u64::MAX) {
            match self.decide(context, session, &flow_file) {
                Outcome::Retry(attributes) => {
                    session.set_attributes(&mut flow_file, Arc::new(attributes));
                    if self.penalizes {
                        session.transfer_penalized(flow_file, RETRY);
                    } else {
                        session.transfer(flow_file, RETRY);
                    }
                }
                Outcome::Exceeded(attributes) => {
                    session.set_attributes(&mut flow_file, Arc::new(attributes));
                    session.transfer(flow_file, EXCEEDED);
                }
                Outcome::Failure(message) => {
                    context.post(Level::Error, &message);
                    session.transfer(flow_file, FAILURE);
                }
            }
        }
        Ok(Next::Scheduled)
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}

const RETRY: usize = 0;
const EXCEEDED: usize = 1;
const FAILURE: usize = 2;

/// FlowFiles handled in one commit.
const BATCH: usize = 5_000;

#[cfg(test)]
mod tests {
    use crate::testing::Rig;

    /// Where a FlowFile with these attributes goes.
    fn sent(properties: &[(&str, &str)], attributes: &[(&str, &str)]) -> (String, String, Rig) {
        let mut rig = Rig::new("RetryFlowFile", properties);
        rig.put(attributes, "content");
        rig.run();
        let counts = rig.counts();
        assert_eq!(counts.len(), 1, "{counts:?}");
        let relationship = counts[0].0.to_owned();
        // A penalized one is not to be had before its time.
        rig.advance(std::time::Duration::from_secs(30));
        let out = rig.one(&relationship);
        let count = out.attribute("flowfile.retries").to_owned();
        (relationship, count, rig)
    }

    #[test]
    fn flow_files_come_around_as_often_as_told() {
        for (before, expected) in [("", "1"), ("1", "2"), ("2", "3")] {
            let attributes = [("flowfile.retries", before)];
            let attributes = &attributes[usize::from(before.is_empty())..];
            let (relationship, count, _) = sent(&[], attributes);
            assert_eq!((relationship.as_str(), count.as_str()), ("retry", expected));
        }
        let own = [("flowfile.retries", "3"), ("flowfile.retries.uuid", "it")];
        let (relationship, count, _) = sent(&[("reason", "too often")], &own);
        assert_eq!(
            (relationship.as_str(), count.as_str()),
            ("retries_exceeded", "3")
        );
    }

    #[test]
    fn retries_wait_out_a_penalty_unless_told_otherwise() {
        for (penalizes, at_once) in [("true", 0), ("false", 1)] {
            let mut rig = Rig::new("RetryFlowFile", &[("Penalize Retries", penalizes)]);
            rig.put(&[], "");
            rig.run();
            assert_eq!(rig.out("retry").len(), at_once, "{penalizes}");
        }
    }

    #[test]
    fn exceeded_flow_files_get_their_attributes() {
        let properties = [("Maximum Retries", "${max}"), ("reason", "after ${max}")];
        let mut rig = Rig::new("RetryFlowFile", &properties);
        rig.put(&[("max", "0")], "");
        rig.run();
        assert_eq!(rig.one("retries_exceeded").attribute("reason"), "after 0");
    }

    #[test]
    fn another_ones_count_is_handled_as_told() {
        let others = [
            ("flowfile.retries", "3"),
            ("flowfile.retries.uuid", "other"),
        ];
        for (mode, relationship, count) in [
            ("Fail on Reuse", "failure", "3"),
            ("Warn on Reuse", "retry", "1"),
            ("Reset Reuse", "retry", "1"),
        ] {
            let (to, seen, rig) = sent(&[("Reuse Mode", mode)], &others);
            assert_eq!(
                (to.as_str(), seen.as_str()),
                (relationship, count),
                "{mode}"
            );
            assert_eq!(rig.bulletins().is_empty(), mode == "Reset Reuse", "{mode}");
        }
    }

    #[test]
    fn a_count_that_is_none_begins_anew_or_fails() {
        let text = [("flowfile.retries", "many")];
        let (relationship, count, _) = sent(&[], &text);
        assert_eq!((relationship.as_str(), count.as_str()), ("retry", "1"));
        let fails = [("Fail on Non-numerical Overwrite", "true")];
        assert_eq!(sent(&fails, &text).0, "failure");
    }
}
