//! The repository over a disk that fails: power cuts, kills, failed syncs and full disks at random
//! moments of random sessions, held against a model.
//!
//! The model is the list of everything that was ever true, one version for each commit. What comes
//! back after a crash must be one of them, whole: not older than the last one that was waited for,
//! and not newer than the last one that was committed. From that follows all that is promised:
//! nothing committed and waited for is missing, nothing is there twice or invented, content is
//! that of its FlowFile, and no state is ahead of the FlowFiles that were committed with it.
//!
//! `AGENT_SEEDS` says how many seeds, `AGENT_SEED` which one is the first. A seed fixes the script
//! and the disk's faults; the journal's own threads add theirs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::Rng;
use bytes::Bytes;
use journal::{Disk, SimDisk};

use crate::engine::is_passing;
use crate::flowfile::Attributes;
use crate::parameters::SecretKey;
use crate::processors::ProcessorError;
use crate::repository::{
    ContentKind, ProvenanceKind, Repository, RepositoryLimits, RepositoryOptions,
};
use crate::sealing::Keyring;
use crate::session::ProcessSession;
use crate::testing::HandFlow;

#[test]
fn after_any_crash_everything_is_as_it_was_at_one_commit_not_before_the_last_one_waited_for() {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let first = number("AGENT_SEED").unwrap_or(0);
    let count = number("AGENT_SEEDS").unwrap_or(SEEDS);
    let mut seen = Seen::default();
    for seed in first..first + count {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            world.seen
        });
        match run {
            Ok(one) => seen.add(&one),
            Err(panic) => {
                eprintln!("failing seed: AGENT_SEED={seed} AGENT_SEEDS=1");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{seen:?}");
    if count >= SEEDS {
        let Seen {
            cuts,
            kills,
            full,
            broken_syncs,
            lost,
            tidied,
            read_only,
        } = seen;
        for (what, times) in [
            ("power cuts", cuts),
            ("kills", kills),
            ("full disks", full),
            ("failed syncs", broken_syncs),
            ("commits that a crash undid", lost),
            ("reclaimed journals", tidied),
            ("read-only file systems", read_only),
        ] {
            assert!(times > 10, "only {times} {what} in {count} seeds");
        }
    }
}

/// What the runs met; a test that meets nothing proves nothing.
#[derive(Debug, Default)]
struct Seen {
    cuts: u64,
    kills: u64,
    full: u64,
    broken_syncs: u64,
    lost: u64,
    tidied: u64,
    read_only: u64,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.full += other.full;
        self.broken_syncs += other.broken_syncs;
        self.lost += other.lost;
        self.tidied += other.tidied;
        self.read_only += other.read_only;
    }
}

/// Everything that was true after one commit.
#[derive(Clone, Debug, Default, PartialEq)]
struct Version {
    /// By processor.
    states: BTreeMap<&'static str, Bytes>,
    /// By the processor before which it waits, and its number.
    flow_files: BTreeMap<(&'static str, u64), Held>,
}

#[derive(Clone, Debug, PartialEq)]
struct Held {
    mark: String,
    content: Vec<u8>,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    PowerCut,
    Kill,
}

struct World {
    rng: Rng,
    disk: SimDisk,
    options: RepositoryOptions,
    is_sealed: bool,
    /// What may be true: the first is the last one known to be safe.
    versions: Vec<Version>,
    next: u64,
    seen: Seen,
}

impl World {
    fn new(seed: u64) -> Self {
        World {
            rng: Rng::from_seed(seed ^ 0xa9e7),
            disk: SimDisk::new(seed),
            options: options_of(seed),
            is_sealed: seed / 6 % 2 == 1,
            versions: vec![Version::default()],
            next: 0,
            seen: Seen::default(),
        }
    }

    fn run(&mut self) {
        for _ in 0..LIVES {
            self.look_at_it_read_only();
            let flow = self.open_in_spite_of_faults();
            self.recovered(&flow);
            let end = self.live(&flow);
            self.crash(end, flow);
        }
        let flow = self.open_in_spite_of_faults();
        self.recovered(&flow);
        self.drain(&flow);
    }

    /// Opens; a crash or a failed sync in the middle of it changes nothing.
    fn open_in_spite_of_faults(&mut self) -> HandFlow {
        if self.rng.one_in(4) {
            self.disk.crash_after(self.rng.below(8));
        } else if self.rng.one_in(8) {
            self.disk.fail_next_sync();
        }
        let keyring = self.keyring();
        let opened = open(&self.disk, self.options, keyring);
        self.disk.crash_after(u64::MAX);
        if let Some(flow) = opened
            && !self.disk.is_down()
        {
            return flow;
        }
        if self.disk.is_down() || self.rng.one_in(2) {
            self.disk.crash();
        } else {
            self.disk.kill();
        }
        let keyring = self.keyring();
        open(&self.disk, self.options, keyring).expect("it opens on a disk that works")
    }

    /// On a file system that is read-only it cannot be opened, but all of it can be seen.
    fn look_at_it_read_only(&mut self) {
        self.disk.set_read_only(true);
        let keyring = self.keyring();
        let disk = Arc::new(self.disk.clone());
        let refused = Repository::open_sealed(disk.clone(), Path::new(DIR), self.options, keyring);
        let refused = refused.expect_err("it opens, and cannot be written");
        assert!(refused.is_read_only(), "{}", base::report(&refused));
        let keyring = self.keyring();
        let read = Repository::open_to_read(disk, Path::new(DIR), self.options, keyring);
        match read {
            Ok(repository) => {
                let flow = HandFlow::new(repository, FLOW);
                let now = all_of(&flow);
                assert!(self.versions.contains(&now), "what is read was never true");
                let refused = flow.session("make").record_state(Bytes::new());
                let Err(ProcessorError::Repository(error)) = refused else {
                    panic!("a commit was not refused");
                };
                assert!(error.is_read_only(), "{}", base::report(&error));
            }
            // There was never one.
            Err(error) => {
                assert!(error.is_read_only(), "{}", base::report(&error));
                assert_eq!(self.versions, [Version::default()]);
            }
        }
        self.disk.set_read_only(false);
    }

    /// Half of the worlds are sealed, by another key in each opening, or by none any more.
    fn keyring(&mut self) -> Keyring {
        if !self.is_sealed {
            return Keyring::default();
        }
        let key = |digits: &str| SecretKey::parse(&digits.repeat(32)).unwrap();
        let (a, b) = (key("0a"), key("0b"));
        let (current, old) = match self.rng.below(5) {
            0 => (None, vec![a, b]),
            1 | 2 => (Some(a), vec![b]),
            _ => (Some(b), vec![a]),
        };
        Keyring::new(current, old).unwrap()
    }

    /// Holds what came back against what may be true.
    fn recovered(&mut self, flow: &HandFlow) {
        let now = all_of(flow);
        let found = self.versions.iter().rposition(|version| *version == now);
        let Some(found) = found else {
            let nearest = self
                .versions
                .iter()
                .map(|version| difference(version, &now));
            let nearest = nearest.min_by_key(Vec::len).unwrap_or_default();
            panic!(
                "what came back was never true, or is older than what was waited for; it differs \
                 from the nearest of {} versions in: {}",
                self.versions.len(),
                nearest.join(", ")
            );
        };
        self.seen.lost += (self.versions.len() - 1 - found) as u64;
        self.versions = vec![now];
    }

    fn live(&mut self, flow: &HandFlow) -> End {
        let sessions = self.rng.below(SESSIONS_MAX);
        match self.rng.below(6) {
            0 => self.disk.crash_after(self.rng.below(60)),
            1 => {
                self.disk.fail_next_sync();
                self.seen.broken_syncs += 1;
            }
            2 => {
                let room = self.rng.below(40_000);
                self.disk.set_capacity(Some(self.disk.used() + room));
            }
            _ => {}
        }
        let read_only_at = self.rng.one_in(6).then(|| self.rng.below(SESSIONS_MAX));
        for at in 0..sessions {
            let is_read_only = read_only_at.is_some_and(|from| at >= from);
            self.disk.set_read_only(is_read_only);
            if !self.step(flow) {
                self.seen.read_only += u64::from(is_read_only);
                break;
            }
        }
        self.disk.set_capacity(None);
        self.disk.set_read_only(false);
        if self.rng.one_in(2) {
            End::PowerCut
        } else {
            End::Kill
        }
    }

    /// One session; false when the repository is broken and the process must end.
    fn step(&mut self, flow: &HandFlow) -> bool {
        let mut version = self.versions.last().expect("there is always one").clone();
        let name = ["make", "make", "route", "route", "left", "right"][self.rng.below(6) as usize];
        let mut session = flow.session(name);
        let done = match name {
            "make" => self.make(&mut session, &mut version),
            "route" => self.route(&mut session, &mut version),
            end => self.finish(end, &mut session, &mut version),
        };
        if self.rng.one_in(6) {
            session.rollback();
            return true;
        }
        if let Err(error) = done {
            // It got no room, or could not read; either way it committed nothing.
            session.rollback();
            self.disk.set_capacity(None);
            return matches!(error, ProcessorError::Repository(error) if is_passing(&error));
        }
        let way = self.rng.below(8);
        let committed = match way {
            0 | 1 => session.commit_lazily(),
            2 => session.commit_and_wait(),
            _ => session.commit(),
        };
        match committed {
            Ok(()) if way == 2 => self.versions = vec![version],
            Ok(()) => self.versions.push(version),
            Err(ProcessorError::Repository(error)) if is_passing(&error) => {
                // Refused: nothing happened, and there is room again.
                session.rollback();
                self.seen.full += 1;
                self.disk.set_capacity(None);
                return true;
            }
            Err(ProcessorError::Repository(_)) => {
                // Nobody knows whether it happened.
                session.rollback();
                self.versions.push(version);
                return false;
            }
            Err(error) => panic!("{error}"),
        }
        drop(session);
        !self.rng.one_in(5) || self.wait(flow)
    }

    /// Waits until all that was committed is on the disk.
    fn wait(&mut self, flow: &HandFlow) -> bool {
        let mut version = self.versions.last().expect("there is always one").clone();
        let state = Bytes::from(self.number().to_string());
        version.states.insert("left", state.clone());
        let waited = flow.session("left").record_state(state);
        self.versions.push(version);
        match waited {
            Ok(()) => {
                self.versions.drain(..self.versions.len() - 1);
                true
            }
            Err(ProcessorError::Repository(error)) if is_passing(&error) => {
                self.versions.pop();
                self.disk.set_capacity(None);
                true
            }
            Err(_) => false,
        }
    }

    /// New FlowFiles, some with content of their own and some with views of one block.
    fn make(
        &mut self,
        session: &mut ProcessSession<'_>,
        version: &mut Version,
    ) -> Result<(), ProcessorError> {
        if self.rng.one_in(2) {
            let bytes = self.bytes(6_000);
            let block = session.block(Bytes::from(bytes.clone()))?;
            let mut ranges = Vec::new();
            for _ in 0..=self.rng.below(12) {
                let offset = self.rng.below(bytes.len() as u64) as usize;
                let len = self.rng.below((bytes.len() - offset) as u64 + 1) as usize;
                ranges.push((offset as u32, len as u32));
            }
            let attributes = Arc::new(Attributes::default());
            let views = session.create_views(&attributes, &block, ranges.iter().copied());
            for (mut flow_file, (offset, len)) in views.into_iter().zip(ranges) {
                let number = self.number();
                session.set_attributes(&mut flow_file, attributes_of(number, ""));
                let content = bytes[offset as usize..(offset + len) as usize].to_vec();
                version.put("route", number, "", content);
                session.transfer(flow_file, 0);
            }
        }
        for _ in 0..self.rng.below(3) {
            let number = self.number();
            let mut flow_file = session.create(attributes_of(number, ""));
            let content = self.bytes(3_000);
            session.write(&mut flow_file, Bytes::from(content.clone()))?;
            version.put("route", number, "", content);
            session.transfer(flow_file, 0);
        }
        let state = Bytes::from(self.next.to_string());
        session.set_state(state.clone())?;
        version.states.insert("make", state);
        Ok(())
    }

    /// Sends to both ends, round again with changes, a clone beside, or nowhere.
    fn route(
        &mut self,
        session: &mut ProcessSession<'_>,
        version: &mut Version,
    ) -> Result<(), ProcessorError> {
        for mut flow_file in session.take(self.rng.below(12) as usize, u64::MAX) {
            let number = number_of(flow_file.attributes());
            let held = version
                .flow_files
                .remove(&("route", number))
                .expect("what is taken was there");
            match self.rng.below(6) {
                0 => session.remove_all(vec![flow_file]),
                1 => {
                    let content = self.bytes(2_000);
                    session.write(&mut flow_file, Bytes::from(content.clone()))?;
                    session.set_attributes(&mut flow_file, attributes_of(number, "new"));
                    version.put("route", number, "new", content);
                    session.transfer(flow_file, AGAIN);
                }
                2 => {
                    let mut clone = session.clone_of(&flow_file);
                    let other = self.number();
                    session.set_attributes(&mut clone, attributes_of(other, &held.mark));
                    version.put("route", other, &held.mark, held.content.clone());
                    version.flow_files.insert(("route", number), held);
                    session.transfer(flow_file, AGAIN);
                    session.transfer_penalized(clone, AGAIN);
                }
                _ => {
                    version.flow_files.insert(("left", number), held.clone());
                    version.flow_files.insert(("right", number), held);
                    session.transfer(flow_file, BOTH);
                }
            }
        }
        if self.rng.one_in(2) {
            let state = Bytes::from(self.bytes(200));
            session.set_state(state.clone())?;
            version.states.insert("route", state);
        }
        Ok(())
    }

    fn finish(
        &mut self,
        end: &'static str,
        session: &mut ProcessSession<'_>,
        version: &mut Version,
    ) -> Result<(), ProcessorError> {
        for flow_file in session.take(self.rng.below(20) as usize, u64::MAX) {
            let number = number_of(flow_file.attributes());
            let held = version.flow_files.remove(&(end, number));
            let content = session.read(&flow_file)?;
            assert_eq!(held.expect("what is taken was there").content, content);
            session.transfer(flow_file, 0);
        }
        Ok(())
    }

    fn crash(&mut self, end: End, flow: HandFlow) {
        let files = self.disk.list(Path::new(DIR)).unwrap_or_default();
        let is_first = |name: &String| name.starts_with("0000000000000000");
        self.seen.tidied += u64::from(!files.is_empty() && !files.iter().any(is_first));
        if end == End::PowerCut || self.disk.is_down() {
            self.seen.cuts += 1;
            self.disk.crash();
        } else {
            self.seen.kills += 1;
            self.disk.kill();
        }
        // Its handles are dead by now, so that its end changes nothing on the disk.
        drop(flow);
    }

    /// What is left goes out, and nothing stays behind.
    fn drain(&mut self, flow: &HandFlow) {
        let mut left = 0;
        for name in ["route", "left", "right"] {
            loop {
                let mut session = flow.session(name);
                let taken = session.take(1_000, u64::MAX);
                if taken.is_empty() {
                    break;
                }
                left += taken.len();
                session.remove_all(taken);
                session.commit().unwrap();
            }
        }
        assert_eq!(left, self.versions[0].flow_files.len());
        let status = flow.repository().status();
        assert_eq!((status.content_bytes, status.parked), (0, 0), "orphans");
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let mut bytes = vec![0; 1 + self.rng.below(most) as usize];
        self.rng.fill(&mut bytes);
        bytes
    }
}

impl Version {
    fn put(&mut self, queue: &'static str, number: u64, mark: &str, content: Vec<u8>) {
        let mark = mark.to_owned();
        self.flow_files
            .insert((queue, number), Held { mark, content });
    }
}

fn open(disk: &SimDisk, options: RepositoryOptions, keyring: Keyring) -> Option<HandFlow> {
    let disk = Arc::new(disk.clone());
    let opened = Repository::open_sealed(disk, Path::new(DIR), options, keyring);
    let repository = opened.ok()?;
    Some(HandFlow::new(repository, FLOW))
}

/// A mix of repositories on the disk, by seed, that tidies up often.
pub(crate) fn options_of(seed: u64) -> RepositoryOptions {
    let limits = RepositoryLimits {
        segment_bytes: 32 << 10,
        snapshot_bytes_min: 16 << 10,
        pinned_bytes_max: 96 << 10,
        content_pinned_bytes_max: 96 << 10,
        reserve_bytes: 4 << 10,
        // Half of the worlds write nearly each session in several frames.
        piece_bytes: [100, 1 << 20][(seed / 3 % 2) as usize],
        ..RepositoryLimits::default()
    };
    let content = [ContentKind::FileSystem, ContentKind::Database][(seed % 2) as usize];
    let provenance = match seed / 2 % 3 {
        0 => ProvenanceKind::None,
        1 => ProvenanceKind::Volatile {
            bytes_max: 4 << 10,
            count_max: 20,
        },
        _ => ProvenanceKind::DISK,
    };
    RepositoryOptions {
        content,
        provenance,
        limits,
        ..RepositoryOptions::default()
    }
}

/// Everything that a repository holds now; it is left as it was.
fn all_of(flow: &HandFlow) -> Version {
    let mut version = Version::default();
    for name in ["make", "route", "left", "right"] {
        let mut session = flow.session(name);
        let state = session.state();
        if !state.is_empty() {
            version.states.insert(name, state);
        }
        for flow_file in session.take(usize::MAX, u64::MAX) {
            let number = number_of(flow_file.attributes());
            let mark = flow_file.attributes().get("mark").unwrap_or_default();
            let held = Held {
                mark: mark.to_owned(),
                content: session.read(&flow_file).unwrap().to_vec(),
            };
            let before = version.flow_files.insert((name, number), held);
            assert_eq!(before, None, "{number} is twice before {name}");
        }
        session.rollback();
    }
    version
}

fn attributes_of(number: u64, mark: &str) -> Arc<Attributes> {
    Arc::new(Attributes::new([
        ("number", number.to_string()),
        ("mark", mark.to_owned()),
    ]))
}

fn number_of(attributes: &Attributes) -> u64 {
    attributes.get("number").unwrap().parse().unwrap()
}

/// What is different in `now`, for messages.
fn difference(then: &Version, now: &Version) -> Vec<String> {
    let mut all = Vec::new();
    for name in ["make", "route", "left"] {
        if then.states.get(name) != now.states.get(name) {
            all.push(format!("the state of {name}"));
        }
    }
    for (key, held) in &then.flow_files {
        match now.flow_files.get(key) {
            None => all.push(format!("{key:?} is missing")),
            Some(found) if found != held => all.push(format!(
                "{key:?} is {}:{} and was {}:{}",
                found.mark,
                found.content.len(),
                held.mark,
                held.content.len()
            )),
            Some(_) => {}
        }
    }
    let known = |key: &&(&str, u64)| !then.flow_files.contains_key(*key);
    let new = now.flow_files.keys().filter(known);
    all.extend(new.map(|key| format!("{key:?} is there again")));
    all
}

/// Relationships of RouteOnAttribute: its own two, then those of the flow, in its order.
const BOTH: usize = 2;
const AGAIN: usize = 3;

/// Where the repository is on the simulated disk.
pub(crate) const DIR: &str = "/agent";

const SEEDS: u64 = 60;
const LIVES: u64 = 6;
const SESSIONS_MAX: u64 = 60;

const FLOW: &str = "
MiNiFi Config Version: 3
Flow Controller: {name: simulated}
Processors:
- {name: make, id: make, class: GenerateFlowFile}
- name: route
  id: route
  class: RouteOnAttribute
  auto-terminated relationships list: [unmatched, failure]
  Properties: {both: 'true', again: 'false'}
- {name: left, id: left, class: UpdateAttribute, auto-terminated relationships list: [success, failure]}
- {name: right, id: right, class: UpdateAttribute, auto-terminated relationships list: [success, failure]}
Connections:
- {id: new, source name: make, source relationship name: success, destination name: route}
- {id: round, source name: route, source relationship name: again, destination name: route}
- {id: to-left, source name: route, source relationship name: both, destination name: left}
- {id: to-right, source name: route, source relationship name: both, destination name: right}
";
