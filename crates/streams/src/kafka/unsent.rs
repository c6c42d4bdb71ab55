//! Answers on their way to a socket.
//!
//! Record batches stay in the journal until they are sent: an answer names where they lie. Large
//! ones the operating system sends from the file, without a copy through this process; small ones,
//! and all of them through TLS, are gathered in a buffer that is used again. So a client that does
//! not read holds positions, no records.
//!
//! What is removed from the journal while it waits to be sent cannot be sent any more; its
//! connection ends, and its client asks again and is told where the partition begins now.

use std::collections::VecDeque;
use std::sync::Arc;

use access::Socket;
use bytes::{Buf, Bytes};
use journal::{Journal, JournalError, Position};

use super::buffers::Buffers;
use super::limits::{
    SEND_STALL_MAX, SENT_FROM_FILE_BYTES_MIN, SENT_IN_TURN_BYTES_MAX, SKIPPED_BYTES_MAX,
};
use super::reply::{Answer, Ending};
use crate::index::Located;

/// A part of an answer.
#[derive(Debug)]
pub(super) enum Piece {
    Bytes(Bytes),
    Stored(Stored),
}

/// Bytes that lie in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) position: Position,
    pub(super) bytes: usize,
}

/// The pieces of batches: as they lie in the journal, or what is shown in their place.
pub(super) fn pieces_of<'a>(
    batches: &'a [Located],
    shown: Option<&'a [Bytes]>,
) -> impl Iterator<Item = Piece> + 'a {
    let batches = if shown.is_some() { &[] } else { batches };
    let stored = batches.iter().map(|batch| {
        Piece::Stored(Stored {
            position: batch.position,
            bytes: batch.bytes as usize,
        })
    });
    let shown = shown.into_iter().flatten().cloned().map(Piece::Bytes);
    stored.chain(shown)
}

/// Answers on their way to the socket.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// What the pieces take in memory, until all are sent.
    held_bytes: usize,
}

/// What a connection has sent in its turn.
#[derive(Default)]
struct Turn(usize);

impl Turn {
    /// Counts bytes; lets others have theirs when it has been long.
    async fn spend(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= SENT_IN_TURN_BYTES_MAX {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

impl Piece {
    /// What it takes in memory.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => size_of::<Piece>() + bytes.len(),
            Piece::Stored(_) => size_of::<Piece>(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Stored(stored) => stored.bytes,
        }
    }
}

impl Stored {
    fn end(self) -> u64 {
        self.position.0 + self.bytes as u64
    }

    fn advance(&mut self, bytes: usize) {
        self.position.0 += bytes as u64;
        self.bytes -= bytes;
    }

    fn is_sent_from_file(self) -> bool {
        self.bytes >= SENT_FROM_FILE_BYTES_MIN
    }
}

impl Unsent {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes that are to be sent.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What the answers take in memory: records stay in their files.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(super) fn push(&mut self, answer: Answer) {
        self.bytes += answer.len();
        self.held_bytes += answer.held_bytes();
        match answer {
            Answer::Whole(bytes) => self.pieces.push_back(Piece::Bytes(bytes)),
            Answer::Pieces(pieces) => self.pieces.extend(pieces),
        }
    }

    /// Sends all of it. Dropped half-way it leaves nothing that could be sent later.
    pub(super) async fn send(
        &mut self,
        socket: &mut Socket,
        journal: &Journal,
        buffers: &Arc<Buffers>,
    ) -> Result<(), Ending> {
        let mut gathering = None;
        let mut turn = Turn::default();
        while let Some(front) = self.pieces.front_mut() {
            let is_alone = self.bytes == front.len();
            match front {
                Piece::Bytes(bytes) if is_alone || bytes.len() > COPIED_BYTES_MAX => {
                    write_all(socket, bytes, !is_alone).await?;
                    turn.spend(bytes.len()).await;
                    self.bytes -= bytes.len();
                    self.pieces.pop_front();
                }
                Piece::Stored(stored) if socket.sends_files() && stored.is_sent_from_file() => {
                    let bytes = stored.bytes;
                    if send_stored(socket, journal, *stored, &mut turn).await? {
                        self.bytes -= bytes;
                        self.pieces.pop_front();
                    } else {
                        // No file to send from: a simulated disk.
                        self.copy_front(socket, journal).await?;
                    }
                }
                _ => {
                    let buffer = gathering.get_or_insert_with(|| buffers.take_gathering());
                    let gathered = self.gather(journal, socket.sends_files(), buffer)?;
                    self.bytes -= gathered;
                    write_all(socket, &buffer[..gathered], self.bytes > 0).await?;
                    turn.spend(gathered).await;
                }
            }
        }
        self.held_bytes = 0;
        if let Some(buffer) = gathering {
            buffers.give_gathering(buffer);
        }
        Ok(())
    }

    async fn copy_front(&mut self, socket: &mut Socket, journal: &Journal) -> Result<(), Ending> {
        if let Some(Piece::Stored(stored)) = self.pieces.pop_front() {
            let bytes = journal.read(stored.position, stored.bytes);
            write_all(socket, &bytes.map_err(unreadable)?, true).await?;
            self.bytes -= stored.bytes;
        }
        Ok(())
    }

    /// Moves pieces from the front into `buffer`, as much as fits and is not sent from a file;
    /// answers how many bytes.
    fn gather(
        &mut self,
        journal: &Journal,
        has_files: bool,
        buffer: &mut [u8],
    ) -> Result<usize, Ending> {
        let mut filled = 0;
        while filled < buffer.len() {
            let room = &mut buffer[filled..];
            match self.pieces.front_mut() {
                Some(Piece::Bytes(bytes)) => {
                    let taken = bytes.len().min(room.len());
                    room[..taken].copy_from_slice(&bytes[..taken]);
                    bytes.advance(taken);
                    filled += taken;
                    if bytes.is_empty() {
                        self.pieces.pop_front();
                    }
                }
                Some(Piece::Stored(stored)) if has_files && stored.is_sent_from_file() => break,
                Some(Piece::Stored(stored)) if stored.bytes > room.len() => {
                    if filled > 0 {
                        break;
                    }
                    let taken = room.len();
                    journal
                        .read_into(stored.position, room)
                        .map_err(unreadable)?;
                    stored.advance(taken);
                    filled = taken;
                }
                Some(Piece::Stored(_)) => filled += self.gather_stored(journal, has_files, room)?,
                None => break,
            }
        }
        Ok(filled)
    }

    /// Moves batches that lie near each other with one read; the first one fits.
    fn gather_stored(
        &mut self,
        journal: &Journal,
        has_files: bool,
        room: &mut [u8],
    ) -> Result<usize, Ending> {
        let mut batches = self.pieces.iter().map_while(|piece| match piece {
            Piece::Stored(stored) if has_files && stored.is_sent_from_file() => None,
            Piece::Stored(stored) => Some(*stored),
            Piece::Bytes(_) => None,
        });
        let Some(first) = batches.next() else {
            return Ok(0);
        };
        let (mut end, mut count) = (first.end(), 1);
        for next in batches {
            let is_near = (end..=end + SKIPPED_BYTES_MAX).contains(&next.position.0);
            if !is_near || next.end() - first.position.0 > room.len() as u64 {
                break;
            }
            (end, count) = (next.end(), count + 1);
        }
        // Fits into the room, so into a usize.
        let span = (end - first.position.0) as usize;
        match journal.read_into(first.position, &mut room[..span]) {
            Ok(()) => {}
            // They lie on both sides of a segment's end.
            Err(JournalError::OutOfRange { .. }) if count > 1 => {
                count = 1;
                let alone = journal.read_into(first.position, &mut room[..first.bytes]);
                alone.map_err(unreadable)?;
            }
            Err(error) => return Err(unreadable(error)),
        }
        let mut filled = 0;
        for piece in self.pieces.drain(..count) {
            if let Piece::Stored(stored) = piece {
                let at = (stored.position.0 - first.position.0) as usize;
                room.copy_within(at..at + stored.bytes, filled);
                filled += stored.bytes;
            }
        }
        Ok(filled)
    }
}

/// Sends from the file; false when there is none.
async fn send_stored(
    socket: &mut Socket,
    journal: &Journal,
    mut stored: Stored,
    turn: &mut Turn,
) -> Result<bool, Ending> {
    let stretch = journal.stretch(stored.position, stored.bytes);
    let stretch = stretch.map_err(unreadable)?;
    let Some(file) = stretch.descriptor() else {
        return Ok(false);
    };
    let mut offset = stretch.offset();
    while stored.bytes > 0 {
        let len = stored.bytes.min(SENT_IN_TURN_BYTES_MAX);
        let sending = socket.send_file(file, offset, len);
        let sent = tokio::time::timeout(SEND_STALL_MAX, sending).await;
        let sent = sent.map_err(|_| Ending::Unread)??;
        if sent == 0 {
            let cut = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(Ending::Socket(cut));
        }
        stored.advance(sent);
        offset += sent as u64;
        turn.spend(sent).await;
    }
    Ok(true)
}

async fn write_all(
    socket: &mut Socket,
    mut bytes: &[u8],
    more_follows: bool,
) -> Result<(), Ending> {
    while !bytes.is_empty() {
        let writing = socket.write(bytes, more_follows);
        let written = tokio::time::timeout(SEND_STALL_MAX, writing).await;
        let written = written.map_err(|_| Ending::Unread)??;
        if written == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into());
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

fn unreadable(error: JournalError) -> Ending {
    Ending::Unreadable(base::report(&error))
}

/// Bytes that are copied beside others rather than written by themselves.
const COPIED_BYTES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use base::Rng;
    use journal::{Disk, Durability, Frame, JournalOptions, RealDisk, SimDisk};
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::kafka::limits::GATHERED_BYTES_MAX;

    /// Frames of all sizes, two kinds of them after one another, over several segments.
    async fn stored(
        disk: Arc<dyn Disk>,
        dir: &Path,
        rng: &mut Rng,
    ) -> (Journal, Vec<(Stored, Vec<u8>)>) {
        let options = JournalOptions {
            segment_bytes: 1 << 20,
            preallocate_bytes: 1 << 20,
            ..JournalOptions::default()
        };
        let (journal, _) = Journal::open(disk, dir, options, &mut |_| Ok(())).unwrap();
        let mut all = Vec::new();
        for _ in 0..300 {
            let most = [60, 3_000, SENT_FROM_FILE_BYTES_MIN, 3 * GATHERED_BYTES_MAX];
            let below = most[usize::try_from(rng.below(4)).unwrap()] as u64;
            let mut payload = vec![0; usize::try_from(rng.below(below) + 1).unwrap()];
            rng.fill(&mut payload);
            let frame = Frame {
                kind: 1,
                version: 1,
                parts: &[&payload],
            };
            let placed = journal.append_wait(&[frame], Durability::Os).await.unwrap();
            // Others' frames stand in between.
            if rng.one_in(3) {
                continue;
            }
            let stored = Stored {
                position: placed.first.payload(),
                bytes: payload.len(),
            };
            all.push((stored, payload));
        }
        (journal, all)
    }

    async fn sent_as_stored(disk: Arc<dyn Disk>, dir: &Path, seed: u64) {
        let mut rng = Rng::from_seed(seed);
        let (journal, all) = stored(disk, dir, &mut rng).await;
        let mut unsent = Unsent::default();
        let mut expected = Vec::new();
        for (stored, payload) in all {
            let mut pieces = Vec::new();
            if rng.one_in(4) {
                let head = vec![7; usize::try_from(rng.below(6_000) + 1).unwrap()];
                expected.extend_from_slice(&head);
                pieces.push(Piece::Bytes(Bytes::from(head)));
            }
            pieces.push(Piece::Stored(stored));
            expected.extend_from_slice(&payload);
            unsent.push(Answer::Pieces(pieces));
        }
        unsent.push(Answer::Whole(Bytes::from_static(b"end")));
        expected.extend_from_slice(b"end");
        assert_eq!(unsent.bytes(), expected.len());

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (socket, _) = listener.accept().await.unwrap();
        let reading = tokio::spawn(async move {
            let mut received = Vec::new();
            reader.read_to_end(&mut received).await.unwrap();
            received
        });
        let mut socket = Socket::Plain(socket);
        let buffers = Arc::new(Buffers::default());
        unsent.send(&mut socket, &journal, &buffers).await.unwrap();
        assert!(unsent.is_empty() && unsent.bytes() == 0);
        drop(socket);
        assert!(reading.await.unwrap() == expected, "seed {seed}");
        journal.close().unwrap();
    }

    #[tokio::test]
    async fn others_have_their_turn_after_so_many_bytes_and_not_before() {
        let turns = Arc::new(AtomicUsize::new(0));
        let others = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                others.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let mut turn = Turn::default();
        for expected in 1..4 {
            for _ in 0..4 {
                assert_eq!(turns.load(Ordering::Relaxed), expected - 1);
                turn.spend(SENT_IN_TURN_BYTES_MAX / 4).await;
            }
            assert_eq!(turns.load(Ordering::Relaxed), expected);
        }
        other.abort();
    }

    #[tokio::test]
    async fn what_is_stored_arrives_as_it_lies_there() {
        for seed in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            sent_as_stored(Arc::new(RealDisk), dir.path(), seed).await;
            // Without files to send from, everything is copied.
            sent_as_stored(Arc::new(SimDisk::new(seed)), Path::new("/sim"), seed).await;
        }
    }
}
