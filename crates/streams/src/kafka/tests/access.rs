//! What callers may do: every API asks, ACLs and users are changed by the admin APIs.

use std::path::Path;
use std::sync::Arc;

use access::{Access, Credential, Mechanism, Policy, Principal, ScramHash, UserChange};
use bytes::Bytes;
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use super::super::{SaslSettings, Security};
use super::client::{Client, Server, batch, fetch, fetched, metadata, produce, wire};

/// A server that follows ACLs, where root may do everything and ann nothing.
pub(super) async fn server() -> Server {
    Server::start_secured(guarded).await
}

fn guarded(folder: &Path) -> Security {
    let access = Access::open(folder).unwrap();
    for name in ["ann", "root"] {
        let credential = Credential::of_password(ScramHash::Sha256, "pw", 4_096).unwrap();
        let change = UserChange::Set(name.to_owned(), credential);
        access.alter_users(&[change]).unwrap();
    }
    Security {
        access: Some(Arc::new(access)),
        sasl: Some(SaslSettings {
            mechanisms: vec![Mechanism::Plain],
            lifetime: None,
        }),
        authorization: Some(Policy {
            super_users: vec![Principal::user("root")],
            allow_if_no_acl: false,
        }),
        ..Security::default()
    }
}

pub(super) async fn client(server: &Server, name: &str, password: &str) -> (Client, i16) {
    let mut client = Client::connect(server).await;
    let plain = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    client.call(1, &plain).await;
    let token = Bytes::from(format!("\0{name}\0{password}"));
    let login = SaslAuthenticateRequest::default().with_auth_bytes(token);
    let code = client.call(2, &login).await.error_code;
    (client, code)
}

pub(super) fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

pub(super) fn group(name: &'static str) -> GroupId {
    GroupId(text(name))
}

/// Lets ann do `operation`.
pub(super) fn allow(resource_type: i8, name: &'static str, operation: i8) -> CreateAclsRequest {
    CreateAclsRequest::default().with_creations(vec![
        AclCreation::default()
            .with_resource_type(resource_type)
            .with_resource_name(text(name))
            .with_resource_pattern_type(3)
            .with_principal(text("User:ann"))
            .with_host(text("*"))
            .with_operation(operation)
            .with_permission_type(3),
    ])
}

/// What each API says to a caller about the topic and the group: its name and its error code.
async fn codes(client: &mut Client) -> Vec<(&'static str, i16)> {
    let mut codes = Vec::new();
    let told = client.call(9, &metadata("t")).await;
    codes.push(("Metadata", told.topics[0].error_code));
    let told = client.call(9, &produce("t", 0, 1, batch(&["x"]))).await;
    codes.push((
        "Produce",
        told.responses[0].partition_responses[0].error_code,
    ));
    codes.push((
        "Fetch",
        fetched(&client.call(11, &fetch("t", 0, 0, 1)).await).0,
    ));
    let partition = ListOffsetsPartition::default().with_timestamp(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(wire("t"))
        .with_partitions(vec![partition]);
    let asked = ListOffsetsRequest::default().with_topics(vec![topic]);
    let told = client.call(7, &asked).await;
    codes.push(("ListOffsets", told.topics[0].partitions[0].error_code));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(wire("t"))
        .with_partitions(vec![OffsetCommitRequestPartition::default()]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let told = client.call(8, &commit).await;
    codes.push(("OffsetCommit", told.topics[0].partitions[0].error_code));
    let asked = OffsetFetchRequest::default()
        .with_group_id(group("g"))
        .with_topics(None);
    codes.push(("OffsetFetch", client.call(7, &asked).await.error_code));
    let find = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g")]);
    let told = client.call(4, &find).await;
    codes.push(("FindCoordinator", told.coordinators[0].error_code));
    let asked = DescribeGroupsRequest::default().with_groups(vec![group("g")]);
    codes.push((
        "DescribeGroups",
        client.call(5, &asked).await.groups[0].error_code,
    ));
    let beat = HeartbeatRequest::default().with_group_id(group("g"));
    codes.push(("Heartbeat", client.call(4, &beat).await.error_code));
    let join = JoinGroupRequest::default().with_group_id(group("g"));
    codes.push(("JoinGroup", client.call(7, &join).await.error_code));
    let plain = InitProducerIdRequest::default().with_transactional_id(None);
    codes.push(("InitProducerId", client.call(4, &plain).await.error_code));
    for (name, kind, of) in [
        ("DescribeConfigs", 2, "t"),
        ("DescribeConfigs of the node", 4, "1"),
    ] {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(of));
        let asked = DescribeConfigsRequest::default().with_resources(vec![resource]);
        codes.push((name, client.call(4, &asked).await.results[0].error_code));
    }
    let new = CreatableTopic::default()
        .with_name(wire("new"))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let create = CreateTopicsRequest::default().with_topics(vec![new]);
    codes.push((
        "CreateTopics",
        client.call(7, &create).await.topics[0].error_code,
    ));
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![wire("new")]);
    codes.push((
        "DeleteTopics",
        client.call(5, &delete).await.responses[0].error_code,
    ));
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![group("g")]);
    codes.push((
        "DeleteGroups",
        client.call(2, &delete).await.results[0].error_code,
    ));
    codes
}

#[tokio::test]
async fn who_may_nothing_is_refused_by_every_api_and_sees_nothing() {
    let server = server().await;
    let (mut root, code) = client(&server, "root", "pw").await;
    assert_eq!(code, 0);
    let free = codes(&mut root).await;
    let refused = free.iter().filter(|(_, code)| matches!(code, 29..=31 | 53));
    assert_eq!(refused.count(), 0, "{free:?}");
    let (mut ann, _) = client(&server, "ann", "pw").await;
    for (api, code) in codes(&mut ann).await {
        let expected = match api {
            "OffsetCommit" | "OffsetFetch" | "FindCoordinator" | "DescribeGroups" | "Heartbeat"
            | "JoinGroup" | "DeleteGroups" => 30,
            "InitProducerId" | "DescribeConfigs of the node" => 31,
            _ => 29,
        };
        assert_eq!(code, expected, "{api}");
    }
    let every = MetadataRequest::default().with_topics(None);
    assert_eq!(ann.call(9, &every).await.topics.len(), 0);
    assert_eq!(
        ann.call(4, &ListGroupsRequest::default())
            .await
            .groups
            .len(),
        0
    );
    assert!(!root.call(9, &every).await.topics.is_empty());
    // A topic that is not there is told in the same words.
    assert_eq!(
        ann.call(9, &metadata("nowhere")).await.topics[0].error_code,
        29
    );
    // Nor may ann let herself do anything.
    for code in [
        ann.call(2, &allow(2, "t", 3)).await.results[0].error_code,
        ann.call(2, &any_acl()).await.error_code,
        ann.call(
            2,
            &DeleteAclsRequest::default().with_filters(vec![any_filter()]),
        )
        .await
        .filter_results[0]
            .error_code,
        ann.call(0, &DescribeUserScramCredentialsRequest::default())
            .await
            .error_code,
        ann.call(0, &removal("root")).await.results[0].error_code,
    ] {
        assert_eq!(code, 31);
    }
    server.stop().await;
}

#[tokio::test]
async fn acls_open_what_they_say_and_nothing_else() {
    let server = server().await;
    let (mut root, _) = client(&server, "root", "pw").await;
    let (mut ann, _) = client(&server, "ann", "pw").await;
    root.call(9, &metadata("t")).await;
    for acl in [allow(2, "t", 3), allow(3, "g", 3)] {
        assert_eq!(root.call(2, &acl).await.results[0].error_code, 0);
    }
    let open = [
        "Metadata",
        "Fetch",
        "ListOffsets",
        "OffsetCommit",
        "OffsetFetch",
        "FindCoordinator",
        "DescribeGroups",
        "Heartbeat",
        "JoinGroup",
    ];
    for (api, code) in codes(&mut ann).await {
        let is_refused = matches!(code, 29..=31);
        assert_eq!(is_refused, !open.contains(&api), "{api}: {code}");
    }
    let asked = metadata("t").with_include_topic_authorized_operations(true);
    let told = ann.call(12, &asked).await;
    // READ and DESCRIBE.
    assert_eq!(told.topics[0].topic_authorized_operations, 1 << 3 | 1 << 8);
    assert_eq!(
        root.call(12, &metadata("t")).await.topics[0].topic_authorized_operations,
        i32::MIN
    );
    let told = root.call(2, &any_acl()).await;
    let names: Vec<&str> = told
        .resources
        .iter()
        .map(|r| r.resource_name.as_str())
        .collect();
    assert_eq!(names, ["t", "g"]);
    let delete = DeleteAclsRequest::default().with_filters(vec![any_filter()]);
    let gone = root.call(2, &delete).await;
    assert_eq!(gone.filter_results[0].matching_acls.len(), 2);
    assert_eq!(fetched(&ann.call(11, &fetch("t", 0, 0, 1)).await).0, 29);
    // What cannot be an ACL is refused alone.
    for bad in [
        allow(1, "t", 3),
        allow(2, "t", 1),
        allow(2, "", 3),
        allow(4, "mine", 3),
    ] {
        assert_eq!(root.call(2, &bad).await.results[0].error_code, 42);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_address_of_ipv4_is_the_same_on_a_listener_of_ipv6() {
    let Some(server) = Server::start_on_both(guarded).await else {
        return;
    };
    let (mut root, _) = client(&server, "root", "pw").await;
    let told = root.call(9, &metadata("t")).await;
    assert_eq!(told.brokers[0].host.as_str(), "127.0.0.1");
    for (host, code) in [("127.0.0.2", 29), ("127.0.0.1", 0)] {
        let mut acl = allow(2, "t", 3);
        acl.creations[0].host = text(host);
        assert_eq!(root.call(2, &acl).await.results[0].error_code, 0);
        let (mut ann, _) = client(&server, "ann", "pw").await;
        assert_eq!(fetched(&ann.call(11, &fetch("t", 0, 0, 1)).await).0, code);
    }
    server.stop().await;
}

#[tokio::test]
async fn users_come_and_go_by_the_admin_api() {
    let server = server().await;
    let (mut root, _) = client(&server, "root", "pw").await;
    let salted = ScramHash::Sha512.salted_password("fresh", b"salt", 8_192);
    let set = |iterations| {
        let setting = ScramCredentialUpsertion::default()
            .with_name(text("bob"))
            .with_mechanism(2)
            .with_iterations(iterations)
            .with_salt(Bytes::from_static(b"salt"))
            .with_salted_password(Bytes::from(salted.clone()));
        AlterUserScramCredentialsRequest::default().with_upsertions(vec![setting])
    };
    assert_eq!(root.call(0, &set(100)).await.results[0].error_code, 93);
    assert_eq!(root.call(0, &set(8_192)).await.results[0].error_code, 0);
    assert_eq!(client(&server, "bob", "fresh").await.1, 0);
    let told = root
        .call(0, &DescribeUserScramCredentialsRequest::default())
        .await;
    let users: Vec<(&str, i8, i32)> = told
        .results
        .iter()
        .map(|user| {
            let info = &user.credential_infos[0];
            (user.user.as_str(), info.mechanism, info.iterations)
        })
        .collect();
    assert_eq!(
        users,
        [("ann", 1, 4_096), ("bob", 2, 8_192), ("root", 1, 4_096)]
    );
    assert_eq!(
        root.call(0, &removal("bob")).await.results[0].error_code,
        91
    );
    let gone = removal("ann");
    assert_eq!(root.call(0, &gone).await.results[0].error_code, 0);
    assert_eq!(client(&server, "ann", "pw").await.1, 58);
    server.stop().await;
}

#[tokio::test]
async fn a_listener_without_acls_says_so() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    assert_eq!(client.call(2, &any_acl()).await.error_code, 54);
    assert_eq!(
        client.call(2, &allow(2, "t", 3)).await.results[0].error_code,
        54
    );
    server.stop().await;
}

/// Removes a user's SCRAM-SHA-256 credential.
pub(super) fn removal(name: &'static str) -> AlterUserScramCredentialsRequest {
    let removal = ScramCredentialDeletion::default()
        .with_name(text(name))
        .with_mechanism(1);
    AlterUserScramCredentialsRequest::default().with_deletions(vec![removal])
}

pub(super) fn any_filter() -> DeleteAclsFilter {
    DeleteAclsFilter::default()
        .with_resource_type_filter(1)
        .with_resource_name_filter(None)
        .with_pattern_type_filter(1)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(1)
        .with_permission_type(1)
}

pub(super) fn any_acl() -> DescribeAclsRequest {
    DescribeAclsRequest::default()
        .with_resource_type_filter(1)
        .with_resource_name_filter(None)
        .with_pattern_type_filter(1)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(1)
        .with_permission_type(1)
}
