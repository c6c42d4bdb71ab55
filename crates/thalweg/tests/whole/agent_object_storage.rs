//! The agent's object storages against servers that are not ours: versitygw for S3, fsouza's
//! fake-gcs-server for Google's, and Azurite for Azure's. The first and the last check signatures.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{
    Running, curl, eventually, folder, free_port, post, sibling, succeed, test_env,
};

/// A storage, as a flow sees it.
struct Storage {
    put: &'static str,
    list: &'static str,
    fetch: &'static str,
    delete: &'static str,
    /// The property that names an object, and the attribute of a listing that does.
    key: (&'static str, &'static str),
    /// Properties of all four, and of those that put.
    shared: Vec<(&'static str, String)>,
    putting: Vec<(&'static str, &'static str)>,
    fetching_range: Vec<(&'static str, &'static str)>,
    /// The same with another secret.
    wrong: Vec<(&'static str, String)>,
    /// What the server says to that, and of an object that is not there.
    refused: &'static str,
    missing: &'static str,
    services: String,
}

#[test]
fn objects_of_an_s3_server_are_put_listed_fetched_and_deleted() {
    let dir = folder();
    let port = free_port();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("box")).unwrap();
    let mut command = Command::new(test_env().join("object-storage/versitygw"));
    command.args(["--port", &format!("127.0.0.1:{port}")]);
    command.args(["--access", "plant", "--secret", "the secret"]);
    command.arg("posix").arg(&root);
    let server = Running::start(&mut command, &dir.path().join("server.log"));
    let account = |secret: &str| {
        vec![
            ("Bucket", "box".to_owned()),
            ("Region", "us-east-1".to_owned()),
            ("Endpoint Override URL", format!("http://127.0.0.1:{port}")),
            ("Access Key", "plant".to_owned()),
            ("Secret Key", secret.to_owned()),
        ]
    };
    let storage = Storage {
        put: "PutS3Object",
        list: "ListS3",
        fetch: "FetchS3Object",
        delete: "DeleteS3Object",
        key: ("Object Key", "filename"),
        shared: account("the secret"),
        putting: vec![
            ("Multipart Threshold", "5 MB"),
            ("Multipart Part Size", "5 MB"),
        ],
        fetching_range: vec![],
        wrong: account("another secret"),
        refused: "answers 403: SignatureDoesNotMatch",
        missing: "answers 404: NoSuchKey",
        services: String::new(),
    };
    check(dir.path(), port, &storage, &|name| {
        // What the server made of it, which is a file.
        let content = std::fs::read(root.join("box").join(name));
        content.ok()
    });
    server.kill();
}

#[test]
fn objects_of_a_google_server_are_put_listed_fetched_and_deleted() {
    let dir = folder();
    let port = free_port();
    let mut command = Command::new(test_env().join("object-storage/fake-gcs-server"));
    command.args(["-backend", "memory", "-scheme", "http"]);
    command.args(["-host", "127.0.0.1", "-port", &port.to_string()]);
    let server = Running::start(&mut command, &dir.path().join("server.log"));
    listens(port);
    let buckets = format!("http://127.0.0.1:{port}/storage/v1/b");
    let made = post(&buckets, "application/json", r#"{"name": "box"}"#);
    assert_eq!(made.status, 200, "{}", made.body);
    // The server takes any token; this account gets none there.
    let key_file = dir.path().join("account.json");
    succeed(
        Command::new("openssl")
            .args(["genpkey", "-quiet", "-algorithm", "RSA", "-out"])
            .arg(dir.path().join("key.pem")),
    );
    let account = serde_json::json!({
        "type": "service_account",
        "client_email": "plant@example.iam.gserviceaccount.com",
        "private_key": std::fs::read_to_string(dir.path().join("key.pem")).unwrap(),
        "token_uri": format!("http://127.0.0.1:{port}/token"),
    });
    std::fs::write(&key_file, account.to_string()).unwrap();
    let services = format!(
        "- name: nobody
  class: GCPCredentialsControllerService
  Properties: {{Credentials Location: Use Anonymous credentials}}
- name: somebody
  class: GCPCredentialsControllerService
  Properties:
    Credentials Location: Service Account JSON File
    Service Account JSON File: {}
",
        key_file.display()
    );
    let account = |who: &str| {
        vec![
            ("Bucket", "box".to_owned()),
            ("GCP Credentials Provider Service", who.to_owned()),
            ("Endpoint Override URL", format!("http://127.0.0.1:{port}")),
        ]
    };
    let storage = Storage {
        put: "PutGCSObject",
        list: "ListGCSBucket",
        fetch: "FetchGCSObject",
        delete: "DeleteGCSObject",
        key: ("Key", "gcs.key"),
        shared: account("nobody"),
        putting: vec![("Content Type", "text/x")],
        fetching_range: vec![],
        wrong: account("somebody"),
        refused: "(for an access token)",
        missing: "answers 404:",
        services,
    };
    check(dir.path(), port, &storage, &|name| {
        let answer = curl(&[&format!("{buckets}/box/o/{name}?alt=media")]);
        (answer.status == 200).then_some(answer.body.into_bytes())
    });
    server.kill();
}

#[test]
fn blobs_of_an_azure_server_are_put_listed_fetched_and_deleted() {
    let dir = folder();
    let port = free_port();
    let mut command = Command::new("node");
    command.arg(test_env().join("azurite/node_modules/azurite/dist/src/blob/main.js"));
    command.args([
        "--blobPort",
        &port.to_string(),
        "--disableTelemetry",
        "--location",
    ]);
    command.arg(dir.path().join("azurite"));
    command.env("AZURITE_ACCOUNTS", "plant:dGhlIGtleSBvZiB0aGUgYWNjb3VudA==");
    let server = Running::start(&mut command, &dir.path().join("server.log"));
    let account = |key: &str| {
        let text = format!(
            "AccountName=plant;AccountKey={key};BlobEndpoint=http://127.0.0.1:{port}/plant"
        );
        vec![
            ("Container Name", "box".to_owned()),
            ("Connection String", text),
        ]
    };
    let storage = Storage {
        put: "PutAzureBlobStorage",
        list: "ListAzureBlobStorage",
        fetch: "FetchAzureBlobStorage",
        delete: "DeleteAzureBlobStorage",
        key: ("Blob", "azure.blobname"),
        shared: account("dGhlIGtleSBvZiB0aGUgYWNjb3VudA=="),
        putting: vec![("Create Container", "true")],
        fetching_range: vec![("Range Start", "3"), ("Range Length", "5")],
        wrong: account("YW5vdGhlciBrZXk="),
        refused: "answers 403: AuthorizationFailure",
        missing: "answers 404: BlobNotFound",
        services: String::new(),
    };
    check(dir.path(), port, &storage, &|_| None);
    server.kill();
}

/// Puts a small and a large file, and one of no bytes; looks at what is listed and fetched; deletes
/// one; and fails with another secret and with an object that is not there. `stored` is what the
/// server has, where it can be asked otherwise.
fn check(dir: &Path, port: u16, storage: &Storage, stored: &dyn Fn(&str) -> Option<Vec<u8>>) {
    listens(port);
    for name in ["in", "wanted", "gone", "wrong"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    let flow = dir.join("flow.yml");
    std::fs::write(&flow, flow_text(dir, storage)).unwrap();
    let mut command = Command::new(sibling("thalweg-agent"));
    command.arg("--data").arg(dir.join("agent"));
    command.arg("--flow").arg(&flow);
    let log = dir.join("agent.log");
    let agent = Running::start(&mut command, &log);
    let put = |folder: &str, name: &str, content: &[u8]| {
        // GetFile leaves files alone whose names begin with a dot.
        let hidden = dir.join(folder).join(format!(".{name}"));
        std::fs::write(&hidden, content).unwrap();
        std::fs::rename(hidden, dir.join(folder).join(name)).unwrap();
    };
    let large: Vec<u8> = (0..5_000_000u32).flat_map(u32::to_le_bytes).collect();
    let files = [
        ("small & ü.txt", &b"hello, objects"[..]),
        ("large", &large),
        ("empty", b""),
    ];
    for (name, content) in files {
        put("in", name, content);
    }
    for (name, content) in files {
        let fetched = dir.join("fetched").join(name);
        eventually(&format!("{name} is listed and fetched"), || {
            is_file_of(&fetched, content).then_some(())
        });
    }
    if let Some(content) = stored("large") {
        assert!(
            content.len() >= large.len(),
            "{} bytes are stored",
            content.len()
        );
    }
    if !storage.fetching_range.is_empty() {
        let ranged = dir.join("ranged/small & ü.txt");
        eventually("a range is fetched", || {
            is_file_of(&ranged, b"lo, o").then_some(())
        });
    }
    put("gone", "large", b"");
    eventually("an object is deleted", || {
        dir.join("deleted/large").exists().then_some(())
    });
    assert_eq!(stored("large"), None, "the server has it no more");
    put("wanted", "large", b"kept");
    eventually("what is not there fails", || {
        is_file_of(&dir.join("missing/large"), b"kept").then_some(())
    });
    put("wrong", "secret", b"kept");
    eventually("another secret fails", || {
        is_file_of(&dir.join("refused/secret"), b"kept").then_some(())
    });
    agent.stop();
    let told = std::fs::read_to_string(&log).unwrap();
    for words in [storage.missing, storage.refused] {
        assert!(told.contains(words), "no '{words}' in {told}");
    }
    for secret in [
        "the secret",
        "another secret",
        "YW5vdGhlciBrZXk",
        "dGhlIGtleSBv",
    ] {
        assert!(!told.contains(secret), "'{secret}' in {told}");
    }
}

/// Files that are put; objects that are listed, fetched and kept; and those that files name:
/// fetched, deleted, put with another secret.
fn flow_text(dir: &Path, storage: &Storage) -> String {
    let mut processors = String::new();
    let mut connections = String::new();
    let folder = |name: &str| dir.join(name).display().to_string();
    let mut add = |name: &str, class: &str, period: &str, ends: &str, properties: &[Pair]| {
        processors += &format!(
            "- name: {name}
  class: {class}
  scheduling period: {period}
  penalization period: 100 ms
  auto-terminated relationships list: [{ends}]
  Properties:
"
        );
        for (name, value) in properties {
            processors += &format!("    {name}: '{value}'\n");
        }
    };
    let mut lead = |from: &str, relationship: &str, to: &str| {
        connections += &format!(
            "- {{source name: {from}, source relationship name: {relationship}, \
             destination name: {to}}}\n"
        );
    };
    let with = |all: &[(&'static str, String)], more: &[(&'static str, &str)]| -> Vec<Pair> {
        let more = more
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        all.iter().cloned().chain(more).collect()
    };
    let named = (storage.key.0, "${filename}");
    let files = [
        ("in", storage.put, &storage.shared, &storage.putting),
        ("wanted", storage.fetch, &storage.shared, &vec![]),
        ("gone", storage.delete, &storage.shared, &vec![]),
        ("wrong", storage.put, &storage.wrong, &vec![]),
    ];
    for (from, class, account, more) in files {
        let input = [("Input Directory", folder(from))];
        add(&format!("get {from}"), "GetFile", "50 ms", "", &input);
        let properties = with(account, &[&[named], more.as_slice()].concat());
        let ends = if from == "gone" { "failure" } else { "success" };
        add(&format!("do {from}"), class, "0 sec", ends, &properties);
        lead(&format!("get {from}"), "success", &format!("do {from}"));
    }
    let listed = (storage.key.0, format!("${{{}}}", storage.key.1));
    let fetched = (listed.0, listed.1.as_str());
    add(
        "list",
        storage.list,
        "2 sec",
        "",
        &with(&storage.shared, &[]),
    );
    add(
        "fetch",
        storage.fetch,
        "0 sec",
        "failure",
        &with(&storage.shared, &[fetched]),
    );
    lead("list", "success", "fetch");
    let mut ends = vec![
        ("fetch", "success", "fetched"),
        ("do gone", "success", "deleted"),
        ("do wanted", "failure", "missing"),
        ("do in", "failure", "failed"),
        ("do wrong", "failure", "refused"),
    ];
    if !storage.fetching_range.is_empty() {
        let range = [&[fetched], storage.fetching_range.as_slice()].concat();
        let properties = with(&storage.shared, &range);
        add("range", storage.fetch, "0 sec", "failure", &properties);
        lead("list", "success", "range");
        ends.push(("range", "success", "ranged"));
    }
    for (from, relationship, to) in ends {
        // A listing may name its objects by another attribute than files have.
        let name = match relationship == "success" && from != "do gone" {
            true => listed.1.as_str(),
            false => "${filename}",
        };
        let name = [("filename", name.to_owned())];
        add(
            &format!("name {to}"),
            "UpdateAttribute",
            "0 sec",
            "failure",
            &name,
        );
        let kept = [
            ("Directory", folder(to)),
            ("Conflict Resolution Strategy", "replace".to_owned()),
        ];
        add(
            &format!("keep {to}"),
            "PutFile",
            "0 sec",
            "success, failure",
            &kept,
        );
        lead(from, relationship, &format!("name {to}"));
        lead(&format!("name {to}"), "success", &format!("keep {to}"));
    }
    let services = match storage.services.is_empty() {
        true => String::new(),
        false => format!("Controller Services:\n{}", storage.services),
    };
    format!(
        "MiNiFi Config Version: 3\nFlow Controller: {{name: plant}}\n{services}\
         Processors:\n{processors}Connections:\n{connections}"
    )
}

type Pair = (&'static str, String);

fn is_file_of(path: &PathBuf, content: &[u8]) -> bool {
    std::fs::read(path).is_ok_and(|found| found == content)
}

fn listens(port: u16) {
    eventually("the server listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port))
            .ok()
            .map(drop)
    });
}
