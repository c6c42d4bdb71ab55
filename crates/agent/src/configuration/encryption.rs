//! The keys of the repository's encryption, from where the settings say they are.

use std::path::Path;

use super::Configuration;
use crate::AgentError;
use crate::parameters::SecretKey;
use crate::sealing::Keyring;

impl Configuration {
    /// The keys that seal and open the repository; none where none is set.
    ///
    /// Errors: something that is no key, a file or variable that is not there, a key of its own for
    /// content or states, which are written together with the FlowFiles.
    pub fn keyring(&self) -> Result<Keyring, AgentError> {
        let current = self.key_of(KEY)?;
        for name in [CONTENT_KEY, STATE_KEY] {
            let Some(own) = self.key_of(name)? else {
                continue;
            };
            if current.as_ref().map(SecretKey::bytes) != Some(own.bytes()) {
                return Err(AgentError::Setting(format!(
                    "{name}: content and states are written together with the FlowFiles, so that \
                     they have one key: set the same for {KEY}, or leave this out"
                )));
            }
        }
        let old = self.get(OLD_KEYS).unwrap_or_default();
        let old = old.split(',').filter(|text| !text.trim().is_empty());
        let old: Result<Vec<SecretKey>, AgentError> =
            old.map(|text| read(OLD_KEYS, text)).collect();
        Keyring::new(current, old?).map_err(AgentError::Setting)
    }

    fn key_of(&self, name: &str) -> Result<Option<SecretKey>, AgentError> {
        let text = self.get(name).filter(|text| !text.trim().is_empty());
        text.map(|text| read(name, &text)).transpose()
    }
}

/// A key, or what a file or a variable holds; no message shows any of it.
fn read(name: &str, text: &str) -> Result<SecretKey, AgentError> {
    let text = text.trim();
    let digits = if let Some(path) = text.strip_prefix("file:") {
        crate::supervisor::read(Path::new(path))?
    } else if let Some(variable) = text.strip_prefix("env:") {
        std::env::var(variable).map_err(|_| {
            AgentError::Setting(format!(
                "{name}: there is no text in the environment variable {variable}"
            ))
        })?
    } else {
        text.to_owned()
    };
    SecretKey::parse(&digits).map_err(|reason| {
        AgentError::Setting(format!(
            "{name}: {reason}; make one by `openssl rand -hex 32`, and name its file as file:PATH \
             or its environment variable as env:NAME"
        ))
    })
}

const KEY: &str = "nifi.flowfile.repository.encryption.key";
const OLD_KEYS: &str = "nifi.flowfile.repository.encryption.keys.old";
const CONTENT_KEY: &str = "nifi.database.content.repository.encryption.key";
const STATE_KEY: &str = "nifi.state.management.provider.local.encryption.key";

#[cfg(test)]
mod tests {
    use super::super::Sources;
    use super::*;

    fn keyring(set: &[(&str, &str)]) -> Result<Keyring, String> {
        let sources = Sources {
            set: set
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
            ..Sources::default()
        };
        let read = Configuration::read(&sources, Path::new("/")).and_then(|made| made.keyring());
        read.map_err(|error| base::report(&error))
    }

    #[test]
    fn keys_come_from_settings_files_and_the_environment() {
        let (one, two) = ("0a".repeat(32), "0b".repeat(32));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, format!("{one}\n")).unwrap();
        let file = format!("file:{}", path.display());
        let shown = |set: &[(&str, &str)]| format!("{:?}", keyring(set).unwrap());
        let plain = shown(&[(KEY, &one)]);
        assert_eq!(shown(&[(KEY, &file), (STATE_KEY, &one)]), plain);
        assert_ne!(shown(&[(KEY, &two)]), plain);
        let both = format!("{two}, {file}");
        let rotated = shown(&[(KEY, &two), (OLD_KEYS, &both)]);
        assert_eq!(rotated.matches(',').count(), 2, "{rotated}");
        assert_eq!(shown(&[]), "[]");
        // Cargo sets it for tests.
        let error = keyring(&[(KEY, "env:CARGO_PKG_NAME")]).unwrap_err();
        assert!(error.contains("64 hexadecimal digits"), "{error}");
        assert!(!error.contains("agent;"), "{error}");
    }

    #[test]
    fn what_is_no_key_is_told_without_being_shown() {
        let (one, two) = ("0a".repeat(32), "0b".repeat(32));
        for (set, part) in [
            ([(KEY, "hunter2"), (OLD_KEYS, "")], "64 hexadecimal digits"),
            (
                [(KEY, "file:/no/such"), (OLD_KEYS, "")],
                "cannot read /no/such",
            ),
            ([(KEY, "env:NO_SUCH_ONE"), (OLD_KEYS, "")], "NO_SUCH_ONE"),
            ([(KEY, &one), (OLD_KEYS, "hunter2")], "keys.old"),
            ([(KEY, &one), (CONTENT_KEY, &two)], "they have one key"),
        ] {
            let error = keyring(&set).unwrap_err();
            assert!(error.contains(part), "{error}");
            let shows = ["hunter2", one.as_str(), two.as_str()]
                .iter()
                .any(|key| error.contains(key));
            assert!(!shows, "{error}");
        }
    }
}
