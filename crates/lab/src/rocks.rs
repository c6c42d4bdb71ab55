//! RocksDB as the known agent uses it: a C program on the library that the system has, compiled when
//! an experiment needs it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::experiment::LabError;
use crate::limits::LOAD_MAX;
use crate::load::compile;
use crate::process::Measured;

/// The compiled tool.
pub struct Rocks {
    program: PathBuf,
}

/// What it prints.
#[derive(Deserialize)]
struct Done {
    flow_files: u64,
    seconds: f64,
}

impl Rocks {
    /// Compiles the tool into `folder`.
    pub fn compile(folder: &Path) -> Result<Rocks, LabError> {
        let program = compile(
            "rocks",
            SOURCE,
            &["-lrocksdb"],
            "RocksDB's header (Debian: apt-get install librocksdb-dev)",
            folder,
        )?;
        Ok(Rocks { program })
    }

    /// FlowFiles a second of so many bytes in sessions of `batch`, into `data`, which is cleared.
    pub fn run(
        &self,
        data: &Path,
        bytes: u64,
        batch: u64,
        length: Duration,
        folder: &Path,
    ) -> Result<f64, LabError> {
        let cannot = || LabError::system(format!("cannot use {}", data.display()));
        std::fs::create_dir_all(data).map_err(cannot())?;
        let mut command = Command::new(&self.program);
        command
            .arg(data)
            .args([bytes.to_string(), batch.to_string()])
            .arg(length.as_secs_f64().to_string());
        let text = Measured::start("rocks", &mut command, folder)?.finish(LOAD_MAX)?;
        std::fs::remove_dir_all(data).map_err(cannot())?;
        let done: Done = text
            .lines()
            .find_map(|line| serde_json::from_str(line).ok())
            .ok_or_else(|| LabError::Failed(format!("the RocksDB tool gave no result:\n{text}")))?;
        Ok(done.flow_files as f64 / done.seconds)
    }
}

const SOURCE: &str = include_str!("load/rocks.c");
