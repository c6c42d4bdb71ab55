//! A flow in the other shape: MiNiFi's YAML (Config Version 3) as NiFi's flow JSON, and back.
//!
//! Both tell the same components under different names. What only one of them can tell is left out
//! and named; what is only of a canvas (positions, labels, colors) or an agent's own setting goes
//! without saying. Without IO.

mod bundles;
mod to_json;
mod to_yaml;

use serde_json::{Map, Value};

use super::check::Problem;
use super::{FlowShape, read, write};
use crate::error::FleetError;
use crate::limits;

pub use bundles::Bundles;

/// A flow that was written in another shape.
#[derive(Clone, Debug)]
pub struct Converted {
    /// Its text.
    pub text: bytes::Bytes,
    /// What the other shape cannot tell, and was left out.
    pub left_out: Vec<Problem>,
}

/// Writes a flow in this shape; without the agents' bundles components of the JSON have none.
///
/// # Errors
/// [`FleetError::BadFlow`] when the text is no flow.
pub fn convert(text: &[u8], to: FlowShape, bundles: &Bundles) -> Result<Converted, FleetError> {
    let (shape, flow) = read(text)?;
    let mut left_out = LeftOut::default();
    let made = match (is_nifis(&flow), to) {
        (true, FlowShape::Yaml) => to_yaml::flow(&flow, &mut left_out),
        (false, FlowShape::Json) => to_json::flow(&flow, bundles, &mut left_out),
        // The YAML's words, in JSON's signs or its own.
        (false, FlowShape::Yaml) if shape == FlowShape::Json => flow,
        _ => {
            return Ok(Converted {
                text: bytes::Bytes::copy_from_slice(text),
                left_out: Vec::new(),
            });
        }
    };
    Ok(Converted {
        text: write(to, &made)?,
        left_out: left_out.0,
    })
}

/// Whether the flow has NiFi's words, and not those of MiNiFi's YAML.
pub fn is_nifis(flow: &Value) -> bool {
    flow.get("rootGroup").is_some()
}

/// What cannot be told in the other shape, up to a bound.
#[derive(Debug, Default)]
struct LeftOut(Vec<Problem>);

impl LeftOut {
    /// Something of a component, or all of it.
    fn add(&mut self, component: &Value, property: Option<&str>, reason: impl Into<String>) {
        if self.0.len() < limits::FLOW_PROBLEMS_MAX {
            let id = text(component, &["id", "identifier"]);
            let name = text(component, &["name"]);
            self.0.push(Problem {
                component: name.or_else(|| id.clone()).unwrap_or_default(),
                component_id: id,
                property: property.map(str::to_owned),
                reason: reason.into(),
            });
        }
    }

    /// Something of the whole flow.
    fn whole(&mut self, section: &str, reason: &str) {
        let flow = serde_json::json!({"name": "the flow"});
        self.add(&flow, Some(section), reason);
    }
}

/// The text of the first of these keys that has one; numbers and truths as they are written.
fn text(item: &Value, keys: &[&str]) -> Option<String> {
    let found = keys.iter().find_map(|key| item.get(key))?;
    scalar(found)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// A whole number, also one that is written as a text.
fn number(item: &Value, key: &str) -> Option<i64> {
    let found = item.get(key)?;
    found
        .as_i64()
        .or_else(|| found.as_f64().map(|float| float as i64))
        .or_else(|| found.as_str()?.trim().parse().ok())
}

/// A truth, also one that is written as a text.
fn truth(item: &Value, key: &str) -> Option<bool> {
    let found = item.get(key)?;
    found
        .as_bool()
        .or_else(|| found.as_str()?.trim().to_ascii_lowercase().parse().ok())
}

/// The items of a list; what is none has none.
fn items<'v>(item: &'v Value, keys: &[&str]) -> &'v [Value] {
    let lists = keys.iter().filter_map(|key| item.get(key)?.as_array());
    lists.into_iter().next().map_or(&[], Vec::as_slice)
}

/// Texts of a list, or the only one.
fn texts(item: &Value, keys: &[&str]) -> Vec<Value> {
    let found = keys.iter().find_map(|key| item.get(key));
    match found {
        Some(Value::Array(all)) => all.iter().filter_map(scalar).map(Value::String).collect(),
        Some(one) => scalar(one)
            .filter(|one| !one.is_empty())
            .map(Value::String)
            .into_iter()
            .collect(),
        None => Vec::new(),
    }
}

/// Whether there is nothing in it.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// Puts what there is.
fn put(map: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests;
