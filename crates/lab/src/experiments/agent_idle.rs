//! What the edge agent costs where nothing happens: its file, its start, memory and processor.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::experiment::{Experiment, LabError, Measure, Outcome, Setting};
use crate::process::{Measured, Up};

/// `thalweg lab run agent-idle`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "agent-idle",
    about: "the agent at rest: size of its file, time to start, memory, processor",
    method: "thalweg-agent (the file beside the thalweg that runs the lab) with a flow that tails a file \
        which nobody writes to. Start is from the start of the process until it tells systemd's socket \
        READY=1, when its flow runs and its calls have begun; the shortest of twenty starts on the same \
        folder, since it says what the agent needs and not what else the machine did. Then it is left \
        alone: memory is VmRSS afterwards, processor time that of all threads by the kernel's \
        scheduler, as a share of one core; first by itself, then calling a fleet every five seconds, as \
        it does by default.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    vec![
        Measure::new(BINARY, "MB").at_most(15.0),
        Measure::new(START, "ms").at_most(100.0),
        Measure::new(MEMORY, "MiB").at_most(15.0),
        Measure::new(CPU, "% of a core").at_most(0.2),
        Measure::new(CALLING_MEMORY, "MiB").at_most(15.0),
        Measure::new(CALLING_CPU, "% of a core").at_most(0.2),
        Measure::new(THREADS, "threads").detail(),
    ]
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::default();
    let mut add = |name: &str, value: f64| outcome.values.push((name.to_owned(), value));
    let rest = if setting.quick { QUICK } else { FULL };
    let agent = Agent::new(setting)?;
    let size = std::fs::metadata(&agent.program)
        .map_err(LabError::system("cannot look at the agent's file"))?
        .len();
    add(BINARY, size as f64 / 1e6);
    let mut best = f64::INFINITY;
    for _ in 0..STARTS {
        let (process, took) = agent.start(&[])?;
        best = best.min(took.as_secs_f64() * 1e3);
        process.stop()?;
    }
    add(START, best);

    let (mut process, _) = agent.start(&[])?;
    let (memory, cpu) = at_rest(&mut process, rest)?;
    add(MEMORY, memory);
    add(CPU, cpu);
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.id()))
        .map_err(LabError::system("cannot count the agent's threads"))?;
    add(THREADS, threads.count() as f64);
    process.stop()?;

    let up = Up::start(&setting.thalweg, setting.folder())?;
    let url = format!("http://{}", up.address("fleet")?);
    let (mut process, _) = agent.start(&["--c2-url", &url, "--class", "idle"])?;
    let (memory, cpu) = at_rest(&mut process, rest)?;
    add(CALLING_MEMORY, memory);
    add(CALLING_CPU, cpu);
    process.stop()?;
    up.process.stop()?;
    Ok(outcome)
}

/// Leaves a process alone for so long: its memory in MiB, its share of a core in per cent.
fn at_rest(process: &mut Measured, rest: Duration) -> Result<(f64, f64), LabError> {
    std::thread::sleep(SETTLE);
    let (began, before) = (Instant::now(), process.cpu_of_threads()?);
    std::thread::sleep(rest);
    let used = process.cpu_of_threads()?.saturating_sub(before);
    let share = used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    process.still_runs()?;
    let memory = process.usage()?.resident_bytes as f64 / f64::from(1 << 20);
    Ok((memory, share))
}

/// How the agent is started.
struct Agent {
    program: PathBuf,
    folder: PathBuf,
    flow: PathBuf,
}

impl Agent {
    fn new(setting: &Setting) -> Result<Agent, LabError> {
        let program = setting.thalweg.with_file_name("thalweg-agent");
        let (log, flow) = (setting.path("quiet.log"), setting.path("flow.yml"));
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(LabError::system("cannot write the agent's flow"))
        };
        write(&log, "one line\n")?;
        write(&flow, &text(&log, &setting.path("out")))?;
        Ok(Agent {
            program,
            folder: setting.folder().to_owned(),
            flow,
        })
    }

    /// Starts it and waits until it says that it is ready; how long that took.
    fn start(&self, more: &[&str]) -> Result<(Measured, Duration), LabError> {
        let cannot = || LabError::system("cannot listen to the agent");
        let path = self.folder.join("notify");
        // What an earlier start left.
        let _ = std::fs::remove_file(&path);
        let ready = UnixDatagram::bind(&path).map_err(cannot())?;
        ready.set_read_timeout(Some(READY)).map_err(cannot())?;
        let mut command = Command::new(&self.program);
        command.env("NOTIFY_SOCKET", &path).args(more);
        command.arg("--flow").arg(&self.flow);
        command.arg("--data").arg(self.folder.join("agent-data"));
        let began = Instant::now();
        let process = Measured::start("thalweg-agent", &mut command, &self.folder)?;
        let mut word = [0; 64];
        let len = ready.recv(&mut word).map_err(|source| LabError::System {
            what: format!(
                "the agent was not ready within {READY:?}: {}",
                process.log()
            ),
            source,
        })?;
        let took = began.elapsed();
        if &word[..len] != b"READY=1" {
            let word = String::from_utf8_lossy(&word[..len]).into_owned();
            return Err(LabError::Failed(format!(
                "the agent said {word}, not READY=1"
            )));
        }
        Ok((process, took))
    }
}

/// A flow that waits for lines.
fn text(log: &Path, out: &Path) -> String {
    format!(
        "MiNiFi Config Version: 3
Flow Controller: {{name: idle}}
Processors:
- {{id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000a, name: tail, class: TailFile,
   scheduling strategy: TIMER_DRIVEN, scheduling period: 1 sec,
   Properties: {{File to Tail: {}}}}}
- {{id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000b, name: put, class: PutFile,
   scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [success, failure], Properties: {{Directory: {}}}}}
Connections:
- {{id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000c, name: lines,
   source id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000a, source relationship names: [success],
   destination id: 5d0d7a3e-6f0b-4c7e-8e43-00000000000b}}
",
        log.display(),
        out.display()
    )
}

const BINARY: &str = "size of the program";
const START: &str = "start, until it is ready";
const MEMORY: &str = "resident memory at rest";
const CPU: &str = "processor at rest";
const CALLING_MEMORY: &str = "resident memory, calling a fleet";
const CALLING_CPU: &str = "processor, calling a fleet every 5 s";
const THREADS: &str = "threads at rest";

const STARTS: usize = 20;
const READY: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_secs(3);
const FULL: Duration = Duration::from_secs(60);
const QUICK: Duration = Duration::from_secs(10);
