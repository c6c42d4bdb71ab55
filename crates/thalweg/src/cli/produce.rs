//! `thalweg produce`: lines into a topic, through the REST proxy.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::segment;
use super::{Client, Failure, table};

/// Each line becomes one record; the command ends when every record was acknowledged. Lines of a pipe
/// that stays open are sent as they come, and Ctrl-C sends what was read.
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
    let input: Box<dyn BufRead + Send> = match &args.file {
        Some(path) => Box::new(BufReader::new(std::fs::File::open(path).map_err(
            |error| Failure::because(&format!("cannot read {}", path.display()), &error),
        )?)),
        None => Box::new(BufReader::new(std::io::stdin())),
    };
    let mut lines = lines_of(input);
    let mut acknowledged = 0_u64;
    let stop = CancellationToken::new();
    let sent = {
        let mut sending = pin!(send_all(
            &client,
            &url,
            &mut lines,
            &args,
            &mut acknowledged,
            &stop
        ));
        tokio::select! {
            sent = &mut sending => sent,
            // What was read goes on; whoever asks twice does not wait for it.
            _ = crate::up::wait_for_stop() => {
                stop.cancel();
                tokio::select! {
                    sent = &mut sending => sent,
                    _ = crate::up::wait_for_stop() => {
                        Err(Failure("stopped; the last records may be stored or not".to_owned()))
                    }
                }
            }
        }
    };
    let told = table::plural(acknowledged, "record");
    eprintln!("{told} acknowledged");
    sent
}

/// Sends lines as they come, until there are no more or somebody wants it to end.
async fn send_all(
    client: &Client,
    url: &str,
    lines: &mut Lines,
    args: &Args,
    acknowledged: &mut u64,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let mut is_over = false;
    let mut is_stopping = false;
    while !is_over {
        // What is there, or the next line that comes.
        let first = tokio::select! {
            line = lines.recv() => line,
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                lines.close();
                lines.recv().await
            }
        };
        let Some(first) = first else { break };
        let mut records = Vec::new();
        let mut pending_bytes = 0;
        let mut next = Some(first);
        let due = Instant::now() + TOGETHER;
        while let Some(line) = next.take() {
            let line = line.map_err(|error| Failure::because("cannot read a line", &error));
            let line = match line {
                Ok(line) => line,
                Err(failure) => {
                    // What came before it counts.
                    send(client, url, records, acknowledged).await?;
                    return Err(failure);
                }
            };
            pending_bytes += line.len();
            records.push(record(&line, args.key_separator.as_deref()));
            if records.len() >= RECORDS_PER_REQUEST || pending_bytes >= BYTES_PER_REQUEST {
                break;
            }
            // Lines that come in quick succession go together.
            next = tokio::select! {
                biased;
                line = lines.recv() => { is_over = line.is_none(); line }
                () = tokio::time::sleep_until(due) => None,
                () = stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    lines.close();
                    lines.recv().await
                }
            };
        }
        send(client, url, records, acknowledged).await?;
    }
    Ok(())
}

type Lines = mpsc::Receiver<std::io::Result<Vec<u8>>>;

/// Reads lines on a thread of its own: one that waits for the next line holds nothing up.
fn lines_of(input: Box<dyn BufRead + Send>) -> Lines {
    let (sender, lines) = mpsc::channel(LINES_AHEAD);
    std::thread::spawn(move || {
        for line in input.split(b'\n') {
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

async fn send(
    client: &Client,
    url: &str,
    records: Vec<Value>,
    acknowledged: &mut u64,
) -> Result<(), Failure> {
    if records.is_empty() {
        return Ok(());
    }
    let request = client
        .request_url(Method::POST, url)
        .header("Content-Type", "application/vnd.kafka.binary.v2+json")
        .body(json!({"records": records}).to_string());
    let answer = client.send(request).await?;
    let offsets = answer["offsets"].as_array().map_or(&[][..], Vec::as_slice);
    let is_refused = |result: &&Value| !result["error_code"].is_null();
    *acknowledged += offsets.iter().filter(|it| !is_refused(it)).count() as u64;
    match offsets.iter().find(is_refused) {
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

/// How long a line waits for others that are sent with it: a pipe may stay open for days.
const TOGETHER: Duration = Duration::from_millis(100);
/// Lines that are read while others are sent.
const LINES_AHEAD: usize = 1_024;
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
