//! Checks of classes that operators give agents, at any node.

use super::*;
use crate::rights::Rights;
use crate::store::Giving;

async fn classes_are_given_at_any_node(url: Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = vec![node(folder.path(), url.as_deref()).await];
    if url.is_some() {
        nodes.push(node(folder.path(), url.as_deref()).await);
    }
    let (first, last) = (nodes[0].clone(), nodes[nodes.len() - 1].clone());
    let flow = last.publish("field", Bytes::from(FLOW), true).await;
    let flow = flow.unwrap().flow_id;
    // One that names no class, and one that names another.
    let mut agents = [Simulated::new(0), Simulated::new(1)];
    agents[0].names_no_class = true;
    let ids = [agents[0].id.clone(), agents[1].id.clone()];
    let of = |node: &Fleet, id: &str| {
        let agent = node.agent(id).ok()?.agent;
        Some((agent.class, agent.class_given))
    };
    let known = |nodes: &[Arc<Fleet>], wanted: [Option<&str>; 2], is_given: bool| {
        let is = |node: &Arc<Fleet>| {
            ids.iter()
                .zip(wanted)
                .all(|(id, class)| of(node, id) == Some((class.map(str::to_owned), is_given)))
        };
        nodes.iter().all(is)
    };
    beat_until(&mut agents, &nodes, "they are there", |_| {
        known(&nodes, [None, Some("edge")], false)
    })
    .await;
    let all = Rights::default();
    let unknown = first.give_class(&ids[0], Some("nowhere"), &all).await;
    assert!(
        matches!(unknown, Err(FleetError::Unknown { what: "class", .. })),
        "{unknown:?}"
    );
    let unknown = first.give_class("nobody", Some("field"), &all).await;
    assert!(
        matches!(unknown, Err(FleetError::Unknown { what: "agent", .. })),
        "{unknown:?}"
    );

    // Both nodes hear their heartbeats meanwhile.
    for id in &ids {
        first.give_class(id, Some("field"), &all).await.unwrap();
    }
    beat_until(
        &mut agents,
        &nodes,
        "they run the flow of the class",
        |agents| {
            let runs = |agent: &Simulated| agent.flow.as_ref() == Some(&flow);
            agents.iter().all(runs) && known(&nodes, [Some("field"); 2], true)
        },
    )
    .await;
    let held = last.remove_class("field").await;
    assert!(matches!(held, Err(FleetError::InUse { .. })), "{held:?}");

    // All nodes are started again: what was given stands.
    for node in &nodes {
        node.close().await;
    }
    let count = nodes.len();
    nodes.clear();
    drop((first, last));
    for _ in 0..count {
        nodes.push(node(folder.path(), url.as_deref()).await);
    }
    assert!(known(&nodes, [Some("field"); 2], true));
    let last = nodes[count - 1].clone();
    for id in &ids {
        last.give_class(id, None, &all).await.unwrap();
    }
    beat_until(&mut agents, &nodes, "they are what they say", |_| {
        known(&nodes, [None, Some("edge")], false)
    })
    .await;
    // Nothing takes it up again.
    for node in &nodes {
        node.inner.flush().await.unwrap();
        node.inner.read_feed(true).await.unwrap();
    }
    assert!(known(&nodes, [None, Some("edge")], false));

    // The database has what a commit wrote whose answer was lost; this node does not know.
    let store = &last.inner.store;
    let given = store.give_class(&ids[0], Some("field")).await.unwrap();
    assert!(matches!(given, Giving::Given(_)), "{given:?}");
    last.give_class(&ids[0], None, &all).await.unwrap();
    let given = store.give_class(&ids[0], None).await.unwrap();
    assert!(matches!(given, Giving::Same(_)), "{given:?}");
    store.give_class(&ids[0], Some("field")).await.unwrap();
    last.give_class(&ids[0], Some("field"), &all).await.unwrap();
    let field = (Some("field".to_owned()), true);
    assert_eq!(of(&last, &ids[0]), Some(field));
    last.give_class(&ids[0], None, &all).await.unwrap();
    last.remove_class("field").await.unwrap();
    for node in &nodes {
        node.close().await;
    }
}

#[tokio::test]
async fn classes_are_given_on_sqlite() {
    classes_are_given_at_any_node(None).await;
}

#[tokio::test]
async fn classes_are_given_at_any_node_on_postgres() {
    let url = postgres().new_database().await;
    Box::pin(classes_are_given_at_any_node(Some(url))).await;
}

#[tokio::test]
async fn classes_are_given_at_any_node_on_mariadb() {
    let url = mariadb().new_database().await;
    Box::pin(classes_are_given_at_any_node(Some(url))).await;
}
