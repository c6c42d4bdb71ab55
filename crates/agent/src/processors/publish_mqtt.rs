//! PublishMQTT: FlowFiles as MQTT 3.1.1 messages of QoS 0 or 1.
//!
//! At least once with QoS 1: FlowFiles leave after the server acknowledged all of their batch, so
//! after a crash or a lost connection the batch is published again. With QoS 0 they leave when
//! the bytes are with the operating system, and what a broken connection swallowed is lost.

use std::time::Duration;

use rumqttc::{AsyncClient, Event, EventLoop, MqttOptions, Outgoing, Packet, QoS};
use tokio::time::Instant;

use super::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::limits::MQTT_IN_FLIGHT_MAX;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "PublishMQTT",
    description: "Publishes each FlowFile as an MQTT message, at least once with QoS 1.",
    properties: &[
        PropertyKind::new(
            "Broker URI",
            "mqtt://host:port, or tcp://host:port; the port may be \
                          left out.",
        )
        .required()
        .expressions(Expressions::Once),
        PropertyKind::new("Topic", "Where messages go.")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new("Client ID", "The session's name; made up when empty.")
            .expressions(Expressions::Once),
        PropertyKind::new("Quality of Service", "0: at most once. 1: at least once.")
            .default("0")
            .allowed(&["0", "1"]),
        PropertyKind::new(
            "Retain",
            "Whether the server keeps the last message of a topic.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new("MQTT Version", "Only 3.1.1 for now.")
            .default("3.x AUTO")
            .allowed(&["3.x AUTO", "3.1.1"]),
        PropertyKind::new(
            "Keep Alive Interval",
            "Time after which a silent link is looked after.",
        )
        .default("60 sec")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Connection Timeout",
            "Longest wait for the server's answer.",
        )
        .default("10 sec")
        .shape(Shape::Duration),
        PropertyKind::new("Username", "Who the agent is to the server."),
        PropertyKind::new("Password", "The user's password."),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles that are published.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that cannot be messages: no legal topic, too large.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| PublishMqtt::new(settings).map(|made| Box::new(made) as _),
};

struct PublishMqtt {
    options: MqttOptions,
    topic: Expression,
    qos: QoS,
    retain: bool,
    wait: Duration,
    link: Option<Link>,
}

/// A session with the server, polled on a task of its own.
struct Link {
    client: AsyncClient,
    events: tokio::sync::mpsc::Receiver<Told>,
    task: tokio::task::JoinHandle<()>,
}

/// What the task tells.
enum Told {
    Done,
    Lost(String),
}

impl PublishMqtt {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let (host, port) = address(&settings.needed("Broker URI")?)?;
        let id = settings
            .text("Client ID")?
            .unwrap_or_else(|| format!("thalweg-{}", uuid::Uuid::new_v4().simple()));
        let mut options = MqttOptions::new(id, host, port);
        let keep_alive = settings.duration("Keep Alive Interval")?;
        options.set_keep_alive(keep_alive.max(Duration::from_secs(1)));
        options.set_inflight(MQTT_IN_FLIGHT_MAX);
        options.set_max_packet_size(MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX);
        if let Some(user) = settings.text("Username")? {
            options.set_credentials(user, settings.text("Password")?.unwrap_or_default());
        }
        let qos = if settings.needed("Quality of Service")? == "1" {
            QoS::AtLeastOnce
        } else {
            QoS::AtMostOnce
        };
        Ok(PublishMqtt {
            options,
            topic: settings.expression("Topic")?.ok_or("Topic is empty")?,
            qos,
            retain: settings.flag("Retain")?,
            wait: settings.duration("Connection Timeout")?,
            link: None,
        })
    }

    /// The topics of a batch; FlowFiles without a legal one fail.
    fn name(&self, context: &Context, session: &mut ProcessSession<'_>) -> Vec<(String, FlowFile)> {
        let mut named = Vec::new();
        for flow_file in session.take(usize::from(MQTT_IN_FLIGHT_MAX), BATCH_BYTES_MAX) {
            let topic = self
                .topic
                .evaluate(session.scope(&flow_file))
                .map(|t| t.into_owned());
            let reason = match topic {
                Ok(topic) if !is_legal(&topic) => format!("'{topic}' is no topic to publish to"),
                Ok(_) if flow_file.size() > (MESSAGE_BYTES_MAX / 2) as u64 => {
                    format!("{} bytes are too many for a message", flow_file.size())
                }
                Ok(topic) => {
                    named.push((topic, flow_file));
                    continue;
                }
                Err(error) => error.to_string(),
            };
            context.post(Level::Error, &reason);
            session.transfer_penalized(flow_file, FAILURE);
        }
        named
    }

    fn link(&mut self, context: &Context) -> &mut Link {
        let (options, qos) = (self.options.clone(), self.qos);
        self.link.get_or_insert_with(|| {
            let room = usize::from(MQTT_IN_FLIGHT_MAX);
            let (client, events) = AsyncClient::new(options, room);
            let (tell, told) = tokio::sync::mpsc::channel(room);
            let task = context.runtime().spawn(poll(events, qos, tell));
            Link {
                client,
                events: told,
                task,
            }
        })
    }

    /// Publishes a batch and waits until all of it is acknowledged.
    fn publish(
        &mut self,
        context: &Context,
        session: &ProcessSession<'_>,
        named: &[(String, FlowFile)],
    ) -> Result<(), ProcessorError> {
        let mut messages = Vec::with_capacity(named.len());
        for (topic, flow_file) in named {
            messages.push((topic.clone(), session.read(flow_file)?));
        }
        let (qos, retain, wait) = (self.qos, self.retain, self.wait);
        let runtime = context.runtime().clone();
        let link = self.link(context);
        let outcome = runtime.block_on(async {
            let count = messages.len();
            for (topic, payload) in messages {
                let sent = link.client.publish_bytes(topic, qos, retain, payload);
                tokio::time::timeout(wait, sent)
                    .await
                    .map_err(|_| "the server takes no more messages".to_owned())?
                    .map_err(|error| error.to_string())?;
            }
            let mut done = 0;
            let mut deadline = Instant::now() + wait;
            while done < count {
                match tokio::time::timeout_at(deadline, link.events.recv()).await {
                    Ok(Some(Told::Done)) => {
                        done += 1;
                        deadline = Instant::now() + wait;
                    }
                    Ok(Some(Told::Lost(reason))) => return Err(reason),
                    Ok(None) => return Err("the link ended".to_owned()),
                    Err(_) => return Err(format!("no answer within {} s", wait.as_secs())),
                }
            }
            Ok(())
        });
        outcome.map_err(|reason| {
            // What this link has in flight is not known: the next try has a new one.
            self.close();
            let (host, port) = self.options.broker_address();
            ProcessorError::Failed(format!("not published to {host}:{port}: {reason}"))
        })
    }

    fn close(&mut self) {
        if let Some(link) = self.link.take() {
            link.task.abort();
        }
    }
}

impl Processor for PublishMqtt {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let named = self.name(context, session);
        if named.is_empty() {
            return Ok(Next::Scheduled);
        }
        self.publish(context, session, &named)?;
        let published = named.into_iter().map(|(_, flow_file)| flow_file).collect();
        session.transfer_all(published, SUCCESS);
        session.commit_lazily()?;
        Ok(Next::Scheduled)
    }

    fn stop(&mut self) {
        if let Some(link) = &self.link {
            // A clean goodbye keeps the server from publishing a will; it need not arrive.
            if let Err(error) = link.client.try_disconnect() {
                tracing::debug!(%error, "no goodbye");
            }
            std::thread::sleep(GOODBYE);
        }
        self.close();
    }
}

/// Drives one session until it breaks; it is never resumed, so nothing is sent twice unasked.
async fn poll(mut events: EventLoop, qos: QoS, tell: tokio::sync::mpsc::Sender<Told>) {
    loop {
        let told = match events.poll().await {
            Ok(Event::Incoming(Packet::PubAck(_))) => Told::Done,
            Ok(Event::Outgoing(Outgoing::Publish(_))) if qos == QoS::AtMostOnce => Told::Done,
            Ok(_) => continue,
            Err(error) => Told::Lost(base::report(&error)),
        };
        let is_lost = matches!(told, Told::Lost(_));
        if tell.send(told).await.is_err() || is_lost {
            return;
        }
    }
}

fn address(uri: &str) -> Result<(String, u16), String> {
    let plain = match uri.split_once("://") {
        Some(("mqtt" | "tcp", rest)) => rest,
        Some((scheme, _)) => {
            return Err(format!(
                "Broker URI: {scheme}:// is not supported; write mqtt://host:port"
            ));
        }
        None => uri,
    };
    let plain = plain.trim_end_matches('/');
    let (host, port) = match plain.rsplit_once(':') {
        Some((host, port)) => (
            host,
            port.parse()
                .map_err(|_| format!("Broker URI: '{port}' is no port"))?,
        ),
        None => (plain, DEFAULT_PORT),
    };
    if host.is_empty() {
        return Err(format!("Broker URI: '{uri}' names no host"));
    }
    Ok((host.to_owned(), port))
}

fn is_legal(topic: &str) -> bool {
    !topic.is_empty() && topic.len() <= usize::from(u16::MAX) && !topic.contains(['+', '#', '\0'])
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// MQTT's registered port.
const DEFAULT_PORT: u16 = 1883;

/// Bytes of one packet; a session's content is bounded just above the half of it.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Content bytes published before an acknowledgement is waited for.
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// Time for a goodbye to leave.
const GOODBYE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_flows_write_them() {
        assert_eq!(address("mqtt://h:1"), Ok(("h".to_owned(), 1)));
        assert_eq!(address("tcp://h/"), Ok(("h".to_owned(), 1883)));
        assert_eq!(address("h:2"), Ok(("h".to_owned(), 2)));
        for bad in ["ssl://h:1", "mqtt://:1", "h:x", "mqtt://"] {
            assert!(address(bad).is_err(), "{bad} was taken");
        }
    }
}
