//! Seals the secrets of a flow definition, and leaves the rest as it means; comments are lost.
//!
//! Secrets are the values of sensitive properties, of sensitive parameters, and proxies'
//! passwords. References to parameters and values that are sealed already stay.

use serde_yaml_ng::{Mapping, Value};

use super::node::scalar;
use super::read::parse_yaml;
use crate::parameters::{SecretKey, secret};
use crate::processors::{self, PropertyKind};
use crate::services;

/// The flow with sealed secrets, in the format that it had; `None` when there is nothing to seal.
///
/// Errors: the text is no YAML or JSON.
pub fn seal(text: &str, key: &SecretKey) -> Result<Option<String>, String> {
    let is_json = text.trim_start().starts_with('{');
    let mut value: Value = if is_json {
        serde_json::from_str(text).map_err(|error| error.to_string())?
    } else {
        parse_yaml(text)?
    };
    let mut sealed = 0;
    walk(&mut value, key, &mut sealed)?;
    if sealed == 0 {
        return Ok(None);
    }
    let text = if is_json {
        serde_json::to_string_pretty(&value).map_err(|error| error.to_string())?
    } else {
        serde_yaml_ng::to_string(&value).map_err(|error| error.to_string())?
    };
    Ok(Some(text))
}

fn walk(value: &mut Value, key: &SecretKey, sealed: &mut usize) -> Result<(), String> {
    match value {
        Value::Sequence(items) => {
            for item in items {
                walk(item, key, sealed)?;
            }
        }
        Value::Mapping(map) => {
            component(map, key, sealed)?;
            for (_, value) in map {
                walk(value, key, sealed)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Seals what is secret of one processor, service, remote group or parameter.
fn component(map: &mut Mapping, key: &SecretKey, sealed: &mut usize) -> Result<(), String> {
    let is_sensitive = map.get("sensitive").and_then(scalar);
    if is_sensitive.is_some_and(|flag| flag.eq_ignore_ascii_case("true")) {
        hide(map, "value", key, sealed)?;
    }
    for name in ["proxy password", "proxyPassword"] {
        hide(map, name, key, sealed)?;
    }
    let Some(class) = ["class", "type"].iter().find_map(|k| map.get(*k)) else {
        return Ok(());
    };
    let class = scalar(class).unwrap_or_default();
    let class = class.rsplit('.').next().unwrap_or_default();
    let Some(table) = table_of(class) else {
        return Ok(());
    };
    for list in ["Properties", "properties"] {
        if let Some(Value::Mapping(properties)) = map.get_mut(list) {
            for kind in table.iter().filter(|kind| kind.is_sensitive) {
                hide(properties, kind.name, key, sealed)?;
            }
        }
    }
    Ok(())
}

fn table_of(class: &str) -> Option<&'static [PropertyKind]> {
    let processor = processors::find(class).map(|kind| kind.properties);
    processor.or_else(|| services::find(class).map(|kind| kind.properties))
}

fn hide(map: &mut Mapping, name: &str, key: &SecretKey, sealed: &mut usize) -> Result<(), String> {
    let Some(value) = map.get_mut(name) else {
        return Ok(());
    };
    let Some(text) = scalar(value).filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    // A text with a reference is put together from parameters, which are sealed themselves.
    if secret::is_sealed(&text) || text.contains("#{") {
        return Ok(());
    }
    *value = Value::String(key.seal(&text)?);
    *sealed += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::Flow;
    use crate::parameters::Surroundings;

    #[test]
    fn secrets_are_sealed_and_the_flow_stays_the_same() {
        let key = SecretKey::parse(&"5a".repeat(32)).unwrap();
        let surroundings = Surroundings {
            key: Some(key.clone()),
            ..Surroundings::default()
        };
        for ending in ["yml", "json"] {
            let path = format!(
                "{}/tests/flows/services-and-parameters.{ending}",
                env!("CARGO_MANIFEST_DIR")
            );
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains("open-sesame"));
            let sealed = seal(&text, &key).unwrap().expect("there is a secret");
            assert!(!sealed.contains("open-sesame"), "{sealed}");
            let before = Flow::load(&text, &surroundings).unwrap();
            assert_eq!(Flow::load(&sealed, &surroundings).unwrap(), before);
            assert_eq!(seal(&sealed, &key), Ok(None), "it is sealed already");
        }
        let plain = "Processors: [{class: SSLContextService, Properties: {Passphrase: p}}]";
        let sealed = seal(plain, &key).unwrap().unwrap();
        assert!(sealed.contains("Passphrase: enc{"), "{sealed}");
    }
}
