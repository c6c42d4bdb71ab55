//! Collections: the records of several tenants in topics that they share.
//!
//! A tenant's producers write to the tenant's own topic, `ENV.NAMESPACE.TENANT.EVENT`, whatever
//! holds its records. While the tenant is in a collection, such as `ALL`, batches are stored in
//! `ENV.NAMESPACE.ALL.EVENT` instead, each record with a header that names the tenant. All batches
//! of one partition of the own topic go to one partition of the shared one, so the order of a key's
//! records is kept.
//!
//! A switch from one home to another ([`super::switch`]) holds the tenant's batches back for a
//! moment; an idempotent producer's sequence goes on in the new home, so that a batch that is sent
//! again is stored once wherever it was stored first.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::{Access, Collection, OfTopic, Snapshot, Tenant};
use base::TenantId;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::Notify;

use super::named::{named, shared_id};
use super::names::around;
use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::event_store::TopicSpec;
use crate::limits::PRODUCERS_PER_PARTITION_MAX;
use crate::partition::{Ack, Append, Partition};
use crate::store::Streams;
use crate::topic::TopicName;
use crate::topic_config::{ConfigError, TopicConfig, TopicSettings};
use crate::topics::Topic;

/// Where the tenants of a store have their records.
#[derive(Default)]
pub(crate) struct Collections {
    access: OnceLock<Arc<Access>>,
    homes: RwLock<HashMap<TenantId, Arc<Home>>>,
}

/// Where a tenant's batches go.
pub(crate) struct Home {
    /// Held for reading while a batch gets its place, for writing by a switch.
    pub gate: RwLock<Gate>,
    /// Told when batches are let in again.
    pub opened: Notify,
    /// Partitions of own topics, by number, and producers whose sequence has come along.
    adopted: Mutex<HashSet<(u32, i64)>>,
}

/// The state of a tenant's gate.
pub(crate) struct Gate {
    /// The collection that the batches go to; the tenant's own topics when absent.
    pub collection: Option<Collection>,
    /// Whether batches have to wait.
    pub is_held: bool,
}

impl Collections {
    /// Follows the tenants of `access`; the first that is given counts.
    pub fn follow(&self, access: &Arc<Access>) {
        let _ = self.access.set(Arc::clone(access));
    }

    /// The tenants that are followed, when there are any.
    pub fn access(&self) -> Option<&Arc<Access>> {
        self.access.get().filter(|access| access.has_tenants())
    }

    /// Whether several tenants' records lie in a topic; they may as long as no tenants are followed.
    pub fn is_shared(&self, topic: &TopicName) -> bool {
        self.access.get().is_none_or(|access| {
            let snapshot = access.snapshot();
            let owner = snapshot.owner_of_topic(topic.wire_name());
            matches!(owner, Some(OfTopic::Shared(_)))
        })
    }

    /// Where a tenant's batches go, which is `tenant`'s to say as long as nobody asked before.
    pub fn home(&self, name: &TenantId, tenant: &Tenant) -> Arc<Home> {
        if let Some(home) = self.homes.read().get(name) {
            return Arc::clone(home);
        }
        let mut homes = self.homes.write();
        let home = homes.entry(name.clone()).or_insert_with(|| {
            Arc::new(Home {
                gate: RwLock::new(Gate {
                    collection: tenant.collection.clone(),
                    is_held: false,
                }),
                opened: Notify::new(),
                adopted: Mutex::default(),
            })
        });
        Arc::clone(home)
    }
}

impl Home {
    /// Has the producers' sequences looked for again, as the home is another one.
    pub fn forget_adopted(&self) {
        self.adopted.lock().clear();
    }

    /// Lets a batch pass while the answer is held: the gate is open, and leads to where the tenant
    /// is kept to have its records.
    fn enter(
        &self,
        access: &Access,
        name: &TenantId,
        tenant: &Tenant,
    ) -> Result<RwLockReadGuard<'_, Gate>, StreamsError> {
        let gate = self.gate.read();
        if gate.is_held {
            return Err(StreamsError::Switching(name.clone()));
        }
        if gate.collection != tenant.collection {
            // What the caller has seen may be old, or the tenant was removed and came back.
            drop(gate);
            self.follow(access, name);
            return Err(StreamsError::Switching(name.clone()));
        }
        Ok(gate)
    }

    /// Has the gate lead where the tenant is kept to have its records. Only a switch changes both,
    /// and holds the gate meanwhile; otherwise they differ for a tenant that was removed and came
    /// back.
    pub fn follow(&self, access: &Access, name: &TenantId) {
        let mut gate = self.gate.write();
        let snapshot = access.snapshot();
        let Some(tenant) = snapshot.tenants().get(name) else {
            return;
        };
        if !gate.is_held && gate.collection != tenant.collection {
            gate.collection.clone_from(&tenant.collection);
            self.forget_adopted();
        }
    }
}

impl Streams {
    /// Has batches of the tenants of `access` go where those have their records.
    pub fn follow_tenants(&self, access: &Arc<Access>) {
        self.collections().follow(access);
    }

    /// Appends a batch, which was checked or built here, for a partition where the tenant whose
    /// topic it is has its records. `Switching` asks to wait for [`Streams::tenant_opened`].
    pub(crate) fn append_at_home(
        &self,
        partition: &Arc<Partition>,
        batch: Bytes,
        ack: Ack,
    ) -> Result<Append, StreamsError> {
        let Some(access) = self.collections().access() else {
            return partition.append_built(batch, ack);
        };
        let snapshot = access.snapshot();
        let Some((name, tenant)) = owner_of(&snapshot, partition.topic()) else {
            return partition.append_built(batch, ack);
        };
        let home = self.collections().home(name, tenant);
        let gate = home.enter(access, name, tenant)?;
        let header = BatchHeader::read(&batch)?;
        let Some(collection) = &gate.collection else {
            self.bring_sequence(&home, (partition, partition), name, &header, &snapshot);
            return partition.append_built(batch, ack);
        };
        let place = self.shared_place(partition, name, collection)?;
        // What the client sent is measured, not what becomes of it.
        partition.check_size(&batch)?;
        let bytes_max = partition.settings().message_bytes_max;
        let bytes_ceiling = self.config().message_bytes_ceiling().max(bytes_max);
        let id = id_at(partition, &place, header.producer_id);
        let batch = named(&batch, &header, name, id, bytes_max)?;
        self.bring_sequence(&home, (partition, &place), name, &header, &snapshot);
        place.append_measured(batch, bytes_ceiling, ack)
    }

    /// The most bytes that a batch of so many may have where it is stored: where tenants are kept,
    /// its records may get headers.
    pub(crate) fn bytes_at_home(&self, bytes: u64) -> u64 {
        match self.collections().access() {
            Some(_) => bytes.saturating_mul(GROWTH_MAX),
            None => bytes,
        }
    }

    /// Refuses what can only be stored in a tenant's own topic while its records go elsewhere: a
    /// transaction, and what is stored once by a key.
    pub(crate) fn check_own_home(&self, topic: &TopicName) -> Result<(), StreamsError> {
        let Some(access) = self.collections().access() else {
            return Ok(());
        };
        let snapshot = access.snapshot();
        let Some((name, tenant)) = owner_of(&snapshot, topic) else {
            return Ok(());
        };
        let home = self.collections().home(name, tenant);
        match home.enter(access, name, tenant)?.collection {
            None => Ok(()),
            Some(_) => Err(StreamsError::Unsupported(
                "a transaction, or storing once by a key, on a tenant's own topic while the tenant \
                 is in a collection (write to the shared topic itself)",
            )),
        }
    }

    /// Waits until batches of a tenant may be let in again; creates a shared topic that is missing.
    ///
    /// # Errors
    /// That there can be no such topic now, or by this name ever; after a moment.
    pub(crate) async fn tenant_opened(
        &self,
        name: &TenantId,
        topic: &TopicName,
    ) -> Result<(), StreamsError> {
        let Some(access) = self.collections().access() else {
            return Ok(());
        };
        let snapshot = access.snapshot();
        let Some(tenant) = snapshot.tenants().get(name) else {
            return Ok(());
        };
        let home = self.collections().home(name, tenant);
        let opened = home.opened.notified();
        let mut opened = std::pin::pin!(opened);
        opened.as_mut().enable();
        let (is_held, collection) = {
            let gate = home.gate.read();
            (gate.is_held, gate.collection.clone())
        };
        if is_held {
            // A switch that broke off must not hold anybody for ever.
            let _ = tokio::time::timeout(OPENED_WAIT, opened).await;
            return Ok(());
        }
        let (Some(collection), Some(own)) = (collection, self.topic_by_name(topic)) else {
            return Ok(());
        };
        let created = self.shared_or_create(&own, name, &collection).await;
        if let Err(error) = &created {
            let error = base::report(error);
            tracing::warn!(own = %topic, %collection, error, "a shared topic is missing");
            // Whoever asks again at once is not let in sooner.
            tokio::time::sleep(OPENED_WAIT).await;
        }
        created.map(drop)
    }

    /// The shared topic in the place of a tenant's own, created whatever the policy when it is not
    /// there: with as many partitions as the own one, and not fewer than others get; and so that it
    /// keeps what the own one keeps.
    ///
    /// # Errors
    /// `KeepsLess` where it is there and keeps less; the store's.
    pub(super) async fn shared_or_create(
        &self,
        own: &Topic,
        name: &TenantId,
        collection: &Collection,
    ) -> Result<Arc<Topic>, StreamsError> {
        let shared = shared_name(own.name(), name, collection)?;
        let count = i32::try_from(own.partitions().len()).unwrap_or(i32::MAX);
        let count = count.max(self.config().creation_policy(&shared).partitions);
        let theirs = TopicConfig::default().settings(self.config(), &shared, own.durability());
        let spec = TopicSpec {
            config: keeping(&own.settings(), &theirs)?,
            ..TopicSpec::of(shared).with_partitions(count)
        };
        let topic = self.needed_or_create(spec).await?;
        match lost(&own.settings(), &topic.settings()) {
            None => Ok(topic),
            Some(setting) => Err(StreamsError::KeepsLess {
                shared: topic.name().clone(),
                own: own.name().clone(),
                setting,
            }),
        }
    }

    /// The partition of the shared topic that a partition of an own one goes to.
    fn shared_place(
        &self,
        own: &Partition,
        name: &TenantId,
        collection: &Collection,
    ) -> Result<Arc<Partition>, StreamsError> {
        let shared = shared_name(own.topic(), name, collection)?;
        let place = self.topic_by_name(&shared);
        let place = place.and_then(|topic| place_in(&topic, name, own.index()));
        place.ok_or_else(|| StreamsError::Switching(name.clone()))
    }

    /// Has the sequence go on, in the place that batches for an own partition go to, of the producer
    /// that writes this batch to that partition.
    fn bring_sequence(
        &self,
        home: &Home,
        (own, place): (&Arc<Partition>, &Arc<Partition>),
        name: &TenantId,
        header: &BatchHeader,
        snapshot: &Snapshot,
    ) {
        let producer_id = header.producer_id;
        if producer_id < 0 {
            return;
        }
        let mut adopted = home.adopted.lock();
        if adopted.len() >= PRODUCERS_PER_PARTITION_MAX {
            adopted.clear();
        }
        if !adopted.insert((own.number(), producer_id)) {
            return;
        }
        drop(adopted);
        let shared = snapshot.collections();
        let shared = shared.filter_map(|of| self.shared_place(own, name, of).ok());
        let others: Vec<Arc<Partition>> = shared.chain([Arc::clone(own)]).collect();
        for other in &others {
            if !Arc::ptr_eq(other, place)
                && let Some(producer) = other.producer(id_at(own, other, producer_id))
            {
                place.adopt(id_at(own, place, producer_id), producer);
            }
        }
        // Older versions stored batches in a shared place by the id that the producer itself has. What
        // it stored so may be another partition's: a sequence that begins has nothing to go on from,
        // and one that goes on anyway needs nothing.
        let id = id_at(own, place, producer_id);
        let goes_on = |at: &Partition, id| {
            let producer = at.producer(id);
            producer.filter(|producer| producer.goes_on_with(header))
        };
        if header.base_sequence == 0 || goes_on(place, id).is_some() {
            return;
        }
        let of_older = others.iter().filter(|other| !Arc::ptr_eq(other, own));
        for producer in of_older.filter_map(|other| goes_on(other, producer_id)) {
            place.adopt(id, producer);
        }
    }
}

/// The id that a producer of an own partition has in a place of its batches.
fn id_at(own: &Arc<Partition>, place: &Arc<Partition>, producer_id: i64) -> i64 {
    match producer_id < 0 || Arc::ptr_eq(own, place) {
        true => producer_id,
        false => shared_id(own.number(), producer_id),
    }
}

/// The tenant whose own topic it is.
fn owner_of<'s>(
    snapshot: &'s Snapshot,
    topic: &'s TopicName,
) -> Option<(&'s TenantId, &'s Tenant)> {
    match snapshot.owner_of_topic(topic.wire_name())? {
        OfTopic::Tenant(name) => snapshot.tenants().get_key_value(name),
        OfTopic::Shared(_) => None,
    }
}

/// What is to be set for a shared topic, so that it keeps what an own one keeps; `theirs` holds for
/// it else.
fn keeping(own: &TopicSettings, theirs: &TopicSettings) -> Result<TopicConfig, ConfigError> {
    let mut set = Vec::new();
    match (own.is_compacting, own.is_deleting) {
        (true, false) => set.push((CLEANUP_POLICY, "compact".to_owned())),
        (true, true) => set.push((CLEANUP_POLICY, "compact,delete".to_owned())),
        (false, _) => {}
    }
    match (own.retention, theirs.retention) {
        (Some(age), Some(default)) if age > default => {
            set.push((RETENTION, age.as_millis().to_string()));
        }
        (None, Some(_)) => set.push((RETENTION, "-1".to_owned())),
        _ => {}
    }
    TopicConfig::of(set.iter().map(|(name, value)| (*name, value.as_str())))
}

/// The setting by which a shared topic would lose what an own one keeps; none when it keeps all.
fn lost(own: &TopicSettings, shared: &TopicSettings) -> Option<&'static str> {
    // None is for ever.
    let is_less = |shared: Option<u128>, own: Option<u128>| {
        shared.is_some_and(|shared| own.is_none_or(|own| shared < own))
    };
    let age = |of: &TopicSettings| of.deletion_age().map(|age| age.as_millis());
    let bytes = |of: &TopicSettings| of.deletion_bytes().map(u128::from);
    if shared.is_compacting && !own.is_compacting {
        return Some(CLEANUP_POLICY);
    }
    if is_less(age(shared), age(own)) {
        return Some(RETENTION);
    }
    is_less(bytes(shared), bytes(own)).then_some(RETENTION_BYTES)
}

/// The partition of a shared topic that a tenant's own partition goes to.
pub(super) fn place_in(topic: &Arc<Topic>, name: &TenantId, index: i32) -> Option<Arc<Partition>> {
    let count = topic.partitions().len();
    // Tenants with one partition each spread over all of them.
    let first = name.as_str().bytes().fold(0_usize, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(usize::from(byte))
    });
    let index = usize::try_from(index).ok()?;
    let at = first.wrapping_add(index).checked_rem(count)?;
    topic.partitions().get(at).cloned()
}

/// The shared topic in the place of a tenant's own.
///
/// # Errors
/// That the name is not legal, being too long for example.
pub(super) fn shared_name(
    own: &TopicName,
    tenant: &TenantId,
    shared: &Collection,
) -> Result<TopicName, StreamsError> {
    let (before, behind) = around(own.wire_name(), tenant.as_str())
        .ok_or_else(|| StreamsError::UnknownTopic(own.clone()))?;
    Ok(format!("{before}{shared}{behind}").parse()?)
}

const CLEANUP_POLICY: &str = "cleanup.policy";
const RETENTION: &str = "retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";

/// How many times as large as it came a batch is taken to be once its records have headers.
const GROWTH_MAX: u64 = 4;
/// How long a batch waits at once for a switch.
const OPENED_WAIT: Duration = Duration::from_millis(200);
