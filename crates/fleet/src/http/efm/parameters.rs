//! Parameters of agents, classes and flows in EFM's manner: the list as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json as object};

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::http::{Failure, body, json};
use crate::parameter::{Level, NewParameter, ParameterView};

pub fn routes() -> Router<Arc<Fleet>> {
    let mut router = Router::new();
    for (path, level) in [
        ("/efm/api/agents/{id}/parameters", Level::Agent),
        ("/efm/api/agent-classes/{name}/parameters", Level::Class),
        ("/efm/api/designer/flows/{id}/parameters", Level::Flow),
    ] {
        let read = move |State(fleet): State<Arc<Fleet>>, Path(owner): Path<String>| async move {
            told(&fleet.parameters(level, &owner).await?)
        };
        let write = move |State(fleet): State<Arc<Fleet>>,
                          Path(owner): Path<String>,
                          request: Request| async move {
            let wanted = wanted(request).await?;
            let before = fleet.parameters(level, &owner).await?;
            let changes = changes(&before, wanted)?;
            told(&fleet.set_parameters(level, &owner, changes).await?)
        };
        router = router.route(path, get(read).put(write));
    }
    router
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    parameters: Vec<WantedParameter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedParameter {
    name: String,
    value: Option<String>,
    #[serde(default)]
    sensitive: bool,
}

async fn wanted(request: Request) -> Result<Vec<WantedParameter>, Failure> {
    let taken = body::take(request).await?;
    // What is wrong is told without the values: one of them may be a secret.
    let read: Result<Wanted, _> = serde_json::from_slice(&taken.bytes);
    let wanted = read.map_err(|error| FleetError::BadField {
        field: format!("line {} column {}", error.line(), error.column()),
        reason: "write {\"parameters\": [{\"name\": text, \"value\": text, \"sensitive\": true or \
                 false}]}"
            .to_owned(),
    })?;
    Ok(wanted.parameters)
}

/// What is to change so that there are these and no others; a sensitive one without a value keeps
/// the one that it has.
fn changes(
    before: &[ParameterView],
    wanted: Vec<WantedParameter>,
) -> Result<BTreeMap<String, Option<NewParameter>>, FleetError> {
    let mut changes: BTreeMap<String, Option<NewParameter>> =
        before.iter().map(|of| (of.name.clone(), None)).collect();
    for WantedParameter {
        name,
        value,
        sensitive,
    } in wanted
    {
        let is_kept = |of: &ParameterView| of.name == name && of.sensitive && sensitive;
        match value {
            Some(value) => drop(changes.insert(name, Some(NewParameter { value, sensitive }))),
            None if before.iter().any(is_kept) => drop(changes.remove(&name)),
            None => {
                return Err(FleetError::BadField {
                    field: name,
                    reason: "it has no value: only a sensitive one that is there may keep its own"
                        .to_owned(),
                });
            }
        }
    }
    Ok(changes)
}

fn told(parameters: &[ParameterView]) -> Result<Response, Failure> {
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|of| object!({"name": of.name, "value": of.value, "sensitive": of.sensitive}))
        .collect();
    json(StatusCode::OK, &object!({"parameters": parameters}))
}
