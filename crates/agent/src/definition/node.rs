//! A value in a text with the path that leads to it, so that every message can say where.

use serde_yaml_ng::{Mapping, Value};

use super::Problems;

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct Node<'v> {
    pub(super) value: &'v Value,
    pub(super) path: String,
}

impl<'v> Node<'v> {
    pub(super) fn root(value: &'v Value) -> Self {
        Node {
            value,
            path: String::new(),
        }
    }

    /// The first of `keys` that is there and not null.
    pub(super) fn find(&self, keys: &[&str]) -> Option<Node<'v>> {
        let map = self.value.as_mapping()?;
        keys.iter().find_map(|key| {
            let value = map.get(*key).filter(|value| !value.is_null())?;
            Some(Node {
                value,
                path: self.join(key),
            })
        })
    }

    /// The path of something below, whether it is there or not.
    pub(super) fn join(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{} / {key}", self.path)
        }
    }

    /// The value as a map.
    pub(super) fn map(&self, problems: &mut Problems) -> Option<&'v Mapping> {
        let map = self.value.as_mapping();
        if map.is_none() {
            problems.add(&self.path, "must be a map of keys and values");
        }
        map
    }

    /// The items of the list at `keys`, each with its index and name in the path.
    pub(super) fn list(&self, keys: &[&str], problems: &mut Problems) -> Vec<Node<'v>> {
        let Some(list) = self.find(keys) else {
            return Vec::new();
        };
        let Some(items) = list.value.as_sequence() else {
            problems.add(&list.path, "must be a list");
            return Vec::new();
        };
        let nodes = items.iter().enumerate().map(|(index, value)| {
            let name = value
                .as_mapping()
                .and_then(|map| map.get("name"))
                .and_then(Value::as_str);
            let path = match name {
                Some(name) => format!("{}[{index}] '{name}'", list.path),
                None => format!("{}[{index}]", list.path),
            };
            Node { value, path }
        });
        nodes.collect()
    }

    /// The value at `keys` as a text; numbers and flags are texts too.
    pub(super) fn text(&self, keys: &[&str], problems: &mut Problems) -> Option<String> {
        let node = self.find(keys)?;
        let text = scalar(node.value);
        if text.is_none() {
            problems.add(&node.path, "must be a single value");
        }
        text
    }

    /// The texts at `keys`: a list of them or a single one.
    pub(super) fn texts(&self, keys: &[&str], problems: &mut Problems) -> Vec<String> {
        let Some(node) = self.find(keys) else {
            return Vec::new();
        };
        let texts = match node.value {
            Value::Sequence(items) => items.iter().map(scalar).collect(),
            single => scalar(single).map(|text| vec![text]),
        };
        if texts.is_none() {
            problems.add(&node.path, "must be a list of names");
        }
        texts.unwrap_or_default()
    }

    /// The value at `keys` read by `parse`, or `default` when it is absent.
    pub(super) fn parsed<T>(
        &self,
        keys: &[&str],
        default: T,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
        problems: &mut Problems,
    ) -> T {
        let Some(text) = self.text(keys, problems) else {
            return default;
        };
        match parse(&text) {
            Some(value) => value,
            None => {
                let path = self
                    .find(keys)
                    .map_or_else(|| self.path.clone(), |node| node.path);
                problems.add(&path, format!("'{text}' is no {expected}"));
                default
            }
        }
    }
}

/// A scalar as flows mean it: as a text.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}
