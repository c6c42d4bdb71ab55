//! The repository against a model: random commits, snapshots, moves, reopenings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Rng, UnixMillis};
use bytes::Bytes;
use journal::{Durability, RealDisk};

use crate::connection::{Connection, Waiting};
use crate::content::Content;
use crate::definition::ConnectionDefinition;
use crate::flowfile::{Attributes, FlowFile, FlowFileId};
use crate::provenance::{EventKind, Events, Filter};
mod numbers;
mod order;
mod unreadable;

use crate::repository::{
    Commit, ContentKind, FlowFileKind, ProvenanceKind, Put, Repository, RepositoryLimits,
    RepositoryOptions,
};

/// What one FlowFile should be.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    connection: usize,
    attribute: String,
    content: Vec<u8>,
}

fn open(dir: &Path) -> Arc<Repository> {
    open_as(dir, RepositoryOptions::default())
}

/// A repository that tidies up often.
fn open_as(dir: &Path, options: RepositoryOptions) -> Arc<Repository> {
    let limits = RepositoryLimits {
        segment_bytes: 32 << 10,
        snapshot_bytes_min: 16 << 10,
        pinned_bytes_max: 96 << 10,
        content_pinned_bytes_max: 96 << 10,
        reserve_bytes: 4 << 10,
        // Half of the commits are written in several frames.
        piece_bytes: 300,
        ..RepositoryLimits::default()
    };
    let options = RepositoryOptions { limits, ..options };
    Repository::open(Arc::new(RealDisk), dir, options).unwrap()
}

fn bytes_of(content: &Content) -> Vec<u8> {
    let views = content.views().iter();
    let parts = views.map(|view| view.claim.read(view.offset, view.len).unwrap());
    parts.collect::<Vec<_>>().concat()
}

fn connections(repository: &Repository) -> Vec<Arc<Connection>> {
    let made: Vec<Arc<Connection>> = (0..3)
        .map(|index| {
            let definition = ConnectionDefinition {
                id: format!("c{index}"),
                name: String::new(),
                path: String::new(),
                source: String::new(),
                relationships: Vec::new(),
                destination: String::new(),
                flow_files_max: 0,
                bytes_max: 0,
                expiration: Duration::ZERO,
                drop_empty: false,
                // One is short, one is swapped, one hardly ever comes back.
                swap_threshold: [0, 25, 7][index],
                ..ConnectionDefinition::default()
            };
            Arc::new(Connection::new(
                definition,
                false,
                Arc::default(),
                Arc::default(),
            ))
        })
        .collect();
    repository.activate(&made);
    made
}

/// What the repository holds, by id, and the order of each queue.
fn held(
    repository: &Repository,
    connections: &[Arc<Connection>],
) -> (BTreeMap<u64, Expected>, Vec<Vec<u64>>) {
    let mut all = BTreeMap::new();
    let mut orders = Vec::new();
    for (index, connection) in connections.iter().enumerate() {
        let mut order = Vec::new();
        let mut hold = |flow_file: &FlowFile| {
            let expected = Expected {
                connection: index,
                attribute: flow_file.attributes.get("a").unwrap_or_default().to_owned(),
                content: bytes_of(&flow_file.content),
            };
            assert_eq!(all.insert(flow_file.id.0, expected), None, "in two places");
            order.push(flow_file.id.0);
        };
        connection.visit(&mut |waiting| {
            for waits in waiting {
                match waits {
                    Waiting::FlowFile(flow_file) => hold(flow_file),
                    Waiting::Swapped(swapped) => {
                        let batch = repository.read_back(swapped.position).unwrap();
                        assert_eq!(batch.len() as u64, swapped.count);
                        batch.iter().for_each(&mut hold);
                    }
                }
            }
        });
        assert_eq!(connection.count(), order.len() as u64);
        orders.push(order);
    }
    (all, orders)
}

/// Makes FlowFiles that view ranges of one claim.
fn make(
    repository: &Repository,
    random: &mut Rng,
    connection: &Arc<Connection>,
    index: usize,
    model: &mut BTreeMap<u64, Expected>,
) {
    let mut bytes = vec![0; random.below(6_000) as usize + 1];
    random.fill(&mut bytes);
    let claim = repository.claim(Bytes::from(bytes.clone()), 0);
    let attribute = random.below(4).to_string();
    let attributes = Arc::new(Attributes::new([("a", attribute.clone())]));
    let count = random.below(20) + 1;
    let first = repository.ids(count);
    let mut flow_files = Vec::new();
    for id in first..first + count {
        // Now and then of several pieces.
        let pieces = if random.one_in(5) { 3 } else { 1 };
        let parts = (0..pieces).map(|_| {
            let offset = random.below(bytes.len() as u64);
            let len = random.below(bytes.len() as u64 - offset + 1);
            Content::whole(Arc::clone(&claim)).slice(offset, len)
        });
        let rope = Content::join(parts.collect::<Vec<_>>());
        let content = bytes_of(&rope);
        model.insert(
            id,
            Expected {
                connection: index,
                attribute: attribute.clone(),
                content,
            },
        );
        flow_files.push(FlowFile {
            id: FlowFileId(id),
            entry: UnixMillis(7),
            attributes: Arc::clone(&attributes),
            content: rope,
        });
    }
    let put = Put {
        connection: Arc::clone(connection),
        flow_files,
        penalized: None,
    };
    let commit = Commit {
        puts: vec![put],
        claims: vec![claim],
        ..Commit::default()
    };
    repository.commit(commit, Durability::Disk).unwrap();
}

/// Takes some, drops some, moves the others; or gives all back.
fn pass(
    repository: &Repository,
    random: &mut Rng,
    connections: &[Arc<Connection>],
    from: usize,
    model: &mut BTreeMap<u64, Expected>,
) {
    let input = &connections[from];
    repository.swap_in(input).unwrap();
    let taken = input
        .take(1, UnixMillis(8), random.below(40) as usize, u64::MAX)
        .flow_files;
    if random.one_in(4) {
        input.give_back(1, None);
        return;
    }
    let to = random.below(3) as usize;
    let mut removed = Vec::new();
    let mut moved = Vec::new();
    for flow_file in taken {
        // A few stay for long, and pin what is old.
        if random.one_in(20) || from == 2 && !random.one_in(3) {
            model.get_mut(&flow_file.id.0).unwrap().connection = to;
            moved.push(flow_file);
        } else {
            model.remove(&flow_file.id.0);
            removed.push(flow_file.id);
        }
    }
    let put = Put {
        connection: Arc::clone(&connections[to]),
        flow_files: moved,
        penalized: None,
    };
    let commit = Commit {
        removed,
        puts: vec![put],
        inputs: std::slice::from_ref(input),
        session: 1,
        ends: true,
        ..Commit::default()
    };
    repository.commit(commit, Durability::Disk).unwrap();
}

#[test]
fn queues_and_states_are_rebuilt_exactly_whatever_happened() {
    for seed in 0..6 {
        for content in [ContentKind::Database, ContentKind::FileSystem] {
            for provenance in [ProvenanceKind::None, ProvenanceKind::DISK] {
                let options = RepositoryOptions {
                    content,
                    provenance,
                    ..RepositoryOptions::default()
                };
                rebuild(seed, options);
            }
        }
    }
}

fn rebuild(seed: u64, options: RepositoryOptions) {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Rng::from_seed(seed);
    let mut model = BTreeMap::new();
    let mut repository = open_as(dir.path(), options);
    let mut queues = connections(&repository);
    let mut segments_max = 0;
    let mut swapped = 0;
    for step in 0..600 {
        let index = random.below(3) as usize;
        if random.one_in(2) {
            make(&repository, &mut random, &queues[index], index, &mut model);
        } else {
            pass(&repository, &mut random, &queues, index, &mut model);
        }
        if random.one_in(50) {
            let state = Bytes::from(step.to_string());
            repository.save_state("p", state.clone()).unwrap();
            let (before, orders) = held(&repository, &queues);
            let ids = repository.ids(0);
            repository.close().unwrap();
            // The old handles go before the folder is opened again.
            queues.clear();
            drop(repository);
            repository = open_as(dir.path(), options);
            queues = connections(&repository);
            let (after, orders_after) = held(&repository, &queues);
            assert_eq!(before, model, "seed {seed} step {step}");
            assert_eq!(after, model, "seed {seed} step {step}");
            assert_eq!(orders_after, orders, "seed {seed} step {step}");
            assert_eq!(repository.state("p"), Some(state), "seed {seed}");
            let known = model.keys().next_back().copied().unwrap_or(0);
            assert!(
                repository.ids(0) > known || ids == 0,
                "seed {seed}: an id comes twice"
            );
        }
        segments_max = segments_max.max(repository.status().bytes_on_disk);
        swapped += u32::from(queues[1].is_to_swap_in()) + u32::from(queues[2].is_to_swap_in());
    }
    assert!(swapped > 10, "seed {seed}: hardly anything was swapped");
    let live = repository.status().content_bytes;
    assert!(
        segments_max < 60 * (64 << 10) + 8 * live,
        "seed {seed}: {segments_max} bytes on disk for {live} of content"
    );
}

#[test]
fn what_is_cleared_is_what_waits_in_that_queue_swapped_or_not() {
    for content in [ContentKind::Database, ContentKind::FileSystem] {
        let options = RepositoryOptions {
            content,
            ..RepositoryOptions::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let mut random = Rng::from_seed(3);
        let mut model = BTreeMap::new();
        let repository = open_as(dir.path(), options);
        let queues = connections(&repository);
        for step in 0..120 {
            let index = step % 3;
            make(&repository, &mut random, &queues[index], index, &mut model);
        }
        for queue in &queues[1..] {
            let mut swapped = 0;
            queue.visit(&mut |waiting| {
                for waits in waiting {
                    swapped += u32::from(matches!(waits, Waiting::Swapped(_)));
                }
            });
            assert!(swapped > 0, "{content:?}: nothing is swapped");
        }
        // What a session holds does not wait.
        let taken = queues[1].take(1, UnixMillis(8), 5, u64::MAX).flow_files;
        let taken: Vec<u64> = taken.iter().map(|flow_file| flow_file.id.0).collect();
        assert_eq!(taken.len(), 5);
        let goes = |id: &u64, of: &Expected| of.connection == 1 && !taken.contains(id);
        let expected = model.iter().filter(|(id, of)| goes(id, of)).count() as u64;
        let count = repository.discard(UnixMillis(9), &|id| id == "c1").unwrap();
        assert_eq!(count, expected, "{content:?}");
        model.retain(|id, of| !goes(id, of));
        queues[1].give_back(1, None);
        let (now, orders) = held(&repository, &queues);
        assert_eq!(now, model, "{content:?}");
        assert_eq!(orders[1], taken, "{content:?}");
        assert_eq!(
            repository.discard(UnixMillis(9), &|id| id == "c9").unwrap(),
            0
        );
        repository.close().unwrap();
        drop((queues, repository));
        // Nothing comes back with the next start, and nothing else is gone.
        let repository = open_as(dir.path(), options);
        let queues = connections(&repository);
        let (after, orders_after) = held(&repository, &queues);
        assert_eq!(after, model, "{content:?}");
        assert_eq!(orders_after, orders, "{content:?}");
    }
}

#[test]
fn flow_files_of_unknown_connections_are_parked() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = BTreeMap::new();
    let repository = open(dir.path());
    let queues = connections(&repository);
    make(
        &repository,
        &mut Rng::from_seed(1),
        &queues[1],
        1,
        &mut model,
    );
    repository.park(&queues);
    assert_eq!(repository.status().parked, model.len() as u64);
    repository.close().unwrap();
    drop((queues, repository));
    let repository = open(dir.path());
    assert_eq!(repository.status().parked, model.len() as u64);
    assert_eq!(held(&repository, &connections(&repository)).0, model);
}

#[test]
fn provenance_is_there_exactly_as_far_as_its_commits() {
    let dir = tempfile::tempdir().unwrap();
    let options = RepositoryOptions {
        provenance: ProvenanceKind::Disk {
            bytes_max: 64 << 20,
            age_max: Duration::MAX,
        },
        ..RepositoryOptions::default()
    };
    let mut repository = open_as(dir.path(), options);
    let mut expected = Vec::new();
    for step in 0..3_000_u64 {
        let id = FlowFileId(repository.ids(1));
        let mut events = Events::default();
        events.note(EventKind::Receive, id, "tcp://sensor:7");
        let commit = Commit {
            // A state makes a frame even without FlowFiles.
            state: Some(("p", Bytes::from(step.to_string()))),
            events: events.encode("p", "ListenTCP", UnixMillis(step as i64)),
            ..Commit::default()
        };
        repository.commit(commit, Durability::Disk).unwrap();
        expected.push(id);
        if step % 700 == 699 {
            // The process ends: what was gathered in memory is taken from the commits again.
            let copy = tempfile::tempdir().unwrap();
            repository.save_state("q", Bytes::new()).unwrap();
            copy_folder(dir.path(), copy.path());
            let again = open_as(copy.path(), options);
            check_events(&again, &expected);
            check_events(&repository, &expected);
            drop(again);
        }
    }
    repository.close().unwrap();
    repository = open_as(dir.path(), options);
    check_events(&repository, &expected);
    let one = Filter {
        flow_file: Some(expected[77]),
        count_max: 10,
        ..Filter::default()
    };
    let events = repository.provenance_events(&one).unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(
        (
            events[0].kind,
            &*events[0].details,
            &*events[0].component_type
        ),
        (EventKind::Receive, "tcp://sensor:7", "ListenTCP")
    );
    assert_eq!(
        repository.flow_file_of(&repository.uuid(expected[77])),
        Some(expected[77])
    );
}

fn check_events(repository: &Repository, expected: &[FlowFileId]) {
    let all = Filter {
        count_max: usize::MAX,
        ..Filter::default()
    };
    let events = repository.provenance_events(&all).unwrap();
    let ids: Vec<FlowFileId> = events.iter().map(|event| event.flow_files.first).collect();
    let first_wrong = ids.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!((ids.len(), first_wrong), (expected.len(), None));
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn provenance_stays_within_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let options = RepositoryOptions {
        provenance: ProvenanceKind::Disk {
            bytes_max: 512 << 10,
            age_max: Duration::MAX,
        },
        ..RepositoryOptions::default()
    };
    let repository = open_as(dir.path(), options);
    let details = "x".repeat(900);
    for step in 0..4_000_i64 {
        let mut events = Events::default();
        events.note(EventKind::Send, FlowFileId(step as u64 * 2), &details);
        let commit = Commit {
            state: Some(("p", Bytes::from_static(b"s"))),
            events: events.encode("p", "PutTCP", UnixMillis(step)),
            ..Commit::default()
        };
        repository.commit(commit, Durability::Os).unwrap();
        let bytes = repository.status().provenance.bytes;
        assert!(bytes < (512 << 10) + (80 << 10), "{bytes} at {step}");
    }
    let newest = Filter {
        from: Some(UnixMillis(3_900)),
        count_max: 1_000,
        ..Filter::default()
    };
    assert_eq!(repository.provenance_events(&newest).unwrap().len(), 100);
    let provenance = dir.path().join("provenance");
    let files = std::fs::read_dir(provenance).unwrap();
    let on_disk: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(on_disk < 1 << 20, "{on_disk} bytes on the disk");
}

#[test]
fn a_commit_whose_content_did_not_reach_the_disk_never_happened() {
    let options = RepositoryOptions {
        content: ContentKind::FileSystem,
        ..RepositoryOptions::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let mut model = BTreeMap::new();
    let mut random = Rng::from_seed(5);
    let repository = open_as(dir.path(), options);
    let queues = connections(&repository);
    for _ in 0..3 {
        make(&repository, &mut random, &queues[0], 0, &mut model);
    }
    repository
        .save_state("p", Bytes::from_static(b"kept"))
        .unwrap();
    // What the content journal holds now; then a commit whose content is lost.
    let kept = tempfile::tempdir().unwrap();
    copy_folder(&dir.path().join("content"), kept.path());
    let mut lost = BTreeMap::new();
    make(&repository, &mut random, &queues[1], 1, &mut lost);
    repository
        .save_state("p", Bytes::from_static(b"ahead"))
        .unwrap();
    repository.close().unwrap();
    drop((queues, repository));
    std::fs::remove_dir_all(dir.path().join("content")).unwrap();
    copy_folder(kept.path(), &dir.path().join("content"));
    for _ in 0..2 {
        let repository = open_as(dir.path(), options);
        let queues = connections(&repository);
        assert_eq!(held(&repository, &queues).0, model);
        assert_eq!(repository.state("p"), Some(Bytes::from_static(b"kept")));
        // New content takes the lost one's place: the lost commit must not come back by it.
        make(&repository, &mut random, &queues[2], 2, &mut model);
        repository.close().unwrap();
    }
}

#[test]
fn volatile_flow_files_are_gone_and_states_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let options = RepositoryOptions {
        flow_files: FlowFileKind::Volatile,
        content: ContentKind::VOLATILE,
        ..RepositoryOptions::default()
    };
    let mut model = BTreeMap::new();
    let repository = open_as(dir.path(), options);
    let queues = connections(&repository);
    make(
        &repository,
        &mut Rng::from_seed(3),
        &queues[0],
        0,
        &mut model,
    );
    repository
        .save_state("p", Bytes::from_static(b"s"))
        .unwrap();
    assert_eq!(held(&repository, &queues).0, model);
    repository.close().unwrap();
    drop((queues, repository));
    let repository = open_as(dir.path(), options);
    assert_eq!(repository.status().parked, 0);
    assert_eq!(repository.state("p"), Some(Bytes::from_static(b"s")));
}

#[test]
fn flow_files_whose_content_was_in_memory_are_dropped_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let options = RepositoryOptions {
        content: ContentKind::VOLATILE,
        ..RepositoryOptions::default()
    };
    let mut model = BTreeMap::new();
    let repository = open_as(dir.path(), options);
    let queues = connections(&repository);
    make(
        &repository,
        &mut Rng::from_seed(3),
        &queues[0],
        0,
        &mut model,
    );
    assert_eq!(held(&repository, &queues).0, model);
    repository.close().unwrap();
    drop((queues, repository));
    let repository = open_as(dir.path(), options);
    let after = held(&repository, &connections(&repository)).0;
    let without_content = model
        .iter()
        .filter(|(_, expected)| expected.content.is_empty());
    assert_eq!(after.keys().count(), without_content.count());
}

#[test]
fn content_is_written_where_it_is_to_be_kept_and_nowhere_else() {
    for (content, is_kept) in [
        (ContentKind::Database, true),
        (ContentKind::FileSystem, true),
        (ContentKind::VOLATILE, false),
        (ContentKind::None, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let options = RepositoryOptions {
            content,
            ..RepositoryOptions::default()
        };
        let repository = open_as(dir.path(), options);
        let queues = connections(&repository);
        let marker = "found again ".repeat(100);
        let one = |text: &str| {
            let claim = repository.claim(Bytes::from(text.to_owned()), 0);
            let flow_file = FlowFile {
                id: FlowFileId(repository.ids(1)),
                entry: UnixMillis(7),
                attributes: Arc::default(),
                content: Content::whole(Arc::clone(&claim)),
            };
            let put = Put {
                connection: Arc::clone(&queues[0]),
                flow_files: vec![flow_file],
                penalized: None,
            };
            (claim, put)
        };
        let (claim, put) = one(&marker);
        let commit = Commit {
            puts: vec![put],
            claims: vec![claim],
            ..Commit::default()
        };
        repository.commit(commit, Durability::Disk).unwrap();
        // And content that is written before its commit.
        let (claim, put) = one(&marker);
        repository.spill(&[claim]).unwrap();
        let commit = Commit {
            puts: vec![put],
            ..Commit::default()
        };
        repository.commit(commit, Durability::Disk).unwrap();
        repository.close().unwrap();
        let times = occurrences(dir.path(), marker.as_bytes());
        assert_eq!(times, if is_kept { 2 } else { 0 }, "{content:?}");
    }
}

/// How often the bytes are in the files of a folder.
fn occurrences(dir: &Path, marker: &[u8]) -> usize {
    let mut times = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        times += match path.is_dir() {
            true => occurrences(&path, marker),
            false => {
                let bytes = std::fs::read(path).unwrap();
                memchr::memmem::find_iter(&bytes, marker).count()
            }
        };
    }
    times
}

#[test]
fn another_kind_of_content_repository_is_refused_while_flow_files_wait() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = BTreeMap::new();
    let repository = open(dir.path());
    let queues = connections(&repository);
    make(
        &repository,
        &mut Rng::from_seed(1),
        &queues[0],
        0,
        &mut model,
    );
    repository.close().unwrap();
    drop((queues, repository));
    let options = RepositoryOptions {
        content: ContentKind::FileSystem,
        ..RepositoryOptions::default()
    };
    let refused = Repository::open(Arc::new(RealDisk), dir.path(), options);
    let message = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(message.contains("start with that one"), "{message}");
    let repository = open(dir.path());
    assert_eq!(held(&repository, &connections(&repository)).0, model);
}
