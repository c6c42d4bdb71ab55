//! Checks of classes' manifests, who may fetch what, duplicate identifiers, certificates' ends and
//! the bounds of roll-outs, over sockets.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;

use super::*;
use crate::http::Certificate;

/// Takes the headers of a request as what its connection's certificate would say.
pub(super) async fn shows_certificate(mut request: Request, next: Next) -> Response {
    if let Some(certificate) = certificate_of(&request) {
        request.extensions_mut().insert(certificate);
    }
    next.run(request).await
}

fn certificate_of(request: &Request) -> Option<Certificate> {
    let header = |name: &str| {
        let value = request.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let mark = header("x-mark").map_or(0, |mark| mark.parse().unwrap());
    let until = header("x-until").map(|until| UnixMillis(until.parse().unwrap()));
    let subject = header("x-subject")?;
    Some(Certificate::of_subject(&subject).with_facts(mark, until))
}

/// A heartbeat of an agent of a build of its own.
fn beat_with(agent: &str, build: &str) -> Value {
    let processor = json!({"type": format!("org.{build}")});
    let bundles = json!([{"group": "g", "artifact": "a", "version": "1",
        "componentManifest": {"processors": [processor]}}]);
    let mut beat = heartbeat(agent, None);
    beat["agentInfo"]["agentManifestHash"] = json!(build);
    beat["agentInfo"]["agentManifest"]["bundles"] = bundles;
    beat
}

impl World {
    async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        let (status, answer) = self
            .call("PUT", path, "", body.to_string().as_bytes())
            .await;
        (status, serde_json::from_slice(&answer).unwrap())
    }

    /// What a flow of the processor `org.{build}` would be checked against, and its problems.
    async fn checked(&self, build: &str) -> (String, usize) {
        let flow = format!(
            "MiNiFi Config Version: 3\nProcessors:\n- {{id: p, name: P, class: org.{build}}}\n"
        );
        let path = "/api/v1/classes/edge/flows/check";
        let (status, answer) = self.call("POST", path, "", flow.as_bytes()).await;
        assert_eq!(status, 200);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let hash = answer["manifest_hash"].as_str().unwrap().to_owned();
        (hash, answer["problems"].as_array().unwrap().len())
    }

    /// The events of a kind, once they are written.
    async fn told(&self, kind: &str) -> Vec<String> {
        self.fleet.inner.flush().await.unwrap();
        let page = self.get(&format!("/api/v1/events?kind={kind}")).await;
        let events = page["events"].as_array().unwrap().iter();
        events
            .map(|event| event["message"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn beat_as(&self, headers: &str, body: &Value) -> u16 {
        let path = format!("{EFM}/heartbeat");
        let body = body.to_string();
        self.call("POST", &path, headers, body.as_bytes()).await.0
    }
}

#[tokio::test]
async fn a_class_is_held_to_its_first_its_last_or_a_pinned_manifest() {
    let world = World::new().await;
    let path = "/api/v1/classes/edge/manifest";
    for (agent, build) in [("a", "Old"), ("b", "Mid"), ("c", "Mid"), ("d", "New")] {
        world.beat(EFM, &beat_with(agent, build)).await;
        world.clock.advance(Duration::from_secs(1));
    }
    let key = |hash: &str| world.key(hash);
    let view = world.get(path).await;
    assert_eq!(
        (&view["resolution"], &view["is_default"], &view["hash"]),
        (&json!("most"), &json!(true), &json!(key("Mid")))
    );
    let seen: Vec<(&str, i64)> = view["manifests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|seen| {
            let agents = seen["agents"].as_i64().unwrap();
            (seen["hash"].as_str().unwrap(), agents)
        })
        .collect();
    assert_eq!(
        seen,
        [(&*key("Old"), 1), (&*key("Mid"), 2), (&*key("New"), 1)]
    );
    assert_eq!(world.checked("New").await, (key("Mid"), 1));

    for (resolution, hash) in [("first", "Old"), ("last", "New")] {
        let (status, answer) = world.put(path, json!({"resolution": resolution})).await;
        assert_eq!(
            (status, &answer["hash"]),
            (200, &json!(key(hash))),
            "{answer}"
        );
        assert_eq!(world.checked(hash).await, (key(hash), 0));
    }
    let pinned = json!({"resolution": "pinned", "hash": "Mid"});
    assert_eq!(world.put(path, pinned).await.0, 200);
    world.beat(EFM, &beat_with("e", "Newest")).await;

    // It is the class's own, and stays so.
    let world = world.restart().await;
    let key = |hash: &str| world.key(hash);
    assert_eq!(world.checked("Mid").await, (key("Mid"), 0));
    let (status, answer) = world.call("DELETE", path, "", b"").await;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!((status, &answer["is_default"]), (200, &json!(true)));
    assert_eq!(world.put(path, json!({"resolution": "last"})).await.0, 200);
    assert_eq!(world.checked("Newest").await, (key("Newest"), 0));
    assert_eq!(world.put(path, json!({"resolution": "first"})).await.0, 200);
    assert_eq!(world.checked("Old").await, (key("Old"), 0));
}

#[tokio::test]
async fn a_way_that_cannot_be_is_refused_with_what_to_do() {
    let world = World::new().await;
    world.beat(EFM, &heartbeat("a", None)).await;
    let path = "/api/v1/classes/edge/manifest";
    for (body, status, word) in [
        (json!({"resolution": "best"}), 400, "first, last or most"),
        (json!({"resolution": "pinned"}), 400, "with the hash"),
        (json!({"resolution": "first", "hash": "h"}), 400, "pinned"),
        (
            json!({"resolution": "pinned", "hash": "x"}),
            404,
            "manifest 'x'",
        ),
        (json!({"resolution": "first", "more": 1}), 400, "more"),
    ] {
        let (answered, answer) = world.put(path, body.clone()).await;
        assert_eq!(answered, status, "{body}: {answer}");
        assert!(
            answer["message"].as_str().unwrap().contains(word),
            "{answer}"
        );
    }
    let unknown = "/api/v1/classes/nobody/manifest";
    assert_eq!(
        world.put(unknown, json!({"resolution": "last"})).await.0,
        404
    );
}

#[tokio::test]
async fn an_agent_fetches_what_its_class_has_or_it_was_asked_to_fetch_and_nothing_else() {
    let world = World::new().await;
    let manifest = json!({"agentType": "minifi-java", "buildInfo": {"version": "2.3.0"},
        "supportedOperations": [{"type": "UPDATE", "properties": {"ASSET": {}}}]});
    let mut beat = heartbeat("a", None);
    beat["agentInfo"]["agentManifest"] = manifest;
    world.beat(EFM, &beat).await;
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let path = format!("/api/v1/resources?name={name}");
        let (_, made) = world.call("POST", &path, "", name.as_bytes()).await;
        let made: Value = serde_json::from_slice(&made).unwrap();
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    let body = json!({"assign": [ids[0]]});
    assert_eq!(
        world.put("/api/v1/classes/edge/resources", body).await.0,
        200
    );
    let fetch = async |headers: &str, id: &str| {
        let path = format!("{EFM}/resources/{id}");
        world.call("GET", &path, headers, b"").await.0
    };
    let (own, other) = ("X-Subject: CN=a,OU=edge\r\n", "X-Subject: CN=b\r\n");
    assert_eq!(fetch(own, &ids[0]).await, 200, "its class has it");
    assert_eq!(fetch(own, &ids[1]).await, 403);
    assert_eq!(fetch(other, &ids[0]).await, 403, "nobody knows it");
    assert_eq!(fetch("", &ids[1]).await, 200, "nobody knows who asks");
    let below_base = format!("/efm/api/resources/{}", ids[0]);
    assert_eq!(world.call("GET", &below_base, own, b"").await.0, 200);

    let asset = json!({"operation": "UPDATE", "operand": "asset",
        "args": {"file": "x", "resourceId": ids[1]}});
    let path = "/api/v1/agents/a/operations";
    let (status, asked) = world
        .call("POST", path, "", asset.to_string().as_bytes())
        .await;
    assert_eq!(status, 201, "{}", String::from_utf8_lossy(&asked));
    assert_eq!(fetch(own, &ids[1]).await, 200, "it was asked to");
    let asked: Value = serde_json::from_slice(&asked).unwrap();
    let operation = asked["operation_ids"][0].as_str().unwrap();
    world
        .ack(&Acknowledge::new(operation, AckState::FullyApplied))
        .await;
    assert_eq!(fetch(own, &ids[1]).await, 403, "it has it");
}

#[tokio::test]
async fn an_agent_fetches_flows_of_its_class_and_those_that_it_was_told_to_fetch() {
    let world = World::new().await;
    world.beat(EFM, &heartbeat("a", None)).await;
    let flow = |host: &str| {
        format!(
            "MiNiFi Config Version: 3\nProcessors:\n- {{id: p, name: P, class: org.P, Properties: \
             {{Host: '{host}'}}}}\n"
        )
    };
    let mut ids = Vec::new();
    for (class, host) in [("edge", "#{host}"), ("other", "elsewhere"), ("edge", "new")] {
        let published = world.publish(class, &flow(host)).await;
        ids.push(published["flow_id"].as_str().unwrap().to_owned());
        if class == "edge" {
            world.beat(EFM, &heartbeat("a", None)).await;
        }
    }
    let own = json!({"host": {"value": "mine"}}).to_string();
    let path = "/api/v1/agents/a/parameters";
    let (status, _) = world.call("PATCH", path, "", own.as_bytes()).await;
    assert_eq!(status, 200);
    let fetch = async |headers: &str, path: String| {
        let (status, text) = world.call("GET", &path, headers, b"").await;
        (status, String::from_utf8(text).unwrap())
    };
    let (own, stranger) = ("X-Subject: CN=a,OU=edge\r\n", "X-Subject: CN=b\r\n");
    let (status, text) = fetch(own, format!("{EFM}/flows/{}", ids[0])).await;
    assert_eq!(status, 200, "it was told to");
    assert!(
        text.contains("mine"),
        "whose certificate it is, asks: {text}"
    );
    assert_eq!(fetch(own, format!("{EFM}/flows/{}", ids[2])).await.0, 200);
    world.beat(EFM, &heartbeat("a", Some(&ids[1]))).await;
    for path in [
        format!("{EFM}/flows/{}", ids[1]),
        format!("{EFM}/flows/{}?aid=a", ids[1]),
    ] {
        let (status, text) = fetch(own, path).await;
        assert_eq!(status, 403, "{text}");
        assert!(text.contains("is not for the agent 'a'"), "{text}");
    }
    assert_eq!(
        fetch(stranger, format!("{EFM}/flows/{}", ids[0])).await.0,
        403
    );
    assert_eq!(fetch("", format!("{EFM}/flows/{}", ids[1])).await.0, 200);
}

#[tokio::test]
async fn two_who_call_by_one_identifier_are_an_event_and_an_alert() {
    let world = World::new().await;
    let beat = |host: &str| {
        let mut beat = heartbeat("a", None);
        beat["deviceInfo"]["networkInfo"]["hostname"] = json!(host);
        beat
    };
    for host in ["one", "two", "two", "one", "two", "one"] {
        world.clock.advance(Duration::from_secs(10));
        world.beat(EFM, &beat(host)).await;
    }
    let told = world.told("duplicate-identifier").await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("host one") && told[0].contains("host two"));
    let agent = world.get("/api/v1/agents/a").await;
    assert_eq!(agent["duplicate_device"], "host two");
}

#[tokio::test]
async fn certificates_tell_two_apart_and_are_told_of_before_their_end() {
    let world = World::new().await;
    let day = 24 * 3_600_000;
    let beat = heartbeat("a", None);
    let headers = |mark: u64, days: i64| {
        let until = START.0 + days * day;
        format!("X-Subject: CN=a\r\nX-Mark: {mark}\r\nX-Until: {until}\r\n")
    };
    assert_eq!(world.beat_as(&headers(1, 90), &beat).await, 200);
    assert!(world.told("certificate-ending").await.is_empty());
    assert_eq!(world.beat_as(&headers(2, 10), &beat).await, 200);
    assert_eq!(world.beat_as(&headers(2, 10), &beat).await, 200);
    let told = world.told("certificate-ending").await;
    assert_eq!(
        told,
        ["the agent's certificate ends in 10 days: replace it"]
    );
    let agent = world.get("/api/v1/agents/a").await;
    assert_eq!(agent["certificate_ends_ms"], START.0 + 10 * day);
    assert_eq!(world.beat_as(&headers(1, 90), &beat).await, 200);
    let told = world.told("duplicate-identifier").await;
    assert!(told[0].contains("certificate 0000000000000001"), "{told:?}");
}

#[tokio::test]
async fn our_own_certificate_is_told_of_before_its_end() {
    let world = World::new().await;
    let until = START + Duration::from_secs(3 * 24 * 3600);
    world.fleet.watch_certificates(own(1, until));
    world.fleet.inner.look_at_certificates();
    world.fleet.inner.look_at_certificates();
    let told = world.told("certificate-ending").await;
    assert_eq!(
        told,
        ["the certificate of the port fleet ends in 3 days: replace it"]
    );
}

fn own(mark: u64, until: UnixMillis) -> crate::OwnCertificates {
    let facts = access::CertificateFacts {
        not_after: Some(until),
        mark,
    };
    Box::new(move || vec![("fleet", facts)])
}

/// Neither a start anew nor the age at which events go has a certificate told again.
#[tokio::test]
async fn each_certificate_is_told_once_over_all_starts() {
    let mut world = World::new().await;
    let day = Duration::from_secs(24 * 3600);
    let until = |mark: u64| START + 10 * day + Duration::from_secs(3_600 * mark);
    let headers = |mark: u64| {
        format!(
            "X-Subject: CN=a\r\nX-Mark: {mark}\r\nX-Until: {}\r\n",
            until(mark).0
        )
    };
    let beat = heartbeat("a", None);
    let look = async |world: &World, mark: u64| {
        assert_eq!(world.beat_as(&headers(mark), &beat).await, 200);
        world.fleet.watch_certificates(own(mark, until(mark)));
        world.fleet.inner.look_at_certificates();
        // Events of the last day, and no others.
        world.fleet.inner.prune(0).await;
        world.told("certificate-ending").await.len()
    };
    assert_eq!(look(&world, 1).await, 2, "the agent's and our own");
    for _ in 0..2 {
        world = world.restart().await;
        assert_eq!(look(&world, 1).await, 2, "told again after a start");
    }
    // The events themselves go after a day.
    world.clock.advance(2 * day);
    world = world.die().await;
    assert_eq!(
        look(&world, 1).await,
        0,
        "told again when the event was gone"
    );
    // Another certificate is another one; so is the end that comes nearer.
    assert_eq!(look(&world, 2).await, 2);
    world.clock.advance(7 * day);
    assert_eq!(look(&world, 2).await, 2);
    world = world.restart().await;
    assert_eq!(look(&world, 2).await, 2);
}

#[tokio::test]
async fn roll_outs_that_are_over_are_kept_up_to_a_bound() {
    let world = World::new().await;
    world.beat(EFM, &heartbeat("a", None)).await;
    world.publish("edge", YAML).await;
    let path = "/api/v1/classes/edge/flows?deploy=false";
    let (_, stored) = world.call("POST", path, "", YAML.as_bytes()).await;
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    let body = json!({"flow_id": stored["flow_id"]}).to_string();
    let mut begun = Vec::new();
    for _ in 0..crate::limits::CLASS_ROLLOUTS_MAX + 5 {
        world.clock.advance(Duration::from_secs(1));
        let path = "/api/v1/classes/edge/rollouts";
        let (status, answer) = world.call("POST", path, "", body.as_bytes()).await;
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&answer));
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let id = answer["id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/rollouts/{id}/abort");
        assert_eq!(world.call("POST", &path, "", b"").await.0, 200);
        begun.push(id);
    }
    let fence = world.fleet.inner.lease.held().unwrap();
    world.fleet.inner.prune(fence).await;
    // The last one still decides which flow the class gets, beside those that are kept.
    let kept = crate::limits::CLASS_ROLLOUTS_MAX + 1;
    let world = world.restart().await;
    let listed = world.get("/api/v1/classes/edge/rollouts").await;
    let listed = listed["rollouts"].as_array().unwrap();
    assert_eq!(listed.len(), kept);
    assert_eq!(listed[0]["id"], json!(begun.last().unwrap()));
    let oldest = format!("/api/v1/rollouts/{}", begun[0]);
    assert_eq!(world.call("GET", &oldest, "", b"").await.0, 404);
}

#[tokio::test]
async fn a_roll_out_is_stopped_though_it_takes_a_step_at_the_same_moment() {
    let world = World::new().await;
    world.beat(EFM, &heartbeat("a", None)).await;
    world.publish("edge", YAML).await;
    let path = "/api/v1/classes/edge/flows?deploy=false";
    let (_, stored) = world.call("POST", path, "", YAML.as_bytes()).await;
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    let body = json!({"flow_id": stored["flow_id"]}).to_string();
    let path = "/api/v1/classes/edge/rollouts";
    let (_, begun) = world.call("POST", path, "", body.as_bytes()).await;
    let begun: Value = serde_json::from_slice(&begun).unwrap();
    let id = begun["id"].as_str().unwrap();
    let inner = world.fleet.inner.clone();
    // A step is written, and becomes known here a moment later.
    let mut step = (*inner.registry.lock().rollouts[id]).clone();
    step.version += 1;
    step.reach += 1;
    let now = inner.clock.now();
    let written = inner
        .store
        .change_rollout(&step, &[], &inner.ages, now)
        .await;
    assert!(written.unwrap().is_some());
    let told = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        inner.registry.lock().adopt_rollout(step);
    });
    let path = format!("/api/v1/rollouts/{id}/abort");
    let (status, answer) = world.call("POST", &path, "", b"").await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    told.await.unwrap();
    // What is over is over.
    assert_eq!(world.call("POST", &path, "", b"").await.0, 409);
}

#[tokio::test]
async fn a_flow_reaches_each_kind_of_agent_in_its_own_shape() {
    let world = World::new().await;
    let beat = |agent: &str, kind: &str, version: &str| {
        let mut beat = heartbeat(agent, None);
        beat["agentInfo"]["agentManifestHash"] = json!(format!("{kind} {version}"));
        beat["agentInfo"]["agentManifest"] = json!({"agentType": kind,
            "buildInfo": {"version": version}});
        beat
    };
    for (agent, kind, version) in [
        ("new", "minifi-java", "2.3.0"),
        ("old", "minifi-java", "1.18.0"),
        ("cpp", "cpp", "1.26.02"),
    ] {
        world.beat(EFM, &beat(agent, kind, version)).await;
    }
    let fetch = async |flow: &str, agent: &str, headers: &str| {
        let path = format!("{EFM}/flows/{flow}?aid={agent}");
        let (status, text) = world.call("GET", &path, headers, b"").await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&text));
        String::from_utf8(text).unwrap()
    };
    let published = world.publish("edge", YAML).await;
    let flow = published["flow_id"].as_str().unwrap();
    for agent in ["old", "cpp", "nobody"] {
        assert_eq!(fetch(flow, agent, "").await, YAML, "{agent}");
    }
    let json: Value = serde_json::from_str(&fetch(flow, "new", "").await).unwrap();
    assert_eq!(json["rootGroup"]["processors"][0]["type"], "org.P");

    // The agent's parameters get into it all the same.
    let text = "MiNiFi Config Version: 3\nProcessors:\n\
                - {id: p, name: P, class: org.P, Properties: {a: '#{x}'}}\n";
    let published = world.publish("edge", text).await;
    let flow = published["flow_id"].as_str().unwrap();
    let set = json!({"x": {"value": "own"}}).to_string();
    let path = "/api/v1/agents/new/parameters";
    assert_eq!(world.call("PATCH", path, "", set.as_bytes()).await.0, 200);
    let json: Value = serde_json::from_str(&fetch(flow, "new", "").await).unwrap();
    let properties = &json["rootGroup"]["processors"][0]["properties"];
    assert_eq!(properties["a"], "own");

    let text = r#"{"rootGroup": {"identifier": "r", "name": "R", "processors":
        [{"identifier": "p", "name": "P", "type": "org.P"}]}}"#;
    let published = world.publish("edge", text).await;
    let flow = published["flow_id"].as_str().unwrap();
    assert_eq!(fetch(flow, "new", "").await, text);
    assert!(
        fetch(flow, "old", "")
            .await
            .contains("MiNiFi Config Version: 3")
    );
    assert_eq!(fetch(flow, "cpp", "").await, text);
    let accept = "Accept: text/yml\r\n";
    assert!(fetch(flow, "cpp", accept).await.contains("class: org.P"));
}

#[tokio::test]
async fn what_an_agents_shape_cannot_tell_is_a_problem_of_the_flow() {
    let world = World::new().await;
    let mut beat = heartbeat("new", None);
    beat["agentInfo"]["agentManifest"]["buildInfo"]["version"] = json!("2.3.0");
    world.beat(EFM, &beat).await;
    let text = "MiNiFi Config Version: 3\nProcessors:\n\
                - {id: p, name: P, class: org.P, Properties: {Many: [{value: 1}, {value: 2}]}}\n";
    let path = "/api/v1/classes/edge/flows";
    let (status, answer) = world.call("POST", path, "", text.as_bytes()).await;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(status, 400, "{answer}");
    let problem = &answer["problems"][0];
    assert_eq!(
        (&problem["component"], &problem["property"]),
        (&json!("P"), &json!("Many"))
    );
    let reason = problem["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("for agents that read json: "),
        "{reason}"
    );
    let forced = format!("{path}?force=true");
    assert_eq!(
        world.call("POST", &forced, "", text.as_bytes()).await.0,
        201
    );
}
