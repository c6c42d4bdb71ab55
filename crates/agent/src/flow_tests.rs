//! Whole flows: back pressure, updates, crashes.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base::Rng;
use bytes::Bytes;

use crate::engine::Engine;
use crate::supervisor::{StopTimes, Supervisor, Updated};
use crate::testing::{Broker, ground, runtime, start, wait_for_count, wait_or_tell, wait_until};

/// TailFile to PublishKafka, with what tests vary.
fn tail_to_kafka(file: &Path, broker: &str, more: &str) -> String {
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: tail}}
Processors:
- name: tail
  id: tail
  class: TailFile
  scheduling period: 0 ms
  Properties: {{File to Tail: {file}, Keep Delimiter: false}}
- name: publish
  id: publish
  class: PublishKafka
  scheduling strategy: EVENT_DRIVEN
  yield period: 50 ms
  auto-terminated relationships list: [success, failure]
  Properties:
    Known Brokers: {broker}
    Topic Name: lines
    Client Name: test
    Delivery Guarantee: all
    Queue Buffering Max Time: 0 ms
    {more}
Connections:
- id: lines
  source name: tail
  source relationship name: success
  destination name: publish
  max work queue size: 3000
",
        file = file.display()
    )
}

fn append(file: &Path, lines: std::ops::Range<usize>) {
    let mut text = String::new();
    for line in lines {
        text.push_str(&format!("line {line}\n"));
    }
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Every line once and in order; the first that is not says so.
fn assert_lines(values: &[Bytes], count: usize) {
    for (index, value) in values.iter().enumerate() {
        let expected = format!("line {index}");
        assert_eq!(
            String::from_utf8_lossy(value),
            expected,
            "at {index} of {}",
            values.len()
        );
    }
    assert_eq!(values.len(), count);
}

fn queued(engine: &Engine, id: &str) -> u64 {
    engine
        .queues()
        .iter()
        .find(|queue| queue.id == id)
        .unwrap()
        .flow_files
}

#[test]
fn lines_reach_the_broker_once_over_lost_answers_rotation_and_truncation() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let file = dir.path().join("app.log");
    let broker = Broker::start(1);
    broker.break_each(7);
    let ground = ground(dir.path(), &runtime);
    append(&file, 0..5_000);
    let engine = start(
        &ground,
        &tail_to_kafka(&file, &broker.address(), "Batch Size: 700"),
    );
    wait_until("the first lines are there", || {
        broker.count("lines") == 5_000
    });
    // Renamed, with a rest and an unfinished last line; the new file comes at once.
    append(&file, 5_000..5_500);
    OpenOptions::new()
        .append(true)
        .open(&file)
        .unwrap()
        .write_all(b"line 5500")
        .unwrap();
    std::fs::rename(&file, dir.path().join("app.log.1")).unwrap();
    append(&file, 5_501..6_000);
    wait_until("the rolled lines are there", || {
        broker.count("lines") >= 6_000
    });
    // Copied and truncated in place.
    append(&file, 6_000..6_100);
    std::fs::copy(&file, dir.path().join("app.log.2")).unwrap();
    OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&file)
        .unwrap();
    append(&file, 6_100..6_110);
    wait_until("the copied lines are there", || {
        broker.count("lines") >= 6_110
    });
    engine.stop();
    assert_lines(&broker.values("lines", 0), 6_110);
    assert!(
        broker.duplicates() > 0,
        "no answer was lost, so nothing was tried"
    );
}

#[test]
fn each_line_and_each_bundle_of_lines_has_a_name_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let file = dir.path().join("app.log");
    append(&file, 0..20);
    let flow = "
MiNiFi Config Version: 3
Flow Controller: {name: lines}
Processors:
- {name: tail, class: TailFile, scheduling period: 10 ms, Properties: {File to Tail: '{dir}/app.log'}}
- {name: mark, class: UpdateAttribute, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [failure], Properties: {was: '${filename}'}}
- {name: change, class: ReplaceText, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [failure],
   Properties: {Replacement Strategy: Prepend, Replacement Value: '${was} ${TextFragmentAttribute.offset}: '}}
- {name: one, class: PutFile, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [success, failure], Properties: {Directory: '{dir}/one'}}
- {name: merge, class: MergeContent, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [original, failure],
   Properties: {Merge Strategy: Bin-Packing Algorithm, Minimum Number of Entries: 10,
     Maximum Number of Entries: 10}}
- {name: pack, class: CompressContent, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [failure],
   Properties: {Compression Format: gzip, Update Filename: true, Encapsulate in TAR: false}}
- {name: ten, class: PutFile, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [success, failure], Properties: {Directory: '{dir}/ten'}}
Connections:
- {source name: tail, source relationship name: success, destination name: mark}
- {source name: mark, source relationship name: success, destination name: change}
- {source name: change, source relationship name: success, destination name: one}
- {source name: tail, source relationship name: success, destination name: merge}
- {source name: merge, source relationship name: merged, destination name: pack}
- {source name: pack, source relationship name: success, destination name: ten}
";
    let flow = flow.replace("{dir}", &dir.path().display().to_string());
    let ground = ground(dir.path(), &runtime);
    let engine = start(&ground, &flow);
    let names = |folder: &str| {
        let entries = std::fs::read_dir(dir.path().join(folder));
        let names = entries.into_iter().flatten().map(|entry| entry.unwrap());
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    wait_or_tell(&ground, "all is written", || {
        names("one").len() == 20 && names("ten").len() == 2
    });
    engine.stop();
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert_eq!(
        String::from_utf8(read("one/app.7-13.log")).unwrap(),
        "app.7-13.log 7: line 1\n"
    );
    let mut text = String::new();
    for name in names("ten") {
        assert!(name.ends_with(".gz"), "{name}");
        let packed = read(&format!("ten/{name}"));
        let mut packed = flate2::read::GzDecoder::new(packed.as_slice());
        std::io::Read::read_to_string(&mut packed, &mut text).unwrap();
    }
    let lines: Vec<&str> = text.lines().collect();
    let expected: Vec<String> = (0..20).map(|n| format!("line {n}")).collect();
    assert_eq!(lines.len(), 20, "{text}");
    assert!(expected.iter().all(|line| lines.contains(&line.as_str())));
}

#[test]
fn a_broker_that_lost_the_producer_gets_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let file = dir.path().join("app.log");
    let broker = Broker::start(1);
    let ground = ground(dir.path(), &runtime);
    append(&file, 0..10);
    let engine = start(&ground, &tail_to_kafka(&file, &broker.address(), ""));
    wait_until("the first lines are there", || broker.count("lines") == 10);
    broker.forget_producers();
    append(&file, 10..20);
    wait_until("the others are there", || broker.count("lines") >= 20);
    engine.stop();
    assert_lines(&broker.values("lines", 0), 20);
    let bulletins = ground
        .bulletins
        .since(ground.clock.now(), Duration::from_secs(60));
    assert!(
        bulletins
            .iter()
            .any(|b| b.message.contains("may be there twice")),
        "{bulletins:?}"
    );
}

#[test]
fn a_full_connection_holds_its_source_back() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let file = dir.path().join("app.log");
    let broker = Broker::start(1);
    broker.set_away(true);
    let ground = ground(dir.path(), &runtime);
    // More lines than a connection and several blocks hold.
    append(&file, 0..400_000);
    let engine = start(&ground, &tail_to_kafka(&file, &broker.address(), ""));
    wait_until("the connection is full", || {
        queued(&engine, "lines") >= 3_000
    });
    std::thread::sleep(Duration::from_millis(300));
    let made = engine.nodes()[0].flow_files_out;
    // One session's overshoot at most.
    let made_max = 3_000 + crate::limits::SESSION_FLOW_FILES_MAX as u64;
    assert!(
        made <= made_max,
        "{made} lines were read in spite of the full connection"
    );
    broker.set_away(false);
    wait_until("all lines are there", || broker.count("lines") >= 400_000);
    engine.stop();
    assert_lines(&broker.values("lines", 0), 400_000);
    let status = ground.repository.status();
    assert!(
        status.bytes_on_disk < 64 << 20,
        "nothing was reclaimed: {status:?}"
    );
}

#[test]
fn an_update_keeps_what_is_queued_and_a_bad_flow_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let file = dir.path().join("app.log");
    let (away, broker) = (Broker::start(1), Broker::start(1));
    away.set_away(true);
    append(&file, 0..500);
    let flow = dir.path().join("flow.yml");
    std::fs::write(&flow, tail_to_kafka(&file, &away.address(), "")).unwrap();
    let supervisor = Supervisor::new(
        ground(dir.path(), &runtime),
        dir.path(),
        StopTimes::default(),
    );
    supervisor.start(Some(&flow)).unwrap();
    wait_until("lines are queued", || {
        supervisor.nodes()[0].flow_files_out == 500
    });
    let bad = tail_to_kafka(&file, "nowhere", "");
    let error = supervisor
        .update(Some("bad".to_owned()), &bad)
        .unwrap_err()
        .to_string();
    assert!(error.contains("'nowhere' is no host:port"), "{error}");
    assert!(supervisor.is_running());
    let good = tail_to_kafka(&file, &broker.address(), "");
    assert_eq!(
        supervisor.update(Some("good".to_owned()), &good).unwrap(),
        Updated::Applied
    );
    assert_eq!(
        supervisor.update(Some("good".to_owned()), &good).unwrap(),
        Updated::Same
    );
    append(&file, 500..600);
    wait_until("all lines are there", || broker.count("lines") >= 600);
    supervisor.stop();
    assert_lines(&broker.values("lines", 0), 600);
    drop(supervisor);
    // The next start runs what was applied last, whatever the file says.
    let supervisor = Supervisor::new(
        ground(dir.path(), &runtime),
        dir.path(),
        StopTimes::default(),
    );
    supervisor.start(Some(&flow)).unwrap();
    assert_eq!(supervisor.flow_id().as_deref(), Some("good"));
    append(&file, 600..700);
    wait_until("the new lines are there", || broker.count("lines") >= 700);
    supervisor.stop();
    assert_lines(&broker.values("lines", 0), 700);
}

#[test]
fn killed_twenty_times_every_line_arrives_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.log");
    let broker = Broker::start(1);
    broker.break_each(97);
    let flow = dir.path().join("flow.yml");
    std::fs::write(
        &flow,
        tail_to_kafka(&file, &broker.address(), "Batch Size: 500"),
    )
    .unwrap();
    let mut random = Rng::from_entropy();
    let mut written = 0;
    let mut progress = Vec::new();
    for round in 0..20 {
        let mut child = agent(dir.path(), &flow);
        // Grows while it runs, and is rolled now and then.
        for _ in 0..=random.below(12) {
            let more = 1 + random.below(4_000) as usize;
            append(&file, written..written + more);
            written += more;
            std::thread::sleep(Duration::from_millis(random.below(40)));
        }
        if round % 5 == 4 {
            std::fs::rename(&file, dir.path().join(format!("app.log.{round}"))).unwrap();
            append(&file, written..written + 10);
            written += 10;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        progress.push(broker.count("lines"));
    }
    let mut child = agent(dir.path(), &flow);
    wait_for_count("all lines are there", written, || broker.count("lines"));
    let terminated = Command::new("kill")
        .arg(child.id().to_string())
        .status()
        .unwrap();
    assert!(terminated.success());
    assert!(child.wait().unwrap().success(), "SIGTERM is a clean stop");
    assert!(
        progress.windows(2).any(|pair| pair[0] < pair[1]),
        "no round sent anything"
    );
    assert_lines(&broker.values("lines", 0), written);
}

/// This very test binary, run as an agent.
pub(crate) fn agent(dir: &Path, flow: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "flow_tests::as_a_child_run_the_agent",
            "--ignored",
            "--nocapture",
        ])
        .env("THALWEG_AGENT_TEST_DATA", dir.join("data"))
        .env("THALWEG_AGENT_TEST_FLOW", flow)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "run by other tests as a process of its own"]
fn as_a_child_run_the_agent() {
    let (Some(data), Some(flow)) = (
        std::env::var_os("THALWEG_AGENT_TEST_DATA"),
        std::env::var_os("THALWEG_AGENT_TEST_FLOW"),
    ) else {
        return;
    };
    let run = crate::cli::RunArgs {
        data: Some(data.into()),
        flow: Some(flow.into()),
        ..crate::cli::RunArgs::default()
    };
    let logs = crate::Logs::silent();
    crate::cli::run(crate::cli::Args { command: None, run }, &logs).unwrap();
}

#[test]
fn routes_and_attributes_lead_each_flow_file_its_way() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let broker = Broker::start(3);
    let text = format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: routes}}
Processors:
- name: make
  class: GenerateFlowFile
  scheduling period: 10 ms
  Properties: {{Batch Size: 10, Data Format: Text, Unique FlowFiles: false, Custom Text: hello}}
- name: mark
  class: UpdateAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure]
  Properties: {{kind: \"${{uuid:matches('.*[0-7]'):ifElse('low', 'high')}}\"}}
- name: route
  class: RouteOnAttribute
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [failure, unmatched]
  Properties: {{high: \"${{kind:equals('high')}}\", any: 'true'}}
- name: publish
  class: PublishKafka
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success, failure]
  Properties:
    Known Brokers: {broker}
    Topic Name: topic-${{kind}}
    Kafka Key: ${{kind}}
    Client Name: test
Connections:
- {{source name: make, source relationship name: success, destination name: mark}}
- {{source name: mark, source relationship name: success, destination name: route}}
- {{source name: route, source relationship names: [high, any], destination name: publish}}
",
        broker = broker.address()
    );
    let engine = start(&ground, &text);
    wait_until("both kinds are there", || {
        broker.count("topic-low") > 20 && broker.count("topic-high") > 40
    });
    engine.stop();
    // A key stays on its partition.
    let used = (0..3)
        .filter(|p| !broker.values("topic-low", *p).is_empty())
        .count();
    assert_eq!(used, 1);
    drop(Arc::clone(&ground.repository));
}
