//! Settings, partitions and deleted records over the wire.

use std::time::Duration;

use base::{Clock, SystemClock, UnixMillis};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use super::client::{Client, Server, batch, fetch, fetched, metadata, produce, wire};
use crate::Record;

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

async fn config(client: &mut Client, key: &'static str) -> DescribeConfigsResourceResult {
    config_of(client, (2, "t"), key).await
}

async fn config_of(
    client: &mut Client,
    (kind, of): (i8, &'static str),
    key: &'static str,
) -> DescribeConfigsResourceResult {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(of))
        .with_configuration_keys(Some(vec![text(key)]));
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(true)
        .with_include_documentation(true);
    let mut told = client.call(4, &request).await.results.remove(0);
    assert_eq!(told.error_code, 0);
    told.configs.remove(0)
}

async fn alter(
    client: &mut Client,
    kind: i8,
    resource: &'static str,
    changes: &[(&'static str, i8, Option<&'static str>)],
) -> i16 {
    let configs = changes.iter().map(|(name, operation, value)| {
        AlterableConfig::default()
            .with_name(text(name))
            .with_config_operation(*operation)
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(resource))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    client.call(1, &request).await.responses[0].error_code
}

#[tokio::test]
async fn settings_are_told_with_where_they_come_from() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let retention = config(&mut client, "retention.ms").await;
    assert_eq!(retention.value.as_deref(), Some("604800000"));
    assert_eq!((retention.config_source, retention.config_type), (5, 5));
    assert_eq!(retention.synonyms[0].name.as_str(), "log.retention.ms");
    assert!(retention.documentation.is_some());
    assert_eq!(
        alter(&mut client, 2, "t", &[("retention.ms", 0, Some("7"))]).await,
        0
    );
    let retention = config(&mut client, "retention.ms").await;
    assert_eq!(retention.value.as_deref(), Some("7"));
    assert_eq!((retention.config_source, retention.synonyms.len()), (1, 2));
    assert_eq!(
        alter(&mut client, 2, "t", &[("retention.ms", 1, None)]).await,
        0
    );
    assert_eq!(config(&mut client, "retention.ms").await.config_source, 5);
    // Nothing is no value, also in Kafka's older way.
    for operation in [0, 2, 3] {
        let change = ("cleanup.policy", operation, None);
        assert_eq!(alter(&mut client, 2, "t", &[change]).await, 42);
    }
    let without = alter_configs_request::AlterableConfig::default().with_name(text("retention.ms"));
    let of_topic = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text("t"))
        .with_configs(vec![without.with_value(None)]);
    let replaced = AlterConfigsRequest::default().with_resources(vec![of_topic]);
    let answer = client.call(2, &replaced).await;
    assert_eq!(answer.responses[0].error_code, 42);
    // As MirrorMaker copies a topic's settings: what is at its default there is taken back here.
    let copied = [
        ("retention.ms", 0, Some("8")),
        ("local.retention.ms", 1, None),
        ("follower.only.setting", 1, None),
    ];
    assert_eq!(alter(&mut client, 2, "t", &copied).await, 0);
    let retention = config(&mut client, "retention.ms").await;
    assert_eq!(retention.value.as_deref(), Some("8"));
    server.stop().await;
}

#[tokio::test]
async fn groups_have_settings_that_their_members_are_told() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let (interval, timeout) = (
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
    );
    let told = config_of(&mut client, (32, "g"), interval).await;
    assert_eq!(told.value.as_deref(), Some("5000"));
    assert_eq!((told.config_source, told.config_type), (5, 3));
    let synonym = "group.consumer.heartbeat.interval.ms";
    assert_eq!(told.synonyms[0].name.as_str(), synonym);
    let changes = [(interval, 0, Some("6000")), (timeout, 0, Some("50000"))];
    assert_eq!(alter(&mut client, 32, "g", &changes).await, 0);
    let told = config_of(&mut client, (32, "g"), interval).await;
    assert_eq!(told.value.as_deref(), Some("6000"));
    let synonyms: Vec<(&str, i8)> = told.synonyms.iter().map(|s| (&*s.name, s.source)).collect();
    assert_eq!(synonyms, [(interval, 8), (synonym, 5)]);
    assert!(told.config_source == 8 && told.documentation.is_some() && !told.read_only);
    let beat = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("g")))
        .with_member_id(text("m"))
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_names(Some(vec![wire("t")]))
        .with_topic_partitions(Some(Vec::new()));
    let answer = client.call(1, &beat).await;
    assert_eq!(
        (answer.error_code, answer.heartbeat_interval_ms),
        (0, 6_000)
    );
    // Members that come soon after each other get their shares together.
    let sharing = "consumer.assignment.interval.ms";
    let changes = [
        (sharing, 0, Some("15000")),
        ("consumer.assignor.offload.enable", 0, Some("false")),
    ];
    assert_eq!(alter(&mut client, 32, "g", &changes).await, 0);
    let told = config_of(&mut client, (32, "g"), "consumer.assignor.offload.enable").await;
    assert_eq!(
        (told.value.as_deref(), told.config_type),
        (Some("false"), 1)
    );
    let answer = client
        .call(1, &beat.clone().with_member_id(text("n")))
        .await;
    assert_eq!((answer.error_code, answer.member_epoch), (0, 1));
    for (group, change, code) in [
        ("g", (sharing, 0, Some("15001")), 40),
        ("g", (interval, 0, Some("50001")), 40),
        ("g", (interval, 0, Some("4999")), 40),
        ("g", (interval, 2, Some("1")), 40),
        ("g", ("share.session.timeout.ms", 0, Some("61000")), 40),
        ("g", ("share.auto.offset.reset", 0, Some("nearest")), 40),
        ("g", ("retention.ms", 0, Some("45000")), 40),
        ("", (interval, 0, Some("6000")), 42),
        ("g", (timeout, 1, None), 0),
        ("g", ("streams.session.timeout.ms", 1, None), 0),
    ] {
        let told = alter(&mut client, 32, group, &[change]).await;
        assert_eq!(told, code, "{group} {change:?}");
    }
    let told = config_of(&mut client, (32, "g"), timeout).await;
    assert_eq!(told.value.as_deref(), Some("45000"));
    // What there is to tell settings of.
    let listed = async |client: &mut Client, version, kinds: &[i8]| {
        let asked = ListConfigResourcesRequest::default().with_resource_types(kinds.to_vec());
        let told = client.call(version, &asked).await;
        let named = told.config_resources.iter();
        let named = named.map(|of| (of.resource_type, of.resource_name.to_string()));
        (told.error_code, named.collect::<Vec<_>>())
    };
    let [t, one, g] = ["t", "1", "g"].map(str::to_owned);
    let group = (32, g);
    assert_eq!(
        listed(&mut client, 1, &[32]).await,
        (0, vec![group.clone()])
    );
    let all = (0, vec![(2, t), (4, one), group]);
    assert_eq!(listed(&mut client, 1, &[]).await, all);
    assert_eq!(listed(&mut client, 1, &[3]).await, (35, vec![]));
    assert_eq!(listed(&mut client, 0, &[]).await, (0, vec![]));
    // In Kafka's older way what is not named is taken back.
    let of_group = alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text("g"));
    let emptied = AlterConfigsRequest::default().with_resources(vec![of_group]);
    assert_eq!(client.call(2, &emptied).await.responses[0].error_code, 0);
    assert_eq!(listed(&mut client, 1, &[32]).await, (0, vec![]));
    server.stop().await;
}

#[tokio::test]
async fn the_node_tells_its_bounds_and_keeps_to_them() {
    let server = Server::start_with(|config| {
        config.connections_max = 2;
        config.transaction_timeout_max.0 = Duration::from_secs(3_600);
    })
    .await;
    let mut client = Client::connect(&server).await;
    let resource = DescribeConfigsResource::default()
        .with_resource_type(4)
        .with_resource_name(text("1"))
        .with_configuration_keys(None);
    let asked = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let told = client.call(4, &asked).await.results.remove(0).configs;
    let value = |name: &str| {
        let found = told.iter().find(|config| config.name.as_str() == name);
        found.unwrap().value.clone().unwrap().to_string()
    };
    assert_eq!(value("max.connections"), "2");
    assert_eq!(value("transaction.max.timeout.ms"), "3600000");
    for (name, expected) in [
        ("broker.id", "1"),
        ("delete.topic.enable", "true"),
        ("group.consumer.assignment.interval.ms", "0"),
        ("group.consumer.assignors", "uniform,range"),
        ("group.max.session.timeout.ms", "1800000"),
        ("offsets.retention.minutes", "10080"),
        ("transactional.id.expiration.ms", "604800000"),
    ] {
        assert_eq!(value(name), expected);
    }
    for (timeout_ms, code) in [(3_600_000, 0), (3_600_001, 50)] {
        let asked = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text("flink"))))
            .with_transaction_timeout_ms(timeout_ms);
        assert_eq!(client.call(4, &asked).await.error_code, code);
    }
    let mut second = Client::connect(&server).await;
    assert!(second.is_served().await);
    assert!(Client::connect(&server).await.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn changes_that_cannot_be_are_refused() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    for (kind, resource, change, code) in [
        (2, "t", ("retention.ms", 0, Some("soon")), 40),
        (2, "t", ("no.such", 0, Some("1")), 40),
        (2, "t", ("retention.ms", 0, None), 42),
        (2, "t", ("retention.ms", 2, Some("1")), 40),
        (2, "t", ("retention.ms", 9, Some("1")), 42),
        (2, "nowhere", ("retention.ms", 0, Some("1")), 3),
        (4, "1", ("log.retention.ms", 0, Some("1")), 42),
        // As kafka-reassign-partitions does, with a bound and without.
        (
            4,
            "1",
            ("leader.replication.throttled.rate", 0, Some("1")),
            0,
        ),
        (4, "1", ("leader.replication.throttled.rate", 1, None), 0),
        (4, "", ("leader.replication.throttled.rate", 1, None), 0),
        (4, "9", ("leader.replication.throttled.rate", 1, None), 42),
    ] {
        assert_eq!(
            alter(&mut client, kind, resource, &[change]).await,
            code,
            "{change:?}"
        );
    }
    let loggers = |node| {
        DescribeConfigsResource::default()
            .with_resource_type(8)
            .with_resource_name(text(node))
            .with_configuration_keys(None)
    };
    let asked = DescribeConfigsRequest::default().with_resources(vec![loggers("1"), loggers("9")]);
    let told = client.call(4, &asked).await.results;
    let codes: Vec<i16> = told.iter().map(|of| of.error_code).collect();
    assert_eq!((codes, told[0].configs.len()), (vec![0, 42], 0));
    let topic = |name, key, value: Option<&'static str>| {
        let config = CreatableTopicConfig::default()
            .with_name(text(key))
            .with_value(value.map(text));
        CreatableTopic::default()
            .with_name(wire(name))
            .with_num_partitions(1)
            .with_replication_factor(1)
            .with_configs(vec![config])
    };
    let request = CreateTopicsRequest::default().with_topics(vec![
        topic("good", "cleanup.policy", Some("compact")),
        topic("bad", "min.insync.replicas", Some("2")),
        topic("empty", "cleanup.policy", None),
    ]);
    let answer = client.call(7, &request).await;
    let codes: Vec<i16> = answer.topics.iter().map(|t| t.error_code).collect();
    assert_eq!(codes, [0, 40, 40]);
    let configs = answer.topics[0].configs.as_ref().unwrap();
    let policy = configs.iter().find(|c| c.name.as_str() == "cleanup.policy");
    assert_eq!(policy.unwrap().value.as_deref(), Some("compact"));
    server.stop().await;
}

#[tokio::test]
async fn a_topic_bounds_its_batches_and_may_stamp_them() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let changes = [
        ("max.message.bytes", 0, Some("100")),
        ("message.timestamp.type", 0, Some("LogAppendTime")),
    ];
    assert_eq!(alter(&mut client, 2, "t", &changes).await, 0);
    let put = async |client: &mut Client, value: &str| {
        let answer = client.call(9, &produce("t", 0, -1, batch(&[value]))).await;
        answer.responses[0].partition_responses[0].clone()
    };
    assert_eq!(put(&mut client, &"x".repeat(100)).await.error_code, 10);
    let stored = put(&mut client, "x").await;
    assert!(stored.error_code == 0 && stored.log_append_time_ms > 1_700_000_000_001);
    let (_, records) = fetched(&client.call(11, &fetch("t", 0, 0, 1 << 20)).await);
    assert_eq!(records[35..43], stored.log_append_time_ms.to_be_bytes());
    assert_eq!(
        crc32c::crc32c(&records[21..]).to_be_bytes(),
        records[17..21]
    );
    server.stop().await;
}

#[tokio::test]
async fn a_topic_packs_its_batches_and_bounds_their_times() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let changes = [
        ("compression.type", 0, Some("zstd")),
        ("message.timestamp.before.max.ms", 0, Some("60000")),
    ];
    assert_eq!(alter(&mut client, 2, "t", &changes).await, 0);
    let records = |age_ms| {
        let now = SystemClock.now().0 - age_ms;
        crate::batch::build(&[Record::of_value("v")], UnixMillis(now), None).unwrap()
    };
    for (age_ms, code) in [(0, 0), (61_000, 32), (-3_700_000, 32)] {
        let answer = client.call(9, &produce("t", 0, -1, records(age_ms))).await;
        let told = &answer.responses[0].partition_responses[0];
        assert_eq!(told.error_code, code);
        assert_eq!(told.error_message.is_some(), code != 0);
    }
    let (_, records) = fetched(&client.call(11, &fetch("t", 0, 0, 1 << 20)).await);
    let header = crate::batch::BatchHeader::check(&records).unwrap();
    assert_eq!((header.codec(), header.record_count), (4, 1));
    server.stop().await;
}

#[tokio::test]
async fn partitions_are_added_and_records_deleted() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    for (count, validate_only, code) in [(5, true, 0), (5, false, 0), (5, false, 37), (2, true, 37)]
    {
        let topic = CreatePartitionsTopic::default()
            .with_name(wire("t"))
            .with_count(count)
            .with_assignments(None);
        let request = CreatePartitionsRequest::default()
            .with_topics(vec![topic])
            .with_validate_only(validate_only);
        let answer = client.call(3, &request).await;
        assert_eq!(answer.results[0].error_code, code);
    }
    let told = client.call(12, &metadata("t")).await;
    assert_eq!(told.topics[0].partitions.len(), 5);
    client
        .call(9, &produce("t", 0, -1, batch(&["a", "b", "c"])))
        .await;
    for (partition, offset, wanted) in [
        (0, 2, (0, 2)),
        (0, -1, (0, 3)),
        (0, 4, (1, -1)),
        (9, 0, (3, -1)),
    ] {
        let asked = DeleteRecordsPartition::default()
            .with_partition_index(partition)
            .with_offset(offset);
        let topic = DeleteRecordsTopic::default()
            .with_name(wire("t"))
            .with_partitions(vec![asked]);
        let request = DeleteRecordsRequest::default().with_topics(vec![topic]);
        let answer = client.call(2, &request).await;
        let told = &answer.topics[0].partitions[0];
        assert_eq!((told.error_code, told.low_watermark), wanted);
    }
    let below = client.call(11, &fetch("t", 1, 0, 1 << 20)).await;
    assert_eq!(fetched(&below).0, 1);
    let at_end = client.call(11, &fetch("t", 3, 0, 1 << 20)).await;
    let told = &at_end.responses[0].partitions[0];
    assert_eq!(
        (told.error_code, told.log_start_offset, told.high_watermark),
        (0, 3, 3)
    );
    server.stop().await;
}
