//! Where ListenHTTP's requests come in: checked, their attributes taken, queued, answered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use regex::Regex;
use tokio::sync::{mpsc, oneshot};

use crate::engine::Waker;
use crate::flowfile::Attributes;
use crate::net::http_client::PieceBody;
use crate::net::http_server::{Handler, Peer, answer, piece, pump};
use crate::net::limits::{HTTP_BODY_BYTES_MAX, HTTP_BODY_IN_MEMORY_BYTES_MAX};

/// What requests are checked by.
#[derive(Clone, Debug)]
pub(super) struct InletSettings {
    /// The path that is listened on, with its slash before it.
    pub(super) base: String,
    /// What a client's subject must fit.
    pub(super) authorized: Option<Regex>,
    /// Names of headers that become attributes.
    pub(super) headers: Option<Regex>,
}

/// Takes requests for the processor.
pub(super) struct Inlet {
    settings: InletSettings,
    waiting: mpsc::Sender<Waiting>,
    waker: Waker,
}

/// A request that waits for the processor.
pub(super) struct Waiting {
    pub(super) attributes: Arc<Attributes>,
    pub(super) body: RequestBody,
    /// Who sent it, for provenance.
    pub(super) from: String,
    pub(super) answer: Answer,
}

/// A request's body.
pub(super) enum RequestBody {
    /// All of it.
    Whole(Bytes),
    /// Its beginning and what comes after; an empty piece is the end, a feed that only stops is
    /// a connection that broke.
    Pieces {
        first: Bytes,
        rest: mpsc::Receiver<io::Result<Bytes>>,
    },
}

/// Where a request's answer goes.
pub(super) struct Answer {
    state: Arc<AtomicU8>,
    to: oneshot::Sender<(u16, String)>,
}

impl Inlet {
    pub(super) fn new(
        settings: InletSettings,
        waiting: mpsc::Sender<Waiting>,
        waker: Waker,
    ) -> Self {
        Inlet {
            settings,
            waiting,
            waker,
        }
    }

    /// The answer to a request that is not to be queued.
    fn refusal(&self, request: &Request<Incoming>, peer: &Peer) -> Option<Response<PieceBody>> {
        let path = request.uri().path();
        let base = self.settings.base.trim_end_matches('/');
        let below = path.strip_prefix(base);
        if !below.is_some_and(|below| below.is_empty() || below.starts_with('/')) {
            let text = format!(
                "nothing is at {path}; this listens on {}\n",
                self.settings.base
            );
            return Some(answer(404, text));
        }
        if let Some(pattern) = &self.settings.authorized
            && !peer
                .subject
                .as_deref()
                .is_some_and(|subject| pattern.is_match(subject))
        {
            tracing::warn!(subject = peer.subject, address = %peer.address, "not authorized");
            return Some(answer(403, "the certificate's subject is not authorized\n"));
        }
        match *request.method() {
            Method::HEAD => return Some(answer(200, "")),
            Method::GET | Method::POST | Method::PUT => {}
            _ => {
                let mut refused = answer(405, "POST, PUT, GET and HEAD are taken\n");
                let allowed = hyper::header::HeaderValue::from_static("POST, PUT, GET, HEAD");
                refused.headers_mut().insert(hyper::header::ALLOW, allowed);
                return Some(refused);
            }
        }
        let announced = request.body().size_hint().lower();
        (announced > HTTP_BODY_BYTES_MAX)
            .then(|| answer(413, format!("more than {HTTP_BODY_BYTES_MAX} bytes\n")))
    }

    fn attributes(&self, request: &Request<Incoming>, peer: &Peer) -> Attributes {
        let uri = request.uri();
        let mut attributes = Attributes::new([
            (
                "restlistener.remote.source.host",
                peer.address.ip().to_canonical().to_string(),
            ),
            ("restlistener.request.uri", uri.path().to_owned()),
        ]);
        if let Some(query) = uri.query() {
            attributes.set("http.query", query);
        }
        if let Some(subject) = &peer.subject {
            attributes.set("restlistener.remote.user.dn", subject.as_str());
        }
        for (name, value) in request.headers() {
            let name = name.as_str();
            let wanted = self.settings.headers.as_ref();
            let is_wanted = wanted.is_some_and(|pattern| pattern.is_match(name));
            if is_wanted || name == "filename" {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                attributes.set(name, value);
            }
            if name == "content-type" {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                attributes.set("mime.type", value);
            }
        }
        attributes
    }
}

impl Handler for Inlet {
    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response<PieceBody> {
        if let Some(refused) = self.refusal(&request, &peer) {
            return refused;
        }
        let attributes = Arc::new(self.attributes(&request, &peer));
        let scheme = if peer.subject.is_some() {
            "https"
        } else {
            "http"
        };
        let from = format!("{scheme}://{}{}", peer.address, request.uri().path());
        let mut body = request.into_body();
        let (first, is_whole) = match beginning(&mut body).await {
            Ok(read) => read,
            Err(reason) => return answer(400, reason),
        };
        let (feed, body) = if is_whole {
            (None, RequestBody::Whole(first))
        } else {
            let (feed, rest) = mpsc::channel(PIECES_AHEAD);
            (Some((feed, body)), RequestBody::Pieces { first, rest })
        };
        let state = Arc::new(AtomicU8::new(WAITS));
        let (to, mut answered) = oneshot::channel();
        let waiting = Waiting {
            attributes,
            body,
            from,
            answer: Answer {
                state: Arc::clone(&state),
                to,
            },
        };
        if self.waiting.try_send(waiting).is_err() {
            return answer(503, "too many requests wait; send it again later\n");
        }
        self.waker.wake();
        let feeding = async {
            if let Some((feed, body)) = feed {
                pump(body, feed, HTTP_BODY_BYTES_MAX).await;
            }
        };
        let given = async {
            tokio::select! {
                given = &mut answered => return given,
                () = tokio::time::sleep(HELD_BACK_WAIT) => {}
            }
            let gives_up = state
                .compare_exchange(WAITS, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
            if gives_up {
                return Ok((
                    503,
                    "the flow is held back; send it again later\n".to_owned(),
                ));
            }
            answered.await
        };
        // The body goes on while the answer is waited for; the answer ends it.
        tokio::pin!(feeding);
        tokio::pin!(given);
        let given = tokio::select! {
            given = &mut given => given,
            () = &mut feeding => given.await,
        };
        match given {
            Ok((status, text)) => answer(status, text),
            Err(_) => answer(503, "the agent is being stopped; send it again later\n"),
        }
    }
}

impl Answer {
    /// Takes the request for good, unless it was given up before.
    pub(super) fn take(&self) -> bool {
        self.state
            .compare_exchange(WAITS, TAKEN, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Answers it; the client may be gone.
    pub(super) fn give(self, status: u16, text: String) {
        if self.to.send((status, text)).is_err() {
            tracing::debug!(status, "a client did not wait for its answer");
        }
    }
}

/// The beginning of a body, and whether that is all of it.
async fn beginning(body: &mut Incoming) -> Result<(Bytes, bool), String> {
    let mut first = BytesMut::new();
    while first.len() < HTTP_BODY_IN_MEMORY_BYTES_MAX {
        match tokio::time::timeout(BODY_WAIT, piece(body)).await {
            Err(_) => return Err("the body does not go on\n".to_owned()),
            Ok(None) => return Ok((first.freeze(), true)),
            Ok(Some(Err(error))) => return Err(error.to_string()),
            Ok(Some(Ok(bytes))) => first.extend_from_slice(&bytes),
        }
    }
    Ok((first.freeze(), false))
}

const WAITS: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Pieces of a body that wait for the processor.
const PIECES_AHEAD: usize = 4;

/// Longest pause between two pieces of a body's beginning.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// How long a request waits for a flow that is held back.
const HELD_BACK_WAIT: Duration = Duration::from_secs(20);
