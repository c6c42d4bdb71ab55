//! What callers may do who have the role of an importer: a tenant's imports, and nothing else of the
//! management port.
//!
//! They send files, watch and steer the jobs, and see records, profiles and what a search finds. What
//! the tenant has is not theirs to change otherwise: no profile, no record at the counter, no job that
//! is forgotten. Whoever belongs to a tenant stays within it, whatever tenants the role names.

use ::access::{Granted, Role};
use axum::extract::Query;
use axum::http::Method;
use axum::http::request::Parts;
use base::TenantId;
use serde::Deserialize;
use streams::Caller;

use crate::error::RestError;
use crate::wall::{self, Asked, OwnerOfJob};

/// Lets a request through that an importer may send, and has its caller be known as one.
///
/// # Errors
/// [`RestError::ImporterMissing`], [`RestError::RoleMissing`] and those of the wall between tenants.
pub(crate) async fn admit(
    caller: &Caller,
    granted: &Granted,
    parts: &mut Parts,
    owner_of_job: Option<&OwnerOfJob>,
) -> Result<(), RestError> {
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    if !is_of_importers(parts) {
        return Err(RestError::RoleMissing {
            principal: granted.principal.to_string(),
            needed: match reads {
                true => Role::Viewer,
                false => Role::Administrator,
            },
            roles: granted.roles.to_string(),
        });
    }
    wall::check_management(caller, parts, owner_of_job).await?;
    let tenant: Option<TenantId> = match wall::asked(parts, owner_of_job).await {
        Asked::Own => return Ok(()),
        Asked::Of(tenant) => tenant.parse().ok(),
        Asked::All(_) => None,
    };
    if !granted.roles.may_import(tenant.as_ref()) {
        return Err(RestError::ImporterMissing {
            principal: granted.principal.to_string(),
            needed: match &tenant {
                Some(tenant) => format!("importer:{tenant}"),
                None => "importer for all tenants, or names none that it has".to_owned(),
            },
            roles: granted.roles.to_string(),
        });
    }
    if let Some(tenant) = tenant {
        parts.extensions.insert(caller.importing_for(tenant));
    }
    Ok(())
}

/// Whether this is among what importers do.
fn is_of_importers(parts: &Parts) -> bool {
    let method = match parts.method {
        Method::HEAD => "GET",
        ref method => method.as_str(),
    };
    let route = wall::route(parts);
    let forgets = || {
        let asked = Query::<Cancelled>::try_from_uri(&parts.uri);
        asked.map_or(true, |Query(asked)| {
            asked.forget.is_some_and(|forget| forget != "false")
        })
    };
    CALLS.contains(&(method, route.as_str())) && !(method == "DELETE" && forgets())
}

#[derive(Deserialize)]
struct Cancelled {
    forget: Option<String>,
}

/// Methods and routes.
const CALLS: [(&str, &str); 17] = [
    ("GET", "/api/v1/imports"),
    ("POST", "/api/v1/imports"),
    ("GET", "/api/v1/imports/openapi.json"),
    ("GET", "/api/v1/imports/tenants"),
    ("GET", "/api/v1/imports/{id}"),
    ("DELETE", "/api/v1/imports/{id}"),
    ("PATCH", "/api/v1/imports/{id}/file"),
    ("POST", "/api/v1/imports/{id}/pause"),
    ("POST", "/api/v1/imports/{id}/resume"),
    ("POST", "/api/v1/imports/{id}/retry"),
    ("GET", "/api/v1/imports/{id}/journal"),
    ("GET", "/api/v1/imports/{id}/rejects"),
    ("GET", "/api/v1/profiles"),
    ("GET", "/api/v1/profiles/{name}"),
    ("GET", "/api/v1/records/{tenant}/{id}"),
    ("GET", "/api/v1/records/{tenant}/{id}/history"),
    ("GET", "/api/v1/search"),
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::access::{Access, Principal, Roles};
    use axum::Router;
    use axum::body::Body;
    use axum::extract::Request;
    use axum::middleware::{self, Next};
    use axum::response::IntoResponse;
    use axum::routing::any;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    /// Answers every route with the tenant that the call is done for.
    fn house(access: &Arc<Access>, name: &str, grants: &[&str]) -> Router {
        let principal = Principal::user(name);
        let mut roles = Roles::default();
        grants
            .iter()
            .for_each(|grant| roles.add(&grant.parse().unwrap()));
        let granted = Arc::new(Granted {
            principal: principal.clone(),
            host: "::1".to_owned(),
            roles,
        });
        let caller = Caller::new(Arc::clone(access), Arc::default(), principal, "::1");
        let jobs: OwnerOfJob = Arc::new(|id: String| {
            let owner = id.split_once('-').map(|(owner, _)| owner.to_owned());
            Box::pin(std::future::ready(owner))
        });
        let others = [
            "/api/v1/topics",
            "/api/v1/tenants/{tenant}",
            "/api/v1/roles",
            "/api/v1/search/rebuild",
            "/api/v1/records/{tenant}/{id}/check-out",
            "/metrics",
        ];
        let mut paths: Vec<&str> = CALLS.iter().map(|(_, path)| *path).chain(others).collect();
        paths.sort_unstable();
        paths.dedup();
        let done_for = async |request: Request| {
            let caller = request.extensions().get::<Caller>();
            caller
                .and_then(Caller::works_for)
                .map_or(String::new(), |tenant| tenant.to_string())
        };
        let routes = paths.into_iter().fold(Router::new(), |router, path| {
            router.route(path, any(done_for))
        });
        routes.layer(middleware::from_fn(move |request: Request, next: Next| {
            let (caller, granted, jobs) = (caller.clone(), Arc::clone(&granted), Arc::clone(&jobs));
            async move {
                let (mut parts, body) = request.into_parts();
                match admit(&caller, &granted, &mut parts, Some(&jobs)).await {
                    Ok(()) => next.run(Request::from_parts(parts, body)).await,
                    Err(refused) => refused.into_response(),
                }
            }
        }))
    }

    async fn ask(house: &Router, call: &str) -> (u16, String) {
        let (method, path) = call.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        let answer = house.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        (status, body)
    }

    const OWN: [&str; 15] = [
        "GET /api/v1/imports?tenant=acme",
        "POST /api/v1/imports?tenant=acme&format=marc",
        "GET /api/v1/imports/acme-7",
        "DELETE /api/v1/imports/acme-7",
        "DELETE /api/v1/imports/acme-7?forget=false",
        "PATCH /api/v1/imports/acme-7/file?offset=0",
        "POST /api/v1/imports/acme-7/pause",
        "POST /api/v1/imports/acme-7/resume",
        "POST /api/v1/imports/acme-7/retry",
        "GET /api/v1/imports/acme-7/journal",
        "GET /api/v1/imports/acme-7/rejects",
        "GET /api/v1/profiles?tenant=acme",
        "GET /api/v1/records/acme/7",
        "GET /api/v1/records/acme/7/history",
        "HEAD /api/v1/search?tenant=acme&q=x",
    ];

    /// Not an importer's of whatever tenant.
    const NEVER: [&str; 11] = [
        "DELETE /api/v1/imports/acme-7?forget=true",
        "DELETE /api/v1/imports/acme-7?forget=true&forget=false",
        "PUT /api/v1/profiles/p?tenant=acme",
        "DELETE /api/v1/profiles/p?tenant=acme",
        "POST /api/v1/records/acme/7/check-out",
        "POST /api/v1/search/rebuild",
        "GET /api/v1/topics",
        "GET /api/v1/tenants/acme",
        "PUT /api/v1/tenants/acme",
        "POST /api/v1/roles",
        "GET /metrics",
    ];

    fn access(folder: &std::path::Path) -> Arc<Access> {
        let access = Arc::new(Access::open(folder).unwrap());
        for name in ["acme", "beta"] {
            let change = serde_json::json!({"members": [format!("User:of-{name}")]});
            let change = serde_json::from_value(change).unwrap();
            access.set_tenant(&name.parse().unwrap(), &change).unwrap();
        }
        access
    }

    #[tokio::test]
    async fn an_importer_has_its_tenants_imports_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        for (name, grants) in [
            ("of-acme", &["importer:acme"][..]),
            ("of-acme", &["importer"]),
            ("eve", &["importer:acme", "viewer:edge"]),
        ] {
            let house = house(&access, name, grants);
            for call in OWN {
                let (status, told) = ask(&house, call).await;
                assert_eq!(status, 200, "{name} {call}: {told}");
                if !call.starts_with("HEAD") {
                    assert_eq!(told, "acme", "{name} {call}");
                }
                let others = call.replace("acme", "beta");
                let (status, told) = ask(&house, &others).await;
                assert_eq!(status, 403, "{name} {others}: {told}");
            }
            for call in NEVER {
                let (status, told) = ask(&house, call).await;
                assert_eq!(status, 403, "{name} {call}: {told}");
            }
            for call in ["GET /api/v1/imports", "GET /api/v1/imports/tenants"] {
                let (status, told) = ask(&house, call).await;
                assert_eq!(status, 403, "{name} {call}: {told}");
            }
            let document = "GET /api/v1/imports/openapi.json";
            assert_eq!(ask(&house, document).await.0, 200);
        }
        let kept = access.tenants().of(&"acme".parse().unwrap()).refusals();
        assert!(kept.iter().all(|refusal| refusal.claimed == "beta"));
    }

    #[tokio::test]
    async fn an_importer_for_all_tenants_who_is_of_none_has_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let house = house(&access, "eve", &["importer"]);
        for (call, of) in [
            ("GET /api/v1/imports", ""),
            ("GET /api/v1/imports/tenants", ""),
            ("GET /api/v1/imports?tenant=beta", "beta"),
            ("POST /api/v1/imports?format=marc", "default"),
            ("GET /api/v1/imports/acme-7", "acme"),
        ] {
            assert_eq!(ask(&house, call).await, (200, of.to_owned()), "{call}");
        }
        for call in NEVER {
            assert_eq!(ask(&house, call).await.0, 403, "{call}");
        }
    }

    #[tokio::test]
    async fn a_role_for_another_tenant_does_not_take_a_member_out_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let house = house(&access, "of-acme", &["importer:beta"]);
        for call in OWN {
            let (status, told) = ask(&house, call).await;
            assert_eq!(status, 403, "{call}: {told}");
            let others = call.replace("acme", "beta");
            assert_eq!(ask(&house, &others).await.0, 403, "{others}");
        }
        let (_, told) = ask(&house, "GET /api/v1/imports?tenant=acme").await;
        assert!(told.contains("importer:acme"), "{told}");
    }
}
