//! A client of bytes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::DEADLINE;
use crate::codec::{self, Outgoing, Version};
use crate::message::Qos;

pub(super) struct Client {
    pub(super) stream: TcpStream,
}

/// A CONNECT packet of 3.1.1.
pub(super) fn connect(id: &str, clean: bool, keep_alive_s: u16, will: Option<&str>) -> Vec<u8> {
    let mut body = b"\0\x04MQTT\x04".to_vec();
    body.push(u8::from(clean) << 1 | if will.is_some() { 0b0000_1100 } else { 0 });
    body.extend_from_slice(&keep_alive_s.to_be_bytes());
    text(&mut body, id);
    if let Some(topic) = will {
        text(&mut body, topic);
        text(&mut body, "gone");
    }
    packet(0x10, &body)
}

pub(super) fn publish(topic: &str, payload: &[u8], qos: u8, retain: bool, id: u16) -> Vec<u8> {
    let mut out = Vec::new();
    let qos = Qos::from_bits(qos).unwrap();
    let plain = Outgoing::plain(topic, payload, qos, retain, id);
    codec::publish(&mut out, Version::V311, &plain);
    out
}

pub(super) fn subscribe(id: u16, filters: &[(&str, u8)]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    for (filter, qos) in filters {
        text(&mut body, filter);
        body.push(*qos);
    }
    packet(0x82, &body)
}

pub(super) fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128 * 128, "the test's packets are small");
    let mut out = vec![first];
    match body.len() {
        n if n < 128 => out.push(n as u8),
        n => out.extend_from_slice(&[(n % 128) as u8 | 0x80, (n / 128) as u8]),
    }
    out.extend_from_slice(body);
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

impl Client {
    pub(super) async fn open(port: u16) -> Client {
        Client {
            stream: TcpStream::connect(("127.0.0.1", port)).await.unwrap(),
        }
    }

    pub(super) async fn connect(port: u16, id: &str, clean: bool) -> Client {
        Client::connect_present(port, id, clean).await.0
    }

    /// Tells also whether the session was kept.
    pub(super) async fn connect_present(port: u16, id: &str, clean: bool) -> (Client, bool) {
        let mut client = Client::open(port).await;
        client.send(&connect(id, clean, 0, None)).await;
        let (first, body) = client.packet().await;
        assert_eq!((first, body[1]), (0x20, 0), "CONNACK of {id}");
        (client, body[0] == 1)
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Subscribes to one filter and takes the SUBACK.
    pub(super) async fn subscribe(&mut self, filter: &str, qos: u8) {
        self.send(&subscribe(9, &[(filter, qos)])).await;
        let granted = qos;
        assert_eq!(
            self.packet().await,
            (0x90, vec![0, 9, granted]),
            "SUBACK of {filter}"
        );
    }

    /// Says goodbye and waits until the server has heard it.
    pub(super) async fn leave(mut self) {
        self.send(b"\xe0\0").await;
        self.expect_end().await;
    }

    /// First byte and body of the next packet.
    pub(super) async fn packet(&mut self) -> (u8, Vec<u8>) {
        timeout(DEADLINE, self.read_packet())
            .await
            .expect("no packet came")
            .expect("link ended")
    }

    /// The next packet must be a PUBLISH: topic, payload, first byte, packet identifier.
    pub(super) async fn message(&mut self) -> (String, Vec<u8>, u8, u16) {
        let (first, body) = self.packet().await;
        assert_eq!(first >> 4, 3, "not a PUBLISH: {first:#x} {body:?}");
        let publish =
            codec::decode_publish(Version::V311, first, &body, "").expect("a malformed PUBLISH");
        (
            publish.topic.to_owned(),
            publish.payload.to_vec(),
            first,
            publish.id,
        )
    }

    /// The next packet must be a PUBLISH of this.
    pub(super) async fn expect(&mut self, topic: &str, payload: &str) {
        let (got_topic, got, _, _) = self.message().await;
        let got = String::from_utf8(got).unwrap();
        assert_eq!((got_topic.as_str(), got.as_str()), (topic, payload));
    }

    /// A PINGREQ, whose answer must be the next packet: so nothing else was under way.
    pub(super) async fn expect_nothing(&mut self) {
        self.send(b"\xc0\0").await;
        assert_eq!(self.packet().await, (0xd0, vec![]));
    }

    /// The server must end the link.
    pub(super) async fn expect_end(&mut self) {
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = timeout(DEADLINE, self.stream.read_to_end(&mut rest))
            .await
            .expect("still open");
    }

    /// The server must end the link and say nothing.
    pub(super) async fn ends_without_a_word(&mut self) {
        let mut rest = Vec::new();
        let _ = timeout(DEADLINE, self.stream.read_to_end(&mut rest))
            .await
            .expect("still open");
        assert!(rest.is_empty(), "it said {rest:?}");
    }

    pub(super) async fn read_packet(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let first = self.stream.read_u8().await?;
        let (mut length, mut shift) = (0usize, 0);
        loop {
            let byte = self.stream.read_u8().await?;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok((first, body))
    }
}
