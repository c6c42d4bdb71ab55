//! The ports of `thalweg up`: opened before anything else, loopback unless callers are known there.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::{Role, lines};
use crate::cli::Failure;
use crate::config::Config;
use crate::endpoints::Endpoints;
use crate::mqtt_role::{MqttListeners, further_listeners, listen_key};

/// The open ports, before anything serves them.
pub(super) struct Listeners {
    pub(super) streams: Option<TcpListener>,
    pub(super) streams_local: Option<TcpListener>,
    pub(super) rest: Option<TcpListener>,
    pub(super) schemas: Option<TcpListener>,
    pub(super) mqtt: MqttListeners,
    pub(super) management: TcpListener,
    pub(super) endpoints: Endpoints,
}

impl Listeners {
    pub(super) async fn open(config: &Config, roles: &BTreeSet<Role>) -> Result<Self, Failure> {
        let mut ports = Opening::default();
        let remote = config.access.allow_remote;
        let runs = |role| roles.contains(&role);
        // A cluster's clients go to the cluster.
        let is_here = config.streams.kafka.servers().is_none();
        let runs_streams = runs(Role::Streams) && is_here;
        let known = remote || config.streams.knows_every_client();
        let address = &config.streams.listen;
        let streams = ports.optional((runs_streams, known), "streams", address);
        let streams = streams.await;
        let local = config.streams.local_listen.as_deref();
        let streams_local = ports.optional(
            (runs_streams && local.is_some(), remote),
            "streams.local",
            local.unwrap_or_default(),
        );
        let streams_local = streams_local.await;
        let known = remote || config.knows_callers_of(&config.rest.http);
        let rest = ports.optional((runs(Role::Rest), known), "rest", &config.rest.listen);
        let rest = rest.await;
        let known = remote || config.knows_callers_of(&config.schemas.http);
        let address = &config.schemas.listen;
        let schemas = ports.optional((runs(Role::Schemas), known), "schemas", address);
        let schemas = schemas.await;
        let mqtt = mqtt_listeners(config, (runs(Role::Mqtt), remote), &mut ports).await;
        let management = management(config, roles, &mut ports).await;
        let (endpoints, mut problems) = (ports.endpoints, ports.problems);
        match (management, problems.len()) {
            (Some(management), 0) => Ok(Listeners {
                streams,
                streams_local,
                rest,
                schemas,
                mqtt,
                management,
                endpoints,
            }),
            (_, 1) => Err(Failure(problems.remove(0))),
            _ => Err(Failure(lines("some ports cannot be opened", &problems))),
        }
    }
}

/// The ports of the MQTT role.
async fn mqtt_listeners(
    config: &Config,
    (wanted, allow_remote): (bool, bool),
    ports: &mut Opening,
) -> MqttListeners {
    let mqtt = &config.mqtt;
    let tcp = ports.optional((wanted, allow_remote), "mqtt", &mqtt.listen);
    let tcp = tcp.await;
    let mut further = Vec::new();
    for (name, address, is_tls) in further_listeners(mqtt) {
        let known = allow_remote || mqtt.knows_every_client(is_tls);
        let wanted = wanted && address.is_some();
        let opened = ports.optional((wanted, known), name, address.unwrap_or_default());
        further.push(opened.await);
    }
    let mut further = further.into_iter();
    let mut next = || further.next().flatten();
    MqttListeners {
        tcp,
        tls: next(),
        ws: next(),
        wss: next(),
    }
}

/// The port of health, metrics and the roles' management APIs, whatever the roles; agents find the
/// C2 server there too where that role runs, and only then does the port go by its name as well.
async fn management(
    config: &Config,
    roles: &BTreeSet<Role>,
    ports: &mut Opening,
) -> Option<TcpListener> {
    let known = config.access.allow_remote || config.knows_callers_of_management();
    let listener = ports.optional((true, known), MANAGEMENT, &config.fleet.listen);
    let listener = listener.await;
    if let (true, Some(bound)) = (
        roles.contains(&Role::Fleet),
        ports.endpoints.get(MANAGEMENT),
    ) {
        ports.endpoints.insert("fleet", bound);
    }
    listener
}

/// Opens ports one after the other; all that cannot be opened are told together.
#[derive(Default)]
struct Opening {
    endpoints: Endpoints,
    problems: Vec<String>,
}

impl Opening {
    /// Opens a port that is wanted.
    async fn optional(
        &mut self,
        (wanted, allow_remote): (bool, bool),
        role: &str,
        address: &str,
    ) -> Option<TcpListener> {
        if !wanted {
            return None;
        }
        match listen(allow_remote, role, address).await {
            Ok((listener, bound)) => {
                self.endpoints.insert(role, bound);
                Some(listener)
            }
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }
}

async fn listen(
    allow_remote: bool,
    role: &str,
    address: &str,
) -> Result<(TcpListener, SocketAddr), String> {
    let key = match role {
        "streams.local" => "streams.local_listen".to_owned(),
        MANAGEMENT => "fleet.listen".to_owned(),
        role if listen_key(role).is_some() => listen_key(role).unwrap_or_default().to_owned(),
        role => format!("{role}.listen"),
    };
    let parsed: SocketAddr = address
        .parse()
        .map_err(|_| format!("{key} = '{address}' is no address; write it as 127.0.0.1:9092"))?;
    if !parsed.ip().is_loopback() && !allow_remote {
        return Err(format!(
            "{key} = {address} is open beyond this machine, and not everybody is asked there who they \
             are; if the network is trusted, add --set access.allow_remote=true"
        ));
    }
    let listener = TcpListener::bind(parsed).await.map_err(|error| {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            format!(
                "port {} is taken by another program; stop it, or choose another with \
                 --set {key}={}:PORT (port 0 picks a free one)",
                parsed.port(),
                parsed.ip(),
            )
        } else {
            format!("cannot listen on {key} = {address}: {error}")
        }
    })?;
    let bound = listener
        .local_addr()
        .map_err(|error| format!("cannot listen on {key}: {error}"))?;
    Ok((listener, bound))
}

/// The name under which the port of health, metrics and management APIs is listed.
const MANAGEMENT: &str = "management";
