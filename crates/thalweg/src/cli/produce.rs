//! `thalweg produce`: lines into a topic, through the REST proxy.

use std::io::BufRead;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::segment;
use super::{Client, Failure};

/// Each line becomes one record; the command ends when every record was acknowledged.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The topic's name, or a stream path such as /streams/test:topic1.
    topic: String,
    /// File to read; standard input if not given.
    file: Option<PathBuf>,
    /// Splits a line into key and value at the first occurrence.
    #[arg(long, value_name = "TEXT")]
    key_separator: Option<String>,
}

pub async fn run(client: Client, args: Args) -> Result<(), Failure> {
    let url = format!(
        "{}/topics/{}",
        client.role_url("rest").await?,
        segment(&args.topic)
    );
    let input: Box<dyn BufRead> = match &args.file {
        Some(path) => Box::new(std::io::BufReader::new(std::fs::File::open(path).map_err(
            |error| Failure::because(&format!("cannot read {}", path.display()), &error),
        )?)),
        None => Box::new(std::io::BufReader::new(std::io::stdin())),
    };
    let mut records: Vec<Value> = Vec::new();
    let mut pending_bytes = 0;
    let mut total = 0_u64;
    for line in input.split(b'\n') {
        let line = line.map_err(|error| Failure::because("cannot read a line", &error))?;
        pending_bytes += line.len();
        records.push(record(&line, args.key_separator.as_deref()));
        total += 1;
        if records.len() >= RECORDS_PER_REQUEST || pending_bytes >= BYTES_PER_REQUEST {
            send(&client, &url, std::mem::take(&mut records)).await?;
            pending_bytes = 0;
        }
    }
    if !records.is_empty() {
        send(&client, &url, records).await?;
    }
    eprintln!("{total} records acknowledged");
    Ok(())
}

async fn send(client: &Client, url: &str, records: Vec<Value>) -> Result<(), Failure> {
    let request = client
        .request_url(Method::POST, url)
        .header("Content-Type", "application/vnd.kafka.binary.v2+json")
        .body(json!({"records": records}).to_string());
    let answer = client.send(request).await?;
    let offsets = answer["offsets"].as_array().map_or(&[][..], Vec::as_slice);
    match offsets
        .iter()
        .find(|result| !result["error_code"].is_null())
    {
        Some(failed) => Err(Failure(format!(
            "a record was refused: {}",
            failed["error"]
        ))),
        None => Ok(()),
    }
}

fn record(line: &[u8], key_separator: Option<&str>) -> Value {
    let split = key_separator.and_then(|separator| {
        let separator = separator.as_bytes();
        let at = line
            .windows(separator.len().max(1))
            .position(|window| window == separator)?;
        Some((&line[..at], &line[at + separator.len()..]))
    });
    match split {
        Some((key, value)) => json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value)}),
        None => json!({"value": STANDARD.encode(line)}),
    }
}

/// Keeps one request's answer small; the proxy groups requests into one commit anyway.
const RECORDS_PER_REQUEST: usize = 5_000;
/// Keeps one request's body well under the proxy's bound.
const BYTES_PER_REQUEST: usize = 4 << 20;

const HELP: &str = "\
Examples:
  thalweg produce orders orders.jsonl
  journalctl -f | thalweg produce lines
  thalweg produce readings --key-separator ';' < readings.csv";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_stands_before_the_separator() {
        let keyed = record(b"a:b:c", Some(":"));
        assert_eq!(
            keyed,
            json!({"key": STANDARD.encode("a"), "value": STANDARD.encode("b:c")})
        );
        assert_eq!(
            record(b"abc", Some(":")),
            json!({"value": STANDARD.encode("abc")})
        );
        assert_eq!(
            record(b"a:b", None),
            json!({"value": STANDARD.encode("a:b")})
        );
    }
}
