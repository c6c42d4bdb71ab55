//! FetchS3Object: an object's content into the FlowFile that names it.

use reqwest::Method;

use super::common::{ACCOUNT, BUCKET, KEY, REQUESTER_PAYS, Way, facts_of};
use crate::content::Content;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::Attributes;
use crate::net::run_until_stop;
use crate::object_storage::header;
use crate::object_storage::s3::{Ask, Bucket};
use crate::processors::object_storage::{SUCCESS, fail, receive, stopped, text_of};
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, joined,
};
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "FetchS3Object",
    description: "Gives each FlowFile the content of the object that it names.",
    properties: &joined::<4, 14, 18>(
        [
            KEY,
            BUCKET,
            PropertyKind::new("Version", "The object's version; the newest when empty.")
                .expressions(Expressions::FlowFile),
            REQUESTER_PAYS,
        ],
        ACCOUNT,
    ),
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles with the object's content.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose object could not be had.",
        },
    ],
    writes: &[
        AttributeKind::new("s3.bucket", "The bucket."),
        AttributeKind::new("path", "What stands before the key's last slash."),
        AttributeKind::new("absolute.path", "The whole key."),
        AttributeKind::new("filename", "What stands behind the key's last slash."),
        AttributeKind::new("mime.type", "What the object is."),
        AttributeKind::new("s3.etag", "The server's tag of its content."),
        AttributeKind::new("s3.version", "Its version, where the bucket keeps them."),
        AttributeKind::new("s3.sseAlgorithm", "How the server encrypts it."),
        AttributeKind::new("s3.expirationTime", "Until when it is kept."),
        AttributeKind::new("s3.expirationTimeRuleId", "The rule that says so."),
    ],
    input: Input::Required,
    make: |settings| FetchS3Object::new(settings).map(|made| Box::new(made) as _),
};

struct FetchS3Object {
    way: Way,
    version: Option<Expression>,
    requester_pays: bool,
}

/// An object with what the server says of it.
type Fetched = (Content, Vec<(&'static str, String)>);

impl FetchS3Object {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(FetchS3Object {
            way: Way::new(settings, true)?,
            version: settings.expression("Version")?,
            requester_pays: settings.flag("Requester Pays")?,
        })
    }

    async fn fetch(
        &self,
        session: &mut ProcessSession<'_>,
        bucket: &Bucket,
        key: &str,
        version: String,
    ) -> Result<Result<Fetched, String>, ProcessorError> {
        let mut ask = Ask::new(Method::GET, key);
        if !version.is_empty() {
            ask.query.push(("versionId", version));
        }
        let (client, wait) = (&self.way.client, self.way.wait);
        let answer = match bucket.ask(client, session.now(), ask, wait).await {
            Ok(answer) => answer,
            Err(reason) => return Ok(Err(reason)),
        };
        let until = [
            ("s3.expirationTime", "expiry-date"),
            ("s3.expirationTimeRuleId", "rule-id"),
        ];
        let mut facts = facts_of(&answer, &until);
        for (attribute, name) in [("mime.type", "content-type"), ("s3.etag", "etag")] {
            facts.extend(header(&answer, name).map(|value| (attribute, value)));
        }
        let received = receive(session, answer, wait, &mut |_| ()).await?;
        Ok(received.map(|content| (content, facts)))
    }
}

impl Processor for FetchS3Object {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(mut flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        let version = text_of(self.version.as_ref(), session, &flow_file);
        let named = self.way.object(session, &flow_file);
        let named = named.and_then(|named| Ok((named, version?)));
        let outcome = match named {
            Ok(((mut bucket, key), version)) => {
                bucket.requester_pays = self.requester_pays;
                let fetching = self.fetch(session, &bucket, &key, version);
                let fetched = run_until_stop(context, fetching).ok_or_else(stopped)??;
                fetched.map(|fetched| (bucket, key, fetched))
            }
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok((bucket, key, (content, facts))) => {
                let mut attributes = Attributes::clone(flow_file.attributes());
                for (name, value) in facts {
                    attributes.set(name, value);
                }
                let (path, name) = key.rsplit_once('/').unwrap_or(("", &key));
                attributes.set("s3.bucket", bucket.name.as_str());
                attributes.set("path", path);
                attributes.set("absolute.path", key.as_str());
                attributes.set("filename", name);
                session.set_content(&mut flow_file, content)?;
                session.set_attributes(&mut flow_file, attributes.into());
                let transit = format!("s3://{}/{key}", bucket.name);
                session.note(&flow_file, EventKind::Fetch, &transit);
                session.transfer(flow_file, SUCCESS);
            }
            Err(reason) => fail(context, session, flow_file, "fetched", &reason),
        }
        Ok(Next::Scheduled)
    }
}
