//! EFM's paths of classes: made, read, pointed at a manifest, removed.
//!
//! `PUT` names the manifest that the class is checked against until another one is named; a class
//! that `/agent-class-manifest-config` holds to one refuses another, as EFM does.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use access::Role;
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json as object};

use crate::error::FleetError;
use crate::fleet::{Fleet, unknown_class};
use crate::http::{Failure, body, json};
use crate::registry::{Resolution, check_name};
use crate::rights::Rights;

pub fn routes() -> Router<Arc<Fleet>> {
    let path = "/efm/api/agent-classes";
    Router::new()
        .route(path, get(list).post(add))
        .route(
            &format!("{path}/{{name}}"),
            get(class).put(set).delete(remove),
        )
        .route(
            &format!("{path}/{{name}}/manifest-diff"),
            get(manifest_diff),
        )
}

/// A class as a caller gives it: what [`list`] told of it may come back whole.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Wanted {
    name: Option<String>,
    description: Option<String>,
    agent_manifests: Option<Vec<String>>,
    // What only a heartbeat or a publication changes.
    #[serde(rename = "agents")]
    _agents: Option<u64>,
    #[serde(rename = "agentsOnline")]
    _agents_online: Option<u64>,
    #[serde(rename = "flowId")]
    _flow_id: Option<String>,
}

async fn list(State(fleet): State<Arc<Fleet>>, rights: Rights) -> Result<Response, Failure> {
    let mut classes = fleet.efm_classes();
    classes.retain(|class| rights.sees(class["name"].as_str()));
    json(StatusCode::OK, &classes)
}

async fn class(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    json(StatusCode::OK, &fleet.efm_class(&name)?)
}

/// Makes a class that is not there.
async fn add(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    let wanted: Wanted = body::take(request).await?.json()?;
    let name = wanted.name.as_deref().ok_or_else(|| FleetError::BadField {
        field: "name".to_owned(),
        reason: "it is missing: give the class one".to_owned(),
    })?;
    check_name("a class", name)?;
    rights.need(Role::Designer, Some(name))?;
    if fleet.efm_class(name).is_ok() {
        let message = format!("there is a class '{name}' already: use PUT to change it");
        return Err(Failure::new(StatusCode::CONFLICT, message));
    }
    let manifest = fleet.wanted_manifest(&rights, name, wanted.agent_manifests.as_deref())?;
    let description = wanted.description.as_deref().unwrap_or_default();
    fleet.describe_class(name, description).await?;
    if manifest.is_some() {
        fleet.set_resolution(name, manifest).await?;
    }
    json(StatusCode::CREATED, &fleet.efm_class(name)?)
}

/// Changes a class that is there; what is not told stays.
async fn set(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
    rights: Rights,
    request: Request,
) -> Result<Response, Failure> {
    let wanted: Wanted = body::take(request).await?.json()?;
    fleet.efm_class(&name)?;
    if wanted.name.as_ref().is_some_and(|told| *told != name) {
        let reason = format!("the class in the address is '{name}', and a class keeps its name");
        let field = "name".to_owned();
        return Err(FleetError::BadField { field, reason }.into());
    }
    let manifest = fleet.wanted_manifest(&rights, &name, wanted.agent_manifests.as_deref())?;
    if let Some(description) = &wanted.description {
        fleet.describe_class(&name, description).await?;
    }
    if manifest.is_some() {
        fleet.set_resolution(&name, manifest).await?;
    }
    json(StatusCode::OK, &fleet.efm_class(&name)?)
}

/// Removes a class without agents; tells what it was.
async fn remove(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    let was = fleet.efm_class(&name)?;
    fleet.remove_class(&name).await?;
    json(StatusCode::OK, &was)
}

/// What the manifest that an agent of the class came with last has that the class's own has not.
async fn manifest_diff(
    State(fleet): State<Arc<Fleet>>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    let of_class = fleet.class_manifest(&name)?;
    let described = of_class.manifests.iter();
    let described = described.filter(|seen| seen.agent_type.is_some());
    let newest = described.max_by_key(|seen| seen.last_ms);
    let (Some(own), Some(newest)) = (&of_class.hash, newest) else {
        let told = object!({
            "newManifestAvailable": false, "from": of_class.hash, "to": null, "differences": [],
        });
        return json(StatusCode::OK, &told);
    };
    let found = fleet.manifest_differences(&newest.hash, own).await?;
    let told = object!({
        "newManifestAvailable": newest.hash != *own,
        "from": found.against,
        "to": found.hash,
        "differences": found.differences,
    });
    json(StatusCode::OK, &told)
}

impl Fleet {
    /// The classes with their manifests, the one that stands for the class first.
    fn efm_classes(&self) -> Vec<Value> {
        let classes = self.classes();
        let mut manifests: HashMap<Arc<str>, BTreeMap<Arc<str>, usize>> = HashMap::new();
        self.inner.each_agent(|_, agent| {
            if let (Some(class), Some(hash)) = (&agent.class, &agent.manifest) {
                let of_class = manifests.entry(class.clone()).or_default();
                *of_class.entry(hash.clone()).or_default() += 1;
            }
        });
        let rule = self.inner.config.manifest_resolution;
        let registry = self.inner.registry.lock();
        let told = classes.into_iter().map(|class| {
            let counts = manifests.remove(&*class.name).unwrap_or_default();
            let known = counts
                .iter()
                .filter(|(hash, _)| registry.knows_manifest(hash));
            let most = || {
                known
                    .max_by_key(|(_, count)| **count)
                    .map(|(h, _)| h.clone())
            };
            let own = registry.resolve_manifest(&class.name, rule, most);
            let others = counts.keys().filter(|hash| Some(*hash) != own.as_ref());
            let all: Vec<&Arc<str>> = own.iter().chain(others).collect();
            object!({
                "name": class.name,
                "description": class.description,
                "agentManifests": all,
                "agents": class.agents,
                "agentsOnline": class.agents_online,
                "flowId": class.flow_id,
            })
        });
        told.collect()
    }

    fn efm_class(&self, name: &str) -> Result<Value, FleetError> {
        let mut classes = self.efm_classes().into_iter();
        let found = classes.find(|class| class["name"] == *name);
        found.ok_or_else(|| unknown_class(name))
    }

    /// What a class's manifest is to be, of the list that a caller gives; none where that changes
    /// nothing.
    fn wanted_manifest(
        &self,
        rights: &Rights,
        class: &str,
        given: Option<&[String]>,
    ) -> Result<Option<Resolution>, Failure> {
        let told = self.efm_class(class).ok();
        let told = told
            .as_ref()
            .and_then(|class| class["agentManifests"].as_array());
        let told: Vec<&str> = told
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let hash = match given {
            None | Some([]) => return Ok(None),
            Some([hash]) if told.first() == Some(&hash.as_str()) => return Ok(None),
            Some([hash]) => hash,
            Some(many) if many.iter().all(|hash| told.contains(&hash.as_str())) => {
                return Ok(None);
            }
            Some(_) => {
                let reason = "name the one manifest that is to stand for the class";
                let field = "agentManifests".to_owned();
                let reason = reason.to_owned();
                return Err(FleetError::BadField { field, reason }.into());
            }
        };
        self.check_manifest_seen(rights, hash)?;
        let registry = self.inner.registry.lock();
        if let Some(Some(Resolution::Pinned(held))) =
            registry.classes.get(class).map(|class| &class.resolution)
        {
            let message = format!(
                "the class '{class}' is held to the manifest '{held}', not '{hash}': change that by \
                 PUT /efm/api/agent-class-manifest-config"
            );
            return Err(Failure::new(StatusCode::CONFLICT, message));
        }
        if registry.manifest_named(hash).is_none() {
            let unknown = FleetError::Unknown {
                what: "manifest",
                name: hash.clone(),
                list: "/efm/api/agent-manifests",
            };
            return Err(unknown.into());
        }
        Ok(Some(Resolution::Named(Arc::from(&**hash))))
    }
}
