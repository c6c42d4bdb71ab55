//! What the registry is: its cluster, its version and how it is deployed.

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use super::Here;
use super::form::told;
use crate::schemas::error::SchemaError;

/// `GET /v1/metadata/id`: the cluster that keeps the schemas, and the registries of it.
pub(super) async fn id(State(served): Here) -> Result<Response, SchemaError> {
    let cluster = served.registry.log.cluster_id().await?;
    let clusters = json!({"kafka-cluster": cluster, "schema-registry-cluster": GROUP});
    Ok(told(
        &json!({"id": "", "scope": {"path": [], "clusters": clusters}}),
    ))
}

/// `GET /v1/metadata/version`
pub(super) async fn version() -> Response {
    told(&json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /v1/metadata/deployment`: nothing that clients of Confluent Cloud look for.
pub(super) async fn deployment() -> Response {
    told(&json!({"attributes": []}))
}

/// How a registry's group is called where nobody named it.
const GROUP: &str = "schema-registry";
