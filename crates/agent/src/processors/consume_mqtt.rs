//! ConsumeMQTT: messages as FlowFiles; acknowledged when they are durable.
//!
//! With QoS 1 and 2 a message is acknowledged only after its FlowFile is durable. With a session
//! that the server keeps (Clean Session false, or with 5.0 Clean Start false and an expiry) what
//! was not acknowledged comes again after a crash or a lost link: at least once. With a clean
//! session what was on its way when the link broke is lost, as MQTT says.
//!
//! With a Record Reader and a Record Writer the messages that are there become one FlowFile of
//! records. A message that cannot be read or written so is told in a bulletin and let go, as in
//! MiNiFi C++.
//!
//! A flow that is held back stops reading from the server: nothing is dropped here. When that
//! lasts longer than the keep alive interval, the server may end the link.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rumqttc::QoS;

use super::convert_record::{Formats, MIME_TYPE, READER, RECORD_COUNT, WRITER};
use super::mqtt_properties::{
    BROKER_URI, CLIENT_ID, KEEP_ALIVE, PASSWORD, QUALITY, SECURITY_PROTOCOL, SSL_CONTEXT, TIMEOUT,
    USERNAME, VERSION, WILL_CONTENT_TYPE, WILL_MESSAGE, WILL_QUALITY, WILL_RETAIN, WILL_TOPIC,
    quality, settings as mqtt_settings,
};
use super::refused::{Refused, taken};
use super::tls_files::{SECURITY_CA, SECURITY_CERT, SECURITY_KEY, SECURITY_PASS_PHRASE};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::{Context, is_passing};
use crate::flowfile::Attributes;
use crate::json::{Fields, Json};
use crate::mqtt::{Happened, Link, Message, MqttSettings, Version};
use crate::net::limits::{MQTT_BATCH_BYTES_MAX, MQTT_MESSAGES_WAITING_MAX};
use crate::provenance::EventKind;
use crate::record_sets::{READER_ROLE, RecordError, WRITER_ROLE};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "ConsumeMQTT",
    description: "Subscribes to MQTT topics; messages are acknowledged when their FlowFiles are \
                  durable.",
    properties: &[
        BROKER_URI,
        PropertyKind::new(
            "Topic",
            "The filter to subscribe to; + and # are wildcards.",
        )
        .required(),
        CLIENT_ID,
        QUALITY,
        VERSION,
        PropertyKind::new(
            "Clean Session",
            "Whether the server forgets what it kept for the client; 3.1.1 only. Without it \
             Client ID is needed.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new("Clean Start", "The same for 5.0.")
            .default("true")
            .shape(Shape::Flag),
        PropertyKind::new(
            "Session Expiry Interval",
            "How long a 5.0 server keeps the session without a link.",
        )
        .default("0 s")
        .shape(Shape::Duration),
        PropertyKind::new(
            "Queue Max Message",
            "Messages that wait at most; then it reads no more.",
        )
        .default("1000")
        .shape(Shape::Integer(1)),
        PropertyKind::new(
            "Attribute From Content Type",
            "Name of the attribute that takes a 5.0 message's content type.",
        ),
        PropertyKind::new(
            "Receive Maximum",
            "Messages that a 5.0 server may have in flight unacknowledged.",
        )
        .default("65535")
        .shape(Shape::Integer(1)),
        PropertyKind::new(
            "Topic Alias Maximum",
            "Has no meaning: a 5.0 server may use none, and writes topics out.",
        )
        .default("0")
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            READER.name,
            "The service that reads messages as records; all that are there become one FlowFile.",
        )
        .shape(Shape::Service(READER_ROLE)),
        PropertyKind::new(WRITER.name, "The service that writes these records.")
            .shape(Shape::Service(WRITER_ROLE)),
        PropertyKind::new(
            "Add Attributes As Fields",
            "Whether each record has the fields _topic, _topicSegments, _qos, _isDuplicate and \
             _isRetained of its message.",
        )
        .default("true")
        .shape(Shape::Flag),
        KEEP_ALIVE,
        TIMEOUT,
        WILL_TOPIC,
        WILL_MESSAGE,
        WILL_QUALITY,
        WILL_RETAIN,
        WILL_CONTENT_TYPE,
        USERNAME,
        PASSWORD,
        SECURITY_PROTOCOL,
        SSL_CONTEXT,
        SECURITY_CA,
        SECURITY_CERT,
        SECURITY_KEY,
        SECURITY_PASS_PHRASE,
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "A FlowFile for each message, or for the records of several.",
    }],
    writes: &[
        AttributeKind::new("mqtt.broker", "The Broker URI."),
        AttributeKind::new(
            "mqtt.topic",
            "The message's topic; this and what follows not where messages are records.",
        ),
        AttributeKind::new(
            "mqtt.topic.segment.<n>",
            "The topic's parts, counted from zero.",
        ),
        AttributeKind::new("mqtt.qos", "The quality of service with which it came."),
        AttributeKind::new("mqtt.isDuplicate", "Whether it may have come before."),
        AttributeKind::new("mqtt.isRetained", "Whether the server had kept it."),
        AttributeKind::new(
            "mqtt.response.topic",
            "Where a 5.0 message wants an answer.",
        ),
        AttributeKind::new("<user property>", "The user properties of a 5.0 message."),
        AttributeKind::new(RECORD_COUNT.name, "Records, where messages are records."),
        AttributeKind::new(MIME_TYPE.name, "What the Record Writer writes."),
    ],
    input: Input::Forbidden,
    make: |settings| ConsumeMqtt::new(settings).map(|made| Box::new(made) as _),
};

struct ConsumeMqtt {
    settings: MqttSettings,
    /// As the flow writes it.
    broker: String,
    filter: String,
    qos: QoS,
    queue: usize,
    content_type_attribute: Option<String>,
    formats: Option<Formats>,
    adds_fields: bool,
    link: Option<Link>,
    /// What came over that link and found no room in the repository yet.
    in_hand: Vec<Message>,
}

/// What came over the link since the last look.
#[derive(Default)]
struct News {
    messages: Vec<Message>,
    lost: Option<String>,
}

impl ConsumeMqtt {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let mut of_link = mqtt_settings(settings)?;
        of_link.is_clean = match of_link.version {
            Version::V3 => settings.flag("Clean Session")?,
            Version::V5 => settings.flag("Clean Start")?,
        };
        if !of_link.is_clean && settings.text("Client ID")?.is_none() {
            return Err("a session that is kept needs a Client ID".to_owned());
        }
        of_link.session_expiry = settings.duration("Session Expiry Interval")?;
        of_link.receive_max = settings.integer("Receive Maximum")?;
        let queue: usize = settings.integer("Queue Max Message")?;
        Ok(ConsumeMqtt {
            settings: of_link,
            broker: settings.needed("Broker URI")?,
            filter: settings.needed("Topic")?,
            qos: quality(settings, "Quality of Service")?,
            queue: queue.min(MQTT_MESSAGES_WAITING_MAX),
            content_type_attribute: settings.text("Attribute From Content Type")?,
            formats: Formats::optional(settings)?,
            adds_fields: settings.flag("Add Attributes As Fields")?,
            link: None,
            in_hand: Vec::new(),
        })
    }

    /// Takes what is there, up to a session's worth.
    fn look(&mut self, context: &Context) -> Result<News, ProcessorError> {
        let (settings, queue) = (&self.settings, self.queue);
        let link = self.link.get_or_insert_with(|| {
            Link::start(context.runtime(), settings, queue, Some(context.waker()))
        });
        let mut news = News::default();
        let mut bytes = 0;
        while news.messages.len() < self.queue && bytes < MQTT_BATCH_BYTES_MAX {
            match link.next_now() {
                None => break,
                Some(Happened::Connected) => {
                    let subscribing = link.subscribe(&self.filter, self.qos);
                    context
                        .runtime()
                        .block_on(subscribing)
                        .map_err(ProcessorError::Failed)?;
                }
                Some(Happened::Subscribed(Err(reason))) => {
                    news.lost = Some(format!("'{}': {reason}", self.filter));
                    break;
                }
                Some(Happened::Message(message)) => {
                    bytes += message.payload.len();
                    news.messages.push(*message);
                }
                Some(Happened::Lost(reason)) => {
                    news.lost = Some(reason);
                    break;
                }
                Some(_) => {}
            }
        }
        if news.lost.is_some() && !self.settings.is_clean {
            // What cannot be acknowledged any more comes again.
            news.messages.retain(|message| message.qos == 0);
        }
        Ok(news)
    }

    /// Makes FlowFiles of messages.
    fn keep(
        &self,
        session: &mut ProcessSession<'_>,
        messages: &[Message],
    ) -> Result<(), ProcessorError> {
        let all: Vec<&[u8]> = messages
            .iter()
            .map(|message| message.payload.as_ref())
            .collect();
        let content = session.content(Bytes::from(all.concat()))?;
        let mut offset = 0;
        for message in messages {
            let len = message.payload.len() as u64;
            let mut flow_file = session.create(Arc::new(self.attributes(message)));
            if len > 0 {
                session.set_content(&mut flow_file, content.slice(offset, len))?;
            }
            offset += len;
            let transit = format!("mqtt://{}/{}", self.settings.address(), message.topic);
            session.note(&flow_file, EventKind::Receive, &transit);
            session.transfer(flow_file, 0);
        }
        Ok(())
    }

    /// Makes one FlowFile of the records of all messages.
    fn keep_records(
        &self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        formats: &Formats,
        messages: &[Message],
    ) -> Result<(), ProcessorError> {
        let mut records = Vec::with_capacity(messages.len());
        for message in messages {
            if let Some(of_message) = taken(context, self.records(formats, message))? {
                records.push(of_message);
            }
        }
        if records.iter().all(Vec::is_empty) {
            return Ok(());
        }
        match self.write_records(session, formats, records.iter().flatten()) {
            // One that does not fit to the others does not take them along.
            Err(Refused::FlowFile(_)) if records.len() > 1 => {
                for of_message in &records {
                    let written = self.write_records(session, formats, of_message.iter());
                    taken(context, written)?;
                }
                Ok(())
            }
            written => taken(context, written).map(drop),
        }
    }

    /// The records of a message, all of them or none.
    fn records(&self, formats: &Formats, message: &Message) -> Result<Vec<Fields>, Refused> {
        let mut records = formats.readers.open(message.payload.as_ref());
        let mut all = Vec::new();
        let unread = |error: RecordError| match Refused::from(error) {
            Refused::FlowFile(why) => {
                Refused::FlowFile(format!("a message to '{}': {why}", message.topic))
            }
            session => session,
        };
        while let Some(mut record) = records.next().map_err(unread)? {
            if self.adds_fields {
                let segments = message.topic.split('/').take(SEGMENTS_MAX);
                let segments = segments.map(|segment| Json::Text(segment.to_owned()));
                record.set("_topic", Json::Text(message.topic.clone()));
                record.set("_topicSegments", Json::List(segments.collect()));
                record.set("_qos", Json::Whole(message.qos.into()));
                record.set("_isDuplicate", Json::Flag(message.is_duplicate));
                record.set("_isRetained", Json::Flag(message.is_retained));
            }
            all.push(record);
        }
        Ok(all)
    }

    fn write_records<'r>(
        &self,
        session: &mut ProcessSession<'_>,
        formats: &Formats,
        records: impl Iterator<Item = &'r Fields>,
    ) -> Result<(), Refused> {
        let mut content = session.writer();
        let mut count = 0;
        {
            let mut writer = formats.writers.create(&mut content);
            for record in records {
                writer.write(record)?;
                count += 1;
            }
            writer.finish()?;
        }
        let content = content.finish()?;
        let mut attributes = Attributes::default();
        attributes.set("mqtt.broker", self.broker.as_str());
        attributes.set(RECORD_COUNT.name, count.to_string());
        attributes.set(MIME_TYPE.name, formats.writers.mime_type());
        let mut flow_file = session.create(Arc::new(attributes));
        session.set_content(&mut flow_file, content)?;
        let transit = format!("mqtt://{}/{}", self.settings.address(), self.filter);
        session.note(&flow_file, EventKind::Receive, &transit);
        session.transfer(flow_file, 0);
        Ok(())
    }

    fn attributes(&self, message: &Message) -> Attributes {
        let user = message.user_properties.iter();
        let mut attributes =
            Attributes::new(user.map(|(name, value)| (name.as_str(), value.as_str())));
        attributes.set("mqtt.broker", self.broker.as_str());
        attributes.set("mqtt.topic", message.topic.as_str());
        for (index, segment) in message.topic.split('/').enumerate().take(SEGMENTS_MAX) {
            attributes.set(&format!("mqtt.topic.segment.{index}"), segment);
        }
        attributes.set("mqtt.qos", message.qos.to_string());
        attributes.set("mqtt.isDuplicate", message.is_duplicate.to_string());
        attributes.set("mqtt.isRetained", message.is_retained.to_string());
        if let Some(topic) = &message.response_topic {
            attributes.set("mqtt.response.topic", topic.as_str());
        }
        if let (Some(name), Some(kind)) = (&self.content_type_attribute, &message.content_type) {
            attributes.set(name, kind.as_str());
        }
        attributes
    }

    fn acknowledge(&mut self, context: &Context, messages: &[Message]) {
        let Some(link) = &mut self.link else {
            return;
        };
        for message in messages.iter().filter(|message| message.qos > 0) {
            if let Err(reason) = context.runtime().block_on(link.acknowledge(message)) {
                // The link is lost; the message comes again if the session is kept.
                tracing::debug!(reason, "not acknowledged");
                return;
            }
        }
    }
}

impl Processor for ConsumeMqtt {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let mut next = Next::Again;
        // Until what is in hand is kept, the server is held back.
        if self.in_hand.is_empty() {
            let news = self.look(context)?;
            if news.messages.is_empty() {
                next = Next::Listening(IDLE);
            }
            if let Some(reason) = news.lost {
                self.link = None;
                let address = self.settings.address();
                context.post(Level::Warning, &format!("no link to {address}: {reason}"));
                next = Next::Yield;
            }
            self.in_hand = news.messages;
        }
        if !self.in_hand.is_empty() {
            let messages = std::mem::take(&mut self.in_hand);
            let kept = match &self.formats {
                Some(formats) => self.keep_records(context, session, formats, &messages),
                None => self.keep(session, &messages),
            };
            match kept.and_then(|()| session.commit_and_wait()) {
                Ok(()) => self.acknowledge(context, &messages),
                Err(ProcessorError::Repository(error)) if is_passing(&error) => {
                    self.in_hand = messages;
                    return Err(error.into());
                }
                Err(error) => {
                    // Without a link the server sends again what it may.
                    self.link = None;
                    return Err(error);
                }
            }
        }
        Ok(next)
    }

    fn stop(&mut self) {
        self.in_hand.clear();
        if let Some(link) = self.link.take() {
            link.close();
        }
    }
}

/// Without messages it looks again after this long; messages wake it.
const IDLE: Duration = Duration::from_secs(3_600);

/// Parts of a topic that become attributes.
const SEGMENTS_MAX: usize = 32;

#[cfg(test)]
#[path = "consume_mqtt_tests.rs"]
mod tests;
