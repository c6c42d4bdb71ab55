//! Slices that are read ahead: while those before them are committed, as long as there is room.

use std::fs::File;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use crate::error::ImportsError;
use crate::imports::Core;
use crate::job::Job;
use crate::keys::Selectors;
use crate::slice::{self, Reading, Slice, Start};

/// Slices that are read while those before them are committed.
pub(crate) struct Ahead {
    pub start: Start,
    /// Of the selectors that they are read for.
    pub revision: i64,
    pub slices: Slices,
    _room: OwnedSemaphorePermit,
}

/// Slices that follow each other.
pub(crate) enum Slices {
    Reading(JoinHandle<Result<Vec<Slice>, ImportsError>>),
    Read(Vec<Slice>),
}

/// What slices are read from.
#[derive(Clone)]
pub(crate) struct Source {
    pub file: Arc<File>,
    pub job: Arc<Job>,
    pub selectors: Arc<Selectors>,
}

impl Slices {
    pub async fn read(self) -> Result<Vec<Slice>, ImportsError> {
        let broke = |_| ImportsError::Read(std::io::Error::other("the reader broke off"));
        match self {
            Slices::Reading(reading) => reading.await.map_err(broke)?,
            Slices::Read(slices) => Ok(slices),
        }
    }
}

impl Source {
    /// Begins to read up to `count` slices.
    pub fn read(&self, start: Start, count: usize) -> Slices {
        let Source {
            file,
            job,
            selectors,
        } = self.clone();
        Slices::Reading(tokio::task::spawn_blocking(move || {
            let reading = Reading {
                format: job.format,
                profile: &job.profile,
                selectors: &selectors,
                job: &job.id,
                records_max: job.slice_records,
            };
            slice::read_some(&file, job.bytes_total, start, &reading, count)
        }))
    }
}

impl Core {
    /// What comes after `slices`: the `rest` of what was read with them, or else up to `count` that are
    /// begun to be read, if there are any and there is room for them.
    pub fn ahead_of(
        &self,
        slices: &[Slice],
        rest: Vec<Slice>,
        count: usize,
        source: Source,
    ) -> Option<Ahead> {
        let latest = slices.last().filter(|slice| !slice.last)?;
        let room = self.ahead.clone().try_acquire_owned().ok()?;
        let start = latest.next();
        let revision = source.selectors.revision;
        let slices = match rest.is_empty() {
            true => source.read(start, count),
            false => Slices::Read(rest),
        };
        Some(Ahead {
            start,
            revision,
            slices,
            _room: room,
        })
    }
}
