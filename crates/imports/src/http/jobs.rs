//! Jobs: created, watched, steered, and what was wrong with their records.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::TenantId;
use serde::Deserialize;
use serde_json::{Value, json};
use streams::{Caller, StreamsError, TopicName};
use uuid::Uuid;

use super::{Parameters, Segments, answer, next, parameters, tenant, tenant_or_default};
use crate::error::ImportsError;
use crate::imports::Imports;
use crate::job::{Class, Format, NewJob, Sink};
use crate::limits;
use crate::profile::{OnMatch, OnNoMatch, Profile};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewImport {
    tenant: Option<String>,
    format: Option<String>,
    topic: Option<String>,
    sink: Option<String>,
    class: Option<String>,
    profile: Option<String>,
    name: Option<String>,
    key: Option<String>,
    encoding: Option<String>,
    path: Option<String>,
    url: Option<String>,
    resumable: Option<bool>,
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listing {
    tenant: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalPage {
    after: Option<i64>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Piece {
    offset: u64,
    last: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Retry {
    idempotency_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
    forget: Option<bool>,
}

type Service = State<Arc<Imports>>;

/// Who calls, where logins are asked.
type Known = Option<Extension<Caller>>;

pub(super) async fn create(
    State(imports): Service,
    asked: Parameters<NewImport>,
    known: Known,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ImportsError> {
    let new = new_job(&imports, parameters(asked)?, known.as_ref(), &headers).await?;
    if new.sink.has_topic() {
        check_topic(&imports, known.as_ref(), &new.topic).await?;
    }
    let (job, is_new) = imports.create(new, body).await?;
    Ok(answer(created(is_new), &job.to_json()))
}

pub(super) async fn append(
    State(imports): Service,
    Segments(id): Segments<String>,
    asked: Parameters<Piece>,
    known: Known,
    body: Body,
) -> Result<Response, ImportsError> {
    let piece = parameters(asked)?;
    check_job(&imports, known.as_ref(), &id).await?;
    let is_last = piece.last.unwrap_or(false);
    let job = imports.append(&id, piece.offset, is_last, body).await?;
    Ok(answer(StatusCode::OK, &job.to_json()))
}

pub(super) async fn list(
    State(imports): Service,
    asked: Parameters<Listing>,
) -> Result<Response, ImportsError> {
    let asked = parameters(asked)?;
    let tenant = asked.tenant.as_deref().map(tenant).transpose()?;
    let count = asked.limit.unwrap_or(limits::LISTED_JOBS_MAX);
    let count = count.min(limits::LISTED_JOBS_MAX);
    let after = asked.after.as_deref();
    let jobs = imports.jobs(tenant.as_ref(), after, count).await?;
    let next = next(&jobs, count, |job| job.id.as_str());
    let listed: Vec<Value> = jobs.iter().map(crate::Job::to_json).collect();
    Ok(answer(
        StatusCode::OK,
        &json!({"jobs": listed, "next": next}),
    ))
}

pub(super) async fn job(
    State(imports): Service,
    Segments(id): Segments<String>,
) -> Result<Response, ImportsError> {
    let job = imports.job(&id).await?;
    let mut told = job.to_json();
    told["rejects_left_out"] = imports.rejects_left_out(&job).await?.into();
    Ok(answer(StatusCode::OK, &told))
}

pub(super) async fn cancel(
    State(imports): Service,
    Segments(id): Segments<String>,
    asked: Parameters<Cancel>,
) -> Result<Response, ImportsError> {
    let job = match parameters(asked)?.forget {
        Some(true) => imports.forget(&id).await?,
        _ => imports.cancel(&id).await?,
    };
    Ok(answer(StatusCode::OK, &job.to_json()))
}

pub(super) async fn pause(
    State(imports): Service,
    Segments(id): Segments<String>,
) -> Result<Response, ImportsError> {
    let job = imports.pause(&id).await?;
    Ok(answer(StatusCode::OK, &job.to_json()))
}

pub(super) async fn resume(
    State(imports): Service,
    Segments(id): Segments<String>,
) -> Result<Response, ImportsError> {
    let job = imports.resume(&id).await?;
    Ok(answer(StatusCode::OK, &job.to_json()))
}

pub(super) async fn journal(
    State(imports): Service,
    Segments(id): Segments<String>,
    asked: Parameters<JournalPage>,
) -> Result<Response, ImportsError> {
    let asked = parameters(asked)?;
    let count = asked.limit.unwrap_or(1_000).min(limits::LISTED_ENTRIES_MAX);
    let entries = imports
        .journal(&id, asked.after.unwrap_or(0), count)
        .await?;
    let next = next(&entries, count.max(1), |entry| entry.ordinal);
    Ok(answer(
        StatusCode::OK,
        &json!({"entries": entries, "next": next}),
    ))
}

pub(super) async fn rejects(
    State(imports): Service,
    Segments(id): Segments<String>,
) -> Result<Response, ImportsError> {
    let (job, body) = imports.rejects(&id).await?;
    let (content_type, ending) = match job.format {
        Format::Marc => ("application/marc", "mrc"),
        Format::MarcXml => ("application/marcxml+xml", "xml"),
        Format::MarcJson => ("application/marc-in-json", "json"),
        Format::Jsonl => ("application/jsonl", "jsonl"),
        Format::Csv => ("text/csv", "csv"),
    };
    let name = format!("attachment; filename=\"rejects-{}.{ending}\"", job.id);
    let headers = [
        (header::CONTENT_TYPE, content_type.to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ];
    Ok((StatusCode::OK, headers, body).into_response())
}

pub(super) async fn retry(
    State(imports): Service,
    Segments(id): Segments<String>,
    asked: Parameters<Retry>,
    known: Known,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ImportsError> {
    let key = key_of(parameters(asked)?.idempotency_key, &headers)?;
    check_job(&imports, known.as_ref(), &id).await?;
    // A body is the repaired file; without one the rejected records are tried as they are.
    let repaired = (!http_body::Body::is_end_stream(&body)).then_some(body);
    let new_id = Uuid::new_v4().to_string();
    let (job, is_new) = imports.retry(&id, new_id, repaired, key).await?;
    Ok(answer(created(is_new), &job.to_json()))
}

fn created(is_new: bool) -> StatusCode {
    if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    }
}

/// Refuses a job whose topic the caller may not write to: what it sends would go there.
async fn check_job(
    imports: &Imports,
    known: Option<&Extension<Caller>>,
    id: &str,
) -> Result<(), ImportsError> {
    if known.is_none() {
        return Ok(());
    }
    let job = imports.job(id).await?;
    match job.sink.has_topic() {
        true => check_topic(imports, known, &job.topic).await,
        false => Ok(()),
    }
}

/// Refuses a topic that the caller may not have records sent to.
async fn check_topic(
    imports: &Imports,
    known: Option<&Extension<Caller>>,
    topic: &TopicName,
) -> Result<(), ImportsError> {
    if topic.is_internal() {
        let name = topic.display();
        let text = format!("'{name}' is the store's own; name another topic");
        return Err(ImportsError::Invalid(text));
    }
    let Some(Extension(caller)) = known else {
        return Ok(());
    };
    let found = match imports.core.store.topic(topic).await {
        Ok(_) => true,
        Err(StreamsError::UnknownTopic(_)) => false,
        Err(error) => return Err(error.into()),
    };
    Ok(caller.check_work(topic, found)?)
}

async fn new_job(
    imports: &Imports,
    asked: NewImport,
    known: Option<&Extension<Caller>>,
    headers: &HeaderMap,
) -> Result<NewJob, ImportsError> {
    let invalid = |text: String| ImportsError::Invalid(text);
    let tenant = tenant_or_default(asked.tenant.as_deref())?;
    let format = asked.format.as_deref().unwrap_or_default();
    let format = Format::named(format).ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        invalid(format!("format '{format}' is not read; use one of {names}"))
    })?;
    let sink = asked.sink.as_deref().unwrap_or(Sink::default().name());
    let sink = Sink::named(sink)
        .ok_or_else(|| invalid(format!("'{sink}' is no sink; use both, records or topic")))?;
    let class = match asked.class.as_deref() {
        None => imports.class_of(&tenant),
        Some(name) => Class::named(name)
            .ok_or_else(|| invalid(format!("'{name}' is no class; use interactive or bulk")))?,
    };
    let member_of = known.and_then(|Extension(caller)| caller.works_for());
    let source = source(imports, &asked, member_of.as_ref())?;
    let topic = asked.topic.unwrap_or_else(|| format!("imports-{tenant}"));
    let topic: TopicName = topic
        .parse()
        .map_err(|error| invalid(base::report(&error)))?;
    if asked.key.is_some() && format.is_marc() {
        return Err(invalid(
            "key names a field of JSON lines and CSV; MARC has its own ids".to_owned(),
        ));
    }
    let idempotency_key = key_of(asked.idempotency_key, headers)?;
    for text in [&asked.name, &asked.key].into_iter().flatten() {
        check_length(text)?;
    }
    let mut profile = match &asked.profile {
        Some(name) => imports.core.registry.profile(&tenant, name).await?,
        None => Profile::default(),
    };
    if asked.key.is_some() {
        profile.id = asked.key;
    }
    if asked.encoding.is_some() {
        profile.encoding = asked.encoding;
    }
    profile.check(format).map_err(invalid)?;
    let has_policy = profile.match_on.is_some()
        || profile.on_match != OnMatch::Update
        || profile.on_no_match != OnNoMatch::Create;
    if has_policy && !sink.has_records() {
        return Err(invalid(
            "a profile's policy needs the table of records; use sink=both or sink=records"
                .to_owned(),
        ));
    }
    Ok(NewJob {
        name: asked
            .name
            .unwrap_or_else(|| format!("{} import", format.name())),
        id: Uuid::new_v4().to_string(),
        tenant,
        format,
        class,
        sink,
        topic,
        profile,
        retry_of: None,
        source,
        is_resumable: asked.resumable.unwrap_or(false),
        slice_records: imports.core.slice_records().clamp(1, SLICE_RECORDS_TOP),
        idempotency_key,
    })
}

/// Where the file is, unless it is the body: a file of the server's own, or a URL.
/// Who belongs to a tenant names one of the tenant's folder.
fn source(
    imports: &Imports,
    asked: &NewImport,
    of: Option<&TenantId>,
) -> Result<Option<String>, ImportsError> {
    let invalid = |text: &str| ImportsError::Invalid(text.to_owned());
    match (&asked.path, &asked.url) {
        (Some(_), Some(_)) => Err(invalid("path and url are two files; name one")),
        (_, Some(_)) | (Some(_), _) if asked.resumable == Some(true) => Err(invalid(
            "resumable is for files that are sent; leave it out with path and url",
        )),
        (Some(path), None) => {
            let path = imports.core.allowed_path(path, of)?;
            let text = path.into_os_string().into_string();
            Ok(Some(text.map_err(|_| invalid("the path is not UTF-8"))?))
        }
        (None, Some(url)) if url.len() > limits::URL_BYTES_MAX => {
            Err(invalid("the url is longer than 2048 bytes"))
        }
        (None, Some(url)) => Ok(Some(imports.core.urls.check(url, of)?.into())),
        (None, None) => Ok(None),
    }
}

/// The idempotency key, of the parameter or else of the header.
fn key_of(asked: Option<String>, headers: &HeaderMap) -> Result<Option<String>, ImportsError> {
    let header = headers.get("idempotency-key").map(HeaderValue::to_str);
    let header = header
        .transpose()
        .map_err(|_| ImportsError::Invalid("the idempotency key is not ASCII text".to_owned()))?;
    let key = asked.or_else(|| header.map(str::to_owned));
    key.as_deref().map(check_length).transpose()?;
    Ok(key)
}

fn check_length(text: &str) -> Result<(), ImportsError> {
    if text.is_empty() || text.len() > limits::NAME_BYTES_MAX {
        return Err(ImportsError::Invalid(format!(
            "name, key and idempotency key are 1 to {} bytes long",
            limits::NAME_BYTES_MAX
        )));
    }
    Ok(())
}

/// Above this a slice is ended by its bytes anyway.
const SLICE_RECORDS_TOP: u32 = 10_000;
