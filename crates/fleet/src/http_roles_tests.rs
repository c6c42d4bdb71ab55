//! Checks of who may see and do what: callers of different classes, what they try at random, and
//! the audit.

use access::{Granted, Principal, Role, Roles};
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::post;
use base::Rng;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use super::*;
use crate::http::rules::{About, RULES};

/// Takes the caller's roles from the header `X-As: NAME GRANT,GRANT`, in the place of a login.
pub(super) async fn named(mut request: Request, next: Next) -> Response {
    if let Some(text) = request.headers().get("x-as").cloned() {
        let (name, grants) = text
            .to_str()
            .unwrap()
            .split_once(' ')
            .unwrap_or(("ann", ""));
        let mut roles = Roles::default();
        let grants = grants.split(',').filter(|grant| !grant.is_empty());
        grants.for_each(|grant| roles.add(&grant.parse().unwrap()));
        request.extensions_mut().insert(Arc::new(Granted {
            principal: Principal::user(name),
            host: "10.0.0.1".to_owned(),
            roles,
        }));
    }
    next.run(request).await
}

/// A class with one of everything, and the names and ids by which somebody would know of it.
struct Class {
    name: String,
    agent: String,
    flows: Vec<String>,
    operation: String,
    request: String,
    rollout: String,
    resource: String,
    bundle: String,
    manifest: String,
}

impl Class {
    async fn furnish(world: &World, name: &str) -> Class {
        let agent = format!("{name}-agent");
        let manifest = format!("{name}-manifest");
        let mut beat = heartbeat(&agent, None);
        beat["agentInfo"]["agentClass"] = json!(name);
        beat["agentInfo"]["agentManifestHash"] = json!(manifest);
        beat["agentInfo"]["agentManifest"]["identifier"] = json!(manifest);
        beat["agentInfo"]["agentManifest"]["supportedOperations"] = json!([
            {"type": "UPDATE", "properties": {"CONFIGURATION": {}}},
            {"type": "TRANSFER", "properties": {"DEBUG": {}}}]);
        beat["deviceInfo"]["networkInfo"]["hostname"] = json!(format!("{name}-host"));
        beat["flowInfo"] = json!({"processorBulletins": [{"id": 1, "level": "ERROR",
            "timestamp": START.0, "message": format!("{name}-bulletin")}]});
        world.beat(EFM, &beat).await;
        let asked = world
            .by_root(
                "POST",
                &format!("agents/{agent}/operations"),
                &json!({"operation": "TRANSFER", "operand": "debug"}),
            )
            .await;
        let operation = asked["operation_ids"][0].as_str().unwrap().to_owned();
        world.beat(EFM, &beat).await;
        let form = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n\
                    content\r\n--x--\r\n";
        let headers = "Content-Type: multipart/form-data; boundary=x\r\n";
        let path = format!("{EFM}/bundles/{operation}");
        assert_eq!(
            world.call("POST", &path, headers, form.as_bytes()).await.0,
            200
        );
        let mut flows = Vec::new();
        for version in ["one", "two"] {
            let text = YAML.replace("name: P", &format!("name: {name}-{version}"));
            let path = format!("/api/v1/classes/{name}/flows?deploy=false");
            let (status, told) = world.call("POST", &path, "", text.as_bytes()).await;
            assert_eq!(status, 201, "{}", String::from_utf8_lossy(&told));
            let told: Value = serde_json::from_slice(&told).unwrap();
            flows.push(told["flow_id"].as_str().unwrap().to_owned());
        }
        let path = format!("classes/{name}/rollouts");
        let rollout = world
            .by_root("POST", &path, &json!({"flow_id": flows[0]}))
            .await;
        let rollout_id = rollout["id"].as_str().unwrap();
        // It goes on by itself, and nothing is to change here but by the calls.
        let pause = format!("rollouts/{rollout_id}/pause");
        world.by_root("POST", &pause, &json!({})).await;
        let path = format!("/api/v1/resources?name={name}-resource");
        let (_, told) = world.call("POST", &path, "", b"content").await;
        let resource: Value = serde_json::from_slice(&told).unwrap();
        let resource = resource["id"].as_str().unwrap().to_owned();
        let path = format!("classes/{name}/resources");
        world
            .by_root("PUT", &path, &json!({"assign": [resource]}))
            .await;
        let value = json!({"p": {"value": format!("{name}-value")}});
        for owner in [
            format!("classes/{name}"),
            format!("agents/{agent}"),
            format!("flows/{}", flows[0]),
        ] {
            world
                .by_root("PATCH", &format!("{owner}/parameters"), &value)
                .await;
        }
        Class {
            request: asked["request_id"].as_str().unwrap().to_owned(),
            rollout: rollout["id"].as_str().unwrap().to_owned(),
            bundle: operation.clone(),
            name: name.to_owned(),
            agent,
            flows,
            operation,
            resource,
            manifest,
        }
    }

    /// What to put in the place of a path's parameter.
    fn named(&self, about: About, rng: &mut Rng) -> &str {
        match about {
            About::All | About::Class => &self.name,
            About::Agent => &self.agent,
            About::Flow => &self.flows[usize::try_from(rng.below(2)).unwrap()],
            About::Operation => &self.operation,
            About::Request => &self.request,
            About::Rollout => &self.rollout,
            About::Resource => &self.resource,
            About::Bundle => &self.bundle,
            About::Manifest => &self.manifest,
        }
    }

    /// Everything by which it would be known.
    fn marks(&self) -> Vec<&str> {
        let ids = [
            &self.name,
            &self.operation,
            &self.request,
            &self.rollout,
            &self.resource,
        ];
        let ids = ids.into_iter().chain(&self.flows);
        ids.map(String::as_str).collect()
    }
}

impl World {
    /// A call without a login: of somebody who may do everything.
    async fn by_root(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let path = format!("/api/v1/{path}");
        let (status, told) = self.call(method, &path, "", body.as_bytes()).await;
        let text = String::from_utf8_lossy(&told);
        assert!(status == 200 || status == 201, "{path}: {status} {text}");
        serde_json::from_slice(&told).unwrap()
    }

    pub(super) async fn by(
        &self,
        roles: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, String) {
        let headers = format!("X-As: ann {roles}\r\n");
        let (status, told) = self.call(method, path, &headers, body.as_bytes()).await;
        (status, String::from_utf8_lossy(&told).into_owned())
    }

    /// What everybody together may see of a class.
    async fn all_of(&self, class: &Class) -> Vec<String> {
        let mut all = Vec::new();
        for rule in RULES.iter().filter(|rule| rule.method == "GET") {
            // The audit tells of what was tried.
            if rule.about == About::All || rule.path == "/api/v1/audit" {
                continue;
            }
            let mut rng = Rng::from_seed(1);
            let path = fill(rule.path, class.named(rule.about, &mut rng));
            let (status, told) = self.call("GET", &path, "", b"").await;
            all.push(format!(
                "{path} {status} {}",
                String::from_utf8_lossy(&told)
            ));
        }
        all
    }
}

/// A path with its parameters filled in.
fn fill(path: &str, name: &str) -> String {
    let mut filled = String::new();
    for (index, part) in path.split('/').skip(1).enumerate() {
        filled.push('/');
        match part {
            "{wish}" => filled.push_str("abort"),
            part if part.starts_with('{') && index > 0 => filled.push_str(name),
            part => filled.push_str(part),
        }
    }
    filled
}

#[tokio::test]
async fn no_answer_shows_another_class_whatever_is_asked() {
    let world = World::new().await;
    let edge = Class::furnish(&world, "edge").await;
    let north = Class::furnish(&world, "qzxnorth").await;
    // Events are written behind.
    world.fleet.inner.flush().await.unwrap();
    let before = world.all_of(&north).await;
    let mut rng = Rng::from_seed(20_261_122);
    let (mut refused, mut answered) = (0, 0);
    for round in 0..1_500 {
        let rule = &RULES[usize::try_from(rng.below(RULES.len() as u64)).unwrap()];
        let role = Role::ALL[usize::try_from(rng.below(3)).unwrap()];
        let is_own = rng.one_in(3);
        let class = if is_own { &edge } else { &north };
        let mut path = fill(rule.path, class.named(rule.about, &mut rng));
        let asked_north = [
            "class=qzxnorth",
            "agent=qzxnorth-agent",
            "search=qzxnorth",
            "limit=3",
            "state=queued",
            "level=debug",
            "parked=true",
        ];
        if rule.about == About::All && rule.method == "GET" && rng.one_in(2) {
            let at = usize::try_from(rng.below(asked_north.len() as u64)).unwrap();
            path = format!("{path}?{}", asked_north[at]);
        }
        if rule.path.ends_with("/diff") && rng.one_in(2) {
            path = format!("{path}?against={}", north.flows[0]);
        }
        if rule.method == "DELETE" && is_own {
            continue;
        }
        let body = match (rule.method, rng.below(3)) {
            ("GET", _) => String::new(),
            (_, 0) => json!({"operation": "UPDATE", "operand": "configuration",
                "args": {"flowId": north.flows[0]}})
            .to_string(),
            (_, 1) => json!({"assign": [north.resource], "unassign": []}).to_string(),
            _ => json!({"flow_id": north.flows[1]}).to_string(),
        };
        let roles = format!("{role}:edge");
        let (status, told) = world.by(&roles, rule.method, &path, &body).await;
        let call = format!(
            "round {round}: {roles} {} {path} {body}: {status} {told}",
            rule.method
        );
        assert!(status < 500, "{call}");
        // What the caller named themselves tells them nothing.
        let named = format!("{path} {body}");
        for mark in north.marks() {
            let is_shown = told.contains(mark) && !named.contains(mark);
            assert!(!is_shown, "{mark} in {call}");
        }
        let shows = [
            "qzxnorth-host",
            "qzxnorth-bulletin",
            "qzxnorth-value",
            "qzxnorth-one",
        ];
        for mark in shows {
            assert!(!told.contains(mark), "{mark} in {call}");
        }
        let is_about_north = !is_own && rule.about != About::All;
        if is_about_north {
            assert!(status == 403 || status == 404, "{call}");
            assert!(told.contains(&roles), "no reason: {call}");
            refused += 1;
        } else if status < 300 {
            answered += 1;
        }
    }
    assert!(
        refused > 300 && answered > 100,
        "{refused} refused, {answered} answered"
    );
    assert_eq!(world.all_of(&north).await, before);
}

#[tokio::test]
async fn what_is_of_another_class_is_answered_as_what_is_not_there() {
    let world = World::new().await;
    let north = Class::furnish(&world, "north").await;
    let mut rng = Rng::from_seed(1);
    for rule in RULES.iter().filter(|rule| rule.about != About::All) {
        let name = north.named(rule.about, &mut rng);
        let mut told = Vec::new();
        for name in [name, "none-there"] {
            let path = fill(rule.path, name);
            let (status, text) = world.by("operator:edge", rule.method, &path, "{}").await;
            told.push((status, text.replace(name, "NAME")));
        }
        assert_eq!(told[0], told[1], "{} {}", rule.method, rule.path);
        let expected = if rule.about == About::Class { 403 } else { 404 };
        assert_eq!(told[0].0, expected, "{} {}", rule.method, rule.path);
    }
}

#[tokio::test]
async fn each_route_takes_its_role_and_says_which() {
    let world = World::new().await;
    let edge = Class::furnish(&world, "edge").await;
    let mut rng = Rng::from_seed(1);
    for rule in RULES {
        let path = fill(rule.path, edge.named(rule.about, &mut rng));
        let lesser = Role::ALL.iter().filter(|role| **role < rule.role);
        for role in lesser {
            let roles = format!("{role}:edge");
            let (status, told) = world.by(&roles, rule.method, &path, "{}").await;
            assert_eq!(status, 403, "{roles} {} {path}: {told}", rule.method);
            let needed = format!("needs the role {}", rule.role);
            assert!(told.contains(&needed) && told.contains(&roles), "{told}");
        }
        if rule.method != "DELETE" && !path.ends_with("/abort") {
            let roles = format!("{}:edge", rule.role);
            let (status, told) = world.by(&roles, rule.method, &path, "{}").await;
            assert!(
                status != 403 && status < 500,
                "{} {path}: {status} {told}",
                rule.method
            );
        }
    }
}

#[tokio::test]
async fn every_route_has_its_rule() {
    let world = World::new().await;
    let paths: std::collections::BTreeSet<&str> = RULES.iter().map(|rule| rule.path).collect();
    for path in paths {
        let (status, head) = world.head_of("BREW", &fill(path, "x")).await;
        assert_eq!(status, 405, "{path}");
        let allowed = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("allow")
                .then(|| value.trim().to_owned())
        });
        let mut allowed: Vec<String> = allowed.unwrap().split(',').map(str::to_owned).collect();
        allowed.retain(|method| method != "HEAD");
        allowed.sort();
        let mut ruled: Vec<&str> = RULES
            .iter()
            .filter(|rule| rule.path == path)
            .map(|rule| rule.method)
            .collect();
        ruled.sort_unstable();
        assert_eq!(allowed, ruled, "{path}");
    }
}

#[tokio::test]
async fn parked_agents_are_for_those_who_see_all() {
    let world = World::new().await;
    let mut beat = heartbeat("loose", None);
    beat["agentInfo"]
        .as_object_mut()
        .unwrap()
        .remove("agentClass");
    world.beat(EFM, &beat).await;
    let listed = async |roles: &str| {
        let (status, told) = world.by(roles, "GET", "/api/v1/agents", "").await;
        assert_eq!(status, 200, "{told}");
        told.contains("loose")
    };
    assert!(!listed("operator:edge").await && listed("viewer").await);
    let (status, _) = world
        .by("operator:edge", "GET", "/api/v1/agents/loose", "")
        .await;
    assert_eq!(status, 404);
    let (status, told) = world.by("", "GET", "/api/v1/agents", "").await;
    assert_eq!(status, 403, "{told}");
    assert!(told.contains("no role"), "{told}");
}

#[tokio::test]
async fn every_change_is_in_the_audit_and_no_reading_is() {
    let world = World::new().await;
    let edge = Class::furnish(&world, "edge").await;
    world.by("viewer:edge", "GET", "/api/v1/classes", "").await;
    let path = format!("/api/v1/operations/{}/cancel", edge.operation);
    let (refused, _) = world.by("viewer:edge", "POST", &path, "").await;
    assert_eq!(refused, 403);
    let asked = format!("/api/v1/agents/{}/operations", edge.agent);
    let body = r#"{"operation": "TRANSFER", "operand": "debug"}"#;
    assert_eq!(world.by("operator:edge", "POST", &asked, body).await.0, 201);
    let of_ann = world.get("/api/v1/audit?principal=User:ann").await;
    let entries = of_ann["entries"].as_array().unwrap();
    let told: Vec<(i64, &str, &str, &str)> = entries
        .iter()
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap();
            assert_eq!((text("method"), text("host")), ("POST", "10.0.0.1"));
            (
                entry["status"].as_i64().unwrap(),
                text("path"),
                text("class"),
                text("details"),
            )
        })
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    let find = |status| told.iter().find(|(s, ..)| *s == status).unwrap();
    assert_eq!((find(403).1, find(403).2), (&*path, "edge"));
    assert_eq!((find(201).1, find(201).2), (&*asked, "edge"));
    assert!(
        find(201).3.starts_with("TRANSFER debug, request "),
        "{told:?}"
    );
    // What somebody published without a login is there too, page by page.
    let all = world.get("/api/v1/audit?class=edge").await;
    let count = all["entries"].as_array().unwrap().len();
    let mut path = "/api/v1/audit?class=edge&limit=2".to_owned();
    let mut paged = 0;
    loop {
        let page = world.get(&path).await;
        paged += page["entries"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/audit?class=edge&limit=2&before={next}");
    }
    assert!(paged == count && count > 5, "{paged} of {count}");
    let (status, told) = world.by("viewer:north", "GET", "/api/v1/audit", "").await;
    assert_eq!((status, told.contains("edge")), (200, false), "{told}");
    // A restart keeps it; what is too old goes.
    let world = world.restart().await;
    let again = world.get("/api/v1/audit?class=edge").await;
    assert_eq!(again, all);
    world.clock.advance(Duration::from_secs(91 * 24 * 3600));
    let (inner, age) = (&world.fleet.inner, world.fleet.config().audit_max_age.0);
    inner.audit.prune(age, inner.clock.now()).await.unwrap();
    let old = world.get("/api/v1/audit?class=edge").await;
    assert_eq!(old["entries"], json!([]));
}

#[tokio::test]
async fn the_summary_counts_only_what_its_caller_may_see() {
    let world = World::new().await;
    for (agent, class) in [("a", "edge"), ("b", "edge"), ("c", "north"), ("d", "")] {
        let mut beat = heartbeat(agent, None);
        beat["agentInfo"]["agentClass"] = match class {
            "" => Value::Null,
            class => json!(class),
        };
        world.beat(EFM, &beat).await;
    }
    for (roles, agents, classes, parked) in [
        ("viewer", 4, 2, 1),
        ("viewer:edge", 2, 1, 0),
        ("operator:north", 1, 1, 0),
        ("viewer:edge,designer:north", 3, 2, 0),
        ("viewer:none", 0, 0, 0),
    ] {
        let (status, told) = world.by(roles, "GET", "/api/v1/fleet", "").await;
        assert_eq!(status, 200, "{roles}: {told}");
        let told: Value = serde_json::from_str(&told).unwrap();
        let counted = ["agents", "classes", "parked", "online", "heartbeats_total"];
        let counted = counted.map(|key| told[key].as_u64().unwrap());
        assert_eq!(
            counted,
            [agents, classes, parked, agents, agents],
            "{roles}: {told}"
        );
    }
    assert_eq!(world.by("", "GET", "/api/v1/fleet", "").await.0, 403);
}

#[tokio::test]
async fn who_checks_out_is_in_the_log_and_in_the_audit_where_it_is_denied() {
    let mut world = World::new().await;
    let routes = Router::new()
        .route("/api/v1/records/1/check-out", post(|| async {}))
        .route(
            "/api/v1/records/2/check-out",
            post(|| async { StatusCode::FORBIDDEN }),
        );
    let routes = crate::http::audited(routes, world.fleet.clone()).layer(from_fn(named));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let management = world.address.clone();
    world.address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });

    // The server's tasks run on this thread.
    let log = world.folder.path().join("log");
    let file = Arc::new(std::fs::File::create(&log).unwrap());
    let logs = tracing_subscriber::fmt().with_ansi(false);
    let logs = logs.with_writer(file).finish();
    // With a single subscriber, a line that another thread reaches first is silent for all threads.
    let _second = Dispatch::new(NoSubscriber::new());
    let logging = tracing::subscriber::set_default(logs);
    for (record, expected) in [(1, 200), (2, 403)] {
        let path = format!("/api/v1/records/{record}/check-out");
        assert_eq!(world.by("operator", "POST", &path, "").await.0, expected);
    }
    drop(logging);
    let lines = std::fs::read_to_string(&log).unwrap();
    for (record, status) in [(1, 200), (2, 403)] {
        let path = format!("path=\"/api/v1/records/{record}/check-out\"");
        let told = lines.lines().filter(|line| line.contains(&path));
        let told: Vec<&str> = told.collect();
        let is_whole = |line: &&str| {
            line.contains("principal=\"User:ann\"") && line.contains(&format!("status={status}"))
        };
        assert!(told.len() == 1 && told.iter().all(is_whole), "{lines}");
    }
    world.address = management;
    let audit = world.get("/api/v1/audit").await;
    let entries = audit["entries"].as_array().unwrap();
    let paths: Vec<&Value> = entries.iter().map(|entry| &entry["path"]).collect();
    assert_eq!(paths, [&json!("/api/v1/records/2/check-out")]);
}
