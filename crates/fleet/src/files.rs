//! Files of any size in the database, in pieces: what comes is written piece by piece, what goes out
//! is read piece by piece, so that a file's size is nobody's memory. Every node sees them all.
//!
//! A file is there when the row that names it is: pieces without one are what an upload left that
//! broke off, and go after a day.

use std::time::Duration;

use base::UnixMillis;
use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha512};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::FleetError;
use crate::limits;
use crate::manifest::hex;
use crate::tables::{Statement, Tables, Value};

/// The pieces of files.
#[derive(Debug)]
pub struct Files {
    tables: Tables,
    uploads: std::sync::Arc<Semaphore>,
    downloads: std::sync::Arc<Semaphore>,
}

/// What was stored.
#[derive(Debug)]
pub struct Stored {
    /// Bytes of the file.
    pub bytes: i64,
    /// SHA-512 of the file, lower-case hexadecimal.
    pub sha512: String,
}

/// A file under way to the database; what is not finished is as good as not there.
#[derive(Debug)]
pub struct Upload<'f> {
    files: &'f Files,
    id: String,
    now: UnixMillis,
    bytes_max: u64,
    bytes: u64,
    digest: Sha512,
    buffer: BytesMut,
    number: i64,
    _place: OwnedSemaphorePermit,
}

impl Files {
    /// The files in these tables.
    pub fn new(tables: Tables) -> Files {
        Files {
            tables,
            uploads: std::sync::Arc::new(Semaphore::new(limits::UPLOADS_MAX)),
            downloads: std::sync::Arc::new(Semaphore::new(limits::DOWNLOADS_MAX)),
        }
    }

    /// Begins a file; pieces that an earlier try left under this id go.
    ///
    /// # Errors
    /// [`FleetError::Busy`] while as many are under way as may be; [`FleetError::Store`].
    pub async fn begin(
        &self,
        id: &str,
        bytes_max: u64,
        now: UnixMillis,
    ) -> Result<Upload<'_>, FleetError> {
        let place = self.uploads.clone().try_acquire_owned();
        let place = place.map_err(|_| FleetError::Busy { what: "uploads" })?;
        self.tables.write("begin a file", vec![remove(id)]).await?;
        Ok(Upload {
            files: self,
            id: id.to_owned(),
            now,
            bytes_max,
            bytes: 0,
            digest: Sha512::new(),
            buffer: BytesMut::new(),
            number: 0,
            _place: place,
        })
    }

    /// A place among the downloads; waits a little for one.
    ///
    /// # Errors
    /// [`FleetError::Busy`] when there is none in time.
    pub async fn download_place(&self) -> Result<OwnedSemaphorePermit, FleetError> {
        let place = self.downloads.clone().acquire_owned();
        match tokio::time::timeout(DOWNLOAD_WAIT, place).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(FleetError::Busy { what: "downloads" }),
        }
    }

    /// A file's bytes from `offset` on, at most one piece; none at the end.
    pub async fn read(&self, id: &str, offset: u64) -> Result<Option<Bytes>, FleetError> {
        let (number, skip) = (offset / PIECE_BYTES as u64, offset % PIECE_BYTES as u64);
        let text = "SELECT content FROM file_chunks WHERE file_id = ? AND number = ?";
        let values = vec![id.into(), number.cast_signed().into()];
        let rows = self.tables.rows("read a file", (text, values)).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let bytes = Bytes::from(row.bytes("content")?);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        Ok((skip < bytes.len()).then(|| bytes.slice(skip..)))
    }

    /// Removes what uploads left that never came to an end.
    pub async fn clean(&self, now: UnixMillis) -> Result<u64, FleetError> {
        let text = "DELETE FROM file_chunks WHERE created_ms < ?
                    AND file_id NOT IN (SELECT id FROM resources)
                    AND file_id NOT IN (SELECT id FROM debug_bundles)";
        let before = now.0 - limits::UPLOAD_LEFTOVER_AGE.as_millis() as i64;
        let statement = (text, vec![before.into()]);
        Ok(self
            .tables
            .write("remove unfinished files", vec![statement])
            .await?)
    }
}

impl Upload<'_> {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`FleetError::TooLarge`]; [`FleetError::Store`].
    pub async fn take(&mut self, mut bytes: Bytes) -> Result<(), FleetError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(FleetError::TooLarge {
                max: self.bytes_max,
            });
        }
        self.digest.update(&bytes);
        while !bytes.is_empty() {
            let room = PIECES_BYTES - self.buffer.len();
            let part = bytes.split_to(room.min(bytes.len()));
            self.buffer.extend_from_slice(&part);
            if self.buffer.len() == PIECES_BYTES {
                self.write().await?;
            }
        }
        Ok(())
    }

    /// Writes what is left; the file is there when the row that names it is written too.
    ///
    /// # Errors
    /// [`FleetError::Store`].
    pub async fn finish(mut self) -> Result<Stored, FleetError> {
        self.write().await?;
        Ok(Stored {
            bytes: self.bytes.cast_signed(),
            sha512: hex(&self.digest.finalize()),
        })
    }

    /// Takes back what was written.
    pub async fn give_up(self) {
        // What stays for want of a database goes with the next cleaning.
        let _ = self
            .files
            .tables
            .write("give a file up", vec![remove(&self.id)])
            .await;
    }

    async fn write(&mut self) -> Result<(), FleetError> {
        let buffer = std::mem::take(&mut self.buffer);
        let mut statements = Vec::new();
        for piece in buffer.chunks(PIECE_BYTES) {
            let values = vec![
                self.id.as_str().into(),
                self.number.into(),
                self.now.0.into(),
                Value::from(piece),
            ];
            let insert = "INSERT INTO file_chunks (file_id, number, created_ms, content)
                          VALUES (?, ?, ?, ?)";
            statements.push((insert, values));
            self.number += 1;
        }
        if !statements.is_empty() {
            self.files.tables.write("write a file", statements).await?;
        }
        Ok(())
    }
}

/// The statement that removes a file's pieces.
pub fn remove(id: &str) -> Statement {
    ("DELETE FROM file_chunks WHERE file_id = ?", vec![id.into()])
}

/// Bytes of a piece: what one download holds in memory.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes written in one transaction: what one upload holds in memory.
const PIECES_BYTES: usize = 4 * PIECE_BYTES;
/// How long a download waits for a place: agents themselves give up after 5 s.
const DOWNLOAD_WAIT: Duration = Duration::from_secs(3);
