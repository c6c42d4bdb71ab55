//! Reading through the proxy: a consumer instance of version 2, and version 3, which keeps nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Front, body};
use crate::experiment::{LabError, Measure};
use crate::http::{Call, Calls, Link};
use crate::wire::{NewTopic, Wire};

/// What is measured of reading.
pub fn measures() -> Vec<Measure> {
    vec![
        Measure::new(V2_RATE, "records/s"),
        Measure::new(V2_CPU, "µs"),
        Measure::new(V3_RATE, "records/s"),
        Measure::new(V3_CPU, "µs"),
        Measure::new(WAITING, "ms")
            .at_most(20.0)
            .reference("Karapace 6.2, which waits the time-out out", 2_900.0),
    ]
}

/// Fills a topic and reads it whole, by each of the two ways.
pub async fn run(front: &Front<'_>, is_quick: bool) -> Result<Vec<(String, f64)>, LabError> {
    let address = front.proxies[0].address;
    let records = if is_quick { 100_000 } else { 1_000_000 };
    fill(front, address, records).await?;
    let mut values = Vec::new();
    for (read, rate_row, cpu_row) in [
        (Way::Instance, V2_RATE, V2_CPU),
        (Way::Version3, V3_RATE, V3_CPU),
    ] {
        let (began, before) = (Instant::now(), front.cpu()?);
        match read {
            Way::Instance => read_by_instance(address, records).await?,
            Way::Version3 => read_by_version_3(address, records).await?,
        }
        let cpu = front.cpu()?.saturating_sub(before).as_secs_f64();
        let rate = records as f64 / began.elapsed().as_secs_f64();
        values.push((rate_row.to_owned(), rate));
        values.push((cpu_row.to_owned(), cpu * 1e6 / records as f64));
    }
    values.push((WAITING.to_owned(), first_read(address).await?));
    Ok(values)
}

enum Way {
    Instance,
    Version3,
}

async fn fill(front: &Front<'_>, address: SocketAddr, records: usize) -> Result<(), LabError> {
    let topic = NewTopic {
        name: TOPIC.to_owned(),
        partitions: 1,
        configs: vec![("thalweg.durability", "os")],
    };
    Wire::connect(&front.kafka)
        .await?
        .create_topics(&[topic])
        .await?;
    let call = Call::new(
        "POST",
        &format!("/topics/{TOPIC}"),
        JSON,
        &body(FILL_RECORDS, 100),
    );
    let calls = Calls {
        addresses: vec![address],
        calls: vec![call; 4],
        keep: true,
        pause: Duration::ZERO,
        length: Duration::from_secs(300),
        calls_max: (records / FILL_RECORDS) as u64,
    };
    calls.run().await.map(|_| ())
}

async fn read_by_instance(address: SocketAddr, records: usize) -> Result<(), LabError> {
    let mut link = Link::open(address).await?;
    let instance = instance(&mut link).await?;
    let read = Call::new(
        "GET",
        &format!("{instance}/records?max_bytes=4000000&timeout=5000"),
        JSON,
        b"",
    );
    let mut seen = 0;
    while seen < records {
        let text = link.ask_whole(&read).await?;
        let got = occurrences(&text, b"\"offset\":");
        if got == 0 {
            return Err(ended(seen, &text));
        }
        seen += got;
    }
    close(&mut link, &instance).await
}

async fn read_by_version_3(address: SocketAddr, records: usize) -> Result<(), LabError> {
    let mut link = Link::open(address).await?;
    let clusters = ask(&mut link, &Call::new("GET", "/v3/clusters", PLAIN, b"")).await?;
    let id = clusters["data"][0]["cluster_id"]
        .as_str()
        .unwrap_or_default();
    let path = format!("/v3/clusters/{id}/topics/{TOPIC}/records?max_bytes=4000000");
    let (mut seen, mut position) = (0, 0);
    while seen < records {
        let call = Call::new("GET", &format!("{path}&positions=0:{position}"), PLAIN, b"");
        let text = link.ask_whole(&call).await?;
        let got = occurrences(&text, b"\"offset\":");
        if got == 0 {
            return Err(ended(seen, &text));
        }
        seen += got;
        position += got;
    }
    Ok(())
}

fn ended(seen: usize, answer: &[u8]) -> LabError {
    let answer = String::from_utf8_lossy(&answer[..answer.len().min(200)]).into_owned();
    LabError::Failed(format!("a read ended at {seen} records: {answer}"))
}

/// How long a read takes whose records are there, of an instance that had time to join its group.
async fn first_read(address: SocketAddr) -> Result<f64, LabError> {
    let mut link = Link::open(address).await?;
    let instance = instance(&mut link).await?;
    let read = Call::new(
        "GET",
        &format!("{instance}/records?max_bytes=10000&timeout=3000"),
        JSON,
        b"",
    );
    let mut times = Vec::new();
    link.ask(&read).await?;
    for _ in 0..READS {
        let began = Instant::now();
        link.ask(&read).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    close(&mut link, &instance).await?;
    let times = crate::stats::sorted(&times);
    Ok(crate::stats::quantile(&times, 0.5).unwrap_or(f64::NAN))
}

/// Creates a consumer instance that is assigned the topic from its beginning; answers its path.
async fn instance(link: &mut Link) -> Result<String, LabError> {
    let config = json!({"format": "json", "auto.offset.reset": "earliest"});
    let made = post(link, "/consumers/lab", &config).await?;
    let uri = made["base_uri"].as_str().unwrap_or_default();
    let path = uri
        .find("/consumers/")
        .map(|at| uri[at..].to_owned())
        .ok_or_else(|| LabError::Failed(format!("no instance was made: {made}")))?;
    let partitions = json!({"partitions": [{"topic": TOPIC, "partition": 0}]});
    post(link, &format!("{path}/assignments"), &partitions).await?;
    post(link, &format!("{path}/positions/beginning"), &partitions).await?;
    Ok(path)
}

async fn post(link: &mut Link, path: &str, body: &Value) -> Result<Value, LabError> {
    let media = "application/vnd.kafka.v2+json";
    ask(
        link,
        &Call::new("POST", path, media, body.to_string().as_bytes()),
    )
    .await
}

async fn close(link: &mut Link, instance: &str) -> Result<(), LabError> {
    let media = "application/vnd.kafka.v2+json";
    ask(link, &Call::new("DELETE", instance, media, b"")).await?;
    Ok(())
}

/// An answer as JSON; null where there is none.
async fn ask(link: &mut Link, call: &Call) -> Result<Value, LabError> {
    let text = link.ask_whole(call).await?;
    Ok(serde_json::from_slice(&text).unwrap_or_default())
}

/// How often a pattern stands in a text: reading whole answers as JSON would cost more than serving.
fn occurrences(text: &[u8], pattern: &[u8]) -> usize {
    let mut count = 0;
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == pattern[0]) {
        rest = &rest[at..];
        if rest.starts_with(pattern) {
            count += 1;
        }
        rest = &rest[1..];
    }
    count
}

/// What of the experiment these are, where only parts of it are run.
pub const NAME: &str = "reads";

const V2_RATE: &str = "read by an instance, 100 B: rate";
const V2_CPU: &str = "read by an instance, 100 B: CPU per record";
const V3_RATE: &str = "read by version 3, 100 B: rate";
const V3_CPU: &str = "read by version 3, 100 B: CPU per record";
const WAITING: &str = "a read whose records are there: p50";

const TOPIC: &str = "to-be-read";
const JSON: &str = "application/vnd.kafka.json.v2+json";
const PLAIN: &str = "application/json";
const FILL_RECORDS: usize = 1_000;
const READS: usize = 20;
