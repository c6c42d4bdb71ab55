//! The manifest of a class, as operators see and set it.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use crate::error::FleetError;
use crate::fleet::{Fleet, unknown_class, unknown_manifest};
use crate::registry::Resolution;

/// Which manifest stands for a class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassManifestView {
    /// The class.
    pub class: String,
    /// `first`, `last`, `most`, `pinned` or `named`.
    pub resolution: &'static str,
    /// Whether that is the general rule, and not one of the class's own.
    pub is_default: bool,
    /// The manifest that flows are checked against; null while none is known.
    pub hash: Option<String>,
    /// The manifests that its agents had, the first one first.
    pub manifests: Vec<SeenManifestView>,
}

/// A manifest that agents of a class had.
#[derive(Clone, Debug, Serialize)]
pub struct SeenManifestView {
    /// Its key.
    pub hash: String,
    /// `cpp`, `minifi-java`, `nifi`…; null until it is described.
    pub agent_type: Option<String>,
    /// The agents' version; null until it is described.
    pub agent_version: Option<String>,
    /// Agents of the class that have it.
    pub agents: usize,
    /// When an agent of the class first came with it, milliseconds since 1970.
    pub first_ms: i64,
    /// When one last came with it, that had none or another one before.
    pub last_ms: i64,
}

impl Fleet {
    /// The manifest of a class.
    ///
    /// # Errors
    /// [`FleetError::Unknown`].
    pub(crate) fn class_manifest(&self, class: &str) -> Result<ClassManifestView, FleetError> {
        let counts = self.manifest_counts(class);
        let rule = self.inner.config.manifest_resolution;
        let registry = self.inner.registry.lock();
        let found = registry
            .classes
            .get(class)
            .ok_or_else(|| unknown_class(class))?;
        let own = found.resolution.clone();
        let resolution = own.clone().unwrap_or(Resolution::Rule(rule));
        let hash = registry.resolve_manifest(class, rule, || most(&counts));
        let manifests = found.seen.iter().map(|seen| {
            let head = registry.manifests.get(&seen.hash);
            SeenManifestView {
                hash: seen.hash.to_string(),
                agent_type: head.and_then(|head| head.agent_type.clone()),
                agent_version: head.and_then(|head| head.agent_version().map(str::to_owned)),
                agents: counts.get(&seen.hash).map_or(0, |count| count.0),
                first_ms: seen.first.0,
                last_ms: seen.last.0,
            }
        });
        Ok(ClassManifestView {
            class: class.to_owned(),
            resolution: resolution.parts().0,
            is_default: own.is_none(),
            hash: hash.map(|hash| hash.to_string()),
            manifests: manifests.collect(),
        })
    }

    /// Sets how a class's manifest is found; none: by the general rule. Durable when this returns.
    ///
    /// # Errors
    /// [`FleetError::Unknown`] class or manifest, [`FleetError::Store`].
    pub(crate) async fn set_resolution(
        &self,
        class: &str,
        resolution: Option<Resolution>,
    ) -> Result<ClassManifestView, FleetError> {
        let inner = &self.inner;
        let resolution = {
            let registry = inner.registry.lock();
            if !registry.classes.contains_key(class) {
                return Err(unknown_class(class));
            }
            let keyed = |hash: &Arc<str>| {
                let key = registry.manifest_named(hash);
                key.ok_or_else(|| unknown_manifest(hash))
            };
            match resolution {
                Some(Resolution::Pinned(hash)) => Some(Resolution::Pinned(keyed(&hash)?)),
                Some(Resolution::Named(hash)) => Some(Resolution::Named(keyed(&hash)?)),
                rule => rule,
            }
        };
        // What another node sets meanwhile comes after.
        let one = inner.publishing.lock().await;
        let now = inner.clock.now();
        let set = inner.store.set_resolution(class, resolution.as_ref(), now);
        set.await?;
        if let Some(class) = inner.registry.lock().classes.get_mut(class) {
            class.resolution = resolution;
        }
        drop(one);
        self.class_manifest(class)
    }

    /// The manifest that flows of the class are checked against.
    pub(crate) fn resolved_manifest(&self, class: &str) -> Option<String> {
        let counts = self.manifest_counts(class);
        let rule = self.inner.config.manifest_resolution;
        let registry = self.inner.registry.lock();
        let found = registry.resolve_manifest(class, rule, || most(&counts));
        found.map(|hash| hash.to_string())
    }

    /// How many of the class's agents have which manifest, and whether it is described.
    fn manifest_counts(&self, class: &str) -> HashMap<Arc<str>, (usize, bool)> {
        let mut counts: HashMap<Arc<str>, (usize, bool)> = HashMap::new();
        self.inner.each_agent_of(class, |registry, agent| {
            if let Some(hash) = &agent.manifest {
                let is_known = registry.knows_manifest(hash);
                let count = counts.entry(hash.clone()).or_insert((0, is_known));
                count.0 += 1;
            }
        });
        counts
    }
}

/// The described manifest that most agents have.
fn most(counts: &HashMap<Arc<str>, (usize, bool)>) -> Option<Arc<str>> {
    let known = counts.iter().filter(|(_, (_, is_known))| *is_known);
    let most = known.max_by_key(|(hash, (count, _))| (*count, (*hash).clone()));
    most.map(|(hash, _)| hash.clone())
}
