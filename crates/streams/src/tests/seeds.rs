//! What all simulations share: their seeds, and how the life of a store ends.

use std::sync::Arc;

use base::Rng;
use journal::SimDisk;

use crate::store::Streams;

/// Runs the world of each seed, `STREAMS_SEEDS` of them from `STREAMS_SEED_FIRST` on; answers how
/// many there were. A failing one is named.
pub(super) fn each(mut run: impl AsyncFnMut(u64)) -> u64 {
    let seeds = number("STREAMS_SEEDS").unwrap_or(SEEDS);
    let first = number("STREAMS_SEED_FIRST").unwrap_or(0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    for seed in first..first + seeds {
        // A panic within names the seed by this.
        let report = SeedReport(seed);
        runtime.block_on(run(seed));
        std::mem::forget(report);
    }
    seeds
}

/// Ends this life: in order, or by a power cut at whatever the store does next.
pub(super) async fn end_life(rng: &mut Rng, disk: &SimDisk, streams: Arc<Streams>) {
    if rng.one_in(3) && !disk.is_down() {
        streams.close().await;
    } else {
        disk.crash_after(0);
    }
    closed(streams);
    disk.crash();
}

/// Waits for whoever could touch the next life's files: the writer, and the keeper, which may hold
/// the store for a moment. Closing fails where the power is cut.
pub(super) fn closed(streams: Arc<Streams>) {
    drop(streams.shared().journal.close());
    while Arc::strong_count(&streams) > 1 {
        std::thread::yield_now();
    }
}

struct SeedReport(u64);

impl Drop for SeedReport {
    fn drop(&mut self) {
        eprintln!("the simulation of seed {} failed", self.0);
    }
}

/// Seeds of a test that costs `times` as much as others.
pub(super) fn count_of_costly(times: u64) -> u64 {
    number("STREAMS_SEEDS").unwrap_or(SEEDS).div_ceil(times)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|n| n.parse().ok())
}

/// Seeds of an ordinary run: seconds, and enough to get everywhere.
const SEEDS: u64 = 120;
