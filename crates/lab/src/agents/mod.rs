//! A crowd of agents: they speak the C2 protocol at fixed moments, whatever the server does.
//!
//! The load is open: beat `n` is due at its own moment, its latency counts from then, and a slow
//! answer delays no other agent's moment. Connections are shared out among the beats; a beat whose
//! connection is still busy waits, and that wait counts. It is one thread, so that little is taken
//! from a server on the same machine.

mod link;
pub mod message;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::ClientConfig;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::experiment::LabError;
use crate::stats;
use link::Link;
use message::{Beats, Build, acknowledge};

/// Agents that are all alike but for their numbers.
pub struct Crowd {
    /// Where they call.
    pub address: SocketAddr,
    /// What they speak TLS with; plain without.
    pub tls: Option<Arc<ClientConfig>>,
    /// False for a new connection for each call.
    pub keeps: bool,
    /// Connections at a time.
    pub connections: u32,
    /// Whether bodies are packed.
    pub is_gzip: bool,
    /// Their builds; agent `n` is of build `n` modulo their number.
    pub builds: Vec<CrowdBuild>,
}

/// Agents of one build.
#[derive(Clone)]
pub struct CrowdBuild {
    /// The kind of agent.
    pub kind: message::Kind,
    /// Their class.
    pub class: String,
    /// The hash of their manifest.
    pub manifest_hash: String,
    /// The manifest, for whoever is asked.
    pub manifest: Arc<str>,
    /// The flow that they run; empty for none.
    pub flow: String,
}

/// When which agents call.
#[derive(Clone, Copy, Debug)]
pub struct Beat {
    /// The agents `0..agents`, one after the other, and again from the first.
    pub agents: u32,
    /// Calls in a second, of all.
    pub rate: f64,
    /// Calls in all.
    pub count: u64,
}

/// What a load came to.
#[derive(Default)]
pub struct Answered {
    /// Calls answered well.
    pub beats: u64,
    /// Calls that were not, or not within 10 s.
    pub errors: u64,
    /// What the first of them said.
    pub first_error: Option<String>,
    /// DESCRIBEs that were asked for.
    pub describes: u64,
    /// Other operations that were asked for.
    pub others: u64,
    /// Milliseconds from the moment a call was due until it was answered; rising.
    pub latency_ms: Vec<f64>,
    /// From the first moment to the last answer.
    pub seconds: f64,
}

impl Answered {
    /// The latency that a share of the calls do not exceed.
    pub fn latency(&self, quantile: f64) -> f64 {
        stats::quantile(&self.latency_ms, quantile).unwrap_or(f64::NAN)
    }
}

impl Crowd {
    /// Has agents call as `beat` says, until the last call was answered.
    pub async fn call(self: &Arc<Self>, beat: Beat) -> Answered {
        let mut links = self
            .links(u64::from(self.connections).min(beat.count))
            .await;
        let began = Instant::now() + Duration::from_millis(20);
        let noise = SystemTime::now().duration_since(UNIX_EPOCH);
        let noise = noise.map_or(1, |since| since.as_nanos() as u64 | 1);
        let all = Arc::new(Mutex::new(Answered::default()));
        let mut lines = JoinSet::new();
        for index in 0..u64::from(self.connections).min(beat.count) {
            let line = Line {
                crowd: self.clone(),
                beat,
                began,
                noise,
                index,
                all: all.clone(),
            };
            lines.spawn(line.run(links.pop()));
        }
        while lines.join_next().await.is_some() {}
        let mut answered = all
            .lock()
            .map(|mut all| std::mem::take(&mut *all))
            .unwrap_or_default();
        answered.seconds = began.elapsed().as_secs_f64();
        answered.latency_ms.sort_by(f64::total_cmp);
        answered
    }

    /// The connections that are kept, a few opened at a time, before the first beat is due: agents
    /// that were there all the time have theirs. One that fails is left to its first beat.
    async fn links(&self, count: u64) -> Vec<Link> {
        let mut links = Vec::new();
        while self.keeps && (links.len() as u64) < count {
            let few = (count - links.len() as u64).min(OPENED_AT_ONCE);
            let mut opening = JoinSet::new();
            for _ in 0..few {
                let (address, tls) = (self.address, self.tls.clone());
                opening.spawn(async move { Link::open(address, tls.as_ref()).await });
            }
            while let Some(opened) = opening.join_next().await {
                match opened {
                    Ok(Ok(link)) => links.push(link),
                    _ => return links,
                }
            }
        }
        links
    }
}

/// One of the connections, or of the agents that connect anew each time.
struct Line {
    crowd: Arc<Crowd>,
    beat: Beat,
    began: Instant,
    noise: u64,
    index: u64,
    all: Arc<Mutex<Answered>>,
}

impl Line {
    async fn run(self, mut link: Option<Link>) {
        let crowd = &*self.crowd;
        let mut beats: Vec<Beats> = crowd
            .builds
            .iter()
            .map(|build| build.beats(crowd))
            .collect();
        let mut mine = Answered::default();
        let step = u64::from(crowd.connections);
        let mut number = self.index;
        while number < self.beat.count {
            let due = self.began + Duration::from_secs_f64(number as f64 / self.beat.rate);
            tokio::time::sleep_until(due.into()).await;
            let agent = (number % u64::from(self.beat.agents)) as u32;
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let build = agent as usize % beats.len();
            let noise = self.noise.wrapping_mul(number | 1).rotate_left(23);
            let request = beats[build].beat(agent, now.as_millis() as u64, noise);
            let asked = self.ask(&mut link, request);
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(Ok(operations)) => {
                    mine.beats += 1;
                    mine.latency_ms.push(due.elapsed().as_secs_f64() * 1e3);
                    if let Some(operations) = operations {
                        self.obey(
                            &mut link,
                            agent,
                            &crowd.builds[build],
                            &operations,
                            &mut mine,
                        )
                        .await;
                    }
                }
                Ok(Err(error)) => {
                    link = None;
                    mine.fail(error);
                }
                Err(_) => {
                    link = None;
                    mine.fail(format!("no answer within {PATIENCE:?}"));
                }
            }
            if !crowd.keeps {
                link = None;
            }
            number += step;
        }
        if let Ok(mut all) = self.all.lock() {
            all.beats += mine.beats;
            all.errors += mine.errors;
            all.describes += mine.describes;
            all.others += mine.others;
            all.latency_ms.append(&mut mine.latency_ms);
            all.first_error = all.first_error.take().or(mine.first_error);
        }
    }

    /// Sends a request; the operations that the answer asks for, if any.
    async fn ask(
        &self,
        link: &mut Option<Link>,
        request: &[u8],
    ) -> Result<Option<Vec<u8>>, String> {
        let mut open = match link.take() {
            Some(link) => link,
            None => Link::open(self.crowd.address, self.crowd.tls.as_ref())
                .await
                .map_err(|error| format!("cannot connect: {error}"))?,
        };
        let reply = open
            .ask(request)
            .await
            .map_err(|error| format!("the connection broke: {error}"))?;
        *link = Some(open);
        match reply.status {
            200 => Ok(reply.operations),
            status => Err(format!("answered {status}")),
        }
    }

    /// Does what an answer asks for: describes itself.
    async fn obey(
        &self,
        link: &mut Option<Link>,
        agent: u32,
        build: &CrowdBuild,
        operations: &[u8],
        mine: &mut Answered,
    ) {
        let parsed: Value = serde_json::from_slice(operations).unwrap_or_default();
        for operation in parsed["requestedOperations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let id = operation["identifier"].as_str().unwrap_or_default();
            let manifest = match operation["operation"].as_str() {
                Some("DESCRIBE") => {
                    mine.describes += 1;
                    Some((&*build.manifest_hash, &*build.manifest))
                }
                _ => {
                    mine.others += 1;
                    None
                }
            };
            if !self.crowd.keeps {
                *link = None;
            }
            let request = acknowledge(agent, id, manifest, self.crowd.is_gzip);
            if let Err(error) = self.ask(link, &request).await {
                *link = None;
                mine.fail(format!("an acknowledge: {error}"));
            }
        }
    }
}

impl CrowdBuild {
    fn beats(&self, crowd: &Crowd) -> Beats {
        Beats::new(&Build {
            kind: self.kind,
            class: &self.class,
            manifest_hash: &self.manifest_hash,
            flow: &self.flow,
            is_gzip: crowd.is_gzip,
        })
    }
}

impl Answered {
    fn fail(&mut self, error: String) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }
}

/// What agents speak TLS with: they trust one authority, show one certificate, and shake hands in
/// full each time.
pub fn tls(folder: &std::path::Path) -> Result<Arc<ClientConfig>, LabError> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let bad = |what: &str, error: String| LabError::Failed(format!("{what}: {error}"));
    let read = |name: &str| {
        CertificateDer::from_pem_file(folder.join(name)).map_err(|e| bad(name, e.to_string()))
    };
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(read("ca.pem")?)
        .map_err(|e| bad("ca.pem", e.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(folder.join("agent.key"))
        .map_err(|e| bad("agent.key", e.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad("TLS", e.to_string()))?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![read("agent.pem")?], key);
    let mut config = config.map_err(|e| bad("agent.pem", e.to_string()))?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The builds of a crowd: MiNiFi Java and MiNiFi C++ by turns.
pub fn both_kinds(class: &str, flow: &str) -> Vec<CrowdBuild> {
    let kinds = [
        ("java", message::Kind::Java, 800_000),
        ("cpp", message::Kind::Cpp, 500_000),
    ];
    let build = |(name, kind, bytes): (&str, message::Kind, usize)| CrowdBuild {
        kind,
        class: class.to_owned(),
        manifest_hash: format!("{name}-{}", "5f".repeat(60)),
        manifest: message::manifest(kind, bytes).into(),
        flow: flow.to_owned(),
    };
    kinds.map(build).into()
}

/// Connections that are opened together.
const OPENED_AT_ONCE: u64 = 16;

/// How long an agent waits for an answer: as MiNiFi Java does.
const PATIENCE: Duration = Duration::from_secs(10);
