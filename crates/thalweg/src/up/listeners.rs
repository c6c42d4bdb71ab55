//! The ports of `thalweg up`: opened before anything else, loopback unless callers are known there.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::Role;
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
        let mut endpoints = Endpoints::default();
        let guard = |role| (roles.contains(&role), config.access.allow_remote);
        // A cluster's clients go to the cluster.
        let is_here = config.streams.kafka.servers().is_none();
        let runs_streams = roles.contains(&Role::Streams) && is_here;
        let known = config.access.allow_remote || config.streams.knows_every_client();
        let local = config.streams.local_listen.as_deref();
        Ok(Listeners {
            streams: optional(
                (runs_streams, known),
                "streams",
                &config.streams.listen,
                &mut endpoints,
            )
            .await?,
            streams_local: optional(
                (runs_streams && local.is_some(), config.access.allow_remote),
                "streams.local",
                local.unwrap_or_default(),
                &mut endpoints,
            )
            .await?,
            rest: optional(
                (
                    roles.contains(&Role::Rest),
                    config.access.allow_remote || config.knows_callers_of(&config.rest.http),
                ),
                "rest",
                &config.rest.listen,
                &mut endpoints,
            )
            .await?,
            schemas: optional(
                (
                    roles.contains(&Role::Schemas),
                    config.access.allow_remote || config.knows_callers_of(&config.schemas.http),
                ),
                "schemas",
                &config.schemas.listen,
                &mut endpoints,
            )
            .await?,
            mqtt: mqtt_listeners(config, guard(Role::Mqtt), &mut endpoints).await?,
            management: management(config, roles, &mut endpoints).await?,
            endpoints,
        })
    }
}

/// The ports of the MQTT role.
async fn mqtt_listeners(
    config: &Config,
    (wanted, allow_remote): (bool, bool),
    endpoints: &mut Endpoints,
) -> Result<MqttListeners, Failure> {
    let mqtt = &config.mqtt;
    let tcp = optional((wanted, allow_remote), "mqtt", &mqtt.listen, endpoints).await?;
    let mut further = Vec::new();
    for (name, address, is_tls) in further_listeners(mqtt) {
        let known = allow_remote || mqtt.knows_every_client(is_tls);
        let wanted = wanted && address.is_some();
        further.push(
            optional(
                (wanted, known),
                name,
                address.unwrap_or_default(),
                endpoints,
            )
            .await?,
        );
    }
    let mut further = further.into_iter();
    let mut next = || further.next().flatten();
    Ok(MqttListeners {
        tcp,
        tls: next(),
        ws: next(),
        wss: next(),
    })
}

/// The port of health, metrics and the roles' management APIs, whatever the roles; agents find the
/// C2 server there too where that role runs, and only then does the port go by its name as well.
async fn management(
    config: &Config,
    roles: &BTreeSet<Role>,
    endpoints: &mut Endpoints,
) -> Result<TcpListener, Failure> {
    let known = config.access.allow_remote || config.knows_callers_of_management();
    let listener = listen(known, MANAGEMENT, &config.fleet.listen, endpoints).await?;
    if let (true, Some(bound)) = (roles.contains(&Role::Fleet), endpoints.get(MANAGEMENT)) {
        endpoints.insert("fleet", bound);
    }
    Ok(listener)
}

async fn optional(
    (wanted, allow_remote): (bool, bool),
    role: &str,
    address: &str,
    endpoints: &mut Endpoints,
) -> Result<Option<TcpListener>, Failure> {
    if !wanted {
        return Ok(None);
    }
    listen(allow_remote, role, address, endpoints)
        .await
        .map(Some)
}

async fn listen(
    allow_remote: bool,
    role: &str,
    address: &str,
    endpoints: &mut Endpoints,
) -> Result<TcpListener, Failure> {
    let key = match role {
        "streams.local" => "streams.local_listen".to_owned(),
        MANAGEMENT => "fleet.listen".to_owned(),
        role if listen_key(role).is_some() => listen_key(role).unwrap_or_default().to_owned(),
        role => format!("{role}.listen"),
    };
    let parsed: SocketAddr = address.parse().map_err(|_| {
        Failure(format!(
            "{key} = '{address}' is no address; write it as 127.0.0.1:9092"
        ))
    })?;
    if !parsed.ip().is_loopback() && !allow_remote {
        return Err(Failure(format!(
            "{key} = {address} is open beyond this machine, and not everybody is asked there who they \
             are; if the network is trusted, add --set access.allow_remote=true"
        )));
    }
    let listener = TcpListener::bind(parsed).await.map_err(|error| {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            Failure(format!(
                "port {} is taken by another program; stop it, or choose another with \
                 --set {key}={}:PORT (port 0 picks a free one)",
                parsed.port(),
                parsed.ip(),
            ))
        } else {
            Failure::because(&format!("cannot listen on {key} = {address}"), &error)
        }
    })?;
    let bound = listener
        .local_addr()
        .map_err(|error| Failure::because(&format!("cannot listen on {key}"), &error))?;
    endpoints.insert(role, bound);
    Ok(listener)
}

/// The name under which the port of health, metrics and management APIs is listed.
const MANAGEMENT: &str = "management";
