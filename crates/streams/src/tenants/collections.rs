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

use access::{Access, Collection, OfTopic, TENANT_HEADERS, Tenant};
use base::{TenantId, UnixMillis};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use crate::batch::{self, BatchHeader};
use crate::decode::BatchRecords;
use crate::error::StreamsError;
use crate::event_store::ProducerSequence;
use crate::limits::PRODUCERS_PER_PARTITION_MAX;
use crate::partition::{Append, Partition};
use crate::record::Record;
use crate::store::Streams;
use crate::topic::TopicName;
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
}

impl Streams {
    /// Has batches of the tenants of `access` go where those have their records.
    pub fn follow_tenants(&self, access: &Arc<Access>) {
        self.collections().follow(access);
    }

    /// Appends a batch for a partition where the tenant whose topic it is has its records; `append`
    /// is [`Partition::append`] or one like it. `Switching` asks to wait for
    /// [`Streams::tenant_opened`].
    pub(crate) fn append_at_home(
        &self,
        partition: &Arc<Partition>,
        batch: Bytes,
        append: impl FnOnce(&Arc<Partition>, Bytes) -> Result<Append, StreamsError>,
    ) -> Result<Append, StreamsError> {
        let Some(access) = self.collections().access() else {
            return append(partition, batch);
        };
        let snapshot = access.snapshot();
        let Some(OfTopic::Tenant(name)) = snapshot.owner_of_topic(partition.topic().wire_name())
        else {
            return append(partition, batch);
        };
        let Some(tenant) = snapshot.tenants().get(name) else {
            return append(partition, batch);
        };
        let home = self.collections().home(name, tenant);
        let gate = home.gate.read();
        if gate.is_held {
            return Err(StreamsError::Switching(name.clone()));
        }
        let header = BatchHeader::read(&batch)?;
        let (place, batch) = match &gate.collection {
            None => (Arc::clone(partition), batch),
            Some(collection) => {
                let place = self.shared_place(partition, name, collection)?;
                (place, named(&batch, &header, name)?)
            }
        };
        self.bring_sequence(
            &home,
            (partition, &place),
            name,
            &header,
            snapshot.collections(),
        );
        let appended = append(&place, batch);
        drop(gate);
        appended
    }

    /// Refuses what can only be stored in a tenant's own topic while its records go elsewhere: a
    /// transaction, and what is stored once by a key.
    pub(crate) fn check_own_home(&self, topic: &TopicName) -> Result<(), StreamsError> {
        let Some(access) = self.collections().access() else {
            return Ok(());
        };
        let snapshot = access.snapshot();
        let Some(OfTopic::Tenant(name)) = snapshot.owner_of_topic(topic.wire_name()) else {
            return Ok(());
        };
        let Some(tenant) = snapshot.tenants().get(name) else {
            return Ok(());
        };
        let home = self.collections().home(name, tenant);
        let gate = home.gate.read();
        match (gate.is_held, &gate.collection) {
            (true, _) => Err(StreamsError::Switching(name.clone())),
            (false, None) => Ok(()),
            (false, Some(_)) => Err(StreamsError::Unsupported(
                "a transaction, or storing once by a key, on a tenant's own topic while the tenant \
                 is in a collection (write to the shared topic itself)",
            )),
        }
    }

    /// Waits until batches of a tenant may be let in again; creates shared topics that are missing.
    pub(crate) async fn tenant_opened(&self, name: &TenantId, topic: &TopicName) {
        let Some(access) = self.collections().access() else {
            return;
        };
        let snapshot = access.snapshot();
        let Some(tenant) = snapshot.tenants().get(name) else {
            return;
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
        } else if let Some(collection) = collection
            && let Some(shared) = shared_name(topic, name.as_str(), &collection)
            && let Err(error) = self.topic_or_create(&shared).await
        {
            tracing::warn!(topic = %shared, error = base::report(&error), "a shared topic is missing");
            tokio::time::sleep(OPENED_WAIT).await;
        }
    }

    /// The partition of the shared topic that a partition of an own one goes to.
    fn shared_place(
        &self,
        own: &Arc<Partition>,
        name: &TenantId,
        collection: &Collection,
    ) -> Result<Arc<Partition>, StreamsError> {
        let place = shared_name(own.topic(), name.as_str(), collection);
        let topic = place.and_then(|place| self.topic_by_name(&place));
        let place = topic.and_then(|topic| place_in(&topic, name, own.index()));
        place.ok_or_else(|| StreamsError::Switching(name.clone()))
    }

    /// Has the sequence of the batch's producer go on where the batch goes to.
    fn bring_sequence<'c>(
        &self,
        home: &Home,
        (own, place): (&Arc<Partition>, &Arc<Partition>),
        name: &TenantId,
        header: &BatchHeader,
        collections: impl Iterator<Item = &'c Collection>,
    ) {
        if header.producer_id < 0 {
            return;
        }
        let key = (own.number(), header.producer_id);
        let mut adopted = home.adopted.lock();
        if adopted.len() >= PRODUCERS_PER_PARTITION_MAX {
            adopted.clear();
        }
        if !adopted.insert(key) {
            return;
        }
        drop(adopted);
        let shared = collections.filter_map(|of| self.shared_place(own, name, of).ok());
        for other in shared.chain([Arc::clone(own)]) {
            if !Arc::ptr_eq(&other, place)
                && let Some(producer) = other.producer(header.producer_id)
            {
                place.adopt(header.producer_id, producer);
            }
        }
    }
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

/// The shared topic in the place of a tenant's own; none for a name without the tenant's part.
pub(super) fn shared_name(own: &TopicName, part: &str, shared: &Collection) -> Option<TopicName> {
    let part = format!(".{part}.");
    let (before, event) = own.wire_name().split_once(&part)?;
    format!("{before}.{shared}.{event}").parse().ok()
}

/// The batch with a header in each record that names the tenant; the same where each has one.
fn named(batch: &Bytes, header: &BatchHeader, tenant: &TenantId) -> Result<Bytes, StreamsError> {
    let records: Result<Vec<_>, StreamsError> = BatchRecords::of(batch)?.collect();
    let mut records = records?;
    let is_named = |headers: &[(String, Option<Bytes>)]| {
        let mut names = headers.iter().map(|(name, _)| name.as_str());
        names.any(|name| TENANT_HEADERS.contains(&name))
    };
    if records.iter().all(|record| is_named(&record.headers)) {
        return Ok(batch.clone());
    }
    let value = Bytes::copy_from_slice(tenant.as_str().as_bytes());
    for record in &mut records {
        if !is_named(&record.headers) {
            record.headers.push((OURS.to_owned(), Some(value.clone())));
        }
    }
    let records: Vec<Record> = records
        .into_iter()
        .map(|record| Record {
            key: record.key,
            value: record.value,
            headers: record.headers,
            timestamp: Some(record.timestamp),
        })
        .collect();
    let sequence = (header.producer_id >= 0).then_some(ProducerSequence {
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        first_sequence: header.base_sequence,
    });
    batch::build(&records, UnixMillis(header.max_timestamp), sequence)
}

/// The header that is added where there is none.
const OURS: &str = "thalweg.tenant";
/// How long a batch waits at once for a switch.
const OPENED_WAIT: Duration = Duration::from_millis(200);
