//! One agent as the fleet knows it, and what it should get next. Without IO.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use c2::{DeviceInfo, FlowInfo, Heartbeat, Operand, OperationKind, ResourceInfo};

use crate::kept::{Kept, Samples};
use crate::limits;
use crate::manifest::Mark;
use crate::operation::{FleetOperation, OperationStatus, Policy, truncate};
use crate::rivalry::Rival;

/// An agent.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its identifier.
    pub id: Arc<str>,
    /// Its class; parked without one.
    pub class: Option<Arc<str>>,
    /// What an operator said of its class, if one ever did.
    pub given: Option<Box<Given>>,
    /// Of the hash of its manifest that its heartbeats say.
    pub mark: Option<Mark>,
    /// Key of the manifest that this stands for; none until it is described.
    pub manifest: Option<Arc<str>>,
    /// The host's name.
    pub hostname: Option<String>,
    /// The machine's identifier.
    pub device: Option<String>,
    /// The flow that it says it runs.
    pub flow: Option<Arc<str>>,
    /// What it says of its resources.
    pub resources: Told,
    /// Its first call.
    pub first_seen: UnixMillis,
    /// Its last call.
    pub last_seen: UnixMillis,
    /// Its heartbeats so far.
    pub heartbeats: u64,
    /// Its operations, oldest first, at most `OPERATIONS_PER_AGENT_MAX`.
    pub operations: VecDeque<FleetOperation>,
    /// The last known value of every section, without the manifest; kept while there is room.
    pub last: Option<Box<Kept>>,
    /// Whether it waits to be written.
    pub dirty: bool,
    /// Its last call that its row tells of.
    pub row_seen: UnixMillis,
    /// Heartbeats here that no sighting tells of yet.
    pub unsighted: u32,
    /// How often it calls, learned from its calls; 0 while that is not known.
    pub interval_ms: u32,
    /// When its process started, as near as its first heartbeat told.
    pub started: Option<UnixMillis>,
    /// The mark of the certificate that its connection showed.
    pub certificate: Option<u64>,
    /// The end of that certificate's validity.
    pub certificate_until: Option<UnixMillis>,
    /// How near that end was when it was told of.
    pub certificate_stage: u8,
    /// The one that called under this identifier before the one that did last.
    pub rival: Option<Box<Rival>>,
    /// Numbers of the bulletins that its last heartbeat told, sorted.
    pub bulletins: Box<[i64]>,
    /// Its place in [`crate::due::Due`].
    pub place: u32,
}

/// What an operator said of an agent's class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The class; none when what was given is taken back.
    pub class: Option<Arc<str>>,
    /// The feed's number of the change: a later one counts.
    pub seq: i64,
}

/// What an agent says of its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// Nothing was heard of them.
    #[default]
    Unknown,
    /// It has none.
    Nothing,
    /// It has those of this digest.
    Hash(Arc<str>),
}

/// How an agent stands to the flow of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// Its class has no flow, or it has no class.
    None,
    /// It should get the flow, or is at it.
    Pending,
    /// It runs the flow.
    Deployed,
    /// It could not take the flow.
    Failed,
}

/// What to do about an agent's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowNeed {
    /// Nothing new.
    Nothing,
    /// A new operation.
    Update,
}

impl Agent {
    /// An agent that calls for the first time.
    pub fn new(id: Arc<str>, now: UnixMillis) -> Agent {
        Agent {
            id,
            class: None,
            given: None,
            mark: None,
            manifest: None,
            hostname: None,
            device: None,
            flow: None,
            resources: Told::Unknown,
            first_seen: now,
            last_seen: now,
            heartbeats: 0,
            operations: VecDeque::new(),
            last: None,
            dirty: false,
            row_seen: now,
            unsighted: 0,
            interval_ms: 0,
            started: None,
            certificate: None,
            certificate_until: None,
            certificate_stage: 0,
            rival: None,
            bulletins: Box::default(),
            place: 0,
        }
    }

    /// Whether it called within `wait`.
    pub fn is_online(&self, now: UnixMillis, wait: Duration) -> bool {
        now.since(self.last_seen) <= wait
    }

    /// Takes over what the sections of a message say; an absent section says nothing. Tells
    /// whether anything that its row holds changed, but for the time.
    pub fn observe(
        &mut self,
        device: Option<&DeviceInfo>,
        flow: Option<&FlowInfo>,
        now: UnixMillis,
    ) -> bool {
        self.last_seen = self.last_seen.max(now);
        let mut changed = false;
        if let Some(device) = device {
            changed |= keep(&mut self.device, device.identifier.as_deref());
            let network = device.network_info.as_ref();
            changed |= keep(
                &mut self.hostname,
                network.and_then(|network| network.hostname.as_deref()),
            );
        }
        if let Some(flow) = flow {
            let reported = flow.flow_id.as_deref();
            // An agent without a flow may say so by an empty id.
            let reported = reported.filter(|id| (1..=limits::HASH_BYTES_MAX).contains(&id.len()));
            if self.flow.as_deref() != reported {
                self.flow = reported.map(Arc::from);
                changed = true;
            }
        }
        changed
    }

    /// Takes over what a message says of the agent's resources; an absent section says nothing.
    pub fn observe_resources(&mut self, info: Option<&ResourceInfo>) {
        let Some(info) = info else {
            return;
        };
        let hash = info
            .digest()
            .filter(|hash| hash.len() <= limits::HASH_BYTES_MAX);
        self.resources = match (hash, &self.resources) {
            (None, _) => Told::Nothing,
            (Some(hash), Told::Hash(known)) if **known == *hash => return,
            (Some(hash), _) => Told::Hash(Arc::from(hash)),
        };
    }

    /// Marks operations done that agents do not answer, once their agent calls again; tells whether
    /// anything changed.
    pub fn settle_silent(&mut self, now: UnixMillis) -> bool {
        let mut changed = false;
        for operation in &mut self.operations {
            changed |= operation.settle_silent(now);
        }
        changed
    }

    /// Keeps the heartbeat's sections over those of the one before, if that takes no more than `room`
    /// bytes more; returns by how many what is kept grew.
    pub fn remember(
        &mut self,
        heartbeat: Heartbeat,
        text: &[u8],
        samples: &Samples,
        room: usize,
    ) -> isize {
        let class = heartbeat.class().map(str::to_owned);
        let sample = |text: &[u8]| samples.of(class.as_deref(), self.flow.as_deref(), text);
        let kept = Kept::after(self.last.as_deref(), heartbeat, text, sample);
        self.keep(kept, room)
    }

    /// Keeps a heartbeat instead of the one before, if that takes no more than `room` bytes more;
    /// returns by how many what is kept grew.
    pub fn keep(&mut self, kept: Option<Kept>, room: usize) -> isize {
        let before = self.kept_bytes();
        let kept = kept.filter(|kept| kept.bytes() <= room.saturating_add(before));
        self.last = kept.map(Box::new);
        self.kept_bytes().cast_signed() - before.cast_signed()
    }

    /// Bytes accounted for `last`.
    pub fn kept_bytes(&self) -> usize {
        self.last.as_ref().map_or(0, |kept| kept.bytes())
    }

    /// Marks operations done whose flow is seen running, and gives up those whose flow is not
    /// wanted any more. Returns whether anything changed.
    pub fn settle(&mut self, desired: Option<&str>, now: UnixMillis) -> bool {
        let mut changed = false;
        for operation in &mut self.operations {
            let Some(flow) = operation.flow.as_deref() else {
                continue;
            };
            if self.flow.as_deref() == Some(flow) {
                changed |= operation.converge(now);
            } else if desired != Some(flow) && operation.is_active() {
                operation.cancel("another flow took its place", now);
                changed = true;
            }
        }
        changed
    }

    /// Whether the agent needs a new operation to get to the flow that its class wants.
    pub fn flow_need(&self, desired: Option<&str>, now: UnixMillis, policy: &Policy) -> FlowNeed {
        let Some(desired) = desired.filter(|desired| self.flow.as_deref() != Some(*desired)) else {
            return FlowNeed::Nothing;
        };
        let mut of_flow = self
            .operations
            .iter()
            .rev()
            .filter(|op| op.flow.as_deref() == Some(desired));
        let mut newest = self
            .operations
            .iter()
            .rev()
            .filter_map(|op| op.flow.as_deref());
        let is_wanted_again = newest.next().is_some_and(|newest| newest != desired);
        let last = of_flow.next();
        let before = u32::try_from(of_flow.count()).unwrap_or(u32::MAX);
        let may_try_again = before < policy.failed_after_attempts.saturating_sub(1);
        match last {
            None => FlowNeed::Update,
            Some(last) => match last.status {
                OperationStatus::Cancelled => FlowNeed::Update,
                // Another flow was wanted meanwhile: it goes back to this one.
                OperationStatus::Done | OperationStatus::Failed if is_wanted_again => {
                    FlowNeed::Update
                }
                // It was there and is gone again: a new intent, but not without end. An agent
                // that names no flow at all is believed.
                OperationStatus::Done
                    if self.flow.is_some()
                        && now.since(last.updated) >= policy.resend_after
                        && may_try_again =>
                {
                    FlowNeed::Update
                }
                // What it could not have may be there later; what it was never given was refused here.
                OperationStatus::Failed if last.attempts > 0 => {
                    let wait = policy.resend_after.saturating_mul(1 << before.min(6));
                    match may_try_again && now.since(last.updated) >= wait {
                        true => FlowNeed::Update,
                        false => FlowNeed::Nothing,
                    }
                }
                _ => FlowNeed::Nothing,
            },
        }
    }

    /// How the agent stands to the flow of its class.
    pub fn flow_state(&self, desired: Option<&str>, policy: &Policy) -> FlowState {
        let Some(desired) = desired else {
            return FlowState::None;
        };
        let mut of_flow = self
            .operations
            .iter()
            .rev()
            .filter(|op| op.flow.as_deref() == Some(desired));
        let last = of_flow.next();
        // Java agents before 2.0 report a flow once they have heard of it, whether they took it or not.
        let refused = |op: &FleetOperation| op.status == OperationStatus::Failed && op.acknowledged;
        if self.flow.as_deref() == Some(desired) && !last.is_some_and(refused) {
            return FlowState::Deployed;
        }
        match last {
            Some(last) if last.is_hopeless(policy) => FlowState::Failed,
            // It tries again what has failed.
            Some(last) if last.is_active() && of_flow.next().is_some_and(refused) => {
                FlowState::Failed
            }
            Some(last) if last.status == OperationStatus::Done && self.flow.is_none() => {
                FlowState::Deployed
            }
            _ => FlowState::Pending,
        }
    }

    /// Adds an operation; returns those that the bound pushed out: finished descriptions first,
    /// since the outcome of flow updates decides what comes next.
    pub fn add_operation(&mut self, operation: FleetOperation) -> Vec<FleetOperation> {
        self.operations.push_back(operation);
        let mut removed = Vec::new();
        while self.operations.len() > limits::OPERATIONS_PER_AGENT_MAX {
            let finished = |flow: bool| {
                let fits = |op: &FleetOperation| !op.is_active() && (flow || op.flow.is_none());
                self.operations.iter().position(fits)
            };
            let index = finished(false).or_else(|| finished(true)).unwrap_or(0);
            removed.extend(self.operations.remove(index));
        }
        removed
    }

    /// The operation of this id.
    pub fn operation_mut(&mut self, id: &str) -> Option<&mut FleetOperation> {
        self.operations
            .iter_mut()
            .find(|operation| &*operation.id == id)
    }

    /// Whether a DESCRIBE manifest is under way.
    pub fn is_describing(&self) -> bool {
        self.operations.iter().any(|operation| {
            operation.is_active()
                && operation.kind == OperationKind::Describe
                && operation.operand == Operand::Manifest
        })
    }

    /// Whether the agent is to be asked for its manifest, whose hash has this mark: not while it is
    /// asked, and after each answer that told nothing, or none, after twice the wait.
    pub fn may_describe(&self, mark: Option<&Arc<str>>, now: UnixMillis, policy: &Policy) -> bool {
        if self.is_describing() {
            return false;
        }
        let mut tries = self.operations.iter().rev().filter(|op| {
            op.kind == OperationKind::Describe
                && op.operand == Operand::Manifest
                && op.request.is_none()
                && op.goal.as_ref() == mark
        });
        let Some(last) = tries.next() else {
            return true;
        };
        let doublings = u32::try_from(tries.count()).unwrap_or(u32::MAX);
        now.since(last.updated) >= policy.resend_after.saturating_mul(1 << doublings.min(6))
    }

    /// Whether any operation is under way.
    pub fn has_active(&self) -> bool {
        self.operations.iter().any(FleetOperation::is_active)
    }
}

impl FlowState {
    /// All of them.
    pub const ALL: [FlowState; 4] = [
        FlowState::None,
        FlowState::Pending,
        FlowState::Deployed,
        FlowState::Failed,
    ];

    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            FlowState::None => "none",
            FlowState::Pending => "pending",
            FlowState::Deployed => "deployed",
            FlowState::Failed => "failed",
        }
    }
}

/// Takes over `news` where there are any, cut to what a column holds; tells whether it did.
fn keep(field: &mut Option<String>, news: Option<&str>) -> bool {
    if let Some(news) = news.filter(|news| !news.is_empty())
        && field.as_deref() != Some(news)
    {
        let mut text = news.to_owned();
        truncate(&mut text, limits::NAME_BYTES_MAX);
        // What was cut is compared as it was cut.
        if field.as_ref() != Some(&text) {
            *field = Some(text);
            return true;
        }
    }
    false
}
