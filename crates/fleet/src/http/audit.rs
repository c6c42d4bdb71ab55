//! The layer that keeps the audit, and the list of its entries.

use std::sync::Arc;

use access::Granted;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use metrics::counter;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::audit::{Entry, Filter};
use crate::fleet::Fleet;
use crate::http::judge::Touched;
use crate::http::management::{asked, place_before};
use crate::http::{AGENT_PREFIXES, Failure, json};
use crate::limits;
use crate::operation::truncate;
use crate::rights::Rights;

/// More about a call, for the audit; handlers put it among their response's extensions.
#[derive(Clone, Debug)]
pub struct Details(pub String);

/// Has every call that is to change something, by whatever role of the port, leave an entry.
/// Agents' own calls leave none. What is done at the counter leaves one only where it is denied, and a
/// line in the log else: what was done stands in the record's history, comes as often as people do, and
/// must not wait for one more disk.
pub fn audited(routes: Router, fleet: Arc<Fleet>) -> Router {
    routes.layer(middleware::from_fn_with_state(fleet, keep))
}

/// The route of the entries.
pub fn routes(fleet: Arc<Fleet>) -> Router {
    Router::new()
        .route("/api/v1/audit", get(list))
        .with_state(fleet)
}

async fn keep(State(fleet): State<Arc<Fleet>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let reads = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    if reads || AGENT_PREFIXES.iter().any(|prefix| path.starts_with(prefix)) {
        return next.run(request).await;
    }
    let is_at_counter = path.starts_with(RECORDS_PREFIX);
    let granted = request.extensions().get::<Arc<Granted>>();
    let anonymous = || access::Principal::anonymous().to_string();
    let mut entry = Entry {
        id: Uuid::new_v4().to_string(),
        at_ms: fleet.inner.clock.now().0,
        principal: granted.map_or_else(anonymous, |granted| granted.principal.to_string()),
        host: match (granted, request.extensions().get::<access::Peer>()) {
            (Some(granted), _) => granted.host.clone(),
            (None, Some(peer)) => peer.ip.to_canonical().to_string(),
            (None, None) => String::new(),
        },
        method: request.method().as_str().to_owned(),
        path: path.to_owned(),
        class: None,
        status: 0,
        details: String::new(),
    };
    let response = next.run(request).await;
    entry.status = i64::from(response.status().as_u16());
    if let Some(Touched(classes)) = response.extensions().get::<Touched>() {
        let first = classes
            .first()
            .filter(|first| classes.iter().all(|c| c == *first));
        entry.class = first.map(|class| class.to_string());
    }
    if let Some(Details(details)) = response.extensions().get::<Details>() {
        entry.details.clone_from(details);
    }
    truncate(&mut entry.path, limits::AUDIT_TEXT_BYTES_MAX);
    truncate(&mut entry.details, limits::AUDIT_TEXT_BYTES_MAX);
    truncate(&mut entry.method, 16);
    if is_at_counter && response.status() != StatusCode::FORBIDDEN {
        entry.log();
    } else {
        fleet.inner.audit(&entry).await;
    }
    response
}

impl crate::fleet::Inner {
    /// Keeps an entry, in the log too.
    async fn audit(&self, entry: &Entry) {
        entry.log();
        counter!("thalweg_fleet_audit_entries_total").increment(1);
        if let Err(error) = self.audit.add(entry).await {
            let error = base::report(&error);
            tracing::error!(error, "an entry of the audit stands in the log only");
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    principal: Option<String>,
    class: Option<String>,
    before: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct AuditPage {
    entries: Vec<Entry>,
    /// What to give as `before` for the next page; null on the last one.
    next: Option<String>,
}

async fn list(
    State(fleet): State<Arc<Fleet>>,
    rights: Rights,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let query = asked(query)?;
    if let Some(class) = &query.class {
        rights.need(access::Role::Viewer, Some(class))?;
    }
    let limit = query.limit.unwrap_or(limits::PAGE_ITEMS_DEFAULT);
    let limit = limit.clamp(1, limits::PAGE_ITEMS_MAX);
    let filter = Filter {
        principal: query.principal,
        class: query.class,
        only_classes: rights.only_classes(),
        before: place_before(query.before.as_deref())?,
        limit,
    };
    let entries = fleet.inner.audit.list(&filter).await?;
    let last = entries.last().filter(|_| entries.len() == limit);
    let next = last.map(|last| format!("{}.{}", last.at_ms, last.id));
    json(StatusCode::OK, &AuditPage { entries, next })
}

/// Where records are checked out and in, which their histories tell.
const RECORDS_PREFIX: &str = "/api/v1/records/";
