//! Rows as messages: over MQTT, on this server or another, and by HTTP.

use mqtt::{BridgeError, Message, MqttError, Qos};

use super::{Part, Sent, Stopped, Writer};
use crate::limits::RETRY_WAIT;
use crate::sinks::Posted;

impl Writer {
    pub(super) async fn post(&self, url: &str, output: &Sent, part: Part) -> Result<(), Stopped> {
        let mut had_trouble = false;
        for (row, text) in output.rows.iter().zip(output.texts()) {
            let mut wait = RETRY_WAIT.0;
            loop {
                match self.poster.post(url, text.clone()).await {
                    Posted::Taken => {
                        self.delivered((1, row.events), 1, part);
                        break;
                    }
                    Posted::Never(why) => {
                        self.give_up(row.events, &format!("cannot post a row: {why}"), part);
                        break;
                    }
                    Posted::Later(why) => {
                        had_trouble = true;
                        self.set_trouble(Some(format!("cannot post to {url}: {why}")));
                        self.pause(wait).await?;
                        wait = (wait * 2).min(RETRY_WAIT.1);
                    }
                }
            }
        }
        if had_trouble {
            self.set_trouble(None);
        }
        Ok(())
    }

    pub(super) async fn publish(
        &self,
        topic: &mqtt::TopicName,
        output: &Sent,
        part: Part,
    ) -> Result<(), Stopped> {
        let Some(server) = &self.mqtt else {
            return Err(Stopped);
        };
        let mut had_trouble = false;
        for (index, text) in output.texts().enumerate() {
            let events = output.rows[index].events;
            let timed = match index % TIMED_ROWS {
                0 => TIMED_ROWS.min(output.rows.len() - index) as u64,
                _ => 0,
            };
            loop {
                match server.publish(topic, &text, Qos::AtLeastOnce, false) {
                    Ok(()) => {
                        self.delivered((1, events), timed, part);
                        break;
                    }
                    Err(MqttError::Busy) => self.wait_for(server.room(topic)).await?,
                    Err(error @ MqttError::TooLarge { .. }) => {
                        self.give_up(events, &format!("cannot publish a row: {error}"), part);
                        break;
                    }
                    Err(error) => {
                        had_trouble = true;
                        self.set_trouble(Some(format!(
                            "cannot publish to mqtt.\"{topic}\": {}",
                            base::report(&error)
                        )));
                        self.pause(RETRY_WAIT.1).await?;
                    }
                }
            }
        }
        if had_trouble {
            self.set_trouble(None);
        }
        Ok(())
    }

    /// Has rows wait for another broker; they are delivered when the bridge's journal has them.
    pub(super) async fn send_over(
        &self,
        bridge: &str,
        topic: &mqtt::TopicName,
        output: &Sent,
        part: Part,
    ) -> Result<(), Stopped> {
        let Some(bridges) = &self.bridges else {
            return Err(Stopped);
        };
        let (mut last, mut had_trouble) = (None, false);
        for text in output.texts() {
            let message = Message {
                topic: topic.as_str(),
                payload: &text,
                qos: Qos::AtLeastOnce,
                received: self.clock.now(),
                ..Message::default()
            };
            loop {
                match bridges.send(bridge, &message) {
                    Ok(wait) => {
                        last = wait.or(last);
                        break;
                    }
                    Err(BridgeError::Busy(_)) => self.wait_for(bridges.room(bridge)).await?,
                    Err(error) => {
                        had_trouble = true;
                        let why = base::report(&error);
                        self.set_trouble(Some(format!("cannot send over {bridge}: {why}")));
                        self.pause(RETRY_WAIT.1).await?;
                    }
                }
            }
        }
        if let Some(wait) = last
            && let Err(error) = wait.await
        {
            // They went into its memory; only a crash now loses them.
            tracing::error!(bridge, error = %base::report(&error), "a bridge's journal failed");
        }
        let (rows, events) = (
            output.rows.len() as u64,
            output.rows.iter().map(|row| row.events),
        );
        self.delivered((rows, events.sum()), rows, part);
        if had_trouble {
            self.set_trouble(None);
        }
        Ok(())
    }
}

/// Of so many messages one asks the clock how long it waited.
const TIMED_ROWS: usize = 64;
