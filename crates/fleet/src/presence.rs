//! How often agents call, and since when they are missed. Without IO.

use std::time::Duration;

use base::UnixMillis;

use crate::agent::Agent;
use crate::config::FleetConfig;

impl Agent {
    /// Learns from a call that comes now how often the agent calls: an average that a single
    /// outage moves by a quarter at most.
    pub fn learn_interval(&mut self, now: UnixMillis) {
        if self.heartbeats == 0 {
            return;
        }
        let gap = u32::try_from(now.since(self.last_seen).as_millis()).unwrap_or(u32::MAX);
        let known = self.interval_ms;
        self.interval_ms = match known {
            _ if gap == 0 => known,
            0 => gap,
            _ if gap / 3 > known => known.saturating_add(known / 4 + 1),
            _ => known - known / 8 + gap / 8,
        };
    }
}

impl FleetConfig {
    /// How long this agent may be silent before it counts as missing: by the interval that is set
    /// for its class, or else by the one that its calls show, or else by the general one.
    pub(crate) fn patience(&self, agent: &Agent) -> Duration {
        let class = agent.class.as_deref();
        let own = class.and_then(|class| self.class_heartbeat_intervals.get(class));
        let learned = Duration::from_millis(u64::from(agent.interval_ms));
        let interval = match own {
            Some(own) => own.0,
            None if agent.heartbeats >= HEARTBEATS_LEAST && !learned.is_zero() => {
                learned.clamp(INTERVAL_MIN, INTERVAL_MAX)
            }
            None => self.heartbeat_interval.0,
        };
        interval.saturating_mul(self.missing_after_intervals)
    }

    /// Whether any agents are removed for their silence.
    pub(crate) fn cleans_up(&self) -> bool {
        let mut all = self.class_agent_cleanup_after.values();
        !self.agent_cleanup_after.0.is_zero() || all.any(|after| !after.0.is_zero())
    }

    /// How long an agent may be missing before it is removed; `None`: for ever.
    pub(crate) fn cleanup_after(&self, class: Option<&str>) -> Option<Duration> {
        let own = class.and_then(|class| self.class_agent_cleanup_after.get(class));
        let after = own.unwrap_or(&self.agent_cleanup_after).0;
        (!after.is_zero()).then_some(after)
    }
}

/// Calls from which on their interval is believed.
const HEARTBEATS_LEAST: u64 = 4;

/// Agents call once a second at the most often, and once an hour at the least.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::HumanDuration;

    use super::*;

    fn calls(agent: &mut Agent, every: u64, times: u32) {
        for _ in 0..times {
            let now = agent.last_seen + Duration::from_millis(every);
            agent.learn_interval(now);
            agent.last_seen = now;
            agent.heartbeats += 1;
        }
    }

    #[test]
    fn an_interval_is_learned_kept_through_outages_and_learned_anew() {
        let mut agent = Agent::new(Arc::from("a"), UnixMillis(0));
        let mut config = FleetConfig::default();
        assert_eq!(config.patience(&agent), Duration::from_secs(90));
        agent.heartbeats = 1;
        calls(&mut agent, 5_000, 20);
        let patience = config.patience(&agent).as_millis();
        assert!((14_000..16_000).contains(&patience), "{patience}");
        calls(&mut agent, 600_000, 1);
        let patience = config.patience(&agent).as_millis();
        assert!((14_000..20_000).contains(&patience), "{patience}");
        calls(&mut agent, 60_000, 60);
        let patience = config.patience(&agent).as_millis();
        assert!((150_000..190_000).contains(&patience), "{patience}");
        agent.class = Some(Arc::from("edge"));
        let ten = HumanDuration(Duration::from_secs(10));
        config
            .class_heartbeat_intervals
            .insert("edge".to_owned(), ten);
        assert_eq!(
            config.patience(&agent),
            Duration::from_secs(30),
            "what is set counts"
        );
    }
}
