//! Compatibilities and modes: those of subjects, of contexts, and of all.

use super::SchemaRegistry;
use super::compatibility::Level;
use super::error::SchemaError;
use super::record::{ConfigValue, Entry, Mode};
use super::state::{State, last_live, resolved};
use super::subject::{DEFAULT_CONTEXT, context_of, parts, qualified};

impl SchemaRegistry {
    /// Changes what is set for a subject, or for all: what is not named stays.
    pub(super) async fn set_config(
        &self,
        subject: Option<&str>,
        change: ConfigValue,
    ) -> Result<(), SchemaError> {
        let _turn = self.writing.lock().await;
        let merged = {
            let state = self.log.state();
            check_writable(&state, subject)?;
            let now = state.config(subject).cloned().unwrap_or_default();
            let named = |text: &String| !text.is_empty();
            ConfigValue {
                compatibility_level: change.compatibility_level.or(now.compatibility_level),
                normalize: change.normalize.or(now.normalize),
                alias: change.alias.or(now.alias).filter(named),
                compatibility_group: change
                    .compatibility_group
                    .or(now.compatibility_group)
                    .filter(named),
                other: now.other,
            }
        };
        let entry = Entry::config(subject, Some(&merged));
        self.log.write(vec![entry]).await.map(|_| ())
    }

    /// Takes back what was set for a subject, or for all; answers what that was.
    pub(super) async fn unset_config(
        &self,
        subject: Option<&str>,
    ) -> Result<ConfigValue, SchemaError> {
        let _turn = self.writing.lock().await;
        let was = {
            let state = self.log.state();
            check_writable(&state, subject)?;
            match (state.config(subject), subject) {
                (Some(was), _) => was.clone(),
                (None, Some(subject)) => {
                    return Err(SchemaError::SubjectNotFound(subject.to_owned()));
                }
                (None, None) => return Ok(self.config_default()),
            }
        };
        self.log.write(vec![Entry::config(subject, None)]).await?;
        Ok(was)
    }

    /// What holds for all subjects where nobody set anything.
    pub(super) fn config_default(&self) -> ConfigValue {
        ConfigValue {
            compatibility_level: Some(self.config.compatibility),
            ..ConfigValue::default()
        }
    }

    /// Sets the mode of a subject, or of all.
    pub(super) async fn set_mode(
        &self,
        subject: Option<&str>,
        mode: Mode,
        force: bool,
    ) -> Result<(), SchemaError> {
        let _turn = self.writing.lock().await;
        {
            let state = self.log.state();
            if mode == Mode::ReadonlyOverride && subject.is_some() {
                let text = "READONLY_OVERRIDE is a mode of all subjects, not of one";
                return Err(SchemaError::NotPermitted(text.to_owned()));
            }
            if mode == Mode::Import && !force && has_schemas(&state, subject) {
                let text =
                    "there are schemas already, whose ids an import could meet; add force=true";
                return Err(SchemaError::NotPermitted(text.to_owned()));
            }
        }
        let entry = Entry::mode(subject, Some(mode));
        self.log.write(vec![entry]).await.map(|_| ())
    }

    /// Takes the mode of a subject back, or of all; answers what that was.
    pub(super) async fn unset_mode(&self, subject: Option<&str>) -> Result<Mode, SchemaError> {
        let _turn = self.writing.lock().await;
        let was = self.log.state().mode(subject);
        match (was, subject) {
            (Some(was), _) => {
                self.log.write(vec![Entry::mode(subject, None)]).await?;
                Ok(was)
            }
            (None, Some(subject)) => Err(SchemaError::SubjectNotFound(subject.to_owned())),
            (None, None) => Ok(Mode::Readwrite),
        }
    }
}

impl State {
    /// What was set for exactly this subject, or for all.
    pub fn config(&self, subject: Option<&str>) -> Option<&ConfigValue> {
        self.configs.get(&subject.map(str::to_owned))
    }

    /// The mode that was set for exactly this subject, or for all.
    pub fn mode(&self, subject: Option<&str>) -> Option<Mode> {
        self.modes.get(&subject.map(str::to_owned)).copied()
    }

    /// The mode that holds for a subject.
    pub fn mode_of(&self, subject: Option<&str>) -> Mode {
        let global = self.mode(None);
        if global == Some(Mode::ReadonlyOverride) {
            return Mode::ReadonlyOverride;
        }
        let scopes = subject.map(scopes).unwrap_or_default();
        let mut modes = scopes.iter().filter_map(|scope| self.mode(Some(scope)));
        modes.next().or(global).unwrap_or(Mode::Readwrite)
    }

    /// The compatibility that holds for a subject.
    pub fn level_of(&self, subject: Option<&str>, default: Level) -> Level {
        let level = self.first_config(subject, |config| config.compatibility_level);
        level.unwrap_or(default)
    }

    /// The property that versions must have alike to be compared, where one is set.
    pub fn group_of(&self, subject: Option<&str>) -> Option<String> {
        self.first_config(subject, |config| config.compatibility_group.clone())
    }

    /// The subject that a subject stands for: itself, unless it is an alias.
    pub fn meant(&self, subject: String) -> String {
        let config = self.config(Some(&subject));
        match config.and_then(|config| config.alias.as_deref()) {
            Some(alias) => resolved(context_of(&subject), alias),
            None => subject,
        }
    }

    /// Whether schemas of a subject are normalized without being asked to.
    pub fn normalizes(&self, subject: &str) -> bool {
        self.normalize_of(Some(subject)).unwrap_or(false)
    }

    /// What is set of that for a subject, or for all; none where nobody said anything.
    pub fn normalize_of(&self, subject: Option<&str>) -> Option<bool> {
        self.first_config(subject, |config| config.normalize)
    }

    fn first_config<T>(
        &self,
        subject: Option<&str>,
        part: impl Fn(&ConfigValue) -> Option<T>,
    ) -> Option<T> {
        let scopes = subject.map(scopes).unwrap_or_default();
        let mut of_scopes = scopes
            .iter()
            .filter_map(|scope| part(self.config(Some(scope))?));
        of_scopes.next().or_else(|| part(self.config(None)?))
    }
}

/// Refuses a change of what may only be read.
pub(super) fn check_writable(state: &State, subject: Option<&str>) -> Result<(), SchemaError> {
    match state.mode_of(subject) {
        Mode::Readonly | Mode::ReadonlyOverride => {
            Err(read_only(subject.unwrap_or("of every name")))
        }
        Mode::Readwrite | Mode::Import => Ok(()),
    }
}

/// The refusal of a change to what may only be read.
pub(super) fn read_only(subject: &str) -> SchemaError {
    SchemaError::NotPermitted(format!(
        "subject '{subject}' is in a mode that only lets it be read"
    ))
}

/// Whether a subject, a context or anything has versions that are not deleted.
fn has_schemas(state: &State, subject: Option<&str>) -> bool {
    let wanted = subject.map(parts);
    let mut matching = state.subjects().filter(|(name, _)| match wanted {
        None => true,
        Some((context, "")) => parts(name).0 == context,
        Some(wanted) => parts(name) == wanted,
    });
    matching.any(|(_, versions)| last_live(versions).is_some())
}

/// Where settings of a subject are looked for, before those of all.
fn scopes(subject: &str) -> Vec<String> {
    match parts(subject) {
        (DEFAULT_CONTEXT, name) => vec![name.to_owned()],
        (context, "") => vec![qualified(context, "")],
        (context, name) => vec![qualified(context, name), qualified(context, "")],
    }
}
