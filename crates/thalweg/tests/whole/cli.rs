//! The client commands against a running process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Up, curl, eventually, folder, succeed, text, thalweg_command};

#[test]
fn produced_lines_come_back_and_a_group_goes_on_where_it_stopped() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let file = dir.path().join("lines");
    let produce = |lines: &str| {
        std::fs::write(&file, lines).unwrap();
        let output = up.cli(&[
            "produce",
            "/s/cli:t",
            file.to_str().unwrap(),
            "--key-separator",
            "=",
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let consume = |max: &str| {
        let arguments = [
            "consume",
            "/s/cli:t",
            "--from-beginning",
            "--group",
            "g",
            "--max",
            max,
        ];
        let output = up.cli(&arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(produce("a=1\nb=2\n\nplain\n"), "4 records acknowledged\n");
    assert_eq!(consume("4"), "1\n2\n\nplain\n");
    produce("c=3\n");
    assert_eq!(consume("1"), "3\n");
}

#[test]
fn lines_of_a_pipe_that_stays_open_are_sent_as_they_come_and_the_last_at_a_stop() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut produce = thalweg_command();
    let server = up.url("management", "");
    produce.args(["--server", &server, "produce", "live"]);
    produce.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut produce = produce.spawn().unwrap();
    let mut pipe = produce.stdin.take().unwrap();
    let arrived = |count: &str| {
        let arguments = ["consume", "live", "--from-beginning", "--max", count];
        let output = up.cli(&arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    for (line, count, all) in [("one", "1", "one\n"), ("two", "2", "one\ntwo\n")] {
        writeln!(pipe, "{line}").unwrap();
        assert_eq!(arrived(count), all);
    }
    // Lines that come one after the other do not wait for a silence.
    for line in 3..20 {
        writeln!(pipe, "{line}").unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(arrived("10").lines().count(), 10);
    // What was read goes on at a Ctrl-C, though the pipe is open.
    writeln!(pipe, "last").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let id = produce.id().to_string();
    succeed(Command::new("kill").args(["-INT", &id]));
    let output = produce.wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert_eq!(told, "20 records acknowledged\n");
    assert!(arrived("20").ends_with("last\n"));
    drop(pipe);
}

#[test]
fn all_clients_of_mqtt_are_listed_however_many_there_are() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let sessions = 1_100;
    for number in 0..sessions {
        let id = format!("c{number:04}");
        // CONNECT of MQTT 3.1.1, whose session is kept.
        let mut packet = vec![0x10, 12 + id.len() as u8, 0, 4];
        packet.extend(b"MQTT\x04\x00\x00\x00\x00\x05");
        packet.extend(id.as_bytes());
        let mut link = TcpStream::connect(up.address("mqtt")).unwrap();
        link.write_all(&packet).unwrap();
        let mut answer = [0; 4];
        link.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0x20, 2, 0, 0], "{id}");
    }
    let ids = |listed: &Value| -> Vec<String> {
        let clients = listed["clients"].as_array().unwrap().iter();
        let ids = clients.map(|one| one["client_id"].as_str().unwrap().to_owned());
        ids.filter(|id| id.starts_with('c') && id.len() == 5)
            .collect()
    };
    let all: Vec<String> = (0..sessions).map(|n| format!("c{n:04}")).collect();
    assert_eq!(ids(&up.cli_json(&["mqtt", "clients"])), all);
    let (mut paged, mut path) = (Vec::new(), "?limit=400".to_owned());
    loop {
        let page = up.get(&format!("/api/v1/mqtt/clients{path}"));
        paged.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => path = format!("?limit=400&after={next}"),
            None => break,
        }
    }
    assert_eq!(paged, all);
}

/// A server whose lists have two pages of one entry each; answers its address.
fn paged(list: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for link in listener.incoming() {
            let mut link = link.unwrap();
            let mut lines = BufReader::new(&link).lines().map(Result::unwrap);
            let request = lines.next().unwrap();
            lines.find(String::is_empty);
            let is_second = request.contains("after=") || request.contains("before=");
            let (id, next) = match is_second {
                false => ("one", "\"7\""),
                true => ("two", "null"),
            };
            let body = format!(
                "{{\"{list}\":[{{\"id\":\"{id}\",\"kind\":\"{id}\",\"path\":\"{id}\"}}],\"next\":{next}}}"
            );
            let length = body.len();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            write!(link, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        }
    });
    server
}

#[test]
fn lists_are_told_to_their_end_or_say_how_to_go_on() {
    let ask = |list: &'static str, arguments: &[&str]| {
        let mut thalweg = thalweg_command();
        thalweg.args(["--server", &paged(list)]).args(arguments);
        let output = thalweg.output().unwrap();
        let (out, told) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{told}");
        (out.contains("one"), out.contains("two"), told)
    };
    let operations = ["agents", "operations"];
    let all = (true, true, String::new());
    assert_eq!(ask("operations", &operations), all);
    for (list, arguments, hint) in [
        (
            "operations",
            &["agents", "operations", "--limit", "1"][..],
            "--after 7",
        ),
        ("events", &["events"][..], "--before 7"),
        ("entries", &["audit"][..], "--before 7"),
    ] {
        let told = format!("there are more: {hint}\n");
        assert_eq!(ask(list, arguments), (true, false, told), "{list}");
        let on = [arguments, &hint.split(' ').collect::<Vec<_>>()[..]].concat();
        assert_eq!(ask(list, &on), (false, true, String::new()), "{list}");
    }
}

#[test]
fn a_stored_folder_is_verified_and_dumped_and_damage_is_found() {
    let dir = folder();
    let data = dir.path().join("data");
    let up = Up::start(&data);
    let file = dir.path().join("lines");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    // Later frames prove that earlier ones were durable.
    for _ in 0..3 {
        let produced = up.cli(&["produce", "/s/kept:t", file.to_str().unwrap()]);
        assert!(produced.status.success(), "{}", text(&produced.stderr));
    }
    let store = |command: &str| {
        let mut thalweg = thalweg_command();
        thalweg.args(["--output", "json", "store", command, "--data"]);
        thalweg.arg(&data);
        thalweg
    };
    let busy = store("verify").output().unwrap();
    let refusal = text(&busy.stderr);
    assert!(
        !busy.status.success() && refusal.contains("another"),
        "{refusal}"
    );
    assert!(up.stop().success());

    let found: Value = serde_json::from_str(&succeed(&mut store("verify"))).unwrap();
    assert_eq!(found["damaged_bytes"], 0, "{found}");
    let dumped = succeed(store("dump").args(["--topic", "/s/kept:t"]));
    let lines: Vec<Value> = dumped
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let records: i64 = lines
        .iter()
        .map(|l| l["batch"]["records"].as_i64().unwrap())
        .sum();
    assert_eq!(records, 6, "{dumped}");
    let unpacked = ["--topic", "/s/kept:t", "--partition", "0", "--records"];
    let dumped = succeed(store("dump").args(unpacked).args(["--from-offset", "4"]));
    let last: Value = serde_json::from_str(dumped.lines().last().unwrap()).unwrap();
    assert_eq!(last["batch"]["codec"], "none", "{last}");
    assert_eq!(last["batch"]["record_list"][1]["value"], "two", "{last}");
    let all = succeed(&mut store("dump"));
    assert!(all.contains(r#""says":"/s/kept:t "#), "{all}");

    // One bit of a record on the disk.
    let at = lines[0]["position"].as_u64().unwrap() + lines[0]["bytes"].as_u64().unwrap();
    let segment = data.join("streams/0000000000000000.journal");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[at as usize] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let verified = store("verify").output().unwrap();
    let told = text(&verified.stderr);
    assert!(
        !verified.status.success() && told.contains("damaged"),
        "{told}"
    );
    // So it ends where nobody reads what it prints before.
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    let verified = store("verify").stdout(unread).output().unwrap();
    assert!(!verified.status.success(), "{}", text(&verified.stderr));
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    let dumped = store("dump").stdout(unread).output().unwrap();
    assert!(dumped.status.success(), "{}", text(&dumped.stderr));
}

#[test]
fn every_command_explains_itself_and_completes() {
    let help = succeed(thalweg_command().arg("--help"));
    for command in [
        "up",
        "agent",
        "topics",
        "schemas",
        "produce",
        "consume",
        "statements",
        "import",
        "store",
        "lab",
    ] {
        assert!(
            help.contains(&format!("\n  {command} ")),
            "{command} is missing in:\n{help}"
        );
        if command != "lab" {
            succeed(thalweg_command().args([command, "--help"]));
        }
    }
    let completions = succeed(thalweg_command().args(["completions", "bash"]));
    assert!(completions.contains("_thalweg"), "{completions}");
    let config = succeed(thalweg_command().arg("config"));
    assert!(config.contains("[streams]"), "{config}");
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let file = dir.path().join("lines");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    up.cli_json(&["topics", "create", "read"]);
    let produced = up.cli(&["produce", "read", file.to_str().unwrap()]);
    assert!(produced.status.success(), "{}", text(&produced.stderr));
    let server = up.url("management", "");
    for arguments in [
        "config",
        "completions bash",
        "agent processors",
        "agent processors --output json",
        "topics list",
        "topics list --output json",
        "consume read --from-beginning --max 2",
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = thalweg_command();
        command.args(["--server", &server]);
        command.args(arguments.split(' ')).stdout(writer);
        let output = command.output().unwrap();
        let told = text(&output.stderr);
        assert!(
            output.status.success() && told.is_empty(),
            "{arguments}: {told}"
        );
    }
}

#[test]
fn a_topic_that_is_awaited_is_told_and_read_once_it_is_there() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let mut command = thalweg_command();
    command.args(["--server", &up.url("management", ""), "consume", "later"]);
    command.args(["--from-beginning", "--max", "1"]);
    let (output, errors) = (dir.path().join("output"), dir.path().join("errors"));
    command.stdout(std::fs::File::create(&output).unwrap());
    command.stderr(std::fs::File::create(&errors).unwrap());
    let mut consumer = command.spawn().unwrap();
    eventually("the missing topic is told", || {
        let told = std::fs::read_to_string(&errors).unwrap();
        told.contains("there is no topic 'later' yet").then_some(())
    });
    let file = dir.path().join("lines");
    std::fs::write(&file, "at last\n").unwrap();
    let produced = up.cli(&["produce", "later", file.to_str().unwrap()]);
    assert!(produced.status.success(), "{}", text(&produced.stderr));
    assert!(consumer.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "at last\n");
}

#[test]
fn tables_are_for_people_and_json_is_for_scripts() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "shown", "--partitions", "3"]);
    let table = text(&up.cli(&["topics", "list"]).stdout);
    assert!(
        table.starts_with("TOPIC") && table.contains("\nshown  3"),
        "{table}"
    );
    let json = up.cli_json(&["topics", "list"]);
    assert_eq!(json["topics"][0]["partitions"], 3, "{json}");
    assert!(up.cli(&["topics", "delete", "shown"]).status.success());
    assert!(
        up.cli_json(&["topics", "list"])["topics"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_flow_that_does_not_fit_and_a_job_that_failed_are_told_by_the_exit_code() {
    let dir = folder();
    let up = Up::start_with(&dir.path().join("data"), &["--demo"]);
    let flow = |class: &str| {
        let path = dir.path().join("flow.yml");
        let text = format!(
            "MiNiFi Config Version: 3\nFlow Controller:\n  name: f\nProcessors:\n  - id: \
             d3300000-0000-4000-8000-000000000099\n    name: p\n    class: {class}\n    \
             scheduling strategy: TIMER_DRIVEN\n    scheduling period: 1 sec\n"
        );
        std::fs::write(&path, text).unwrap();
        up.cli(&["flows", "check", "--class", "demo", path.to_str().unwrap()])
    };
    eventually("the agent tells what it can run", || {
        let fits = flow("LogAttribute");
        assert!(fits.status.success(), "{}", text(&fits.stderr));
        text(&fits.stdout).contains("fits the agents").then_some(())
    });
    let refused = flow("NoSuchProcessor");
    assert_eq!(refused.status.code(), Some(1));
    let (shown, told) = (text(&refused.stdout), text(&refused.stderr));
    assert!(shown.contains("NoSuchProcessor"), "{shown}");
    assert!(told.contains("1 problem;"), "{told}");

    let answer = curl(&[
        "-X",
        "POST",
        &up.url(
            "management",
            "/api/v1/imports?resumable=true&format=jsonl&key=id",
        ),
    ]);
    let job = answer.json()["id"].as_str().unwrap().to_owned();
    assert!(up.cli(&["imports", "cancel", &job]).status.success());
    let watched = up.cli(&["imports", "watch", &job]);
    assert_eq!(watched.status.code(), Some(1));
    let told = text(&watched.stderr);
    assert!(told.contains("the job ended as cancelled"), "{told}");
}

#[test]
fn records_are_json_for_scripts() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let file = dir.path().join("lines");
    std::fs::write(&file, "k={\"v\":1}\n").unwrap();
    let file = file.to_str().unwrap();
    let produced = up.cli(&["produce", "texts", file, "--key-separator", "="]);
    assert!(produced.status.success(), "{}", text(&produced.stderr));
    let read = up.cli_json(&["consume", "texts", "--from-beginning", "--max", "1"]);
    assert_eq!(read["key"], "k", "{read}");
    assert_eq!(read["value"], "{\"v\":1}", "{read}");
}

#[test]
fn schemas_are_registered_checked_shown_and_deleted() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let fields = |more: &str| {
        format!(
            r#"{{"type":"record","name":"Order","fields":[{{"name":"n","type":"int"}}{more}]}}"#
        )
    };
    let first = file("order.avsc", &fields(""));
    let second = file(
        "more.avsc",
        &fields(r#",{"name":"s","type":"string","default":""}"#),
    );
    let unfit = file("unfit.avsc", &fields(r#",{"name":"t","type":"string"}"#));
    let message = file(
        "line.proto",
        "syntax = \"proto3\"; import \"a.proto\"; message Line { A a = 1; }",
    );
    let named = file("a.proto", "syntax = \"proto3\"; message A { int32 n = 1; }");
    let register = |subject: &str, file: &str| {
        let told = up.cli_json(&["schemas", "register", subject, file]);
        told["id"].as_i64().unwrap()
    };
    assert_eq!(register("orders-value", &first), 1);
    assert_eq!(register("orders-value", &first), 1);
    up.cli_json(&["schemas", "check", "orders-value", &second]);
    assert_eq!(register("orders-value", &second), 2);
    assert_eq!(register("a", &named), 3);
    let with_reference = [
        "schemas",
        "register",
        "lines-value",
        &message,
        "--reference",
    ];
    let with_reference = [&with_reference[..], &["a.proto=a:1"]].concat();
    assert_eq!(up.cli_json(&with_reference)["id"], 4);

    let refused = up.cli(&["schemas", "check", "orders-value", &unfit]);
    let told = text(&refused.stderr);
    assert!(!refused.status.success(), "{told}");
    assert!(
        told.contains("READER_FIELD_MISSING_DEFAULT_VALUE"),
        "{told}"
    );
    let refused = up.cli(&["schemas", "register", "orders-value", &unfit]);
    assert!(!refused.status.success());
    let told = up.cli_json(&["schemas", "config", "orders-value", "--set", "none"]);
    assert_eq!(told["compatibility"], "NONE", "{told}");
    assert_eq!(register("orders-value", &unfit), 5);
    let told = up.cli_json(&["schemas", "config", "lines-value"]);
    assert_eq!(told["compatibilityLevel"], "BACKWARD", "{told}");
    up.cli_json(&["schemas", "config", "orders-value", "--unset"]);

    let table = text(&up.cli(&["schemas", "list"]).stdout);
    let lines: Vec<&str> = table.lines().collect();
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(lines[0]), ["SUBJECT", "VERSION", "ID", "TYPE"]);
    assert_eq!(words(lines[1]), ["a", "1", "3", "PROTOBUF"]);
    assert_eq!(words(lines[3]), ["orders-value", "3", "5", "AVRO"]);
    let table = text(&up.cli(&["schemas", "versions", "orders-value"]).stdout);
    assert_eq!(table.lines().count(), 4, "{table}");
    let shown = up.cli(&["schemas", "show", "orders-value", "--version", "1", "--raw"]);
    assert_eq!(text(&shown.stdout).trim_end(), fields(""));
    let shown = text(&up.cli(&["schemas", "show", "--id", "2"]).stdout);
    assert!(shown.contains("\"default\": \"\""), "{shown}");

    up.cli_json(&["schemas", "mode", "a", "--set", "readonly"]);
    let refused = up.cli(&["schemas", "delete", "lines-value", "--permanent"]);
    assert!(!refused.status.success());
    assert_eq!(up.cli_json(&["schemas", "mode", "a"])["mode"], "READONLY");
    up.cli_json(&["schemas", "delete", "lines-value", "--version", "latest"]);
    up.cli_json(&["schemas", "delete", "lines-value", "--permanent"]);
    let left = up.cli_json(&["schemas", "list", "--prefix", "lines"]);
    assert_eq!(left.as_array().unwrap().len(), 0, "{left}");
    let nobody = up.cli(&["schemas", "show", "nobody"]);
    assert!(text(&nobody.stderr).contains("'nobody' not found"));
}
