//! Who went missing and who came back, for the node that tells of it.

use std::time::Duration;

use base::UnixMillis;

use super::Registry;
use crate::events::{Event, Kind};
use crate::limits;

/// What a look at some agents came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Where to go on; none: all were looked at.
    pub next: Option<usize>,
    /// Events told.
    pub told: usize,
}

impl Registry {
    /// Looks at agents from a place on, as many as one lock should last for: tells of each once
    /// when it has been silent for longer than it may be, and once when it calls again.
    ///
    /// The first look at all takes whoever has been missing for longer as told: by the node that
    /// looked before, or before the last start.
    pub fn look_for_missed(&mut self, from: usize, now: UnixMillis) -> Looked {
        let (changed, next) = self.due.changed(from, limits::DUE_LOOKED_AT_ONCE, now);
        let mut told = 0;
        for (id, is_missing) in changed {
            if !self.has_room_for_many_events() {
                // A whole site went away. The next look, a second later, finds the others.
                return Looked { next: None, told };
            }
            let Some(agent) = self.agents.get(&id) else {
                continue;
            };
            let patience = self.config.patience(agent);
            let silence = now.since(agent.last_seen);
            if is_missing && silence <= patience {
                self.due.follow(agent, &self.config);
                continue;
            }
            self.due.tell(agent.place, is_missing);
            let event = if !is_missing {
                Event::new(
                    Kind::AgentBack,
                    Some(agent),
                    "it calls again".to_owned(),
                    now,
                )
            } else if self.due.has_looked || silence - patience < TAKEOVER {
                Event::missing(agent, silence, now)
            } else {
                continue;
            };
            self.tell(event);
            told += 1;
        }
        self.due.has_looked |= next.is_none();
        Looked { next, told }
    }

    /// Another node tells who is missing now.
    pub fn forget_missed(&mut self) {
        self.due.forget();
    }
}

/// How long it takes at most until another node looks.
const TAKEOVER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::Agent;
    use crate::registry::News;
    use crate::sighting::Sighting;

    /// Agents that called at 0, and are missed after 90 s.
    fn registry(ids: &[&str]) -> Registry {
        let mut registry = Registry::default();
        let agents = ids
            .iter()
            .map(|id| Agent::new(Arc::from(*id), UnixMillis(0)));
        let agents = agents.collect();
        registry.adopt(News {
            agents,
            ..News::default()
        });
        registry
    }

    fn look(registry: &mut Registry, second: i64) -> Vec<String> {
        let looked = registry.look_for_missed(0, UnixMillis(second * 1_000));
        assert_eq!(looked.next, None);
        let events = registry.take_batch().events;
        assert_eq!(events.len(), looked.told);
        let told = events.iter().map(|event| {
            let agent = event.agent.as_deref().unwrap();
            format!("{agent} {}", event.kind.as_str())
        });
        told.collect()
    }

    fn call(registry: &mut Registry, agent: &str, second: i64) {
        let seen = Sighting {
            agent: Arc::from(agent),
            at: UnixMillis(second * 1_000),
            heartbeats: 1,
        };
        registry.adopt(News {
            sightings: vec![seen],
            ..News::default()
        });
    }

    #[test]
    fn each_absence_and_return_is_told_once() {
        let mut registry = registry(&["a", "b"]);
        assert!(look(&mut registry, 90).is_empty());
        let told = look(&mut registry, 91);
        assert_eq!(told, ["a agent-missing", "b agent-missing"]);
        assert!(look(&mut registry, 92).is_empty(), "once");
        call(&mut registry, "a", 93);
        assert_eq!(look(&mut registry, 93), ["a agent-back"]);
        assert!(look(&mut registry, 183).is_empty());
        assert_eq!(look(&mut registry, 184), ["a agent-missing"]);
    }

    #[test]
    fn who_is_gone_is_not_back_and_its_place_is_another_ones() {
        let mut registry = registry(&["a"]);
        assert_eq!(look(&mut registry, 91), ["a agent-missing"]);
        assert!(registry.remove("a"));
        assert!(look(&mut registry, 92).is_empty());
        let mut agent = Agent::new(Arc::from("b"), UnixMillis(0));
        agent.last_seen = UnixMillis(92_000);
        registry.adopt(News {
            agents: vec![agent],
            ..News::default()
        });
        assert!(look(&mut registry, 93).is_empty());
        assert_eq!(look(&mut registry, 183), ["b agent-missing"]);
    }

    #[test]
    fn when_a_whole_site_goes_away_each_agent_is_told_though_it_takes_several_looks() {
        let count = limits::EVENTS_QUEUED_MAX + 10;
        let ids: Vec<String> = (0..count).map(|n| format!("n{n}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut registry = registry(&ids);
        assert!(look(&mut registry, 1).is_empty(), "all are there");
        let mut told = std::collections::BTreeSet::new();
        for second in 91..94 {
            let mut from = Some(0);
            while let Some(at) = from {
                from = registry
                    .look_for_missed(at, UnixMillis(second * 1_000))
                    .next;
            }
            let events = registry.take_batch().events;
            assert!(events.len() <= limits::EVENTS_QUEUED_MAX / 2);
            told.extend(events.into_iter().filter_map(|event| event.agent));
        }
        assert_eq!(told.len(), count);
    }

    #[test]
    fn what_was_told_before_is_not_told_by_who_takes_over() {
        assert!(look(&mut registry(&["a"]), 1_000).is_empty());
        let soon = look(&mut registry(&["a"]), 100);
        assert_eq!(soon.len(), 1, "the node before may not have told");
        let mut again = registry(&["a"]);
        assert_eq!(look(&mut again, 91).len(), 1);
        again.forget_missed();
        assert!(look(&mut again, 1_000).is_empty(), "the other one has told");
    }

    #[test]
    fn a_shorter_patience_is_found_as_soon_as_it_is_over() {
        let mut registry = registry(&["a"]);
        let mut news = Agent::new(Arc::from("a"), UnixMillis(0));
        (news.last_seen, news.heartbeats, news.interval_ms) = (UnixMillis(20_000), 9, 5_000);
        registry.adopt(News {
            agents: vec![news],
            ..News::default()
        });
        assert!(look(&mut registry, 35).is_empty());
        assert_eq!(look(&mut registry, 36), ["a agent-missing"]);
    }
}
