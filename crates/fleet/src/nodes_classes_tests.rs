//! Checks of classes that one node removes and another one makes.

use super::*;

/// A class that one node removes is gone on all, and one that comes after under its name is whole.
async fn classes_are_removed_by_one_node(url: String) {
    let folder = tempfile::tempdir().unwrap();
    let nodes = [
        node(folder.path(), Some(&url)).await,
        node(folder.path(), Some(&url)).await,
    ];
    let text = |turn: u32| Bytes::from(format!("{FLOW}# {turn}\n"));
    nodes[0].publish("edge", text(0), true).await.unwrap();
    nodes[0].publish("edge", text(1), true).await.unwrap();
    nodes[0].describe_class("edge", "the edge").await.unwrap();
    let class = |node: &Fleet| {
        node.classes()
            .into_iter()
            .find(|class| class.name == "edge")
    };
    let both = async |what: &str, is: &dyn Fn(&Fleet) -> bool| {
        let until = Instant::now() + Duration::from_secs(30);
        while !nodes.iter().all(|node| is(node)) {
            assert!(Instant::now() < until, "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    both("both know it", &|node| {
        class(node)
            .is_some_and(|class| class.flow_version == Some(2) && &*class.description == "the edge")
    })
    .await;
    // An agent that the other node has heard of holds it, whichever node is asked.
    let mut agent = Simulated::new(0);
    agent.beat(&nodes[1], &nodes[1]).await.unwrap();
    let refused = nodes[0].remove_class("edge").await;
    assert!(
        matches!(refused, Err(FleetError::InUse { .. })),
        "{refused:?}"
    );
    nodes[1].remove_agent(&agent.id).await.unwrap();
    both("the agent is gone", &|node| node.agent(&agent.id).is_err()).await;
    nodes[0].remove_class("edge").await.unwrap();
    both("it is gone", &|node| class(node).is_none()).await;
    // Removed here and made again there, in whatever order that is read.
    nodes[0].publish("edge", text(2), true).await.unwrap();
    both("it is a new one", &|node| {
        node.flows("edge").is_ok_and(|flows| flows.len() == 1)
    })
    .await;
    nodes[0].remove_class("edge").await.unwrap();
    nodes[1].publish("edge", text(3), true).await.unwrap();
    both("what came after is there", &|node| {
        let wanted = class(node).is_some_and(|class| class.flow_id.is_some());
        let flows = node.flows("edge").unwrap_or_default();
        wanted && flows.len() == 1 && flows[0].current
    })
    .await;
    for node in &nodes {
        node.close().await;
    }
}

#[tokio::test]
async fn classes_are_removed_by_one_node_on_postgres() {
    classes_are_removed_by_one_node(postgres().new_database().await).await;
}

#[tokio::test]
async fn classes_are_removed_by_one_node_on_mariadb() {
    classes_are_removed_by_one_node(mariadb().new_database().await).await;
}
