//! Who may call a management port, and what they may do there.
//!
//! [`callers_known`] stands outside: it has every request say who calls, but for the openings.
//! [`rights_asked`] stands inside: what is not judged by whoever answers it needs a role for all
//! classes, viewer to read and administrator to change; a tenant's imports are open to its importers
//! too (`importers.rs`). Where ACLs are followed, `DESCRIBE` on the cluster makes a viewer of all
//! classes, and `ALTER` an administrator.

use std::sync::Arc;

use ::access::{CLUSTER, Granted, Operation, ResourceType, Role, Roles};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use streams::Caller;

use crate::access::JSON;
use crate::answer;
use crate::error::RestError;
use crate::importers;
use crate::login::{Logins, Peer};
use crate::wall::{self, OwnerOfJob};

/// Which requests to a management port are not judged here.
#[derive(Clone)]
pub struct Openings {
    /// Paths that need no login, whole.
    pub paths: Vec<&'static str>,
    /// Beginnings of paths that need none.
    pub prefixes: Vec<&'static str>,
    /// Paths open to everybody with a role, such as the console's files.
    pub pages: Vec<&'static str>,
    /// Whether whoever answers a path judges its callers by their roles.
    pub judges: fn(&str) -> bool,
    /// Tells whose an import job is, for callers of a tenant.
    pub owner_of_job: Option<OwnerOfJob>,
}

impl Openings {
    fn opens(&self, path: &str) -> bool {
        let Openings {
            paths, prefixes, ..
        } = self;
        paths.contains(&path) || prefixes.iter().any(|prefix| path.starts_with(prefix))
    }
}

struct Gatekeeper {
    logins: Arc<Logins>,
    openings: Openings,
}

/// Has every request to `routes` but for the openings say who calls: handlers find a [`Granted`].
pub fn callers_known(routes: Router, logins: Arc<Logins>, openings: Openings) -> Router {
    let gatekeeper = Arc::new(Gatekeeper { logins, openings });
    routes.layer(middleware::from_fn_with_state(gatekeeper, know_caller))
}

async fn know_caller(
    State(gatekeeper): State<Arc<Gatekeeper>>,
    request: Request,
    next: Next,
) -> Response {
    if gatekeeper.openings.opens(request.uri().path()) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().cloned();
    match gatekeeper.logins.granted(&parts.headers, peer).await {
        Ok((caller, granted)) => {
            parts.extensions.insert(caller);
            parts.extensions.insert(Arc::new(granted));
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refused) => refused.into_response(),
    }
}

/// Has every request to `routes` that nobody else judges come from somebody with a role for all
/// classes. Adds `GET /api/v1/me`: `{"principal", "roles": [text], "tenant"?}`, with the tenant that
/// the caller is held to.
pub fn rights_asked(routes: Router, logins: Arc<Logins>, openings: Openings) -> Router {
    let gatekeeper = Arc::new(Gatekeeper { logins, openings });
    routes
        .route(ME, get(me))
        .layer(middleware::from_fn_with_state(gatekeeper, ask_rights))
}

async fn ask_rights(
    State(gatekeeper): State<Arc<Gatekeeper>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let openings = &gatekeeper.openings;
    if path == ME || openings.opens(path) {
        return next.run(request).await;
    }
    if (openings.judges)(path) {
        return match wall::narrowed(request) {
            Ok(request) => next.run(request).await,
            Err(refused) => refused.into_response(),
        };
    }
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_page = reads && openings.pages.contains(&path);
    let extensions = request.extensions();
    let Some(granted) = extensions.get::<Arc<Granted>>() else {
        return RestError::Unauthenticated("log in").into_response();
    };
    let needed = match reads {
        true => Role::Viewer,
        false => Role::Administrator,
    };
    let roles = &granted.roles;
    let sees_pages = roles.may_somewhere(Role::Viewer) || roles.may_import_somewhere();
    if is_page && sees_pages {
        return next.run(request).await;
    }
    if granted.roles.may_everywhere(needed) {
        let Some(caller) = extensions.get::<Caller>().cloned() else {
            return next.run(request).await;
        };
        let (mut parts, body) = request.into_parts();
        let owner_of_job = openings.owner_of_job.as_ref();
        return match wall::check_management(&caller, &mut parts, owner_of_job).await {
            Ok(()) => next.run(Request::from_parts(parts, body)).await,
            Err(refused) => refused.into_response(),
        };
    }
    let caller = extensions.get::<Caller>();
    if let Some(caller) = caller.cloned()
        && roles.may_import_somewhere()
    {
        let granted = Arc::clone(granted);
        let (mut parts, body) = request.into_parts();
        let owner_of_job = openings.owner_of_job.as_ref();
        return match importers::admit(&caller, &granted, &mut parts, owner_of_job).await {
            Ok(()) => next.run(Request::from_parts(parts, body)).await,
            Err(refused) => refused.into_response(),
        };
    }
    // Where ACLs decide, the refusal names the one that is missing.
    if let Some(caller) = caller.filter(|_| gatekeeper.logins.follows_acls()) {
        let operation = match reads {
            true => Operation::Describe,
            false => Operation::Alter,
        };
        if let Err(refused) = caller.check(operation, ResourceType::Cluster, CLUSTER) {
            return RestError::from(refused).into_response();
        }
    }
    RestError::RoleMissing {
        principal: granted.principal.to_string(),
        needed,
        roles: granted.roles.to_string(),
    }
    .into_response()
}

/// `GET /api/v1/me` where nobody is asked who they are, and everybody may do everything:
/// `{"principal": null, "roles": ["administrator"]}`.
pub fn nobody_asked(routes: Router) -> Router {
    let roles = Roles::administrator().grants();
    let told = json!({"principal": null, "roles": roles});
    routes.route(
        ME,
        get(async move || answer::json(StatusCode::OK, JSON, &told)),
    )
}

async fn me(request: Request) -> Response {
    let Some(granted) = request.extensions().get::<Arc<Granted>>() else {
        return RestError::Unauthenticated("log in").into_response();
    };
    let mut told = json!({"principal": granted.principal, "roles": granted.roles.grants()});
    let caller = request.extensions().get::<Caller>();
    if let Some(tenant) = caller.and_then(wall::held) {
        told["tenant"] = json!(tenant);
    }
    answer::json(StatusCode::OK, JSON, &told)
}

/// Tells callers who they are.
const ME: &str = "/api/v1/me";
