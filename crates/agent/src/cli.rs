//! The agent's command line, for `thalweg-agent` and `thalweg agent` alike.

mod listing;
mod offline;

use std::io::Write;
use std::path::{Path, PathBuf};

use base::HumanDuration;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use crate::AgentError;
use crate::configuration;
use crate::life::{self, Ended};
use crate::local::{self, ProvenanceQuestion, Question};
use crate::logs::Logs;

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
        /// Refuse what is otherwise only noted
        #[arg(long)]
        strict: bool,
        /// Data folder of the agent that is to run it: its key opens sealed values
        #[arg(long, value_name = "DIR", env = "THALWEG_AGENT_DATA")]
        data: Option<PathBuf>,
        /// Folder of the extensions that it is to have
        #[arg(long, value_name = "DIR", env = "THALWEG_AGENT_EXTENSIONS")]
        extensions: Option<PathBuf>,
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
    /// List the processors and controller services with their properties, or show one
    Processors {
        /// Only this one
        name: Option<String>,
        /// Folder of extensions, whose processors are listed too
        #[arg(long, value_name = "DIR", env = "THALWEG_AGENT_EXTENSIONS")]
        extensions: Option<PathBuf>,
        /// How to write it
        #[arg(long, value_enum, default_value_t)]
        output: Output,
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
        #[arg(long, value_enum, default_value_t, global = true)]
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
    #[arg(long, value_name = "DIR", env = "THALWEG_AGENT_DATA", global = true)]
    pub data: Option<PathBuf>,
}

/// How answers are written, by these commands and by those of `thalweg` around them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    #[value(alias = "text")]
    Table,
    /// For scripts
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

/// Reads the extensions in `folder`, where one is named.
fn extend(folder: Option<&Path>) -> Result<(), AgentError> {
    match folder {
        Some(folder) => crate::extensions::load(folder).map(drop),
        None => Ok(()),
    }
}

/// Does what the arguments say. Not to be called on a thread that runs futures.
///
/// Errors: everything that keeps the agent from starting or going on; the text says what to do.
pub fn run(args: Args, logs: &Logs) -> Result<(), AgentError> {
    match args.command {
        None => run_flow(&args.run, logs),
        Some(Command::Run(run)) => run_flow(&run, logs),
        Some(Command::Validate {
            flow,
            strict,
            data,
            extensions,
        }) => {
            extend(extensions.as_deref())?;
            offline::validate(&flow, &folder(data), strict)
        }
        Some(Command::Encrypt { data, flow, key }) => {
            offline::encrypt(&folder(data), flow.as_deref(), key)
        }
        Some(Command::Processors {
            name,
            extensions,
            output,
        }) => {
            extend(extensions.as_deref())?;
            listing::list(name.as_deref(), output)
        }
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

/// The data folder, where none is named too.
fn folder(data: Option<PathBuf>) -> PathBuf {
    data.unwrap_or_else(|| PathBuf::from(DATA_DEFAULT))
}

impl Place {
    fn folder(&self) -> PathBuf {
        folder(self.data.clone())
    }
}

impl RunArgs {
    /// The data folder.
    pub(crate) fn folder(&self) -> PathBuf {
        folder(self.data.clone())
    }

    /// Settings that these arguments decide, by key.
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
        let set = self.set.iter().filter_map(|set| set.split_once('='));
        let set = set.filter_map(|(name, _)| configuration::find(name.trim()));
        decided
            .map(|(_, key)| key)
            .chain(set.map(|key| key.kind.name))
            .collect()
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
    match life::run(args, logs)? {
        Ended::Stopped => Ok(()),
        Ended::Restarts => Err(life::start_anew()),
    }
}

/// Prints; a reader that went away early (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), AgentError> {
    print_on(text).map(drop)
}

/// Prints; false when nobody reads any more.
pub(crate) fn print_on(text: &str) -> Result<bool, AgentError> {
    base::still_read(std::io::stdout().write_all(text.as_bytes())).map_err(|source| {
        AgentError::System {
            action: "print",
            source,
        }
    })
}

const DATA_DEFAULT: &str = "thalweg-agent-data";
