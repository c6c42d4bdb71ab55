//! Bit rot: whatever byte of whatever file goes bad, the repository opens by itself, gives no wrong
//! byte out, loses no more than what one session wrote, and the rest flows.
//!
//! `AGENT_ROT_STRIDE` says every how many bytes one is tried; 1 tries all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Rng;
use bytes::Bytes;
use journal::RealDisk;

use crate::flowfile::Attributes;
use crate::parameters::SecretKey;
use crate::repository::{
    ContentKind, ProvenanceKind, Repository, RepositoryLimits, RepositoryOptions,
};
use crate::sealing::Keyring;
use crate::testing::HandFlow;

#[test]
fn any_byte_of_a_repository_with_content_of_its_own_may_go_bad() {
    rot(ContentKind::FileSystem, None);
}

#[test]
fn any_byte_of_a_repository_in_one_journal_may_go_bad() {
    rot(ContentKind::Database, None);
}

#[test]
fn any_byte_of_a_sealed_repository_may_go_bad() {
    let key = || SecretKey::parse(&"5e".repeat(32)).ok();
    rot(ContentKind::FileSystem, key());
    rot(ContentKind::Database, key());
}

/// Which kind of repository it is, and what it is sealed by.
#[derive(Clone)]
struct Kind {
    content: ContentKind,
    key: Option<SecretKey>,
}

/// What a FlowFile should be, by its number.
struct Made {
    session: u64,
    content: Vec<u8>,
}

/// What is known of one flipped byte's harm.
#[derive(Debug, Default)]
struct Harm {
    /// Opened as if nothing had happened.
    none: u64,
    /// FlowFiles were gone.
    gone: u64,
    /// FlowFiles were there and said to be damaged.
    told: u64,
}

fn rot(content: ContentKind, key: Option<SecretKey>) {
    let kind = Kind { content, key };
    let stride = std::env::var("AGENT_ROT_STRIDE").ok();
    let stride = stride.and_then(|text| text.parse().ok()).unwrap_or(STRIDE);
    let dir = tempfile::tempdir().unwrap();
    let sound = dir.path().join("sound");
    let made = fill(&sound, &kind);
    let mut harm = Harm::default();
    let mut rng = Rng::from_seed(7);
    for file in files(&sound) {
        let name = file.strip_prefix(&sound).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        let mut at = rng.below(stride.min(bytes.len() as u64).max(1)) as usize;
        while at < bytes.len() {
            let spoiled = dir.path().join("spoiled");
            copy(&sound, &spoiled);
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << rng.below(8);
            std::fs::write(spoiled.join(name), bytes).unwrap();
            let place = format!("byte {at} of {}", name.display());
            hold(&spoiled, &kind, &made, &place, &mut harm);
            std::fs::remove_dir_all(&spoiled).unwrap();
            at += stride as usize;
        }
    }
    eprintln!("{harm:?}");
    assert!(harm.none > 0 && harm.gone + harm.told > 0, "{harm:?}");
}

/// A repository with FlowFiles of several sessions, snapshots among them.
fn fill(dir: &Path, kind: &Kind) -> BTreeMap<u64, Made> {
    let flow = open(dir, kind).unwrap();
    let mut rng = Rng::from_seed(1);
    let mut made = BTreeMap::new();
    for session in 0..SESSIONS {
        let mut source = flow.session("make");
        for _ in 0..4 {
            let number = made.len() as u64;
            let attributes = Attributes::new([("number", number.to_string())]);
            let mut flow_file = source.create(Arc::new(attributes));
            let mut content = vec![0; 200 + rng.below(2_000) as usize];
            rng.fill(&mut content);
            source
                .write(&mut flow_file, Bytes::from(content.clone()))
                .unwrap();
            source.transfer(flow_file, 0);
            made.insert(number, Made { session, content });
        }
        source.set_state(Bytes::from(session.to_string())).unwrap();
        source.commit_and_wait().unwrap();
    }
    flow.repository().close().unwrap();
    made
}

/// Opens a spoiled repository and looks at everything in it.
fn hold(dir: &Path, kind: &Kind, made: &BTreeMap<u64, Made>, place: &str, harm: &mut Harm) {
    let flow = open(dir, kind).unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut session = flow.session("end");
    let mut sound = BTreeSet::new();
    let mut damaged = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for flow_file in session.take(usize::MAX, u64::MAX) {
        let number = flow_file.attributes().get("number").unwrap();
        let number: u64 = number.parse().unwrap();
        let known = made.get(&number);
        let known = known.unwrap_or_else(|| panic!("{place}: {number} was never made"));
        let is_new = match session.read(&flow_file) {
            Ok(read) => {
                assert_eq!(
                    read, known.content,
                    "{place}: a wrong byte came out of {number}"
                );
                sound.insert(number)
            }
            Err(_) => {
                ids.insert(flow_file.id());
                damaged.insert(number)
            }
        };
        assert!(is_new, "{place}: {number} is there twice");
    }
    session.rollback();
    let dropped: BTreeSet<_> = session.drop_damaged().unwrap().into_iter().collect();
    assert_eq!(dropped, ids, "{place}: the damaged ones were not named");
    let lost: BTreeSet<u64> = made
        .iter()
        .filter(|(number, _)| !sound.contains(number))
        .map(|(_, made)| made.session)
        .collect();
    assert!(
        lost.len() <= 1,
        "{place}: it took FlowFiles of the sessions {lost:?}"
    );
    match (made.len() - sound.len() - damaged.len(), damaged.len()) {
        (0, 0) => harm.none += 1,
        (0, _) => harm.told += 1,
        _ => harm.gone += 1,
    }
    let mut session = flow.session("end");
    let rest = session.take(usize::MAX, u64::MAX);
    assert_eq!(rest.len(), sound.len(), "{place}");
    session.remove_all(rest);
    session.commit_and_wait().unwrap();
}

fn open(dir: &Path, kind: &Kind) -> Result<HandFlow, String> {
    let limits = RepositoryLimits {
        segment_bytes: 32 << 10,
        piece_bytes: 300,
        snapshot_bytes_min: 8 << 10,
        pinned_bytes_max: 1 << 20,
        content_pinned_bytes_max: 16 << 10,
        reserve_bytes: 4 << 10,
        ..RepositoryLimits::default()
    };
    let options = RepositoryOptions {
        content: kind.content,
        provenance: ProvenanceKind::DISK,
        limits,
        ..RepositoryOptions::default()
    };
    let keyring = Keyring::new(kind.key.clone(), Vec::new()).unwrap();
    let repository = Repository::open_sealed(Arc::new(RealDisk), dir, options, keyring);
    let repository = repository.map_err(|error| base::report(&error))?;
    Ok(HandFlow::new(repository, FLOW))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let to = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(file, to).unwrap();
    }
}

const SESSIONS: u64 = 12;
const STRIDE: u64 = 701;

const FLOW: &str = "
MiNiFi Config Version: 3
Flow Controller: {name: rotten}
Processors:
- {name: make, id: make, class: GenerateFlowFile}
- {name: end, id: end, class: UpdateAttribute, auto-terminated relationships list: [success, failure]}
Connections:
- {id: way, source name: make, source relationship name: success, destination name: end}
";
