//! A flow in one shape and in the other is the same flow to our own agent, which reads both.

use agent::definition::Flow;
use fleet::{Bundles, FlowShape, convert};

const YAML: &str = "
MiNiFi Config Version: 3
Flow Controller: {id: root, name: line}
Processors:
- id: tail
  name: Tail
  class: org.apache.nifi.minifi.processors.TailFile
  scheduling strategy: TIMER_DRIVEN
  scheduling period: 50 ms
  penalization period: 3 sec
  yield period: 2 sec
  Properties: {File to Tail: /var/log/mill.log}
- id: publish
  name: Publish
  class: org.apache.nifi.minifi.processors.PublishKafka
  scheduling strategy: TIMER_DRIVEN
  scheduling period: 0 sec
  auto-terminated relationships list: [success]
  Properties: {Known Brokers: 'b:9092', Topic Name: t, Client Name: c}
Funnels:
- {id: funnel}
Connections:
- id: c1
  name: lines
  source id: tail
  source relationship names: [success]
  destination id: funnel
  max work queue size: 17
  max work queue data size: 3 MB
  flowfile expiration: 4 min
- id: c2
  name: on
  source id: funnel
  destination id: publish
  max work queue size: 100
  max work queue data size: 1 MB
  drop empty: true
- id: c3
  name: again
  source id: publish
  source relationship names: [failure]
  destination id: publish
  max work queue size: 0
  max work queue data size: 0 B
";

/// What matters of a flow, without where in its text it stands.
fn graph(text: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(text).unwrap();
    let flow = Flow::parse(text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
    let mut graph = Vec::new();
    for mut processor in flow.processors {
        processor.path.clear();
        processor.properties.sort();
        graph.push(format!("{processor:?}"));
    }
    for mut connection in flow.connections {
        connection.path.clear();
        graph.push(format!("{connection:?}"));
    }
    graph.sort();
    graph
}

#[test]
fn both_shapes_are_one_flow_to_the_agent() {
    let json = convert(YAML.as_bytes(), FlowShape::Json, &Bundles::default()).unwrap();
    assert!(json.left_out.is_empty(), "{:?}", json.left_out);
    assert!(json.text.starts_with(b"{"));
    assert_eq!(graph(&json.text), graph(YAML.as_bytes()));
    let back = convert(&json.text, FlowShape::Yaml, &Bundles::default()).unwrap();
    assert!(back.left_out.is_empty(), "{:?}", back.left_out);
    assert_eq!(graph(&back.text), graph(YAML.as_bytes()));
}
