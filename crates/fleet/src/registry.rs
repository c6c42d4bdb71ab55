//! Everything the fleet knows, in memory, and what must be written. Without IO.
//!
//! Changes gather in a [`Batch`] of a numbered generation; whoever needs a change durable waits
//! until its generation is committed. A batch that could not be written is put back whole.

mod acknowledge;
mod adopt;
mod asked;
mod batch;
mod beat;
mod join;
mod missed;
mod named;
mod places;
mod plan;
mod resolution;
mod resourced;
mod scan;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use base::UnixMillis;
use c2::{AgentManifest, Heartbeat};

use crate::agent::Agent;
use crate::config::FleetConfig;
use crate::due::Due;
use crate::error::FleetError;
use crate::events::Event;
use crate::expiry::ShownCertificate;
use crate::flow::FlowShape;
use crate::kept::Samples;
use crate::limits;
use crate::manifest::{Brought, NewManifest, mark_of};
use crate::operation::Policy;
use crate::request::Request;
use crate::resource::{Resource, ResourceSet};
use crate::rollout::Rollout;
use places::Places;

pub use adopt::{ClassRow, News};
pub use asked::{unknown_agent, unknown_operation};
pub use batch::{Batch, Claim};
pub use beat::Beaten;
pub use join::operation_id;
pub use named::{Names, PARTS as NAME_PARTS};
pub use places::PlaceClaim;
pub use plan::Handout;
pub use resolution::{ManifestRule, Resolution, SeenManifest};
pub use resourced::ResourceState;

/// The fleet's memory.
#[derive(Debug, Default)]
pub struct Registry {
    pub(crate) config: Arc<FleetConfig>,
    pub(crate) agents: BTreeMap<Arc<str>, Agent>,
    /// The agents of each class.
    pub(crate) by_class: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    pub(crate) classes: BTreeMap<Arc<str>, Class>,
    pub(crate) flows: HashMap<Arc<str>, Arc<Flow>>,
    pub(crate) rollouts: HashMap<Arc<str>, Arc<Rollout>>,
    /// The heads of manifests by their keys.
    pub(crate) manifests: HashMap<Arc<str>, Arc<AgentManifest>>,
    /// What agents' hashes stand for.
    names: Names,
    /// Who brought new classes or manifests of late: how many, and since when.
    novelties: HashMap<Arc<str>, (u32, UnixMillis)>,
    /// What operators asked for.
    pub(crate) requests: HashMap<Arc<str>, Arc<Request>>,
    /// What can be assigned to classes.
    pub(crate) resources: HashMap<Arc<str>, Arc<Resource>>,
    /// What classes have, once they were ever given any.
    pub(crate) resource_sets: HashMap<Arc<str>, Arc<ResourceSet>>,
    /// Which agent an operation belongs to.
    owners: HashMap<Arc<str>, Arc<str>>,
    /// Which agent is asked to describe an unknown manifest, and by which operation; by the hash's
    /// mark, or by the agent where it gives none.
    describing: HashMap<Arc<str>, (Arc<str>, Arc<str>)>,
    /// Agents with operations under way.
    active: BTreeSet<Arc<str>>,
    /// How many agents are at what only so many may be at together.
    places: Places,
    kept_bytes: usize,
    pub(crate) samples: Arc<Samples>,
    /// When each agent is missed.
    due: Due,
    dirty: Vec<Arc<str>>,
    dirty_operations: HashSet<Arc<str>>,
    removed_operations: Vec<Arc<str>>,
    new_classes: Vec<Arc<str>>,
    new_manifests: Vec<NewManifest>,
    /// Agents that called since the last batch.
    sighted: Vec<Arc<str>>,
    /// New descriptions of manifests, until the database says that no other node asks for them.
    claims: Vec<Claim>,
    /// Places that were taken, until the database says that there were any.
    place_claims: Vec<PlaceClaim>,
    /// Events that wait to be written.
    events: Vec<Event>,
    /// Manifests with which agents of a class came.
    seen: Vec<(Arc<str>, SeenManifest)>,
    generation: u64,
}

/// A class of agents.
#[derive(Clone, Debug)]
pub struct Class {
    /// When it appeared.
    pub created: UnixMillis,
    /// An operator's words; may be empty.
    pub description: Arc<str>,
    /// Its flow versions, oldest first.
    pub flows: Vec<Arc<Flow>>,
    /// The flow that its agents should run.
    pub desired: Option<Arc<Flow>>,
    /// What decides instead while a flow is rolled out.
    pub rollout: Option<Arc<Rollout>>,
    /// The manifests that its agents had, the first one first.
    pub seen: Vec<SeenManifest>,
    /// How its manifest is found, where it has its own way.
    pub resolution: Option<Resolution>,
}

impl Class {
    /// A class without flows.
    pub fn new(created: UnixMillis) -> Class {
        Class {
            created,
            description: Arc::from(""),
            flows: Vec::new(),
            desired: None,
            rollout: None,
            seen: Vec::new(),
            resolution: None,
        }
    }

    /// The flow that `agent` should run.
    pub fn wanted(&self, agent: &str) -> Option<Arc<str>> {
        match &self.rollout {
            Some(rollout) => rollout.flow_for(agent).cloned(),
            None => self.desired.as_ref().map(|flow| flow.id.clone()),
        }
    }
}

/// A published flow version; the text lies in the store.
#[derive(Clone, Debug)]
pub struct Flow {
    /// A UUID.
    pub id: Arc<str>,
    /// The class.
    pub class: Arc<str>,
    /// One more than the version before.
    pub version: i64,
    /// How it is written.
    pub shape: FlowShape,
    /// SHA-256 of the text, lower-case hex.
    pub sha256: String,
    /// Bytes of the text.
    pub bytes: i64,
    /// When it was published.
    pub created: UnixMillis,
}

/// How a heartbeat came.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its text, unpacked.
    pub text: &'a [u8],
    /// The certificate of its connection.
    pub certificate: Option<ShownCertificate>,
}

/// What became of a message.
#[derive(Debug)]
pub struct Taken {
    /// Who sent it.
    pub agent: Option<Arc<str>>,
    /// Its class.
    pub class: Option<Arc<str>>,
    /// The generation to wait for before the answer, if something must be durable.
    pub wait_for: Option<u64>,
}

impl Registry {
    /// A fleet that knows nothing yet.
    pub fn new(config: Arc<FleetConfig>) -> Registry {
        Registry {
            config,
            ..Registry::default()
        }
    }

    /// Whether a known agent runs another flow than it did.
    pub fn is_news(&self, heartbeat: &Heartbeat) -> bool {
        let flow = heartbeat.flow_id();
        let agent = heartbeat.sender().and_then(|id| self.agents.get(id));
        agent.is_some_and(|agent| flow.is_some() && flow != agent.flow.as_deref())
    }

    /// Whether a manifest of this key is known.
    pub fn knows_manifest(&self, key: &str) -> bool {
        self.manifests.contains_key(key)
    }

    /// Whether this node has heard of an operation.
    pub fn knows_operation(&self, id: &str) -> bool {
        self.owners.contains_key(id)
    }

    /// Takes a heartbeat; `manifest` is the one it brought.
    pub fn heartbeat(
        &mut self,
        now: UnixMillis,
        policy: &Policy,
        heartbeat: Heartbeat,
        source: Source<'_>,
        manifest: Option<Brought>,
    ) -> Result<Taken, FleetError> {
        let sender = heartbeat.sender().ok_or(FleetError::NoIdentifier)?;
        check_name("an agent", sender)?;
        let known = self.agents.get(sender);
        let is_given = known.is_some_and(|agent| agent.given_class().is_some());
        let named = heartbeat.class().filter(|_| !is_given);
        if let Some(name) = named {
            check_name("a class", name)?;
        }
        let id = self.agent_or_new(sender, now)?;
        let class = named.map(|name| self.class_for(&id, name, now));
        let said = match &manifest {
            Some(brought) => Some(brought.mark),
            None => heartbeat.agent_info.as_ref().and_then(mark_of),
        };
        let shelved = manifest.and_then(|manifest| self.shelve(&id, manifest, now));
        let stores = shelved.as_ref().is_some_and(|(_, is_new)| *is_new);
        let room = limits::KEPT_HEARTBEATS_BYTES_MAX.saturating_sub(self.kept_bytes);
        let agent = self.agents.get_mut(&id).ok_or(FleetError::NoIdentifier)?;
        let mut changed = agent.heartbeats == 0;
        let mut left = None;
        if let Some(class) = class
            && agent.class != class
        {
            left = Some(std::mem::replace(&mut agent.class, class));
            changed = true;
        }
        let joined = changed;
        let manifest_before = agent.manifest.clone();
        let class = agent.class.clone();
        agent.learn_interval(now);
        let mark = source.certificate.map(|shown| shown.mark);
        let before = agent.caller_before(&heartbeat, mark, now);
        changed |= agent.follow_manifest(
            said,
            shelved.map(|(key, _)| key),
            agent.has_new_flow(heartbeat.flow_id()),
            &self.names,
            &self.manifests,
        );
        let follows = agent.mark.zip(agent.manifest.clone());
        changed |= agent.observe(
            heartbeat.device_info.as_ref(),
            heartbeat.flow_info.as_ref(),
            now,
        );
        let comes_with = joined || agent.manifest != manifest_before;
        agent.observe_resources(heartbeat.resource_info.as_ref());
        agent.take_caller(&heartbeat, mark, now);
        let mut events = agent.new_bulletins(&heartbeat, now);
        events.extend(before.and_then(|before| agent.note_caller(before, now)));
        events.extend(agent.note_certificate(source.certificate, policy, now));
        if agent.heartbeats == 0 {
            events.push(Event::registered(agent, now));
        }
        agent.heartbeats += 1;
        self.due.follow(agent, &self.config);
        changed |= now.since(agent.row_seen) >= limits::ROW_SEEN_AGE;
        if agent.unsighted == 0 {
            self.sighted.push(id.clone());
        }
        agent.unsighted += 1;
        if changed {
            share(&mut agent.manifest, &self.manifests);
            share(&mut agent.flow, &self.flows);
        }
        let grown = agent.remember(heartbeat, source.text, &self.samples, room);
        self.kept_bytes = self.kept_bytes.saturating_add_signed(grown);
        if let Some((mark, key)) = follows.filter(|_| changed) {
            self.name_manifest(mark, &key);
        }
        events.into_iter().for_each(|event| self.tell(event));
        if let Some(left) = left {
            self.file(&id, left.as_ref());
        }
        if comes_with {
            self.see_manifest(&id, now);
        }
        if changed {
            self.mark(&id);
        }
        let created = self.plan(&id, now, policy);
        let wait_for = (created || stores).then_some(self.generation);
        Ok(Taken {
            agent: Some(id),
            class,
            wait_for,
        })
    }

    /// Takes an event that is to be written; what the database does not take for long is dropped.
    pub fn tell(&mut self, event: Event) {
        if self.events.len() >= limits::EVENTS_QUEUED_MAX {
            metrics::counter!("thalweg_fleet_events_dropped_total").increment(1);
            return;
        }
        self.events.push(event);
    }

    /// Whether operations are under way, so that time-outs must be looked for.
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whether what tells many events at once may go on: it comes back to what it has not told, so it
    /// leaves the rest of the room to others.
    pub fn has_room_for_many_events(&self) -> bool {
        self.events.len() < limits::EVENTS_QUEUED_MAX / 2
    }

    /// Events that wait to be written.
    pub fn events_waiting(&self) -> usize {
        self.events.len()
    }

    /// The class of this name; made when it is new.
    pub fn class_or_new(&mut self, name: &str, now: UnixMillis) -> Result<Arc<str>, FleetError> {
        if let Some((name, _)) = self.classes.get_key_value(name) {
            return Ok(name.clone());
        }
        check_name("a class", name)?;
        if self.classes.len() >= limits::CLASSES_MAX {
            return Err(FleetError::Full {
                what: "class",
                max: limits::CLASSES_MAX,
            });
        }
        let name: Arc<str> = Arc::from(name);
        self.classes.insert(name.clone(), Class::new(now));
        self.new_classes.push(name.clone());
        Ok(name)
    }

    /// The class that an agent says it is of, made where it is new. None, so that the agent is parked,
    /// where classes do not appear by themselves, are too many, or too many new ones of this agent.
    fn class_for(&mut self, agent: &Arc<str>, name: &str, now: UnixMillis) -> Option<Arc<str>> {
        if let Some((name, _)) = self.classes.get_key_value(name) {
            return Some(name.clone());
        }
        let is_full = self.classes.len() >= limits::CLASSES_MAX;
        if !self.config.classes_appear || is_full || !self.may_add(agent, "classes", now) {
            return None;
        }
        self.class_or_new(name, now).ok()
    }

    /// Takes a flow version that is durable as what its class wants.
    pub fn publish(&mut self, flow: Flow) -> Arc<Flow> {
        let flow = self.add_flow(flow);
        if let Some(class) = self.classes.get_mut(&flow.class) {
            class.desired = Some(flow.clone());
            class.rollout = None;
        }
        flow
    }

    /// Takes a flow version that is durable.
    pub fn add_flow(&mut self, flow: Flow) -> Arc<Flow> {
        if let Some(known) = self.flows.get(&flow.id) {
            return known.clone();
        }
        let flow = Arc::new(flow);
        let class = self
            .classes
            .entry(flow.class.clone())
            .or_insert_with(|| Class::new(flow.created));
        let place = class
            .flows
            .partition_point(|known| known.version < flow.version);
        class.flows.insert(place, flow.clone());
        self.flows.insert(flow.id.clone(), flow.clone());
        flow
    }

    /// The flow that the agent should run.
    pub fn desired_of(&self, agent: &Agent) -> Option<&Arc<Flow>> {
        let class = self.classes.get(agent.class.as_ref()?)?;
        self.flows.get(&class.wanted(&agent.id)?)
    }

    fn agent_or_new(&mut self, id: &str, now: UnixMillis) -> Result<Arc<str>, FleetError> {
        if let Some((id, _)) = self.agents.get_key_value(id) {
            return Ok(id.clone());
        }
        if self.agents.len() >= limits::AGENTS_MAX {
            return Err(FleetError::Full {
                what: "agent",
                max: limits::AGENTS_MAX,
            });
        }
        let id: Arc<str> = Arc::from(id);
        let mut agent = Agent::new(id.clone(), now);
        agent.place = self.due.enter(&id, now + self.config.patience(&agent));
        self.agents.insert(id.clone(), agent);
        Ok(id)
    }

    /// What the agent's manifest says of operations, where it is known.
    pub fn head_of(&self, agent: &Agent) -> Option<Arc<AgentManifest>> {
        self.manifests.get(agent.manifest.as_ref()?).cloned()
    }

    /// Enters an agent among those of its class, and takes it out of the one that it left.
    fn file(&mut self, id: &Arc<str>, left: Option<&Arc<str>>) {
        if let Some(left) = left {
            self.unfile(id, left);
        }
        let class = self.agents.get(id).and_then(|agent| agent.class.clone());
        if let Some(class) = class {
            let of_class = self.by_class.entry(class).or_default();
            of_class.insert(id.clone());
        }
    }

    /// Follows an agent that is in another class now than the one that it left.
    pub(crate) fn moved(&mut self, id: &Arc<str>, left: Option<&Arc<str>>, now: UnixMillis) {
        self.file(id, left);
        if let Some(agent) = self.agents.get(id) {
            self.due.follow(agent, &self.config);
        }
        self.see_manifest(id, now);
    }

    fn unfile(&mut self, id: &str, class: &str) {
        if let Some(of_class) = self.by_class.get_mut(class) {
            of_class.remove(id);
            if of_class.is_empty() {
                self.by_class.remove(class);
            }
        }
    }

    fn mark(&mut self, id: &Arc<str>) {
        if let Some(agent) = self.agents.get_mut(id)
            && !agent.dirty
        {
            agent.dirty = true;
            self.dirty.push(id.clone());
        }
    }
}

/// Checks the name of an agent or a class.
pub fn check_name(what: &'static str, name: &str) -> Result<(), FleetError> {
    let good = !name.is_empty()
        && name.len() <= limits::NAME_BYTES_MAX
        && !name.chars().any(char::is_control);
    if good {
        return Ok(());
    }
    let name = name.chars().filter(|c| !c.is_control()).take(64).collect();
    Err(FleetError::BadName { what, name })
}

/// Has a name share the text of the same name that is known: a fleet says it a million times.
fn share<T>(name: &mut Option<Arc<str>>, known: &HashMap<Arc<str>, T>) {
    if let Some(text) = name.as_deref()
        && let Some((text, _)) = known.get_key_value(text)
    {
        *name = Some(text.clone());
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
