//! Site-to-site, NiFi's protocol between flows, raw over TCP: versions 1 to 5.
//!
//! [`codec`] knows the bytes and [`transaction`] their order, both without sockets; [`client`]
//! and [`server`] greet each other. Client and server are the agent's both, so agents send to
//! agents too.
//!
//! A sender forgets FlowFiles when the receiver said that it has them; a receiver says so when
//! they are durable. When the line breaks between the two, the sender sends again: nothing is
//! lost, and that one transaction may be there twice.
//!
//! Over HTTP the agent is a client (`processors/site/http.rs`) and a server ([`http`]) too. Leaves
//! out peers of a cluster.

pub(crate) mod client;
pub(crate) mod codec;
pub(crate) mod http;
pub(crate) mod server;
pub(crate) mod transaction;
pub(crate) mod wire;

pub use http::HttpServer;
pub use server::{Ports, Server};

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    NegotiateCodec,
    /// The client sends.
    Send,
    /// The client receives.
    Receive,
    PeerList,
    Shutdown,
}

impl Request {
    /// Its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Request::NegotiateCodec => "NEGOTIATE_FLOWFILE_CODEC",
            Request::Send => "SEND_FLOWFILES",
            Request::Receive => "RECEIVE_FLOWFILES",
            Request::PeerList => "REQUEST_PEER_LIST",
            Request::Shutdown => "SHUTDOWN",
        }
    }

    /// The request of this name.
    pub(crate) fn of(name: &str) -> Option<Request> {
        let all = [
            Request::NegotiateCodec,
            Request::Send,
            Request::Receive,
            Request::PeerList,
            Request::Shutdown,
        ];
        all.into_iter().find(|request| request.name() == name)
    }
}

/// What a connection begins with.
const MAGIC: &[u8; 4] = b"NiFi";

/// The protocol's name and versions, the newest first.
const PROTOCOL: &str = "SocketFlowFileProtocol";
const PROTOCOL_VERSIONS: &[u32] = &[5, 4, 3, 2, 1];

/// The packets' name and version.
const CODEC: &str = "StandardFlowFileCodec";
const CODEC_VERSIONS: &[u32] = &[1];

/// Answers to a version.
const VERSION_OK: u8 = 20;
const DIFFERENT_VERSION: u8 = 21;
const ABORT: u8 = 255;
