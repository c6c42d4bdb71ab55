//! What is different between two versions of a flow, place by place.
//!
//! An element of a list is named by its id, or else its name, so that one more processor is one
//! addition and no change of all that follow.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::limits;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where, such as `Processors[GetFile].Properties.Input Directory`.
    pub place: String,
    /// `added`, `removed` or `changed`.
    pub change: &'static str,
    /// What stood there.
    pub from: Option<Value>,
    /// What stands there now.
    pub to: Option<Value>,
}

/// The differences on the way from one flow to another, by place, up to a bound.
pub fn differences(from: &Value, to: &Value) -> Vec<Difference> {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    flatten(from, String::new(), 0, &mut before);
    flatten(to, String::new(), 0, &mut after);
    let mut places: Vec<&String> = before.keys().chain(after.keys()).collect();
    places.sort();
    places.dedup();
    let mut found = Vec::new();
    for place in places {
        let (from, to) = (before.get(place), after.get(place));
        if from == to || found.len() >= limits::FLOW_DIFFERENCES_MAX {
            continue;
        }
        found.push(Difference {
            place: place.clone(),
            change: match (from, to) {
                (None, _) => "added",
                (_, None) => "removed",
                _ => "changed",
            },
            from: from.map(|value| (*value).clone()),
            to: to.map(|value| (*value).clone()),
        });
    }
    found
}

fn flatten<'v>(
    value: &'v Value,
    place: String,
    depth: usize,
    into: &mut BTreeMap<String, &'v Value>,
) {
    if depth > 2 * limits::FLOW_DEPTH_MAX {
        return;
    }
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, child) in map {
                let place = match place.is_empty() {
                    true => key.clone(),
                    false => format!("{place}.{key}"),
                };
                flatten(child, place, depth + 1, into);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                let keys = ["identifier", "instanceIdentifier", "id", "name"];
                let named = keys.iter().find_map(|key| item.get(*key)?.as_str());
                let named = named.map_or_else(|| index.to_string(), |name| format!("{name:?}"));
                flatten(item, format!("{place}[{named}]"), depth + 1, into);
            }
        }
        scalar => {
            into.insert(place, scalar);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_compared_by_their_ids() {
        let from = json!({"Processors": [
            {"id": "a", "Properties": {"Dir": "/x", "Keep": "true"}}, {"id": "b", "name": "B"}]});
        let to = json!({"Processors": [
            {"id": "c", "name": "C"}, {"id": "b", "name": "B"},
            {"id": "a", "Properties": {"Dir": "/y"}}]});
        let found = differences(&from, &to);
        let told: Vec<(&str, &str)> = found.iter().map(|d| (d.change, d.place.as_str())).collect();
        assert_eq!(
            told,
            [
                ("changed", "Processors[\"a\"].Properties.Dir"),
                ("removed", "Processors[\"a\"].Properties.Keep"),
                ("added", "Processors[\"c\"].id"),
                ("added", "Processors[\"c\"].name"),
            ]
        );
        assert_eq!(
            (&found[0].from, &found[0].to),
            (&Some(json!("/x")), &Some(json!("/y")))
        );
        assert!(differences(&from, &from).is_empty());
    }
}
