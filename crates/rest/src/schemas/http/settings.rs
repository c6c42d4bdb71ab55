//! Compatibilities and modes over HTTP.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::form::{SubjectPath, Switched, told};
use super::{Here, Served};
use crate::answer::Parameters;
use crate::schemas::around::{check_metadata, check_rules};
use crate::schemas::compatibility::Level;
use crate::schemas::error::SchemaError;
use crate::schemas::record::{ConfigValue, Mode};
use crate::schemas::settings::{ConfigChange, POLICIES};
use crate::schemas::sight::Sight;
use crate::schemas::state::{State as Known, resolved};
use crate::schemas::subject::{checked, context_of, parts};

/// A change of settings as it is sent: what is `null` is taken back.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigBody {
    #[serde(alias = "compatibilityLevel", deserialize_with = "named")]
    compatibility: Option<Option<String>>,
    #[serde(deserialize_with = "named")]
    normalize: Option<Option<bool>>,
    #[serde(deserialize_with = "named")]
    alias: Option<Option<String>>,
    #[serde(deserialize_with = "named")]
    compatibility_group: Option<Option<String>>,
    #[serde(deserialize_with = "named")]
    compatibility_policy: Option<Option<String>>,
    #[serde(deserialize_with = "named")]
    validate_fields: Option<Option<bool>>,
    #[serde(deserialize_with = "named")]
    validate_new_schemas: Option<Option<bool>>,
    #[serde(deserialize_with = "named")]
    default_metadata: Option<Option<Map<String, Value>>>,
    #[serde(deserialize_with = "named")]
    override_metadata: Option<Option<Map<String, Value>>>,
    #[serde(deserialize_with = "named")]
    default_rule_set: Option<Option<Map<String, Value>>>,
    #[serde(deserialize_with = "named")]
    override_rule_set: Option<Option<Map<String, Value>>>,
    // What the rules' languages say is the serializers' to know.
    validate_rules: Option<bool>,
}

/// Reads what may be `null`, which is something else than what is not named.
fn named<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    value: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(value).map(Some)
}

impl ConfigBody {
    /// The change, with levels and policies by their names.
    fn change(self) -> Result<ConfigChange, SchemaError> {
        if self.validate_rules == Some(true) {
            let text = "this registry does not look into rules: leave 'validateRules' out";
            return Err(SchemaError::InvalidEntity(text.to_owned()));
        }
        let level = |name: String| {
            Level::named(&name).ok_or(SchemaError::InvalidCompatibility { given: name })
        };
        let policy = |name: String| {
            let mut known = POLICIES.into_iter();
            let known = known.find(|known| known.eq_ignore_ascii_case(&name));
            known.map(str::to_owned).ok_or_else(|| {
                let shown: String = name.chars().take(NAME_SHOWN).collect();
                let known = POLICIES.join(" or ");
                let text = format!("'{shown}' is no compatibilityPolicy: write {known}");
                SchemaError::InvalidEntity(text)
            })
        };
        let change = ConfigChange {
            compatibility_level: checked_by(self.compatibility, level)?,
            normalize: self.normalize,
            alias: self.alias,
            compatibility_group: self.compatibility_group,
            compatibility_policy: checked_by(self.compatibility_policy, policy)?,
            validate_fields: self.validate_fields,
            validate_new_schemas: self.validate_new_schemas,
            default_metadata: self.default_metadata,
            override_metadata: self.override_metadata,
            default_rule_set: self.default_rule_set,
            override_rule_set: self.override_rule_set,
        };
        for metadata in [&change.default_metadata, &change.override_metadata] {
            metadata.iter().flatten().try_for_each(check_metadata)?;
        }
        for rules in [&change.default_rule_set, &change.override_rule_set] {
            rules.iter().flatten().try_for_each(check_rules)?;
        }
        Ok(change)
    }
}

/// Checks what was sent, unless it is to be taken back.
fn checked_by<T, U>(
    sent: Option<Option<T>>,
    check: impl Fn(T) -> Result<U, SchemaError>,
) -> Result<Option<Option<U>>, SchemaError> {
    sent.map(|sent| sent.map(check).transpose()).transpose()
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

/// What holds for a subject, or for all.
fn in_force(served: &Served, state: &Known, subject: Option<&str>) -> ConfigValue {
    let default = served.registry.config.compatibility;
    ConfigValue {
        compatibility_level: Some(state.level_of(subject, default)),
        ..state.config_of(subject)
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
    let set = set_asked(&served, sight, subject, asked).await;
    set.map_err(IntoResponse::into_response)
}

async fn set_asked(
    served: &Served,
    sight: &Sight,
    subject: Option<&str>,
    asked: ConfigBody,
) -> Result<Response, SchemaError> {
    let change = asked.change()?;
    let alias = change.alias.iter().flatten().next();
    if let Some(alias) = alias.filter(|alias| !alias.is_empty()) {
        check_alias(sight, subject, alias)?;
    }
    if change == ConfigChange::default() {
        let given = String::new();
        return Err(SchemaError::InvalidCompatibility { given });
    }
    let answer = told(&change);
    served.registry.set_config(subject, change).await?;
    Ok(answer)
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
pub(super) async fn unset_mode(
    State(served): Here,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let was = served.registry.unset_mode(None, switches.recursive);
    Ok(told_mode(was.await?))
}

/// `DELETE /mode/{subject}`
pub(super) async fn unset_subject_mode(
    State(served): Here,
    SubjectPath(subject): SubjectPath,
    Parameters(switches): Switched,
) -> Result<Response, SchemaError> {
    let was = served
        .registry
        .unset_mode(Some(&subject), switches.recursive);
    Ok(told_mode(was.await?))
}

fn told_mode(mode: Mode) -> Response {
    told(&json!({"mode": mode.name()}))
}

/// How much of a refused policy is repeated, in characters.
const NAME_SHOWN: usize = 100;
