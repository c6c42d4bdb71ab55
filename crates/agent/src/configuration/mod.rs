//! The agent's settings: MiNiFi's properties files, our own TOML, and single values.
//!
//! # Where they stand
//!
//! Later ones win: `minifi.properties`, the files `*.properties` of the folder
//! `minifi.properties.d` beside it in their names' order, `agent.toml`, each `--set KEY=VALUE`.
//! Keys and values are the same everywhere; TOML has them in tables of snake_case names
//! (`repositories.content = "FileSystemRepository"`), and `--set` takes both spellings. Of
//! `bootstrap.conf` beside a properties file the keys of this table are taken, and the keys of
//! `minifi-log.properties` are those below `nifi.log.`.
//!
//! `${MINIFI_HOME}` in a value is the environment's, else the folder above the properties file's;
//! files with relative paths are looked for in the working folder, then there.
//! A value `enc{…}` is opened by the key of sealed values.
//!
//! # What they do
//!
//! [`KEYS`] is one ordered table. A key is honoured, or ignored with a note that says why, or
//! refused with a message that says what to do instead. A key that the table does not have is
//! refused with its file and line, and so is a value that cannot be; all at once.

mod encryption;
mod files;
mod key;
mod options;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::AgentError;
use crate::parameters::SecretKey;
use crate::processors::{PropertyKind, Shape};

pub use table::KEYS;

/// One key of the table.
#[derive(Debug)]
pub struct Key {
    /// Its name in properties files, its meaning, default and shape.
    pub kind: PropertyKind,
    /// Its place in TOML, `table.name`; empty where it has none.
    pub toml: &'static str,
    /// What it does.
    pub effect: Effect,
    /// Whether it stands for every key that begins with its name.
    pub is_prefix: bool,
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// What it says.
    Honoured,
    /// Nothing, for this reason.
    Ignored(&'static str),
    /// It cannot be had, this value or any; what to do instead.
    Refused(Option<&'static str>, &'static str),
}

/// Where settings stand.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// A file in the manner of `minifi.properties`.
    pub properties: Option<PathBuf>,
    /// A file in the manner of `agent.toml`.
    pub toml: Option<PathBuf>,
    /// Single values, `KEY=VALUE`.
    pub set: Vec<String>,
}

/// The settings of an agent, checked.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    values: BTreeMap<String, String>,
    /// The files that they were read from.
    pub files: Vec<PathBuf>,
    /// Keys that are set and do nothing, each with the reason.
    pub notes: Vec<String>,
    key: Option<SecretKey>,
    /// What relative paths are looked for in besides the working folder.
    home: Option<PathBuf>,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
struct Placed {
    value: String,
    place: String,
}

/// The key of the table that `name` means, in properties' spelling or in TOML's. Keys of C2 may
/// stand without `nifi.` before them, as MiNiFi C++ called them until its version 0.6.
pub fn find(name: &str) -> Option<&'static Key> {
    let is_old =
        |key: &Key| name.starts_with("c2.") && key.kind.name.strip_prefix("nifi.") == Some(name);
    let exact =
        |key: &&Key| !key.is_prefix && (key.kind.name == name || key.toml == name || is_old(key));
    let begins = |key: &&Key| key.is_prefix && name.starts_with(key.kind.name);
    let named = KEYS.iter().find(exact).filter(|_| !name.is_empty());
    named.or_else(|| KEYS.iter().find(begins))
}

/// That no key is called so, and which one nearly is.
fn no_such_key(name: &str) -> String {
    let keys = KEYS.iter().filter(|key| !key.is_prefix);
    let spellings = keys.flat_map(|key| [key.kind.name, key.toml]);
    let near = spellings.map(|known| (base::letters_apart(name, known), known));
    let near = near.filter(|(apart, known)| *apart <= LETTERS_APART && !known.is_empty());
    let near = near.min();
    let hint = near.map_or_else(String::new, |(_, known)| {
        format!("; did you mean '{known}'?")
    });
    format!("there is no key '{name}'{hint}")
}

/// Keys with so many letters wrong are suggested.
const LETTERS_APART: usize = 3;

impl Configuration {
    /// Reads and checks the settings. `data` is the data folder, whose key opens sealed values.
    ///
    /// Errors: a file that cannot be read, or `Setting` with every problem, one to a line.
    pub fn read(sources: &Sources, data: &Path) -> Result<Configuration, AgentError> {
        let mut read = files::Read::default();
        read.all(sources)?;
        let key = match read.key() {
            Some(text) => Some(
                SecretKey::parse(&text)
                    .map_err(|error| AgentError::Setting(format!("{}: {error}", KEY_NAMES[0])))?,
            ),
            None => SecretKey::in_folder(data)?,
        };
        let mut made = Configuration {
            files: read.files,
            key,
            home: read.home,
            ..Configuration::default()
        };
        let mut problems = read.problems;
        for (name, placed) in read.values {
            if let Err(problem) = made.take(&name, &placed) {
                problems.push(format!("{}: {problem}", placed.place));
            }
        }
        if problems.is_empty() {
            made.repository()?;
            return Ok(made);
        }
        Err(AgentError::Setting(format!(
            "settings cannot be taken:\n  {}",
            problems.join("\n  ")
        )))
    }

    /// The same with others over it, as the control plane sets them.
    ///
    /// Errors: `Setting` with every problem, one to a line.
    pub fn with(&self, others: &BTreeMap<String, String>) -> Result<Configuration, AgentError> {
        let mut made = self.clone();
        let mut problems = Vec::new();
        for (name, value) in others {
            let placed = Placed {
                value: value.clone(),
                place: name.clone(),
            };
            if let Err(problem) = made.take(name, &placed) {
                problems.push(problem);
            }
        }
        if problems.is_empty() {
            made.repository()?;
            return Ok(made);
        }
        Err(AgentError::Setting(problems.join("\n")))
    }

    /// The value of a key, where it is set and honoured.
    pub fn get(&self, name: &str) -> Option<String> {
        self.values.get(name).cloned()
    }

    /// All that is set and honoured.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// What opens sealed values.
    pub fn key(&self) -> Option<SecretKey> {
        self.key.clone()
    }

    fn take(&mut self, name: &str, placed: &Placed) -> Result<(), String> {
        let Some(key) = find(name) else {
            return Err(no_such_key(name));
        };
        let own = if key.is_prefix { name } else { key.kind.name };
        let mut value = placed.value.clone();
        if crate::parameters::secret::is_sealed(&value) {
            let Some(opener) = &self.key else {
                return Err(format!("{own} is sealed, and there is no key to open it"));
            };
            value = opener.open(&value).map_err(|e| format!("{own}: {e}"))?;
        }
        if key.kind.shape == Shape::Flag {
            value.make_ascii_lowercase();
        }
        match key.effect {
            Effect::Refused(None, instead) => {
                return Err(format!("{own} is not supported: {instead}"));
            }
            Effect::Refused(Some(refused), instead) if value == refused => {
                return Err(format!("{own}={refused} is not supported: {instead}"));
            }
            Effect::Ignored(why) => {
                self.notes.push(format!("{own} has no effect: {why}"));
                return Ok(());
            }
            _ => {}
        }
        if !key.is_prefix
            && let Err(error) = key.kind.check(&value)
        {
            return Err(match key.kind.is_sensitive {
                true => format!("{own}: the value, which is not shown, cannot be taken"),
                false => format!("{own}: {error}"),
            });
        }
        self.values.insert(own.to_owned(), value);
        Ok(())
    }
}

/// Keys of the key of sealed values, the first that is set.
const KEY_NAMES: [&str; 2] = [
    "nifi.bootstrap.sensitive.properties.key",
    "nifi.bootstrap.sensitive.key",
];

#[cfg(test)]
mod tests;
