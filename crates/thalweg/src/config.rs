//! Configuration in two stages: what was written (a file, `THALWEG_*` variables, `--set`), laid
//! over the defaults, then read by each role's own type.
//!
//! Every problem is reported at once, each with where it was written. A key that no role knows is
//! a problem: a misspelt key must not fall back to its default in silence.

mod layers;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sql::SecretUrl;

use crate::http::{HttpConfig, Section, SignInConfig};
use crate::telemetry::LogConfig;

use layers::Layers;

/// The default configuration as a file, every key with its meaning.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// The configuration of one process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Config {
    /// Who may reach the ports.
    pub access: AccessConfig,
    /// Logs.
    pub log: LogConfig,
    /// The event store and its Kafka listener.
    pub streams: streams::StreamsConfig,
    /// The REST proxy.
    pub rest: Section<rest::RestConfig>,
    /// The schema registry.
    pub schemas: Section<rest::SchemasConfig>,
    /// The MQTT server.
    pub mqtt: mqtt::MqttConfig,
    /// Statements.
    pub fusion: fusion::FusionConfig,
    /// Databases whose tables statements may write to, by name: `postgres://…`, `mysql://…` or
    /// `sqlite:FILE` in the data folder.
    pub databases: BTreeMap<String, SecretUrl>,
    /// The C2 server and the management port.
    pub fleet: Section<fleet::FleetConfig>,
    /// Bulk imports.
    pub imports: imports::ImportsConfig,
}

/// Section `[access]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// Allows listeners beyond this machine that do not ask callers who they are.
    pub allow_remote: bool,
    /// Lets anybody read the metrics where ACLs are followed.
    pub open_metrics: bool,
    /// Asks callers of the management port who they are, and holds them to their roles, also where
    /// `streams.authorization` is off.
    pub management_logins: bool,
    /// Roles by `User:NAME` and `group:NAME`, beside those that were granted.
    pub roles: access::RoleTable,
    /// Whose JSON Web Tokens are taken over HTTP.
    pub jwt: access::JwtConfig,
    /// How people sign in to the console by the issuer of these.
    pub sign_in: SignInConfig,
}

impl Config {
    /// Whether every caller of a port that asks for logins shows who they are, and no password
    /// travels in the clear.
    pub fn knows_callers_of(&self, http: &HttpConfig) -> bool {
        let asks_for_logins = self.streams.access_policy().is_some();
        http.asks_for_certificates() || (http.tls.is_on() && asks_for_logins)
    }

    /// All that is wrong with the section `[access]` beside the others.
    fn access_problems(&self) -> Vec<String> {
        let (jwt, mut problems) = (&self.access.jwt, Vec::new());
        let asks = self.access.management_logins || self.streams.access_policy().is_some();
        let is_asked = [
            (jwt.jwks.is_some(), "jwt.jwks"),
            (jwt.discover, "jwt.discover"),
            (self.access.roles != access::RoleTable::default(), "roles"),
        ];
        for (_, key) in is_asked.into_iter().filter(|(is_set, _)| *is_set && !asks) {
            problems.push(format!(
                "{key} needs management_logins = true, or streams.authorization = \"acl\": nobody is \
                 asked without"
            ));
        }
        if jwt.discover && jwt.jwks.is_some() {
            let text =
                "jwt.discover asks the issuer for its keys, and jwt.jwks names a file: set one";
            problems.push(text.to_owned());
        }
        let is_private = |issuer: &String| crate::http::is_private(issuer);
        if jwt.discover && !jwt.issuer.as_ref().is_some_and(is_private) {
            problems.push("jwt.discover needs jwt.issuer, an address of https".to_owned());
        }
        if let Some(client) = &self.access.sign_in.client_id {
            if !jwt.discover {
                problems
                    .push("sign_in.client_id needs jwt.discover = true and jwt.issuer".to_owned());
            } else if jwt.audience.as_ref() != Some(client) {
                let text = "sign_in.client_id needs jwt.audience to be the same: an issuer's ID tokens \
                            are for the client that asked for them";
                problems.push(text.to_owned());
            }
        }
        let address = self.access.sign_in.address.as_ref();
        if address.is_some_and(|address| !is_private(address)) {
            problems.push("sign_in.address has to be an address of https".to_owned());
        }
        problems
    }

    /// The same of the management port, where agents and `/health` need no login.
    pub fn knows_callers_of_management(&self) -> bool {
        self.fleet.http.asks_for_certificates()
    }
}

/// One thing that is wrong with what was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    origin: String,
    text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}

/// Lays a file, environment variables and `KEY=VALUE` settings over the defaults, in this order.
///
/// # Errors
/// Every problem found, in the order of the layers.
pub fn load(
    file: Option<&Path>,
    variables: impl Iterator<Item = (String, String)>,
    settings: &[String],
) -> Result<Config, Vec<Problem>> {
    let mut layers = Layers::over_defaults();
    if let Some(path) = file {
        layers.file(path);
    }
    layers.variables(variables);
    for setting in settings {
        layers.setting(setting);
    }
    layers.read()
}

/// The environment's variables that may be meant for the configuration; others may hold what is no
/// text.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.to_string_lossy().into_owned()))
    })
}

#[cfg(test)]
mod tests;
