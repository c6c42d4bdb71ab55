//! Client quotas: told, changed and held against clients, by a clock that stands still.

use std::sync::Arc;

use access::Access;
use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;

use super::super::Security;
use super::client::{Client, Server, batch, fetch, metadata, produce, wire};

/// A server without logins, whose clock nobody moves: what was used never drains.
async fn server() -> Server {
    Server::start_at_rest(|folder| Security {
        access: Some(Arc::new(Access::open(folder).unwrap())),
        ..Security::default()
    })
    .await
}

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

/// Sets a bound of `[(kind, name)]`; an empty name is the default.
fn set(
    entity: &[(&'static str, &'static str)],
    key: &'static str,
    value: f64,
) -> AlterClientQuotasRequest {
    let parts = entity.iter().map(|(kind, name)| {
        EntityData::default()
            .with_entity_type(text(kind))
            .with_entity_name(Some(text(name)).filter(|name| !name.is_empty()))
    });
    let change = OpData::default()
        .with_key(text(key))
        .with_value(value)
        .with_remove(value == 0.0);
    let entry = EntryData::default()
        .with_entity(parts.collect())
        .with_ops(vec![change]);
    AlterClientQuotasRequest::default().with_entries(vec![entry])
}

/// The entities told, each with its values, as texts.
async fn described(
    client: &mut Client,
    components: &[(&'static str, i8, Option<&'static str>)],
    strict: bool,
) -> Vec<String> {
    let components = components.iter().map(|(kind, matches, name)| {
        ComponentData::default()
            .with_entity_type(text(kind))
            .with_match_type(*matches)
            .with_match(name.map(text))
    });
    let asked = DescribeClientQuotasRequest::default()
        .with_components(components.collect())
        .with_strict(strict);
    let told = client.call(1, &asked).await;
    assert_eq!(told.error_code, 0, "{:?}", told.error_message);
    let entries = told.entries.unwrap().into_iter().map(|entry| {
        let parts = entry.entity.iter().map(|part| {
            let name = part.entity_name.as_ref().map_or("*", |name| name.as_str());
            format!("{}={name} ", part.entity_type.as_str())
        });
        let values = entry
            .values
            .iter()
            .map(|v| format!("{}={}", v.key.as_str(), v.value));
        parts.chain(values).collect()
    });
    entries.collect()
}

#[tokio::test]
async fn quotas_are_told_as_they_were_set() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    let rate = "producer_byte_rate";
    for (version, request) in [
        (0, set(&[("user", "ann")], rate, 1000.0)),
        (1, set(&[("user", "ann"), ("client-id", "")], rate, 2000.0)),
        (1, set(&[("client-id", "app")], "request_percentage", 12.5)),
        (
            1,
            set(&[("ip", "10.0.0.1")], "connection_creation_rate", 3.0),
        ),
    ] {
        let told = client.call(version, &request).await;
        assert_eq!(
            told.entries[0].error_code, 0,
            "{:?}",
            told.entries[0].error_message
        );
    }
    let all = described(&mut client, &[], false).await;
    assert_eq!(all.len(), 4, "{all:?}");
    let of_ann = [("user", 0, Some("ann"))];
    assert_eq!(
        described(&mut client, &of_ann, true).await,
        ["user=ann producer_byte_rate=1000"]
    );
    assert_eq!(described(&mut client, &of_ann, false).await.len(), 2);
    let defaults = [("user", 2, None), ("client-id", 1, None)];
    assert_eq!(
        described(&mut client, &defaults, true).await,
        ["user=ann client-id=* producer_byte_rate=2000"]
    );
    client.call(1, &set(&[("user", "ann")], rate, 0.0)).await;
    assert_eq!(described(&mut client, &of_ann, true).await, [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn quotas_that_cannot_be_are_refused_in_kafkas_codes() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    let rate = "producer_byte_rate";
    for bad in [
        set(&[], rate, 1.0),
        set(&[("tenant", "x")], rate, 1.0),
        set(&[("user", "x"), ("user", "x")], rate, 1.0),
        set(&[("user", "x"), ("ip", "10.0.0.1")], rate, 1.0),
        set(&[("user", "x")], "speed", 1.0),
        set(&[("user", "x")], rate, -1.0),
    ] {
        let told = client.call(1, &bad).await;
        assert_eq!(told.entries[0].error_code, 42, "{bad:?}");
        assert!(told.entries[0].error_message.is_some());
    }
    let only_checked = set(&[("user", "x")], rate, 1.0).with_validate_only(true);
    assert_eq!(client.call(1, &only_checked).await.entries[0].error_code, 0);
    assert_eq!(described(&mut client, &[], false).await.len(), 0);
    for (kind, matches, name, code) in [
        ("tenant", 2, None, 35),
        ("user", 0, None, 42),
        ("user", 2, Some("x"), 42),
        ("user", 9, None, 42),
    ] {
        let component = ComponentData::default()
            .with_entity_type(text(kind))
            .with_match_type(matches)
            .with_match(name.map(text));
        let asked = DescribeClientQuotasRequest::default().with_components(vec![component]);
        assert_eq!(
            client.call(1, &asked).await.error_code,
            code,
            "{kind} {matches}"
        );
    }
    server.stop().await;
}

/// The clients of these tests are called `test`.
const US: [(&str, &str); 1] = [("client-id", "test")];

#[tokio::test]
async fn a_producer_over_its_rate_is_told_and_then_held_back() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    // Ten seconds' worth may be sent at once: 10,000 bytes.
    client
        .call(1, &set(&US, "producer_byte_rate", 1_000.0))
        .await;
    let value = "x".repeat(60_000);
    let request = produce("t", 0, -1, batch(&[&value]));
    let told = client.call(9, &request).await;
    // 50 seconds over and a little; what was sent is taken all the same.
    assert_eq!(told.responses[0].partition_responses[0].error_code, 0);
    assert!(
        (50_000..50_500).contains(&told.throttle_time_ms),
        "{told:?}"
    );
    // What comes now is not even begun, while others are served.
    client.send(9, &request).await;
    let mut other = Client::connect(&server).await;
    for _ in 0..5 {
        other.call(9, &metadata("t")).await;
    }
    let end = server.streams.topic_by_name(&"t".parse().unwrap()).unwrap();
    assert_eq!(end.partitions()[0].high_watermark(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_connection_goes_on_after_its_time() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    client
        .call(1, &set(&US, "producer_byte_rate", 1_000_000.0))
        .await;
    let value = "x".repeat(900_000);
    let request = produce("t", 0, 1, batch(&[&value]));
    let mut told = 0;
    for _ in 0..13 {
        told = client.call(9, &request).await.throttle_time_ms;
    }
    // 11.7 million bytes where ten were free: held back for up to 1.7 seconds, and served again.
    assert!((1_600..1_800).contains(&told), "{told}");
    client.call(1, &set(&US, "producer_byte_rate", 0.0)).await;
    assert_eq!(client.call(9, &request).await.throttle_time_ms, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_consumer_over_its_rate_gets_its_records_and_is_held_back() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    client.call(9, &metadata("t")).await;
    let value = "x".repeat(60_000);
    // Nobody reads what the disk does not have yet.
    client.call(9, &produce("t", 0, -1, batch(&[&value]))).await;
    client
        .call(1, &set(&US, "consumer_byte_rate", 10_000.0))
        .await;
    let asked = fetch("t", 0, 0, 1 << 20);
    assert_eq!(client.call(11, &asked).await.throttle_time_ms, 0);
    let told = client.call(11, &asked).await;
    let held = told.throttle_time_ms;
    assert!((2_000..2_100).contains(&held), "{held}");
    assert!(
        told.responses[0].partitions[0]
            .records
            .as_ref()
            .unwrap()
            .len()
            > 60_000
    );
    server.stop().await;
}

#[tokio::test]
async fn who_creates_too_much_is_refused_when_they_know_the_error() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    client
        .call(1, &set(&US, "controller_mutation_rate", 1.0))
        .await;
    let create = |name, partitions| {
        let topic = CreatableTopic::default()
            .with_name(wire(name))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        CreateTopicsRequest::default().with_topics(vec![topic])
    };
    let told = client.call(7, &create("a", 11)).await;
    // The burst lets it pass, and its client waits for the second that it is over.
    assert_eq!(
        (told.topics[0].error_code, told.throttle_time_ms),
        (0, 1_000)
    );
    let mut other = Client::connect(&server).await;
    let told = other.call(7, &create("b", 1)).await;
    assert_eq!(
        (told.topics[0].error_code, told.throttle_time_ms),
        (89, 1_000)
    );
    // Older clients do not know the error: they are served, and wait longer.
    let mut older = Client::connect(&server).await;
    let told = older.call(5, &create("c", 2)).await;
    assert_eq!(
        (told.topics[0].error_code, told.throttle_time_ms),
        (0, 3_000)
    );
    server.stop().await;
}

#[tokio::test]
async fn an_address_has_so_many_connections_and_no_more() {
    let server = Server::start_with(|config| config.max_connections_per_ip = 2).await;
    let mut first = Client::connect(&server).await;
    first.call(9, &metadata("t")).await;
    let mut second = Client::connect(&server).await;
    second.call(9, &metadata("t")).await;
    assert!(Client::connect(&server).await.is_closed().await);
    drop(second);
    // The place is free once the listener has seen the end.
    loop {
        let mut third = Client::connect(&server).await;
        if third.is_served().await {
            break;
        }
    }
    first.call(9, &metadata("t")).await;
    server.stop().await;
}

#[tokio::test]
async fn connections_that_come_too_fast_are_turned_away() {
    let server = server().await;
    let mut client = Client::connect(&server).await;
    let bound = set(&[("ip", "")], "connection_creation_rate", 1.0);
    client.call(1, &bound).await;
    for _ in 0..10 {
        Client::connect(&server).await.call(9, &metadata("t")).await;
    }
    // The eleventh is one second early: kept for that second, served never.
    assert!(Client::connect(&server).await.is_closed().await);
    client
        .call(1, &set(&[("ip", "")], "connection_creation_rate", 0.0))
        .await;
    Client::connect(&server).await.call(9, &metadata("t")).await;
    server.stop().await;
}
