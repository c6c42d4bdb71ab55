//! Reading through the proxy: a consumer instance of version 2, and version 3, which keeps nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Front, body};
use crate::experiment::{LabError, Measure};
use crate::http::{Call, Calls, Link};
use crate::wire::{NewTopic, Wire};

/// The rows of what stands behind the proxy.
pub struct Rows {
    /// What of the experiment these are, where only parts of it are run.
    pub name: &'static str,
    instance: [&'static str; 2],
    version_3: [&'static str; 2],
    waiting: &'static str,
    /// Shares of what a native client reads, by the same two ways.
    of_native: Option<[&'static str; 2]>,
}

/// The embedded store behind.
pub const EMBEDDED: Rows = Rows {
    name: "reads",
    instance: [
        "read by an instance, 100 B: rate",
        "read by an instance, 100 B: CPU per record",
    ],
    version_3: [
        "read by version 3, 100 B: rate",
        "read by version 3, 100 B: CPU per record",
    ],
    waiting: "a read whose records are there: p50",
    of_native: None,
};

/// Apache Kafka behind.
pub const BEFORE_KAFKA: Rows = Rows {
    name: "before Kafka: reads",
    instance: [
        "before Kafka: read by an instance, 100 B: rate",
        "before Kafka: read by an instance, 100 B: CPU per record",
    ],
    version_3: [
        "before Kafka: read by version 3, 100 B: rate",
        "before Kafka: read by version 3, 100 B: CPU per record",
    ],
    waiting: "before Kafka: a read whose records are there: p50",
    of_native: Some([
        "before Kafka: read by an instance, 100 B: of a native client's rate",
        "before Kafka: read by version 3, 100 B: of a native client's rate",
    ]),
};

/// What is measured of reading.
pub fn measures(rows: &Rows) -> Vec<Measure> {
    let mut measures = Vec::new();
    for (nth, [rate, cpu]) in [rows.instance, rows.version_3].into_iter().enumerate() {
        measures.push(Measure::new(rate, "records/s"));
        measures.push(Measure::new(cpu, "µs"));
        if let Some(of_native) = rows.of_native {
            measures.push(Measure::new(of_native[nth], "%").at_least(90.0));
        }
    }
    let karapace = "Karapace 6.2, which waits the time-out out";
    let waiting = Measure::new(rows.waiting, "ms").at_most(20.0);
    measures.push(waiting.reference(karapace, 2_900.0));
    measures
}

/// How many records are read.
pub fn records(is_quick: bool) -> usize {
    if is_quick { 100_000 } else { 1_000_000 }
}

/// Reads the filled topic whole, by each of the two ways; `native_rate` is what another client
/// reached with it, in records a second.
pub async fn run(
    rows: &Rows,
    front: &Front<'_>,
    records: usize,
    native_rate: Option<f64>,
) -> Result<Vec<(String, f64)>, LabError> {
    let address = front.proxies[0].address;
    let mut values = Vec::new();
    let ways = [
        (Way::Instance, rows.instance),
        (Way::Version3, rows.version_3),
    ];
    for (nth, (read, [rate_row, cpu_row])) in ways.into_iter().enumerate() {
        let (began, before) = (Instant::now(), front.cpu()?);
        match read {
            Way::Instance => read_by_instance(address, records).await?,
            Way::Version3 => read_by_version_3(address, records).await?,
        }
        let cpu = front.cpu()?.saturating_sub(before).as_secs_f64();
        let rate = records as f64 / began.elapsed().as_secs_f64();
        values.push((rate_row.to_owned(), rate));
        values.push((cpu_row.to_owned(), cpu * 1e6 / records as f64));
        if let (Some(of_native), Some(native)) = (rows.of_native, native_rate) {
            values.push((of_native[nth].to_owned(), rate / native * 100.0));
        }
    }
    values.push((rows.waiting.to_owned(), first_read(address).await?));
    Ok(values)
}

enum Way {
    Instance,
    Version3,
}

/// Makes the topic and fills it.
pub async fn fill(front: &Front<'_>, records: usize) -> Result<(), LabError> {
    let topic = NewTopic {
        name: TOPIC.to_owned(),
        partitions: 1,
        configs: match front.store {
            Some(_) => vec![("thalweg.durability", "os")],
            // Kafka knows no durability of a topic.
            None => Vec::new(),
        },
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
        addresses: vec![front.proxies[0].address],
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
    memchr::memmem::find_iter(text, pattern).count()
}

/// The topic that is read.
pub const TOPIC: &str = "to-be-read";
const JSON: &str = "application/vnd.kafka.json.v2+json";
const PLAIN: &str = "application/json";
const FILL_RECORDS: usize = 1_000;
const READS: usize = 20;
