//! What stands around a schema's text: metadata and rules, with what a configuration gives each new
//! schema of a subject or lays over it, and the fields that metadata reserve.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::SchemaError;
use super::format::ParsedSchema;
use super::registering::NewSchema;
use super::state::{Content, Versions, last_live, object, object_text};

/// What the configuration in force has for the metadata and rules of a subject's new schemas.
#[derive(Debug, Default)]
pub(super) struct Around {
    /// Taken where neither the schema nor the version before it has another.
    pub default_metadata: Option<Map<String, Value>>,
    /// Taken whatever the schema has.
    pub override_metadata: Option<Map<String, Value>>,
    pub default_rule_set: Option<Map<String, Value>>,
    pub override_rule_set: Option<Map<String, Value>>,
}

/// The fields that a schema's metadata reserve: it must not have them itself, and later ones must
/// reserve them too.
#[derive(Debug)]
pub(super) struct Reserved {
    now: BTreeSet<String>,
    before: BTreeSet<String>,
}

impl Around {
    /// Whether a schema is registered as it came.
    pub fn is_empty(&self) -> bool {
        self.default_metadata.is_none()
            && self.override_metadata.is_none()
            && self.default_rule_set.is_none()
            && self.override_rule_set.is_none()
    }

    /// The content with metadata and rules: those that were sent, else those of the last version, over
    /// the defaults and under what is laid over all.
    pub fn complete(
        &self,
        new: &NewSchema,
        content: &Content,
        versions: Option<&Versions>,
    ) -> Content {
        let last = versions.and_then(last_live);
        let last = last.map(|(_, version)| &*version.schema.content);
        let own = |sent: bool, now: &Option<Arc<str>>, last: Option<&Arc<str>>| match sent {
            true => now.clone(),
            false => last.cloned(),
        };
        let metadata = own(
            new.metadata.is_some(),
            &content.metadata,
            last.and_then(|last| last.metadata.as_ref()),
        );
        let rule_set = own(
            new.rule_set.is_some(),
            &content.rule_set,
            last.and_then(|last| last.rule_set.as_ref()),
        );
        let laid = |below: &Option<Map<String, Value>>,
                    own: Option<Arc<str>>,
                    above: &Option<Map<String, Value>>,
                    merge: Merge| {
            if below.is_none() && above.is_none() {
                return own;
            }
            let mut merged = below.clone().unwrap_or_default();
            merge(&mut merged, object(own.as_deref()).unwrap_or_default());
            merge(&mut merged, above.clone().unwrap_or_default());
            object_text(Some(merged))
        };
        Content {
            metadata: laid(
                &self.default_metadata,
                metadata,
                &self.override_metadata,
                lay_metadata,
            ),
            rule_set: laid(
                &self.default_rule_set,
                rule_set,
                &self.override_rule_set,
                lay_rules,
            ),
            ..content.clone()
        }
    }
}

impl Reserved {
    /// Those of a new schema, and of the last version before it.
    pub fn of(content: &Content, versions: Option<&Versions>) -> Self {
        let last = versions.and_then(last_live);
        Reserved {
            now: reserved(content),
            before: last.map_or_else(BTreeSet::new, |(_, last)| reserved(&last.schema.content)),
        }
    }

    /// Why the schema cannot follow.
    pub fn reasons(&self, schema: &ParsedSchema) -> Vec<String> {
        let mut reasons = Vec::new();
        for name in self.before.difference(&self.now) {
            reasons.push(format!(
                "the metadata no longer reserve the field '{name}', as those of the last version do"
            ));
        }
        let names: HashSet<&str> = schema.field_names().into_iter().collect();
        for name in self.now.iter().filter(|name| names.contains(&***name)) {
            reasons.push(format!(
                "the schema has the field '{name}', which its metadata reserve"
            ));
        }
        reasons
    }
}

/// Refuses rules that serializers could not follow: each has a name of its own and a type, and a mode
/// of the list that it is in.
pub(super) fn check_rules(rule_set: &Map<String, Value>) -> Result<(), SchemaError> {
    let mut seen = HashSet::new();
    for (list, modes) in RULE_LISTS {
        let rules = match rule_set.get(list) {
            None | Some(Value::Null) => continue,
            Some(Value::Array(rules)) => rules,
            Some(_) => return Err(SchemaError::InvalidRules(format!("{list} is no list"))),
        };
        for rule in rules {
            let name = check_rule(list, modes, rule).map_err(SchemaError::InvalidRules)?;
            if !seen.insert(name) {
                let text = format!("two rules are called '{name}'");
                return Err(SchemaError::InvalidRules(text));
            }
        }
    }
    Ok(())
}

/// Checks a rule of a list; answers its name.
fn check_rule<'r>(list: &str, modes: &[&str], rule: &'r Value) -> Result<&'r str, String> {
    let text = |name: &str| match rule.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(&**text)),
        Some(_) => Err(format!("'{name}' of a rule in {list} is no text")),
    };
    let name = text("name")?.unwrap_or_default();
    if !is_rule_name(name) {
        let shown: String = name.chars().take(RULE_NAME_MAX + 1).collect();
        return Err(format!(
            "'{shown}' in {list} is no rule's name: at most {RULE_NAME_MAX} letters, digits, '_' \
             and '-', a letter or '_' first"
        ));
    }
    if text("type")?.is_none() {
        return Err(format!("rule '{name}' has no type"));
    }
    if !KINDS.contains(&text("kind")?.unwrap_or(KINDS[0])) {
        return Err(format!(
            "rule '{name}' is of another kind than {}",
            KINDS.join(", ")
        ));
    }
    let mode = text("mode")?.unwrap_or("WRITEREAD");
    if !modes.contains(&mode) {
        let modes = modes.join(", ");
        return Err(format!(
            "rule '{name}' in {list} has another mode than {modes}"
        ));
    }
    let is_double = ["WRITEREAD", "UPDOWN"].contains(&mode);
    for action in ["onSuccess", "onFailure"] {
        if text(action)?.is_some_and(|action| action.contains(',')) && !is_double {
            return Err(format!(
                "rule '{name}' has two actions, which only WRITEREAD and UPDOWN have"
            ));
        }
    }
    Ok(name)
}

/// Refuses metadata of another form than schemas have.
pub(super) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), SchemaError> {
    let is_texts = |value: &Value| {
        let texts = value.as_array();
        texts.is_some_and(|texts| texts.iter().all(Value::is_string))
    };
    let is_object_of = |value: &Value, is_fit: &dyn Fn(&Value) -> bool| {
        value.as_object().is_some_and(|of| of.values().all(is_fit))
    };
    for (name, value) in metadata.iter().filter(|(_, value)| !value.is_null()) {
        let (is_fit, wanted) = match &**name {
            "properties" => (is_object_of(value, &Value::is_string), "an object of texts"),
            "tags" => (
                is_object_of(value, &is_texts),
                "an object of lists of texts",
            ),
            "sensitive" => (is_texts(value), "a list of texts"),
            _ => continue,
        };
        if !is_fit {
            let text = format!("the metadata's '{name}' are not {wanted}");
            return Err(SchemaError::InvalidEntity(text));
        }
    }
    Ok(())
}

type Merge = fn(&mut Map<String, Value>, Map<String, Value>);

/// Lays metadata over others: of a property, or a path's tags, the upper counts; lists are united.
fn lay_metadata(below: &mut Map<String, Value>, above: Map<String, Value>) {
    for (name, above) in above.into_iter().filter(|(_, above)| !above.is_null()) {
        match (below.get_mut(&name), above) {
            (Some(Value::Object(below)), Value::Object(above)) => below.extend(above),
            (Some(Value::Array(below)), Value::Array(above)) => {
                below.extend(above);
                below.sort_by_key(Value::to_string);
                below.dedup();
            }
            (_, above) => {
                below.insert(name, above);
            }
        }
    }
}

/// Lays rules over others: the upper stand behind the lower, and instead of those that are called so.
pub(super) fn lay_rules(below: &mut Map<String, Value>, above: Map<String, Value>) {
    for (name, above) in above.into_iter().filter(|(_, above)| !above.is_null()) {
        match (below.get_mut(&name), above) {
            (Some(Value::Array(below)), Value::Array(above)) => {
                let called = |rule: &Value| Some(rule.get("name")?.as_str()?.to_owned());
                let names: HashSet<_> = above.iter().map(called).collect();
                below.retain(|rule| !names.contains(&called(rule)));
                below.extend(above);
            }
            (_, above) => {
                below.insert(name, above);
            }
        }
    }
}

fn reserved(content: &Content) -> BTreeSet<String> {
    let names = content.property(RESERVED).unwrap_or_default();
    let names = names.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn is_rule_name(name: &str) -> bool {
    let is_first = |sign: char| sign.is_alphabetic() || sign == '_';
    let is_next = |sign: char| sign.is_alphanumeric() || sign == '_' || sign == '-';
    name.starts_with(is_first) && name.chars().all(is_next) && name.chars().count() <= RULE_NAME_MAX
}

/// The property of metadata that names reserved fields, with commas between them.
const RESERVED: &str = "confluent:reserved";

/// What rules are; the first where nothing is said.
const KINDS: [&str; 2] = ["TRANSFORM", "CONDITION"];

/// The lists of a rule set, each with the modes of its rules.
pub(super) const RULE_LISTS: [(&str, &[&str]); 3] = [
    ("migrationRules", &["UPGRADE", "DOWNGRADE", "UPDOWN"]),
    ("domainRules", &["WRITE", "READ", "WRITEREAD"]),
    ("encodingRules", &["WRITE", "READ", "WRITEREAD"]),
];

/// Characters of a rule's name.
const RULE_NAME_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn laid(merge: Merge, below: Value, above: Value) -> Value {
        let (Value::Object(mut below), Value::Object(above)) = (below, above) else {
            panic!("objects");
        };
        merge(&mut below, above);
        Value::Object(below)
    }

    #[test]
    fn of_metadata_the_upper_count_and_lists_are_united() {
        let below = json!({"properties": {"a": "1", "b": "1"}, "tags": {"x": ["T"]},
            "sensitive": ["s", "a"]});
        let above = json!({"properties": {"b": "2"}, "tags": {"x": ["U"], "y": ["V"]},
            "sensitive": ["c", "a"], "other": null});
        assert_eq!(
            laid(lay_metadata, below, above),
            json!({"properties": {"a": "1", "b": "2"}, "tags": {"x": ["U"], "y": ["V"]},
                "sensitive": ["a", "c", "s"]})
        );
    }

    #[test]
    fn of_rules_the_upper_stand_behind_and_instead_of_those_of_their_names() {
        let rule = |name: &str, kind: &str| json!({"name": name, "type": kind});
        let below = json!({"domainRules": [rule("a", "1"), rule("b", "1")]});
        let above = json!({"domainRules": [rule("c", "2"), rule("a", "2")],
            "migrationRules": [rule("m", "2")]});
        assert_eq!(
            laid(lay_rules, below, above),
            json!({"domainRules": [rule("b", "1"), rule("c", "2"), rule("a", "2")],
                "migrationRules": [rule("m", "2")]})
        );
    }

    #[test]
    fn rules_are_checked_by_name_type_and_mode() {
        let check = |rules: Value| {
            let Value::Object(rules) = rules else {
                panic!("an object");
            };
            check_rules(&rules).map_err(|error| error.to_string())
        };
        let rule = |more: Value| {
            let mut rule = json!({"name": "r", "type": "CEL"});
            let (Value::Object(rule), Value::Object(more)) = (&mut rule, more) else {
                panic!("objects");
            };
            rule.extend(more);
            Value::Object(rule.clone())
        };
        let fit = [
            json!({}),
            json!({"domainRules": null, "migrationRules": []}),
            json!({"domainRules": [rule(json!({}))]}),
            json!({"domainRules": [rule(json!({"mode": "WRITE", "kind": "CONDITION"}))]}),
            json!({"migrationRules": [rule(json!({"mode": "UPDOWN", "onFailure": "NONE,ERROR"}))]}),
        ];
        for rules in fit {
            assert_eq!(check(rules.clone()), Ok(()), "{rules}");
        }
        let unfit = [
            json!({"domainRules": {}}),
            json!({"domainRules": ["r"]}),
            json!({"domainRules": [rule(json!({"name": "1r"}))]}),
            json!({"domainRules": [rule(json!({"name": "r".repeat(65)}))]}),
            json!({"domainRules": [rule(json!({"type": null}))]}),
            json!({"domainRules": [rule(json!({"kind": "OTHER"}))]}),
            json!({"domainRules": [rule(json!({"mode": "UPGRADE"}))]}),
            json!({"migrationRules": [rule(json!({}))]}),
            json!({"domainRules": [rule(json!({})), rule(json!({}))]}),
            json!({"domainRules": [rule(json!({"mode": "READ", "onSuccess": "NONE,ERROR"}))]}),
            json!({"domainRules": [rule(json!({"onFailure": 1}))]}),
        ];
        for rules in unfit {
            assert!(check(rules.clone()).is_err(), "{rules}");
        }
    }
}
