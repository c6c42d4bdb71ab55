//! A debug bundle: what somebody needs who shall say why an agent does what it does, without its
//! secrets. A `tar.gz` with settings, flow, manifest, status, threads and logs.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::AgentError;
use crate::host;
use crate::limits::{BUNDLE_BYTES_MAX, BUNDLE_LOG_BYTES_MAX};
use crate::local::StatusView;
use crate::manifest::Manifest;
use crate::properties::Told;
use crate::secrets;
use crate::supervisor::Supervisor;

/// Makes the bundle, in memory.
///
/// Errors: it is larger than a control plane takes.
pub(crate) fn make(supervisor: &Supervisor, told: &Told) -> Result<Vec<u8>, AgentError> {
    let manifest = Manifest::of_this_build()?;
    let written = write(supervisor, told, &manifest).map_err(|source| AgentError::System {
        action: "make a debug bundle",
        source,
    })?;
    if written.len() > BUNDLE_BYTES_MAX {
        return Err(AgentError::Refused(format!(
            "the debug bundle has {} bytes, more than {BUNDLE_BYTES_MAX}",
            written.len()
        )));
    }
    Ok(written)
}

fn write(supervisor: &Supervisor, told: &Told, manifest: &Manifest) -> io::Result<Vec<u8>> {
    let now = supervisor.clock().now().0.max(0) / 1_000;
    let mut tar = Tar {
        out: GzEncoder::new(Vec::new(), Compression::default()),
        seconds: u64::try_from(now).unwrap_or_default(),
    };
    let settings: String = told
        .shown()
        .iter()
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect();
    tar.add("config/minifi.properties", settings.as_bytes())?;
    if let Some((_, text)) = supervisor.flow_text() {
        tar.add("config/flow.json", &json(&secrets::masked_flow(&text))?)?;
    }
    tar.add("manifest.json", manifest.json.as_str().as_bytes())?;
    tar.add("status.json", &json(&StatusView::of(supervisor))?)?;
    let threads: String = host::threads()
        .into_iter()
        .map(|thread| format!("{}: {}\n", thread.name, thread.lines.join(", ")))
        .collect();
    tar.add("threads.txt", threads.as_bytes())?;
    if let Some(logs) = &told.logs {
        tar.add("logs/recent.log", &logs.recent())?;
        for path in logs.files() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            tar.add(&format!("logs/{name}"), &end_of(&path)?)?;
        }
    }
    tar.finish()
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec_pretty(value)?)
}

/// The end of a file.
fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(BUNDLE_LOG_BYTES_MAX)))?;
    let mut end = Vec::new();
    file.take(BUNDLE_LOG_BYTES_MAX).read_to_end(&mut end)?;
    Ok(end)
}

/// Writes a tar archive of small files with short names, in the format of POSIX.1-1988 (ustar).
struct Tar {
    out: GzEncoder<Vec<u8>>,
    /// Since 1970, when the files were made.
    seconds: u64,
}

impl Tar {
    fn add(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut head = [0u8; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        let cut = name.floor_char_boundary(NAME_BYTES);
        put(0, &name.as_bytes()[..cut]);
        put(100, b"0000600\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, format!("{:011o}\0", self.seconds).as_bytes());
        // The sum is made with blanks in its own place.
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(content)?;
        let rest = content.len() % BLOCK;
        if rest > 0 {
            self.out.write_all(&[0; BLOCK][rest..])?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<Vec<u8>> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.finish()
    }
}

/// What a bundle is called where it arrives, as both MiNiFis call it.
pub(crate) const NAME: &str = "debug.tar.gz";

/// Bytes of a block of a tar archive.
const BLOCK: usize = 512;

/// Bytes of a name in a tar archive's head.
const NAME_BYTES: usize = 100;
