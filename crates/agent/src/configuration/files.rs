//! Reads settings out of their files, each with its place, without knowing what they mean.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{KEY_NAMES, Placed, Sources, find, no_such_key};
use crate::AgentError;
use crate::limits::CONFIGURATION_BYTES_MAX;

/// What the files hold.
#[derive(Default)]
pub(super) struct Read {
    pub(super) values: BTreeMap<String, Placed>,
    pub(super) files: Vec<PathBuf>,
    pub(super) problems: Vec<String>,
    pub(super) home: Option<PathBuf>,
}

impl Read {
    pub(super) fn all(&mut self, sources: &Sources) -> Result<(), AgentError> {
        if let Some(path) = &sources.properties {
            let home = home(path);
            let log = path.with_file_name("minifi-log.properties");
            if log.exists() && log != *path {
                self.properties(&log, &home, LOG)?;
            }
            self.properties(path, &home, "")?;
            for overlay in overlays(path)? {
                self.properties(&overlay, &home, "")?;
            }
            let bootstrap = path.with_file_name("bootstrap.conf");
            if bootstrap.exists() {
                self.bootstrap(&bootstrap)?;
            }
            self.home = Some(home);
        }
        if let Some(path) = &sources.toml {
            self.toml(path)?;
        }
        for set in &sources.set {
            match set.split_once('=') {
                Some((name, value)) => self.put(name.trim(), value.trim(), format!("--set {set}")),
                None => self
                    .problems
                    .push(format!("--set {set}: write it as KEY=VALUE")),
            }
        }
        Ok(())
    }

    /// The key of sealed values, as it stands.
    pub(super) fn key(&self) -> Option<String> {
        let placed = KEY_NAMES.iter().find_map(|name| self.values.get(*name));
        placed.map(|placed| placed.value.clone())
    }

    /// A properties file whose keys have `prefix` in front.
    fn properties(&mut self, path: &Path, home: &Path, prefix: &str) -> Result<(), AgentError> {
        let text = read(path)?;
        let home = home.display().to_string();
        for (index, line) in lines(&text) {
            let place = format!("{} line {index}", path.display());
            match line.split_once('=') {
                Some((name, value)) => {
                    let name = format!("{prefix}{}", name.trim());
                    self.put(&name, &value.trim().replace("${MINIFI_HOME}", &home), place);
                }
                None => self.problems.push(format!("{place}: this is no key=value")),
            }
        }
        self.files.push(path.to_owned());
        Ok(())
    }

    /// Of `bootstrap.conf`, which sets up Java besides, only keys that are known.
    fn bootstrap(&mut self, path: &Path) -> Result<(), AgentError> {
        for (index, line) in lines(&read(path)?) {
            let Some((name, value)) = line.split_once('=') else {
                continue;
            };
            if find(name.trim()).is_some() {
                let place = format!("{} line {index}", path.display());
                self.put(name.trim(), value.trim(), place);
            }
        }
        self.files.push(path.to_owned());
        Ok(())
    }

    fn toml(&mut self, path: &Path) -> Result<(), AgentError> {
        let text = read(path)?;
        let table: toml::Table = toml::from_str(&text).map_err(|error| {
            AgentError::Setting(format!("{} is no TOML: {error}", path.display()))
        })?;
        self.flatten("", &table, path);
        self.files.push(path.to_owned());
        Ok(())
    }

    fn flatten(&mut self, prefix: &str, table: &toml::Table, path: &Path) {
        for (name, value) in table {
            let name = match prefix {
                "" => name.clone(),
                _ => format!("{prefix}.{name}"),
            };
            let place = format!("{} {name}", path.display());
            if let toml::Value::Table(table) = value {
                self.flatten(&name, table, path);
            } else if let Some(text) = scalar(value) {
                self.put(&name, &text, place);
            } else {
                self.problems
                    .push(format!("{place}: must be a single value or a list"));
            }
        }
    }

    /// An empty value is as good as none, but its key must be known.
    fn put(&mut self, name: &str, value: &str, place: String) {
        let own = match find(name) {
            None => {
                self.problems
                    .push(format!("{place}: {}", no_such_key(name)));
                return;
            }
            Some(key) if key.is_prefix => name,
            Some(key) => key.kind.name,
        };
        if value.is_empty() {
            self.values.remove(own);
            return;
        }
        let value = value.to_owned();
        self.values.insert(own.to_owned(), Placed { value, place });
    }
}

/// Lines that say something, with their numbers.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    let lines = lines.map(|(index, line)| (index + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(['#', '!']))
}

/// What `${MINIFI_HOME}` is: the environment's, else the folder above `conf`.
fn home(properties: &Path) -> PathBuf {
    if let Some(home) = std::env::var_os("MINIFI_HOME") {
        return home.into();
    }
    let whole = std::path::absolute(properties).unwrap_or_else(|_| properties.to_owned());
    let folder = whole.parent().unwrap_or(Path::new("."));
    match folder.parent() {
        Some(above) if folder.ends_with("conf") => above.to_owned(),
        _ => folder.to_owned(),
    }
}

/// `X.d/*.properties` beside a file X, in the order of their names.
fn overlays(properties: &Path) -> Result<Vec<PathBuf>, AgentError> {
    let mut folder = properties.as_os_str().to_owned();
    folder.push(".d");
    let folder = PathBuf::from(folder);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let unread = |source| AgentError::File {
        action: "read",
        path: folder.clone(),
        source,
    };
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(unread)? {
        let file = entry.map_err(unread)?.path();
        if file
            .extension()
            .is_some_and(|ending| ending == "properties")
        {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn scalar(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(scalar).collect();
            items.map(|items| items.join(","))
        }
        _ => None,
    }
}

fn read(path: &Path) -> Result<String, AgentError> {
    let text = crate::supervisor::read(path)?;
    if text.len() > CONFIGURATION_BYTES_MAX {
        return Err(AgentError::Setting(format!(
            "{} is longer than {CONFIGURATION_BYTES_MAX} bytes",
            path.display()
        )));
    }
    Ok(text)
}

/// What keys begin with that stand in `minifi-log.properties` without it.
const LOG: &str = "nifi.log.";
