//! How a proxy takes over the instance of one that is gone, and goes on where that one was.
//!
//! Partitions that were assigned are moved at once. Those of a subscription come when the group
//! gives them, and are moved before anything of them is answered; likewise where an instance
//! subscribes anew since other topics match its pattern.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use access::Principal;
use base::UnixMillis;
use streams::{ConsumedRecord, SeekTo, TopicName};
use tokio::sync::Mutex;

use super::leaving::Reserved;
use super::patterns::{follow, matching};
use super::request::{instance_config, pattern_of};
use super::roll::{Entry, Reads};
use super::sharing::Standing;
use super::unanswered::Taken;
use super::{
    Consumers, Instance, InstanceConfig, InstanceKey, Interest, REAP_INTERVAL_MIN, Reader,
    not_found,
};
use crate::error::RestError;
use crate::limits;
use crate::media::ApiVersion;
use crate::routes::Shared;

/// Where to go on in partitions that the group has not given back yet.
#[derive(Default)]
pub(super) struct Resuming {
    pub(super) places: BTreeMap<(TopicName, i32), SeekTo>,
    until: UnixMillis,
}

impl Resuming {
    /// Goes on at these places from `now` on.
    pub(super) fn go_on(&mut self, places: BTreeMap<(TopicName, i32), SeekTo>, now: UnixMillis) {
        self.places = places;
        self.until = now + limits::RESUME_MAX;
    }
}

impl Consumers {
    /// Makes another proxy's instance one of this proxy, unless somebody else was faster.
    pub(super) async fn take_over(
        self: &Arc<Self>,
        shared: &Shared,
        caller: Option<Principal>,
        key: &InstanceKey,
        seen: &Entry,
    ) -> Result<(), RestError> {
        let Some(roll) = &self.roll else {
            return Err(not_found(key));
        };
        let _turn = roll.taking.lock().await;
        let Some(entry) = roll.entry(key).filter(|it| it.owner == seen.owner) else {
            return Ok(());
        };
        let Some(name) = self.name_to_take(key, &entry, caller.as_ref())? else {
            // It is here, or in a moment.
            tokio::time::sleep(REAP_INTERVAL_MIN / 4).await;
            return Ok(());
        };
        if entry.principal != caller.as_ref().map(ToString::to_string) {
            return Err(not_found(key));
        }
        if self.count() >= self.instances_max {
            return Err(RestError::TooManyInstances(self.instances_max));
        }
        let version = match entry.api {
            1 => ApiVersion::V1,
            _ => ApiVersion::V2,
        };
        let settings = entry.settings.as_bytes();
        let (_, config) = instance_config(version, settings, entry.isolation)?;
        let entry = roll.owned(Entry {
            term: entry.term.saturating_add(1),
            ..entry
        });
        if !roll.claim(key, &entry).await? {
            return Ok(());
        }
        let reader = self.resumed(shared, key, &config, &entry).await?;
        let now = self.clock.now();
        tracing::info!(
            group = key.group,
            instance = key.instance,
            "took over the consumer instance of a proxy that is gone"
        );
        metrics::counter!("thalweg_rest_consumer_instances_taken_over_total").increment(1);
        let instance = Instance {
            key: key.clone(),
            owner: caller,
            config,
            last_used_ms: AtomicI64::new(now.0),
            gone: self.shutdown.child_token(),
            reader: Mutex::new(reader),
            standing: Some(Standing::new(entry, now)),
        };
        self.insert(name, instance);
        Ok(())
    }

    /// Reserves a name for an instance that is taken over; none when it is here already, or being made.
    ///
    /// # Errors
    /// 40403: the instance is gone, and only not off the roll yet.
    fn name_to_take(
        self: &Arc<Self>,
        key: &InstanceKey,
        entry: &Entry,
        caller: Option<&Principal>,
    ) -> Result<Option<Reserved>, RestError> {
        let mut registry = self.registry.lock();
        if registry.leaving.contains(key) || registry.ghosts.get(key) == Some(&entry.life) {
            return Err(not_found(key));
        }
        if registry.instances.contains_key(key) || registry.making.contains_key(key) {
            return Ok(None);
        }
        let (key, owner) = (key.clone(), caller.cloned());
        Ok(Some(Reserved::made(self, &mut registry, key, owner)))
    }

    /// A reader that goes on where another was.
    async fn resumed(
        &self,
        shared: &Shared,
        key: &InstanceKey,
        config: &InstanceConfig,
        entry: &Entry,
    ) -> Result<Reader, RestError> {
        let store = &*shared.store;
        let now = self.clock.now();
        let mut consumer = store.consumer(self.consumer_config(key, config)).await?;
        let named: Vec<(TopicName, i32)> = entry
            .places
            .iter()
            .map(|place| (place.topic.clone(), place.partition))
            .collect();
        let committed = store.committed(&key.group, &named).await?;
        let mut places = BTreeMap::new();
        for (place, committed) in entry.places.iter().zip(committed) {
            let further = committed.filter(|it| !place.sought && it.offset > place.offset);
            let to = match further {
                Some(committed) => SeekTo::Offset(committed.offset),
                None => place.to(),
            };
            places.insert((place.topic.clone(), place.partition), to);
        }
        let mut resuming = Resuming::default();
        resuming.go_on(places, now);
        let interest = match &entry.reads {
            Reads::Nothing => Interest::Nothing,
            Reads::Topics(topics) => {
                consumer.subscribe(topics.clone()).await?;
                Interest::Topics(topics.clone())
            }
            Reads::Pattern(text) => {
                let pattern = pattern_of(text)?;
                let topics = matching(shared, &pattern).await?;
                follow(consumer.as_mut(), topics.clone()).await?;
                Interest::Pattern {
                    pattern,
                    topics,
                    looked_at: now,
                }
            }
            Reads::Partitions(partitions) => {
                consumer.assign(partitions.clone()).await?;
                for ((topic, partition), to) in std::mem::take(&mut resuming.places) {
                    consumer.seek(&topic, partition, to).await?;
                }
                Interest::Partitions
            }
        };
        Ok(Reader {
            consumer: Some(consumer),
            interest,
            uncommitted: false,
            committed_at: now,
            sought: BTreeMap::new(),
            resuming,
            taken: Taken::default(),
        })
    }
}

impl Reader {
    /// Whether partitions are still awaited in which to go on somewhere else.
    pub(super) fn is_resuming(&mut self, now: UnixMillis) -> bool {
        if !self.resuming.places.is_empty() && now >= self.resuming.until {
            // Others may have read them since.
            self.resuming.places.clear();
        }
        !self.resuming.places.is_empty()
    }

    /// Goes on where the last owner was in partitions that came; drops what was read of them
    /// elsewhere.
    pub(super) async fn resume(
        &mut self,
        mut records: Vec<ConsumedRecord>,
    ) -> Result<Vec<ConsumedRecord>, RestError> {
        for place in self.consumer()?.assignment() {
            let Some(to) = self.resuming.places.get(&place).copied() else {
                continue;
            };
            let (topic, partition) = &place;
            let is_of = |it: &ConsumedRecord| it.topic == *topic && it.partition == *partition;
            match self.consumer()?.seek(topic, *partition, to).await {
                Ok(()) => {
                    records.retain(|it| !is_of(it));
                    self.taken.forget(&place);
                }
                // It is not ready yet; the next look tries again.
                Err(_) if !records.iter().any(is_of) => continue,
                // What was read must be answered, or it is lost.
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(error, "a consumer instance goes on where its group was");
                }
            }
            self.resuming.places.remove(&place);
        }
        Ok(records)
    }
}
