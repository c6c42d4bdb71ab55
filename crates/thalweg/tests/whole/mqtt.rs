//! MQTT clients, unchanged, against the MQTT port.

use std::process::Command;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::harness::{Running, Up, eventually, folder, interop, python, succeed, test_env};
use crate::mqtt_load;

#[test]
fn mosquitto_clients_publish_and_subscribe() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    mosquittos_clients_do_their_steps(&up, dir.path());
}

fn mosquittos_clients_do_their_steps(up: &Up, dir: &Path) {
    let port = up.port("mqtt");
    let publish = |topic: &str, payload: &str, more: &[&str]| {
        let mut command = Command::new("mosquitto_pub");
        command
            .args(["-p", &port, "-t", topic, "-m", payload])
            .args(more);
        succeed(&mut command)
    };
    publish("house/door", "open", &["-q", "1", "-r"]);
    let out = dir.join("received");
    let mut subscribe = Command::new("mosquitto_sub");
    subscribe.args(["-p", &port, "-t", "house/#", "-q", "1", "-v", "-C", "3"]);
    let subscriber = Running::start(&mut subscribe, &out);
    // The retained message tells that the subscription stands.
    eventually("the retained message comes", || {
        std::fs::read_to_string(&out)
            .unwrap()
            .contains("house/door open")
            .then_some(())
    });
    publish("house/hall/temp", "21", &["-q", "0"]);
    publish("house/hall/temp", "22", &["-q", "1"]);
    subscriber.finish("three messages come");
    let received = std::fs::read_to_string(&out).unwrap();
    assert_eq!(
        received,
        "house/door open\nhouse/hall/temp 21\nhouse/hall/temp 22\n"
    );
}

#[test]
fn paho_finds_sessions_wills_and_retained_messages_as_the_standard_has_them() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    does_its_steps(&mut python("mqtt_paho.py"), &up);
}

/// Clients that others wrote, each by steps of its own; rumqttc's stand in the crate `mqtt`.
fn check(client: &mut Command) {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    does_its_steps(client, &up);
}

fn does_its_steps(client: &mut Command, up: &Up) {
    let told = succeed(client.arg(up.port("mqtt")));
    assert!(
        told.contains("\"checked\": true") || told.contains("\"checked\":true"),
        "{told}"
    );
}

fn java_client(name: &str) -> Command {
    let classpath = format!("{}/*", test_env().join("mqtt").display());
    let mut command = Command::new("java");
    command
        .args([
            "-Xmx128m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
        ])
        .arg(classpath)
        .arg(interop("mqtt/MqttClients.java"))
        .arg(name);
    command
}

#[test]
fn paho_for_python_does_its_steps_in_5_0() {
    check(&mut python("mqtt_paho5.py"));
}

#[test]
fn paho_for_java_does_its_steps_in_3_1_1() {
    check(&mut java_client("paho3"));
}

#[test]
fn paho_for_java_does_its_steps_in_5_0() {
    check(&mut java_client("paho5"));
}

#[test]
fn hivemqs_client_does_its_steps() {
    check(&mut java_client("hivemq"));
}

#[test]
fn paho_for_go_does_its_steps() {
    check(&mut Command::new(test_env().join("go-mqtt")));
}

#[test]
fn mqtt_js_does_its_steps_in_3_1_1_and_5_0() {
    check(&mut mqtt_js());
}

fn mqtt_js() -> Command {
    let mut node = Command::new("node");
    node.env("NODE_PATH", test_env().join("mqtt-js/node_modules"))
        .arg(interop("mqtt/js/client.js"));
    node
}

/// Publishers of QoS 0 that send as fast as they are taken, into a statement.
struct Burst {
    stop: Arc<AtomicBool>,
    publishers: Vec<JoinHandle<u64>>,
}

impl Burst {
    fn start(up: &Up) -> Burst {
        up.cli_json(&[
            "statements",
            "add",
            "--name",
            "burst",
            "INSERT INTO mqtt.\"never\" SELECT a * 1.8 + 32 AS f FROM mqtt.\"burst/+\" \
             WHERE a * 1.8 + 32 > 1000",
        ]);
        let stop = Arc::new(AtomicBool::new(false));
        let publisher = |number: usize| {
            let (stop, mut link) = (
                Arc::clone(&stop),
                mqtt_load::connect(up, &format!("burst-{number}")),
            );
            let one = mqtt_load::publish(
                &format!("burst/{number}"),
                br#"{"id":"d-07","a":21.5,"b":40,"ok":true,"unit":"degC"}"#,
            );
            let many = one.repeat(BATCH);
            std::thread::spawn(move || {
                let mut sent = 0;
                while !stop.load(Ordering::Relaxed) {
                    link.write_all(&many).unwrap();
                    sent += BATCH as u64;
                }
                sent
            })
        };
        let publishers = (0..10).map(publisher).collect();
        Burst { stop, publishers }
    }

    /// Ends it; how many messages were sent.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let publishers = self.publishers.into_iter();
        publishers.map(|publisher| publisher.join().unwrap()).sum()
    }
}

const BATCH: usize = 100;

fn taken(up: &Up) -> u64 {
    let burst = up.get("/api/v1/statements/burst");
    burst["received_total"].as_u64().unwrap()
}

/// Does a client's steps on a server of its own that is flooded all the while; the statement gets
/// every message of the flood.
fn under_burst(who: &str, steps: impl FnOnce(&Up, &Path)) {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let burst = Burst::start(&up);
    eventually("the burst runs", || (taken(&up) > 0).then_some(()));
    let before = taken(&up);
    steps(&up, dir.path());
    assert!(taken(&up) > before, "the burst stood still for {who}");
    let sent = burst.stop();
    eventually("the statement has every message", || {
        (taken(&up) == sent).then_some(())
    });
    println!("{who}: beside {sent} messages");
}

#[test]
fn every_client_does_the_same_steps_while_a_burst_runs() {
    under_burst("Mosquitto's clients", mosquittos_clients_do_their_steps);
    let clients: [(&str, Command); 7] = [
        ("paho for Python, 3.1.1", python("mqtt_paho.py")),
        ("paho for Python, 5.0", python("mqtt_paho5.py")),
        ("paho for Java, 3.1.1", java_client("paho3")),
        ("paho for Java, 5.0", java_client("paho5")),
        ("HiveMQ's client", java_client("hivemq")),
        ("paho for Go", Command::new(test_env().join("go-mqtt"))),
        ("MQTT.js", mqtt_js()),
    ];
    for (who, mut client) in clients {
        under_burst(who, |up, _| does_its_steps(&mut client, up));
    }
}

#[test]
fn a_statement_carries_mqtt_messages_into_a_topic_and_back() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&[
        "statements", "add", "--name", "hot",
        "INSERT INTO kafka.\"hot\" SELECT _topic AS at, t * 1.8 + 32 AS f FROM mqtt.\"plant/+/temp\" WHERE t > 30",
    ]);
    up.cli_json(&[
        "statements",
        "add",
        "--name",
        "back",
        "--start",
        "earliest",
        "INSERT INTO mqtt.\"alarm/hot\" SELECT at, f FROM kafka.\"hot\"",
    ]);
    let port = up.port("mqtt");
    let out = dir.path().join("alarms");
    let mut subscribe = Command::new("mosquitto_sub");
    subscribe.args(["-p", &port, "-t", "alarm/hot", "-C", "1"]);
    let subscriber = Running::start(&mut subscribe, &out);
    eventually("the subscriber is there", || {
        let status = up.get("/api/v1/status");
        (status["mqtt"]["clients_connected"].as_u64() >= Some(1)).then_some(())
    });
    for (place, payload) in [("a", "{\"t\": 20}"), ("b", "{\"t\": 35}"), ("c", "no json")] {
        let mut publish = Command::new("mosquitto_pub");
        let topic = format!("plant/{place}/temp");
        succeed(publish.args(["-p", &port, "-q", "1", "-t", &topic, "-m", payload]));
    }
    subscriber.finish("the alarm comes");
    let alarm: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    assert_eq!(alarm, serde_json::json!({"at": "plant/b/temp", "f": 95.0}));
    let books = up.get("/api/v1/statements");
    let hot = books["statements"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["name"] == "hot")
        .unwrap();
    let count = |key: &str| hot[key].as_u64().unwrap();
    assert_eq!(
        (
            count("received_total"),
            count("filtered_total"),
            count("emitted_total"),
            count("errored_total")
        ),
        (3, 1, 1, 1)
    );
}
