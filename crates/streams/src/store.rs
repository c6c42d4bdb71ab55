//! The store in this process: topics, partitions, groups' offsets and producer ids on one journal.
//!
//! Every change is one frame. A change takes its place in the journal and in memory under the
//! same lock, so that memory and journal agree on the order; who asked for it is answered when it
//! is on the disk. A topic can be seen a moment before it is durable; whatever is stored in it
//! lies behind it in the journal, so no crash keeps the one without the other.
//!
//! Locks are taken in this order: transactions, topics, offsets, producer ids, a share partition's, a
//! partition's state, the journal's own. The journal's callbacks take one of ours and none after it.

mod admin;
mod group_settings;
mod offsets;
mod producer_ids;
mod shares;
mod snapshot;
mod topics;

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};

use base::{Clock, UnixMillis};
use journal::{Disk, Done, Frame, Journal, JournalError, JournalOptions, RealDisk};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use uuid::Uuid;

use crate::config::StreamsConfig;
use crate::embedded::Embedded;
use crate::error::StreamsError;
use crate::event_store::EventStore;
use crate::frames::{Change, VERSION, version_of};
use crate::groups::Coordinator;
use crate::keeper::{self, Keeper};
use crate::ledger::GroupLedger;
use crate::limits::{PENDING_BYTES_MAX, RESERVE_BYTES};
use crate::observe::ToldTopics;
use crate::offsets::Offsets;
use crate::once::embedded::Keys;
use crate::partition::{Shared, storage};
use crate::recovery::{Recovery, Replay};
use crate::share::Shares;
use crate::telemetry::Telemetry;
use crate::tenants::{Census, Collections};
use crate::topics::Topics;
use crate::transactions::{self, Transactions};
use producer_ids::ProducerIds;
pub(crate) use shares::{ShareOffset, ShareRoom, Taken};

/// The store in this process.
pub struct Streams {
    config: StreamsConfig,
    clock: Arc<dyn Clock>,
    opened_at: UnixMillis,
    dir: PathBuf,
    cluster_id: String,
    shared: Arc<Shared>,
    topics: RwLock<Topics>,
    offsets: Arc<Mutex<Offsets>>,
    shares: Shares,
    producer_ids: Mutex<ProducerIds>,
    transactions: Transactions,
    /// Held while a block of producer ids is on its way to the disk.
    reserving: tokio::sync::Mutex<()>,
    groups: Arc<Coordinator>,
    keys: Keys,
    /// Where Kafka's clients connect to.
    listener: Mutex<Option<(String, u16)>>,
    told_topics: ToldTopics,
    /// Counts the changes of topics, for those who wait for one.
    topics_version: watch::Sender<u64>,
    reclaiming: Mutex<()>,
    snapshot_began: AtomicU64,
    snapshot_bytes: AtomicU64,
    moved_until: AtomicU64,
    collections: Collections,
    /// By the numbers of shared partitions.
    censuses: Mutex<HashMap<u32, Arc<Mutex<Census>>>>,
}

/// Resolves when a change survives the machine.
#[derive(Debug)]
pub struct DurableWait(Option<journal::DurableWait>);

impl Streams {
    /// Opens or creates the store in `dir`. Errors: `Storage` (another process has it open, the
    /// disk refuses), `Unreadable` (written by a newer version).
    pub fn open(
        dir: &Path,
        config: StreamsConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Streams>, Recovery), StreamsError> {
        Streams::open_on(Arc::new(RealDisk), dir, config, clock)
    }

    pub(crate) fn collections(&self) -> &Collections {
        &self.collections
    }

    pub(crate) fn censuses(&self) -> &Mutex<HashMap<u32, Arc<Mutex<Census>>>> {
        &self.censuses
    }

    /// Opens or creates the store on any disk; for tests on a simulated one.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        config: StreamsConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Streams>, Recovery), StreamsError> {
        let options = journal_options(&config);
        let mut replay = Replay::default();
        let mut visit =
            |frame: journal::FrameRef<'_>| replay.visit(&frame).map_err(JournalError::refused);
        let (journal, found) = Journal::open(disk, dir, options, &mut visit).map_err(storage)?;
        let shared = Arc::new(Shared {
            keeper: Arc::new(Keeper::starting_at(journal.end())),
            clock: Arc::clone(&clock),
            freeing: Mutex::new(()),
            telemetry: Telemetry::new(crate::kafka::api_names()),
            journal,
        });
        let cluster_id = match replay.cluster_id.take() {
            Some(cluster_id) => cluster_id,
            None => first_opening(&shared.journal, &replay)?,
        };
        let topics = Topics::replayed(&mut replay, &config, &shared);
        replay.offsets.begin_empty(clock.now());
        let recovery = Recovery {
            frames: found.frames,
            bytes: found.bytes,
            topics: topics.by_name.len(),
            partitions: topics.partitions as usize,
            records: topics.records(),
            groups: replay.offsets.len(),
            cut_bytes: found.cut.map_or(0, |cut| cut.bytes),
            damaged_bytes: found.damaged_bytes,
        };
        let offsets = Arc::new(Mutex::new(replay.offsets));
        let ledger = GroupLedger::new(&offsets, &shared, &clock, config.message_bytes_ceiling());
        let streams = Arc::new(Streams {
            groups: Coordinator::new(config.groups.clone(), Arc::clone(&clock), Arc::new(ledger)),
            keys: Keys::default(),
            listener: Mutex::default(),
            told_topics: ToldTopics::default(),
            config,
            opened_at: clock.now(),
            clock,
            dir: dir.to_owned(),
            cluster_id,
            shared,
            topics: RwLock::new(topics),
            offsets,
            shares: Shares::replayed(replay.shares),
            producer_ids: Mutex::new(ProducerIds::starting_at(replay.producer_ids)),
            transactions: Transactions::of(replay.transactions),
            reserving: tokio::sync::Mutex::new(()),
            topics_version: watch::Sender::new(0),
            reclaiming: Mutex::new(()),
            snapshot_began: AtomicU64::new(replay.snapshot_began),
            snapshot_bytes: AtomicU64::new(0),
            moved_until: AtomicU64::new(0),
            collections: Collections::default(),
            censuses: Mutex::default(),
        });
        keeper::start(&streams)?;
        // What was decided is carried out before anybody looks.
        streams.sweep()?;
        streams.delete_unfinished()?;
        transactions::start(&streams)?;
        Ok((streams, recovery))
    }

    /// The store behind its trait.
    pub fn store(self: &Arc<Self>) -> Arc<dyn EventStore> {
        Arc::new(Embedded::new(Arc::clone(self)))
    }

    /// Writes and syncs what is pending and releases the folder; later calls answer `Closed`.
    pub async fn close(&self) {
        self.shared.keeper.stop();
        self.transactions.sweeper.stop();
        let journal = self.shared.journal.clone();
        let closed = tokio::task::spawn_blocking(move || journal.close()).await;
        match closed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(error = base::report(&error), "store did not close cleanly");
            }
            Err(error) => tracing::error!(%error, "store did not close cleanly"),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &StreamsConfig {
        &self.config
    }

    /// The clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The folder that everything lies in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The cluster's id, made when the store was created.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Keys under which records are stored once.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Where Kafka's clients connect to; none while nothing listens.
    pub fn listener(&self) -> Option<(String, u16)> {
        self.listener.lock().clone()
    }

    /// Notes where Kafka's clients connect to.
    pub(crate) fn note_listener(&self, address: (String, u16)) {
        *self.listener.lock() = Some(address);
    }

    /// This node's id.
    pub fn node_id(&self) -> i32 {
        self.config.node_id
    }

    /// Bytes that the journal takes on the disk.
    pub fn bytes_on_disk(&self) -> u64 {
        self.shared.journal.bytes_on_disk()
    }

    /// Waits until an append of a batch of `bytes` has a chance after [`StreamsError::Busy`].
    pub async fn room(&self, bytes: u64) {
        self.shared
            .journal
            .room(bytes + 2 * journal::FRAME_OVERHEAD_BYTES)
            .await;
    }

    /// The coordinator that all members of groups share.
    pub fn groups(&self) -> &Arc<Coordinator> {
        &self.groups
    }

    /// When the store was opened.
    pub(crate) fn opened_at(&self) -> UnixMillis {
        self.opened_at
    }

    pub(crate) fn told_topics(&self) -> &ToldTopics {
        &self.told_topics
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.shared.telemetry
    }

    pub(crate) fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    pub(crate) fn topics(&self) -> &RwLock<Topics> {
        &self.topics
    }

    pub(crate) fn offsets(&self) -> &Arc<Mutex<Offsets>> {
        &self.offsets
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn reclaiming(&self) -> &Mutex<()> {
        &self.reclaiming
    }

    /// Calls `step` again while it answers `Busy`, waiting on this thread in between.
    pub(crate) fn until_not_busy<T>(
        &self,
        mut step: impl FnMut() -> Result<T, StreamsError>,
    ) -> Result<T, StreamsError> {
        loop {
            match step() {
                Err(StreamsError::Busy) => self.shared.journal.room_blocking(CHANGE_ROOM_BYTES),
                outcome => return outcome,
            }
        }
    }

    fn standing(&self, next_partition: u32, producer_ids: i64) -> Change {
        Change::Store {
            cluster_id: self.cluster_id.clone(),
            next_partition,
            producer_ids,
        }
    }

    fn append_durably(&self, change: &Change) -> Result<DurableWait, StreamsError> {
        let (done, wait) = Done::channel(journal::Durability::Disk);
        self.append_change(change, done)?;
        Ok(DurableWait(Some(wait)))
    }

    /// Appends a change, one that lets go of batches also when the disk is full.
    fn append_change(&self, change: &Change, done: Done) -> Result<(), StreamsError> {
        match change {
            Change::TopicDeleted { .. } | Change::Partition(_) => {
                self.append_vital_change(change, done)
            }
            _ => self.append_change_as(false, change, done),
        }
    }

    /// Appends a change also when the disk is full.
    fn append_vital_change(&self, change: &Change, done: Done) -> Result<(), StreamsError> {
        self.append_change_as(true, change, done)
    }

    fn append_change_as(
        &self,
        is_vital: bool,
        change: &Change,
        done: Done,
    ) -> Result<(), StreamsError> {
        let (kind, payload) = change.encode();
        let frame = Frame {
            kind,
            version: version_of(kind),
            parts: &[&payload],
        };
        let (journal, need) = (&self.shared.journal, journal::Durability::Disk);
        let placed = match is_vital {
            true => journal.append_vital(&[frame], need, done),
            false => journal.append(&[frame], need, done),
        };
        let placed = placed.map_err(storage)?;
        self.shared.keeper.note_end(placed.end);
        Ok(())
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.shared.keeper.stop();
        self.transactions.sweeper.stop();
    }
}

impl DurableWait {
    pub(crate) fn of(wait: journal::DurableWait) -> Self {
        DurableWait(Some(wait))
    }

    /// Nothing to wait for.
    pub(crate) fn over() -> Self {
        DurableWait(None)
    }
}

impl Future for DurableWait {
    type Output = Result<(), StreamsError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(wait) = self.0.as_mut() else {
            return Poll::Ready(Ok(()));
        };
        let outcome = std::task::ready!(Pin::new(wait).poll(cx));
        self.0 = None;
        Poll::Ready(outcome.map_err(storage))
    }
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams")
            .field("cluster_id", &self.cluster_id)
            .finish_non_exhaustive()
    }
}

/// Gives the store its id, on the disk before anybody hears of it.
fn first_opening(journal: &Journal, replay: &Replay) -> Result<String, StreamsError> {
    let cluster_id = Uuid::new_v4().simple().to_string();
    let change = Change::Store {
        cluster_id: cluster_id.clone(),
        next_partition: replay.next_partition,
        producer_ids: replay.producer_ids,
    };
    let (kind, payload) = change.encode();
    let frame = Frame {
        kind,
        version: VERSION,
        parts: &[&payload],
    };
    journal
        .append_blocking(&[frame], journal::Durability::Disk)
        .map_err(storage)?;
    Ok(cluster_id)
}

fn journal_options(config: &StreamsConfig) -> JournalOptions {
    let default = JournalOptions::default();
    JournalOptions {
        segment_bytes: config.segment_bytes.0,
        preallocate_bytes: default.preallocate_bytes.min(config.segment_bytes.0),
        pending_bytes_max: PENDING_BYTES_MAX,
        reserve_bytes: reserve_of(config),
        sync_interval: config.sync_interval.0,
        ..default
    }
}

/// Bytes that are kept on the disk for what frees segments when the disk is full.
pub(crate) fn reserve_of(config: &StreamsConfig) -> u64 {
    RESERVE_BYTES.min(config.segment_bytes.0 / 4)
}

/// Room to wait for before a change that is no batch, in bytes; such frames are small.
pub(crate) const CHANGE_ROOM_BYTES: u64 = 64 << 10;
