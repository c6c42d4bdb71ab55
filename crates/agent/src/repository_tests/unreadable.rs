//! Sectors that the disk cannot read any more: what stood in them is lost and named, the rest goes
//! on.

use journal::{Disk, SimDisk};

use super::*;

const DIR: &str = "/agent";

fn options(content: ContentKind) -> RepositoryOptions {
    let limits = RepositoryLimits {
        segment_bytes: 32 << 10,
        snapshot_bytes_min: 16 << 10,
        pinned_bytes_max: 96 << 10,
        content_pinned_bytes_max: 96 << 10,
        reserve_bytes: 4 << 10,
        // All content is read from the disk.
        hot_bytes_max: 0,
        ..RepositoryLimits::default()
    };
    RepositoryOptions {
        content,
        provenance: ProvenanceKind::None,
        limits,
        ..RepositoryOptions::default()
    }
}

fn open_on(disk: &SimDisk, content: ContentKind) -> Arc<Repository> {
    Repository::open(Arc::new(disk.clone()), Path::new(DIR), options(content)).unwrap()
}

/// The segments of a repository, and how long each is.
fn segments(disk: &SimDisk) -> Vec<(std::path::PathBuf, u64)> {
    let mut all = Vec::new();
    for dir in [DIR.to_owned(), format!("{DIR}/content")] {
        for name in disk.list(Path::new(&dir)).unwrap() {
            let path = Path::new(&dir).join(name);
            let len = disk.open(&path).unwrap().len().unwrap();
            if len > 8 << 10 {
                all.push((path, len));
            }
        }
    }
    all.sort();
    all
}

/// Reads all that a repository holds: how much of it is as it should be. What is not says so.
fn sound(repository: &Repository, model: &BTreeMap<u64, Expected>, place: &str) -> usize {
    let queues = connections(repository);
    let mut sound = 0;
    for queue in &queues[..1] {
        for flow_file in queue.take(1, UnixMillis(8), 1_000, u64::MAX).flow_files {
            let views = flow_file.content.views().iter();
            let parts = views.map(|view| view.claim.read(view.offset, view.len));
            match parts.collect::<Result<Vec<_>, _>>() {
                Ok(parts) => {
                    assert_eq!(parts.concat(), model[&flow_file.id.0].content, "{place}");
                    sound += 1;
                }
                Err(error) => assert!(error.is_damage(), "{place}: {error}"),
            }
        }
    }
    sound
}

#[test]
fn a_sector_that_cannot_be_read_takes_what_stood_in_it_and_nothing_else() {
    for content in [ContentKind::Database, ContentKind::FileSystem] {
        let filled = || {
            let disk = SimDisk::new(3);
            let mut random = Rng::from_seed(3);
            let mut model = BTreeMap::new();
            let repository = open_on(&disk, content);
            let queues = connections(&repository);
            for _ in 0..20 {
                make(&repository, &mut random, &queues[0], 0, &mut model);
                repository.wait_for_disk().unwrap();
            }
            repository.close().unwrap();
            (disk, model)
        };
        let (disk, model) = filled();
        let mut least = model.len();
        for (path, len) in segments(&disk) {
            for block in 0..len / (4 << 10) {
                let (disk, _) = filled();
                let at = block * (4 << 10) + 512;
                disk.spoil(&path, at..at + 512);
                let place = format!("{content:?}: byte {at} of {}", path.display());
                let repository = open_on(&disk, content);
                let sound = sound(&repository, &model, &place);
                least = least.min(sound);
                assert!(
                    sound >= model.len() / 2,
                    "{place}: {sound} of {}",
                    model.len()
                );
                // It goes on, and so does the next start.
                repository.save_state("p", Bytes::from("on")).unwrap();
                repository.close().unwrap();
                drop(repository);
                let repository = open_on(&disk, content);
                assert_eq!(repository.state("p"), Some(Bytes::from("on")), "{place}");
            }
        }
        assert!(least < model.len(), "{content:?}: nothing stood in them");
    }
}

#[test]
fn content_that_cannot_be_read_does_not_keep_the_journal_from_being_reclaimed() {
    for content in [ContentKind::Database, ContentKind::FileSystem] {
        let disk = SimDisk::new(4);
        let mut random = Rng::from_seed(4);
        let mut model = BTreeMap::new();
        let repository = open_on(&disk, content);
        let queues = connections(&repository);
        // The oldest content waits long, and cannot be read meanwhile.
        let mut oldest = BTreeMap::new();
        make(&repository, &mut random, &queues[0], 0, &mut oldest);
        repository.wait_for_disk().unwrap();
        let (path, len) = segments(&disk).into_iter().next_back().unwrap();
        disk.spoil(&path, 1 << 10..len);
        for _ in 0..1_500 {
            make(&repository, &mut random, &queues[1], 1, &mut model);
            repository.swap_in(&queues[1]).unwrap();
            let input = &queues[1];
            let taken = input.take(1, UnixMillis(8), 1_000, u64::MAX).flow_files;
            let commit = Commit {
                removed: taken.iter().map(|flow_file| flow_file.id).collect(),
                inputs: std::slice::from_ref(input),
                session: 1,
                ends: true,
                ..Commit::default()
            };
            repository.commit(commit, Durability::Disk).unwrap();
        }
        repository.wait_for_disk().unwrap();
        let bytes = repository.status().bytes_on_disk;
        assert!(bytes < 1 << 20, "{content:?}: {bytes} bytes on the disk");
        let taken = queues[0].take(2, UnixMillis(8), 1_000, u64::MAX);
        assert_eq!(taken.flow_files.len(), oldest.len());
        let views = taken
            .flow_files
            .iter()
            .flat_map(|flow_file| flow_file.content.views());
        for view in views.filter(|view| view.len > 0) {
            let error = view.claim.read(view.offset, view.len).unwrap_err();
            assert!(error.is_damage(), "{content:?}: {error}");
        }
    }
}

#[test]
fn a_disk_that_reads_nothing_at_all_is_away_and_nothing_is_lost_by_that() {
    for content in [ContentKind::Database, ContentKind::FileSystem] {
        let disk = SimDisk::new(5);
        let mut model = BTreeMap::new();
        let repository = open_on(&disk, content);
        let queues = connections(&repository);
        let mut random = Rng::from_seed(5);
        for _ in 0..20 {
            make(&repository, &mut random, &queues[0], 0, &mut model);
        }
        repository.wait_for_disk().unwrap();
        for (path, len) in segments(&disk) {
            disk.spoil(&path, 0..len);
        }
        let mut errors = 0;
        let taken = queues[0].take(1, UnixMillis(8), 1_000, u64::MAX);
        let views = taken.flow_files.iter();
        for view in views.flat_map(|flow_file| flow_file.content.views()) {
            if let Err(error) = view.claim.read(view.offset, view.len) {
                assert!(!error.is_damage(), "{content:?}: {error}");
                errors += 1;
            }
        }
        assert!(errors > 0, "{content:?}: all was read");
        repository.close().unwrap();
        drop((taken, queues, repository));
        let opened = Repository::open(Arc::new(disk.clone()), Path::new(DIR), options(content));
        assert!(opened.is_err(), "{content:?}");
        disk.mend();
        let repository = open_on(&disk, content);
        assert_eq!(sound(&repository, &model, "mended"), model.len());
    }
}
