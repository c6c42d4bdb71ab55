//! Bridges: connections to other MQTT servers that carry messages there and back.
//!
//! What goes out waits on a journal until the other server has acknowledged it ([`queue`]), so that
//! neither a lost connection nor a crash loses it. What comes in is acknowledged there when it is
//! stored here, and the other server keeps it while we are away. Quality 1 is kept both ways: at
//! least once. Messages that publishers acknowledge to themselves (QoS 0) go as they are.
//!
//! A journal that has failed costs its bridge alone, until the next start: publishers are not held for
//! it, and what would go out is dropped and counted. What was in it goes as far as it can be read.
//!
//! # Loops
//!
//! A message carries the user property [`PATH`] with the installations that it came through. One
//! that a bridge brings back to its installation is dropped and counted; one that went out once does
//! not go out again; one that came in by a bridge does not go out by the same one; and what we
//! publish there is not sent back to us (the option "no local"). In a ring of bridges a message
//! goes around once. Servers that drop user properties of MQTT 5.0 on the way can still make a loop.
//!
//! Bridges stand in the configuration, or are added at run time and kept in `bridges.json`.

mod config;
mod fit;
mod link;
mod properties;
mod queue;
mod sink;
mod suspect;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::Clock;
use bytes::Bytes;
use journal::{Durability, DurableWait, JournalError, RealDisk};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::bridge::queue::{Bounds, Offered, Parcel, Queue};
use crate::bridge::sink::Outlet;
use crate::config::{MqttConfig, StoreDurability};
use crate::limits::BRIDGES_MAX;
use crate::message::{Message, Qos};
use crate::server::{Server, SubscriptionId};
use crate::topic::TopicFilter;

pub use config::{BridgeConfig, BridgeTopic, Direction};

/// A failure of a bridge's settings or folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// Settings that cannot work; the caller's fault.
    #[error("bridge '{name}' cannot work: {problem}")]
    Invalid {
        /// The bridge.
        name: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// There is one of this name.
    #[error("there is a bridge '{0}' already: remove it first")]
    Exists(String),
    /// There is none of this name.
    #[error("there is no bridge '{0}': thalweg mqtt bridges list names them")]
    Unknown(String),
    /// As much waits for the other server as may; wait for [`Bridges::room`] and send again.
    #[error(
        "as much waits for bridge '{0}' as may: raise its queue_messages_max, or see why it is behind"
    )]
    Busy(String),
    /// It stands in the configuration.
    #[error("bridge '{0}' stands in the configuration (mqtt.bridges): remove it there")]
    Configured(String),
    /// As many as there may be.
    #[error("there are {BRIDGES_MAX} bridges already")]
    TooMany,
    /// The folder cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What was kept cannot be understood.
    #[error("{} cannot be understood", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The bridge's journal does not work.
    #[error("cannot open the journal of bridge '{name}'")]
    Journal {
        /// The bridge.
        name: String,
        /// Why.
        #[source]
        source: JournalError,
    },
}

/// How a bridge is.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct BridgeStatus {
    /// Its settings.
    pub config: BridgeConfig,
    /// Whether it stands in the configuration.
    pub configured: bool,
    /// Whether its journal has failed: until the next start it takes nothing, and what would go out
    /// is dropped.
    pub failed: bool,
    /// Whether the other server has taken it in.
    pub connected: bool,
    /// Why it is not connected, or what the other server refuses; empty when all is well.
    pub problem: String,
    /// Messages that wait for the other server.
    pub queued: u64,
    /// Bytes of these.
    pub queued_bytes: u64,
    /// Messages that the other server has acknowledged, or that were sent with QoS 0.
    pub sent_total: u64,
    /// Messages that came in and were published here.
    pub received_total: u64,
    /// Messages that found no room, were refused there, were set aside, or had expired.
    pub dropped_total: u64,
    /// Of these, messages over which the other server ended one connection after the other.
    pub set_aside_total: u64,
    /// Messages that had been here before.
    pub looped_total: u64,
    /// How often the other server has taken it in.
    pub connects_total: u64,
}

/// The bridges of one server.
pub struct Bridges {
    server: Server,
    dir: PathBuf,
    /// This installation in the paths of messages.
    id: Arc<str>,
    need: Durability,
    packet_bytes_max: u64,
    grace: std::time::Duration,
    clock: Arc<dyn Clock>,
    /// Whose files bridges may name that are added at run time.
    files: Vec<PathBuf>,
    running: Mutex<BTreeMap<String, Running>>,
    /// Held by a change from reading to writing.
    changing: tokio::sync::Mutex<()>,
}

struct Running {
    is_configured: bool,
    bridge: Arc<Bridge>,
    subscriptions: Vec<SubscriptionId>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What the parts of one bridge share.
struct Bridge {
    config: BridgeConfig,
    client_id: String,
    /// This installation.
    id: Arc<str>,
    queue: Queue,
    clock: Arc<dyn Clock>,
    packet_bytes_max: u64,
    is_connected: AtomicBool,
    problem: Mutex<String>,
    sent: AtomicU64,
    received: AtomicU64,
    refused: AtomicU64,
    set_aside: AtomicU64,
    looped: AtomicU64,
    connects: AtomicU64,
}

impl Bridges {
    /// Opens the bridges of `server`: those of its configuration, and those that were added and are
    /// kept in `dir`. Call it within a tokio runtime, before clients are served.
    ///
    /// # Errors
    /// [`BridgeError`].
    pub fn open(
        dir: &Path,
        server: Server,
        config: &MqttConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Bridges>, BridgeError> {
        let need = match config.durability {
            StoreDurability::Memory => Durability::Memory,
            StoreDurability::Os => Durability::Os,
            StoreDurability::Disk => Durability::Disk,
        };
        let bridges = Arc::new(Bridges {
            server,
            dir: dir.to_owned(),
            id: installation(dir)?,
            need,
            packet_bytes_max: config.packet_bytes_max.0,
            grace: config.slow_subscriber_grace.0,
            clock,
            files: config.bridge_files.clone(),
            running: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        });
        for bridge in &config.bridges {
            bridges.start(bridge.clone(), true)?;
        }
        for bridge in bridges.kept()? {
            bridges.start(bridge, false)?;
        }
        Ok(bridges)
    }

    /// This installation's name in the paths of messages ([`PATH`]).
    pub fn installation(&self) -> &str {
        &self.id
    }

    /// Whether a failed write or sync has stopped a bridge's journal until it is opened again.
    pub fn is_poisoned(&self) -> bool {
        let running = self.running.lock();
        let mut bridges = running.values().map(|running| &running.bridge);
        bridges.any(|bridge| bridge.queue.is_poisoned())
    }

    /// Every bridge, in the order of names.
    pub fn list(&self) -> Vec<BridgeStatus> {
        let running = self.running.lock();
        running.values().map(Running::status).collect()
    }

    /// Puts a message for the other server behind what waits for it, under the topic that it is to
    /// have there; its path begins here. The wait is for its durability.
    ///
    /// # Errors
    /// [`BridgeError::Unknown`]; [`BridgeError::Busy`], nothing was taken then; `Journal` when the
    /// bridge's journal does not work.
    pub fn send(
        &self,
        bridge: &str,
        message: &Message<'_>,
    ) -> Result<Option<DurableWait>, BridgeError> {
        let bridge = self.bridge(bridge)?;
        let name = || bridge.config.name.clone();
        if !bridge.queue.has_room() {
            return Err(BridgeError::Busy(name()));
        }
        let parcel = Parcel {
            qos: message.qos.min(Qos::AtLeastOnce),
            retain: message.retain_asked,
            expires: message.expires,
            topic: message.topic.to_owned(),
            properties: Bytes::copy_from_slice(message.properties.bytes()),
            payload: Bytes::copy_from_slice(message.payload),
        };
        match bridge.queue.offer(self.clock.now(), &parcel) {
            Ok(Offered::Taken(wait)) => Ok(wait),
            Ok(Offered::Full) => Err(BridgeError::Busy(name())),
            Err(source) => Err(BridgeError::Journal {
                name: name(),
                source,
            }),
        }
    }

    /// Resolves when sending by a bridge that was busy is worth another try, or when it is gone.
    pub async fn room(&self, bridge: &str) {
        let Ok(bridge) = self.bridge(bridge) else {
            return;
        };
        bridge.queue.wait_for_room().await;
    }

    /// Whether there is a bridge of this name.
    pub fn has(&self, bridge: &str) -> bool {
        self.running.lock().contains_key(bridge)
    }

    fn bridge(&self, name: &str) -> Result<Arc<Bridge>, BridgeError> {
        let running = self.running.lock();
        let found = running.get(name).map(|running| running.bridge.clone());
        found.ok_or_else(|| BridgeError::Unknown(name.chars().take(80).collect()))
    }

    /// Adds a bridge and keeps it.
    ///
    /// # Errors
    /// [`BridgeError`]; nothing was changed then.
    pub async fn add(&self, config: BridgeConfig) -> Result<BridgeStatus, BridgeError> {
        config.check_files(&self.files)?;
        let _alone = self.changing.lock().await;
        let name = config.name.clone();
        self.start(config, false)?;
        if let Err(error) = self.keep() {
            self.stop(&name).await;
            return Err(error);
        }
        let running = self.running.lock();
        let status = running.get(&name).map(Running::status);
        status.ok_or(BridgeError::Unknown(name))
    }

    /// Ends a bridge that was added; what waits for the other server is given up.
    ///
    /// # Errors
    /// [`BridgeError`].
    pub async fn remove(&self, name: &str) -> Result<(), BridgeError> {
        let _alone = self.changing.lock().await;
        match self.running.lock().get(name) {
            None => return Err(BridgeError::Unknown(name.chars().take(80).collect())),
            Some(running) if running.is_configured => {
                return Err(BridgeError::Configured(name.to_owned()));
            }
            Some(_) => {}
        }
        self.stop(name).await;
        self.keep()?;
        let path = self.dir.join(name);
        std::fs::remove_dir_all(&path).map_err(|source| BridgeError::File { path, source })
    }

    /// Ends all connections; what waits stays on the disk.
    pub async fn close(&self) {
        let names: Vec<String> = self.running.lock().keys().cloned().collect();
        for name in names {
            self.stop(&name).await;
        }
    }

    fn start(&self, config: BridgeConfig, is_configured: bool) -> Result<(), BridgeError> {
        config.check()?;
        let name = config.name.clone();
        {
            let running = self.running.lock();
            if running.contains_key(&name) {
                return Err(BridgeError::Exists(name));
            }
            if running.len() >= BRIDGES_MAX {
                return Err(BridgeError::TooMany);
            }
        }
        let bounds = Bounds {
            messages_max: config.queue_messages_max,
            bytes_max: config.queue_bytes_max.0,
            packet_bytes_max: self.packet_bytes_max,
            grace: self.grace,
        };
        let dir = self.dir.join(&name);
        let queue = Queue::open(Arc::new(RealDisk), &dir, bounds, self.need);
        let queue = queue.map_err(|source| BridgeError::Journal {
            name: name.clone(),
            source,
        })?;
        let bridge = Arc::new(Bridge::new(
            config,
            Arc::clone(&self.id),
            queue,
            Arc::clone(&self.clock),
            self.packet_bytes_max,
        ));
        let mut subscriptions = Vec::new();
        for topic in bridge.config.topics.iter().filter(|topic| topic.goes_out()) {
            // Checked with the settings.
            if let Ok(filter) = topic.local_filter().parse::<TopicFilter>() {
                let outlet = Arc::new(Outlet::new(Arc::clone(&bridge), topic.clone()));
                subscriptions.push(self.server.subscribe(filter, outlet));
            }
        }
        let stop = CancellationToken::new();
        let task = tokio::spawn(link::run(
            Arc::clone(&bridge),
            self.server.clone(),
            stop.clone(),
        ));
        let running = Running {
            is_configured,
            bridge,
            subscriptions,
            stop,
            task,
        };
        self.running.lock().insert(name, running);
        Ok(())
    }

    async fn stop(&self, name: &str) {
        let Some(running) = self.running.lock().remove(name) else {
            return;
        };
        for id in running.subscriptions {
            self.server.unsubscribe(id);
        }
        running.stop.cancel();
        if let Err(error) = running.task.await {
            tracing::error!(%error, "the link of a bridge failed");
        }
        let bridge = running.bridge;
        let closed = tokio::task::spawn_blocking(move || bridge.queue.close()).await;
        if let Err(error) = closed {
            tracing::error!(%error, "closing a bridge's journal failed");
        }
    }

    fn kept(&self) -> Result<Vec<BridgeConfig>, BridgeError> {
        let path = self.dir.join(KEPT_FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(BridgeError::File { path, source }),
        };
        let kept: Kept = serde_json::from_slice(&text)
            .map_err(|source| BridgeError::Unreadable { path, source })?;
        Ok(kept.bridges)
    }

    /// Writes those that were added: durable when this returns.
    fn keep(&self) -> Result<(), BridgeError> {
        let bridges = {
            let running = self.running.lock();
            let added = running.values().filter(|running| !running.is_configured);
            added.map(|running| running.bridge.config.clone()).collect()
        };
        let kept = Kept {
            version: 1,
            bridges,
        };
        let path = self.dir.join(KEPT_FILE);
        let text = serde_json::to_vec_pretty(&kept).map_err(|source| BridgeError::Unreadable {
            path: path.clone(),
            source,
        })?;
        write_whole(&self.dir, &path, &text).map_err(|source| BridgeError::File { path, source })
    }
}

impl Bridge {
    fn new(
        config: BridgeConfig,
        id: Arc<str>,
        queue: Queue,
        clock: Arc<dyn Clock>,
        packet_bytes_max: u64,
    ) -> Self {
        let client_id = config.client_id.clone();
        Bridge {
            client_id: client_id.unwrap_or_else(|| format!("thalweg-{id}-{}", config.name)),
            config,
            id,
            queue,
            clock,
            packet_bytes_max,
            is_connected: AtomicBool::new(false),
            problem: Mutex::new("not connected yet".to_owned()),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            set_aside: AtomicU64::new(0),
            looped: AtomicU64::new(0),
            connects: AtomicU64::new(0),
        }
    }
}

impl Running {
    fn status(&self) -> BridgeStatus {
        let bridge = &self.bridge;
        let (queued, queued_bytes) = bridge.queue.depth();
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let failed = bridge.queue.is_poisoned();
        BridgeStatus {
            config: bridge.config.clone(),
            configured: self.is_configured,
            failed,
            connected: bridge.is_connected.load(Ordering::Relaxed),
            problem: match failed {
                true => FAILED.to_owned(),
                false => bridge.problem.lock().clone(),
            },
            queued,
            queued_bytes,
            sent_total: total(&bridge.sent),
            received_total: total(&bridge.received),
            dropped_total: total(&bridge.refused)
                + total(&bridge.set_aside)
                + total(&bridge.queue.dropped),
            set_aside_total: total(&bridge.set_aside),
            looped_total: total(&bridge.looped),
            connects_total: total(&bridge.connects),
        }
    }
}

/// The bridges that were added, as `bridges.json` holds them.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    bridges: Vec<BridgeConfig>,
}

/// This installation's name in the paths of messages: made once, kept for ever.
fn installation(dir: &Path) -> Result<Arc<str>, BridgeError> {
    let path = dir.join(ID_FILE);
    let file = |source| BridgeError::File {
        path: path.clone(),
        source,
    };
    std::fs::create_dir_all(dir).map_err(file)?;
    match std::fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().into()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(file(error)),
    }
    let id = uuid::Uuid::new_v4().simple().to_string()[..ID_CHARS].to_owned();
    write_whole(dir, &path, id.as_bytes()).map_err(file)?;
    Ok(id.into())
}

/// Writes a file so that after a crash it is the old one or the new one.
fn write_whole(dir: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let fresh = path.with_extension("new");
    let mut file = std::fs::File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    std::fs::File::open(dir)?.sync_all()
}

/// What is told of a bridge whose journal has failed.
const FAILED: &str = "its journal has failed and takes nothing: look in the log for what the disk \
    said, mend that, and start anew";
/// The user property with the installations that a message came through, separated by commas.
pub const PATH: &str = "thalweg-path";
const KEPT_FILE: &str = "bridges.json";
/// No bridge can have this name.
const ID_FILE: &str = "installation.id";
/// Of a UUID's digits: enough that two installations do not meet.
const ID_CHARS: usize = 12;
