//! Checks of both ways: what is told stays told, what cannot be told is named.

use super::*;

const YAML: &str = "
MiNiFi Config Version: 3
Flow Controller: {id: root-id, name: Line, comment: of the mill}
Processors:
- id: tail
  name: Tail
  class: TailFile
  max concurrent tasks: 2
  scheduling strategy: TIMER_DRIVEN
  scheduling period: 5 sec
  penalization period: 10 sec
  yield period: 2 sec
  run duration nanos: 25000000
  auto-terminated relationships list: [failure]
  Properties: {File to Tail: /var/log/mill.log, Rolling: '#{rolling}', Size: 7}
- {id: publish, name: Publish, class: org.x.PublishKafka}
Input Ports:
- {id: in, name: In}
Funnels:
- {id: funnel}
Connections:
- id: c1
  name: out
  source id: tail
  source relationship names: [success]
  destination id: funnel
  max work queue size: 17
  max work queue data size: 3 MB
  flowfile expiration: 4 min
  queue prioritizer class: org.x.First
- {id: c2, source id: funnel, destination name: Publish}
- {id: c3, source name: Tail, source relationship name: success, destination id: far}
Controller Services:
- {id: ssl, name: SSL, class: org.x.StandardSSL, Properties: {Keystore: k}}
Remote Process Groups:
- id: rpg
  name: far
  url: https://nifi.example.org
  timeout: 30 sec
  yield period: 10 sec
  transport protocol: HTTP
  Input Ports:
  - {id: far, name: Far, max concurrent tasks: 3, use compression: true, batch size: {count: 5}}
Process Groups:
- id: child
  name: Child
  Parameter Context Name: ours
  Processors:
  - {id: inner, name: Inner, class: org.x.LogAttribute}
Parameter Contexts:
- id: ctx
  name: ours
  Parameters:
  - {name: rolling, sensitive: false, value: 'yes'}
";

fn bundles() -> Bundles {
    Bundles::of(
        &serde_json::json!({"bundles": [{"group": "g", "artifact": "a", "version": "2.0",
        "componentManifest": {"processors": [{"type": "org.y.TailFile"}]}}]}),
    )
}

fn converted(text: &str, to: FlowShape) -> (Value, Vec<Problem>) {
    let made = convert(text.as_bytes(), to, &bundles()).unwrap();
    let (shape, flow) = read(&made.text).unwrap();
    assert_eq!(shape, to);
    (flow, made.left_out)
}

#[test]
fn yaml_is_told_in_nifis_words() {
    let (flow, left_out) = converted(YAML, FlowShape::Json);
    assert_eq!(left_out, []);
    let root = &flow["rootGroup"];
    for (found, wanted) in [
        (&root["identifier"], "root-id"),
        (&root["name"], "Line"),
        (&root["processors"][0]["type"], "org.y.TailFile"),
        (&root["processors"][0]["bundle"]["artifact"], "a"),
        (&root["processors"][0]["schedulingPeriod"], "5 sec"),
        (&root["processors"][0]["penaltyDuration"], "10 sec"),
        (&root["processors"][0]["yieldDuration"], "2 sec"),
        (&root["processors"][0]["properties"]["Size"], "7"),
        (
            &root["processors"][0]["properties"]["Rolling"],
            "#{rolling}",
        ),
        (
            &root["processors"][0]["autoTerminatedRelationships"][0],
            "failure",
        ),
        (&root["processors"][0]["groupIdentifier"], "root-id"),
        (&root["processors"][1]["type"], "org.x.PublishKafka"),
        (&root["connections"][0]["source"]["type"], "PROCESSOR"),
        (&root["connections"][0]["destination"]["type"], "FUNNEL"),
        (
            &root["connections"][0]["backPressureDataSizeThreshold"],
            "3 MB",
        ),
        (&root["connections"][0]["flowFileExpiration"], "4 min"),
        (&root["connections"][0]["prioritizers"][0], "org.x.First"),
        (&root["connections"][1]["destination"]["id"], "publish"),
        (&root["connections"][2]["source"]["id"], "tail"),
        (
            &root["connections"][2]["destination"]["type"],
            "REMOTE_INPUT_PORT",
        ),
        (&root["connections"][2]["destination"]["groupId"], "rpg"),
        (
            &root["controllerServices"][0]["properties"]["Keystore"],
            "k",
        ),
        (
            &root["remoteProcessGroups"][0]["targetUris"],
            "https://nifi.example.org",
        ),
        (&root["processGroups"][0]["processors"][0]["name"], "Inner"),
        (&root["processGroups"][0]["parameterContextName"], "ours"),
        (
            &flow["parameterContexts"][0]["parameters"][0]["value"],
            "yes",
        ),
    ] {
        assert_eq!(found, wanted);
    }
    assert_eq!(root["processors"][0]["runDurationMillis"], 25);
    assert_eq!(root["processors"][0]["concurrentlySchedulableTaskCount"], 2);
    assert_eq!(root["connections"][0]["backPressureObjectThreshold"], 17);
    let port = &root["remoteProcessGroups"][0]["inputPorts"][0];
    assert_eq!(port["targetId"], "far");
    assert_eq!(port["useCompression"], true);
}

#[test]
fn what_went_there_comes_back() {
    let json = convert(YAML.as_bytes(), FlowShape::Json, &bundles()).unwrap();
    let json = std::str::from_utf8(&json.text).unwrap();
    let (yaml, left_out) = converted(json, FlowShape::Yaml);
    assert_eq!(left_out, []);
    let again = write(FlowShape::Yaml, &yaml).unwrap();
    let again = convert(&again, FlowShape::Json, &bundles()).unwrap();
    assert_eq!(
        read(&again.text).unwrap().1,
        read(json.as_bytes()).unwrap().1
    );
    assert_eq!(yaml["Processors"][0]["run duration nanos"], 25_000_000);
    assert_eq!(yaml["Connections"][2]["destination id"], "far");
}

#[test]
fn a_text_in_the_wanted_shape_stays_as_it_is() {
    let made = convert(YAML.as_bytes(), FlowShape::Yaml, &bundles()).unwrap();
    assert_eq!(made.text, YAML.as_bytes());
    let json = r#"{"rootGroup": {"processors": [{"type": "X", "identifier": "1"}]}}"#;
    let made = convert(json.as_bytes(), FlowShape::Json, &bundles()).unwrap();
    assert_eq!(made.text, json.as_bytes());
    // YAML's words in JSON's signs are another shape for Java, and not for C++.
    let twin = r#"{"Processors": [{"name": "A", "class": "X", "id": "1"}]}"#;
    let (flow, _) = converted(twin, FlowShape::Json);
    assert_eq!(flow["rootGroup"]["processors"][0]["type"], "X");
    let (flow, _) = converted(twin, FlowShape::Yaml);
    assert_eq!(flow["Processors"][0]["class"], "X");
}

#[test]
fn ids_that_are_missing_are_made_the_same_each_time() {
    let yaml = "Processors:\n- {name: A, class: X}\n- {name: B, class: X}\nConnections:\n\
                - {source name: A, destination name: B, source relationship name: success}\n";
    let (one, left_out) = converted(yaml, FlowShape::Json);
    assert_eq!(left_out, []);
    assert_eq!(one, converted(yaml, FlowShape::Json).0);
    let root = &one["rootGroup"];
    let ends = &root["connections"][0];
    assert_eq!(ends["source"]["id"], root["processors"][0]["identifier"]);
    assert_eq!(
        ends["destination"]["id"],
        root["processors"][1]["identifier"]
    );
}

/// The components and properties of what was left out.
fn named(left_out: &[Problem]) -> Vec<(&str, &str)> {
    let name = |problem: &'_ Problem| problem.property.is_some();
    assert!(left_out.iter().all(|problem| !problem.reason.is_empty()));
    left_out
        .iter()
        .map(|problem| {
            let property = problem.property.as_deref().filter(|_| name(problem));
            (problem.component.as_str(), property.unwrap_or_default())
        })
        .collect()
}

#[test]
fn what_nifis_json_cannot_tell_is_named() {
    let yaml = "Processors:\n\
                - {id: a, name: A, class: X, scheduling strategy: EVENT_DRIVEN}\n\
                - {id: b, name: B, class: X, Properties: {Many: [{value: 1}, {value: 2}], One: [{value: 1}]}}\n\
                Connections:\n- {id: c, name: C, source id: a, destination id: nowhere}\n\
                Provenance Reporting: {port uuid: p}\nParameter Providers: [{name: P}]\n";
    let (flow, left_out) = converted(yaml, FlowShape::Json);
    assert_eq!(
        named(&left_out),
        [
            ("B", "Many"),
            ("C", "destination"),
            ("the flow", "Parameter Providers"),
            ("the flow", "Provenance Reporting"),
        ]
    );
    let root = &flow["rootGroup"];
    assert_eq!(root["processors"][0]["schedulingStrategy"], "TIMER_DRIVEN");
    assert_eq!(
        root["processors"][1]["properties"],
        serde_json::json!({"One": "1"})
    );
    assert_eq!(root["connections"], serde_json::json!([]));
}

#[test]
fn what_yaml_cannot_tell_is_named() {
    let json = serde_json::json!({
        "reportingTasks": [{"name": "r"}],
        "rootGroup": {"name": "Root", "variables": {"x": "1"}, "flowFileConcurrency": "UNBOUNDED",
            "processors": [
                {"identifier": "a", "name": "A", "type": "X", "scheduledState": "DISABLED"},
                {"identifier": "b", "name": "B", "type": "X", "retriedRelationships": ["failure"]}],
            "connections": [{"identifier": "c", "name": "C", "source": {"id": "a"},
                "destination": {"id": "b"}, "loadBalanceStrategy": "ROUND_ROBIN",
                "prioritizers": ["p", "q"]}]},
    });
    let (flow, left_out) = converted(&json.to_string(), FlowShape::Yaml);
    assert_eq!(
        named(&left_out),
        [
            ("the flow", "reportingTasks"),
            ("Root", "variables"),
            ("A", ""),
            ("B", "retriedRelationships"),
            ("C", "loadBalanceStrategy"),
            ("C", "prioritizers"),
        ]
    );
    assert_eq!(flow["Connections"][0]["queue prioritizer class"], "p");
}

#[test]
fn no_flow_is_too_odd() {
    for text in [
        r#"{"rootGroup": {"processors": [{"type": "X", "properties": 7}], "connections": [7, {}]}}"#,
        r#"{"rootGroup": {"processGroups": [{"remoteProcessGroups": [{"inputPorts": [1]}]}]}}"#,
        "Processors:\nConnections: [1, {source id: 7}]\nInput Ports: [x]\n",
        "Processors: []\nProcess Groups:\n- Funnels: [{}, {}]\n  Connections: [{}]\n",
    ] {
        for to in [FlowShape::Json, FlowShape::Yaml] {
            let made = convert(text.as_bytes(), to, &Bundles::default()).unwrap();
            assert_eq!(read(&made.text).unwrap().0, to, "{text}");
        }
    }
}
