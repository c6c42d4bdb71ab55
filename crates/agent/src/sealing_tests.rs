//! A sealed repository: nothing of it can be read on the disk, it needs its key, and the key changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use journal::RealDisk;

use crate::flowfile::Attributes;
use crate::limits::SWAP_BATCH_FLOW_FILES;
use crate::parameters::SecretKey;
use crate::provenance::{EventKind, Filter};
use crate::repository::{
    ContentKind, ProvenanceKind, Repository, RepositoryLimits, RepositoryOptions,
};
use crate::sealing::Keyring;
use crate::testing::HandFlow;

const KINDS: [ContentKind; 2] = [ContentKind::FileSystem, ContentKind::Database];

fn key(digits: &str) -> SecretKey {
    SecretKey::parse(&digits.repeat(32)).unwrap()
}

fn keyring(current: Option<&str>, old: &[&str]) -> Keyring {
    let old = old.iter().map(|digits| key(digits)).collect();
    Keyring::new(current.map(key), old).unwrap()
}

fn open(dir: &Path, content: ContentKind, keyring: Keyring) -> Result<HandFlow, String> {
    let limits = RepositoryLimits {
        snapshot_bytes_min: 16 << 10,
        hot_bytes_max: 0,
        ..RepositoryLimits::default()
    };
    let options = RepositoryOptions {
        content,
        provenance: ProvenanceKind::DISK,
        limits,
        ..RepositoryOptions::default()
    };
    let repository = Repository::open_sealed(Arc::new(RealDisk), dir, options, keyring);
    let repository = repository.map_err(|error| base::report(&error))?;
    Ok(HandFlow::new(repository, FLOW))
}

/// Queues `count` FlowFiles, some with the word of secrecy in all that they have.
fn fill(flow: &HandFlow, count: usize) {
    let mut session = flow.session("make");
    for number in 0..count {
        let attributes = Attributes::new([("name", format!("{WORD} {number}"))]);
        let mut flow_file = session.create(Arc::new(attributes));
        if number < 3 {
            let content = format!("{WORD} content {number} {}", "x".repeat(3_000));
            session.write(&mut flow_file, Bytes::from(content)).unwrap();
            session.note(&flow_file, EventKind::Send, WORD);
        }
        session.transfer(flow_file, 0);
    }
    session.set_state(Bytes::from(WORD)).unwrap();
    session.commit_and_wait().unwrap();
}

/// Takes what is queued and holds it against what was.
fn hold(flow: &HandFlow, count: usize) {
    let mut session = flow.session("end");
    let mut seen = 0;
    loop {
        let taken = session.take(usize::MAX, u64::MAX);
        if taken.is_empty() {
            break;
        }
        for flow_file in &taken {
            let name = flow_file.attributes().get("name").unwrap();
            assert!(name.starts_with(WORD), "{name}");
            if flow_file.size() > 0 {
                let content = session.read(flow_file).unwrap();
                assert!(content.starts_with(format!("{WORD} content").as_bytes()));
            }
        }
        seen += taken.len();
        session.transfer_all(taken, 0);
    }
    session.rollback();
    assert_eq!(seen, count);
    assert_eq!(flow.session("make").state(), WORD);
    let all = Filter {
        kinds: vec![EventKind::Send],
        count_max: usize::MAX,
        ..Filter::default()
    };
    let events = flow.repository().provenance_events(&all).unwrap();
    assert!(events.iter().all(|event| event.details == WORD));
    assert_eq!(events.len(), 3);
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    let each = entries.map(|entry| entry.unwrap().path());
    each.flat_map(|path| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    })
    .collect()
}

fn shows_the_word(dir: &Path) -> bool {
    let word = WORD.as_bytes();
    files(dir).iter().any(|file| {
        let bytes = std::fs::read(file).unwrap();
        bytes.windows(word.len()).any(|window| window == word)
    })
}

#[test]
fn nothing_of_a_sealed_repository_can_be_read_on_the_disk() {
    // So many that some are written away.
    let count = 2 * SWAP_BATCH_FLOW_FILES + 100;
    for content in KINDS {
        for current in [Some("0a"), None] {
            let dir = tempfile::tempdir().unwrap();
            let flow = open(dir.path(), content, keyring(current, &[])).unwrap();
            fill(&flow, count);
            flow.repository().close().unwrap();
            drop(flow);
            assert_eq!(shows_the_word(dir.path()), current.is_none(), "{content:?}");
            hold(
                &open(dir.path(), content, keyring(current, &[])).unwrap(),
                count,
            );
            assert_eq!(shows_the_word(dir.path()), current.is_none(), "{content:?}");
        }
    }
}

#[test]
fn without_its_key_a_repository_does_not_open_and_stays_as_it_is() {
    for content in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let flow = open(dir.path(), content, keyring(Some("0a"), &[])).unwrap();
        fill(&flow, 5);
        drop(flow);
        for wrong in [keyring(Some("0b"), &["0c"]), Keyring::default()] {
            let Err(error) = open(dir.path(), content, wrong) else {
                panic!("a wrong key was taken");
            };
            assert!(
                error.contains("which was not given: set it as nifi.fl"),
                "{error}"
            );
            assert!(!error.contains("0a0a"), "{error}");
        }
        hold(
            &open(dir.path(), content, keyring(Some("0a"), &[])).unwrap(),
            5,
        );
    }
}

#[test]
fn a_key_is_replaced_and_the_old_one_can_go_when_its_flow_files_have() {
    for content in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let open = |keys: Keyring| open(dir.path(), content, keys);
        // From none to one, to another, and to none again.
        for (current, old) in [
            (None, &[][..]),
            (Some("0a"), &[]),
            (Some("0b"), &["0a"]),
            (None, &["0a", "0b"]),
        ] {
            let flow = open(keyring(current, old)).unwrap();
            if current.is_none() && old.is_empty() {
                fill(&flow, 5);
            } else {
                hold(&flow, 5);
            }
        }
        // Records were written anew each time, so that no key is needed any more; what lies in
        // content would have been said by its id.
        hold(&open(Keyring::default()).unwrap(), 5);
        let flow = open(keyring(Some("0c"), &[])).unwrap();
        let mut session = flow.session("make");
        let mut flow_file = session.create(Arc::default());
        session.write(&mut flow_file, Bytes::from("late")).unwrap();
        session.transfer(flow_file, 0);
        session.commit_and_wait().unwrap();
        drop(session);
        drop(flow);
        // Its records open by the new key, its content does not: it waits, and is not lost.
        let flow = open(keyring(Some("0d"), &["0c"])).unwrap();
        drop(flow);
        let flow = open(keyring(Some("0d"), &[])).unwrap();
        let mut session = flow.session("end");
        let taken = session.take(usize::MAX, u64::MAX);
        let errors = taken.iter().filter_map(|one| session.read(one).err());
        let errors: Vec<String> = errors.map(|error| format!("{error:?}")).collect();
        assert_eq!((taken.len(), errors.len()), (6, 1), "{errors:?}");
        assert!(errors[0].contains("was not given"), "{errors:?}");
        session.rollback();
        assert_eq!(session.drop_damaged().unwrap(), []);
        drop(session);
        drop(flow);
        let flow = open(keyring(Some("0d"), &["0c"])).unwrap();
        let mut session = flow.session("end");
        let taken = session.take(usize::MAX, u64::MAX);
        assert!(taken.iter().all(|one| session.read(one).is_ok()));
    }
}

const WORD: &str = "hush-hush-hush";

const FLOW: &str = "
MiNiFi Config Version: 3
Flow Controller: {name: sealed}
Processors:
- {name: make, id: make, class: GenerateFlowFile}
- {name: end, id: end, class: UpdateAttribute, auto-terminated relationships list: [success, failure]}
Connections:
- {id: way, source name: make, source relationship name: success, destination name: end, max work queue size: 0, swap threshold: 1000}
";
