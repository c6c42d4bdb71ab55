//! Shared subscriptions.

use super::super::client::Client;
use super::super::{Running, until};
use super::{Connect, publish, unsubscribe};
use crate::config::MqttConfig;

/// The payloads that wait for a client now.
async fn waiting(client: &mut Client) -> Vec<String> {
    let mut payloads = Vec::new();
    client.send(b"\xc0\0").await;
    loop {
        let (first, body) = client.packet().await;
        if first == 0xd0 {
            return payloads;
        }
        assert_eq!(first >> 4, 3, "not a PUBLISH: {first:#x}");
        payloads.push(String::from_utf8(body[body.len() - 2..].to_vec()).unwrap());
    }
}

#[tokio::test]
pub(in crate::server) async fn each_message_goes_to_one_member_of_each_group() {
    let running = Running::start(MqttConfig::default()).await;
    let mut members = Vec::new();
    for id in ["a", "b", "c"] {
        let mut member = Connect::new(id).go(running.port).await;
        assert_eq!(member.subscribe5(&[], &[("$share/g/t/+", 0)]).await, [0]);
        members.push(member);
    }
    let mut alone = Connect::new("alone").go(running.port).await;
    alone.subscribe5(&[], &[("$share/h/t/#", 0)]).await;
    let mut plain = Connect::new("plain").go(running.port).await;
    plain.subscribe5(&[], &[("t/#", 0)]).await;
    let mut publisher = running.client("p").await;
    let numbers: Vec<String> = (10..70).map(|n| n.to_string()).collect();
    for number in &numbers {
        let bytes = super::super::client::publish("t/x", number.as_bytes(), 0, false, 0);
        publisher.send(&bytes).await;
    }
    publisher.expect_nothing().await;
    let mut all = Vec::new();
    for member in &mut members {
        let own = waiting(member).await;
        assert_eq!(own.len(), 20, "the members take turns");
        all.extend(own);
    }
    all.sort();
    assert_eq!(all, numbers);
    assert_eq!(waiting(&mut alone).await, numbers);
    assert_eq!(waiting(&mut plain).await, numbers);
    // Who leaves the group gets no more of it.
    members[0].send(&unsubscribe(4, &["$share/g/t/+"])).await;
    assert_eq!(members[0].packet().await, (0xb0, vec![0, 4, 0, 0]));
    let bytes = super::super::client::publish("t/x", b"71", 0, false, 0);
    for _ in 0..4 {
        publisher.send(&bytes).await;
    }
    publisher.expect_nothing().await;
    assert_eq!(waiting(&mut members[0]).await.len(), 0);
    let rest = waiting(&mut members[1]).await.len() + waiting(&mut members[2]).await.len();
    assert_eq!(rest, 4);
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_member_gets_the_quality_that_it_was_granted_and_no_retained_messages()
 {
    let running = Running::start(MqttConfig::default()).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.send(&publish(0x33, "t", 1, &[], "kept")).await;
    publisher.packet().await;
    let mut low = Connect::new("low").go(running.port).await;
    low.subscribe5(&[11, 5], &[("$share/g/t", 0)]).await;
    low.expect_nothing().await;
    publisher.publish5("t", "x", &[]).await;
    let got = low.got().await;
    assert_eq!((got.qos(), got.properties().variable(11)), (0, Some(5)));
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn what_a_lost_member_did_not_acknowledge_goes_to_another() {
    let running = Running::start(MqttConfig::default()).await;
    let mut lost = Connect::kept("lost", 600).go(running.port).await;
    lost.subscribe5(&[], &[("$share/g/t", 2)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    for payload in ["10", "11", "12"] {
        publisher.publish5("t", payload, &[]).await;
    }
    publisher.send(&publish(0x34, "t", 4, &[], "13")).await;
    publisher.packet().await;
    let first = lost.got().await;
    lost.ack(0x40, first.id).await;
    for _ in 0..3 {
        lost.got().await;
    }
    let mut other = Connect::kept("other", 600).go(running.port).await;
    other.subscribe5(&[], &[("$share/g/t", 1)]).await;
    drop(lost);
    for payload in ["11", "12"] {
        let got = other.got().await;
        assert_eq!((got.payload.as_str(), got.is_dup()), (payload, false));
        other.ack(0x40, got.id).await;
    }
    // What was sent once with QoS 2 stays with its client.
    other.expect_nothing().await;
    let mut lost = Connect::kept("lost", 600).go(running.port).await;
    let got = lost.got().await;
    assert_eq!(
        (got.payload.as_str(), got.qos(), got.is_dup()),
        ("13", 2, true)
    );
    lost.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_qos_2_message_whose_clients_session_ends_goes_to_nobody_else() {
    let running = Running::start(MqttConfig::default()).await;
    let mut mortal = Connect::new("mortal").go(running.port).await;
    mortal.subscribe5(&[], &[("$share/g/t", 2)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.send(&publish(0x34, "t", 4, &[], "13")).await;
    publisher.packet().await;
    mortal.got().await;
    let mut other = Connect::new("other").go(running.port).await;
    other.subscribe5(&[], &[("$share/g/t", 2)]).await;
    drop(mortal);
    until("it is gone", || {
        running.server.stats().clients_connected == 2
    })
    .await;
    other.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_group_whose_members_are_away_queues_for_one_that_is_kept() {
    let running = Running::start(MqttConfig::default()).await;
    let mut kept = Connect::kept("kept", 600).go(running.port).await;
    kept.subscribe5(&[], &[("$share/g/t", 1)]).await;
    kept.leave().await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.publish5("t", "10", &[]).await;
    let running = running.restart(MqttConfig::default()).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.publish5("t", "11", &[]).await;
    let mut kept = Connect::kept("kept", 600).go(running.port).await;
    for payload in ["10", "11"] {
        assert_eq!(kept.got().await.payload, payload);
    }
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_message_that_a_member_refuses_goes_to_nobody_else() {
    let running = Running::start(MqttConfig::default()).await;
    let mut one = Connect::new("one").go(running.port).await;
    one.subscribe5(&[], &[("$share/g/t", 1)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.publish5("t", "10", &[]).await;
    let got = one.got().await;
    let mut two = Connect::new("two").go(running.port).await;
    two.subscribe5(&[], &[("$share/g/t", 1)]).await;
    one.send(&[0x40, 3, 0, got.id as u8, 0x80]).await;
    one.expect_nothing().await;
    two.expect_nothing().await;
    drop(one);
    two.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn groups_have_a_name_and_a_filter() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Connect::new("c").go(running.port).await;
    let filters = [
        ("$share/g", 0),
        ("$share//t", 0),
        ("$share/g/", 0),
        ("$share/g+/t", 0),
        ("$share/#/t", 0),
        ("$share/g/t/#", 1),
    ];
    let codes = client.subscribe5(&[], &filters).await;
    assert_eq!(codes, [0x8f, 0x8f, 0x8f, 0x8f, 0x8f, 1]);
    running.stop().await;
}
