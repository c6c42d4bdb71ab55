//! DeleteAzureBlobStorage: deletes the blobs that FlowFiles name, or their snapshots.

use reqwest::Method;

use super::common::{ACCOUNT, BLOB, WAIT, Way};
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::net::run_until_stop;
use crate::object_storage::azure::Ask;
use crate::processors::object_storage::{SUCCESS, fail, stopped};
use crate::processors::{
    Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind, RelationshipKind,
    Settings, joined,
};
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "DeleteAzureBlobStorage",
    description: "Deletes the blob that each FlowFile names.",
    properties: &joined::<2, 11, 13>(
        [
            BLOB,
            PropertyKind::new(
                "Delete Snapshots Option",
                "Whether its snapshots go too, or they alone; a blob that has some does not go \
                 without them.",
            )
            .default("None")
            .required()
            .allowed(&["None", "Include Snapshots", "Delete Snapshots Only"]),
        ],
        ACCOUNT,
    ),
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose blob was deleted.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose blob could not be deleted, or was not there.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| DeleteAzureBlobStorage::new(settings).map(|made| Box::new(made) as _),
};

struct DeleteAzureBlobStorage {
    way: Way,
    snapshots: Option<&'static str>,
}

impl DeleteAzureBlobStorage {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(DeleteAzureBlobStorage {
            way: Way::new(settings, true)?,
            snapshots: match settings.needed("Delete Snapshots Option")?.as_str() {
                "Include Snapshots" => Some("include"),
                "Delete Snapshots Only" => Some("only"),
                _ => None,
            },
        })
    }

    async fn delete(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(), String> {
        let (container, blob) = self.way.object(session, flow_file)?;
        let mut ask = Ask::new(Method::DELETE, &container, &blob);
        let snapshots = self.snapshots.map(str::to_owned);
        ask.headers
            .extend(snapshots.map(|which| ("x-ms-delete-snapshots", which)));
        let Way {
            client, account, ..
        } = &self.way;
        account.ask(client, session.now(), ask, WAIT).await?;
        Ok(())
    }
}

impl Processor for DeleteAzureBlobStorage {
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
            Err(reason) => fail(context, session, flow_file, "deleted", &reason),
        }
        Ok(Next::Scheduled)
    }
}
