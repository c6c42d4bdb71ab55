//! DeleteGCSObject: deletes the objects that FlowFiles name.

use reqwest::Method;

use super::common::{
    ACCOUNT, FAILED, GENERATION, OBJECT, Way, encryption_of, fail_by, generation_of, writes,
};
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::net::run_until_stop;
use crate::object_storage::Refusal;
use crate::object_storage::gcs::{Ask, object_path};
use crate::processors::object_storage::{SUCCESS, stopped};
use crate::processors::{
    Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, RelationshipKind, Settings,
    joined,
};
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "DeleteGCSObject",
    description: "Deletes the object that each FlowFile names.",
    properties: &joined::<4, 4, 8>(joined::<3, 1, 4>(OBJECT, [GENERATION]), ACCOUNT),
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose object was deleted.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose object could not be deleted, or was not there.",
        },
    ],
    writes: &writes::<3, 3>(FAILED, false),
    input: Input::Required,
    make: |settings| DeleteGcsObject::new(settings).map(|made| Box::new(made) as _),
};

struct DeleteGcsObject {
    way: Way,
    generation: Option<Expression>,
}

impl DeleteGcsObject {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        encryption_of(settings)?;
        Ok(DeleteGcsObject {
            way: Way::new(settings, true)?,
            generation: settings.expression("Object Generation")?,
        })
    }

    async fn delete(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(), Refusal> {
        let (bucket, key) = self.way.object(session, flow_file)?;
        let mut ask = Ask::new(Method::DELETE, object_path(&bucket, &key)?);
        let generation = generation_of(self.generation.as_ref(), session, flow_file)?;
        ask.query.extend(generation);
        self.way.storage.ask(session.now(), &ask).await.map(drop)
    }
}

impl Processor for DeleteGcsObject {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        let deleted = run_until_stop(context, self.delete(session, &flow_file));
        match deleted.ok_or_else(stopped)? {
            Ok(()) => session.transfer(flow_file, SUCCESS),
            Err(refusal) => fail_by(context, session, flow_file, "deleted", &refusal),
        }
        Ok(Next::Scheduled)
    }
}
