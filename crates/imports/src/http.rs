//! The HTTP API of bulk imports, under `/api/v1/imports`, and of the tenants that they are for.
//!
//! Errors are `{"error_code": int, "message": text}`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base::TenantId;
use serde::Deserialize;
use serde_json::{Value, json};
use streams::TopicName;
use uuid::Uuid;

use crate::error::ImportsError;
use crate::imports::Imports;
use crate::job::{Format, NewJob};
use crate::limits;

/// The routes over `imports`; the caller mounts them beside those of other roles.
///
/// - `POST /api/v1/imports?tenant=&format=jsonl|marc&topic=&name=&key=&idempotency_key=` with the
///   file as the body (the key also as header `Idempotency-Key`): 201 and the job, or 200 and the
///   earlier job of that key
/// - `GET /api/v1/imports?tenant=&limit=`: `{"jobs": […]}`, newest first
/// - `GET /api/v1/imports/{id}`: the job
/// - `GET /api/v1/imports/{id}/journal?after=&limit=`: `{"entries": [{ordinal, offset, kind,
///   reason}], "next": ordinal|null}`
/// - `DELETE /api/v1/imports/{id}`: cancels the job and answers it
/// - `GET /api/v1/tenants?after=&limit=`: `{"tenants": [{tenant, jobs, jobs_active, records_done,
///   records_rejected, bytes_done, updated_ms}], "next": tenant|null}`, by name
pub fn routes(imports: Arc<Imports>) -> Router {
    Router::new()
        .route("/api/v1/imports", get(list).post(create))
        .route("/api/v1/imports/{id}", get(job).delete(cancel))
        .route("/api/v1/imports/{id}/journal", get(journal))
        .route("/api/v1/tenants", get(tenants))
        .with_state(imports)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewImport {
    tenant: Option<String>,
    format: Option<String>,
    topic: Option<String>,
    name: Option<String>,
    key: Option<String>,
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    tenant: Option<String>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalPage {
    after: Option<i64>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantsPage {
    after: Option<String>,
    limit: Option<u32>,
}

type Parameters<T> = Result<Query<T>, QueryRejection>;

async fn create(
    State(imports): State<Arc<Imports>>,
    asked: Parameters<NewImport>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ImportsError> {
    let new = new_job(&imports, parameters(asked)?, &headers)?;
    let (job, is_new) = imports.create(new, body).await?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(answer(status, &job.to_json()))
}

async fn list(
    State(imports): State<Arc<Imports>>,
    asked: Parameters<Listing>,
) -> Result<Response, ImportsError> {
    let asked = parameters(asked)?;
    let tenant = asked.tenant.as_deref().map(tenant).transpose()?;
    let count = asked.limit.unwrap_or(limits::LISTED_JOBS_MAX);
    let jobs = imports.jobs(tenant.as_ref(), count).await?;
    let jobs: Vec<Value> = jobs.iter().map(crate::Job::to_json).collect();
    Ok(answer(StatusCode::OK, &json!({"jobs": jobs})))
}

async fn job(
    State(imports): State<Arc<Imports>>,
    Path(id): Path<String>,
) -> Result<Response, ImportsError> {
    Ok(answer(StatusCode::OK, &imports.job(&id).await?.to_json()))
}

async fn cancel(
    State(imports): State<Arc<Imports>>,
    Path(id): Path<String>,
) -> Result<Response, ImportsError> {
    Ok(answer(
        StatusCode::OK,
        &imports.cancel(&id).await?.to_json(),
    ))
}

async fn journal(
    State(imports): State<Arc<Imports>>,
    Path(id): Path<String>,
    asked: Parameters<JournalPage>,
) -> Result<Response, ImportsError> {
    let asked = parameters(asked)?;
    let count = asked.limit.unwrap_or(1_000).min(limits::LISTED_ENTRIES_MAX);
    let entries = imports
        .journal(&id, asked.after.unwrap_or(0), count)
        .await?;
    let full = entries.len() == usize::try_from(count).unwrap_or(usize::MAX);
    let next = entries.last().filter(|_| full).map(|entry| entry.ordinal);
    Ok(answer(
        StatusCode::OK,
        &json!({"entries": entries, "next": next}),
    ))
}

async fn tenants(
    State(imports): State<Arc<Imports>>,
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

fn new_job(
    imports: &Imports,
    asked: NewImport,
    headers: &HeaderMap,
) -> Result<NewJob, ImportsError> {
    let invalid = |text: String| ImportsError::Invalid(text);
    let tenant = match &asked.tenant {
        Some(name) => tenant(name)?,
        None => TenantId::default_tenant(),
    };
    let format = asked.format.as_deref().unwrap_or_default();
    let format = Format::named(format)
        .ok_or_else(|| invalid(format!("format '{format}' is not read; use jsonl or marc")))?;
    let topic = asked.topic.unwrap_or_else(|| format!("imports-{tenant}"));
    let topic: TopicName = topic
        .parse()
        .map_err(|error| invalid(base::report(&error)))?;
    let header_key = headers.get("idempotency-key").map(HeaderValue::to_str);
    let header_key = header_key
        .transpose()
        .map_err(|_| invalid("the idempotency key is not ASCII text".to_owned()))?;
    if asked.key.is_some() && format == Format::Marc {
        return Err(invalid(
            "key names a field of JSON lines; MARC has its own ids".to_owned(),
        ));
    }
    let idempotency_key = asked
        .idempotency_key
        .or_else(|| header_key.map(str::to_owned));
    let texts = [&asked.name, &asked.key, &idempotency_key];
    for text in texts.into_iter().flatten() {
        if text.is_empty() || text.len() > limits::NAME_BYTES_MAX {
            return Err(invalid(format!(
                "name, key and idempotency key are 1 to {} bytes long",
                limits::NAME_BYTES_MAX
            )));
        }
    }
    let id = Uuid::new_v4().to_string();
    Ok(NewJob {
        name: asked
            .name
            .unwrap_or_else(|| format!("{} import", format.name())),
        id,
        tenant,
        format,
        topic,
        key_field: asked.key,
        slice_records: imports
            .core
            .config
            .slice_records
            .clamp(1, SLICE_RECORDS_TOP),
        idempotency_key,
    })
}

fn tenant(name: &str) -> Result<TenantId, ImportsError> {
    name.parse()
        .map_err(|error| ImportsError::Invalid(base::report(&error)))
}

fn parameters<T>(asked: Parameters<T>) -> Result<T, ImportsError> {
    asked
        .map(|Query(parameters)| parameters)
        .map_err(|rejection| ImportsError::Invalid(rejection.body_text()))
}

fn answer(status: StatusCode, body: &Value) -> Response {
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json)], body.to_string()).into_response()
}

/// Above this a slice is ended by its bytes anyway.
const SLICE_RECORDS_TOP: u32 = 10_000;
