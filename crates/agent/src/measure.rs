//! Quick figures of the repositories on the machine's own disk; run by hand:
//! `cargo test --release -p agent measure -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use crate::repository::{
    ContentKind, FlowFileKind, ProvenanceKind, RepositoryLimits, RepositoryOptions,
};
use crate::testing::{ground_as, runtime, start};

#[test]
#[ignore = "a measurement, not a test"]
fn measure_repositories() {
    let wanted = std::env::var("MEASURE").unwrap_or_default();
    let sizes = [
        (1 << 20, 4),
        (100 << 10, 40),
        (10 << 10, 256),
        (1 << 10, 2_000),
        (100, 5_000),
    ];
    for (size, batch) in sizes {
        for content in [
            ContentKind::FileSystem,
            ContentKind::Database,
            ContentKind::VOLATILE,
        ] {
            for flow_files in [FlowFileKind::Disk, FlowFileKind::Volatile] {
                for provenance in [ProvenanceKind::DISK, ProvenanceKind::None] {
                    let options = RepositoryOptions {
                        flow_files,
                        content,
                        provenance,
                        ..RepositoryOptions::default()
                    };
                    let what = format!("{size} {content:?} {flow_files:?} {provenance:?}");
                    let words = ["Volatile", "VOLATILE"];
                    let what = what.replace(words[1], words[0]);
                    if wanted.split(',').all(|word| what.contains(word)) {
                        measure(&what, size, batch, options);
                    }
                }
            }
        }
    }
}

fn measure(what: &str, size: u64, batch: u64, options: RepositoryOptions) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let runtime = runtime();
    let options = RepositoryOptions {
        limits: RepositoryLimits::default(),
        ..options
    };
    let ground = ground_as(dir.path(), &runtime, options);
    let flow = format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: measure}}
Processors:
- name: generate
  class: GenerateFlowFile
  scheduling period: 0 ms
  Properties: {{File Size: {size} B, Batch Size: {batch}}}
- name: sink
  class: UpdateAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success, failure]
Connections:
- name: between
  source name: generate
  source relationship name: success
  destination name: sink
  max work queue size: 100000
  max work queue data size: 32 MB
"
    );
    let engine = start(&ground, &flow);
    let read = || {
        let nodes = engine.nodes();
        let sink = nodes.iter().find(|node| node.name == "sink").unwrap();
        (sink.flow_files_in, sink.bytes_in, Instant::now(), cpu())
    };
    std::thread::sleep(Duration::from_secs(1));
    let before = read();
    std::thread::sleep(Duration::from_secs(3));
    let after = read();
    let seconds = (after.2 - before.2).as_secs_f64();
    let (count, bytes) = (after.0 - before.0, after.1 - before.1);
    println!(
        "{what}: {:.0} FlowFiles/s, {:.0} MB/s, {:.2} CPU-s per GB, {:.2} us each",
        count as f64 / seconds,
        bytes as f64 / seconds / 1e6,
        (after.3 - before.3) / (bytes as f64 / 1e9),
        (after.3 - before.3) / (count as f64 / 1e6),
    );
    engine.stop();
}

/// CPU seconds of this process.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: u64 = fields[11..13]
        .iter()
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    ticks as f64 / 100.0
}
