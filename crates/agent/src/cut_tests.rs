//! Whole running flows on a disk that loses power: processors on threads of their own, sources that
//! delete what they read or remember how far they were, splits, merges and clones, and the power
//! goes at whatever write it goes.
//!
//! Each line that was ever written for a source carries a number. After every cut the flow goes on
//! from what the disk kept; in the end each number stands in each output, nothing is queued, and no
//! content is left that nobody needs. Only the repositories are on the failing disk: the files of
//! sources and sinks stay, so that a source which forgot too early shows as a hole.
//!
//! `AGENT_WORLDS` says how many flows are run, each through [`LIVES`] lives, and `AGENT_WORLD` which
//! one is the first. The seed fixes the disk's faults; the threads add theirs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Rng, SystemClock};
use journal::SimDisk;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::engine::{Engine, EngineOptions, Ground};
use crate::parameters::Outside;
use crate::repository::{Repository, RepositoryLimits, RepositoryOptions};
use crate::sim_tests::{DIR, options_of};
use crate::testing::{runtime, start, wait_or_tell};

#[test]
fn power_cuts_lose_nothing_of_files_that_are_read_deleted_and_merged() {
    through_cuts(&FILES);
}

#[test]
fn power_cuts_lose_nothing_of_a_log_whose_lines_are_split_and_cloned() {
    through_cuts(&LINES);
}

fn through_cuts(case: &'static Case) {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let first = number("AGENT_WORLD").unwrap_or(0);
    let count = number("AGENT_WORLDS").unwrap_or(WORLDS);
    let runtime = runtime();
    let mut seen = Seen::default();
    for seed in first..first + count {
        let _failing = Failing(seed);
        let mut world = World::new(case, seed, &runtime);
        // There before anybody looks: what is made and rolled between two looks is not this test's.
        world.feed();
        for _ in 0..LIVES {
            world.live(&mut seen);
        }
        world.settle();
        seen.lines += world.next;
    }
    eprintln!("{}: {seen:?}", case.name);
    assert!(seen.cuts > 0 && seen.lines > 0, "{seen:?}");
    // How far a flow comes between two cuts is the machine's speed: only many worlds tell.
    if count >= MANY_WORLDS {
        for (what, times) in [
            ("power cuts", seen.cuts),
            ("cuts in the middle of a write", seen.in_a_write),
            ("failed syncs", seen.failed_syncs),
            ("full disks", seen.full),
        ] {
            assert!(times > 0, "no {what} in {count} worlds");
        }
        assert!(
            seen.lines > 20 * seen.cuts,
            "too little was going on: {seen:?}"
        );
    }
}

/// Names the seed when a panic goes by.
struct Failing(u64);

impl Drop for Failing {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failing world: AGENT_WORLD={} AGENT_WORLDS=1", self.0);
        }
    }
}

/// What the runs met; a test that meets nothing proves nothing.
#[derive(Debug, Default)]
struct Seen {
    cuts: u64,
    in_a_write: u64,
    failed_syncs: u64,
    full: u64,
    lines: u64,
}

/// A flow, its input and where its output goes.
struct Case {
    name: &'static str,
    is_log: bool,
    outputs: &'static [&'static str],
    flow: &'static str,
}

struct World<'r> {
    case: &'static Case,
    rng: Rng,
    disk: SimDisk,
    options: RepositoryOptions,
    runtime: &'r Runtime,
    dir: TempDir,
    /// The next line's number.
    next: u64,
    log: Option<File>,
    rolled: u64,
}

impl<'r> World<'r> {
    fn new(case: &'static Case, seed: u64, runtime: &'r Runtime) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["in"].iter().chain(case.outputs) {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        World {
            case,
            rng: Rng::from_seed(seed ^ 0x0c07),
            disk: SimDisk::new(seed),
            options: options(seed),
            runtime,
            dir,
            next: 0,
            log: None,
            rolled: 0,
        }
    }

    /// Runs the flow until the power goes.
    fn live(&mut self, seen: &mut Seen) {
        let repository = self.open_in_spite_of_cuts(seen);
        match self.rng.below(8) {
            0 => {
                self.disk.fail_next_sync();
                seen.failed_syncs += 1;
            }
            1 => {
                let room = self.rng.below(60_000);
                self.disk.set_capacity(Some(self.disk.used() + room));
                seen.full += 1;
            }
            2..=5 => self.disk.crash_after(self.rng.below(300)),
            _ => {}
        }
        let (_ground, engine) = self.start(repository);
        let end = Instant::now() + Duration::from_millis(5 + self.rng.below(80));
        while Instant::now() < end && !self.disk.is_down() {
            self.feed();
            std::thread::sleep(Duration::from_millis(self.rng.below(8)));
        }
        seen.cuts += 1;
        seen.in_a_write += u64::from(self.disk.is_down());
        self.disk.crash();
        self.disk.crash_after(u64::MAX);
        self.disk.set_capacity(None);
        // The repository's handles are dead, so that the engine's end changes nothing on the disk.
        engine.stop();
    }

    /// Opens; the power may go in the middle of that too.
    fn open_in_spite_of_cuts(&mut self, seen: &mut Seen) -> Arc<Repository> {
        if self.rng.one_in(4) {
            self.disk.crash_after(self.rng.below(12));
            let opened = self.open();
            if !self.disk.is_down()
                && let Ok(repository) = opened
            {
                self.disk.crash_after(u64::MAX);
                return repository;
            }
            seen.cuts += 1;
            self.disk.crash();
            self.disk.crash_after(u64::MAX);
        }
        self.open().expect("it opens on a disk that works")
    }

    fn open(&self) -> Result<Arc<Repository>, crate::AgentError> {
        Repository::open(Arc::new(self.disk.clone()), Path::new(DIR), self.options)
    }

    fn start(&self, repository: Arc<Repository>) -> (Ground, Engine) {
        let ground = Ground {
            repository,
            bulletins: Arc::default(),
            clock: Arc::new(SystemClock),
            runtime: self.runtime.handle().clone(),
            failure: Arc::default(),
            ports: crate::s2s::Ports::default(),
            options: EngineOptions::default(),
            outside: Outside::default(),
        };
        let dir = self.dir.path().display().to_string();
        let engine = start(&ground, &self.case.flow.replace("{dir}", &dir));
        (ground, engine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A few lines more.
    fn feed(&mut self) {
        let count = 1 + self.rng.below(30);
        let filling = "-".repeat(self.rng.below(200) as usize);
        let lines = (self.next..self.next + count).map(|number| format!("{number} {filling}\n"));
        let text: String = lines.collect();
        self.next += count;
        if !self.case.is_log {
            let hidden = self.path("in/.writing");
            fs::write(&hidden, text).unwrap();
            fs::rename(hidden, self.path(&format!("in/{}.txt", self.next))).unwrap();
            return;
        }
        if self.log.is_none() || self.rng.one_in(20) {
            let name = self.path("in/app.log");
            if self.log.is_some() {
                self.rolled += 1;
                fs::rename(&name, self.path(&format!("in/app.log.{}", self.rolled))).unwrap();
            }
            self.log = Some(File::create(name).unwrap());
        }
        let log = self.log.as_mut().expect("it was made just now");
        log.write_all(text.as_bytes()).unwrap();
    }

    /// Runs undisturbed until all is out; then no line may be missing and nothing be left behind.
    fn settle(&mut self) {
        let repository = self.open().expect("it opens on a disk that works");
        let (ground, engine) = self.start(Arc::clone(&repository));
        let end = Instant::now() + SETTLES_WITHIN;
        loop {
            let missing: Vec<u64> = self.missing();
            if missing.is_empty() {
                break;
            }
            assert!(
                Instant::now() < end,
                "{} of {} lines are missing: {:?}\nqueued: {:?}\nin: {:?}\nbulletins: {:?}\n{:?}",
                missing.len(),
                self.next,
                &missing[..missing.len().min(20)],
                engine.queues(),
                self.inputs(),
                ground.bulletins.since(ground.clock.now(), SETTLES_WITHIN),
                ground.failure,
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        // What came twice may wait in a bin of its merge still, which no queue tells.
        wait_or_tell(&ground, "nothing is queued or held", || {
            let is_empty = engine.queues().iter().all(|queue| queue.flow_files == 0);
            is_empty && repository.status().content_bytes == 0
        });
        engine.stop();
        for output in self.case.outputs {
            let counts = self.count(output);
            let known = (0..self.next).filter(|number| counts.contains_key(number));
            assert_eq!(known.count() as u64, self.next, "lines that nobody wrote");
        }
        if !self.case.is_log {
            let left = fs::read_dir(self.path("in")).unwrap().count();
            assert_eq!(left, 0, "source files are left");
        }
        let status = repository.status();
        assert_eq!((status.content_bytes, status.parked), (0, 0), "orphans");
        repository.close().unwrap();
    }

    /// Lines that some output lacks.
    fn missing(&self) -> Vec<u64> {
        let all = self.case.outputs.iter().flat_map(|output| {
            let counts = self.count(output);
            let lacks = (0..self.next).filter(move |number| !counts.contains_key(number));
            lacks.collect::<Vec<u64>>()
        });
        all.collect()
    }

    /// The sources' files, each with the first number in it.
    fn inputs(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.path("in")).unwrap();
        let mut all: Vec<(String, String)> = entries
            .map(|entry| {
                let path = entry.unwrap().path();
                let text = fs::read_to_string(&path).unwrap_or_default();
                let first = text.split(' ').next().unwrap_or_default().to_owned();
                (path.display().to_string(), first)
            })
            .collect();
        all.sort();
        all
    }

    /// How often each line is in an output.
    fn count(&self, output: &str) -> HashMap<u64, u64> {
        let mut counts = HashMap::new();
        for entry in fs::read_dir(self.path(output)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // What is still being written has a hidden name, and may be renamed just now.
            if name.starts_with('.') {
                continue;
            }
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            for line in text.lines() {
                let number = line.split(' ').next().and_then(|text| text.parse().ok());
                let number = number.unwrap_or_else(|| panic!("{}: '{line}'", path.display()));
                *counts.entry(number).or_default() += 1;
            }
        }
        counts
    }
}

/// Penalties and rests of what went wrong before the end are long over by then.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);

/// As in the simulation of sessions, with segments that hold what a tail reads at once.
fn options(seed: u64) -> RepositoryOptions {
    let options = options_of(seed);
    let limits = RepositoryLimits {
        segment_bytes: 1 << 20,
        content_pinned_bytes_max: 256 << 10,
        pinned_bytes_max: 256 << 10,
        ..options.limits
    };
    RepositoryOptions { limits, ..options }
}

const WORLDS: u64 = 12;
const MANY_WORLDS: u64 = 100;
const LIVES: u64 = 6;

const FILES: Case = Case {
    name: "files, merged",
    is_log: false,
    outputs: &["out"],
    flow: r#"
MiNiFi Config Version: 3
Flow Controller: {name: files}
Processors:
- {name: get, id: get, class: GetFile, scheduling period: 2 ms, yield period: 10 ms,
   Properties: {Input Directory: "{dir}/in", Keep Source File: "false", Batch Size: "10"}}
- name: merge
  id: merge
  class: MergeContent
  scheduling period: 2 ms
  yield period: 10 ms
  auto-terminated relationships list: [original, failure]
  Properties: {Merge Strategy: Bin-Packing Algorithm, Minimum Number of Entries: "4", Maximum Number of Entries: "20", Max Bin Age: "20 ms"}
- {name: call, id: call, class: UpdateAttribute, scheduling strategy: EVENT_DRIVEN, yield period: 10 ms,
   auto-terminated relationships list: [failure], Properties: {filename: "${uuid}"}}
- name: put
  id: put
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  yield period: 10 ms
  auto-terminated relationships list: [success]
  Properties: {Directory: "{dir}/out", Conflict Resolution Strategy: replace}
Connections:
- {id: c1, source name: get, source relationship name: success, destination name: merge}
- {id: c2, source name: merge, source relationship name: merged, destination name: call}
- {id: c3, source name: call, source relationship name: success, destination name: put}
- {id: c4, source name: put, source relationship name: failure, destination name: put}
"#,
};

const LINES: Case = Case {
    name: "a rotating log, split and cloned",
    is_log: true,
    outputs: &["a", "b"],
    flow: r#"
MiNiFi Config Version: 3
Flow Controller: {name: lines}
Processors:
- {name: tail, id: tail, class: TailFile, scheduling period: 2 ms, yield period: 10 ms,
   Properties: {File to Tail: "{dir}/in/app.log", Initial Start Position: Beginning of Time, Result Mode: Flow file per batch}}
- {name: split, id: split, class: SplitText, scheduling strategy: EVENT_DRIVEN, yield period: 10 ms,
   auto-terminated relationships list: [original, failure], Properties: {Line Split Count: "8"}}
- {name: call, id: call, class: UpdateAttribute, scheduling strategy: EVENT_DRIVEN, yield period: 10 ms,
   auto-terminated relationships list: [failure], Properties: {filename: "${uuid}"}}
- name: a
  id: a
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  yield period: 10 ms
  auto-terminated relationships list: [success]
  Properties: {Directory: "{dir}/a", Conflict Resolution Strategy: replace}
- name: b
  id: b
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  yield period: 10 ms
  auto-terminated relationships list: [success]
  Properties: {Directory: "{dir}/b", Conflict Resolution Strategy: replace}
Connections:
- {id: c1, source name: tail, source relationship name: success, destination name: split}
- {id: c2, source name: split, source relationship name: splits, destination name: call}
- {id: c3, source name: call, source relationship name: success, destination name: a}
- {id: c4, source name: call, source relationship name: success, destination name: b}
- {id: c5, source name: a, source relationship name: failure, destination name: a}
- {id: c6, source name: b, source relationship name: failure, destination name: b}
"#,
};
