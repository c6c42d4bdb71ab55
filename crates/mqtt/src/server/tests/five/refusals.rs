//! Packets that cannot be, and what their sender is told.

use super::super::Running;
use super::super::client::{Client, packet};
use super::{Connect, disconnect, each_ends_its_link, four, named, one, publish, two};
use crate::config::MqttConfig;

#[tokio::test]
pub(in crate::server) async fn packets_that_are_wrong_end_the_link_with_their_reason() {
    let running = Running::start(MqttConfig::default()).await;
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 1].to_vec();
    let not_text = |mut bytes: Vec<u8>| {
        let at = bytes.len() - 1;
        bytes[at] = 0xff;
        bytes
    };
    let twice = [one(1, 0), one(1, 0)].concat();
    each_ends_its_link(
        &running,
        [
            ("QoS 3", publish(0x36, "t", 1, &[], ""), 0x81),
            ("DUP with QoS 0", publish(0x38, "t", 0, &[], ""), 0x81),
            ("packet identifier 0", publish(0x32, "t", 0, &[], ""), 0x81),
            (
                "wildcard in a topic",
                publish(0x30, "t/#", 0, &[], ""),
                0x90,
            ),
            ("topic with U+0000", publish(0x30, "\0", 0, &[], ""), 0x90),
            (
                "neither topic nor alias",
                publish(0x30, "", 0, &[], ""),
                0x82,
            ),
            ("topic not UTF-8", packet(0x30, b"\0\x01\xff\0"), 0x81),
            (
                "surrogate in a topic",
                packet(0x30, b"\0\x03\xed\xa0\x80\0"),
                0x81,
            ),
            (
                "subscription identifier",
                publish(0x30, "t", 0, &[11, 1], ""),
                0x82,
            ),
            (
                "payload format 2",
                publish(0x30, "t", 0, &one(1, 2), ""),
                0x82,
            ),
            ("a property twice", publish(0x30, "t", 0, &twice, ""), 0x82),
            (
                "response to a wildcard",
                publish(0x30, "t", 0, &named(8, "a/+"), ""),
                0x82,
            ),
            (
                "response not UTF-8",
                publish(0x30, "t", 0, &not_text(named(8, "a")), ""),
                0x81,
            ),
            (
                "content not UTF-8",
                publish(0x30, "t", 0, &not_text(named(3, "a")), ""),
                0x81,
            ),
            (
                "a property of CONNECT",
                publish(0x30, "t", 0, &four(17, 1), ""),
                0x82,
            ),
            (
                "a property cut off",
                publish(0x30, "t", 0, &cut(&two(35, 1)), ""),
                0x81,
            ),
            (
                "properties past the end",
                packet(0x30, b"\0\x01t\x05"),
                0x81,
            ),
            (
                "a long form of a short length",
                packet(0x30, b"\0\x01t\x80\0"),
                0x81,
            ),
            ("flags of PUBACK", vec![0x41, 2, 0, 1], 0x81),
            ("flags of PUBREL", vec![0x60, 2, 0, 1], 0x81),
            ("no such reason of PUBACK", vec![0x40, 3, 0, 1, 1], 0x82),
            ("no such reason of PUBREL", vec![0x62, 3, 0, 1, 0x80], 0x82),
            ("flags of PINGREQ", vec![0xc1, 0], 0x81),
            ("flags of DISCONNECT", vec![0xe1, 0], 0x81),
            ("no such reason of DISCONNECT", disconnect(1, &[]), 0x82),
            ("a reason that servers give", disconnect(0x8e, &[]), 0x82),
            ("flags of AUTH", vec![0xf1, 0], 0x81),
            ("success from a client", vec![0xf0, 0], 0x82),
            ("a CONNACK", vec![0x20, 3, 0, 0, 0], 0x82),
            ("a SUBACK", vec![0x90, 4, 0, 1, 0, 0], 0x82),
            ("type 0", vec![0, 0], 0x82),
            (
                "a length of five bytes",
                vec![0x30, 0x80, 0x80, 0x80, 0x80, 1],
                0x81,
            ),
        ],
    )
    .await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_ping_is_answered_and_nothing_follows_a_goodbye() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = Connect::new("w").go(running.port).await;
    watcher.subscribe5(&[], &[("#", 0)]).await;
    for goodbye in [
        vec![0xe0, 0],
        vec![0xe0, 1, 0],
        disconnect(0, &named(31, "bye")),
    ] {
        let mut client = Connect::new("c").go(running.port).await;
        client.expect_nothing().await;
        let mut bytes = goodbye;
        bytes.extend(publish(0x30, "t", 0, &[], "too late"));
        client.send(&bytes).await;
        client.ends_without_a_word().await;
    }
    watcher.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_byte_order_mark_is_a_character_like_others() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Connect::new("\u{feff}c").go(running.port).await;
    client.subscribe5(&[], &[("\u{feff}t", 0)]).await;
    client.send(&publish(0x30, "t", 0, &[], "without")).await;
    client
        .send(&publish(0x30, "\u{feff}t", 0, &[], "with"))
        .await;
    let got = client.got().await;
    assert_eq!(
        (got.topic.as_str(), got.payload.as_str()),
        ("\u{feff}t", "with")
    );
    assert_eq!(running.server.clients()[0].client_id, "\u{feff}c");
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn acknowledgements_of_nothing_are_answered_or_ignored() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client: Client = Connect::new("c").go(running.port).await;
    client.ack(0x40, 5).await;
    client.ack(0x70, 5).await;
    client.expect_nothing().await;
    client.ack(0x62, 5).await;
    assert_eq!(client.packet().await, (0x70, vec![0, 5, 0x92]));
    running.stop().await;
}
