//! `thalweg lab`: hands over to the binary `thalweg-lab`, which drives this one as a process.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use super::Failure;

/// Everything after `lab` goes to thalweg-lab as it is.
#[derive(clap::Args)]
pub struct Args {
    /// What thalweg-lab is to do; `list` and `run NAME` among it.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let here = std::env::current_exe()
        .map_err(|error| Failure::because("cannot tell where this binary lies", &error))?;
    let lab = here.with_file_name("thalweg-lab");
    let error = Command::new(&lab).args(args.arguments).exec();
    Err(Failure(format!(
        "cannot run {}: {error}; build it with `cargo build --release -p lab`",
        lab.display()
    )))
}
