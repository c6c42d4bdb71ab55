//! Parameters in a flow's text: found, taken out when they are secret, put in when an agent fetches.
//! Without IO.
//!
//! `#{name}` in a component's property is replaced by the value that the agent, its class or the
//! flow version has for it, in this order; `##{name}` is a literal. The flow's own contexts are given
//! the same values. A reference that nobody has a value for stays as it is: it is the agent's to
//! resolve from the flow's contexts, or to complain of.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::limits;

/// Values by parameter.
pub type Values = BTreeMap<String, String>;

/// Takes the values of sensitive parameters out of the flow's contexts.
pub fn take_secrets(flow: &mut Value) -> Values {
    let mut secrets = Values::new();
    for parameter in parameters(flow) {
        let is_secret = SENSITIVE.iter().any(|key| {
            let told = &parameter[*key];
            told == true || told == "true"
        });
        let name = parameter["name"].as_str().map(str::to_owned);
        if let (true, Some(name), Some(value)) = (is_secret, name, parameter.get_mut("value"))
            && let Value::String(text) = value.take()
        {
            secrets.insert(name, text);
        }
    }
    secrets
}

/// Puts values in; tells whether the flow was changed.
pub fn substitute(flow: &mut Value, values: &Values) -> bool {
    if values.is_empty() {
        return false;
    }
    let mut changed = false;
    for parameter in parameters(flow) {
        let name = parameter["name"].as_str();
        if let Some(value) = name.and_then(|name| values.get(name)).cloned()
            && parameter["value"].as_str() != Some(&value)
            && parameter.is_object()
        {
            parameter["value"] = Value::String(value);
            changed = true;
        }
    }
    walk(flow, false, 0, values, &mut changed);
    changed
}

/// The text with its references replaced; none when there are none to replace.
fn replaced(text: &str, values: &Values) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    let mut changed = false;
    while let Some(start) = rest.find("#{") {
        let hashes = rest[..start]
            .bytes()
            .rev()
            .take_while(|b| *b == b'#')
            .count();
        let Some(end) = rest[start..].find('}') else {
            break;
        };
        let reference = &rest[start..=start + end];
        // An odd number of signs before this one makes it a text.
        let name = reference[2..reference.len() - 1]
            .trim()
            .trim_matches(['\'', '"']);
        match values.get(name) {
            Some(value) if hashes % 2 == 0 => {
                out.push_str(&rest[..start]);
                out.push_str(value);
                changed = true;
            }
            _ => out.push_str(&rest[..=start + end]),
        }
        rest = &rest[start + end + 1..];
    }
    out.push_str(rest);
    changed.then_some(out)
}

/// Replaces references in all strings under properties.
fn walk(value: &mut Value, is_property: bool, depth: usize, values: &Values, changed: &mut bool) {
    if depth > 4 * limits::FLOW_DEPTH_MAX {
        return;
    }
    match value {
        Value::String(text) if is_property => {
            if let Some(new) = replaced(text, values) {
                *text = new;
                *changed = true;
            }
        }
        Value::Array(items) => {
            for item in items {
                walk(item, is_property, depth + 1, values, changed);
            }
        }
        Value::Object(map) => {
            for (key, child) in map {
                let is_property = is_property || key == "properties" || key == "Properties";
                walk(child, is_property, depth + 1, values, changed);
            }
        }
        _ => {}
    }
}

/// The parameters of all of the flow's contexts, in either shape.
fn parameters(flow: &mut Value) -> impl Iterator<Item = &mut Value> {
    let contexts = match flow {
        Value::Object(map) => map
            .iter_mut()
            .filter(|(key, _)| CONTEXTS.contains(&key.as_str()))
            .map(|(_, contexts)| contexts)
            .collect(),
        _ => Vec::new(),
    };
    contexts
        .into_iter()
        .flat_map(list)
        .filter_map(Value::as_object_mut)
        .flat_map(|context| {
            context
                .iter_mut()
                .filter(|(key, _)| PARAMETERS.contains(&key.as_str()))
                .flat_map(|(_, parameters)| list(parameters))
        })
}

fn list(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(items) => items.iter_mut().collect(),
        _ => Vec::new(),
    }
}

const CONTEXTS: [&str; 2] = ["parameterContexts", "Parameter Contexts"];
const PARAMETERS: [&str; 2] = ["parameters", "Parameters"];
const SENSITIVE: [&str; 2] = ["sensitive", "Sensitive"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values() -> Values {
        let pairs = [
            ("host", "broker:9092"),
            ("my dir", "/x"),
            ("secret", "#{host}"),
        ];
        pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    #[test]
    fn references_are_replaced_and_literals_are_not() {
        for (text, expected) in [
            ("#{host}", Some("broker:9092")),
            ("a#{host}b#{my dir}c", Some("abroker:9092b/xc")),
            ("#{'my dir'}/#{ host }", Some("/x/broker:9092")),
            ("##{host}", None),
            ("###{host}", Some("##broker:9092")),
            ("#{unknown} #{host}", Some("#{unknown} broker:9092")),
            ("#{host", None),
            ("#{secret}", Some("#{host}")),
            ("${host}", None),
        ] {
            assert_eq!(replaced(text, &values()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn only_properties_and_contexts_are_touched() {
        let mut flow = json!({
            "rootGroup": {"comments": "#{host}", "processors": [
                {"name": "#{host}", "properties": {"Broker": "#{host}", "n": null}}]},
            "parameterContexts": [{"name": "c", "parameters": [
                {"name": "host", "value": "old"}, {"name": "other", "value": "kept"}]}],
        });
        assert!(substitute(&mut flow, &values()));
        assert_eq!(
            flow,
            json!({
                "rootGroup": {"comments": "#{host}", "processors": [
                    {"name": "#{host}", "properties": {"Broker": "broker:9092", "n": null}}]},
                "parameterContexts": [{"name": "c", "parameters": [
                    {"name": "host", "value": "broker:9092"}, {"name": "other", "value": "kept"}]}],
            })
        );
        let mut plain = json!({"Processors": [{"Properties": {"a": "b"}}]});
        assert!(!substitute(&mut plain, &values()));
    }

    #[test]
    fn secrets_are_taken_out_of_both_shapes() {
        let mut flow = json!({"Parameter Contexts": [{"name": "c", "Parameters": [
            {"name": "password", "sensitive": true, "value": "s3cret"},
            {"name": "user", "sensitive": false, "value": "u"}]}]});
        let secrets = take_secrets(&mut flow);
        assert_eq!(
            secrets,
            Values::from([("password".to_owned(), "s3cret".to_owned())])
        );
        assert!(!flow.to_string().contains("s3cret"));
        assert!(take_secrets(&mut flow).is_empty());
        assert!(substitute(&mut flow, &secrets));
        assert!(flow.to_string().contains("s3cret"));
    }
}
