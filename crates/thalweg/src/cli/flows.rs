//! `thalweg flows`: published, listed, compared, published again.

use std::path::PathBuf;

use clap::Subcommand;
use reqwest::Method;
use serde_json::Value;

use super::client::{query, segment};
use super::parameters::{self, Change};
use super::{Client, Failure, out};

#[derive(Subcommand)]
pub enum Command {
    /// Publish a flow (MiNiFi YAML or NiFi flow JSON) to every agent of a class.
    #[command(after_help = PUBLISH_HELP)]
    Publish {
        /// The agent class.
        #[arg(long)]
        class: String,
        /// Publish it although the agents' manifest speaks against it.
        #[arg(long)]
        force: bool,
        /// Store it only; a roll-out deploys it.
        #[arg(long)]
        store_only: bool,
        /// The flow definition; `-` reads standard input.
        file: PathBuf,
    },
    /// Check a flow against the manifest of a class's agents; fails where it does not fit.
    Check {
        /// The agent class.
        #[arg(long)]
        class: String,
        /// The flow definition; `-` reads standard input.
        file: PathBuf,
    },
    /// Publish an old version again, as the newest of its class.
    Revert {
        /// The flow's id.
        id: String,
    },
    /// Show what is different between two versions.
    Diff {
        /// The flow's id.
        id: String,
        /// The id of the other one; if not given, the version before.
        #[arg(long, value_name = "ID")]
        against: Option<String>,
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
    /// Show or set parameters of one flow version.
    Parameters {
        /// The flow's id.
        id: String,
        #[command(flatten)]
        change: Change,
    },
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::Publish {
            class,
            force,
            store_only,
            file,
        } => {
            let text = super::read_file(&file)?;
            let force = force.then(|| "true".to_owned());
            let path = format!(
                "/api/v1/classes/{}/flows{}",
                segment(&class),
                query([
                    ("force", force),
                    ("deploy", Some((!store_only).to_string()))
                ])
            );
            let request = client.request(Method::POST, &path).body(text);
            client.print_object(&client.send(request).await?);
        }
        Command::Check { class, file } => {
            let text = super::read_file(&file)?;
            let path = format!("/api/v1/classes/{}/flows/check", segment(&class));
            let request = client.request(Method::POST, &path).body(text);
            told_check(&client, &class, &client.send(request).await?)?;
        }
        Command::Revert { id } => {
            let path = format!("/api/v1/flows/{}/publish", segment(&id));
            client.print_object(&client.send(client.request(Method::POST, &path)).await?);
        }
        Command::Diff { id, against } => {
            let path = format!(
                "/api/v1/flows/{}/diff{}",
                segment(&id),
                query([("against", against)])
            );
            client.print_list(&client.get(&path).await?, "differences", &DIFF_COLUMNS);
        }
        Command::List { class } => {
            let path = format!("/api/v1/classes/{}/flows", segment(&class));
            client.print_list(&client.get(&path).await?, "flows", &FLOW_COLUMNS);
        }
        Command::Show { id } => {
            let path = format!("/api/v1/flows/{}", segment(&id));
            let answer = client.raw(client.request(Method::GET, &path)).await?;
            let text = answer
                .text()
                .await
                .map_err(|error| Failure::because("the answer broke off", &error))?;
            out::text(text);
        }
        Command::Parameters { id, change } => {
            let path = format!("/api/v1/flows/{}/parameters", segment(&id));
            parameters::run(&client, &path, &change).await?;
        }
    }
    Ok(())
}

/// What is wrong with a flow, as a failure; what it was checked against where nothing is.
fn told_check(client: &Client, class: &str, checked: &Value) -> Result<(), Failure> {
    let problems = checked["problems"].as_array().map_or(0, Vec::len);
    if problems > 0 || client.wants_json() {
        out::text_before_verdict(client.list_text(checked, "problems", &PROBLEM_COLUMNS))?;
    }
    match problems {
        0 if client.wants_json() => {}
        0 if checked["manifest_hash"].is_null() => out::line(format_args!(
            "the flow can be read; no agent of class '{class}' has told what it can run, so that was \
             not checked"
        )),
        0 => out::line(format_args!("the flow fits the agents of class '{class}'")),
        problems => {
            let many = if problems == 1 { "" } else { "s" };
            return Err(Failure(format!(
                "the flow does not fit the agents of class '{class}': {problems} problem{many}; \
                 `thalweg flows publish --force` publishes it all the same"
            )));
        }
    }
    Ok(())
}

const FLOW_COLUMNS: [(&str, &str); 3] = [
    ("FLOW", "flow_id"),
    ("VERSION", "version"),
    ("PUBLISHED", "created_ms"),
];

const PROBLEM_COLUMNS: [(&str, &str); 3] = [
    ("COMPONENT", "component"),
    ("PROPERTY", "property"),
    ("PROBLEM", "reason"),
];

/// What is different, in a list.
pub const DIFF_COLUMNS: [(&str, &str); 4] = [
    ("CHANGE", "change"),
    ("PLACE", "place"),
    ("FROM", "from"),
    ("TO", "to"),
];

const PUBLISH_HELP: &str = "\
Examples:
  thalweg flows publish --class edge flow.yml
  thalweg flows check --class edge flow.yml
  thalweg flows publish --class edge --store-only flow.yml
What is stored only goes out by `thalweg rollouts begin`.";
