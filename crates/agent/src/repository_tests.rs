//! The repository against a model: random commits, snapshots, moves, reopenings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Rng, UnixMillis};
use bytes::Bytes;
use journal::{Durability, RealDisk};

use crate::connection::Connection;
use crate::definition::ConnectionDefinition;
use crate::flowfile::{Attributes, FlowFile, FlowFileId, View};
use crate::repository::{Commit, Put, Repository, RepositoryLimits};

/// What one FlowFile should be.
#[derive(Clone, Debug, PartialEq)]
struct Expected {
    connection: usize,
    attribute: String,
    content: Vec<u8>,
}

fn open(dir: &Path) -> Arc<Repository> {
    let limits = RepositoryLimits {
        segment_bytes: 32 << 10,
        snapshot_bytes_min: 16 << 10,
        pinned_bytes_max: 96 << 10,
    };
    Repository::open(Arc::new(RealDisk), dir, limits).unwrap()
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
fn held(connections: &[Arc<Connection>]) -> (BTreeMap<u64, Expected>, Vec<Vec<u64>>) {
    let mut all = BTreeMap::new();
    let mut orders = Vec::new();
    for (index, connection) in connections.iter().enumerate() {
        let mut order = Vec::new();
        connection.visit(&mut |flow_files| {
            for flow_file in flow_files {
                let content = flow_file
                    .content
                    .as_ref()
                    .map(|view| view.claim.read(view.offset, view.len).unwrap().to_vec());
                let expected = Expected {
                    connection: index,
                    attribute: flow_file.attributes.get("a").unwrap_or_default().to_owned(),
                    content: content.unwrap_or_default(),
                };
                assert_eq!(all.insert(flow_file.id.0, expected), None, "in two places");
                order.push(flow_file.id.0);
            }
        });
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
        let offset = random.below(bytes.len() as u64) as usize;
        let len = random.below((bytes.len() - offset) as u64 + 1) as usize;
        let view = View {
            claim: Arc::clone(&claim),
            offset: offset as u32,
            len: len as u32,
        };
        let content = bytes[offset..offset + len].to_vec();
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
            content: Some(view),
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
    let taken = input
        .take(UnixMillis(8), random.below(40) as usize, u64::MAX)
        .flow_files;
    if random.one_in(4) {
        input.give_back(None);
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
        ends: true,
        ..Commit::default()
    };
    repository.commit(commit, Durability::Disk).unwrap();
}

#[test]
fn queues_and_states_are_rebuilt_exactly_whatever_happened() {
    for seed in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Rng::from_seed(seed);
        let mut model = BTreeMap::new();
        let mut repository = open(dir.path());
        let mut queues = connections(&repository);
        let mut segments_max = 0;
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
                let (before, orders) = held(&queues);
                let ids = repository.ids(0);
                repository.close().unwrap();
                // The old handles go before the folder is opened again.
                queues.clear();
                drop(repository);
                repository = open(dir.path());
                queues = connections(&repository);
                let (after, orders_after) = held(&queues);
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
        }
        let live = repository.status().content_bytes;
        assert!(
            segments_max < 40 * (64 << 10) + 8 * live,
            "seed {seed}: {segments_max} bytes on disk for {live} of content"
        );
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
    assert_eq!(held(&connections(&repository)).0, model);
}
