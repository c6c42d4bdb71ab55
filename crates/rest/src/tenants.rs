//! The management API of tenants, `/api/v1/tenants`.
//!
//! A caller who belongs to a tenant reads that one alone, and changes none: what a tenant may use is
//! not its own to say.

use std::pin::Pin;
use std::sync::Arc;

use access::{Access, Tenant, TenantBound, TenantChange};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use base::{Clock, TenantId, UnixMillis};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use streams::{Caller, EventStore, Purge, RetentionChange, TenantUse};

use crate::access::{JSON, blocking, broke_off};
use crate::answer::{self, Parameters, Segments};
use crate::body::Gate;
use crate::error::RestError;
use crate::limits::LISTED_TENANTS_MAX;

/// Takes away what a tenant has imported, or of it what was over before a time: counts of what is gone,
/// or why something is left.
pub type PurgeImports = Arc<
    dyn Fn(
            TenantId,
            Option<UnixMillis>,
        ) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send>>
        + Send
        + Sync,
>;

struct Tenants {
    access: Arc<Access>,
    store: Option<Arc<dyn EventStore>>,
    imports: Option<PurgeImports>,
    clock: Arc<dyn Clock>,
    gate: Gate,
    /// Held by who changes a tenant's retention, until its topics have followed.
    retentions: tokio::sync::Mutex<()>,
}

type Service = State<Arc<Tenants>>;
type Who = Option<Extension<Caller>>;

/// The routes over the tenants of `access`; what they have in `store` is told where there is one, and
/// what they have imported goes with a purge where imports are served.
///
/// - `GET /api/v1/tenants?after=&limit=`: `{"tenants": [TENANT], "next": name|null}`, by name, where
///   TENANT is `{tenant, weight, class, quotas: {bytes_in_per_second, …}, collection, switching_to,
///   members}`
/// - `GET /api/v1/tenants/{tenant}`: TENANT
/// - `PUT /api/v1/tenants/{tenant}` with what is to change: TENANT
/// - `DELETE /api/v1/tenants/{tenant}`: 204
/// - `GET /api/v1/tenants/{tenant}/usage`: `{tenant, now_ms, rates, totals, in_flight,
///   stored_bytes, throttled_total, wait_ms, refused_total, topics, backlog}`
/// - `POST /api/v1/tenants/{tenant}/purge` with `{"before_ms": N}`, all without it:
///   `{"records": N, "kept": [topic], "imports": {…}|null}`
/// - `GET /api/v1/tenants/{tenant}/refusals`: `{"refusals": [{at_ms, principal, host, protocol,
///   claimed, what}]}`, newest first
pub fn tenant_management(
    access: Arc<Access>,
    store: Option<Arc<dyn EventStore>>,
    imports: Option<PurgeImports>,
    clock: Arc<dyn Clock>,
) -> Router {
    let tenants = Arc::new(Tenants {
        access,
        store,
        imports,
        clock,
        gate: Gate::new(BODY_BYTES_MAX),
        retentions: tokio::sync::Mutex::default(),
    });
    Router::new()
        .route("/api/v1/tenants", get(list))
        .route("/api/v1/tenants/openapi.json", get(document))
        .route(
            "/api/v1/tenants/{tenant}",
            get(show).put(set).delete(remove),
        )
        .route("/api/v1/tenants/{tenant}/usage", get(usage))
        .route("/api/v1/tenants/{tenant}/purge", post(purge))
        .route("/api/v1/tenants/{tenant}/refusals", get(refusals))
        .with_state(tenants)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    #[serde(default)]
    after: String,
    limit: Option<usize>,
}

async fn list(
    State(tenants): Service,
    who: Who,
    Parameters(page): Parameters<Page>,
) -> Result<Response, RestError> {
    let snapshot = tenants.access.snapshot();
    let own = own_of(&who);
    let seen = snapshot.tenants().iter().filter(|(name, _)| {
        let is_own = own.as_ref().is_none_or(|own| own == *name);
        is_own && name.as_str() > page.after.as_str()
    });
    let limit = page.limit.unwrap_or(LISTED_TENANTS_MAX);
    let limit = limit.clamp(1, LISTED_TENANTS_MAX);
    let mut seen: Vec<_> = seen.take(limit + 1).collect();
    let is_more = seen.len() > limit;
    seen.truncate(limit);
    let next = seen.last().filter(|_| is_more).map(|(name, _)| *name);
    let told: Vec<Value> = seen.iter().map(|(name, of)| object(name, of)).collect();
    let body = json!({"tenants": told, "next": next});
    Ok(answer::json(StatusCode::OK, JSON, &body))
}

async fn show(
    State(tenants): Service,
    who: Who,
    Segments(name): Segments<String>,
) -> Result<Response, RestError> {
    let (name, tenant) = tenants.find(&who, &name)?;
    Ok(answer::json(StatusCode::OK, JSON, &object(&name, &tenant)))
}

async fn set(
    State(tenants): Service,
    who: Who,
    Segments(name): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let name = changed_by(&who, &name)?;
    let change: TenantChange = tenants.gate.entity(&headers, body).await?;
    let told = to_its_end(async move {
        let tenant = tenants.changed(&name, change).await?;
        Ok(object(&name, &tenant))
    });
    Ok(answer::json(StatusCode::OK, JSON, &told.await?))
}

async fn remove(
    State(tenants): Service,
    who: Who,
    Segments(name): Segments<String>,
) -> Result<Response, RestError> {
    let name = changed_by(&who, &name)?;
    to_its_end(async move { tenants.removed(name).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn usage(
    State(tenants): Service,
    who: Who,
    Segments(name): Segments<String>,
) -> Result<Response, RestError> {
    let (name, tenant) = tenants.find(&who, &name)?;
    let snapshot = tenants.access.snapshot();
    let used = match &tenants.store {
        Some(store) => TenantUse::of(&**store, &snapshot, &name).await?,
        None => TenantUse::default(),
    };
    let account = tenants.access.tenants().of(&name);
    let now = tenants.clock.now();
    let figures = account.figures(now);
    let [bytes_in, bytes_out, records] = figures.rates;
    let body = json!({
        "tenant": name,
        "now_ms": now,
        "rates": {
            "bytes_in_per_second": bytes_in,
            "bytes_out_per_second": bytes_out,
            "records_per_second": records,
        },
        "totals": figures.total,
        "in_flight": figures.in_flight,
        "stored_bytes": used.bytes(),
        "throttled_total": figures.throttled,
        "wait_ms": wait_ms(&account, &tenant, now),
        "refused_total": figures.refused,
        "topics": used.topics,
        "backlog": used.backlog,
    });
    Ok(answer::json(StatusCode::OK, JSON, &body))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Purging {
    before_ms: Option<i64>,
}

async fn purge(
    State(tenants): Service,
    who: Who,
    Segments(name): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    changed_by(&who, &name)?;
    let (name, _) = tenants.find(&who, &name)?;
    let asked: Purging = tenants.gate.entity(&headers, body).await?;
    let before = asked.before_ms.map(UnixMillis);
    let purged = to_its_end(async move { tenants.purged(&name, before).await });
    Ok(answer::json(StatusCode::OK, JSON, &purged.await?))
}

async fn refusals(
    State(tenants): Service,
    who: Who,
    Segments(name): Segments<String>,
) -> Result<Response, RestError> {
    let (name, _) = tenants.find(&who, &name)?;
    let kept = tenants.access.tenants().of(&name).refusals();
    let body = json!({"refusals": kept});
    Ok(answer::json(StatusCode::OK, JSON, &body))
}

/// `GET /api/v1/tenants/openapi.json`: the document about these routes.
async fn document() -> Response {
    answer::bytes(
        StatusCode::OK,
        JSON,
        Bytes::from_static(DOCUMENT.as_bytes()),
    )
}

impl Tenants {
    /// How long a tenant keeps records now.
    fn retention(&self, name: &TenantId) -> Option<u64> {
        self.access.snapshot().tenants().get(name)?.retention_ms
    }

    /// Changes a tenant, and has its topics follow its retention.
    async fn changed(&self, name: &TenantId, change: TenantChange) -> Result<Tenant, RestError> {
        if change.retention_ms.is_none() {
            return self.change(name, change).await;
        }
        let _alone = self.retentions.lock().await;
        self.changed_alone(name, change).await
    }

    /// As [`Tenants::changed`], by who holds the retentions. Where the topics cannot follow, the
    /// tenant's retention is what it was; the rest of the change holds.
    async fn changed_alone(
        &self,
        name: &TenantId,
        change: TenantChange,
    ) -> Result<Tenant, RestError> {
        let before = self.retention(name);
        let tenant = self.change(name, change).await?;
        let now = tenant.retention_ms;
        let followed = self.follow_retention(name, RetentionChange { before, now });
        if let Err(error) = followed.await {
            self.change(name, retention_of(before)).await?;
            return Err(error);
        }
        Ok(tenant)
    }

    /// Forgets a tenant, whose topics first follow that it has no retention.
    async fn removed(&self, name: TenantId) -> Result<(), RestError> {
        let _alone = self.retentions.lock().await;
        if self.retention(&name).is_some() {
            self.changed_alone(&name, retention_of(None)).await?;
        }
        let access = Arc::clone(&self.access);
        blocking(move || access.remove_tenant(&name)).await
    }

    /// Takes away what a tenant has, or of it what was before a time; tells what is gone.
    async fn purged(
        &self,
        name: &TenantId,
        before: Option<UnixMillis>,
    ) -> Result<Value, RestError> {
        // First who writes: what an import had under way goes with the rest.
        let imports = match &self.imports {
            Some(purge) => purge(name.clone(), before)
                .await
                .map_err(RestError::NotPurged)?,
            None => Value::Null,
        };
        let snapshot = self.access.snapshot();
        let purged = match &self.store {
            Some(store) => Purge::of(&**store, &snapshot, name, before).await?,
            None => Purge::default(),
        };
        let (records, kept) = (purged.records, purged.kept);
        tracing::info!(tenant = %name, records, %imports, "what a tenant had was purged");
        Ok(json!({"records": records, "kept": kept, "imports": imports}))
    }

    async fn change(&self, name: &TenantId, change: TenantChange) -> Result<Tenant, RestError> {
        let (access, name) = (Arc::clone(&self.access), name.clone());
        blocking(move || access.set_tenant(&name, &change)).await
    }

    /// Has the tenant's topics follow, where the store does not look after that by itself.
    async fn follow_retention(
        &self,
        name: &TenantId,
        change: RetentionChange,
    ) -> Result<(), RestError> {
        if let Some(store) = self.store.as_ref().filter(|_| change.before != change.now) {
            let snapshot = self.access.snapshot();
            store.follow_retention(&snapshot, name, change).await?;
        }
        Ok(())
    }

    /// A kept tenant that the caller may hear of.
    fn find(&self, who: &Who, name: &str) -> Result<(TenantId, Tenant), RestError> {
        let unknown = || RestError::TenantNotFound(name.chars().take(NAME_CHARS_MAX).collect());
        let name: TenantId = name.parse().map_err(|_| unknown())?;
        if own_of(who).is_some_and(|own| own != name) {
            return Err(unknown());
        }
        let snapshot = self.access.snapshot();
        let tenant = snapshot.tenants().get(&name).ok_or_else(unknown)?;
        Ok((name, tenant.clone()))
    }
}

/// Brings work to its end, whether its caller goes away or not.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, RestError>> + Send + 'static,
) -> Result<T, RestError> {
    tokio::spawn(work)
        .await
        .unwrap_or_else(|_| Err(broke_off()))
}

/// A change of a tenant's retention alone.
fn retention_of(retention_ms: Option<u64>) -> TenantChange {
    TenantChange {
        retention_ms: Some(retention_ms),
        ..TenantChange::default()
    }
}

/// The name of a tenant that the caller may change.
fn changed_by(who: &Who, name: &str) -> Result<TenantId, RestError> {
    if let Some(own) = own_of(who) {
        return Err(RestError::OfTenant(own.to_string()));
    }
    name.parse()
        .map_err(|error| RestError::InvalidEntity(base::report(&error)))
}

/// The tenant that the caller belongs to.
fn own_of(who: &Who) -> Option<TenantId> {
    who.as_ref().and_then(|Extension(caller)| caller.tenant())
}

fn object(name: &TenantId, tenant: &Tenant) -> Value {
    let quotas = TenantBound::ALL.into_iter();
    let quotas = quotas.map(|of| (of.as_str().to_owned(), json!(tenant.quotas.get(&of))));
    let quotas: Map<String, Value> = quotas.collect();
    json!({
        "tenant": name,
        "weight": tenant.weight,
        "class": tenant.class,
        "quotas": quotas,
        "collection": tenant.collection,
        "switching_to": tenant.switching_to,
        "retention_ms": tenant.retention_ms,
        "members": tenant.members,
    })
}

fn wait_ms(account: &access::TenantAccount, tenant: &Tenant, now: UnixMillis) -> u64 {
    let ways = [access::Spending::In, access::Spending::Out];
    let waits = ways.map(|way| account.wait(now, &tenant.quotas, way));
    let wait = waits.into_iter().max().unwrap_or_default();
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) const DOCUMENT: &str = include_str!("../openapi-tenants.json");

/// Bytes of a request: a thousand members' names are as long at most.
const BODY_BYTES_MAX: u64 = 2 << 20;
/// What is told of a name that is none.
const NAME_CHARS_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use access::{Policy, Principal, Spent};
    use axum::http::Request;
    use base::ManualClock;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    struct Port {
        routes: Router,
        access: Arc<Access>,
        _dir: tempfile::TempDir,
    }

    impl Port {
        fn open() -> Port {
            Port::beside(None)
        }

        /// Beside imports.
        fn beside(imports: Option<PurgeImports>) -> Port {
            let dir = tempfile::tempdir().unwrap();
            let access = Arc::new(Access::open(dir.path()).unwrap());
            let clock = Arc::new(ManualClock::at(UnixMillis(1_000_000)));
            Port {
                routes: tenant_management(Arc::clone(&access), None, imports, clock),
                access,
                _dir: dir,
            }
        }

        async fn call(
            &self,
            who: Option<&str>,
            method: &str,
            path: &str,
            body: Value,
        ) -> (u16, Value) {
            let mut request = Request::builder().method(method).uri(path);
            if let Some(name) = who {
                let policy = Arc::new(Policy::default());
                let (access, name) = (Arc::clone(&self.access), Principal::user(name));
                request = request.extension(Caller::new(access, policy, name, "::1"));
            }
            let body = match body {
                Value::Null => Body::empty(),
                body => Body::from(body.to_string()),
            };
            let answer = self.routes.clone().oneshot(request.body(body).unwrap());
            let answer = answer.await.unwrap();
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, serde_json::from_slice(&body).unwrap_or_default())
        }
    }

    #[tokio::test]
    async fn tenants_are_kept_changed_listed_and_forgotten() {
        let port = Port::open();
        for name in ["acme", "beta", "gamma"] {
            let path = format!("/api/v1/tenants/{name}");
            let body = json!({"quotas": {"in_flight": 4}, "members": [format!("User:of-{name}")]});
            let (status, told) = port.call(None, "PUT", &path, body).await;
            assert_eq!((status, &told["weight"]), (200, &json!(1)), "{told}");
        }
        let change = json!({"weight": 5, "class": "interactive", "quotas": {"in_flight": null}});
        let (_, told) = port.call(None, "PUT", "/api/v1/tenants/beta", change).await;
        let expected = json!({
            "tenant": "beta", "weight": 5, "class": "interactive", "collection": null,
            "switching_to": null, "retention_ms": null,
            "members": ["User:of-beta"],
            "quotas": {
                "bytes_in_per_second": null, "bytes_out_per_second": null,
                "records_per_second": null, "in_flight": null, "stored_bytes": null,
            },
        });
        assert_eq!(told, expected);
        let (_, shown) = port
            .call(None, "GET", "/api/v1/tenants/beta", Value::Null)
            .await;
        assert_eq!(shown, expected);
        let list = async |query: &str| {
            let path = format!("/api/v1/tenants{query}");
            let (_, page) = port.call(None, "GET", &path, Value::Null).await;
            let names = page["tenants"].as_array().unwrap().iter();
            let names: Vec<_> = names
                .map(|of| of["tenant"].as_str().unwrap().to_owned())
                .collect();
            (names.join(" "), page["next"].clone())
        };
        assert_eq!(list("").await, ("acme beta gamma".to_owned(), Value::Null));
        assert_eq!(
            list("?limit=2").await,
            ("acme beta".to_owned(), json!("beta"))
        );
        assert_eq!(list("?after=beta").await, ("gamma".to_owned(), Value::Null));
        for (path, body) in [
            ("/api/v1/tenants/ACME", json!({})),
            ("/api/v1/tenants/acme", json!({"weight": 0})),
            ("/api/v1/tenants/acme", json!({"wieght": 1})),
            ("/api/v1/tenants/acme", json!({"quotas": {"in_flight": -1}})),
            ("/api/v1/tenants/acme", json!({"members": ["User:of-beta"]})),
        ] {
            let (status, told) = port.call(None, "PUT", path, body.clone()).await;
            assert_eq!(status, 422, "{path} {body}: {told}");
        }
        let path = "/api/v1/tenants/gamma";
        assert_eq!(port.call(None, "DELETE", path, Value::Null).await.0, 204);
        for method in ["DELETE", "GET"] {
            assert_eq!(
                port.call(None, method, path, Value::Null).await.0,
                404,
                "{method}"
            );
        }
    }

    #[tokio::test]
    async fn a_tenants_caller_reads_its_own_alone_and_changes_none() {
        let port = Port::open();
        for name in ["acme", "beta"] {
            let body = json!({"members": [format!("User:of-{name}")]});
            port.call(None, "PUT", &format!("/api/v1/tenants/{name}"), body)
                .await;
        }
        let who = Some("of-acme");
        let (_, page) = port.call(who, "GET", "/api/v1/tenants", Value::Null).await;
        assert_eq!(page["tenants"].as_array().unwrap().len(), 1, "{page}");
        for (method, path, status) in [
            ("GET", "/api/v1/tenants/acme", 200),
            ("GET", "/api/v1/tenants/acme/usage", 200),
            ("GET", "/api/v1/tenants/acme/refusals", 200),
            ("GET", "/api/v1/tenants/beta", 404),
            ("GET", "/api/v1/tenants/beta/usage", 404),
            ("GET", "/api/v1/tenants/beta/refusals", 404),
            ("GET", "/api/v1/tenants/none", 404),
            ("PUT", "/api/v1/tenants/acme", 403),
            ("PUT", "/api/v1/tenants/beta", 403),
            ("DELETE", "/api/v1/tenants/acme", 403),
            ("DELETE", "/api/v1/tenants/beta", 403),
        ] {
            let body = json!({"weight": 1000});
            let (told, answer) = port.call(who, method, path, body).await;
            assert_eq!(told, status, "{method} {path}: {answer}");
        }
        assert_eq!(
            port.call(Some("root"), "GET", "/api/v1/tenants/beta", Value::Null)
                .await
                .0,
            200
        );
    }

    #[tokio::test]
    async fn a_purge_takes_what_was_imported_too() {
        let purge: PurgeImports = Arc::new(|tenant, before| {
            let of = format!("{tenant} {:?}", before.map(|at| at.0));
            Box::pin(async move {
                match of.as_str() {
                    "acme None" => Ok(json!({"jobs": 3})),
                    "acme Some(7)" => Ok(json!({"jobs": 0})),
                    _ => Err("the database is away".to_owned()),
                }
            })
        });
        let port = Port::beside(Some(purge));
        for name in ["acme", "beta"] {
            let path = format!("/api/v1/tenants/{name}");
            port.call(None, "PUT", &path, json!({})).await;
        }
        for (body, expected) in [
            (json!({}), json!({"jobs": 3})),
            (json!({"before_ms": 7}), json!({"jobs": 0})),
        ] {
            let path = "/api/v1/tenants/acme/purge";
            let (status, told) = port.call(None, "POST", path, body).await;
            assert_eq!((status, &told["imports"]), (200, &expected), "{told}");
        }
        let path = "/api/v1/tenants/beta/purge";
        let (status, told) = port.call(None, "POST", path, json!({})).await;
        let message = told["message"].as_str().unwrap();
        assert!(status == 500 && message.contains("ask again"), "{told}");
        let port = Port::open();
        port.call(None, "PUT", "/api/v1/tenants/beta", json!({}))
            .await;
        let (status, told) = port.call(None, "POST", path, json!({})).await;
        assert_eq!((status, &told["imports"]), (200, &Value::Null), "{told}");
    }

    #[tokio::test]
    async fn usage_tells_what_the_account_counted() {
        let port = Port::open();
        let body = json!({"quotas": {"bytes_in_per_second": 1_000}});
        port.call(None, "PUT", "/api/v1/tenants/acme", body).await;
        let acme = "acme".parse().unwrap();
        let tenant = port.access.snapshot().tenants()[&acme].clone();
        let account = port.access.tenants().of(&acme);
        let spent = Spent::sent(5_200, 52);
        account.charge(UnixMillis(995_000), &tenant.quotas, spent);
        let path = "/api/v1/tenants/acme/usage";
        let (_, told) = port.call(None, "GET", path, Value::Null).await;
        assert_eq!(
            told["totals"],
            json!({"bytes_in": 5200, "bytes_out": 0, "records": 52})
        );
        assert_eq!(told["rates"]["bytes_in_per_second"], 520.0);
        // Five seconds have passed, which drained all but a window of it.
        assert_eq!(told["wait_ms"], 0, "{told}");
        account.charge(UnixMillis(1_000_000), &tenant.quotas, spent);
        let (_, told) = port.call(None, "GET", path, Value::Null).await;
        assert_eq!(
            (&told["wait_ms"], &told["now_ms"]),
            (&json!(5_200), &json!(1_000_000)),
            "{told}"
        );
    }

    #[test]
    fn the_openapi_part_names_every_route_and_no_other() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let described: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
        let source = include_str!("tenants.rs");
        let source = source.split("mod tests").next().unwrap();
        let told = source.lines().filter(|line| !line.starts_with("//"));
        let routes = told.filter_map(|line| {
            let (_, path) = line.split_once("\"/api/v1/tenants")?;
            let path = &line[line.len() - path.len() - "/api/v1/tenants".len()..];
            let path = path.split('"').next()?;
            (!path.ends_with("openapi.json")).then_some(path)
        });
        let mut routes: Vec<&str> = routes.collect();
        routes.sort_unstable();
        assert_eq!(described, routes);
    }
}
