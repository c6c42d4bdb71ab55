//! When each agent is missed, in a row that is quick to look through: a million agents are looked at
//! every second. Without IO.
//!
//! A time may be earlier than the agent is missed, never later: whoever finds that it passed looks at
//! the agent itself.

use std::sync::Arc;

use base::UnixMillis;

use crate::agent::Agent;
use crate::config::FleetConfig;
use crate::limits;

/// The times, each at its agent's place.
#[derive(Debug, Default)]
pub struct Due {
    /// Milliseconds; [`NEVER`] at a free place.
    at: Vec<i64>,
    /// Whether it was told that the agent is missing.
    missed: Vec<bool>,
    ids: Vec<Arc<str>>,
    free: Vec<u32>,
    /// Whether all agents were looked at since [`Due::forget`].
    pub has_looked: bool,
}

impl Due {
    /// Gives an agent a place.
    pub fn enter(&mut self, id: &Arc<str>, at: UnixMillis) -> u32 {
        if let Some(place) = self.free.pop() {
            self.at[place as usize] = at.0;
            self.ids[place as usize] = id.clone();
            return place;
        }
        self.at.push(at.0);
        self.missed.push(false);
        self.ids.push(id.clone());
        (self.at.len() - 1) as u32
    }

    /// Sets when an agent is missed that called, or was heard of.
    pub fn follow(&mut self, agent: &Agent, config: &FleetConfig) {
        self.set(agent.place, agent.last_seen + config.patience(agent));
    }

    fn set(&mut self, place: u32, at: UnixMillis) {
        self.at[place as usize] = at.0;
    }

    /// Makes an agent's place free.
    pub fn leave(&mut self, place: u32) {
        let index = place as usize;
        self.at[index] = NEVER;
        self.missed[index] = false;
        self.ids[index] = Arc::default();
        self.free.push(place);
    }

    /// Notes whether it was told that an agent is missing.
    pub fn tell(&mut self, place: u32, is_missing: bool) {
        self.missed[place as usize] = is_missing;
    }

    /// Forgets what was told: another node tells now.
    pub fn forget(&mut self) {
        if std::mem::take(&mut self.has_looked) {
            self.missed.fill(false);
        }
    }

    /// The agents from a place on whose time says another thing at `now` than was told, and whether
    /// it says that they are missing; and where to go on. Looks at `count` places at the most, and
    /// finds a thousand agents.
    pub fn changed(
        &self,
        from: usize,
        count: usize,
        now: UnixMillis,
    ) -> (Vec<(Arc<str>, bool)>, Option<usize>) {
        let mut end = self.at.len().min(from.saturating_add(count));
        let places = self.at.get(from..end).unwrap_or_default().iter();
        let told = self.missed.get(from..end).unwrap_or_default();
        let changed = places.zip(told).enumerate();
        let changed = changed.filter(|(_, (at, missed))| (**at < now.0) != **missed);
        let mut found = Vec::new();
        for (index, (_, missed)) in changed {
            found.push((self.ids[from + index].clone(), !missed));
            if found.len() >= limits::LOOKED_AT_ONCE {
                end = from + index + 1;
                break;
            }
        }
        (found, (end < self.at.len()).then_some(end))
    }
}

const NEVER: i64 = i64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_found_and_places_are_used_again() {
        let mut due = Due::default();
        let ids: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).into();
        let places: Vec<u32> = (0..)
            .zip(&ids)
            .map(|(n, id)| due.enter(id, UnixMillis(n * 10)))
            .collect();
        let found = |due: &Due, now: i64| {
            let (found, next) = due.changed(0, 10, UnixMillis(now));
            assert_eq!(next, None);
            let named = found.iter().map(|(id, is)| format!("{id} {is}"));
            named.collect::<Vec<_>>()
        };
        assert_eq!(found(&due, 15), ["a true", "b true"]);
        due.tell(places[0], true);
        assert_eq!(found(&due, 15), ["b true"]);
        due.set(places[0], UnixMillis(100));
        assert_eq!(found(&due, 15), ["a false", "b true"]);
        due.leave(places[0]);
        assert_eq!(found(&due, 15), ["b true"]);
        let d: Arc<str> = Arc::from("d");
        assert_eq!(due.enter(&d, UnixMillis(1)), places[0]);
        assert_eq!(found(&due, 15), ["d true", "b true"]);
        due.tell(places[1], true);
        due.has_looked = true;
        due.forget();
        assert_eq!(found(&due, 15), ["d true", "b true"]);
    }

    #[test]
    fn a_long_row_is_looked_through_in_pieces() {
        let mut due = Due::default();
        for n in 0..25 {
            due.enter(&Arc::from(n.to_string()), UnixMillis(n));
        }
        let (mut from, mut seen, mut pieces) = (Some(0), 0, 0);
        while let Some(at) = from {
            let (found, next) = due.changed(at, 10, UnixMillis(1_000));
            (seen, pieces, from) = (seen + found.len(), pieces + 1, next);
        }
        assert_eq!((seen, pieces), (25, 3));
        assert_eq!(due.changed(99, 10, UnixMillis(0)), (Vec::new(), None));
        for n in 0..2 * limits::LOOKED_AT_ONCE {
            due.enter(&Arc::from(n.to_string()), UnixMillis(0));
        }
        let (found, next) = due.changed(0, usize::MAX, UnixMillis(1_000));
        assert_eq!(
            (found.len(), next),
            (limits::LOOKED_AT_ONCE, Some(limits::LOOKED_AT_ONCE))
        );
    }
}
