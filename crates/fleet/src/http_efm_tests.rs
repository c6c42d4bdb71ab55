//! Checks of EFM's own paths, and of the OpenAPI document against the table of routes.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::http::judge::RULES;
use crate::http::openapi::DOCUMENT;

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
    assert_eq!(classes[0]["agentManifests"], json!(["h"]));
    assert_eq!(world.efm_get("/agent-classes/north").await["name"], "north");
    let manifests = world.efm_get("/agent-manifests?class=edge").await;
    assert_eq!(texts(&manifests, "identifier"), ["h"]);
    assert_eq!(manifests[0]["agentType"], "minifi-java");
    let manifest = world.efm_get("/agent-manifests/h").await;
    assert_eq!(manifest["buildInfo"]["version"], "1.18.0");
    let (status, health) = world.call("GET", "/efm/actuator/health", "", b"").await;
    assert_eq!((status, &*health), (200, &br#"{"status":"UP"}"#[..]));
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
