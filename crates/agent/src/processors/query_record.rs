//! QueryRecord: SQL over the records of one FlowFile, one relationship for each query.

use std::sync::Arc;

use super::convert_record::{Formats, INCLUDE_EMPTY, MIME_TYPE, READER, RECORD_COUNT, WRITER};
use super::refused::{Refused, taken};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind,
    RelationshipKind, Settings,
};
use crate::content::Content;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::record_sets::Query;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "QueryRecord",
    description: "Each further property is a relationship and its SQL, over the records of one \
                  FlowFile: SELECT ... FROM FLOWFILE, with WHERE, functions, GROUP BY, HAVING, \
                  ORDER BY, LIMIT. Fields within others are named with dots; there are no joins \
                  and no subqueries.",
    properties: &[READER, WRITER, INCLUDE_EMPTY],
    dynamic: Dynamic::Relationships,
    relationships: &[
        RelationshipKind {
            name: "failure",
            description: "FlowFiles for which a query has no answer, unchanged.",
        },
        RelationshipKind {
            name: "original",
            description: "FlowFiles that were queried.",
        },
    ],
    writes: &[
        RECORD_COUNT,
        MIME_TYPE,
        AttributeKind::new("QueryRecord.Route", "The relationship."),
    ],
    input: Input::Required,
    make: |settings| QueryRecord::new(settings).map(|made| Box::new(made) as _),
};

struct QueryRecord {
    formats: Formats,
    includes_empty: bool,
    routes: Vec<Route>,
}

struct Route {
    name: String,
    text: Expression,
    /// The query that was read last, and its text.
    last: Option<(String, Arc<Query>)>,
}

impl Route {
    fn query(&mut self, text: &str) -> Result<Arc<Query>, String> {
        if let Some((known, query)) = &self.last
            && known == text
        {
            return Ok(Arc::clone(query));
        }
        let query = Query::parse(text).map_err(|why| format!("{}: {why}", self.name))?;
        let query = Arc::new(query);
        self.last = Some((text.to_owned(), Arc::clone(&query)));
        Ok(query)
    }
}

impl QueryRecord {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let mut routes = Vec::new();
        for (name, text) in settings.dynamic()? {
            let mut route = Route {
                name,
                text,
                last: None,
            };
            if let Some(text) = route.text.as_literal().map(str::to_owned) {
                route.query(&text)?;
            }
            routes.push(route);
        }
        if routes.is_empty() {
            return Err(
                "there is no query: add a property with its relationship's name".to_owned(),
            );
        }
        Ok(QueryRecord {
            formats: Formats::new(settings)?,
            includes_empty: settings.flag(INCLUDE_EMPTY.name)?,
            routes,
        })
    }

    /// Answers every query, or none.
    fn answer(
        &mut self,
        session: &mut ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(), Refused> {
        let mut answers = Vec::new();
        for route in &mut self.routes {
            let text = route.text.evaluate(session.scope(flow_file))?.into_owned();
            let query = route.query(&text).map_err(Refused::FlowFile)?;
            let answer = run(&query, &self.formats, session, flow_file);
            answers.push(answer.map_err(|refused| match refused {
                Refused::FlowFile(reason) => Refused::FlowFile(format!("{}: {reason}", route.name)),
                other => other,
            })?);
        }
        for (index, (content, count)) in answers.into_iter().enumerate() {
            if count == 0 && !self.includes_empty {
                continue;
            }
            let mut attributes = flow_file.attributes().as_ref().clone();
            attributes.set(RECORD_COUNT.name, count.to_string());
            attributes.set(MIME_TYPE.name, self.formats.writers.mime_type());
            attributes.set("QueryRecord.Route", self.routes[index].name.as_str());
            let mut child = session.create_child(&[flow_file], Arc::new(attributes));
            session.set_content(&mut child, content)?;
            session.transfer(child, KIND.relationships.len() + index);
        }
        Ok(())
    }
}

fn run(
    query: &Query,
    formats: &Formats,
    session: &mut ProcessSession<'_>,
    flow_file: &FlowFile,
) -> Result<(Content, u64), Refused> {
    let mut records = formats.readers.open(session.reader(flow_file));
    let mut content = session.writer();
    let mut count = 0;
    {
        let mut writer = formats.writers.create(&mut content);
        query.run(records.as_mut(), |record| {
            count += 1;
            writer.write(&record)
        })?;
        writer.finish()?;
    }
    Ok((content.finish()?, count))
}

impl Processor for QueryRecord {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for flow_file in session.take(BATCH, BATCH_BYTES) {
            match taken(context, self.answer(session, &flow_file))? {
                Some(()) => session.transfer(flow_file, ORIGINAL),
                None => session.transfer(flow_file, FAILURE),
            }
        }
        Ok(Next::Scheduled)
    }
}

const FAILURE: usize = 0;
const ORIGINAL: usize = 1;

/// FlowFiles handled in one commit, and bytes of them.
const BATCH: usize = 1_000;
const BATCH_BYTES: u64 = 16 << 20;
