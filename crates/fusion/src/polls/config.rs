//! How servers are asked for events (`fusion.polls.…`).

use std::time::Duration;

use base::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::limits::{INJECT_BYTES_MAX, POLL_PAUSE_MAX, POLL_PAUSE_MIN, POLL_WAIT_MAX};

/// Bounds on asking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PollsConfig {
    /// How often a statement asks that reads the answers itself, from one request to the next.
    pub interval: HumanDuration,
    /// Rows ask an address at most this often.
    pub gap: HumanDuration,
    /// Longest wait for a whole answer.
    pub timeout: HumanDuration,
    /// Largest answer.
    pub answer_max: ByteSize,
}

impl Default for PollsConfig {
    fn default() -> Self {
        PollsConfig {
            interval: HumanDuration(Duration::from_secs(10)),
            gap: HumanDuration(Duration::from_secs(1)),
            timeout: HumanDuration(Duration::from_secs(10)),
            answer_max: ByteSize(256 << 10),
        }
    }
}

impl PollsConfig {
    /// All that is wrong with the values, one line each, in the keys' names.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let spans = [
            ("interval", &self.interval, POLL_PAUSE_MAX),
            ("gap", &self.gap, POLL_PAUSE_MAX),
            ("timeout", &self.timeout, POLL_WAIT_MAX),
        ];
        for (key, span, most) in spans {
            if span.0 < POLL_PAUSE_MIN || span.0 > most {
                let (least, most) = (HumanDuration(POLL_PAUSE_MIN), HumanDuration(most));
                problems.push(format!("fusion.polls.{key}: {least} to {most}"));
            }
        }
        let most = ByteSize(INJECT_BYTES_MAX as u64);
        if self.answer_max.0 == 0 || self.answer_max.0 > most.0 {
            problems.push(format!("fusion.polls.answer_max: 1B to {most}"));
        }
        problems
    }

    /// The time from one request to the next.
    pub fn pause(&self, is_timed: bool) -> Duration {
        match is_timed {
            true => self.interval.0,
            false => self.gap.0,
        }
    }
}
