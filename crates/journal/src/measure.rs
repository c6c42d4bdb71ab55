//! Quick figures on the machine's own disk; run by hand:
//! `cargo test -p journal measure -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::disk::{Disk, RealDisk};
use crate::format::Frame;
use crate::journal::Journal;
use crate::options::{Durability, JournalOptions};

#[test]
#[ignore = "a measurement, not a test"]
fn measure_appends() {
    raw_sync(200);
    for (waiters, bytes, need) in [
        (1, 200, Durability::Disk),
        (16, 200, Durability::Disk),
        (256, 200, Durability::Disk),
        (256, 200, Durability::Os),
        (1, 1 << 20, Durability::Disk),
        (16, 1 << 20, Durability::Disk),
    ] {
        measure(waiters, bytes, need);
    }
    raw_sync(1 << 20);
}

/// The machine's own pace beside the journal's: one write and one sync at a time.
fn raw_sync(bytes: usize) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let file = RealDisk.create(&dir.path().join("raw")).unwrap();
    file.allocate(0, 1 << 30).unwrap();
    file.sync().unwrap();
    let (start, payload) = (Instant::now(), vec![7; bytes]);
    let mut count = 0;
    while start.elapsed() < RUN && (count + 1) * (bytes as u64) < 1 << 30 {
        file.write_at(&payload, count * bytes as u64).unwrap();
        file.sync().unwrap();
        count += 1;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    eprintln!("raw write and fdatasync of {bytes} B: {rate:.0}/s");
}

/// For `strace -f`: the threads make no system call between the two lines that it prints.
#[test]
#[ignore = "rests so that its system calls can be watched"]
fn rest_after_work() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (journal, _) = Journal::open(
        Arc::new(RealDisk),
        dir.path(),
        JournalOptions::default(),
        &mut |_| Ok(()),
    )
    .unwrap();
    for _ in 0..100 {
        let frame = Frame {
            kind: 1,
            version: 1,
            parts: &[&[7; 200]],
        };
        journal.append_blocking(&[frame], Durability::Disk).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    eprintln!("rest begins");
    std::thread::sleep(RUN);
    eprintln!("rest ends");
}

fn measure(waiters: usize, bytes: usize, need: Durability) {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (journal, _) = Journal::open(
        Arc::new(RealDisk),
        dir.path(),
        JournalOptions::default(),
        &mut |_| Ok(()),
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    let (start, cpu) = (Instant::now(), cpu_time());
    let counts: Vec<(u64, Vec<Duration>)> = runtime.block_on(async {
        let tasks: Vec<_> = (0..waiters)
            .map(|_| {
                let journal = journal.clone();
                tokio::spawn(async move {
                    let payload = vec![7; bytes];
                    let mut latencies = Vec::new();
                    while start.elapsed() < RUN {
                        let before = Instant::now();
                        let frame = Frame {
                            kind: 1,
                            version: 1,
                            parts: &[&payload],
                        };
                        journal.append_wait(&[frame], need).await.unwrap();
                        latencies.push(before.elapsed());
                        if bytes > 1 << 16 {
                            // Keep the folder small.
                            tokio::task::block_in_place(|| {
                                journal.reclaim(journal.durable_end()).unwrap()
                            });
                        }
                    }
                    (latencies.len() as u64, latencies)
                })
            })
            .collect();
        let mut counts = Vec::new();
        for task in tasks {
            counts.push(task.await.unwrap());
        }
        counts
    });
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - cpu);
    let count: u64 = counts.iter().map(|(count, _)| count).sum();
    let mut latencies: Vec<Duration> = counts.into_iter().flat_map(|(_, all)| all).collect();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    eprintln!(
        "{waiters:>4} waiters of {bytes:>8} B at {need:?}: {:>9.0}/s, {:>7.1} MB/s, \
         {:>6.2} us CPU each, p50 {:?}, p99 {:?}",
        count as f64 / elapsed,
        count as f64 * bytes as f64 / elapsed / 1e6,
        cpu.as_secs_f64() * 1e6 / count as f64,
        at(0.5),
        at(0.99),
    );
    journal.close().unwrap();
}

/// CPU time of this process, in the kernel's ticks of ten milliseconds.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = text.rsplit_once(')').unwrap();
    let ticks = |index: usize| -> u64 {
        fields
            .split_whitespace()
            .nth(index)
            .unwrap()
            .parse()
            .unwrap()
    };
    Duration::from_millis(10 * (ticks(11) + ticks(12)))
}

const RUN: Duration = Duration::from_secs(2);
