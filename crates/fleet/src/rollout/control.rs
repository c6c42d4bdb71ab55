//! Roll-outs as operators start and steer them, and how the node that holds the lease goes on with
//! them.

use std::collections::HashMap;
use std::sync::Arc;

use base::UnixMillis;
use metrics::counter;
use serde::Serialize;
use sql::SqlError;
use uuid::Uuid;

use super::{EVERYBODY, Outcome, Plan, Progress, Rollout, RolloutState, Standing, Step};
use crate::agent::FlowState;
use crate::error::FleetError;
use crate::events::{Event, Kind};
use crate::fleet::{Fleet, Inner, unknown_class};
use crate::limits;
use crate::registry::{ClassRow, Registry};

/// A roll-out as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub struct RolloutView {
    /// A UUID.
    pub id: String,
    /// The class.
    pub class: String,
    /// The flow that its agents get.
    pub flow_id: String,
    /// The flow that they had.
    pub previous_flow_id: Option<String>,
    /// `running`, `paused`, `halted`, `aborted`, `rolled_back` or `done`.
    pub state: &'static str,
    /// Why, where there is more to say.
    pub reason: String,
    /// When it was made, milliseconds since 1970.
    pub created_ms: i64,
    /// When it last reached more agents, milliseconds since 1970.
    pub reached_ms: i64,
    /// Agents that may be at it at a time.
    pub batch_agents: u32,
    /// The least milliseconds between two batches.
    pub batch_interval_ms: u64,
    /// The share of agents that goes first.
    pub canary_percent: u8,
    /// The share of failed agents above which it halts.
    pub failures_percent: u8,
    /// How far it has come; what counts is what the agents say now.
    pub progress: Progress,
}

/// What an operator may wish of a roll-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To stop for a while.
    Pause,
    /// To go on, also after it halted.
    Resume,
    /// To end, with who has the flow keeping it.
    Abort,
    /// To go back to the flow before, everywhere.
    RollBack,
}

impl Wish {
    /// The wish of this word in the address.
    pub fn named(word: &str) -> Option<Wish> {
        Some(match word {
            "pause" => Wish::Pause,
            "resume" => Wish::Resume,
            "abort" => Wish::Abort,
            "rollback" => Wish::RollBack,
            _ => return None,
        })
    }

    /// What it makes of a state, if it is to be had there.
    fn of(self, state: RolloutState) -> Option<RolloutState> {
        use RolloutState::{Aborted, Done, Halted, Paused, RolledBack, Running};
        Some(match (self, state) {
            (Wish::Pause, Running) => Paused,
            (Wish::Resume, Paused | Halted) => Running,
            (Wish::Abort, Running | Paused | Halted) => Aborted,
            (Wish::RollBack, Running | Paused | Halted | Aborted | Done) => RolledBack,
            _ => return None,
        })
    }

    fn word(self) -> &'static str {
        match self {
            Wish::Pause => "paused",
            Wish::Resume => "resumed",
            Wish::Abort => "aborted",
            Wish::RollBack => "rolled back",
        }
    }
}

impl Fleet {
    /// Begins to roll a flow out to its class; durable when this returns.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::BadRollout`] and, while another roll-out of the class
    /// is open, [`FleetError::RolloutState`]; the caller's fault.
    pub async fn begin_rollout(
        &self,
        class: &str,
        flow: &str,
        plan: Plan,
    ) -> Result<RolloutView, FleetError> {
        let inner = &self.inner;
        // A flow that another node took a moment ago counts. The feed takes the same lock.
        inner.read_feed(false).await?;
        let _one = inner.publishing.lock().await;
        let now = inner.clock.now();
        let rollout = {
            let registry = inner.registry.lock();
            new_rollout(&registry, class, flow, plan, now)?
        };
        if !inner.store.begin_rollout(&rollout).await? {
            return Err(unknown_class(class));
        }
        let mut registry = inner.registry.lock();
        let row = ClassRow {
            name: rollout.class.clone(),
            created: now,
            description: None,
            flow: rollout.previous.clone(),
            rollout: Some(rollout.id.clone()),
        };
        registry.adopt_rollout(rollout.clone());
        registry.adopt_class(row);
        drop(registry);
        tracing::info!(class, flow, rollout = &*rollout.id, "began a roll-out");
        Ok(inner.rollout_view(&rollout))
    }

    /// The roll-outs of a class, newest first.
    pub fn rollouts(&self, class: &str) -> Result<Vec<RolloutView>, FleetError> {
        let mut all: Vec<Arc<Rollout>> = {
            let registry = self.inner.registry.lock();
            if !registry.classes.contains_key(class) {
                return Err(unknown_class(class));
            }
            let of_class = registry.rollouts.values().filter(|r| *r.class == *class);
            of_class.cloned().collect()
        };
        all.sort_by_key(|rollout| std::cmp::Reverse((rollout.created, rollout.id.clone())));
        all.truncate(limits::CLASS_ROLLOUTS_MAX + 1);
        let views = all.iter().map(|rollout| self.inner.rollout_view(rollout));
        Ok(views.collect())
    }

    /// One roll-out.
    pub fn rollout(&self, id: &str) -> Result<RolloutView, FleetError> {
        let found = self.inner.registry.lock().rollouts.get(id).cloned();
        let rollout = found.ok_or_else(|| unknown(id))?;
        Ok(self.inner.rollout_view(&rollout))
    }

    /// Steers a roll-out; durable when this returns.
    ///
    /// # Errors
    /// [`FleetError::Unknown`]; [`FleetError::RolloutState`] where its state does not allow it.
    pub async fn steer_rollout(&self, id: &str, wish: Wish) -> Result<RolloutView, FleetError> {
        let mut steered = self.try_to_steer(id, wish).await?;
        // A roll-out takes its own steps meanwhile, here or on another node: that is no reason to
        // refuse whoever wants to stop it.
        for _ in 1..limits::STEER_TRIES {
            if steered.is_some() {
                break;
            }
            tokio::time::sleep(limits::STEER_PAUSE).await;
            steered = self.try_to_steer(id, wish).await?;
        }
        steered.ok_or(FleetError::RolloutState {
            state: "changing",
            wish: wish.word(),
        })
    }

    /// Steers a roll-out; none where it changed at the same moment.
    async fn try_to_steer(&self, id: &str, wish: Wish) -> Result<Option<RolloutView>, FleetError> {
        let inner = &self.inner;
        // What another node decided a moment ago counts.
        inner.read_feed(false).await?;
        let known = inner.registry.lock().rollouts.get(id).cloned();
        let mut rollout = known.as_deref().cloned().ok_or_else(|| unknown(id))?;
        let Some(state) = wish.of(rollout.state) else {
            return Err(FleetError::RolloutState {
                state: rollout.state.as_str(),
                wish: wish.word(),
            });
        };
        let newest = inner.registry.lock().classes.get(&rollout.class).cloned();
        let is_current = newest.is_some_and(|class| match class.rollout {
            Some(current) => current.id == rollout.id,
            None => class.desired.is_some_and(|flow| flow.id == rollout.flow),
        });
        if !is_current {
            return Err(FleetError::BadRollout(
                "its class has got another flow since".to_owned(),
            ));
        }
        if rollout.state == RolloutState::Halted && state == RolloutState::Running {
            // What failed so far was seen; it halts again when more does.
            let standings = inner.standings(&rollout, inner.clock.now());
            let progress = rollout.progress(&standings);
            let share = (progress.failed * 100)
                .div_ceil(progress.reached.max(1))
                .min(100);
            rollout.plan.failures_percent = rollout.plan.failures_percent.max(share as u8);
        }
        rollout.state = state;
        rollout.reason = format!("{} by an operator", wish.word());
        let changed = inner.change(rollout).await?;
        Ok(changed.map(|changed| inner.rollout_view(&changed)))
    }
}

impl Inner {
    /// Goes on with all roll-outs that are due.
    pub(crate) async fn advance_rollouts(&self) {
        let now = self.clock.now();
        let running: Vec<Arc<Rollout>> = {
            let registry = self.registry.lock();
            let rollouts = registry.classes.values().filter_map(|c| c.rollout.clone());
            rollouts
                .filter(|rollout| rollout.state == RolloutState::Running)
                .collect()
        };
        let due: Vec<Rollout> = running
            .iter()
            .filter_map(|rollout| {
                let standings = self.standings(rollout, now);
                stepped(rollout, rollout.decide(now, &standings), now)
            })
            .collect();
        for rollout in self.overtaken().into_iter().chain(due) {
            let (id, state, reason) = (rollout.id.clone(), rollout.state, rollout.reason.clone());
            match self.change(rollout).await {
                Ok(Some(_)) if state == RolloutState::Halted => {
                    tracing::warn!(rollout = &*id, reason, "a roll-out halted");
                    counter!("thalweg_fleet_rollouts_halted_total").increment(1);
                }
                Ok(Some(_)) => tracing::debug!(rollout = &*id, %state, "a roll-out went on"),
                Ok(None) => tracing::debug!(rollout = &*id, "another node was first"),
                Err(error) => {
                    tracing::warn!(error = %base::report(&error), "cannot go on with a roll-out");
                }
            }
        }
    }

    /// The roll-outs that were open when their class got another flow, to be ended.
    fn overtaken(&self) -> Vec<Rollout> {
        let registry = self.registry.lock();
        let is_current = |rollout: &Rollout| {
            let class = registry.classes.get(&rollout.class);
            let current = class.and_then(|class| class.rollout.as_ref());
            current.is_some_and(|current| current.id == rollout.id)
        };
        let rollouts = registry.rollouts.values();
        let overtaken = rollouts.filter(|rollout| !rollout.is_over() && !is_current(rollout));
        let ended = |rollout: &Arc<Rollout>| Rollout {
            state: RolloutState::Aborted,
            reason: "its class got another flow".to_owned(),
            ..Rollout::clone(rollout)
        };
        overtaken.map(ended).collect()
    }

    /// Removes the oldest roll-outs of classes that had many.
    pub(crate) async fn prune_rollouts(&self, fence: i64, now: UnixMillis) -> Result<(), SqlError> {
        let old = self.registry.lock().old_rollouts();
        if old.is_empty() || !self.store.remove_rollouts(&old, fence, now).await? {
            return Ok(());
        }
        let mut registry = self.registry.lock();
        for id in &old {
            registry.rollouts.remove(id);
        }
        Ok(())
    }

    /// Writes a roll-out's next state; none when another node was first.
    async fn change(&self, mut rollout: Rollout) -> Result<Option<Arc<Rollout>>, FleetError> {
        rollout.version += 1;
        let now = self.clock.now();
        let kind = match rollout.state {
            RolloutState::Halted => Some(Kind::RolloutHalted),
            RolloutState::Done => Some(Kind::RolloutDone),
            _ => None,
        };
        let event = kind.map(|kind| {
            let message = format!("roll-out {}: {}", rollout.id, rollout.reason);
            Event {
                class: Some(rollout.class.clone()),
                ..Event::new(kind, None, message, now)
            }
        });
        let events = event.as_slice();
        let change = self.store.change_rollout(&rollout, events, &self.ages, now);
        let Some(noted) = change.await? else {
            return Ok(None);
        };
        self.told(events, noted);
        let mut registry = self.registry.lock();
        let flow = match rollout.state {
            RolloutState::Done => Some(Some(rollout.flow.clone())),
            RolloutState::RolledBack => Some(rollout.previous.clone()),
            _ => None,
        };
        if let Some(flow) = flow {
            registry.adopt_class(ClassRow {
                name: rollout.class.clone(),
                created: rollout.created,
                description: None,
                flow,
                rollout: None,
            });
        }
        let rollout = Arc::new(rollout);
        registry.adopt_rollout(rollout.as_ref().clone());
        Ok(Some(rollout))
    }

    fn standings(&self, rollout: &Rollout, now: UnixMillis) -> Vec<Standing> {
        let mut standings = Vec::new();
        self.each_agent_of(&rollout.class, |_, agent| {
            standings.push(Standing {
                rank: rollout.rank(&agent.id),
                is_online: self.is_online(agent, now),
                outcome: match agent.flow_state(Some(&rollout.flow), &self.policy) {
                    FlowState::Deployed => Outcome::Deployed,
                    FlowState::Failed => Outcome::Failed,
                    _ => Outcome::Pending,
                },
            });
        });
        standings
    }

    fn rollout_view(&self, rollout: &Rollout) -> RolloutView {
        let standings = self.standings(rollout, self.clock.now());
        RolloutView {
            id: rollout.id.to_string(),
            class: rollout.class.to_string(),
            flow_id: rollout.flow.to_string(),
            previous_flow_id: rollout.previous.as_deref().map(str::to_owned),
            state: rollout.state.as_str(),
            reason: rollout.reason.clone(),
            created_ms: rollout.created.0,
            reached_ms: rollout.reached.0,
            batch_agents: rollout.plan.batch_agents,
            batch_interval_ms: rollout.plan.batch_interval.as_millis() as u64,
            canary_percent: rollout.plan.canary_percent,
            failures_percent: rollout.plan.failures_percent,
            progress: rollout.progress(&standings),
        }
    }
}

impl Registry {
    /// The roll-outs that are over and more than are kept of their class; those that still decide
    /// for it stay.
    fn old_rollouts(&self) -> Vec<Arc<str>> {
        let mut by_class: HashMap<&str, Vec<&Rollout>> = HashMap::new();
        for rollout in self.rollouts.values().filter(|rollout| rollout.is_over()) {
            let class = self.classes.get(&rollout.class);
            let decides = class.and_then(|class| class.rollout.as_ref());
            if decides.is_none_or(|decides| decides.id != rollout.id) {
                by_class.entry(&rollout.class).or_default().push(rollout);
            }
        }
        let mut old = Vec::new();
        for mut of_class in by_class.into_values() {
            of_class.sort_by_key(|rollout| std::cmp::Reverse((rollout.created, &*rollout.id)));
            let more = of_class.into_iter().skip(limits::CLASS_ROLLOUTS_MAX);
            old.extend(more.map(|rollout| rollout.id.clone()));
        }
        old
    }
}

fn new_rollout(
    registry: &Registry,
    class: &str,
    flow: &str,
    plan: Plan,
    now: UnixMillis,
) -> Result<Rollout, FleetError> {
    let found = registry
        .classes
        .get(class)
        .ok_or_else(|| unknown_class(class))?;
    let flow = found.flows.iter().find(|known| *known.id == *flow);
    let flow = flow.ok_or_else(|| {
        FleetError::BadRollout(format!(
            "the class '{class}' has no such flow: publish it first with ?deploy=false"
        ))
    })?;
    if plan.batch_agents == 0 || plan.canary_percent > 100 || plan.failures_percent > 100 {
        let reason = "batch_agents is 1 or more, shares are 0 to 100 percent";
        return Err(FleetError::BadRollout(reason.to_owned()));
    }
    if let Some(open) = found.rollout.as_ref().filter(|open| !open.is_over()) {
        return Err(FleetError::RolloutState {
            state: open.state.as_str(),
            wish: "replaced: abort it or roll it back first",
        });
    }
    if registry.rollouts.len() >= limits::ROLLOUTS_MAX {
        return Err(FleetError::Full {
            what: "roll-out",
            max: limits::ROLLOUTS_MAX,
        });
    }
    let previous = found.desired.as_ref().map(|flow| flow.id.clone());
    if previous.as_ref() == Some(&flow.id) {
        let reason = "the class wants this flow already";
        return Err(FleetError::BadRollout(reason.to_owned()));
    }
    Ok(Rollout {
        id: Arc::from(Uuid::new_v4().to_string()),
        class: flow.class.clone(),
        flow: flow.id.clone(),
        previous,
        plan,
        state: RolloutState::Running,
        reach: 0,
        reached: now,
        created: now,
        reason: String::new(),
        version: 1,
    })
}

/// The roll-out after a step; none where nothing is to be done.
fn stepped(rollout: &Rollout, step: Step, now: UnixMillis) -> Option<Rollout> {
    let mut next = rollout.clone();
    match step {
        Step::Wait => return None,
        Step::Reach(reach) => {
            next.reach = reach.min(EVERYBODY);
            next.reached = now;
        }
        Step::Halt(reason) => {
            next.state = RolloutState::Halted;
            next.reason = reason;
        }
        Step::Finish => next.state = RolloutState::Done,
    }
    Some(next)
}

fn unknown(id: &str) -> FleetError {
    FleetError::Unknown {
        what: "roll-out",
        name: id.to_owned(),
        list: "/api/v1/classes/{name}/rollouts",
    }
}
