//! Statements that ask HTTP servers for events: see [`crate::polls`].

use std::sync::Arc;

use super::Fusion;
use crate::deploy::dfm;
use crate::error::FusionError;
use crate::lane::Lane;
use crate::plan::{Plan, Source};
use crate::polls::{Asker, Poll, Polled, askers};
use crate::statement::Definition;

impl Fusion {
    /// The servers of a statement, looked up in the configuration.
    ///
    /// # Errors
    /// `Refused`: one is not named there, or no MQTT server runs here.
    pub(super) fn poll(
        &self,
        definition: &Definition,
        plan: &Plan,
        polled: &Polled,
    ) -> Result<Arc<Poll>, FusionError> {
        if self.around.mqtt.is_none() {
            return Err(FusionError::Refused(
                "the statement gets events by HTTP, which become messages, but no MQTT server runs \
                 in this process: start one with --role mqtt"
                    .to_owned(),
            ));
        }
        let addresses = polled
            .addresses(&self.config.control.servers)
            .map_err(FusionError::Refused)?;
        let topic = dfm::own_topic(&self.config.node, &definition.id);
        let topic: mqtt::TopicName = topic
            .parse()
            .map_err(|error| FusionError::Refused(format!("mqtt.\"{topic}\": {error}")))?;
        let reads_answers = plan.sources().into_iter().any(|source| match source {
            Source::Mqtt(filter) => filter
                .parse::<mqtt::TopicFilter>()
                .is_ok_and(|filter| filter.matches(topic.as_str())),
            Source::Kafka(_) | Source::Stream(_) => false,
        });
        let config = self.config.polls.clone();
        Ok(Arc::new(Poll::new(addresses, topic, reads_answers, config)))
    }

    /// What asks a statement's servers, where it has some. It hears rows from now on, and is made
    /// before the statement has events.
    pub(super) fn askers(&self, lane: &Arc<Lane>) -> Vec<Asker> {
        let server = self.around.mqtt.as_ref();
        server.map_or_else(Vec::new, |server| askers(lane, &self.fetcher, server))
    }

    /// Has a statement's servers asked by these.
    pub(super) fn start_polls(&self, lane: &Lane, askers: Vec<Asker>) {
        let Some(poll) = lane.poll() else { return };
        let stop = poll.starts(&self.reading);
        for asker in askers {
            self.readers.spawn(asker.run(stop.clone()));
        }
    }
}
