//! Whose the records of a shared partition are, counted when somebody asks.
//!
//! A partition is read once from its beginning, and from then on what is new in it. Nothing of this
//! is on the way of a record. What a census holds are runs: records of one tenant without another's
//! between them.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use access::TENANT_HEADERS;
use base::{TenantId, UnixMillis};
use bytes::Bytes;

use crate::decode::{BatchRecord, BatchRecords};
use crate::error::StreamsError;
use crate::event_store::Isolation;
use crate::limits::{CENSUS_RUN_RECORDS_MAX, CENSUS_RUNS_MAX};
use crate::partition::Partition;
use crate::store::Streams;

/// What was counted of one partition.
#[derive(Default)]
pub(crate) struct Census {
    /// Where the next look begins.
    next: i64,
    of: BTreeMap<TenantId, VecDeque<Run>>,
    runs: usize,
}

/// Records of one tenant that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The offset of the first.
    pub first: i64,
    /// The offset behind the last.
    pub end: i64,
    /// The time of the oldest.
    pub oldest: UnixMillis,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Census {
    /// The offset behind a tenant's last record.
    pub fn end_of(&self, name: &TenantId) -> Option<i64> {
        self.of.get(name)?.back().map(|run| run.end)
    }

    /// A tenant's runs, in the order of their offsets.
    pub fn runs_of(&self, name: &TenantId) -> Vec<Run> {
        self.of.get(name).into_iter().flatten().copied().collect()
    }

    fn note(&mut self, name: TenantId, offset: i64, time: UnixMillis, bytes: u64) {
        let runs = self.of.entry(name).or_default();
        if let Some(last) = runs.back_mut()
            && last.end == offset
            && last.end - last.first < CENSUS_RUN_RECORDS_MAX
        {
            last.end = offset + 1;
            last.oldest = last.oldest.min(time);
            last.bytes += bytes;
            return;
        }
        runs.push_back(Run {
            first: offset,
            end: offset + 1,
            oldest: time,
            bytes,
        });
        self.runs += 1;
    }

    /// Takes it that of a tenant's records within these offsets only `left` are there.
    pub(super) fn replace(&mut self, name: &TenantId, within: &Range<i64>, left: &[BatchRecord]) {
        let old = self.of.remove(name).unwrap_or_default();
        self.runs -= old.len();
        let (before, rest): (Vec<Run>, Vec<Run>) =
            old.into_iter().partition(|run| run.end <= within.start);
        let behind: Vec<Run> = rest
            .into_iter()
            .filter(|run| run.first >= within.end)
            .collect();
        self.runs += before.len() + behind.len();
        self.of.insert(name.clone(), before.into());
        for record in left {
            self.note(name.clone(), record.offset, record.timestamp, size(record));
        }
        let runs = self.of.entry(name.clone()).or_default();
        runs.extend(behind);
        self.of.retain(|_, runs| !runs.is_empty());
    }

    /// Forgets what cannot be read any more.
    fn forget_before(&mut self, start: i64) {
        for runs in self.of.values_mut() {
            while runs.front().is_some_and(|run| run.end <= start) {
                runs.pop_front();
                self.runs -= 1;
            }
            if let Some(first) = runs.front_mut() {
                first.first = first.first.max(start);
            }
        }
        self.of.retain(|_, runs| !runs.is_empty());
    }
}

impl Streams {
    /// Counts what is new in a shared partition.
    ///
    /// # Errors
    /// The store's, and `Limit` where so many tenants take turns that nobody can keep count.
    pub(crate) fn census(&self, partition: &Arc<Partition>) -> Result<(), StreamsError> {
        let mut censuses = self.censuses().lock();
        let census = censuses.entry(partition.number()).or_default();
        let start = partition.log_start_offset();
        census.forget_before(start);
        census.next = census.next.max(start);
        while census.next < partition.end_offset(Isolation::Uncommitted) {
            let batches = partition.read(Isolation::Uncommitted, census.next, READ_BYTES, true)?;
            if batches.is_empty() {
                break;
            }
            for batch in batches {
                let header = crate::batch::BatchHeader::read(&batch)?;
                for record in BatchRecords::of(&batch)? {
                    let record = record?;
                    let whose = whose(&record.headers);
                    if let Some(name) = whose.filter(|_| record.offset >= census.next) {
                        census.note(name, record.offset, record.timestamp, size(&record));
                    }
                }
                census.next = census.next.max(header.last_offset() + 1);
            }
            if census.runs > CENSUS_RUNS_MAX {
                return Err(StreamsError::Limit {
                    what: "runs of tenants' records in one shared partition",
                    max: CENSUS_RUNS_MAX as u64,
                });
            }
        }
        Ok(())
    }

    /// A tenant's runs in a shared partition.
    pub(crate) fn tenant_runs(
        &self,
        partition: &Arc<Partition>,
        name: &TenantId,
    ) -> Result<Vec<Run>, StreamsError> {
        self.census(partition)?;
        let censuses = self.censuses().lock();
        let census = censuses.get(&partition.number());
        Ok(census.map_or(Vec::new(), |census| census.runs_of(name)))
    }
}

/// The tenant that a record's headers name.
pub(crate) fn whose(headers: &[(String, Option<Bytes>)]) -> Option<TenantId> {
    headers.iter().find_map(|(name, value)| {
        let value = value
            .as_ref()
            .filter(|_| TENANT_HEADERS.contains(&&**name))?;
        std::str::from_utf8(value).ok()?.parse().ok()
    })
}

/// Bytes of key and value.
fn size(record: &BatchRecord) -> u64 {
    let (key, value) = (record.key.as_ref(), record.value.as_ref());
    (key.map_or(0, Bytes::len) + value.map_or(0, Bytes::len)) as u64
}

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
