//! Who may call which route: the layer that goes by the table of `rules.rs`.
//!
//! A caller whose roles are for some classes only sees what is in these. What is named by an id and
//! is of another class is answered as what is not there, so that nobody learns of it; a class itself
//! is named by the caller, so refusing it tells nothing. A path without a row is for administrators.
//! Lists answer what their caller may see: that is their handlers' part.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::{Granted, Role};
use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;

use crate::agent::Agent;
use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::http::rules::{About, RULES};
use crate::http::{AGENT_PREFIXES, Failure};
use crate::operation::FleetOperation;
use crate::resource::ResourceSet;
use crate::rights::Rights;

/// The classes that a call was about, for the audit; in the response's extensions.
#[derive(Clone, Debug)]
pub struct Touched(pub Vec<Arc<str>>);

/// Has every call of these routes judged by the table.
pub fn judged(routes: Router, fleet: Arc<Fleet>) -> Router {
    routes.route_layer(middleware::from_fn_with_state(fleet, judge))
}

async fn judge(
    State(fleet): State<Arc<Fleet>>,
    matched: MatchedPath,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    if AGENT_PREFIXES
        .iter()
        .any(|prefix| matched.as_str().starts_with(prefix))
    {
        return next.run(request).await;
    }
    let rights = rights_of(request.extensions().get::<Arc<Granted>>());
    let parameters = match parameters {
        Ok(parameters) => parameters,
        Err(refused) => return Failure::new(refused.status(), refused.body_text()).into_response(),
    };
    let name = parameters.iter().next().map(|(_, value)| value.to_owned());
    let name = name.unwrap_or_default();
    let judged = fleet
        .judge(&rights, matched.as_str(), request.method(), &name)
        .await;
    let (touched, mut response) = match judged {
        Ok(touched) => (touched, in_json(next.run(request).await).await),
        Err((touched, failure)) => (touched, failure.into_response()),
    };
    response.extensions_mut().insert(Touched(touched));
    response
}

/// Gives an error that comes from the layers around the handlers the form of all errors.
async fn in_json(response: Response) -> Response {
    let is_json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !response.status().is_client_error() || kind.is_some_and(is_json) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let told = http_body_util::Limited::new(body, ERROR_BYTES_MAX)
        .collect()
        .await;
    let told = told.map(|told| told.to_bytes()).unwrap_or_default();
    let told = String::from_utf8_lossy(&told);
    let message = match (told.is_empty(), parts.status.canonical_reason()) {
        (true, Some(reason)) => reason.to_owned(),
        _ => told.into_owned(),
    };
    let ours = Failure::new(parts.status, message).into_response();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(ours.headers().clone());
    Response::from_parts(parts, ours.into_body())
}

type Refused = (Vec<Arc<str>>, Failure);

impl Fleet {
    /// Judges a call; answers the classes that it is about.
    async fn judge(
        &self,
        rights: &Rights,
        path: &str,
        method: &Method,
        name: &str,
    ) -> Result<Vec<Arc<str>>, Refused> {
        let of_path = || RULES.iter().filter(|rule| rule.path == path);
        let method = match *method {
            Method::HEAD => "GET",
            _ => method.as_str(),
        };
        let Some(rule) = of_path().find(|rule| rule.method == method) else {
            // Without any row it is for administrators; another method is answered by the route.
            return match of_path().next() {
                Some(_) => Ok(Vec::new()),
                None => {
                    let needed = rights.need(Role::Administrator, None);
                    needed
                        .map(|()| Vec::new())
                        .map_err(|e| (Vec::new(), e.into()))
                }
            };
        };
        let role = rule.role;
        let classes = match rule.about {
            About::All => {
                let needed = rights.need_somewhere(role);
                return needed
                    .map(|()| Vec::new())
                    .map_err(|e| (Vec::new(), e.into()));
            }
            About::Class => Some(vec![Some(Arc::from(name))]),
            about => {
                let classes = self.classes_of(about, name).await;
                classes.map_err(|error| (Vec::new(), Failure::from(error)))?
            }
        };
        let Some(classes) = classes else {
            // Who has the role everywhere is told by the handler that it is not there.
            let refusal = match (rights.may(role, None), rights.sees_all()) {
                (true, _) => return Ok(Vec::new()),
                (false, true) => rights.refusal(role, None),
                (false, false) => rights.unseen(rule.about.word(), name),
            };
            return Err((Vec::new(), refusal.into()));
        };
        let touched: Vec<Arc<str>> = classes.iter().flatten().cloned().collect();
        match rule.about.refusal(rights, role, &classes, name) {
            None => Ok(touched),
            Some(error) => Err((touched, error.into())),
        }
    }

    /// The classes that something is in, with a none for agents that have none; none when it is
    /// not there.
    async fn classes_of(
        &self,
        about: About,
        id: &str,
    ) -> Result<Option<Vec<Option<Arc<str>>>>, FleetError> {
        let agent_of_bundle = match about {
            About::Bundle => match self.bundle(id).await {
                Ok(bundle) => Some(bundle.agent_id),
                Err(FleetError::Unknown { .. }) => return Ok(None),
                Err(error) => return Err(error),
            },
            _ => None,
        };
        // What many agents may have is looked for in pieces: heartbeats go on meanwhile.
        let of_many = match about {
            About::Request => {
                let is_of = |op: &FleetOperation| op.request.as_deref() == Some(id);
                self.classes_with(|agent| agent.operations.iter().any(is_of))
            }
            About::Manifest => {
                let key = self.inner.registry.lock().manifest_named(id);
                key.and_then(|key| self.classes_with(|agent| agent.manifest.as_ref() == Some(&key)))
            }
            _ => None,
        };
        let registry = self.inner.registry.lock();
        let of_agent = |id: &str| registry.agents.get(id).map(|agent| agent.class.clone());
        Ok(match about {
            About::All | About::Class => Some(Vec::new()),
            About::Agent => of_agent(id).map(|class| vec![class]),
            About::Flow => registry
                .flows
                .get(id)
                .map(|flow| vec![Some(flow.class.clone())]),
            About::Operation => {
                let found = registry.operation(id);
                found.map(|(agent, _)| vec![agent.class.clone()])
            }
            About::Request | About::Manifest => of_many,
            About::Rollout => {
                let found = registry.rollouts.get(id);
                found.map(|rollout| vec![Some(rollout.class.clone())])
            }
            About::Resource => registry.resources.contains_key(id).then(|| {
                let has = |set: &ResourceSet| set.items.iter().any(|item| *item.id == *id);
                let sets = registry.resource_sets.iter().filter(|(_, set)| has(set));
                sets.map(|(class, _)| Some(class.clone())).collect()
            }),
            About::Bundle => {
                // One whose agent is gone is of no class any more.
                Some(vec![
                    agent_of_bundle.and_then(|agent| of_agent(&agent)).flatten(),
                ])
            }
        })
    }

    /// The classes of the agents that `has` picks, each once; none without such an agent.
    fn classes_with(&self, has: impl Fn(&Agent) -> bool) -> Option<Vec<Option<Arc<str>>>> {
        let mut classes = BTreeSet::new();
        self.inner.each_agent(|_, agent| {
            if has(agent) && !classes.contains(&agent.class) {
                classes.insert(agent.class.clone());
            }
        });
        (!classes.is_empty()).then(|| classes.into_iter().collect())
    }
}

impl About {
    fn word(self) -> &'static str {
        match self {
            About::All => "thing",
            About::Class => "class",
            About::Agent => "agent",
            About::Flow => "flow",
            About::Operation => "operation",
            About::Request => "request",
            About::Rollout => "roll-out",
            About::Resource => "resource",
            About::Bundle => "bundle",
            About::Manifest => "manifest",
        }
    }

    /// Why the call is refused, if it is.
    fn refusal(
        self,
        rights: &Rights,
        role: Role,
        classes: &[Option<Arc<str>>],
        name: &str,
    ) -> Option<FleetError> {
        if self == About::Class {
            return rights.need(role, Some(name)).err();
        }
        // What no class has yet is for those who design.
        let is_loose = self == About::Resource && classes.is_empty();
        let sees = |class: &Option<Arc<str>>| rights.sees(class.as_deref());
        let is_seen = classes.iter().any(sees) || is_loose && rights.may_somewhere(Role::Designer);
        if !is_seen {
            return (!rights.sees_all()).then(|| rights.unseen(self.word(), name));
        }
        if role == Role::Viewer {
            return None;
        }
        // To change something is to change it for all of its classes.
        let missing = classes
            .iter()
            .find(|class| !rights.may(role, class.as_deref()))?;
        let class = missing.as_deref().filter(|class| rights.sees(Some(class)));
        Some(rights.refusal(role, class))
    }
}

impl<S: Sync> FromRequestParts<S> for Rights {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Rights, Self::Rejection> {
        Ok(rights_of(parts.extensions.get()))
    }
}

fn rights_of(granted: Option<&Arc<Granted>>) -> Rights {
    Rights::of(granted.cloned())
}

/// Bytes of an error's text that are shown.
const ERROR_BYTES_MAX: usize = 4 << 10;
