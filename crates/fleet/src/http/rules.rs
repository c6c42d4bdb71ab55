//! The routes that are judged: which role each takes, and what it is about.
//!
//! Tests compare the table with the routes and with the OpenAPI document.

use access::Role::{self, Designer, Operator, Viewer};

use About::{Agent, All, Bundle, Class, Flow, Manifest, Operation, Request, Resource, Rollout};

/// A route, the role that it takes, and what its first parameter names.
pub struct Rule {
    pub method: &'static str,
    pub path: &'static str,
    pub role: Role,
    pub about: About,
}

/// What a route's first parameter names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Nothing: a list, or something new.
    All,
    Class,
    Agent,
    Flow,
    Operation,
    Request,
    Rollout,
    Resource,
    Bundle,
    Manifest,
}

/// Whether a path is one that the table judges.
pub fn judges(path: &str) -> bool {
    let begins = |rule: &Rule| {
        let fixed = rule.path.split("/{").next().unwrap_or_default();
        let rest = path.strip_prefix(fixed);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    RULES.iter().any(begins)
}

const fn rule(method: &'static str, path: &'static str, role: Role, about: About) -> Rule {
    Rule {
        method,
        path,
        role,
        about,
    }
}

/// The table.
pub const RULES: &[Rule] = &[
    rule("GET", "/api/v1/agents", Viewer, All),
    rule("GET", "/api/v1/agents/{id}", Viewer, Agent),
    rule("DELETE", "/api/v1/agents/{id}", Operator, Agent),
    rule("POST", "/api/v1/agents/{id}/operations", Operator, Agent),
    rule("GET", "/api/v1/agents/{id}/parameters", Viewer, Agent),
    rule("PATCH", "/api/v1/agents/{id}/parameters", Designer, Agent),
    rule("GET", "/api/v1/audit", Viewer, All),
    rule("GET", "/api/v1/bundles", Viewer, All),
    rule("GET", "/api/v1/bundles/{id}", Viewer, Bundle),
    rule("DELETE", "/api/v1/bundles/{id}", Operator, Bundle),
    rule("GET", "/api/v1/bundles/{id}/content", Viewer, Bundle),
    rule("GET", "/api/v1/classes", Viewer, All),
    rule("GET", "/api/v1/classes/{name}", Viewer, Class),
    rule("PUT", "/api/v1/classes/{name}", Designer, Class),
    rule("DELETE", "/api/v1/classes/{name}", Operator, Class),
    rule("GET", "/api/v1/classes/{name}/flows", Viewer, Class),
    rule("POST", "/api/v1/classes/{name}/flows", Designer, Class),
    rule("POST", "/api/v1/classes/{name}/flows/check", Viewer, Class),
    rule("POST", "/api/v1/classes/{name}/operations", Operator, Class),
    rule("GET", "/api/v1/classes/{id}/parameters", Viewer, Class),
    rule("PATCH", "/api/v1/classes/{id}/parameters", Designer, Class),
    rule("GET", "/api/v1/classes/{name}/resources", Viewer, Class),
    rule("PUT", "/api/v1/classes/{name}/resources", Designer, Class),
    rule("GET", "/api/v1/classes/{name}/rollouts", Viewer, Class),
    rule("POST", "/api/v1/classes/{name}/rollouts", Operator, Class),
    rule("GET", "/api/v1/classes/{name}/manifest", Viewer, Class),
    rule("PUT", "/api/v1/classes/{name}/manifest", Designer, Class),
    rule("DELETE", "/api/v1/classes/{name}/manifest", Designer, Class),
    rule("GET", "/api/v1/events", Viewer, All),
    rule("GET", "/api/v1/fleet", Viewer, All),
    rule("GET", "/api/v1/flows/{id}", Viewer, Flow),
    rule("POST", "/api/v1/flows/{id}/publish", Designer, Flow),
    rule("GET", "/api/v1/flows/{id}/diff", Viewer, Flow),
    rule("GET", "/api/v1/flows/{id}/parameters", Viewer, Flow),
    rule("PATCH", "/api/v1/flows/{id}/parameters", Designer, Flow),
    rule("GET", "/api/v1/manifests", Viewer, All),
    rule("GET", "/api/v1/manifests/{hash}", Viewer, Manifest),
    rule("GET", "/api/v1/manifests/{hash}/diff", Viewer, Manifest),
    rule("GET", "/api/v1/operations", Viewer, All),
    rule("GET", "/api/v1/operations/{id}", Viewer, Operation),
    rule("GET", "/api/v1/operations/{id}/result", Viewer, Operation),
    rule(
        "POST",
        "/api/v1/operations/{id}/cancel",
        Operator,
        Operation,
    ),
    rule("POST", "/api/v1/requests/{id}/cancel", Operator, Request),
    rule("GET", "/api/v1/resources", Viewer, All),
    rule("POST", "/api/v1/resources", Designer, All),
    rule("GET", "/api/v1/resources/{id}", Viewer, Resource),
    rule("DELETE", "/api/v1/resources/{id}", Designer, Resource),
    rule("GET", "/api/v1/resources/{id}/content", Viewer, Resource),
    rule("GET", "/api/v1/rollouts/{id}", Viewer, Rollout),
    rule("POST", "/api/v1/rollouts/{id}/{wish}", Operator, Rollout),
    rule("GET", "/api/v1/openapi.json", Viewer, All),
    rule("GET", "/efm/api/agents", Viewer, All),
    rule("GET", "/efm/api/agents/page", Viewer, All),
    rule("GET", "/efm/api/agents/{id}", Viewer, Agent),
    rule("DELETE", "/efm/api/agents/{id}", Operator, Agent),
    rule("GET", "/efm/api/agents/{id}/parameters", Viewer, Agent),
    rule("PUT", "/efm/api/agents/{id}/parameters", Designer, Agent),
    rule("GET", "/efm/api/monitor/agents/{id}", Viewer, Agent),
    rule("GET", "/efm/api/agent-class-manifest-config", Viewer, All),
    rule(
        "POST",
        "/efm/api/agent-class-manifest-config",
        Designer,
        All,
    ),
    rule("PUT", "/efm/api/agent-class-manifest-config", Designer, All),
    rule(
        "GET",
        "/efm/api/agent-class-manifest-config/{class}",
        Viewer,
        Class,
    ),
    rule(
        "DELETE",
        "/efm/api/agent-class-manifest-config/{class}",
        Designer,
        Class,
    ),
    rule("GET", "/efm/api/agent-classes", Viewer, All),
    rule("POST", "/efm/api/agent-classes", Designer, All),
    rule("GET", "/efm/api/agent-classes/{name}", Viewer, Class),
    rule("PUT", "/efm/api/agent-classes/{name}", Designer, Class),
    rule("DELETE", "/efm/api/agent-classes/{name}", Operator, Class),
    rule(
        "GET",
        "/efm/api/agent-classes/{name}/manifest-diff",
        Viewer,
        Class,
    ),
    rule(
        "GET",
        "/efm/api/agent-classes/{name}/parameters",
        Viewer,
        Class,
    ),
    rule(
        "PUT",
        "/efm/api/agent-classes/{name}/parameters",
        Designer,
        Class,
    ),
    rule("GET", "/efm/api/agent-manifests", Viewer, All),
    rule("GET", "/efm/api/agent-manifests/{hash}", Viewer, Manifest),
    rule("GET", "/efm/api/operations", Viewer, All),
    rule("POST", "/efm/api/operations", Operator, All),
    rule("GET", "/efm/api/operations/{id}", Viewer, Operation),
    rule("GET", "/efm/api/events", Viewer, All),
    rule("GET", "/efm/api/designer/flows/summaries", Viewer, All),
    rule("GET", "/efm/api/designer/flows/{id}", Viewer, Flow),
    rule(
        "GET",
        "/efm/api/designer/flows/{id}/parameters",
        Viewer,
        Flow,
    ),
    rule(
        "PUT",
        "/efm/api/designer/flows/{id}/parameters",
        Designer,
        Flow,
    ),
    rule("GET", "/efm/api/designer/flows/{id}/validate", Viewer, Flow),
    rule(
        "POST",
        "/efm/api/designer/flows/{id}/publish",
        Designer,
        Flow,
    ),
    rule(
        "GET",
        "/efm/api/designer/{class}/flows/export",
        Viewer,
        Class,
    ),
    rule(
        "POST",
        "/efm/api/designer/{class}/flows/import",
        Designer,
        Class,
    ),
    rule("GET", "/efm/api/resource-manager/resources", Viewer, All),
    rule(
        "POST",
        "/efm/api/resource-manager/resources/file",
        Designer,
        All,
    ),
    rule(
        "PUT",
        "/efm/api/agent-class-resource-manager/{class}/save",
        Designer,
        Class,
    ),
    rule(
        "GET",
        "/efm/api/agent-class-resource-manager/{class}/assigned",
        Viewer,
        Class,
    ),
    rule("GET", "/efm/actuator/health", Viewer, All),
];
