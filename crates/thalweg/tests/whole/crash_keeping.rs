//! kill -9 of `up` in the midst of compaction and retention: the last change of each key stays,
//! what went does not come back, and consumers see no damage.

use std::path::Path;
use std::time::Duration;

use base::Rng;
use serde_json::Value;

use crate::harness::{Running, Up, eventually, folder, number_of, python};

/// How often the process is killed; more rounds by hand with `THALWEG_TEST_KILLS=200`.
const ROUNDS: u64 = 6;

/// Passes that come all the time, over files that go all the time, and are told.
const BUSY: [&str; 6] = [
    "--set",
    "streams.segment_bytes=1MiB",
    "--set",
    "streams.max_message_bytes=256KiB",
    "--set",
    "log.level=info,streams=debug",
];

#[test]
fn compaction_and_retention_survive_kills_in_their_midst() {
    let rounds = number_of("THALWEG_TEST_KILLS", ROUNDS);
    let seed = Rng::from_entropy().next_u64();
    eprintln!("seed {seed}, {rounds} rounds");
    let mut rng = Rng::from_seed(seed);
    let dir = folder();
    let mut up = Up::start_with(&dir.path().join("data"), &BUSY);
    let table = ["cleanup.policy=compact", "delete.retention.ms=10000"];
    let table = [
        &table[..],
        &[
            "max.compaction.lag.ms=500",
            "min.cleanable.dirty.ratio=0.01",
        ],
    ];
    create(&up, "table", &table.concat());
    create(
        &up,
        "recent",
        &["retention.ms=1500", "retention.bytes=1000000"],
    );
    let [progress, stop] = ["progress", "stop"].map(|name| dir.path().join(name));
    let clients = Running::start(
        python("kafka_keyed_under_kills.py")
            .args([&up.address("streams"), "table", "recent"])
            .args([&progress, &stop]),
        &dir.path().join("clients.log"),
    );
    let log = up.data().with_extension("up.log");
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    let mut in_midst = 0;
    for _ in 0..rounds {
        let before = done(&progress);
        eventually("all that look at the topics get on", || {
            let now = done(&progress);
            let names = ["acked", "passes", "followed", "watched", "begins"];
            names
                .iter()
                .all(|of| now[*of].as_u64() > before[*of].as_u64())
                .then_some(())
        });
        let begun = told().matches(BEGINS).count();
        eventually("another pass begins", || {
            (told().matches(BEGINS).count() > begun).then_some(())
        });
        // The pass, the snapshot behind it, the moving or the freeing.
        std::thread::sleep(Duration::from_millis(rng.below(60)));
        up.kill();
        let told = told();
        in_midst += u64::from(told.rfind(BEGINS) > told.rfind(ENDS));
        up = up.start_again(&BUSY);
    }
    std::fs::write(&stop, "").unwrap();
    clients.finish("every key is as it was left");
    let done = done(&progress);
    eprintln!("seed {seed}: {in_midst} kills during a pass; {done}");
    assert!(done["tombstones"].as_u64() > Some(0), "{done}");
}

fn create(up: &Up, topic: &str, settings: &[&str]) {
    let settings = settings.iter().flat_map(|setting| ["--config", setting]);
    let arguments: Vec<&str> = ["topics", "create", topic]
        .into_iter()
        .chain(settings)
        .collect();
    up.cli_json(&arguments);
}

/// What the clients have done so far.
fn done(progress: &Path) -> Value {
    let text = std::fs::read(progress).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or(Value::Null)
}

/// What the store says of a pass.
const BEGINS: &str = "compacting a partition";
const ENDS: &str = "compacted a partition";
