//! Which manifests agents have: found by the hashes that they give, which may be theirs alone.
//!
//! An agent keeps the mark of the hash that its heartbeats say, and the key of the manifest that it
//! stands for; its row has both. What other agents of the same hash have is found by [`Names`], which
//! are made anew from agents at each start and are rid now and then of those that no agent says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base::UnixMillis;
use c2::AgentManifest;

use super::Registry;
use crate::agent::Agent;
use crate::events::{Event, Kind};
use crate::limits;
use crate::manifest::{self, Brought, Known, Mark};

/// The manifests' keys by the marks of agents' hashes: some 16 bytes each.
#[derive(Debug, Default)]
pub struct Names {
    by_mark: HashMap<Mark, u32>,
    keys: Vec<Arc<str>>,
    places: HashMap<Arc<str>, u32>,
}

impl Names {
    /// The key of the manifest that a hash stands for.
    pub fn get(&self, mark: Mark) -> Option<&Arc<str>> {
        self.keys.get(*self.by_mark.get(&mark)? as usize)
    }

    /// How many hashes are known.
    pub fn len(&self) -> usize {
        self.by_mark.len()
    }

    /// Notes what a hash stands for, unless there are `max` already: agents know it of themselves.
    fn enter(&mut self, mark: Mark, key: &Arc<str>, max: usize) {
        if self.by_mark.len() >= max && !self.by_mark.contains_key(&mark) {
            return;
        }
        let place = match self.places.get(key) {
            Some(place) => *place,
            None => {
                // Fewer than agents, which are far fewer than 2^32.
                let place = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
                self.keys.push(key.clone());
                self.places.insert(key.clone(), place);
                place
            }
        };
        self.by_mark.insert(mark, place);
    }

    /// Forgets hashes that `is_used` does not know, and keys that none leads to.
    fn sweep(&mut self, is_used: impl Fn(Mark, &str) -> bool) {
        let before = std::mem::take(self);
        for (mark, place) in &before.by_mark {
            if let Some(key) = before.keys.get(*place as usize)
                && is_used(*mark, key)
            {
                self.enter(*mark, key, usize::MAX);
            }
        }
    }
}

impl Registry {
    /// The key of a manifest that is kept, by what its sender says of it.
    pub fn known_manifest(&self, sender: Option<&str>, by: Known<'_>) -> Option<Arc<str>> {
        let key = match by {
            Known::Key(key) => key,
            Known::Mark(mark) => {
                let agent = sender.and_then(|sender| self.agents.get(sender));
                let own = agent.filter(|agent| agent.mark == Some(mark));
                let own = own.and_then(|agent| agent.manifest.as_ref());
                own.or_else(|| self.names.get(mark))?
            }
        };
        let (key, _) = self.manifests.get_key_value(key)?;
        Some(key.clone())
    }

    /// The key of a manifest by what an operator calls it: that, or an agent's hash.
    pub fn manifest_named(&self, name: &str) -> Option<Arc<str>> {
        self.known_manifest(None, Known::Key(name))
            .or_else(|| self.known_manifest(None, Known::Mark(Mark::of(name))))
    }

    /// Keeps a manifest that `sender` brought; its key, and whether it is new. None where it is not
    /// kept: there are too many, or too many new ones of this sender.
    pub(super) fn shelve(
        &mut self,
        sender: &Arc<str>,
        brought: Brought,
        now: UnixMillis,
    ) -> Option<(Arc<str>, bool)> {
        if let Some((key, _)) = self.manifests.get_key_value(&brought.key) {
            return Some((key.clone(), false));
        }
        let new = brought.new?;
        if self.manifests.len() >= limits::MANIFESTS_MAX || !self.may_add(sender, "manifests", now)
        {
            metrics::counter!("thalweg_fleet_manifests_not_kept_total").increment(1);
            return None;
        }
        let key = new.key.clone();
        self.manifests.insert(key.clone(), new.head.clone());
        self.new_manifests.push(new);
        Some((key, true))
    }

    /// Notes what a hash stands for.
    pub(super) fn name_manifest(&mut self, mark: Mark, key: &Arc<str>) {
        let max = self.names_max();
        self.names.enter(mark, key, max);
    }

    fn names_max(&self) -> usize {
        limits::NAMES_SPARE + 2 * self.agents.len()
    }

    /// Whether there are so many hashes that those which no agent says should go.
    pub fn has_idle_names(&self) -> bool {
        self.names.len() >= self.names_max() - limits::NAMES_SPARE / 2
    }

    /// Forgets hashes that are not among those that agents say.
    pub fn sweep_names(&mut self, said: &HashSet<Mark>) {
        let is_kept = |key: &str| self.manifests.contains_key(key);
        self.names
            .sweep(|mark, key| is_kept(key) && (said.contains(&mark) || manifest::is_former(key)));
    }

    /// Takes a manifest over that is stored.
    pub(super) fn adopt_manifest(&mut self, key: Arc<str>, head: Arc<AgentManifest>) {
        if manifest::is_former(&key) {
            self.name_manifest(Mark::of(&key), &key);
        }
        self.manifests.entry(key).or_insert(head);
    }

    /// Forgets manifests that the database has no more. Agents that came to have them meanwhile are
    /// asked for them again.
    pub fn forget_manifests(&mut self, keys: &[Arc<str>]) {
        let gone: HashSet<&Arc<str>> = keys.iter().collect();
        let is_new: HashSet<Arc<str>> = self.new_manifests.iter().map(|m| m.key.clone()).collect();
        let is_gone = |key: &Arc<str>| gone.contains(key) && !is_new.contains(key);
        self.manifests.retain(|key, _| !is_gone(key));
        for class in self.classes.values_mut() {
            class.seen.retain(|seen| !is_gone(&seen.hash));
        }
        self.seen.retain(|(_, seen)| !is_gone(&seen.hash));
        let manifests = &self.manifests;
        self.names.sweep(|_, key| manifests.contains_key(key));
    }

    /// The manifests that a class needs: those by its rules, and the one that it is held to.
    pub fn manifests_of_classes(&self) -> HashSet<Arc<str>> {
        let mut needed = HashSet::new();
        for class in self.classes.values() {
            let known = || class.seen.iter().filter(|s| self.knows_manifest(&s.hash));
            let first = known().min_by_key(|seen| seen.first);
            let last = known().max_by_key(|seen| seen.last);
            needed.extend(first.into_iter().chain(last).map(|seen| seen.hash.clone()));
            let held = class.resolution.as_ref().and_then(|of| of.parts().1);
            needed.extend(held.cloned());
        }
        needed
    }

    /// Whether an agent may bring something new for all: a class, a manifest. Told once in a while
    /// where it may not.
    pub(super) fn may_add(&mut self, agent: &Arc<str>, what: &str, now: UnixMillis) -> bool {
        let (count, since) = self.novelties.entry(agent.clone()).or_insert((0, now));
        if now.since(*since) >= limits::NOVELTY_AGE {
            (*count, *since) = (0, now);
        }
        *count = count.saturating_add(1);
        if *count == limits::NOVELTIES_MAX + 1 {
            let max = limits::NOVELTIES_MAX;
            let message = format!(
                "it came with more than {max} new classes or manifests within an hour: no more \
                 {what} of it are taken for now"
            );
            let event = Event::new(Kind::AgentOverBounds, self.agents.get(agent), message, now);
            self.tell(event);
            return false;
        }
        *count <= limits::NOVELTIES_MAX
    }

    /// Forgets who brought something new long ago.
    pub fn forget_novelties(&mut self, now: UnixMillis) {
        self.novelties
            .retain(|_, (_, since)| now.since(*since) < limits::NOVELTY_AGE);
    }
}

impl Agent {
    /// Takes over what a heartbeat says of the manifest: the mark of its hash, and the key of what it
    /// brought. Tells whether the agent's row changes.
    ///
    /// A hash that is not known says that the agent is another one now, unless it came with a flow
    /// that the fleet gave: C++ agents have their flow in what they hash.
    pub(super) fn follow_manifest(
        &mut self,
        said: Option<Mark>,
        brought: Option<Arc<str>>,
        has_new_flow: bool,
        names: &Names,
        kept: &HashMap<Arc<str>, Arc<AgentManifest>>,
    ) -> bool {
        let Some(said) = said else {
            return false;
        };
        let is_kept = |key: &Arc<str>| kept.contains_key(key);
        let own = self.manifest.clone().filter(is_kept);
        let same = own.clone().filter(|_| self.mark == Some(said));
        let key = brought
            .or(same)
            .or_else(|| names.get(said).cloned().filter(is_kept))
            .or(own.filter(|_| has_new_flow));
        let changed = self.mark != Some(said) || self.manifest != key;
        self.mark = Some(said);
        self.manifest = key;
        changed
    }

    /// Whether a heartbeat tells of another flow than the one before, which the fleet gave the agent.
    pub(super) fn has_new_flow(&self, told: Option<&str>) -> bool {
        let is_new = told.is_some() && told != self.flow.as_deref();
        let mut given = self.operations.iter().filter(|op| op.attempts > 0);
        is_new && given.any(|op| op.flow.as_deref() == told)
    }
}
