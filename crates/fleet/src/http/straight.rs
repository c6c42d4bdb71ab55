//! The short way of the request that comes by far the most: a heartbeat.
//!
//! Finding a route among hundreds and passing what surrounds them costs as much as the heartbeat
//! itself. Agents are neither asked to log in nor audited, so where no rates are kept whoever serves
//! connections may ask [`Straight`] first. It takes heartbeats and does what their route would, by
//! the same handler; all else it hands back.

use std::convert::Infallible;
use std::sync::Arc;

use axum::BoxError;
use axum::http::{Method, Request};
use axum::response::Response;
use bytes::Bytes;
use http_body::Body as HttpBody;

use crate::fleet::Fleet;
use crate::http::Certificate;
use crate::http::c2_routes::{PREFIXES, take_heartbeat};

/// Takes heartbeats; clones share what they need.
#[derive(Clone, Debug)]
pub struct Straight {
    fleet: Arc<Fleet>,
}

impl Straight {
    /// Of this fleet.
    pub fn new(fleet: Arc<Fleet>) -> Straight {
        Straight { fleet }
    }

    /// Whether it takes a request. It bounds the time of its body itself.
    pub fn takes<B>(&self, request: &Request<B>) -> bool {
        let path = request.uri().path();
        let mut prefixes = PREFIXES.iter();
        request.method() == Method::POST
            && prefixes.any(|prefix| path.strip_prefix(prefix) == Some("/heartbeat"))
    }

    /// Answers a request that it takes; `certificate` is that of its connection.
    pub fn answer<B>(
        &self,
        request: Request<B>,
        certificate: Option<Certificate>,
    ) -> impl Future<Output = Result<Response, Infallible>> + Send + use<B>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError> + Send> + Send + Unpin,
    {
        let fleet = self.fleet.clone();
        async move { Ok(take_heartbeat(&fleet, certificate.as_ref(), request).await) }
    }
}
