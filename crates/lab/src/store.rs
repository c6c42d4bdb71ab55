//! A server that speaks Kafka's protocol, started alone and measured: Thalweg's or Kafka's own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::experiment::LabError;
use crate::limits::{ANSWER_MAX, READY_POLL};
use crate::process::{Measured, usage_of};

/// A running server.
pub struct Store {
    /// Which of the two it is.
    name: &'static str,
    /// Its process.
    pub process: Measured,
    /// Where it speaks Kafka's protocol.
    pub address: String,
    /// The folder with all its data.
    pub data: PathBuf,
    /// From its start until it named itself as a node in an answer.
    pub ready: Duration,
}

impl Store {
    /// Starts `thalweg up` with the event store alone on `data`, which may hold topics already.
    pub fn thalweg(binary: &Path, data: &Path, folder: &Path) -> Result<Store, LabError> {
        Store::thalweg_with(binary, data, folder, "streams", &[])
    }

    /// The same with more roles, and keys of its configuration.
    pub fn thalweg_with(
        binary: &Path,
        data: &Path,
        folder: &Path,
        roles: &str,
        sets: &[String],
    ) -> Result<Store, LabError> {
        let address = free_address()?;
        let mut command = Command::new(binary);
        command
            .args(["up", "--role", roles, "--data"])
            .arg(data)
            .arg("--set")
            .arg(format!("streams.listen={address}"))
            .args(["--set", "fleet.listen=127.0.0.1:0"]);
        for set in sets {
            command.arg("--set").arg(set);
        }
        Store::start(THALWEG, &mut command, address, data, folder)
    }

    /// Starts `command`, which will listen on `address`, and waits until it answers there.
    pub fn start(
        name: &'static str,
        command: &mut Command,
        address: SocketAddr,
        data: &Path,
        folder: &Path,
    ) -> Result<Store, LabError> {
        let began = Instant::now();
        let mut process = Measured::start(name, command, folder)?;
        while !names_itself(address).unwrap_or(false) {
            process.still_runs()?;
            if began.elapsed() > ANSWER_MAX {
                return Err(LabError::Failed(format!(
                    "{name} gave no answer within {ANSWER_MAX:?}"
                )));
            }
            std::thread::sleep(READY_POLL);
        }
        Ok(Store {
            name,
            process,
            address: address.to_string(),
            data: data.to_owned(),
            ready: began.elapsed(),
        })
    }

    /// True of ours, false of Kafka.
    pub fn is_thalweg(&self) -> bool {
        self.name == THALWEG
    }

    /// Drops the server's files from the page cache, so that the next read comes from the disk.
    /// What the process keeps in its own memory or has mapped stays.
    pub fn forget_files(&self) -> Result<(), LabError> {
        forget(&self.data).map_err(LabError::system("cannot drop files from the page cache"))
    }

    /// Bytes that the process has had fetched from the disk itself.
    pub fn disk_bytes_read(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/io", self.process.id()));
        text.unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
            .unwrap_or(0)
    }

    /// The share of one core that it uses while nobody asks anything of it, in percent.
    pub fn idle_percent(&self, length: Duration) -> Result<f64, LabError> {
        let (began, before) = (Instant::now(), self.process.cpu_of_threads()?);
        std::thread::sleep(length);
        let used = self.process.cpu_of_threads()?.saturating_sub(before);
        Ok(used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0)
    }
}

/// Looks at a process ten times a second until it is dropped.
pub struct Watch {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

/// What a [`Watch`] saw, by seconds since it began.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Resident memory in MiB.
    pub memory_mib: Vec<(f64, f64)>,
    /// Use of one core since the last look, in percent.
    pub cpu_percent: Vec<(f64, f64)>,
}

impl Watch {
    /// Begins to look at the process `id`.
    pub fn begin(id: u32) -> Watch {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let thread = std::thread::spawn(move || watch(id, &told));
        Watch {
            ends,
            thread: Some(thread),
        }
    }

    /// Ends and tells what was seen.
    pub fn end(mut self) -> Seen {
        self.ends.store(true, Ordering::Relaxed);
        let thread = self.thread.take();
        thread
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// An address on this machine that nobody listens on.
pub fn free_address() -> Result<SocketAddr, LabError> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_err(LabError::system("cannot find a free port"))
}

fn watch(id: u32, ends: &AtomicBool) -> Seen {
    let began = Instant::now();
    let mut seen = Seen::default();
    let mut last = None;
    while !ends.load(Ordering::Relaxed) {
        // The process may have ended; then there is nothing more to see.
        let Ok(usage) = usage_of(id) else { break };
        let at = began.elapsed().as_secs_f64();
        let mib = usage.resident_bytes as f64 / f64::from(1 << 20);
        seen.memory_mib.push((at, mib));
        if let Some((before, cpu)) = last {
            let used = usage.cpu.saturating_sub(cpu).as_secs_f64();
            seen.cpu_percent.push((at, used / (at - before) * 100.0));
        }
        last = Some((at, usage.cpu));
        std::thread::sleep(Duration::from_millis(100));
    }
    seen
}

/// Asks for the nodes of the cluster; true when one is named. The bytes are written out since a
/// server that is not ready may answer anything or nothing.
fn names_itself(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(200))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    // Length, Metadata (3) in version 1, correlation 1, no client's name, no topics.
    stream.write_all(b"\0\0\0\x0e\0\x03\0\x01\0\0\0\x01\xff\xff\0\0\0\0")?;
    // Length, correlation, the number of nodes.
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    Ok(head[8..] != [0; 4])
}

/// Drops the files under a path from the page cache.
pub fn forget(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            forget(&entry?.path())?;
        }
        return Ok(());
    }
    let file = std::fs::File::open(path)?;
    // Only pages that are on the disk can be dropped.
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

const THALWEG: &str = "thalweg";
