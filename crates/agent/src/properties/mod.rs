//! Settings that the control plane gave, over those of the operator's files.
//!
//! They lie in the data folder, since the agent may not be allowed to write anywhere else:
//! `c2.properties` for good, `c2-once.properties` for the next start alone. Both win over the
//! properties file; the command line wins over both. A change is on trial until the agent has come
//! up with it, and is taken back if it does not ([`trial`]).

mod trial;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::AgentError;
use crate::logs::Logs;
use crate::secrets;
use crate::supervisor::read;
use crate::whole_file;

pub(crate) use trial::{Trial, begin};

/// The settings as the agent can tell them.
#[derive(Clone, Default)]
pub(crate) struct Told {
    /// All that are set, by key.
    pub(crate) values: BTreeMap<String, String>,
    /// Where they were read from.
    pub(crate) sources: Vec<PathBuf>,
    /// Keys that the command line decides, so that a change of them would do nothing.
    pub(crate) decided: Vec<&'static str>,
    /// The data folder.
    pub(crate) dir: PathBuf,
    /// The log, for debug bundles.
    pub(crate) logs: Option<Logs>,
    /// Says whether the agent could start with these settings.
    pub(crate) check: Option<Check>,
    /// A change that is to prove itself.
    pub(crate) trial: Option<Arc<Trial>>,
    /// Whether a change was taken back by this start.
    pub(crate) is_withdrawn: bool,
}

/// Checks settings without making anything of them.
pub(crate) type Check = Arc<dyn Fn(&Overlay) -> Result<(), AgentError> + Send + Sync>;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: String,
    pub(crate) value: String,
    /// Whether it is for good.
    pub(crate) persists: bool,
}

/// What the control plane set: key to value.
pub(crate) type Overlay = BTreeMap<String, String>;

impl Told {
    /// All settings, without those that are secrets.
    pub(crate) fn shown(&self) -> BTreeMap<&str, &str> {
        let shown = self.values.iter().map(|(key, value)| {
            let value = match secrets::is_secret(key) {
                true => secrets::COVER,
                false => value,
            };
            (key.as_str(), value)
        });
        shown.collect()
    }

    /// The files that settings were read from.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().map(PathBuf::as_path)
    }

    /// Whether a change would change anything.
    pub(crate) fn differs(&self, change: &Change) -> bool {
        self.values.get(&change.key) != Some(&change.value)
    }

    /// Whether the agent could start with these changes; the error says why not.
    pub(crate) fn check(&self, changes: &[Change]) -> Result<(), AgentError> {
        let mut all = self.values.clone();
        let pairs = changes.iter().map(|c| (c.key.clone(), c.value.clone()));
        all.extend(pairs);
        match &self.check {
            Some(check) => check(&all),
            None => Ok(()),
        }
    }

    /// Puts changes on record for the next start, which is a trial of them.
    pub(crate) fn record(&self, changes: &[Change]) -> Result<(), AgentError> {
        trial::open(&self.dir)?;
        for (file, persists) in [(LASTING, true), (ONCE, false)] {
            let path = self.dir.join(file);
            let mut all = parse(&path)?;
            let mine = changes.iter().filter(|change| change.persists == persists);
            let before = all.clone();
            all.extend(mine.map(|change| (change.key.clone(), change.value.clone())));
            if all == before {
                continue;
            }
            write(&path, &all)?;
        }
        Ok(())
    }
}

/// What the control plane set, for a start: what was for one start alone is used up by this.
fn overlay(dir: &Path) -> Result<Overlay, AgentError> {
    let mut all = parse(&dir.join(LASTING))?;
    let once = dir.join(ONCE);
    all.extend(parse(&once)?);
    remove(&once)?;
    Ok(all)
}

fn remove(path: &Path) -> Result<(), AgentError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(AgentError::File {
            action: "remove",
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Where settings of the control plane lie, where there are any.
pub(crate) fn lasting(dir: &Path) -> Option<PathBuf> {
    Some(dir.join(LASTING)).filter(|path| path.exists())
}

fn write(path: &Path, all: &Overlay) -> Result<(), AgentError> {
    let lines: String = all.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
    let text = format!("# Set by the control plane.\n{lines}");
    whole_file::write(path, text.as_bytes()).map_err(|source| AgentError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

fn parse(path: &Path) -> Result<Overlay, AgentError> {
    if !path.exists() {
        return Ok(Overlay::new());
    }
    let text = read(path)?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    Ok(pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect())
}

/// Settings for good.
const LASTING: &str = "c2.properties";

/// Settings for the next start alone.
const ONCE: &str = "c2-once.properties";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_last_or_are_used_up_by_one_start() {
        let dir = tempfile::tempdir().unwrap();
        let told = Told {
            dir: dir.path().to_owned(),
            ..Told::default()
        };
        let change = |key: &str, value: &str, persists| Change {
            key: key.to_owned(),
            value: value.to_owned(),
            persists,
        };
        let changes = [change("a", "1", true), change("b", "x=y", false)];
        told.record(&changes).unwrap();
        let pairs = |overlay: Overlay| overlay.into_iter().collect::<Vec<_>>();
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            pairs(overlay(dir.path()).unwrap()),
            [pair("a", "1"), pair("b", "x=y")]
        );
        assert_eq!(pairs(overlay(dir.path()).unwrap()), [pair("a", "1")]);
        told.record(&[change("c", "3", true)]).unwrap();
        assert_eq!(
            pairs(overlay(dir.path()).unwrap()),
            [pair("a", "1"), pair("c", "3")]
        );
    }

    #[test]
    fn secrets_among_settings_are_not_told() {
        let values = [
            ("nifi.rest.api.password", "hunter2"),
            ("nifi.c2.agent.class", "edge"),
        ];
        let told = Told {
            values: values.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..Told::default()
        };
        let shown = told.shown();
        assert_eq!(shown["nifi.rest.api.password"], secrets::COVER);
        assert_eq!(shown["nifi.c2.agent.class"], "edge");
    }
}
