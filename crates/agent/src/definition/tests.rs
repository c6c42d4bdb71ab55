//! Flows in both formats, and what is said about bad ones.

use base::UnixMillis;

use super::*;
use crate::bulletins::Level;
use crate::processors::Settings;

/// A flow without what only one format can spell, ids made alike where `by_name` says so.
fn bare(text: &str, by_name: bool) -> Flow {
    let mut flow = Flow::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
    let name_of: std::collections::HashMap<String, String> = flow
        .processors
        .iter()
        .map(|p| (p.id.clone(), p.name.clone()))
        .collect();
    let id = |id: &mut String, name: &str| {
        if by_name {
            *id = name.to_owned();
        }
    };
    for processor in &mut flow.processors {
        processor.path.clear();
        processor.properties.sort();
        id(&mut processor.id, &processor.name);
    }
    for service in &mut flow.services {
        service.path.clear();
        service.properties.sort();
    }
    for connection in &mut flow.connections {
        connection.path.clear();
        id(&mut connection.id, &connection.name);
        let (source, destination) = (
            &name_of[&connection.source],
            &name_of[&connection.destination],
        );
        id(&mut connection.source, source);
        id(&mut connection.destination, destination);
    }
    flow
}

/// A flow of `tests/flows` in both formats, which must be one.
fn twins(name: &str, by_name: bool) -> Flow {
    let read = |ending: &str| {
        let path = format!("{}/tests/flows/{name}.{ending}", env!("CARGO_MANIFEST_DIR"));
        bare(&std::fs::read_to_string(path).unwrap(), by_name)
    };
    let flow = read("yml");
    assert_eq!(flow, read("json"));
    assert_eq!(flow.notes, Problems::default());
    flow
}

#[test]
fn yaml_and_its_json_twin_are_one_flow() {
    let flow = twins("lines-to-kafka", false);
    assert_eq!(flow.processors.len(), 5);
    let tail = &flow.processors[0];
    assert_eq!(tail.kind.name, "TailFile");
    assert_eq!(
        tail.scheduling,
        Scheduling::TimerDriven {
            period: Duration::from_millis(100),
            is_set: true
        }
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
fn services_and_parameters_are_the_same_in_both_formats() {
    let flow = twins("services-and-parameters", false);
    let value = |properties: &[(String, String)], name: &str| {
        let found = properties.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let [proxy, state] = flow.services.as_slice() else {
        panic!("{:?}", flow.services);
    };
    assert_eq!(
        value(&proxy.properties, "Proxy Server Host"),
        "proxy.example"
    );
    assert_eq!(
        value(&proxy.properties, "Proxy User Password"),
        "open-sesame"
    );
    assert_eq!(
        value(&state.properties, "Auto Persistence Interval"),
        "0 sec"
    );
    let make = &flow.processors[0];
    let text = "from site, and #{text} as it stands";
    assert_eq!(value(&make.properties, "Custom Text"), text);
    assert!(matches!(make.scheduling, Scheduling::CronDriven(_)));
    assert_eq!(make.run_duration, Duration::from_millis(25));
    assert_eq!(make.bulletin_level, Level::Error);
    assert_eq!(make.penalization, Duration::from_secs(20));
    assert_eq!(flow.processors[1].tasks_max, 4);
    let queue = &flow.connections[0];
    assert_eq!((queue.flow_files_max, queue.bytes_max), (0, 1 << 30));
    assert!(queue.drop_empty);
    assert_eq!(queue.prioritizers, [Prioritizer::NewestFlowFileFirst]);
}

#[test]
fn groups_with_ports_and_funnels_are_the_same_in_both_formats() {
    let flow = twins("groups-and-funnels", false);
    let inner = flow.processors.iter().filter(|p| p.group_id == "g");
    assert_eq!(inner.count(), 3);
    let made = flow.processors.iter().find(|p| p.id == "b").unwrap();
    assert_eq!(
        made.properties,
        [("File Size".to_owned(), "7 B".to_owned())]
    );
}

#[test]
fn version_1_with_its_names_and_sections_is_read_unchanged() {
    let flow = twins("version-1", true);
    assert_eq!(flow.connections[0].flow_files_max, 10_000);
    assert_eq!(flow.connections[0].expiration, Duration::ZERO);
    assert_eq!(flow.connections[0].source, "TailAppLog");
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
fn values_are_taken_as_minifi_spells_them() {
    for (class, name, values) in [
        ("GetFile", "Keep Source File", ["TRUE", "False"]),
        ("GetFile", "Minimum File Age", ["1 month", "2 years"]),
        ("GetFile", "Maximum File Size", ["1 K", "3 PB"]),
        ("HashContent", "Hash Algorithm", ["sha-256", "md5"]),
        ("LogAttribute", "Log Level", ["critical", "trace"]),
        ("ListenUDP", "Max Size of Message Queue", ["0", "1"]),
        ("ConsumeMQTT", "Topic Alias Maximum", ["10", "0"]),
        ("PutTCP", "Timeout", ["${literal('5 sec')}", "5 sec"]),
        ("PutS3Object", "Checksum Algorithm", ["SHA256", "CRC32"]),
        (
            "PutS3Object",
            "Multipart Upload AgeOff Interval",
            ["30 min", "1 h"],
        ),
        (
            "PutS3Object",
            "Server Side Encryption",
            ["aws_kms_dsse", "AES256"],
        ),
    ] {
        for value in values {
            let kind = crate::processors::find(class).unwrap();
            let needed = [
                ("Input Directory", "/tmp"),
                ("Listening Port", "1"),
                ("Port", "1"),
                ("Bucket", "b"),
                ("Access Key", "a"),
                ("Secret Key", "s"),
                ("Topic", "t"),
                ("Broker URI", "mqtt://h"),
            ];
            let has = |name: &str| kind.properties.iter().any(|own| own.name == name);
            let needed = needed.into_iter().filter(|(name, _)| has(name));
            let properties = needed.chain([(name, value)]);
            let properties: String = properties
                .map(|(name, value)| format!("    {name}: \"{value}\"\n"))
                .collect();
            let flow = Flow::parse(&format!(
                "MiNiFi Config Version: 3
Flow Controller: {{name: one}}
Processors:
- name: one
  class: {class}
  max concurrent tasks: 255
  Properties:
{properties}"
            ));
            let flow = flow.unwrap_or_else(|problems| panic!("{problems}"));
            let settings = Settings::new(UnixMillis(0), &flow.processors[0]);
            (kind.make)(&settings).unwrap_or_else(|error| panic!("{name}: {value}: {error}"));
        }
    }
}

#[test]
fn what_means_nothing_here_is_taken_with_a_note() {
    let text = "
MiNiFi Config Version: 3
Flow Controller: {name: idle}
Processors:
- name: to kafka
  class: PublishKafka
  auto-terminated relationships list: [success, failure]
  Properties: {Known Brokers: 'h:1', Topic Name: t, Client Name: c, Kerberos Service Name: kafka,
    Max Request Size: '1000000'}
Controller Services:
- {name: ThreadPoolManager, id: p, class: LinuxPowerManagerService, Properties: {Wait Period: 1 s}}
- {name: ssl, id: s, class: SSLContextService, Properties: {Server Cert Store: ROOT}}
Remote Process Groups:
- name: NiFi
  url: http://a:8080/nifi
  Output Ports:
  - {id: o, name: orders, Properties: {Port UUID: other, Idle Timeout: 15 s}}
";
    let flow = Flow::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(flow.services.len(), 1);
    let port = &flow.processors[1].properties;
    assert!(
        port.contains(&("Port ID".to_owned(), "other".to_owned())),
        "{port:?}"
    );
    let told = flow.notes.to_string();
    for place in [
        "'to kafka' / Properties / Kerberos Service Name: has no effect",
        "'to kafka' / Properties / Max Request Size: has no effect",
        "'ThreadPoolManager': has no effect",
        "'orders' / Properties / Idle Timeout: has no effect",
        "'ssl' / Properties / Server Cert Store: has no effect",
    ] {
        assert!(told.contains(place), "{told}");
    }
    let problems = Flow::parse(&text.replace("Max Request Size", "Max Request Sise"));
    let problems = problems.unwrap_err().to_string();
    assert!(problems.contains("has no such property"), "{problems}");
}

#[test]
fn what_nifi_knows_and_minifi_does_not_is_passed_over_in_json() {
    let text = r#"{"rootGroup": {"name": "nifi", "identifier": "g",
        "processors": [{"identifier": "m", "name": "merge", "type": "org.apache.nifi.MergeContent",
            "autoTerminatedRelationships": ["merged", "original", "failure"],
            "properties": {"Merge Strategy": "Defragment", "Compression Level": "1"}}],
        "controllerServices": [{"identifier": "d", "name": "d", "type": "org.x.DistributedMapCache",
            "properties": {"Port": "4557"}}]}}"#;
    let flow = Flow::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
    let told = flow.notes.to_string();
    for place in [
        "'merge' / Properties / Compression Level: is not known",
        "'d': is not known",
    ] {
        assert!(told.contains(place), "{told}");
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
            "has no input, so it must be TIMER_DRIVEN or CRON_DRIVEN",
        ),
        (
            "TIMER_DRIVEN",
            "CRON_DRIVEN",
            "'1 sec' is no cron expression: it has 2 fields",
        ),
        (
            "TIMER_DRIVEN",
            "LUNCH_DRIVEN",
            "'LUNCH_DRIVEN' is none of TIMER_DRIVEN, EVENT_DRIVEN, CRON_DRIVEN",
        ),
        (
            "scheduling period: 1 sec",
            "max concurrent tasks: 0",
            "max concurrent tasks: '0' is no number of tasks",
        ),
        (
            "scheduling period: 1 sec",
            "run duration nanos: -1",
            "run duration nanos: '-1' is no whole number",
        ),
        (
            "scheduling period: 1 sec",
            "bulletin level: LOUD",
            "bulletin level: 'LOUD' is no bulletin level",
        ),
        (
            "max work queue size: 5",
            "queue prioritizer class: LuckyFirstPrioritizer",
            "there is no prioritizer 'LuckyFirstPrioritizer'",
        ),
        (
            "max work queue size: 5",
            "swap threshold: some",
            "swap threshold: 'some' is no number",
        ),
        (
            "    Batch Size: 1",
            "    Batch Size: '#{size}'",
            "Batch Size: '#{size}' is a parameter, and the process group has no parameter context",
        ),
        (
            "Connections:",
            "Parameter Context Name: gone\nConnections:",
            "Parameter Context Name: there is no parameter context 'gone'",
        ),
        (
            "Connections:",
            "Provenance Reporting: {port uuid: p, batch size: 1}\nConnections:",
            "Provenance Reporting / port uuid: provenance is not reported to a port",
        ),
        (
            "Connections:",
            "Parameter Providers: [{id: p, name: p, class: GuessingProvider}]\nConnections:",
            "there is no parameter provider 'GuessingProvider'",
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
fn a_period_that_the_flow_sets_is_told_from_the_default() {
    let flow = Flow::parse(
        "
MiNiFi Config Version: 3
Flow Controller: {name: periods}
Processors:
  - {name: make, class: GenerateFlowFile, scheduling period: 1 sec}
  - {name: log, class: LogAttribute, auto-terminated relationships list: [success]}
Connections:
  - {source name: make, source relationship name: success, destination name: log}
",
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    let period = Duration::from_secs(1);
    for (processor, is_set) in flow.processors.iter().zip([true, false]) {
        let expected = Scheduling::TimerDriven { period, is_set };
        assert_eq!(processor.scheduling, expected, "{}", processor.name);
    }
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

#[test]
fn providers_fill_contexts_and_sealed_values_open() {
    let key = crate::parameters::SecretKey::parse(&"07".repeat(32)).unwrap();
    let sealed = key.seal("open-sesame").unwrap();
    let text = flow("    Custom Text: '#{GREETING}'", "success").replace(
        "Connections:",
        &format!(
            "Parameter Context Name: env
Parameter Providers:
- name: env provider
  id: p
  class: EnvironmentVariableParameterProvider
  Properties: {{Parameter Group Name: env, Environment Variable Inclusion Strategy: Comma-Separated,
    Include Environment Variables: 'GREETING,SECRET', Sensitive Parameter Scope: selected,
    Sensitive Parameter List: SECRET}}
Controller Services:
- {{name: sealed, class: ProxyConfigurationService,
   Properties: {{Proxy Server Host: p, Proxy User Name: u, Proxy User Password: '{sealed}'}}}}
- {{name: given, class: ProxyConfigurationService,
   Properties: {{Proxy Server Host: p, Proxy User Name: u, Proxy User Password: '#{{SECRET}}'}}}}
Connections:"
        ),
    );
    let surroundings = Surroundings {
        environment: [("GREETING", "hello"), ("SECRET", "hush"), ("OTHER", "x")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        key: Some(key),
        ..Surroundings::default()
    };
    let flow = Flow::load(&text, &surroundings).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(flow.processors[0].properties[0].1, "hello");
    assert_eq!(flow.services[0].properties[2].1, "open-sesame");
    assert_eq!(flow.services[1].properties[2].1, "hush");
    let problems = Flow::parse(&text).unwrap_err().to_string();
    for message in [
        "the value is sealed, and there is no key",
        "no parameter 'GREETING'",
    ] {
        assert!(problems.contains(message), "{problems}");
    }
}

#[test]
fn properties_name_services_by_name_or_id_and_only_fitting_ones() {
    let text = flow("    Batch Size: 1", "success").replace(
        "Connections:",
        "Controller Services:
- {name: ssl, id: s1, class: SSLContextService}
- {name: ssl, id: s2, class: SSLContextService}
- {name: proxy, id: s3, class: ProxyConfigurationService, Properties: {Proxy Server Host: p}}
Connections:",
    );
    // A service that is used twice by one name needs its id.
    let raw = |name: &str| {
        let mut problems = Problems::default();
        let mut raw = read::read(&text, &mut problems).unwrap();
        let known = services::Known::new(&raw.services, &mut raw.notes, &mut problems);
        known.resolve(name, "SSLContextService")
    };
    assert_eq!(raw("s2"), Ok("s2".to_owned()));
    assert!(raw("ssl").unwrap_err().contains("is not unique"));
    assert!(
        raw("tls")
            .unwrap_err()
            .contains("no controller service 'tls'")
    );
    let error = raw("proxy").unwrap_err();
    assert!(
        error.contains("is a ProxyConfigurationService and no SSL"),
        "{error}"
    );
}

#[test]
fn ports_of_remote_groups_become_processors_alike_in_both_formats() {
    let yaml = "
MiNiFi Config Version: 3
Flow Controller: {name: remote}
Remote Process Groups:
- name: NiFi
  id: r
  url: http://a:8080/nifi,http://b:8080/nifi
  timeout: 20 sec
  yield period: 10 sec
  transport protocol: HTTP
  proxy host: p
  proxy port: 3128
  Input Ports:
  - id: i
    name: lines
    max concurrent tasks: 2
    use compression: true
    batch size: {count: 10, size: 1 MB, duration: 1 sec}
    Properties: {SSL Context Service: ssl}
  Output Ports:
  - {id: o, name: orders}
";
    let json = r#"{"rootGroup": {"name": "remote", "remoteProcessGroups": [{
        "identifier": "r", "name": "NiFi", "targetUris": "http://a:8080/nifi,http://b:8080/nifi",
        "communicationsTimeout": "20 sec", "yieldDuration": "10 sec", "transportProtocol": "HTTP",
        "proxyHost": "p", "proxyPort": 3128, "localNetworkInterface": "",
        "inputPorts": [{"identifier": "i", "name": "lines", "targetId": "i",
            "concurrentlySchedulableTaskCount": 2, "useCompression": true,
            "batchSize": {"count": 10, "size": "1 MB", "duration": "1 sec"},
            "properties": {"SSL Context Service": "ssl"}}],
        "outputPorts": [{"identifier": "o", "name": "orders"}]}]}}"#;
    let ports = |text: &str| {
        let mut problems = Problems::default();
        let raw = read::read(text, &mut problems).unwrap();
        assert_eq!(problems, Problems::default());
        let port = |p: read::RawProcessor| {
            (
                (p.id, p.class, p.strategy, p.period),
                (p.tasks_max, p.yield_period),
                p.properties,
            )
        };
        raw.processors.into_iter().map(port).collect::<Vec<_>>()
    };
    let found = ports(yaml);
    assert_eq!(found, ports(json));
    let [(input, (tasks, rest), properties), (output, ..)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(
        (input.1.as_str(), input.2.as_str()),
        (remote::INPUT_PORT, "EVENT_DRIVEN")
    );
    assert_eq!(
        (output.1.as_str(), output.2.as_str()),
        (remote::OUTPUT_PORT, "TIMER_DRIVEN")
    );
    assert_eq!((*tasks, *rest), (2, Duration::from_secs(10)));
    for (name, value) in [
        ("URL", "http://a:8080/nifi,http://b:8080/nifi"),
        ("Port ID", "i"),
        ("Port Name", "lines"),
        ("Transport Protocol", "HTTP"),
        ("Proxy Port", "3128"),
        ("Use Compression", "true"),
        ("Batch Size", "1 MB"),
        ("SSL Context Service", "ssl"),
    ] {
        let property = (name.to_owned(), value.to_owned());
        assert!(properties.contains(&property), "{name}: {properties:?}");
    }
}

#[test]
fn what_json_carries_beyond_a_flow_is_noted_with_its_path() {
    let flow = Flow::parse(
        r#"{"rootGroup": {"name": "n", "colour": "red", "processors": [
        {"identifier": "p", "name": "p", "type": "GenerateFlowFile", "shape": "round",
         "scheduledState": "DISABLED", "autoTerminatedRelationships": ["success"]}]}}"#,
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    let notes = flow.notes.to_string();
    for note in [
        "rootGroup / colour: is not known",
        "processors[0] 'p' / shape: is not known",
        "'p' / scheduledState: 'DISABLED' has no effect here",
    ] {
        assert!(notes.contains(note), "{notes}");
    }
}

#[test]
fn what_is_not_wired_is_noted() {
    let flow = Flow::parse(
        "
MiNiFi Config Version: 3
Flow Controller: {name: loose}
Processors:
- {name: route, class: RouteOnAttribute, auto-terminated relationships list: [success, unmatched]}
",
    )
    .unwrap_or_else(|problems| panic!("{problems}"));
    let notes = flow.notes.to_string();
    for note in [
        "'route': auto-terminates 'success', which RouteOnAttribute does not have",
        "'route': relationship 'failure' is neither connected nor auto-terminated",
        "'route': RouteOnAttribute needs an incoming connection",
    ] {
        assert!(notes.contains(note), "{notes}");
    }
}

/// Flows of `tests/flows/exported`, with each property that a designer writes, at its default.
#[test]
fn exported_flows_are_read_unchanged() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flows/exported");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let flow = Flow::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(flow.notes, Problems::default(), "{}", path.display());
        for processor in &flow.processors {
            let settings = Settings::new(UnixMillis(0), processor);
            let made = (processor.kind.make)(&settings);
            made.unwrap_or_else(|error| panic!("{}: {error}", processor.name));
        }
        count += 1;
    }
    assert_eq!(count, 4);
}

#[test]
fn yaml_that_nests_too_deep_is_refused_before_it_is_parsed() {
    let deep = format!("Processors: {}", "[".repeat(100_000));
    let problems = Flow::parse(&deep).unwrap_err().to_string();
    assert!(
        problems.contains("brackets nest too deep at line 1 column 4109"),
        "{problems}"
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
