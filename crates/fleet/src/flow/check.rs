//! A flow against a manifest: components that the agents do not have, properties that these do not
//! know, values that are not among the allowed ones, required ones without a value.
//!
//! Only what the manifest tells is checked: a component without descriptors passes with whatever
//! properties it has. Values with expressions or parameters are not looked into, and a property that
//! depends on another one is never missed.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;

use crate::limits;

/// What does not fit, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The component's name in the flow.
    pub component: String,
    /// The component's id in the flow.
    pub component_id: Option<String>,
    /// The property, when it is one's fault.
    pub property: Option<String>,
    /// What is wrong.
    pub reason: String,
}

/// The components of a manifest by their types.
#[derive(Debug, Default)]
pub struct Catalog {
    /// By the whole type, and by its last part, which is how C++ agents match it.
    kinds: HashMap<String, Kind>,
}

#[derive(Clone, Debug, Default)]
struct Kind {
    /// None when the manifest does not tell them.
    properties: Option<HashMap<String, Descriptor>>,
    is_dynamic: bool,
}

#[derive(Clone, Debug)]
struct Descriptor {
    name: String,
    is_required: bool,
    has_default: bool,
    depends: bool,
    allowed: Vec<String>,
}

impl Catalog {
    /// Reads a manifest; none when it tells no components.
    pub fn of(manifest: &Value) -> Option<Catalog> {
        let mut catalog = Catalog::default();
        for bundle in items(&manifest["bundles"]) {
            let components = &bundle["componentManifest"];
            for list in ["processors", "controllerServices"] {
                for component in items(&components[list]) {
                    let Some(kind) = component["type"].as_str() else {
                        continue;
                    };
                    let described = describe(component);
                    catalog
                        .kinds
                        .insert(last_part(kind).to_owned(), described.clone());
                    catalog.kinds.insert(kind.to_owned(), described);
                }
            }
        }
        (!catalog.kinds.is_empty()).then_some(catalog)
    }

    /// All that does not fit, up to a bound.
    pub fn check(&self, flow: &Value) -> Vec<Problem> {
        let mut problems = Vec::new();
        let root = flow.get("rootGroup").unwrap_or(flow);
        self.check_group(root, 0, &mut problems);
        // Services of the whole flow stand beside the root group.
        if flow.get("rootGroup").is_some() {
            self.check_list(&flow["controllerServices"], &mut problems);
        }
        problems
    }

    fn check_group(&self, group: &Value, depth: usize, problems: &mut Vec<Problem>) {
        if depth > limits::FLOW_DEPTH_MAX {
            return;
        }
        for list in [
            "processors",
            "controllerServices",
            "Processors",
            "Controller Services",
        ] {
            self.check_list(&group[list], problems);
        }
        for list in ["processGroups", "Process Groups"] {
            for child in items(&group[list]) {
                self.check_group(child, depth + 1, problems);
            }
        }
    }

    fn check_list(&self, components: &Value, problems: &mut Vec<Problem>) {
        for component in items(components) {
            if problems.len() < limits::FLOW_PROBLEMS_MAX {
                self.check_component(component, problems);
            }
        }
    }

    fn check_component(&self, component: &Value, problems: &mut Vec<Problem>) {
        let text = |keys: &[&str]| {
            let found = keys.iter().find_map(|key| component[*key].as_str());
            found.map(str::to_owned)
        };
        let Some(kind) = text(&["class", "type"]) else {
            return;
        };
        let id = text(&["identifier", "instanceIdentifier", "id"]);
        let name = text(&["name"]).unwrap_or_else(|| last_part(&kind).to_owned());
        let mut add = |property: Option<&str>, reason: String| {
            problems.push(Problem {
                component: name.clone(),
                component_id: id.clone(),
                property: property.map(str::to_owned),
                reason,
            });
        };
        let known = self.kinds.get(&kind);
        let Some(known) = known.or_else(|| self.kinds.get(last_part(&kind))) else {
            add(None, format!("the class's agents have no '{kind}'"));
            return;
        };
        let Some(descriptors) = &known.properties else {
            return;
        };
        let empty = serde_json::Map::new();
        let properties = component.get("properties").or(component.get("Properties"));
        let given = properties.and_then(Value::as_object).unwrap_or(&empty);
        for (property, value) in given {
            match descriptors.get(property) {
                None if !known.is_dynamic => {
                    let reason = format!("{} has no such property", last_part(&kind));
                    add(Some(property), reason);
                }
                None => {}
                Some(descriptor) => {
                    if let Some(reason) = descriptor.refuses(value) {
                        add(Some(property), reason);
                    }
                }
            }
        }
        let mut missing: Vec<&str> = descriptors
            .values()
            .filter(|descriptor| descriptor.is_missed(given))
            .map(|descriptor| descriptor.name.as_str())
            .collect();
        missing.sort_unstable();
        missing.dedup();
        for property in missing {
            add(Some(property), "it is required and has no value".to_owned());
        }
    }
}

impl Descriptor {
    fn refuses(&self, value: &Value) -> Option<String> {
        let text = match value {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_open = text.contains("${") || text.contains("#{");
        if is_open || self.allowed.is_empty() || self.allowed.contains(&text) {
            return None;
        }
        Some(format!(
            "'{}' is not allowed: use {}",
            text.chars().take(64).collect::<String>(),
            self.allowed.join(", ")
        ))
    }

    fn is_missed(&self, given: &serde_json::Map<String, Value>) -> bool {
        let is_given = given.get(&self.name).is_some_and(|value| !value.is_null());
        self.is_required && !self.has_default && !self.depends && !is_given
    }
}

fn describe(component: &Value) -> Kind {
    let is_true = |value: &Value| value == true || value == "true";
    let told = component.get("propertyDescriptors");
    let listed = match told {
        Some(Value::Object(map)) => Some(map.iter().collect::<Vec<_>>()),
        _ => None,
    };
    let properties = listed.map(|listed| {
        let mut properties = HashMap::new();
        for (key, told) in listed {
            let name = told["name"].as_str().unwrap_or(key).to_owned();
            let texts = items(&told["allowableValues"]).iter();
            let allowed = texts.filter_map(|value| {
                let value = value.get("value").unwrap_or(value);
                value.as_str().map(str::to_owned)
            });
            let depends = told.get("dependencies");
            let descriptor = Descriptor {
                is_required: is_true(&told["required"]),
                has_default: told
                    .get("defaultValue")
                    .is_some_and(|value| !value.is_null()),
                depends: depends.is_some_and(|all| !items(all).is_empty()),
                allowed: allowed.collect(),
                name: name.clone(),
            };
            properties.insert(key.clone(), descriptor.clone());
            properties.insert(name, descriptor);
        }
        properties
    });
    Kind {
        properties,
        is_dynamic: is_true(&component["supportsDynamicProperties"]),
    }
}

/// The elements of a list; what C++ agents write for a list of one is that one.
pub fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        Value::Object(_) => std::slice::from_ref(value),
        _ => &[],
    }
}

fn last_part(kind: &str) -> &str {
    let cut = kind.rsplit(['.', ':']).next();
    cut.unwrap_or(kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn catalog() -> Catalog {
        let manifest = json!({"bundles": {"componentManifest": {"processors": [
            {"type": "org.apache.nifi.minifi.processors.GetFile", "supportsDynamicProperties": false,
             "propertyDescriptors": {
                "Input Directory": {"name": "Input Directory", "required": true},
                "Keep Source File": {"name": "Keep Source File", "required": true,
                    "defaultValue": "false",
                    "allowableValues": [{"value": "true"}, {"value": "false"}]},
                "Depth": {"name": "Depth", "required": true, "dependencies": [{"propertyName": "x"}]}}},
            {"type": "x.Loose", "supportsDynamicProperties": true, "propertyDescriptors": {}},
            {"type": "x.Untold"}]}}});
        Catalog::of(&manifest).unwrap()
    }

    fn check(flow: Value) -> Vec<(String, Option<String>)> {
        let problems = catalog().check(&flow).into_iter();
        problems
            .map(|problem| (problem.component, problem.property))
            .collect()
    }

    fn found(component: &str, property: Option<&str>) -> (String, Option<String>) {
        (component.to_owned(), property.map(str::to_owned))
    }

    #[test]
    fn problems_name_component_and_property() {
        let flow = |properties: Value| {
            json!({"Processors": [{"id": "1", "name": "Get", "class": "org.apache.nifi.GetFile",
                "Properties": properties}]})
        };
        assert_eq!(check(flow(json!({"Input Directory": "/x"}))), []);
        assert_eq!(
            check(flow(json!({}))),
            [found("Get", Some("Input Directory"))]
        );
        let wrong = json!({"Input Directory": "/x", "Keep Source File": "maybe", "Colour": "red"});
        let wanted = [
            found("Get", Some("Colour")),
            found("Get", Some("Keep Source File")),
        ];
        assert_eq!(check(flow(wrong)), wanted);
        let open = json!({"Input Directory": "#{dir}", "Keep Source File": "${keep}"});
        assert_eq!(check(flow(open)), []);
    }

    #[test]
    fn groups_and_services_are_looked_into() {
        let flow = json!({"rootGroup": {
            "processors": [{"identifier": "1", "name": "A", "type": "x.Loose", "properties": {"any": "1"}},
                {"identifier": "2", "name": "B", "type": "x.Untold", "properties": {"any": "1"}}],
            "processGroups": [{"processors": [{"name": "C", "type": "x.Gone"}],
                "controllerServices": [{"name": "D", "type": "x.GoneToo"}]}]},
            "controllerServices": [{"name": "E", "type": "x.GoneAsWell"}]});
        let wanted = [found("C", None), found("D", None), found("E", None)];
        assert_eq!(check(flow), wanted);
    }

    #[test]
    fn a_manifest_without_components_checks_nothing() {
        assert!(Catalog::of(&json!({"bundles": []})).is_none());
        assert!(Catalog::of(&json!({"bundles": [{"componentManifest": {}}]})).is_none());
    }
}
