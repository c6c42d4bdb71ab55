//! Sessions and FlowFiles that are larger than a frame, and disks that are full of them.

use std::path::Path;
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use journal::{Durability, RealDisk, SimDisk};

use crate::AgentError;
use crate::connection::{Connection, Waiting};
use crate::content::Content;
use crate::definition::ConnectionDefinition;
use crate::engine::is_passing;
use crate::flowfile::{Attributes, FlowFile, FlowFileId};
use crate::repository::{
    Commit, ContentKind, Put, Repository, RepositoryLimits, RepositoryOptions,
};
use crate::testing::Rig;

#[test]
fn a_text_of_very_many_lines_is_split_on_a_small_machine() {
    let lines = lines();
    let limits = RepositoryLimits::for_machine(256 << 20, 64 << 20);
    let mut rig = Rig::new("SplitText", &[("Line Split Count", "1")]);
    rig.kill_with_limits(limits);
    let mut text = String::new();
    for number in 0..lines {
        text.push_str(&format!("{number}\n"));
    }
    rig.put(&[("filename", "many"), ("kind", "log")], &text);
    rig.run();
    assert_eq!(rig.counts(), [("original", 1), ("splits", lines)]);
    rig.kill();
    assert_eq!(rig.counts(), [("original", 1), ("splits", lines)]);
    let first = rig.some("splits", 40_000);
    assert!(first.len() >= 40_000);
    for (number, piece) in first.iter().enumerate() {
        assert_eq!(piece.text(), number.to_string());
        let index = (number + 1).to_string();
        assert_eq!(piece.attribute("fragment.index"), index);
        assert_eq!(piece.attribute("fragment.count"), lines.to_string());
        assert_eq!(piece.attribute("kind"), "log");
        let name = piece.attribute("filename");
        assert!(name.ends_with(&format!(".{index}")), "{name}");
    }
}

/// More than four times what one frame would hold, or as many as `AGENT_LINES` says.
fn lines() -> u64 {
    let text = std::env::var("AGENT_LINES").ok();
    text.map_or(200_000, |text| {
        text.parse().expect("AGENT_LINES is a number")
    })
}

#[test]
fn a_session_of_several_frames_is_there_whole_or_not_at_all() {
    let limits = RepositoryLimits {
        piece_bytes: 500,
        ..RepositoryLimits::default()
    };
    let mut rig = Rig::new("SplitText", &[("Line Split Count", "1")]);
    rig.kill_with_limits(limits);
    let lines: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    rig.put(&[("filename", "a")], lines.join("\n"));
    rig.kill_at("repository.pieces");
    assert_eq!((rig.waiting(), rig.counts()), (1, vec![]));
    rig.kill_at("repository.pieces");
    rig.run();
    rig.kill();
    let pieces = rig.out("splits");
    let texts: Vec<&str> = pieces.iter().map(|piece| piece.text()).collect();
    assert_eq!(texts, lines);
}

fn connection(id: &str, swap_threshold: u64) -> Arc<Connection> {
    let definition = ConnectionDefinition {
        id: id.to_owned(),
        flow_files_max: 0,
        bytes_max: 0,
        swap_threshold,
        ..ConnectionDefinition::default()
    };
    let (source, destination) = (Arc::default(), Arc::default());
    Arc::new(Connection::new(definition, false, source, destination))
}

/// FlowFiles with an attribute of so many bytes, each another one, in one commit.
fn queue(
    repository: &Repository,
    connection: &Arc<Connection>,
    count: u64,
    bytes: usize,
) -> Result<(), AgentError> {
    let first = repository.ids(count);
    let flow_file = |id: u64| FlowFile {
        id: FlowFileId(id),
        entry: UnixMillis(7),
        attributes: Arc::new(Attributes::new([
            ("number", id.to_string()),
            ("body", "x".repeat(bytes)),
        ])),
        content: Content::default(),
    };
    let put = Put {
        connection: Arc::clone(connection),
        flow_files: (first..first + count).map(flow_file).collect(),
        penalized: None,
    };
    let commit = Commit {
        puts: vec![put],
        ..Commit::default()
    };
    repository.commit(commit, Durability::Disk)
}

/// The attributes of all that waits, in their order.
fn waiting(connection: &Connection) -> Vec<(String, usize)> {
    let mut all = Vec::new();
    connection.visit(&mut |waiting| {
        for waits in waiting {
            let Waiting::FlowFile(flow_file) = waits else {
                panic!("nothing is swapped");
            };
            let get = |name: &str| flow_file.attributes.get(name).unwrap_or_default();
            all.push((get("number").to_owned(), get("body").len()));
        }
    });
    all
}

#[test]
fn queues_of_large_attributes_have_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let limits = RepositoryLimits {
        segment_bytes: 1 << 20,
        snapshot_bytes_min: 1 << 20,
        reserve_bytes: 64 << 10,
        ..RepositoryLimits::default()
    };
    let options = RepositoryOptions {
        limits,
        ..RepositoryOptions::default()
    };
    let open = || Repository::open(Arc::new(RealDisk), dir.path(), options).unwrap();
    let repository = open();
    let queued = connection("c", 0);
    repository.activate(std::slice::from_ref(&queued));
    for _ in 0..100 {
        queue(&repository, &queued, 10, 4_000).unwrap();
    }
    let before = waiting(&queued);
    for _ in 0..10 {
        repository.replace().unwrap();
    }
    // What two snapshots replace goes, or its file waits to be used again.
    let used = repository.status().bytes_on_disk;
    assert!(used < 24 << 20, "{used}");
    repository.close().unwrap();
    drop((queued, repository));
    let repository = open();
    let queued = connection("c", 0);
    repository.activate(std::slice::from_ref(&queued));
    assert_eq!(waiting(&queued), before);
    assert_eq!(before.len(), 1_000);
}

#[test]
fn a_flow_file_too_large_for_any_frame_fails_its_session_alone() {
    let dir = tempfile::tempdir().unwrap();
    let limits = RepositoryLimits {
        segment_bytes: 64 << 10,
        reserve_bytes: 4 << 10,
        ..RepositoryLimits::default()
    };
    let options = RepositoryOptions {
        limits,
        ..RepositoryOptions::default()
    };
    let repository = Repository::open(Arc::new(RealDisk), dir.path(), options).unwrap();
    let queued = connection("c", 0);
    repository.activate(std::slice::from_ref(&queued));
    for bytes in [40_000, 70_000] {
        let error = queue(&repository, &queued, 1, bytes).unwrap_err();
        assert!(is_passing(&error), "{}", base::report(&error));
    }
    // The largest that there may be.
    queue(&repository, &queued, 3, 31_000).unwrap();
    repository.replace().unwrap();
    assert_eq!(waiting(&queued).len(), 3);
}

/// Fills a small disk, and has a sink end all that waits; then there is room again.
fn fill_and_drain(content: ContentKind, swap_threshold: u64, room: u64) {
    let case = format!("{content:?}, swap {swap_threshold}, room {room}");
    let disk = SimDisk::new(7);
    let limits = RepositoryLimits {
        segment_bytes: 256 << 10,
        snapshot_bytes_min: 128 << 10,
        pinned_bytes_max: 1 << 20,
        content_pinned_bytes_max: 1 << 20,
        reserve_bytes: 64 << 10,
        ..RepositoryLimits::default()
    };
    let options = RepositoryOptions {
        content,
        limits,
        ..RepositoryOptions::default()
    };
    let open = || {
        let disk = Arc::new(disk.clone());
        Repository::open(disk, Path::new("/agent"), options).unwrap()
    };
    let repository = open();
    let queued = connection("c", swap_threshold);
    repository.activate(std::slice::from_ref(&queued));
    disk.set_capacity(Some(disk.used() + room));
    let put = |count: u64| {
        let bytes = Bytes::from(vec![b'x'; 200 * count as usize]);
        let claim = repository.claim(bytes, 0);
        let first = repository.ids(count);
        let flow_files = (first..).zip(0..count as u32).map(|(id, index)| FlowFile {
            id: FlowFileId(id),
            entry: UnixMillis(7),
            attributes: Arc::new(Attributes::new([("number", id.to_string())])),
            content: Content::view(Arc::clone(&claim), 200 * index, 200),
        });
        let put = Put {
            connection: Arc::clone(&queued),
            flow_files: flow_files.collect(),
            penalized: None,
        };
        let commit = Commit {
            puts: vec![put],
            claims: vec![claim],
            ..Commit::default()
        };
        repository.commit(commit, Durability::Disk)
    };
    // A source is refused in the end, again and again.
    let mut refused = 0;
    while refused < 20 {
        match put(50) {
            Ok(()) => refused = 0,
            Err(error) => {
                assert!(is_passing(&error), "{case}: {}", base::report(&error));
                refused += 1;
            }
        }
    }
    let filled = queued.count();
    assert!(filled > 1_000, "{case}: {filled}");
    // A sink ends one after the other, and never has to wait for somebody else.
    while queued.count() > 0 {
        if queued.is_to_swap_in() {
            let back = repository.swap_in(&queued);
            back.unwrap_or_else(|error| panic!("{case}: {}", base::report(&error)));
        }
        let taken = queued.take(1, UnixMillis(8), 3, u64::MAX).flow_files;
        let left = queued.count();
        let commit = Commit {
            removed: taken.iter().map(FlowFile::id).collect(),
            inputs: std::slice::from_ref(&queued),
            session: 1,
            ends: true,
            ..Commit::default()
        };
        let ended = repository.commit(commit, Durability::Disk);
        ended
            .unwrap_or_else(|error| panic!("{case}: {left} of {filled}: {}", base::report(&error)));
    }
    // The source goes on, with as much as before.
    let mut made = 0;
    for _ in 0..1_000 {
        if put(50).is_ok() {
            made += 50;
        }
        if made >= filled / 2 {
            break;
        }
        std::thread::yield_now();
    }
    assert!(made >= filled / 2, "{case}: {made} after {filled}");
    repository.close().unwrap();
    drop((queued, repository));
    let repository = open();
    assert_eq!(repository.status().parked, made, "{case}");
}

#[test]
fn a_full_disk_is_drained_to_nothing_and_filled_again() {
    for content in [ContentKind::FileSystem, ContentKind::Database] {
        for swap_threshold in [0, 500] {
            for room in [1 << 20, 4 << 20, 12 << 20] {
                fill_and_drain(content, swap_threshold, room);
            }
        }
    }
}
