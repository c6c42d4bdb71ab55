//! What agents fetch and upload at another node than the one that told them to, a moment later.

use super::*;
use crate::request::Target;
use crate::rights::Rights;

async fn any_node_knows_at_once(url: String) {
    let folder = tempfile::tempdir().unwrap();
    let first = node(folder.path(), Some(&url)).await;
    let other = node(folder.path(), Some(&url)).await;
    let transfers = r#"{"agentType":"minifi-java","version":"2.0.0","bundles":[],"supportedOperations":
        [{"type":"TRANSFER","properties":{"DEBUG":{}}},{"type":"UPDATE","properties":{"CONFIGURATION":{}}}]}"#;
    let agent = Simulated::new(0);
    let beat = async || {
        let manifest = RawJson::parse(transfers.to_owned()).unwrap();
        let heartbeat = Heartbeat {
            agent_info: Some(AgentInfo {
                agent_manifest: Some(manifest),
                ..agent.info(false)
            }),
            ..Heartbeat::default()
        };
        let text = heartbeat.to_vec().unwrap();
        let response = first.heartbeat(heartbeat, &text, &reached()).await;
        response.unwrap().requested_operations
    };
    assert!(beat().await.is_empty());

    let flow = first
        .publish("edge", Bytes::from(FLOW), true)
        .await
        .unwrap();
    let told = beat().await;
    assert_eq!(told[0].args["flowId"], *flow.flow_id);
    assert!(
        other
            .may_fetch_flow(&agent.id, &flow.flow_id)
            .await
            .unwrap()
    );
    let fetched = other.flow_for(&flow.flow_id, Some(&agent.id), None).await;
    // In the shape that this agent reads, so the other node knows the agent too.
    assert!(fetched.unwrap().text.starts_with(b"{"));

    let body = br#"{"operation": "TRANSFER", "operand": "debug"}"#;
    let ask = async || {
        let target = Target::Agent(agent.id.clone());
        first.ask(&Rights::default(), target, body).await.unwrap()
    };
    let asked = ask().await;
    assert_eq!(beat().await.len(), 1, "it is told to");
    let owner = other.bundle_owner(&asked.operation_ids[0]).await;
    assert_eq!(owner.unwrap(), agent.id);

    let asked = ask().await;
    let owner = other.owner_heard_of(&asked.operation_ids[0]).await;
    assert_eq!(owner.unwrap(), Some(agent.id.clone()));
    let asked = ask().await;
    assert_eq!(other.cancel_request(&asked.request_id).await.unwrap(), 1);
    for node in [first, other] {
        node.close().await;
    }
}

#[tokio::test]
async fn any_node_knows_at_once_on_postgres() {
    any_node_knows_at_once(postgres().new_database().await).await;
}

#[tokio::test]
async fn any_node_knows_at_once_on_mariadb() {
    any_node_knows_at_once(mariadb().new_database().await).await;
}
