//! One FlowFile much larger than memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use super::MIB;
use crate::edge::{Edge, Start};
use crate::experiment::{LabError, Measure, Outcome, Setting};
use crate::limits::{LOAD_MAX, POLL};

pub fn measures() -> Vec<Measure> {
    vec![
        Measure::new(MEMORY, "MiB").at_most(100.0),
        Measure::new(WRONG, "marks").at_most(0.0),
        Measure::new(RATE, "MB/s"),
        Measure::new(SIZE, "GB").detail(),
    ]
}

pub fn run(setting: &Setting, outcome: &mut Outcome) -> Result<(), LabError> {
    let bytes = size(setting, outcome)?;
    outcome.add(SIZE, bytes as f64 / 1e9);
    let (input, output) = (setting.path("large-in"), setting.path("large-out"));
    let cannot = || LabError::system("cannot make the large file");
    for folder in [&input, &output] {
        std::fs::create_dir_all(folder).map_err(cannot())?;
    }
    let hidden = input.join(".large");
    write_marks(&hidden, bytes).map_err(cannot())?;
    std::fs::rename(&hidden, input.join(NAME)).map_err(cannot())?;
    let flow = FLOW
        .replace("{in}", &input.display().to_string())
        .replace("{out}", &output.display().to_string());
    let data = setting.path("large-data");
    let start = Start {
        name: "agent",
        flow: &flow,
        properties: &[],
        data: data.clone(),
    };
    let mut edge = Edge::start(setting, &start)?;
    let written = output.join(NAME);
    let deadline = Instant::now() + LOAD_MAX * 3;
    while !written.is_file() {
        edge.process.still_runs()?;
        if Instant::now() > deadline {
            return Err(LabError::Failed(format!(
                "the large file did not come out; the agent's last lines:\n{}",
                edge.process.log_end()
            )));
        }
        std::thread::sleep(POLL);
    }
    let seconds = edge.began.elapsed().as_secs_f64();
    outcome.add(MEMORY, edge.usage()?.resident_bytes_max as f64 / MIB);
    outcome.add(RATE, bytes as f64 / 1e6 / seconds);
    edge.process.stop()?;
    let wrong = wrong_marks(&written, bytes);
    outcome.add(
        WRONG,
        wrong.map_err(LabError::system("cannot read the large file"))? as f64,
    );
    for folder in [&input, &output, &data] {
        std::fs::remove_dir_all(folder).map_err(LabError::system("cannot clear a folder"))?;
    }
    Ok(())
}

/// As large as wanted, or as the disk has room for content and result of.
fn size(setting: &Setting, outcome: &mut Outcome) -> Result<u64, LabError> {
    let wanted = if setting.quick { QUICK } else { FULL };
    let disk = rustix::fs::statvfs(setting.folder())
        .map_err(|error| LabError::system("cannot ask for the disk's room")(error.into()))?;
    let room = disk.f_bavail * disk.f_frsize * 2 / 5;
    if room < wanted {
        let gigabytes = room / 1_000_000_000;
        outcome.note(format!(
            "the large FlowFile has {gigabytes} GB: the disk has no room for more"
        ));
    }
    Ok(wanted.min(room) / STEP * STEP)
}

/// A file of holes with a mark in each step, its number.
fn write_marks(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes)?;
    for number in 0..bytes / STEP {
        file.write_all_at(&(number + 1).to_be_bytes(), number * STEP + number)?;
    }
    Ok(())
}

/// Marks that are not where they were; all of them where the length differs.
fn wrong_marks(path: &Path, bytes: u64) -> std::io::Result<u64> {
    let file = File::open(path)?;
    if file.metadata()?.len() != bytes {
        return Ok(bytes / STEP);
    }
    let mut wrong = 0;
    for number in 0..bytes / STEP {
        let mut mark = [0; 8];
        file.read_exact_at(&mut mark, number * STEP + number)?;
        wrong += u64::from(u64::from_be_bytes(mark) != number + 1);
    }
    Ok(wrong)
}

const MEMORY: &str = "large: memory";
const WRONG: &str = "large: wrong";
const RATE: &str = "large: rate";
const SIZE: &str = "large: size";
const NAME: &str = "large.bin";
const FULL: u64 = 20_000_000_000;
const QUICK: u64 = 2_000_000_000;
const STEP: u64 = 1 << 20;

const FLOW: &str = r#"
MiNiFi Config Version: 3
Flow Controller: {name: large}
Processors:
- id: get
  name: get
  class: GetFile
  scheduling period: 100 ms
  Properties: {Input Directory: "{in}"}
- id: hash
  name: hash
  class: HashContent
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure]
  Properties: {Hash Attribute: hash, Hash Algorithm: SHA256}
- id: put
  name: put
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success, failure]
  Properties: {Directory: "{out}"}
Connections:
- {id: a, source id: get, source relationship names: [success], destination id: hash}
- {id: b, source id: hash, source relationship names: [success], destination id: put}
"#;
