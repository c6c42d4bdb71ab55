//! `thalweg topics`: the store's topics.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::client::segment;
use super::{Client, Failure, backup, out};

#[derive(Subcommand)]
pub enum Command {
    /// List topics with what they hold.
    List,
    /// Create a topic: a Kafka name, or a stream path such as /streams/test:topic1.
    #[command(after_help = CREATE_HELP)]
    Create {
        /// The topic's name.
        name: String,
        /// How many partitions; the store's or the stream's default if not given.
        #[arg(long, value_name = "N")]
        partitions: Option<i32>,
        /// What an acknowledgement with acks=all survives: nothing, the process or the machine.
        #[arg(long, value_name = "LEVEL", value_parser = ["memory", "os", "disk"])]
        durability: Option<String>,
        /// A setting under Kafka's name, such as retention.ms=60000; repeat for more.
        #[arg(long = "config", value_name = "KEY=VALUE", value_parser = key_value)]
        configs: Vec<(String, String)>,
    },
    /// Change a topic's settings or add partitions.
    Alter {
        /// The topic's name.
        name: String,
        /// How many partitions it is to have, more than now.
        #[arg(long, value_name = "N")]
        partitions: Option<i32>,
        /// A setting to change, such as retention.ms=60000; repeat for more.
        #[arg(long = "config", value_name = "KEY=VALUE", value_parser = key_value)]
        configs: Vec<(String, String)>,
        /// A setting to give its default back; repeat for more.
        #[arg(long = "unset", value_name = "KEY")]
        unset: Vec<String>,
    },
    /// Delete the records of a partition before an offset.
    DeleteRecords {
        /// The topic's name.
        name: String,
        /// The partition.
        #[arg(long, value_name = "N", default_value_t = 0)]
        partition: i32,
        /// The first offset to keep; all that can be read now goes if not given.
        #[arg(long, value_name = "OFFSET")]
        before: Option<i64>,
    },
    /// Show one topic with its partitions' offsets and its settings.
    Describe {
        /// The topic's name.
        name: String,
    },
    /// Write a topic into a file.
    Backup(Box<backup::Backup>),
    /// Make a topic from a file that `backup` wrote.
    Restore(Box<backup::Restore>),
    /// Delete a topic and its records.
    Delete {
        /// The topic's name.
        name: String,
    },
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => {
            let answer = client.get("/api/v1/topics").await?;
            client.print_list(&answer, "topics", &COLUMNS);
        }
        Command::Create {
            name,
            partitions,
            durability,
            configs,
        } => {
            let config: Map<String, Value> = set(configs).collect();
            let body = json!({
                "name": name,
                "partitions": partitions,
                "durability": durability,
                "config": config,
            });
            let request = client.request(Method::POST, "/api/v1/topics").json(&body);
            client.print_object(&client.send(request).await?);
        }
        Command::Alter {
            name,
            partitions,
            configs,
            unset,
        } => {
            let body = json!({"partitions": partitions, "config": changes(configs, unset)});
            let request = client.request(Method::PATCH, &path(&name)).json(&body);
            print_described(&client, client.send(request).await?);
        }
        Command::DeleteRecords {
            name,
            partition,
            before,
        } => {
            let body = json!({"partition": partition, "offset": before});
            let path = format!("{}/delete-records", path(&name));
            let request = client.request(Method::POST, &path).json(&body);
            client.print_object(&client.send(request).await?);
        }
        Command::Describe { name } => {
            print_described(&client, client.get(&path(&name)).await?);
        }
        Command::Backup(args) => backup::back_up(&client, &args).await?,
        Command::Restore(args) => backup::restore(&client, &args).await?,
        Command::Delete { name } => {
            client
                .send(client.request(Method::DELETE, &path(&name)))
                .await?;
        }
    }
    Ok(())
}

/// The topic's object, and its settings as a table of their own for people.
fn print_described(client: &Client, mut topic: Value) {
    if client.wants_json() {
        client.print_object(&topic);
        return;
    }
    let settings = topic.as_object_mut().and_then(|t| t.remove("config"));
    client.print_object(&topic);
    if let Some(settings) = settings {
        out::line("");
        client.print_list(&json!({"config": settings}), "config", &SETTING_COLUMNS);
    }
}

/// Settings to change, and those to give their defaults back.
pub(super) fn changes(configs: Vec<(String, String)>, unset: Vec<String>) -> Map<String, Value> {
    let unset = unset.into_iter().map(|name| (name, Value::Null));
    set(configs).chain(unset).collect()
}

fn set(configs: Vec<(String, String)>) -> impl Iterator<Item = (String, Value)> {
    let pairs = configs.into_iter();
    pairs.map(|(name, value)| (name, Value::String(value)))
}

pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is no setting: write KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn path(name: &str) -> String {
    format!("/api/v1/topics/{}", segment(name))
}

pub(super) const SETTING_COLUMNS: [(&str, &str); 3] = [
    ("SETTING", "name"),
    ("VALUE", "value"),
    ("SET HERE", "is_set"),
];

const COLUMNS: [(&str, &str); 5] = [
    ("TOPIC", "name"),
    ("PARTITIONS", "partitions"),
    ("RECORDS IN", "records_in_total"),
    ("BYTES STORED", "bytes_stored"),
    ("DURABILITY", "durability"),
];

const CREATE_HELP: &str = "\
Examples:
  thalweg topics create orders --partitions 3
  thalweg topics create orders --durability os --config retention.ms=86400000
  thalweg topics create /streams/test:topic1";
