//! Who may come in, and what they may do: the seam that an access policy fills.
//!
//! A link asks its [`Gate`] once for its CONNECT (and for each AUTH), and gets a [`Pass`], which
//! it asks for every filter and, unless the pass says that it allows all, for the topics that it
//! publishes to. A pass answers from memory at once; only letting a client in may take its time.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;

use crate::message::Qos;
use crate::mount::Mount;
use crate::reason::ReasonCode;
use crate::topic::TopicFilter;

/// Decides about clients.
pub trait Gate: Send + Sync + 'static {
    /// Lets a client in, or says with which reason code it is refused.
    fn admit<'a>(&'a self, hello: &'a Hello<'a>) -> Admission<'a>;

    /// Begins an enhanced login by the method that the client names; `None` when the method is
    /// not offered, which refuses the client with 0x8C.
    fn exchange(&self, method: &str, hello: &Hello<'_>) -> Option<Box<dyn Exchange>> {
        let _ = (method, hello);
        None
    }

    /// Judges what comes for a client that is away, and its will when that is published, as the
    /// pass that it had did; `None` where it may receive everything, and its will was judged for good.
    fn away(&self, client_id: &str, owner: &Owner) -> Option<Arc<dyn Pass>> {
        let _ = (client_id, owner);
        None
    }
}

/// Whose a session is, and where its client was last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// As [`Pass::user`] names it.
    pub user: Option<Box<str>>,
    /// The client's address.
    pub host: Box<str>,
}

/// What [`Gate::admit`] gives.
pub type Admission<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<dyn Pass>, ReasonCode>> + Send + 'a>>;

/// What one client that was let in may do. A refusal names its reason code, as a rule
/// [`ReasonCode::NotAuthorized`].
pub trait Pass: Send + Sync + 'static {
    /// Whether it may publish to this topic. Also asked for a will.
    ///
    /// # Errors
    /// The reason code to acknowledge the message with; it goes to nobody.
    fn may_publish(&self, topic: &str, qos: Qos, retain: bool) -> Result<(), ReasonCode>;

    /// Whether it may subscribe to this filter (a shared one without its `$share/group/`), and
    /// with which quality at most.
    ///
    /// # Errors
    /// The reason code for the SUBACK.
    fn may_subscribe(&self, filter: &TopicFilter, qos: Qos) -> Result<Qos, ReasonCode>;

    /// Whether it gets messages of this topic. Asked when a topic's subscribers are looked up,
    /// not for every message: see [`Server::permissions_changed`](crate::Server::permissions_changed).
    fn may_receive(&self, topic: &str) -> bool;

    /// As [`Pass::may_receive`], of a message that has waited for the client: a refusal is told to
    /// whoever looks, as the message is dropped.
    fn may_still_receive(&self, topic: &str) -> bool {
        self.may_receive(topic)
    }

    /// Whether [`Pass::may_publish`] need not be asked.
    fn publishes_anything(&self) -> bool {
        false
    }

    /// Whether it may publish a message with this user property; asked for every message with
    /// properties.
    ///
    /// # Errors
    /// The reason code to acknowledge the message with; it goes to nobody.
    fn may_say(&self, name: &str, value: &str) -> Result<(), ReasonCode> {
        let _ = (name, value);
        Ok(())
    }

    /// Counts what the client has sent; how long it is to be held back, by not reading from it.
    fn charge(&self, now: UnixMillis, messages: u64, bytes: u64) -> Duration {
        let _ = (now, messages, bytes);
        Duration::ZERO
    }

    /// When the link ends for whose CONNECT the pass was given; `None` where nothing says so.
    fn ends(&self) -> Option<UnixMillis> {
        None
    }

    /// Whether what the client has shown to be let in was taken back since: its link is ended then.
    /// Asked once the link stands, and see
    /// [`Server::permissions_changed`](crate::Server::permissions_changed).
    fn is_void(&self) -> bool {
        false
    }

    /// Below which name all of the client's topics lie, without that it is written; `None` where
    /// topics have their own names. What it is asked of topics is of their names inside.
    fn mount(&self) -> Option<&Mount> {
        None
    }

    /// Whom the log and the client's figures name; `None` when it is nobody in particular.
    fn user(&self) -> Option<&str> {
        None
    }
}

/// A login in several steps: AUTH packets of MQTT 5.0 (section 4.12).
pub trait Exchange: Send + Sync {
    /// Takes what the client says (the authentication data of its CONNECT or AUTH).
    fn step(&mut self, data: &[u8]) -> Progress;
}

/// What a step of an [`Exchange`] leads to.
pub enum Progress {
    /// The client's turn, after this data.
    Continue(Vec<u8>),
    /// The client is in; the data goes into the CONNACK, or into the AUTH of a repeated login.
    Done {
        /// The last authentication data.
        data: Vec<u8>,
        /// What the client may do from now on.
        pass: Arc<dyn Pass>,
    },
    /// The client is refused.
    Refused(ReasonCode),
}

/// What a client says of itself, and where it comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Hello<'a> {
    /// Its client id, which the server assigned if the client gave none.
    pub client_id: &'a str,
    /// The user name of its CONNECT.
    pub username: Option<&'a str>,
    /// The password of its CONNECT; never to be logged.
    pub password: Option<Password<'a>>,
    /// Where the link comes from.
    pub origin: &'a Origin,
}

/// A password, which [`std::fmt::Debug`] does not show.
#[derive(Clone, Copy)]
pub struct Password<'a>(pub &'a [u8]);

/// Where a link comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The peer's address.
    pub peer: SocketAddr,
    /// The subject of the certificate that the client showed, as `access` writes it.
    pub certificate: Option<String>,
    /// Whether nobody on the way can read it.
    pub is_encrypted: bool,
}

/// The gate that lets everybody do everything: for a listener that only this machine reaches.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

/// The pass of [`OpenGate`].
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenPass;

impl Origin {
    /// The peer's address, one of IPv4 as such.
    pub(crate) fn host(&self) -> String {
        self.peer.ip().to_canonical().to_string()
    }
}

impl Gate for OpenGate {
    fn admit<'a>(&'a self, _hello: &'a Hello<'a>) -> Admission<'a> {
        Box::pin(std::future::ready(Ok(Arc::new(OpenPass) as Arc<dyn Pass>)))
    }
}

impl Pass for OpenPass {
    fn may_publish(&self, _topic: &str, _qos: Qos, _retain: bool) -> Result<(), ReasonCode> {
        Ok(())
    }

    fn may_subscribe(&self, _filter: &TopicFilter, qos: Qos) -> Result<Qos, ReasonCode> {
        Ok(qos)
    }

    fn may_receive(&self, _topic: &str) -> bool {
        true
    }

    fn publishes_anything(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}
