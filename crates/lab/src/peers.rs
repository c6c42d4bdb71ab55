//! Peers of the edge agent, built from the Go module proxy and kept in the lab's cache folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::experiment::LabError;
use crate::limits::FETCH_MAX;
use crate::process::Measured;
use crate::tools::{cache_folder, need};

/// A peer that is built when it is first needed.
pub struct Peer {
    /// As reports name it.
    pub name: &'static str,
    program: &'static str,
    build: fn(&Path, &Path) -> Command,
}

/// Telegraf, with the plugins that the lab uses alone.
pub const TELEGRAF: Peer = Peer {
    name: "Telegraf 1.37.2",
    program: "telegraf-1.37.2",
    build: |into, _| {
        let mut command = go("install");
        command.env("GOBIN", into);
        command.args(["-tags", "custom,inputs.tail,outputs.discard,parsers.value"]);
        command.arg("github.com/influxdata/telegraf/cmd/telegraf@v1.37.2");
        command
    },
};

/// The OpenTelemetry collector, with the components that the lab uses alone.
pub const COLLECTOR: Peer = Peer {
    name: "OpenTelemetry collector 0.149.0",
    program: "otelcol-0.149.0",
    build: |_, folder| {
        let mut command = go("run");
        command.arg("go.opentelemetry.io/collector/cmd/builder@v0.149.0");
        command.arg("--config").arg(folder.join(COLLECTOR_CONFIG));
        command
    },
};

impl Peer {
    /// Finds the program, or builds it; `may_build` is false where there is no time for that.
    ///
    /// Errors: it is not there and cannot be built; the text says why.
    pub fn program(&self, folder: &Path, may_build: bool) -> Result<PathBuf, LabError> {
        let cache = cache_folder()?;
        let program = cache.join(self.program);
        if program.is_file() {
            return Ok(program);
        }
        if !may_build {
            return Err(LabError::Usage(format!(
                "{} is not built yet; the full form does that",
                self.name
            )));
        }
        need("go", "version", "golang-go")?;
        eprintln!("building {} into {}", self.name, cache.display());
        // Moved when it is whole, so that a build that broke off is not taken for one.
        let partial = cache.join(format!("{}.{}", self.program, std::process::id()));
        let cannot = || LabError::system(format!("cannot keep {}", self.name));
        std::fs::create_dir_all(&partial).map_err(cannot())?;
        let parts = COLLECTOR_PARTS.replace("{into}", &partial.display().to_string());
        std::fs::write(folder.join(COLLECTOR_CONFIG), parts).map_err(cannot())?;
        let mut command = (self.build)(&partial, folder);
        let built = Measured::start("peer-build", &mut command, folder)?.finish(FETCH_MAX);
        let made = built.and_then(|_| {
            let found = ["telegraf", "otelcol"].map(|name| partial.join(name));
            let found = found.iter().find(|path| path.is_file());
            let found = found.ok_or_else(|| {
                LabError::Failed(format!("the build of {} left no program", self.name))
            })?;
            std::fs::rename(found, &program).map_err(cannot())
        });
        let _ = std::fs::remove_dir_all(&partial);
        made.map(|()| program)
    }
}

fn go(verb: &str) -> Command {
    let mut command = Command::new("go");
    command
        .arg(verb)
        .env("GOTOOLCHAIN", "auto")
        .env("GOFLAGS", "-buildvcs=false");
    command
}

const COLLECTOR_CONFIG: &str = "otelcol-parts.yml";

const COLLECTOR_PARTS: &str = "\
dist:
  module: thalweg.example/otelcol
  name: otelcol
  output_path: {into}
receivers:
  - gomod: github.com/open-telemetry/opentelemetry-collector-contrib/receiver/filelogreceiver v0.149.0
exporters:
  - gomod: go.opentelemetry.io/collector/exporter/nopexporter v0.149.0
extensions:
  - gomod: github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage v0.149.0
providers:
  - gomod: go.opentelemetry.io/collector/confmap/provider/envprovider v1.55.0
  - gomod: go.opentelemetry.io/collector/confmap/provider/fileprovider v1.55.0
";
