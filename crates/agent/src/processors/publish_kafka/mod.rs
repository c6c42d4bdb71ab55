//! PublishKafka: FlowFiles as records, each once over crashes of the agent.
//!
//! # How a record gets there once
//!
//! What will be sent - topic, partition, producer id and epoch, first sequence, FlowFiles in their
//! order - is durable before it is sent. After a crash the batches in doubt are sent again with
//! the same sequences, so a broker that has them answers that it has. FlowFiles leave the
//! repository in a commit that also ends the doubt. That commit need not be durable before the
//! next batch is: if it is lost, the batch is only sent once more.
//!
//! A broker that no longer knows the producer gets a new producer id and the batch again; whether
//! it had it is then not known, so that is put up as a bulletin.
//! Until a producer has a batch in a partition, one goes there at a time: a broker that knows nothing
//! of it takes any sequence, also that of the second. A batch whose answer was lost and that is
//! refused then keeps its sequences, since the broker may have it: whatever came with them would be
//! taken for it.
//!
//! Batches in doubt are never given up: Message Timeout bounds one try, not all.
//!
//! # How it keeps up
//!
//! While much waits, batches go in rounds ([`round`]): those of one round are sent one behind the
//! other and answered together, and the next round is taken, read and put on record while the
//! broker has the last one. As soon as that one is stored the next is sent, and only then the last
//! one's FlowFiles leave. A round has a session of its own. Brokers know a producer's last five
//! batches of a partition, so no more than that may be in doubt: two rounds of two.

mod kind;
mod round;
mod settle;
mod state;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use regex::Regex;

pub(super) use self::kind::KIND;
use self::round::Round;
use self::state::ProducerState;
use super::kafka_properties::{brokers, security};
use super::{Next, Processor, ProcessorError, Settings};
use crate::engine::Context;
use crate::expression::Expression;
use crate::kafka::{Cluster, Codec, KafkaError};
use crate::limits::SESSION_FLOW_FILES_MAX;
use crate::patterns;
use crate::session::ProcessSession;

struct PublishKafka {
    topic: Expression,
    key: Option<Expression>,
    acks: i16,
    batch: usize,
    batch_bytes: u64,
    linger: Duration,
    timeout: Duration,
    request_timeout: Duration,
    fails_empty: bool,
    codec: Codec,
    /// Names of attributes that become headers.
    headers: Option<Regex>,
    cluster: Cluster,
    /// What is on record; read at the first trigger.
    state: Option<ProducerState>,
    turn: i32,
}

impl PublishKafka {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let brokers = brokers(settings, "Known Brokers")?;
        let acks = match settings.needed("Delivery Guarantee")?.as_str() {
            // A word of old flows, by which MiNiFi has always waited for all replicas.
            "all" | "-1" | "DELIVERY_REPLICATED" | "DELIVERY_ONE_NODE" => -1,
            "0" | "DELIVERY_BEST_EFFORT" => 0,
            _ => 1,
        };
        let batch: usize = settings.integer("Batch Size")?;
        let batch_max = match settings.text("Queue Max Message")? {
            Some(_) => settings.integer("Queue Max Message")?,
            None => usize::MAX,
        };
        let bytes_max = match settings.text("Queue Max Buffer Size")? {
            Some(_) => settings.size("Queue Max Buffer Size")?,
            None => u64::MAX,
        };
        let codec = settings.needed("Compress Codec")?;
        let headers = settings.text("Attributes to Send as Headers")?;
        let headers = headers.map(|pattern| patterns::whole_text(&pattern));
        let headers = headers.transpose();
        Ok(PublishKafka {
            topic: settings
                .expression("Topic Name")?
                .ok_or("Topic Name is empty")?,
            key: settings.expression("Kafka Key")?,
            acks,
            batch: batch.min(SESSION_FLOW_FILES_MAX).min(batch_max),
            batch_bytes: match settings.size("Target Batch Payload Size")? {
                0 => BATCH_BYTES_UNSET,
                bytes => bytes,
            }
            .min(bytes_max)
            .max(1),
            linger: settings.duration("Queue Buffering Max Time")?,
            timeout: settings.duration("Message Timeout")?,
            request_timeout: settings.duration("Request Timeout")?,
            fails_empty: settings.flag("Fail empty flow files")?,
            codec: Codec::of_name(&codec).ok_or("Compress Codec is unknown")?,
            headers: headers.map_err(|error| format!("Attributes to Send as Headers: {error}"))?,
            cluster: Cluster::new(
                brokers,
                settings.needed("Client Name")?,
                security(settings)?,
            ),
            state: None,
            turn: 0,
        })
    }

    fn load(&mut self, session: &ProcessSession<'_>) -> Result<(), ProcessorError> {
        if self.state.is_some() {
            return Ok(());
        }
        let bytes = session.state();
        let state = if bytes.is_empty() {
            ProducerState {
                version: 1,
                ..ProducerState::default()
            }
        } else {
            serde_json::from_slice(&bytes).map_err(|error| {
                ProcessorError::Failed(format!("its state is no state: {error}"))
            })?
        };
        self.state = Some(state);
        Ok(())
    }

    fn state(&mut self) -> &mut ProducerState {
        self.state.get_or_insert_with(ProducerState::default)
    }

    /// Sends what waits, round by round, for as long as there is plenty of it.
    fn stream<'n>(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'n>,
        beside: &mut ProcessSession<'n>,
    ) -> Result<Next, ProcessorError> {
        let (mut now, mut then) = (session, beside);
        let until = Instant::now() + STREAM_SPAN;
        let mut round = self.prepare(context, now, &mut Round::default())?;
        while let Some(mut sent) = round {
            if !sent.is_sent() {
                self.send(context, &mut sent);
            }
            let goes_on = context.may_go_on() && Instant::now() < until && self.is_plenty(then);
            let prepared = match goes_on {
                true => self.prepare(context, then, &mut sent),
                false => Ok(None),
            };
            let (mut next, trouble) = match prepared {
                Ok(next) => (next, None),
                Err(error) => {
                    // What was taken last is given back first, or its order would be lost.
                    then.rollback();
                    (None, Some(error))
                }
            };
            self.take_answers(context, &mut sent);
            if let Some(next) = next.as_mut().filter(|_| sent.is_stored()) {
                self.send(context, next);
            }
            let settled = self.settle(context, now, sent, next.as_mut());
            if let Err(error) = settled {
                next.into_iter().for_each(|next| self.abandon(next));
                then.rollback();
                return Err(error);
            }
            if let Some(error) = trouble {
                return Err(error);
            }
            round = next;
            std::mem::swap(&mut now, &mut then);
        }
        // What failed or expired without a record in the round.
        now.commit_lazily()?;
        then.commit_lazily()?;
        Ok(Next::Scheduled)
    }

    /// Whether more than a batch waits.
    fn is_plenty(&self, session: &ProcessSession<'_>) -> bool {
        let (count, bytes) = session.waiting();
        count >= self.batch as u64 || bytes >= self.batch_bytes
    }
}

impl Processor for PublishKafka {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        self.load(session)?;
        if !self.state().doubt.is_empty() {
            let round = self.doubtful(context, session)?;
            self.settle(context, session, round, None)?;
            return Ok(Next::Scheduled);
        }
        let mut beside = session.beside();
        self.stream(context, session, &mut beside)
    }
}

fn unreachable_broker(error: KafkaError) -> ProcessorError {
    ProcessorError::Failed(error.to_string())
}

/// Content bytes of a batch where MiNiFi sets no bound.
const BATCH_BYTES_UNSET: u64 = 512 << 10;

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// How long one trigger goes on with further rounds.
const STREAM_SPAN: Duration = Duration::from_millis(500);
