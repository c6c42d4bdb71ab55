//! A client of OPC UA's binary protocol, as far as FetchOPC and PutOPC need it: bytes in, values
//! out, and a session over a socket with deadlines.
//!
//! With a certificate of its own it signs and encrypts, by the best policy that the server offers;
//! without one it speaks the policy None. It logs in anonymously or with a user's name, whose password
//! is encrypted wherever the server has a way to that. Whoever uses it is told what is left open: a
//! password that goes in the clear, and a server that is not known by its certificate.
//!
//! A channel's token is never renewed: a session that is three quarters through its time is closed
//! and a new one opened, between two pieces of work. Leaves out subscriptions, history and events.

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod double;
mod frame;
mod fuzzing;
mod guard;
mod identity;
mod message;
mod policy;
mod secrecy;
#[cfg(test)]
mod secrecy_tests;
mod session;
mod status;
#[cfg(test)]
mod tests;
mod text;
mod wire;
mod writer;

#[cfg(test)]
pub(crate) use corpus::corpus;
#[cfg(test)]
pub(crate) use double::{Node, OpcPeer, Trouble, opaque, whole};
pub(crate) use fuzzing::{read_anything, talk};
pub(crate) use identity::{Certificate, Identity};
pub(crate) use message::{BROWSE_NAME, NODE_CLASS, OBJECT, Reference, VALUE, VARIABLE};
pub(crate) use secrecy::Security;
pub(crate) use session::{Server, Session, Stops};
pub(crate) use status::Status;
pub(crate) use text::{parse, size, text, time};
pub(crate) use wire::{DataValue, Identifier, Kind, NodeId, Variant};

/// Who logs in.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// Where a new node goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) parent: &'a NodeId,
    /// The number of the reference's type.
    pub(crate) reference: u32,
    pub(crate) browse_name: &'a str,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The link broke, or the server is none that can be talked to.
    #[error("{0}")]
    Link(String),
    /// What came is no answer.
    #[error(transparent)]
    Damaged(#[from] wire::Damaged),
    /// The server refuses a request as a whole.
    #[error("the server refuses: {0}")]
    Refused(Status),
    /// The server answers, and does not do it for this node.
    #[error("the server refuses: {0}")]
    Declined(Status),
    /// The server does not take so large a message.
    #[error("it is larger than the server takes")]
    TooLarge,
}

impl Fault {
    /// Whether the session is over, and the same may be asked again in another one.
    pub(crate) fn ends_session(&self) -> bool {
        match self {
            Fault::Link(_) | Fault::Damaged(_) => true,
            Fault::Refused(status) => status.is_of_session(),
            Fault::Declined(_) | Fault::TooLarge => false,
        }
    }
}

/// Types of references that paths and new nodes can have, and their numbers.
pub(crate) const REFERENCES: [(&str, u32); 4] = [
    ("Organizes", ORGANIZES),
    ("HasComponent", 47),
    ("HasProperty", HAS_PROPERTY),
    ("HasSubtype", 45),
];

/// The type of reference that folders have.
pub(crate) const ORGANIZES: u32 = 35;

const HAS_PROPERTY: u32 = 46;
