//! The known agent's repository matrix: three content kinds by four mixes of FlowFile and provenance
//! repositories, at five sizes, beside what the machine can do and RocksDB in the known shape.

pub mod small;

use std::path::Path;
use std::time::Duration;

use crate::edge::{Beat, Counts, Edge, Start};
use crate::experiment::{Experiment, LabError, Map, Measure, Outcome, Setting};
use crate::host;
use crate::rocks::Rocks;

/// `thalweg lab run repositories`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "repositories",
    about: "content × FlowFile × provenance repositories at 1 MB to 100 B, beside disk, memory and RocksDB",
    method: "thalweg-agent with a flow of two processors, GenerateFlowFile (unique random content, sessions \
        of at most 4 MB or 5,000 FlowFiles) and one that ends them, for each kind of content repository, \
        each mix of FlowFile and provenance repositories and each size; repositories are chosen by \
        MiNiFi's class names in minifi.properties, everything on disk synced by group commit. A rate is \
        from two of the agent's own counts, after a third of the time and at its end (full: 6 s a cell, \
        quick: 0.5 s and three sizes). Volatile content has 64 MB. In the same run: the disk written past \
        the page cache (1 MiB blocks from four threads into space reserved before, the better of the first \
        and second time over it, synced at the end), through it (synced at the end), memory copied (64 MiB \
        blocks), and RocksDB as Debian has it, in the known agent's shape and options (one synced batch of \
        content a session, records and two provenance events a FlowFile unsynced in stores of their own, \
        deletes each second), one thread, FlowFiles of the same sizes and sessions.",
    peer: Some("RocksDB"),
    measures,
    run,
};

/// A kind of content repository.
#[derive(Clone, Copy)]
pub struct ContentKind {
    name: &'static str,
    class: &'static str,
    is_on_disk: bool,
    /// The published table's row, in MB/s, by [`MIXES`].
    published: [f64; 4],
}

/// A mix of FlowFile and provenance repositories.
#[derive(Clone, Copy)]
pub struct Mix {
    name: &'static str,
    flow_files: &'static str,
    provenance: &'static str,
    keeps_flow_files: bool,
}

/// One size of FlowFiles.
#[derive(Clone, Copy)]
struct Size {
    name: &'static str,
    bytes: u64,
    is_quick: bool,
}

fn measures() -> Vec<Measure> {
    let mut all = vec![
        Measure::new(DIRECT, "MB/s"),
        Measure::new(BUFFERED, "MB/s"),
        Measure::new(COPY, "MB/s"),
    ];
    for size in SIZES {
        all.extend(measures_of(size));
    }
    for size in SIZES {
        for content in CONTENT {
            for (at, mix) in MIXES.iter().enumerate() {
                let name = cell(content, *mix, size);
                let mut rate = Measure::new(&name, "MB/s").detail();
                if size.bytes == 1_000_000 {
                    rate = rate.reference(PUBLISHED, content.published[at]);
                }
                all.push(rate);
                all.push(Measure::new(format!("{name}: FlowFiles"), "1/s").detail());
            }
        }
    }
    all
}

/// What must hold of one size.
fn measures_of(size: Size) -> Vec<Measure> {
    let named = |figure: &str| format!("{}: {figure}", size.name);
    let is_large = size.bytes >= 10_000;
    let mut all = Vec::new();
    for content in CONTENT.into_iter().filter(|content| content.is_on_disk) {
        let share = Measure::new(named(&share_name(content)), "%");
        all.push(if is_large {
            share.at_least(90.0)
        } else {
            share
        });
        let rate = Measure::new(named(&all_on_disk_name(content)), "FlowFiles/s");
        all.push(if size.bytes == 1_000 {
            rate.at_least(500_000.0)
        } else {
            rate
        });
    }
    all.push(Measure::new(named(WORST), "%").at_least(80.0));
    all.push(
        Measure::new(named(BESIDE), "MB/s").goal(crate::experiment::Goal::TimesPeerAtLeast(10.0)),
    );
    let volatile = Measure::new(named(VOLATILE), "MB/s");
    all.push(if size.bytes == 10_000 {
        volatile.at_least(3_000.0)
    } else {
        volatile
    });
    let volatile = Measure::new(named(VOLATILE_COUNT), "FlowFiles/s");
    all.push(if size.bytes == 1_000 {
        volatile.at_least(3_000_000.0)
    } else {
        volatile
    });
    all.push(Measure::new(named(GARBAGE), "%").at_least(90.0));
    all
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::default();
    let bytes = if setting.quick { 256 << 20 } else { 2 << 30 };
    let cannot = || LabError::system("cannot measure the disk");
    let direct = host::direct_write_bytes_per_s(setting.folder(), bytes).map_err(cannot())? / 1e6;
    let buffered = host::cached_write_bytes_per_s(setting.folder(), bytes).map_err(cannot())? / 1e6;
    outcome.add(DIRECT, direct);
    outcome.add(BUFFERED, buffered);
    outcome.add(COPY, host::copy_bytes_per_s() / 1e6);
    let rocks = match Rocks::compile(setting.folder()) {
        Ok(rocks) => Some(rocks),
        Err(error) => {
            outcome.note(format!("RocksDB left out: {}", base::report(&error)));
            None
        }
    };
    for size in SIZES
        .into_iter()
        .filter(|size| size.is_quick || !setting.quick)
    {
        let rates = rates_of(setting, size, &mut outcome)?;
        conclude(size, &rates, direct, &mut outcome);
        if let Some(rocks) = &rocks {
            let folder = setting.path("rocks-data");
            let (batch, length) = (batch_of(size.bytes), length(setting));
            let rate = rocks.run(&folder, size.bytes, batch, length, setting.folder())?;
            let name = format!("{}: {BESIDE}", size.name);
            outcome.peers.push((name, rate * size.bytes as f64 / 1e6));
        }
    }
    Ok(outcome)
}

/// FlowFiles a second of each cell, by content kind and mix; NaN where it was not wanted.
type Rates = [[f64; 4]; 3];

fn rates_of(setting: &Setting, size: Size, outcome: &mut Outcome) -> Result<Rates, LabError> {
    let mut rates = [[f64::NAN; 4]; 3];
    for (row, content) in CONTENT.into_iter().enumerate() {
        for (column, mix) in MIXES.into_iter().enumerate() {
            let name = cell(content, mix, size);
            if !setting.wants(&name) {
                continue;
            }
            let rate = rate_of(setting, content, mix, size.bytes)?;
            outcome.add(name.as_str(), rate * size.bytes as f64 / 1e6);
            outcome.add(format!("{name}: FlowFiles"), rate);
            rates[row][column] = rate;
        }
    }
    let megabytes = |rate: f64| rate * size.bytes as f64 / 1e6;
    outcome.maps.push(map(
        format!("{}, MB/s: Thalweg", size.name),
        rates.map(|row| row.map(megabytes)),
    ));
    if size.bytes == 1_000_000 {
        let published = CONTENT.map(|content| content.published);
        outcome
            .maps
            .push(map(format!("published, MB/s: {PUBLISHED}"), published));
    }
    Ok(rates)
}

fn map(name: String, values: Rates) -> Map {
    Map {
        name,
        columns: MIXES.iter().map(|mix| mix.name.to_owned()).collect(),
        rows: CONTENT
            .iter()
            .map(|content| content.name.to_owned())
            .collect(),
        values: values.iter().map(|row| row.to_vec()).collect(),
    }
}

/// The figures that goals are about.
fn conclude(size: Size, rates: &Rates, direct: f64, outcome: &mut Outcome) {
    let megabytes = |rate: f64| rate * size.bytes as f64 / 1e6;
    let mut add = |figure: &str, value: f64| {
        if value.is_finite() {
            outcome.add(format!("{}: {figure}", size.name), value);
        }
    };
    let mut durable = Vec::new();
    for (row, content) in CONTENT.into_iter().enumerate() {
        if content.is_on_disk {
            add(
                &share_name(content),
                megabytes(rates[row][0]) / direct * 100.0,
            );
            add(&all_on_disk_name(content), rates[row][0]);
            let kept = MIXES
                .iter()
                .zip(rates[row])
                .filter(|(mix, _)| mix.keeps_flow_files);
            durable.extend(kept.map(|(_, rate)| rate));
        }
    }
    let best = durable.iter().copied().fold(f64::NAN, f64::max);
    let worst = durable.iter().copied().fold(f64::NAN, f64::min);
    add(WORST, worst / best * 100.0);
    add(BESIDE, megabytes(rates[DATABASE][0]));
    add(VOLATILE, megabytes(rates[IN_MEMORY][3]));
    add(VOLATILE_COUNT, rates[IN_MEMORY][3]);
    add(GARBAGE, rates[IN_MEMORY][0] / rates[IN_MEMORY][3] * 100.0);
}

/// FlowFiles a second through two processors.
fn rate_of(setting: &Setting, content: ContentKind, mix: Mix, bytes: u64) -> Result<f64, LabError> {
    let data = setting.path("agent-data");
    let flow = flow_of(bytes);
    let properties = properties_of(content, mix, &data, "64 MB");
    let properties: Vec<(&str, &str)> = properties
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    let start = Start {
        name: "agent",
        flow: &flow,
        properties: &properties,
        data: data.clone(),
    };
    let mut edge = Edge::start(setting, &start)?;
    let passed = |beat: &Beat| counts_of(beat, SINK).flow_files;
    edge.until("the first FlowFiles", passed, |beat| passed(beat) > 0)?;
    let length = length(setting);
    std::thread::sleep(length / 3);
    edge.process.still_runs()?;
    let first = edge.beat();
    std::thread::sleep(length - length / 3);
    edge.process.still_runs()?;
    let last = edge.beat();
    edge.process.stop()?;
    std::fs::remove_dir_all(&data).map_err(LabError::system("cannot clear the agent's folder"))?;
    let (Some(first), Some(last)) = (first, last) else {
        return Err(LabError::Failed("the agent sent no heartbeat".to_owned()));
    };
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    Ok((passed(&last) - passed(&first)) as f64 / seconds)
}

/// What a processor had counted by a heartbeat.
fn counts_of(beat: &Beat, processor: &str) -> Counts {
    beat.processors.get(processor).copied().unwrap_or_default()
}

/// Lines of `minifi.properties` that choose the repositories.
fn properties_of(
    content: ContentKind,
    mix: Mix,
    data: &Path,
    volatile_bytes: &str,
) -> Vec<(&'static str, String)> {
    let folder = |name: &str| data.join(name).display().to_string();
    vec![
        (
            "nifi.content.repository.class.name",
            content.class.to_owned(),
        ),
        (
            "nifi.flowfile.repository.class.name",
            mix.flow_files.to_owned(),
        ),
        (
            "nifi.provenance.repository.class.name",
            mix.provenance.to_owned(),
        ),
        (
            "nifi.database.content.repository.directory.default",
            folder("content_repository"),
        ),
        (
            "nifi.flowfile.repository.directory.default",
            folder("flowfile_repository"),
        ),
        (
            "nifi.provenance.repository.directory.default",
            folder("provenance_repository"),
        ),
        (
            "nifi.provenance.repository.max.storage.size",
            "64 MB".to_owned(),
        ),
        (
            "nifi.volatile.repository.options.content.max.bytes",
            volatile_bytes.to_owned(),
        ),
    ]
}

/// The flow of two processors.
fn flow_of(bytes: u64) -> String {
    FLOW.replace("{bytes}", &bytes.to_string())
        .replace("{batch}", &batch_of(bytes).to_string())
}

/// FlowFiles of one session.
fn batch_of(bytes: u64) -> u64 {
    (SESSION_BYTES / bytes).clamp(1, SESSION_FLOW_FILES)
}

fn length(setting: &Setting) -> Duration {
    Duration::from_millis(if setting.quick { 500 } else { 6_000 })
}

fn cell(content: ContentKind, mix: Mix, size: Size) -> String {
    format!("{}: {} content, {}", size.name, content.name, mix.name)
}

fn share_name(content: ContentKind) -> String {
    format!(
        "all on disk, {} content: share of the disk's direct write",
        content.name
    )
}

fn all_on_disk_name(content: ContentKind) -> String {
    format!("all on disk, {} content", content.name)
}

const CONTENT: [ContentKind; 3] = [
    ContentKind {
        name: "file system",
        class: "FileSystemRepository",
        is_on_disk: true,
        published: [667.0, 650.0, 656.0, 628.0],
    },
    ContentKind {
        name: "volatile",
        class: "VolatileContentRepository",
        is_on_disk: false,
        published: [524.0, 510.0, 1_027.0, 1_058.0],
    },
    ContentKind {
        name: "database",
        class: "DatabaseContentRepository",
        is_on_disk: true,
        published: [118.0, 132.0, 150.0, 202.0],
    },
];
const IN_MEMORY: usize = 1;
const DATABASE: usize = 2;

const MIXES: [Mix; 4] = [
    Mix {
        name: "FlowFiles and provenance on disk",
        flow_files: ON_DISK.0,
        provenance: ON_DISK.1,
        keeps_flow_files: true,
    },
    Mix {
        name: "FlowFiles on disk, provenance volatile",
        flow_files: ON_DISK.0,
        provenance: IN_RAM.1,
        keeps_flow_files: true,
    },
    Mix {
        name: "FlowFiles volatile, provenance on disk",
        flow_files: IN_RAM.0,
        provenance: ON_DISK.1,
        keeps_flow_files: false,
    },
    Mix {
        name: "FlowFiles and provenance volatile",
        flow_files: IN_RAM.0,
        provenance: IN_RAM.1,
        keeps_flow_files: false,
    },
];
const ON_DISK: (&str, &str) = ("FlowFileRepository", "ProvenanceRepository");
const IN_RAM: (&str, &str) = ("VolatileFlowFileRepository", "VolatileProvenanceRepository");

const SIZES: [Size; 5] = [
    Size {
        name: "1 MB",
        bytes: 1_000_000,
        is_quick: true,
    },
    Size {
        name: "100 KB",
        bytes: 100_000,
        is_quick: false,
    },
    Size {
        name: "10 KB",
        bytes: 10_000,
        is_quick: true,
    },
    Size {
        name: "1 KB",
        bytes: 1_000,
        is_quick: true,
    },
    Size {
        name: "100 B",
        bytes: 100,
        is_quick: false,
    },
];

const DIRECT: &str = "the disk, past the page cache";
const BUFFERED: &str = "the disk, through the page cache";
const COPY: &str = "memory copied";
const WORST: &str = "worst durable cell over the best";
const BESIDE: &str = "all on disk, database content, beside RocksDB";
const VOLATILE: &str = "all volatile";
const VOLATILE_COUNT: &str = "all volatile, FlowFiles";
const GARBAGE: &str = "volatile content with FlowFiles on disk, over all volatile";
const PUBLISHED: &str =
    "the known agent in 2017, a disk of 676 MB/s, nothing on the file system synced";
const SOURCE: &str = "source";
const SINK: &str = "sink";
const SESSION_BYTES: u64 = 4_000_000;
const SESSION_FLOW_FILES: u64 = 5_000;

const FLOW: &str = r#"
MiNiFi Config Version: 3
Flow Controller: {name: repositories}
Processors:
- id: source
  name: source
  class: GenerateFlowFile
  scheduling strategy: TIMER_DRIVEN
  scheduling period: 0 ms
  Properties: {File Size: "{bytes} B", Batch Size: "{batch}", Unique FlowFiles: "true", Data Format: Binary}
- id: sink
  name: sink
  class: MeasureThroughput
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
Connections:
- {id: way, source id: source, source relationship names: [success], destination id: sink, max work queue size: 50000, max work queue data size: 32 MB}
"#;
