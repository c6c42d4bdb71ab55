//! ListS3: a FlowFile for each object that is new or changed, once.
//!
//! The state keeps the newest time that was listed and the keys of that time; it is committed
//! with the FlowFiles. An object that gets an older time than what was listed is not seen.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::common::{ACCOUNT, BUCKET, REQUESTER_PAYS, Way};
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::limits::SESSION_FLOW_FILES_MAX;
use crate::net::limits::S3_LISTED_KEYS_MAX;
use crate::net::run_until_stop;
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape, joined,
};
use crate::s3::{Bucket, Object};
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "ListS3",
    description: "Makes a FlowFile without content for each object of a bucket that is new or \
                  changed.",
    properties: &joined::<5, 12, 17>(
        [
            BUCKET,
            PropertyKind::new("Prefix", "What keys begin with.").expressions(Expressions::Once),
            PropertyKind::new(
                "Delimiter",
                "Keys with this behind the prefix are left out.",
            )
            .expressions(Expressions::Once),
            PropertyKind::new(
                "Minimum Object Age",
                "Younger objects wait for a later listing.",
            )
            .default("0 sec")
            .shape(Shape::Duration),
            REQUESTER_PAYS,
        ],
        ACCOUNT,
    ),
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "A FlowFile for each object.",
    }],
    writes: &[
        AttributeKind::new("s3.bucket", "The bucket."),
        AttributeKind::new("filename", "The object's key."),
        AttributeKind::new("s3.etag", "The server's tag of its content."),
        AttributeKind::new("s3.isLatest", "true."),
        AttributeKind::new(
            "s3.lastModified",
            "When it changed, in milliseconds since 1970.",
        ),
        AttributeKind::new("s3.length", "Its bytes."),
        AttributeKind::new("s3.storeClass", "How it is stored."),
    ],
    input: Input::Forbidden,
    make: |settings| ListS3::new(settings).map(|made| Box::new(made) as _),
};

struct ListS3 {
    way: Way,
    prefix: String,
    delimiter: Option<String>,
    age_min: std::time::Duration,
    requester_pays: bool,
}

/// What was listed, as the state keeps it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Listed {
    version: u8,
    /// The newest time, as the server writes it.
    time: String,
    /// The keys of that time.
    keys: BTreeSet<String>,
}

impl ListS3 {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(ListS3 {
            way: Way::new(settings, false)?,
            prefix: settings.text("Prefix")?.unwrap_or_default(),
            delimiter: settings.text("Delimiter")?,
            age_min: settings.duration("Minimum Object Age")?,
            requester_pays: settings.flag("Requester Pays")?,
        })
    }

    /// The objects that were not listed before, the oldest first, as many as a session takes.
    async fn fresh(
        &self,
        session: &ProcessSession<'_>,
        bucket: &Bucket,
        listed: &Listed,
    ) -> Result<Vec<Object>, String> {
        let mut fresh: Vec<Object> = Vec::new();
        let mut next = None;
        loop {
            let delimiter = self.delimiter.as_deref();
            let (client, wait) = (&self.way.client, self.way.wait);
            let page = bucket
                .list(client, session.now(), &self.prefix, delimiter, next, wait)
                .await?;
            for object in page.objects {
                let age = time(&object).map(|time| session.now().0 - time);
                let is_old_enough = age.is_some_and(|age| age >= self.age_min.as_millis() as i64);
                let is_new = object.last_modified > listed.time
                    || (object.last_modified == listed.time && !listed.keys.contains(&object.key));
                if is_new && is_old_enough {
                    fresh.push(object);
                }
            }
            // Memory holds no more than two sessions' worth: the oldest are kept.
            if fresh.len() > 2 * SESSION_FLOW_FILES_MAX || page.next.is_none() {
                fresh.sort_by(|a, b| (&a.last_modified, &a.key).cmp(&(&b.last_modified, &b.key)));
                fresh.truncate(SESSION_FLOW_FILES_MAX);
            }
            next = page.next;
            if next.is_none() {
                return Ok(fresh);
            }
        }
    }
}

impl Processor for ListS3 {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let mut bucket = self.way.alone(session).map_err(ProcessorError::Failed)?;
        bucket.requester_pays = self.requester_pays;
        let mut listed: Listed = serde_json::from_slice(&session.state()).unwrap_or_default();
        let fresh = run_until_stop(context, self.fresh(session, &bucket, &listed));
        let fresh = fresh.ok_or_else(|| ProcessorError::Failed("stopped".to_owned()))?;
        let fresh = fresh.map_err(|reason| {
            ProcessorError::Failed(format!("'{}' was not listed: {reason}", bucket.name))
        })?;
        if fresh.is_empty() {
            return Ok(Next::Scheduled);
        }
        let is_full = fresh.len() == SESSION_FLOW_FILES_MAX;
        for object in fresh {
            let flow_file = session.create(Arc::new(attributes(&bucket.name, &object)));
            session.transfer(flow_file, 0);
            if object.last_modified > listed.time {
                listed.time = object.last_modified;
                listed.keys.clear();
            }
            listed.keys.insert(object.key);
            if listed.keys.len() > S3_LISTED_KEYS_MAX {
                return Err(ProcessorError::Failed(format!(
                    "more than {S3_LISTED_KEYS_MAX} objects have the same time; narrow Prefix"
                )));
            }
        }
        let state = serde_json::to_vec(&listed).expect("plain texts are always JSON");
        session.set_state(state.into())?;
        Ok(if is_full {
            Next::Again
        } else {
            Next::Scheduled
        })
    }
}

fn attributes(bucket: &str, object: &Object) -> Attributes {
    Attributes::new([
        ("s3.bucket", bucket.to_owned()),
        ("filename", object.key.clone()),
        ("s3.etag", object.etag.clone()),
        ("s3.isLatest", "true".to_owned()),
        (
            "s3.lastModified",
            time(object).unwrap_or_default().to_string(),
        ),
        ("s3.length", object.size.to_string()),
        ("s3.storeClass", object.storage_class.clone()),
    ])
}

/// When an object changed, in milliseconds since 1970.
fn time(object: &Object) -> Option<i64> {
    let time: jiff::Timestamp = object.last_modified.parse().ok()?;
    Some(time.as_millisecond())
}
