//! Metrics by rule, gathered when somebody asks.

use base::{Exposition, MetricKind};

use crate::rules::{RuleStatus, Rules};

impl Rules {
    /// Writes the metrics of every rule.
    pub fn observe(&self, out: &mut Exposition) {
        let rules = self.list();
        for (kind, name, help, value) in FIGURES {
            let mut family = out.family(*kind, name, help);
            for rule in &rules {
                family.value(&[("rule", &rule.rule.name)], value(rule) as f64);
            }
        }
    }
}

/// Kind, name and meaning of a metric, and its value.
type Figure = (
    MetricKind,
    &'static str,
    &'static str,
    fn(&RuleStatus) -> u64,
);

const FIGURES: &[Figure] = &[
    (
        MetricKind::Counter,
        "thalweg_mqtt_rule_taken_total",
        "Messages or records that the rule took",
        |rule| rule.taken_total,
    ),
    (
        MetricKind::Counter,
        "thalweg_mqtt_rule_passed_total",
        "Messages or records that the rule brought where they should be",
        |rule| rule.passed_total,
    ),
    (
        MetricKind::Counter,
        "thalweg_mqtt_rule_refused_total",
        "Messages or records without a legal topic, too large or expired",
        |rule| rule.refused_total,
    ),
    (
        MetricKind::Counter,
        "thalweg_mqtt_rule_looped_total",
        "Messages or records that had been there before",
        |rule| rule.looped_total,
    ),
    (
        MetricKind::Gauge,
        "thalweg_mqtt_rule_waiting_messages",
        "Messages that wait for the event store",
        |rule| rule.waiting,
    ),
];
