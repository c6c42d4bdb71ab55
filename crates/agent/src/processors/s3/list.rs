//! ListS3: a FlowFile for each object that is new or changed, once.
//!
//! The state keeps the newest time that was listed and the keys of that time; it is committed
//! with the FlowFiles. An object that gets an older time than what was listed is not seen.

use super::common::{ACCOUNT, BUCKET, CLASSES, REQUESTER_PAYS, Way};
use crate::engine::Context;
use crate::net::run_until_stop;
use crate::object_storage::s3::{Bucket, Object};
use crate::processors::object_storage::{Entry, Listed, keep_oldest, stopped};
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape, joined,
};
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "ListS3",
    description: "Makes a FlowFile without content for each object of a bucket that is new or \
                  changed.",
    properties: &joined::<8, 14, 22>(
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
            PropertyKind::new("Use Versions", "Older versions are not listed.")
                .default("false")
                .allowed(&["false"]),
            PropertyKind::new("Write Object Tags", "Tags are not asked for.")
                .default("false")
                .allowed(&["false"]),
            PropertyKind::new("Write User Metadata", "Metadata are not asked for.")
                .default("false")
                .allowed(&["false"]),
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
        AttributeKind::new(
            "s3.storeClass",
            "How it is stored, as PutS3Object names it; Unknown where it has no name there.",
        ),
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
    ) -> Result<Vec<Entry>, String> {
        let mut fresh: Vec<Entry> = Vec::new();
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
                let entry = entry(&bucket.name, object);
                if is_old_enough && listed.lacks(&entry) {
                    fresh.push(entry);
                }
            }
            keep_oldest(&mut fresh, page.next.is_none());
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
        let listed = Listed::read(session);
        let fresh = run_until_stop(context, self.fresh(session, &bucket, &listed));
        let fresh = fresh.ok_or_else(stopped)?.map_err(|reason| {
            ProcessorError::Failed(format!("'{}' was not listed: {reason}", bucket.name))
        })?;
        Ok(match listed.list(session, fresh)? {
            true => Next::Again,
            false => Next::Scheduled,
        })
    }
}

fn entry(bucket: &str, object: Object) -> Entry {
    let changed = time(&object).unwrap_or_default().to_string();
    let class = CLASSES
        .into_iter()
        .find(|(_, wire)| *wire == object.storage_class)
        .map_or("Unknown", |(name, _)| name);
    Entry {
        attributes: vec![
            ("s3.bucket", bucket.to_owned()),
            ("filename", object.key.clone()),
            ("s3.etag", object.etag),
            ("s3.isLatest", "true".to_owned()),
            ("s3.lastModified", changed),
            ("s3.length", object.size.to_string()),
            ("s3.storeClass", class.to_owned()),
        ],
        time: object.last_modified,
        key: object.key,
    }
}

/// When an object changed, in milliseconds since 1970.
fn time(object: &Object) -> Option<i64> {
    let time: jiff::Timestamp = object.last_modified.parse().ok()?;
    Some(time.as_millisecond())
}
