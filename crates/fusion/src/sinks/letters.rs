//! Dead letters: what became of an event that a statement could not use, told on a topic of its
//! own and never on the data topic.
//!
//! A letter is `{"statement", "name", "kind", "topic", "partition", "offset", "reason", "payload",
//! "time_ms", "suppressed"}`: `kind` is `error`, `late` or `sink`; `offset` is null for MQTT;
//! `payload` holds the first bytes as text; `suppressed` counts the statement's letters that its
//! rate kept back since the one before. Letters wait in a bounded queue; what finds it full is
//! counted as suppressed too. They never hold a source back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::UnixMillis;
use metrics::counter;
use mqtt::{Qos, Server};
use parking_lot::Mutex;
use serde::Serialize;
use streams::{EventStore, ProduceBatch, Record};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::expression::Event;
use crate::limits::{LETTER_PAYLOAD_BYTES, LETTERS_WAITING_MAX, RETRY_WAIT};
use crate::plan::Sink;
use crate::statement::Definition;

/// What happened to the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It could not be computed with.
    Error,
    /// Its window was closed.
    Late,
    /// Its row was given up by a sink.
    Sink,
}

/// One dead letter.
#[derive(Clone, Debug, Serialize)]
pub struct Letter {
    statement: String,
    name: String,
    kind: Kind,
    topic: Option<String>,
    partition: i32,
    offset: Option<i64>,
    reason: String,
    payload: Option<String>,
    time_ms: UnixMillis,
    suppressed: u64,
}

impl Letter {
    /// A letter about an event.
    pub fn about(
        definition: &Definition,
        kind: Kind,
        event: &Event<'_>,
        reason: &str,
        suppressed: u64,
    ) -> Letter {
        let payload = event.payload.map(|payload| {
            let part = &payload[..payload.len().min(LETTER_PAYLOAD_BYTES)];
            String::from_utf8_lossy(part).into_owned()
        });
        Letter {
            topic: Some(event.topic.to_owned()),
            partition: event.partition,
            offset: event.offset,
            payload,
            ..Letter::of_sink(definition, kind, reason, event.timestamp, suppressed)
        }
    }

    /// A letter about rows.
    pub fn of_sink(
        definition: &Definition,
        kind: Kind,
        reason: &str,
        time_ms: UnixMillis,
        suppressed: u64,
    ) -> Letter {
        Letter {
            statement: definition.id.clone(),
            name: definition.name.clone(),
            kind,
            topic: None,
            partition: 0,
            offset: None,
            reason: reason.to_owned(),
            payload: None,
            time_ms,
            suppressed,
        }
    }
}

/// How many letters of one statement may be written: so many at once, refilled by the second.
#[derive(Clone, Debug)]
pub struct Budget {
    per_second: f64,
    left: f64,
    filled: Option<Instant>,
    suppressed: u64,
}

impl Budget {
    /// A full budget.
    pub fn new(per_second: u32) -> Self {
        Budget {
            per_second: f64::from(per_second),
            left: f64::from(per_second),
            filled: None,
            suppressed: 0,
        }
    }

    /// Takes one letter; the count of those kept back before it, or none when it is kept back too.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        let past = self
            .filled
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.filled = Some(now);
        self.left = (self.left + past.as_secs_f64() * self.per_second).min(self.per_second);
        if self.left < 1.0 {
            self.suppressed += 1;
            return None;
        }
        self.left -= 1.0;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// Counts a letter that did not get away.
    pub fn lost(&mut self) {
        self.suppressed += 1;
    }
}

/// Letters on their way.
pub struct Letters {
    target: Sink,
    /// What one statement may write per second.
    pub per_second: u32,
    waiting: Mutex<VecDeque<Letter>>,
    wake: Notify,
}

impl Letters {
    /// Letters to a target, which is MQTT or the event store.
    pub fn new(target: Sink, per_second: u32) -> Self {
        Letters {
            target,
            per_second,
            waiting: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Queues a letter; false when there is no room.
    pub fn send(&self, letter: Letter) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= LETTERS_WAITING_MAX {
            counter!("thalweg_fusion_dead_letters_total", "outcome" => "suppressed").increment(1);
            return false;
        }
        waiting.push_back(letter);
        drop(waiting);
        self.wake.notify_one();
        true
    }

    /// What the topics of letters begin with, where they go to MQTT: statements on wildcards skip
    /// those, or they would read about themselves.
    pub fn mqtt_prefix(&self) -> Option<String> {
        match &self.target {
            Sink::Mqtt(topic) => Some(format!("{topic}/")),
            _ => None,
        }
    }

    /// Writes letters until `stop`, then what still waits, once.
    pub async fn run(
        self: Arc<Self>,
        mqtt: Option<Server>,
        store: Arc<dyn EventStore>,
        stop: CancellationToken,
    ) {
        loop {
            let next = self.waiting.lock().pop_front();
            let Some(letter) = next else {
                tokio::select! {
                    biased;
                    () = self.wake.notified() => continue,
                    () = stop.cancelled() => return,
                }
            };
            let mut is_sent = self.write(&letter, mqtt.as_ref(), &store).await;
            while !is_sent && !stop.is_cancelled() {
                tokio::select! {
                    () = tokio::time::sleep(RETRY_WAIT.1) => {}
                    () = stop.cancelled() => {}
                }
                is_sent = self.write(&letter, mqtt.as_ref(), &store).await;
            }
            let outcome = if is_sent { "sent" } else { "lost" };
            counter!("thalweg_fusion_dead_letters_total", "outcome" => outcome).increment(1);
        }
    }

    /// Writes one letter; false when it is worth another try.
    async fn write(
        &self,
        letter: &Letter,
        mqtt: Option<&Server>,
        store: &Arc<dyn EventStore>,
    ) -> bool {
        let json = serde_json::to_vec(letter).expect("a letter is plain data");
        match (&self.target, mqtt) {
            (Sink::Mqtt(topic), Some(server)) => {
                let Ok(topic) = format!("{topic}/{}", letter.statement).parse() else {
                    return true;
                };
                match server.publish(&topic, &json, Qos::AtLeastOnce, false) {
                    Err(mqtt::MqttError::Busy) => false,
                    Ok(()) => true,
                    Err(error) => {
                        tracing::warn!(error = %base::report(&error), "a dead letter is lost");
                        true
                    }
                }
            }
            (Sink::Kafka(topic), _) => {
                let Ok(topic) = topic.parse() else {
                    return true;
                };
                if store.topic_or_create(&topic).await.is_err() {
                    return false;
                }
                let record = Record {
                    key: Some(letter.statement.clone().into()),
                    ..Record::of_value(json)
                };
                let batch = ProduceBatch {
                    topic,
                    partition: 0,
                    records: vec![record],
                    sequence: None,
                };
                store.produce(batch).await.is_ok()
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_refills_by_the_second_and_counts_what_it_keeps_back() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut budget = Budget::new(2);
        assert_eq!((budget.take(at(0)), budget.take(at(0))), (Some(0), Some(0)));
        assert_eq!((budget.take(at(0)), budget.take(at(100))), (None, None));
        assert_eq!(budget.take(at(600)), Some(2));
        assert_eq!(budget.take(at(601)), None);
        assert_eq!(budget.take(at(60_000)), Some(1));
        assert_eq!(Budget::new(0).take(at(0)), None);
    }
}
