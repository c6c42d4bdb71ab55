//! The edge agent as its own small binary.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

/// Thalweg's edge agent: runs flows of processors, durable, led by a control plane or alone.
#[derive(Debug, Parser)]
#[command(name = "thalweg-agent", version)]
struct Cli {
    #[command(flatten)]
    args: agent::cli::Args,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("THALWEG_AGENT_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,rumqttc=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match agent::cli::run(cli.args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", base::report(&error));
            ExitCode::FAILURE
        }
    }
}
