//! A tenant's records go, or those of them that are too old, while others' stay.
//!
//! What goes is hidden at once; its place on the disk is free when the keeper has moved what lives
//! around it. A snapshot makes it durable.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use access::{OfTopic, Snapshot};
use base::{TenantId, UnixMillis};
use serde::Serialize;

use super::census::whose;
use super::sift::sift;
use crate::decode::BatchRecord;
use crate::error::StreamsError;
use crate::event_store::EventStore;
use crate::frames::Change;
use crate::partition::Partition;
use crate::store::Streams;
use crate::topics::Topic;

/// What became of a tenant's records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Purge {
    /// Records that are gone.
    pub records: u64,
    /// Topics in which they stay, as the store cannot take a part of their records out.
    pub kept: Vec<String>,
}

impl Purge {
    /// Takes out of all topics what a tenant wrote before `before`, or all of it.
    ///
    /// # Errors
    /// The store's; what was taken out by then stays out.
    pub async fn of(
        store: &dyn EventStore,
        snapshot: &Snapshot,
        tenant: &TenantId,
        before: Option<UnixMillis>,
    ) -> Result<Purge, StreamsError> {
        let mut purge = Purge::default();
        for info in store.topics().await? {
            let gone = match snapshot.owner_of_topic(info.name.wire_name()) {
                Some(OfTopic::Shared(_)) => store.purge_tenant(&info.name, tenant, before).await?,
                Some(OfTopic::Tenant(owner)) if owner == tenant => {
                    let mut gone = 0;
                    for (partition, range) in (0..).zip(&info.partition_offsets) {
                        let until = match before {
                            // Where nothing is so young, all that was there when it was listed: what
                            // has come since is younger.
                            Some(at) => {
                                let found = store.offset_for_time(&info.name, partition, at);
                                found.await?.or(Some(range.end))
                            }
                            None => None,
                        };
                        let deleted = store.delete_records(&info.name, partition, until).await;
                        let start = match deleted {
                            Err(StreamsError::NotDeletable(_)) => {
                                purge.kept.push(info.name.display().to_owned());
                                break;
                            }
                            deleted => deleted?,
                        };
                        gone += start.saturating_sub(range.start).max(0).unsigned_abs();
                    }
                    Some(gone)
                }
                _ => continue,
            };
            match gone {
                Some(records) => purge.records += records,
                None => purge.kept.push(info.name.display().to_owned()),
            }
        }
        Ok(purge)
    }
}

impl Streams {
    /// Takes a tenant's records before `before`, or all, out of a shared topic; answers how many
    /// they were. Durable when it returns. Blocks.
    pub(crate) fn purge_shared(
        &self,
        topic: &Topic,
        tenant: &TenantId,
        before: Option<UnixMillis>,
    ) -> Result<u64, StreamsError> {
        let mut gone = 0;
        let mut is_changed = false;
        for partition in topic.partitions() {
            let runs = self.tenant_runs(partition, tenant)?;
            let old = |at: UnixMillis| before.is_none_or(|before| at < before);
            let mut old = runs.iter().filter(|run| old(run.oldest));
            let Some(first) = old.next() else {
                continue;
            };
            let end = old.next_back().unwrap_or(first).end;
            gone += self.purge_partition(partition, tenant, before, first.first..end)?;
            is_changed = true;
        }
        if is_changed {
            self.snapshot_now()?;
            self.shared().keeper.look();
        }
        Ok(gone)
    }

    fn purge_partition(
        &self,
        partition: &Arc<Partition>,
        tenant: &TenantId,
        before: Option<UnixMillis>,
        within: Range<i64>,
    ) -> Result<u64, StreamsError> {
        // What is rewritten stands in no index for a while, so that nothing may be freed.
        let alone = self.reclaiming().lock();
        let (mut gone, mut left) = (0, Vec::new());
        let purged = partition.purge(within.clone(), |batch| {
            sift(batch, |record| {
                let is_own = whose(&record.headers).as_ref() == Some(tenant);
                let goes = is_own && before.is_none_or(|before| record.timestamp < before);
                gone += u64::from(goes);
                if is_own && !goes && within.contains(&record.offset) {
                    left.push(BatchRecord {
                        headers: Vec::new(),
                        ..record
                    });
                }
                !goes
            })
        });
        // Also after a failure: some of the index may have followed before it.
        self.note_moved(self.shared().journal.end());
        drop(alone);
        let mut censuses = self.censuses().lock();
        match purged {
            Ok(purged) => {
                tracing::debug!(?partition, %tenant, ?purged, "took a tenant's records out");
                if let Some(census) = censuses.get_mut(&partition.number()) {
                    census.replace(tenant, &within, &left);
                }
                Ok(gone)
            }
            Err(error) => {
                censuses.remove(&partition.number());
                Err(error)
            }
        }
    }

    /// Takes out what tenants keep no longer; tells when to come again.
    pub(crate) fn expire_tenants(&self) -> Result<Option<Duration>, StreamsError> {
        let Some(access) = self.collections().access() else {
            return Ok(None);
        };
        let snapshot = access.snapshot();
        let now = self.clock().now();
        let mut next: Option<Duration> = None;
        for (name, tenant) in snapshot.tenants() {
            let Some(age) = tenant.retention_ms.map(Duration::from_millis) else {
                continue;
            };
            let pause = (age / RETENTION_LOOKS).max(RETENTION_PAUSE_MIN);
            next = Some(next.map_or(pause, |next| next.min(pause)));
            let ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            let before = UnixMillis(now.0.saturating_sub(ms));
            for topic in self.topics_snapshot() {
                match snapshot.owner_of_topic(topic.name().wire_name()) {
                    Some(OfTopic::Shared(_)) => {
                        self.purge_shared(&topic, name, Some(before))?;
                    }
                    Some(OfTopic::Tenant(owner)) if owner == name => {
                        for partition in topic.partitions() {
                            self.until_not_busy(|| {
                                partition.expire(before, |standing| {
                                    let change = Change::Partition(standing);
                                    self.append_once(&change, journal::Durability::Memory)
                                })
                            })?;
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(next)
    }
}

/// Looks for what is too old in the time for which it is kept: it goes that much late at most.
const RETENTION_LOOKS: u32 = 20;
/// Shortest time between two looks: each passes over all topics.
const RETENTION_PAUSE_MIN: Duration = Duration::from_secs(1);
