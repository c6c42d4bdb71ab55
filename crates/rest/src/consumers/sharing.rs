//! What an instance's owner tells the other proxies.
//!
//! An owner writes an entry when its client says what to read and where; and at the beginning of a
//! read, at most once a second, where the client was by then: whoever asks for more has got what was
//! answered before. So a taker goes on at records that were answered at most once more, and never
//! behind one that was not. Without other proxies none of this happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use access::Principal;
use base::UnixMillis;
use streams::{ConsumedRecord, EventStore, OffsetReset, SeekTo, TopicName};
use tokio::time::Instant;
use uuid::Uuid;

use super::roll::{self, Entry, Place, Reads, Roll};
use super::{Consumers, Instance, InstanceConfig, InstanceKey, Interest, Reader, gauge};
use crate::error::RestError;
use crate::limits;
use crate::media::ApiVersion;

/// An instance's entry as its owner wrote it last.
pub(super) struct Standing {
    entry: parking_lot::Mutex<Entry>,
    noted_ms: AtomicI64,
}

impl Standing {
    pub(super) fn new(entry: Entry, now: UnixMillis) -> Self {
        Standing {
            entry: parking_lot::Mutex::new(entry),
            noted_ms: AtomicI64::new(now.0),
        }
    }

    pub(super) fn life(&self) -> Uuid {
        self.entry.lock().life
    }

    /// The entry with something else that is read.
    fn with(&self, reads: Reads, places: Vec<Place>) -> Entry {
        Entry {
            reads,
            places,
            ..self.entry.lock().clone()
        }
    }

    fn age(&self, now: UnixMillis) -> Duration {
        now.since(UnixMillis(self.noted_ms.load(Ordering::Relaxed)))
    }
}

impl Consumers {
    /// The roll, where other proxies may work on the same store.
    pub(crate) fn roll(&self) -> Option<&Arc<Roll>> {
        self.roll.as_ref()
    }

    /// Whether the instance is one of this proxy; keeps it on the roll if it is.
    pub(crate) fn has(self: &Arc<Self>, key: &InstanceKey) -> bool {
        let found = self.registry.lock().instances.get(key).cloned();
        let Some(instance) = found else { return false };
        let is_old = |standing: &Standing| standing.age(self.clock.now()) >= self.idle_max / 4;
        if instance.standing.as_ref().is_some_and(is_old) {
            self.renew(key);
        }
        true
    }

    /// Has all read that is on the roll; nothing where there is none.
    pub(crate) async fn begin_roll(self: &Arc<Self>) -> Result<(), RestError> {
        match &self.roll {
            Some(roll) => roll.begin(&Arc::downgrade(self)).await,
            None => Ok(()),
        }
    }

    /// Claims a name for a new instance among all proxies.
    pub(super) async fn claim(
        self: &Arc<Self>,
        owner: Option<&Principal>,
        key: &InstanceKey,
        config: &InstanceConfig,
        settings: &[u8],
    ) -> Result<Option<Standing>, RestError> {
        let Some(roll) = &self.roll else {
            return Ok(None);
        };
        self.begin_roll().await?;
        let entry = roll.owned(Entry {
            version: roll::VERSION,
            life: Uuid::new_v4(),
            term: 1,
            owner: Uuid::nil(),
            address: String::new(),
            principal: owner.map(ToString::to_string),
            api: match config.version {
                ApiVersion::V1 => 1,
                ApiVersion::V2 => 2,
            },
            settings: String::from_utf8_lossy(settings).into_owned(),
            isolation: config.isolation,
            reads: Reads::Nothing,
            places: Vec::new(),
        });
        if roll.entry(key).is_some() {
            return Err(RestError::InstanceExists(key.instance.clone()));
        }
        match roll.claim(key, &entry).await {
            Ok(true) => Ok(Some(Standing::new(entry, self.clock.now()))),
            Ok(false) => Err(RestError::InstanceExists(key.instance.clone())),
            Err(error) => {
                // It may be on the roll all the same.
                self.haunt([(key.clone(), entry.life)]);
                Err(error)
            }
        }
    }

    /// Another proxy has the instance now: what is left of it here ends without a commit.
    pub(super) fn lose(&self, key: &InstanceKey, life: Uuid) {
        let mut registry = self.registry.lock();
        let is_it = |it: &Arc<Instance>| it.standing.as_ref().is_some_and(|s| s.life() == life);
        if !registry.instances.get(key).is_some_and(is_it) {
            return;
        }
        let lost = registry.instances.remove(key);
        gauge(&registry);
        drop(registry);
        if let Some(instance) = lost {
            tracing::info!(
                group = key.group,
                instance = key.instance,
                "another proxy took a consumer instance over"
            );
            instance.gone.cancel();
            tokio::spawn(async move {
                let mut reader = instance.reader.lock().await;
                reader.uncommitted = false;
                drop(reader);
                instance.close().await;
            });
        }
    }

    /// Writes an instance's entry again, beside what is going on.
    pub(super) fn renew(self: &Arc<Self>, key: &InstanceKey) {
        let found = self.registry.lock().instances.get(key).cloned();
        let Some(instance) = found else { return };
        let Some(standing) = &instance.standing else {
            return;
        };
        standing
            .noted_ms
            .store(self.clock.now().0, Ordering::Relaxed);
        let consumers = Arc::clone(self);
        tokio::spawn(async move {
            if let (Some(roll), Some(standing)) = (&consumers.roll, &instance.standing) {
                let entry = standing.entry.lock().clone();
                if let Err(error) = roll.put(&instance.key, &entry).await {
                    let error = base::report(&error);
                    tracing::warn!(error, "a consumer instance's entry was not renewed");
                }
                // It may have been taken off before this was put there.
                if !consumers.holds(&instance.key) {
                    consumers.haunt([(instance.key.clone(), entry.life)]);
                }
            }
        });
    }

    /// Writes down what an instance reads and where it is; durable when this returns.
    pub(super) async fn note(
        &self,
        instance: &Instance,
        reader: &mut Reader,
    ) -> Result<(), RestError> {
        if instance.standing.is_none() {
            return Ok(());
        }
        reader.put_back().await?;
        let places = reader.places(instance);
        self.note_places(instance, reader.reads(), places).await
    }

    async fn note_places(
        &self,
        instance: &Instance,
        reads: Reads,
        places: Vec<Place>,
    ) -> Result<(), RestError> {
        let (Some(roll), Some(standing)) = (&self.roll, &instance.standing) else {
            return Ok(());
        };
        let entry = standing.with(reads, places);
        roll.put(&instance.key, &entry).await?;
        *standing.entry.lock() = entry;
        standing
            .noted_ms
            .store(self.clock.now().0, Ordering::Relaxed);
        Ok(())
    }

    /// Writes down where all of these are, as far as that has changed; those that are used a while
    /// longer are left as they were noted last.
    pub(super) async fn note_all(&self, instances: &[Arc<Instance>]) -> Result<(), RestError> {
        let Some(roll) = &self.roll else {
            return Ok(());
        };
        let until = Instant::now() + limits::NOTE_ALL_MAX / 4;
        let mut entries = Vec::new();
        for instance in instances {
            let Some(standing) = &instance.standing else {
                continue;
            };
            let Ok(mut reader) = tokio::time::timeout_at(until, instance.reader.lock()).await
            else {
                continue;
            };
            if reader.consumer.is_some() && reader.put_back().await.is_ok() {
                let entry = standing.with(reader.reads(), reader.places(instance));
                if entry != *standing.entry.lock() {
                    entries.push((instance.key.clone(), entry));
                }
            }
        }
        roll.put_all(&entries).await
    }

    /// A read begins: what was answered before has arrived.
    pub(super) async fn note_answered(
        &self,
        store: &dyn EventStore,
        instance: &Instance,
        reader: &mut Reader,
    ) -> Result<(), RestError> {
        let Some(standing) = &instance.standing else {
            return Ok(());
        };
        let mut places = reader.places(instance);
        let began = instance.config.reset == OffsetReset::Latest
            && reader.begin_at_ends(store, instance, &mut places).await?;
        let is_due = standing.age(self.clock.now()) >= limits::ROLL_NOTE_INTERVAL;
        if began || (is_due && standing.entry.lock().places != places) {
            self.note_places(instance, reader.reads(), places).await?;
        }
        Ok(())
    }

    /// A read ends with these records: of partitions that nothing was known of it is written down
    /// where they began, so that a taker does not begin behind them.
    pub(super) async fn note_begun(
        &self,
        instance: &Instance,
        reader: &mut Reader,
        records: &[ConsumedRecord],
    ) -> Result<(), RestError> {
        let Some(standing) = &instance.standing else {
            return Ok(());
        };
        if instance.config.reset != OffsetReset::Latest {
            return Ok(());
        }
        let mut places = roll::by_partition(&standing.entry.lock().places);
        let known = places.len();
        for record in records {
            let place = (record.topic.clone(), record.partition);
            places.entry(place).or_insert_with(|| Place {
                topic: record.topic.clone(),
                partition: record.partition,
                offset: record.offset,
                sought: false,
            });
        }
        match places.len() == known {
            true => Ok(()),
            false => {
                let places = places.into_values().collect();
                self.note_places(instance, reader.reads(), places).await
            }
        }
    }
}

impl Place {
    /// Where to go on by it.
    pub(super) fn to(&self) -> SeekTo {
        match self.offset {
            END => SeekTo::End,
            BEGINNING => SeekTo::Beginning,
            offset => SeekTo::Offset(offset),
        }
    }
}

impl Reader {
    /// What it reads, for the roll.
    fn reads(&self) -> Reads {
        match &self.interest {
            Interest::Nothing => Reads::Nothing,
            Interest::Topics(topics) => Reads::Topics(topics.clone()),
            Interest::Pattern { pattern, .. } => Reads::Pattern(pattern.as_str().to_owned()),
            Interest::Partitions => {
                let consumer = self.consumer.as_ref();
                Reads::Partitions(consumer.map(|it| it.assignment()).unwrap_or_default())
            }
        }
    }

    /// Where it is in the partitions that it holds; by its last entry, if there is any, where it
    /// does not know.
    pub(super) fn places(&self, instance: &Instance) -> Vec<Place> {
        let Some(consumer) = &self.consumer else {
            return Vec::new();
        };
        let before = instance.standing.as_ref().map(|standing| {
            let entry = standing.entry.lock();
            roll::by_partition(&entry.places)
        });
        let before = before.unwrap_or_default();
        let mut places = Vec::new();
        for (topic, partition) in consumer.assignment() {
            let key = (topic, partition);
            let place = |offset, sought| Place {
                topic: key.0.clone(),
                partition,
                offset,
                sought,
            };
            let sought = self.sought.get(&key).or(self.resuming.places.get(&key));
            places.extend(match (sought, consumer.position(&key.0, partition)) {
                (Some(SeekTo::Offset(offset)), _) => Some(place(*offset, true)),
                (Some(SeekTo::Beginning), _) => Some(place(BEGINNING, true)),
                (Some(SeekTo::End), _) => Some(place(END, true)),
                (None, Some(offset)) => Some(place(offset, false)),
                (None, None) => before.get(&key).cloned(),
            });
        }
        if places.is_empty() && !matches!(self.interest, Interest::Nothing) {
            // The group shares anew; what was held may come back.
            return before.into_values().collect();
        }
        places
    }

    /// Adds where it begins in partitions that nothing was read of yet; says whether there are any.
    async fn begin_at_ends(
        &mut self,
        store: &dyn EventStore,
        instance: &Instance,
        places: &mut Vec<Place>,
    ) -> Result<bool, RestError> {
        let known = roll::by_partition(places);
        let held = self.consumer.as_ref().map(|it| it.assignment());
        let unknown: Vec<(TopicName, i32)> = held
            .unwrap_or_default()
            .into_iter()
            .filter(|place| !known.contains_key(place))
            .collect();
        if unknown.is_empty() {
            return Ok(false);
        }
        let committed = store.committed(&instance.key.group, &unknown).await?;
        let mut ends: BTreeMap<TopicName, Vec<i64>> = BTreeMap::new();
        for ((topic, partition), committed) in unknown.into_iter().zip(committed) {
            let offset = match committed {
                Some(committed) => committed.offset,
                None => {
                    if !ends.contains_key(&topic) {
                        let info = store.topic(&topic).await?;
                        let of_topic = info.partition_offsets.iter().map(|range| range.end);
                        ends.insert(topic.clone(), of_topic.collect());
                    }
                    let index = usize::try_from(partition).unwrap_or(usize::MAX);
                    let end = ends.get(&topic).and_then(|ends| ends.get(index));
                    end.copied().unwrap_or(END)
                }
            };
            places.push(Place {
                topic,
                partition,
                offset,
                sought: false,
            });
        }
        Ok(true)
    }
}

/// The offset that stands for a partition's end, as in Kafka's protocol, and for its beginning.
const END: i64 = -1;
const BEGINNING: i64 = -2;
