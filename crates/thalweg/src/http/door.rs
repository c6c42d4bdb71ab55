//! The way of one request from its connection to the routes, and of the answer back.
//!
//! What a port or a request does not use costs it nothing: a request by HTTP/1.1 that is neither
//! compressed nor asks for it goes straight to the routes. Records and heartbeats go past these
//! ([`Straight`]), however they came.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use access::{CertificateFacts, PrincipalName};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::header::{CONNECTION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};
use tower_service::Service;

use super::certificate::certificate_of;
use super::cors::Cors;
use super::guard::{self, Guard};
use super::gzip::{self, Coding, Unpacked};
use super::refused;
use super::serve::Places;
use super::watch::{Progress, Watch, Watched};

/// What answers the requests of a port.
#[derive(Clone)]
pub struct Routes {
    /// Everything.
    pub router: Router,
    /// Asked first.
    pub straight: Option<Straight>,
}

/// The short way of the requests that come the most on a port.
#[derive(Clone)]
pub enum Straight {
    /// Of records.
    Records(rest::Straight),
    /// Of heartbeats; with what a certificate's owner is called.
    Heartbeats(fleet::http::Straight, PrincipalName),
}

impl Routes {
    /// Answers a request, by the short way if that takes it.
    fn answer<B>(&self, mut request: Request<B>, peer: &rest::Peer) -> Answering
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: std::fmt::Display + Into<axum::BoxError> + Send,
    {
        match &self.straight {
            Some(Straight::Records(straight)) => match straight.take(request) {
                Ok(answer) => return Box::pin(answer),
                Err(other) => request = other,
            },
            Some(Straight::Heartbeats(straight, naming)) if straight.takes(&request) => {
                let facts = request.extensions().get::<CertificateFacts>().copied();
                let certificate = certificate_of(peer, facts, *naming);
                return Box::pin(straight.answer(request, certificate));
            }
            _ => {}
        }
        request.extensions_mut().insert(peer.clone());
        Box::pin(self.router.clone().call(request))
    }

    /// Whether whoever answers this request bounds how long its body may take.
    fn bound_body_of<B>(&self, request: &Request<B>) -> bool {
        match &self.straight {
            Some(Straight::Heartbeats(straight, _)) => straight.takes(request),
            _ => false,
        }
    }
}

impl From<Router> for Routes {
    fn from(router: Router) -> Self {
        Routes {
            router,
            straight: None,
        }
    }
}

/// What is done to the requests of a port, beside routing them.
#[derive(Default)]
pub struct Manners {
    /// Which requests are refused for where they come from.
    pub(super) guard: Guard,
    /// How browsers call this process's own pages where that is not by the port's address: behind a
    /// proxy that keeps the name to itself.
    pub(super) own_origin: Option<String>,
    /// Which other sites' pages may call; none when absent.
    pub cors: Option<Cors>,
    /// Whether answers are packed for those who ask for it.
    pub compression: bool,
    /// How long a body may be silent; its handler's to bound when absent.
    pub body_idle_max: Option<Duration>,
}

/// Takes the requests of one connection.
pub(super) struct Door {
    pub routes: Routes,
    pub manners: Arc<Manners>,
    pub peer: rest::Peer,
    /// What else is known of the client's certificate.
    pub certificate: Option<CertificateFacts>,
    /// Of a connection by HTTP/2.
    pub watch: Option<Arc<Watch>>,
    /// The connections of the port.
    pub places: Arc<Places>,
}

/// An answer under way. It is moved several times before it runs, and is large: a box is cheaper.
pub(super) type Answering =
    Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Door {
    /// Answers a request; the last one of its connection where connections are scarce.
    pub fn take(&self, request: Request<Incoming>) -> Answering {
        let answering = self.answer(request);
        if self.watch.is_some() || !self.places.are_scarce() {
            return answering;
        }
        Box::pin(async move {
            let mut answer = answering.await?;
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
            Ok(answer)
        })
    }

    fn answer(&self, mut request: Request<Incoming>) -> Answering {
        if let Some(facts) = self.certificate {
            request.extensions_mut().insert(facts);
        }
        let headers = request.headers();
        let asks = Asks {
            coding: gzip::coding(headers),
            wants_gzip: self.manners.compression && gzip::is_accepted(headers),
        };
        let is_plain = asks.coding != Coding::Unknown && !asks.wants_gzip;
        let has_manners = self.manners.cors.is_some()
            || (self.manners.body_idle_max.is_some() && !self.routes.bound_body_of(&request));
        if is_plain && !has_manners && self.watch.is_none() {
            if let Some(refusal) = self.manners.refusal(headers) {
                return Box::pin(std::future::ready(Ok(refusal)));
            }
            if asks.coding == Coding::Identity {
                return self.routes.answer(request, &self.peer);
            }
            gzip::forget_coding(request.headers_mut());
            return self.routes.answer(request.map(Unpacked::new), &self.peer);
        }
        let routes = self.routes.clone();
        let peer = self.peer.clone();
        let manners = Arc::clone(&self.manners);
        let progress = self.watch.as_ref().map(|watch| watch.begin());
        Box::pin(async move {
            let answer = manners.answer(&routes, &peer, request, asks).await;
            Ok(match progress {
                Some(progress) => watched(answer, progress),
                None => answer,
            })
        })
    }
}

/// What a request asks of the transport.
#[derive(Clone, Copy)]
struct Asks {
    coding: Coding,
    wants_gzip: bool,
}

impl Manners {
    /// The answer to a request that comes from where none may come from.
    fn refusal(&self, headers: &HeaderMap) -> Option<Response<Body>> {
        let own = self.own_origin.as_deref();
        let message = guard::refusal(self.guard, headers, self.cors.as_ref(), own)?;
        Some(refused(StatusCode::FORBIDDEN, message))
    }

    async fn answer(
        &self,
        routes: &Routes,
        peer: &rest::Peer,
        mut request: Request<Incoming>,
        asks: Asks,
    ) -> Response<Body> {
        let origin = request.headers().get(ORIGIN).cloned();
        let preflight = self.cors.as_ref();
        let preflight =
            preflight.and_then(|cors| cors.preflight(request.method(), request.headers()));
        let mut answer = match preflight {
            Some(answer) => answer,
            None => {
                name_host(&mut request);
                match self.refusal(request.headers()) {
                    Some(refusal) => refusal,
                    None => self.route(routes, peer, request, asks.coding).await,
                }
            }
        };
        if asks.wants_gzip {
            answer = gzip::pack(answer).await;
        }
        if let Some(cors) = &self.cors {
            cors.mark(origin.as_ref(), answer.headers_mut());
        }
        answer
    }

    async fn route(
        &self,
        routes: &Routes,
        peer: &rest::Peer,
        request: Request<Incoming>,
        coding: Coding,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let body = Timed::new(body, self.body_idle_max);
        let answering = match coding {
            Coding::Identity => routes.answer(Request::from_parts(parts, body), peer),
            Coding::Gzip => {
                gzip::forget_coding(&mut parts.headers);
                routes.answer(Request::from_parts(parts, Unpacked::new(body)), peer)
            }
            Coding::Unknown => {
                let message = "this Content-Encoding is not known: send gzip or none";
                return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
            }
        };
        match answering.await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }
}

/// By HTTP/2 the host is part of the request's target; handlers look for it among the headers.
fn name_host(request: &mut Request<Incoming>) {
    if request.headers().contains_key(HOST) {
        return;
    }
    let host = request.uri().authority().map(|host| host.as_str());
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        request.headers_mut().insert(HOST, host);
    }
}

fn watched(answer: Response<Body>, progress: Arc<Progress>) -> Response<Body> {
    // One without a body is over when it is sent.
    if answer.body().is_end_stream() {
        return answer;
    }
    answer.map(|body| Body::new(Watched::new(body, progress)))
}

/// A request's body that must not be silent for long.
struct Timed {
    body: Incoming,
    idle_max: Option<Duration>,
    /// Set while the body is silent.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    fn new(body: Incoming, idle_max: Option<Duration>) -> Self {
        Timed {
            body,
            idle_max,
            deadline: None,
        }
    }
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.deadline = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some(idle_max) = self.idle_max else {
            return Poll::Pending;
        };
        let fresh = || Box::pin(tokio::time::sleep_until(Instant::now() + idle_max));
        let deadline = self.deadline.get_or_insert_with(fresh);
        ready!(deadline.as_mut().poll(cx));
        let reason = format!("nothing of it came for {idle_max:?}");
        Poll::Ready(Some(Err(reason.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
