//! Manifests as operators look at them: which there are, and what is different between two.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::flow::check::items;
use crate::flow::diff::{Difference, differences};
use crate::limits;
use crate::rights::Rights;

/// A manifest that agents have, without its components.
#[derive(Clone, Debug, Serialize)]
pub struct ManifestView {
    /// Its key.
    pub hash: String,
    /// `cpp`, `minifi-java`, `nifi`…
    pub agent_type: Option<String>,
    /// The agents' version.
    pub agent_version: Option<String>,
    /// Agents that have it, of those that the caller may see.
    pub agents: usize,
    /// Their classes.
    pub classes: Vec<String>,
}

/// What is different on the way from one manifest to another.
#[derive(Clone, Debug, Serialize)]
pub struct ManifestDifferences {
    /// The one that is compared.
    pub hash: String,
    /// The one that it is compared with.
    pub against: String,
    /// By component and property, up to a bound; where a whole component is new or gone that is one
    /// difference.
    pub differences: Vec<Difference>,
}

impl Fleet {
    /// The manifests of agents that the caller may see, by their keys; those that are not described
    /// yet are not among them.
    pub(crate) fn manifests(&self, rights: &Rights, class: Option<&str>) -> Vec<ManifestView> {
        let mut having: BTreeMap<Arc<str>, (usize, BTreeSet<Arc<str>>)> = BTreeMap::new();
        let count = |agent: &crate::agent::Agent| {
            let Some(hash) = &agent.manifest else { return };
            if rights.sees(agent.class.as_deref()) {
                let (agents, classes) = having.entry(hash.clone()).or_default();
                *agents += 1;
                classes.extend(agent.class.clone());
            }
        };
        self.each_agent_of_some(class, count);
        let registry = self.inner.registry.lock();
        let view = |(hash, (agents, classes)): (Arc<str>, (usize, BTreeSet<Arc<str>>))| {
            let head = registry.manifests.get(&hash)?;
            Some(ManifestView {
                hash: hash.to_string(),
                agent_type: head.agent_type.clone(),
                agent_version: head.agent_version().map(str::to_owned),
                agents,
                classes: classes.iter().map(ToString::to_string).collect(),
            })
        };
        having.into_iter().filter_map(view).collect()
    }

    fn each_agent_of_some(&self, class: Option<&str>, mut look: impl FnMut(&crate::agent::Agent)) {
        match class {
            Some(class) => self.inner.each_agent_of(class, |_, agent| look(agent)),
            None => self.inner.each_agent(|_, agent| look(agent)),
        }
    }

    /// What is different in the manifest `hash` from `against`.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Store`].
    pub(crate) async fn manifest_differences(
        &self,
        hash: &str,
        against: &str,
    ) -> Result<ManifestDifferences, FleetError> {
        let (to, from) = (
            self.manifest_text(hash).await?,
            self.manifest_text(against).await?,
        );
        // A manifest of a megabyte takes tens of milliseconds to read.
        let compared = tokio::task::spawn_blocking(move || {
            let read = |text: &[u8]| {
                serde_json::from_slice::<Value>(text)
                    .map_err(|error| FleetError::Broken(error.to_string()))
            };
            Ok::<_, FleetError>(compare(&read(&from)?, &read(&to)?))
        });
        let compared = compared.await;
        Ok(ManifestDifferences {
            hash: hash.to_owned(),
            against: against.to_owned(),
            differences: compared.map_err(|error| FleetError::Broken(error.to_string()))??,
        })
    }
}

/// The differences of two manifests: of their heads, then of their components by kind and type.
fn compare(from: &Value, to: &Value) -> Vec<Difference> {
    let mut found = differences(&head(from), &head(to));
    let (before, after) = (components(from), components(to));
    let places: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for place in places {
        let whole = |change, bundle: &Component<'_>| Difference {
            place: place.clone(),
            change,
            from: (change == "removed").then(|| bundle.0.clone()),
            to: (change == "added").then(|| bundle.0.clone()),
        };
        match (before.get(place), after.get(place)) {
            (Some(from), None) => found.push(whole("removed", from)),
            (None, Some(to)) => found.push(whole("added", to)),
            (Some((_, from)), Some((_, to))) if from != to => {
                let inner = differences(&without_bundle(from), &without_bundle(to));
                found.extend(inner.into_iter().map(|of| Difference {
                    place: format!("{place}.{}", of.place),
                    ..of
                }));
            }
            _ => {}
        }
    }
    found.truncate(limits::FLOW_DIFFERENCES_MAX);
    found
}

/// The bundle that a component comes from, and what is said of it.
type Component<'m> = (Value, &'m Value);

/// The components of a manifest by kind and type, such as `processors["org.P"]`.
fn components(manifest: &Value) -> BTreeMap<String, Component<'_>> {
    let mut found = BTreeMap::new();
    for bundle in items(&manifest["bundles"]) {
        let named = ["group", "artifact", "version"].map(|key| bundle[key].as_str().unwrap_or(""));
        let named = Value::from(named.join(":"));
        let kinds = bundle["componentManifest"]
            .as_object()
            .into_iter()
            .flatten();
        for (kind, listed) in kinds {
            for component in items(listed) {
                let name = component["type"].as_str().unwrap_or_default();
                let place = format!("{kind}[{name:?}]");
                found.insert(place, (named.clone(), component));
            }
        }
    }
    found
}

/// What a manifest says beside its components and its own identifier.
fn head(manifest: &Value) -> Value {
    let all = manifest.as_object().into_iter().flatten();
    let kept = all.filter(|(key, _)| !["bundles", "identifier"].contains(&key.as_str()));
    Value::Object(
        kept.map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    )
}

/// A component without the bundle that it names: a newer version of that alone is no difference.
fn without_bundle(component: &Value) -> Value {
    let all = component.as_object().into_iter().flatten();
    let kept = all.filter(|(key, _)| !["group", "artifact", "version"].contains(&key.as_str()));
    let kept: Map<String, Value> = kept
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn components_are_compared_by_kind_and_type() {
        let manifest = |version: &str, processors: Value, services: Value| {
            json!({"identifier": version, "agentType": "nifi", "version": version, "bundles": [
                {"group": "g", "artifact": "a", "version": version, "componentManifest":
                    {"processors": processors, "controllerServices": services}}]})
        };
        let get = |version: &str, keep: &str| {
            json!({"type": "org.Get", "version": version, "artifact": "a",
                "propertyDescriptors": {"Keep": {"name": "Keep", "defaultValue": keep}}})
        };
        let from = manifest(
            "1",
            json!([get("1", "true"), {"type": "org.Gone"}]),
            json!([]),
        );
        let service = json!([{"type": "org.New", "description": "x"}]);
        let to = manifest("2", json!([get("2", "false")]), service);
        let found = compare(&from, &to);
        let told: Vec<(&str, &str)> = found.iter().map(|d| (d.change, d.place.as_str())).collect();
        assert_eq!(
            told,
            [
                ("changed", "version"),
                ("added", "controllerServices[\"org.New\"]"),
                (
                    "changed",
                    "processors[\"org.Get\"].propertyDescriptors.Keep.defaultValue"
                ),
                ("removed", "processors[\"org.Gone\"]"),
            ]
        );
        assert_eq!(found[1].to, Some(json!("g:a:2")));
        assert_eq!(found[3].from, Some(json!("g:a:1")));
        assert!(compare(&from, &from).is_empty());
        // What C++ writes for one bundle is that bundle.
        let alone = |manifest: &Value| {
            let mut alone = manifest.clone();
            alone["bundles"] = manifest["bundles"][0].clone();
            alone
        };
        assert_eq!(compare(&alone(&from), &to), found);
    }

    #[test]
    fn the_differences_have_a_bound() {
        let many: Vec<Value> = (0..limits::FLOW_DIFFERENCES_MAX + 10)
            .map(|n| json!({"type": format!("P{n}")}))
            .collect();
        let to = json!({"bundles": {"componentManifest": {"processors": many}}});
        let found = compare(&json!({}), &to);
        assert_eq!(found.len(), limits::FLOW_DIFFERENCES_MAX);
    }
}
