//! ConsumeMQTT and PublishMQTT against a server of the tests' own.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::flow_tests::agent;
use crate::repository::{ContentKind, RepositoryOptions};
use crate::testing::{MqttPeer, Out, Rig, ground, runtime, start, wait_or_tell, wait_until};

/// ConsumeMQTT from one server to PublishMQTT to another.
fn copy(from: &MqttPeer, to: &MqttPeer, consume: &str, publish: &str) -> String {
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: copy}}
Processors:
- name: consume
  id: consume
  class: ConsumeMQTT
  scheduling period: 1 hour
  yield period: 50 ms
  Properties:
    Broker URI: mqtt://{from}
    Topic: 'a/#'
    Client ID: edge
    Quality of Service: 1
    {consume}
- name: publish
  id: publish
  class: PublishMQTT
  scheduling strategy: EVENT_DRIVEN
  yield period: 50 ms
  auto-terminated relationships list: [success, failure]
  Properties:
    Broker URI: tcp://{to}
    Topic: 'out/${{mqtt.topic.segment.1}}/${{mqtt.qos}}'
    Client ID: out
    {publish}
Connections:
- {{id: messages, source name: consume, source relationship name: success, destination name: publish}}
",
        from = from.address(),
        to = to.address()
    )
}

fn payloads(peer: &MqttPeer) -> Vec<String> {
    let published = peer.published();
    published
        .iter()
        .map(|(_, payload, ..)| String::from_utf8_lossy(payload).into_owned())
        .collect()
}

fn run(dir: &Path, text: &str, done: impl FnMut() -> bool) {
    let runtime = runtime();
    let ground = ground(dir, &runtime);
    let engine = start(&ground, text);
    wait_or_tell(&ground, "the messages went through", done);
    engine.stop();
}

#[test]
fn messages_come_with_their_attributes_and_go_out_in_every_quality() {
    for qos in [0, 1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (MqttPeer::start(), MqttPeer::start());
        for number in 0..3 {
            from.send("edge", "a/lamp", format!("on {number}"));
        }
        from.send("edge", "a/empty", "");
        let publish = format!("Quality of Service: {qos}\n    Retain: true");
        let text = copy(&from, &to, "Clean Session: false", &publish);
        run(dir.path(), &text, || to.published().len() == 4);
        assert_eq!(from.filters("edge"), ["a/#"]);
        let (topic, payload, quality, retain) = to.published()[0].clone();
        assert_eq!(
            (topic.as_str(), payload.as_ref()),
            ("out/lamp/1", &b"on 0"[..])
        );
        assert_eq!((quality, retain), (qos, true));
        assert_eq!(payloads(&to), ["on 0", "on 1", "on 2", ""]);
        assert_eq!(from.unacknowledged("edge"), 0);
    }
}

#[test]
fn what_is_not_acknowledged_to_us_is_published_again() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (MqttPeer::start(), MqttPeer::start());
    to.acknowledge_only(Some(2));
    for number in 0..5 {
        from.send("edge", "a/b", number.to_string());
    }
    let text = copy(&from, &to, "Clean Session: false", "Quality of Service: 1");
    let mut is_healed = false;
    run(dir.path(), &text, || {
        if to.connects("out") > 2 && !is_healed {
            to.acknowledge_only(None);
            is_healed = true;
        }
        let all = payloads(&to);
        (0..5).all(|number| all.contains(&number.to_string()))
    });
    assert!(is_healed, "the link never broke");
}

#[test]
fn a_message_is_acknowledged_only_when_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (MqttPeer::start(), MqttPeer::start());
    let file = dir.path().join("flow.yml");
    let text = copy(&from, &to, "Clean Session: false", "Quality of Service: 1");
    std::fs::write(&file, text).unwrap();
    let mut sent = 0;
    for round in 0..5u64 {
        let mut child = agent(dir.path(), &file);
        for _ in 0..20 {
            for _ in 0..10 {
                from.send("edge", "a/b", sent.to_string());
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(10 + 9 * round));
        }
        if round % 2 == 0 {
            from.cut("edge");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut child = agent(dir.path(), &file);
    wait_until("all messages are there", || {
        let mut all: Vec<usize> = payloads(&to)
            .iter()
            .map(|payload| payload.parse().unwrap())
            .collect();
        all.sort_unstable();
        all.dedup();
        all.len() == sent
    });
    wait_until("all are acknowledged", || from.unacknowledged("edge") == 0);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_flow_that_is_held_back_leaves_messages_with_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let from = MqttPeer::start();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let text = copy(
        &from,
        &from,
        "Queue Max Message: 10",
        "Quality of Service: 1",
    )
    .replace(
        &format!("tcp://{}", from.address()),
        &format!("tcp://{}", nobody.local_addr().unwrap()),
    )
    .replace(
        "destination name: publish}",
        "destination name: publish, max work queue size: 5}",
    );
    let engine = start(&ground, &text);
    wait_or_tell(&ground, "it has subscribed", || {
        !from.filters("edge").is_empty()
    });
    for number in 0..500 {
        from.send("edge", "a/b", number.to_string());
    }
    wait_or_tell(&ground, "some are kept", || {
        from.unacknowledged("edge") < 500
    });
    std::thread::sleep(Duration::from_millis(500));
    let left = from.unacknowledged("edge");
    assert!(left >= 470, "only {left} of 500 were left with the server");
    engine.stop();
}

#[test]
fn the_will_is_told_when_the_agent_is_killed_and_not_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (MqttPeer::start(), MqttPeer::start());
    let consume = "Last Will Topic: wills/edge\n    Last Will Message: gone\n    \
                   Last Will QoS: 1\n    Last Will Retain: true";
    let text = copy(&from, &to, consume, "");
    run(dir.path(), &text, || !from.filters("edge").is_empty());
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        from.published().is_empty(),
        "a clean stop published the will"
    );
    let file = dir.path().join("flow.yml");
    std::fs::write(&file, &text).unwrap();
    let mut child = agent(dir.path(), &file);
    wait_until("it is back", || from.connects("edge") == 2);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the will is told", || from.published().len() == 1);
    let (topic, message, qos, retain) = from.published()[0].clone();
    assert_eq!(
        (topic.as_str(), message.as_ref()),
        ("wills/edge", &b"gone"[..])
    );
    assert_eq!((qos, retain), (1, true));
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let peer = MqttPeer::start();
    let started = |consume: &str| {
        let text = copy(&peer, &peer, consume, "");
        let flow = crate::definition::Flow::parse(&text).unwrap();
        let prepared = crate::engine::Prepared::new(base::UnixMillis(0), flow);
        prepared
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    for (consume, message) in [
        (
            "Security CA: /not/there\n    Security Protocol: ssl",
            "is not there",
        ),
        ("Last Will Topic: 'a/+'", "no topic to publish to"),
    ] {
        assert!(started(consume).contains(message), "{}", started(consume));
    }
}

/// A rig with readers and writers of JSON and CSV.
fn with_formats(
    kind: &str,
    server: &MqttPeer,
    topic: &str,
    more: &[(&str, &str)],
) -> Result<Rig, String> {
    let address = format!("mqtt://{}", server.address());
    let own = [
        ("Broker URI", address.as_str()),
        ("Topic", topic),
        ("Client ID", "edge"),
        ("Quality of Service", "1"),
    ];
    let service = |id: &str, class: &str| json!({ "id": id, "name": id, "class": class });
    let mut lines = service("lines", "JsonRecordSetWriter");
    lines["Properties"] = json!({ "Output Grouping": "One Line Per Object" });
    let services = json!({ "Controller Services": [
        service("json", "JsonTreeReader"),
        service("csv", "CSVRecordSetWriter"),
        lines,
    ] });
    Rig::try_new(kind, &[&own[..], more].concat(), services)
}

/// Triggers until ConsumeMQTT has taken and acknowledged all of these.
fn consume(rig: &mut Rig, server: &MqttPeer, messages: &[(&str, &str)]) {
    wait_until("it has subscribed", || {
        rig.trigger().unwrap();
        !server.filters("edge").is_empty()
    });
    server.send_all("edge", messages);
    wait_until("all is acknowledged", || {
        rig.trigger().unwrap();
        server.unacknowledged("edge") == 0
    });
}

#[test]
fn messages_become_records_of_one_flow_file_and_unreadable_ones_do_not() {
    let server = MqttPeer::start();
    let formats = [("Record Reader", "json"), ("Record Writer", "lines")];
    let mut rig = with_formats("ConsumeMQTT", &server, "a/#", &formats).unwrap();
    let messages = [
        ("a/b", r#"{"n":1}"#),
        ("a/c", r#"[{"n":2},{"n":3}]"#),
        ("a/d", r#"[{"n":4},{"n"#),
        ("a/e", "[]"),
        ("a/b/", r#"{"n":5,"_qos":"own"}"#),
    ];
    consume(&mut rig, &server, &messages);
    let lines = |topic: &str, segments: &str, n: u32| {
        format!(
            "{{\"n\":{n},\"_topic\":\"{topic}\",\"_topicSegments\":[{segments}],\"_qos\":1,\
             \"_isDuplicate\":false,\"_isRetained\":false}}\n"
        )
    };
    let last = "{\"n\":5,\"_qos\":1,\"_topic\":\"a/b/\",\"_topicSegments\":[\"a\",\"b\",\"\"],\
                \"_isDuplicate\":false,\"_isRetained\":false}\n";
    let expected = [
        lines("a/b", r#""a","b""#, 1),
        lines("a/c", r#""a","c""#, 2),
        lines("a/c", r#""a","c""#, 3),
        last.to_owned(),
    ];
    let all = rig.out("success");
    let content: Vec<&str> = all.iter().map(Out::text).collect();
    assert_eq!(content.concat(), expected.concat());
    let counts: usize = all
        .iter()
        .map(|out| out.attribute("record.count").parse::<usize>().unwrap())
        .sum();
    assert_eq!(counts, 4);
    assert_eq!(all[0].attribute("mqtt.topic"), "");
    let broker = format!("mqtt://{}", server.address());
    assert_eq!(all[0].attribute("mqtt.broker"), broker);
    let bulletins = rig.bulletins();
    assert!(
        matches!(&bulletins[..], [one] if one.contains("a message to 'a/d'")),
        "{bulletins:?}"
    );
}

#[test]
fn records_that_do_not_fit_to_those_of_other_messages_come_alone() {
    let server = MqttPeer::start();
    let formats = [
        ("Record Reader", "json"),
        ("Record Writer", "csv"),
        ("Add Attributes As Fields", "false"),
    ];
    let mut rig = with_formats("ConsumeMQTT", &server, "a/#", &formats).unwrap();
    let messages = [("a/b", r#"{"n":1}"#), ("a/b", r#"{"m":[2]}"#)];
    consume(&mut rig, &server, &messages);
    let all = rig.out("success");
    let content: Vec<&str> = all.iter().map(Out::text).collect();
    assert_eq!(content, ["n\n1\n", "m\n[2]\n"]);
}

#[test]
fn each_record_of_a_flow_file_is_a_message_or_none_is() {
    let server = MqttPeer::start();
    let formats = [("Record Reader", "json"), ("Record Writer", "csv")];
    let mut rig = with_formats("PublishMQTT", &server, "out/${to}", &formats).unwrap();
    let records: Vec<String> = (0..2_500).map(|n| format!("{{\"n\":{n}}}")).collect();
    rig.put(
        &[("to", "a"), ("mime.type", "application/json")],
        format!("[{}]", records.join(",")),
    );
    rig.put(&[("to", "b")], r#"[{"n":1},{"n""#);
    rig.put(&[("to", "+")], r#"{"n":7}"#);
    rig.put(&[("to", "c")], "[]");
    rig.run();
    let expected: Vec<String> = (0..2_500).map(|n| format!("n\n{n}\n")).collect();
    assert_eq!(payloads(&server), expected);
    assert!(
        server
            .published()
            .iter()
            .all(|(topic, ..)| topic == "out/a")
    );
    let sent = rig.out("success");
    assert_eq!(sent.len(), 2_500);
    assert_eq!(sent[2_499].text(), "n\n2499\n");
    assert_eq!(sent[2_499].attribute("mime.type"), "text/csv");
    assert_eq!(sent[2_499].attribute("to"), "a");
    rig.advance(Duration::from_secs(60));
    let failed = rig.out("failure");
    let failed: Vec<&str> = failed.iter().map(Out::text).collect();
    assert_eq!(failed, [r#"[{"n":1},{"n""#, "n\n7\n"]);
    assert_eq!(rig.waiting(), 0);
}

#[test]
fn a_broken_link_has_all_records_of_a_flow_file_published_again() {
    let server = MqttPeer::start();
    let formats = [("Record Reader", "json"), ("Record Writer", "lines")];
    let mut rig = with_formats("PublishMQTT", &server, "out", &formats).unwrap();
    let records: Vec<String> = (0..1_500).map(|n| format!("{{\"n\":{n}}}")).collect();
    rig.put(&[], format!("[{}]", records.join(",")));
    server.acknowledge_only(Some(1_200));
    rig.trigger().unwrap_err();
    assert_eq!((rig.counts(), rig.waiting()), (vec![], 1));
    server.acknowledge_only(None);
    let before = server.published().len();
    rig.run();
    assert_eq!(rig.counts(), [("success", 1_500)]);
    let again: Vec<String> = payloads(&server).split_off(before);
    let lines: Vec<String> = records.iter().map(|record| format!("{record}\n")).collect();
    assert_eq!(again, lines);
}

#[test]
fn a_reader_without_a_writer_is_refused() {
    let server = MqttPeer::start();
    for kind in ["ConsumeMQTT", "PublishMQTT"] {
        let one = [("Record Reader", "json")];
        let refused = with_formats(kind, &server, "a", &one).err().unwrap();
        assert!(refused.contains("are set both or not at all"), "{refused}");
    }
}

#[test]
fn what_finds_no_room_in_the_repository_stays_in_hand_and_is_acknowledged_when_it_is_kept() {
    let server = MqttPeer::start();
    let address = format!("mqtt://{}", server.address());
    let mut rig = Rig::new(
        "ConsumeMQTT",
        &[
            ("Broker URI", address.as_str()),
            ("Topic", "a/#"),
            ("Client ID", "edge"),
            ("Quality of Service", "1"),
        ],
    );
    rig.kill_into(RepositoryOptions {
        content: ContentKind::Volatile {
            bytes_max: 1_000,
            count_max: 100,
        },
        ..RepositoryOptions::default()
    });
    wait_until("it has subscribed", || {
        rig.trigger().unwrap();
        server.filters("edge") == ["a/#"]
    });
    server.send("edge", "a/b", "1".repeat(600));
    wait_until("the first one came", || {
        rig.trigger().unwrap();
        rig.count("success") == 1
    });
    server.send("edge", "a/b", "2".repeat(600));
    for _ in 0..2 {
        wait_until("there is no room", || rig.trigger().is_err());
    }
    assert_eq!(server.unacknowledged("edge"), 1);
    assert_eq!(rig.one("success").text(), "1".repeat(600));
    wait_until("the second one came", || {
        rig.trigger().unwrap();
        rig.count("success") == 1
    });
    assert_eq!(rig.one("success").text(), "2".repeat(600));
    wait_until("it is acknowledged", || server.unacknowledged("edge") == 0);
    assert_eq!(server.connects("edge"), 1);
}
