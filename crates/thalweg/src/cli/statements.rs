//! `thalweg statements`: what is computed in flight.

use std::path::{Path, PathBuf};

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
    /// Try statements on events of a script, by the script's own clock, without a server.
    #[command(after_help = TRY_HELP)]
    Try {
        /// The script; standard input when absent.
        file: Option<PathBuf>,
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
        Command::Try { file } => try_scripts(file.as_deref())?,
        Command::Remove { id } => {
            let path = format!("/api/v1/statements/{}", segment(&id));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
    }
    Ok(())
}

fn try_scripts(file: Option<&Path>) -> Result<(), Failure> {
    let out = std::io::BufWriter::new(std::io::stdout().lock());
    let outcome = match file {
        None => fusion::trial::run(std::io::stdin().lock(), out),
        Some(path) => std::fs::File::open(path)
            .and_then(|file| fusion::trial::run(std::io::BufReader::new(file), out)),
    };
    outcome.map_err(|error| match file {
        Some(path) => Failure::because(&path.display().to_string(), &error),
        None => Failure::because("standard input", &error),
    })
}

const TRY_HELP: &str = "\
A script is lines; several stand apart by lines that are `end`:

  statement select k, sum(a) as s from E#time(10 sec) group by k
  time 1000
  event E k=s:x a=i:1
  event E {\"k\":\"x\",\"a\":2}
  time 11000";

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
