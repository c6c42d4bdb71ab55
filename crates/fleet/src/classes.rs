//! Classes that operators make, describe and remove. Others appear by themselves, with their first
//! agent or flow.

use std::sync::Arc;

use crate::error::FleetError;
use crate::fleet::{Fleet, unknown_class};
use crate::limits;
use crate::registry::{Class, check_name};

impl Fleet {
    /// Makes a class, or describes one that is there; durable when this returns. Tells whether it is
    /// new.
    ///
    /// # Errors
    /// [`FleetError::BadName`], [`FleetError::BadField`], [`FleetError::Full`],
    /// [`FleetError::Store`].
    pub(crate) async fn describe_class(
        &self,
        name: &str,
        description: &str,
    ) -> Result<bool, FleetError> {
        check_name("a class", name)?;
        if description.len() > limits::DETAILS_BYTES_MAX {
            return Err(FleetError::BadField {
                field: "description".to_owned(),
                reason: format!("it has more than {} bytes", limits::DETAILS_BYTES_MAX),
            });
        }
        let inner = &self.inner;
        let _one = inner.publishing.lock().await;
        let is_new = {
            let registry = inner.registry.lock();
            let is_new = !registry.classes.contains_key(name);
            if is_new && registry.classes.len() >= limits::CLASSES_MAX {
                return Err(FleetError::Full {
                    what: "class",
                    max: limits::CLASSES_MAX,
                });
            }
            is_new
        };
        let (name, now) = (Arc::<str>::from(name), inner.clock.now());
        inner.store.describe_class(&name, description, now).await?;
        let mut registry = inner.registry.lock();
        let class = registry.classes.entry(name);
        let class = class.or_insert_with(|| Class::new(now));
        class.description = Arc::from(description);
        Ok(is_new)
    }

    /// Removes a class with its flows, roll-outs, parameters and what it is held to; the resources
    /// that it had stay. Durable when this returns.
    ///
    /// # Errors
    /// [`FleetError::Unknown`]; [`FleetError::InUse`] while agents are in it, which would have it
    /// appear again; [`FleetError::Store`].
    pub(crate) async fn remove_class(&self, name: &str) -> Result<(), FleetError> {
        let inner = &self.inner;
        // Agents that left it a moment ago are to be out of it in the database too.
        inner.flush().await?;
        let _one = inner.publishing.lock().await;
        // A batch that is under way would write it again.
        let _writing = inner.writing.lock().await;
        let (name, agents) = {
            let registry = inner.registry.lock();
            let found = registry.classes.get_key_value(name);
            let (name, _) = found.ok_or_else(|| unknown_class(name))?;
            let agents = registry.by_class.get(name).map_or(0, |agents| agents.len());
            (name.clone(), agents)
        };
        let has_agents = |count: &str| FleetError::InUse {
            what: "class",
            name: name.to_string(),
            reason: format!(
                "{count} in it: give them another class, or remove them by DELETE \
                 /api/v1/agents/{{id}}, first"
            ),
        };
        match agents {
            0 => {}
            1 => return Err(has_agents("1 agent is")),
            many => return Err(has_agents(&format!("{many} agents are"))),
        }
        if !inner.store.remove_class(&name, inner.clock.now()).await? {
            return Err(has_agents("agents that reached another node are"));
        }
        inner.registry.lock().remove_class(&name);
        inner.signals.change();
        tracing::info!(class = &*name, "removed a class");
        Ok(())
    }
}
