//! `thalweg statements`: what is computed in flight.

mod functions;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::segment;
use super::{Client, Failure, out};

#[derive(Subcommand)]
pub enum Command {
    /// Add a statement; it runs at once and after every restart.
    #[command(after_help = ADD_HELP)]
    Add(Form),
    /// List statements with their books.
    List,
    /// Show one statement.
    Show {
        /// The statement's id or name.
        id: String,
    },
    /// Stop taking events and keep the state.
    Pause {
        /// The statement's id or name.
        id: String,
    },
    /// Take events again with the state that it had.
    Resume {
        /// The statement's id or name.
        id: String,
    },
    /// Put another text in a statement's place, with its state where that fits; what is not given
    /// stays as it is.
    Replace {
        /// The statement's id or name.
        id: String,
        #[command(flatten)]
        form: Form,
        /// What becomes of the state: kept where it fits, kept or the new text refused, or forgotten.
        #[arg(long, default_value = "auto", value_parser = ["auto", "keep", "reset"])]
        state: String,
    },
    /// Try statements on events of a script, by the script's own clock, without a server.
    #[command(after_help = TRY_HELP)]
    Try {
        /// The script; standard input when absent.
        file: Option<PathBuf>,
    },
    /// Stop and remove a statement.
    Remove {
        /// The statement's id or name.
        id: String,
    },
    /// Say what a text would do, without adding it.
    #[command(after_help = EXPLAIN_HELP)]
    Explain(Form),
    /// Run an EPL query once over named windows and tables: select, delete, update or insert.
    #[command(after_help = QUERY_HELP)]
    Query {
        /// The query's text.
        text: String,
    },
    /// Functions of one's own, in WebAssembly.
    #[command(subcommand)]
    Functions(functions::Command),
    /// Print a statement's rows as they come.
    Tail {
        /// The statement's id or name.
        id: String,
        /// End after so many rows.
        #[arg(long, value_name = "COUNT")]
        max: Option<u64>,
    },
}

/// What a statement is made of.
#[derive(Args)]
pub struct Form {
    /// The statement's text; - reads it from the standard input.
    text: String,
    /// A name to know it by.
    #[arg(long)]
    name: Option<String>,
    /// The text's language: sql if not given.
    #[arg(long, value_parser = ["sql", "epl"])]
    language: Option<String>,
    /// Where to start in a topic that already holds records.
    #[arg(long, value_parser = ["latest", "earliest"])]
    start: Option<String>,
    /// How long windows stay open for late events, such as 5s.
    #[arg(long)]
    lateness: Option<String>,
    /// How payloads are read: json, senml, senml-cbor, observation, observation097, cbor or raw.
    #[arg(long)]
    format: Option<String>,
    /// What a row becomes.
    #[arg(long = "as", value_name = "FORM", value_parser = ["rows", "observations"])]
    rows_as: Option<String>,
    /// A further target: mqtt."topic", kafka."topic" or http://host/path; may be said again.
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<String>,
    /// A policy, such as backpressure=drop_oldest or time=ts; may be said again.
    #[arg(long = "policy", value_name = "NAME=VALUE")]
    policies: Vec<String>,
}

impl Form {
    /// The request's body, and the text.
    fn body(self) -> Result<(Value, String), Failure> {
        let mut text = self.text;
        if text == "-" {
            text.clear();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::because("cannot read the standard input", &error))?;
        }
        let mut body = json!({"text": text});
        for (key, value) in [
            ("name", self.name),
            ("language", self.language),
            ("start", self.start),
            ("lateness", self.lateness),
            ("format", self.format),
            ("output", self.rows_as),
        ] {
            if let Some(value) = value {
                body[key] = value.into();
            }
        }
        if !self.targets.is_empty() {
            body["targets"] = self.targets.into();
        }
        for policy in &self.policies {
            let Some((name, value)) = policy.split_once('=') else {
                return Err(Failure(format!("--policy {policy}: write NAME=VALUE")));
            };
            body["policies"][name] = value.into();
        }
        Ok((body, text))
    }
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    let call = |method: Method, path: &str| client.request(method, &format!("{ROOT}{path}"));
    match command {
        Command::Add(form) => {
            let (body, text) = form.body()?;
            let request = call(Method::POST, "").json(&body);
            client.print_object(&client.send_text(request, &text).await?);
        }
        Command::List => {
            let answer = client.get(ROOT).await?;
            client.print_list(&answer, "statements", &COLUMNS);
        }
        Command::Show { id } => {
            client.print_object(&client.get(&format!("{ROOT}/{}", segment(&id))).await?);
        }
        Command::Pause { id } => {
            let request = call(Method::POST, &format!("/{}/pause", segment(&id)));
            client.print_object(&client.send(request).await?);
        }
        Command::Resume { id } => {
            let request = call(Method::POST, &format!("/{}/resume", segment(&id)));
            client.print_object(&client.send(request).await?);
        }
        Command::Replace { id, form, state } => {
            let (mut body, text) = form.body()?;
            let path = format!("/{}", segment(&id));
            keep(&mut body, &client.send(call(Method::GET, &path)).await?);
            body["state"] = state.into();
            let request = call(Method::PUT, &path).json(&body);
            client.print_object(&client.send_text(request, &text).await?);
        }
        Command::Try { file } => try_scripts(file.as_deref())?,
        Command::Remove { id } => {
            let request = call(Method::DELETE, &format!("/{}", segment(&id)));
            client.send(request).await?;
        }
        Command::Explain(form) => {
            let (body, text) = form.body()?;
            let request = call(Method::POST, "/explain").json(&body);
            client.print_object(&client.send_text(request, &text).await?);
        }
        Command::Query { text } => {
            let request = call(Method::POST, "/query").json(&json!({ "text": text }));
            let answer = client.send_text(request, &text).await?;
            for row in answer["rows"].as_array().map_or(&[][..], Vec::as_slice) {
                out::line(row);
            }
        }
        Command::Functions(command) => functions::run(&client, command).await?,
        Command::Tail { id, max } => tail(&client, &id, max).await?,
    }
    Ok(())
}

/// Puts what a form does not say as `statement` has it.
fn keep(form: &mut Value, statement: &Value) {
    let mut policies = statement["policies"].clone();
    if let (Some(kept), Some(given)) = (policies.as_object_mut(), form["policies"].as_object()) {
        kept.extend(given.clone());
        form["policies"] = policies;
    }
    for key in [
        "language", "start", "lateness", "format", "output", "targets", "policies",
    ] {
        if form[key].is_null() {
            form[key] = statement[key].clone();
        }
    }
    // What a server of an earlier version does not tell is its to choose.
    if let Some(fields) = form.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
}

/// Prints rows, one JSON object a line, until there were `max`.
async fn tail(client: &Client, id: &str, max: Option<u64>) -> Result<(), Failure> {
    let path = format!("{ROOT}/{}/rows", segment(id));
    let first = client.get(&format!("{path}?wait_ms=0")).await?;
    let mut next = first["next"].as_u64().unwrap_or(0);
    let mut left = max;
    while left != Some(0) {
        let answer = client.get(&format!("{path}?after={next}")).await?;
        next = answer["next"].as_u64().unwrap_or(next);
        if let Some(missed) = answer["missed"].as_u64().filter(|missed| *missed > 0) {
            eprintln!("{missed} rows came too fast to be shown");
        }
        for row in answer["rows"].as_array().map_or(&[][..], Vec::as_slice) {
            if left == Some(0) {
                break;
            }
            out::line(row);
            left = left.map(|left| left - 1);
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

const ROOT: &str = "/api/v1/statements";

const COLUMNS: [(&str, &str); 9] = [
    ("STATEMENT", "id"),
    ("NAME", "name"),
    ("STATUS", "status"),
    ("RECEIVED", "received_total"),
    ("FILTERED", "filtered_total"),
    ("EMITTED", "emitted_total"),
    ("LATE", "late_total"),
    ("ERRORED", "errored_total"),
    ("LAG", "lag_records"),
];

const TRY_HELP: &str = "\
A script is lines; several stand apart by lines that are `end`:

  statement select k, sum(a) as s from E#time(10 sec) group by k
  time 1000
  event E k=s:x a=i:1
  event E {\"k\":\"x\",\"a\":2}
  time 11000";

const ADD_HELP: &str = "\
Sources and sinks are mqtt.\"filter/+/x\" and kafka.\"topic\". For example, the mean per host
over ten seconds, from MQTT into a Kafka topic:

  thalweg statements add --name cpu '
    INSERT INTO kafka.\"cpu-10s\"
    SELECT host, avg(cpu) AS cpu, count(*) AS n, window_start
    FROM TUMBLE(mqtt.\"hosts/+/metrics\", INTERVAL '\\''10 seconds'\\'')
    GROUP BY host'";

const QUERY_HELP: &str = "\
Examples:
  thalweg statements query 'select * from LastSeen where host = \"edge-1\"'
  thalweg statements query 'delete from LastSeen where age > 60'";

const EXPLAIN_HELP: &str = "\
Examples:
  thalweg statements explain 'SELECT host FROM mqtt.\"hosts/+/metrics\"'
  thalweg statements explain --language epl - < statement.epl";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_keeps_what_it_does_not_say() {
        let statement = json!({
            "id": "s", "text": "select v from E", "language": "epl", "start": "latest",
            "lateness": "2s", "format": "json", "output": "rows", "targets": ["mqtt.\"a\""],
            "policies": {"input": "durable", "on_error": "drop"}, "received_total": 7,
        });
        let mut form = json!({"text": "select w from E", "policies": {"on_error": "null"}});
        keep(&mut form, &statement);
        let expected = json!({
            "text": "select w from E", "language": "epl", "start": "latest", "lateness": "2s",
            "format": "json", "output": "rows", "targets": ["mqtt.\"a\""],
            "policies": {"input": "durable", "on_error": "null"},
        });
        assert_eq!(form, expected);
        let mut form = json!({"text": "SELECT 1", "language": "sql"});
        keep(&mut form, &json!({"language": "epl", "targets": []}));
        assert_eq!(
            form,
            json!({"text": "SELECT 1", "language": "sql", "targets": []})
        );
    }
}
