//! Profiles, tenants, records and search.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Parameters, answer, parameters, tenant, tenant_or_default};
use crate::error::ImportsError;
use crate::imports::Imports;
use crate::limits;
use crate::profile::Profile;
use crate::records::Action;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfTenant {
    tenant: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantsPage {
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    tenant: Option<String>,
    q: String,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Holder {
    holder: String,
}

type Service = State<Arc<Imports>>;

pub(super) async fn profiles(
    State(imports): Service,
    asked: Parameters<OfTenant>,
) -> Result<Response, ImportsError> {
    let tenant = tenant_or_default(parameters(asked)?.tenant.as_deref())?;
    let profiles = imports.core.registry.profiles(&tenant).await?;
    let profiles: Vec<Value> = profiles
        .into_iter()
        .map(|(name, profile)| json!({"name": name, "profile": profile}))
        .collect();
    Ok(answer(StatusCode::OK, &json!({"profiles": profiles})))
}

pub(super) async fn profile(
    State(imports): Service,
    Path(name): Path<String>,
    asked: Parameters<OfTenant>,
) -> Result<Response, ImportsError> {
    let tenant = tenant_or_default(parameters(asked)?.tenant.as_deref())?;
    let profile = imports.core.registry.profile(&tenant, &name).await?;
    Ok(answer(
        StatusCode::OK,
        &json!({"name": name, "profile": profile}),
    ))
}

pub(super) async fn set_profile(
    State(imports): Service,
    Path(name): Path<String>,
    asked: Parameters<OfTenant>,
    body: Bytes,
) -> Result<Response, ImportsError> {
    let tenant = tenant_or_default(parameters(asked)?.tenant.as_deref())?;
    if name.is_empty() || name.len() > limits::NAME_BYTES_MAX {
        let most = limits::NAME_BYTES_MAX;
        let text = format!("a profile's name is 1 to {most} bytes long");
        return Err(ImportsError::Invalid(text));
    }
    let profile: Profile = read(&body)?;
    let now = imports.core.clock.now();
    let registry = &imports.core.registry;
    registry.set_profile(&tenant, &name, &profile, now).await?;
    Ok(answer(
        StatusCode::OK,
        &json!({"name": name, "profile": profile}),
    ))
}

pub(super) async fn remove_profile(
    State(imports): Service,
    Path(name): Path<String>,
    asked: Parameters<OfTenant>,
) -> Result<Response, ImportsError> {
    let tenant = tenant_or_default(parameters(asked)?.tenant.as_deref())?;
    if !imports.core.registry.remove_profile(&tenant, &name).await? {
        return Err(ImportsError::NoProfile(name));
    }
    Ok(answer(StatusCode::OK, &json!({"name": name})))
}

pub(super) async fn tenants(
    State(imports): Service,
    asked: Parameters<TenantsPage>,
) -> Result<Response, ImportsError> {
    let asked = parameters(asked)?;
    let count = asked.limit.unwrap_or(limits::LISTED_TENANTS_MAX);
    let count = count.min(limits::LISTED_TENANTS_MAX);
    let after = asked.after.unwrap_or_default();
    let tenants = imports.tenants(&after, count).await?;
    let full = tenants.len() == usize::try_from(count).unwrap_or(usize::MAX);
    let next = tenants.last().filter(|_| full).map(|last| &last.tenant);
    Ok(answer(
        StatusCode::OK,
        &json!({"tenants": tenants, "next": next}),
    ))
}

pub(super) async fn record(
    State(imports): Service,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, ImportsError> {
    let record = imports.record(&tenant(&name)?, &id).await?;
    Ok(answer(StatusCode::OK, &json!(record)))
}

pub(super) async fn history(
    State(imports): Service,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, ImportsError> {
    let entries = imports.history(&tenant(&name)?, &id).await?;
    Ok(answer(StatusCode::OK, &json!({"entries": entries})))
}

pub(super) async fn check_out(
    State(imports): Service,
    Path((name, id)): Path<(String, String)>,
    body: Bytes,
) -> Result<Response, ImportsError> {
    let Holder { holder } = read(&body)?;
    if holder.is_empty() || holder.len() > limits::HOLDER_BYTES_MAX {
        let most = limits::HOLDER_BYTES_MAX;
        return Err(ImportsError::Invalid(format!(
            "a holder is 1 to {most} bytes long"
        )));
    }
    let tenant = tenant(&name)?;
    let version = imports
        .circulate(&tenant, &id, Action::CheckOut, Some(&holder))
        .await?;
    let body = json!({"id": id, "holder": holder, "version": version});
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn check_in(
    State(imports): Service,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, ImportsError> {
    let tenant = tenant(&name)?;
    let version = imports
        .circulate(&tenant, &id, Action::CheckIn, None)
        .await?;
    let body = json!({"id": id, "holder": null, "version": version});
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn search(
    State(imports): Service,
    asked: Parameters<Query>,
) -> Result<Response, ImportsError> {
    let asked = parameters(asked)?;
    let tenant = tenant_or_default(asked.tenant.as_deref())?;
    let count = asked.limit.unwrap_or(20);
    let found = imports.core.search.find(&tenant, &asked.q, count).await?;
    let waiting = imports.core.registry.queued_count().await?;
    let body = json!({
        "total": found.total,
        "records": found.records,
        "slices_waiting": waiting,
    });
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn rebuild(State(imports): Service) -> Result<Response, ImportsError> {
    imports.rebuild_search().await?;
    Ok(answer(StatusCode::ACCEPTED, &json!({})))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ImportsError> {
    serde_json::from_slice(body)
        .map_err(|error| ImportsError::Invalid(format!("the body cannot be read: {error}")))
}
