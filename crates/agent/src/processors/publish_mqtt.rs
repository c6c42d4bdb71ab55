//! PublishMQTT: FlowFiles as MQTT messages of 3.1.1 or 5.0, of QoS 0, 1 or 2.
//!
//! At least once with QoS 1 and 2: FlowFiles leave after the server acknowledged all of their
//! batch, so after a crash or a lost connection the batch is published again. With QoS 0 they
//! leave when the bytes are with the operating system, and what a broken connection swallowed is
//! lost. A message that a 5.0 server refuses by a reason fails alone.
//!
//! With a Record Reader and a Record Writer each record of a FlowFile is a message, and a FlowFile
//! that leaves in its place; all of them are read before the first is published, and a batch that
//! breaks has all of the FlowFile's records published again.

use std::collections::HashMap;
use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rumqttc::QoS;
use tokio::time::Instant;

use super::convert_record::{Formats, MIME_TYPE, READER, WRITER};
use super::mqtt_properties::{
    BROKER_URI, CLIENT_ID, KEEP_ALIVE, PASSWORD, QUALITY, SECURITY_PROTOCOL, SSL_CONTEXT, TIMEOUT,
    USERNAME, VERSION, WILL_CONTENT_TYPE, WILL_MESSAGE, WILL_QUALITY, WILL_RETAIN, WILL_TOPIC,
    is_legal, quality, settings as mqtt_settings,
};
use super::refused::{Refused, taken};
use super::tls_files::{SECURITY_CA, SECURITY_CERT, SECURITY_KEY, SECURITY_PASS_PHRASE};
use super::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape,
};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::limits::{CONTENT_PIECE_BYTES, MQTT_IN_FLIGHT_MAX, SPLITS_MAX};
use crate::mqtt::{Happened, Link, MqttSettings, Outgoing};
use crate::net::limits::MQTT_PACKET_BYTES_MAX;
use crate::provenance::EventKind;
use crate::record_sets::{READER_ROLE, WRITER_ROLE};
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "PublishMQTT",
    description: "Publishes each FlowFile as an MQTT message, at least once with QoS 1 or 2.",
    properties: &[
        BROKER_URI,
        PropertyKind::new("Topic", "Where messages go.")
            .required()
            .expressions(Expressions::FlowFile),
        CLIENT_ID,
        QUALITY,
        PropertyKind::new(
            "Retain",
            "Whether the server keeps the last message of a topic.",
        )
        .default("false")
        .shape(Shape::Flag),
        VERSION,
        PropertyKind::new(
            "Clean Session",
            "Whether the server forgets what it knew of the client; 3.1.1 only.",
        )
        .default("true")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Message Expiry Interval",
            "Time after which the server lets go of a message; 5.0 only.",
        )
        .shape(Shape::Duration),
        PropertyKind::new("Content Type", "What messages are; 5.0 only.")
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            READER.name,
            "The service that reads the content as records, each of which is a message.",
        )
        .shape(Shape::Service(READER_ROLE)),
        PropertyKind::new(
            WRITER.name,
            "The service that writes each record's message.",
        )
        .shape(Shape::Service(WRITER_ROLE)),
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
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles that are published, or one for each of their records.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that cannot be messages: no legal topic, too large, no \
                          records.",
        },
    ],
    writes: &[AttributeKind::new(
        MIME_TYPE.name,
        "What the Record Writer writes.",
    )],
    input: Input::Required,
    make: |settings| PublishMqtt::new(settings).map(|made| Box::new(made) as _),
};

struct PublishMqtt {
    settings: MqttSettings,
    topic: Expression,
    content_type: Option<Expression>,
    expiry: Option<u32>,
    qos: QoS,
    retain: bool,
    formats: Option<Formats>,
    link: Option<Link>,
}

/// What became of a batch: for each message nothing, or why the server refuses it.
type Outcomes = Vec<Option<String>>;

impl PublishMqtt {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let expiry = match settings.text("Message Expiry Interval")? {
            Some(_) => Some(settings.duration("Message Expiry Interval")?.as_secs()),
            None => None,
        };
        let mut of_link = mqtt_settings(settings)?;
        of_link.is_clean = settings.flag("Clean Session")?;
        Ok(PublishMqtt {
            settings: of_link,
            topic: settings.expression("Topic")?.ok_or("Topic is empty")?,
            content_type: settings.expression("Content Type")?,
            expiry: expiry.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
            qos: quality(settings, "Quality of Service")?,
            retain: settings.flag("Retain")?,
            formats: Formats::optional(settings)?,
            link: None,
        })
    }

    /// Publishes FlowFiles, batch by batch.
    fn send(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        flow_files: Vec<FlowFile>,
    ) -> Result<(), ProcessorError> {
        let mut waiting = flow_files.into_iter().peekable();
        while waiting.peek().is_some() {
            if context.is_stopping() {
                return Err(ProcessorError::Failed("stopped between batches".to_owned()));
            }
            let batch = self.gather(context, session, &mut waiting)?;
            self.send_batch(context, session, batch)?;
        }
        Ok(())
    }

    /// The messages of a batch; FlowFiles without a legal topic fail.
    fn gather(
        &self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        waiting: &mut Peekable<impl Iterator<Item = FlowFile>>,
    ) -> Result<Vec<(Outgoing, FlowFile)>, ProcessorError> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < usize::from(MQTT_IN_FLIGHT_MAX)
            && let Some(flow_file) =
                waiting.next_if(|next| bytes == 0 || bytes + next.size() <= BATCH_BYTES_MAX)
        {
            bytes += flow_file.size();
            match self.message(session, &flow_file)? {
                Ok(message) => batch.push((message, flow_file)),
                Err(reason) => {
                    context.post(Level::Error, &reason);
                    session.transfer_penalized(flow_file, FAILURE);
                }
            }
        }
        Ok(batch)
    }

    fn message(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<Result<Outgoing, String>, ProcessorError> {
        let scope = session.scope(flow_file);
        let topic = match self.topic.evaluate(scope) {
            Ok(topic) if is_legal(&topic) => topic.into_owned(),
            Ok(topic) => return Ok(Err(format!("'{topic}' is no topic to publish to"))),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let content_type = self.content_type.as_ref().map(|text| text.evaluate(scope));
        let content_type = match content_type.transpose() {
            Ok(text) => text
                .map(|text| text.into_owned())
                .filter(|text| !text.is_empty()),
            Err(error) => return Ok(Err(error.to_string())),
        };
        let size = flow_file.size();
        if size > MESSAGE_BYTES_MAX {
            return Ok(Err(format!("{size} bytes are too many for a message")));
        }
        Ok(Ok(Outgoing {
            topic,
            payload: session.read(flow_file)?,
            is_retained: self.retain,
            content_type,
            expiry: self.expiry,
        }))
    }

    /// Publishes a batch and waits until the server is done with all of it.
    fn publish(
        &mut self,
        context: &Context,
        messages: Vec<Outgoing>,
    ) -> Result<Outcomes, ProcessorError> {
        let ahead = usize::from(MQTT_IN_FLIGHT_MAX);
        let (settings, qos) = (&self.settings, self.qos);
        let link = self
            .link
            .get_or_insert_with(|| Link::start(context.runtime(), settings, ahead, None));
        let publishing = exchange(link, messages, qos, settings.connect_wait);
        let outcome = context.runtime().block_on(publishing);
        outcome.map_err(|reason| {
            // What this link has in flight is not known: the next try has a new one.
            self.link = None;
            let address = self.settings.address();
            ProcessorError::Failed(format!("not published to {address}: {reason}"))
        })
    }

    fn send_batch(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        batch: Vec<(Outgoing, FlowFile)>,
    ) -> Result<(), ProcessorError> {
        let (messages, flow_files): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        if messages.is_empty() {
            return Ok(());
        }
        let topics: Vec<String> = messages
            .iter()
            .map(|message| message.topic.clone())
            .collect();
        let outcomes = self.publish(context, messages)?;
        for ((flow_file, refused), topic) in flow_files.into_iter().zip(outcomes).zip(topics) {
            match refused {
                None => {
                    let transit = format!("mqtt://{}/{topic}", self.settings.address());
                    session.note(&flow_file, EventKind::Send, &transit);
                    session.transfer(flow_file, SUCCESS);
                }
                Some(reason) => {
                    context.post(Level::Error, &format!("'{topic}': {reason}"));
                    session.transfer_penalized(flow_file, FAILURE);
                }
            }
        }
        Ok(())
    }
}

impl Processor for PublishMqtt {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let flow_files = match &self.formats {
            None => session.take(usize::from(MQTT_IN_FLIGHT_MAX), BATCH_BYTES_MAX),
            Some(formats) => {
                let Some(whole) = session.take_one() else {
                    return Ok(Next::Scheduled);
                };
                match taken(context, by_records(formats, session, &whole))? {
                    Some(pieces) => {
                        session.remove_all(vec![whole]);
                        pieces
                    }
                    None => {
                        session.transfer_penalized(whole, FAILURE);
                        Vec::new()
                    }
                }
            }
        };
        self.send(context, session, flow_files)?;
        session.commit_lazily()?;
        Ok(Next::Scheduled)
    }

    fn stop(&mut self) {
        if let Some(link) = self.link.take() {
            link.close();
        }
    }
}

/// A FlowFile for each record of `whole`, its content a set of that record alone.
fn by_records(
    formats: &Formats,
    session: &mut ProcessSession<'_>,
    whole: &FlowFile,
) -> Result<Vec<FlowFile>, Refused> {
    let mut records = formats.readers.open(session.reader(whole));
    let (mut contents, mut bytes, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let record = records.next()?;
        if !ends.is_empty() && (record.is_none() || bytes.len() >= CONTENT_PIECE_BYTES) {
            let content = session.content(Bytes::from(std::mem::take(&mut bytes)))?;
            let mut start = 0;
            for end in ends.drain(..) {
                contents.push(content.slice(start, end - start));
                start = end;
            }
        }
        let Some(record) = record else {
            break;
        };
        if contents.len() + ends.len() >= SPLITS_MAX {
            return Err(Refused::flow_file(format!(
                "there are more than {SPLITS_MAX} records: split it before"
            )));
        }
        let mut writer = formats.writers.create(&mut bytes);
        writer.write(&record)?;
        writer.finish()?;
        drop(writer);
        ends.push(bytes.len() as u64);
    }
    let mut attributes = Arc::clone(whole.attributes());
    Arc::make_mut(&mut attributes).set(MIME_TYPE.name, formats.writers.mime_type());
    let mut pieces = Vec::with_capacity(contents.len());
    for content in contents {
        let mut piece = session.create_child(&[whole], Arc::clone(&attributes));
        session.set_content(&mut piece, content)?;
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Publishes `messages` and waits for what the server says to each, in their order.
async fn exchange(
    link: &mut Link,
    messages: Vec<Outgoing>,
    qos: QoS,
    wait: Duration,
) -> Result<Outcomes, String> {
    let count = messages.len();
    for message in messages {
        tokio::time::timeout(wait, link.publish(message, qos))
            .await
            .map_err(|_| "the server takes no more messages".to_owned())??;
    }
    let mut outcomes: Outcomes = vec![None; count];
    let mut numbers: HashMap<u16, usize> = HashMap::new();
    let (mut sent, mut done) = (0, 0);
    let mut deadline = Instant::now() + wait;
    while done < count {
        let happened = match tokio::time::timeout_at(deadline, link.next()).await {
            Ok(happened) => happened,
            Err(_) => return Err(format!("no answer within {} s", wait.as_secs())),
        };
        match happened {
            // Ids come in the order of the messages.
            Some(Happened::Sent(id)) => {
                numbers.insert(id, sent);
                sent += 1;
                done += usize::from(qos == QoS::AtMostOnce);
            }
            Some(Happened::Done(id, outcome)) => {
                if let Some(index) = numbers.remove(&id) {
                    outcomes[index] = outcome.err();
                    done += 1;
                }
            }
            Some(Happened::Lost(reason)) => return Err(reason),
            Some(_) => {}
            None => return Err("the link ended".to_owned()),
        }
        deadline = Instant::now() + wait;
    }
    Ok(outcomes)
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// Bytes of one message; a packet has its topic beside.
const MESSAGE_BYTES_MAX: u64 = (MQTT_PACKET_BYTES_MAX / 2) as u64;

/// Content bytes published before an acknowledgement is waited for.
const BATCH_BYTES_MAX: u64 = 4 << 20;
