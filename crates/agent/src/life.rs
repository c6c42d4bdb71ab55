//! The life of an agent: what it is made of, how it starts, what ends it.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::SystemClock;
use journal::RealDisk;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::AgentError;
use crate::assets::Assets;
use crate::bulletins::Bulletins;
use crate::cli::RunArgs;
use crate::configuration::Configuration;
use crate::control::{Control, ControlConfig, Means, wrong};
use crate::engine::{Failure, Ground};
use crate::limits::FLOW_STOP_WAIT_DEFAULT;
use crate::local::{Served, Server};
use crate::logs::{LogConfig, Logs};
use crate::metrics::{MetricsConfig, Publisher};
use crate::parameters::Outside;
use crate::properties::{self, Told};
use crate::repository::Repository;
use crate::service::Service;
use crate::supervisor::{StopTimes, Supervisor};
use crate::units;
use crate::watchdog::{self, WatchdogConfig};

/// Why an agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was told to stop.
    Stopped,
    /// It is to start anew, as it is.
    Restarts,
}

/// What the settings of an agent come to.
struct Plan {
    flow_file: Option<PathBuf>,
    assets: Option<PathBuf>,
    times: StopTimes,
    watchdog: Option<WatchdogConfig>,
    metrics: Option<MetricsConfig>,
    logs: Option<LogConfig>,
}

/// What runs beside the flow; ends when it is dropped.
struct Beside {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    service: Option<Arc<Service>>,
    restart: Arc<Notify>,
}

/// Runs an agent with the settings of its operator until it is stopped.
pub(crate) fn run(
    args: &RunArgs,
    configuration: Configuration,
    logs: &Logs,
) -> Result<Ended, AgentError> {
    let dir = args.folder();
    create(&dir)?;
    let (told, configuration) = told(args, &dir, configuration, logs)?;
    let plan = Plan::of(args, &configuration)?;
    if let Some(config) = &plan.logs {
        logs.configure(config)?;
    }
    for note in &configuration.notes {
        tracing::info!("{note}");
    }
    let runtime = runtime()?;
    let repository = Repository::open(
        Arc::new(RealDisk),
        &configuration
            .path(REPOSITORY)
            .unwrap_or_else(|| dir.join("repository")),
        configuration.repository()?,
    )?;
    let identifier = identifier(args, &told.values, &repository)?;
    let property = |key: &str| told.values.get(key).cloned();
    let control = ControlConfig::of(args, &property, identifier)?;
    let failure = Arc::new(Failure::default());
    let ground = Ground {
        repository: Arc::clone(&repository),
        bulletins: Arc::new(Bulletins::default()),
        clock: Arc::new(SystemClock),
        runtime: runtime.handle().clone(),
        failure: Arc::clone(&failure),
        options: configuration.engine(),
        outside: Outside {
            assets: plan.assets.clone().unwrap_or_else(|| dir.join(ASSETS)),
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
    beside.end();
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
            let dir = plan.assets.unwrap_or_else(|| told.dir.join(ASSETS));
            let means = Means {
                supervisor: Arc::clone(supervisor),
                assets: Arc::new(Assets::open(dir, Arc::clone(supervisor))),
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

    fn end(self) {
        if let Some(service) = &self.service {
            service.tell("STOPPING=1");
        }
        for task in self.tasks {
            task.abort();
        }
    }
}

impl Plan {
    /// Errors: a value that cannot be; the text names its key.
    fn of(args: &RunArgs, configuration: &Configuration) -> Result<Plan, AgentError> {
        let property = |key: &str| configuration.get(key);
        let duration = |key: &str, default: Duration| match property(key).as_deref() {
            None => Ok(default),
            Some("0") => Ok(Duration::ZERO),
            Some(text) => {
                units::duration(text).ok_or_else(|| wrong(key, text, "a duration such as 30 sec"))
            }
        };
        Ok(Plan {
            flow_file: args.flow.clone().or_else(|| configuration.path(FLOW_FILE)),
            assets: configuration.path(ASSET_DIRECTORY),
            times: StopTimes {
                drain: duration(DRAIN, Duration::ZERO)?,
                grace: duration(GRACE, FLOW_STOP_WAIT_DEFAULT)?,
            },
            watchdog: WatchdogConfig::of(&property)?,
            metrics: MetricsConfig::of(&property)?,
            logs: LogConfig::of(configuration.values())?,
        })
    }
}

/// The settings with those of the control plane over them, if the agent could start with them.
fn checked(
    args: &RunArgs,
    configuration: &Configuration,
    overlay: &BTreeMap<String, String>,
) -> Result<Configuration, AgentError> {
    let all = configuration.with(overlay)?;
    Plan::of(args, &all)?;
    let property = |key: &str| all.get(key);
    ControlConfig::of(args, &property, String::new())?;
    Ok(all)
}

/// The operator's settings with those of the control plane over them. If the agent could not
/// start with the latter, it starts without them.
fn told(
    args: &RunArgs,
    dir: &Path,
    configuration: Configuration,
    logs: &Logs,
) -> Result<(Arc<Told>, Configuration), AgentError> {
    let overlay = properties::overlay(dir)?;
    let all = match checked(args, &configuration, &overlay) {
        Ok(all) => all,
        Err(error) if overlay.is_empty() => return Err(error),
        Err(error) => {
            let error = base::report(&error);
            tracing::error!(error, "settings of the control plane are withdrawn");
            properties::withdraw(dir)?;
            configuration
        }
    };
    let mut sources = all.files.clone();
    sources.extend(properties::lasting(dir));
    let (args_of_check, own) = (args.clone(), all.clone());
    let check =
        move |values: &BTreeMap<String, String>| checked(&args_of_check, &own, values).map(drop);
    let told = Told {
        values: all.values().clone(),
        sources,
        decided: args.decided(),
        dir: dir.to_owned(),
        logs: Some(logs.clone()),
        check: Some(Arc::new(check)),
    };
    Ok((Arc::new(told), all))
}

/// The agent's identifier: as told, else the one it had before, else a new one.
fn identifier(
    args: &RunArgs,
    values: &BTreeMap<String, String>,
    repository: &Repository,
) -> Result<String, AgentError> {
    let set = IDENTIFIERS.iter().find_map(|key| values.get(*key).cloned());
    let told = args.id.clone().or(set);
    if let Some(told) = told.filter(|id| !id.is_empty()) {
        return Ok(told);
    }
    if let Some(kept) = repository.state(IDENTIFIER_STATE)
        && let Ok(kept) = std::str::from_utf8(&kept)
    {
        return Ok(kept.to_owned());
    }
    let fresh = uuid::Uuid::new_v4().to_string();
    repository.save_state(IDENTIFIER_STATE, fresh.clone().into())?;
    Ok(fresh)
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

const FLOW_FILE: &str = "nifi.flow.configuration.file";
const ASSET_DIRECTORY: &str = "nifi.asset.directory";
const DRAIN: &str = "nifi.flowcontroller.drain.timeout";
const GRACE: &str = "nifi.flowcontroller.graceful.shutdown.period";
const REPOSITORY: &str = "nifi.flowfile.repository.directory.default";

/// Where assets are in the data folder, if nothing else is said.
const ASSETS: &str = "asset";

/// The second one stands in where the first one is not set.
const IDENTIFIERS: [&str; 2] = [
    "nifi.c2.agent.identifier",
    "nifi.c2.agent.identifier.fallback",
];

/// The repository's key of the agent's identifier.
const IDENTIFIER_STATE: &str = "$identifier";

/// Threads for flow updates, answers and name lookups; they end when idle.
const BLOCKING_THREADS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        pairs.collect()
    }

    #[test]
    fn an_identifier_is_told_or_stands_in_or_is_made_up_once() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = testing::runtime();
        let ground = testing::ground(dir.path(), &runtime);
        let of = |args: &RunArgs, pairs: &[(&str, &str)]| {
            identifier(args, &values(pairs), &ground.repository).unwrap()
        };
        let args = RunArgs::default();
        let made = of(&args, &[]);
        assert_eq!(made.len(), 36);
        assert_eq!(of(&args, &[]), made);
        let fallback = (IDENTIFIERS[1], "spare");
        assert_eq!(of(&args, &[fallback]), "spare");
        assert_eq!(of(&args, &[fallback, (IDENTIFIERS[0], "mine")]), "mine");
        let told = RunArgs {
            id: Some("told".to_owned()),
            ..RunArgs::default()
        };
        assert_eq!(of(&told, &[fallback]), "told");
    }

    #[test]
    fn settings_of_the_control_plane_win_unless_the_agent_cannot_start_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let args = RunArgs::default();
        let told_with = || {
            let mine = Configuration::default().with(&values(&[(GRACE, "5 sec")]));
            let (told, _) = told(&args, dir.path(), mine.unwrap(), &Logs::silent()).unwrap();
            told
        };
        let change = |key: &str, value: &str| properties::Change {
            key: key.to_owned(),
            value: value.to_owned(),
            persists: true,
        };
        let first = told_with();
        first.record(&[change(GRACE, "7 sec")]).unwrap();
        let second = told_with();
        assert_eq!(second.values[GRACE], "7 sec");
        assert!(second.check(&[change(GRACE, "soon")]).is_err());
        assert!(second.check(&[change("no.such.key", "1")]).is_err());
        // Whatever wrote it, the agent starts.
        second.record(&[change(GRACE, "soon")]).unwrap();
        assert_eq!(told_with().values[GRACE], "5 sec");
    }
}
