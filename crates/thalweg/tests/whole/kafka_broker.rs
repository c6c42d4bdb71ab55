//! A real Apache Kafka for the tests: a broker in KRaft mode from its Maven artefacts.
//!
//! It is started when the first test needs it and shared by all, so tests use names of their own;
//! a test that ends brokers or logs in to them has one for itself. A shell holds it by a pipe whose other end is this process: however the tests end, the pipe
//! closes, and the shell stops the broker and removes its folder.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::harness::{eventually, last_lines, test_env};

/// The address of the broker.
pub fn kafka() -> &'static str {
    static BROKER: OnceLock<Broker> = OnceLock::new();
    &BROKER.get_or_init(|| Broker::start(PLAIN, &[])).address
}

/// A broker.
pub struct Broker {
    /// Where its clients connect.
    pub address: String,
    folder: PathBuf,
    /// Holds the pipe.
    shell: Child,
}

impl Broker {
    /// Starts a broker whose listener for clients `security` describes; `format` are arguments for
    /// the tool that makes its folder.
    pub fn start(security: &str, format: &[&str]) -> Broker {
        let folder = tempfile::tempdir().unwrap().keep();
        let (address, controller) = (free_address(), free_address());
        let properties = [PROPERTIES, security].concat();
        let properties = properties
            .replace("{address}", &address)
            .replace("{controller}", &controller)
            .replace("{data}", &folder.join("data").display().to_string());
        std::fs::write(folder.join("server.properties"), properties).unwrap();
        let shell = run(&folder, format);
        let mut broker = Broker {
            address,
            folder,
            shell,
        };
        broker.listens();
        broker
    }

    /// Ends the broker as a power switch does, for the process.
    pub fn kill(&mut self) {
        std::fs::write(self.folder.join("keep"), "").unwrap();
        drop(self.shell.stdin.take());
        self.shell.wait().unwrap();
        std::fs::remove_file(self.folder.join("keep")).unwrap();
    }

    /// Starts it again where it was.
    pub fn start_again(&mut self) {
        self.shell = run(&self.folder, &[]);
        self.listens();
    }

    fn listens(&mut self) {
        let log = self.folder.join("log");
        eventually("the Kafka broker listens", || {
            if let Some(status) = self.shell.try_wait().unwrap() {
                panic!("the broker ended with {status}:\n{}", last_lines(&log));
            }
            TcpStream::connect(&self.address).ok()
        });
    }
}

fn run(folder: &Path, format: &[&str]) -> Child {
    let jars = test_env().join("kafka-broker");
    assert!(
        jars.is_dir(),
        "the broker is not set up; run ./test --only-env"
    );
    Command::new("sh")
        .args(["-c", SHELL, "sh"])
        .args(format)
        .env("CLASSES", format!("{}/*", jars.display()))
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A port that is free now.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Formats the broker's folder unless it was, runs it, and ends it when standard input does.
const SHELL: &str = "
[ -d data ] || java -XX:TieredStopAtLevel=1 -cp \"$CLASSES\" kafka.tools.StorageTool format \
    -t dGVzdC10ZXN0LXRlc3QtdA -c server.properties \"$@\" >log 2>&1 || exit 1
java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp \"$CLASSES\" \
    kafka.Kafka server.properties >>log 2>&1 &
broker=$!
(while kill -0 $broker 2>/dev/null; do sleep 1; done; kill $$ 2>/dev/null) &
cat >/dev/null
kill -9 $broker
[ -e keep ] || { cd / && rm -rf \"$OLDPWD\"; }
";

/// As Kafka ships it, but for what one node with every replica needs.
const PROPERTIES: &str = "\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
";

/// A listener that asks nobody.
pub const PLAIN: &str = "\
listeners=PLAINTEXT://{address},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{address}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
";
