//! ShareFetch (KIP-932): members acquire records.
//!
//! What a request acknowledges counts before what it fetches ([`super::share_acknowledge`]). A fetch is
//! answered when it has acquired something, when something is wrong with a partition, when its time is
//! over or when the listener stops; it waits for new records, for records that others give back and for
//! those that others have held for too long. Nothing is acquired before it is answered.
//!
//! Answers hold whole batches, as those of fetches do, and say which of their records are the member's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{TenantId, UnixMillis};
use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::error::streams_error_code;
use super::limits::{FETCH_BATCHES_MAX, FETCH_BYTES_MAX, FETCH_WAIT_MAX};
use super::reply::{Answer, Call, Ending, Reply};
use super::share_acknowledge::{Begun, find, settle};
use super::share_sessions::Opened;
use super::share_wire;
use crate::partition::Watch;
use crate::share::{Acquired, Fate, ShareWatch, joined};
use crate::store::{ShareRoom, Taken};
use crate::tenants::only as only_of;
use crate::{BatchRecords, Partition, Signal, StreamsError};

/// Takes acknowledgements, then acquires records.
pub(super) fn fetch(call: Call) -> Result<Reply, Ending> {
    let (asking, request, more) = share_wire::fetch_request(&call)?;
    let begun = match Begun::of(&call, asking) {
        Ok(begun) => begun,
        Err(refused) => return Ok(Reply::Now(share_wire::refused_fetch(&call, refused))),
    };
    let max_bytes = usize::try_from(request.max_bytes).unwrap_or(0);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let fetching = Fetching {
        records_max: i64::from(request.max_records),
        whole_batches: !more.is_exact,
        max_bytes: max_bytes.min(FETCH_BYTES_MAX).min(call.fetch_bytes_max()),
        // Whoever only needs longer for what it has wants no more meanwhile.
        until: match more.is_renewal || request.min_bytes <= 0 {
            true => Instant::now(),
            false => Instant::now() + wait.min(FETCH_WAIT_MAX),
        },
        targets: match more.is_renewal || request.max_records <= 0 || max_bytes == 0 {
            true => Vec::new(),
            false => targets(&call, &begun.opened),
        },
        begun,
        call,
    };
    Ok(Reply::HeldBack(Box::pin(async move {
        let fetching = fetching.acknowledged().await;
        Reply::later(async move { Ok(fetching.answer().await) })
    })))
}

/// A fetch that has begun.
struct Fetching {
    call: Call,
    begun: Begun,
    records_max: i64,
    whole_batches: bool,
    max_bytes: usize,
    until: Instant,
    /// What it acquires records of, if it does.
    targets: Vec<Target>,
}

/// A partition to acquire records of.
pub(super) struct Target {
    pub(super) topic: Uuid,
    pub(super) index: i32,
    found: Result<Arc<Partition>, i16>,
}

/// What was acquired of a partition, or why nothing was.
#[derive(Default)]
pub(super) struct Read {
    pub(super) code: i16,
    pub(super) taken: Taken,
    /// What is shown in the place of the batches.
    pub(super) shown: Option<Vec<Bytes>>,
}

impl Fetching {
    async fn acknowledged(mut self) -> Self {
        self.begun.acknowledge(&self.call).await;
        self
    }

    async fn answer(mut self) -> Answer {
        let mut said = std::mem::take(&mut self.begun.said);
        let reads = self.take().await;
        settle(&mut said).await;
        share_wire::encode(&self.call, self.begun.lock_ms(), &said, &reads)
    }

    /// Acquires something, as soon as there is something.
    async fn take(&self) -> Vec<(&Target, Read)> {
        // The last request of a session has none.
        if self.targets.is_empty() {
            return Vec::new();
        }
        let mut reads = self.try_take();
        let shared = &self.call.context.shared;
        if !reads.is_empty() || Instant::now() >= self.until {
            return reads;
        }
        shared.telemetry().fetch_waits.increment(1);
        let waiting = shared.telemetry().fetches_waiting.hold();
        let signal = Arc::new(Signal::new());
        let Ok(_watches) = self.watch(&signal) else {
            // A partition is gone or has too many waiters: the answer tells.
            return self.try_take();
        };
        loop {
            signal.clear();
            reads = self.try_take();
            if !reads.is_empty() {
                break;
            }
            let until = self.next_look().min(self.until);
            tokio::select! {
                () = signal.told() => {}
                () = tokio::time::sleep_until(until) => {}
                () = shared.shutdown.cancelled() => break,
            }
            if Instant::now() >= self.until {
                reads = self.try_take();
                break;
            }
        }
        drop(waiting);
        reads
    }

    /// Watches all partitions for records that come, or come back.
    fn watch(
        &self,
        signal: &Arc<Signal>,
    ) -> Result<Vec<(Watch, Option<ShareWatch>)>, StreamsError> {
        let streams = self.call.context.streams();
        let mut watches = Vec::new();
        for partition in self.partitions() {
            let shared = streams.share_partition(&self.begun.group, partition, &self.begun.terms);
            let shared = shared.ok().flatten().map(|shared| shared.watch(signal));
            watches.push((partition.watch(signal)?, shared));
        }
        Ok(watches)
    }

    /// When somebody will have held a record for too long.
    fn next_look(&self) -> Instant {
        let streams = self.call.context.streams();
        let deadlines = self.partitions().filter_map(|partition| {
            let shared = streams.share_partition(&self.begun.group, partition, &self.begun.terms);
            streams.share_deadline(&*shared.ok()??)
        });
        let next = deadlines.min();
        let now = streams.clock().now();
        let wait = next.map_or(FETCH_WAIT_MAX, |at: UnixMillis| at.since(now));
        // A clock that stands still is not asked again and again.
        Instant::now() + wait.max(Duration::from_millis(1))
    }

    fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        let found = self.targets.iter();
        found.filter_map(|target| target.found.as_ref().ok())
    }

    /// Acquires what is there. What has neither records nor errors is left out.
    fn try_take(&self) -> Vec<(&Target, Read)> {
        let mut left = ShareRoom {
            records: self.records_max,
            bytes: self.max_bytes,
            batches: FETCH_BATCHES_MAX,
            at_least_one: true,
            whole_batches: self.whole_batches,
        };
        let mut reads = Vec::new();
        for target in &self.targets {
            if left.records <= 0 || left.batches == 0 || left.bytes == 0 && !left.at_least_one {
                break;
            }
            let read = match &target.found {
                Err(code) => Read {
                    code: *code,
                    ..Read::default()
                },
                Ok(partition) => match self.read(partition, left) {
                    // It is looked at again: by this fetch, or the next.
                    Err(StreamsError::Busy) => continue,
                    Err(error) => Read {
                        code: streams_error_code(&error),
                        ..Read::default()
                    },
                    Ok(read) => read,
                },
            };
            if read.code == 0 && read.taken.acquired.is_empty() {
                continue;
            }
            let acquired = read.taken.acquired.iter();
            left.records -= acquired.map(|run| run.last - run.first + 1).sum::<i64>();
            left.bytes = left.bytes.saturating_sub(read.bytes());
            left.batches = left.batches.saturating_sub(read.taken.batches.len());
            left.at_least_one &= read.taken.batches.is_empty();
            reads.push((target, read));
        }
        reads
    }

    fn read(&self, partition: &Arc<Partition>, room: ShareRoom) -> Result<Read, StreamsError> {
        let streams = self.call.context.streams();
        let Begun {
            group,
            opened,
            terms,
            ..
        } = &self.begun;
        let Some(shared) = streams.share_partition(group, partition, terms)? else {
            return Ok(Read::default());
        };
        let take = || streams.share_acquire(&shared, partition, (&opened.member, terms), room);
        let mut taken = take()?;
        let mut shown = None;
        if let Some(only) = self.call.only_of(partition.topic()) {
            let decide = |records: &[(i64, i64)], fate| {
                let who = (&*opened.member, terms);
                streams.share_decide(&shared, who, records, fate);
            };
            // What it is not to see, it is not to have: on to what it may.
            for _ in 0..SIFTED_MAX {
                if taken.acquired.is_empty() {
                    break;
                }
                let sifted = sifted(partition, &only, &taken);
                let (own, acquired, others) = sifted.inspect_err(|_| {
                    let runs = taken.acquired.iter().map(|run| (run.first, run.last));
                    decide(&runs.collect::<Vec<_>>(), Fate::Release);
                })?;
                decide(&others, Fate::Gap);
                if !acquired.is_empty() {
                    taken.acquired = acquired;
                    shown = Some(own);
                    break;
                }
                taken = take()?;
            }
            if shown.is_none() {
                // So many in a row were others' that the next look goes on.
                let runs = taken.acquired.drain(..).map(|run| (run.first, run.last));
                decide(&runs.collect::<Vec<_>>(), Fate::Release);
                taken = Taken::default();
            }
        }
        let read = Read {
            code: 0,
            taken,
            shown,
        };
        let (bytes, telemetry) = (read.bytes(), self.call.context.shared.telemetry());
        if bytes > 0 {
            telemetry.fetched_bytes.increment(bytes as u64);
            partition.note_fetched(bytes);
        }
        Ok(read)
    }
}

impl Read {
    pub(super) fn bytes(&self) -> usize {
        match &self.shown {
            Some(shown) => shown.iter().map(Bytes::len).sum(),
            None => {
                let batches = self.taken.batches.iter();
                batches.map(|batch| batch.bytes as usize).sum()
            }
        }
    }
}

/// Finds what is wanted, once a request, as fetches do.
fn targets(call: &Call, opened: &Opened) -> Vec<Target> {
    let wanted = opened.partitions.iter();
    let targets = wanted.map(|(topic, index)| Target {
        topic: *topic,
        index: *index,
        found: find(call, *topic, *index),
    });
    targets.collect()
}

/// Batches with a tenant's own records alone, what of them was acquired, and what else was: first and
/// last offset.
type Sifted = (Vec<Bytes>, Vec<Acquired>, Vec<(i64, i64)>);

fn sifted(partition: &Partition, only: &TenantId, taken: &Taken) -> Result<Sifted, StreamsError> {
    let stored = taken.batches.iter().map(|batch| partition.fetch(*batch));
    let shown = only_of(only, stored.collect::<Result<Vec<Bytes>, _>>()?)?;
    let mut own = BTreeSet::new();
    for batch in &shown {
        for record in BatchRecords::of(batch)? {
            own.insert(record?.offset);
        }
    }
    let (mut acquired, mut others) = (Vec::new(), Vec::new());
    for run in &taken.acquired {
        let mut from = run.first;
        for offset in own.range(run.first..=run.last) {
            if from < *offset {
                others.push((from, offset - 1));
            }
            from = offset + 1;
            acquired.push(Acquired {
                first: *offset,
                last: *offset,
                ..*run
            });
        }
        if from <= run.last {
            others.push((from, run.last));
        }
    }
    Ok((shown, joined(acquired), others))
}

/// How often one look at a partition reads on when all that it found is other tenants'.
const SIFTED_MAX: usize = 16;
