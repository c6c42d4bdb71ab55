//! How long lists, filters and searches over a fleet take while its agents call.
//!
//! `cargo run --release -p fleet --example list-latency [AGENTS [SECONDS]]` registers the agents
//! (100,000), has all of them call once a minute, asks for lists meanwhile, and prints percentiles.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::SystemClock;
use fleet::{Fleet, FleetConfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let agents: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(30), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let config = FleetConfig::default();
    let fleet = Fleet::open(folder.path(), config, Arc::new(SystemClock)).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let routes = fleet::http::routes(fleet.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let client = reqwest::Client::new();

    let began = Instant::now();
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let (client, address) = (client.clone(), address.clone());
        workers.spawn(async move {
            for agent in (worker..agents).step_by(WORKERS) {
                beat(&client, &address, agent).await;
            }
        });
    }
    workers.join_all().await;
    println!("{agents} agents registered in {:.1?}", began.elapsed());

    let until = Instant::now() + Duration::from_secs(seconds);
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let (client, address) = (client.clone(), address.clone());
        // Each calls its share of the agents within a minute.
        let pause = Duration::from_secs(60).mul_f64(WORKERS as f64 / agents as f64);
        workers.spawn(async move {
            let (mut due, mut times) = (Instant::now(), Vec::new());
            for agent in (worker..agents).step_by(WORKERS).cycle() {
                if due >= until {
                    break;
                }
                tokio::time::sleep_until(due.into()).await;
                beat(&client, &address, agent).await;
                times.push(due.elapsed());
                due += pause;
            }
            times
        });
    }
    let mut lists = Vec::new();
    for (name, query) in QUERIES {
        lists.push((name, format!("{address}/api/v1/agents?{query}"), Vec::new()));
    }
    let mut turn = 0;
    while Instant::now() < until {
        let (_, url, times) = &mut lists[turn % QUERIES.len()];
        let began = Instant::now();
        let answer = client.get(url.as_str()).send().await?;
        assert!(answer.status().is_success(), "{}", answer.status());
        answer.bytes().await?;
        times.push(began.elapsed());
        turn += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let beats: Vec<Duration> = workers.join_all().await.into_iter().flatten().collect();
    let rate = beats.len() as f64 / seconds as f64;
    report(
        &format!("heartbeats, {rate:.0}/s, from when they were due"),
        beats,
    );
    let all = lists.iter().flat_map(|(.., times)| times).copied();
    report("all lists", all.collect());
    for (name, _, times) in lists {
        report(name, times);
    }
    fleet.close().await;
    Ok(())
}

async fn beat(client: &reqwest::Client, address: &str, agent: usize) {
    let class = agent % 50;
    let body = format!(
        r#"{{"deviceInfo":{{"identifier":"d{agent}","networkInfo":{{"hostname":"host-{agent}"}}}},
        "agentInfo":{{"identifier":"agent-{agent:07}","agentClass":"class-{class}",
        "agentManifestHash":"h","agentManifest":{{"agentType":"cpp"}}}},"flowInfo":{{"flowId":"f"}}}}"#
    );
    let path = format!("{address}/c2/heartbeat");
    let sent = client.post(path).body(body).send().await;
    let status = sent.expect("the fleet answers").status();
    assert!(status.is_success(), "{status}");
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times.get(index.min(times.len().saturating_sub(1))).copied()
    };
    println!(
        "{name}: {} times, p50 {:.1?}, p99 {:.1?}, max {:.1?}",
        times.len(),
        at(0.5).unwrap_or_default(),
        at(0.99).unwrap_or_default(),
        at(1.0).unwrap_or_default(),
    );
}

const WORKERS: usize = 16;

const QUERIES: [(&str, &str); 6] = [
    ("the first hundred", "limit=100"),
    ("a page in the middle", "limit=100&after=agent-0050000"),
    ("one class", "limit=1000&class=class-7"),
    ("missing ones, of which there are none", "state=missing"),
    ("a search for one", "search=host-99999"),
    (
        "a search for none in one state",
        "search=nobody&flow_state=none",
    ),
];
