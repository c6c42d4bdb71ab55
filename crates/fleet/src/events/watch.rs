//! Who went missing and who came back, for the node that tells of it. Without IO.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use super::{Event, Kind};
use crate::agent::Agent;

/// An agent that was silent for longer than it may be, and how long it may be.
pub type Silent = (Arc<str>, Duration);

/// Who is missing as far as was told.
#[derive(Debug, Default)]
pub struct Watch {
    missing: HashSet<Arc<str>>,
    has_looked: bool,
}

impl Watch {
    /// Looks at all agents that were silent for longer than they may be; returns what to tell.
    /// `agent` is what is known of one now.
    ///
    /// The first look takes whoever has been missing for longer as told: by the node that looked
    /// before, or before the last start.
    pub fn look<'a>(
        &mut self,
        now: UnixMillis,
        silent: Vec<Silent>,
        agent: impl Fn(&str) -> Option<&'a Agent>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let mut missing = HashSet::new();
        for (id, patience) in silent {
            if !self.missing.contains(&id) {
                // It may have called, or be gone, since it was looked at.
                let Some(agent) = agent(&id) else { continue };
                let silence = now.since(agent.last_seen);
                if silence <= patience {
                    continue;
                }
                if self.has_looked || silence - patience < TAKEOVER {
                    let message = format!("silent for {} s", silence.as_secs());
                    events.push(Event::new(Kind::AgentMissing, Some(agent), message, now));
                }
            }
            missing.insert(id);
        }
        for agent in self.missing.difference(&missing).filter_map(|id| agent(id)) {
            let message = "it calls again".to_owned();
            events.push(Event::new(Kind::AgentBack, Some(agent), message, now));
        }
        self.missing = missing;
        self.has_looked = true;
        events
    }

    /// Another node looks now.
    pub fn rest(&mut self) {
        *self = Watch::default();
    }
}

/// How long it takes at most until another node looks.
const TAKEOVER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(90);

    fn silent(agents: &[Agent], now: UnixMillis) -> Vec<Silent> {
        let silent = agents.iter().filter(|a| now.since(a.last_seen) > PATIENCE);
        silent.map(|agent| (agent.id.clone(), PATIENCE)).collect()
    }

    fn known<'a>(agents: &'a [Agent]) -> impl Fn(&str) -> Option<&'a Agent> {
        move |id| agents.iter().find(|agent| *agent.id == *id)
    }

    #[test]
    fn who_called_since_it_was_looked_at_is_not_missing_and_who_is_gone_is_not_back() {
        let mut agents = vec![Agent::new(Arc::from("a"), UnixMillis(0))];
        let mut watch = Watch::default();
        let now = UnixMillis(91_000);
        let before = silent(&agents, now);
        agents[0].last_seen = now;
        assert!(watch.look(now, before.clone(), known(&agents)).is_empty());
        agents[0].last_seen = UnixMillis(0);
        assert_eq!(watch.look(now, before, known(&agents)).len(), 1);
        agents.clear();
        assert!(watch.look(now, Vec::new(), known(&agents)).is_empty());
    }

    #[test]
    fn each_absence_and_return_is_told_once() {
        let mut agents: Vec<Agent> = ["a", "b"]
            .map(|id| Agent::new(Arc::from(id), UnixMillis(0)))
            .into();
        let mut watch = Watch::default();
        let mut look = |agents: &[Agent], second: i64| {
            let now = UnixMillis(second * 1_000);
            let events = watch.look(now, silent(agents, now), known(agents));
            let told = events.iter().map(|event| {
                format!(
                    "{} {}",
                    event.agent.as_deref().unwrap(),
                    event.kind.as_str()
                )
            });
            told.collect::<Vec<_>>()
        };
        assert!(look(&agents, 90).is_empty());
        assert_eq!(look(&agents, 91), ["a agent-missing", "b agent-missing"]);
        assert!(look(&agents, 92).is_empty(), "once");
        agents[0].last_seen = UnixMillis(93_000);
        assert_eq!(look(&agents, 93), ["a agent-back"]);
        assert_eq!(look(&agents, 184), ["a agent-missing"]);
    }

    #[test]
    fn what_was_told_before_is_not_told_by_who_takes_over() {
        let agents = [Agent::new(Arc::from("a"), UnixMillis(0))];
        let look = |now: UnixMillis| {
            let silent = silent(&agents, now);
            Watch::default().look(now, silent, known(&agents))
        };
        assert!(look(UnixMillis(1_000_000)).is_empty());
        let soon = look(UnixMillis(100_000));
        assert_eq!(soon.len(), 1, "the node before may not have told");
    }
}
