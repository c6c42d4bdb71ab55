//! `thalweg classes`: made, described, and given resources, manifests and parameters.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::segment;
use super::parameters::{self, Change};
use super::resources::RESOURCE_COLUMNS;
use super::{Client, Failure};

#[derive(Subcommand)]
pub enum Command {
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
        /// How many agents may fetch them at the same time, 0 for all; 100 while nobody says.
        #[arg(long, value_name = "AGENTS")]
        at_once: Option<u32>,
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
        change: Change,
    },
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => {
            let answer = client.get("/api/v1/classes").await?;
            client.print_list(&answer, "classes", &CLASS_COLUMNS);
        }
        Command::Describe { class, description } => {
            let path = format!("/api/v1/classes/{}", segment(&class));
            let request = client.request(Method::PUT, &path);
            let request = request.json(&json!({"description": description}));
            client.print_object(&client.send(request).await?);
        }
        Command::Remove { class } => {
            let path = format!("/api/v1/classes/{}", segment(&class));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
        Command::Resources {
            class,
            assign,
            unassign,
            at_once,
        } => {
            let path = format!("/api/v1/classes/{}/resources", segment(&class));
            let answer = if assign.is_empty() && unassign.is_empty() && at_once.is_none() {
                client.get(&path).await?
            } else {
                let wanted = json!({"assign": assign, "unassign": unassign, "at_once": at_once});
                let request = client.request(Method::PUT, &path).json(&wanted);
                client.send(request).await?
            };
            client.print_list(&answer, "resources", &RESOURCE_COLUMNS);
        }
        Command::Manifest {
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
        Command::Parameters { class, change } => {
            let path = format!("/api/v1/classes/{}/parameters", segment(&class));
            parameters::run(&client, &path, &change).await?;
        }
    }
    Ok(())
}

const CLASS_COLUMNS: [(&str, &str); 5] = [
    ("CLASS", "name"),
    ("AGENTS", "agents"),
    ("ONLINE", "agents_online"),
    ("FLOW", "flow_id"),
    ("VERSION", "flow_version"),
];
