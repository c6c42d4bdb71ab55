//! The store in this process: topics, partitions, groups' offsets and producer ids on one journal.
//!
//! Every change is one frame. A change takes its place in the journal and in memory under the
//! same lock, so that memory and journal agree on the order; who asked for it is answered when it
//! is on the disk. A topic can be seen a moment before it is durable; whatever is stored in it
//! lies behind it in the journal, so no crash keeps the one without the other.
//!
//! Locks are taken in this order: transactions, topics, offsets, producer ids, a partition's
//! state, the journal's own. The journal's callbacks take one of ours and none after it.

mod admin;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use base::Clock;
use journal::{Disk, Done, Frame, Journal, JournalError, JournalOptions, Position, RealDisk};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use uuid::Uuid;

use crate::config::StreamsConfig;
use crate::embedded::Embedded;
use crate::error::StreamsError;
use crate::event_store::{CommittedOffset, EventStore, TopicSpec};
use crate::frames::{Change, VERSION, version_of};
use crate::groups::{Coordinator, GroupDescription, GroupKind, GroupStanding, GroupState};
use crate::keeper::{self, Keeper};
use crate::lag::ToldLags;
use crate::ledger::GroupLedger;
use crate::limits::PRODUCER_ID_BLOCK;
use crate::offsets::{GroupOffset, NotedGroup, OffsetChange, OffsetCommit, Offsets};
use crate::partition::{Shared, State, Telemetry, storage};
use crate::recovery::{Recovery, Replay};
use crate::topic::TopicName;
use crate::topic_config::Live;
use crate::topics::{Topic, Topics};
use crate::transactions::{self, Transactions};

/// The store in this process.
pub struct Streams {
    config: StreamsConfig,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    cluster_id: String,
    shared: Arc<Shared>,
    topics: RwLock<Topics>,
    offsets: Arc<Mutex<Offsets>>,
    producer_ids: Mutex<ProducerIds>,
    transactions: Transactions,
    /// Held while a block of producer ids is on its way to the disk.
    reserving: tokio::sync::Mutex<()>,
    groups: Arc<Coordinator>,
    told_lags: ToldLags,
    /// Counts the changes of topics, for those who wait for one.
    topics_version: watch::Sender<u64>,
    reclaiming: Mutex<()>,
    snapshot_began: AtomicU64,
    snapshot_bytes: AtomicU64,
    moved_until: AtomicU64,
}

/// Resolves when a change survives the machine.
#[derive(Debug)]
pub struct DurableWait(Option<journal::DurableWait>);

#[derive(Debug)]
struct ProducerIds {
    next: i64,
    /// Up to here the disk knows that ids were given.
    reserved: i64,
    /// Up to here it is about to know; a snapshot must not fall behind a frame that it hides.
    promised: i64,
}

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
            telemetry: Telemetry::default(),
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
        let ledger = GroupLedger::new(&offsets, &shared, &clock);
        let streams = Arc::new(Streams {
            groups: Coordinator::new(config.groups.clone(), Arc::clone(&clock), Arc::new(ledger)),
            told_lags: ToldLags::default(),
            config,
            clock,
            dir: dir.to_owned(),
            cluster_id,
            shared,
            topics: RwLock::new(topics),
            offsets,
            producer_ids: Mutex::new(ProducerIds {
                next: replay.producer_ids,
                reserved: replay.producer_ids,
                promised: replay.producer_ids,
            }),
            transactions: Transactions::of(replay.transactions),
            reserving: tokio::sync::Mutex::new(()),
            topics_version: watch::Sender::new(0),
            reclaiming: Mutex::new(()),
            snapshot_began: AtomicU64::new(replay.snapshot_began),
            snapshot_bytes: AtomicU64::new(0),
            moved_until: AtomicU64::new(0),
        });
        keeper::start(&streams)?;
        // What was decided is carried out before anybody looks.
        streams.sweep()?;
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

    /// All topics, by wire name.
    pub fn topics_snapshot(&self) -> Vec<Arc<Topic>> {
        self.topics.read().by_name.values().cloned().collect()
    }

    /// The topic of this name.
    pub fn topic_by_name(&self, name: &TopicName) -> Option<Arc<Topic>> {
        self.topics.read().by_name.get(name).cloned()
    }

    /// The topic of this id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        self.topics.read().by_id.get(&id).cloned()
    }

    /// Creates a topic, durable on return; calls that run together share a sync.
    pub async fn create_topic(&self, spec: TopicSpec) -> Result<Arc<Topic>, StreamsError> {
        let (topic, wait) = self.begin_create_topic(spec).await?;
        wait.await?;
        Ok(topic)
    }

    /// Creates a topic and returns before it is durable, so that many share one sync; await the
    /// answer before telling anybody.
    pub(crate) async fn begin_create_topic(
        &self,
        spec: TopicSpec,
    ) -> Result<(Arc<Topic>, DurableWait), StreamsError> {
        loop {
            match self.try_create(&spec) {
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                outcome => return outcome,
            }
        }
    }

    /// Says what [`Streams::create_topic`] would: the number of partitions, or its error.
    pub fn check_create(&self, spec: &TopicSpec) -> Result<i32, StreamsError> {
        self.split_config(spec.config.clone(), spec.durability)?;
        let topics = self.topics.read();
        topics.check_create(&self.config, spec)
    }

    /// Deletes a topic, durable on return.
    pub async fn delete_topic(&self, name: &TopicName) -> Result<(), StreamsError> {
        let deleted = self.begin_delete_topic(name).await?;
        self.end_delete_topic(deleted).await
    }

    /// As [`Streams::begin_create_topic`]: [`Streams::end_delete_topic`] waits.
    pub(crate) async fn begin_delete_topic(
        &self,
        name: &TopicName,
    ) -> Result<DurableWait, StreamsError> {
        loop {
            match self.try_delete(name) {
                Err(StreamsError::Busy) => self.room(CHANGE_ROOM_BYTES).await,
                outcome => return outcome,
            }
        }
    }

    /// Waits for a deletion, and has the space looked after that it frees.
    pub(crate) async fn end_delete_topic(&self, deleted: DurableWait) -> Result<(), StreamsError> {
        deleted.await?;
        self.shared.keeper.look();
        Ok(())
    }

    /// The topic, created by the store's or its stream's policy when it is not there.
    pub async fn topic_or_create(&self, name: &TopicName) -> Result<Arc<Topic>, StreamsError> {
        loop {
            if let Some(topic) = self.topic_by_name(name) {
                return Ok(topic);
            }
            if !self.config.creation_policy(name).autocreate {
                return Err(StreamsError::AutoCreateOff(name.clone()));
            }
            match self.create_topic(TopicSpec::of(name.clone())).await {
                // Somebody else was faster: theirs will do.
                Err(StreamsError::TopicExists(_)) => {}
                outcome => return outcome,
            }
        }
    }

    /// One of Kafka's internal topics, created whatever the policy when it is not there.
    pub async fn internal_or_create(&self, name: TopicName) -> Result<Arc<Topic>, StreamsError> {
        loop {
            if let Some(topic) = self.topic_by_name(&name) {
                return Ok(topic);
            }
            match self
                .create_topic(TopicSpec::of(name.clone()).with_partitions(1))
                .await
            {
                // Somebody else was faster: theirs will do.
                Err(StreamsError::TopicExists(_)) => {}
                outcome => return outcome,
            }
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

    /// This node's id.
    pub fn node_id(&self) -> i32 {
        self.config.node_id
    }

    /// Bytes that the journal takes on the disk.
    pub fn bytes_on_disk(&self) -> u64 {
        self.shared.journal.bytes_on_disk()
    }

    /// A producer id that nobody had before and nobody will get again.
    pub async fn next_producer_id(&self) -> Result<i64, StreamsError> {
        if let Some(id) = self.producer_ids.lock().take() {
            return Ok(id);
        }
        let _alone = self.reserving.lock().await;
        loop {
            let reserved = {
                let mut ids = self.producer_ids.lock();
                if let Some(id) = ids.take() {
                    return Ok(id);
                }
                ids.promised = ids.reserved + PRODUCER_ID_BLOCK;
                ids.promised
            };
            self.reserve_producer_ids(reserved).await?;
            self.producer_ids.lock().reserved = reserved;
        }
    }

    /// Waits until an append of a batch of `bytes` has a chance after [`StreamsError::Busy`].
    pub async fn room(&self, bytes: u64) {
        self.shared
            .journal
            .room(bytes + 2 * journal::FRAME_OVERHEAD_BYTES)
            .await;
    }

    /// Stores offsets of a group together; await the answer for durability, from when on they
    /// count. Fails as a whole when a topic or partition is unknown. After `Busy` wait for
    /// [`Streams::room`].
    pub fn commit_offsets(
        &self,
        group: &str,
        offsets: Vec<OffsetCommit>,
    ) -> Result<DurableWait, StreamsError> {
        if offsets.is_empty() {
            return Ok(DurableWait(None));
        }
        let mut stored = Vec::with_capacity(offsets.len());
        // Holding the topics keeps a deletion from slipping between the check and the append.
        let topics = self.topics.read();
        let mut standing = self.offsets.lock();
        standing.check(group, &offsets)?;
        for commit in offsets {
            let number = topics.partition(&commit.topic, commit.partition)?.number();
            stored.push((
                number,
                CommittedOffset {
                    offset: commit.offset,
                    leader_epoch: commit.leader_epoch,
                    metadata: commit.metadata,
                    at: commit.at,
                },
            ));
        }
        standing.check_room(group, &stored)?;
        let change = Change::GroupOffsets {
            group: group.to_owned(),
            offsets: stored.clone(),
        };
        let wait = self.append_offsets(&change)?;
        let group: Arc<str> = Arc::from(group);
        standing.note_commit(&group, self.clock.now());
        standing.queue(OffsetChange::Commit(group, stored));
        drop(standing);
        self.shared.keeper.note_groups();
        Ok(wait)
    }

    /// What a group has committed for a partition.
    pub fn committed_offset(
        &self,
        group: &str,
        topic: &TopicName,
        partition: i32,
    ) -> Option<CommittedOffset> {
        let number = self
            .topics
            .read()
            .partition(topic, partition)
            .ok()?
            .number();
        self.offsets.lock().of(group, number).cloned()
    }

    /// All that a group has committed.
    pub fn committed_all(&self, group: &str) -> Vec<GroupOffset> {
        let topics = self.topics.read();
        let offsets = self.offsets.lock();
        let known = offsets.of_group(group).filter_map(|(number, committed)| {
            let partition = topics.partition_by_number(number)?;
            Some(GroupOffset {
                topic: partition.topic().clone(),
                partition: partition.index(),
                committed: committed.clone(),
            })
        });
        known.collect()
    }

    /// Names of groups with committed offsets, in order.
    pub fn groups_with_offsets(&self) -> Vec<String> {
        self.offsets
            .lock()
            .groups()
            .iter()
            .map(|group| group.as_ref().to_owned())
            .collect()
    }

    /// Forgets a group's offsets; false when it had none. Await the answer for durability.
    pub fn delete_group(&self, group: &str) -> Result<(bool, DurableWait), StreamsError> {
        let mut offsets = self.offsets.lock();
        if !offsets.knows(group) && offsets.noted(group).is_none() {
            return Ok((false, DurableWait(None)));
        }
        let wait = self.append_offsets(&Change::GroupDeleted {
            group: group.to_owned(),
        })?;
        offsets.unnote(group);
        offsets.queue(OffsetChange::DeleteGroup(Arc::from(group)));
        Ok((true, wait))
    }

    /// Forgets what a group has committed for these partitions; await the answer for durability.
    pub fn delete_offsets(
        &self,
        group: &str,
        partitions: &[(TopicName, i32)],
    ) -> Result<DurableWait, StreamsError> {
        let topics = self.topics.read();
        let mut numbers = Vec::with_capacity(partitions.len());
        for (topic, partition) in partitions {
            numbers.push(topics.partition(topic, *partition)?.number());
        }
        self.forget_offsets(group, numbers)
    }

    fn forget_offsets(&self, group: &str, numbers: Vec<u32>) -> Result<DurableWait, StreamsError> {
        if numbers.is_empty() {
            return Ok(DurableWait(None));
        }
        let mut offsets = self.offsets.lock();
        let wait = self.append_offsets(&Change::GroupOffsetsDeleted {
            group: group.to_owned(),
            numbers: numbers.clone(),
        })?;
        offsets.queue(OffsetChange::Delete(Arc::from(group), numbers));
        Ok(wait)
    }

    /// Forgets the offsets of groups that have had no members for too long; tells how long from
    /// now the next may go, if there are any.
    pub(crate) fn expire_offsets(&self) -> Result<Option<Duration>, StreamsError> {
        let retention = self.config.groups.offsets_retention.0;
        if retention.is_zero() {
            return Ok(None);
        }
        let now = self.clock.now();
        // First, so that a commit from here on asks for another look.
        self.shared.keeper.sleeps_without_groups(true);
        let (expired, next) = self.offsets.lock().expired(now, retention);
        for (group, numbers) in expired {
            tracing::info!(
                group = &*group,
                offsets = numbers.len(),
                "offsets have expired"
            );
            self.until_not_busy(|| {
                if numbers.is_empty() {
                    self.delete_group(&group).map(drop)
                } else {
                    self.forget_offsets(&group, numbers.clone()).map(drop)
                }
            })?;
        }
        let next = next.map(|next| next.since(now));
        if next.is_some() {
            self.shared.keeper.sleeps_without_groups(false);
        }
        Ok(next)
    }

    /// All groups that have members or offsets, or had members that may come back, by name.
    pub fn list_groups(&self) -> Vec<GroupDescription> {
        let mut groups: BTreeMap<String, GroupDescription> = BTreeMap::new();
        for live in self.groups.list() {
            groups.insert(live.group.clone(), live);
        }
        let (with_offsets, noted) = {
            let offsets = self.offsets.lock();
            (offsets.groups(), offsets.noted_groups())
        };
        let noted = noted
            .into_iter()
            .map(|(name, noted)| (name, noted.kind, noted.protocol_type, noted.epoch));
        let unnoted = with_offsets
            .into_iter()
            .map(|name| (name, GroupKind::Classic, String::new(), 0));
        for (name, kind, protocol_type, epoch) in noted.chain(unnoted) {
            groups
                .entry(name.as_ref().to_owned())
                .or_insert_with(|| GroupDescription {
                    group: name.as_ref().to_owned(),
                    kind,
                    state: GroupState::Empty,
                    protocol_type,
                    protocol: String::new(),
                    generation: epoch,
                    members: Vec::new(),
                });
        }
        groups.into_values().collect()
    }

    /// What was noted of a group beside its offsets, as long as there is something.
    pub fn group_standing(&self, group: &str) -> Option<GroupStanding> {
        self.offsets.lock().noted(group).map(NotedGroup::standing)
    }

    /// Whether there is such a group, with or without members.
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.describe(group).is_some() || self.knows_group(group)
    }

    /// Whether the group has offsets, or had members that may come back.
    pub fn knows_group(&self, group: &str) -> bool {
        let offsets = self.offsets.lock();
        offsets.knows(group) || offsets.noted(group).is_some()
    }

    /// The coordinator that all members of groups share.
    pub fn groups(&self) -> &Arc<Coordinator> {
        &self.groups
    }

    /// Changes whenever a topic is created or deleted.
    pub fn topics_changed(&self) -> watch::Receiver<u64> {
        self.topics_version.subscribe()
    }

    pub(crate) fn told_lags(&self) -> &ToldLags {
        &self.told_lags
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

    /// Where the newest complete snapshot began.
    pub(crate) fn snapshot_began(&self) -> Position {
        Position(self.snapshot_began.load(Ordering::Acquire))
    }

    /// The journal's end when batches were last moved; a segment goes only after a snapshot that
    /// began later.
    pub(crate) fn moved_until(&self) -> Position {
        Position(self.moved_until.load(Ordering::Acquire))
    }

    pub(crate) fn note_moved(&self, until: Position) {
        self.moved_until.store(until.0, Ordering::Release);
    }

    /// Bytes from the newest complete snapshot's begin to its end.
    pub(crate) fn snapshot_bytes(&self) -> u64 {
        self.snapshot_bytes.load(Ordering::Relaxed)
    }

    /// A snapshot that began and ended here is complete.
    pub(crate) fn set_snapshot(&self, began: Position, end: Position) {
        self.snapshot_bytes
            .store(end.0 - began.0, Ordering::Relaxed);
        self.snapshot_began.store(began.0, Ordering::Release);
    }

    /// Position of the oldest batch that a topic still holds.
    pub(crate) fn oldest_batch(&self) -> Option<Position> {
        let topics = self.topics_snapshot();
        let partitions = topics.iter().flat_map(|topic| topic.partitions());
        partitions
            .filter_map(|partition| partition.first_position())
            .min()
    }

    /// Shows `append` every change that a snapshot consists of, each while what it tells of
    /// cannot change; waits on this thread and shows it once more after `Busy`.
    pub(crate) fn snapshot_changes(
        &self,
        append: &mut dyn FnMut(&Change) -> Result<(), StreamsError>,
    ) -> Result<(), StreamsError> {
        self.until_not_busy(|| {
            let topics = self.topics.read();
            let ids = self.producer_ids.lock();
            append(&self.standing(topics.next_partition, ids.promised))
        })?;
        for topic in self.topics_snapshot() {
            self.until_not_busy(|| {
                let topics = self.topics.read();
                let topic = topics.by_id.get(&topic.id());
                topic.map_or(Ok(()), |topic| append(&topic.standing()))
            })?;
            for partition in topic.partitions() {
                self.until_not_busy(|| partition.append_standing())?;
            }
        }
        // Before the groups: a decision that stands before its transaction was told here counts
        // through the offsets of its groups, which are told after it.
        self.snapshot_transactions(append)?;
        let groups = self.offsets.lock().standing_groups();
        for group in groups {
            self.until_not_busy(|| {
                let standing = self.offsets.lock();
                let offsets = standing.standing(&group);
                if offsets.is_empty() {
                    return Ok(());
                }
                append(&Change::GroupOffsets {
                    group: group.as_ref().to_owned(),
                    offsets,
                })
            })?;
        }
        let noted = self.offsets.lock().noted_groups();
        for (group, _) in noted {
            self.until_not_busy(|| {
                let offsets = self.offsets.lock();
                let Some(noted) = offsets.noted(&group) else {
                    return Ok(());
                };
                append(&Change::Group {
                    group: group.as_ref().to_owned(),
                    noted: noted.clone(),
                })
            })?;
        }
        Ok(())
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

    fn try_create(&self, spec: &TopicSpec) -> Result<(Arc<Topic>, DurableWait), StreamsError> {
        let mut topics = self.topics.write();
        let count = topics.check_create(&self.config, spec)?;
        let count = u32::try_from(count).expect("checked to be above zero");
        let ranges = vec![(topics.next_partition, count)];
        let id = Uuid::new_v4();
        let (config, durability) = self.split_config(spec.config.clone(), spec.durability)?;
        let settings = config.settings(&self.config, &spec.name, durability);
        let topic = Topic::new(
            id,
            spec.name.clone(),
            Live::new(config, settings),
            ranges,
            &self.shared,
            |_| State::default(),
        );
        let wait = self.append_durably(&topic.standing())?;
        let topic = Arc::new(topic);
        topics.insert(Arc::clone(&topic));
        drop(topics);
        if settings.deletion_age().is_some() {
            self.shared.keeper.look();
        }
        self.topics_version.send_modify(|version| *version += 1);
        Ok((topic, wait))
    }

    fn try_delete(&self, name: &TopicName) -> Result<DurableWait, StreamsError> {
        let mut transactions = self.transactions.table.lock();
        let mut topics = self.topics.write();
        let topic = topics.by_name.get(name).cloned();
        let topic = topic.ok_or_else(|| StreamsError::UnknownTopic(name.clone()))?;
        let mut offsets = self.offsets.lock();
        let change = Change::TopicDeleted {
            id: topic.id(),
            ranges: topic.ranges.clone(),
        };
        let wait = self.append_offsets(&change)?;
        offsets.queue(OffsetChange::DeletePartitions(topic.ranges.clone()));
        drop(offsets);
        transactions.forget_partitions(&topic.ranges);
        drop(transactions);
        topics.remove(&topic);
        drop(topics);
        topic
            .partitions()
            .iter()
            .for_each(|partition| partition.delete());
        self.topics_version.send_modify(|version| *version += 1);
        Ok(wait)
    }

    async fn reserve_producer_ids(&self, up_to: i64) -> Result<(), StreamsError> {
        let next_partition = self.topics.read().next_partition;
        let (kind, payload) = self.standing(next_partition, up_to).encode();
        let parts: [&[u8]; 1] = [&payload];
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &parts,
        };
        let frames = [frame];
        let appended = self
            .shared
            .journal
            .append_wait(&frames, journal::Durability::Disk);
        appended.await.map(drop).map_err(storage)
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

    /// Appends a change of the offsets; the caller holds their lock and queues it.
    fn append_offsets(&self, change: &Change) -> Result<DurableWait, StreamsError> {
        let (done, wait) = Done::channel(journal::Durability::Disk);
        let offsets = Arc::clone(&self.offsets);
        let disk = done.disk.map(|answer| -> journal::OnDone {
            Box::new(move |outcome: Result<(), JournalError>| {
                if outcome.is_ok() {
                    offsets.lock().apply_next();
                }
                answer(outcome);
            })
        });
        self.append_change(change, Done { os: None, disk })?;
        Ok(DurableWait(Some(wait)))
    }

    fn append_change(&self, change: &Change, done: Done) -> Result<(), StreamsError> {
        let (kind, payload) = change.encode();
        let frame = Frame {
            kind,
            version: version_of(kind),
            parts: &[&payload],
        };
        let need = journal::Durability::Disk;
        let placed = self
            .shared
            .journal
            .append(&[frame], need, done)
            .map_err(storage)?;
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

impl ProducerIds {
    fn take(&mut self) -> Option<i64> {
        if self.next >= self.reserved {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
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
        pending_bytes_max: default
            .pending_bytes_max
            .max(config.message_bytes_ceiling()),
    }
}

/// Room to wait for before a change that is no batch, in bytes; such frames are small.
pub(crate) const CHANGE_ROOM_BYTES: u64 = 64 << 10;
