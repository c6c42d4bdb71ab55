//! Requests and answers of the services that the processors need (Part 4, encoded after Part 6).
//!
//! A message is the number of its encoding and its fields; a request begins with who asks, an answer
//! with whether it is one.

use super::policy::Policy;
use super::status::Status;
use super::wire::{Damaged, DataValue, NodeId, Reader, Variant};
use super::writer::Writer;
use super::{Fault, Place, frame};
use crate::net::limits::{
    OPC_ANSWER_WAIT, OPC_MESSAGE_BYTES_MAX, OPC_REFERENCES_AT_ONCE, OPC_REFERENCES_MAX,
};

/// A service, by the encodings of its request and answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) request: u32,
    pub(crate) answer: u32,
}

/// A channel as the server grants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Channel {
    pub(crate) way: frame::Way,
    pub(crate) lifetime_ms: u32,
    /// What keys are derived from, where there are any.
    pub(crate) nonce: Vec<u8>,
}

/// A session as the server grants it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Created {
    /// What the session's requests show.
    pub(crate) authentication: NodeId,
    pub(crate) timeout_ms: f64,
    pub(crate) nonce: Vec<u8>,
    /// The server's, in DER; empty where it has none.
    pub(crate) certificate: Vec<u8>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Over the client's certificate and nonce; empty without security.
    pub(crate) signature: Vec<u8>,
}

/// A way to reach the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) certificate: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) policy: String,
    pub(crate) tokens: Vec<Token>,
    /// How bytes go there.
    pub(crate) transport: String,
}

/// A way to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) name: String,
    pub(crate) kind: u32,
    /// What encrypts what is said; the endpoint's own where it is empty.
    pub(crate) policy: String,
}

/// Who logs in, as it is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: Vec<u8>,
    /// What encrypted the password.
    pub(crate) policy: Option<Policy>,
}

/// A signature and how it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) policy: Policy,
    pub(crate) bytes: Vec<u8>,
}

/// A node that another one refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) node: NodeId,
    /// Whether it is in this server.
    pub(crate) is_local: bool,
    pub(crate) browse_name: String,
    pub(crate) class: u32,
}

/// Some of a node's references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Browsed {
    pub(crate) references: Vec<Reference>,
    /// What the rest is asked for with.
    pub(crate) continuation: Vec<u8>,
}

pub(crate) const GET_ENDPOINTS: Service = Service::new(428, 431);
pub(crate) const OPEN_CHANNEL: Service = Service::new(446, 449);
pub(crate) const CLOSE_CHANNEL: Service = Service::new(452, 455);
pub(crate) const CREATE_SESSION: Service = Service::new(461, 464);
pub(crate) const ACTIVATE_SESSION: Service = Service::new(467, 470);
pub(crate) const CLOSE_SESSION: Service = Service::new(473, 476);
pub(crate) const ADD_NODES: Service = Service::new(488, 491);
pub(crate) const BROWSE: Service = Service::new(527, 530);
pub(crate) const BROWSE_NEXT: Service = Service::new(533, 536);
pub(crate) const TRANSLATE: Service = Service::new(554, 557);
pub(crate) const READ: Service = Service::new(631, 634);
pub(crate) const WRITE: Service = Service::new(673, 676);

/// The class of nodes that hold others.
pub(crate) const OBJECT: u32 = 1;

/// The class of nodes that have values.
pub(crate) const VARIABLE: u32 = 2;

pub(crate) const NODE_CLASS: u32 = 2;
pub(crate) const BROWSE_NAME: u32 = 3;
pub(crate) const VALUE: u32 = 13;

pub(crate) const ANONYMOUS: u32 = 0;
pub(crate) const USER_NAME: u32 = 1;

impl Service {
    const fn new(request: u32, answer: u32) -> Self {
        Service { request, answer }
    }
}

/// Begins a request: `now` is in steps of 100 ns since 1601.
pub(crate) fn begin(service: Service, authentication: &NodeId, now: i64, handle: u32) -> Writer {
    let mut to = Writer::default();
    to.node_id(&NodeId::standard(service.request));
    to.node_id(authentication);
    to.i64(now);
    to.u32(handle);
    to.u32(0);
    to.null();
    to.u32(u32::try_from(OPC_ANSWER_WAIT.as_millis()).unwrap_or(u32::MAX));
    to.no_extension_object();
    to
}

/// Begins to read an answer; a refusal is a fault.
pub(crate) fn answer(service: Service, bytes: &[u8]) -> Result<Reader<'_>, Fault> {
    let mut from = Reader::new(bytes);
    let encoding = from.node_id()?;
    from.i64()?;
    from.u32()?;
    let status = from.status()?;
    from.skip_diagnostic_info()?;
    for _ in 0..from.count(STRINGS_MAX)? {
        from.bytes()?;
    }
    from.skip_extension_object()?;
    if status.is_bad() {
        return Err(Fault::Refused(status));
    }
    if encoding != NodeId::standard(service.answer) {
        return Err(Damaged("it is one to another request").into());
    }
    Ok(from)
}

/// Asks for a channel; with a nonce, for one that is signed and encrypted.
pub(crate) fn open_channel(to: &mut Writer, nonce: Option<&[u8]>) {
    to.u32(0);
    // A new token.
    to.u32(0);
    match nonce {
        Some(nonce) => {
            to.u32(SIGN_AND_ENCRYPT);
            to.bytes(nonce);
        }
        None => {
            to.u32(NO_SECURITY);
            to.null();
        }
    }
    to.u32(LIFETIME_MS);
}

pub(crate) fn channel(mut from: Reader<'_>) -> Result<Channel, Damaged> {
    from.u32()?;
    let way = frame::Way {
        channel: from.u32()?,
        token: from.u32()?,
    };
    from.i64()?;
    Ok(Channel {
        way,
        lifetime_ms: from.u32()?,
        nonce: from.bytes()?.unwrap_or_default().to_vec(),
    })
}

pub(crate) fn get_endpoints(to: &mut Writer, endpoint: &str) {
    to.text(endpoint);
    // In no language, of all transports.
    to.null();
    to.null();
}

pub(crate) fn endpoints(from: &mut Reader<'_>) -> Result<Vec<Endpoint>, Damaged> {
    (0..from.count(ENDPOINTS_MAX)?)
        .map(|_| {
            from.bytes()?;
            skip_application(from)?;
            let certificate = from.bytes()?.unwrap_or_default().to_vec();
            let mode = from.u32()?;
            let policy = from.text()?;
            let tokens = (0..from.count(ENDPOINTS_MAX)?).map(|_| token(from));
            let tokens = tokens.collect::<Result<_, _>>()?;
            let transport = from.text()?;
            from.u8()?;
            Ok(Endpoint {
                certificate,
                mode,
                policy,
                tokens,
                transport,
            })
        })
        .collect()
}

pub(crate) fn create_session(
    to: &mut Writer,
    endpoint: &str,
    application: &str,
    nonce: &[u8],
    certificate: Option<&[u8]>,
) {
    to.text(application);
    to.text("urn:thalweg:agent");
    to.localized_text("thalweg-agent");
    // A client.
    to.u32(1);
    for _ in 0..3 {
        to.null();
    }
    to.null();
    to.text(endpoint);
    to.text("thalweg-agent");
    to.bytes(nonce);
    match certificate {
        Some(certificate) => to.bytes(certificate),
        None => to.null(),
    }
    to.f64(f64::from(LIFETIME_MS));
    to.u32(OPC_MESSAGE_BYTES_MAX as u32);
}

pub(crate) fn created(mut from: Reader<'_>) -> Result<Created, Damaged> {
    from.node_id()?;
    let authentication = from.node_id()?;
    let timeout_ms = from.f64()?;
    let nonce = from.bytes()?.unwrap_or_default().to_vec();
    let certificate = from.bytes()?.unwrap_or_default().to_vec();
    let endpoints = endpoints(&mut from)?;
    // Certificates of software, which nobody has.
    for _ in 0..from.count(STRINGS_MAX)? {
        from.bytes()?;
        from.bytes()?;
    }
    from.bytes()?;
    Ok(Created {
        authentication,
        timeout_ms,
        nonce,
        certificate,
        endpoints,
        signature: from.bytes()?.unwrap_or_default().to_vec(),
    })
}

pub(crate) fn activate_session(
    to: &mut Writer,
    signature: Option<&Signature>,
    token: &str,
    credentials: Option<&Credentials<'_>>,
) {
    match signature {
        Some(signature) => {
            to.text(signature.policy.signing_uri());
            to.bytes(&signature.bytes);
        }
        None => {
            to.null();
            to.null();
        }
    }
    to.null();
    to.null();
    match credentials {
        None => to.extension_object(ANONYMOUS_TOKEN, |to| to.text(token)),
        Some(credentials) => to.extension_object(USER_NAME_TOKEN, |to| {
            to.text(token);
            to.text(credentials.user);
            to.bytes(&credentials.password);
            match credentials.policy {
                Some(policy) => to.text(policy.sealing_uri()),
                None => to.null(),
            }
        }),
    }
    // Of who logs in there is no signature.
    for _ in 0..2 {
        to.null();
    }
}

pub(crate) fn read(to: &mut Writer, asked: &[(&NodeId, u32)]) {
    to.f64(0.0);
    // Times of the source.
    to.u32(0);
    to.count(asked.len());
    for (node, attribute) in asked {
        to.node_id(node);
        to.u32(*attribute);
        to.null();
        to.u16(0);
        to.null();
    }
}

/// Reads the values of `count` attributes.
pub(crate) fn values(mut from: Reader<'_>, count: usize) -> Result<Vec<DataValue>, Damaged> {
    same(from.count(count)?, count)?;
    (0..count).map(|_| from.data_value()).collect()
}

pub(crate) fn write(to: &mut Writer, node: &NodeId, value: &Variant) {
    to.count(1);
    to.node_id(node);
    to.u32(VALUE);
    to.null();
    // A value without status and times.
    to.u8(1);
    to.variant(value);
}

/// Reads the one status of an answer.
pub(crate) fn one_status(mut from: Reader<'_>) -> Result<Status, Damaged> {
    same(from.count(1)?, 1)?;
    from.status()
}

pub(crate) fn browse(to: &mut Writer, node: &NodeId) {
    // No view: all there is.
    to.node_id(&NodeId::standard(0));
    to.i64(0);
    to.u32(0);
    to.u32(OPC_REFERENCES_AT_ONCE);
    to.count(1);
    to.node_id(node);
    // Forward, by references of any type, to nodes of any class, with all that is known of them.
    to.u32(0);
    to.node_id(&NodeId::standard(0));
    to.flag(true);
    to.u32(0);
    to.u32(0x3f);
}

pub(crate) fn browse_next(to: &mut Writer, continuation: &[u8]) {
    to.flag(false);
    to.count(1);
    to.bytes(continuation);
}

pub(crate) fn browsed(mut from: Reader<'_>) -> Result<Browsed, Fault> {
    same(from.count(1)?, 1)?;
    let status = from.status()?;
    let continuation = from.bytes()?.unwrap_or_default().to_vec();
    let mut references = Vec::new();
    for _ in 0..from.count(OPC_REFERENCES_MAX)? {
        from.node_id()?;
        from.flag()?;
        let (node, is_local) = from.expanded_node_id()?;
        let (_, browse_name) = from.qualified_name()?;
        from.localized_text()?;
        let class = from.u32()?;
        from.expanded_node_id()?;
        references.push(Reference {
            node,
            is_local,
            browse_name,
            class,
        });
    }
    match status.is_bad() {
        true => Err(Fault::Declined(status)),
        false => Ok(Browsed {
            references,
            continuation,
        }),
    }
}

/// Asks for the nodes that names lead to, each by its type of reference, from the folder of objects.
pub(crate) fn translate(to: &mut Writer, namespace: u16, path: &[(u32, String)]) {
    to.count(1);
    to.node_id(&NodeId::standard(OBJECTS));
    to.count(path.len());
    for (reference, name) in path {
        to.node_id(&NodeId::standard(*reference));
        // Forward, and by this very type.
        to.flag(false);
        to.flag(false);
        to.qualified_name(namespace, name);
    }
}

pub(crate) fn translated(mut from: Reader<'_>) -> Result<Vec<NodeId>, Fault> {
    same(from.count(1)?, 1)?;
    let status = from.status()?;
    let mut nodes = Vec::new();
    for _ in 0..from.count(OPC_REFERENCES_MAX)? {
        let (node, is_local) = from.expanded_node_id()?;
        let rest = from.u32()?;
        // Others end at a node of another server.
        if is_local && rest == u32::MAX {
            nodes.push(node);
        }
    }
    match status.is_bad() {
        true => Err(Fault::Declined(status)),
        false => Ok(nodes),
    }
}

/// Asks for a new variable that can be read and written.
pub(crate) fn add_variable(to: &mut Writer, place: &Place<'_>, node: &NodeId, value: &Variant) {
    to.count(1);
    to.node_id(place.parent);
    to.node_id(&NodeId::standard(place.reference));
    to.node_id(node);
    to.qualified_name(node.namespace, place.browse_name);
    to.u32(VARIABLE);
    to.extension_object(VARIABLE_ATTRIBUTES, |to| {
        to.u32(SPECIFIED);
        to.localized_text(place.browse_name);
        to.u8(0);
        to.u32(0);
        to.u32(0);
        to.variant(value);
        to.node_id(&value.kind.node());
        // One value, and no list.
        to.i32(-1);
        to.count(0);
        to.u8(READ_AND_WRITE);
        to.u8(READ_AND_WRITE);
        to.f64(0.0);
        to.flag(false);
    });
    let of_type = match place.reference {
        super::HAS_PROPERTY => PROPERTY_TYPE,
        _ => VARIABLE_TYPE,
    };
    to.node_id(&NodeId::standard(of_type));
}

/// Reads what became of it.
pub(crate) fn added(mut from: Reader<'_>) -> Result<Status, Damaged> {
    same(from.count(1)?, 1)?;
    let status = from.status()?;
    from.node_id()?;
    Ok(status)
}

fn token(from: &mut Reader<'_>) -> Result<Token, Damaged> {
    let name = from.text()?;
    let kind = from.u32()?;
    from.bytes()?;
    from.bytes()?;
    Ok(Token {
        name,
        kind,
        policy: from.text()?,
    })
}

fn skip_application(from: &mut Reader<'_>) -> Result<(), Damaged> {
    from.bytes()?;
    from.bytes()?;
    from.localized_text()?;
    from.u32()?;
    for _ in 0..2 {
        from.bytes()?;
    }
    for _ in 0..from.count(STRINGS_MAX)? {
        from.bytes()?;
    }
    Ok(())
}

fn same(count: usize, asked: usize) -> Result<(), Damaged> {
    match count == asked {
        true => Ok(()),
        false => Err(Damaged("it has less than was asked for")),
    }
}

/// How messages are protected.
pub(crate) const NO_SECURITY: u32 = 1;
pub(crate) const SIGN_AND_ENCRYPT: u32 = 3;

const ANONYMOUS_TOKEN: u32 = 321;
const USER_NAME_TOKEN: u32 = 324;
const VARIABLE_ATTRIBUTES: u32 = 357;

/// The folder that paths begin in.
const OBJECTS: u32 = 85;

const VARIABLE_TYPE: u32 = 63;
const PROPERTY_TYPE: u32 = 68;

/// Which attributes of a new variable are given: its access levels, type, name, rank and value.
const SPECIFIED: u32 = 1 | 1 << 4 | 1 << 6 | 1 << 16 | 1 << 19 | 1 << 21;

const READ_AND_WRITE: u8 = 3;

/// What is asked for a channel and for a session; both are made anew before they end.
const LIFETIME_MS: u32 = 3_600_000;

/// Endpoints of one server, and ways to log in at one.
const ENDPOINTS_MAX: usize = 1_000;

/// Texts of a server's own that no one reads.
const STRINGS_MAX: usize = 1_000;
