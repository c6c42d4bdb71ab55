//! One real Apache Kafka for all tests: a broker in KRaft mode from its Maven artefacts.
//!
//! It is started when the first test needs it and shared by all, so tests use names of their own.
//! A shell holds it by a pipe whose other end is this process: however the tests end, the pipe
//! closes, and the shell stops the broker and removes its folder.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::harness::{eventually, last_lines, test_env};

/// The address of the broker.
pub fn kafka() -> &'static str {
    static BROKER: OnceLock<Broker> = OnceLock::new();
    &BROKER.get_or_init(Broker::start).address
}

struct Broker {
    address: String,
    /// Holds the pipe.
    _shell: Child,
}

impl Broker {
    fn start() -> Broker {
        let folder = tempfile::tempdir().unwrap().keep();
        let (address, controller) = (free_address(), free_address());
        let properties = PROPERTIES
            .replace("{address}", &address)
            .replace("{controller}", &controller)
            .replace("{data}", &folder.join("data").display().to_string());
        std::fs::write(folder.join("server.properties"), properties).unwrap();
        let jars = test_env().join("kafka-broker");
        assert!(
            jars.is_dir(),
            "the broker is not set up; run ./test --only-env"
        );
        let mut shell = Command::new("sh")
            .args(["-c", SHELL])
            .env("CLASSES", format!("{}/*", jars.display()))
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let log = folder.join("log");
        eventually("the Kafka broker listens", || {
            if let Some(status) = shell.try_wait().unwrap() {
                panic!("the broker ended with {status}:\n{}", last_lines(&log));
            }
            TcpStream::connect(&address).ok()
        });
        Broker {
            address,
            _shell: shell,
        }
    }
}

/// A port that is free now.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Formats the broker's folder, runs it, and ends it when standard input does.
const SHELL: &str = "
java -XX:TieredStopAtLevel=1 -cp \"$CLASSES\" kafka.tools.StorageTool format \
    -t dGVzdC10ZXN0LXRlc3QtdA -c server.properties >log 2>&1 || exit 1
java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp \"$CLASSES\" \
    kafka.Kafka server.properties >>log 2>&1 &
broker=$!
(while kill -0 $broker 2>/dev/null; do sleep 1; done; kill $$ 2>/dev/null) &
cat >/dev/null
kill -9 $broker
cd / && rm -rf \"$OLDPWD\"
";

/// As Kafka ships it, but for what one node with every replica needs.
const PROPERTIES: &str = "\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
listeners=PLAINTEXT://{address},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{address}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
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
