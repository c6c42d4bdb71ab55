//! Consumer instances: readers that live in the process between requests.
//!
//! An instance is one consumer of the store under a name in its group. Requests to one instance run
//! one after the other; deleting it interrupts a read that waits. An instance that nobody calls for
//! the configured time is closed by the reaper, a task that exists only while there are instances
//! and sleeps until the first of them can expire.

mod elsewhere;
mod handlers;
mod peers;
mod read;
mod request;
mod roll;
mod sharing;
mod taking;
mod v1;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use access::Principal;
use base::{Clock, UnixMillis};
use regex::Regex;
use streams::{
    Consumer, ConsumerConfig, EventStore, Isolation, OffsetReset, SeekTo, StreamsError, TopicName,
};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use elsewhere::located;
pub(crate) use handlers::{
    assign, assignments, commit, committed, create, delete, records, seek, seek_to_beginning,
    seek_to_end, subscribe, subscription, unsubscribe,
};
pub(crate) use peers::Peers;
pub use peers::PeersError;
pub(crate) use read::{Shape, encoded, readers, record_bytes};
pub(crate) use roll::Roll;
pub(crate) use v1::read as read_v1;

use self::sharing::Standing;
use self::taking::Resuming;
use crate::config::RestConfig;
use crate::error::RestError;
use crate::limits;
use crate::media::{ApiVersion, Embedded};

/// All consumer instances of the process.
pub(crate) struct Consumers {
    clock: Arc<dyn Clock>,
    idle_max: Duration,
    instances_max: usize,
    registry: parking_lot::Mutex<Registry>,
    /// Where other proxies on the same store find what this one has.
    roll: Option<Arc<Roll>>,
    shutdown: CancellationToken,
}

#[derive(Default)]
struct Registry {
    instances: HashMap<InstanceKey, Arc<Instance>>,
    /// Instances that are being made, so that the bound and the names hold meanwhile.
    making: HashSet<InstanceKey>,
    /// Instances that are on their way off the roll: their names are taken, their places are not.
    leaving: HashSet<InstanceKey>,
    reaping: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InstanceKey {
    pub group: String,
    pub instance: String,
}

/// What a new instance is asked to be.
#[derive(Clone, Debug)]
pub(crate) struct InstanceConfig {
    /// The version of the API that made it; calls of the other do not find it.
    pub version: ApiVersion,
    pub format: Embedded,
    pub reset: OffsetReset,
    pub auto_commit: bool,
    /// A read goes on until it has this many bytes or its time is over; none for the proxy's way.
    pub bytes_min: Option<usize>,
    /// The instance's own `consumer.request.timeout.ms`: no read of it waits longer.
    pub wait_max: Option<Duration>,
}

pub(crate) struct Instance {
    key: InstanceKey,
    /// Who made it, where callers are asked: nobody else uses it.
    owner: Option<Principal>,
    config: InstanceConfig,
    last_used_ms: AtomicI64,
    gone: CancellationToken,
    reader: Mutex<Reader>,
    /// What the roll says of it, where there is one.
    standing: Option<Standing>,
}

/// The instance's consumer and what it has been told.
struct Reader {
    /// None once the instance is closed.
    consumer: Option<Box<dyn Consumer>>,
    interest: Interest,
    /// Records were answered and not committed yet.
    uncommitted: bool,
    committed_at: UnixMillis,
    /// Where its client sent it since it read of a partition.
    sought: BTreeMap<(TopicName, i32), SeekTo>,
    /// Where to go on in partitions that come, when it was taken over.
    resuming: Resuming,
}

enum Interest {
    Nothing,
    Topics(Vec<TopicName>),
    Pattern {
        pattern: Regex,
        topics: Vec<TopicName>,
        looked_at: UnixMillis,
    },
    Partitions,
}

impl Consumers {
    pub fn new(config: &RestConfig, clock: Arc<dyn Clock>, roll: Option<Arc<Roll>>) -> Self {
        Consumers {
            clock,
            idle_max: config.consumer_instance_timeout.0,
            instances_max: config.consumer_instances_max,
            registry: parking_lot::Mutex::default(),
            roll,
            shutdown: CancellationToken::new(),
        }
    }

    /// Makes an instance that reads `store`; it is a member of its group once it subscribes.
    /// `settings` is what `config` was read from.
    pub async fn create(
        self: &Arc<Self>,
        store: &Arc<dyn EventStore>,
        owner: Option<Principal>,
        key: InstanceKey,
        config: InstanceConfig,
        settings: &[u8],
    ) -> Result<(), RestError> {
        {
            let mut registry = self.registry.lock();
            if registry.instances.contains_key(&key) || registry.is_reserved(&key) {
                return Err(RestError::InstanceExists(key.instance));
            }
            if registry.instances.len() + registry.making.len() >= self.instances_max {
                return Err(RestError::TooManyInstances(self.instances_max));
            }
            registry.making.insert(key.clone());
        }
        // Takes the name back when the request ends before the instance stands.
        let name = Reserved {
            consumers: self,
            key,
        };
        let consumer = store
            .consumer(self.consumer_config(&name.key, &config))
            .await?;
        let standing = self
            .claim(owner.as_ref(), &name.key, config.version, settings)
            .await?;
        let now = self.clock.now();
        self.insert(Instance {
            key: name.key.clone(),
            owner,
            config,
            last_used_ms: AtomicI64::new(now.0),
            gone: self.shutdown.child_token(),
            reader: Mutex::new(Reader {
                consumer: Some(consumer),
                interest: Interest::Nothing,
                uncommitted: false,
                committed_at: now,
                sought: BTreeMap::new(),
                resuming: Resuming::default(),
            }),
            standing,
        });
        Ok(())
    }

    fn consumer_config(&self, key: &InstanceKey, config: &InstanceConfig) -> ConsumerConfig {
        let session_max = match self.roll {
            Some(_) => SHARED_SESSION_MAX,
            None => SESSION_MAX,
        };
        ConsumerConfig {
            group: Some(key.group.clone()),
            client_id: key.instance.clone(),
            auto_offset_reset: config.reset,
            session_timeout: self.idle_max.clamp(SESSION_MIN, session_max),
            isolation: Isolation::default(),
            reads: true,
        }
    }

    fn insert(self: &Arc<Self>, instance: Instance) {
        let mut registry = self.registry.lock();
        let key = instance.key.clone();
        // Counted once at any moment, so that the last place is not refused.
        registry.making.remove(&key);
        registry.instances.insert(key, Arc::new(instance));
        gauge(&registry);
        if !std::mem::replace(&mut registry.reaping, true) {
            tokio::spawn(reap(Arc::downgrade(self), self.shutdown.clone()));
        }
    }

    /// Finds an instance and keeps it alive for another idle time.
    /// Somebody else's is not there.
    pub fn find(
        &self,
        caller: Option<&Principal>,
        group: &str,
        instance: &str,
    ) -> Result<Arc<Instance>, RestError> {
        let key = InstanceKey {
            group: group.to_owned(),
            instance: instance.to_owned(),
        };
        match self.registry.lock().instances.get(&key) {
            Some(instance) if instance.owner.as_ref() == caller => {
                instance.touch(self.clock.now());
                Ok(instance.clone())
            }
            _ => Err(not_found(&key)),
        }
    }

    pub async fn delete(&self, found: &Instance) -> Result<(), RestError> {
        let key = found.key.clone();
        let found = {
            let mut registry = self.registry.lock();
            let found = registry.instances.remove(&key);
            gauge(&registry);
            found.map(|instance| (instance, self.leaving(&mut registry, [&key])))
        };
        match found {
            Some((instance, _leaving)) => {
                instance.close().await;
                self.strike(&[key]).await;
                Ok(())
            }
            None => Err(not_found(&key)),
        }
    }

    /// Has nobody take instances for lost that are on their way off the roll.
    fn leaving<'k>(
        &self,
        registry: &mut Registry,
        keys: impl IntoIterator<Item = &'k InstanceKey>,
    ) -> Vec<Reserved<'_>> {
        if self.roll.is_none() {
            return Vec::new();
        }
        let reserved = keys.into_iter().map(|key| {
            registry.leaving.insert(key.clone());
            Reserved {
                consumers: self,
                key: key.clone(),
            }
        });
        reserved.collect()
    }

    /// Closes what has been idle for too long at `now`; answers how many that were.
    pub async fn expire(&self, now: UnixMillis) -> usize {
        let (expired, _leaving) = {
            let mut registry = self.registry.lock();
            let idle: Vec<InstanceKey> = registry
                .instances
                .values()
                // Whoever holds the reader is using the instance, however long its read lasts.
                .filter(|instance| instance.idle(now) >= self.idle_max)
                .filter(|instance| instance.reader.try_lock().is_ok())
                .map(|instance| instance.key.clone())
                .collect();
            let expired: Vec<Arc<Instance>> = idle
                .iter()
                .filter_map(|key| registry.instances.remove(key))
                .collect();
            gauge(&registry);
            let leaving = self.leaving(&mut registry, &idle);
            (expired, leaving)
        };
        let count = expired.len();
        let keys: Vec<InstanceKey> = expired.iter().map(|it| it.key.clone()).collect();
        close_all(expired, true).await;
        self.strike(&keys).await;
        count
    }

    pub fn count(&self) -> usize {
        self.registry.lock().instances.len()
    }

    /// Closes every instance and ends the reaper. What is on the roll stays there: another proxy
    /// goes on with it.
    pub async fn close(&self) {
        self.shutdown.cancel();
        let all: Vec<Arc<Instance>> = self
            .registry
            .lock()
            .instances
            .drain()
            .map(|(_, instance)| instance)
            .collect();
        if self.roll.is_some() {
            for instance in &all {
                let mut reader = instance.reader.lock().await;
                if let Err(error) = self.note(instance, &mut reader).await {
                    let error = base::report(&error);
                    tracing::warn!(error, "where a consumer instance was is not on the roll");
                }
            }
        }
        close_all(all, false).await;
        if let Some(roll) = &self.roll {
            roll.close();
        }
    }

    /// How long until the first instance can expire; none when there is no instance, and then the
    /// reaper is over.
    fn next_expiry(&self, now: UnixMillis) -> Option<Duration> {
        let mut registry = self.registry.lock();
        let longest_idle = registry
            .instances
            .values()
            .map(|instance| instance.idle(now))
            .max();
        registry.reaping = longest_idle.is_some();
        longest_idle.map(|idle| self.idle_max.saturating_sub(idle))
    }
}

impl Instance {
    fn touch(&self, now: UnixMillis) {
        self.last_used_ms.fetch_max(now.0, Ordering::Relaxed);
    }

    fn idle(&self, now: UnixMillis) -> Duration {
        now.since(UnixMillis(self.last_used_ms.load(Ordering::Relaxed)))
    }

    /// Waits for the instance's turn; answers 40403 when it was closed meanwhile.
    async fn reader(&self) -> Result<MutexGuard<'_, Reader>, RestError> {
        let reader = self.reader.lock().await;
        if reader.consumer.is_none() {
            Err(not_found(&self.key))
        } else {
            Ok(reader)
        }
    }

    async fn close(&self) {
        self.gone.cancel();
        let mut reader = self.reader.lock().await;
        let uncommitted = std::mem::take(&mut reader.uncommitted);
        let Some(mut consumer) = reader.consumer.take() else {
            return;
        };
        if self.config.auto_commit
            && uncommitted
            && let Err(error) = consumer.commit(None).await
        {
            let InstanceKey { group, instance } = &self.key;
            let error = base::report(&error);
            tracing::warn!(
                group,
                instance,
                error,
                "the last offsets were not committed"
            );
        }
        if let Err(error) = consumer.close().await {
            tracing::warn!(
                error = base::report(&error),
                "a consumer did not leave its group"
            );
        }
    }
}

impl Reader {
    /// Reads something else from now on.
    fn begin(&mut self, interest: Interest) {
        self.interest = interest;
        self.sought.clear();
        self.resuming = Resuming::default();
    }

    /// Moves where it is in a partition.
    async fn seek(
        &mut self,
        topic: TopicName,
        partition: i32,
        to: SeekTo,
    ) -> Result<(), StreamsError> {
        self.consumer()?.seek(&topic, partition, to).await?;
        self.sought.insert((topic, partition), to);
        Ok(())
    }

    fn consumer(&mut self) -> Result<&mut Box<dyn Consumer>, StreamsError> {
        // Instance::reader answers only readers that have one.
        self.consumer.as_mut().ok_or(StreamsError::Closed)
    }
}

/// Closes instances side by side, so that what they commit shares a sync.
async fn close_all(instances: Vec<Arc<Instance>>, are_idle: bool) {
    let mut closing = JoinSet::new();
    for instance in instances {
        if closing.len() >= limits::CLOSED_AT_ONCE_MAX {
            closing.join_next().await;
        }
        closing.spawn(async move {
            let InstanceKey {
                group,
                instance: name,
            } = &instance.key;
            if are_idle {
                tracing::info!(group, instance = name, "closed an idle consumer instance");
            }
            instance.close().await;
        });
    }
    closing.join_all().await;
}

impl Registry {
    fn is_reserved(&self, key: &InstanceKey) -> bool {
        self.making.contains(key) || self.leaving.contains(key)
    }
}

/// A name that nobody else gets meanwhile.
struct Reserved<'a> {
    consumers: &'a Consumers,
    key: InstanceKey,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut registry = self.consumers.registry.lock();
        registry.making.remove(&self.key);
        registry.leaving.remove(&self.key);
    }
}

async fn reap(consumers: Weak<Consumers>, shutdown: CancellationToken) {
    loop {
        let Some(wait) = consumers.upgrade().and_then(|consumers| {
            let now = consumers.clock.now();
            consumers.next_expiry(now)
        }) else {
            return;
        };
        // An instance in use can be past its time; it is looked at again soon.
        let wait = wait.max(REAP_INTERVAL_MIN);
        if shutdown
            .run_until_cancelled(tokio::time::sleep(wait))
            .await
            .is_none()
        {
            return;
        }
        let Some(consumers) = consumers.upgrade() else {
            return;
        };
        consumers.expire(consumers.clock.now()).await;
    }
}

fn not_found(key: &InstanceKey) -> RestError {
    RestError::InstanceNotFound {
        group: key.group.chars().take(limits::NAME_BYTES_MAX).collect(),
        instance: key.instance.chars().take(limits::NAME_BYTES_MAX).collect(),
    }
}

fn gauge(registry: &Registry) {
    // Far below 2^52, so exact.
    metrics::gauge!("thalweg_rest_consumer_instances").set(registry.instances.len() as f64);
}

/// The reaper's shortest sleep: an expired instance gives its partitions back within a second.
const REAP_INTERVAL_MIN: Duration = Duration::from_millis(200);

/// A member that the process forgets is gone from its group after the instance's idle time, within
/// what coordinators take. While the process lives the store's consumer keeps the session up.
const SESSION_MIN: Duration = Duration::from_secs(6);
const SESSION_MAX: Duration = Duration::from_secs(1_800);

/// Where another proxy may take a member's place, it must not wait for long until the group gives
/// it the partitions.
const SHARED_SESSION_MAX: Duration = Duration::from_secs(10);
