//! The command line: one table of commands, each in a file of its own.

mod acls;
mod agents;
mod backup;
mod classes;
mod client;
mod consume;
mod events;
mod flows;
mod groups;
mod import;
mod json_lines;
mod lab;
mod mqtt;
mod out;
mod parameters;
mod produce;
mod progress;
mod resources;
mod roles;
mod rollouts;
mod schemas;
mod statements;
mod store;
mod table;
mod tenants;
mod tokens;
mod topics;
mod upload;
mod users;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::up;

// One type, since clap passes a global argument on to a command that has one of the same name.
pub use agent::cli::Output;
pub use client::{Client, Trust, http_client};

/// Carries data from the edge to the core: fleet, agent, streams, statements, imports.
#[derive(Parser)]
#[command(name = "thalweg", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    /// Base URL of the management API, such as http://127.0.0.1:10090; by default what `up` wrote
    /// into the data folder.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "THALWEG_SERVER",
        help_heading = "Client"
    )]
    server: Option<String>,

    /// The user to log in as, where the server follows ACLs.
    #[arg(
        long,
        global = true,
        value_name = "USER",
        env = "THALWEG_LOGIN",
        help_heading = "Client"
    )]
    login: Option<String>,

    /// File that holds this user's password in its first line; asked for if not given.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "THALWEG_LOGIN_PASSWORD_FILE",
        help_heading = "Client"
    )]
    login_password_file: Option<PathBuf>,

    /// File that holds an API token in its first line, to log in with instead of a user's password.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        conflicts_with = "login",
        env = "THALWEG_TOKEN_FILE",
        help_heading = "Client"
    )]
    token_file: Option<PathBuf>,

    /// File with the certificates of those who sign the server's, in PEM; by default those that this
    /// machine believes.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "THALWEG_CA",
        help_heading = "Client"
    )]
    ca: Option<PathBuf>,

    /// File with your own certificate, in PEM, for a server that asks for one.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "client_key",
        env = "THALWEG_CLIENT_CERT",
        help_heading = "Client"
    )]
    client_cert: Option<PathBuf>,

    /// File with the key of your certificate, in PEM.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "client_cert",
        env = "THALWEG_CLIENT_KEY",
        help_heading = "Client"
    )]
    client_key: Option<PathBuf>,

    /// What to print: a table for people or JSON for scripts.
    #[arg(long, global = true, default_value = "table", help_heading = "Client")]
    output: Output,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the roles in one process on embedded defaults.
    Up(Box<up::Args>),
    /// Run an edge agent (also the small binary thalweg-agent).
    Agent(Box<agent::cli::Args>),
    /// List, create, describe and delete topics.
    #[command(subcommand)]
    Topics(topics::Command),
    /// List, describe, reset and delete consumer groups.
    #[command(subcommand)]
    Groups(groups::Command),
    /// List, add and remove the users who may log in.
    #[command(subcommand)]
    Users(users::Command),
    /// List, issue and remove the tokens that stand for users over HTTP.
    #[command(subcommand)]
    Tokens(tokens::Command),
    /// List, grant and revoke what callers of the management API may do in which classes.
    #[command(subcommand)]
    Roles(roles::Command),
    /// Show who changed what by the management API.
    Audit(roles::AuditArgs),
    /// List, add and remove what users may do.
    #[command(subcommand)]
    Acls(acls::Command),
    /// List, show, register, check and delete the schemas of the registry.
    #[command(subcommand)]
    Schemas(Box<schemas::Command>),
    /// Write lines from standard input or a file into a topic, a record a line.
    Produce(produce::Args),
    /// Print the records of topics as they come.
    Consume(consume::Args),
    /// Publish and subscribe over MQTT; list clients, retained messages, refusals, bridges and topic rules.
    #[command(subcommand)]
    Mqtt(mqtt::Command),
    /// List, show and remove the fleet's agents, and ask them for operations; their manifests.
    #[command(subcommand, visible_alias = "fleet")]
    Agents(agents::Command),
    /// List, describe and remove classes of agents; their resources, parameters and manifests.
    #[command(subcommand)]
    Classes(classes::Command),
    /// Publish a flow to a class; list and show flows.
    #[command(subcommand)]
    Flows(flows::Command),
    /// Upload files that agents are to have beside their flows.
    #[command(subcommand)]
    Resources(resources::Command),
    /// Roll a flow out to a class in batches, and steer that.
    #[command(subcommand)]
    Rollouts(rollouts::Command),
    /// List what happened in the fleet, newest first.
    Events(events::Args),
    /// Add, list, explain, watch, pause, replace and remove statements.
    #[command(subcommand)]
    Statements(statements::Command),
    /// Keep tenants: their weights, quotas and members, and what they use.
    #[command(subcommand)]
    Tenants(tenants::Command),
    /// Load a file of records for a tenant and watch it to its end.
    Import(import::Args),
    /// List, show, steer and retry import jobs.
    #[command(subcommand)]
    Imports(import::JobsCommand),
    /// Check or print the event store of a data folder that no process has open.
    #[command(subcommand)]
    Store(store::Command),
    /// Rerun the experiments and draw their reports (runs the binary thalweg-lab).
    #[command(disable_help_flag = true)]
    Lab(lab::Args),
    /// Print the default configuration, every key with its meaning.
    Config,
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell, such as bash, zsh or fish.
        shell: clap_complete::Shell,
    },
}

/// Runs one command to its end.
///
/// # Errors
/// The failure as one line that says what to do next.
pub fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let client = || {
        let file = cli.login_password_file.as_deref();
        let login = match (&cli.token_file, cli.login.clone()) {
            (Some(token), _) => Some(client::Login::by_token(token)?),
            (None, Some(name)) => Some(client::Login::of(name, file)?),
            (None, None) => None,
        };
        let trust = client::Trust {
            ca: cli.ca.clone(),
            certificate: cli.client_cert.clone(),
            key: cli.client_key.clone(),
        };
        Client::new(cli.server.clone(), cli.output, login, trust)
    };
    match cli.command {
        Command::Up(args) => up::run(*args),
        Command::Agent(args) => {
            let logs = agent::Logs::start();
            crate::demo::end_with_parent();
            agent::cli::run(*args, &logs)
                .map(|()| ExitCode::SUCCESS)
                .map_err(|error| Failure(base::report(&error)))
        }
        Command::Store(command) => store::run(command, cli.output).map(|()| ExitCode::SUCCESS),
        Command::Lab(args) => lab::run(args),
        Command::Config => {
            out::text(crate::config::DEFAULTS);
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions { shell } => {
            let mut command = Cli::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "thalweg", &mut script);
            out::text(String::from_utf8_lossy(&script));
            Ok(ExitCode::SUCCESS)
        }
        Command::Topics(command) => block_on(topics::run(client()?, command)),
        Command::Groups(command) => block_on(groups::run(client()?, command)),
        Command::Users(command) => block_on(users::run(client()?, command)),
        Command::Tokens(command) => block_on(tokens::run(client()?, command)),
        Command::Roles(command) => block_on(roles::run(client()?, command)),
        Command::Audit(args) => block_on(roles::audit(client()?, args)),
        Command::Acls(command) => block_on(acls::run(client()?, command)),
        Command::Schemas(command) => block_on(schemas::run(client()?, *command)),
        Command::Produce(args) => block_on(produce::run(client()?, args)),
        Command::Consume(args) => block_on(consume::run(client()?, args)),
        Command::Mqtt(command) => block_on(mqtt::run(client()?, command)),
        Command::Agents(command) => block_on(agents::run(client()?, command)),
        Command::Classes(command) => block_on(classes::run(client()?, command)),
        Command::Flows(command) => block_on(flows::run(client()?, command)),
        Command::Resources(command) => block_on(resources::run(client()?, command)),
        Command::Events(args) => block_on(events::run(client()?, args)),
        Command::Rollouts(command) => block_on(rollouts::run(client()?, command)),
        Command::Statements(command) => block_on(statements::run(client()?, command)),
        Command::Tenants(command) => block_on(tenants::run(client()?, command)),
        Command::Import(args) => block_on(import::run(client()?, args)),
        Command::Imports(command) => block_on(import::jobs(client()?, command)),
    }
}

/// Why a command ended badly, in words for the person who typed it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// A failure of `what` because of `error`, with the whole chain of causes.
    pub fn because(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Failure(format!("{what}: {}", base::report(error)))
    }
}

fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::because("cannot start", &error))?;
    runtime.block_on(work).map(|()| ExitCode::SUCCESS)
}

/// Reads a file named on the command line; `-` is standard input.
fn read_file(path: &PathBuf) -> Result<Vec<u8>, Failure> {
    let read = if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map_err(|error| Failure::because(&format!("cannot read {}", path.display()), &error))
}

const COMPLETIONS_HELP: &str = "\
Examples:
  thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg
  thalweg completions zsh > ~/.zfunc/_thalweg
  thalweg completions fish > ~/.config/fish/completions/thalweg.fish
The shell reads it when it is started next; zsh where ~/.zfunc is in its fpath.";

const AFTER_HELP: &str = "\
First steps:
  thalweg up --demo                       run everything, with an agent that feeds it
  thalweg topics list                     what is there
  thalweg consume demo-log                follow a topic
  thalweg statements list                 what is computed
The console is at http://127.0.0.1:10090/ while `up` runs.";

#[cfg(test)]
mod tests;
