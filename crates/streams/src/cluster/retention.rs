//! How long tenants keep records, as `retention.ms` of their own topics.
//!
//! A cluster lets go of records by its topics' settings alone, so a tenant's retention has to stand
//! there. A topic that is made here gets it unless a shorter one is asked for; one that is there is
//! shortened to it, and made longer only from where the tenant's had shortened it. What its setting was
//! before is not kept: without the tenant's it is the cluster's default.
//!
//! Topics are also made by the cluster's own clients, so they are looked for every now and then. Of a
//! topic that several tenants share nothing is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::{Access, OfTopic, Snapshot};
use base::TenantId;
use rdkafka::admin::ConfigEntry;
use tokio_util::sync::CancellationToken;

use super::Cluster;
use super::settings::{self, RETENTION};
use super::topics::Topics;
use crate::error::StreamsError;
use crate::limits::CLUSTER_RETENTION_LOOK;
use crate::topic::TopicName;
use crate::topic_config::ConfigChange;

/// A tenant's retention that changes.
#[derive(Clone, Copy, Debug)]
pub struct RetentionChange {
    /// What it was, in ms; none for what the topics say.
    pub before: Option<u64>,
    /// What it is now.
    pub now: Option<u64>,
}

impl Cluster {
    /// Has the topics of the tenants of `access` let go of what these keep no longer, until
    /// `shutdown`.
    pub async fn keep_retentions(
        self: Arc<Self>,
        access: Arc<Access>,
        shutdown: CancellationToken,
    ) {
        self.topics.follow_tenants(&access);
        loop {
            let shortened = async {
                if let Err(error) = self.topics.shorten(&access).await {
                    let error = base::report(&error);
                    tracing::warn!(error, "topics may keep more than their tenants want kept");
                }
                tokio::time::sleep(CLUSTER_RETENTION_LOOK).await;
            };
            if shutdown.run_until_cancelled(shortened).await.is_none() {
                return;
            }
        }
    }
}

impl Topics {
    /// How long the tenant keeps records, in ms, whose own topic this is.
    pub(super) fn tenant_keeps(&self, topic: &TopicName) -> Option<u64> {
        let snapshot = self.tenants()?.snapshot();
        let (_, retention) = owner(&snapshot, topic)?;
        retention
    }

    /// Has a tenant's own topics follow a change of its retention, all or none.
    ///
    /// # Errors
    /// The cluster's, with the topic's name; what was changed by then is as it was.
    pub(super) async fn follow_retention(
        &self,
        snapshot: &Snapshot,
        tenant: &TenantId,
        change: RetentionChange,
    ) -> Result<(), StreamsError> {
        let _alone = self.setting_changes().lock().await;
        let is_own = |of: &TenantId| of == tenant;
        let mut undo: Vec<(TopicName, ConfigChange)> = Vec::new();
        let found = self.retentions(snapshot, is_own).await?.into_iter();
        let found = found.map(|(topic, holds)| Ok((topic, holds?)));
        // Nothing is changed before all are known.
        for (topic, holds) in found.collect::<Result<Vec<_>, StreamsError>>()? {
            let Some(wanted) = wanted(&holds, change) else {
                continue;
            };
            if let Err(error) = self.set_retention(&topic, wanted).await {
                for (topic, before) in undo {
                    if let Err(error) = self.set_retention(&topic, before).await {
                        let (topic, error) = (topic.display(), base::report(&error));
                        tracing::warn!(%topic, error, "a topic's retention was not taken back");
                    }
                }
                return Err(about(&topic, error));
            }
            undo.push((topic, holds.back()));
        }
        Ok(())
    }

    /// Shortens the topics of all tenants that keep more than these want kept.
    async fn shorten(&self, access: &Access) -> Result<(), StreamsError> {
        // A change that the cluster refuses is not half-way followed.
        let _alone = self.setting_changes().lock().await;
        let snapshot = access.snapshot();
        let keeps = |of: &TenantId| {
            let tenant = snapshot.tenants().get(of);
            tenant.is_some_and(|tenant| tenant.retention_ms.is_some())
        };
        if !snapshot.tenants().keys().any(keeps) {
            return Ok(());
        }
        for (topic, holds) in self.retentions(&snapshot, keeps).await? {
            let now = owner(&snapshot, &topic).and_then(|(_, retention)| retention);
            let change = RetentionChange { before: now, now };
            let told = topic.display();
            let holds = match holds {
                Ok(holds) => holds,
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(topic = %told, error, "a topic may keep more than its tenant wants kept");
                    continue;
                }
            };
            let Some(wanted) = wanted(&holds, change) else {
                continue;
            };
            match self.set_retention(&topic, wanted).await {
                Ok(()) => tracing::info!(topic = %told, retention_ms = now, "a topic keeps less"),
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(topic = %told, error, "a topic keeps more than its tenant wants kept");
                }
            }
        }
        Ok(())
    }

    async fn set_retention(
        &self,
        topic: &TopicName,
        change: ConfigChange,
    ) -> Result<(), StreamsError> {
        settings::alter(self.calls(), topic, &[change], None).await
    }

    /// The retention of tenants' own topics, or why it is not told.
    async fn retentions(
        &self,
        snapshot: &Snapshot,
        is_wanted: impl Fn(&TenantId) -> bool,
    ) -> Result<BTreeMap<TopicName, Result<Holds, StreamsError>>, StreamsError> {
        let mut topics = self.partitions_of_all().await?;
        topics.retain(|topic, _| owner(snapshot, topic).is_some_and(|(of, _)| is_wanted(of)));
        let mut entries = settings::of_topics(self.calls(), topics.keys()).await?;
        let mut found = BTreeMap::new();
        for topic in topics.into_keys() {
            let described = match entries.remove(&topic) {
                Some(entries) => Ok(entries),
                // Asked for alone it says why.
                None => settings::described(self.calls(), &topic).await,
            };
            if let Err(error @ StreamsError::Unavailable(_)) = described {
                return Err(error);
            }
            if let Some(holds) = held(&topic, described) {
                found.insert(topic, holds);
            }
        }
        Ok(found)
    }
}

/// The retention that a topic's description tells; none where it tells none, or the topic is gone.
fn held(
    topic: &TopicName,
    described: Result<BTreeMap<String, ConfigEntry>, StreamsError>,
) -> Option<Result<Holds, StreamsError>> {
    match described {
        Ok(entries) => {
            let entry = entries.get(RETENTION)?;
            let value = entry.value.as_deref()?.parse().ok()?;
            let is_set = settings::is_set(entry);
            Some(Ok(Holds { value, is_set }))
        }
        Err(StreamsError::UnknownTopic(_)) => None,
        Err(error) => Some(Err(about(topic, error))),
    }
}

/// Whose own topic it is, and how long that tenant keeps records.
fn owner<'s>(snapshot: &'s Snapshot, topic: &'s TopicName) -> Option<(&'s TenantId, Option<u64>)> {
    match snapshot.owner_of_topic(topic.wire_name())? {
        OfTopic::Tenant(name) => {
            let tenant = snapshot.tenants().get(name)?;
            Some((name, tenant.retention_ms))
        }
        OfTopic::Shared(_) => None,
    }
}

/// The retention that holds for a topic, in ms; below zero it is none.
#[derive(Clone, Copy, Debug)]
struct Holds {
    value: i64,
    is_set: bool,
}

impl Holds {
    /// What makes it what it is.
    fn back(self) -> ConfigChange {
        match self.is_set {
            true => ConfigChange::Set(RETENTION.to_owned(), self.value.to_string()),
            false => ConfigChange::Unset(RETENTION.to_owned()),
        }
    }
}

/// An error of a call that names no topic of its own.
fn about(topic: &TopicName, error: StreamsError) -> StreamsError {
    let told = |text: String| format!("retention.ms of '{}': {text}", topic.display());
    match error {
        StreamsError::Denied(text) => StreamsError::Denied(told(text)),
        StreamsError::Refused(text) => StreamsError::Refused(told(text)),
        error => error,
    }
}

/// What is to be changed of a topic, if anything is.
fn wanted(holds: &Holds, change: RetentionChange) -> Option<ConfigChange> {
    let is_of_tenant = holds.is_set && change.before.map(in_ms) == Some(holds.value);
    match change.now.map(in_ms) {
        Some(now) if now == holds.value => None,
        Some(now) if is_of_tenant || is_longer(holds.value, now) => {
            Some(ConfigChange::Set(RETENTION.to_owned(), now.to_string()))
        }
        None if is_of_tenant => Some(ConfigChange::Unset(RETENTION.to_owned())),
        _ => None,
    }
}

/// Has settings of a tenant's topic keep no more than the tenant wants kept.
pub(super) fn bound(set: &mut BTreeMap<String, String>, tenant_keeps: Option<u64>) {
    let Some(most) = tenant_keeps.map(in_ms) else {
        return;
    };
    let asked = set.get(RETENTION).and_then(|text| text.parse().ok());
    if asked.is_none_or(|asked| is_longer(asked, most)) {
        set.insert(RETENTION.to_owned(), most.to_string());
    }
}

fn is_longer(ms: i64, than: i64) -> bool {
    ms < 0 || ms > than
}

fn in_ms(retention: u64) -> i64 {
    i64::try_from(retention).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use rdkafka::admin::ConfigSource;

    use super::*;

    #[test]
    fn a_topic_is_shortened_and_made_longer_only_from_where_the_tenants_retention_was() {
        let set = |ms: i64| Some(ConfigChange::Set(RETENTION.to_owned(), ms.to_string()));
        let unset = Some(ConfigChange::Unset(RETENTION.to_owned()));
        for (value, is_set, before, now, expected) in [
            // Shortened, whether it was set or not.
            (604_800_000, false, None, Some(60_000), set(60_000)),
            (-1, true, None, Some(60_000), set(60_000)),
            // What is kept less long stays.
            (30_000, true, None, Some(60_000), None),
            (30_000, false, Some(20_000), Some(60_000), None),
            (60_000, true, None, Some(60_000), None),
            // What the tenant's was follows it.
            (60_000, true, Some(60_000), Some(90_000), set(90_000)),
            (60_000, true, Some(60_000), Some(5_000), set(5_000)),
            (60_000, true, Some(60_000), None, unset),
            // What was not the tenant's stays without it.
            (30_000, true, Some(60_000), None, None),
            (60_000, false, Some(60_000), None, None),
            (30_000, true, None, None, None),
        ] {
            let (holds, change) = (Holds { value, is_set }, RetentionChange { before, now });
            let found = wanted(&holds, change);
            assert_eq!(found, expected, "{holds:?} {change:?}");
        }
    }

    #[test]
    fn a_topic_that_may_not_be_described_is_no_topic_without_a_retention() {
        let topic: TopicName = "diku.loans".parse().unwrap();
        let entry = ConfigEntry {
            name: RETENTION.to_owned(),
            value: Some("60000".to_owned()),
            source: ConfigSource::DynamicTopic,
            is_read_only: false,
            is_default: false,
            is_sensitive: false,
        };
        let entries = BTreeMap::from([(RETENTION.to_owned(), entry)]);
        let told = held(&topic, Ok(entries)).unwrap().unwrap();
        assert_eq!((told.value, told.is_set), (60_000, true));
        assert!(held(&topic, Ok(BTreeMap::new())).is_none());
        let gone = StreamsError::UnknownTopic(topic.clone());
        assert!(held(&topic, Err(gone)).is_none());
        let denied = StreamsError::Denied("not yours".to_owned());
        let denied = held(&topic, Err(denied)).unwrap().unwrap_err().to_string();
        assert!(denied.contains("'diku.loans': not yours"), "{denied}");
    }

    #[test]
    fn settings_of_a_tenants_topic_keep_no_more_than_it_wants_kept() {
        for (asked, tenant, expected) in [
            (None, None, None),
            (Some("5000"), None, Some("5000")),
            (None, Some(60_000), Some("60000")),
            (Some("-1"), Some(60_000), Some("60000")),
            (Some("90000"), Some(60_000), Some("60000")),
            (Some("5000"), Some(60_000), Some("5000")),
        ] {
            let entry = |text: &str| (RETENTION.to_owned(), text.to_owned());
            let mut set: BTreeMap<String, String> = asked.map(entry).into_iter().collect();
            bound(&mut set, tenant);
            assert_eq!(
                set.get(RETENTION).map(String::as_str),
                expected,
                "{asked:?}"
            );
        }
    }
}
