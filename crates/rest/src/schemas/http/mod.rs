//! The registry's API: paths, media types, who may call what, and the form of answers.
//!
//! Where access control is on, a caller needs rights on the topic that holds the schemas: `READ` to
//! read, look up and compare, `WRITE` to register, `DELETE` to delete, `ALTER_CONFIGS` to change
//! compatibilities and modes. Subjects of other tenants than a caller's own are not there for it
//! ([`Sight`]).

mod compatibility;
mod form;
mod ids;
mod in_context;
mod metadata;
#[cfg(test)]
mod openapi_tests;
mod settings;
mod subjects;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use ::access::{Operation, ResourceType};
use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use serde_json::json;
use streams::Caller;

use self::form::told;
use super::SchemaRegistry;
use super::error::SchemaError;
use super::sight::{NOT_TENANTS, Sight};
use crate::answer;
use crate::body::Gate;
use crate::error::{self, RestError};
use crate::login::{self, Logins};
use crate::media;
use crate::rate::{RateLimit, rate_limited};
use crate::routes::outcome_of;

/// What the handlers share.
pub(super) struct Served {
    registry: Arc<SchemaRegistry>,
    gate: Gate,
}

type Here = State<Arc<Served>>;

/// The registry's routes, to be served on a port of their own. With `logins` every request acts as
/// the user that it names; with `rates` each caller is held to them.
pub fn routes(
    registry: Arc<SchemaRegistry>,
    logins: Option<Arc<Logins>>,
    rates: Option<Arc<RateLimit>>,
) -> Router {
    let gate = Gate::new(registry.config.body_bytes_max.0);
    let served = Arc::new(Served { registry, gate });
    let paths = paths().into_iter();
    let router = paths.fold(Router::new(), |router, (path, methods)| {
        router.route(path, methods)
    });
    let router = router
        .fallback(async || not_found())
        .method_not_allowed_fallback(async || RestError::MethodNotAllowed)
        .layer(middleware::from_fn_with_state(served.clone(), admitted))
        .with_state(served);
    // Within the logins, as it asks who calls.
    let router = match rates {
        Some(rates) => rate_limited(router, rates),
        None => router,
    };
    let router = match logins {
        Some(logins) => login::identified(router, logins),
        None => router,
    };
    // Around the logins, so that refusals are counted and written like all errors.
    let router = router.layer(middleware::from_fn(observe));
    // Around the routes, so that they are found under what the path is made into.
    let in_context = |request, next: Next| next.run(in_context::in_context(request));
    Router::new()
        .fallback_service(router)
        .layer(middleware::from_fn(in_context))
}

/// The registry's routes below `/api/v1/registry` of a management port, whose own rules come first:
/// what reads takes a viewer, all else an administrator. Where ACLs are followed, by `logins`, the
/// rights of [`routes`] are asked for too.
pub fn management(registry: Arc<SchemaRegistry>, logins: Option<&Logins>) -> Router {
    let follows_acls = logins.is_some_and(Logins::follows_acls);
    let as_own = move |mut request: Request, next: Next| {
        // What was found on the way here, such as the path, is not what the registry looks for.
        let found = std::mem::take(request.extensions_mut());
        if let Some(caller) = found.get::<Caller>().filter(|_| follows_acls) {
            request.extensions_mut().insert(caller.clone());
        }
        next.run(request)
    };
    let own = Router::new()
        .fallback_service(routes(registry, None, None))
        .layer(middleware::from_fn(as_own));
    Router::new().nest_service("/api/v1/registry", own)
}

/// Every path of the registry; tests compare what is documented with them.
fn paths() -> Vec<(&'static str, MethodRouter<Arc<Served>>)> {
    let subject = post(subjects::look_up).delete(subjects::delete);
    let versions = get(subjects::versions).post(subjects::register);
    let version = get(subjects::version).delete(subjects::delete_version);
    let config = get(settings::config)
        .put(settings::set_config)
        .delete(settings::unset_config);
    let subject_config = get(settings::subject_config)
        .put(settings::set_subject_config)
        .delete(settings::unset_subject_config);
    let mode = get(settings::mode)
        .put(settings::set_mode)
        .delete(settings::unset_mode);
    let subject_mode = get(settings::subject_mode)
        .put(settings::set_subject_mode)
        .delete(settings::unset_subject_mode);
    vec![
        ("/", get(root).post(root)),
        (OPENAPI, get(openapi)),
        ("/schemas", get(ids::list)),
        ("/schemas/types", get(ids::types)),
        ("/schemas/ids/{id}", get(ids::one)),
        ("/schemas/ids/{id}/schema", get(ids::text)),
        ("/schemas/ids/{id}/subjects", get(ids::subjects)),
        ("/schemas/ids/{id}/versions", get(ids::versions)),
        ("/schemas/guids/{guid}", get(ids::by_guid)),
        ("/schemas/guids/{guid}/ids", get(ids::ids_of_guid)),
        ("/contexts", get(subjects::contexts)),
        ("/contexts/{context}", delete(subjects::delete_context)),
        ("/subjects", get(subjects::list)),
        ("/subjects/{subject}", subject),
        ("/subjects/{subject}/metadata", get(subjects::by_metadata)),
        ("/subjects/{subject}/versions", versions),
        ("/subjects/{subject}/versions/{version}", version),
        (
            "/subjects/{subject}/versions/{version}/schema",
            get(subjects::text),
        ),
        (TAGS, post(subjects::retag)),
        (
            "/subjects/{subject}/versions/{version}/referencedby",
            get(subjects::referrers),
        ),
        (
            "/compatibility/subjects/{subject}/versions",
            post(compatibility::against_all),
        ),
        (
            "/compatibility/subjects/{subject}/versions/{version}",
            post(compatibility::against_one),
        ),
        ("/config", config),
        ("/config/{subject}", subject_config),
        ("/mode", mode),
        ("/mode/{subject}", subject_mode),
        ("/v1/metadata/id", get(metadata::id)),
        ("/v1/metadata/version", get(metadata::version)),
        ("/v1/metadata/deployment", get(metadata::deployment)),
    ]
}

/// `GET /openapi.json`: the document about this port.
async fn openapi() -> Response {
    answer::bytes(StatusCode::OK, JSON, DOCUMENT)
}

/// `GET /` and `POST /`: the registry is alive.
async fn root() -> Response {
    told(&json!({}))
}

/// Lets those in who may call, once the topic was read.
async fn admitted(State(served): Here, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str);
    if ["", "/", OPENAPI, "/schemas/types"].contains(&path) || path.starts_with("/v1/metadata/") {
        return next.run(request).await;
    }
    let registry = &served.registry;
    if let Some(caller) = request.extensions().get::<Caller>() {
        let topic = registry.log.topic().wire_name();
        let operation = right(request.method(), path);
        if let Err(error) = caller.check_right(operation, ResourceType::Topic, topic) {
            return SchemaError::from(RestError::from(error)).into_response();
        }
        let is_of_all = ["/config", "/mode"].contains(&path);
        if is_of_all && operation != Operation::Read && caller.is_held_to_tenant() {
            return SchemaError::NotAllowed(NOT_TENANTS.to_owned()).into_response();
        }
    }
    match registry.log.ready().await {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// What a caller does to the topic.
fn right(method: &Method, path: &str) -> Operation {
    match *method {
        Method::GET | Method::HEAD => Operation::Read,
        Method::POST if ["/subjects/{subject}/versions", TAGS].contains(&path) => Operation::Write,
        Method::POST => Operation::Read,
        _ if is_setting(path) => Operation::AlterConfigs,
        _ => Operation::Delete,
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Sight {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let path = parts.extensions.get::<MatchedPath>();
        let operation = right(&parts.method, path.map_or("", MatchedPath::as_str));
        Ok(Sight::of(parts.extensions.get::<Caller>(), operation))
    }
}

/// Whether a path is one of compatibilities or modes.
fn is_setting(path: &str) -> bool {
    path.starts_with("/config") || path.starts_with("/mode")
}

/// Counts and times a call, refuses bodies of other kinds, and answers in the type that its caller
/// wants.
async fn observe(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let operation = operation(&request);
    let accept = answer::joined(request.headers(), header::ACCEPT);
    let is_document = request.uri().path() == OPENAPI;
    let media = answer_type(accept.as_deref()).map(|of| if is_document { JSON } else { of });
    let has_body = [Method::POST, Method::PUT].contains(request.method());
    let mut response = match media {
        None => {
            let text = format!(
                "none of the types in Accept can be answered; use {}",
                TYPES[0]
            );
            error::response(406, StatusCode::NOT_ACCEPTABLE, &text)
        }
        Some(_) if has_body && !is_json(request.headers()) => {
            let text = format!("the content type is not supported; use {}", TYPES[0]);
            error::response(415, StatusCode::UNSUPPORTED_MEDIA_TYPE, &text)
        }
        Some(_) => next.run(request).await,
    };
    if response.headers().contains_key(header::CONTENT_TYPE) {
        let media = HeaderValue::from_static(media.unwrap_or(JSON));
        response.headers_mut().insert(header::CONTENT_TYPE, media);
    }
    let outcome = outcome_of(response.status());
    let labels = [("operation", operation), ("outcome", outcome)];
    metrics::counter!("thalweg_schemas_requests_total", &labels).increment(1);
    metrics::histogram!("thalweg_schemas_request_seconds", "operation" => operation)
        .record(started.elapsed().as_secs_f64());
    response
}

/// The call's name in metrics, from a closed set.
fn operation(request: &Request) -> &'static str {
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str);
    match (request.method(), path) {
        (&Method::POST, "/subjects/{subject}/versions" | TAGS) => "register",
        (&Method::POST, "/subjects/{subject}") => "look_up",
        (&Method::DELETE, path) if path.starts_with("/subjects") => "delete",
        (_, path) if path.starts_with("/compatibility") => "compatibility",
        (_, path) if path.starts_with("/config") => "config",
        (_, path) if path.starts_with("/mode") => "mode",
        (_, path) if path.starts_with("/schemas") => "schema",
        (_, path) if path.starts_with("/subjects") => "subject",
        _ => "other",
    }
}

/// The media type to answer in; none when the caller takes none of ours.
fn answer_type(accept: Option<&str>) -> Option<&'static str> {
    let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else {
        return Some(TYPES[0]);
    };
    let mut best: Option<(u32, &'static str)> = None;
    for (range, quality) in media::ranges(accept) {
        let candidate = match range.as_str() {
            "*/*" | "application/*" => TYPES[0],
            other => match TYPES.into_iter().find(|known| *known == other) {
                Some(known) => known,
                None => continue,
            },
        };
        if quality > 0 && best.is_none_or(|(most, _)| quality > most) {
            best = Some((quality, candidate));
        }
    }
    best.map(|(_, media)| media)
}

/// Whether a body is of a kind that is read; one without a type is.
fn is_json(headers: &HeaderMap) -> bool {
    let text = answer::text(headers, header::CONTENT_TYPE).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence.is_empty() || essence == "application/octet-stream" || TYPES.contains(&&*essence)
}

fn not_found() -> Response {
    let text = "no such path; see GET /subjects, POST /subjects/{subject}/versions and GET /schemas/ids/{id}";
    error::response(404, StatusCode::NOT_FOUND, text)
}

/// The OpenAPI document: one file, which tests compare with the routes, and schemathesis with the
/// behaviour.
const DOCUMENT: &str = include_str!("../../../openapi-schemas.json");
const OPENAPI: &str = "/openapi.json";
const TAGS: &str = "/subjects/{subject}/versions/{version}/tags";

/// What the registry speaks, best first.
const TYPES: [&str; 3] = [
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    JSON,
];
const JSON: &str = "application/json";
