//! `thalweg statements`: what is computed in flight.

use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use super::client::segment;
use super::{Client, Failure};

#[derive(Subcommand)]
pub enum Command {
    /// Add a statement; it runs at once and after every restart.
    #[command(after_help = ADD_HELP)]
    Add {
        /// The statement's text.
        text: String,
        /// A name to know it by.
        #[arg(long)]
        name: Option<String>,
        /// Where to start in a topic that already holds records: latest or earliest.
        #[arg(long)]
        start: Option<String>,
    },
    /// List statements with their books.
    List,
    /// Show one statement.
    Show {
        /// The statement's id.
        id: String,
    },
    /// Stop and remove a statement.
    Remove {
        /// The statement's id.
        id: String,
    },
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::Add { text, name, start } => {
            let mut body = json!({"text": text, "language": "sql"});
            for (key, value) in [("name", name), ("start", start)] {
                if let Some(value) = value {
                    body[key] = value.into();
                }
            }
            let request = client
                .request(Method::POST, "/api/v1/statements")
                .json(&body);
            client.print_object(&client.send(request).await?);
        }
        Command::List => {
            let answer = client.get("/api/v1/statements").await?;
            client.print_list(&answer, "statements", &COLUMNS);
        }
        Command::Show { id } => {
            let path = format!("/api/v1/statements/{}", segment(&id));
            client.print_object(&client.get(&path).await?);
        }
        Command::Remove { id } => {
            let path = format!("/api/v1/statements/{}", segment(&id));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
    }
    Ok(())
}

const COLUMNS: [(&str, &str); 8] = [
    ("STATEMENT", "id"),
    ("NAME", "name"),
    ("STATUS", "status"),
    ("RECEIVED", "received_total"),
    ("FILTERED", "filtered_total"),
    ("EMITTED", "emitted_total"),
    ("LATE", "late_total"),
    ("ERRORED", "errored_total"),
];

const ADD_HELP: &str = "\
Sources and sinks are mqtt.\"filter/+/x\" and kafka.\"topic\". For example, the mean per host
over ten seconds, from MQTT into a Kafka topic:

  thalweg statements add --name cpu '
    INSERT INTO kafka.\"cpu-10s\"
    SELECT host, avg(cpu) AS cpu, count(*) AS n, window_start
    FROM TUMBLE(mqtt.\"hosts/+/metrics\", INTERVAL '\\''10 seconds'\\'')
    GROUP BY host'";
