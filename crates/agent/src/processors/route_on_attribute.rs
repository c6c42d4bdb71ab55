//! RouteOnAttribute: sends FlowFiles where conditions on their attributes hold.

use std::sync::Arc;

use super::{
    Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind, RelationshipKind,
    Settings,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::{Expression, ExpressionError};
use crate::flowfile::{Attributes, FlowFile};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "RouteOnAttribute",
    description: "Each further property is a relationship with its condition; a FlowFile goes to \
                  every one whose condition is true.",
    properties: &[PropertyKind::new(
        "Routing Strategy",
        "How conditions decide: each on its own, with one clone for each that is true.",
    )
    .default("Route to Property name")
    .allowed(&["Route to Property name"])],
    dynamic: Dynamic::Relationships,
    relationships: &[
        RelationshipKind {
            name: "unmatched",
            description: "FlowFiles for which none is true.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles for which a condition has no value.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| RouteOnAttribute::new(settings).map(|made| Box::new(made) as _),
};

struct RouteOnAttribute {
    routes: Vec<Expression>,
    is_pure: bool,
    last: Option<(Arc<Attributes>, Vec<usize>)>,
}

impl RouteOnAttribute {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let routes: Vec<Expression> = settings
            .dynamic()?
            .into_iter()
            .map(|(_, condition)| condition)
            .collect();
        let is_pure = routes.iter().all(Expression::is_pure);
        Ok(RouteOnAttribute {
            routes,
            is_pure,
            last: None,
        })
    }

    /// The relationships that a FlowFile goes to.
    fn route(
        &mut self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<Vec<usize>, ExpressionError> {
        if let Some((before, routes)) = &self.last
            && Arc::ptr_eq(before, flow_file.attributes())
        {
            return Ok(routes.clone());
        }
        let scope = session.scope(flow_file);
        let mut matched = Vec::new();
        for (index, condition) in self.routes.iter().enumerate() {
            if condition.evaluate_flag(scope)? {
                matched.push(KIND.relationships.len() + index);
            }
        }
        if matched.is_empty() {
            matched.push(UNMATCHED);
        }
        if self.is_pure {
            self.last = Some((Arc::clone(flow_file.attributes()), matched.clone()));
        }
        Ok(matched)
    }
}

impl Processor for RouteOnAttribute {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for flow_file in session.take(BATCH, u64::MAX) {
            match self.route(session, &flow_file) {
                Ok(routes) => {
                    let (last, others) = routes
                        .split_last()
                        .expect("a route has one relationship at least");
                    for route in others {
                        let clone = session.clone_of(&flow_file);
                        session.transfer(clone, *route);
                    }
                    session.transfer(flow_file, *last);
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

const UNMATCHED: usize = 0;
const FAILURE: usize = 1;

/// FlowFiles handled in one commit.
const BATCH: usize = 5_000;
