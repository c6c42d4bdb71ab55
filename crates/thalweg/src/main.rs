//! The `thalweg` binary: composes the roles into one process, and is the client of their APIs.
//!
//! Holds no business rule: what a role does lives in the role's crate; here it is configured,
//! started, mounted, measured and stopped.

#![warn(clippy::print_stdout)]

mod cli;
mod config;
mod console;
mod demo;
mod endpoints;
mod folder;
mod forward;
mod http;
mod mqtt_role;
mod tables;
mod telemetry;
mod tenants;
mod up;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
