//! The reject file: a job's rejected records as they stood in its file, to be repaired and sent
//! again, and the job that does that.
//!
//! Their bytes were committed with the journal, so the file is there as long as the job's row.
//! Records that were too large to keep are missing; the journal names them.

use std::sync::Arc;

use axum::body::Body;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_util::io::ReaderStream;

use crate::error::ImportsError;
use crate::imports::{Core, Imports};
use crate::job::{Format, Job, NewJob};
use crate::limits;

impl Imports {
    /// The reject file of a job, in the job's format.
    pub async fn rejects(&self, id: &str) -> Result<(Job, Body), ImportsError> {
        let job = self.core.registry.job(id).await?;
        let (write, read) = tokio::io::duplex(limits::UPLOAD_BUFFER_BYTES);
        // Ends with the file, or when nobody reads it any more.
        tokio::spawn(write_rejects(self.core.clone(), job.clone(), write));
        Ok((job, Body::from_stream(ReaderStream::new(read))))
    }

    /// Makes a job of another one's rejected records: of `repaired`, or of the reject file as it is.
    ///
    /// # Errors
    /// When the job has not ended, or no record of it was rejected.
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

async fn write_rejects(core: Arc<Core>, job: Job, mut file: DuplexStream) {
    if let Err(error) = try_write(&core, &job, &mut file).await {
        let error = base::report(&error);
        tracing::debug!(job = job.id, error, "a reject file was not read to its end");
    }
}

async fn try_write(core: &Core, job: &Job, file: &mut DuplexStream) -> Result<(), ImportsError> {
    let header = core.registry.header(job.number).await?;
    let (open, between, close): (&[u8], &[u8], &[u8]) = match job.format {
        Format::Marc => (b"", b"", b""),
        Format::MarcXml => (XML_OPEN, b"\n", b"</collection>\n"),
        Format::MarcJson | Format::Jsonl | Format::Csv => (&header, b"\n", b""),
    };
    write(file, open).await?;
    let mut after = -1;
    loop {
        let rejects = core.registry.rejects(job.number, after).await?;
        let Some(last) = rejects.last() else {
            return write(file, close).await;
        };
        after = last.ordinal;
        for raw in rejects.iter().filter_map(|reject| reject.raw.as_ref()) {
            write(file, raw).await?;
            if !raw.ends_with(between) {
                write(file, between).await?;
            }
        }
    }
}

async fn write(file: &mut DuplexStream, bytes: &[u8]) -> Result<(), ImportsError> {
    file.write_all(bytes).await.map_err(ImportsError::Read)
}

const XML_OPEN: &[u8] = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<collection xmlns=\"http://www.loc.gov/MARC21/slim\">
";
