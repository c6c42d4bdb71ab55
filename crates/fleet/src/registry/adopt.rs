//! What other nodes changed comes into this node's memory, and what it heard goes out to them.

use std::sync::Arc;

use base::UnixMillis;
use c2::{AgentManifest, Operand, OperationKind};

use super::{Batch, Class, Flow, Registry, Resolution, SeenManifest};
use crate::agent::Agent;
use crate::limits;
use crate::manifest::{Known, Mark};
use crate::operation::FleetOperation;
use crate::rollout::Rollout;
use crate::sighting::Sighting;

/// What other nodes changed.
#[derive(Debug, Default)]
pub struct News {
    /// The feed's number up to which this is.
    pub seq: i64,
    /// Flow versions, by class and version.
    pub flows: Vec<Flow>,
    /// Roll-outs, oldest first.
    pub rollouts: Vec<Rollout>,
    /// Classes.
    pub classes: Vec<ClassRow>,
    /// Manifests that agents of classes had.
    pub seen: Vec<(Arc<str>, SeenManifest)>,
    /// How classes' manifests are found; none: by the general rule.
    pub resolutions: Vec<(Arc<str>, Option<Resolution>)>,
    /// Manifests that were removed; what came after that is among the others.
    pub removed_manifests: Vec<Arc<str>>,
    /// Manifests' heads.
    pub manifests: Vec<(Arc<str>, Arc<AgentManifest>)>,
    /// Agents.
    pub agents: Vec<Agent>,
    /// Operations with their agents, oldest first.
    pub operations: Vec<(Arc<str>, FleetOperation)>,
    /// Which agents called when.
    pub sightings: Vec<Sighting>,
    /// Agents that were removed.
    pub removed: Vec<Arc<str>>,
    /// Roll-outs that were removed.
    pub removed_rollouts: Vec<Arc<str>>,
    /// Requests of which how many agents may be at them changed.
    pub requests: Vec<Arc<str>>,
    /// Classes that were removed; what came after that is among the others.
    pub removed_classes: Vec<Arc<str>>,
}

/// A class as the database has it.
#[derive(Debug)]
pub struct ClassRow {
    /// Its name.
    pub name: Arc<str>,
    /// When it appeared.
    pub created: UnixMillis,
    /// An operator's words; none where they are not told.
    pub description: Option<Arc<str>>,
    /// The flow that it wants.
    pub flow: Option<Arc<str>>,
    /// The roll-out that decides which of its agents get which flow.
    pub rollout: Option<Arc<str>>,
}

impl News {
    /// The same in pieces, each as much as one lock of the registry should last for: first what is about
    /// all, then agents, then their operations, then when they called.
    pub fn pieces(mut self) -> impl Iterator<Item = News> {
        let agents = std::mem::take(&mut self.agents);
        let operations = std::mem::take(&mut self.operations);
        let sightings = std::mem::take(&mut self.sightings);
        let agents = chunks(agents).map(|agents| News {
            agents,
            ..News::default()
        });
        let operations = chunks(operations).map(|operations| News {
            operations,
            ..News::default()
        });
        let sightings = chunks(sightings).map(|sightings| News {
            sightings,
            ..News::default()
        });
        let first = std::iter::once(self);
        first.chain(agents).chain(operations).chain(sightings)
    }
}

fn chunks<T>(items: Vec<T>) -> impl Iterator<Item = Vec<T>> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || {
        let chunk: Vec<T> = items.by_ref().take(limits::LOOKED_AT_ONCE).collect();
        (!chunk.is_empty()).then_some(chunk)
    })
}

impl Registry {
    /// Takes over what other nodes changed. The order and number of times make no difference.
    pub fn adopt(&mut self, news: News) {
        for id in &news.removed {
            self.remove(id);
        }
        for id in &news.removed_rollouts {
            self.rollouts.remove(id);
        }
        for name in &news.removed_classes {
            self.remove_class(name);
        }
        for flow in news.flows {
            self.add_flow(flow);
        }
        for rollout in news.rollouts {
            self.adopt_rollout(rollout);
        }
        for row in news.classes {
            self.adopt_class(row);
        }
        for (class, seen) in news.seen {
            if let Some(class) = self.classes.get_mut(&class) {
                class.adopt_seen(seen);
            }
        }
        for (class, resolution) in news.resolutions {
            if let Some(class) = self.classes.get_mut(&class) {
                class.resolution = resolution;
            }
        }
        if !news.removed_manifests.is_empty() {
            self.forget_manifests(&news.removed_manifests);
        }
        for (key, head) in news.manifests {
            self.adopt_manifest(key, head);
        }
        for mut agent in news.agents {
            if let (Some(mark), Some(key)) = (agent.mark, &agent.manifest) {
                self.name_manifest(mark, key);
                if !self.describing.is_empty() {
                    self.describing.remove(&mark.word());
                }
            }
            match self.agents.get_mut(&agent.id) {
                Some(known) => {
                    let (id, before) = (known.id.clone(), known.class.clone());
                    let event = known.join(&agent);
                    self.due.follow(known, &self.config);
                    if known.class != before {
                        self.file(&id, before.as_ref());
                    }
                    if let Some(event) = event {
                        self.tell(event);
                    }
                }
                None => {
                    let id = agent.id.clone();
                    let due = agent.last_seen + self.config.patience(&agent);
                    agent.place = self.due.enter(&id, due);
                    self.agents.insert(id.clone(), agent);
                    self.file(&id, None);
                }
            }
        }
        for (owner, operation) in news.operations {
            self.adopt_operation(&owner, operation);
        }
        for seen in news.sightings {
            if let Some(agent) = self.agents.get_mut(&seen.agent)
                && seen.at > agent.last_seen
            {
                agent.last_seen = seen.at;
                agent.heartbeats += u64::from(seen.heartbeats);
                self.due.follow(agent, &self.config);
            }
        }
    }

    /// Forgets new operations that were not written, because another agent describes the same.
    pub fn refuse_claims(&mut self, refused: &[Arc<str>]) {
        for id in refused {
            let Some(owner) = self.owners.remove(id) else {
                continue;
            };
            if let Some(agent) = self.agents.get_mut(&owner) {
                let refused = agent.operations.iter_mut().filter(|op| op.id == *id);
                refused.for_each(|operation| self.places.leave(operation));
                agent.operations.retain(|operation| operation.id != *id);
            }
            self.dirty_operations.remove(id);
            self.describing
                .retain(|_, (_, describing)| describing != id);
            self.follow_operations(&owner);
        }
    }

    /// Forgets an agent with all that belongs to it.
    pub fn remove(&mut self, id: &str) -> bool {
        let Some(mut agent) = self.agents.remove(id) else {
            return false;
        };
        let operations = agent.operations.iter_mut();
        operations.for_each(|operation| self.places.leave(operation));
        self.due.leave(agent.place);
        if let Some(class) = &agent.class {
            self.unfile(id, class);
        }
        for operation in &agent.operations {
            self.owners.remove(&operation.id);
            self.dirty_operations.remove(&operation.id);
        }
        self.kept_bytes = self.kept_bytes.saturating_sub(agent.kept_bytes());
        self.describing
            .retain(|_, (describes, _)| **describes != *id);
        self.active.remove(id);
        true
    }

    /// Forgets a class with its flows, roll-outs and resources. Agents that came to it meanwhile have
    /// it appear again by itself, as a new one.
    pub fn remove_class(&mut self, name: &str) {
        let Some((name, class)) = self.classes.remove_entry(name) else {
            return;
        };
        for flow in &class.flows {
            self.flows.remove(&flow.id);
        }
        self.rollouts.retain(|_, rollout| rollout.class != name);
        self.resource_sets.remove(&name);
        self.seen.retain(|(of, _)| *of != name);
        self.new_classes.retain(|new| *new != name);
        if self.by_class.contains_key(&name) {
            self.classes.insert(name.clone(), Class::new(class.created));
            self.new_classes.push(name);
        }
    }

    /// Classes of before a time that have nothing, as far as is known here.
    pub fn empty_classes(&self, before: UnixMillis) -> Vec<Arc<str>> {
        let is_empty = |(name, class): &(&Arc<str>, &Class)| {
            class.created < before
                && class.description.is_empty()
                && class.flows.is_empty()
                && class.desired.is_none()
                && class.rollout.is_none()
                && class.resolution.is_none()
                && !self.by_class.contains_key(*name)
                && !self.resource_sets.contains_key(*name)
        };
        let empty = self.classes.iter().filter(is_empty);
        empty.map(|(name, _)| name.clone()).collect()
    }

    /// Moves what was heard since the last batch into this one.
    pub(super) fn take_sightings(&mut self, batch: &mut Batch) {
        let count = self.sighted.len().min(limits::SIGHTINGS_MAX);
        for id in self.sighted.drain(..count) {
            let Some(agent) = self.agents.get_mut(&id) else {
                continue;
            };
            batch.sightings.push(Sighting {
                at: agent.last_seen,
                heartbeats: std::mem::take(&mut agent.unsighted),
                agent: id,
            });
        }
    }

    /// Puts sightings back that could not be written.
    pub(super) fn put_sightings_back(&mut self, sightings: Vec<Sighting>) {
        for seen in sightings {
            let Some(agent) = self.agents.get_mut(&seen.agent) else {
                continue;
            };
            if agent.unsighted == 0 {
                self.sighted.push(seen.agent);
            }
            agent.unsighted += seen.heartbeats;
        }
    }

    /// Takes a class over as the database has it.
    pub fn adopt_class(&mut self, row: ClassRow) {
        let rollout = row.rollout.and_then(|id| self.rollouts.get(&id)).cloned();
        let desired = row.flow.and_then(|id| self.flows.get(&id)).cloned();
        let class = self
            .classes
            .entry(row.name)
            .or_insert_with(|| Class::new(row.created));
        if let Some(description) = row.description {
            class.description = description;
        }
        class.desired = desired;
        class.rollout = rollout;
    }

    /// Takes a roll-out's newest state over.
    pub fn adopt_rollout(&mut self, rollout: Rollout) {
        let known = self.rollouts.get(&rollout.id);
        if known.is_some_and(|known| known.version >= rollout.version) {
            return;
        }
        let rollout = Arc::new(rollout);
        if let Some(class) = self.classes.get_mut(&rollout.class)
            && class
                .rollout
                .as_ref()
                .is_some_and(|now| now.id == rollout.id)
        {
            class.rollout = Some(rollout.clone());
        }
        self.rollouts.insert(rollout.id.clone(), rollout);
    }

    fn adopt_operation(&mut self, owner: &Arc<str>, mut operation: FleetOperation) {
        let Some(agent) = self.agents.get_mut(owner) else {
            return;
        };
        let owner = agent.id.clone();
        let (id, is_active) = (operation.id.clone(), operation.is_active());
        let describes =
            operation.kind == OperationKind::Describe && operation.operand == Operand::Manifest;
        let about = operation.goal.clone();
        match agent.operation_mut(&id) {
            Some(known) => known.join(&operation),
            None => {
                self.owners.insert(id.clone(), owner.clone());
                operation.counted = false;
                for mut removed in agent.add_operation(operation) {
                    self.places.leave(&mut removed);
                    self.owners.remove(&removed.id);
                    self.dirty_operations.remove(&removed.id);
                }
            }
        }
        if describes && !is_active {
            self.describing
                .retain(|_, (_, describing)| *describing != id);
        } else if describes && let Some(about) = about {
            let mark = Mark::of_word(&about);
            if mark.is_some_and(|mark| self.known_manifest(None, Known::Mark(mark)).is_none()) {
                self.describing.entry(about).or_insert((owner.clone(), id));
            }
        }
        self.follow_operations(&owner);
    }
}
