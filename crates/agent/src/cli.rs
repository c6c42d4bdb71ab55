//! The agent's command line, for `thalweg-agent` and `thalweg agent` alike.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use base::{HumanDuration, SystemClock};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use crate::AgentError;
use crate::configuration::{Configuration, Sources};
use crate::definition::{Flow, seal};
use crate::engine::Prepared;
use crate::life::{self, Ended};
use crate::local::{self, ProvenanceQuestion, Question};
use crate::logs::Logs;
use crate::parameters::{Outside, SecretKey};
use crate::processors::{Dynamic, Input, PROCESSORS};
use crate::supervisor::read;

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
        /// Where the agent is that is to run it: its key opens sealed values
        #[command(flatten)]
        place: Place,
    },
    /// Seal a secret from the standard input, or all secrets of a flow, for flows and settings
    Encrypt {
        /// Where the agent is that is to open it; its key is made if there is none
        #[command(flatten)]
        place: Place,
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
    /// Show a running agent's processors, queues and rates
    Status {
        /// Where it is
        #[command(flatten)]
        place: Place,
        /// Show it once and end
        #[arg(long)]
        once: bool,
        /// Time between two looks
        #[arg(long, value_name = "TIME", default_value = "1s")]
        every: HumanDuration,
        /// How to write it
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Show, stop and start the flow of a running agent
    Flow {
        /// What to do
        #[command(subcommand)]
        command: FlowCommand,
        /// Where it is
        #[command(flatten)]
        place: Place,
        /// How to write it
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Show what happened to FlowFiles in a running agent: by time, or the lineage of one
    Provenance {
        /// The FlowFile whose lineage is wanted: all that it came from, all that came from it
        uuid: Option<String>,
        /// Not before this time, such as 2026-01-31T12:00:00Z
        #[arg(long, value_name = "TIME")]
        from: Option<String>,
        /// Before this time
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// Only events of these kinds, such as RECEIVE or DROP
        #[arg(long, value_name = "KIND", value_delimiter = ',')]
        kind: Vec<String>,
        /// Only of this processor, by id
        #[arg(long, value_name = "ID")]
        processor: Option<String>,
        /// At most so many, the newest [default: 1000]
        #[arg(long, value_name = "COUNT")]
        count: Option<usize>,
        /// Where it is
        #[command(flatten)]
        place: Place,
        /// How to write it
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Write what helps to find out why a running agent does what it does; without its secrets
    Debug {
        /// Where it is
        #[command(flatten)]
        place: Place,
        /// File to write, a tar.gz
        #[arg(
            long,
            value_name = "FILE",
            default_value = "thalweg-agent-debug.tar.gz"
        )]
        to: PathBuf,
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

/// Where the agent is that a command is about.
#[derive(Clone, Debug, ClapArgs)]
pub struct Place {
    /// Data folder of the running agent [default: thalweg-agent-data]
    #[arg(long, value_name = "DIR", env = "THALWEG_AGENT_DATA")]
    pub data: Option<PathBuf>,
}

/// How answers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// What can be done with a running flow.
#[derive(Clone, Debug, Subcommand)]
pub enum FlowCommand {
    /// Show the flow's definition, without its secrets
    Show,
    /// Stop the flow, or one processor; what is queued stays
    Stop {
        /// Its id or name; the whole flow without
        processor: Option<String>,
    },
    /// Start what was stopped
    Start {
        /// Its id or name; the whole flow without
        processor: Option<String>,
    },
}

/// Does what the arguments say. Not to be called on a thread that runs futures.
///
/// Errors: everything that keeps the agent from starting or going on; the text says what to do.
pub fn run(args: Args, logs: &Logs) -> Result<(), AgentError> {
    match args.command {
        None => run_flow(&args.run, logs),
        Some(Command::Run(run)) => run_flow(&run, logs),
        Some(Command::Validate { flow, place }) => validate(&flow, &place.folder()),
        Some(Command::Encrypt { place, flow, key }) => {
            encrypt(&place.folder(), flow.as_deref(), key)
        }
        Some(Command::Processors { name }) => list(name.as_deref()),
        Some(Command::Status {
            place,
            once,
            every,
            output,
        }) => local::status(&place.folder(), output, once, every.0),
        Some(Command::Flow {
            command,
            place,
            output,
        }) => local::flow(&place.folder(), &command.into(), output),
        Some(Command::Provenance {
            uuid,
            from,
            until,
            kind,
            processor,
            count,
            place,
            output,
        }) => {
            let question = ProvenanceQuestion {
                uuid,
                from_ms: from.as_deref().map(moment).transpose()?,
                until_ms: until.as_deref().map(moment).transpose()?,
                kinds: kind,
                component: processor,
                count,
            };
            local::provenance(&place.folder(), question, output)
        }
        Some(Command::Debug { place, to }) => local::debug(&place.folder(), &to),
    }
}

/// Milliseconds since 1970 of a time in RFC 3339.
fn moment(text: &str) -> Result<i64, AgentError> {
    let found = base::parse_rfc3339(text);
    found.ok_or_else(|| {
        AgentError::Setting(format!(
            "'{text}' is no time: write it as 2026-01-31T12:00:00Z"
        ))
    })
}

impl Place {
    fn folder(&self) -> PathBuf {
        self.data
            .clone()
            .unwrap_or_else(|| PathBuf::from(DATA_DEFAULT))
    }
}

impl RunArgs {
    /// The data folder.
    pub(crate) fn folder(&self) -> PathBuf {
        self.data
            .clone()
            .unwrap_or_else(|| PathBuf::from(DATA_DEFAULT))
    }

    /// Where the settings stand.
    fn sources(&self) -> Sources {
        Sources {
            properties: self.properties.clone(),
            toml: self.config.clone(),
            set: self.set.clone(),
        }
    }

    /// Keys of the properties file that these arguments decide.
    pub(crate) fn decided(&self) -> Vec<&'static str> {
        let decides = [
            (self.flow.is_some(), "nifi.flow.configuration.file"),
            (self.c2_url.is_some(), "nifi.c2.rest.url"),
            (self.c2_ack_url.is_some(), "nifi.c2.rest.url.ack"),
            (self.class.is_some(), "nifi.c2.agent.class"),
            (self.id.is_some(), "nifi.c2.agent.identifier"),
            (self.heartbeat.is_some(), "nifi.c2.agent.heartbeat.period"),
        ];
        let decided = decides.into_iter().filter(|(is_set, _)| *is_set);
        decided.map(|(_, key)| key).collect()
    }
}

impl From<FlowCommand> for Question {
    fn from(command: FlowCommand) -> Question {
        match command {
            FlowCommand::Show => Question::Flow,
            FlowCommand::Stop { processor } => Question::Stop { processor },
            FlowCommand::Start { processor } => Question::Start { processor },
        }
    }
}

fn run_flow(args: &RunArgs, logs: &Logs) -> Result<(), AgentError> {
    let configuration = Configuration::read(&args.sources(), &args.folder())?;
    match life::run(args, configuration, logs)? {
        Ended::Stopped => Ok(()),
        Ended::Restarts => Err(start_anew()),
    }
}

/// Becomes the same program with the same arguments; returns only if that fails.
fn start_anew() -> AgentError {
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

fn validate(path: &Path, data: &Path) -> Result<(), AgentError> {
    let text = read(path)?;
    let origin = path.display().to_string();
    let outside = Outside {
        assets: data.join("asset"),
        key: SecretKey::in_folder(data)?,
    };
    let flow = Flow::load(&text, &outside.surroundings()?)
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

/// Prints a sealed secret, or a flow with sealed secrets.
fn encrypt(data: &Path, flow: Option<&Path>, key: Option<String>) -> Result<(), AgentError> {
    let key = match key {
        Some(text) => SecretKey::parse(&text).map_err(AgentError::Setting)?,
        None => SecretKey::make_in_folder(data)?,
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
pub(crate) fn print(text: &str) -> Result<(), AgentError> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(AgentError::System {
            action: "print",
            source: error,
        }),
        _ => Ok(()),
    }
}

const DATA_DEFAULT: &str = "thalweg-agent-data";

/// Bytes of a secret: passwords and keys, not files.
const SECRET_BYTES_MAX: u64 = 64 << 10;
