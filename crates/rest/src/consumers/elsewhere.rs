//! Calls on instances that another proxy on the same store has.
//!
//! Such a call is sent on to the owner as it came, with the caller's own credentials and, where callers
//! are asked, with who they are ([`crate::on_behalf`]), and its answer is handed back. A call that was sent on is not sent on again: a proxy that has not got the
//! instance says so (421), and the sender reads the roll again. Where the owner is not to be reached,
//! this proxy takes the instance over and serves it: it joins the group, and goes on where its
//! client was by the owner's last entry, or by what is committed where that is further.
//!
//! When a connection breaks before the owner's answer came, the call is made again, and may have been
//! done before. Most calls come to the same then. A read carries a mark by which its owner knows it
//! (its client's, if that sent one), and is answered with the same records again; an instance that is not found where it was to be
//! deleted is deleted.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use streams::{Caller, StreamsError};
use uuid::Uuid;

use super::{InstanceKey, roll::Roll};
use crate::answer::Segments;
use crate::error::{self, RestError};
use crate::limits;
use crate::login::{Asked, principal_of};
use crate::on_behalf;
use crate::routes::Shared;

/// Has a call on an instance reach the proxy that has it.
pub(crate) async fn located(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    match locate(&shared, request, next).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn locate(shared: &Arc<Shared>, request: Request, next: Next) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    struct InstancePath {
        group: String,
        instance: String,
    }
    let (mut parts, body) = request.into_parts();
    let path = parts.extensions.get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str);
    let (is_of_instance, is_itself) = (path.starts_with(INSTANCE_PATH), path == INSTANCE_PATH);
    let Some(roll) = shared.consumers.roll().filter(|_| is_of_instance) else {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    };
    let Segments(InstancePath { group, instance }) =
        Segments::from_request_parts(&mut parts, shared).await?;
    let key = InstanceKey { group, instance };
    if shared.consumers.has(&key) {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    }
    shared.consumers.begin_roll().await?;
    let held = shared.gate.read(&parts.headers, body).await?;
    let is_deletion = is_itself && parts.method == Method::DELETE;
    let mark = mark_of(&parts.headers).unwrap_or_else(Uuid::new_v4);
    // Whether the owner got the call and did not answer it.
    let mut is_open = false;
    for _ in 0..TRIES {
        let mut entry = roll.entry(&key);
        if entry.is_none() {
            roll.catch_up().await?;
            entry = roll.entry(&key);
        }
        let is_here = shared.consumers.has(&key);
        let Some(entry) = entry.filter(|_| !is_here) else {
            let request = Request::from_parts(parts, Body::from(held.bytes.clone()));
            let answer = next.run(request).await;
            return Ok(judged(answer, is_deletion && is_open));
        };
        let is_believed = is_believed(&entry.address, shared.config.peer_ca.is_some());
        if entry.owner != roll.me() && is_believed {
            if parts.headers.contains_key(FORWARDED) {
                return Ok(not_here());
            }
            match send_on(shared, roll, &entry.address, mark, &parts, &held.bytes).await {
                Ok(answer) if answer.status() == StatusCode::MISDIRECTED_REQUEST => {
                    // It was taken over meanwhile, or is about to be told so.
                    roll.catch_up().await?;
                    continue;
                }
                Ok(answer) => return Ok(judged(handed_back(answer), is_deletion && is_open)),
                Err(error) if error.is_connect() => {}
                // It may have gone while it answered; then the next try does not reach it.
                Err(_) => {
                    is_open = true;
                    continue;
                }
            }
        }
        let caller = principal_of(&parts);
        let Asked(asked) = Asked::from_request_parts(&mut parts, shared).await?;
        asked
            .consumers
            .take_over(&asked, caller, &key, &entry)
            .await?;
    }
    let gone = format!(
        "the proxy that has consumer instance '{}' does not answer; retry later",
        key.instance
            .chars()
            .take(limits::NAME_BYTES_MAX)
            .collect::<String>()
    );
    Err(StreamsError::Unavailable(gone).into())
}

/// Whether calls may be sent on to an address. Whoever may write to the roll names addresses: those who
/// cannot show who they are get nothing where others can, and none says where below it a call goes.
fn is_believed(address: &str, by_certificates: bool) -> bool {
    let is_beginning = !address.contains(['?', '#', '@']);
    is_beginning && (!by_certificates || address.starts_with("https://"))
}

async fn send_on(
    shared: &Shared,
    roll: &Roll,
    address: &str,
    mark: Uuid,
    parts: &Parts,
    body: &Bytes,
) -> Result<reqwest::Response, reqwest::Error> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = parts.headers.clone();
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
    on_behalf::speak_for_nobody(&mut headers);
    if let Some(caller) = parts.extensions.get::<Caller>() {
        on_behalf::speak_for(caller, &mut headers);
    }
    for (name, id) in [(FORWARDED, roll.me()), (MARK, mark)] {
        if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
            headers.insert(name, value);
        }
    }
    let sent = shared
        .peers
        .client()
        .request(parts.method.clone(), format!("{address}{path}"))
        .headers(headers)
        .body(body.clone());
    metrics::counter!("thalweg_rest_requests_sent_on_total").increment(1);
    sent.send().await
}

fn handed_back(answer: reqwest::Response) -> Response {
    let (status, mut headers): (StatusCode, HeaderMap) =
        (answer.status(), answer.headers().clone());
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
    let body = Body::from_stream(answer.bytes_stream());
    (status, headers, body).into_response()
}

/// The answer to a call; one that deletes what may have been deleted by it before has done so.
fn judged(answer: Response, is_deletion_again: bool) -> Response {
    match is_deletion_again && answer.status() == StatusCode::NOT_FOUND {
        true => StatusCode::NO_CONTENT.into_response(),
        false => answer,
    }
}

/// The mark of a call, by a client or by another proxy that sent it on; the same when it comes again.
pub(super) fn mark_of(headers: &HeaderMap) -> Option<Uuid> {
    headers.get(MARK)?.to_str().ok()?.parse().ok()
}

fn not_here() -> Response {
    let status = StatusCode::MISDIRECTED_REQUEST;
    error::response(421, status, "another proxy has this consumer instance")
}

/// How the paths of calls on instances begin.
const INSTANCE_PATH: &str = "/consumers/{group}/instances/{instance}";

/// Says of a request that another proxy sent it on.
const FORWARDED: HeaderName = HeaderName::from_static("thalweg-forwarded");

/// Tells calls from each other: a UUID.
const MARK: HeaderName = HeaderName::from_static("thalweg-call");

/// What belongs to one connection and not to what goes over it.
const OF_THE_CONNECTION: [HeaderName; 8] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
];

/// How often an owner is looked for: it may change while it is.
const TRIES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_roll_is_the_beginning_of_one() {
        for (address, by_certificates, expected) in [
            ("http://10.0.0.7:8082", false, true),
            ("https://proxies.example.org/one", false, true),
            ("https://10.0.0.7:8082", true, true),
            ("http://10.0.0.7:8082", true, false),
            ("http://10.0.0.7/latest/secrets?", false, false),
            ("http://10.0.0.7/latest/secrets#", false, false),
            ("http://user@10.0.0.7", false, false),
        ] {
            let found = is_believed(address, by_certificates);
            assert_eq!(found, expected, "{address}");
        }
    }
}
