//! `thalweg up`: opens the stores, starts the chosen roles, says what listens where, and stops
//! everything in the opposite order.
//!
//! Ports are opened first, so that a taken one is told before anything is touched; they are served
//! only after every store was recovered.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use base::{Clock, SystemClock};
use clap::ValueEnum;
use rustix::process::{Resource, getrlimit, setrlimit};
use streams::EventStore;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::Failure;
use crate::config::{self, Config};
use crate::demo;
use crate::endpoints::{DEFAULT_FOLDER, Endpoints};
use crate::folder::DataFolder;
use crate::forward;
use crate::http::{self, Ports, Process};
use crate::mqtt_role::{MqttListeners, MqttRole, further_listeners, listen_key};
use crate::telemetry;

/// Runs the roles in one process; everything they keep lies under one folder.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Folder that holds all data.
    #[arg(long, value_name = "DIR", env = "THALWEG_DATA", default_value = DEFAULT_FOLDER)]
    data: PathBuf,
    /// Configuration file (TOML); `thalweg config` prints every key with its default.
    #[arg(long, value_name = "FILE", env = "THALWEG_CONFIG")]
    config: Option<PathBuf>,
    /// Only these roles, separated by commas; all of them if not given.
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',')]
    roles: Vec<Role>,
    /// Overrides one configuration key, such as streams.listen=127.0.0.1:0.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Also runs an agent that feeds the line with this machine's own log and figures.
    #[arg(long)]
    demo: bool,
}

/// A part of the process that can run on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Role {
    /// The event store and its Kafka listener.
    Streams,
    /// The Kafka REST proxy.
    Rest,
    /// The schema registry.
    Schemas,
    /// The MQTT server.
    Mqtt,
    /// Statements over streams and MQTT.
    Fusion,
    /// The C2 server for agents.
    Fleet,
    /// Bulk imports.
    Imports,
}

/// Runs until told to stop.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let config = config::load(args.config.as_deref(), std::env::vars(), &args.settings)
        .map_err(|problems| Failure(lines("the configuration cannot be used", &problems)))?;
    let roles = chosen(&args.roles, config.streams.kafka.servers().is_some())?;
    let folder =
        DataFolder::lock(&args.data).map_err(|error| Failure::because("cannot start", &error))?;
    telemetry::start_logs(&config.log, folder.path())
        .map_err(|error| Failure::because("cannot start logging", &error))?;
    raise_handles();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::because("cannot start", &error))?;
    let ended = runtime.block_on(serve(&folder, config, &roles, args.demo, began));
    Endpoints::remove(folder.path());
    // A task that a peer keeps waiting must not keep the process: everything durable is closed.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    ended.map(|()| ExitCode::SUCCESS)
}

/// Lets the process open as many files as the system allows it to: a connection is one, and the
/// usual soft limit of 1,024 is for programs that cannot count further.
fn raise_handles() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

async fn serve(
    folder: &DataFolder,
    config: Config,
    roles: &BTreeSet<Role>,
    with_demo: bool,
    began: Instant,
) -> Result<(), Failure> {
    let metrics = telemetry::start_metrics()
        .map_err(|error| Failure::because("cannot start metrics", &error))?;
    tokio::spawn(telemetry::keep_small(metrics.clone()));
    let listeners = Listeners::open(&config, roles).await?;
    let endpoints = listeners.endpoints.clone();
    let parts = Parts::open(folder.path(), &config, roles).await?;
    let shutdown = CancellationToken::new();
    let tasks = TaskTracker::new();
    let process = Arc::new(Process {
        endpoints: endpoints.clone(),
        started: Instant::now(),
        metrics,
        mqtt: parts.mqtt.as_ref().map(|role| role.server.clone()),
        bridges: parts.mqtt.as_ref().map(|role| role.bridges.clone()),
        fleet: parts.fleet.clone(),
        fusion: parts.fusion.as_ref().map(|node| node.fusion().clone()),
        streams: parts.streams.clone(),
        tls: parts.ports.with_tls(),
    });
    parts.serve(listeners, http::routes(process), &config, &tasks, &shutdown);
    endpoints
        .write(folder.path())
        .map_err(|error| Failure::because("cannot write the endpoints file", &error))?;
    let cluster = config
        .streams
        .kafka
        .servers()
        .filter(|_| parts.cluster.is_some());
    announce(&endpoints, &config, cluster, folder.path(), began);
    let demo = if with_demo {
        match demo::start(folder.path(), &endpoints).await {
            Ok(demo) => Some(demo),
            Err(failure) => {
                tracing::error!("the demo could not start: {failure}");
                None
            }
        }
    } else {
        None
    };
    wait_for_stop().await?;
    tracing::info!("stopping; a second Ctrl-C stops at once");
    tokio::spawn(async {
        if wait_for_stop().await.is_ok() {
            std::process::exit(FORCED_EXIT);
        }
    });
    if let Some(demo) = demo {
        demo.stop().await;
    }
    shutdown.cancel();
    tasks.close();
    tasks.wait().await;
    parts.close().await;
    tracing::info!("stopped");
    Ok(())
}

/// The open ports, before anything serves them.
struct Listeners {
    streams: Option<TcpListener>,
    streams_local: Option<TcpListener>,
    rest: Option<TcpListener>,
    schemas: Option<TcpListener>,
    mqtt: MqttListeners,
    management: TcpListener,
    endpoints: Endpoints,
}

impl Listeners {
    async fn open(config: &Config, roles: &BTreeSet<Role>) -> Result<Self, Failure> {
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

/// The roles' states, opened.
struct Parts {
    streams: Option<Arc<streams::Streams>>,
    cluster: Option<Arc<streams::Cluster>>,
    security: Option<Arc<streams::kafka::Security>>,
    store: Option<Arc<dyn EventStore>>,
    registry: Option<Arc<rest::SchemaRegistry>>,
    mqtt: Option<MqttRole>,
    fusion: Option<Arc<fusion::deploy::Node>>,
    fleet: Option<Arc<fleet::Fleet>>,
    imports: Option<Arc<imports::Imports>>,
    /// Who calls the proxies over HTTP, where ACLs are followed.
    logins: Option<Arc<rest::Logins>>,
    /// Users and roles of this folder, and who calls the management port, where callers are asked.
    management: Option<(Arc<access::Access>, Arc<rest::Logins>)>,
    /// How people sign in to the console, where they do.
    sign_in: Option<Arc<http::SignIn>>,
    ports: Arc<Ports>,
    clock: Arc<dyn Clock>,
}

impl Parts {
    async fn open(folder: &Path, config: &Config, roles: &BTreeSet<Role>) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let runs = |role: Role| roles.contains(&role);
        let is_here = config.streams.kafka.servers().is_none();
        let streams = if runs(Role::Streams) && is_here {
            let (dir, config, clock) = (
                folder.join("streams"),
                config.streams.clone(),
                clock.clone(),
            );
            let (streams, recovery) = blocking(move || streams::Streams::open(&dir, config, clock))
                .await?
                .map_err(cannot_open("the event store"))?;
            if recovery.cut_bytes > 0 {
                tracing::info!(
                    bytes = recovery.cut_bytes,
                    "cut a torn, unacknowledged end off"
                );
            }
            if recovery.damaged_bytes > 0 {
                tracing::error!(
                    bytes = recovery.damaged_bytes,
                    "the event store's files have gone bad in the middle; what lay there is lost"
                );
            }
            Some(streams)
        } else {
            None
        };
        let needs_store = [
            Role::Streams,
            Role::Rest,
            Role::Schemas,
            Role::Fusion,
            Role::Imports,
        ];
        let forwards = runs(Role::Fleet) && config.fleet.role.forward.is_on();
        let needs_store = forwards || needs_store.into_iter().any(runs);
        let cluster = if !is_here && needs_store {
            let (dir, config) = (folder.join("streams"), config.streams.clone());
            Some(
                blocking(move || streams::Cluster::open(&dir, config))
                    .await?
                    .map_err(cannot_open("the event store"))?,
            )
        } else {
            None
        };
        if let (Some(cluster), Some(servers)) = (&cluster, config.streams.kafka.servers()) {
            look_for(cluster, servers).await;
        }
        let security = match runs(Role::Streams) && is_here {
            true => Some(Arc::new(security_of(folder, config).await?)),
            false => None,
        };
        let ports = {
            let (config, clock) = (config.clone(), clock.clone());
            let opened = blocking(move || Ports::open(&config, &clock)).await?;
            Arc::new(opened.map_err(cannot_open("the HTTP ports"))?)
        };
        let checked = config.rest.check_peers();
        checked.map_err(cannot_open("the way to other proxies"))?;
        let store = match (&streams, &cluster) {
            (Some(streams), _) => Some(streams.store()),
            (None, Some(cluster)) => Some(cluster.store()),
            (None, None) => None,
        };
        let management = management_of(folder, config, security.as_deref(), &ports, &clock).await?;
        let sign_in = http::SignIn::open(
            config.access.sign_in.clone(),
            config.fleet.http.tls.is_on(),
            ports.jwts.as_ref(),
            clock.clone(),
        );
        let sign_in = sign_in.map_err(|error| Failure(format!("cannot open sign-ins: {error}")))?;
        let logins = security.as_ref().and_then(|security| {
            let (access, policy) = (security.access.clone()?, security.authorization.clone()?);
            let jwts = ports.jwts.clone();
            Some(rest::Logins::new(access, policy, jwts, clock.clone()))
        });
        // Parts of the process act under names of their own, so that ACLs can keep them off.
        let as_service = |store: &Arc<dyn EventStore>, name| match &logins {
            Some(logins) => streams::as_caller(store.clone(), logins.service(name)),
            None => store.clone(),
        };
        let mqtt = if runs(Role::Mqtt) {
            let of_listener = security.as_ref().and_then(|s| s.access.clone());
            let known = of_listener.or(management.as_ref().map(|(access, _)| access.clone()));
            let access = match known {
                Some(access) => access,
                None => {
                    let dir = folder.join("access");
                    let opened = blocking(move || access::Access::open(&dir)).await?;
                    Arc::new(opened.map_err(cannot_open("users and ACLs"))?)
                }
            };
            let jwts = ports.jwts.clone();
            let (dir, config, clock) = (folder.to_owned(), config.mqtt.clone(), clock.clone());
            let open = move || MqttRole::open(&dir, &config, access, jwts, &clock);
            Some(blocking(open).await??)
        } else {
            None
        };
        let server = mqtt.as_ref().map(|role| role.server.clone());
        let fleet = if runs(Role::Fleet) {
            let dir = folder.join("fleet");
            let settings = fleet::FleetConfig {
                is_tls: config.fleet.http.tls.is_on(),
                ..config.fleet.role.clone()
            };
            let opened = fleet::Fleet::open(&dir, settings, clock.clone());
            Some(opened.await.map_err(cannot_open("the fleet"))?)
        } else {
            None
        };
        if let Some(fleet) = fleet.as_ref().filter(|_| config.fleet.role.forward.is_on()) {
            let store = store
                .as_ref()
                .ok_or_else(|| Failure(NOWHERE_TO_FORWARD.to_owned()))?;
            let topics = forward::StoreTopics::new(as_service(store, "fleet"));
            fleet.forward_to(Arc::new(topics));
        }
        if let (Some(fleet), Some((access, _))) = (&fleet, &management) {
            let shared = fleet.share_operators(access.clone()).await;
            shared.map_err(cannot_open("the users that the fleet's nodes share"))?;
        }
        let (mut fusion, mut imports, mut registry) = (None, None, None);
        if let Some(store) = &store {
            // The proxy looks schemas up by itself, on whatever port they are served.
            if runs(Role::Schemas) || runs(Role::Rest) {
                let (store, config) = (as_service(store, "schemas"), config.schemas.role.clone());
                let opened = rest::SchemaRegistry::new(store, config);
                registry = Some(opened.map_err(cannot_open("the schema registry"))?);
            }
            if runs(Role::Fusion) {
                let dir = folder.join("fusion");
                let opened = fusion::Fusion::open(
                    &dir,
                    config.fusion.clone(),
                    as_service(store, "statements"),
                    server.clone(),
                    clock.clone(),
                );
                let opened = opened.await.map_err(cannot_open("the statements"))?;
                let marks = folder.join("fusion-desired.json");
                let node = fusion::deploy::Node::open(opened, server, &marks);
                fusion = Some(node.map_err(cannot_open("the statements"))?);
            }
            if runs(Role::Imports) {
                let dir = folder.join("imports");
                let opened = imports::Imports::open(
                    &dir,
                    config.imports.clone(),
                    as_service(store, "imports"),
                    clock.clone(),
                );
                imports = Some(opened.await.map_err(cannot_open("the imports"))?);
            }
        }
        Ok(Parts {
            streams,
            cluster,
            security,
            store,
            registry,
            mqtt,
            fusion,
            fleet,
            imports,
            logins,
            management,
            sign_in,
            ports,
            clock,
        })
    }

    fn serve(
        &self,
        listeners: Listeners,
        mut management: Router,
        config: &Config,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) {
        if let (Some(streams), Some(security)) = (&self.streams, &self.security) {
            let local = Arc::new(security.local(&config.streams));
            let each = [
                (listeners.streams, security),
                (listeners.streams_local, &local),
            ];
            for (listener, security) in each {
                let Some(listener) = listener else { continue };
                tasks.spawn(streams::kafka::serve_secured(
                    listener,
                    streams.clone(),
                    security.clone(),
                    shutdown.clone(),
                ));
            }
        }
        let of_listener = self.security.as_ref().and_then(|of| of.access.as_ref());
        let of_port = self.management.as_ref().map(|(access, _)| access);
        let of_mqtt = self.mqtt.as_ref().and_then(|mqtt| mqtt.access.as_ref());
        if let Some(access) = of_listener.or(of_port).or(of_mqtt) {
            management = management.merge(rest::access_management(access.clone()));
        } else if self.cluster.is_some() {
            management = management.merge(rest::access_elsewhere());
        }
        if let Some(mqtt) = &self.mqtt {
            mqtt.serve(listeners.mqtt, tasks, shutdown);
            management = management.merge(mqtt.routes());
        }
        let kafka_tls = self.security.as_ref().and_then(|s| s.tls.clone());
        let mqtt_tls = self.mqtt.as_ref().and_then(|mqtt| mqtt.tls.clone());
        let listeners_tls: Vec<_> = kafka_tls.into_iter().chain(mqtt_tls).collect();
        if !listeners_tls.is_empty() || self.ports.has_files() {
            let reload = reload_on_hangup(listeners_tls, self.ports.clone(), shutdown.clone());
            tasks.spawn(reload);
        }
        if let Some(jwts) = &self.ports.jwts {
            tasks.spawn(http::keep_keys(jwts.clone(), shutdown.clone()));
        }
        let logins = self.logins.clone();
        if let Some(store) = &self.store {
            management = management.merge(rest::management(store.clone()));
            if let Some(listener) = listeners.rest {
                tasks.spawn(self.serve_rest(listener, store, config, shutdown));
            }
        }
        if let (Some(listener), Some(registry)) = (listeners.schemas, &self.registry) {
            let port = &self.ports.schemas;
            let (logins, rates) = (logins.clone(), port.rates.clone());
            let routes = rest::schema_routes(registry.clone(), logins, rates);
            tasks.spawn(http::serve(
                listener,
                routes,
                port.transport(),
                shutdown.clone(),
            ));
        }
        if let Some(fusion) = &self.fusion {
            management = management.merge(fusion::http::routes(fusion.fusion().clone()));
            management = management.merge(fusion::deploy::routes(fusion.clone()));
        }
        if let Some(fleet) = &self.fleet {
            let ports = self.ports.clone();
            fleet.watch_certificates(Box::new(move || ports.certificates()));
            let routes = fleet::http::routes(fleet.clone());
            let tls = &config.fleet.http.tls;
            management = management.merge(match tls.is_on() {
                true => http::with_certificates(routes, tls.principal),
                false => routes,
            });
        }
        if let Some(imports) = &self.imports {
            management = management.merge(imports::http::routes(imports.clone()));
        }
        let port = &self.ports.management;
        let logins = self.management.as_ref().map(|(_, logins)| logins);
        if let Some(logins) = logins {
            management = rest::rights_asked(management, logins.clone(), openings(config));
        }
        if let Some(fleet) = &self.fleet {
            management = fleet::http::audited(management, fleet.clone());
        }
        if let Some(rates) = &port.rates {
            management = rest::rate_limited(management, rates.clone());
        }
        if let Some(logins) = logins {
            management = rest::callers_known(management, logins.clone(), openings(config));
        }
        management = match &self.sign_in {
            Some(sign_in) => sign_in.surround(management),
            None => management.merge(http::SignIn::none()),
        };
        // Where rates are kept, heartbeats count too.
        let fleet = self.fleet.clone().filter(|_| port.rates.is_none());
        let straight = fleet.map(|fleet| {
            let naming = config.fleet.http.tls.principal;
            http::Straight::Heartbeats(fleet::http::Straight::new(fleet), naming)
        });
        let routes = http::Routes {
            straight,
            ..management.into()
        };
        tasks.spawn(http::serve(
            listeners.management,
            routes,
            port.transport(),
            shutdown.clone(),
        ));
    }

    /// The REST proxy, until the shutdown is done.
    fn serve_rest(
        &self,
        listener: TcpListener,
        store: &Arc<dyn EventStore>,
        config: &Config,
        shutdown: &CancellationToken,
    ) -> impl Future<Output = ()> + use<> {
        let port = &self.ports.rest;
        let settings = rest::RestConfig {
            is_tls: config.rest.http.tls.is_on(),
            peer_identity: own_certificate(config),
            ..with_peer_address(&config.rest, &listener)
        };
        let (routes, handle) = rest::routes(
            store.clone(),
            settings,
            self.clock.clone(),
            self.logins.clone(),
            self.registry.clone(),
            port.rates.clone(),
        );
        let routes = http::Routes {
            straight: handle.straight().map(http::Straight::Records),
            ..routes.into()
        };
        let transport = port.transport();
        let shutdown = shutdown.clone();
        async move {
            let stopping = async {
                shutdown.cancelled().await;
                handle.end_streams();
            };
            let serving = http::serve(listener, routes, transport, shutdown.clone());
            tokio::join!(serving, stopping);
            handle.close().await;
        }
    }

    /// Closes what writes before what it writes to.
    async fn close(self) {
        if let Some(imports) = self.imports {
            imports.close().await;
        }
        if let Some(fusion) = self.fusion {
            fusion.close().await;
            fusion.fusion().close().await;
        }
        if let Some(fleet) = self.fleet {
            fleet.close().await;
        }
        if let Some(mqtt) = self.mqtt {
            mqtt.close().await;
        }
        if let Some(registry) = self.registry {
            registry.close();
        }
        if let Some(streams) = self.streams {
            streams.close().await;
        }
        if let Some(cluster) = self.cluster {
            cluster.close().await;
        }
    }
}

/// The REST proxy's own certificate and its key, where it speaks TLS.
fn own_certificate(config: &Config) -> Option<(PathBuf, PathBuf)> {
    let tls = &config.rest.http.tls;
    tls.certificate.clone().zip(tls.key.clone())
}

/// The proxy's settings with the address at which the proxies on other machines find it.
fn with_peer_address(config: &rest::RestConfig, listener: &TcpListener) -> rest::RestConfig {
    let mut config = config.clone();
    if config.peer_address.is_none()
        && let Ok(bound) = listener.local_addr()
    {
        config.peer_address = Some(match bound.ip().is_unspecified() {
            false => bound.to_string(),
            true => {
                let machine = rustix::system::uname();
                let name = machine.nodename().to_string_lossy();
                format!("{name}:{}", bound.port())
            }
        });
    }
    config
}

/// What of the management port needs no login: what tells that the process lives, what agents
/// call, and the metrics where the configuration says so.
fn openings(config: &Config) -> rest::Openings {
    let mut paths = vec!["/health", "/efm/actuator/health"];
    if config.access.sign_in.client_id.is_some() {
        paths.extend(http::SignIn::OPEN);
    }
    if config.access.open_metrics {
        paths.extend(["/metrics", http::EFM_METRICS]);
    }
    rest::Openings {
        paths,
        prefixes: fleet::http::AGENT_PREFIXES.to_vec(),
        pages: vec!["/", "/console.js", "/console.css", "/api/v1/status"],
        judges: fleet::http::judges,
    }
}

fn chosen(roles: &[Role], has_cluster: bool) -> Result<BTreeSet<Role>, Failure> {
    let chosen: BTreeSet<Role> = if roles.is_empty() {
        Role::value_variants().iter().copied().collect()
    } else {
        roles.iter().copied().collect()
    };
    for role in [Role::Rest, Role::Schemas, Role::Fusion, Role::Imports] {
        if chosen.contains(&role) && !chosen.contains(&Role::Streams) && !has_cluster {
            let name = role
                .to_possible_value()
                .map_or_else(String::new, |v| v.get_name().to_owned());
            return Err(Failure(format!(
                "the role {name} needs an event store: add the role streams to --role, or set \
                 streams.kafka.bootstrap_servers to use a Kafka cluster"
            )));
        }
    }
    Ok(chosen)
}

/// Opens users and ACLs, and the certificates.
async fn security_of(folder: &Path, config: &Config) -> Result<streams::kafka::Security, Failure> {
    let (dir, config) = (folder.join("access"), config.streams.clone());
    blocking(move || {
        let access = Arc::new(access::Access::open(&dir)?);
        streams::kafka::Security::of(&config, access)
    })
    .await?
    .map_err(cannot_open("the Kafka listener's security"))
}

/// Users, roles and logins of the management port, where its callers are asked who they are.
async fn management_of(
    folder: &Path,
    config: &Config,
    security: Option<&streams::kafka::Security>,
    ports: &Ports,
    clock: &Arc<dyn Clock>,
) -> Result<Option<(Arc<access::Access>, Arc<rest::Logins>)>, Failure> {
    let policy = security.and_then(|security| security.authorization.clone());
    if policy.is_none() && !config.access.management_logins {
        return Ok(None);
    }
    let access = match security.and_then(|security| security.access.clone()) {
        Some(access) => access,
        None => {
            let dir = folder.join("access");
            let opened = blocking(move || access::Access::open(&dir)).await?;
            Arc::new(opened.map_err(cannot_open("users and roles"))?)
        }
    };
    let (roles, jwts) = (config.access.roles.clone(), ports.jwts.clone());
    let logins = rest::Logins::with_roles(access.clone(), policy, roles, jwts, clock.clone());
    Ok(Some((access, logins)))
}

/// Reads certificates and keys again whenever the process gets SIGHUP.
async fn reload_on_hangup(
    listeners: Vec<Arc<access::Tls>>,
    ports: Arc<Ports>,
    shutdown: CancellationToken,
) {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => {
            tracing::warn!(%error, "certificates cannot be read again: there is no SIGHUP");
            return;
        }
    };
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = hangup.recv() => {}
        }
        let (listeners, ports) = (listeners.clone(), ports.clone());
        let reload = move || {
            // All are read, whichever fails.
            let reloaded: Vec<_> = listeners.iter().map(|tls| tls.reload()).collect();
            ports
                .reload()
                .and(reloaded.into_iter().collect::<Result<(), _>>())
        };
        match tokio::task::spawn_blocking(reload).await {
            Ok(Ok(())) => tracing::info!("certificates were read again"),
            Ok(Err(error)) => tracing::error!("an old certificate or key stays: {error}"),
            Err(error) => tracing::error!(%error, "reading certificates again broke off"),
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::because("opening a store failed", &error))
}

fn cannot_open<E: std::error::Error + 'static>(what: &str) -> impl FnOnce(E) -> Failure {
    let what = format!("cannot open {what}");
    move |error| Failure::because(&what, &error)
}

/// Waits a while for the cluster, which may be starting too: statements that are kept look for their
/// topics when they are opened. Then goes on without it.
async fn look_for(cluster: &streams::Cluster, servers: &str) {
    for _ in 0..CLUSTER_TRIES {
        match cluster.ping().await {
            Ok(brokers) => {
                tracing::info!(servers, brokers, "the Kafka cluster answers");
                return;
            }
            Err(error) => {
                let error = base::report(&error);
                tracing::warn!(servers, error, "the Kafka cluster does not answer yet");
            }
        }
    }
}

fn announce(
    endpoints: &Endpoints,
    config: &Config,
    cluster: Option<&str>,
    folder: &Path,
    began: Instant,
) {
    let scheme = |http: &http::HttpConfig| if http.tls.is_on() { "https" } else { "http" };
    let (rest, fleet) = (scheme(&config.rest.http), scheme(&config.fleet.http));
    let schemas = scheme(&config.schemas.http);
    println!(
        "thalweg {} is up, data in {}",
        env!("CARGO_PKG_VERSION"),
        folder.display()
    );
    if let Some(servers) = cluster {
        println!("  streams  {servers:<22} Kafka cluster; no Kafka listener of its own");
    }
    for (role, address) in endpoints.iter() {
        let what = match role {
            "streams" => format!("{address:<22} Kafka protocol"),
            "streams.local" => format!("{address:<22} Kafka protocol, without logins"),
            "rest" => format!("{rest}://{address:<15} Kafka REST proxy"),
            "schemas" => format!("{schemas}://{address:<15} schema registry"),
            "mqtt" => format!("{address:<22} MQTT"),
            "mqtt.tls" => format!("{address:<22} MQTT over TLS"),
            "mqtt.ws" => format!("ws://{address:<17} MQTT over WebSocket"),
            "mqtt.wss" => format!("wss://{address:<16} MQTT over WebSocket and TLS"),
            "fleet" => format!("{fleet}://{address:<15} C2 for agents"),
            _ => format!("{fleet}://{address:<15} console, management API, /metrics, /health"),
        };
        println!("  {role:<10} {what}");
    }
    tracing::info!(ready_ms = began.elapsed().as_millis(), "ready");
}

async fn wait_for_stop() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| Failure::because("cannot wait for signals", &error))?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map_err(|error| Failure::because("cannot wait for signals", &error))
        }
        _ = terminate.recv() => Ok(()),
    }
}

fn lines(head: &str, problems: &[impl std::fmt::Display]) -> String {
    let mut text = head.to_owned();
    for problem in problems {
        text.push_str(&format!("\n  {problem}"));
    }
    text
}

const AFTER_HELP: &str = "\
The port of fleet.listen serves /health, /metrics and the management APIs of the roles that run,
whatever they are; it serves C2 to agents only with the role fleet.
Configuration is read from the file, then from variables such as THALWEG_STREAMS_LISTEN, then from
--set; later ones win. What listens where is printed, and written into DIR/endpoints.json.
Ctrl-C stops cleanly.";
const NOWHERE_TO_FORWARD: &str = "\
fleet.forward names topics, and there is no event store: add the role streams to --role, or set
streams.kafka.bootstrap_servers to use a Kafka cluster";
/// Calls to a cluster before `up` goes on without it, each as long as `request_timeout`.
const CLUSTER_TRIES: u32 = 3;
/// The name under which the port of health, metrics and management APIs is listed.
const MANAGEMENT: &str = "management";
/// What a shell reports for a process ended by a second Ctrl-C.
const FORCED_EXIT: i32 = 130;
