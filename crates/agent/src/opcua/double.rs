//! A server for tests: nodes in memory, answers in small chunks, and trouble on demand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

use super::frame::{self, HEAD_BYTES, POLICY_NONE};
use super::message::{self, Service};
use super::status::Status;
use super::wire::{Data, DataValue, Identifier, Kind, NodeId, Reader, Scalar, Variant};
use super::writer::Writer;

/// A node of the server.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) name: String,
    /// Who refers to it, and how.
    pub(crate) parents: Vec<(NodeId, u32)>,
    /// Its value, if it is a variable.
    pub(crate) told: Option<DataValue>,
}

/// What the server does wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It refuses the request with this encoding.
    Refuses(u32, Status),
    /// It sets no value of any node.
    Declines(Status),
    /// It breaks the link at that.
    BreaksAt(u32),
    /// It breaks the link when it is asked for that once more.
    BreaksAfter(usize, u32),
    /// It answers that with these bytes.
    Says(u32, Vec<u8>),
    /// It reads no more attributes at once.
    ReadsAtOnce(usize),
    /// It wants passwords encrypted.
    WantsEncryption,
}

/// The server; it ends with the test.
#[derive(Clone)]
pub(crate) struct OpcPeer {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    nodes: Vec<Node>,
    trouble: Option<Trouble>,
    /// Who logged in: a name and a password, or nobody.
    logins: Vec<Option<(String, String)>>,
    /// Encodings of all requests.
    requests: Vec<u32>,
    /// The part of references that were not told yet.
    left: Vec<Node>,
}

impl Node {
    /// A node below another one.
    pub(crate) fn below(parent: &NodeId, reference: u32, id: NodeId, name: &str) -> Node {
        Node {
            id,
            name: name.to_owned(),
            parents: vec![(parent.clone(), reference)],
            told: None,
        }
    }

    /// The same with a value, at a time.
    pub(crate) fn with(mut self, value: Variant, time: i64) -> Node {
        self.told = Some(DataValue {
            value: Some(value),
            status: Status(0),
            source_time: Some(time),
        });
        self
    }
}

impl OpcPeer {
    pub(crate) fn start(nodes: Vec<Node>) -> OpcPeer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            nodes,
            ..State::default()
        }));
        let peer = OpcPeer { port, state };
        let own = peer.clone();
        std::thread::spawn(move || {
            for link in listener.incoming() {
                let (own, link) = (own.clone(), link.unwrap());
                // A link that breaks ends.
                std::thread::spawn(move || own.serve(link));
            }
        });
        peer
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("opc.tcp://127.0.0.1:{}/test", self.port)
    }

    pub(crate) fn be(&self, trouble: Option<Trouble>) {
        self.state.lock().trouble = trouble;
    }

    pub(crate) fn logins(&self) -> Vec<Option<(String, String)>> {
        self.state.lock().logins.clone()
    }

    /// How often a service was asked for.
    pub(crate) fn count(&self, encoding: u32) -> usize {
        let state = self.state.lock();
        state.requests.iter().filter(|it| **it == encoding).count()
    }

    /// What it has of a node.
    pub(crate) fn told(&self, id: &NodeId) -> Option<DataValue> {
        let state = self.state.lock();
        let node = state.nodes.iter().find(|node| node.id == *id)?;
        node.told.clone()
    }

    pub(crate) fn set(&self, id: &NodeId, change: impl FnOnce(&mut DataValue)) {
        let mut state = self.state.lock();
        let node = state.nodes.iter_mut().find(|node| node.id == *id).unwrap();
        change(node.told.as_mut().unwrap());
    }

    fn serve(&self, mut link: TcpStream) -> Option<()> {
        let mut sequence = 1_u32;
        let mut asked = Vec::new();
        loop {
            let mut first = [0; HEAD_BYTES];
            link.read_exact(&mut first).ok()?;
            let head = frame::head(first).unwrap();
            let mut body = vec![0; head.len];
            link.read_exact(&mut body).ok()?;
            let mut from = Reader::new(&body);
            match &head.letters {
                b"HEL" => {
                    let mut to = Writer::default();
                    for number in [0, CHUNK_BYTES, CHUNK_BYTES, 1 << 20, 0] {
                        to.u32(number);
                    }
                    link.write_all(&frame::chunk(*b"ACK", b'F', &to.into_bytes()))
                        .ok()?;
                }
                b"OPN" => {
                    from.u32().unwrap();
                    assert_eq!(from.text().unwrap(), POLICY_NONE);
                    for _ in 0..4 {
                        from.u32().unwrap();
                    }
                    let answer = self.answer(from.rest())?;
                    let mut to = Writer::default();
                    to.u32(CHANNEL);
                    to.text(POLICY_NONE);
                    to.null();
                    to.null();
                    to.u32(sequence);
                    to.u32(1);
                    to.raw(&answer);
                    sequence += 1;
                    link.write_all(&frame::chunk(*b"OPN", b'F', &to.into_bytes()))
                        .ok()?;
                }
                b"CLO" => return None,
                _ => {
                    assert_eq!(from.u32().unwrap(), CHANNEL);
                    assert_eq!(from.u32().unwrap(), TOKEN);
                    from.u32().unwrap();
                    let request = from.u32().unwrap();
                    asked.extend_from_slice(from.rest());
                    if !head.is_last {
                        continue;
                    }
                    let answer = self.answer(&std::mem::take(&mut asked))?;
                    let parts: Vec<&[u8]> = answer.chunks(PART_BYTES).collect();
                    for (index, part) in parts.iter().enumerate() {
                        let mut to = Writer::default();
                        to.u32(CHANNEL);
                        to.u32(TOKEN);
                        to.u32(sequence);
                        to.u32(request);
                        to.raw(part);
                        sequence += 1;
                        let last = if index + 1 == parts.len() { b'F' } else { b'C' };
                        link.write_all(&frame::chunk(*b"MSG", last, &to.into_bytes()))
                            .ok()?;
                    }
                }
            }
        }
    }

    fn answer(&self, asked: &[u8]) -> Option<Vec<u8>> {
        let mut from = Reader::new(asked);
        let Identifier::Number(encoding) = from.node_id().unwrap().name else {
            panic!("a request has a number");
        };
        let authentication = from.node_id().unwrap();
        from.i64().unwrap();
        let handle = from.u32().unwrap();
        from.u32().unwrap();
        from.bytes().unwrap();
        from.u32().unwrap();
        from.skip_extension_object().unwrap();
        let is_in = encoding != 446 && encoding != 461;
        let expected = NodeId::standard(if is_in { AUTHENTICATION } else { 0 });
        assert_eq!(authentication, expected);
        let mut state = self.state.lock();
        state.requests.push(encoding);
        let services = [
            message::OPEN_CHANNEL,
            message::CREATE_SESSION,
            message::ACTIVATE_SESSION,
            message::CLOSE_SESSION,
            message::ADD_NODES,
            message::BROWSE,
            message::BROWSE_NEXT,
            message::TRANSLATE,
            message::READ,
            message::WRITE,
        ];
        let service = *services.iter().find(|it| it.request == encoding).unwrap();
        match state.trouble.clone() {
            Some(Trouble::BreaksAt(at)) if at == encoding => return None,
            Some(Trouble::BreaksAfter(count, at)) if at == encoding => {
                let asked = state.requests.iter().filter(|it| **it == at);
                if asked.count() > count {
                    return None;
                }
            }
            Some(Trouble::Says(at, bytes)) if at == encoding => return Some(bytes),
            Some(Trouble::Refuses(at, status)) if at == encoding => {
                return Some(begin(397, handle, status).into_bytes());
            }
            _ => {}
        }
        let mut to = begin(service.answer, handle, Status(0));
        if let Err(status) = state.serve(service, &mut from, &mut to) {
            return Some(begin(397, handle, status).into_bytes());
        }
        Some(to.into_bytes())
    }
}

impl State {
    fn serve(
        &mut self,
        service: Service,
        from: &mut Reader<'_>,
        to: &mut Writer,
    ) -> Result<(), Status> {
        match service.request {
            446 => {
                for number in [0, CHANNEL, TOKEN] {
                    to.u32(number);
                }
                to.i64(0);
                to.u32(600_000);
                to.null();
            }
            461 => self.create(to),
            467 => self.activate(from, to),
            488 => self.add(from, to),
            527 => {
                from.node_id().unwrap();
                from.i64().unwrap();
                from.u32().unwrap();
                from.u32().unwrap();
                assert_eq!(from.count(1), Ok(1));
                let id = from.node_id().unwrap();
                let below = |node: &&Node| node.parents.iter().any(|(parent, _)| *parent == id);
                self.left = self.nodes.iter().filter(below).cloned().collect();
                self.references(to);
            }
            533 => {
                assert!(!from.flag().unwrap());
                self.references(to);
            }
            554 => self.translate(from, to),
            631 => self.read(from, to)?,
            673 => self.write(from, to),
            _ => {}
        }
        // No words about failures.
        to.null();
        Ok(())
    }

    fn create(&self, to: &mut Writer) {
        to.node_id(&NodeId::standard(7));
        to.node_id(&NodeId::standard(AUTHENTICATION));
        to.f64(600_000.0);
        to.null();
        to.null();
        // One endpoint with security, and one without.
        to.count(2);
        for (mode, policy) in [
            (
                3,
                "http://opcfoundation.org/UA/SecurityPolicy#Basic256Sha256",
            ),
            (1, POLICY_NONE),
        ] {
            to.text("opc.tcp://elsewhere:4840");
            to.text("urn:double");
            to.null();
            to.localized_text("double");
            to.u32(0);
            to.null();
            to.null();
            to.count(1);
            to.text("opc.tcp://elsewhere:4840");
            to.null();
            to.u32(mode);
            to.text(policy);
            to.count(2);
            for (name, kind) in [("nobody", 0), ("somebody", 1)] {
                to.text(&format!("{name}-{mode}"));
                to.u32(kind);
                to.null();
                to.null();
                match self.trouble {
                    Some(Trouble::WantsEncryption) => {
                        to.text("http://opcfoundation.org/UA/SecurityPolicy#Basic256Sha256");
                    }
                    _ => to.null(),
                }
            }
            to.text("http://opcfoundation.org/UA-Profile/Transport/uatcp-uasc-uabinary");
            to.u8(0);
        }
        to.null();
        to.null();
        to.null();
        to.u32(0);
    }

    fn activate(&mut self, from: &mut Reader<'_>, to: &mut Writer) {
        for _ in 0..4 {
            from.bytes().unwrap();
        }
        let Identifier::Number(kind) = from.node_id().unwrap().name else {
            panic!("a token has a number");
        };
        assert_eq!(from.u8(), Ok(1));
        let mut token = Reader::new(from.bytes().unwrap().unwrap());
        let policy = token.text().unwrap();
        self.logins.push(match kind {
            321 => {
                assert_eq!(policy, "nobody-1");
                None
            }
            _ => {
                assert_eq!((kind, policy.as_str()), (324, "somebody-1"));
                Some((token.text().unwrap(), token.text().unwrap()))
            }
        });
        to.null();
        to.null();
    }

    /// Two references, and whether there are more.
    fn references(&mut self, to: &mut Writer) {
        let rest = self.left.split_off(self.left.len().min(2));
        to.count(1);
        to.u32(0);
        match rest.is_empty() {
            true => to.null(),
            false => to.text("more"),
        }
        to.count(self.left.len());
        for node in &self.left {
            to.node_id(&NodeId::standard(35));
            to.flag(true);
            to.node_id(&node.id);
            to.qualified_name(1, &node.name);
            to.localized_text(&node.name);
            to.u32(if node.told.is_some() { 2 } else { 1 });
            to.node_id(&NodeId::standard(63));
        }
        self.left = rest;
    }

    fn translate(&self, from: &mut Reader<'_>, to: &mut Writer) {
        assert_eq!(from.count(1), Ok(1));
        let mut at = vec![from.node_id().unwrap()];
        for _ in 0..from.count(100).unwrap() {
            let Identifier::Number(reference) = from.node_id().unwrap().name else {
                panic!("a reference has a number");
            };
            from.flag().unwrap();
            from.flag().unwrap();
            let (_, name) = from.qualified_name().unwrap();
            let is_next = |node: &&Node| {
                let refers =
                    |(parent, how): &(NodeId, u32)| at.contains(parent) && *how == reference;
                node.name == name && node.parents.iter().any(refers)
            };
            at = self
                .nodes
                .iter()
                .filter(is_next)
                .map(|node| node.id.clone())
                .collect();
        }
        to.count(1);
        to.u32(if at.is_empty() { Status::NO_MATCH.0 } else { 0 });
        to.count(at.len());
        for node in at {
            to.node_id(&node);
            to.u32(u32::MAX);
        }
    }

    fn read(&self, from: &mut Reader<'_>, to: &mut Writer) -> Result<(), Status> {
        from.f64().unwrap();
        from.u32().unwrap();
        let count = from.count(1_000).unwrap();
        if let Some(Trouble::ReadsAtOnce(most)) = self.trouble
            && count > most
        {
            return Err(Status::TOO_MANY_OPERATIONS);
        }
        to.count(count);
        for _ in 0..count {
            let id = from.node_id().unwrap();
            let attribute = from.u32().unwrap();
            from.bytes().unwrap();
            from.qualified_name().unwrap();
            let Some(node) = self.nodes.iter().find(|node| node.id == id) else {
                to.u8(2);
                to.u32(Status::NODE_ID_UNKNOWN.0);
                continue;
            };
            match attribute {
                2 => {
                    to.u8(1);
                    to.u8(6);
                    to.i32(if node.told.is_some() { 2 } else { 1 });
                }
                3 => {
                    to.u8(1);
                    to.u8(20);
                    to.qualified_name(1, &node.name);
                }
                _ => {
                    let told = node.told.clone().unwrap();
                    let has_time = u8::from(told.source_time.is_some()) << 2;
                    to.u8(u8::from(told.value.is_some()) | 2 | has_time);
                    match &told.value {
                        Some(value) if *value == opaque() => to.raw(OPAQUE),
                        Some(value) => to.variant(value),
                        None => {}
                    }
                    to.u32(told.status.0);
                    if let Some(time) = told.source_time {
                        to.i64(time);
                    }
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, from: &mut Reader<'_>, to: &mut Writer) {
        assert_eq!(from.count(1), Ok(1));
        let id = from.node_id().unwrap();
        assert_eq!(from.u32(), Ok(13));
        from.bytes().unwrap();
        let new = from.data_value().unwrap();
        let node = self.nodes.iter_mut().find(|node| node.id == id);
        let told = node.and_then(|node| node.told.as_mut());
        let status = match (told, &new.value) {
            (None, _) => Status::NODE_ID_UNKNOWN.0,
            (Some(told), Some(value))
                if told.value.as_ref().map(|it| it.kind) == Some(value.kind) =>
            {
                told.value = new.value;
                0
            }
            // Another type.
            _ => 0x8074_0000,
        };
        to.count(1);
        to.u32(match self.trouble {
            Some(Trouble::Declines(status)) => status.0,
            _ => status,
        });
    }

    fn add(&mut self, from: &mut Reader<'_>, to: &mut Writer) {
        assert_eq!(from.count(1), Ok(1));
        let (parent, _) = from.expanded_node_id().unwrap();
        let Identifier::Number(reference) = from.node_id().unwrap().name else {
            panic!("a reference has a number");
        };
        let (id, _) = from.expanded_node_id().unwrap();
        let (_, name) = from.qualified_name().unwrap();
        assert_eq!(from.u32(), Ok(2));
        assert_eq!(from.node_id(), Ok(NodeId::standard(357)));
        assert_eq!(from.u8(), Ok(1));
        let mut attributes = Reader::new(from.bytes().unwrap().unwrap());
        attributes.u32().unwrap();
        assert_eq!(attributes.localized_text().as_ref(), Ok(&name));
        attributes.localized_text().unwrap();
        attributes.u32().unwrap();
        attributes.u32().unwrap();
        let value = attributes.variant().unwrap().unwrap();
        let has_parent = self.nodes.iter().any(|node| node.id == parent);
        if has_parent {
            let node = Node::below(&parent, reference, id.clone(), &name);
            self.nodes.push(node.with(value, 0));
        }
        to.count(1);
        to.u32(if has_parent { 0 } else { 0x805b_0000 });
        to.node_id(&id);
    }
}

/// A value of this type.
pub(crate) fn whole(number: i64) -> Variant {
    Variant {
        kind: Kind::INT32,
        data: Data::One(Scalar::Signed(number)),
    }
}

/// A value that has no text.
pub(crate) fn opaque() -> Variant {
    Reader::new(OPAQUE).variant().unwrap().unwrap()
}

fn begin(encoding: u32, handle: u32, status: Status) -> Writer {
    let mut to = Writer::default();
    to.node_id(&NodeId::standard(encoding));
    to.i64(0);
    to.u32(handle);
    to.u32(status.0);
    to.u8(0);
    to.null();
    to.no_extension_object();
    to
}

/// The name of a node.
const OPAQUE: &[u8] = &[17, 0, 5];

const CHANNEL: u32 = 5;
const TOKEN: u32 = 6;
const AUTHENTICATION: u32 = 99;

/// What it takes at once: less than a long text.
const CHUNK_BYTES: u32 = 8_192;

/// What it says at once.
const PART_BYTES: usize = 500;
