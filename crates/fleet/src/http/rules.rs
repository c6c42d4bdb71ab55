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

/// A route that changes nothing: whoever may see what it is about may call it.
const fn read(path: &'static str, about: About) -> Rule {
    rule("GET", path, Viewer, about)
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
    read("/api/v1/agents", All),
    read("/api/v1/agents/{id}", Agent),
    rule("DELETE", "/api/v1/agents/{id}", Operator, Agent),
    rule("PUT", "/api/v1/agents/{id}/class", Operator, Agent),
    rule("DELETE", "/api/v1/agents/{id}/class", Operator, Agent),
    rule("POST", "/api/v1/agents/{id}/operations", Operator, Agent),
    read("/api/v1/agents/{id}/parameters", Agent),
    rule("PATCH", "/api/v1/agents/{id}/parameters", Designer, Agent),
    read("/api/v1/audit", All),
    read("/api/v1/bundles", All),
    read("/api/v1/bundles/{id}", Bundle),
    rule("DELETE", "/api/v1/bundles/{id}", Operator, Bundle),
    read("/api/v1/bundles/{id}/content", Bundle),
    read("/api/v1/classes", All),
    read("/api/v1/classes/{name}", Class),
    rule("PUT", "/api/v1/classes/{name}", Designer, Class),
    rule("DELETE", "/api/v1/classes/{name}", Operator, Class),
    read("/api/v1/classes/{name}/flows", Class),
    rule("POST", "/api/v1/classes/{name}/flows", Designer, Class),
    rule("POST", "/api/v1/classes/{name}/flows/check", Viewer, Class),
    rule("POST", "/api/v1/classes/{name}/operations", Operator, Class),
    read("/api/v1/classes/{id}/parameters", Class),
    rule("PATCH", "/api/v1/classes/{id}/parameters", Designer, Class),
    read("/api/v1/classes/{name}/resources", Class),
    rule("PUT", "/api/v1/classes/{name}/resources", Designer, Class),
    read("/api/v1/classes/{name}/rollouts", Class),
    rule("POST", "/api/v1/classes/{name}/rollouts", Operator, Class),
    read("/api/v1/classes/{name}/manifest", Class),
    rule("PUT", "/api/v1/classes/{name}/manifest", Designer, Class),
    rule("DELETE", "/api/v1/classes/{name}/manifest", Designer, Class),
    read("/api/v1/events", All),
    read("/api/v1/fleet", All),
    read("/api/v1/flows/{id}", Flow),
    rule("POST", "/api/v1/flows/{id}/publish", Designer, Flow),
    read("/api/v1/flows/{id}/diff", Flow),
    read("/api/v1/flows/{id}/parameters", Flow),
    rule("PATCH", "/api/v1/flows/{id}/parameters", Designer, Flow),
    read("/api/v1/manifests", All),
    read("/api/v1/manifests/{hash}", Manifest),
    rule("DELETE", "/api/v1/manifests/{hash}", Operator, Manifest),
    read("/api/v1/manifests/{hash}/diff", Manifest),
    read("/api/v1/operations", All),
    read("/api/v1/operations/{id}", Operation),
    read("/api/v1/operations/{id}/result", Operation),
    rule(
        "POST",
        "/api/v1/operations/{id}/cancel",
        Operator,
        Operation,
    ),
    read("/api/v1/requests", All),
    read("/api/v1/requests/{id}", Request),
    rule("PATCH", "/api/v1/requests/{id}", Operator, Request),
    rule("POST", "/api/v1/requests/{id}/cancel", Operator, Request),
    read("/api/v1/resources", All),
    rule("POST", "/api/v1/resources", Designer, All),
    read("/api/v1/resources/{id}", Resource),
    rule("DELETE", "/api/v1/resources/{id}", Designer, Resource),
    read("/api/v1/resources/{id}/content", Resource),
    read("/api/v1/rollouts/{id}", Rollout),
    rule("POST", "/api/v1/rollouts/{id}/{wish}", Operator, Rollout),
    read("/api/v1/openapi.json", All),
    read("/efm/api/agents", All),
    read("/efm/api/agents/page", All),
    read("/efm/api/agents/{id}", Agent),
    rule("DELETE", "/efm/api/agents/{id}", Operator, Agent),
    read("/efm/api/agents/{id}/parameters", Agent),
    rule("PUT", "/efm/api/agents/{id}/parameters", Designer, Agent),
    read("/efm/api/monitor/agents/{id}", Agent),
    read("/efm/api/agent-class-manifest-config", All),
    rule(
        "POST",
        "/efm/api/agent-class-manifest-config",
        Designer,
        All,
    ),
    rule("PUT", "/efm/api/agent-class-manifest-config", Designer, All),
    read("/efm/api/agent-class-manifest-config/{class}", Class),
    rule(
        "DELETE",
        "/efm/api/agent-class-manifest-config/{class}",
        Designer,
        Class,
    ),
    read("/efm/api/agent-classes", All),
    rule("POST", "/efm/api/agent-classes", Designer, All),
    read("/efm/api/agent-classes/{name}", Class),
    rule("PUT", "/efm/api/agent-classes/{name}", Designer, Class),
    rule("DELETE", "/efm/api/agent-classes/{name}", Operator, Class),
    read("/efm/api/agent-classes/{name}/manifest-diff", Class),
    read("/efm/api/agent-classes/{name}/parameters", Class),
    rule(
        "PUT",
        "/efm/api/agent-classes/{name}/parameters",
        Designer,
        Class,
    ),
    read("/efm/api/agent-manifests", All),
    read("/efm/api/agent-manifests/{hash}", Manifest),
    rule(
        "DELETE",
        "/efm/api/agent-manifests/{hash}",
        Operator,
        Manifest,
    ),
    read("/efm/api/operations", All),
    rule("POST", "/efm/api/operations", Operator, All),
    read("/efm/api/operations/{id}", Operation),
    read("/efm/api/events", All),
    read("/efm/api/designer/flows/summaries", All),
    read("/efm/api/designer/flows/{id}", Flow),
    read("/efm/api/designer/flows/{id}/parameters", Flow),
    rule(
        "PUT",
        "/efm/api/designer/flows/{id}/parameters",
        Designer,
        Flow,
    ),
    read("/efm/api/designer/flows/{id}/validate", Flow),
    rule(
        "POST",
        "/efm/api/designer/flows/{id}/publish",
        Designer,
        Flow,
    ),
    read("/efm/api/designer/{class}/flows/export", Class),
    rule(
        "POST",
        "/efm/api/designer/{class}/flows/import",
        Designer,
        Class,
    ),
    read("/efm/api/resource-manager/resources", All),
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
    read(
        "/efm/api/agent-class-resource-manager/{class}/assigned",
        Class,
    ),
];
