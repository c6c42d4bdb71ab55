//! ListenHTTP: what comes by HTTP becomes FlowFiles; 200 is answered when they are durable.
//!
//! A request waits in a bounded queue for the processor. When the queue is full, or the flow is
//! held back for too long, the answer is 503 and nothing is kept. A small body is read before its
//! request waits; a larger one goes into the repository as it comes ([`upload`]), so that memory is
//! bounded whatever comes, and no client holds others up. A client that got no answer cannot know whether its request was kept: sent
//! again, it may be there twice.
//!
//! | method | becomes | answer |
//! | --- | --- | --- |
//! | POST, PUT | a FlowFile of the body | 200 |
//! | GET | a FlowFile without content | 200 |
//! | HEAD | nothing | 200 |
//! | others | nothing | 405 |

mod inlet;
#[cfg(test)]
mod slow_tests;
#[cfg(test)]
mod tests;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::mpsc;

use self::inlet::{Answer, Inlet, InletSettings, RequestBody, Waiting};
use self::upload::{Progress, Upload};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::content::Content;
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::net::http_bounds::HttpBounds;
use crate::net::http_server::Server;
use crate::net::limits::{HTTP_REQUESTS_WAITING_MAX, HTTP_UPLOADS_BYTES_MAX};
use crate::patterns;
use crate::provenance::EventKind;
use crate::services::{ClientAuthentication, SslContext, SslFiles};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ListenHTTP",
    description: "Takes HTTP requests as FlowFiles and answers 200 when they are durable. \
         Slow clients hold nobody up, within bounds: 256 connections, of which the one that has \
         waited longest for a request gives way to a newcomer; 60 s for a header of up to 64 KiB; \
         a body of up to 64 GiB (413 is the answer to more) that pauses for 30 s at most and \
         brings 128 bytes a second on average beyond these (408 if not); 30 s in which nothing of \
         an answer is taken. Other listeners for HTTP have the same.",
    properties: &[
        PropertyKind::new(
            "Base Path",
            "The path, and all below it, that is listened on.",
        )
        .default("contentListener"),
        PropertyKind::new("Listening Port", "The port; 0 picks a free one.")
            .default("80")
            .required()
            .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Authorized DN Pattern",
            "Regular expression that the subject of a client's certificate must fit; looked at \
             over TLS when clients are verified.",
        )
        .default(".*"),
        PropertyKind::new(
            "SSL Certificate",
            "PEM file of the certificate and its key; with it the port speaks TLS.",
        ),
        PropertyKind::new(
            "SSL Certificate Authority",
            "PEM file that clients are checked with.",
        ),
        PropertyKind::new(
            "SSL Verify Peer",
            "Whether clients must show a certificate.",
        )
        .default("no")
        .allowed(&["no", "yes"]),
        PropertyKind::new("SSL Minimum Version", "The oldest TLS that is spoken.")
            .default("TLS1.2")
            .allowed(&["TLS1.2", "TLS1.3"]),
        PropertyKind::new(
            "HTTP Headers to receive as Attributes (Regex)",
            "Regular expression over whole names of headers that become attributes.",
        ),
        PropertyKind::new(
            "Batch Size",
            "Requests committed together at most; 0 takes all that wait.",
        )
        .default("5")
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Buffer Size",
            "Requests that wait at most, 503 is the answer to more; 0 stands for 10000.",
        )
        .default("5")
        .shape(Shape::Integer(0)),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "A FlowFile for each request.",
    }],
    writes: &[
        AttributeKind::new("restlistener.remote.source.host", "The client's address."),
        AttributeKind::new(
            "restlistener.remote.user.dn",
            "The subject of its certificate.",
        ),
        AttributeKind::new("restlistener.request.uri", "The request's path."),
        AttributeKind::new("http.query", "What stands behind the path's question mark."),
        AttributeKind::new("mime.type", "The request's Content-Type."),
        AttributeKind::new("filename", "The header `filename`, where there is one."),
        AttributeKind::new("<header>", "Headers that the property for them names."),
    ],
    input: Input::Forbidden,
    make: |settings| ListenHttp::new(settings).map(|made| Box::new(made) as _),
};

struct ListenHttp {
    port: u16,
    tls: Option<Arc<ServerConfig>>,
    settings: InletSettings,
    batch: usize,
    buffer: usize,
    running: Option<Running>,
}

struct Running {
    /// Listens as long as it is here.
    _server: Server,
    requests: mpsc::Receiver<Waiting>,
    /// At most one for each connection.
    uploads: Vec<Upload>,
}

impl ListenHttp {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let batch = match settings.integer("Batch Size")? {
            0 => usize::MAX,
            size => size,
        };
        let buffer = match settings.integer("Buffer Size")? {
            0 => HTTP_REQUESTS_WAITING_MAX,
            size => usize::min(size, HTTP_REQUESTS_WAITING_MAX),
        };
        let pattern = |name: &str| match settings.text(name)? {
            Some(text) => patterns::whole_text(&text)
                .map(Some)
                .map_err(|error| format!("{name}: {error}")),
            None => Ok(None),
        };
        let base = settings.text("Base Path")?.unwrap_or_default();
        let tls = tls(settings)?;
        let verifies = tls.is_some() && settings.needed("SSL Verify Peer")? == "yes";
        Ok(ListenHttp {
            port: settings.integer("Listening Port")?,
            tls,
            settings: InletSettings {
                base: format!("/{}", base.trim_matches('/')),
                authorized: pattern("Authorized DN Pattern")?.filter(|_| verifies),
                headers: pattern("HTTP Headers to receive as Attributes (Regex)")?,
                bounds: HttpBounds::default(),
            },
            batch,
            buffer,
            running: None,
        })
    }

    fn running(&mut self, context: &Context) -> Result<&mut Running, ProcessorError> {
        if self.running.is_none() {
            let (waiting, requests) = mpsc::channel(self.buffer);
            let inlet = Inlet::new(self.settings.clone(), waiting, context.waker());
            let (port, tls) = (self.port, self.tls.clone());
            let bounds = self.settings.bounds;
            let server = Server::start(context.runtime(), port, tls, bounds, Arc::new(inlet));
            let server = server.map_err(|error| {
                ProcessorError::Failed(format!(
                    "cannot listen on port {port}: {error}; is another program there?"
                ))
            })?;
            context.post(Level::Info, &format!("listening on {}", server.address()));
            self.running = Some(Running {
                _server: server,
                requests,
                uploads: Vec::new(),
            });
        }
        self.running
            .as_mut()
            .ok_or_else(|| ProcessorError::Failed("does not listen".to_owned()))
    }
}

impl Processor for ListenHttp {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let batch = self.batch;
        let running = self.running(context)?;
        let mut kept = Vec::new();
        let next = running.take_in(session, batch, &mut kept)?;
        if !kept.is_empty() {
            session.commit_and_wait()?;
        }
        // Whoever was not answered by now is told that nothing was kept.
        kept.into_iter().for_each(Answer::give);
        Ok(next)
    }

    fn stop(&mut self) {
        self.running = None;
    }
}

impl Running {
    /// Makes FlowFiles of what is whole and takes in what there is of the rest; the answers that
    /// are due when the session is durable.
    fn take_in(
        &mut self,
        session: &mut ProcessSession<'_>,
        batch: usize,
        kept: &mut Vec<Answer>,
    ) -> Result<Next, ProcessorError> {
        let mut has_more = match self.take_in_uploads(session, batch, kept) {
            Ok(has_more) => has_more,
            Err(error) => {
                // What the session made of them ends with it.
                self.uploads.clear();
                return Err(error);
            }
        };
        while kept.len() < batch
            && let Ok(waiting) = self.requests.try_recv()
        {
            if !waiting.answer.take() {
                continue;
            }
            let Waiting {
                attributes,
                body,
                from,
                answer,
            } = waiting;
            let bytes = match body {
                RequestBody::Whole(bytes) => bytes,
                RequestBody::Pieces { first, rest } => {
                    let upload = Upload::new(attributes, from, answer, &first, rest);
                    self.uploads.push(upload);
                    // Its first pieces rang before it was here.
                    has_more = true;
                    continue;
                }
            };
            let content = session.content(bytes)?;
            keep(session, attributes, content, &from)?;
            kept.push(answer);
        }
        Ok(match kept.is_empty() && !has_more {
            true => Next::Listening(IDLE),
            false => Next::Again,
        })
    }

    /// Whether there is more of them already.
    fn take_in_uploads(
        &mut self,
        session: &mut ProcessSession<'_>,
        batch: usize,
        kept: &mut Vec<Answer>,
    ) -> Result<bool, ProcessorError> {
        let mut has_more = false;
        let mut whole = Vec::new();
        let mut index = 0;
        while index < self.uploads.len() && whole.len() < batch {
            match self.uploads[index].take_in() {
                Progress::Waits => index += 1,
                Progress::HasMore => {
                    has_more = true;
                    self.uploads[index].cut(session)?;
                    index += 1;
                }
                Progress::Whole => whole.push(self.uploads.swap_remove(index)),
                Progress::Broken => drop(self.uploads.swap_remove(index)),
            }
        }
        has_more |= index < self.uploads.len();
        let buffered: usize = self.uploads.iter().map(Upload::buffered).sum();
        if buffered > HTTP_UPLOADS_BYTES_MAX {
            for upload in &mut self.uploads {
                upload.cut(session)?;
            }
        }
        session.write_ahead()?;
        for mut upload in whole {
            upload.cut(session)?;
            keep(
                session,
                upload.attributes,
                Content::join(upload.parts),
                &upload.from,
            )?;
            kept.push(upload.answer);
        }
        Ok(has_more)
    }
}

/// Makes the FlowFile of a request.
fn keep(
    session: &mut ProcessSession<'_>,
    attributes: Arc<Attributes>,
    content: Content,
    from: &str,
) -> Result<(), ProcessorError> {
    let mut flow_file = session.create(attributes);
    if !content.is_empty() {
        session.set_content(&mut flow_file, content)?;
    }
    session.note(&flow_file, EventKind::Receive, from);
    session.transfer(flow_file, 0);
    Ok(())
}

fn tls(settings: &Settings<'_>) -> Result<Option<Arc<ServerConfig>>, String> {
    let Some(certificate) = settings.text("SSL Certificate")? else {
        return Ok(None);
    };
    let verifies = settings.needed("SSL Verify Peer")? == "yes";
    let authority = settings.text("SSL Certificate Authority")?;
    if verifies && authority.is_none() {
        return Err("SSL Verify Peer needs SSL Certificate Authority".to_owned());
    }
    let context = SslContext::open(&SslFiles {
        certificate: Some(certificate),
        authority,
        ..SslFiles::default()
    })?;
    let authentication = match verifies {
        true => ClientAuthentication::Required,
        false => ClientAuthentication::None,
    };
    let versions: &[_] = match settings.needed("SSL Minimum Version")?.as_str() {
        "TLS1.3" => &[&rustls::version::TLS13],
        _ => rustls::ALL_VERSIONS,
    };
    context.server(authentication, versions).map(Some)
}

/// A listener without requests looks again after this long; requests wake it.
const IDLE: Duration = Duration::from_secs(3_600);
