//! `thalweg consume`: records of topics on standard output, through a REST consumer instance.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::client::segment;
use super::{Client, Failure, out};

/// Follows the topics until stopped with Ctrl-C, or until --max records were printed.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The topics' names.
    #[arg(required = true)]
    topics: Vec<String>,
    /// Consumer group: offsets are committed under it, so that a later call goes on.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Start at the oldest record where the group has no offset yet.
    #[arg(long)]
    from_beginning: bool,
    /// End after this many records.
    #[arg(long, value_name = "N")]
    max: Option<u64>,
}

pub async fn run(client: Client, args: Args) -> Result<(), Failure> {
    let rest = client.role_url("rest").await?;
    tell_missing(&client, &args.topics).await;
    let group = args
        .group
        .clone()
        .unwrap_or_else(|| format!("thalweg-cli-{}", std::process::id()));
    let config = json!({
        "format": "binary",
        "auto.offset.reset": if args.from_beginning { "earliest" } else { "latest" },
        "auto.commit.enable": "false",
    });
    let created = post(
        &client,
        &format!("{rest}/consumers/{}", segment(&group)),
        &config,
    )
    .await?;
    let Some(instance) = created["base_uri"].as_str().map(str::to_owned) else {
        return Err(Failure("the proxy named no consumer instance".to_owned()));
    };
    let followed = tokio::select! {
        followed = follow(&client, &args, &instance) => followed,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    // The instance would expire by itself; leaving now frees its partitions at once.
    let left = client
        .raw(
            client
                .request_url(Method::DELETE, &instance)
                .header("Accept", V2),
        )
        .await;
    followed.and(left.map(|_| ()))
}

/// Says of a topic that is not there why nothing comes: its name may be mistyped, or it is made later.
async fn tell_missing(client: &Client, topics: &[String]) {
    for topic in topics {
        let path = format!("/api/v1/topics/{}", segment(topic));
        let answer = client.request(Method::GET, &path).send().await;
        if answer.is_ok_and(|answer| answer.status() == StatusCode::NOT_FOUND) {
            eprintln!("there is no topic '{topic}' yet: waiting for it; Ctrl-C ends");
        }
    }
}

async fn follow(client: &Client, args: &Args, instance: &str) -> Result<(), Failure> {
    let topics = json!({"topics": args.topics});
    post(client, &format!("{instance}/subscription"), &topics).await?;
    let mut left = args.max.unwrap_or(u64::MAX);
    while left > 0 {
        let request = client
            .request_url(Method::GET, &format!("{instance}/records?timeout=30000"))
            .header("Accept", "application/vnd.kafka.binary.v2+json");
        let answer = client.send(request).await?;
        let records = answer.as_array().map_or(&[][..], Vec::as_slice);
        let taken = records
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        if !out::is_read(print(client.wants_json(), &records[..taken]))? {
            return Ok(());
        }
        left -= taken as u64;
        if args.group.is_some() && taken > 0 {
            post(
                client,
                &format!("{instance}/offsets"),
                &commits(&records[..taken]),
            )
            .await?;
        }
    }
    Ok(())
}

async fn post(client: &Client, url: &str, body: &Value) -> Result<Value, Failure> {
    let request = client
        .request_url(Method::POST, url)
        .header("Content-Type", V2)
        .header("Accept", V2)
        .body(body.to_string());
    client.send(request).await
}

/// The committed offset is the last one printed; the proxy's rule adds the step to the next.
fn commits(records: &[Value]) -> Value {
    let offsets: Vec<Value> = records
        .iter()
        .map(|record| {
            json!({
                "topic": record["topic"], "partition": record["partition"],
                "offset": record["offset"],
            })
        })
        .collect();
    json!({"offsets": offsets})
}

fn print(as_json: bool, records: &[Value]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for record in records {
        if as_json {
            writeln!(out, "{}", as_text(record))?;
            continue;
        }
        out.write_all(&bytes_of(&record["value"]).unwrap_or_default())?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// A record whose key and value are texts where they are such; what is none stays as base64, in
/// `key_base64` and `value_base64`.
fn as_text(record: &Value) -> Value {
    let mut shown = record.clone();
    let Some(fields) = shown.as_object_mut() else {
        return shown;
    };
    for name in ["key", "value"] {
        let Some(bytes) = bytes_of(&record[name]) else {
            continue;
        };
        match String::from_utf8(bytes) {
            Ok(text) => fields.insert(name.to_owned(), text.into()),
            Err(_) => {
                let encoded = fields.remove(name).unwrap_or_default();
                fields.insert(format!("{name}_base64"), encoded)
            }
        };
    }
    shown
}

/// The bytes that the proxy's binary format holds as base64.
fn bytes_of(encoded: &Value) -> Option<Vec<u8>> {
    encoded.as_str().and_then(|text| STANDARD.decode(text).ok())
}

const V2: &str = "application/vnd.kafka.v2+json";

const HELP: &str = "\
Examples:
  thalweg consume demo-log
  thalweg consume orders --from-beginning --max 10
  thalweg consume orders --group billing --from-beginning
  thalweg consume orders --from-beginning --output json | jq .value
In JSON a record has topic, partition, offset, key and value; what is no text is in value_base64.
With a group, the next call goes on where this one stopped.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shown_as_texts_and_other_bytes_in_base64() {
        let record = |key: Value, value: Value| json!({"topic": "t", "partition": 0, "offset": 7, "key": key, "value": value});
        let text = record(Value::Null, STANDARD.encode("{\"v\":\"é\"}").into());
        let shown = as_text(&text);
        assert_eq!(shown, record(Value::Null, "{\"v\":\"é\"}".into()));
        let bytes = as_text(&record("aw==".into(), "/w==".into()));
        let expected =
            json!({"topic": "t", "partition": 0, "offset": 7, "key": "k", "value_base64": "/w=="});
        assert_eq!(bytes, expected);
    }
}
