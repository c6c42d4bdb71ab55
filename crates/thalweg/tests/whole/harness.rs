//! Starts, stops and kills the binary under test, finds the clients, and waits on conditions.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::Value;
use tempfile::TempDir;

/// A running `thalweg up`, on free ports, with its data in a folder that outlives it.
pub struct Up {
    child: Child,
    data: PathBuf,
    endpoints: Value,
}

impl Up {
    /// Starts on `data` with free ports.
    pub fn start(data: &Path) -> Up {
        Up::start_with(data, &[])
    }

    /// Starts on `data` with free ports and more arguments.
    pub fn start_with(data: &Path, arguments: &[&str]) -> Up {
        Up::launch(data, &free_ports(), arguments)
    }

    /// Starts again on the same folder and the same ports, as an operator's restart does.
    pub fn start_again(&self, arguments: &[&str]) -> Up {
        let ports: Vec<String> = PORTS
            .iter()
            .filter(|role| self.endpoints[**role].is_string())
            .flat_map(|role| {
                [
                    "--set".to_owned(),
                    format!("{role}.listen={}", self.address(role)),
                ]
            })
            .collect();
        Up::launch(&self.data, &ports, arguments)
    }

    /// Starts with free ports on a small memory file system at `data`, in a mount namespace of the
    /// process' own: [`Up::inside`] looks at it.
    pub fn start_on_small_disk(data: &Path, mebibytes: u32) -> Up {
        let command = Up::on_small_disk(data, mebibytes);
        Up::launch_by(command, data, &free_ports(), &[])
    }

    /// Starts there where the disk is too small, and tells what it says.
    pub fn fail_on_small_disk(data: &Path, mebibytes: u32) -> String {
        let mut command = Up::on_small_disk(data, mebibytes);
        command.arg("up").arg("--data").arg(data);
        let output = command.args(free_ports()).output().unwrap();
        assert!(!output.status.success(), "it started");
        text(&output.stderr)
    }

    fn on_small_disk(data: &Path, mebibytes: u32) -> Command {
        std::fs::create_dir(data).unwrap();
        let mut command = without_settings("unshare");
        // Only root may have mounts of its own without being root of users of its own as well.
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let mount = format!("mount -t tmpfs -o size={mebibytes}m tmpfs \"$0\" && exec \"$@\"");
        command.args(["--mount", "sh", "-c", &mount]);
        command.arg(data).arg(thalweg());
        command
    }

    /// Starts with free ports, so that [`Up::limit_files`] has writes fail rather than end it.
    pub fn start_to_fail(data: &Path) -> Up {
        let mut command = without_settings("sh");
        command.args(["-c", "trap '' XFSZ && exec \"$0\" \"$@\"", thalweg()]);
        Up::launch_by(command, data, &free_ports(), &[])
    }

    /// From now on every write behind this many bytes of a file fails.
    pub fn limit_files(&self, bytes: u64) {
        let limit = Rlimit {
            current: Some(bytes),
            ..getrlimit(Resource::Fsize)
        };
        prlimit(Some(process(self.pid())), Resource::Fsize, limit).unwrap();
    }

    fn launch(data: &Path, ports: &[String], arguments: &[&str]) -> Up {
        // A file that a killed process left would name ports that nobody listens on yet.
        let _ = std::fs::remove_file(data.join("endpoints.json"));
        Up::launch_by(thalweg_command(), data, ports, arguments)
    }

    fn launch_by(mut command: Command, data: &Path, ports: &[String], arguments: &[&str]) -> Up {
        command
            .arg("up")
            .arg("--data")
            .arg(data)
            .args(ports)
            .args(arguments);
        let mut child = spawn(&mut command, &data.with_extension("up.log"));
        let endpoints = eventually("up says what listens where", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!(
                    "up ended with {status}:\n{}",
                    last_lines(&data.with_extension("up.log"))
                );
            }
            let text = std::fs::read(seen_by(child.id(), &data.join("endpoints.json"))).ok()?;
            serde_json::from_slice(&text).ok()
        });
        Up {
            child,
            data: data.to_owned(),
            endpoints,
        }
    }

    /// The address of a role, such as `127.0.0.1:9092`.
    pub fn address(&self, role: &str) -> String {
        self.endpoints[role]
            .as_str()
            .unwrap_or_else(|| panic!("no role {role}"))
            .to_owned()
    }

    /// The port of a role.
    pub fn port(&self, role: &str) -> String {
        self.address(role).rsplit(':').next().unwrap().to_owned()
    }

    /// A URL on a role's port.
    pub fn url(&self, role: &str, path: &str) -> String {
        format!("http://{}{path}", self.address(role))
    }

    /// The data folder.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// A file of the data folder, on the disk that the process sees.
    pub fn inside(&self, path: &str) -> PathBuf {
        seen_by(self.pid(), &self.data.join(path))
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process as a power switch does, for the process.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks the process to stop and waits for it.
    pub fn stop(mut self) -> ExitStatus {
        signal(self.child.id(), Signal::TERM);
        eventually("up stops", || self.child.try_wait().unwrap())
    }

    /// Runs a client command against this process.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        let mut command = thalweg_command();
        command
            .arg("--server")
            .arg(self.url("management", ""))
            .args(arguments);
        command.output().unwrap()
    }

    /// Runs a client command that must succeed, and reads its JSON.
    pub fn cli_json(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["--output", "json"];
        all.extend(arguments);
        let output = self.cli(&all);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Reads JSON of the management API.
    pub fn get(&self, path: &str) -> Value {
        let answer = curl(&[&self.url("management", path)]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// How many records went into a topic, as the API counts them.
    pub fn records_in(&self, topic: &str) -> u64 {
        let topics = self.get("/api/v1/topics");
        let found = topics["topics"]
            .as_array()
            .unwrap()
            .iter()
            .find(|t| t["name"] == topic);
        found.map_or(0, |topic| topic["records_in_total"].as_u64().unwrap())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!(
                "--- last lines of up ---\n{}",
                last_lines(&self.data.with_extension("up.log"))
            );
        }
    }
}

/// A child that is killed when the test ends, whatever way it ends.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a command with its output in `log`, whose end is shown when the test fails.
    pub fn start(command: &mut Command, log: &Path) -> Running {
        Running {
            child: spawn(command, log),
            log: log.to_owned(),
        }
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end, which must be a success.
    pub fn finish(mut self, what: &str) {
        let status = eventually(what, || self.child.try_wait().unwrap());
        assert!(status.success(), "{what}: {status}");
    }

    /// Sends SIGKILL and waits.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM and waits.
    pub fn stop(mut self) {
        signal(self.child.id(), Signal::TERM);
        eventually("a child stops", || self.child.try_wait().unwrap());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let name = self.log.display();
            eprintln!("--- last lines of {name} ---\n{}", last_lines(&self.log));
        }
    }
}

/// What curl got.
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Runs curl with `arguments` and returns status and body.
pub fn curl(arguments: &[&str]) -> Answer {
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--show-error",
        "--max-time",
        "30",
        "--write-out",
        "\n%{http_code}",
    ]);
    let output = succeed(command.args(arguments));
    let (body, status) = output.rsplit_once('\n').unwrap();
    Answer {
        status: status.parse().unwrap(),
        body: body.to_owned(),
    }
}

/// Posts a body with curl.
pub fn post(url: &str, content_type: &str, body: &str) -> Answer {
    let header = format!("Content-Type: {content_type}");
    curl(&[
        "--request",
        "POST",
        "--header",
        &header,
        "--data-binary",
        body,
        url,
    ])
}

/// Runs a command that must succeed; returns what it printed.
pub fn succeed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} ended with {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// All files in a folder and in those within it.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files
}

/// What has kcat print a topic from its beginning to its present end.
pub fn whole_topic(topic: &str) -> [&str; 7] {
    ["-C", "-t", topic, "-o", "beginning", "-e", "-q"]
}

/// Looks at a condition until it holds; fails after a generous deadline.
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A number that a longer run sets by hand in the environment.
pub fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// A fresh folder that goes when the test ends.
pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The binary under test.
pub fn thalweg() -> &'static str {
    env!("CARGO_BIN_EXE_thalweg")
}

/// Adds a user to a folder that nothing runs on; the password goes in by standard input.
pub fn add_offline(data: &Path, name: &str, password: &str) {
    let mut command = thalweg_command();
    command.args(["users", "add", name, "--data"]).arg(data);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{password}").unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// A command of the binary under test, without the settings of whoever runs the tests.
pub fn thalweg_command() -> Command {
    without_settings(thalweg())
}

fn without_settings(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("THALWEG_")) {
        command.env_remove(name);
    }
    command
}

/// A binary of the workspace beside the one under test.
pub fn sibling(name: &str) -> PathBuf {
    let path = Path::new(thalweg()).with_file_name(name);
    assert!(path.is_file(), "{} is missing; run ./test", path.display());
    path
}

/// The Python that has the clients.
pub fn python(script: &str) -> Command {
    let mut command = Command::new(test_env().join("venv/bin/python"));
    command.arg(interop(script));
    command
}

/// Our program for the Kafka clients in Go.
pub fn go_client() -> Command {
    Command::new(test_env().join("go-clients"))
}

/// A program of ours for one of Kafka's client libraries, with this much heap.
pub fn java(heap: &str, libraries: &str, program: &str) -> Command {
    let classpath = format!("{}/*", test_env().join(libraries).display());
    let mut command = Command::new("java");
    command
        .args([
            heap,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
        ])
        .arg(&classpath)
        .arg(interop(program));
    command
}

/// A main class of Kafka's own tools.
pub fn kafka_tool(class: &str) -> Command {
    let mut command = Command::new("java");
    command.args(["-Xmx256m", "-cp", &kafka_classpath(), class]);
    command
}

/// Kafka's client library and tools.
pub fn kafka_classpath() -> String {
    format!("{}/*", test_env().join("kafka").display())
}

/// A file of the interop tests.
pub fn interop(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/interop")
        .join(name)
}

/// Where `./test` put the clients.
pub fn test_env() -> PathBuf {
    let path = repository().join("target/test-env");
    assert!(
        path.is_dir(),
        "the clients of the tests are not set up; run ./test --only-env"
    );
    path
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Sends a signal to a process that is known to run.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(process(pid), signal).unwrap();
}

fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Bytes as text, for messages.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A path as a process sees it, whose mounts may be its own.
fn seen_by(process: u32, path: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/root{}", path.display()))
}

/// A port that nobody listens on just now, for a program that takes no other.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn free_ports() -> Vec<String> {
    PORTS
        .iter()
        .flat_map(|role| ["--set".to_owned(), format!("{role}.listen=127.0.0.1:0")])
        .collect()
}

fn spawn(command: &mut Command, log: &Path) -> Child {
    let out = File::options().create(true).append(true).open(log).unwrap();
    let err = out.try_clone().unwrap();
    command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// The end of a log, for messages.
pub fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// Long enough for a cold JVM on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const PORTS: [&str; 5] = ["streams", "rest", "schemas", "mqtt", "fleet"];

/// An HTTP client of Rust's.
pub fn http_client() -> reqwest::Client {
    // The client asks for a provider even where it speaks no TLS; who came first has set the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}
