//! TLS on the HTTP ports, and the tokens and certificates that say who calls.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::access::Certificates;
use crate::agent::tail_flow;
use crate::harness::{
    Running, Up, add_offline, curl, eventually, folder, signal, succeed, text, thalweg_command,
};
use crate::transport::{JSON_V2, start};

#[test]
fn every_port_speaks_tls_and_a_certificate_is_a_name() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let mut settings = vec![
        "streams.authorization=acl".to_owned(),
        "streams.super_users=[\"User:ann\"]".to_owned(),
    ];
    for role in ["rest", "fleet"] {
        settings.extend([
            format!("{role}.tls.certificate={}", certificates.path("server.pem")),
            format!("{role}.tls.key={}", certificates.path("server.key")),
            format!("{role}.tls.client_ca={}", certificates.path("ca.pem")),
            format!("{role}.tls.client_auth=requested"),
            format!("{role}.tls.principal=common_name"),
        ]);
    }
    let data = dir.path().join("data");
    add_offline(&data, "bob", "bob-secret");
    let up = start(&data, &settings);
    let ca = certificates.path("ca.pem");
    let (certificate, key) = (certificates.path("ann.pem"), certificates.path("ann.key"));
    let (rest, management) = (up.port("rest"), up.port("management"));
    let url = |port: &str, path: &str| format!("https://localhost:{port}{path}");
    let ask = |more: &[&str], url: &str| {
        let mut command = Command::new("curl");
        command.args(["-s", "--cacert", &ca, "-o", "/dev/null"]);
        command
            .args(["-w", "%{http_version} %{http_code}"])
            .args(more);
        succeed(command.arg(url))
    };
    let known = ["--cert", &certificate, "--key", &key];
    for target in [
        url(&rest, "/topics"),
        url(&management, "/"),
        url(&management, "/metrics"),
    ] {
        assert_eq!(ask(&[], &target), "2 401", "{target}");
        assert_eq!(ask(&known, &target), "2 200", "{target}");
        assert_eq!(
            ask(&[&known[..], &["--http1.1"]].concat(), &target),
            "1.1 200",
            "{target}"
        );
        // Bob is no super user, whoever's certificate the connection shows.
        let as_bob = [&known[..], &["--user", "bob:wrong"]].concat();
        assert_eq!(ask(&as_bob, &target), "2 401", "{target}");
    }
    assert_eq!(ask(&[], &url(&management, "/health")), "2 200");
    // What is not TLS gets no answer.
    let mut plain = Command::new("curl");
    plain.args(["-s", "--max-time", "5", &up.url("rest", "/topics")]);
    assert!(!plain.output().unwrap().status.success());
    let made = curl(&[
        "--cacert",
        &ca,
        "--cert",
        &certificate,
        "--key",
        &key,
        "--header",
        &format!("Content-Type: {JSON_V2}"),
        "--data",
        "{}",
        &url(&rest, "/consumers/g"),
    ]);
    let base = made.json()["base_uri"].as_str().unwrap().to_owned();
    assert!(
        base.starts_with(&url(&rest, "/consumers/g/instances/")),
        "{base}"
    );
    commands_say_what_is_amiss_with_tls(&up, &ca);
    tokens_over_tls(&up, dir.path(), &certificates, &data);
    a_certificate_is_read_again(&up, &certificates, &management);
}

/// The command line with a token over TLS.
/// A client that names the server in the wrong way is told the right one.
fn commands_say_what_is_amiss_with_tls(up: &Up, ca: &str) {
    let (port, schemas) = (up.port("management"), up.address("schemas"));
    let told = |arguments: &[&str]| {
        let mut command = thalweg_command();
        let output = command.args(arguments).args(["topics", "list"]).output();
        text(&output.unwrap().stderr)
    };
    let secure = format!("https://localhost:{port}");
    let said = told(&["--server", &secure]);
    assert!(
        said.contains("cannot speak TLS with") && said.contains("--ca FILE"),
        "{said}"
    );
    let said = told(&["--server", &format!("http://localhost:{port}")]);
    assert!(said.contains("--server https://HOST:PORT"), "{said}");
    let said = told(&["--server", &format!("https://{schemas}"), "--ca", ca]);
    assert!(said.contains("as http://HOST:PORT"), "{said}");
    let said = told(&["--server", &secure, "--ca", ca]);
    assert!(said.contains("--login"), "{said}");
}

fn tokens_over_tls(up: &Up, dir: &Path, certificates: &Certificates, data: &Path) {
    let server = format!("https://localhost:{}", up.port("management"));
    let (ca, file) = (certificates.path("ca.pem"), dir.join("token"));
    let issue = curl(&[
        "--cacert",
        &ca,
        "--cert",
        &certificates.path("ann.pem"),
        "--key",
        &certificates.path("ann.key"),
        "--data",
        r#"{"user": "bob", "description": "tests"}"#,
        &format!("{server}/api/v1/tokens"),
    ]);
    assert_eq!(issue.status, 201, "{}", issue.body);
    let token = issue.json()["token"].as_str().unwrap().to_owned();
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let mut command = thalweg_command();
    command
        .args(["--server", &server, "--ca", &ca, "--token-file"])
        .arg(&file);
    command.args(["topics", "list"]);
    // Bob may do nothing, and is known: the server tells what he lacks.
    let refused = command.output().unwrap();
    let said = text(&refused.stderr);
    assert!(
        said.contains("User:bob") && !refused.status.success(),
        "{said}"
    );
    let log = std::fs::read_to_string(data.with_extension("up.log")).unwrap();
    let stored = std::fs::read_to_string(data.join("access/access.json")).unwrap();
    assert!(!log.contains(&token) && !stored.contains(&token));
}

fn a_certificate_is_read_again(up: &Up, certificates: &Certificates, port: &str) {
    let serial = || {
        let mut asked = Command::new("sh");
        asked.args([
            "-c",
            &format!(
                "openssl s_client -connect localhost:{port} </dev/null 2>/dev/null | \
             openssl x509 -noout -serial"
            ),
        ]);
        succeed(&mut asked)
    };
    let before = serial();
    for ending in ["pem", "key"] {
        let (from, to) = (format!("ann.{ending}"), format!("server.{ending}"));
        std::fs::copy(certificates.path(&from), certificates.path(&to)).unwrap();
    }
    signal(up.pid(), Signal::HUP);
    eventually("the new certificate is shown", || {
        (serial() != before).then_some(())
    });
}

#[test]
fn tokens_of_ours_and_of_an_issuer_are_names() {
    let dir = folder();
    let data = dir.path().join("data");
    add_offline(&data, "admin", "admin-secret");
    let issuer = Issuer::make(dir.path());
    let up = start(
        &data,
        &[
            "streams.authorization=acl".to_owned(),
            "streams.super_users=[\"User:admin\", \"User:robot\"]".to_owned(),
            format!("access.jwt.jwks={}", dir.path().join("jwks.json").display()),
            "access.jwt.audience=thalweg".to_owned(),
        ],
    );
    let password = dir.path().join("password");
    std::fs::write(&password, "admin-secret\n").unwrap();
    let password = password.display().to_string();
    let cli = |arguments: &[&str]| {
        let login = ["--login", "admin", "--login-password-file", &password];
        let output = up.cli(&[&login, arguments].concat());
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    let token = cli(&[
        "tokens",
        "add",
        "admin",
        "--expires-in",
        "1h",
        "--description",
        "test",
    ]);
    let token = token.trim();
    let topics = up.url("rest", "/topics");
    let shown_by = |token: &str| {
        let header = format!("Authorization: Bearer {token}");
        curl(&["--header", &header, &topics]).status
    };
    assert_eq!(shown_by(token), 200);
    assert_eq!(shown_by(&token[..token.len() - 1]), 401);
    let listed = cli(&["--output", "json", "tokens", "list", "--user", "admin"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(!listed.to_string().contains(token), "{listed}");
    cli(&[
        "tokens",
        "remove",
        listed["tokens"][0]["id"].as_str().unwrap(),
    ]);
    assert_eq!(shown_by(token), 401);
    // Somebody else's tokens.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_secs();
    let claims = |who: &str, aud: &str, exp: u64| json!({"sub": who, "aud": aud, "exp": exp});
    let good = issuer.sign(&claims("robot", "thalweg", now + 600));
    assert_eq!(shown_by(&good), 200);
    for bad in [
        issuer.sign(&claims("robot", "thalweg", now - 600)),
        issuer.sign(&claims("robot", "elsewhere", now + 600)),
        good.replace("eyJ", "eyK"),
    ] {
        assert_eq!(shown_by(&bad), 401, "{bad}");
    }
    let log = std::fs::read_to_string(data.with_extension("up.log")).unwrap();
    assert!(!log.contains(token) && !log.contains(&good), "{log}");
}

/// Signs JSON Web Tokens by RS256, with openssl.
pub struct Issuer(PathBuf);

impl Issuer {
    pub fn make(folder: &Path) -> Self {
        let key = folder.join("issuer.key");
        succeed(
            Command::new("openssl")
                .args(["genrsa", "-out"])
                .arg(&key)
                .arg("2048"),
        );
        let mut asked = Command::new("openssl");
        let modulus = succeed(asked.args(["rsa", "-noout", "-modulus", "-in"]).arg(&key));
        let digits = modulus.trim().strip_prefix("Modulus=").unwrap().to_owned();
        let pairs = digits.as_bytes().chunks(2);
        let modulus: Vec<u8> = pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let n = URL_SAFE_NO_PAD.encode(modulus);
        let keys = json!({"keys": [{"kty": "RSA", "kid": "k", "n": n, "e": "AQAB"}]});
        std::fs::write(folder.join("jwks.json"), keys.to_string()).unwrap();
        Issuer(key)
    }

    pub fn sign(&self, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!(
            "{}.{}",
            part(&json!({"alg": "RS256", "kid": "k"})),
            part(claims)
        );
        let text = self.0.with_extension("signed");
        std::fs::write(&text, &signed).unwrap();
        let mut signing = Command::new("openssl");
        signing
            .args(["dgst", "-sha256", "-sign"])
            .arg(&self.0)
            .arg(&text);
        let signature = signing.output().unwrap().stdout;
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

#[test]
fn our_agent_calls_a_fleet_that_speaks_tls() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let settings = [
        format!("fleet.tls.certificate={}", certificates.path("server.pem")),
        format!("fleet.tls.key={}", certificates.path("server.key")),
    ];
    let up = start(&dir.path().join("data"), &settings);
    let (server, ca) = (
        format!("https://localhost:{}", up.port("fleet")),
        certificates.path("ca.pem"),
    );
    let flow = dir.path().join("flow.yml");
    let text = tail_flow(&dir.path().join("log"), &up.address("streams"), "lines");
    std::fs::write(&flow, text).unwrap();
    let mut publish = thalweg_command();
    publish.args(["--server", &server, "--ca", &ca, "flows", "publish"]);
    succeed(publish.args(["--class", "edge"]).arg(&flow));
    let mut command = thalweg_command();
    command.args(["agent", "--class", "edge", "--id", "edge-1"]);
    command.args(["--heartbeat", "200ms", "--c2-url", &server]);
    command.arg("--data").arg(dir.path().join("agent"));
    // Whom this machine believes, as other programs are told too.
    command.env("SSL_CERT_FILE", &ca).env_remove("SSL_CERT_DIR");
    let _agent = Running::start(&mut command, &dir.path().join("agent.log"));
    // It heard of the flow, fetched it from the address that it was told, and acknowledged it.
    eventually("the flow is deployed", || {
        let agents = curl(&["--cacert", &ca, &format!("{server}/api/v1/agents")]).json();
        (agents["agents"][0]["flow_state"] == "deployed").then_some(())
    });
}
