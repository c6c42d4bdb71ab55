//! The management API of users and ACLs, `/api/v1/users` and `/api/v1/acls`; that of tokens is in
//! [`crate::tokens`], that of roles in [`crate::roles`]. One OpenAPI document is about them all.
//!
//! A password comes in, is hashed and forgotten: no answer and no log holds it.

use std::sync::Arc;

use access::{Access, AccessError, Acl, AclFilter, PasswordForm, UserChange};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, put};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::acl_words::{AclWords, refusal};
use crate::answer::{self, Parameters, Segments};
use crate::body::Gate;
use crate::error::RestError;

pub(crate) struct Management {
    pub access: Arc<Access>,
    pub gate: Gate,
}

/// The management routes over `access`; the caller mounts them beside those of other roles. Those of
/// tokens and roles stand with [`crate::tokens::routes`] and [`crate::roles::routes`].
///
/// - `GET /api/v1/users`: `{"users": [{name, credentials: [{mechanism, iterations?}]}]}`
/// - `PUT /api/v1/users/{name}` with `{"password", "mechanisms"?, "iterations"?}`: 204; sets the
///   user's credentials of these mechanisms (SCRAM-SHA-256, SCRAM-SHA-512, ARGON2ID), of all if none
///   is named
/// - `DELETE /api/v1/users/{name}`: 204
/// - `GET /api/v1/acls`: `{"acls": [{resource_type, resource_name, pattern_type, principal, host,
///   operation, permission}]}`, words as Kafka writes them, `User:` before names
/// - `POST /api/v1/acls` with such an object (`pattern_type`, `host` and `permission` may be left
///   out: LITERAL, `*`, ALLOW): 201 and the object
/// - `DELETE /api/v1/acls?resource_type=…` with any of the object's fields, at least one:
///   `{"acls": […]}`, what was removed
/// - `GET /api/v1/access/openapi.json`: the document about these calls and `GET /api/v1/me`
pub fn access_management(access: Arc<Access>) -> Router {
    let management = Arc::new(Management {
        access,
        gate: Gate::new(BODY_BYTES_MAX),
    });
    Router::new()
        .route("/api/v1/users", get(users))
        .route("/api/v1/users/{name}", put(set_user).delete(remove_user))
        .route("/api/v1/acls", get(acls).post(add_acl).delete(remove_acls))
        .merge(crate::tokens::routes())
        .merge(crate::roles::routes())
        .with_state(management)
        .route("/api/v1/access/openapi.json", get(document))
}

/// The same paths where a Kafka cluster holds the records, whose own users and ACLs count: each
/// answers an error that says so.
pub fn access_elsewhere() -> Router {
    async fn refused() -> RestError {
        RestError::Store(streams::StreamsError::Unsupported(
            "keeping users and ACLs (the Kafka cluster's own hold; with streams.authorization = \"acl\" \
             callers by HTTP are held to this folder's)",
        ))
    }
    Router::new()
        .route("/api/v1/users", any(refused))
        .route("/api/v1/users/{name}", any(refused))
        .route("/api/v1/tokens", any(refused))
        .route("/api/v1/tokens/{id}", any(refused))
        .route("/api/v1/roles", any(refused))
        .route("/api/v1/acls", any(refused))
        .route("/api/v1/access/openapi.json", get(document))
}

async fn document() -> Response {
    answer::bytes(StatusCode::OK, JSON, DOCUMENT)
}

async fn users(State(management): State<Arc<Management>>) -> Response {
    let snapshot = management.access.snapshot();
    let users: Vec<Value> = snapshot
        .users()
        .map(|(name, credentials)| {
            let keys = credentials.iter();
            let keys = keys.map(|of| json!({"mechanism": of.hash, "iterations": of.iterations}));
            let hash = snapshot.password_hash(name);
            let hash = hash.map(|_| json!({"mechanism": PasswordForm::Argon2id}));
            let credentials: Vec<Value> = keys.chain(hash).collect();
            json!({"name": name, "credentials": credentials})
        })
        .collect();
    answer::json(StatusCode::OK, JSON, &json!({"users": users}))
}

async fn set_user(
    State(management): State<Arc<Management>>,
    Segments(name): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Password {
        password: String,
        #[serde(default)]
        mechanisms: Vec<PasswordForm>,
        #[serde(default = "iterations_default")]
        iterations: u32,
    }
    let asked: Password = management.gate.entity(&headers, body).await?;
    let access = Arc::clone(&management.access);
    blocking(move || {
        let (forms, password) = (&asked.mechanisms, &asked.password);
        let changes = PasswordForm::changes(forms, &name, password, asked.iterations)?;
        access.alter_users(&changes)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn remove_user(
    State(management): State<Arc<Management>>,
    Segments(name): Segments<String>,
) -> Result<Response, RestError> {
    let access = Arc::clone(&management.access);
    blocking(move || access.alter_users(&[UserChange::Remove(name, None)])).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn acls(State(management): State<Arc<Management>>) -> Response {
    let snapshot = management.access.snapshot();
    let acls: Vec<&Acl> = snapshot.acls(&AclFilter::default()).collect();
    answer::json(StatusCode::OK, JSON, &json!({"acls": acls}))
}

async fn add_acl(
    State(management): State<Arc<Management>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let asked: AclWords = management.gate.entity(&headers, body).await?;
    let acl = asked.acl()?;
    let told = json!(acl);
    let access = Arc::clone(&management.access);
    blocking(move || access.add_acls(vec![acl])).await?;
    Ok(answer::json(StatusCode::CREATED, JSON, &told))
}

async fn remove_acls(
    State(management): State<Arc<Management>>,
    Parameters(asked): Parameters<AclWords>,
) -> Result<Response, RestError> {
    let filter = asked.filter_of_some()?;
    let access = Arc::clone(&management.access);
    let removed = blocking(move || access.remove_acls(&[filter])).await?;
    let removed: Vec<Acl> = removed.into_iter().flatten().collect();
    Ok(answer::json(
        StatusCode::OK,
        JSON,
        &json!({"acls": removed}),
    ))
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AccessError> + Send + 'static,
) -> Result<T, RestError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(refusal),
        Err(_) => Err(broke_off()),
    }
}

/// The error of a change that panicked.
pub(crate) fn broke_off() -> RestError {
    RestError::Access("the change broke off".to_owned())
}

fn iterations_default() -> u32 {
    access::limits::ITERATIONS_MIN
}

pub(crate) const JSON: &str = "application/json";

/// The OpenAPI document.
const DOCUMENT: &str = include_str!("../openapi-access.json");

/// Bytes of a request: names and a password are short.
const BODY_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_openapi_document_names_every_route_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let sources = [
            include_str!("access.rs"),
            include_str!("roles.rs"),
            include_str!("tokens.rs"),
            include_str!("rights.rs"),
        ];
        let mut routes: Vec<&str> = Vec::new();
        for source in sources {
            let source = source.split("mod tests").next().unwrap();
            let told = source.lines().filter(|line| !line.trim().starts_with("//"));
            routes.extend(told.filter_map(|line| {
                let path = &line[line.find("\"/api/v1/")? + 1..];
                path.split('"').next()
            }));
        }
        routes.sort_unstable();
        routes.dedup();
        assert_eq!(paths.keys().collect::<Vec<_>>(), routes);
    }
}
