//! What piles up: ten million queued FlowFiles, one very large one, and a broker that is away.

mod large;
mod outage;
mod queue;

use crate::experiment::{Experiment, LabError, Measure, Outcome, Setting};

/// `thalweg lab run backlog`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "backlog",
    about: "10,000,000 queued FlowFiles, one of 20 GB, a broker that is away for ten minutes",
    method: "Three parts, each with repositories on disk. Queued: GenerateFlowFile fills a connection \
        with 10,000,000 FlowFiles of 100 bytes (quick: 200,000) before a processor whose cron time never \
        comes, once with all of them in memory and once swapped above 20,000; memory is what is resident \
        a second after the last; then the agent is killed (SIGKILL) and started with a sink that runs, \
        and the time is until the sink's counter moves. Large: a file of 20 GB (quick: 2 GB; less where \
        two of them do not fit the disk, which is noted) with marks at known places goes through GetFile, \
        HashContent and PutFile; memory is the most that was resident, and the marks and the length of the \
        result are compared. Away: 10 MB/s of FlowFiles of 1 KB into PublishKafka; the event store is \
        killed, started again after ten minutes (quick: 20 s; each run waits for them, so that \
        `--runs 1` is enough for a look), and input goes on; memory is the most during \
        the outage less what it was before; drained is what was queued plus what came meanwhile over the \
        time until less than a second's input is queued, beside one file read in sequence from the disk in \
        the same run.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    let mut all = queue::measures();
    all.extend(large::measures());
    all.extend(outage::measures());
    all
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::default();
    if setting.wants("queued") {
        queue::run(setting, &mut outcome)?;
    }
    if setting.wants("large") {
        large::run(setting, &mut outcome)?;
    }
    if setting.wants("away") {
        outage::run(setting, &mut outcome)?;
    }
    Ok(outcome)
}

/// A MiB.
const MIB: f64 = (1 << 20) as f64;
