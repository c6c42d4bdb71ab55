//! Checks of classes that operators give agents.

use access::{Granted, Principal, Roles};

use super::*;
use crate::FleetError;
use crate::rights::Rights;

fn parked(agent: &str) -> Value {
    let mut beat = heartbeat(agent, None);
    let info = beat["agentInfo"].as_object_mut().unwrap();
    info.remove("agentClass");
    beat
}

#[tokio::test]
async fn a_parked_agent_is_given_a_class_and_its_flow() {
    let world = World::new().await;
    let flow = world.publish("edge", YAML).await["flow_id"].clone();
    world.beat(EFM, &parked("a")).await;
    let asked = world.beat(EFM, &parked("a")).await.requested_operations;
    assert!(asked.is_empty(), "{asked:?}");
    let path = "/api/v1/agents/a/class";
    let body = json!({"class": "edge"}).to_string();
    let (status, told) = world.call("PUT", path, "", body.as_bytes()).await;
    let told: Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(status, 200, "{told}");
    assert_eq!(
        (&told["class"], &told["class_given"]),
        (&json!("edge"), &json!(true))
    );
    let asked = world.beat(EFM, &parked("a")).await.requested_operations;
    assert_eq!(asked[0].arg("flowId").as_deref(), flow.as_str());
    // It lasts, and a class with agents is held.
    let world = world.die().await;
    assert_eq!(world.get("/api/v1/agents/a").await["class"], "edge");
    assert_eq!(world.get("/api/v1/classes/edge").await["agents"], 1);
    assert_eq!(
        world
            .call("DELETE", "/api/v1/classes/edge", "", b"")
            .await
            .0,
        409
    );
    let (status, told) = world.call("DELETE", path, "", b"").await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&told));
    world.beat(EFM, &parked("a")).await;
    let agent = world.get("/api/v1/agents/a").await;
    assert_eq!(
        (&agent["class"], &agent["class_given"]),
        (&Value::Null, &json!(false))
    );
    assert_eq!(world.get("/api/v1/fleet").await["parked"], 1);
}

#[tokio::test]
async fn a_given_class_counts_over_the_one_that_the_agent_names() {
    let world = World::new().await;
    world.publish("field", YAML).await;
    world.beat(EFM, &heartbeat("a", None)).await;
    let path = "/api/v1/agents/a/class";
    for (method, body, class) in [
        ("PUT", r#"{"class": "field"}"#, "field"),
        ("PUT", r#"{"class": "field"}"#, "field"),
        ("DELETE", "", "edge"),
        ("DELETE", "", "edge"),
    ] {
        let (status, told) = world.call(method, path, "", body.as_bytes()).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&told));
        for _ in 0..2 {
            world.beat(EFM, &heartbeat("a", None)).await;
            assert_eq!(world.get("/api/v1/agents/a").await["class"], class);
        }
    }
}

#[tokio::test]
async fn giving_a_class_takes_the_role_for_both_and_is_in_the_audit() {
    let world = World::new().await;
    world.publish("edge", YAML).await;
    world.publish("north", YAML).await;
    world.beat(EFM, &parked("loose")).await;
    world.beat(EFM, &heartbeat("a", None)).await;
    let north = r#"{"class": "north"}"#;
    for (roles, agent, body, expected) in [
        // Who cannot see a parked agent is not told of it.
        ("operator:north", "loose", north, 404),
        ("viewer", "loose", north, 403),
        ("operator:edge", "a", north, 403),
        ("operator:north", "a", north, 404),
        ("operator:edge,designer:north", "a", north, 403),
        ("operator", "a", r#"{"class": "nowhere"}"#, 404),
        ("operator", "nobody", north, 404),
        ("operator", "a", r#"{"class": ""}"#, 404),
        ("operator", "a", r#"{"class": "north", "more": 1}"#, 400),
        ("operator", "a", "{}", 400),
        ("operator:edge,operator:north", "a", north, 200),
        ("operator", "loose", north, 200),
    ] {
        let path = format!("/api/v1/agents/{agent}/class");
        let (status, told) = world.by(roles, "PUT", &path, body).await;
        assert_eq!(status, expected, "{roles} {agent} {body}: {told}");
    }
    let audit = world.get("/api/v1/audit?principal=User:ann").await;
    let entries = audit["entries"].as_array().unwrap();
    let done: Vec<_> = entries
        .iter()
        .filter(|entry| entry["status"] == 200)
        .map(|entry| (&entry["path"], &entry["class"], &entry["details"]))
        .collect();
    assert_eq!(entries.len(), 12);
    assert!(done.contains(&(
        &json!("/api/v1/agents/a/class"),
        &json!("edge"),
        &json!("class north")
    )));
}

#[tokio::test]
async fn the_role_is_for_the_class_that_the_agent_has_when_it_moves() {
    let world = World::new().await;
    for class in ["north", "south"] {
        world.publish(class, YAML).await;
    }
    world.beat(EFM, &heartbeat("a", None)).await;
    // The call is judged before its body is asked for.
    let body = r#"{"class": "south"}"#;
    let mut link = TcpStream::connect(&world.address).await.unwrap();
    let head = format!(
        "PUT /api/v1/agents/a/class HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
         X-As: ann operator:edge,operator:south\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        world.address,
        body.len()
    );
    link.write_all(head.as_bytes()).await.unwrap();
    let mut asked = [0; 25];
    link.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    let path = "/api/v1/agents/a/class";
    let north = r#"{"class": "north"}"#;
    assert_eq!(world.by("operator", "PUT", path, north).await.0, 200);
    link.write_all(body.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    link.read_to_end(&mut answer).await.unwrap();
    let (head, told) = parted(&answer);
    let told = String::from_utf8_lossy(&told);
    assert_eq!(status_of(&head), 404, "{told}");
    assert_eq!(world.get("/api/v1/agents/a").await["class"], "north");

    let operator_of = |class: &str| {
        let mut roles = Roles::default();
        roles.add(&format!("operator:{class}").parse().unwrap());
        Rights::of(Some(Arc::new(Granted {
            principal: Principal::user("ann"),
            host: String::new(),
            roles,
        })))
    };
    for (class, is_taken) in [("edge", false), ("north", true)] {
        let rights = operator_of(class);
        let taken = world.fleet.give_class("a", None, &rights).await;
        match taken {
            Ok(()) => assert!(is_taken, "{class}"),
            Err(FleetError::Unseen { .. }) => assert!(!is_taken, "{class}"),
            Err(other) => panic!("{class}: {other:?}"),
        }
    }
}
