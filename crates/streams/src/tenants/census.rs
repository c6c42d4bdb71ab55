//! Whose the records of a shared partition are, counted when somebody asks.
//!
//! A partition is read once from its beginning, and from then on what is new in it. Nothing of this
//! is on the way of a record. What a census holds are runs: records of one tenant without another's
//! between them. Where tenants take turns so often that these would be too many, a run takes in all
//! that one tenant has in a block of offsets, and others' lie between; blocks grow as far as needed.
//! Sums stay exact: who asks for a part of such a run reads it ([`counted`]).
//!
//! No run crosses the border of a block. A batch that cannot be read is nobody's.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use access::TENANT_HEADERS;
use base::{TenantId, UnixMillis};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::batch::BatchHeader;
use crate::compaction::unless_malformed;
use crate::decode::{BatchRecord, BatchRecords};
use crate::error::StreamsError;
use crate::event_store::Isolation;
use crate::limits::{CENSUS_BLOCK_OFFSETS, CENSUS_RUN_RECORDS_MAX, CENSUS_RUNS_MAX};
use crate::partition::Partition;
use crate::store::Streams;

/// What was counted of one partition.
pub(crate) struct Census {
    /// Where the next look begins.
    next: i64,
    of: BTreeMap<TenantId, VecDeque<Run>>,
    runs: usize,
    runs_max: usize,
    /// Offsets of a block, a power of two.
    block: i64,
    /// Whether a run takes in all of a block.
    is_coarse: bool,
}

/// Records of one tenant, in the order of their offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The offset of the first.
    pub first: i64,
    /// The offset behind the last.
    pub end: i64,
    /// How many they are; others' lie between them where that is less than the offsets.
    pub records: u64,
    /// The time of the oldest.
    pub oldest: UnixMillis,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// A record as a census counts it.
pub(super) struct Counted {
    pub offset: i64,
    pub time: UnixMillis,
    pub bytes: u64,
}

impl Run {
    /// Whether no other's record lies between them, and they are few enough that the age of the
    /// oldest stands for those behind it.
    pub(crate) fn is_short(&self) -> bool {
        let offsets = self.end - self.first;
        offsets.unsigned_abs() == self.records && offsets <= CENSUS_RUN_RECORDS_MAX
    }

    fn take_in(&mut self, behind: Run) {
        self.end = behind.end;
        self.records += behind.records;
        self.oldest = self.oldest.min(behind.oldest);
        self.bytes += behind.bytes;
    }
}

impl Counted {
    pub fn of(record: &BatchRecord) -> Self {
        let (key, value) = (record.key.as_ref(), record.value.as_ref());
        Counted {
            offset: record.offset,
            time: record.timestamp,
            bytes: (key.map_or(0, Bytes::len) + value.map_or(0, Bytes::len)) as u64,
        }
    }
}

impl Default for Census {
    fn default() -> Self {
        Census::within(CENSUS_RUNS_MAX)
    }
}

impl Census {
    /// Nothing counted yet, with so many runs at most.
    pub fn within(runs_max: usize) -> Self {
        Census {
            next: 0,
            of: BTreeMap::new(),
            runs: 0,
            runs_max,
            block: CENSUS_BLOCK_OFFSETS,
            is_coarse: false,
        }
    }

    /// A census of nothing with runs like this one's.
    pub(super) fn alike(&self) -> Self {
        Census {
            block: self.block,
            is_coarse: self.is_coarse,
            ..Census::within(self.runs_max)
        }
    }

    /// The offset behind a tenant's last record.
    pub fn end_of(&self, name: &TenantId) -> Option<i64> {
        self.of.get(name)?.back().map(|run| run.end)
    }

    /// A tenant's runs, in the order of their offsets.
    pub fn runs_of(&self, name: &TenantId) -> Vec<Run> {
        self.of.get(name).into_iter().flatten().copied().collect()
    }

    /// Adds the bytes of each tenant's records.
    pub(crate) fn add_bytes(&self, bytes: &mut BTreeMap<TenantId, u64>) {
        for (name, runs) in &self.of {
            let of_runs: u64 = runs.iter().map(|run| run.bytes).sum();
            *bytes.entry(name.clone()).or_default() += of_runs;
        }
    }

    /// Where those of a tenant's runs lie that hold anything from before `before`.
    pub(super) fn older(&self, name: &TenantId, before: Option<UnixMillis>) -> Option<Range<i64>> {
        let runs = self.of.get(name)?.iter();
        let mut old = runs.filter(|run| before.is_none_or(|before| run.oldest < before));
        let first = old.next()?;
        Some(first.first..old.next_back().unwrap_or(first).end)
    }

    /// Counts what is new in the partition, and no more what is gone from its beginning.
    ///
    /// # Errors
    /// The store's, and `Limit` where records name more tenants than runs may be.
    pub(super) fn look(&mut self, partition: &Partition) -> Result<(), StreamsError> {
        let start = partition.log_start_offset();
        if let Err(error) = self.recount_before(partition, start) {
            self.forget();
            return Err(error);
        }
        let until = partition.end_offset(Isolation::Uncommitted);
        let mut next = self.next.max(start);
        let note = |name: &TenantId, of: Counted| self.note(name, &of);
        let read = each_record(partition, &mut next, until, note);
        // What was read before an error is not read again.
        self.next = next;
        read?;
        if self.runs > self.runs_max {
            self.forget();
            return Err(StreamsError::Limit {
                what: "tenants that the records of one shared partition name",
                max: self.runs_max as u64,
            });
        }
        Ok(())
    }

    /// Has the next look begin anew.
    pub(super) fn forget(&mut self) {
        *self = Census::within(self.runs_max);
    }

    /// Counts no more what is gone before `start`.
    fn recount_before(&mut self, partition: &Partition, start: i64) -> Result<(), StreamsError> {
        if let Some(until) = self.forget_before(start) {
            let mut left = self.alike();
            let (mut at, until) = (start, until.min(self.next));
            each_record(partition, &mut at, until, |name, of| left.note(name, &of))?;
            self.put_before(left);
        }
        Ok(())
    }

    /// Counts a record behind all that are counted of its tenant.
    pub(super) fn note(&mut self, name: &TenantId, of: &Counted) {
        let run = Run {
            first: of.offset,
            end: of.offset + 1,
            records: 1,
            oldest: of.time,
            bytes: of.bytes,
        };
        match self.of.get_mut(name) {
            Some(runs) => {
                if let Some(last) = runs.back_mut()
                    && joins(last, &run, self.block, self.is_coarse)
                {
                    last.take_in(run);
                    return;
                }
                runs.push_back(run);
            }
            None => drop(self.of.insert(name.clone(), VecDeque::from([run]))),
        }
        self.runs += 1;
        if self.runs > self.runs_max {
            self.coarsen();
        }
    }

    /// Has runs take in so much that half as many as may be are left.
    fn coarsen(&mut self) {
        let mut is_enough = false;
        while !is_enough && self.block < BLOCK_OFFSETS_MAX {
            if self.is_coarse {
                self.block *= 2;
            }
            self.is_coarse = true;
            self.runs = 0;
            for runs in self.of.values_mut() {
                let mut merged: VecDeque<Run> = VecDeque::new();
                for run in runs.drain(..) {
                    match merged.back_mut() {
                        Some(last) if joins(last, &run, self.block, true) => last.take_in(run),
                        _ => merged.push_back(run),
                    }
                }
                self.runs += merged.len();
                *runs = merged;
            }
            is_enough = self.runs <= self.runs_max / 2;
        }
    }

    /// Takes it that of a tenant's records within these offsets, between which no run of it is cut,
    /// only those of `left` are there.
    pub(super) fn replace(&mut self, name: &TenantId, within: &Range<i64>, left: Vec<Run>) {
        let old = self.of.remove(name).unwrap_or_default();
        self.runs -= old.len();
        let is_before = |run: &Run| run.end <= within.start;
        let is_behind = |run: &Run| run.first >= within.end;
        let mut runs: VecDeque<Run> = old.iter().filter(|run| is_before(run)).copied().collect();
        runs.extend(left);
        runs.extend(old.iter().filter(|run| is_behind(run)));
        self.runs += runs.len();
        if !runs.is_empty() {
            self.of.insert(name.clone(), runs);
        }
    }

    /// Forgets what cannot be read any more. Where runs begin before that and end behind it, those
    /// of their block are forgotten, too; answers the block's end.
    fn forget_before(&mut self, start: i64) -> Option<i64> {
        let is_cut = |run: &Run| run.first < start && run.end > start;
        let is_any_cut = self.of.values().flatten().any(is_cut);
        let block_end = (start / self.block + 1) * self.block;
        for runs in self.of.values_mut() {
            while let Some(run) = runs.front()
                && (run.end <= start || is_any_cut && run.first < block_end)
            {
                runs.pop_front();
                self.runs -= 1;
            }
        }
        self.of.retain(|_, runs| !runs.is_empty());
        is_any_cut.then_some(block_end)
    }

    /// Counts what lies before all that is counted.
    fn put_before(&mut self, before: Census) {
        self.runs += before.runs;
        for (name, runs) in before.of {
            let behind = self.of.entry(name).or_default();
            for run in runs.into_iter().rev() {
                behind.push_front(run);
            }
        }
    }
}

impl Streams {
    /// What was counted of a partition.
    pub(crate) fn census_of(&self, partition: &Partition) -> Arc<Mutex<Census>> {
        let mut censuses = self.censuses().lock();
        Arc::clone(censuses.entry(partition.number()).or_default())
    }

    /// Counts what is new in a shared partition, and asks; whoever asks of another one does not
    /// wait for that. Blocks.
    ///
    /// # Errors
    /// As [`Census::look`].
    pub(crate) fn ask_census<T>(
        &self,
        partition: &Partition,
        ask: impl FnOnce(&Census) -> T,
    ) -> Result<T, StreamsError> {
        let census = self.census_of(partition);
        let mut census = census.lock();
        census.look(partition)?;
        Ok(ask(&census))
    }

    /// A tenant's runs in a shared partition.
    pub(crate) fn tenant_runs(
        &self,
        partition: &Partition,
        name: &TenantId,
    ) -> Result<Vec<Run>, StreamsError> {
        self.ask_census(partition, |census| census.runs_of(name))
    }
}

/// How many records a tenant has within these offsets, and the time of the oldest. Blocks.
///
/// # Errors
/// The store's.
pub(crate) fn counted(
    partition: &Partition,
    tenant: &TenantId,
    within: Range<i64>,
) -> Result<(u64, Option<UnixMillis>), StreamsError> {
    let (mut records, mut oldest) = (0, None::<UnixMillis>);
    let start = partition.log_start_offset();
    let mut at = within.start.max(start);
    each_record(partition, &mut at, within.end, |name, of| {
        if name == tenant {
            records += 1;
            oldest = Some(oldest.map_or(of.time, |oldest| oldest.min(of.time)));
        }
    })?;
    Ok((records, oldest))
}

/// The tenant that a record's headers name.
pub(crate) fn whose(headers: &[(String, Option<Bytes>)]) -> Option<TenantId> {
    named_by(
        headers
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_deref())),
    )
}

/// As [`whose`], by names and values of headers.
pub(crate) fn named_by<'h>(
    mut headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)>,
) -> Option<TenantId> {
    headers.find_map(|(name, value)| {
        let mut names = TENANT_HEADERS.iter();
        let value = value.filter(|_| names.any(|known| known.as_bytes() == name))?;
        std::str::from_utf8(value).ok()?.parse().ok()
    })
}

/// Shows `note` the records from `at` to `end` that name a tenant; `at` moves behind each batch that was
/// shown whole, and stands there after an error.
fn each_record(
    partition: &Partition,
    at: &mut i64,
    end: i64,
    mut note: impl FnMut(&TenantId, Counted),
) -> Result<(), StreamsError> {
    let within = *at..end;
    while *at < end {
        let batches = partition.read(Isolation::Uncommitted, *at, READ_BYTES, true)?;
        if batches.is_empty() {
            break;
        }
        for batch in batches {
            let header = BatchHeader::read(&batch)?;
            let records = BatchRecords::of(&batch).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            for record in unless_malformed(records)?.unwrap_or_default() {
                if within.contains(&record.offset)
                    && let Some(name) = whose(&record.headers)
                {
                    note(&name, Counted::of(&record));
                }
            }
            *at = (*at).max(header.last_offset() + 1);
        }
    }
    Ok(())
}

/// Whether a run takes in the one that is behind it.
fn joins(last: &Run, behind: &Run, block: i64, is_coarse: bool) -> bool {
    let follows = last.end == behind.first && last.end - last.first < CENSUS_RUN_RECORDS_MAX;
    (is_coarse || follows) && last.first / block == behind.first / block
}

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// A block this large holds every offset.
const BLOCK_OFFSETS_MAX: i64 = 1 << 62;

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(n: i64) -> TenantId {
        format!("t{n}").parse().unwrap()
    }

    fn counted(offset: i64) -> Counted {
        Counted {
            offset,
            time: UnixMillis(1_000 + offset),
            bytes: 3,
        }
    }

    /// Three tenants that take turns, and of whom the first has two records at once.
    fn taken_turns(runs_max: usize, records: i64) -> Census {
        let mut census = Census::within(runs_max);
        for offset in 0..records {
            census.note(
                &tenant([0, 0, 1, 2][(offset % 4) as usize]),
                &counted(offset),
            );
        }
        census
    }

    #[test]
    fn sums_are_exact_however_many_runs_there_would_be() {
        for (runs_max, records) in [(1_000_000, 40_000), (100, 40_000), (3, 40_000), (3, 4)] {
            let census = taken_turns(runs_max, records);
            assert!(census.runs <= runs_max, "{} of {runs_max}", census.runs);
            for (n, share) in [(0, 2), (1, 1), (2, 1)] {
                let runs = census.runs_of(&tenant(n));
                let sum: u64 = runs.iter().map(|run| run.records).sum();
                assert_eq!(sum, (records / 4 * share) as u64, "{runs_max}");
                assert_eq!(runs.iter().map(|run| run.bytes).sum::<u64>(), 3 * sum);
                let first = [0, 2, 3][n as usize];
                assert_eq!((runs[0].first, runs[0].oldest.0), (first, 1_000 + first));
                assert!(
                    runs.iter()
                        .all(|run| run.first / census.block == (run.end - 1) / census.block)
                );
            }
            assert_eq!(census.end_of(&tenant(2)), Some(records));
            assert_eq!(census.end_of(&tenant(0)), Some(records - 2));
        }
    }

    #[test]
    fn a_coarse_run_that_begins_too_early_is_counted_again_with_its_block() {
        let mut census = taken_turns(30, 40_000);
        assert!(census.is_coarse);
        let (start, block) = (census.block + 10, census.block);
        let until = census.forget_before(start).unwrap();
        assert_eq!(until, 2 * block);
        let mut left = census.alike();
        for offset in start..until {
            left.note(
                &tenant([0, 0, 1, 2][(offset % 4) as usize]),
                &counted(offset),
            );
        }
        census.put_before(left);
        let sum = |n| {
            census
                .runs_of(&tenant(n))
                .iter()
                .map(|run| run.records)
                .sum::<u64>()
        };
        let expected = (start..40_000).filter(|offset| offset % 4 == 3).count() as u64;
        assert_eq!(sum(2), expected);
        assert_eq!(
            census.runs,
            census.of.values().map(VecDeque::len).sum::<usize>()
        );
        assert_eq!(census.forget_before(start), None);
    }
}
