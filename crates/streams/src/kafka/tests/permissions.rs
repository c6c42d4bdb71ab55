//! Each row of the table of APIs, asked by somebody who may do nothing: Kafka's own refusals, and
//! lists without what may not be known.

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::alter_client_quotas_request::EntryData as QuotaEntry;
use kafka_protocol::messages::alter_configs_request::AlterConfigsResource;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest as WantedTopic;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::incremental_alter_configs_request::AlterConfigsResource as Altered;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;

use super::super::permissions::Asks;
use super::super::table::APIS;
use super::access::{allow, any_acl, any_filter, client, group, removal, server, text};
use super::client::{Client, batch, fetch, fetched, metadata, produce, wire};
use super::streams_groups::{Heartbeat, described, heartbeat};

/// Kafka's codes for what is not allowed.
const TOPIC: i16 = 29;
const GROUP: i16 = 30;
const CLUSTER: i16 = 31;
const TRANSACTIONAL_ID: i16 = 53;

#[tokio::test]
async fn every_api_refuses_who_may_do_nothing() {
    let server = server().await;
    let (mut root, _) = client(&server, "root", "pw").await;
    root.call(9, &metadata("t")).await;
    let (mut ann, _) = client(&server, "ann", "pw").await;
    for api in APIS {
        if !matches!(api.asks, Asks::These(_)) {
            continue;
        }
        let (codes, expected) = refusal(&mut ann, api.name).await;
        assert_eq!(codes, expected, "{}", api.name);
        let served = refusal(&mut root, api.name).await;
        let is_refused = |code: &i16| matches!(*code, TOPIC | GROUP | CLUSTER | TRANSACTIONAL_ID);
        let refused = served.0.iter().any(is_refused);
        // Who may do everything is served, or told something else.
        assert!(!refused, "{}: {:?}", api.name, served.0);
    }
    server.stop().await;
}

async fn one<R: Request>(
    client: &mut Client,
    version: i16,
    request: R,
    code: impl FnOnce(R::Response) -> i16,
    expected: i16,
) -> (Vec<i16>, Vec<i16>) {
    let told = client.call(version, &request).await;
    (vec![code(told)], vec![expected])
}

/// What the API answers, and what it is to answer to somebody who may do nothing. Lists are told
/// as their lengths.
async fn refusal(c: &mut Client, api: &str) -> (Vec<i16>, Vec<i16>) {
    match api {
        "Metadata" | "DescribeTopicPartitions" | "ListGroups" | "ListTransactions" => {
            listings(c, api).await
        }
        "OffsetCommit"
        | "OffsetFetch"
        | "FindCoordinator"
        | "JoinGroup"
        | "Heartbeat"
        | "LeaveGroup"
        | "SyncGroup"
        | "DescribeGroups"
        | "DeleteGroups"
        | "OffsetDelete"
        | "ConsumerGroupHeartbeat"
        | "ConsumerGroupDescribe" => groups(c, api).await,
        "ShareGroupHeartbeat"
        | "ShareGroupDescribe"
        | "ShareFetch"
        | "ShareAcknowledge"
        | "DescribeShareGroupOffsets"
        | "AlterShareGroupOffsets"
        | "DeleteShareGroupOffsets" => share_groups(c, api).await,
        "StreamsGroupHeartbeat" => {
            let told = heartbeat(c, &Heartbeat::joining("shared", "m")).await;
            (vec![told.code], vec![GROUP])
        }
        "StreamsGroupDescribe" => (vec![described(c, "shared").await.code], vec![GROUP]),
        "InitProducerId"
        | "AddPartitionsToTxn"
        | "AddOffsetsToTxn"
        | "EndTxn"
        | "TxnOffsetCommit"
        | "DescribeTransactions" => transactions(c, api).await,
        "Produce"
        | "Fetch"
        | "ListOffsets"
        | "CreateTopics"
        | "DeleteTopics"
        | "DeleteRecords"
        | "OffsetForLeaderEpoch"
        | "CreatePartitions"
        | "DescribeProducers" => topics(c, api).await,
        _ => cluster(c, api).await,
    }
}

async fn listings(c: &mut Client, api: &str) -> (Vec<i16>, Vec<i16>) {
    let count = |count: usize| i16::try_from(count.min(1)).unwrap();
    match api {
        "Metadata" => {
            let all = MetadataRequest::default().with_topics(None);
            let codes = vec![
                c.call(12, &metadata("t")).await.topics[0].error_code,
                // What is not there is told in the same words.
                c.call(12, &metadata("nowhere")).await.topics[0].error_code,
                // Lists stand for themselves; a super user's is not empty and no code either.
                count(c.call(12, &all).await.topics.len()),
            ];
            (codes, vec![TOPIC, TOPIC, 0])
        }
        "DescribeTopicPartitions" => {
            let asked = WantedTopic::default().with_name(wire("t"));
            let asked = DescribeTopicPartitionsRequest::default()
                .with_response_partition_limit(10)
                .with_topics(vec![asked]);
            let all = asked.clone().with_topics(vec![]);
            let codes = vec![
                c.call(0, &asked).await.topics[0].error_code,
                count(c.call(0, &all).await.topics.len()),
            ];
            (codes, vec![TOPIC, 0])
        }
        "ListGroups" => {
            let told = c.call(4, &ListGroupsRequest::default()).await;
            (vec![told.error_code, count(told.groups.len())], vec![0, 0])
        }
        _ => {
            let all = ListTransactionsRequest::default();
            let told = c.call(0, &all).await;
            let states = count(told.transaction_states.len());
            (vec![told.error_code, states], vec![0, 0])
        }
    }
}

async fn topics(c: &mut Client, api: &str) -> (Vec<i16>, Vec<i16>) {
    match api {
        "Produce" => {
            let code = |told: ProduceResponse| told.responses[0].partition_responses[0].error_code;
            let asked = produce("t", 0, 1, batch(&["x"]));
            let id = Some(TransactionalId(text("x")));
            let (codes, _) = one(c, 9, asked.clone().with_transactional_id(id), code, 0).await;
            // A super user's batch without a transaction is refused for what it is.
            let (plain, _) = one(c, 9, asked, code, 0).await;
            ([codes, plain].concat(), vec![TRANSACTIONAL_ID, TOPIC])
        }
        "Fetch" => one(c, 11, fetch("t", 0, 0, 1), |t| fetched(&t).0, TOPIC).await,
        "ListOffsets" => {
            let partition = ListOffsetsPartition::default().with_timestamp(-1);
            let topic = ListOffsetsTopic::default()
                .with_name(wire("t"))
                .with_partitions(vec![partition]);
            let asked = ListOffsetsRequest::default().with_topics(vec![topic]);
            one(c, 7, asked, |t| t.topics[0].partitions[0].error_code, TOPIC).await
        }
        "CreateTopics" => {
            let topic = CreatableTopic::default()
                .with_name(wire("new"))
                .with_num_partitions(1)
                .with_replication_factor(1);
            let asked = CreateTopicsRequest::default()
                .with_topics(vec![topic])
                .with_validate_only(true);
            one(c, 7, asked, |t| t.topics[0].error_code, TOPIC).await
        }
        "DeleteTopics" => {
            let asked = DeleteTopicsRequest::default().with_topic_names(vec![wire("nowhere")]);
            one(c, 5, asked, |t| t.responses[0].error_code, TOPIC).await
        }
        "DeleteRecords" => {
            let topic = DeleteRecordsTopic::default()
                .with_name(wire("t"))
                .with_partitions(vec![DeleteRecordsPartition::default()]);
            let asked = DeleteRecordsRequest::default().with_topics(vec![topic]);
            one(c, 2, asked, |t| t.topics[0].partitions[0].error_code, TOPIC).await
        }
        "OffsetForLeaderEpoch" => {
            let topic = OffsetForLeaderTopic::default()
                .with_topic(wire("t"))
                .with_partitions(vec![OffsetForLeaderPartition::default()]);
            let asked = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
            one(c, 4, asked, |t| t.topics[0].partitions[0].error_code, TOPIC).await
        }
        "CreatePartitions" => {
            let topic = CreatePartitionsTopic::default()
                .with_name(wire("t"))
                .with_count(9)
                .with_assignments(None);
            let asked = CreatePartitionsRequest::default()
                .with_topics(vec![topic])
                .with_validate_only(true);
            one(c, 3, asked, |t| t.results[0].error_code, TOPIC).await
        }
        _ => {
            let topic = TopicRequest::default()
                .with_name(wire("t"))
                .with_partition_indexes(vec![0]);
            let asked = DescribeProducersRequest::default().with_topics(vec![topic]);
            one(c, 0, asked, |t| t.topics[0].partitions[0].error_code, TOPIC).await
        }
    }
}

async fn groups(c: &mut Client, api: &str) -> (Vec<i16>, Vec<i16>) {
    let g = || group("g");
    match api {
        "OffsetCommit" => {
            let topic = OffsetCommitRequestTopic::default()
                .with_name(wire("t"))
                .with_partitions(vec![OffsetCommitRequestPartition::default()]);
            let asked = OffsetCommitRequest::default()
                .with_group_id(g())
                .with_generation_id_or_member_epoch(-1)
                .with_topics(vec![topic]);
            one(c, 8, asked, |t| t.topics[0].partitions[0].error_code, GROUP).await
        }
        "OffsetFetch" => {
            let asked = OffsetFetchRequest::default()
                .with_group_id(g())
                .with_topics(None);
            one(c, 7, asked, |t| t.error_code, GROUP).await
        }
        "FindCoordinator" => {
            let asked = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g")]);
            let group = c.call(4, &asked).await.coordinators[0].error_code;
            let transaction = c.call(4, &asked.with_key_type(1)).await;
            let codes = vec![group, transaction.coordinators[0].error_code];
            (codes, vec![GROUP, TRANSACTIONAL_ID])
        }
        "JoinGroup" => {
            let asked = JoinGroupRequest::default().with_group_id(g());
            one(c, 7, asked, |t| t.error_code, GROUP).await
        }
        "Heartbeat" => {
            let asked = HeartbeatRequest::default().with_group_id(g());
            one(c, 4, asked, |t| t.error_code, GROUP).await
        }
        "LeaveGroup" => {
            let asked = LeaveGroupRequest::default().with_group_id(g());
            one(c, 4, asked, |t| t.error_code, GROUP).await
        }
        "SyncGroup" => {
            let asked = SyncGroupRequest::default().with_group_id(g());
            one(c, 4, asked, |t| t.error_code, GROUP).await
        }
        "DescribeGroups" => {
            let asked = DescribeGroupsRequest::default().with_groups(vec![g()]);
            one(c, 5, asked, |t| t.groups[0].error_code, GROUP).await
        }
        "DeleteGroups" => {
            let asked = DeleteGroupsRequest::default().with_groups_names(vec![g()]);
            one(c, 2, asked, |t| t.results[0].error_code, GROUP).await
        }
        "OffsetDelete" => {
            let asked = OffsetDeleteRequest::default().with_group_id(g());
            one(c, 0, asked, |t| t.error_code, GROUP).await
        }
        "ConsumerGroupHeartbeat" => {
            let asked = ConsumerGroupHeartbeatRequest::default()
                .with_group_id(g())
                .with_member_id(text("m"))
                .with_member_epoch(-1);
            one(c, 1, asked, |t| t.error_code, GROUP).await
        }
        _ => {
            let asked = ConsumerGroupDescribeRequest::default().with_group_ids(vec![g()]);
            one(c, 1, asked, |t| t.groups[0].error_code, GROUP).await
        }
    }
}

async fn transactions(c: &mut Client, api: &str) -> (Vec<i16>, Vec<i16>) {
    let id = || TransactionalId(text("x"));
    match api {
        "InitProducerId" => {
            let asked = InitProducerIdRequest::default()
                .with_transactional_id(None)
                .with_transaction_timeout_ms(1_000);
            let plain = c.call(4, &asked).await.error_code;
            let asked = asked.with_transactional_id(Some(id()));
            let named = c.call(4, &asked).await.error_code;
            (vec![plain, named], vec![CLUSTER, TRANSACTIONAL_ID])
        }
        "AddPartitionsToTxn" => {
            let topic = AddPartitionsToTxnTopic::default()
                .with_name(wire("t"))
                .with_partitions(vec![0]);
            let by_client = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(id())
                .with_v3_and_below_topics(vec![topic.clone()]);
            let told = c.call(3, &by_client).await;
            let told = &told.results_by_topic_v3_and_below[0];
            let client_code = told.results_by_partition[0].partition_error_code;
            let transaction = AddPartitionsToTxnTransaction::default()
                .with_transactional_id(id())
                .with_topics(vec![topic]);
            let by_node = AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]);
            let node_code = c.call(4, &by_node).await.error_code;
            (
                vec![client_code, node_code],
                vec![TRANSACTIONAL_ID, CLUSTER],
            )
        }
        "AddOffsetsToTxn" => {
            let asked = AddOffsetsToTxnRequest::default()
                .with_transactional_id(id())
                .with_group_id(group("g"));
            one(c, 3, asked, |t| t.error_code, TRANSACTIONAL_ID).await
        }
        "EndTxn" => {
            let asked = EndTxnRequest::default().with_transactional_id(id());
            one(c, 3, asked, |t| t.error_code, TRANSACTIONAL_ID).await
        }
        "TxnOffsetCommit" => {
            let topic = TxnOffsetCommitRequestTopic::default()
                .with_name(wire("t"))
                .with_partitions(vec![TxnOffsetCommitRequestPartition::default()]);
            let asked = TxnOffsetCommitRequest::default()
                .with_transactional_id(id())
                .with_group_id(group("g"))
                .with_generation_id(-1)
                .with_topics(vec![topic]);
            let code = |t: TxnOffsetCommitResponse| t.topics[0].partitions[0].error_code;
            one(c, 3, asked, code, TRANSACTIONAL_ID).await
        }
        _ => {
            let asked = DescribeTransactionsRequest::default().with_transactional_ids(vec![id()]);
            let code = |t: DescribeTransactionsResponse| t.transaction_states[0].error_code;
            one(c, 0, asked, code, TRANSACTIONAL_ID).await
        }
    }
}

async fn cluster(c: &mut Client, api: &str) -> (Vec<i16>, Vec<i16>) {
    const KINDS: [(i8, &str); 3] = [(2, "t"), (32, "g"), (4, "1")];
    match api {
        "DescribeAcls" => one(c, 2, any_acl(), |t| t.error_code, CLUSTER).await,
        "CreateAcls" => one(c, 2, allow(2, "t", 3), |t| t.results[0].error_code, CLUSTER).await,
        "DeleteAcls" => {
            let asked = DeleteAclsRequest::default().with_filters(vec![any_filter()]);
            one(c, 2, asked, |t| t.filter_results[0].error_code, CLUSTER).await
        }
        "DescribeConfigs" => {
            let resources = KINDS.map(|(kind, name)| {
                DescribeConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
            });
            let asked = DescribeConfigsRequest::default().with_resources(resources.to_vec());
            let told = c.call(4, &asked).await;
            let codes = told.results.iter().map(|r| r.error_code).collect();
            (codes, vec![TOPIC, GROUP, CLUSTER])
        }
        "AlterConfigs" => {
            let resources = KINDS.map(|(kind, name)| {
                AlterConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
            });
            let asked = AlterConfigsRequest::default().with_resources(resources.to_vec());
            let told = c.call(2, &asked).await;
            let codes = told.responses.iter().map(|r| r.error_code).collect();
            (codes, vec![TOPIC, GROUP, CLUSTER])
        }
        "IncrementalAlterConfigs" => {
            let resources = KINDS.map(|(kind, name)| {
                Altered::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
            });
            let asked =
                IncrementalAlterConfigsRequest::default().with_resources(resources.to_vec());
            let told = c.call(1, &asked).await;
            let codes = told.responses.iter().map(|r| r.error_code).collect();
            (codes, vec![TOPIC, GROUP, CLUSTER])
        }
        "ListConfigResources" => {
            let asked = ListConfigResourcesRequest::default();
            one(c, 1, asked, |t| t.error_code, CLUSTER).await
        }
        "DescribeClientQuotas" => {
            let asked = DescribeClientQuotasRequest::default();
            one(c, 1, asked, |t| t.error_code, CLUSTER).await
        }
        "AlterClientQuotas" => {
            let entry = QuotaEntry::default();
            let asked = AlterClientQuotasRequest::default().with_entries(vec![entry]);
            one(c, 1, asked, |t| t.entries[0].error_code, CLUSTER).await
        }
        "DescribeLogDirs" => {
            let asked = DescribeLogDirsRequest::default().with_topics(None);
            one(c, 4, asked, |t| t.error_code, CLUSTER).await
        }
        "ElectLeaders" => {
            let partitions = TopicPartitions::default()
                .with_topic(wire("t"))
                .with_partitions(vec![0]);
            let asked =
                ElectLeadersRequest::default().with_topic_partitions(Some(vec![partitions]));
            let told = c.call(2, &asked).await;
            let each = &told.replica_election_results[0].partition_result[0];
            (
                vec![told.error_code, each.error_code],
                vec![CLUSTER, CLUSTER],
            )
        }
        "DescribeQuorum" => {
            let asked = DescribeQuorumRequest::default();
            one(c, 2, asked, |t| t.error_code, CLUSTER).await
        }
        "AlterPartitionReassignments" => {
            let asked = AlterPartitionReassignmentsRequest::default();
            one(c, 0, asked, |t| t.error_code, CLUSTER).await
        }
        "ListPartitionReassignments" => {
            let asked = ListPartitionReassignmentsRequest::default();
            one(c, 0, asked, |t| t.error_code, CLUSTER).await
        }
        "DescribeUserScramCredentials" => {
            let asked = DescribeUserScramCredentialsRequest::default();
            one(c, 0, asked, |t| t.error_code, CLUSTER).await
        }
        "AlterUserScramCredentials" => {
            let code = |t: AlterUserScramCredentialsResponse| t.results[0].error_code;
            one(c, 0, removal("nobody"), code, CLUSTER).await
        }
        "WriteTxnMarkers" => {
            let topic = WritableTxnMarkerTopic::default()
                .with_name(wire("t"))
                .with_partition_indexes(vec![0]);
            let marker = WritableTxnMarker::default().with_topics(vec![topic]);
            let asked = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
            let code = |t: WriteTxnMarkersResponse| t.markers[0].topics[0].partitions[0].error_code;
            one(c, 1, asked, code, CLUSTER).await
        }
        other => panic!("{other} asks for permissions, and no test asks it as nobody"),
    }
}

async fn share_groups(c: &mut Client, api: &str) -> (Vec<i16>, Vec<i16>) {
    let g = || GroupId(text("shared"));
    match api {
        "ShareGroupHeartbeat" => {
            let asked = ShareGroupHeartbeatRequest::default()
                .with_group_id(g())
                .with_member_id(text("m"))
                .with_member_epoch(-1);
            one(c, 1, asked, |t| t.error_code, GROUP).await
        }
        "ShareGroupDescribe" => {
            let asked = ShareGroupDescribeRequest::default().with_group_ids(vec![g()]);
            one(c, 1, asked, |t| t.groups[0].error_code, GROUP).await
        }
        "ShareFetch" => {
            let asked = ShareFetchRequest::default()
                .with_group_id(Some(g()))
                .with_member_id(Some(text("m")));
            one(c, 1, asked, |t| t.error_code, GROUP).await
        }
        "ShareAcknowledge" => {
            let asked = ShareAcknowledgeRequest::default()
                .with_group_id(Some(g()))
                .with_member_id(Some(text("m")))
                .with_share_session_epoch(1);
            one(c, 1, asked, |t| t.error_code, GROUP).await
        }
        "DescribeShareGroupOffsets" => {
            let group = DescribeShareGroupOffsetsRequestGroup::default().with_group_id(g());
            let asked = DescribeShareGroupOffsetsRequest::default().with_groups(vec![group]);
            one(c, 0, asked, |t| t.groups[0].error_code, GROUP).await
        }
        "AlterShareGroupOffsets" => {
            let asked = AlterShareGroupOffsetsRequest::default().with_group_id(g());
            one(c, 0, asked, |t| t.error_code, GROUP).await
        }
        _ => {
            let asked = DeleteShareGroupOffsetsRequest::default().with_group_id(g());
            one(c, 0, asked, |t| t.error_code, GROUP).await
        }
    }
}

/// The page for people says what the table says; `UPDATE_EXPECT=1` rewrites it.
#[test]
fn the_documentation_tells_what_each_api_asks() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (head, rest) = page.split_once("<!-- apis -->\n").unwrap();
    let (told, tail) = rest.split_once("<!-- /apis -->").unwrap();
    let mut table = String::from("| API | permissions that it may ask for |\n| --- | --- |\n");
    for asked in super::super::asked_permissions() {
        let permissions = asked.permissions.iter();
        let mut cells: Vec<String> = permissions
            .map(|of| format!("{} on {}", of.operation, of.kind))
            .collect();
        cells.extend(asked.open_because.map(|reason| format!("open: {reason}")));
        table += &format!("| {} | {} |\n", asked.api, cells.join(", "));
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let page = format!("{head}<!-- apis -->\n{table}<!-- /apis -->{tail}");
        std::fs::write(path, page).unwrap();
    } else {
        assert_eq!(told, table, "run with UPDATE_EXPECT=1");
    }
}
