//! An MQTT 3.1.1 server for tests: sessions, acknowledgements, wills; unkind when asked to be.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rumqttc::{
    ConnAck, ConnectReturnCode, LastWill, Packet, PubAck, PubComp, PubRec, PubRel, Publish, QoS,
    SubAck, SubscribeReasonCode,
};

/// A server; it runs as long as the test.
#[derive(Clone)]
pub(crate) struct MqttPeer(Arc<Shared>);

struct Shared {
    address: SocketAddr,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What clients published: topic, payload, quality, retain.
    published: Vec<(String, Bytes, u8, bool)>,
    sessions: HashMap<String, Session>,
    /// Acknowledgements that are still sent; none left breaks the link instead.
    acks_left: Option<usize>,
}

#[derive(Default)]
struct Session {
    filters: Vec<String>,
    /// Sent and not acknowledged, by id.
    unacknowledged: BTreeMap<u16, Publish>,
    last_id: u16,
    link: Option<TcpStream>,
    connects: usize,
}

impl MqttPeer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = MqttPeer(Arc::new(Shared {
            address: listener.local_addr().unwrap(),
            state: Mutex::default(),
        }));
        let acceptor = peer.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let peer = acceptor.clone();
                std::thread::spawn(move || peer.serve(stream));
            }
        });
        peer
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    pub(crate) fn published(&self) -> Vec<(String, Bytes, u8, bool)> {
        self.0.state.lock().published.clone()
    }

    /// After so many more acknowledgements the link breaks instead; `None` ends that.
    pub(crate) fn acknowledge_only(&self, count: Option<usize>) {
        self.0.state.lock().acks_left = count;
    }

    pub(crate) fn connects(&self, client: &str) -> usize {
        self.0
            .state
            .lock()
            .sessions
            .get(client)
            .map_or(0, |session| session.connects)
    }

    pub(crate) fn filters(&self, client: &str) -> Vec<String> {
        let state = self.0.state.lock();
        state
            .sessions
            .get(client)
            .map_or(Vec::new(), |session| session.filters.clone())
    }

    /// Messages to `client` that it has not acknowledged.
    pub(crate) fn unacknowledged(&self, client: &str) -> usize {
        let state = self.0.state.lock();
        state
            .sessions
            .get(client)
            .map_or(0, |session| session.unacknowledged.len())
    }

    /// Sends messages at once.
    pub(crate) fn send_all(&self, client: &str, messages: &[(&str, &str)]) {
        let mut state = self.0.state.lock();
        for (topic, payload) in messages {
            state.send(client, topic, *payload);
        }
    }

    /// Sends a message of quality 1 to a client that subscribed, now or when it is back.
    pub(crate) fn send(&self, client: &str, topic: &str, payload: impl Into<Vec<u8>>) {
        self.0.state.lock().send(client, topic, payload);
    }

    /// Cuts a client's link.
    pub(crate) fn cut(&self, client: &str) {
        let mut state = self.0.state.lock();
        if let Some(link) = state.sessions.get_mut(client).and_then(|s| s.link.take()) {
            link.shutdown(std::net::Shutdown::Both).unwrap();
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut client = String::new();
        let mut will: Option<LastWill> = None;
        let mut buffer = BytesMut::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            let packet = match Packet::read(&mut buffer, 64 << 20) {
                Ok(packet) => packet,
                Err(_) => match stream.read(&mut chunk) {
                    Ok(read) if read > 0 => {
                        buffer.extend_from_slice(&chunk[..read]);
                        continue;
                    }
                    _ => break,
                },
            };
            let mut state = self.0.state.lock();
            match packet {
                Packet::Connect(connect) => {
                    client = connect.client_id.clone();
                    will = connect.last_will.clone();
                    let session = state.sessions.entry(client.clone()).or_default();
                    if connect.clean_session {
                        session.unacknowledged.clear();
                    }
                    session.connects += 1;
                    session.link = Some(stream.try_clone().unwrap());
                    let code = ConnectReturnCode::Success;
                    session.write(Packet::ConnAck(ConnAck::new(code, !connect.clean_session)));
                    for mut publish in session.unacknowledged.clone().into_values() {
                        publish.dup = true;
                        session.write(Packet::Publish(publish));
                    }
                }
                Packet::Disconnect => {
                    will = None;
                    break;
                }
                packet => {
                    if !state.obey(&client, packet) {
                        break;
                    }
                }
            }
        }
        let mut state = self.0.state.lock();
        if let Some(will) = will {
            let will = (will.topic, will.message, will.qos as u8, will.retain);
            state.published.push(will);
        }
        // Not where the client is back already.
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

impl State {
    fn send(&mut self, client: &str, topic: &str, payload: impl Into<Vec<u8>>) {
        let session = self.sessions.entry(client.to_owned()).or_default();
        session.last_id = session.last_id % 60_000 + 1;
        let mut publish = Publish::new(topic, QoS::AtLeastOnce, payload);
        publish.pkid = session.last_id;
        session.unacknowledged.insert(publish.pkid, publish.clone());
        session.write(Packet::Publish(publish));
    }

    fn obey(&mut self, client: &str, packet: Packet) -> bool {
        let answers = matches!(packet, Packet::Publish(_));
        if answers && let Some(left) = &mut self.acks_left {
            if *left == 0 {
                return false;
            }
            *left -= 1;
        }
        let session = self.sessions.get_mut(client).unwrap();
        match packet {
            Packet::Subscribe(subscribe) => {
                let filters = subscribe.filters.iter().map(|filter| filter.path.clone());
                session.filters = filters.collect();
                let codes = vec![SubscribeReasonCode::Success(QoS::AtLeastOnce)];
                session.write(Packet::SubAck(SubAck::new(subscribe.pkid, codes)));
            }
            Packet::PubAck(ack) => {
                session.unacknowledged.remove(&ack.pkid);
            }
            Packet::Publish(publish) => {
                match publish.qos {
                    QoS::AtMostOnce => {}
                    QoS::AtLeastOnce => session.write(Packet::PubAck(PubAck::new(publish.pkid))),
                    QoS::ExactlyOnce => session.write(Packet::PubRec(PubRec::new(publish.pkid))),
                }
                let (qos, retain) = (publish.qos as u8, publish.retain);
                self.published
                    .push((publish.topic, publish.payload, qos, retain));
            }
            Packet::PubRel(PubRel { pkid }) => session.write(Packet::PubComp(PubComp::new(pkid))),
            Packet::PingReq => session.write(Packet::PingResp),
            _ => {}
        }
        true
    }
}

impl Session {
    fn write(&mut self, packet: Packet) {
        let Some(link) = &mut self.link else {
            return;
        };
        let mut bytes = BytesMut::new();
        packet.write(&mut bytes, 64 << 20).unwrap();
        if link.write_all(&bytes).is_err() {
            self.link = None;
        }
    }
}
