//! Who may do what at the fleet's management API: roles by the command line and by the claims of an
//! issuer, whose keys are asked for.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{Answer, Up, add_offline, curl, eventually, folder, succeed, thalweg_command};
use crate::transport_tls::Issuer;

/// A fleet whose callers are asked who they are, with an administrator.
pub struct Fleet {
    pub up: Up,
    password: String,
}

impl Fleet {
    pub fn start(dir: &Path, settings: &[String]) -> Fleet {
        let data = dir.join("data");
        add_offline(&data, "root", "root-secret");
        let mut grant = thalweg_command();
        grant.args(["roles", "grant", "User:root", "administrator", "--data"]);
        succeed(grant.arg(&data));
        let password = dir.join("root-password");
        std::fs::write(&password, "root-secret\n").unwrap();
        Fleet {
            up: Fleet::up(&data, settings),
            password: password.display().to_string(),
        }
    }

    /// Another node on the database of `other`, which `settings` name; with no users of its own.
    pub fn join(dir: &Path, other: &Fleet, settings: &[String]) -> Fleet {
        Fleet {
            up: Fleet::up(&dir.join("data"), settings),
            password: other.password.clone(),
        }
    }

    /// The arguments of a node with these settings.
    pub fn arguments(settings: &[String]) -> Vec<String> {
        let asks = "access.management_logins=true".to_owned();
        let all = std::iter::once(&asks).chain(settings);
        all.flat_map(|set| ["--set".to_owned(), set.clone()])
            .collect()
    }

    fn up(data: &Path, settings: &[String]) -> Up {
        let arguments = Fleet::arguments(settings);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Up::start_with(data, &arguments)
    }

    /// Runs a client command as the administrator.
    pub fn cli(&self, arguments: &[&str]) -> Value {
        let login = ["--login", "root", "--login-password-file", &self.password];
        self.up.cli_json(&[&login, arguments].concat())
    }

    /// A token of a new user with these roles.
    pub fn token(&self, name: &str, roles: &[&str]) -> String {
        let password = self.up.data().with_extension("new-password");
        std::fs::write(&password, "new-secret\n").unwrap();
        let password = password.display().to_string();
        self.cli(&["users", "add", name, "--password-file", &password]);
        for role in roles {
            self.cli(&["roles", "grant", &format!("User:{name}"), role]);
        }
        let issued = self.cli(&["tokens", "add", name]);
        issued["token"].as_str().unwrap().to_owned()
    }

    /// A call with a token.
    pub fn call(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let bearer = format!("Authorization: Bearer {token}");
        let url = self.up.url("management", path);
        let mut arguments = vec!["--request", method, "--header", &bearer];
        if !body.is_empty() {
            arguments.extend(["--data-binary", body]);
        }
        arguments.push(&url);
        curl(&arguments)
    }

    /// A heartbeat, for which no agent logs in.
    pub fn beat(&self, agent: &str, class: &str) {
        let body = json!({"agentInfo": {"identifier": agent, "agentClass": class,
            "agentManifestHash": "h", "agentManifest": {"agentType": "minifi-java",
                "buildInfo": {"version": "2.3.0"}, "supportedOperations": [
                    {"type": "TRANSFER", "properties": {"DEBUG": {}}}]}}});
        let url = self.up.url("management", "/c2/heartbeat");
        let answer = curl(&["--json", &body.to_string(), &url]);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Publishes a flow as the administrator; answers its id.
    pub fn publish(&self, class: &str) -> String {
        let file = self.up.data().with_extension("yml");
        let text = "MiNiFi Config Version: 3\nProcessors:\n- {id: p, name: P, class: org.P}\n";
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let told = self.cli(&["flows", "publish", "--class", class, &file]);
        told["flow_id"].as_str().unwrap().to_owned()
    }
}

#[test]
fn the_audit_tells_where_a_call_came_from_also_where_nobody_is_asked() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "t"]);
    let entry = eventually("the call is kept", || {
        let entry = up.get("/api/v1/audit")["entries"][0].take();
        (!entry.is_null()).then_some(entry)
    });
    assert_eq!(
        (&entry["path"], &entry["host"]),
        (&json!("/api/v1/topics"), &json!("127.0.0.1"))
    );
}

#[test]
fn roles_are_managed_by_the_command_line_and_every_change_is_audited() {
    let dir = folder();
    let fleet = Fleet::start(
        dir.path(),
        &["access.roles.User:cfg=viewer:north".to_owned()],
    );
    fleet.beat("e", "edge");
    fleet.beat("n", "north");
    let ann = fleet.token("ann", &["viewer:edge"]);
    let cfg = fleet.token("cfg", &[]);
    let seen = |token: &str| -> Vec<String> {
        let agents = fleet.call(token, "GET", "/api/v1/agents", "").json();
        let agents = agents["agents"].as_array().unwrap().iter();
        agents
            .map(|agent| agent["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        (seen(&ann), seen(&cfg)),
        (vec!["e".to_owned()], vec!["n".to_owned()])
    );
    let me = fleet.call(&ann, "GET", "/api/v1/me", "").json();
    assert_eq!(
        me,
        json!({"principal": "User:ann", "roles": ["viewer:edge"]})
    );
    let ask = r#"{"operation": "TRANSFER", "operand": "debug"}"#;
    let asked = |token: &str| fleet.call(token, "POST", "/api/v1/classes/edge/operations", ask);
    let refused = asked(&ann);
    assert_eq!(refused.status, 403);
    assert!(
        refused.body.contains("operator for the class 'edge'"),
        "{}",
        refused.body
    );
    // Nobody gives roles to themselves.
    let own = r#"{"principal": "User:ann", "role": "administrator"}"#;
    assert_eq!(fleet.call(&ann, "POST", "/api/v1/roles", own).status, 403);
    fleet.cli(&["roles", "grant", "User:ann", "operator:edge"]);
    assert_eq!(asked(&ann).status, 201);
    let listed = fleet.cli(&["roles", "list"]);
    let roles: Vec<String> = listed["roles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|role| {
            let text = |key: &str| role[key].as_str().unwrap_or("all").to_owned();
            format!("{} {} {}", text("principal"), text("role"), text("class"))
        })
        .collect();
    let expected = [
        "User:ann viewer edge",
        "User:ann operator edge",
        "User:root administrator all",
    ];
    assert_eq!(roles, expected);
    fleet.cli(&["roles", "revoke", "User:ann", "operator:edge"]);
    assert_eq!(asked(&ann).status, 403);
    fleet.cli(&["users", "remove", "ann"]);
    assert_eq!(asked(&ann).status, 401);
    let audit = fleet.cli(&["audit"]);
    let entries: Vec<String> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap_or("-").to_owned();
            let (who, method, path) = (text("principal"), text("method"), text("path"));
            format!(
                "{who} {method} {path} {} {}",
                text("class"),
                entry["status"]
            )
        })
        .collect();
    for wanted in [
        "User:ann POST /api/v1/classes/edge/operations edge 403",
        "User:ann POST /api/v1/classes/edge/operations edge 201",
        "User:ann POST /api/v1/roles - 403",
        "User:root POST /api/v1/roles - 201",
        "User:root DELETE /api/v1/roles - 204",
        "User:root DELETE /api/v1/users/ann - 204",
    ] {
        assert!(
            entries.iter().any(|entry| entry == wanted),
            "{wanted} in {entries:#?}"
        );
    }
    let all = audit.to_string();
    assert!(!all.contains(&ann) && !all.contains("new-secret"), "{all}");
}

/// An issuer of tokens that tells its keys as OpenID Connect Discovery has it.
struct FakeIssuer {
    url: String,
    /// The key set that it tells; nothing answers while there is none.
    keys: Arc<Mutex<Option<String>>>,
}

impl FakeIssuer {
    fn start() -> FakeIssuer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let keys: Arc<Mutex<Option<String>>> = Arc::default();
        let (told, own) = (keys.clone(), url.clone());
        std::thread::spawn(move || {
            for link in listener.incoming() {
                let mut link = link.unwrap();
                let mut head = [0; 4096];
                let read = link.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let keys = told.lock().unwrap().clone();
                let body = match (path, keys) {
                    ("/.well-known/openid-configuration", Some(_)) => {
                        json!({"issuer": own, "jwks_uri": format!("{own}/keys")}).to_string()
                    }
                    ("/keys", Some(keys)) => keys,
                    _ => String::new(),
                };
                let status = if body.is_empty() {
                    "503 Away"
                } else {
                    "200 OK"
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = link.write_all(answer.as_bytes());
            }
        });
        FakeIssuer { url, keys }
    }

    fn tell(&self, folder: &Path) {
        let keys = std::fs::read_to_string(folder.join("jwks.json")).unwrap();
        *self.keys.lock().unwrap() = Some(keys);
    }
}

#[test]
fn an_issuers_groups_are_roles_and_its_new_keys_are_noticed() {
    let dir = folder();
    let (old, new): (PathBuf, PathBuf) = (dir.path().join("old"), dir.path().join("new"));
    std::fs::create_dir_all(&old).unwrap();
    std::fs::create_dir_all(&new).unwrap();
    let issuer = FakeIssuer::start();
    let (old_key, new_key) = (Issuer::make(&old), Issuer::make(&new));
    issuer.tell(&old);
    let settings = [
        format!("access.jwt.issuer={}", issuer.url),
        "access.jwt.discover=true".to_owned(),
        "access.jwt.audience=thalweg".to_owned(),
        "access.jwt.principal_claim=preferred_username".to_owned(),
        "access.jwt.groups_claim=realm_access.roles".to_owned(),
        "access.roles.group:edge-ops=operator:edge".to_owned(),
        "access.roles.group:admins=administrator".to_owned(),
    ];
    let fleet = Fleet::start(dir.path(), &settings);
    fleet.beat("e", "edge");
    fleet.beat("n", "north");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let exp = now.unwrap().as_secs() + 600;
    let claims = |who: &str, groups: &[&str]| {
        json!({"iss": issuer.url, "aud": "thalweg", "exp": exp, "sub": "7",
            "preferred_username": who, "realm_access": {"roles": groups}})
    };
    let ann = old_key.sign(&claims("ann", &["edge-ops", "others"]));
    let status = |token: &str, path: &str| fleet.call(token, "GET", path, "").status;
    eventually("the issuer's keys are known", || {
        (status(&ann, "/api/v1/agents/e") == 200).then_some(())
    });
    assert_eq!(status(&ann, "/api/v1/agents/n"), 404);
    let me = fleet.call(&ann, "GET", "/api/v1/me", "").json();
    assert_eq!(
        me,
        json!({"principal": "User:ann", "roles": ["operator:edge"]})
    );
    let boss = old_key.sign(&claims("boss", &["admins"]));
    assert_eq!(status(&boss, "/api/v1/agents/n"), 200);
    let nobody = old_key.sign(&claims("nobody", &[]));
    assert_eq!(status(&nobody, "/api/v1/agents"), 403);
    let mut elsewhere = claims("boss", &["admins"]);
    elsewhere["aud"] = json!("elsewhere");
    assert_eq!(status(&old_key.sign(&elsewhere), "/api/v1/agents"), 401);
    let mut other = claims("boss", &["admins"]);
    other["iss"] = json!("https://evil.example.org");
    assert_eq!(status(&old_key.sign(&other), "/api/v1/agents"), 401);
    assert_eq!(
        status(
            &new_key.sign(&claims("boss", &["admins"])),
            "/api/v1/agents"
        ),
        401
    );
    // Who they are is in the audit by the name that the issuer gives.
    let ask = r#"{"operation": "TRANSFER", "operand": "debug"}"#;
    let asked = fleet.call(&ann, "POST", "/api/v1/agents/e/operations", ask);
    assert_eq!(asked.status, 201, "{}", asked.body);
    let audit = fleet.cli(&["audit", "--principal", "User:ann"]);
    assert_eq!(audit["entries"][0]["class"], "edge", "{audit}");
    // The issuer goes over to another key; one wrong token is enough to notice.
    issuer.tell(&new);
    let ann = new_key.sign(&claims("ann", &["edge-ops"]));
    eventually("the issuer's new key is known", || {
        (status(&ann, "/api/v1/agents/e") == 200).then_some(())
    });
    assert_eq!(status(&boss, "/api/v1/agents/n"), 401);
}
