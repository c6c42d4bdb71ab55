//! RouteText: lines, or whole texts, to the relationships whose condition they meet; what is
//! routed is views of the content.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::sync::Arc;

use super::lines::{chomp, read_line};
use super::refused::{Refused, taken};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::content::Content;
use crate::engine::Context;
use crate::expression::{Expression, Scope};
use crate::flowfile::FlowFile;
use crate::limits::{CONTENT_READ_BYTES_MAX, TEXT_GROUPS_MAX};
use crate::patterns::ContentPattern;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "RouteText",
    description: "Routes the lines of a text, or the text as a whole, by what further properties \
                  ask of them. Lines that go the same way become one FlowFile of views of the \
                  content: no byte is copied.",
    properties: &[
        PropertyKind::new(
            "Routing Strategy",
            "Dynamic Routing sends a segment to each relationship whose property it meets; the \
             others send it to 'matched' when it meets all, or any, of the properties.",
        )
        .default("Dynamic Routing")
        .allowed(&["Dynamic Routing", "Route On All", "Route On Any"]),
        PropertyKind::new(
            "Matching Strategy",
            "How a segment is compared with a property's value. An expression sees it as \
             'segment' and its number as 'segmentNo', or 'line' and 'lineNo'.",
        )
        .required()
        .allowed(&[
            "Starts With",
            "Ends With",
            "Contains",
            "Equals",
            "Matches Regex",
            "Contains Regex",
            "Satisfies Expression",
        ]),
        PropertyKind::new(
            "Ignore Leading/Trailing Whitespace",
            "Whether blanks around a segment are left out of the comparison.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Ignore Case",
            "Whether upper and lower case are the same; not for expressions.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Grouping Regular Expression",
            "A pattern of the whole segment with groups: what they take is the segment's group, \
             and only segments of one group become one FlowFile.",
        ),
        PropertyKind::new(
            "Grouping Fallback Value",
            "The group of segments that the pattern does not match.",
        )
        .default(""),
        PropertyKind::new("Segmentation Strategy", "What a segment is.")
            .default("Per Line")
            .allowed(&["Full Text", "Per Line"]),
    ],
    dynamic: Dynamic::Relationships,
    relationships: &[
        RelationshipKind {
            name: "original",
            description: "FlowFiles that were routed, or whose lines cannot be.",
        },
        RelationshipKind {
            name: "unmatched",
            description: "Segments that meet no property, or not all of them.",
        },
        RelationshipKind {
            name: "matched",
            description: "Segments that meet all properties, or any.",
        },
    ],
    writes: &[AttributeKind::new(
        "RouteText.Group",
        "The group of the lines, where they are grouped.",
    )],
    input: Input::Required,
    make: |settings| RouteText::new(settings).map(|made| Box::new(made) as _),
};

struct RouteText {
    routing: Routing,
    matching: Matching,
    trims: bool,
    ignores_case: bool,
    grouping: Option<(ContentPattern, String)>,
    is_per_line: bool,
    routes: Vec<Expression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Routing {
    Each,
    All,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matching {
    StartsWith,
    EndsWith,
    Contains,
    Equals,
    MatchesPattern,
    ContainsPattern,
    Expression,
}

/// A route's condition with the value for one FlowFile.
enum Condition<'r> {
    Text(Vec<u8>),
    Pattern(ContentPattern),
    Expression(&'r Expression),
}

/// What one FlowFile's segments came to: ranges by relationship and group.
type Routed = BTreeMap<(usize, Option<String>), Vec<(u64, u64)>>;

impl RouteText {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let matching = match settings.needed("Matching Strategy")?.as_str() {
            "Starts With" => Matching::StartsWith,
            "Ends With" => Matching::EndsWith,
            "Contains" => Matching::Contains,
            "Equals" => Matching::Equals,
            "Matches Regex" => Matching::MatchesPattern,
            "Contains Regex" => Matching::ContainsPattern,
            _ => Matching::Expression,
        };
        let ignores_case = settings.flag("Ignore Case")?;
        let grouping = match settings.text("Grouping Regular Expression")? {
            None => None,
            Some(text) => {
                let pattern = ContentPattern::new(&format!("^(?s:{text})$"), false)
                    .map_err(|why| format!("Grouping Regular Expression: {why}"))?;
                if pattern.groups() < 2 {
                    return Err("Grouping Regular Expression has no group".to_owned());
                }
                let fallback = settings.text("Grouping Fallback Value")?;
                Some((pattern, fallback.unwrap_or_default()))
            }
        };
        let mut routes = Vec::new();
        for (name, route) in settings.dynamic()? {
            if let Some(text) = route.as_literal() {
                condition(matching, ignores_case, text).map_err(|why| format!("{name}: {why}"))?;
            }
            routes.push(route);
        }
        Ok(RouteText {
            routing: match settings.needed("Routing Strategy")?.as_str() {
                "Route On All" => Routing::All,
                "Route On Any" => Routing::Any,
                _ => Routing::Each,
            },
            matching,
            trims: settings.flag("Ignore Leading/Trailing Whitespace")?,
            ignores_case,
            grouping,
            is_per_line: settings.needed("Segmentation Strategy")? == "Per Line",
            routes,
        })
    }

    fn route(&self, session: &mut ProcessSession<'_>, flow_file: &FlowFile) -> Result<(), Refused> {
        let mut conditions = Vec::new();
        for route in &self.routes {
            conditions.push(match self.matching {
                Matching::Expression => Condition::Expression(route),
                matching => {
                    let text = route.evaluate(session.scope(flow_file))?;
                    condition(matching, self.ignores_case, &text).map_err(Refused::FlowFile)?
                }
            });
        }
        let mut routed = Routed::new();
        let scope = session.scope(flow_file);
        let mut reader = BufReader::with_capacity(READ_BYTES, session.reader(flow_file));
        let (mut segment, mut offset, mut number) = (Vec::new(), 0, 0);
        loop {
            let is_there = if self.is_per_line {
                read_line(&mut reader, &mut segment).map_err(|error| match error.kind() {
                    std::io::ErrorKind::InvalidData => Refused::FlowFile(error.to_string()),
                    _ => error.into(),
                })?
            } else {
                reader.read_to_end(&mut segment)?;
                number == 0
            };
            if !is_there {
                break;
            }
            number += 1;
            let range = (offset, offset + segment.len() as u64);
            offset = range.1;
            self.route_segment(&segment, number, &conditions, scope, range, &mut routed)?;
            if routed.len() > TEXT_GROUPS_MAX {
                return Err(Refused::flow_file(format!(
                    "the text has more than {TEXT_GROUPS_MAX} groups"
                )));
            }
        }
        self.send(session, flow_file, routed)
    }

    fn route_segment(
        &self,
        segment: &[u8],
        number: u64,
        conditions: &[Condition<'_>],
        scope: Scope<'_>,
        range: (u64, u64),
        routed: &mut Routed,
    ) -> Result<(), Refused> {
        let compared = if self.is_per_line {
            chomp(segment).0
        } else {
            segment
        };
        let compared = if self.trims {
            compared.trim_ascii()
        } else {
            compared
        };
        let mut held = Vec::new();
        for (index, condition) in conditions.iter().enumerate() {
            let holds = match condition {
                Condition::Expression(expression) => {
                    self.satisfies(expression, segment, number, scope)?
                }
                other => {
                    let holds = other.holds(self.matching, self.ignores_case, compared);
                    holds.map_err(Refused::FlowFile)?
                }
            };
            if holds {
                held.push(KIND.relationships.len() + index);
            }
        }
        let targets = match self.routing {
            Routing::Each if held.is_empty() => vec![UNMATCHED],
            Routing::Each => held,
            Routing::All if held.len() == conditions.len() => vec![MATCHED],
            Routing::Any if !held.is_empty() => vec![MATCHED],
            _ => vec![UNMATCHED],
        };
        let group = self.group(compared).map_err(Refused::FlowFile)?;
        for target in targets {
            let ranges = routed.entry((target, group.clone())).or_default();
            match ranges.last_mut() {
                Some(last) if last.1 == range.0 => last.1 = range.1,
                _ => ranges.push(range),
            }
        }
        Ok(())
    }

    fn satisfies(
        &self,
        expression: &Expression,
        segment: &[u8],
        number: u64,
        scope: Scope<'_>,
    ) -> Result<bool, Refused> {
        let mut attributes = scope.attributes.cloned().unwrap_or_default();
        let (text, number) = (String::from_utf8_lossy(segment), number.to_string());
        attributes.set("segment", text.as_ref());
        attributes.set("segmentNo", number.as_str());
        if self.is_per_line {
            attributes.set("line", text.as_ref());
            attributes.set("lineNo", number.as_str());
        }
        let scope = Scope {
            attributes: Some(&attributes),
            ..scope
        };
        Ok(expression.evaluate_flag(scope)?)
    }

    fn group(&self, segment: &[u8]) -> Result<Option<String>, String> {
        let Some((pattern, fallback)) = self.grouping.as_ref() else {
            return Ok(None);
        };
        let Some(found) = pattern.find_all(segment).next().transpose()? else {
            return Ok(Some(fallback.clone()));
        };
        let groups = (1..pattern.groups()).map(|group| {
            let bytes = found.group(group).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        });
        Ok(Some(groups.collect::<Vec<_>>().join(", ")))
    }

    fn send(
        &self,
        session: &mut ProcessSession<'_>,
        flow_file: &FlowFile,
        routed: Routed,
    ) -> Result<(), Refused> {
        for ((target, group), ranges) in routed {
            let mut attributes = Arc::clone(flow_file.attributes());
            if let Some(group) = group {
                Arc::make_mut(&mut attributes).set("RouteText.Group", group);
            }
            let slices = ranges
                .into_iter()
                .map(|(start, end)| flow_file.content().slice(start, end - start));
            let content = Content::join(slices);
            let mut child = session.create_child(&[flow_file], attributes);
            session.set_content(&mut child, content)?;
            session.transfer(child, target);
        }
        Ok(())
    }
}

fn condition(
    matching: Matching,
    ignores_case: bool,
    text: &str,
) -> Result<Condition<'static>, String> {
    Ok(match matching {
        Matching::MatchesPattern => {
            let pattern = format!("^(?s:{text})$");
            Condition::Pattern(ContentPattern::new(&pattern, ignores_case)?)
        }
        Matching::ContainsPattern => Condition::Pattern(ContentPattern::new(text, ignores_case)?),
        _ if ignores_case => Condition::Text(text.to_lowercase().into_bytes()),
        _ => Condition::Text(text.as_bytes().to_vec()),
    })
}

impl Condition<'_> {
    fn holds(
        &self,
        matching: Matching,
        ignores_case: bool,
        segment: &[u8],
    ) -> Result<bool, String> {
        let text = match self {
            Condition::Pattern(pattern) => return pattern.is_match(segment),
            Condition::Expression(_) => return Ok(false),
            Condition::Text(text) => text.as_slice(),
        };
        let lower;
        let segment = if ignores_case {
            lower = String::from_utf8_lossy(segment).to_lowercase();
            lower.as_bytes()
        } else {
            segment
        };
        Ok(match matching {
            Matching::StartsWith => segment.starts_with(text),
            Matching::EndsWith => segment.ends_with(text),
            Matching::Contains => memchr::memmem::find(segment, text).is_some(),
            _ => segment == text,
        })
    }
}

impl Processor for RouteText {
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
        for flow_file in session.take(BATCH, BATCH_BYTES) {
            let routed = if !self.is_per_line && flow_file.size() > CONTENT_READ_BYTES_MAX {
                Err(Refused::flow_file(
                    "the content is too large for one text: choose Per Line",
                ))
            } else {
                self.route(session, &flow_file)
            };
            // MiNiFi's processor has no way for failures.
            taken(context, routed)?;
            session.transfer(flow_file, ORIGINAL);
        }
        Ok(Next::Scheduled)
    }
}

const ORIGINAL: usize = 0;
const UNMATCHED: usize = 1;
const MATCHED: usize = 2;

/// FlowFiles handled in one commit, and bytes of them.
const BATCH: usize = 100;
const BATCH_BYTES: u64 = 16 << 20;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
