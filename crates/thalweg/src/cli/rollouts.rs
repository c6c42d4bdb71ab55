//! `thalweg rollouts`: flows that go out to a class in batches.

use clap::Subcommand;
use reqwest::Method;

use super::client::segment;
use super::{Client, Failure};

#[derive(Subcommand)]
pub enum Command {
    /// List the roll-outs of a class.
    List {
        /// The agent class.
        #[arg(long)]
        class: String,
    },
    /// Roll a flow that is stored out to its class, in batches.
    #[command(after_help = BEGIN_HELP)]
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

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    let (id, wish) = match command {
        Command::List { class } => {
            let path = format!("/api/v1/classes/{}/rollouts", segment(&class));
            client.print_list(&client.get(&path).await?, "rollouts", &ROLLOUT_COLUMNS);
            return Ok(());
        }
        Command::Begin {
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
        Command::Show { id } => {
            let path = format!("/api/v1/rollouts/{}", segment(&id));
            client.print_object(&client.get(&path).await?);
            return Ok(());
        }
        Command::Pause { id } => (id, "pause"),
        Command::Resume { id } => (id, "resume"),
        Command::Abort { id } => (id, "abort"),
        Command::Rollback { id } => (id, "rollback"),
    };
    let path = format!("/api/v1/rollouts/{}/{wish}", segment(&id));
    let request = client.request(Method::POST, &path);
    client.print_object(&client.send(request).await?);
    Ok(())
}

const ROLLOUT_COLUMNS: [(&str, &str); 5] = [
    ("ROLL-OUT", "id"),
    ("FLOW", "flow_id"),
    ("STATE", "state"),
    ("CREATED", "created_ms"),
    ("REASON", "reason"),
];

const BEGIN_HELP: &str = "\
Examples:
  thalweg flows publish --class edge --store-only flow.yml
  thalweg rollouts begin --class edge FLOW --canary 5 --batch 50 --interval 1m
  thalweg rollouts show ID";
