//! Who went missing and who came back, for the node that tells of it. Without IO.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use super::{Event, Kind};
use crate::agent::Agent;

/// Who is missing as far as was told.
#[derive(Debug, Default)]
pub struct Watch {
    missing: HashSet<Arc<str>>,
    has_looked: bool,
}

impl Watch {
    /// Looks at all agents, each with the silence that it may keep; returns what to tell.
    ///
    /// The first look takes whoever has been missing for longer as told: by the node that looked
    /// before, or before the last start.
    pub fn look<'a>(
        &mut self,
        now: UnixMillis,
        agents: impl Iterator<Item = (&'a Agent, Duration)>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let mut missing = HashSet::new();
        for (agent, patience) in agents {
            let silence = now.since(agent.last_seen);
            let was_missing = self.missing.contains(&agent.id);
            if silence > patience {
                missing.insert(agent.id.clone());
                let is_news = self.has_looked || silence - patience < TAKEOVER;
                if !was_missing && is_news {
                    let message = format!("silent for {} s", silence.as_secs());
                    events.push(Event::new(Kind::AgentMissing, Some(agent), message, now));
                }
            } else if was_missing {
                let message = "it calls again".to_owned();
                events.push(Event::new(Kind::AgentBack, Some(agent), message, now));
            }
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

    #[test]
    fn each_absence_and_return_is_told_once() {
        let patience = Duration::from_secs(90);
        let mut agents: Vec<Agent> = ["a", "b"]
            .map(|id| Agent::new(Arc::from(id), UnixMillis(0)))
            .into();
        let mut watch = Watch::default();
        let mut look = |agents: &[Agent], second: i64| {
            let all = agents.iter().map(|agent| (agent, patience));
            let events = watch.look(UnixMillis(second * 1_000), all);
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
        let all = || agents.iter().map(|agent| (agent, Duration::from_secs(90)));
        assert!(
            Watch::default()
                .look(UnixMillis(1_000_000), all())
                .is_empty()
        );
        let soon = Watch::default().look(UnixMillis(100_000), all());
        assert_eq!(soon.len(), 1, "the node before may not have told");
    }
}
