//! Settings of single groups, under Kafka's names: one ordered table of all there are.
//!
//! A group keeps only what was set for it; for the rest, the node's settings hold. They concern members
//! of the newer protocol (KIP-848): those of the classic one bring their own time-outs. What was set
//! stays when the group goes, as in Kafka. What would only tell Kafka by which thread it is to share
//! partitions is taken and has no effect. There are no share and streams groups, and so no settings
//! of them: they are refused, since nobody would follow them.
//!
//! The node bounds what may be set, and its own values may always be. Where it has come to other
//! bounds since, the nearest value holds that lies within them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base::HumanDuration;

use crate::event_store::HeldSetting;
use crate::groups::GroupsConfig;
use crate::topic_config::{ConfigChange, ConfigError, ValueKind};

/// A setting of groups.
pub(crate) struct GroupSetting {
    /// Its name, Kafka's.
    pub(crate) name: &'static str,
    /// The node's setting that gives the default, under Kafka's name.
    pub(crate) node_name: &'static str,
    /// What it does, in a sentence.
    pub(crate) doc: &'static str,
    holds: Holds,
}

/// What a setting says.
enum Holds {
    /// A time, in whole milliseconds: where it stands in the node's configuration, and the least and
    /// the most that the node lets groups have.
    Time {
        place: fn(&mut GroupsConfig) -> &mut HumanDuration,
        bounds: fn(&GroupsConfig) -> [HumanDuration; 2],
    },
    /// True or false, without effect here; true unless it is set.
    Nothing,
}

/// What was set for a group, by the names of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupConfig {
    set: BTreeMap<&'static str, Value>,
}

/// A value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Ms(u32),
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Ms(ms) => ms.fmt(f),
            Value::Flag(flag) => flag.fmt(f),
        }
    }
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
    pub(crate) fn default(&self, node: &GroupsConfig) -> String {
        match self.holds {
            Holds::Time { place, .. } => place(&mut node.clone()).0.as_millis().to_string(),
            Holds::Nothing => Value::Flag(true).to_string(),
        }
    }

    /// Whether the node's configuration says what holds where nothing is set.
    pub(crate) fn is_configured(&self) -> bool {
        matches!(self.holds, Holds::Time { .. })
    }

    /// Its kind of value.
    pub(crate) fn kind(&self) -> ValueKind {
        match self.holds {
            Holds::Time { .. } => ValueKind::Int,
            Holds::Nothing => ValueKind::Boolean,
        }
    }

    /// What a text means, whatever the node bounds it to.
    fn value(&self, text: &str) -> Result<Value, ConfigError> {
        let text = text.trim();
        let (value, wanted) = match self.holds {
            Holds::Time { .. } => {
                let ms = text.parse::<u32>().ok().filter(|ms| *ms <= MS_MAX);
                (ms.map(Value::Ms), format!("a whole number to {MS_MAX}"))
            }
            Holds::Nothing => {
                let flag = text.to_ascii_lowercase().parse().ok();
                (flag.map(Value::Flag), "true or false".to_owned())
            }
        };
        value.ok_or_else(|| ConfigError::Value {
            name: self.name,
            value: text.to_owned(),
            wanted,
        })
    }
}

/// The least and the most that may be set of a time, the node's own always.
fn bounds_of(
    place: fn(&mut GroupsConfig) -> &mut HumanDuration,
    bounds: fn(&GroupsConfig) -> [HumanDuration; 2],
    node: &GroupsConfig,
) -> [Duration; 2] {
    let ([least, most], own) = (bounds(node), place(&mut node.clone()).0);
    [least.0.min(own), most.0.max(own)]
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
            let (Holds::Time { place, bounds }, Some(ms)) = (&setting.holds, self.ms(setting))
            else {
                continue;
            };
            let [least, most] = bounds_of(*place, *bounds, node);
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
            if let Holds::Time { place, bounds } = setting.holds {
                let [least, most] = bounds_of(place, bounds, node);
                let value = place(&mut held);
                value.0 = value.0.clamp(least, most);
            }
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
            let set = self.set.get(setting.name);
            HeldSetting {
                name: setting.name,
                value: set.map_or_else(|| setting.default(node), Value::to_string),
                is_set: set.is_some(),
            }
        });
        told.collect()
    }

    /// All that was set, by name.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = (&'static str, String)> {
        let set = self.set.iter();
        set.map(|(name, value)| (*name, value.to_string()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    fn ms(&self, setting: &GroupSetting) -> Option<u32> {
        match self.set.get(setting.name) {
            Some(Value::Ms(ms)) => Some(*ms),
            _ => None,
        }
    }

    fn put(&mut self, setting: &'static GroupSetting, value: &str) -> Result<(), ConfigError> {
        self.set.insert(setting.name, setting.value(value)?);
        Ok(())
    }

    /// The node's configuration with what was set in its place, be it within the bounds or not.
    fn put_into(&self, node: &GroupsConfig) -> GroupsConfig {
        let mut with = node.clone();
        for setting in GROUP_SETTINGS {
            if let (Holds::Time { place, .. }, Some(ms)) = (&setting.holds, self.ms(setting)) {
                place(&mut with).0 = Duration::from_millis(ms.into());
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
        name: ASSIGNMENT_INTERVAL,
        node_name: "group.consumer.assignment.interval.ms",
        doc: "How long after a group's partitions were shared they are shared anew at the soonest, in ms.",
        holds: Holds::Time {
            place: |config| &mut config.consumer_assignment_interval,
            bounds: |node| {
                [
                    node.consumer_assignment_interval_min,
                    node.consumer_assignment_interval_max,
                ]
            },
        },
    },
    GroupSetting {
        name: ASSIGNOR_OFFLOAD,
        node_name: "group.consumer.assignor.offload.enable",
        doc: "No effect: partitions are shared by whoever asks for them.",
        holds: Holds::Nothing,
    },
    GroupSetting {
        name: HEARTBEAT_INTERVAL,
        node_name: "group.consumer.heartbeat.interval.ms",
        doc: "How often members of the newer protocol are told to call, in ms.",
        holds: Holds::Time {
            place: |config| &mut config.consumer_heartbeat_interval,
            bounds: |node| {
                [
                    node.consumer_heartbeat_interval_min,
                    node.consumer_heartbeat_interval_max,
                ]
            },
        },
    },
    GroupSetting {
        name: SESSION_TIMEOUT,
        node_name: "group.consumer.session.timeout.ms",
        doc: "The silence after which a member of the newer protocol counts as gone, in ms.",
        holds: Holds::Time {
            place: |config| &mut config.consumer_session_timeout,
            bounds: |node| {
                [
                    node.consumer_session_timeout_min,
                    node.consumer_session_timeout_max,
                ]
            },
        },
    },
];

const ASSIGNMENT_INTERVAL: &str = "consumer.assignment.interval.ms";
const ASSIGNOR_OFFLOAD: &str = "consumer.assignor.offload.enable";
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
            (ASSIGNMENT_INTERVAL, "0"),
            (ASSIGNMENT_INTERVAL, "15000"),
            (ASSIGNOR_OFFLOAD, "FALSE"),
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
            (ASSIGNMENT_INTERVAL, "15001"),
            (ASSIGNMENT_INTERVAL, "-1"),
            (ASSIGNOR_OFFLOAD, "1"),
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
            let default = setting.default(&node);
            assert_eq!(check(&[(setting.name, &default)], &node), Ok(()));
            assert!(!setting.doc.is_empty());
        }
    }
}
