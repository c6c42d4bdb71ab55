//! Shared subscriptions.

use std::sync::Arc;

use super::super::client::Client;
use super::super::{Running, until};
use super::{Connect, publish, unsubscribe};
use crate::config::MqttConfig;
use crate::gate::{Admission, Gate, Hello, Pass};
use crate::message::Qos;
use crate::reason::ReasonCode;
use crate::topic::TopicFilter;

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

/// Lets everybody in and do everything, but `blind` sees nothing of `t/secret`.
struct Curtain;

struct Seat {
    is_blind: bool,
}

impl Gate for Curtain {
    fn admit<'a>(&'a self, hello: &'a Hello<'a>) -> Admission<'a> {
        let is_blind = hello.client_id == "blind";
        let seat: Arc<dyn Pass> = Arc::new(Seat { is_blind });
        Box::pin(std::future::ready(Ok(seat)))
    }
}

impl Pass for Seat {
    fn may_publish(&self, _topic: &str, _qos: Qos, _retain: bool) -> Result<(), ReasonCode> {
        Ok(())
    }

    fn may_subscribe(&self, _filter: &TopicFilter, qos: Qos) -> Result<Qos, ReasonCode> {
        Ok(qos)
    }

    fn may_receive(&self, topic: &str) -> bool {
        !self.is_blind || topic != "t/secret"
    }
}

#[tokio::test]
async fn what_no_other_member_may_have_stays_with_who_went_away() {
    let running = Running::start_guarded(Arc::new(Curtain)).await;
    let mut lost = Connect::kept("lost", 600).go(running.port).await;
    lost.subscribe5(&[], &[("$share/g/t/+", 1)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    for (topic, payload) in [("secret", "10"), ("open", "11"), ("secret", "12")] {
        publisher
            .publish5(&format!("t/{topic}"), payload, &[])
            .await;
    }
    let sent = [lost.got().await, lost.got().await, lost.got().await];
    let mut blind = Connect::kept("blind", 600).go(running.port).await;
    blind.subscribe5(&[], &[("$share/g/t/+", 1)]).await;
    drop(lost);
    let got = blind.got().await;
    assert_eq!(got.payload, "11");
    blind.ack(0x40, got.id).await;
    blind.expect_nothing().await;
    let mut lost = Connect::kept("lost", 600).go(running.port).await;
    for before in [&sent[0], &sent[2]] {
        let got = lost.got().await;
        assert_eq!((&got.payload, got.id), (&before.payload, before.id));
        assert!(got.is_dup());
        lost.ack(0x40, got.id).await;
    }
    lost.expect_nothing().await;
    assert_eq!(running.server.stats().dropped_total, 0);
    running.stop().await;
}

/// A member that is lost, with five messages, and another one that can take no more: eleven others
/// wait for it.
async fn lost_beside_a_full_one() -> (Running, Client) {
    let config = MqttConfig {
        inflight_max: 1,
        queue_messages_max: 10,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut lost = Connect::kept("lost", 600).go(running.port).await;
    lost.subscribe5(&[], &[("$share/g/t", 1)]).await;
    let say = |topic: &str, payload: u32| {
        let (topic, payload) = (topic.parse().unwrap(), payload.to_string());
        let said = running
            .server
            .publish(&topic, payload.as_bytes(), Qos::AtLeastOnce, false);
        said.unwrap();
    };
    (10..15).for_each(|n| say("t", n));
    let mut full = Connect::new("full").go(running.port).await;
    full.subscribe5(&[], &[("$share/g/t", 1), ("own", 1)]).await;
    (20..31).for_each(|n| say("own", n));
    drop(lost);
    until("it is gone", || {
        let clients = running.server.clients();
        clients
            .iter()
            .any(|c| c.client_id == "lost" && !c.connected)
    })
    .await;
    (running, full)
}

/// Takes these and acknowledges them.
async fn take(client: &mut Client, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let got = client.got().await;
        assert_eq!(got.payload, number.to_string());
        client.ack(0x40, got.id).await;
    }
}

#[tokio::test]
async fn a_member_without_room_takes_over_what_fits_once_it_has_some() {
    let (running, mut full) = lost_beside_a_full_one().await;
    take(&mut full, 20..31).await;
    take(&mut full, 10..15).await;
    full.expect_nothing().await;
    assert_eq!(running.server.stats().dropped_total, 0);
    running.stop().await;
}

#[tokio::test]
async fn a_member_that_comes_back_gets_what_nobody_had_room_for() {
    let (running, mut full) = lost_beside_a_full_one().await;
    let mut lost = Connect::kept("lost", 600).go(running.port).await;
    take(&mut lost, 10..15).await;
    lost.expect_nothing().await;
    take(&mut full, 20..31).await;
    full.expect_nothing().await;
    assert_eq!(running.server.stats().dropped_total, 0);
    running.stop().await;
}
