//! The Kafka listener with TLS, logins and ACLs, met by Kafka's own clients.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{
    Up, add_offline, curl, folder, kafka_tool, python, succeed, text, whole_topic,
};

/// A folder with a certificate authority, a certificate of the server and those of two clients.
pub struct Certificates(PathBuf);

impl Certificates {
    pub fn make(folder: &Path) -> Self {
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
        for (name, subject) in [
            ("server", "/CN=localhost"),
            ("ann", "/O=Example/CN=ann"),
            ("eve", "/O=Example/CN=eve"),
        ] {
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

    pub fn path(&self, name: &str) -> String {
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

fn acl_settings() -> Vec<String> {
    vec![
        "streams.sasl.mechanisms=[\"PLAIN\", \"SCRAM-SHA-256\", \"SCRAM-SHA-512\"]".to_owned(),
        "streams.authorization=acl".to_owned(),
        "streams.super_users=[\"User:admin\"]".to_owned(),
    ]
}

/// The file with the administrator's password.
struct Admin(String);

impl Admin {
    fn of(folder: &Path) -> Self {
        let file = folder.join("admin-password");
        std::fs::write(&file, "admin-secret\n").unwrap();
        Admin(file.display().to_string())
    }

    /// Runs a client command as the administrator.
    fn cli(&self, up: &Up, arguments: &[&str]) -> Value {
        let login = ["--login", "admin", "--login-password-file", &self.0];
        up.cli_json(&[&login, arguments].concat())
    }
}

#[test]
fn http_asks_for_the_same_users_and_rights() {
    let dir = folder();
    let data = dir.path().join("data");
    add_offline(&data, "admin", "admin-secret");
    let up = start(&data, &acl_settings());
    let (topics, proxy) = (up.url("fleet", "/api/v1/topics"), up.url("rest", "/topics"));
    assert_eq!(curl(&[&up.url("fleet", "/health")]).status, 200);
    for url in [
        &topics,
        &proxy,
        &up.url("fleet", "/metrics"),
        &up.url("fleet", "/"),
    ] {
        assert_eq!(curl(&[url]).status, 401, "{url}");
        let known = curl(&["--user", "admin:admin-secret", url]);
        assert_eq!(known.status, 200, "{url}: {}", known.body);
        assert_eq!(curl(&["--user", "admin:wrong", url]).status, 401, "{url}");
    }
    let refused = up.cli(&["topics", "list"]);
    let said = text(&refused.stderr);
    assert!(
        said.contains("--login") && !refused.status.success(),
        "{said}"
    );
    let admin = Admin::of(dir.path());
    admin.cli(&up, &["topics", "create", "t"]);
    let listed = admin.cli(&up, &["topics", "list"]);
    assert_eq!(listed["topics"].as_array().unwrap().len(), 1, "{listed}");
    let log = std::fs::read_to_string(data.with_extension("up.log")).unwrap();
    assert!(!log.contains("admin-secret"), "{log}");
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
    let admin = Admin::of(dir.path());
    admin.cli(&up, &["users", "add", "ann", "--password-file", &file]);
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
        admin.cli(&up, &arguments);
    }
    let (streams, ca) = (up.address("streams"), certificates.path("ca.pem"));
    succeed(python("kafka_access.py").args([&streams, &ca]));
    let listed = admin.cli(&up, &["users", "list"]);
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
fn kcat_logs_in_by_scram_whatever_librdkafka_it_has() {
    let dir = folder();
    let data = dir.path().join("data");
    add_offline(&data, "ann", "s3cret");
    let mechanisms = "streams.sasl.mechanisms=[\"SCRAM-SHA-256\",\"SCRAM-SHA-512\"]";
    let up = start(&data, &[mechanisms.to_owned()]);
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let kcat = |password: &str| {
            let mut command = Command::new("kcat");
            command.args(["-b", &up.address("streams"), "-L", "-m", "5"]);
            for property in [
                "security.protocol=sasl_plaintext",
                &format!("sasl.mechanism={mechanism}"),
                "sasl.username=ann",
                &format!("sasl.password={password}"),
            ] {
                command.args(["-X", property]);
            }
            command
        };
        assert!(succeed(&mut kcat("s3cret")).contains("1 brokers"));
        assert!(!kcat("wrong").output().unwrap().status.success());
    }
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
    assert_eq!(succeed(kcat(&known).args(whole_topic("sealed"))), content);
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
    let admin = Admin::of(dir.path());
    let own = admin.cli(&up, &["acls", "list"]);
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
    let left = admin.cli(&up, &["acls", "list"]);
    assert_eq!(left["acls"].as_array().unwrap().len(), 1, "{left}");
}
