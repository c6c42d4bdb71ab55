//! ListGCSBucket: a FlowFile for each object of a bucket, each time.
//!
//! A listing goes page by page, each of which is committed, and begins anew after a restart.

use std::sync::Arc;

use super::common::{ACCOUNT, Way, set_facts, writes};
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::net::run_until_stop;
use crate::object_storage::gcs::text;
use crate::processors::object_storage::{SUCCESS, stopped, text_alone};
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape, joined,
};
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "ListGCSBucket",
    description: "Makes a FlowFile without content for each object of a bucket, each time.",
    properties: &joined::<2, 4, 6>(
        [
            PropertyKind::new("Bucket", "The bucket.")
                .required()
                .expressions(Expressions::Once),
            PropertyKind::new("List all versions", "Whether older generations count too.")
                .default("false")
                .shape(Shape::Flag),
        ],
        ACCOUNT,
    ),
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "A FlowFile for each object.",
    }],
    writes: &writes::<1, 23>([AttributeKind::new("filename", "The object's name.")], true),
    input: Input::Forbidden,
    make: |settings| ListGcsBucket::new(settings).map(|made| Box::new(made) as _),
};

struct ListGcsBucket {
    way: Way,
    all_versions: bool,
    /// Where the listing goes on.
    next: Option<String>,
}

impl ListGcsBucket {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(ListGcsBucket {
            way: Way::new(settings, false)?,
            all_versions: settings.flag("List all versions")?,
            next: None,
        })
    }
}

impl Processor for ListGcsBucket {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let bucket = text_alone(self.way.bucket(), session).map_err(ProcessorError::Failed)?;
        // After an error a listing begins anew.
        let next = self.next.take();
        let storage = &self.way.storage;
        let listing = storage.list(session.now(), &bucket, self.all_versions, next);
        let page = run_until_stop(context, listing).ok_or_else(stopped)?;
        let (objects, next) = page.map_err(|reason| {
            ProcessorError::Failed(format!("'{bucket}' was not listed: {reason}"))
        })?;
        for object in objects {
            let mut attributes = Attributes::default();
            attributes.set("filename", text(&object, "name").unwrap_or_default());
            set_facts(&mut attributes, &object);
            let flow_file = session.create(Arc::new(attributes));
            session.transfer(flow_file, SUCCESS);
        }
        session.commit()?;
        self.next = next;
        Ok(match self.next {
            Some(_) => Next::Again,
            None => Next::Scheduled,
        })
    }
}
