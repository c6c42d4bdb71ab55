//! CONNECT and CONNACK.

use std::time::Duration;

use base::{ByteSize, HumanDuration};

use super::super::Running;
use super::super::client::{Client, packet};
use super::{Connect, four, one, publish, two};
use crate::config::MqttConfig;

#[tokio::test]
pub(in crate::server) async fn the_connack_tells_what_the_server_takes() {
    let config = MqttConfig {
        packet_bytes_max: ByteSize::kib(64),
        receive_maximum: 7,
        topic_aliases_max: 3,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let (mut client, connack) = Connect::new("c").told(running.port).await;
    let says = connack.properties();
    assert_eq!((connack.reason, connack.present), (0, false));
    assert_eq!(
        (says.two(33), says.four(39), says.two(34)),
        (Some(7), Some(65_536), Some(3))
    );
    // Neither an id nor a keep-alive nor response information nor a method that was not asked for.
    for absent in [18, 19, 21, 26] {
        assert_eq!(says.find(absent), None, "property {absent}");
    }
    client.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_client_without_an_id_is_given_one() {
    let running = Running::start(MqttConfig::default()).await;
    let (_first, one) = Connect::new("").told(running.port).await;
    let (_second, two) = Connect::kept("", 60).told(running.port).await;
    let id = |connack: &super::Connack| connack.properties().text(18).unwrap().to_owned();
    assert_ne!(id(&one), id(&two));
    let known: Vec<String> = running
        .server
        .clients()
        .into_iter()
        .map(|c| c.client_id)
        .collect();
    assert!(
        known.contains(&id(&one)) && known.contains(&id(&two)),
        "{known:?}"
    );
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn simple_client_ids_of_up_to_23_characters_are_taken() {
    let running = Running::start(MqttConfig::default()).await;
    for id in ["a", "0123456789abcdefghijklm", "NOPQRSTUVWXYZnopqrstuvw"] {
        Connect::new(id).go(running.port).await;
        running.client(id).await;
    }
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn the_server_shortens_a_keep_alive_and_holds_the_client_to_it() {
    let config = MqttConfig {
        keep_alive_max: HumanDuration(Duration::from_secs(1)),
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let (mut lazy, connack) = Connect::new("lazy")
        .keep_alive(600)
        .told(running.port)
        .await;
    assert_eq!(connack.properties().two(19), Some(1));
    lazy.told_to_go(0x8d).await;
    let running = running.restart(MqttConfig::default()).await;
    let (mut own, connack) = Connect::new("own").keep_alive(1).told(running.port).await;
    assert_eq!(connack.properties().two(19), None);
    own.told_to_go(0x8d).await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn response_information_comes_only_to_who_asks() {
    let config = MqttConfig {
        response_topic_prefix: "answers/".to_owned(),
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let (_a, asked) = Connect::new("a").with(one(25, 1)).told(running.port).await;
    assert_eq!(asked.properties().text(26), Some("answers/a"));
    let (_b, silent) = Connect::new("b").with(one(25, 0)).told(running.port).await;
    assert_eq!(silent.properties().find(26), None);
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_second_connect_and_a_first_other_packet_end_the_link() {
    let running = Running::start(MqttConfig::default()).await;
    let mut twice = Connect::new("twice").go(running.port).await;
    twice.send(&Connect::new("twice").bytes()).await;
    twice.told_to_go(0x82).await;
    let mut old = running.client("old").await;
    old.send(&super::super::client::connect("old", true, 0, None))
        .await;
    old.expect_end().await;
    for first in [
        publish(0x30, "a", 0, &[], "x"),
        vec![0xc0, 0],
        vec![0xf0, 0],
    ] {
        let mut client = Client::open(running.port).await;
        client.send(&first).await;
        client.ends_without_a_word().await;
    }
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_connect_that_is_wrong_is_refused_with_its_reason() {
    let running = Running::start(MqttConfig::default()).await;
    let will = |flags: u8, topic: &[u8]| {
        let mut body = b"\0\x04MQTT\x05".to_vec();
        body.extend([flags, 0, 0, 0, 0, 1, b'w', 0, 0]);
        body.push(topic.len() as u8);
        body.extend(topic);
        body.extend([0, 0]);
        packet(0x10, &body)
    };
    let connect = Connect::new("x");
    let mut bad_name = connect.bytes();
    bad_name[7] = b'X';
    let mut reserved = connect.bytes();
    reserved[9] |= 1;
    let mut level = connect.bytes();
    level[8] = 6;
    let mut will_qos = connect.bytes();
    will_qos[9] |= 0b0000_1000;
    let mut will_retain = connect.bytes();
    will_retain[9] |= 0b0010_0000;
    let mut no_user = connect.bytes();
    no_user[9] |= 0b1000_0000;
    let mut no_password = connect.bytes();
    no_password[9] |= 0b0100_0000;
    let mut longer = connect.bytes();
    longer[1] += 1;
    longer.push(0);
    for (why, bytes, reason) in [
        ("protocol name", bad_name, 0x81),
        ("reserved flag", reserved, 0x81),
        ("version", level, 0x84),
        ("will QoS without a will", will_qos, 0x81),
        ("will retain without a will", will_retain, 0x81),
        ("user name left out", no_user, 0x81),
        ("password left out", no_password, 0x81),
        ("bytes left over", longer, 0x81),
        ("will of QoS 3", will(0b0001_1110, b"t"), 0x81),
        ("will to a wildcard", will(0b0000_0110, b"t/#"), 0x81),
        ("will topic not UTF-8", will(0b0000_0110, b"\xff"), 0x81),
        (
            "receive maximum 0",
            Connect::new("x").with(two(33, 0)).bytes(),
            0x82,
        ),
        (
            "packet size 0",
            Connect::new("x").with(four(39, 0)).bytes(),
            0x82,
        ),
        (
            "a property twice",
            Connect::new("x").with(one(23, 1)).with(one(23, 1)).bytes(),
            0x82,
        ),
        (
            "a property of others",
            Connect::new("x").with(two(35, 1)).bytes(),
            0x82,
        ),
        (
            "no such property",
            Connect::new("x").with(one(99, 1)).bytes(),
            0x81,
        ),
        (
            "id not UTF-8",
            packet(0x10, b"\0\x04MQTT\x05\x02\0\0\0\0\x01\xff"),
            0x81,
        ),
        (
            "id with U+0000",
            packet(0x10, b"\0\x04MQTT\x05\x02\0\0\0\0\x01\0"),
            0x81,
        ),
        ("no id", packet(0x10, b"\0\x04MQTT\x05\x02\0\0\0"), 0x81),
    ] {
        let mut client = Client::open(running.port).await;
        client.send(&bytes).await;
        let connack = client.connack().await;
        assert_eq!((connack.reason, connack.present), (reason, false), "{why}");
        client.expect_end().await;
    }
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn what_follows_a_refused_connect_is_not_processed() {
    let running = Running::start(MqttConfig::default()).await;
    let mut watcher = Connect::new("watcher").go(running.port).await;
    watcher.subscribe5(&[], &[("#", 0)]).await;
    let mut client = Client::open(running.port).await;
    let mut bytes = Connect::new("x").with(two(33, 0)).bytes();
    bytes.extend(publish(0x30, "a", 0, &[], "smuggled"));
    client.send(&bytes).await;
    assert_eq!(client.connack().await.reason, 0x82);
    client.ends_without_a_word().await;
    // What follows an accepted one is, without waiting for the CONNACK.
    let mut bytes = Connect::new("y").bytes();
    bytes.extend(publish(0x30, "a", 0, &[], "early"));
    let mut early = Client::open(running.port).await;
    early.send(&bytes).await;
    assert_eq!(early.connack().await.reason, 0);
    assert_eq!(watcher.got().await.payload, "early");
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_password_may_come_without_a_user_name() {
    let running = Running::start(MqttConfig::default()).await;
    Connect::new("a").password(None, "p").go(running.port).await;
    Connect::new("b")
        .password(Some("u"), "p")
        .go(running.port)
        .await;
    running.stop().await;
}
