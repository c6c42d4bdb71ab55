//! A topic's settings while it is in use.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{TopicConfig, TopicSettings};

/// What was set for a topic and what holds for it; its partitions share it.
#[derive(Debug)]
pub(crate) struct Live(RwLock<(Arc<TopicConfig>, TopicSettings)>);

impl Live {
    pub(crate) fn new(config: TopicConfig, settings: TopicSettings) -> Arc<Self> {
        Arc::new(Live(RwLock::new((Arc::new(config), settings))))
    }

    /// What was set.
    pub(crate) fn config(&self) -> Arc<TopicConfig> {
        Arc::clone(&self.0.read().0)
    }

    /// What holds.
    pub(crate) fn settings(&self) -> TopicSettings {
        self.0.read().1
    }

    /// Changes both at once.
    pub(crate) fn replace(&self, config: TopicConfig, settings: TopicSettings) {
        *self.0.write() = (Arc::new(config), settings);
    }
}
