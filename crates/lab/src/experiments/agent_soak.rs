//! An agent at half load for an hour, killed every five minutes: does anything grow?

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::edge::{Beat, Edge, Start};
use crate::experiment::{Experiment, LabError, Measure, Outcome, Series, Setting};
use crate::stats;

/// `thalweg lab run agent-soak`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "agent-soak",
    about: "an agent at half load for an hour, killed every five minutes: memory, disk, handles",
    method: "GenerateFlowFile, UpdateAttribute and a processor that ends FlowFiles of 1 KB, with all \
        repositories on disk (provenance bounded to 64 MB). What it can do is measured for five seconds, then \
        it is given half of that for an hour (quick: two minutes) and killed (SIGKILL) every five minutes \
        (quick: 20 s), and started again at once. Memory, bytes on the disk and open files are looked at \
        twice a second; of each life the first ten seconds (quick: three) are left out. Growth is the median of \
        the last third of the looks over that of the first third. Before each kill the lineages of FlowFiles \
        that ended lately are asked for, 10,000 over the hour (quick: as many as that makes in two \
        minutes), and must show each of them made, changed and dropped.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    vec![
        Measure::new(growth(MEMORY), "%").at_most(10.0),
        Measure::new(growth(DISK), "%").at_most(10.0),
        Measure::new(growth(HANDLES), "%").at_most(5.0),
        Measure::new(INCOMPLETE, "FlowFiles").at_most(0.0),
        Measure::new(SAMPLED, "FlowFiles").detail(),
        Measure::new(RATE, "FlowFiles/s"),
        Measure::new(READY, "s"),
        Measure::new(KILLS, "kills").detail(),
    ]
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let (length, life, settled) = match setting.quick {
        true => (120, 20, 3),
        false => (3_600, 300, 10),
    };
    let data = setting.path("soak-data");
    let mut outcome = Outcome::default();
    let full = full_rate(setting, &data)?;
    // A session each so often makes half of it.
    let period_ms = (BATCH as f64 / (full / 2.0) * 1e3).ceil().max(1.0) as u64;
    let flow = flow_of(&format!("{period_ms} ms"));
    let mut soak = Soak::default();
    let (began, mut kills) = (Instant::now(), 0);
    let mut ready = Vec::new();
    let mut lineage = Lineage::default();
    let samples = SAMPLES * life / 3_600;
    while began.elapsed() < Duration::from_secs(length) {
        let mut edge = start(setting, &flow, &data)?;
        let first = edge.until("the first FlowFiles", passed, |beat| passed(beat) > 0)?;
        ready.push(first.at.duration_since(edge.began).as_secs_f64());
        let settled = edge.began + Duration::from_secs(settled);
        let end = edge.began + Duration::from_secs(life);
        while Instant::now() < end && began.elapsed() < Duration::from_secs(length) {
            edge.process.still_runs()?;
            if Instant::now() > settled {
                soak.look(&edge, &data, began)?;
            }
            std::thread::sleep(LOOK);
        }
        lineage.sample(setting, &data, samples)?;
        edge.process.kill();
        kills += 1;
    }
    soak.conclude(&mut outcome);
    outcome.add(RATE, BATCH as f64 / (period_ms as f64 / 1e3));
    outcome.add(READY, ready.into_iter().fold(0.0, f64::max));
    outcome.add(KILLS, f64::from(kills));
    outcome.add(SAMPLED, lineage.sampled as f64);
    outcome.add(INCOMPLETE, lineage.incomplete as f64);
    Ok(outcome)
}

/// What was seen, by seconds.
#[derive(Default)]
struct Soak {
    memory: Vec<(f64, f64)>,
    disk: Vec<(f64, f64)>,
    handles: Vec<(f64, f64)>,
}

impl Soak {
    fn look(&mut self, edge: &Edge, data: &Path, began: Instant) -> Result<(), LabError> {
        let at = began.elapsed().as_secs_f64();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        self.memory.push((at, mib(edge.usage()?.resident_bytes)));
        self.disk.push((at, mib(bytes_under(data))));
        self.handles.push((at, edge.process.handles()? as f64));
        Ok(())
    }

    fn conclude(self, outcome: &mut Outcome) {
        let all = [
            (MEMORY, "MiB", self.memory),
            (DISK, "MiB", self.disk),
            (HANDLES, "files", self.handles),
        ];
        for (name, unit, points) in all {
            let third = points.len() / 3;
            let median = |points: &[(f64, f64)]| {
                let values: Vec<f64> = points.iter().map(|point| point.1).collect();
                stats::quantile(&stats::sorted(&values), 0.5).unwrap_or(f64::NAN)
            };
            let (first, last) = (
                median(&points[..third]),
                median(&points[points.len() - third..]),
            );
            outcome.add(growth(name), (last / first - 1.0) * 100.0);
            let series = Series::new(name, "seconds", unit, "thalweg-agent", points);
            outcome.series.push(series);
        }
    }
}

/// Whether all that happened to FlowFiles is known.
#[derive(Default)]
struct Lineage {
    sampled: u64,
    incomplete: u64,
}

impl Lineage {
    /// Looks at FlowFiles that ended lately, each from its making to its end.
    fn sample(&mut self, setting: &Setting, data: &Path, count: u64) -> Result<(), LabError> {
        let events = ask(
            setting,
            data,
            &["--kind", "DROP", "--count", &count.to_string()],
        )?;
        for uuid in events.iter().filter_map(uuid_of) {
            let kinds: Vec<String> = ask(setting, data, &[uuid])?
                .iter()
                .filter(|event| uuid_of(event) == Some(uuid))
                .filter_map(|event| event["kind"].as_str().map(str::to_owned))
                .collect();
            let is_known = |kind: &&str| kinds.iter().any(|known| known == kind);
            self.sampled += 1;
            let is_whole = ["CREATE", "ATTRIBUTES_MODIFIED", "DROP"]
                .iter()
                .all(is_known);
            self.incomplete += u64::from(!is_whole);
        }
        Ok(())
    }
}

fn uuid_of(event: &Value) -> Option<&str> {
    event["uuid"].as_str()
}

/// Provenance events of the running agent.
fn ask(setting: &Setting, data: &Path, arguments: &[&str]) -> Result<Vec<Value>, LabError> {
    let mut command = Command::new(setting.thalweg.with_file_name("thalweg-agent"));
    command.arg("provenance").args(arguments);
    command.args(["--output", "json", "--data"]).arg(data);
    let output = command
        .output()
        .map_err(LabError::system("cannot ask for provenance"))?;
    let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    match answer
        .as_ref()
        .and_then(|answer| answer["events"].as_array())
    {
        Some(events) => Ok(events.clone()),
        None => Err(LabError::Failed(format!(
            "the agent told no provenance: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}

/// FlowFiles a second without any rest.
fn full_rate(setting: &Setting, data: &Path) -> Result<f64, LabError> {
    let mut edge = start(setting, &flow_of("0 ms"), data)?;
    let first = edge.until("the first FlowFiles", passed, |beat| passed(beat) > 0)?;
    std::thread::sleep(FULL_LOAD);
    let last = edge.beat().unwrap_or_else(|| first.clone());
    edge.process.stop()?;
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    Ok((passed(&last) - passed(&first)) as f64 / seconds.max(0.1))
}

fn start(setting: &Setting, flow: &str, data: &Path) -> Result<Edge, LabError> {
    let folder = |name: &str| data.join(name).display().to_string();
    let (content, flow_files) = (folder("content_repository"), folder("flowfile_repository"));
    let provenance = folder("provenance_repository");
    let properties = [
        ("nifi.content.repository.class.name", "FileSystemRepository"),
        ("nifi.flowfile.repository.class.name", "FlowFileRepository"),
        (
            "nifi.provenance.repository.class.name",
            "ProvenanceRepository",
        ),
        (
            "nifi.database.content.repository.directory.default",
            &content,
        ),
        ("nifi.flowfile.repository.directory.default", &flow_files),
        ("nifi.provenance.repository.directory.default", &provenance),
        ("nifi.provenance.repository.max.storage.size", "64 MB"),
    ];
    let start = Start {
        name: "agent",
        flow,
        properties: &properties,
        data: data.to_owned(),
    };
    Edge::start(setting, &start)
}

fn passed(beat: &Beat) -> u64 {
    beat.processors
        .get("sink")
        .map_or(0, |counts| counts.flow_files)
}

fn flow_of(period: &str) -> String {
    FLOW.replace("{period}", period)
        .replace("{batch}", &BATCH.to_string())
}

/// Bytes of the files under a folder, as the disk holds them.
fn bytes_under(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes_under(&entry.path()),
        Ok(data) => data.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

fn growth(of: &str) -> String {
    format!("{of}: growth")
}

const MEMORY: &str = "resident memory";
const DISK: &str = "bytes on the disk";
const HANDLES: &str = "open files";
const RATE: &str = "load";
const READY: &str = "longest start to the first FlowFile through";
const KILLS: &str = "kills";
const SAMPLED: &str = "lineages looked at";
const INCOMPLETE: &str = "lineages incomplete";
/// Lineages looked at over the whole time.
const SAMPLES: u64 = 10_000;
const BATCH: u64 = 2_000;
const LOOK: Duration = Duration::from_millis(500);
const FULL_LOAD: Duration = Duration::from_secs(5);

const FLOW: &str = r#"
MiNiFi Config Version: 3
Flow Controller: {name: soak}
Processors:
- id: source
  name: source
  class: GenerateFlowFile
  scheduling strategy: TIMER_DRIVEN
  scheduling period: {period}
  Properties: {File Size: 1000 B, Batch Size: "{batch}", Unique FlowFiles: "true", Data Format: Binary}
- id: mark
  name: mark
  class: UpdateAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure]
  Properties: {site: "soak-${uuid}"}
- id: sink
  name: sink
  class: MeasureThroughput
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
Connections:
- {id: a, source id: source, source relationship names: [success], destination id: mark, max work queue size: 20000}
- {id: b, source id: mark, source relationship names: [success], destination id: sink, max work queue size: 20000}
"#;
