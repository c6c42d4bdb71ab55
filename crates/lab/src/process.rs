//! The process under test: started on free ports in a folder of its own, measured, stopped.
//!
//! Every child is started through [`leash`], so that it ends when the lab does, however that ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Signal, getrlimit, kill_process, set_parent_process_death_signal, setrlimit,
};
use serde_json::Value;

use crate::experiment::LabError;
use crate::limits::{POLL, READY_MAX, STOP_MAX};

/// A child process with what it uses.
pub struct Measured {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Resident memory now.
    pub resident_bytes: u64,
    /// Most resident memory so far.
    pub resident_bytes_max: u64,
}

impl Measured {
    /// Starts `command`, its output into a log in `folder`'s [`OUTPUT`].
    pub fn start(
        name: &'static str,
        command: &mut Command,
        folder: &Path,
    ) -> Result<Self, LabError> {
        let output = folder.join(OUTPUT);
        let log = output.join(format!("{name}.log"));
        let cannot = |error| LabError::System {
            what: format!("cannot start {name}"),
            source: error,
        };
        std::fs::create_dir_all(&output).map_err(cannot)?;
        let out = File::create(&log).map_err(cannot)?;
        let err = out.try_clone().map_err(cannot)?;
        let child = leashed(command)
            .map_err(cannot)?
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(cannot)?;
        Ok(Measured { name, child, log })
    }

    /// What the process has used since it began.
    pub fn usage(&self) -> Result<Usage, LabError> {
        usage_of(self.child.id()).map_err(LabError::system(format!(
            "cannot read what {} uses",
            self.name
        )))
    }

    /// CPU time of its living threads to the nanosecond: for a process that rests, where the
    /// kernel's ticks of ten milliseconds would be too coarse.
    pub fn cpu_of_threads(&self) -> Result<Duration, LabError> {
        let folder = format!("/proc/{}/task", self.child.id());
        let read = || -> io::Result<u64> {
            let mut nanos = 0;
            for thread in std::fs::read_dir(&folder)? {
                let path = thread?.path().join("schedstat");
                // A thread may end between the listing and the reading.
                let text = std::fs::read_to_string(path).unwrap_or_default();
                let first = text.split(' ').next().unwrap_or_default();
                nanos += first.parse::<u64>().unwrap_or(0);
            }
            Ok(nanos)
        };
        read()
            .map(Duration::from_nanos)
            .map_err(LabError::system(format!(
                "cannot read what {} uses",
                self.name
            )))
    }

    /// How many files and sockets it holds open.
    pub fn handles(&self) -> Result<usize, LabError> {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .map(Iterator::count)
            .map_err(LabError::system(format!(
                "cannot list the files of {}",
                self.name
            )))
    }

    /// The end of what it wrote so far, for messages.
    pub fn log_end(&self) -> String {
        last_lines(&self.log)
    }

    /// What it wrote so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a process that ends by itself; what it wrote comes back when it ended well.
    pub fn finish(mut self, limit: Duration) -> Result<String, LabError> {
        let deadline = Instant::now() + limit;
        loop {
            let ended = self
                .child
                .try_wait()
                .map_err(LabError::system(format!("cannot watch {}", self.name)))?;
            match ended {
                Some(status) if status.success() => {
                    return std::fs::read_to_string(&self.log).map_err(LabError::system(format!(
                        "cannot read what {} wrote",
                        self.name
                    )));
                }
                Some(status) => {
                    return Err(LabError::Failed(format!(
                        "{} failed ({status}); its last lines:\n{}",
                        self.name,
                        last_lines(&self.log),
                    )));
                }
                None if Instant::now() > deadline => {
                    return Err(LabError::Failed(format!(
                        "{} did not end within {limit:?}",
                        self.name
                    )));
                }
                None => std::thread::sleep(POLL),
            }
        }
    }

    /// Fails with the end of the log if the process has ended.
    pub fn still_runs(&mut self) -> Result<(), LabError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(LabError::Failed(format!(
                "{} ended early ({status}); its last lines:\n{}",
                self.name,
                last_lines(&self.log),
            ))),
            Err(source) => Err(LabError::System {
                what: format!("cannot watch {}", self.name),
                source,
            }),
        }
    }

    /// Asks the process to stop and waits for it; kills it when it takes too long.
    pub fn stop(mut self) -> Result<(), LabError> {
        self.signal_stop();
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => std::thread::sleep(POLL),
                Err(source) => {
                    return Err(LabError::System {
                        what: format!("cannot stop {}", self.name),
                        source,
                    });
                }
            }
        }
        Err(LabError::Failed(format!(
            "{} did not stop within {STOP_MAX:?}",
            self.name
        )))
    }

    /// Kills the process at once, as kill -9 does, and waits for its end.
    pub fn kill(self) {
        // Dropping does just that.
        drop(self);
    }

    fn signal_stop(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // A process that is gone already needs no signal.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // Reached without `stop` only when a run failed: leave nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `thalweg up` with the addresses it listens on.
pub struct Up {
    /// The process.
    pub process: Measured,
    endpoints: Value,
}

impl Up {
    /// Starts `thalweg up` on free ports with its data in `folder/up`.
    pub fn start(thalweg: &Path, folder: &Path) -> Result<Up, LabError> {
        Up::start_with(thalweg, folder, &[])
    }

    /// The same with settings, such as `imports.workers=2`.
    pub fn start_with(thalweg: &Path, folder: &Path, set: &[&str]) -> Result<Up, LabError> {
        let data = folder.join("up");
        let mut command = Command::new(thalweg);
        command.arg("up").arg("--data").arg(&data);
        for role in ["streams", "rest", "schemas", "mqtt", "fleet"] {
            command
                .arg("--set")
                .arg(format!("{role}.listen=127.0.0.1:0"));
        }
        for setting in set {
            command.arg("--set").arg(setting);
        }
        // The lab's own, which the server would take for a key that it does not know.
        command.env_remove(crate::experiments::LIBRARY_VARIABLE);
        let mut process = Measured::start("up", &mut command, folder)?;
        let deadline = Instant::now() + READY_MAX;
        loop {
            process.still_runs()?;
            let text = std::fs::read(data.join("endpoints.json")).unwrap_or_default();
            if let Ok(endpoints) = serde_json::from_slice(&text) {
                return Ok(Up { process, endpoints });
            }
            if Instant::now() > deadline {
                return Err(LabError::Failed(format!(
                    "up was not ready within {READY_MAX:?}"
                )));
            }
            std::thread::sleep(POLL);
        }
    }

    /// The address of a role, such as `127.0.0.1:9092`.
    pub fn address(&self, role: &str) -> Result<&str, LabError> {
        self.endpoints[role]
            .as_str()
            .ok_or_else(|| LabError::Failed(format!("up does not run the role {role}")))
    }
}

/// Becomes `command`, to be ended by the kernel when the lab is: what a child of the lab runs first.
pub fn leash(command: &[OsString]) -> Result<std::convert::Infallible, LabError> {
    let [program, arguments @ ..] = command else {
        return Err(LabError::Usage("name a command to run".to_owned()));
    };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| LabError::system("cannot tie a process to the lab")(error.into()))?;
    let error = Command::new(program).args(arguments).exec();
    Err(LabError::system(format!(
        "cannot run {}",
        program.display()
    ))(error))
}

/// What the process `id` has used since it began.
pub fn usage_of(id: u32) -> io::Result<Usage> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{id}/{file}"));
    let (stat, status) = (read("stat")?, read("status")?);
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    let ticks: u64 = [11, 12]
        .iter()
        .filter_map(|&at: &usize| fields.get(at)?.parse::<u64>().ok())
        .sum();
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Usage {
        cpu: Duration::from_secs_f64(ticks as f64 / per_second as f64),
        resident_bytes: kib_of(&status, "VmRSS:"),
        resident_bytes_max: kib_of(&status, "VmHWM:"),
    })
}

/// Lets this process and those that it starts open as many files as the system allows.
pub fn raise_handles() -> Result<(), LabError> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
        .map_err(|error| LabError::system("cannot raise the limit of open files")(error.into()))
}

fn leashed(command: &Command) -> io::Result<Command> {
    let mut leashed = Command::new(std::env::current_exe()?);
    leashed
        .arg(LEASH)
        .arg("--")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => leashed.env(name, value),
            None => leashed.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        leashed.current_dir(folder);
    }
    Ok(leashed)
}

/// The folder of what processes wrote; a failed run keeps nothing else.
pub const OUTPUT: &str = "output";

/// The hidden command that runs another one leashed.
pub const LEASH: &str = "leash";

fn kib_of(status: &str, name: &str) -> u64 {
    let line = status
        .lines()
        .find(|line| line.starts_with(name))
        .unwrap_or_default();
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    kib * 1024
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
