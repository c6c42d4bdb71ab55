//! What can be configured of the statement engine, with its defaults.

use std::time::Duration;

use base::HumanDuration;
use serde::{Deserialize, Serialize};

use crate::limits::{GROUPS_MAX, STATEMENTS_MAX};

/// The statement engine's part of the configuration (`fusion.…`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FusionConfig {
    /// How often changed state is checkpointed, at most; a large state less often.
    pub checkpoint_interval: HumanDuration,
    /// How long after its end by the wall clock a window without newer events is closed.
    pub close_delay: HumanDuration,
    /// Most open groups of one statement.
    pub groups_max: usize,
    /// Most statements.
    pub statements_max: usize,
}

impl Default for FusionConfig {
    fn default() -> Self {
        FusionConfig {
            checkpoint_interval: HumanDuration(Duration::from_secs(1)),
            close_delay: HumanDuration(Duration::from_millis(500)),
            groups_max: GROUPS_MAX,
            statements_max: STATEMENTS_MAX,
        }
    }
}

impl FusionConfig {
    /// All that is wrong with the values, one line each, in the keys' names.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.checkpoint_interval.0 < Duration::from_millis(10) {
            problems.push("fusion.checkpoint_interval: at least 10ms".to_owned());
        }
        if self.close_delay.0 > Duration::from_secs(3_600) {
            problems.push("fusion.close_delay: at most 1h".to_owned());
        }
        if self.groups_max == 0 || self.groups_max > GROUPS_MAX {
            problems.push(format!("fusion.groups_max: 1 to {GROUPS_MAX}"));
        }
        if self.statements_max == 0 || self.statements_max > STATEMENTS_MAX {
            problems.push(format!("fusion.statements_max: 1 to {STATEMENTS_MAX}"));
        }
        problems
    }
}
