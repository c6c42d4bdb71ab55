//! Settings of single groups, under Kafka's names: one ordered table of all there are.
//!
//! A group keeps only what was set for it; for the rest, the node's settings hold. They concern members
//! of the newer protocol (KIP-848): those of the classic one bring their own time-outs. What was set
//! stays when the group goes, as in Kafka.
//!
//! The node bounds what may be set, and its own values may always be. Where it has come to other
//! bounds since, the nearest value holds that lies within them.

use std::collections::BTreeMap;
use std::time::Duration;

use base::HumanDuration;

use crate::event_store::HeldSetting;
use crate::groups::GroupsConfig;
use crate::topic_config::{ConfigChange, ConfigError};

/// A setting of groups, in whole milliseconds.
pub(crate) struct GroupSetting {
    /// Its name, Kafka's.
    pub(crate) name: &'static str,
    /// The node's setting that gives the default, under Kafka's name.
    pub(crate) node_name: &'static str,
    /// What it does, in a sentence.
    pub(crate) doc: &'static str,
    place: fn(&mut GroupsConfig) -> &mut HumanDuration,
    bounds: fn(&GroupsConfig) -> [HumanDuration; 2],
}

/// What was set for a group, in ms by the names of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupConfig {
    set: BTreeMap<&'static str, u32>,
}

impl GroupSetting {
    fn named(name: &str) -> Result<&'static GroupSetting, ConfigError> {
        let found = GROUP_SETTINGS.iter().find(|setting| setting.name == name);
        found.ok_or_else(|| ConfigError::Unknown {
            of: "groups",
            name: name.to_owned(),
        })
    }

    /// What holds where nothing is set.
    pub(crate) fn default_ms(&self, node: &GroupsConfig) -> u128 {
        self.of(node).as_millis()
    }

    fn of(&self, config: &GroupsConfig) -> Duration {
        (self.place)(&mut config.clone()).0
    }

    /// The least and the most that may be set.
    fn bounds(&self, node: &GroupsConfig) -> [Duration; 2] {
        let ([least, most], own) = ((self.bounds)(node), self.of(node));
        [least.0.min(own), most.0.max(own)]
    }
}

impl GroupConfig {
    /// The settings of these names and values, whatever the node bounds them to.
    pub(crate) fn of<'a>(
        asked: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ConfigError> {
        let mut config = GroupConfig::default();
        for (name, value) in asked {
            config.put(GroupSetting::named(name)?, value)?;
        }
        Ok(config)
    }

    /// The same with some changes.
    pub(crate) fn changed(mut self, changes: &[ConfigChange]) -> Result<Self, ConfigError> {
        for change in changes {
            match change {
                ConfigChange::Set(name, value) => self.put(GroupSetting::named(name)?, value)?,
                // What groups cannot have they do not have, whoever makes sure of it.
                ConfigChange::Unset(name) => drop(self.set.remove(name.as_str())),
                ConfigChange::Append(name, _) | ConfigChange::Subtract(name, _) => {
                    return Err(ConfigError::NoList(GroupSetting::named(name)?.name));
                }
            }
        }
        Ok(self)
    }

    /// Whether the node lets groups have these settings.
    pub(crate) fn check(&self, node: &GroupsConfig) -> Result<(), ConfigError> {
        for setting in GROUP_SETTINGS {
            let Some(ms) = self.ms(setting) else { continue };
            let [least, most] = setting.bounds(node);
            if !(least..=most).contains(&Duration::from_millis(ms.into())) {
                let (least, most) = (least.as_millis(), most.as_millis());
                return Err(ConfigError::Value {
                    name: setting.name,
                    value: ms.to_string(),
                    wanted: format!("a whole number from {least} to {most}"),
                });
            }
        }
        match self.is_sane(&self.put_into(node)) {
            true => Ok(()),
            false => Err(ConfigError::Order {
                longer: SESSION_TIMEOUT,
                shorter: HEARTBEAT_INTERVAL,
            }),
        }
    }

    /// What holds for the group.
    pub(crate) fn held(&self, node: &GroupsConfig) -> GroupsConfig {
        let mut held = self.put_into(node);
        for setting in GROUP_SETTINGS {
            let [least, most] = setting.bounds(node);
            let value = (setting.place)(&mut held);
            value.0 = value.0.clamp(least, most);
        }
        // What contradicts what the node has come to since would put members out for ever.
        match self.is_sane(&held) {
            true => held,
            false => node.clone(),
        }
    }

    /// All settings as they hold, by name.
    pub(crate) fn told(&self, node: &GroupsConfig) -> Vec<HeldSetting> {
        let told = GROUP_SETTINGS.iter().map(|setting| {
            let set = self.ms(setting);
            HeldSetting {
                name: setting.name,
                value: set
                    .map_or_else(|| setting.default_ms(node), u128::from)
                    .to_string(),
                is_set: set.is_some(),
            }
        });
        told.collect()
    }

    /// All that was set, by name.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = (&'static str, String)> {
        self.set.iter().map(|(name, ms)| (*name, ms.to_string()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    fn ms(&self, setting: &GroupSetting) -> Option<u32> {
        self.set.get(setting.name).copied()
    }

    fn put(&mut self, setting: &'static GroupSetting, value: &str) -> Result<(), ConfigError> {
        let value = value.trim();
        let ms = value.parse::<u32>().ok();
        let ms = ms.filter(|ms| (1..=MS_MAX).contains(ms));
        let ms = ms.ok_or_else(|| ConfigError::Value {
            name: setting.name,
            value: value.to_owned(),
            wanted: format!("a whole number from 1 to {MS_MAX}"),
        })?;
        self.set.insert(setting.name, ms);
        Ok(())
    }

    /// The node's configuration with what was set in its place, be it within the bounds or not.
    fn put_into(&self, node: &GroupsConfig) -> GroupsConfig {
        let mut with = node.clone();
        for setting in GROUP_SETTINGS {
            if let Some(ms) = self.ms(setting) {
                (setting.place)(&mut with).0 = Duration::from_millis(ms.into());
            }
        }
        with
    }

    /// Whether members that keep to it are not put out.
    fn is_sane(&self, held: &GroupsConfig) -> bool {
        self.is_empty() || held.consumer_session_timeout > held.consumer_heartbeat_interval
    }
}

/// Every setting of groups, in the order of their names.
pub(crate) const GROUP_SETTINGS: &[GroupSetting] = &[
    GroupSetting {
        name: HEARTBEAT_INTERVAL,
        node_name: "group.consumer.heartbeat.interval.ms",
        doc: "How often members of the newer protocol are told to call, in ms.",
        place: |config| &mut config.consumer_heartbeat_interval,
        bounds: |node| {
            [
                node.consumer_heartbeat_interval_min,
                node.consumer_heartbeat_interval_max,
            ]
        },
    },
    GroupSetting {
        name: SESSION_TIMEOUT,
        node_name: "group.consumer.session.timeout.ms",
        doc: "The silence after which a member of the newer protocol counts as gone, in ms.",
        place: |config| &mut config.consumer_session_timeout,
        bounds: |node| {
            [
                node.consumer_session_timeout_min,
                node.consumer_session_timeout_max,
            ]
        },
    },
];

const HEARTBEAT_INTERVAL: &str = "consumer.heartbeat.interval.ms";
const SESSION_TIMEOUT: &str = "consumer.session.timeout.ms";

/// The most that Kafka's kind of number holds.
const MS_MAX: u32 = i32::MAX as u32;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: &[(&str, &str)], node: &GroupsConfig) -> Result<(), String> {
        let config = GroupConfig::of(set.iter().copied());
        let checked = config.and_then(|config| config.check(node));
        checked.map_err(|error| error.to_string())
    }

    fn ms(ms: u64) -> HumanDuration {
        HumanDuration(Duration::from_millis(ms))
    }

    #[test]
    fn the_node_bounds_what_may_be_set() {
        let node = GroupsConfig::default();
        for (name, value) in [
            (HEARTBEAT_INTERVAL, "5000"),
            (HEARTBEAT_INTERVAL, " 15000"),
            (SESSION_TIMEOUT, "60000"),
        ] {
            assert_eq!(check(&[(name, value)], &node), Ok(()));
        }
        for (name, value) in [
            (HEARTBEAT_INTERVAL, "4999"),
            (HEARTBEAT_INTERVAL, "15001"),
            (SESSION_TIMEOUT, "44999"),
            (SESSION_TIMEOUT, "60001"),
            (SESSION_TIMEOUT, "0"),
            (SESSION_TIMEOUT, "2147483648"),
            (SESSION_TIMEOUT, "long"),
        ] {
            let refused = check(&[(name, value)], &node).unwrap_err();
            assert!(refused.starts_with(name), "{refused}");
        }
        let unknown = check(&[("share.session.timeout.ms", "45000")], &node);
        let told = "groups have no setting 'share.session.timeout.ms'";
        assert_eq!(unknown, Err(told.to_owned()));
        // Its own values may be set, whatever its bounds.
        let brisk = GroupsConfig {
            consumer_heartbeat_interval: ms(300),
            ..node
        };
        assert_eq!(check(&[(HEARTBEAT_INTERVAL, "300")], &brisk), Ok(()));
        assert!(check(&[(HEARTBEAT_INTERVAL, "299")], &brisk).is_err());
    }

    #[test]
    fn a_session_is_longer_than_the_time_between_two_heartbeats() {
        let node = GroupsConfig {
            consumer_heartbeat_interval_max: ms(60_000),
            ..GroupsConfig::default()
        };
        assert_eq!(check(&[(HEARTBEAT_INTERVAL, "44999")], &node), Ok(()));
        let refused = check(&[(HEARTBEAT_INTERVAL, "45000")], &node).unwrap_err();
        assert!(refused.contains(SESSION_TIMEOUT), "{refused}");
        let both = [(HEARTBEAT_INTERVAL, "45000"), (SESSION_TIMEOUT, "60000")];
        assert_eq!(check(&both, &node), Ok(()));
    }

    #[test]
    fn what_holds_lies_within_the_bounds_that_the_node_has_come_to() {
        let config = GroupConfig::of([(HEARTBEAT_INTERVAL, "15000")]).unwrap();
        let held = config.held(&GroupsConfig::default());
        assert_eq!(held.consumer_heartbeat_interval, ms(15_000));
        assert_eq!(held.consumer_session_timeout, ms(45_000));
        let narrow = GroupsConfig {
            consumer_heartbeat_interval_max: ms(10_000),
            ..GroupsConfig::default()
        };
        let held = config.held(&narrow);
        assert_eq!(held.consumer_heartbeat_interval, ms(10_000));
        let brief = GroupsConfig {
            consumer_session_timeout: ms(10_000),
            ..GroupsConfig::default()
        };
        assert_eq!(config.held(&brief), brief);
    }

    #[test]
    fn the_table_is_ordered_and_every_default_may_be_set() {
        assert!(GROUP_SETTINGS.is_sorted_by_key(|setting| setting.name));
        let node = GroupsConfig::default();
        for setting in GROUP_SETTINGS {
            let default = setting.default_ms(&node).to_string();
            assert_eq!(check(&[(setting.name, &default)], &node), Ok(()));
            assert!(!setting.doc.is_empty());
        }
    }
}
