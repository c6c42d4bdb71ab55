//! What heartbeats came to, by class and by agent. Without IO.
//!
//! The first classes and agents that call have series of their own, the others share one: a class's
//! under `agentId="other"`, those of all other classes under `agentClass="other"`, so that sums over
//! either label stay whole. A place is free again when its agent or class is removed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use crate::config::MetricsConfig;

/// All meters.
#[derive(Debug, Default)]
pub struct Meters {
    /// By class: its agents that have none of their own.
    pub classes: HashMap<Arc<str>, Meter>,
    /// Of the classes that have none of their own.
    pub rest: Meter,
    /// By agent.
    pub agents: HashMap<Arc<str>, AgentMeter>,
}

/// One agent's meter.
#[derive(Debug, Default)]
pub struct AgentMeter {
    /// Its class; empty while it has none.
    pub class: Arc<str>,
    /// What its heartbeats of that class came to.
    pub meter: Meter,
}

/// What heartbeats came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// Heartbeats.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The largest of late, bytes.
    pub bytes_peak: Peak,
    /// Time that they took to answer, seconds.
    pub seconds: f64,
    /// The longest of late, seconds.
    pub seconds_peak: Peak,
    /// The last one.
    pub last: UnixMillis,
}

/// The largest value of this minute and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    minute: i64,
    now: f64,
    before: f64,
}

/// One heartbeat.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    pub at: UnixMillis,
    pub bytes: usize,
    pub took: Duration,
}

impl Meters {
    /// Counts a heartbeat of `agent`.
    pub fn count(
        &mut self,
        limits: &MetricsConfig,
        agent: &Arc<str>,
        class: Option<&Arc<str>>,
        beat: Beat,
    ) {
        let class = class.map_or("", |class| &**class);
        self.meter(limits, agent, class).count(beat);
    }

    /// Forgets the agents and classes that are gone.
    pub fn retain(&mut self, agent: impl Fn(&str) -> bool, class: impl Fn(&str) -> bool) {
        self.agents.retain(|id, _| agent(id));
        self.classes
            .retain(|name, _| name.is_empty() || class(name));
    }

    fn meter(&mut self, limits: &MetricsConfig, agent: &Arc<str>, class: &str) -> &mut Meter {
        if !self.classes.contains_key(class) {
            if self.classes.len() >= limits.classes_max {
                return &mut self.rest;
            }
            self.classes.insert(Arc::from(class), Meter::default());
        }
        if !self.agents.contains_key(agent) && self.agents.len() >= limits.agents_max {
            return self.classes.get_mut(class).unwrap_or(&mut self.rest);
        }
        let of_agent = self.agents.entry(agent.clone()).or_default();
        if *of_agent.class != *class {
            *of_agent = AgentMeter {
                class: Arc::from(class),
                meter: Meter::default(),
            };
        }
        &mut of_agent.meter
    }
}

impl Meter {
    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Meter) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.bytes_peak.join(other.bytes_peak);
        self.seconds += other.seconds;
        self.seconds_peak.join(other.seconds_peak);
        self.last = self.last.max(other.last);
    }

    fn count(&mut self, beat: Beat) {
        self.count += 1;
        self.bytes += beat.bytes as u64;
        self.bytes_peak.raise(beat.at, beat.bytes as f64);
        self.seconds += beat.took.as_secs_f64();
        self.seconds_peak.raise(beat.at, beat.took.as_secs_f64());
        self.last = self.last.max(beat.at);
    }
}

impl Peak {
    /// The value at `now`.
    pub fn at(&self, now: UnixMillis) -> f64 {
        match now.0.div_euclid(MINUTE_MS) - self.minute {
            ..=0 => self.now.max(self.before),
            1 => self.now,
            _ => 0.0,
        }
    }

    fn join(&mut self, other: Peak) {
        let minute = self.minute.max(other.minute);
        let at = |peak: &Peak, minute: i64| match peak.minute - minute {
            0 => peak.now,
            1 => peak.before,
            _ => 0.0,
        };
        *self = Peak {
            minute,
            now: at(self, minute).max(at(&other, minute)),
            before: at(self, minute - 1).max(at(&other, minute - 1)),
        };
    }

    fn raise(&mut self, at: UnixMillis, value: f64) {
        let minute = at.0.div_euclid(MINUTE_MS);
        if minute > self.minute {
            self.before = match minute - self.minute {
                1 => self.now,
                _ => 0.0,
            };
            (self.minute, self.now) = (minute, 0.0);
        }
        self.now = self.now.max(value);
    }
}

const MINUTE_MS: i64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(second: i64, bytes: usize) -> Beat {
        Beat {
            at: UnixMillis(second * 1_000),
            bytes,
            took: Duration::from_millis(2),
        }
    }

    #[test]
    fn what_is_over_the_bounds_is_counted_together_and_removal_makes_room() {
        let limits = MetricsConfig {
            agents_max: 2,
            classes_max: 2,
            ..MetricsConfig::default()
        };
        let mut meters = Meters::default();
        for class in ["a", "b", "c"] {
            for agent in 0..3 {
                let id: Arc<str> = Arc::from(format!("{class}{agent}"));
                meters.count(&limits, &id, Some(&Arc::from(class)), beat(1, 10));
            }
        }
        let counts = |meters: &Meters| {
            let of_classes: u64 = meters.classes.values().map(|meter| meter.count).sum();
            (meters.agents.len(), of_classes, meters.rest.count)
        };
        assert_eq!(counts(&meters), (2, 4, 3));
        meters.retain(|agent| agent != "a0", |class| class != "b");
        assert_eq!(counts(&meters), (1, 1, 3));
        meters.count(
            &limits,
            &Arc::from("c9"),
            Some(&Arc::from("c")),
            beat(2, 10),
        );
        assert!(meters.agents.contains_key("c9"));
    }

    #[test]
    fn an_agent_that_changes_its_class_begins_anew_there() {
        let limits = MetricsConfig::default();
        let mut meters = Meters::default();
        let id: Arc<str> = Arc::from("a");
        meters.count(&limits, &id, None, beat(1, 10));
        meters.count(&limits, &id, Some(&Arc::from("edge")), beat(2, 20));
        let of_agent = &meters.agents["a"];
        assert_eq!((&*of_agent.class, of_agent.meter.bytes), ("edge", 20));
    }

    #[test]
    fn a_peak_is_of_the_last_two_minutes() {
        let mut peak = Peak::default();
        let at = |second: i64| UnixMillis(second * 1_000);
        peak.raise(at(600), 5.0);
        peak.raise(at(661), 3.0);
        assert_eq!(
            [661, 721, 781].map(|second| peak.at(at(second))),
            [5.0, 3.0, 0.0]
        );
    }
}
