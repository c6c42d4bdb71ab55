//! UpdateAttribute: sets attributes from expressions, removes some.

use std::sync::Arc;

use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::{Expression, ExpressionError};
use crate::flowfile::{Attributes, FlowFile};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "UpdateAttribute",
    description: "Sets one attribute for each further property, all from the attributes as they \
                  came in.",
    properties: &[PropertyKind::new(
        "Delete Attributes Expression",
        "A regular expression; attributes whose whole name it matches are removed.",
    )],
    dynamic: Dynamic::Attributes,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles with their new attributes.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles for which an expression has no value.",
        },
    ],
    writes: &[AttributeKind::new(
        "<property>",
        "Each further property's name with its value.",
    )],
    input: Input::Required,
    make: |settings| UpdateAttribute::new(settings).map(|made| Box::new(made) as _),
};

struct UpdateAttribute {
    assignments: Vec<(String, Expression)>,
    delete: Option<regex::Regex>,
    /// The last attributes seen and what became of them: lines of one file share theirs.
    last: Option<(Arc<Attributes>, Arc<Attributes>)>,
}

impl UpdateAttribute {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let assignments = settings.dynamic()?;
        let delete = settings.text("Delete Attributes Expression")?;
        let delete = delete.map(|text| {
            regex::Regex::new(&format!("^(?:{text})$"))
                .map_err(|error| format!("Delete Attributes Expression: {error}"))
        });
        Ok(UpdateAttribute {
            assignments,
            delete: delete.transpose()?,
            last: None,
        })
    }

    fn update(
        &mut self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<Arc<Attributes>, ExpressionError> {
        if let Some((before, after)) = &self.last
            && Arc::ptr_eq(before, flow_file.attributes())
        {
            return Ok(Arc::clone(after));
        }
        let scope = session.scope(flow_file);
        let before = flow_file.attributes();
        let mut attributes = before.as_ref().clone();
        if let Some(delete) = &self.delete {
            attributes.remove(|name| delete.is_match(name));
        }
        for (name, expression) in &self.assignments {
            attributes.set(name, expression.evaluate(scope)?.into_owned());
        }
        let attributes = Arc::new(attributes);
        let mut assignments = self.assignments.iter();
        if assignments.all(|(_, expression)| expression.is_pure(before)) {
            self.last = Some((Arc::clone(before), Arc::clone(&attributes)));
        }
        Ok(attributes)
    }
}

impl Processor for UpdateAttribute {
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
        for mut flow_file in session.take(BATCH, u64::MAX) {
            match self.update(session, &flow_file) {
                Ok(attributes) => {
                    session.set_attributes(&mut flow_file, attributes);
                    session.transfer(flow_file, SUCCESS);
                }
                Err(error) => {
                    context.post(Level::Error, &error.to_string());
                    session.transfer(flow_file, FAILURE);
                }
            }
        }
        Ok(Next::Scheduled)
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// FlowFiles handled in one commit.
const BATCH: usize = 5_000;

#[cfg(test)]
mod tests {
    use crate::testing::Rig;

    #[test]
    fn attributes_are_set_from_what_came_in_and_others_deleted() {
        let properties = [
            ("Delete Attributes Expression", "tmp.*|gone"),
            ("a", "${b}"),
            ("b", "${a}"),
            ("size", "${fileSize}"),
        ];
        let mut rig = Rig::new("UpdateAttribute", &properties);
        let before = [
            ("a", "1"),
            ("b", "2"),
            ("tmp.x", "t"),
            ("gone", "g"),
            ("go", "stays"),
        ];
        rig.put(&before, "four");
        rig.run();
        let out = rig.one("success");
        let after = [("a", "2"), ("b", "1"), ("go", "stays"), ("size", "4")];
        let after = after.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(out.attributes, after.into());
        assert_eq!(out.text(), "four");
    }

    #[test]
    fn what_is_remembered_of_the_last_flow_file_is_not_used_for_others() {
        let properties = [("copy", "${a}"), ("name", "${filename}")];
        let mut rig = Rig::new("UpdateAttribute", &properties);
        for a in ["1", "2", "2"] {
            rig.put(&[("a", a)], "");
        }
        rig.run();
        for out in rig.out("success") {
            assert_eq!(out.attribute("name"), out.uuid);
            assert_eq!(out.attribute("copy"), out.attribute("a"));
        }
    }

    #[test]
    fn an_expression_without_a_value_is_a_failure_and_changes_nothing() {
        let mut rig = Rig::new("UpdateAttribute", &[("a", "${a:plus(1)}"), ("b", "set")]);
        rig.put(&[("a", "x")], "");
        rig.run();
        let out = rig.one("failure");
        assert_eq!((out.attribute("a"), out.attribute("b")), ("x", ""));
    }
}
