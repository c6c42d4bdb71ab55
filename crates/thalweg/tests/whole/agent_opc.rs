//! The agent's OPC UA against a server that is not ours: Python's asyncua, in the clear and encrypted.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::harness::{Running, eventually, folder, python, sibling, succeed};

#[test]
fn opc_values_are_read_by_every_kind_of_id_written_and_made() {
    let dir = folder();
    let port = dir.path().join("port");
    let server = Running::start(
        python("opc_server.py").arg(&port),
        &dir.path().join("server.log"),
    );
    let port = eventually("the server listens", || std::fs::read_to_string(&port).ok());
    for name in ["path", "number", "text", "many", "in"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let flow = dir.path().join("flow.yml");
    std::fs::write(&flow, flow_text(dir.path(), &port)).unwrap();
    let mut command = Command::new(sibling("thalweg-agent"));
    command.arg("--data").arg(dir.path().join("agent"));
    command.arg("--flow").arg(&flow);
    let agent = Running::start(&mut command, &dir.path().join("agent.log"));
    let values = |name: &str| values(&dir.path().join(name));
    let line = |speed: &str| {
        let told = [
            ("name", "Linie Süd"),
            ("speed", speed),
            ("temperatures", "[20.5,0.000000001]"),
        ];
        let told = told.map(|(name, value)| (name.to_owned(), vec![value.to_owned()]));
        BTreeMap::from(told)
    };
    for by in ["path", "number", "text"] {
        eventually("each value comes", || {
            let is_all = match by {
                "text" => values(by) == BTreeMap::from([one("speed", &["7"])]),
                _ => values(by) == line("7"),
            };
            is_all.then_some(())
        });
    }
    eventually("all of many nodes come", || {
        (values("many").len() == 1_200).then_some(())
    });
    // A name of a variable that is there, one of a variable that is not, and one that is no value.
    let put = |name: &str, content: &str| {
        let hidden = dir.path().join(name);
        std::fs::write(&hidden, content).unwrap();
        std::fs::rename(hidden, dir.path().join("in").join(name)).unwrap();
    };
    put("speed", "12");
    put("made", "34");
    for by in ["number", "text"] {
        eventually("what was written comes, once", || {
            let speeds = values(by).remove("speed");
            (speeds == Some(vec!["12".to_owned(), "7".to_owned()])).then_some(())
        });
    }
    eventually("what was made comes", || {
        (values("number").remove("made") == Some(vec!["34".to_owned()])).then_some(())
    });
    put("name", "56");
    eventually("what the server refuses fails", || {
        dir.path().join("failed/name").exists().then_some(())
    });
    let mut expected = line("7");
    expected.extend([one("made", &["34"]), one("speed", &["12", "7"])]);
    assert_eq!(values("number"), expected, "nothing came twice");
    agent.stop();
    server.kill();
}

#[test]
fn opc_is_signed_and_encrypted_by_each_policy_and_with_the_right_server_alone() {
    let dir = folder();
    for name in ["server", "agent", "other"] {
        certificate(dir.path(), name);
    }
    let policies = [
        "Basic256Sha256",
        "Aes128Sha256RsaOaep",
        "Aes256Sha256RsaPss",
    ];
    let servers = policies.map(|policy| {
        let port = dir.path().join(policy);
        let mut command = python("opc_server.py");
        command.arg(&port);
        command.args(["server.pem", "server.key"].map(|name| dir.path().join(name)));
        command.arg(policy);
        let log = dir.path().join(format!("{policy}.log"));
        (port, Running::start(&mut command, &log))
    });
    let ports = [0, 1, 2].map(|at: usize| {
        eventually("a server listens", || {
            std::fs::read_to_string(&servers[at].0).ok()
        })
    });
    let flow = dir.path().join("flow.yml");
    std::fs::write(&flow, secured_flow(dir.path(), &ports)).unwrap();
    let mut command = Command::new(sibling("thalweg-agent"));
    command.arg("--data").arg(dir.path().join("data"));
    command.arg("--flow").arg(&flow);
    let agent = Running::start(&mut command, &dir.path().join("agent.log"));
    let line = ["Linie Süd", "7", "[20.5,0.000000001]"].map(str::to_owned);
    for name in ["fetch-0", "fetch-1", "fetch-2", "sealed"] {
        eventually("all values come", || {
            let come = values(&dir.path().join(name));
            let come: Vec<String> = come.into_values().flatten().collect();
            (come == line).then_some(())
        });
    }
    let log = || std::fs::read_to_string(dir.path().join("agent.log")).unwrap();
    eventually("a server that is not meant is refused", || {
        log().contains("its SHA-1 thumbprint is").then_some(())
    });
    eventually("a wrong password is refused", || {
        log().contains("BadUserAccessDenied").then_some(())
    });
    assert!(
        !log().contains("not encrypted"),
        "no password went in the clear"
    );
    assert!(!log().contains("wrong-secret"));
    for name in ["not-meant", "wrong"] {
        assert_eq!(values(&dir.path().join(name)), BTreeMap::new(), "{name}");
    }
    agent.stop();
    servers.into_iter().for_each(|(_, server)| server.kill());
}

/// `NAME.pem`, `NAME.der` and `NAME.key`: a certificate as OPC UA's tools make it, and its key.
fn certificate(dir: &Path, name: &str) {
    let run = |text: String| {
        let mut command = Command::new("openssl");
        succeed(command.current_dir(dir).args(text.split_whitespace()));
    };
    run(format!(
        "req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.pem -days 2 \
         -subj /CN={name} -addext subjectAltName=URI:urn:{name},DNS:localhost \
         -addext keyUsage=digitalSignature,nonRepudiation,keyEncipherment,dataEncipherment \
         -addext extendedKeyUsage=serverAuth,clientAuth"
    ));
    run(format!("x509 -in {name}.pem -outform DER -out {name}.der"));
}

/// A fetch by each policy, one that logs in without a certificate, one with a wrong password, and one
/// that means another server.
fn secured_flow(dir: &Path, ports: &[String; 3]) -> String {
    let dir = dir.display();
    let own = format!(
        "Application URI: urn:agent
    Certificate path: {dir}/agent.der
    Key path: {dir}/agent.key"
    );
    let trusted = |name: &str| format!("Trusted server certificate path: {dir}/{name}.der");
    let login = |password: &str| format!("Username: admin\n    Password: {password}");
    let mut fetches: Vec<(String, usize, String)> = (0..3)
        .map(|at| {
            (
                format!("fetch-{at}"),
                at,
                format!("{own}\n    {}", trusted("server")),
            )
        })
        .collect();
    fetches[2].2 += &format!("\n    {}", login("secret"));
    let sealed = format!("{}\n    {}", login("secret"), trusted("server"));
    fetches.push(("sealed".to_owned(), 0, sealed));
    let wrong = format!("{}\n    {}", login("wrong-secret"), trusted("server"));
    fetches.push(("wrong".to_owned(), 1, wrong));
    let not_meant = format!("{own}\n    {}", trusted("other"));
    fetches.push(("not-meant".to_owned(), 0, not_meant));
    let mut processors = String::new();
    let mut connections = String::new();
    for (name, at, properties) in &fetches {
        std::fs::create_dir(format!("{dir}/{name}")).unwrap();
        let port = &ports[*at];
        processors += &format!(
            "- name: {name}
  class: org.apache.nifi.minifi.processors.FetchOPCProcessor
  scheduling period: 1 hour
  auto-terminated relationships list: [failure]
  Properties:
    OPC server endpoint: opc.tcp://127.0.0.1:{port}/plant
    Node ID type: Path
    Node ID: plant/line
    Namespace index: 2
    Lazy mode: 'Off'
    {properties}
- name: name {name}
  class: UpdateAttribute
  auto-terminated relationships list: [failure]
  Properties: {{filename: '${{Browsename}}.value'}}
- name: keep {name}
  class: PutFile
  auto-terminated relationships list: [success, failure]
  Properties: {{Directory: '{dir}/{name}'}}
"
        );
        connections += &format!(
            "- {{source name: {name}, source relationship name: success, destination name: name {name}}}
- {{source name: name {name}, source relationship name: success, destination name: keep {name}}}
"
        );
    }
    format!(
        "MiNiFi Config Version: 3
Flow Controller: {{name: secured}}
Processors:
{processors}Connections:
{connections}"
    )
}

/// Three fetches, two of them lazy, one of many nodes, and files that are put.
fn flow_text(dir: &Path, port: &str) -> String {
    let dir = dir.display();
    let fetch = |name: &str, properties: &str, period: &str| {
        format!(
            "- name: {name}
  class: org.apache.nifi.minifi.processors.FetchOPCProcessor
  scheduling period: {period}
  auto-terminated relationships list: [failure]
  Properties:
    OPC server endpoint: opc.tcp://127.0.0.1:{port}/plant
    Namespace index: 2
    {properties}
- name: name {name}
  class: UpdateAttribute
  auto-terminated relationships list: [failure]
  Properties: {{filename: '${{Browsename}}.${{UUID()}}'}}
- name: keep {name}
  class: PutFile
  auto-terminated relationships list: [success, failure]
  Properties: {{Directory: '{dir}/{name}'}}
"
        )
    };
    let lead = |name: &str| {
        format!(
            "- {{source name: {name}, source relationship name: success, destination name: name {name}}}
- {{source name: name {name}, source relationship name: success, destination name: keep {name}}}
"
        )
    };
    let by_path = "Node ID type: Path
    Node ID: plant/line
    Path reference types: Organizes
    Lazy mode: 'Off'";
    let by_number = "Node ID type: Int
    Node ID: 1001
    Max depth: 2
    Lazy mode: 'On'";
    let by_text = "Node ID type: String
    Node ID: speed
    Lazy mode: New Value";
    let many = "Node ID type: Int
    Node ID: 1002";
    let fetches = [
        fetch("path", by_path, "1 hour"),
        fetch("number", by_number, "100 ms"),
        fetch("text", by_text, "100 ms"),
        fetch("many", many, "1 hour"),
    ];
    let leads = ["path", "number", "text", "many"].map(lead);
    format!(
        "MiNiFi Config Version: 3
Flow Controller: {{name: plant}}
Processors:
{}- name: files
  class: GetFile
  scheduling period: 50 ms
  Properties: {{Input Directory: '{dir}/in'}}
- name: put
  class: org.apache.nifi.minifi.processors.PutOPCProcessor
  scheduling strategy: EVENT_DRIVEN
  penalization period: 100 ms
  auto-terminated relationships list: [success]
  Properties:
    OPC server endpoint: opc.tcp://127.0.0.1:{port}/plant
    Username: admin
    Password: secret
    Parent node ID type: Path
    Parent node ID: plant/line
    Parent node namespace index: 2
    Path reference types: Organizes
    Value type: Int32
    Target node ID type: String
    Target node ID: '${{filename}}'
    Target node namespace index: 2
    Target node browse name: '${{filename}}'
- name: keep failed
  class: PutFile
  auto-terminated relationships list: [success, failure]
  Properties: {{Directory: '{dir}/failed'}}
Connections:
{}- {{source name: files, source relationship name: success, destination name: put}}
- {{source name: put, source relationship name: failure, destination name: keep failed}}
",
        fetches.concat(),
        leads.concat(),
    )
}

/// The contents of a folder's files by the first part of their names, in the order of their texts.
fn values(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        // Files begin with a dot while they are written.
        let Some((name, _)) = file.split_once('.').filter(|(name, _)| !name.is_empty()) else {
            continue;
        };
        if let Ok(content) = std::fs::read_to_string(&path) {
            values.entry(name.to_owned()).or_default().push(content);
        }
    }
    values.values_mut().for_each(|contents| contents.sort());
    values
}

fn one(name: &str, contents: &[&str]) -> (String, Vec<String>) {
    let contents = contents.iter().map(|content| (*content).to_owned());
    (name.to_owned(), contents.collect())
}
