//! What a tenant has in the store: its topics, and how far groups are behind in them.

use std::collections::BTreeMap;

use access::{OfTopic, Snapshot};
use base::{TenantId, UnixMillis};
use serde::Serialize;

use crate::error::StreamsError;
use crate::event_store::{EventStore, TopicInfo};
use crate::tenants::Run;
use crate::tenants::names::event;

/// What a tenant has in the store.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TenantUse {
    /// Its topics, by name.
    pub topics: Vec<TopicUse>,
    /// What groups have yet to read of them, by group and topic.
    pub backlog: Vec<GroupBacklog>,
}

/// A tenant's records in a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicUse {
    /// The topic.
    pub topic: String,
    /// The part of its name behind the tenant's.
    pub event: String,
    /// Whether others' records lie there too.
    pub is_shared: bool,
    /// Records that can be read, as far as offsets tell.
    pub records: u64,
    /// Bytes of their batches; none where the store does not tell.
    pub bytes: Option<u64>,
    /// The time of the oldest, in ms; none without records, or where the store does not tell.
    pub oldest_ms: Option<UnixMillis>,
}

/// How far a group is behind in a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupBacklog {
    /// The group.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// Records behind what it has committed.
    pub records: u64,
    /// The time of the oldest of them, in ms.
    pub oldest_ms: Option<UnixMillis>,
}

impl TenantUse {
    /// Asks the store; looks at all topics and groups.
    ///
    /// # Errors
    /// The store's.
    pub async fn of(
        store: &dyn EventStore,
        snapshot: &Snapshot,
        tenant: &TenantId,
    ) -> Result<Self, StreamsError> {
        let mut used = TenantUse::default();
        let mut own: BTreeMap<String, TopicInfo> = BTreeMap::new();
        let mut shared: BTreeMap<String, Vec<Vec<Run>>> = BTreeMap::new();
        for info in store.topics().await? {
            let name = info.name.wire_name();
            if let Some(OfTopic::Shared(part)) = snapshot.owner_of_topic(name) {
                let runs = store
                    .tenant_runs(&info.name, tenant)
                    .await?
                    .unwrap_or_default();
                if runs.iter().any(|runs| !runs.is_empty()) {
                    let event = event(name, part).to_owned();
                    used.topics.push(shared_use(&info, event, &runs));
                    shared.insert(name.to_owned(), runs);
                }
                continue;
            }
            if snapshot.owner_of_topic(name) != Some(OfTopic::Tenant(tenant)) {
                continue;
            }
            let mut oldest = None;
            for (partition, range) in (0..).zip(&info.partition_offsets) {
                if range.start < range.end {
                    let time = store.time_at(&info.name, partition, range.start).await?;
                    oldest = earlier(oldest, time);
                }
            }
            let ranges = info.partition_offsets.iter();
            let records = ranges.map(|range| range.end.saturating_sub(range.start).max(0));
            used.topics.push(TopicUse {
                topic: info.name.display().to_owned(),
                event: event(name, tenant.as_str()).to_owned(),
                is_shared: false,
                records: records.sum::<i64>().unsigned_abs(),
                bytes: info.bytes_stored,
                oldest_ms: oldest,
            });
            own.insert(name.to_owned(), info);
        }
        if own.is_empty() && shared.is_empty() {
            return Ok(used);
        }
        for group in store.groups().await? {
            let Some(detail) = store.group(&group.group).await? else {
                continue;
            };
            let mut behind: BTreeMap<&str, GroupBacklog> = BTreeMap::new();
            for of in &detail.committed {
                if let Some((name, runs)) = shared.get_key_value(of.topic.wire_name()) {
                    let at = usize::try_from(of.partition).unwrap_or(usize::MAX);
                    let backlog = behind.entry(name).or_insert_with(|| GroupBacklog {
                        group: group.group.clone(),
                        topic: of.topic.display().to_owned(),
                        records: 0,
                        oldest_ms: None,
                    });
                    let (runs, from) = (runs.get(at), of.committed.offset);
                    let runs = runs.into_iter().flatten();
                    for run in runs.filter(|run| run.end > from) {
                        let (records, oldest) = if run.first >= from {
                            (run.records, Some(run.oldest))
                        } else if run.is_short() {
                            ((run.end - from).unsigned_abs(), Some(run.oldest))
                        } else {
                            let part = from..run.end;
                            let counted = store.count_tenant(&of.topic, of.partition, tenant, part);
                            counted.await?
                        };
                        backlog.records += records;
                        backlog.oldest_ms = earlier(backlog.oldest_ms, oldest);
                    }
                    continue;
                }
                let Some((name, info)) = own.get_key_value(of.topic.wire_name()) else {
                    continue;
                };
                let at = usize::try_from(of.partition).unwrap_or(usize::MAX);
                let Some(range) = info.partition_offsets.get(at) else {
                    continue;
                };
                let from = of.committed.offset.max(range.start);
                let records = range.end.saturating_sub(from).max(0);
                let backlog = behind.entry(name).or_insert_with(|| GroupBacklog {
                    group: group.group.clone(),
                    topic: info.name.display().to_owned(),
                    records: 0,
                    oldest_ms: None,
                });
                if records > 0 {
                    backlog.records += records.unsigned_abs();
                    let time = store.time_at(&info.name, of.partition, from).await?;
                    backlog.oldest_ms = earlier(backlog.oldest_ms, time);
                }
            }
            used.backlog.extend(behind.into_values());
        }
        Ok(used)
    }

    /// Bytes of its records.
    pub fn bytes(&self) -> u64 {
        self.topics.iter().filter_map(|topic| topic.bytes).sum()
    }
}

/// A tenant's part of a shared topic; bytes are those of keys and values.
fn shared_use(info: &TopicInfo, event: String, runs: &[Vec<Run>]) -> TopicUse {
    let all = || runs.iter().flatten();
    TopicUse {
        topic: info.name.display().to_owned(),
        event,
        is_shared: true,
        records: all().map(|run| run.records).sum(),
        bytes: Some(all().map(|run| run.bytes).sum()),
        oldest_ms: all().map(|run| run.oldest).min(),
    }
}

/// Bytes that the store holds of each tenant: of its own topics those of the batches, in shared ones
/// those of its records' keys and values. A shared topic of which the store cannot tell whose the
/// records are counts for nobody.
///
/// # Errors
/// The store's.
pub async fn stored_bytes(
    store: &dyn EventStore,
    snapshot: &Snapshot,
) -> Result<BTreeMap<TenantId, u64>, StreamsError> {
    let mut bytes: BTreeMap<TenantId, u64> = BTreeMap::new();
    for info in store.topics().await? {
        match snapshot.owner_of_topic(info.name.wire_name()) {
            Some(OfTopic::Tenant(owner)) => {
                *bytes.entry(owner.clone()).or_default() += info.bytes_stored.unwrap_or(0);
            }
            Some(OfTopic::Shared(_)) => match store.tenant_bytes(&info.name).await {
                Ok(counted) => {
                    for (owner, counted) in counted.into_iter().flatten() {
                        *bytes.entry(owner).or_default() += counted;
                    }
                }
                Err(error) => {
                    let topic = info.name.display();
                    tracing::debug!(topic, error = %base::report(&error), "cannot count whose records these are");
                }
            },
            None => {}
        }
    }
    Ok(bytes)
}

fn earlier(a: Option<UnixMillis>, b: Option<UnixMillis>) -> Option<UnixMillis> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
