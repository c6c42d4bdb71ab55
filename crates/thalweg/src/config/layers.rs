//! What a file, variables and settings say, laid over the defaults key by key.

use std::collections::BTreeSet;
use std::path::Path;

use base::letters_apart;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Config, Problem};
use crate::http::Section;

/// The defaults, what was laid over them, and what was wrong with it.
pub(super) struct Layers {
    known: Value,
    merged: Value,
    problems: Vec<Problem>,
}

impl Layers {
    pub(super) fn over_defaults() -> Self {
        let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
        Layers {
            known: defaults.clone(),
            merged: defaults,
            problems: Vec::new(),
        }
    }

    pub(super) fn file(&mut self, path: &Path) {
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

    pub(super) fn variables(&mut self, variables: impl Iterator<Item = (String, String)>) {
        let mut keys = Vec::new();
        leaves(&self.known, "", &mut keys);
        let mut ours: Vec<(String, String)> = variables
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX))
            .collect();
        ours.sort();
        for (name, value) in ours {
            if OTHER_VARIABLES.contains(&name.as_str()) || name.starts_with(AGENT_VARIABLE_PREFIX) {
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
                None => {
                    let names = keys.iter().map(|key| variable_name(key));
                    let hint = nearest(names, &name).map_or_else(
                        || LISTED.to_owned(),
                        |near| format!("; did you mean '{near}'?"),
                    );
                    self.problem(
                        name,
                        format!("no configuration key has this variable{hint}"),
                    );
                }
            }
        }
    }

    pub(super) fn setting(&mut self, setting: &str) {
        let Some((key, value)) = setting.split_once('=') else {
            return self.problem(
                format!("--set {setting}"),
                "write it as KEY=VALUE".to_owned(),
            );
        };
        // Its value may be a secret, so it is not repeated.
        let origin = format!("--set {}", key.trim());
        if let Some((table, chosen)) = OPEN_TABLES.iter().find_map(|table| {
            let chosen = key.trim().strip_prefix(table)?.strip_prefix('.')?;
            Some((table, chosen))
        }) {
            return self.set_chosen(&origin, table, chosen, value.trim());
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

    pub(super) fn read(mut self) -> Result<Config, Vec<Problem>> {
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
        if let Some(problem) = config.log.problem() {
            self.problem("log.level".to_owned(), problem);
        }
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
        self.read_section(name, serde_json::from_value)
    }

    /// A section of a role with an HTTP port.
    fn port_section<T>(&mut self, name: &str) -> Section<T>
    where
        T: DeserializeOwned + Default,
    {
        self.read_section(name, Section::read)
    }

    /// Reads a section; where that fails, each key that fails by itself is told.
    fn read_section<T: Default, E: std::fmt::Display>(
        &mut self,
        name: &str,
        read: impl Fn(Value) -> Result<T, E>,
    ) -> T {
        let given = self.merged[name].clone();
        let error = match read(given.clone()) {
            Ok(section) => return section,
            Err(error) => error,
        };
        let mut keys = Vec::new();
        leaves(&self.known[name], "", &mut keys);
        let problems = self.problems.len();
        for key in keys {
            let pointer = format!("/{}", key.replace('.', "/"));
            let mut alone = self.known[name].clone();
            let place = alone.pointer_mut(&pointer).zip(given.pointer(&pointer));
            let Some((place, value)) = place else {
                continue;
            };
            *place = value.clone();
            if let Err(error) = read(alone) {
                self.problem(format!("{name}.{key}"), error.to_string());
            }
        }
        if self.problems.len() == problems {
            self.problem(format!("[{name}]"), error.to_string());
        }
        T::default()
    }

    fn hint(&self, key: &str) -> String {
        let mut keys = Vec::new();
        leaves(&self.known, "", &mut keys);
        if let Some(near) = nearest(keys.iter().cloned(), key) {
            return format!("; did you mean '{near}'?");
        }
        match &elsewhere(&keys, key)[..] {
            [] => LISTED.to_owned(),
            [known] => format!("; did you mean '{known}'?"),
            several => format!("; did you mean one of {}?", several.join(", ")),
        }
    }

    fn problem(&mut self, origin: String, text: String) {
        self.problems.push(Problem { origin, text });
    }
}

pub(super) fn overlay(
    into: &mut Value,
    known: &Value,
    from: Value,
    at: &str,
    unknown: &mut Vec<String>,
) {
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

pub(super) fn leaves(value: &Value, at: &str, keys: &mut Vec<String>) {
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

/// The name that is meant by one with few letters wrong.
fn nearest(known: impl Iterator<Item = String>, name: &str) -> Option<String> {
    let near = known
        .map(|known| (letters_apart(name, &known), known))
        .min();
    near.filter(|(distance, _)| *distance <= NEAR)
        .map(|(_, known)| known)
}

/// Keys and tables that are called as `key` is at its end and stand elsewhere, where they are few.
fn elsewhere<'k>(keys: &'k [String], key: &str) -> Vec<&'k str> {
    let last = key.rsplit('.').next().unwrap_or_default();
    let mut found = BTreeSet::new();
    for known in keys {
        let ends = known.match_indices('.').map(|(at, _)| at);
        for end in ends.chain([known.len()]) {
            let path = &known[..end];
            if path.rsplit('.').next() == Some(last) {
                found.insert(path);
            }
        }
    }
    match found.len() {
        ..=ELSEWHERE => found.into_iter().collect(),
        _ => Vec::new(),
    }
}

const VARIABLE_PREFIX: &str = "THALWEG_";
/// Variables that are read elsewhere, by command line options; the agent's own begin with
/// [`AGENT_VARIABLE_PREFIX`].
const OTHER_VARIABLES: [&str; 9] = [
    "THALWEG_CA",
    "THALWEG_CLIENT_CERT",
    "THALWEG_CLIENT_KEY",
    "THALWEG_TOKEN_FILE",
    "THALWEG_LOGIN",
    "THALWEG_LOGIN_PASSWORD_FILE",
    "THALWEG_DATA",
    "THALWEG_CONFIG",
    "THALWEG_SERVER",
];
const AGENT_VARIABLE_PREFIX: &str = "THALWEG_AGENT_";
/// Tables whose names the user chooses, so that `--set TABLE.NAME=VALUE` and variables reach them; a
/// variable's underscores are the name's dots.
pub(super) const OPEN_TABLES: [&str; 7] = [
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
/// So many keys of the same name in other places are suggested.
const ELSEWHERE: usize = 4;
/// What is said where nothing can be suggested.
const LISTED: &str = "; `thalweg config` lists the keys";
