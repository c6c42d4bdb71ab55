//! DeleteS3Object: deletes the objects that FlowFiles name.

use reqwest::Method;

use super::common::{ACCOUNT, BUCKET, KEY, Way};
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::net::run_until_stop;
use crate::object_storage::s3::Ask;
use crate::processors::object_storage::{SUCCESS, fail, stopped, text_of};
use crate::processors::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, joined,
};
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "DeleteS3Object",
    description: "Deletes the object that each FlowFile names; one that is not there is fine.",
    properties: &joined::<3, 14, 17>(
        [
            KEY,
            BUCKET,
            PropertyKind::new("Version", "The object's version; the newest when empty.")
                .expressions(Expressions::FlowFile),
        ],
        ACCOUNT,
    ),
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose object is not there any more.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose object could not be deleted.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| DeleteS3Object::new(settings).map(|made| Box::new(made) as _),
};

struct DeleteS3Object {
    way: Way,
    version: Option<Expression>,
}

impl DeleteS3Object {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(DeleteS3Object {
            way: Way::new(settings, true)?,
            version: settings.expression("Version")?,
        })
    }

    async fn delete(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(), String> {
        let (bucket, key) = self.way.object(session, flow_file)?;
        let mut ask = Ask::new(Method::DELETE, &key);
        let version = text_of(self.version.as_ref(), session, flow_file)?;
        if !version.is_empty() {
            ask.query.push(("versionId", version));
        }
        let asking = bucket.ask(&self.way.client, session.now(), ask, self.way.wait);
        asking.await.map(drop)
    }
}

impl Processor for DeleteS3Object {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        let deleted = run_until_stop(context, self.delete(session, &flow_file));
        match deleted {
            Some(Ok(())) => session.transfer(flow_file, SUCCESS),
            Some(Err(reason)) => fail(context, session, flow_file, "deleted", &reason),
            None => return Err(stopped()),
        }
        Ok(Next::Scheduled)
    }
}
