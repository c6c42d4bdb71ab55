//! The published layered test: two nodes count what floods them, a third one sums, and a control
//! broker brings each its statements by one message.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::experiment::{Experiment, LabError, Measure, Outcome, Setting};
use crate::experiments::fusion::{Api, PUBLISHERS, wait_for};
use crate::limits::{POLL, READY_MAX, STALL_MAX};
use crate::mqtt::{Pace, Publishers};
use crate::process::{Up, Usage};

/// `thalweg lab run fusion-layers`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fusion-layers",
    about: "two counting nodes, a summing one and a control broker: exact sums, a killed node, two \
        channels beside one",
    method: "Four thalweg up in processes of their own on loopback ports: a control broker, two ingest \
        nodes and a merging node. The nodes have bridges to the control broker, and the ingest nodes \
        to the merging one. Statements are deployed by a message each on the control broker: one that \
        counts per second to both ingest nodes, a table and one that sums into it to the merging node. \
        Ten publishers flood the first node alone, then ten more the second at the same time; the \
        table must come to what was sent. A channel's cost is its node's CPU time and its part of \
        the merging node's; two channels beside one is the sum of their messages per CPU-second over \
        that of the one. Last, both are flooded again and the first node is killed in the middle: \
        the second goes on, and its sum must come to what was sent to it.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    vec![
        Measure::new("one channel", "messages/s"),
        Measure::new("two channels", "messages/s")
            .reference("LinkSmart DFM, two brokers and two nodes", 124_726.0),
        Measure::new("two channels beside one, per CPU-second", "times")
            .at_least(1.9)
            .reference("LinkSmart DFM, by wall time", 1.51),
        Measure::new("CPU per message, one channel", "µs"),
        Measure::new("merging node's share of the CPU", "%"),
        Measure::new("sums off by", "messages").at_most(0.0),
        Measure::new("deployed to both by one message", "ms"),
        Measure::new("the other's rate after a kill", "% of before").at_least(95.0),
        Measure::new("the other's sum off by", "messages").at_most(0.0),
    ]
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let flood = Duration::from_secs(if setting.quick { 6 } else { 60 });
    let mut outcome = Outcome::default();
    let mut yard = Yard::start(setting)?;
    yard.deploy(&mut outcome)?;
    let one = yard.flooded(&[0], flood)?;
    let two = yard.flooded(&[0, 1], flood)?;
    outcome.add("one channel", one.per_second());
    outcome.add("two channels", two.per_second());
    outcome.add(
        "two channels beside one, per CPU-second",
        two.per_cpu_second() / one.per_cpu_second(),
    );
    outcome.add(
        "CPU per message, one channel",
        1e6 * one.channels[0].cpu / one.channels[0].sent as f64,
    );
    let cpu: f64 = two.channels.iter().map(|channel| channel.cpu).sum();
    outcome.add(
        "merging node's share of the CPU",
        two.merging / (cpu + two.merging) * 100.0,
    );
    let off = yard.off(&[0, 1])?;
    outcome.add("sums off by", off as f64);
    yard.kill_one(flood, &mut outcome)?;
    yard.stop()?;
    Ok(outcome)
}

/// The processes.
struct Yard {
    control: Up,
    merging: Up,
    merged: Api,
    /// None for one that was killed.
    nodes: Vec<Option<Up>>,
    /// Messages that each was sent.
    sent: Vec<u64>,
}

/// What one flood came to.
struct Flooded {
    channels: Vec<Channel>,
    seconds: f64,
    /// CPU time of the merging node, seconds.
    merging: f64,
}

/// One ingest node's part.
struct Channel {
    sent: u64,
    /// CPU time of the node, seconds.
    cpu: f64,
}

impl Flooded {
    fn per_second(&self) -> f64 {
        let sent: u64 = self.channels.iter().map(|channel| channel.sent).sum();
        sent as f64 / self.seconds
    }

    /// Of all channels together, each with its part of the merging node.
    fn per_cpu_second(&self) -> f64 {
        let merging = self.merging / self.channels.len() as f64;
        let each = self.channels.iter();
        each.map(|channel| channel.sent as f64 / (channel.cpu + merging))
            .sum()
    }
}

impl Yard {
    fn start(setting: &Setting) -> Result<Yard, LabError> {
        let control = up(setting, "control")?;
        let merging = up(setting, "merging")?;
        let mut merged = Api::open(&merging)?;
        merged.bridge("control", control.address("mqtt")?, ("/statement/#", "in"))?;
        let mut nodes = Vec::new();
        for name in NODES {
            let node = up(setting, name)?;
            let mut api = Api::open(&node)?;
            api.bridge("control", control.address("mqtt")?, ("/statement/#", "in"))?;
            api.bridge("merging", merging.address("mqtt")?, ("layer1", "out"))?;
            nodes.push(Some(node));
        }
        Ok(Yard {
            control,
            merging,
            merged,
            nodes,
            sent: vec![0; NODES.len()],
        })
    }

    /// Deploys each statement by one message on the control broker, and waits until it is there.
    fn deploy(&mut self, outcome: &mut Outcome) -> Result<(), LabError> {
        let mut control = Api::open(&self.control)?;
        for (name, text, targets) in [
            ("totals", TOTALS, &["merging"][..]),
            ("sum", SUM, &["merging"]),
            ("count", COUNT, &NODES),
        ] {
            let is_count = name == "count";
            let mut statement = json!({"id": name, "name": name, "statement": text});
            if is_count {
                statement["output"] = json!(["layer1"]);
                statement["scope"] = json!(["merging"]);
            }
            let message = json!({
                "id": name, "requestType": "MQTT", "resource": statement, "targets": targets,
            });
            let body = json!({"topic": "/statement/add", "text": message.to_string(), "qos": 1});
            let ups: Vec<&Up> = match is_count {
                true => self.nodes.iter().flatten().collect(),
                false => vec![&self.merging],
            };
            let mut apis = Vec::new();
            for up in ups {
                apis.push(Api::open(up)?);
            }
            let began = Instant::now();
            control.call("POST", "/api/v1/mqtt/publish", Some(&body))?;
            for api in &mut apis {
                wait_for(READY_MAX, &format!("statement {name} on a node"), || {
                    Ok(lists(api, name)?.then_some(()))
                })?;
            }
            if is_count {
                let millis = began.elapsed().as_secs_f64() * 1_000.0;
                outcome.add("deployed to both by one message", millis);
            }
        }
        Ok(())
    }

    fn publishers(&self, node: usize) -> Result<Publishers, LabError> {
        let up = self.nodes[node].as_ref();
        let up =
            up.ok_or_else(|| LabError::Failed("a killed node has no publishers".to_owned()))?;
        let topic = format!("in/{}", NODES[node]);
        Publishers::start(up.address("mqtt")?, &topic, PUBLISHERS, Pace::Flood)
    }

    /// Floods these nodes until the length is over and the table has everything.
    fn flooded(&mut self, nodes: &[usize], length: Duration) -> Result<Flooded, LabError> {
        let usages = |yard: &Yard| -> Result<(Vec<Usage>, Usage), LabError> {
            let ups = nodes.iter().filter_map(|node| yard.nodes[*node].as_ref());
            let each = ups.map(|up| up.process.usage()).collect::<Result<_, _>>()?;
            Ok((each, yard.merging.process.usage()?))
        };
        let (before, merging) = usages(self)?;
        let began = Instant::now();
        let publishers: Vec<Publishers> = nodes
            .iter()
            .map(|node| self.publishers(*node))
            .collect::<Result<_, _>>()?;
        std::thread::sleep(length);
        let mut sent = Vec::new();
        for (node, publishers) in nodes.iter().zip(publishers) {
            let count = publishers.stop()?;
            self.sent[*node] += count;
            sent.push(count);
        }
        let seconds = began.elapsed().as_secs_f64();
        self.settle(nodes)?;
        let (after, merged) = usages(self)?;
        let cpu = |after: Usage, before: Usage| after.cpu.saturating_sub(before.cpu).as_secs_f64();
        let pairs = sent.into_iter().zip(after.into_iter().zip(before));
        Ok(Flooded {
            channels: pairs
                .map(|(sent, (after, before))| Channel {
                    sent,
                    cpu: cpu(after, before),
                })
                .collect(),
            seconds,
            merging: cpu(merged, merging),
        })
    }

    /// Waits until the table has what these nodes were sent, or does not move any more.
    fn settle(&mut self, nodes: &[usize]) -> Result<(), LabError> {
        let (mut last, mut moved) = (u64::MAX, Instant::now());
        while moved.elapsed() < STALL_MAX / 4 {
            let off = self.off(nodes)?;
            if off == 0 {
                return Ok(());
            }
            if off != last {
                (last, moved) = (off, Instant::now());
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// By how many messages the table differs from what these nodes were sent.
    fn off(&mut self, nodes: &[usize]) -> Result<u64, LabError> {
        let query = json!({"text": "select topic, n from Totals"});
        let path = "/api/v1/statements/query";
        let answer = self.merged.call("POST", path, Some(&query))?;
        let rows = answer["rows"].as_array().map_or(&[][..], Vec::as_slice);
        let sum_of = |node: usize| -> u64 {
            let prefix = format!("in/{}/", NODES[node]);
            let of_node = |row: &&Value| {
                let topic = row["topic"].as_str();
                topic.is_some_and(|topic| topic.starts_with(&prefix))
            };
            let counts = rows.iter().filter(of_node).map(|row| row["n"].as_u64());
            counts.flatten().sum()
        };
        let off = nodes
            .iter()
            .map(|node| sum_of(*node).abs_diff(self.sent[*node]));
        Ok(off.sum())
    }

    /// Floods both and kills the first in the middle.
    fn kill_one(&mut self, length: Duration, outcome: &mut Outcome) -> Result<(), LabError> {
        let (doomed, other) = (self.publishers(0)?, self.publishers(1)?);
        let up = self.nodes[1].as_ref();
        let mut api = Api::open(up.expect("the second node is never killed"))?;
        let mut rate = |length: Duration| -> Result<f64, LabError> {
            let (before, began) = (api.count("count", "received_total")?, Instant::now());
            std::thread::sleep(length);
            let after = api.count("count", "received_total")?;
            Ok((after - before) as f64 / began.elapsed().as_secs_f64())
        };
        let before = rate(length / 2)?;
        if let Some(up) = self.nodes[0].take() {
            up.process.kill();
        }
        let after = rate(length / 2)?;
        // They were cut off by the kill.
        let _ = doomed.stop();
        self.sent[1] += other.stop()?;
        self.settle(&[1])?;
        outcome.add("the other's rate after a kill", after / before * 100.0);
        outcome.add("the other's sum off by", self.off(&[1])? as f64);
        Ok(())
    }

    fn stop(self) -> Result<(), LabError> {
        for up in self.nodes.into_iter().flatten() {
            up.process.stop()?;
        }
        self.merging.process.stop()?;
        self.control.process.stop()
    }
}

fn up(setting: &Setting, name: &str) -> Result<Up, LabError> {
    let folder = setting.path(name);
    let cannot = || LabError::system(format!("cannot make {}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(cannot())?;
    let id = format!("fusion.node.id={name}");
    let set = ["fusion.control.allow_unsigned=true", &id];
    Up::start_with(&setting.thalweg, &folder, &set)
}

fn lists(api: &mut Api, name: &str) -> Result<bool, LabError> {
    let listed = api.call("GET", "/api/v1/statements", None)?;
    let all = listed["statements"].as_array();
    let all = all.map_or(&[][..], Vec::as_slice);
    let mut named = all.iter().filter(|statement| statement["name"] == name);
    Ok(named.any(|statement| statement["status"] == "running"))
}

/// The ingest nodes.
const NODES: [&str; 2] = ["a", "b"];
/// How many came each second, and from which side.
const COUNT: &str = "SELECT first(_topic) AS topic, count(*) AS n, sum(b) AS b \
    FROM TUMBLE(mqtt.\"in/+/+\", INTERVAL '1 second')";
const TOTALS: &str = "create table Totals (topic string primary key, n long)";
const SUM: &str = "on \"layer1\" as e merge Totals as t where t.topic = e.result.topic \
    when matched then update set n = t.n + e.result.n \
    when not matched then insert select e.result.topic as topic, e.result.n as n";
