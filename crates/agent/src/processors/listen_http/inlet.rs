//! Where ListenHTTP's requests come in: checked, their attributes taken, queued, answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use regex::Regex;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{mpsc, oneshot};

use crate::engine::Waker;
use crate::flowfile::Attributes;
use crate::net::http_bounds::{BoundedBody, HttpBounds, Unread};
use crate::net::http_client::PieceBody;
use crate::net::http_server::{Answering, Handler, Peer, answer};
use crate::net::limits::HTTP_BODY_IN_MEMORY_BYTES_MAX;

/// What requests are checked by.
#[derive(Clone, Debug)]
pub(super) struct InletSettings {
    /// The path that is listened on, with its slash before it.
    pub(super) base: String,
    /// What a client's subject must fit.
    pub(super) authorized: Option<Regex>,
    /// Names of headers that become attributes.
    pub(super) headers: Option<Regex>,
    pub(super) bounds: HttpBounds,
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
        rest: mpsc::Receiver<Bytes>,
    },
}

/// Where a request's answer goes.
pub(super) struct Answer {
    state: Arc<AtomicU8>,
    to: oneshot::Sender<()>,
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
        let most = self.settings.bounds.body_bytes_max;
        (announced > most).then(|| answer(413, format!("more than {most} bytes\n")))
    }

    /// Hands the rest of a body on, with an empty piece at its end.
    async fn feed(&self, mut body: BoundedBody, feed: mpsc::Sender<Bytes>) -> Result<(), Unread> {
        loop {
            let (bytes, is_last) = gather(&mut body).await?;
            if !bytes.is_empty() {
                self.hand_on(&feed, bytes).await?;
            }
            if is_last {
                return self.hand_on(&feed, Bytes::new()).await;
            }
        }
    }

    async fn hand_on(&self, feed: &mpsc::Sender<Bytes>, bytes: Bytes) -> Result<(), Unread> {
        let sent = feed.send_timeout(bytes, HELD_BACK_WAIT).await;
        self.waker.wake();
        match sent {
            // Who does not take it any more gives the answer.
            Ok(()) | Err(SendTimeoutError::Closed(_)) => Ok(()),
            Err(SendTimeoutError::Timeout(_)) => Err(Unread::later(HELD_BACK)),
        }
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
    fn answer(&self, request: Request<Incoming>, peer: Peer) -> Answering<'_> {
        Box::pin(self.reply(request, peer))
    }
}

impl Inlet {
    async fn reply(&self, request: Request<Incoming>, peer: Peer) -> Response<PieceBody> {
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
        let mut body = BoundedBody::new(request.into_body(), self.settings.bounds);
        let (first, is_whole) = match gather(&mut body).await {
            Ok(read) => read,
            Err(unread) => return answer(unread.status, unread.reason),
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
            match feed {
                Some((feed, body)) => self.feed(body, feed).await,
                None => Ok(()),
            }
        };
        let given = async {
            tokio::select! {
                given = &mut answered => return given.map_err(|_| Unread::later(NOT_KEPT)),
                () = tokio::time::sleep(HELD_BACK_WAIT) => {}
            }
            let gives_up = state
                .compare_exchange(WAITS, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire)
                .is_ok();
            if gives_up {
                return Err(Unread::later(HELD_BACK));
            }
            answered.await.map_err(|_| Unread::later(NOT_KEPT))
        };
        // The body goes on while the answer is waited for; the answer ends it.
        tokio::pin!(feeding);
        tokio::pin!(given);
        let given = tokio::select! {
            given = &mut given => given,
            fed = &mut feeding => match fed {
                Ok(()) => given.await,
                Err(unread) => Err(unread),
            },
        };
        match given {
            Ok(()) => answer(200, ""),
            Err(unread) => answer(unread.status, unread.reason),
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

    /// Says that it is durable; the client may be gone. One that is dropped says that it is not.
    pub(super) fn give(self) {
        if self.to.send(()).is_err() {
            tracing::debug!("a client did not wait for its answer");
        }
    }
}

/// As much of a body as is held in memory, and whether that is all that was left of it.
async fn gather(body: &mut BoundedBody) -> Result<(Bytes, bool), Unread> {
    let mut gathered = BytesMut::new();
    while gathered.len() < HTTP_BODY_IN_MEMORY_BYTES_MAX {
        match body.piece().await {
            None => return Ok((gathered.freeze(), true)),
            Some(bytes) => gathered.extend_from_slice(&bytes?),
        }
    }
    Ok((gathered.freeze(), false))
}

const HELD_BACK: &str = "the flow is held back; send it again later\n";

const NOT_KEPT: &str = "it was not kept; send it again later\n";

const WAITS: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Pieces of a body that wait for the processor, each as large as one that is gathered.
const PIECES_AHEAD: usize = 1;

/// How long a request, or a piece of its body, waits for a flow that is held back.
const HELD_BACK_WAIT: Duration = Duration::from_secs(20);
