//! ExecuteSQL: the rows of a query as JSON.

use std::sync::Arc;

use super::common::{self, Connected, OUTPUT_FORMAT, ROWS_MAX, SERVICE};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::{Attributes, FlowFile};
use crate::processors::fragments;
use crate::processors::refused::Refused;
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings,
};
use crate::record_sets::Writers;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "ExecuteSQL",
    description: "Has a database answer a query, by a schedule or for each FlowFile; each ? in it \
                  stands for one of the attributes sql.args.1.value, sql.args.2.value and so on.",
    properties: &[
        SERVICE,
        PropertyKind::new(
            "SQL select query",
            "The query; the content of the FlowFile, where this is empty.",
        )
        .expressions(Expressions::FlowFile),
        OUTPUT_FORMAT,
        ROWS_MAX,
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "The rows; a list without any, where there are none.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose query the database refuses, unchanged.",
        },
    ],
    writes: &[
        AttributeKind::new("executesql.row.count", "Rows of the FlowFile."),
        AttributeKind::new(
            "executesql.error.message",
            "Why the database refuses, by 'failure'.",
        ),
        AttributeKind::new(
            "input.flowfile.uuid",
            "The FlowFile that the query was made for.",
        ),
        fragments::IDENTIFIER,
        fragments::INDEX,
        fragments::COUNT,
    ],
    input: Input::Allowed,
    make: |settings| ExecuteSql::new(settings).map(|made| Box::new(made) as _),
};

struct ExecuteSql {
    database: Connected,
    query: Option<Expression>,
    rows_max: Expression,
    writers: Writers,
}

impl ExecuteSql {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(ExecuteSql {
            database: Connected::new(settings)?,
            query: settings.expression("SQL select query")?,
            rows_max: settings
                .expression(ROWS_MAX.name)?
                .unwrap_or_else(|| Expression::literal("0")),
            writers: Writers::json(settings.needed(OUTPUT_FORMAT.name)? == "JSON-Pretty"),
        })
    }

    fn execute(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        flow_file: Option<&FlowFile>,
    ) -> Result<(), Refused> {
        let none = Arc::default();
        let attributes = flow_file.map_or(&none, FlowFile::attributes);
        let sql = common::statement(session, self.query.as_ref(), flow_file)?;
        let sql = self.database.place.statement(&sql, attributes);
        let sql = sql.map_err(Refused::FlowFile)?;
        let rows_max = common::rows_max(session, &self.rows_max, flow_file)?;
        let writers = &self.writers;
        let contents = self.database.with(context, |link| {
            let rows = link.query(context, sql);
            common::contents(session, rows, rows_max, writers, |_| Ok(()))
        })?;
        let identifier = uuid::Uuid::new_v4().to_string();
        let count = contents.len().to_string();
        for (index, (content, rows)) in contents.into_iter().enumerate() {
            let mut attributes: Attributes = attributes.as_ref().clone();
            attributes.set("executesql.row.count", rows.to_string());
            attributes.set("mime.type", "application/json");
            if count != "1" {
                attributes.set(fragments::IDENTIFIER.name, identifier.as_str());
                attributes.set(fragments::INDEX.name, index.to_string());
                attributes.set(fragments::COUNT.name, count.as_str());
            }
            let mut made = match flow_file {
                Some(parent) => {
                    attributes.set("input.flowfile.uuid", session.uuid(parent));
                    session.create_child(&[parent], Arc::new(attributes))
                }
                None => session.create(Arc::new(attributes)),
            };
            session.set_content(&mut made, content)?;
            session.transfer(made, SUCCESS);
        }
        Ok(())
    }
}

impl Processor for ExecuteSql {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let flow_file = session.take_one();
        if flow_file.is_none() && context.has_incoming() {
            // What was there has expired.
            return Ok(Next::Scheduled);
        }
        match (
            self.execute(context, session, flow_file.as_ref()),
            flow_file,
        ) {
            (Ok(()), flow_file) => session.remove_all(flow_file.into_iter().collect()),
            (Err(Refused::FlowFile(reason)), Some(mut flow_file)) => {
                context.post(Level::Error, &reason);
                let mut attributes = Arc::clone(flow_file.attributes());
                Arc::make_mut(&mut attributes).set("executesql.error.message", reason);
                session.set_attributes(&mut flow_file, attributes);
                session.transfer(flow_file, FAILURE);
            }
            (Err(Refused::FlowFile(reason)), None) => return Err(ProcessorError::Failed(reason)),
            (Err(Refused::Session(error)), _) => return Err(error),
        }
        Ok(Next::Scheduled)
    }

    fn stop(&mut self) {
        self.database.close();
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;
