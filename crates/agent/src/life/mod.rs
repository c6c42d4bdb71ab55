//! The life of an agent: what it is made of, how it starts, what ends it.

mod settings;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::SystemClock;
use journal::RealDisk;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use self::settings::Plan;
use crate::AgentError;
use crate::assets::Assets;
use crate::bulletins::Bulletins;
use crate::cli::RunArgs;
use crate::configuration::Configuration;
use crate::control::{Control, ControlConfig, Means};
use crate::engine::{Failure, Ground};
use crate::host;
use crate::local::{Served, Server};
use crate::logs::Logs;
use crate::metrics::Publisher;
use crate::parameters::Outside;
use crate::properties::Told;
use crate::repository::{Repository, RepositoryLimits, RepositoryOptions};
use crate::s2s::Ports;
use crate::service::Service;
use crate::services::{ClientAuthentication, SslContext, SslFiles};
use crate::supervisor::Supervisor;
use crate::watchdog;

/// Why an agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was told to stop.
    Stopped,
    /// It is to start anew, as it is.
    Restarts,
}

/// What runs beside the flow; ends when it is dropped.
struct Beside {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    service: Option<Arc<Service>>,
    restart: Arc<Notify>,
}

/// Runs an agent until it is stopped.
pub(crate) fn run(args: &RunArgs, logs: &Logs) -> Result<Ended, AgentError> {
    let dir = args.folder();
    create(&dir)?;
    let (configuration, told) = settings::settle(args, &dir, logs)?;
    let plan = Plan::of(args, &dir, &configuration)?;
    if let Some(config) = &plan.logs {
        logs.configure(config)?;
    }
    for note in &configuration.notes {
        tracing::info!("{note}");
    }
    let runtime = runtime()?;
    let folder = configuration
        .path(REPOSITORY_DIRECTORY)
        .unwrap_or_else(|| dir.join("repository"));
    let options = RepositoryOptions {
        limits: limits(&dir),
        ..configuration.repository()?
    };
    let repository = Repository::open(Arc::new(RealDisk), &folder, options)?;
    let identifier = settings::identifier(args, configuration.values(), &repository)?;
    let property = |key: &str| configuration.get(key);
    let control = ControlConfig::of(args, &property, identifier)?;
    let failure = Arc::new(Failure::default());
    let ports = Ports::default();
    // Peers are served as long as it is here.
    let _site_to_site = site_to_site(&configuration, &ports)?;
    let ground = Ground {
        repository: Arc::clone(&repository),
        bulletins: Arc::new(Bulletins::default()),
        clock: Arc::new(SystemClock),
        runtime: runtime.handle().clone(),
        failure: Arc::clone(&failure),
        ports,
        options: configuration.engine(),
        outside: Outside {
            assets: plan.assets.clone(),
            key: configuration.key(),
        },
    };
    let supervisor = Arc::new(Supervisor::new(ground, &dir, plan.times));
    if let Err(error) = supervisor.start(plan.flow_file.as_deref()) {
        // With a control plane there is a way to a better flow.
        if control.is_none() {
            return Err(error);
        }
        tracing::error!("{}", base::report(&error));
    }
    if !supervisor.has_flow() && control.is_none() {
        return Err(AgentError::Setting(
            "there is nothing to run: give --flow FILE, or --c2-url URL to be given one".to_owned(),
        ));
    }
    let outcome = runtime.block_on(live(plan, control, &supervisor, told, &failure));
    let closed = repository.close();
    runtime.shutdown_timeout(crate::limits::STOP_WAIT);
    tracing::info!("agent stopped");
    let ended = outcome?;
    closed.map(|()| ended)
}

/// The listener for site-to-site peers, where one is wanted.
fn site_to_site(
    configuration: &Configuration,
    ports: &Ports,
) -> Result<Option<crate::s2s::Server>, AgentError> {
    let port = configuration.get(SITE_TO_SITE_PORT).unwrap_or_default();
    let no_port = || AgentError::Setting(format!("{SITE_TO_SITE_PORT}: '{port}' is no port"));
    let port = match port.as_str() {
        "" | "0" => return Ok(None),
        port => port.parse::<u16>().map_err(|_| no_port())?,
    };
    let tls = match configuration.get(SITE_TO_SITE_SECURE).as_deref() {
        Some("true") => {
            let files = SslFiles {
                certificate: configuration.get("nifi.security.client.certificate"),
                key: configuration.get("nifi.security.client.private.key"),
                passphrase: configuration.get("nifi.security.client.pass.phrase"),
                authority: configuration.get("nifi.security.client.ca.certificate"),
                system: false,
            };
            let authentication = match files.authority {
                Some(_) => ClientAuthentication::Required,
                None => ClientAuthentication::None,
            };
            let tls = SslContext::open(&files)
                .and_then(|context| context.server(authentication, rustls::ALL_VERSIONS));
            let failed = |reason| AgentError::Setting(format!("{SITE_TO_SITE_SECURE}: {reason}"));
            Some(tls.map_err(failed)?)
        }
        _ => None,
    };
    let server = crate::s2s::Server::start(port, tls, ports.clone());
    let server = server.map_err(|source| AgentError::System {
        action: "listen for site-to-site peers",
        source,
    })?;
    tracing::info!(address = %server.address(), "listening for site-to-site peers");
    Ok(Some(server))
}

/// Lives until a signal, a failure or a restart, and ends the flow.
async fn live(
    plan: Plan,
    control: Option<ControlConfig>,
    supervisor: &Arc<Supervisor>,
    told: Arc<Told>,
    failure: &Failure,
) -> Result<Ended, AgentError> {
    let no_signal = |source| AgentError::System {
        action: "listen to signals",
        source,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signal)?;
    let beside = Beside::start(plan, control, supervisor, told).await?;
    let outcome = tokio::select! {
        () = either(&mut terminate, &mut interrupt) => Ok(Ended::Stopped),
        () = beside.restart.notified() => Ok(Ended::Restarts),
        error = failure.wait() => Err(error),
    };
    beside.end(matches!(outcome, Ok(Ended::Restarts)));
    let stopping = {
        let supervisor = Arc::clone(supervisor);
        tokio::task::spawn_blocking(move || supervisor.stop())
    };
    tokio::select! {
        stopped = stopping => {
            if let Err(error) = stopped {
                tracing::error!(%error, "the flow did not stop in order");
            }
        }
        () = either(&mut terminate, &mut interrupt) => {
            tracing::warn!("told twice to stop: processors are left behind");
        }
    }
    outcome
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

impl Beside {
    async fn start(
        plan: Plan,
        control: Option<ControlConfig>,
        supervisor: &Arc<Supervisor>,
        told: Arc<Told>,
    ) -> Result<Beside, AgentError> {
        let mut tasks = Vec::new();
        let restart = Arc::new(Notify::new());
        if let Some(config) = plan.watchdog {
            let dir = told.dir.clone();
            let watching = watchdog::watch(config, dir, Arc::clone(supervisor));
            tasks.push(tokio::spawn(watching));
        }
        if let Some(config) = plan.metrics {
            let publisher = Publisher::open(config, Arc::clone(supervisor)).await?;
            tasks.push(tokio::spawn(publisher.run()));
        }
        match Server::bind(&told.dir) {
            Ok(server) => {
                let served = Served {
                    supervisor: Arc::clone(supervisor),
                    told: Arc::clone(&told),
                };
                tasks.push(tokio::spawn(server.run(served)));
            }
            // The flow matters more than looking at it.
            Err(error) => tracing::warn!("no status: {}", base::report(&error)),
        }
        if let Some(config) = control {
            tracing::info!(
                url = config.heartbeat_url,
                id = config.identifier,
                class = config.class,
                "calling the control plane"
            );
            let means = Means {
                supervisor: Arc::clone(supervisor),
                assets: Arc::new(Assets::open(plan.assets)),
                told,
                restart: Arc::clone(&restart),
            };
            tasks.push(tokio::spawn(Control::new(config, means)?.run()));
        }
        let service = Service::of_environment().map(Arc::new);
        if let Some(service) = &service {
            service.tell("READY=1");
            let service = Arc::clone(service);
            tasks.push(tokio::spawn(async move { service.keep_alive().await }));
        }
        Ok(Beside {
            tasks,
            service,
            restart,
        })
    }

    fn end(self, restarts: bool) {
        // To systemd a start anew is no end: the process stays, and it would be killed.
        if let Some(service) = self.service.as_ref().filter(|_| !restarts) {
            service.tell("STOPPING=1");
        }
        for task in self.tasks {
            task.abort();
        }
    }
}

/// Becomes the same program with the same arguments; returns only if that fails.
pub(crate) fn start_anew() -> AgentError {
    let own = std::env::current_exe().ok().filter(|path| path.exists());
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // A program that was replaced meanwhile is found by its name.
    let program = own.map_or(name, PathBuf::into_os_string);
    let source = std::process::Command::new(program).args(arguments).exec();
    AgentError::System {
        action: "start the agent anew",
        source,
    }
}

/// The data folder is its owner's alone: flows and settings hold secrets.
fn create(dir: &Path) -> Result<(), AgentError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(dir).map_err(|source| AgentError::File {
        action: "create",
        path: dir.to_owned(),
        source,
    })
}

/// What the repositories may take of this machine.
fn limits(dir: &Path) -> RepositoryLimits {
    let disk = host::disk_bytes(dir).unwrap_or(u64::MAX);
    RepositoryLimits::for_machine(disk, host::memory_allowed().unwrap_or(u64::MAX))
}

fn runtime() -> Result<Runtime, AgentError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("agent")
        .enable_all()
        .build()
        .map_err(|source| AgentError::System {
            action: "start",
            source,
        })
}

/// Where site-to-site peers call, and whether by TLS.
const SITE_TO_SITE_PORT: &str = "nifi.remote.input.socket.port";
const SITE_TO_SITE_SECURE: &str = "nifi.remote.input.secure";

const REPOSITORY_DIRECTORY: &str = "nifi.flowfile.repository.directory.default";

/// Threads for flow updates, answers and name lookups; they end when idle.
const BLOCKING_THREADS: usize = 8;
