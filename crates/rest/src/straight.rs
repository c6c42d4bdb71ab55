//! The short way of the request that comes by far the most: records for a topic, by version 1 or 2.
//!
//! Finding a route among a hundred and passing what surrounds them costs as much as storing a
//! record. Where nobody is asked who they are and no rates are kept, whoever serves connections may
//! ask [`Straight`] first. It takes `POST /topics/{topic}` and `POST
//! /topics/{topic}/partitions/{partition}` and does what the routes would, by the same handler, with
//! the same metrics and form of errors; all else it hands back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Method, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Body as HttpBody;
use metrics::{Counter, Histogram};

use crate::answer::{self, AnswerType};
use crate::bridge::Unreceipted;
use crate::error::RestError;
use crate::idempotency::Wanted;
use crate::produce::{self, To};
use crate::routes::{Shared, in_form, outcome_of};

/// Takes produce requests; clones share what they need.
#[derive(Clone)]
pub struct Straight {
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
}

struct Metrics {
    ok: Counter,
    refused: Counter,
    failed: Counter,
    seconds: Histogram,
}

impl Straight {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let counter = |outcome: &'static str| {
            let labels = [("operation", "produce"), ("outcome", outcome)];
            metrics::counter!("thalweg_rest_requests_total", &labels)
        };
        let metrics = Metrics {
            ok: counter("ok"),
            refused: counter("refused"),
            failed: counter("failed"),
            seconds: metrics::histogram!("thalweg_rest_request_seconds", "operation" => "produce"),
        };
        Straight {
            shared,
            metrics: Arc::new(metrics),
        }
    }

    /// Answers a request, or hands it back.
    #[expect(
        clippy::result_large_err,
        reason = "the request goes on to the routes as it came"
    )]
    pub fn take<B>(
        &self,
        request: Request<B>,
    ) -> Result<impl Future<Output = Result<Response, Infallible>> + Send + use<B>, Request<B>>
    where
        B: HttpBody<Data = Bytes, Error: std::fmt::Display + Send> + Send + Unpin,
    {
        let is_ours = request.method() == Method::POST && to(request.uri().path()).is_some();
        if !is_ours {
            return Err(request);
        }
        let Straight { shared, metrics } = self.clone();
        Ok(async move {
            let started = Instant::now();
            let (mut parts, body) = request.into_parts();
            let answer = produced(&shared, &mut parts, body).await;
            let answer = answer.unwrap_or_else(IntoResponse::into_response);
            let spoken = || answer::named(&parts.headers);
            let answer = in_form(answer, spoken);
            match outcome_of(answer.status()) {
                "ok" => metrics.ok.increment(1),
                "refused" => metrics.refused.increment(1),
                _ => metrics.failed.increment(1),
            }
            metrics.seconds.record(started.elapsed().as_secs_f64());
            Ok(answer)
        })
    }
}

async fn produced<B>(shared: &Shared, parts: &mut Parts, body: B) -> Result<Response, RestError>
where
    B: HttpBody<Data = Bytes, Error: std::fmt::Display + Send> + Send + Unpin,
{
    let AnswerType(media) = AnswerType::from_request_parts(parts, &()).await?;
    let Unreceipted(unreceipted) = Unreceipted::from_request_parts(parts, &()).await?;
    let path = parts.uri.path();
    let (topic, partition) = to(path).ok_or(RestError::NotFound)?;
    let to = To {
        topic: shared.config.topic_name(topic)?,
        partition: partition.map(str::to_owned),
        unreceipted,
    };
    let wanted = Wanted::from_request_parts(parts, &()).await?;
    produce::produce(shared, media, to, &parts.headers, wanted, body).await
}

/// The topic and the partition of a path that needs no decoding.
fn to(path: &str) -> Option<(&str, Option<&str>)> {
    let rest = path.strip_prefix("/topics/")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() || rest.contains('%') {
        return None;
    }
    match rest.split_once('/') {
        None => Some((rest, None)),
        Some((topic, rest)) => {
            let partition = rest.strip_prefix("partitions/")?;
            let is_one = !topic.is_empty() && !partition.is_empty() && !partition.contains('/');
            is_one.then_some((topic, Some(partition)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_of_produce_are_taken() {
        for (path, expected) in [
            ("/topics/a", Some(("a", None))),
            ("/topics/a/", Some(("a", None))),
            ("/topics/a/partitions/0", Some(("a", Some("0")))),
            ("/topics/a/partitions/x/", Some(("a", Some("x")))),
            ("/topics", None),
            ("/topics/", None),
            ("/topics//", None),
            ("/topics//partitions/0", None),
            ("/topics/a/partitions", None),
            ("/topics/a/partitions/0/offsets", None),
            ("/topics/a%2Fb", None),
            ("/v3/topics/a", None),
        ] {
            assert_eq!(to(path), expected, "{path}");
        }
    }
}
