//! `thalweg agents`: who they are, what they can do, and what they are asked to do.

use std::path::PathBuf;

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::client::{download, query, segment};
use super::flows::DIFF_COLUMNS;
use super::parameters::{self, Change, pair};
use super::{Client, Failure, out};

#[derive(Subcommand)]
pub enum Command {
    /// List agents with state, last heartbeat and flow.
    List {
        /// Only those without a class.
        #[arg(long)]
        parked: bool,
        /// Only those of this class.
        #[arg(long, conflicts_with = "parked")]
        class: Option<String>,
        /// Only those that are online or missing.
        #[arg(long)]
        state: Option<String>,
        /// Only those whose flow is none, pending, deployed or failed.
        #[arg(long)]
        flow_state: Option<String>,
        /// Only those whose resources are none, pending, synced or failed.
        #[arg(long)]
        resource_state: Option<String>,
        /// Only those that have this manifest.
        #[arg(long, value_name = "HASH")]
        manifest: Option<String>,
        /// Only those whose identifier or host name holds this text.
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
    },
    /// Show one agent.
    Show {
        /// The agent's identifier.
        id: String,
    },
    /// Give agents a class, whatever they say of their class themselves, or take back what was given.
    #[command(after_help = CLASS_HELP)]
    Class {
        /// The agents' identifiers.
        #[arg(required = true)]
        ids: Vec<String>,
        /// The class, one that is there.
        #[arg(long, value_name = "CLASS", required_unless_present = "take_back")]
        give: Option<String>,
        /// Leave the agents the classes that they name.
        #[arg(long, conflicts_with = "give")]
        take_back: bool,
    },
    /// Remove an agent with its operations and parameters; one that still calls comes back.
    Remove {
        /// The agent's identifier.
        id: String,
    },
    /// List the manifests that agents have, show one, or what is different between two; remove one.
    #[command(after_help = MANIFESTS_HELP)]
    Manifests {
        /// Only those of this class's agents.
        #[arg(long, conflicts_with = "hash")]
        class: Option<String>,
        /// The manifest to show.
        hash: Option<String>,
        /// The manifest to compare it with.
        #[arg(long, value_name = "HASH", requires = "hash")]
        against: Option<String>,
        /// Remove it, which no agent has any more and no class is held to.
        #[arg(long, requires = "hash", conflicts_with = "against")]
        remove: bool,
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
        /// At most so many, up to 10,000; all without this and --after.
        #[arg(long)]
        limit: Option<u32>,
        /// Those after a page before, by what its JSON has as `next`.
        #[arg(long, value_name = "NEXT")]
        after: Option<String>,
    },
    /// List what was asked for, newest first, and how far it has come; show or pace one request.
    Requests {
        /// The request to show.
        id: Option<String>,
        /// Only those of this class.
        #[arg(long, conflicts_with = "id")]
        class: Option<String>,
        /// From now on so many agents may be at it at the same time, 0 for all.
        #[arg(long, value_name = "AGENTS", requires = "id")]
        at_once: Option<u32>,
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
        /// How many agents of the class may be at it at the same time, 0 for all; by default few for
        /// what is fetched, uploaded or described, and all for the rest.
        #[arg(long, value_name = "AGENTS", conflicts_with = "agent")]
        at_once: Option<u32>,
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
        change: Change,
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

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List {
            parked,
            class,
            state,
            flow_state,
            resource_state,
            manifest,
            search,
        } => {
            let wanted = query([
                ("parked", parked.then(|| "true".to_owned())),
                ("class", class),
                ("state", state),
                ("flow_state", flow_state),
                ("resource_state", resource_state),
                ("manifest", manifest),
                ("search", search),
            ]);
            let path = format!("/api/v1/agents{wanted}");
            let answer = client.get_all(&path, "agents", "after").await?;
            client.print_list(&answer, "agents", &AGENT_COLUMNS);
        }
        Command::Show { id } => {
            let path = format!("/api/v1/agents/{}", segment(&id));
            client.print_object(&client.get(&path).await?);
        }
        Command::Class { ids, give, .. } => {
            let mut agents = Vec::new();
            let mut failed = None;
            for id in ids {
                let path = format!("/api/v1/agents/{}/class", segment(&id));
                let request = match &give {
                    Some(class) => client
                        .request(Method::PUT, &path)
                        .json(&json!({"class": class})),
                    None => client.request(Method::DELETE, &path),
                };
                match client.send(request).await {
                    Ok(agent) => agents.push(agent),
                    Err(failure) => {
                        failed = Some(Failure(format!("agent '{id}': {failure}")));
                        break;
                    }
                }
            }
            let is_any = !agents.is_empty();
            let moved = client.list_text(&json!({"agents": agents}), "agents", &AGENT_COLUMNS);
            if let Some(failure) = failed {
                // Those before it are moved all the same.
                if is_any {
                    out::text_before_verdict(moved)?;
                }
                return Err(failure);
            }
            out::text(moved);
        }
        Command::Remove { id } => {
            let path = format!("/api/v1/agents/{}", segment(&id));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
        Command::Manifests {
            class,
            hash,
            against,
            remove,
        } => match hash {
            Some(hash) if remove => {
                let path = format!("/api/v1/manifests/{}", segment(&hash));
                client.send(client.request(Method::DELETE, &path)).await?;
            }
            hash => manifests(&client, class, hash, against).await?,
        },
        Command::Operations {
            id,
            class,
            state,
            request,
            limit,
            after,
        } => {
            let is_page = limit.is_some() || after.is_some();
            let wanted = [
                ("agent", id),
                ("class", class),
                ("state", state),
                ("request", request),
                ("limit", Some(limit.unwrap_or(PAGE_MAX).to_string())),
                ("after", after),
            ];
            let path = format!("/api/v1/operations{}", query(wanted));
            let answer = match is_page {
                true => client.get(&path).await?,
                false => client.get_all(&path, "operations", "after").await?,
            };
            client.print_list(&answer, "operations", &OPERATION_COLUMNS);
            client.tell_next(&answer, "--after");
        }
        Command::Requests { id, class, at_once } => match (id, at_once) {
            (Some(id), None) => {
                let path = format!("/api/v1/requests/{}", segment(&id));
                client.print_object(&client.get(&path).await?);
            }
            (Some(id), Some(at_once)) => {
                let path = format!("/api/v1/requests/{}", segment(&id));
                let request = client.request(Method::PATCH, &path);
                let request = request.json(&json!({"at_once": at_once}));
                client.print_object(&client.send(request).await?);
            }
            (None, _) => {
                let limit = Some(PAGE_MAX.to_string());
                let wanted = query([("class", class), ("limit", limit)]);
                let path = format!("/api/v1/requests{wanted}");
                client.print_list(&client.get(&path).await?, "requests", &REQUEST_COLUMNS);
            }
        },
        Command::Ask {
            target,
            operation,
            operand,
            args,
            at_once,
        } => {
            let mut wanted = json!({"operation": operation, "args": arguments(&args)?});
            for (name, value) in [
                ("operand", operand.map(Value::from)),
                ("at_once", at_once.map(Value::from)),
            ] {
                if let Some(value) = value {
                    wanted[name] = value;
                }
            }
            ask(&client, target, &wanted).await?;
        }
        Command::Cancel { id, request } => {
            let path = match (id, request) {
                (Some(id), _) => format!("/api/v1/operations/{}/cancel", segment(&id)),
                (None, request) => {
                    let request = request.unwrap_or_default();
                    format!("/api/v1/requests/{}/cancel", segment(&request))
                }
            };
            client.print_object(&client.send(client.request(Method::POST, &path)).await?);
        }
        Command::Result { id } => {
            let path = format!("/api/v1/operations/{}/result", segment(&id));
            out::line(format_args!("{:#}", client.get(&path).await?));
        }
        Command::Bundles { agent, fetch, to } => match (fetch, to) {
            (Some(id), Some(to)) => {
                let path = format!("/api/v1/bundles/{}/content", segment(&id));
                download(&client, &path, &to).await.map(drop)?;
            }
            _ => {
                let path = format!("/api/v1/bundles{}", query([("agent", agent)]));
                client.print_list(&client.get(&path).await?, "bundles", &BUNDLE_COLUMNS);
            }
        },
        Command::Parameters { id, change } => {
            let path = format!("/api/v1/agents/{}/parameters", segment(&id));
            parameters::run(&client, &path, &change).await?;
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
        out::line(format_args!("{:#}", client.get(&path).await?));
        return Ok(());
    }
    let path = format!("{path}/diff{}", query([("against", against)]));
    client.print_list(&client.get(&path).await?, "differences", &DIFF_COLUMNS);
    Ok(())
}

fn arguments(args: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut given = Map::new();
    for arg in args {
        let (name, text) = pair(arg)?;
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        given.insert(name.to_owned(), value);
    }
    Ok(given)
}

async fn ask(client: &Client, target: Target, wanted: &Value) -> Result<(), Failure> {
    let path = match (target.agent, target.class) {
        (Some(agent), _) => format!("/api/v1/agents/{}/operations", segment(&agent)),
        (None, class) => {
            let class = class.unwrap_or_default();
            format!("/api/v1/classes/{}/operations", segment(&class))
        }
    };
    let request = client.request(Method::POST, &path).json(wanted);
    let answer = client.send(request).await?;
    client.print_object(&answer);
    Ok(())
}

/// The most that the server tells at once.
const PAGE_MAX: u32 = 10_000;

const AGENT_COLUMNS: [(&str, &str); 6] = [
    ("AGENT", "id"),
    ("CLASS", "class"),
    ("STATE", "state"),
    ("LAST SEEN", "last_seen_ms"),
    ("FLOW", "flow_id"),
    ("FLOW STATE", "flow_state"),
];

const OPERATION_COLUMNS: [(&str, &str); 8] = [
    ("OPERATION", "id"),
    ("AGENT", "agent_id"),
    ("KIND", "operation"),
    ("OPERAND", "operand"),
    ("STATE", "state"),
    ("AT ONCE", "at_once"),
    ("UPDATED", "updated_ms"),
    ("DETAILS", "details"),
];

const REQUEST_COLUMNS: [(&str, &str); 11] = [
    ("REQUEST", "id"),
    ("CLASS", "class"),
    ("AGENT", "agent_id"),
    ("KIND", "operation"),
    ("OPERAND", "operand"),
    ("AT ONCE", "at_once"),
    ("QUEUED", "queued"),
    ("AT IT", "deployed"),
    ("DONE", "done"),
    ("FAILED", "failed"),
    ("TIMED OUT", "timed_out"),
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

const CLASS_HELP: &str = "\
Examples:
  thalweg agents list --parked
  thalweg agents class edge-1 edge-2 --give edge
  thalweg agents class edge-1 --take-back";

const MANIFESTS_HELP: &str = "\
Examples:
  thalweg agents manifests --class edge
  thalweg agents manifests m1-5f0c… --against m1-77aa…
  thalweg agents manifests m1-5f0c… --remove
One that agents have, or that a class is held to, is not removed. What nobody has goes by itself.";

const ASK_HELP: &str = "\
Examples:
  thalweg agents ask --agent edge-1 TRANSFER debug
  thalweg agents ask --class edge STOP flow
  thalweg agents ask --class edge --at-once 20 DESCRIBE configuration
  thalweg agents ask --class edge UPDATE properties --arg nifi.c2.agent.heartbeat.period=10000
  thalweg agents ask --agent edge-1 CLEAR connection --arg 'connections=[\"a/b\"]'
An agent that cannot do it is refused at once, with the reason.";
