//! ListenHTTP: what comes by HTTP becomes FlowFiles; 200 is answered when they are durable.
//!
//! A request waits in a bounded queue for the processor. When the queue is full, or the flow is
//! held back for too long, the answer is 503 and nothing is kept. A small body is read before its
//! request waits; a larger one streams into the repository in its turn, so that memory is bounded
//! whatever comes. A client that got no answer cannot know whether its request was kept: sent
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
mod tests;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::mpsc;

use self::inlet::{Inlet, InletSettings, RequestBody, Waiting};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::content::Content;
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::net::http_server::Server;
use crate::net::limits::HTTP_REQUESTS_WAITING_MAX;
use crate::patterns;
use crate::provenance::EventKind;
use crate::services::{ClientAuthentication, SslContext, SslFiles};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ListenHTTP",
    description: "Takes HTTP requests as FlowFiles and answers 200 when they are durable.",
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
            let server = Server::start(context.runtime(), port, tls, Arc::new(inlet));
            let server = server.map_err(|error| {
                ProcessorError::Failed(format!(
                    "cannot listen on port {port}: {error}; is another program there?"
                ))
            })?;
            context.post(Level::Info, &format!("listening on {}", server.address()));
            self.running = Some(Running {
                _server: server,
                requests,
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
        while kept.len() < batch
            && let Ok(waiting) = running.requests.try_recv()
        {
            if !waiting.answer.take() {
                continue;
            }
            match keep(context, session, &waiting.attributes, waiting.body) {
                Ok(flow_file) => {
                    session.note(&flow_file, EventKind::Receive, &waiting.from);
                    session.transfer(flow_file, 0);
                    kept.push(waiting.answer);
                }
                Err(Unkept::Client(reason)) => waiting.answer.give(400, reason),
                Err(Unkept::Ours(error)) => {
                    waiting
                        .answer
                        .give(503, "not kept; send it again".to_owned());
                    for answer in kept {
                        answer.give(503, "not kept; send it again".to_owned());
                    }
                    return Err(error);
                }
            }
        }
        if kept.is_empty() {
            return Ok(Next::Listening(IDLE));
        }
        let durable = session.commit_and_wait();
        for answer in kept {
            match &durable {
                Ok(()) => answer.give(200, String::new()),
                Err(_) => answer.give(503, "not kept; send it again".to_owned()),
            }
        }
        durable.map(|()| Next::Again)
    }

    fn stop(&mut self) {
        self.running = None;
    }
}

/// Why a request did not become a FlowFile.
enum Unkept {
    /// It broke off.
    Client(String),
    /// The repository would not have it.
    Ours(ProcessorError),
}

/// Makes the FlowFile of a request.
fn keep(
    context: &Context,
    session: &mut ProcessSession<'_>,
    attributes: &Arc<crate::flowfile::Attributes>,
    body: RequestBody,
) -> Result<FlowFile, Unkept> {
    let content: Option<Content> = match body {
        RequestBody::Whole(bytes) if bytes.is_empty() => None,
        RequestBody::Whole(bytes) => Some(session.content(bytes).map_err(Unkept::Ours)?),
        RequestBody::Pieces { first, mut rest } => {
            let mut writer = session.writer();
            let mut piece = Some(first);
            while let Some(bytes) = piece {
                writer
                    .write_all(&bytes)
                    .map_err(|error| Unkept::Ours(ProcessorError::Failed(base::report(&error))))?;
                let next = async { tokio::time::timeout(PIECE_WAIT, rest.recv()).await };
                piece = match context.runtime().block_on(next) {
                    Ok(None) => return Err(Unkept::Client("the body broke off".to_owned())),
                    Ok(Some(Ok(bytes))) => Some(bytes).filter(|bytes| !bytes.is_empty()),
                    Ok(Some(Err(error))) => return Err(Unkept::Client(error.to_string())),
                    Err(_) => {
                        return Err(Unkept::Client("the body does not go on".to_owned()));
                    }
                };
                if context.is_stopping() {
                    return Err(Unkept::Client("the agent is being stopped".to_owned()));
                }
            }
            Some(writer.finish().map_err(Unkept::Ours)?)
        }
    };
    let mut flow_file = session.create(Arc::clone(attributes));
    if let Some(content) = content {
        session
            .set_content(&mut flow_file, content)
            .map_err(Unkept::Ours)?;
    }
    Ok(flow_file)
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

/// Longest pause between two pieces of a body that is being written.
const PIECE_WAIT: Duration = Duration::from_secs(10);
