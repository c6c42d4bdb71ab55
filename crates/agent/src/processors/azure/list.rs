//! ListAzureBlobStorage: a FlowFile for each blob that is new or changed, once; or for each blob,
//! each time.
//!
//! Where blobs are tracked the state keeps what [`Listed`] says; it is committed with the
//! FlowFiles. Where they are not, a listing goes page by page, each of which is committed, and
//! begins anew after a restart.

use std::sync::Arc;

use super::common::{ACCOUNT, WAIT, Way};
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::net::run_until_stop;
use crate::object_storage::azure::{Blob, Page};
use crate::processors::object_storage::{Entry, Listed, SUCCESS, keep_oldest, stopped};
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, joined,
};
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "ListAzureBlobStorage",
    description: "Makes a FlowFile without content for each blob of a container.",
    properties: &joined::<2, 11, 13>(
        [
            PropertyKind::new(
                "Listing Strategy",
                "`timestamps`: blobs that are new or changed, by the newest time that was listed; \
                 `none`: all of them, each time.",
            )
            .default("timestamps")
            .required()
            .allowed(&["none", "timestamps"]),
            PropertyKind::new("Prefix", "What names begin with.").expressions(Expressions::Once),
        ],
        ACCOUNT,
    ),
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "A FlowFile for each blob.",
    }],
    writes: &[
        AttributeKind::new("azure.container", "The container."),
        AttributeKind::new("azure.blobname", "The blob's name."),
        AttributeKind::new("azure.primaryUri", "The container's address."),
        AttributeKind::new("azure.etag", "The server's tag of its content."),
        AttributeKind::new("azure.length", "Its bytes."),
        AttributeKind::new(
            "azure.timestamp",
            "When it changed, in milliseconds since 1970.",
        ),
        AttributeKind::new("mime.type", "What it is."),
        AttributeKind::new("lang", "Its language."),
        AttributeKind::new("azure.blobtype", "BlockBlob, PageBlob or AppendBlob."),
    ],
    input: Input::Forbidden,
    make: |settings| ListAzureBlobStorage::new(settings).map(|made| Box::new(made) as _),
};

struct ListAzureBlobStorage {
    way: Way,
    prefix: String,
    is_tracking: bool,
    /// Where a listing without tracking goes on.
    next: Option<String>,
}

impl ListAzureBlobStorage {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(ListAzureBlobStorage {
            way: Way::new(settings, false)?,
            prefix: settings.text("Prefix")?.unwrap_or_default(),
            is_tracking: settings.needed("Listing Strategy")? == "timestamps",
            next: None,
        })
    }

    async fn page(
        &self,
        session: &ProcessSession<'_>,
        container: &str,
        next: Option<String>,
    ) -> Result<Page, String> {
        let Way {
            client, account, ..
        } = &self.way;
        let now = session.now();
        account
            .list(client, now, container, &self.prefix, next, WAIT)
            .await
    }

    /// The blobs that were not listed before, the oldest first, as many as a session takes.
    async fn fresh(
        &self,
        session: &ProcessSession<'_>,
        container: &str,
        listed: &Listed,
    ) -> Result<Vec<Entry>, String> {
        let mut fresh = Vec::new();
        let mut next = None;
        loop {
            let (blobs, more) = self.page(session, container, next).await?;
            for blob in blobs {
                let entry = self.entry(container, blob)?;
                if listed.lacks(&entry) {
                    fresh.push(entry);
                }
            }
            keep_oldest(&mut fresh, more.is_none());
            next = more;
            if next.is_none() {
                return Ok(fresh);
            }
        }
    }

    fn entry(&self, container: &str, blob: Blob) -> Result<Entry, String> {
        let address = self.way.account.address(container)?;
        Ok(Entry {
            // In order of time as texts, for some thousands of years.
            time: format!("{:015}", blob.last_modified),
            attributes: vec![
                ("azure.container", container.to_owned()),
                ("azure.blobname", blob.name.clone()),
                ("azure.primaryUri", address),
                ("azure.etag", blob.etag),
                ("azure.length", blob.len.to_string()),
                ("azure.timestamp", blob.last_modified.to_string()),
                ("mime.type", blob.content_type),
                ("lang", blob.language),
                ("azure.blobtype", blob.kind),
            ],
            key: blob.name,
        })
    }
}

impl Processor for ListAzureBlobStorage {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let container = self.way.alone(session).map_err(ProcessorError::Failed)?;
        let unlisted = |reason: String| {
            ProcessorError::Failed(format!("'{container}' was not listed: {reason}"))
        };
        if self.is_tracking {
            let listed = Listed::read(session);
            let fresh = run_until_stop(context, self.fresh(session, &container, &listed));
            let fresh = fresh.ok_or_else(stopped)?.map_err(unlisted)?;
            return Ok(match listed.list(session, fresh)? {
                true => Next::Again,
                false => Next::Scheduled,
            });
        }
        // After an error a listing begins anew.
        let next = self.next.take();
        let page = run_until_stop(context, self.page(session, &container, next));
        let (blobs, next) = page.ok_or_else(stopped)?.map_err(unlisted)?;
        for blob in blobs {
            let entry = self.entry(&container, blob).map_err(unlisted)?;
            let flow_file = session.create(Arc::new(Attributes::new(entry.attributes)));
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
