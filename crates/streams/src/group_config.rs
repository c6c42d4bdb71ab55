//! Settings of single groups, under Kafka's names: one ordered table of all there are.
//!
//! A group keeps only what was set for it; for the rest, the node's settings hold. They concern members
//! of the newer protocol (KIP-848), as those of the classic one bring their own time-outs, Kafka Streams
//! applications (KIP-1071) and share groups (KIP-932). What was set stays when the group goes, as in
//! Kafka. What would only tell Kafka by which thread it is to share partitions is taken and has no effect.
//!
//! What may be set is bounded, for times of consumer groups by the node, and the node's own values may
//! always be. Where it has come to other bounds since, the nearest value holds that lies within them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base::HumanDuration;

use crate::event_store::{HeldSetting, Isolation};
use crate::groups::GroupsConfig;
use crate::topic_config::{ConfigChange, ConfigError, ValueKind};

/// A setting of groups.
pub(crate) struct GroupSetting {
    /// Its name, Kafka's.
    pub(crate) name: &'static str,
    /// The node's setting that gives the default, under Kafka's name; none where groups alone have it.
    pub(crate) node_name: Option<&'static str>,
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
    /// A whole number: where it stands in the node's configuration, the least and the most.
    Count {
        place: fn(&mut GroupsConfig) -> &mut u32,
        bounds: [u32; 2],
    },
    /// Where a share group begins to read.
    Begin,
    /// What a share group is given of transactions.
    Isolation,
    /// Whether members of a share group may hold records for longer; true unless it is set.
    Renewal,
    /// True or false, without effect here; true unless it is set.
    Nothing,
}

/// Where a share group begins to read a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShareBegin {
    /// With what is written from then on.
    Latest,
    /// With the oldest record.
    Earliest,
    /// With the first record that is not older than this, in ms.
    Ago(i64),
}

/// What holds for the records that a share group reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareTerms {
    /// How long what is acquired is a member's own.
    pub(crate) lock: Duration,
    /// How often a record is delivered at most.
    pub(crate) deliveries_max: u16,
    /// How many records of a partition may be on their way.
    pub(crate) in_flight_max: i64,
    pub(crate) begin: ShareBegin,
    pub(crate) isolation: Isolation,
    pub(crate) may_renew: bool,
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
    Count(u32),
    Begin(ShareBegin),
    Isolation(Isolation),
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Ms(number) | Value::Count(number) => number.fmt(f),
            Value::Begin(ShareBegin::Latest) => f.write_str("latest"),
            Value::Begin(ShareBegin::Earliest) => f.write_str("earliest"),
            Value::Begin(ShareBegin::Ago(ms)) => {
                write!(f, "{BY_DURATION}PT{}.{:03}S", ms / 1_000, ms % 1_000)
            }
            Value::Isolation(Isolation::Uncommitted) => f.write_str("read_uncommitted"),
            Value::Isolation(Isolation::Committed) => f.write_str("read_committed"),
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
            Holds::Count { place, .. } => place(&mut node.clone()).to_string(),
            Holds::Begin => Value::Begin(ShareBegin::Latest).to_string(),
            Holds::Isolation => Value::Isolation(Isolation::Uncommitted).to_string(),
            Holds::Renewal | Holds::Nothing => Value::Flag(true).to_string(),
        }
    }

    /// Whether the node's configuration says what holds where nothing is set.
    pub(crate) fn is_configured(&self) -> bool {
        matches!(self.holds, Holds::Time { .. } | Holds::Count { .. })
    }

    /// Its kind of value.
    pub(crate) fn kind(&self) -> ValueKind {
        match self.holds {
            Holds::Time { .. } | Holds::Count { .. } => ValueKind::Int,
            Holds::Begin | Holds::Isolation => ValueKind::String,
            Holds::Renewal | Holds::Nothing => ValueKind::Boolean,
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
            Holds::Count {
                bounds: [least, most],
                ..
            } => {
                let count = text.parse::<u32>().ok();
                let count = count.filter(|count| (least..=most).contains(count));
                (
                    count.map(Value::Count),
                    format!("a whole number from {least} to {most}"),
                )
            }
            Holds::Begin => (
                begin_of(text).map(Value::Begin),
                format!("latest, earliest or {BY_DURATION} and a time, such as PT1H"),
            ),
            Holds::Isolation => {
                let isolation = match text {
                    "read_uncommitted" => Some(Isolation::Uncommitted),
                    "read_committed" => Some(Isolation::Committed),
                    _ => None,
                };
                let wanted = "read_uncommitted or read_committed";
                (isolation.map(Value::Isolation), wanted.to_owned())
            }
            Holds::Renewal | Holds::Nothing => {
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
        match self.disorder(&self.put_into(node)) {
            None => Ok(()),
            Some((longer, shorter)) => Err(ConfigError::Order { longer, shorter }),
        }
    }

    /// What holds for the records that the group reads, if it is a share group.
    pub(crate) fn share_terms(&self, node: &GroupsConfig) -> ShareTerms {
        let held = self.held(node);
        let set = |name| self.set.get(name).copied();
        ShareTerms {
            lock: held.share_record_lock.0,
            deliveries_max: u16::try_from(held.share_deliveries_max)
                .map_or(u16::MAX - 1, |most| most.min(u16::MAX - 1)),
            in_flight_max: i64::from(held.share_in_flight_max),
            begin: match set(SHARE_BEGIN) {
                Some(Value::Begin(begin)) => begin,
                _ => ShareBegin::Latest,
            },
            isolation: match set(SHARE_ISOLATION) {
                Some(Value::Isolation(isolation)) => isolation,
                _ => Isolation::Uncommitted,
            },
            may_renew: set(SHARE_RENEWAL) != Some(Value::Flag(false)),
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
        match self.disorder(&held) {
            None => held,
            Some(_) => node.clone(),
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
            match (&setting.holds, self.set.get(setting.name)) {
                (Holds::Time { place, .. }, Some(Value::Ms(ms))) => {
                    place(&mut with).0 = Duration::from_millis((*ms).into());
                }
                (Holds::Count { place, .. }, Some(Value::Count(count))) => {
                    *place(&mut with) = *count;
                }
                _ => {}
            }
        }
        with
    }

    /// Two settings by which members that keep to them would be put out: the first must be longer
    /// than the second, and is not.
    fn disorder(&self, held: &GroupsConfig) -> Option<(&'static str, &'static str)> {
        let pairs = [
            (
                (SESSION_TIMEOUT, held.consumer_session_timeout),
                (HEARTBEAT_INTERVAL, held.consumer_heartbeat_interval),
            ),
            (
                (SHARE_SESSION_TIMEOUT, held.share_session_timeout),
                (SHARE_HEARTBEAT_INTERVAL, held.share_heartbeat_interval),
            ),
            (
                (STREAMS_SESSION_TIMEOUT, held.streams_session_timeout),
                (STREAMS_HEARTBEAT_INTERVAL, held.streams_heartbeat_interval),
            ),
        ];
        let found = pairs
            .into_iter()
            .find(|(longer, shorter)| longer.1 <= shorter.1);
        let found = found.filter(|_| !self.is_empty());
        found.map(|(longer, shorter)| (longer.0, shorter.0))
    }
}

/// Where to begin, as Kafka writes it.
fn begin_of(text: &str) -> Option<ShareBegin> {
    match text {
        "latest" => Some(ShareBegin::Latest),
        "earliest" => Some(ShareBegin::Earliest),
        _ => {
            let ago = text.strip_prefix(BY_DURATION)?;
            let ago = ago.parse::<jiff::Span>().ok()?;
            let ago = ago.to_duration(jiff::SpanRelativeTo::days_are_24_hours());
            let ms = i64::try_from(ago.ok()?.as_millis()).ok()?;
            (ms >= 0).then_some(ShareBegin::Ago(ms))
        }
    }
}

const fn seconds(seconds: u64) -> HumanDuration {
    HumanDuration(Duration::from_secs(seconds))
}

/// Every setting of groups, in the order of their names.
pub(crate) const GROUP_SETTINGS: &[GroupSetting] = &[
    GroupSetting {
        name: ASSIGNMENT_INTERVAL,
        node_name: Some("group.consumer.assignment.interval.ms"),
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
        node_name: Some("group.consumer.assignor.offload.enable"),
        doc: "No effect: partitions are shared by whoever asks for them.",
        holds: Holds::Nothing,
    },
    GroupSetting {
        name: HEARTBEAT_INTERVAL,
        node_name: Some("group.consumer.heartbeat.interval.ms"),
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
        node_name: Some("group.consumer.session.timeout.ms"),
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
    GroupSetting {
        name: SHARE_ASSIGNOR_OFFLOAD,
        node_name: Some("group.share.assignor.offload.enable"),
        doc: "No effect: partitions are shared by whoever asks for them.",
        holds: Holds::Nothing,
    },
    GroupSetting {
        name: SHARE_BEGIN,
        node_name: None,
        doc: "Where a share group begins to read: latest, earliest or by_duration:PnDTnHnMn.nS.",
        holds: Holds::Begin,
    },
    GroupSetting {
        name: "share.delivery.count.limit",
        node_name: Some("group.share.delivery.count.limit"),
        doc: "How often a record is given to members of a share group at most.",
        holds: Holds::Count {
            place: |config| &mut config.share_deliveries_max,
            bounds: [2, 10],
        },
    },
    GroupSetting {
        name: SHARE_HEARTBEAT_INTERVAL,
        node_name: Some("group.share.heartbeat.interval.ms"),
        doc: "How often members of a share group are told to call, in ms.",
        holds: Holds::Time {
            place: |config| &mut config.share_heartbeat_interval,
            bounds: |_| [seconds(5), seconds(15)],
        },
    },
    GroupSetting {
        name: SHARE_ISOLATION,
        node_name: None,
        doc: "Whether a share group is given records of transactions that are open or were aborted.",
        holds: Holds::Isolation,
    },
    GroupSetting {
        name: "share.partition.max.record.locks",
        node_name: Some("group.share.partition.max.record.locks"),
        doc: "How many records of one partition may be on their way to members of a share group.",
        holds: Holds::Count {
            place: |config| &mut config.share_in_flight_max,
            bounds: [100, 4_000],
        },
    },
    GroupSetting {
        name: "share.record.lock.duration.ms",
        node_name: Some("group.share.record.lock.duration.ms"),
        doc: "How long a record that a member of a share group has acquired is its own, in ms.",
        holds: Holds::Time {
            place: |config| &mut config.share_record_lock,
            bounds: |_| [seconds(15), seconds(60)],
        },
    },
    GroupSetting {
        name: SHARE_RENEWAL,
        node_name: None,
        doc: "Whether members of a share group may hold records for longer (acknowledgement Renew).",
        holds: Holds::Renewal,
    },
    GroupSetting {
        name: SHARE_SESSION_TIMEOUT,
        node_name: Some("group.share.session.timeout.ms"),
        doc: "The silence after which a member of a share group counts as gone, in ms.",
        holds: Holds::Time {
            place: |config| &mut config.share_session_timeout,
            bounds: |_| [seconds(45), seconds(60)],
        },
    },
    GroupSetting {
        name: "streams.assignor.offload.enable",
        node_name: Some("group.streams.assignor.offload.enable"),
        doc: "No effect: tasks are shared by whoever asks for them.",
        holds: Holds::Nothing,
    },
    GroupSetting {
        name: STREAMS_HEARTBEAT_INTERVAL,
        node_name: Some("group.streams.heartbeat.interval.ms"),
        doc: "How often members of a Kafka Streams application are told to call, in ms.",
        holds: Holds::Time {
            place: |config| &mut config.streams_heartbeat_interval,
            bounds: |_| [seconds(5), seconds(15)],
        },
    },
    GroupSetting {
        name: "streams.initial.rebalance.delay.ms",
        node_name: Some("group.streams.initial.rebalance.delay.ms"),
        doc: "How long the first tasks of an application wait for more members, in ms.",
        holds: Holds::Time {
            place: |config| &mut config.streams_initial_rebalance_delay,
            bounds: |_| [seconds(0), seconds(60)],
        },
    },
    GroupSetting {
        name: "streams.num.standby.replicas",
        node_name: Some("group.streams.num.standby.replicas"),
        doc: "How many processes follow the states of each task beside the one that does it.",
        holds: Holds::Count {
            place: |config| &mut config.streams_standby_replicas,
            bounds: [0, 2],
        },
    },
    GroupSetting {
        name: STREAMS_SESSION_TIMEOUT,
        node_name: Some("group.streams.session.timeout.ms"),
        doc: "The silence after which a member of a Kafka Streams application counts as gone, in ms.",
        holds: Holds::Time {
            place: |config| &mut config.streams_session_timeout,
            bounds: |_| [seconds(45), seconds(60)],
        },
    },
];

const ASSIGNMENT_INTERVAL: &str = "consumer.assignment.interval.ms";
const ASSIGNOR_OFFLOAD: &str = "consumer.assignor.offload.enable";
const HEARTBEAT_INTERVAL: &str = "consumer.heartbeat.interval.ms";
const SESSION_TIMEOUT: &str = "consumer.session.timeout.ms";
const SHARE_ASSIGNOR_OFFLOAD: &str = "share.assignor.offload.enable";
const SHARE_BEGIN: &str = "share.auto.offset.reset";
const SHARE_HEARTBEAT_INTERVAL: &str = "share.heartbeat.interval.ms";
const SHARE_ISOLATION: &str = "share.isolation.level";
const SHARE_RENEWAL: &str = "share.renew.acknowledge.enable";
const SHARE_SESSION_TIMEOUT: &str = "share.session.timeout.ms";
const STREAMS_HEARTBEAT_INTERVAL: &str = "streams.heartbeat.interval.ms";
const STREAMS_SESSION_TIMEOUT: &str = "streams.session.timeout.ms";

/// What a time to go back by stands behind.
const BY_DURATION: &str = "by_duration:";

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
        let unknown = check(&[("streams.num.warmup.replicas", "2")], &node);
        let told = "groups have no setting 'streams.num.warmup.replicas'";
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
    fn a_share_group_begins_where_it_is_told_to() {
        let node = GroupsConfig::default();
        let begin = |text: &str| {
            let config = GroupConfig::of([(SHARE_BEGIN, text)]).ok()?;
            let told = config.told(&node);
            let told = told.iter().find(|held| held.name == SHARE_BEGIN).unwrap();
            // What is told may be set again, and means the same.
            let again = GroupConfig::of([(SHARE_BEGIN, &*told.value)]).unwrap();
            assert_eq!(again, config);
            Some(config.share_terms(&node).begin)
        };
        assert_eq!(begin("earliest"), Some(ShareBegin::Earliest));
        assert_eq!(begin("by_duration:PT1.5S"), Some(ShareBegin::Ago(1_500)));
        assert_eq!(
            begin("by_duration:P1DT1H"),
            Some(ShareBegin::Ago(90_000_000))
        );
        for text in [
            "",
            "Latest",
            "by_duration:",
            "by_duration:-PT1S",
            "by_duration:P1M",
        ] {
            assert_eq!(begin(text), None, "{text}");
        }
        let terms = GroupConfig::of([
            ("share.delivery.count.limit", "2"),
            ("share.isolation.level", "read_committed"),
            ("share.renew.acknowledge.enable", "false"),
        ]);
        let terms = terms.unwrap().share_terms(&node);
        assert_eq!((terms.deliveries_max, terms.in_flight_max), (2, 2_000));
        assert_eq!(
            (terms.isolation, terms.may_renew),
            (Isolation::Committed, false)
        );
        assert!(GroupConfig::of([("share.delivery.count.limit", "1")]).is_err());
        assert!(check(&[("share.record.lock.duration.ms", "14999")], &node).is_err());
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
