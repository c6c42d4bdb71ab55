//! The fleet's HTTP routes: C2 for agents, management for operators.
//!
//! Agents are served on EFM's paths and on plain ones, so that a fleet of agents moves over by
//! its DNS name. Errors are `{"error_code": int, "message": text}` and never carry operations: a
//! Java agent obeys a body whatever its status.

mod audit;
mod body;
mod bundles;
mod c2_routes;
mod caller;
mod classes;
mod efm;
mod files;
mod flows;
mod giving;
mod judge;
mod management;
mod manifests;
mod openapi;
mod operations;
mod resources;
mod rollouts;
mod rules;
mod straight;

use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::flow::check::Problem;

pub use audit::audited;
pub use c2_routes::AGENT_PREFIXES;
pub use caller::Certificate;
pub use rules::judges;
pub use straight::Straight;

/// All routes of the fleet.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    let ruled = management::routes(fleet.clone())
        .merge(classes::routes(fleet.clone()))
        .merge(giving::routes(fleet.clone()))
        .merge(flows::routes(fleet.clone()))
        .merge(manifests::routes(fleet.clone()))
        .merge(operations::routes(fleet.clone()))
        .merge(resources::routes(fleet.clone()))
        .merge(bundles::routes(fleet.clone()))
        .merge(audit::routes(fleet.clone()))
        .merge(efm::routes(fleet.clone()))
        .merge(openapi::routes());
    c2_routes::routes(fleet.clone()).merge(judge::judged(ruled, fleet))
}

/// A failed request.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    message: String,
    problems: Vec<Problem>,
}

#[derive(Serialize)]
struct FailureBody<'a> {
    error_code: u16,
    message: &'a str,
    #[serde(skip_serializing_if = "<[Problem]>::is_empty")]
    problems: &'a [Problem],
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Failure {
        Failure {
            status,
            message: message.into(),
            problems: Vec::new(),
        }
    }
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Failure {
        let status = match &error {
            FleetError::Message(_)
            | FleetError::NoIdentifier
            | FleetError::NoOperation
            | FleetError::BadName { .. }
            | FleetError::BadField { .. }
            | FleetError::Broken(_)
            | FleetError::BadFlow { .. }
            | FleetError::UnfitFlow(_)
            | FleetError::BadRollout(_) => StatusCode::BAD_REQUEST,
            FleetError::WrongCertificate { .. }
            | FleetError::NotItsResource { .. }
            | FleetError::NotItsFlow { .. }
            | FleetError::NotAllowed { .. } => StatusCode::FORBIDDEN,
            FleetError::RolloutState { .. } => StatusCode::CONFLICT,
            FleetError::Unknown { .. } | FleetError::Unseen { .. } => StatusCode::NOT_FOUND,
            FleetError::Finished { .. } | FleetError::InUse { .. } => StatusCode::CONFLICT,
            FleetError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            FleetError::Unsupported { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            FleetError::Full { .. } | FleetError::NotStored | FleetError::Busy { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            FleetError::Store(error) if error.may_retry() => StatusCode::SERVICE_UNAVAILABLE,
            FleetError::Store(_)
            | FleetError::BadRow { .. }
            | FleetError::Key { .. }
            | FleetError::Sealing => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let message = base::report(&error);
        if status.is_server_error() {
            tracing::error!(%status, message, "a request failed");
        }
        let problems = match error {
            FleetError::UnfitFlow(problems) => problems,
            _ => Vec::new(),
        };
        Failure {
            status,
            message,
            problems,
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = FailureBody {
            error_code: self.status.as_u16(),
            message: &self.message,
            problems: &self.problems,
        };
        // A status and a text always make JSON.
        json(self.status, &body).unwrap_or_else(|failure| failure.status.into_response())
    }
}

/// A JSON response.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Failure> {
    let body = serde_json::to_vec(value).map_err(|error| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("cannot write JSON: {error}"),
        )
    })?;
    let mut response = (status, body).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

#[cfg(test)]
#[path = "../http_tests.rs"]
mod tests;
