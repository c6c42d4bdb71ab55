//! Configuration in two stages: what was written (a file, `THALWEG_*` variables, `--set`), laid
//! over the defaults, then read by each role's own type.
//!
//! Every problem is reported at once, each with where it was written. A key that no role knows is
//! a problem: a misspelt key must not fall back to its default in silence.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sql::SecretUrl;

use crate::http::{HttpConfig, Section, SignInConfig};
use crate::telemetry::LogConfig;

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
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut layers = Layers {
        known: defaults.clone(),
        merged: defaults,
        problems: Vec::new(),
    };
    if let Some(path) = file {
        layers.file(path);
    }
    layers.variables(variables);
    for setting in settings {
        layers.setting(setting);
    }
    layers.read()
}

struct Layers {
    known: Value,
    merged: Value,
    problems: Vec<Problem>,
}

impl Layers {
    fn file(&mut self, path: &Path) {
        let origin = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return self.problem(origin, format!("cannot read it: {error}")),
        };
        match toml::from_str::<Map<String, Value>>(&text) {
            Ok(table) => {
                let known = self.known.clone();
                let mut unknown = Vec::new();
                overlay(
                    &mut self.merged,
                    &known,
                    Value::Object(table),
                    "",
                    &mut unknown,
                );
                for key in unknown {
                    let hint = self.hint(&key);
                    self.problem(origin.clone(), format!("unknown key '{key}'{hint}"));
                }
            }
            Err(error) => self.problem(origin, error.to_string().trim_end().to_owned()),
        }
    }

    fn variables(&mut self, variables: impl Iterator<Item = (String, String)>) {
        let mut keys = Vec::new();
        leaves(&self.known, "", &mut keys);
        let mut ours: Vec<(String, String)> = variables
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX))
            .collect();
        ours.sort();
        for (name, value) in ours {
            if OTHER_VARIABLES.iter().any(|other| name.starts_with(other)) {
                continue;
            }
            if let Some((table, chosen)) = OPEN_TABLES.iter().find_map(|table| {
                let chosen = name.strip_prefix(&format!("{}_", variable_name(table)))?;
                Some((table, chosen.to_lowercase().replace('_', ".")))
            }) {
                self.set_chosen(&name, table, &chosen, &value);
                continue;
            }
            match keys.iter().find(|key| variable_name(key) == name) {
                Some(key) => self.set(&name, key, &value),
                None => self.problem(
                    name.clone(),
                    "no configuration key has this variable; `thalweg config` lists the keys"
                        .to_owned(),
                ),
            }
        }
    }

    fn setting(&mut self, setting: &str) {
        let origin = format!("--set {setting}");
        let Some((key, value)) = setting.split_once('=') else {
            return self.problem(origin, "write it as KEY=VALUE".to_owned());
        };
        if let Some((table, chosen)) = OPEN_TABLES.iter().find_map(|table| {
            let chosen = key.trim().strip_prefix(table)?.strip_prefix('.')?;
            Some((table, chosen))
        }) {
            // Its value may be a secret, so it is not repeated.
            return self.set_chosen(
                &format!("--set {}", key.trim()),
                table,
                chosen,
                value.trim(),
            );
        }
        let mut keys = Vec::new();
        leaves(&self.known, "", &mut keys);
        if keys.iter().any(|known| known == key.trim()) {
            self.set(&origin, key.trim(), value.trim());
        } else {
            let hint = self.hint(key.trim());
            self.problem(origin, format!("unknown key '{}'{hint}", key.trim()));
        }
    }

    fn set(&mut self, origin: &str, key: &str, text: &str) {
        let pointer = format!("/{}", key.replace('.', "/"));
        let is_text = matches!(self.known.pointer(&pointer), Some(Value::String(_)));
        let value = if is_text {
            Value::String(text.to_owned())
        } else {
            written_value(text)
        };
        match self.merged.pointer_mut(&pointer) {
            Some(place) => *place = value,
            None => self.problem(origin.to_owned(), format!("'{key}' has no place")),
        }
    }

    /// Sets a name that the user chose in a table without names of its own.
    fn set_chosen(&mut self, origin: &str, table: &str, chosen: &str, text: &str) {
        let pointer = format!("/{}", table.replace('.', "/"));
        match self
            .merged
            .pointer_mut(&pointer)
            .and_then(Value::as_object_mut)
        {
            Some(table) => {
                table.insert(chosen.to_owned(), Value::String(text.to_owned()));
            }
            None => self.problem(origin.to_owned(), format!("'{table}' is no table")),
        }
    }

    fn read(mut self) -> Result<Config, Vec<Problem>> {
        let mut config = Config {
            access: self.section("access"),
            log: self.section("log"),
            streams: self.section("streams"),
            rest: self.port_section("rest"),
            schemas: self.port_section("schemas"),
            mqtt: self.section("mqtt"),
            fusion: self.section("fusion"),
            databases: self.section("databases"),
            fleet: self.port_section("fleet"),
            imports: self.section("imports"),
        };
        for problem in config.streams.problems() {
            self.problem("[streams]".to_owned(), problem);
        }
        match config.rest.role.clone().settled() {
            Ok(settled) => config.rest.role = settled,
            Err(problems) => {
                for problem in problems {
                    self.problem("[rest]".to_owned(), problem);
                }
            }
        }
        for problem in config.access_problems() {
            self.problem("[access]".to_owned(), problem);
        }
        let ports = [
            ("[rest]", &config.rest.http),
            ("[schemas]", &config.schemas.http),
            ("[fleet]", &config.fleet.http),
        ];
        for (section, http) in ports {
            for problem in http.problems() {
                self.problem(section.to_owned(), problem);
            }
        }
        if self.problems.is_empty() {
            Ok(config)
        } else {
            Err(self.problems)
        }
    }

    fn section<T: DeserializeOwned + Default>(&mut self, name: &str) -> T {
        match serde_json::from_value(self.merged[name].clone()) {
            Ok(section) => section,
            Err(error) => {
                self.problem(format!("[{name}]"), error.to_string());
                T::default()
            }
        }
    }

    /// A section of a role with an HTTP port.
    fn port_section<T>(&mut self, name: &str) -> Section<T>
    where
        T: DeserializeOwned + Default,
    {
        match Section::read(self.merged[name].clone()) {
            Ok(section) => section,
            Err(error) => {
                self.problem(format!("[{name}]"), error.to_string());
                Section::default()
            }
        }
    }

    fn hint(&self, key: &str) -> String {
        let mut keys = Vec::new();
        leaves(&self.known, "", &mut keys);
        let near = keys.iter().map(|known| (distance(known, key), known)).min();
        match near {
            Some((distance, known)) if distance <= NEAR => format!("; did you mean '{known}'?"),
            _ => "; `thalweg config` lists the keys".to_owned(),
        }
    }

    fn problem(&mut self, origin: String, text: String) {
        self.problems.push(Problem { origin, text });
    }
}

fn overlay(into: &mut Value, known: &Value, from: Value, at: &str, unknown: &mut Vec<String>) {
    match (into, from) {
        // A table without any known key holds names that the user chooses.
        (Value::Object(into), Value::Object(from))
            if known.as_object().is_some_and(|known| !known.is_empty()) =>
        {
            for (key, value) in from {
                let path = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                match (into.get_mut(&key), known.get(&key)) {
                    (Some(place), Some(known)) => overlay(place, known, value, &path, unknown),
                    _ => unknown.push(path),
                }
            }
        }
        (place, value) => *place = value,
    }
}

fn leaves(value: &Value, at: &str, keys: &mut Vec<String>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let path = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                leaves(value, &path, keys);
            }
        }
        _ => keys.push(at.to_owned()),
    }
}

fn variable_name(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// A value as TOML writes it; text that is no TOML value stands for itself.
fn written_value(text: &str) -> Value {
    toml::from_str::<Map<String, Value>>(&format!("value = {text}"))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Levenshtein's distance, for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != *y))
                .min(above + 1)
                .min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}

const VARIABLE_PREFIX: &str = "THALWEG_";
/// Variables that are read elsewhere: command line options, and the agent's own.
const OTHER_VARIABLES: [&str; 8] = [
    "THALWEG_CA",
    "THALWEG_TOKEN_FILE",
    "THALWEG_LOGIN",
    "THALWEG_LOGIN_PASSWORD_FILE",
    "THALWEG_DATA",
    "THALWEG_CONFIG",
    "THALWEG_SERVER",
    "THALWEG_AGENT_",
];
/// Tables whose names the user chooses, so that `--set TABLE.NAME=VALUE` and variables reach them; a
/// variable's underscores are the name's dots.
const OPEN_TABLES: [&str; 7] = [
    "databases",
    "fusion.control.keys",
    "fusion.control.servers",
    "fusion.node.labels",
    "streams.kafka.properties",
    "rest.properties",
    "access.roles",
];
/// Keys at most this many letters away are suggested.
const NEAR: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(loaded: Result<Config, Vec<Problem>>) -> Vec<String> {
        loaded.map_or_else(
            |p| p.iter().map(ToString::to_string).collect(),
            |_| Vec::new(),
        )
    }

    #[test]
    fn the_defaults_file_says_what_the_code_does() {
        let table: Map<String, Value> = toml::from_str(DEFAULTS).unwrap();
        let known = serde_json::to_value(Config::default()).unwrap();
        let (mut merged, mut unknown) = (known.clone(), Vec::new());
        overlay(&mut merged, &known, Value::Object(table), "", &mut unknown);
        assert_eq!(unknown, Vec::<String>::new());
        assert_eq!(merged, known);
        let mut keys = Vec::new();
        leaves(&known, "", &mut keys);
        for key in keys {
            let last = key.rsplit('.').next().unwrap_or_default();
            assert!(
                DEFAULTS.contains(&format!("{last} =")),
                "defaults.toml does not name {key}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_an_http_port_is_told_in_its_section() {
        let settings = [
            "rest.tls.certificate=c.pem",
            "fleet.cors.allowed_origins=[\"example.org\"]",
            "access.jwt.jwks=keys.json",
            "rest.rate_limit.requests_per_second=-1",
        ];
        let settings = settings.map(str::to_owned);
        let problems = texts(load(None, std::iter::empty(), &settings[..3]));
        assert_eq!(problems.len(), 3, "{problems:?}");
        for (problem, part) in
            problems
                .iter()
                .zip(["[access]: jwt.jwks", "[rest]: tls.", "[fleet]: cors."])
        {
            assert!(problem.starts_with(part), "{problem}");
        }
        let problems = texts(load(None, std::iter::empty(), &settings[3..]));
        assert!(
            problems.len() == 1 && problems[0].starts_with("[rest]"),
            "{problems:?}"
        );
    }

    #[test]
    fn only_ports_that_ask_everybody_know_their_callers() {
        let tls = "tls.certificate=c\ntls.key=k\ntls.client_ca=a";
        let known = |settings: &str| {
            let settings: Vec<String> = settings.split_whitespace().map(str::to_owned).collect();
            let config = load(None, std::iter::empty(), &settings).unwrap();
            (
                config.knows_callers_of(&config.rest.http),
                config.knows_callers_of_management(),
            )
        };
        let of = |role: &str| tls.replace("tls.", &format!("{role}.tls."));
        let (rest, fleet) = (of("rest"), of("fleet"));
        assert_eq!(known("streams.authorization=acl"), (false, false));
        assert_eq!(known(&rest), (false, false));
        assert_eq!(
            known(&format!("{rest} {fleet} streams.authorization=acl")),
            (true, false)
        );
        let required = "rest.tls.client_auth=required fleet.tls.client_auth=required";
        assert_eq!(known(&format!("{rest} {fleet} {required}")), (true, true));
    }

    #[test]
    fn later_layers_win_and_values_keep_their_types() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("thalweg.toml");
        std::fs::write(
            &file,
            "[streams]\nlisten = \"127.0.0.1:1\"\ndefault_partitions = 3\n",
        )
        .unwrap();
        let variables = [
            (
                "THALWEG_STREAMS_LISTEN".to_owned(),
                "127.0.0.1:2".to_owned(),
            ),
            ("THALWEG_DATA".to_owned(), "elsewhere".to_owned()),
        ];
        let settings = ["mqtt.listen=127.0.0.1:0".to_owned()];
        let config = load(Some(&file), variables.into_iter(), &settings).unwrap();
        let value = serde_json::to_value(&config).unwrap();
        assert_eq!(value["streams"]["listen"], "127.0.0.1:2");
        assert_eq!(value["streams"]["default_partitions"], 3);
        assert_eq!(value["mqtt"]["listen"], "127.0.0.1:0");
    }

    #[test]
    fn names_of_the_users_choice_come_by_every_way_and_are_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("thalweg.toml");
        let text = "[streams.kafka]\nbootstrap_servers = \"a:1\"\n\
                    [streams.kafka.properties]\nsecurity.protocol = \"sasl_ssl\"\n";
        std::fs::write(&file, text).unwrap();
        let variable = "THALWEG_STREAMS_KAFKA_PROPERTIES_SASL_PASSWORD";
        let variables = [(variable.to_owned(), "hush".to_owned())];
        let user = "streams.kafka.properties.sasl.username=u".to_owned();
        let config = load(Some(&file), variables.clone().into_iter(), &[user]).unwrap();
        let kafka = &config.streams.kafka;
        let shown = format!("{kafka:?}");
        for part in ["sasl_ssl", "sasl.username", "sasl.password"] {
            assert!(shown.contains(part), "{shown}");
        }
        assert!(!shown.contains("hush"), "{shown}");
        let wrong = "streams.kafka.properties.no.such=hush".to_owned();
        let problems = texts(load(Some(&file), variables.into_iter(), &[wrong]));
        assert!(
            problems.len() == 1 && problems[0].contains("no.such") && !problems[0].contains("hush"),
            "{problems:?}"
        );
    }

    #[test]
    fn every_problem_is_told_at_once_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("thalweg.toml");
        std::fs::write(&file, "[streams]\nlisten_on = \"x\"\n[nowhere]\na = 1\n").unwrap();
        let variables = [("THALWEG_NONSENSE".to_owned(), "1".to_owned())];
        let settings = [
            "fleet.lisen=1".to_owned(),
            "streams.default_partitions=many".to_owned(),
        ];
        let problems = texts(load(Some(&file), variables.into_iter(), &settings));
        let path = file.display();
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(problems.contains(&format!(
            "{path}: unknown key 'streams.listen_on'; did you mean 'streams.listen'?"
        )));
        assert!(
            problems.iter().any(|p| p.contains("unknown key 'nowhere")),
            "{problems:?}"
        );
        assert!(
            problems.iter().any(|p| p.starts_with("THALWEG_NONSENSE: ")),
            "{problems:?}"
        );
        assert!(
            problems
                .iter()
                .any(|p| p.contains("did you mean 'fleet.listen'?"))
        );
        assert!(
            problems.iter().any(|p| p.starts_with("[streams]: ")),
            "{problems:?}"
        );
    }

    #[test]
    fn roles_and_issuers_need_callers_who_are_asked() {
        let load = |settings: &[&str]| {
            let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
            texts(load(None, std::iter::empty(), &settings))
        };
        let asked = "access.management_logins=true";
        let issuer = "access.jwt.issuer=https://id.example.org";
        let roles = "access.roles.User:ann=operator:edge,viewer";
        for settings in [
            &[asked, roles][..],
            &[asked, issuer, "access.jwt.discover=true"],
            &["streams.authorization=acl", roles],
        ] {
            assert_eq!(load(settings), [""; 0], "{settings:?}");
        }
        for (settings, told) in [
            (&[roles][..], "roles needs management_logins"),
            (
                &[issuer, "access.jwt.discover=true"],
                "jwt.discover needs management_logins",
            ),
            (&[asked, "access.jwt.discover=true"], "needs jwt.issuer"),
            (
                &[
                    asked,
                    "access.jwt.discover=true",
                    "access.jwt.issuer=http://id.example.org",
                ],
                "of https",
            ),
            (
                &[asked, "access.sign_in.client_id=console"],
                "needs jwt.discover",
            ),
            (
                &[
                    asked,
                    issuer,
                    "access.jwt.discover=true",
                    "access.sign_in.client_id=console",
                ],
                "needs jwt.audience",
            ),
            (&[asked, "access.sign_in.address=http://fleet"], "of https"),
            (&[asked, "access.roles.User:ann=king"], "write viewer"),
            (&[asked, "access.roles.ann=viewer"], "User:"),
        ] {
            let problems = load(settings);
            assert!(
                problems.len() == 1 && problems[0].contains(told),
                "{problems:?}"
            );
        }
    }
}
