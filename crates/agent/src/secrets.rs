//! Keeps secrets out of what the agent shows: settings and flows by the names of their values.

use serde_json::Value;

/// Whether a value of this name must not be shown.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    WORDS.iter().any(|word| plain.contains(word))
}

/// A flow definition without its secrets, as JSON; what cannot be read is not shown at all.
pub(crate) fn masked_flow(text: &str) -> Value {
    match serde_yaml_ng::from_str::<Value>(text) {
        Ok(mut flow) => {
            mask(&mut flow);
            flow
        }
        Err(_) => Value::String("the flow cannot be read, so it is not shown".to_owned()),
    }
}

/// Covers the secrets in any JSON, at any depth.
pub(crate) fn mask(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(fields) => {
            let is_sensitive = fields.get("sensitive").is_some_and(is_true);
            for (name, value) in fields {
                let is_parameter = is_sensitive && name == "value";
                if is_parameter || (is_secret(name) && !is_flag(value)) {
                    cover(value);
                } else if is_url(value) {
                    cover_login(value);
                } else {
                    mask(value);
                }
            }
        }
        _ => {}
    }
}

/// Flow JSON has descriptors beside values, whose `sensitive: true` says what to cover; they
/// themselves, and marks such as `isSensitive`, show nothing.
fn cover(value: &mut Value) {
    match value {
        Value::Null => {}
        Value::Object(_) => mask(value),
        other => *other = Value::String(COVER.to_owned()),
    }
}

fn is_true(value: &Value) -> bool {
    *value == Value::Bool(true) || *value == Value::String("true".to_owned())
}

fn is_flag(value: &Value) -> bool {
    value.is_boolean() || matches!(value.as_str(), Some("true" | "false"))
}

fn is_url(value: &Value) -> bool {
    value
        .as_str()
        .and_then(|text| text.split_once("://"))
        .is_some_and(|(_, rest)| rest.split('/').next().unwrap_or("").contains('@'))
}

/// An address's user and password.
fn cover_login(value: &mut Value) {
    let Some((scheme, rest)) = value.as_str().and_then(|text| text.split_once("://")) else {
        return;
    };
    let behind = rest.split_once('@').map_or("", |(_, behind)| behind);
    *value = Value::String(format!("{scheme}://{COVER}@{behind}"));
}

/// What stands for a secret.
pub(crate) const COVER: &str = "********";

/// Parts of names, in lower case and without marks between words.
const WORDS: &[&str] = &[
    "pass",
    "secret",
    "token",
    "credential",
    "accesskey",
    "apikey",
    "accountkey",
    "encryptionkey",
    "sensitivepropskey",
    "saskey",
    "sharedkey",
    "connectionstring",
    "authorization",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_of_flows_are_covered_at_any_depth() {
        let flow = "
Processors:
- name: out
  Properties:
    Topic Name: lines
    Security Pass Phrase: hunter2
    Remote URL: https://me:hunter2@host/path
Parameter Contexts:
- name: all
  Parameters:
  - {name: a, sensitive: true, value: hunter2}
  - {name: b, sensitive: false, value: shown}
";
        let masked = masked_flow(flow);
        let properties = &masked["Processors"][0]["Properties"];
        assert_eq!(properties["Topic Name"], "lines");
        assert_eq!(properties["Security Pass Phrase"], COVER);
        assert_eq!(properties["Remote URL"], "https://********@host/path");
        assert_eq!(
            masked["Parameter Contexts"][0]["Parameters"][1]["value"],
            "shown"
        );
        assert!(!masked.to_string().contains("hunter2"), "{masked}");
    }

    #[test]
    fn what_is_no_secret_stays() {
        let mut value = json!({"Password Required": "true", "sensitive": "false", "value": "v"});
        let before = value.clone();
        mask(&mut value);
        assert_eq!(value, before);
        assert!(is_secret("nifi.flowfile.repository.encryption.key"));
        assert!(!is_secret("nifi.security.client.private.key"));
    }
}
