//! OGC SensorThings Observations: what versions 1.0 and 1.1 send, and the old draft 0.97.
//!
//! Statements read `result`, `id`, `attributeId` and `date` whichever it was; what the payload
//! has under these names already stays.

use base::{UnixMillis, parse_rfc3339};
use serde_json::{Map, Value, json};

use super::Decoded;

/// An Observation of SensorThings 1.0 or 1.1.
///
/// # Errors
/// It is no object, or has no result.
pub fn current(
    message: Value,
    topic: &str,
    now: UnixMillis,
    out: &mut Decoded,
) -> Result<(), String> {
    let mut event = object(message)?;
    if !event.contains_key("result") {
        return Err("it has no result".to_owned());
    }
    let datastream = ["Datastream", "MultiDatastream", "datastream"]
        .into_iter()
        .find_map(|name| event.get(name))
        .and_then(identity)
        .or_else(|| datastream_of(topic).map(Value::from));
    let id = event.get("@iot.id").cloned().or_else(|| datastream.clone());
    let times = ["phenomenonTime", "resultTime"];
    let date = times.into_iter().find_map(|name| time(event.get(name)?));
    add(&mut event, "attributeId", datastream);
    add(&mut event, "id", id);
    add(&mut event, "date", Some(json!(date.unwrap_or(now.0))));
    out.push(&Value::Object(event));
    Ok(())
}

/// An Observation of the draft: `Time`, `ResultValue`, `ResultType`, `Datastream` and `Sensor`.
///
/// # Errors
/// It is no object, or has no result.
pub fn draft(message: Value, now: UnixMillis, out: &mut Decoded) -> Result<(), String> {
    let mut event = object(message)?;
    let Some(result) = event.get("ResultValue").cloned() else {
        return Err("it has no ResultValue".to_owned());
    };
    let (sensor, datastream) = (
        event.get("Sensor").and_then(identity),
        event.get("Datastream").and_then(identity),
    );
    let written = event.get("Time").cloned();
    let date = written.as_ref().and_then(time).unwrap_or(now.0);
    add(&mut event, "result", Some(result));
    add(&mut event, "phenomenonTime", written);
    add(&mut event, "id", sensor);
    add(&mut event, "attributeId", datastream);
    add(&mut event, "date", Some(json!(date)));
    out.push(&Value::Object(event));
    Ok(())
}

fn object(message: Value) -> Result<Map<String, Value>, String> {
    match message {
        Value::Object(object) => Ok(object),
        _ => Err("it is no object".to_owned()),
    }
}

fn add(event: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        event.entry(name).or_insert(value);
    }
}

/// The id of a related entity.
fn identity(entity: &Value) -> Option<Value> {
    ["@iot.id", "id", "ID"]
        .into_iter()
        .find_map(|name| entity.get(name))
        .filter(|id| id.is_string() || id.is_number())
        .cloned()
}

/// The datastream that a topic names: `…/Datastreams/7` or `…/Datastreams(7)/Observations`.
fn datastream_of(topic: &str) -> Option<&str> {
    let (_, rest) = topic.rsplit_once("Datastreams")?;
    let id = match rest.strip_prefix('(') {
        Some(rest) => rest.split(')').next()?.trim_matches('\''),
        None => rest.strip_prefix('/')?.split('/').next()?,
    };
    Some(id).filter(|id| !id.is_empty())
}

/// Milliseconds since 1970 of a time, or of the start of an interval.
fn time(written: &Value) -> Option<i64> {
    match written {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => parse_rfc3339(text.split('/').next().unwrap_or(text)),
        _ => None,
    }
}
