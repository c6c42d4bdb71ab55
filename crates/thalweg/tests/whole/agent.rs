//! The edge agent as its own process: flows, the fleet's changes, and kill -9.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base::Rng;

use crate::crash::rounds;
use crate::harness::{
    Running, Up, eventually, folder, sibling, succeed, thalweg_command, whole_topic,
};

#[test]
fn every_tailed_line_arrives_once_however_often_the_agent_is_killed() {
    let seed = Rng::from_entropy().next_u64();
    let mut rng = Rng::from_seed(seed);
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let log = dir.path().join("the.log");
    let mut writer = Writer {
        file: File::create(&log).unwrap(),
        next: 0,
    };
    let flow = dir.path().join("flow.yml");
    std::fs::write(&flow, tail_flow(&log, &up.address("streams"), "lines")).unwrap();
    let start = || {
        let mut command = Command::new(sibling("thalweg-agent"));
        command
            .arg("--data")
            .arg(dir.path().join("agent"))
            .arg("--flow")
            .arg(&flow);
        Running::start(&mut command, &dir.path().join("agent.log"))
    };
    let mut agent = start();
    for round in 0..rounds() {
        writer.lines(500 + rng.below(3_000));
        if round % 4 == 0 {
            // Let it get to the end now and then, so that it is also killed at rest.
            eventually("the agent gets on", || {
                (up.records_in("lines") > 0).then_some(())
            });
        }
        std::thread::sleep(Duration::from_millis(rng.below(250)));
        agent.kill();
        if round % 5 == 2 {
            writer.rotate(&log);
        }
        agent = start();
        writer.lines(200);
    }
    eventually("every line is stored", || {
        (up.records_in("lines") >= writer.next).then_some(())
    });
    agent.stop();
    let mut kcat = Command::new("kcat");
    kcat.args(["-b", &up.address("streams")])
        .args(whole_topic("lines"));
    let numbers: Vec<u64> = succeed(&mut kcat)
        .lines()
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    let expected: Vec<u64> = (0..writer.next).collect();
    let first_wrong = numbers.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(
        first_wrong,
        None,
        "seed {seed}: {} stored of {}",
        numbers.len(),
        expected.len()
    );
    assert_eq!(numbers.len(), expected.len(), "seed {seed}");
}

#[test]
fn the_agent_goes_on_without_the_control_plane_and_reports_when_it_is_back() {
    let dir = folder();
    let mut up = Up::start(&dir.path().join("data"));
    let log = dir.path().join("the.log");
    let mut writer = Writer {
        file: File::create(&log).unwrap(),
        next: 0,
    };
    let flow = dir.path().join("flow.yml");
    std::fs::write(&flow, tail_flow(&log, &up.address("streams"), "lines")).unwrap();
    up.cli_json(&[
        "flows",
        "publish",
        "--class",
        "edge",
        flow.to_str().unwrap(),
    ]);
    let mut command = thalweg_command();
    command.args([
        "agent",
        "--class",
        "edge",
        "--id",
        "edge-1",
        "--heartbeat",
        "200ms",
    ]);
    command.arg("--data").arg(dir.path().join("agent"));
    command.arg("--c2-url").arg(up.url("fleet", ""));
    let agent = Running::start(&mut command, &dir.path().join("agent.log"));
    writer.lines(100);
    eventually("the published flow runs on the agent", || {
        (up.records_in("lines") >= 100).then_some(())
    });
    eventually("the fleet sees the flow deployed", || {
        let agents = up.get("/api/v1/agents");
        (agents["agents"][0]["flow_state"] == "deployed").then_some(())
    });
    up.kill();
    writer.lines(100);
    std::thread::sleep(Duration::from_millis(500));
    let up = up.start_again(&[]);
    eventually("what was written meanwhile arrives", || {
        (up.records_in("lines") >= 200).then_some(())
    });
    eventually("the agent is online again", || {
        let agents = up.get("/api/v1/agents");
        (agents["agents"][0]["state"] == "online").then_some(())
    });
    assert_eq!(up.records_in("lines"), 200);
    agent.stop();
}

/// A MiNiFi flow that tails `log` into `topic`.
pub fn tail_flow(log: &Path, brokers: &str, topic: &str) -> String {
    format!(
        "MiNiFi Config Version: 3
Flow Controller:
  name: tail
Processors:
  - id: 5d0d7a3e-6f0b-4c7e-8e43-000000000001
    name: tail
    class: org.apache.nifi.minifi.processors.TailFile
    scheduling strategy: TIMER_DRIVEN
    scheduling period: 50 ms
    Properties:
      File to Tail: {log}
      Keep Delimiter: false
  - id: 5d0d7a3e-6f0b-4c7e-8e43-000000000002
    name: publish
    class: org.apache.nifi.minifi.processors.PublishKafka
    scheduling strategy: EVENT_DRIVEN
    auto-terminated relationships list: [success]
    Properties:
      Known Brokers: {brokers}
      Topic Name: {topic}
      Client Name: tail
      Delivery Guarantee: all
Connections:
  - id: 5d0d7a3e-6f0b-4c7e-8e43-000000000003
    name: lines
    source id: 5d0d7a3e-6f0b-4c7e-8e43-000000000001
    source relationship names: [success]
    destination id: 5d0d7a3e-6f0b-4c7e-8e43-000000000002
  - id: 5d0d7a3e-6f0b-4c7e-8e43-000000000004
    name: again
    source id: 5d0d7a3e-6f0b-4c7e-8e43-000000000002
    source relationship names: [failure]
    destination id: 5d0d7a3e-6f0b-4c7e-8e43-000000000002
",
        log = log.display()
    )
}

/// Appends numbered lines to a log and rotates it as logrotate does.
struct Writer {
    file: File,
    next: u64,
}

impl Writer {
    fn lines(&mut self, count: u64) {
        let text: String = (self.next..self.next + count)
            .map(|n| format!("{n} {}\n", "x".repeat(80)))
            .collect();
        self.file.write_all(text.as_bytes()).unwrap();
        self.next += count;
    }

    fn rotate(&mut self, log: &Path) {
        let old = log.with_extension(format!("log.{}", self.next));
        std::fs::rename(log, old).unwrap();
        self.file = File::create(log).unwrap();
    }
}
