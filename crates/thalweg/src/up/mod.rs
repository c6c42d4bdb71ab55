//! `thalweg up`: opens the stores, starts the chosen roles, says what listens where, and stops
//! everything in the opposite order.
//!
//! Ports are opened first (`listeners.rs`), so that a taken one is told before anything is touched;
//! they are served (`serve.rs`) only after every store was recovered (`open.rs`).

mod listeners;
mod open;
mod serve;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use base::Clock;
use clap::ValueEnum;
use rustix::process::{Resource, getrlimit, setrlimit};
use streams::EventStore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::listeners::Listeners;
use crate::cli::Failure;
use crate::config::{self, Config};
use crate::demo;
use crate::endpoints::{DEFAULT_FOLDER, Endpoints};
use crate::folder::DataFolder;
use crate::http::{self, Ports, Process};
use crate::mqtt_role::MqttRole;
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
    let config = config::load(args.config.as_deref(), config::variables(), &args.settings)
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
    let parts = Parts::open(folder.path(), &config, roles).await;
    let parts = parts.map_err(|failure| match folder.lacks_room() {
        Some(free) => Failure(format!(
            "{failure}; only {} KiB are free on the disk of {}: make room there, or choose another \
             folder with --data",
            free >> 10,
            folder.path().display()
        )),
        None => failure,
    })?;
    if folder.is_open_to_all() {
        tracing::warn!(
            folder = %folder.path().display(),
            "every user of this machine can read the data folder, with records and keys in it: \
             chmod 700 it, unless that is meant"
        );
    }
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
        rules: parts.rules.clone(),
        streams: parts.streams.clone(),
        access: parts.access().cloned(),
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
    let service = agent::Service::of_environment();
    let tell = |state| service.iter().for_each(|service| service.tell(state));
    tell("READY=1");
    let alive = async {
        match &service {
            Some(service) => service.keep_alive().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        stopped = wait_for_stop() => stopped?,
        () = alive => {}
    }
    tell("STOPPING=1");
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

/// The roles' states, opened.
struct Parts {
    streams: Option<Arc<streams::Streams>>,
    cluster: Option<Arc<streams::Cluster>>,
    security: Option<Arc<streams::kafka::Security>>,
    store: Option<Arc<dyn EventStore>>,
    registry: Option<Arc<rest::SchemaRegistry>>,
    mqtt: Option<MqttRole>,
    fusion: Option<Arc<fusion::deploy::Node>>,
    /// MQTT topics that are topics of the store, where this process has both.
    rules: Option<Arc<fusion::rules::Rules>>,
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
    /// Users, ACLs and tenants, where some role keeps them.
    fn access(&self) -> Option<&Arc<access::Access>> {
        let of_listener = self.security.as_ref().and_then(|of| of.access.as_ref());
        let of_port = self.management.as_ref().map(|(access, _)| access);
        let of_mqtt = self.mqtt.as_ref().and_then(|mqtt| mqtt.access.as_ref());
        of_listener.or(of_port).or(of_mqtt)
    }

    /// Closes what writes before what it writes to.
    async fn close(self) {
        if let Some(imports) = self.imports {
            imports.close().await;
        }
        if let Some(rules) = self.rules {
            rules.close().await;
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
    let mut told = format!(
        "thalweg {} is up, data in {}\n",
        env!("CARGO_PKG_VERSION"),
        folder.display()
    );
    if let Some(servers) = cluster {
        told += &format!("  streams  {servers:<22} Kafka cluster; no Kafka listener of its own\n");
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
        told += &format!("  {role:<10} {what}\n");
    }
    // It runs on where nobody reads what it says.
    let _ = std::io::stdout().write_all(told.as_bytes());
    tracing::info!(ready_ms = began.elapsed().as_millis(), "ready");
}

/// Waits for Ctrl-C, or for a supervisor that wants it to end.
pub(crate) async fn wait_for_stop() -> Result<(), Failure> {
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
/// What a shell reports for a process ended by a second Ctrl-C.
const FORCED_EXIT: i32 = 130;
