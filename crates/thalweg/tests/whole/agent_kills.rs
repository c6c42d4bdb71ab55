//! The edge agent killed at random moments and at every named fail point, over flows that read and
//! delete files, follow a log that rotates, merge, split and fan out, on every mix of repositories
//! that are on disk.
//!
//! Every input line carries a number. When the dust has settled each number stands in the output,
//! at least once where a source can only be asked again, and just once where it cannot: a tail's
//! position is committed with its lines, and files are named by the FlowFile, so that writing one
//! twice leaves one. `THALWEG_TEST_KILLS` says how many kills each flow stands on each mix.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use agent::fail_point::{NAMES, VARIABLE};
use base::Rng;
use tempfile::TempDir;

use crate::harness::{Running, eventually, folder, sibling};

#[test]
fn files_that_are_read_and_deleted_reach_the_output_however_often_the_agent_is_killed() {
    on_every_mix(&FILES);
}

#[test]
fn lines_of_a_rotating_log_are_split_and_written_once_however_often_the_agent_is_killed() {
    on_every_mix(&LINES);
}

#[test]
fn three_clones_of_each_line_are_written_once_however_often_the_agent_is_killed() {
    on_every_mix(&FAN_OUT);
}

#[test]
fn a_process_that_ends_at_any_named_point_loses_nothing() {
    let seed = Rng::from_entropy().next_u64();
    let mut rng = Rng::from_seed(seed);
    for point in NAMES {
        let mut reached = false;
        // Only files are large enough to make the journals turn round.
        let is_tidying = matches!(point, "repository.snapshot" | "repository.reclaim");
        let is_of_files = is_tidying || point.starts_with("files.");
        let cases = [&FILES, &LINES, &FAN_OUT];
        for case in cases.into_iter().take(if is_of_files { 1 } else { 3 }) {
            let mixes = match point {
                _ if is_tidying => &[ONE_JOURNAL],
                // Only there content has a journal of its own.
                "repository.content" => &MIXES[..FILE_SYSTEM_MIXES],
                _ => &MIXES[..],
            };
            let mix = mixes[rng.below(mixes.len() as u64) as usize];
            eprintln!("{} at {point} on {mix:?}, seed {seed}", case.name);
            let mut ground = Ground::new(case, mix, rng.next_u64());
            for count in [1, 3] {
                (0..3).for_each(|_| ground.feed());
                if is_tidying {
                    ground.feed_much();
                }
                let agent = ground.start(Some((point, count)));
                let rest = Duration::from_secs(if is_tidying { 12 } else { 2 });
                reached |= ground.ends_by_itself(agent, rest);
                ground.kills += 1;
            }
            ground.settle();
        }
        assert!(reached, "nothing passed the point {point}");
    }
}

/// Kills at random moments; then everything must be there.
fn on_every_mix(case: &'static Case) {
    let seed = Rng::from_entropy().next_u64();
    let mut rng = Rng::from_seed(seed);
    let kills = std::env::var("THALWEG_TEST_KILLS")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(KILLS);
    for mix in MIXES {
        eprintln!("{} on {mix:?}, seed {seed}", case.name);
        // Many kills go over several grounds: what one has of output can be looked through in time.
        let mut left = kills;
        while left > 0 {
            let mut ground = Ground::new(case, mix, rng.next_u64());
            while left > 0 && ground.kills < KILLS_A_GROUND {
                let agent = ground.start(None);
                let end = Instant::now() + Duration::from_millis(20 + rng.below(400));
                while Instant::now() < end {
                    ground.feed();
                    std::thread::sleep(Duration::from_millis(rng.below(25)));
                }
                agent.kill();
                ground.kills += 1;
                left -= 1;
            }
            ground.settle();
        }
    }
}

/// Class names of the content and the provenance repository; the FlowFile repository is on disk.
type Mix = (&'static str, &'static str);

/// One flow with its input and what must come out.
struct Case {
    name: &'static str,
    flow: &'static str,
    input: Input,
    /// Folders that each have all of the output.
    outputs: &'static [&'static str],
    /// Lines that may come twice for each kill.
    twice_max: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Input {
    /// Whole files that appear in a folder.
    Files,
    /// A log that grows and is rolled.
    Log,
}

/// One flow on one mix, in a folder of its own.
struct Ground {
    case: &'static Case,
    mix: Mix,
    dir: TempDir,
    rng: Rng,
    /// The next line's number.
    next: u64,
    kills: u64,
    log: Option<File>,
    rolled: u64,
}

impl Ground {
    fn new(case: &'static Case, mix: Mix, seed: u64) -> Ground {
        let dir = folder();
        for name in ["in", "data"].iter().chain(case.outputs) {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut ground = Ground {
            case,
            mix,
            dir,
            rng: Rng::from_seed(seed),
            next: 0,
            kills: 0,
            log: None,
            rolled: 0,
        };
        ground.configure();
        ground
    }

    fn configure(&mut self) {
        let (content, provenance) = self.mix;
        let data = self.path("data").display().to_string();
        let properties = format!(
            "nifi.flowfile.repository.class.name=FlowFileRepository\n\
             nifi.content.repository.class.name={content}\n\
             nifi.provenance.repository.class.name={provenance}\n\
             nifi.flowfile.repository.directory.default={data}/flowfile_repository\n\
             nifi.database.content.repository.directory.default={data}/content_repository\n\
             nifi.provenance.repository.directory.default={data}/provenance_repository\n"
        );
        fs::write(self.path("minifi.properties"), properties).unwrap();
        let dir = self.dir.path().display().to_string();
        fs::write(self.path("flow.yml"), self.case.flow.replace("{dir}", &dir)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&self, point: Option<(&str, u64)>) -> Running {
        let mut command = Command::new(sibling("thalweg-agent"));
        command.arg("--data").arg(self.path("data"));
        command.arg("--flow").arg(self.path("flow.yml"));
        command
            .arg("--properties")
            .arg(self.path("minifi.properties"));
        if let Some((point, count)) = point {
            command.env(VARIABLE, format!("{point}:{count}"));
        }
        Running::start(&mut command, &self.path("agent.log"))
    }

    /// A few lines more.
    fn feed(&mut self) {
        let count = 1 + self.rng.below(60);
        self.write(count, 20);
    }

    /// Files of so much that snapshots are taken and space is given back.
    fn feed_much(&mut self) {
        (0..40).for_each(|_| self.write(20, 100_000));
    }

    /// Writes lines of at least so many bytes.
    fn write(&mut self, count: u64, bytes: usize) {
        let filling = "-".repeat(bytes);
        let lines = (self.next..self.next + count).map(|number| format!("{number} {filling}\n"));
        let text: String = lines.collect();
        self.next += count;
        match self.case.input {
            Input::Files => {
                let hidden = self.path("in/.writing");
                fs::write(&hidden, text).unwrap();
                fs::rename(hidden, self.path(&format!("in/{}.txt", self.next))).unwrap();
            }
            Input::Log => {
                if self.log.is_none() || self.rng.one_in(40) {
                    self.roll();
                }
                let log = self.log.as_mut().expect("it was made just now");
                log.write_all(text.as_bytes()).unwrap();
            }
        }
    }

    /// Renames the log and begins a new one.
    fn roll(&mut self) {
        let name = self.path("in/app.log");
        if self.log.is_some() {
            self.rolled += 1;
            fs::rename(&name, self.path(&format!("in/app.log.{}", self.rolled))).unwrap();
        }
        self.log = Some(File::create(&name).unwrap());
    }

    /// Runs undisturbed until all input is out; then nothing may be missing, too often there, left
    /// behind, or come again after one more start.
    fn settle(&mut self) {
        let agent = self.start(None);
        eventually("all input is in the output", || {
            self.is_through().then_some(())
        });
        agent.stop();
        let before = self.outputs();
        let agent = self.start(None);
        std::thread::sleep(Duration::from_millis(500));
        agent.stop();
        assert_eq!(
            self.outputs(),
            before,
            "something came again after all was done"
        );
        for counts in &before {
            let twice: u64 = counts.values().map(|count| count - 1).sum();
            let most = self.case.twice_max * self.kills;
            assert!(
                twice <= most,
                "{twice} lines twice after {} kills",
                self.kills
            );
            let known = (0..self.next).filter(|number| counts.contains_key(number));
            assert_eq!(known.count() as u64, self.next, "lines that nobody wrote");
        }
        if self.case.input == Input::Files {
            let left = fs::read_dir(self.path("in")).unwrap().count();
            assert_eq!(left, 0, "source files are left");
        }
    }

    /// Whether the agent ends without being told; `rest` after all its input is through it is killed.
    fn ends_by_itself(&self, mut agent: Running, rest: Duration) -> bool {
        let late = Instant::now() + LATE;
        let mut end = late;
        while Instant::now() < end {
            if agent.has_ended() {
                return true;
            }
            if end == late && self.is_through() {
                end = Instant::now() + rest;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        agent.kill();
        false
    }

    /// Whether every line that was written is in every output.
    fn is_through(&self) -> bool {
        let all_there = |output: &&str| self.count(output).len() as u64 == self.next;
        self.case.outputs.iter().all(all_there)
    }

    fn outputs(&self) -> Vec<HashMap<u64, u64>> {
        self.case
            .outputs
            .iter()
            .map(|output| self.count(output))
            .collect()
    }

    /// How often each line is in an output.
    fn count(&self, output: &str) -> HashMap<u64, u64> {
        let mut counts = HashMap::new();
        for entry in fs::read_dir(self.path(output)).unwrap() {
            let path = entry.unwrap().path();
            if is_partial(&path) {
                continue;
            }
            // The agent may be renaming it.
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            for line in text.lines() {
                let number = line
                    .split(' ')
                    .next()
                    .and_then(|number| number.parse().ok());
                let number = number.unwrap_or_else(|| panic!("{}: '{line}'", path.display()));
                *counts.entry(number).or_default() += 1;
            }
        }
        counts
    }
}

/// Whether the file is still being written.
fn is_partial(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// When a flow that neither ends nor gets through is given up.
const LATE: Duration = Duration::from_secs(60);

const KILLS: u64 = 2;

const KILLS_A_GROUND: u64 = 20;

/// Where content makes the records' journal turn round.
const ONE_JOURNAL: Mix = ("DatabaseContentRepository", "ProvenanceRepository");

/// So many of [`MIXES`], from the first, have the `FileSystemRepository`.
const FILE_SYSTEM_MIXES: usize = 3;

const MIXES: [Mix; 6] = [
    ("FileSystemRepository", "ProvenanceRepository"),
    ("FileSystemRepository", "VolatileProvenanceRepository"),
    ("FileSystemRepository", "NoOpRepository"),
    ("DatabaseContentRepository", "ProvenanceRepository"),
    ("DatabaseContentRepository", "VolatileProvenanceRepository"),
    ("DatabaseContentRepository", "NoOpRepository"),
];

const FILES: Case = Case {
    name: "files, merged",
    input: Input::Files,
    outputs: &["out"],
    // Ten files of one session, at most sixty lines each.
    twice_max: 600,
    flow: r#"
MiNiFi Config Version: 3
Flow Controller: {name: files}
Processors:
- name: get
  id: get
  class: GetFile
  scheduling period: 10 ms
  Properties: {Input Directory: "{dir}/in", Keep Source File: "false", Batch Size: "10"}
- name: mark
  id: mark
  class: UpdateAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure]
  Properties: {seen: "${filename}"}
- name: merge
  id: merge
  class: MergeContent
  scheduling period: 10 ms
  auto-terminated relationships list: [original, failure]
  Properties: {Merge Strategy: Bin-Packing Algorithm, Minimum Number of Entries: "4", Maximum Number of Entries: "20", Max Bin Age: "200 ms"}
- name: call
  id: call
  class: UpdateAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure]
  Properties: {filename: "${uuid}"}
- name: put
  id: put
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
  Properties: {Directory: "{dir}/out", Conflict Resolution Strategy: replace}
Connections:
- {id: c1, source name: get, source relationship name: success, destination name: mark}
- {id: c2, source name: mark, source relationship name: success, destination name: merge}
- {id: c3, source name: merge, source relationship name: merged, destination name: call}
- {id: c4, source name: call, source relationship name: success, destination name: put}
- {id: c5, source name: put, source relationship name: failure, destination name: put}
"#,
};

const LINES: Case = Case {
    name: "a rotating log, split",
    input: Input::Log,
    outputs: &["out"],
    twice_max: 0,
    flow: r#"
MiNiFi Config Version: 3
Flow Controller: {name: lines}
Processors:
- name: tail
  id: tail
  class: TailFile
  scheduling period: 10 ms
  Properties: {File to Tail: "{dir}/in/app.log", Initial Start Position: Beginning of Time}
- name: split
  id: split
  class: SplitText
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [original, failure]
  Properties: {Line Split Count: "1"}
- name: call
  id: call
  class: UpdateAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure]
  Properties: {filename: "${uuid}"}
- name: put
  id: put
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
  Properties: {Directory: "{dir}/out", Conflict Resolution Strategy: replace}
Connections:
- {id: c1, source name: tail, source relationship name: success, destination name: split}
- {id: c2, source name: split, source relationship name: splits, destination name: call}
- {id: c3, source name: call, source relationship name: success, destination name: put}
- {id: c4, source name: put, source relationship name: failure, destination name: put}
"#,
};

const FAN_OUT: Case = Case {
    name: "a rotating log, three clones of each line",
    input: Input::Log,
    outputs: &["a", "b", "c"],
    twice_max: 0,
    flow: r#"
MiNiFi Config Version: 3
Flow Controller: {name: fan}
Processors:
- name: tail
  id: tail
  class: TailFile
  scheduling period: 10 ms
  Properties: {File to Tail: "{dir}/in/app.log", Initial Start Position: Beginning of Time, Keep Delimiter: false}
- name: call
  id: call
  class: UpdateAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure]
  Properties: {filename: "${uuid}"}
- name: a
  id: a
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
  Properties: {Directory: "{dir}/a", Conflict Resolution Strategy: replace}
- name: b
  id: b
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
  Properties: {Directory: "{dir}/b", Conflict Resolution Strategy: replace}
- name: c
  id: c
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
  Properties: {Directory: "{dir}/c", Conflict Resolution Strategy: replace}
Connections:
- {id: c1, source name: tail, source relationship name: success, destination name: call}
- {id: c2, source name: call, source relationship name: success, destination name: a}
- {id: c3, source name: call, source relationship name: success, destination name: b}
- {id: c4, source name: call, source relationship name: success, destination name: c}
- {id: c5, source name: a, source relationship name: failure, destination name: a}
- {id: c6, source name: b, source relationship name: failure, destination name: b}
- {id: c7, source name: c, source relationship name: failure, destination name: c}
"#,
};
