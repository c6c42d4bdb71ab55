//! The Kafka listener with TLS, logins and ACLs, met by Kafka's own clients.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Up, folder, kafka_tool, python, succeed, text, thalweg_command};

/// A folder with a certificate authority, a certificate of the server and one of a client.
struct Certificates(PathBuf);

impl Certificates {
    fn make(folder: &Path) -> Self {
        let certificates = Certificates(folder.to_owned());
        certificates.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-days",
            "2",
            "-subj",
            "/CN=test authority",
        ]);
        for (name, subject) in [("server", "/CN=localhost"), ("ann", "/O=Example/CN=ann")] {
            certificates.openssl(&[
                "req",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.csr"),
                "-subj",
                subject,
                "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
            ]);
            certificates.openssl(&[
                "x509",
                "-req",
                "-in",
                &format!("{name}.csr"),
                "-out",
                &format!("{name}.pem"),
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                "2",
                "-copy_extensions",
                "copy",
            ]);
        }
        certificates
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn openssl(&self, arguments: &[&str]) {
        succeed(Command::new("openssl").current_dir(&self.0).args(arguments));
    }

    /// Settings of a listener with TLS.
    fn settings(&self) -> Vec<String> {
        vec![
            format!("streams.tls.certificate={}", self.path("server.pem")),
            format!("streams.tls.key={}", self.path("server.key")),
        ]
    }
}

fn start(data: &Path, settings: &[String]) -> Up {
    let arguments: Vec<&str> = settings
        .iter()
        .flat_map(|setting| ["--set", setting])
        .collect();
    Up::start_with(data, &arguments)
}

/// Adds a user to a folder that nothing runs on; the password goes in by standard input.
fn add_offline(data: &Path, name: &str, password: &str) {
    let mut command = thalweg_command();
    command.args(["users", "add", name, "--data"]).arg(data);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{password}").unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

fn acl_settings() -> Vec<String> {
    vec![
        "streams.sasl.mechanisms=[\"PLAIN\", \"SCRAM-SHA-256\", \"SCRAM-SHA-512\"]".to_owned(),
        "streams.authorization=acl".to_owned(),
        "streams.super_users=[\"User:admin\"]".to_owned(),
    ]
}

#[test]
fn librdkafka_logs_in_by_every_mechanism_and_is_held_to_the_acls() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let data = dir.path().join("data");
    add_offline(&data, "admin", "admin-secret");
    let up = start(&data, &[certificates.settings(), acl_settings()].concat());
    let password = dir.path().join("password");
    std::fs::write(&password, "ann-secret\n").unwrap();
    let file = password.display().to_string();
    up.cli_json(&["users", "add", "ann", "--password-file", &file]);
    for (operation, resource, name) in [
        ("write", "--topic", "open"),
        ("read", "--topic", "open"),
        ("create", "--topic", "open"),
        ("read", "--group", "ann-group"),
    ] {
        let arguments = [
            "acls",
            "add",
            "--user",
            "ann",
            "--operation",
            operation,
            resource,
            name,
        ];
        up.cli_json(&arguments);
    }
    let (streams, ca) = (up.address("streams"), certificates.path("ca.pem"));
    succeed(python("kafka_access.py").args([&streams, &ca]));
    let listed = up.cli_json(&["users", "list"]);
    assert_eq!(listed["users"].as_array().unwrap().len(), 2, "{listed}");
    // No secret is in the log or in the files.
    let log = std::fs::read_to_string(data.with_extension("up.log")).unwrap();
    let stored = std::fs::read_to_string(data.join("access/access.json")).unwrap();
    for secret in ["admin-secret", "ann-secret"] {
        assert!(!log.contains(secret) && !stored.contains(secret));
    }
    assert!(log.contains("Kafka login refused"), "{log}");
}

#[test]
fn kcat_speaks_tls_and_its_certificate_is_its_name() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let settings = [
        certificates.settings(),
        vec![
            format!("streams.tls.client_ca={}", certificates.path("ca.pem")),
            "streams.tls.client_auth=required".to_owned(),
            "streams.authorization=acl".to_owned(),
            "streams.super_users=[\"User:CN=ann,O=Example\"]".to_owned(),
        ],
    ]
    .concat();
    let up = start(&dir.path().join("data"), &settings);
    let streams = up.address("streams");
    let ca = format!("ssl.ca.location={}", certificates.path("ca.pem"));
    let kcat = |more: &[&str]| {
        let mut command = Command::new("kcat");
        command
            .args(["-b", &streams, "-X", "security.protocol=ssl", "-X", &ca])
            .args(more);
        command
    };
    let certificate = format!("ssl.certificate.location={}", certificates.path("ann.pem"));
    let key = format!("ssl.key.location={}", certificates.path("ann.key"));
    let known = ["-X", &certificate, "-X", &key];
    let lines = dir.path().join("lines");
    // More than TLS and the listener take at once.
    let content: String = (0..3_000)
        .map(|n| format!("{n} {}\n", "x".repeat(1_000)))
        .collect();
    std::fs::write(&lines, &content).unwrap();
    let produce = ["-P", "-t", "sealed", "-l", lines.to_str().unwrap()];
    succeed(kcat(&known).args(produce));
    let consume = ["-C", "-t", "sealed", "-o", "beginning", "-e", "-q"];
    assert_eq!(succeed(kcat(&known).args(consume)), content);
    // Without a certificate nobody gets in.
    let stranger = kcat(&["-L", "-m", "3"]).output().unwrap();
    assert!(!stranger.status.success(), "{}", text(&stranger.stdout));
}

#[test]
fn kafkas_own_tools_manage_acls_over_tls() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let data = dir.path().join("data");
    add_offline(&data, "admin", "admin-secret");
    let up = start(&data, &[certificates.settings(), acl_settings()].concat());
    let config = dir.path().join("admin.properties");
    std::fs::write(
        &config,
        format!(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n\
             ssl.truststore.type=PEM\nssl.truststore.location={}\n\
             sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
             username=\"admin\" password=\"admin-secret\";\n",
            certificates.path("ca.pem")
        ),
    )
    .unwrap();
    let streams = up.address("streams");
    let acls = |arguments: &[&str]| {
        let mut tool = kafka_tool("org.apache.kafka.tools.AclCommand");
        tool.args(["--bootstrap-server", &streams, "--command-config"])
            .arg(&config);
        succeed(tool.args(arguments))
    };
    acls(&[
        "--add",
        "--allow-principal",
        "User:ann",
        "--producer",
        "--topic",
        "orders",
        "--resource-pattern-type",
        "prefixed",
    ]);
    acls(&[
        "--add",
        "--deny-principal",
        "User:eve",
        "--deny-host",
        "10.0.0.1",
        "--operation",
        "Read",
        "--topic",
        "*",
    ]);
    let listed = acls(&["--list"]);
    for part in [
        "name=orders, patternType=PREFIXED",
        "principal=User:ann",
        "operation=WRITE",
        "principal=User:eve, host=10.0.0.1, operation=READ, permissionType=DENY",
    ] {
        assert!(listed.contains(part), "{part} is not in {listed}");
    }
    let own = up.cli_json(&["acls", "list"]);
    // Write, describe and create for ann, one denial for eve.
    assert_eq!(own["acls"].as_array().unwrap().len(), 4, "{own}");
    acls(&[
        "--remove",
        "--force",
        "--allow-principal",
        "User:ann",
        "--producer",
        "--topic",
        "orders",
        "--resource-pattern-type",
        "prefixed",
    ]);
    let left = up.cli_json(&["acls", "list"]);
    assert_eq!(left["acls"].as_array().unwrap().len(), 1, "{left}");
}
