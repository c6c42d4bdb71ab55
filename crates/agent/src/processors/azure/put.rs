//! PutAzureBlobStorage: content of any size as blobs, in blocks when it is large.
//!
//! A blob of blocks is there once their list is stored; blocks without one go away by themselves.

use reqwest::{Method, Response};

use super::common::{ACCOUNT, BLOB, WAIT, Way};
use crate::engine::Context;
use crate::flowfile::{Attributes, FlowFile};
use crate::net::http_client::Progress;
use crate::net::run_until_stop;
use crate::object_storage::azure::{Ask, block_list};
use crate::object_storage::{Refusal, base64, header};
use crate::processors::object_storage::{LONGEST, Outgoing, SUCCESS, fail, stopped};
use crate::processors::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape, joined,
};
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "PutAzureBlobStorage",
    description: "Puts each FlowFile's content into a container, in blocks of 8 MB when it is \
                  larger than 16 MB.",
    properties: &joined::<2, 11, 13>(
        [
            BLOB,
            PropertyKind::new(
                "Create Container",
                "Whether a container that is not there is made.",
            )
            .default("false")
            .required()
            .shape(Shape::Flag),
        ],
        ACCOUNT,
    ),
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose blob is stored.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that could not be stored.",
        },
    ],
    writes: &[
        AttributeKind::new("azure.container", "The container."),
        AttributeKind::new("azure.blobname", "The blob's name."),
        AttributeKind::new("azure.primaryUri", "The container's address."),
        AttributeKind::new("azure.etag", "The server's tag of its content."),
        AttributeKind::new("azure.length", "Its bytes."),
        AttributeKind::new(
            "azure.timestamp",
            "When it was stored, as the server writes it.",
        ),
    ],
    input: Input::Required,
    make: |settings| PutAzureBlobStorage::new(settings).map(|made| Box::new(made) as _),
};

struct PutAzureBlobStorage {
    way: Way,
    creates: bool,
}

impl PutAzureBlobStorage {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(PutAzureBlobStorage {
            way: Way::new(settings, true)?,
            creates: settings.flag("Create Container")?,
        })
    }

    /// One request with a range of the content.
    async fn send(
        &self,
        outgoing: &Outgoing<'_, '_>,
        mut ask: Ask<'_>,
        range: (u64, u64),
    ) -> Result<Response, Refusal> {
        let progress = Progress::new();
        ask.len = range.1;
        ask.body = Some(outgoing.body(outgoing.reader(range)?, range.1, &progress));
        let now = outgoing.session.now();
        let Way {
            client, account, ..
        } = &self.way;
        let asking = account.ask(client, now, ask, LONGEST);
        outgoing.while_moving(asking, &progress).await
    }

    async fn store(
        &self,
        outgoing: &Outgoing<'_, '_>,
        container: &str,
        blob: &str,
    ) -> Result<Response, Refusal> {
        let now = outgoing.session.now();
        let Way {
            client, account, ..
        } = &self.way;
        if self.creates {
            let mut ask = Ask::new(Method::PUT, container, "");
            ask.query.push(("restype", "container".to_owned()));
            match account.ask(client, now, ask, WAIT).await {
                Err(refusal) if refusal.code != "ContainerAlreadyExists" => return Err(refusal),
                _ => {}
            }
        }
        let size = outgoing.flow_file.size();
        if size <= WHOLE_BYTES_MAX {
            let mut ask = Ask::new(Method::PUT, container, blob);
            ask.headers.push(("x-ms-blob-type", "BlockBlob".to_owned()));
            return self.send(outgoing, ask, (0, size)).await;
        }
        let len_max = BLOCK_BYTES.max(size.div_ceil(BLOCKS_MAX));
        let mut ids = Vec::new();
        let mut offset = 0;
        while offset < size {
            let len = len_max.min(size - offset);
            // All ids of a blob are of one length.
            let id = base64(format!("{:010}", ids.len()));
            let mut ask = Ask::new(Method::PUT, container, blob);
            ask.query.push(("comp", "block".to_owned()));
            ask.query.push(("blockid", id.clone()));
            self.send(outgoing, ask, (offset, len)).await?;
            ids.push(id);
            offset += len;
        }
        let body = block_list(&ids);
        let mut ask = Ask::new(Method::PUT, container, blob);
        ask.query.push(("comp", "blocklist".to_owned()));
        ask.len = body.len() as u64;
        ask.body = Some(body.into());
        account.ask(client, outgoing.session.now(), ask, WAIT).await
    }

    /// A stored FlowFile's attributes.
    fn attributes(
        &self,
        flow_file: &FlowFile,
        answer: &Response,
        container: &str,
        blob: &str,
    ) -> Result<Attributes, String> {
        let mut attributes = Attributes::clone(flow_file.attributes());
        let told = |name: &str| header(answer, name).unwrap_or_default();
        attributes.set("azure.container", container);
        attributes.set("azure.blobname", blob);
        attributes.set("azure.primaryUri", self.way.account.address(container)?);
        attributes.set("azure.etag", told("etag"));
        attributes.set("azure.length", flow_file.size().to_string());
        attributes.set("azure.timestamp", told("last-modified"));
        Ok(attributes)
    }
}

impl Processor for PutAzureBlobStorage {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(mut flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        let stored = match self.way.object(session, &flow_file) {
            Ok((container, blob)) => {
                let outgoing = Outgoing {
                    context,
                    session,
                    flow_file: &flow_file,
                    wait: WAIT,
                };
                let storing = self.store(&outgoing, &container, &blob);
                let stored = run_until_stop(context, storing).ok_or_else(stopped)?;
                match stored {
                    Ok(answer) => self.attributes(&flow_file, &answer, &container, &blob),
                    Err(refusal) => Err(refusal.into()),
                }
            }
            Err(reason) => Err(reason),
        };
        match stored {
            Ok(attributes) => {
                let address = attributes.get("azure.primaryUri").unwrap_or_default();
                let blob = attributes.get("azure.blobname").unwrap_or_default();
                let transit = format!("{address}/{blob}");
                session.set_attributes(&mut flow_file, attributes.into());
                session.note(&flow_file, EventKind::Send, &transit);
                session.transfer(flow_file, SUCCESS);
            }
            Err(reason) => fail(context, session, flow_file, "stored", &reason),
        }
        Ok(Next::Scheduled)
    }
}

/// What goes in one request.
const WHOLE_BYTES_MAX: u64 = 16 << 20;

/// Bytes of a block, where the blob has not more than [`BLOCKS_MAX`] of these.
const BLOCK_BYTES: u64 = 8 << 20;

/// Blocks of one blob.
const BLOCKS_MAX: u64 = 50_000;
