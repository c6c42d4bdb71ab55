//! How much each caller may ask for in a second: requests, and bytes of their bodies.
//!
//! A caller is a principal, or an address where nobody is asked who they are. Who is over is
//! answered 429 and told when to come again. A body whose length nobody knows before, such as a
//! stream of records, is counted as it comes, and its sender held back.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::access::{Meters, Principal};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use base::{ByteSize, Clock};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use streams::Caller;
use tokio::time::Sleep;

use crate::error::RestError;
use crate::limits::RATE_WINDOW;
use crate::login::Peer;

/// What each caller may ask for; nobody is held back by default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitConfig {
    /// Requests a second; zero is no bound.
    pub requests_per_second: u32,
    /// Bytes of request bodies a second; zero is no bound.
    pub bytes_per_second: ByteSize,
}

impl Default for RateLimitConfig {
    fn default() -> Self {
        RateLimitConfig {
            requests_per_second: 0,
            bytes_per_second: ByteSize(0),
        }
    }
}

/// Holds the callers of a port to what they may ask for.
pub struct RateLimit {
    requests: Option<f64>,
    bytes: Option<f64>,
    clock: Arc<dyn Clock>,
    meters: Mutex<Meters<(Kind, Who)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Requests,
    Bytes,
}

/// Whom a meter is for.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Who {
    Principal(Principal),
    Address(IpAddr),
    /// Requests that nobody knows the origin of, and callers for whom there is no room.
    Others,
}

impl RateLimit {
    /// None when nothing is bounded.
    pub fn of(config: &RateLimitConfig, clock: Arc<dyn Clock>) -> Option<Arc<Self>> {
        let rate = |value: f64| (value > 0.0).then_some(value);
        let requests = rate(f64::from(config.requests_per_second));
        let bytes = rate(config.bytes_per_second.0 as f64);
        (requests.is_some() || bytes.is_some()).then(|| {
            Arc::new(RateLimit {
                requests,
                bytes,
                clock,
                meters: Mutex::new(Meters::new(RATE_WINDOW, |(kind, _)| (kind, Who::Others))),
            })
        })
    }

    /// Lets a request in, whose body has so many bytes, or tells when to come again.
    fn admit(&self, who: &Who, body_bytes: u64) -> Result<(), Duration> {
        let now = self.clock.now();
        let rates = [
            (Kind::Requests, self.requests, 1.0),
            (Kind::Bytes, self.bytes, body_bytes as f64),
        ];
        let mut meters = self.meters.lock();
        for (kind, rate, _) in rates {
            let Some(rate) = rate else { continue };
            let wait = meters.wait(now, (kind, who.clone()), rate);
            if !wait.is_zero() {
                return Err(wait);
            }
        }
        for (kind, rate, amount) in rates {
            let Some(rate) = rate else { continue };
            meters.charge(now, (kind, who.clone()), rate, amount);
        }
        Ok(())
    }

    /// Counts bytes that came; answers how long to wait before more.
    fn count(&self, who: &Who, bytes: usize) -> Duration {
        let Some(rate) = self.bytes else {
            return Duration::ZERO;
        };
        let key = (Kind::Bytes, who.clone());
        let mut meters = self.meters.lock();
        meters.charge(self.clock.now(), key, rate, bytes as f64)
    }
}

/// Holds the callers of `routes` to `rates`. Who calls is asked by what stands around it.
pub fn rate_limited(routes: Router, rates: Arc<RateLimit>) -> Router {
    routes.layer(middleware::from_fn_with_state(rates, limit))
}

async fn limit(State(rates): State<Arc<RateLimit>>, request: Request, next: Next) -> Response {
    let who = who(&request);
    let length = declared_length(request.headers());
    if let Err(wait) = rates.admit(&who, length.unwrap_or(0)) {
        metrics::counter!("thalweg_rest_rate_limited_total").increment(1);
        return RestError::RateLimited(wait).into_response();
    }
    let is_counted = length.is_some() || rates.bytes.is_none() || request.body().is_end_stream();
    if is_counted {
        return next.run(request).await;
    }
    let counted = request.map(|body| {
        Body::new(Counted {
            body,
            rates,
            who,
            pause: None,
        })
    });
    next.run(counted).await
}

fn who(request: &Request) -> Who {
    let extensions = request.extensions();
    if let Some(caller) = extensions.get::<Caller>() {
        return Who::Principal(caller.principal().clone());
    }
    match extensions.get::<Peer>() {
        Some(Peer {
            certificate: Some(principal),
            ..
        }) => Who::Principal(principal.clone()),
        Some(peer) => Who::Address(peer.ip.to_canonical()),
        None => Who::Others,
    }
}

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    let length = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?;
    length.parse().ok()
}

/// A body that is counted as it comes.
struct Counted {
    body: Body,
    rates: Arc<RateLimit>,
    who: Who,
    /// While the sender is held back.
    pause: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let arrived = frame.as_ref().and_then(|frame| frame.as_ref().ok());
        let bytes = arrived.and_then(Frame::data_ref).map_or(0, Bytes::len);
        let wait = self.rates.count(&self.who, bytes);
        self.pause = (!wait.is_zero()).then(|| Box::pin(tokio::time::sleep(wait)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use base::{ManualClock, UnixMillis};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    /// A body of so many pieces of 100 bytes, whose length nobody knows.
    struct Pieces(usize);

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            let left = self.0.checked_sub(1);
            Poll::Ready(left.map(|left| {
                self.0 = left;
                Ok(Frame::data(Bytes::from_static(&[0; 100])))
            }))
        }
    }

    struct Port {
        routes: Router,
        clock: ManualClock,
    }

    impl Port {
        fn open(requests_per_second: u32, bytes_per_second: u64) -> Port {
            let clock = ManualClock::at(UnixMillis(1_000_000));
            let config = RateLimitConfig {
                requests_per_second,
                bytes_per_second: ByteSize(bytes_per_second),
            };
            let rates = RateLimit::of(&config, Arc::new(clock.clone())).unwrap();
            let routes = Router::new().route("/", post(async |_: Bytes| "done"));
            Port {
                routes: rate_limited(routes, rates),
                clock,
            }
        }

        async fn send(&self, from: &str, body: Body) -> Response {
            let peer = Peer {
                ip: from.parse().unwrap(),
                certificate: None,
            };
            let mut request = Request::post("/").extension(peer);
            if let Some(length) = body.size_hint().exact() {
                request = request.header(header::CONTENT_LENGTH, length);
            }
            let request = request.body(body).unwrap();
            self.routes.clone().oneshot(request).await.unwrap()
        }
    }

    #[tokio::test]
    async fn who_asks_too_often_is_told_when_to_come_again() {
        let port = Port::open(2, 0);
        for _ in 0..3 {
            assert_eq!(port.send("::1", Body::empty()).await.status(), 200);
        }
        let refused = port.send("::1", Body::empty()).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
        let body = refused.into_body().collect().await.unwrap().to_bytes();
        let told: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(told["error_code"], 429, "{told}");
        // Others are not held back, nor is this one when the time is over.
        assert_eq!(port.send("10.0.0.1", Body::empty()).await.status(), 200);
        port.clock.advance(Duration::from_millis(500));
        assert_eq!(port.send("::1", Body::empty()).await.status(), 200);
    }

    #[tokio::test]
    async fn a_large_body_is_taken_and_paid_for_afterwards() {
        let port = Port::open(0, 100);
        assert_eq!(
            port.send("::1", Body::from("x".repeat(1_050)))
                .await
                .status(),
            200
        );
        let refused = port.send("::1", Body::empty()).await;
        assert_eq!(refused.headers()[header::RETRY_AFTER], "10");
        port.clock.advance(Duration::from_millis(9_500));
        assert_eq!(port.send("::1", Body::empty()).await.status(), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_unknown_length_is_held_back() {
        let port = Port::open(0, 100);
        let begun = tokio::time::Instant::now();
        assert_eq!(port.send("::1", Body::new(Pieces(4))).await.status(), 200);
        // The clock of the meters stands: 0, 1 and 2 s, and 3 s before the end is looked for.
        assert_eq!(begun.elapsed().as_secs(), 6);
    }
}
