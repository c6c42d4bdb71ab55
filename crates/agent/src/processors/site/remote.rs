//! Ports of a remote process group: the agent calls the remote, a NiFi or another agent.
//!
//! | port of the remote | here | once |
//! | --- | --- | --- |
//! | input port | FlowFiles are sent | they leave when the remote said that it has them |
//! | output port | FlowFiles are received | the remote forgets them when they are durable here |

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use serde_json::Value;

use super::common::{BATCH_COUNT, receive, receive_http, send, send_http};
use super::http::Transaction;
use crate::definition::remote::{INPUT_PORT, OUTPUT_PORT, properties as names};
use crate::engine::Context;
use crate::net::http_client::{self, ClientSettings};
use crate::net::limits::{S2S_BATCH_BYTES_MAX, S2S_DETAILS_BYTES_MAX};
use crate::net::socket::Socket;
use crate::net::{STOP_LOOK, run_until_stop, tls};
use crate::processors::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::s2s::Request;
use crate::s2s::client::{PortRequest, Refused, greet, has_data, send_request};
use crate::s2s::transaction::End;
use crate::s2s::wire::Wire;
use crate::services::{ProxyConfiguration, ProxyType, SslContext};
use crate::session::ProcessSession;

/// What sends to an input port of a remote.
pub(in crate::processors) const INPUT: ProcessorKind = ProcessorKind {
    name: INPUT_PORT,
    description: "Sends FlowFiles to an input port of a NiFi or another agent by site-to-site.",
    properties: PROPERTIES,
    dynamic: Dynamic::None,
    relationships: &[],
    writes: &[],
    input: Input::Required,
    make: |settings| Ok(Box::new(RemoteInput(Remote::new(settings)?))),
};

/// What receives from an output port of a remote.
pub(in crate::processors) const OUTPUT: ProcessorKind = ProcessorKind {
    name: OUTPUT_PORT,
    description: "Receives FlowFiles from an output port of a NiFi or another agent by \
                  site-to-site.",
    properties: PROPERTIES,
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "FlowFiles that came.",
    }],
    writes: &[],
    input: Input::Forbidden,
    make: |settings| Ok(Box::new(RemoteOutput(Remote::new(settings)?))),
};

const PROPERTIES: &[PropertyKind] = &[
    PropertyKind::new(
        names::URL,
        "Addresses of the remote with commas between them.",
    )
    .expressions(Expressions::Once),
    PropertyKind::new(names::PORT_ID, "What the remote knows the port by.").required(),
    PropertyKind::new(
        names::PORT_NAME,
        "The port's name, where the remote knows no such id.",
    ),
    PropertyKind::new(names::TRANSPORT_PROTOCOL, "How the remote is spoken to.")
        .default("RAW")
        .allowed(&["RAW", "HTTP"]),
    PropertyKind::new(names::TIMEOUT, "Longest silence of the remote.")
        .default("30 sec")
        .shape(Shape::Duration),
    PropertyKind::new(names::LOCAL_INTERFACE, "Not supported: leave it empty."),
    PropertyKind::new(
        names::PROXY_HOST,
        "Host of an HTTP proxy, for the question about ports.",
    ),
    PropertyKind::new(names::PROXY_PORT, "Port of the proxy."),
    PropertyKind::new(names::PROXY_USER, "User at the proxy."),
    PropertyKind::new(names::PROXY_PASSWORD, "The user's password.").sensitive(),
    PropertyKind::new(
        names::USE_COMPRESSION,
        "Whether content is packed on its way.",
    )
    .default("false")
    .shape(Shape::Flag),
    PropertyKind::new(names::BATCH_COUNT, "FlowFiles of one transaction.").shape(Shape::Integer(1)),
    PropertyKind::new(names::BATCH_SIZE, "Bytes of one transaction.").shape(Shape::Size),
    PropertyKind::new(names::BATCH_DURATION, "Longest time of one transaction.")
        .shape(Shape::Duration),
    PropertyKind::new(
        names::HOST_NAME,
        "The remote's host; with Port instead of URL.",
    )
    .expressions(Expressions::Once),
    PropertyKind::new(names::PORT, "The remote's raw socket.").expressions(Expressions::Once),
    PropertyKind::new(
        names::SSL_CONTEXT_SERVICE,
        "The agent's certificate and authorities.",
    )
    .shape(Shape::Service("SSLContextService")),
];

struct RemoteInput(Remote);

struct RemoteOutput(Remote);

/// A port of a remote and the connection to it.
struct Remote {
    urls: Vec<String>,
    /// Host and port, where the flow says them.
    address: Option<String>,
    port_name: String,
    request: PortRequest,
    tls: Option<Arc<ClientConfig>>,
    client: reqwest::Client,
    wait: Duration,
    count: usize,
    bytes: u64,
    is_http: bool,
    /// Whether the remote was asked by which id it knows the port.
    is_known: bool,
    wire: Option<Wire<Socket>>,
}

impl Remote {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        if settings.text(names::LOCAL_INTERFACE)?.is_some() {
            return Err(format!(
                "{}: not supported; leave it empty",
                names::LOCAL_INTERFACE
            ));
        }
        let host = settings.text(names::HOST_NAME)?;
        let port = settings.text(names::PORT)?;
        let address = match (host, port) {
            (Some(host), Some(port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => {
                Some(format!("{host}:{port}"))
            }
            (_, Some(port)) if port.parse::<u16>().is_err() => {
                return Err(format!("{}: '{port}' is no port", names::PORT));
            }
            _ => None,
        };
        let urls = settings.text(names::URL)?.unwrap_or_default();
        let urls: Vec<String> = urls
            .split(',')
            .map(|url| url.trim().to_owned())
            .filter(|url| !url.is_empty())
            .collect();
        if urls.is_empty() && address.is_none() {
            return Err("write the remote's url, or Host Name and Port".to_owned());
        }
        let context = settings.service::<SslContext>(names::SSL_CONTEXT_SERVICE)?;
        let tls = context
            .map(|context| tls::client(Some(&context), true))
            .transpose()?;
        let wait = settings.duration(names::TIMEOUT)?;
        let client = http_client::client(&ClientSettings {
            connect_wait: wait,
            tls: tls.clone(),
            proxy: proxy(settings)?,
            follows_redirects: true,
        })?;
        let set = |name: &str| Ok::<bool, String>(settings.text(name)?.is_some());
        let count = if set(names::BATCH_COUNT)? {
            settings.integer(names::BATCH_COUNT)?
        } else {
            0
        };
        let bytes = if set(names::BATCH_SIZE)? {
            settings.size(names::BATCH_SIZE)?
        } else {
            0
        };
        let millis = match set(names::BATCH_DURATION)? {
            true => settings.duration(names::BATCH_DURATION)?.as_millis() as u64,
            false => 0,
        };
        Ok(Remote {
            request: PortRequest {
                url: urls.first().cloned().unwrap_or_default(),
                port_id: settings.needed(names::PORT_ID)?,
                is_packed: settings.flag(names::USE_COMPRESSION)?,
                expiration: wait,
                batch: (count, bytes, millis),
            },
            is_http: settings.needed(names::TRANSPORT_PROTOCOL)? == "HTTP",
            urls,
            address,
            port_name: settings.text(names::PORT_NAME)?.unwrap_or_default(),
            tls,
            client,
            wait,
            count: usize::try_from(if count == 0 { BATCH_COUNT } else { count })
                .unwrap_or(usize::MAX),
            bytes: if bytes == 0 {
                S2S_BATCH_BYTES_MAX
            } else {
                bytes.min(S2S_BATCH_BYTES_MAX)
            },
            is_known: false,
            wire: None,
        })
    }

    /// The remote, for messages.
    fn name(&self) -> String {
        let place = self.address.as_ref().or(self.urls.first());
        format!(
            "port {} of {}",
            self.request.port_id,
            place.map_or("", String::as_str)
        )
    }

    /// The connection, made and greeted where there is none.
    fn wire(&mut self, context: &Context) -> Result<&mut Wire<Socket>, ProcessorError> {
        // A remote that heard nothing for a while has closed it.
        let is_closed = |wire: &Wire<Socket>| wire.stream().is_closed();
        if self.wire.as_ref().is_none_or(is_closed) {
            self.wire = None;
            let name = self.name();
            let failed = |reason: String| ProcessorError::Failed(format!("{name}: {reason}"));
            let (address, is_secure) = self.place(context).map_err(failed)?;
            let tls = match (is_secure, &self.tls) {
                (false, _) => None,
                (true, Some(tls)) => Some(Arc::clone(tls)),
                (true, None) => Some(tls::client(None, true).map_err(failed)?),
            };
            let wait = self.wait;
            let socket = Socket::connect(&address, tls.as_ref(), wait, STOP_LOOK, wait);
            let socket = socket.map_err(|error| failed(format!("{address}: {error}")))?;
            let mut wire = Wire::new(socket, wait, context.stop_look());
            let mut request = self.request.clone();
            if request.url.is_empty() {
                request.url = format!("nifi://{address}");
            }
            match greet(&mut wire, &request) {
                Ok(()) => {}
                Err(Refused::Full) => return Err(failed("it takes no more for now".to_owned())),
                Err(Refused::Broken(error)) => return Err(failed(error.to_string())),
            }
            self.wire = Some(wire);
        }
        self.wire
            .as_mut()
            .ok_or_else(|| ProcessorError::Failed("not connected".to_owned()))
    }

    /// Where the remote's raw socket is, and whether it is TLS.
    fn place(&mut self, context: &Context) -> Result<(String, bool), String> {
        if let Some(address) = &self.address {
            return Ok((address.clone(), self.tls.is_some()));
        }
        let mut last = String::new();
        for url in self.urls.clone() {
            let asking = details(&self.client, &url, self.wait);
            let details = match run_until_stop(context, asking) {
                Some(Ok(details)) => details,
                Some(Err(reason)) => {
                    last = reason;
                    continue;
                }
                None => return Err("stopped".to_owned()),
            };
            let controller = &details["controller"];
            let Some(port) = controller["remoteSiteListeningPort"].as_u64() else {
                last = format!("{url} has no raw site-to-site port: set it there");
                continue;
            };
            if let Some(id) = self.known_id(controller) {
                self.request.port_id = id;
            }
            let host = host_of(&url)?;
            self.request.url = url;
            let is_secure = controller["siteToSiteSecure"].as_bool().unwrap_or(false);
            return Ok((format!("{host}:{port}"), is_secure));
        }
        Err(last)
    }

    /// The id by which the remote knows the port of our name, where it knows none of our id.
    fn known_id(&self, controller: &Value) -> Option<String> {
        let lists = [&controller["inputPorts"], &controller["outputPorts"]];
        let ports = || lists.iter().filter_map(|list| list.as_array()).flatten();
        if ports().any(|port| port["id"].as_str() == Some(&self.request.port_id)) {
            return None;
        }
        let mut named = ports().filter(|port| port["name"].as_str() == Some(&self.port_name));
        named.next()?["id"].as_str().map(str::to_owned)
    }

    /// A new transaction over HTTP, with the first of the remote's addresses that answers.
    fn transaction(
        &mut self,
        context: &Context,
        is_input: bool,
    ) -> Result<Transaction, ProcessorError> {
        let mut last = ProcessorError::Failed("HTTP needs the remote's url".to_owned());
        for url in self.urls.clone() {
            let name = self.name();
            let failed = |reason: String| ProcessorError::Failed(format!("{name}: {reason}"));
            let asking = details(&self.client, &url, self.wait);
            if !self.is_known {
                match run_until_stop(context, asking) {
                    Some(Ok(details)) => {
                        if let Some(id) = self.known_id(&details["controller"]) {
                            self.request.port_id = id;
                        }
                        self.is_known = true;
                    }
                    Some(Err(reason)) => {
                        last = failed(reason);
                        continue;
                    }
                    None => return Err(failed("stopped".to_owned())),
                }
            }
            let api = api_of(&url).map_err(failed)?;
            let runtime = context.runtime();
            match Transaction::begin(&self.client, runtime, &api, is_input, &self.request) {
                Ok(transaction) => return Ok(transaction),
                Err(broken) => last = broken.into_error(&name),
            }
        }
        Err(last)
    }

    fn send_over_http(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let transaction = self.transaction(context, true)?;
        let flow_files = session.take(self.count, self.bytes);
        if flow_files.is_empty() {
            return Ok(Next::Scheduled);
        }
        let (is_packed, url) = (self.request.is_packed, self.request.url.clone());
        match send_http(session, &transaction, is_packed, flow_files, &url) {
            Ok(End::Finished) => Ok(Next::Scheduled),
            Ok(End::FinishedButFull) => Ok(Next::Yield),
            Err(broken) => Err(broken.into_error(&self.name())),
        }
    }

    fn receive_over_http(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let transaction = self.transaction(context, false)?;
        let (is_packed, url) = (self.request.is_packed, self.request.url.clone());
        match receive_http(session, &transaction, is_packed, &url) {
            Ok(true) => Ok(Next::Again),
            Ok(false) => Ok(Next::Woken(LOOK_EACH)),
            Err(broken) => Err(broken.into_error(&self.name())),
        }
    }

    fn close(&mut self) {
        if let Some(mut wire) = self.wire.take() {
            use std::io::Write;
            let said = send_request(&mut wire, Request::Shutdown).and_then(|()| wire.flush());
            if let Err(error) = said {
                tracing::debug!(%error, "no goodbye");
            }
        }
    }
}

impl Processor for RemoteInput {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let remote = &mut self.0;
        if remote.is_http {
            return remote.send_over_http(context, session);
        }
        // Before anything is taken, so that a remote that is away holds nothing.
        remote.wire(context)?;
        let flow_files = session.take(remote.count, remote.bytes);
        if flow_files.is_empty() {
            return Ok(Next::Scheduled);
        }
        let (name, is_packed) = (remote.name(), remote.request.is_packed);
        let url = remote.request.url.clone();
        let wire = remote.wire(context)?;
        let begun = send_request(wire, Request::Send).map_err(super::common::Broken::Line);
        let sent = begun.and_then(|()| send(session, wire, is_packed, flow_files, &url));
        match sent {
            Ok(End::Finished) => Ok(Next::Scheduled),
            Ok(End::FinishedButFull) => {
                remote.close();
                Ok(Next::Yield)
            }
            Err(broken) => {
                remote.wire = None;
                Err(broken.into_error(&name))
            }
        }
    }

    fn stop(&mut self) {
        self.0.close();
    }
}

impl Processor for RemoteOutput {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let remote = &mut self.0;
        if remote.is_http {
            return remote.receive_over_http(context, session);
        }
        let (name, is_packed) = (remote.name(), remote.request.is_packed);
        let url = remote.request.url.clone();
        let wire = remote.wire(context)?;
        let received = match has_data(wire) {
            Ok(false) => return Ok(Next::Woken(LOOK_EACH)),
            Ok(true) => receive(session, wire, is_packed, &url).and_then(|receiving| {
                receiving
                    .finish(End::Finished)
                    .map_err(super::common::Broken::Line)
            }),
            Err(error) => Err(error.into()),
        };
        match received {
            Ok(()) => Ok(Next::Again),
            Err(broken) => {
                remote.wire = None;
                Err(broken.into_error(&name))
            }
        }
    }

    fn stop(&mut self) {
        self.0.close();
    }
}

/// What a NiFi tells of its ports and sockets.
async fn details(client: &reqwest::Client, url: &str, wait: Duration) -> Result<Value, String> {
    let mut asked = api_of(url)?;
    let path = format!("{}/site-to-site", asked.path());
    asked.set_path(&path);
    let asking = async {
        let mut answer = client.get(asked).send().await?.error_for_status()?;
        let mut text = Vec::new();
        while let Some(piece) = answer.chunk().await? {
            text.extend_from_slice(&piece);
            if text.len() > S2S_DETAILS_BYTES_MAX {
                break;
            }
        }
        Ok::<_, reqwest::Error>(text)
    };
    let text = tokio::time::timeout(wait, asking).await;
    let text = text.map_err(|_| format!("no answer of {url}"))?;
    let text = text.map_err(|error| format!("{url}: {}", base::report(&error.without_url())))?;
    serde_json::from_slice(&text).map_err(|_| format!("{url} answers something else than a NiFi"))
}

/// How often a remote that has nothing is asked again.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// The address of a remote's interface, of the one that people open.
fn api_of(url: &str) -> Result<reqwest::Url, String> {
    let mut parsed: reqwest::Url = url
        .parse()
        .map_err(|error| format!("'{url}' is no URL: {error}"))?;
    let path = parsed.path().trim_end_matches('/').to_owned();
    let folder = path
        .strip_suffix("/nifi")
        .or_else(|| path.strip_suffix("/nifi-api"));
    parsed.set_path(&format!("{}/nifi-api", folder.unwrap_or(&path)));
    Ok(parsed)
}

fn host_of(url: &str) -> Result<String, String> {
    let parsed: reqwest::Url = url
        .parse()
        .map_err(|error| format!("'{url}' is no URL: {error}"))?;
    parsed
        .host_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("'{url}' names no host"))
}

fn proxy(settings: &Settings<'_>) -> Result<Option<Arc<ProxyConfiguration>>, String> {
    let Some(host) = settings.text(names::PROXY_HOST)? else {
        return Ok(None);
    };
    let port = match settings.text(names::PROXY_PORT)? {
        Some(_) => settings.integer(names::PROXY_PORT)?,
        None => 8080,
    };
    let user = settings.text(names::PROXY_USER)?;
    let password = settings.text(names::PROXY_PASSWORD)?.unwrap_or_default();
    Ok(Some(Arc::new(ProxyConfiguration {
        kind: ProxyType::Http,
        host,
        port,
        user: user.map(|user| (user, password)),
    })))
}
