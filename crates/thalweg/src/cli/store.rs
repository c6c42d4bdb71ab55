//! `thalweg store`: looks into the event store of a data folder that no process has open.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use streams::{InspectedBytes, InspectedFrame, Inspection, StreamsError};

use super::{Failure, Output, out};
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
    /// Print every frame of the event store, a line each: what kafka-dump-log is for.
    #[command(after_help = DUMP_HELP)]
    Dump {
        /// The data folder.
        #[arg(
            long,
            value_name = "DIR",
            env = "THALWEG_DATA",
            default_value = DEFAULT_FOLDER
        )]
        data: PathBuf,
        #[command(flatten)]
        only: Only,
        /// Also each record of the batches, unpacked.
        #[arg(long, visible_aliases = ["print-data-log", "deep-iteration"])]
        records: bool,
    },
}

/// Which frames are printed; all if nothing is given.
#[derive(Args)]
pub struct Only {
    /// Only the record batches of this topic.
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only those of this partition.
    #[arg(long, value_name = "N", requires = "topic")]
    partition: Option<u32>,
    /// Only those with this offset or a later one.
    #[arg(long, value_name = "OFFSET", requires = "topic")]
    from_offset: Option<i64>,
    /// Only those with this offset or an earlier one.
    #[arg(long, value_name = "OFFSET", requires = "topic")]
    to_offset: Option<i64>,
}

impl Only {
    fn takes(&self, frame: &InspectedFrame) -> bool {
        let Some(topic) = &self.topic else {
            return true;
        };
        let Some(batch) = &frame.batch else {
            return false;
        };
        batch.topic.as_ref() == Some(topic)
            && self
                .partition
                .is_none_or(|wanted| batch.partition == Some(wanted))
            && self
                .from_offset
                .is_none_or(|from| batch.last_offset >= from)
            && self.to_offset.is_none_or(|to| batch.base_offset <= to)
    }
}

pub fn run(command: Command, output: Output) -> Result<(), Failure> {
    match command {
        Command::Verify { data } => verify(&data, output),
        Command::Dump {
            data,
            only,
            records,
        } => dump(&data, &only, records, output),
    }
}

fn verify(data: &Path, output: Output) -> Result<(), Failure> {
    let mut places = Vec::new();
    let found = inspect(data, false, &mut |frame| {
        let is_damaged = frame
            .batch
            .as_ref()
            .is_some_and(|batch| batch.damage.is_some());
        if is_damaged && places.len() < PLACES_MAX {
            places.push(line_of(frame));
        }
    })?;
    for place in &places {
        eprintln!("{}", place.trim_start());
    }
    out::text_before_verdict(inspection_text(&found, output))?;
    if found.is_whole() {
        return Ok(());
    }
    Err(Failure(format!(
        "the store is damaged: {} batches, {} bytes and {} frames that cannot be read; what is \
         whole can still be read: save its topics with `thalweg topics backup TOPIC --to FILE --data \
         {}` before anything else",
        found.damaged_batches,
        found.damaged_bytes,
        found.unreadable_frames,
        data.display(),
    )))
}

fn dump(data: &Path, only: &Only, records: bool, output: Output) -> Result<(), Failure> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    let mut failed = None;
    let mut printed = 0_u64;
    inspect(data, records, &mut |frame| {
        if failed.is_some() || !only.takes(frame) {
            return;
        }
        printed += 1;
        let written = match output {
            Output::Json => serde_json::to_string(frame)
                .map_err(std::io::Error::from)
                .and_then(|line| writeln!(stdout, "{line}")),
            Output::Table => print_frame(&mut stdout, frame),
        };
        failed = written.err();
    })?;
    out::is_read(failed.map_or_else(|| stdout.flush(), Err))?;
    if let (0, Some(topic)) = (printed, &only.topic) {
        eprintln!("no batch of topic '{topic}' is like that");
    }
    Ok(())
}

fn print_frame(out: &mut impl Write, frame: &InspectedFrame) -> std::io::Result<()> {
    writeln!(out, "{}", line_of(frame))?;
    let records = frame.batch.iter().flat_map(|batch| &batch.record_list);
    for record in records {
        write!(out, "{:>16} time {}", record.offset, record.timestamp_ms)?;
        for (name, value) in &record.headers {
            write!(out, "  {name}: {}", readable(value.as_ref()))?;
        }
        if record.key.is_some() {
            write!(out, "  key {}", readable(record.key.as_ref()))?;
        }
        writeln!(out, "  value {}", readable(record.value.as_ref()))?;
    }
    Ok(())
}

fn readable(bytes: Option<&InspectedBytes>) -> String {
    match bytes {
        None => "null".to_owned(),
        // In quotes and escaped, so that a record stays on its line.
        Some(InspectedBytes::Text(text)) => format!("{text:?}"),
        Some(InspectedBytes::Hex { hex }) => format!("0x{hex}"),
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
            "  {topic}/{partition}  {}..={}  {} records, {} bytes, codec {}, {} time {}, crc {:08x}",
            batch.base_offset,
            batch.last_offset,
            batch.records,
            batch.bytes,
            batch.codec,
            batch.time_type,
            batch.max_timestamp_ms,
            batch.crc,
        );
        if batch.producer_id >= 0 {
            let (id, epoch) = (batch.producer_id, batch.producer_epoch);
            line += &format!(", producer {id} epoch {epoch}");
            if batch.base_sequence >= 0 {
                line += &format!(" from sequence {}", batch.base_sequence);
            }
        }
        match batch.marker {
            Some(marker) => line += &format!(", marker: {marker}"),
            None if batch.is_transactional => line += ", in a transaction",
            None => {}
        }
        if let Some(damage) = &batch.damage {
            line += &format!("  DAMAGED: {damage}");
        }
    }
    if let Some(says) = &frame.says {
        line += &format!("  {says}");
    }
    line
}

fn inspect(
    data: &Path,
    records: bool,
    show: &mut dyn FnMut(&InspectedFrame),
) -> Result<Inspection, Failure> {
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
    streams::inspect(&dir, records, show).map_err(failed)
}

fn inspection_text(found: &Inspection, output: Output) -> String {
    if output == Output::Json {
        return format!("{}\n", serde_json::json!(found));
    }
    let mut text = format!(
        "{} topics, {} records in {} batches; {} frames, {} bytes in {} segments\n",
        found.topics, found.records, found.batches, found.frames, found.bytes, found.segments
    );
    if found.unfinished_bytes > 0 {
        text += &format!(
            "{} bytes at the end were never acknowledged and go with the next start\n",
            found.unfinished_bytes
        );
    }
    if found.is_whole() {
        text += "everything is whole\n";
    }
    text
}

/// Damaged batches that are named one by one.
const PLACES_MAX: usize = 20;

const DUMP_HELP: &str = "\
Examples:
  thalweg store dump --topic orders --partition 0 --from-offset 100 --records
  thalweg store dump --topic orders --output json | jq -c 'select(.batch.marker)'
A line is the frame's position in the journal, its kind, its bytes, and what it says. A batch that
was moved is printed where it lay and where it lies.";
