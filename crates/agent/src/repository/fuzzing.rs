//! A repository whose frames are sound by their checksums and say anything: opened, looked through,
//! opened again.
//!
//! The input's first byte chooses the kinds; then come frames: a byte (the frame's kind, with the
//! highest bit for the content's own journal), two bytes of length, highest first, and the payload.

use std::path::Path;
use std::sync::Arc;

use journal::{Disk, Durability, Frame, Journal, SimDisk};

use super::{ContentKind, ProvenanceKind, Repository, RepositoryLimits, RepositoryOptions};
use crate::content::ContentReader;
use crate::provenance::Filter;
use crate::records;

/// Puts the frames of `input` into a repository's journals and opens it, twice: what opened once
/// must open again.
pub(crate) fn open_anything(input: &[u8]) {
    let Some((kinds, frames)) = input.split_first() else {
        return;
    };
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(0));
    let options = options(*kinds);
    if write(&disk, &options, frames).is_none() {
        return;
    }
    for attempt in 0..2 {
        match Repository::open(Arc::clone(&disk), Path::new(DIR), options) {
            Ok(repository) => look_through(&repository),
            Err(error) => {
                assert_eq!(attempt, 0, "it opened before: {}", base::report(&error));
                return;
            }
        }
    }
}

/// Reads all that waits, and all that is known of it.
fn look_through(repository: &Repository) {
    let status = repository.status();
    let mut count = 0;
    for stock in repository.book.lock().parked.values() {
        count += stock.count();
        for flow_file in stock.in_memory().take(READ_MAX) {
            let mut reader =
                ContentReader::new(flow_file.content.clone(), flow_file.id(), Arc::default());
            // Content that is not there is an answer too.
            while let Ok(piece) = reader.piece()
                && !piece.is_empty()
            {
                reader.consume(piece.len());
            }
        }
    }
    assert_eq!(count, status.parked);
    let all = Filter {
        count_max: READ_MAX,
        ..Filter::default()
    };
    let _ = repository.provenance_events(&all);
    // Writes all of it anew, as a snapshot does.
    let _ = repository.replace();
    let _ = repository.close();
}

fn write(disk: &Arc<dyn Disk>, options: &RepositoryOptions, mut frames: &[u8]) -> Option<()> {
    let dir = Path::new(DIR);
    let open = |dir: &Path| {
        let journal = super::journal_options(&options.limits);
        Journal::open(Arc::clone(disk), dir, journal, &mut |_| Ok(())).ok()
    };
    let (records, _) = open(dir)?;
    let content = match options.content {
        ContentKind::FileSystem => Some(open(&dir.join("content"))?.0),
        _ => None,
    };
    while let Some((head, rest)) = frames.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([head[1], head[2]])).min(rest.len());
        let (payload, rest) = rest.split_at(len);
        frames = rest;
        let journal = match &content {
            Some(content) if head[0] & OF_CONTENT != 0 => content,
            _ => &records,
        };
        let frame = Frame {
            kind: head[0] & !OF_CONTENT,
            version: records::VERSION,
            parts: &[payload],
        };
        journal.append_blocking(&[frame], Durability::Os).ok()?;
    }
    records.close().ok()?;
    content.map_or(Ok(()), |content| content.close()).ok()
}

fn options(kinds: u8) -> RepositoryOptions {
    let limits = RepositoryLimits {
        segment_bytes: 256 << 10,
        reserve_bytes: 4 << 10,
        ..RepositoryLimits::default()
    };
    RepositoryOptions {
        content: [ContentKind::FileSystem, ContentKind::Database][usize::from(kinds % 2)],
        provenance: [ProvenanceKind::DISK, ProvenanceKind::None][usize::from(kinds / 2 % 2)],
        limits,
        ..RepositoryOptions::default()
    }
}

/// The input that makes the repository on `disk`, for the corpus.
#[cfg(test)]
pub(crate) fn input_of(kinds: u8, disk: &SimDisk) -> Vec<u8> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = options(kinds);
    let mut input = vec![kinds];
    let mut dirs = vec![(Path::new(DIR).to_owned(), 0)];
    if options.content == ContentKind::FileSystem {
        dirs.push((Path::new(DIR).join("content"), OF_CONTENT));
    }
    for (dir, mark) in dirs {
        let journal = super::journal_options(&options.limits);
        let opened = Journal::open(Arc::clone(&disk), &dir, journal, &mut |frame| {
            let len = u16::try_from(frame.payload.len()).expect("frames of the corpus are short");
            input.push(frame.kind | mark);
            input.extend(len.to_be_bytes());
            input.extend(frame.payload);
            Ok(())
        });
        let (journal, _) = opened.expect("the corpus is sound");
        journal.close().expect("the corpus is sound");
    }
    input
}

/// The kinds of `kinds` on `disk`, opened for the corpus.
#[cfg(test)]
pub(crate) fn open_for_corpus(kinds: u8, disk: &SimDisk) -> Arc<Repository> {
    let disk = Arc::new(disk.clone());
    Repository::open(disk, Path::new(DIR), options(kinds)).expect("an empty disk opens")
}

const DIR: &str = "/agent";

/// Of a frame's first byte: it goes to the content's own journal.
const OF_CONTENT: u8 = 0x80;

/// FlowFiles of one queue whose content is read.
const READ_MAX: usize = 100;
