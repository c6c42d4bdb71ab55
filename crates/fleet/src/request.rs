//! What an operator asks of agents: the words of the management API, checked against the table.
//! Without IO.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::UnixMillis;
use c2::{Operand, OperationKind};
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::capability::{self, Arg, Args, Shape};
use crate::error::FleetError;
use crate::limits;

/// An operator's wish; each agent that it is for gets an operation of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// A UUID.
    pub id: Arc<str>,
    /// Whose it is.
    pub target: Target,
    /// What to do.
    pub kind: OperationKind,
    /// To what; empty where the operation stands alone.
    pub operand: Operand,
    /// With what.
    pub args: BTreeMap<String, Value>,
    /// How many agents may be at it at the same time; 0: all.
    pub at_once: u32,
    /// When it was made.
    pub created: UnixMillis,
}

/// Whom a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// One agent.
    Agent(String),
    /// All agents that a class has at the moment.
    Class(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    operation: String,
    #[serde(default)]
    operand: Option<String>,
    #[serde(default)]
    args: BTreeMap<String, Value>,
    #[serde(default)]
    at_once: Option<u32>,
}

impl Target {
    /// The word in the API and in the database.
    pub fn scope(&self) -> &'static str {
        match self {
            Target::Agent(_) => "agent",
            Target::Class(_) => "class",
        }
    }

    /// How many agents may be at an operation at the same time where nobody says; 0: all.
    pub fn at_once(&self, kind: &OperationKind, operand: &Operand) -> u32 {
        match self {
            Target::Agent(_) => 0,
            Target::Class(_) => capability::row_of(kind, operand).map_or(0, |row| row.at_once),
        }
    }

    /// The agent's or the class's name.
    pub fn name(&self) -> &str {
        match self {
            Target::Agent(name) | Target::Class(name) => name,
        }
    }
}

impl Request {
    /// Reads a request's body.
    ///
    /// # Errors
    /// [`FleetError::BadField`], which names the field; the caller's fault.
    pub fn parse(body: &[u8], target: Target, now: UnixMillis) -> Result<Request, FleetError> {
        let body: Body = serde_json::from_slice(body).map_err(FleetError::of_body)?;
        let kind = OperationKind::from(body.operation.as_str());
        let operand = Operand::from(body.operand.as_deref().unwrap_or_default());
        let row = capability::row_of(&kind, &operand).ok_or_else(|| {
            let field = match body.operand {
                Some(_) => "operand",
                None => "operation",
            };
            bad(
                field,
                format!("'{kind} {operand}' is no operation that agents know"),
            )
        })?;
        match row.args {
            Args::Named(known) => check_named(known, &body.args)?,
            Args::Properties => check_properties(&body.args)?,
        }
        let is_asset = operand == Operand::Asset;
        if is_asset && body.args.contains_key("url") == body.args.contains_key("resourceId") {
            return Err(bad("args.url", "give either url or resourceId".to_owned()));
        }
        let at_once = match (&target, body.at_once) {
            (Target::Class(_), Some(given)) => given,
            (_, None) => target.at_once(&kind, &operand),
            (Target::Agent(_), Some(_)) => {
                let reason = "it is for the agents of a class: ask the class, or leave it out";
                return Err(bad("at_once", reason.to_owned()));
            }
        };
        Ok(Request {
            id: Arc::from(Uuid::new_v4().to_string()),
            target,
            kind,
            operand,
            args: body.args,
            at_once,
            created: now,
        })
    }

    /// The arguments as they may be shown: values of properties that look like secrets are not.
    pub fn shown_args(&self) -> BTreeMap<String, Value> {
        let mut args = self.args.clone();
        if self.operand == Operand::Properties {
            for (name, value) in &mut args {
                let name = name.to_ascii_lowercase();
                if SECRET_WORDS.iter().any(|word| name.contains(word)) {
                    *value = Value::String("********".to_owned());
                }
            }
        }
        args
    }
}

fn check_named(known: &[Arg], args: &BTreeMap<String, Value>) -> Result<(), FleetError> {
    for name in args.keys() {
        if !known.iter().any(|arg| arg.name == name) {
            let names: Vec<&str> = known.iter().map(|arg| arg.name).collect();
            let reason = match names.is_empty() {
                true => "the operation takes no arguments".to_owned(),
                false => format!("the operation takes {}", names.join(", ")),
            };
            return Err(bad(&format!("args.{name}"), reason));
        }
    }
    for arg in known {
        let field = format!("args.{}", arg.name);
        match args.get(arg.name) {
            None if arg.is_required => return Err(bad(&field, "it is missing".to_owned())),
            None => {}
            Some(value) => {
                check_shape(arg.shape, value).map_err(|reason| bad(&field, reason))?;
            }
        }
    }
    Ok(())
}

fn check_properties(args: &BTreeMap<String, Value>) -> Result<(), FleetError> {
    if args.is_empty() {
        return Err(bad("args", "name at least one property".to_owned()));
    }
    if args.len() > limits::REQUEST_ARGS_MAX {
        let reason = format!("there are more than {}", limits::REQUEST_ARGS_MAX);
        return Err(bad("args", reason));
    }
    for (name, value) in args {
        let field = format!("args.{name}");
        let text = match value {
            Value::Object(object) => {
                let is_known = |key: &String| key == "value" || key == "persist";
                let persist = object.get("persist");
                if !object.keys().all(is_known) || persist.is_some_and(|p| !p.is_boolean()) {
                    let reason =
                        "write it as a text, or as {\"value\": text, \"persist\": true or false}";
                    return Err(bad(&field, reason.to_owned()));
                }
                object.get("value").unwrap_or(&Value::Null)
            }
            other => other,
        };
        let is_scalar = text.is_string() || text.is_number() || text.is_boolean();
        if !is_scalar || !is_short(text) {
            let reason = format!(
                "it must be a text of at most {} bytes",
                limits::ARG_BYTES_MAX
            );
            return Err(bad(&field, reason));
        }
    }
    Ok(())
}

fn check_shape(shape: Shape, value: &Value) -> Result<(), String> {
    if !is_short(value) {
        return Err(format!("it has more than {} bytes", limits::ARG_BYTES_MAX));
    }
    let text = value.as_str().filter(|text| !text.trim().is_empty());
    match shape {
        Shape::Text => text.map(|_| ()).ok_or("it must be a text".to_owned()),
        Shape::Flag if value.is_boolean() => Ok(()),
        Shape::Flag if matches!(text, Some("true" | "false")) => Ok(()),
        Shape::Flag => Err("it must be true or false".to_owned()),
        Shape::File => check_path(text.ok_or("it must be the name of a file")?),
        Shape::Url => {
            let text = text.ok_or("it must be an address")?;
            let starts = ["http://", "https://", "/"];
            match starts.iter().any(|start| text.starts_with(start)) {
                true => Ok(()),
                false => Err("it must begin with http://, https:// or /".to_owned()),
            }
        }
        Shape::Names => {
            let names = value.as_array().filter(|names| !names.is_empty());
            let names = names.ok_or("it must be a list of names")?;
            let is_name = |name: &Value| name.as_str().is_some_and(|name| !name.is_empty());
            match names.iter().all(is_name) && names.len() <= limits::REQUEST_ARGS_MAX {
                true => Ok(()),
                false => Err("it must be a list of names that are not empty".to_owned()),
            }
        }
    }
}

/// Checks that a path stays in the folder that it is relative to.
pub fn check_path(path: &str) -> Result<(), String> {
    if path.len() > limits::NAME_BYTES_MAX || path.chars().any(char::is_control) {
        return Err(format!(
            "use at most {} bytes without control characters",
            limits::NAME_BYTES_MAX
        ));
    }
    let is_drive = path.as_bytes().get(1) == Some(&b':');
    if path.starts_with('/') || path.contains('\\') || is_drive {
        return Err("it must be relative, with / between folders".to_owned());
    }
    if path
        .split('/')
        .any(|part| part.is_empty() || part == "." || part == "..")
    {
        return Err("no part of it may be empty, '.' or '..'".to_owned());
    }
    Ok(())
}

fn is_short(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= limits::ARG_BYTES_MAX,
        Value::Array(items) => items.iter().all(is_short),
        _ => true,
    }
}

fn bad(field: &str, reason: String) -> FleetError {
    FleetError::BadField {
        field: field.to_owned(),
        reason,
    }
}

/// What a property's name has in it whose value nobody should read.
const SECRET_WORDS: [&str; 4] = ["pass", "secret", "token", "private"];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Result<Request, String> {
        let target = Target::Agent("a".to_owned());
        Request::parse(body.as_bytes(), target, UnixMillis(0)).map_err(|error| error.to_string())
    }

    #[test]
    fn words_may_be_of_any_case() {
        let request = parse(r#"{"operation":"describe","operand":"JSTACK"}"#).unwrap();
        assert_eq!(
            (request.kind, request.operand),
            (OperationKind::Describe, Operand::Jstack)
        );
        assert!(parse(r#"{"operation":"RESTART"}"#).is_ok());
        assert!(parse(r#"{"operation":"RESTART","operand":""}"#).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (body, says) in [
            ("", "the body"),
            ("[]", "the body"),
            (r#"{"operation":"RESTART","arg":{}}"#, "unknown field `arg`"),
            (r#"{"operation":"LEVITATE"}"#, "operation"),
            (r#"{"operation":"UPDATE"}"#, "operation"),
            (r#"{"operation":"UPDATE","operand":"jstack"}"#, "operand"),
            (
                r#"{"operation":"RESTART","args":{"now":true}}"#,
                "args.now: the operation takes no",
            ),
            (
                r#"{"operation":"START","operand":"processor"}"#,
                "args.processorId: it is missing",
            ),
            (
                r#"{"operation":"START","operand":"processor","args":{"processorId":" "}}"#,
                "args.processorId",
            ),
            (
                r#"{"operation":"UPDATE","operand":"asset","args":{"file":"../x","url":"/x"}}"#,
                "args.file",
            ),
            (
                r#"{"operation":"UPDATE","operand":"asset","args":{"file":"/x","url":"/x"}}"#,
                "args.file",
            ),
            (
                r#"{"operation":"UPDATE","operand":"asset","args":{"file":"c:x","url":"/x"}}"#,
                "args.file",
            ),
            (
                r#"{"operation":"UPDATE","operand":"asset","args":{"file":"x","url":"file:///x"}}"#,
                "args.url",
            ),
            (
                r#"{"operation":"UPDATE","operand":"asset","args":{"file":"x"}}"#,
                "give either url",
            ),
            (
                r#"{"operation":"UPDATE","operand":"asset","args":{"file":"x","url":"/x","forceDownload":1}}"#,
                "args.forceDownload",
            ),
            (
                r#"{"operation":"UPDATE","operand":"properties"}"#,
                "args: name at least one",
            ),
            (
                r#"{"operation":"UPDATE","operand":"properties","args":{"a":[1]}}"#,
                "args.a",
            ),
            (
                r#"{"operation":"UPDATE","operand":"properties","args":{"a":{"value":"1","keep":true}}}"#,
                "args.a",
            ),
            (
                r#"{"operation":"CLEAR","operand":"connection","args":{"connections":[]}}"#,
                "args.connections",
            ),
        ] {
            let error = parse(body).unwrap_err();
            assert!(error.contains(says), "{body}: {error}");
        }
    }

    #[test]
    fn what_is_large_or_fetched_has_a_bound_of_its_own_where_a_class_is_asked() {
        let at_once = |target: Target, body: &str| {
            let request = Request::parse(body.as_bytes(), target, UnixMillis(0));
            request
                .map(|request| request.at_once)
                .map_err(|e| e.to_string())
        };
        let class = || Target::Class("edge".to_owned());
        let transfer = r#"{"operation":"TRANSFER","operand":"debug"}"#;
        assert_eq!(
            at_once(class(), transfer),
            Ok(limits::UPLOADS_AT_ONCE_DEFAULT)
        );
        let sync = r#"{"operation":"SYNC","operand":"resource"}"#;
        assert_eq!(at_once(class(), sync), Ok(limits::FETCHES_AT_ONCE_DEFAULT));
        assert_eq!(at_once(class(), r#"{"operation":"RESTART"}"#), Ok(0));
        let given = r#"{"operation":"RESTART","at_once":3}"#;
        assert_eq!(at_once(class(), given), Ok(3));
        let all = r#"{"operation":"TRANSFER","operand":"debug","at_once":0}"#;
        assert_eq!(at_once(class(), all), Ok(0));
        let agent = Target::Agent("a".to_owned());
        assert_eq!(at_once(agent.clone(), transfer), Ok(0));
        let refused = at_once(agent, given).unwrap_err();
        assert!(refused.contains("at_once"), "{refused}");
        assert!(at_once(class(), r#"{"operation":"RESTART","at_once":-1}"#).is_err());
    }

    #[test]
    fn values_of_secret_properties_are_not_shown() {
        let request = parse(
            r#"{"operation":"UPDATE","operand":"properties","args":{
                "nifi.security.client.Pass.phrase":"x","nifi.c2.agent.class":"y"}}"#,
        );
        let shown = request.unwrap().shown_args();
        assert_eq!(shown["nifi.security.client.Pass.phrase"], "********");
        assert_eq!(shown["nifi.c2.agent.class"], "y");
    }
}
