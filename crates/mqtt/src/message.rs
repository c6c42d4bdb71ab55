//! Messages as in-process subscribers see them, and the contract of taking them.

use std::future::Future;
use std::pin::Pin;

use base::UnixMillis;

use crate::codec::Properties;

/// How hard delivery is tried (MQTT 3.1.1 section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// At most once: no acknowledgement.
    #[default]
    AtMostOnce = 0,
    /// At least once: PUBACK.
    AtLeastOnce = 1,
    /// Exactly once: PUBREC, PUBREL, PUBCOMP.
    ExactlyOnce = 2,
}

/// One message, borrowed from the read buffer of the connection that brought it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// The topic it was published to; always a valid name.
    pub topic: &'a str,
    /// The payload as it came; any bytes, also none.
    pub payload: &'a [u8],
    /// The quality with which it was published.
    pub qos: Qos,
    /// True only for a retained message that is delivered because of a new subscription; false
    /// for a message that flows now, whether or not its publisher asked to retain it
    /// (MQTT-3.3.1-8, -9).
    pub retain: bool,
    /// Whether its publisher asked to retain it, of a message that flows now.
    pub retain_asked: bool,
    /// When the server read it from its publisher.
    pub received: UnixMillis,
    /// From when on it is worth nothing and goes to nobody; `None`: always worth something.
    pub expires: Option<UnixMillis>,
    /// What its publisher said about it in MQTT 5.0.
    pub properties: Properties<'a>,
}

/// A retained message, for whoever looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedMessage {
    /// Its topic.
    pub topic: String,
    /// Its payload.
    pub payload: Vec<u8>,
    /// The quality with which it was published.
    pub qos: Qos,
    /// When it was published.
    pub received: UnixMillis,
}

/// An in-process subscriber.
///
/// Calls for messages of one connection come one after the other and in order; different
/// connections call at the same time from different threads. `deliver` runs on the connection's
/// own task: it must not block and should not take long. It may call
/// [`Server::publish`](crate::Server::publish): what it publishes reaches other sinks (and
/// itself) later, from another task, never within the call.
pub trait MessageSink: Send + Sync + 'static {
    /// Takes the batch, or as much of its front as there is room for.
    ///
    /// PUBACK and PUBREC for a message leave only after every sink has taken it.
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery;

    /// Resolves when it is worth to call `deliver` again after a [`Delivery::HoldBack`].
    ///
    /// A sink that never holds back keeps the default, which is ready at once. Resolving early
    /// is harmless (the server asks again, after letting other tasks run).
    fn room(&self) -> Room<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Resolves when all that was taken so far is where the sink promises to bring it; `None` when
    /// it is there already.
    ///
    /// PUBACK and PUBREC of what was taken leave after that. A sink that has nothing to wait for
    /// keeps the default.
    fn settled(&self) -> Option<Settled> {
        None
    }
}

/// What [`MessageSink::room`] gives.
pub type Room<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What [`MessageSink::settled`] gives; it borrows nothing, so that the sink may go away meanwhile.
pub type Settled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How much of a batch a sink took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All of it.
    Taken,
    /// Exactly the first `taken` messages (may be 0), and nothing of the rest.
    ///
    /// The server then reads nothing more from this connection and acknowledges nothing of this
    /// batch, waits for [`MessageSink::room`], and calls `deliver` with the rest, again and
    /// again until all is taken or the subscription is removed. Other sinks get their batch
    /// without waiting for this one; other connections go on until they have something for it.
    /// So nothing is lost, nothing comes twice, and the publisher feels it by TCP.
    HoldBack {
        /// Messages taken from the front of the batch.
        taken: usize,
    },
}

impl Message<'_> {
    /// Whole seconds that are left of its life.
    pub(crate) fn expiry_s(&self, now: UnixMillis) -> Option<u32> {
        self.expires.map(|at| {
            let left_ms = at.since(now).as_millis();
            u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX)
        })
    }
}

impl Qos {
    /// The two bits as they travel; `None` for 3, which is not a quality.
    pub(crate) fn from_bits(bits: u8) -> Option<Qos> {
        match bits {
            0 => Some(Qos::AtMostOnce),
            1 => Some(Qos::AtLeastOnce),
            2 => Some(Qos::ExactlyOnce),
            _ => None,
        }
    }

    /// The two bits as they travel.
    pub(crate) fn bits(self) -> u8 {
        self as u8
    }
}
