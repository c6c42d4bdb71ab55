//! How a client shows itself to brokers: TLS, and SASL by PLAIN or SCRAM.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;

use super::scram::{Scram, ScramHash};

/// What links to brokers are made with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Security {
    /// Present when links are TLS.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Present when the client names itself.
    pub(crate) sasl: Option<Sasl>,
}

/// A user and the way in which its password is proven.
#[derive(Clone)]
pub(crate) struct Sasl {
    pub(crate) mechanism: Mechanism,
    pub(crate) user: String,
    pub(crate) password: String,
}

/// A SASL mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Plain,
    Scram(ScramHash),
}

/// The client's side of one login.
pub(crate) enum Conversation {
    Plain,
    Scram(Box<Scram>),
}

impl Mechanism {
    /// Its registered name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(ScramHash::Sha256) => "SCRAM-SHA-256",
            Mechanism::Scram(ScramHash::Sha512) => "SCRAM-SHA-512",
        }
    }
}

impl Sasl {
    /// The first message, and what goes on from it.
    pub(crate) fn start(&self) -> (Vec<u8>, Conversation) {
        match self.mechanism {
            Mechanism::Plain => {
                let message = [b"\0", self.user.as_bytes(), b"\0", self.password.as_bytes()];
                (message.concat(), Conversation::Plain)
            }
            Mechanism::Scram(hash) => {
                let nonce = uuid::Uuid::new_v4().simple().to_string();
                let scram = Scram::new(hash, &self.user, &self.password, &nonce);
                let first = scram.first().into_bytes();
                (first, Conversation::Scram(Box::new(scram)))
            }
        }
    }
}

impl Conversation {
    /// What to say to the server's answer; nothing when the login is over.
    ///
    /// Errors: the server does not know the password itself, or talks nonsense.
    pub(crate) fn next(&mut self, answer: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match self {
            Conversation::Plain => Ok(None),
            Conversation::Scram(scram) => scram.next(answer),
        }
    }
}

impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password: this goes into logs.
        write!(f, "Sasl({}, {})", self.mechanism.name(), self.user)
    }
}
