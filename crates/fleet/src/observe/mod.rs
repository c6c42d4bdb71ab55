//! The fleet's metrics, gathered when somebody asks.
//!
//! A collector keeps every series that it ever saw, so what is told by class or agent is bounded
//! (`fleet.metrics`), and agents' and classes' series end with them. Beside our own names stand
//! those that EFM's dashboards ask for; they have no label of the manifest, which would begin new
//! series with every new build of an agent.

mod counters;
mod described;
mod meters;
mod own;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::{Exposition, MetricKind, UnixMillis};

use crate::fleet::Fleet;

pub use counters::Counters;
pub use described::describe;
use meters::Meter;
pub use meters::{Beat, Meters};
use own::Told;

/// Agents of a class.
#[derive(Clone, Copy, Default)]
struct Count {
    online: usize,
    missing: usize,
}

/// Meters by class and agent; a class may have the name of what is over the bounds.
type Rows<'a> = BTreeMap<(&'a str, &'a str), Meter>;

impl Fleet {
    /// Writes the metrics that are not counted where they happen.
    pub fn observe(&self, out: &mut Exposition) {
        let inner = &self.inner;
        let now = inner.clock.now();
        let mut all: HashMap<Option<Arc<str>>, Count> = HashMap::new();
        inner.each_agent(|_, agent| {
            let count = all.entry(agent.class.clone()).or_default();
            match inner.is_online(agent, now) {
                true => count.online += 1,
                false => count.missing += 1,
            }
        });
        let (classes, manifests, events) = {
            let registry = inner.registry.lock();
            let counts = (registry.classes.len(), registry.manifests.len());
            (counts.0, counts.1, registry.events_waiting())
        };
        write_agents(out, all, inner.config.metrics.classes_max);
        out.gauge("thalweg_fleet_classes", "Classes.", classes as f64);
        out.gauge("thalweg_fleet_manifests", "Manifests.", manifests as f64);
        let help = "Events that wait to be written.";
        out.gauge("thalweg_fleet_events_waiting", help, events as f64);
        let held = f64::from(u8::from(inner.lease.held().is_some()));
        let help = "1 on the node that looks for time-outs and silent agents.";
        out.gauge("thalweg_fleet_leads", help, held);
        let waiting = inner.forward.waiting_bytes();
        let help = "Bytes that wait to be forwarded to topics.";
        out.gauge("thalweg_fleet_forward_waiting_bytes", help, waiting as f64);
        let help = "The end of our own certificate, seconds since 1970.";
        let name = "thalweg_fleet_certificate_end_seconds";
        let mut family = out.family(MetricKind::Gauge, name, help);
        for (port, own) in inner.own_certificates() {
            if let Some(until) = own.not_after {
                family.value(&[("port", port)], until.0 as f64 / 1e3);
            }
        }
        let told = self.measured(out, now);
        let left_out = own::write(out, &told, inner.config.metrics.agent_values_max);
        let help = "Agents' own values that are over the bound.";
        let name = "thalweg_fleet_agent_values_left_out";
        out.gauge(name, help, left_out as f64);
    }

    /// Writes what heartbeats came to; returns the last ones of the agents that are told apart.
    fn measured(&self, out: &mut Exposition, now: UnixMillis) -> Vec<Told> {
        let inner = &self.inner;
        let mut meters = inner.meters.lock();
        {
            let registry = inner.registry.lock();
            meters.retain(
                |id| registry.agents.contains_key(id),
                |class| registry.classes.contains_key(class),
            );
        }
        let mut rows = Rows::new();
        let of_agents = meters.agents.iter();
        let of_agents = of_agents.map(|(id, of)| ((&*of.class, &**id), &of.meter));
        let of_classes = meters.classes.iter();
        let of_classes = of_classes.map(|(class, meter)| ((&**class, OTHER), meter));
        let rest = ((OTHER, OTHER), &meters.rest);
        for (labels, meter) in of_agents.chain(of_classes).chain([rest]) {
            if meter.count > 0 {
                rows.entry(labels).or_default().add(meter);
            }
        }
        write_meters(out, &rows, now);
        let ids: Vec<Arc<str>> = meters.agents.keys().cloned().collect();
        drop(meters);
        let mut told: Vec<Told> = ids.into_iter().filter_map(|id| self.told(id)).collect();
        told.sort_by(|a, b| (&a.class, &a.agent).cmp(&(&b.class, &b.agent)));
        told
    }

    fn told(&self, id: Arc<str>) -> Option<Told> {
        let (class, last) = {
            let registry = self.inner.registry.lock();
            let agent = registry.agents.get(&id)?;
            let class = agent.class.as_deref().unwrap_or_default().to_owned();
            (class, agent.last.clone()?)
        };
        Some(Told {
            class,
            heartbeat: Box::new(last.read()?),
            agent: id,
        })
    }
}

/// Agents in all, and those of the largest classes; the others' together.
fn write_agents(out: &mut Exposition, all: HashMap<Option<Arc<str>>, Count>, classes_max: usize) {
    let help = "Agents that call in time, and those that do not.";
    let mut family = out.family(MetricKind::Gauge, "thalweg_fleet_agents", help);
    let sum = |of: fn(&Count) -> usize| all.values().map(of).sum::<usize>() as f64;
    family.value(&[("state", "online")], sum(|count| count.online));
    family.value(&[("state", "missing")], sum(|count| count.missing));
    let mut classes: Vec<(Option<Arc<str>>, Count)> = all.into_iter().collect();
    // Those without a class stay in sight.
    classes.sort_by(|(a, of_a), (b, of_b)| {
        let size = |of: &Count| of.online + of.missing;
        (a.is_some(), size(of_b), a).cmp(&(b.is_some(), size(of_a), b))
    });
    let mut named: BTreeMap<&str, Count> = BTreeMap::new();
    for (index, (class, count)) in classes.iter().enumerate() {
        let name = match index < classes_max {
            true => class.as_deref().unwrap_or_default(),
            false => OTHER,
        };
        let of_name = named.entry(name).or_default();
        of_name.online += count.online;
        of_name.missing += count.missing;
    }
    let help = "The same by class; an empty class is that of the agents without one.";
    let mut family = out.family(MetricKind::Gauge, "thalweg_fleet_class_agents", help);
    for (class, count) in named {
        for (state, value) in [("online", count.online), ("missing", count.missing)] {
            family.value(&[("class", class), ("state", state)], value as f64);
        }
    }
}

/// The names that EFM has.
fn write_meters(out: &mut Exposition, rows: &Rows<'_>, now: UnixMillis) {
    let help = "Heartbeats.";
    let mut family = out.family(MetricKind::Counter, "efm_heartbeat_count_total", help);
    for (of, meter) in rows {
        family.value(&labels(of), meter.count as f64);
    }
    let help = "The last heartbeat, seconds since 1970.";
    let name = "efm_heartbeat_lastSeenTime_seconds";
    let mut family = out.family(MetricKind::Gauge, name, help);
    for (of, meter) in rows {
        family.value(&labels(of), meter.last.0 as f64 / 1e3);
    }
    let help = "Bytes of heartbeats.";
    let mut family = out.family(MetricKind::Summary, "efm_heartbeat_contentLength", help);
    for (of, meter) in rows {
        family.summary(&labels(of), meter.bytes as f64, meter.count);
    }
    let help = "The largest heartbeat of the last two minutes, bytes.";
    let mut family = out.family(MetricKind::Gauge, "efm_heartbeat_contentLength_max", help);
    for (of, meter) in rows {
        family.value(&labels(of), meter.bytes_peak.at(now));
    }
    let help = "Time that heartbeats took to answer.";
    let mut family = out.family(MetricKind::Summary, "efm_heartbeat_time_seconds", help);
    for (of, meter) in rows {
        family.summary(&labels(of), meter.seconds, meter.count);
    }
    let help = "The longest of the last two minutes.";
    let mut family = out.family(MetricKind::Gauge, "efm_heartbeat_time_seconds_max", help);
    for (of, meter) in rows {
        family.value(&labels(of), meter.seconds_peak.at(now));
    }
}

fn labels<'a>((class, agent): &(&'a str, &'a str)) -> [(&'static str, &'a str); 2] {
    [("agentClass", class), ("agentId", agent)]
}

/// The label of what is over the bounds.
const OTHER: &str = "other";

#[cfg(test)]
#[path = "../observe_tests.rs"]
mod tests;
