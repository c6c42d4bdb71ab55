//! Flow texts: which shape they have, and whether they can be a flow at all.
//!
//! A light check: the text parses, has its processors where they belong, each with a name and a
//! type, and no id twice. What a component's properties may be is the agents' business.

pub mod check;
pub mod convert;
pub mod diff;
pub mod parameters;

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde_json::Value;

use crate::error::FleetError;
use crate::limits;

/// How a flow is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowShape {
    /// MiNiFi's YAML, Config Version 3 (and its older versions).
    Yaml,
    /// NiFi's flow JSON, with a `rootGroup`.
    Json,
}

impl FlowShape {
    /// The word in the API and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            FlowShape::Yaml => "yaml",
            FlowShape::Json => "json",
        }
    }

    /// The content type under which agents fetch it.
    pub fn content_type(self) -> &'static str {
        match self {
            FlowShape::Yaml => "text/yml",
            FlowShape::Json => "application/json",
        }
    }
}

impl FromStr for FlowShape {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "yaml" => Ok(FlowShape::Yaml),
            "json" => Ok(FlowShape::Json),
            _ => Err(()),
        }
    }
}

impl fmt::Display for FlowShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads a flow's text and tells its shape; the error names the place.
pub fn read(text: &[u8]) -> Result<(FlowShape, Value), FleetError> {
    let text = std::str::from_utf8(text).map_err(|error| {
        bad(
            format!("byte {}", error.valid_up_to()),
            "it is not UTF-8 text",
        )
    })?;
    let trimmed = text.trim_start_matches('\u{feff}').trim_start();
    if trimmed.is_empty() {
        return Err(bad("line 1", "it is empty"));
    }
    if trimmed.starts_with('{') {
        let flow: Value = serde_json::from_str(text).map_err(|error| {
            let place = format!("line {} column {}", error.line(), error.column());
            bad(place, format!("it is no JSON: {error}"))
        })?;
        validate_json(&flow)?;
        return Ok((FlowShape::Json, flow));
    }
    if let Some((line, column)) = base::nests_too_deep(text) {
        let place = format!("line {line} column {column}");
        return Err(bad(place, "its brackets nest too deep"));
    }
    let flow: Value = serde_yaml_ng::from_str(text).map_err(|error| {
        let place = error.location().map_or_else(
            || "the text".to_owned(),
            |at| format!("line {} column {}", at.line(), at.column()),
        );
        bad(place, format!("it is no YAML: {error}"))
    })?;
    validate_yaml(&flow)?;
    Ok((FlowShape::Yaml, flow))
}

/// Writes a flow that was read and changed.
pub fn write(shape: FlowShape, flow: &Value) -> Result<Bytes, FleetError> {
    let unwritable =
        |error: String| bad("the text", format!("it cannot be written again: {error}"));
    match shape {
        FlowShape::Json => serde_json::to_vec(flow)
            .map(Bytes::from)
            .map_err(|error| unwritable(error.to_string())),
        FlowShape::Yaml => serde_yaml_ng::to_string(flow)
            .map(Bytes::from)
            .map_err(|error| unwritable(error.to_string())),
    }
}

fn validate_json(flow: &Value) -> Result<(), FleetError> {
    if flow.get("Processors").is_some() {
        // The JSON twin of the YAML shape, which C++ agents take too.
        return validate_yaml(flow);
    }
    let (place, root) = match (flow.get("rootGroup"), flow.get("flowContents")) {
        (Some(root), _) => ("rootGroup", root),
        (None, Some(_)) => {
            let reason = "this is a flow exported from NiFi or its registry; agents want it under \
                          rootGroup, as in flow.json";
            return Err(bad("flowContents", reason));
        }
        (None, None) => return Err(bad("the top", "there is no rootGroup")),
    };
    group_json(root, place, 0, &mut HashSet::new())
}

fn group_json<'f>(
    group: &'f Value,
    place: &str,
    depth: usize,
    ids: &mut HashSet<&'f str>,
) -> Result<(), FleetError> {
    if depth > limits::FLOW_DEPTH_MAX {
        return Err(bad(
            place,
            format!("groups are nested deeper than {}", limits::FLOW_DEPTH_MAX),
        ));
    }
    if !group.is_object() {
        return Err(bad(place, "it is no object"));
    }
    for (index, processor) in list(group, "processors", place)?.iter().enumerate() {
        let place = format!("{place}.processors[{index}]");
        named(processor, &["type"], &place)?;
        unique(
            processor,
            &["identifier", "instanceIdentifier", "id"],
            &place,
            ids,
        )?;
    }
    for (index, child) in list(group, "processGroups", place)?.iter().enumerate() {
        group_json(
            child,
            &format!("{place}.processGroups[{index}]"),
            depth + 1,
            ids,
        )?;
    }
    Ok(())
}

fn validate_yaml(flow: &Value) -> Result<(), FleetError> {
    if !flow.is_object() {
        return Err(bad(
            "the top",
            "it is no mapping of sections such as 'Processors'",
        ));
    }
    if flow.get("Processors").is_none() {
        return Err(bad("the top", "there is no section 'Processors'"));
    }
    if let Some(version) = flow.get("MiNiFi Config Version") {
        let number = version
            .as_u64()
            .or_else(|| version.as_str()?.trim().parse().ok());
        if !number.is_some_and(|number| (1..=3).contains(&number)) {
            return Err(bad("MiNiFi Config Version", "it must be 1, 2 or 3"));
        }
    }
    group_yaml(flow, "", 0, &mut HashSet::new())
}

fn group_yaml<'f>(
    group: &'f Value,
    prefix: &str,
    depth: usize,
    ids: &mut HashSet<&'f str>,
) -> Result<(), FleetError> {
    if depth > limits::FLOW_DEPTH_MAX {
        let reason = format!("groups are nested deeper than {}", limits::FLOW_DEPTH_MAX);
        return Err(bad(prefix, reason));
    }
    for (index, processor) in list(group, "Processors", prefix)?.iter().enumerate() {
        let place = join(prefix, &format!("Processors[{index}]"));
        named(processor, &["name"], &place)?;
        named(processor, &["class", "type"], &place)?;
        unique(processor, &["id"], &place, ids)?;
    }
    for (index, child) in list(group, "Process Groups", prefix)?.iter().enumerate() {
        group_yaml(
            child,
            &join(prefix, &format!("Process Groups[{index}]")),
            depth + 1,
            ids,
        )?;
    }
    Ok(())
}

/// The list under `key`; a key without a value is an empty one.
fn list<'f>(group: &'f Value, key: &str, place: &str) -> Result<&'f [Value], FleetError> {
    match group.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(bad(join(place, key), "it is no list")),
    }
}

fn named(item: &Value, keys: &[&str], place: &str) -> Result<(), FleetError> {
    if !item.is_object() {
        return Err(bad(place, "it is no mapping"));
    }
    let text = keys
        .iter()
        .find_map(|key| item.get(key))
        .and_then(Value::as_str);
    match text {
        Some(text) if !text.trim().is_empty() => Ok(()),
        _ => Err(bad(join(place, keys[0]), "there is no text")),
    }
}

fn unique<'f>(
    item: &'f Value,
    keys: &[&str],
    place: &str,
    ids: &mut HashSet<&'f str>,
) -> Result<(), FleetError> {
    let Some((key, id)) = keys
        .iter()
        .find_map(|key| Some((*key, item.get(key)?.as_str()?)))
    else {
        return Ok(());
    };
    if ids.insert(id) {
        return Ok(());
    }
    Err(bad(
        join(place, key),
        format!("'{id}' is another processor's already"),
    ))
}

fn join(prefix: &str, rest: &str) -> String {
    if prefix.is_empty() {
        rest.to_owned()
    } else {
        format!("{prefix}.{rest}")
    }
}

fn bad(place: impl Into<String>, reason: impl Into<String>) -> FleetError {
    FleetError::BadFlow {
        place: place.into(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<FlowShape, &str>) {
        match (read(text.as_bytes()), expected) {
            (Ok((shape, _)), Ok(wanted)) => assert_eq!(shape, wanted, "{text}"),
            (Err(FleetError::BadFlow { place, reason }), Err(wanted)) => {
                assert_eq!(place, wanted, "{text}: {reason}");
            }
            (got, wanted) => panic!("{text}: got {got:?}, wanted {wanted:?}"),
        }
    }

    #[test]
    fn flows_of_both_shapes_are_told_apart() {
        check(
            "MiNiFi Config Version: 3\nProcessors: []\n",
            Ok(FlowShape::Yaml),
        );
        check("Processors:\n", Ok(FlowShape::Yaml));
        let yaml = "Processors:\n- {id: a, name: A, class: org.X}\n- {id: b, name: A, type: Y}\n";
        check(yaml, Ok(FlowShape::Yaml));
        check(
            r#"{"rootGroup":{"processors":[{"type":"X","identifier":"1"}]}}"#,
            Ok(FlowShape::Json),
        );
        check(r#"{"rootGroup":{}}"#, Ok(FlowShape::Json));
        check(
            r#"{"Processors":[{"name":"A","class":"X"}]}"#,
            Ok(FlowShape::Json),
        );
    }

    #[test]
    fn errors_name_the_place() {
        check("", Err("line 1"));
        check("just words", Err("the top"));
        check("Flow Controller: {}\n", Err("the top"));
        check(
            "MiNiFi Config Version: 7\nProcessors: []",
            Err("MiNiFi Config Version"),
        );
        check("Processors: {}\n", Err("Processors"));
        check("Processors:\n- name: A\n", Err("Processors[0].class"));
        check("Processors:\n- class: A\n", Err("Processors[0].name"));
        let twice = "Processors:\n- {id: a, name: A, class: X}\n- {id: a, name: B, class: X}\n";
        check(twice, Err("Processors[1].id"));
        let nested = "Processors: []\nProcess Groups:\n- Processors:\n  - {name: A}\n";
        check(nested, Err("Process Groups[0].Processors[0].class"));
        check("Processors:\n\t- x", Err("line 2 column 1"));
        check("{\"rootGroup\":\n }x", Err("line 2 column 2"));
        check(r#"{"a":1}"#, Err("the top"));
        check(r#"{"flowContents":{}}"#, Err("flowContents"));
        check(
            r#"{"rootGroup":{"processors":[{}]}}"#,
            Err("rootGroup.processors[0].type"),
        );
        let deep = r#"{"rootGroup":{"processGroups":[{"processors":[7]}]}}"#;
        check(deep, Err("rootGroup.processGroups[0].processors[0]"));
    }

    #[test]
    fn a_bomb_of_aliases_or_nesting_is_refused() {
        let mut bomb = "Processors: []\na0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 1..12 {
            let alias = format!("*a{},", n - 1).repeat(9);
            bomb.push_str(&format!("a{n}: &a{n} [{}]\n", alias.trim_end_matches(',')));
        }
        assert!(read(bomb.as_bytes()).is_err());
        assert!(read(&b"[".repeat(100_000)).is_err());
        let deep = format!("{{\"rootGroup\":{}", "[".repeat(100_000));
        assert!(read(deep.as_bytes()).is_err());
    }
}
