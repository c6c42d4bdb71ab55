//! The edge agent under test, and where it calls in.
//!
//! Counts come from the agent's own heartbeats, which cost it a fraction of a percent at the period
//! used here; nothing is read from its files while it works.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::experiment::{LabError, Setting};
use crate::limits::{ANSWER_BYTES_MAX, BEAT, POLL, STALL_MAX};
use crate::process::{Measured, Usage};

/// How an agent is started.
pub struct Start<'a> {
    /// Name of its folder and log.
    pub name: &'static str,
    /// The flow, MiNiFi YAML.
    pub flow: &'a str,
    /// Lines of its `minifi.properties`.
    pub properties: &'a [(&'a str, &'a str)],
    /// Where its data lies.
    pub data: PathBuf,
}

/// A running agent.
pub struct Edge {
    /// Its process.
    pub process: Measured,
    /// When it was started.
    pub began: Instant,
    beats: Beats,
}

/// What one heartbeat said.
#[derive(Clone, Debug)]
pub struct Beat {
    /// When it came.
    pub at: Instant,
    /// Counters by processor id.
    pub processors: HashMap<String, Counts>,
    /// FlowFiles queued in all connections.
    pub queued: u64,
    /// Bytes queued in all connections.
    pub queued_bytes: u64,
    /// The bulletins of it.
    pub bulletins: Vec<Bulletin>,
}

/// What an agent has to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Bulletin {
    /// Whether it is of an error, and not of something that people may want to know.
    pub is_error: bool,
    /// What it says.
    pub text: String,
}

/// What a processor did since its flow started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// FlowFiles passed on or ended.
    pub flow_files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Edge {
    /// Starts an agent; what it is given is written into the run's folder.
    pub fn start(setting: &Setting, start: &Start<'_>) -> Result<Edge, LabError> {
        Edge::start_as(setting, start, |command| command)
    }

    /// The same, its command changed by `wrap`: bounds of memory go there.
    pub fn start_as(
        setting: &Setting,
        start: &Start<'_>,
        wrap: impl FnOnce(Command) -> Command,
    ) -> Result<Edge, LabError> {
        let write = |name: String, text: &str| {
            let path = setting.path(&name);
            std::fs::write(&path, text)
                .map_err(LabError::system(format!("cannot write {}", path.display())))?;
            Ok(path)
        };
        let flow = write(format!("{}.yml", start.name), start.flow)?;
        let beats = Beats::listen()?;
        let mut command = Command::new(setting.thalweg.with_file_name("thalweg-agent"));
        command.arg("--data").arg(&start.data);
        command.arg("--flow").arg(&flow);
        command.args([
            "--id",
            "lab",
            "--heartbeat",
            &format!("{}ms", BEAT.as_millis()),
        ]);
        command.args(["--c2-url", &format!("http://{}/beat", beats.address)]);
        if !start.properties.is_empty() {
            let lines = start.properties.iter();
            let text: String = lines
                .map(|(key, value)| format!("{key}={value}\n"))
                .collect();
            let path = write(format!("{}.properties", start.name), &text)?;
            command.arg("--properties").arg(path);
        }
        let began = Instant::now();
        let process = Measured::start(start.name, &mut wrap(command), setting.folder())?;
        Ok(Edge {
            process,
            began,
            beats,
        })
    }

    /// The newest heartbeat, if any came.
    pub fn beat(&self) -> Option<Beat> {
        self.beats.newest.lock().ok()?.clone()
    }

    /// What a processor counted by the newest heartbeat.
    pub fn counts(&self, processor: &str) -> Counts {
        let beat = self.beat();
        let counts = beat.and_then(|beat| beat.processors.get(processor).copied());
        counts.unwrap_or_default()
    }

    /// Waits until a heartbeat satisfies `holds` and answers it; fails when the agent ends, or when
    /// `progress` stands still for too long.
    pub fn until(
        &mut self,
        what: &str,
        progress: impl Fn(&Beat) -> u64,
        holds: impl Fn(&Beat) -> bool,
    ) -> Result<Beat, LabError> {
        let (mut last, mut moved) = (None, Instant::now());
        loop {
            self.process.still_runs()?;
            if let Some(beat) = self.beat() {
                if holds(&beat) {
                    return Ok(beat);
                }
                let now = Some(progress(&beat));
                if now != last {
                    (last, moved) = (now, Instant::now());
                }
            }
            if moved.elapsed() > STALL_MAX {
                let said = self.beat().map_or_else(String::new, |beat| {
                    format!(
                        " with {} FlowFiles ({} bytes) queued and bulletins {:?}",
                        beat.queued, beat.queued_bytes, beat.bulletins
                    )
                });
                return Err(LabError::Failed(format!(
                    "{what}: the agent stands still at {}{said}; its last lines:\n{}",
                    last.unwrap_or_default(),
                    self.process.log_end(),
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    /// What the process has used.
    pub fn usage(&self) -> Result<Usage, LabError> {
        self.process.usage()
    }
}

/// A control plane that listens and says nothing.
struct Beats {
    address: SocketAddr,
    newest: Arc<std::sync::Mutex<Option<Beat>>>,
    ends: Arc<AtomicBool>,
}

impl Beats {
    fn listen() -> Result<Beats, LabError> {
        let cannot = || LabError::system("cannot listen to an agent");
        let listener = TcpListener::bind("127.0.0.1:0").map_err(cannot())?;
        let address = listener.local_addr().map_err(cannot())?;
        let newest = Arc::default();
        let ends = Arc::new(AtomicBool::new(false));
        let beats = Beats {
            address,
            newest: Arc::clone(&newest),
            ends: Arc::clone(&ends),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let newest = Arc::clone(&newest);
                if let Ok(stream) = stream {
                    // An agent that went away ends its connection; there is nothing to tell anybody.
                    std::thread::spawn(move || serve(stream, &newest));
                }
            }
        });
        Ok(beats)
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the listener, so that it sees that.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(200));
    }
}

fn serve(stream: TcpStream, newest: &std::sync::Mutex<Option<Beat>>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let Some((name, value)) = line.split_once(':') else {
                if line.trim().is_empty() {
                    break;
                }
                continue;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        if length > ANSWER_BYTES_MAX {
            return Ok(());
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if let Some(beat) = read(&body)
            && let Ok(mut newest) = newest.lock()
        {
            *newest = Some(beat);
        }
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        )?;
    }
}

/// Reads a heartbeat; nothing where it has no flow.
fn read(body: &[u8]) -> Option<Beat> {
    let beat: Value = serde_json::from_slice(body).ok()?;
    let flow = beat.get("flowInfo")?;
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or(0);
    let processors = flow["processorStatuses"].as_array()?.iter();
    let processors = processors.filter_map(|status| {
        let counts = Counts {
            flow_files: number(status, "flowFilesOut"),
            bytes: number(status, "bytesOut"),
        };
        Some((status["id"].as_str()?.to_owned(), counts))
    });
    let queues = || {
        flow["queues"]
            .as_object()
            .into_iter()
            .flat_map(|all| all.values())
    };
    let bulletins = flow["processorBulletins"].as_array().into_iter().flatten();
    Some(Beat {
        at: Instant::now(),
        processors: processors.collect(),
        queued: queues().map(|queue| number(queue, "size")).sum(),
        queued_bytes: queues().map(|queue| number(queue, "dataSize")).sum(),
        bulletins: bulletins
            .filter_map(|bulletin| {
                Some(Bulletin {
                    is_error: bulletin["level"] == "ERROR",
                    text: bulletin["message"].as_str()?.to_owned(),
                })
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeats_counts_are_read_and_other_posts_are_not() {
        let beat = br#"{"flowInfo": {"processorStatuses": [{"id": "a", "flowFilesOut": 3,
            "bytesOut": 600}], "queues": {"q": {"size": 2, "dataSize": 10}, "r": {"size": 1}},
            "processorBulletins": [{"message": "full", "level": "ERROR"},
            {"message": "waits", "level": "WARN"}]}}"#;
        let beat = read(beat).unwrap();
        let counts = Counts {
            flow_files: 3,
            bytes: 600,
        };
        assert_eq!(beat.processors["a"], counts);
        assert_eq!((beat.queued, beat.queued_bytes), (3, 10));
        let told = beat.bulletins.iter();
        let told: Vec<_> = told.map(|it| (it.text.as_str(), it.is_error)).collect();
        assert_eq!(told, [("full", true), ("waits", false)]);
        assert!(read(b"{}").is_none() && read(b"no").is_none());
    }
}
