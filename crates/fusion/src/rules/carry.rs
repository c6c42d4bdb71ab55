//! What goes with a payload: properties of MQTT 5.0 as headers, and back.
//!
//! | header | property |
//! | --- | --- |
//! | `mqtt-topic` | the topic (into the store only) |
//! | `mqtt-retain` | `1`: the publisher asked to retain it |
//! | `mqtt-content-type`, `mqtt-response-topic`, `mqtt-correlation-data` | content type, response topic, correlation data |
//! | `mqtt-payload-format` | `1`: the payload is UTF-8 text |
//! | `mqtt-expires-ms` | message expiry, as milliseconds since 1970 |
//! | [`mqtt::PATH`] | where the message has been |
//! | any other | a user property of that name; headers that are no texts are left out on the way to MQTT |
//!
//! An empty payload that is to be retained is a null value and back: deleting what was retained is
//! deleting by key in a compacted topic.

use base::UnixMillis;
use bytes::Bytes;
use mqtt::{Message, PATH, PropertyBlock};
use streams::{ConsumedRecord, Record};

use crate::limits::RULE_HOPS_MAX;

/// Knows how a rule signs what goes through it.
#[derive(Clone, Debug)]
pub(super) struct Carrier {
    /// What every step of this installation's rules begins with.
    prefix: String,
    /// The rule's own step.
    step: String,
}

/// What a record says of its message beside topic and payload.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// The properties.
    pub block: PropertyBlock,
    /// From when on it is worth nothing.
    pub expires: Option<UnixMillis>,
    /// Whether it is to be retained.
    pub retain: bool,
}

impl Carrier {
    pub(super) fn new(installation: &str, rule: &str) -> Carrier {
        let prefix = format!("{installation}/rule:");
        Carrier {
            step: format!("{prefix}{rule}"),
            prefix,
        }
    }

    /// The rules of this installation in a path.
    pub(super) fn rules_of<'p>(&'p self, path: &'p str) -> impl Iterator<Item = &'p str> {
        path.split(',')
            .filter_map(|step| step.strip_prefix(self.prefix.as_str()))
    }

    /// Whether it has been at too many places to go on.
    pub(super) fn is_worn_out(&self, path: &str) -> bool {
        path.split(',').count() > RULE_HOPS_MAX
    }

    /// The record of a message.
    pub(super) fn record(&self, message: &Message<'_>, key: Option<Bytes>) -> Record {
        let (properties, mut headers) = (&message.properties, Vec::new());
        let mut put = |name: &str, value: &[u8]| {
            headers.push((name.to_owned(), Some(Bytes::copy_from_slice(value))));
        };
        put(TOPIC, message.topic.as_bytes());
        if message.retain_asked {
            put(RETAIN, b"1");
        }
        if let Some(at) = message.expires {
            put(EXPIRES, at.0.to_string().as_bytes());
        }
        if !properties.is_empty() {
            if let Some(kind) = properties.content_type() {
                put(CONTENT_TYPE, kind.as_bytes());
            }
            if let Some(topic) = properties.response_topic() {
                put(RESPONSE_TOPIC, topic.as_bytes());
            }
            if let Some(data) = properties.correlation_data() {
                put(CORRELATION_DATA, data);
            }
            if properties.is_text() {
                put(PAYLOAD_FORMAT, b"1");
            }
            for (name, value) in properties.user().filter(|(name, _)| *name != PATH) {
                put(name, value.as_bytes());
            }
        }
        put(PATH, self.on(path_of_message(message)).as_bytes());
        let is_deletion = message.retain_asked && message.payload.is_empty();
        Record {
            key,
            value: (!is_deletion).then(|| Bytes::copy_from_slice(message.payload)),
            headers,
            timestamp: Some(message.received),
        }
    }

    /// What a record's headers say of its message.
    pub(super) fn told(&self, record: &ConsumedRecord, now: UnixMillis) -> Told {
        let mut told = Told::default();
        let block = &mut told.block;
        for (name, value) in &record.headers {
            let Some(value) = value else { continue };
            let text = std::str::from_utf8(value).ok();
            match (name.as_str(), text) {
                (TOPIC | PATH, _) => {}
                (CORRELATION_DATA, _) => {
                    block.correlation_data(value);
                }
                (RETAIN, text) => told.retain = text == Some("1"),
                (PAYLOAD_FORMAT, text) => {
                    block.payload_is_text(text == Some("1"));
                }
                (EXPIRES, Some(text)) => {
                    told.expires = told.expires.or(text.parse().ok().map(UnixMillis));
                }
                (CONTENT_TYPE, Some(kind)) => {
                    block.content_type(kind);
                }
                (RESPONSE_TOPIC, Some(topic)) => {
                    block.response_topic(topic);
                }
                (name, Some(text)) => {
                    block.user(name, text);
                }
                (_, None) => {}
            }
        }
        if let Some(at) = told.expires {
            block.expires(at, now);
        }
        block.user(PATH, &self.on(path_of_record(record)));
        told
    }

    /// The path with this rule at its end.
    fn on(&self, path: &str) -> String {
        match path {
            "" => self.step.clone(),
            path => format!("{path},{}", self.step),
        }
    }
}

/// Where a message has been; empty when it is new.
pub(super) fn path_of_message<'m>(message: &Message<'m>) -> &'m str {
    if message.properties.is_empty() {
        return "";
    }
    let mut user = message.properties.user();
    user.find(|(name, _)| *name == PATH)
        .map_or("", |(_, path)| path)
}

/// Where a record has been; empty when it is new.
pub(super) fn path_of_record(record: &ConsumedRecord) -> &str {
    header(record, PATH).unwrap_or_default()
}

/// The first header of that name, when it is a text.
pub(super) fn header<'r>(record: &'r ConsumedRecord, name: &str) -> Option<&'r str> {
    let mut headers = record.headers.iter();
    let (_, value) = headers.find(|(known, _)| known == name)?;
    std::str::from_utf8(value.as_ref()?).ok()
}

const TOPIC: &str = "mqtt-topic";
const RETAIN: &str = "mqtt-retain";
const EXPIRES: &str = "mqtt-expires-ms";
const CONTENT_TYPE: &str = "mqtt-content-type";
const RESPONSE_TOPIC: &str = "mqtt-response-topic";
const CORRELATION_DATA: &str = "mqtt-correlation-data";
const PAYLOAD_FORMAT: &str = "mqtt-payload-format";

#[cfg(test)]
mod tests {
    use mqtt::Qos;

    use super::*;

    fn consumed(record: Record) -> ConsumedRecord {
        ConsumedRecord {
            topic: "t".parse().unwrap(),
            partition: 0,
            offset: 0,
            timestamp: record.timestamp.unwrap_or(UnixMillis(0)),
            key: record.key,
            value: record.value,
            headers: record.headers,
        }
    }

    #[test]
    fn properties_travel_as_headers_and_come_back() {
        let mut sent = PropertyBlock::default();
        sent.correlation_data(b"\xff\x00");
        sent.content_type("text/plain");
        sent.response_topic("answers");
        sent.payload_is_text(true);
        sent.user("site", "1");
        sent.user("site", "2");
        let message = Message {
            topic: "a/b",
            payload: b"21",
            qos: Qos::AtLeastOnce,
            retain_asked: true,
            received: UnixMillis(1_000),
            expires: Some(UnixMillis(61_000)),
            properties: sent.properties(),
            ..Message::default()
        };
        let way_in = Carrier::new("here", "in");
        let record = way_in.record(&message, Some(Bytes::from_static(b"k")));
        assert_eq!(record.value.as_deref(), Some(&b"21"[..]));
        assert_eq!(record.timestamp, Some(UnixMillis(1_000)));
        let names: Vec<&str> = record
            .headers
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "mqtt-topic",
                "mqtt-retain",
                "mqtt-expires-ms",
                "mqtt-content-type",
                "mqtt-response-topic",
                "mqtt-correlation-data",
                "mqtt-payload-format",
                "site",
                "site",
                PATH
            ]
        );
        let record = consumed(record);
        assert_eq!(path_of_record(&record), "here/rule:in");
        assert_eq!(header(&record, "mqtt-topic"), Some("a/b"));
        let told = Carrier::new("here", "back").told(&record, UnixMillis(31_000));
        assert!(told.retain);
        assert_eq!(told.expires, Some(UnixMillis(61_000)));
        let back = told.block.properties();
        assert_eq!(back.correlation_data(), Some(&b"\xff\x00"[..]));
        assert_eq!(back.content_type(), Some("text/plain"));
        assert_eq!(back.response_topic(), Some("answers"));
        assert_eq!(back.message_expiry_s(), Some(30));
        assert!(back.is_text());
        let user: Vec<_> = back.user().collect();
        let path = "here/rule:in,here/rule:back";
        assert_eq!(user, [("site", "1"), ("site", "2"), (PATH, path)]);
        let passed: Vec<&str> = way_in.rules_of(path).collect();
        assert_eq!(passed, ["in", "back"]);
        assert_eq!(Carrier::new("there", "in").rules_of(path).count(), 0);
    }

    #[test]
    fn a_deletion_is_a_null_value_and_headers_that_are_no_texts_stay_behind() {
        let carrier = Carrier::new("here", "r");
        let empty = Message {
            topic: "a",
            retain_asked: true,
            ..Message::default()
        };
        assert_eq!(carrier.record(&empty, None).value, None);
        let plain = Message {
            retain_asked: false,
            ..empty
        };
        assert_eq!(carrier.record(&plain, None).value, Some(Bytes::new()));
        let record = consumed(Record {
            headers: vec![
                ("b".to_owned(), Some(Bytes::from_static(b"\xff"))),
                ("n".to_owned(), None),
                (
                    "mqtt-response-topic".to_owned(),
                    Some(Bytes::from_static(b"a/+")),
                ),
                ("k".to_owned(), Some(Bytes::from_static(b"v"))),
            ],
            ..Record::default()
        });
        let told = carrier.told(&record, UnixMillis(0));
        let user: Vec<_> = told.block.properties().user().collect();
        assert_eq!(user, [("k", "v"), (PATH, "here/rule:r")]);
        assert_eq!(told.block.properties().response_topic(), None);
        assert!(!told.retain);
    }

    #[test]
    fn a_path_that_grows_without_end_ends() {
        let carrier = Carrier::new("here", "r");
        assert!(!carrier.is_worn_out(&vec!["x"; RULE_HOPS_MAX].join(",")));
        assert!(carrier.is_worn_out(&vec!["x"; RULE_HOPS_MAX + 1].join(",")));
    }
}
