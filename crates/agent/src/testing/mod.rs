//! What the tests of this crate share: a broker that is none, one processor alone, and flows in
//! few lines.

mod broker;
mod certs;
mod group;
mod hand;
mod http;
mod logged;
mod login;
mod mqtt;
mod rig;
mod rig_tests;

pub(crate) use broker::Broker;
pub(crate) use certs::{Certificates, openssl};
pub(crate) use hand::HandFlow;
pub(crate) use http::{Answer, HttpPeer, Seen};
pub(crate) use logged::Logged;
pub(crate) use login::Account;
pub(crate) use mqtt::MqttPeer;
pub(crate) use rig::{Out, Rig};

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use base::SystemClock;
use journal::RealDisk;

use crate::bulletins::Bulletins;
use crate::definition::Flow;
use crate::engine::{Engine, EngineOptions, Failure, Ground, Prepared};
use crate::parameters::Outside;
use crate::repository::{Repository, RepositoryLimits, RepositoryOptions};

/// A repository in `dir` that tidies up often, and the rest of the ground.
pub(crate) fn ground(dir: &Path, runtime: &tokio::runtime::Runtime) -> Ground {
    ground_with(dir, runtime, RepositoryOptions::default())
}

/// As [`ground`], with other kinds of repositories.
pub(crate) fn ground_with(
    dir: &Path,
    runtime: &tokio::runtime::Runtime,
    options: RepositoryOptions,
) -> Ground {
    let limits = RepositoryLimits {
        segment_bytes: 16 << 20,
        snapshot_bytes_min: 1 << 20,
        pinned_bytes_max: 4 << 20,
        content_pinned_bytes_max: 4 << 20,
        reserve_bytes: 64 << 10,
        ..RepositoryLimits::default()
    };
    ground_as(dir, runtime, RepositoryOptions { limits, ..options })
}

/// A repository as `options` say, and the rest of the ground.
pub(crate) fn ground_as(
    dir: &Path,
    runtime: &tokio::runtime::Runtime,
    options: RepositoryOptions,
) -> Ground {
    ground_on(
        Repository::open(Arc::new(RealDisk), &dir.join("repository"), options).unwrap(),
        runtime,
    )
}

/// This repository and the rest of the ground.
pub(crate) fn ground_on(repository: Arc<Repository>, runtime: &tokio::runtime::Runtime) -> Ground {
    Ground {
        repository,
        bulletins: Arc::new(Bulletins::default()),
        clock: Arc::new(SystemClock),
        runtime: runtime.handle().clone(),
        failure: Arc::new(Failure::default()),
        ports: crate::s2s::Ports::default(),
        options: EngineOptions::default(),
        outside: Outside::default(),
    }
}

/// A runtime for tests.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// Starts the flow of `text`.
pub(crate) fn start(ground: &Ground, text: &str) -> Engine {
    let flow = Flow::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
    let prepared = Prepared::new(ground.clock.now(), flow).unwrap();
    Engine::start(ground.clone(), prepared).unwrap()
}

/// Waits until `count` reaches `least`, or fails with `what` when it stands still for two minutes.
pub(crate) fn wait_for_count(what: &str, least: usize, count: impl Fn() -> usize) {
    let mut seen = count();
    while seen < least {
        let before = seen;
        wait_until(what, || {
            seen = count();
            seen > before
        });
    }
}

/// Waits until `holds`, or fails after half a minute with `what` and all bulletins.
pub(crate) fn wait_or_tell(ground: &Ground, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        let bulletins = || {
            let all = ground
                .bulletins
                .since(ground.clock.now(), Duration::from_secs(60));
            let all = all.into_iter().map(|bulletin| bulletin.message);
            all.collect::<Vec<String>>().join("\n")
        };
        assert!(
            Instant::now() < deadline,
            "waited too long until {what}:\n{}",
            bulletins()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until `holds`, or fails with `what` after two minutes.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A flow that makes a FlowFile each 10 ms and logs it; the queue between is `q`.
pub(crate) fn make_and_log(name: &str) -> String {
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: {name}}}
Processors:
- {{name: make, class: GenerateFlowFile, scheduling period: 10 ms}}
- {{name: log, class: LogAttribute, auto-terminated relationships list: [success],
   Properties: {{Log Level: trace, FlowFiles To Log: 0}}}}
Connections:
- {{id: q, source name: make, source relationship name: success, destination name: log}}
"
    )
}

/// A port that nobody listens on. The system gives none of these to who asks for any, so that no other
/// test's server gets it once it is free again.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 1_000) as u16 * 10;
    let turns = std::iter::from_fn(|| Some(NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut ports = turns.map(|nth| 20_000 + first.wrapping_add(nth) % 12_000);
    let is_free = |port: &u16| TcpListener::bind(("::", *port)).is_ok();
    ports.find(is_free).expect("there are always more")
}
