//! How instances go: out of their groups, and off the roll of the proxies on the same store.
//!
//! What is gone is not found any more, whether its client waits for the answer or not, and whether the
//! roll could be told or not. A name that is gone and stays on the roll since it could not be told is a
//! ghost: it is nobody's, and a task of its own takes it off when the store is back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use access::Principal;
use base::UnixMillis;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Consumers, Instance, InstanceKey, Registry, gauge, not_found};
use crate::error::RestError;
use crate::limits;

impl Consumers {
    /// Takes an instance out of its group and off the roll; goes on when nobody waits any longer.
    pub async fn delete(self: &Arc<Self>, found: &Instance) -> Result<(), RestError> {
        let key = found.key.clone();
        let found = {
            let mut registry = self.registry.lock();
            let found = registry.instances.remove(&key);
            gauge(&registry);
            found.map(|instance| (instance, self.leaving(&mut registry, [&key])))
        };
        let (instance, leaving) = found.ok_or_else(|| not_found(&key))?;
        let consumers = Arc::clone(self);
        let gone = tokio::spawn(async move {
            instance.close().await;
            consumers.strike(&[instance]).await;
            drop(leaving);
        });
        // A panic there is told where it happens.
        let _ = gone.await;
        Ok(())
    }

    /// Closes what has been idle for too long at `now`; answers how many that were.
    pub async fn expire(self: &Arc<Self>, now: UnixMillis) -> usize {
        let (expired, _leaving) = {
            let mut registry = self.registry.lock();
            let idle: Vec<InstanceKey> = registry
                .instances
                .values()
                // Whoever holds the reader is using the instance, however long its read lasts.
                .filter(|instance| instance.idle(now) >= self.idle_max)
                .filter(|instance| instance.reader.try_lock().is_ok())
                .map(|instance| instance.key.clone())
                .collect();
            let expired: Vec<Arc<Instance>> = idle
                .iter()
                .filter_map(|key| registry.instances.remove(key))
                .collect();
            gauge(&registry);
            let leaving = self.leaving(&mut registry, &idle);
            (expired, leaving)
        };
        close_all(expired.clone(), true).await;
        self.strike(&expired).await;
        expired.len()
    }

    /// Closes every instance and ends the reaper. What is on the roll stays there: another proxy
    /// goes on with it. A store that is away does not hold this up for long.
    pub async fn close(&self) {
        self.shutdown.cancel();
        let all: Vec<Arc<Instance>> = self
            .registry
            .lock()
            .instances
            .drain()
            .map(|(_, instance)| instance)
            .collect();
        if self.roll.is_some() {
            let noting = tokio::time::timeout(limits::NOTE_ALL_MAX, self.note_all(&all));
            let error = match noting.await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(base::report(&error)),
                Err(_) => Some("it took too long".to_owned()),
            };
            if let Some(error) = error {
                tracing::warn!(error, "where consumer instances were is not on the roll");
            }
        }
        let closing = close_all(all, false);
        if tokio::time::timeout(limits::CLOSE_ALL_MAX, closing)
            .await
            .is_err()
        {
            tracing::warn!("not all consumer instances could leave their groups in time");
        }
        if let Some(roll) = &self.roll {
            roll.close();
        }
    }

    /// Has nobody take instances for lost that are on their way off the roll.
    fn leaving<'k>(
        self: &Arc<Self>,
        registry: &mut Registry,
        keys: impl IntoIterator<Item = &'k InstanceKey>,
    ) -> Vec<Reserved> {
        if self.roll.is_none() {
            return Vec::new();
        }
        let reserved = keys.into_iter().map(|key| {
            registry.leaving.insert(key.clone());
            Reserved {
                consumers: Arc::clone(self),
                key: key.clone(),
                held: Held::Leaving,
            }
        });
        reserved.collect()
    }

    /// Takes instances off the roll that are gone; when this returns they are not found any more.
    async fn strike(self: &Arc<Self>, gone: &[Arc<Instance>]) {
        let Some(roll) = self.roll.as_ref().filter(|_| !gone.is_empty()) else {
            return;
        };
        let keys: Vec<InstanceKey> = gone.iter().map(|it| it.key.clone()).collect();
        let struck = async {
            let end = roll.remove(&keys).await?;
            roll.read_to(end).await
        };
        if let Err(error) = struck.await {
            let error = base::report(&error);
            tracing::warn!(
                error,
                "consumer instances that are gone stay on the roll for now"
            );
            let life = |it: &Arc<Instance>| Some((it.key.clone(), it.standing.as_ref()?.life()));
            self.haunt(gone.iter().filter_map(life));
        }
    }

    /// Has names taken off the roll, when that can be done, that have nobody in this life.
    pub(super) fn haunt(self: &Arc<Self>, gone: impl IntoIterator<Item = (InstanceKey, Uuid)>) {
        let mut registry = self.registry.lock();
        registry.ghosts.extend(gone);
        if !registry.ghosts.is_empty() && !std::mem::replace(&mut registry.burying, true) {
            tokio::spawn(bury(Arc::downgrade(self)));
        }
    }

    /// Whether the instance is here, or on its way.
    pub(super) fn holds(&self, key: &InstanceKey) -> bool {
        let registry = self.registry.lock();
        registry.instances.contains_key(key) || registry.is_reserved(key)
    }

    /// Takes ghosts off the roll; says whether there are none any more.
    async fn bury(&self) -> Result<bool, RestError> {
        let Some(roll) = &self.roll else {
            return Ok(true);
        };
        let ghosts = self.registry.lock().ghosts.clone();
        roll.catch_up().await?;
        // Whose name is another's by now, or off the roll already, is at rest.
        let is_there = |key: &InstanceKey, life: &Uuid| {
            let entry = roll.entry(key);
            entry.is_some_and(|it| it.life == *life && it.owner == roll.me())
        };
        let there = ghosts.iter().filter(|(key, life)| is_there(key, life));
        let there: Vec<InstanceKey> = there.map(|(key, _)| key.clone()).collect();
        let end = roll.remove(&there).await?;
        roll.read_to(end).await?;
        let mut registry = self.registry.lock();
        for (key, life) in ghosts {
            if registry.ghosts.get(&key) == Some(&life) {
                registry.ghosts.remove(&key);
            }
        }
        registry.burying = !registry.ghosts.is_empty();
        Ok(!registry.burying)
    }
}

/// Takes ghosts off the roll until there are none.
async fn bury(consumers: Weak<Consumers>) {
    loop {
        let Some(shutdown) = consumers.upgrade().map(|it| it.shutdown.clone()) else {
            return;
        };
        let rest = shutdown.run_until_cancelled(tokio::time::sleep(BURY_AGAIN));
        let (Some(()), Some(consumers)) = (rest.await, consumers.upgrade()) else {
            return;
        };
        match consumers.bury().await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                let error = base::report(&error);
                tracing::debug!(
                    error,
                    "consumer instances that are gone are still on the roll"
                );
            }
        }
    }
}

/// Closes instances side by side, so that what they commit shares a sync.
async fn close_all(instances: Vec<Arc<Instance>>, are_idle: bool) {
    let mut closing = JoinSet::new();
    for instance in instances {
        if closing.len() >= limits::CLOSED_AT_ONCE_MAX {
            closing.join_next().await;
        }
        closing.spawn(async move {
            let InstanceKey {
                group,
                instance: name,
            } = &instance.key;
            if are_idle {
                tracing::info!(group, instance = name, "closed an idle consumer instance");
            }
            instance.close().await;
        });
    }
    closing.join_all().await;
}

/// A name that nobody else gets meanwhile.
pub(super) struct Reserved {
    consumers: Arc<Consumers>,
    pub key: InstanceKey,
    held: Held,
}

/// Why a name is reserved.
#[derive(Clone, Copy)]
enum Held {
    Making,
    Leaving,
    /// No longer: the instance stands.
    Stands,
}

impl Reserved {
    /// The name of `owner`'s instance that is being made, which stands among those of `registry`.
    pub fn made(
        consumers: &Arc<Consumers>,
        registry: &mut Registry,
        key: InstanceKey,
        owner: Option<Principal>,
    ) -> Self {
        registry.making.insert(key.clone(), owner);
        Reserved {
            consumers: Arc::clone(consumers),
            key,
            held: Held::Making,
        }
    }
}

impl Reserved {
    /// The instance stands among those of `registry` from now on, counted once at any moment, so that
    /// the last place is not refused.
    pub fn stands(mut self, registry: &mut Registry, instance: Arc<Instance>) {
        registry.making.remove(&self.key);
        registry.instances.insert(self.key.clone(), instance);
        self.held = Held::Stands;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let registry = || self.consumers.registry.lock();
        match self.held {
            Held::Making => registry().making.remove(&self.key).is_some(),
            Held::Leaving => registry().leaving.remove(&self.key),
            Held::Stands => false,
        };
    }
}

/// The time between two tries to take ghosts off the roll.
const BURY_AGAIN: Duration = Duration::from_secs(1);
