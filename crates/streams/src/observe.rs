//! The store's metrics, gathered when somebody asks, so that they cost nothing at rest.
//!
//! A store may have a hundred thousand topics and a collector keeps every series it ever saw, so
//! what is told by topic, partition or group is bounded: totals are always there, single topics
//! up to [`MetricsConfig::topics_max`], those with the most traffic first. A topic that was told
//! once stays told until it is deleted, so that its counters have no holes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use base::{Exposition, MetricKind};
use kafka_protocol::ResponseError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::groups::GroupState;
use crate::partition::Figures;
use crate::store::Streams;
use crate::telemetry::{ErrorCounts, ListenerFigures, Telemetry};
use crate::topics::Topic;

/// How much the metrics tell; every field has a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Most topics told one by one.
    pub topics_max: usize,
    /// Most partitions of these topics told one by one.
    pub partitions_max: usize,
    /// Most lags of a group and a partition.
    pub lags_max: usize,
}

/// The topics that are told one by one.
#[derive(Debug, Default)]
pub(crate) struct ToldTopics(Mutex<BTreeSet<Uuid>>);

/// A family's name and help, and its value of each thing that it tells of.
type Column<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// A topic that is told, with what it has taken and given.
struct Told {
    topic: std::sync::Arc<Topic>,
    records_in: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Streams {
    /// Writes all metrics of the store and its Kafka listeners.
    pub fn observe(&self, out: &mut Exposition) {
        let telemetry = self.telemetry();
        write_listeners(out, telemetry);
        write_requests(out, telemetry);
        write_traffic(out, telemetry);
        self.write_topics(out);
        self.write_groups(out);
        self.write_transactions(out);
        self.write_journal(out);
    }

    /// Whether a failed write or sync has stopped the store until it is opened again.
    pub fn is_poisoned(&self) -> bool {
        self.shared().journal.is_poisoned()
    }

    fn write_topics(&self, out: &mut Exposition) {
        let topics = self.topics_snapshot();
        let mut stored = 0;
        let mut partitions = 0;
        let mut told = Vec::with_capacity(topics.len());
        for topic in topics
            .into_iter()
            .filter(|topic| !topic.name().is_internal())
        {
            let info = topic.info();
            stored += info.bytes_stored.unwrap_or_default();
            partitions += info.partition_offsets.len();
            let bytes_out = topic.partitions().iter().map(|p| p.fetched_bytes());
            told.push(Told {
                records_in: info.records_in_total,
                bytes_in: info.bytes_in_total.unwrap_or_default(),
                bytes_out: bytes_out.sum(),
                topic,
            });
        }
        let count = told.len() as f64;
        out.gauge("thalweg_streams_topics", "Topics.", count);
        out.gauge(
            "thalweg_streams_partitions",
            "Partitions of all topics.",
            partitions as f64,
        );
        let help = "Bytes of record batches that all topics hold.";
        out.gauge("thalweg_streams_stored_bytes", help, stored as f64);
        let told = self.choose(told);
        write_each_topic(out, &told);
        self.write_each_partition(out, &told);
    }

    /// Those that are told one by one, by name.
    fn choose(&self, mut all: Vec<Told>) -> Vec<Told> {
        let max = self.config().metrics.topics_max;
        let mut chosen = self.told_topics().0.lock();
        let there: BTreeSet<Uuid> = all.iter().map(|told| told.topic.id()).collect();
        chosen.retain(|id| there.contains(id));
        all.sort_by_key(|told| std::cmp::Reverse(told.bytes_in + told.bytes_out));
        for told in &all {
            if chosen.len() >= max {
                break;
            }
            chosen.insert(told.topic.id());
        }
        all.retain(|told| chosen.contains(&told.topic.id()));
        all.sort_by(|a, b| a.topic.name().cmp(b.topic.name()));
        all
    }

    fn write_each_partition(&self, out: &mut Exposition, told: &[Told]) {
        let max = self.config().metrics.partitions_max;
        let mut rows = Vec::new();
        'all: for Told { topic, .. } in told {
            for partition in topic.partitions() {
                if rows.len() == max {
                    break 'all;
                }
                let name = topic.name().display();
                rows.push((name, partition.index().to_string(), partition.figures()));
            }
        }
        let families: [Column<Figures, f64>; 3] = [
            (
                "thalweg_streams_partition_start_offset",
                "First offset that can be read.",
                |of| of.offsets.start as f64,
            ),
            (
                "thalweg_streams_partition_end_offset",
                "Offset that the next visible record will have.",
                |of| of.offsets.end as f64,
            ),
            (
                "thalweg_streams_partition_stored_bytes",
                "Bytes of record batches that the partition holds.",
                |of| of.bytes_stored as f64,
            ),
        ];
        for (name, help, value) in families {
            let mut family = out.family(MetricKind::Gauge, name, help);
            for (topic, partition, figures) in &rows {
                family.value(
                    &[("topic", topic), ("partition", partition)],
                    value(figures),
                );
            }
        }
    }

    fn write_groups(&self, out: &mut Exposition) {
        let mut states: BTreeMap<&'static str, u32> = BTreeMap::new();
        for state in STATES {
            states.insert(state.name(), 0);
        }
        for group in self.list_groups() {
            *states.entry(group.state.name()).or_insert(0) += 1;
        }
        let help = "Consumer groups by state.";
        let mut family = out.family(MetricKind::Gauge, "thalweg_streams_groups", help);
        for (state, count) in states {
            family.value(&[("state", state)], f64::from(count));
        }
        let members = self.groups().members_count() as f64;
        out.gauge(
            "thalweg_streams_group_members",
            "Members of all groups.",
            members,
        );
        let lags = self.lags();
        let mut by_topic: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for lag in &lags {
            *by_topic
                .entry((&lag.group, lag.topic.display()))
                .or_insert(0) += lag.records;
        }
        let help = "Records that the group has not yet committed, of all partitions of the topic.";
        let mut family = out.family(MetricKind::Gauge, "thalweg_streams_group_lag_records", help);
        for ((group, topic), records) in by_topic {
            family.value(&[("group", group), ("topic", topic)], records as f64);
        }
        let help = "Records that the group has not yet committed.";
        let name = "thalweg_streams_group_partition_lag_records";
        let mut family = out.family(MetricKind::Gauge, name, help);
        for lag in &lags {
            let partition = lag.partition.to_string();
            let labels = [
                ("group", &*lag.group),
                ("topic", lag.topic.display()),
                ("partition", &*partition),
            ];
            family.value(&labels, lag.records as f64);
        }
    }

    fn write_transactions(&self, out: &mut Exposition) {
        let counts = self.transactions().table.lock().counts(self.clock().now());
        let help = "Transactions that are open, or decided and not yet written everywhere.";
        let mut family = out.family(MetricKind::Gauge, "thalweg_streams_transactions", help);
        family.value(&[("state", "open")], counts.open as f64);
        family.value(&[("state", "ending")], counts.ending as f64);
        let help = "Open transactions that should have been aborted by their time-out; they hold \
                    back read_committed consumers.";
        out.gauge(
            "thalweg_streams_transactions_overdue",
            help,
            counts.overdue as f64,
        );
        out.gauge(
            "thalweg_streams_transactional_ids",
            "Transactional ids.",
            counts.ids as f64,
        );
    }

    fn write_journal(&self, out: &mut Exposition) {
        let journal = &self.shared().journal;
        let telemetry = journal.telemetry();
        let help = "Time that the disk took for a sync, each of which answers all who wait.";
        out.histogram(
            "thalweg_streams_journal_sync_seconds",
            help,
            &telemetry.sync_seconds.read(),
        );
        let help = "Bytes that the journal wrote at once.";
        out.histogram(
            "thalweg_streams_journal_commit_bytes",
            help,
            &telemetry.commit_bytes.read(),
        );
        let help = "Calls that one sync of the journal answered.";
        let name = "thalweg_streams_journal_commit_calls";
        out.histogram(name, help, &telemetry.commit_calls.read());
        let help = "Commits of requests that came alone, done by the thread that serves them.";
        let name = "thalweg_streams_journal_carried_total";
        let carried = telemetry.carried.load(Ordering::Relaxed);
        out.counter(name, help, carried);
        let segments = journal.segments().len() as f64;
        out.gauge(
            "thalweg_streams_journal_segments",
            "Files of the journal.",
            segments,
        );
        let bytes = journal.bytes_on_disk() as f64;
        let help = "Bytes that the journal takes on the disk, what is reserved included.";
        out.gauge("thalweg_streams_journal_bytes", help, bytes);
        let help = "1 when a failed write or sync has stopped the store until its next start.";
        let poisoned = f64::from(u8::from(self.is_poisoned()));
        out.gauge("thalweg_streams_journal_poisoned", help, poisoned);
        if let Ok((bytes, free)) = journal.disk_room() {
            let help = "Size of the file system that holds the store.";
            out.gauge("thalweg_streams_disk_bytes", help, bytes as f64);
            let help = "Free bytes of the file system that holds the store.";
            out.gauge("thalweg_streams_disk_free_bytes", help, free as f64);
        }
    }
}

fn write_listeners(out: &mut Exposition, telemetry: &Telemetry) {
    let listeners = telemetry.listeners();
    let help = "Open connections of Kafka clients.";
    let mut family = out.family(MetricKind::Gauge, "thalweg_streams_kafka_connections", help);
    for of in &listeners {
        family.value(&[("listener", of.name)], of.open.get() as f64);
    }
    let families: [Column<ListenerFigures, u64>; 3] = [
        (
            "thalweg_streams_kafka_connections_total",
            "Connections of Kafka clients that were accepted.",
            |of| of.accepted.get(),
        ),
        (
            "thalweg_streams_kafka_received_bytes_total",
            "Bytes that Kafka clients sent.",
            |of| of.bytes_in.get(),
        ),
        (
            "thalweg_streams_kafka_sent_bytes_total",
            "Bytes that Kafka clients were sent.",
            |of| of.bytes_out.get(),
        ),
    ];
    for (name, help, value) in families {
        let mut family = out.family(MetricKind::Counter, name, help);
        for of in &listeners {
            family.value(&[("listener", of.name)], value(of) as f64);
        }
    }
    let help = "Connections of Kafka clients that were closed for a request that cannot be \
                answered.";
    let refused = telemetry.refused.get();
    out.counter(
        "thalweg_streams_kafka_refused_requests_total",
        help,
        refused,
    );
    let help = "Requests after which a Kafka client was held back for its quota.";
    let throttled = telemetry.throttled.get();
    out.counter(
        "thalweg_streams_kafka_throttled_requests_total",
        help,
        throttled,
    );
}

fn write_requests(out: &mut Exposition, telemetry: &Telemetry) {
    let help = "Requests of Kafka clients.";
    let mut family = out.family(
        MetricKind::Counter,
        "thalweg_streams_kafka_requests_total",
        help,
    );
    for api in &telemetry.apis {
        family.value(&[("api", api.name)], api.requests.get() as f64);
    }
    let help = "Time from a whole request to its answer, waiting for records, members or the disk \
                included.";
    let name = "thalweg_streams_kafka_request_seconds";
    let mut family = out.family(MetricKind::Histogram, name, help);
    // An API that nobody uses would be twenty lines of zeros.
    let used = || telemetry.apis.iter().filter(|api| api.requests.get() > 0);
    for api in used() {
        family.histogram(&[("api", api.name)], &api.total.read());
    }
    let help = "Of the time from a request to its answer, that until the request was read and had \
                its effect in memory.";
    let name = "thalweg_streams_kafka_request_local_seconds";
    let mut family = out.family(MetricKind::Histogram, name, help);
    for api in used() {
        family.histogram(&[("api", api.name)], &api.local.read());
    }
    let help = "Partitions that a Produce or Fetch was refused for, by Kafka's error.";
    let mut family = out.family(
        MetricKind::Counter,
        "thalweg_streams_kafka_errors_total",
        help,
    );
    let mut write = |api: &str, counts: &ErrorCounts| {
        for (code, count) in counts.all() {
            let error = error_name(code);
            family.value(&[("api", api), ("error", &error)], count as f64);
        }
    };
    write("Produce", &telemetry.produce_errors);
    write("Fetch", &telemetry.fetch_errors);
    let help = "Fetches that had to wait for records.";
    let waits = telemetry.fetch_waits.get();
    out.counter("thalweg_streams_kafka_fetch_waits_total", help, waits);
    let help = "Fetches that wait for records now.";
    let waiting = telemetry.fetches_waiting.get() as f64;
    out.gauge("thalweg_streams_kafka_waiting_fetches", help, waiting);
}

fn write_traffic(out: &mut Exposition, telemetry: &Telemetry) {
    let counters = [
        (
            "thalweg_streams_appended_records_total",
            "Records that partitions took.",
            &telemetry.records,
        ),
        (
            "thalweg_streams_appended_bytes_total",
            "Bytes of record batches that partitions took.",
            &telemetry.bytes,
        ),
        (
            "thalweg_streams_duplicate_batches_total",
            "Batches that idempotent producers sent again and that were stored already.",
            &telemetry.duplicates,
        ),
        (
            "thalweg_streams_fetched_bytes_total",
            "Bytes of record batches that Kafka clients fetched.",
            &telemetry.fetched_bytes,
        ),
    ];
    for (name, help, counter) in counters {
        out.counter(name, help, counter.get());
    }
}

fn write_each_topic(out: &mut Exposition, told: &[Told]) {
    let families: [Column<Told, u64>; 3] = [
        (
            "thalweg_streams_topic_appended_records_total",
            "Records that the topic took since it was created.",
            |of| of.records_in,
        ),
        (
            "thalweg_streams_topic_appended_bytes_total",
            "Bytes of record batches that the topic took since it was created.",
            |of| of.bytes_in,
        ),
        (
            "thalweg_streams_topic_fetched_bytes_total",
            "Bytes of the topic's record batches that Kafka clients fetched.",
            |of| of.bytes_out,
        ),
    ];
    for (name, help, value) in families {
        let mut family = out.family(MetricKind::Counter, name, help);
        for of in told {
            family.value(&[("topic", of.topic.name().display())], value(of) as f64);
        }
    }
}

/// Kafka's name of an error, such as `NOT_LEADER_OR_FOLLOWER`.
fn error_name(code: i16) -> String {
    let Some(error) = ResponseError::try_from_code(code) else {
        return code.to_string();
    };
    let mut name = String::new();
    for letter in format!("{error:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    // `Unknown(135)` of a code that the codec does not know.
    name.retain(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    name
}

impl Default for MetricsConfig {
    fn default() -> Self {
        MetricsConfig {
            topics_max: 100,
            partitions_max: 1_000,
            lags_max: 1_000,
        }
    }
}

const STATES: [GroupState; 6] = [
    GroupState::Empty,
    GroupState::PreparingRebalance,
    GroupState::CompletingRebalance,
    GroupState::Assigning,
    GroupState::Reconciling,
    GroupState::Stable,
];
