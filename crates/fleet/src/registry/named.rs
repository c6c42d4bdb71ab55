//! Which manifests agents have: found by the hashes that they give, which may be theirs alone.
//!
//! An agent keeps the mark of the hash that its heartbeats say, and the key of the manifest that it
//! stands for; its row has both. What other agents of the same hash have is found by [`Names`], which
//! are made anew from agents at each start and are rid now and then of those that no agent says: in
//! rounds, of which each lock of the registry takes a piece.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;
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
    /// By the mark, in parts that are looked through one by one.
    parts: Vec<HashMap<Mark, Name>>,
    count: usize,
    keys: Vec<Key>,
    places: HashMap<Arc<str>, u32>,
    /// Places of keys that no hash leads to.
    free: Vec<u32>,
    round: u32,
}

/// What a hash stands for.
#[derive(Debug)]
struct Name {
    /// The key's place.
    place: u32,
    /// The last round in which an agent said it.
    round: u32,
}

/// A manifest's key, and how many hashes lead to it.
#[derive(Debug)]
struct Key {
    key: Arc<str>,
    names: u32,
}

impl Names {
    /// The key of the manifest that a hash stands for; it may be of one that is kept no more.
    pub fn get(&self, mark: Mark) -> Option<&Arc<str>> {
        let name = self.parts.get(part_of(mark))?.get(&mark)?;
        Some(&self.keys.get(name.place as usize)?.key)
    }

    /// How many hashes are known.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Notes what a hash stands for, unless there are `max` already: agents know it of themselves.
    fn enter(&mut self, mark: Mark, key: &Arc<str>, max: usize) {
        if self.parts.is_empty() {
            self.parts.resize_with(PARTS, HashMap::new);
        }
        let part = part_of(mark);
        if self.count >= max && !self.parts[part].contains_key(&mark) {
            return;
        }
        let place = self.place_of(key);
        self.keys[place as usize].names += 1;
        let round = self.round;
        match self.parts[part].insert(mark, Name { place, round }) {
            Some(before) => self.leave(before.place),
            None => self.count += 1,
        }
    }

    fn place_of(&mut self, key: &Arc<str>) -> u32 {
        if let Some(place) = self.places.get(key) {
            return *place;
        }
        let named = Key {
            key: key.clone(),
            names: 0,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.keys[place as usize] = named;
                place
            }
            None => {
                self.keys.push(named);
                // Fewer than agents, which are far fewer than 2^32.
                u32::try_from(self.keys.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.places.insert(key.clone(), place);
        place
    }

    /// Takes a hash from those that lead to a key, which goes with the last one.
    fn leave(&mut self, place: u32) {
        let named = &mut self.keys[place as usize];
        named.names -= 1;
        if named.names == 0 {
            self.places.remove(&named.key);
            named.key = Arc::default();
            self.free.push(place);
        }
    }

    /// Notes that an agent says this hash.
    fn say(&mut self, mark: Mark) {
        let part = self.parts.get_mut(part_of(mark));
        if let Some(name) = part.and_then(|part| part.get_mut(&mark)) {
            name.round = self.round;
        }
    }

    /// Forgets hashes of one part that no agent said in this round, but for those that are a key's own,
    /// and those whose key `is_kept` does not know.
    fn sweep(&mut self, part: usize, is_kept: impl Fn(&str) -> bool) {
        let Some(names) = self.parts.get_mut(part) else {
            return;
        };
        let mut left = Vec::new();
        let (keys, round) = (&self.keys, self.round);
        names.retain(|_, name| {
            let key = &*keys[name.place as usize].key;
            let stays = is_kept(key) && (name.round == round || manifest::is_former(key));
            if !stays {
                left.push(name.place);
            }
            stays
        });
        self.count -= left.len();
        left.into_iter().for_each(|place| self.leave(place));
    }
}

fn part_of(mark: Mark) -> usize {
    mark.number().cast_unsigned() as usize % PARTS
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

    /// Begins a round in which hashes that no agent says are forgotten.
    pub fn begin_round_of_names(&mut self) {
        self.names.round = self.names.round.wrapping_add(1);
    }

    /// Notes what agents after this one say, as many as one lock should last for; tells after whom to
    /// go on.
    pub fn note_names_said(&mut self, after: Option<&str>) -> Option<Arc<str>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let agents = self.agents.range::<str, _>((start, Bound::Unbounded));
        let (mut looked_at, mut last) = (0, None);
        for (id, agent) in agents.take(limits::LOOKED_AT_ONCE) {
            if let Some(mark) = agent.mark {
                self.names.say(mark);
            }
            looked_at += 1;
            last = Some(id);
        }
        last.filter(|_| looked_at == limits::LOOKED_AT_ONCE)
            .cloned()
    }

    /// Forgets hashes of one of [`PARTS`] parts that no agent said in this round.
    pub fn sweep_names(&mut self, part: usize) {
        let manifests = &self.manifests;
        self.names.sweep(part, |key| manifests.contains_key(key));
    }

    /// Takes a manifest over that is stored.
    pub(super) fn adopt_manifest(&mut self, key: Arc<str>, head: Arc<AgentManifest>) {
        if manifest::is_former(&key) {
            self.name_manifest(Mark::of(&key), &key);
        }
        self.manifests.entry(key).or_insert(head);
    }

    /// Forgets manifests that the database has no more. Agents that came to have them meanwhile are
    /// asked for them again. What hashes stood for them goes with the next round.
    pub fn forget_manifests(&mut self, keys: &[Arc<str>]) {
        let gone: HashSet<&Arc<str>> = keys.iter().collect();
        let is_new: HashSet<Arc<str>> = self.new_manifests.iter().map(|m| m.key.clone()).collect();
        let is_gone = |key: &Arc<str>| gone.contains(key) && !is_new.contains(key);
        self.manifests.retain(|key, _| !is_gone(key));
        for class in self.classes.values_mut() {
            class.seen.retain(|seen| !is_gone(&seen.hash));
        }
        self.seen.retain(|(_, seen)| !is_gone(&seen.hash));
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

/// Parts of the hashes: of two million agents' each has some thousands, a fraction of a millisecond's
/// work.
pub const PARTS: usize = 1_024;
