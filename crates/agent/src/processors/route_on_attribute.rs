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
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "RouteOnAttribute",
    description: "Each further property is a relationship with its condition; a FlowFile goes to \
                  every one whose condition is true.",
    properties: &[PropertyKind::new(
        "Routing Strategy",
        "How conditions decide: each is a relationship of its own and gets a clone where it is \
         true, or they lead to the one relationship 'matched', when all or any are true.",
    )
    .default(BY_NAME)
    .allowed(&[BY_NAME, IF_ALL, IF_ANY])],
    dynamic: Dynamic::RelationshipsIf {
        property: "Routing Strategy",
        value: BY_NAME,
        single: "matched",
    },
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

const BY_NAME: &str = "Route to Property name";
const IF_ALL: &str = "Route to 'match' if all match";
const IF_ANY: &str = "Route to 'match' if any matches";

struct RouteOnAttribute {
    strategy: Strategy,
    routes: Vec<Expression>,
    /// The relationships' names, for provenance.
    names: Vec<String>,
    last: Option<(Arc<Attributes>, Vec<usize>)>,
}

#[derive(Clone, Copy)]
enum Strategy {
    ByName,
    IfAll,
    IfAny,
}

impl RouteOnAttribute {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let names = settings.relationships();
        let routes: Vec<Expression> = settings
            .dynamic()?
            .into_iter()
            .map(|(_, condition)| condition)
            .collect();
        let strategy = match settings.needed("Routing Strategy")?.as_str() {
            IF_ALL => Strategy::IfAll,
            IF_ANY => Strategy::IfAny,
            _ => Strategy::ByName,
        };
        Ok(RouteOnAttribute {
            strategy,
            routes,
            names,
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
                matched.push(FIRST_ROUTE + index);
            }
        }
        let is_matched = match self.strategy {
            Strategy::ByName => None,
            Strategy::IfAll => Some(matched.len() == self.routes.len()),
            Strategy::IfAny => Some(!matched.is_empty()),
        };
        if let Some(is_matched) = is_matched {
            matched = vec![if is_matched { FIRST_ROUTE } else { UNMATCHED }];
        }
        if matched.is_empty() {
            matched.push(UNMATCHED);
        }
        let attributes = flow_file.attributes();
        if self.routes.iter().all(|route| route.is_pure(attributes)) {
            self.last = Some((Arc::clone(attributes), matched.clone()));
        }
        Ok(matched)
    }
}

impl Processor for RouteOnAttribute {
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
        for flow_file in session.take(BATCH, u64::MAX) {
            match self.route(session, &flow_file) {
                Ok(routes) => {
                    let (last, others) = routes
                        .split_last()
                        .expect("a route has one relationship at least");
                    for route in others {
                        let clone = session.clone_of(&flow_file);
                        session.note(&clone, EventKind::Route, &self.names[*route]);
                        session.transfer(clone, *route);
                    }
                    session.note(&flow_file, EventKind::Route, &self.names[*last]);
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

/// Where the relationships of the properties begin; `matched` stands there without them.
const FIRST_ROUTE: usize = 2;

/// FlowFiles handled in one commit.
const BATCH: usize = 5_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rig;

    /// FlowFiles with the attributes `a` and `b`, each both true and false.
    fn routed(strategy: &str) -> Vec<(String, u64)> {
        let mut rig = Rig::new(
            "RouteOnAttribute",
            &[
                ("Routing Strategy", strategy),
                ("is-a", "${a}"),
                ("is-b", "${b}"),
            ],
        );
        for (a, b) in [("true", "true"), ("true", "false"), ("false", "x")] {
            rig.put(&[("a", a), ("b", b)], "content");
        }
        rig.run();
        let counts = rig.counts().into_iter();
        counts
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }

    #[test]
    fn each_strategy_leads_where_it_says() {
        let counts = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
            let pairs = pairs.iter();
            pairs
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect()
        };
        let by_name = [("unmatched", 1), ("is-a", 2), ("is-b", 1)];
        assert_eq!(routed(BY_NAME), counts(&by_name));
        assert_eq!(routed(IF_ALL), counts(&[("unmatched", 2), ("matched", 1)]));
        assert_eq!(routed(IF_ANY), counts(&[("unmatched", 1), ("matched", 2)]));
    }

    #[test]
    fn clones_have_the_content_and_a_uuid_of_their_own() {
        let properties = [("x", "true"), ("y", "${a:notNull()}")];
        let mut rig = Rig::new("RouteOnAttribute", &properties);
        rig.put(&[("a", "1")], "content");
        rig.run();
        let (x, y) = (rig.one("x"), rig.one("y"));
        assert_eq!((x.text(), &x.attributes), (y.text(), &y.attributes));
        assert_ne!(x.uuid, y.uuid);
    }

    #[test]
    fn a_condition_without_a_value_is_a_failure() {
        let mut rig = Rig::new("RouteOnAttribute", &[("x", "${a:plus(1):gt(2)}")]);
        rig.put(&[("a", "many")], "");
        rig.put(&[("a", "7")], "");
        rig.run();
        assert_eq!(rig.counts(), [("failure", 1), ("x", 1)]);
        assert_eq!(rig.bulletins(), ["plus: 'many' is no number"]);
    }
}
