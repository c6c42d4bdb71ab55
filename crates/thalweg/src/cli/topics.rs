//! `thalweg topics`: the store's topics.

use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use super::client::segment;
use super::{Client, Failure};

#[derive(Subcommand)]
pub enum Command {
    /// List topics with what they hold.
    List,
    /// Create a topic: a Kafka name, or a stream path such as /streams/test:topic1.
    Create {
        /// The topic's name.
        name: String,
        /// How many partitions; the store's or the stream's default if not given.
        #[arg(long, value_name = "N")]
        partitions: Option<i32>,
        /// What an acknowledgement with acks=all survives: memory, os or disk.
        #[arg(long, value_name = "LEVEL")]
        durability: Option<String>,
    },
    /// Show one topic with its partitions' offsets.
    Describe {
        /// The topic's name.
        name: String,
    },
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
        } => {
            let body = json!({"name": name, "partitions": partitions, "durability": durability});
            let request = client.request(Method::POST, "/api/v1/topics").json(&body);
            client.print_object(&client.send(request).await?);
        }
        Command::Describe { name } => {
            client.print_object(&client.get(&path(&name)).await?);
        }
        Command::Delete { name } => {
            client
                .send(client.request(Method::DELETE, &path(&name)))
                .await?;
        }
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/api/v1/topics/{}", segment(name))
}

const COLUMNS: [(&str, &str); 5] = [
    ("TOPIC", "name"),
    ("PARTITIONS", "partitions"),
    ("RECORDS IN", "records_in_total"),
    ("BYTES STORED", "bytes_stored"),
    ("DURABILITY", "durability"),
];
