//! The agent's command line, for `thalweg-agent` and `thalweg agent` alike.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{HumanDuration, SystemClock};
use clap::{Args as ClapArgs, Subcommand};
use journal::RealDisk;

use crate::AgentError;
use crate::bulletins::Bulletins;
use crate::configuration::{Configuration, Sources};
use crate::control::{Control, ControlConfig};
use crate::definition::{Flow, seal};
use crate::engine::{Failure, Ground, Prepared};
use crate::parameters::{Outside, SecretKey, Surroundings};
use crate::processors::{Dynamic, Input, PROCESSORS};
use crate::repository::Repository;
use crate::supervisor::{Supervisor, read};
use crate::units;

/// Runs flows at the edge: collects, routes and sends data, and survives what happens there.
#[derive(Clone, Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// What to do; without a word, run
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to run
    #[command(flatten)]
    pub run: RunArgs,
}

/// What an agent can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run a flow until SIGINT or SIGTERM (the default)
    Run(RunArgs),
    /// Check a flow definition and show what it holds; exit 1 with every problem if it cannot run
    Validate {
        /// MiNiFi YAML or NiFi JSON
        flow: PathBuf,
        /// Data folder of the agent that is to run it: its key opens sealed values
        #[arg(long, value_name = "DIR", env = "THALWEG_AGENT_DATA")]
        data: Option<PathBuf>,
    },
    /// Seal a secret from the standard input, or all secrets of a flow, for flows and settings
    Encrypt {
        /// Data folder of the agent that is to open it; its key is made if there is none
        #[arg(long, value_name = "DIR", env = "THALWEG_AGENT_DATA")]
        data: Option<PathBuf>,
        /// The flow whose secrets are to be sealed; it is printed, its comments are lost
        #[arg(long, value_name = "FILE")]
        flow: Option<PathBuf>,
        /// Key to seal by instead of the data folder's, 64 hexadecimal digits
        #[arg(
            long,
            value_name = "KEY",
            env = "THALWEG_AGENT_SENSITIVE_KEY",
            hide_env_values = true
        )]
        key: Option<String>,
    },
    /// List the processors with their properties, or show one
    Processors {
        /// Only this one
        name: Option<String>,
    },
}

/// How an agent runs. Each value is looked for on the command line, in the environment, in the
/// properties file, in this order.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct RunArgs {
    /// Folder of the repository; one agent at a time [default: thalweg-agent-data]
    #[arg(long, value_name = "DIR", env = "THALWEG_AGENT_DATA")]
    pub data: Option<PathBuf>,
    /// Flow definition, MiNiFi YAML or NiFi JSON; a flow that the control plane gave goes before
    #[arg(long, value_name = "FILE", env = "THALWEG_AGENT_FLOW")]
    pub flow: Option<PathBuf>,
    /// Control plane, as http://host:10090 (EFM's paths are added) or a heartbeat's whole address
    #[arg(long, value_name = "URL", env = "THALWEG_AGENT_C2_URL")]
    pub c2_url: Option<String>,
    /// Where acknowledgements go, if not beside the heartbeats
    #[arg(long, value_name = "URL", env = "THALWEG_AGENT_C2_ACK_URL")]
    pub c2_ack_url: Option<String>,
    /// Agent class: which flow the control plane gives
    #[arg(long, value_name = "NAME", env = "THALWEG_AGENT_CLASS")]
    pub class: Option<String>,
    /// Agent identifier; made up once and kept in the data folder
    #[arg(long, value_name = "ID", env = "THALWEG_AGENT_ID")]
    pub id: Option<String>,
    /// Time between heartbeats [default: 5s]
    #[arg(long, value_name = "TIME", env = "THALWEG_AGENT_HEARTBEAT")]
    pub heartbeat: Option<String>,
    /// File in the manner of minifi.properties; files in FILE.d go over it
    #[arg(long, value_name = "FILE", env = "THALWEG_AGENT_PROPERTIES")]
    pub properties: Option<PathBuf>,
    /// The same settings in TOML; goes over the properties
    #[arg(long, value_name = "FILE", env = "THALWEG_AGENT_CONFIG")]
    pub config: Option<PathBuf>,
    /// One setting, by its name in either file; goes over both files
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Does what the arguments say. Not to be called on a thread that runs futures.
///
/// Errors: everything that keeps the agent from starting or going on; the text says what to do.
pub fn run(args: Args) -> Result<(), AgentError> {
    match args.command {
        None => run_flow(args.run),
        Some(Command::Run(run)) => run_flow(run),
        Some(Command::Validate { flow, data }) => validate(&flow, data),
        Some(Command::Encrypt { data, flow, key }) => encrypt(data, flow.as_deref(), key),
        Some(Command::Processors { name }) => list(name.as_deref()),
    }
}

fn run_flow(args: RunArgs) -> Result<(), AgentError> {
    let dir = args
        .data
        .clone()
        .unwrap_or_else(|| PathBuf::from(DATA_DEFAULT));
    let sources = Sources {
        properties: args.properties.clone(),
        toml: args.config.clone(),
        set: args.set.clone(),
    };
    let configuration = Configuration::read(&sources, &dir)?;
    for note in &configuration.notes {
        tracing::info!("{note}");
    }
    let flow_file = args.flow.clone().or_else(|| configuration.path(FLOW_FILE));
    std::fs::create_dir_all(&dir).map_err(|source| AgentError::File {
        action: "create",
        path: dir.clone(),
        source,
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("agent")
        .enable_all()
        .build()
        .map_err(|source| AgentError::System {
            action: "start",
            source,
        })?;
    let repository = Repository::open(
        Arc::new(RealDisk),
        &configuration
            .path(REPOSITORY_DIRECTORY)
            .unwrap_or_else(|| dir.join("repository")),
        configuration.repository()?,
    )?;
    let identifier = identifier(&args, configuration.values(), &repository)?;
    let control = control(&args, configuration.values(), identifier)?;
    let failure = Arc::new(Failure::default());
    let ground = Ground {
        repository: Arc::clone(&repository),
        bulletins: Arc::new(Bulletins::default()),
        clock: Arc::new(SystemClock),
        runtime: runtime.handle().clone(),
        failure: Arc::clone(&failure),
        options: configuration.engine(),
        outside: Outside {
            assets: configuration
                .path(ASSET_DIRECTORY)
                .unwrap_or_else(|| dir.join("asset")),
            key: configuration.key(),
        },
    };
    let supervisor = Arc::new(Supervisor::new(ground, &dir));
    if let Err(error) = supervisor.start(flow_file.as_deref()) {
        // With a control plane there is a way to a better flow.
        if control.is_none() {
            return Err(error);
        }
        tracing::error!("{}", base::report(&error));
    }
    if !supervisor.is_running() && control.is_none() {
        return Err(AgentError::Setting(
            "there is nothing to run: give --flow FILE, or --c2-url URL to be given one".to_owned(),
        ));
    }
    let outcome = runtime.block_on(live(&supervisor, control, &failure));
    supervisor.stop();
    let closed = repository.close();
    runtime.shutdown_timeout(crate::limits::STOP_WAIT);
    tracing::info!("agent stopped");
    outcome.and(closed)
}

/// Runs until a signal or a failure.
async fn live(
    supervisor: &Arc<Supervisor>,
    control: Option<ControlConfig>,
    failure: &Failure,
) -> Result<(), AgentError> {
    use tokio::signal::unix::{SignalKind, signal};
    let no_signal = |source| AgentError::System {
        action: "listen to signals",
        source,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(no_signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_signal)?;
    let control = match control {
        Some(config) => {
            tracing::info!(
                url = config.heartbeat_url,
                id = config.identifier,
                class = config.class,
                "calling the control plane"
            );
            Some(tokio::spawn(
                Control::new(config, Arc::clone(supervisor))?.run(),
            ))
        }
        None => None,
    };
    let outcome = tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        error = failure.wait() => Err(error),
    };
    if let Some(control) = control {
        control.abort();
    }
    outcome
}

fn control(
    args: &RunArgs,
    properties: &Properties,
    identifier: String,
) -> Result<Option<ControlConfig>, AgentError> {
    let is_enabled = properties
        .get("nifi.c2.enable")
        .is_none_or(|value| value == "true");
    let property = |key: &str| properties.get(key).cloned();
    let base = property("nifi.c2.rest.path.base");
    let absolute = |url: String| match &base {
        Some(base) if !url.contains("://") => {
            format!(
                "{}/{}",
                base.trim_end_matches('/'),
                url.trim_start_matches('/')
            )
        }
        _ => url,
    };
    let from_file = if is_enabled {
        property("nifi.c2.rest.url").map(&absolute)
    } else {
        None
    };
    let Some(url) = args.c2_url.clone().or(from_file) else {
        return Ok(None);
    };
    let heartbeat_url = heartbeat_url(&url)?;
    let beside = heartbeat_url
        .rsplit_once('/')
        .map_or("", |(beside, _)| beside)
        .to_owned();
    let acknowledge_url = args
        .c2_ack_url
        .clone()
        .or_else(|| property("nifi.c2.rest.url.ack").map(&absolute))
        .unwrap_or_else(|| format!("{beside}/acknowledge"));
    let period = args
        .heartbeat
        .clone()
        .or_else(|| property("nifi.c2.agent.heartbeat.period"))
        .unwrap_or_else(|| HEARTBEAT_DEFAULT.to_owned());
    Ok(Some(ControlConfig {
        heartbeat_url,
        acknowledge_url,
        flow_base_url: property("nifi.c2.flow.base.url").unwrap_or(beside),
        identifier,
        class: args
            .class
            .clone()
            .or_else(|| property("nifi.c2.agent.class")),
        period: period_of(&period)?,
    }))
}

fn heartbeat_url(url: &str) -> Result<String, AgentError> {
    let schemes = ["http://", "https://"];
    let rest = schemes
        .into_iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let Some(rest) = rest else {
        return Err(AgentError::Setting(format!(
            "--c2-url '{url}' must be an http:// or https:// address"
        )));
    };
    match rest.trim_end_matches('/').split_once('/') {
        None => Ok(format!("{}{EFM_HEARTBEAT}", url.trim_end_matches('/'))),
        Some(_) => Ok(url.to_owned()),
    }
}

/// A heartbeat's period: `5s`, `30 sec`, or bare milliseconds, as both MiNiFis write it.
fn period_of(text: &str) -> Result<HumanDuration, AgentError> {
    let bare = text.parse().ok().map(std::time::Duration::from_millis);
    match bare.or_else(|| units::duration(text)) {
        Some(period) if !period.is_zero() => Ok(HumanDuration(period)),
        _ => Err(AgentError::Setting(format!(
            "heartbeat period '{text}' is no duration: write it as 30 sec or 5s"
        ))),
    }
}

/// The agent's identifier: as told, else the one it had before, else a new one.
fn identifier(
    args: &RunArgs,
    properties: &Properties,
    repository: &Repository,
) -> Result<String, AgentError> {
    let keys = [
        "nifi.c2.agent.identifier",
        "nifi.c2.agent.identifier.fallback",
    ];
    let told = args
        .id
        .clone()
        .or_else(|| keys.iter().find_map(|key| properties.get(*key)).cloned());
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

type Properties = BTreeMap<String, String>;

/// Prints a sealed secret, or a flow with sealed secrets.
fn encrypt(
    data: Option<PathBuf>,
    flow: Option<&Path>,
    key: Option<String>,
) -> Result<(), AgentError> {
    let key = match key {
        Some(text) => SecretKey::parse(&text).map_err(AgentError::Setting)?,
        None => SecretKey::make_in_folder(&data.unwrap_or_else(|| PathBuf::from(DATA_DEFAULT)))?,
    };
    if let Some(path) = flow {
        let text = read(path)?;
        let sealed = seal(&text, &key)
            .map_err(|error| AgentError::Setting(format!("{}: {error}", path.display())))?;
        return print(&sealed.unwrap_or(text));
    }
    let mut secret = String::new();
    let mut input = std::io::stdin().take(SECRET_BYTES_MAX);
    input
        .read_to_string(&mut secret)
        .map_err(|source| AgentError::System {
            action: "read the secret",
            source,
        })?;
    let secret = secret.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        return Err(AgentError::Setting(
            "there is nothing to seal: write the secret into the standard input".to_owned(),
        ));
    }
    let sealed = key.seal(secret).map_err(AgentError::Setting)?;
    print(&format!("{sealed}\n"))
}

fn validate(path: &Path, data: Option<PathBuf>) -> Result<(), AgentError> {
    let data = data.unwrap_or_else(|| PathBuf::from(DATA_DEFAULT));
    let text = read(path)?;
    let origin = path.display().to_string();
    let key = SecretKey::in_folder(&data)?;
    let surroundings = Surroundings::of_process(&data.join("asset"), key)?;
    let flow = Flow::load(&text, &surroundings)
        .map_err(|problems| AgentError::Flow { origin, problems })?;
    let (processors, connections) = (flow.processors.len(), flow.connections.len());
    for note in &flow.notes.0 {
        print(&format!("note: {}: {}\n", note.path, note.message))?;
    }
    Prepared::new(base::Clock::now(&SystemClock), flow)?;
    print(&format!(
        "{}: {processors} processors, {connections} connections; good to run\n",
        path.display()
    ))
}

fn list(name: Option<&str>) -> Result<(), AgentError> {
    let mut out = String::new();
    let wanted = PROCESSORS
        .iter()
        .filter(|kind| name.is_none_or(|name| kind.name == name));
    for kind in wanted {
        out.push_str(&format!("{}: {}\n", kind.name, kind.description));
        for property in kind.properties {
            let mut notes = Vec::new();
            if property.required {
                notes.push("required".to_owned());
            }
            notes.extend(property.default.map(|value| format!("default {value}")));
            if !property.allowed.is_empty() {
                notes.push(format!("one of: {}", property.allowed.join(", ")));
            }
            let notes = if notes.is_empty() {
                String::new()
            } else {
                format!(" [{}]", notes.join("; "))
            };
            out.push_str(&format!(
                "    {}{notes}: {}\n",
                property.name, property.description
            ));
        }
        match kind.dynamic {
            Dynamic::None => {}
            Dynamic::Attributes => out.push_str("    any other name: an attribute to set\n"),
            Dynamic::Relationships | Dynamic::RelationshipsIf { .. } => {
                out.push_str("    any other name: a relationship with its condition\n");
            }
        }
        let relationships: Vec<&str> = kind.relationships.iter().map(|r| r.name).collect();
        let input = match kind.input {
            Input::Required => "takes input",
            Input::Allowed => "may take input",
            Input::Forbidden => "is a source",
        };
        out.push_str(&format!(
            "    -> {} ({input})\n\n",
            relationships.join(", ")
        ));
    }
    if out.is_empty() {
        let name = name.unwrap_or_default();
        return Err(AgentError::Setting(format!(
            "there is no processor '{name}'; `thalweg-agent processors` lists all"
        )));
    }
    print(&out)
}

/// Prints; a reader that went away early (`| head`) is no error.
fn print(text: &str) -> Result<(), AgentError> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(AgentError::System {
            action: "print",
            source: error,
        }),
        _ => Ok(()),
    }
}

/// Where a control plane listens when only its host is named.
const EFM_HEARTBEAT: &str = "/efm/api/c2-protocol/heartbeat";

const HEARTBEAT_DEFAULT: &str = "5s";

const DATA_DEFAULT: &str = "thalweg-agent-data";

const FLOW_FILE: &str = "nifi.flow.configuration.file";

const REPOSITORY_DIRECTORY: &str = "nifi.flowfile.repository.directory.default";

const ASSET_DIRECTORY: &str = "nifi.asset.directory";

/// Bytes of a secret: passwords and keys, not files.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The repository's key of the agent's identifier.
const IDENTIFIER_STATE: &str = "$identifier";

/// Threads for flow updates and name lookups; they end when idle.
const BLOCKING_THREADS: usize = 8;
