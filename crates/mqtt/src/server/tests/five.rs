//! MQTT 5.0 over real sockets: packets written byte by byte, as the standard has them.

pub(super) mod connect;
pub(super) mod exactly_once;
pub(super) mod flow;
pub(super) mod login;
pub(super) mod refusals;
pub(super) mod sessions;
pub(super) mod shared;
pub(super) mod subscribe;
pub(super) mod travel;
pub(super) mod wills;
pub(super) mod words;

use super::Running;
use super::client::{Client, packet};
use crate::codec::Properties;

/// A CONNECT of 5.0 in the making.
pub(super) struct Connect {
    id: String,
    flags: u8,
    keep_alive_s: u16,
    properties: Vec<u8>,
    will: Vec<u8>,
    login: Vec<u8>,
}

/// What a CONNACK said.
pub(super) struct Connack {
    pub(super) present: bool,
    pub(super) reason: u8,
    properties: Vec<u8>,
}

/// A PUBLISH from the server.
#[derive(Debug, PartialEq)]
pub(super) struct Got {
    pub(super) first: u8,
    pub(super) topic: String,
    pub(super) id: u16,
    pub(super) payload: String,
    pub(super) block: Vec<u8>,
}

impl Connect {
    pub(super) fn new(id: &str) -> Self {
        Connect {
            id: id.to_owned(),
            flags: 0b10,
            keep_alive_s: 0,
            properties: Vec::new(),
            will: Vec::new(),
            login: Vec::new(),
        }
    }

    /// Goes on with the session that there is, for `expiry_s` beyond this link.
    pub(super) fn kept(id: &str, expiry_s: u32) -> Self {
        let mut connect = Connect::new(id).with(four(17, expiry_s));
        connect.flags = 0;
        connect
    }

    pub(super) fn clean(mut self) -> Self {
        self.flags |= 0b10;
        self
    }

    pub(super) fn with(mut self, property: Vec<u8>) -> Self {
        self.properties.extend(property);
        self
    }

    pub(super) fn keep_alive(mut self, seconds: u16) -> Self {
        self.keep_alive_s = seconds;
        self
    }

    /// `flags`: QoS in bits 3 and 4, retain in bit 5.
    pub(super) fn will(mut self, topic: &str, flags: u8, properties: Vec<u8>) -> Self {
        self.flags |= 0b100 | flags;
        self.will = block(&properties);
        self.will.extend(text(topic));
        self.will.extend(text("gone"));
        self
    }

    pub(super) fn password(mut self, name: Option<&str>, password: &str) -> Self {
        self.flags |= if name.is_some() {
            0b1100_0000
        } else {
            0b0100_0000
        };
        self.login = name.map(text).unwrap_or_default();
        self.login.extend(text(password));
        self
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut body = b"\0\x04MQTT\x05".to_vec();
        body.push(self.flags);
        body.extend(self.keep_alive_s.to_be_bytes());
        body.extend(block(&self.properties));
        body.extend(text(&self.id));
        body.extend(&self.will);
        body.extend(&self.login);
        packet(0x10, &body)
    }

    /// Connects; the server must accept.
    pub(super) async fn go(&self, port: u16) -> Client {
        let (client, connack) = self.told(port).await;
        assert_eq!(connack.reason, 0, "CONNACK of {}", self.id);
        client
    }

    /// Connects, and tells what the server said.
    pub(super) async fn told(&self, port: u16) -> (Client, Connack) {
        let mut client = Client::open(port).await;
        client.send(&self.bytes()).await;
        let connack = client.connack().await;
        (client, connack)
    }
}

impl Connack {
    pub(super) fn properties(&self) -> Properties<'_> {
        Properties::stored(&self.properties)
    }
}

impl Got {
    pub(super) fn properties(&self) -> Properties<'_> {
        Properties::stored(&self.block)
    }

    pub(super) fn qos(&self) -> u8 {
        (self.first >> 1) & 3
    }

    pub(super) fn is_dup(&self) -> bool {
        self.first & 8 != 0
    }

    pub(super) fn is_retained(&self) -> bool {
        self.first & 1 != 0
    }
}

impl Client {
    pub(super) async fn connack(&mut self) -> Connack {
        let (first, body) = self.packet().await;
        assert_eq!(first, 0x20, "not a CONNACK: {first:#x} {body:?}");
        assert_eq!(body[0] & 0xfe, 0, "reserved bits of a CONNACK");
        Connack {
            present: body[0] == 1,
            reason: body[1],
            properties: body[3..].to_vec(),
        }
    }

    /// The next packet must be a PUBLISH of 5.0.
    pub(super) async fn got(&mut self) -> Got {
        let (first, body) = self.packet().await;
        assert_eq!(first >> 4, 3, "not a PUBLISH: {first:#x} {body:?}");
        let topic_end = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
        let mut at = topic_end;
        let mut id = 0;
        if first & 0b110 != 0 {
            id = u16::from_be_bytes([body[at], body[at + 1]]);
            assert_ne!(id, 0, "packet identifier 0");
            at += 2;
        }
        let length = usize::from(body[at]);
        assert!(length < 128, "the tests' properties are few");
        let block = body[at + 1..at + 1 + length].to_vec();
        let payload = String::from_utf8(body[at + 1 + length..].to_vec()).unwrap();
        Got {
            first,
            topic: String::from_utf8(body[2..topic_end].to_vec()).unwrap(),
            id,
            payload,
            block,
        }
    }

    /// The server must end the link with this reason.
    pub(super) async fn told_to_go(&mut self, reason: u8) {
        let (first, body) = self.packet().await;
        assert_eq!((first, body[0]), (0xe0, reason), "not that DISCONNECT");
        self.expect_end().await;
    }

    /// Subscribes with options and properties, and takes the SUBACK's codes.
    pub(super) async fn subscribe5(
        &mut self,
        properties: &[u8],
        filters: &[(&str, u8)],
    ) -> Vec<u8> {
        self.send(&subscribe(77, properties, filters)).await;
        let (first, body) = self.packet().await;
        assert_eq!((first, &body[..3]), (0x90, &[0, 77, 0][..]), "SUBACK");
        body[3..].to_vec()
    }

    /// Publishes with QoS 1 and takes the PUBACK's reason.
    pub(super) async fn publish5(&mut self, topic: &str, payload: &str, properties: &[u8]) -> u8 {
        self.send(&publish(0x32, topic, 9, properties, payload))
            .await;
        let (first, body) = self.packet().await;
        assert_eq!((first, &body[..2]), (0x40, &[0, 9][..]), "PUBACK");
        body.get(2).copied().unwrap_or(0)
    }

    pub(super) async fn ack(&mut self, kind: u8, id: u16) {
        let [high, low] = id.to_be_bytes();
        self.send(&[kind, 2, high, low]).await;
    }
}

/// Each of these packets must end its link, for that reason.
pub(super) async fn each_ends_its_link<const N: usize>(
    running: &Running,
    cases: [(&str, Vec<u8>, u8); N],
) {
    for (why, bytes, reason) in cases {
        let mut client = Connect::new("c").go(running.port).await;
        client.send(&bytes).await;
        let (first, body) = client.packet().await;
        assert_eq!((first, body[0]), (0xe0, reason), "{why}");
        client.expect_end().await;
    }
}

/// A PUBLISH of 5.0; `id` is left out for QoS 0.
pub(super) fn publish(
    first: u8,
    topic: &str,
    id: u16,
    properties: &[u8],
    payload: &str,
) -> Vec<u8> {
    let mut body = text(topic);
    if first & 0b110 != 0 {
        body.extend(id.to_be_bytes());
    }
    body.extend(block(properties));
    body.extend(payload.as_bytes());
    packet(first, &body)
}

pub(super) fn subscribe(id: u16, properties: &[u8], filters: &[(&str, u8)]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.extend(block(properties));
    for (filter, options) in filters {
        body.extend(text(filter));
        body.push(*options);
    }
    packet(0x82, &body)
}

pub(super) fn unsubscribe(id: u16, filters: &[&str]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    body.push(0);
    filters.iter().for_each(|filter| body.extend(text(filter)));
    packet(0xa2, &body)
}

/// A DISCONNECT with a reason and, perhaps, properties.
pub(super) fn disconnect(reason: u8, properties: &[u8]) -> Vec<u8> {
    let mut body = vec![reason];
    body.extend(block(properties));
    packet(0xe0, &body)
}

pub(super) fn auth(reason: u8, method: &str, data: &[u8]) -> Vec<u8> {
    let mut properties = named(21, method);
    properties.push(22);
    properties.extend((data.len() as u16).to_be_bytes());
    properties.extend(data);
    let mut body = vec![reason];
    body.extend(block(&properties));
    packet(0xf0, &body)
}

pub(super) fn one(id: u8, value: u8) -> Vec<u8> {
    vec![id, value]
}

pub(super) fn two(id: u8, value: u16) -> Vec<u8> {
    let [high, low] = value.to_be_bytes();
    vec![id, high, low]
}

pub(super) fn four(id: u8, value: u32) -> Vec<u8> {
    let mut out = vec![id];
    out.extend(value.to_be_bytes());
    out
}

pub(super) fn named(id: u8, value: &str) -> Vec<u8> {
    let mut out = vec![id];
    out.extend(text(value));
    out
}

pub(super) fn user(name: &str, value: &str) -> Vec<u8> {
    let mut out = named(38, name);
    out.extend(text(value));
    out
}

pub(super) fn text(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u16).to_be_bytes().to_vec();
    out.extend(text.as_bytes());
    out
}

fn block(properties: &[u8]) -> Vec<u8> {
    assert!(properties.len() < 128, "the tests' properties are few");
    let mut out = vec![properties.len() as u8];
    out.extend(properties);
    out
}
