//! Settings of the cluster's topics, by the names of our table and Kafka's own values.
//!
//! Kafka knows every name of the table but `thalweg.durability`, which is shown and set as
//! `flush.messages` ([`super::topics`]). Names that the table does not have stay as they are.

use std::collections::{BTreeMap, BTreeSet};

use rdkafka::admin::{ConfigEntry, ConfigSource, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::consumer::Consumer as _;

use super::alter::{self, Resource};
use super::calls::Calls;
use super::error::{self, About};
use super::retention;
use crate::config::{Compression, Durability, StreamsConfig};
use crate::error::StreamsError;
use crate::event_store::{HeldSetting, TopicSpec};
use crate::topic::TopicName;
use crate::topic_config::{ConfigChange, DURABILITY, SETTINGS, Setting, TopicConfig};

/// What a new topic is created with.
pub(super) fn of_new_topic(
    config: &StreamsConfig,
    spec: TopicSpec,
    tenant_keeps: Option<u64>,
) -> Result<BTreeMap<String, String>, StreamsError> {
    let mut asked = spec.config;
    let durability = asked.take_durability().or(spec.durability);
    let set = asked
        .all()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut set: BTreeMap<String, String> = set.collect();
    let is_plain = spec.name.stream().is_none();
    if !(is_plain && config.retention == StreamsConfig::default().retention) {
        let ms = config
            .ttl(&spec.name)
            .map(|ttl| ttl.as_millis().to_string());
        set.entry(RETENTION.to_owned())
            .or_insert_with(|| ms.unwrap_or_else(|| "-1".to_owned()));
    }
    let compression = config.compression(&spec.name);
    if compression != Compression::Producer {
        set.entry(COMPRESSION.to_owned())
            .or_insert_with(|| compression.name().to_owned());
    }
    retention::bound(&mut set, tenant_keeps);
    if let Some(durability) = durability {
        set_durability(&mut set, durability)?;
    }
    Ok(set)
}

/// What holds for a topic.
pub(super) async fn of_topic(
    calls: &Calls,
    name: &TopicName,
) -> Result<Vec<HeldSetting>, StreamsError> {
    let entries = described(calls, name).await?;
    let known = SETTINGS.iter().filter_map(|setting| {
        if setting.name == DURABILITY {
            let entry = entries.get(FLUSH_MESSAGES)?;
            let durability = durability_of(entry.value.as_deref());
            return Some(HeldSetting {
                name: setting.name,
                value: durability.name().to_owned(),
                is_set: is_set(entry),
            });
        }
        let entry = entries.get(setting.name)?;
        Some(HeldSetting {
            name: setting.name,
            value: entry.value.clone().unwrap_or_default(),
            is_set: is_set(entry),
        })
    });
    Ok(known.collect())
}

/// Changes settings, all or none; a retention that changes is no longer than `tenant_keeps`.
pub(super) async fn alter(
    calls: &Calls,
    name: &TopicName,
    changes: &[ConfigChange],
    tenant_keeps: Option<u64>,
) -> Result<(), StreamsError> {
    let entries = described(calls, name).await?;
    // The call sets all that a topic has, so what is not changed is set again.
    let mut set: BTreeMap<String, String> = entries
        .values()
        .filter(|entry| is_set(entry))
        .filter_map(|entry| Some((entry.name.clone(), entry.value.clone()?)))
        .collect();
    let ours = set.iter().filter(|(name, _)| Setting::named(name).is_ok());
    let mut before = TopicConfig::default();
    for (name, value) in ours {
        // A value that the table would refuse stays as it is, unless it is what changes.
        let change = [ConfigChange::Set(name.clone(), value.clone())];
        if let Ok(with) = before.clone().changed(&change, |_| String::new()) {
            before = with;
        }
    }
    let holding = |setting: &Setting| {
        let entry = entries.get(setting.name);
        entry
            .and_then(|entry| entry.value.clone())
            .unwrap_or_default()
    };
    let mut after = before.clone().changed(changes, holding)?;
    let durability = after.take_durability();
    for (name, _) in before.all() {
        set.remove(name);
    }
    for (name, value) in after.all() {
        set.insert(name.to_owned(), value.to_owned());
    }
    for change in changes {
        match change {
            ConfigChange::Unset(name) if name == DURABILITY => drop(set.remove(FLUSH_MESSAGES)),
            // What the table does not have, or would refuse, was not among what changed.
            ConfigChange::Unset(name) if after.value(name).is_none() => drop(set.remove(name)),
            _ => {}
        }
    }
    if let Some(durability) = durability {
        set_durability(&mut set, durability)?;
    }
    let mut names = changes.iter().map(ConfigChange::name);
    if names.any(|name| name == RETENTION) {
        retention::bound(&mut set, tenant_keeps);
    }
    replace(
        calls,
        Resource::Topic(name.clone()),
        About::Topic(name),
        set,
    )
    .await
}

/// Has exactly these settings be set for a topic or a broker.
pub(super) async fn replace(
    calls: &Calls,
    resource: Resource,
    about: About<'_>,
    set: BTreeMap<String, String>,
) -> Result<(), StreamsError> {
    let altered = calls.blocking(about, move |asker, timeout| {
        alter::alter(asker.client().native_ptr(), &resource, &set, timeout)
    });
    altered.await
}

/// Those topics whose records are synced before they are acknowledged. What cannot be asked is
/// taken for Kafka's usual way.
pub(super) async fn synced_topics(
    calls: &Calls,
    names: impl Iterator<Item = &TopicName>,
) -> BTreeSet<TopicName> {
    let described = match of_topics(calls, names).await {
        Ok(described) => described,
        Err(error) => {
            tracing::debug!(%error, "topics cannot be described");
            return BTreeSet::new();
        }
    };
    let is_synced = |entries: &BTreeMap<String, ConfigEntry>| {
        let flush = entries.get(FLUSH_MESSAGES);
        durability_of(flush.and_then(|entry| entry.value.as_deref())) == Durability::Disk
    };
    let synced = described.into_iter().filter(|(_, of)| is_synced(of));
    synced.map(|(name, _)| name).collect()
}

/// What holds for topics, but for those that cannot be described, by name.
pub(super) async fn of_topics(
    calls: &Calls,
    names: impl Iterator<Item = &TopicName>,
) -> Result<BTreeMap<TopicName, BTreeMap<String, ConfigEntry>>, StreamsError> {
    let names: Vec<&TopicName> = names.collect();
    let mut found: BTreeMap<TopicName, BTreeMap<String, ConfigEntry>> = BTreeMap::new();
    for some in names.chunks(DESCRIBED_AT_ONCE) {
        let resources: Vec<ResourceSpecifier<'_>> = some
            .iter()
            .map(|name| ResourceSpecifier::Topic(name.wire_name()))
            .collect();
        let described = calls.admin().describe_configs(&resources, &calls.options());
        let described = calls.judged(About::Cluster, described.await)?;
        for resource in described.into_iter().flatten() {
            if let OwnedResourceSpecifier::Topic(wire) = &resource.specifier
                && let Ok(name) = wire.parse()
            {
                let entries = resource.entries.into_iter();
                let named = entries.map(|entry| (entry.name.clone(), entry));
                found.insert(name, named.collect());
            }
        }
    }
    Ok(found)
}

/// What holds for one topic, by name.
pub(super) async fn described(
    calls: &Calls,
    name: &TopicName,
) -> Result<BTreeMap<String, ConfigEntry>, StreamsError> {
    let resource = ResourceSpecifier::Topic(name.wire_name());
    described_resource(calls, resource, About::Topic(name)).await
}

/// What holds for a topic or a broker, by name.
pub(super) async fn described_resource(
    calls: &Calls,
    resource: ResourceSpecifier<'_>,
    about: About<'_>,
) -> Result<BTreeMap<String, ConfigEntry>, StreamsError> {
    let resource = [resource];
    let described = calls.admin().describe_configs(&resource, &calls.options());
    let described = calls.judged(about, described.await)?;
    let mut entries = BTreeMap::new();
    for resource in described {
        let trouble = calls.trouble().told();
        let resource = resource.map_err(|code| error::of_code(code, about, trouble.as_deref()))?;
        let named = resource.entries.into_iter();
        entries.extend(named.map(|entry| (entry.name.clone(), entry)));
    }
    Ok(entries)
}

pub(super) fn is_set(entry: &ConfigEntry) -> bool {
    entry.source == ConfigSource::DynamicTopic
}

fn set_durability(
    set: &mut BTreeMap<String, String>,
    durability: Durability,
) -> Result<(), StreamsError> {
    match durability {
        Durability::Memory => {
            return Err(StreamsError::Unsupported(
                "durability 'memory' (a Kafka cluster writes every record: ask for os or disk)",
            ));
        }
        Durability::Os => drop(set.remove(FLUSH_MESSAGES)),
        Durability::Disk => drop(set.insert(FLUSH_MESSAGES.to_owned(), "1".to_owned())),
    }
    Ok(())
}

fn durability_of(flush_messages: Option<&str>) -> Durability {
    match flush_messages {
        Some("1") => Durability::Disk,
        _ => Durability::Os,
    }
}

const FLUSH_MESSAGES: &str = "flush.messages";
const COMPRESSION: &str = "compression.type";
pub(super) const RETENTION: &str = "retention.ms";

/// Topics asked for in one request.
const DESCRIBED_AT_ONCE: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    fn new_topic(config: &str, name: &str, asked: &[(&str, &str)]) -> Vec<(String, String)> {
        let config: StreamsConfig = serde_json::from_str(config).unwrap();
        let spec = TopicSpec {
            config: TopicConfig::of(asked.iter().copied()).unwrap(),
            ..TopicSpec::of(name.parse().unwrap())
        };
        of_new_topic(&config, spec, None)
            .unwrap()
            .into_iter()
            .collect()
    }

    fn set(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_streams_ttl_becomes_the_retention_and_plain_topics_keep_the_clusters() {
        let hour = r#"{"streams":[{"path":"/s","ttl":"1h"}],"default_stream":{"ttl":"0s"}}"#;
        assert_eq!(
            new_topic(hour, "/s:t", &[]),
            [set("retention.ms", "3600000")]
        );
        assert_eq!(new_topic(hour, "/else:t", &[]), [set("retention.ms", "-1")]);
        assert_eq!(new_topic(hour, "plain", &[]), []);
        let packed = r#"{"streams":[{"path":"/s","compression":"zstd","ttl":"0s"}]}"#;
        let kept = set("retention.ms", "-1");
        let zstd = [set("compression.type", "zstd"), kept.clone()];
        assert_eq!(new_topic(packed, "/s:t", &[]), zstd);
        let own = [("compression.type", "gzip")];
        let gzip = [set("compression.type", "gzip"), kept];
        assert_eq!(new_topic(packed, "/s:t", &own), gzip);
        let asked = [("retention.ms", "5"), ("cleanup.policy", "compact")];
        assert_eq!(
            new_topic(hour, "/s:t", &asked),
            [set("cleanup.policy", "compact"), set("retention.ms", "5")]
        );
        assert_eq!(
            new_topic(r#"{"retention":"1d"}"#, "plain", &[]),
            [set("retention.ms", "86400000")]
        );
    }

    #[test]
    fn durability_becomes_kafkas_flush() {
        let disk = [("thalweg.durability", "disk")];
        assert_eq!(new_topic("{}", "t", &disk), [set("flush.messages", "1")]);
        assert_eq!(new_topic("{}", "t", &[("thalweg.durability", "os")]), []);
        let spec = TopicSpec {
            durability: Some(Durability::Memory),
            ..TopicSpec::of("t".parse().unwrap())
        };
        let refused = of_new_topic(&StreamsConfig::default(), spec, None).unwrap_err();
        assert!(refused.to_string().contains("memory"), "{refused}");
    }
}
