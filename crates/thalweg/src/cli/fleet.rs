//! `thalweg agents`, `classes`, `rollouts` and `events`: the fleet, and what it is asked to do.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;

use super::client::segment;
use super::{Client, Failure};

#[derive(Subcommand)]
pub enum AgentsCommand {
    /// List agents with state, last heartbeat and flow.
    List,
    /// Show one agent.
    Show {
        /// The agent's identifier.
        id: String,
    },
    /// Remove an agent with its operations and parameters; one that still calls comes back.
    Remove {
        /// The agent's identifier.
        id: String,
    },
    /// List the manifests that agents have, show one, or what is different between two.
    Manifests {
        /// Only those of this class's agents.
        #[arg(long, conflicts_with = "hash")]
        class: Option<String>,
        /// The manifest to show.
        hash: Option<String>,
        /// The manifest to compare it with.
        #[arg(long, value_name = "HASH", requires = "hash")]
        against: Option<String>,
    },
    /// List operations, newest first.
    Operations {
        /// Only this agent's.
        id: Option<String>,
        /// Only those of this class's agents.
        #[arg(long)]
        class: Option<String>,
        /// Only those that are queued, deployed, done, failed, timed_out or cancelled.
        #[arg(long)]
        state: Option<String>,
        /// Only those of this request.
        #[arg(long)]
        request: Option<String>,
    },
    /// Ask an agent, or all agents of a class, for an operation.
    #[command(after_help = ASK_HELP)]
    Ask {
        #[command(flatten)]
        target: Target,
        /// DESCRIBE, UPDATE, SYNC, TRANSFER, START, STOP, RESTART, CLEAR, PAUSE or RESUME.
        operation: String,
        /// What it is done to, such as asset or flow.
        operand: Option<String>,
        /// An argument, such as file=model; a value in JSON is taken as such.
        #[arg(long = "arg", value_name = "NAME=VALUE")]
        args: Vec<String>,
    },
    /// Give up an operation, or all that is under way of a request.
    Cancel {
        /// The operation's id.
        #[arg(required_unless_present = "request")]
        id: Option<String>,
        /// The request's id.
        #[arg(long, conflicts_with = "id")]
        request: Option<String>,
    },
    /// Print what an agent answered to a DESCRIBE.
    Result {
        /// The operation's id.
        id: String,
    },
    /// List debug bundles, or fetch one.
    Bundles {
        /// Only this agent's.
        #[arg(long)]
        agent: Option<String>,
        /// Fetch the bundle of this operation.
        #[arg(long, requires = "to")]
        fetch: Option<String>,
        /// The file to write it to.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Show or set parameters of an agent's flow.
    Parameters {
        /// The agent's identifier.
        id: String,
        #[command(flatten)]
        change: ParameterChange,
    },
}

/// Whom an operation is asked of.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Target {
    /// The agent's identifier.
    #[arg(long)]
    agent: Option<String>,
    /// The class.
    #[arg(long)]
    class: Option<String>,
}

/// What to change of parameters; nothing lists them.
#[derive(clap::Args)]
pub struct ParameterChange {
    /// Sets one.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Sets one that nobody is shown; its value is the first line of a file, `-` is standard input.
    #[arg(long, value_name = "NAME=FILE")]
    secret: Vec<String>,
    /// Removes one.
    #[arg(long, value_name = "NAME")]
    remove: Vec<String>,
}

#[derive(Subcommand)]
pub enum ClassesCommand {
    /// List agent classes with their published flow.
    List,
    /// Make a class, or describe one; agents and flows make classes by themselves.
    Describe {
        /// The class.
        class: String,
        /// What it is, for people.
        description: String,
    },
    /// Remove a class that no agent is in, with its flows, roll-outs and parameters.
    Remove {
        /// The class.
        class: String,
    },
    /// Show which resources a class's agents have, or change it.
    Resources {
        /// The class.
        class: String,
        /// Gives it the resource of this id; one of the same name and path is replaced.
        #[arg(long, value_name = "ID")]
        assign: Vec<String>,
        /// Takes the resource of this id from it.
        #[arg(long, value_name = "ID")]
        unassign: Vec<String>,
    },
    /// Show which manifest a class's flows are checked against, or change how it is found.
    Manifest {
        /// The class.
        class: String,
        /// The rule: the first one, the last one, or that of most agents.
        #[arg(long, value_parser = ["first", "last", "most"], conflicts_with_all = ["pin", "default"])]
        rule: Option<String>,
        /// Holds it to the manifest of this hash.
        #[arg(long, value_name = "HASH", conflicts_with = "default")]
        pin: Option<String>,
        /// Goes back to the general rule.
        #[arg(long)]
        default: bool,
    },
    /// Show or set parameters of a class's flows.
    Parameters {
        /// The class.
        class: String,
        #[command(flatten)]
        change: ParameterChange,
    },
}

#[derive(Subcommand)]
pub enum RolloutsCommand {
    /// List the roll-outs of a class.
    List {
        /// The agent class.
        #[arg(long)]
        class: String,
    },
    /// Roll a flow that is stored out to its class, in batches.
    Begin {
        /// The agent class.
        #[arg(long)]
        class: String,
        /// Agents that may be at it at a time.
        #[arg(long, default_value_t = 100)]
        batch: u32,
        /// The least time between two batches, such as `30s`.
        #[arg(long, default_value = "10s")]
        interval: String,
        /// The share of agents that goes first, in percent.
        #[arg(long, default_value_t = 0)]
        canary: u8,
        /// The share of failed agents above which it halts, in percent.
        #[arg(long, default_value_t = 20)]
        failures: u8,
        /// The flow's id.
        flow: String,
    },
    /// Show a roll-out and how far it has come.
    Show {
        /// The roll-out's id.
        id: String,
    },
    /// Stop a roll-out for a while.
    Pause {
        /// The roll-out's id.
        id: String,
    },
    /// Go on with a roll-out that was paused or halted.
    Resume {
        /// The roll-out's id.
        id: String,
    },
    /// End a roll-out; agents that have the flow keep it.
    Abort {
        /// The roll-out's id.
        id: String,
    },
    /// Take all agents back to the flow before.
    Rollback {
        /// The roll-out's id.
        id: String,
    },
}

#[derive(clap::Args)]
pub struct EventsArgs {
    /// Only this level (`debug`, `info`, `warn`, `error`) and graver ones.
    #[arg(long)]
    level: Option<String>,
    /// Only of this class.
    #[arg(long)]
    class: Option<String>,
    /// Only of this agent.
    #[arg(long)]
    agent: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

pub async fn events(client: Client, args: EventsArgs) -> Result<(), Failure> {
    let mut path = format!("/api/v1/events?limit={}", args.limit);
    for (key, value) in [
        ("level", args.level),
        ("class", args.class),
        ("agent", args.agent),
    ] {
        if let Some(value) = value {
            path.push_str(&format!("&{key}={}", segment(&value)));
        }
    }
    client.print_list(&client.get(&path).await?, "events", &EVENT_COLUMNS);
    Ok(())
}

pub async fn rollouts(client: Client, command: RolloutsCommand) -> Result<(), Failure> {
    let (id, wish) = match command {
        RolloutsCommand::List { class } => {
            let path = format!("/api/v1/classes/{}/rollouts", segment(&class));
            client.print_list(&client.get(&path).await?, "rollouts", &ROLLOUT_COLUMNS);
            return Ok(());
        }
        RolloutsCommand::Begin {
            class,
            batch,
            interval,
            canary,
            failures,
            flow,
        } => {
            let path = format!("/api/v1/classes/{}/rollouts", segment(&class));
            let body = serde_json::json!({
                "flow_id": flow, "batch_agents": batch, "batch_interval": interval,
                "canary_percent": canary, "failures_percent": failures,
            });
            let request = client.request(Method::POST, &path).json(&body);
            client.print_object(&client.send(request).await?);
            return Ok(());
        }
        RolloutsCommand::Show { id } => {
            let path = format!("/api/v1/rollouts/{}", segment(&id));
            client.print_object(&client.get(&path).await?);
            return Ok(());
        }
        RolloutsCommand::Pause { id } => (id, "pause"),
        RolloutsCommand::Resume { id } => (id, "resume"),
        RolloutsCommand::Abort { id } => (id, "abort"),
        RolloutsCommand::Rollback { id } => (id, "rollback"),
    };
    let path = format!("/api/v1/rollouts/{}/{wish}", segment(&id));
    let request = client.request(Method::POST, &path);
    client.print_object(&client.send(request).await?);
    Ok(())
}

pub async fn agents(client: Client, command: AgentsCommand) -> Result<(), Failure> {
    match command {
        AgentsCommand::List => {
            let answer = client.get("/api/v1/agents").await?;
            client.print_list(&answer, "agents", &AGENT_COLUMNS);
        }
        AgentsCommand::Show { id } => {
            let path = format!("/api/v1/agents/{}", segment(&id));
            client.print_object(&client.get(&path).await?);
        }
        AgentsCommand::Remove { id } => {
            let path = format!("/api/v1/agents/{}", segment(&id));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
        AgentsCommand::Manifests {
            class,
            hash,
            against,
        } => manifests(&client, class, hash, against).await?,
        AgentsCommand::Operations {
            id,
            class,
            state,
            request,
        } => {
            let wanted = [
                ("agent", id),
                ("class", class),
                ("state", state),
                ("request", request),
            ];
            let path = format!("/api/v1/operations{}", query(wanted));
            client.print_list(&client.get(&path).await?, "operations", &OPERATION_COLUMNS);
        }
        AgentsCommand::Ask {
            target,
            operation,
            operand,
            args,
        } => ask(&client, target, operation, operand, &args).await?,
        AgentsCommand::Cancel { id, request } => {
            let path = match (id, request) {
                (Some(id), _) => format!("/api/v1/operations/{}/cancel", segment(&id)),
                (None, request) => {
                    let request = request.unwrap_or_default();
                    format!("/api/v1/requests/{}/cancel", segment(&request))
                }
            };
            client.print_object(&client.send(client.request(Method::POST, &path)).await?);
        }
        AgentsCommand::Result { id } => {
            let path = format!("/api/v1/operations/{}/result", segment(&id));
            println!("{:#}", client.get(&path).await?);
        }
        AgentsCommand::Bundles { agent, fetch, to } => match (fetch, to) {
            (Some(id), Some(to)) => {
                let path = format!("/api/v1/bundles/{}/content", segment(&id));
                download(&client, &path, &to).await?;
            }
            _ => {
                let path = format!("/api/v1/bundles{}", query([("agent", agent)]));
                client.print_list(&client.get(&path).await?, "bundles", &BUNDLE_COLUMNS);
            }
        },
        AgentsCommand::Parameters { id, change } => {
            let path = format!("/api/v1/agents/{}/parameters", segment(&id));
            parameters(&client, &path, &change).await?;
        }
    }
    Ok(())
}

async fn manifests(
    client: &Client,
    class: Option<String>,
    hash: Option<String>,
    against: Option<String>,
) -> Result<(), Failure> {
    let Some(hash) = hash else {
        let path = format!("/api/v1/manifests{}", query([("class", class)]));
        client.print_list(&client.get(&path).await?, "manifests", &MANIFEST_COLUMNS);
        return Ok(());
    };
    let path = format!("/api/v1/manifests/{}", segment(&hash));
    if against.is_none() {
        println!("{:#}", client.get(&path).await?);
        return Ok(());
    }
    let path = format!("{path}/diff{}", query([("against", against)]));
    client.print_list(
        &client.get(&path).await?,
        "differences",
        &super::flows::DIFF_COLUMNS,
    );
    Ok(())
}

pub async fn classes(client: Client, command: ClassesCommand) -> Result<(), Failure> {
    match command {
        ClassesCommand::List => {
            let answer = client.get("/api/v1/classes").await?;
            client.print_list(&answer, "classes", &CLASS_COLUMNS);
        }
        ClassesCommand::Describe { class, description } => {
            let path = format!("/api/v1/classes/{}", segment(&class));
            let request = client.request(Method::PUT, &path);
            let request = request.json(&json!({"description": description}));
            client.print_object(&client.send(request).await?);
        }
        ClassesCommand::Remove { class } => {
            let path = format!("/api/v1/classes/{}", segment(&class));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
        ClassesCommand::Resources {
            class,
            assign,
            unassign,
        } => {
            let path = format!("/api/v1/classes/{}/resources", segment(&class));
            let answer = if assign.is_empty() && unassign.is_empty() {
                client.get(&path).await?
            } else {
                let wanted = json!({"assign": assign, "unassign": unassign});
                let request = client.request(Method::PUT, &path).json(&wanted);
                client.send(request).await?
            };
            client.print_list(&answer, "resources", &RESOURCE_COLUMNS);
        }
        ClassesCommand::Manifest {
            class,
            rule,
            pin,
            default,
        } => {
            let path = format!("/api/v1/classes/{}/manifest", segment(&class));
            let set = |wanted: Value| client.request(Method::PUT, &path).json(&wanted);
            let answer = match (rule, pin, default) {
                (Some(rule), ..) => client.send(set(json!({"resolution": rule}))).await?,
                (_, Some(hash), _) => {
                    let wanted = json!({"resolution": "pinned", "hash": hash});
                    client.send(set(wanted)).await?
                }
                (.., true) => client.send(client.request(Method::DELETE, &path)).await?,
                _ => client.get(&path).await?,
            };
            client.print_object(&answer);
        }
        ClassesCommand::Parameters { class, change } => {
            let path = format!("/api/v1/classes/{}/parameters", segment(&class));
            parameters(&client, &path, &change).await?;
        }
    }
    Ok(())
}

async fn ask(
    client: &Client,
    target: Target,
    operation: String,
    operand: Option<String>,
    args: &[String],
) -> Result<(), Failure> {
    let mut given = Map::new();
    for arg in args {
        let (name, text) = pair(arg)?;
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        given.insert(name.to_owned(), value);
    }
    let path = match (target.agent, target.class) {
        (Some(agent), _) => format!("/api/v1/agents/{}/operations", segment(&agent)),
        (None, class) => {
            let class = class.unwrap_or_default();
            format!("/api/v1/classes/{}/operations", segment(&class))
        }
    };
    let mut wanted = json!({"operation": operation, "args": given});
    if let Some(operand) = operand {
        wanted["operand"] = Value::from(operand);
    }
    let answer = client
        .send(client.request(Method::POST, &path).json(&wanted))
        .await?;
    client.print_object(&answer);
    Ok(())
}

/// Changes parameters, if there is anything to change, and prints them.
pub async fn parameters(
    client: &Client,
    path: &str,
    change: &ParameterChange,
) -> Result<(), Failure> {
    let mut wanted = Map::new();
    for text in &change.set {
        let (name, value) = pair(text)?;
        wanted.insert(name.to_owned(), json!({"value": value}));
    }
    for text in &change.secret {
        let (name, file) = pair(text)?;
        let bytes = super::read_file(&PathBuf::from(file))?;
        let text = String::from_utf8_lossy(&bytes);
        let value = text.lines().next().unwrap_or_default();
        wanted.insert(name.to_owned(), json!({"value": value, "sensitive": true}));
    }
    for name in &change.remove {
        wanted.insert(name.clone(), Value::Null);
    }
    let answer = if wanted.is_empty() {
        client.get(path).await?
    } else {
        let request = client.request(Method::PATCH, path).json(&wanted);
        client.send(request).await?
    };
    client.print_list(&answer, "parameters", &PARAMETER_COLUMNS);
    Ok(())
}

/// Writes an answer's body to a file as it comes.
pub async fn download(client: &Client, path: &str, to: &Path) -> Result<(), Failure> {
    let mut answer = client.raw(client.request(Method::GET, path)).await?;
    let failed =
        |error: std::io::Error| Failure::because(&format!("cannot write {}", to.display()), &error);
    let mut file = tokio::fs::File::create(to).await.map_err(failed)?;
    while let Some(bytes) = answer
        .chunk()
        .await
        .map_err(|error| Failure::because("the answer broke off", &error))?
    {
        file.write_all(&bytes).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)
}

/// The parameters of an address that are given.
pub fn query<const N: usize>(wanted: [(&str, Option<String>); N]) -> String {
    let given = wanted.into_iter().filter_map(|(name, value)| {
        let value = value?;
        Some(format!("{name}={}", segment(&value)))
    });
    let all: Vec<String> = given.collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("?{}", all.join("&")),
    }
}

fn pair(text: &str) -> Result<(&str, &str), Failure> {
    text.split_once('=')
        .ok_or_else(|| Failure(format!("write '{text}' as NAME=VALUE")))
}

const AGENT_COLUMNS: [(&str, &str); 6] = [
    ("AGENT", "id"),
    ("CLASS", "class"),
    ("STATE", "state"),
    ("LAST SEEN", "last_seen_ms"),
    ("FLOW", "flow_id"),
    ("FLOW STATE", "flow_state"),
];

const OPERATION_COLUMNS: [(&str, &str); 6] = [
    ("OPERATION", "id"),
    ("KIND", "operation"),
    ("OPERAND", "operand"),
    ("STATE", "state"),
    ("UPDATED", "updated_ms"),
    ("DETAILS", "details"),
];

const CLASS_COLUMNS: [(&str, &str); 5] = [
    ("CLASS", "name"),
    ("AGENTS", "agents"),
    ("ONLINE", "agents_online"),
    ("FLOW", "flow_id"),
    ("VERSION", "flow_version"),
];

const MANIFEST_COLUMNS: [(&str, &str); 4] = [
    ("MANIFEST", "hash"),
    ("TYPE", "agent_type"),
    ("VERSION", "agent_version"),
    ("AGENTS", "agents"),
];

const BUNDLE_COLUMNS: [(&str, &str); 5] = [
    ("BUNDLE", "id"),
    ("AGENT", "agent_id"),
    ("NAME", "name"),
    ("BYTES", "bytes"),
    ("RECEIVED", "created_ms"),
];

const EVENT_COLUMNS: [(&str, &str); 5] = [
    ("AT", "at_ms"),
    ("LEVEL", "level"),
    ("KIND", "kind"),
    ("AGENT", "agent_id"),
    ("MESSAGE", "message"),
];

const ROLLOUT_COLUMNS: [(&str, &str); 5] = [
    ("ROLL-OUT", "id"),
    ("FLOW", "flow_id"),
    ("STATE", "state"),
    ("CREATED", "created_ms"),
    ("REASON", "reason"),
];

/// A resource in a list.
pub const RESOURCE_COLUMNS: [(&str, &str); 6] = [
    ("RESOURCE", "id"),
    ("NAME", "name"),
    ("TYPE", "type"),
    ("PATH", "path"),
    ("BYTES", "bytes"),
    ("UPLOADED", "created_ms"),
];

const PARAMETER_COLUMNS: [(&str, &str); 4] = [
    ("PARAMETER", "name"),
    ("VALUE", "value"),
    ("SENSITIVE", "sensitive"),
    ("CHANGED", "changed_ms"),
];

const ASK_HELP: &str = "\
Examples:
  thalweg agents ask --agent edge-1 TRANSFER debug
  thalweg agents ask --class edge STOP flow
  thalweg agents ask --class edge UPDATE properties --arg nifi.c2.agent.heartbeat.period=10000
  thalweg agents ask --agent edge-1 CLEAR connection --arg 'connections=[\"a/b\"]'
An agent that cannot do it is refused at once, with the reason.";
