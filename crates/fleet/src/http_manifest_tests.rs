//! Checks of manifests that agents' own hashes lead to, and of what nobody uses, over sockets.

use sql::Statement;

use super::*;

/// A heartbeat of an agent whose manifest has its own name in it.
fn beat_of(agent: &str, class: &str, build: &str, is_full: bool) -> Value {
    let mut beat = heartbeat(agent, None);
    let info = beat["agentInfo"].as_object_mut().unwrap();
    info["agentClass"] = json!(class);
    info["agentManifestHash"] = json!(format!("hash-of-{agent}-{build}"));
    info["agentManifest"] = json!({"agentType": "cpp", "buildInfo": {"version": build},
        "supportedOperations": [{"type": "update", "properties": {"properties":
            {"availableProperties": [{"propertyName": "id", "propertyValue": agent}]}}}]});
    if !is_full {
        info.remove("agentManifest");
    }
    beat
}

impl World {
    async fn hashes(&self) -> Vec<String> {
        let told = self.get("/api/v1/manifests").await;
        let listed = told["manifests"].as_array().unwrap().iter();
        listed
            .map(|of| of["hash"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn deleted(&self, path: &str, headers: &str) -> u16 {
        self.call("DELETE", path, headers, b"").await.0
    }

    async fn remove_unused(&self) {
        self.fleet.inner.flush().await.unwrap();
        self.fleet.inner.remove_unused(0).await;
    }
}

#[tokio::test]
async fn agents_of_one_build_have_one_manifest_also_after_a_restart() {
    let world = World::new().await;
    for agent in ["a", "b", "c"] {
        world.beat(EFM, &beat_of(agent, "edge", "1.26", true)).await;
    }
    let key = world.key("hash-of-b-1.26");
    assert_eq!(world.hashes().await, [key.as_str()]);
    let told = world.get("/api/v1/agents/c").await;
    assert_eq!(told["manifest_hash"], key);
    assert_eq!(
        told["heartbeat"]["agentInfo"]["agentManifestHash"],
        "hash-of-c-1.26"
    );
    // By either name, and without what is one agent's own.
    for name in [key.as_str(), "hash-of-b-1.26"] {
        let manifest = world.get(&format!("/api/v1/manifests/{name}")).await;
        assert_eq!(manifest["buildInfo"]["version"], "1.26");
        assert!(!manifest.to_string().contains("propertyValue"));
    }
    let world = world.die().await;
    for agent in ["a", "b", "c"] {
        let beat = beat_of(agent, "edge", "1.26", false);
        let told = world.beat(EFM, &beat).await;
        assert!(told.requested_operations.is_empty(), "{told:?}");
    }
    assert_eq!(world.hashes().await, [key]);
}

#[tokio::test]
async fn manifests_of_former_versions_stay_with_their_agents() {
    let world = World::new().await;
    world.beat(EFM, &beat_of("a", "edge", "1", true)).await;
    let key = world.key("hash-of-a-1");
    world.fleet.inner.flush().await.unwrap();
    // As it stood before keys were made from what manifests say.
    for text in [
        "UPDATE agents SET manifest_mark = 0, manifest_hash = 'hash-of-a-1'",
        "UPDATE manifests SET hash = 'hash-of-a-1'",
        "UPDATE class_manifests SET hash = 'hash-of-a-1'",
    ] {
        let database = world.fleet.inner.store.database();
        database.run("change", &Statement::new(text)).await.unwrap();
    }
    let world = world.die().await;
    let told = world.beat(EFM, &beat_of("a", "edge", "1", false)).await;
    assert!(told.requested_operations.is_empty(), "{told:?}");
    assert_eq!(world.hashes().await, ["hash-of-a-1"]);
    // One with another hash brings it anew; the old one goes with its last agent.
    world.beat(EFM, &beat_of("b", "edge", "1", true)).await;
    assert_eq!(world.hashes().await.len(), 2);
    assert_eq!(world.deleted("/api/v1/agents/a", "").await, 200);
    world.clock.advance(Duration::from_secs(1));
    world.beat(EFM, &beat_of("c", "edge", "2", true)).await;
    let hold = json!({"resolution": "pinned", "hash": "hash-of-b-1"}).to_string();
    let path = "/api/v1/classes/edge/manifest";
    assert_eq!(world.call("PUT", path, "", hold.as_bytes()).await.0, 200);
    let old = "/api/v1/manifests/hash-of-a-1";
    assert_eq!(world.deleted(old, "").await, 200);
    assert_eq!(world.call("GET", old, "", b"").await.0, 404);
    assert!(world.hashes().await.contains(&key));
}

#[tokio::test]
async fn a_manifest_is_removed_by_an_operator_once_no_agent_has_it() {
    let world = World::new().await;
    for (agent, class, build) in [("a", "edge", "1"), ("b", "edge", "2"), ("c", "edge", "3")] {
        world.beat(EFM, &beat_of(agent, class, build, true)).await;
        world.clock.advance(Duration::from_secs(1));
    }
    let [one, two, _] = ["a-1", "b-2", "c-3"].map(|of| world.key(&format!("hash-of-{of}")));
    let path = |key: &str| format!("/api/v1/manifests/{key}");
    assert_eq!(world.deleted(&path(&one), "").await, 409);
    assert_eq!(world.deleted(&path("none"), "").await, 404);
    world.beat(EFM, &beat_of("a", "edge", "3", true)).await;
    world.beat(EFM, &beat_of("b", "edge", "3", true)).await;
    assert_eq!(
        world.deleted(&path(&one), "X-As: ann viewer\r\n").await,
        403
    );
    assert_eq!(
        world.deleted(&path(&one), "X-As: ann operator\r\n").await,
        200
    );
    assert_eq!(world.call("GET", &path(&one), "", b"").await.0, 404);
    let efm = format!("/efm/api/agent-manifests/{two}");
    assert_eq!(world.deleted(&efm, "").await, 200);
    let told = world.get("/api/v1/classes/edge/manifest").await;
    assert_eq!(told["manifests"].as_array().unwrap().len(), 1);
    // It may come back.
    world.beat(EFM, &beat_of("a", "edge", "1", true)).await;
    assert_eq!(world.key("hash-of-a-1"), one);
    let world = world.die().await;
    assert_eq!(world.hashes().await.len(), 2);
}

#[tokio::test]
async fn what_nobody_uses_goes() {
    let world = World::new().await;
    for build in ["1", "2", "3"] {
        world.beat(EFM, &beat_of("a", "edge", build, true)).await;
        world.clock.advance(Duration::from_secs(1));
    }
    for class in ["passing", "with-flow", "last"] {
        world.beat(EFM, &beat_of("b", class, "3", true)).await;
    }
    world.publish("with-flow", YAML).await;
    for (path, body) in [
        ("/api/v1/classes/made", json!({"description": ""})),
        ("/api/v1/classes/with-value", json!({"description": ""})),
    ] {
        let body = body.to_string();
        assert_eq!(world.call("PUT", path, "", body.as_bytes()).await.0, 201);
    }
    let classes = async |world: &World| {
        let told = world.get("/api/v1/classes").await;
        let listed = told["classes"].as_array().unwrap().iter();
        let names = listed.map(|class| class["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    world.remove_unused().await;
    assert_eq!(classes(&world).await.len(), 6, "it may be used yet");
    world.clock.advance(Duration::from_secs(3_700));
    world.remove_unused().await;
    let stay = ["edge", "last", "made", "with-flow", "with-value"];
    assert_eq!(classes(&world).await, stay);
    // The class's first manifest and its last one stay: rules may name them.
    let told = world.get("/api/v1/classes/edge/manifest").await;
    let versions: Vec<_> = told["manifests"].as_array().unwrap().iter().collect();
    assert_eq!(versions.len(), 2, "{told}");
    assert_eq!(versions[0]["agent_version"], "1");
    let world = world.die().await;
    assert_eq!(classes(&world).await, stay);
    assert_eq!(world.fleet.inner.registry.lock().manifests.len(), 2);
    world.beat(EFM, &beat_of("b", "passing", "3", true)).await;
    assert!(classes(&world).await.contains(&"passing".to_owned()));
}
