//! The agent's side of C2: heartbeats out, operations in, acknowledgements back.
//!
//! The agent never needs the control plane: when it is away, heartbeats back off, the flow goes
//! on, and acknowledgements wait in the repository until they are delivered. Acknowledgements
//! leave before the heartbeat, so the control plane never asks twice for what was done; if it
//! does, the outcome is told again and nothing is done.
//!
//! Operations are done one after the other, beside the heartbeats: a download or a flow that is slow
//! to stop makes nobody believe that the agent is gone. What waits for its turn when the agent ends
//! was never begun, and is asked for again.
//!
//! The first heartbeat after a start brings the manifest; later ones bring its hash.

mod acks;
mod config;
mod link;
mod operations;
mod report;
#[cfg(test)]
mod tests;
mod work;

use std::sync::Arc;
use std::time::Duration;

use c2::{Acknowledge, HeartbeatResponse};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use self::config::ControlConfig;
#[cfg(test)]
use self::config::Root;
pub(crate) use self::config::{flag, wrong};
pub(crate) use self::link::{Link, control_error};

use self::acks::{Acks, Outcome};
use self::operations::{Hands, Then};
use self::report::Reporter;
use self::work::Work;
use crate::AgentError;
use crate::assets::Assets;
use crate::limits::CONTROL_BACK_OFF_MAX;
use crate::memory;
use crate::properties::Told;
use crate::supervisor::Supervisor;

/// The agent's side of C2.
pub(crate) struct Control {
    hands: Arc<Hands>,
    reporter: Reporter,
    acks: Acks,
    work: Work,
    /// Rung when the agent is to start anew.
    restart: Arc<Notify>,
    is_introduced: bool,
    is_heard: bool,
}

/// What the agent's side of C2 works with.
pub(crate) struct Means {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) assets: Arc<Assets>,
    pub(crate) told: Arc<Told>,
    pub(crate) restart: Arc<Notify>,
}

impl Control {
    pub(crate) fn new(config: ControlConfig, means: Means) -> Result<Self, AgentError> {
        let Means {
            supervisor,
            assets,
            told,
            restart,
        } = means;
        Ok(Control {
            reporter: Reporter::new(
                config.clone(),
                Arc::clone(&supervisor),
                Arc::clone(&assets),
                Arc::clone(&told),
            )?,
            acks: Acks::open(Arc::clone(&supervisor)),
            work: Work::default(),
            hands: Arc::new(Hands {
                link: Link::new(&config)?,
                config,
                supervisor,
                assets,
                told,
            }),
            restart,
            is_introduced: false,
            is_heard: false,
        })
    }

    /// Heartbeats until it is dropped.
    pub(crate) async fn run(mut self) {
        let period = self.hands.config.period.0;
        let mut failures = 0u32;
        loop {
            let beat = self.beat().await;
            self.is_heard = beat.is_ok();
            if let Some(trial) = &self.hands.told.trial {
                trial.is_up(self.is_heard);
            }
            match beat {
                Ok(()) => {
                    if failures > 0 {
                        let url = &self.hands.config.heartbeat_url;
                        tracing::info!(url, "control plane is back");
                    }
                    failures = 0;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    if failures == 1 {
                        tracing::warn!(
                            error = base::report(&error),
                            "the control plane is away; the flow goes on"
                        );
                    }
                }
            }
            self.rest(Instant::now() + back_off(period, failures)).await;
        }
    }

    /// Does what is asked until the next heartbeat is due.
    async fn rest(&mut self, mut due: Instant) {
        loop {
            self.work.begin(&self.hands, &mut self.acks);
            let then = tokio::select! {
                () = tokio::time::sleep_until(due) => return,
                then = self.work.end(&mut self.acks) => then,
            };
            let delivered = self.deliver().await;
            if let Err(error) = &delivered {
                // With the next heartbeat, then.
                let error = base::report(error);
                tracing::debug!(error, "an acknowledgement was not delivered");
            }
            match then {
                Then::Nothing => {}
                Then::Beat => {
                    self.is_introduced = false;
                    due = due.min(Instant::now() + BEAT_AGAIN.min(self.hands.config.period.0));
                }
                Then::Restart => {
                    // What was not heard is told after it, and what waits is asked for again.
                    self.restart.notify_one();
                    // The agent ends, and this with it.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// One exchange: what waits to be acknowledged, then the heartbeat and what it brings.
    async fn beat(&mut self) -> Result<(), AgentError> {
        self.deliver().await?;
        let has_manifest = self.hands.config.is_full || !self.is_introduced;
        let mut heartbeat = self.reporter.heartbeat(has_manifest)?;
        self.reporter.minimize(&mut heartbeat, self.is_heard);
        let body = heartbeat
            .to_vec()
            .map_err(|error| control_error("heartbeat", error))?;
        let hands = &self.hands;
        let answer = hands.link.post(&hands.config.heartbeat_url, body).await?;
        if !std::mem::replace(&mut self.is_introduced, true) {
            // The manifest is gone from memory, but for the one copy that is kept.
            drop(heartbeat);
            memory::give_back();
        }
        if answer.is_empty() {
            return Ok(());
        }
        let response = HeartbeatResponse::parse(&answer)
            .map_err(|error| control_error("understand the answer", error))?;
        for operation in response.requested_operations {
            // What was done before is told again and not done again.
            if operation.identifier.is_empty() || !self.acks.is_known(&operation.identifier) {
                self.work.ask(operation);
            }
        }
        self.deliver().await
    }

    async fn deliver(&mut self) -> Result<(), AgentError> {
        while let Some(outcome) = self.acks.first().cloned() {
            let body = self
                .acknowledge(&outcome)?
                .to_vec()
                .map_err(|error| control_error("acknowledge", error))?;
            let hands = &self.hands;
            match hands.link.post(&hands.config.acknowledge_url, body).await {
                // Heartbeats must not wait for ever behind what nobody wants.
                Err(error) if link::is_final(&error) => {
                    let id = outcome.operation;
                    tracing::warn!(
                        id,
                        error = base::report(&error),
                        "an acknowledgement is not wanted"
                    );
                }
                answered => drop(answered?),
            }
            self.acks.heard();
        }
        Ok(())
    }

    fn acknowledge(&mut self, outcome: &Outcome) -> Result<Acknowledge, AgentError> {
        let mut ack = Acknowledge::new(&outcome.operation, outcome.state());
        ack.message = Some("acknowledge".to_owned());
        ack.identifier = Some(outcome.operation.clone());
        if let Some(state) = &mut ack.operation_state
            && !outcome.details.is_empty()
        {
            state.details = Some(outcome.details.clone());
        }
        if !outcome.describes.is_empty() {
            self.reporter.describe(&outcome.describes, &mut ack)?;
        }
        Ok(ack)
    }
}

/// The pause after so many failures in a row: doubled each time, with up to a quarter more, so
/// that a fleet does not come back as one.
fn back_off(period: Duration, failures: u32) -> Duration {
    if failures == 0 {
        return period;
    }
    let doubled = period
        .saturating_mul(1 << failures.min(16))
        .min(CONTROL_BACK_OFF_MAX);
    let pause = doubled.max(period);
    let jitter = base::Rng::from_entropy().below(1 + pause.as_millis() as u64 / 4);
    pause + Duration::from_millis(jitter)
}

/// Pause before a heartbeat that was asked for: nobody makes the agent call in a circle.
const BEAT_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod pause_tests {
    use super::*;

    #[test]
    fn the_pause_grows_with_failures_and_is_bounded() {
        let period = Duration::from_secs(5);
        assert_eq!(back_off(period, 0), period);
        assert!(back_off(period, 1) >= Duration::from_secs(10));
        assert!(back_off(period, 60) <= CONTROL_BACK_OFF_MAX * 5 / 4);
    }
}
