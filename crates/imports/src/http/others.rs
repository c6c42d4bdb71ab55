//! Profiles, tenants, records and search.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Entity, Parameters, Segments, answer, next, parameters, tenant, tenant_or_default};
use crate::error::ImportsError;
use crate::imports::Imports;
use crate::limits;
use crate::profile::Profile;
use crate::records::Action;
use crate::search::Page;

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
pub(super) struct ProfilesPage {
    tenant: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryPage {
    after: Option<i64>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    tenant: Option<String>,
    q: String,
    limit: Option<u32>,
    offset: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Holder {
    holder: String,
}

type Service = State<Arc<Imports>>;

pub(super) async fn profiles(
    State(imports): Service,
    asked: Parameters<ProfilesPage>,
) -> Result<Response, ImportsError> {
    let asked = parameters(asked)?;
    let tenant = tenant_or_default(asked.tenant.as_deref())?;
    let count = asked.limit.unwrap_or(limits::LISTED_PROFILES_MAX);
    let count = count.min(limits::LISTED_PROFILES_MAX);
    let after = asked.after.unwrap_or_default();
    let registry = &imports.core.registry;
    let profiles = registry.profiles(&tenant, &after, count).await?;
    let next = next(&profiles, count, |(name, _)| name.as_str());
    let listed: Vec<Value> = profiles
        .iter()
        .map(|(name, profile)| json!({"name": name, "profile": profile}))
        .collect();
    Ok(answer(
        StatusCode::OK,
        &json!({"profiles": listed, "next": next}),
    ))
}

pub(super) async fn profile(
    State(imports): Service,
    Segments(name): Segments<String>,
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
    Segments(name): Segments<String>,
    asked: Parameters<OfTenant>,
    Entity(profile): Entity<Profile>,
) -> Result<Response, ImportsError> {
    let tenant = tenant_or_default(parameters(asked)?.tenant.as_deref())?;
    if name.is_empty() || name.len() > limits::NAME_BYTES_MAX {
        let most = limits::NAME_BYTES_MAX;
        let text = format!("a profile's name is 1 to {most} bytes long");
        return Err(ImportsError::Invalid(text));
    }
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
    Segments(name): Segments<String>,
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
    let next = next(&tenants, count, |last| last.tenant.as_str());
    Ok(answer(
        StatusCode::OK,
        &json!({"tenants": tenants, "next": next}),
    ))
}

pub(super) async fn record(
    State(imports): Service,
    Segments((name, id)): Segments<(String, String)>,
) -> Result<Response, ImportsError> {
    let record = imports.record(&tenant(&name)?, &id).await?;
    Ok(answer(StatusCode::OK, &record))
}

pub(super) async fn history(
    State(imports): Service,
    Segments((name, id)): Segments<(String, String)>,
    asked: Parameters<HistoryPage>,
) -> Result<Response, ImportsError> {
    let asked = parameters(asked)?;
    let count = asked.limit.unwrap_or(limits::LISTED_HISTORY_MAX);
    let count = count.min(limits::LISTED_HISTORY_MAX);
    let tenant = tenant(&name)?;
    let entries = imports.history(&tenant, &id, asked.after, count).await?;
    let next = next(&entries, count, |entry| entry.version);
    Ok(answer(
        StatusCode::OK,
        &json!({"entries": entries, "next": next}),
    ))
}

pub(super) async fn check_out(
    State(imports): Service,
    Segments((name, id)): Segments<(String, String)>,
    Entity(Holder { holder }): Entity<Holder>,
) -> Result<Response, ImportsError> {
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
    Segments((name, id)): Segments<(String, String)>,
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
    let page = Page::of(asked.offset, asked.limit)?;
    let found = imports.core.search.find(&tenant, &asked.q, page).await?;
    let waiting = imports.core.registry.queued_count().await?;
    let body = json!({
        "total": found.total,
        "records": found.records,
        "next": page.next(&found),
        "slices_waiting": waiting,
    });
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn rebuild(State(imports): Service) -> Result<Response, ImportsError> {
    imports.rebuild_search().await?;
    Ok(answer(StatusCode::ACCEPTED, &json!({})))
}
