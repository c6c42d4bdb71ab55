//! Power cuts and kills at every change to the disk that a round of the keeper makes: expiry,
//! compaction, snapshot, moving and freeing, with writers in between.
//!
//! Each seed prepares a store and goes through the same round again and again, cut one change
//! later each time, until the round comes to its end. After each cut the compacted topic must read
//! as the last acknowledged value of each key, the other one as an unbroken tail of what was
//! acknowledged, no younger record gone; transactions count whole or not at all, together with
//! their group's offset; offsets and starts do not go back. A second round, and one more life, must
//! leave it so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Rng, SystemClock, UnixMillis};
use bytes::Bytes;
use journal::SimDisk;

use super::compaction::check_every_offset;
use super::{name, seeds, small, try_open};
use crate::batch::{self, BatchHeader};
use crate::compaction::CompactionPolicy;
use crate::error::StreamsError;
use crate::event_store::{ProducerSequence, TopicSpec};
use crate::offsets::OffsetCommit;
use crate::partition::Partition;
use crate::record::Record;
use crate::store::Streams;
use crate::topic_config::TopicConfig;
use crate::transactions::{Outcome, ProducerIdentity, TransactionProtocol};
use crate::{Ack, BatchRecord, BatchRecords, Isolation};

#[test]
fn a_round_that_is_cut_anywhere_costs_nothing_and_brings_nothing_back() {
    let mut cuts = [0_u64; STAGES.len()];
    let mut totals = Totals::default();
    for seed in 0..seeds::count_of_costly(40) {
        let mut after = 0;
        loop {
            let mut world = World::new(seed);
            let told = format!("seed {seed}, cut after {after} changes");
            let report = Report(told);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            let cut = runtime.block_on(world.run(after));
            std::mem::forget(report);
            totals.add(&world.totals);
            match cut {
                Some(stage) => cuts[stage] += 1,
                None => break,
            }
            after += 1;
            assert!(after < CUTS_MAX, "the round does not come to an end");
        }
    }
    let by_stage: Vec<_> = STAGES.iter().zip(cuts).collect();
    eprintln!("cuts {by_stage:?}, {totals:?}");
    // One that never cuts where it matters proves nothing.
    assert!(cuts.iter().all(|count| *count > 0), "{by_stage:?}");
    assert!(
        totals.expired > 0 && totals.superseded > 0 && totals.tombstones_gone > 0,
        "{totals:?}"
    );
    assert!(
        totals.freed > 0 && totals.moved > 0 && totals.doubts > 0,
        "{totals:?}"
    );
}

/// What a round is made of.
const STAGES: [&str; 5] = ["expiry", "compaction", "snapshot", "moving", "freeing"];

#[derive(Debug, Default)]
struct Totals {
    expired: u64,
    superseded: u64,
    tombstones_gone: u64,
    moved: u64,
    freed: u64,
    doubts: u64,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.expired += other.expired;
        self.superseded += other.superseded;
        self.tombstones_gone += other.tombstones_gone;
        self.moved += other.moved;
        self.freed += other.freed;
        self.doubts += other.doubts;
    }
}

type Table = BTreeMap<Bytes, Bytes>;

/// What a write means once it counts.
#[derive(Clone, Debug, Default)]
struct Effect {
    table: Vec<(Bytes, Option<Bytes>)>,
    recent: Option<Bytes>,
    offset: Option<i64>,
}

struct World {
    rng: Rng,
    disk: SimDisk,
    now: UnixMillis,
    table: Table,
    /// Everything that the topic with an age has taken, and how much of it is old.
    recent: Vec<Bytes>,
    old: usize,
    offset: Option<i64>,
    /// Of the two topics: behind the last record that was acknowledged.
    ends: [i64; 2],
    /// Where the topic with an age began when a later record was acknowledged.
    floor: i64,
    /// A write that was sent and not answered.
    doubt: Option<Effect>,
    producer: Option<ProducerIdentity>,
    sequences: BTreeMap<usize, i32>,
    written: u64,
    /// What is written is old.
    prepares: bool,
    /// The power stays on.
    counting: bool,
    totals: Totals,
}

impl World {
    fn new(seed: u64) -> Self {
        World {
            rng: Rng::from_seed(seed ^ 0xc07),
            disk: SimDisk::new(seed),
            now: SystemClock.now(),
            table: Table::new(),
            recent: Vec::new(),
            old: 0,
            offset: None,
            ends: [0; 2],
            floor: 0,
            doubt: None,
            producer: None,
            sequences: BTreeMap::new(),
            written: 0,
            prepares: true,
            counting: false,
            totals: Totals::default(),
        }
    }

    /// Lives one life up to the cut, and what comes after it; tells in which stage it fell.
    async fn run(&mut self, cut_after: u64) -> Option<usize> {
        let streams = self.open();
        self.prepare(&streams).await;
        self.disk.crash_after(cut_after);
        let mut stage = None;
        for at in 0..STAGES.len() {
            let outcome = self.stage(&streams, at).await;
            if self.disk.is_down() {
                stage = Some(at);
                break;
            }
            outcome.unwrap();
        }
        // Whatever comes next is cut too.
        self.disk.crash_after(0);
        seeds::closed(streams);
        if self.rng.one_in(3) {
            self.disk.kill();
        } else {
            self.disk.crash();
        }

        let streams = self.open();
        self.settle(&streams).await;
        self.check(&streams);
        self.counting = true;
        for at in 0..STAGES.len() {
            self.stage(&streams, at).await.unwrap();
        }
        self.settle(&streams).await;
        self.check(&streams);
        if self.rng.one_in(2) {
            streams.close().await;
        }
        self.disk.crash_after(0);
        seeds::closed(streams);
        self.disk.crash();
        let streams = self.open();
        self.settle(&streams).await;
        self.check(&streams);
        streams.close().await;
        seeds::closed(streams);
        stage
    }

    fn open(&self) -> Arc<Streams> {
        let (streams, recovery) = try_open(&self.disk, small()).unwrap();
        assert_eq!(recovery.damaged_bytes, 0);
        streams
    }

    /// Fills both topics, with one whole round behind them, so that the next meets rewritten
    /// batches, tombstones that are due and chunks that are away.
    async fn prepare(&mut self, streams: &Arc<Streams>) {
        let age = AGE.as_millis().to_string();
        for (topic, setting) in [
            ("table", ("cleanup.policy", "compact")),
            ("recent", ("retention.ms", age.as_str())),
        ] {
            let mut spec = TopicSpec::of(name(topic));
            spec.config = TopicConfig::of([setting]).unwrap();
            streams.create_topic(spec).await.unwrap();
        }
        self.settle(streams).await;
        for _ in 0..30 {
            self.write(streams, true).await;
        }
        for at in 0..STAGES.len() {
            self.stage(streams, at).await.unwrap();
        }
        for _ in 0..20 {
            self.write(streams, true).await;
        }
        self.old = self.recent.len();
        self.prepares = false;
        for _ in 0..20 {
            self.write(streams, false).await;
        }
        assert!(self.doubt.is_none(), "nothing fails before the cut");
    }

    /// Introduces the producer, which ends what it left open.
    async fn settle(&mut self, streams: &Streams) {
        let init = streams.init_transactions(ID, Duration::from_secs(60), None);
        self.producer = Some(init.await.unwrap());
        self.sequences.clear();
    }

    /// One stage of a round, and a write behind it.
    async fn stage(&mut self, streams: &Arc<Streams>, at: usize) -> Result<(), StreamsError> {
        let [table, recent] = partitions(streams);
        match at {
            0 => {
                let before = recent.log_start_offset();
                streams.expire()?;
                self.totals.expired += (recent.log_start_offset() - before).unsigned_abs();
            }
            1 => {
                // Tombstones of the pass before are due.
                self.now = self.now + 2 * POLICY.delete_retention;
                let count = |tombstones: bool| {
                    let records = shown(&table, Isolation::Uncommitted).into_iter();
                    let wanted = records.filter(|record| record.value.is_none() == tombstones);
                    wanted.count() as u64
                };
                if !self.counting {
                    table.compact(self.now, POLICY)?;
                } else {
                    let before = [count(false), count(true)];
                    table.compact(self.now, POLICY)?;
                    self.totals.superseded += before[0] - count(false);
                    self.totals.tombstones_gone += before[1] - count(true);
                }
            }
            2 => streams.snapshot(1 + self.rng.below(3) as usize)?,
            3 => self.totals.moved += streams.move_living(0)?,
            _ => self.totals.freed += u64::from(streams.reclaim()?),
        }
        self.write(streams, self.prepares).await;
        Ok(())
    }

    /// Something plain or a transaction; it is in doubt when no answer comes.
    async fn write(&mut self, streams: &Arc<Streams>, old: bool) {
        if self.doubt.is_some() || self.disk.is_down() {
            return;
        }
        let mut effect = Effect::default();
        let outcome = match self.rng.below(6) {
            0 => {
                self.transact(streams, old, Outcome::Abort, &mut effect)
                    .await
            }
            1 | 2 => {
                self.transact(streams, old, Outcome::Commit, &mut effect)
                    .await
            }
            3 => self.write_recent(streams, old, false, &mut effect).await,
            _ => self.write_table(streams, false, &mut effect).await,
        };
        match outcome {
            Ok(true) => self.take(effect),
            Ok(false) => {}
            Err(_) => {
                self.totals.doubts += 1;
                self.doubt = Some(effect);
            }
        }
    }

    fn take(&mut self, effect: Effect) {
        for (key, value) in effect.table {
            match value {
                Some(value) => self.table.insert(key, value),
                None => self.table.remove(&key),
            };
        }
        self.recent.extend(effect.recent);
        self.offset = effect.offset.or(self.offset);
    }

    async fn transact(
        &mut self,
        streams: &Arc<Streams>,
        old: bool,
        outcome: Outcome,
        effect: &mut Effect,
    ) -> Result<bool, StreamsError> {
        let mut whole = Effect::default();
        let written = self.write_whole(streams, old, &mut whole).await;
        // Before its end is asked for it cannot count.
        let producer = self.producer.unwrap();
        if outcome == Outcome::Commit && written.is_ok() {
            *effect = whole;
        }
        written?;
        let protocol = TransactionProtocol::Implicit;
        let ended = streams.end_transaction(protocol, ID, producer, outcome);
        self.producer = Some(ended.await?);
        self.sequences.clear();
        Ok(outcome == Outcome::Commit)
    }

    async fn write_whole(
        &mut self,
        streams: &Arc<Streams>,
        old: bool,
        effect: &mut Effect,
    ) -> Result<(), StreamsError> {
        self.write_table(streams, true, effect).await?;
        // A marker is as young as its transaction's end, and would hold back what is old.
        if !old {
            self.write_recent(streams, old, true, effect).await?;
        }
        self.written += 1;
        let offset = self.written as i64;
        let commit = OffsetCommit {
            topic: name("recent"),
            partition: 0,
            offset,
            leader_epoch: -1,
            metadata: String::new(),
            at: SystemClock.now(),
        };
        let (producer, protocol) = (self.producer.unwrap(), TransactionProtocol::Implicit);
        streams
            .commit_in_transaction(protocol, ID, producer, ID, vec![commit])
            .await?;
        effect.offset = Some(offset);
        Ok(())
    }

    /// A few keyed records; the last has a value that nobody had.
    async fn write_table(
        &mut self,
        streams: &Arc<Streams>,
        in_transaction: bool,
        effect: &mut Effect,
    ) -> Result<bool, StreamsError> {
        for _ in 0..self.rng.below(3) {
            let key = self.key();
            let value = (!self.rng.one_in(3)).then(|| self.value());
            effect.table.push((key, value));
        }
        let last = (self.key(), Some(self.value()));
        effect.table.push(last);
        let records: Vec<Record> = effect
            .table
            .iter()
            .map(|(key, value)| Record {
                key: Some(key.clone()),
                value: value.clone(),
                timestamp: Some(self.now),
                ..Record::default()
            })
            .collect();
        self.append(streams, 0, &records, in_transaction).await?;
        Ok(true)
    }

    async fn write_recent(
        &mut self,
        streams: &Arc<Streams>,
        old: bool,
        in_transaction: bool,
        effect: &mut Effect,
    ) -> Result<bool, StreamsError> {
        let value = self.value();
        effect.recent = Some(value.clone());
        let age = if old { 2 * AGE } else { Duration::ZERO };
        let record = Record {
            value: Some(value),
            timestamp: Some(SystemClock.now() - age),
            ..Record::default()
        };
        let start = partitions(streams)[1].log_start_offset();
        self.append(streams, 1, &[record], in_transaction).await?;
        // What was told to the journal before it is on the disk with it.
        self.floor = self.floor.max(start);
        Ok(true)
    }

    async fn append(
        &mut self,
        streams: &Arc<Streams>,
        at: usize,
        records: &[Record],
        in_transaction: bool,
    ) -> Result<(), StreamsError> {
        let partition = &partitions(streams)[at];
        let producer = self.producer.filter(|_| in_transaction);
        let sequence = producer.map(|producer| ProducerSequence {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            first_sequence: self.sequences.get(&at).copied().unwrap_or(0),
        });
        let mut batch = batch::build(records, self.now, sequence).unwrap().to_vec();
        if in_transaction {
            batch[22] |= 0x10;
            batch::seal(&mut batch);
            *self.sequences.entry(at).or_default() += i32::try_from(records.len()).unwrap();
        }
        let protocol = TransactionProtocol::Implicit;
        let appended =
            streams.append_in_transaction(protocol, ID, partition, batch.into(), Ack::All)?;
        appended.ack.await?;
        let end = appended.base_offset + records.len() as i64;
        assert!(end > self.ends[at], "an offset was given twice");
        self.ends[at] = end;
        Ok(())
    }

    fn check(&mut self, streams: &Streams) {
        let [table, recent] = partitions(streams);
        for (partition, end) in [&table, &recent].into_iter().zip(self.ends) {
            let high = partition.high_watermark();
            assert!(high >= end, "{partition:?} ends at {high}, not {end}");
            assert_eq!(partition.end_offset(Isolation::Committed), high);
            check_every_offset(partition);
        }
        assert_eq!(table.log_start_offset(), 0);
        let start = recent.log_start_offset();
        assert!(start >= self.floor, "the start went back to {start}");

        let read = as_table(&table);
        if let Some(effect) = self.doubt.take() {
            // It is decided by what only it has written.
            let offset = streams.committed_offset(ID, &name("recent"), 0);
            let offset = offset.map(|committed| committed.offset);
            let mark = effect.table.last().and_then(|(_, value)| value.clone());
            let last = shown(&recent, Isolation::Committed).pop();
            let counts = match (&mark, &effect.recent) {
                (Some(mark), _) => read.values().any(|value| value == mark),
                (None, mark) => mark.is_some() && last.and_then(|last| last.value) == *mark,
            };
            if effect.offset.is_some() {
                assert_eq!(counts, offset == effect.offset, "the offset went alone");
            }
            if counts {
                self.take(effect);
            }
        }
        assert_eq!(read, self.table);
        let values = shown(&recent, Isolation::Committed).into_iter();
        let values: Vec<Bytes> = values.map(|record| record.value.unwrap()).collect();
        assert!(self.recent.ends_with(&values), "not its tail: {values:?}");
        let young = self.recent.len() - self.old;
        assert!(values.len() >= young, "of {young} young records {values:?}");
        let offset = streams.committed_offset(ID, &name("recent"), 0);
        assert_eq!(offset.map(|committed| committed.offset), self.offset);
    }

    fn key(&mut self) -> Bytes {
        Bytes::from(format!("k{}", self.rng.below(12)))
    }

    fn value(&mut self) -> Bytes {
        self.written += 1;
        let padding = usize::try_from(self.rng.below(500)).unwrap();
        Bytes::from(format!("{}:{}", self.written, "x".repeat(padding)))
    }
}

fn partitions(streams: &Streams) -> [Arc<Partition>; 2] {
    ["table", "recent"].map(|topic| {
        let topic = streams.topic_by_name(&name(topic)).unwrap();
        Arc::clone(&topic.partitions()[0])
    })
}

fn as_table(partition: &Partition) -> Table {
    let mut table = Table::new();
    for record in shown(partition, Isolation::Committed) {
        let key = record.key.unwrap();
        match record.value {
            Some(value) => table.insert(key, value),
            None => table.remove(&key),
        };
    }
    table
}

/// The records that a reader of this isolation is shown, in order.
fn shown(partition: &Partition, isolation: Isolation) -> Vec<BatchRecord> {
    let mut shown: Vec<BatchRecord> = Vec::new();
    let mut offset = partition.log_start_offset();
    while offset < partition.end_offset(isolation) {
        for batch in partition.read(isolation, offset, 10_000, true).unwrap() {
            let header = BatchHeader::check_stored(&batch).unwrap();
            let next = header.base_offset + header.offsets();
            assert!(next > offset, "a reader at {offset} would stand still");
            let skipped = header.is_control()
                || isolation == Isolation::Committed && partition.is_aborted(&header);
            if !skipped {
                let records = BatchRecords::of(&batch).unwrap().map(Result::unwrap);
                shown.extend(records.filter(|record| record.offset >= offset));
            }
            offset = next;
        }
    }
    assert!(shown.is_sorted_by(|a, b| a.offset < b.offset));
    shown
}

/// Says where a panic was.
struct Report(String);

impl Drop for Report {
    fn drop(&mut self) {
        eprintln!("it failed: {}", self.0);
    }
}

/// The transactional id, and its group.
const ID: &str = "a";

/// Age at which records expire, of the topic that has one.
const AGE: Duration = Duration::from_secs(3_600);

const POLICY: CompactionPolicy = CompactionPolicy {
    lag_min: Duration::ZERO,
    delete_retention: Duration::from_secs(60),
    is_shared: false,
};

/// Far more changes than a round makes.
const CUTS_MAX: u64 = 1_000;
