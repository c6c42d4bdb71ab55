//! The edge agent as its own small binary.

use std::process::ExitCode;

use clap::Parser;

/// Thalweg's edge agent: runs flows of processors, durable, led by a control plane or alone.
#[derive(Debug, Parser)]
#[command(name = "thalweg-agent", version)]
struct Cli {
    #[command(flatten)]
    args: agent::cli::Args,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let logs = agent::Logs::start();
    match agent::cli::run(cli.args, &logs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", base::report(&error));
            ExitCode::FAILURE
        }
    }
}
