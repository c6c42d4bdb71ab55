//! Random transactions, crashes and recoveries against a model, from a seed.
//!
//! After each crash a reader of committed records must find all records of each transaction whose
//! commit was acknowledged, none of one that was aborted or never decided, and all or nothing of
//! one whose commit was asked for and not answered; the group's offset goes with its transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Rng, SystemClock};
use bytes::Bytes;
use journal::SimDisk;

use super::{batch_of, name, seeds, small, try_open};
use crate::batch::{self, BatchHeader};
use crate::compaction::CompactionPolicy;
use crate::error::StreamsError;
use crate::event_store::{ProducerSequence, TopicSpec};
use crate::offsets::OffsetCommit;
use crate::partition::Partition;
use crate::record::Record;
use crate::store::Streams;
use crate::transactions::{Outcome, Phase, ProducerIdentity, TransactionProtocol};
use crate::{Ack, BatchRecords, Isolation};

#[test]
fn a_transaction_is_visible_whole_or_not_at_all() {
    let (mut committed, mut doubtful, mut offsets, mut compacted) = (0, 0, 0, 0);
    let seeds = seeds::each(async |seed| {
        let mut world = World::new(seed);
        world.run().await;
        committed += world.count(Fate::Committed);
        doubtful += world.doubts;
        offsets += world.offsets_checked;
        compacted += world.compacted;
    });
    eprintln!(
        "{seeds} seeds: {committed} committed, {doubtful} in doubt, {offsets} offsets, {compacted} \
         bytes compacted"
    );
    assert!(committed > 5 * seeds && doubtful > seeds / 10 && offsets > seeds);
    assert!(compacted > 100 * seeds);
}

/// A client does not send again what was acknowledged, so it ends what it began before the crash.
#[tokio::test]
async fn a_producer_that_outlives_the_store_commits_the_offsets_that_were_taken() {
    for seed in 0..40 {
        for protocol in [TransactionProtocol::Explicit, TransactionProtocol::Implicit] {
            let disk = SimDisk::new(seed);
            let (streams, who) = with_producer(&disk).await;
            if protocol == TransactionProtocol::Explicit {
                let joined = streams.join_transaction_group("a", who, "g");
                joined.await.unwrap();
            }
            let commit = OffsetCommit {
                topic: name("t"),
                partition: 0,
                offset: 7,
                leader_epoch: -1,
                metadata: String::new(),
                at: SystemClock.now(),
            };
            let taken = streams.commit_in_transaction(protocol, "a", who, "g", vec![commit]);
            taken.await.unwrap();
            disk.crash_after(0);
            seeds::closed(streams);
            disk.crash();
            let (streams, _) = try_open(&disk, small()).unwrap();
            let ended = streams.end_transaction(protocol, "a", who, Outcome::Commit);
            ended.await.unwrap();
            let read = streams.committed_offset("g", &name("t"), 0);
            assert_eq!(read.map(|read| read.offset), Some(7), "seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_producer_that_outlives_the_store_goes_on_in_what_it_has_joined() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let (streams, who) = with_producer(&disk).await;
        let all = [(name("t"), 0)];
        let partitions = &all[..(seed % 2) as usize];
        if partitions.is_empty() {
            let joined = streams.join_transaction_group("a", who, "g");
            joined.await.unwrap();
        } else {
            let joined = streams.join_transaction("a", who, partitions);
            joined.await.unwrap();
        }
        disk.crash_after(0);
        seeds::closed(streams);
        disk.crash();
        let (streams, _) = try_open(&disk, small()).unwrap();
        let stands = streams.describe_transaction("a").unwrap();
        assert_eq!(stands.phase, Phase::Ongoing, "seed {seed}");
        assert_eq!(stands.partitions, partitions, "seed {seed}");
        let explicit = TransactionProtocol::Explicit;
        let ended = streams.end_transaction(explicit, "a", who, Outcome::Commit);
        ended.await.unwrap();
    }
}

/// What each step of a transaction costs of the disk, in syncs. Joins are durable, since a producer
/// that outlives the store does not send them again; whatever is written to a partition carries its
/// join along, so that the second protocol pays for none.
#[tokio::test]
async fn a_join_costs_one_sync_and_joins_at_the_same_time_share_theirs() {
    let disk = SimDisk::new(1);
    let (streams, who) = with_producer(&disk).await;
    let spec = TopicSpec::of(name("u")).with_partitions(8);
    streams.create_topic(spec).await.unwrap();
    let mut before = disk.syncs();
    let mut cost = || disk.syncs() - std::mem::replace(&mut before, disk.syncs());
    let t = [(name("t"), 0)];
    streams.join_transaction("a", who, &t).await.unwrap();
    assert_eq!(cost(), 1, "one partition");
    let many: Vec<_> = (0..8).map(|index| (name("u"), index)).collect();
    streams.join_transaction("a", who, &many).await.unwrap();
    assert_eq!(cost(), 1, "many partitions");
    let joined = streams.join_transaction_group("a", who, "g");
    joined.await.unwrap();
    assert_eq!(cost(), 1, "a group");
    // One that goes with the process tells nobody, and so pays nothing.
    let joined = streams.join_from_within("a", who, &many);
    joined.await.unwrap();
    assert_eq!(cost(), 0, "from within");
    let explicit = TransactionProtocol::Explicit;
    let ended = streams.end_transaction(explicit, "a", who, Outcome::Commit);
    let who = ended.await.unwrap();
    cost();
    // Written to without a join before: the batch is what is waited for.
    let topic = streams.topic_by_name(&name("t")).unwrap();
    let batch = batch::build_transactional(
        &[Record::of_value("v")],
        SystemClock.now(),
        ProducerSequence {
            producer_id: who.id,
            producer_epoch: who.epoch,
            first_sequence: 0,
        },
    );
    let implicit = TransactionProtocol::Implicit;
    let partition = topic.partition(0).unwrap();
    let written = streams.append_in_transaction(implicit, "a", partition, batch.unwrap(), Ack::All);
    written.unwrap().ack.await.unwrap();
    assert_eq!(cost(), 1, "a batch that joins");
    let (first, second) = tokio::join!(
        streams.join_transaction("a", who, &many[..4]),
        streams.join_transaction("a", who, &many[4..]),
    );
    first.and(second).unwrap();
    assert!(cost() <= 2, "two joins at once");
}

/// A store with the topic `t` and the producer of the id `a`.
async fn with_producer(disk: &SimDisk) -> (Arc<Streams>, ProducerIdentity) {
    let (streams, _) = try_open(disk, small()).unwrap();
    let spec = TopicSpec::of(name("t")).with_partitions(1);
    streams.create_topic(spec).await.unwrap();
    let timeout = Duration::from_secs(60);
    let who = streams.init_transactions("a", timeout, None).await.unwrap();
    (streams, who)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Committed,
    Aborted,
    /// Its commit was asked for; nobody answered.
    InDoubt,
}

#[derive(Debug)]
struct Written {
    fate: Fate,
    /// Partition and value, in order.
    records: Vec<(usize, String)>,
    /// The offset that goes with it.
    offset: Option<i64>,
}

struct World {
    rng: Rng,
    disk: SimDisk,
    transactions: Vec<Written>,
    producers: Vec<Option<ProducerIdentity>>,
    sequences: HashMap<(ProducerIdentity, usize), i32>,
    written: u64,
    doubts: u64,
    offsets_checked: u64,
    compacted: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        World {
            rng: Rng::from_seed(seed ^ 0x7a95),
            disk: SimDisk::new(seed),
            transactions: Vec::new(),
            producers: vec![None; IDS.len()],
            sequences: HashMap::new(),
            written: 0,
            doubts: 0,
            offsets_checked: 0,
            compacted: 0,
        }
    }

    fn count(&self, fate: Fate) -> u64 {
        self.transactions.iter().filter(|t| t.fate == fate).count() as u64
    }

    async fn run(&mut self) {
        for life in 0..5 {
            let Ok((streams, _)) = try_open(&self.disk, small()) else {
                // The power went while the store was opening.
                self.disk.power_on();
                continue;
            };
            self.check(&streams, false);
            if self.settle(&streams).await.is_ok() {
                self.check(&streams, true);
                if life < 4 && !self.rng.one_in(4) {
                    self.disk.crash_after(self.rng.below(300));
                }
                for _ in 0..10 + self.rng.below(40) {
                    if self.disk.is_down() {
                        break;
                    }
                    self.step(&streams).await;
                }
            }
            seeds::end_life(&mut self.rng, &self.disk, streams).await;
        }
        self.disk.power_on();
        let (streams, _) = try_open(&self.disk, small()).unwrap();
        self.settle(&streams).await.unwrap();
        self.check(&streams, true);
    }

    /// Introduces all producers, which ends what the last life left open.
    async fn settle(&mut self, streams: &Arc<Streams>) -> Result<(), StreamsError> {
        let spec = TopicSpec::of(name("t")).with_partitions(3);
        match streams.create_topic(spec).await {
            Ok(_) | Err(StreamsError::TopicExists(_)) => {}
            Err(error) => return Err(error),
        }
        for nth in 0..IDS.len() {
            self.init(streams, nth).await?;
        }
        Ok(())
    }

    async fn init(&mut self, streams: &Streams, nth: usize) -> Result<(), StreamsError> {
        self.producers[nth] = None;
        let init = streams.init_transactions(IDS[nth], Duration::from_secs(60), None);
        self.producers[nth] = Some(init.await?);
        Ok(())
    }

    async fn step(&mut self, streams: &Arc<Streams>) {
        match self.rng.below(20) {
            0 => drop(streams.snapshot(1)),
            1 => {
                let nth = self.rng.below(IDS.len() as u64) as usize;
                drop(self.init(streams, nth).await);
            }
            2 => drop(streams.reclaim()),
            3 => drop(streams.move_living(0)),
            4 => self.compact(streams),
            _ => self.transact(streams).await,
        }
    }

    /// Aborted batches go at once, and what is left of a commit later on.
    fn compact(&mut self, streams: &Streams) {
        let policy = CompactionPolicy {
            lag_min: Duration::ZERO,
            delete_retention: Duration::ZERO,
            is_shared: false,
        };
        let soon = SystemClock.now() + Duration::from_secs(1);
        let topic = streams.topic_by_name(&name("t")).unwrap();
        for partition in topic.partitions() {
            let Ok(compacted) = partition.compact(soon, policy) else {
                return;
            };
            self.compacted += compacted.bytes_before - compacted.bytes_after;
        }
    }

    /// A few transactions beside each other, so that they hold each other back.
    async fn transact(&mut self, streams: &Arc<Streams>) {
        let mut open: Vec<(usize, TransactionProtocol, usize)> = Vec::new();
        for nth in 0..IDS.len() {
            if self.producers[nth].is_some() && !self.rng.one_in(3) {
                let protocol = if self.rng.one_in(2) {
                    TransactionProtocol::Explicit
                } else {
                    TransactionProtocol::Implicit
                };
                self.transactions.push(Written {
                    fate: Fate::Open,
                    records: Vec::new(),
                    offset: None,
                });
                open.push((nth, protocol, self.transactions.len() - 1));
            }
        }
        for _ in 0..1 + self.rng.below(6) {
            let Some((nth, protocol, at)) = open.get(self.rng.below(3) as usize).copied() else {
                continue;
            };
            if self.write(streams, nth, protocol, at).await.is_err() {
                // Whatever it was, this life's producer stops here.
                self.producers[nth] = None;
            }
        }
        for (nth, protocol, at) in open {
            if self.producers[nth].is_some() && !self.rng.one_in(8) {
                self.end(streams, nth, protocol, at).await;
            } else {
                // Left open: the next introduction aborts it.
                self.producers[nth] = None;
                if !self.disk.is_down() {
                    drop(self.init(streams, nth).await);
                }
            }
        }
    }

    async fn write(
        &mut self,
        streams: &Arc<Streams>,
        nth: usize,
        protocol: TransactionProtocol,
        at: usize,
    ) -> Result<(), StreamsError> {
        let Some(who) = self.producers[nth] else {
            return Ok(());
        };
        let index = self.rng.below(3) as usize;
        let partition = i32::try_from(index).unwrap();
        let topic = streams.topic_by_name(&name("t")).unwrap();
        if self.rng.one_in(4) {
            let offset = i64::try_from(at).unwrap();
            if protocol == TransactionProtocol::Explicit {
                streams
                    .join_transaction_group(IDS[nth], who, IDS[nth])
                    .await?;
            }
            let commit = OffsetCommit {
                topic: name("t"),
                partition: 0,
                offset,
                leader_epoch: -1,
                metadata: String::new(),
                at: SystemClock.now(),
            };
            let commits = vec![commit];
            streams
                .commit_in_transaction(protocol, IDS[nth], who, IDS[nth], commits)
                .await?;
            self.transactions[at].offset = Some(offset);
            assert!(streams.is_offset_unstable(IDS[nth], &name("t"), 0));
            return Ok(());
        }
        if protocol == TransactionProtocol::Explicit {
            let joined = [(name("t"), partition)];
            streams.join_transaction(IDS[nth], who, &joined).await?;
        }
        self.written += 1;
        let value = format!("{at}:{}", self.written);
        let sequence = self.sequences.entry((who, index)).or_default();
        let batch = transactional(who, *sequence, &value);
        let partition = topic.partition(partition).unwrap();
        let append =
            streams.append_in_transaction(protocol, IDS[nth], partition, batch, Ack::None)?;
        assert!(!append.duplicate);
        *sequence += 1;
        self.transactions[at].records.push((index, value));
        Ok(())
    }

    async fn end(
        &mut self,
        streams: &Streams,
        nth: usize,
        protocol: TransactionProtocol,
        at: usize,
    ) {
        let Some(who) = self.producers[nth] else {
            return;
        };
        let written = &mut self.transactions[at];
        if written.records.is_empty() && written.offset.is_none() {
            return;
        }
        let outcome = if self.rng.one_in(3) {
            Outcome::Abort
        } else {
            Outcome::Commit
        };
        let ended = streams
            .end_transaction(protocol, IDS[nth], who, outcome)
            .await;
        written.fate = match (&ended, outcome) {
            (Ok(_), Outcome::Commit) => Fate::Committed,
            (_, Outcome::Abort) => Fate::Aborted,
            (Err(_), Outcome::Commit) => {
                self.doubts += 1;
                Fate::InDoubt
            }
        };
        self.producers[nth] = ended.ok();
    }

    /// Compares the store with the model; when all is `settled` nothing is held back any more.
    fn check(&mut self, streams: &Streams, settled: bool) {
        let Some(topic) = streams.topic_by_name(&name("t")) else {
            assert!(self.transactions.is_empty());
            return;
        };
        let mut seen: HashMap<usize, Vec<(usize, String)>> = HashMap::new();
        for (index, partition) in topic.partitions().iter().enumerate() {
            for value in committed_values(partition) {
                let at: usize = value.split(':').next().unwrap().parse().unwrap();
                seen.entry(at).or_default().push((index, value));
            }
            if settled {
                let stable = partition.end_offset(Isolation::Committed);
                assert_eq!(stable, partition.high_watermark(), "something hangs");
            }
        }
        for (at, written) in self.transactions.iter_mut().enumerate() {
            let found = seen.remove(&at).unwrap_or_default();
            let mut expected = written.records.clone();
            expected.sort_by_key(|(index, _)| *index);
            match written.fate {
                Fate::Committed if settled => {
                    assert_eq!(found, expected, "transaction {at} lost records");
                }
                Fate::Committed => {}
                Fate::InDoubt if settled && found.is_empty() && !expected.is_empty() => {
                    written.fate = Fate::Aborted;
                }
                Fate::InDoubt if settled && !expected.is_empty() => {
                    assert_eq!(found, expected, "transaction {at} is there in part");
                    written.fate = Fate::Committed;
                }
                Fate::InDoubt => {}
                Fate::Open | Fate::Aborted => {
                    assert_eq!(found, [], "transaction {at} does not count");
                }
            }
        }
        assert!(seen.is_empty(), "records from nowhere: {seen:?}");
        if settled {
            self.check_offsets(streams);
        }
    }

    /// The last transaction with an offset that counts has the say.
    fn check_offsets(&mut self, streams: &Streams) {
        for group in IDS {
            let read = streams.committed_offset(group, &name("t"), 0);
            assert!(!streams.is_offset_unstable(group, &name("t"), 0));
            let Some(read) = read else { continue };
            let at = usize::try_from(read.offset).unwrap();
            let fate = self.transactions[at].fate;
            assert!(
                matches!(fate, Fate::Committed | Fate::InDoubt),
                "{group} has the offset of transaction {at}, which is {fate:?}"
            );
            self.transactions[at].fate = Fate::Committed;
            self.offsets_checked += 1;
        }
        let newest = IDS.map(|group| streams.committed_offset(group, &name("t"), 0));
        for (at, written) in self.transactions.iter().enumerate() {
            if written.fate == Fate::Committed && written.offset.is_some() {
                let at = i64::try_from(at).unwrap();
                let is_there = newest.iter().flatten().any(|read| read.offset >= at);
                assert!(is_there, "the offset of transaction {at} is lost");
            }
        }
    }
}

/// What a reader of committed records is shown.
fn committed_values(partition: &Partition) -> Vec<String> {
    let mut values = Vec::new();
    let mut offset = partition.log_start_offset();
    while offset < partition.end_offset(Isolation::Committed) {
        let batches = partition.read(Isolation::Committed, offset, 10_000, true);
        for batch in batches.unwrap() {
            let header = BatchHeader::read(&batch).unwrap();
            offset = header.base_offset + header.offsets();
            if partition.is_aborted(&header) {
                continue;
            }
            let records = BatchRecords::of(&batch).unwrap();
            values.extend(records.map(|record| {
                let value = record.unwrap().value.unwrap();
                String::from_utf8(value.to_vec()).unwrap()
            }));
        }
    }
    values
}

/// A batch of a transaction.
pub(super) fn transactional(who: ProducerIdentity, first_sequence: i32, value: &str) -> Bytes {
    let sequence = ProducerSequence {
        producer_id: who.id,
        producer_epoch: who.epoch,
        first_sequence,
    };
    let mut bytes = batch_of(&[value.to_owned()], Some(sequence)).to_vec();
    bytes[22] |= 0x10;
    batch::seal(&mut bytes);
    bytes.into()
}

/// Transactional ids; each has a group of the same name.
const IDS: [&str; 3] = ["a", "b", "c"];
