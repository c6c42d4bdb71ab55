//! `thalweg agents`, `classes` and `flows`: the fleet.

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
        FlowsCommand::Publish { class, file } => {
            let text = super::read_file(&file)?;
            let path = format!("/api/v1/classes/{}/flows", segment(&class));
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

const FLOW_COLUMNS: [(&str, &str); 3] = [
    ("FLOW", "flow_id"),
    ("VERSION", "version"),
    ("PUBLISHED", "created_ms"),
];
