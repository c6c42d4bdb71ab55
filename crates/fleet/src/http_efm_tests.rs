//! Checks of EFM's own paths, and of the OpenAPI document against the table of routes.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::http::openapi::DOCUMENT;
use crate::http::rules::RULES;

async fn furnished() -> (World, String) {
    let world = World::new().await;
    let mut beat = heartbeat("a", None);
    beat["agentInfo"]["agentManifest"]["supportedOperations"] = json!([
        {"type": "UPDATE", "properties": {"CONFIGURATION": {}}},
        {"type": "TRANSFER", "properties": {"DEBUG": {}}}]);
    world.beat(EFM, &beat).await;
    let mut other = heartbeat("b", None);
    other["agentInfo"]["agentClass"] = json!("north");
    world.beat(EFM, &other).await;
    let flow = world.publish("edge", YAML).await["flow_id"]
        .as_str()
        .unwrap()
        .to_owned();
    (world, flow)
}

impl World {
    async fn efm(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let path = format!("/efm/api{path}");
        let headers = "Content-Type: application/json\r\n";
        let (status, told) = self.call(method, &path, headers, body.as_bytes()).await;
        let told = serde_json::from_slice(&told)
            .unwrap_or_else(|_| panic!("{path}: {}", String::from_utf8_lossy(&told)));
        (status, told)
    }

    async fn efm_get(&self, path: &str) -> Value {
        let (status, told) = self.efm("GET", path, &Value::Null).await;
        assert_eq!(status, 200, "{path}: {told}");
        told
    }
}

fn texts(list: &Value, key: &str) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter()
        .map(|item| item[key].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn agents_and_classes_are_told_in_efms_words() {
    let (world, _) = furnished().await;
    for path in ["/agents", "/agents/page", "/agents?pageSize=2"] {
        let page = world.efm_get(path).await;
        assert_eq!(texts(&page["elements"], "identifier"), ["a", "b"], "{path}");
        assert_eq!(page["page"]["hasNext"], false);
    }
    let first = world.efm_get("/agents/page?pageSize=1").await;
    assert_eq!(texts(&first["elements"], "identifier"), ["a"]);
    assert_eq!(
        first["page"],
        json!({"size": 1, "number": 0, "hasNext": true})
    );
    let second = world.efm_get("/agents/page?pageSize=1&pageNum=1").await;
    assert_eq!(texts(&second["elements"], "identifier"), ["b"]);
    assert_eq!(second["page"]["hasNext"], false);
    for path in [
        "/agents/page?agentClass=north",
        "/agents?filter=agentClass:eq:north",
    ] {
        assert_eq!(
            texts(&world.efm_get(path).await["elements"], "identifier"),
            ["b"]
        );
    }
    for path in ["/agents/a", "/monitor/agents/a"] {
        let agent = world.efm_get(path).await;
        assert_eq!(
            (
                &agent["identifier"],
                &agent["agentClass"],
                &agent["state"],
                &agent["lastSeen"]
            ),
            (
                &json!("a"),
                &json!("edge"),
                &json!("ONLINE"),
                &json!(START.0)
            )
        );
        assert_eq!(
            agent["deviceInfo"]["networkInfo"]["hostname"], "edge-1",
            "{agent}"
        );
    }
    let classes = world.efm_get("/agent-classes").await;
    assert_eq!(texts(&classes, "name"), ["edge", "north"]);
    let key = world.key("h");
    assert_eq!(classes[0]["agentManifests"], json!([key]));
    assert_eq!(world.efm_get("/agent-classes/north").await["name"], "north");
    let manifests = world.efm_get("/agent-manifests?class=edge").await;
    assert_eq!(texts(&manifests, "identifier"), [key]);
    assert_eq!(manifests[0]["agentType"], "minifi-java");
    let manifest = world.efm_get("/agent-manifests/h").await;
    assert_eq!(manifest["buildInfo"]["version"], "1.18.0");
}

#[tokio::test]
async fn what_efm_does_not_know_is_refused_by_name() {
    let (world, flow) = furnished().await;
    let publish = format!("/designer/flows/{flow}/publish");
    for (method, path, body, told) in [
        ("GET", "/agents?sort=name", Value::Null, "sort"),
        ("GET", "/agents?filter=class:eq:edge", Value::Null, "class"),
        (
            "GET",
            "/agents?filter=agentClass:lt:edge",
            Value::Null,
            "FIELD:eq:VALUE",
        ),
        (
            "GET",
            "/agents?pageSize=5000&pageNum=9",
            Value::Null,
            "pageNum",
        ),
        ("GET", "/events?filter=level:eq:grave", Value::Null, "grave"),
        ("POST", &publish, json!({"comment": "x"}), "comment"),
        (
            "POST",
            "/designer/edge/flows/import",
            json!({}),
            "flowContent",
        ),
        (
            "POST",
            "/operations",
            json!({"operation": {}}),
            "targetAgentId",
        ),
        (
            "PUT",
            "/agent-class-resource-manager/edge/save",
            json!({"assign": []}),
            "assign",
        ),
    ] {
        let (status, answer) = world.efm(method, path, &body).await;
        assert_eq!(status, 400, "{method} {path}: {answer}");
        assert!(
            answer["message"].as_str().unwrap().contains(told),
            "{path}: {answer}"
        );
    }
    let (status, answer) = world.efm("GET", "/agents/none", &Value::Null).await;
    assert_eq!(status, 404, "{answer}");
}

#[tokio::test]
async fn a_flow_is_validated_published_exported_and_imported() {
    let (world, flow) = furnished().await;
    let summaries = world.efm_get("/designer/flows/summaries").await;
    assert_eq!(texts(&summaries["elements"], "identifier"), [&*flow]);
    assert_eq!(texts(&summaries["elements"], "agentClass"), ["edge"]);
    let told = world.efm_get(&format!("/designer/flows/{flow}")).await;
    assert_eq!(told["flowContent"]["Processors"][0]["name"], "P", "{told}");
    let validated = world
        .efm_get(&format!("/designer/flows/{flow}/validate"))
        .await;
    assert_eq!(validated, json!({"validationErrors": []}));
    let publish = format!("/designer/flows/{flow}/publish");
    let (status, again) = world
        .efm("POST", &publish, &json!({"comments": "again"}))
        .await;
    assert_eq!(
        (status, &again["version"], &again["published"]),
        (200, &json!(2), &json!(true))
    );
    let audit = world.get("/api/v1/audit?class=edge").await;
    let details = texts(&audit["entries"], "details");
    let is_told = details.iter().any(|details| details.ends_with(": again"));
    assert!(is_told, "{details:?}");
    let exported = world.efm_get("/designer/edge/flows/export").await;
    assert_eq!(exported["exportableFlowFormat"], "yaml");
    let (status, imported) = world
        .efm("POST", "/designer/copies/flows/import", &exported)
        .await;
    assert_eq!(status, 201, "{imported}");
    assert_eq!(
        (&imported["agentClass"], &imported["published"]),
        (&json!("copies"), &json!(false))
    );
    let copy = imported["identifier"].as_str().unwrap();
    let copied = world.efm_get(&format!("/designer/flows/{copy}")).await;
    assert_eq!(copied["flowContent"], told["flowContent"]);
    // It reaches agents when it is published.
    let publish = format!("/designer/flows/{copy}/publish");
    let (status, _) = world.efm("POST", &publish, &Value::Null).await;
    assert_eq!(status, 200);
    let class = world.get("/api/v1/classes/copies").await;
    assert_eq!(class["flow_version"], 2);
}

#[tokio::test]
async fn operations_and_events_are_told_in_efms_words() {
    let (world, _) = furnished().await;
    let asked = json!({"operation": {"operation": "TRANSFER", "operand": "debug"},
        "targetAgentId": "a"});
    let (status, told) = world.efm("POST", "/operations", &asked).await;
    assert_eq!((status, &told["state"]), (201, &json!("QUEUED")), "{told}");
    let id = told["identifier"].as_str().unwrap();
    let one = world.efm_get(&format!("/operations/{id}")).await;
    assert_eq!(
        (&one["operation"]["operation"], &one["targetAgentId"]),
        (&json!("TRANSFER"), &json!("a"))
    );
    let cancel = format!("/api/v1/operations/{id}/cancel");
    world.call("POST", &cancel, "", b"").await;
    let listed = world.efm_get("/operations?pageSize=500").await;
    assert!(
        texts(&listed["elements"], "state").contains(&"CANCELLED".to_owned()),
        "{listed}"
    );
    let of_north = world.efm_get("/operations?agentClass=north").await;
    assert!(!texts(&of_north["elements"], "targetAgentId").contains(&"a".to_owned()));
    world.fleet.inner.flush().await.unwrap();
    let events = world
        .efm_get("/events?filter=agentClass:eq:edge,level:eq:INFO")
        .await;
    let event = &events["elements"][0];
    assert_eq!(
        event["eventSource"],
        json!({"type": "Agent", "id": "a"}),
        "{events}"
    );
    assert_eq!(
        (&event["eventType"], &event["level"]),
        (&json!("agent-registered"), &json!("INFO"))
    );
}

#[tokio::test]
async fn resources_are_uploaded_by_form_and_assigned() {
    let (world, _) = furnished().await;
    let form = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"m\"\r\n\r\n\
                content\r\n--x--\r\n";
    let headers = "Content-Type: multipart/form-data; boundary=x\r\n";
    let path = "/efm/api/resource-manager/resources/file?name=m.bin&resourceType=ASSET\
                &relativePathOnAgent=models&notes=n";
    let (status, told) = world.call("POST", path, headers, form.as_bytes()).await;
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(status, 201, "{told}");
    assert_eq!(
        (&told["relativePathOnAgent"], &told["size"]),
        (&json!("models"), &json!(7))
    );
    let resources = world.efm_get("/resource-manager/resources").await;
    assert_eq!(
        texts(&resources, "digest"),
        [told["digest"].as_str().unwrap()]
    );
    let save = json!({"resourceIdsToBeAssigned": [told["id"]], "resourceIdsToBeUnassigned": []});
    let class = "/agent-class-resource-manager/edge";
    let (status, saved) = world.efm("PUT", &format!("{class}/save"), &save).await;
    assert_eq!(
        (status, texts(&saved, "name")),
        (200, vec!["m.bin".to_owned()])
    );
    assert_eq!(world.efm_get(&format!("{class}/assigned")).await, saved);
    let save = json!({"resourceIdsToBeUnassigned": [told["id"]]});
    let (_, saved) = world.efm("PUT", &format!("{class}/save"), &save).await;
    assert_eq!(saved, json!([]));
    let (status, _) = world.call("POST", path, "", form.as_bytes()).await;
    assert_eq!(status, 415);
}

#[tokio::test]
async fn the_openapi_document_names_every_route_and_is_served() {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    type Routes = BTreeMap<String, BTreeSet<String>>;
    let documented: Routes = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            (path.clone(), methods.map(|m| m.to_uppercase()).collect())
        })
        .collect();
    let mut ruled = Routes::new();
    for rule in RULES {
        ruled
            .entry(rule.path.to_owned())
            .or_default()
            .insert(rule.method.to_owned());
    }
    assert_eq!(documented, ruled);
    let world = World::new().await;
    assert_eq!(world.get("/api/v1/openapi.json").await, document);
}

#[tokio::test]
async fn an_agent_is_removed_with_what_is_its_own_and_comes_back_as_a_new_one() {
    for prefix in ["/efm/api/agents", "/api/v1/agents"] {
        let (world, _) = furnished().await;
        let secret = json!({"broker": {"value": "x:1"}}).to_string();
        let parameters = "/api/v1/agents/a/parameters";
        let (status, _) = world.call("PATCH", parameters, "", secret.as_bytes()).await;
        assert_eq!(status, 200);
        // Something of it is still to be written.
        world.beat(EFM, &heartbeat("a", Some("another"))).await;
        let path = format!("{prefix}/a");
        let viewer = "X-As: ann viewer:edge\r\n";
        assert_eq!(world.call("DELETE", &path, viewer, b"").await.0, 403);
        let other = "X-As: ann operator:north\r\n";
        assert_eq!(world.call("DELETE", &path, other, b"").await.0, 404);
        let operator = "X-As: ann operator:edge\r\n";
        assert_eq!(world.call("DELETE", &path, operator, b"").await.0, 200);
        assert_eq!(world.call("DELETE", &path, "", b"").await.0, 404);
        assert_eq!(world.call("GET", &path, "", b"").await.0, 404);
        let left = world.get("/api/v1/operations").await;
        let of_agents = texts(&left["operations"], "agent_id");
        assert!(!of_agents.contains(&"a".to_owned()), "{left}");
        let audit = world.get("/api/v1/audit?class=edge").await;
        let entries = audit["entries"].as_array().unwrap().iter();
        let mut removals: Vec<i64> = entries
            .filter(|entry| entry["method"] == "DELETE" && entry["path"] == *path)
            .map(|entry| entry["status"].as_i64().unwrap())
            .collect();
        removals.sort_unstable();
        assert_eq!(removals, [200, 403, 404], "{audit}");
        let world = world.restart().await;
        assert_eq!(
            world.call("GET", &path, "", b"").await.0,
            404,
            "it came back"
        );
        let events = world.get("/api/v1/events?kind=agent-removed").await;
        assert_eq!(texts(&events["events"], "agent_id"), ["a"]);
        // It still calls.
        world.clock.advance(Duration::from_secs(60));
        world.beat(EFM, &heartbeat("a", None)).await;
        let agent = world.get("/api/v1/agents/a").await;
        assert_eq!(agent["first_seen_ms"], START.0 + 60_000, "{agent}");
        assert_eq!(world.get(parameters).await["parameters"], json!([]));
    }
}

/// A heartbeat of an agent whose manifest has these processors.
fn beat_of_build(agent: &str, class: &str, build: &str, processors: Value) -> Value {
    let mut beat = heartbeat(agent, None);
    beat["agentInfo"]["agentClass"] = json!(class);
    beat["agentInfo"]["agentManifestHash"] = json!(build);
    let manifest = &mut beat["agentInfo"]["agentManifest"];
    manifest["buildInfo"]["version"] = json!(build);
    manifest["bundles"] = json!([{"group": "g", "artifact": "a", "version": build,
        "componentManifest": {"processors": processors}}]);
    beat
}

#[tokio::test]
async fn manifests_are_listed_and_compared() {
    let world = World::new().await;
    let old = json!([{"type": "org.P"}, {"type": "org.Gone"}]);
    let new = json!([{"type": "org.P"}, {"type": "org.New"}]);
    world
        .beat(EFM, &beat_of_build("a", "edge", "one", old.clone()))
        .await;
    world.clock.advance(Duration::from_secs(1));
    world
        .beat(EFM, &beat_of_build("b", "edge", "two", new))
        .await;
    world
        .beat(EFM, &beat_of_build("c", "north", "three", old))
        .await;
    world.fleet.inner.flush().await.unwrap();
    let all = world.get("/api/v1/manifests").await;
    let all = all["manifests"].as_array().unwrap();
    assert_eq!(all.len(), 3);
    let [one, two, three] = ["one", "two", "three"].map(|hash| world.key(hash));
    assert_eq!(world.get("/api/v1/agents/a").await["manifest_hash"], one);
    let one = all.iter().find(|of| of["hash"] == one).unwrap();
    assert_eq!(
        (&one["agent_version"], &one["agents"], &one["classes"]),
        (&json!("one"), &json!(1), &json!(["edge"]))
    );
    let north = world.get("/api/v1/manifests?class=north").await;
    assert_eq!(texts(&north["manifests"], "hash"), [three.as_str()]);
    let of_north = world
        .call(
            "GET",
            "/api/v1/manifests",
            "X-As: ann viewer:north\r\n",
            b"",
        )
        .await;
    let of_north: Value = serde_json::from_slice(&of_north.1).unwrap();
    assert_eq!(texts(&of_north["manifests"], "hash"), [three.as_str()]);
    let diff = "/api/v1/manifests/two/diff?against=one";
    let found = world.get(diff).await;
    let wanted = [
        "buildInfo.version",
        "processors[\"org.Gone\"]",
        "processors[\"org.New\"]",
    ];
    assert_eq!(texts(&found["differences"], "place"), wanted);
    assert_eq!(
        texts(&found["differences"], "change"),
        ["changed", "removed", "added"]
    );
    let efm = world.efm_get("/agent-classes/edge/manifest-diff").await;
    let own = world.get("/api/v1/classes/edge/manifest").await;
    assert_eq!((&efm["from"], &efm["to"]), (&own["hash"], &json!(two)));
    world
        .call(
            "PUT",
            "/api/v1/classes/edge/manifest",
            "",
            br#"{"resolution": "first"}"#,
        )
        .await;
    let efm = world.efm_get("/agent-classes/edge/manifest-diff").await;
    assert_eq!(efm["differences"], found["differences"], "{efm}");
    // Neither side is anybody's who may not see it.
    let viewer = "X-As: ann viewer:edge\r\n";
    assert_eq!(world.call("GET", diff, viewer, b"").await.0, 200);
    for path in [
        "/api/v1/manifests/two/diff?against=three",
        "/api/v1/manifests/three/diff?against=two",
        "/api/v1/manifests/two/diff?against=none",
    ] {
        assert_eq!(world.call("GET", path, viewer, b"").await.0, 404, "{path}");
    }
    assert_eq!(
        world
            .call("GET", "/api/v1/manifests/two/diff", "", b"")
            .await
            .0,
        400
    );
}

#[tokio::test]
async fn parameters_are_read_and_replaced_as_a_whole() {
    let (world, flow) = furnished().await;
    for path in [
        "/agents/a/parameters".to_owned(),
        "/agent-classes/edge/parameters".to_owned(),
        format!("/designer/flows/{flow}/parameters"),
    ] {
        assert_eq!(world.efm_get(&path).await, json!({"parameters": []}));
        let first = json!({"parameters": [{"name": "broker", "value": "x:1"},
            {"name": "password", "value": "hidden", "sensitive": true}]});
        let (status, told) = world.efm("PUT", &path, &first).await;
        let shown = json!({"parameters": [
            {"name": "broker", "value": "x:1", "sensitive": false},
            {"name": "password", "value": null, "sensitive": true}]});
        assert_eq!((status, &told), (200, &shown), "{path}");
        // What was read may be sent again; what is not named goes.
        let (status, told) = world.efm("PUT", &path, &shown).await;
        assert_eq!((status, &told), (200, &shown), "{path}");
        let second = json!({"parameters": [{"name": "password", "value": null, "sensitive": true},
            {"name": "port", "value": "9"}]});
        let (_, told) = world.efm("PUT", &path, &second).await;
        assert_eq!(texts(&told["parameters"], "name"), ["password", "port"]);
        for (wrong, named) in [
            (
                json!({"parameters": [{"name": "port", "value": null}]}),
                "port",
            ),
            (
                json!({"parameters": [{"name": "x", "value": "hush", "secret": true}]}),
                "line 1",
            ),
            (json!({"parameters": {}}), "write"),
        ] {
            let (status, told) = world.efm("PUT", &path, &wrong).await;
            let message = told["message"].as_str().unwrap();
            assert_eq!(status, 400, "{path}: {told}");
            assert!(
                message.contains(named) && !message.contains("hush"),
                "{told}"
            );
        }
        assert_eq!(world.efm_get(&path).await, told);
    }
    let path = "/efm/api/agent-classes/edge/parameters";
    let body = br#"{"parameters": []}"#;
    let viewer = "X-As: ann viewer:edge\r\n";
    assert_eq!(world.call("PUT", path, viewer, body).await.0, 403);
    assert_eq!(
        world
            .efm("GET", "/agents/none/parameters", &Value::Null)
            .await
            .0,
        404
    );
}

#[tokio::test]
async fn classes_are_held_to_manifests_by_efms_paths() {
    let (world, _) = furnished().await;
    let path = "/efm/api/agent-class-manifest-config";
    let call = async |method: &str, path: &str, body: Value| {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, answer) = world.call(method, path, "", body.as_bytes()).await;
        let told: Value = serde_json::from_slice(&answer).unwrap();
        (status, told)
    };
    let of_edge = format!("{path}/edge");
    let key = world.key("h");
    let mapping = json!({"agentClassName": "edge", "agentManifestId": key});
    assert_eq!(call("GET", path, Value::Null).await, (200, json!([])));
    assert_eq!(call("GET", &of_edge, Value::Null).await.0, 404);
    assert_eq!(call("DELETE", &of_edge, Value::Null).await.0, 404);
    assert_eq!(
        call("POST", path, mapping.clone()).await,
        (201, mapping.clone())
    );
    let own = world.get("/api/v1/classes/edge/manifest").await;
    assert_eq!(
        (&own["resolution"], &own["hash"]),
        (&json!("pinned"), &json!(key))
    );
    assert_eq!(
        call("GET", path, Value::Null).await,
        (200, json!([mapping]))
    );
    assert_eq!(
        call("GET", &of_edge, Value::Null).await,
        (200, mapping.clone())
    );
    let (status, told) = call("POST", path, mapping.clone()).await;
    assert!(status == 409 && told.to_string().contains("PUT"), "{told}");
    assert_eq!(
        call("PUT", path, mapping.clone()).await,
        (200, mapping.clone())
    );
    for (body, status, word) in [
        (
            json!({"agentClassName": "edge", "agentManifestId": "none"}),
            404,
            "none",
        ),
        (
            json!({"agentClassName": "nowhere", "agentManifestId": "h"}),
            404,
            "nowhere",
        ),
        (
            json!({"agentClass": "edge", "agentManifestId": "h"}),
            400,
            "agentClass",
        ),
    ] {
        let (found, told) = call("PUT", path, body).await;
        assert_eq!(found, status, "{told}");
        assert!(told["message"].as_str().unwrap().contains(word), "{told}");
    }
    // By roles: what is another class's is neither seen nor changed.
    let as_north = async |method: &str, path: &str, body: &str| {
        let as_north = "X-As: ann designer:north\r\n";
        world.call(method, path, as_north, body.as_bytes()).await
    };
    assert_eq!(as_north("GET", path, "").await, (200, b"[]".to_vec()));
    assert_eq!(as_north("PUT", path, &mapping.to_string()).await.0, 403);
    assert_eq!(as_north("DELETE", &of_edge, "").await.0, 403);
    assert_eq!(
        call("DELETE", &of_edge, Value::Null).await,
        (200, json!({}))
    );
    let own = world.get("/api/v1/classes/edge/manifest").await;
    assert_eq!(own["resolution"], "most");
}
