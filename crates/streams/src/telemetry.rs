//! What the store and its listeners count while they work.
//!
//! A count is one addition to an atomic number that was found once; nothing is looked up,
//! allocated or locked for it. What can be read off the store's state is not counted here but
//! gathered when somebody asks (`observe.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use base::{Histogram, LinesPerMinute, UnixMillis};
use parking_lot::Mutex;

use crate::limits::REFUSALS_LOGGED_PER_MINUTE;

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

/// A number of things that are there now.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicI64);

/// All counts of a store.
#[derive(Debug)]
pub(crate) struct Telemetry {
    /// Records, bytes and repeated batches that partitions took.
    pub(crate) records: Counter,
    pub(crate) bytes: Counter,
    pub(crate) duplicates: Counter,
    /// Bytes of batches that fetches were answered with.
    pub(crate) fetched_bytes: Counter,
    /// Fetches that had to wait for records, ever and now.
    pub(crate) fetch_waits: Counter,
    pub(crate) fetches_waiting: Gauge,
    /// By the index in the table of APIs.
    pub(crate) apis: Vec<ApiFigures>,
    /// Partitions that produces and fetches were refused for, by Kafka's code.
    pub(crate) produce_errors: ErrorCounts,
    pub(crate) fetch_errors: ErrorCounts,
    /// Requests and connections that were closed without an answer.
    pub(crate) refused: Counter,
    /// Requests after which a client was held back for its quota.
    pub(crate) throttled: Counter,
    listeners: Mutex<Vec<Arc<ListenerFigures>>>,
    /// Refusals of clients and their connections that are in the log.
    logged: Mutex<LinesPerMinute>,
}

/// The requests of one API.
#[derive(Debug)]
pub(crate) struct ApiFigures {
    pub(crate) name: &'static str,
    pub(crate) requests: Counter,
    /// From the whole request to its answer.
    pub(crate) total: Histogram,
    /// Of that the time in which the request was read and had its effect in memory.
    pub(crate) local: Histogram,
}

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct ListenerFigures {
    pub(crate) name: &'static str,
    pub(crate) open: Gauge,
    pub(crate) accepted: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
}

/// Counts by Kafka's error code.
#[derive(Debug)]
pub(crate) struct ErrorCounts(Box<[AtomicU64]>);

impl Counter {
    pub(crate) fn increment(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more until the guard is dropped.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Held(self)
    }
}

impl ListenerFigures {
    /// One more connection, until what it answers is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        self.accepted.increment(1);
        self.open.0.fetch_add(1, Ordering::Relaxed);
        Entered(Arc::clone(self))
    }
}

/// A connection that a listener counts.
pub(crate) struct Entered(Arc<ListenerFigures>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.open.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One of what a gauge tells of.
pub(crate) struct Held<'g>(&'g Gauge);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Telemetry {
    /// Counts for the APIs of these names.
    pub(crate) fn new(apis: impl Iterator<Item = &'static str>) -> Self {
        let apis = apis.map(|name| ApiFigures {
            name,
            requests: Counter::default(),
            total: Histogram::of_durations(),
            local: Histogram::of_durations(),
        });
        Telemetry {
            records: Counter::default(),
            bytes: Counter::default(),
            duplicates: Counter::default(),
            fetched_bytes: Counter::default(),
            fetch_waits: Counter::default(),
            fetches_waiting: Gauge::default(),
            apis: apis.collect(),
            produce_errors: ErrorCounts::default(),
            fetch_errors: ErrorCounts::default(),
            refused: Counter::default(),
            throttled: Counter::default(),
            listeners: Mutex::default(),
            logged: Mutex::default(),
        }
    }

    /// Whether one more refusal of a client or its connection is logged.
    pub(crate) fn logs_refusal(&self, now: UnixMillis) -> bool {
        let mut logged = self.logged.lock();
        logged.admits(now, REFUSALS_LOGGED_PER_MINUTE)
    }

    /// The counts of the listener of this name, new ones for a new name.
    pub(crate) fn listener(&self, name: &'static str) -> Arc<ListenerFigures> {
        let mut listeners = self.listeners.lock();
        if let Some(known) = listeners.iter().find(|listener| listener.name == name) {
            return Arc::clone(known);
        }
        let listener = Arc::new(ListenerFigures {
            name,
            open: Gauge::default(),
            accepted: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
        });
        listeners.push(Arc::clone(&listener));
        listener
    }

    /// All listeners that ever opened.
    pub(crate) fn listeners(&self) -> Vec<Arc<ListenerFigures>> {
        self.listeners.lock().clone()
    }

    /// A request of an API was answered.
    pub(crate) fn note_answer(&self, api: Option<usize>, total: Duration, local: Duration) {
        if let Some(api) = api.and_then(|index| self.apis.get(index)) {
            api.total.record_duration(total);
            api.local.record_duration(local);
        }
    }
}

impl ErrorCounts {
    /// Counts a code; zero is no error.
    pub(crate) fn note(&self, code: i16) {
        if code != 0 {
            let at = usize::try_from(code).map_or(0, |code| code.min(self.0.len() - 1));
            self.0[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The codes that were counted; -1 is Kafka's unknown error.
    pub(crate) fn all(&self) -> Vec<(i16, u64)> {
        let counts = self.0.iter().zip(0_i16..);
        let told = counts.map(|(count, code)| {
            let code = if code == 0 { -1 } else { code };
            (code, count.load(Ordering::Relaxed))
        });
        told.filter(|(_, count)| *count > 0).collect()
    }
}

impl Default for ErrorCounts {
    fn default() -> Self {
        ErrorCounts((0..ERROR_CODES_MAX).map(|_| AtomicU64::new(0)).collect())
    }
}

/// Codes that are told apart: Kafka knows about 135.
const ERROR_CODES_MAX: usize = 160;
