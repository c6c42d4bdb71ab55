//! `thalweg store`: looks into the event store of a data folder that no process has open.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use streams::{InspectedFrame, Inspection, StreamsError};

use super::{Failure, Output};
use crate::endpoints::DEFAULT_FOLDER;

#[derive(Subcommand)]
pub enum Command {
    /// Read and check every byte of the event store, and change nothing.
    Verify {
        /// The data folder.
        #[arg(
            long,
            value_name = "DIR",
            env = "THALWEG_DATA",
            default_value = DEFAULT_FOLDER
        )]
        data: PathBuf,
    },
    /// Print every frame of the event store, a line each.
    Dump {
        /// The data folder.
        #[arg(
            long,
            value_name = "DIR",
            env = "THALWEG_DATA",
            default_value = DEFAULT_FOLDER
        )]
        data: PathBuf,
        /// Only the record batches of this topic.
        #[arg(long)]
        topic: Option<String>,
    },
}

pub fn run(command: Command, output: Output) -> Result<(), Failure> {
    match command {
        Command::Verify { data } => verify(&data, output),
        Command::Dump { data, topic } => dump(&data, topic.as_deref(), output),
    }
}

fn verify(data: &Path, output: Output) -> Result<(), Failure> {
    let found = inspect(data, &mut |_| {})?;
    print_inspection(&found, output);
    if found.is_whole() {
        return Ok(());
    }
    Err(Failure(format!(
        "the store is damaged: {} batches and {} bytes; what is whole can still be read, so back \
         up its topics before anything else",
        found.damaged_batches, found.damaged_bytes
    )))
}

fn dump(data: &Path, topic: Option<&str>, output: Output) -> Result<(), Failure> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut failed = None;
    inspect(data, &mut |frame| {
        let of_topic = frame
            .batch
            .as_ref()
            .and_then(|batch| batch.topic.as_deref());
        if failed.is_some() || (topic.is_some() && topic != of_topic) {
            return;
        }
        let written = match output {
            Output::Json => serde_json::to_string(frame)
                .map_err(std::io::Error::from)
                .and_then(|line| writeln!(out, "{line}")),
            Output::Table => writeln!(out, "{}", line_of(frame)),
        };
        failed = written.err();
    })?;
    match failed.or_else(|| out.flush().err()) {
        // Whoever reads had enough, `head` for one.
        Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Some(error) => Err(Failure::because("cannot print", &error)),
        None => Ok(()),
    }
}

fn line_of(frame: &InspectedFrame) -> String {
    let mut line = format!(
        "{:>14}  {:<16} {:>9} B",
        frame.position, frame.kind, frame.bytes
    );
    if let Some(batch) = &frame.batch {
        let topic = batch.topic.as_deref().unwrap_or("(deleted)");
        let partition = batch
            .partition
            .map_or_else(|| "-".to_owned(), |n| n.to_string());
        line += &format!(
            "  {topic}/{partition}  {}..={}  {} records, codec {}, time {}",
            batch.base_offset,
            batch.last_offset,
            batch.records,
            batch.codec,
            batch.max_timestamp_ms
        );
        if let Some(damage) = &batch.damage {
            line += &format!("  DAMAGED: {damage}");
        }
    }
    line
}

fn inspect(data: &Path, show: &mut dyn FnMut(&InspectedFrame)) -> Result<Inspection, Failure> {
    let dir = data.join("streams");
    if !dir.is_dir() {
        return Err(Failure(format!(
            "{} holds no event store; name the data folder with --data",
            data.display()
        )));
    }
    let failed = |error: StreamsError| {
        Failure::because(&format!("cannot look through {}", dir.display()), &error)
    };
    streams::inspect(&dir, show).map_err(failed)
}

fn print_inspection(found: &Inspection, output: Output) {
    match output {
        Output::Json => println!("{}", serde_json::json!(found)),
        Output::Table => {
            println!(
                "{} topics, {} records in {} batches; {} frames, {} bytes in {} segments",
                found.topics,
                found.records,
                found.batches,
                found.frames,
                found.bytes,
                found.segments
            );
            if found.unfinished_bytes > 0 {
                println!(
                    "{} bytes at the end were never acknowledged and go with the next start",
                    found.unfinished_bytes
                );
            }
            if found.is_whole() {
                println!("everything is whole");
            }
        }
    }
}
