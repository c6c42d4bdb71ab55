//! What operators want to know of groups: how many there are, and how far behind they are.
//!
//! Counted only when somebody asks, so that it costs nothing at rest.

use std::collections::{BTreeMap, BTreeSet};

use metrics::gauge;
use parking_lot::Mutex;

use crate::groups::GroupState;
use crate::limits::LAG_SERIES_MAX;
use crate::store::Streams;

/// The lags that were ever told, by group and topic: the collector goes on asking for each, so
/// one that is gone is told as zero, and at the bound no new one is told.
#[derive(Debug, Default)]
pub(crate) struct ToldLags(Mutex<BTreeSet<(String, String)>>);

impl Streams {
    /// How many records each group has not yet committed, by group and wire name of the topic;
    /// the first [`LAG_SERIES_MAX`] in the order of their names.
    pub fn lags(&self) -> BTreeMap<(String, String), u64> {
        let mut lags = BTreeMap::new();
        for group in self.groups_with_offsets() {
            for offset in self.committed_all(&group) {
                let key = (group.clone(), offset.topic.wire_name().to_owned());
                if lags.len() >= LAG_SERIES_MAX && !lags.contains_key(&key) {
                    return lags;
                }
                let topic = self.topic_by_name(&offset.topic);
                let Some(partition) = topic.as_ref().and_then(|t| t.partition(offset.partition))
                else {
                    continue;
                };
                // What has expired cannot be read any more, so it is no lag.
                let from = offset.committed.offset.max(partition.log_start_offset());
                let lag = partition.high_watermark().saturating_sub(from).max(0);
                *lags.entry(key).or_insert(0) += lag.unsigned_abs();
            }
        }
        lags
    }

    /// Brings the gauges of groups up to date; to be called when metrics are asked for.
    pub fn observe_groups(&self) {
        let mut states: BTreeMap<&'static str, u32> = BTreeMap::new();
        for state in STATES {
            states.insert(state.name(), 0);
        }
        for group in self.list_groups() {
            *states.entry(group.state.name()).or_insert(0) += 1;
        }
        for (state, count) in states {
            gauge!("thalweg_streams_groups_count", "state" => state).set(count);
        }
        let members = self.groups().members_count();
        gauge!("thalweg_streams_group_members_count").set(members as f64);
        let lags = self.lags();
        let mut told = self.told_lags().0.lock();
        for key in lags.keys() {
            if told.len() < LAG_SERIES_MAX {
                told.insert(key.clone());
            }
        }
        for key in told.iter() {
            let labels = [("group", key.0.clone()), ("topic", key.1.clone())];
            let lag = lags.get(key).copied().unwrap_or(0);
            gauge!("thalweg_streams_group_lag_records", &labels).set(lag as f64);
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
