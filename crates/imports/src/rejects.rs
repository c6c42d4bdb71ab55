//! The reject file: a job's rejected records as they stood in its file, to be repaired and sent
//! again, and the job that does that.
//!
//! Their bytes were committed with the journal, so the file is there as long as the job's row.
//! Records that were too large to keep are missing; the journal names them, and the job tells how many.

use std::sync::Arc;

use axum::body::Body;
use bytes::BytesMut;

use crate::error::ImportsError;
use crate::imports::{Core, Imports};
use crate::job::{Format, Job, NewJob};
use crate::limits;
use crate::pieces::{Pieces, Told};
use crate::registry::Reject;

impl Imports {
    /// The reject file of a job, in the job's format. It breaks off where the journal cannot be read.
    pub async fn rejects(&self, id: &str) -> Result<(Job, Body), ImportsError> {
        let job = self.core.registry.job(id).await?;
        let (told, pieces) = Pieces::new();
        // Ends with the file, or when nobody reads it any more.
        tokio::spawn(write_rejects(self.core.clone(), job.clone(), told));
        Ok((job, Body::new(pieces)))
    }

    /// How many of a job's rejected records its reject file has not, as they were too large to keep.
    pub async fn rejects_left_out(&self, job: &Job) -> Result<u64, ImportsError> {
        match job.records_rejected {
            0 => Ok(0),
            _ => self.core.registry.rejects_left_out(job.number).await,
        }
    }

    /// Makes a job of another one's rejected records: of `repaired`, or of the reject file as it is.
    ///
    /// # Errors
    /// When the job has not ended, or no record of it was rejected; without `repaired` also when the
    /// reject file has none of them.
    pub async fn retry(
        &self,
        id: &str,
        new_id: String,
        repaired: Option<Body>,
        idempotency_key: Option<String>,
    ) -> Result<(Job, bool), ImportsError> {
        let (job, rejects) = self.rejects(id).await?;
        if !job.state.has_ended() || job.records_rejected == 0 {
            return Err(job.cannot_be("retried: it goes on, or none of its records was rejected"));
        }
        if repaired.is_none() && self.rejects_left_out(&job).await? >= job.records_rejected {
            return Err(job.cannot_be(
                "retried as it is: all of its rejected records are larger than 128 KiB and were not \
                 kept; send them repaired, the journal has their offsets",
            ));
        }
        let new = NewJob {
            id: new_id,
            tenant: job.tenant,
            name: job.name,
            format: job.format,
            class: job.class,
            sink: job.sink,
            topic: job.topic,
            profile: job.profile,
            retry_of: Some(job.id),
            source: None,
            is_resumable: false,
            slice_records: job.slice_records,
            idempotency_key,
        };
        self.create(new, repaired.unwrap_or(rejects)).await
    }
}

async fn write_rejects(core: Arc<Core>, job: Job, told: Told) {
    let mut file = RejectFile {
        told,
        waiting: BytesMut::new(),
    };
    if let Err(error) = try_write(&core, &job, &mut file).await {
        let reason = base::report(&error);
        tracing::debug!(
            job = job.id,
            error = reason,
            "a reject file was not read to its end"
        );
        // Whoever is gone needs no reason.
        let _ = file.told.send(Err(error)).await;
    }
}

async fn try_write(core: &Core, job: &Job, file: &mut RejectFile) -> Result<(), ImportsError> {
    let header = core.registry.header(job.number).await?;
    let header = match job.format {
        Format::MarcXml => xml_open(job, header),
        _ => header,
    };
    let (open, between, close): (&[u8], &[u8], &[u8]) = match job.format {
        // One that lost its terminator must not run into the next.
        Format::Marc => (b"", b"\x1d", b""),
        Format::MarcXml => (&header, b"\n", b"</collection>\n"),
        Format::MarcJson | Format::Jsonl | Format::Csv => (&header, b"\n", b""),
    };
    file.write(open).await?;
    let mut after = -1;
    loop {
        let rejects = core.registry.rejects(job.number, after).await?;
        let Some(last) = rejects.last() else {
            file.write(close).await?;
            return file.flush().await;
        };
        after = last.ordinal;
        for Reject { raw, .. } in &rejects {
            file.write(raw).await?;
            if !raw.ends_with(between) {
                file.write(between).await?;
            }
        }
    }
}

/// How a reject file in XML begins, whose records are encoded as those of the job's file, which began
/// with `declaration` unless it was UTF-8 or somebody said what it was.
fn xml_open(job: &Job, declaration: Vec<u8>) -> Vec<u8> {
    let mut open = match &job.profile.encoding {
        Some(name) => format!("<?xml version=\"1.0\" encoding=\"{name}\"?>").into_bytes(),
        None if declaration.is_empty() => XML_DECLARATION.to_vec(),
        None => declaration,
    };
    open.extend_from_slice(XML_OPEN);
    open
}

/// A reject file on its way.
struct RejectFile {
    told: Told,
    /// What goes out with what follows it.
    waiting: BytesMut,
}

impl RejectFile {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), ImportsError> {
        self.waiting.extend_from_slice(bytes);
        match self.waiting.len() < limits::REJECTS_PIECE_BYTES {
            true => Ok(()),
            false => self.flush().await,
        }
    }

    /// # Errors
    /// When nobody reads it any more.
    async fn flush(&mut self) -> Result<(), ImportsError> {
        let piece = self.waiting.split().freeze();
        let sent = self.told.send(Ok(piece)).await;
        let gone = |_| ImportsError::Read(std::io::ErrorKind::BrokenPipe.into());
        sent.map_err(gone)
    }
}

const XML_DECLARATION: &[u8] = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
const XML_OPEN: &[u8] = b"
<collection xmlns=\"http://www.loc.gov/MARC21/slim\" xmlns:marc=\"http://www.loc.gov/MARC21/slim\">
";
