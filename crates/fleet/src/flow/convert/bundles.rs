//! Which bundle a component's type comes from: agents in Java want to be told.

use std::collections::HashMap;

use serde_json::{Value, json};

/// The bundles of a manifest's components.
#[derive(Debug, Default)]
pub struct Bundles {
    /// By whole type, and by its last part, as C++ flows have it: whole type and bundle.
    by_type: HashMap<String, (String, Value)>,
}

impl Bundles {
    /// Those of a manifest.
    pub fn of(manifest: &Value) -> Bundles {
        let mut by_type = HashMap::new();
        for bundle in super::items(manifest, &["bundles"]) {
            let text = |key: &str| bundle[key].as_str().unwrap_or_default();
            let told = json!({
                "group": text("group"), "artifact": text("artifact"), "version": text("version"),
            });
            let components = &bundle["componentManifest"];
            for list in ["processors", "controllerServices"] {
                for component in super::items(components, &[list]) {
                    if let Some(kind) = component["type"].as_str() {
                        let known = (kind.to_owned(), told.clone());
                        by_type.insert(last_part(kind).to_owned(), known.clone());
                        by_type.insert(kind.to_owned(), known);
                    }
                }
            }
        }
        Bundles { by_type }
    }

    /// The whole type of this one, and its bundle where that is known.
    pub fn find(&self, kind: &str) -> (String, Option<Value>) {
        let known = self.by_type.get(kind);
        match known.or_else(|| self.by_type.get(last_part(kind))) {
            Some((whole, bundle)) => (whole.clone(), Some(bundle.clone())),
            None => (kind.to_owned(), None),
        }
    }
}

fn last_part(kind: &str) -> &str {
    kind.rsplit(['.', ':']).next().unwrap_or(kind)
}
