//! Flows in both formats, and what is said about bad ones.

use super::*;

const YAML: &str = include_str!("../../tests/flows/lines-to-kafka.yml");
const JSON: &str = include_str!("../../tests/flows/lines-to-kafka.json");

/// A flow without what only one format can spell.
fn bare(text: &str) -> Flow {
    let mut flow = Flow::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
    for processor in &mut flow.processors {
        processor.path.clear();
        processor.properties.sort();
    }
    for connection in &mut flow.connections {
        connection.path.clear();
    }
    flow
}

#[test]
fn yaml_and_its_json_twin_are_one_flow() {
    let flow = bare(YAML);
    assert_eq!(flow, bare(JSON));
    assert_eq!(flow.processors.len(), 5);
    let tail = &flow.processors[0];
    assert_eq!(tail.kind.name, "TailFile");
    assert_eq!(
        tail.scheduling,
        Scheduling::TimerDriven(Duration::from_millis(100))
    );
    let kafka = flow
        .processors
        .iter()
        .find(|p| p.name == "to kafka")
        .unwrap();
    assert_eq!(kafka.scheduling, Scheduling::EventDriven);
    let queue = &flow.connections[0];
    assert_eq!((queue.flow_files_max, queue.bytes_max), (20_000, 64 << 20));
    assert_eq!(queue.expiration, Duration::from_secs(3_600));
}

#[test]
fn ids_that_the_text_leaves_out_stay_the_same() {
    let text = flow("    Batch Size: 1", "success");
    let first = Flow::parse(&text).unwrap();
    assert_eq!(first, Flow::parse(&text).unwrap());
    assert!(first.connections[0].id.parse::<uuid::Uuid>().is_ok());
}

#[test]
fn every_mistake_is_named_with_its_place() {
    for (properties, relationship, message) in [
        (
            "    Batch Sise: 1",
            "success",
            "Processors[0] 'make' / Properties / Batch Sise: \
          GenerateFlowFile has no such property",
        ),
        (
            "    Batch Size: many",
            "success",
            "Batch Size: 'many' is no whole number of at least 1",
        ),
        (
            "    Data Format: Morse",
            "success",
            "'Morse' is none of Binary, Text",
        ),
        (
            "    File Size: 1 furlong",
            "success",
            "'1 furlong' is no size",
        ),
        (
            "    Batch Size: 1",
            "triumph",
            "'make' has no relationship 'triumph'; it has: success",
        ),
    ] {
        let problems = Flow::parse(&flow(properties, relationship))
            .unwrap_err()
            .to_string();
        let flat = message.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(problems.contains(&flat), "{problems}\n{flat}");
    }
}

#[test]
fn bad_settings_of_components_are_errors_and_not_zero() {
    let good = flow("    Batch Size: 1", "success");
    for (from, to, message) in [
        (
            "class: GenerateFlowFile",
            "class: GenerateFowl",
            "there is no processor 'GenerateFowl'",
        ),
        (
            "scheduling period: 1 sec",
            "scheduling period: 1 sek",
            "'1 sek' is no duration",
        ),
        (
            "scheduling period: 1 sec",
            "sheduling period: 1 sec",
            "is no key that belongs here",
        ),
        (
            "flowfile expiration: 1 min",
            "flowfile expiration: soon",
            "'soon' is no duration",
        ),
        (
            "max work queue size: 5",
            "max work queue size: five",
            "'five' is no number",
        ),
        (
            "destination name: log",
            "destination name: lag",
            "'lag' is nothing in this flow",
        ),
        (
            "TIMER_DRIVEN",
            "EVENT_DRIVEN",
            "has no input, so it must be TIMER_DRIVEN",
        ),
        (
            "TIMER_DRIVEN",
            "CRON_DRIVEN",
            "CRON_DRIVEN is not supported yet",
        ),
        (
            "auto-terminated relationships list: [success]",
            "yield period: 1 sec",
            "relationship 'success' is neither connected nor auto-terminated",
        ),
        (
            "Connections:",
            "Controller Services: [{name: ssl, class: SSLContest}]\nConnections:",
            "Controller Services[0] 'ssl': there is no controller service 'SSLContest'",
        ),
    ] {
        assert!(good.contains(from), "the test has lost '{from}'");
        let problems = Flow::parse(&good.replace(from, to))
            .unwrap_err()
            .to_string();
        assert!(problems.contains(message), "{problems}\n{message}");
    }
    assert!(
        Flow::parse("- 1")
            .unwrap_err()
            .to_string()
            .contains("must be a map")
    );
    assert!(
        Flow::parse("{")
            .unwrap_err()
            .to_string()
            .contains("is no JSON")
    );
    assert!(
        Flow::parse("{}")
            .unwrap_err()
            .to_string()
            .contains("rootGroup")
    );
}

#[test]
fn process_groups_are_flattened_through_their_ports() {
    let flow = Flow::parse(
        "
MiNiFi Config Version: 3
Flow Controller: {name: nested}
Processors:
  - {name: make, class: GenerateFlowFile, scheduling period: 1 sec}
Process Groups:
  - name: inner
    id: g
    Input Ports: [{id: p, name: in}]
    Processors:
      - {name: log, class: LogAttribute, auto-terminated relationships list: [success]}
    Connections:
      - {source id: p, destination name: log}
Connections:
  - {source name: make, source relationship name: success, destination id: p}
",
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(flow.processors.len(), 3);
    assert_eq!(
        flow.processors.iter().filter(|p| p.group_id == "g").count(),
        2
    );
}

fn flow(properties: &str, relationship: &str) -> String {
    format!(
        "MiNiFi Config Version: 3
Flow Controller:
  name: test
Processors:
- name: make
  class: org.apache.nifi.minifi.GenerateFlowFile
  scheduling strategy: TIMER_DRIVEN
  scheduling period: 1 sec
  Properties:
{properties}
- name: log
  class: LogAttribute
  auto-terminated relationships list: [success]
Connections:
- source name: make
  source relationship name: {relationship}
  destination name: log
  max work queue size: 5
  flowfile expiration: 1 min
"
    )
    .replace("org.apache.nifi.minifi.", "")
}
