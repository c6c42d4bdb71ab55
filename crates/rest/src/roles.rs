//! The management API of roles, `/api/v1/roles`.

use std::sync::Arc;

use access::{Grant, Principal};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::access::{JSON, Management, blocking};
use crate::acl_words::refusal;
use crate::answer::{self, Parameters};
use crate::error::RestError;

/// The routes of roles.
///
/// - `GET /api/v1/roles`: `{"roles": [{principal, role, class?, tenant?}]}`, those that were granted;
///   what the configuration gives is not among them
/// - `POST /api/v1/roles` with such an object: 201 and the object
/// - `DELETE /api/v1/roles?principal=&role=&class=&tenant=`: 204
pub(crate) fn routes() -> Router<Arc<Management>> {
    Router::new().route("/api/v1/roles", get(list).post(grant).delete(revoke))
}

/// A role of somebody; for all classes without one, or, an importer's, for all tenants without one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    principal: String,
    role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
}

impl Given {
    fn read(&self) -> Result<(Principal, Grant), RestError> {
        let principal: Principal = self.principal.parse().map_err(refusal)?;
        let (class, tenant) = (self.class.as_deref(), self.tenant.as_deref());
        let grant = Grant::named(&self.role, class, tenant).map_err(refusal)?;
        Ok((principal, grant))
    }
}

async fn list(State(management): State<Arc<Management>>) -> Response {
    let snapshot = management.access.snapshot();
    let given = snapshot.grants().flat_map(|(principal, grants)| {
        grants.iter().map(move |grant| Given {
            principal: principal.to_string(),
            role: grant.role().to_owned(),
            class: grant.class().map(str::to_owned),
            tenant: grant.tenant().map(ToString::to_string),
        })
    });
    let given: Vec<Given> = given.collect();
    answer::json(StatusCode::OK, JSON, &json!({"roles": given}))
}

async fn grant(
    State(management): State<Arc<Management>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let asked: Given = management.gate.entity(&headers, body).await?;
    let (principal, grant) = asked.read()?;
    let access = Arc::clone(&management.access);
    blocking(move || access.grant(principal, grant)).await?;
    Ok(answer::json(StatusCode::CREATED, JSON, &json!(asked)))
}

async fn revoke(
    State(management): State<Arc<Management>>,
    Parameters(asked): Parameters<Given>,
) -> Result<Response, RestError> {
    let (principal, grant) = asked.read()?;
    let access = Arc::clone(&management.access);
    blocking(move || access.revoke(&principal, &grant)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
