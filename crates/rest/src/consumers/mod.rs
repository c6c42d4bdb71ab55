//! Consumer instances: readers that live in the process between requests.
//!
//! An instance is one consumer of the store under a name in its group. Requests to one instance run
//! one after the other; deleting it interrupts a read that waits. An instance that nobody calls for
//! the configured time is closed by the reaper, a task that exists only while there are instances
//! and sleeps until the first of them can expire.

mod committing;
mod elsewhere;
mod handlers;
mod leaving;
mod patterns;
mod peers;
mod read;
mod request;
mod roll;
mod sharing;
mod taking;
mod tending;
mod unanswered;
mod v1;

#[cfg(test)]
mod tests;

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
use tokio::sync::{Mutex, MutexGuard, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) use elsewhere::located;
pub(crate) use handlers::{
    assign, assignments, commit, committed, create, delete, records, seek, seek_to_beginning,
    seek_to_end, subscribe, subscription, unsubscribe,
};
pub(crate) use peers::Peers;
pub use peers::PeersError;
pub(crate) use read::{Shape, encoded_beside, readers, record_bytes};
pub(crate) use roll::Roll;
pub(crate) use v1::read as read_v1;

use self::leaving::Reserved;
use self::sharing::Standing;
use self::taking::Resuming;
use self::unanswered::Taken;
use crate::config::RestConfig;
use crate::error::RestError;
use crate::limits;
use crate::media::{ApiVersion, Embedded};

/// All consumer instances of the process.
pub(crate) struct Consumers {
    clock: Arc<dyn Clock>,
    idle_max: Duration,
    instances_max: usize,
    /// Those of one caller; 0 is no bound.
    instances_of_caller_max: usize,
    registry: parking_lot::Mutex<Registry>,
    /// Where other proxies on the same store find what this one has.
    roll: Option<Arc<Roll>>,
    shutdown: CancellationToken,
}

#[derive(Default)]
struct Registry {
    instances: HashMap<InstanceKey, Arc<Instance>>,
    /// Instances that are being made and who makes them, so that the bounds and the names hold meanwhile.
    making: HashMap<InstanceKey, Option<Principal>>,
    /// Instances that are on their way off the roll: their names are taken, their places are not.
    leaving: HashSet<InstanceKey>,
    /// Lives of instances that are gone and still on the roll.
    ghosts: HashMap<InstanceKey, Uuid>,
    burying: bool,
    reaping: bool,
    tending: bool,
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
    /// Offsets that its client commits are the next ones, as Strimzi's bridge has them; else those
    /// of the last records that are done with.
    pub commits_next: bool,
    pub isolation: Isolation,
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
    /// Where to go on in partitions that come, when it was taken over or follows other topics.
    resuming: Resuming,
    taken: Taken,
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
            instances_of_caller_max: config.consumer_instances_max_per_caller,
            registry: parking_lot::Mutex::default(),
            roll,
            shutdown: CancellationToken::new(),
        }
    }

    /// Makes an instance that reads `store`; it is a member of its group once it subscribes.
    /// `settings` is what `config` was read from. An instance whose client does not wait for it any
    /// more goes at once.
    pub async fn create(
        self: &Arc<Self>,
        store: &Arc<dyn EventStore>,
        owner: Option<Principal>,
        key: InstanceKey,
        config: InstanceConfig,
        settings: &[u8],
    ) -> Result<(), RestError> {
        let name = {
            let mut registry = self.registry.lock();
            if registry.instances.contains_key(&key) || registry.is_reserved(&key) {
                return Err(RestError::InstanceExists(key.instance));
            }
            if registry.instances.len() + registry.making.len() >= self.instances_max {
                return Err(RestError::TooManyInstances(self.instances_max));
            }
            let most = self.instances_of_caller_max;
            if most > 0 && registry.count_of(owner.as_ref()) >= most {
                return Err(RestError::TooManyInstancesOfCaller(most));
            }
            Reserved::made(self, &mut registry, key, owner.clone())
        };
        let (tell, told) = oneshot::channel();
        let (consumers, store) = (Arc::clone(self), Arc::clone(store));
        let settings = settings.to_vec();
        tokio::spawn(async move {
            let made = consumers.make(&store, owner, name, config, &settings);
            if let Err(Ok(unwanted)) = tell.send(made.await) {
                // Whoever was faster has deleted it.
                let _ = consumers.delete(&unwanted).await;
            }
        });
        let made = told.await.unwrap_or(Err(StreamsError::Closed.into()));
        made.map(drop)
    }

    async fn make(
        self: &Arc<Self>,
        store: &Arc<dyn EventStore>,
        owner: Option<Principal>,
        name: Reserved,
        config: InstanceConfig,
        settings: &[u8],
    ) -> Result<Arc<Instance>, RestError> {
        let consumer = store
            .consumer(self.consumer_config(&name.key, &config))
            .await?;
        let standing = self
            .claim(owner.as_ref(), &name.key, &config, settings)
            .await?;
        let now = self.clock.now();
        let instance = Instance {
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
                taken: Taken::default(),
            }),
            standing,
        };
        Ok(self.insert(name, instance))
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
            isolation: config.isolation,
            reads: true,
        }
    }

    fn insert(self: &Arc<Self>, name: Reserved, instance: Instance) -> Arc<Instance> {
        let instance = Arc::new(instance);
        let mut registry = self.registry.lock();
        name.stands(&mut registry, Arc::clone(&instance));
        gauge(&registry);
        if !std::mem::replace(&mut registry.reaping, true) {
            tokio::spawn(reap(Arc::downgrade(self), self.shutdown.clone()));
        }
        // The embedded store's members keep up with their groups by themselves.
        if self.roll.is_some() && !std::mem::replace(&mut registry.tending, true) {
            tokio::spawn(tending::tend(Arc::downgrade(self), self.shutdown.clone()));
        }
        instance
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

    pub fn count(&self) -> usize {
        self.registry.lock().instances.len()
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

    /// Waits for the instance's turn; answers 40403 when it was closed meanwhile. The reader stands
    /// behind the last record that was answered.
    async fn reader(&self) -> Result<MutexGuard<'_, Reader>, RestError> {
        let mut reader = self.reader.lock().await;
        if reader.consumer.is_none() {
            return Err(not_found(&self.key));
        }
        reader.put_back().await?;
        Ok(reader)
    }

    async fn close(&self) {
        self.gone.cancel();
        let mut reader = self.reader.lock().await;
        reader.commit_last(self).await;
        let Some(consumer) = reader.consumer.take() else {
            return;
        };
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
        self.taken = Taken::default();
    }

    /// Moves where it is in a partition.
    async fn seek(
        &mut self,
        topic: TopicName,
        partition: i32,
        to: SeekTo,
    ) -> Result<(), StreamsError> {
        self.consumer()?.seek(&topic, partition, to).await?;
        self.taken.moved();
        self.sought.insert((topic, partition), to);
        Ok(())
    }

    fn consumer(&mut self) -> Result<&mut Box<dyn Consumer>, StreamsError> {
        // Instance::reader answers only readers that have one.
        self.consumer.as_mut().ok_or(StreamsError::Closed)
    }
}

impl Registry {
    /// How many instances a caller has, those that are being made included.
    fn count_of(&self, owner: Option<&Principal>) -> usize {
        let standing = self.instances.values().map(|of| of.owner.as_ref());
        let all = standing.chain(self.making.values().map(Option::as_ref));
        all.filter(|of| *of == owner).count()
    }

    fn is_reserved(&self, key: &InstanceKey) -> bool {
        self.making.contains_key(key) || self.leaving.contains(key)
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
