//! MQTT 3.1.1 and 3.1, where they differ from 5.0 or say less.

use super::Running;
use super::client::{Client, connect, packet, publish, subscribe};
use crate::config::MqttConfig;

#[tokio::test]
pub(super) async fn packets_that_are_wrong_end_the_link_without_a_word() {
    let running = Running::start(MqttConfig::default()).await;
    for (why, bytes) in [
        ("QoS 3", packet(0x36, b"\0\x01t\0\x01")),
        ("DUP with QoS 0", packet(0x38, b"\0\x01t")),
        ("packet identifier 0", publish("t", b"", 1, false, 0)),
        ("wildcard in a topic", packet(0x30, b"\0\x03t/#")),
        ("empty topic", packet(0x30, b"\0\0")),
        ("topic not UTF-8", packet(0x30, b"\0\x01\xff")),
        ("topic with U+0000", packet(0x30, b"\0\x01\0")),
        ("surrogate in a topic", packet(0x30, b"\0\x03\xed\xa0\x80")),
        ("flags of PUBACK", packet(0x41, b"\0\x01")),
        ("flags of PUBREL", packet(0x60, b"\0\x01")),
        ("flags of SUBSCRIBE", packet(0x80, b"\0\x01\0\x01a\0")),
        ("SUBSCRIBE of identifier 0", subscribe(0, &[("a", 0)])),
        ("SUBSCRIBE of nothing", subscribe(1, &[])),
        ("SUBSCRIBE with QoS 3", packet(0x82, b"\0\x01\0\x01a\x03")),
        (
            "SUBSCRIBE with reserved bits",
            packet(0x82, b"\0\x01\0\x01a\x04"),
        ),
        ("filter not UTF-8", packet(0x82, b"\0\x01\0\x01\xff\0")),
        ("filter with # in the middle", subscribe(1, &[("a/#/b", 0)])),
        ("filter with part of a level", subscribe(1, &[("a+", 0)])),
        ("empty filter", subscribe(1, &[("", 0)])),
        ("flags of UNSUBSCRIBE", packet(0xa0, b"\0\x01\0\x01a")),
        ("UNSUBSCRIBE of nothing", packet(0xa2, b"\0\x01")),
        ("UNSUBSCRIBE not UTF-8", packet(0xa2, b"\0\x01\0\x01\xff")),
        ("UNSUBSCRIBE of identifier 0", packet(0xa2, b"\0\0\0\x01a")),
        ("flags of PINGREQ", vec![0xc1, 0]),
        ("flags of DISCONNECT", vec![0xe1, 0]),
        ("a packet of servers", packet(0x20, b"\0\0")),
        ("AUTH, which is of 5.0", packet(0xf0, b"")),
        ("type 0", vec![0, 0]),
    ] {
        let mut client = running.client("c").await;
        client.send(&bytes).await;
        client.ends_without_a_word().await;
        assert_eq!(running.server.stats().messages_received_total, 0, "{why}");
    }
    running.stop().await;
}

#[tokio::test]
pub(super) async fn a_connect_that_is_wrong_is_refused_or_ended() {
    let running = Running::start(MqttConfig::default()).await;
    let good = || connect("x", true, 0, None);
    let with = |at: usize, value: u8| {
        let mut bytes = good();
        bytes[at] = value;
        bytes
    };
    for (why, bytes) in [
        ("protocol name", with(7, b'X')),
        ("reserved flag", with(9, 3)),
        ("will QoS without a will", with(9, 0b0000_1010)),
        ("will retain without a will", with(9, 0b0010_0010)),
        ("will of QoS 3", {
            let mut bytes = connect("x", true, 0, Some("w"));
            bytes[9] |= 0b0001_1000;
            bytes
        }),
        ("a will left out", with(9, 0b0000_0110)),
        ("a user name left out", with(9, 0b1000_0010)),
        ("a password without a user name", with(9, 0b0100_0010)),
        ("id not UTF-8", with(14, 0xff)),
        ("no id", packet(0x10, b"\0\x04MQTT\x04\x02\0\0")),
        (
            "bytes left over",
            packet(0x10, b"\0\x04MQTT\x04\x02\0\0\0\x01xy"),
        ),
    ] {
        let mut client = Client::open(running.port).await;
        client.send(&bytes).await;
        client.ends_without_a_word().await;
        assert_eq!(running.server.stats().sessions, 0, "{why}");
    }
    for (why, bytes, code) in [
        ("another level", with(8, 3), 1),
        ("no id to keep a session by", connect("", false, 0, None), 2),
        (
            "too long an id",
            connect(&"x".repeat(1_025), true, 0, None),
            2,
        ),
    ] {
        let mut client = Client::open(running.port).await;
        client.send(&bytes).await;
        assert_eq!(client.packet().await, (0x20, vec![0, code]), "{why}");
        client.expect_end().await;
    }
    running.stop().await;
}

#[tokio::test]
pub(super) async fn the_link_that_a_client_had_is_ended() {
    let running = Running::start(MqttConfig::default()).await;
    let mut first = running.client("c").await;
    let mut second = running.client("c").await;
    first.ends_without_a_word().await;
    second.send(&connect("c", true, 0, None)).await;
    second.ends_without_a_word().await;
    running.stop().await;
}

#[tokio::test]
pub(super) async fn qos_2_goes_on_over_a_reconnect_and_an_answered_refusal_is_a_success() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Client::connect(running.port, "k", false).await;
    keeper.subscribe("t", 2).await;
    let mut publisher = running.client("p").await;
    for (id, payload) in [(1, "a"), (2, "b")] {
        publisher
            .send(&publish("t", payload.as_bytes(), 2, false, id))
            .await;
        assert_eq!(publisher.packet().await.0, 0x50);
        publisher.send(&[0x62, 2, 0, id as u8]).await;
        assert_eq!(publisher.packet().await.0, 0x70);
    }
    let (_, _, first, one) = keeper.message().await;
    let (_, _, _, two) = keeper.message().await;
    assert_eq!(first, 0x34);
    keeper.send(&[0x50, 2, 0, one as u8]).await;
    assert_eq!(keeper.packet().await, (0x62, vec![0, one as u8]));
    drop(keeper);
    let (mut keeper, present) = Client::connect_present(running.port, "k", false).await;
    assert!(present);
    assert_eq!(keeper.packet().await, (0x62, vec![0, one as u8]));
    let (_, payload, first, id) = keeper.message().await;
    assert_eq!((payload, first, id), (b"b".to_vec(), 0x3c, two));
    for id in [one, two] {
        if id == two {
            keeper.send(&[0x50, 2, 0, id as u8]).await;
            assert_eq!(keeper.packet().await, (0x62, vec![0, id as u8]));
        }
        keeper.send(&[0x70, 2, 0, id as u8]).await;
    }
    keeper.expect_nothing().await;
    // Before 5.0 there is no word for an identifier that nobody knows.
    keeper.send(&[0x62, 2, 0, 99]).await;
    assert_eq!(keeper.packet().await, (0x70, vec![0, 99]));
    running.stop().await;
}

#[tokio::test]
pub(super) async fn what_was_sent_once_is_delivered_and_nothing_else_after_an_unsubscribe() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Client::connect(running.port, "k", false).await;
    keeper.subscribe("t", 1).await;
    let mut publisher = running.client("p").await;
    publisher.send(&publish("t", b"x", 1, false, 1)).await;
    publisher.packet().await;
    let (_, _, _, id) = keeper.message().await;
    for _ in 0..2 {
        // The second one finds nothing and is answered all the same.
        keeper.send(&packet(0xa2, b"\0\x05\0\x01t")).await;
        assert_eq!(keeper.packet().await, (0xb0, vec![0, 5]));
    }
    publisher.send(&publish("t", b"late", 1, false, 2)).await;
    publisher.packet().await;
    keeper.expect_nothing().await;
    drop(keeper);
    let mut keeper = Client::connect(running.port, "k", false).await;
    assert_eq!(
        keeper.message().await,
        ("t".to_owned(), b"x".to_vec(), 0x3a, id)
    );
    keeper.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(super) async fn clients_of_3_1_are_served() {
    let running = Running::start(MqttConfig::default()).await;
    let hello = |id: &str, clean: bool| {
        let mut body = b"\0\x06MQIsdp\x03".to_vec();
        body.extend([u8::from(clean) << 1, 0, 0, 0, id.len() as u8]);
        body.extend(id.as_bytes());
        packet(0x10, &body)
    };
    let mut old = Client::open(running.port).await;
    old.send(&hello("old", false)).await;
    assert_eq!(old.packet().await, (0x20, vec![0, 0]));
    // A SUBSCRIBE and a PUBREL that were sent before have DUP.
    old.send(&packet(0x8a, b"\0\x01\0\x01t\x02")).await;
    assert_eq!(old.packet().await, (0x90, vec![0, 1, 2]));
    old.send(&publish("t", b"x", 2, false, 3)).await;
    let mut kinds = vec![old.packet().await.0, old.packet().await.0];
    kinds.sort_unstable();
    assert_eq!(kinds, [0x34, 0x50]);
    old.send(&packet(0x6a, b"\0\x03")).await;
    assert_eq!(old.packet().await, (0x70, vec![0, 3]));
    drop(old);
    let mut old = Client::open(running.port).await;
    old.send(&hello("old", false)).await;
    // The byte is reserved in 3.1, although the session is there.
    assert_eq!(old.packet().await, (0x20, vec![0, 0]));
    assert_eq!(old.message().await.2, 0x3c);
    let mut nameless = Client::open(running.port).await;
    nameless.send(&hello("", true)).await;
    assert_eq!(nameless.packet().await, (0x20, vec![0, 2]));
    running.stop().await;
}
