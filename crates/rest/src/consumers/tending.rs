//! Keeps instances that nobody reads up with their groups.
//!
//! Before a Kafka cluster a member hears of its group only while it is polled, and a group that shares
//! its partitions waits for each of its members. So a task looks after those whose client makes a pause;
//! it exists only while there are instances.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Consumers, Instance};

/// Tends all instances that are not in use, until there are none.
pub(super) async fn tend(consumers: Weak<Consumers>, shutdown: CancellationToken) {
    loop {
        let pause = tokio::time::sleep(INTERVAL);
        if shutdown.run_until_cancelled(pause).await.is_none() {
            return;
        }
        let Some(all) = consumers.upgrade().and_then(|it| it.to_tend()) else {
            return;
        };
        for instance in all {
            instance.tend().await;
        }
    }
}

impl Consumers {
    /// All instances; none when there are no more, and then nobody tends them.
    fn to_tend(&self) -> Option<Vec<Arc<Instance>>> {
        let mut registry = self.registry.lock();
        registry.tending = !registry.instances.is_empty();
        let all = registry.instances.values().cloned();
        registry.tending.then(|| all.collect())
    }
}

impl Instance {
    async fn tend(&self) {
        // Whoever has the reader polls, or is about to.
        let Ok(mut reader) = self.reader.try_lock() else {
            return;
        };
        if let Some(consumer) = &mut reader.consumer
            && let Err(error) = consumer.tend().await
        {
            let (group, error) = (&self.key.group, base::report(&error));
            tracing::debug!(group, error, "a member does not keep up with its group");
        }
    }
}

/// How often instances are tended: far more often than groups give their members up.
const INTERVAL: Duration = Duration::from_secs(1);
