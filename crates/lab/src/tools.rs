//! Programs of others that experiments need: found, or fetched once into the lab's cache folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::experiment::LabError;
use crate::limits::FETCH_MAX;
use crate::process::Measured;

/// Jars that Maven fetches.
pub struct Jars {
    /// What they are, with the version.
    pub name: &'static str,
    /// Their folder in the cache.
    pub cache: &'static str,
    /// About what there is to fetch.
    pub megabytes: u32,
    /// The Debian package with the Java that runs them.
    pub java: &'static str,
    /// The project that depends on them.
    pub pom: &'static str,
}

/// Finds the folder of jars, or fetches them with Maven.
pub fn jars(folder: &Path, wanted: &Jars) -> Result<PathBuf, LabError> {
    need("java", "-version", wanted.java)?;
    let cache = cache_folder()?;
    let jars = cache.join(wanted.cache);
    if jars.is_dir() {
        return Ok(jars);
    }
    need("mvn", "-version", "maven")?;
    eprintln!(
        "fetching {} with Maven into {} ({} MB)",
        wanted.name,
        jars.display(),
        wanted.megabytes
    );
    std::fs::create_dir_all(&cache)
        .map_err(LabError::system(format!("cannot make {}", cache.display())))?;
    let pom = folder.join("pom.xml");
    std::fs::write(&pom, wanted.pom)
        .map_err(LabError::system(format!("cannot write {}", pom.display())))?;
    // Renamed when it is whole, so that a fetch that broke off is not taken for one.
    let partial = cache.join(format!("{}.{}", wanted.cache, std::process::id()));
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
    Ok(jars)
}

/// Fails with what to install when `program` is not there.
pub fn need(program: &str, argument: &str, package: &str) -> Result<(), LabError> {
    match Command::new(program).arg(argument).output() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(LabError::Usage(format!(
                "this experiment needs `{program}`: install it (Debian: apt-get install {package})"
            )))
        }
        Err(error) => Err(LabError::system(format!("cannot run {program}"))(error)),
    }
}

/// Where the lab keeps what it fetched or compiled.
pub fn cache_folder() -> Result<PathBuf, LabError> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    named("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| named("HOME").map(|home| Path::new(&home).join(".cache")))
        .map(|cache| cache.join("thalweg-lab"))
        .ok_or_else(|| {
            LabError::Usage(
                "set HOME or XDG_CACHE_HOME: what the lab fetches is kept there".to_owned(),
            )
        })
}
