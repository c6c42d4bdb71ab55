//! PutSQL: statements that change something.

use std::sync::Arc;

use super::common::{self, Connected, SERVICE};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::processors::refused::Refused;
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings,
};
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "PutSQL",
    description: "Has a database do a statement for each FlowFile; each ? in it stands for one of \
                  the attributes sql.args.1.value, sql.args.2.value and so on. A crash between the \
                  database's commit and the agent's has it done once more.",
    properties: &[
        SERVICE,
        PropertyKind::new(
            "SQL Statement",
            "The statement; the content of the FlowFile, where this is empty.",
        )
        .expressions(Expressions::FlowFile),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose statement was done.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose statement the database refuses.",
        },
    ],
    writes: &[AttributeKind::new(
        "putsql.error.message",
        "Why the database refuses, by 'failure'.",
    )],
    input: Input::Required,
    make: |settings| PutSql::new(settings).map(|made| Box::new(made) as _),
};

struct PutSql {
    database: Connected,
    statement: Option<Expression>,
}

impl PutSql {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(PutSql {
            database: Connected::new(settings)?,
            statement: settings.expression("SQL Statement")?,
        })
    }

    fn put(
        &mut self,
        context: &Context,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(), Refused> {
        let sql = common::statement(session, self.statement.as_ref(), Some(flow_file))?;
        let sql = self.database.place.statement(&sql, flow_file.attributes());
        let sql = sql.map_err(Refused::FlowFile)?;
        self.database
            .with(context, |link| Ok(link.execute(context, sql)?))
    }
}

impl Processor for PutSql {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(mut flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        match self.put(context, session, &flow_file) {
            Ok(()) => session.transfer(flow_file, SUCCESS),
            Err(Refused::FlowFile(reason)) => {
                context.post(Level::Error, &reason);
                let mut attributes = Arc::clone(flow_file.attributes());
                Arc::make_mut(&mut attributes).set("putsql.error.message", reason);
                session.set_attributes(&mut flow_file, attributes);
                session.transfer(flow_file, FAILURE);
            }
            Err(Refused::Session(error)) => return Err(error),
        }
        Ok(Next::Scheduled)
    }

    fn stop(&mut self) {
        self.database.close();
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;
