//! The lab: reruns experiments against the built binary as a process and draws their reports.
//!
//! An experiment is a row in one table (`experiments::ALL`): a plan that can be printed, and a
//! function that runs it once. The frame around it warms up, repeats, notes the host, takes medians
//! and spreads, and writes JSON and a self-contained HTML report. Nothing here is used by others.

mod agents;
mod bounds;
mod database;
mod edge;
mod esper;
mod experiment;
mod experiments;
mod host;
mod http;
mod kafka;
mod limits;
mod load;
mod mosquitto;
mod mqtt;
mod peers;
mod process;
mod report;
mod rocks;
mod run;
mod stats;
mod store;
mod tools;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Reruns the experiments and draws their reports.
#[derive(Parser)]
#[command(
    name = "thalweg lab",
    bin_name = "thalweg lab",
    version,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments.
    List,
    /// Run one experiment and write its report.
    Run(RunArgs),
    /// Run a command that ends with the lab: what the lab starts, it starts so.
    #[command(name = process::LEASH, hide = true)]
    Leash {
        /// The command and its arguments.
        #[arg(required = true, last = true)]
        command: Vec<OsString>,
    },
}

/// How to run an experiment.
#[derive(clap::Args)]
pub struct RunArgs {
    /// The experiment's name; `thalweg lab list` prints them.
    name: String,
    /// A short form for every day: under 40 seconds, with wider spreads.
    #[arg(long)]
    quick: bool,
    /// How many measured runs; medians and spreads are over these. A single one has no warm-up.
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Only the loads whose names have this in them, of experiments that have several; may be given
    /// more than once.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// The first seed, of experiments that generate what they do: another one generates other things.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many of them to generate.
    #[arg(long, value_name = "N")]
    count: Option<usize>,
    /// Hold reading and writing at the disk under the results to so many MB/s each, as the disk of
    /// another machine or of a published figure; needs root and control groups.
    #[arg(long, value_name = "MB/s", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    disk_rate: Option<u64>,
    /// What to print at the end.
    #[arg(long, default_value = "table")]
    output: Output,
    /// Folder for the JSON result and the HTML report.
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    results: PathBuf,
    /// The thalweg binary to measure; by default the one beside this binary.
    #[arg(long, value_name = "FILE")]
    thalweg: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Aligned columns for people.
    Table,
    /// The result as JSON for scripts.
    Json,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::List => {
            for experiment in experiments::ALL {
                println!("{:<16} {}", experiment.name, experiment.about);
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(args) => run::run(&args),
        Command::Leash { command } => process::leash(&command).map(|never| match never {}),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {}", base::report(&error));
        ExitCode::FAILURE
    })
}
