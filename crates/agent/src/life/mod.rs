//! The life of an agent: what it is made of, how it starts, what ends it.

mod settings;
#[cfg(test)]
mod tests;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::SystemClock;
use journal::RealDisk;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use self::settings::Plan;
use crate::AgentError;
use crate::assets::Assets;
use crate::bulletins::{Bulletins, Level, Source};
use crate::cli::RunArgs;
use crate::configuration::Configuration;
use crate::control::{Control, ControlConfig, Means};
use crate::engine::{Failure, Ground};
use crate::extensions;
use crate::host;
use crate::limits::CHANGE_TRIAL_WAIT;
use crate::local::{Served, Server};
use crate::logs::Logs;
use crate::memory;
use crate::metrics::Publisher;
use crate::parameters::Outside;
use crate::properties::{Told, Trial};
use crate::read_only;
use crate::repository::{Repository, RepositoryLimits, RepositoryOptions};
use crate::s2s::Ports;
use crate::service::Service;
use crate::services::{ClientAuthentication, SslContext, SslFiles};
use crate::supervisor::{Stop, Supervisor};
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

/// Runs an agent until it is stopped. When changed settings on trial keep it from that, they are
/// taken back and it starts anew.
pub(crate) fn run(args: &RunArgs, logs: &Logs) -> Result<Ended, AgentError> {
    let dir = args.folder();
    create(&dir)?;
    let (configuration, told) = settings::settle(args, &dir, logs)?;
    let trial = told.trial.clone();
    let outcome = run_with(args, logs, &dir, configuration, told);
    match (outcome, trial) {
        (Err(error), Some(trial)) if trial.withdraw()? => {
            tracing::error!("{}: {}", settings::WITHDRAWN, base::report(&error));
            Ok(Ended::Restarts)
        }
        (Ok(ended), Some(trial)) => {
            trial.is_put_off();
            Ok(ended)
        }
        (outcome, _) => outcome,
    }
}

fn run_with(
    args: &RunArgs,
    logs: &Logs,
    dir: &Path,
    configuration: Configuration,
    told: Arc<Told>,
) -> Result<Ended, AgentError> {
    let plan = Plan::of(args, dir, &configuration)?;
    if let Some(config) = &plan.logs {
        logs.configure(config)?;
    }
    for note in &configuration.notes {
        tracing::info!("{note}");
    }
    if let Some(folder) = configuration.path(EXTENSIONS_DIRECTORY) {
        let count = extensions::load(&folder)?;
        tracing::info!(count, folder = %folder.display(), "processors of extensions");
    }
    let runtime = runtime()?;
    let folder = configuration
        .path(REPOSITORY_DIRECTORY)
        .unwrap_or_else(|| dir.join("repository"));
    let options = RepositoryOptions {
        limits: limits(dir),
        ..configuration.repository()?
    };
    let failure = Arc::new(Failure::default());
    let repository = open(&folder, options, &configuration, &failure)?;
    let identifier = settings::identifier(args, configuration.values(), &repository)?;
    let property = |key: &str| configuration.get(key);
    let control = ControlConfig::of(args, &property, identifier)?;
    let ports = Ports::default();
    // Peers are served as long as it is here.
    let _site_to_site = site_to_site(&configuration, &ports, runtime.handle())?;
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
    if told.is_withdrawn {
        let agent = Source {
            id: "agent",
            name: "agent",
            group_id: "",
        };
        let now = ground.clock.now();
        ground
            .bulletins
            .post(now, Level::Error, agent, settings::WITHDRAWN);
    }
    let supervisor = Arc::new(Supervisor::new(ground, dir, plan.times));
    if failure.is_reported() {
        supervisor.stop_for(Stop::ReadOnly);
    }
    if let Err(error) = supervisor.start(plan.flow_file.as_deref()) {
        // With a control plane there is a way to a better flow, unless it was its change of settings
        // that keeps this one from running.
        if control.is_none() || told.trial.is_some() {
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
    match (outcome?, closed) {
        // That was told, and the next opening sees to it.
        (ended, Err(error)) if error.is_read_only() => {
            tracing::warn!("{}", base::report(&error));
            Ok(ended)
        }
        (ended, closed) => closed.map(|()| ended),
    }
}

/// Opens the repository; on a file system that is read-only to be read, which is reported.
fn open(
    folder: &Path,
    options: RepositoryOptions,
    configuration: &Configuration,
    failure: &Failure,
) -> Result<Arc<Repository>, AgentError> {
    let keyring = configuration.keyring()?;
    match Repository::open_sealed(Arc::new(RealDisk), folder, options, keyring) {
        Err(error) if error.is_read_only() => {
            failure.report(error);
            let keyring = configuration.keyring()?;
            Repository::open_to_read(Arc::new(RealDisk), folder, options, keyring)
        }
        opened => opened,
    }
}

/// Listeners for site-to-site peers, raw and over HTTP, where they are wanted.
type Listeners = (Option<crate::s2s::Server>, Option<crate::s2s::HttpServer>);

fn site_to_site(
    configuration: &Configuration,
    ports: &Ports,
    runtime: &tokio::runtime::Handle,
) -> Result<Listeners, AgentError> {
    let port_of = |key: &str| {
        let port = configuration.get(key).unwrap_or_default();
        match port.as_str() {
            "" | "0" => Ok(None),
            text => text
                .parse::<u16>()
                .map(Some)
                .map_err(|_| AgentError::Setting(format!("{key}: '{port}' is no port"))),
        }
    };
    let (raw, http) = (
        port_of(SITE_TO_SITE_PORT)?,
        port_of(SITE_TO_SITE_HTTP_PORT)?,
    );
    if raw.is_none() && http.is_none() {
        return Ok((None, None));
    }
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
    let failed = |source| AgentError::System {
        action: "listen for site-to-site peers",
        source,
    };
    let raw_server = raw
        .map(|port| crate::s2s::Server::start(port, tls.clone(), ports.clone()))
        .transpose()
        .map_err(failed)?;
    let http_server = http
        .map(|port| crate::s2s::HttpServer::start(runtime, port, tls, ports.clone(), raw))
        .transpose()
        .map_err(failed)?;
    if let Some(server) = &raw_server {
        tracing::info!(address = %server.address(), "listening for site-to-site peers");
    }
    if let Some(server) = &http_server {
        tracing::info!(address = %server.address(), "listening for site-to-site peers over HTTP");
    }
    Ok((raw_server, http_server))
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
        outcome = broken(failure, supervisor) => outcome,
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

/// Waits until the repository fails; where only its file system was read-only, until that is
/// writable again.
async fn broken(failure: &Failure, supervisor: &Arc<Supervisor>) -> Result<Ended, AgentError> {
    let error = failure.wait().await;
    if !error.is_read_only() {
        return Err(error);
    }
    tracing::error!("{}", base::report(&error));
    read_only::rest(Arc::clone(supervisor), READ_ONLY_LOOK).await;
    Ok(Ended::Restarts)
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
        if let Some(trial) = told.trial.clone() {
            // Without a control plane nothing is to be reached.
            trial.is_up(control.is_none());
            tasks.push(tokio::spawn(prove(trial, Arc::clone(&restart))));
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
        // What it took to read the settings and the flow.
        memory::give_back();
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

/// Takes changed settings back by which the control plane is out of reach for too long.
async fn prove(trial: Arc<Trial>, restart: Arc<Notify>) {
    tokio::time::sleep(CHANGE_TRIAL_WAIT).await;
    match trial.withdraw() {
        Ok(true) => {
            tracing::error!("{}", settings::WITHDRAWN);
            restart.notify_one();
        }
        Ok(false) => {}
        Err(error) => tracing::error!("{}", base::report(&error)),
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

/// How often a read-only file system is tried.
const READ_ONLY_LOOK: Duration = Duration::from_secs(5);

/// Where site-to-site peers call, and whether by TLS.
const SITE_TO_SITE_PORT: &str = "nifi.remote.input.socket.port";
const SITE_TO_SITE_HTTP_PORT: &str = "nifi.remote.input.http.port";
const SITE_TO_SITE_SECURE: &str = "nifi.remote.input.secure";

const EXTENSIONS_DIRECTORY: &str = "nifi.extensions.directory";
const REPOSITORY_DIRECTORY: &str = "nifi.flowfile.repository.directory.default";

/// Threads for flow updates, answers and name lookups; they end when idle.
const BLOCKING_THREADS: usize = 8;
