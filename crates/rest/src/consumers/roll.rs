//! The roll of consumer instances: which proxy of several on one store has which.
//!
//! It is a compacted topic, [`TOPIC`], that every proxy reads and each writes its own instances to:
//! the key is `["group","instance"]`, the value an [`Entry`], and none where an instance is gone. Who
//! owns what follows from the order of the records alone, so all proxies see the same:
//!
//! - an entry of a name that is not on the roll makes an instance; one with another `life` than the
//!   listed one is nothing (its sender lost the name to somebody else);
//! - a higher `term` gives the instance to its sender; of two with the same term the first counts;
//! - with the same term, only the owner's entries change anything.
//!
//! An owner that sees an entry that is nothing writes its own again, since compaction keeps the last
//! one whatever it says. Entries that nobody renewed for one and a half idle times belong to a proxy
//! that is gone, and whoever notices takes them off.
//!
//! Only a store that other processes work on has a roll. Left out: where records go that were
//! answered but not committed; the positions in an entry are those of some read before.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{Clock, UnixMillis};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use streams::{
    ConsumedRecord, Consumer, ConsumerConfig, Durability, EventStore, Isolation, ProduceBatch,
    Record, StreamsError, TopicConfig, TopicName, TopicSpec,
};
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Consumers, InstanceKey};
use crate::error::RestError;
use crate::limits;

/// The roll as this proxy has read it.
pub(crate) struct Roll {
    store: Arc<dyn EventStore>,
    clock: Arc<dyn Clock>,
    /// This proxy, and where the others reach it.
    me: Uuid,
    address: String,
    idle_max: Duration,
    listed: parking_lot::Mutex<HashMap<InstanceKey, Listed>>,
    /// The offset up to which the topic was read.
    read_until: watch::Sender<i64>,
    begun: OnceCell<()>,
    /// Instances are taken over one at a time.
    pub(super) taking: tokio::sync::Mutex<()>,
    shutdown: CancellationToken,
}

struct Listed {
    entry: Entry,
    /// When it was read here; other proxies' clocks do not count.
    read_at: UnixMillis,
}

/// An instance on the roll.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub version: u8,
    /// Tells it from earlier and later ones of its name.
    pub life: Uuid,
    /// Grows with every owner.
    pub term: u64,
    pub owner: Uuid,
    /// Where the owner is reached.
    pub address: String,
    /// Who made it, where callers are asked.
    pub principal: Option<String>,
    /// The version of the API that made it, and the body of that call.
    pub api: u8,
    pub settings: String,
    /// Which records it is shown, also where the call left that to its proxy.
    #[serde(default)]
    pub isolation: Isolation,
    pub reads: Reads,
    pub places: Vec<Place>,
}

/// What an instance reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reads {
    #[default]
    Nothing,
    Topics(Vec<TopicName>),
    Pattern(String),
    Partitions(Vec<(TopicName, i32)>),
}

/// Where an instance goes on in a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub topic: TopicName,
    pub partition: i32,
    /// The next offset, -1 for the end and -2 for the beginning, as in Kafka's own protocol.
    pub offset: i64,
    /// Whether its client sent it there, and it has not read since: then commits do not count.
    pub sought: bool,
}

/// What a record did to the roll, as far as somebody has to act.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    Nothing,
    /// An instance of this proxy is another's now, or gone.
    Lost(InstanceKey, Uuid),
    /// The record changed nothing and stands behind the one that counts.
    Overwritten(InstanceKey),
}

impl Roll {
    pub(crate) fn new(
        store: Arc<dyn EventStore>,
        clock: Arc<dyn Clock>,
        address: String,
        idle_max: Duration,
    ) -> Arc<Self> {
        Arc::new(Roll {
            store,
            clock,
            me: Uuid::new_v4(),
            address,
            idle_max,
            listed: parking_lot::Mutex::default(),
            read_until: watch::Sender::new(0),
            begun: OnceCell::new(),
            taking: tokio::sync::Mutex::default(),
            shutdown: CancellationToken::new(),
        })
    }

    /// This proxy's name among the others.
    pub(crate) fn me(&self) -> Uuid {
        self.me
    }

    /// Makes the entry one of this proxy.
    pub(crate) fn owned(&self, entry: Entry) -> Entry {
        Entry {
            owner: self.me,
            address: self.address.clone(),
            ..entry
        }
    }

    /// Ends the reading; what is on the roll stays there for the other proxies.
    pub(crate) fn close(&self) {
        self.shutdown.cancel();
    }

    /// Begins to read the roll if there is one, so that what others left behind is taken off.
    pub(crate) async fn begin_if_there(self: &Arc<Self>, consumers: &Weak<Consumers>) {
        let Ok(name) = name() else { return };
        if self.store.topic(&name).await.is_ok()
            && let Err(error) = self.begin(consumers).await
        {
            let error = base::report(&error);
            tracing::warn!(error, "the roll of consumer instances is not read yet");
        }
    }

    /// Makes the topic and begins to read it, once; when this returns all is read.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        consumers: &Weak<Consumers>,
    ) -> Result<(), RestError> {
        let begun = self.begun.get_or_try_init(async || {
            let name = name()?;
            let mut spec = TopicSpec::of(name.clone()).with_partitions(1);
            spec.config =
                TopicConfig::of([("cleanup.policy", "compact")]).map_err(StreamsError::from)?;
            spec.durability = Some(Durability::Os);
            match self.store.create_topic(spec).await {
                Ok(_) | Err(StreamsError::TopicExists(_)) => {}
                Err(error) => return Err(error),
            }
            let config = ConsumerConfig::alone("thalweg.roll");
            let mut reader = self.store.consumer(config).await?;
            reader.assign(vec![(name, 0)]).await?;
            tokio::spawn(read_on(
                Arc::downgrade(self),
                consumers.clone(),
                reader,
                self.shutdown.clone(),
            ));
            Ok(())
        });
        begun.await?;
        self.catch_up().await
    }

    /// Returns when everything is read that was on the roll when this was called.
    pub(crate) async fn catch_up(&self) -> Result<(), RestError> {
        let info = self.store.topic(&name()?).await?;
        let end = info.partition_offsets.first().map_or(0, |range| range.end);
        let read = tokio::time::timeout(limits::ROLL_LOOK, self.read_to(end)).await;
        if let Ok(outcome) = read {
            return outcome;
        }
        // The last records may be compacted away, and then nobody reads up to their offsets.
        let mark = Record::of_value(self.me.to_string()).with_key(MARK);
        let offset = self.append(vec![mark]).await?;
        self.read_to(offset.saturating_add(1)).await
    }

    /// The instance of this name, as far as the roll is read.
    pub(crate) fn entry(&self, key: &InstanceKey) -> Option<Entry> {
        self.listed.lock().get(key).map(|it| it.entry.clone())
    }

    /// Puts an entry on the roll; durable when this returns.
    pub(crate) async fn put(&self, key: &InstanceKey, entry: &Entry) -> Result<i64, RestError> {
        let value = serde_json::to_vec(entry).unwrap_or_default();
        self.append(vec![Record::of_value(value).with_key(written(key))])
            .await
    }

    /// Puts many entries on the roll; durable when this returns. Gives up with the first that fails.
    pub(crate) async fn put_all(&self, entries: &[(InstanceKey, Entry)]) -> Result<(), RestError> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        for (key, entry) in entries {
            let value = serde_json::to_vec(entry).unwrap_or_default();
            let is_full = bytes + value.len() > PUT_BYTES || records.len() == AT_ONCE;
            if is_full && !records.is_empty() {
                self.append(std::mem::take(&mut records)).await?;
                bytes = 0;
            }
            bytes += value.len();
            records.push(Record::of_value(value).with_key(written(key)));
        }
        match records.is_empty() {
            true => Ok(()),
            false => self.append(records).await.map(drop),
        }
    }

    /// Asks for an instance by its entry, and says whether it was given.
    pub(crate) async fn claim(&self, key: &InstanceKey, entry: &Entry) -> Result<bool, RestError> {
        let offset = self.put(key, entry).await?;
        self.read_to(offset.saturating_add(1)).await?;
        let found = self.entry(key);
        Ok(found
            .is_some_and(|it| (it.life, it.term, it.owner) == (entry.life, entry.term, self.me)))
    }

    /// Takes instances off the roll; answers the offset up to which that has to be read.
    pub(crate) async fn remove(&self, keys: &[InstanceKey]) -> Result<i64, RestError> {
        let mut end = 0;
        for part in keys.chunks(AT_ONCE) {
            let gone = part.iter().map(|key| Record {
                key: Some(written(key)),
                ..Record::default()
            });
            let first = self.append(gone.collect()).await?;
            end = first.saturating_add(i64::try_from(part.len()).unwrap_or(0));
        }
        Ok(end)
    }

    async fn append(&self, records: Vec<Record>) -> Result<i64, RestError> {
        let batch = ProduceBatch {
            topic: name()?,
            partition: 0,
            records,
            sequence: None,
        };
        Ok(self.store.produce(batch).await?.base_offset)
    }

    /// Returns when the roll is read up to an offset.
    pub(super) async fn read_to(&self, end: i64) -> Result<(), RestError> {
        let mut read_until = self.read_until.subscribe();
        let reached = read_until.wait_for(|read| *read >= end);
        match tokio::time::timeout(limits::ROLL_READ_MAX, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => {
                let late = "the roll of consumer instances could not be read in time";
                Err(StreamsError::Unavailable(late.to_owned()).into())
            }
        }
    }

    /// Takes in what was read.
    fn take(&self, records: Vec<ConsumedRecord>) -> Vec<Effect> {
        let now = self.clock.now();
        let mut listed = self.listed.lock();
        let mut effects = Vec::new();
        let mut end = None;
        for record in records {
            end = Some(record.offset.saturating_add(1));
            let Some(key) = record.key.as_ref().and_then(read_key) else {
                continue;
            };
            effects.push(apply(&mut listed, now, self.me, key, record.value.as_ref()));
        }
        drop(listed);
        if let Some(end) = end {
            self.read_until.send_replace(end);
        }
        effects
    }

    /// Instances that nobody has renewed for too long, of this proxy those only that are not here.
    fn orphans(&self, consumers: Option<&Consumers>) -> Vec<InstanceKey> {
        let now = self.clock.now();
        let age_max = self.idle_max + self.idle_max / 2;
        let listed = self.listed.lock();
        let old = listed
            .iter()
            .filter(|(_, it)| now.since(it.read_at) >= age_max);
        let old: Vec<_> = old
            .map(|(key, it)| (key.clone(), it.entry.owner == self.me))
            .collect();
        drop(listed);
        let is_here = |key: &InstanceKey| consumers.is_none_or(|consumers| consumers.holds(key));
        let orphans = old
            .into_iter()
            .filter(|(key, is_mine)| !is_mine || !is_here(key));
        orphans.map(|(key, _)| key).collect()
    }

    /// How long to wait for the next record before looking for orphans; for ever, about, while there
    /// is nothing to look at.
    fn pause(&self) -> Duration {
        match self.listed.lock().is_empty() {
            true => limits::READ_WAIT_MAX,
            false => (self.idle_max / 4).clamp(PAUSE_MIN, limits::READ_WAIT_MAX),
        }
    }
}

/// Reads the roll until the proxy closes.
async fn read_on(
    roll: Weak<Roll>,
    consumers: Weak<Consumers>,
    mut reader: Box<dyn Consumer>,
    shutdown: CancellationToken,
) {
    loop {
        let Some(pause) = roll.upgrade().map(|roll| roll.pause()) else {
            return;
        };
        let polled = reader.poll(pause, limits::READ_BYTES_DEFAULT);
        let Some(polled) = shutdown.run_until_cancelled(polled).await else {
            return;
        };
        let Some(roll) = roll.upgrade() else { return };
        let effects = match polled {
            Ok(records) => roll.take(records),
            Err(error) => {
                let error = base::report(&error);
                tracing::warn!(error, "the roll of consumer instances cannot be read");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let consumers = consumers.upgrade();
        if let Some(consumers) = &consumers {
            for effect in effects {
                match effect {
                    Effect::Nothing => {}
                    Effect::Lost(key, life) => consumers.lose(&key, life),
                    Effect::Overwritten(key) => consumers.renew(&key),
                }
            }
        }
        let orphans = roll.orphans(consumers.as_deref());
        if !orphans.is_empty() {
            let count = orphans.len();
            tracing::info!(count, "forgot consumer instances of proxies that are gone");
            if let Err(error) = roll.remove(&orphans).await {
                let error = base::report(&error);
                tracing::warn!(error, "consumer instances of proxies that are gone stay");
            }
        }
    }
}

fn apply(
    listed: &mut HashMap<InstanceKey, Listed>,
    now: UnixMillis,
    me: Uuid,
    key: InstanceKey,
    value: Option<&Bytes>,
) -> Effect {
    let Some(value) = value else {
        return match listed.remove(&key) {
            Some(gone) if gone.entry.owner == me => Effect::Lost(key, gone.entry.life),
            _ => Effect::Nothing,
        };
    };
    // What a newer version wrote, or somebody else, is left alone.
    let Ok(entry) = serde_json::from_slice::<Entry>(value) else {
        return Effect::Nothing;
    };
    let fresh = Listed {
        entry,
        read_at: now,
    };
    let Some(found) = listed.get_mut(&key) else {
        listed.insert(key, fresh);
        return Effect::Nothing;
    };
    let (old, new) = (&found.entry, &fresh.entry);
    let is_update = new.term == old.term && new.owner == old.owner;
    if new.life != old.life || !(is_update || new.term > old.term) {
        return match old.owner == me {
            true => Effect::Overwritten(key),
            false => Effect::Nothing,
        };
    }
    let lost = (old.owner == me && new.owner != me).then_some(old.life);
    *found = fresh;
    match lost {
        Some(life) => Effect::Lost(key, life),
        None => Effect::Nothing,
    }
}

/// Where each of an instance's partitions is, by name.
pub(super) fn by_partition(places: &[Place]) -> BTreeMap<(TopicName, i32), Place> {
    let of = |place: &Place| ((place.topic.clone(), place.partition), place.clone());
    places.iter().map(of).collect()
}

fn written(key: &InstanceKey) -> Bytes {
    serde_json::json!([key.group, key.instance])
        .to_string()
        .into()
}

fn read_key(bytes: &Bytes) -> Option<InstanceKey> {
    let (group, instance) = serde_json::from_slice(bytes).ok()?;
    Some(InstanceKey { group, instance })
}

fn name() -> Result<TopicName, StreamsError> {
    Ok(TOPIC.parse()?)
}

/// Where the roll is.
const TOPIC: &str = "__rest_instances";

/// The key of records that say nothing.
const MARK: &[u8] = b"mark";

/// The version of entries.
pub(crate) const VERSION: u8 = 1;

/// Records of one batch, and bytes of their values: it stays far below what a batch may hold.
const AT_ONCE: usize = 1_000;
const PUT_BYTES: usize = 256 << 10;

/// The shortest time between two looks for orphans.
const PAUSE_MIN: Duration = Duration::from_millis(250);

/// How long to wait before reading again after a failure.
const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const A: Uuid = Uuid::from_u128(1);
    const B: Uuid = Uuid::from_u128(2);

    fn entry(life: u128, term: u64, owner: Uuid) -> Entry {
        Entry {
            version: VERSION,
            life: Uuid::from_u128(life),
            term,
            owner,
            address: "http://127.0.0.1:1".to_owned(),
            principal: None,
            api: 2,
            settings: String::new(),
            isolation: Isolation::default(),
            reads: Reads::Topics(vec!["t".parse().unwrap()]),
            places: Vec::new(),
        }
    }

    /// Applies entries in order, as proxy A sees them; answers the last one's effect and the owner.
    fn after(entries: &[Option<Entry>]) -> (Effect, Option<Uuid>) {
        let (mut listed, mut effect) = (HashMap::new(), Effect::Nothing);
        let key = || InstanceKey {
            group: "g".to_owned(),
            instance: "i\0\"".to_owned(),
        };
        for entry in entries {
            let value = entry
                .as_ref()
                .map(|it| serde_json::to_vec(it).unwrap().into());
            let key = read_key(&written(&key())).unwrap();
            effect = apply(&mut listed, UnixMillis(0), A, key, value.as_ref());
        }
        (effect, listed.get(&key()).map(|it| it.entry.owner))
    }

    #[test]
    fn the_first_of_a_name_has_it_and_says_so_again() {
        let (effect, owner) = after(&[Some(entry(1, 1, A)), Some(entry(2, 1, B))]);
        assert!(matches!(effect, Effect::Overwritten(_)), "{effect:?}");
        assert_eq!(owner, Some(A));
        let (effect, owner) = after(&[Some(entry(1, 1, B)), Some(entry(2, 1, A))]);
        assert_eq!((effect, owner), (Effect::Nothing, Some(B)));
    }

    #[test]
    fn a_higher_term_takes_over_and_the_first_of_two_wins() {
        let taken = [Some(entry(1, 1, A)), Some(entry(1, 2, B))];
        let (effect, owner) = after(&taken);
        assert!(matches!(effect, Effect::Lost(..)), "{effect:?}");
        assert_eq!(owner, Some(B));
        let again = [taken[0].clone(), taken[1].clone(), Some(entry(1, 2, A))];
        assert_eq!(after(&again), (Effect::Nothing, Some(B)));
        let late = [taken[0].clone(), taken[1].clone(), Some(entry(1, 1, A))];
        assert_eq!(after(&late), (Effect::Nothing, Some(B)));
    }

    #[test]
    fn a_name_is_free_when_its_instance_is_gone() {
        let (effect, owner) = after(&[Some(entry(1, 3, A)), None]);
        assert!(matches!(effect, Effect::Lost(..)), "{effect:?}");
        assert_eq!(owner, None);
        let (_, owner) = after(&[Some(entry(1, 3, A)), None, Some(entry(2, 1, B))]);
        assert_eq!(owner, Some(B));
    }
}
