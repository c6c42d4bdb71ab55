//! Compatibilities and modes: those of subjects, of contexts, and of all.
//!
//! What is not set for a subject is what its context has, and then what all have: `None` here, and
//! beside it what is set for [`GLOBAL_CONTEXT`], which is looked at first where another context than
//! the default one is. Each setting is looked for on its own.

use serde::Serialize;
use serde_json::{Map, Value};

use super::SchemaRegistry;
use super::around::Around;
use super::compatibility::Level;
use super::error::SchemaError;
use super::format::Policy;
use super::limits::SCHEMA_BYTES_MAX;
use super::record::{ConfigValue, Entry, Mode};
use super::state::{State, last_live, resolved};
use super::subject::{DEFAULT_CONTEXT, GLOBAL_CONTEXT, context_of, parts, qualified};

/// A change of what is set: what is not named stays, and what is named as nothing is taken back, as are
/// an empty alias and group. It is answered as what it sets.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigChange {
    #[serde(rename = "compatibility", skip_serializing_if = "sets_nothing")]
    pub compatibility_level: Option<Option<Level>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub normalize: Option<Option<bool>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub alias: Option<Option<String>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub compatibility_group: Option<Option<String>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub compatibility_policy: Option<Option<String>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub validate_fields: Option<Option<bool>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub validate_new_schemas: Option<Option<bool>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub default_metadata: Option<Option<Map<String, Value>>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub override_metadata: Option<Option<Map<String, Value>>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub default_rule_set: Option<Option<Map<String, Value>>>,
    #[serde(skip_serializing_if = "sets_nothing")]
    pub override_rule_set: Option<Option<Map<String, Value>>>,
}

impl ConfigChange {
    /// What is set afterwards.
    fn of(self, now: ConfigValue) -> ConfigValue {
        let is_named = |text: &String| !text.is_empty();
        let group = self.compatibility_group.unwrap_or(now.compatibility_group);
        ConfigValue {
            compatibility_level: self.compatibility_level.unwrap_or(now.compatibility_level),
            normalize: self.normalize.unwrap_or(now.normalize),
            alias: self.alias.unwrap_or(now.alias).filter(is_named),
            compatibility_group: group.filter(is_named),
            compatibility_policy: self
                .compatibility_policy
                .unwrap_or(now.compatibility_policy),
            validate_fields: self.validate_fields.unwrap_or(now.validate_fields),
            validate_new_schemas: self
                .validate_new_schemas
                .unwrap_or(now.validate_new_schemas),
            default_metadata: self.default_metadata.unwrap_or(now.default_metadata),
            override_metadata: self.override_metadata.unwrap_or(now.override_metadata),
            default_rule_set: self.default_rule_set.unwrap_or(now.default_rule_set),
            override_rule_set: self.override_rule_set.unwrap_or(now.override_rule_set),
            other: now.other,
        }
    }
}

fn sets_nothing<T>(part: &Option<Option<T>>) -> bool {
    !matches!(part, Some(Some(_)))
}

impl SchemaRegistry {
    /// Changes what is set for a subject, or for all.
    pub(super) async fn set_config(
        &self,
        subject: Option<&str>,
        change: ConfigChange,
    ) -> Result<(), SchemaError> {
        let _turn = self.turn().await?;
        let merged = {
            let state = self.log.state();
            check_writable(&state, subject)?;
            change.of(state.config(subject).cloned().unwrap_or_default())
        };
        let entry = Entry::config(subject, Some(&merged));
        let bytes = entry.value.as_ref().map_or(0, Vec::len);
        if bytes > SCHEMA_BYTES_MAX {
            let text =
                format!("the settings have {bytes} bytes; at most {SCHEMA_BYTES_MAX} are taken");
            return Err(SchemaError::InvalidEntity(text));
        }
        self.log.write(vec![entry]).await.map(|_| ())
    }

    /// Takes back what was set for a subject, or for all; answers what that was.
    pub(super) async fn unset_config(
        &self,
        subject: Option<&str>,
    ) -> Result<ConfigValue, SchemaError> {
        let _turn = self.turn().await?;
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
        let _turn = self.turn().await?;
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

    /// Takes the mode of a subject back, of a context or of all, and with it those of the subjects
    /// there when asked; answers what held before.
    pub(super) async fn unset_mode(
        &self,
        subject: Option<&str>,
        with_subjects: bool,
    ) -> Result<Mode, SchemaError> {
        let _turn = self.turn().await?;
        let (was, entries) = {
            let state = self.log.state();
            let context = subject.map_or((DEFAULT_CONTEXT, ""), parts);
            let is_below = |name: &str| (context.0, "") == context && parts(name).0 == context.0;
            let gone = state.modes.keys().filter(|name| match name.as_deref() {
                found if found == subject => true,
                found => with_subjects && found.is_some_and(is_below),
            });
            let gone = gone.map(|name| Entry::mode(name.as_deref(), None));
            let was = state.mode(subject);
            let was = was.unwrap_or_else(|| state.mode_of(subject));
            (was, gone.collect::<Vec<_>>())
        };
        match subject {
            Some(subject) if entries.is_empty() => {
                return Err(SchemaError::SubjectNotFound(subject.to_owned()));
            }
            _ if entries.is_empty() => return Ok(Mode::Readwrite),
            _ => self.log.write(entries).await?,
        };
        Ok(was)
    }

    /// Takes back what was set for a context that has no subjects, and for names of it.
    pub(super) async fn delete_context(&self, context: &str) -> Result<(), SchemaError> {
        if [DEFAULT_CONTEXT, GLOBAL_CONTEXT].contains(&context) {
            let text = format!("the context '{context}' is always there");
            return Err(SchemaError::NotPermitted(text));
        }
        let _turn = self.turn().await?;
        let entries = {
            let state = self.log.state();
            let name = qualified(context, "");
            if state
                .subjects()
                .any(|(name, _)| context_of(name) == context)
            {
                let text = format!("the context '{context}' has subjects, deleted ones maybe");
                return Err(SchemaError::NotPermitted(text));
            }
            check_writable(&state, Some(&name))?;
            let is_of_it =
                |name: &Option<String>| name.as_deref().is_some_and(|of| context_of(of) == context);
            let configs = state.configs.keys().filter(|name| is_of_it(name));
            let configs = configs.map(|name| Entry::config(name.as_deref(), None));
            let modes = state.modes.keys().filter(|name| is_of_it(name));
            let modes = modes.map(|name| Entry::mode(name.as_deref(), None));
            let entries: Vec<Entry> = configs.chain(modes).collect();
            if entries.is_empty() {
                return Err(SchemaError::SubjectNotFound(name));
            }
            entries
        };
        self.log.write(entries).await.map(|_| ())
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
        let scopes = scopes(subject);
        let mut modes = scopes
            .iter()
            .filter_map(|scope| self.mode(scope.as_deref()));
        modes.next().unwrap_or(Mode::Readwrite)
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

    /// How JSON Schemas of a subject are compared.
    pub fn policy_of(&self, subject: &str) -> Policy {
        let policy = self.first_config(Some(subject), |config| config.compatibility_policy.clone());
        match policy {
            Some(name) if name.eq_ignore_ascii_case(LENIENT) => Policy::Lenient,
            _ => Policy::Strict,
        }
    }

    /// Whether the fields of a subject's new schemas are held against those that metadata reserve.
    pub fn validates_fields(&self, subject: &str) -> bool {
        let validates = self.first_config(Some(subject), |config| config.validate_fields);
        validates.unwrap_or(false)
    }

    /// Whether the defaults of a subject's new schemas must fit.
    pub fn validates_new(&self, subject: &str) -> bool {
        let validates = self.first_config(Some(subject), |config| config.validate_new_schemas);
        validates.unwrap_or(true)
    }

    /// What a subject's new schemas have around them beside their own.
    pub fn around_of(&self, subject: &str) -> Around {
        let first = |part: fn(&ConfigValue) -> &Option<Map<String, Value>>| {
            self.first_config(Some(subject), |config| part(config).clone())
        };
        Around {
            default_metadata: first(|config| &config.default_metadata),
            override_metadata: first(|config| &config.override_metadata),
            default_rule_set: first(|config| &config.default_rule_set),
            override_rule_set: first(|config| &config.override_rule_set),
        }
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
        let normalizes = self.first_config(Some(subject), |config| config.normalize);
        normalizes.unwrap_or(false)
    }

    /// What holds for a subject, or for all, of whatever somebody set; an alias is the subject's own.
    pub fn config_of(&self, subject: Option<&str>) -> ConfigValue {
        let own = self.config(subject).map(ConfigValue::told);
        let own = own.unwrap_or_default();
        ConfigValue {
            compatibility_level: self.first_config(subject, |config| config.compatibility_level),
            normalize: self.first_config(subject, |config| config.normalize),
            alias: own.alias,
            compatibility_group: self
                .first_config(subject, |config| config.compatibility_group.clone()),
            compatibility_policy: self
                .first_config(subject, |config| config.compatibility_policy.clone()),
            validate_fields: self.first_config(subject, |config| config.validate_fields),
            validate_new_schemas: self.first_config(subject, |config| config.validate_new_schemas),
            default_metadata: self.first_config(subject, |config| config.default_metadata.clone()),
            override_metadata: self
                .first_config(subject, |config| config.override_metadata.clone()),
            default_rule_set: self.first_config(subject, |config| config.default_rule_set.clone()),
            override_rule_set: self
                .first_config(subject, |config| config.override_rule_set.clone()),
            other: own.other,
        }
    }

    fn first_config<T>(
        &self,
        subject: Option<&str>,
        part: impl Fn(&ConfigValue) -> Option<T>,
    ) -> Option<T> {
        let scopes = scopes(subject);
        let mut of_scopes = scopes
            .iter()
            .filter_map(|scope| part(self.config(scope.as_deref())?));
        of_scopes.next()
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
        None | Some((GLOBAL_CONTEXT, _)) => true,
        Some((context, "")) => parts(name).0 == context,
        Some(wanted) => parts(name) == wanted,
    });
    matching.any(|(_, versions)| last_live(versions).is_some())
}

/// Where settings of a subject, or of all, are looked for, one after the other.
fn scopes(subject: Option<&str>) -> Vec<Option<String>> {
    let global = Some(qualified(GLOBAL_CONTEXT, ""));
    match subject.map(parts) {
        None => vec![None, global],
        Some((DEFAULT_CONTEXT, name)) => vec![Some(name.to_owned()), None, global],
        Some((context, "")) => vec![Some(qualified(context, "")), global, None],
        Some((context, name)) => vec![
            Some(qualified(context, name)),
            Some(qualified(context, "")),
            global,
            None,
        ],
    }
}

/// The policies of comparing JSON Schemas that are followed, the usual one first.
pub(super) const POLICIES: [&str; 2] = ["STRICT", LENIENT];
const LENIENT: &str = "LENIENT";
