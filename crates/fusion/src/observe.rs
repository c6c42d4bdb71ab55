//! Metrics by statement, gathered when somebody asks. A collector keeps every series that it ever
//! saw, so at most [`STATEMENTS_TOLD_MAX`] statements are told, those with the most events first.

use base::{Exposition, MetricKind};

use crate::fusion::Fusion;
use crate::limits::STATEMENTS_TOLD_MAX;
use crate::statement::StatementInfo;

impl Fusion {
    /// Writes the metrics that are not counted where they happen.
    pub fn observe(&self, out: &mut Exposition) {
        out.gauge(
            "thalweg_fusion_journal_poisoned",
            "1 when a failed write or sync has stopped the statements' journal or a durable \
             statement's input until the next start",
            f64::from(u8::from(self.is_poisoned())),
        );
        let mut infos = self.statements();
        infos.sort_by_key(|info| std::cmp::Reverse(info.received_total));
        infos.truncate(STATEMENTS_TOLD_MAX);
        for (kind, name, help, value) in FIGURES {
            let mut family = out.family(*kind, name, help);
            for info in &infos {
                if let Some(value) = value(info) {
                    family.value(&[("statement", &info.name)], value);
                }
            }
        }
        let help = "Events of the statement by what became of them; their sum is what it received";
        let name = "thalweg_fusion_statement_events";
        let mut family = out.family(MetricKind::Gauge, name, help);
        for info in &infos {
            for (outcome, count) in [
                ("filtered", info.filtered_total),
                ("emitted_from", info.emitted_from_total),
                ("errored", info.errored_total),
                ("late", info.late_total),
                ("dropped", info.dropped_total),
                ("in_flight", info.in_flight),
            ] {
                let labels = [("statement", info.name.as_str()), ("outcome", outcome)];
                family.value(&labels, count as f64);
            }
        }
    }
}

/// Kind, name and meaning of a metric, and its value, where it has one.
type Figure = (
    MetricKind,
    &'static str,
    &'static str,
    fn(&StatementInfo) -> Option<f64>,
);

const FIGURES: &[Figure] = &[
    (
        MetricKind::Counter,
        "thalweg_fusion_statement_received_total",
        "Events that the statement took",
        |info| Some(info.received_total as f64),
    ),
    (
        MetricKind::Counter,
        "thalweg_fusion_statement_rows_total",
        "Rows that the statement's sinks took",
        |info| Some(info.emitted_total as f64),
    ),
    (
        MetricKind::Gauge,
        "thalweg_fusion_statement_waiting_rows",
        "Rows that wait for the statement's sinks",
        |info| Some(info.waiting_rows as f64),
    ),
    (
        MetricKind::Gauge,
        "thalweg_fusion_statement_state_bytes",
        "Bytes of the statement's keyed state, about",
        |info| Some(info.state_bytes as f64),
    ),
    (
        MetricKind::Counter,
        "thalweg_fusion_statement_cpu_seconds_total",
        "Time spent in computing the statement, estimated from every 32nd event",
        |info| Some(info.cpu_seconds_total),
    ),
    (
        MetricKind::Counter,
        "thalweg_fusion_statement_polls_total",
        "Requests for events to the statement's HTTP servers",
        |info| info.polls.as_ref().map(|polls| polls.asked_total as f64),
    ),
    (
        MetricKind::Counter,
        "thalweg_fusion_statement_polls_failed_total",
        "Requests for events that failed",
        |info| info.polls.as_ref().map(|polls| polls.failed_total as f64),
    ),
    (
        MetricKind::Gauge,
        "thalweg_fusion_statement_latency_p50_seconds",
        "Half of the last minutes' rows took no longer from their computing to the sink",
        |info| info.latency_p50_us.map(|us| us as f64 / 1e6),
    ),
    (
        MetricKind::Gauge,
        "thalweg_fusion_statement_latency_p99_seconds",
        "99 of 100 of the last minutes' rows took no longer from their computing to the sink",
        |info| info.latency_p99_us.map(|us| us as f64 / 1e6),
    ),
];
