//! A tenant's records go, or those of them that are too old, while others' stay.
//!
//! What goes is hidden at once; its place on the disk is free when the keeper has moved what lives
//! around it. A snapshot makes it durable.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use access::{OfTopic, Snapshot};
use base::{TenantId, UnixMillis};
use serde::Serialize;

use super::census::{Counted, whose};
use super::sift::sift;
use crate::compaction::{Rewritten, unless_malformed};
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

/// Whose records go, and from before when; all of them where no time is given.
type Going = BTreeMap<TenantId, Option<UnixMillis>>;

impl Streams {
    /// Takes a tenant's records before `before`, or all, out of a shared topic; answers how many
    /// they were. Durable when it returns. Blocks.
    pub(crate) fn purge_shared(
        &self,
        topic: &Topic,
        tenant: &TenantId,
        before: Option<UnixMillis>,
    ) -> Result<u64, StreamsError> {
        let going = Going::from([(tenant.clone(), before)]);
        let (mut purged, mut outcome) = (None, Ok(()));
        for partition in topic.partitions() {
            match self.purge_partition(partition, &going) {
                Ok(None) => {}
                Ok(Some(gone)) => *purged.get_or_insert(0) += gone,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.keep_purged(purged.is_some())?;
        outcome.map(|()| purged.unwrap_or(0))
    }

    /// Makes it durable that records went, if any did.
    fn keep_purged(&self, is_changed: bool) -> Result<(), StreamsError> {
        if is_changed {
            self.snapshot_now()?;
            self.shared().keeper.look();
        }
        Ok(())
    }

    /// Takes out what goes, in one pass; answers how many records that were, none where it had not
    /// to look. Who asks for the partition's census waits.
    fn purge_partition(
        &self,
        partition: &Arc<Partition>,
        going: &Going,
    ) -> Result<Option<u64>, StreamsError> {
        let census = self.census_of(partition);
        let mut census = census.lock();
        census.look(partition)?;
        let old = going.iter().filter_map(|(name, before)| {
            let within = census.older(name, *before)?;
            Some((name, (within, *before)))
        });
        let old: BTreeMap<&TenantId, (Range<i64>, Option<UnixMillis>)> = old.collect();
        let first = old.values().map(|(within, _)| within.start).min();
        let end = old.values().map(|(within, _)| within.end).max();
        let (Some(first), Some(end)) = (first, end) else {
            return Ok(None);
        };
        // What is undecided stays, and is counted by nobody here.
        let (_, _, _, decided) = partition.compactable();
        let (mut gone, mut left) = (0, census.alike());
        // What is rewritten stands in no index for a while, so that nothing may be freed.
        let alone = self.reclaiming().lock();
        let purged = partition.purge(first..end, |batch| {
            let (mut here, mut stays) = (0, Vec::new());
            let sifted = sift(batch, |record| {
                let name = whose(&record.headers);
                let Some((name, (within, before))) = name.and_then(|name| old.get_key_value(&name))
                else {
                    return true;
                };
                let goes = before.is_none_or(|before| record.timestamp < before);
                here += u64::from(goes);
                if !goes && within.contains(&record.offset) {
                    stays.push((*name, Counted::of(&record)));
                }
                !goes
            });
            let Some(sifted) = unless_malformed(sifted)? else {
                return Ok(Rewritten::Unchanged);
            };
            gone += here;
            for (name, record) in stays {
                left.note(name, &record);
            }
            Ok(sifted)
        });
        // Also after a failure: some of the index may have followed before it.
        self.note_moved(self.shared().journal.end());
        drop(alone);
        if purged.is_err() || decided < end {
            census.forget();
        } else {
            for (name, (within, _)) in &old {
                census.replace(name, within, left.runs_of(name));
            }
        }
        let purged = purged?;
        tracing::debug!(
            ?partition,
            tenants = old.len(),
            gone,
            ?purged,
            "took records out"
        );
        Ok(Some(gone))
    }

    /// Takes out what tenants keep no longer; tells when to come again. A topic where that fails
    /// holds up no other one.
    pub(crate) fn expire_tenants(&self) -> Result<Option<Duration>, StreamsError> {
        let Some(access) = self.collections().access() else {
            return Ok(None);
        };
        let snapshot = access.snapshot();
        let now = self.clock().now();
        let (mut next, mut going): (Option<Duration>, Going) = (None, Going::new());
        for (name, tenant) in snapshot.tenants() {
            let Some(age) = tenant.retention_ms.map(Duration::from_millis) else {
                continue;
            };
            let pause = (age / RETENTION_LOOKS).max(RETENTION_PAUSE_MIN);
            next = Some(next.map_or(pause, |next| next.min(pause)));
            let ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            going.insert(name.clone(), Some(UnixMillis(now.0.saturating_sub(ms))));
        }
        if going.is_empty() {
            return Ok(None);
        }
        let (mut is_changed, mut failed) = (false, None);
        for topic in self.topics_snapshot() {
            let owner = snapshot.owner_of_topic(topic.name().wire_name());
            for partition in topic.partitions() {
                let expired = match owner {
                    Some(OfTopic::Shared(_)) => self.purge_partition(partition, &going),
                    Some(OfTopic::Tenant(owner)) => match going.get(owner) {
                        Some(Some(before)) => self.expire_own(partition, *before).map(|()| None),
                        _ => continue,
                    },
                    None => continue,
                };
                match expired {
                    Ok(gone) => is_changed |= gone.is_some(),
                    Err(StreamsError::Closed) => return Err(StreamsError::Closed),
                    Err(error) => {
                        let report = base::report(&error);
                        tracing::warn!(
                            ?partition,
                            error = report,
                            "cannot expire a tenant's records"
                        );
                        failed.get_or_insert(error);
                    }
                }
            }
        }
        self.keep_purged(is_changed)?;
        failed.map_or(Ok(next), Err)
    }

    fn expire_own(
        &self,
        partition: &Arc<Partition>,
        before: UnixMillis,
    ) -> Result<(), StreamsError> {
        let expired = self.until_not_busy(|| {
            partition.expire(before, |standing| {
                let change = Change::Partition(standing);
                self.append_once(&change, journal::Durability::Memory)
            })
        });
        expired.map(drop)
    }
}

/// Looks for what is too old in the time for which it is kept: it goes that much late at most.
const RETENTION_LOOKS: u32 = 20;
/// Shortest time between two looks: each passes over all topics.
const RETENTION_PAUSE_MIN: Duration = Duration::from_secs(1);
