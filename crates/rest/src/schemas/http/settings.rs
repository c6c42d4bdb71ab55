//! Compatibilities and modes over HTTP.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::form::{SubjectPath, Switched, told, unkept};
use super::sight::Sight;
use super::{Here, Served};
use crate::answer::Parameters;
use crate::schemas::compatibility::Level;
use crate::schemas::error::SchemaError;
use crate::schemas::record::{ConfigValue, Mode};
use crate::schemas::state::{State as Known, resolved};
use crate::schemas::subject::{checked, context_of, parts};

#[derive(Deserialize)]
struct ConfigBody {
    #[serde(alias = "compatibilityLevel")]
    compatibility: Option<String>,
    normalize: Option<bool>,
    alias: Option<String>,
    #[serde(rename = "compatibilityGroup")]
    compatibility_group: Option<String>,
    #[serde(flatten)]
    unkept: Unkept,
}

/// What Confluent's registry has of a subject's settings, and this one has not.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unkept {
    compatibility_policy: Option<IgnoredAny>,
    default_metadata: Option<IgnoredAny>,
    override_metadata: Option<IgnoredAny>,
    default_rule_set: Option<IgnoredAny>,
    override_rule_set: Option<IgnoredAny>,
    validate_fields: Option<bool>,
    validate_rules: Option<bool>,
}

impl ConfigBody {
    fn sets_something(&self) -> bool {
        self.normalize.is_some() || self.alias.is_some() || self.compatibility_group.is_some()
    }
}

impl Unkept {
    /// Refuses what would be taken and do nothing.
    fn check(&self) -> Result<(), SchemaError> {
        unkept([
            ("compatibilityPolicy", self.compatibility_policy.is_some()),
            ("defaultMetadata", self.default_metadata.is_some()),
            ("overrideMetadata", self.override_metadata.is_some()),
            ("defaultRuleSet", self.default_rule_set.is_some()),
            ("overrideRuleSet", self.override_rule_set.is_some()),
            ("validateFields", self.validate_fields == Some(true)),
            ("validateRules", self.validate_rules == Some(true)),
        ])
    }
}

#[derive(Deserialize)]
struct ModeBody {
    mode: Option<String>,
}

/// `GET /config`
pub(super) async fn config(State(served): Here) -> Response {
    let state = served.registry.log.state();
    told(&in_force(&served, &state, None))
}

/// `GET /config/{subject}`
pub(super) async fn subject_config(
    State(served): Here,
    SubjectPath(subject): SubjectPath,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let state = served.registry.log.state();
    if switches.default_to_global {
        return Ok(told(&in_force(&served, &state, Some(&subject))));
    }
    let own = state.config(Some(&subject));
    let own = own.ok_or(SchemaError::CompatibilityNotSet(subject))?;
    Ok(told(&own.told()))
}

/// What is set for a subject, or for all, with what holds where it is not.
fn in_force(served: &Served, state: &Known, subject: Option<&str>) -> ConfigValue {
    let own = state.config(subject).map(ConfigValue::told);
    let default = served.registry.config.compatibility;
    ConfigValue {
        compatibility_level: Some(state.level_of(subject, default)),
        normalize: state.normalize_of(subject),
        compatibility_group: state.group_of(subject),
        ..own.unwrap_or_default()
    }
}

/// `PUT /config`
pub(super) async fn set_config(
    here: Here,
    sight: Sight,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    change_config(here, &sight, None, &headers, body).await
}

/// `PUT /config/{subject}`
pub(super) async fn set_subject_config(
    here: Here,
    sight: Sight,
    SubjectPath(subject): SubjectPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    change_config(here, &sight, Some(&subject), &headers, body).await
}

async fn change_config(
    State(served): Here,
    sight: &Sight,
    subject: Option<&str>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let asked: ConfigBody = served.entity(headers, body).await?;
    asked.unkept.check().map_err(IntoResponse::into_response)?;
    let invalid = |given: &str| SchemaError::InvalidCompatibility {
        given: given.to_owned(),
    };
    let level = match asked.compatibility.as_deref() {
        Some(name) => Some(Level::named(name).ok_or_else(|| invalid(name).into_response())?),
        None if asked.sets_something() => None,
        None => return Err(invalid("").into_response()),
    };
    if let Some(alias) = asked.alias.as_deref().filter(|alias| !alias.is_empty()) {
        check_alias(sight, subject, alias).map_err(IntoResponse::into_response)?;
    }
    let change = ConfigValue {
        compatibility_level: level,
        normalize: asked.normalize,
        alias: asked.alias.clone(),
        compatibility_group: asked.compatibility_group.clone(),
        ..ConfigValue::default()
    };
    let set = served.registry.set_config(subject, change);
    set.await.map_err(IntoResponse::into_response)?;
    let mut set = serde_json::Map::new();
    if let Some(level) = level {
        set.insert("compatibility".to_owned(), json!(level));
    }
    if let Some(normalize) = asked.normalize {
        set.insert("normalize".to_owned(), json!(normalize));
    }
    for (name, text) in [
        ("alias", asked.alias),
        ("compatibilityGroup", asked.compatibility_group),
    ] {
        if let Some(text) = text {
            set.insert(name.to_owned(), json!(text));
        }
    }
    Ok(told(&set))
}

/// Refuses an alias of all subjects, and one for what is no subject, or none of its caller's.
fn check_alias(sight: &Sight, subject: Option<&str>, alias: &str) -> Result<(), SchemaError> {
    let subject = subject.filter(|subject| !parts(subject).1.is_empty());
    let subject = subject.ok_or_else(|| {
        SchemaError::InvalidEntity("an alias is one subject's, not all subjects'".to_owned())
    })?;
    sight.check(&resolved(context_of(subject), &checked(alias)?))
}

/// `DELETE /config`
pub(super) async fn unset_config(State(served): Here) -> Result<Response, SchemaError> {
    Ok(told(&served.registry.unset_config(None).await?.told()))
}

/// `DELETE /config/{subject}`
pub(super) async fn unset_subject_config(
    State(served): Here,
    SubjectPath(subject): SubjectPath,
) -> Result<Response, SchemaError> {
    let was = served.registry.unset_config(Some(&subject)).await?;
    Ok(told(&was.told()))
}

/// `GET /mode`
pub(super) async fn mode(State(served): Here) -> Response {
    told_mode(served.registry.log.state().mode_of(None))
}

/// `GET /mode/{subject}`
pub(super) async fn subject_mode(
    State(served): Here,
    SubjectPath(subject): SubjectPath,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let state = served.registry.log.state();
    let mode = match switches.default_to_global {
        true => Some(state.mode_of(Some(&subject))),
        false => state.mode(Some(&subject)),
    };
    mode.map(told_mode).ok_or(SchemaError::ModeNotSet(subject))
}

/// `PUT /mode`
pub(super) async fn set_mode(
    here: Here,
    switches: Switched,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    change_mode(here, None, switches, &headers, body).await
}

/// `PUT /mode/{subject}`
pub(super) async fn set_subject_mode(
    here: Here,
    SubjectPath(subject): SubjectPath,
    switches: Switched,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    change_mode(here, Some(&subject), switches, &headers, body).await
}

async fn change_mode(
    State(served): Here,
    subject: Option<&str>,
    Parameters(switches): Switched,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let asked: ModeBody = served.entity(headers, body).await?;
    let name = asked.mode.unwrap_or_default();
    let mode = Mode::named(&name).ok_or_else(|| SchemaError::InvalidMode(name).into_response())?;
    let set = served.registry.set_mode(subject, mode, switches.force);
    set.await.map_err(IntoResponse::into_response)?;
    Ok(told_mode(mode))
}

/// `DELETE /mode`
pub(super) async fn unset_mode(State(served): Here) -> Result<Response, SchemaError> {
    Ok(told_mode(served.registry.unset_mode(None).await?))
}

/// `DELETE /mode/{subject}`
pub(super) async fn unset_subject_mode(
    State(served): Here,
    SubjectPath(subject): SubjectPath,
) -> Result<Response, SchemaError> {
    Ok(told_mode(served.registry.unset_mode(Some(&subject)).await?))
}

fn told_mode(mode: Mode) -> Response {
    told(&json!({"mode": mode.name()}))
}
