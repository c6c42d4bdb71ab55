//! A session with a server: a socket, a channel on it, and who is logged in.

use std::io::Write;
use std::time::{Duration, Instant};

use base::UnixMillis;
use uuid::Uuid;

use super::frame::{self, Assembly, Bounds, Head, Way};
use super::message::{self, Reference, Service, Token};
use super::status::Status;
use super::wire::{Damaged, DataValue, NodeId, Variant};
use super::writer::Writer;
use super::{Fault, Login, Place, text};
use crate::net::STOP_LOOK;
use crate::net::limits::{OPC_ANSWER_WAIT, OPC_CHILDREN_MAX, OPC_READS_AT_ONCE};
use crate::net::socket::{Socket, read_exact_until};

/// A server and who the agent is to it.
pub(crate) struct Server {
    endpoint: String,
    /// `host:port`.
    address: String,
    application: String,
    login: Option<Login>,
}

/// A session at work; dropping it breaks the link without a word.
pub(crate) struct Session {
    socket: Socket,
    stops: Box<dyn Fn() -> bool + Send>,
    began: (UnixMillis, Instant),
    bounds: Bounds,
    way: Way,
    sequence: u32,
    request: u32,
    authentication: NodeId,
    /// When the channel has to be made anew.
    ends: Instant,
    /// How long the server keeps a session that says nothing.
    silence_max: Duration,
    used: Instant,
    /// Attributes that are read at once; a server may want fewer.
    reads: usize,
}

impl Server {
    /// A server by its address, `opc.tcp://host:port/path`.
    pub(crate) fn new(
        endpoint: &str,
        application: Option<String>,
        login: Option<Login>,
    ) -> Result<Self, String> {
        let endpoint = endpoint.trim();
        let Some(rest) = endpoint.strip_prefix("opc.tcp://") else {
            return Err(format!("'{endpoint}' does not begin with opc.tcp://"));
        };
        let place = rest.split('/').next().unwrap_or_default();
        // A colon within brackets is an IPv6 address's own.
        let port = place
            .rsplit_once(':')
            .filter(|(_, port)| !port.ends_with(']'));
        let (host, address) = match port {
            Some((host, port)) if port.parse::<u16>().is_ok() => (host, place.to_owned()),
            Some((_, port)) => return Err(format!("'{port}' is no port")),
            None => (place, format!("{place}:{PORT}")),
        };
        if host.is_empty() {
            return Err(format!("'{endpoint}' names no host"));
        }
        Ok(Server {
            endpoint: endpoint.to_owned(),
            address,
            application: application.unwrap_or_else(|| "urn:unconfigured:application".to_owned()),
            login,
        })
    }

    /// Its address as the flow has it.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Whether a password goes over the link, which encrypts nothing.
    pub(crate) fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Connects and logs in; whatever waits gives up when `stops` says so.
    pub(crate) fn open(
        &self,
        now: UnixMillis,
        stops: Box<dyn Fn() -> bool + Send>,
    ) -> Result<Session, Fault> {
        let wait = OPC_ANSWER_WAIT;
        let failed = |error: std::io::Error| Fault::Link(error.to_string());
        let mut socket =
            Socket::connect(&self.address, None, wait, STOP_LOOK, wait).map_err(failed)?;
        send(&mut socket, &frame::hello(&self.endpoint))?;
        let (head, body) = receive(&mut socket, Instant::now() + wait, &stops)?;
        let bounds = match &head.letters {
            b"ACK" => frame::acknowledged(&body)?,
            b"ERR" => return Err(frame::refusal(&body)),
            _ => return Err(Damaged("it does not greet").into()),
        };
        let now_here = Instant::now();
        let mut session = Session {
            socket,
            stops,
            began: (now, now_here),
            bounds,
            way: Way::default(),
            sequence: 1,
            request: 0,
            authentication: NodeId::standard(0),
            ends: now_here,
            silence_max: Duration::ZERO,
            used: now_here,
            reads: OPC_READS_AT_ONCE,
        };
        session.open_channel()?;
        session.log_in(self)?;
        Ok(session)
    }
}

impl Session {
    /// Whether it is still to be used.
    pub(crate) fn is_fresh(&self) -> bool {
        let now = Instant::now();
        now < self.ends && now - self.used < self.silence_max && !self.socket.is_closed()
    }

    /// Everything that a node refers to.
    pub(crate) fn browse(&mut self, node: &NodeId) -> Result<Vec<Reference>, Fault> {
        let answer = self.call(message::BROWSE, |to| message::browse(to, node))?;
        let mut browsed = message::browsed(message::answer(message::BROWSE, &answer)?)?;
        let mut all = browsed.references;
        for _ in 0..PAGES_MAX {
            if browsed.continuation.is_empty() {
                return Ok(all);
            }
            let more = browsed.continuation;
            let service = message::BROWSE_NEXT;
            let answer = self.call(service, |to| message::browse_next(to, &more))?;
            browsed = message::browsed(message::answer(service, &answer)?)?;
            all.append(&mut browsed.references);
            if all.len() > OPC_CHILDREN_MAX {
                break;
            }
        }
        Err(Damaged("a node has no end of references").into())
    }

    /// The nodes that a path leads to, none where it leads nowhere.
    pub(crate) fn translate(
        &mut self,
        namespace: u16,
        path: &[(u32, String)],
    ) -> Result<Vec<NodeId>, Fault> {
        let service = message::TRANSLATE;
        let answer = self.call(service, |to| message::translate(to, namespace, path))?;
        match message::translated(message::answer(service, &answer)?) {
            Err(Fault::Declined(Status::NO_MATCH)) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Attributes of nodes, in their order.
    pub(crate) fn read(&mut self, asked: &[(&NodeId, u32)]) -> Result<Vec<DataValue>, Fault> {
        let mut values = Vec::with_capacity(asked.len());
        while values.len() < asked.len() {
            let rest = &asked[values.len()..];
            let some = &rest[..rest.len().min(self.reads)];
            let read = self
                .call(message::READ, |to| message::read(to, some))
                .and_then(|answer| {
                    let answer = message::answer(message::READ, &answer)?;
                    Ok(message::values(answer, some.len())?)
                });
            match read {
                Ok(read) => values.extend(read),
                Err(Fault::Refused(Status::TOO_MANY_OPERATIONS)) if self.reads > 1 => {
                    self.reads /= 2;
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(values)
    }

    /// Sets a node's value; a refusal is a fault.
    pub(crate) fn write(&mut self, node: &NodeId, value: &Variant) -> Result<(), Fault> {
        let answer = self.call(message::WRITE, |to| message::write(to, node, value))?;
        taken(message::one_status(message::answer(
            message::WRITE,
            &answer,
        )?)?)
    }

    /// Makes a variable; a refusal is a fault.
    pub(crate) fn add_variable(
        &mut self,
        place: &Place<'_>,
        node: &NodeId,
        value: &Variant,
    ) -> Result<(), Fault> {
        let service = message::ADD_NODES;
        let answer = self.call(service, |to| message::add_variable(to, place, node, value))?;
        taken(message::added(message::answer(service, &answer)?)?)
    }

    /// Says goodbye, and waits for nothing.
    pub(crate) fn close(mut self) {
        let ended = self
            .send(*b"MSG", message::CLOSE_SESSION, |to| to.flag(true))
            .and_then(|()| self.send(*b"CLO", message::CLOSE_CHANNEL, |_| {}));
        if let Err(error) = ended {
            tracing::debug!(%error, "no goodbye");
        }
    }

    fn open_channel(&mut self) -> Result<(), Fault> {
        let mut request = self.begin(message::OPEN_CHANNEL);
        message::open_channel(&mut request);
        let chunk = frame::open(self.sequence, self.request, &request.into_bytes());
        self.sequence += 1;
        send(&mut self.socket, &chunk)?;
        let deadline = Instant::now() + OPC_ANSWER_WAIT;
        let (head, body) = receive(&mut self.socket, deadline, &self.stops)?;
        let answer = match &head.letters {
            b"OPN" if head.is_last => frame::opened(&body)?,
            b"ERR" => return Err(frame::refusal(&body)),
            _ => return Err(Damaged("it opens no channel").into()),
        };
        let channel = message::channel(message::answer(message::OPEN_CHANNEL, answer)?)?;
        self.way = channel.way;
        self.ends = Instant::now() + most_of(f64::from(channel.lifetime_ms));
        Ok(())
    }

    fn log_in(&mut self, server: &Server) -> Result<(), Fault> {
        let nonce = [Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()].concat();
        let service = message::CREATE_SESSION;
        let answer = self.call(service, |to| {
            message::create_session(to, &server.endpoint, &server.application, &nonce);
        })?;
        let created = message::created(message::answer(service, &answer)?)?;
        self.authentication = created.authentication;
        self.silence_max = most_of(created.timeout_ms);
        let login = server.login.as_ref();
        let token = token(&created.tokens, login.is_some()).map_err(Fault::Link)?;
        let service = message::ACTIVATE_SESSION;
        let answer = self.call(service, |to| {
            message::activate_session(to, token, login);
        })?;
        message::answer(service, &answer)?;
        Ok(())
    }

    /// One request and the bytes of its answer.
    fn call(
        &mut self,
        service: Service,
        write: impl FnOnce(&mut Writer),
    ) -> Result<Vec<u8>, Fault> {
        self.send(*b"MSG", service, write)?;
        let deadline = Instant::now() + OPC_ANSWER_WAIT;
        let mut assembly = Assembly::default();
        loop {
            let (head, body) = receive(&mut self.socket, deadline, &self.stops)?;
            if let Some(answer) = assembly.add(&head, &body, self.way, self.request)? {
                self.used = Instant::now();
                return Ok(answer);
            }
        }
    }

    fn send(
        &mut self,
        letters: [u8; 3],
        service: Service,
        write: impl FnOnce(&mut Writer),
    ) -> Result<(), Fault> {
        let mut request = self.begin(service);
        write(&mut request);
        let chunks = frame::message(
            letters,
            self.way,
            &mut self.sequence,
            self.request,
            &request.into_bytes(),
            &self.bounds,
        )?;
        send(&mut self.socket, &chunks)
    }

    fn begin(&mut self, service: Service) -> Writer {
        self.request = self.request.wrapping_add(1);
        let (then, began) = self.began;
        let elapsed = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = UnixMillis(then.0.saturating_add(elapsed));
        let now = text::steps(now);
        message::begin(service, &self.authentication, now, self.request)
    }
}

/// The way to log in that the server offers and that needs no encryption.
fn token(tokens: &[Token], has_login: bool) -> Result<&Token, String> {
    let (kind, who) = match has_login {
        true => (message::USER_NAME, "user names"),
        false => (message::ANONYMOUS, "clients without a user name"),
    };
    let mut offered = tokens.iter().filter(|token| token.kind == kind);
    // What an anonymous client says needs none whatever the server tells.
    let fit = |token: &&Token| !has_login || !token.is_encrypted;
    match offered.clone().find(fit) {
        Some(token) => Ok(token),
        None if offered.next().is_some() => Err(
            "the server takes passwords only encrypted, and security policies other than None are \
             not supported"
                .to_owned(),
        ),
        None => Err(format!("the server does not let in {who} unencrypted")),
    }
}

fn taken(status: Status) -> Result<(), Fault> {
    match status.is_bad() {
        true => Err(Fault::Declined(status)),
        false => Ok(()),
    }
}

/// Three quarters of what a server grants.
fn most_of(granted_ms: f64) -> Duration {
    let ms = (granted_ms * 0.75).clamp(LIFETIME_MS_LEAST, LIFETIME_MS_MOST);
    // A server's nonsense becomes the least.
    Duration::try_from_secs_f64(ms / 1_000.0).unwrap_or(Duration::from_secs(1))
}

fn send(socket: &mut Socket, bytes: &[u8]) -> Result<(), Fault> {
    let failed = |error: std::io::Error| Fault::Link(error.to_string());
    socket.write_all(bytes).map_err(failed)?;
    socket.flush().map_err(failed)
}

/// The next chunk.
fn receive(
    socket: &mut Socket,
    deadline: Instant,
    stops: impl Fn() -> bool,
) -> Result<(Head, Vec<u8>), Fault> {
    let failed = |error: std::io::Error| Fault::Link(error.to_string());
    let mut first = [0; frame::HEAD_BYTES];
    read_exact_until(socket, &mut first, deadline, &stops).map_err(failed)?;
    let head = frame::head(first)?;
    // Bounded by what a chunk has.
    let mut body = vec![0; head.len];
    read_exact_until(socket, &mut body, deadline, &stops).map_err(failed)?;
    Ok((head, body))
}

/// OPC UA's registered port.
const PORT: u16 = 4840;

/// Answers that bring one node's references.
const PAGES_MAX: usize = 10_000;

/// Shorter and longer lives are a server's nonsense.
const LIFETIME_MS_LEAST: f64 = 1_000.0;
const LIFETIME_MS_MOST: f64 = 86_400_000.0;
