//! Keeps a tenant's callers to their own tenant, on the port of the proxy and on the management
//! port.
//!
//! What a caller of a tenant asks the management port for has to name that tenant, in its path or
//! as the parameter `tenant`; what names none tells of all, and is refused. A caller of a tenant that is
//! not kept has nothing there. What the fleet answers is not a tenant's: there its callers have the roles
//! that name a class. Nothing is looked at until a tenant is kept.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::access::{Granted, ResourceType};
use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use base::TenantId;
use serde::Deserialize;
use streams::Caller;

use crate::error::RestError;

/// Tells whose an import job is; none when there is no such job.
pub type OwnerOfJob =
    Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = Option<String>> + Send>> + Send + Sync>;

/// Has every request to `routes` speak for its caller's tenant only, and wait while that is over
/// its quotas. Who calls is asked by what stands around it.
pub(crate) fn walled(routes: Router) -> Router {
    routes.layer(middleware::from_fn(hold))
}

async fn hold(request: Request, next: Next) -> Response {
    if let Some(caller) = request.extensions().get::<Caller>()
        && caller.tenant().is_some()
    {
        if let Err(refused) = check_headers(caller, request.headers()) {
            return refused.into_response();
        }
        let is_sending = !matches!(*request.method(), Method::GET | Method::HEAD);
        let wait = caller.tenant_wait(is_sending);
        // A short wait is the store's to keep.
        if wait > HELD_MAX {
            metrics::counter!("thalweg_rest_rate_limited_total").increment(1);
            return RestError::RateLimited(wait).into_response();
        }
    }
    next.run(request).await
}

/// Refuses headers that name another tenant than the caller's.
pub(crate) fn check_headers(caller: &Caller, headers: &HeaderMap) -> Result<(), RestError> {
    for name in HEADERS {
        for claimed in headers.get_all(name) {
            let claimed = String::from_utf8_lossy(claimed.as_bytes());
            caller.check_tenant(&claimed, "rest")?;
        }
    }
    Ok(())
}

/// Refuses what a tenant's caller asks the management port for that is not its own.
pub(crate) async fn check_management(
    caller: &Caller,
    parts: &mut Parts,
    owner_of_job: Option<&OwnerOfJob>,
) -> Result<(), RestError> {
    let Some(own) = held(caller) else {
        return Ok(());
    };
    check_headers(caller, &parts.headers)?;
    check_kept(caller, parts.uri.path())?;
    match asked(parts, owner_of_job).await {
        Asked::Own => return Ok(()),
        Asked::Of(tenant) if tenant == own.as_str() => return Ok(()),
        Asked::Of(claimed) | Asked::All(Some(claimed)) => {
            // The answer is this port's own; what this one tells is kept all the same.
            let _ = caller.check_tenant(&claimed, "rest");
        }
        Asked::All(None) => {}
    }
    Err(RestError::OfTenant(own.to_string()))
}

/// Whose it is what a request asks for.
pub(crate) enum Asked {
    /// What is answered there is the caller's alone, or nobody's.
    Own,
    /// This tenant's.
    Of(String),
    /// All tenants' together, or it is not known whose; with the tenant that it names.
    All(Option<String>),
}

/// Whose it is what a request to the management port asks for.
pub(crate) async fn asked(parts: &mut Parts, owner_of_job: Option<&OwnerOfJob>) -> Asked {
    let path = route(parts);
    let first = first_parameter(parts).await;
    let Ok(Query(named)) = Query::<Named>::try_from_uri(&parts.uri) else {
        return Asked::All(None);
    };
    let is_list = matches!(parts.method, Method::GET | Method::HEAD);
    let or_default = |named: Option<String>| {
        Asked::Of(named.unwrap_or_else(|| TenantId::default_tenant().to_string()))
    };
    match path.as_str() {
        "/api/v1/tenants" | "/api/v1/tenants/{tenant}" => Asked::Own,
        path if path.starts_with("/api/v1/tenants/{tenant}/") => Asked::Own,
        path if path.ends_with(DOCUMENT) => Asked::Own,
        "/api/v1/imports" if is_list && named.tenant.is_none() => Asked::All(None),
        "/api/v1/imports" | "/api/v1/search" | "/api/v1/profiles" | "/api/v1/profiles/{name}" => {
            or_default(named.tenant)
        }
        "/api/v1/imports/tenants" => Asked::All(named.tenant),
        path if path.starts_with("/api/v1/imports/{id}") => {
            let owner = match owner_of_job {
                Some(owner_of_job) => owner_of_job(first.unwrap_or_default()).await,
                None => None,
            };
            owner.map_or(Asked::All(None), Asked::Of)
        }
        path if path.starts_with("/api/v1/records/{tenant}/") => {
            first.map_or(Asked::All(None), Asked::Of)
        }
        _ => Asked::All(named.tenant),
    }
}

/// The path of the route that a request came to.
pub(crate) fn route(parts: &Parts) -> String {
    let matched = parts.extensions.get::<MatchedPath>();
    matched.map_or(String::new(), |matched| matched.as_str().to_owned())
}

/// Leaves a tenant's caller, where others judge by its roles, those that are for single classes: what
/// is not of a class is all tenants' together.
pub(crate) fn narrowed(mut request: Request) -> Result<Request, RestError> {
    let extensions = request.extensions();
    let (caller, granted) = (extensions.get::<Caller>(), extensions.get::<Arc<Granted>>());
    let (Some(caller), Some(granted)) = (caller, granted) else {
        return Ok(request);
    };
    let path = request.uri().path();
    let Some(own) = held(caller).filter(|_| !path.ends_with(DOCUMENT)) else {
        return Ok(request);
    };
    check_headers(caller, request.headers())?;
    check_kept(caller, path)?;
    let roles = granted.roles.of_classes();
    if roles.is_empty() {
        caller.note_refused(ResourceType::Cluster, path);
        return Err(RestError::OfTenant(own.to_string()));
    }
    let granted = Granted {
        roles,
        ..Granted::clone(granted)
    };
    request.extensions_mut().insert(Arc::new(granted));
    Ok(request)
}

/// The tenant that a caller is held to.
pub(crate) fn held(caller: &Caller) -> Option<TenantId> {
    caller.tenant().filter(|_| caller.is_held_to_tenant())
}

fn check_kept(caller: &Caller, path: &str) -> Result<(), RestError> {
    let checked = caller.check_kept(path);
    checked.map_err(|tenant| RestError::OfUnknownTenant(tenant.to_string()))
}

/// The path's first parameter, percent-decoded as handlers see it.
async fn first_parameter(parts: &mut Parts) -> Option<String> {
    let parameters = RawPathParams::from_request_parts(parts, &()).await.ok()?;
    parameters.iter().next().map(|(_, value)| value.to_owned())
}

#[derive(Deserialize)]
struct Named {
    tenant: Option<String>,
}

/// Headers of requests that say for whom they are.
const HEADERS: [&str; 2] = ["x-okapi-tenant", "thalweg-tenant"];
/// What the paths of documents about the API end with.
const DOCUMENT: &str = "/openapi.json";
/// How long the store itself keeps a call waiting.
const HELD_MAX: Duration = streams::limits::TENANT_HOLD_MAX;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::access::{Access, Policy, Principal};
    use axum::body::Body;
    use axum::routing::get;
    use axum::{Extension, Router};
    use base::Rng;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    fn access(folder: &std::path::Path) -> Arc<Access> {
        let access = Arc::new(Access::open(folder).unwrap());
        for name in ["acme", "beta"] {
            let change = serde_json::json!({"members": [format!("User:of-{name}")]});
            let change = serde_json::from_value(change).unwrap();
            access.set_tenant(&name.parse().unwrap(), &change).unwrap();
        }
        access
    }

    fn caller(access: &Arc<Access>, name: &str) -> Caller {
        let policy = Arc::new(Policy::default());
        Caller::new(Arc::clone(access), policy, Principal::user(name), "::1")
    }

    /// The tenant whose data a handler of this path would show.
    async fn shown(request: Request) -> String {
        let (mut parts, _) = request.into_parts();
        let path = parts
            .extensions
            .get::<MatchedPath>()
            .unwrap()
            .as_str()
            .to_owned();
        let first = first_parameter(&mut parts).await.unwrap_or_default();
        let named = Query::<Named>::try_from_uri(&parts.uri);
        let named = named.ok().and_then(|named| named.0.tenant);
        match path.as_str() {
            path if path.starts_with("/api/v1/records/") => first,
            path if path.starts_with("/api/v1/imports/{id}") => {
                first.split('-').next().unwrap_or_default().to_owned()
            }
            "/api/v1/imports" => named.unwrap_or_else(|| "everybody".to_owned()),
            "/api/v1/search" | "/api/v1/profiles" | "/api/v1/profiles/{name}" => {
                named.unwrap_or_else(|| "default".to_owned())
            }
            _ => "everybody".to_owned(),
        }
    }

    /// Answers every path with the tenant whose data a handler would show.
    fn house(caller: Caller) -> Router {
        let jobs: OwnerOfJob = Arc::new(|id: String| {
            let owner = id.split_once('-').map(|(owner, _)| owner.to_owned());
            Box::pin(std::future::ready(owner))
        });
        let paths = [
            "/api/v1/imports",
            "/api/v1/imports/tenants",
            "/api/v1/imports/{id}",
            "/api/v1/imports/{id}/journal",
            "/api/v1/imports/{id}/rejects",
            "/api/v1/profiles",
            "/api/v1/profiles/{name}",
            "/api/v1/records/{tenant}/{id}",
            "/api/v1/records/{tenant}/{id}/history",
            "/api/v1/search",
            "/api/v1/search/rebuild",
            "/api/v1/topics",
            "/api/v1/groups",
        ];
        let routes = paths.iter().fold(Router::new(), |router, path| {
            router.route(path, get(shown).post(shown))
        });
        let check = move |request: Request, next: Next| {
            let (jobs, caller) = (Arc::clone(&jobs), caller.clone());
            async move {
                let (mut parts, body) = request.into_parts();
                match check_management(&caller, &mut parts, Some(&jobs)).await {
                    Ok(()) => next.run(Request::from_parts(parts, body)).await,
                    Err(refused) => refused.into_response(),
                }
            }
        };
        routes.layer(middleware::from_fn(check))
    }

    async fn ask(house: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = house.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn nothing_of_another_tenant_is_shown_however_it_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let access = access(dir.path());
        let houses =
            ["acme", "beta"].map(|name| (name, house(caller(&access, &format!("of-{name}")))));
        let mut rng = Rng::from_seed(11);
        let words = [
            "acme", "beta", "default", "%62eta", "ac%6De", "ACME", "", "acme%00", "be ta",
        ];
        let mut shown = 0;
        for _ in 0..4_000 {
            let mut word = || {
                let at = rng.below(words.len() as u64) as usize;
                words[at].replace(' ', "%20")
            };
            let (a, b, c) = (word(), word(), word());
            let forms = [
                format!("/api/v1/imports?tenant={a}"),
                format!("/api/v1/imports?tenant={a}&tenant={b}"),
                format!("/api/v1/imports?tenant={a}&limit={b}&x=%26tenant={c}"),
                "/api/v1/imports".to_owned(),
                "/api/v1/imports/tenants".to_owned(),
                format!("/api/v1/imports/{a}-7"),
                format!("/api/v1/imports/{a}-7/journal?tenant={b}"),
                format!("/api/v1/imports/{a}-{b}/rejects"),
                format!("/api/v1/profiles?tenant={a}"),
                format!("/api/v1/profiles/{a}?tenant={b}"),
                format!("/api/v1/profiles/{a}"),
                format!("/api/v1/records/{a}/{b}?tenant={c}"),
                format!("/api/v1/records/{a}/{b}/history"),
                format!("/api/v1/search?q={a}&tenant={b}"),
                format!("/api/v1/search?q={a}"),
                "/api/v1/search/rebuild".to_owned(),
                "/api/v1/topics".to_owned(),
                format!("/api/v1/groups?tenant={a}"),
            ];
            let path = &forms[rng.below(forms.len() as u64) as usize];
            for (own, house) in &houses {
                let (status, of) = ask(house, path).await;
                match status {
                    200 => {
                        assert_eq!(&of, own, "{path}");
                        shown += 1;
                    }
                    // A path of an empty segment is none.
                    other => assert!([403, 404].contains(&other), "{path}: {other} {of}"),
                }
            }
        }
        assert!(shown > 100, "only {shown} were shown at all");
        // Who belongs to no tenant is not held to one.
        let open = house(caller(&access, "root"));
        assert_eq!(ask(&open, "/api/v1/topics").await.0, 200);
    }

    #[tokio::test]
    async fn a_caller_of_a_tenant_that_is_not_kept_is_shown_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let access = access(dir.path());
        access.remove_tenant(&"acme".parse().unwrap()).unwrap();
        for name in ["of-acme", "acme/ann", "unknown/ann"] {
            let house = house(caller(&access, name));
            for path in [
                "/api/v1/topics",
                "/api/v1/search?tenant=acme",
                "/api/v1/records/acme/7",
                "/api/v1/imports/acme-7",
                "/api/v1/imports?tenant=unknown",
            ] {
                let (status, told) = ask(&house, path).await;
                assert_eq!(status, 403, "{name} {path}: {told}");
                assert!(told.contains("there is no tenant"), "{told}");
            }
        }
        for name in ["root", "CN=press/7"] {
            let house = house(caller(&access, name));
            assert_eq!(ask(&house, "/api/v1/topics").await.0, 200, "{name}");
        }
        let policy = Policy {
            super_users: vec![Principal::user("ops/root"), Principal::user("of-beta")],
            ..Policy::default()
        };
        let policy = Arc::new(policy);
        for name in ["ops/root", "of-beta"] {
            let (access, who) = (Arc::clone(&access), Principal::user(name));
            let house = house(Caller::new(access, Arc::clone(&policy), who, "::1"));
            assert_eq!(ask(&house, "/api/v1/topics").await.0, 200, "{name}");
        }
    }

    #[tokio::test]
    async fn a_request_that_names_another_tenant_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let access = access(dir.path());
        let ask = async |caller: Caller, header: &str, value: &str| {
            let routes = Router::new().route("/topics/{topic}", get(async || "done"));
            let routes = walled(routes).layer(Extension(caller));
            let request = Request::get("/topics/t").header(header, value);
            let request = request.body(Body::empty()).unwrap();
            routes.oneshot(request).await.unwrap().status().as_u16()
        };
        let ann = caller(&access, "of-acme");
        for (header, value, status) in [
            ("x-okapi-tenant", "acme", 200),
            ("x-okapi-tenant", "beta", 403),
            ("Thalweg-Tenant", "beta", 403),
            ("thalweg-tenant", "acme", 200),
            ("x-other", "beta", 200),
        ] {
            assert_eq!(
                ask(ann.clone(), header, value).await,
                status,
                "{header}: {value}"
            );
        }
        assert_eq!(
            ask(caller(&access, "root"), "x-okapi-tenant", "beta").await,
            200
        );
        let account = access.tenants().of(&"acme".parse().unwrap());
        let kept = account.refusals();
        assert_eq!((kept.len(), kept[0].protocol), (2, "rest"));
    }

    #[tokio::test]
    async fn a_tenant_that_keeps_as_much_as_it_may_is_told_50701() {
        let dir = tempfile::tempdir().unwrap();
        let access = access(&dir.path().join("access"));
        let acme: TenantId = "acme".parse().unwrap();
        let change = serde_json::json!({"quotas": {"stored_bytes": 1_000}});
        let change = serde_json::from_value(change).unwrap();
        access.set_tenant(&acme, &change).unwrap();
        let clock = Arc::new(base::SystemClock);
        let config = streams::StreamsConfig::default();
        let place = dir.path().join("streams");
        let (store, _) = streams::Streams::open(&place, config, clock).unwrap();
        let policy = Policy {
            super_users: Vec::new(),
            allow_if_no_acl: true,
        };
        let ann = Principal::user("of-acme");
        let ann = Caller::new(Arc::clone(&access), Arc::new(policy), ann, "::1");
        let store = streams::as_caller(store.store(), ann);
        let topic: streams::TopicName = "env.ns.acme.E".parse().unwrap();
        store.topic_or_create(&topic).await.unwrap();
        let batch = || streams::ProduceBatch {
            topic: topic.clone(),
            partition: 0,
            records: vec![streams::Record::of_value(vec![b'x'; 1_000])],
            sequence: None,
        };
        store.produce(batch()).await.unwrap();
        let refused = store.produce(batch()).await.unwrap_err();
        assert_eq!(crate::error::record_code(&refused), 50701);
        let refused = RestError::Store(refused);
        assert_eq!((refused.code(), refused.status().as_u16()), (50701, 507));
    }

    #[tokio::test]
    async fn a_tenant_far_over_its_quota_is_told_when_to_come_again() {
        let dir = tempfile::tempdir().unwrap();
        let access = access(dir.path());
        let acme: TenantId = "acme".parse().unwrap();
        let change = serde_json::json!({"quotas": {"bytes_in_per_second": 1_000}});
        let change = serde_json::from_value(change).unwrap();
        let tenant = access.set_tenant(&acme, &change).unwrap();
        let spent = ::access::Spent::sent(100_000, 1);
        let now = base::Clock::now(&base::SystemClock);
        access
            .tenants()
            .of(&acme)
            .charge(now, &tenant.quotas, spent);
        let ask = async |who: &str, method: Method| {
            let routes = Router::new().route("/", get(async || "done").post(async || "done"));
            let routes = walled(routes).layer(Extension(caller(&access, who)));
            let request = Request::builder().method(method).uri("/");
            routes
                .oneshot(request.body(Body::empty()).unwrap())
                .await
                .unwrap()
        };
        let refused = ask("of-acme", Method::POST).await;
        assert_eq!(refused.status(), 429);
        let seconds: u64 = refused.headers()["retry-after"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!((95..=100).contains(&seconds), "{seconds}");
        // It may still read, and others send.
        assert_eq!(ask("of-acme", Method::GET).await.status(), 200);
        assert_eq!(ask("of-beta", Method::POST).await.status(), 200);
    }
}
