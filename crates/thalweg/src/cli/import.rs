//! `thalweg import` and `imports`: bulk loads of files, as jobs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Method;
use serde_json::Value;
use tokio_util::io::ReaderStream;

use super::client::segment;
use super::{Client, Failure};

/// The file is sent to the server, which runs the job; stopping this command leaves it running.
#[derive(clap::Args)]
pub struct Args {
    /// The file: JSON lines, or MARC 21 (ISO 2709).
    file: PathBuf,
    /// The tenant whose records these are.
    #[arg(long, default_value = "default")]
    tenant: String,
    /// jsonl or marc; told from the file's ending if not given.
    #[arg(long)]
    format: Option<String>,
    /// Topic that receives each record; by default the server's name for the tenant's imports.
    #[arg(long)]
    topic: Option<String>,
    /// JSON field that identifies a record (jsonl).
    #[arg(long, value_name = "FIELD")]
    key: Option<String>,
    /// Return when the job is queued instead of watching it to its end.
    #[arg(long)]
    no_wait: bool,
}

#[derive(Subcommand)]
pub enum JobsCommand {
    /// List jobs with their progress.
    List,
    /// Show one job.
    Show {
        /// The job's id.
        id: String,
    },
    /// Print the records that were rejected, with place and reason.
    Journal {
        /// The job's id.
        id: String,
    },
    /// Cancel a job.
    Cancel {
        /// The job's id.
        id: String,
    },
}

pub async fn run(client: Client, args: Args) -> Result<(), Failure> {
    let format = match &args.format {
        Some(format) => format.clone(),
        None => format_of(&args.file)?,
    };
    let cannot_read = |error: std::io::Error| {
        Failure::because(&format!("cannot read {}", args.file.display()), &error)
    };
    let file = tokio::fs::File::open(&args.file)
        .await
        .map_err(cannot_read)?;
    let bytes = file.metadata().await.map_err(cannot_read)?.len();
    let name = args
        .file
        .file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut query = vec![
        ("tenant", args.tenant.as_str()),
        ("format", &format),
        ("name", &name),
    ];
    if let Some(topic) = &args.topic {
        query.push(("topic", topic));
    }
    if let Some(key) = &args.key {
        query.push(("key", key));
    }
    let request = client
        .request(Method::POST, "/api/v1/imports")
        .query(&query)
        .header("Content-Type", "application/octet-stream")
        .header("Content-Length", bytes)
        .body(reqwest::Body::wrap_stream(ReaderStream::with_capacity(
            file,
            UPLOAD_CHUNK_BYTES,
        )));
    let job = client.send(request).await?;
    if args.no_wait {
        client.print_object(&job);
        return Ok(());
    }
    let Some(id) = job["id"].as_str() else {
        return Err(Failure("the server named no job".to_owned()));
    };
    let ended = watch(&client, id).await?;
    client.print_object(&ended);
    match ended["state"].as_str() {
        Some("completed" | "completed_with_rejects") => Ok(()),
        state => Err(Failure(format!(
            "the job ended as {}",
            state.unwrap_or("unknown")
        ))),
    }
}

pub async fn jobs(client: Client, command: JobsCommand) -> Result<(), Failure> {
    match command {
        JobsCommand::List => {
            client.print_list(&client.get("/api/v1/imports").await?, "jobs", &JOB_COLUMNS);
        }
        JobsCommand::Show { id } => client.print_object(&client.get(&path(&id)).await?),
        JobsCommand::Journal { id } => {
            let answer = client.get(&format!("{}/journal", path(&id))).await?;
            client.print_list(&answer, "entries", &JOURNAL_COLUMNS);
        }
        JobsCommand::Cancel { id } => {
            client
                .send(client.request(Method::DELETE, &path(&id)))
                .await?;
        }
    }
    Ok(())
}

async fn watch(client: &Client, id: &str) -> Result<Value, Failure> {
    let bar = ProgressBar::new(1).with_style(
        ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    loop {
        let job = client.get(&path(id)).await?;
        bar.set_length(job["bytes_total"].as_u64().unwrap_or(1).max(1));
        bar.set_position(job["bytes_done"].as_u64().unwrap_or(0));
        bar.set_message(format!(
            "{} records, {} rejected",
            job["records_done"], job["records_rejected"]
        ));
        if !matches!(
            job["state"].as_str(),
            Some("uploading" | "queued" | "running")
        ) {
            bar.finish();
            return Ok(job);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn format_of(file: &Path) -> Result<String, Failure> {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("jsonl" | "ndjson" | "json") => Ok("jsonl".to_owned()),
        Some("mrc" | "marc" | "utf8") => Ok("marc".to_owned()),
        _ => Err(Failure(format!(
            "the ending of {} tells no format; add --format jsonl or --format marc",
            file.display()
        ))),
    }
}

fn path(id: &str) -> String {
    format!("/api/v1/imports/{}", segment(id))
}

/// The columns of a listing of jobs.
pub(super) const JOB_COLUMNS: [(&str, &str); 7] = [
    ("JOB", "id"),
    ("TENANT", "tenant"),
    ("NAME", "name"),
    ("STATE", "state"),
    ("DONE", "records_done"),
    ("REJECTED", "records_rejected"),
    ("TOPIC", "topic"),
];

const JOURNAL_COLUMNS: [(&str, &str); 3] = [
    ("ORDINAL", "ordinal"),
    ("BYTE OFFSET", "offset"),
    ("REASON", "reason"),
];

const BAR: &str = "{bar:40.cyan} {bytes}/{total_bytes} {elapsed} {msg}";
const POLL: Duration = Duration::from_millis(200);
const UPLOAD_CHUNK_BYTES: usize = 256 << 10;
