//! Tenants at the listener: quotas over all connections, and nobody speaks for another tenant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use access::{Access, Credential, Mechanism, Policy, ScramHash, TenantChange, UserChange};
use base::{Clock, SystemClock, UnixMillis};
use bytes::Bytes;
use kafka_protocol::messages::alter_client_quotas_request::EntryData as QuotaChange;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterPartitionReassignmentsRequest, ConsumerGroupHeartbeatRequest,
    CreateTopicsRequest, DeleteAclsRequest, DeleteGroupsRequest, DescribeClientQuotasRequest,
    DescribeClusterRequest, DescribeConfigsRequest, DescribeGroupsRequest, DescribeLogDirsRequest,
    DescribeUserScramCredentialsRequest, FindCoordinatorRequest, GroupId,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, JoinGroupRequest, LeaveGroupRequest,
    ListConfigResourcesRequest, ListGroupsRequest, MetadataRequest, OffsetCommitRequest,
    OffsetFetchRequest, ProduceRequest, ShareFetchRequest, ShareGroupHeartbeatRequest,
    SyncGroupRequest, TransactionalId, share_fetch_request,
};
use kafka_protocol::protocol::StrBytes;
use serde_json::{Value, json};

use super::super::{SaslSettings, Security};
use super::access::{allow, any_acl, any_filter, client, group, removal, text};
use super::client::{Client, Server, batch, fetch, fetched, metadata, produce, wire};
use crate::BatchRecords;
use crate::batch::BatchHeader;
use crate::record::Record;

/// A server where users log in, with these tenants; ACLs are followed only with a policy.
async fn server(tenants: &[(&str, Value)], policy: Option<Policy>) -> (Server, Arc<Access>) {
    let mut opened = None;
    let server = Server::start_secured(|folder| {
        let access = Arc::new(Access::open(folder).unwrap());
        for name in ["ann", "amy", "bob", "service"] {
            let credential = Credential::of_password(ScramHash::Sha256, "pw", 4_096).unwrap();
            let change = UserChange::Set(name.to_owned(), credential);
            access.alter_users(&[change]).unwrap();
        }
        for (name, change) in tenants {
            set(&access, name, change.clone());
        }
        opened = Some(Arc::clone(&access));
        Security {
            access: Some(access),
            sasl: Some(SaslSettings {
                mechanisms: vec![Mechanism::Plain],
                lifetime: None,
            }),
            authorization: policy,
            ..Security::default()
        }
    })
    .await;
    (server, opened.unwrap())
}

fn set(access: &Access, name: &str, change: Value) {
    let change: TenantChange = serde_json::from_value(change).unwrap();
    access.set_tenant(&name.parse().unwrap(), &change).unwrap();
}

async fn of(server: &Server, name: &str) -> Client {
    let (client, code) = client(server, name, "pw").await;
    assert_eq!(code, 0, "{name} cannot log in");
    client
}

fn two() -> [(&'static str, Value); 2] {
    [
        ("acme", json!({"members": ["User:ann", "User:amy"]})),
        ("beta", json!({"members": ["User:bob"]})),
    ]
}

async fn stored(client: &mut Client, request: &ProduceRequest) -> i16 {
    let told = client.call(9, request).await;
    told.responses[0].partition_responses[0].error_code
}

fn headed(name: &str, value: &str) -> Bytes {
    let record = Record {
        value: Some(Bytes::from_static(b"x")),
        headers: vec![(name.to_owned(), Some(Bytes::from(value.to_owned())))],
        ..Record::default()
    };
    crate::batch::build(&[record], UnixMillis(1), None).unwrap()
}

const ACME: &str = "folio.Default.acme.ORDERS";
const BETA: &str = "folio.Default.beta.ORDERS";

#[tokio::test]
async fn nobody_speaks_for_another_tenant_or_hears_of_it() {
    let (server, access) = server(&two(), None).await;
    let mut service = of(&server, "service").await;
    for topic in [ACME, BETA, "free"] {
        service.call(9, &metadata(topic)).await;
    }
    let mut ann = of(&server, "ann").await;
    assert_eq!(
        stored(&mut ann, &produce(ACME, 0, -1, batch(&["x"]))).await,
        0
    );
    assert_eq!(
        stored(&mut ann, &produce("free", 0, -1, batch(&["x"]))).await,
        0
    );
    assert_eq!(
        stored(&mut ann, &produce(BETA, 0, -1, batch(&["x"]))).await,
        29
    );
    for (name, value, code) in [
        ("folio.tenantId", "acme", 0),
        ("folio.tenantId", "beta", 29),
        ("x-okapi-tenant", "beta", 29),
        ("thalweg.tenant", "beta", 29),
        ("tenant", "beta", 0),
    ] {
        let request = produce(ACME, 0, -1, headed(name, value));
        assert_eq!(stored(&mut ann, &request).await, code, "{name}: {value}");
    }
    assert_eq!(fetched(&ann.call(11, &fetch(BETA, 0, 0, 1)).await).0, 29);
    assert_eq!(fetched(&ann.call(11, &fetch(ACME, 0, 0, 1)).await).0, 0);
    let all = MetadataRequest::default().with_topics(None);
    let seen = ann.call(9, &all).await;
    let mut seen: Vec<String> = seen
        .topics
        .iter()
        .map(|topic| topic.name.as_ref().unwrap().to_string())
        .filter(|name| !name.starts_with("__"))
        .collect();
    seen.sort();
    assert_eq!(seen, [ACME, "free"]);
    // A caller of no tenant works for all of them.
    let forged = produce(BETA, 0, -1, headed("folio.tenantId", "acme"));
    assert_eq!(stored(&mut service, &forged).await, 0);
    let acme = access.tenants().of(&"acme".parse().unwrap());
    let kept: Vec<_> = acme
        .refusals()
        .iter()
        .map(|it| it.claimed.clone())
        .collect();
    assert_eq!(kept, [BETA, "beta", "beta", "beta", BETA]);
    let first = &acme.refusals()[0];
    assert_eq!(
        (first.protocol, first.principal.as_str()),
        ("kafka", "User:ann")
    );
    // A tenant that comes later holds for clients that are there.
    set(&access, "late", json!({"members": ["User:service"]}));
    assert_eq!(
        fetched(&service.call(11, &fetch(BETA, 0, 0, 1)).await).0,
        29
    );
    server.stop().await;
}

#[tokio::test]
async fn acls_that_allow_everything_open_no_other_tenants_topics() {
    let policy = Policy {
        super_users: Vec::new(),
        allow_if_no_acl: true,
    };
    let (server, _) = server(&two(), Some(policy)).await;
    let mut service = of(&server, "service").await;
    for topic in [ACME, BETA] {
        service.call(9, &metadata(topic)).await;
    }
    let mut ann = of(&server, "ann").await;
    assert_eq!(
        stored(&mut ann, &produce(ACME, 0, -1, batch(&["x"]))).await,
        0
    );
    assert_eq!(
        stored(&mut ann, &produce(BETA, 0, -1, batch(&["x"]))).await,
        29
    );
    assert_eq!(fetched(&ann.call(11, &fetch(BETA, 0, 0, 1)).await).0, 29);
    assert_eq!(
        stored(&mut service, &produce(BETA, 0, -1, batch(&["x"]))).await,
        0
    );
    server.stop().await;
}

/// What each API of groups and transactions says to a caller about a group and a transactional id.
async fn coded(client: &mut Client, id: &'static str) -> Vec<(&'static str, i16)> {
    let find = FindCoordinatorRequest::default().with_coordinator_keys(vec![text(id)]);
    let found = client.call(4, &find).await;
    let protocol = JoinGroupRequestProtocol::default().with_name(text("range"));
    let join = JoinGroupRequest::default()
        .with_group_id(group(id))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    let beat = ConsumerGroupHeartbeatRequest::default().with_group_id(group(id));
    let described = DescribeGroupsRequest::default().with_groups(vec![group(id)]);
    let fetched = client
        .call(7, &OffsetFetchRequest::default().with_group_id(group(id)))
        .await;
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![group(id)]);
    let resource = DescribeConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text(id))
        .with_configuration_keys(None);
    let told = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let change = AlterableConfig::default()
        .with_name(text("consumer.heartbeat.interval.ms"))
        .with_value(Some(text("6000")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(32)
        .with_resource_name(text(id))
        .with_configs(vec![change]);
    let changed = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let producer = InitProducerIdRequest::default()
        .with_transactional_id(Some(TransactionalId(text(id))))
        .with_transaction_timeout_ms(10_000);
    vec![
        ("FindCoordinator", found.coordinators[0].error_code),
        ("OffsetFetch", fetched.error_code),
        ("JoinGroup", client.call(5, &join).await.error_code),
        (
            "ConsumerGroupHeartbeat",
            client.call(0, &beat).await.error_code,
        ),
        (
            "DescribeGroups",
            client.call(5, &described).await.groups[0].error_code,
        ),
        (
            "DeleteGroups",
            client.call(2, &delete).await.results[0].error_code,
        ),
        (
            "DescribeConfigs",
            client.call(4, &told).await.results[0].error_code,
        ),
        (
            "IncrementalAlterConfigs",
            client.call(1, &changed).await.responses[0].error_code,
        ),
        ("InitProducerId", client.call(4, &producer).await.error_code),
    ]
}

/// Commits an offset as a group without members does.
async fn committed(client: &mut Client, id: &'static str, topic: &'static str) -> i16 {
    let topic = OffsetCommitRequestTopic::default()
        .with_name(wire(topic))
        .with_partitions(vec![OffsetCommitRequestPartition::default()]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group(id))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let told = client.call(8, &commit).await;
    told.topics[0].partitions[0].error_code
}

async fn listed(client: &mut Client) -> Vec<String> {
    let told = client.call(4, &ListGroupsRequest::default()).await;
    let mut names: Vec<String> = told
        .groups
        .iter()
        .map(|group| group.group_id.to_string())
        .collect();
    names.sort();
    names
}

/// The groups that have settings.
async fn configured(client: &mut Client) -> Vec<String> {
    let asked = ListConfigResourcesRequest::default().with_resource_types(vec![32]);
    let told = client.call(1, &asked).await;
    assert_eq!(told.error_code, 0);
    let named = told.config_resources.into_iter();
    named.map(|of| of.resource_name.to_string()).collect()
}

#[tokio::test]
async fn groups_and_transactional_ids_with_a_tenants_name_are_its_own() {
    let open = Policy {
        super_users: Vec::new(),
        allow_if_no_acl: true,
    };
    for policy in [None, Some(open)] {
        let (server, access) = server(&two(), policy).await;
        let mut service = of(&server, "service").await;
        for topic in [ACME, BETA, "free"] {
            service.call(9, &metadata(topic)).await;
        }
        let (mut ann, mut bob) = (of(&server, "ann").await, of(&server, "bob").await);
        assert_eq!(committed(&mut bob, "beta-orders", BETA).await, 0);
        assert_eq!(committed(&mut ann, "acme-orders", ACME).await, 0);
        assert_eq!(committed(&mut ann, "orders", "free").await, 0);
        assert_eq!(committed(&mut ann, "beta-orders", "free").await, 30);
        for (api, code) in coded(&mut ann, "folio.Default.beta.orders").await {
            let expected = if api == "InitProducerId" { 53 } else { 30 };
            assert_eq!(code, expected, "{api}");
        }
        assert_eq!(listed(&mut ann).await, ["acme-orders", "orders"]);
        assert_eq!(listed(&mut bob).await, ["beta-orders", "orders"]);
        assert_eq!(
            listed(&mut service).await,
            ["acme-orders", "beta-orders", "orders"]
        );
        for (api, code) in coded(&mut bob, "beta-writer").await {
            assert!(![30, 53].contains(&code), "{api}: {code}");
        }
        // It has settings now, of which the other tenant does not hear.
        for (client, expected) in [(&mut ann, &[][..]), (&mut bob, &["beta-writer"])] {
            assert_eq!(configured(client).await, expected);
        }
        // What was named is kept, what a list leaves out is not.
        let kept = access.tenants().of(&"acme".parse().unwrap()).refusals();
        let mut kept: Vec<_> = kept
            .iter()
            .map(|it| (it.what, it.claimed.clone()))
            .collect();
        kept.dedup();
        let of = "folio.Default.beta.orders".to_owned();
        let expected = [
            ("a transactional id of another tenant", of.clone()),
            ("a group of another tenant", of),
            ("a group of another tenant", "beta-orders".to_owned()),
        ];
        assert_eq!(kept, expected);
        server.stop().await;
    }
}

/// The codes of everything that is all tenants' together.
async fn of_all(client: &mut Client) -> Vec<(&'static str, i16)> {
    let no_users = DescribeUserScramCredentialsRequest::default();
    let change = AlterClientQuotasRequest::default().with_entries(vec![QuotaChange::default()]);
    let filters = DeleteAclsRequest::default().with_filters(vec![any_filter()]);
    let moves = AlterPartitionReassignmentsRequest::default();
    let quotas = DescribeClientQuotasRequest::default();
    vec![
        ("acls", client.call(2, &any_acl()).await.error_code),
        (
            "create",
            client.call(2, &allow(2, "t", 3)).await.results[0].error_code,
        ),
        (
            "delete",
            client.call(2, &filters).await.filter_results[0].error_code,
        ),
        ("users", client.call(0, &no_users).await.error_code),
        (
            "alter",
            client.call(0, &removal("service")).await.results[0].error_code,
        ),
        ("quotas", client.call(1, &quotas).await.error_code),
        ("bound", client.call(1, &change).await.entries[0].error_code),
        ("moves", client.call(0, &moves).await.error_code),
    ]
}

#[tokio::test]
async fn what_is_all_tenants_together_is_no_members() {
    let policy = Policy {
        super_users: vec![access::Principal::user("amy")],
        allow_if_no_acl: true,
    };
    for policy in [None, Some(policy)] {
        let is_judged = policy.is_some();
        let (server, access) = server(&two(), policy).await;
        let mut service = of(&server, "service").await;
        for topic in [ACME, BETA, "free"] {
            service.call(9, &metadata(topic)).await;
        }
        let mut ann = of(&server, "ann").await;
        for (what, code) in of_all(&mut ann).await {
            assert_eq!(code, 31, "{what}, judged {is_judged}");
        }
        let kept = access.tenants().of(&"acme".parse().unwrap()).refusals();
        assert_eq!(kept[0].what, "what is all tenants' together");
        // The service is there still, with its password.
        of(&server, "service").await;
        let sizes = DescribeLogDirsRequest::default().with_topics(None);
        let topics = async |client: &mut Client| {
            let told = client.call(4, &sizes).await;
            let names = told.results[0].topics.iter();
            let names = names.map(|topic| topic.name.to_string());
            let mut names: Vec<_> = names.filter(|name| !name.starts_with("__")).collect();
            names.sort();
            names
        };
        assert_eq!(topics(&mut ann).await, [ACME, "free"]);
        assert_eq!(topics(&mut service).await, [ACME, BETA, "free"]);
        // What clients need for their own work stays.
        let cluster = ann.call(0, &DescribeClusterRequest::default()).await;
        assert_eq!(cluster.error_code, 0);
        let number = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(1_000);
        assert_eq!(ann.call(4, &number).await.error_code, 0);
        let create = CreateTopicsRequest::default().with_topics(
            ["folio.Default.acme.NEW", "folio.Default.beta.NEW"]
                .map(|name| {
                    CreatableTopic::default()
                        .with_name(wire(name))
                        .with_num_partitions(1)
                })
                .map(|topic| topic.with_replication_factor(1))
                .to_vec(),
        );
        let created = ann.call(5, &create).await;
        let codes: Vec<i16> = created
            .topics
            .iter()
            .map(|topic| topic.error_code)
            .collect();
        assert_eq!(codes, [0, 29]);
        // A super user who belongs to one may do everything.
        if is_judged {
            let mut amy = of(&server, "amy").await;
            for (what, code) in of_all(&mut amy).await {
                assert_ne!(code, 31, "{what}");
            }
            assert_eq!(topics(&mut amy).await.len(), 4);
        }
        server.stop().await;
    }
}

#[tokio::test]
async fn who_belongs_to_a_removed_tenant_has_nothing_that_is_anybodys() {
    let (server, access) = server(&two(), None).await;
    let mut service = of(&server, "service").await;
    for topic in [ACME, BETA, "free"] {
        service.call(9, &metadata(topic)).await;
    }
    let mut ann = of(&server, "ann").await;
    access.remove_tenant(&"acme".parse().unwrap()).unwrap();
    for (topic, code) in [(ACME, 29), (BETA, 29), ("free", 0)] {
        let request = produce(topic, 0, -1, batch(&["x"]));
        assert_eq!(stored(&mut ann, &request).await, code, "{topic}");
        assert_eq!(fetched(&ann.call(11, &fetch(topic, 0, 0, 1)).await).0, code);
    }
    // Neither may it speak for another one.
    let forged = produce("free", 0, -1, headed("folio.tenantId", "beta"));
    assert_eq!(stored(&mut ann, &forged).await, 29);
    let mut bob = of(&server, "bob").await;
    let request = produce(ACME, 0, -1, batch(&["x"]));
    assert_eq!(stored(&mut bob, &request).await, 29);
    assert_eq!(stored(&mut service, &request).await, 0);
    server.stop().await;
}

/// Sends as fast as the server lets it until the time is over; answers the bytes that were taken.
async fn flood(mut client: Client, topic: &'static str, until: Instant) -> u64 {
    let request = produce(topic, 0, 1, batch(&[&"x".repeat(20_000)]));
    let mut taken = 0;
    while Instant::now() < until {
        // What is answered behind the end was held back until then.
        let call = client.call(9, &request);
        let left = until.saturating_duration_since(Instant::now());
        if tokio::time::timeout(left, call).await.is_err() {
            break;
        }
        taken += 20_000;
    }
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_connections_share_its_rate_and_others_notice_nothing() {
    let rate = 1_000_000;
    let mut tenants = two();
    tenants[0].1["quotas"] = json!({"bytes_in_per_second": rate});
    let (server, _) = server(&tenants, None).await;
    let mut service = of(&server, "service").await;
    for topic in [ACME, BETA, "free"] {
        service.call(9, &metadata(topic)).await;
    }
    let until = Instant::now() + Duration::from_secs(10);
    let mut senders = Vec::new();
    for (name, topic) in [
        ("ann", ACME),
        ("ann", "free"),
        ("amy", ACME),
        ("amy", "free"),
    ] {
        let client = of(&server, name).await;
        senders.push(tokio::spawn(flood(client, topic, until)));
    }
    let mut bob = of(&server, "bob").await;
    let mut slowest = Duration::ZERO;
    while Instant::now() < until {
        let asked = Instant::now();
        assert_eq!(
            stored(&mut bob, &produce(BETA, 0, 1, batch(&["x"]))).await,
            0
        );
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut taken = 0;
    for sender in senders {
        taken += sender.await.unwrap();
    }
    let share = taken as f64 / (rate * 10) as f64;
    println!("{share:.3} of the quota over 10 s; the neighbour waited {slowest:?} at most");
    assert!((0.95..=1.05).contains(&share), "{share} of the quota");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_service_is_refused_for_one_tenant_and_served_for_others_on_the_same_connection() {
    let mut tenants = two();
    tenants[0].1["quotas"] = json!({"records_per_second": 10});
    let (server, access) = server(&tenants, None).await;
    let mut service = of(&server, "service").await;
    for topic in [ACME, BETA] {
        service.call(9, &metadata(topic)).await;
    }
    let values = vec!["x"; 40];
    let of_acme = produce(ACME, 0, 1, batch(&values));
    let of_beta = produce(BETA, 0, 1, batch(&values));
    assert_eq!(stored(&mut service, &of_acme).await, 0);
    let mut both = of_acme.clone();
    both.topic_data.extend(of_beta.topic_data.clone());
    let asked = Instant::now();
    let told = service.call(9, &both).await;
    let parts = told
        .responses
        .iter()
        .map(|topic| &topic.partition_responses[0]);
    let codes: Vec<i16> = parts.clone().map(|part| part.error_code).collect();
    assert_eq!((codes, told.throttle_time_ms), (vec![89, 0], 0));
    let reason = parts.clone().next().unwrap().error_message.clone().unwrap();
    assert!(reason.contains("send again in"), "{reason}");
    assert_eq!(stored(&mut service, &of_beta).await, 0);
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );
    // A quota that is raised holds at once.
    set(
        &access,
        "acme",
        json!({"quotas": {"records_per_second": 1_000_000}}),
    );
    assert_eq!(stored(&mut service, &of_acme).await, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_that_is_full_is_told_so() {
    let mut tenants = two();
    tenants[0].1["quotas"] = json!({"stored_bytes": 1_000, "in_flight": 1});
    let (server, access) = server(&tenants, None).await;
    let (mut ann, mut amy) = (of(&server, "ann").await, of(&server, "amy").await);
    ann.call(9, &metadata(ACME)).await;
    let request = produce(ACME, 0, -1, batch(&[&"x".repeat(600)]));
    assert_eq!(stored(&mut ann, &request).await, 0);
    assert_eq!(stored(&mut amy, &request).await, 0);
    assert_eq!(stored(&mut ann, &request).await, 44);
    access.tenants().of(&"acme".parse().unwrap()).note_stored(0);
    assert_eq!(stored(&mut amy, &request).await, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_that_reads_too_fast_is_held_back() {
    let mut tenants = two();
    tenants[0].1["quotas"] = json!({"bytes_out_per_second": 100_000});
    let (server, _) = server(&tenants, None).await;
    let mut ann = of(&server, "ann").await;
    ann.call(9, &metadata(ACME)).await;
    let value = "x".repeat(60_000);
    assert_eq!(
        stored(&mut ann, &produce(ACME, 0, -1, batch(&[&value]))).await,
        0
    );
    let asked = fetch(ACME, 0, 0, 1 << 20);
    // A fifth of a second's worth, 20,000 bytes, may come at once.
    let mut amy = of(&server, "amy").await;
    let begun = Instant::now();
    let told = ann.call(11, &asked).await.throttle_time_ms;
    assert!((380..=430).contains(&told), "{told}");
    // Another connection of the tenant waits too, until that is over.
    let told = amy.call(11, &asked).await.throttle_time_ms;
    let waited = begun.elapsed();
    assert!(waited > Duration::from_millis(380), "{waited:?}");
    // Whatever came late has saved a fifth of a second's worth at most.
    assert!((380..=630).contains(&told), "{told}");
    server.stop().await;
}

/// What a client is shown of a shared topic from `offset` on: the values, and where to go on.
async fn seen(client: &mut Client, offset: i64) -> (Vec<String>, i64) {
    let (code, records) = fetched(&client.call(11, &fetch(SHARED, offset, 0, 1 << 20)).await);
    assert_eq!(code, 0);
    let (mut values, mut next, mut rest) = (Vec::new(), offset, records);
    while !rest.is_empty() {
        let header = BatchHeader::check_stored(&rest).unwrap();
        let batch = rest.split_to(header.bytes);
        for record in BatchRecords::of(&batch).unwrap() {
            let value = record.unwrap().value.unwrap();
            values.push(String::from_utf8(value.to_vec()).unwrap());
        }
        next = header.last_offset() + 1;
    }
    (values, next)
}

#[tokio::test]
async fn a_member_is_shown_its_own_tenants_records_of_a_shared_topic() {
    let (server, access) = server(&two(), None).await;
    for name in ["acme", "beta"] {
        set(&access, name, json!({"collection": "ALL"}));
        let wanted = Some("ALL".parse().unwrap());
        access
            .settle_tenant(&name.parse().unwrap(), wanted)
            .unwrap();
    }
    let mut service = of(&server, "service").await;
    service.call(9, &metadata(SHARED)).await;
    let record = |(tenant, value): &(&str, &'static str)| Record {
        headers: vec![(
            "folio.tenantId".to_owned(),
            Some(Bytes::from((*tenant).to_owned())),
        )],
        ..Record::of_value(*value)
    };
    for records in [
        &[
            ("beta", "b1"),
            ("acme", "a1"),
            ("beta", "b2"),
            ("acme", "a2"),
        ][..],
        &[("acme", "a3")],
        &[("beta", "b3"), ("beta", "b4")],
    ] {
        let records: Vec<Record> = records.iter().map(record).collect();
        let batch = crate::batch::build(&records, SystemClock.now(), None).unwrap();
        assert_eq!(
            stored(&mut service, &produce(SHARED, 0, -1, batch)).await,
            0
        );
    }
    let mut ann = of(&server, "ann").await;
    let owned = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
    assert_eq!(seen(&mut ann, 0).await, (owned(&["a1", "a2", "a3"]), 7));
    assert_eq!(seen(&mut ann, 5).await, (Vec::new(), 7));
    let mut bob = of(&server, "bob").await;
    assert_eq!(
        seen(&mut bob, 0).await,
        (owned(&["b1", "b2", "b3", "b4"]), 7)
    );
    let all = owned(&["b1", "a1", "b2", "a2", "a3", "b3", "b4"]);
    assert_eq!(seen(&mut service, 0).await, (all, 7));
    shared_records(&mut ann).await;
    // Whoever leaves the collection is shown nothing more of it.
    set(&access, "acme", json!({"collection": null}));
    access
        .settle_tenant(&"acme".parse().unwrap(), None)
        .unwrap();
    assert_eq!(fetched(&ann.call(11, &fetch(SHARED, 0, 0, 1)).await).0, 29);
}

/// What a tenant's share group is given of the same topic: its own records alone.
async fn shared_records(ann: &mut Client) {
    let text = StrBytes::from_static_str;
    let begin = IncrementalAlterConfigsRequest::default().with_resources(vec![
        AlterConfigsResource::default()
            .with_resource_type(32)
            .with_resource_name(text("acme-sharers"))
            .with_configs(vec![
                AlterableConfig::default()
                    .with_name(text("share.auto.offset.reset"))
                    .with_value(Some(text("earliest"))),
            ]),
    ]);
    assert_eq!(ann.call(1, &begin).await.responses[0].error_code, 0);
    let group = GroupId(text("acme-sharers"));
    let beat = ShareGroupHeartbeatRequest::default()
        .with_group_id(group.clone())
        .with_member_id(text("m"))
        .with_subscribed_topic_names(Some(vec![wire(SHARED)]));
    let told = ann.call(1, &beat).await;
    assert_eq!(told.error_code, 0);
    let topic = told.assignment.unwrap().topic_partitions[0].topic_id;
    let topic = share_fetch_request::FetchTopic::default()
        .with_topic_id(topic)
        .with_partitions(vec![share_fetch_request::FetchPartition::default()]);
    let asked = ShareFetchRequest::default()
        .with_group_id(Some(group))
        .with_member_id(Some(text("m")))
        .with_max_bytes(1 << 20)
        .with_max_records(100)
        .with_topics(vec![topic]);
    let told = ann.call(1, &asked).await;
    assert_eq!((told.error_code, told.responses.len()), (0, 1), "{told:?}");
    let partition = &told.responses[0].partitions[0];
    let runs = partition.acquired_records.iter();
    let runs: Vec<(i64, i64)> = runs
        .map(|run| (run.first_offset, run.last_offset))
        .collect();
    assert_eq!(runs, [(1, 1), (3, 4)]);
}

const SHARED: &str = "folio.Default.ALL.ORDERS";

/// The topics in the share that a consumer group gives to a classic member who names both.
async fn share_of(client: &mut Client) -> Vec<String> {
    let text = StrBytes::from_static_str;
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(crate::consumer::subscription([ACME, BETA].into_iter()));
    let join = JoinGroupRequest::default()
        .with_group_id(group("g"))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(10_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    // A version that does not make members come back with their ids.
    let joined = client.call(3, &join).await;
    assert_eq!(joined.error_code, 0);
    let sync = SyncGroupRequest::default()
        .with_group_id(group("g"))
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id);
    let synced = client.call(3, &sync).await;
    assert_eq!(synced.error_code, 0);
    let leave = LeaveGroupRequest::default()
        .with_group_id(group("g"))
        .with_member_id(joined.member_id);
    assert_eq!(client.call(2, &leave).await.error_code, 0);
    let share = crate::consumer::assigned(&synced.assignment);
    share.into_keys().collect()
}

#[tokio::test]
async fn a_consumer_group_tells_a_classic_member_nothing_of_other_tenants_topics() {
    let (server, _) = server(&two(), None).await;
    let mut service = of(&server, "service").await;
    for topic in [ACME, BETA] {
        service.call(9, &metadata(topic)).await;
    }
    let beat = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(StrBytes::from_static_str("newer"))
        .with_rebalance_timeout_ms(30_000)
        .with_subscribed_topic_names(Some(vec![wire("free")]))
        .with_topic_partitions(Some(Vec::new()));
    assert_eq!(service.call(1, &beat).await.error_code, 0);
    assert_eq!(share_of(&mut service).await, [ACME, BETA]);
    let mut ann = of(&server, "ann").await;
    assert_eq!(share_of(&mut ann).await, [ACME]);
    server.stop().await;
}
