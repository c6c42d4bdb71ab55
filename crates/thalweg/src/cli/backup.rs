//! `thalweg topics backup` and `restore`: a topic as one file.
//!
//! Over the management API of a running process, or with `--data` straight on a folder that no
//! process has open. Kafka's own protocol would not do: a producer cannot say which offsets its
//! records get.
//!
//! Invariants: the file stands under its name only when it is whole and on the disk; nothing is
//! restored from a file before all of it was read and checked.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{HumanDuration, SystemClock};
use bytes::Bytes;
use indicatif::ProgressBar;
use reqwest::Method;
use streams::backup::{BackupEnd, BackupError, BackupHead, BackupReader, TopicBackup};
use streams::{Streams, StreamsConfig, TopicName};
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use super::client::segment;
use super::{Client, Failure, out, progress};
use crate::folder::DataFolder;

/// Writes a topic into a file: settings, partitions and batches as they are stored.
#[derive(clap::Args)]
#[command(after_help = BACKUP_HELP)]
pub struct Backup {
    /// The topic's name.
    name: String,
    /// The file to write; it must not be there yet.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Also what consumer groups have committed for the topic.
    #[arg(long)]
    groups: bool,
    /// Reads from this data folder instead, while no `up` runs on it.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Makes a topic from a file that `backup` wrote, with the offsets and times that it had.
#[derive(clap::Args)]
#[command(after_help = RESTORE_HELP)]
pub struct Restore {
    /// The file.
    file: PathBuf,
    /// The topic's new name; its old one if not given. No topic may have it.
    #[arg(long = "as", value_name = "TOPIC")]
    name: Option<String>,
    /// Only reads and checks the file, and tells what is in it.
    #[arg(long)]
    dry_run: bool,
    /// Writes into this data folder instead, while no `up` runs on it.
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run")]
    data: Option<PathBuf>,
}

pub async fn back_up(client: &Client, args: &Backup) -> Result<(), Failure> {
    let mut file = NewFile::create(&args.to)?;
    let end = match &args.data {
        Some(data) => {
            let store = open(data)?;
            let name = topic_name(&args.name)?;
            let taking = store.back_up(&name, args.groups).await;
            let taken = match taking {
                Ok(taking) => from_store(taking, &mut file).await,
                Err(error) => Err(Failure::because("cannot back the topic up", &error)),
            };
            store.close().await;
            taken?
        }
        None => {
            let path = format!("/api/v1/topics/{}/backup", segment(&args.name));
            let request = client.request(Method::GET, &path);
            let request = request.query(&[("groups", args.groups)]);
            let mut response = client.raw(request).await?;
            let mut receiving = Receiving::default();
            while let Some(piece) = response
                .chunk()
                .await
                .map_err(|error| Failure::because("the backup broke off", &error))?
            {
                receiving.take(&piece, &mut file)?;
            }
            receiving.finish()?
        }
    };
    file.keep()?;
    told(client, &end, "backed up");
    Ok(())
}

pub async fn restore(client: &Client, args: &Restore) -> Result<(), Failure> {
    let (head, end) = check(&args.file)?;
    if args.dry_run {
        let about = serde_json::json!({
            "topic": head.topic,
            "taken_ms": head.taken_ms,
            "partitions": head.partitions.len(),
            "durability": head.durability,
            "config": head.config,
            "batches": end.batches,
            "records": end.records,
            "bytes": end.bytes,
            "groups": end.groups,
        });
        client.print_object(&about);
        return Ok(());
    }
    let name = args.name.as_ref().unwrap_or(&head.topic);
    match &args.data {
        Some(data) => into_folder(data, &topic_name(name)?, &args.file).await?,
        None => upload(client, name, &args.file).await?,
    }
    told(client, &end, "restored");
    Ok(())
}

fn told(client: &Client, end: &BackupEnd, what: &str) {
    if client.wants_json() {
        out::line(format_args!("{:#}", serde_json::json!(end)));
    } else {
        let BackupEnd {
            batches,
            records,
            bytes,
            groups,
        } = end;
        out::line(format_args!(
            "{what}: {records} records in {batches} batches, {bytes} bytes, {groups} groups"
        ));
    }
}

async fn upload(client: &Client, name: &str, path: &Path) -> Result<(), Failure> {
    let cannot_read = |error: std::io::Error| cannot("read", path, &error);
    let mut file = tokio::fs::File::open(path).await.map_err(cannot_read)?;
    let length = file.metadata().await.map_err(cannot_read)?.len();
    let (mut out, body) = tokio::io::duplex(PIECE_BYTES);
    let bar = progress::bar(length, BAR);
    let sending = async move {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = tokio::io::AsyncReadExt::read(&mut file, &mut piece).await?;
            if count == 0 {
                bar.finish();
                return Ok::<(), std::io::Error>(());
            }
            out.write_all(&piece[..count]).await?;
            bar.inc(count as u64);
        }
    };
    let path_of = format!("/api/v1/topics/{}/restore", segment(name));
    let request = client
        .request(Method::POST, &path_of)
        .header("Content-Type", "application/octet-stream")
        .header("Content-Length", length)
        .body(reqwest::Body::wrap_stream(ReaderStream::with_capacity(
            body,
            PIECE_BYTES,
        )));
    let (sent, answered) = tokio::join!(sending, client.send(request));
    // A refusal says more than that nobody took the rest.
    answered.map_err(|failure| in_the_way(failure, name))?;
    sent.map_err(cannot_read)
}

async fn into_folder(data: &Path, name: &TopicName, path: &Path) -> Result<(), Failure> {
    let store = open(data)?;
    let restored = into_store(&store, name, path).await;
    store.close().await;
    restored
}

async fn into_store(store: &OpenStore, name: &TopicName, path: &Path) -> Result<(), Failure> {
    let failed = |error: streams::StreamsError| {
        let failure = Failure::because("cannot restore the topic", &error);
        in_the_way(failure, name.display())
    };
    let mut restoring = None;
    let mut pieces = Pieces::open(path)?;
    while let Some(block) = pieces.next_block()? {
        match (&mut restoring, block) {
            (restoring, streams::backup::BackupBlock::Head(head)) => {
                *restoring = Some(store.restore(head, name.clone()).await.map_err(failed)?);
            }
            (Some(restoring), block) => restoring.put(block).await.map_err(failed)?,
            (None, _) => {}
        }
    }
    match restoring {
        Some(restoring) => restoring.finish().await.map(drop).map_err(failed),
        None => Err(unusable(path, &BackupError::NotABackup)),
    }
}

/// Reads all of a file, so that nothing is begun with one that is not whole.
fn check(path: &Path) -> Result<(BackupHead, BackupEnd), Failure> {
    let mut pieces = Pieces::open(path)?;
    while pieces.next_block()?.is_some() {}
    let end = pieces
        .reader
        .finish()
        .map_err(|error| unusable(path, &error))?;
    let head = pieces.reader.head().cloned();
    head.map(|head| (head, end))
        .ok_or_else(|| unusable(path, &BackupError::NotABackup))
}

/// A file's blocks, one after another.
struct Pieces {
    path: PathBuf,
    file: std::fs::File,
    piece: Vec<u8>,
    reader: BackupReader,
    bar: ProgressBar,
}

impl Pieces {
    fn open(path: &Path) -> Result<Self, Failure> {
        let file = std::fs::File::open(path).map_err(|error| cannot("read", path, &error))?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        Ok(Pieces {
            path: path.to_owned(),
            file,
            piece: vec![0; PIECE_BYTES],
            reader: BackupReader::new(),
            bar: progress::bar(length, BAR),
        })
    }

    /// The next block; none at the end of a whole file.
    fn next_block(&mut self) -> Result<Option<streams::backup::BackupBlock>, Failure> {
        loop {
            let block = self.reader.next_block();
            if let Some(block) = block.map_err(|error| unusable(&self.path, &error))? {
                return Ok(Some(block));
            }
            let count = self.file.read(&mut self.piece);
            let count = count.map_err(|error| cannot("read", &self.path, &error))?;
            if count == 0 {
                self.bar.finish_and_clear();
                let whole = self.reader.finish();
                return whole
                    .map(|_| None)
                    .map_err(|error| unusable(&self.path, &error));
            }
            self.reader.feed(&self.piece[..count]);
            self.bar.inc(count as u64);
        }
    }
}

/// A backup that comes in, checked before it is believed.
#[derive(Default)]
struct Receiving {
    reader: BackupReader,
    bar: Option<ProgressBar>,
}

impl Receiving {
    fn take(&mut self, piece: &[u8], file: &mut NewFile) -> Result<(), Failure> {
        file.write(piece)?;
        self.reader.feed(piece);
        while self.reader.next_block().map_err(broken)?.is_some() {}
        if self.bar.is_none() {
            self.bar = self
                .reader
                .head()
                .map(|head| progress::bar(head.bytes, BAR));
        }
        if let Some(bar) = &self.bar {
            bar.inc(piece.len() as u64);
        }
        Ok(())
    }

    fn finish(self) -> Result<BackupEnd, Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.reader.finish().map_err(broken)
    }
}

async fn from_store(
    mut taking: Box<dyn TopicBackup>,
    file: &mut NewFile,
) -> Result<BackupEnd, Failure> {
    let mut receiving = Receiving::default();
    loop {
        let piece: Option<Bytes> = taking
            .next()
            .await
            .map_err(|error| Failure::because("cannot back the topic up", &error))?;
        match piece {
            Some(piece) => receiving.take(&piece, file)?,
            None => return receiving.finish(),
        }
    }
}

/// A file under a passing name, which goes unless it is kept.
struct NewFile {
    path: PathBuf,
    passing: PathBuf,
    file: std::fs::File,
    is_kept: bool,
}

impl NewFile {
    fn create(path: &Path) -> Result<Self, Failure> {
        if path.exists() {
            return Err(Failure(format!(
                "{} is there already; choose another name, or move it away",
                path.display()
            )));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let passing = path.with_file_name(name);
        let file = std::fs::File::create(&passing);
        let file = file.map_err(|error| cannot("write", &passing, &error))?;
        Ok(NewFile {
            path: path.to_owned(),
            passing,
            file,
            is_kept: false,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| cannot("write", &self.passing, &error))
    }

    /// Gives it its name, once it is on the disk.
    fn keep(mut self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| cannot("write", &self.path, &error);
        self.file.sync_all().map_err(failed)?;
        // A link instead of a renaming: it never takes the place of another file.
        std::fs::hard_link(&self.passing, &self.path)
            .or_else(|_| std::fs::rename(&self.passing, &self.path))
            .map_err(failed)?;
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(failed)?;
        let _ = std::fs::remove_file(&self.passing);
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = std::fs::remove_file(&self.passing);
        }
    }
}

/// The event store of a folder that nobody else has open.
struct OpenStore {
    streams: Arc<Streams>,
    _folder: DataFolder,
}

impl std::ops::Deref for OpenStore {
    type Target = Arc<Streams>;

    fn deref(&self) -> &Arc<Streams> {
        &self.streams
    }
}

fn open(data: &Path) -> Result<OpenStore, Failure> {
    let dir = data.join("streams");
    if !dir.is_dir() {
        return Err(Failure(format!(
            "{} holds no event store; name the data folder with --data",
            data.display()
        )));
    }
    let folder =
        DataFolder::lock(data).map_err(|error| Failure::because("cannot start", &error))?;
    let opened = Streams::open(&dir, keeping_everything(), Arc::new(SystemClock));
    let (streams, _) =
        opened.map_err(|error| Failure::because("cannot open the event store", &error))?;
    Ok(OpenStore {
        streams,
        _folder: folder,
    })
}

/// What the folder's `up` is configured with is not known here: nothing may go by the defaults, which
/// may be stricter.
fn keeping_everything() -> StreamsConfig {
    let for_ever = HumanDuration(Duration::ZERO);
    let mut config = StreamsConfig {
        retention: for_ever,
        ..StreamsConfig::default()
    };
    config.default_stream.ttl = for_ever;
    config.groups.offsets_retention = for_ever;
    config
}

fn topic_name(name: &str) -> Result<TopicName, Failure> {
    name.parse()
        .map_err(|error| Failure::because("this is no topic's name", &error))
}

fn in_the_way(failure: Failure, name: &str) -> Failure {
    match failure.0.contains("exists already") {
        true => Failure(format!(
            "topic '{name}' exists already: restore under another name with --as, or delete it first"
        )),
        false => failure,
    }
}

fn unusable(path: &Path, error: &BackupError) -> Failure {
    Failure(format!("{}: {error}; nothing was restored", path.display()))
}

fn broken(error: BackupError) -> Failure {
    Failure(format!("{error}; no file was written"))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::because(&format!("cannot {what} {}", path.display()), error)
}

const BAR: &str = "{bar:40} {bytes} of {total_bytes} {bytes_per_sec}";
const PIECE_BYTES: usize = 256 << 10;

const BACKUP_HELP: &str = "\
Examples:
  thalweg topics backup orders --to orders.backup
  thalweg topics backup /path/stream:topic --to topic.backup --groups
  thalweg topics backup orders --to orders.backup --data /var/lib/thalweg
The file is the topic at one moment: batches as they are stored, compressed as they came, with their
offsets and times; transactions with their outcome, those still open as aborted.";

const RESTORE_HELP: &str = "\
Examples:
  thalweg topics restore orders.backup --dry-run
  thalweg topics restore orders.backup
  thalweg topics restore orders.backup --as orders-restored
The whole file is checked before anything is written, and the topic is seen only when it is whole.
Its settings are those that it had: records older than its retention go, as they would have.";
