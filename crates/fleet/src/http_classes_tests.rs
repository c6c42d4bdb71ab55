//! Checks of classes that operators make, describe, point at a manifest and remove.

use super::*;

const EFM_CLASSES: &str = "/efm/api/agent-classes";

async fn furnished() -> World {
    let world = World::new().await;
    for (agent, hash) in [("a", "h"), ("b", "h"), ("c", "i")] {
        let mut beat = heartbeat(agent, None);
        beat["agentInfo"]["agentManifestHash"] = json!(hash);
        beat["agentInfo"]["agentManifest"]["buildInfo"]["version"] = json!(format!("1.{hash}"));
        world.clock.advance(Duration::from_secs(1));
        world.beat(EFM, &beat).await;
    }
    world
}

impl World {
    async fn asked(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let (status, told) = self.call(method, path, "", body.as_bytes()).await;
        (status, serde_json::from_slice(&told).unwrap())
    }

    /// What is refused, with the status and the words that tell why.
    async fn refused(&self, method: &str, path: &str, body: &Value, status: u16, words: &[&str]) {
        let (found, told) = self.asked(method, path, body).await;
        let call = format!("{method} {path} {body}: {told}");
        assert_eq!(found, status, "{call}");
        let message = told["message"].as_str().unwrap();
        for word in words {
            assert!(message.contains(word), "{word} in {call}");
        }
    }

    async fn resolution(&self, class: &str) -> (Value, Value) {
        let path = format!("/api/v1/classes/{class}/manifest");
        let told = self.get(&path).await;
        (told["resolution"].clone(), told["hash"].clone())
    }
}

#[tokio::test]
async fn a_class_is_made_described_and_kept() {
    let world = World::new().await;
    let path = "/api/v1/classes/north";
    let told = world
        .asked("PUT", path, &json!({"description": "the north"}))
        .await;
    assert_eq!((told.0, &told.1["description"]), (201, &json!("the north")));
    let told = world
        .asked("PUT", path, &json!({"description": "colder"}))
        .await;
    assert_eq!((told.0, &told.1["agents"]), (200, &json!(0)));
    let world = world.die().await;
    assert_eq!(world.get(path).await["description"], "colder");
    // A flow and agents leave it as it is.
    world.publish("north", YAML).await;
    let mut beat = heartbeat("a", None);
    beat["agentInfo"]["agentClass"] = json!("north");
    world.beat(EFM, &beat).await;
    let world = world.restart().await;
    let class = world.get(path).await;
    assert_eq!(
        (
            &class["description"],
            &class["agents"],
            &class["flow_version"]
        ),
        (&json!("colder"), &json!(1), &json!(1)),
        "{class}"
    );
    for (path, body, words) in [
        (path, json!({"describe": "x"}), ["describe", "description"]),
        (
            path,
            json!({"description": "x".repeat(5_000)}),
            ["description", "bytes"],
        ),
        ("/api/v1/classes/a%0Ab", json!({}), ["a class", "control"]),
    ] {
        world.refused("PUT", path, &body, 400, &words).await;
    }
}

#[tokio::test]
async fn a_class_is_removed_with_what_is_its_own_once_no_agent_is_in_it() {
    let world = World::new().await;
    let mut beat = heartbeat("a", None);
    world.beat(EFM, &beat).await;
    let flow = world.publish("edge", YAML).await["flow_id"].clone();
    let flow = format!("/api/v1/flows/{}", flow.as_str().unwrap());
    let other = world
        .publish("edge", &YAML.replace("name: P", "name: Q"))
        .await;
    let value = json!({"p": {"value": "x"}});
    for owner in ["/api/v1/classes/edge", &flow] {
        let path = format!("{owner}/parameters");
        assert_eq!(world.asked("PATCH", &path, &value).await.0, 200);
    }
    let (_, resource) = world
        .asked("POST", "/api/v1/resources?name=m", &json!(1))
        .await;
    let assign = json!({"assign": [resource["id"]]});
    let resources = "/api/v1/classes/edge/resources";
    assert_eq!(world.asked("PUT", resources, &assign).await.0, 200);
    let pin = json!({"resolution": "first"});
    let manifest = "/api/v1/classes/edge/manifest";
    assert_eq!(world.asked("PUT", manifest, &pin).await.0, 200);

    let path = "/api/v1/classes/edge";
    let words = ["edge", "1 agent", "DELETE /api/v1/agents/"];
    world
        .refused("DELETE", path, &Value::Null, 409, &words)
        .await;
    assert_eq!(world.get(path).await["flow_version"], 2);
    // It is not enough that its last agent left it; it may not come back by what is still to be
    // written either.
    beat["agentInfo"]["agentClass"] = json!("south");
    world.beat(EFM, &beat).await;
    assert_eq!(
        world.asked("DELETE", path, &Value::Null).await,
        (200, json!({}))
    );
    let world = world.restart().await;
    for gone in [path, &flow, resources, manifest] {
        world.refused("GET", gone, &Value::Null, 404, &[]).await;
    }
    let known = world.get("/api/v1/resources").await;
    assert_eq!(
        known["resources"][0]["classes"],
        json!([]),
        "the resource stays"
    );
    let other = format!("{EFM}/flows/{}", other["flow_id"].as_str().unwrap());
    assert_eq!(world.call("GET", &other, "", b"").await.0, 404);
    world
        .refused(
            "DELETE",
            path,
            &Value::Null,
            404,
            &["edge", "/api/v1/classes"],
        )
        .await;
    // One of that name is a new one.
    let again = world.publish("edge", YAML).await;
    assert_eq!(again["version"], 1);
    let parameters = world.get("/api/v1/classes/edge/parameters").await;
    assert_eq!(parameters["parameters"], json!([]));
    assert_eq!(world.resolution("edge").await.0, "most");
}

#[tokio::test]
async fn classes_are_made_and_removed_by_efms_paths() {
    let world = furnished().await;
    let new = json!({"name": "north", "description": "the north"});
    let (status, told) = world.asked("POST", EFM_CLASSES, &new).await;
    let wanted = json!({"name": "north", "description": "the north", "agentManifests": [],
        "agents": 0, "agentsOnline": 0, "flowId": null});
    assert_eq!((status, &told), (201, &wanted));
    let north = format!("{EFM_CLASSES}/north");
    world
        .refused("POST", EFM_CLASSES, &new, 409, &["north", "PUT"])
        .await;
    for (body, words) in [
        (json!({"description": "x"}), ["name", "missing"]),
        (json!({"name": "x", "label": "y"}), ["label", "description"]),
        (json!({"name": "x\u{1}"}), ["a class", "control"]),
    ] {
        world.refused("POST", EFM_CLASSES, &body, 400, &words).await;
    }
    // What was read may be sent back, changed.
    let mut told = world.get(&north).await;
    told["description"] = json!("colder");
    assert_eq!(world.asked("PUT", &north, &told).await, (200, told.clone()));
    // What is not told stays.
    assert_eq!(
        world.asked("PUT", &north, &json!({})).await,
        (200, told.clone())
    );
    let other = json!({"name": "south"});
    world
        .refused("PUT", &north, &other, 400, &["name", "north"])
        .await;
    let none = format!("{EFM_CLASSES}/none");
    world
        .refused("PUT", &none, &json!({}), 404, &["none"])
        .await;
    let edge = format!("{EFM_CLASSES}/edge");
    world
        .refused("DELETE", &edge, &Value::Null, 409, &["3 agents"])
        .await;
    assert_eq!(
        world.asked("DELETE", &north, &Value::Null).await,
        (200, told)
    );
    let world = world.restart().await;
    world
        .refused("GET", &north, &Value::Null, 404, &["north"])
        .await;
    // By roles: designers of a class make it, its operators remove it.
    for (roles, method, path, body, status) in [
        (
            "designer:edge",
            "POST",
            EFM_CLASSES,
            json!({"name": "west"}),
            403,
        ),
        (
            "designer:west",
            "POST",
            EFM_CLASSES,
            json!({"name": "west"}),
            201,
        ),
        (
            "designer:west",
            "DELETE",
            "/efm/api/agent-classes/west",
            Value::Null,
            403,
        ),
        (
            "operator:west",
            "DELETE",
            "/efm/api/agent-classes/west",
            Value::Null,
            200,
        ),
    ] {
        let headers = format!("X-As: ann {roles}\r\n");
        let body = body.to_string();
        let (found, told) = world.call(method, path, &headers, body.as_bytes()).await;
        let told = String::from_utf8_lossy(&told);
        assert_eq!(found, status, "{roles} {method} {path}: {told}");
    }
}

#[tokio::test]
async fn a_class_is_pointed_at_a_manifest_by_efms_path() {
    let world = furnished().await;
    let (h, i) = (world.key("h"), world.key("i"));
    let words = (format!("'{h}'"), format!("'{i}'"));
    let edge = format!("{EFM_CLASSES}/edge");
    let diff = format!("{edge}/manifest-diff");
    assert_eq!(world.resolution("edge").await, (json!("most"), json!(h)));
    assert_eq!(world.get(&edge).await["agentManifests"], json!([h, i]));
    assert_eq!(world.get(&diff).await["newManifestAvailable"], true);
    // As it is already: nothing changes.
    for same in [json!([h]), json!([i, h]), json!([]), Value::Null] {
        let told = world
            .asked("PUT", &edge, &json!({"agentManifests": same}))
            .await;
        assert_eq!(told.0, 200, "{told:?}");
        assert_eq!(world.resolution("edge").await.0, "most");
    }
    let told = world
        .asked("PUT", &edge, &json!({"agentManifests": [i]}))
        .await;
    assert_eq!((told.0, &told.1["agentManifests"]), (200, &json!([i, h])));
    let world = world.die().await;
    assert_eq!(world.resolution("edge").await, (json!("named"), json!(i)));
    assert_eq!(world.get(&diff).await["newManifestAvailable"], false);
    // It is not held to it: another one may be named.
    let held = "/efm/api/agent-class-manifest-config";
    assert_eq!(world.get(held).await, json!([]));
    assert_eq!(
        world
            .asked("PUT", &edge, &json!({"agentManifests": [h]}))
            .await
            .0,
        200
    );
    assert_eq!(world.resolution("edge").await, (json!("named"), json!(h)));
    for (manifests, status, word) in [
        (json!(["none"]), 404, "none"),
        (json!([h, "none"]), 400, "agentManifests"),
    ] {
        let body = json!({"agentManifests": manifests, "description": "changed"});
        world.refused("PUT", &edge, &body, status, &[word]).await;
    }
    assert_eq!(world.get(&edge).await["description"], "", "all or nothing");
    // One that is held refuses another, and says where that is changed.
    let mapping = json!({"agentClassName": "edge", "agentManifestId": h});
    assert_eq!(world.asked("POST", held, &mapping).await.0, 201);
    let other = json!({"agentManifests": [i]});
    world
        .refused("PUT", &edge, &other, 409, &[&*words.0, &*words.1, held])
        .await;
    assert_eq!(
        world
            .asked("DELETE", &format!("{held}/edge"), &Value::Null)
            .await
            .0,
        200
    );
    assert_eq!(world.asked("PUT", &edge, &other).await.0, 200);
}
