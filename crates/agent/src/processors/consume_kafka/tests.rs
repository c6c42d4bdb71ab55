//! Against a broker of the tests' own: groups, offsets, crashes, transactions.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use crate::flow_tests::agent;
use crate::kafka::{BatchBuilder, Codec};
use crate::services::ClientAuthentication;
use crate::testing::{
    Account, Answer, Broker, Certificates, HttpPeer, Seen, ground, runtime, start, wait_or_tell,
    wait_until,
};

/// A batch of records as another producer would make it.
fn batch(values: &[String], key: Option<&[u8]>, headers: &[(&str, &str)], codec: Codec) -> Bytes {
    let headers: Vec<(String, Bytes)> = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Bytes::from((*value).to_owned())))
        .collect();
    let mut builder = BatchBuilder::new(1_000, 0);
    for value in values {
        builder.push(1_000, key, Some(value.as_bytes()), &headers);
    }
    builder.finish(-1, -1, -1, codec).unwrap().bytes
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("value {number}")).collect()
}

/// ConsumeKafka of topic `in` to PublishKafka into topic `out` of another broker, whose records
/// tell exactly what came.
fn copy(from: &Broker, to: &Broker, properties: &str) -> String {
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: copy}}
Processors:
- name: consume
  id: consume
  class: ConsumeKafka
  scheduling period: 10 ms
  yield period: 50 ms
  Properties:
    Kafka Brokers: {from}
    Topic Names: in
    Group ID: g
    Offset Reset: earliest
    Session Timeout: 6 sec
    Max Poll Time: 200 ms
    {properties}
- name: publish
  id: publish
  class: PublishKafka
  scheduling strategy: EVENT_DRIVEN
  yield period: 50 ms
  auto-terminated relationships list: [success, failure]
  Properties:
    Known Brokers: {to}
    Topic Name: out
    Client Name: copy
    Delivery Guarantee: all
    Attributes to Send as Headers: 'kafka\\..*|kind'
Connections:
- {{id: records, source name: consume, source relationship name: success, destination name: publish}}
",
        from = from.address(),
        to = to.address(),
    )
}

fn sorted(broker: &Broker) -> Vec<String> {
    let mut values: Vec<String> = broker
        .values("out", 0)
        .iter()
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .collect();
    values.sort_by_key(|value| value.trim_start_matches("value ").parse::<usize>().unwrap());
    values
}

/// Runs the flow until `count` records came out.
fn run_until(dir: &Path, text: &str, to: &Broker, count: usize) {
    let runtime = runtime();
    let ground = ground(dir, &runtime);
    let engine = start(&ground, text);
    wait_or_tell(&ground, "the records are there", || {
        to.count("out") >= count
    });
    engine.stop();
}

#[test]
fn records_of_every_codec_come_with_their_keys_and_headers() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (Broker::start(2), Broker::start(1));
    let codecs = [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ];
    for (index, codec) in codecs.into_iter().enumerate() {
        let values = numbers(index * 10..index * 10 + 10);
        let headers = [("kind", "first"), ("kind", "second"), ("other", "no")];
        from.append(
            "in",
            index as i32 % 2,
            batch(&values, Some(b"\xe2key"), &headers, codec),
        );
    }
    let properties = "Headers To Add As Attributes: kind\n    Key Attribute Encoding: Hex";
    run_until(dir.path(), &copy(&from, &to, properties), &to, 50);
    assert_eq!(sorted(&to), numbers(0..50));
    let headers = to.headers();
    let of_first: std::collections::BTreeMap<&str, &[u8]> = headers[0]
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_deref().unwrap()))
        .collect();
    for (name, value) in [
        ("kafka.key", "e26b6579"),
        ("kafka.topic", "in"),
        ("kafka.count", "1"),
        ("kafka.timestamp", "1000"),
        ("kind", "second"),
    ] {
        assert_eq!(of_first.get(name), Some(&value.as_bytes()), "{name}");
    }
    assert!(of_first.contains_key("kafka.partition") && of_first.contains_key("kafka.offset"));
    assert_eq!(of_first.get("other"), None);
    // A stop leaves the group with all offsets committed.
    assert_eq!(
        (from.group_offset("in", 0), from.group_offset("in", 1)),
        (Some(30), Some(20))
    );
}

#[test]
fn a_demarcator_joins_records_of_a_partition() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (Broker::start(1), Broker::start(1));
    from.append(
        "in",
        0,
        batch(&numbers(0..3), None, &[("kind", "a")], Codec::None),
    );
    from.append(
        "in",
        0,
        batch(&numbers(3..5), None, &[("kind", "b")], Codec::None),
    );
    let properties = "Headers To Add As Attributes: kind\n    Message Demarcator: '|'";
    run_until(dir.path(), &copy(&from, &to, properties), &to, 2);
    let values = to.values("out", 0);
    assert_eq!(
        values,
        [&b"value 0|value 1|value 2"[..], b"value 3|value 4"]
    );
    let count = |index: usize| {
        let headers = &to.headers()[index];
        let found = headers.iter().find(|(name, _)| name == "kafka.count");
        found.and_then(|(_, value)| value.clone()).unwrap()
    };
    assert_eq!(
        (count(0).as_ref(), count(1).as_ref()),
        (&b"3"[..], &b"2"[..])
    );
}

#[test]
fn offsets_are_taken_up_where_the_repository_is_not_where_the_group_is() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (Broker::start(1), Broker::start(1));
    from.append("in", 0, batch(&numbers(0..10), None, &[], Codec::None));
    // Commits are lost: the group knows of nothing, the repository of all.
    from.refuse_commits(true);
    run_until(dir.path(), &copy(&from, &to, ""), &to, 10);
    assert_eq!(from.group_offset("in", 0), None);
    from.refuse_commits(false);
    from.append("in", 0, batch(&numbers(10..20), None, &[], Codec::None));
    run_until(dir.path(), &copy(&from, &to, ""), &to, 20);
    assert_eq!(sorted(&to), numbers(0..20), "each once");
    assert_eq!(from.group_offset("in", 0), Some(20));
    // Set back by somebody: they come again, as that is what was asked for.
    from.set_group_offset("in", 0, 15);
    run_until(dir.path(), &copy(&from, &to, ""), &to, 25);
    assert_eq!(to.count("out"), 25);
}

#[test]
fn killed_and_with_lost_answers_each_record_comes_once() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (Broker::start(3), Broker::start(1));
    from.break_each(23);
    to.break_each(31);
    let flow = dir.path().join("flow.yml");
    std::fs::write(&flow, copy(&from, &to, "Max Poll Records: 50")).unwrap();
    let mut written = 0;
    for round in 0..8u64 {
        let mut child = agent(dir.path(), &flow);
        for _ in 0..10 {
            let values = numbers(written..written + 100);
            from.append(
                "in",
                written as i32 / 100 % 3,
                batch(&values, None, &[], Codec::Lz4),
            );
            written += 100;
            std::thread::sleep(Duration::from_millis(60 + 25 * round));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut child = agent(dir.path(), &flow);
    wait_until("all records are there", || to.count("out") >= written);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sorted(&to), numbers(0..written));
}

#[test]
fn two_agents_share_the_partitions_and_one_takes_over() {
    let (first_dir, second_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (from, to) = (Broker::start(4), Broker::start(1));
    let runtime = runtime();
    let text = copy(&from, &to, "");
    let (first_ground, second_ground) = (
        ground(first_dir.path(), &runtime),
        ground(second_dir.path(), &runtime),
    );
    let first = start(&first_ground, &text);
    wait_until("one is in the group", || from.generation() > 0);
    let second = start(&second_ground, &text);
    wait_until("both are in the group", || from.generation() > 1);
    let produced = |range: std::ops::Range<usize>| {
        for (index, start) in range.step_by(10).enumerate() {
            let values = numbers(start..start + 10);
            from.append(
                "in",
                index as i32 % 4,
                batch(&values, None, &[], Codec::None),
            );
        }
    };
    produced(0..200);
    wait_until("all records are there", || to.count("out") >= 200);
    let out = |engine: &crate::engine::Engine| {
        engine
            .nodes()
            .iter()
            .find(|node| node.id == "consume")
            .unwrap()
            .flow_files_out
    };
    assert!(
        out(&first) > 0 && out(&second) > 0,
        "one agent read everything"
    );
    first.stop();
    produced(200..400);
    wait_until("the other has taken over", || to.count("out") >= 400);
    second.stop();
    assert_eq!(sorted(&to), numbers(0..400));
}

#[test]
fn a_lost_offset_is_reset_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (Broker::start(1), Broker::start(1));
    from.append("in", 0, batch(&numbers(0..10), None, &[], Codec::None));
    run_until(dir.path(), &copy(&from, &to, ""), &to, 10);
    from.append("in", 0, batch(&numbers(10..20), None, &[], Codec::None));
    from.append("in", 0, batch(&numbers(20..30), None, &[], Codec::None));
    from.delete_before("in", 0, 20);
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let engine = start(&ground, &copy(&from, &to, ""));
    wait_until("the others are there", || to.count("out") >= 20);
    engine.stop();
    assert_eq!(sorted(&to)[10..], numbers(20..30));
    let bulletins = ground
        .bulletins
        .since(ground.clock.now(), Duration::from_secs(60));
    let told = |text: &str| {
        bulletins
            .iter()
            .any(|bulletin| bulletin.message.contains(text))
    };
    assert!(told("reading goes on at 20"), "{bulletins:?}");
}

#[test]
fn a_member_that_is_held_back_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (Broker::start(1), Broker::start(1));
    to.set_away(true);
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let text = copy(&from, &to, "Max Poll Records: 10")
        .replace(
            "destination name: publish}",
            "destination name: publish, max work queue size: 5}",
        )
        .replace("Session Timeout: 6 sec", "Session Timeout: 900 ms")
        .replace(
            "class: PublishKafka\n  scheduling strategy: EVENT_DRIVEN\n  yield period: 50 ms",
            "class: PublishKafka\n  scheduling strategy: EVENT_DRIVEN\n  yield period: 5 sec",
        );
    let engine = start(&ground, &text);
    wait_until("it is in the group", || from.generation() > 0);
    from.append("in", 0, batch(&numbers(0..50), None, &[], Codec::None));
    let came = || {
        let nodes = engine.nodes();
        let source = nodes.iter().find(|node| node.name == "consume");
        source.map_or(0, |node| node.flow_files_out)
    };
    wait_or_tell(&ground, "the first are there", || came() >= 10);
    // Held back for several session timeouts.
    std::thread::sleep(Duration::from_secs(3));
    // Each of the sink's tries may let one batch in while it holds what it took.
    assert!(came() <= 30, "it went on in spite of the full connection");
    to.set_away(false);
    wait_or_tell(&ground, "all are there", || to.count("out") >= 50);
    engine.stop();
    assert_eq!(from.generation(), 1, "it lost its membership");
    assert_eq!(sorted(&to), numbers(0..50));
}

#[test]
fn patterns_name_topics_and_bad_settings_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (Broker::start(1), Broker::start(1));
    from.append("in-1", 0, batch(&numbers(0..5), None, &[], Codec::None));
    from.append("other", 0, batch(&numbers(5..9), None, &[], Codec::None));
    from.append("in-2", 0, batch(&numbers(9..12), None, &[], Codec::None));
    let text = copy(&from, &to, "Topic Name Format: Patterns")
        .replace("Topic Names: in\n", "Topic Names: 'in-.*'\n");
    run_until(dir.path(), &text, &to, 8);
    let mut expected = numbers(0..5);
    expected.extend(numbers(9..12));
    assert_eq!(sorted(&to), expected);
    for (properties, message) in [
        ("Security Protocol: sasl_plaintext", "Username is required"),
        (
            "Topic Name Format: Patterns\n    Headers To Add As Attributes: '('",
            "Headers To Add",
        ),
    ] {
        let flow = crate::definition::Flow::parse(&copy(&from, &to, properties)).unwrap();
        let prepared = crate::engine::Prepared::new(base::UnixMillis(0), flow);
        let error = prepared
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(error.contains(message), "{properties}: {error}");
    }
}

#[test]
fn brokers_are_spoken_to_by_tls_and_logins() {
    let certs = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(certs.path(), &["server", "client"]);
    let account = Account {
        user: "edge,=1",
        password: "word",
    };
    let account_of_plain = Account {
        user: "edge",
        password: "word",
    };
    for (protocol, mechanism) in [
        ("ssl", "PLAIN"),
        ("sasl_plaintext", "PLAIN"),
        ("sasl_ssl", "SCRAM-SHA-256"),
        ("sasl_plaintext", "SCRAM-SHA-512"),
    ] {
        let tls = protocol
            .ends_with("ssl")
            .then(|| certificates.server("server", ClientAuthentication::Required));
        let account = match mechanism {
            "PLAIN" => account_of_plain.clone(),
            _ => Account {
                user: "edge=2C=3D1",
                ..account.clone()
            },
        };
        let is_login = protocol.starts_with("sasl");
        let secure = Broker::start_secure(1, tls, is_login.then(|| account.clone()));
        let to = Broker::start(1);
        secure.append("in", 0, batch(&numbers(0..5), None, &[], Codec::None));
        let user = account.user.replace("=2C", ",").replace("=3D", "=");
        let mut properties = format!("Security Protocol: {protocol}\n    ");
        if is_login {
            properties += &format!(
                "SASL Mechanism: {mechanism}\n    Username: '{user}'\n    Password: word\n    "
            );
        }
        if protocol.ends_with("ssl") {
            properties += "SSL Context Service: tls\n    ";
        }
        let text = copy(&secure, &to, &properties);
        let text = text.replace(
            "Flow Controller: {name: copy}\n",
            &format!(
                "Flow Controller: {{name: copy}}\n{}",
                certificates.service("client")
            ),
        );
        let dir = tempfile::tempdir().unwrap();
        run_until(dir.path(), &text, &to, 5);
        assert_eq!(sorted(&to), numbers(0..5), "{protocol} {mechanism}");
        if is_login {
            let dir = tempfile::tempdir().unwrap();
            let runtime = runtime();
            let ground = ground(dir.path(), &runtime);
            let engine = start(&ground, &text.replace("Password: word", "Password: wrong"));
            wait_or_tell(&ground, "the login is refused", || {
                let all = ground
                    .bulletins
                    .since(ground.clock.now(), Duration::from_secs(60));
                all.iter()
                    .any(|told| told.message.contains("refuses the login"))
            });
            engine.stop();
        }
    }
}

#[test]
fn published_records_are_packed_and_empty_flow_files_fail() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(1);
    let peer = HttpPeer::start(None, |_: &Seen| Answer::new(200, ""));
    let text = format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: pack}}
Processors:
- name: get
  class: InvokeHTTP
  scheduling period: 20 ms
  auto-terminated relationships list: [success, retry, no retry, failure]
  Properties: {{Remote URL: 'http://{peer}/empty'}}
- name: make
  class: GenerateFlowFile
  scheduling period: 20 ms
  Properties: {{Data Format: Text, Unique FlowFiles: false, Custom Text: {text}}}
- name: publish
  class: PublishKafka
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
  Properties: {{Known Brokers: '{broker}', Topic Name: out, Client Name: c, Compress Codec: zstd}}
- name: failed
  id: failed
  class: LogAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success]
Connections:
- {{source name: get, source relationship name: response, destination name: publish}}
- {{source name: make, source relationship name: success, destination name: publish}}
- {{source name: publish, source relationship name: failure, destination name: failed}}
",
        peer = peer.address(),
        broker = broker.address(),
        text = "z".repeat(500)
    );
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let engine = start(&ground, &text);
    wait_until("records are there and empty ones failed", || {
        let failed = engine
            .nodes()
            .iter()
            .any(|node| node.id == "failed" && node.flow_files_in > 2);
        broker.count("out") > 5 && failed
    });
    engine.stop();
    assert!(
        broker
            .values("out", 0)
            .iter()
            .all(|value| value.as_ref() == "z".repeat(500).as_bytes())
    );
    assert!(
        broker.bytes("out", 0) < 200 * broker.count("out"),
        "records are not packed"
    );
}
