//! Esper from its Maven artefacts: a process that runs scripts of statements and events.
//!
//! Esper is under the GPL: it is fetched by who runs the experiment, and nothing of it is linked.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::experiment::LabError;
use crate::kafka::{cache_folder, need};
use crate::limits::{FETCH_MAX, SCRIPTS_MAX};
use crate::process::Measured;

/// The version compared with, as the reports name it.
pub const ESPER: &str = "Esper 9.0.0";

/// Esper's jars.
pub struct Esper {
    jars: PathBuf,
}

impl Esper {
    /// Finds the jars, or fetches them with Maven.
    pub fn fetch(folder: &Path) -> Result<Esper, LabError> {
        need("java", "-version", "default-jdk-headless")?;
        let cache = cache_folder()?;
        let jars = cache.join("esper-9.0.0");
        if jars.is_dir() {
            return Ok(Esper { jars });
        }
        need("mvn", "-version", "maven")?;
        eprintln!(
            "fetching {ESPER} with Maven into {} (12 MB)",
            jars.display()
        );
        std::fs::create_dir_all(&cache)
            .map_err(LabError::system(format!("cannot make {}", cache.display())))?;
        let pom = folder.join("pom.xml");
        std::fs::write(&pom, POM).map_err(LabError::system("cannot write Esper's pom"))?;
        // Renamed when it is whole, so that a fetch that broke off is not taken for one.
        let partial = cache.join(format!("esper-9.0.0.{}", std::process::id()));
        let mut out = OsString::from("-DoutputDirectory=");
        out.push(&partial);
        let mut command = Command::new("mvn");
        command
            .args(["-q", "-B", "-f"])
            .arg(&pom)
            .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(out);
        Measured::start("maven", &mut command, folder)?.finish(FETCH_MAX)?;
        std::fs::rename(&partial, &jars)
            .map_err(LabError::system(format!("cannot make {}", jars.display())))?;
        Ok(Esper { jars })
    }

    /// Runs a file of scripts; what comes of them is the answer.
    pub fn run(&self, scripts: &Path, folder: &Path) -> Result<String, LabError> {
        let source = folder.join("EsperScripts.java");
        std::fs::write(&source, SOURCE).map_err(LabError::system("cannot write Esper's runner"))?;
        let mut classes = self.jars.clone().into_os_string();
        classes.push("/*");
        let mut command = Command::new("java");
        command
            .args(["-Xmx1g", "-XX:+UseSerialGC", "-cp"])
            .arg(classes);
        command.arg(&source).arg(scripts);
        Measured::start("esper", &mut command, folder)?.finish(SCRIPTS_MAX)
    }
}

const POM: &str = include_str!("esper/pom.xml");
const SOURCE: &str = include_str!("esper/EsperScripts.java");
