//! EFM's paths of classes that are held to one manifest. A class that is not is resolved by a rule, and
//! has no mapping.

use std::sync::Arc;

use access::Role;
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::{Deserialize, Serialize};

use crate::error::FleetError;
use crate::fleet::{Fleet, unknown_class};
use crate::http::{Failure, body, json};
use crate::registry::Resolution;
use crate::rights::Rights;

pub fn routes() -> Router<Arc<Fleet>> {
    let path = "/efm/api/agent-class-manifest-config";
    Router::new()
        .route(path, get(list).post(add).put(set))
        .route(&format!("{path}/{{class}}"), get(mapping).delete(remove))
}

/// A class and its manifest.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Mapping {
    agent_class_name: String,
    agent_manifest_id: String,
}

async fn list(State(fleet): State<Arc<Fleet>>, rights: Rights) -> Result<Response, Failure> {
    let mut mappings = fleet.mappings();
    mappings.retain(|mapping| rights.sees(Some(&mapping.agent_class_name)));
    json(StatusCode::OK, &mappings)
}

async fn mapping(
    State(fleet): State<Arc<Fleet>>,
    Path(class): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.mapping(&class)?)
}

/// Holds a class to a manifest that is held to none.
async fn add(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    let wanted = wanted(&rights, request).await?;
    if let Ok(known) = fleet.mapping(&wanted.agent_class_name) {
        let message = format!(
            "the class '{}' has the manifest '{}': use PUT for another one",
            known.agent_class_name, known.agent_manifest_id
        );
        return Err(Failure::new(StatusCode::CONFLICT, message));
    }
    let mapping = fleet.map(&rights, wanted).await?;
    json(StatusCode::CREATED, &mapping)
}

async fn set(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    let wanted = wanted(&rights, request).await?;
    json(StatusCode::OK, &fleet.map(&rights, wanted).await?)
}

async fn remove(
    State(fleet): State<Arc<Fleet>>,
    Path(class): Path<String>,
) -> Result<Response, Failure> {
    fleet.mapping(&class)?;
    fleet.set_resolution(&class, None).await?;
    json(StatusCode::OK, &serde_json::Map::new())
}

async fn wanted(rights: &Rights, request: Request) -> Result<Mapping, Failure> {
    let wanted: Mapping = body::take(request).await?.json()?;
    rights.need(Role::Designer, Some(&wanted.agent_class_name))?;
    Ok(wanted)
}

impl Fleet {
    /// The classes that are held to one manifest, by name.
    fn mappings(&self) -> Vec<Mapping> {
        let registry = self.inner.registry.lock();
        let classes = registry.classes.iter();
        let held = classes.filter_map(|(name, class)| match &class.resolution {
            Some(Resolution::Pinned(hash)) => Some(Mapping {
                agent_class_name: name.to_string(),
                agent_manifest_id: hash.to_string(),
            }),
            _ => None,
        });
        held.collect()
    }

    fn mapping(&self, class: &str) -> Result<Mapping, FleetError> {
        let registry = self.inner.registry.lock();
        let found = registry.classes.get(class);
        let found = found.ok_or_else(|| unknown_class(class))?;
        match &found.resolution {
            Some(Resolution::Pinned(hash)) => Ok(Mapping {
                agent_class_name: class.to_owned(),
                agent_manifest_id: hash.to_string(),
            }),
            _ => Err(FleetError::Unknown {
                what: "manifest of a class",
                name: class.to_owned(),
                list: "/efm/api/agent-class-manifest-config",
            }),
        }
    }

    async fn map(&self, rights: &Rights, wanted: Mapping) -> Result<Mapping, FleetError> {
        let (class, hash) = (&wanted.agent_class_name, &wanted.agent_manifest_id);
        self.check_manifest_seen(rights, hash)?;
        let pinned = Resolution::Pinned(Arc::from(&**hash));
        self.set_resolution(class, Some(pinned)).await?;
        self.mapping(class)
    }
}
