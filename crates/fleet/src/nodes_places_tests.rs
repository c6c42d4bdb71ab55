//! How many agents are at an operation together, when they call any node.

use super::*;
use crate::operation::OperationStatus;
use crate::request::Target;
use crate::rights::Rights;

const TRANSFERS: &str = r#"{"agentType":"minifi-java","version":"2.0.0","bundles":[],
    "supportedOperations":[{"type":"TRANSFER","properties":{"DEBUG":{}}}]}"#;

/// One heartbeat of an agent; the ids of the operations that it gets.
async fn beat(node: &Fleet, number: usize) -> Vec<String> {
    let agent = Simulated::new(number);
    let manifest = RawJson::parse(TRANSFERS.to_owned()).unwrap();
    let heartbeat = Heartbeat {
        agent_info: Some(AgentInfo {
            agent_manifest: Some(manifest),
            ..agent.info(false)
        }),
        ..Heartbeat::default()
    };
    let text = heartbeat.to_vec().unwrap();
    let operations = match node.heartbeat(heartbeat, &text, &reached()).await {
        Ok(response) => response.requested_operations,
        // It comes again.
        Err(FleetError::NotStored) => Vec::new(),
        Err(error) => panic!("{}", report(&error)),
    };
    let operations = operations.into_iter();
    operations.map(|operation| operation.identifier).collect()
}

/// All agents call at the same moment, half of them at each node.
async fn all_beat(nodes: &[Arc<Fleet>], agents: usize) -> Vec<String> {
    let calls = (0..agents).map(|number| {
        let node = nodes[number % nodes.len()].clone();
        tokio::spawn(async move { beat(&node, number).await })
    });
    let calls: Vec<_> = calls.collect();
    let mut got = Vec::new();
    for call in calls {
        got.extend(call.await.unwrap());
    }
    got
}

async fn no_more_than_so_many(url: String) {
    const AGENTS: usize = 24;
    const AT_ONCE: usize = 5;
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(node(folder.path(), Some(&url)).await);
    }
    all_beat(&nodes, AGENTS).await;
    for node in &nodes {
        node.inner.flush().await.unwrap();
    }
    for node in &nodes {
        node.inner.read_feed(false).await.unwrap();
    }
    let body = br#"{"operation": "TRANSFER", "operand": "debug", "at_once": 5}"#;
    let target = Target::Class("edge".to_owned());
    let asked = nodes[0].ask(&Rights::default(), target, body).await;
    let asked = asked.unwrap();
    assert_eq!(asked.operation_ids.len(), AGENTS);
    for node in &nodes {
        node.inner.read_feed(false).await.unwrap();
    }
    // None of the nodes knows what the others give away at this moment.
    let mut at_it = all_beat(&nodes, AGENTS).await;
    assert_eq!(at_it.len(), AT_ONCE);
    let mut all: BTreeSet<String> = at_it.iter().cloned().collect();
    let until = Instant::now() + Duration::from_secs(150);
    while all.len() < AGENTS {
        assert!(Instant::now() < until, "{} of {AGENTS}", all.len());
        // One answers, at any node.
        if !at_it.is_empty() {
            let done = Acknowledge::new(&at_it.remove(0), AckState::FullyApplied);
            nodes[all.len() % nodes.len()]
                .acknowledge(done)
                .await
                .unwrap();
        }
        let got = all_beat(&nodes, AGENTS).await;
        for id in got {
            assert!(all.insert(id.clone()), "{id} is out twice");
            at_it.push(id);
        }
        assert!(at_it.len() <= AT_ONCE, "{} are at it", at_it.len());
    }
    // Another node hears of another bound, and what is stored tells the same.
    let paced = nodes[1].pace_request(&asked.request_id, 9).await.unwrap();
    assert_eq!(paced.at_once, 9);
    nodes[2].inner.read_feed(false).await.unwrap();
    let known = nodes[2].request(&asked.request_id).await.unwrap();
    assert_eq!((known.at_once, known.counts.queued), (9, 0));
    nodes[0].inner.flush().await.unwrap();
    let count = sql::Statement::new("SELECT COUNT(*) AS n FROM operations WHERE state = ?");
    let count = count.bind(OperationStatus::Deployed.as_str());
    let row = nodes[0].inner.store.database().row("count", &count).await;
    let deployed = row.unwrap().unwrap().number("n").unwrap();
    assert_eq!(usize::try_from(deployed).unwrap(), at_it.len());
    for node in nodes {
        node.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_so_many_are_at_it_on_postgres() {
    no_more_than_so_many(postgres().new_database().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_so_many_are_at_it_on_mariadb() {
    no_more_than_so_many(mariadb().new_database().await).await;
}
