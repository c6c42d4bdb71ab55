//! Settings of single topics, under Kafka's names: one ordered table of all there are.
//!
//! A topic keeps only what was set for it, as the texts that were set; [`TopicSettings`] is what
//! holds for it, typed, with the store's defaults filled in. The table feeds CreateTopics,
//! DescribeConfigs, AlterConfigs, the management API and the command line.
//!
//! Settings that say how Kafka lays out its files are taken and have no effect, as there are no
//! such files; settings that would promise what one node cannot keep are refused by name.

mod live;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::{Compression, Durability, StreamsConfig};
use crate::topic::TopicName;

pub(crate) use live::Live;
pub(crate) use table::DURABILITY;
pub use table::{SETTINGS, Setting, ValueKind};

/// What was set for a topic, by the names of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicConfig {
    set: BTreeMap<&'static str, Box<str>>,
}

/// What holds for a topic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopicSettings {
    /// Whether old records are deleted by age and size.
    pub is_deleting: bool,
    /// Whether older records of a key make way for newer ones.
    pub is_compacting: bool,
    /// The age at which records expire; none keeps them.
    pub retention: Option<Duration>,
    /// Bytes of record batches that each partition keeps at least; none keeps all.
    pub retention_bytes: Option<u64>,
    /// Largest record batch taken, in bytes.
    pub message_bytes_max: u64,
    /// How record batches are compressed.
    pub compression: Compression,
    /// Whether records get the time of their storing instead of their producer's.
    pub is_append_time: bool,
    /// How far a record's time may lie before that of its storing, in ms.
    pub older_ms_max: i64,
    /// How far a record's time may lie after that of its storing, in ms.
    pub newer_ms_max: i64,
    /// Age below which a record is not compacted away.
    pub compaction_lag_min: Duration,
    /// Age at which a record is compacted at the latest.
    pub compaction_lag_max: Duration,
    /// How long a tombstone stays after it was compacted.
    pub tombstone_retention: Duration,
    /// Share of records not yet compacted at which compaction begins.
    pub dirty_ratio_min: f64,
    /// What acknowledgements promise.
    pub durability: Durability,
}

/// What to do with one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// Gives it a value.
    Set(String, String),
    /// Gives it its default back.
    Unset(String),
    /// Adds to a list.
    Append(String, String),
    /// Takes from a list.
    Subtract(String, String),
}

impl ConfigChange {
    /// The setting that it changes.
    pub fn name(&self) -> &str {
        match self {
            ConfigChange::Set(name, _)
            | ConfigChange::Unset(name)
            | ConfigChange::Append(name, _)
            | ConfigChange::Subtract(name, _) => name,
        }
    }
}

/// A setting of a topic or a group that cannot be as asked; the caller's fault, not worth a retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nothing has this name.
    #[error("{of} have no setting '{name}'")]
    Unknown {
        /// What the setting was meant to be of.
        of: &'static str,
        /// The name.
        name: String,
    },
    /// The value is none of the setting's.
    #[error("{name} is '{value}': write {wanted}")]
    Value {
        /// The setting.
        name: &'static str,
        /// What was asked.
        value: String,
        /// What can be asked.
        wanted: String,
    },
    /// Only a list can be added to.
    #[error("{0} is no list")]
    NoList(&'static str),
    /// Two settings contradict each other.
    #[error("{longer} must be longer than {shorter}")]
    Order {
        /// The one that must be longer.
        longer: &'static str,
        /// The other one.
        shorter: &'static str,
    },
}

impl TopicConfig {
    /// The settings of these names and values.
    pub fn of<'a>(
        asked: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ConfigError> {
        let mut config = TopicConfig::default();
        for (name, value) in asked {
            config.put(Setting::named(name)?, value)?;
        }
        Ok(config)
    }

    /// The same with some changes, of which a list's need to know what holds by `default`.
    pub fn changed(
        mut self,
        changes: &[ConfigChange],
        default: impl Fn(&Setting) -> String,
    ) -> Result<Self, ConfigError> {
        for change in changes {
            match change {
                ConfigChange::Set(name, value) => self.put(Setting::named(name)?, value)?,
                // What topics cannot have they do not have, whoever makes sure of it: Kafka's tools
                // take back all that another cluster's topic may have.
                ConfigChange::Unset(name) => drop(self.set.remove(name.as_str())),
                ConfigChange::Append(name, value) | ConfigChange::Subtract(name, value) => {
                    let setting = Setting::named(name)?;
                    if setting.kind != ValueKind::List {
                        return Err(ConfigError::NoList(setting.name));
                    }
                    let now = self.value(setting.name).map(str::to_owned);
                    let now = now.unwrap_or_else(|| default(setting));
                    let is_adding = matches!(change, ConfigChange::Append(..));
                    self.put(setting, &list_changed(&now, value, is_adding))?;
                }
            }
        }
        Ok(self)
    }

    /// What was set under this name.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.set.get(name).map(|value| &**value)
    }

    /// All that was set, by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.set.iter().map(|(name, value)| (*name, &**value))
    }

    /// Takes the durability out, which topics keep apart.
    pub(crate) fn take_durability(&mut self) -> Option<Durability> {
        let value = self.set.remove(DURABILITY)?;
        table::durability_of(&value)
    }

    /// What holds for the topic with this configuration.
    pub fn settings(
        &self,
        config: &StreamsConfig,
        topic: &TopicName,
        durability: Durability,
    ) -> TopicSettings {
        let number = |name: &str| -> Option<i64> { self.value(name)?.parse().ok() };
        let ms = |name: &str, default: u64| {
            let ms = number(name).and_then(|ms| u64::try_from(ms).ok());
            Duration::from_millis(ms.unwrap_or(default))
        };
        let policy = self.value("cleanup.policy").unwrap_or("delete");
        let has = |wanted: &str| policy.split(',').any(|one| one.trim() == wanted);
        let retention = match number("retention.ms") {
            Some(ms) => u64::try_from(ms).ok().map(Duration::from_millis),
            None => config.ttl(topic),
        };
        TopicSettings {
            is_deleting: has("delete"),
            is_compacting: has("compact"),
            retention,
            retention_bytes: number("retention.bytes").and_then(|n| u64::try_from(n).ok()),
            message_bytes_max: number("max.message.bytes")
                .and_then(|n| u64::try_from(n).ok())
                .unwrap_or(config.max_message_bytes.0)
                // The journal was opened for batches of up to this size.
                .min(config.message_bytes_ceiling()),
            compression: self
                .value("compression.type")
                .and_then(Compression::named)
                .unwrap_or_else(|| config.compression(topic)),
            is_append_time: self.value("message.timestamp.type") == Some("LogAppendTime"),
            older_ms_max: number("message.timestamp.before.max.ms").unwrap_or(i64::MAX),
            newer_ms_max: number("message.timestamp.after.max.ms").unwrap_or(table::HOUR_MS),
            compaction_lag_min: ms("min.compaction.lag.ms", 0),
            compaction_lag_max: ms("max.compaction.lag.ms", i64::MAX.unsigned_abs()),
            tombstone_retention: ms("delete.retention.ms", table::DAY_MS),
            dirty_ratio_min: self
                .value("min.cleanable.dirty.ratio")
                .and_then(|ratio| ratio.parse().ok())
                .unwrap_or(0.5),
            durability,
        }
    }

    /// The same with the durability among the rest.
    pub(crate) fn with_durability(mut self, durability: Durability) -> Self {
        self.set.insert(DURABILITY, durability.name().into());
        self
    }

    fn put(&mut self, setting: &'static Setting, value: &str) -> Result<(), ConfigError> {
        let value = value.trim();
        setting.check(value)?;
        self.set.insert(setting.name, value.into());
        Ok(())
    }
}

impl TopicSettings {
    /// The age at which records are deleted; none when they are not.
    pub(crate) fn deletion_age(&self) -> Option<Duration> {
        self.retention.filter(|_| self.is_deleting)
    }

    /// The age at which a record is compacted at the latest; none when there is no bound.
    pub(crate) fn lag_bound(&self) -> Option<Duration> {
        let lag = self.compaction_lag_max;
        (self.is_compacting && lag < ENDLESS).then_some(lag)
    }

    /// Bytes above which a partition's oldest batches are deleted; none when they are not.
    pub(crate) fn deletion_bytes(&self) -> Option<u64> {
        self.retention_bytes.filter(|_| self.is_deleting)
    }

    /// Whether a partition of `bytes` holds so much more than it keeps that trimming it is worth
    /// a frame in the journal.
    pub(crate) fn has_room_to_trim(&self, bytes: u64) -> bool {
        self.deletion_bytes()
            .is_some_and(|keep| bytes > keep.saturating_add(keep / TRIM_SHARE))
    }
}

/// A greatest lag as long as this is none: Kafka's default is as many ms as a number can hold.
const ENDLESS: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);

/// The share of what a partition keeps by which it may outgrow that before it is trimmed.
const TRIM_SHARE: u64 = 16;

/// A list with the elements of another added or taken.
fn list_changed(now: &str, with: &str, is_adding: bool) -> String {
    let split = |text: &str| -> Vec<String> {
        let parts = text.split(',').map(str::trim);
        parts
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let (mut elements, with) = (split(now), split(with));
    elements.retain(|element| !with.contains(element));
    if is_adding {
        elements.extend(with);
    }
    elements.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(set: &[(&str, &str)], topic: &str) -> TopicSettings {
        let config = TopicConfig::of(set.iter().copied()).unwrap();
        let topic = topic.parse().unwrap();
        config.settings(&StreamsConfig::default(), &topic, Durability::Disk)
    }

    #[test]
    fn what_is_not_set_is_as_the_store_has_it() {
        let plain = settings(&[], "t");
        let week = Duration::from_secs(7 * 24 * 3_600);
        assert_eq!((plain.retention, plain.retention_bytes), (Some(week), None));
        assert!(plain.is_deleting && !plain.is_compacting && !plain.is_append_time);
        assert_eq!(settings(&[("retention.ms", "-1")], "t").retention, None);
        let short = settings(&[("retention.ms", "5")], "/s/a:t");
        assert_eq!(short.retention, Some(Duration::from_millis(5)));
        assert_eq!(plain.compression, Compression::Producer);
        let packed = settings(&[("compression.type", "zstd")], "t");
        assert_eq!(packed.compression, Compression::Zstd);
        let both = settings(&[("cleanup.policy", "compact, delete")], "t");
        assert!(both.is_deleting && both.is_compacting);
        let neither = settings(&[("cleanup.policy", "")], "t");
        assert!(!neither.is_deleting && !neither.is_compacting);
        assert_eq!(neither.deletion_age(), None);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (name, value) in [
            ("retention.ms", "-2"),
            ("retention.ms", "soon"),
            ("cleanup.policy", "shred"),
            ("compression.type", "lzo"),
            ("min.insync.replicas", "2"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("message.timestamp.type", "Never"),
            ("thalweg.durability", "hope"),
            ("max.message.bytes", "2147483648"),
            ("preallocate", "yes"),
            ("message.timestamp.before.max.ms", "-1"),
            ("remote.log.copy.disable", "true"),
            ("compression.gzip.level", "10"),
        ] {
            let refused = TopicConfig::of([(name, value)]).unwrap_err();
            assert!(refused.to_string().starts_with(name), "{refused}");
        }
        let unknown = TopicConfig::of([("no.such", "1")]);
        let told = unknown.unwrap_err().to_string();
        assert_eq!(told, "topics have no setting 'no.such'");
    }

    #[test]
    fn lists_are_added_to_and_taken_from() {
        let default = |setting: &Setting| setting.default(&StreamsConfig::default(), None);
        let change = |config: TopicConfig, change| config.changed(&[change], default);
        let name = || "cleanup.policy".to_owned();
        let both = change(
            TopicConfig::default(),
            ConfigChange::Append(name(), "compact".into()),
        )
        .unwrap();
        assert_eq!(both.value("cleanup.policy"), Some("delete,compact"));
        let one = change(both, ConfigChange::Subtract(name(), "delete".into())).unwrap();
        assert_eq!(one.value("cleanup.policy"), Some("compact"));
        let last = ConfigChange::Subtract(name(), "compact".into());
        let neither = change(one.clone(), last).unwrap();
        assert_eq!(neither.value("cleanup.policy"), Some(""));
        let none = change(one.clone(), ConfigChange::Unset(name())).unwrap();
        assert_eq!(none, TopicConfig::default());
        let unknown = change(one.clone(), ConfigChange::Unset("no.such".into()));
        assert_eq!(unknown, Ok(one.clone()));
        let refused = change(one, ConfigChange::Append("retention.ms".into(), "1".into()));
        assert_eq!(refused, Err(ConfigError::NoList("retention.ms")));
    }

    #[test]
    fn the_table_is_ordered_and_every_default_may_be_set() {
        assert!(SETTINGS.is_sorted_by_key(|setting| setting.name));
        for setting in SETTINGS {
            let default = setting.default(&StreamsConfig::default(), None);
            assert_eq!(setting.check(&default), Ok(()), "{}", setting.name);
            assert!(!setting.doc.is_empty());
        }
    }
}
