//! Compatibilities and modes over HTTP.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::Here;
use super::form::{SubjectPath, Switched, told, unkept};
use crate::answer::Parameters;
use crate::schemas::compatibility::Level;
use crate::schemas::error::SchemaError;
use crate::schemas::record::{ConfigValue, Mode};

#[derive(Deserialize)]
struct ConfigBody {
    #[serde(alias = "compatibilityLevel")]
    compatibility: Option<String>,
    normalize: Option<bool>,
    #[serde(flatten)]
    unkept: Unkept,
}

/// What Confluent's registry has of a subject's settings, and this one has not.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unkept {
    alias: Option<IgnoredAny>,
    compatibility_group: Option<IgnoredAny>,
    compatibility_policy: Option<IgnoredAny>,
    default_metadata: Option<IgnoredAny>,
    override_metadata: Option<IgnoredAny>,
    default_rule_set: Option<IgnoredAny>,
    override_rule_set: Option<IgnoredAny>,
    validate_fields: Option<bool>,
    validate_rules: Option<bool>,
}

impl Unkept {
    /// Refuses what would be taken and do nothing.
    fn check(&self) -> Result<(), SchemaError> {
        unkept([
            ("alias", self.alias.is_some()),
            ("compatibilityGroup", self.compatibility_group.is_some()),
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
    let registry = &served.registry;
    let state = registry.log.state();
    let level = state.level_of(None, registry.config.compatibility);
    let normalize = state.config(None).and_then(|config| config.normalize);
    told(&ConfigValue {
        compatibility_level: Some(level),
        normalize,
    })
}

/// `GET /config/{subject}`
pub(super) async fn subject_config(
    State(served): Here,
    SubjectPath(subject): SubjectPath,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let registry = &served.registry;
    let state = registry.log.state();
    let own = state.config(Some(&subject));
    if switches.default_to_global {
        let level = state.level_of(Some(&subject), registry.config.compatibility);
        return Ok(told(&ConfigValue {
            compatibility_level: Some(level),
            normalize: state.normalize_of(Some(&subject)),
        }));
    }
    let own = own.ok_or(SchemaError::CompatibilityNotSet(subject))?;
    Ok(told(own))
}

/// `PUT /config`
pub(super) async fn set_config(
    here: Here,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    change_config(here, None, &headers, body).await
}

/// `PUT /config/{subject}`
pub(super) async fn set_subject_config(
    here: Here,
    SubjectPath(subject): SubjectPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    change_config(here, Some(&subject), &headers, body).await
}

async fn change_config(
    State(served): Here,
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
        None if asked.normalize.is_some() => None,
        None => return Err(invalid("").into_response()),
    };
    let change = ConfigValue {
        compatibility_level: level,
        normalize: asked.normalize,
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
    Ok(told(&set))
}

/// `DELETE /config`
pub(super) async fn unset_config(State(served): Here) -> Result<Response, SchemaError> {
    Ok(told(&served.registry.unset_config(None).await?))
}

/// `DELETE /config/{subject}`
pub(super) async fn unset_subject_config(
    State(served): Here,
    SubjectPath(subject): SubjectPath,
) -> Result<Response, SchemaError> {
    Ok(told(&served.registry.unset_config(Some(&subject)).await?))
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
