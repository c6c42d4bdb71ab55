//! Settings of single groups.

use std::sync::Arc;

use super::{CHANGE_ROOM_BYTES, DurableWait, Streams};
use crate::error::StreamsError;
use crate::event_store::HeldSetting;
use crate::frames::Change;
use crate::group_config::GroupConfig;
use crate::topic_config::{ConfigChange, ConfigError};

impl Streams {
    /// Changes settings of a group, all or none, durable on return; there need not be such a group.
    /// The coordinator follows at once, and the group's members with their next heartbeats.
    pub async fn alter_group(
        &self,
        group: &str,
        changes: &[ConfigChange],
    ) -> Result<(), StreamsError> {
        self.set_group(group, |now| now.changed(changes)).await
    }

    /// Says what [`Streams::alter_group`] would, and changes nothing.
    pub fn check_alter_group(
        &self,
        group: &str,
        changes: &[ConfigChange],
    ) -> Result<(), StreamsError> {
        self.check_group(group, self.group_config(group).changed(changes)?)
            .map(drop)
    }

    /// Sets exactly these settings of a group, durable on return.
    pub async fn replace_group_config(
        &self,
        group: &str,
        config: &GroupConfig,
    ) -> Result<(), StreamsError> {
        self.set_group(group, |_| Ok(config.clone())).await
    }

    /// Says what [`Streams::replace_group_config`] would, and changes nothing.
    pub fn check_replace_group(
        &self,
        group: &str,
        config: &GroupConfig,
    ) -> Result<(), StreamsError> {
        self.check_group(group, config.clone()).map(drop)
    }

    /// The settings that hold for a group, by name.
    pub fn group_settings(&self, group: &str) -> Vec<HeldSetting> {
        self.group_config(group).told(&self.config.groups)
    }

    /// What is set for a group.
    pub(crate) fn group_config(&self, group: &str) -> GroupConfig {
        self.offsets.lock().settings(group)
    }

    /// Names of groups for which something is set, in order.
    pub(crate) fn groups_with_settings(&self) -> Vec<Arc<str>> {
        self.offsets.lock().groups_with_settings()
    }

    async fn set_group(
        &self,
        group: &str,
        config_of: impl Fn(GroupConfig) -> Result<GroupConfig, ConfigError>,
    ) -> Result<(), StreamsError> {
        let wait = loop {
            match self.try_set_group(group, &config_of) {
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                outcome => break outcome?,
            }
        };
        // Not before what is kept has changed: whoever comes last follows what is.
        self.groups.follow_settings(group);
        wait.await
    }

    fn try_set_group(
        &self,
        group: &str,
        config_of: impl Fn(GroupConfig) -> Result<GroupConfig, ConfigError>,
    ) -> Result<DurableWait, StreamsError> {
        // Held over the append, so that memory and journal agree on the order.
        let mut offsets = self.offsets.lock();
        let config = config_of(offsets.settings(group))?;
        config.check(&self.config.groups)?;
        offsets.check_settings(group)?;
        let wait = self.append_durably(&Change::GroupSettings {
            group: group.to_owned(),
            config: config.clone(),
        })?;
        offsets.set(Arc::from(group), config);
        Ok(wait)
    }

    fn check_group(&self, group: &str, config: GroupConfig) -> Result<(), StreamsError> {
        config.check(&self.config.groups)?;
        self.offsets.lock().check_settings(group)
    }
}
