//! The server's side over HTTP, in NiFi's words.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /nifi-api/site-to-site` | the ports, and where the raw protocol is spoken |
//! | `GET /nifi-api/site-to-site/peers` | this agent alone |
//! | `POST /nifi-api/data-transfer/{input,output}-ports/ID/transactions` | 201 and the place of a transaction |
//! | `POST …/transactions/T/flow-files` | takes packets, 202 and their checksum |
//! | `GET …/transactions/T/flow-files` | 202 and packets, or 204 |
//! | `PUT …/transactions/T` | 200: it goes on |
//! | `DELETE …/transactions/T?responseCode=12` | confirmed: kept, or forgotten, for good; by any other code as if it never was |
//!
//! A transaction is one of the raw protocol, played within the process: the port has one end of a
//! pair of sockets, a thread here the other, and turns between HTTP's bodies and the raw protocol's
//! answers. A port therefore knows one protocol only, and one rule for what is kept when.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::Crc;
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue, LOCATION};
use hyper::{Method, Request, Response};
use parking_lot::Mutex;
use rustls::ServerConfig;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::codec::{Code, invalid, read_response};
use super::server::{Port, Ports, Stream};
use super::transaction::{End, Receiving, Sending, put_packet, take_packet};
use super::wire::Wire;
use crate::net::STOP_LOOK;
use crate::net::http_bounds::{BoundedBody, HttpBounds};
use crate::net::http_client::{PieceBody, PieceWriter};
use crate::net::http_server::{self, Answering, Handler, Peer, PieceReader, answer, pump};
use crate::net::limits::S2S_CONNECTIONS_MAX;

/// An HTTP listener for site-to-site; dropping it ends it.
#[derive(Debug)]
pub struct HttpServer(http_server::Server);

impl HttpServer {
    /// Listens on `port` for the agent's ports; TLS when there is a configuration for it. `raw` is
    /// where the raw protocol is spoken, for those who ask.
    pub fn start(
        runtime: &Handle,
        port: u16,
        tls: Option<Arc<ServerConfig>>,
        ports: Ports,
        raw: Option<u16>,
    ) -> io::Result<HttpServer> {
        let api = Api {
            ports,
            raw,
            is_secure: tls.is_some(),
            transactions: Mutex::default(),
        };
        let bounds = HttpBounds::default();
        http_server::Server::start(runtime, port, tls, bounds, Arc::new(api)).map(HttpServer)
    }

    /// Where it listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.0.address()
    }
}

struct Api {
    ports: Ports,
    raw: Option<u16>,
    is_secure: bool,
    transactions: Mutex<HashMap<String, Transaction>>,
}

/// A transaction that a peer began.
struct Transaction {
    port: Port,
    is_packed: bool,
    batch: (u64, u64),
    peer: String,
    host: IpAddr,
    begun: Instant,
    /// Set when its FlowFiles are on their way.
    under_way: Option<UnderWay>,
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was sent yet.
    Begun,
    /// FlowFiles are on their way, or wait for the peer's last word.
    UnderWay,
    /// Its thread has ended.
    Over,
}

/// The thread that plays the raw protocol.
struct UnderWay {
    decide: SyncSender<Decision>,
    outcome: oneshot::Receiver<io::Result<End>>,
}

/// What the peer says at the end.
enum Decision {
    /// It is confirmed; by the checksum of what we gave, where we gave.
    Confirm(Option<String>),
    Cancel,
}

/// What a thread plays with.
struct Play {
    port: Port,
    is_packed: bool,
    batch: (u64, u64),
    peer: String,
    decided: Receiver<Decision>,
}

type Answer = Response<PieceBody>;

impl Handler for Api {
    fn answer(&self, request: Request<Incoming>, peer: Peer) -> Answering<'_> {
        Box::pin(self.reply(request, peer))
    }
}

impl Api {
    async fn reply(&self, request: Request<Incoming>, peer: Peer) -> Answer {
        let path = request.uri().path().trim_matches('/').to_owned();
        let parts: Vec<&str> = path.split('/').collect();
        let method = request.method().clone();
        match (method, parts.as_slice()) {
            (Method::GET, ["nifi-api", "site-to-site"]) => self.details(),
            (Method::GET, ["nifi-api", "site-to-site", "peers"]) => self.peers(&request),
            (Method::POST, ["nifi-api", "data-transfer", kind, id, "transactions"]) => {
                match is_input(kind) {
                    Some(is_input) => self.begin(&request, &peer, &path, id, is_input),
                    None => nothing(),
                }
            }
            (
                method,
                [
                    "nifi-api",
                    "data-transfer",
                    kind,
                    port,
                    "transactions",
                    id,
                    rest @ ..,
                ],
            ) => {
                let known = is_input(kind).filter(|is_input| self.is_of(id, port, *is_input));
                match (method, known, rest) {
                    (Method::POST, Some(true), ["flow-files"]) => self.take(request, id).await,
                    (Method::GET, Some(false), ["flow-files"]) => self.give(id).await,
                    (Method::PUT, Some(_), []) => self.renew(id),
                    (Method::DELETE, Some(_), []) => self.end(&request, id).await,
                    _ => nothing(),
                }
            }
            _ => nothing(),
        }
    }
}

impl Api {
    fn details(&self) -> Answer {
        let list = |is_input| -> Vec<serde_json::Value> {
            let ports = self.ports.all().into_iter();
            ports
                .filter(|port| port.is_input == is_input)
                .map(|port| json!({ "id": port.id, "name": port.name, "state": "RUNNING" }))
                .collect()
        };
        let told = json!({
            "controller": {
                "name": "thalweg-agent",
                "inputPorts": list(true),
                "outputPorts": list(false),
                "siteToSiteSecure": self.is_secure,
                "remoteSiteListeningPort": self.raw,
            },
        });
        answer(200, told.to_string())
    }

    fn peers(&self, request: &Request<Incoming>) -> Answer {
        let host = request.headers().get("host");
        let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
        let (name, port) = host.rsplit_once(':').unwrap_or((host, "80"));
        let peer = json!({
            "hostname": name,
            "port": port.parse::<u16>().unwrap_or_default(),
            "secure": self.is_secure,
            "flowFileCount": 0,
        });
        answer(200, json!({ "peers": [peer] }).to_string())
    }

    fn begin(
        &self,
        request: &Request<Incoming>,
        peer: &Peer,
        path: &str,
        id: &str,
        is_input: bool,
    ) -> Answer {
        let Some(port) = self.ports.find(id).filter(|port| port.is_input == is_input) else {
            return told(404, Code::UnknownPort, "there is no such port");
        };
        if is_input && !(port.is_ready)() {
            return told(503, Code::PortsFull, "the port takes no more for now");
        }
        let header = |name: &str| {
            let value = request.headers().get(format!("x-nifi-site-to-site-{name}"));
            value
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let number = |name: &str| header(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut transactions = self.transactions.lock();
        let now = Instant::now();
        transactions.retain(|_, it| now - it.begun < it.phase().kept_for());
        let of_peer = transactions.values();
        let of_peer = of_peer.filter(|it| it.host == peer.address.ip()).count();
        if transactions.len() >= S2S_CONNECTIONS_MAX || of_peer >= OF_PEER_MAX {
            return told(503, Code::PortsFull, "too many transactions are under way");
        }
        let transaction = Transaction {
            port,
            is_packed: header("use-compression").as_deref() == Some("true"),
            batch: (number("batch-count"), number("batch-size")),
            peer: format!(
                "{}://{}",
                if self.is_secure { "https" } else { "http" },
                peer.address
            ),
            host: peer.address.ip(),
            begun: Instant::now(),
            under_way: None,
        };
        let id = uuid::Uuid::new_v4().to_string();
        let place = format!("/{path}/{id}");
        transactions.insert(id, transaction);
        let mut begun = told(201, Code::PropertiesOk, "a transaction is begun");
        let headers = begun.headers_mut();
        if let Ok(place) = HeaderValue::from_str(&place) {
            headers.insert(LOCATION, place);
        }
        for (name, value) in [
            ("x-location-uri-intent", "transaction-url"),
            ("x-nifi-site-to-site-protocol-version", "1"),
            ("x-nifi-site-to-site-server-transaction-ttl", TTL_SECONDS),
        ] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        begun
    }

    /// Whether there is such a transaction with that port.
    fn is_of(&self, id: &str, port: &str, is_input: bool) -> bool {
        let transactions = self.transactions.lock();
        transactions.get(id).is_some_and(|it| {
            it.port.is_input == is_input && (it.port.id == port || it.port.name == port)
        })
    }

    /// A transaction that nothing was sent in yet has its whole time again.
    fn renew(&self, id: &str) -> Answer {
        if let Some(transaction) = self.transactions.lock().get_mut(id)
            && transaction.under_way.is_none()
        {
            transaction.begun = Instant::now();
        }
        told(200, Code::PropertiesOk, "it goes on")
    }

    /// What a thread for this transaction plays with; none when one does already.
    fn play(&self, id: &str) -> Option<(Play, oneshot::Sender<io::Result<End>>)> {
        let mut transactions = self.transactions.lock();
        let transaction = transactions.get_mut(id)?;
        if transaction.under_way.is_some() {
            return None;
        }
        let (decide, decided) = sync_channel(1);
        let (tell, outcome) = oneshot::channel();
        transaction.under_way = Some(UnderWay { decide, outcome });
        transaction.begun = Instant::now();
        let play = Play {
            port: transaction.port.clone(),
            is_packed: transaction.is_packed,
            batch: transaction.batch,
            peer: transaction.peer.clone(),
            decided,
        };
        Some((play, tell))
    }

    /// Takes what a peer sends, up to the checksum.
    async fn take(&self, request: Request<Incoming>, id: &str) -> Answer {
        let Some((play, tell)) = self.play(id) else {
            return told(409, Code::Abort, "its FlowFiles were sent already");
        };
        let (feed, pieces) = mpsc::channel(PIECES_AHEAD);
        let (checked, mut checksum) = oneshot::channel();
        let body = PieceReader::new(pieces);
        let started = spawn(move || {
            let outcome = play.take(body, checked);
            // The peer may be gone.
            let _ = tell.send(outcome);
        });
        if let Err(error) = started {
            self.transactions.lock().remove(id);
            return told(503, Code::PortsFull, &error.to_string());
        }
        let body = BoundedBody::new(request.into_body(), HttpBounds::default());
        let feeding = pump(body, feed);
        tokio::pin!(feeding);
        let checksum = tokio::select! {
            checksum = &mut checksum => checksum,
            () = &mut feeding => checksum.await,
        };
        match checksum {
            Ok(checksum) => answer(202, checksum.to_string()),
            Err(_) => {
                let why = self.why(id).await;
                told(400, Code::Abort, &why)
            }
        }
    }

    /// Gives a peer what waits.
    async fn give(&self, id: &str) -> Answer {
        let Some((play, tell)) = self.play(id) else {
            return told(409, Code::Abort, "its FlowFiles were fetched already");
        };
        let (pieces, body) = mpsc::channel(PIECES_AHEAD);
        let (found, has_some) = oneshot::channel();
        let started = spawn(move || {
            let outcome = play.give(PieceWriter::new(pieces), found);
            // The peer may be gone.
            let _ = tell.send(outcome);
        });
        if let Err(error) = started {
            self.transactions.lock().remove(id);
            return told(503, Code::PortsFull, &error.to_string());
        }
        match has_some.await {
            Ok(true) => {
                let mut given = answer(202, "");
                *given.body_mut() = PieceBody::channel(body, None);
                given
            }
            Ok(false) => answer(204, ""),
            Err(_) => {
                let why = self.why(id).await;
                told(503, Code::Abort, &why)
            }
        }
    }

    /// Why a thread ended before its time; the transaction is over then.
    async fn why(&self, id: &str) -> String {
        let gone = self.transactions.lock().remove(id);
        match gone.and_then(|gone| gone.under_way) {
            Some(under_way) => match under_way.outcome.await {
                Ok(Err(error)) => error.to_string(),
                _ => "the transaction broke off".to_owned(),
            },
            None => "the transaction is over".to_owned(),
        }
    }

    /// Ends a transaction as the peer says.
    async fn end(&self, request: &Request<Incoming>, id: &str) -> Answer {
        let query = request.uri().query().unwrap_or_default();
        let value = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.to_owned())
        };
        let code = value("responseCode")
            .and_then(|code| code.parse().ok())
            .and_then(Code::of);
        let gone = self.transactions.lock().remove(id);
        let under_way = gone.and_then(|gone| gone.under_way);
        let is_confirmed = code == Some(Code::Confirm);
        let Some(under_way) = under_way else {
            return match is_confirmed {
                true => told(400, Code::Abort, "nothing was sent that could be confirmed"),
                false => told(200, Code::Cancel, "nothing was sent"),
            };
        };
        let decision = match is_confirmed {
            true => Decision::Confirm(value("checksum")),
            false => Decision::Cancel,
        };
        if under_way.decide.send(decision).is_err() && is_confirmed {
            return told(
                400,
                Code::Abort,
                "the transaction was given up: it took too long",
            );
        }
        match (under_way.outcome.await, is_confirmed) {
            (Ok(Ok(End::Finished)), true) => told(200, Code::Finished, "done"),
            (Ok(Ok(End::FinishedButFull)), true) => told(200, Code::FinishedButFull, "done"),
            (Ok(Err(error)), true) => told(400, Code::BadChecksum, &error.to_string()),
            _ => told(200, Code::Cancel, "as if it never was"),
        }
    }
}

impl Transaction {
    fn phase(&self) -> Phase {
        match &self.under_way {
            None => Phase::Begun,
            Some(under_way) if under_way.outcome.is_empty() => Phase::UnderWay,
            Some(_) => Phase::Over,
        }
    }
}

impl Phase {
    /// How long after its beginning a transaction is kept at most.
    fn kept_for(self) -> Duration {
        match self {
            // Its peer was told how long; it comes again with another one.
            Phase::Begun => DECISION_WAIT,
            Phase::UnderWay => FORGOTTEN_AFTER,
            // It was given up, and whoever asks now hears so.
            Phase::Over => Duration::ZERO,
        }
    }
}

impl Play {
    /// The raw protocol's other end, with the port at its own.
    fn lend(&self) -> io::Result<(Wire<UnixStream>, Receiver<Wire<Stream>>)> {
        let (ours, theirs) = UnixStream::pair()?;
        for end in [&ours, &theirs] {
            end.set_read_timeout(Some(STOP_LOOK))?;
            end.set_write_timeout(Some(PORT_WAIT))?;
        }
        let theirs = Wire::new(Stream::Local(theirs), PEER_WAIT, || false);
        let returned = self.port.lend(theirs, false, self.batch, &self.peer)?;
        Ok((Wire::new(ours, PORT_WAIT, || false), returned))
    }

    /// Sends the packets of a body to the port.
    fn take(self, mut body: PieceReader, checked: oneshot::Sender<u32>) -> io::Result<End> {
        let (mut wire, _returned) = self.lend()?;
        let mut sending = Sending::new(&mut wire, false);
        let mut crc = Crc::new();
        let mut count = 0_u64;
        while body.has_more()? {
            count += 1;
            take_packet(&mut body, self.is_packed, &mut crc, |head, mut content| {
                let pairs = head
                    .attributes
                    .iter()
                    .map(|(n, v)| (n.as_str(), v.as_str()));
                sending.push(pairs, &mut content, head.size)
            })?;
        }
        if count == 0 {
            return Err(invalid("there is no FlowFile"));
        }
        sending.check()?;
        if checked.send(crc.sum()).is_err() {
            return Err(invalid("the peer has gone"));
        }
        match self.decided.recv_timeout(DECISION_WAIT) {
            Ok(Decision::Confirm(_)) => sending.confirm(),
            // Without a word the port takes all of it back.
            _ => Err(invalid("the peer did not confirm it")),
        }
    }

    /// Receives packets from the port for a body.
    fn give(self, mut body: PieceWriter, found: oneshot::Sender<bool>) -> io::Result<End> {
        let nothing_more = |found: oneshot::Sender<bool>| match found.send(false) {
            Ok(()) => Ok(End::Finished),
            Err(_) => Err(invalid("the peer has gone")),
        };
        if !(self.port.is_ready)() {
            return nothing_more(found);
        }
        let (mut wire, _returned) = self.lend()?;
        if read_response(&mut wire)?.code != Code::MoreData {
            return nothing_more(found);
        }
        if found.send(true).is_err() {
            return Err(invalid("the peer has gone"));
        }
        let mut receiving = Receiving::new(&mut wire, false);
        let mut crc = Crc::new();
        let mut send = || -> io::Result<()> {
            while receiving.goes_on()? {
                receiving.packet(|head, mut content| {
                    let pairs = head
                        .attributes
                        .iter()
                        .map(|(n, v)| (n.as_str(), v.as_str()));
                    put_packet(
                        &mut body,
                        self.is_packed,
                        &mut crc,
                        pairs,
                        &mut content,
                        head.size,
                    )
                })?;
            }
            io::Write::flush(&mut body)
        };
        if let Err(error) = send() {
            // A body that only stops would look whole.
            body.break_off();
            return Err(error);
        }
        drop(body);
        match self.decided.recv_timeout(DECISION_WAIT) {
            Ok(Decision::Confirm(Some(told))) if told == crc.sum().to_string() => {}
            Ok(Decision::Confirm(_)) => return Err(invalid("the checksums differ")),
            _ => return Err(invalid("the peer did not confirm it")),
        }
        receiving.confirm()?;
        receiving.finish(End::Finished)?;
        Ok(End::Finished)
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = std::thread::Builder::new().name("s2s-http".to_owned());
    builder.stack_size(STACK_BYTES).spawn(work).map(drop)
}

fn is_input(kind: &str) -> Option<bool> {
    match kind {
        "input-ports" => Some(true),
        "output-ports" => Some(false),
        _ => None,
    }
}

fn nothing() -> Answer {
    told(
        404,
        Code::Abort,
        "there is nothing; is the transaction over?",
    )
}

/// An answer in NiFi's shape.
fn told(status: u16, code: Code, message: &str) -> Answer {
    let told = json!({ "responseCode": code as u8, "message": message, "flowFileSent": 0 });
    let mut told = answer(status, Bytes::from(told.to_string()));
    let json = HeaderValue::from_static("application/json");
    told.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    told
}

/// How long a peer has to say what becomes of a transaction, and the same in its words.
const DECISION_WAIT: Duration = Duration::from_secs(25);
const TTL_SECONDS: &str = "25";

/// What the port waits for in all: longer than the peer has.
const PEER_WAIT: Duration = Duration::from_secs(40);

/// Longest wait for a port that others keep busy.
const PORT_WAIT: Duration = Duration::from_secs(120);

/// Transactions that one host may have begun: the others' share is not its own.
const OF_PEER_MAX: usize = S2S_CONNECTIONS_MAX / 2;

/// A transaction under way is forgotten after this.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Pieces of a body that wait for the port.
const PIECES_AHEAD: usize = 4;

/// Stack of a thread that only passes on.
const STACK_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_kept_as_long_as_its_peer_was_told_unless_it_is_under_way() {
        let told = Duration::from_secs(TTL_SECONDS.parse().unwrap());
        assert_eq!(Phase::Begun.kept_for(), told);
        assert!(Phase::UnderWay.kept_for() > 10 * told);
        assert!(Phase::Over.kept_for().is_zero());
    }
}
