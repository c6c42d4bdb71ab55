//! A session with a server: a socket, a channel on it, and who is logged in.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::UnixMillis;

use super::frame::{self, Assembly, Bounds, Head, Way};
use super::guard::Guard;
use super::identity::{Certificate, nonce};
use super::message::{self, Endpoint, Reference, Service};
use super::secrecy::{self, Security};
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
    security: Security,
}

/// Says whether to give up waiting.
pub(crate) type Stops = Arc<dyn Fn() -> bool + Send + Sync>;

/// A session at work; dropping it breaks the link without a word.
pub(crate) struct Session {
    socket: Socket,
    stops: Stops,
    began: (UnixMillis, Instant),
    bounds: Bounds,
    /// What protects the channel, if anything does.
    guard: Option<Guard>,
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
        security: Security,
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
            security,
        })
    }

    /// Its address as the flow has it.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Connects and logs in; whatever waits gives up when `stops` says so. `warn` is told what a
    /// listener or an impostor could come to.
    pub(crate) fn open(
        &self,
        now: UnixMillis,
        stops: &Stops,
        warn: &dyn Fn(&str),
    ) -> Result<Session, Fault> {
        let guard = match &self.security.identity {
            None => None,
            Some(identity) => {
                let endpoints = self.discover(now, stops.clone())?;
                let (policy, peer) = secrecy::best(&endpoints)?;
                self.security.check(&peer, now, warn)?;
                Some(Guard::new(policy, identity.clone(), peer))
            }
        };
        let mut session = self.connect(now, stops.clone(), guard)?;
        session.log_in(self, now, warn)?;
        Ok(session)
    }

    /// Asks for the ways to the server, which it tells everybody.
    fn discover(&self, now: UnixMillis, stops: Stops) -> Result<Vec<Endpoint>, Fault> {
        let mut session = self.connect(now, stops, None)?;
        let service = message::GET_ENDPOINTS;
        let answer = session.call(service, |to| message::get_endpoints(to, &self.endpoint))?;
        let endpoints = message::endpoints(&mut message::answer(service, &answer)?)?;
        session.close_channel();
        Ok(endpoints)
    }

    /// Connects and opens a channel.
    fn connect(
        &self,
        now: UnixMillis,
        stops: Stops,
        guard: Option<Guard>,
    ) -> Result<Session, Fault> {
        let wait = OPC_ANSWER_WAIT;
        let failed = |error: std::io::Error| Fault::Link(error.to_string());
        let mut socket =
            Socket::connect(&self.address, None, wait, STOP_LOOK, wait).map_err(failed)?;
        send(&mut socket, &frame::hello(&self.endpoint))?;
        let (head, body) = receive(&mut socket, Instant::now() + wait, &*stops)?;
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
            guard,
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
        match self.send(*b"MSG", message::CLOSE_SESSION, |to| to.flag(true)) {
            Ok(()) => self.close_channel(),
            Err(error) => tracing::debug!(%error, "no goodbye"),
        }
    }

    fn close_channel(mut self) {
        if let Err(error) = self.send(*b"CLO", message::CLOSE_CHANNEL, |_| {}) {
            tracing::debug!(%error, "no goodbye");
        }
    }

    fn open_channel(&mut self) -> Result<(), Fault> {
        let own_nonce = self.guard.as_ref().map(|_| nonce());
        let mut request = self.begin(message::OPEN_CHANNEL);
        message::open_channel(&mut request, own_nonce.as_deref());
        let (guard, message) = (self.guard.as_ref(), request.into_bytes());
        let chunk = frame::open(guard, self.sequence, self.request, &message)?;
        self.sequence += 1;
        send(&mut self.socket, &chunk)?;
        let deadline = Instant::now() + OPC_ANSWER_WAIT;
        let (head, body) = receive(&mut self.socket, deadline, &*self.stops)?;
        let answer = match &head.letters {
            b"OPN" if head.is_last => frame::opened(self.guard.as_mut(), &body)?,
            b"ERR" => return Err(frame::refusal(&body)),
            _ => return Err(Damaged("it opens no channel").into()),
        };
        let channel = message::channel(message::answer(message::OPEN_CHANNEL, &answer)?)?;
        if let (Some(guard), Some(own_nonce)) = (&mut self.guard, own_nonce) {
            guard.derive(&own_nonce, &channel.nonce)?;
        }
        self.way = channel.way;
        self.ends = Instant::now() + most_of(f64::from(channel.lifetime_ms));
        Ok(())
    }

    fn log_in(
        &mut self,
        server: &Server,
        now: UnixMillis,
        warn: &dyn Fn(&str),
    ) -> Result<(), Fault> {
        let own_nonce = nonce();
        let own = self.guard.as_ref();
        let own = own.map(|guard| guard.identity.certificate.der().to_vec());
        let service = message::CREATE_SESSION;
        let answer = self.call(service, |to| {
            let (endpoint, application) = (&server.endpoint, &server.application);
            message::create_session(to, endpoint, application, &own_nonce, own.as_deref());
        })?;
        let created = message::created(message::answer(service, &answer)?)?;
        let signature = match &self.guard {
            Some(guard) => Some(secrecy::proven(guard, &created, &own_nonce)?),
            None => None,
        };
        self.authentication = created.authentication.clone();
        self.silence_max = most_of(created.timeout_ms);
        let login = server.login.as_ref();
        let policy = self.guard.as_ref().map(|guard| guard.policy);
        let (token, sealing) = secrecy::token(&created.endpoints, policy, login.is_some())?;
        let credentials = match login {
            None => None,
            Some(login) => {
                // Over a channel the server has shown who it is.
                let peer = match (sealing, &self.guard) {
                    (None, None) => {
                        warn("the password goes over a link that is not encrypted");
                        None
                    }
                    (None, Some(_)) => None,
                    (Some(_), Some(guard)) => Some(guard.peer.clone()),
                    (Some(_), None) => {
                        let peer = Certificate::sent(&created.certificate).map_err(|why| {
                            Fault::Link(format!("the server's certificate: {why}"))
                        })?;
                        server.security.check(&peer, now, warn)?;
                        Some(peer)
                    }
                };
                Some(secrecy::credentials(
                    login,
                    sealing.zip(peer),
                    &created.nonce,
                )?)
            }
        };
        let service = message::ACTIVATE_SESSION;
        let answer = self.call(service, |to| {
            let (signature, credentials) = (signature.as_ref(), credentials.as_ref());
            message::activate_session(to, signature, &token.name, credentials);
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
            let (head, body) = receive(&mut self.socket, deadline, &*self.stops)?;
            let guard = self.guard.as_mut();
            if let Some(answer) = assembly.add(guard, &head, &body, self.way, self.request)? {
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
            self.guard.as_ref(),
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
