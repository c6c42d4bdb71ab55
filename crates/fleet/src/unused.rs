//! What nobody uses goes: manifests that no agent has any more, classes that appeared by themselves
//! and are empty, hashes that no agent says. One agent could fill up the room of all with them.

use std::collections::HashSet;
use std::sync::Arc;

use metrics::counter;

use crate::error::FleetError;
use crate::fleet::{Fleet, Inner, unknown_manifest};
use crate::limits;
use crate::registry::NAME_PARTS;

impl Fleet {
    /// Removes a manifest that no agent has; durable when this returns. An agent that comes with it
    /// again has it appear again.
    ///
    /// # Errors
    /// [`FleetError::Unknown`]; [`FleetError::InUse`] while agents have it or a class is held to it;
    /// [`FleetError::Store`].
    pub(crate) async fn remove_manifest(&self, hash: &str) -> Result<(), FleetError> {
        let inner = &self.inner;
        let key = inner.registry.lock().manifest_named(hash);
        let key = key.ok_or_else(|| unknown_manifest(hash))?;
        let in_use = |reason: String| FleetError::InUse {
            what: "manifest",
            name: key.to_string(),
            reason,
        };
        let mut agents = 0;
        inner.each_agent(|_, agent| agents += usize::from(agent.manifest.as_ref() == Some(&key)));
        match agents {
            0 => {}
            1 => return Err(in_use("1 agent has it".to_owned())),
            many => return Err(in_use(format!("{many} agents have it"))),
        }
        // Agents that came to have another one a moment ago are to be so in the database too.
        inner.flush().await?;
        let keys = [key.clone()];
        if inner.remove_manifests(&keys, None).await?.is_empty() {
            return Err(in_use(
                "a class is held to it, or an agent that reached another node has it".to_owned(),
            ));
        }
        tracing::info!(manifest = &*key, "removed a manifest");
        Ok(())
    }
}

impl Inner {
    /// Removes classes and manifests that nobody uses.
    pub(crate) async fn remove_unused(&self, fence: i64) {
        if let Err(error) = self.remove_all_unused(fence).await {
            tracing::warn!(error = %base::report(&error), "cannot remove what nobody uses");
        }
    }

    async fn remove_all_unused(&self, fence: i64) -> Result<(), FleetError> {
        let mut used: HashSet<Arc<str>> = HashSet::new();
        self.each_agent(|_, agent| {
            if let Some(key) = &agent.manifest
                && !used.contains(key)
            {
                used.insert(key.clone());
            }
        });
        let unused: Vec<Arc<str>> = {
            let registry = self.registry.lock();
            used.extend(registry.manifests_of_classes());
            let keys = registry.manifests.keys();
            keys.filter(|key| !used.contains(*key)).cloned().collect()
        };
        for keys in unused.chunks(limits::UNUSED_AT_ONCE) {
            let gone = self.remove_manifests(keys, Some(fence)).await?;
            counter!("thalweg_fleet_manifests_removed_total").increment(gone.len() as u64);
        }
        let now = self.clock.now();
        let before = now - limits::EMPTY_CLASS_AGE;
        let empty = self.registry.lock().empty_classes(before);
        for names in empty.chunks(limits::UNUSED_AT_ONCE) {
            // What an operator does with a class meanwhile comes before or after.
            let _publishing = self.publishing.lock().await;
            let _writing = self.writing.lock().await;
            let gone = self.store.remove_empty_classes(names, before, fence, now);
            let gone = gone.await?;
            let mut registry = self.registry.lock();
            gone.iter().for_each(|name| registry.remove_class(name));
            drop(registry);
            counter!("thalweg_fleet_classes_removed_total").increment(gone.len() as u64);
            self.signals.change();
        }
        Ok(())
    }

    async fn remove_manifests(
        &self,
        keys: &[Arc<str>],
        fence: Option<i64>,
    ) -> Result<Vec<Arc<str>>, FleetError> {
        // A batch that is under way would write agents that have them.
        let _writing = self.writing.lock().await;
        let now = self.clock.now();
        let gone = self.store.remove_manifests(keys, fence, now).await?;
        self.registry.lock().forget_manifests(&gone);
        Ok(gone)
    }

    /// Forgets hashes that no agent says, once there are many; in pieces, between which heartbeats are
    /// taken. What one of them says meanwhile counts as said.
    pub(crate) fn sweep_names(&self) {
        {
            let mut registry = self.registry.lock();
            registry.forget_novelties(self.clock.now());
            if !registry.has_idle_names() {
                return;
            }
            registry.begin_round_of_names();
        }
        let mut after = None;
        loop {
            after = self.registry.lock().note_names_said(after.as_deref());
            if after.is_none() {
                break;
            }
        }
        for part in 0..NAME_PARTS {
            self.registry.lock().sweep_names(part);
        }
    }
}
