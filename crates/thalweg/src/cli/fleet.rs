//! `thalweg agents`, `classes`, `flows`, `rollouts` and `events`: the fleet.

use std::path::PathBuf;

use clap::Subcommand;
use reqwest::Method;

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
    /// List an agent's operations.
    Operations {
        /// The agent's identifier.
        id: String,
    },
}

#[derive(Subcommand)]
pub enum ClassesCommand {
    /// List agent classes with their published flow.
    List,
}

#[derive(Subcommand)]
pub enum FlowsCommand {
    /// Publish a flow (MiNiFi YAML or NiFi flow JSON) to every agent of a class.
    Publish {
        /// The agent class.
        #[arg(long)]
        class: String,
        /// The flow definition; `-` reads standard input.
        file: PathBuf,
        /// Store it only; a roll-out deploys it.
        #[arg(long)]
        store_only: bool,
    },
    /// List the flow versions of a class.
    List {
        /// The agent class.
        #[arg(long)]
        class: String,
    },
    /// Print a flow definition as it was published.
    Show {
        /// The flow's id.
        id: String,
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
        AgentsCommand::Operations { id } => {
            let path = format!("/api/v1/operations?agent={}", segment(&id));
            client.print_list(&client.get(&path).await?, "operations", &OPERATION_COLUMNS);
        }
    }
    Ok(())
}

pub async fn classes(client: Client, command: ClassesCommand) -> Result<(), Failure> {
    match command {
        ClassesCommand::List => {
            let answer = client.get("/api/v1/classes").await?;
            client.print_list(&answer, "classes", &CLASS_COLUMNS);
        }
    }
    Ok(())
}

pub async fn flows(client: Client, command: FlowsCommand) -> Result<(), Failure> {
    match command {
        FlowsCommand::Publish {
            class,
            file,
            store_only,
        } => {
            let text = super::read_file(&file)?;
            let path = format!(
                "/api/v1/classes/{}/flows?deploy={}",
                segment(&class),
                !store_only
            );
            let request = client.request(Method::POST, &path).body(text);
            client.print_object(&client.send(request).await?);
        }
        FlowsCommand::List { class } => {
            let path = format!("/api/v1/classes/{}/flows", segment(&class));
            client.print_list(&client.get(&path).await?, "flows", &FLOW_COLUMNS);
        }
        FlowsCommand::Show { id } => {
            let path = format!("/api/v1/flows/{}", segment(&id));
            let answer = client.raw(client.request(Method::GET, &path)).await?;
            let text = answer
                .text()
                .await
                .map_err(|error| Failure::because("the answer broke off", &error))?;
            print!("{text}");
        }
    }
    Ok(())
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

const FLOW_COLUMNS: [(&str, &str); 3] = [
    ("FLOW", "flow_id"),
    ("VERSION", "version"),
    ("PUBLISHED", "created_ms"),
];
