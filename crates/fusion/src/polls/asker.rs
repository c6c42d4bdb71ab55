//! Asks one address of a statement, again and again, and publishes what is answered.

use std::sync::Arc;

use mqtt::{MqttError, Qos, Server};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Asked, Fetcher, Poll};
use crate::lane::Lane;
use crate::limits::POLL_RETRY_WAIT;

/// What asks one address.
pub struct Asker {
    pub(super) lane: Arc<Lane>,
    pub(super) poll: Arc<Poll>,
    /// The address's place.
    pub(super) place: usize,
    pub(super) asked: watch::Receiver<u64>,
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) server: Server,
    /// Whether the latest request failed.
    pub(super) has_failed: bool,
}

impl Asker {
    /// Works until `stop`, or until the statement is removed; a request that is under way is given
    /// up then.
    pub async fn run(mut self, stop: CancellationToken) {
        let lane = self.lane.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = lane.removed.cancelled() => {}
            () = self.work() => {}
        }
        if self.has_failed {
            self.tell(self.poll.forget(self.place));
        }
    }

    async fn work(&mut self) {
        let is_timed = self.poll.is_timed;
        let pause = self.poll.config.pause(is_timed);
        let mut wait = POLL_RETRY_WAIT.0;
        loop {
            // After a failure the rows that asked still wait for an answer.
            if !is_timed && !self.has_failed && self.asked.changed().await.is_err() {
                return;
            }
            self.asked.mark_unchanged();
            let began = Instant::now();
            let asked = self.ask().await;
            let trouble = self.poll.count(self.place, &asked);
            let had_failed = self.has_failed;
            self.has_failed = matches!(asked, Asked::Failed(_));
            if self.has_failed || had_failed {
                self.tell(trouble);
            }
            if self.has_failed {
                sleep(wait.max(pause)).await;
                wait = (wait * 2).min(POLL_RETRY_WAIT.1);
            } else {
                wait = POLL_RETRY_WAIT.0;
                sleep_until(began + pause).await;
            }
        }
    }

    async fn ask(&self) -> Asked {
        let Poll {
            addresses,
            config,
            topic,
            ..
        } = &*self.poll;
        // What nobody can take yet is not asked for.
        self.server.room(topic).await;
        match self.fetcher.get(&addresses[self.place], config).await {
            Ok(body) if body.is_empty() => Asked::Empty,
            Ok(body) => self.publish(&body),
            Err(why) => Asked::Failed(why),
        }
    }

    /// Publishes an answer. One for which there is no room is dropped and asked for again: those of
    /// all addresses together would have no bound while they wait.
    fn publish(&self, body: &[u8]) -> Asked {
        let topic = &self.poll.topic;
        match self.server.publish(topic, body, Qos::AtLeastOnce, false) {
            Ok(()) => Asked::Answered,
            Err(MqttError::Busy) => {
                Asked::Failed("the readers of its answers are behind".to_owned())
            }
            Err(error) => Asked::Failed(base::report(&error)),
        }
    }

    /// Says on the statement why its servers do not answer.
    fn tell(&self, trouble: Option<String>) {
        if let Some(why) = &trouble {
            let statement = &self.lane.definition.name;
            tracing::warn!(statement, why, "a statement's server does not answer");
        }
        self.lane.state.lock().trouble = trouble;
    }
}
