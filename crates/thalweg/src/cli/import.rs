//! `thalweg import` and `imports`: bulk loads of files, as jobs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use indicatif::ProgressBar;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{download, harmless, query, segment};
use super::progress::bar;
use super::{Client, Failure, out, upload};

/// The file is sent to the server, which runs the job; stopping this command then leaves it running. A
/// file of more than 64 MiB goes in pieces: when the server or the way to it is away for half a minute,
/// or the same command with an idempotency key comes again within a day, it goes on where it stopped.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The file: JSON lines, CSV, or MARC 21 (ISO 2709, MARCXML, MARC-in-JSON). With http:// or
    /// https:// the server fetches it itself, where its operator allows that address.
    file: PathBuf,
    /// The tenant whose records these are.
    #[arg(long, default_value = "default")]
    tenant: String,
    /// jsonl, csv, marc, marcxml or marcjson; told from the file's ending if not given.
    #[arg(long)]
    format: Option<String>,
    /// Topic that receives each record; by default the server's name for the tenant's imports.
    #[arg(long)]
    topic: Option<String>,
    /// Field that identifies a record (jsonl, csv).
    #[arg(long, value_name = "FIELD")]
    key: Option<String>,
    /// How a csv or marcxml file is encoded, as windows-1252; what it declares itself or UTF-8, if not
    /// given.
    #[arg(long, value_name = "NAME")]
    encoding: Option<String>,
    /// The tenant's profile by which records are mapped and matched.
    #[arg(long)]
    profile: Option<String>,
    /// What gets the records: both, records (the table) or topic.
    #[arg(long)]
    sink: Option<String>,
    /// interactive for a few records that somebody waits for, or bulk.
    #[arg(long)]
    class: Option<String>,
    /// A word of your own: the same one again is answered with the job that it made.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Return when the job is queued instead of watching it to its end.
    #[arg(long)]
    no_wait: bool,
}

#[derive(Subcommand)]
pub enum JobsCommand {
    /// List jobs with their progress, newest first.
    List {
        /// Only those of this tenant.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show one job.
    Show {
        /// The job's id.
        id: String,
    },
    /// Print the records that were not simply taken (rejected, skipped or repaired), with place and
    /// reason.
    Journal {
        /// The job's id.
        id: String,
    },
    /// Cancel a job.
    Cancel {
        /// The job's id.
        id: String,
    },
    /// Forget a job that has ended, with its journal and reject file; its records stay.
    Forget {
        /// The job's id.
        id: String,
    },
    /// Stop a job for a while.
    Pause {
        /// The job's id.
        id: String,
    },
    /// Let a paused job go on.
    Resume {
        /// The job's id.
        id: String,
    },
    /// Watch a job to its end; fails where the job did.
    Watch {
        /// The job's id.
        id: String,
    },
    /// Write the rejected records to a file, as they stood in theirs.
    #[command(after_help = REJECTS_HELP)]
    Rejects {
        /// The job's id.
        id: String,
        /// The file that is written.
        file: PathBuf,
    },
    /// Import a job's rejected records again: as they are, or repaired.
    #[command(after_help = REJECTS_HELP)]
    Retry {
        /// The job's id.
        id: String,
        /// The repaired file.
        #[arg(long)]
        file: Option<PathBuf>,
        /// Return when the job is queued instead of watching it to its end.
        #[arg(long)]
        no_wait: bool,
    },
}

pub async fn run(client: Client, args: Args) -> Result<(), Failure> {
    let is_address = |text: &&str| text.starts_with("http://") || text.starts_with("https://");
    let url = args.file.to_str().filter(is_address);
    // What stands behind the path of an address is no part of its file's name.
    let path = url.and_then(|url| url.split(['?', '#']).next());
    let path = path.map_or(args.file.as_path(), Path::new);
    let format = match &args.format {
        Some(format) => format.clone(),
        None => format_of(path)?,
    };
    let name = path
        .file_name()
        .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let mut query = vec![
        ("tenant", args.tenant.as_str()),
        ("format", &format),
        ("name", &name),
    ];
    let options = [
        ("topic", &args.topic),
        ("key", &args.key),
        ("encoding", &args.encoding),
        ("profile", &args.profile),
        ("sink", &args.sink),
        ("class", &args.class),
        ("idempotency_key", &args.idempotency_key),
    ];
    for (name, value) in options {
        if let Some(value) = value {
            query.push((name, value));
        }
    }
    let request = client.request(Method::POST, "/api/v1/imports");
    let request = request.query(&query);
    let job = match url {
        Some(url) => client.send(request.query(&[("url", url)])).await?,
        None => {
            // What has a key is found again by the next try.
            let is_kept = args.idempotency_key.is_some();
            upload::create(&client, request, &args.file, is_kept).await?
        }
    };
    finish(&client, job, args.no_wait).await
}

/// Watches a job to its end unless that is not wanted, and prints it.
async fn finish(client: &Client, job: Value, no_wait: bool) -> Result<(), Failure> {
    if no_wait {
        client.print_object(&job);
        return Ok(());
    }
    let Some(id) = job["id"].as_str() else {
        return Err(Failure("the server named no job".to_owned()));
    };
    watch_to_end(client, id).await
}

/// Watches a job, and prints what it ended as; fails where it did.
async fn watch_to_end(client: &Client, id: &str) -> Result<(), Failure> {
    let ended = watch(client, id).await?;
    out::text_before_verdict(client.object_text(&ended))?;
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
        JobsCommand::List { tenant } => {
            let path = format!("/api/v1/imports{}", query([("tenant", tenant)]));
            let jobs = client.get_all(&path, "jobs", "after").await?;
            client.print_list(&jobs, "jobs", &JOB_COLUMNS);
        }
        JobsCommand::Show { id } => client.print_object(&client.get(&path(&id)).await?),
        JobsCommand::Journal { id } => {
            let answer = journal(&client, &id).await?;
            client.print_list(&answer, "entries", &JOURNAL_COLUMNS);
        }
        JobsCommand::Cancel { id } => {
            let request = client.request(Method::DELETE, &path(&id));
            client.print_object(&client.send(request).await?);
        }
        JobsCommand::Forget { id } => {
            let path = format!("{}?forget=true", path(&id));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
        JobsCommand::Pause { id } => steer(&client, &id, "pause").await?,
        JobsCommand::Resume { id } => steer(&client, &id, "resume").await?,
        JobsCommand::Watch { id } => watch_to_end(&client, &id).await?,
        JobsCommand::Rejects { id, file } => rejects(&client, &id, &file).await?,
        JobsCommand::Retry { id, file, no_wait } => {
            let request = client.request(Method::POST, &format!("{}/retry", path(&id)));
            let job = match &file {
                Some(file) => upload::send(&client, request, file).await?,
                None => {
                    tell_left_out(&client, &id).await?;
                    client.send(request).await?
                }
            };
            finish(&client, job, no_wait).await?;
        }
    }
    Ok(())
}

/// All pages of a job's journal as one.
async fn journal(client: &Client, id: &str) -> Result<Value, Failure> {
    let mut entries = Vec::new();
    let mut after = Value::from(0);
    loop {
        let page = format!("{}/journal?limit={JOURNAL_PAGE}&after={after}", path(id));
        let mut page = client.get(&page).await?;
        if let Some(found) = page["entries"].as_array_mut() {
            entries.append(found);
        }
        after = page["next"].take();
        if after.is_null() {
            return Ok(json!({"entries": entries, "next": null}));
        }
    }
}

async fn steer(client: &Client, id: &str, what: &str) -> Result<(), Failure> {
    let request = client.request(Method::POST, &format!("{}/{what}", path(id)));
    client.print_object(&client.send(request).await?);
    Ok(())
}

async fn rejects(client: &Client, id: &str, file: &Path) -> Result<(), Failure> {
    let bytes = download(client, &format!("{}/rejects", path(id)), file).await?;
    client.print_object(&json!({"file": file.display().to_string(), "bytes": bytes}));
    tell_left_out(client, id).await
}

/// Says how many rejected records the server has no copy of.
async fn tell_left_out(client: &Client, id: &str) -> Result<(), Failure> {
    let job = client.get(&path(id)).await?;
    let left_out = job["rejects_left_out"].as_u64().unwrap_or(0);
    if left_out > 0 {
        eprintln!(
            "note: {left_out} of {} rejected records are larger than 128 KiB and left out; \
             `thalweg imports journal {}` has their offsets",
            job["records_rejected"],
            harmless(id)
        );
    }
    Ok(())
}

async fn watch(client: &Client, id: &str) -> Result<Value, Failure> {
    let bar = bar(1, BAR);
    loop {
        let job = client.get(&path(id)).await?;
        show(&job, &bar);
        if !matches!(
            job["state"].as_str(),
            Some("uploading" | "running" | "paused")
        ) {
            bar.finish();
            return Ok(job);
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Shows how far a job is, and why it does not get on.
fn show(job: &Value, bar: &ProgressBar) {
    bar.set_length(job["bytes_total"].as_u64().unwrap_or(1).max(1));
    bar.set_position(job["bytes_done"].as_u64().unwrap_or(0));
    let (done, rejected) = (&job["records_done"], &job["records_rejected"]);
    let mut message = format!("{done} records, {rejected} rejected");
    let state = job["state"].as_str().unwrap_or_default();
    let state = Some(state).filter(|state| *state != "running");
    for told in state.into_iter().chain(job["error"].as_str()) {
        message.push_str(", ");
        message.push_str(told);
    }
    bar.set_message(harmless(&message));
}

fn format_of(file: &Path) -> Result<String, Failure> {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("jsonl" | "ndjson" | "json") => Ok("jsonl".to_owned()),
        Some("mrc" | "marc" | "utf8") => Ok("marc".to_owned()),
        Some("xml") => Ok("marcxml".to_owned()),
        Some("csv" | "tsv") => Ok("csv".to_owned()),
        _ => Err(Failure(format!(
            "the ending of {} tells no format; add --format jsonl, csv, marc, marcxml or marcjson",
            file.display()
        ))),
    }
}

fn path(id: &str) -> String {
    format!("/api/v1/imports/{}", segment(id))
}

/// The columns of a listing of jobs.
const JOB_COLUMNS: [(&str, &str); 7] = [
    ("JOB", "id"),
    ("TENANT", "tenant"),
    ("NAME", "name"),
    ("STATE", "state"),
    ("DONE", "records_done"),
    ("REJECTED", "records_rejected"),
    ("TOPIC", "topic"),
];

/// Entries of a journal that are asked for at once.
const JOURNAL_PAGE: u32 = 10_000;
const JOURNAL_COLUMNS: [(&str, &str); 4] = [
    ("ORDINAL", "ordinal"),
    ("KIND", "kind"),
    ("BYTE OFFSET", "offset"),
    ("REASON", "reason"),
];

const BAR: &str = "{bar:40.cyan} {bytes}/{total_bytes} {elapsed} {msg}";
const POLL: Duration = Duration::from_millis(200);

const REJECTS_HELP: &str = "\
Examples, of a job 5f0c:
  thalweg imports journal 5f0c
  thalweg imports rejects 5f0c bad.mrc
  thalweg imports retry 5f0c --file bad.mrc";

const HELP: &str = "\
Examples:
  thalweg import books.mrc --tenant diku
  thalweg import people.csv --tenant diku --key id
  zcat books.mrc.gz | thalweg import /dev/stdin --format marc --tenant diku
  thalweg import https://example.org/books.mrc --tenant diku --no-wait";
