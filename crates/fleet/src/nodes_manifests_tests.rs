//! Checks of manifests that nodes share, and of rows that a database does not take.

use sql::Statement;

use super::*;
use crate::events::{Event, Kind};

/// A heartbeat of an agent with a hash and a manifest of its own; of one build all say the same.
fn beat_of(agent: &str, build: &str, is_full: bool) -> Heartbeat {
    let text = format!(
        r#"{{"agentType":"cpp","buildInfo":{{"version":"{build}"}},"supportedOperations":[
        {{"type":"update","properties":{{"properties":{{"availableProperties":[
        {{"propertyName":"id","propertyValue":"{agent}"}}]}}}}}}]}}"#
    );
    Heartbeat {
        agent_info: Some(AgentInfo {
            identifier: Some(agent.to_owned()),
            agent_class: Some("edge".to_owned()),
            agent_manifest_hash: Some(format!("hash-of-{agent}-{build}")),
            agent_manifest: is_full.then(|| RawJson::parse(text).unwrap()),
            ..AgentInfo::default()
        }),
        ..Heartbeat::default()
    }
}

async fn beat(node: &Fleet, heartbeat: Heartbeat) -> Vec<c2::Operation> {
    let text = heartbeat.to_vec().unwrap();
    let told = node.heartbeat(heartbeat, &text, &reached()).await;
    told.unwrap_or_else(|error| panic!("{}", report(&error)))
        .requested_operations
}

async fn count(node: &Fleet, text: &str) -> i64 {
    let database = node.inner.store.database();
    let row = database.row("count", &Statement::new(text)).await.unwrap();
    row.unwrap().number("n").unwrap()
}

async fn agents_with_hashes_of_their_own_share_a_manifest(url: String) {
    let folder = tempfile::tempdir().unwrap();
    let nodes = [
        node(folder.path(), Some(&url)).await,
        node(folder.path(), Some(&url)).await,
    ];
    for n in 0..10 {
        let (name, one, other) = (format!("a{n}"), &nodes[n % 2], &nodes[(n + 1) % 2]);
        let asked = beat(one, beat_of(&name, "1", false)).await;
        assert_eq!(asked.len(), 1, "{asked:?}");
        let mut answer = Acknowledge::new(&asked[0].identifier, AckState::FullyApplied);
        answer.agent_info = beat_of(&name, "1", true).agent_info;
        other.acknowledge(answer).await.unwrap();
        // The node that did not hear the answer reads of it, or finds that it is known.
        assert_eq!(beat(one, beat_of(&name, "1", false)).await.len(), 0);
    }
    assert_eq!(
        count(&nodes[0], "SELECT COUNT(*) AS n FROM manifests").await,
        1
    );
    let until = Instant::now() + Duration::from_secs(30);
    let all_have = |node: &Fleet| {
        let page = node.agents(&AgentFilter {
            limit: 100,
            ..AgentFilter::default()
        });
        let have = page.agents.iter().filter(|a| a.manifest_hash.is_some());
        (page.agents.len(), have.count()) == (10, 10)
    };
    while !nodes.iter().all(|node| all_have(node)) {
        assert!(Instant::now() < until, "not all are described");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Who removes it: while one agent has it, nobody; then it is gone on both.
    let key = nodes[0].agent("a0").unwrap().agent.manifest_hash.unwrap();
    let refused = nodes[1].remove_manifest(&key).await;
    assert!(
        matches!(refused, Err(FleetError::InUse { .. })),
        "{refused:?}"
    );
    for n in 0..10 {
        nodes[0].remove_agent(&format!("a{n}")).await.unwrap();
    }
    nodes[0].remove_manifest(&key).await.unwrap();
    while nodes[1]
        .inner
        .registry
        .lock()
        .manifest_named(&key)
        .is_some()
    {
        assert!(Instant::now() < until, "it is there yet");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for node in &nodes {
        node.close().await;
    }
}

#[tokio::test]
async fn agents_with_hashes_of_their_own_share_a_manifest_on_postgres() {
    let url = postgres().new_database().await;
    Box::pin(agents_with_hashes_of_their_own_share_a_manifest(url)).await;
}

#[tokio::test]
async fn agents_with_hashes_of_their_own_share_a_manifest_on_mariadb() {
    let url = mariadb().new_database().await;
    Box::pin(agents_with_hashes_of_their_own_share_a_manifest(url)).await;
}

/// Long words are cut to what a column takes, and what is still not taken holds up nothing else.
async fn a_bad_row_holds_up_no_other(url: String) {
    let folder = tempfile::tempdir().unwrap();
    let node = node(folder.path(), Some(&url)).await;
    beat(&node, beat_of("long", &"9".repeat(300), true)).await;
    let mut strange = beat_of("strange", "1", true);
    strange.device_info = Some(DeviceInfo {
        identifier: Some("\0".repeat(255)),
        ..DeviceInfo::default()
    });
    beat(&node, strange).await;
    node.inner.flush().await.unwrap();
    {
        let mut registry = node.inner.registry.lock();
        let now = base::Clock::now(&SystemClock);
        for kind in ["x".repeat(300), uuid::Uuid::new_v4().to_string()] {
            let mut event = Event::new(Kind::AgentBack, None, String::new(), now);
            event.id = Arc::from(kind);
            registry.tell(event);
        }
    }
    let asked = beat(&node, beat_of("next", "2", false)).await;
    assert_eq!(asked.len(), 1, "what it needs is durable");
    node.inner.flush().await.unwrap();
    let agents = "SELECT COUNT(*) AS n FROM agents";
    assert_eq!(count(&node, agents).await, 3);
    assert_eq!(count(&node, "SELECT COUNT(*) AS n FROM manifests").await, 2);
    let kept = "SELECT COUNT(*) AS n FROM events WHERE kind = 'agent-back'";
    assert_eq!(count(&node, kept).await, 1);
    node.close().await;
}

#[tokio::test]
async fn a_bad_row_holds_up_no_other_on_postgres() {
    let url = postgres().new_database().await;
    Box::pin(a_bad_row_holds_up_no_other(url)).await;
}

#[tokio::test]
async fn a_bad_row_holds_up_no_other_on_mariadb() {
    let url = mariadb().new_database().await;
    Box::pin(a_bad_row_holds_up_no_other(url)).await;
}
