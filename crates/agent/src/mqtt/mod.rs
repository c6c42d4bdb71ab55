//! A link to an MQTT server, of 3.1.1 or 5.0, as one thing: rumqttc has two clients for them.
//!
//! A link is never resumed: after an error a new one is made, and what the old one had in flight
//! is known to its user only.

mod settings;
mod translate;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use rumqttc::QoS;
use rumqttc::v5;
use rumqttc::v5::mqttbytes::v5::PublishProperties;
use tokio::sync::mpsc;

pub(crate) use settings::{MqttSettings, Version, Will};

use crate::engine::Waker;

/// What happened on a link.
#[derive(Debug)]
pub(crate) enum Happened {
    /// The server has taken the client in.
    Connected,
    /// Subscriptions stand, or the server refuses one.
    Subscribed(Result<(), String>),
    /// A message came.
    Message(Box<Message>),
    /// A message of ours is with the operating system, under this id.
    Sent(u16),
    /// The server is done with the message of this id, or refuses it.
    Done(u16, Result<(), String>),
    /// The link is over.
    Lost(String),
}

/// A message that came.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) topic: String,
    pub(crate) payload: Bytes,
    pub(crate) qos: u8,
    pub(crate) is_duplicate: bool,
    pub(crate) is_retained: bool,
    pub(crate) content_type: Option<String>,
    pub(crate) response_topic: Option<String>,
    pub(crate) user_properties: Vec<(String, String)>,
    receipt: Receipt,
}

/// What a message is acknowledged by.
#[derive(Clone, Debug)]
enum Receipt {
    V3(rumqttc::Publish),
    V5(v5::mqttbytes::v5::Publish),
}

/// A message to publish.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) payload: Bytes,
    pub(crate) is_retained: bool,
    /// Only 5.0 tells it.
    pub(crate) content_type: Option<String>,
    /// Only 5.0 tells it; in seconds.
    pub(crate) expiry: Option<u32>,
}

/// A link; its events come from a task of its own.
pub(crate) struct Link {
    client: Client,
    events: mpsc::Receiver<Happened>,
    /// Events that had to be taken to get an acknowledgement out.
    early: VecDeque<Happened>,
    task: tokio::task::JoinHandle<()>,
}

/// The sending side of a link.
#[derive(Clone)]
enum Client {
    V3(rumqttc::AsyncClient),
    V5(v5::AsyncClient),
}

enum Events {
    V3(Box<rumqttc::EventLoop>),
    V5(Box<v5::EventLoop>),
}

impl Link {
    /// Starts to connect; up to `ahead` events wait to be looked at, and each wakes `waker`.
    pub(crate) fn start(
        runtime: &tokio::runtime::Handle,
        settings: &MqttSettings,
        ahead: usize,
        waker: Option<Waker>,
    ) -> Link {
        let (client, events) = match settings.version {
            Version::V3 => {
                let (client, mut events) = rumqttc::AsyncClient::new(settings.v3(), ahead);
                let wait = settings.connect_wait.as_secs().max(1);
                events.network_options.set_connection_timeout(wait);
                (Client::V3(client), Events::V3(Box::new(events)))
            }
            Version::V5 => {
                let (client, events) = v5::AsyncClient::new(settings.v5(), ahead);
                (Client::V5(client), Events::V5(Box::new(events)))
            }
        };
        let (tell, told) = mpsc::channel(ahead);
        let task = runtime.spawn(poll(events, tell, waker));
        Link {
            client,
            events: told,
            early: VecDeque::new(),
            task,
        }
    }

    /// The next event; nothing more comes after [`Happened::Lost`].
    pub(crate) async fn next(&mut self) -> Option<Happened> {
        match self.early.pop_front() {
            Some(happened) => Some(happened),
            None => self.events.recv().await,
        }
    }

    /// The next event that is there already.
    pub(crate) fn next_now(&mut self) -> Option<Happened> {
        self.early
            .pop_front()
            .or_else(|| self.events.try_recv().ok())
    }

    /// Publishes a message.
    pub(crate) async fn publish(&self, message: Outgoing, qos: QoS) -> Result<(), String> {
        let Outgoing {
            topic,
            payload,
            is_retained,
            ..
        } = message;
        match &self.client {
            Client::V3(client) => client
                .publish_bytes(topic, qos, is_retained, payload)
                .await
                .map_err(|error| error.to_string()),
            Client::V5(client) => {
                let properties = PublishProperties {
                    content_type: message.content_type,
                    message_expiry_interval: message.expiry,
                    ..PublishProperties::default()
                };
                let qos = translate::to_v5(qos);
                let sent = client.publish_bytes_with_properties(
                    topic,
                    qos,
                    is_retained,
                    payload,
                    properties,
                );
                sent.await.map_err(|error| error.to_string())
            }
        }
    }

    /// Subscribes to a filter.
    pub(crate) async fn subscribe(&self, filter: &str, qos: QoS) -> Result<(), String> {
        match &self.client {
            Client::V3(client) => client
                .subscribe(filter, qos)
                .await
                .map_err(|error| error.to_string()),
            Client::V5(client) => {
                let qos = translate::to_v5(qos);
                client
                    .subscribe(filter, qos)
                    .await
                    .map_err(|error| error.to_string())
            }
        }
    }

    /// Acknowledges a message that came over this link.
    pub(crate) async fn acknowledge(&mut self, message: &Message) -> Result<(), String> {
        let client = self.client.clone();
        let sending = async {
            match (&client, &message.receipt) {
                (Client::V3(client), Receipt::V3(publish)) => {
                    client.ack(publish).await.map_err(|error| error.to_string())
                }
                (Client::V5(client), Receipt::V5(publish)) => {
                    client.ack(publish).await.map_err(|error| error.to_string())
                }
                _ => Err("the message came over another link".to_owned()),
            }
        };
        tokio::pin!(sending);
        // While events wait to be taken the task sends nothing: they are taken meanwhile.
        loop {
            tokio::select! {
                sent = &mut sending => return sent,
                Some(happened) = self.events.recv() => self.early.push_back(happened),
                else => return Err("the link ended".to_owned()),
            }
        }
    }

    /// Says goodbye, so that the server does not publish a will; it need not arrive.
    pub(crate) fn close(self) {
        let said = match &self.client {
            Client::V3(client) => client.try_disconnect().is_ok(),
            Client::V5(client) => client.try_disconnect().is_ok(),
        };
        if said {
            std::thread::sleep(GOODBYE);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Drives one link until it breaks.
async fn poll(mut events: Events, tell: mpsc::Sender<Happened>, waker: Option<Waker>) {
    loop {
        let happened = match &mut events {
            Events::V3(events) => match events.poll().await {
                Ok(event) => translate::v3(event),
                Err(error) => Some(Happened::Lost(base::report(&error))),
            },
            Events::V5(events) => match events.poll().await {
                Ok(event) => translate::v5(event),
                Err(error) => Some(Happened::Lost(base::report(&error))),
            },
        };
        let Some(happened) = happened else {
            continue;
        };
        let is_lost = matches!(happened, Happened::Lost(_));
        // A full queue holds the server back: nothing is read before there is room.
        let told = tell.send(happened).await;
        if let Some(waker) = &waker {
            waker.wake();
        }
        if told.is_err() || is_lost {
            return;
        }
    }
}

/// Time for a goodbye to leave.
const GOODBYE: Duration = Duration::from_millis(50);
